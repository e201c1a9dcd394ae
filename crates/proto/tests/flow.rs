//! The flow machines, step by step. What they do over a path is tried in worlds.

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::flow::{Bounds, Feedback, FlowController, Limits, LossCause, PeerId, Sent};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::{
    Ack, AckError, AckPolicy, AckRanges, CatchUp, Data, Ecn, Fault, FlowReceiver, FlowSender, LossRecovery,
    SenderConfig, TcpOptions,
};

const PACKET: Bytes = Bytes::new(1000);
const RTT: Duration = Duration::from_millis(50);
const ME: PeerId = PeerId(0);

fn config() -> SenderConfig {
    SenderConfig {
        packet: PACKET,
        max_ack_delay: AckPolicy::default().max_delay,
        paced: false,
        ecn: false,
        recovery: LossRecovery::Rack,
        tcp: TcpOptions::default(),
    }
}

fn sender_with(controller: Box<dyn FlowController>) -> FlowSender {
    FlowSender::new(config(), controller, 1, Rng::stream(1, "controller"))
}

fn sender(controller: &str, parameters: &str) -> FlowSender {
    let entry = find(controller).unwrap();
    sender_with(entry.make(&Setup::new(PACKET, Time::ZERO), &parameters.parse().unwrap()).unwrap())
}

#[test]
fn a_lone_loss_is_repaired_after_a_probe_and_the_timeout_doubles() {
    let mut sender = sender("fixed", "window = 1.0");
    sender.write(ME, 1000, true);
    let first = sender.poll(Time::ZERO).unwrap();
    // RFC 9002: an initial 333 ms + 4 * 166.5 ms + the receiver's 25 ms.
    let due = sender.timer().unwrap();
    assert_eq!(due, Time::ZERO + Duration::from_millis(1024));
    sender.on_timer(due);
    let probe = sender.poll(due).unwrap();
    assert_eq!((probe.data.offset, probe.data.number), (first.data.offset, 1));
    assert_eq!(sender.timer().unwrap().since(due), Duration::from_millis(2048));
    let ack = Ack { ranges: AckRanges::new([(1, 1)]), delay: Duration::ZERO, ce_count: 0 };
    sender.on_ack(due + RTT, ME, &ack).unwrap();
    // The first is lost by time, and repaired already.
    assert_eq!((sender.packets_lost(), sender.poll(due + RTT)), (1, None));
    assert!(sender.is_done());
}

#[test]
fn what_was_late_and_copied_by_a_probe_counts_twice_though_nothing_was_lost_and_the_copy_is_counted() {
    let mut sender = sender("fixed", "window = 1.0");
    sender.write(ME, 1000, true);
    sender.poll(Time::ZERO).unwrap();
    let due = sender.timer().unwrap();
    sender.on_timer(due);
    sender.poll(due).unwrap();
    let ack = Ack { ranges: AckRanges::new([(0, 1)]), delay: Duration::ZERO, ce_count: 0 };
    sender.on_ack(due + RTT, ME, &ack).unwrap();
    assert_eq!((sender.delivered(), sender.packets_lost(), sender.packets_copied()), (Bytes::new(2000), 0, 1));
    assert!(sender.is_done());
}

#[test]
fn an_ack_of_what_was_never_sent_is_refused_and_changes_nothing() {
    let mut sender = sender("fixed", "window = 4.0");
    sender.write(ME, u64::MAX, false);
    while sender.poll(Time::ZERO).is_some() {}
    let now = Time::ZERO + RTT;
    let ack = |ranges: &[(u64, u64)]| Ack {
        ranges: AckRanges::new(ranges.iter().copied()),
        delay: Duration::ZERO,
        ce_count: 0,
    };
    assert_eq!(sender.on_ack(now, ME, &ack(&[(2, 4)])), Err(AckError::NeverSent { number: 4 }));
    assert_eq!(sender.on_ack(now, ME, &ack(&[])), Err(AckError::Empty));
    assert_eq!(sender.on_ack(now, PeerId(7), &ack(&[(0, 0)])), Err(AckError::Stranger));
    assert_eq!(sender.in_flight(), PACKET * 4);
    sender.on_ack(now, ME, &ack(&[(0, 3)])).unwrap();
    assert_eq!(sender.in_flight(), Bytes::ZERO);
}

#[test]
fn losses_over_three_probe_timeouts_are_persistent_congestion() {
    #[derive(Clone, Debug, Default)]
    struct Notes(std::sync::Arc<std::sync::atomic::AtomicBool>);
    impl FlowController for Notes {
        fn on_feedback(&mut self, _: Time, feedback: &Feedback<'_>, _: &mut Rng) {
            if feedback.persistent_congestion {
                self.0.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        }
        fn limits(&self) -> Limits {
            Limits::window(PACKET * 10)
        }
        fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
    }
    // Without a round-trip sample before, losses say nothing (RFC 9002, 7.6.2).
    for (sampled, gap_ms, expected) in [(true, 100, false), (true, 2000, true), (false, 2000, false)] {
        let notes = Notes::default();
        let seen = notes.0.clone();
        let mut sender = sender_with(Box::new(notes));
        let mut now = Time::ZERO;
        let mut number = 0;
        let mut send = |sender: &mut FlowSender, now: Time| {
            sender.write(ME, 1000, false);
            number = sender.poll(now).unwrap().data.number;
            number
        };
        let first = send(&mut sender, now);
        now += RTT;
        let ack = |number| Ack { ranges: AckRanges::new([(number, number)]), delay: Duration::ZERO, ce_count: 0 };
        if sampled {
            sender.on_ack(now, ME, &ack(first)).unwrap();
        }
        send(&mut sender, now);
        now += Duration::from_millis(gap_ms);
        for _ in 0..4 {
            send(&mut sender, now);
        }
        let last = send(&mut sender, now);
        sender.on_ack(now + RTT, ME, &ack(last)).unwrap();
        assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), expected, "after {gap_ms} ms, {sampled}");
    }
}

#[test]
fn a_controller_that_stops_everything_is_named_as_the_fault() {
    #[derive(Clone, Debug)]
    struct Stops(Limits);
    impl FlowController for Stops {
        fn on_feedback(&mut self, _: Time, _: &Feedback<'_>, _: &mut Rng) {}
        fn limits(&self) -> Limits {
            self.0
        }
        fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
    }
    let no_rate = Limits { window: PACKET, rate: Some(Rate::from_bytes_per_sec_f64(f64::NAN)), burst: PACKET };
    for (limits, fault) in [(Limits::window(Bytes::ZERO), Fault::NoWindow), (no_rate, Fault::NoRate)] {
        let mut sender = sender_with(Box::new(Stops(limits)));
        sender.write(ME, u64::MAX, false);
        while sender.poll(Time::ZERO).is_some() {}
        assert_eq!(sender.fault(), Some(fault));
    }
}

#[test]
fn bounds_from_outside_hold_from_the_next_packet_on() {
    let mut sender = sender("fixed", "window = 20.0");
    sender.write(ME, u64::MAX, false);
    sender.set_bounds(Bounds { maximum: Some(PACKET * 3), ..Bounds::default() });
    assert_eq!(std::iter::from_fn(|| sender.poll(Time::ZERO)).count(), 3);
    sender.set_bounds(Bounds { fixed: Some(PACKET * 5), ..Bounds::default() });
    assert_eq!(std::iter::from_fn(|| sender.poll(Time::ZERO)).count(), 2);
    sender.set_bounds(Bounds::default());
    assert_eq!(std::iter::from_fn(|| sender.poll(Time::ZERO)).count(), 15);
}

#[test]
fn what_a_packet_noted_when_it_left_comes_back_with_its_ack() {
    #[derive(Clone, Debug, Default)]
    struct Keeps(Vec<Sent>);
    impl FlowController for Keeps {
        fn on_sent(&mut self, _: Time, _: PeerId, packet: &Sent, _: &mut Rng) -> bool {
            self.0.push(*packet);
            false
        }
        fn on_feedback(&mut self, _: Time, feedback: &Feedback<'_>, _: &mut Rng) {
            assert_eq!(feedback.acked, &self.0[..feedback.acked.len()]);
            assert_eq!(feedback.delivered, feedback.acked_bytes);
        }
        fn limits(&self) -> Limits {
            Limits::window(PACKET * 10)
        }
        fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
    }
    let mut sender = sender_with(Box::<Keeps>::default());
    sender.write(ME, 5_500, true);
    assert_eq!(std::iter::from_fn(|| sender.poll(Time::ZERO)).count(), 6);
    let ack = Ack { ranges: AckRanges::new([(0, 5)]), delay: Duration::ZERO, ce_count: 0 };
    sender.on_ack(Time::ZERO + RTT, ME, &ack).unwrap();
    assert_eq!(sender.delivered(), Bytes::new(5_500));
    assert!(sender.is_done());
}

#[test]
fn a_sender_names_the_packets_that_it_has_just_lost_and_says_where_it_stands() {
    let mut sender = sender("fixed", "window = 10");
    let mut receiver = FlowReceiver::new(AckPolicy { every: 1, ..AckPolicy::default() });
    sender.write(ME, 6 * PACKET.get(), false);
    let sent: Vec<Data> = std::iter::from_fn(|| sender.poll(Time::ZERO)).map(|transmit| transmit.data).collect();
    assert_eq!(sent.len(), 6);
    let mut ack = |number: usize, sender: &mut FlowSender| {
        receiver.on_data(Time::ZERO + RTT / 2, &sent[number], false);
        let ack = receiver.poll_ack(Time::ZERO + RTT / 2).unwrap();
        sender.on_ack(Time::ZERO + RTT, ME, &ack).unwrap();
    };
    assert_eq!(sender.metrics(ME).rtt, None);
    ack(4, &mut sender);
    let lost = |number| (ME, number, LossCause::PacketThreshold);
    assert_eq!(sender.newly_lost(), [lost(0), lost(1)]);
    let metrics = sender.metrics(ME);
    assert_eq!(metrics.rtt.map(|rtt| (rtt.latest, rtt.smoothed)), Some((Some(RTT), RTT)));
    assert_eq!((metrics.in_flight, metrics.packets_in_flight), (PACKET * 3, 3));
    assert_eq!((metrics.limits, metrics.probe_timeouts), (sender.limits(), 0));
    ack(3, &mut sender);
    assert!(sender.newly_lost().is_empty());
    // Packets 2 and 5 stay out: the time threshold finds the first, and no probe names it
    // again.
    let due = sender.timer().unwrap();
    sender.on_timer(due);
    assert_eq!(sender.newly_lost(), [(ME, 2, LossCause::TimeThreshold)]);
    sender.on_timer(sender.timer().unwrap());
    assert!(sender.newly_lost().is_empty());
    assert_eq!(sender.metrics(ME).probe_timeouts, 1);
}

#[derive(Clone, Debug)]
struct Paced;

impl FlowController for Paced {
    fn on_feedback(&mut self, _: Time, _: &Feedback<'_>, _: &mut Rng) {}
    fn limits(&self) -> Limits {
        // A packet each millisecond.
        Limits { window: PACKET * 1_000_000, rate: Some(Rate::from_bytes_per_sec(1_000_000)), burst: Bytes::ZERO }
    }
    fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
}

#[test]
fn the_last_of_several_new_packets_that_leave_together_is_pushed_if_asked_for() {
    let mut plain = sender("fixed", "window = 4.0");
    let mut pushing = plain.clone();
    pushing.push_bursts();
    for (sender, is_asked_for) in [(&mut plain, false), (&mut pushing, true)] {
        sender.write(ME, 9500, true);
        let mut pushed = |now: Time, acknowledged: Option<(u64, u64)>| {
            if let Some(range) = acknowledged {
                let ack = Ack { ranges: AckRanges::new([range]), delay: Duration::ZERO, ce_count: 0 };
                sender.on_ack(now, ME, &ack).unwrap();
            }
            let left = std::iter::from_fn(|| sender.poll(now));
            left.map(|transmit| (transmit.data.number, transmit.data.push)).collect::<Vec<_>>()
        };
        let at = |trips: u64| Time::ZERO + RTT * trips;
        let last = |numbers: std::ops::RangeInclusive<u64>| {
            let end = *numbers.end();
            numbers.map(|number| (number, is_asked_for && number == end)).collect::<Vec<_>>()
        };
        assert_eq!(pushed(at(0), None), last(0..=3));
        assert_eq!(pushed(at(1), Some((0, 0))), [(4, false)], "one alone may be followed");
        // 1 is lost and leaves again as 5, the first of three, which is no part of their burst.
        assert_eq!(pushed(at(2), Some((2, 4))), [(5, false)].into_iter().chain(last(6..=8)).collect::<Vec<_>>());
        // The stream's end leaves in a burst of two.
        assert_eq!(pushed(at(3), Some((5, 8))), last(9..=10));
    }
}

#[test]
fn a_driver_that_wakes_late_makes_up_for_it_up_to_what_it_said() {
    let leave = |catch_up: Option<CatchUp>| {
        let mut sender = sender_with(Box::new(Paced));
        if let Some(catch_up) = catch_up {
            sender.set_catch_up(catch_up);
        }
        sender.write(ME, u64::MAX, false);
        let mut wake = |millis| {
            let now = Time::ZERO + Duration::from_millis(millis);
            std::iter::from_fn(|| sender.poll(now)).count()
        };
        let often = (0..=300).step_by(3).map(&mut wake).sum::<usize>();
        (often, wake(1300))
    };
    // Waking each 3 ms, it misses two packets of three.
    assert_eq!(leave(None), (101, 1));
    // All 300 ms are made up for, but of a pause of a second no more than it said.
    assert_eq!(leave(Some(CatchUp { span: Duration::from_millis(5), most: PACKET * 100 })), (301, 6));
    assert_eq!(leave(Some(CatchUp { span: Duration::from_millis(5), most: PACKET * 2 })), (301, 3));
}

/// Sends `packets` packets at once over an ECN-capable path and acknowledges them in pieces:
/// at each instant those up to a number, with a count of marks.
fn marked(packets: u64, answers: &[(u64, u64)]) -> FlowSender {
    let fixed = find("fixed").unwrap();
    let controller = fixed.make(&Setup::new(PACKET, Time::ZERO), &"window = 100".parse().unwrap()).unwrap();
    let mut sender =
        FlowSender::new(SenderConfig { ecn: true, ..config() }, controller, 1, Rng::stream(1, "controller"));
    sender.write(ME, packets * PACKET.get(), false);
    assert!(std::iter::from_fn(|| sender.poll(Time::ZERO)).all(|transmit| transmit.ecn_capable));
    for (i, &(number, ce_count)) in (0..).zip(answers) {
        let ack = Ack { ranges: AckRanges::new([(0, number)]), delay: Duration::ZERO, ce_count };
        sender.on_ack(Time::ZERO + RTT + Duration::from_millis(i), ME, &ack).unwrap();
    }
    sender
}

#[test]
fn counts_of_marks_that_no_path_gives_end_ecn_for_that_receiver() {
    // RFC 9000, 13.4.2.1: counts never fall, and no more packets are marked than arrived.
    let honest: &[(u64, u64)] = &[(1, 1), (3, 2), (9, 8)];
    let falling: &[(u64, u64)] = &[(1, 2), (3, 1)];
    let too_many: &[(u64, u64)] = &[(1, 1), (3, 4)];
    // An ACK that does not raise the largest number may have been overtaken: it proves nothing.
    let overtaken: &[(u64, u64)] = &[(5, 3), (3, 1)];
    let outcomes = [(honest, Ecn::Capable), (falling, Ecn::Failed), (too_many, Ecn::Failed), (overtaken, Ecn::Capable)];
    for (answers, ecn) in outcomes {
        let mut sender = marked(10, answers);
        assert_eq!(sender.metrics(ME).ecn, ecn, "{answers:?}");
        assert_eq!(sender.ecn_failures(), u64::from(ecn == Ecn::Failed));
        sender.write(ME, PACKET.get(), false);
        assert_eq!(sender.poll(Time::ZERO + RTT * 2).unwrap().ecn_capable, ecn == Ecn::Capable, "{answers:?}");
    }
}

#[test]
fn marks_that_could_not_have_come_are_not_reported_to_the_controller() {
    // Reno halves once for the first mark; what a failed validation reports halves nothing.
    let reno = find("reno").unwrap();
    let build = || reno.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
    for (ecn, ce_count, halved) in [(true, 1, true), (true, 7, false), (false, 1, false)] {
        let mut sender = FlowSender::new(SenderConfig { ecn, ..config() }, build(), 1, Rng::stream(1, "controller"));
        sender.write(ME, u64::MAX, false);
        while sender.poll(Time::ZERO).is_some() {}
        let ack = Ack { ranges: AckRanges::new([(0, 1)]), delay: Duration::ZERO, ce_count };
        sender.on_ack(Time::ZERO + RTT, ME, &ack).unwrap();
        assert_eq!(sender.limits().window < build().limits().window, halved, "{ecn} {ce_count}");
    }
}

#[test]
fn what_a_receiver_says_it_waited_counts_up_to_what_it_promised() {
    // RFC 9002, 5.3: of 300 ms, 100 ms are claimed as delay, where 25 ms were promised.
    let mut sender = sender("fixed", "window = 1");
    sender.write(ME, 3 * PACKET.get(), false);
    let mut now = Time::ZERO;
    for (number, rtt_ms, delay_ms) in [(0, 100, 0), (1, 300, 100)] {
        assert_eq!(sender.poll(now).unwrap().data.number, number);
        now += Duration::from_millis(rtt_ms);
        let delay = Duration::from_millis(delay_ms);
        let ack = Ack { ranges: AckRanges::new([(number, number)]), delay, ce_count: 0 };
        sender.on_ack(now, ME, &ack).unwrap();
    }
    // 7/8 of 100 ms and 1/8 of 300 - 25 ms.
    assert_eq!(sender.smoothed_rtt(ME), Some(Duration::from_nanos(121_875_000)));
}

#[test]
fn a_window_shared_by_receivers_is_spread_over_the_round_trip_of_each_one_that_gets_a_packet() {
    let fixed = find("fixed").unwrap();
    let controller = fixed.make(&Setup::new(PACKET, Time::ZERO), &"window = 20".parse().unwrap()).unwrap();
    let config = SenderConfig { paced: true, ..config() };
    let mut sender = FlowSender::new(config, controller, 2, Rng::stream(1, "controller"));
    sender.on_handshake(PeerId(0), Duration::from_millis(10));
    sender.on_handshake(PeerId(1), Duration::from_millis(110));
    for packet in 0..20 {
        sender.write(PeerId(packet % 2), PACKET.get(), false);
    }
    // A window in a mean round trip of 60 ms, and a quarter more: the last packet leaves when
    // those before it have taken their parts of 48 ms.
    let (mut now, mut last) = (Time::ZERO, Time::ZERO);
    for _ in 0..20 {
        while sender.poll(now).is_none() {
            now = sender.timer().unwrap();
        }
        last = now;
    }
    let millis = last.as_secs_f64() * 1e3;
    assert!((43.0..49.0).contains(&millis), "the window took {millis} ms");
}
