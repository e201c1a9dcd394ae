//! How many senders use a relay, without a table of them: linear counting [Whang, Vander-Zanden and
//! Taylor 1990, "A linear-time probabilistic counting algorithm for database applications"].
//!
//! Each source sets one of b bits, chosen by its hash; with z bits that are not set, about
//! `-b ln(z / b)` sources have been seen. Two bitmaps take turns, so that those who have gone are
//! forgotten.

use core::hash::{Hash, Hasher};

use anabranch_control::time::{Duration, Time};

const WORDS: usize = 8;
const BITS: f64 = (64 * WORDS) as f64;

/// Each bitmap is filled for so long: a sender that knows a relay tries it once a second.
const TURN: Duration = Duration::from_millis(1_500);

/// The sources that were seen in this turn and the one before.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    now: [u64; WORDS],
    before: [u64; WORDS],
    turned: Time,
    /// Counts the turns; begins again after many.
    turn: u16,
    /// When one came last that was not among them.
    joined: Time,
}

impl Sources {
    /// The turn in which something comes now, and whether it begins with that, which changes the count.
    #[inline]
    pub fn turn(&mut self, now: Time) -> (u16, bool) {
        let turns = now.since(self.turned);
        let begins = turns >= TURN;
        if begins {
            let long_ago = turns >= TURN * 2;
            self.before = if long_ago { [0; WORDS] } else { self.now };
            self.now = [0; WORDS];
            self.turned = now;
            self.turn = self.turn.wrapping_add(1);
        }
        (self.turn, begins)
    }

    /// The word and the bit of it that are `source`'s.
    #[inline]
    fn place<A: Hash>(source: &A) -> (usize, u64) {
        let mut hasher = Mixer(0);
        source.hash(&mut hasher);
        let bit = hasher.finish() as usize % (64 * WORDS);
        (bit / 64, 1 << (bit % 64))
    }

    /// Whether a packet of `source` would change the count in the present turn.
    #[inline]
    pub fn is_new<A: Hash>(&self, source: &A) -> bool {
        let (word, mask) = Sources::place(source);
        (self.now[word] | self.before[word]) & mask == 0
    }

    /// A packet of `source` has come; whether that changes the count.
    #[inline]
    pub fn note<A: Hash>(&mut self, now: Time, source: &A) -> bool {
        let (_, mut changed) = self.turn(now);
        let (word, mask) = Sources::place(source);
        if (self.now[word] | self.before[word]) & mask == 0 {
            changed = true;
            self.joined = now;
        }
        self.now[word] |= mask;
        changed
    }

    /// Since when no other one has come.
    pub fn joined(&self) -> Time {
        self.joined
    }

    /// Whether there is one, or so few bits that it looks so.
    pub fn is_one(&self) -> bool {
        self.now.iter().zip(&self.before).map(|(now, before)| (now | before).count_ones()).sum::<u32>() == 1
    }

    /// About how many there are; at least one.
    pub fn count(&self) -> f64 {
        let set: u32 = self.now.iter().zip(&self.before).map(|(now, before)| (now | before).count_ones()).sum();
        // With every bit set there may be any number: as if one bit were left.
        let unset = (BITS - f64::from(set)).max(1.0);
        (-BITS * libm::log(unset / BITS)).max(1.0)
    }
}

/// A quick hash, for who would choose an address by it gains nothing: a source that hides behind
/// another lowers nobody's grant. How many sources one neighbour can invent is bounded where neighbours
/// are known (`fair_share.rs`).
struct Mixer(u64);

impl Hasher for Mixer {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    /// A step of SplitMix64 [Steele, Lea and Flood 2014].
    #[inline]
    fn write_u64(&mut self, word: u64) {
        let mut mixed = (self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.0 = mixed ^ (mixed >> 31);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn sources_are_counted_within_a_tenth() {
        for number in [1u32, 5, 20, 100, 500] {
            let mut sources = Sources::default();
            for source in (0..number).cycle().take(2000) {
                sources.note(Time::ZERO, &SocketAddr::from((source.to_be_bytes(), 4000)));
            }
            let count = sources.count();
            assert!((count / f64::from(number) - 1.0).abs() < 0.1, "{number} counted as {count}");
        }
    }

    #[test]
    fn who_has_gone_is_forgotten() {
        let mut sources = Sources::default();
        (0..100u32).for_each(|source| _ = sources.note(Time::ZERO, &source));
        sources.note(Time::ZERO + TURN, &0u32);
        assert!(sources.count() > 90.0);
        sources.note(Time::ZERO + TURN * 2, &0u32);
        assert!(sources.count() < 2.0);
    }

    #[test]
    fn more_than_can_be_counted_are_many() {
        let mut sources = Sources::default();
        (0..1_000_000u32).for_each(|source| _ = sources.note(Time::ZERO, &source));
        assert!(sources.count() > 3000.0 && sources.count().is_finite());
    }
}
