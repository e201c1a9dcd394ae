//! A coordinator or an agent that runs, in the thread of whoever calls [`CoordinationNode::turn`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_control::flow::registry::{self, Setup};
use anabranch_control::registry::UnknownController;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::coordination::agent::{Agent, AgentConfig};
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorConfig};
use anabranch_proto::coordination::message::Seen;
use anabranch_proto::coordination::peer::{CoordinationEvent, CoordinationPeer};
use anabranch_proto::coordination::session_config;
use anabranch_proto::session::{Closed, SessionConfig};

use crate::pool::NoWork;
use crate::routes::{outgoing, reachable};
use crate::runtime::Runtime;
use crate::sessions::QuicSessions;
use crate::sessions::identity::PeerIdentity;
use crate::setup::random_seed;
use crate::stream::link::{Link, LinkError};
use crate::udp::Socket;

/// The controller of what is said here: a report and a directive at a time, which no controller holds back for long.
const CONTROLLER: &str = "cubic";

/// How long a goodbye may take to leave.
const GOODBYE: Duration = Duration::from_millis(50);

/// Why a coordinator or an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum CoordinationError {
    /// The socket.
    #[error("cannot listen at {address}: {why}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why not.
        why: io::Error,
    },
    /// The system.
    #[error("cannot run: {0}")]
    System(#[from] io::Error),
    /// The key.
    #[error("TLS cannot use this key: {0}")]
    Key(#[from] rustls::Error),
    /// The link.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// No address of the link is of a network that this host is in.
    #[error("this host has no route to {0}")]
    NoRoute(Link),
    /// The controller of what is said here is not there.
    #[error("{0}")]
    Controller(#[from] UnknownController),
}

/// One that runs.
pub struct CoordinationNode {
    runtime: Runtime<QuicSessions<CoordinationPeer<SocketAddr>>>,
    link: Link,
    local: SocketAddr,
}

impl CoordinationNode {
    /// A coordinator of those in `config`, at `listen`.
    ///
    /// # Errors
    ///
    /// When the system does not let it run.
    ///
    /// # Panics
    ///
    /// As [`Coordinator::new`]; [`super::file`] refuses such settings.
    pub fn coordinate(
        config: CoordinatorConfig,
        identity: &PeerIdentity,
        listen: SocketAddr,
    ) -> Result<CoordinationNode, CoordinationError> {
        let socket = Socket::bind(listen).and_then(Socket::serving);
        let socket = socket.map_err(|why| CoordinationError::Listen { address: listen, why })?;
        let link = Link::new(identity.public(), &[reachable(socket.local_addr()?)])?;
        let sessions = session_config(config.members.len());
        let peer = CoordinationPeer::Coordinator(Box::new(Coordinator::new(config)));
        CoordinationNode::start(peer, sessions, identity, link, socket)
    }

    /// An agent of the coordinator at `link`, whose host follows no more than `limit`.
    ///
    /// # Errors
    ///
    /// When the link leads nowhere, or the system does not let it run.
    pub fn agent(
        link: Link,
        identity: &PeerIdentity,
        limit: Option<Rate>,
    ) -> Result<CoordinationNode, CoordinationError> {
        CoordinationNode::agent_at(None, link, identity, limit)
    }

    /// The same with a socket at the `local` address, or at all of the host's.
    ///
    /// # Errors
    ///
    /// As [`CoordinationNode::agent`].
    pub fn agent_at(
        local: Option<IpAddr>,
        link: Link,
        identity: &PeerIdentity,
        limit: Option<Rate>,
    ) -> Result<CoordinationNode, CoordinationError> {
        let coordinator = link.look_up()?.into_iter().find(|address| outgoing(*address).is_some());
        let coordinator = coordinator.ok_or_else(|| CoordinationError::NoRoute(link.clone()))?;
        let any: IpAddr =
            if coordinator.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let address = SocketAddr::new(local.unwrap_or(any), 0);
        let socket = Socket::bind(address).map_err(|why| CoordinationError::Listen { address, why })?;
        let agent = AgentConfig { coordinator, key: link.key, limit };
        let peer = CoordinationPeer::Agent(Box::new(Agent::new(agent, &Rng::stream(random_seed(), "agent"))));
        CoordinationNode::start(peer, session_config(1), identity, link, socket)
    }

    fn start(
        peer: CoordinationPeer<SocketAddr>,
        sessions: SessionConfig,
        identity: &PeerIdentity,
        link: Link,
        socket: Socket,
    ) -> Result<CoordinationNode, CoordinationError> {
        let local = socket.local_addr()?;
        let setup = Setup::new(SessionConfig::PACKET, Time::ZERO).shared();
        let controller = registry::find(CONTROLLER)?.make(&setup, &toml::Table::new());
        let controller = controller.map_err(|why| io::Error::other(format!("{CONTROLLER}: {why}")))?;
        let rng = Rng::stream(random_seed(), "coordination");
        let sessions = QuicSessions::new(peer, sessions, identity, local, controller, &rng)?;
        let mut runtime = Runtime::new(NoWork)?;
        runtime.add_gathering_in_order(socket, sessions)?;
        Ok(CoordinationNode { runtime, link, local })
    }

    /// Where agents find the coordinator.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Now, on its clock.
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// What runs.
    pub fn peer(&self) -> &CoordinationPeer<SocketAddr> {
        self.runtime.machine(0).app()
    }

    /// What an agent has just seen; a coordinator sees nothing by itself.
    pub fn set_seen(&mut self, seen: Seen) {
        self.runtime.act(0, |sessions, now, port| {
            sessions.act(now, port, |peer, _| {
                if let CoordinationPeer::Agent(agent) = peer {
                    agent.set_seen(now, seen);
                }
            });
        });
    }

    /// Does what is due, then waits for something to happen, at most until `until`.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        self.runtime.turn(until)
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<CoordinationEvent> {
        self.runtime.poll_event().map(|(_, event)| event)
    }

    /// Why the last session was over.
    pub fn last_end(&self) -> Option<Closed> {
        self.runtime.machine(0).last_end()
    }

    /// Says goodbye, and stops.
    ///
    /// # Errors
    ///
    /// As [`CoordinationNode::turn`].
    pub fn stop(mut self) -> io::Result<()> {
        self.runtime.act(0, |sessions, now, port| sessions.close_all(now, port));
        let end = self.runtime.now() + GOODBYE;
        self.runtime.run_until(end)
    }
}
