use proptest::prelude::*;

use super::*;
use crate::flow::setup::made;
use crate::flow::testing::{Drive, PACKET, Path, drive};
use crate::flow::{LossCause, Lost, RoundTrip};
use crate::rng::Rng;
use crate::time::Duration;
use crate::units::Rate;

/// 100 packets a round trip fill it, and 1000 may wait.
const PATH: Path =
    Path { rate: Rate::from_bytes_per_sec(1_000_000), rtt: Duration::from_millis(100), buffer: 1000, loss: 0.0 };

fn xavier(parameters: &str) -> Xavier {
    let setup = Setup::new(PACKET, Time::ZERO);
    of(&parameters.parse().unwrap(), 0.9, None).unwrap()(&setup)
}

fn run(parameters: &str, path: Path, seconds: f64) -> Drive {
    drive(&mut xavier(parameters), path, seconds, 1)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// A sender that acknowledges its packets one by one.
struct Acks {
    delivered: Bytes,
    rng: Rng,
}

impl Acks {
    fn new() -> Acks {
        Acks { delivered: Bytes::ZERO, rng: Rng::stream(1, "acks") }
    }

    /// A packet leaves.
    fn send(&mut self, xavier: &mut Xavier) -> Sent {
        let sent = Sent { size: PACKET, delivered: self.delivered, ..Sent::default() };
        xavier.on_sent(Time::ZERO, PeerId(0), &sent, &mut self.rng);
        sent
    }

    /// Its ACK comes, with a sample of the round-trip time.
    fn acknowledge(&mut self, xavier: &mut Xavier, sent: Sent, rtt_ms: u64) {
        self.feedback(xavier, &[sent], &[], rtt_ms, false);
    }

    fn feedback(&mut self, xavier: &mut Xavier, acked: &[Sent], lost: &[Lost], rtt_ms: u64, app_limited: bool) {
        self.delivered += PACKET * acked.len() as u64;
        let rtt = Duration::from_millis(rtt_ms);
        let feedback = Feedback {
            receiver: PeerId(0),
            rtt: RoundTrip { latest: (!acked.is_empty()).then_some(rtt), smoothed: rtt, variation: rtt, min: rtt },
            acked,
            lost,
            acked_bytes: PACKET * acked.len() as u64,
            in_flight: Bytes::ZERO,
            delivered: self.delivered,
            rate: None,
            ecn_marked_packets: 0,
            persistent_congestion: false,
            tcp: None,
            app_limited,
        };
        xavier.on_feedback(Time::from_secs_f64(1.0), &feedback, &mut self.rng);
    }
}

#[test]
fn the_mean_takes_a_fifth_of_each_sample_and_the_ratio_the_last() {
    let mut xavier = xavier("");
    assert_eq!(xavier.observe(Millis(100.0)), Millis(100.0));
    assert_eq!(xavier.observe(Millis(200.0)), Millis(120.0));
    assert_eq!(xavier.ratio, 2.0);
    assert_eq!(xavier.observe(Millis(50.0)), Millis(0.8 * 120.0 + 10.0));
    assert_eq!(xavier.ratio, 1.0, "the least ever is now 50");
}

#[test]
fn each_action_does_what_it_says() {
    let mut xavier = xavier("");
    for (action, window, grew) in [(0, 11.0, true), (1, 10.1, true), (2, 9.9, false), (3, 10.0, false)] {
        xavier.window = Packets(10.0);
        assert_eq!(xavier.act(action, false), grew);
        assert!((xavier.window.0 - window).abs() < 1e-12, "action {action}: {:?}", xavier.window);
    }
    for action in [0, 1] {
        xavier.window = Packets(10.0);
        assert!(!xavier.act(action, true), "an idle application's window grew");
        assert_eq!(xavier.window, Packets(10.0));
    }
    xavier.window = Packets(1.0);
    xavier.act(2, false);
    assert_eq!(xavier.window, Packets(1.0));
}

#[test]
fn decisions_wait_in_the_order_of_what_was_delivered_even_if_that_falls() {
    let (mut xavier, mut acks) = (xavier(""), Acks::new());
    for delivered in [30, 70, 50, 50, 60] {
        acks.delivered = PACKET * delivered;
        let sent = acks.send(&mut xavier);
        acks.acknowledge(&mut xavier, sent, 100);
    }
    acks.send(&mut xavier);
    let waiting: Vec<u64> = xavier.waiting.iter().map(|decision| decision.delivered.get() / PACKET.get()).collect();
    assert_eq!(waiting, [31, 51, 61], "what is searched by halves");
}

/// The update by hand: rtt 100 then 150 ms, discount 0.5, step 0.1, beta 2. The state of the
/// reward shares no feature of ratio or mean with that of the action.
#[test]
fn an_acknowledged_packet_moves_the_value_of_the_action_it_left_after() {
    let mut xavier = xavier("epsilon = 0\ndiscount = 0.5\nlearning_rate = 0.1");
    let mut acks = Acks::new();
    let first = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, first, 100);
    assert_eq!(xavier.rewards, 0, "no action was responsible for the first window");
    let decision = xavier.fresh.unwrap();
    let (state, action) = (decision.state, usize::from(decision.action));
    assert_eq!(state, State::new(1.0, 10.0));
    let second = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, second, 150);
    // The mean is 110, delta = -0.1; all values were 0, so that the error is the reward.
    let reward = -0.1 + if action < 2 { 2.0 } else { 0.0 };
    assert_eq!(xavier.rewards, 1);
    assert!((xavier.value.of(state, action) - 5.0 * 0.1 * reward).abs() < 1e-12);
    let other = (action + 1) % ACTIONS;
    assert!((xavier.value.of(state, other) - 2.0 * 0.1 * reward).abs() < 1e-12);
    // The next reward is discounted by half of what its own ACK's choice is worth.
    let decision = xavier.fresh.unwrap();
    let before = xavier.value.of(decision.state, usize::from(decision.action));
    let third = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, third, 110);
    let next_state = State::new(1.1, 11.0);
    let next_action = usize::from(xavier.fresh.unwrap().action);
    let reward = if decision.grew { 2.0 } else { 0.0 };
    // All but the two crosses and the action of the choice may have moved with this very
    // update, so that the expected error is taken from the trace of the controller.
    let error = xavier.last.2;
    let after = xavier.value.of(decision.state, usize::from(decision.action));
    assert!((after - before - 5.0 * 0.1 * error).abs() < 1e-12);
    let mut undone = xavier;
    undone.value.add(decision.state, usize::from(decision.action), -0.1 * error);
    let next = undone.value.of(next_state, next_action);
    assert!((error - (reward + 0.5 * next - before)).abs() < 1e-12, "{error}");
}

#[test]
fn a_packet_rewards_the_action_before_it_whatever_came_between() {
    let mut xavier = xavier("epsilon = 0\nlearning_rate = 0.1\ndiscount = 0");
    let mut acks = Acks::new();
    let flight: Vec<Sent> = (0..3).map(|_| acks.send(&mut xavier)).collect();
    acks.acknowledge(&mut xavier, flight[0], 100);
    let responsible = xavier.fresh.unwrap();
    let packets = [acks.send(&mut xavier), acks.send(&mut xavier)];
    acks.acknowledge(&mut xavier, flight[1], 100);
    acks.acknowledge(&mut xavier, flight[2], 100);
    assert_eq!(xavier.rewards, 0);
    assert_eq!(xavier.waiting.len(), 1, "actions that no packet left after wait for nothing");
    let before = xavier.value.of(responsible.state, usize::from(responsible.action));
    acks.acknowledge(&mut xavier, packets[0], 100);
    acks.acknowledge(&mut xavier, packets[1], 100);
    assert_eq!(xavier.rewards, 2, "k packets bring k rewards");
    let after = xavier.value.of(responsible.state, usize::from(responsible.action));
    assert_eq!(after > before, responsible.grew);
}

#[test]
fn beta_alone_pays_growth_and_nothing_else() {
    let mut xavier = xavier("delta = false\nlearning_rate = 0.1\ndiscount = 0");
    let mut acks = Acks::new();
    for round in 0..200 {
        let sent = acks.send(&mut xavier);
        let grew = xavier.waiting.back().is_some_and(|decision| decision.grew);
        acks.acknowledge(&mut xavier, sent, 100 + 10 * (round % 7));
        if round > 0 {
            assert_eq!(xavier.last.1, if grew { 2.0 } else { 0.0 });
        }
    }
}

#[test]
fn one_choice_in_five_is_by_lot() {
    let mut xavier = xavier("");
    let state = State::new(1.0, 10.0);
    xavier.value.add(state, 3, 1.0);
    let mut rng = Rng::stream(5, "choices");
    const DRAWS: usize = 100_000;
    let others = (0..DRAWS).filter(|_| xavier.choose(state, &mut rng) != 3).count() as f64 / DRAWS as f64;
    // Three quarters of the lots fall on another action than the best.
    assert!((others - 0.2 * 0.75).abs() < 0.005, "{others}");
}

#[test]
fn ties_are_broken_by_lot() {
    let xavier = xavier("epsilon = 0");
    let mut rng = Rng::stream(5, "choices");
    let mut counts = [0; ACTIONS];
    for _ in 0..40_000 {
        counts[xavier.choose(State::default(), &mut rng)] += 1;
    }
    assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
}

#[test]
fn the_precursor_steps_by_the_inverse_root_of_time() {
    let setup = Setup::new(PACKET, Time::ZERO);
    let mut xavier = of(&toml::Table::new(), 0.5, Some(Step::InverseRoot)).unwrap()(&setup);
    xavier.rewards = 99;
    let mut acks = Acks::new();
    let first = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, first, 100);
    let decision = xavier.fresh.unwrap();
    let second = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, second, 100);
    let value = xavier.value.of(decision.state, usize::from(decision.action));
    assert!((value - 5.0 * 0.1 * xavier.last.2).abs() < 1e-12, "the hundredth step is a tenth: {value}");
}

#[test]
fn a_flight_with_losses_halves_the_window_once() {
    let mut xavier = xavier("");
    let lost = Lost { sent: Sent { at: Time::ZERO, ..Sent::default() }, cause: LossCause::PacketThreshold };
    let mut acks = Acks::new();
    acks.feedback(&mut xavier, &[], &[lost], 0, false);
    acks.feedback(&mut xavier, &[], &[lost], 0, false);
    assert_eq!(xavier.window, Packets(5.0));
    let mut deaf = self::xavier("loss = \"ignore\"");
    acks.feedback(&mut deaf, &[], &[lost], 0, false);
    assert_eq!(deaf.window, Packets(10.0));
}

/// The mean window of the last half of 200 s without a bonus, over a path of ten packets a
/// round trip, from `packets` on.
fn window_without_a_bonus(packets: f64, seed: u64) -> f64 {
    let mut xavier = xavier("beta = 0");
    xavier.window = Packets(packets);
    let path = Path { rate: Rate::from_bytes_per_sec(100_000), ..PATH };
    let run = drive(&mut xavier, path, 200.0, seed);
    mean(&run.window[run.window.len() / 2..])
}

#[test]
fn without_a_bonus_a_small_window_comes_down_to_the_least_delay() {
    let windows: Vec<f64> = (0..20).map(|seed| window_without_a_bonus(2.0, seed)).collect();
    let least = windows.iter().filter(|window| **window < 2.0).count();
    assert!(least >= 14, "{least} of 20: {windows:?}");
}

/// Each ACK adds a packet with probability epsilon / 4 = 1/20, and the best that the greedy
/// choice can do against it is a packet a round trip: above 20 packets or so the lot wins.
#[test]
fn without_a_bonus_a_large_window_runs_away_by_exploration_alone() {
    let windows: Vec<f64> = (0..5).map(|seed| window_without_a_bonus(60.0, seed)).collect();
    assert!(windows.iter().all(|window| *window > 100.0), "{windows:?}");
}

#[test]
fn with_the_bonus_it_grows_until_the_path_is_full() {
    let run = run("", PATH, 60.0);
    assert!(run.throughput() > 900.0, "{} of 1000 packets a second", run.throughput());
}

#[test]
fn after_a_pause_the_first_window_holds_again_if_it_is_asked_for() {
    for (parameters, window) in [("restart = true", 10.0), ("", 50.0)] {
        let mut xavier = xavier(parameters);
        let mut acks = Acks::new();
        let sent = acks.send(&mut xavier);
        acks.acknowledge(&mut xavier, sent, 100);
        xavier.window = Packets(50.0);
        let leave = |xavier: &mut Xavier, ms: u64, in_flight: Bytes| {
            let packet = Sent { size: PACKET, in_flight, ..Sent::default() };
            let now = Time::from_secs_f64(1.0) + Duration::from_millis(ms);
            xavier.on_sent(now, PeerId(0), &packet, &mut Rng::stream(1, "pause"));
            xavier.window
        };
        assert_eq!(leave(&mut xavier, 99, PACKET), Packets(50.0), "no pause yet");
        assert_eq!(leave(&mut xavier, 500, PACKET * 2), Packets(50.0), "another packet is on its way");
        assert_eq!(leave(&mut xavier, 101, PACKET), Packets(window), "{parameters}");
    }
}

#[test]
fn parameters_outside_their_range_are_refused() {
    let setup = Setup::new(PACKET, Time::ZERO);
    for (wrong, named) in [
        ("beta = -1", "beta"),
        ("epsilon = 1.5", "epsilon"),
        ("discount = 1", "discount"),
        ("learning_rate = 0.9", "learning_rate"),
        ("ewma_precision_ms = 0", "ewma_precision_ms"),
        ("loss = \"quarter\"", "quarter"),
    ] {
        let error = made(build, &setup, &wrong.parse().unwrap()).unwrap_err();
        assert!(error.0.contains(named), "{wrong}: {error}");
    }
}

proptest! {
    #[test]
    fn whatever_the_acks_say_window_and_values_stay_finite(
        precursor in any::<bool>(), beta in 0.0..1e6f64, seed in any::<u64>(),
    ) {
        let setup = Setup::new(PACKET, Time::ZERO);
        let parameters = format!("beta = {beta:?}").parse().unwrap();
        let step = precursor.then_some(Step::InverseRoot);
        let mut xavier = of(&parameters, 0.9, step).unwrap()(&setup);
        let mut rng = Rng::stream(seed, "trace");
        let mut acks = Acks::new();
        let mut flight = VecDeque::new();
        for _ in 0..2000 {
            match rng.below(4) {
                0 | 1 => flight.push_back(acks.send(&mut xavier)),
                2 => {
                    let count = rng.below(3).min(flight.len());
                    let acked: Vec<Sent> = flight.drain(..count).collect();
                    acks.feedback(&mut xavier, &acked, &[], rng.below(2000) as u64, rng.chance(0.1));
                }
                _ => {
                    let lost = Lost { sent: Sent::default(), cause: LossCause::TimeThreshold };
                    acks.feedback(&mut xavier, &[], &[lost], 0, false);
                }
            }
            prop_assert!((MINIMUM_WINDOW..=MAXIMUM_WINDOW).contains(&xavier.window));
        }
        let mut finite = true;
        xavier.trace(&mut |_, value| finite &= value.is_finite());
        prop_assert!(finite);
    }
}

#[test]
fn a_decision_is_kept_only_while_a_packet_that_left_after_it_or_before_is_in_flight() {
    let mut xavier = xavier("");
    let mut acks = Acks::new();
    let first = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, first, 100);
    let twin = [acks.send(&mut xavier), acks.send(&mut xavier)];
    acks.acknowledge(&mut xavier, twin[0], 100);
    assert_eq!(xavier.waiting.len(), 1, "its second packet is in flight");
    let other = acks.send(&mut xavier);
    acks.acknowledge(&mut xavier, other, 100);
    assert_eq!(xavier.waiting.len(), 2, "overtaken packets keep those after them");
    let lost = Lost { sent: twin[1], cause: LossCause::PacketThreshold };
    acks.feedback(&mut xavier, &[], &[lost], 100, false);
    assert!(xavier.waiting.is_empty());
    let rewards = xavier.rewards;
    acks.acknowledge(&mut xavier, other, 100);
    assert_eq!(xavier.rewards, rewards, "nothing is rewarded twice");
}
