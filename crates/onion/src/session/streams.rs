//! Reliable streams of bytes over cells that are lost and overtake each other.
//!
//! Bytes carry their offset; what a lost cell carried is sent in other cells, in whatever pieces fit. A
//! receiver holds at most [`STREAM_WINDOW`](super::limits::STREAM_WINDOW) of a stream that was not read, in order or not, and
//! [`SESSION_WINDOW`] of all: more than it gave credit for ends the session, since reorder memory without a
//! bound is how a peer exhausts it (Tor's proposal 329 on Conflux, RFC 9000 21.7 on QUIC). A reset ends both
//! directions and says how much was sent, so that both ends count the same credit (RFC 9000 4.5).
//!
//! A flow of datagrams has a stream's number, and is opened, accepted and reset as one; what it carries is the matter of
//! [`datagrams`](super::datagrams).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_proto::flow::Assembly;

use super::cell::{DATA_HEADER, Frame, MOST_DATAGRAM, Reason, StreamId, Target};
use super::datagrams::Flows;
use super::incoming::Incoming;
use super::limits::{MAX_KNOWN, MAX_STREAMS, SESSION_BUFFER, SESSION_WINDOW, STREAM_BUFFER, Violation};
use super::outgoing::Outgoing;
use super::sender::Carried;

/// Why a stream does not read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// It was reset.
    Reset(Reason),
    /// There is no such stream any more, or never was.
    Unknown,
    /// It was finished before.
    Finished,
    /// It is a flow and carries no bytes, or a stream and carries no datagrams.
    Kind,
    /// A datagram is longer than [`MOST_DATAGRAM`].
    TooLong,
}

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes.
    Bytes(usize),
    /// Nothing yet.
    Pending,
    /// The stream has ended, and all was read.
    End,
}

/// What happened to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// The client wants it to lead there.
    Opened(StreamId, Target),
    /// The client wants a flow of datagrams there.
    FlowOpened(StreamId, Target),
    /// A datagram of a flow came.
    Datagram(StreamId, Box<[u8]>),
    /// It leads where it shall.
    Accepted(StreamId),
    /// There is something to read, the end included.
    Readable(StreamId),
    /// There is room to write again.
    Writable(StreamId),
    /// The other end has reset it.
    Reset(StreamId, Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bytes,
    Datagrams,
}

#[derive(Clone, Debug)]
struct Stream {
    /// What it carries, once that is known.
    kind: Option<Kind>,
    outgoing: Outgoing,
    incoming: Incoming,
    target: Option<Target>,
    is_opened: bool,
    is_accepted: bool,
    /// This end has reset it.
    reset: Option<Reason>,
    reset_came: bool,
    /// The other end has.
    was_reset: bool,
    is_blocked: bool,
}

/// The streams of one end.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Whether this end opens them.
    opens: bool,
    streams: BTreeMap<StreamId, Stream>,
    /// Numbers of streams that are over.
    retired: Assembly,
    next: u32,
    /// Whose turn it is: streams after this one first.
    turn: StreamId,
    control: VecDeque<Carried>,
    flows: Flows,
    /// Whether the next cell has datagrams before bytes of streams.
    datagrams_first: bool,
    /// Bytes that may be sent in all, and that were.
    allowed: u64,
    sent: u64,
    buffered: usize,
    /// Bytes that may come in all, that have, and that were read or dropped.
    granted: u64,
    counted: u64,
    consumed: u64,
    readable: BTreeSet<StreamId>,
    writable: BTreeSet<StreamId>,
    events: VecDeque<StreamEvent>,
}

impl Streams {
    /// None yet.
    pub fn new(opens: bool) -> Streams {
        Streams {
            opens,
            streams: BTreeMap::new(),
            retired: Assembly::default(),
            next: 0,
            turn: StreamId(0),
            control: VecDeque::new(),
            flows: Flows::default(),
            datagrams_first: false,
            allowed: SESSION_WINDOW,
            sent: 0,
            buffered: 0,
            granted: SESSION_WINDOW,
            counted: 0,
            consumed: 0,
            readable: BTreeSet::new(),
            writable: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Bytes held, of what is sent and of what came.
    pub fn memory(&self) -> usize {
        let streams: usize =
            self.streams.values().map(|stream| stream.outgoing.memory() + stream.incoming.memory()).sum();
        streams + self.flows.memory()
    }

    /// Opens one to `target`; nothing when there are too many.
    pub fn open(&mut self, target: Target) -> Option<StreamId> {
        self.open_kind(Kind::Bytes, target)
    }

    /// Opens a flow of datagrams to `target`; nothing when there are too many streams and flows.
    pub fn open_flow(&mut self, target: Target) -> Option<StreamId> {
        self.open_kind(Kind::Datagrams, target)
    }

    fn open_kind(&mut self, kind: Kind, target: Target) -> Option<StreamId> {
        if self.streams.len() >= MAX_STREAMS || self.next == u32::MAX {
            return None;
        }
        let id = StreamId(self.next);
        self.next += 1;
        self.streams.insert(id, Stream::new(Some(kind), Some(target)));
        self.control.push_back(Carried::Open(id));
        Some(id)
    }

    /// The stream has reached its target.
    pub fn accept(&mut self, id: StreamId) {
        if self.streams.contains_key(&id) {
            self.push(Carried::Accepted(id));
        }
    }

    /// Takes of `bytes` what fits; how many those are.
    ///
    /// # Errors
    ///
    /// When the stream does not take any more.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        if let Some(reason) = stream.reset {
            return Err(StreamError::Reset(reason));
        }
        if stream.kind == Some(Kind::Datagrams) {
            return Err(StreamError::Kind);
        }
        let room = SESSION_BUFFER.saturating_sub(self.buffered);
        let taken = stream.outgoing.write(&bytes[..bytes.len().min(room)]).ok_or(StreamError::Finished)?;
        stream.is_blocked = taken < bytes.len();
        self.buffered += taken;
        Ok(taken)
    }

    /// Sends a datagram, once; false if it is dropped, since too many wait.
    ///
    /// # Errors
    ///
    /// When the flow takes none, or not one so long.
    pub fn send_datagram(&mut self, id: StreamId, bytes: &[u8]) -> Result<bool, StreamError> {
        let stream = self.streams.get(&id).ok_or(StreamError::Unknown)?;
        if let Some(reason) = stream.reset {
            return Err(StreamError::Reset(reason));
        }
        if stream.kind != Some(Kind::Datagrams) {
            return Err(StreamError::Kind);
        }
        if bytes.len() > MOST_DATAGRAM {
            return Err(StreamError::TooLong);
        }
        Ok(self.flows.departing.put(id, bytes))
    }

    /// Nothing more will be written; of a flow, nothing has an end.
    pub fn finish(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.kind != Some(Kind::Datagrams)) {
            stream.outgoing.finish();
        }
    }

    /// Reads into `out`.
    ///
    /// # Errors
    ///
    /// When the stream is not there any more.
    pub fn read(&mut self, id: StreamId, out: &mut [u8]) -> Result<ReadOutcome, StreamError> {
        let stream = self.streams.get_mut(&id).ok_or(StreamError::Unknown)?;
        if let Some(reason) = stream.reset {
            return Err(StreamError::Reset(reason));
        }
        let count = stream.incoming.read(out);
        let is_over = stream.incoming.is_over();
        if stream.incoming.owes_credit() {
            self.push(Carried::Credit(id));
        }
        self.consume(count as u64);
        if is_over {
            self.retire_if_over(id);
        }
        Ok(match count {
            0 if is_over => ReadOutcome::End,
            0 => ReadOutcome::Pending,
            count => ReadOutcome::Bytes(count),
        })
    }

    /// Ends both directions; nothing more is read or written.
    pub fn reset(&mut self, id: StreamId, reason: Reason) {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
        stream.reset = Some(reason);
        self.buffered -= stream.outgoing.clear();
        let dropped = stream.incoming.clear();
        self.consume(dropped);
        self.push(Carried::Reset(id));
        self.readable.remove(&id);
        self.writable.remove(&id);
        self.flows.forget(id);
        self.wake_writers();
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<StreamEvent> {
        let event = self.events.pop_front();
        event
            .or_else(|| self.readable.pop_first().map(StreamEvent::Readable))
            .or_else(|| self.writable.pop_first().map(StreamEvent::Writable))
    }

    /// Whether there is something to send.
    pub fn has_work(&self) -> bool {
        !self.control.is_empty() || !self.flows.departing.is_empty() || self.has_bytes()
    }

    fn has_bytes(&self) -> bool {
        self.streams.values().any(|stream| stream.has_data(self.allowed - self.sent))
    }

    /// The next small frame that must leave, if it fits `room`, appended to `out`.
    pub fn next_control(&mut self, room: usize, out: &mut Vec<u8>) -> Option<Carried> {
        loop {
            let carried = *self.control.front()?;
            let Some(frame) = self.frame(&carried) else {
                self.control.pop_front();
                continue;
            };
            let start = out.len();
            frame.encode(out);
            if out.len() - start > room {
                out.truncate(start);
                return None;
            }
            self.control.pop_front();
            match carried {
                Carried::Credit(id) => {
                    if let Some(stream) = self.streams.get_mut(&id) {
                        stream.incoming.on_credit_told();
                    }
                }
                Carried::SessionCredit => self.granted = self.consumed + SESSION_WINDOW,
                _ => {}
            }
            return Some(carried);
        }
    }

    /// What says `carried` now; nothing if it needs no saying any more.
    fn frame(&self, carried: &Carried) -> Option<Frame<'static>> {
        let stream = |id| self.streams.get(&id);
        Some(match *carried {
            Carried::Open(id) => {
                let stream = stream(id).filter(|stream| stream.reset.is_none())?;
                let target = stream.target.clone()?;
                match stream.kind? {
                    Kind::Bytes => Frame::Open { stream: id, target },
                    Kind::Datagrams => Frame::OpenFlow { stream: id, target },
                }
            }
            Carried::Accepted(id) => stream(id).map(|_| Frame::Accepted { stream: id })?,
            Carried::Reset(id) => {
                let stream = stream(id)?;
                Frame::Reset { stream: id, reason: stream.reset?, end: stream.outgoing.sent() }
            }
            Carried::Credit(id) => {
                let limit = stream(id).filter(|stream| stream.reset.is_none())?.incoming.limit_to_tell();
                Frame::Credit { stream: id, limit }
            }
            Carried::SessionCredit => Frame::SessionCredit { limit: self.consumed + SESSION_WINDOW },
            Carried::Data { .. } | Carried::Datagram(_) | Carried::Pace | Carried::Void | Carried::Blocks { .. } => {
                return None;
            }
        })
    }

    /// Fills a cell, in which `room` bytes are left of the `whole` that an empty one has: with datagrams and with bytes
    /// of streams, which of them first in turns, so that each has half where both have much.
    pub fn fill(&mut self, room: usize, whole: usize, out: &mut Vec<u8>, carried: &mut Vec<Carried>) {
        let end = out.len() + room;
        if !self.flows.departing.is_empty() {
            self.datagrams_first = !self.datagrams_first || !self.has_bytes();
        }
        if self.datagrams_first {
            self.fill_with_datagrams(end, whole, out, carried);
        }
        while let Some(room) = (end - out.len()).checked_sub(DATA_HEADER + 1) {
            let Some(data) = self.next_data(room + 1) else { break };
            if let Carried::Data { stream, start, end, is_end } = data {
                self.append_data(stream, start, end, is_end, out);
            }
            carried.push(data);
        }
        if !self.datagrams_first {
            self.fill_with_datagrams(end, whole, out, carried);
        }
    }

    fn fill_with_datagrams(&mut self, end: usize, whole: usize, out: &mut Vec<u8>, carried: &mut Vec<Carried>) {
        while let Some(piece) = self.flows.departing.next(end - out.len(), whole, out) {
            carried.push(piece);
        }
    }

    /// The next bytes that shall leave, up to `room` of them, in turns.
    fn next_data(&mut self, room: usize) -> Option<Carried> {
        let left = self.allowed - self.sent;
        let ready = |(id, stream): (&StreamId, &Stream)| stream.has_data(left).then_some(*id);
        let after = self.streams.range(self.turn..).find_map(ready);
        let id = after.or_else(|| self.streams.range(..self.turn).find_map(ready))?;
        self.turn = StreamId(id.0.wrapping_add(1));
        let stream = self.streams.get_mut(&id)?;
        let piece = stream.outgoing.take(room, left)?;
        self.sent += piece.fresh;
        Some(Carried::Data { stream: id, start: piece.start, end: piece.end, is_end: piece.is_end })
    }

    /// Appends a frame with bytes of a stream.
    fn append_data(&self, id: StreamId, start: u64, end: u64, is_end: bool, out: &mut Vec<u8>) {
        if let Some(stream) = self.streams.get(&id) {
            Frame::Data { stream: id, offset: start, is_end, bytes: &[] }.encode(out);
            let length = out.len() - 2;
            let said = u16::from_be_bytes([out[length], out[length + 1]]) | (end - start) as u16;
            out[length..].copy_from_slice(&said.to_be_bytes());
            stream.outgoing.append(start, end, out);
        }
    }

    /// What a cell carried has come.
    pub fn on_delivered(&mut self, carried: &Carried) {
        match *carried {
            Carried::Data { stream: id, start, end, is_end } => {
                let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) else { return };
                self.buffered -= stream.outgoing.on_delivered(start, end, is_end);
                if stream.is_blocked && stream.outgoing.has_room() && self.buffered < SESSION_BUFFER {
                    stream.is_blocked = false;
                    self.writable.insert(id);
                }
                if self.buffered + STREAM_BUFFER >= SESSION_BUFFER {
                    self.wake_writers();
                }
                self.retire_if_over(id);
            }
            Carried::Reset(id) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.reset_came = true;
                    self.retire_if_over(id);
                }
            }
            _ => {}
        }
    }

    /// What a cell carried is lost: it must leave again.
    pub fn on_lost(&mut self, carried: &Carried) {
        match *carried {
            Carried::Data { stream: id, start, end, is_end } => {
                if let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.reset.is_none()) {
                    stream.outgoing.on_lost(start, end, is_end);
                }
            }
            Carried::Datagram(_) | Carried::Pace | Carried::Void | Carried::Blocks { .. } => {}
            other => self.push(other),
        }
    }

    /// A frame about streams came.
    ///
    /// # Errors
    ///
    /// When the other end breaks the rules.
    pub fn on_frame(&mut self, frame: Frame<'_>) -> Result<(), Violation> {
        match frame {
            Frame::Open { stream: id, target } => self.on_open(id, Kind::Bytes, target)?,
            Frame::OpenFlow { stream: id, target } => self.on_open(id, Kind::Datagrams, target)?,
            Frame::Datagram { stream: id, number, length, offset, bytes } => {
                let Some(stream) = self.known(id)? else { return Ok(()) };
                let (kind, is_dropped) = (stream.kind, stream.reset.is_some() || stream.was_reset);
                if kind == Some(Kind::Bytes) {
                    return Err(Violation::Stream);
                }
                if is_dropped {
                    return Ok(());
                }
                let flow = (id, kind.is_some());
                let whole = self.flows.on_piece(flow, number, length.into(), offset.into(), bytes);
                self.events.extend(whole.map(|bytes| StreamEvent::Datagram(id, bytes)));
            }
            Frame::Accepted { stream: id } => {
                if !self.opens {
                    return Err(Violation::Role);
                }
                if let Some(stream) = self.known(id)?
                    && !stream.is_accepted
                {
                    stream.is_accepted = true;
                    if stream.reset.is_none() {
                        self.events.push_back(StreamEvent::Accepted(id));
                    }
                }
            }
            Frame::Data { stream: id, offset, is_end, bytes } => {
                let Some(stream) = self.known(id)? else { return Ok(()) };
                if stream.kind == Some(Kind::Datagrams) {
                    return Err(Violation::Stream);
                }
                let is_dropped = stream.reset.is_some();
                let taken = stream.incoming.on_data(offset, bytes, is_end, is_dropped)?;
                self.count(taken.more)?;
                self.consume(taken.dropped);
                if taken.is_readable {
                    self.readable.insert(id);
                }
                self.retire_if_over(id);
            }
            Frame::Reset { stream: id, reason, end } => {
                let Some(stream) = self.known(id)?.filter(|stream| !stream.was_reset) else { return Ok(()) };
                let taken = stream.incoming.on_reset(end)?;
                stream.was_reset = true;
                let is_news = stream.reset.is_none();
                let needs_answer = is_news && !stream.outgoing.is_over();
                self.count(taken.more)?;
                self.consume(taken.dropped);
                if is_news {
                    self.events.push_back(StreamEvent::Reset(id, reason));
                }
                if needs_answer {
                    // What was sent must be said, so that both count the same.
                    self.reset(id, reason);
                }
                self.retire_if_over(id);
            }
            Frame::Credit { stream: id, limit } => {
                if let Some(stream) = self.known(id)? {
                    stream.outgoing.on_credit(limit);
                }
            }
            Frame::SessionCredit { limit } => self.allowed = self.allowed.max(limit),
            _ => {}
        }
        Ok(())
    }

    fn on_open(&mut self, id: StreamId, kind: Kind, target: Target) -> Result<(), Violation> {
        if self.opens {
            return Err(Violation::Role);
        }
        let Some(stream) = self.known(id)? else { return Ok(()) };
        if stream.is_opened {
            return Ok(());
        }
        // What has overtaken this must have been of the same kind.
        let has_bytes = !stream.was_reset && stream.incoming.has_come();
        if kind == Kind::Datagrams && has_bytes {
            return Err(Violation::Stream);
        }
        (stream.is_opened, stream.kind) = (true, Some(kind));
        if stream.reset.is_some() {
            return Ok(());
        }
        let early = self.flows.take_early(id);
        match kind {
            Kind::Bytes if !early.is_empty() => return Err(Violation::Stream),
            Kind::Bytes => self.events.push_back(StreamEvent::Opened(id, target)),
            Kind::Datagrams => {
                self.events.push_back(StreamEvent::FlowOpened(id, target));
                self.events.extend(early.into_iter().map(|bytes| StreamEvent::Datagram(id, bytes)));
            }
        }
        Ok(())
    }

    /// The stream, which the other end may only now let us know of; nothing if it is over.
    fn known(&mut self, id: StreamId) -> Result<Option<&mut Stream>, Violation> {
        let number = u64::from(id.0);
        let behind = self.retired.pieces().partition_point(|(start, _)| *start <= number);
        let is_within = behind.checked_sub(1).is_some_and(|place| number < self.retired.pieces()[place].1);
        let is_retired = number < self.retired.contiguous() || is_within;
        if is_retired {
            return Ok(None);
        }
        if !self.streams.contains_key(&id) {
            if self.opens {
                return Err(Violation::Stream);
            }
            if self.streams.len() >= MAX_KNOWN {
                return Err(Violation::TooMany);
            }
            self.streams.insert(id, Stream::new(None, None));
        }
        Ok(self.streams.get_mut(&id))
    }

    fn retire_if_over(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get(&id).filter(|stream| stream.is_over()) else { return };
        self.buffered -= stream.outgoing.buffered();
        self.streams.remove(&id);
        self.writable.remove(&id);
        self.flows.forget(id);
        // With as many gaps as can be told apart, an old number may seem new: it then opens nothing but a
        // stream that its owner does not use.
        self.retired.insert(u64::from(id.0), 1);
        self.wake_writers();
    }

    fn wake_writers(&mut self) {
        if self.buffered >= SESSION_BUFFER {
            return;
        }
        for (&id, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.is_blocked) {
            if stream.reset.is_none() && stream.outgoing.has_room() {
                stream.is_blocked = false;
                self.writable.insert(id);
            }
        }
    }

    fn count(&mut self, more: u64) -> Result<(), Violation> {
        self.counted += more;
        if self.counted > self.granted { Err(Violation::Credit) } else { Ok(()) }
    }

    fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
        if self.consumed + SESSION_WINDOW - self.granted >= SESSION_WINDOW / 4 {
            self.push(Carried::SessionCredit);
        }
    }

    fn push(&mut self, carried: Carried) {
        if !self.control.contains(&carried) {
            self.control.push_back(carried);
        }
    }
}

impl Stream {
    fn new(kind: Option<Kind>, target: Option<Target>) -> Stream {
        Stream {
            kind,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            target,
            is_opened: false,
            is_accepted: false,
            reset: None,
            reset_came: false,
            was_reset: false,
            is_blocked: false,
        }
    }

    fn has_data(&self, session_left: u64) -> bool {
        self.reset.is_none() && self.outgoing.has_work(session_left)
    }

    fn is_over(&self) -> bool {
        let is_sent = if self.reset.is_some() { self.reset_came } else { self.outgoing.is_over() };
        let has_come =
            self.was_reset || if self.reset.is_some() { self.incoming.is_complete() } else { self.incoming.is_over() };
        is_sent && has_come
    }
}

#[cfg(test)]
mod tests {
    use super::super::datagrams::MOST_EARLY;
    use super::super::limits::STREAM_WINDOW;
    use super::*;

    fn data(stream: u32, offset: u64, bytes: &[u8], is_end: bool) -> Frame<'_> {
        Frame::Data { stream: StreamId(stream), offset, is_end, bytes }
    }

    #[test]
    fn a_peer_that_breaks_the_rules_is_told_from_one_that_does_not() {
        let id = StreamId(3);
        let check = |frames: &[Frame<'_>], opens: bool| {
            let mut streams = Streams::new(opens);
            frames.iter().try_for_each(|frame| streams.on_frame(frame.clone()))
        };
        let target = Target::Itself;
        assert_eq!(check(&[data(3, STREAM_WINDOW - 1, &[1], true)], false), Ok(()));
        assert_eq!(check(&[data(3, STREAM_WINDOW, &[1], false)], false), Err(Violation::Credit));
        assert_eq!(check(&[data(3, 5, &[1], true), data(3, 6, &[1], false)], false), Err(Violation::End));
        assert_eq!(check(&[data(3, 5, &[1], true), data(3, 4, &[1], true)], false), Err(Violation::End));
        assert_eq!(check(&[data(3, 5, &[1], false), data(3, 4, &[1], true)], false), Err(Violation::End));
        let reset = |end| Frame::Reset { stream: id, reason: Reason::Stopped, end };
        assert_eq!(check(&[data(3, 5, &[1], false), reset(5)], false), Err(Violation::End));
        assert_eq!(check(&[reset(STREAM_WINDOW + 1)], false), Err(Violation::Credit));
        assert_eq!(check(&[reset(7), reset(9), data(3, 1, &[1], false)], false), Ok(()));
        assert_eq!(check(&[data(3, 0, &[1], false)], true), Err(Violation::Stream));
        assert_eq!(check(&[Frame::Open { stream: id, target }], true), Err(Violation::Role));
        assert_eq!(check(&[Frame::Accepted { stream: id }], false), Err(Violation::Role));
        let all: Vec<Frame<'_>> = (0..=MAX_KNOWN as u32).map(|n| data(n, 0, &[1], false)).collect();
        assert_eq!(check(&all, false), Err(Violation::TooMany));
        let much: Vec<Frame<'_>> = (0..9).map(|n| data(n, STREAM_WINDOW - 1, &[1], false)).collect();
        assert_eq!((check(&much[..8], false), check(&much, false)), (Ok(()), Err(Violation::Credit)));
    }

    #[test]
    fn a_stream_that_is_over_at_both_ends_is_forgotten_and_its_frames_mean_nothing() {
        let mut streams = Streams::new(false);
        streams.on_frame(data(0, 0, b"hello", true)).unwrap();
        assert_eq!(streams.poll_event(), Some(StreamEvent::Readable(StreamId(0))));
        let mut out = [0; 9];
        assert_eq!(streams.read(StreamId(0), &mut out), Ok(ReadOutcome::Bytes(5)));
        assert_eq!(streams.read(StreamId(0), &mut out), Ok(ReadOutcome::End));
        assert_eq!(streams.write(StreamId(0), b"bye"), Ok(3));
        streams.finish(StreamId(0));
        let carried = streams.next_data(100).unwrap();
        assert_eq!(carried, Carried::Data { stream: StreamId(0), start: 0, end: 3, is_end: true });
        assert_eq!(streams.next_data(100), None);
        streams.on_lost(&carried);
        let again = streams.next_data(100).unwrap();
        assert_eq!(again, carried);
        streams.on_delivered(&again);
        assert_eq!((streams.len(), streams.buffered), (0, 0));
        streams.on_frame(data(0, 0, b"hello", true)).unwrap();
        streams.on_lost(&carried);
        assert_eq!((streams.len(), streams.has_work(), streams.poll_event()), (0, false, None));
    }

    #[test]
    fn whoever_reads_learns_of_the_end_before_the_stream_is_forgotten() {
        for splits in [false, true] {
            let mut streams = Streams::new(false);
            let id = StreamId(0);
            streams.on_frame(data(0, 0, b"hello", !splits)).unwrap();
            streams.finish(id);
            let end = streams.next_data(100).unwrap();
            streams.on_delivered(&end);
            let mut out = [0; 9];
            assert_eq!(streams.read(id, &mut out), Ok(ReadOutcome::Bytes(5)));
            if splits {
                assert_eq!(streams.read(id, &mut out), Ok(ReadOutcome::Pending));
                streams.on_frame(data(0, 5, b"", true)).unwrap();
            }
            assert_eq!((streams.read(id, &mut out), streams.len()), (Ok(ReadOutcome::End), 0));
        }
    }

    #[test]
    fn a_reset_ends_both_directions_and_gives_all_credit_back() {
        let (mut client, mut exit) = (Streams::new(true), Streams::new(false));
        let id = client.open(Target::Itself).unwrap();
        client.write(id, &[7; 5000]).unwrap();
        let sent = client.next_data(1000).unwrap();
        exit.on_frame(data(0, 0, &[7; 1000], false)).unwrap();
        client.reset(id, Reason::Stopped);
        assert_eq!((client.buffered, client.write(id, &[1])), (0, Err(StreamError::Reset(Reason::Stopped))));
        client.on_lost(&sent);
        let mut bytes = vec![0; 8];
        assert_eq!(client.next_control(100, &mut bytes), Some(Carried::Reset(id)), "it needs no opening now");
        let frame = client.frame(&Carried::Reset(id)).unwrap();
        exit.on_frame(frame).unwrap();
        client.on_delivered(&Carried::Reset(id));
        assert_eq!((client.len(), exit.consumed), (1, 1000));
        let back = exit.next_control(100, &mut bytes).unwrap();
        client.on_frame(exit.frame(&back).unwrap()).unwrap();
        exit.on_delivered(&back);
        assert_eq!((client.len(), exit.len(), client.poll_event()), (0, 0, None));
    }

    fn piece(stream: u32, number: u32, bytes: &[u8]) -> Frame<'_> {
        Frame::Datagram { stream: StreamId(stream), number, length: bytes.len() as u16, offset: 0, bytes }
    }

    #[test]
    fn a_flow_is_no_stream_and_a_stream_no_flow() {
        let check = |frames: &[Frame<'_>]| {
            let mut streams = Streams::new(false);
            frames.iter().try_for_each(|frame| streams.on_frame(frame.clone()))
        };
        let open = Frame::Open { stream: StreamId(0), target: Target::Itself };
        let flow = Frame::OpenFlow { stream: StreamId(0), target: Target::Itself };
        let reset = Frame::Reset { stream: StreamId(0), reason: Reason::Stopped, end: 0 };
        let (bytes, end, datagram) = (data(0, 0, &[1], false), data(0, 0, &[], true), piece(0, 0, &[1]));
        assert_eq!(check(&[datagram.clone(), flow.clone(), datagram.clone(), reset.clone(), datagram.clone()]), Ok(()));
        assert_eq!(check(&[reset, flow.clone(), datagram.clone()]), Ok(()), "overtaken by its end");
        for wrong in
            [[&bytes, &flow], [&end, &flow], [&flow, &bytes], [&flow, &end], [&datagram, &open], [&open, &datagram]]
        {
            assert_eq!(check(&wrong.map(Clone::clone)), Err(Violation::Stream), "{wrong:?}");
        }
        let mut client = Streams::new(true);
        assert_eq!(client.on_frame(flow.clone()), Err(Violation::Role));
        assert_eq!(client.on_frame(datagram), Err(Violation::Stream), "nobody opened it");
        let (stream, flow) = (client.open(Target::Itself).unwrap(), client.open_flow(Target::Itself).unwrap());
        assert_eq!(client.send_datagram(stream, &[1]), Err(StreamError::Kind));
        assert_eq!(client.write(flow, &[1]), Err(StreamError::Kind));
        assert_eq!(client.send_datagram(flow, &[0; MOST_DATAGRAM + 1]), Err(StreamError::TooLong));
        assert_eq!(client.send_datagram(flow, &[0; MOST_DATAGRAM]), Ok(true));
        client.reset(flow, Reason::Stopped);
        assert_eq!(client.send_datagram(flow, &[1]), Err(StreamError::Reset(Reason::Stopped)));
        assert!(client.flows.departing.is_empty(), "what waited goes with its flow");
    }

    #[test]
    fn datagrams_that_overtake_their_flows_opening_are_few_and_come_after_it() {
        let mut exit = Streams::new(false);
        for number in 0..1000 {
            exit.on_frame(piece(number % 3, number, &[number as u8])).unwrap();
        }
        assert_eq!((exit.flows.early(), exit.poll_event()), (MOST_EARLY, None));
        exit.on_frame(Frame::OpenFlow { stream: StreamId(1), target: Target::Itself }).unwrap();
        assert_eq!(exit.poll_event(), Some(StreamEvent::FlowOpened(StreamId(1), Target::Itself)));
        let mut came = 0;
        while let Some(event) = exit.poll_event() {
            assert!(matches!(event, StreamEvent::Datagram(StreamId(1), _)), "{event:?}");
            came += 1;
        }
        assert_eq!((came, exit.flows.early()), (MOST_EARLY / 3, MOST_EARLY - MOST_EARLY / 3));
    }

    #[test]
    fn datagrams_and_bytes_of_streams_share_cells_evenly() {
        let mut streams = Streams::new(true);
        let (stream, flow) = (streams.open(Target::Itself).unwrap(), streams.open_flow(Target::Itself).unwrap());
        streams.write(stream, &vec![0; 200_000]).unwrap();
        while streams.send_datagram(flow, &[0; 900]).unwrap() {}
        let mut shares = [0; 2];
        for _ in 0..100 {
            let (mut cell, mut carried) = (Vec::new(), Vec::new());
            streams.fill(1000, 1000, &mut cell, &mut carried);
            assert!(cell.len() <= 1000);
            carried.iter().for_each(|what| shares[usize::from(matches!(what, Carried::Datagram(_)))] += 1);
        }
        assert!(shares[1] == 50 && shares[0] >= 50, "{shares:?}");
        // What is lost does not leave again.
        let waiting = streams.flows.departing.memory();
        streams.on_lost(&Carried::Datagram(flow));
        assert_eq!(streams.flows.departing.memory(), waiting);
    }

    #[test]
    fn streams_take_turns_and_whoever_had_no_room_is_told_when_there_is() {
        let mut streams = Streams::new(true);
        let ids: Vec<StreamId> = (0..3).map(|_| streams.open(Target::Itself).unwrap()).collect();
        ids.iter().for_each(|&id| assert_eq!(streams.write(id, &vec![0; STREAM_BUFFER + 1]), Ok(STREAM_BUFFER)));
        let first: Vec<Carried> = (0..6).map(|_| streams.next_data(1000).unwrap()).collect();
        let turns: Vec<u32> = first
            .iter()
            .map(|carried| match carried {
                Carried::Data { stream, .. } => stream.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(turns, [0, 1, 2, 0, 1, 2]);
        assert_eq!(streams.poll_event(), None);
        streams.on_delivered(&first[1]);
        assert_eq!(streams.poll_event(), Some(StreamEvent::Writable(StreamId(1))));
        assert_eq!(streams.write(StreamId(1), &[0; 5000]), Ok(1000));
    }
}
