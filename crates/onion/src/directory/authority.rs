//! An authority: collects descriptors, votes, merges, signs, hands out documents.
//!
//! ```text
//!            |<-- f + 1 rounds: votes, endorsed and passed on -->|<-- a round: signatures -->|
//! -----------+---------------------------------------------------+--------------------------+---->
//!      vote for e                                          merge and sign              epoch e begins
//! ```
//!
//! All honest authorities count the same votes, and so sign the same document, as long as the
//! differences of their clocks and the delays between them are together less than a round, and no more
//! than f = a − t of them are silent or lie (`vote.rs`). An authority signs one document an epoch, also
//! after a restart.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::convert::Infallible;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::clock::{UnixTime, WallClock};
use super::document::{LONGEST_VALIDITY, SignedDocument};
use super::hash::DocumentHash;
use super::keys::{Context, PublicKey, SecretKey, Signature};
use super::known::{Known, KnownRelay};
use super::merge::{Validity, merge};
use super::message::{Message, Refusal};
use super::trust::{Trust, TrustError, signed_bytes};
use super::vote::{EndorsedVote, Proof, Vote};

/// A vote lists whom it has heard in this many epochs.
const HEARD_WITHIN_EPOCHS: u64 = 2;

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
}

impl AuthorityConfig {
    /// An hour an epoch, a minute a round, three hours a document, as Tor's authorities have it.
    pub fn hourly(authorities: Vec<(PublicKey, SocketAddr)>, threshold: usize) -> AuthorityConfig {
        let round = Duration::from_millis(60_000);
        AuthorityConfig { authorities, threshold, epoch_s: 3600, round, valid_epochs: 3 }
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
        let voting = self.round.as_nanos().saturating_mul(trust.faulty() as u64 + 2);
        if self.round == Duration::ZERO || voting >= self.epoch_s.saturating_mul(Duration::SECOND.as_nanos()) {
            return Err(AuthorityError::EpochTooShort { rounds: trust.faulty() + 2 });
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
    voted: u64,
    signed: u64,
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
    /// There is no document for this epoch: too few have signed the same.
    NoAgreement {
        /// Which epoch.
        epoch: u64,
        /// How many have signed what this authority has made.
        signed: usize,
    },
}

/// Where it stands in its epoch.
#[derive(Debug)]
enum Phase {
    /// Votes for the epoch begin then.
    Waiting,
    /// Votes come in.
    Voting { began: u64 },
    /// Signatures come in.
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
    /// The epoch that is voted on next, or now.
    epoch: u64,
    phase: Phase,
    /// One or two of each author.
    votes: BTreeMap<PublicKey, Vec<EndorsedVote>>,
    /// What this authority has made of them.
    merged: Option<(SignedDocument, DocumentHash)>,
    /// For the epoch that is voted on: a document's hash and a signature of each authority.
    signatures: BTreeMap<PublicKey, (DocumentHash, Signature)>,
    voted: u64,
    signed: u64,
    latest: Option<(SignedDocument, DocumentHash)>,
    refused_votes: u64,
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
            epoch: 0,
            phase: Phase::Waiting,
            votes: BTreeMap::new(),
            merged: None,
            signatures: BTreeMap::new(),
            voted: state.voted,
            signed: state.signed,
            latest,
            refused_votes: 0,
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
            signed: self.signed,
            latest: self.latest.as_ref().map(|(signed, _)| signed.clone()),
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

    /// When votes for `epoch` begin.
    fn vote_at(&self, epoch: u64) -> u64 {
        self.epoch_nanos(epoch).saturating_sub(self.config.round.as_nanos() * (self.rounds() + 1))
    }

    /// Waits for the first vote that begins at `now` or later.
    fn wait_for_next(&mut self, now: Time) {
        let nanos = self.clock.nanos(now);
        let begun = nanos / self.epoch_nanos(1);
        self.epoch = (begun..).find(|&epoch| self.vote_at(epoch) >= nanos).expect("epochs do not end");
        self.epoch = self.epoch.max(self.voted + 1);
        self.phase = Phase::Waiting;
        self.votes.clear();
        self.merged = None;
        self.signatures.clear();
    }

    fn broadcast(&self, message: &Message, out: &mut impl Out<Authority>) {
        for (_, to) in self.config.authorities.iter().filter(|(key, _)| *key != self.key.public()) {
            out.send(Departure::now(*to, 0), message);
        }
    }

    fn vote(&mut self, now: Time, out: &mut impl Out<Authority>) {
        let wall = self.clock.read(now);
        self.known.forget(wall);
        let previous = self.latest.as_ref().map(|(signed, hash)| Proof {
            epoch: signed.epoch(),
            hash: *hash,
            signatures: signed.signatures().to_vec(),
        });
        let relays = self.known.seen(self.epoch, wall, HEARD_WITHIN_EPOCHS * self.config.epoch_s);
        let vote = Vote { author: self.key.public(), epoch: self.epoch, previous, relays };
        let endorsed = EndorsedVote::new(vote, &self.key);
        self.voted = self.epoch;
        out.event(AuthorityEvent::Keep);
        self.broadcast(&Message::Vote(Box::new(endorsed.clone())), out);
        self.votes.insert(self.key.public(), vec![endorsed]);
        self.phase = Phase::Voting { began: self.vote_at(self.epoch) };
    }

    fn on_vote(&mut self, now: Time, endorsed: &EndorsedVote, out: &mut impl Out<Authority>) {
        let vote = &endorsed.vote;
        // Clocks differ: a vote that comes before this authority's own has begun is of the first round.
        let round = match self.phase {
            Phase::Voting { began } => 1 + self.clock.nanos(now).saturating_sub(began) / self.config.round.as_nanos(),
            Phase::Waiting
                if self.vote_at(self.epoch).saturating_sub(self.clock.nanos(now)) < self.config.round.as_nanos() =>
            {
                1
            }
            _ => u64::MAX,
        };
        let of_author = self.votes.get(&vote.author).map_or(&[][..], Vec::as_slice);
        let is_known = of_author.iter().any(|known| known.vote == *vote);
        if is_known || of_author.len() == 2 {
            return;
        }
        let counts =
            vote.epoch == self.epoch && round <= self.rounds() && endorsed.check(&self.trust, round as usize).is_ok();
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

    fn sign(&mut self, out: &mut impl Out<Authority>) {
        let epoch = self.epoch;
        self.phase = Phase::Signing;
        if self.signed >= epoch {
            return;
        }
        let single = |votes: &Vec<EndorsedVote>| votes.len() == 1;
        let votes: Vec<&Vote> = self.votes.values().filter(|votes| single(votes)).map(|votes| &votes[0].vote).collect();
        let from = UnixTime(epoch * self.config.epoch_s);
        let validity = Validity { from, until: from.after(self.config.valid_epochs * self.config.epoch_s) };
        let document = merge(&votes, &self.trust, epoch, validity, |hash| self.known.has_checked(hash));
        let hash = document.hash();
        let signature = self.key.sign(Context::Document, &signed_bytes(epoch, &hash));
        self.merged = Some((SignedDocument::new(document, Vec::new()), hash));
        self.signed = epoch;
        out.event(AuthorityEvent::Keep);
        let signer = self.key.public();
        self.broadcast(&Message::Signed { epoch, hash, signer, signature }, out);
        self.signatures.insert(signer, (hash, signature));
        self.publish(out);
    }

    fn on_signed(
        &mut self,
        (epoch, hash): (u64, DocumentHash),
        signer: PublicKey,
        signature: Signature,
        out: &mut impl Out<Authority>,
    ) {
        let is_awaited = epoch == self.epoch
            && !matches!(self.phase, Phase::Waiting)
            && self.trust.includes(&signer)
            && !self.signatures.contains_key(&signer);
        if is_awaited && signer.verifies(Context::Document, &signed_bytes(epoch, &hash), &signature) {
            self.signatures.insert(signer, (hash, signature));
            self.publish(out);
        }
    }

    /// Publishes what was made, once enough have signed the same.
    fn publish(&mut self, out: &mut impl Out<Authority>) {
        let Some((merged, hash)) = &self.merged else { return };
        let same: Vec<(PublicKey, Signature)> = self
            .signatures
            .iter()
            .filter(|(_, (other, _))| other == hash)
            .map(|(signer, (_, signature))| (*signer, *signature))
            .collect();
        let is_published = self.latest.as_ref().is_some_and(|(latest, _)| latest.epoch() >= self.epoch);
        if same.len() < self.trust.threshold() || is_published {
            return;
        }
        let signed = merged.clone().with(same);
        self.adopt(signed, out);
    }

    fn adopt(&mut self, signed: SignedDocument, out: &mut impl Out<Authority>) {
        let is_newer = self.latest.as_ref().is_none_or(|(latest, _)| latest.epoch() < signed.epoch());
        if !is_newer {
            return;
        }
        let Ok((document, hash)) = signed.clone().verify(&self.trust) else { return };
        self.latest = Some((signed, hash));
        out.event(AuthorityEvent::Keep);
        out.event(AuthorityEvent::Published { epoch: document.epoch, hash, relays: document.len() });
    }

    /// The epoch begins: who has no document of it by now asks the others.
    fn begin_epoch(&mut self, now: Time, out: &mut impl Out<Authority>) {
        let newest = self.latest.as_ref().map_or(0, |(latest, _)| latest.epoch());
        if newest < self.epoch {
            let made = self.merged.as_ref().map(|(_, hash)| *hash);
            let signed = self.signatures.values().filter(|(hash, _)| Some(*hash) == made).count();
            out.event(AuthorityEvent::NoAgreement { epoch: self.epoch, signed });
            self.broadcast(&Message::Fetch { newer_than: newest }, out);
        }
        self.voted = self.voted.max(self.epoch);
        self.wait_for_next(now);
    }

    fn next(&self) -> u64 {
        match self.phase {
            Phase::Waiting => self.vote_at(self.epoch),
            Phase::Voting { began } => began + self.rounds() * self.config.round.as_nanos(),
            Phase::Signing => self.epoch_nanos(self.epoch),
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
                if taken.is_ok() {
                    out.event(AuthorityEvent::Keep);
                }
                Some(taken.map_or_else(Message::Refused, |()| Message::Taken))
            }
            Message::Vote(vote) if is_of_authority => {
                self.on_vote(now, vote, out);
                None
            }
            Message::Signed { epoch, hash, signer, signature } if is_of_authority => {
                self.on_signed((*epoch, *hash), *signer, *signature, out);
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
        if now < self.timer(now) {
            return;
        }
        match self.phase {
            Phase::Waiting => self.vote(now, out),
            Phase::Voting { .. } => self.sign(out),
            Phase::Signing => self.begin_epoch(now, out),
        }
    }

    fn on_done(&mut self, _now: Time, done: Infallible, _out: &mut impl Out<Self>) {
        match done {}
    }

    fn timer(&self, now: Time) -> Time {
        self.clock.time(self.next()).max(now)
    }
}

#[cfg(test)]
mod tests;
