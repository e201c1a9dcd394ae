//! What has happened in an onion overlay so far, all together.

use anabranch_onion::crypto::Cryptography;
use anabranch_sim::fabric::NodeId;

use super::node::OnionNode;
use super::{OnionWorld, Part};
use crate::world::Observer;

/// Sums since the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnionTotals {
    /// Bytes that users read.
    pub downloaded: u64,
    /// Bytes that services read.
    pub uploaded: u64,
    /// What each user read, and what services read of it.
    pub of_users: Vec<[u64; 2]>,
    /// Packets that came to relays.
    pub packets: u64,
    /// Of those, what was beyond a limit.
    pub refused: u64,
    /// Of those, what relays with a limit took that carry what they should.
    pub carried: u64,
    /// Packets that came to services.
    pub to_services: u64,
    /// Packets that came to users by a block.
    pub received: u64,
    /// Cells of users that are known to have arrived.
    pub delivered: u64,
    /// Cells of users that were given up.
    pub lost: u64,
    /// Loops that left.
    pub loops: u64,
    /// Of those, what came back.
    pub loops_returned: u64,
    /// Relays that those passed.
    pub loop_hops: u64,
    /// Of the loops that left, what was given up.
    pub loops_lost: u64,
    /// Services that read other bytes than were sent.
    pub wrong_uploads: u64,
}

/// How relays were drawn, where learners draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draws {
    /// Greedy relays' share of all draws over their share of the relays; not a number where there is none.
    pub greedy: f64,
    /// The same of droppers.
    pub droppers: f64,
    /// Of one user's draws, in the mean over users.
    pub entropy_bits: f64,
}

impl<C: Cryptography, O: Observer<OnionNode<C>>> OnionWorld<C, O> {
    /// What has happened so far.
    pub fn totals(&self) -> OnionTotals {
        let mut totals = OnionTotals { of_users: vec![[0; 2]; self.users as usize], ..OnionTotals::default() };
        for node in 0..self.relays + self.users {
            let Some(machine) = self.machine(node) else { continue };
            match machine {
                OnionNode::Relay(relay) => {
                    let counts = relay.node.relay().counts();
                    totals.packets += counts.forwarded + counts.to_clients + counts.delivered;
                    totals.packets += counts.dropped.iter().sum::<u64>();
                    // A refused packet has been opened and counted before.
                    let node = relay.node.counts();
                    totals.refused += node.refused;
                    totals.to_services += node.to_service;
                    if !relay.drops && relay.node.has_limit() {
                        totals.carried += counts.forwarded + counts.to_clients + counts.delivered - node.refused;
                    }
                    for (user, uploaded) in &relay.uploads {
                        totals.uploaded += uploaded.read;
                        totals.wrong_uploads += u64::from(uploaded.wrong);
                        if let Some(of) = totals.of_users.get_mut(*user as usize) {
                            of[1] += uploaded.read;
                        }
                    }
                }
                OnionNode::User(user) => {
                    let (has, counts) = (&user.has, user.user.counts());
                    totals.downloaded += has.bytes;
                    totals.of_users[(node - self.relays) as usize][0] += has.bytes;
                    totals.received += counts.received;
                    totals.delivered += counts.delivered;
                    totals.lost += counts.lost;
                    totals.loops += counts.loops;
                    totals.loops_returned += counts.loops_returned;
                    totals.loop_hops += counts.loop_hops;
                    totals.loops_lost += counts.loops_lost;
                }
            }
        }
        totals
    }

    /// How relays were drawn so far.
    pub fn draws(&self) -> Draws {
        let (mut greedy, mut droppers, mut all) = (0, 0, 0);
        let mut entropies = Vec::new();
        for user in 0..self.users {
            let Some(OnionNode::User(user)) = self.machine(self.relays + user) else { continue };
            let [forth, back] = user.user.drawn();
            let drawn: Vec<u64> = forth.iter().zip(back).map(|(forth, back)| forth + back).collect();
            let sum: u64 = drawn.iter().sum();
            for (count, part) in drawn.iter().zip(&self.parts) {
                match part {
                    Part::Greedy => greedy += count,
                    Part::Dropper => droppers += count,
                    Part::Dying | Part::Honest => {}
                }
            }
            all += sum;
            if sum > 0 {
                let shares = drawn.iter().filter(|count| **count > 0).map(|count| *count as f64 / sum as f64);
                entropies.push(-shares.map(|share| share * libm::log2(share)).sum::<f64>());
            }
        }
        let of =
            |part: Part| self.parts.iter().filter(|other| **other == part).count() as f64 / self.parts.len() as f64;
        Draws {
            greedy: greedy as f64 / all as f64 / of(Part::Greedy),
            droppers: droppers as f64 / all as f64 / of(Part::Dropper),
            entropy_bits: entropies.iter().sum::<f64>() / entropies.len() as f64,
        }
    }

    /// Relays that carry what they should: those that are there and drop nothing on purpose.
    pub fn carrying(&self) -> u32 {
        let here = |node: u32| self.world.node(NodeId(node));
        let carries = |node: &u32| matches!(here(*node), Some(OnionNode::Relay(relay)) if !relay.drops);
        (0..self.relays).filter(carries).count() as u32
    }

    /// A node that is there, or as it was when it was killed.
    pub(super) fn machine(&self, node: u32) -> Option<&OnionNode<C>> {
        self.world.node(NodeId(node)).or_else(|| self.dead.get(&node))
    }
}
