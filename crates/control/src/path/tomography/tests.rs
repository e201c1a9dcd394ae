use super::*;
use crate::path::setup::{Pacing, Setup};
use crate::rtt::{PairRtts, RttConfig};
use crate::time::Duration;

const PEERS: usize = 10;
const PACKET: Bytes = Bytes::new(1500);

/// How a relay treats what comes.
#[derive(Clone, Copy, PartialEq)]
enum Limit {
    /// It queues for 100 ms at most.
    Queue(f64),
    /// It refuses what is beyond a second of this many packets.
    Bucket(f64),
    /// It drops everything.
    Nothing,
}

/// One sender over two of nine relays each, to the tenth peer; each link loses some.
fn run(parameters: &str, limit: [Limit; 9], loss: f64, seconds: f64) -> (Box<dyn PathController>, [f64; 9]) {
    let setup = Setup { peers: PEERS, packet: PACKET, start: Time::ZERO, pacing: Pacing::Burst };
    let mut controller = build(&parameters.parse().unwrap()).unwrap()(&setup);
    let (mut rng, rtts) = (Rng::stream(1, "overlay"), PairRtts::new(&RttConfig::default(), PEERS));
    let mut free_at = [0.0f64; 9];
    let mut passed = [0.0; 9];
    let mut outcomes = std::collections::BTreeMap::new();
    let (mut now, mut number) = (Time::ZERO, 0u64);
    while now.as_secs_f64() < seconds {
        let mut path = [Hop::default(); 2];
        let due = outcomes.first_key_value().map(|(&(at, _), _): (&(Time, u64), &(Time, [Hop; 2], Outcome))| at);
        let asks = controller.wake(now).time(now);
        if due.is_some_and(|due| due <= asks) {
            let ((at, _), (sent_at, path, outcome)) = outcomes.pop_first().unwrap();
            now = now.max(at);
            let base = Report::of(outcome, &path, &rtts);
            controller.on_outcome(&Report { now, sent_at, destination: Slot(9), ..base }, &mut rng);
        } else {
            now = asks;
        }
        while controller.select(now, Slot(9), PACKET, &mut path, &mut rng) {
            let sent = now.as_secs_f64();
            let (mut round_trip, mut is_lost) = (0.2 + 0.02 * rng.uniform(), rng.chance(1.0 - (1.0 - loss).powi(6)));
            for hop in path {
                let relay = hop.slot.index();
                match limit[relay] {
                    Limit::Queue(rate) => {
                        let wait = (free_at[relay] - sent).max(0.0);
                        is_lost |= wait > 0.1;
                        if wait <= 0.1 {
                            free_at[relay] = sent + wait + 1.0 / rate;
                            round_trip += 2.0 * wait;
                        }
                    }
                    Limit::Bucket(rate) => {
                        let full_at = free_at[relay].max(sent) + 1.0 / rate;
                        is_lost |= full_at > sent + 1.0;
                        if full_at <= sent + 1.0 {
                            free_at[relay] = full_at;
                        }
                    }
                    Limit::Nothing => is_lost = true,
                }
                if !is_lost && sent > seconds / 2.0 {
                    passed[relay] += 2.0 / seconds;
                }
            }
            let outcome = if is_lost { Outcome::TimedOut } else { Outcome::Acked };
            let after = if is_lost { 0.6 } else { round_trip };
            number += 1;
            outcomes.insert((now + Duration::from_secs_f64(after), number), (now, path, outcome));
        }
    }
    (controller, passed)
}

fn traced(controller: &dyn PathController, relay: usize, key: &str) -> f64 {
    let mut found = f64::NAN;
    controller.trace(Slot(relay as u16), &mut |name, value| {
        if name == key {
            found = value;
        }
    });
    found
}

#[test]
fn relays_that_queue_are_filled_and_loss_that_does_not_follow_load_costs_nothing() {
    let limits = [40.0; 9];
    for loss in [0.0, 0.01] {
        let (controller, passed) = run("", limits.map(Limit::Queue), loss, 120.0);
        let arrives = (1.0 - loss).powi(6);
        let share = passed.iter().sum::<f64>() / limits.iter().sum::<f64>();
        assert!(share > 0.85 * arrives, "{passed:?} of {limits:?}, where {loss} is lost");
        for relay in 0..9 {
            assert_eq!(traced(&*controller, relay, "queues"), 1.0, "relay {relay} at {loss}");
        }
    }
}

#[test]
fn where_nothing_waits_most_relays_are_found_to_refuse() {
    let (controller, passed) = run("", [Limit::Bucket(40.0); 9], 0.0, 300.0);
    let refuse = (0..9).filter(|&relay| traced(&*controller, relay, "queues") == 0.0).count();
    assert!(refuse > 4, "{refuse} of nine are found to refuse, and pass {passed:?}");
}

#[test]
fn without_a_fall_back_no_relay_is_found_to_refuse() {
    let (without, _) = run("falls_back = false", [Limit::Bucket(40.0); 9], 0.0, 300.0);
    assert_eq!(traced(&*without, 0, "queues"), 1.0);
}

#[test]
fn a_dropper_is_on_trial_and_the_others_are_not() {
    let mut limit = [Limit::Queue(40.0); 9];
    limit[4] = Limit::Nothing;
    let (controller, _) = run("", limit, 0.0, 30.0);
    let aside: Vec<f64> = (0..9).map(|relay| traced(&*controller, relay, "set_aside")).collect();
    assert_eq!(aside, [0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    let rate = |relay| controller.rate(Slot(relay)).unwrap().bytes_per_sec();
    assert!(rate(4) <= 1500.0 && rate(5) > 20.0 * 1500.0, "{} and {}", rate(4), rate(5));
    let (letter, _) = run("tries = false", limit, 0.0, 30.0);
    assert_eq!(traced(&*letter, 4, "set_aside"), 0.0);
}
