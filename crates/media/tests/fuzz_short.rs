//! Transport streams under a short fuzz run that any compiler can do: each input of the corpus is changed a fixed number
//! of times by a seeded generator, most often so that its packets still lie where they lay.
//!
//! `UPDATE_CORPUS=1 cargo test -p anabranch-media --test fuzz_short` writes the corpus anew;
//! `FUZZ_ITERATIONS=1000000` makes the run longer, `FUZZ_SEED=2` another one.

#[path = "../../../fuzz/media_checks.rs"]
mod checks;
#[path = "../../../fuzz/short_run.rs"]
#[allow(dead_code)] // Its own way to change an input is not used alone.
mod short_run;

use anabranch_control::rng::Rng;
use anabranch_media::alignment::PACKET;
use short_run::{Target, mutate};

const CLIP: &[u8] = include_bytes!("clip.ts");

/// Packets of an input from the clip.
const SHORT: usize = 40;

/// A stream as an input has it: behind the place at which it is read in two.
fn input(packets: &[u8]) -> Vec<u8> {
    [&[0x80], packets].concat()
}

/// Streams that are whole, that begin within a packet, and that begin anew.
fn streams() -> Vec<(String, Vec<u8>)> {
    let (short, end) = (&CLIP[..SHORT * PACKET], &CLIP[CLIP.len() - SHORT * PACKET..]);
    vec![
        ("begins".into(), input(short)),
        ("ends".into(), input(end)),
        ("within".into(), input(&CLIP[PACKET / 2..][..SHORT * PACKET])),
        ("again".into(), input(&[end, &short[..SHORT / 2 * PACKET]].concat())),
        ("none".into(), input(&[0x11; 3 * PACKET])),
    ]
}

fn target() -> Target {
    Target { name: "transport_stream", check: checks::transport_stream, cost: 20, own: streams() }
}

/// Changes the head of a packet, where all is that is read, or what a unit begins with; leaves a packet out or has it
/// come again; or changes anything.
fn change(input: &mut Vec<u8>, inputs: &[Vec<u8>], rng: &mut Rng) {
    const HEAD: usize = 40;
    let packets = input.len().saturating_sub(1) / PACKET;
    if packets == 0 || rng.below(8) == 0 {
        return mutate(input, inputs, rng);
    }
    let at = 1 + rng.below(packets) * PACKET;
    let packet = input[at..at + PACKET].to_vec();
    match rng.below(8) {
        0 => drop(input.drain(at..at + PACKET)),
        1 => {
            let to = 1 + rng.below(packets) * PACKET;
            drop(input.splice(to..to, packet));
        }
        2 => input[at + 1 + rng.below(HEAD)] = rng.bits() as u8,
        3 => input[at + 1 + rng.below(HEAD)] = 0xff,
        4 => input[at + 4] = rng.bits() as u8,
        _ => input[at + 1 + rng.below(HEAD)] ^= 1 << rng.below(8),
    }
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    target().check_corpus();
}

#[test]
fn changed_streams_break_no_rule() {
    target().run_changed(change);
}
