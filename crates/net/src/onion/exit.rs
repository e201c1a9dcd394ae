//! An exit's connections: to what its policy allows, with names resolved here, and no more than its bounds.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_onion::session::{Exit, ExitEvent, Reason, SessionName, StreamEvent, Target};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::pipe::{self, ConnectionId, FromTask, INBOX, Inbox, Outbox};
use super::policy::Policy;
use super::streams::Streams;

/// A name is resolved within so long, or not at all.
const RESOLVE_TIME: Duration = Duration::from_secs(5);

/// Names that are resolved at once: each keeps a thread busy.
const MOST_RESOLVING: usize = 32;

/// An address answers within so long, or the next is tried.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 4;

/// Connections of one session at once.
pub const MOST_OF_SESSION: usize = 128;

/// Connections of all.
pub const MOST_CONNECTIONS: usize = 4096;

/// What tasks say that waits for the driver.
const MOST_SAID: usize = 4096;

/// Connects to targets.
#[derive(Debug)]
pub struct Connector {
    policy: Arc<Policy>,
    resolving: Arc<Semaphore>,
    places: Arc<Semaphore>,
    next: u64,
    outbox: Outbox,
}

impl Connector {
    /// Under `policy`; and what its tasks say, for the driver to poll.
    pub fn new(policy: Policy) -> (Connector, mpsc::Receiver<(ConnectionId, FromTask)>) {
        let (outbox, said) = mpsc::channel(MOST_SAID);
        let connector = Connector {
            policy: Arc::new(policy),
            resolving: Arc::new(Semaphore::new(MOST_RESOLVING)),
            places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
            next: 0,
            outbox,
        };
        (connector, said)
    }

    /// Begins to connect to `target`, within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When there are too many connections already.
    pub fn connect(&mut self, target: Target) -> Result<(ConnectionId, Inbox), Reason> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Reason::Busy)?;
        let id = ConnectionId(self.next);
        self.next += 1;
        let (inbox, told) = mpsc::channel(INBOX);
        let (policy, resolving, outbox) = (self.policy.clone(), self.resolving.clone(), self.outbox.clone());
        tokio::spawn(async move {
            // If the stream is reset meanwhile, nobody waits for the outcome.
            match reach(&policy, &resolving, target).await {
                Ok(socket) => {
                    if outbox.send((id, FromTask::Connected)).await.is_ok() {
                        pipe::run(id, socket, outbox, told).await;
                    }
                }
                Err(reason) => _ = outbox.send((id, FromTask::Reset(reason))).await,
            }
            drop(place);
        });
        Ok((id, inbox))
    }
}

async fn reach(policy: &Policy, resolving: &Arc<Semaphore>, target: Target) -> Result<TcpStream, Reason> {
    let (name, addresses, port) = match target {
        Target::Address(address, port) => (None, vec![address], port),
        Target::Name(name, port) => {
            if !policy.may_resolve(&name, port) {
                return Err(Reason::Forbidden);
            }
            let addresses = resolve(resolving, name.clone(), port).await?;
            (Some(name), addresses, port)
        }
        Target::Itself => return Err(Reason::Forbidden),
    };
    let allowed = addresses.iter().filter(|address| policy.allows(name.as_deref(), **address, port));
    let mut outcome = Reason::Forbidden;
    for &address in allowed.take(MOST_ADDRESSES) {
        outcome = match timeout(CONNECT_TIME, TcpStream::connect(SocketAddr::from((address, port)))).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => match error.kind() {
                io::ErrorKind::ConnectionRefused => Reason::Refused,
                io::ErrorKind::TimedOut => Reason::TimedOut,
                _ => Reason::Unreachable,
            },
            Err(_) => Reason::TimedOut,
        };
    }
    Err(outcome)
}

async fn resolve(resolving: &Arc<Semaphore>, name: String, port: u16) -> Result<Vec<IpAddr>, Reason> {
    let looked_up = async {
        let place = resolving.clone().acquire_owned().await.map_err(|_| Reason::Busy)?;
        // The system's resolver can't be interrupted: its place is taken until it returns, whoever waits.
        let lookup = tokio::spawn(async move {
            let found = tokio::net::lookup_host((name, port)).await;
            let found: Vec<IpAddr> = found.into_iter().flatten().map(|address| address.ip()).collect();
            drop(place);
            found
        });
        lookup.await.map_err(|_| Reason::Broken)
    };
    let found = timeout(RESOLVE_TIME, looked_up).await.map_err(|_| Reason::TimedOut)??;
    if found.is_empty() { Err(Reason::NameUnknown) } else { Ok(found) }
}

/// The streams of all sessions of an exit, with their connections.
#[derive(Debug)]
pub struct ExitStreams {
    connector: Connector,
    sessions: BTreeMap<SessionName, Streams>,
    by_connection: BTreeMap<ConnectionId, SessionName>,
}

impl ExitStreams {
    /// None yet.
    pub fn new(connector: Connector) -> ExitStreams {
        ExitStreams { connector, sessions: BTreeMap::new(), by_connection: BTreeMap::new() }
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.by_connection.len()
    }

    /// Passes on to a target what happened in the session `name`, within a tokio runtime.
    pub fn on_event(&mut self, name: SessionName, exit: &mut Exit, event: ExitEvent) {
        let ExitStreams { connector, sessions, by_connection } = self;
        let streams = sessions.entry(name).or_default();
        match event {
            ExitEvent::Stream(StreamEvent::Opened(stream, target)) => {
                let room = streams.len() < MOST_OF_SESSION;
                let begun = if room { connector.connect(target) } else { Err(Reason::Busy) };
                match begun {
                    Ok((connection, inbox)) => {
                        streams.join(stream, connection, inbox);
                        by_connection.insert(connection, name);
                    }
                    Err(reason) => exit.reset(stream, reason),
                }
            }
            ExitEvent::Stream(event) => {
                let before = streams.len();
                streams.on_event(exit, &event);
                if streams.len() < before {
                    by_connection.retain(|connection, of| *of != name || streams.stream_of(*connection).is_some());
                }
            }
            ExitEvent::Ended(_) => self.on_end(name),
        }
    }

    /// The session `name` is over.
    pub fn on_end(&mut self, name: SessionName) {
        if let Some(mut streams) = self.sessions.remove(&name) {
            streams.on_end(Reason::Broken);
            self.by_connection.retain(|_, session| *session != name);
        }
    }

    /// The session that a connection belongs to.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionName> {
        self.by_connection.get(&connection).copied()
    }

    /// A task says something of its connection, which belongs to the session `name`.
    pub fn on_said(&mut self, name: SessionName, exit: &mut Exit, connection: ConnectionId, said: FromTask) {
        let Some(streams) = self.sessions.get_mut(&name) else { return };
        if let (FromTask::Connected, Some(stream)) = (&said, streams.stream_of(connection)) {
            exit.accept(stream);
        }
        streams.on_task(exit, connection, said);
        if streams.stream_of(connection).is_none() {
            self.by_connection.remove(&connection);
        }
    }
}
