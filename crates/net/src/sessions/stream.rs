//! Messages as a stream of bytes: each behind its length, a variable-length integer of 2 or 4 bytes
//! (RFC 9000, 16).

use std::collections::VecDeque;

use anabranch_proto::session::MOST_BACKLOG;

/// Bytes of the longest message that is read: an assignment of all slices is not half as long.
pub const MOST_MESSAGE: usize = 1 << 16;

/// The first length that takes 4 bytes.
const LONG: usize = 1 << 14;

/// What says that a length takes 4 bytes, and 2.
const LONG_MARK: u32 = 0b10 << 30;
const SHORT_MARK: u16 = 0b01 << 14;

/// What has not been handed to QUIC yet.
#[derive(Debug, Default)]
pub struct Outbound {
    bytes: VecDeque<u8>,
    message: Vec<u8>,
}

impl Outbound {
    /// Adds the message that `write` writes; false if more waits than may, or it is too long.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.message.clear();
        write(&mut self.message);
        match self.message.len() {
            length if length < LONG => self.bytes.extend((length as u16 | SHORT_MARK).to_be_bytes()),
            length if length <= MOST_MESSAGE => self.bytes.extend((length as u32 | LONG_MARK).to_be_bytes()),
            _ => return false,
        }
        self.bytes.extend(&self.message);
        self.bytes.len() as u64 <= MOST_BACKLOG
    }

    /// What is next, as far as it lies together.
    pub fn next(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// This many bytes of it were taken.
    pub fn take(&mut self, count: usize) {
        self.bytes.drain(..count);
        if self.bytes.is_empty() && self.bytes.capacity() > MOST_MESSAGE {
            self.bytes = VecDeque::new();
        }
    }
}

/// What came of a message that is not whole.
#[derive(Debug, Default)]
pub struct Inbound {
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
}

/// The other end says that a message is longer than one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Inbound {
    /// More has come.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message; none before more comes.
    ///
    /// # Errors
    ///
    /// When the next message is longer than one may be, which is known before it has come.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, TooLong> {
        let rest = &self.bytes[self.read..];
        let Some(&first) = rest.first() else { return Ok(None) };
        let size = 1 << (first >> 6);
        let Some(length) = rest.get(..size) else { return Ok(None) };
        let length = length.iter().fold(0u64, |length, &byte| length << 8 | u64::from(byte));
        let length = length & (u64::MAX >> (66 - 8 * size));
        if length > MOST_MESSAGE as u64 {
            return Err(TooLong);
        }
        let length = length as usize;
        if rest.len() < size + length {
            return Ok(None);
        }
        let from = self.read + size;
        self.read = from + length;
        Ok(Some(&self.bytes[from..from + length]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            lengths in prop::collection::vec(prop_oneof![0..100usize, 16_000..17_000usize], 1..8),
            cuts in prop::collection::vec(1..5000usize, 1..8),
        ) {
            let (mut out, mut inbound) = (Outbound::default(), Inbound::default());
            let messages: Vec<Vec<u8>> = (0u8..).zip(&lengths).map(|(fill, &length)| vec![fill; length]).collect();
            for message in &messages {
                prop_assert!(out.push(|bytes| bytes.extend_from_slice(message)));
            }
            let mut read = Vec::new();
            for &cut in cuts.iter().cycle() {
                let next = out.next();
                let count = cut.min(next.len());
                inbound.push(&next[..count]);
                out.take(count);
                while let Some(message) = inbound.next_message().unwrap() {
                    read.push(message.to_vec());
                }
                if out.next().is_empty() {
                    break;
                }
            }
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn whatever_comes_is_cut_or_refused(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8)) {
            let mut inbound = Inbound::default();
            for part in parts {
                inbound.push(&part);
                while let Ok(Some(message)) = inbound.next_message() {
                    prop_assert!(message.len() <= MOST_MESSAGE);
                }
            }
        }
    }

    #[test]
    fn a_message_that_is_too_long_is_neither_awaited_nor_sent() {
        let mut inbound = Inbound::default();
        inbound.push(&((MOST_MESSAGE as u32 + 1) | LONG_MARK).to_be_bytes());
        assert_eq!(inbound.next_message(), Err(TooLong));
        assert!(!Outbound::default().push(|bytes| bytes.resize(MOST_MESSAGE + 1, 0)));
    }

    #[test]
    fn what_nobody_reads_is_kept_up_to_the_backlog() {
        let mut out = Outbound::default();
        let pushed = (0..).take_while(|_| out.push(|bytes| bytes.resize(1 << 14, 1))).count();
        assert_eq!(pushed as u64, MOST_BACKLOG / ((1 << 14) + 4));
    }
}
