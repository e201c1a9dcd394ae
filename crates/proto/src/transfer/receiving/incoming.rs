//! A file that arrives: which of its blocks have come, and which wait to be written.

use anabranch_control::time::{Duration, Time};

use super::super::around::ReceiverCounters;
use super::super::jobs::Batch;
use super::super::limits::Limits;
use super::entry::{Entry, Phase};
use crate::message::Offer;

/// A file that arrives.
#[derive(Clone, Debug)]
pub struct Incoming {
    pub offer: Offer,
    /// A bit for each block that has come.
    pub arrived: Vec<u64>,
    pub missing: u64,
    /// Blocks that will be written next.
    pub waiting: Batch,
    /// What `waiting` and the blocks that are being written take, as limited.
    pub unwritten: usize,
    /// Of that, what is being written.
    pub writing: usize,
    /// A job is under way.
    pub is_working: bool,
    /// Blocks of it are kept.
    pub is_begun: bool,
    /// Since when it was seen that nothing of it comes; none if something has come since it was
    /// looked at.
    pub stalls_since: Option<Time>,
}

impl Incoming {
    /// Nothing has come of it, and it is being made room for.
    pub fn new(offer: Offer) -> Incoming {
        let blocks = offer.blocks();
        Incoming {
            offer,
            arrived: vec![0; blocks.div_ceil(64) as usize],
            missing: blocks,
            waiting: Batch::default(),
            unwritten: 0,
            writing: 0,
            is_working: true,
            is_begun: false,
            stalls_since: None,
        }
    }
}

impl Incoming {
    /// Whether nothing new of it has come for `longest`; to be asked now and then.
    pub fn is_stalled(&mut self, now: Time, longest: Duration) -> bool {
        if self.is_working {
            self.stalls_since = None;
            return false;
        }
        now.since(*self.stalls_since.get_or_insert(now)) >= longest
    }
}

/// A block has come; whether it is acknowledged: only what there is room for is.
pub fn on_block(
    entry: &mut Entry,
    index: u32,
    bytes: &[u8],
    limits: &Limits,
    unwritten: &mut usize,
    counters: &mut ReceiverCounters,
) -> bool {
    let incoming = match &mut entry.phase {
        Phase::Receiving(incoming) => incoming,
        Phase::Checking(_) | Phase::Publishing(_) | Phase::Complete { .. } => {
            counters.duplicates += 1;
            return true;
        }
        Phase::Greeted | Phase::Load | Phase::Waiting(_) | Phase::Over { .. } => return false,
    };
    let Some((offset, _)) = incoming.offer.span(index).filter(|&(_, length)| length == bytes.len()) else {
        counters.unreadable += 1;
        return false;
    };
    let (word, bit) = (index as usize / 64, 1 << (index % 64));
    if incoming.arrived[word] & bit != 0 {
        counters.duplicates += 1;
        return true;
    }
    // Of what there is no room for, its sender is not to blame.
    incoming.stalls_since = None;
    let cost = Batch::cost_of(bytes.len());
    if incoming.unwritten + cost > limits.file_writes || *unwritten + cost > limits.writes {
        counters.deferred += 1;
        return false;
    }
    *unwritten += cost;
    incoming.unwritten += cost;
    incoming.waiting.push(offset, bytes);
    counters.blocks += 1;
    incoming.arrived[word] |= bit;
    incoming.missing -= 1;
    true
}
