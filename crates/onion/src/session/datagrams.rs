//! Datagrams of a session: each is sent once, and comes whole or not at all.
//!
//! A *flow* is opened, accepted and reset as a stream is, under a stream's number, and carries datagrams in place of
//! bytes. Their cells are acknowledged like all cells, so that learners and the total rate hear of them, but what a lost
//! one carried does not leave again: who needs that does it by itself, and sooner than a relay network would. A datagram
//! that one cell has no room for leaves in pieces, each over a path of its own.
//!
//! All is bounded, since whoever sends may send faster than cells leave, and pieces may never be followed by the others:
//! what finds no room is dropped, as by a UDP socket.

use std::collections::VecDeque;

use anabranch_proto::flow::Assembly;

use super::cell::{Frame, MOST_DATAGRAM, StreamId};
use super::sender::Carried;

/// Bytes before the bytes of a [`Frame::Datagram`].
pub const DATAGRAM_HEADER: usize = 1 + 4 + 4 + 2 + 2 + 2;

/// Bytes of datagrams that wait to leave at most: what Linux lets wait in a UDP socket (`net.core.wmem_default`).
pub const QUEUE: usize = 212_992;

/// What a waiting datagram counts for besides its bytes: empty ones must not be without number.
const OVERHEAD: usize = 64;

/// Datagrams at once of which some pieces have come; of more, the oldest go.
pub const MOST_PARTIAL: usize = 64;

/// Datagrams that are kept whose flow was not opened yet: they overtook that. Of more, the oldest go.
pub const MOST_EARLY: usize = 32;

#[derive(Clone, Debug)]
struct Waiting {
    stream: StreamId,
    number: u32,
    bytes: Box<[u8]>,
    /// Bytes that have left.
    sent: usize,
}

/// Datagrams that shall leave.
#[derive(Clone, Debug, Default)]
pub struct Departing {
    queue: VecDeque<Waiting>,
    bytes: usize,
    next: u32,
    /// Whether the first one has let a cell go for want of room.
    has_waited: bool,
}

impl Departing {
    /// Takes a datagram of up to [`MOST_DATAGRAM`] bytes; false if it is dropped, since too many wait.
    pub fn put(&mut self, stream: StreamId, bytes: &[u8]) -> bool {
        debug_assert!(bytes.len() <= MOST_DATAGRAM, "whoever sends was told");
        let weight = bytes.len() + OVERHEAD;
        if self.bytes + weight > QUEUE {
            return false;
        }
        self.bytes += weight;
        self.queue.push_back(Waiting { stream, number: self.next, bytes: bytes.into(), sent: 0 });
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Whether some wait.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Appends the next piece to `out` as far as `room` bytes allow, of the `whole` that an empty cell has. A datagram is
    /// kept whole where it can be: one that would fit into an empty cell waits for another cell than this, once.
    pub fn next(&mut self, room: usize, whole: usize, out: &mut Vec<u8>) -> Option<Carried> {
        let first = self.queue.front_mut()?;
        let left = first.bytes.len() - first.sent;
        let fits = room.checked_sub(DATAGRAM_HEADER).filter(|&fits| fits >= left || fits > 0)?;
        if fits < left && !self.has_waited && left + DATAGRAM_HEADER <= whole {
            self.has_waited = true;
            return None;
        }
        let piece = first.sent..first.sent + left.min(fits);
        let frame = Frame::Datagram {
            stream: first.stream,
            number: first.number,
            length: first.bytes.len() as u16,
            offset: piece.start as u16,
            bytes: &first.bytes[piece.clone()],
        };
        frame.encode(out);
        first.sent = piece.end;
        let carried = Carried::Datagram(first.stream);
        if first.sent == first.bytes.len() {
            self.drop_first();
        }
        Some(carried)
    }

    fn drop_first(&mut self) {
        self.has_waited = false;
        if let Some(gone) = self.queue.pop_front() {
            self.bytes -= gone.bytes.len() + OVERHEAD;
        }
    }

    /// The flow is over: nothing of it leaves any more.
    pub fn forget(&mut self, stream: StreamId) {
        if self.queue.front().is_some_and(|first| first.stream == stream) {
            self.has_waited = false;
        }
        self.queue.retain(|waiting| waiting.stream != stream);
        self.bytes = self.queue.iter().map(|waiting| waiting.bytes.len() + OVERHEAD).sum();
    }
}

#[derive(Clone, Debug)]
struct Partial {
    stream: StreamId,
    number: u32,
    bytes: Box<[u8]>,
    has: Assembly,
}

/// Datagrams of which not all pieces have come.
#[derive(Clone, Debug, Default)]
pub struct Arriving {
    partial: VecDeque<Partial>,
}

impl Arriving {
    /// A piece came, which lies within the `length` bytes of its datagram; the datagram, if that was the last of it.
    pub fn on_piece(
        &mut self,
        stream: StreamId,
        number: u32,
        length: usize,
        offset: usize,
        bytes: &[u8],
    ) -> Option<Box<[u8]>> {
        if bytes.len() == length {
            return Some(bytes.into());
        }
        let is_of =
            |partial: &Partial| partial.stream == stream && partial.number == number && partial.bytes.len() == length;
        let place = self.partial.iter().position(is_of).unwrap_or_else(|| {
            if self.partial.len() == MOST_PARTIAL {
                self.partial.pop_front();
            }
            let bytes = vec![0; length].into_boxed_slice();
            self.partial.push_back(Partial { stream, number, bytes, has: Assembly::default() });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[place];
        partial.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        partial.has.insert(offset as u64, bytes.len() as u64);
        let is_whole = partial.has.contiguous() == length as u64;
        if is_whole { self.partial.remove(place).map(|partial| partial.bytes) } else { None }
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.partial.iter().map(|partial| partial.bytes.len() + OVERHEAD + 16 * partial.has.pieces().len()).sum()
    }

    /// The flow is over.
    pub fn forget(&mut self, stream: StreamId) {
        self.partial.retain(|partial| partial.stream != stream);
    }
}

/// What a session carries of all flows.
#[derive(Clone, Debug, Default)]
pub struct Flows {
    /// What shall leave.
    pub departing: Departing,
    arriving: Arriving,
    /// Whole ones whose flow was not opened yet, which they overtook.
    early: VecDeque<(StreamId, Box<[u8]>)>,
}

impl Flows {
    /// A piece came; the datagram, if that was the last of it and its flow is open. Else it waits for that.
    pub fn on_piece(
        &mut self,
        (stream, is_open): (StreamId, bool),
        number: u32,
        length: usize,
        offset: usize,
        bytes: &[u8],
    ) -> Option<Box<[u8]>> {
        let whole = self.arriving.on_piece(stream, number, length, offset, bytes)?;
        if is_open {
            return Some(whole);
        }
        if self.early.len() == MOST_EARLY {
            self.early.pop_front();
        }
        self.early.push_back((stream, whole));
        None
    }

    /// The flow is opened: what has overtaken that. Of a stream there is nothing.
    pub fn take_early(&mut self, stream: StreamId) -> Vec<Box<[u8]>> {
        let mut taken = Vec::new();
        self.early.retain_mut(|(of, bytes)| {
            let is_of = *of == stream;
            if is_of {
                taken.push(std::mem::take(bytes));
            }
            !is_of
        });
        taken
    }

    /// How many wait for their flow.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        let early: usize = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        early + self.departing.memory() + self.arriving.memory()
    }

    /// The flow is over.
    pub fn forget(&mut self, stream: StreamId) {
        self.departing.forget(stream);
        self.arriving.forget(stream);
        self.early.retain(|(of, _)| *of != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::super::cell::{PLAIN_HEADER, decode};
    use super::*;

    /// What the frames in `cells` put together, in the order in which they are given.
    fn arrive(arriving: &mut Arriving, cells: &[Vec<u8>]) -> Vec<(StreamId, Vec<u8>)> {
        let mut whole = Vec::new();
        for cell in cells {
            for frame in decode(cell).unwrap().1 {
                let Frame::Datagram { stream, number, length, offset, bytes } = frame.unwrap() else { panic!() };
                let got = arriving.on_piece(stream, number, length.into(), offset.into(), bytes);
                whole.extend(got.map(|bytes| (stream, bytes.into_vec())));
            }
        }
        whole
    }

    /// All that waits, in cells with so much room, of `whole`.
    fn depart(departing: &mut Departing, room: usize, whole: usize) -> Vec<Vec<u8>> {
        let mut cells = Vec::new();
        while !departing.is_empty() {
            let mut cell = vec![0; PLAIN_HEADER];
            while departing.next(room + PLAIN_HEADER - cell.len(), whole, &mut cell).is_some() {}
            cells.push(cell);
            assert!(cells.len() < 100_000, "no end");
        }
        cells
    }

    fn datagram(length: usize, seed: usize) -> Vec<u8> {
        (0..length).map(|place| (place * 7 + seed) as u8).collect()
    }

    #[test]
    fn datagrams_of_any_length_come_as_they_were_whatever_the_order_of_their_pieces() {
        for room in [20, 100, 700, 1100, 2000] {
            let (mut departing, mut arriving) = (Departing::default(), Arriving::default());
            let lengths = [0, 1, 60, 699, 1085, 1086, MOST_DATAGRAM];
            for (seed, &length) in lengths.iter().enumerate() {
                assert!(departing.put(StreamId(seed as u32 % 2), &datagram(length, seed)));
            }
            let mut cells = depart(&mut departing, room, room);
            cells.reverse();
            let mut whole = arrive(&mut arriving, &cells);
            whole.sort_by_key(|(_, bytes)| bytes.len());
            let expected = lengths.iter().enumerate();
            let expected: Vec<_> =
                expected.map(|(seed, &length)| (StreamId(seed as u32 % 2), datagram(length, seed))).collect();
            assert_eq!(whole, expected, "{room} bytes a cell");
            assert_eq!((departing.memory(), arriving.memory()), (0, 0));
        }
    }

    #[test]
    fn a_datagram_that_fits_a_cell_is_not_cut_because_another_is_in_this_one() {
        let mut departing = Departing::default();
        departing.put(StreamId(0), &[1; 600]);
        departing.put(StreamId(0), &[2; 900]);
        let cells = depart(&mut departing, 1000, 1000);
        assert_eq!(cells.len(), 2);
        assert_eq!(cells[1].len(), PLAIN_HEADER + DATAGRAM_HEADER + 900);
        // Where something else is in every cell it is cut after all, and one that fits no cell is at once.
        departing.put(StreamId(0), &[2; 900]);
        assert_eq!(depart(&mut departing, 500, 1000).len(), 3, "one without, two with a piece");
        departing.put(StreamId(0), &[2; 1200]);
        assert_eq!(depart(&mut departing, 1000, 1000).len(), 2);
    }

    #[test]
    fn what_finds_no_room_is_dropped_and_room_is_given_back() {
        let mut departing = Departing::default();
        let mut taken = [0; 2];
        for (index, length) in [MOST_DATAGRAM, 0].into_iter().enumerate() {
            while departing.put(StreamId(index as u32), &vec![0; length]) {
                taken[index] += 1;
            }
            assert!(departing.memory() <= QUEUE);
        }
        assert_eq!(taken[0], QUEUE / (MOST_DATAGRAM + OVERHEAD));
        departing.forget(StreamId(0));
        assert!(departing.put(StreamId(1), &[0; 1000]));
        depart(&mut departing, 1100, 1100);
        assert_eq!(departing.memory(), 0);
    }

    #[test]
    fn pieces_that_nothing_follows_are_forgotten() {
        let mut arriving = Arriving::default();
        for number in 0..10_000 {
            assert_eq!(arriving.on_piece(StreamId(0), number, 1000, 0, &[1; 500]), None);
            assert!(arriving.memory() <= MOST_PARTIAL * (MOST_DATAGRAM + 2 * OVERHEAD));
        }
        let last = 9_999;
        assert_eq!(arriving.on_piece(StreamId(1), last, 1000, 500, &[2; 500]), None, "another flow's");
        assert_eq!(arriving.on_piece(StreamId(0), last, 1001, 500, &[2; 501]), None, "another length's");
        let whole = arriving.on_piece(StreamId(0), last, 1000, 500, &[2; 500]).unwrap();
        assert_eq!((whole[499], whole[500]), (1, 2));
        assert_eq!(arriving.on_piece(StreamId(0), 0, 1000, 500, &[2; 500]), None, "the oldest are gone");
        arriving.forget(StreamId(0));
        arriving.forget(StreamId(1));
        assert_eq!(arriving.memory(), 0);
    }
}
