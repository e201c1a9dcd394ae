//! Whom a relay passes on for when not all fits: every source has a share of the limit.
//!
//! A limit that is held first come, first served belongs to whoever sends most. Here what each
//! source demands is averaged, and the limit is divided anew every epoch, max-min fairly
//! (Demers, Keshav and Shenker 1989): `g_i = min(1.25 w_i, u_i f)`, where `w_i` is the demand, `u_i` a
//! weight, and the level `f` is such that `Σ min(w_i, u_i f)` and a reserve are the limit, or so high that
//! it binds nobody.
//! A source may use its `g_i` whatever the others do; what no source has a claim to is a pool for
//! whoever comes first. So a source that is alone has the whole limit, and when the relay is busy,
//! what is refused falls on those above the fair level. Keeping an average for each source and a
//! level for all, in place of a queue for each, is CSFQ's idea (Stoica, Shenker and Zhang 1998);
//! dividing by what arrives, not by what passes, is AFD's (Pan, Breslau, Prabhakar and Shenker
//! 2003). Their dropping is random, for links that carry what comes; a relay's limit is counted in
//! bytes, and so are the shares.
//!
//! A source is the address that a datagram was seen to come from: an IPv4 address, or the /64 of an
//! IPv6 address, which is what one host has to choose from (RFC 7934, 8064). It is the neighbour, at
//! a middle relay the relay before. The source that the route names would be finer, but there it is
//! what the first relay says: one that lies could invent sources, and each would have a share. A
//! neighbour that passes on for many divides among them by this rule in its turn.
//!
//! What a neighbour sends of its own and what it passes on for others have an account each, or one
//! that sends too much would take the share of those who send over it. Fairness is weighted: what is
//! passed on may have four times as much as what is sent ([`TRANSIT_WEIGHT`]). A neighbour that
//! calls its own packets others' thus has five shares, and no more.
//!
//! Sources are kept in a table of a fixed size whose places cannot be foreseen without its key. A
//! place is given away only when its source has been idle; where there is none, a new source shares
//! one entry with all others that found none. Whoever can send from very many addresses, or as if
//! from them, thus gets many shares, but pushes nobody out.

use std::net::{IpAddr, SocketAddr};

use ahash::RandomState;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::limiter::{LimitModel, WINDOW};
use crate::overlay::wire::MAX_DATAGRAM;

/// Accounts that there are at once, at a relay for strangers: 160 KiB of table. A source has one or two.
pub const MAX_SOURCES: usize = 4096;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// It is within its neighbour's share.
    pub passes: bool,
    /// Whom it says that it comes from counts.
    pub is_believed: bool,
}

/// What is one source to a relay.
pub trait Source {
    /// The same for all addresses of one source.
    fn prefix(&self) -> u64;
}

/// An IPv4 address, or the /64 of an IPv6 address.
impl Source for IpAddr {
    fn prefix(&self) -> u64 {
        match self {
            // No global IPv6 address begins with 64 bits like these (0000::/8 is reserved).
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        }
    }
}

/// A host, whatever its port.
impl Source for SocketAddr {
    fn prefix(&self) -> u64 {
        self.ip().prefix()
    }
}

/// A node of a simulation.
impl Source for u32 {
    fn prefix(&self) -> u64 {
        u64::from(*self)
    }
}

/// Who made a packet, seen from the node that it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Traffic {
    /// The neighbour.
    Originated,
    /// Another, for whom the neighbour passes it on.
    Transit,
}

/// The share of transit beside what is originated: a packet over three relays, the thesis's standard
/// [Raiber 2010, table 7.4], comes to one node as originated and to three as transit; and what a
/// neighbour passes on varies with the paths that others choose.
const TRANSIT_WEIGHT: f32 = 4.0;

/// Sources that one neighbour may name in a turn of a relay's count of them (`sources.rs`) which nobody has named before: a
/// relay of strangers passes on for dozens. Who invents more of them counts as so many, and cannot take from the others
/// what they are granted.
const NAMED_BY_ONE: u16 = 32;

/// Places that a source may have in the table; their names fill a cache line.
const WAYS: usize = 8;

/// In which time a demand that has ended counts half: the window in which relays count, so that
/// an average covers some of them.
const HALF_LIFE: Duration = WINDOW;

/// What a source may claim of its average demand, so that it can grow while the relay is busy.
const HEADROOM: f64 = 1.25;

/// Of the limit, what at most is left for this headroom: those who want less than their shares do not all
/// grow at once. With nothing left, a queue would fill whatever the shares, and refuse anybody.
const MOST_RESERVED: f64 = 0.05;

/// The limit is divided once so much of it is demanded: those who keep to what a relay grants them fill it,
/// and vary.
const TOO_MUCH: f64 = 1.05;

/// Datagrams that a slow source may save up: of packets that come at random (Poisson) at nine tenths of
/// a share, a token bucket of depth B refuses about `exp(-2 · 0.1 · B)`, here 4 %.
const SAVED: u64 = 16;

/// A source that demands less in bytes a second has been idle: a datagram's header alone is more.
const IDLE: f64 = 32.0;

/// The shortest epoch: dividing takes some microseconds.
const SHORTEST: Duration = Duration::from_millis(10);

/// Passes over the table in which the level is sought. Each comes nearer from below.
const MAX_PASSES: usize = 16;

/// The shares of a relay's limit.
#[derive(Clone, Debug)]
pub struct FairShare {
    model: LimitModel,
    epoch: Duration,
    ends: Time,
    /// Bytes that the limit lets through in an epoch.
    per_epoch: u64,
    /// Bytes that it lets through at once.
    burst: u64,
    /// The part of an average that an epoch leaves.
    decay: f64,
    /// Epochs in which an unused share is kept.
    kept: u64,
    /// Bytes left for whoever comes first.
    pool: u64,
    random: RandomState,
    sets: Box<[Set]>,
    /// All that have no entry of their own.
    others: Account,
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Set {
    /// Keyed hashes of prefixes; 0 where there never was one.
    names: [u64; WAYS],
    sources: [Account; WAYS],
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// Bytes that came in this epoch, whether they passed or not.
    arrived: u64,
    /// Average of that in bytes an epoch.
    demand: f64,
    /// Bytes of its share that are left.
    credit: u64,
    /// Its share of the level.
    weight: f32,
    /// Sources that it has named in this turn, and which turn that was.
    named: u16,
    turn: u16,
}

const _: () = assert!(size_of::<Account>() == 32, "a relay for strangers holds thousands");

impl Account {
    const fn new(weight: f32) -> Account {
        Account { arrived: 0, demand: 0.0, credit: 0, weight, named: 0, turn: 0 }
    }

    /// Whether it may name one more source in `turn`.
    fn may_name(&mut self, turn: u16) -> bool {
        if self.turn != turn {
            (self.turn, self.named) = (turn, 0);
        }
        let may = self.named < NAMED_BY_ONE;
        self.named += u16::from(may);
        may
    }

    fn end_epoch(&mut self, decay: f64, idle_epochs: f64) {
        let arrived = std::mem::take(&mut self.arrived) as f64;
        // From zero, for a source that comes once is not to claim a share of every epoch.
        self.demand = (self.demand * decay + arrived * (1.0 - decay)) * idle_epochs;
    }

    /// Its share in an epoch at `level`.
    fn share(&self, level: f64) -> u64 {
        (HEADROOM * self.demand).min(f64::from(self.weight) * level) as u64
    }
}

impl FairShare {
    /// Shares of `limit`, held by `model`, for up to `sources` at once that have an entry of their own;
    /// `key` is known to nobody else.
    pub fn new(model: LimitModel, limit: Rate, sources: usize, key: [u64; 4]) -> FairShare {
        // An epoch is so short that what one lets through fits the limiter's burst twice.
        let (epoch, ends, burst) = match model {
            LimitModel::Window { phase } => (WINDOW, Time::ZERO + phase, limit * WINDOW),
            LimitModel::Bucket { depth } => (depth / limit / 2, Time::ZERO, depth),
            LimitModel::Queue { longest } => (longest / 2, Time::ZERO, limit * longest),
        };
        let epoch = epoch.clamp(SHORTEST, WINDOW);
        let [k0, k1, k2, k3] = key;
        let set = Set { names: [0; WAYS], sources: [Account::new(1.0); WAYS] };
        FairShare {
            model,
            epoch,
            ends,
            per_epoch: (limit * epoch).get(),
            burst: burst.get().max(MAX_DATAGRAM as u64),
            decay: libm::exp2(-epoch.as_secs_f64() / HALF_LIFE.as_secs_f64()),
            kept: HALF_LIFE.as_nanos() / epoch.as_nanos(),
            pool: burst.get().max(MAX_DATAGRAM as u64),
            random: RandomState::with_seeds(k0, k1, k2, k3),
            sets: vec![set; sources.div_ceil(WAYS).max(1)].into(),
            others: Account::new(1.0),
        }
    }

    /// The limit is `limit` from now on: what sources have demanded is still known.
    pub fn set_limit(&mut self, limit: Rate) {
        let fresh = FairShare::new(self.model, limit, 0, [0; 4]);
        let FairShare { epoch, per_epoch, burst, decay, kept, .. } = fresh;
        let scale = epoch.as_secs_f64() / self.epoch.as_secs_f64();
        // Averages are bytes an epoch.
        self.sources_mut().for_each(|source| source.demand *= scale);
        let pool = self.pool.min(burst);
        *self = FairShare { epoch, per_epoch, burst, decay, kept, pool, ..std::mem::replace(self, fresh) };
    }

    /// Whether `size` bytes of `source`'s `traffic` may pass now, and counts them; if they name somebody who was not known,
    /// in which turn.
    #[inline]
    pub fn admit(
        &mut self,
        now: Time,
        source: &impl Source,
        traffic: Traffic,
        size: Bytes,
        named: Option<u16>,
    ) -> Admitted {
        if now >= self.ends {
            self.divide(now);
        }
        let name = self.random.hash_one((source.prefix(), traffic)) | 1;
        let FairShare { sets, others, pool, epoch, .. } = self;
        // The upper half chooses the set, all of it is the name.
        let count = sets.len();
        let set = &mut sets[(name >> 32) as usize % count];
        let source = match set.names.iter().position(|&known| known == name) {
            Some(place) => &mut set.sources[place],
            None => {
                let idle = IDLE * epoch.as_secs_f64();
                match set.sources.iter().position(|source| source.arrived == 0 && source.demand < idle) {
                    Some(place) => {
                        set.names[place] = name;
                        set.sources[place] = Account::new(match traffic {
                            Traffic::Originated => 1.0,
                            Traffic::Transit => TRANSIT_WEIGHT,
                        });
                        &mut set.sources[place]
                    }
                    None => others,
                }
            }
        };
        let size = size.get();
        source.arrived += size;
        let beyond = size.saturating_sub(source.credit);
        if beyond > *pool {
            return Admitted { passes: false, is_believed: named.is_none() };
        }
        source.credit -= size - beyond;
        *pool -= beyond;
        Admitted { passes: true, is_believed: named.is_none_or(|turn| source.may_name(turn)) }
    }

    /// Ends the epochs before `now` and divides the limit for the one that has begun.
    #[cold]
    fn divide(&mut self, now: Time) {
        let epochs = now.since(self.ends).as_nanos() / self.epoch.as_nanos() + 1;
        self.ends += self.epoch * epochs;
        let (decay, kept) = (self.decay, self.kept);
        let idle_epochs = libm::pow(decay, (epochs - 1) as f64);
        self.sources_mut().for_each(|source| source.end_epoch(decay, idle_epochs));
        let level = self.level();
        let mut shares = 0;
        for source in self.sources_mut() {
            let share = source.share(level);
            shares += share;
            // A share that is less than a datagram adds up to one.
            let most = share.saturating_mul(kept);
            let saved = SAVED * most.min(MAX_DATAGRAM as u64);
            let most = (most + saved).max(MAX_DATAGRAM as u64);
            source.credit = (source.credit + share * epochs.min(kept)).min(most);
        }
        let rest = self.per_epoch.saturating_sub(shares).saturating_mul(epochs);
        self.pool = self.pool.saturating_add(rest).min(self.burst.saturating_sub(shares));
    }

    /// The level `f` in bytes an epoch, from below; infinite where all that is wanted fits.
    fn level(&self) -> f64 {
        let limit = self.per_epoch as f64;
        if self.sources().map(|source| source.demand).sum::<f64>() <= TOO_MUCH * limit {
            return f64::INFINITY;
        }
        let mut level = 0.0;
        for _ in 0..MAX_PASSES {
            let (mut below, mut weights_above) = (0.0, 0.0);
            for source in self.sources() {
                let weight = f64::from(source.weight);
                if source.demand <= weight * level {
                    below += source.demand;
                } else {
                    weights_above += weight;
                }
            }
            if weights_above == 0.0 {
                return f64::INFINITY;
            }
            let reserved = ((HEADROOM - 1.0) * below).min(MOST_RESERVED * limit);
            let next = (limit - below - reserved) / weights_above;
            if next <= level {
                break;
            }
            level = next;
        }
        level
    }

    fn sources(&self) -> impl Iterator<Item = &Account> {
        self.sets.iter().flat_map(|set| &set.sources).chain([&self.others])
    }

    fn sources_mut(&mut self) -> impl Iterator<Item = &mut Account> {
        self.sets.iter_mut().flat_map(|set| &mut set.sources).chain([&mut self.others])
    }
}

#[cfg(test)]
mod tests;
