use super::*;
use crate::stream::message::{FeedReport, Report, SilentFeed};
use crate::stream::on_wire;

const SLICES: u8 = 8;
const MBIT: fn(u64) -> Rate = |megabits| Rate::from_bits_per_sec(1_000_000 * megabits);

fn at(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

/// Viewers of a stream of 1 Mbit/s, who can send `upload` each; the server can send it `copies` times.
fn audience(viewers: u32, upload: Rate, copies: u64) -> (Tracker<u32>, Vec<ClientId>) {
    let mut tracker = Tracker::new(TrackerConfig {
        slices: SLICES,
        moves: Moves::ALL,
        // A third of a copy for what is kept free, and for headers.
        upload: Rate::from_bits_per_sec(1_340_000 * copies),
        reserve: 0.0,
        silence: Duration::from_millis(10_000),
        has_backups: true,
        most_clients: 100,
    });
    tracker.set_bitrate(MBIT(1));
    let clients =
        (0..viewers).map(|viewer| join(&mut tracker, at(0), viewer, upload).expect("there is room")).collect();
    (tracker, clients)
}

fn join(tracker: &mut Tracker<u32>, now: Time, viewer: u32, upload: Rate) -> Result<ClientId, Refusal> {
    let mut key = [0; 32];
    key[..4].copy_from_slice(&viewer.to_be_bytes());
    let remote = Remote { address: viewer, key: PeerKey(key), is_initiator: true };
    tracker.join(now, SessionId(viewer), &remote, upload, None)
}

fn parent_of(tracker: &Tracker<u32>, slice: u8, client: ClientId) -> Option<ClientId> {
    let node = tracker.viewer(client)?.node;
    tracker.contact(tracker.book.parent(usize::from(slice), node)?).map(|contact| contact.client)
}

/// Each slice that one viewer gets from another: slice, child, parent.
fn fed(tracker: &Tracker<u32>, clients: &[ClientId]) -> Vec<(u8, ClientId, ClientId)> {
    let all = clients.iter().flat_map(|&child| (0..SLICES).map(move |slice| (slice, child)));
    all.filter_map(|(slice, child)| Some((slice, child, parent_of(tracker, slice, child)?))).collect()
}

/// `child` reports that of each slice, from each parent, this part has come.
fn says(tracker: &mut Tracker<u32>, now: Time, child: ClientId, part: impl Fn(u8, Option<ClientId>) -> f64) {
    let feed = |slice: u8| {
        let parent = parent_of(tracker, slice, child);
        FeedReport { slice, parent, expected: 10, received: (10.0 * part(slice, parent)) as u16 }
    };
    let feeds = (0..SLICES).map(feed).collect();
    tracker.on_report(now, child, &Report { feeds, ..Report::default() });
}

fn silent(slice: u8, parent: ClientId, asked: Option<ClientId>, is_excused: bool) -> SilentFeed {
    SilentFeed { slice, parent: Some(parent), asked, is_excused }
}

#[test]
fn viewers_keep_less_for_repairs_where_places_lack_and_all_again_once_they_do_not() {
    let (mut tracker, _) = audience(0, MBIT(1), 2);
    tracker.config.reserve = 0.2;
    // Without a reserve 9 children each, of the 8 that it takes: with a fifth kept 7, with a tenth and less 8.
    let (slice, slices) = (tracker.slice_rate().bytes_per_sec(), f64::from(SLICES));
    let acks = on_wire::ACKS * MBIT(1).bytes_per_sec();
    let upload = Rate::from_bytes_per_sec_f64(9.1 * slice + acks);
    let places = |tracker: &Tracker<u32>| tracker.viewers().map(|viewer| viewer.places).collect::<Vec<_>>();
    let (mut now, mut kept) = (0, Vec::new());
    for viewer in 0..40 {
        now += 100;
        join(&mut tracker, at(now), viewer, upload).expect("there is room");
        kept.push(tracker.kept_part);
    }
    let all = kept.iter().filter(|part| **part == 0).count();
    assert!((8..16).contains(&all) && kept[all..].iter().all(|part| *part == 1), "{kept:?}");
    assert!(places(&tracker).iter().all(|places| *places == 8), "{:?}", places(&tracker));
    let held = tracker.config.upload;
    // The server can feed all by itself now.
    tracker.set_upload(Rate::from_bytes_per_sec_f64(100.0 * slices * slice));
    let _ = tracker.review(at(now + 100));
    assert_eq!(tracker.kept_part, 0);
    assert!(places(&tracker).iter().all(|places| *places == 7), "{:?}", places(&tracker));
    // Nobody comes: what is kept stays though places lack.
    tracker.set_upload(held);
    let _ = tracker.review(at(now + 200));
    assert_eq!(tracker.kept_part, 0);
}

#[test]
fn viewers_learn_of_their_places_in_turn_and_each_of_all_that_is_new() {
    let (mut tracker, clients) = audience(10, MBIT(4), 6);
    let assigned = |tracker: &mut Tracker<u32>| tracker.next_assignment().map(|(session, _)| session.0);
    let all: Vec<u32> = std::iter::from_fn(|| assigned(&mut tracker)).collect();
    assert_eq!(all, (0..10).collect::<Vec<_>>(), "each once");
    // Half of them are told of a change, and then of another: the others are not forgotten for it.
    let change = |tracker: &mut Tracker<u32>| {
        let slots: Vec<usize> = clients.iter().map(|client| tracker.slots[client]).collect();
        slots.iter().for_each(|&slot| tracker.viewers[slot].as_mut().unwrap().has_new_places = true);
        tracker.news.extend(slots);
    };
    change(&mut tracker);
    let half: Vec<u32> = (0..5).filter_map(|_| assigned(&mut tracker)).collect();
    change(&mut tracker);
    let rest: Vec<u32> = std::iter::from_fn(|| assigned(&mut tracker)).collect();
    assert_eq!((half, rest), (vec![0, 1, 2, 3, 4], vec![5, 6, 7, 8, 9, 0, 1, 2, 3, 4]));
}

#[test]
fn what_messages_take_is_kept_back_unless_nobody_else_can_feed_a_newcomer() {
    let (mut tracker, _) = audience(0, MBIT(4), 6);
    let (all, room) = (tracker.server_room(), |tracker: &Tracker<u32>| tracker.room_beside_messages());
    assert_eq!(room(&tracker), all);
    tracker.set_control(Rate::from_bits_per_sec(1_340_000 * 3));
    assert_eq!(room(&tracker), all / 2);
    tracker.set_control(MBIT(1000));
    assert_eq!(room(&tracker), 0);
    // Who can be fed by nobody else is let in nevertheless.
    let others = (0..90).take_while(|&viewer| join(&mut tracker, at(0), viewer, Rate::ZERO).is_ok()).count();
    assert_eq!(others, all / usize::from(SLICES));
}

#[test]
fn the_server_gives_away_whom_viewers_have_room_for() {
    // Each viewer could hold three streams, and the server six, so that viewers have to prove themselves first.
    let (mut tracker, clients) = audience(40, MBIT(4), 6);
    let held = |tracker: &Tracker<u32>| tracker.book.places(NodeId::SERVER).1;
    let before = held(&tracker);
    for second in 1..60 {
        // Nobody holds more than one stream's worth of children before those say that they get it.
        clients.iter().for_each(|&child| says(&mut tracker, at(1000 * second), child, |_, _| 1.0));
        tracker.review(at(1000 * second));
        tracker.improve(at(1000 * second));
    }
    let after = held(&tracker);
    assert!(before > 4 * usize::from(SLICES), "the server held {before}");
    assert!(after <= 3 * usize::from(SLICES), "the server holds {after}");
    assert_eq!(tracker.book.waiting().count(), 0);
}

#[test]
fn a_child_keeps_the_parent_that_it_has_found_itself() {
    let (mut tracker, clients) = audience(12, MBIT(4), 3);
    let mut kept = 0;
    for (slice, child, parent) in fed(&tracker, &clients) {
        let node = |client| tracker.viewer(client).unwrap().node;
        let backups = tracker.book.backups(usize::from(slice), node(child));
        let Some(asked) = backups[0].and_then(|node| tracker.contact(node)).map(|contact| contact.client) else {
            continue;
        };
        if parent_of(&tracker, slice, child) != Some(parent) {
            continue;
        }
        tracker.on_silent(at(5000), child, &silent(slice, parent, Some(asked), true));
        assert_eq!(parent_of(&tracker, slice, child), Some(asked));
        kept += 1;
    }
    assert!(kept > 10, "{kept}");
}

#[test]
fn places_are_kept_free_for_children_in_need_only_where_there_are_enough() {
    let (plenty, _) = audience(12, MBIT(4), 3);
    assert!(plenty.has_spare);
    for viewer in plenty.viewers() {
        assert_eq!(plenty.book.places(viewer.node).0, plenty.planned(viewer.places));
        assert!(plenty.planned(viewer.places) <= viewer.places);
    }
    // Each passes on what it gets, and no more.
    let (scarce, _) = audience(12, Rate::from_bits_per_sec(1_150_000), 1);
    assert!(!scarce.has_spare);
    assert!(scarce.viewers().all(|viewer| scarce.book.places(viewer.node).0 == viewer.places));
}

#[test]
fn nobody_is_blamed_by_who_is_not_its_child_nor_when_it_has_just_come() {
    let (mut tracker, clients) = audience(12, MBIT(4), 3);
    let feeds = fed(&tracker, &clients);
    let suspect = |tracker: &mut Tracker<u32>| !tracker.take_questions().is_empty();
    for &(slice, child, parent) in &feeds {
        tracker.on_silent(at(1000), child, &silent(slice, parent, None, false));
    }
    assert!(!suspect(&mut tracker), "they have just come");
    let (mut tracker, clients) = audience(12, MBIT(4), 3);
    let victim = fed(&tracker, &clients)[0].2;
    for &liar in &clients {
        for slice in 0..SLICES {
            if parent_of(&tracker, slice, liar) != Some(victim) {
                tracker.on_silent(at(5000), liar, &silent(slice, victim, None, false));
            }
        }
    }
    assert!(!suspect(&mut tracker), "none of them is its child");
}

/// Five seconds on, all but `dead` and their children have just been heard of; one child of a dead viewer says that
/// nothing comes from it.
fn after_deaths(tracker: &mut Tracker<u32>, clients: &[ClientId], dead: &[ClientId]) -> (u8, ClientId, ClientId) {
    let orphan =
        fed(tracker, clients).into_iter().find(|(_, child, parent)| dead.contains(parent) && !dead.contains(child));
    let (slice, child, parent) = orphan.expect("somebody feeds somebody");
    for &client in clients.iter().filter(|client| !dead.contains(client)) {
        tracker.on_heard(at(4900), client);
    }
    tracker.on_silent(at(5000), child, &silent(slice, parent, None, false));
    (slice, child, parent)
}

#[test]
fn who_was_not_heard_of_since_somebody_died_gets_no_child_before_it_answers() {
    let (mut tracker, clients) = audience(24, MBIT(4), 3);
    tracker.take_questions();
    let dead = &clients[3..9];
    let (slice, child, _) = after_deaths(&mut tracker, &clients, dead);
    let parent = parent_of(&tracker, slice, child);
    assert!(parent.is_none_or(|parent| !dead.contains(&parent)), "{parent:?}");
    let asked = tracker.take_questions();
    let sessions: Vec<SessionId> = dead.iter().map(|dead| tracker.viewer(*dead).unwrap().session).collect();
    assert_eq!(asked, sessions, "nobody else, and each once");
    let mut moved = 0;
    for (slice, child, parent) in fed(&tracker, &clients) {
        if dead.contains(&parent) && !dead.contains(&child) {
            tracker.on_silent(at(5050), child, &silent(slice, parent, None, false));
            let now = parent_of(&tracker, slice, child);
            assert!(now == Some(parent) || now.is_none_or(|now| !dead.contains(&now)), "{now:?}");
            moved += usize::from(now != Some(parent));
        }
    }
    assert!(moved > 10, "{moved}");
    let node = |client| tracker.viewer(client).unwrap().node;
    assert!(dead.iter().all(|&dead| tracker.book.is_doubtful(node(dead))));
    tracker.on_heard(at(5200), dead[0]);
    assert!(!tracker.book.is_doubtful(tracker.viewer(dead[0]).unwrap().node), "it has answered");
}

#[test]
fn who_is_missed_and_leaves_the_server_unanswered_is_given_up_at_once() {
    for is_unanswering in [true, false] {
        let (mut tracker, clients) = audience(24, MBIT(4), 3);
        let (.., parent) = after_deaths(&mut tracker, &clients, &clients[3..9]);
        let node = tracker.viewer(parent).unwrap().node;
        for (slice, child, missed) in fed(&tracker, &clients) {
            if missed == parent {
                tracker.on_silent(at(5010), child, &silent(slice, parent, None, false));
            }
        }
        tracker.set_unanswering(parent, is_unanswering);
        let is_in_trees = |tracker: &Tracker<u32>| tracker.book.clients().any(|client| client == node);
        tracker.give_up_suspects(at(5050));
        assert_eq!(is_in_trees(&tracker), !is_unanswering);
        tracker.give_up_suspects(at(5510));
        assert!(!is_in_trees(&tracker), "it had its time");
    }
}

/// Seconds of two minutes in which trees get no better, since somebody may have died, where `accuses` tells who says
/// of its parents each second that they have, though all are there and report once a second.
fn in_doubt(accuses: impl Fn(usize) -> bool) -> f64 {
    let (mut tracker, clients) = audience(24, MBIT(4), 3);
    let mut ticks = 0;
    for tick in 0..2400u64 {
        let now = at(5000 + 50 * tick);
        for (number, &client) in clients.iter().enumerate() {
            if tick % 20 == number as u64 % 20 {
                tracker.on_heard(now, client);
            }
        }
        // Who is asked answers within a tick.
        for session in tracker.take_questions() {
            tracker.on_heard(now, clients[session.index()]);
        }
        for (slice, child, parent) in fed(&tracker, &clients) {
            if tick % 20 == 7 && accuses(clients.iter().position(|&client| client == child).unwrap()) {
                tracker.on_silent(now, child, &silent(slice, parent, None, false));
            }
        }
        ticks += u32::from(tracker.is_in_doubt(now));
    }
    f64::from(ticks) * 0.05
}

#[test]
fn liars_who_say_that_their_parents_have_died_stop_no_tree_for_long() {
    assert!(in_doubt(|_| false) == 0.0);
    let one = in_doubt(|number| number == 5);
    assert!(one > 0.0 && one < 4.0, "{one} s of 120");
    let some = in_doubt(|number| number % 5 == 0);
    assert!(some < 15.0, "{some} s of 120, by a fifth of all");
}

#[test]
fn who_found_no_parent_while_all_might_be_gone_gets_one_once_somebody_has_answered() {
    let (mut tracker, clients) = audience(12, MBIT(4), 3);
    // Nor has the server any room.
    tracker.config.upload = Rate::ZERO;
    let held = tracker.book.places(NodeId::SERVER).1;
    tracker.set_places(NodeId::SERVER, held);
    let (slice, child, dead) = fed(&tracker, &clients)[0];
    tracker.on_silent(at(5000), child, &silent(slice, dead, None, false));
    assert_eq!(parent_of(&tracker, slice, child), Some(dead), "nobody was heard of");
    for &client in clients.iter().filter(|&&client| client != dead) {
        tracker.on_heard(at(5150), client);
    }
    tracker.place_orphans(at(5150));
    let parent = parent_of(&tracker, slice, child);
    assert!(parent.is_some_and(|parent| parent != dead), "{parent:?}");
}

#[test]
fn who_passes_nothing_on_goes_where_there_is_not_enough_and_comes_back_later() {
    let (mut tracker, clients) = audience(12, Rate::from_bits_per_sec(1_150_000), 1);
    let idle = fed(&tracker, &clients)[0].2;
    let mut gone = Vec::new();
    // Whoever it has for children misses all of it.
    for second in 3..30 {
        clients.iter().for_each(|&client| tracker.on_heard(at(1000 * second), client));
        let passed_on = |_, parent| f64::from(parent != Some(idle));
        clients.iter().for_each(|&child| says(&mut tracker, at(1000 * second), child, passed_on));
        for (slice, child, parent) in fed(&tracker, &clients) {
            if parent == idle {
                tracker.on_silent(at(1000 * second), child, &silent(slice, parent, None, false));
            }
        }
        gone.extend(tracker.review(at(1000 * second)));
        if !gone.is_empty() {
            break;
        }
    }
    assert_eq!(gone, [(idle, Refusal::Overloaded)]);
    let number = clients.iter().position(|&client| client == idle).unwrap() as u32;
    tracker.leave(idle);
    assert_eq!(join(&mut tracker, at(40_000), number, MBIT(1)), Err(Refusal::Overloaded));
    let again = join(&mut tracker, at(120_000), number, Rate::from_bits_per_sec(1_150_000)).expect("after a while");
    assert!(tracker.viewer(again).unwrap().places <= 1, "it has to prove itself");
}

#[test]
fn trees_get_better_at_a_bounded_price() {
    let (mut tracker, clients) = audience(40, MBIT(4), 3);
    tracker.take_questions();
    let before = tracker.parent_changes();
    for tick in 0..200 {
        tracker.improve(at(50 * tick));
    }
    // Ten seconds of thirty in which each place may change once, and what a turn goes beyond.
    let most = clients.len() as u64 * u64::from(SLICES) / 3 + 40;
    assert!(tracker.parent_changes() - before <= most, "{} changes", tracker.parent_changes() - before);
}

/// A tracker of a mesh alone, whose server can send `copies` streams of 1 Mbit/s.
fn mesh_alone(copies: u64) -> Tracker<u32> {
    let (mut tracker, _) = audience(0, MBIT(1), copies);
    tracker.set_mesh_alone();
    tracker
}

/// How often each viewer was named to another, when each of `clients` asks in turn `times`.
fn named(tracker: &mut Tracker<u32>, clients: &[ClientId], times: usize) -> BTreeMap<ClientId, usize> {
    let mut rng = anabranch_control::rng::Rng::stream(1, "neighbours");
    let mut named = BTreeMap::new();
    for _ in 0..times {
        for &client in clients {
            for contact in tracker.neighbours(client, 0, &mut rng) {
                assert_ne!(contact.client, client, "nobody trades with itself");
                *named.entry(contact.client).or_default() += 1;
            }
        }
    }
    named
}

#[test]
fn in_a_mesh_alone_a_claim_makes_room_for_some_streams_and_no_more() {
    let mut tracker = mesh_alone(1);
    join(&mut tracker, at(0), 0, MBIT(1_000_000)).expect("the server feeds it");
    let others = (1..90).take_while(|&viewer| join(&mut tracker, at(0), viewer, Rate::ZERO).is_ok()).count();
    assert_eq!(others, BELIEVED_IN_MESH, "who claims a terabit is believed");
}

#[test]
fn in_a_mesh_alone_a_newcomer_gets_half_of_its_neighbours_and_then_one_by_one() {
    let mut tracker = mesh_alone(4);
    let clients: Vec<ClientId> = (0..60).map(|viewer| join(&mut tracker, at(0), viewer, MBIT(2)).unwrap()).collect();
    let mut rng = anabranch_control::rng::Rng::stream(1, "neighbours");
    let mut ask = |has| tracker.neighbours(clients[7], has, &mut rng);
    // Ten for each stream of about 1.3 Mbit/s that it can send.
    let first = ask(0);
    let different: BTreeSet<ClientId> = first.iter().map(|contact| contact.client).collect();
    assert!((4..=8).contains(&first.len()) && different.len() == first.len(), "{first:?}");
    assert_eq!(ask(first.len()).len(), 1);
    assert_eq!(ask(24).len(), 0, "nobody has more than the most");
}

#[test]
fn in_a_mesh_alone_nobody_is_named_who_has_twice_the_neighbours_that_it_should_have() {
    let mut tracker = mesh_alone(4);
    let clients: Vec<ClientId> = (0..40).map(|viewer| join(&mut tracker, at(0), viewer, MBIT(2)).unwrap()).collect();
    let asking = &clients[..30];
    let degree = tracker.degree(tracker.viewer(clients[39]).unwrap());
    let named = named(&mut tracker, asking, 20);
    for silent in &clients[30..] {
        let times = named.get(silent).copied().unwrap_or(0);
        assert!((degree..=2 * degree).contains(&times), "named {times} times, with a degree of {degree}");
    }
}

#[test]
fn beside_trees_all_that_are_lacking_are_named_at_once() {
    let (mut tracker, clients) = audience(40, MBIT(2), 4);
    let mut rng = anabranch_control::rng::Rng::stream(1, "neighbours");
    let degree = tracker.degree(tracker.viewer(clients[3]).unwrap());
    assert_eq!(tracker.neighbours(clients[3], 0, &mut rng).len(), degree);
    assert_eq!(tracker.neighbours(clients[3], degree - 2, &mut rng).len(), 2);
    assert_eq!(tracker.neighbours(clients[3], degree, &mut rng).len(), 0);
}

#[test]
fn the_server_keeps_room_for_newcomers_only_where_viewers_say_that_they_bear_all() {
    for (upload, keeps) in [(MBIT(2), true), (Rate::from_bits_per_sec(1_300_000), false)] {
        let (tracker, _) = audience(40, upload, 6);
        let all = tracker.planned(tracker.server_room());
        let kept = tracker.kept_for_newcomers(all, 2 * usize::from(SLICES));
        assert_eq!(kept > 0, keeps, "{upload:?}: {kept} of {all}");
        assert!(kept <= all / 2);
    }
}

#[test]
fn what_liars_announce_keeps_no_more_of_the_server_than_two_streams_each() {
    let (tracker, _) = audience(4, MBIT(1000), 6);
    // Four viewers are believed to bear seven eighths of eight streams: three more than they need.
    let kept = tracker.kept_for_newcomers(1_000_000, 0);
    assert_eq!(kept, 4 * 2 * usize::from(SLICES) * 7 / 8 - 4 * usize::from(SLICES));
}

/// Who has most children.
fn busiest(tracker: &Tracker<u32>, clients: &[ClientId]) -> ClientId {
    let fed = fed(tracker, clients);
    let children = |client: ClientId| fed.iter().filter(|(.., parent)| *parent == client).count();
    *clients.iter().max_by_key(|&&client| children(client)).expect("there are some")
}

/// Seconds in which all say what came of their feeds, where one passes on this part of what it gets, and says of its
/// own feeds that this part came: the least places that it has had, and the least that any other has.
fn least_places(passes_on: f64, says_it_got: f64) -> (usize, usize) {
    let (mut tracker, clients) = audience(24, MBIT(4), 3);
    let liar = busiest(&tracker, &clients);
    let mut least = (usize::MAX, usize::MAX);
    for second in 1..=20 {
        let now = at(1000 * second);
        // What came of a slice goes by how often it has passed through the liar.
        let parents: BTreeMap<(u8, ClientId), ClientId> =
            fed(&tracker, &clients).into_iter().map(|(slice, child, parent)| ((slice, child), parent)).collect();
        let came = |slice: u8, child: ClientId| {
            let above = std::iter::successors(parents.get(&(slice, child)), |&&above| parents.get(&(slice, above)));
            if above.copied().any(|above| above == liar) { passes_on } else { 1.0 }
        };
        for &child in &clients {
            let got = if child == liar { says_it_got } else { 1.0 };
            says(&mut tracker, now, child, |slice, _| got * came(slice, child));
        }
        tracker.review(now);
        for viewer in tracker.viewers() {
            let one = if viewer.contact.client == liar { &mut least.0 } else { &mut least.1 };
            *one = (*one).min(viewer.places);
        }
    }
    least
}

#[test]
fn who_passes_on_all_that_it_gets_keeps_its_places_below_one_who_drops_half() {
    let (liar, others) = least_places(0.5, 1.0);
    assert!(liar <= 1 && others >= usize::from(SLICES), "{liar} {others}");
}

#[test]
fn who_passes_nothing_on_is_found_though_it_says_that_it_gets_nothing() {
    // Those who have it for their only child lose it.
    let (liar, _) = least_places(0.0, 0.0);
    assert!(liar <= 1, "{liar}");
}

#[test]
fn an_excuse_is_worth_as_much_as_was_missing() {
    let places = |had: f64| {
        let (mut tracker, clients) = audience(24, MBIT(4), 3);
        let parent = busiest(&tracker, &clients);
        for second in 1..=2 {
            // It has all of its slices, or none; so have all others.
            clients.iter().for_each(|&child| {
                if child == parent
                    || fed(&tracker, &clients).iter().all(|(_, fed, above)| (fed, above) != (&child, &parent))
                {
                    says(&mut tracker, at(1000 * second), child, |_, _| had);
                }
            });
        }
        for (slice, child, _) in fed(&tracker, &clients).into_iter().filter(|(.., above)| *above == parent) {
            tracker.on_silent(at(2500), child, &silent(slice, parent, None, true));
        }
        tracker.review(at(3000));
        tracker.viewer(parent).map_or(0, |viewer| viewer.places)
    };
    assert_eq!((places(1.0), places(0.0)), (0, usize::from(SLICES)));
}
