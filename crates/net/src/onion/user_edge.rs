//! A user's edge: programs come by SOCKS5, their streams and datagrams go to sessions with exits, over the user's paths.
//!
//! Each SOCKS user has sessions of its own, one with each exit that it needs: an exit is chosen, by weight, among
//! those whose policy has the port, and kept as long as the session lives. Names are resolved there.
//! A program's datagrams to one target are a flow of such a session, which is opened by the first of them.
//!
//! An exit that answers nothing while guards do is taken for gone (RFC 1122 3.3.1.4: whoever sends is to notice a dead way
//! by what it asks in vain): new connections, and those that have sent nothing yet, go to another, and for some minutes
//! none goes there again. Who runs exits can have their users choose again in that way, by falling silent; so a connection
//! is tried at few exits, each exit costs that once in those minutes, and what an exit sees is a session that ends.

mod choice;
mod upkeep;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration as StdDuration;

use anabranch_control::time::{Duration, Time};
use anabranch_onion::crypto::Real;
use anabranch_onion::directory::{Document, Protocol, PublicKey, Remembered, UnixTime};
use anabranch_onion::guards::GuardState;
use anabranch_onion::node::{Cover, CoverError, SessionId, User, UserEvent, UserSettings};
use anabranch_onion::routes::{PlacementError, RouteError};
use anabranch_onion::session::{End, Rates, Reason, StreamEvent, Target};
use rand::rngs::StdRng;

use self::choice::NoSession;
use super::associations::Associations;
use super::exit_edge::hand_over;
use super::follow::{Follower, Following, Found, Keep, NextList, wall};
use super::gone_exits::GoneExits;
use super::network_file::NetworkFile;
use super::pipe::{ConnectionId, FromTask, Inbox, ToTask};
use super::socks::{Foreign, Request, SocksServer, SocksUser, Wants};
use super::streams::Streams;
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::udp::Socket;

/// What programs say that waits for the edge's thread; beyond it they wait.
const MOST_WAITING: usize = 256;

/// What they say is handled so often at a time, so that packets are not kept waiting.
const PORTION: usize = 64;

/// Sessions at once: of SOCKS users, each with each exit that it uses. For one more, the one that has been without
/// connections for longest ends.
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
    /// There are [`MOST_SESSIONS`], all with connections: a program is turned away.
    NoSession,
    /// The list of relays is out of date, and with it all that goes by it: programs are turned away, and their connections
    /// are closed.
    Outdated {
        /// Whose it is.
        epoch: u64,
        /// When it ended.
        until: UnixTime,
    },
    /// An exit answers nothing any more: others are used.
    ExitGone,
    /// A program speaks something else than SOCKS5.
    Foreign(Foreign),
    /// Something about the directory.
    Directory(Found),
}

/// What a program says.
enum Said {
    Wants(Request),
    Of(ConnectionId, FromTask),
}

/// A connection's place.
struct Joined {
    session: SessionId,
    target: Target,
    /// Exits at which it was tried.
    tries: u8,
}

struct Open {
    /// Since when no program has a connection in it.
    idle_since: Option<Time>,
    socks: SocksUser,
    exit: PublicKey,
    /// Since when the exit seems to be gone: nothing new is begun here.
    gone_since: Option<Time>,
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
    foreign: Receiver<Foreign>,
    cover: Cover,
    rates: Rates,
    keep_guards: KeepGuards,
    next: NextList,
    sessions: BTreeMap<SessionId, Open>,
    by_connection: BTreeMap<ConnectionId, Joined>,
    associations: Associations,
    /// When sessions are looked at next.
    look_at: Time,
    gone_exits: GoneExits,
    news: Vec<EdgeNews>,
    has_user: bool,
    /// It ends: nothing new is begun.
    is_leaving: bool,
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
        // Not with what programs want, which waits for the first list of relays.
        let (foreign_sender, foreign_said) = sync_channel(1);
        hand_over(&tasks, from_both, sender, runtime.waker());
        tasks.spawn(async move {
            let (requests, tasks, foreign) = server.channels();
            loop {
                let said = tokio::select! {
                    Some(request) = requests.recv() => Said::Wants(request),
                    Some((connection, said)) = tasks.recv() => Said::Of(connection, said),
                    Some(what) = foreign.recv() => {
                        let _ = foreign_sender.try_send(what);
                        continue;
                    }
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
            foreign: foreign_said,
            cover,
            rates,
            keep_guards,
            next,
            sessions: BTreeMap::new(),
            by_connection: BTreeMap::new(),
            associations: Associations::default(),
            look_at: Time::ZERO,
            gone_exits: GoneExits::default(),
            news: Vec::new(),
            has_user: false,
            is_leaving: false,
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
        if let Ok(what) = self.foreign.try_recv() {
            self.report(EdgeNews::Foreign(what));
        }
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
        self.look_at_sessions();
        let until = until.min(self.next.timer());
        let until = if self.sessions.is_empty() { until } else { until.min(self.look_at) };
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
        Ok(())
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

    fn on_request(&mut self, request: Request) {
        let Request { connection, user: socks, wants, inbox } = request;
        match wants {
            Wants::Stream(target) => self.begin(connection, socks, target, inbox, 1),
            Wants::Datagrams => {
                self.opened += 1;
                self.associations.begin(connection, socks, inbox);
            }
        }
    }

    /// A connection is to lead to `target`, after `tries` at exits with this one.
    fn begin(&mut self, connection: ConnectionId, socks: SocksUser, target: Target, inbox: Inbox, tries: u8) {
        if self.is_leaving {
            let _ = inbox.try_send(ToTask::Reset(Reason::Busy));
            return;
        }
        let session = match self.session_for(socks, Protocol::Tcp, &target) {
            Ok(session) => session,
            Err(why) => {
                let reason = if matches!(why, NoSession::Exit) { Reason::Forbidden } else { Reason::Busy };
                self.report_no_session(&why);
                let _ = inbox.try_send(ToTask::Reset(reason));
                return;
            }
        };
        let Some(open) = self.sessions.get_mut(&session) else { return };
        let stream = self.runtime.act(0, |user, now, port| {
            let stream = user.session(session)?.open_stream(now, target.clone());
            user.serve(now, port);
            stream
        });
        match stream {
            Some(stream) => {
                open.streams.join(stream, connection, inbox);
                self.by_connection.insert(connection, Joined { session, target, tries });
                self.opened += u64::from(tries == 1);
            }
            None => _ = inbox.try_send(ToTask::Reset(Reason::Busy)),
        }
    }

    fn report_no_session(&mut self, why: &NoSession) {
        let document = self.runtime.machine(0).document();
        let (epoch, until) = (document.epoch, document.valid_until);
        self.report(match why {
            NoSession::Exit => EdgeNews::NoExit,
            NoSession::Full => EdgeNews::NoSession,
            NoSession::Outdated => EdgeNews::Outdated { epoch, until },
        });
    }

    /// Once until it is fetched: whoever sends datagrams, say, wants the same again and again.
    fn report(&mut self, what: EdgeNews) {
        let kind = std::mem::discriminant(&what);
        if self.news.iter().all(|news| std::mem::discriminant(news) != kind) {
            self.news.push(what);
        }
    }

    /// A program's association sent a datagram. There is nobody to tell where it can't leave.
    fn on_datagram(&mut self, connection: ConnectionId, target: Target, bytes: &[u8]) {
        self.associations.taken(connection);
        if self.is_leaving {
            return;
        }
        let Some(socks) = self.associations.socks(connection) else { return };
        let now = self.runtime.now();
        let (flow, makes_room) = match self.associations.flow_to(now, connection, &target) {
            Some(flow) => (flow, None),
            None => {
                let id = match self.session_for(socks, Protocol::Udp, &target) {
                    Ok(id) => id,
                    Err(why) => return self.report_no_session(&why),
                };
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
        let Some(id) = self.by_connection.get(&connection).map(|joined| joined.session) else { return };
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
                    self.by_connection.retain(|connection, joined| joined.session != id || is_there(connection));
                }
            }
            UserEvent::Ended(id, end) => {
                self.associations.on_end(id);
                let Some(mut open) = self.sessions.remove(&id) else { return };
                let waiting = open.streams.take_unaccepted();
                open.streams.on_end(Reason::Broken);
                let now = self.runtime.now();
                if self.gone_exits.may_blame(now) && matches!(end, End::Unanswered | End::Silent) {
                    self.fail(now, open.exit);
                }
                waiting.into_iter().for_each(|(_, connection, inbox)| self.try_another(connection, open.socks, inbox));
                self.by_connection.retain(|_, joined| joined.session != id);
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

#[cfg(test)]
mod tests;
