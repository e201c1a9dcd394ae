use anabranch_control::path::Stamp;
use anabranch_control::path::registry::{self, Pacing, Setup};
use proptest::prelude::*;

use super::*;
use crate::overlay::packet::{Telemetry, TelemetryField};
use anabranch_control::rng::Rng;

fn sender(controller: &str) -> PathSender {
    let config = SenderConfig { peers: 6, relays: 3, packet: Bytes::new(1500), rtt: RttConfig::default() };
    let setup = Setup { peers: 6, packet: config.packet, start: Time::ZERO, pacing: Pacing::Burst };
    let made = registry::find(controller).unwrap().build.make(&setup, &toml::Table::new());
    let made = made.unwrap_or_else(|| panic!("{controller} needs a simulation"));
    PathSender::new(&config, made.unwrap(), Rng::stream(1, "sender"))
}

const RTT: Duration = Duration::from_millis(100);

#[test]
fn an_ack_counts_once() {
    let mut sender = sender("q-learning");
    let departure = sender.poll(Time::ZERO, Slot(5)).departs().unwrap();
    assert!(!departure.relays().contains(&Slot(5)));
    let now = Time::ZERO + RTT;
    assert_eq!(
        sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()),
        AckVerdict::Acked { rtt: RTT, early: Duration::SECOND * 4 - RTT }
    );
    assert_eq!(sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()), AckVerdict::Unknown);
}

#[test]
fn a_forged_ack_has_no_effect() {
    let mut sender = sender("q-learning");
    let departure = sender.poll(Time::ZERO, Slot(5)).departs().unwrap();
    let now = Time::ZERO + RTT;
    let before = format!("{sender:?}");
    assert_eq!(sender.on_ack(now, departure.id, departure.nonce ^ 1, &Telemetry::default()), AckVerdict::Forged);
    assert_eq!(sender.on_ack(now, PacketId { index: 9, generation: 0 }, 0, &Telemetry::default()), AckVerdict::Unknown);
    assert_eq!(format!("{sender:?}"), before);
    assert_eq!(
        sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()),
        AckVerdict::Acked { rtt: RTT, early: Duration::SECOND * 4 - RTT }
    );
}

#[test]
fn a_missed_deadline_is_a_loss_and_its_late_ack_teaches_the_round_trip() {
    let mut sender = sender("aimd");
    let departure = sender.poll(Time::ZERO, Slot(5)).departs().unwrap();
    let deadline = sender.timer();
    assert_eq!(deadline, Time::ZERO + Duration::SECOND * 4, "four unsampled pairs");
    let mut lost = Vec::new();
    sender.on_timer(deadline, |id| lost.push(id));
    assert_eq!(lost, [departure.id]);
    let late = deadline + Duration::from_millis(500);
    let verdict = sender.on_ack(late, departure.id, departure.nonce, &Telemetry::default());
    assert_eq!(verdict, AckVerdict::Late { rtt: Duration::from_millis(4500), by: Duration::from_millis(500) });
    assert!(sender.rtts.mean_to(departure.relays()[0]).is_some());
}

#[test]
fn relays_are_passed_in_the_order_of_their_slots_if_they_shall_and_their_stamps_stay_theirs() {
    for in_order in [false, true] {
        let mut sender = sender("explicit-rate");
        if in_order {
            sender = sender.with_relays_in_order();
        }
        let (mut now, mut sorted, mut all) = (Time::ZERO, 0, 0);
        while all < 200 {
            let Some(departure) = sender.poll(now, Slot(5)).departs() else {
                now = sender.wake(now).time(now);
                continue;
            };
            all += 1;
            sorted += u32::from(departure.relays().is_sorted());
            // Each relay grants as many packets a second as ten and its number.
            let mut telemetry = Telemetry::default();
            for (place, relay) in departure.relays().iter().enumerate() {
                telemetry.stamp(place, Stamp::granting(1500.0 * (10.0 + f32::from(relay.0))));
            }
            sender.on_ack(now + RTT, departure.id, departure.nonce, &telemetry);
        }
        assert_eq!(sorted == all, in_order, "{sorted} of {all}");
        for slot in 0..5u16 {
            let rate = sender.controller().rate(Slot(slot)).unwrap().bytes_per_sec() / 1500.0;
            assert!((rate - 10.0 - f64::from(slot)).abs() < 0.2, "relay {slot}: {rate}");
        }
    }
}

/// A packet is on its way while others tell that the way has become longer: it is waited for as long as
/// that allows, and no longer.
#[test]
fn a_deadline_moves_with_what_is_learned_of_round_trips_if_it_shall() {
    for moves in [false, true] {
        let sender = sender("random");
        let mut sender = if moves { sender.with_moving_deadlines() } else { sender };
        let mut now = Time::ZERO;
        let ack = |sender: &mut PathSender, now: &mut Time, wait: Duration| {
            let departure = sender.poll(*now, Slot(5)).departs().unwrap();
            *now += wait;
            sender.on_ack(*now, departure.id, departure.nonce, &Telemetry::default());
        };
        // All pairs are known, and to be 100 ms in all.
        (0..400).for_each(|_| ack(&mut sender, &mut now, RTT));
        let waits = sender.poll(now, Slot(5)).departs().unwrap();
        let (sent_at, deadline) = (now, sender.timer());
        assert!(deadline > now && deadline.since(now) < RTT * 2, "{deadline} at {now}");
        let mut lost = Vec::new();
        now += RTT;
        // As the ACKs of others over the same relays would.
        (0..40).for_each(|_| sender.rtts.sample(&[waits.relays(), &[Slot(5)]].concat(), RTT * 3));
        sender.on_timer(deadline.max(now), |id| lost.push(id));
        assert_eq!(lost.contains(&waits.id), !moves, "{lost:?}");
        sender.on_timer(sent_at + Duration::SECOND * 60, |id| lost.push(id));
        assert_eq!(lost, [waits.id], "in the end it is");
    }
}

#[test]
fn no_deadline_is_sooner_than_the_least_timeout() {
    for least_ms in [0, 50] {
        let mut sender = sender("random").with_least_timeout(Duration::from_millis(least_ms));
        let mut now = Time::ZERO;
        for _ in 0..500 {
            let departure = sender.poll(now, Slot(5)).departs().unwrap();
            now += Duration::from_nanos(100_000);
            sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default());
        }
        let departure = sender.poll(now, Slot(5)).departs().unwrap();
        let mut lost = Vec::new();
        sender.on_timer(now + Duration::from_millis(49), |id| lost.push(id));
        assert_eq!(lost.contains(&departure.id), least_ms == 0, "{least_ms}");
        sender.on_timer(now + Duration::from_millis(50), |id| lost.push(id));
        assert!(lost.contains(&departure.id));
    }
}

#[test]
fn what_is_never_acked_is_forgotten_in_the_end() {
    let mut sender = sender("random");
    for _ in 0..100 {
        assert!(sender.poll(Time::ZERO, Slot(5)).departs().is_some());
    }
    let mut lost = 0;
    while sender.timer() < Time::MAX {
        sender.on_timer(sender.timer(), |_| lost += 1);
    }
    assert_eq!((lost, sender.free.len(), sender.in_flight()), (100, 100, 0));
}

#[test]
fn a_nonce_is_a_function_of_its_packet_and_no_two_are_equal() {
    let (mut sender, mut nonces) = (sender("random"), std::collections::BTreeMap::new());
    let mut now = Time::ZERO;
    for _ in 0..1000 {
        // Places are used again, under other names.
        now += RTT;
        let departure = sender.poll(now, Slot(5)).departs().unwrap();
        assert_eq!(departure.nonce, sender.nonce(departure.id));
        nonces.insert(departure.nonce, departure.id);
        sender.on_ack(now + RTT, departure.id, departure.nonce, &Telemetry::default());
    }
    let places: std::collections::BTreeSet<u32> = nonces.values().map(|id| id.index).collect();
    assert_eq!((nonces.len(), places.len()), (1000, 1));
}

#[test]
fn a_crowd_of_deadlines_leaves_no_memory_behind_and_acks_leave_no_crowd() {
    let mut sender = sender("random");
    let crowd: Vec<Departure> = (0..10_000).map(|_| sender.poll(Time::ZERO, Slot(5)).departs().unwrap()).collect();
    let most = sender.deadlines.capacity();
    assert!((10_000..13_000).contains(&most), "{most} places for 10 000");
    let mut now = Time::ZERO + RTT;
    for departure in crowd {
        sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default());
    }
    // The soonest deadline is live, which hides the stale ones behind it.
    for _ in 0..10_000 {
        now += Duration::from_millis(1);
        let departure = sender.poll(now, Slot(5)).departs().unwrap();
        sender.on_ack(now + RTT, departure.id, departure.nonce, &Telemetry::default());
        sender.on_timer(now, |_| {});
    }
    assert!(sender.deadlines.capacity() < 1000, "{} places for one", sender.deadlines.capacity());
}

#[test]
fn memory_is_bounded_when_nothing_limits_the_rate() {
    let mut sender = sender("random");
    let sent = (0..MAX_REMEMBERED + 10).filter(|_| sender.poll(Time::ZERO, Slot(5)).departs().is_some()).count();
    assert_eq!(sent, MAX_REMEMBERED);
}

proptest! {
    /// Whatever ACKs come in whatever order, each packet has one outcome.
    #[test]
    fn every_packet_is_acked_or_lost_exactly_once(
        steps in proptest::collection::vec((0u64..400, 0usize..64, any::<bool>()), 1..300),
    ) {
        let mut sender = sender("q-learning");
        let (mut now, mut sent, mut lost) = (Time::ZERO, Vec::new(), Vec::new());
        let mut acked = Vec::new();
        for (wait_ms, pick, ack) in steps {
            now += Duration::from_millis(wait_ms);
            sender.on_timer(now, |id| lost.push(id));
            sent.extend(sender.poll(now, Slot(5)).departs());
            if let (true, Some(departure)) = (ack, sent.get(pick % sent.len().max(1))) {
                match sender.on_ack(now, departure.id, departure.nonce, &Telemetry::default()) {
                    AckVerdict::Acked { .. } => {
                        prop_assert!(!lost.contains(&departure.id) && !acked.contains(&departure.id));
                        acked.push(departure.id);
                    }
                    AckVerdict::Late { .. } => prop_assert!(lost.contains(&departure.id)),
                    AckVerdict::Unknown => {
                        prop_assert!(lost.contains(&departure.id) || acked.contains(&departure.id));
                    }
                    AckVerdict::Forged => prop_assert!(false, "the nonce was right"),
                }
            }
        }
        prop_assert_eq!(sent.len(), acked.len() + lost.len() + sender.in_flight());
    }
}
