//! What one end has got of a stream: bytes in any order, given to whoever reads in theirs.

use std::collections::VecDeque;

use anabranch_proto::flow::Assembly;

use super::limits::{STREAM_WINDOW, Violation};

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
    /// From `read` on, with zeros where bytes are missing.
    buffer: VecDeque<u8>,
    read: u64,
    got: Assembly,
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
        let buffer = VecDeque::new();
        Incoming {
            buffer,
            read: 0,
            got: Assembly::default(),
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
        let before = self.got.contiguous();
        self.got.insert(offset, bytes.len() as u64).ok_or(Violation::TooMany)?;
        self.keep(offset, bytes);
        let has_grown = self.got.contiguous() > before;
        let is_whole = self.end == Some(self.got.contiguous());
        Ok(Taken { more, dropped: 0, is_readable: has_grown || (is_whole && !had_end) })
    }

    fn keep(&mut self, offset: u64, bytes: &[u8]) {
        let skipped = self.read.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let bytes = &bytes[skipped..];
        if bytes.is_empty() {
            return;
        }
        let start = (offset + skipped as u64 - self.read) as usize;
        let needed = start + bytes.len();
        if needed > self.buffer.len() {
            if needed > self.buffer.capacity() {
                // As a vector grows, but never beyond the window.
                let room = needed.next_power_of_two().min(STREAM_WINDOW as usize).max(needed);
                self.buffer.reserve_exact(room - self.buffer.len());
            }
            self.buffer.resize(needed, 0);
        }
        let (head, tail) = self.buffer.as_mut_slices();
        let split = head.len().saturating_sub(start).min(bytes.len());
        if split > 0 {
            head[start..start + split].copy_from_slice(&bytes[..split]);
        }
        let rest = &bytes[split..];
        if !rest.is_empty() {
            let start = start + split - head.len();
            tail[start..start + rest.len()].copy_from_slice(rest);
        }
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
        self.buffer = VecDeque::new();
        let dropped = self.highest - self.read;
        self.read = self.highest;
        dropped
    }

    /// Reads what there is, in order; how many bytes.
    pub fn read(&mut self, out: &mut [u8]) -> usize {
        let ready = self.got.contiguous().saturating_sub(self.read) as usize;
        let count = ready.min(out.len());
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
        self.buffer.capacity() + 16 * self.got.pieces().len()
    }
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
    fn p13_reorder_memory_stays_within_the_window_and_a_full_window_is_read_again() {
        let mut incoming = Incoming::default();
        incoming.on_data(STREAM_WINDOW - 1, &[9], false, false).unwrap();
        assert!(incoming.memory() <= STREAM_WINDOW as usize + 1024, "{}", incoming.memory());
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
