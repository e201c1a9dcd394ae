//! What one end has got of a stream: bytes in any order, given to whoever reads in theirs.
//!
//! Memory follows what came, not where: bytes beyond a gap are held in pieces, and the gap costs nothing, or a peer that
//! sends one byte at the end of each window would have all of them held (RFC 9000 21.7 warns of such fragments).

use std::collections::{BTreeMap, VecDeque};

use super::limits::{STREAM_WINDOW, Violation};

/// Pieces without a gap between them become one as long as it is no longer than this: so they are few, and none is moved
/// often.
const PIECE: usize = 4 << 10;

/// Pieces beyond a gap at most: twice as many as whole cells fill a window with, each behind one that was lost, and a
/// piece for some bytes more of each.
const MOST_PIECES: usize = 4096;

/// What a piece takes beside its bytes: its entry in the map, which may be half full, and in the heap's lists.
const PIECE_OVERHEAD: usize = 96;

/// What a frame changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Bytes by which the stream is longer than was known.
    pub more: u64,
    /// Bytes that nobody will read.
    pub dropped: u64,
    /// Whether there is something new to read, the end included.
    pub is_readable: bool,
}

/// The receiving half of a stream.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// In order, from `read` on.
    buffer: VecDeque<u8>,
    /// What came beyond a gap, by its offset; none overlaps another.
    pieces: BTreeMap<u64, Vec<u8>>,
    /// Bytes of memory of the pieces.
    pieces_memory: usize,
    read: u64,
    /// Where the furthest byte that came ends.
    highest: u64,
    end: Option<u64>,
    /// Whether whoever reads knows of the end.
    end_reported: bool,
    /// What the other end may send, as was granted to it.
    limit: u64,
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming {
            buffer: VecDeque::new(),
            pieces: BTreeMap::new(),
            pieces_memory: 0,
            read: 0,
            highest: 0,
            end: None,
            end_reported: false,
            limit: STREAM_WINDOW,
        }
    }
}

impl Incoming {
    /// Bytes came. If `is_dropped`, nobody will read them.
    ///
    /// # Errors
    ///
    /// When the other end breaks the rules.
    pub fn on_data(&mut self, offset: u64, bytes: &[u8], is_end: bool, is_dropped: bool) -> Result<Taken, Violation> {
        let end = offset + bytes.len() as u64;
        if end > self.limit {
            return Err(Violation::Credit);
        }
        let fits = match self.end {
            Some(known) => end <= known && (!is_end || end == known),
            None => !is_end || end >= self.highest,
        };
        if !fits {
            return Err(Violation::End);
        }
        let had_end = self.end.is_some();
        if is_end {
            self.end = Some(end);
        }
        let more = end.saturating_sub(self.highest);
        self.highest += more;
        if is_dropped {
            let dropped = self.highest - self.read;
            self.read = self.highest;
            return Ok(Taken { more, dropped, is_readable: false });
        }
        let before = self.contiguous();
        match offset > before {
            true => self.keep_ahead(offset, bytes)?,
            false => self.keep_in_order(offset, bytes),
        }
        let has_grown = self.contiguous() > before;
        let is_whole = self.end == Some(self.contiguous());
        Ok(Taken { more, dropped: 0, is_readable: has_grown || (is_whole && !had_end) })
    }

    /// Up to where all has come.
    fn contiguous(&self) -> u64 {
        self.read + self.buffer.len() as u64
    }

    /// Bytes that begin where, or before, all has come.
    fn keep_in_order(&mut self, offset: u64, bytes: &[u8]) {
        self.append(offset, bytes);
        while let Some(piece) = self.pieces.first_entry()
            && *piece.key() <= self.read + self.buffer.len() as u64
        {
            let (start, piece) = piece.remove_entry();
            self.pieces_memory -= piece_memory(&piece);
            self.append(start, &piece);
        }
    }

    /// Appends those of `bytes` that are new.
    fn append(&mut self, offset: u64, bytes: &[u8]) {
        let known = (self.contiguous() - offset).min(bytes.len() as u64) as usize;
        let bytes = &bytes[known..];
        let needed = self.buffer.len() + bytes.len();
        if needed > self.buffer.capacity() {
            // As a vector grows, but never beyond the window.
            let room = needed.next_power_of_two().min(STREAM_WINDOW as usize).max(needed);
            self.buffer.reserve_exact(room - self.buffer.len());
        }
        self.buffer.extend(bytes);
    }

    /// Bytes beyond a gap: those that are new fill what is free between the pieces.
    fn keep_ahead(&mut self, mut offset: u64, mut bytes: &[u8]) -> Result<(), Violation> {
        while !bytes.is_empty() {
            let before = self.pieces.range(..=offset).next_back();
            let known = before.map_or(0, |(start, piece)| (start + piece.len() as u64).saturating_sub(offset));
            let free = match known {
                0 => self.pieces.range(offset..).next().map_or(u64::MAX, |(next, _)| next - offset),
                known => known,
            };
            let (first, rest) = bytes.split_at(free.min(bytes.len() as u64) as usize);
            if known == 0 {
                self.put_piece(offset, first)?;
            }
            offset += first.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// A piece that overlaps no other; it is joined to those beside it if that makes none too long.
    fn put_piece(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Violation> {
        let end = offset + bytes.len() as u64;
        let before = self.pieces.range(..offset).next_back();
        let before =
            before.filter(|(start, piece)| *start + piece.len() as u64 == offset && piece.len() + bytes.len() <= PIECE);
        let (start, mut piece) = match before.map(|(start, _)| *start) {
            Some(start) => (start, self.take_piece(start)),
            None => (offset, Vec::with_capacity(bytes.len())),
        };
        piece.extend_from_slice(bytes);
        if self.pieces.get(&end).is_some_and(|after| piece.len() + after.len() <= PIECE) {
            let after = self.take_piece(end);
            piece.extend_from_slice(&after);
        }
        if self.pieces.len() >= MOST_PIECES {
            return Err(Violation::TooMany);
        }
        self.pieces_memory += piece_memory(&piece);
        self.pieces.insert(start, piece);
        Ok(())
    }

    fn take_piece(&mut self, start: u64) -> Vec<u8> {
        let piece = self.pieces.remove(&start).unwrap_or_default();
        self.pieces_memory -= piece_memory(&piece);
        piece
    }

    /// The other end has reset the stream, of which it had sent `end` bytes.
    ///
    /// # Errors
    ///
    /// When that can't be.
    pub fn on_reset(&mut self, end: u64) -> Result<Taken, Violation> {
        if end > self.limit {
            return Err(Violation::Credit);
        }
        if end < self.highest || self.end.is_some_and(|known| known != end) {
            return Err(Violation::End);
        }
        let more = end - self.highest;
        self.highest = end;
        self.end = Some(end);
        Ok(Taken { more, dropped: self.clear(), is_readable: false })
    }

    /// Drops all that was not read; how many bytes those were.
    pub fn clear(&mut self) -> u64 {
        (self.buffer, self.pieces, self.pieces_memory) = (VecDeque::new(), BTreeMap::new(), 0);
        let dropped = self.highest - self.read;
        self.read = self.highest;
        dropped
    }

    /// Reads what there is, in order; how many bytes.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let count = self.buffer.len().min(out.len());
        let (head, tail) = self.buffer.as_slices();
        let split = count.min(head.len());
        out[..split].copy_from_slice(&head[..split]);
        out[split..count].copy_from_slice(&tail[..count - split]);
        self.buffer.drain(..count);
        self.read += count as u64;
        self.end_reported = count == 0 && self.end == Some(self.read);
        if self.buffer.is_empty() && self.buffer.capacity() > 64 << 10 {
            self.buffer = VecDeque::new();
        }
        count
    }

    /// Whether all was read, and the end after it: whoever reads must learn of it before the stream is forgotten.
    pub fn is_over(&self) -> bool {
        self.end_reported
    }

    /// Whether it is known how much there was.
    pub fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    /// Whether anything has come, the end included.
    pub fn has_come(&self) -> bool {
        self.highest > 0 || self.end.is_some()
    }

    /// Whether the other end should be granted more credit, for this many bytes that it takes for unread.
    pub fn owes_credit(&self, step: u64) -> bool {
        self.end.is_none() && self.read + STREAM_WINDOW - self.limit >= step
    }

    /// What the other end may send now.
    pub fn next_limit(&self) -> u64 {
        self.read + STREAM_WINDOW
    }

    /// The credit was sent.
    pub fn on_credit_sent(&mut self) {
        self.limit = self.limit.max(self.next_limit());
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + self.pieces_memory
    }
}

fn piece_memory(piece: &Vec<u8>) -> usize {
    piece.capacity() + PIECE_OVERHEAD
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_in_any_order_are_read_in_theirs(
            length in 1usize..3000, order in prop::collection::vec((0usize..3000, 1usize..400), 1..60), step in 1usize..500,
        ) {
            let content: Vec<u8> = (0..length).map(|i| (i * 13 % 251) as u8).collect();
            let (mut incoming, mut read, mut counted) = (Incoming::default(), Vec::new(), 0);
            let mut out = vec![0; step];
            let all = order.iter().map(|&(start, count)| (start % length, count)).chain([(0, length)]);
            for (start, count) in all {
                let end = (start + count).min(length);
                let taken = incoming.on_data(start as u64, &content[start..end], end == length, false).unwrap();
                counted += taken.more;
                let count = incoming.read(&mut out);
                prop_assert!(count == 0 || taken.is_readable || count == step || !read.is_empty());
                read.extend_from_slice(&out[..count]);
            }
            while !incoming.is_over() {
                let count = incoming.read(&mut out);
                prop_assert!(count > 0 || incoming.is_over());
                read.extend_from_slice(&out[..count]);
            }
            prop_assert_eq!(counted, length as u64);
            prop_assert_eq!(read, content);
        }
    }

    #[test]
    fn memory_follows_the_bytes_that_came_and_not_where_they_belong() {
        let mut incoming = Incoming::default();
        incoming.on_data(STREAM_WINDOW - 1, &[9], true, false).unwrap();
        assert!(incoming.memory() < 256, "{} bytes for one", incoming.memory());
        // Backwards, cell by cell, with each twice: they are joined, and none is held twice.
        let length = 256 << 10;
        let mut incoming = Incoming::default();
        for start in (1..length).step_by(1000).collect::<Vec<_>>().into_iter().rev() {
            incoming.on_data(start, &[5; 1000], false, false).unwrap();
            incoming.on_data(start - 1, &[5; 1000], false, false).unwrap();
            incoming.on_data(start, &[5; 1000], false, false).unwrap();
        }
        assert!(incoming.memory() < 3 * length as usize && incoming.pieces.len() < 160, "{}", incoming.memory());
        incoming.on_data(0, &[5], false, false).unwrap();
        assert_eq!((incoming.pieces.len(), incoming.pieces_memory), (0, 0));
        // Single bytes cost more than they are, but they are few.
        let mut incoming = Incoming::default();
        let refused = (0..).position(|i| incoming.on_data(1 + 2 * i, &[9], false, false).is_err());
        assert_eq!(refused, Some(MOST_PIECES));
        assert!(incoming.memory() < STREAM_WINDOW as usize / 2, "{}", incoming.memory());
        incoming.clear();
        assert_eq!(incoming.memory(), 0);
    }

    #[test]
    fn p13_reorder_memory_stays_within_the_window_and_a_full_window_is_read_again() {
        let mut incoming = Incoming::default();
        incoming.on_data(STREAM_WINDOW - 1, &[9], false, false).unwrap();
        assert_eq!(incoming.on_data(STREAM_WINDOW, &[9], false, false), Err(Violation::Credit));
        let mut incoming = Incoming::default();
        let mut out = vec![0; 1 << 16];
        let mut offset = 0;
        for _ in 0..100 {
            while offset + 1000 <= incoming.limit {
                incoming.on_data(offset, &[5; 1000], false, false).unwrap();
                offset += 1000;
            }
            assert!(incoming.memory() <= STREAM_WINDOW as usize + 1024, "{}", incoming.memory());
            while incoming.read(&mut out) > 0 {}
            assert!(incoming.owes_credit(STREAM_WINDOW / 4));
            incoming.on_credit_sent();
        }
        assert!(offset > 50 * STREAM_WINDOW);
    }
}
