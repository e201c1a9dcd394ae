//! What stands at a node: a relay with mailboxes, the receiver, a sender, or a stranger.
//!
//! A sender opens a stream and says which file it has (4 bytes); the receiver says how much of it there is (8 bytes),
//! and the sender goes on from there. When all of it is there, the receiver ends the stream. So a session that is
//! lost costs what was on its way.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::directory::Document;
use anabranch_onion::hidden::MailboxAt;
use anabranch_onion::node::{
    Frame, HiddenReceiver, HiddenSender, ReceiverEvent, RelayNode, SenderEvent, ServiceEvent, User, UserEvent,
    WithMailboxes,
};
use anabranch_onion::routes::PlacementError;
use anabranch_onion::session::{ExitEvent, ReadOutcome, SessionName, StreamEvent, StreamId, Target};
use anabranch_proto::machine::{Arrival, Machine, Out};

use super::super::node::{Through, address, byte};

/// Bytes that are read or written at a time.
const CHUNK: usize = 16 << 10;

/// After a session that ended, or a search in vain, it is tried again.
const AGAIN: Duration = Duration::SECOND;

/// What there is of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Got {
    /// Bytes from its beginning.
    pub bytes: u64,
    /// Some of them were wrong.
    pub wrong: bool,
    /// When all had come.
    pub whole: Option<Time>,
    /// When bytes came last, and the longest time without.
    pub last: Option<Time>,
    /// The longest time from bytes to the next bytes.
    pub longest_stall: Duration,
}

/// The receiver, and what it has.
#[derive(Debug)]
pub struct ReceiverNode<C: Cryptography> {
    machine: HiddenReceiver<C, Rng>,
    files: BTreeMap<u32, Got>,
    /// Streams and the files that come by them; with the bytes of the file's number that have come.
    streams: BTreeMap<(SessionName, StreamId), (Vec<u8>, Option<u32>)>,
}

impl<C: Cryptography> ReceiverNode<C> {
    pub fn new(machine: HiddenReceiver<C, Rng>) -> ReceiverNode<C> {
        ReceiverNode { machine, files: BTreeMap::new(), streams: BTreeMap::new() }
    }

    pub fn machine(&self) -> &HiddenReceiver<C, Rng> {
        &self.machine
    }

    pub fn got(&self, number: u32) -> Got {
        self.files.get(&number).copied().unwrap_or_default()
    }

    fn on_events(&mut self, now: Time, events: Vec<ReceiverEvent>, out: &mut impl Out<HiddenNode<C>>) {
        let mut events = events;
        while !events.is_empty() {
            let mut is_changed = false;
            for event in events.drain(..) {
                if event == ReceiverEvent::Guards {
                    // Nothing outlives a run, and nothing is lost in one.
                    let state = self.machine.user().guards().clone();
                    self.machine.on_guards_kept(now, &state);
                    is_changed = true;
                }
                let ReceiverEvent::Session(ServiceEvent { session, event }) = event else { continue };
                match event {
                    ExitEvent::Stream(StreamEvent::Opened(stream, Target::Itself)) => {
                        self.streams.insert((session, stream), (Vec::new(), None));
                        self.machine.act(session, |exit| exit.accept(stream));
                        is_changed = true;
                    }
                    ExitEvent::Stream(StreamEvent::Readable(stream)) => is_changed |= self.read(now, session, stream),
                    ExitEvent::Ended(_) => self.streams.retain(|(of, _), _| *of != session),
                    ExitEvent::Stream(_) => {}
                }
            }
            let mut more = Vec::new();
            if is_changed {
                self.machine.serve(now, &mut Through::new(out, &mut more, false));
            }
            events = more;
        }
    }

    fn read(&mut self, now: Time, session: SessionName, stream: StreamId) -> bool {
        let Some((number, file)) = self.streams.get_mut(&(session, stream)) else { return false };
        let files = &mut self.files;
        let read = self.machine.act(session, |exit| {
            let mut chunk = [0; CHUNK];
            loop {
                match exit.read(stream, &mut chunk) {
                    Ok(ReadOutcome::Bytes(count)) => {
                        let mut bytes = &chunk[..count];
                        if file.is_none() {
                            let missing = (4 - number.len()).min(bytes.len());
                            number.extend_from_slice(&bytes[..missing]);
                            bytes = &bytes[missing..];
                            let Ok(whole) = number[..].try_into() else { continue };
                            let whole = u32::from_be_bytes(whole);
                            *file = Some(whole);
                            let there = files.entry(whole).or_default().bytes;
                            let _ = exit.write(stream, &there.to_be_bytes());
                        }
                        let Some(got) = file.and_then(|file| files.get_mut(&file)).filter(|_| !bytes.is_empty()) else {
                            continue;
                        };
                        got.wrong |= bytes.iter().zip(got.bytes..).any(|(is, at)| *is != byte(at));
                        got.bytes += bytes.len() as u64;
                        let stall = got.last.map_or(Duration::ZERO, |last| now.since(last));
                        got.longest_stall = got.longest_stall.max(stall);
                        got.last = Some(now);
                    }
                    Ok(ReadOutcome::End) => {
                        if let Some(got) = file.and_then(|file| files.get_mut(&file)) {
                            got.whole.get_or_insert(now);
                        }
                        exit.finish(stream);
                        return;
                    }
                    Ok(ReadOutcome::Pending) | Err(_) => return,
                }
            }
        });
        read.is_some()
    }
}

/// A sender and its file.
#[derive(Debug)]
pub struct SenderNode<C: Cryptography> {
    machine: HiddenSender<C, Rng>,
    number: u32,
    bytes: u64,
    /// When it connects.
    next: Time,
    stream: Option<StreamId>,
    /// What the receiver says that it has, as it comes.
    there: Vec<u8>,
    written: u64,
    done: Option<Time>,
}

impl<C: Cryptography> SenderNode<C> {
    pub fn new(machine: HiddenSender<C, Rng>, number: u32, bytes: u64, begins: Time) -> SenderNode<C> {
        SenderNode { machine, number, bytes, next: begins, stream: None, there: Vec::new(), written: 0, done: None }
    }

    pub fn machine(&self) -> &HiddenSender<C, Rng> {
        &self.machine
    }

    pub fn done(&self) -> Option<Time> {
        self.done
    }

    fn on_events(&mut self, now: Time, events: Vec<SenderEvent>, out: &mut impl Out<HiddenNode<C>>) {
        let mut events = events;
        while !events.is_empty() {
            let mut is_changed = false;
            for event in events.drain(..) {
                match event {
                    SenderEvent::Guards => {
                        let state = self.machine.user().guards().clone();
                        self.machine.on_guards_kept(now, &state);
                        is_changed = true;
                    }
                    SenderEvent::Connected => {
                        let number = self.number;
                        self.stream = self.machine.session().and_then(|client| {
                            let stream = client.open_stream(now, Target::Itself)?;
                            client.write(stream, &number.to_be_bytes()).ok()?;
                            Some(stream)
                        });
                        self.there.clear();
                        is_changed = true;
                    }
                    SenderEvent::Stream(StreamEvent::Readable(stream) | StreamEvent::Writable(stream))
                        if Some(stream) == self.stream =>
                    {
                        is_changed |= self.carry(now, stream);
                    }
                    SenderEvent::Ended(_) | SenderEvent::NotFound(_) => {
                        self.stream = None;
                        self.next = if self.done.is_some() { Time::MAX } else { now + AGAIN };
                    }
                    _ => {}
                }
            }
            let mut more = Vec::new();
            if is_changed {
                self.machine.serve(now, &mut Through::new(out, &mut more, false));
            }
            events = more;
        }
    }

    fn carry(&mut self, now: Time, stream: StreamId) -> bool {
        let Some(client) = self.machine.session() else { return false };
        let mut piece = [0; 8];
        while self.there.len() < 8 {
            match client.read(stream, &mut piece[..8 - self.there.len()]) {
                Ok(ReadOutcome::Bytes(count)) => self.there.extend_from_slice(&piece[..count]),
                _ => return true,
            }
            if let Ok(there) = self.there[..].try_into() {
                self.written = u64::from_be_bytes(there).min(self.bytes);
            }
        }
        while self.written < self.bytes {
            let most = (self.bytes - self.written).min(CHUNK as u64);
            let bytes: Vec<u8> = (self.written..self.written + most).map(byte).collect();
            match client.write(stream, &bytes) {
                Ok(0) | Err(_) => return true,
                Ok(count) => self.written += count as u64,
            }
        }
        client.finish(stream);
        if let Ok(ReadOutcome::End) = client.read(stream, &mut piece) {
            self.done.get_or_insert(now);
            client.close();
        }
        true
    }
}

/// Somebody who sends what is nothing to a receiver's doors.
#[derive(Debug)]
pub struct Stranger<C: Cryptography> {
    user: User<C, Rng>,
    gap: Duration,
    doors: Vec<MailboxAt>,
    next: Time,
    sent: u64,
}

impl<C: Cryptography> Stranger<C> {
    pub fn new(user: User<C, Rng>, packets_per_s: f64) -> Stranger<C> {
        let gap = Duration::from_secs_f64(1.0 / packets_per_s);
        Stranger { user, gap, doors: Vec::new(), next: Time::MAX, sent: 0 }
    }

    pub fn begin(&mut self, now: Time, doors: Vec<MailboxAt>) {
        (self.doors, self.next) = (doors, now);
    }

    fn on_events(&mut self, now: Time, events: &[UserEvent], out: &mut impl Out<HiddenNode<C>>) {
        if events.contains(&UserEvent::Guards) {
            let state = self.user.guards().clone();
            self.user.on_guards_kept(now, &state);
            self.user.serve(now, &mut Through::new(out, &mut Vec::new(), false));
        }
    }

    fn annoy(&mut self, now: Time, out: &mut impl Out<HiddenNode<C>>) {
        let mut events: Vec<UserEvent> = Vec::new();
        while self.next <= now && !self.doors.is_empty() {
            let door = self.doors[self.sent as usize % self.doors.len()];
            let out = &mut Through::new(out, &mut events, false);
            if let Ok(packet) = self.user.send_packet(now, door, |body| body.fill(0x55), out) {
                self.user.packet_forgotten(packet);
            }
            self.sent += 1;
            self.next += self.gap;
        }
    }
}

/// A machine of such a world.
#[derive(Debug)]
pub enum HiddenNode<C: Cryptography> {
    /// A relay.
    Relay(Box<RelayNode<C, WithMailboxes<C, ()>>>),
    /// The receiver.
    Receiver(Box<ReceiverNode<C>>),
    /// A sender.
    Sender(Box<SenderNode<C>>),
    /// A stranger.
    Stranger(Box<Stranger<C>>),
}

impl<C: Cryptography> HiddenNode<C> {
    /// Another epoch begins for a user.
    pub fn begin_epoch(
        &mut self,
        now: Time,
        document: Arc<Document>,
        out: &mut impl Out<HiddenNode<C>>,
    ) -> Result<(), PlacementError> {
        match self {
            HiddenNode::Relay(_) => {}
            HiddenNode::Receiver(receiver) => {
                receiver.machine.begin_epoch(now, document)?;
                let mut events = Vec::new();
                receiver.machine.serve(now, &mut Through::new(out, &mut events, false));
                receiver.on_events(now, events, out);
            }
            HiddenNode::Sender(sender) => {
                sender.machine.begin_epoch(now, document)?;
                let mut events = Vec::new();
                sender.machine.serve(now, &mut Through::new(out, &mut events, false));
                sender.on_events(now, events, out);
            }
            HiddenNode::Stranger(stranger) => stranger.user.begin_epoch(now, document)?,
        }
        Ok(())
    }
}

impl<C: Cryptography> Machine for HiddenNode<C> {
    type Address = u32;
    type Message = Frame;
    type Event = Infallible;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, now: Time, arrival: Arrival<u32>, frame: &mut Frame, out: &mut impl Out<HiddenNode<C>>) {
        let arrival = Arrival { marked: arrival.marked, ..Arrival::new(address(arrival.from)) };
        match self {
            HiddenNode::Relay(relay) => {
                relay.on_message(now, arrival, frame, &mut Through::new(out, &mut Vec::new(), false));
            }
            HiddenNode::Receiver(receiver) => {
                let mut events = Vec::new();
                receiver.machine.on_message(now, arrival, frame, &mut Through::new(out, &mut events, false));
                receiver.on_events(now, events, out);
            }
            HiddenNode::Sender(sender) => {
                let mut events = Vec::new();
                sender.machine.on_message(now, arrival, frame, &mut Through::new(out, &mut events, false));
                sender.on_events(now, events, out);
            }
            HiddenNode::Stranger(stranger) => {
                stranger.user.on_message(now, arrival, frame, &mut Through::new(out, &mut Vec::new(), false));
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<HiddenNode<C>>) {
        match self {
            HiddenNode::Relay(relay) => relay.on_timer(now, &mut Through::new(out, &mut Vec::new(), false)),
            HiddenNode::Receiver(receiver) => {
                let mut events = Vec::new();
                receiver.machine.on_timer(now, &mut Through::new(out, &mut events, false));
                receiver.on_events(now, events, out);
            }
            HiddenNode::Sender(sender) => {
                if sender.next <= now {
                    sender.next = Time::MAX;
                    sender.machine.connect(now);
                }
                let mut events = Vec::new();
                sender.machine.on_timer(now, &mut Through::new(out, &mut events, false));
                sender.on_events(now, events, out);
            }
            HiddenNode::Stranger(stranger) => {
                let mut events = Vec::new();
                stranger.user.on_timer(now, &mut Through::new(out, &mut events, false));
                stranger.on_events(now, &events, out);
                stranger.annoy(now, out);
            }
        }
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<HiddenNode<C>>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        match self {
            HiddenNode::Relay(relay) => relay.timer(now),
            HiddenNode::Receiver(receiver) => receiver.machine.timer(now),
            HiddenNode::Sender(sender) => sender.machine.timer(now).min(sender.next),
            HiddenNode::Stranger(stranger) => stranger.user.timer(now).min(stranger.next),
        }
    }
}
