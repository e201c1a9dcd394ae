//! Coordinator or agent: what drivers and simulated worlds hold that carry both.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::agent::{Agent, AgentEvent};
use super::coordinator::{Coordinator, CoordinatorEvent};
use super::message::{Datagram, Terms};
use crate::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions, either_application};

/// One end of a coordinator's sessions.
#[derive(Clone, Debug)]
pub enum CoordinationPeer<A> {
    /// The one that decides.
    Coordinator(Box<Coordinator<A>>),
    /// One that reports.
    Agent(Box<Agent<A>>),
}

/// What a peer tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinationEvent {
    /// The coordinator.
    Coordinator(CoordinatorEvent),
    /// An agent.
    Agent(AgentEvent),
}

impl From<CoordinatorEvent> for CoordinationEvent {
    fn from(event: CoordinatorEvent) -> CoordinationEvent {
        CoordinationEvent::Coordinator(event)
    }
}

impl From<AgentEvent> for CoordinationEvent {
    fn from(event: AgentEvent) -> CoordinationEvent {
        CoordinationEvent::Agent(event)
    }
}

/// What either may do: its events become the peer's.
struct Inner<'a, S>(&'a mut S);

impl<A, P, S> Sessions<P> for Inner<'_, S>
where
    P: Application<Address = A, Message = Terms, Datagram = Datagram, Event: Into<CoordinationEvent>>,
    A: Copy + Eq + core::fmt::Debug,
    S: Sessions<CoordinationPeer<A>>,
{
    fn open(&mut self, to: A, key: Option<PeerKey>) -> Option<SessionId> {
        self.0.open(to, key)
    }

    fn send(&mut self, session: SessionId, message: Terms) {
        self.0.send(session, message);
    }

    fn close(&mut self, session: SessionId) {
        self.0.close(session);
    }

    fn least_round_trip(&self, session: SessionId) -> Option<Duration> {
        self.0.least_round_trip(session)
    }

    fn delivered(&self) -> Bytes {
        self.0.delivered()
    }

    fn event(&mut self, event: P::Event) {
        self.0.event(event.into());
    }
}

either_application! {
    impl[A: Copy + Eq + core::fmt::Debug] for CoordinationPeer<A> { Coordinator, Agent };
    A, Terms, Datagram, CoordinationEvent
}
