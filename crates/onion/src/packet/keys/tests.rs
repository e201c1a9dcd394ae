use std::collections::VecDeque;

use super::*;
use crate::crypto::Transparent;
use crate::packet::BODY;
use crate::packet::testing::{Net, is_set_up};

const PATH: [u16; 3] = [0, 1, 2];

/// Sends `count` packets that arrive; their receipts, and how many set up a key at the first relay.
fn send(net: &mut Net<Transparent>, count: usize) -> (Vec<Receipt>, usize) {
    let sent: Vec<_> = (0..count).map(|_| net.packet(&PATH, &[0; BODY])).collect();
    let set_ups = sent.iter().filter(|(datagram, _)| is_set_up(datagram)).count();
    let mut receipts = Vec::new();
    for (mut datagram, receipt) in sent {
        let (_, end) = net.carry(RelayIndex(0), &mut datagram);
        assert!(matches!(end, crate::relay::Outcome::Deliver { .. }), "{end:?}");
        receipts.push(receipt);
    }
    (receipts, set_ups)
}

/// A net whose user has keys to go on with: what it sends in steps of eight sets up one in eight or fewer.
fn settled(seed: u64) -> Net<Transparent> {
    let mut net = Net::new(3, 64, seed);
    for _ in 0..20 {
        let (receipts, _) = send(&mut net, 8);
        receipts.iter().for_each(|receipt| net.user.arrived(receipt));
    }
    net
}

#[test]
fn a_burst_of_late_packets_does_not_cost_the_keys_that_they_took() {
    let set_ups = |is_late: bool| {
        let mut net = settled(1);
        let (receipts, _) = send(&mut net, 24);
        for receipt in &receipts {
            if is_late {
                net.user.lost(receipt);
                net.user.arrived_late(receipt);
            } else {
                net.user.arrived(receipt);
            }
        }
        let mut all = 0;
        for _ in 0..8 {
            let (receipts, set_ups) = send(&mut net, 8);
            receipts.iter().for_each(|receipt| net.user.arrived(receipt));
            all += set_ups;
        }
        all
    };
    assert_eq!(set_ups(true), set_ups(false));
    // All are given up before the first is known to have come.
    let mut net = settled(2);
    let before = net.user.len();
    let (receipts, _) = send(&mut net, 24);
    receipts.iter().for_each(|receipt| net.user.lost(receipt));
    let given_up = net.user.len();
    receipts.iter().for_each(|receipt| net.user.arrived_late(receipt));
    assert!(given_up < before && net.user.len() >= before, "{before} keys, {given_up}, {}", net.user.len());
    let (_, set_ups) = send(&mut net, 16);
    assert!(set_ups <= 1, "{set_ups} of 16 set up keys");
}

#[test]
fn a_rate_that_doubles_finds_keys_that_may_be_used() {
    let mut net = settled(5);
    let (mut set_ups, mut packets) = (0, 0);
    let mut send = |net: &mut Net<Transparent>| {
        let (mut datagram, receipt) = net.packet(&PATH, &[0; BODY]);
        packets += 1;
        set_ups += usize::from(is_set_up(&datagram));
        net.carry(RelayIndex(0), &mut datagram);
        receipt
    };
    let mut underway: VecDeque<Receipt> = (0..16).map(|_| send(&mut net)).collect();
    let most = 1024;
    for round in 0..44 {
        // Each that arrives gives rise to another, and every fourth round trip to two.
        let grows = round % 4 == 0 && underway.len() < most;
        for _ in 0..underway.len() {
            let receipt = underway.pop_front().expect("there is one for each that was on its way");
            net.user.arrived(&receipt);
            (0..1 + usize::from(grows)).for_each(|_| underway.push_back(send(&mut net)));
        }
    }
    assert_eq!(underway.len(), most);
    // One in 64, and those that are left in the end.
    let left = AHEAD_OF_USE as usize * most / 64;
    let bound = packets / 64 + left + left / 4;
    assert!(set_ups <= bound, "{set_ups} of {packets} packets set up keys, {bound} would do");
}

#[test]
fn p15_two_isolations_share_keys_at_guards_alone() {
    let mut net = settled(4);
    let hops = net.hops(&PATH);
    let mut used = |isolation| {
        let mut serials = [const { BTreeSet::new() }; 3];
        for _ in 0..40 {
            let mut datagram = [0; crate::size::DATAGRAM];
            let mut keys = net.user.isolated(isolation);
            let receipt = keys.seal(&hops, crate::packet::testing::SERVICE, &mut net.rng, &mut datagram).unwrap();
            for (place, serial) in receipt.serials() {
                serials[place].insert(serial);
            }
            net.carry(RelayIndex(0), &mut datagram);
            net.user.arrived(&receipt);
        }
        serials
    };
    let (one, other) = (used(Isolation(2)), used(Isolation(3)));
    let mut datagram = [0; crate::size::DATAGRAM];
    let mut keys = net.user.isolated(Isolation(2));
    let late = keys.seal(&hops, crate::packet::testing::SERVICE, &mut net.rng, &mut datagram).unwrap();
    assert!(!one[0].is_disjoint(&other[0]), "a guard knows its user anyway");
    assert!(one[1].is_disjoint(&other[1]) && one[2].is_disjoint(&other[2]), "{one:?} {other:?}");
    assert!(one[2].len() < 10, "keys are used again within an isolation: {one:?}");
    // What ends is forgotten, and late words about it bring nothing of it back.
    let before = net.user.len();
    net.user.end(Isolation(2));
    let after = net.user.len();
    assert!(after < before, "{after} of {before} keys");
    net.user.arrived(&late);
    assert_eq!((net.user.len(), net.user.isolations()), (after, 2));
    net.user.end(Isolation::default());
    assert_eq!(net.user.len(), after, "that of guards and of what belongs to no session stays");
}

#[test]
fn keys_that_were_given_up_are_bounded_and_not_used() {
    let mut net = Net::<Transparent>::new(3, 64, 3);
    for _ in 0..500 {
        // Each sets up a key, none of which is known to be there.
        let (datagram, receipt) = net.packet(&PATH, &[0; BODY]);
        assert!(is_set_up(&datagram));
        net.user.lost(&receipt);
    }
    assert!(net.user.is_empty());
    let given_up: Vec<usize> = net
        .user
        .stocks
        .values()
        .flat_map(Stocks::iter)
        .map(|stock| stock.given_up.len())
        .filter(|count| *count > 0)
        .collect();
    assert_eq!(given_up, [MOST_GIVEN_UP; 3]);
    assert!(net.user.stocks.values().flat_map(Stocks::iter).all(|stock| stock.left == 0 && stock.underway == 0));
}
