//! A live test picture as a transport stream, made here, without a file: H.264 that every player plays, at just
//! the bitrate that is asked for, and in each picture its number and when it was sent, so that a player's delay is
//! read from the pixels that it shows.
//!
//! # Reading a picture
//!
//! A picture, at whatever size it is shown, has ten columns and six rows of equal squares. The first five rows are
//! the counter, one bit a square, row by row from the left, white is 1:
//!
//! ```text
//!   rows 0 and 1   20 bits   the frame's number, modulo 2^20, most significant bit first
//!   rows 2 and 3   20 bits   when it was sent, in milliseconds since 1970, modulo 2^20
//!   row  4         10 bits   CRC-10 of those 40 bits: polynomial 0x233, begun with 0x3ff, not reflected
//!   row  5                   for people: colour bars, and a bar that moves from left to right
//! ```
//!
//! To read a square, take the mean luma (or green, or any colour: squares have none) of a quarter of its width and
//! height around its centre: at `(column + 0.5) / 10` of the width and `(row + 0.5) / 6` of the height. It is white
//! from 176 on and black up to 80; with anything between, or a checksum that is wrong, there is no counter in the
//! picture. The checksum, for each bit in order:
//!
//! ```text
//!   sum = 0x3ff
//!   sum = ((sum << 1) & 0x3ff) ^ ((sum >> 9) != bit ? 0x233 : 0)
//! ```
//!
//! The delay is `(now - sent) & 0xfffff` milliseconds, where `now` is the same clock's: on another machine, it errs
//! by as much as the clocks differ.
//!
//! There is no sound: no encoder that is small, kept and free of C code was found, and players start a stream
//! without sound unasked.

mod bits;
mod config;
mod counter;
mod h264;
mod muxer;
mod picture;

use std::time::Duration;

pub use config::{BadPattern, PatternConfig};
pub use counter::{Counter, read};

use crate::alignment::PACKET;
use h264::Encoder;
use muxer::{Muxer, Times};
use picture::Picture;

/// Bits of a packet.
const PACKET_BITS: u64 = 8 * PACKET as u64;

/// Makes a test picture's stream, one picture after another.
#[derive(Clone, Debug)]
pub struct Pattern {
    config: PatternConfig,
    encoder: Encoder,
    muxer: Muxer,
    /// Pictures so far.
    frame: u64,
    /// Packets so far.
    packets: u64,
}

impl Pattern {
    /// Begins a stream.
    ///
    /// # Errors
    ///
    /// When there is no such picture, or the bitrate is too little for it; the words say what would do.
    pub fn new(config: PatternConfig) -> Result<Pattern, BadPattern> {
        let level = config.level()?;
        let encoder = Encoder::new(config.width, config.height, config.frames_per_s, level);
        let least = least_packets(&config, encoder.clone()) * PACKET_BITS * u64::from(config.frames_per_s);
        if config.bits_per_s < least {
            return Err(BadPattern::TooSlow(config.bits_per_s, least));
        }
        Ok(Pattern { config, encoder, muxer: Muxer::default(), frame: 0, packets: 0 })
    }

    /// From one picture to the next.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(1) / self.config.frames_per_s
    }

    /// The next picture as whole packets, to be sent now: the time since 1970 is what the picture says. Those in which
    /// players can begin come with the tables before them.
    pub fn next_frame(&mut self, now: Duration) -> Vec<u8> {
        let PatternConfig { width, height, frames_per_s, keyframe_interval, bits_per_s } = self.config;
        let frame = self.frame;
        self.frame += 1;
        let is_keyframe = frame.is_multiple_of(keyframe_interval.into());
        let picture = Picture::paint(width, height, Counter::new(frame, now), frame);
        let unit = self.encoder.encode(&picture, is_keyframe);
        // All packets up to the end of this picture: the rate holds from the stream's beginning on.
        let due = share(self.frame, bits_per_s, u64::from(frames_per_s) * PACKET_BITS);
        let mut bytes = Vec::with_capacity(due.saturating_sub(self.packets) as usize * PACKET);
        if is_keyframe {
            self.muxer.put_tables(&mut bytes);
        }
        let before = self.packets + bytes.len() as u64 / PACKET as u64;
        let times = Times {
            // When this packet leaves, were they to leave one by one at that rate.
            clock: share(before * PACKET_BITS, 27_000_000, bits_per_s),
            // By then it is there as a whole.
            shown: share(self.frame, 90_000, frames_per_s.into()),
        };
        self.muxer.put_picture(&mut bytes, unit, due.saturating_sub(before), times, is_keyframe);
        self.packets += bytes.len() as u64 / PACKET as u64;
        bytes
    }
}

/// `count * times / by`, whatever its size between.
fn share(count: u64, times: u64, by: u64) -> u64 {
    (u128::from(count) * u128::from(times) / u128::from(by)) as u64
}

/// Packets of the longest picture: one in which each square differs from that beside it, alone and after its
/// opposite.
fn least_packets(config: &PatternConfig, mut encoder: Encoder) -> u64 {
    let checks: [bool; counter::COLUMNS * counter::ROWS] =
        std::array::from_fn(|square| (square % counter::COLUMNS + square / counter::COLUMNS).is_multiple_of(2));
    let mut packets = |squares: &[bool], place, is_keyframe| {
        let picture = Picture::paint_squares(config.width, config.height, squares, place);
        muxer::packets_for(encoder.encode(&picture, is_keyframe).len())
    };
    let key = packets(&checks, 0, true);
    let other = packets(&checks.map(|is_white| !is_white), 1, false);
    // One more, wherever the bar stands.
    (muxer::TABLES + key).max(other) + 1
}

#[cfg(test)]
mod tests;
