//! An onion's relays under a short fuzz run that any compiler can do, as that of the network's decoders: each input of
//! the corpus is mutated a fixed number of times by a seeded generator.
//!
//! `UPDATE_CORPUS=1 cargo test -p anabranch-onion --test fuzz_short` writes the corpus anew;
//! `FUZZ_ITERATIONS=1000000` makes the run longer, `FUZZ_SEED=2` another one.

#[path = "../../../fuzz/onion_checks.rs"]
mod checks;
#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_onion::crypto::Real;
use anabranch_onion::packet::Label;
use anabranch_onion::reply::MadeBlocks;
use anabranch_onion::size::DATAGRAM;
use mutate::{Run, mutate};

/// Mutations of each target's corpus in an ordinary test run.
const ITERATIONS: usize = 20_000;

/// A target's name, what must hold for any input, how many inputs of the others cost as much as one (some set up keys),
/// and its own.
type Target = (&'static str, fn(&[u8]), usize, fn() -> Vec<(String, Vec<u8>)>);

const TARGETS: [Target; 2] =
    [("onion_datagram", checks::onion_datagram, 4, datagrams), ("onion_relays", checks::onion_relays, 2, stories)];

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Packets that the first relay takes, and some that it does not.
fn datagrams() -> Vec<(String, Vec<u8>)> {
    let (relays, mut user) = (checks::relays::<Real>(), checks::user::<Real>());
    let (mut rng, mut made) = (Rng::stream(1, "corpus"), MadeBlocks::new(8));
    let mut sealed = |path: &[u16]| {
        let mut datagram = [7; DATAGRAM];
        let hops = checks::hops(&relays, path);
        user.seal(&hops, Label(*b"service."), &mut rng, &mut datagram).map(|_| datagram.to_vec()).unwrap()
    };
    let (to_relay, to_service) = (sealed(&[0, 2, 1]), sealed(&[0]));
    let mut back = [7; DATAGRAM];
    let hops = checks::hops(&relays, &[0]);
    let (_, block) = made.make(&mut user, &hops, Label(*b"client.."), Time::ZERO, &mut rng).unwrap();
    let as_given = block.to_bytes().to_vec();
    let _ = block.seal::<Real>(&mut back);
    let mut low_order = vec![0; DATAGRAM];
    low_order[31] = 0x80;
    vec![
        ("to-relay".into(), to_relay),
        ("to-service".into(), to_service),
        ("to-client".into(), back.to_vec()),
        ("block".into(), as_given),
        ("low-order".into(), low_order),
    ]
}

/// Steps as the check reads them.
fn stories() -> Vec<(String, Vec<u8>)> {
    // A packet over three relays and its way: sealed, passed thrice, known to have arrived.
    let whole = [0, 8, 2, 0, 2, 0, 2, 0, 6, 0];
    // A block back over two.
    let back = [1, 5, 2, 0, 2, 0];
    let replays = [&whole[..], &[4, 0, 2, 0, 4, 1, 2, 0, 4, 2, 2, 0], &whole, &[4, 3, 2, 0]].concat();
    let changed = [&[0, 8, 5, 0, 0, 1, 2, 0][..], &[0, 8, 5, 0, 100, 255, 2, 0, 2, 0, 2, 0]].concat();
    let epochs = [&whole[..], &[7, 0], &whole, &[0, 8, 7, 0, 2, 0, 7, 30, 2, 0, 7, 7, 7, 7, 7, 200]].concat();
    let flood: Vec<u8> = (0..40).flat_map(|packet| [0, 8 + packet % 4, 2, 0, 2, 0, 2, 0]).collect();
    vec![
        ("whole".into(), whole.repeat(20)),
        ("back".into(), back.repeat(20)),
        ("replays".into(), replays),
        ("changed".into(), changed),
        ("epochs".into(), epochs),
        ("flood".into(), flood),
    ]
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    for (target, _, _, own) in TARGETS {
        let folder = folder(target);
        for (name, bytes) in own() {
            if std::env::var_os("UPDATE_CORPUS").is_some() {
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join(&name), &bytes).unwrap();
            }
            let kept = fs::read(folder.join(&name)).unwrap_or_default();
            assert!(kept == bytes, "fuzz/corpus/{target}/{name} is old: write it anew with UPDATE_CORPUS=1");
        }
    }
}

#[test]
fn mutated_inputs_break_no_rule() {
    let run = Run::asked_for(ITERATIONS);
    for (target, check, cost, own) in TARGETS {
        let mut inputs: Vec<Vec<u8>> = own().into_iter().map(|(_, bytes)| bytes).collect();
        // What a fuzzer has found before is tried again.
        for entry in fs::read_dir(folder(target)).unwrap() {
            inputs.push(fs::read(entry.unwrap().path()).unwrap());
        }
        run.of(target, cost, &inputs, check, mutate);
    }
}
