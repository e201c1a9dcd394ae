//! All sessions of one service: openings are put together and answered, and cells go to whose they are.
//!
//! Everything here is bounded, for strangers are who sends it: halves of openings, sessions, and the
//! handshakes that are computed in a second.

use std::collections::{BTreeMap, VecDeque};

use anabranch_control::time::{Duration, Time};

use super::envelope::{CellFormat, Envelope};
use super::exit::Exit;
use super::handshake::{self, Entropy, ServiceSecret, SessionName};

/// Openings of which one half has come, at most; of more, the oldest go.
pub const MAX_HALVES: usize = 1024;

/// Sessions at once.
pub const MAX_SESSIONS: usize = 4096;

/// Handshakes a second, and at once after a pause. One takes some 200 µs: a fifth of a core at most.
pub const HANDSHAKES_PER_S: u64 = 1000;

/// Memory of all sessions beyond which no more begin.
pub const MAX_MEMORY: usize = 1 << 30;

#[derive(Clone, Debug)]
struct Half {
    name: SessionName,
    is_second: bool,
    bytes: Box<[u8]>,
}

/// A service's sessions.
#[derive(Clone, Debug)]
pub struct Exits {
    format: CellFormat,
    secret: ServiceSecret,
    entropy: Entropy,
    halves: VecDeque<Half>,
    sessions: BTreeMap<SessionName, Exit>,
    handshakes: u64,
    /// When the handshakes so far would be done at their rate.
    caught_up: Time,
    /// Openings that were turned away.
    refused: u64,
}

impl Exits {
    /// None yet, for the service that knows `secret`.
    pub fn new(format: CellFormat, secret: ServiceSecret, entropy: Entropy) -> Exits {
        Exits {
            format,
            secret,
            entropy,
            halves: VecDeque::new(),
            sessions: BTreeMap::new(),
            handshakes: 0,
            caught_up: Time::ZERO,
            refused: 0,
        }
    }

    /// A cell came; the session that it concerned, which may have something to say now.
    pub fn on_cell(&mut self, now: Time, cell: &[u8]) -> Option<SessionName> {
        match Envelope::read(&self.format, cell).ok()? {
            Envelope::Sealed { name, number, bytes } => {
                self.sessions.get_mut(&name)?.on_cell(now, number, bytes);
                Some(name)
            }
            Envelope::Part { name, is_second, bytes } => {
                if let Some(session) = self.sessions.get_mut(&name) {
                    // Both halves come again; one of them asks.
                    if is_second {
                        session.on_opened_again();
                    }
                    return Some(name);
                }
                self.on_half(now, name, is_second, bytes)
            }
            Envelope::Answer { .. } => None,
        }
    }

    fn on_half(&mut self, now: Time, name: SessionName, is_second: bool, bytes: &[u8]) -> Option<SessionName> {
        let other = self.halves.iter().position(|half| half.name == name && half.is_second != is_second);
        let Some(other) = other else {
            if self.halves.iter().all(|half| half.name != name) {
                if self.halves.len() == MAX_HALVES {
                    self.halves.pop_front();
                }
                self.halves.push_back(Half { name, is_second, bytes: bytes.into() });
            }
            return None;
        };
        let other = self.halves.remove(other)?;
        let opening = if is_second { [&other.bytes, bytes].concat() } else { [bytes, &other.bytes].concat() };
        if !self.may_answer(now) {
            self.refused += 1;
            return None;
        }
        let entropy = self.entropy.numbered(self.handshakes);
        self.handshakes += 1;
        let answered = handshake::answer(&self.secret, &opening, entropy, self.format.secrecy()).ok()?;
        // Two halves of different openings may say any name; this one is a hash of both.
        if answered.name != name {
            return None;
        }
        self.sessions.insert(name, Exit::new(now, self.format, answered));
        Some(name)
    }

    fn may_answer(&mut self, now: Time) -> bool {
        let each = Duration::SECOND / HANDSHAKES_PER_S;
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(Duration::SECOND.as_nanos()));
        let caught_up = self.caught_up.max(earliest) + each;
        if caught_up > now + each || self.sessions.len() >= MAX_SESSIONS || self.memory() >= MAX_MEMORY {
            return false;
        }
        self.caught_up = caught_up;
        true
    }

    /// One of the sessions.
    pub fn get_mut(&mut self, name: SessionName) -> Option<&mut Exit> {
        self.sessions.get_mut(&name)
    }

    /// All of them, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionName, &mut Exit)> {
        self.sessions.iter_mut().map(|(name, exit)| (*name, exit))
    }

    /// Time has passed: for all whose timer it is. Who is done, is forgotten.
    pub fn on_timer(&mut self, now: Time) {
        self.sessions.retain(|_, exit| {
            exit.on_timer(now);
            !exit.is_done()
        });
    }

    /// The earliest timer of all.
    pub fn timer(&self, now: Time) -> Option<Time> {
        self.sessions.values().filter_map(|exit| exit.timer(now)).min()
    }

    /// How many sessions there are.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    /// Openings that were turned away because there were too many.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Bytes of memory of all, about.
    pub fn memory(&self) -> usize {
        let halves: usize = self.halves.iter().map(|half| half.bytes.len()).sum();
        halves + self.sessions.values().map(Exit::memory).sum::<usize>()
    }
}
