use std::collections::BTreeSet;

use anabranch_control::rng::Rng;
use proptest::prelude::*;

use super::*;
use crate::directory::clock::{DAY, UnixTime};
use crate::directory::testing::{document, key};
use crate::directory::{Family, Member};
use crate::guards::{GuardState, Guards};

const WALL: UnixTime = UnixTime(1_000 * DAY);

/// Every controller that any sender can have, of each kind.
const PLACEMENTS: [&str; 9] =
    ["per-path", "random", "aimd", "aimd-literal", "q-learning", "flow:cubic", "flow:bbr3", "tomography", "timeouts"];

fn config(placement: &str) -> RoutesConfig {
    RoutesConfig { placement: placement.to_owned(), ..RoutesConfig::default() }
}

fn routes(placement: &str, document: &Document, guards: usize, seed: u64) -> Routes {
    let choice =
        Guards::new(guards, GuardState::default()).choose(document, Time::ZERO, WALL, &mut Rng::stream(seed, "guards"));
    Routes::new(config(placement), document, guards, choice, Time::ZERO).unwrap()
}

#[test]
fn what_goes_by_what_relays_grant_or_what_nobody_knows_is_refused() {
    let refused = |placement: &str| config(placement).check().unwrap_err();
    assert_eq!(refused("explicit-rate"), PlacementError::Blind("explicit-rate"));
    assert_eq!(refused("perfect"), PlacementError::Omniscient("perfect"));
    // Flow controllers that need a file or a table, which nothing here gives.
    for entry in anabranch_control::flow::registry::CONTROLLERS {
        let is_taken = config(&format!("flow:{}", entry.name)).check().is_ok();
        assert_eq!(is_taken, entry.needs().is_none(), "flow:{}", entry.name);
    }
}

fn request(half: Half, elsewhere: &[RelayIndex]) -> Request<'_> {
    Request { half, elsewhere, far: 0 }
}

/// Four relays in each network, and four in each family across networks.
fn crowded(relays: usize) -> Document {
    let mut document = document(1, relays);
    let family = |number: usize| key(500 + number as u16);
    for (place, member) in document.members.iter_mut().enumerate() {
        member.descriptor.address = ([10, 0, (place / 4) as u8, place as u8 + 1], 9).into();
        member.descriptor.family = Some(Family::admit(&family(place % (relays / 4)), &member.descriptor.identity));
        member.weight = 1 + (place as u64 * 7919) % 1_000;
    }
    document
}

fn member(document: &Document, relay: RelayIndex) -> &Member {
    document.member(relay).unwrap()
}

#[test]
fn p07_a_guard_is_never_a_middle_and_no_relay_stands_twice() {
    let document = crowded(40);
    for placement in PLACEMENTS {
        for guards in [0, 1, 2, 3] {
            let mut routes = routes(placement, &document, guards, 3);
            let mut rng = Rng::stream(guards as u64, placement);
            let reserved: BTreeSet<RelayIndex> = routes.guards.reserved.iter().copied().collect();
            assert_eq!(reserved.len(), guards);
            for packet in 0..400u16 {
                // The exit is no guard: who holds both ends would need no more.
                let exit = (0..40).map(|i| RelayIndex((packet + i) % 40)).find(|r| !reserved.contains(r)).unwrap();
                let half = if packet % 2 == 0 { Half::FromUser } else { Half::ToUser };
                let now = Time::from_nanos(u64::from(packet) * 1_000_000);
                let elsewhere = [exit];
                let route = match routes.choose(now, request(half, &elsewhere), &mut rng) {
                    Ok(route) => route,
                    // All of one guard's family or network are elsewhere.
                    Err(error) => {
                        assert!(guards > 0 && error == RouteError::TooFewRelays { hops: 3 }, "{placement}: {error}");
                        continue;
                    }
                };
                let path = route.path.relays();
                assert_eq!(path.len(), 3);
                if guards > 0 {
                    let guard = if half == Half::FromUser { path[0] } else { path[2] };
                    assert!(reserved.contains(&guard), "{placement}: the edge is a guard");
                    assert_eq!(path.iter().filter(|relay| reserved.contains(relay)).count(), 1, "{placement}");
                }
                let whole: Vec<RelayIndex> = path.iter().copied().chain([exit]).collect();
                let networks: BTreeSet<Network> = whole.iter().map(|r| member(&document, *r).network()).collect();
                let families: BTreeSet<_> = whole.iter().map(|r| member(&document, *r).family()).collect();
                assert_eq!((networks.len(), families.len()), (4, 4), "{placement}: {whole:?}");
                let fate = if packet % 7 == 0 { Fate::Lost } else { Fate::Arrived { one_way_nanos: Some(30_000_000) } };
                routes.on_outcome(route.id, now + Duration::from_millis(80), fate, &mut rng);
            }
            assert_eq!(routes.open(), 0);
        }
    }
}

/// How often each relay is a middle, when packets meet `arrives`.
fn shares(routes: &mut Routes, packets: u64, mut arrives: impl FnMut(&[RelayIndex], &mut Rng) -> bool) -> Vec<f64> {
    let mut rng = Rng::stream(9, "shares");
    let mut counts = vec![0u64; routes.places.len()];
    for packet in 0..packets {
        let now = Time::from_nanos(packet * 2_000_000);
        let route = routes.choose(now, request(Half::FromUser, &[]), &mut rng).unwrap();
        if packet >= packets / 2 {
            route.path.relays().iter().for_each(|relay| counts[usize::from(relay.0)] += 1);
        }
        let fate = match arrives(route.path.relays(), &mut rng) {
            true => Fate::Arrived { one_way_nanos: Some(50_000_000) },
            false => Fate::Lost,
        };
        routes.on_outcome(route.id, now + Duration::from_millis(100), fate, &mut rng);
    }
    let total: u64 = counts.iter().sum();
    counts.iter().map(|&count| count as f64 / total as f64).collect()
}

/// The adversary runs a fifth of the relays and drops every packet that does not pass them alone, or
/// else loses all ACKs of others: whoever learns sees honest relays fail.
#[test]
fn p10_selective_drops_do_not_draw_traffic_to_who_drops() {
    let document = document(1, 30);
    for placement in ["random", "aimd", "q-learning", "tomography", "timeouts", "flow:cubic"] {
        let mut routes = routes(placement, &document, 0, 1);
        let bad = |relay: &RelayIndex| relay.0 < 6;
        let seen = shares(&mut routes, 40_000, |path, _| {
            let owned = path.iter().filter(|relay| bad(relay)).count();
            owned == 0 || owned == path.len()
        });
        let attracted: f64 = seen[..6].iter().sum();
        assert!(attracted <= CAP * 0.2, "{placement}: a fifth of the relays gets {attracted}");
        assert!(seen.iter().all(|share| *share > 0.0), "{placement}: every relay is tried");
    }
}

/// Three relays of thirty look far better than the others: they get twice their weight, and no more.
#[test]
fn p10_a_greedy_relay_attracts_at_most_twice_its_weight() {
    let document = document(1, 30);
    for placement in ["aimd", "q-learning", "tomography", "timeouts", "flow:cubic"] {
        let mut routes = routes(placement, &document, 0, 1);
        let seen = shares(&mut routes, 40_000, |path, rng| path.iter().all(|relay| relay.0 < 3 || rng.chance(0.8)));
        let attracted: f64 = seen[..3].iter().sum();
        assert!(attracted <= CAP * 0.1 + 0.005, "{placement}: {attracted}");
    }
}

/// Not so Reno for each relay: with a fifth of all packets lost, every window is the least one.
#[test]
fn learners_move_packets_from_relays_that_drop() {
    let document = document(1, 30);
    for placement in ["q-learning", "tomography", "timeouts", "aimd"] {
        let mut routes = routes(placement, &document, 0, 1);
        let seen = shares(&mut routes, 40_000, |path, rng| path.iter().all(|relay| relay.0 >= 6 || rng.chance(0.5)));
        let droppers: f64 = seen[..6].iter().sum();
        assert!(droppers < 0.13, "{placement}: a fifth of the relays drops half, and gets {droppers}");
    }
    let mut random = routes("random", &document, 0, 1);
    let blind: f64 = shares(&mut random, 40_000, |_, _| true)[..6].iter().sum();
    assert!((blind - 0.2).abs() < 0.01, "{blind}");
}

#[test]
fn a_relay_that_is_gone_has_the_least_share_soon_then_less_and_its_own_again_when_it_is_back() {
    for placement in PLACEMENTS.into_iter().filter(|placement| !["random", "per-path"].contains(placement)) {
        let mut routes = routes(placement, &document(1, 12), 1, 6);
        let gone = (0..12).map(RelayIndex).find(|relay| !routes.guards.reserved.contains(relay)).unwrap();
        let weight = |routes: &Routes, of: &dyn Fn(usize) -> bool| -> f64 {
            let places = routes.places.iter().enumerate();
            places.filter(|(place, other)| !other.is_reserved && of(*place)).map(|(_, other)| other.weight).sum()
        };
        let own = |place| place == usize::from(gone.0);
        // Of the share that is advertised.
        let share = |routes: &Routes| routes.middles.of(gone) * weight(routes, &|_| true) / weight(routes, &own);
        shares(&mut routes, 3000, |_, _| true);
        assert!(share(&routes) > 2.0 * FLOOR, "{placement}: {}", share(&routes));
        shares(&mut routes, 600, |path, _| !path.contains(&gone));
        assert!((0.2 * FLOOR..FLOOR + 1e-9).contains(&share(&routes)), "{placement}: {}", share(&routes));
        // It is asked ever more seldom, but asked.
        shares(&mut routes, 30_000, |path, _| !path.contains(&gone));
        let (share_then, lost) = (share(&routes), routes.used(gone).lost);
        assert!((0.01 * FLOOR..0.7 * FLOOR).contains(&share_then), "{placement}: {share_then}");
        assert!((12..600).contains(&lost), "{placement}: {lost}");
        shares(&mut routes, 6000, |_, _| true);
        assert!(share(&routes) > FLOOR, "{placement}: {}", share(&routes));
    }
}

#[test]
fn a_path_over_a_suspect_is_a_trial_while_most_relays_are_none() {
    let document = document(1, 12);
    let mut routes = routes("timeouts", &document, 0, 1);
    let mut rng = Rng::stream(1, "trials");
    let mut now = Time::ZERO;
    let mut send = |routes: &mut Routes, packets: u32, arrives: &dyn Fn(&[RelayIndex]) -> bool| {
        let mut trials = Vec::new();
        for _ in 0..packets {
            now += Duration::from_millis(10);
            let Route { id, path, is_trial } = routes.choose(now, request(Half::FromUser, &[]), &mut rng).unwrap();
            let fate = if arrives(path.relays()) { Fate::Arrived { one_way_nanos: None } } else { Fate::Lost };
            routes.on_outcome(id, now, fate, &mut rng);
            trials.push((path.relays().contains(&RelayIndex(3)), is_trial));
        }
        trials
    };
    assert!(send(&mut routes, 300, &|_| true).iter().all(|(_, is_trial)| !is_trial));
    send(&mut routes, 300, &|path| !path.contains(&RelayIndex(3)));
    let later = send(&mut routes, 2000, &|path| !path.contains(&RelayIndex(3)));
    assert!(later.iter().any(|(over, _)| *over) && later.iter().all(|(over, is_trial)| over == is_trial));
    // Nothing arrives: that is the network's, and to be reckoned with.
    send(&mut routes, 300, &|_| false);
    assert!(send(&mut routes, 300, &|_| false).iter().all(|(_, is_trial)| !is_trial));
}

#[test]
fn per_path_leaves_paths_that_lose() {
    let document = document(1, 30);
    let mut routes = routes("per-path", &document, 0, 1);
    let seen = shares(&mut routes, 40_000, |path, rng| path.iter().all(|relay| relay.0 >= 6 || rng.chance(0.5)));
    let droppers: f64 = seen[..6].iter().sum();
    assert!(droppers < 0.1, "{droppers}");
}

#[test]
fn a_new_epoch_keeps_what_was_learned_and_guards_their_places() {
    let first = document(1, 30);
    let mut routes = routes("timeouts", &first, 0, 1);
    shares(&mut routes, 10_000, |path, rng| path.iter().all(|relay| relay.0 >= 6 || rng.chance(0.5)));
    let worst = first.members[0].descriptor.identity;
    let rate = routes.rate(RelayIndex(0));
    let mut next = document(2, 33);
    next.members.remove(5);
    routes.renew(&next, Choice::default(), Time::from_secs_f64(30.0)).unwrap();
    assert!(rate.is_some() && routes.rate(next.index_of(&worst).unwrap()) == rate);
    // This many new ones that there is no room: it begins anew, and works.
    let other = document(3, 300);
    let open = routes.choose(Time::ZERO, request(Half::FromUser, &[]), &mut Rng::stream(1, "r")).unwrap();
    routes.renew(&other, Choice::default(), Time::from_secs_f64(60.0)).unwrap();
    routes.on_outcome(open.id, Time::from_secs_f64(61.0), Fate::Lost, &mut Rng::stream(1, "r"));
    assert_eq!(routes.rate(RelayIndex(0)), None);
    let after = routes.choose(Time::ZERO, request(Half::FromUser, &[]), &mut Rng::stream(1, "r")).unwrap();
    assert!(after.id > open.id, "names are not used twice");
}

#[test]
fn what_cannot_work_is_said() {
    let few = document(1, 2);
    let mut routes = routes("random", &few, 0, 1);
    let refused = routes.choose(Time::ZERO, request(Half::FromUser, &[]), &mut Rng::stream(1, "r"));
    assert_eq!(refused, Err(RouteError::TooFewRelays { hops: 3 }));
    let mut guarded = Routes::new(config("random"), &document(1, 9), 2, Choice::default(), Time::ZERO).unwrap();
    let refused = guarded.choose(Time::ZERO, request(Half::FromUser, &[]), &mut Rng::stream(1, "r"));
    assert_eq!(refused, Err(RouteError::NoGuard));
    assert_eq!(RoutesConfig { hops: 5, ..config("random") }.check(), Err(PlacementError::Hops(5)));
    assert_eq!(config("perfect").check(), Err(PlacementError::Omniscient("perfect")));
    assert!(config("tomografy").check().unwrap_err().to_string().contains("did you mean \"tomography\""));
    let parameters = "paths = 0".parse().unwrap();
    assert!(RoutesConfig { parameters, ..config("per-path") }.check().is_err());
}

#[test]
fn what_is_never_answered_is_given_up() {
    let document = document(1, 9);
    let mut routes = routes("flow:reno", &document, 0, 1);
    let mut rng = Rng::stream(1, "open");
    let first = routes.choose(Time::ZERO, request(Half::FromUser, &[]), &mut rng).unwrap();
    for _ in 0..MOST_OPEN + 10 {
        routes.choose(Time::ZERO, request(Half::FromUser, &[]), &mut rng).unwrap();
    }
    assert_eq!(routes.open(), MOST_OPEN);
    routes.on_outcome(first.id, Time::ZERO, Fate::Lost, &mut rng);
    routes.on_outcome(RouteId(u64::MAX), Time::ZERO, Fate::Lost, &mut rng);
    assert_eq!(routes.open(), MOST_OPEN);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Outcomes in any order, twice, of packets that never were.
    #[test]
    fn no_order_of_outcomes_breaks_a_route(
        placement in prop::sample::select(&PLACEMENTS[..]),
        calls in prop::collection::vec((any::<bool>(), 0u64..80, 0u64..2_000_000_000, any::<Option<i64>>()), 1..120),
    ) {
        let document = crowded(24);
        let mut routes = routes(placement, &document, 1, 1);
        let (mut rng, mut now) = (Rng::stream(1, "calls"), Time::ZERO);
        for (sends, id, span, one_way_nanos) in calls {
            now += Duration::from_nanos(span);
            if sends {
                let route = routes.choose(now, request(Half::ToUser, &[]), &mut rng);
                prop_assert!(route.is_ok_and(|route| route.path.relays().len() == 3));
            } else {
                let fate = one_way_nanos.map_or(Fate::Lost, |_| Fate::Arrived { one_way_nanos });
                routes.on_outcome(RouteId(id), now, fate, &mut rng);
            }
        }
        let sum: f64 = (0..24).map(|i| routes.share(RelayIndex(i))).sum();
        prop_assert!((sum - 1.0).abs() < 1e-6);
    }
}

#[test]
fn what_was_sent_over_each_relay_is_counted_by_place_and_by_outcome() {
    let document = document(1, 40);
    for placement in ["random", "per-path", "timeouts"] {
        let mut routes = routes(placement, &document, 2, 4);
        let mut rng = Rng::stream(4, placement);
        for packet in 0..300u64 {
            let now = Time::from_nanos(packet * 1_000_000);
            let route = routes.choose(now, request(Half::FromUser, &[]), &mut rng).unwrap();
            let fate = if packet % 3 == 0 { Fate::Lost } else { Fate::Arrived { one_way_nanos: None } };
            if packet % 5 > 0 {
                routes.on_outcome(route.id, now, fate, &mut rng);
            }
        }
        let used = |relay: u16| routes.used(RelayIndex(relay));
        for place in 0..3 {
            assert_eq!((0..40).map(|relay| used(relay).at[place]).sum::<u64>(), 300, "{placement}");
        }
        // Only guards stand first, and each packet has one outcome at each of its three relays.
        let guards: Vec<RelayIndex> = routes.guards.in_use.clone();
        assert!(document.relays().all(|(relay, _)| guards.contains(&relay) == (used(relay.0).at[0] > 0)));
        let of_guards = |of: fn(Used) -> u64| guards.iter().map(|guard| of(routes.used(*guard))).sum::<u64>();
        assert_eq!((of_guards(|used| used.arrived), of_guards(|used| used.lost)), (160, 80), "{placement}");
        assert_eq!((0..40).map(|relay| used(relay).arrived + used(relay).lost).sum::<u64>(), 3 * 240);
        assert_eq!(routes.used(RelayIndex(400)), Used::default());
    }
}
