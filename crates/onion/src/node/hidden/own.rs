//! One of a receiver's mailboxes, as the receiver sees it: when it is opened, filled, asked whether it is there, and
//! given up.
//!
//! A block that comes back says that the filling that it was in arrived. Fillings arrive in about the order in which
//! they left, and a mailbox uses blocks in the order in which they came: once one of a later filling is back, those of
//! fillings that are [`REORDER`] older are lost, in the filling or on the way back.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};

use crate::RelayIndex;
use crate::directory::{PublicKey, SecretKey};
use crate::hidden::MailboxAt;
use crate::hidden::body::{BLOCKS_FILLING, BLOCKS_OPENING, MailboxState, Secret, label_of};
use crate::hidden::mailbox::MOST_BLOCKS;
use crate::node::user::PacketId;
use crate::reply::BlockId;
use crate::session::SessionName;

/// Blocks at a mailbox that is for openings: sixteen of them.
const OF_DOOR: usize = 32;

/// Blocks at a session's mailbox at first: what a session's first rate uses in a second.
const OF_SESSION: usize = 64;

/// Use is counted for so long; twice what was used meanwhile is held, and more where less is left than half.
const WINDOW: Duration = Duration::from_millis(250);

/// Least time between two fillings. A door's bounds what strangers can make a receiver send: 125 blocks a second. A
/// session's is 5000.
const GAPS: [Duration; 2] = [Duration::from_millis(40), Duration::from_millis(1)];

/// Fillings that may overtake each other.
const REORDER: usize = 4;

/// After so long without a word a mailbox is asked whether it is there: a door, and one that a session uses.
const QUIET: [Duration; 2] = [Duration::from_millis(10_000), Duration::from_millis(2_000)];

/// The same of one by which something has just come: a first timeout where nothing is known of the path (RFC 6298, 2.1).
/// One that rests is not asked more often for it.
const QUIET_IN_USE: Duration = Duration::SECOND;

/// This many questions without an answer, and the guard by which it would come is suspected as well.
const SUSPICIOUS: u32 = 2;

/// An answer is waited for for so long first, and twice as long each time (RFC 8085, 3.1.1).
const FIRST_WAIT: Duration = Duration::SECOND;

/// This many questions without an answer, and a mailbox is given up.
const TRIES: u32 = 3;

/// A relay that is not in the epoch yet is asked so often, a second apart: lists reach all within some seconds.
const EPOCH_TRIES: u32 = 30;

/// A filling whose blocks are not all accounted for.
#[derive(Debug)]
struct Batch {
    packet: Option<PacketId>,
    asks: bool,
    blocks: Vec<BlockId>,
}

/// What a mailbox wants to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// An opening with this many blocks.
    Open(usize),
    /// A filling with this many, the first of which is for an answer or not, in the place of all before or not.
    Fill { blocks: usize, asks: bool, anew: bool },
}

/// What became of packets and blocks.
#[derive(Debug, Default)]
pub struct Fates {
    /// Fillings that arrived.
    pub arrived: Vec<PacketId>,
    /// Fillings that are lost.
    pub lost: Vec<PacketId>,
    /// Blocks that are lost.
    pub blocks: Vec<BlockId>,
}

/// A mailbox of one's own.
pub struct OwnMailbox {
    /// Where it is.
    pub at: MailboxAt,
    /// Whose session it is for; none for a door.
    pub of: Option<SessionName>,
    /// The identity of its relay.
    pub relay: PublicKey,
    /// Its key, made for it.
    pub key: SecretKey,
    /// What fillings show.
    pub secret: Secret,
    is_open: bool,
    batches: VecDeque<Batch>,
    /// Blocks given, and not accounted for.
    stock: usize,
    target: usize,
    used: usize,
    /// Whether a block has ever come back.
    is_used: bool,
    window_ends: Time,
    next_fill: Time,
    heard: Time,
    unanswered: u32,
    ask_at: Time,
    early: u32,
    /// Whether what its relay holds leads to where nobody is, and it is still to know.
    is_void: bool,
    /// Until when it is kept, once its epoch is over.
    former_until: Option<Time>,
    is_dead: bool,
}

impl core::fmt::Debug for OwnMailbox {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "OwnMailbox(at {:?}, {} of {} blocks)", self.at.relay, self.stock, self.target)
    }
}

impl OwnMailbox {
    /// One that is to be opened now.
    pub fn new(
        now: Time,
        relay: RelayIndex,
        identity: PublicKey,
        of: Option<SessionName>,
        key: SecretKey,
        secret: Secret,
    ) -> OwnMailbox {
        OwnMailbox {
            at: MailboxAt { relay, label: label_of(&key.public()) },
            of,
            relay: identity,
            key,
            secret,
            is_open: false,
            batches: VecDeque::new(),
            stock: 0,
            target: if of.is_some() { OF_SESSION } else { OF_DOOR },
            used: 0,
            is_used: false,
            window_ends: now + WINDOW,
            next_fill: now,
            heard: now,
            unanswered: 0,
            ask_at: now,
            early: 0,
            is_void: false,
            former_until: None,
            is_dead: false,
        }
    }

    /// Its epoch is over. Until `until` it is kept for those who do not know yet of those that take its place, at its
    /// relay's index of the new epoch; false if it is of no use: an epoch older, never open, or at a relay that is gone.
    pub fn begin_epoch(&mut self, until: Time, relay: Option<RelayIndex>) -> bool {
        let Some(relay) = relay.filter(|_| self.is_open() && self.former_until.is_none()) else { return false };
        self.at.relay = relay;
        self.former_until = Some(until);
        true
    }

    /// It takes the place of `former`: a session that uses many blocks would find it dry otherwise.
    #[must_use]
    pub fn in_place_of<'a>(self, former: impl Iterator<Item = &'a OwnMailbox>) -> OwnMailbox {
        let target = former.map(|former| former.target).fold(self.target, usize::max);
        OwnMailbox { target, ..self }
    }

    /// Whether it has as many blocks as it should have, or they are on their way.
    pub fn is_filled(&self) -> bool {
        self.stock + BLOCKS_FILLING > self.target
    }

    /// Whether it is of the epoch before.
    pub fn is_former(&self) -> bool {
        self.former_until.is_some()
    }

    fn kind(&self) -> usize {
        usize::from(self.of.is_some())
    }

    /// Whether its relay has said that it is open.
    pub fn is_open(&self) -> bool {
        self.is_open && !self.is_dead
    }

    /// Whether it is of no use any more.
    pub fn is_dead(&self) -> bool {
        self.is_dead
    }

    /// What is to be sent to it now.
    pub fn wish(&mut self, now: Time) -> Option<Wish> {
        self.review(now);
        if self.is_dead {
            return None;
        }
        let asks = self.ask_at <= now;
        if !self.is_open {
            return asks.then_some(Wish::Open(BLOCKS_OPENING));
        }
        let wanted = self.target.saturating_sub(self.stock);
        let fills = self.next_fill <= now && wanted >= BLOCKS_FILLING;
        let blocks = (wanted + usize::from(asks)).clamp(1, BLOCKS_FILLING);
        // One that asks is sent again, until it is answered.
        (asks || fills).then_some(Wish::Fill { blocks, asks, anew: asks && self.is_void })
    }

    fn review(&mut self, now: Time) {
        if self.ask_at <= now && self.unanswered >= TRIES {
            self.is_dead = true;
        }
        self.is_dead |= self.former_until.is_some_and(|until| until <= now);
        if now >= self.window_ends {
            if self.of.is_some() && self.is_used {
                self.target = (4 * self.used).clamp(OF_SESSION, MOST_BLOCKS);
            }
            (self.used, self.window_ends) = (0, now + WINDOW);
        }
    }

    /// What it wished left: as `packet`, with these blocks in stock.
    pub fn on_sent(&mut self, now: Time, wish: Wish, packet: PacketId, blocks: Vec<BlockId>) {
        self.next_fill = now + GAPS[self.kind()];
        self.stock += blocks.len();
        let asks = matches!(wish, Wish::Open(_) | Wish::Fill { asks: true, .. });
        self.batches.push_back(Batch { packet: Some(packet), asks, blocks });
        if asks {
            self.ask_at = now + FIRST_WAIT * (1 << self.unanswered.min(8));
            self.unanswered += 1;
        }
    }

    /// What its blocks lead to is gone: it is filled anew, and is not to blame for its silence. The fillings that are
    /// out, of which nobody will say whether they arrived.
    pub fn renew(&mut self, now: Time) -> Vec<PacketId> {
        self.is_void = true;
        (self.unanswered, self.ask_at, self.next_fill, self.stock) = (0, now, now, 0);
        self.batches.drain(..).filter_map(|batch| batch.packet).collect()
    }

    /// Whether either end of its blocks may be gone: packets came by it, and none do now, or it has been asked before in
    /// vain.
    pub fn is_silent(&self) -> bool {
        self.is_used && self.unanswered > 0 || self.unanswered >= SUSPICIOUS
    }

    fn on_heard(&mut self, now: Time) {
        self.heard = now;
        self.unanswered = 0;
        if self.is_open {
            self.ask_at = now + QUIET[self.kind()];
        }
    }

    /// A block of its stock has come back.
    pub fn on_returned(&mut self, now: Time, block: BlockId) -> Fates {
        self.on_heard(now);
        if self.is_open {
            self.ask_at = now + QUIET_IN_USE;
        }
        self.used += 1;
        self.is_used = true;
        // Growing at once where it is used up fast: a window later much would be lost for want of blocks.
        if self.of.is_some() && self.stock < self.target / 2 && 4 * self.used > self.target {
            self.target = (2 * self.target).min(MOST_BLOCKS);
        }
        let mut fates = Fates::default();
        let Some(place) = self.batches.iter().position(|batch| batch.blocks.contains(&block)) else { return fates };
        let batch = &mut self.batches[place];
        batch.blocks.retain(|other| *other != block);
        fates.arrived.extend(batch.packet.take());
        self.stock -= 1;
        for _ in 0..place.saturating_sub(REORDER) {
            let Some(old) = self.batches.pop_front() else { break };
            self.stock -= old.blocks.len();
            match old.packet {
                Some(packet) => fates.lost.push(packet),
                None => fates.blocks.extend(old.blocks),
            }
        }
        self.forget_empty();
        fates
    }

    fn forget_empty(&mut self) {
        while self.batches.front().is_some_and(|batch| batch.blocks.is_empty() && batch.packet.is_none()) {
            self.batches.pop_front();
        }
    }

    /// Its relay has said how it is, with this many blocks held.
    pub fn on_state(&mut self, now: Time, state: MailboxState, held: u16) -> Fates {
        let mut fates = Fates::default();
        let mut asking = self.batches.iter_mut().filter(|batch| batch.asks && batch.packet.is_some());
        // Where several ask it is not known which one was heard.
        if let (Some(only), None) = (asking.next(), asking.next()) {
            fates.arrived.extend(only.packet.take());
        }
        match state {
            MailboxState::Open => {
                self.is_open = true;
                self.is_void = false;
                self.on_heard(now);
                // What the relay does not have never came; what is on its way is not lost by that.
                let underway =
                    self.batches.iter().rev().take(2 * REORDER).map(|batch| batch.blocks.len()).sum::<usize>();
                self.stock = self.stock.min(usize::from(held) + underway);
                self.forget_beyond_stock();
            }
            MailboxState::OtherEpoch if self.early < EPOCH_TRIES => {
                self.early += 1;
                self.unanswered = 0;
                self.ask_at = now + FIRST_WAIT;
            }
            // It has restarted, say.
            MailboxState::Unknown if self.is_open && !self.is_former() => {
                self.is_open = false;
                (self.unanswered, self.ask_at) = (0, now);
                self.stock = 0;
                self.batches.clear();
            }
            _ => self.is_dead = true,
        }
        self.forget_empty();
        fates
    }

    /// The oldest fillings are forgotten whose blocks are not thought to be anywhere.
    fn forget_beyond_stock(&mut self) {
        let mut counted: usize = self.batches.iter().map(|batch| batch.blocks.len()).sum();
        while counted > self.stock
            && let Some(batch) = self.batches.front_mut()
        {
            let gone = batch.blocks.len().min(counted - self.stock);
            batch.blocks.drain(..gone);
            counted -= gone;
            if batch.blocks.is_empty() {
                self.batches.pop_front();
            }
        }
    }

    /// When [`OwnMailbox::wish`] may say something new.
    pub fn timer(&self) -> Time {
        if self.is_dead {
            return Time::ZERO;
        }
        let wanted = self.target.saturating_sub(self.stock);
        let fills = if self.is_open && wanted >= BLOCKS_FILLING { self.next_fill } else { Time::MAX };
        self.ask_at.min(fills).min(self.former_until.unwrap_or(Time::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn own(of: Option<SessionName>) -> OwnMailbox {
        let key = SecretKey::from_seed(&[1; 32]);
        OwnMailbox::new(at(0), RelayIndex(3), PublicKey([3; 32]), of, key, [2; 16])
    }

    /// Grants each wish, with blocks counted on; how many were sent.
    fn grant(mailbox: &mut OwnMailbox, now: Time, next: &mut u64) -> usize {
        let mut sent = 0;
        while let Some(wish) = mailbox.wish(now) {
            let blocks = match wish {
                Wish::Open(blocks) => blocks - 1,
                Wish::Fill { blocks, asks, .. } => blocks - usize::from(asks),
            };
            let ids = (*next..*next + blocks as u64).map(BlockId).collect();
            *next += blocks as u64;
            mailbox.on_sent(now, wish, PacketId::for_test(*next), ids);
            sent += 1;
            assert!(sent < 1000, "no end of wishes");
        }
        sent
    }

    #[test]
    fn it_is_opened_filled_and_kept_so_and_then_rests() {
        let (mut mailbox, mut next) = (own(None), 0);
        assert_eq!((grant(&mut mailbox, at(0), &mut next), mailbox.is_open()), (1, false));
        mailbox.on_state(at(50), MailboxState::Open, 3);
        let mut now = at(50);
        while mailbox.stock + BLOCKS_FILLING <= OF_DOOR {
            assert!(now < at(2000), "it is not filled");
            grant(&mut mailbox, now, &mut next);
            now = mailbox.timer().max(now);
        }
        now = at(2000);
        assert!(mailbox.timer() >= at(50) + QUIET[0] && mailbox.is_open());
        // Strangers use all of it again and again: some hundred blocks a second are given and no more.
        let before = next;
        let (mut oldest, end) = (0, now + Duration::SECOND * 5);
        while now < end {
            (oldest..next).for_each(|block| _ = mailbox.on_returned(now, BlockId(block)));
            oldest = next;
            grant(&mut mailbox, now, &mut next);
            now = mailbox.timer().max(now + Duration::from_millis(1));
        }
        assert!((400..=700).contains(&(next - before)), "{}", next - before);
    }

    #[test]
    fn one_that_does_not_answer_is_given_up() {
        for is_open in [false, true] {
            let (mut mailbox, mut next) = (own(Some(SessionName(1))), 0);
            grant(&mut mailbox, at(0), &mut next);
            if is_open {
                mailbox.on_state(at(1), MailboxState::Open, 3);
            }
            let mut now = at(1);
            while !mailbox.is_dead() {
                grant(&mut mailbox, now, &mut next);
                now = mailbox.timer().max(now + Duration::from_millis(1));
                assert!(now < at(20_000), "it waits for ever");
            }
            assert!(now >= at(7_000) && !mailbox.is_open(), "{now:?}");
        }
    }

    #[test]
    fn one_in_use_is_missed_after_a_second_and_one_that_was_never_used_when_it_was_asked_in_vain() {
        for of in [None, Some(SessionName(1))] {
            let (mut mailbox, mut next) = (own(of), 0);
            grant(&mut mailbox, at(0), &mut next);
            assert!(!mailbox.is_silent(), "it has just been asked for the first time");
            grant(&mut mailbox, at(1000), &mut next);
            assert!(mailbox.is_silent());
            mailbox.on_state(at(1050), MailboxState::Open, 3);
            mailbox.on_returned(at(1100), BlockId(0));
            // Fillings are no questions.
            (1100..2100).for_each(|ms| _ = grant(&mut mailbox, at(ms), &mut next));
            assert!(!mailbox.is_silent());
            grant(&mut mailbox, at(2100), &mut next);
            assert!(mailbox.is_silent());
        }
    }

    #[test]
    fn the_stock_of_a_session_follows_its_use() {
        let (mut mailbox, mut next) = (own(Some(SessionName(1))), 0);
        grant(&mut mailbox, at(0), &mut next);
        mailbox.on_state(at(1), MailboxState::Open, 3);
        let mut oldest = 0;
        for ms in 1..2000 {
            grant(&mut mailbox, at(ms), &mut next);
            // Two packets a millisecond, as far as there are blocks.
            for _ in 0..2 {
                if oldest < next {
                    mailbox.on_returned(at(ms), BlockId(oldest));
                    oldest += 1;
                }
            }
        }
        assert!(oldest > 3000 && mailbox.target == MOST_BLOCKS, "{oldest} {mailbox:?}");
        for ms in 2000..4000 {
            grant(&mut mailbox, at(ms), &mut next);
        }
        assert_eq!(mailbox.target, OF_SESSION);
    }

    #[test]
    fn fillings_that_later_ones_have_overtaken_by_far_are_lost() {
        let (mut mailbox, mut next) = (own(Some(SessionName(1))), 0);
        grant(&mut mailbox, at(0), &mut next);
        let opened = mailbox.on_state(at(1), MailboxState::Open, 3);
        assert_eq!(opened.arrived.len(), 1, "the opening was answered, and so arrived");
        for ms in 1..12 {
            grant(&mut mailbox, at(ms), &mut next);
        }
        let stock = mailbox.stock;
        // A block of the opening is back, and one of the eighth filling.
        assert!(mailbox.on_returned(at(20), BlockId(0)).arrived.is_empty(), "that is known");
        let fates = mailbox.on_returned(at(20), BlockId(3 + 5 * 7 + 1));
        assert_eq!((fates.arrived.len(), &fates.blocks[..]), (1, &[BlockId(1), BlockId(2)][..]));
        assert!(!fates.lost.is_empty() && mailbox.stock < stock - 5, "{fates:?}");
    }

    #[test]
    fn one_of_an_earlier_epoch_is_filled_until_all_have_followed_and_is_never_opened_again() {
        let (mut mailbox, mut next) = (own(Some(SessionName(1))), 0);
        grant(&mut mailbox, at(0), &mut next);
        let until = at(30_001);
        assert!(!own(None).begin_epoch(until, Some(RelayIndex(1))), "it was never open");
        mailbox.on_state(at(1), MailboxState::Open, 3);
        assert!(mailbox.begin_epoch(until, Some(RelayIndex(9))) && mailbox.is_former());
        assert_eq!(mailbox.at.relay, RelayIndex(9));
        assert!(grant(&mut mailbox, at(5), &mut next) > 0, "it is filled");
        let mut other = own(None);
        grant(&mut other, at(0), &mut next);
        other.on_state(at(1), MailboxState::Open, 3);
        assert!(!other.begin_epoch(until, None), "its relay is gone");
        assert!(other.begin_epoch(until, Some(RelayIndex(1))) && !other.begin_epoch(until, Some(RelayIndex(1))));
        other.on_state(at(3), MailboxState::Unknown, 0);
        assert!(other.is_dead());
        // In use or not, its time comes.
        let mut now = at(5);
        while now < until {
            assert!(!mailbox.is_dead() && mailbox.timer() <= until, "{now:?}");
            mailbox.on_state(now, MailboxState::Open, 60);
            grant(&mut mailbox, now, &mut next);
            now = mailbox.timer().max(now + Duration::from_millis(1));
        }
        assert_eq!((mailbox.wish(until), mailbox.is_dead()), (None, true));
    }

    #[test]
    fn one_in_the_place_of_another_is_filled_as_that_was_before_it_is_used() {
        let (mut former, mut next) = (own(Some(SessionName(1))), 0);
        former.target = 300;
        let mut mailbox = own(Some(SessionName(1))).in_place_of([&former].into_iter());
        grant(&mut mailbox, at(0), &mut next);
        mailbox.on_state(at(400), MailboxState::Open, 3);
        assert!(!mailbox.is_filled());
        for ms in 400..600 {
            grant(&mut mailbox, at(ms), &mut next);
        }
        assert!(mailbox.is_filled() && mailbox.stock > 290, "{mailbox:?}");
    }

    #[test]
    fn a_relay_that_is_late_in_the_epoch_is_asked_again_and_one_without_room_is_not() {
        let (mut mailbox, mut next) = (own(None), 0);
        for second in 0..10 {
            grant(&mut mailbox, at(1000 * second), &mut next);
            mailbox.on_state(at(1000 * second + 1), MailboxState::OtherEpoch, 0);
            assert!(!mailbox.is_dead());
        }
        mailbox.on_state(at(10_000), MailboxState::Full, 0);
        assert!(mailbox.is_dead());
        let (mut restarted, mut next) = (own(None), 0);
        grant(&mut restarted, at(0), &mut next);
        restarted.on_state(at(1), MailboxState::Open, 3);
        restarted.on_state(at(2), MailboxState::Unknown, 0);
        assert_eq!((restarted.is_dead(), restarted.wish(at(2))), (false, Some(Wish::Open(BLOCKS_OPENING))));
    }
}
