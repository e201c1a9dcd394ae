//! Rules that every run of an overlay holds.

use std::sync::atomic::Ordering;

use anabranch_control::path::registry::{self, Pacing};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::overlay::summary::Summary;
use anabranch_lab::overlay::{self, Measured, OverlayRunError, Second, Sharding};
use anabranch_lab::parallel::{Progress, run_all};
use anabranch_scenario::overlay::{LimitChange, LimitKind, Misbehaviour, Scenario, Sender, default_offered};
use anabranch_sim::delay::{DelayModel, JitterTail};
use proptest::prelude::*;

fn scenario(controller: &str, seconds: u64) -> Scenario {
    let mut scenario = Scenario { seconds, ..Scenario::standard() };
    scenario.overlay.controller = registry::find(controller).unwrap();
    scenario.overlay.offered = default_offered(scenario.overlay.controller);
    scenario
}

fn run(scenario: &Scenario) -> Measured {
    let measured = overlay::run(scenario, &()).unwrap();
    assert_eq!(measured.controller, scenario.overlay.controller.name);
    measured
}

fn total(measured: &Measured) -> Second {
    measured.seconds.iter().fold(Second::default(), |mut sum, second| {
        sum.add(second);
        sum
    })
}

fn received(controller: &str, seconds: u64) -> f64 {
    Summary::of(&run(&scenario(controller, seconds))).steady.received_bytes_per_s.unwrap()
}

#[test]
fn equal_seeds_give_equal_runs_on_any_number_of_threads_and_others_differ() {
    let scenarios: Vec<Scenario> = registry::CONTROLLERS
        .iter()
        .flat_map(|entry| (1..=3).map(|seed| Scenario { seed, ..scenario(entry.name, 8) }))
        .collect();
    let all = |threads| -> Vec<Vec<Second>> {
        let finish = |_: usize, measured: Measured| measured.seconds;
        let runs = run_all(&scenarios, Some(threads), &Progress::default(), finish).unwrap();
        runs.into_iter().map(Option::unwrap).collect()
    };
    let one = all(1);
    assert_eq!(one, all(2));
    assert_eq!(one, all(5));
    assert_ne!(one[0], one[1], "another seed is another run");
}

/// All that a run measured.
fn sharded(scenario: &Scenario, shards: usize, threads: usize) -> String {
    format!("{:?}", overlay::run_sharded(scenario, Sharding { shards, threads }, &()).unwrap())
}

#[test]
fn a_run_is_the_same_in_any_number_of_shards_and_on_any_number_of_threads() {
    for controller in ["q-learning", "explicit-rate", "timeouts", "tomography", "aimd", "flow:cubic"] {
        let mut scenario = scenario(controller, 8);
        scenario.overlay.peers = 50;
        scenario.overlay.known_peers = 12;
        scenario.overlay.watch = Some(33);
        scenario.overlay.loss = 0.01;
        let change = |at_ms, limit| LimitChange {
            at: Time::ZERO + Duration::from_millis(at_ms),
            peers: (10..40).collect(),
            limit: Rate::from_bytes_per_sec(limit),
        };
        scenario.overlay.limit_changes = vec![change(3_000, 200_000), change(6_123, 500_000)];
        assert_eq!(overlay::why_unsharded(&scenario), None);
        let whole = sharded(&scenario, 1, 1);
        for (shards, threads) in [(2, 1), (2, 2), (3, 2), (8, 3), (64, 2)] {
            assert!(whole == sharded(&scenario, shards, threads), "{controller}: {shards} shards, {threads} threads");
        }
    }
}

#[test]
fn what_can_not_be_sharded_says_so_and_runs_in_one_shard() {
    let perfect = scenario("perfect", 12);
    let mut jittered = scenario("q-learning", 12);
    jittered.overlay.jitter = 0.2;
    for (scenario, reason) in [(perfect, "one manager"), (jittered, "no least value")] {
        assert!(overlay::why_unsharded(&scenario).is_some_and(|why| why.contains(reason)), "{reason}");
        assert!(sharded(&scenario, 1, 1) == sharded(&scenario, 3, 2));
    }
}

#[test]
fn a_sharded_run_that_is_interrupted_has_the_seconds_that_were_over() {
    let scenario = scenario("q-learning", 12);
    let stopped = Progress::default();
    stopped.interrupted.store(true, Ordering::Relaxed);
    let sharding = Sharding { shards: 3, threads: 2 };
    let whole = overlay::run_sharded(&scenario, sharding, &()).unwrap().seconds;
    let measured = overlay::run_sharded(&scenario, sharding, &stopped).unwrap();
    assert!(measured.seconds.len() < 2 && whole.starts_with(&measured.seconds));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// With delays that are all equal, and senders that burst, most events are tied.
    #[test]
    fn shards_and_threads_do_not_show(
        peers in 6usize..40,
        known in 5usize..20,
        jitter in prop_oneof![Just(0.0), 0.001f64..0.14],
        constant: bool,
        controller in prop::sample::select(vec!["q-learning", "explicit-rate", "timeouts", "tomography", "aimd", "random"]),
        drop in prop_oneof![Just(0.0), 0.1f64..0.9],
        fair_shares: bool,
        heavy_tail: bool,
        shards in 2usize..9,
        threads in 1usize..4,
        seed in 1u64..1_000,
    ) {
        let mut scenario = Scenario { seed, ..scenario(controller, 4) };
        let overlay = &mut scenario.overlay;
        (overlay.peers, overlay.known_peers, overlay.jitter) = (peers, known.min(peers - 1), jitter);
        if constant {
            overlay.delay = DelayModel::Constant(Duration::from_millis(20));
        }
        overlay.fair_shares = fair_shares;
        overlay.jitter_tail = if heavy_tail { JitterTail::Pareto } else { JitterTail::Normal };
        let behaved = Misbehaviour::default();
        let until = Time::ZERO + Duration::from_millis(2_500);
        overlay.misbehaving = vec![
            (vec![0, 3], Misbehaviour { drop, forge: true, ..behaved }),
            (vec![1, 4], Misbehaviour { drop, stamp_factor: 10.0, until, ..behaved }),
        ];
        let other = |name| registry::find(name).unwrap();
        overlay.senders = vec![
            (vec![2], Sender { controller: other("explicit-rate"), offered: None }),
            (vec![5], Sender { controller: other("random"), offered: Some(Rate::from_bytes_per_sec(300_000)) }),
        ];
        prop_assert_eq!(overlay::why_unsharded(&scenario), None);
        prop_assert!(sharded(&scenario, 1, 1) == sharded(&scenario, shards, threads));
    }
}

#[test]
fn table_7_4_is_ordered_as_in_the_thesis() {
    let perfect = received("perfect", 200);
    let q_learning = received("q-learning", 600);
    let aimd = received("aimd-literal", 600);
    let random = received("random", 100);
    let physical_limit = 400_000.0 / (4.0 * 1500.0 + 3.0 * 40.0) * 1500.0;
    assert!(physical_limit > perfect && perfect > q_learning, "{physical_limit} {perfect} {q_learning}");
    assert!(q_learning > 1.05 * aimd && aimd > 5.0 * random, "{q_learning} {aimd} {random}");
    assert!(q_learning > 0.9 * perfect, "{q_learning} {perfect}");
}

#[test]
fn relays_drop_only_while_they_are_said_to_and_senders_send_by_what_is_theirs() {
    let mut scenario = scenario("explicit-rate", 20);
    let [from, until] = [5, 10].map(|seconds| Time::ZERO + Duration::SECOND * seconds);
    scenario.overlay.misbehaving = vec![(vec![1], Misbehaviour { drop: 1.0, from, until, ..Misbehaviour::default() })];
    let slow =
        Sender { controller: registry::find("random").unwrap(), offered: Some(Rate::from_bytes_per_sec(15_000)) };
    scenario.overlay.senders = vec![(vec![7], slow)];
    let measured = run(&scenario);
    let swallows: Vec<usize> = (0..20)
        .filter(|&second| measured.seconds[second].swallowed + measured.seconds[second].swallowed_acks > 0)
        .collect();
    assert!(swallows.contains(&5) && swallows.iter().all(|second| (5..10).contains(second)), "{swallows:?}");
    // Ten packets a second in the second half, and perhaps one that was on its way; the others have some sixty.
    let acked = &measured.acked_by_sender;
    assert!((80..=101).contains(&acked[7]) && acked[8] > 400, "{acked:?}");
}

#[test]
fn stamps_that_are_raised_overload_relays_and_are_seen_through() {
    let mut honest = scenario("explicit-rate", 20);
    honest.overlay.watch = Some(7);
    let mut lied = honest.clone();
    lied.overlay.misbehaving = vec![(vec![1], Misbehaviour { stamp_factor: 10.0, ..Misbehaviour::default() })];
    let [honest, lied] = [honest, lied].map(|scenario| run(&scenario));
    assert_eq!(named(&honest, 1..=20), [0; 0]);
    assert_eq!(named(&lied, 10..=20), [1], "it is from the tenth second on, and nobody else ever is");
    let [honest, lied] = [honest, lied].map(|measured| total(&measured));
    assert!(lied.refused > 10 * honest.refused.max(10), "{} and {}", lied.refused, honest.refused);
    assert!(lied.delivered > honest.delivered / 2);
}

/// Whom the watched sender says to misbehave after each of these seconds; it never says so of anybody else.
fn named(measured: &Measured, seconds: std::ops::RangeInclusive<usize>) -> Vec<u32> {
    let trace = measured.rates.as_ref().expect("a sender is watched");
    let after = |second: usize| -> Vec<u32> {
        let says = |slot| trace.of_slot(&trace.traced["misbehaves"], slot).nth(second - 1) == Some(1.0);
        (0..trace.known.len()).filter(|&slot| says(slot)).map(|slot| trace.known[slot]).collect()
    };
    let named = after(*seconds.start());
    for second in 1..=measured.seconds.len() {
        let now = after(second);
        assert!(now.iter().all(|node| named.contains(node)), "{now:?} after {second} s");
        assert!(!seconds.contains(&second) || now == named, "{now:?}, not {named:?}, after {second} s");
    }
    named
}

#[test]
fn whoever_drops_delays_or_lies_is_named_within_ten_seconds_and_long_queues_name_nobody() {
    let mut scenario = scenario("explicit-rate", 10);
    scenario.overlay.watch = Some(19);
    scenario.overlay.limit_model = LimitKind::Queue { longest: Duration::from_millis(100) };
    let mut queues = scenario.clone();
    let behaved = Misbehaviour::default();
    scenario.overlay.misbehaving = vec![
        ((0..4).collect(), Misbehaviour { drop: 1.0, ..behaved }),
        (vec![4, 5], Misbehaviour { delay: Duration::SECOND, ..behaved }),
        (vec![6, 7], Misbehaviour { stamp_factor: 10.0, ..behaved }),
    ];
    assert_eq!(named(&run(&scenario), 10..=10), [0, 1, 2, 3, 4, 5, 6, 7]);
    queues.seconds = 60;
    for longest in [500, 2_000].map(Duration::from_millis) {
        queues.overlay.limit_model = LimitKind::Queue { longest };
        assert_eq!(named(&run(&queues), 1..=60), [0; 0], "{longest}");
    }
}

#[test]
fn a_forging_relay_gains_nothing_and_is_avoided() {
    let mut scenario = scenario("q-learning", 300);
    let forge = Misbehaviour { forge: true, ..Misbehaviour::default() };
    scenario.overlay.misbehaving = vec![(vec![1, 2], forge)];
    let measured = run(&scenario);
    let total = total(&measured);
    assert!(total.forged_acks > 1_000, "{total:?}");
    let late = &measured.seconds[200..];
    let (swallowed, delivered) =
        late.iter().fold((0, 0), |(s, d), second| (s + second.swallowed, d + second.delivered));
    // Two of nineteen relays are on 30 % of all paths of three that are chosen blindly.
    let share = f64::from(swallowed) / f64::from(swallowed + delivered);
    assert!(share < 0.2, "{share} of all packets swallowed");
}

#[test]
fn limits_that_change_are_followed() {
    let mut scenario = scenario("q-learning", 400);
    let at = Time::ZERO + Duration::SECOND * 200;
    scenario.overlay.limit_changes =
        vec![LimitChange { at, peers: (0..20).collect(), limit: Rate::from_bytes_per_sec(100_000) }];
    let received: Vec<f64> = run(&scenario).received_bytes_per_s().collect();
    let mean = |slice: &[f64]| slice.iter().sum::<f64>() / slice.len() as f64;
    let (before, after) = (mean(&received[100..200]), mean(&received[300..]));
    assert!(before > 75_000.0 && after < 25_000.0, "{before} {after}");
}

#[test]
fn pacing_spreads_what_a_burst_sends_at_once() {
    let mut scenario = scenario("q-learning", 300);
    scenario.overlay.limit_model = LimitKind::Bucket { depth: Bytes::new(6_000) };
    let burst = Summary::of(&run(&scenario)).steady;
    scenario.overlay.pacing = Pacing::Paced;
    let paced = Summary::of(&run(&scenario)).steady;
    let received = |metrics: &anabranch_lab::overlay::summary::Metrics| metrics.received_bytes_per_s.unwrap();
    assert!(received(&paced) > 1.2 * received(&burst), "{} {}", received(&paced), received(&burst));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every packet is delivered, dropped with a cause, or in flight; nobody receives
    /// more than its limit.
    #[test]
    fn every_packet_is_accounted_for(
        controller in 0..registry::CONTROLLERS.len(),
        peers in 6usize..25,
        relays in 1usize..5,
        model in 0..3,
        paced: bool,
        loss in prop_oneof![Just(0.0), 0.0..0.2],
        drop in 0.0..0.5,
        forge: bool,
        seed: u64,
    ) {
        let mut scenario = scenario(registry::CONTROLLERS[controller].name, 15);
        scenario.seed = seed;
        let overlay = &mut scenario.overlay;
        overlay.peers = peers;
        overlay.known_peers = peers - 1;
        overlay.relays = relays;
        overlay.loss = loss;
        overlay.pacing = if paced { Pacing::Paced } else { Pacing::Burst };
        overlay.limit_model = match model {
            0 => LimitKind::Window,
            1 => LimitKind::Bucket { depth: Bytes::new(50_000) },
            _ => LimitKind::Queue { longest: Duration::from_millis(100) },
        };
        overlay.misbehaving = vec![(vec![0, 3], Misbehaviour { drop, forge, delay: Duration::from_millis(20), ..Misbehaviour::default() })];
        // Without control, and with liars on nearly every path, nothing may arrive: a run says so.
        let measured = match overlay::run(&scenario, &()) {
            Err(OverlayRunError::NothingDelivered { .. }) => return Err(TestCaseError::reject("nothing arrives")),
            measured => measured.unwrap(),
        };
        let total = total(&measured);
        let dropped = u64::from(total.refused) + u64::from(total.lost) + u64::from(total.swallowed);
        prop_assert_eq!(u64::from(total.sent), u64::from(total.delivered) + dropped + measured.data_in_flight);
        // A window's second and the simulation's overlap two windows at most.
        let allowed = 2.0 * 400_000.0 * peers as f64 / 1500.0;
        prop_assert!(measured.seconds.iter().all(|second| f64::from(second.delivered) <= allowed));
        prop_assert!(total.acked + total.late_acks <= total.delivered);
    }
}

/// A flow controller for each peer received nothing when packets were paced: no test had combined
/// the two.
#[test]
fn every_controller_delivers_under_either_pacing() {
    // Remy's rules and a policy's network are parameters, which nothing here gives.
    let flows = registry::flow_controllers().iter().filter(|entry| !["flow:remy", "flow:policy"].contains(&entry.name));
    for entry in registry::CONTROLLERS.iter().chain(flows) {
        for pacing in [Pacing::Burst, Pacing::Paced] {
            let mut scenario = Scenario { seconds: 20, ..Scenario::standard() };
            scenario.overlay.controller = entry;
            scenario.overlay.offered = default_offered(entry);
            scenario.overlay.pacing = pacing;
            let measured = run(&scenario);
            // Half a packet a second and peer, from a start that knows nothing.
            let delivered = total(&measured).delivered;
            assert!(delivered > 20 * 20 / 2, "{} {pacing:?}: {delivered} packets", entry.name);
        }
    }
}

/// One sender whose table of packets is full: it waits for an ACK or a deadline, and time goes on.
#[test]
fn a_full_table_of_packets_waits_for_an_outcome() {
    let mut scenario = scenario("aimd", 45);
    scenario.overlay.peers = 6;
    scenario.overlay.known_peers = 5;
    scenario.overlay.limit = anabranch_control::units::Rate::from_bits_per_sec(100_000_000_000);
    scenario.overlay.pacing = Pacing::Paced;
    scenario.overlay.delay = anabranch_sim::delay::DelayModel::Constant(Duration::from_millis(400));
    scenario.overlay.jitter = 0.0;
    scenario.overlay.join_every = Duration::SECOND * 1000;
    let measured = run(&scenario);
    assert_eq!(measured.seconds.len(), 45);
    let remembered = anabranch_proto::overlay::path_sender::MAX_REMEMBERED as u32;
    let most = measured.seconds.iter().map(|second| second.sent).max().unwrap();
    // A full table is sent once in a round trip of 8 hops of 0.4 s.
    assert!((remembered / 4..remembered).contains(&most), "{most} packets in a second: the table is not full");
}

#[test]
fn a_run_that_delivers_nothing_is_an_error() {
    let mut scenario = scenario("q-learning", 10);
    scenario.overlay.loss = 1.0;
    let error = overlay::run(&scenario, &()).unwrap_err().to_string();
    assert!(error.contains("in 10 s nothing was delivered") && error.contains("q-learning"), "{error}");
    // What was stopped says what it has.
    let stopped = Progress::default();
    stopped.interrupted.store(true, Ordering::Relaxed);
    assert_eq!(overlay::run(&scenario, &stopped).unwrap().seconds.len(), 1);
}
