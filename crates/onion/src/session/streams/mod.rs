//! Reliable streams of bytes over cells that are lost and overtake each other.
//!
//! Bytes carry their offset; what a lost cell carried is sent in other cells, in whatever pieces fit. What
//! holds up others leaves in two cells once it was lost twice. A receiver holds at most
//! [`STREAM_WINDOW`](super::limits::STREAM_WINDOW) of a stream that was not read, in order or not, and
//! [`SESSION_WINDOW`] of all: more than it gave credit for ends the session, since reorder memory without a
//! bound is how a peer exhausts it (Tor's proposal 329 on Conflux, RFC 9000 21.7 on QUIC). Within that a sender keeps
//! each stream to [`stream_bound`], so that one whose reader stands still stalls itself alone. A reset ends both
//! directions and says how much was sent, so that both ends count the same credit (RFC 9000 4.5).
//!
//! A flow of datagrams has a stream's number, and is opened, accepted and reset as one; what it carries is the matter of
//! [`datagrams`](super::datagrams).

mod receiving;
mod sending;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anabranch_proto::flow::Assembly;

use self::stream::{Kind, Stream};
use super::cell::{MOST_DATAGRAM, Reason, StreamId, Target};
use super::datagrams::Flows;
use super::limits::{
    MAX_STREAMS, SESSION_BUFFER, SESSION_WINDOW, SHARED_WINDOW, STREAM_RESERVE, STREAM_WINDOW, stream_bound,
};
use super::sender::Carried;

/// What was read of a stream is granted again by so many bytes at once: where streams are kept short, before what the other
/// end takes for unread fills the reserve, which may be all that it has.
const AMPLE_STEP: u64 = STREAM_WINDOW / 4;
const SCARCE_STEP: u64 = STREAM_RESERVE / 2;

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
    /// Cells that were filled.
    cell: u64,
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
    /// So little of the session is left that the other end keeps streams short.
    is_scarce: bool,
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
            cell: 0,
            control: VecDeque::new(),
            flows: Flows::default(),
            datagrams_first: false,
            allowed: SESSION_WINDOW,
            sent: 0,
            buffered: 0,
            granted: SESSION_WINDOW,
            counted: 0,
            consumed: 0,
            is_scarce: false,
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

    /// Whether the other end has heard of all that this end has reset.
    pub fn are_resets_heard(&self) -> bool {
        self.streams.values().all(|stream| stream.reset.is_none() || stream.reset_came)
    }

    /// Bytes held, of what is sent and of what came, and by the streams themselves.
    pub fn memory(&self) -> usize {
        let streams: usize = self.streams.values().map(Stream::memory).sum();
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
        let room = most_buffered(self.buffered).saturating_sub(stream.outgoing.buffered());
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
        if stream.incoming.owes_credit(if self.is_scarce { SCARCE_STEP } else { AMPLE_STEP }) {
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
        let most = most_buffered(self.buffered);
        for (&id, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.is_blocked) {
            if stream.reset.is_none() && stream.outgoing.buffered() < most {
                stream.is_blocked = false;
                self.writable.insert(id);
            }
        }
    }

    fn consume(&mut self, bytes: u64) {
        self.consumed += bytes;
        let step = if self.is_scarce { STREAM_RESERVE } else { SHARED_WINDOW / 4 };
        if self.consumed + SESSION_WINDOW - self.granted >= step {
            self.push(Carried::SessionCredit);
        }
    }

    /// More has come: the other end may keep each stream short now, or has room again.
    fn note_scarcity(&mut self) {
        let was_scarce = self.is_scarce;
        self.is_scarce = stream_bound(self.granted - self.counted) < STREAM_WINDOW;
        if self.is_scarce && !was_scarce {
            let owing = self.streams.iter().filter(|(_, stream)| stream.incoming.owes_credit(SCARCE_STEP));
            let owing: Vec<StreamId> = owing.map(|(id, _)| *id).collect();
            owing.into_iter().for_each(|id| self.push(Carried::Credit(id)));
            self.consume(0);
        }
    }

    fn push(&mut self, carried: Carried) {
        if !self.control.contains(&carried) {
            self.control.push_back(carried);
        }
    }
}

/// Bytes that one stream may have waiting where all have `buffered`: of what is to be sent, too, none takes the room of
/// the others.
fn most_buffered(buffered: usize) -> usize {
    stream_bound(SESSION_BUFFER.saturating_sub(buffered) as u64) as usize
}
