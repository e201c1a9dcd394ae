//! A hidden receiver: it keeps mailboxes filled, tells where they are to whoever knows its address, and has sessions
//! with those who come.
//!
//! A few mailboxes are *doors*: the descriptor names them, and anybody with the address can use up what they hold. So
//! a session gets mailboxes of its own as soon as it is open, of which nobody else knows: strangers at the doors keep
//! others from coming in, but slow down nobody who is in.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Machine, Out};

use super::own::{Fates, OwnMailbox, Wish};
use super::publication::Publication;
use super::{CONTROL, Inner, bytes, encode_mailboxes};
use crate::RelayIndex;
use crate::crypto::Cryptography;
use crate::directory::{Document, PublicKey, SecretKey, UnixTime};
use crate::guards::GuardState;
use crate::hidden::body::{Answer, Open, Request, write_onward};
use crate::hidden::descriptor::{PARTS, SALT};
use crate::hidden::places::stores;
use crate::hidden::{Address, Descriptor, MAILBOX, MailboxAt, ONWARD, ReceiverSecret, hidden_format};
use crate::node::frame::Frame;
use crate::node::relay::Service;
use crate::node::service::{EXIT, ServiceEvent, SessionService};
use crate::node::user::{User, UserEvent};
use crate::packet::BODY;
use crate::reply::BlockId;
use crate::routes::{PlacementError, RouteError};
use crate::session::{
    Entropy, Exit, ExitEvent, Exits, Reason, Secrecy, ServiceKeys, ServiceSecret, SessionName, StreamEvent, Target,
};

/// Doors: with one in five relays silent, all are in one case in 125, until others are opened.
const DOORS: usize = 3;

/// Mailboxes of a session.
const OF_SESSION: usize = 2;

/// Sessions that have mailboxes of their own; others go on by the doors.
pub const MOST_OWN: usize = 8;

/// Doors that are not open by then are not waited for with the first descriptor.
const PATIENCE: Duration = Duration::from_millis(3_000);

/// A relay whose mailbox was given up has none again for so long.
const AVOIDED: Duration = Duration::from_millis(60_000);

/// Blocks of which it is known what they are for: those that are out, and as many that are lost or used up.
const MOST_KNOWN: usize = 32_768;

/// A relay for a mailbox is drawn so often, if those that were drawn are avoided.
const TRIES: usize = 16;

/// Where there is no path, one is looked for again after this.
const NO_PATH_WAIT: Duration = Duration::from_millis(500);

/// Mailboxes of an epoch that is over are kept for so long, unless [`HiddenReceiver::followed_after`] says otherwise.
const FOLLOWED_AFTER: Duration = Duration::from_millis(30_000);

/// What the application is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// Senders find it now: some relays keep where its mailboxes are.
    Ready,
    /// Something has happened in a session.
    Session(ServiceEvent),
    /// [`HiddenReceiver::user`]'s guards have changed, and are to be written down; new ones are not used before
    /// [`HiddenReceiver::on_guards_kept`] says that it is.
    Guards,
    /// There is no path now.
    NoPath(RouteError),
}

/// What a receiver has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Mailboxes opened.
    pub opened: u64,
    /// Mailboxes given up.
    pub given_up: u64,
    /// Blocks sent to mailboxes.
    pub blocks: u64,
    /// Bodies that came by them.
    pub taken: u64,
    /// Answers sent over senders' blocks.
    pub answered: u64,
}

/// What a block is for.
#[derive(Clone, Copy, Debug)]
enum Use {
    Stock(u64),
    Answer(u64),
    Stored(RelayIndex, usize),
}

/// The mailboxes by which a session goes on.
#[derive(Debug, Default)]
struct Announced {
    /// Whether it has some of its own; others go on by the doors.
    has_own: bool,
    /// What was announced to the sender in this epoch, or has come by.
    mailboxes: Vec<MailboxAt>,
}

/// A user who is found by a key.
pub struct HiddenReceiver<C: Cryptography, R> {
    user: User<C, R>,
    rng: R,
    secret: ReceiverSecret,
    keys: ServiceKeys,
    service: SessionService<C>,
    mailboxes: BTreeMap<u64, OwnMailbox>,
    next_mailbox: u64,
    uses: BTreeMap<BlockId, Use>,
    publication: Publication,
    is_ready: bool,
    /// Since when doors of this epoch are opened.
    began: Time,
    /// So long after this one every sender has an epoch's list.
    followed_after: Duration,
    avoided: BTreeMap<PublicKey, Time>,
    /// What was announced to each session's sender.
    announced: BTreeMap<SessionName, Announced>,
    /// Nobody is asked before, since there was no path.
    blocked_until: Option<Time>,
    /// Guards whose end mailboxes know of.
    guards_lost: u64,
    /// Nanoseconds since 1970 at time zero: versions grow over restarts.
    wall_at_zero: u64,
    inner: Vec<UserEvent>,
    events: VecDeque<ReceiverEvent>,
    counts: ReceiverCounts,
}

impl<C: Cryptography, R> core::fmt::Debug for HiddenReceiver<C, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "HiddenReceiver({:?}, {} mailboxes)", self.secret, self.mailboxes.len())
    }
}

impl<C: Cryptography, R: rand_core::Rng> HiddenReceiver<C, R> {
    /// `user` is found by the key of `secret`; `wall` is the calendar's time at `now`. Its sessions' keys are drawn
    /// here, so that what was said before a restart nobody can read after it.
    pub fn new(
        user: User<C, R>,
        secret: ReceiverSecret,
        secrecy: Secrecy,
        now: Time,
        wall: UnixTime,
        mut rng: R,
    ) -> HiddenReceiver<C, R> {
        let service = ServiceSecret::from_seed(&bytes(&mut rng));
        let keys = service.keys();
        let entropy = Entropy(bytes(&mut rng));
        let wall_at_zero = wall.0.saturating_mul(Duration::SECOND.as_nanos()).saturating_sub(now.as_nanos());
        HiddenReceiver {
            user,
            rng,
            secret,
            keys,
            service: SessionService::with_format(EXIT, hidden_format(secrecy), service, entropy),
            mailboxes: BTreeMap::new(),
            next_mailbox: 0,
            uses: BTreeMap::new(),
            publication: Publication::default(),
            is_ready: false,
            began: now,
            followed_after: FOLLOWED_AFTER,
            avoided: BTreeMap::new(),
            announced: BTreeMap::new(),
            blocked_until: None,
            guards_lost: 0,
            wall_at_zero,
            inner: Vec::new(),
            events: VecDeque::new(),
            counts: ReceiverCounts::default(),
        }
    }

    /// Senders may have an epoch's list so long after this receiver: for so long their sessions go on by the mailboxes
    /// of the epoch before.
    #[must_use]
    pub fn followed_after(self, followed_after: Duration) -> HiddenReceiver<C, R> {
        HiddenReceiver { followed_after, ..self }
    }

    /// By what it is found.
    pub fn address(&self) -> Address {
        self.secret.address()
    }

    /// The user inside.
    pub fn user(&self) -> &User<C, R> {
        &self.user
    }

    /// `state`, which the user's [`guards`](User::guards) were, is written down: packets may use its guards.
    /// [`HiddenReceiver::serve`] comes after it.
    pub fn on_guards_kept(&mut self, now: Time, state: &GuardState) {
        self.user.on_guards_kept(now, state);
    }

    /// Its sessions.
    pub fn sessions(&self) -> &Exits {
        self.service.exits()
    }

    /// What it has done.
    pub fn counts(&self) -> &ReceiverCounts {
        &self.counts
    }

    /// Where its mailboxes are that are open: the doors, or those of one session.
    pub fn open_mailboxes(&self, of: Option<SessionName>) -> Vec<MailboxAt> {
        let open = |own: &&OwnMailbox| own.of == of && own.is_open() && !own.is_former();
        self.mailboxes.values().filter(open).map(|own| own.at).collect()
    }

    /// Whether a session is still to wait for its mailboxes of this epoch: it has others, and these are not filled.
    fn waits(&self, session: SessionName) -> bool {
        let own = || self.mailboxes.values().filter(|own| own.of == Some(session) && own.is_open());
        let filled = own().filter(|own| !own.is_former() && own.is_filled()).count();
        own().any(OwnMailbox::is_former) && filled < OF_SESSION
    }

    /// How many of the epoch before there are still.
    pub fn former_mailboxes(&self) -> usize {
        self.mailboxes.values().filter(|own| own.is_former()).count()
    }

    /// Sessions that have, or will have, mailboxes of their own.
    pub fn own_sessions(&self) -> impl Iterator<Item = SessionName> + '_ {
        self.announced.iter().filter(|(_, announced)| announced.has_own).map(|(session, _)| *session)
    }

    /// Whether senders can find it.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Acts on one session, if it is there; [`HiddenReceiver::serve`] comes after it.
    pub fn act<T>(&mut self, session: SessionName, act: impl FnOnce(&mut Exit) -> T) -> Option<T> {
        self.service.act(session, act)
    }

    /// Another epoch begins, and other mailboxes are opened: at the same ones, relays would see which receiver of this
    /// epoch was which of the last. Those that there are stay until the others have been announced to senders, so that
    /// sessions go on.
    ///
    /// # Errors
    ///
    /// None that [`User::new`] has not had.
    pub fn begin_epoch(&mut self, now: Time, document: Arc<Document>) -> Result<(), PlacementError> {
        self.user.begin_epoch(now, document)?;
        let HiddenReceiver { user, mailboxes, followed_after, .. } = self;
        let until = now + *followed_after;
        let reserved = &user.choice().reserved;
        // One at a guard would know for whom it is.
        mailboxes.retain(|_, own| {
            own.begin_epoch(until, user.document().index_of(&own.relay).filter(|relay| !reserved.contains(relay)))
        });
        self.uses.retain(|_, what| !matches!(what, Use::Stored(..)));
        // A relay that was in the new epoch before this user had no room for the old one's.
        self.avoided.clear();
        self.publication.begin_epoch();
        self.announced.values_mut().for_each(|announced| announced.mailboxes.clear());
        self.began = now;
        Ok(())
    }

    /// Sends what is to leave now, and tells what has happened.
    pub fn serve(&mut self, now: Time, out: &mut impl Out<HiddenReceiver<C, R>>) {
        let mut inner = core::mem::take(&mut self.inner);
        self.user.serve(now, &mut Inner::new(out, &mut inner));
        while let Some(arrived) = self.user.poll_arrived() {
            self.on_arrived(now, arrived.block, &arrived.body);
        }
        if core::mem::replace(&mut self.guards_lost, self.user.guards_lost()) != self.guards_lost {
            for own in self.mailboxes.values_mut() {
                own.renew(now).into_iter().for_each(|packet| self.user.packet_forgotten(packet));
            }
        }
        if self.user.is_attached(now) && self.blocked_until.is_none_or(|until| until <= now) {
            let sent = {
                let out = &mut Inner::new(out, &mut inner);
                self.keep_mailboxes(now, out).and_then(|()| self.publish(now, out)).and_then(|()| self.answer(now, out))
            };
            let was_blocked = self.blocked_until.take().is_some();
            if let Err(why) = sent {
                self.blocked_until = Some(now + NO_PATH_WAIT);
                if !was_blocked {
                    self.events.push_back(ReceiverEvent::NoPath(why));
                }
            }
        }
        for event in inner.drain(..) {
            match event {
                UserEvent::Guards => self.events.push_back(ReceiverEvent::Guards),
                UserEvent::NoPath(why) => self.events.push_back(ReceiverEvent::NoPath(why)),
                // It opens no sessions.
                UserEvent::Connected(_) | UserEvent::Stream(..) | UserEvent::Ended(..) => {}
            }
        }
        self.inner = inner;
        self.events.drain(..).for_each(|event| out.event(event));
    }

    fn on_arrived(&mut self, now: Time, block: BlockId, body: &[u8; BODY]) {
        match self.uses.remove(&block) {
            Some(Use::Stock(number)) => {
                self.counts.taken += 1;
                if let Some(own) = self.mailboxes.get_mut(&number) {
                    let fates = own.on_returned(now, block);
                    self.settle(now, fates);
                }
                let mut events = Vec::new();
                self.service.on_body(now, EXIT, body, &mut events);
                events.into_iter().for_each(|event| self.on_service(event));
            }
            Some(Use::Answer(number)) => {
                let Some(own) = self.mailboxes.get_mut(&number) else { return };
                if let Ok(Answer::Mailbox { label, state, held, .. }) = Answer::read(body)
                    && label == own.at.label
                {
                    let was_open = own.is_open();
                    let fates = own.on_state(now, state, held);
                    self.counts.opened += u64::from(!was_open && own.is_open());
                    self.settle(now, fates);
                }
            }
            Some(Use::Stored(relay, part)) => {
                if let Ok(Answer::Stored) = Answer::read(body) {
                    self.publication.on_stored(relay, part);
                    if !self.is_ready && self.publication.confirmed() > 0 {
                        self.is_ready = true;
                        self.events.push_back(ReceiverEvent::Ready);
                    }
                }
            }
            None => {}
        }
    }

    fn settle(&mut self, now: Time, fates: Fates) {
        fates.arrived.into_iter().for_each(|packet| self.user.packet_arrived(now, packet));
        fates.lost.into_iter().for_each(|packet| self.user.packet_lost(now, packet));
        fates.blocks.into_iter().for_each(|block| self.user.block_lost(now, block));
    }

    fn on_service(&mut self, happened: ServiceEvent) {
        let session = happened.session;
        match happened.event {
            ExitEvent::Stream(StreamEvent::Opened(CONTROL, Target::Itself)) => {
                self.service.act(session, |exit| exit.accept(CONTROL));
                let has_own = self.own_sessions().count() < MOST_OWN;
                // One without comes by the doors, and hears when there are others.
                let mailboxes = if has_own { Vec::new() } else { self.open_mailboxes(None) };
                self.announced.insert(session, Announced { has_own, mailboxes });
            }
            ExitEvent::Stream(
                StreamEvent::Opened(CONTROL, _)
                | StreamEvent::Readable(CONTROL)
                | StreamEvent::Writable(CONTROL)
                | StreamEvent::Accepted(CONTROL)
                | StreamEvent::Reset(CONTROL, _)
                | StreamEvent::Datagram(..),
            ) => {}
            // It leads nowhere.
            ExitEvent::Stream(StreamEvent::FlowOpened(stream, _)) => {
                self.service.act(session, |exit| exit.reset(stream, Reason::Forbidden));
            }
            ExitEvent::Ended(_) => {
                self.announced.remove(&session);
                self.mailboxes.retain(|_, own| own.of != Some(session));
                self.events.push_back(ReceiverEvent::Session(happened));
            }
            ExitEvent::Stream(_) => self.events.push_back(ReceiverEvent::Session(happened)),
        }
    }

    /// As many mailboxes as there should be, each with what it wishes.
    fn keep_mailboxes(&mut self, now: Time, out: &mut impl Out<User<C, R>>) -> Result<(), RouteError> {
        let dead: Vec<u64> =
            self.mailboxes.iter().filter(|(_, own)| own.is_dead()).map(|(number, _)| *number).collect();
        for number in dead {
            if let Some(own) = self.mailboxes.remove(&number).filter(|own| !own.is_former()) {
                self.counts.given_up += 1;
                self.avoided.insert(own.relay, now + AVOIDED);
            }
        }
        let reserved = &self.user.choice().reserved;
        // A relay that has become a guard since would know for whom its mailbox is, and no block leads there.
        let before = self.mailboxes.values().filter(|own| !own.is_former()).count();
        self.mailboxes.retain(|_, own| !reserved.contains(&own.at.relay));
        let kept = self.mailboxes.values().filter(|own| !own.is_former()).count();
        self.counts.given_up += (before - kept) as u64;
        self.avoided.retain(|_, until| *until > now);
        let sessions = self.own_sessions().map(|session| (Some(session), OF_SESSION));
        let wanted: Vec<_> = [(None, DOORS)].into_iter().chain(sessions).collect();
        for (of, count) in wanted {
            let there = |own: &&OwnMailbox| own.of == of && !own.is_former();
            while self.mailboxes.values().filter(there).count() < count && self.place_mailbox(now, of) {}
        }
        if self.mailboxes.is_empty() {
            return Err(RouteError::TooFewRelays { hops: 1 });
        }
        let numbers: Vec<u64> = self.mailboxes.keys().copied().collect();
        for number in numbers {
            while let Some(wish) = self.mailboxes.get_mut(&number).and_then(|own| own.wish(now)) {
                self.grant(now, number, wish, out)?;
            }
        }
        Ok(())
    }

    /// One more mailbox, at a relay that has none of these yet and is no guard; whether there is such a relay.
    fn place_mailbox(&mut self, now: Time, of: Option<SessionName>) -> bool {
        let HiddenReceiver { user, mailboxes, avoided, rng, .. } = self;
        let there = |own: &&OwnMailbox| own.of == of && !own.is_former();
        let taken: Vec<RelayIndex> = mailboxes.values().filter(there).map(|own| own.at.relay).collect();
        let found = (0..TRIES).find_map(|_| {
            let relay = user.any_relay(&taken)?;
            let identity = user.document().member(relay)?.descriptor.identity;
            (!avoided.contains_key(&identity)).then_some((relay, identity))
        });
        let Some((relay, identity)) = found else { return false };
        let key = SecretKey::from_seed(&bytes(rng));
        let former = mailboxes.values().filter(|own| own.of == of && own.is_former());
        let own = OwnMailbox::new(now, relay, identity, of, key, bytes(rng)).in_place_of(former);
        self.mailboxes.insert(self.next_mailbox, own);
        self.next_mailbox += 1;
        true
    }

    fn grant(&mut self, now: Time, number: u64, wish: Wish, out: &mut impl Out<User<C, R>>) -> Result<(), RouteError> {
        let Some(own) = self.mailboxes.get(&number) else { return Ok(()) };
        let at = own.at;
        let (count, asks) = match wish {
            Wish::Open(count) => (count, true),
            Wish::Fill { blocks, asks, .. } => (blocks, asks),
        };
        let (mut ids, mut blocks) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for place in 0..count {
            let (id, block) = self.user.make_block(now, at.relay)?;
            blocks.push(block);
            if asks && place == 0 {
                self.know(id, Use::Answer(number));
            } else {
                self.know(id, Use::Stock(number));
                ids.push(id);
            }
        }
        self.counts.blocks += ids.len() as u64;
        let epoch = self.user.document().epoch;
        let Some(own) = self.mailboxes.get_mut(&number) else { return Ok(()) };
        let request = match wish {
            Wish::Open(_) => Request::Open(Open::new(&own.key, &own.relay, epoch, own.secret, blocks)),
            Wish::Fill { anew, .. } => Request::Fill { label: at.label, secret: own.secret, asks, anew, blocks },
        };
        let to = MailboxAt { relay: at.relay, label: MAILBOX };
        let packet = self.user.send_packet(now, to, |body| request.write(body), out)?;
        own.on_sent(now, wish, packet, ids);
        // Its relay is gone, or the guard by which it would answer.
        if asks && own.is_silent() {
            self.user.ask_guards(now);
        }
        Ok(())
    }

    fn know(&mut self, block: BlockId, what: Use) {
        if self.uses.len() >= MOST_KNOWN {
            self.uses.pop_first();
        }
        self.uses.insert(block, what);
    }

    /// Doors that are open, and whether others are not to be waited for.
    fn doors(&self, now: Time) -> (Vec<MailboxAt>, bool) {
        let doors = self.open_mailboxes(None);
        let complete = doors.len() >= DOORS || now.since(self.began) >= PATIENCE;
        (doors, complete)
    }

    /// Tells relays where the doors are.
    fn publish(&mut self, now: Time, out: &mut impl Out<User<C, R>>) -> Result<(), RouteError> {
        let (doors, complete) = self.doors(now);
        if self.publication.is_due(now, &doors, complete) {
            let epoch = self.user.document().epoch;
            let blinded = self.secret.blinded(epoch);
            let version = self.wall_at_zero.saturating_add(now.as_nanos());
            let descriptor = Descriptor { keys: self.keys.clone(), mailboxes: doors.clone() };
            let salt: [u8; SALT] = bytes(&mut self.rng);
            let parts: [_; PARTS] = descriptor.seal(&self.secret.address(), &blinded, epoch, version, salt);
            let mut places = stores(self.user.document(), &blinded.public());
            // A guard of ours that keeps it would know whose client asks.
            places.retain(|relay| !self.user.choice().reserved.contains(relay));
            self.publication.begin(now, doors, parts, places);
        }
        for (relay, which, part) in self.publication.poll(now) {
            // It has become a guard since: silent, to the publication.
            if self.user.choice().reserved.contains(&relay) {
                continue;
            }
            let (id, answer) = self.user.make_block(now, relay)?;
            self.know(id, Use::Stored(relay, which));
            let request = Request::Publish { part: Box::new(part), answer };
            let to = MailboxAt { relay, label: MAILBOX };
            let packet = self.user.send_packet(now, to, |body| request.write(body), out)?;
            self.user.packet_forgotten(packet);
        }
        Ok(())
    }

    /// Sends what sessions have to say, and announces to senders the mailboxes that are theirs alone.
    fn answer(&mut self, now: Time, out: &mut impl Out<User<C, R>>) -> Result<(), RouteError> {
        let sessions: Vec<SessionName> = self.announced.keys().copied().collect();
        let epoch = self.user.document().epoch;
        for session in sessions {
            let (own, doors) = (self.open_mailboxes(Some(session)), self.open_mailboxes(None));
            let waits = self.waits(session);
            let Some(announced) = self.announced.get_mut(&session) else { continue };
            let open = if announced.has_own { own } else { doors };
            // Once it goes by those of this epoch, it hears of each change at once.
            if open.is_empty() || announced.mailboxes == open || announced.mailboxes.is_empty() && waits {
                continue;
            }
            let message = encode_mailboxes(epoch, &open);
            announced.mailboxes = open;
            self.service.act(session, |exit| exit.write(CONTROL, &message));
        }
        loop {
            let HiddenReceiver { service, user, .. } = self;
            let Some((block, cell)) = service.poll_cell(now) else { return Ok(()) };
            // In another epoch the index is another relay's.
            let first = block.first();
            let elsewhere = (first.epoch == user.document().epoch as u8).then_some(first.relay);
            let relay = user.any_relay(elsewhere.as_slice()).ok_or(RouteError::TooFewRelays { hops: 2 })?;
            let to = MailboxAt { relay, label: ONWARD };
            let packet = user.send_packet(now, to, |body| write_onward(&block, cell, body), out)?;
            // Most of these carry reports, of which nobody reports.
            user.packet_forgotten(packet);
            self.counts.answered += 1;
        }
    }
}

impl<C: Cryptography, R: rand_core::Rng> Machine for HiddenReceiver<C, R> {
    type Address = SocketAddr;
    type Message = Frame;
    type Event = ReceiverEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        frame: &mut Frame,
        out: &mut impl Out<HiddenReceiver<C, R>>,
    ) {
        let mut inner = core::mem::take(&mut self.inner);
        self.user.on_message(now, arrival, frame, &mut Inner::new(out, &mut inner));
        self.inner = inner;
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<HiddenReceiver<C, R>>) {
        let mut inner = core::mem::take(&mut self.inner);
        self.user.on_timer(now, &mut Inner::new(out, &mut inner));
        self.inner = inner;
        if self.service.timer(now) <= now {
            let mut events = Vec::new();
            self.service.on_timer(now, &mut events);
            events.into_iter().for_each(|event| self.on_service(event));
        }
        self.serve(now, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<HiddenReceiver<C, R>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        let user = self.user.timer(now);
        if !self.user.is_attached(now) {
            return user;
        }
        let (doors, complete) = self.doors(now);
        let patience = if complete { Time::MAX } else { self.began + PATIENCE };
        let mailboxes = self.mailboxes.values().map(OwnMailbox::timer).min();
        let own =
            [mailboxes.unwrap_or(now), self.publication.timer(&doors, complete), patience, self.service.timer(now)];
        let own = own.into_iter().min().unwrap_or(Time::MAX);
        // What fell due while it was attached to no guard is due now.
        user.min(own.max(self.blocked_until.unwrap_or(now)).max(now))
    }
}
