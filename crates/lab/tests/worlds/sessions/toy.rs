//! An application that sends numbered messages and datagrams over all its sessions, and holds what
//! comes against what may come.

use std::collections::HashSet;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::session::{Application, Closed, PeerKey, Remote, SessionId, Sessions, WireLength};

/// Something numbered of some length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbered {
    pub number: u64,
    pub length: u32,
}

impl WireLength for Numbered {
    fn wire_length(&self) -> usize {
        self.length as usize
    }
}

/// Which datagrams a toy has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datagrams {
    None,
    /// As many as leave, to all sessions in turn.
    Always,
    /// One to each session each time that so much time has passed.
    Each(Duration),
}

/// What a toy does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whom it opens sessions with, at this time.
    pub opens: Vec<(Time, u32)>,
    /// When it closes all its sessions.
    pub closes: Time,
    pub datagrams: Datagrams,
    /// How long its datagrams are.
    pub length: u32,
    /// How often it sends a message to each session, and how long the longest is.
    pub messages: Option<(Duration, u32)>,
    /// It sends no messages from then on.
    pub quiet_from: Time,
    /// It tries again when a session is over.
    pub reopens: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            opens: Vec::new(),
            closes: Time::MAX,
            datagrams: Datagrams::None,
            length: 1316,
            messages: None,
            quiet_from: Time::MAX,
            reopens: false,
        }
    }
}

/// A session as a toy knows it.
#[derive(Clone, Debug)]
pub struct Known {
    pub remote: u32,
    pub is_silent: bool,
    /// Messages and datagrams that were sent.
    pub sent: (u64, u64),
    /// Messages that have come.
    pub messages: u64,
    pub datagrams: HashSet<u64>,
    /// Datagrams that wait for room.
    waiting: u64,
}

/// A session that is over.
#[derive(Clone, Debug)]
pub struct Over {
    pub at: Time,
    pub why: Closed,
    pub known: Option<Known>,
}

/// The application.
#[derive(Clone, Debug)]
pub struct Toy {
    plan: Plan,
    /// By session.
    pub known: Vec<Option<Known>>,
    pub over: Vec<Over>,
    turn: usize,
    next_opens: usize,
    next_datagrams: Time,
    next_messages: Time,
    pub accepts: bool,
    /// Datagrams that have come.
    pub received: u64,
    pub silences: u64,
    pub openings: Vec<(Time, Remote<u32>)>,
    pub started: Vec<(SessionId, u32)>,
}

/// The key of a node.
pub fn key_of(node: u32) -> PeerKey {
    let mut key = [7; 32];
    key[..4].copy_from_slice(&node.to_le_bytes());
    PeerKey(key)
}

impl Toy {
    /// Follows `plan`; its first messages and datagrams leave at `phase`.
    pub fn new(plan: Plan, phase: Duration) -> Toy {
        let first = Time::ZERO + phase;
        Toy {
            next_datagrams: if matches!(plan.datagrams, Datagrams::Each(_)) { first } else { Time::MAX },
            next_messages: if plan.messages.is_some() { first } else { Time::MAX },
            plan,
            known: Vec::new(),
            over: Vec::new(),
            turn: 0,
            next_opens: 0,
            accepts: true,
            received: 0,
            silences: 0,
            openings: Vec::new(),
            started: Vec::new(),
        }
    }

    /// The session with `remote`.
    pub fn with(&self, remote: u32) -> Option<&Known> {
        self.known.iter().flatten().find(|known| known.remote == remote)
    }

    fn get(&mut self, session: SessionId) -> &mut Known {
        self.known[session.index()].as_mut().expect("it is told of no session that does not stand")
    }
}

impl Application for Toy {
    type Address = u32;
    type Message = Numbered;
    type Datagram = Numbered;
    type Event = core::convert::Infallible;

    fn accepts(&mut self, _: Time, remote: &Remote<u32>) -> bool {
        assert_eq!(remote.key, key_of(remote.address));
        self.accepts
    }

    fn on_open(&mut self, now: Time, session: SessionId, remote: &Remote<u32>, _: &mut impl Sessions<Toy>) {
        assert_eq!(remote.key, key_of(remote.address));
        if self.known.len() <= session.index() {
            self.known.resize(session.index() + 1, None);
        }
        assert!(self.known[session.index()].is_none(), "a number is used again only when its session is over");
        self.openings.push((now, *remote));
        self.started.retain(|(started, _)| *started != session);
        self.known[session.index()] = Some(Known {
            remote: remote.address,
            is_silent: false,
            sent: (0, 0),
            messages: 0,
            datagrams: HashSet::new(),
            waiting: 0,
        });
    }

    fn on_message(&mut self, _: Time, session: SessionId, message: Numbered, _: &mut impl Sessions<Toy>) {
        let known = self.get(session);
        assert_eq!(message.number, known.messages, "messages come once and in order");
        known.messages += 1;
    }

    fn on_datagram(&mut self, _: Time, session: SessionId, datagram: Numbered, _: &mut impl Sessions<Toy>) {
        self.received += 1;
        assert!(self.get(session).datagrams.insert(datagram.number), "a datagram comes once at most");
    }

    fn on_silent(&mut self, _: Time, session: SessionId, is_silent: bool, _: &mut impl Sessions<Toy>) {
        let known = self.get(session);
        assert_ne!(known.is_silent, is_silent);
        known.is_silent = is_silent;
        self.silences += u64::from(is_silent);
    }

    fn on_closed(&mut self, now: Time, session: SessionId, why: Closed, sessions: &mut impl Sessions<Toy>) {
        let known = self.known.get_mut(session.index()).and_then(Option::take);
        let started = self.started.iter().position(|(started, _)| *started == session);
        let remote = started.map(|at| self.started.remove(at).1).or(known.as_ref().map(|known| known.remote));
        self.over.push(Over { at: now, why, known });
        if self.plan.reopens
            && let Some(remote) = remote
        {
            let again = sessions.open(remote, Some(key_of(remote))).expect("there is room");
            self.started.push((again, remote));
        }
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Toy>) {
        while let Some((_, to)) = self.plan.opens.get(self.next_opens).filter(|(at, _)| *at <= now) {
            let session = sessions.open(*to, Some(key_of(*to))).expect("there is room");
            self.started.push((session, *to));
            self.next_opens += 1;
        }
        if let Datagrams::Each(period) = self.plan.datagrams
            && self.next_datagrams <= now
        {
            self.next_datagrams += period;
            self.known.iter_mut().flatten().for_each(|known| known.waiting += 1);
        }
        if let Some((period, longest)) = self.plan.messages
            && self.next_messages <= now
        {
            self.next_messages = if now < self.plan.quiet_from { self.next_messages + period } else { Time::MAX };
            for (session, known) in (0..).zip(&mut self.known) {
                let Some(known) = known else { continue };
                let number = known.sent.0;
                known.sent.0 += 1;
                let length = (number * 7919 % u64::from(longest)) as u32;
                sessions.send(SessionId(session), Numbered { number, length });
            }
        }
        if self.plan.closes <= now {
            self.plan.closes = Time::MAX;
            for session in 0..self.known.len() {
                if let Some(known) = self.known[session].take() {
                    self.over.push(Over { at: now, why: Closed::ByPeer, known: Some(known) });
                    sessions.close(SessionId(session as u32));
                }
            }
        }
    }

    fn timer(&self, _: Time) -> Time {
        let opens = self.plan.opens.get(self.next_opens).map_or(Time::MAX, |(at, _)| *at);
        opens.min(self.next_datagrams).min(self.next_messages).min(self.plan.closes)
    }

    fn waiting(&self) -> Bytes {
        let waiting: u64 = match self.plan.datagrams {
            // Without end: more than any window.
            Datagrams::Always => u64::from(u32::MAX),
            _ => self.known.iter().flatten().map(|known| known.waiting).sum(),
        };
        Bytes::new(waiting * u64::from(self.plan.length))
    }

    fn next_datagram(&mut self, _: Time) -> Option<(SessionId, Numbered)> {
        let count = self.known.len();
        let always = self.plan.datagrams == Datagrams::Always;
        for _ in 0..count {
            self.turn = if self.turn + 1 >= count { 0 } else { self.turn + 1 };
            let Some(known) = &mut self.known[self.turn] else { continue };
            if !known.is_silent && (always || known.waiting > 0) {
                known.waiting = known.waiting.saturating_sub(1);
                let number = known.sent.1;
                known.sent.1 += 1;
                return Some((SessionId(self.turn as u32), Numbered { number, length: self.plan.length }));
            }
        }
        None
    }
}
