//! A relay: takes one layer off a packet, or drops it.
//!
//! It knows keys, not flows: a set-up's ephemeral key gives a key and the one-time ids of the packets to come
//! under it, and an id is deleted when it is used, so that nothing passes twice. All that it keeps is bounded
//! ([`Limits`]): when there is no room, the oldest keys go; agreements have a budget of processor time of their
//! own. What it does with a packet depends on nothing but the packet and these keys.
//!
//! **Memory.** A key takes 32 B, and 20 to 39 B for each of its ids that is known and was not seen. Those are the next
//! 8 ([`AHEAD_AT_FIRST`](crate::packet::AHEAD_AT_FIRST)) until one is seen and then the next 32 to 40
//! ([`AHEAD`](crate::packet::AHEAD)), derived in steps of eight: a key begins with at most 344 B and grows to 1.6 kB,
//! whatever k is. Ids are derived in order and never again, so that this window changes nothing about replays; those
//! of lost packets stay until their key goes. With k = 1 nothing is kept but the mark of the set-up.

mod budget;
mod epoch;
mod ids;
#[cfg(test)]
mod tests;

use anabranch_control::time::{Duration, Time};

pub use budget::Sender;
pub use epoch::EpochKeys;

use crate::RelayIndex;
use crate::crypto::{Cryptography, HopKey, PacketKeys, PublicKey};
use crate::packet::{
    Datagram, HEADER, INTEGRITY, Label, Material, Next, PacketsPerKey, material, parts, strip, tag, tagged,
};

use budget::Budget;
use epoch::Epoch;
use ids::{Found, Installed};

/// What a relay keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ids of packets that may come. Tables are at most seven sixteenths full: beyond, what was deleted would make them
    /// grow.
    pub ids: usize,
    /// Tables that ids lie in. Each grows for itself: a packet waits for one of them, and not for all ids, to move.
    pub shards: usize,
    /// Keys of which such ids follow.
    pub keys: usize,
    /// Bytes of the filter that holds the set-ups of an epoch; taken at once, for this epoch and the last. Filled
    /// beyond 8 bits a set-up it refuses more than 2 % of new ones.
    pub seen_bytes: usize,
    /// Agreements a second.
    pub agreements_per_s: u64,
    /// Agreements at once after a pause.
    pub agreements_at_once: u64,
}

impl Limits {
    /// 62 MiB in all. At 20 µs an agreement (measured), a fifth of a core for agreements where the network allows
    /// several packets a key: enough for 640 000 packets a second at k = 64. Where nearly each packet sets up a key,
    /// four fifths.
    pub const fn standard(packets: PacketsPerKey) -> Limits {
        let agreements_per_s = if packets.get() < 4 { 40_000 } else { 10_000 };
        Limits {
            ids: 64 * 14_336,
            shards: 64,
            keys: 131_072,
            seen_bytes: 12 << 20,
            agreements_per_s,
            agreements_at_once: agreements_per_s / 10,
        }
    }

    /// The same, but less than 1 MiB until much is to be kept: for many relays in one simulation, where nothing waits
    /// for a table to grow.
    pub const fn simulated(packets: PacketsPerKey) -> Limits {
        Limits { seen_bytes: 64 << 10, shards: 1, ..Limits::standard(packets) }
    }
}

/// What is to be done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The datagram goes to this member of the epoch's directory.
    Forward {
        /// Which.
        to: RelayIndex,
        /// The epoch whose directory says who that is.
        epoch: u64,
        /// How long it waits here first.
        wait: Duration,
    },
    /// The datagram goes as it is to the client of this relay that has this label.
    ToClient {
        /// Which.
        label: Label,
        /// How long it waits here first.
        wait: Duration,
    },
    /// The datagram's [`body`](crate::packet::body) is for the service here that has this label.
    Deliver {
        /// Which.
        label: Label,
        /// How long it waits here first.
        wait: Duration,
    },
    /// It is forgotten.
    Drop(DropReason),
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// Its id is none that is awaited: it was used, its key is gone, or never was.
    UnknownId,
    /// It sets up a key a second time.
    Replayed,
    /// It sets up a key, and the budget for that is used up.
    OverBudget,
    /// It sets up a key with a point of low order.
    LowOrder,
    /// Its header was changed, or made for another key.
    Header,
    /// It is to go to no member, or back to this relay.
    NoMember,
    /// Its path ends here, and its payload was changed.
    Payload,
}

impl DropReason {
    /// All reasons, in the order of [`Counts::dropped`].
    pub const ALL: [DropReason; 7] = [
        DropReason::UnknownId,
        DropReason::Replayed,
        DropReason::OverBudget,
        DropReason::LowOrder,
        DropReason::Header,
        DropReason::NoMember,
        DropReason::Payload,
    ];

    /// The reason as metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::UnknownId => "unknown-id",
            DropReason::Replayed => "replayed",
            DropReason::OverBudget => "over-budget",
            DropReason::LowOrder => "low-order",
            DropReason::Header => "header",
            DropReason::NoMember => "no-member",
            DropReason::Payload => "payload",
        }
    }
}

/// What a relay has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets to members.
    pub forwarded: u64,
    /// Packets to clients.
    pub to_clients: u64,
    /// Packets to services here.
    pub delivered: u64,
    /// Keys set up.
    pub set_up: u64,
    /// Keys that went before all their packets had come, for want of room.
    pub evicted: u64,
    /// Packets dropped, in the order of [`DropReason::ALL`].
    pub dropped: [u64; DropReason::ALL.len()],
}

/// A relay's keys, and what it has seen.
#[derive(Debug)]
pub struct Relay<C: Cryptography> {
    limits: Limits,
    current: Epoch<C>,
    /// The epoch before, and until when it holds.
    previous: Option<(Epoch<C>, Time)>,
    installed: Installed<C>,
    budget: Budget,
    seeds: [u64; 2],
    counts: Counts,
}

/// The keys under which a packet came, and how to mark it as seen.
enum Admitted {
    Cached(Found),
    SetUp { key: HopKey, ephemeral: [u8; 32], epoch: u64 },
}

impl<C: Cryptography> Relay<C> {
    /// A relay in a network that allows `packets` a key. `seeds` are random, so that nobody knows where its tables
    /// put what.
    pub fn new(packets: PacketsPerKey, limits: Limits, keys: EpochKeys<C>, seeds: [u64; 2]) -> Relay<C> {
        Relay {
            current: Epoch::new(keys, limits.seen_bytes, seeds),
            previous: None,
            installed: Installed::new(&limits, packets, seeds),
            budget: Budget::new(limits.agreements_per_s, limits.agreements_at_once, seeds),
            limits,
            seeds,
            counts: Counts::default(),
        }
    }

    /// Another epoch begins. Packets made for the one before are taken for `grace` longer, those of earlier ones no
    /// more: their secret is gone.
    pub fn begin_epoch(&mut self, now: Time, keys: EpochKeys<C>, grace: Duration) {
        let epoch = Epoch::new(keys, self.limits.seen_bytes, self.seeds);
        let before = core::mem::replace(&mut self.current, epoch);
        // The one before that is over, whether its grace is or not.
        if self.previous.replace((before, now + grace)).is_some() {
            self.installed.begin_sweep();
        }
    }

    /// Takes the relay's layer off `datagram`, in place, whoever it is from.
    pub fn process(&mut self, now: Time, datagram: &mut Datagram) -> Outcome {
        self.process_from(now, || Sender::Any, datagram)
    }

    /// The same where senders are kept apart; who sends is asked for set-ups alone.
    pub fn process_from(&mut self, now: Time, sender: impl FnOnce() -> Sender, datagram: &mut Datagram) -> Outcome {
        self.end_grace(now);
        match self.take_off(now, sender, datagram) {
            Ok(outcome) => {
                match outcome {
                    Outcome::Forward { .. } => self.counts.forwarded += 1,
                    Outcome::ToClient { .. } => self.counts.to_clients += 1,
                    _ => self.counts.delivered += 1,
                }
                outcome
            }
            Err(reason) => {
                self.counts.dropped[reason as usize] += 1;
                Outcome::Drop(reason)
            }
        }
    }

    fn take_off(
        &mut self,
        now: Time,
        sender: impl FnOnce() -> Sender,
        datagram: &mut Datagram,
    ) -> Result<Outcome, DropReason> {
        let (header, payload) = parts(datagram);
        let (admitted, keys) = match material(header) {
            Material::Cached(id) => {
                let found = self.installed.find(id).ok_or(DropReason::UnknownId)?;
                let keys = C::packet(self.installed.key(&found), found.index);
                if !is_genuine::<C>(header, &keys) {
                    return Err(DropReason::Header);
                }
                (Admitted::Cached(found), keys)
            }
            Material::SetUp(ephemeral) => self.agree(now, sender, ephemeral, header)?,
        };
        let epoch = match admitted {
            Admitted::Cached(found) => {
                let epoch = self.installed.epoch(&found);
                self.counts.evicted += self.installed.spend(found);
                epoch
            }
            Admitted::SetUp { key, ephemeral, epoch } => {
                let state = self.epoch_mut(epoch).ok_or(DropReason::UnknownId)?;
                state.seen.insert(&ephemeral);
                self.counts.set_up += 1;
                self.counts.evicted += self.installed.install(key, epoch);
                epoch
            }
        };
        let (next, wait) = strip(header, keys.keystream());
        let state = self.epoch_mut(epoch).ok_or(DropReason::UnknownId)?;
        let outcome = match next {
            Next::Relay(to) if state.is_other_member(to) => Outcome::Forward { to, epoch, wait },
            Next::Relay(_) => return Err(DropReason::NoMember),
            Next::Client => Outcome::ToClient { label: label(header), wait },
            Next::Here => Outcome::Deliver { label: label(header), wait },
        };
        keys.permute(payload);
        if next == Next::Here && !C::equal(&payload[..INTEGRITY], &[0; INTEGRITY]) {
            return Err(DropReason::Payload);
        }
        Ok(outcome)
    }

    /// Agrees with whoever sent `ephemeral`, under the key of this epoch or of the one before.
    fn agree(
        &mut self,
        now: Time,
        sender: impl FnOnce() -> Sender,
        ephemeral: [u8; 32],
        header: &[u8; HEADER],
    ) -> Result<(Admitted, C::Packet), DropReason> {
        let epochs = [Some(&self.current), self.previous.as_ref().map(|(epoch, _)| epoch)];
        if epochs.iter().flatten().any(|epoch| epoch.seen.contains(&ephemeral)) {
            return Err(DropReason::Replayed);
        }
        let theirs = PublicKey(ephemeral);
        let sender = sender();
        for epoch in epochs.into_iter().flatten() {
            if !self.budget.admit(now, sender) {
                return Err(DropReason::OverBudget);
            }
            let key = C::agree(&epoch.secret, &theirs, &theirs, &epoch.public).ok_or(DropReason::LowOrder)?;
            let keys = C::packet(&key, 0);
            if is_genuine::<C>(header, &keys) {
                return Ok((Admitted::SetUp { key, ephemeral, epoch: epoch.number }, keys));
            }
        }
        Err(DropReason::Header)
    }

    fn epoch_mut(&mut self, number: u64) -> Option<&mut Epoch<C>> {
        if self.current.number == number {
            return Some(&mut self.current);
        }
        self.previous.as_mut().map(|(epoch, _)| epoch).filter(|epoch| epoch.number == number)
    }

    /// The epoch before is over: its secret goes, and its keys in the calls of [`Relay::on_timer`] to come.
    fn end_grace(&mut self, now: Time) {
        if self.previous.as_ref().is_some_and(|&(_, until)| now >= until) {
            self.previous = None;
            self.installed.begin_sweep();
        }
    }

    /// When [`on_timer`](Relay::on_timer) has something to do; [`Time::MAX`] if nothing.
    pub fn timer(&self, now: Time) -> Time {
        if self.installed.is_sweeping() {
            return now;
        }
        self.previous.as_ref().map_or(Time::MAX, |&(_, until)| until)
    }

    /// Forgets the secret of an epoch whose grace is over, and some hundred of its keys.
    pub fn on_timer(&mut self, now: Time) {
        self.end_grace(now);
        let current = self.current.number;
        let previous = self.previous.as_ref().map_or(current, |(epoch, _)| epoch.number);
        self.installed.forget_others([current, previous]);
    }

    /// What others make packets for this relay with, in this epoch.
    pub fn public_key(&self) -> PublicKey {
        self.current.public
    }

    /// What it has done.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Ids that are awaited.
    pub fn ids(&self) -> usize {
        self.installed.ids()
    }

    /// Bytes that all it keeps takes.
    pub fn memory(&self) -> usize {
        let previous = self.previous.as_ref().map_or(0, |(epoch, _)| epoch.seen_bytes);
        self.installed.memory() + self.current.seen_bytes + previous
    }
}

fn is_genuine<C: Cryptography>(header: &[u8; HEADER], keys: &C::Packet) -> bool {
    C::equal(&keys.tag(&tagged(header)), tag(header))
}

fn label(header: &[u8; HEADER]) -> Label {
    let (label, _) = header.split_first_chunk().expect("a header is longer than a label");
    Label(*label)
}
