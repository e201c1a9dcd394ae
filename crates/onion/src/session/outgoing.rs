//! What one end sends in a stream: bytes that are kept until they have come.

use std::collections::{BTreeMap, VecDeque};

use anabranch_proto::flow::Assembly;

use super::limits::{STREAM_BUFFER, STREAM_WINDOW, stream_bound};

/// Bytes that shall leave in one cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin.
    pub start: u64,
    /// Where they end.
    pub end: u64,
    /// Whether the stream ends there.
    pub is_end: bool,
    /// How many of them leave for the first time.
    pub fresh: u64,
}

/// Bytes that leave a second time, in another cell than the first.
#[derive(Clone, Copy, Debug)]
struct Twin {
    start: u64,
    end: u64,
    cell: u64,
}

/// The sending half of a stream.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// What has not come yet, from `base` on.
    buffer: VecDeque<u8>,
    base: u64,
    /// Before here, bytes have left.
    next: u64,
    /// Bytes that may be sent.
    limit: u64,
    delivered: Assembly,
    /// What must leave again: start to end.
    lost: BTreeMap<u64, u64>,
    /// Where the bytes that the other end waits for began when they left again last.
    repeated: Option<u64>,
    twin: Option<Twin>,
    is_finished: bool,
    end_left: bool,
    end_came: bool,
}

impl Default for Outgoing {
    fn default() -> Outgoing {
        Outgoing {
            buffer: VecDeque::new(),
            base: 0,
            next: 0,
            limit: STREAM_WINDOW,
            delivered: Assembly::default(),
            lost: BTreeMap::new(),
            repeated: None,
            twin: None,
            is_finished: false,
            end_left: false,
            end_came: false,
        }
    }
}

impl Outgoing {
    /// Takes what fits; nothing at all from one that is finished.
    pub fn write(&mut self, bytes: &[u8]) -> Option<usize> {
        if self.is_finished {
            return None;
        }
        let taken = bytes.len().min(STREAM_BUFFER.saturating_sub(self.buffer.len()));
        self.buffer.extend(&bytes[..taken]);
        Some(taken)
    }

    /// Nothing more follows.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Bytes that have left.
    pub fn sent(&self) -> u64 {
        self.next
    }

    /// Bytes that are kept.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of memory, about.
    pub fn memory(&self) -> usize {
        self.buffer.capacity() + 16 * self.delivered.pieces().len() + 24 * self.lost.len()
    }

    /// Whether all has come, the end too.
    pub fn is_over(&self) -> bool {
        self.end_came && self.buffer.is_empty()
    }

    /// Drops all; how many bytes those were.
    pub fn clear(&mut self) -> usize {
        self.lost.clear();
        self.twin = None;
        std::mem::take(&mut self.buffer).len()
    }

    fn end(&self) -> u64 {
        self.base + self.buffer.len() as u64
    }

    /// Bytes that may leave for the first time while this many of all streams may.
    fn fresh(&self, session_left: u64) -> u64 {
        // What has left and was not granted again, the other end still holds, as far as is known here.
        let held = (self.next + STREAM_WINDOW).saturating_sub(self.limit);
        let bound = stream_bound(session_left).saturating_sub(held);
        session_left.min(bound).min(self.limit.min(self.end()).saturating_sub(self.next))
    }

    /// Whether something can leave while this many bytes of all streams may.
    pub fn has_work(&self, session_left: u64) -> bool {
        self.fresh(session_left) > 0 || !self.lost.is_empty() || self.twin.is_some() || self.owes_end()
    }

    fn owes_end(&self) -> bool {
        self.is_finished && !self.end_left && self.next == self.end()
    }

    /// The next bytes, up to `room`, of which up to `session_left` may leave for the first time, in the cell with the
    /// number `cell`.
    ///
    /// What holds up bytes that have come, and was lost again after it had left again, leaves twice, in two cells over two
    /// paths: where relays have failed, one path in two may lose it, and each time it is lost everything behind it waits
    /// for a timeout more. Where nothing has come, nothing is held up, and it may be the whole way that fails.
    pub fn take(&mut self, room: usize, session_left: u64, cell: u64) -> Option<Piece> {
        let room = room as u64;
        if let Some(twin) = self.twin.take_if(|twin| twin.cell != cell) {
            return Some(self.piece(twin.start, twin.end.min(twin.start + room), 0));
        }
        if let Some((start, end)) = self.lost.pop_first() {
            let cut = end.min(start + room);
            if cut < end {
                self.lost.insert(cut, end);
            }
            if start == self.base && cut > start {
                let is_again = self.repeated.replace(start) == Some(start);
                self.twin = (is_again && self.delivered.has_gap()).then_some(Twin { start, end: cut, cell });
            }
            return (cut > start).then(|| self.piece(start, cut, 0));
        }
        let fresh = room.min(self.fresh(session_left));
        if fresh == 0 && !self.owes_end() {
            return None;
        }
        let start = self.next;
        self.next += fresh;
        Some(self.piece(start, self.next, fresh))
    }

    fn piece(&mut self, start: u64, end: u64, fresh: u64) -> Piece {
        let is_end = self.is_finished && end == self.end();
        self.end_left |= is_end;
        Piece { start, end, is_end, fresh }
    }

    /// Appends the bytes from `start` to `end`, which must not have come.
    pub fn append(&self, start: u64, end: u64, out: &mut Vec<u8>) {
        let (from, to) = ((start - self.base) as usize, (end - self.base) as usize);
        let (head, tail) = self.buffer.as_slices();
        out.extend_from_slice(&head[from.min(head.len())..to.min(head.len())]);
        out.extend_from_slice(&tail[from.saturating_sub(head.len())..to.saturating_sub(head.len())]);
    }

    /// A piece has come; how many bytes need not be kept any more.
    pub fn on_delivered(&mut self, start: u64, end: u64, is_end: bool) -> usize {
        self.end_came |= is_end;
        if self.delivered.insert(start, end - start).is_none() {
            // Too many gaps to remember one more: it leaves again.
            self.on_lost(start, end, is_end);
            return 0;
        }
        self.forget_lost(start, end);
        let gone = self.delivered.contiguous().saturating_sub(self.base).min(self.buffer.len() as u64) as usize;
        self.buffer.drain(..gone);
        self.base += gone as u64;
        self.forget_lost(0, self.base);
        self.twin.take_if(|twin| twin.start < self.base);
        if self.buffer.is_empty() && self.buffer.capacity() > 64 << 10 {
            self.buffer = VecDeque::new();
        }
        gone
    }

    /// A piece is lost; what of it has not come in another cell leaves again.
    pub fn on_lost(&mut self, start: u64, end: u64, is_end: bool) {
        if is_end && !self.end_came {
            self.end_left = false;
        }
        let Outgoing { delivered, lost, .. } = self;
        let mut from = start.max(delivered.contiguous());
        for &(a, b) in delivered.pieces().iter().take_while(|(a, _)| *a < end) {
            add_range(lost, from, a.min(end));
            from = from.max(b);
        }
        add_range(lost, from, end);
    }

    fn forget_lost(&mut self, start: u64, end: u64) {
        while let Some((&a, &b)) = self.lost.range(..end).next_back().filter(|(_, b)| **b > start) {
            self.lost.remove(&a);
            if a < start {
                self.lost.insert(a, start);
            }
            if b > end {
                self.lost.insert(end, b);
            }
        }
    }

    /// This many bytes of the stream may be sent.
    pub fn on_credit(&mut self, limit: u64) {
        self.limit = self.limit.max(limit);
    }
}

/// Adds from `start` to `end` to ranges that neither touch nor overlap.
fn add_range(ranges: &mut BTreeMap<u64, u64>, start: u64, end: u64) {
    if start >= end {
        return;
    }
    let (mut start, mut end) = (start, end);
    // Those that it touches become one with it.
    while let Some((&a, &b)) = ranges.range(..=end).next_back().filter(|(_, b)| **b >= start) {
        ranges.remove(&a);
        (start, end) = (start.min(a), end.max(b));
    }
    ranges.insert(start, end);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::limits::{SESSION_WINDOW, SHARED_WINDOW, STREAM_RESERVE};
    use super::*;

    proptest! {
        /// Pieces that come, come late, or are lost, in any order: in the end all have come, and each byte
        /// was right.
        #[test]
        fn whatever_is_lost_all_comes_in_the_end(
            length in 0usize..5000, seed in prop::collection::vec((0usize..8, 1usize..900), 1..60),
        ) {
            let content: Vec<u8> = (0..length).map(|i| (i * 7 % 251) as u8).collect();
            let mut outgoing = Outgoing::default();
            prop_assert_eq!(outgoing.write(&content), Some(length));
            outgoing.finish();
            let mut copy = vec![None; length];
            let mut late: Vec<Piece> = Vec::new();
            let mut steps = 0;
            while !outgoing.is_over() {
                steps += 1;
                prop_assert!(steps < 20_000, "no end: {:?}", outgoing);
                let (what, room) = seed[steps % seed.len()];
                // Once in a while the network is well.
                let what = if steps % 50 > 40 { 7 } else { what };
                if let Some(piece) = outgoing.take(room, u64::MAX, steps as u64) {
                    let mut bytes = Vec::new();
                    outgoing.append(piece.start, piece.end, &mut bytes);
                    prop_assert_eq!(bytes.len() as u64, piece.end - piece.start);
                    prop_assert!(bytes.len() <= room);
                    for (place, byte) in (piece.start as usize..).zip(bytes) {
                        copy[place] = Some(byte);
                    }
                    match what {
                        0 | 1 => outgoing.on_lost(piece.start, piece.end, piece.is_end),
                        2 => {
                            outgoing.on_lost(piece.start, piece.end, piece.is_end);
                            late.push(piece);
                        }
                        3 => late.push(piece),
                        _ => _ = outgoing.on_delivered(piece.start, piece.end, piece.is_end),
                    }
                } else {
                    let Some(piece) = late.pop() else { prop_assert!(false, "stuck: {:?}", outgoing); return Ok(()) };
                    outgoing.on_delivered(piece.start, piece.end, piece.is_end);
                }
            }
            prop_assert_eq!(copy.into_iter().collect::<Option<Vec<u8>>>(), Some(content));
            for piece in late {
                outgoing.on_lost(piece.start, piece.end, piece.is_end);
            }
            prop_assert!(!outgoing.has_work(u64::MAX) && outgoing.buffered() == 0);
        }
    }

    #[test]
    fn what_holds_others_up_and_is_lost_again_leaves_in_two_cells() {
        let mut outgoing = Outgoing::default();
        outgoing.write(&[1; 4000]);
        let mut cell = 0;
        // What leaves in the next cells, as long as something leaves again, and all of it is lost.
        let mut lose = |outgoing: &mut Outgoing| {
            let mut left = Vec::new();
            while outgoing.has_work(0) {
                cell += 1;
                while let Some(piece) = outgoing.take(1000, 0, cell) {
                    left.push((piece.start, piece.end, cell));
                }
            }
            left.iter().for_each(|&(start, end, _)| outgoing.on_lost(start, end, false));
            let first = left[0].2;
            left.into_iter().map(|(start, end, cell)| (start, end, cell - first)).collect::<Vec<_>>()
        };
        for cell in 0..3 {
            assert!(outgoing.take(1000, 3000, 100 + cell).is_some());
        }
        outgoing.on_lost(0, 2000, false);
        for _ in 0..3 {
            assert_eq!(lose(&mut outgoing), [(0, 1000, 0), (1000, 2000, 0)], "nothing waits for it");
        }
        outgoing.on_delivered(2000, 3000, false);
        assert_eq!(lose(&mut outgoing), [(0, 1000, 0), (1000, 2000, 0), (0, 1000, 1)]);
        assert_eq!(lose(&mut outgoing), [(0, 1000, 0), (1000, 2000, 0), (0, 1000, 1)], "and again");
        outgoing.on_delivered(0, 1000, false);
        assert_eq!(lose(&mut outgoing), [(1000, 2000, 0)], "others are waited for now");
        assert_eq!(lose(&mut outgoing), [(1000, 2000, 0), (1000, 2000, 1)]);
        assert!(outgoing.take(1000, 0, 200).is_some());
        outgoing.on_delivered(1000, 2000, false);
        assert!(!outgoing.has_work(0), "a copy of what has come does not leave");
    }

    #[test]
    fn no_more_leaves_than_there_is_credit_for() {
        let mut outgoing = Outgoing::default();
        outgoing.write(&vec![1; STREAM_BUFFER]);
        let mut sent = 0;
        while let Some(piece) = outgoing.take(1000, 10_000 - sent, 0) {
            sent += piece.fresh;
        }
        assert_eq!(sent, 10_000);
        assert!(!outgoing.has_work(0) && outgoing.has_work(1));
        // Where others hold all that is shared, it has its reserve.
        while let Some(piece) = outgoing.take(1000, SESSION_WINDOW - SHARED_WINDOW, 0) {
            sent += piece.fresh;
        }
        assert_eq!(sent, STREAM_RESERVE);
        outgoing.on_delivered(0, STREAM_RESERVE, false);
        outgoing.write(&vec![1; STREAM_BUFFER]);
        while let Some(piece) = outgoing.take(1000, u64::MAX, 0) {
            sent += piece.fresh;
        }
        assert_eq!(sent, STREAM_WINDOW);
        outgoing.on_credit(STREAM_WINDOW + 7);
        assert_eq!(outgoing.take(1000, u64::MAX, 0).map(|piece| piece.fresh), Some(7));
    }
}
