use proptest::prelude::*;

use super::*;
use crate::flow::setup::made;
use crate::flow::testing::{Drive, PACKET, Path, drive, drive_new, silence};
use crate::rng::Rng;
use crate::units::Rate;

/// 30 packets a round trip of 30 ms fill it; the buffer holds twice that.
const PATH: Path =
    Path { rate: Rate::from_bytes_per_sec(1_000_000), rtt: Duration::from_millis(30), buffer: 60, loss: 0.0 };

#[test]
fn the_utility_is_the_papers() {
    let config = Config::default();
    // Hand-computed: no loss 10 / (1 + e^-5); 5 %: 9.5 / 2 - 0.5; 10 %: 9 / (1 + e^5) - 1.
    for (acked, loss, expected) in [(10.0, 0.0, 9.933_071), (9.5, 0.05, 4.25), (9.0, 0.10, -0.939_764)] {
        let got = utility(&config, MbitRate(10.0), MbitRate(acked), loss, 0.0);
        assert!((got - expected).abs() < 1e-6, "{got} for a loss of {loss}");
    }
}

#[test]
fn the_utility_of_allegro_quic_halves_without_and_falls_with_a_growing_round_trip() {
    let config: Config = crate::registry::parameters(&QUIC.parse().unwrap()).unwrap();
    // 10 / (1 + e^-50) / 2; 10 / (1 + e^(200 * 0.01)) with 1 % growth; 10 / (1 + e^-2).
    for (latency, expected) in [(0.0, 5.0), (0.01, 1.192_029), (-0.01, 8.807_971)] {
        let got = utility(&config, MbitRate(10.0), MbitRate(10.0), 0.0, latency);
        assert!((got - expected).abs() < 1e-6, "{got} for {latency}");
    }
}

#[test]
fn alone_it_converges_to_the_bottleneck_s_rate() {
    let run = drive_new(build, PATH, 60.0, 1);
    let late = &run.rate[run.rate.len() / 2..];
    let mean = late.iter().sum::<f64>() / late.len() as f64;
    assert!((900.0..1100.0).contains(&mean), "{mean} packets/s of 1000");
    assert!(run.throughput() > 850.0, "{} packets/s", run.throughput());
}

#[test]
fn random_loss_below_the_tolerance_costs_no_more_than_itself() {
    let run = drive_new(build, Path { loss: 0.02, ..PATH }, 60.0, 1);
    assert!(run.throughput() > 800.0, "{} packets/s of 980", run.throughput());
}

#[test]
fn loss_beyond_the_tolerance_makes_it_give_way() {
    let run = drive_new(build, Path { loss: 0.12, ..PATH }, 60.0, 1);
    assert!(run.throughput() < 300.0, "{} packets/s", run.throughput());
}

#[test]
fn allegro_quic_keeps_the_queue_shorter_than_allegro_does() {
    let mean_rtt = |run: &Drive| {
        let known: Vec<f64> = run.rtt_ms.iter().copied().filter(|ms| ms.is_finite()).collect();
        known.iter().sum::<f64>() / known.len() as f64
    };
    let (paper, quic) = (drive_new(build, PATH, 60.0, 1), drive_new(build_quic, PATH, 60.0, 1));
    assert!(mean_rtt(&quic) + 5.0 < mean_rtt(&paper), "{} and {} ms", mean_rtt(&quic), mean_rtt(&paper));
}

/// A setup that decides around 1 Mbit/s.
fn deciding() -> Allegro {
    let setup = Setup::new(PACKET, Time::ZERO);
    let mut allegro = of(&toml::Table::new()).unwrap()(&setup);
    allegro.trial.srtt = Some(Duration::from_millis(100));
    allegro.decide(Time::ZERO, MbitRate(1.0));
    allegro
}

/// Answers four probes, of which those that send more have this utility, by pairs.
fn answer(allegro: &mut Allegro, more_utility: [f64; 2], less_utility: [f64; 2], rng: &mut Rng) {
    for place in 0..PROBES {
        let (kind, rate) = allegro.next(rng);
        assert_eq!(kind, Kind::Probe(place));
        let Phase::Deciding { more, utilities, .. } = &mut allegro.phase else { panic!("not deciding") };
        let sign = if more[place] { 1.0 } else { -1.0 };
        assert!((rate.0 - (1.0 + sign * allegro.epsilon)).abs() < 1e-12);
        utilities[place] = Some(if more[place] { more_utility[place / 2] } else { less_utility[place / 2] });
    }
    assert_eq!(allegro.next(rng).0, Kind::Hold);
    allegro.conclude(Time::ZERO);
}

#[test]
fn both_pairs_must_agree_and_epsilon_grows_until_they_do() {
    let mut rng = Rng::stream(1, "test");
    let mut allegro = deciding();
    for expected in [0.02, 0.03, 0.04, 0.05, 0.05] {
        answer(&mut allegro, [2.0, 1.0], [1.0, 2.0], &mut rng);
        assert!((allegro.epsilon - expected).abs() < 1e-12, "{}", allegro.epsilon);
        assert!((allegro.base.0 - 1.0).abs() < 1e-12);
    }
    answer(&mut allegro, [1.0, 1.0], [2.0, 2.0], &mut rng);
    // 5 % less, and the first adjusting step of 1 % from there.
    assert!((allegro.base.0 - 0.95 * 0.99).abs() < 1e-12, "{:?}", allegro.base);
    assert!((allegro.epsilon - 0.01).abs() < 1e-12);
}

#[test]
fn each_pair_has_one_probe_of_more_and_one_of_less_in_random_order() {
    let mut rng = Rng::stream(1, "test");
    let mut first_more = 0;
    for _ in 0..1000 {
        let mut allegro = deciding();
        for _ in 0..PROBES {
            allegro.next(&mut rng);
        }
        let Phase::Deciding { more, .. } = allegro.phase else { panic!("not deciding") };
        assert!(more[0] != more[1] && more[2] != more[3]);
        first_more += u32::from(more[0]) + u32::from(more[2]);
    }
    assert!((900..1100).contains(&first_more), "{first_more} of 2000 pairs began with more");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn on_any_path_it_goes_on_and_numbers_are_numbers(
        rate in 20_000u64..5_000_000, rtt_ms in 1u64..400, buffer in 1usize..300, loss in 0.0..0.4, seed in 0u64..1000,
    ) {
        let setup = Setup::new(PACKET, Time::ZERO);
        let path = Path { rate: Rate::from_bytes_per_sec(rate), rtt: Duration::from_millis(rtt_ms), buffer, loss };
        for make in [build, build_quic] {
            let mut allegro = made(make, &setup, &toml::Table::new()).unwrap();
            let run = drive(&mut *allegro, path, 5.0, seed);
            prop_assert!(run.rate.iter().all(|rate| *rate > 0.0));
            prop_assert!(run.window.iter().all(|window| *window >= 10.0));
            allegro.trace(&mut |name, value| assert!(value.is_finite(), "{name} is {value}"));
        }
    }
}

#[test]
fn persistent_congestion_begins_anew_at_the_lowest_rate() {
    let mut allegro = of(&toml::Table::new()).unwrap()(&Setup::new(PACKET, Time::ZERO));
    let run = drive(&mut allegro, PATH, 20.0, 1);
    assert!(run.rate.last().unwrap() > &100.0, "the path was in use");
    allegro.epsilon = allegro.config.epsilon_max;
    let silence = Feedback { persistent_congestion: true, ..silence() };
    allegro.on_feedback(Time::from_secs_f64(30.0), &silence, &mut Rng::stream(1, "controller"));
    assert_eq!(allegro.epsilon, allegro.config.epsilon_min);
    let (rate, lowest) = (allegro.limits().rate.unwrap(), allegro.trial.minimum());
    assert_eq!(rate, lowest.whole());
}
