//! Files over relays, as the loop of a receiver sees them.

use anabranch_control::time::{Duration, Time};
use anabranch_net::runtime::Runtime;
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::transfer::{Event, Receiver};
use indicatif::ProgressBar;

use super::taking::Carrier;
use crate::failure::Failure;
use crate::network;

/// So long the disk has to let go of unfinished files.
const LEAVE: Duration = Duration::from_millis(3_000);

/// So long a sender is waited for that is to be told that its file is not wanted any more: it says something in each
/// round trip, and takes its leave then.
const TELL: Duration = Duration::from_millis(1_000);

/// A peer that receives.
pub struct OverRelays {
    runtime: Runtime<Peer>,
    number: usize,
    keeps_after: Duration,
    /// Bytes of a block of whatever came last: those of one network have the same.
    block: u64,
}

impl OverRelays {
    /// The peer with this `number`. When it ends, what has come of an unfinished file is kept if its sender was not
    /// heard of for `keeps_after`, and discarded if it was.
    pub fn new(runtime: Runtime<Peer>, number: usize, keeps_after: Duration) -> OverRelays {
        OverRelays { runtime, number, keeps_after, block: 0 }
    }

    /// What it runs in.
    pub fn runtime(&self) -> &Runtime<Peer> {
        &self.runtime
    }

    /// The peer.
    pub fn peer(&self) -> &Peer {
        self.runtime.machine(self.number)
    }

    fn receiver(&self) -> &Receiver {
        self.peer().receiver().expect("the peer was made to receive")
    }
}

impl Carrier for OverRelays {
    fn now(&self) -> Time {
        self.runtime.now()
    }

    fn turn(&mut self, _: &ProgressBar) -> Result<(), Failure> {
        let until = self.runtime.now() + network::TICK;
        Ok(self.runtime.run_until(until)?)
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = self.runtime.machine_mut(self.number).receiver_mut()?.next_event()?;
        if let Event::Offered { offer, .. } = &event {
            self.block = u64::from(offer.block);
        }
        Some(event)
    }

    fn progress(&self) -> (u64, u64) {
        let (arrived, blocks) = self.receiver().progress();
        (arrived * self.block, blocks * self.block)
    }

    fn leave(&mut self) -> Result<(), Failure> {
        let began = self.runtime.now();
        // What comes of a file that is being put in its place its sender is to be told.
        while self.receiver().publishing() > 0 && self.runtime.now().since(began) < LEAVE {
            let soon = self.runtime.now() + network::TICK;
            self.runtime.turn(soon)?;
        }
        let keeps_after = self.keeps_after;
        self.runtime.act(self.number, |peer, now, out| peer.close_all(now, keeps_after, out));
        // What was being written is discarded once it is.
        let began = self.runtime.now();
        let is_busy = |receiver: &Receiver, after: Duration| {
            (receiver.files() > 0 && after < LEAVE) || (receiver.sessions() > 0 && after < TELL)
        };
        while is_busy(self.receiver(), self.runtime.now().since(began)) {
            let soon = self.runtime.now() + network::TICK;
            self.runtime.turn(soon)?;
        }
        Ok(())
    }
}
