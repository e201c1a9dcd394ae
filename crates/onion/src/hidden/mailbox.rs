//! What a relay does for hidden receivers: it holds blocks and staples the next one on to what comes, keeps
//! descriptors, and passes cells on with the blocks beside them.
//!
//! A mailbox is opened with its owner's signature, and filled by whoever knows the secret that was signed with it.
//! What comes for it while it has no block is dropped: that is the back-pressure that every sender, and every
//! stranger, meets alike. What is of an epoch is kept for the grace of its keys after the next has begun, so that owners
//! and senders follow while sessions go on; then it is forgotten, since relays can't open the blocks any more.
//!
//! All is bounded, what is of two epochs together. Where there is no room, what is of the last epoch goes first. Nobody
//! can take another's blocks or label; but a relay that is full of strangers' mailboxes or
//! descriptors has no room, and an owner goes to another. The signatures that are checked have a budget, and this many
//! descriptors fit that it takes longer to push out one that is not renewed than receivers take to renew theirs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::marker::PhantomData;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::limiter::{Admission, LimitModel, Limiter};
use subtle::ConstantTimeEq;

use super::body::{Answer, MailboxState, Open, Request, Secret, label_of, take_onward};
use super::descriptor::{HALF, PARTS, Part};
use super::{MAILBOX, ONWARD};
use crate::crypto::Cryptography;
use crate::directory::PublicKey;
use crate::packet::{BODY, Datagram, Label, body_mut};
use crate::reply::{First, HeldBlocks, ReplyBlock};

/// Mailboxes of a relay.
pub const MOST_MAILBOXES: usize = 4096;

/// Blocks of one mailbox: what a transfer of 2 MB/s uses in a quarter of a second.
pub const MOST_BLOCKS: usize = 512;

/// Blocks of all mailboxes of a relay: some 20 MiB.
pub const MOST_BLOCKS_IN_ALL: usize = 65_536;

/// Bytes that a block takes with its name in a set, about.
const BLOCK_MEMORY: usize = ReplyBlock::BYTES + 2 * 48;

/// Receivers of whom a relay keeps descriptors: some 14 MiB.
pub const MOST_DESCRIPTORS: usize = 8192;

/// Signatures that are checked in a second, some 50 µs each: a hundredth of a core. Descriptors have two.
pub const CHECKS_PER_S: u64 = 100;

/// At once, after a pause.
const CHECKS_AT_ONCE: u64 = 200;

/// A mailbox that its owner does not speak of for so long is forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_millis(120_000);

/// What a relay has done for hidden receivers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxCounts {
    /// Mailboxes opened.
    pub opened: u64,
    /// Blocks taken.
    pub filled: u64,
    /// Bodies that were passed on with a block of a mailbox.
    pub stapled: u64,
    /// Bodies for a mailbox that had no block.
    pub dry: u64,
    /// Cells that were passed on with the block beside them.
    pub onward: u64,
    /// Parts of descriptors kept.
    pub stored: u64,
    /// Times that somebody asked for a descriptor.
    pub fetched: u64,
    /// What was none, not signed, or beyond a limit.
    pub refused: u64,
}

struct Mailbox {
    /// The epoch that it was opened in.
    epoch: u64,
    key: PublicKey,
    secret: Secret,
    held: HeldBlocks,
    dry: u32,
    /// When its owner spoke of it last.
    heard: Time,
}

#[derive(Default)]
struct Kept {
    parts: [Option<Part>; PARTS],
    turn: u64,
}

/// A relay's mailboxes, and the descriptors that it keeps.
pub struct Mailboxes<C> {
    /// This relay's.
    identity: PublicKey,
    epoch: u64,
    /// The epoch before, and until when what is of it is kept.
    former: Option<(u64, Time)>,
    mailboxes: BTreeMap<Label, Mailbox>,
    /// Those of the epoch before.
    former_mailboxes: BTreeSet<Label>,
    /// Blocks of all.
    blocks: usize,
    descriptors: BTreeMap<PublicKey, Kept>,
    /// Which of them was written at which turn: the first is the oldest.
    turns: BTreeMap<u64, PublicKey>,
    next_turn: u64,
    checks: Limiter,
    sweep_at: Option<Time>,
    /// What is to leave.
    out: VecDeque<(ReplyBlock, Box<[u8; BODY]>)>,
    counts: MailboxCounts,
    cryptography: PhantomData<C>,
}

impl<C> core::fmt::Debug for Mailboxes<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Mailboxes({}, {} descriptors)", self.mailboxes.len(), self.descriptors.len())
    }
}

impl<C: Cryptography> Mailboxes<C> {
    /// None yet, at the relay with this identity.
    pub fn new(identity: PublicKey, epoch: u64) -> Mailboxes<C> {
        Mailboxes {
            identity,
            epoch,
            former: None,
            mailboxes: BTreeMap::new(),
            former_mailboxes: BTreeSet::new(),
            blocks: 0,
            descriptors: BTreeMap::new(),
            turns: BTreeMap::new(),
            next_turn: 0,
            // To the limiter, a check is a byte.
            checks: Limiter::new(
                LimitModel::Bucket { depth: Bytes::new(CHECKS_AT_ONCE) },
                Rate::from_bytes_per_sec(CHECKS_PER_S),
            ),
            sweep_at: None,
            out: VecDeque::new(),
            counts: MailboxCounts::default(),
            cryptography: PhantomData,
        }
    }

    /// Another epoch begins. What is of the one before is kept for `grace` longer, what is of earlier ones no more.
    pub fn begin_epoch(&mut self, now: Time, epoch: u64, grace: Duration) {
        self.forget_former();
        self.former = Some((core::mem::replace(&mut self.epoch, epoch), now + grace));
        self.former_mailboxes = self.mailboxes.keys().copied().collect();
    }

    /// Forgets what is not of this epoch.
    fn forget_former(&mut self) {
        self.former = None;
        for label in core::mem::take(&mut self.former_mailboxes) {
            self.forget(label);
        }
        let epoch = self.epoch;
        self.descriptors.retain(|_, kept| {
            let is_kept = kept.parts.iter().flatten().any(|part| part.epoch == epoch);
            if !is_kept {
                self.turns.remove(&kept.turn);
            }
            is_kept
        });
    }

    fn forget(&mut self, label: Label) {
        if let Some(mailbox) = self.mailboxes.remove(&label) {
            self.blocks -= mailbox.held.len();
        }
    }

    /// Where there is no room, a mailbox of the epoch before goes; whether there was one.
    fn make_room(&mut self) -> bool {
        let Some(label) = self.former_mailboxes.pop_first() else { return false };
        self.forget(label);
        true
    }

    /// Whether something of `epoch` may be kept.
    fn serves(&self, epoch: u64) -> bool {
        epoch == self.epoch || self.former.is_some_and(|(former, _)| former == epoch)
    }

    /// A body has come for `label`; whether that is a matter of mailboxes.
    pub fn on_body(&mut self, now: Time, label: Label, body: &[u8; BODY]) -> bool {
        match label {
            MAILBOX => match Request::read(body) {
                Ok(request) => self.on_request(now, request),
                Err(_) => self.counts.refused += 1,
            },
            ONWARD => {
                let mut cell = Box::new(*body);
                match take_onward(&mut cell) {
                    Some(block) => {
                        self.counts.onward += 1;
                        self.out.push_back((block, cell));
                    }
                    None => self.counts.refused += 1,
                }
            }
            label => {
                let Some(mailbox) = self.mailboxes.get_mut(&label) else { return false };
                match mailbox.held.take() {
                    Some(block) => {
                        self.blocks -= 1;
                        self.counts.stapled += 1;
                        self.out.push_back((block, Box::new(*body)));
                    }
                    None => {
                        mailbox.dry = mailbox.dry.saturating_add(1);
                        self.counts.dry += 1;
                    }
                }
            }
        }
        true
    }

    fn on_request(&mut self, now: Time, request: Request) {
        match request {
            Request::Open(open) => self.on_open(now, open),
            Request::Fill { label, secret, asks, anew, blocks } => {
                let mailbox = self.mailboxes.get_mut(&label);
                // In constant time: who guesses must not learn how far a guess was right.
                let owned = mailbox.filter(|mailbox| bool::from(mailbox.secret.ct_eq(&secret)));
                let mut blocks = blocks.into_iter();
                let answer = if asks { blocks.next() } else { None };
                let state = match owned {
                    Some(mailbox) => {
                        mailbox.heard = now;
                        if anew {
                            self.blocks -= mailbox.held.len();
                            mailbox.held.clear();
                        }
                        self.fill(label, blocks);
                        MailboxState::Open
                    }
                    None => {
                        self.counts.refused += 1;
                        MailboxState::Unknown
                    }
                };
                if let Some(answer) = answer {
                    self.answer_state(label, state, answer);
                }
            }
            Request::Publish { part, answer } => {
                let stored = self.store(now, *part);
                self.counts.stored += u64::from(stored);
                self.counts.refused += u64::from(!stored);
                self.answer(if stored { Answer::Stored } else { Answer::NotStored }, answer);
            }
            Request::Fetch { key, answers } => {
                self.counts.fetched += 1;
                let parts = self.descriptors.get(&key).map(|kept| kept.parts.clone()).unwrap_or_default();
                let [first, second] =
                    parts.map(|part| part.map_or(Answer::NotKnown, |part| Answer::Part(Box::new(part))));
                let [one, other] = *answers;
                self.answer(first, one);
                self.answer(second, other);
            }
        }
    }

    fn on_open(&mut self, now: Time, open: Open) {
        let label = label_of(&open.key);
        let mut blocks = Vec::new().into_iter();
        let state = if !self.serves(open.epoch) {
            MailboxState::OtherEpoch
        } else if !self.may_check(now) {
            MailboxState::Full
        } else if !open.is_signed_for(&self.identity) {
            MailboxState::Unsigned
        } else {
            let is_new = !self.mailboxes.contains_key(&label);
            let room = self.mailboxes.len() < MOST_MAILBOXES || is_new && open.epoch == self.epoch && self.make_room();
            match self.mailboxes.get_mut(&label) {
                // Another key with the same label: whoever came first has it.
                Some(mailbox) if mailbox.key != open.key || mailbox.epoch != open.epoch => MailboxState::Full,
                Some(mailbox) => {
                    (mailbox.secret, mailbox.heard) = (open.secret, now);
                    MailboxState::Open
                }
                None if room => {
                    let held = HeldBlocks::remembering(MOST_BLOCKS, 0);
                    let Open { key, secret, epoch, .. } = open;
                    self.mailboxes.insert(label, Mailbox { epoch, key, secret, held, dry: 0, heard: now });
                    if epoch != self.epoch {
                        self.former_mailboxes.insert(label);
                    }
                    self.sweep_at.get_or_insert(now + FORGOTTEN_AFTER);
                    self.counts.opened += 1;
                    MailboxState::Open
                }
                None => MailboxState::Full,
            }
        };
        self.counts.refused += u64::from(state != MailboxState::Open);
        let mut all = open.blocks.into_iter();
        let answer = all.next();
        if state == MailboxState::Open {
            blocks = all;
        }
        self.fill(label, blocks);
        if let Some(answer) = answer {
            self.answer_state(label, state, answer);
        }
    }

    fn fill(&mut self, label: Label, blocks: impl Iterator<Item = ReplyBlock>) {
        let Some(epoch) = self.mailboxes.get(&label).map(|mailbox| mailbox.epoch) else { return };
        for block in blocks {
            while self.blocks >= MOST_BLOCKS_IN_ALL && epoch == self.epoch && self.make_room() {}
            let Some(mailbox) = self.mailboxes.get_mut(&label) else { return };
            if self.blocks < MOST_BLOCKS_IN_ALL && mailbox.held.insert(block).is_ok() {
                self.blocks += 1;
                self.counts.filled += 1;
            } else {
                self.counts.refused += 1;
            }
        }
    }

    fn answer_state(&mut self, label: Label, state: MailboxState, answer: ReplyBlock) {
        let mailbox = self.mailboxes.get(&label).filter(|_| state == MailboxState::Open);
        let (held, dry) = mailbox.map_or((0, 0), |mailbox| (mailbox.held.len() as u16, mailbox.dry));
        self.answer(Answer::Mailbox { label, state, held, dry }, answer);
    }

    fn answer(&mut self, answer: Answer, block: ReplyBlock) {
        let mut body = Box::new([0; BODY]);
        answer.write(&mut body);
        self.out.push_back((block, body));
    }

    fn store(&mut self, now: Time, part: Part) -> bool {
        let place = usize::from(part.is_second);
        let known = self.descriptors.get(&part.key).and_then(|kept| kept.parts[place].as_ref());
        if !self.serves(part.epoch) || known.is_some_and(|known| known.version > part.version) {
            return false;
        }
        // The same once more is no work.
        if known != Some(&part) && !(self.may_check(now) && part.is_signed()) {
            return false;
        }
        if !self.descriptors.contains_key(&part.key)
            && self.descriptors.len() >= MOST_DESCRIPTORS
            && let Some((_, oldest)) = self.turns.pop_first()
        {
            self.descriptors.remove(&oldest);
        }
        let key = part.key;
        let kept = self.descriptors.entry(key).or_default();
        self.turns.remove(&kept.turn);
        self.next_turn += 1;
        kept.turn = self.next_turn;
        kept.parts[place] = Some(part);
        self.turns.insert(self.next_turn, key);
        true
    }

    fn may_check(&mut self, now: Time) -> bool {
        self.checks.admit(now, Bytes::new(1)) != Admission::Refused
    }

    /// What is to leave, written into `datagram`: where it goes first.
    pub fn poll(&mut self, datagram: &mut Datagram) -> Option<First> {
        let (block, body) = self.out.pop_front()?;
        body_mut(datagram).copy_from_slice(&body[..]);
        let first = block.first();
        let _ = block.seal::<C>(datagram);
        Some(first)
    }

    /// Whether something is to leave.
    pub fn has_work(&self) -> bool {
        !self.out.is_empty()
    }

    /// When [`on_timer`](Mailboxes::on_timer) has something to do.
    pub fn timer(&self) -> Time {
        let grace = self.former.map(|(_, until)| until);
        self.sweep_at.into_iter().chain(grace).min().unwrap_or(Time::MAX)
    }

    /// Forgets mailboxes of which nobody speaks any more, and what is of an epoch whose grace is over.
    pub fn on_timer(&mut self, now: Time) {
        if self.former.is_some_and(|(_, until)| until <= now) {
            self.forget_former();
        }
        if self.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        let former = &mut self.former_mailboxes;
        self.mailboxes.retain(|label, mailbox| {
            let is_kept = now.since(mailbox.heard) < FORGOTTEN_AFTER;
            if !is_kept {
                former.remove(label);
            }
            is_kept
        });
        self.blocks = self.mailboxes.values().map(|mailbox| mailbox.held.len()).sum();
        self.sweep_at = (!self.mailboxes.is_empty()).then(|| now + FORGOTTEN_AFTER / 2);
    }

    /// What was done.
    pub fn counts(&self) -> &MailboxCounts {
        &self.counts
    }

    /// Mailboxes, and blocks in all of them.
    pub fn held(&self) -> (usize, usize) {
        (self.mailboxes.len(), self.blocks)
    }

    /// Bytes that all of it takes, about.
    pub fn memory(&self) -> usize {
        let descriptors = self.descriptors.len() * PARTS * (size_of::<Part>() + HALF);
        self.blocks * BLOCK_MEMORY + self.mailboxes.len() * size_of::<Mailbox>() + descriptors
    }

    /// Receivers of whom a descriptor is kept.
    pub fn descriptors(&self) -> usize {
        self.descriptors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RelayIndex;
    use crate::crypto::Transparent;
    use crate::directory::SecretKey;
    use crate::hidden::ReceiverSecret;
    use crate::hidden::body::tests::block;
    use crate::hidden::descriptor::tests::{parts, signed_by};
    use crate::packet::body;
    use crate::size::DATAGRAM;

    const HERE: PublicKey = PublicKey([5; 32]);

    const GRACE: Duration = Duration::from_millis(60_000);

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::SECOND * seconds
    }

    fn mailboxes() -> Mailboxes<Transparent> {
        Mailboxes::new(HERE, 7)
    }

    fn say(to: &mut Mailboxes<Transparent>, now: Time, request: Request) {
        let mut body = [0; BODY];
        request.write(&mut body);
        assert!(to.on_body(now, MAILBOX, &body));
    }

    /// The answers that wait to leave.
    fn answers(of: &mut Mailboxes<Transparent>) -> Vec<Answer> {
        of.out.drain(..).map(|(_, body)| Answer::read(&body).expect("an answer")).collect()
    }

    fn open(to: &mut Mailboxes<Transparent>, now: Time, owner: u64, blocks: u8) -> (Label, Vec<Answer>) {
        let mut seed = [9; 32];
        seed[..8].copy_from_slice(&owner.to_be_bytes());
        let key = SecretKey::from_seed(&seed);
        let blocks = (0..blocks).map(block).collect();
        say(to, now, Request::Open(Open::new(&key, &HERE, 7, [1; 16], blocks)));
        (label_of(&key.public()), answers(to))
    }

    /// What was stapled leaves.
    fn answers_of_bodies(of: &mut Mailboxes<Transparent>) {
        while of.poll(&mut [0; DATAGRAM]).is_some() {}
    }

    fn fill(to: &mut Mailboxes<Transparent>, now: Time, label: Label, secret: Secret, blocks: core::ops::Range<u16>) {
        for number in blocks {
            let mut bytes = block(0).to_bytes();
            bytes[2..4].copy_from_slice(&number.to_be_bytes());
            let blocks = vec![ReplyBlock::from_bytes(&bytes).expect("relay 0")];
            say(to, now, Request::Fill { label, secret, asks: false, anew: false, blocks });
        }
    }

    fn state(answers: &[Answer]) -> (MailboxState, u16) {
        match answers {
            [Answer::Mailbox { state, held, .. }] => (*state, *held),
            other => panic!("one answer about a mailbox, not {other:?}"),
        }
    }

    #[test]
    fn what_comes_is_stapled_to_the_next_block_and_without_one_it_is_dropped() {
        let mut relay = mailboxes();
        let (label, said) = open(&mut relay, at(0), 1, 3);
        assert_eq!(state(&said), (MailboxState::Open, 2));
        for number in 0..3 {
            assert!(relay.on_body(at(1), label, &[number; BODY]));
        }
        let mut datagram = [0; DATAGRAM];
        for expected in [1, 2] {
            assert!(
                relay.out[0].0 == block(expected)
                    && relay.poll(&mut datagram).is_some_and(|first| first.relay == RelayIndex(0))
            );
            assert_eq!(body(&datagram)[..], [expected - 1; BODY]);
        }
        assert_eq!(relay.poll(&mut datagram), None);
        assert_eq!((relay.counts.stapled, relay.counts.dry, relay.held()), (2, 1, (1, 0)));
        assert!(!relay.on_body(at(1), Label([0; 8]), &[0; BODY]), "nobody's label is another service's");
    }

    #[test]
    fn only_the_owner_opens_and_fills_a_mailbox() {
        let mut relay = mailboxes();
        let key = SecretKey::from_seed(&[1; 32]);
        let label = label_of(&key.public());
        let blocks = || vec![block(1), block(2)];
        // Signed for another relay, for another epoch, by another key.
        for (opening, why) in [
            (Open::new(&key, &PublicKey([6; 32]), 7, [1; 16], blocks()), MailboxState::Unsigned),
            (Open::new(&key, &HERE, 6, [1; 16], blocks()), MailboxState::OtherEpoch),
            (
                Open { key: key.public(), ..Open::new(&SecretKey::from_seed(&[2; 32]), &HERE, 7, [1; 16], blocks()) },
                MailboxState::Unsigned,
            ),
        ] {
            say(&mut relay, at(0), Request::Open(opening));
            assert_eq!(state(&answers(&mut relay)), (why, 0));
            assert_eq!(relay.held(), (0, 0));
        }
        say(&mut relay, at(0), Request::Open(Open::new(&key, &HERE, 7, [1; 16], blocks())));
        assert_eq!(state(&answers(&mut relay)), (MailboxState::Open, 1));
        fill(&mut relay, at(1), label, [2; 16], 0..5);
        assert_eq!((relay.held(), relay.counts.refused), ((1, 1), 8));
        fill(&mut relay, at(1), label, [1; 16], 0..5);
        assert_eq!(relay.held(), (1, 6));
        say(&mut relay, at(1), Request::Fill { label, secret: [2; 16], asks: true, anew: false, blocks: blocks() });
        assert_eq!(state(&answers(&mut relay)), (MailboxState::Unknown, 0), "a stranger learns nothing of it");
        let anew = |secret| Request::Fill { label, secret, asks: true, anew: true, blocks: blocks() };
        say(&mut relay, at(2), anew([2; 16]));
        assert_eq!((state(&answers(&mut relay)).0, relay.held()), (MailboxState::Unknown, (1, 6)));
        say(&mut relay, at(2), anew([1; 16]));
        assert_eq!((state(&answers(&mut relay)), relay.held()), ((MailboxState::Open, 1), (1, 1)));
    }

    #[test]
    fn p13_mailboxes_blocks_and_descriptors_are_bounded() {
        let mut relay = mailboxes();
        let (label, _) = open(&mut relay, at(0), 0, 1);
        fill(&mut relay, at(0), label, [1; 16], 0..2 * MOST_BLOCKS as u16);
        assert_eq!(relay.held(), (1, MOST_BLOCKS));
        // A hundred checks a second: at another pace openings are turned away.
        let mut refused = 0;
        for owner in 1..CHECKS_AT_ONCE + 50 {
            refused += u64::from(state(&open(&mut relay, at(1), owner, 1).1).0 == MailboxState::Full);
        }
        assert!((45..=50).contains(&refused), "{refused}");
        for owner in 1000..1000 + MOST_MAILBOXES as u64 + 10 {
            let now = at(10) + Duration::from_millis(20) * owner;
            let (label, _) = open(&mut relay, now, owner, 1);
            fill(&mut relay, now, label, [1; 16], 0..20);
        }
        assert_eq!(relay.held(), (MOST_MAILBOXES, MOST_BLOCKS_IN_ALL));
        assert!(relay.memory() < 24 << 20, "{}", relay.memory());
        // Nobody speaks of them any more.
        relay.on_timer(at(10_000));
        assert_eq!((relay.held(), relay.timer()), ((0, 0), Time::MAX));
        let (_, _, [part, _]) = parts(1, 7, 1);
        let mut first = None;
        for number in 0..MOST_DESCRIPTORS + 10 {
            let mut seed = [0; 32];
            seed[..8].copy_from_slice(&number.to_be_bytes());
            let signed = signed_by(&part, &ReceiverSecret::from_seed(&seed).blinded(7));
            first.get_or_insert(signed.key);
            let now = at(20_000) + Duration::from_millis(20) * number as u64;
            assert!(relay.store(now, signed));
        }
        assert_eq!(relay.descriptors(), MOST_DESCRIPTORS);
        assert!(relay.memory() < 16 << 20, "{}", relay.memory());
        assert!(first.is_some_and(|first| !relay.descriptors.contains_key(&first)), "the oldest has gone");
        assert_eq!(relay.turns.len(), relay.descriptors.len());
    }

    #[test]
    fn what_is_of_an_epoch_is_of_use_until_its_grace_is_over_or_the_next_but_one_begins() {
        for is_grace_over in [true, false] {
            let mut relay = mailboxes();
            let (label, _) = open(&mut relay, at(0), 1, 4);
            let (_, _, [part, other]) = parts(1, 7, 1);
            let publish = |part: &Part| Request::Publish { part: Box::new(part.clone()), answer: block(1) };
            say(&mut relay, at(0), publish(&part));
            assert_eq!((answers(&mut relay), relay.descriptors()), (vec![Answer::Stored], 1));
            relay.begin_epoch(at(1), 8, GRACE);
            assert!(relay.on_body(at(2), label, &[0; BODY]) && relay.has_work());
            answers_of_bodies(&mut relay);
            fill(&mut relay, at(2), label, [1; 16], 10..12);
            assert_eq!(relay.held(), (1, 4), "one was used, and two came");
            say(&mut relay, at(2), publish(&other));
            assert_eq!((answers(&mut relay), relay.descriptors()), (vec![Answer::Stored], 1));
            // Of its own epoch there are others.
            let key = SecretKey::from_seed(&[77; 32]);
            say(&mut relay, at(3), Request::Open(Open::new(&key, &HERE, 8, [1; 16], vec![block(1), block(2)])));
            assert_eq!(state(&answers(&mut relay)), (MailboxState::Open, 1));
            say(&mut relay, at(3), publish(&parts(2, 8, 1).2[0]));
            assert_eq!((answers(&mut relay), relay.descriptors(), relay.turns.len()), (vec![Answer::Stored], 2, 2));
            assert_eq!(relay.timer(), at(1) + GRACE);
            match is_grace_over {
                true => relay.on_timer(at(1) + GRACE),
                false => relay.begin_epoch(at(4), 9, GRACE),
            }
            assert!(!relay.on_body(at(9), label, &[0; BODY]), "nobody has this label now");
            assert_eq!((relay.held(), relay.descriptors(), relay.turns.len()), ((1, 1), 1, 1));
        }
    }

    #[test]
    fn what_is_of_the_last_epoch_makes_room_for_what_is_of_this_one() {
        let mut relay = mailboxes();
        let now = |owner| at(10) + Duration::from_millis(20) * owner;
        for owner in 0..MOST_MAILBOXES as u64 {
            let (label, _) = open(&mut relay, now(owner), owner, 1);
            fill(&mut relay, now(owner), label, [1; 16], 0..20);
        }
        assert_eq!(relay.held(), (MOST_MAILBOXES, MOST_BLOCKS_IN_ALL));
        let later = now(MOST_MAILBOXES as u64);
        relay.begin_epoch(later, 8, GRACE);
        for owner in 0..5 {
            let key = SecretKey::from_seed(&[owner + 100; 32]);
            say(&mut relay, later, Request::Open(Open::new(&key, &HERE, 8, [1; 16], vec![block(1), block(2)])));
            assert_eq!(state(&answers(&mut relay)), (MailboxState::Open, 1));
        }
        assert_eq!(relay.held().0, MOST_MAILBOXES);
        assert!(relay.held().1 <= MOST_BLOCKS_IN_ALL);
        // Nothing that is of the last epoch is worth more than another of it.
        let key = SecretKey::from_seed(&[200; 32]);
        say(&mut relay, later, Request::Open(Open::new(&key, &HERE, 7, [1; 16], vec![block(1)])));
        assert_eq!(state(&answers(&mut relay)).0, MailboxState::Full);
    }

    #[test]
    fn descriptors_are_kept_signed_and_newest_and_handed_out_in_two_answers() {
        let mut relay = mailboxes();
        let publish = |relay: &mut Mailboxes<Transparent>, part: &Part| {
            say(relay, at(0), Request::Publish { part: Box::new(part.clone()), answer: block(1) });
            answers(relay).remove(0)
        };
        let fetch = |relay: &mut Mailboxes<Transparent>, key| {
            say(relay, at(0), Request::Fetch { key, answers: Box::new([block(1), block(2)]) });
            answers(relay)
        };
        let (_, _, [first, second]) = parts(1, 7, 5);
        assert_eq!(fetch(&mut relay, first.key), [Answer::NotKnown, Answer::NotKnown]);
        assert_eq!((publish(&mut relay, &first), publish(&mut relay, &second)), (Answer::Stored, Answer::Stored));
        let mut forged = parts(1, 7, 6).2[0].clone();
        forged.half[3] ^= 1;
        assert_eq!(publish(&mut relay, &forged), Answer::NotStored);
        assert_eq!(publish(&mut relay, &parts(1, 7, 4).2[0]), Answer::NotStored, "an older one");
        assert_eq!(publish(&mut relay, &parts(1, 6, 9).2[0]), Answer::NotStored, "of another epoch");
        assert_eq!(publish(&mut relay, &first), Answer::Stored, "once more");
        let both = [first.clone(), second].map(|part| Answer::Part(Box::new(part)));
        assert_eq!(fetch(&mut relay, first.key), both);
    }
}
