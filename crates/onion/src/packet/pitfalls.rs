//! What onions are known to get wrong, a test each, with the real cryptography. p01 and so on are the numbers by which
//! the design knows them.

use std::collections::BTreeSet;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::x25519::LOW_ORDER;
use rand_core::Rng as _;

use super::testing::{CLIENT, Net, SERVICE, epoch_keys, is_set_up};
use super::*;
use crate::crypto::{Cryptography, PublicKey, Real};
use crate::relay::{DropReason, Limits, Outcome, Relay};
use crate::reply::{HeldBlocks, MadeBlocks, OpenError, Refused, ReplyBlock};

const NOW: Duration = Duration::ZERO;

#[test]
fn p01_a_changed_header_is_dropped_at_the_next_hop() {
    let path = [0, 1, 2, 3];
    for hop in 0..path.len() {
        for cached in [false, true] {
            let mut net = Net::<Real>::new(4, 8, 1);
            if cached {
                net.set_up(&path);
            }
            let body = net.body();
            let (mut datagram, _) = net.packet(&path, &body);
            for &relay in &path[..hop] {
                net.process(relay, &mut datagram);
            }
            let flips: Vec<usize> =
                if cached { (0..8 * HEADER).collect() } else { (hop..8 * HEADER).step_by(5).collect() };
            for bit in flips {
                let mut changed = datagram;
                changed[bit / 8] ^= 1 << (bit % 8);
                let outcome = net.process(path[hop], &mut changed);
                let is_dropped = matches!(outcome, Outcome::Drop(DropReason::Header | DropReason::UnknownId));
                assert!(is_dropped, "bit {bit} at hop {hop}: {outcome:?}");
            }
            let outcome = net.process(path[hop], &mut datagram);
            assert!(!matches!(outcome, Outcome::Drop(_)), "what was refused has used nothing up: {outcome:?}");
        }
    }
}

/// Bits in which two payloads differ.
fn distance(one: &[u8], other: &[u8]) -> u32 {
    one.iter().zip(other).map(|(one, other)| (one ^ other).count_ones()).sum()
}

#[test]
fn p01_a_changed_payload_is_wholly_random_behind_the_next_honest_hop_in_both_halves() {
    for (seed, byte) in [(1, HEADER), (2, HEADER + 15), (3, HEADER + 16), (4, 700), (5, 1399)] {
        for back in [false, true] {
            for hop in 0..3 {
                // Two equal networks: one of them sees one bit changed.
                let [left, right] = [false, true].map(|change| {
                    let mut net = Net::<Real>::new(4, 8, seed);
                    let body = net.body();
                    let (mut datagram, path) = if back {
                        let (_, block) = net.block(&[3, 2, 1]);
                        let mut datagram = [0; crate::size::DATAGRAM];
                        *body_mut(&mut datagram) = body;
                        let _ = block.seal::<Real>(&mut datagram);
                        (datagram, [3, 2, 1])
                    } else {
                        (net.packet(&[0, 1, 2, 3], &body).0, [0, 1, 2])
                    };
                    for (place, &relay) in path.iter().enumerate().take(hop + 1) {
                        if change && place == hop {
                            datagram[byte] ^= 4;
                        }
                        let outcome = net.process(relay, &mut datagram);
                        assert!(!matches!(outcome, Outcome::Drop(_)), "{outcome:?}");
                    }
                    datagram
                });
                assert_eq!(left[..HEADER], right[..HEADER], "headers know nothing of payloads");
                // Of n random bits half differ, ± 6 σ = 6 √n / 2.
                for part in [HEADER..HEADER + 16, HEADER + 16..700, 700..1400, HEADER..1400] {
                    let bits = 8.0 * part.len() as f64;
                    let found = f64::from(distance(&left[part.clone()], &right[part.clone()]));
                    assert!(
                        (found - bits / 2.0).abs() < 3.0 * bits.sqrt(),
                        "byte {byte} changed before hop {hop}, back: {back}: {found} of {bits} bits in {part:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn p01_garbage_at_an_end_has_no_visible_effect() {
    let mut net = Net::<Real>::new(4, 8, 1);
    let body = net.body();
    // At a service: dropped, and counted as nothing else.
    let (mut datagram, _) = net.packet(&[0, 1], &body);
    assert!(matches!(net.process(0, &mut datagram), Outcome::Forward { .. }));
    datagram[900] ^= 1;
    assert_eq!(net.process(1, &mut datagram), Outcome::Drop(DropReason::Payload));
    // At a client: the block is gone, its path is known, and there is nothing to read.
    let (id, block) = net.block(&[2, 1]);
    let first = block.seal::<Real>(&mut datagram);
    let mut ours = datagram;
    net.process(first.0, &mut ours);
    ours[1000] ^= 1;
    assert_eq!(net.process(1, &mut ours), Outcome::ToClient { label: CLIENT, wait: NOW });
    let Err(OpenError::Damaged(opened)) = net.made.open(&mut net.user, &mut ours) else { panic!("it was changed") };
    assert_eq!((opened.block, opened.relays), (id, vec![RelayIndex(2), RelayIndex(1)]));
    // What was never ours.
    let mut noise = [0; crate::size::DATAGRAM];
    net.rng.fill_bytes(&mut noise);
    assert_eq!(net.made.open(&mut net.user, &mut noise), Err(OpenError::Unknown));
}

/// All runs of eight bytes, wherever they begin.
fn runs(bytes: &[u8]) -> BTreeSet<[u8; 8]> {
    bytes.windows(8).map(|run| run.try_into().unwrap()).collect()
}

#[test]
fn p02_colluding_hops_1_and_3_find_no_shared_bytes() {
    for cached in [false, true] {
        let mut net = Net::<Real>::new(4, 8, 1);
        if cached {
            net.set_up(&[0, 1, 2, 3]);
        }
        let body = net.body();
        let (mut datagram, _) = net.packet(&[0, 1, 2, 3], &body);
        let (seen, _) = net.carry(RelayIndex(0), &mut datagram);
        let mut before = BTreeSet::new();
        for datagram in &seen {
            let runs = runs(datagram);
            assert!(runs.is_disjoint(&before), "packets of one path share bytes");
            before.extend(runs);
        }
    }
}

#[test]
fn p02_a_block_shows_its_user_nothing_of_what_relays_see() {
    for cached in [false, true] {
        let mut net = Net::<Real>::new(4, 8, 1);
        if cached {
            net.set_up_back(&[3, 2, 1]);
        }
        let (_, block) = net.block(&[3, 2, 1]);
        let given = block.to_bytes();
        let body = net.body();
        let mut datagram = [0; crate::size::DATAGRAM];
        *body_mut(&mut datagram) = body;
        let first = block.seal::<Real>(&mut datagram);
        // All that the user has: the block, what it wrote, what it sent, and what it can make of it with its key.
        let mut known = runs(&given);
        known.extend(runs(&body));
        known.extend(runs(&datagram));
        let key = crate::crypto::HopKey(given[2 + HEADER..given.len() - 1].try_into().unwrap());
        for index in 0..8 {
            use crate::crypto::PacketKeys;
            let keys = Real::packet(&key, index);
            let (mut on, mut back) = (datagram, datagram);
            keys.permute(parts(&mut on).1);
            keys.invert(parts(&mut back).1);
            known.extend(runs(&on[HEADER..]));
            known.extend(runs(&back[HEADER..]));
        }
        let (seen, _) = net.carry(first, &mut datagram);
        for (hop, datagram) in seen.iter().enumerate().skip(1) {
            assert!(runs(datagram).is_disjoint(&known), "hop {hop} gets bytes that the user of the block can tell");
        }
        // What the client gets is no clue either.
        assert!(runs(&datagram[8..]).is_disjoint(&known));
    }
}

#[test]
fn p03_a_replay_is_dropped_at_once_after_a_restart_and_after_a_change_of_epoch() {
    let mut net = Net::<Real>::new(4, 8, 1);
    let path = [0, 1, 2, 3];
    let body = net.body();
    let (mut first, receipt) = net.packet(&path, &body);
    let (set_ups, _) = net.carry(RelayIndex(0), &mut first);
    net.user.arrived(&receipt);
    let (mut second, _) = net.packet(&path, &body);
    let (cached, _) = net.carry(RelayIndex(0), &mut second);
    assert!(set_ups.iter().all(is_set_up) && !cached.iter().any(is_set_up));
    let expect = |net: &mut Net<Real>, set_up: DropReason, id: DropReason| {
        for (place, &relay) in path.iter().enumerate() {
            assert_eq!(net.process(relay, &mut set_ups[place].clone()), Outcome::Drop(set_up), "relay {relay}");
            assert_eq!(net.process(relay, &mut cached[place].clone()), Outcome::Drop(id), "relay {relay}");
        }
    };
    expect(&mut net, DropReason::Replayed, DropReason::UnknownId);

    // Another epoch: what is late still comes through once, and no more.
    let (late, _) = net.packet(&[0, 1], &body);
    for relay in &path {
        let keys = epoch_keys(1, 4, *relay, &mut net.rng);
        net.relays[usize::from(*relay)].begin_epoch(net.now, keys, Duration::SECOND * 60);
    }
    assert!(matches!(net.process(0, &mut late.clone()), Outcome::Forward { epoch: 0, .. }));
    assert!(matches!(net.process(0, &mut late.clone()), Outcome::Drop(DropReason::UnknownId | DropReason::Replayed)));
    expect(&mut net, DropReason::Replayed, DropReason::UnknownId);
    net.now += Duration::SECOND * 60;
    expect(&mut net, DropReason::Header, DropReason::UnknownId);

    // A restart: secrets were in memory only, so that there is another one.
    for relay in &path {
        let keys = epoch_keys(1, 4, *relay, &mut net.rng);
        net.relays[usize::from(*relay)] = Relay::new(net.k, Limits::simulated(net.k), keys, [1, 2]);
    }
    expect(&mut net, DropReason::Header, DropReason::UnknownId);
}

#[test]
fn p04_headers_show_neither_position_nor_length() {
    // Every byte of a header at every place of paths of every length is uniform: its mean over many packets is
    // 127.5, with σ = 73.9 / √n. 6.5 σ: of 10 × 200 means one in 10⁷ is beyond that by chance.
    const PACKETS: usize = 400;
    let near = 6.5 * 73.9 / (PACKETS as f64).sqrt();
    for length in 1..=4u16 {
        let path: Vec<u16> = (0..length).collect();
        let mut net = Net::<Real>::new(4, 1, u64::from(length));
        let mut sums = vec![[0u64; HEADER]; usize::from(length)];
        let mut behind = [0u64; HEADER];
        for _ in 0..PACKETS {
            net.now += Duration::SECOND;
            let (mut datagram, _) = net.packet(&path, &[0; BODY]);
            let (seen, _) = net.carry(RelayIndex(0), &mut datagram);
            for (sums, datagram) in sums.iter_mut().zip(&seen) {
                sums.iter_mut().zip(datagram).for_each(|(sum, &byte)| *sum += u64::from(byte));
            }
            behind.iter_mut().zip(&datagram).for_each(|(sum, &byte)| *sum += u64::from(byte));
        }
        for (place, sums) in sums.iter().enumerate() {
            for (byte, &sum) in sums.iter().enumerate() {
                // Bit 255 marks a set-up, here always.
                let expected = if byte == MATERIAL - 1 { 127.5 + 64.0 } else { 127.5 };
                let mean = sum as f64 / PACKETS as f64;
                assert!((mean - expected).abs() < near, "place {place} of {length}, byte {byte}: {mean}");
            }
        }
        // The last relay, which sees the label, sees nothing behind it.
        for (byte, &sum) in behind.iter().enumerate().skip(LABEL) {
            let mean = sum as f64 / PACKETS as f64;
            assert!((mean - 127.5).abs() < near, "behind a path of {length}, byte {byte}: {mean}");
        }
    }
}

#[test]
fn p05_whatever_a_packet_is_for_a_relay_does_the_same_with_it() {
    let mut net = Net::<Real>::new(5, 8, 1);
    let mut outcomes = BTreeSet::new();
    let mut kinds = 0;
    let mut middle = |net: &mut Net<Real>, mut datagram: Datagram, first: u16| {
        // Relay 2 is in the middle of each, before relay 3.
        assert!(matches!(net.process(first, &mut datagram), Outcome::Forward { to: RelayIndex(2), .. }));
        let before = *net.relays[2].counts();
        outcomes.insert(format!("{:?}", net.process(2, &mut datagram)));
        let after = *net.relays[2].counts();
        assert_eq!((after.forwarded - before.forwarded, after.dropped), (1, before.dropped));
        kinds += 1;
    };
    let to_service = |net: &mut Net<Real>, body: &[u8; BODY]| net.packet(&[0, 2, 3, 4], body);
    // A set-up with data, an ACK of zeros, five blocks, data under keys that are known.
    let body = net.body();
    let (datagram, receipt) = to_service(&mut net, &body);
    middle(&mut net, datagram, 0);
    net.user.arrived(&receipt);
    let (datagram, _) = to_service(&mut net, &[0; BODY]);
    middle(&mut net, datagram, 0);
    let mut blocks = [0; BODY];
    for place in blocks.chunks_exact_mut(ReplyBlock::BYTES).take(5) {
        let (_, block) = net.block(&[1, 2, 3]);
        place.copy_from_slice(&block.to_bytes());
    }
    const { assert!(5 * ReplyBlock::BYTES <= BODY) };
    let (datagram, _) = to_service(&mut net, &blocks);
    middle(&mut net, datagram, 0);
    // An answer by a block, a loop.
    let (_, block) = net.block(&[1, 2, 3, 0]);
    let mut datagram = [0; crate::size::DATAGRAM];
    let first = block.seal::<Real>(&mut datagram);
    middle(&mut net, datagram, first.0);
    let hops = net.hops(&[0, 2, 3, 0]);
    let (_, block) = net.made.make_loop(&mut net.user, &hops, CLIENT, net.now, &mut net.rng).unwrap();
    let first = block.seal::<Real>(&mut datagram);
    middle(&mut net, datagram, first.0);
    assert_eq!((outcomes.len(), kinds), (1, 5), "{outcomes:?}");
}

#[test]
fn p06_a_block_works_once() {
    for cached in [false, true] {
        let mut net = Net::<Real>::new(4, 8, 1);
        if cached {
            net.set_up_back(&[3, 2, 1]);
        }
        // Whoever holds it gives it out once, also if it comes again.
        let (_, block) = net.block(&[3, 2, 1]);
        let bytes = block.to_bytes();
        let again = || ReplyBlock::from_bytes(&bytes).unwrap();
        let mut held = HeldBlocks::new(4);
        assert_eq!(held.insert(block), Ok(()));
        assert_eq!(held.insert(again()), Err(Refused::Known));
        let block = held.take().unwrap();
        assert_eq!(held.insert(again()), Err(Refused::Known));
        assert!(held.take().is_none());
        // Relays refuse it the second time, under another payload too.
        let mut datagram = [1; crate::size::DATAGRAM];
        let first = block.seal::<Real>(&mut datagram);
        let (_, end) = net.carry(first, &mut datagram);
        assert_eq!(end, Outcome::ToClient { label: CLIENT, wait: NOW });
        let mut second = [2; crate::size::DATAGRAM];
        let first = again().seal::<Real>(&mut second);
        let reason = if cached { DropReason::UnknownId } else { DropReason::Replayed };
        assert_eq!(net.process(first.0, &mut second), Outcome::Drop(reason));
        // And so does its maker, should a guard repeat what it passed on.
        let mut copy = datagram;
        assert!(net.made.open(&mut net.user, &mut datagram).is_ok());
        assert_eq!(net.made.open(&mut net.user, &mut copy), Err(OpenError::Unknown));
    }
}

#[test]
fn p07_a_key_serves_at_one_position_only() {
    let mut net = Net::<Real>::new(6, 8, 1);
    net.set_up(&[0, 1, 2, 3]);
    // Known at its place, a relay is new at every other, in every half.
    let starts = |net: &mut Net<Real>, path: &[u16], back: bool, place: usize| {
        let mut datagram = [0; crate::size::DATAGRAM];
        let first = if back {
            net.block(path).1.seal::<Real>(&mut datagram)
        } else {
            datagram = net.packet(path, &[0; BODY]).0;
            RelayIndex(path[0])
        };
        is_set_up(&net.carry(first, &mut datagram).0[place])
    };
    assert!(!starts(&mut net, &[0, 1, 2, 3], false, 1), "relay 1 at its place");
    assert!(!starts(&mut net, &[5, 1, 4, 2], false, 1), "relay 1 at its place, on another path");
    assert!(starts(&mut net, &[1, 4, 5, 2], false, 0), "relay 1 first");
    assert!(starts(&mut net, &[5, 4, 1, 2], false, 2), "relay 1 third");
    assert!(starts(&mut net, &[4, 1, 5], true, 1), "relay 1 on the way back");
    // A place counts from the user: a guard is at 0 however long the path is.
    net.set_up_back(&[4, 3, 0]);
    assert!(!starts(&mut net, &[5, 0], true, 1), "relay 0 at the end of a way back");
    assert!(starts(&mut net, &[0, 4, 5], true, 0), "relay 0 at its beginning");
}

#[test]
fn p07_no_relay_is_twice_on_a_path_and_a_guard_is_never_inside() {
    let mut net = Net::<Real>::new(6, 8, 1);
    net.user.begin_epoch(1, [RelayIndex(0), RelayIndex(1)]);
    let refuses = |net: &mut Net<Real>, path: &[u16], error: PathError| {
        let hops = net.hops(path);
        let mut datagram = [0; crate::size::DATAGRAM];
        assert_eq!(net.user.seal(&hops, SERVICE, &mut net.rng, &mut datagram), Err(error), "{path:?}");
    };
    refuses(&mut net, &[], PathError::Length(0));
    refuses(&mut net, &[0, 2, 3, 4, 5], PathError::Length(5));
    refuses(&mut net, &[0, 2, 3, 2], PathError::Twice(RelayIndex(2)));
    refuses(&mut net, &[0, 1, 2], PathError::GuardInside(RelayIndex(1)));
    refuses(&mut net, &[0, 2, 1], PathError::GuardInside(RelayIndex(1)));
    assert!(net.user.is_empty(), "a refused path sets up nothing");
    let mut back = |path: &[u16], is_loop: bool| {
        let hops = net.hops(path);
        let (made, keys, rng) = (&mut net.made, &mut net.user, &mut net.rng);
        let make = if is_loop { MadeBlocks::make_loop } else { MadeBlocks::make };
        make(made, keys, &hops, CLIENT, Time::ZERO, rng).map(|_| ())
    };
    assert_eq!(back(&[2, 3, 0], false), Ok(()));
    assert_eq!(back(&[0, 3, 2], false), Err(PathError::GuardInside(RelayIndex(0))));
    assert_eq!(back(&[0, 3, 2, 0], true), Ok(()));
    assert_eq!(back(&[0, 3, 2, 1], true), Ok(()));
    assert_eq!(back(&[0, 3, 1, 0], true), Err(PathError::GuardInside(RelayIndex(1))));
    assert_eq!(back(&[0, 3, 3, 0], true), Err(PathError::Twice(RelayIndex(3))));
    assert_eq!(back(&[0, 0], true), Err(PathError::Twice(RelayIndex(0))));
    assert_eq!(net.user.len(), 3 + 4 + 4);
}

#[test]
fn p07_another_guard_leaves_the_keys_that_serve_where_they_may() {
    let mut net = Net::<Real>::new(6, 8, 1);
    net.user.begin_epoch(1, [RelayIndex(0)]);
    net.set_up(&[0, 2, 3]);
    net.set_up(&[0, 1, 4]);
    net.set_up_back(&[4, 1, 0]);
    assert_eq!(net.user.len(), 5 + 3);
    // Relay 1 is a guard now: what it has of this user inside of paths is used no more.
    net.user.set_guards([RelayIndex(0), RelayIndex(1)]);
    assert_eq!(net.user.len(), 4 + 2);
    let (datagram, _) = net.packet(&[0, 2, 3], &[0; BODY]);
    assert!(!is_set_up(&datagram), "keys of others go on");
    net.set_up(&[1, 2, 3]);
    assert_eq!(net.user.len(), 7 + 2 - 2);
}

#[test]
fn p08_points_of_low_order_are_refused_by_relays_and_senders() {
    let mut net = Net::<Real>::new(2, 8, 1);
    for point in LOW_ORDER {
        let (mut datagram, _) = net.packet(&[0, 1], &[0; BODY]);
        datagram[..MATERIAL].copy_from_slice(&point);
        datagram[MATERIAL - 1] |= 0x80;
        assert_eq!(net.process(0, &mut datagram), Outcome::Drop(DropReason::LowOrder));
        let mut hops = net.hops(&[0, 1]);
        hops[1].key = PublicKey(point);
        let before = net.user.len();
        let sealed = net.user.seal(&hops, SERVICE, &mut net.rng, &mut datagram);
        assert_eq!(sealed, Err(PathError::Key(RelayIndex(1))));
        assert_eq!(net.user.len(), before, "what was set up for such a path is given up");
    }
}
