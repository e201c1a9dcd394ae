//! An exit's connections, TCP and UDP: to what its policy allows, with names resolved here, and no more than its bounds.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_onion::directory::Protocol;
use anabranch_onion::session::{Exit, ExitEvent, Reason, SessionName, StreamEvent, StreamId, Target};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::flow;
use super::pipe::{self, ConnectionId, FromTask, INBOX, Inbox, Outbox, ToTask};
use super::policy::Policy;
use super::streams::Streams;

/// A name is resolved within so long, or not at all.
const RESOLVE_TIME: Duration = Duration::from_secs(5);

/// Names that are resolved at once: each keeps a thread busy.
const MOST_RESOLVING: usize = 32;

/// And of one session: whoever asks for names that are not answered leaves the others theirs.
const MOST_RESOLVING_OF_SESSION: usize = 4;

/// A target that has taken nothing for so long, of what is left once session and user are gone, takes no more: it would
/// keep its place for as long as it likes. It is as long as a silent flow of datagrams has.
const STALLED: Duration = flow::IDLE;

/// How often it is looked whether a flow was reset whose name is resolved.
const LOOK_FOR_RESET: Duration = Duration::from_millis(250);

/// An address answers within so long, or the next is tried.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Addresses of a name that are tried.
const MOST_ADDRESSES: usize = 4;

/// Connections and flows of datagrams of one session at once.
pub const MOST_OF_SESSION: usize = 128;

/// Connections of all.
pub const MOST_CONNECTIONS: usize = 4096;

/// What tasks say that waits for the driver.
const MOST_SAID: usize = 4096;

/// Places of those that resolve names.
#[derive(Clone, Debug)]
struct Resolving {
    of_all: Arc<Semaphore>,
    of_session: Arc<Semaphore>,
}

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

    /// Begins to connect to `target`, for a session that has `places` for names that are resolved, within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When there are too many connections already.
    fn connect(
        &mut self,
        protocol: Protocol,
        target: Target,
        places: &Arc<Semaphore>,
    ) -> Result<(ConnectionId, Inbox), Reason> {
        let place = self.places.clone().try_acquire_owned().map_err(|_| Reason::Busy)?;
        let id = ConnectionId(self.next);
        self.next += 1;
        let (inbox, messages) = mpsc::channel(match protocol {
            Protocol::Tcp => INBOX,
            Protocol::Udp => flow::INBOX,
        });
        let resolving = Resolving { of_all: self.resolving.clone(), of_session: places.clone() };
        let (policy, outbox) = (self.policy.clone(), self.outbox.clone());
        tokio::spawn(async move {
            let outcome = match protocol {
                Protocol::Tcp => stream(id, &policy, &resolving, target, &outbox, messages).await,
                Protocol::Udp => datagrams(id, &policy, &resolving, target, &outbox, messages).await,
            };
            if let Err(reason) = outcome {
                let _ = outbox.send((id, FromTask::Reset(reason))).await;
            }
            drop(place);
        });
        Ok((id, inbox))
    }
}

/// Connects to `target`, and then carries bytes for as long as the connection is there.
async fn stream(
    id: ConnectionId,
    policy: &Policy,
    resolving: &Resolving,
    target: Target,
    outbox: &Outbox,
    mut inbox: mpsc::Receiver<ToTask>,
) -> Result<(), Reason> {
    let Some(reached) = unless_reset(&mut inbox, reach(policy, resolving, target)).await else { return Ok(()) };
    let socket = reached?;
    if outbox.send((id, FromTask::Connected)).await.is_ok() {
        pipe::run(id, socket, outbox.clone(), inbox, STALLED).await;
    }
    Ok(())
}

/// What `reach` gives; nothing if the stream is reset before: it counts for its session no more, and so must not hold one of
/// the places of all.
async fn unless_reset<T>(inbox: &mut mpsc::Receiver<ToTask>, reach: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        reached = reach => Some(reached),
        // Nothing else is said before the connection is there.
        _ = inbox.recv() => None,
    }
}

async fn reach(policy: &Policy, resolving: &Resolving, target: Target) -> Result<TcpStream, Reason> {
    let mut outcome = Reason::Forbidden;
    for address in allowed(policy, resolving, Protocol::Tcp, target).await? {
        outcome = match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
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

/// The same for datagrams. There is no answer that tells whether an address is right: the first with a way is taken.
async fn datagrams(
    id: ConnectionId,
    policy: &Policy,
    resolving: &Resolving,
    target: Target,
    outbox: &Outbox,
    inbox: mpsc::Receiver<ToTask>,
) -> Result<(), Reason> {
    let mut outcome = Reason::Forbidden;
    let addresses = tokio::select! {
        addresses = allowed(policy, resolving, Protocol::Udp, target) => addresses?,
        () = closed(&inbox) => return Ok(()),
    };
    for address in addresses {
        match flow::connect(address).await {
            Ok(socket) => {
                if outbox.send((id, FromTask::Connected)).await.is_ok() {
                    flow::run(id, socket, outbox.clone(), inbox, flow::IDLE).await;
                }
                return Ok(());
            }
            Err(_) => outcome = Reason::Unreachable,
        }
    }
    Err(outcome)
}

/// Ends once a flow is reset. Its datagrams are not taken meanwhile: they are for whoever carries them.
async fn closed(inbox: &mpsc::Receiver<ToTask>) {
    while !inbox.is_closed() {
        tokio::time::sleep(LOOK_FOR_RESET).await;
    }
}

/// The addresses of `target` that may be talked with.
async fn allowed(
    policy: &Policy,
    resolving: &Resolving,
    protocol: Protocol,
    target: Target,
) -> Result<impl Iterator<Item = SocketAddr>, Reason> {
    let (name, addresses, port) = match target {
        Target::Address(address, port) => (None, vec![address], port),
        Target::Name(name, port) => {
            if !policy.may_resolve(protocol, &name, port) {
                return Err(Reason::Forbidden);
            }
            let lookup = tokio::net::lookup_host((name.clone(), port));
            let addresses = resolve(resolving, async move { lookup.await.into_iter().flatten().collect() }).await?;
            (Some(name), addresses, port)
        }
        Target::Itself => return Err(Reason::Forbidden),
    };
    let is_allowed = |address: &IpAddr| policy.allows(protocol, name.as_deref(), *address, port);
    let allowed: Vec<IpAddr> = addresses.into_iter().filter(is_allowed).take(MOST_ADDRESSES).collect();
    Ok(allowed.into_iter().map(move |address| SocketAddr::from((address, port))))
}

/// What `lookup` finds.
async fn resolve(
    resolving: &Resolving,
    lookup: impl Future<Output = Vec<SocketAddr>> + Send + 'static,
) -> Result<Vec<IpAddr>, Reason> {
    let Resolving { of_all, of_session } = resolving.clone();
    let looked_up = async move {
        let own = of_session.acquire_owned().await.map_err(|_| Reason::Busy)?;
        let place = of_all.acquire_owned().await.map_err(|_| Reason::Busy)?;
        // The system's resolver can't be interrupted: its places are taken until it returns, whoever waits.
        let lookup = tokio::spawn(async move {
            let found = lookup.await;
            drop((own, place));
            found.into_iter().map(|address| address.ip()).collect::<Vec<IpAddr>>()
        });
        lookup.await.map_err(|_| Reason::Broken)
    };
    let found = timeout(RESOLVE_TIME, looked_up).await.map_err(|_| Reason::TimedOut)??;
    if found.is_empty() { Err(Reason::NameUnknown) } else { Ok(found) }
}

#[derive(Debug)]
struct Flow {
    connection: ConnectionId,
    inbox: Inbox,
}

/// What one session has joined to sockets.
#[derive(Debug)]
struct Joined {
    streams: Streams,
    flows: BTreeMap<StreamId, Flow>,
    /// Places for names that are resolved.
    resolving: Arc<Semaphore>,
}

impl Default for Joined {
    fn default() -> Joined {
        let resolving = Arc::new(Semaphore::new(MOST_RESOLVING_OF_SESSION));
        Joined { streams: Streams::default(), flows: BTreeMap::new(), resolving }
    }
}

impl Joined {
    fn len(&self) -> usize {
        self.streams.len() + self.flows.len()
    }

    fn flow_of(&self, connection: ConnectionId) -> Option<StreamId> {
        self.flows.iter().find(|(_, flow)| flow.connection == connection).map(|(&stream, _)| stream)
    }

    fn has(&self, connection: ConnectionId) -> bool {
        self.streams.stream_of(connection).is_some() || self.flow_of(connection).is_some()
    }

    /// Ends a flow; its task is notified.
    fn part_flow(&mut self, stream: StreamId, reason: Reason) {
        if let Some(flow) = self.flows.remove(&stream) {
            // There is a place for it: see [`flow::hand`]. A task that is gone needs nothing.
            let _ = flow.inbox.try_send(ToTask::Reset(reason));
        }
    }
}

/// The streams and flows of all sessions of an exit, with their sockets.
#[derive(Debug)]
pub struct ExitStreams {
    connector: Connector,
    sessions: BTreeMap<SessionName, Joined>,
    by_connection: BTreeMap<ConnectionId, SessionName>,
}

impl ExitStreams {
    /// None yet.
    pub fn new(connector: Connector) -> ExitStreams {
        ExitStreams { connector, sessions: BTreeMap::new(), by_connection: BTreeMap::new() }
    }

    /// How many connections and flows there are.
    pub fn connections(&self) -> usize {
        self.by_connection.len()
    }

    /// Passes on to a target what happened in the session `name`, within a tokio runtime.
    pub fn on_event(&mut self, name: SessionName, exit: &mut Exit, event: ExitEvent) {
        let event = match event {
            ExitEvent::Stream(event) => event,
            ExitEvent::Ended(_) => return self.on_end(name),
        };
        let ExitStreams { connector, sessions, by_connection } = self;
        let joined = sessions.entry(name).or_default();
        let mut begin = |stream, protocol, target, joined: &mut Joined| {
            let has_room = joined.len() < MOST_OF_SESSION;
            match if has_room { connector.connect(protocol, target, &joined.resolving) } else { Err(Reason::Busy) } {
                Ok((connection, inbox)) => {
                    by_connection.insert(connection, name);
                    Some((connection, inbox))
                }
                Err(reason) => {
                    exit.reset(stream, reason);
                    None
                }
            }
        };
        match event {
            StreamEvent::Opened(stream, target) => {
                if let Some((connection, inbox)) = begin(stream, Protocol::Tcp, target, joined) {
                    joined.streams.join(stream, connection, inbox);
                }
            }
            StreamEvent::FlowOpened(stream, target) => {
                if let Some((connection, inbox)) = begin(stream, Protocol::Udp, target, joined) {
                    joined.flows.insert(stream, Flow { connection, inbox });
                }
            }
            StreamEvent::Datagram(stream, bytes) => {
                if let Some(flow) = joined.flows.get(&stream) {
                    flow::hand(&flow.inbox, ToTask::Datagram(bytes.into()));
                }
            }
            event => {
                let before = joined.len();
                match event {
                    StreamEvent::Reset(stream, reason) if joined.flows.contains_key(&stream) => {
                        joined.part_flow(stream, reason);
                    }
                    event => joined.streams.on_event(exit, &event),
                }
                if joined.len() < before {
                    by_connection.retain(|connection, of| *of != name || joined.has(*connection));
                }
            }
        }
    }

    /// The session `name` is over.
    pub fn on_end(&mut self, name: SessionName) {
        if let Some(mut joined) = self.sessions.remove(&name) {
            joined.streams.on_end(Reason::Broken);
            while let Some((&stream, _)) = joined.flows.first_key_value() {
                joined.part_flow(stream, Reason::Broken);
            }
            self.by_connection.retain(|_, session| *session != name);
        }
    }

    /// The session that a connection belongs to.
    pub fn session_of(&self, connection: ConnectionId) -> Option<SessionName> {
        self.by_connection.get(&connection).copied()
    }

    /// A task says something of its connection, which belongs to the session `name`.
    pub fn on_said(&mut self, name: SessionName, exit: &mut Exit, connection: ConnectionId, said: FromTask) {
        let Some(joined) = self.sessions.get_mut(&name) else { return };
        if let Some(stream) = joined.flow_of(connection) {
            match said {
                FromTask::Connected => exit.accept(stream),
                FromTask::Datagram(bytes) => {
                    // Where too many wait it is dropped, as on any line that is slower than what comes.
                    let _ = exit.send_datagram(stream, &bytes);
                    if let Some(flow) = joined.flows.get(&stream) {
                        let _ = flow.inbox.try_send(ToTask::Taken);
                    }
                }
                FromTask::Reset(reason) => {
                    exit.reset(stream, reason);
                    joined.flows.remove(&stream);
                }
                _ => {}
            }
        } else {
            if let (FromTask::Connected, Some(stream)) = (&said, joined.streams.stream_of(connection)) {
                exit.accept(stream);
            }
            joined.streams.on_task(exit, connection, said);
        }
        if !joined.has(connection) {
            self.by_connection.remove(&connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_of_one_session_leave_the_places_of_the_others() {
        let of_all = Arc::new(Semaphore::new(MOST_RESOLVING));
        let session = || Resolving { of_all: of_all.clone(), of_session: Joined::default().resolving };
        let hangs = session();
        for _ in 0..100 {
            let hangs = hangs.clone();
            tokio::spawn(async move { resolve(&hangs, std::future::pending()).await });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(of_all.available_permits(), MOST_RESOLVING - MOST_RESOLVING_OF_SESSION);
        let address: SocketAddr = ([192, 0, 2, 1], 80).into();
        assert_eq!(resolve(&session(), async move { vec![address] }).await, Ok(vec![address.ip()]));
    }

    #[tokio::test]
    async fn nobody_waits_for_a_connection_whose_stream_was_reset() {
        let (inbox, mut messages) = mpsc::channel(INBOX);
        assert_eq!(unless_reset(&mut messages, async { 5 }).await, Some(5));
        inbox.send(ToTask::Reset(Reason::Stopped)).await.unwrap();
        assert_eq!(unless_reset(&mut messages, std::future::pending::<u8>()).await, None);
        inbox.send(ToTask::Datagram(vec![7].into())).await.unwrap();
        assert!(timeout(2 * LOOK_FOR_RESET, closed(&messages)).await.is_err(), "a flow goes on");
        assert_eq!(messages.len(), 1, "and keeps its datagrams");
        drop(inbox);
        timeout(Duration::from_secs(10), closed(&messages)).await.expect("it ends");
        messages.recv().await.unwrap();
        assert_eq!(unless_reset(&mut messages, std::future::pending::<u8>()).await, None);
    }
}
