//! BBR version 3, driven packet by packet.

use super::*;
use crate::flow::bbr;
use crate::flow::bbr::tests::PATH;
use crate::flow::setup::made;
use crate::flow::testing::{Drive, PACKET, Path, drive_behind, drive_new, median};
use crate::rng::Rng;

fn bbr3(path: Path, seconds: f64, seed: u64) -> Drive {
    drive_new(build, path, seconds, seed)
}

#[test]
fn the_rate_converges_to_the_bottlenecks_and_the_queue_is_short_between_probes() {
    let run = bbr3(PATH, 30.0, 1);
    assert!((median(run.late(5.0, &run.rate)) / 1000.0 - 1.0).abs() < 0.03);
    let usual = median(run.late(5.0, &run.rtt_ms));
    assert!((101.0..106.0).contains(&usual), "{usual} ms");
    assert!(run.throughput() > 930.0, "{}", run.throughput());
    assert_eq!(run.lost, 0);
}

#[test]
fn probes_come_two_to_three_seconds_or_as_many_round_trips_as_reno_needs_after_the_last_one() {
    // 2 to 3 s for a product of 100 packets; for one of 6 packets 6 round trips. REFILL
    // and UP take five more or so.
    for (packets_per_s, shortest, longest) in [(1000.0, 2.2, 4.0), (50.0, 1.0, 2.3)] {
        let path = Path { rate: Rate::from_bytes_per_sec_f64(packets_per_s * 1e3), ..PATH };
        // A round trip that falls by 0.2 ms a second is always fresh: no ProbeRTT.
        let falls = |now: Time| Duration::from_nanos(20_000_000 - now.as_nanos().min(60_000_000_000) / 5_000);
        let mut controller = made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        let run = drive_behind(&mut *controller, path, falls, 60.0, 1);
        let mut began = Vec::new();
        for (i, pair) in run.rate.windows(2).enumerate() {
            if pair[0] < 1.1 * packets_per_s && pair[1] > 1.15 * packets_per_s && run.at[i].as_secs_f64() > 5.0 {
                began.push(run.at[i].as_secs_f64());
            }
        }
        let usual = median(began.windows(2).map(|pair| pair[1] - pair[0]).collect());
        assert!((shortest..longest).contains(&usual), "{usual} s at {packets_per_s} packets a second");
    }
}

#[test]
fn the_round_trip_is_probed_each_five_seconds_with_half_of_the_product_while_it_is_not_seen() {
    let others = |now: Time| Duration::from_millis(if now.as_secs_f64() > 3.0 { 20 } else { 0 });
    let mut controller = made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
    let run = drive_behind(&mut *controller, PATH, others, 14.0, 1);
    let half = run.at.iter().zip(&run.window).filter(|(at, _)| at.as_secs_f64() > 3.0);
    let half: Vec<f64> = half.filter(|(_, window)| **window < 60.0).map(|(at, _)| at.as_secs_f64()).collect();
    assert!((3.0..8.5).contains(&half[0]), "the first at {} s", half[0]);
    let gaps: Vec<f64> = half.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 1.0).collect();
    assert!(gaps.iter().all(|gap| (4.5..5.5).contains(gap)), "{gaps:?}");
    let least = run.late(3.0, &run.window).into_iter().fold(f64::MAX, f64::min);
    assert!((45.0..=60.0).contains(&least), "{least} packets");
}

#[test]
fn in_a_short_buffer_losses_stay_near_the_threshold_where_version_1_loses_more() {
    let path = Path { buffer: 10, ..PATH };
    let share = |run: &Drive| run.lost as f64 / (run.lost + run.delivered) as f64;
    let (one, three) = (drive_new(bbr::build, path, 120.0, 1), bbr3(path, 120.0, 1));
    assert!(share(&three) < 0.02, "version 3 lost {}", share(&three));
    assert!(share(&one) > 2.0 * share(&three), "{} against {}", share(&one), share(&three));
    assert!(three.throughput() > 850.0, "{}", three.throughput());
}

#[test]
fn a_probe_that_loses_too_much_sets_the_bound_where_it_did() {
    let setup = Setup::new(PACKET, Time::ZERO);
    let mut bbr = new(&setup, Config::default());
    bbr.state = State::Up;
    bbr.filled = true;
    bbr.bounds.of_probe = true;
    let mut rng = Rng::stream(1, "controller");
    // 2 % of 100 packets are 2: the third loss is too much.
    for lost in 1..=3u64 {
        let packet = Sent { size: PACKET, in_flight: PACKET * 100, ..Sent::default() };
        bbr.lost = PACKET * lost;
        assert_eq!(bbr.bounds.inflight_long, Octets::INFINITY);
        bbr.on_lost(Time::from_secs_f64(1.0), &packet, PACKET * 500, &mut rng);
    }
    // 99 packets before it, 2 of them lost: (0.02 * 99 - 2) / 0.98 further.
    let expected = 1000.0 * (99.0 + (0.02 * 99.0 - 2.0) / 0.98);
    assert!((bbr.bounds.inflight_long.0 - expected).abs() < 1.0, "{:?}", bbr.bounds.inflight_long);
    assert_eq!(bbr.state, State::Down);
    // One probe is answered once.
    bbr.lost = PACKET * 50;
    bbr.on_lost(
        Time::from_secs_f64(1.1),
        &Sent { size: PACKET, in_flight: PACKET * 60, ..Sent::default() },
        PACKET * 500,
        &mut rng,
    );
    assert!((bbr.bounds.inflight_long.0 - expected).abs() < 1.0);
}

#[test]
fn losses_between_probes_pull_the_short_term_bounds_to_what_is_delivered() {
    let mut bbr = new(&Setup::new(PACKET, Time::ZERO), Config::default());
    bbr.state = State::Cruise;
    bbr.max_bandwidth = OctetRate(1000.0);
    bbr.window = Octets(200.0);
    let lose = |latest: f64, bbr: &mut Bbr3| {
        bbr.on_lost(Time::ZERO, &Sent::default(), Bytes::ZERO, &mut Rng::stream(1, "controller"));
        let ack = Ack {
            acked: Octets::ZERO,
            rate: OctetRate(latest),
            delivered: Octets(latest / 10.0),
            in_flight_then: Octets::ZERO,
            lost: Octets::ZERO,
            app_limited: false,
            round_ended: true,
        };
        bbr.bounds.begin_ack(&ack, Bytes::ZERO, Bytes::ZERO);
        bbr.adapt_short_term();
        bbr.bounds.forget_round();
        (bbr.bounds.bandwidth_short.0, bbr.bounds.inflight_short.0)
    };
    assert_eq!(lose(900.0, &mut bbr), (900.0, 140.0));
    // No more than to beta of the bound at once.
    let (bandwidth, inflight) = lose(100.0, &mut bbr);
    assert!((bandwidth - 630.0).abs() < 1e-9 && (inflight - 98.0).abs() < 1e-9, "{bandwidth} {inflight}");
}

#[test]
fn losses_end_startup_before_a_plateau_does() {
    let path = Path { rate: Rate::from_bytes_per_sec(10_000_000), buffer: 50, ..PATH };
    let run = bbr3(path, 3.0, 1);
    let share = run.lost as f64 / (run.lost + run.delivered) as f64;
    assert!(run.lost > 6 && share < 0.1, "{share} lost");
}

#[test]
fn half_a_percent_of_random_losses_leaves_most_of_the_throughput() {
    let run = bbr3(Path { loss: 0.005, ..PATH }, 60.0, 1);
    assert!(run.throughput() > 850.0, "{}", run.throughput());
}
