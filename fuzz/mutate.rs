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

/// How long a run is and what it is of: in an ordinary test run the same each time. `FUZZ_ITERATIONS`
/// makes it longer, `FUZZ_SEED` another one, `FUZZ_TARGET` has it leave all other targets out.
#[derive(Debug)]
pub struct Run {
    /// Mutations of a target's corpus, if one costs little.
    iterations: usize,
    seed: u64,
    target: Option<String>,
}

impl Run {
    /// What the environment asks for, or `iterations` of each target.
    pub fn asked_for(iterations: usize) -> Run {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number is expected"));
        Run {
            iterations: number("FUZZ_ITERATIONS").map_or(iterations, |asked: u64| asked as usize),
            seed: number("FUZZ_SEED").unwrap_or(1),
            target: std::env::var("FUZZ_TARGET").ok(),
        }
    }

    /// Checks `inputs`, and what `change` makes of any of them; one costs as much as `cost` others.
    pub fn of(
        &self,
        target: &str,
        cost: usize,
        inputs: &[Vec<u8>],
        check: impl Fn(&[u8]),
        change: impl Fn(&mut Vec<u8>, &[Vec<u8>], &mut Rng),
    ) {
        if self.target.as_ref().is_some_and(|wanted| wanted != target) {
            return;
        }
        inputs.iter().for_each(|input| check(input));
        let mut rng = Rng::stream(self.seed, target);
        for number in 0..self.iterations / cost {
            let mut input = inputs[rng.below(inputs.len())].clone();
            for _ in 0..=rng.below(4) {
                change(&mut input, inputs, &mut rng);
            }
            let broken = Broken { target, seed: self.seed, number, input: &input };
            check(&input);
            std::mem::forget(broken);
        }
    }
}

/// Says which input has broken a rule, so that it can be added to the corpus.
struct Broken<'a> {
    target: &'a str,
    seed: u64,
    number: usize,
    input: &'a [u8],
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        let Broken { target, seed, number, input } = self;
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("target {target}, seed {seed}, mutation {number}: {hex}");
    }
}
