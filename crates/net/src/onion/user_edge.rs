//! A user's edge: programs come by SOCKS5, their streams and datagrams go to sessions with exits, over the user's paths.
//!
//! Each SOCKS user has sessions of its own, one with each exit that it needs: an exit is chosen, by weight, among
//! those whose policy has the port, and kept as long as the session lives. Names are resolved there.
//! A program's datagrams to one target are a flow of such a session, which is opened by the first of them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration as StdDuration;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::crypto::Real;
use anabranch_onion::directory::{Document, Protocol, Remembered};
use anabranch_onion::guards::GuardState;
use anabranch_onion::node::{Cover, CoverError, Destination, EXIT, SessionId, User, UserEvent, UserSettings};
use anabranch_onion::routes::{PlacementError, RouteError};
use anabranch_onion::session::{IDLE, Rates, Reason, StreamEvent, Target};
use rand::rngs::StdRng;

use super::associations::Associations;
use super::exit_edge::hand_over;
use super::follow::{Follower, Following, Found, Keep, NextList, wall};
use super::network_file::NetworkFile;
use super::pipe::{ConnectionId, FromTask, ToTask};
use super::socks::{Request, SocksServer, SocksUser, Wants};
use super::streams::Streams;
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::setup::random_seed;
use crate::udp::Socket;

/// What programs say that waits for the edge's thread; beyond it they wait.
const MOST_WAITING: usize = 256;

/// What they say is handled so often at a time, so that packets are not kept waiting.
const PORTION: usize = 64;

/// Sessions at once.
pub const MOST_SESSIONS: usize = 256;

/// How long the first list of relays is looked for in one step.
const LOOK: StdDuration = StdDuration::from_millis(20);

/// The user that an edge runs.
pub type EdgeUser = User<Real, StdRng>;

/// Why there is no edge.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// The system.
    #[error("{0}")]
    System(#[from] io::Error),
    /// What places packets.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// What hides when it sends.
    #[error("{0}")]
    Cover(#[from] CoverError),
}

/// Writes down which guards a user has.
pub type KeepGuards = Box<dyn FnMut(&GuardState) -> io::Result<()> + Send>;

/// How a user is to be.
pub struct EdgeSettings {
    /// Of which network.
    pub network: NetworkFile,
    /// How it chooses.
    pub user: UserSettings,
    /// What hides when it sends.
    pub cover: Cover,
    /// How fast it sends, and is answered.
    pub rates: Rates,
    /// Where programs come.
    pub socks: SocketAddr,
    /// Where packets leave; any port of any address unless somebody cares.
    pub socket: Socket,
    /// The guards that it had.
    pub guards: GuardState,
    /// Where it is written down which guards it has: a new one is not used before.
    pub keep_guards: KeepGuards,
    /// What was seen of the directory before.
    pub remembered: Remembered,
    /// Where it is written down what was seen.
    pub keep: Keep,
}

/// What the user is notified of.
#[derive(Debug)]
pub enum EdgeNews {
    /// There is a list of relays, of this epoch, with this many relays, this many of them exits.
    Epoch {
        /// Which epoch.
        epoch: u64,
        /// How many relays.
        relays: usize,
        /// How many of them are exits.
        exits: usize,
    },
    /// Other guards could not be written down: they are not used.
    GuardsNotKept(io::Error),
    /// There is no path now.
    NoPath(RouteError),
    /// A program wants to where no exit leads.
    NoExit,
    /// Something about the directory.
    Directory(Found),
}

/// What a program says.
enum Said {
    Wants(Request),
    Of(ConnectionId, FromTask),
}

struct Open {
    /// Since when no program has a connection in it.
    idle_since: Option<Time>,
    socks: SocksUser,
    exit: anabranch_onion::directory::PublicKey,
    streams: Streams,
}

/// An edge that runs, in the thread of whoever calls [`UserEdge::turn`].
pub struct UserEdge {
    runtime: Runtime<EdgeUser>,
    /// Until the first list of relays is there.
    waiting: Option<(UserSettings, GuardState, Socket)>,
    follower: Follower,
    /// Lives as long as the edge.
    _tasks: tokio::runtime::Runtime,
    socks: SocketAddr,
    said: Receiver<Said>,
    cover: Cover,
    rates: Rates,
    keep_guards: KeepGuards,
    next: NextList,
    sessions: BTreeMap<SessionId, Open>,
    by_connection: BTreeMap<ConnectionId, SessionId>,
    associations: Associations,
    news: Vec<EdgeNews>,
    has_user: bool,
    opened: u64,
}

impl UserEdge {
    /// Listens for programs, and looks for relays.
    ///
    /// # Errors
    ///
    /// When the system does not let it.
    pub fn start(settings: EdgeSettings) -> Result<UserEdge, EdgeError> {
        let EdgeSettings { network, user, cover, rates, socks, socket, guards, keep_guards, remembered, keep } =
            settings;
        user.check_cover(cover)?;
        let next = NextList::new(network.authorities.round);
        let runtime: Runtime<EdgeUser> = Runtime::new(NoWork)?;
        let tasks = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut server = tasks.block_on(SocksServer::bind(socks))?;
        let address = server.address();
        let (sender, said) = sync_channel(MOST_WAITING);
        let (both, from_both) = tokio::sync::mpsc::channel(1);
        hand_over(&tasks, from_both, sender, runtime.waker());
        tasks.spawn(async move {
            let (requests, tasks, _) = server.channels();
            loop {
                let said = tokio::select! {
                    Some(request) = requests.recv() => Said::Wants(request),
                    Some((connection, said)) = tasks.recv() => Said::Of(connection, said),
                    else => return,
                };
                if both.send(said).await.is_err() {
                    return;
                }
            }
        });
        let waker = runtime.waker();
        let follower = Follower::start(Following {
            network,
            remembered,
            from: None,
            describe: None,
            keep,
            wake: Box::new(move || waker.wake()),
        })?;
        Ok(UserEdge {
            runtime,
            waiting: Some((user, guards, socket)),
            follower,
            _tasks: tasks,
            socks: address,
            said,
            cover,
            rates,
            keep_guards,
            next,
            sessions: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            associations: Associations::default(),
            news: Vec::new(),
            has_user: false,
            opened: 0,
        })
    }

    /// Where programs come.
    pub fn socks(&self) -> SocketAddr {
        self.socks
    }

    /// The user, once there is a list of relays.
    pub fn user(&self) -> Option<&EdgeUser> {
        self.has_user.then(|| self.runtime.machine(0))
    }

    /// Now, on its clock.
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// Does what is due, then waits for something to happen, at most until `until`.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read, or the settings place no packets.
    pub fn turn(&mut self, until: Time) -> Result<(), EdgeError> {
        while let Some(found) = self.follower.poll() {
            match found {
                Found::Document(document) if self.has_user => self.next.put(self.runtime.now(), *document),
                Found::Document(document) => self.begin_epoch(*document)?,
                found => self.news.push(EdgeNews::Directory(found)),
            }
        }
        if !self.has_user {
            std::thread::sleep(LOOK);
            return Ok(());
        }
        if let Some(document) = self.next.take(self.runtime.now()) {
            self.begin_epoch(document)?;
        }
        let until = until.min(self.next.timer());
        let mut is_busy = true;
        for _ in 0..PORTION {
            match self.said.try_recv() {
                Ok(Said::Wants(request)) => self.on_request(request),
                Ok(Said::Of(connection, said)) => self.on_task(connection, said),
                Err(_) => {
                    is_busy = false;
                    break;
                }
            }
        }
        self.runtime.turn(if is_busy { self.runtime.now() } else { until })?;
        while let Some((_, event)) = self.runtime.poll_event() {
            self.on_event(event);
        }
        if self.cover != Cover::Off {
            self.close_idle();
        }
        Ok(())
    }

    /// A session whose cells leave and come at a constant rate is never silent: where no program has had a connection in
    /// it for long, it is closed here.
    fn close_idle(&mut self) {
        let now = self.runtime.now();
        let mut over = Vec::new();
        for (id, open) in &mut self.sessions {
            let is_idle = open.streams.is_empty() && !self.associations.uses(*id);
            open.idle_since = is_idle.then(|| open.idle_since.unwrap_or(now));
            if open.idle_since.is_some_and(|since| now.since(since) >= IDLE) {
                open.idle_since = None;
                over.push(*id);
            }
        }
        for id in over {
            self.runtime.act(0, |user, now, port| {
                if let Some(client) = user.session(id) {
                    client.close();
                }
                user.serve(now, port);
            });
        }
    }

    /// What has happened since.
    pub fn poll_news(&mut self) -> Option<EdgeNews> {
        (!self.news.is_empty()).then(|| self.news.remove(0))
    }

    fn begin_epoch(&mut self, document: Document) -> Result<(), EdgeError> {
        let exits = document.relays().filter(|(_, member)| member.descriptor.service.is_some()).count();
        self.news.push(EdgeNews::Epoch { epoch: document.epoch, relays: document.len(), exits });
        let document = Arc::new(document);
        match self.waiting.take() {
            Some((settings, guards, socket)) => {
                let user = User::new(settings, document, guards, self.runtime.now(), wall(), rand::make_rng())?;
                let mut user = user;
                user.set_cover(self.runtime.now(), self.cover)?;
                self.runtime.add_gathering(socket, user)?;
                self.has_user = true;
                self.runtime.act(0, |user, now, port| user.serve(now, port));
            }
            None => self.runtime.act(0, |user, now, port| {
                user.begin_epoch(now, document)?;
                user.serve(now, port);
                Ok::<(), PlacementError>(())
            })?,
        }
        Ok(())
    }

    /// The session of `socks` with an exit that speaks `protocol` with `target`: one that it has, or a new one.
    fn session_for(&mut self, socks: SocksUser, protocol: Protocol, target: &Target) -> Option<SessionId> {
        let user = self.runtime.machine(0);
        let document = user.document();
        let may = |relay: anabranch_onion::RelayIndex| {
            let descriptor = &document.member(relay)?.descriptor;
            let keys = descriptor.service.as_ref()?.keys()?;
            let leads = match target {
                Target::Name(_, port) => descriptor.exit.may_allow(protocol, *port),
                Target::Address(address, port) => descriptor.exit.allows(protocol, *address, *port),
                Target::Itself => false,
            };
            leads.then_some((descriptor.identity, keys))
        };
        let own = self
            .sessions
            .iter()
            .find(|(_, open)| open.socks == socks && document.index_of(&open.exit).and_then(may).is_some());
        if let Some((id, _)) = own {
            return Some(*id);
        }
        if self.sessions.len() >= MOST_SESSIONS {
            return None;
        }
        // A guard of this user is no exit of it: it would know who it is and where to.
        let leading = document.relays().map(|(relay, _)| relay).filter(|relay| may(*relay).is_some());
        let exits: Vec<_> = user
            .choice()
            .ends(document, leading)
            .into_iter()
            .filter_map(|relay| Some((relay, document.member(relay)?.weight, may(relay)?)))
            .collect();
        let total: u64 = exits.iter().map(|(_, weight, _)| *weight).sum();
        let mut left = (Rng::stream(random_seed(), "exit").uniform() * total as f64) as u64;
        let (relay, _, (exit, keys)) = exits.into_iter().find(|(_, weight, _)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        })?;
        let destination = Destination { relay, label: EXIT, keys };
        let rates = self.rates.clone();
        let id = self.runtime.act(0, |user, now, _| user.open(now, destination, rates));
        self.sessions.insert(id, Open { idle_since: None, socks, exit, streams: Streams::default() });
        Some(id)
    }

    fn on_request(&mut self, request: Request) {
        let Request { connection, user: socks, wants, inbox } = request;
        let target = match wants {
            Wants::Stream(target) => target,
            Wants::Datagrams => {
                self.opened += 1;
                return self.associations.begin(connection, socks, inbox);
            }
        };
        let Some(id) = self.session_for(socks, Protocol::Tcp, &target) else {
            self.report_no_exit();
            let _ = inbox.try_send(ToTask::Reset(Reason::Forbidden));
            return;
        };
        let Some(open) = self.sessions.get_mut(&id) else { return };
        let stream = self.runtime.act(0, |user, now, port| {
            let stream = user.session(id)?.open_stream(now, target);
            user.serve(now, port);
            stream
        });
        match stream {
            Some(stream) => {
                open.streams.join(stream, connection, inbox);
                self.by_connection.insert(connection, id);
                self.opened += 1;
            }
            None => _ = inbox.try_send(ToTask::Reset(Reason::Busy)),
        }
    }

    /// Once until it is fetched: whoever sends datagrams wants the same again and again.
    fn report_no_exit(&mut self) {
        if !self.news.iter().any(|news| matches!(news, EdgeNews::NoExit)) {
            self.news.push(EdgeNews::NoExit);
        }
    }

    /// A program's association sent a datagram. There is nobody to tell where it can't leave.
    fn on_datagram(&mut self, connection: ConnectionId, target: Target, bytes: &[u8]) {
        self.associations.taken(connection);
        let Some(socks) = self.associations.socks(connection) else { return };
        let now = self.runtime.now();
        let (flow, makes_room) = match self.associations.flow_to(now, connection, &target) {
            Some(flow) => (flow, None),
            None => {
                let Some(id) = self.session_for(socks, Protocol::Udp, &target) else { return self.report_no_exit() };
                let opened = self.runtime.act(0, |user, now, _| user.session(id)?.open_flow(now, target.clone()));
                let Some(stream) = opened else { return };
                ((id, stream), self.associations.join(now, connection, target, (id, stream)))
            }
        };
        self.runtime.act(0, |user, now, port| {
            if let Some((session, stream)) = makes_room
                && let Some(client) = user.session(session)
            {
                client.reset(stream, Reason::Stopped);
            }
            if let Some(client) = user.session(flow.0) {
                // Where too many wait it is dropped, as on any line that is slower than its sender.
                let _ = client.send_datagram(flow.1, bytes);
            }
            user.serve(now, port);
        });
    }

    /// A program has done with its association.
    fn end_association(&mut self, connection: ConnectionId) {
        let flows = self.associations.end(connection);
        self.runtime.act(0, |user, now, port| {
            for (session, stream) in flows {
                if let Some(client) = user.session(session) {
                    client.reset(stream, Reason::Stopped);
                }
            }
            user.serve(now, port);
        });
    }

    fn on_task(&mut self, connection: ConnectionId, said: FromTask) {
        let said = match said {
            FromTask::DatagramTo(target, bytes) => return self.on_datagram(connection, target, &bytes),
            FromTask::Finish if self.associations.socks(connection).is_some() => {
                return self.end_association(connection);
            }
            said => said,
        };
        let Some(&id) = self.by_connection.get(&connection) else { return };
        let Some(open) = self.sessions.get_mut(&id) else { return };
        self.runtime.act(0, |user, now, port| {
            if let Some(client) = user.session(id) {
                open.streams.on_task(client, connection, said);
            }
            user.serve(now, port);
        });
        if open.streams.stream_of(connection).is_none() {
            self.by_connection.remove(&connection);
        }
    }

    fn on_event(&mut self, event: UserEvent) {
        match event {
            UserEvent::Stream(id, StreamEvent::Datagram(stream, bytes)) => {
                self.associations.on_datagram((id, stream), bytes);
            }
            UserEvent::Stream(id, event) => {
                if let StreamEvent::Reset(stream, _) = event {
                    self.associations.part((id, stream));
                }
                let Some(open) = self.sessions.get_mut(&id) else { return };
                let before = open.streams.len();
                self.runtime.act(0, |user, now, port| {
                    if let Some(client) = user.session(id) {
                        open.streams.on_event(client, &event);
                    }
                    user.serve(now, port);
                });
                if open.streams.len() < before {
                    let is_there = |connection: &ConnectionId| open.streams.stream_of(*connection).is_some();
                    self.by_connection.retain(|connection, of| *of != id || is_there(connection));
                }
            }
            UserEvent::Ended(id, _) => {
                if let Some(mut open) = self.sessions.remove(&id) {
                    open.streams.on_end(Reason::Broken);
                }
                self.associations.on_end(id);
                self.by_connection.retain(|_, session| *session != id);
            }
            UserEvent::Guards => {
                let state = self.runtime.machine(0).guards().clone();
                match (self.keep_guards)(&state) {
                    Ok(()) => self.runtime.act(0, |user, now, port| {
                        user.on_guards_kept(now, &state);
                        user.serve(now, port);
                    }),
                    Err(why) => self.news.push(EdgeNews::GuardsNotKept(why)),
                }
            }
            UserEvent::NoPath(why) => self.news.push(EdgeNews::NoPath(why)),
            UserEvent::Connected(_) => {}
        }
    }

    /// Sessions at work.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Connections and associations of programs that are open, and how many were ever opened.
    pub fn connections(&self) -> (usize, u64) {
        let streams: usize = self.sessions.values().map(|open| open.streams.len()).sum();
        (streams + self.associations.len(), self.opened)
    }

    /// Runs for so long.
    ///
    /// # Errors
    ///
    /// As [`UserEdge::turn`].
    pub fn run_for(&mut self, span: Duration) -> Result<(), EdgeError> {
        let end = self.now() + span;
        while self.now() < end {
            self.turn(end)?;
        }
        Ok(())
    }
}
