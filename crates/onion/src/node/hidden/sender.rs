//! A hidden sender: it finds a receiver by its address, and has a session with it.
//!
//! A session begins at the doors that the descriptor names. The receiver then tells, in a stream of its own, mailboxes
//! that are for this session alone, and others when one of them is gone.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Machine, Out};

use super::search::{FindError, Search, Step};
use super::{CONTROL, Inner, decode_newest, draw};
use crate::RelayIndex;
use crate::crypto::Cryptography;
use crate::directory::Document;
use crate::guards::GuardState;
use crate::hidden::body::{Answer, Request};
use crate::hidden::{Address, Descriptor, MAILBOX, MailboxAt};
use crate::node::frame::Frame;
use crate::node::user::{PacketId, SessionId, User, UserEvent};
use crate::reply::BlockId;
use crate::routes::{PlacementError, RouteError};
use crate::session::{Client, End, Rates, ReadOutcome, StreamEvent, Target};

/// Where there is no path, one is looked for again after this.
const NO_PATH_WAIT: Duration = Duration::from_millis(500);

/// What the application is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// It is known where the receiver's mailboxes are.
    Found,
    /// The receiver has answered.
    Connected,
    /// Of a stream, never of the one by which mailboxes are announced.
    Stream(StreamEvent),
    /// The session is over; [`HiddenSender::connect`] begins another.
    Ended(End),
    /// No receiver was found; [`HiddenSender::connect`] looks again.
    NotFound(FindError),
    /// [`HiddenSender::user`]'s guards have changed, and are to be written down; new ones are not used before
    /// [`HiddenSender::on_guards_kept`] says that it is.
    Guards,
    /// There is no path now.
    NoPath(RouteError),
}

/// A question to a relay that keeps descriptors.
struct Asked {
    relay: RelayIndex,
    packet: PacketId,
}

enum State {
    Idle,
    Looking(Search),
    Session {
        id: SessionId,
        version: u64,
        connected: bool,
        /// Of what was announced to it, what is no whole message yet.
        received: Vec<u8>,
        /// What was announced to it last that is of an epoch still to come.
        early: Option<(u64, Vec<MailboxAt>)>,
    },
}

/// A user who sends to a key.
pub struct HiddenSender<C: Cryptography, R> {
    user: User<C, R>,
    rng: R,
    address: Address,
    rates: Rates,
    state: State,
    asked: BTreeMap<BlockId, Asked>,
    /// Descriptors up to this version led nowhere.
    failed: u64,
    /// Nobody is asked before, since there was no path.
    blocked_until: Option<Time>,
    inner: Vec<UserEvent>,
    events: VecDeque<SenderEvent>,
}

impl<C: Cryptography, R> core::fmt::Debug for HiddenSender<C, R> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "HiddenSender(to {:?})", self.address)
    }
}

impl<C: Cryptography, R: rand_core::Rng> HiddenSender<C, R> {
    /// `user` sends to `address`, once [`HiddenSender::connect`] says so.
    pub fn new(user: User<C, R>, address: Address, rates: Rates, rng: R) -> HiddenSender<C, R> {
        HiddenSender {
            user,
            rng,
            address,
            rates,
            state: State::Idle,
            asked: BTreeMap::new(),
            failed: 0,
            blocked_until: None,
            inner: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// The user inside.
    pub fn user(&self) -> &User<C, R> {
        &self.user
    }

    /// `state`, which the user's [`guards`](User::guards) were, is written down: packets may use its guards.
    /// [`HiddenSender::serve`] comes after it.
    pub fn on_guards_kept(&mut self, now: Time, state: &GuardState) {
        self.user.on_guards_kept(now, state);
    }

    /// Whom it sends to.
    pub fn address(&self) -> Address {
        self.address
    }

    /// Looks for the receiver and begins a session with it, unless it does so already; [`HiddenSender::serve`] comes
    /// after it.
    pub fn connect(&mut self, now: Time) {
        if matches!(self.state, State::Idle) {
            self.look(now);
        }
    }

    fn look(&mut self, now: Time) {
        let HiddenSender { user, rng, address, failed, .. } = self;
        let search = Search::new(*address, user.document(), &user.choice().reserved, *failed, now, draw(rng));
        let unanswered = core::mem::take(&mut self.asked);
        unanswered.into_values().for_each(|asked| self.user.packet_lost(now, asked.packet));
        self.state = State::Looking(search);
    }

    /// The session, to act on, once the receiver has answered; [`HiddenSender::serve`] comes after it.
    pub fn session(&mut self) -> Option<&mut Client> {
        match self.state {
            State::Session { id, connected: true, .. } => self.user.session(id),
            _ => None,
        }
    }

    /// Another epoch begins. A session goes on by mailboxes of the last one, until others are announced; a search
    /// begins anew.
    ///
    /// # Errors
    ///
    /// None that [`User::new`] has not had.
    pub fn begin_epoch(&mut self, now: Time, document: Arc<Document>) -> Result<(), PlacementError> {
        self.user.begin_epoch(now, document)?;
        self.failed = 0;
        match &mut self.state {
            State::Idle => {}
            State::Looking(_) => self.look(now),
            State::Session { id, early, .. } => {
                if let Some((epoch, mailboxes)) = early.take() {
                    self.user.redirect(*id, epoch, &mailboxes);
                }
            }
        }
        Ok(())
    }

    /// Sends what is to leave now, and tells what has happened.
    pub fn serve(&mut self, now: Time, out: &mut impl Out<HiddenSender<C, R>>) {
        let mut inner = core::mem::take(&mut self.inner);
        self.user.serve(now, &mut Inner::new(out, &mut inner));
        while let Some(arrived) = self.user.poll_arrived() {
            if let Some(asked) = self.asked.remove(&arrived.block)
                && let Ok(answer) = Answer::read(&arrived.body)
            {
                self.user.packet_arrived(now, asked.packet);
                self.on_answer(now, asked.relay, answer);
            }
        }
        if self.user.is_attached(now) && self.blocked_until.is_none_or(|until| until <= now) {
            let sent = self.search(now, &mut Inner::new(out, &mut inner));
            let was_blocked = self.blocked_until.take().is_some();
            if let Err(why) = sent {
                self.blocked_until = Some(now + NO_PATH_WAIT);
                if !was_blocked {
                    self.events.push_back(SenderEvent::NoPath(why));
                }
            }
        }
        // What was read gives credit, and a session that has just begun has something to say.
        let mut is_again = false;
        for event in inner.drain(..) {
            is_again |= self.on_user(now, event);
        }
        if is_again || matches!(self.state, State::Session { connected: false, .. }) {
            self.user.serve(now, &mut Inner::new(out, &mut inner));
            let more = core::mem::take(&mut inner);
            more.into_iter().for_each(|event| _ = self.on_user(now, event));
        }
        self.inner = inner;
        self.events.drain(..).for_each(|event| out.event(event));
    }

    fn search(&mut self, now: Time, out: &mut impl Out<User<C, R>>) -> Result<(), RouteError> {
        while let State::Looking(search) = &mut self.state {
            match search.step(now) {
                Step::Wait => break,
                Step::Failed(why) => {
                    self.state = State::Idle;
                    self.failed = 0;
                    self.events.push_back(SenderEvent::NotFound(why));
                }
                // It has become a guard since, which would know who asks: as if it did not answer.
                Step::Ask(relay) if self.user.choice().reserved.contains(&relay) => {}
                Step::Ask(relay) => {
                    let key = search.key();
                    let (one, first) = self.user.make_block(now, relay)?;
                    let (other, second) = self.user.make_block(now, relay)?;
                    let request = Request::Fetch { key, answers: Box::new([first, second]) };
                    let to = MailboxAt { relay, label: MAILBOX };
                    let packet = self.user.send_packet(now, to, |body| request.write(body), out)?;
                    self.asked.insert(one, Asked { relay, packet });
                    self.asked.insert(other, Asked { relay, packet });
                }
            }
        }
        Ok(())
    }

    fn on_answer(&mut self, now: Time, relay: RelayIndex, answer: Answer) {
        let State::Looking(search) = &mut self.state else { return };
        let Some((version, Descriptor { keys, mailboxes })) = search.on_answer(now, relay, answer) else { return };
        self.events.push_back(SenderEvent::Found);
        let Some(id) = self.user.open_hidden(now, keys, &mailboxes, self.rates.clone()) else {
            self.state = State::Idle;
            self.events.push_back(SenderEvent::NotFound(FindError::NoUsableMailbox));
            return;
        };
        // The first stream of a session is the receiver's to speak in.
        if let Some(client) = self.user.session(id)
            && let Some(stream) = client.open_stream(now, Target::Itself)
        {
            debug_assert_eq!(stream, CONTROL);
            client.finish(stream);
        }
        self.state = State::Session { id, version, connected: false, received: Vec::new(), early: None };
    }

    /// Whether there may be something to send now.
    fn on_user(&mut self, now: Time, event: UserEvent) -> bool {
        match event {
            UserEvent::Guards => self.events.push_back(SenderEvent::Guards),
            UserEvent::NoPath(why) => self.events.push_back(SenderEvent::NoPath(why)),
            UserEvent::Connected(of) => {
                if let State::Session { id, connected, .. } = &mut self.state
                    && *id == of
                {
                    *connected = true;
                    self.failed = 0;
                    self.events.push_back(SenderEvent::Connected);
                }
            }
            UserEvent::Stream(_, StreamEvent::Readable(CONTROL)) => return self.read_mailboxes(),
            UserEvent::Stream(
                _,
                StreamEvent::Accepted(CONTROL)
                | StreamEvent::Writable(CONTROL)
                | StreamEvent::Reset(CONTROL, _)
                | StreamEvent::Opened(..)
                | StreamEvent::FlowOpened(..)
                | StreamEvent::Datagram(..),
            ) => {}
            UserEvent::Stream(of, event) => {
                if matches!(self.state, State::Session { id, .. } if id == of) {
                    self.events.push_back(SenderEvent::Stream(event));
                }
            }
            UserEvent::Ended(of, end) => {
                let State::Session { id, version, connected, .. } = self.state else { return false };
                if id != of {
                    return false;
                }
                self.state = State::Idle;
                if !connected && self.failed < version {
                    // What the descriptor says is not so any more: there may be a newer one.
                    self.failed = version;
                    self.look(now);
                    return true;
                }
                self.events.push_back(SenderEvent::Ended(end));
            }
        }
        false
    }

    /// The receiver announces where packets are to go from now on.
    fn read_mailboxes(&mut self) -> bool {
        let State::Session { id, received, early, .. } = &mut self.state else { return false };
        let Some(client) = self.user.session(*id) else { return false };
        let mut piece = [0; 256];
        while let Ok(ReadOutcome::Bytes(count)) = client.read(CONTROL, &mut piece) {
            received.extend_from_slice(&piece[..count]);
            match decode_newest(received) {
                Ok(newest) => *early = newest.or(early.take()),
                Err(_) => {
                    client.close();
                    return true;
                }
            }
        }
        // Those of an epoch to come wait for it.
        if let Some((epoch, mailboxes)) = early.take_if(|(epoch, _)| *epoch <= self.user.document().epoch) {
            self.user.redirect(*id, epoch, &mailboxes);
        }
        true
    }
}

impl<C: Cryptography, R: rand_core::Rng> Machine for HiddenSender<C, R> {
    type Address = SocketAddr;
    type Message = Frame;
    type Event = SenderEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(
        &mut self,
        now: Time,
        arrival: Arrival<SocketAddr>,
        frame: &mut Frame,
        out: &mut impl Out<HiddenSender<C, R>>,
    ) {
        let mut inner = core::mem::take(&mut self.inner);
        self.user.on_message(now, arrival, frame, &mut Inner::new(out, &mut inner));
        self.inner = inner;
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<HiddenSender<C, R>>) {
        let mut inner = core::mem::take(&mut self.inner);
        self.user.on_timer(now, &mut Inner::new(out, &mut inner));
        self.inner = inner;
        self.serve(now, out);
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<HiddenSender<C, R>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        let user = self.user.timer(now);
        match &self.state {
            // What fell due while it was attached to no guard is due now.
            State::Looking(search) if self.user.is_attached(now) => {
                user.min(search.timer().max(self.blocked_until.unwrap_or(now)).max(now))
            }
            _ => user,
        }
    }
}
