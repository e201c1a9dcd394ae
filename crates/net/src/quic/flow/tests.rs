//! Driven by hand, as a library does.

use std::sync::mpsc;
use std::time::Duration as Span;

use anabranch_control::flow::Limits;

use super::*;

const PACKET: u64 = 1200;

/// Feedback that the controller got.
#[derive(Clone, Debug, Default, PartialEq)]
struct FeedbackRecord {
    now_ms: f64,
    acked: Vec<(f64, u64)>,
    acked_bytes: u64,
    lost: Vec<(f64, u64)>,
    causes: Vec<LossCause>,
    in_flight: u64,
    delivered: u64,
    latest_ms: Option<f64>,
    smoothed_ms: f64,
    rate_bytes_per_s: Option<f64>,
    marked: u64,
    persistent: bool,
    app_limited: bool,
}

/// Hands on its feedback, and asks for what it is set to ask for.
#[derive(Clone, Debug)]
struct Listener {
    heard: mpsc::Sender<FeedbackRecord>,
    limits: Limits,
    due: Option<Time>,
}

impl FlowController for Listener {
    fn on_sent(&mut self, _: Time, _: PeerId, packet: &Sent, _: &mut Rng) -> bool {
        self.limits.window += packet.size;
        true
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        let ms = |time: Time| time.since(Time::ZERO).as_millis_f64();
        let record = FeedbackRecord {
            now_ms: ms(now),
            acked: feedback.acked.iter().map(|sent| (ms(sent.at), sent.size.get())).collect(),
            acked_bytes: feedback.acked_bytes.get(),
            lost: feedback.lost.iter().map(|lost| (ms(lost.sent.at), lost.sent.size.get())).collect(),
            causes: feedback.lost.iter().map(|lost| lost.cause).collect(),
            in_flight: feedback.in_flight.get(),
            delivered: feedback.delivered.get(),
            latest_ms: feedback.rtt.latest.map(Duration::as_millis_f64),
            smoothed_ms: feedback.rtt.smoothed.as_millis_f64(),
            rate_bytes_per_s: feedback.rate.map(|sample| sample.rate().bytes_per_sec()),
            marked: feedback.ecn_marked_packets,
            persistent: feedback.persistent_congestion,
            app_limited: feedback.app_limited,
        };
        self.heard.send(record).expect("the test listens");
    }

    fn on_timer(&mut self, now: Time, _: &mut Rng) {
        self.limits.window = Bytes::new(now.as_nanos() / 1_000_000);
        self.due = None;
    }

    fn timer(&self) -> Option<Time> {
        self.due
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        record("window", self.limits.window.get() as f64);
    }
}

struct Driven {
    flow: Flow,
    heard: mpsc::Receiver<FeedbackRecord>,
    began: Instant,
}

fn driven(limits: Limits, due: Option<Time>) -> Driven {
    let (heard, hears) = mpsc::channel();
    let began = Instant::now();
    let setup = Setup::new(Bytes::new(PACKET), Time::ZERO);
    let listener = Box::new(Listener { heard, limits, due });
    let rng = Rng::stream(1, "controller");
    Driven { flow: Flow::new("listener", listener, Bounds::default(), setup, rng, began), heard: hears, began }
}

impl Driven {
    fn at(&self, ms: u64) -> Instant {
        self.began + Span::from_millis(ms)
    }

    fn sends(&self, ms: u64, packets: u64) {
        self.flow.on_sent(self.at(ms), packets * PACKET);
    }

    fn acks(&self, ms: u64, sent_ms: &[u64], in_flight: u64, app_limited: bool) {
        let acked: Vec<_> = sent_ms.iter().map(|&sent| (self.at(sent), PACKET as u16)).collect();
        let end = AckEnd { in_flight: Bytes::new(in_flight), app_limited, smoothed_rtt: Span::from_millis(77) };
        self.flow.on_acks(self.at(ms), &acked, end);
    }

    fn loses(&self, ms: u64, newest_ms: u64, packets: u64, persistent: bool) {
        self.flow.on_congestion(self.at(ms), self.at(newest_ms), packets * PACKET, persistent);
    }

    /// All feedback of the controller until now.
    fn feedback(&self) -> Vec<FeedbackRecord> {
        self.flow.window();
        self.heard.try_iter().collect()
    }
}

const WINDOW: Limits = Limits::window(Bytes::new(12_000));

#[test]
fn a_batch_of_acks_becomes_one_feedback() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 4);
    driven.sends(10, 1);
    driven.acks(100, &[0, 0, 0, 0], PACKET, false);
    let feedback = driven.feedback();
    assert_eq!(feedback.len(), 1);
    assert_eq!(feedback[0].acked, [(0.0, PACKET); 4]);
    assert_eq!(
        (feedback[0].acked_bytes, feedback[0].delivered, feedback[0].in_flight),
        (4 * PACKET, 4 * PACKET, PACKET)
    );
    assert_eq!((feedback[0].now_ms, feedback[0].app_limited), (100.0, false));
    assert!(driven.feedback().is_empty(), "nothing is reported twice");
}

#[test]
fn round_trips_are_those_of_the_newest_packet_and_the_mean_the_librarys() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 3);
    driven.sends(20, 1);
    driven.acks(100, &[0, 20], 2 * PACKET, false);
    driven.acks(130, &[0], PACKET, false);
    driven.sends(140, 1);
    driven.acks(200, &[140], PACKET, false);
    let feedback = driven.feedback();
    // The first sample is the mean, whatever the library supposed before; an older packet
    // gives no sample.
    assert_eq!((feedback[0].latest_ms, feedback[0].smoothed_ms), (Some(80.0), 80.0));
    assert_eq!((feedback[1].latest_ms, feedback[1].smoothed_ms), (None, 80.0));
    assert_eq!((feedback[2].latest_ms, feedback[2].smoothed_ms), (Some(60.0), 77.0));
    let snapshot = driven.flow.snapshot();
    assert_eq!(snapshot.min_rtt, Some(Duration::from_millis(60)));
    assert_eq!(snapshot.delivered, Bytes::new(4 * PACKET));
}

#[test]
fn the_delivery_rate_is_taken_over_a_packets_flight() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 10);
    driven.acks(100, &[0; 5], 5 * PACKET, false);
    driven.acks(150, &[0; 5], 0, false);
    let feedback = driven.feedback();
    assert_eq!(feedback[0].rate_bytes_per_s, Some(5.0 * PACKET as f64 / 0.1));
    assert_eq!(feedback[1].rate_bytes_per_s, Some(10.0 * PACKET as f64 / 0.15));
}

#[test]
fn losses_and_marks_come_with_the_ack_that_reports_them() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 2);
    driven.sends(10, 1);
    driven.sends(20, 4);
    driven.acks(100, &[20, 20, 20], 4 * PACKET, false);
    driven.loses(100, 10, 3, true);
    driven.loses(100, 20, 0, false);
    let feedback = driven.feedback();
    assert_eq!(feedback.len(), 1);
    assert_eq!(feedback[0].acked.len(), 3);
    assert_eq!(feedback[0].lost, [(0.0, PACKET), (0.0, PACKET), (10.0, PACKET)]);
    assert_eq!(feedback[0].causes, [LossCause::PacketThreshold; 3]);
    assert_eq!((feedback[0].in_flight, feedback[0].marked, feedback[0].persistent), (PACKET, 1, true));
    let snapshot = driven.flow.snapshot();
    assert_eq!((snapshot.lost, snapshot.congestion_events), (Bytes::new(3 * PACKET), 2));
}

#[test]
fn losses_that_a_timer_finds_come_alone() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 3);
    driven.acks(100, &[0], 2 * PACKET, false);
    driven.loses(112, 0, 2, false);
    let feedback = driven.feedback();
    assert_eq!(feedback.len(), 2);
    assert!(feedback[0].lost.is_empty() && feedback[1].acked.is_empty());
    assert_eq!((feedback[1].now_ms, feedback[1].in_flight, feedback[1].latest_ms), (112.0, 0, None));
    assert_eq!(feedback[1].causes, [LossCause::TimeThreshold; 2]);
}

#[test]
fn what_the_application_leaves_unused_is_reported_and_marks_the_packets_after_it() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 1);
    driven.acks(100, &[0], 0, true);
    assert!(driven.feedback()[0].app_limited);
    let state = driven.flow.lock();
    assert!(state.delivery.is_app_limited());
    drop(state);
    driven.sends(200, 2);
    driven.acks(300, &[200, 200], 0, false);
    assert!(!driven.feedback()[0].app_limited);
}

#[test]
fn the_window_is_the_controllers_and_bounds_hold_at_once() {
    let limits =
        Limits { window: Bytes::new(40_000), rate: Some(Rate::from_bytes_per_sec(5000)), burst: Bytes::new(7) };
    let driven = driven(limits, None);
    assert_eq!(driven.flow.limits(), (40_000, Some(5000), 7));
    driven.sends(0, 1);
    assert_eq!(driven.flow.window(), 40_000 + PACKET);
    driven.flow.set(Bounds { maximum: Some(Bytes::new(9000)), ..Bounds::default() });
    assert_eq!(driven.flow.window(), 9000);
    driven.flow.set(Bounds { fixed: Some(Bytes::new(1)), ..Bounds::default() });
    assert_eq!(driven.flow.window(), 1);
    driven.flow.set(Bounds::default());
    assert_eq!(driven.flow.window(), 40_000 + PACKET);
}

#[test]
fn without_a_pacer_a_rate_keeps_in_flight_what_it_sends_in_a_round_trip() {
    let rate = Some(Rate::from_bytes_per_sec(100_000));
    let driven = driven(Limits { window: Bytes::new(40_000), rate, burst: Bytes::ZERO }, None);
    assert_eq!(driven.flow.window_at_rate(), 40_000, "no round trip is known yet");
    driven.acks(200, &[0], 0, false);
    assert_eq!(driven.flow.window_at_rate(), 20_000);
    driven.acks(300, &[299], 0, false);
    assert_eq!(driven.flow.window_at_rate(), 7700);
    driven.flow.set(Bounds { maximum: Some(Bytes::new(3000)), ..Bounds::default() });
    assert_eq!(driven.flow.window_at_rate(), 3000);
    driven.flow.set(Bounds::default());
    driven.flow.set_mtu(9000);
    assert_eq!(driven.flow.window_at_rate(), 36_000, "four packets");
}

#[test]
fn a_timer_is_called_with_the_first_event_at_which_it_is_due() {
    let due = Some(Time::ZERO + Duration::from_millis(50));
    let driven = driven(WINDOW, due);
    driven.acks(49, &[0], 0, false);
    assert_eq!(driven.flow.window(), 12_000);
    driven.acks(60, &[0], 0, false);
    assert_eq!(driven.flow.window(), 60);
}

#[test]
fn what_is_reported_before_the_beginning_or_of_strangers_does_no_harm() {
    let driven = driven(WINDOW, None);
    let before = driven.began.checked_sub(Span::from_secs(5)).unwrap_or(driven.began);
    let end = AckEnd { in_flight: Bytes::ZERO, app_limited: false, smoothed_rtt: Span::MAX };
    driven.flow.on_acks(driven.at(5), &[(before, 1200), (driven.at(9), 0)], end);
    driven.flow.on_congestion(driven.at(6), before, u64::MAX / 2, true);
    driven.flow.on_sent(driven.at(1), 0);
    assert_eq!(driven.feedback().len(), 2);
    assert_eq!(driven.flow.snapshot().in_flight, Bytes::ZERO);
}

#[test]
fn packets_that_are_never_answered_are_reported_among_the_acknowledged_without_counting() {
    let driven = driven(WINDOW, None);
    driven.sends(0, 1);
    driven.sends(10, 1);
    driven.sends(20, 1);
    driven.acks(100, &[10], PACKET, false);
    driven.acks(110, &[20], 0, false);
    let feedback = driven.feedback();
    assert_eq!(feedback[0].acked, [(10.0, PACKET)], "what left 100 ms ago, 10 ms more than a round trip, may be late");
    assert_eq!(feedback[1].acked, [(20.0, PACKET)]);
    driven.sends(115, 1);
    driven.acks(205, &[115], 0, false);
    let feedback = driven.feedback();
    assert_eq!(feedback[0].acked, [(0.0, PACKET), (115.0, PACKET)]);
    assert_eq!((feedback[0].acked_bytes, feedback[0].delivered), (PACKET, 3 * PACKET));
}
