//! Every path controller over relays that police: what is beyond their rate they refuse, and nothing waits. All
//! goes to one destination, as a file does, so that whatever is lost could have been lost by the destination.

use std::collections::BTreeMap;

use super::registry::{CONTROLLERS, Entry, Pacing, Setup, flow_controllers};
use super::{Hop, Outcome, Report, Slot};
use crate::rng::Rng;
use crate::rtt::{PairRtts, RttConfig};
use crate::time::{Duration, Time};
use crate::units::Bytes;

const RELAYS: usize = 9;
const DESTINATION: Slot = Slot(RELAYS as u16);
const PACKET: Bytes = Bytes::new(1500);
const ROUND_TRIP: f64 = 0.2;
const TIMEOUT: f64 = 0.6;

/// What each relay passes a second.
const RATE: f64 = 40.0;

/// So many packets of one run are a flood: 180 could arrive in each of its 60 seconds.
const FLOOD: u64 = 300_000;

/// How the destination behaves.
#[derive(Clone, Copy)]
enum Destination {
    Answers,
    /// Nothing comes there from the one second on until the other.
    Silent(f64, f64),
    /// It takes so many packets a second, and the relays all that comes.
    Polices(f64),
}

/// Packets that left, and that arrived, in each second.
fn run(entry: &Entry, pacing: Pacing, destination: Destination, seconds: usize) -> Option<Vec<(u32, u32)>> {
    let of_flow = entry.name.strip_prefix("flow:").map(|name| crate::flow::registry::find(name).unwrap());
    let parameters = of_flow.map_or_else(toml::Table::new, |entry| entry.example());
    let setup = Setup { peers: RELAYS + 1, packet: PACKET, start: Time::ZERO, pacing };
    let mut controller = entry.build.make(&setup, &parameters)?.unwrap();
    let (mut rng, mut rtts) = (Rng::stream(1, "refused"), PairRtts::new(&RttConfig::default(), RELAYS + 1));
    let mut buckets = [Bucket { rate: RATE, full_at: 0.0 }; RELAYS];
    let mut last = Bucket { rate: f64::INFINITY, full_at: 0.0 };
    if let Destination::Polices(rate) = destination {
        last.rate = rate;
        buckets.iter_mut().for_each(|bucket| bucket.rate = f64::INFINITY);
    }
    let mut outcomes: BTreeMap<(Time, u64), (Time, [Hop; 2], Outcome)> = BTreeMap::new();
    let mut each_second = vec![(0, 0); seconds];
    let (mut now, mut number) = (Time::ZERO, 0u64);
    loop {
        let sent = now.as_secs_f64();
        if sent >= seconds as f64 {
            return Some(each_second);
        }
        let mut path = [Hop::default(); 2];
        while controller.select(now, DESTINATION, PACKET, &mut path, &mut rng) {
            let is_silent = matches!(destination, Destination::Silent(from, until) if (from..until).contains(&sent));
            let passes = path.iter().all(|hop| buckets[hop.slot.index()].takes(sent)) && last.takes(sent);
            let arrives = passes && !is_silent;
            let (outcome, after) = match arrives {
                true => (Outcome::Acked, ROUND_TRIP + 0.02 * rng.uniform()),
                false => (Outcome::TimedOut, TIMEOUT),
            };
            number += 1;
            assert!(number < FLOOD, "{}: {each_second:?}", entry.name);
            outcomes.insert((now + Duration::from_secs_f64(after), number), (now, path, outcome));
            let (left, arrived) = &mut each_second[sent as usize];
            *left += 1;
            *arrived += u32::from(arrives);
        }
        let asks = controller.wake(now).time(now);
        let due = outcomes.first_key_value().map_or(Time::MAX, |(&(at, _), _)| at);
        if due > asks {
            now = now.max(asks);
            continue;
        }
        let Some(((at, _), (sent_at, path, outcome))) = outcomes.pop_first() else { return Some(each_second) };
        now = now.max(at);
        if outcome == Outcome::Acked {
            rtts.sample(&[path[0].slot, path[1].slot, DESTINATION], now.since(sent_at));
        }
        let report = Report { now, sent_at, destination: DESTINATION, ..Report::of(outcome, &path, &rtts) };
        controller.on_outcome(&report, &mut rng);
    }
}

/// A token bucket of a second.
#[derive(Clone, Copy)]
struct Bucket {
    rate: f64,
    full_at: f64,
}

impl Bucket {
    fn takes(&mut self, now: f64) -> bool {
        let after = self.full_at.max(now) + 1.0 / self.rate;
        let takes = after <= now + 1.0;
        if takes {
            self.full_at = after;
        }
        takes
    }
}

#[test]
fn no_controller_answers_loss_by_a_flood() {
    // These two send as much as they are told to.
    let obeys = |entry: &&Entry| !["random", "flow:max-throughput"].contains(&entry.name);
    let policed = [Destination::Answers, Destination::Polices(100.0), Destination::Silent(20.0, 30.0)];
    for entry in CONTROLLERS.iter().chain(flow_controllers()).filter(obeys) {
        for destination in policed {
            run(entry, Pacing::Paced, destination, 60);
        }
    }
}
