//! What a receiver remembers of a session.

use std::net::IpAddr;

use anabranch_control::time::Time;

use super::super::around::ReceiverCounters;
use super::super::limits::Limits;
use super::incoming::Incoming;
use crate::overlay::message::{Code, Offer};
use crate::seal::{PublicKey, Session};
use crate::transfer::partial::PartialId;

/// How far a session is.
#[derive(Clone, Debug)]
pub enum Phase {
    /// No message has come yet.
    Greeted,
    /// A session that was agreed on otherwise: fillers may come.
    Load,
    /// It is offered, and there is no place for it yet.
    Waiting(Offer),
    Receiving(Incoming),
    /// A part of the file is being hashed.
    Checking(Offer),
    /// It is being put in its place.
    Publishing(Offer),
    Complete {
        name: String,
    },
    Over {
        code: Code,
        reason: String,
    },
}

/// A file that nobody waits for any more, until nothing is left of it or it is put away.
#[derive(Clone, Copy, Debug)]
pub struct Closing {
    /// What it is known by in a later session.
    pub partial: Option<PartialId>,
    /// What has come is kept for one.
    pub keeps: bool,
    pub step: Step,
}

/// What is being done with a file that nobody waits for.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A job is under way whose result is of no use.
    Working { writing: usize },
    /// It is being discarded, or put away.
    Leaving,
    /// It was being put in its place when its session was over: it may come still.
    Publishing { length: u64 },
}

/// A session.
#[derive(Clone, Debug)]
pub struct Entry {
    pub noise: Session,
    /// The answer to the handshake, for those of its hellos that come later; none if it was agreed
    /// on otherwise.
    pub answer: Option<Vec<u8>>,
    /// Whose it is; none if it was agreed on otherwise.
    pub origin: Option<IpAddr>,
    /// The sender's key, if it has shown one: sure, for nobody else can have sealed what comes.
    pub sender: Option<PublicKey>,
    /// When something of it came last; before it was complete, if it is: so long it is remembered.
    pub heard: Time,
    pub phase: Phase,
    /// What the file that was offered is known by.
    pub partial: Option<PartialId>,
    /// What is reported of the blocks that were there from a session before; empty if none were.
    pub reported: String,
}

impl Phase {
    pub fn is_transfer(&self) -> bool {
        matches!(self, Phase::Receiving(_) | Phase::Checking(_) | Phase::Publishing(_))
    }

    /// Another session of the same sender may go on with the file.
    pub fn may_be_continued(&self) -> bool {
        matches!(self, Phase::Waiting(_) | Phase::Receiving(_))
    }

    /// Strangers may push it out: its sender begins again, or was told that it is over.
    pub fn may_be_forgotten(&self) -> bool {
        matches!(self, Phase::Greeted | Phase::Over { .. })
    }
}

impl Entry {
    /// A block has come; whether it is acknowledged.
    pub fn on_block(
        &mut self,
        index: u32,
        bytes: &[u8],
        limits: &Limits,
        unwritten: &mut usize,
        counters: &mut ReceiverCounters,
    ) -> bool {
        match &mut self.phase {
            Phase::Receiving(incoming) => incoming.on_block(index, bytes, limits, unwritten, counters),
            Phase::Checking(_) | Phase::Publishing(_) | Phase::Complete { .. } => {
                counters.duplicates += 1;
                true
            }
            Phase::Greeted | Phase::Load | Phase::Waiting(_) | Phase::Over { .. } => false,
        }
    }
}
