//! What a stream carries: a pattern that needs no memory, or what an application says.

use anabranch_control::flow::PeerId;
use anabranch_control::time::Time;
use anabranch_proto::flow::FlowSender;

/// Where a sender's data comes from.
pub trait Source: Send {
    /// Fills `bytes` with the stream to `to` from `offset` on. An offset may be asked for
    /// again until all that was handed over has been acknowledged.
    fn fill(&mut self, to: PeerId, offset: u64, bytes: &mut [u8]);

    /// Called before packets leave: the place to hand over more, where there is always more.
    fn refill(&mut self, now: Time, sender: &mut FlowSender) {
        let _ = (now, sender);
    }
}

impl<F: FnMut(PeerId, u64, &mut [u8]) + Send> Source for F {
    fn fill(&mut self, to: PeerId, offset: u64, bytes: &mut [u8]) {
        self(to, offset, bytes);
    }
}

/// Where a receiver's data goes.
pub trait Sink: Send {
    /// `bytes` of the stream have arrived; they lie at `offset`. They come in any order, and
    /// some may have come before: a stream's bytes never change.
    fn take(&mut self, offset: u64, bytes: &[u8]);
}

impl<F: FnMut(u64, &[u8]) + Send> Sink for F {
    fn take(&mut self, offset: u64, bytes: &[u8]) {
        self(offset, bytes);
    }
}

/// Where the pattern begins again: a prime, so that no packet is like its neighbours.
const PERIOD: usize = 251;

/// The pattern, long enough for the usual packet from anywhere in a period.
static PATTERN: [u8; 8 * PERIOD] = {
    let mut pattern = [0; 8 * PERIOD];
    let mut i = 0;
    while i < pattern.len() {
        pattern[i] = (i % PERIOD) as u8;
        i += 1;
    }
    pattern
};

/// The pattern: byte n of a stream is n modulo 251.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pattern;

impl Pattern {
    /// Whether `bytes` are the pattern from `offset` on.
    pub fn matches(offset: u64, bytes: &[u8]) -> bool {
        bytes.iter().zip((offset % PERIOD as u64) as usize..).all(|(&byte, place)| usize::from(byte) == place % PERIOD)
    }
}

impl Source for Pattern {
    #[inline]
    fn fill(&mut self, _: PeerId, offset: u64, bytes: &mut [u8]) {
        let begin = (offset % PERIOD as u64) as usize;
        // Whole periods apart, so that each piece goes on where the last one ended.
        for piece in bytes.chunks_mut(7 * PERIOD) {
            piece.copy_from_slice(&PATTERN[begin..begin + piece.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_is_the_same_wherever_it_is_cut() {
        for (offset, length) in [(0u64, 1usize), (250, 1448), (u64::MAX - 9_000, 9000), (77, 0), (1 << 40, 60_000)] {
            let mut bytes = vec![0xff; length];
            Pattern.fill(PeerId(0), offset, &mut bytes);
            assert!(Pattern::matches(offset, &bytes), "{offset} {length}");
            assert!(length == 0 || !Pattern::matches(offset.wrapping_add(1), &bytes), "{offset} {length}");
        }
    }
}
