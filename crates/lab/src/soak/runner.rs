//! Many cases on all cores, and what became of them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use anabranch_control::time::Duration;
use serde::Serialize;

use super::case::Case;
use super::invariants::Invariant;
use super::liar::Lie;
use super::network::FabricKind;
use super::ordered::{self, Counted, Watch};
use super::transfer::{self, Ending, Ran};
use crate::parallel::Progress;

/// How long a soak is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// Simulated hours, and what is left of the last case.
    Hours(f64),
    /// Cases.
    Cases(u64),
}

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Repeats the case.
    pub seed: u64,
    /// The rule.
    pub invariant: Invariant,
    /// How it was broken.
    pub what: String,
}

/// How often what went wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Troubles {
    /// Messages that were lost.
    pub lost: u64,
    /// Messages that came twice.
    pub duplicated: u64,
    /// Messages that came later.
    pub reordered: u64,
    /// Messages with a flipped bit.
    pub corrupted: u64,
    /// Messages between two parts of a network.
    pub partitioned: u64,
    /// Networks that fell apart.
    pub partitions: u64,
    /// Nodes that crashed.
    pub crashes: u64,
    /// Nodes that came back.
    pub restarts: u64,
    /// Transfers that ended with a file of which a part was there from before.
    pub resumed: u64,
    /// Disks that were slow, receivers' and senders'.
    pub slow_disks: u64,
    /// Relays that lied, by lie.
    pub liars: BTreeMap<Lie, u64>,
}

/// What a soak did.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Soaked {
    /// Cases that were run to their end.
    pub cases: u64,
    /// Of those, by what lay between the nodes.
    pub fabrics: BTreeMap<FabricKind, u64>,
    /// Simulated hours.
    pub simulated_hours: f64,
    /// Of those, with a transfer under way.
    pub under_way_hours: f64,
    /// Transfers that were begun.
    pub transfers: u64,
    /// Files that were published.
    pub published: u64,
    /// How cases ended.
    pub endings: BTreeMap<Ending, u64>,
    /// Messages, timers and jobs.
    pub events: u64,
    /// Jobs that disks have done.
    pub jobs: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// The longest time in seconds from calm to the end, and its seed.
    pub longest_after_calm_s: (f64, u64),
    /// What went wrong from outside.
    pub troubles: Troubles,
    /// Broken rules, in the order of their seeds.
    pub failures: Vec<Failure>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

impl Soaked {
    pub(super) fn add(&mut self, ran: Ran) {
        let hours = |span: Duration| span.as_secs_f64() / 3600.0;
        self.cases += 1;
        *self.fabrics.entry(ran.fabric).or_default() += 1;
        self.simulated_hours += hours(ran.simulated);
        self.under_way_hours += hours(ran.under_way);
        self.transfers += ran.transfers;
        self.published += ran.published;
        self.events += ran.events;
        self.jobs += ran.jobs;
        self.unreadable += ran.unreadable;
        if let Some(ending) = ran.ending {
            *self.endings.entry(ending).or_default() += 1;
        }
        let after_calm = ran.after_calm.as_secs_f64();
        if after_calm > self.longest_after_calm_s.0 {
            self.longest_after_calm_s = (after_calm, ran.seed);
        }
        let troubles = &mut self.troubles;
        troubles.lost += ran.faults.lost;
        troubles.duplicated += ran.faults.duplicated;
        troubles.reordered += ran.faults.reordered;
        troubles.corrupted += ran.faults.corrupted;
        troubles.partitioned += ran.faults.partitioned;
        troubles.partitions += ran.partitions;
        troubles.crashes += ran.crashes;
        troubles.restarts += ran.restarts;
        troubles.resumed += ran.resumed;
        troubles.slow_disks += ran.slow_disks;
        for lie in ran.lies {
            *troubles.liars.entry(lie).or_default() += 1;
        }
        if let Some(violation) = ran.violation {
            self.failures.push(Failure { seed: ran.seed, invariant: violation.invariant, what: violation.what });
        }
    }
}

/// Runs the cases of `first`, `first` + 1, ... on `threads` threads, as many as there are cores if
/// none is given. `progress` counts simulated seconds for hours, cases for cases.
pub fn soak(first: u64, length: Length, threads: Option<usize>, progress: &Progress) -> Soaked {
    let mut soaked = Soaked::default();
    match length {
        Length::Cases(cases) => {
            let case = |seed, monitor: &Watch<'_>| transfer::run(&Case::draw(seed), monitor);
            ordered::run_counted(first, cases, threads, progress, case, |ran| soaked.add(ran));
        }
        Length::Hours(hours) => {
            progress.total.fetch_add((hours * 3600.0) as u64, Ordering::Relaxed);
            let case = |number: u64, watch: &Watch<'_>| transfer::run(&Case::draw(first.wrapping_add(number)), watch);
            ordered::run(u64::MAX, threads, progress, Counted::Seconds, case, |ran| {
                soaked.add(ran);
                if soaked.simulated_hours < hours { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
        }
    }
    soaked.interrupted = progress.is_interrupted();
    soaked
}
