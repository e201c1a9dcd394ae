//! BBR, driven packet by packet; a property of version 3 is tested here beside it.

use proptest::prelude::*;

use super::*;
use crate::delivery_rate::RateSample;
use crate::flow::setup::made;
use crate::flow::testing::{Drive, PACKET, Path, drive, drive_behind, drive_new, feedback, median, silence};
use crate::rng::Rng;

/// 100 packets a round trip fill it; each packet in the queue adds 1 ms.
pub const PATH: Path =
    Path { rate: Rate::from_bytes_per_sec(1_000_000), rtt: Duration::from_millis(100), buffer: 1000, loss: 0.0 };

fn bbr(path: Path, seconds: f64, seed: u64) -> Drive {
    drive_new(build, path, seconds, seed)
}

#[test]
fn the_rate_converges_to_the_bottlenecks_and_the_queue_is_short_between_probes() {
    let run = bbr(PATH, 30.0, 1);
    assert!((median(run.late(5.0, &run.rate)) / 1000.0 - 1.0).abs() < 0.02);
    // In flight are the product and up to three quanta of two packets.
    let usual = median(run.late(5.0, &run.rtt_ms));
    assert!((101.0..109.0).contains(&usual), "{usual} ms");
    // A probe ends when a quarter more and three quanta are known to be in flight.
    let most = run.late(5.0, &run.rtt_ms).into_iter().fold(0.0, f64::max);
    assert!(most < 101.0 + 25.0 + 6.0 + 4.0, "{most} ms");
    assert!(run.throughput() > 960.0, "{}", run.throughput());
    assert_eq!(run.lost, 0);
}

#[test]
fn startup_doubles_the_rate_each_round_trip_and_drain_empties_the_queue() {
    let run = bbr(PATH, 5.0, 1);
    let at = |seconds: f64| run.at.iter().position(|at| at.as_secs_f64() > seconds).unwrap();
    let growth = run.rate[at(0.35)] / run.rate[at(0.25)];
    assert!((1.7..=2.3).contains(&growth), "{growth} times in a round trip");
    let highest = run.late(0.0, &run.rtt_ms).into_iter().fold(0.0, f64::max);
    assert!(highest > 200.0, "Startup's queue was {highest} ms");
    assert!(run.late(2.0, &run.rtt_ms).into_iter().fold(0.0, f64::max) < 135.0);
}

#[test]
fn probes_send_a_quarter_more_then_a_quarter_less_one_round_trip_in_eight() {
    let run = bbr(PATH, 30.0, 1);
    let rates = run.late(5.0, &run.rate);
    let share =
        |from: f64, to: f64| rates.iter().filter(|rate| (from..to).contains(*rate)).count() as f64 / rates.len() as f64;
    assert!((0.08..0.2).contains(&share(1200.0, 1300.0)), "{}", share(1200.0, 1300.0));
    assert!((0.08..0.2).contains(&share(700.0, 800.0)), "{}", share(700.0, 800.0));
    assert!(share(960.0, 1040.0) > 0.6, "{}", share(960.0, 1040.0));
}

#[test]
fn the_phase_in_which_probing_begins_is_drawn_and_never_the_one_that_drains() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..64 {
        let mut rng = Rng::stream(seed, "controller");
        let mut bbr = new(&Setup::new(PACKET, Time::ZERO), Config::default());
        bbr.enter_probe_bw(Time::ZERO, &mut rng);
        seen.insert(bbr.phase);
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [0, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn the_round_trip_is_probed_with_four_packets_each_ten_seconds_while_it_is_not_seen() {
    // Others queue 20 ms from 3 s on: the least round trip is not seen again.
    let others = |now: Time| Duration::from_millis(if now.as_secs_f64() > 3.0 { 20 } else { 0 });
    let mut controller = made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
    let run = drive_behind(&mut *controller, PATH, others, 60.0, 1);
    let mut began = Vec::new();
    for (i, pair) in run.window.windows(2).enumerate() {
        if pair[0] > 10.0 && pair[1] <= 4.0 {
            began.push(run.at[i].as_secs_f64());
        }
    }
    assert!(!began.is_empty() && began[0] < 13.5, "probes at {began:?}");
    // 200 ms and a round trip with four packets, and the way there and back.
    let small = run.at.iter().zip(&run.window).filter(|(_, window)| **window <= 4.0).map(|(at, _)| at.as_secs_f64());
    let first: Vec<f64> = small.filter(|at| (0.0..2.0).contains(&(at - began[0]))).collect();
    let length = first[first.len() - 1] - first[0];
    assert!((0.2..0.7).contains(&length), "a probe of {length} s");
}

#[test]
fn random_losses_of_a_twentieth_leave_most_of_the_throughput() {
    let run = bbr(Path { loss: 0.05, ..PATH }, 60.0, 1);
    assert!(run.throughput() > 800.0, "{}", run.throughput());
}

#[test]
fn a_flow_that_was_idle_paces_at_the_bandwidth_that_it_knew() {
    let setup = Setup::new(PACKET, Time::ZERO);
    let mut bbr = new(&setup, Config::default());
    let _ = drive(&mut bbr, PATH, 10.0, 1);
    bbr.enter_phase(Time::ZERO, 0);
    let packet = Sent { size: PACKET, in_flight: PACKET, app_limited: true, ..Sent::default() };
    bbr.on_sent(Time::from_secs_f64(60.0), PeerId(0), &packet, &mut Rng::stream(1, "controller"));
    let rate = bbr.limits().rate.unwrap().bytes_per_sec();
    assert!((rate / 1e6 - 1.0).abs() < 0.02, "{rate} bytes a second");
}

#[test]
fn rounds_of_a_probe_with_four_packets_say_nothing_about_a_full_pipe() {
    // A probe in Startup: the draft marks its packets as limited by the application (4.3.5).
    let mut bbr = new(&Setup::new(PACKET, Time::ZERO), Config::default());
    let (rtt, mut rng) = (Duration::from_millis(100), Rng::stream(1, "controller"));
    let (mut now, mut delivered) = (Time::ZERO, Bytes::ZERO);
    let mut round = |bbr: &mut Bbr| {
        let packet =
            Sent { at: now, size: PACKET, delivered, delivered_at: now, first_sent_at: now, ..Sent::default() };
        now += rtt;
        let sample = RateSample {
            delivered: PACKET,
            interval: rtt,
            lost: Bytes::ZERO,
            prior_delivered: delivered,
            app_limited: false,
        };
        delivered += PACKET;
        let acked = [packet];
        bbr.on_feedback(now, &Feedback { delivered, rate: Some(sample), ..feedback(&acked, rtt) }, &mut rng);
    };
    round(&mut bbr);
    bbr.state = State::ProbeRtt;
    bbr.lull.extend(&silence(), true);
    let rounds = (0..20).take_while(|_| {
        round(&mut bbr);
        bbr.state == State::ProbeRtt
    });
    assert!((2..20).contains(&rounds.count()), "200 ms are more than two round trips");
    assert_eq!((bbr.state, bbr.filled), (State::Startup, false), "rounds of a probe were taken for a plateau");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_path_leaves_both_versions_a_window_and_a_rate(
        bytes_per_s in 2_000u64..5_000_000, rtt_ms in 1u64..300, buffer in 0usize..200, loss in 0.0f64..0.4, seed: u64,
    ) {
        let path = Path { rate: Rate::from_bytes_per_sec(bytes_per_s), rtt: Duration::from_millis(rtt_ms), buffer, loss };
        for build in [build, crate::flow::bbr3::build] {
            let run = drive_new(build, path, 5.0, seed);
            prop_assert!(run.window.iter().all(|window| *window >= 1.0));
            prop_assert!(run.rate.iter().all(|rate| *rate > 0.0 && rate.is_finite()));
        }
    }
}
