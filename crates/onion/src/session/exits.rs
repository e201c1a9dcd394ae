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

/// Sessions at once. For one more, the one ends that has no streams and was silent for longest.
pub const MAX_SESSIONS: usize = 4096;

/// Sessions beyond those that end for others, and say so: they are gone as soon as their last cells have left.
const MAX_ENDING: usize = 64;

/// Handshakes a second, and at once after a pause. One takes some 200 µs: a fifth of a core at most.
pub const HANDSHAKES_PER_S: u64 = 1000;

/// Memory of all sessions beyond which no more begin, and the one that holds most ends: whoever fills windows, and not
/// whoever comes next, is who goes.
pub const MAX_MEMORY: usize = 1 << 30;

/// How much a session holds is measured each time that it was touched so often: it takes a step for each of its streams.
const TOUCHES: u32 = 8;

#[derive(Clone, Debug)]
struct Half {
    name: SessionName,
    is_second: bool,
    bytes: Box<[u8]>,
}

#[derive(Clone, Debug)]
struct Session {
    exit: Exit,
    /// Bytes of memory when it was measured last.
    memory: usize,
    /// Since then.
    touches: u32,
}

impl Session {
    /// Something happens to it; `all` is the memory of all sessions, as measured.
    fn touch(&mut self, all: &mut usize) {
        self.touches += 1;
        if self.touches >= TOUCHES {
            self.measure(all);
        }
    }

    fn measure(&mut self, all: &mut usize) {
        let before = std::mem::replace(&mut self.memory, self.exit.memory());
        *all = (*all + self.memory).saturating_sub(before);
        self.touches = 0;
    }
}

/// A service's sessions.
#[derive(Clone, Debug)]
pub struct Exits {
    format: CellFormat,
    secret: ServiceSecret,
    entropy: Entropy,
    halves: VecDeque<Half>,
    sessions: BTreeMap<SessionName, Session>,
    /// Bytes of memory of all sessions, as measured.
    memory: usize,
    most_sessions: usize,
    most_memory: usize,
    /// Sessions that ended for others, of which whoever drives does not know yet.
    shed: VecDeque<SessionName>,
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
            memory: 0,
            most_sessions: MAX_SESSIONS,
            most_memory: MAX_MEMORY,
            shed: VecDeque::new(),
            handshakes: 0,
            caught_up: Time::ZERO,
            refused: 0,
        }
    }

    /// A cell came; the session that it concerned, which may have something to say now.
    pub fn on_cell(&mut self, now: Time, cell: &[u8]) -> Option<SessionName> {
        match Envelope::read(&self.format, cell).ok()? {
            Envelope::Sealed { name, number, bytes } => {
                let session = self.sessions.get_mut(&name)?;
                session.exit.on_cell(now, number, bytes);
                session.touch(&mut self.memory);
                Some(name)
            }
            Envelope::Part { name, is_second, bytes } => {
                if let Some(session) = self.sessions.get_mut(&name) {
                    // Both halves come again; one of them asks.
                    if is_second {
                        session.exit.on_opened_again();
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
        let mut session = Session { exit: Exit::new(now, self.format, answered), memory: 0, touches: 0 };
        session.measure(&mut self.memory);
        self.sessions.insert(name, session);
        Some(name)
    }

    fn may_answer(&mut self, now: Time) -> bool {
        let each = Duration::SECOND / HANDSHAKES_PER_S;
        let earliest = Time::from_nanos(now.as_nanos().saturating_sub(Duration::SECOND.as_nanos()));
        let caught_up = self.caught_up.max(earliest) + each;
        if caught_up > now + each
            || (self.memory >= self.most_memory && self.measure() >= self.most_memory)
            || !self.has_place()
        {
            return false;
        }
        self.caught_up = caught_up;
        true
    }

    /// Whether there is a place for one more: else, one that nobody uses ends.
    fn has_place(&mut self) -> bool {
        if self.sessions.len() < self.most_sessions {
            return true;
        }
        if self.sessions.len() >= self.most_sessions + MAX_ENDING {
            return false;
        }
        let unused = self.sessions.iter_mut().filter(|(_, session)| session.exit.is_unused());
        let Some((&name, session)) = unused.min_by_key(|(_, session)| session.exit.heard()) else { return false };
        session.exit.close();
        self.shed.push_back(name);
        true
    }

    /// The next session that was ended for others, to be done once anything has happened: its events are to be fetched,
    /// and what it has to say is to leave. Where all hold more than they may, that is the one that holds most.
    pub fn poll_shed(&mut self) -> Option<SessionName> {
        if let Some(name) = self.shed.pop_front() {
            return Some(name);
        }
        if self.memory <= self.most_memory || self.measure() <= self.most_memory {
            return None;
        }
        let alive = self.sessions.iter_mut().filter(|(_, session)| session.exit.end().is_none());
        let (&name, session) = alive.max_by_key(|(_, session)| session.memory)?;
        session.exit.shed();
        session.measure(&mut self.memory);
        Some(name)
    }

    /// Measures all.
    fn measure(&mut self) -> usize {
        let Exits { sessions, memory, .. } = self;
        sessions.values_mut().for_each(|session| session.measure(memory));
        self.memory
    }

    /// One of the sessions.
    pub fn get_mut(&mut self, name: SessionName) -> Option<&mut Exit> {
        let session = self.sessions.get_mut(&name)?;
        session.touch(&mut self.memory);
        Some(&mut session.exit)
    }

    /// All of them, by name.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (SessionName, &mut Exit)> {
        self.sessions.iter_mut().map(|(name, session)| (*name, &mut session.exit))
    }

    /// Time has passed: for all whose timer it is. Who is done, is forgotten.
    pub fn on_timer(&mut self, now: Time) {
        let Exits { sessions, memory, .. } = self;
        sessions.retain(|_, session| {
            session.exit.on_timer(now);
            let is_done = session.exit.is_done();
            if is_done {
                *memory = memory.saturating_sub(session.memory);
            }
            !is_done
        });
    }

    /// The earliest timer of all.
    pub fn timer(&self, now: Time) -> Option<Time> {
        self.sessions.values().filter_map(|session| session.exit.timer(now)).min()
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
        halves + self.sessions.values().map(|session| session.exit.memory()).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Client, Rates, Secrecy, Target, Via};
    use super::*;

    fn service() -> (Exits, impl Fn(u8) -> Client) {
        let format = CellFormat::new(1050, Secrecy::Transparent).unwrap();
        let secret = ServiceSecret::from_seed(&[1; 32]);
        let keys = secret.keys();
        let client = move |seed| Client::new(Time::ZERO, format, keys.clone(), Rates::default(), Entropy([seed; 32]));
        (Exits::new(format, secret, Entropy([3; 32])), client)
    }

    /// For so long, all cells arrive at once. Gives which sessions were ended for others.
    fn pass(now: &mut Time, ms: u64, clients: &mut [Client], exits: &mut Exits) -> Vec<SessionName> {
        let (mut cell, mut shed, mut serial) = (Vec::new(), Vec::new(), now.as_nanos());
        for _ in 0..ms {
            for (place, client) in clients.iter_mut().enumerate() {
                for _ in 0..client.blocks_wanted() {
                    serial += 1;
                    let block = [(place as u64).to_be_bytes(), serial.to_be_bytes()].concat();
                    client.give_block(&block, Duration::ZERO, false).unwrap();
                }
                let via = Via { tag: 7, timeout: Duration::from_millis(100), is_trial: false };
                while client.wants_cell(*now) && client.poll_cell(*now, via, &mut cell) {
                    exits.on_cell(*now, &cell);
                    shed.extend(std::iter::from_fn(|| exits.poll_shed()));
                }
            }
            for (_, exit) in exits.iter_mut() {
                while exit.poll_event().is_some() {}
                while let Some(block) = exit.poll_cell(*now, &mut cell) {
                    let [place, serial] = [0, 8].map(|at| u64::from_be_bytes(block[at..at + 8].try_into().unwrap()));
                    clients[place as usize].on_cell(*now, &cell, serial);
                }
            }
            *now += Duration::from_millis(1);
            for client in &mut *clients {
                while client.poll_event().is_some() {}
                client.on_timer(*now);
            }
            exits.on_timer(*now);
        }
        shed
    }

    #[test]
    fn where_all_hold_too_much_the_session_that_holds_most_ends() {
        let (mut exits, client) = service();
        let (mut now, mut clients) = (Time::ZERO, vec![client(1), client(2)]);
        exits.most_memory = 1 << 20;
        for (client, streams) in clients.iter_mut().zip([1, 4]) {
            for _ in 0..streams {
                let stream = client.open_stream(now, Target::Itself).unwrap();
                client.write(stream, &vec![7; if streams == 1 { 10_000 } else { 1 << 20 }]).unwrap();
            }
        }
        let shed = pass(&mut now, 2000, &mut clients, &mut exits);
        assert_eq!((shed.len(), exits.len()), (1, 1), "{} bytes", exits.memory());
        assert!(clients[0].end().is_none() && clients[1].end().is_some());
        assert!((10_000..1 << 20).contains(&exits.memory()), "{}", exits.memory());
    }

    #[test]
    fn for_one_session_too_many_the_one_without_streams_that_was_silent_for_longest_ends() {
        let (mut exits, client) = service();
        let (mut now, mut clients) = (Time::ZERO, Vec::new());
        exits.most_sessions = 3;
        let mut names = Vec::new();
        for seed in 0..4 {
            clients.push(client(seed));
            let new = clients.last_mut().unwrap();
            let stream = new.open_stream(now, Target::Itself).unwrap();
            let shed = pass(&mut now, 500, &mut clients, &mut exits);
            assert_eq!(shed, if seed == 3 { vec![names[1]] } else { vec![] });
            let others: Vec<SessionName> = exits.iter_mut().map(|(name, _)| name).collect();
            names.extend(others.into_iter().filter(|name| !names.contains(name)).collect::<Vec<_>>());
            // The first keeps its stream.
            if seed > 0 {
                clients[usize::from(seed)].reset(stream, super::super::Reason::Stopped);
                pass(&mut now, 500, &mut clients, &mut exits);
            }
        }
        assert_eq!((exits.len(), exits.refused()), (3, 0));
    }
}
