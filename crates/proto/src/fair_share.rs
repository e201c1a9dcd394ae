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
use crate::wire::MAX_DATAGRAM;

/// Accounts that there are at once, at a relay for strangers: 160 KiB of table. A source has one or two.
pub const MAX_SOURCES: usize = 4096;

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
const TRANSIT_WEIGHT: f64 = 4.0;

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
    weight: f64,
}

impl Account {
    const fn new(weight: f64) -> Account {
        Account { arrived: 0, demand: 0.0, credit: 0, weight }
    }

    fn end_epoch(&mut self, decay: f64, idle_epochs: f64) {
        let arrived = std::mem::take(&mut self.arrived) as f64;
        // From zero, for a source that comes once is not to claim a share of every epoch.
        self.demand = (self.demand * decay + arrived * (1.0 - decay)) * idle_epochs;
    }

    /// Its share in an epoch at `level`.
    fn share(&self, level: f64) -> u64 {
        (HEADROOM * self.demand).min(self.weight * level) as u64
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

    /// Whether `size` bytes of `source`'s `traffic` may pass now, and counts them.
    #[inline]
    pub fn admit(&mut self, now: Time, source: &impl Source, traffic: Traffic, size: Bytes) -> bool {
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
            return false;
        }
        source.credit -= size - beyond;
        *pool -= beyond;
        true
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
                if source.demand <= source.weight * level {
                    below += source.demand;
                } else {
                    weights_above += source.weight;
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
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use anabranch_control::rng::Rng;
    use proptest::prelude::*;

    use super::*;
    use crate::limiter::{Admission, Limiter};

    const LIMIT: u64 = 1_000_000;
    const PACKET: u64 = 1400;
    const SECONDS: u64 = 20;
    /// Averages have settled by then.
    const SETTLED: u64 = 5;

    const MODELS: [LimitModel; 3] = [
        LimitModel::Window { phase: Duration::ZERO },
        LimitModel::Bucket { depth: Bytes::new(LIMIT / 10) },
        LimitModel::Queue { longest: Duration::from_millis(100) },
    ];

    /// Arrivals in nanoseconds since the start, who sent, bytes.
    type Arrival = (u64, u32, u64);

    fn address(source: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0800_0000 + source))
    }

    fn share(model: LimitModel) -> FairShare {
        FairShare::new(model, Rate::from_bytes_per_sec(LIMIT), MAX_SOURCES, [1, 2, 3, 4])
    }

    /// `rate` bytes a second from `source` in packets of `size`, evenly, with a jitter of half a gap.
    fn paced(source: u32, rate: u64, size: u64, seconds: core::ops::Range<u64>) -> impl Iterator<Item = Arrival> {
        let mut rng = Rng::indexed(1, "arrivals", u64::from(source));
        let gap = 1_000_000_000 * size / rate;
        let (first, last) = (seconds.start * 1_000_000_000, seconds.end * 1_000_000_000);
        (0..(last - first) / gap)
            .map(move |number| (first + number * gap + rng.below(gap as usize / 2 + 1) as u64, source, size))
    }

    /// All of a second's at once, at an instant of its own.
    fn bursts(source: u32, rate: u64, seconds: core::ops::Range<u64>) -> impl Iterator<Item = Arrival> {
        let at = Rng::indexed(2, "bursts", u64::from(source)).below(900_000_000) as u64;
        seconds.flat_map(move |second| {
            (0..rate / PACKET).map(move |number| (second * 1_000_000_000 + at + number * 10_000, source, PACKET))
        })
    }

    /// Bytes that passed of each source after `SETTLED` seconds, with shares or by the limiter alone.
    fn passed(model: LimitModel, shares: bool, mut arrivals: Vec<Arrival>, sources: usize) -> Vec<u64> {
        arrivals.sort();
        let mut limiter = Limiter::new(model, Rate::from_bytes_per_sec(LIMIT));
        let mut share = shares.then(|| share(model));
        let mut passed = vec![0; sources];
        for (nanos, source, size) in arrivals {
            let (now, bytes) = (Time::ZERO + Duration::from_nanos(nanos), Bytes::new(size));
            if share.as_mut().is_none_or(|share| share.admit(now, &address(source), Traffic::Originated, bytes))
                && limiter.admit(now, bytes) != Admission::Refused
                && nanos >= SETTLED * 1_000_000_000
                && let Some(passed) = passed.get_mut(source as usize)
            {
                *passed += size;
            }
        }
        passed
    }

    /// Who wanted `rate` bytes a second, and got at least this part of it.
    fn part(passed: u64, rate: u64) -> f64 {
        passed as f64 / (rate * (SECONDS - SETTLED)) as f64
    }

    /// A flooder at ten times the limit and nine who want their tenth.
    fn flood(honest: impl Fn(u32) -> Vec<Arrival>) -> Vec<Arrival> {
        (1..10).flat_map(honest).chain(paced(0, 10 * LIMIT, PACKET, 0..SECONDS)).collect()
    }

    #[test]
    fn a_flooder_takes_nothing_from_those_who_keep_to_their_share() {
        let tenth = LIMIT / 10;
        for model in MODELS {
            let arrivals = flood(|source| paced(source, tenth, PACKET, 0..SECONDS).collect());
            let passed = self::passed(model, true, arrivals.clone(), 10);
            for &bytes in &passed[1..] {
                assert!(part(bytes, tenth) >= 0.9, "{model:?}: {passed:?}");
            }
            assert!(passed.iter().sum::<u64>() as f64 >= 0.9 * (LIMIT * (SECONDS - SETTLED)) as f64, "{passed:?}");
            // Without shares they are left with next to nothing.
            let passed = self::passed(model, false, arrivals, 10);
            assert!(passed[1..].iter().all(|&bytes| part(bytes, tenth) < 0.3), "{model:?}: {passed:?}");
        }
    }

    #[test]
    fn who_sends_a_seconds_share_at_once_keeps_it_under_the_window() {
        let tenth = LIMIT / 10;
        let arrivals = flood(|source| bursts(source, tenth, 0..SECONDS).collect());
        let passed = passed(MODELS[0], true, arrivals, 10);
        assert!(passed[1..].iter().all(|&bytes| part(bytes, tenth) >= 0.9), "{passed:?}");
    }

    #[test]
    fn a_flooder_that_pauses_takes_nothing_either() {
        let tenth = LIMIT / 10;
        for model in MODELS {
            let flood = (0..SECONDS).step_by(2).flat_map(|second| paced(0, 10 * LIMIT, PACKET, second..second + 1));
            let honest = (1..10).flat_map(|source| paced(source, tenth, PACKET, 0..SECONDS));
            let passed = passed(model, true, flood.chain(honest).collect(), 10);
            assert!(passed[1..].iter().all(|&bytes| part(bytes, tenth) >= 0.8), "{model:?}: {passed:?}");
        }
    }

    #[test]
    fn one_that_is_alone_has_the_whole_limit() {
        for model in MODELS {
            for rate in [LIMIT / 2, 2 * LIMIT, 10 * LIMIT] {
                let arrivals: Vec<Arrival> = paced(0, rate, PACKET, 0..SECONDS).collect();
                let (with, without) = (passed(model, true, arrivals.clone(), 1), passed(model, false, arrivals, 1));
                assert!(with[0] as f64 >= 0.98 * without[0] as f64, "{model:?} {rate}: {with:?} of {without:?}");
            }
        }
    }

    #[test]
    fn what_some_do_not_want_is_for_the_others() {
        for model in MODELS {
            let arrivals = paced(0, LIMIT / 10, PACKET, 0..SECONDS)
                .chain(paced(1, LIMIT, PACKET, 0..SECONDS))
                .chain(paced(2, 3 * LIMIT, PACKET, 0..SECONDS));
            let passed = passed(model, true, arrivals.collect(), 3);
            assert!(part(passed[0], LIMIT / 10) >= 0.9, "{model:?}: {passed:?}");
            // Max-min: (1 - 0.1) / 2 each, less the headroom of the first.
            for &bytes in &passed[1..] {
                assert!((0.41..0.49).contains(&part(bytes, LIMIT)), "{model:?}: {passed:?}");
            }
        }
    }

    #[test]
    fn what_a_neighbour_passes_on_is_not_refused_for_what_it_sends_itself() {
        let (neighbour, passed_on) = (address(1), LIMIT / 4);
        for model in MODELS {
            let (mut limiter, mut share) = (Limiter::new(model, Rate::from_bytes_per_sec(LIMIT)), share(model));
            let own = paced(0, 3 * LIMIT, PACKET, 0..SECONDS).map(|arrival| (arrival, Traffic::Originated));
            let others = paced(1, passed_on, PACKET, 0..SECONDS).map(|arrival| (arrival, Traffic::Transit));
            let mut arrivals: Vec<(Arrival, Traffic)> = own.chain(others).collect();
            arrivals.sort_by_key(|&((nanos, ..), _)| nanos);
            let mut passed = [0; 2];
            for ((nanos, _, size), traffic) in arrivals {
                let (now, bytes) = (Time::ZERO + Duration::from_nanos(nanos), Bytes::new(size));
                if share.admit(now, &neighbour, traffic, bytes)
                    && limiter.admit(now, bytes) != Admission::Refused
                    && nanos >= SETTLED * 1_000_000_000
                {
                    passed[traffic as usize] += size;
                }
            }
            assert!(part(passed[1], passed_on) >= 0.98, "{model:?}: {passed:?}");
            assert!((0.65..0.76).contains(&part(passed[0], LIMIT)), "the rest is its own, {model:?}: {passed:?}");
        }
    }

    #[test]
    fn who_calls_its_own_transit_has_no_more_than_both_weights() {
        for model in MODELS {
            let mut share = share(model);
            let (mut liar, mut honest) = (0, 0);
            for step in 0..SECONDS * 10_000 {
                let now = Time::ZERO + Duration::from_nanos(100_000) * step;
                for traffic in [Traffic::Originated, Traffic::Transit] {
                    liar += u64::from(share.admit(now, &address(0), traffic, Bytes::new(PACKET)));
                }
                honest += u64::from(share.admit(now, &address(1), Traffic::Originated, Bytes::new(PACKET)));
            }
            let ratio = liar as f64 / honest as f64;
            assert!((4.0..=1.05 * (1.0 + TRANSIT_WEIGHT)).contains(&ratio), "{model:?}: {ratio}");
        }
    }

    #[test]
    fn strangers_from_many_addresses_push_nobody_out_who_is_active() {
        const STRANGERS: u32 = 20_000;
        for model in MODELS {
            let shortest = 35;
            let strangers = (0..SECONDS).flat_map(|second| {
                (0..STRANGERS).map(move |number| {
                    let at = second * 1_000_000_000 + u64::from(number) * (1_000_000_000 / u64::from(STRANGERS));
                    (at, 10 + second as u32 * STRANGERS + number, shortest)
                })
            });
            // Together they want 70 % of the limit.
            let honest = paced(0, LIMIT / 4, PACKET, 0..SECONDS).chain(paced(1, 10 * LIMIT, PACKET, 0..SECONDS));
            let passed = passed(model, true, strangers.chain(honest).collect(), 2);
            assert!(part(passed[0], LIMIT / 4) >= 0.8, "{model:?}: {passed:?}");
        }
    }

    #[test]
    fn a_place_is_given_away_when_its_source_has_been_idle_and_no_sooner() {
        let mut share = share(MODELS[0]);
        let ask = |share: &mut FairShare, second: u64, sources: core::ops::Range<u32>| {
            let now = Time::ZERO + Duration::SECOND * second;
            for source in sources {
                share.admit(now, &address(source), Traffic::Originated, Bytes::new(200));
            }
        };
        let known = |share: &FairShare| -> std::collections::BTreeSet<u64> {
            share.sets.iter().flat_map(|set| set.names).filter(|&name| name != 0).collect()
        };
        ask(&mut share, 0, 0..100_000);
        let first = known(&share);
        assert_eq!(first.len(), MAX_SOURCES);
        ask(&mut share, 1, 100_000..200_000);
        assert_eq!(known(&share), first, "an average of 100 bytes a second");
        // 100, 50, 25 bytes a second.
        ask(&mut share, 4, 100_000..200_000);
        assert!(known(&share).is_disjoint(&first));
    }

    #[test]
    fn one_host_is_one_source_whatever_its_port_or_interface_identifier() {
        let v6 = |low: u16| IpAddr::V6(Ipv6Addr::new(0x2600, 1, 2, 3, low, low, low, low));
        assert_eq!(v6(1).prefix(), v6(9).prefix());
        assert_ne!(v6(1).prefix(), IpAddr::V6(Ipv6Addr::new(0x2600, 1, 2, 4, 1, 1, 1, 1)).prefix());
        assert_ne!(address(1).prefix(), address(2).prefix());
    }

    #[test]
    fn shares_follow_a_limit_that_changes() {
        for model in MODELS {
            let mut share = share(model);
            let mut passed = [0u64; 2];
            for step in 0..40_000u64 {
                let now = Time::ZERO + Duration::from_millis(1) * step;
                if step == 20_000 {
                    share.set_limit(Rate::from_bytes_per_sec(LIMIT / 4));
                }
                // Two times the first limit, and eight times the second; each half begins to settle.
                if share.admit(now, &address((step % 2) as u32), Traffic::Originated, Bytes::new(2 * LIMIT / 1000))
                    && step % 20_000 >= 10_000
                {
                    passed[(step / 20_000) as usize] += 2 * LIMIT / 1000;
                }
            }
            let rates = passed.map(|bytes| bytes as f64 / 10.0 / LIMIT as f64);
            assert!((0.8..1.05).contains(&rates[0]) && (0.2..0.27).contains(&rates[1]), "{model:?}: {rates:?}");
        }
    }

    #[test]
    fn a_share_below_a_datagram_adds_up_to_one() {
        // Forty sources and a limit of two packets a second.
        let model = LimitModel::Window { phase: Duration::ZERO };
        let mut share = FairShare::new(model, Rate::from_bytes_per_sec(2 * PACKET), MAX_SOURCES, [1, 2, 3, 4]);
        let mut passed = [0u32; 40];
        for step in 0..4000u64 {
            let now = Time::ZERO + Duration::from_millis(100) * step;
            for (source, passed) in passed.iter_mut().enumerate() {
                *passed +=
                    u32::from(share.admit(now, &address(source as u32), Traffic::Originated, Bytes::new(PACKET)));
            }
        }
        assert!(passed.iter().all(|&passed| (10..=30).contains(&passed)), "{passed:?}");
    }

    proptest! {
        /// Whatever comes, an epoch admits no more than shares that were kept and a burst.
        #[test]
        fn what_is_admitted_is_bounded(
            arrivals in proptest::collection::vec((0u64..3_000_000_000, 0u32..12, 35u64..1473), 1..800),
            model in proptest::sample::select(MODELS.to_vec()),
        ) {
            let mut arrivals = arrivals;
            arrivals.sort();
            let mut share = share(model);
            let mut admitted = 0;
            for &(nanos, source, size) in &arrivals {
                let now = Time::ZERO + Duration::from_nanos(nanos);
                admitted += if share.admit(now, &address(source), Traffic::Originated, Bytes::new(size)) { size } else { 0 };
            }
            // The limit of four seconds, a burst, and a datagram of each source.
            prop_assert!(admitted <= 4 * LIMIT + share.burst + 12 * MAX_DATAGRAM as u64);
        }
    }
}
