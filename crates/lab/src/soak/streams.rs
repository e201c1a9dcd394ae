//! Live streams in which everything goes wrong: lines that are too slow, losses, viewers who come, go, die and lie,
//! and servers that can send too little. A case is a function of its seed.
//!
//! Rules: nobody panics; the trees are sound; what each holds is bounded; nobody holds a packet that is not the
//! source's, nor plays more than there was; and an honest viewer that was let in long ago plays or says what it
//! misses.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anabranch_control::flow::registry;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::stream::message::Mode;
use anabranch_proto::stream::peer::StreamPeer;
use anabranch_proto::stream::peers::MOST_SESSIONS;
use anabranch_scenario::stream::{Audience, Churn, Helper, Liars, Rates, StreamConfig, StreamScenario};
use serde::Serialize;

use super::draw::{log_uniform, now_and_then, seconds};
use super::ordered::{self, words_of};
use crate::monitor::Monitor;
use crate::parallel::Progress;
use crate::stream::run::{Seen, run_and_look};

/// A viewer that was let in so long ago has something to play, or to say.
const LONG_AGO: Duration = Duration::from_millis(15_000);

/// Those that need no parameters.
const CONTROLLERS: [&str; 6] = ["cubic", "reno", "bbr3", "ledbat++", "copa", "block-window"];

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// No machine panics, whatever happens.
    NoPanic,
    /// The book of trees is sound.
    SoundTrees,
    /// What a peer keeps is bounded.
    Bounded,
    /// No packet is kept that is not the source's.
    Genuine,
    /// An honest viewer plays, or says that it misses packets, or is not let in.
    PlaysOrSays,
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Repeats the case.
    pub seed: u64,
    /// The rule.
    pub rule: Rule,
    /// How it was broken.
    pub what: String,
}

/// What a soak of streams did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Soaked {
    /// Cases that were run to their end.
    pub cases: u64,
    /// Simulated hours.
    pub simulated_hours: f64,
    /// Viewers that came.
    pub viewers: u64,
    /// Of those, began to play.
    pub started: u64,
    /// Viewers that died at once.
    pub killed: u64,
    /// Attempts to join that were refused for want of room.
    pub overloaded: u64,
    /// Packets that were found to be forged.
    pub forged: u64,
    /// Packets that arrived at a peer.
    pub packet_hops: u64,
    /// Cases in which honest viewers missed nothing.
    pub without_a_miss: u64,
    /// Broken rules, in the order of their seeds.
    pub failures: Vec<Failure>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

fn rate(rng: &mut Rng, low: f64, high: f64) -> Rate {
    Rate::from_bits_per_sec(log_uniform(rng, low, high) as u64)
}

/// The case of `seed`.
///
/// # Panics
///
/// If a controller is not registered.
pub fn draw(seed: u64) -> StreamScenario {
    let rng = &mut Rng::stream(seed, "soaked stream");
    let mode = [Mode::Hybrid, Mode::Hybrid, Mode::Hybrid, Mode::Trees, Mode::Mesh][rng.below(5)];
    let bitrate = log_uniform(rng, 200e3, 3e6);
    let upload = match rng.below(3) {
        0 => Rates::Uniform(rate(rng, 0.1 * bitrate, bitrate), rate(rng, bitrate, 5.0 * bitrate)),
        1 => Rates::LogNormal { median: rate(rng, 0.5 * bitrate, 3.0 * bitrate), sigma: rng.uniform() },
        _ => Rates::InTurn((0..=rng.below(4)).map(|_| rate(rng, 0.05 * bitrate, 5.0 * bitrate)).collect()),
    };
    let duration = seconds(rng, 20.0, 40.0);
    let stay = rng.chance(0.5).then(|| seconds(rng, 3.0, 60.0));
    StreamScenario {
        seed,
        duration,
        stream: StreamConfig {
            bitrate: Rate::from_bits_per_sec(bitrate as u64),
            slices: 1 + rng.below(32) as u8,
            mode,
            buffer: seconds(rng, 0.8, 6.0),
            controller: registry::find(CONTROLLERS[rng.below(CONTROLLERS.len())]).expect("it is registered"),
            parameters: toml::Table::new(),
            exploration: (mode != Mode::Mesh && rng.chance(0.3)).then(|| 0.2 * rng.uniform()),
        },
        audience: Audience {
            clients: log_uniform(rng, 1.0, 50.0) as usize,
            arrival: seconds(rng, 0.05, 8.0),
            upload_every: (matches!(upload, Rates::Uniform(..)) && rng.chance(0.5)).then(|| seconds(rng, 1.0, 10.0)),
            upload,
            download: rate(rng, 1.2 * bitrate, 20.0 * bitrate),
            server_upload: rate(rng, 0.5 * bitrate, 8.0 * bitrate),
            span: seconds(rng, 0.001, 0.3),
            access: seconds(rng, 0.0005, 0.05),
            loss: now_and_then(rng, 0.1),
        },
        churn: Churn {
            mean_stay: stay,
            kill_share: now_and_then(rng, 1.0),
            kill_at: Duration::from_secs_f64(duration.as_secs_f64() * rng.uniform()),
        },
        liars: Liars {
            free_riders: now_and_then(rng, 0.5),
            claimers: now_and_then(rng, 0.5),
            claim_factor: log_uniform(rng, 2.0, 100.0),
            droppers: now_and_then(rng, 0.5),
            poisoners: now_and_then(rng, 0.5),
        },
        helper: (mode == Mode::Mesh && rng.chance(0.3))
            .then(|| Helper { least: rate(rng, 0.5 * bitrate, bitrate), most: rate(rng, bitrate, 8.0 * bitrate) }),
    }
}

/// What is wrong with a peer at the end, if anything is.
fn broken(seen: &Seen<'_>, end: Time, packets: u64) -> Option<(Rule, String)> {
    let client = match seen.peer {
        StreamPeer::Server(server) => {
            return server.tracker().book().verify().err().map(|what| (Rule::SoundTrees, what));
        }
        StreamPeer::Client(client) => client,
    };
    let name = client.id().map_or("a viewer".to_owned(), |id| format!("viewer {}", id.0));
    if seen.sessions > MOST_SESSIONS {
        return Some((Rule::Bounded, format!("{name} has {} sessions", seen.sessions)));
    }
    if client.played() > packets {
        return Some((Rule::Genuine, format!("{name} played {} of {packets} packets", client.played())));
    }
    // Who has got nothing at all does not receive yet.
    if let Some(receiving) = client.receiving() {
        let buffer = receiving.buffer();
        if buffer.end() > buffer.most_end() {
            return Some((Rule::Bounded, format!("{name} holds packets up to {:?}", buffer.end())));
        }
        let mut held = (buffer.oldest().0..buffer.end().0).map(anabranch_proto::stream::packet::PacketId);
        if held.any(|id| buffer.get(id).is_some_and(|(_, packet)| !packet.is_genuine)) {
            return Some((Rule::Genuine, format!("{name} holds a forged packet")));
        }
    }
    let is_silent = client.played() + client.skipped() == 0;
    (seen.is_honest && is_silent && seen.let_in.is_some_and(|let_in| end >= let_in + LONG_AGO))
        .then(|| (Rule::PlaysOrSays, format!("{name} was let in, plays nothing and says nothing")))
}

/// Runs the case of `scenario`; none if it was interrupted.
fn run(scenario: &StreamScenario, monitor: &dyn Monitor) -> Option<(Soaked, Option<Failure>)> {
    let seed = scenario.seed;
    let end = Time::ZERO + scenario.duration;
    let look = |packets: u64, peers: Vec<Seen<'_>>| peers.iter().find_map(|seen| broken(seen, end, packets));
    let ran = catch_unwind(AssertUnwindSafe(|| run_and_look(scenario, monitor, look)));
    if monitor.is_interrupted() {
        return None;
    }
    let (measured, broken) = match ran {
        Ok((measured, broken)) => (measured, broken),
        Err(panic) => (Default::default(), Some((Rule::NoPanic, words_of(&*panic)))),
    };
    let metrics = measured.metrics;
    let soaked = Soaked {
        cases: 1,
        simulated_hours: scenario.duration.as_secs_f64() / 3600.0,
        viewers: metrics.clients,
        started: metrics.started,
        killed: metrics.killed,
        overloaded: metrics.overloaded.unwrap_or(0),
        forged: metrics.forged_packets,
        packet_hops: metrics.packet_hops,
        without_a_miss: u64::from(metrics.skipped_packets == 0),
        ..Soaked::default()
    };
    Some((soaked, broken.map(|(rule, what)| Failure { seed, rule, what })))
}

impl Soaked {
    fn add(&mut self, (other, failure): (Soaked, Option<Failure>)) {
        self.cases += other.cases;
        self.simulated_hours += other.simulated_hours;
        self.viewers += other.viewers;
        self.started += other.started;
        self.killed += other.killed;
        self.overloaded += other.overloaded;
        self.forged += other.forged;
        self.packet_hops += other.packet_hops;
        self.without_a_miss += other.without_a_miss;
        self.failures.extend(failure);
    }
}

/// Runs the cases of `first`, `first` + 1, ... on `threads` threads, as many as there are cores if none is given.
pub fn soak(first: u64, cases: u64, threads: Option<usize>, progress: &Progress) -> Soaked {
    let mut soaked = Soaked::default();
    ordered::run_counted(
        first,
        cases,
        threads,
        progress,
        |seed, monitor| run(&draw(seed), monitor),
        |ran| soaked.add(ran),
    );
    soaked.interrupted = progress.is_interrupted();
    soaked
}

#[cfg(test)]
mod tests {
    use super::super::planted::{self, Breaks};
    use super::*;

    /// Ten viewers of 20 s of a small stream, of whom some pass on what is not the source's.
    fn case() -> StreamScenario {
        let megabits = |count: u64| Rate::from_bits_per_sec(count * 1_000_000);
        let drawn = draw(1);
        StreamScenario {
            duration: Duration::SECOND * 25,
            stream: StreamConfig {
                bitrate: Rate::from_bits_per_sec(400_000),
                slices: 4,
                mode: Mode::Hybrid,
                buffer: Duration::SECOND * 2,
                controller: registry::find("cubic").expect("it is registered"),
                parameters: toml::Table::new(),
                exploration: None,
            },
            audience: Audience {
                clients: 10,
                arrival: Duration::SECOND,
                upload: Rates::InTurn(vec![megabits(2)]),
                upload_every: None,
                download: megabits(10),
                server_upload: megabits(2),
                span: Duration::from_millis(20),
                access: Duration::from_millis(5),
                loss: 0.0,
            },
            churn: Churn { mean_stay: None, kill_share: 0.0, kill_at: Duration::SECOND },
            liars: Liars { free_riders: 0.0, claimers: 0.0, claim_factor: 2.0, droppers: 0.0, poisoners: 0.6 },
            helper: None,
            ..drawn
        }
    }

    #[test]
    fn a_bug_for_each_rule_is_found_under_it_and_none_without_one() {
        let case = case();
        let (soaked, failure) = run(&case, &()).expect("nobody interrupts it");
        assert!(failure.is_none() && soaked.started > 5 && soaked.forged > 0, "{failure:?} {soaked:?}");
        for rule in [Rule::NoPanic, Rule::SoundTrees, Rule::Bounded, Rule::Genuine, Rule::PlaysOrSays] {
            let ran = planted::with(Breaks::Stream(rule), || run(&case, &())).expect("nobody interrupts it");
            let Some(Failure { seed, rule: broken, what }) = ran.1 else { panic!("{rule:?} is not found") };
            assert_eq!((seed, broken), (case.seed, rule), "{what}");
        }
    }
}
