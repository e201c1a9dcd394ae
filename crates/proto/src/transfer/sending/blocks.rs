//! The blocks of a file that is sent: which leaves next, and which have arrived.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};

use super::super::block_ranges;
use super::super::phase::Phase;
use super::{Carried, FIRST_QUESTION, FileSender, REPEAT, write};
use crate::overlay::message::Message;
use crate::overlay::wire::OwnedDatagram;

/// The last blocks leave again after one and a quarter round trips, and the first ones follow the offer after
/// a quarter of one, and no sooner than this: as long as a QUIC receiver may hold back an ACK (RFC 9000,
/// 18.2).
const LEAST_PATIENCE: Duration = Duration::from_millis(25);

/// The most of the last blocks that leave again at once.
const MAX_COPIES: usize = 64;

/// Of a file's blocks, this part may leave twice at its end before anything tells that they are lost, by relays
/// that have nothing else to pass on (as TCP's tail loss probe, RFC 8985, 7.2).
pub(super) const SPARE_PART: u64 = 64;

/// Bytes of blocks that follow an offer before there is an answer to it. A receiver that refuses the file
/// gets no more of it for nothing, one that has a part of it no more twice. Of what comes before the offer
/// it keeps nothing, and of what comes after it as much as of any file: 64 senders, as many as a receiver
/// remembers without a file ([`GREETINGS`](super::super::limits::GREETINGS)), bring no more together than one file
/// may have unwritten.
pub(super) const EARLY: usize = 64 << 10;

impl FileSender {
    /// Whether nothing is left to do but to wait for the last ACKs.
    pub(super) fn awaits_last_acks(&self) -> bool {
        let no_spares = self.spares.as_ref().is_none_or(Vec::is_empty);
        self.resend.is_empty() && !self.has_next() && no_spares && self.awaits_file.is_none()
    }

    /// So long a part of the round trip, or [`LEAST_PATIENCE`] if that is longer.
    fn patient(&self, part: impl FnOnce(Duration) -> Duration) -> Duration {
        self.courier.smoothed_rtt().map_or(REPEAT, |rtt| LEAST_PATIENCE.max(part(rtt)))
    }

    /// An offer leaves for the first time: blocks follow it. One that came before it would be lost, and
    /// paths are not of one length.
    pub(super) fn follow_offer(&mut self, now: Time) {
        self.early_from = now + self.patient(|rtt| rtt / 4);
    }

    /// Whether a block may leave though nobody has said yet that the file is wanted.
    pub(super) fn may_send_early(&self) -> bool {
        self.early_left > 0 && self.copies_left == 0 && !self.awaits_last_acks() && self.awaits_file.is_none()
    }

    /// A block that follows the offer before there is an answer to it.
    pub(super) fn send_early(&mut self, now: Time, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        if !self.may_send_early() || now < self.early_from {
            return None;
        }
        let index = self.wanted()?;
        let to = self.write_block(now, index, out)?;
        self.early_left = self.early_left.saturating_sub(usize::from(self.offer.block));
        Some(to)
    }

    pub(super) fn send_block(&mut self, now: Time, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        let mut wanted = self.wanted();
        if wanted.is_none() && now >= self.resend_at {
            self.resend_overdue(now);
            wanted = self.wanted();
        }
        let index = wanted.or_else(|| self.spare())?;
        self.write_block(now, index, out)
    }

    fn write_block(&mut self, now: Time, index: u32, out: &mut OwnedDatagram) -> Option<SocketAddr> {
        let (offset, length) = self.offer.span(index)?;
        if self.file.block(offset, length).is_none() {
            self.awaits_file.get_or_insert(now);
            return None;
        }
        self.awaits_file = None;
        let parcel = self.depart(now, Carried::Block(index))?;
        if self.resend.front() == Some(&index) {
            self.resend.pop_front();
        } else if self.has_next() {
            self.next_block += 1;
            // All may have been sent by now.
            self.resend_at = now;
        } else if let Some(spares) = &mut self.spares {
            spares.pop();
        }
        // Of a new block this is later.
        self.resend_at = self.resend_at.min(now + self.last_blocks_patience());
        let bytes = self.file.block(offset, length)?;
        let (session, message) = (self.session.as_mut()?, &mut self.message);
        Some(write(session, message, &parcel, &Message::Block { index, bytes }, out))
    }

    /// All blocks have left. Of those that left last it is known last whether they are lost: they leave once
    /// more, the last one first, while there is none that is lost or overdue.
    fn spare(&mut self) -> Option<u32> {
        let mut spares = self.spares.take().unwrap_or_else(|| self.newest());
        while spares.pop_if(|index| self.has_arrived(*index)).is_some() {}
        let next = spares.last().copied();
        self.spares = Some(spares);
        next
    }

    /// The last blocks that have not arrived, in their order.
    fn newest(&self) -> Vec<u32> {
        let most = (self.offer.blocks() / SPARE_PART).min(MAX_COPIES as u64) as usize;
        let missing = (0..self.offer.blocks() as u32).rev().filter(|&index| !self.has_arrived(index));
        let mut newest: Vec<u32> = missing.take(most).collect();
        newest.reverse();
        newest
    }

    /// The last blocks: those on their way are not waited for until their deadlines, but leave again by
    /// other paths, so that the end does not hang on one bad path.
    fn resend_overdue(&mut self, now: Time) {
        let patience = self.last_blocks_patience();
        // When each of them left last.
        let mut left = BTreeMap::new();
        for (place, &carried) in self.carried.iter().enumerate() {
            if let Carried::Block(index) = carried
                && !self.has_arrived(index)
                && let Some(since) = self.courier.sender().in_flight_since(place)
            {
                let last = left.entry(index).or_insert(since);
                *last = since.max(*last);
            }
        }
        let mut overdue = left.iter().filter(|&(_, &last)| now.since(last) >= patience).map(|(&index, _)| index);
        self.resend.extend(overdue.by_ref().take(MAX_COPIES));
        let waiting = left.values().map(|&last| last + patience).filter(|&at| at > now);
        // The rest is looked for when these have left.
        self.resend_at = if overdue.next().is_some() { now } else { waiting.min().unwrap_or(now + patience) };
    }

    /// For how long a block is not sent again once all have left.
    fn last_blocks_patience(&self) -> Duration {
        // A round trip and the reordering window of RFC 8985, 6.2.
        self.patient(|rtt| rtt * 5 / 4)
    }

    /// The next block to send: a lost one that has not arrived after all, or a new one.
    fn wanted(&mut self) -> Option<u32> {
        while let Some(&index) = self.resend.front() {
            if !self.has_arrived(index) {
                return Some(index);
            }
            self.resend.pop_front();
        }
        while self.has_next() && self.has_arrived(self.next_block) {
            self.next_block += 1;
        }
        self.has_next().then_some(self.next_block)
    }

    /// Whether there are blocks that have not left yet, or were there before.
    fn has_next(&self) -> bool {
        u64::from(self.next_block) < self.offer.blocks()
    }

    pub(super) fn has_arrived(&self, index: u32) -> bool {
        self.arrived[index as usize / 64] & 1 << (index % 64) != 0
    }

    /// The blocks that the receiver says to have need not leave.
    pub(super) fn resume(&mut self, reported: &str) {
        self.resumed = 0;
        for index in block_ranges::read(reported, self.offer.blocks()).into_iter().flatten() {
            // The first blocks may have left before this was known, and have been acknowledged.
            self.resumed += 1;
            if !self.has_arrived(index) {
                self.arrived[index as usize / 64] |= 1 << (index % 64);
                self.missing -= 1;
            }
        }
    }

    /// Nothing counts as arrived any more, whatever answers still come to what has left.
    pub(super) fn forget_arrivals(&mut self) {
        self.carried.fill(Carried::Other);
        self.arrived.fill(0);
        self.missing = self.offer.blocks();
        (self.resumed, self.next_block) = (0, 0);
        self.question = FIRST_QUESTION;
        self.resend.clear();
        self.spares = None;
    }

    pub(super) fn finish_if_all_arrived(&mut self, now: Time) {
        if self.missing == 0 && self.phase == Phase::Sending {
            self.enter(now, Phase::Finishing);
        }
    }
}
