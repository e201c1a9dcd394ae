use proptest::prelude::*;

use super::*;
use crate::flow::setup::made;
use crate::flow::testing::{Drive, PACKET, Path, drive};
use crate::flow::{LossCause, Lost, RoundTrip};
use crate::rng::Rng;
use crate::units::Rate;

/// 4 Mbit/s and 60 ms: 30 packets fill it; 100 more may wait, which take 200 ms.
const PATH: Path =
    Path { rate: Rate::from_bytes_per_sec(500_000), rtt: Duration::from_millis(60), buffer: 100, loss: 0.0 };

fn build_with(parameters: &str) -> Box<dyn FlowController> {
    made(build, &Setup::new(PACKET, Time::ZERO), &parameters.parse().unwrap()).unwrap()
}

fn run(parameters: &str, path: Path, seconds: f64) -> (Drive, Vec<(&'static str, f64)>) {
    let mut controller = build_with(parameters);
    let drive = drive(&mut *controller, path, seconds, 1);
    (drive, traced(&*controller))
}

fn traced(controller: &dyn FlowController) -> Vec<(&'static str, f64)> {
    let mut values = Vec::new();
    controller.trace(&mut |name, value| values.push((name, value)));
    values
}

fn value(values: &[(&'static str, f64)], name: &str) -> f64 {
    values.iter().find(|(known, _)| *known == name).unwrap().1
}

/// Mean queueing delay of the last half of a drive, ms.
fn late_queue_ms(drive: &Drive, path: Path) -> f64 {
    let late = &drive.rtt_ms[drive.rtt_ms.len() / 2..];
    late.iter().sum::<f64>() / late.len() as f64 - path.rtt.as_millis_f64() - (PACKET / path.rate).as_millis_f64()
}

#[test]
fn the_queue_settles_at_its_reference_and_the_link_is_full() {
    for rate in [125_000, 500_000, 5_000_000] {
        let path = Path { rate: Rate::from_bytes_per_sec(rate), buffer: 10_000, ..PATH };
        let (drive, values) = run("", path, 20.0);
        assert_eq!(drive.lost, 0);
        assert!((value(&values, "queue_reference") - 75.0).abs() < 1e-9);
        // Eq. 17 asks for T and a packet beyond the reference; gamma_2 takes part of it back.
        let beyond = 10.0 + (PACKET / path.rate).as_millis_f64();
        let queue = late_queue_ms(&drive, path);
        assert!((75.0 - 5.0..=75.0 + beyond).contains(&queue), "{rate} B/s: a queue of {queue} ms");
        let upload = value(&values, "upload_rate") / 8.0;
        assert!((upload / rate as f64 - 1.0).abs() < 0.03, "{rate} B/s: U is {upload}");
    }
}

#[test]
fn a_loss_shows_what_the_queue_can_hold() {
    // 20 packets may wait, which take 40 ms: less than the 75 ms that are first aimed at.
    let path = Path { buffer: 20, ..PATH };
    let (drive, values) = run("", path, 20.0);
    assert!(drive.lost > 0);
    let limit = value(&values, "queue_limit");
    assert!((38.0..=44.0).contains(&limit), "{limit} ms");
    let queue = late_queue_ms(&drive, path);
    assert!((25.0..=42.0).contains(&queue), "a queue of {queue} ms");
    assert!(drive.throughput() > 0.9 * 500.0, "{} packets a second", drive.throughput());
}

#[test]
fn eq_16_to_the_letter_asks_for_the_round_trip_once_more() {
    let path = Path { buffer: 10_000, ..PATH };
    let (drive, values) = run("reference = \"letter\"", path, 20.0);
    // 75 ms of queue, 60 ms of path and the 2 ms of a packet.
    assert!((value(&values, "queue_reference") - 137.0).abs() < 1.0);
    let queue = late_queue_ms(&drive, path);
    assert!((130.0..=150.0).contains(&queue), "a queue of {queue} ms");
}

fn answer<'a>(receiver: PeerId, rtt_ms: u64, acked: &'a [Sent], lost: &'a [Lost], in_flight: Bytes) -> Feedback<'a> {
    let rtt = Duration::from_millis(rtt_ms);
    let acked_bytes = PACKET * acked.len() as u64;
    Feedback {
        receiver,
        rtt: RoundTrip {
            latest: Some(rtt).filter(|_| !acked.is_empty()),
            smoothed: rtt,
            variation: Duration::ZERO,
            min: rtt.min(Duration::from_millis(100)),
        },
        acked,
        lost,
        acked_bytes,
        in_flight,
        delivered: acked_bytes,
        rate: None,
        ecn_marked_packets: 0,
        persistent_congestion: false,
        tcp: None,
        app_limited: false,
    }
}

#[test]
fn of_a_receiver_that_is_gone_only_the_queue_stays_known() {
    let mut controller = build_with("");
    let mut rng = Rng::stream(1, "controller");
    let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
    let (near, far) = (PeerId(0), PeerId(1));
    let mut in_flight = Bytes::ZERO;
    let mut send = |controller: &mut Box<dyn FlowController>, ms: u64, to: PeerId| {
        in_flight += PACKET;
        let sent = Sent { at: at(ms), size: PACKET, in_flight, ..Sent::default() };
        controller.on_sent(at(ms), to, &sent, &mut Rng::stream(1, "unused"));
        sent
    };
    let [first, second, third, fourth] = [0, 1, 2, 3].map(|ms| send(&mut controller, ms, far));
    let [fifth, _sixth] = [4, 5].map(|ms| send(&mut controller, ms, near));
    controller.on_feedback(at(7), &answer(near, 20, &[fifth], &[], PACKET * 5), &mut rng);
    controller.on_feedback(at(160), &answer(far, 160, &[first], &[], PACKET * 4), &mut rng);
    let lost = [Lost { sent: second, cause: LossCause::TimeThreshold }];
    controller.on_feedback(at(161), &answer(far, 160, &[], &lost, PACKET * 3), &mut rng);
    controller.on_timer(at(170), &mut rng);
    let values = traced(&*controller);
    assert_eq!((value(&values, "queue_limit"), value(&values, "rtt_1")), (60.0, 160.0));
    // Two packets to one that is 100 ms away, one to one at 20 ms.
    assert!((value(&values, "base_delay") - 220.0 / 3.0).abs() < 1e-9, "{values:?}");
    let packets = [third, fourth];
    let abandoned = Abandoned { receiver: far, packets: &packets, in_flight: PACKET, is_gone: true };
    let before = controller.limits().window;
    controller.on_abandoned(at(171), &abandoned);
    assert_eq!(before - controller.limits().window, PACKET * 2, "what is not in flight is not replaced at once");
    controller.on_timer(at(180), &mut rng);
    let values = traced(&*controller);
    assert_eq!((value(&values, "queue_limit"), value(&values, "rtt_1")), (60.0, 0.0));
    assert_eq!(value(&values, "base_delay"), 20.0);
}

#[test]
fn a_random_loss_leaves_it_alive_and_fast() {
    let (drive, _) = run("", Path { loss: 0.01, ..PATH }, 60.0);
    assert!(drive.throughput() > 0.8 * 500.0, "{} packets a second", drive.throughput());
}

/// A controller and what its driver would count, to be driven by hand.
struct Hand {
    controller: Box<dyn FlowController>,
    rng: Rng,
    in_flight: Bytes,
    delivered: Bytes,
}

impl Hand {
    fn new(parameters: &str) -> Hand {
        let rng = Rng::stream(1, "hand");
        Hand { controller: build_with(parameters), rng, in_flight: Bytes::ZERO, delivered: Bytes::ZERO }
    }

    fn room(&self) -> bool {
        let window = self.controller.limits().window;
        self.in_flight + PACKET <= window || self.in_flight == Bytes::ZERO
    }

    fn send(&mut self, now: Time, to: u32) -> Sent {
        self.in_flight += PACKET;
        let sent = Sent { at: now, size: PACKET, in_flight: self.in_flight, ..Sent::default() };
        self.controller.on_sent(now, PeerId(to), &sent, &mut self.rng);
        sent
    }

    fn answer(&mut self, now: Time, from: u32, min: Duration, acked: &[Sent], lost: &[Lost], app_limited: bool) {
        let acked_bytes = PACKET * acked.len() as u64;
        self.in_flight = self.in_flight - acked_bytes - PACKET * lost.len() as u64;
        self.delivered += acked_bytes;
        let latest = acked.last().map(|sent| now.since(sent.at));
        let feedback = Feedback {
            receiver: PeerId(from),
            rtt: RoundTrip { latest, smoothed: min, variation: Duration::ZERO, min },
            acked,
            lost,
            acked_bytes,
            in_flight: self.in_flight,
            delivered: self.delivered,
            rate: None,
            ecn_marked_packets: 0,
            persistent_congestion: false,
            tcp: None,
            app_limited,
        };
        self.controller.on_feedback(now, &feedback, &mut self.rng);
    }

    fn pass(&mut self, until: Time) {
        while let Some(due) = self.controller.timer().filter(|due| *due <= until) {
            self.controller.on_timer(due, &mut self.rng);
        }
    }
}

fn ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

#[test]
fn between_two_periods_acks_make_no_room() {
    for gamma in [1.0, 0.5] {
        let mut hand = Hand::new(&format!("gamma = {gamma}"));
        let sent: Vec<Sent> = (0..10).map(|_| hand.send(ms(0), 0)).collect();
        assert!(!hand.room(), "the initial window is ten packets");
        hand.pass(ms(60));
        hand.answer(ms(61), 0, Duration::from_millis(61), &sent[..4], &[], false);
        assert!(!hand.room(), "u(kT) has been sent");
        hand.pass(ms(70));
        let values = traced(&*hand.controller);
        let room = hand.controller.limits().window.get() - hand.in_flight.get();
        let lacks = value(&values, "window") - hand.in_flight.get() as f64;
        assert!(
            (room as f64 - gamma * lacks).abs() < 1.0,
            "eq. 1: {gamma} of what the window lacks, {lacks}, not {room}"
        );
        assert!(lacks >= 4.0 * PACKET.get() as f64, "four were acknowledged");
    }
}

#[test]
fn each_receivers_delay_counts_by_its_share_of_what_is_on_its_way() {
    let mut hand = Hand::new("");
    let near = hand.send(ms(0), 0);
    hand.answer(ms(40), 0, Duration::from_millis(40), &[near], &[], false);
    let far = hand.send(ms(40), 1);
    hand.answer(ms(120), 1, Duration::from_millis(80), &[far], &[], false);
    for to in [0, 0, 0, 1] {
        hand.send(ms(120), to);
    }
    hand.pass(ms(130));
    assert!((value(&traced(&*hand.controller), "base_delay") - 50.0).abs() < 1e-9);
    let _ = hand.send(ms(130), 900);
    hand.pass(ms(140));
    assert!((value(&traced(&*hand.controller), "base_delay") - 50.0).abs() < 1e-9, "one that never answered");
}

/// A steady sender to one receiver 60 ms away: `rate` packets each 10 ms until `until`.
fn steady(hand: &mut Hand, from: u64, until: u64, rate: usize, app_limited: bool) {
    let mut flight: std::collections::VecDeque<Vec<Sent>> = std::collections::VecDeque::new();
    for now in (from..until).step_by(10) {
        hand.pass(ms(now));
        if flight.len() == 6 {
            let acked = flight.pop_front().unwrap();
            hand.answer(ms(now), 0, Duration::from_millis(60), &acked, &[], app_limited);
        }
        flight.push_back((0..rate).map(|_| hand.send(ms(now), 0)).collect());
    }
    // Nothing more is left to send.
    for (i, acked) in (0..).zip(flight) {
        hand.pass(ms(until + 10 * i));
        hand.answer(ms(until + 10 * i), 0, Duration::from_millis(60), &acked, &[], true);
    }
}

#[test]
fn a_sender_without_data_keeps_its_rate_and_begins_anew_after_a_rest() {
    let mut hand = Hand::new("");
    steady(&mut hand, 0, 2000, 5, false);
    let busy = value(&traced(&*hand.controller), "upload_rate");
    assert!((busy / 4e6 - 1.0).abs() < 0.05, "{busy}");
    steady(&mut hand, 2060, 4000, 1, true);
    let slow = value(&traced(&*hand.controller), "upload_rate");
    assert!(slow >= 0.9 * busy, "{slow} after {busy}");
    hand.pass(ms(10_000));
    assert_eq!(hand.controller.timer(), None, "it sleeps");
    assert_eq!(hand.controller.limits().window, PACKET * Setup::INITIAL_PACKETS);
    hand.send(ms(10_000), 0);
    assert_eq!(hand.controller.timer(), Some(ms(10_010)));
}

#[test]
fn a_window_that_a_peers_receivers_share_begins_as_tcps_does() {
    for is_shared in [true, false] {
        let setup = Setup { shared: is_shared, ..Setup::new(PACKET, Time::ZERO) };
        let mut hand = Hand { controller: made(build, &setup, &toml::Table::new()).unwrap(), ..Hand::new("") };
        let window = |hand: &Hand| value(&traced(&*hand.controller), "window") / PACKET.get() as f64;
        steady(&mut hand, 0, 2000, 1, true);
        // Then it has more to send than the window takes.
        let mut most = Setup::INITIAL_PACKETS as f64;
        for round in 0..4 {
            let (leaves, comes) = (2100 + 70 * round, 2160 + 70 * round);
            hand.pass(ms(leaves));
            let mut flight = Vec::new();
            while hand.room() {
                flight.push(hand.send(ms(leaves), 0));
            }
            hand.answer(ms(comes), 0, Duration::from_millis(60), &flight, &[], false);
            hand.pass(ms(comes + 9));
            most += flight.len() as f64;
        }
        assert_eq!(window(&hand) >= most, is_shared, "{} of {most}", window(&hand));
        let before = window(&hand);
        let lost = [Lost { sent: hand.send(ms(2380), 0), cause: LossCause::PacketThreshold }];
        hand.answer(ms(2440), 0, Duration::from_millis(60), &[], &lost, false);
        hand.pass(ms(2450));
        assert!(!is_shared || window(&hand) < before, "a loss ends that");
    }
}

#[test]
fn parameters_outside_their_ranges_are_refused() {
    for wrong in ["gamma = 0.0", "gamma = 1.5", "queue_share = 1.0", "period_ms = 0.0", "rate_span_ms = 1.0"] {
        assert!(made(build, &Setup::new(PACKET, Time::ZERO), &wrong.parse().unwrap()).is_err(), "{wrong}");
    }
}

proptest! {
    /// Whatever happens, there is a window that a packet fits into, and all values are numbers.
    #[test]
    fn it_stays_alive(seed: u64, gamma in 0.01..=1.0f64, gamma_2 in 0.0..=10.0f64) {
        let mut hand = Hand::new(&format!("gamma = {gamma}\ngamma_2 = {gamma_2}"));
        let mut rng = Rng::stream(seed, "events");
        let mut flights: Vec<(u32, Sent)> = Vec::new();
        let mut now = Time::ZERO;
        let mut min = [Duration::from_nanos(u64::MAX); 3];
        for _ in 0..500 {
            now += Duration::from_nanos(rng.below(30_000_000) as u64 + 1);
            hand.pass(now);
            while flights.len() < 200 && hand.room() && rng.chance(0.9) {
                let to = rng.below(3) as u32;
                let sent = hand.send(now, to);
                flights.push((to, sent));
            }
            if !flights.is_empty() && rng.chance(0.7) {
                let (from, sent) = flights.remove(rng.below(flights.len()));
                let loss = rng.chance(0.2);
                let slot = &mut min[from as usize];
                if loss && *slot < Duration::from_nanos(u64::MAX) {
                    let lost = [Lost { sent, cause: LossCause::PacketThreshold }];
                    hand.answer(now, from, *slot, &[], &lost, rng.chance(0.3));
                } else {
                    *slot = (*slot).min(now.since(sent.at));
                    hand.answer(now, from, *slot, &[sent], &[], rng.chance(0.3));
                }
            }
            prop_assert!(hand.controller.limits().window >= PACKET);
            for (name, value) in traced(&*hand.controller) {
                prop_assert!(value.is_finite() && value >= 0.0, "{name} is {value}");
            }
        }
    }
}
