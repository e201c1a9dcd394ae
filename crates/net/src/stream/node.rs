//! A peer of a stream that runs: its machines, its socket and its thread, behind channels.
//!
//! ```text
//! video --Input--> +-----------------+ --Receiver<NodeEvent>--> released packets, gaps, what happens
//!                  |  thread: Runtime |
//!      stop -----> |  QuicSessions    | --watch<Snapshot>------> figures, once a second
//!                  +-----------------+
//! ```
//!
//! All channels are bounded. An application that does not take its packets in time is notified of a gap in their
//! place; one that gives video faster than it is sent is told to wait.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anabranch_control::flow::registry::{self, Setup};
use anabranch_control::flow::{Bounds, FlowController};
use anabranch_control::registry::UnknownController;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::session::SessionConfig;
use anabranch_proto::stream::buffer::BufferConfig;
use anabranch_proto::stream::client::{Client, ClientConfig};
use anabranch_proto::stream::content::Broadcast;
use anabranch_proto::stream::message::Mode;
use anabranch_proto::stream::packet::{MAX_PACKET, MAX_SLICES};
use anabranch_proto::stream::peer::StreamPeer;
use anabranch_proto::stream::server::{MOST_OF_NETWORK, Server, ServerConfig};
use anabranch_proto::stream::tracker::TrackerConfig;
use anabranch_proto::stream::tree::Moves;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use super::content::Signed;
use super::events::{NodeEvent, Peer, Video};
use super::liar::{Lie, MaybeLiar};
use super::link::{Link, LinkError};
use super::run::{Flags, Running};
use super::snapshot::Snapshot;
use crate::pool::NoWork;
use crate::routes::{all_reachable, outgoing};
use crate::runtime::Runtime;
use crate::sessions::QuicSessions;
use crate::sessions::identity::PeerIdentity;
use crate::setup::random_seed;
use crate::udp::Socket;
use crate::wait::Waker;

/// Packets of video that wait to be sent at most: a second of 10 Mbit/s.
const MOST_INPUT: usize = 1024;

/// Events that wait for the application at most: three seconds of packets at 20 Mbit/s.
const MOST_EVENTS: usize = 8192;

/// What a player keeps of the buffer for a second thought: what is not there by then is skipped.
const MARGIN: Duration = Duration::from_millis(300);

/// The fastest stream for which buffers have room.
const MOST_BITRATE: Rate = Rate::from_bits_per_sec(20_000_000);

/// The part of what a peer can send that is not used for the trees.
const RESERVE: f64 = 0.1;

/// Who has said nothing for so long is gone [Raiber 2010, 7.4].
const SILENCE: Duration = Duration::from_millis(10_000);

/// The controller of those that choose none. One window is for all whom a peer sends to, and a line that loses one
/// packet in a hundred loses them whatever the load: a controller that answers each loss with less cannot send a
/// stream on. This one goes by queues.
pub const DEFAULT_CONTROLLER: &str = "copa";

/// Why a peer does not run.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
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
    /// The controller.
    #[error("{0}")]
    Controller(#[from] UnknownController),
    /// It cannot be made without parameters.
    #[error("controller \"{0}\" needs parameters; expected one that does without, as {DEFAULT_CONTROLLER}")]
    Parameters(String),
    /// The key.
    #[error("TLS cannot use this key: {0}")]
    Key(#[from] rustls::Error),
    /// The link.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// No address of the link is of a network that this host is in.
    #[error("this host has no route to {0}")]
    NoRoute(Link),
    /// A setting.
    #[error("{what} is {got}; expected {expected}")]
    Setting {
        /// Which.
        what: &'static str,
        /// What it is.
        got: String,
        /// What it may be.
        expected: &'static str,
    },
}

/// How a stream is served.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Where the server listens.
    pub listen: SocketAddr,
    /// By which addresses the link names it; if there are none, by where it listens.
    pub announce: Vec<SocketAddr>,
    /// Its key pair, which is the stream's.
    pub identity: PeerIdentity,
    /// How the stream travels.
    pub mode: Mode,
    /// In how many slices.
    pub slices: u8,
    /// What the server can send: it gives out no more places than that bears.
    pub upload: Rate,
    /// Whether it never sends more.
    pub is_limited: bool,
    /// The congestion controller.
    pub controller: String,
    /// What players hold ready.
    pub buffer: Duration,
    /// The most viewers.
    pub most_clients: usize,
    /// The most of one network.
    pub most_of_network: usize,
    /// Whether the server feeds every viewer itself, and names none to another.
    pub is_private: bool,
}

impl ServeOptions {
    /// The defaults: a hybrid of 20 slices.
    pub fn new(listen: SocketAddr, identity: PeerIdentity, upload: Rate) -> ServeOptions {
        ServeOptions {
            listen,
            announce: Vec::new(),
            identity,
            mode: Mode::Hybrid,
            slices: 20,
            upload,
            is_limited: false,
            controller: DEFAULT_CONTROLLER.to_owned(),
            buffer: Duration::from_millis(3000),
            most_clients: 1024,
            most_of_network: MOST_OF_NETWORK,
            is_private: false,
        }
    }
}

/// How a stream is watched.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// Which stream.
    pub link: Link,
    /// Where the viewer listens; none for any free port.
    pub listen: Option<SocketAddr>,
    /// Its key pair.
    pub identity: PeerIdentity,
    /// What it believes that it can send.
    pub upload: Rate,
    /// Whether it never sends more.
    pub is_limited: bool,
    /// The congestion controller.
    pub controller: String,
    /// What players hold ready.
    pub buffer: Duration,
    /// Whether this viewer deals with the server alone, and is named to nobody; of a private stream, each does.
    pub is_private: bool,
    /// How it lies, in a demonstration on one machine.
    pub lie: Option<Lie>,
}

impl WatchOptions {
    /// The defaults.
    pub fn new(link: Link, identity: PeerIdentity, upload: Rate) -> WatchOptions {
        WatchOptions {
            link,
            listen: None,
            identity,
            upload,
            is_limited: false,
            controller: DEFAULT_CONTROLLER.to_owned(),
            buffer: Duration::from_millis(3000),
            is_private: false,
            lie: None,
        }
    }
}

/// Why video was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// What came before has not been sent yet; it comes back, to be tried again.
    #[error("{MOST_INPUT} packets of video wait to be sent")]
    Full(Video),
    /// The server has stopped.
    #[error("the server has stopped")]
    Stopped,
    /// It is none.
    #[error("a packet of {0} bytes; expected 1 to {MAX_PACKET}")]
    Length(usize),
}

/// Where a server's video goes in. Clones are the same.
#[derive(Clone, Debug)]
pub struct Input {
    video: mpsc::Sender<Video>,
    waker: Waker,
}

impl Input {
    /// The stream goes on.
    ///
    /// # Errors
    ///
    /// When too much waits, the server has stopped, or the packet is none.
    pub fn push(&self, video: Video) -> Result<(), InputError> {
        let length = video.bytes.len();
        if length == 0 || length > MAX_PACKET {
            return Err(InputError::Length(length));
        }
        match self.video.try_send(video) {
            Ok(()) => {
                self.waker.wake();
                Ok(())
            }
            Err(TrySendError::Full(video)) => Err(InputError::Full(video)),
            Err(TrySendError::Closed(_)) => Err(InputError::Stopped),
        }
    }
}

/// A peer that runs. It stops, and says goodbye, when this is dropped.
pub struct StreamNode {
    local: SocketAddr,
    link: Link,
    snapshots: watch::Receiver<Snapshot>,
    is_stopped: Arc<AtomicBool>,
    is_looked_at: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl fmt::Debug for StreamNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamNode({} at {})", self.link, self.local)
    }
}

impl StreamNode {
    /// Serves a stream: the server, where its video goes in, and what happens.
    ///
    /// # Errors
    ///
    /// When a setting is none, or the system does not let it run.
    pub fn serve(options: ServeOptions) -> Result<(StreamNode, Input, mpsc::Receiver<NodeEvent>), StreamError> {
        if options.slices == 0 || options.slices > MAX_SLICES {
            let (got, expected) = (options.slices.to_string(), "1 to 64");
            return Err(StreamError::Setting { what: "the number of slices", got, expected });
        }
        let buffer = buffer(options.buffer)?;
        let controller = controller(&options.controller, options.upload)?;
        let socket = listen(options.listen)?;
        let local = socket.local_addr()?;
        let announced = match options.announce.as_slice() {
            [] => all_reachable(local, socket.is_dual()),
            announced => announced.to_vec(),
        };
        let mut link = Link::new(options.identity.public(), &announced)?;
        link.is_private = options.is_private;
        let tracker = TrackerConfig {
            slices: options.slices,
            moves: if options.mode == Mode::Trees { Moves::PRINTED } else { Moves::ALL },
            upload: options.upload,
            reserve: RESERVE,
            silence: SILENCE,
            has_backups: options.mode == Mode::Hybrid,
            most_clients: options.most_clients,
        };
        // What a newcomer begins with is waited for as long as any hole, by its age: it needs the other half of
        // that time to come.
        let begin_behind = Duration::from_nanos(options.buffer.as_nanos() / 2);
        // Exploration packets would be eight bytes longer than what every connection is sure to carry.
        let exploration = None;
        let (mode, most_of_network) = (options.mode, options.most_of_network);
        let broadcast = Broadcast(random_seed());
        let config =
            ServerConfig { broadcast, mode, tracker, most_of_network, begin_behind, buffer, exploration, helper: None };
        let runtime = Runtime::new(NoWork)?;
        let rng = Rng::stream(random_seed(), "stream server");
        let mut app = Server::new(config, options.identity.clone(), runtime.now(), rng);
        if options.is_private {
            app.set_private();
        }
        let limit = options.is_limited.then_some(options.upload);
        let (peer, lie) = (StreamPeer::Server(app), None);
        let setup = Node { peer, lie, identity: options.identity, controller, limit, link, socket };
        let (video, input) = mpsc::channel(MOST_INPUT);
        let waker = runtime.waker();
        let (node, events) = setup.start(runtime, Some(input))?;
        Ok((node, Input { video, waker }, events))
    }

    /// Watches a stream: the viewer, and what it gets.
    ///
    /// # Errors
    ///
    /// When a setting is none, the link's names are not known, or the system does not let it run.
    pub fn watch(options: WatchOptions) -> Result<(StreamNode, mpsc::Receiver<NodeEvent>), StreamError> {
        let buffer = buffer(options.buffer)?;
        let controller = controller(&options.controller, options.upload)?;
        let (socket, addresses) = towards(&options)?;
        let server = *addresses.first().ok_or_else(|| StreamError::NoRoute(options.link.clone()))?;
        if options.lie.is_some() && !addresses.iter().all(|address| address.ip().is_loopback()) {
            let (got, expected) = (options.link.to_string(), "one of this machine alone, at 127.0.0.1 or [::1]");
            return Err(StreamError::Setting { what: "the link of a viewer that lies", got, expected });
        }
        let upload = Lie::announced(options.lie, options.upload);
        let config = ClientConfig { server, source: options.link.key, upload, buffer };
        let runtime = Runtime::new(NoWork)?;
        let (identity, link) = (options.identity, options.link);
        let limit = options.is_limited.then_some(options.upload);
        let mut client = Client::new(config);
        client.set_addresses(addresses);
        if options.is_private || link.is_private {
            client.keep_private();
        }
        let (peer, lie) = (StreamPeer::Client(client), options.lie);
        Node { peer, lie, identity, controller, limit, link, socket }.start(runtime, None)
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The stream's link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Where it stands, as of the last second.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshots.borrow().clone()
    }

    /// Somebody looks at a page: a viewer asks the server how all fare, for a while.
    pub fn look(&self) {
        self.is_looked_at.store(true, Ordering::Relaxed);
    }

    /// Tells of each new snapshot.
    pub fn snapshots(&self) -> watch::Receiver<Snapshot> {
        self.snapshots.clone()
    }

    /// Whether it runs: only the system ends it otherwise.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Says goodbye to all peers, and stops.
    ///
    /// # Errors
    ///
    /// When the system had ended it before.
    pub fn stop(mut self) -> io::Result<()> {
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.waker.wake();
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the peer's thread has panicked")))
    }
}

impl Drop for StreamNode {
    fn drop(&mut self) {
        // Whoever wants to know calls `stop`.
        let _ = self.end();
    }
}

/// What a peer is made of.
struct Node {
    peer: StreamPeer<SocketAddr, Signed>,
    lie: Option<Lie>,
    identity: PeerIdentity,
    controller: Box<dyn FlowController>,
    limit: Option<Rate>,
    link: Link,
    socket: Socket,
}

impl Node {
    fn start(
        self,
        mut runtime: Runtime<Peer>,
        input: Option<mpsc::Receiver<Video>>,
    ) -> Result<(StreamNode, mpsc::Receiver<NodeEvent>), StreamError> {
        let Node { peer, lie, identity, controller, limit, link, socket } = self;
        let local = socket.local_addr()?;
        let rng = Rng::stream(random_seed(), "stream sessions");
        let peer = MaybeLiar::new(peer, lie, Rng::stream(random_seed(), "lies"));
        let mut sessions = QuicSessions::new(peer, SessionConfig::default(), &identity, local, controller, &rng)?;
        sessions.set_bounds(Bounds { rate: limit, ..Bounds::default() });
        runtime.add_gathering_in_order(socket, sessions)?;
        let (events, receiver) = mpsc::channel(MOST_EVENTS);
        let flags = Flags::default();
        let Flags { is_stopped, is_looked_at } = flags.clone();
        let waker = runtime.waker();
        let (running, snapshots) = Running::new(runtime, link.key, limit, input, events, flags);
        let thread = thread::Builder::new().name("stream".into()).spawn(move || running.run())?;
        Ok((StreamNode { local, link, snapshots, is_stopped, is_looked_at, waker, thread: Some(thread) }, receiver))
    }
}

fn buffer(buffer: Duration) -> Result<BufferConfig, StreamError> {
    if buffer <= MARGIN || buffer > Duration::from_millis(60_000) {
        let (got, expected) = (format!("{buffer:?}"), "more than 0.3 s, up to a minute");
        return Err(StreamError::Setting { what: "the buffer", got, expected });
    }
    let patience = Duration::from_nanos(buffer.as_nanos() - MARGIN.as_nanos());
    // What players hold, and as much again that others may want.
    let packets = (MOST_BITRATE * (buffer * 2)).get() / MAX_PACKET as u64;
    Ok(BufferConfig { patience, capacity: packets as usize + 64 })
}

fn controller(name: &str, upload: Rate) -> Result<Box<dyn FlowController>, StreamError> {
    let entry = registry::find(name)?;
    let setup = Setup::new(SessionConfig::PACKET, Time::ZERO).on_line_of(upload).shared();
    entry.make(&setup, &toml::Table::new()).map_err(|_| StreamError::Parameters(name.to_owned()))
}

fn listen(address: SocketAddr) -> Result<Socket, StreamError> {
    let socket = Socket::bind(address).and_then(Socket::serving);
    socket.map_err(|why| StreamError::Listen { address, why })
}

/// A viewer's socket, and the server's addresses that it reaches: one of IPv6 reaches both families, where the
/// host has it.
fn towards(options: &WatchOptions) -> Result<(Socket, Vec<SocketAddr>), StreamError> {
    let mut addresses = options.link.look_up()?;
    addresses.retain(|address| outgoing(*address).is_some());
    let any = |is_ipv6: bool| {
        let ip: IpAddr = if is_ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        SocketAddr::new(ip, 0)
    };
    let socket = match options.listen {
        Some(address) => listen(address)?,
        None => listen(any(addresses.iter().any(SocketAddr::is_ipv6)))?,
    };
    let local = socket.local_addr()?;
    // One that is bound to an address of its own reaches its family alone.
    addresses.retain(|address| {
        let is_of_both = local.is_ipv6() && local.ip().is_unspecified();
        is_of_both || address.is_ipv6() == local.is_ipv6()
    });
    Ok((socket, addresses))
}
