//! What a coordinator knows of an agent, and how it has divided a link.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::budget::lease;
use super::counted::Counted;
use super::granted::Granted;
use super::message::{HostSeen, LinkSeen, Report, Seen};
use crate::session::SessionId;

/// What a packet is taken to have on the wire where agents count packets: the most that Ethernet has.
pub(super) const PACKET: u64 = 1514;

/// What has passed and what waits are read one after the other: so many bytes may be in neither, what 10 Gbit/s carry in
/// 120 us.
const MOST_IN_NEITHER: u64 = 100 * PACKET;

/// Reports in a row of a monitor in which bytes may be in neither, as while a busy machine does not come to count them: a
/// period of decisions.
const MOST_REPORTS_IN_NEITHER: u32 = 4;

/// An agent's count that is older than a period and this is counted from when it came: its reports wait in a queue, or its
/// clock is slow, and what others send would be seen as late as it says it is. As long as TCP waits at first (RFC 6298 2.1).
const MOST_LAG: Duration = Duration::SECOND;

/// What an agent says that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untruth {
    /// It reports what it is not there for: a host what a monitor sees, or the other way round.
    Duty,
    /// Its clock or its count went back.
    WentBack,
    /// Its clock falls behind, or its reports do: they count from when they come.
    Late,
    /// It is no report.
    Foreign,
}

/// What is known of an agent.
#[derive(Clone, Debug, Default)]
pub struct Known {
    pub(super) session: Option<SessionId>,
    pub(super) report: Option<(Report, Time)>,
    /// What it has sent, or what has passed over its link.
    pub(super) counted: Counted,
    /// What has come to its link, if it is a monitor: what has passed, what waits, and what was dropped, as far as it
    /// knows.
    pub(super) arrivals: Counted,
    /// It counts from when its reports come.
    pub(super) is_late: bool,
    /// Reports in a row that counted less than had come.
    in_neither: u32,
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
    /// A directive to it is to leave.
    pub(super) is_to_direct: bool,
    /// How often it was directed something new in this session.
    pub(super) words: u64,
    /// When an observer was last told of something that it said and that cannot be.
    pub(super) untrue_told: Option<Time>,
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

    /// Counts what it says at `now` of its time `at`, as it does each `period`. What was counted before is forgotten if that
    /// cannot be.
    pub(super) fn count(&mut self, now: Time, at: Duration, period: Duration, seen: &Seen) -> Result<(), Untruth> {
        let at = if self.is_late { now.since(Time::ZERO) } else { at };
        let goes_on = self.count_at(now, at, seen);
        if !self.is_late && self.counted.last().is_some_and(|last| now.since(last) > period + MOST_LAG) {
            (self.is_late, self.counted, self.arrivals) = (true, Counted::default(), Counted::default());
            self.count_at(now, now.since(Time::ZERO), seen);
            return Err(Untruth::Late);
        }
        if goes_on { Ok(()) } else { Err(Untruth::WentBack) }
    }

    fn count_at(&mut self, now: Time, at: Duration, seen: &Seen) -> bool {
        let (sent, arrived) = match seen {
            Seen::Host(host) => (host.sent, None),
            // Where a queue grows or is full, less passes than comes: what others send would be seen late, when the
            // hosts' packets before theirs have passed.
            Seen::Link(link) => {
                let waits =
                    link.queued.unwrap_or(Bytes::ZERO).get().saturating_add(link.dropped.saturating_mul(PACKET));
                (link.sent, Some(link.sent.get().saturating_add(waits)))
            }
        };
        let goes_on = self.counted.note(now, at, sent.get());
        let queue_was_known = self.link().is_some_and(|link| link.queued.is_some());
        let queue_is_known = matches!(seen, Seen::Link(LinkSeen { queued: Some(_), .. }));
        if !goes_on || queue_is_known != queue_was_known {
            // A queue that was not known before has not come just now.
            self.arrivals = Counted::default();
        }
        if let Some(arrived) = arrived {
            let before = self.arrivals.count();
            self.in_neither = if arrived < before { self.in_neither + 1 } else { 0 };
            // What is missing for longer, or is more, was never there, or was thrown away uncounted: `note` forgets.
            let may_be = before.saturating_sub(arrived) <= MOST_IN_NEITHER;
            let is_in_neither = may_be && (1..=MOST_REPORTS_IN_NEITHER).contains(&self.in_neither);
            self.arrivals.note(now, at, if is_in_neither { before } else { arrived });
        }
        goes_on
    }

    /// What has come to its link, or what has passed over it where that is not known from `from` on.
    pub(super) fn arrivals_from(&self, from: Time) -> &Counted {
        if self.arrivals.first().is_some_and(|first| first <= from) { &self.arrivals } else { &self.counted }
    }

    /// Whether it is known what it has sent from `from` on.
    pub(super) fn is_counted_from(&self, from: Time) -> bool {
        self.counted.last_span().is_some() && self.counted.first().is_some_and(|first| first <= from)
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
    /// What the rule takes them to send until the next decision.
    pub expected: Rate,
    /// What hosts with flows may send, those that have fallen silent with some and still have a lease among them.
    pub given: Rate,
    /// Whether a monitor tells what passes, or did and its session stands.
    pub is_monitored: bool,
}
