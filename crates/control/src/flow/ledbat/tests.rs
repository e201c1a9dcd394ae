//! Both LEDBATs, driven packet by packet.

use super::*;
use crate::flow::setup::{Setup, made};
use crate::flow::testing::{PACKET, PATH, Path, drive, drive_behind, feedback, silence};
use crate::flow::{LossCause, Lost, RoundTrip, Sent};
use crate::units::Rate;

fn ledbat(parameters: &str) -> Box<dyn FlowController> {
    made(build, &Setup::new(PACKET, Time::ZERO), &parameters.parse().unwrap()).unwrap()
}

fn plus_plus(parameters: &str) -> Box<dyn FlowController> {
    made(plus_plus::build, &Setup::new(PACKET, Time::ZERO), &parameters.parse().unwrap()).unwrap()
}

#[test]
fn ledbat_settles_with_the_queue_at_its_target() {
    for (target, controller) in [(100.0, ledbat("")), (25.0, ledbat("target_ms = 25"))] {
        let mut controller = controller;
        let run = drive(&mut *controller, PATH, 300.0, 1);
        for rtt in run.late(200.0, &run.rtt_ms) {
            assert!((rtt - 101.0 - target).abs() < 3.0, "a round trip of {rtt} ms for a target of {target} ms");
        }
    }
}

#[test]
fn ledbat_grows_by_no_more_than_a_packet_a_round_trip() {
    let run = drive(&mut *ledbat(""), PATH, 5.0, 1);
    let last = run.window.last().unwrap();
    assert!((44.0..=51.0).contains(last), "{last} packets after 49 round trips from 2");
}

#[test]
fn ledbat_yields_to_a_queue_that_others_hold_above_its_target() {
    let others = |now: Time| Duration::from_millis(if now.as_secs_f64() > 100.0 { 150 } else { 0 });
    let run = drive_behind(&mut *ledbat(""), PATH, others, 200.0, 1);
    assert!(run.late(90.0, &run.window)[0] > 150.0, "it had not filled the path before");
    assert!(run.window.last().unwrap() < &3.0, "{:?} packets against 150 ms of others", run.window.last());
}

#[test]
fn plus_plus_yields_to_a_queue_that_others_hold_above_its_target() {
    let others = |now: Time| Duration::from_millis(if now.as_secs_f64() > 50.0 { 90 } else { 0 });
    let run = drive_behind(&mut *plus_plus(""), PATH, others, 70.0, 1);
    assert!(run.window.last().unwrap() < &3.0, "{:?} packets against 90 ms of others", run.window.last());
}

#[test]
fn ledbat_halves_its_window_once_for_a_flight_with_losses() {
    let run = drive(&mut *ledbat(""), Path { buffer: 20, ..PATH }, 60.0, 1);
    let falls = run.window.windows(2).filter(|pair| pair[1] < 0.9 * pair[0]).count();
    let halved = run.window.windows(2).filter(|pair| (pair[1] / pair[0] - 0.5).abs() < 0.01).count();
    assert!(falls == halved && (4..=12).contains(&falls), "{falls} falls, {halved} of them to a half");
}

/// What an ACK of one packet says `rtt_ms` after it left that reveals `lost` losses.
fn ack_with_losses(controller: &mut dyn FlowController, now_ms: u64, rtt_ms: u64, lost: usize) {
    let left = Time::ZERO + Duration::from_millis(now_ms - rtt_ms);
    let sent = Sent { at: left, size: PACKET, ..Sent::default() };
    let lost = vec![Lost { sent, cause: LossCause::PacketThreshold }; lost];
    let acked = [sent];
    let report = Feedback { lost: &lost, ..feedback(&acked, Duration::from_millis(rtt_ms)) };
    controller.on_feedback(Time::ZERO + Duration::from_millis(now_ms), &report, &mut Rng::stream(1, "controller"));
}

#[test]
fn ledbat_halves_its_window_though_nearly_all_of_a_flight_is_lost() {
    let mut controller = ledbat("");
    drive(&mut *controller, PATH, 5.0, 1);
    let before = controller.limits().window;
    // All but the last packet, which a probe repeats, are gone: they count as in flight still.
    let lost = (before.get() / PACKET.get()) as usize - 1;
    ack_with_losses(&mut *controller, 6000, 101, lost);
    let half = controller.limits().window.get() as f64 / before.get() as f64;
    assert!((half - 0.5).abs() < 0.02, "{half} of the window are left");
}

/// Packets in the window after `acks` packets were acknowledged one by one from `from_ms` on.
fn after_acks(controller: &mut dyn FlowController, from_ms: u64, rtt_ms: u64, acks: u64, app_limited: bool) -> f64 {
    let mut rng = Rng::stream(1, "controller");
    for ms in 0..acks {
        let (now, rtt) = (Time::ZERO + Duration::from_millis(from_ms + ms), Duration::from_millis(rtt_ms));
        let acked = [Sent { at: Time::from_nanos(now.as_nanos() - rtt.as_nanos()), size: PACKET, ..Sent::default() }];
        let report = feedback(&acked, rtt);
        // A sender knows the least round trip of its path, which was seen before.
        let rtt = RoundTrip { min: report.rtt.min.min(PATH.rtt), ..report.rtt };
        controller.on_feedback(now, &Feedback { app_limited, rtt, ..report }, &mut rng);
    }
    controller.limits().window.get() as f64 / PACKET.get() as f64
}

#[test]
fn plus_plus_returns_to_half_of_the_old_window_after_a_loss_in_a_slowdown() {
    let slows_down = |pair: &[f64]| pair[0] > 10.0 && pair[1] <= 2.0;
    let run = drive(&mut *plus_plus(""), PATH, 60.0, 1);
    let began = run.window.windows(2).position(slows_down).unwrap();
    let (before, now) = (run.window[began], run.at[began + 1].as_secs_f64() + 0.01);
    let mut controller = plus_plus("");
    drive(&mut *controller, PATH, now, 1);
    assert!(controller.limits().window <= PACKET * 2, "it holds two packets");
    let now_ms = (now * 1e3) as u64 + 10;
    ack_with_losses(&mut *controller, now_ms, 101, 1);
    let window = after_acks(&mut *controller, now_ms + 500, 101, 400, false);
    assert!((window / before - 0.5).abs() < 0.1, "back at {window} of {before} packets");
}

#[test]
fn plus_plus_gives_way_while_the_application_limits_it() {
    let mut controller = plus_plus("slowdowns = false");
    drive(&mut *controller, PATH, 30.0, 1);
    let before = after_acks(&mut *controller, 31_000, 101, 4, true);
    let after = after_acks(&mut *controller, 32_000, 101 + 120, 100, true);
    // -W / 2 a round trip at twice the target, from the fourth sample on.
    assert!((after - (before - 97.0 / 2.0)).abs() < 0.1, "{after} of {before} packets");
}

#[test]
fn plus_plus_comes_back_from_persistent_congestion_by_slow_start() {
    let mut controller = plus_plus("slowdowns = false");
    drive(&mut *controller, PATH, 30.0, 1);
    let before = controller.limits().window.get() as f64 / PACKET.get() as f64;
    let sent = Sent { at: Time::from_secs_f64(31.0), size: PACKET, ..Sent::default() };
    let lost = [Lost { sent, cause: LossCause::PacketThreshold }];
    let report = Feedback { lost: &lost, persistent_congestion: true, ..silence() };
    controller.on_feedback(Time::from_secs_f64(32.0), &report, &mut Rng::stream(1, "controller"));
    assert_eq!(controller.limits().window, PACKET * 2);
    let window = after_acks(&mut *controller, 33_000, 101, 400, false);
    assert!((window / before - 0.5).abs() < 0.1, "back at {window} of {before} packets");
}

#[test]
fn plus_plus_grows_as_its_gain_says() {
    // ceil(2 * 60 / 101) = 2: 1.5 times the window each round trip, from two packets.
    let run = drive(&mut *plus_plus(""), PATH, 0.75, 1);
    let last = run.window.last().unwrap();
    assert!((20.0..=36.0).contains(last), "{last} packets after 7 round trips");
    let steady = drive(&mut *plus_plus("slowdowns = false"), Path { buffer: 5000, ..PATH }, 60.0, 1);
    let steps = steady.window.windows(2).map(|pair| pair[1] - pair[0]);
    let most = steady.at.iter().zip(steps).filter(|(at, _)| at.as_secs_f64() > 10.0).map(|(_, step)| step);
    let most = most.fold(0.0, f64::max);
    assert!(most <= 0.5 / 100.0 + 1e-3, "an ACK added {most} packets");
}

#[test]
fn plus_plus_keeps_its_queue_at_60_ms_between_slowdowns() {
    let run = drive(&mut *plus_plus("slowdowns = false"), PATH, 120.0, 1);
    for rtt in run.late(60.0, &run.rtt_ms) {
        assert!((rtt - 101.0 - 60.0).abs() < 5.0, "a round trip of {rtt} ms");
    }
}

#[test]
fn plus_plus_slows_down_for_two_round_trips_and_for_a_tenth_of_the_time_at_most() {
    let run = drive(&mut *plus_plus(""), PATH, 300.0, 1);
    let mut began = Vec::new();
    for (i, pair) in run.window.windows(2).enumerate() {
        if pair[0] > 10.0 && pair[1] <= 2.0 {
            began.push(run.at[i + 1].as_secs_f64());
        }
    }
    assert!(began.len() >= 5, "slowdowns at {began:?}");
    for start in &began {
        let held = run.at.iter().zip(&run.window).filter(|(at, window)| {
            let since = at.as_secs_f64() - start;
            (0.0..1.0).contains(&since) && **window <= 2.0
        });
        let last = held.map(|(at, _)| at.as_secs_f64()).fold(0.0, f64::max);
        assert!((0.2..0.6).contains(&(last - start)), "held for {} s", last - start);
    }
    // The base delay is seen in each, however long the queue stood before.
    let lowest = run.late(200.0, &run.rtt_ms).into_iter().fold(f64::MAX, f64::min);
    assert!((101.0 - lowest).abs() < 0.01, "{lowest} ms");
    assert!(run.throughput() > 850.0, "{} packets a second", run.throughput());
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]

    #[test]
    fn any_path_leaves_a_window(
        bytes_per_s in 2_000u64..5_000_000, rtt_ms in 1u64..300, buffer in 0usize..200, loss in 0.0f64..0.4, seed: u64,
    ) {
        let rate = Rate::from_bytes_per_sec(bytes_per_s);
        let path = Path { rate, rtt: Duration::from_millis(rtt_ms), buffer, loss };
        for mut controller in [ledbat(""), plus_plus("")] {
            let run = drive(&mut *controller, path, 5.0, seed);
            proptest::prop_assert!(run.window.iter().all(|window| *window >= 1.0 && window.is_finite()));
        }
    }
}
