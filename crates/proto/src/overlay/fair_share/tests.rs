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
        if share
            .as_mut()
            .is_none_or(|share| share.admit(now, &address(source), Traffic::Originated, bytes, None).passes)
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
            if share.admit(now, &neighbour, traffic, bytes, None).passes
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
                liar += u64::from(share.admit(now, &address(0), traffic, Bytes::new(PACKET), None).passes);
            }
            honest += u64::from(share.admit(now, &address(1), Traffic::Originated, Bytes::new(PACKET), None).passes);
        }
        let ratio = liar as f64 / honest as f64;
        assert!((4.0..=1.05 * (1.0 + f64::from(TRANSIT_WEIGHT))).contains(&ratio), "{model:?}: {ratio}");
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
            share.admit(now, &address(source), Traffic::Originated, Bytes::new(200), None);
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
            if share
                .admit(now, &address((step % 2) as u32), Traffic::Originated, Bytes::new(2 * LIMIT / 1000), None)
                .passes
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
            *passed += u32::from(
                share.admit(now, &address(source as u32), Traffic::Originated, Bytes::new(PACKET), None).passes,
            );
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
            admitted += if share.admit(now, &address(source), Traffic::Originated, Bytes::new(size), None).passes { size } else { 0 };
        }
        // The limit of four seconds, a burst, and a datagram of each source.
        prop_assert!(admitted <= 4 * LIMIT + share.burst + 12 * MAX_DATAGRAM as u64);
    }
}
