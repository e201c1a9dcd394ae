//! Messages as a stream: what has been sent of them and arrived, and in which order they are read.

use std::collections::{BTreeMap, VecDeque};

use super::packet::Messages;
use super::{MOST_BACKLOG, WireLength};
use crate::flow::answer::Piece;
use crate::flow::ranges::Assembly;

/// A message's length before the message: a varint below 2^14 (RFC 9000, 16).
const LENGTH_PREFIX: u64 = 2;

/// The stream to the other end.
#[derive(Clone, Debug)]
pub(super) struct Outbound<M> {
    /// Messages that have not arrived whole, each with its end in the stream.
    messages: VecDeque<(u64, M)>,
    /// Where the last one ends.
    written: u64,
    /// What lies behind has never left.
    next: u64,
    arrived: Assembly,
}

impl<M> Default for Outbound<M> {
    fn default() -> Outbound<M> {
        Outbound { messages: VecDeque::new(), written: 0, next: 0, arrived: Assembly::default() }
    }
}

impl<M: Clone + WireLength> Outbound<M> {
    /// Adds `message`; false if more waits than may.
    pub fn push(&mut self, message: M) -> bool {
        self.written += LENGTH_PREFIX + message.wire_length() as u64;
        self.messages.push_back((self.written, message));
        self.written - self.arrived.contiguous() <= MOST_BACKLOG
    }

    /// What leaves next for the first time, `most` bytes at most.
    pub fn upcoming(&self, most: u64) -> Option<Piece> {
        let length = most.min(self.written - self.next);
        (length > 0).then_some(Piece { offset: self.next, length: length as u32, fin: false })
    }

    /// `piece` leaves, as it was upcoming or once more.
    pub fn take(&mut self, piece: Piece) -> Box<Messages<M>> {
        let Piece { offset, length, .. } = piece;
        let end = offset + u64::from(length);
        self.next = self.next.max(end);
        let from = self.messages.partition_point(|(at, _)| *at <= offset);
        let to = self.messages.partition_point(|(at, _)| *at <= end);
        Box::new(Messages { offset, length, messages: self.messages.range(from..to).cloned().collect() })
    }

    /// `piece` has arrived; false if there is no room to remember it, so that it must arrive again.
    pub fn on_arrived(&mut self, piece: Piece) -> bool {
        let has_room = self.arrived.insert(piece.offset, u64::from(piece.length)).is_some();
        while self.messages.front().is_some_and(|(end, _)| *end <= self.arrived.contiguous()) {
            self.messages.pop_front();
        }
        has_room
    }
}

/// The stream from the other end.
#[derive(Clone, Debug)]
pub(super) struct Inbound<M> {
    arrived: Assembly,
    /// Messages that something before is missing of, by their ends.
    early: BTreeMap<u64, M>,
}

/// What a part of the stream brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It is kept.
    Kept,
    /// There is no room for another gap: it must come again.
    NoRoom,
    /// No honest end sends it.
    Untrue,
}

impl<M> Default for Inbound<M> {
    fn default() -> Inbound<M> {
        Inbound { arrived: Assembly::default(), early: BTreeMap::new() }
    }
}

impl<M: Clone> Inbound<M> {
    /// A part has come.
    pub fn insert(&mut self, part: &Messages<M>) -> Entry {
        let read = self.arrived.contiguous();
        let end = part.offset.saturating_add(u64::from(part.length));
        let is_inside = |(at, _): &(u64, M)| (part.offset + 1..=end).contains(at);
        if end - read.min(end) > MOST_BACKLOG || !part.messages.iter().all(is_inside) {
            return Entry::Untrue;
        }
        if self.arrived.insert(part.offset, u64::from(part.length)).is_none() {
            return Entry::NoRoom;
        }
        let new = part.messages.iter().filter(|(at, _)| *at > read);
        self.early.extend(new.cloned());
        Entry::Kept
    }

    /// The next message in order, once all before it has come.
    pub fn next(&mut self) -> Option<M> {
        let first = self.early.first_entry()?;
        (*first.key() <= self.arrived.contiguous()).then(|| first.remove())
    }
}
