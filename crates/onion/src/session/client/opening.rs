//! How a client's session is opened: a handshake in two cells, sent again by other paths until one is answered.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};

use super::super::cell::{BLOCKS_HEADER, Frame};
use super::super::envelope::Envelope;
use super::super::handshake::Opening;
use super::super::link::End;
use super::{Client, ClientEvent};

/// Blocks with an opening, as far as they fit: an answer to each time that it is sent.
pub(super) const OPENING_BLOCKS: usize = 3;

/// After so long without an answer an opening is sent again (RFC 6298 2.1's first timeout).
pub(super) const OPENING_TIMEOUT: Duration = Duration::SECOND;

/// Openings are sent so often in all.
const OPENING_TRIES: u32 = 10;

/// Openings whose answer may still come.
const OPENINGS: usize = 3;

/// Attempts at a handshake that is going on.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    pub(super) openings: VecDeque<Opening>,
    /// Halves of the last one that must leave, the second first.
    pub(super) halves: u8,
    pub(super) tries: u32,
    /// How often the last one was sent, of as many times as it has blocks.
    pub(super) sent: usize,
    pub(super) blocks: usize,
    /// The paths of its halves.
    pub(super) via: [u64; 2],
    pub(super) retry_at: Option<Time>,
    /// When the last try's second half left.
    pub(super) left_at: Option<Time>,
}

impl Attempts {
    /// How long the answer took, if it answers the only try: which of several it answers is not known (Karn and
    /// Partridge 1987).
    pub(super) fn round_trip(&self, now: Time) -> Option<Duration> {
        self.left_at.filter(|_| self.tries == 1).map(|left| now.since(left))
    }
}

impl Client {
    pub(super) fn begins_opening(&self) -> bool {
        self.is_busy() && self.attempts.retry_at.is_none() && self.blocks_wanted() == 0
    }

    pub(super) fn write_opening(&mut self, now: Time, via: u64, out: &mut Vec<u8>) -> bool {
        let format = *self.link.format();
        if self.attempts.halves == 0 {
            let Some(size) = self.grants.size() else { return false };
            let fits = (format.payload() - BLOCKS_HEADER) / size;
            let mut bytes = Vec::new();
            let (first, count) = self.grants.take(now, fits.min(OPENING_BLOCKS), &mut bytes);
            // What becomes of them is not reported: the service has no clock yet.
            let _ = self.grants.on_undelivered(first, count);
            let mut payload = Vec::new();
            Frame::Blocks { size, bytes: &bytes }.encode(&mut payload);
            payload.resize(format.payload(), 0);
            let entropy = self.entropy.numbered(u64::from(self.attempts.tries));
            let Ok(opening) = Opening::new(&self.keys, &payload, entropy, format.secrecy()) else {
                self.link.finish(End::Unanswered, false);
                return false;
            };
            self.attempts.openings.push_back(opening);
            if self.attempts.openings.len() > OPENINGS {
                self.attempts.openings.pop_front();
            }
            (self.attempts.sent, self.attempts.blocks) = (0, count as usize);
            self.begin_try();
        }
        let Some(opening) = self.attempts.openings.back() else { return false };
        self.attempts.halves -= 1;
        self.attempts.via[usize::from(self.attempts.halves)] = via;
        let is_second = self.attempts.halves == 0;
        Envelope::write_part(&format, opening.name(), is_second, opening.bytes(), out);
        if is_second {
            (self.attempts.left_at, self.attempts.retry_at) = (Some(now), Some(now + OPENING_TIMEOUT));
        }
        true
    }

    fn begin_try(&mut self) {
        self.attempts.halves = 2;
        self.attempts.tries += 1;
        self.attempts.sent += 1;
    }

    pub(super) fn on_opening_timer(&mut self, now: Time) {
        if self.attempts.retry_at.is_none_or(|at| now < at) {
            return;
        }
        self.attempts.retry_at = None;
        // One of the two is, or the block: a new try had better take others.
        for via in self.attempts.via {
            self.push(ClientEvent::Lost { via });
        }
        if self.attempts.tries >= OPENING_TRIES {
            self.link.finish(End::Unanswered, false);
        } else if self.attempts.sent < self.attempts.blocks {
            self.begin_try();
        }
    }
}
