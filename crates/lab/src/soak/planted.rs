//! Bugs in peers of live streams and of coordination, one for each rule of their soaks: each is found under its
//! rule, and without one the same case breaks none.
//!
//! A bug is planted for what runs on this thread; the machines ask whether it is theirs.

use core::fmt::Debug;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::coordinator::{CoordinatorConfig, Duty};
use anabranch_proto::network::Address;
use anabranch_proto::session::{Application, Closed, PeerKey, Remote, SessionConfig, SessionId, Sessions};
use anabranch_proto::stream::client::{Client, ClientConfig};
use anabranch_proto::stream::content::Content;
use anabranch_proto::stream::server::Server;

use super::{coordination, streams};

/// The rule that a bug breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaks {
    Stream(streams::Rule),
    Coordination(coordination::Rule),
}

thread_local! {
    static PLANTED: Cell<Option<Breaks>> = const { Cell::new(None) };
}

/// Whether this bug is planted.
pub fn is(bug: Breaks) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether any is.
pub fn is_any() -> bool {
    PLANTED.get().is_some()
}

/// Whether this bug is planted in streams.
pub fn in_streams(rule: streams::Rule) -> bool {
    is(Breaks::Stream(rule))
}

fn in_coordination(rule: coordination::Rule) -> bool {
    is(Breaks::Coordination(rule))
}

/// What `run` comes to with `bug`.
pub fn with<R>(bug: Breaks, run: impl FnOnce() -> R) -> R {
    PLANTED.set(Some(bug));
    let ran = catch_unwind(AssertUnwindSafe(run));
    PLANTED.set(None);
    ran.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Sessions of a peer that forgets none, if that is planted for it.
pub fn stream_sessions(config: SessionConfig) -> SessionConfig {
    match in_streams(streams::Rule::Bounded) {
        true => SessionConfig { most_sessions: 100_000, ..config },
        false => config,
    }
}

/// Begins a viewer anew without a word, if that is planted.
pub fn forget<A: Copy + Eq + Debug, C: Content>(client: &mut Client<A, C>, config: ClientConfig<A>) {
    if in_streams(streams::Rule::PlaysOrSays) {
        *client = Client::new(config);
    }
}

/// Counts a child too many in the trees, if that is planted.
pub fn miscount<A: Address, C: Content>(server: &mut Server<A, C>) {
    if in_streams(streams::Rule::SoundTrees) {
        server.miscount();
    }
}

/// The same of a coordinator.
pub fn coordination_sessions(config: SessionConfig) -> SessionConfig {
    match in_coordination(coordination::Rule::Bounded) {
        true => SessionConfig { most_sessions: 100_000, idle_timeout: Duration::SECOND * 10_000, ..config },
        false => config,
    }
}

/// What a coordinator goes by, which should be `config`.
pub fn coordinator(mut config: CoordinatorConfig) -> CoordinatorConfig {
    if in_coordination(coordination::Rule::Shares) {
        // It takes a host's most for more than it is.
        for member in &mut config.members {
            if let Duty::Host { most, .. } = &mut member.duty {
                *most = Rate::from_bits_per_sec(most.bits_per_sec() * 2);
            }
        }
    }
    if in_coordination(coordination::Rule::Fills) {
        // It takes the link for less than it is.
        for link in &mut config.links {
            link.capacity = Rate::from_bits_per_sec(link.capacity.bits_per_sec() / 2);
        }
    }
    config
}

/// An application with a bug that is planted in it.
#[derive(Clone, Debug)]
pub struct Buggy<P> {
    /// The application itself.
    pub app: P,
    /// Sessions that it has opened without need.
    opened: u32,
}

impl<P> Buggy<P> {
    /// `app`, with whatever bug is planted.
    pub fn new(app: P) -> Buggy<P> {
        Buggy { app, opened: 0 }
    }
}

/// Its sessions, as the application within uses them.
struct Inner<'a, S>(&'a mut S);

impl<P: Application, S: Sessions<Buggy<P>>> Sessions<P> for Inner<'_, S> {
    fn open(&mut self, to: P::Address, key: Option<PeerKey>) -> Option<SessionId> {
        self.0.open(to, key)
    }

    fn send(&mut self, session: SessionId, message: P::Message) {
        self.0.send(session, message);
    }

    fn close(&mut self, session: SessionId) {
        // What it has no use for it should let go of.
        if in_coordination(coordination::Rule::Bounded) {
            return;
        }
        self.0.close(session);
    }

    fn least_round_trip(&self, session: SessionId) -> Option<Duration> {
        self.0.least_round_trip(session)
    }

    fn delivered(&self) -> Bytes {
        self.0.delivered()
    }

    fn event(&mut self, event: P::Event) {
        self.0.event(event);
    }
}

impl<P: Application> Application for Buggy<P> {
    type Address = P::Address;
    type Message = P::Message;
    type Datagram = P::Datagram;
    type Event = P::Event;

    fn accepts(&mut self, now: Time, remote: &Remote<P::Address>) -> bool {
        self.app.accepts(now, remote)
    }

    fn on_open(
        &mut self,
        now: Time,
        session: SessionId,
        remote: &Remote<P::Address>,
        sessions: &mut impl Sessions<Self>,
    ) {
        assert!(!in_coordination(coordination::Rule::NoPanic), "a planted panic");
        if in_coordination(coordination::Rule::Bounded) && !remote.is_initiator && self.opened < MOST_OPENED {
            // As soon as it has a session, it asks for another; the first is the one that it uses.
            let _ = sessions.open(remote.address, None);
            self.opened += 1;
            if self.opened > 1 {
                return;
            }
        }
        self.app.on_open(now, session, remote, &mut Inner(sessions));
    }

    fn on_message(&mut self, now: Time, session: SessionId, message: P::Message, sessions: &mut impl Sessions<Self>) {
        // It is deaf to the terms that it would be steered under.
        if !in_coordination(coordination::Rule::Recovers) {
            self.app.on_message(now, session, message, &mut Inner(sessions));
        }
    }

    fn on_datagram(
        &mut self,
        now: Time,
        session: SessionId,
        datagram: P::Datagram,
        sessions: &mut impl Sessions<Self>,
    ) {
        self.app.on_datagram(now, session, datagram, &mut Inner(sessions));
    }

    fn on_silent(&mut self, now: Time, session: SessionId, is_silent: bool, sessions: &mut impl Sessions<Self>) {
        self.app.on_silent(now, session, is_silent, &mut Inner(sessions));
    }

    fn on_closed(&mut self, now: Time, session: SessionId, why: Closed, sessions: &mut impl Sessions<Self>) {
        self.app.on_closed(now, session, why, &mut Inner(sessions));
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        // It sleeps through the end of its lease, once it has begun.
        if !(in_coordination(coordination::Rule::LeasesEnd) && now > LATE) {
            self.app.on_timer(now, &mut Inner(sessions));
        }
    }

    fn timer(&self, now: Time) -> Time {
        // There is always something to do, once it has begun.
        if in_coordination(coordination::Rule::GetsOn) && now > LATE {
            return now;
        }
        match in_coordination(coordination::Rule::LeasesEnd) && now > LATE {
            true => Time::MAX,
            false => self.app.timer(now),
        }
    }

    fn waiting(&self) -> Bytes {
        self.app.waiting()
    }

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, P::Datagram)> {
        self.app.next_datagram(now)
    }
}

/// When peers have begun.
const LATE: Time = Time::from_nanos(5_000_000_000);

/// More sessions than a coordinator should have of a member.
const MOST_OPENED: u32 = 20;
