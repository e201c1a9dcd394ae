//! Sessions.

#[path = "../../../../fuzz/onion_session_checks.rs"]
mod checks;

use crate::numbered;
use crate::short_run::Target;
use anabranch_onion::session::cell::{self, ACK_BITS, Acked, Frame, Reason, StreamId};

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

pub fn targets() -> [Target; 2] {
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
    [
        Target { name: "onion_cell", check: checks::onion_cell, cost: 1, own: numbered(cells) },
        Target { name: "onion_session", check: checks::onion_session, cost: 200, own: numbered(scripts) },
    ]
}
