//! Who gets which of the places that a receiver has: for sessions, and for files on their way.
//!
//! Strangers are told apart by the address at which their first relay has seen them. None of them
//! gets more than its share, and who asks for more pushes out its own sessions before
//! another's. A file for which there is no place waits in a queue for one.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use super::Receiver;
use super::entry::Phase;
use super::incoming::Incoming;
use crate::message::Offer;
use crate::seal::SessionId;
use crate::transfer::jobs::FileTask;

/// Bits of an IPv6 address that name a network; its hosts choose the others (RFC 4291, 2.5.1).
const IPV6_NETWORK: u32 = 64;

/// Whom a source's address stands for: a host may have all the IPv6 addresses of a network.
pub fn origin_of(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << (128 - IPV6_NETWORK))).into(),
        v4 => v4,
    }
}

impl Receiver {
    /// Makes room for one more session of `origin`; false if it has its share, all of which is in
    /// use.
    pub(super) fn make_room(&mut self, origin: IpAddr) -> bool {
        let origin = Some(origin);
        let has_its_share =
            self.sessions.values().filter(|entry| entry.origin == origin).count() >= self.limits.sessions_of_one;
        let idle = || self.sessions.iter().filter(|(_, entry)| entry.phase.may_be_forgotten());
        let share = |origin: Option<IpAddr>| idle().filter(|(_, entry)| entry.origin == origin).count();
        let pushed_out = if has_its_share {
            let own = idle().filter(|(_, entry)| entry.origin == origin).min_by_key(|(_, entry)| entry.heard);
            let Some((session, _)) = own else { return false };
            Some(*session)
        } else if idle().count() >= self.limits.greetings {
            // Of whoever has most of them: a crowd at one address does not push out others.
            let crowded = idle().max_by_key(|(_, entry)| (share(entry.origin), Reverse(entry.heard)));
            crowded.map(|(session, _)| *session)
        } else {
            None
        };
        if let Some(session) = pushed_out {
            self.close(session);
        }
        true
    }

    /// Whether another file of `origin` may be on its way.
    fn has_place(&self, origin: Option<IpAddr>) -> bool {
        let (mut complete, mut of_origin) = (0, 0);
        for entry in self.sessions.values() {
            complete += usize::from(matches!(entry.phase, Phase::Complete { .. }));
            of_origin += usize::from(entry.phase.is_transfer() && entry.origin == origin);
        }
        let files = self.files();
        files < self.limits.files
            // Each becomes one of those that are complete.
            && files + complete < self.limits.complete
            && (origin.is_none() || of_origin < self.limits.files_of_one)
    }

    /// The file of session `id` begins, waits for its place, or is refused with a reason.
    pub(super) fn take_or_queue(&mut self, id: SessionId, offer: Offer) -> Result<(), String> {
        let origin = self.sessions.get(&id).and_then(|entry| entry.origin);
        if self.has_place(origin) {
            self.begin(id, offer);
        } else if self.queue.len() < self.limits.waiting {
            self.queue.push_back(id);
            if let Some(entry) = self.sessions.get_mut(&id) {
                entry.phase = Phase::Waiting(offer);
            }
        } else {
            return Err(match self.limits.waiting {
                0 => format!("{} files are being received already", self.limits.files),
                waiting => format!("{waiting} files wait already; try again later"),
            });
        }
        Ok(())
    }

    fn begin(&mut self, id: SessionId, offer: Offer) {
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        entry.phase = Phase::Receiving(Incoming::new(offer.clone()));
        self.hand_out(id, FileTask::Create(offer));
    }

    /// Begins with the files that wait, in their order, as far as there are places.
    pub(super) fn admit(&mut self) {
        let mut place = 0;
        while let Some(&id) = self.queue.get(place) {
            let Some((offer, origin)) = self.sessions.get(&id).and_then(|entry| match &entry.phase {
                Phase::Waiting(offer) => Some((offer.clone(), entry.origin)),
                _ => None,
            }) else {
                // It has gone.
                self.queue.remove(place);
                continue;
            };
            if self.has_place(origin) {
                self.queue.remove(place);
                self.begin(id, offer);
            } else {
                // Those of others may have one.
                place += 1;
            }
        }
    }

    /// Which place in the queue session `id` has, from 1 on.
    pub(super) fn place_of(&self, id: SessionId) -> usize {
        self.queue.iter().position(|&waiting| waiting == id).map_or(0, |place| place + 1)
    }
}
