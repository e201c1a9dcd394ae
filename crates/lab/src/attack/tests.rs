use super::*;
use anabranch_scenario::onion::{Cover, Exit, Mode};

fn scenario(change: impl Fn(&mut OnionScenario)) -> OnionScenario {
    let mut scenario = OnionScenario::standard();
    scenario.overlay.relays = 400;
    change(&mut scenario);
    scenario
}

fn found(scenario: &OnionScenario, shares: &[f64]) -> Vec<Found> {
    run(scenario, shares, &Progress::default()).expect("nobody interrupts it")
}

#[test]
fn the_letter_is_linked_as_the_formula_says() {
    let letter = scenario(|s| s.overlay.guards = 0);
    for found in found(&letter, &[0.05, 0.1, 0.2]) {
        let (seen, expected) = (found.correlation.unwrap(), found.correlation_expected.unwrap());
        assert!((seen - expected).abs() < 0.03, "{}: {seen}, not {expected}", found.share);
        assert!(found.linked_by_counts > 0.9 && found.false_positives <= 1e-3, "{found:?}");
        assert_eq!(found.exposed, 0.0);
        assert!((found.attracted - found.share).abs() < 0.005, "{}", found.attracted);
        assert!(found.entropy_bits < 2.0 && found.auc > 0.99 && found.rank < 2.0, "{found:?}");
    }
}

#[test]
fn guards_leave_linked_only_whom_they_expose() {
    for guards in [1, 3] {
        let guarded = scenario(|s| s.overlay.guards = guards);
        for found in found(&guarded, &[0.05, 0.1]) {
            let distance = (found.exposed - found.exposed_expected).abs();
            assert!(distance < 3.0 * found.exposed_sigma, "{guards} guards: {found:?}");
            assert!(found.linked <= found.exposed + 0.01, "{guards} guards: {found:?}");
            assert!(found.linked > 0.7 * found.exposed, "{guards} guards: {found:?}");
            // The others are hidden among all.
            assert!(found.entropy_bits > 5.0 * (1.0 - found.exposed), "{found:?}");
        }
    }
}

/// Who knows a sender's guard still has to see the other end, or to have all relays of a packet.
#[test]
fn guards_at_both_ends_multiply() {
    let mut both = scenario(|s| (s.overlay.guards, s.overlay.far_hops, s.overlay.far_guards) = (2, 3, 2));
    both.repetitions = 3;
    let found = &found(&both, &[0.1])[0];
    // (1 − 0.9²)² of 1 200 flows, within 3 σ, and a few of which all six relays were bad.
    let expected = 0.19 * 0.19;
    let sigma = (expected * (1.0 - expected) / 1_200.0f64).sqrt();
    assert!((found.linked_by_counts - expected).abs() < 3.0 * sigma, "{found:?}");
}

#[test]
fn a_circuit_is_linked_where_both_of_its_ends_are_bad() {
    let mut circuit = scenario(|s| (s.overlay.mode, s.overlay.guards) = (Mode::Circuit, 1));
    circuit.repetitions = 3;
    let seen = found(&circuit, &[0.2]);
    // p² of 1 200 flows: within 3 σ.
    assert!((seen[0].linked - 0.04).abs() < 3.0 * (0.04f64 * 0.96 / 1_200.0).sqrt(), "{:?}", seen[0]);
    let mut legs = scenario(|s| (s.overlay.mode, s.overlay.guards) = (Mode::TwoLegs, 2));
    legs.repetitions = 3;
    let twice = found(&legs, &[0.2]);
    assert!(twice[0].linked > seen[0].linked, "{:?}", twice[0]);
}

/// Who draws the last relay once has to be unlucky at both ends, and then is linked: (1 − (1 − p)²) p.
#[test]
fn an_exit_that_stays_for_a_session_is_drawn_once() {
    let mut session = scenario(|s| (s.overlay.guards, s.overlay.exit) = (2, Exit::PerSession));
    session.repetitions = 3;
    let seen = &found(&session, &[0.2])[0];
    let expected = (1.0 - 0.8f64 * 0.8) * 0.2;
    // Of 1 200 flows, within 3 σ, and the exposed are as many as without.
    assert!((seen.linked - expected).abs() < 3.0 * (expected * (1.0 - expected) / 1_200.0).sqrt(), "{seen:?}");
    assert!((seen.exposed - seen.exposed_expected).abs() < 3.0 * seen.exposed_sigma, "{seen:?}");
}

#[test]
fn nothing_follows_from_a_constant_rate() {
    let mut covered = scenario(|s| s.overlay.cover = Cover::ConstantRate);
    covered.overlay.guards = 2;
    covered.repetitions = 2;
    let found = &found(&covered, &[0.2])[0];
    // By counts; what is followed by name all the way is found whatever the rate.
    assert!(found.linked_by_counts <= 0.006, "{found:?}");
}

#[test]
fn probing_distinguishes_circuits_and_small_overlays() {
    let probed = |change: fn(&mut OnionScenario)| {
        let mut scenario = scenario(change);
        (scenario.adversary.probes, scenario.senders.count) = (100, 2);
        found(&scenario, &[0.1])[0].probed.unwrap()
    };
    let circuit = probed(|s| (s.overlay.mode, s.overlay.guards) = (Mode::Circuit, 1));
    assert!(circuit.auc > 0.95 && circuit.auc_first > 0.95, "{circuit:?}");
    let small = probed(|s| (s.overlay.relays, s.overlay.guards) = (20, 0));
    let large = probed(|s| (s.overlay.relays, s.overlay.guards) = (1_000, 0));
    assert!(small.auc > 0.95 && large.auc < 0.65, "{small:?} {large:?}");
    let guarded = probed(|s| (s.overlay.relays, s.overlay.guards) = (1_000, 2));
    assert!(guarded.auc_first > 0.95, "a guard carries half of all: {guarded:?}");
}

#[test]
fn relays_that_lose_nothing_attract_no_more_than_twice_their_share() {
    let mut greedy = scenario(|s| {
        (s.overlay.guards, s.overlay.relays) = (0, 60);
        s.overlay.honest_loss = 0.2;
        s.overlay.placement = "tomography".to_owned();
        s.senders.count = 4;
    });
    greedy.senders.packets_per_s = 400.0;
    let found = &found(&greedy, &[0.1])[0];
    // Of the hops that packets made: those of lost packets end early.
    assert!(found.attracted > 0.0 && found.attracted <= 2.0 * found.share, "{found:?}");
}

#[test]
fn equal_seeds_give_equal_bytes_on_any_number_of_threads() {
    let mut small = scenario(|s| (s.overlay.relays, s.senders.count) = (60, 12));
    small.adversary.probes = 4;
    small.repetitions = 2;
    let on = |threads: usize, scenario: &OnionScenario| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        serde_json::to_string(&pool.install(|| found(scenario, &[0.1, 0.2]))).unwrap()
    };
    let one = on(1, &small);
    assert_eq!(one, on(3, &small));
    small.seed = 2;
    assert_ne!(one, on(1, &small));
}

#[test]
fn what_is_interrupted_is_none() {
    let progress = Progress::default();
    progress.interrupted.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(run(&scenario(|_| {}), &[0.1], &progress).is_none());
}
