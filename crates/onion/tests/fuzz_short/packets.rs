//! An onion's relays.

#[path = "../../../../fuzz/onion_checks.rs"]
mod checks;

use crate::short_run::Target;
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_onion::crypto::Real;
use anabranch_onion::packet::Label;
use anabranch_onion::reply::MadeBlocks;
use anabranch_onion::size::DATAGRAM;

pub fn targets() -> [Target; 2] {
    // Some set up keys.
    [
        Target { name: "onion_datagram", check: checks::onion_datagram, cost: 4, own: datagrams() },
        Target { name: "onion_relays", check: checks::onion_relays, cost: 2, own: stories() },
    ]
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
