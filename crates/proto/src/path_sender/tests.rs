use anabranch_control::path::registry::{self, Pacing, Setup};
use proptest::prelude::*;

use super::*;
use crate::packet::Telemetry;
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
