//! Who gets which of the places that a receiver has: for sessions, and for files on their way.
//!
//! Strangers are told apart by the address at which their first relay has seen them. None of them
//! gets more than its share, and who asks for more pushes out its own sessions before
//! another's. A file for which there is no place waits in a queue for one, and so does one that is on
//! its way in another session of its sender. A key proves that it is the same sender: the new session
//! takes the file over at once. Of who shows none, the old one must have been silent for a while:
//! nobody takes a file away from a sender that is there.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv6Addr};

use anabranch_control::time::{Duration, Time};

use super::Receiver;
use super::entry::Phase;
use super::incoming::Incoming;
use crate::overlay::message::{Code, Offer};
use crate::seal::SessionId;
use crate::transfer::around::Event;
use crate::transfer::jobs::{Creation, FileTask};
use crate::transfer::partial::{Partial, PartialId};

/// Bits of an IPv6 address that name a network; its hosts choose the others (RFC 4291, 2.5.1).
const IPV6_NETWORK: u32 = 64;

/// A sender without a key that was not heard of for so long has gone, if another session goes on with
/// its file: six times as long as it waits before it says anything again.
const GONE: Duration = Duration::from_millis(3_000);

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
            self.close(session, false);
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

    /// Another session than `id` has to do with the file.
    fn is_in_use(&self, id: SessionId, partial: Option<PartialId>) -> bool {
        let mut others = self.sessions.iter().filter(|(other, entry)| **other != id && entry.partial == partial);
        partial.is_some()
            && (others.any(|(_, entry)| entry.phase.is_transfer())
                || self.closing.values().any(|closing| closing.partial == partial))
    }

    /// Session `id` goes on with a file that another session of its sender has begun, unless that is
    /// there still.
    pub(super) fn take_over(&mut self, now: Time, id: SessionId) {
        let Some(entry) = self.sessions.get(&id) else { return };
        let (partial, sender) = (entry.partial, entry.sender);
        let is_other = |other: &SessionId, partial_of: Option<PartialId>| *other != id && partial_of == partial;
        let mut others = self.sessions.iter().filter(|(other, entry)| is_other(other, entry.partial));
        let other = others
            .find(|(_, entry)| entry.phase.may_be_continued() && (sender.is_some() || now.since(entry.heard) >= GONE));
        let Some((&other, _)) = other.filter(|_| partial.is_some()) else { return };
        self.leave(other, Code::Failed, "its sender has begun to send this file again".into(), true);
        self.note(Event::Continued { session: other, by: id });
    }

    /// If another session of the same sender has brought the file, which does not know it yet, session
    /// `id` is told in its place.
    fn is_in_place(&mut self, id: SessionId, partial: Option<PartialId>) -> bool {
        let mut others = self.sessions.iter_mut().filter(|(other, entry)| **other != id && entry.partial == partial);
        let found = others.find_map(|(other, entry)| match &entry.phase {
            Phase::Complete { name } if partial.is_some() => {
                let name = name.clone();
                entry.phase = Phase::Over { code: Code::Complete, reason: name.clone() };
                Some((*other, name))
            }
            _ => None,
        });
        let Some((other, name)) = found else { return false };
        self.set_phase(id, Phase::Complete { name });
        self.note(Event::Continued { session: other, by: id });
        true
    }

    /// The file of session `id` begins, waits for its place, or is refused with a reason.
    pub(super) fn take_or_queue(&mut self, id: SessionId, offer: Offer) -> Result<(), String> {
        let Some(entry) = self.sessions.get(&id) else { return Ok(()) };
        let (origin, partial) = (entry.origin, entry.partial);
        let is_in_use = self.is_in_use(id, partial);
        if self.is_in_place(id, partial) {
            return Ok(());
        }
        if !is_in_use && self.has_place(origin) {
            self.begin(id, offer);
        } else if self.queue.len() < self.limits.waiting {
            self.queue.push_back(id);
            self.set_phase(id, Phase::Waiting(offer));
        } else {
            return Err(match self.limits.waiting {
                0 if is_in_use => "this file is being received already".into(),
                0 => format!("{} files are being received already", self.limits.files),
                waiting => format!("{waiting} files wait already; try again later"),
            });
        }
        Ok(())
    }

    fn set_phase(&mut self, id: SessionId, phase: Phase) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            entry.phase = phase;
        }
    }

    fn partial_of(&self, id: SessionId, offer: &Offer) -> Option<Partial> {
        Some(Partial::of(self.owner(self.sessions.get(&id)?.sender), offer))
    }

    fn begin(&mut self, id: SessionId, offer: Offer) {
        let Some(partial) = self.partial_of(id, &offer) else { return };
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        let is_kept = self.kept.contains(&partial.id);
        entry.phase = Phase::Receiving(Incoming::new(offer.clone(), is_kept));
        self.hand_out(id, FileTask::Create(Creation { offer, partial: Some(partial), is_anew: false }));
    }

    /// The hash of the file of session `id` was wrong, and a part of it was there from before: all of
    /// it comes again.
    pub(super) fn begin_anew(&mut self, id: SessionId, offer: Offer) {
        let Some(partial) = self.partial_of(id, &offer) else { return };
        let Some(entry) = self.sessions.get_mut(&id) else { return };
        entry.reported.clear();
        entry.phase = Phase::Receiving(Incoming::new(offer.clone(), false));
        self.hand_out(id, FileTask::Create(Creation { offer, partial: Some(partial), is_anew: true }));
    }

    /// Begins with the files that wait, in their order, as far as there are places.
    pub(super) fn admit(&mut self) {
        let mut place = 0;
        while let Some(&id) = self.queue.get(place) {
            let Some((offer, origin, partial)) = self.sessions.get(&id).and_then(|entry| match &entry.phase {
                Phase::Waiting(offer) => Some((offer.clone(), entry.origin, entry.partial)),
                _ => None,
            }) else {
                // It has gone.
                self.queue.remove(place);
                continue;
            };
            if self.is_in_place(id, partial) {
                self.queue.remove(place);
            } else if self.has_place(origin) && !self.is_in_use(id, partial) {
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
