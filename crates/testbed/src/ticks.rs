//! When a thread of a run must look at something.

use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowScenario;

/// When rows of the series are due, and goodput begins to count: the same for every thread.
/// Senders make their coordinator's decisions beside.
#[derive(Clone, Copy, Debug)]
pub struct Ticks {
    every: Option<Duration>,
    row: Time,
    goodput_from: Time,
    steer_every: Duration,
    steering: Time,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// A row of the series.
    Row,
    /// Goodput begins to count.
    Goodput,
    /// A decision of the coordinator.
    Steering,
}

impl Ticks {
    /// Without a coordinator.
    pub fn new(scenario: &FlowScenario) -> Ticks {
        let every = scenario.sample_every;
        let row = every.map_or(Time::MAX, |every| Time::ZERO + every);
        let (steer_every, steering) = (Duration::ZERO, Time::MAX);
        Ticks { every, row, goodput_from: scenario.goodput_from, steer_every, steering }
    }

    /// With the scenario's coordinator, if it has one.
    pub fn steered(scenario: &FlowScenario) -> Ticks {
        match &scenario.steering {
            Some(steering) => Ticks { steer_every: steering.every, steering: Time::ZERO, ..Ticks::new(scenario) },
            None => Ticks::new(scenario),
        }
    }

    /// The same, and a look at the coordinator's word each `every`.
    pub fn looking_each(self, every: Duration) -> Ticks {
        Ticks { steer_every: every, steering: Time::ZERO, ..self }
    }

    /// When something is due.
    pub fn next(&self) -> Time {
        self.row.min(self.goodput_from).min(self.steering)
    }

    /// When a row is due.
    pub fn next_row(&self) -> Time {
        self.row
    }

    /// What is due at `now`, in order; none if nothing is any more.
    pub fn pop(&mut self, now: Time) -> Option<Tick> {
        let next = self.next();
        if next > now {
            return None;
        }
        if next == self.goodput_from {
            self.goodput_from = Time::MAX;
            return Some(Tick::Goodput);
        }
        if next == self.row {
            self.row += self.every.expect("rows are due only where there are any");
            return Some(Tick::Row);
        }
        // Decisions that were missed are not made up for.
        while self.steering <= now {
            self.steering += self.steer_every;
        }
        Some(Tick::Steering)
    }
}
