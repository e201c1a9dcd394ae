//! What a coordinator knows of an agent, and how it has divided a link.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::budget::lease;
use super::counted::Counted;
use super::granted::Granted;
use super::message::{HostSeen, LinkSeen, Report, Seen};
use crate::session::SessionId;

/// What is known of an agent.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub(super) session: Option<SessionId>,
    pub(super) report: Option<(Report, Time)>,
    /// What it has sent, or what has passed over its link.
    pub(super) counted: Counted,
    /// What of it was lost; a policy alone asks.
    pub(super) lost: Counted,
    /// Whether it has reported round trips in this session.
    pub(super) has_round_trips: bool,
    /// What it was directed last, and until when that holds.
    pub(super) budget: Option<(Rate, Time)>,
    /// What it was directed until now.
    pub(super) granted: Granted,
    /// How long after it was directed a count shows what it did.
    pub(super) round_trip: Duration,
    /// What was decided last that it may send.
    pub(super) decided: Rate,
    /// When it is directed again at the soonest.
    pub(super) next: Time,
    /// How often it was directed something new in this session.
    pub(super) words: u64,
}

impl Known {
    /// Whether there is a session.
    pub fn is_here(&self) -> bool {
        self.session.is_some()
    }

    /// Its last report, and when that came.
    pub fn report(&self) -> Option<(Report, Time)> {
        self.report
    }

    /// What it sent, or what passed over its link, between its last two reports.
    pub fn rate(&self) -> Rate {
        self.counted.rate()
    }

    /// What it may send, and until when.
    pub fn budget(&self) -> Option<(Rate, Time)> {
        self.budget
    }

    /// Whether what was heard of it is still worth something.
    pub fn is_fresh(&self, now: Time) -> bool {
        self.report.is_some_and(|(report, at)| now.since(at) < lease(report.period))
    }

    /// Whether it has a lease.
    pub(super) fn is_directed(&self, now: Time) -> bool {
        self.budget.is_some_and(|(_, ends)| ends > now)
    }

    /// Bytes that it sent between two instants, if it goes on after its last report as it did before. None without
    /// two reports.
    pub(super) fn sent(&self, from: Time, to: Time) -> Option<f64> {
        let (before, last) = self.counted.last_span()?;
        if to <= last {
            return self.counted.between(from, to);
        }
        let reported = if from < last { self.counted.between(from, last)? } else { 0.0 };
        if self.host().is_some_and(|host| host.flows == 0) {
            return Some(reported);
        }
        let did = self.counted.between(before, last)?;
        let goes_on = |until: Time| self.granted.continued(did, before, last, until.max(last));
        Some(reported + goes_on(to) - goes_on(from))
    }

    pub(super) fn host(&self) -> Option<HostSeen> {
        match self.report?.0.seen {
            Seen::Host(host) => Some(host),
            Seen::Link(_) => None,
        }
    }

    pub(super) fn link(&self) -> Option<LinkSeen> {
        match self.report?.0.seen {
            Seen::Link(link) => Some(link),
            Seen::Host(_) => None,
        }
    }
}

/// How a link was divided at the last decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divided {
    /// What the link carries.
    pub capacity: Rate,
    /// What others than the hosts send over it.
    pub other: Rate,
    /// What hosts with flows, and those that are silent and still have a lease, may send.
    pub given: Rate,
    /// Whether a monitor tells what passes, or did and its session stands.
    pub is_monitored: bool,
}
