//! A short fuzz run of onion sessions that any compiler can do, and the corpus of its targets: see
//! `crates/net/tests/fuzz_short.rs`.

#[path = "../../../fuzz/onion_session_checks.rs"]
mod checks;
#[path = "../../../fuzz/mutate.rs"]
mod mutate;

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_onion::session::cell::{self, ACK_BITS, Acked, Frame, Reason, StreamId};
use mutate::{Run, mutate};

/// Mutations of each target's corpus in an ordinary test run.
const ITERATIONS: usize = 20_000;

fn folder(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn frames() -> Vec<Vec<u8>> {
    let stream = StreamId(0);
    let mut bits = [0; ACK_BITS as usize / 8];
    (bits[0], bits[3]) = (0b101, 7);
    let arrivals = [&[9; 0][..], &[0, 0, 0, 0, 0, 0, 0, 1], &[0; 8], &[1], &[0, 1, 0, 0, 0, 9]].concat();
    let frames = [
        vec![Frame::Ping, Frame::Close],
        vec![
            Frame::Open { stream, target: cell::Target::Name("example.org".into(), 443) },
            Frame::Data { stream, offset: 0, is_end: true, bytes: b"hello" },
        ],
        vec![
            Frame::Open { stream: StreamId(1), target: cell::Target::Address([192, 0, 2, 1].into(), 80) },
            Frame::Open { stream: StreamId(2), target: cell::Target::Itself },
            Frame::Accepted { stream },
        ],
        vec![Frame::Reset { stream, reason: Reason::Refused, end: 5 }, Frame::Credit { stream, limit: 1 << 21 }],
        vec![Frame::SessionCredit { limit: 1 << 24 }, Frame::Acked(Acked { largest: 3, bits })],
        vec![Frame::Blocks { size: 4, bytes: &[1; 12] }, Frame::Pace { turn: 2, cells_per_s: 5000, pads: true }],
        vec![Frame::Blocks { size: 4, bytes: &[2; 8] }, Frame::Void { before: 1 }],
        vec![Frame::Data { stream: StreamId(9), offset: 1 << 19, is_end: false, bytes: &[3; 40] }],
    ];
    let mut all: Vec<Vec<u8>> = frames
        .iter()
        .map(|frames| {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| frame.encode(&mut bytes));
            bytes
        })
        .collect();
    all.push([&[9][..], &arrivals].concat());
    let datagrams = [
        Frame::OpenFlow { stream: StreamId(3), target: cell::Target::Name("example.org".into(), 53) },
        Frame::Datagram { stream: StreamId(3), number: 0, length: 5, offset: 0, bytes: b"whole" },
        Frame::Datagram { stream: StreamId(3), number: 1, length: 9, offset: 4, bytes: b"piece" },
        Frame::Datagram { stream: StreamId(3), number: 1, length: 9, offset: 0, bytes: b"one-" },
        Frame::Datagram { stream: StreamId(4), number: 2, length: 0, offset: 0, bytes: b"" },
    ];
    let mut bytes = Vec::new();
    datagrams.iter().for_each(|frame| frame.encode(&mut bytes));
    all.push(bytes);
    all
}

type Target = (&'static str, fn(&[u8]), usize, Vec<Vec<u8>>);

/// Each target, what must hold, how many inputs cost as much as one of those that only decode, and its inputs.
fn corpus() -> [Target; 2] {
    let cells =
        frames().into_iter().map(|frames| [&[0, 0, 0, 0, 0, 0, 0, 9][..], &frames, &[0; 20]].concat()).collect();
    let scripts = frames()
        .into_iter()
        .flat_map(|frames| {
            // A session begins; then one end says these frames, or the other; then it goes on.
            [7u8, 15].map(|says| {
                let script = [&[0, 0, 1, 2][..], &[says, frames.len() as u8 + 1], &frames, &[0, 6, 0, 4, 3, 1]];
                script.concat()
            })
        })
        .collect();
    [("onion_cell", checks::onion_cell, 1, cells), ("onion_session", checks::onion_session, 200, scripts)]
}

#[test]
fn the_corpus_is_what_the_formats_say() {
    let update = std::env::var_os("UPDATE_CORPUS").is_some();
    for (target, _, _, inputs) in corpus() {
        for (number, bytes) in inputs.iter().enumerate() {
            let path = folder(target).join(number.to_string());
            if update {
                fs::create_dir_all(folder(target)).unwrap();
                fs::write(&path, bytes).unwrap();
            }
            let kept = fs::read(&path).unwrap_or_default();
            assert!(kept == *bytes, "fuzz/corpus/{target}/{number} is old: write it anew with UPDATE_CORPUS=1");
        }
    }
}

#[test]
fn mutated_inputs_break_no_rule() {
    let run = Run::asked_for(ITERATIONS);
    for (target, check, cost, mut inputs) in corpus() {
        // What a fuzzer has found before is tried again.
        for entry in fs::read_dir(folder(target)).unwrap() {
            inputs.push(fs::read(entry.unwrap().path()).unwrap());
        }
        run.of(target, cost, &inputs, check, mutate);
    }
}
