//! A coordinator and its agents while everything goes wrong: reports and directives are lost and overtake each
//! other, networks fall apart and heal, the coordinator and hosts crash and come back. A case is a function of its
//! seed. Hosts send as directed, or what they want when they are alone; packets of theirs are not simulated.
//!
//! Rules: nobody panics, and all get on; no lease holds longer than it may; no share is more than its host may have; what is
//! kept is bounded; and when nothing has gone wrong for a while, all are steered again, and what they are told
//! fits the link and fills it, unless a policy decides, as in three of ten cases.

mod case;
mod rest;
mod stage;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};

use anabranch_control::time::Duration;
use anabranch_sim::fabric::NodeId;
use serde::Serialize;

use self::stage::{Counted, Stage};
use super::ordered::{self, words_of};
use crate::monitor::Monitor;
use crate::parallel::Progress;

pub use self::case::{Case, Trouble};

/// How long troubles may begin, and for how long nothing goes wrong after them: an idle timeout, the longest time
/// between two attempts, and some.
const TROUBLED: Duration = Duration::from_millis(60_000);
const CALM: Duration = Duration::from_millis(40_000);

/// How often hosts and monitors look at what has passed.
const TICK: Duration = Duration::from_millis(10);

/// Packets and timers in a tick at most: a hundred for each of a hundred peers.
const MOST_EVENTS: u64 = 10_000;

const COORDINATOR: NodeId = NodeId(0);

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// No machine panics, whatever happens.
    NoPanic,
    /// A tick has a bounded number of events: no timer is set again to the instant at which it came.
    GetsOn,
    /// A lease ends, and no later than it may.
    LeasesEnd,
    /// A share is no more than its host may have, nor than the link carries.
    Shares,
    /// The coordinator keeps a bounded number of sessions.
    Bounded,
    /// When nothing goes wrong any more, all are steered.
    Recovers,
    /// What hosts with flows may send then fits the link beside other traffic, and fills it, where the rule decides.
    Fills,
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

/// What a soak did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Soaked {
    /// Cases that were run to their end.
    pub cases: u64,
    /// Simulated hours.
    pub simulated_hours: f64,
    /// Directives that were followed.
    pub directives: u64,
    /// Directives that came too late, or from an earlier life.
    pub ignored: u64,
    /// Leases that ended.
    pub leases_ended: u64,
    /// Messages that were lost.
    pub lost: u64,
    /// Crashes of coordinators.
    pub coordinator_crashes: u64,
    /// Crashes of agents.
    pub agent_crashes: u64,
    /// Partitions.
    pub partitions: u64,
    /// Links that could not be judged, since delays that vary ended leases to the end and beyond.
    pub never_at_rest: u64,
    /// Broken rules, in the order of their seeds.
    pub failures: Vec<Failure>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

fn run(case: &Case, monitor: &dyn Monitor) -> Option<Soaked> {
    let seed = case.seed;
    let ran = catch_unwind(AssertUnwindSafe(|| {
        let mut stage = Stage::new(case);
        let outcome = stage.play(monitor);
        let Counted { directives, ignored, leases_ended } = *stage.world.observer();
        let lost = stage.world.carrier_mut().lost;
        let simulated_hours = stage.played.as_secs_f64() / 3600.0;
        (Soaked { simulated_hours, directives, ignored, leases_ended, lost, ..stage.soaked }, outcome.err())
    }));
    if monitor.is_interrupted() {
        return None;
    }
    let (soaked, broken) = ran.unwrap_or_else(|panic| (Soaked::default(), Some((Rule::NoPanic, words_of(&*panic)))));
    let failures = broken.map(|(rule, what)| Failure { seed, rule, what }).into_iter().collect();
    Some(Soaked { cases: 1, failures, ..soaked })
}

impl Soaked {
    fn add(&mut self, other: Soaked) {
        self.cases += other.cases;
        self.simulated_hours += other.simulated_hours;
        self.directives += other.directives;
        self.ignored += other.ignored;
        self.leases_ended += other.leases_ended;
        self.lost += other.lost;
        self.coordinator_crashes += other.coordinator_crashes;
        self.agent_crashes += other.agent_crashes;
        self.partitions += other.partitions;
        self.never_at_rest += other.never_at_rest;
        self.failures.extend(other.failures);
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
        |seed, monitor| run(&Case::draw(seed), monitor),
        |ran| soaked.add(ran),
    );
    soaked.interrupted = progress.is_interrupted();
    soaked
}
