//! The agent of a host or of a link: reports, and keeps the host's budget.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::budget::{Budget, Ignored, period_after};
use super::message::{Datagram, Directive, Report, Seen, Terms};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions};

/// No coordinator gets reports more often, whatever its terms say.
pub const LEAST_PERIOD: Duration = Duration::from_millis(5);

/// Nor does one have to do with fewer.
pub const LONGEST_PERIOD: Duration = Duration::from_millis(1900);

/// How long after a session is over the next is tried, at first and at most. Up to as much again is added at
/// random, lest all agents come at once.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(10_000));

/// What is settled before the agent begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentConfig<A> {
    /// Where the coordinator is.
    pub coordinator: A,
    /// The key that it must prove to have.
    pub key: PeerKey,
    /// What the host follows at most, whatever it is told.
    pub limit: Option<Rate>,
}

/// What a driver is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// The coordinator takes reports.
    Enrolled(Terms),
    /// The host's budget, until it ends or another is told.
    Directed(Directive, Time),
    /// The lease is over: congestion control is local.
    Alone,
    /// A directive was not followed.
    Ignored(Ignored),
    /// There is no session; another is tried.
    Unreachable(Closed),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The next attempt.
    Waiting(Time),
    Opening(SessionId),
    /// Reports leave once terms are known.
    Open(SessionId, Option<Terms>),
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Agent<A> {
    config: AgentConfig<A>,
    state: State,
    /// Attempts since a session stood.
    attempts: u32,
    budget: Budget,
    seen: Option<(Seen, Time)>,
    number: u64,
    reported: Time,
    next: Time,
    is_due: bool,
    rng: Rng,
}

impl<A> Agent<A> {
    /// One that begins at once. Random numbers are functions of `rng`.
    pub fn new(config: AgentConfig<A>, rng: &Rng) -> Agent<A> {
        Agent {
            config,
            state: State::Waiting(Time::ZERO),
            attempts: 0,
            budget: Budget::default(),
            seen: None,
            number: 0,
            reported: Time::ZERO,
            next: Time::ZERO,
            is_due: false,
            rng: Rng::indexed(rng.numbered(0), "agent", 0),
        }
    }

    /// What was seen by `now`. It is reported when a report is due; flows that begin or end, sooner.
    pub fn set_seen(&mut self, now: Time, seen: Seen) {
        let flows = |seen: &Seen| match seen {
            Seen::Host(host) => host.flows,
            Seen::Link(_) => 0,
        };
        let is_news = self.seen.is_none_or(|(before, _)| flows(&before) != flows(&seen));
        self.seen = Some((seen, now));
        if is_news && let State::Open(_, Some(terms)) = self.state {
            self.next = self.next.min((self.reported + self.pace(&terms, self.number) / 4).max(now));
        }
    }

    /// The host's budget, while there is one.
    pub fn budget(&self) -> Option<(Directive, Time)> {
        self.budget.held()
    }

    /// Whether a session with the coordinator stands.
    pub fn is_enrolled(&self) -> bool {
        matches!(self.state, State::Open(_, Some(_)))
    }

    /// How long after the report with that number the next one comes.
    fn pace(&self, terms: &Terms, number: u64) -> Duration {
        let every = terms.every.max(LEAST_PERIOD).min(LONGEST_PERIOD);
        self.budget.held().map_or(every, |(directive, _)| period_after(number, every, directive.rate))
    }

    /// A report is not due later than a period from now, which may be shorter than the one before.
    fn hasten(&mut self, now: Time) {
        if let State::Open(_, Some(terms)) = self.state {
            self.next = self.next.min(now + self.pace(&terms, self.number));
        }
    }

    fn retry(&mut self, now: Time) {
        let (first, most) = RETRY;
        let wait = (first * (1 << self.attempts.min(16))).min(most);
        self.attempts += 1;
        let more = Duration::from_nanos(self.rng.below(wait.as_nanos() as usize) as u64);
        self.state = State::Waiting(now + wait + more);
    }
}

impl<A: Copy + Eq + core::fmt::Debug> Application for Agent<A> {
    type Address = A;
    type Message = Terms;
    type Datagram = Datagram;
    type Event = AgentEvent;

    fn accepts(&mut self, _: Time, _: &Remote<A>) -> bool {
        false
    }

    fn on_open(&mut self, now: Time, session: SessionId, _: &Remote<A>, _: &mut impl Sessions<Self>) {
        (self.state, self.number, self.reported) = (State::Open(session, None), 0, now);
    }

    fn on_message(&mut self, now: Time, session: SessionId, terms: Terms, sessions: &mut impl Sessions<Self>) {
        if let State::Open(open, _) = self.state
            && open == session
        {
            self.state = State::Open(session, Some(terms));
            self.budget.begin(terms.epoch);
            (self.attempts, self.next) = (0, now);
            sessions.event(AgentEvent::Enrolled(terms));
        }
    }

    fn on_datagram(&mut self, now: Time, session: SessionId, datagram: Datagram, sessions: &mut impl Sessions<Self>) {
        let (Datagram::Directive(directive), State::Open(open, _)) = (datagram, self.state) else { return };
        if open != session {
            return;
        }
        match self.budget.take(now, directive, self.config.limit) {
            Ok(()) => {
                self.hasten(now);
                if let Some((held, ends)) = self.budget.held() {
                    sessions.event(AgentEvent::Directed(held, ends));
                }
            }
            Err(ignored) => sessions.event(AgentEvent::Ignored(ignored)),
        }
    }

    fn on_closed(&mut self, now: Time, _: SessionId, why: Closed, sessions: &mut impl Sessions<Self>) {
        self.retry(now);
        sessions.event(AgentEvent::Unreachable(why));
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        if self.budget.expire(now) {
            self.hasten(now);
            sessions.event(AgentEvent::Alone);
        }
        match self.state {
            State::Waiting(at) if at <= now => match sessions.open(self.config.coordinator, Some(self.config.key)) {
                Some(session) => self.state = State::Opening(session),
                None => self.retry(now),
            },
            State::Open(_, Some(terms)) if self.next <= now => {
                self.is_due = true;
                self.next = now + self.pace(&terms, self.number + 1);
            }
            _ => {}
        }
    }

    fn timer(&self, _: Time) -> Time {
        let own = match self.state {
            State::Waiting(at) => at,
            State::Open(_, Some(_)) => self.next,
            State::Opening(_) | State::Open(_, None) => Time::MAX,
        };
        own.min(self.budget.ends())
    }

    fn waiting(&self) -> Bytes {
        Bytes::ZERO
    }

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Datagram)> {
        let State::Open(session, Some(terms)) = self.state else { return None };
        if !core::mem::take(&mut self.is_due) {
            return None;
        }
        let (seen, at) = self.seen?;
        self.number += 1;
        self.reported = now;
        let at = at.since(Time::ZERO);
        Some((
            session,
            Datagram::Report(Report { number: self.number, at, period: self.pace(&terms, self.number), seen }),
        ))
    }
}
