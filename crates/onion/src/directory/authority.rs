//! An authority: collects descriptors, votes, merges, signs, hands out documents.
//!
//! ```text
//!            |<-- f + 1 rounds: votes, endorsed and passed on -->|<-- two rounds: who has prepared, signatures -->|
//! -----------+---------------------------------------------------+----------------------------------------------+---->
//!      vote for e                                        merge and prepare                               epoch e begins
//! ```
//!
//! All honest authorities count the same votes, and so prepare and sign the same document, as long as
//! the differences of their clocks and the delays between them are together less than a round, and no
//! more than f = a − t of them are silent or lie (`vote.rs`).
//!
//! Where no document follows (authorities were away or held up, or no relay has come yet), another
//! ballot begins at once, as long as there is time for it before that of the next epoch. An authority
//! signs what enough have prepared in one ballot, and is then locked on it, also after a restart: two
//! ballots never give two documents, and what one has left undecided the next decides (`lock.rs`).

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::convert::Infallible;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::ballot::Ballot;
use super::clock::{UnixTime, WallClock};
use super::document::{Document, LONGEST_VALIDITY, SignedDocument, Terms};
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, SecretKey, Signature};
use super::known::{Known, KnownRelay};
use super::lock::Lock;
use super::merge::{Validity, merge};
use super::message::{Message, Refusal, Statement};
use super::trust::{Trust, TrustError};
use super::vote::{EndorsedVote, Proof, Vote};
use crate::packet::PacketsPerKey;

/// A vote lists whom it has heard in this many epochs.
const HEARD_WITHIN_EPOCHS: u64 = 2;

/// Rounds after those in which votes are passed on: one for who has prepared, one for who has signed.
const AGREEING_ROUNDS: u64 = 2;

/// What authorities agree on beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityConfig {
    /// All of them, this one too, and where each is.
    pub authorities: Vec<(PublicKey, SocketAddr)>,
    /// How many must sign, t.
    pub threshold: usize,
    /// Length of an epoch, in seconds. Epoch e begins e times that after 1970 began.
    pub epoch_s: u64,
    /// Length of a round: more than the clocks differ and a message takes.
    pub round: Duration,
    /// For how many epochs a document is good.
    pub valid_epochs: u64,
    /// The network's k.
    pub packets_per_key: PacketsPerKey,
}

impl AuthorityConfig {
    /// An hour an epoch, a minute a round, three hours a document, as Tor's authorities have it.
    pub fn hourly(authorities: Vec<(PublicKey, SocketAddr)>, threshold: usize) -> AuthorityConfig {
        let round = Duration::from_millis(60_000);
        let packets_per_key = PacketsPerKey::STANDARD;
        AuthorityConfig { authorities, threshold, epoch_s: 3600, round, valid_epochs: 3, packets_per_key }
    }

    /// What all who use their lists must have alike.
    pub fn terms(&self) -> Terms {
        Terms { epoch_s: self.epoch_s, packets_per_key: self.packets_per_key.get() }
    }

    /// Whom users of these authorities believe.
    ///
    /// # Errors
    ///
    /// As [`Trust::new`].
    pub fn trust(&self) -> Result<Trust, TrustError> {
        let keys: Vec<PublicKey> = self.authorities.iter().map(|(key, _)| *key).collect();
        Trust::new(&keys, self.threshold)
    }

    fn check(&self, key: &PublicKey) -> Result<Trust, AuthorityError> {
        let trust = self.trust()?;
        if !trust.includes(key) {
            return Err(AuthorityError::Stranger(*key));
        }
        let voting = self.round.as_nanos().saturating_mul(trust.faulty() as u64 + 1 + AGREEING_ROUNDS);
        if self.round == Duration::ZERO || voting >= self.epoch_s.saturating_mul(Duration::SECOND.as_nanos()) {
            return Err(AuthorityError::EpochTooShort { rounds: trust.faulty() + 1 + AGREEING_ROUNDS as usize });
        }
        if !(1..=LONGEST_VALIDITY).contains(&self.valid_epochs.saturating_mul(self.epoch_s)) {
            return Err(AuthorityError::Validity);
        }
        Ok(trust)
    }
}

/// Why there is no such authority.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AuthorityError {
    /// The authorities are none.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The own key is not among the authorities'.
    #[error("the key {0} is not one of the authorities'")]
    Stranger(PublicKey),
    /// There is no time to vote.
    #[error(
        "an epoch is no longer than the {rounds} rounds that its vote takes; expected a longer epoch, or shorter rounds above 0"
    )]
    EpochTooShort {
        /// How many it takes.
        rounds: usize,
    },
    /// Documents would be good for too long, or never.
    #[error("a document is good for no time, or for more than a week; expected valid_epochs from 1 on")]
    Validity,
}

/// What must outlive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityState {
    relays: Vec<KnownRelay>,
    voted: Ballot,
    #[serde(default)]
    lock: Option<Lock>,
    latest: Option<SignedDocument>,
}

/// What happens at an authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorityEvent {
    /// [`Authority::state`] is to be written down before what this call sends leaves.
    Keep,
    /// There is a new document, with this hash.
    Published {
        /// Of which epoch.
        epoch: u64,
        /// Which.
        hash: DocumentHash,
        /// Relays in it.
        relays: usize,
    },
    /// Two votes of one authority were found: it lies, and none of them is counted.
    Lies(PublicKey),
    /// A ballot has ended without a document: too few have signed the same. The others are asked for theirs.
    NoAgreement {
        /// Which ballot.
        ballot: Ballot,
        /// How many votes this authority has counted.
        votes: usize,
        /// How many have signed what this authority has made of them: none, if no relay has enough votes.
        signed: usize,
    },
}

/// Where it stands in its ballot.
#[derive(Debug)]
enum Phase {
    /// For the ballot to begin.
    Waiting,
    /// Votes come in.
    Voting,
    /// It is heard who has prepared what and who has signed, and votes of the ballot after this one come in.
    Signing,
}

/// An authority.
#[derive(Debug)]
pub struct Authority {
    config: AuthorityConfig,
    trust: Trust,
    key: SecretKey,
    clock: WallClock,
    known: Known,
    /// The ballot that comes next, or is held now.
    ballot: Ballot,
    phase: Phase,
    /// One or two of each author.
    votes: BTreeMap<PublicKey, Vec<EndorsedVote>>,
    /// How many were counted.
    counted: usize,
    /// The ballot that has begun last here. It is over once its end has come.
    voted: Ballot,
    /// What follows from the votes of that ballot.
    merged: Option<(Document, DocumentHash)>,
    /// Who has prepared which document in that ballot.
    prepared: BTreeMap<PublicKey, (DocumentHash, Signature)>,
    /// Who has signed which document in that ballot.
    signatures: BTreeMap<PublicKey, (DocumentHash, Signature)>,
    /// What this authority has signed last.
    lock: Option<Lock>,
    latest: Option<(SignedDocument, DocumentHash)>,
    refused_votes: u64,
    /// When descriptors that were handed in are written down: together, once a round at most, since whoever has relays
    /// hands in as many as it likes. What is lost if this authority ends before is handed in again.
    keep_at: Time,
}

impl Authority {
    /// The authority with `key`, at `now`, going on from what it wrote down.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration.
    pub fn new(
        config: AuthorityConfig,
        key: SecretKey,
        clock: WallClock,
        now: Time,
        state: AuthorityState,
    ) -> Result<Authority, AuthorityError> {
        let trust = config.check(&key.public())?;
        let latest = state.latest.and_then(|signed| {
            let (_, hash) = signed.clone().verify(&trust).ok()?;
            Some((signed, hash))
        });
        let mut authority = Authority {
            trust,
            key,
            clock,
            known: Known::restore(state.relays),
            ballot: Ballot::default(),
            phase: Phase::Waiting,
            votes: BTreeMap::new(),
            counted: 0,
            voted: state.voted,
            merged: None,
            prepared: BTreeMap::new(),
            signatures: BTreeMap::new(),
            lock: state.lock,
            latest,
            refused_votes: 0,
            keep_at: Time::MAX,
            config,
        };
        authority.wait_for_next(now);
        Ok(authority)
    }

    /// What must outlive a restart.
    pub fn state(&self) -> AuthorityState {
        AuthorityState {
            relays: self.known.state(),
            voted: self.voted,
            lock: self.lock.clone(),
            latest: self.latest.as_ref().map(|(signed, _)| signed.clone()),
        }
    }

    /// How long a round is: for so long, what it sends the others counts.
    pub fn round(&self) -> Duration {
        self.config.round
    }

    /// What the wall's clock says by now: machines' clocks are set, and drift from those by which they measure how long they
    /// run. Where it was moved by a round or more, the ballot that was held or awaited is left for the next one.
    pub fn set_clock(&mut self, now: Time, clock: WallClock) {
        let moved = clock.nanos(now).abs_diff(self.clock.nanos(now));
        self.clock = clock;
        if moved >= self.round_nanos() {
            self.wait_for_next(now);
        }
    }

    /// The newest document.
    pub fn document(&self) -> Option<&SignedDocument> {
        self.latest.as_ref().map(|(signed, _)| signed)
    }

    /// How many relays are known.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// Votes that were not counted: late, or not signed as they must be.
    pub fn refused_votes(&self) -> u64 {
        self.refused_votes
    }

    /// Votes may be passed on for this many rounds, f + 1.
    fn rounds(&self) -> u64 {
        self.trust.faulty() as u64 + 1
    }

    fn epoch_nanos(&self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.config.epoch_s).saturating_mul(Duration::SECOND.as_nanos())
    }

    fn round_nanos(&self) -> u64 {
        self.config.round.as_nanos()
    }

    /// How long a ballot takes: its votes, and two rounds to agree on what follows from them.
    fn ballot_nanos(&self) -> u64 {
        self.round_nanos() * (self.rounds() + AGREEING_ROUNDS)
    }

    /// When `ballot` begins. The first one of an epoch ends when that begins.
    fn begins(&self, ballot: Ballot) -> u64 {
        let since_first = u64::from(ballot.number).saturating_mul(self.ballot_nanos());
        self.epoch_nanos(ballot.epoch).saturating_sub(self.ballot_nanos()).saturating_add(since_first)
    }

    fn ends(&self, ballot: Ballot) -> u64 {
        self.begins(ballot).saturating_add(self.ballot_nanos())
    }

    /// The ballot after `ballot`, if that leads to no document: none runs into the first of another epoch.
    fn after(&self, ballot: Ballot) -> Ballot {
        let next_epoch = Ballot::first(ballot.epoch.saturating_add(1));
        let next = Ballot { number: ballot.number.saturating_add(1), ..ballot };
        match self.ends(next) <= self.begins(next_epoch) {
            true => next,
            false => next_epoch,
        }
    }

    /// Waits for the first ballot that this authority can vote in: its first round is not over, it has not voted in it
    /// or a later one, and there is no document of its epoch.
    fn wait_for_next(&mut self, now: Time) {
        let nanos = self.clock.nanos(now);
        let begun = nanos / self.epoch_nanos(1);
        let has_begun = |epoch| self.begins(Ballot::first(epoch)) <= nanos;
        let first = Ballot::first(if has_begun(begun + 1) { begun + 1 } else { begun });
        let since_first = nanos - self.begins(first);
        let over = since_first / self.ballot_nanos();
        let is_late = since_first % self.ballot_nanos() >= self.round_nanos();
        let before = Ballot { number: u32::try_from(over).unwrap_or(u32::MAX), ..first };
        let possible = match (is_late, before.number) {
            (true, _) => self.after(before),
            (false, 0) => before,
            (false, number) => self.after(Ballot { number: number - 1, ..before }),
        };
        let without_document = self.latest.as_ref().map_or(0, |(latest, _)| latest.epoch().saturating_add(1));
        let ballot = possible.max(self.after(self.voted)).max(Ballot::first(without_document));
        self.ballot = ballot;
        self.phase = Phase::Waiting;
        self.votes.retain(|_, votes| votes.iter().all(|vote| vote.vote.ballot == ballot));
    }

    fn keep(&mut self, out: &mut impl Out<Authority>) {
        self.keep_at = Time::MAX;
        out.event(AuthorityEvent::Keep);
    }

    fn broadcast(&self, message: &Message, out: &mut impl Out<Authority>) {
        for (_, to) in self.config.authorities.iter().filter(|(key, _)| *key != self.key.public()) {
            out.send(Departure::now(*to, 0), message);
        }
    }

    /// The ballot begins. Who was held up for longer than a round only listens: nobody would count its vote, and it
    /// would make a document of its own.
    fn vote(&mut self, now: Time, out: &mut impl Out<Authority>) {
        self.phase = Phase::Voting;
        self.voted = self.ballot;
        self.merged = None;
        self.prepared.clear();
        self.signatures.clear();
        self.keep(out);
        if self.clock.nanos(now) >= self.begins(self.ballot).saturating_add(self.round_nanos()) {
            return;
        }
        let wall = self.clock.read(now);
        self.known.forget(wall);
        let previous = self.latest.as_ref().map(|(signed, hash)| Proof {
            ballot: signed.ballot(),
            hash: *hash,
            signatures: signed.signatures().to_vec(),
        });
        let relays = self.known.seen(self.ballot.epoch, wall, HEARD_WITHIN_EPOCHS * self.config.epoch_s);
        let lock = self.own_lock().cloned().map(Box::new);
        let vote = Vote { author: self.key.public(), ballot: self.ballot, previous, lock, relays };
        let endorsed = EndorsedVote::new(vote, &self.key);
        self.broadcast(&Message::Vote(Box::new(endorsed.clone())), out);
        self.votes.insert(self.key.public(), vec![endorsed]);
    }

    fn on_vote(&mut self, now: Time, endorsed: &EndorsedVote, out: &mut impl Out<Authority>) {
        let vote = &endorsed.vote;
        let nanos = self.clock.nanos(now);
        // Clocks differ: a vote that comes up to a round before its ballot begins here is of the first round.
        let (awaited, round) = match self.phase {
            Phase::Voting => (self.ballot, 1 + nanos.saturating_sub(self.begins(self.ballot)) / self.round_nanos()),
            Phase::Waiting => (self.ballot, self.early_round(self.ballot, nanos)),
            Phase::Signing => {
                let next = self.after(self.ballot);
                (next, self.early_round(next, nanos))
            }
        };
        let of_author = self.votes.get(&vote.author).map_or(&[][..], Vec::as_slice);
        let is_known = of_author.iter().any(|known| known.vote == *vote);
        if is_known || of_author.len() == 2 {
            return;
        }
        let counts =
            vote.ballot == awaited && round <= self.rounds() && endorsed.check(&self.trust, round as usize).is_ok();
        if !counts {
            self.refused_votes += 1;
            return;
        }
        let mut endorsed = endorsed.clone();
        endorsed.endorse(&self.key);
        // In the last round everybody has it: an honest authority has endorsed it before.
        if round < self.rounds() {
            self.broadcast(&Message::Vote(Box::new(endorsed.clone())), out);
        }
        let author = endorsed.vote.author;
        let of_author = self.votes.entry(author).or_default();
        of_author.push(endorsed);
        if of_author.len() == 2 {
            out.event(AuthorityEvent::Lies(author));
        }
    }

    /// The round of a vote that comes before its ballot has begun here.
    fn early_round(&self, ballot: Ballot, nanos: u64) -> u64 {
        if self.begins(ballot).saturating_sub(nanos) < self.round_nanos() { 1 } else { u64::MAX }
    }

    /// What this authority is locked on in the ballot's epoch.
    fn own_lock(&self) -> Option<&Lock> {
        self.lock.as_ref().filter(|lock| lock.ballot().epoch == self.ballot.epoch)
    }

    /// Votes are in: prepares what follows from them, if that lists anybody. An authority that was held up until the
    /// ballot's end has not counted what the others have, and prepares nothing.
    fn prepare(&mut self, now: Time, out: &mut impl Out<Authority>) {
        self.phase = Phase::Signing;
        let all_votes = std::mem::take(&mut self.votes);
        let single = |votes: &&Vec<EndorsedVote>| votes.len() == 1;
        let votes: Vec<&Vote> = all_votes.values().filter(single).map(|votes| &votes[0].vote).collect();
        self.counted = votes.len();
        let is_over = self.clock.nanos(now) >= self.ends(self.ballot);
        if self.has_document() || is_over {
            return;
        }
        let locks = votes.iter().filter_map(|vote| vote.lock.as_deref());
        let newest = Lock::newest(locks, self.ballot, &self.trust);
        // Its own lock is missing among the votes if this authority came too late to vote.
        let is_free = self.own_lock().is_none_or(|own| {
            newest.is_some_and(|(newest, _)| newest.number > own.number || newest.document == own.document)
        });
        if !is_free {
            return;
        }
        let (document, hash) = match newest {
            Some((lock, hash)) => (lock.document.clone(), hash),
            None => {
                let document = self.merge(&votes);
                let hash = document.hash();
                (document, hash)
            }
        };
        if document.is_empty() {
            return;
        }
        self.merged = Some((document, hash));
        let statement = Statement::new(Context::Prepare, self.ballot, hash, &self.key);
        self.broadcast(&Message::Prepared(statement), out);
        self.prepared.insert(statement.signer, (hash, statement.signature));
        self.sign(out);
    }

    /// The document that follows from `votes` alone.
    fn merge(&self, votes: &[&Vote]) -> Document {
        let epoch = self.ballot.epoch;
        let from = UnixTime(epoch * self.config.epoch_s);
        let validity = Validity { from, until: from.after(self.config.valid_epochs * self.config.epoch_s) };
        merge(votes, &self.trust, epoch, validity, self.config.terms(), |hash| self.known.has_checked(hash))
    }

    fn on_prepared(&mut self, statement: &Statement, out: &mut impl Out<Authority>) {
        // Once a ballot is over nobody may be locked by it: the vote in the next one says that it was not.
        let is_held = !matches!(self.phase, Phase::Waiting);
        let Statement { ballot, hash, signer, signature } = *statement;
        let is_awaited = is_held && ballot == self.voted && !self.prepared.contains_key(&signer);
        if is_awaited && self.trust.includes(&signer) && statement.is_signed(Context::Prepare) {
            self.prepared.insert(signer, (hash, signature));
            self.sign(out);
        }
    }

    /// Who of these says so of the document with this hash.
    fn of_document(
        statements: &BTreeMap<PublicKey, (DocumentHash, Signature)>,
        hash: &DocumentHash,
    ) -> Vec<(PublicKey, Signature)> {
        let same = statements.iter().filter(|(_, (other, _))| other == hash);
        same.map(|(signer, (_, signature))| (*signer, *signature)).collect()
    }

    /// Signs what was made, once enough have prepared the same, and is locked on it.
    fn sign(&mut self, out: &mut impl Out<Authority>) {
        let Some((document, hash)) = &self.merged else { return };
        let hash = *hash;
        let prepared = Self::of_document(&self.prepared, &hash);
        let has_signed = self.lock.as_ref().is_some_and(|lock| lock.ballot() == self.voted);
        if has_signed || self.has_document() || prepared.len() < self.trust.threshold() {
            return;
        }
        self.lock = Some(Lock { number: self.voted.number, document: document.clone(), prepared });
        self.keep(out);
        let statement = Statement::new(Context::Document, self.voted, hash, &self.key);
        self.broadcast(&Message::Signed(statement), out);
        self.signatures.insert(statement.signer, (hash, statement.signature));
        self.publish(out);
    }

    fn on_signed(&mut self, statement: &Statement, out: &mut impl Out<Authority>) {
        // Those of a ballot still count until the next one begins.
        let Statement { ballot, hash, signer, signature } = *statement;
        let is_awaited = ballot == self.voted && !self.signatures.contains_key(&signer);
        if is_awaited && self.trust.includes(&signer) && statement.is_signed(Context::Document) {
            self.signatures.insert(signer, (hash, signature));
            self.publish(out);
        }
    }

    /// Publishes what was made, once enough have signed the same.
    fn publish(&mut self, out: &mut impl Out<Authority>) {
        let Some((document, hash)) = &self.merged else { return };
        let same = Self::of_document(&self.signatures, hash);
        if same.len() >= self.trust.threshold() {
            let signed = SignedDocument::new(document.clone(), self.voted.number, same);
            self.adopt(signed, out);
        }
    }

    fn adopt(&mut self, signed: SignedDocument, out: &mut impl Out<Authority>) {
        let is_newer = self.latest.as_ref().is_none_or(|(latest, _)| latest.epoch() < signed.epoch());
        if !is_newer {
            return;
        }
        let Ok((document, hash)) = signed.clone().verify(&self.trust) else { return };
        self.latest = Some((signed, hash));
        self.keep(out);
        out.event(AuthorityEvent::Published { epoch: document.epoch, hash, relays: document.len() });
    }

    /// Whether there is a document of the ballot's epoch, or a later one.
    fn has_document(&self) -> bool {
        self.latest.as_ref().is_some_and(|(latest, _)| latest.epoch() >= self.ballot.epoch)
    }

    /// The ballot ends: who has no document of its epoch by now asks the others, and votes again.
    fn end_ballot(&mut self, now: Time, out: &mut impl Out<Authority>) {
        if !self.has_document() {
            let made = self.merged.as_ref().map(|(_, hash)| *hash);
            let signed = self.signatures.values().filter(|(hash, _)| Some(*hash) == made).count();
            out.event(AuthorityEvent::NoAgreement { ballot: self.ballot, votes: self.counted, signed });
            let newest = self.latest.as_ref().map_or(0, |(latest, _)| latest.epoch());
            self.broadcast(&Message::Fetch { newer_than: newest }, out);
        }
        self.wait_for_next(now);
    }

    fn next(&self) -> u64 {
        let ends = self.ends(self.ballot);
        match self.phase {
            Phase::Waiting => self.begins(self.ballot),
            Phase::Voting => ends.saturating_sub(AGREEING_ROUNDS * self.round_nanos()),
            Phase::Signing => ends,
        }
    }
}

impl Machine for Authority {
    type Address = SocketAddr;
    type Message = Message;
    type Event = AuthorityEvent;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, now: Time, arrival: Arrival<SocketAddr>, message: &mut Message, out: &mut impl Out<Self>) {
        // What authorities say to each other costs much to check: from others it is nothing.
        let is_of_authority = self.config.authorities.iter().any(|(_, address)| *address == arrival.from);
        let answer = match &*message {
            Message::Fetch { newer_than } => match &self.latest {
                Some((latest, _)) if latest.epoch() > *newer_than => Some(Message::Document(latest.clone())),
                _ => Some(Message::NoNewer),
            },
            Message::Upload(relay) => {
                let taken = match arrival.from == relay.descriptor.address {
                    true => self.known.take(relay, self.clock.read(now)),
                    false => Err(Refusal::OtherAddress),
                };
                if taken == Ok(true) {
                    self.keep_at = self.keep_at.min(now + self.config.round);
                }
                Some(taken.map_or_else(Message::Refused, |_| Message::Taken))
            }
            Message::Vote(vote) if is_of_authority => {
                self.on_vote(now, vote, out);
                None
            }
            Message::Prepared(statement) if is_of_authority => {
                self.on_prepared(statement, out);
                None
            }
            Message::Signed(statement) if is_of_authority => {
                self.on_signed(statement, out);
                None
            }
            Message::Document(signed) if is_of_authority => {
                self.adopt(signed.clone(), out);
                None
            }
            _ => None,
        };
        if let Some(answer) = answer {
            out.send(Departure::now(arrival.from, 0), &answer);
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Self>) {
        if now >= self.keep_at {
            self.keep(out);
        }
        if now < self.clock.time(self.next()) {
            return;
        }
        match self.phase {
            Phase::Waiting => self.vote(now, out),
            Phase::Voting => self.prepare(now, out),
            Phase::Signing => self.end_ballot(now, out),
        }
    }

    fn on_done(&mut self, _now: Time, done: Infallible, _out: &mut impl Out<Self>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        self.clock.time(self.next()).min(self.keep_at).max(now)
    }
}

#[cfg(test)]
mod tests;
