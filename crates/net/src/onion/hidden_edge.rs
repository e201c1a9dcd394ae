//! A hidden receiver, or somebody who sends to one, on sockets: its machine behind a UDP socket, and the directory
//! that it follows.

use std::io;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use anabranch_control::time::Time;
use anabranch_onion::crypto::Real;
use anabranch_onion::directory::{Document, Remembered, UnixTime};
use anabranch_onion::guards::GuardState;
use anabranch_onion::node::{Frame, HiddenReceiver, HiddenSender, ReceiverEvent, SenderEvent, User, UserSettings};
use anabranch_onion::routes::PlacementError;
use anabranch_proto::machine::{Machine, Out};
use rand::rngs::StdRng;

use super::follow::{Follower, Following, Found, Keep, NextList, wall};
use super::network_file::NetworkFile;
use super::user_edge::{EdgeError, KeepGuards};
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::udp::Socket;

/// The receiver of this network.
pub type Receiver = HiddenReceiver<Real, StdRng>;

/// A sender of this network.
pub type Sender = HiddenSender<Real, StdRng>;

/// How long the first list of relays is looked for in one step.
const LOOK: StdDuration = StdDuration::from_millis(20);

/// One of the two machines.
pub trait Hidden: Machine<Address = std::net::SocketAddr, Message = Frame> + Sized {
    /// Another epoch begins.
    ///
    /// # Errors
    ///
    /// When the settings place no packets.
    fn begin_epoch(&mut self, now: Time, document: Arc<Document>) -> Result<(), PlacementError>;

    /// Sends what is to leave now, and tells what has happened.
    fn serve(&mut self, now: Time, out: &mut impl Out<Self>);

    /// Whether other guards are to be written down.
    fn is_guards(event: &Self::Event) -> bool;

    /// The guards that it has.
    fn guards(&self) -> &GuardState;

    /// `state` is written down: packets may use its guards.
    fn on_guards_kept(&mut self, now: Time, state: &GuardState);
}

macro_rules! hidden {
    ($machine:ty, $event:ty) => {
        impl Hidden for $machine {
            fn begin_epoch(&mut self, now: Time, document: Arc<Document>) -> Result<(), PlacementError> {
                <$machine>::begin_epoch(self, now, document)
            }

            fn serve(&mut self, now: Time, out: &mut impl Out<Self>) {
                <$machine>::serve(self, now, out);
            }

            fn is_guards(event: &$event) -> bool {
                *event == <$event>::Guards
            }

            fn guards(&self) -> &GuardState {
                self.user().guards()
            }

            fn on_guards_kept(&mut self, now: Time, state: &GuardState) {
                <$machine>::on_guards_kept(self, now, state);
            }
        }
    };
}

hidden!(Receiver, ReceiverEvent);
hidden!(Sender, SenderEvent);

/// How the user inside is to be.
pub struct HiddenSettings {
    /// Of which network.
    pub network: NetworkFile,
    /// How it chooses.
    pub user: UserSettings,
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

/// What whoever runs it is notified of.
#[derive(Debug)]
pub enum HiddenNews<E> {
    /// There is a list of relays, of this epoch, with this many relays.
    Epoch {
        /// Which epoch.
        epoch: u64,
        /// How many relays.
        relays: usize,
    },
    /// Something else about the directory.
    Directory(Found),
    /// Other guards could not be written down: they are not used.
    GuardsNotKept(io::Error),
    /// The machine tells this, but for guards.
    Machine(E),
}

/// Makes the machine around a user, at a time that is this on the wall, with numbers of the system's.
type Make<M> = Box<dyn FnOnce(User<Real, StdRng>, Time, UnixTime, StdRng) -> M>;

/// A machine that runs, in the thread of whoever calls [`HiddenEdge::turn`].
pub struct HiddenEdge<M: Hidden>
where
    M::Job: Send + 'static,
    M::Done: Send + 'static,
{
    runtime: Runtime<M>,
    /// Until the first list of relays is there.
    waiting: Option<(UserSettings, GuardState, Socket, Make<M>)>,
    follower: Follower,
    next: NextList,
    keep_guards: KeepGuards,
    news: Vec<HiddenNews<M::Event>>,
    has_machine: bool,
}

impl<M: Hidden<Job = std::convert::Infallible, Done = std::convert::Infallible>> HiddenEdge<M> {
    /// Looks for relays; `make` makes the machine once there is a list of them.
    ///
    /// # Errors
    ///
    /// When the system does not let it.
    pub fn start(
        settings: HiddenSettings,
        make: impl FnOnce(User<Real, StdRng>, Time, UnixTime, StdRng) -> M + 'static,
    ) -> io::Result<HiddenEdge<M>> {
        let HiddenSettings { network, user, socket, guards, keep_guards, remembered, keep } = settings;
        let runtime = Runtime::new(NoWork)?;
        let next = NextList::new(network.authorities.round);
        let waker = runtime.waker();
        let follower = Follower::start(Following {
            network,
            remembered,
            from: None,
            describe: None,
            keep,
            wake: Box::new(move || waker.wake()),
        })?;
        let waiting = Some((user, guards, socket, Box::new(make) as Make<M>));
        Ok(HiddenEdge { runtime, waiting, follower, next, keep_guards, news: Vec::new(), has_machine: false })
    }

    /// Now, on its clock.
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// The machine, once there is a list of relays.
    pub fn machine(&self) -> Option<&M> {
        self.has_machine.then(|| self.runtime.machine(0))
    }

    /// Acts on the machine, if it is there; what that wants to send leaves.
    pub fn act<T>(&mut self, act: impl FnOnce(&mut M, Time) -> T) -> Option<T> {
        let acts = |machine: &mut M, now: Time, port: &mut crate::endpoint::Port<'_, M>| {
            let result = act(machine, now);
            machine.serve(now, port);
            result
        };
        self.has_machine.then(|| self.runtime.act(0, acts))
    }

    /// Does what is due, then waits for something to happen, at most until `until`.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read, or the settings place no packets.
    pub fn turn(&mut self, until: Time) -> Result<(), EdgeError> {
        while let Some(found) = self.follower.poll() {
            match found {
                Found::Document(document) if self.has_machine => self.next.put(self.runtime.now(), *document),
                Found::Document(document) => self.begin_epoch(*document)?,
                found => self.news.push(HiddenNews::Directory(found)),
            }
        }
        if !self.has_machine {
            std::thread::sleep(LOOK);
            return Ok(());
        }
        if let Some(document) = self.next.take(self.runtime.now()) {
            self.begin_epoch(document)?;
        }
        self.runtime.turn(until.min(self.next.timer()))?;
        self.hear();
        Ok(())
    }

    fn hear(&mut self) {
        while let Some((_, event)) = self.runtime.poll_event() {
            if !M::is_guards(&event) {
                self.news.push(HiddenNews::Machine(event));
                continue;
            }
            let state = self.runtime.machine(0).guards().clone();
            match (self.keep_guards)(&state) {
                Ok(()) => self.runtime.act(0, |machine, now, port| {
                    machine.on_guards_kept(now, &state);
                    machine.serve(now, port);
                }),
                Err(why) => self.news.push(HiddenNews::GuardsNotKept(why)),
            }
        }
    }

    /// What has happened since, all of it.
    pub fn take_news(&mut self) -> Vec<HiddenNews<M::Event>> {
        if self.has_machine {
            self.hear();
        }
        std::mem::take(&mut self.news)
    }

    fn begin_epoch(&mut self, document: Document) -> Result<(), EdgeError> {
        self.news.push(HiddenNews::Epoch { epoch: document.epoch, relays: document.len() });
        let document = Arc::new(document);
        match self.waiting.take() {
            Some((settings, guards, socket, make)) => {
                let now = self.runtime.now();
                let user = User::new(settings, document, guards, now, wall(), rand::make_rng())?;
                self.runtime.add(socket, make(user, now, wall(), rand::make_rng()), None)?;
                self.has_machine = true;
                self.act(|_, _| ());
            }
            None => self.act(|machine, now| machine.begin_epoch(now, document)).transpose().map(|_| ())?,
        }
        Ok(())
    }
}
