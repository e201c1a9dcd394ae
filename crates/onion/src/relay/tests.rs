use anabranch_control::rng::Rng;
use proptest::prelude::*;
use rand_core::Rng as _;

use super::*;
use crate::crypto::{Real, Transparent};
use crate::packet::testing::{CLIENT, Net, SERVICE, epoch_keys, is_set_up};
use crate::packet::{AHEAD, AHEAD_AT_FIRST, Hop, PathKeys, body, body_mut};
use crate::reply::{BlockId, ReplyBlock};
use crate::size::DATAGRAM;

const NOW: Duration = Duration::ZERO;

/// A path of 1 to 4 of `relays`, none twice.
fn path(relays: u16, rng: &mut Rng) -> Vec<u16> {
    let mut left: Vec<u16> = (0..relays).collect();
    (0..1 + rng.below(4)).map(|_| left.remove(rng.below(left.len()))).collect()
}

/// Packets and answers over random paths all arrive, with what was written.
fn arrives<C: Cryptography>(k: u16, seed: u64) -> Result<(), TestCaseError> {
    let mut net = Net::<C>::new(6, k, seed);
    let mut packets = Vec::new();
    for _ in 0..40 {
        let path = path(6, &mut net.rng);
        let text = net.body();
        let (mut datagram, receipt) = net.packet(&path, &text);
        let (seen, end) = net.carry(RelayIndex(path[0]), &mut datagram);
        prop_assert_eq!(end, Outcome::Deliver { label: SERVICE, wait: NOW });
        prop_assert_eq!(body(&datagram), &text);
        prop_assert_eq!(seen.len(), path.len());
        packets.push((receipt, path));
        // Some are known to have arrived, in another order.
        if net.rng.chance(0.5) {
            let (receipt, _) = packets.swap_remove(net.rng.below(packets.len()));
            net.user.arrived(&receipt);
        }
        let back = self::path(6, &mut net.rng);
        let (id, block) = net.block(&back);
        let block = ReplyBlock::from_bytes(&block.to_bytes()).unwrap();
        *body_mut(&mut datagram) = text;
        let first = block.seal::<C>(&mut datagram);
        let (_, end) = net.carry(first, &mut datagram);
        prop_assert_eq!(end, Outcome::ToClient { label: CLIENT, wait: NOW });
        let opened = net.made.open(&mut net.user, &mut datagram).unwrap();
        prop_assert_eq!(body(&datagram), &text);
        prop_assert_eq!(opened.block, id);
        prop_assert_eq!(opened.relays.iter().map(|relay| relay.0).collect::<Vec<_>>(), back);
    }
    if k > 2 {
        let set_up: u64 = net.relays.iter().map(|relay| relay.counts().set_up).sum();
        let passed: u64 = net.relays.iter().map(|relay| relay.counts().forwarded).sum::<u64>() + 80;
        prop_assert!(set_up < passed, "some keys serve again: {} of {}", set_up, passed);
    }
    Ok(())
}

/// What became of one packet, in words that do not depend on the cryptography.
type Event = (u16, String);

/// All that can happen to packets, at random: whatever comes about is noted.
fn story<C: Cryptography>(seed: u64) -> Vec<Event> {
    const RELAYS: u16 = 6;
    let mut net = Net::<C>::new(RELAYS, 6, seed);
    // Draws of the story alone: it never looks at bytes of packets, which differ.
    let mut dice = Rng::stream(seed, "story");
    let mut events = Vec::new();
    let mut underway: Vec<(u16, Datagram)> = Vec::new();
    let mut passed: Vec<(u16, Datagram)> = Vec::new();
    let mut receipts = Vec::new();
    let mut blocks: Vec<ReplyBlock> = Vec::new();
    let mut epoch = 0;
    for _ in 0..3_000 {
        net.now += Duration::from_millis(1);
        match dice.below(20) {
            0..=3 => {
                let path = path(RELAYS, &mut dice);
                let text = net.body();
                let (datagram, receipt) = net.packet(&path, &text);
                receipts.push(receipt);
                underway.push((path[0], datagram));
            }
            4 => {
                let back = path(RELAYS, &mut dice);
                blocks.push(net.block(&back).1);
            }
            5 if !blocks.is_empty() => {
                let block = blocks.swap_remove(dice.below(blocks.len()));
                // Some use it twice.
                if dice.chance(0.2) {
                    blocks.extend(ReplyBlock::from_bytes(&block.to_bytes()));
                }
                let mut datagram = [dice.bits() as u8; DATAGRAM];
                let first = block.seal::<C>(&mut datagram);
                underway.push((first.0, datagram));
            }
            6 if !receipts.is_empty() => {
                let receipt = receipts.swap_remove(dice.below(receipts.len()));
                if dice.chance(0.8) { net.user.arrived(&receipt) } else { net.user.lost(&receipt) }
            }
            7 if !passed.is_empty() => {
                let (relay, datagram) = &passed[dice.below(passed.len())];
                underway.push((*relay, *datagram));
            }
            8 if !underway.is_empty() => {
                let which = dice.below(underway.len());
                underway[which].1[dice.below(DATAGRAM)] ^= 1 << dice.below(8);
            }
            9 if !underway.is_empty() => drop(underway.swap_remove(dice.below(underway.len()))),
            10 if dice.chance(0.02) => {
                epoch += 1;
                for relay in 0..RELAYS {
                    let keys = epoch_keys(epoch, RELAYS, relay, &mut net.rng);
                    net.relays[usize::from(relay)].begin_epoch(net.now, keys, Duration::from_millis(200));
                }
                net.user.begin_epoch(epoch, []);
            }
            11 if dice.chance(0.1) => {
                let relay = dice.below(usize::from(RELAYS)) as u16;
                let mut point = [0; DATAGRAM];
                point[31] = 0x80;
                underway.push((relay, point));
            }
            _ if !underway.is_empty() => {
                let (relay, mut datagram) = underway.swap_remove(dice.below(underway.len()));
                passed.push((relay, datagram));
                let outcome = net.process(relay, &mut datagram);
                events.push((relay, format!("{outcome:?}")));
                match outcome {
                    Outcome::Forward { to, .. } => underway.push((to.0, datagram)),
                    Outcome::ToClient { .. } => {
                        // Some guards repeat what they pass on.
                        let twice = dice.chance(0.1);
                        for mut datagram in core::iter::repeat_n(datagram, 1 + usize::from(twice)) {
                            let opened = net.made.open(&mut net.user, &mut datagram);
                            events.push((relay, format!("{opened:?}")));
                        }
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    for (relay, state) in net.relays.iter().enumerate() {
        events.push((relay as u16, format!("{:?}, {} ids", state.counts(), state.ids())));
    }
    events
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_packet_and_answer_arrives_as_it_was_written(k in 1u16..80, seed: u64) {
        arrives::<Real>(k, seed)?;
        arrives::<Transparent>(k, seed)?;
    }

    #[test]
    fn both_cryptographies_give_the_same_story(seed: u64) {
        let (real, transparent) = (story::<Real>(seed), story::<Transparent>(seed));
        for (place, (real, transparent)) in real.iter().zip(&transparent).enumerate() {
            prop_assert_eq!(real, transparent, "event {}", place);
        }
        prop_assert_eq!(real.len(), transparent.len());
    }

    #[test]
    fn arbitrary_datagrams_are_dropped(seed: u64, from in 0usize..DATAGRAM) {
        let mut net = Net::<Real>::new(3, 8, seed);
        net.set_up(&[0, 1, 2]);
        let text = net.body();
        let (mut datagram, _) = net.packet(&[0, 1, 2], &text);
        // All of it random, or what follows a genuine beginning.
        let from = if from % 3 == 0 { 0 } else { from % 300 };
        net.rng.fill_bytes(&mut datagram[from..]);
        let outcome = net.process(0, &mut datagram);
        if from < HEADER {
            prop_assert!(matches!(outcome, Outcome::Drop(_)), "{:?}", outcome);
        } else {
            let forwarded = matches!(outcome, Outcome::Forward { .. });
            prop_assert!(forwarded);
            assert!(matches!(net.process(1, &mut datagram), Outcome::Forward { .. }));
            prop_assert_eq!(net.process(2, &mut datagram), Outcome::Drop(DropReason::Payload));
        }
        prop_assert!(net.made.open(&mut net.user, &mut datagram).is_err());
        let mut block = [0; ReplyBlock::BYTES];
        net.rng.fill_bytes(&mut block);
        if let Some(block) = ReplyBlock::from_bytes(&block) {
            let first = block.seal::<Real>(&mut datagram);
            prop_assert!(first <= crate::packet::LAST_INDEX);
            assert!(matches!(net.process(0, &mut datagram), Outcome::Drop(_)));
        }
    }

    #[test]
    fn whatever_the_order_each_packet_passes_once(seed: u64, k in 2u16..70) {
        let mut net = Net::<Real>::new(2, k, seed);
        net.set_up(&[0, 1]);
        let mut packets = Vec::new();
        let text = net.body();
        for _ in 0..AHEAD_AT_FIRST.min(k) {
            let (datagram, _) = net.packet(&[0, 1], &text);
            packets.extend([datagram, datagram, datagram]);
        }
        let each = packets.len() / 3;
        let mut passed = 0;
        while !packets.is_empty() {
            let mut datagram = packets.swap_remove(net.rng.below(packets.len()));
            match net.process(0, &mut datagram) {
                Outcome::Forward { .. } => passed += 1,
                outcome => prop_assert!(matches!(outcome, Outcome::Drop(DropReason::UnknownId | DropReason::Replayed))),
            }
        }
        prop_assert_eq!(passed, each);
    }
}

#[test]
fn the_story_has_all_that_can_happen() {
    let mut text = String::new();
    for seed in 0..6 {
        for (_, event) in story::<Transparent>(seed) {
            text.push_str(&event);
            text.push('\n');
        }
    }
    for reason in
        DropReason::ALL.iter().filter(|&&reason| !matches!(reason, DropReason::OverBudget | DropReason::NoMember))
    {
        assert!(text.contains(&format!("Drop({reason:?})")), "{reason:?}");
    }
    for event in ["Forward", "ToClient", "Deliver", "Err(Damaged", "Ok(Opened", "Err(Unknown"] {
        assert!(text.contains(event), "{event}");
    }
}

/// A relay, its epoch's key, and whoever floods it with keys of its own.
struct Flood<C: Cryptography> {
    relay: Relay<C>,
    hops: [Hop; 2],
    rng: Rng,
}

impl<C: Cryptography> Flood<C> {
    fn new(k: u16, change: impl FnOnce(Limits) -> Limits) -> Flood<C> {
        let packets = PacketsPerKey::new(k).unwrap();
        let limits = change(Limits::simulated(packets));
        let mut rng = Rng::stream(1, "flood");
        let keys = epoch_keys(0, 2, 0, &mut rng);
        let relay = Relay::new(packets, limits, keys, [1, 2]);
        let other = C::public(&C::secret(&[9; 32]));
        let hop = |relay, key| Hop { relay: RelayIndex(relay), key, wait: Duration::ZERO };
        let hops = [hop(0, relay.public_key()), hop(1, other)];
        Flood { relay, hops, rng }
    }

    /// A packet of `keys`, which sets up a key if they have none.
    fn packet(&mut self, keys: &mut PathKeys<C>) -> (Datagram, crate::packet::Receipt) {
        let mut datagram = [0; DATAGRAM];
        let receipt = keys.seal(&self.hops, SERVICE, &mut self.rng, &mut datagram).unwrap();
        (datagram, receipt)
    }

    /// Another user's first packet.
    fn set_up(&mut self, k: u16, now: Time) -> Outcome {
        let (mut datagram, _) = self.packet(&mut PathKeys::new(PacketsPerKey::new(k).unwrap()));
        assert!(is_set_up(&datagram));
        self.relay.process(now, &mut datagram)
    }
}

#[test]
fn p13_a_flood_of_set_ups_takes_no_more_than_64_mib() {
    // k = 2 fills the table of keys, k = 256 that of ids.
    for (k, set_ups) in [(2, 160_000), (256, 140_000)] {
        let mut flood = Flood::<Transparent>::new(k, |_| Limits {
            agreements_at_once: 1 << 40,
            ..Limits::standard(PacketsPerKey::new(k).unwrap())
        });
        // The relay holds an epoch before as well.
        let keys = epoch_keys(1, 2, 0, &mut flood.rng);
        flood.relay.begin_epoch(Time::ZERO, keys, Duration::SECOND);
        flood.hops[0].key = flood.relay.public_key();
        let mut most = 0;
        for set_up in 0..set_ups {
            assert!(matches!(flood.set_up(k, Time::ZERO), Outcome::Forward { .. }));
            if set_up % 1_000 == 0 {
                most = most.max(flood.relay.memory());
            }
        }
        assert!(most <= 64 << 20, "{most} B at k = {k}");
        assert!(flood.relay.counts().evicted > 1_000, "k = {k}: {:?}", flood.relay.counts());
        // Whoever has just come can still send.
        let mut keys = PathKeys::new(PacketsPerKey::new(k).unwrap());
        for _ in 0..2 {
            let (mut datagram, receipt) = flood.packet(&mut keys);
            assert!(matches!(flood.relay.process(Time::ZERO, &mut datagram), Outcome::Forward { .. }));
            keys.arrived(&receipt);
        }
    }
}

#[test]
fn set_ups_have_a_budget_that_other_packets_do_not_wait_for() {
    let change = |limits| Limits { agreements_per_s: 100, agreements_at_once: 10, ..limits };
    let mut flood = Flood::<Real>::new(64, change);
    let mut keys = PathKeys::new(PacketsPerKey::STANDARD);
    let (mut datagram, receipt) = flood.packet(&mut keys);
    assert!(matches!(flood.relay.process(Time::ZERO, &mut datagram), Outcome::Forward { .. }));
    keys.arrived(&receipt);
    let outcomes: Vec<Outcome> = (0..30).map(|_| flood.set_up(64, Time::ZERO)).collect();
    let refused = outcomes.iter().filter(|&&outcome| outcome == Outcome::Drop(DropReason::OverBudget)).count();
    assert_eq!(refused, 30 - 9);
    // What was sealed under a known key passes, and so does a set-up when time has passed.
    let (mut datagram, _) = flood.packet(&mut keys);
    assert!(!is_set_up(&datagram));
    assert!(matches!(flood.relay.process(Time::ZERO, &mut datagram), Outcome::Forward { .. }));
    assert!(matches!(flood.set_up(64, Time::from_secs_f64(0.02)), Outcome::Forward { .. }));
    // A set-up that was seen costs none of it.
    let (mut datagram, _) = flood.packet(&mut PathKeys::new(PacketsPerKey::STANDARD));
    let mut again = datagram;
    let now = Time::from_secs_f64(0.03);
    assert!(matches!(flood.relay.process(now, &mut datagram), Outcome::Forward { .. }));
    for _ in 0..20 {
        assert_eq!(flood.relay.process(now, &mut again.clone()), Outcome::Drop(DropReason::Replayed));
    }
    assert_eq!(flood.relay.process(now, &mut again), Outcome::Drop(DropReason::Replayed));
}

#[test]
fn a_key_serves_k_packets_and_is_then_forgotten() {
    let mut flood = Flood::<Real>::new(100, |limits| limits);
    let mut keys = PathKeys::new(PacketsPerKey::new(100).unwrap());
    let mut set_ups = 0;
    for _ in 0..1_000 {
        let (mut datagram, receipt) = flood.packet(&mut keys);
        set_ups += usize::from(is_set_up(&datagram));
        assert!(matches!(flood.relay.process(Time::ZERO, &mut datagram), Outcome::Forward { .. }));
        keys.arrived(&receipt);
    }
    // The last key begins when half of the one before is left.
    assert_eq!(set_ups, 10 + 1);
    // Of two keys that are begun, and of no others.
    assert!(flood.relay.ids() < 2 * 100, "{}", flood.relay.ids());
}

#[test]
fn packets_as_far_ahead_as_a_sender_goes_are_awaited() {
    let mut flood = Flood::<Real>::new(256, |limits| limits);
    let mut keys = PathKeys::new(PacketsPerKey::new(256).unwrap());
    let (mut datagram, receipt) = flood.packet(&mut keys);
    flood.relay.process(Time::ZERO, &mut datagram);
    keys.arrived(&receipt);
    let mut under_known_keys = 0;
    for _ in 0..20 {
        // Sent without a word of the last ones: they come the last first.
        let sent: Vec<_> = (0..AHEAD).map(|_| flood.packet(&mut keys)).collect();
        for (mut datagram, receipt) in sent.into_iter().rev() {
            under_known_keys += usize::from(!is_set_up(&datagram));
            assert!(matches!(flood.relay.process(Time::ZERO, &mut datagram), Outcome::Forward { .. }));
            keys.arrived(&receipt);
        }
    }
    assert!(under_known_keys > 600, "{under_known_keys} of 640");
}

#[test]
fn p09_a_relay_sends_to_other_members_only() {
    // Whoever makes packets may write any index.
    let mut net = Net::<Real>::new(3, 8, 1);
    for (to, passes) in [(1, true), (2, true), (0, false), (3, false), (0xfffd, false)] {
        let mut hops = net.hops(&[0]);
        hops.push(Hop { relay: RelayIndex(to), ..hops[0] });
        let mut datagram = [0; DATAGRAM];
        match net.user.seal(&hops, SERVICE, &mut net.rng, &mut datagram) {
            Ok(_) => match net.process(0, &mut datagram) {
                Outcome::Forward { to: RelayIndex(went), .. } => assert!(passes && went == to),
                outcome => assert!(!passes && outcome == Outcome::Drop(DropReason::NoMember), "{to}: {outcome:?}"),
            },
            Err(error) => assert_eq!((to, error), (0, crate::packet::PathError::Twice(RelayIndex(0)))),
        }
    }
    // Of the epoch that the packet was made for: a member then may be none now.
    let hops = net.hops(&[0, 2]);
    let mut datagram = [0; DATAGRAM];
    let _ = net.user.seal(&hops, SERVICE, &mut net.rng, &mut datagram);
    let keys = epoch_keys(1, 2, 0, &mut net.rng);
    net.relays[0].begin_epoch(net.now, keys, Duration::SECOND);
    let outcome = net.process(0, &mut datagram);
    assert!(matches!(outcome, Outcome::Forward { to: RelayIndex(2), epoch: 0, .. }), "{outcome:?}");
}

#[test]
fn when_a_grace_is_over_the_keys_of_its_epoch_go() {
    let mut flood = Flood::<Real>::new(64, |limits| Limits { agreements_at_once: 10_000, ..limits });
    for _ in 0..700 {
        flood.set_up(64, Time::ZERO);
    }
    assert_eq!(flood.relay.timer(Time::ZERO), Time::MAX);
    let keys = epoch_keys(1, 2, 0, &mut flood.rng);
    flood.relay.begin_epoch(Time::ZERO, keys, Duration::SECOND);
    flood.hops[0].key = flood.relay.public_key();
    for _ in 0..5 {
        flood.set_up(64, Time::ZERO);
    }
    assert_eq!(flood.relay.ids(), 705 * usize::from(AHEAD_AT_FIRST));
    let over = Time::ZERO + Duration::SECOND;
    assert_eq!(flood.relay.timer(Time::ZERO), over);
    let mut calls = 0;
    while flood.relay.timer(over) <= over {
        flood.relay.on_timer(over);
        calls += 1;
        assert!(calls < 10, "each call gets on");
    }
    assert_eq!(flood.relay.ids(), 5 * usize::from(AHEAD_AT_FIRST), "this epoch's keys stay");
    assert!(calls > 1, "no call takes long");
}

#[test]
fn an_epoch_that_begins_within_the_grace_of_another_ends_the_one_before() {
    let mut flood = Flood::<Real>::new(64, |limits| limits);
    for epoch in 1..4 {
        flood.set_up(64, Time::ZERO);
        let keys = epoch_keys(epoch, 2, 0, &mut flood.rng);
        flood.relay.begin_epoch(Time::ZERO, keys, Duration::SECOND);
        flood.hops[0].key = flood.relay.public_key();
        let mut calls = 0;
        while flood.relay.timer(Time::ZERO) == Time::ZERO {
            flood.relay.on_timer(Time::ZERO);
            calls += 1;
            assert!(calls < 10, "each call gets on");
        }
        assert_eq!(flood.relay.ids(), usize::from(AHEAD_AT_FIRST), "those of the last epoch alone are left");
    }
}

#[test]
fn a_wait_is_given_to_each_relay_alone() {
    let mut net = Net::<Real>::new(3, 8, 1);
    let mut hops = net.hops(&[0, 1, 2]);
    let waits = [0.25, 17.5, 8_000.0].map(|ms| Duration::from_nanos((ms * 1e6) as u64));
    hops.iter_mut().zip(waits).for_each(|(hop, wait)| hop.wait = wait);
    let mut datagram = [0; DATAGRAM];
    let _ = net.user.seal(&hops, SERVICE, &mut net.rng, &mut datagram);
    for (relay, expected) in waits.into_iter().enumerate() {
        match net.process(relay as u16, &mut datagram) {
            Outcome::Forward { wait, .. } | Outcome::Deliver { wait, .. } => assert_eq!(wait, expected),
            outcome => panic!("{outcome:?}"),
        }
    }
    // Longer ones are the longest.
    hops[0].wait = Duration::SECOND * 60;
    let _ = net.user.seal(&hops, SERVICE, &mut net.rng, &mut datagram);
    let Outcome::Forward { wait, .. } = net.process(0, &mut datagram) else { panic!("it is a path") };
    assert_eq!(wait.as_millis_f64(), 8_191.875);
}

#[test]
fn what_blocks_do_not_bring_back_is_given_up_and_never_opened() {
    let mut net = Net::<Real>::new(3, 8, 1);
    let (first, block) = net.block(&[2, 1]);
    net.now += Duration::SECOND;
    let (second, other) = net.block(&[1, 2]);
    assert_eq!((first, second, net.made.len()), (BlockId(0), BlockId(1), 2));
    assert_eq!(net.made.give_up(&mut net.user, net.now), [first]);
    let mut datagram = [0; DATAGRAM];
    let to = block.seal::<Real>(&mut datagram);
    net.carry(to, &mut datagram);
    assert!(net.made.open(&mut net.user, &mut datagram).is_err());
    let to = other.seal::<Real>(&mut datagram);
    net.carry(to, &mut datagram);
    assert_eq!(net.made.open(&mut net.user, &mut datagram).unwrap().block, second);
    // Room for this many; the oldest goes.
    let mut few = crate::reply::MadeBlocks::<Real>::new(3);
    let hops = net.hops(&[1, 2]);
    for _ in 0..50 {
        few.make(&mut net.user, &hops, CLIENT, net.now, &mut net.rng).unwrap();
    }
    assert_eq!(few.len(), 3);
    assert_eq!(few.give_up(&mut net.user, Time::MAX), [BlockId(47), BlockId(48), BlockId(49)]);
    assert!(few.is_empty());
}
