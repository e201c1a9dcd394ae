//! Small changes to an input, for fuzz runs that any compiler can do.

use anabranch_control::rng::Rng;

/// Changes a byte, drops or adds one, cuts the input short, or goes on as another of
/// `inputs` does.
pub fn mutate(input: &mut Vec<u8>, inputs: &[Vec<u8>], rng: &mut Rng) {
    const EDGES: [u8; 8] = [0, 1, 4, 6, 7, 8, 0x7f, 0xff];
    let place = rng.below(input.len() + 1);
    match rng.below(6) {
        0 => input.truncate(place),
        1 => input.insert(place, rng.bits() as u8),
        2 if place < input.len() => input[place] ^= 1 << rng.below(8),
        3 if place < input.len() => input[place] = EDGES[rng.below(EDGES.len())],
        4 if place < input.len() => {
            input.remove(place);
        }
        _ => {
            // The end of another input behind the beginning of this one.
            let other = &inputs[rng.below(inputs.len())];
            input.truncate(place);
            input.extend_from_slice(&other[rng.below(other.len() + 1)..]);
        }
    }
}
