//! What an end knows of one stream.

use super::super::cell::{Reason, Target};
use super::super::incoming::Incoming;
use super::super::outgoing::Outgoing;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Datagrams,
}

#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// What it carries, once that is known.
    pub(super) kind: Option<Kind>,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    pub(super) target: Option<Target>,
    pub(super) is_opened: bool,
    pub(super) is_accepted: bool,
    /// This end has reset it.
    pub(super) reset: Option<Reason>,
    pub(super) reset_came: bool,
    /// The other end has.
    pub(super) was_reset: bool,
    pub(super) is_blocked: bool,
}

impl Stream {
    pub(super) fn new(kind: Option<Kind>, target: Option<Target>) -> Stream {
        Stream {
            kind,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            target,
            is_opened: false,
            is_accepted: false,
            reset: None,
            reset_came: false,
            was_reset: false,
            is_blocked: false,
        }
    }

    pub(super) fn has_data(&self, session_left: u64) -> bool {
        self.reset.is_none() && self.outgoing.has_work(session_left)
    }

    /// Bytes of memory, about.
    pub(super) fn memory(&self) -> usize {
        size_of::<Stream>() + self.outgoing.memory() + self.incoming.memory()
    }

    pub(super) fn is_over(&self) -> bool {
        let is_sent = if self.reset.is_some() { self.reset_came } else { self.outgoing.is_over() };
        let has_come =
            self.was_reset || if self.reset.is_some() { self.incoming.is_complete() } else { self.incoming.is_over() };
        is_sent && has_come
    }
}
