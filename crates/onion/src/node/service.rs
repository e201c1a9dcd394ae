//! A service at a relay, an exit say: sessions with whoever sends cells to its label, answered by their blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;

use anabranch_control::time::Time;

use super::relay::Service;
use crate::crypto::Cryptography;
use crate::packet::{BODY, Datagram, Label, body_mut};
use crate::reply::{First, ReplyBlock};
use crate::session::{CellFormat, Entropy, Exit, ExitEvent, Exits, Secrecy, ServiceSecret, SessionName};

/// What an exit is found by at its relay.
pub const EXIT: Label = Label(*b"the exit");

/// The form of all cells: as long as a packet's body.
///
/// # Panics
///
/// Never: bodies are as long as cells may be.
pub fn cell_format(secrecy: Secrecy) -> CellFormat {
    CellFormat::new(BODY, secrecy).expect("a body is neither too short nor too long for a cell")
}

/// What happens in a service's sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEvent {
    /// In which.
    pub session: SessionName,
    /// What.
    pub event: ExitEvent,
}

/// A service, with its sessions.
#[derive(Debug)]
pub struct SessionService<C> {
    label: Label,
    cell_bytes: usize,
    exits: Exits,
    cell: Vec<u8>,
    /// Sessions that may have a cell to send now.
    awake: BTreeSet<SessionName>,
    /// Who was served last: the others are first.
    last: SessionName,
    /// When each session is to be looked at again.
    due: BTreeSet<(Time, SessionName)>,
    due_of: BTreeMap<SessionName, Time>,
    /// Blocks that no relay can have made.
    unusable: u64,
    cryptography: PhantomData<C>,
}

impl<C: Cryptography> SessionService<C> {
    /// At `label`, for whoever knows the public half of `secret`.
    pub fn new(label: Label, secret: ServiceSecret, secrecy: Secrecy, entropy: Entropy) -> SessionService<C> {
        SessionService::with_format(label, cell_format(secrecy), secret, entropy)
    }

    /// The same, for cells of this form.
    pub(super) fn with_format(
        label: Label,
        format: CellFormat,
        secret: ServiceSecret,
        entropy: Entropy,
    ) -> SessionService<C> {
        SessionService {
            label,
            cell_bytes: format.cell(),
            exits: Exits::new(format, secret, entropy),
            cell: Vec::new(),
            awake: BTreeSet::new(),
            last: SessionName(0),
            due: BTreeSet::new(),
            due_of: BTreeMap::new(),
            unusable: 0,
            cryptography: PhantomData,
        }
    }

    /// Its sessions.
    pub fn exits(&self) -> &Exits {
        &self.exits
    }

    /// Acts on one session, if it is there.
    pub fn act<R>(&mut self, session: SessionName, act: impl FnOnce(&mut Exit) -> R) -> Option<R> {
        let result = act(self.exits.get_mut(session)?);
        self.awake.insert(session);
        Some(result)
    }

    /// Collects the events of `session`, which may have something to send now.
    fn collect_events(&mut self, session: SessionName, events: &mut Vec<ServiceEvent>) {
        let Some(exit) = self.exits.get_mut(session) else { return self.forget(session) };
        events.extend(core::iter::from_fn(|| exit.poll_event()).map(|event| ServiceEvent { session, event }));
        self.awake.insert(session);
    }

    /// Sessions may have ended so that others have room.
    fn collect_shed(&mut self, events: &mut Vec<ServiceEvent>) {
        while let Some(session) = self.exits.poll_shed() {
            self.collect_events(session, events);
        }
    }

    fn forget(&mut self, session: SessionName) {
        self.awake.remove(&session);
        if let Some(at) = self.due_of.remove(&session) {
            self.due.remove(&(at, session));
        }
    }

    /// `session` has nothing to send until its timer.
    fn rest(&mut self, now: Time, session: SessionName) {
        self.forget(session);
        let Some(exit) = self.exits.get_mut(session) else { return };
        if exit.is_done() {
            // All that are done are forgotten then; it is not often.
            return self.exits.on_timer(now);
        }
        if let Some(at) = exit.timer(now) {
            self.due.insert((at, session));
            self.due_of.insert(session, at);
        }
    }
}

impl<C: Cryptography> Service for SessionService<C> {
    type Event = ServiceEvent;

    fn on_body(&mut self, now: Time, label: Label, body: &[u8; BODY], events: &mut Vec<ServiceEvent>) {
        if label == self.label
            && let Some(session) = self.exits.on_cell(now, &body[..self.cell_bytes])
        {
            self.collect_events(session, events);
            self.collect_shed(events);
        }
    }

    fn on_timer(&mut self, now: Time, events: &mut Vec<ServiceEvent>) {
        while let Some(&(at, session)) = self.due.first().filter(|(at, _)| *at <= now) {
            self.due.remove(&(at, session));
            self.due_of.remove(&session);
            if let Some(exit) = self.exits.get_mut(session) {
                exit.on_timer(now);
                self.collect_events(session, events);
            }
        }
        self.collect_shed(events);
    }

    fn poll(&mut self, now: Time, datagram: &mut Datagram) -> Option<First> {
        let (block, cell) = self.poll_cell(now)?;
        body_mut(datagram)[..cell.len()].copy_from_slice(cell);
        let first = block.first();
        let _ = block.seal::<C>(datagram);
        Some(first)
    }

    fn timer(&self, now: Time) -> Time {
        if !self.awake.is_empty() {
            return now;
        }
        self.due.first().map_or(Time::MAX, |(at, _)| *at)
    }
}

impl<C: Cryptography> SessionService<C> {
    /// The next cell that is to leave, and by which block.
    pub(super) fn poll_cell(&mut self, now: Time) -> Option<(ReplyBlock, &[u8])> {
        loop {
            let after = (core::ops::Bound::Excluded(self.last), core::ops::Bound::Unbounded);
            let session = *self.awake.range(after).next().or_else(|| self.awake.first())?;
            self.last = session;
            let sealed = match self.exits.get_mut(session) {
                Some(exit) => exit.poll_cell(now, &mut self.cell),
                None => None,
            };
            let Some(block) = sealed else {
                self.rest(now, session);
                continue;
            };
            let Some(block) = block[..].try_into().ok().and_then(ReplyBlock::from_bytes) else {
                self.unusable += 1;
                continue;
            };
            return Some((block, &self.cell));
        }
    }
}
