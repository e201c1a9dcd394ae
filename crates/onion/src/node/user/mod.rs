//! A user as a machine: it hangs on its guards, chooses a path for every packet, makes the blocks by which it is
//! answered, and has sessions with services.
//!
//! ```text
//!  streams -> session -> cell -> path: guard, middles, the service's relay -> packet
//!                        cell <- the block that it came by: middles, guard <- packet
//! ```
//!
//! A path is a half of [`Routes`] with the service's relay at its end. Learners place packets: those of the
//! forward half learn from what the service says that it got and when, those of the backward half from which
//! blocks came back. How much is sent in all is the sessions' business.

mod doors;
mod entry;
mod traffic;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};

use super::frame::{Frame, Kind};
use crate::RelayIndex;
use crate::crypto::Cryptography;
use crate::directory::{Document, UnixTime};
use crate::guards::{Choice, GuardState};
use crate::hidden::MailboxAt;
use crate::packet::{Isolation, Label, PacketsPerKey};
use crate::routes::{PlacementError, RouteError, Routes, RoutesConfig};
use crate::session::{Client, Entropy, Rates, Secrecy, ServiceKeys, StreamEvent};

use entry::Entry;
use traffic::Traffic;
pub use traffic::cover::{Cover, CoverError, MOST_COVER};
pub use traffic::loose::{Arrived, PacketId};

/// Names a user's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Loops share keys with nothing else, and what belongs to no session has the first isolation.
const LOOPS_ISOLATION: Isolation = Isolation(1);

impl SessionId {
    /// Each session has keys of its own behind guards.
    fn isolation(self) -> Isolation {
        Isolation(self.0 + 2)
    }
}

/// Where a service is, and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The relay that it is at.
    pub relay: RelayIndex,
    /// What it is found by there.
    pub label: Label,
    /// Its keys.
    pub keys: ServiceKeys,
}

/// What the application is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserEvent {
    /// The service has answered.
    Connected(SessionId),
    /// Of a stream.
    Stream(SessionId, StreamEvent),
    /// The session is over.
    Ended(SessionId, crate::session::End),
    /// [`User::guards`] has changed, and is to be written down; new ones are not used before
    /// [`User::on_guards_kept`] says that it is.
    Guards,
    /// There is no path now.
    NoPath(RouteError),
}

/// How a user chooses.
#[derive(Clone, Debug)]
pub struct UserSettings {
    /// Guards, g; 0 is MORE to the letter.
    pub guards: usize,
    /// Relays of a path, the service's included.
    pub hops: usize,
    /// What places packets on relays on the way to the service: a path controller's name.
    pub placement: String,
    /// What places the blocks by which services answer.
    pub placement_back: String,
    /// The network's k.
    pub packets_per_key: PacketsPerKey,
    /// Whether cells are sealed.
    pub secrecy: Secrecy,
    /// The mean of an exponential wait that packets are asked to make at each relay; none for none.
    pub mixing: Option<Duration>,
}

/// What a user has done, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserCounts {
    /// That left.
    pub sent: u64,
    /// That came back by a block.
    pub received: u64,
    /// That came by no block, or were changed on the way.
    pub unknown: u64,
    /// Blocks that were made.
    pub blocks: u64,
    /// Of those that left, known to have arrived.
    pub delivered: u64,
    /// Of those that left, given up.
    pub lost: u64,
    /// Loops that left, besides.
    pub loops: u64,
    /// Of the loops, those that came back.
    pub loops_returned: u64,
    /// Relays that those passed.
    pub loop_hops: u64,
    /// Of the loops, those given up.
    pub loops_lost: u64,
}

/// A user's edge of the overlay. `R` is what is secret comes from: the operating system's on a network.
pub struct User<C: Cryptography, R> {
    document: Arc<Document>,
    /// That of the epoch before.
    former: Option<Arc<Document>>,
    entry: Entry,
    traffic: Traffic<C>,
    /// Whether the guards' change is still to be reported.
    has_new_guards: bool,
    /// Guards that have failed, each counted once another was there.
    guards_lost: u64,
    /// Whether something has come since what there is to send was last looked through: what comes together is answered
    /// together.
    has_come: bool,
    rng: R,
}

impl<C: Cryptography, R> core::fmt::Debug for User<C, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "User({} sessions)", self.traffic.sessions().count())
    }
}

impl UserSettings {
    /// How one half of a user's paths is chosen; the service's relay is not chosen.
    fn routes(&self, placement: &str) -> RoutesConfig {
        let hops = self.hops.saturating_sub(1);
        RoutesConfig { hops, placement: placement.to_owned(), ..RoutesConfig::default() }
    }

    /// Refuses what cannot work, whatever the relays are.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self) -> Result<(), PlacementError> {
        self.routes(&self.placement).check()?;
        self.routes(&self.placement_back).check()
    }
}

impl<C: Cryptography, R: rand_core::Rng> User<C, R> {
    /// Over the relays of `document`; `wall` is the calendar's time at `now`.
    ///
    /// # Errors
    ///
    /// What is wrong with the settings.
    pub fn new(
        settings: UserSettings,
        document: Arc<Document>,
        guards: GuardState,
        now: Time,
        wall: UnixTime,
        mut rng: R,
    ) -> Result<User<C, R>, PlacementError> {
        let mut entry = Entry::new(settings.guards, guards, &document, now, wall, &mut route_rng(&mut rng));
        let traffic = Traffic::new(settings, &document, entry.choice(), now)?;
        let has_new_guards = entry.choice().changed;
        entry.attach(&document, now, &mut rng);
        Ok(User { document, former: None, entry, traffic, has_new_guards, guards_lost: 0, has_come: false, rng })
    }

    /// Another epoch begins.
    ///
    /// # Errors
    ///
    /// None that [`User::new`] has not had.
    pub fn begin_epoch(&mut self, now: Time, document: Arc<Document>) -> Result<(), PlacementError> {
        self.entry.begin_epoch(&self.document, &document);
        self.has_new_guards |= self.entry.choose(&document, now, &mut route_rng(&mut self.rng));
        self.traffic.begin_epoch(&self.document, &document, self.entry.choice());
        self.former = Some(core::mem::replace(&mut self.document, document));
        self.entry.attach(&self.document, now, &mut self.rng);
        self.use_guards(now)
    }

    fn choose_guards(&mut self, now: Time) -> Result<(), PlacementError> {
        self.has_new_guards |= self.entry.choose(&self.document, now, &mut route_rng(&mut self.rng));
        self.traffic.reserve(self.entry.choice());
        self.entry.attach(&self.document, now, &mut self.rng);
        self.use_guards(now)
    }

    /// `state`, which [`User::guards`] was, is written down: packets may use its guards. [`User::serve`] comes after it.
    pub fn on_guards_kept(&mut self, now: Time, state: &GuardState) {
        self.entry.on_kept(state);
        self.entry.attach(&self.document, now, &mut self.rng);
    }

    /// Packets take those guards that are known to be there.
    fn use_guards(&mut self, now: Time) -> Result<(), PlacementError> {
        let choice = self.entry.use_those_there(now);
        self.traffic.enter_by(&self.document, choice, now)
    }

    /// What must outlive a restart.
    pub fn guards(&self) -> &GuardState {
        self.entry.state()
    }

    /// The guards in use.
    pub fn choice(&self) -> &Choice {
        self.entry.choice()
    }

    /// The relays that there are.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// Whether answers can come: a guard passes on what comes.
    pub fn is_attached(&self, now: Time) -> bool {
        self.entry.is_attached(now)
    }

    /// Nothing comes of what should: the guards are asked whether they are there.
    pub fn ask_guards(&mut self, now: Time) {
        self.entry.ask(now);
    }

    /// When a guard last answered: before, if its own line is gone.
    pub fn guards_heard(&self) -> Time {
        self.entry.heard()
    }

    /// How often guards have failed. What blocks of before lead to is not to be waited for; sessions see to theirs.
    pub fn guards_lost(&self) -> u64 {
        self.guards_lost
    }

    /// What it has done.
    pub fn counts(&self) -> &UserCounts {
        self.traffic.counts()
    }

    /// Where packets go on their way to services.
    pub fn routes(&self) -> &Routes {
        self.traffic.routes()
    }

    /// Where the blocks lead that services answer by.
    pub fn routes_back(&self) -> &Routes {
        self.traffic.routes_back()
    }

    /// The last times of packets there and back, oldest first, without what the other end waited.
    pub fn round_trips(&self) -> impl Iterator<Item = Duration> {
        self.traffic.round_trips()
    }

    /// How often each relay was drawn in a learner's place, on the way to services and back.
    pub fn drawn(&self) -> [&[u64]; 2] {
        self.traffic.drawn()
    }

    /// From `now` on it hides by `cover` when it sends.
    ///
    /// # Errors
    ///
    /// When there can be no such cover.
    pub fn set_cover(&mut self, now: Time, cover: Cover) -> Result<(), CoverError> {
        self.traffic.set_cover(now, cover, &mut self.rng)
    }

    /// Whether a guard passes on what comes for this user.
    pub fn hangs_on(&self, guard: RelayIndex, now: Time) -> bool {
        self.entry.hangs_on(guard, now)
    }

    /// Begins a session with the service at `destination`.
    pub fn open(&mut self, now: Time, destination: Destination, rates: Rates) -> SessionId {
        let mut entropy = [0; 32];
        self.rng.fill_bytes(&mut entropy);
        self.traffic.open(now, destination, rates, Entropy(entropy))
    }

    /// Begins a session with a hidden receiver that is found at `mailboxes`; none if none of them can be used.
    pub fn open_hidden(
        &mut self,
        now: Time,
        keys: ServiceKeys,
        mailboxes: &[MailboxAt],
        rates: Rates,
    ) -> Option<SessionId> {
        let mut entropy = [0; 32];
        self.rng.fill_bytes(&mut entropy);
        self.traffic.open_hidden(now, keys, mailboxes, rates, Entropy(entropy), self.entry.choice())
    }

    /// From now on packets of the session go to `mailboxes`, at relays that the directory of `epoch` names so, which is
    /// this one or the one before; if some can be used, and while those are dead to where they went at first.
    pub fn redirect(&mut self, id: SessionId, epoch: u64, mailboxes: &[MailboxAt]) {
        let moved = |mailbox: &MailboxAt| {
            let relay = self.relay_now(epoch, mailbox.relay)?;
            Some(MailboxAt { relay, ..*mailbox })
        };
        let mailboxes: Vec<MailboxAt> = mailboxes.iter().filter_map(moved).collect();
        self.traffic.redirect(id, &mailboxes, self.entry.choice());
    }

    /// The index in this epoch of what `relay` is in the directory of `epoch`, this one or the one before.
    fn relay_now(&self, epoch: u64, relay: RelayIndex) -> Option<RelayIndex> {
        if epoch == self.document.epoch {
            return Some(relay);
        }
        let former = self.former.as_ref().filter(|former| former.epoch == epoch)?;
        self.document.index_of(&former.member(relay)?.descriptor.identity)
    }

    /// One of its sessions, to act on; [`User::serve`] comes after it.
    pub fn session(&mut self, id: SessionId) -> Option<&mut Client> {
        self.traffic.session(id)
    }

    /// Its sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Client)> {
        self.traffic.sessions()
    }

    /// Sends what is to leave now, and tells what has happened.
    pub fn serve(&mut self, now: Time, out: &mut impl Out<User<C, R>>) {
        self.has_come = false;
        let User { document, entry, traffic, .. } = self;
        let is_to_choose = entry.speak(document, traffic.members(), now, |to, said| {
            let frame = Frame::link(said);
            out.send(Departure::now(to, frame.length()), &frame);
        });
        // The settings were good before.
        if is_to_choose {
            let _ = self.choose_guards(now);
        }
        if self.entry.has_moved(now) {
            let _ = self.use_guards(now);
        }
        if self.entry.take_failed(now) {
            self.guards_lost += 1;
            self.traffic.renew_blocks();
        }
        if self.entry.is_attached(now) {
            let send = &mut |to, frame: &Frame| out.send(Departure::now(to, frame.length()), frame);
            self.traffic.serve(now, &mut self.entry, &mut self.rng, send);
        }
        if core::mem::take(&mut self.has_new_guards) {
            out.event(UserEvent::Guards);
        }
        while let Some(event) = self.traffic.poll_event() {
            out.event(event);
        }
    }
}

/// A choice of path draws from numbers that nothing else comes from.
fn route_rng(rng: &mut impl rand_core::Rng) -> Rng {
    Rng::stream(rng.next_u64(), "route")
}

impl<C: Cryptography, R: rand_core::Rng> Machine for User<C, R> {
    type Address = SocketAddr;
    type Message = Frame;
    type Event = UserEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, now: Time, arrival: Arrival<SocketAddr>, frame: &mut Frame, _: &mut impl Out<User<C, R>>) {
        match frame.kind {
            Kind::Packet => self.traffic.on_packet(now, frame, &mut self.entry, &mut self.rng),
            Kind::Link(said) => {
                self.entry.on_frame(&self.document, self.traffic.members(), now, arrival.from, &said);
            }
        }
        self.has_come = true;
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<User<C, R>>) {
        self.traffic.on_timer(now, &mut self.rng);
        self.serve(now, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<User<C, R>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        if self.has_come {
            return now;
        }
        let traffic = self.traffic.timer(now, self.entry.is_attached(now));
        self.entry.timer().min(traffic)
    }
}
