//! What the server sends beside the stream: messages to viewers, and handshakes.
//!
//! They leave before any packet of the stream does. Where many come at once they take a third of an uplink, and the
//! stream has what is left; were its pushes planned without them, all would wait, viewers would miss what has not left
//! yet, say so, and be told of other parents, which takes even more. So trees and newcomers get what messages leave, as
//! long as there is enough for all, and messages about the trees never more than [`MOST_OF_TREES`]: who has to wait is
//! then told of all that is new by one message.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::session::{DATAGRAM_HEADERS, WireLength};

/// What was sent is forgotten by 1/e in this time: shorter than a review of the trees, longer than what comes in
/// bunches.
const MEMORY: Duration = Duration::from_millis(1000);

/// Messages about the trees wait while messages take this part of what the server can send.
pub(super) const MOST_OF_TREES: f64 = 0.5;

/// While the stream itself is behind, viewers that miss something are not moved where messages take this part.
pub(super) const MOST_WHILE_BEHIND: f64 = 0.125;

/// Bytes of the server's part of a handshake: RFC 9000 (14.1) has packets that begin a connection filled up to 1200.
const HANDSHAKE: usize = 1200 + 28;

/// What messages and handshakes have lately taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ControlTraffic {
    /// Bytes, each of less weight the longer ago it was sent.
    sent: f64,
    at: Time,
}

impl ControlTraffic {
    fn note(&mut self, now: Time, bytes: usize) {
        (self.sent, self.at) = (self.left(now) + bytes as f64, now);
    }

    fn left(&self, now: Time) -> f64 {
        self.sent * (-now.since(self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp()
    }

    /// A message leaves.
    pub fn on_message(&mut self, now: Time, message: &impl WireLength) {
        self.note(now, message.wire_length() + DATAGRAM_HEADERS);
    }

    /// A session begins.
    pub fn on_session(&mut self, now: Time) {
        self.note(now, HANDSHAKE);
    }

    /// What they take.
    pub fn rate(&self, now: Time) -> Rate {
        Bytes::new(self.left(now) as u64) / MEMORY
    }

    /// Whether messages and handshakes take less than this part of what the server can send.
    pub fn has_room(&self, now: Time, upload: Rate, part: f64) -> bool {
        self.rate(now).bytes_per_sec() < part * upload.bytes_per_sec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of 942 bytes, 1000 with its headers.
    struct Kilobyte;

    impl WireLength for Kilobyte {
        fn wire_length(&self) -> usize {
            1000 - DATAGRAM_HEADERS
        }
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn what_is_sent_steadily_is_the_rate_and_what_was_is_forgotten() {
        let mut traffic = ControlTraffic::default();
        // A message each 10 ms: 800 kbit/s.
        (1..=500).for_each(|number| traffic.on_message(at(10 * number), &Kilobyte));
        let rate = traffic.rate(at(5000)).bits_per_sec();
        assert!((790_000..810_000).contains(&rate), "{rate}");
        let later = traffic.rate(at(6000)).bits_per_sec();
        assert!((290_000..300_000).contains(&later), "{later}");
    }

    #[test]
    fn messages_about_trees_get_half_and_what_comes_in_bunches_waits() {
        let (mut traffic, upload) = (ControlTraffic::default(), Rate::from_bits_per_sec(1_600_000));
        let mut round = |number: u64| {
            let has_room = traffic.has_room(at(10 * number), upload, MOST_OF_TREES);
            // As many as there is room for: 4 of them are more than half.
            (0..4).take_while(|_| has_room).for_each(|_| traffic.on_message(at(10 * number), &Kilobyte));
            has_room
        };
        // At first there is room for as much as is remembered.
        (1..=500).for_each(|number| _ = round(number));
        let rate = 4.0 * 8000.0 * (501..=1000).filter(|&number| round(number)).count() as f64 / 5.0;
        assert!((780_000.0..840_000.0).contains(&rate), "{rate}");
    }
}
