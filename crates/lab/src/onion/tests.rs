use anabranch_onion::crypto::{Real, Transparent};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_onion::session::{Rates, Secrecy};
use anabranch_proto::machine::Wire;
use anabranch_sim::delay::{DelayModel, JitterTail};

use std::sync::atomic::Ordering;

use super::*;
use crate::parallel::Progress;
use crate::world::Transit;
use anabranch_onion::node::Frame;

fn run(relays: u16, users: u32, seed: u64) -> OnionRun {
    OnionRun {
        relays,
        limit: None,
        per_family: 1,
        users,
        settings: UserSettings {
            guards: 2,
            hops: 3,
            placement: "timeouts".to_owned(),
            placement_back: "timeouts".to_owned(),
            packets_per_key: PacketsPerKey::STANDARD,
            secrecy: Secrecy::Transparent,
            mixing: None,
        },
        cover: Cover::Off,
        rates: UserRates::Alike(Rates::default()),
        wish: Wish::Kilobytes(500),
        receive_only: 1.0,
        begin_within: Duration::from_millis(100),
        pairs: PairsConfig {
            delay: DelayModel::Plane {
                span: Duration::from_millis(40),
                access: Duration::from_millis(5),
                stretch: 1.0,
            },
            jitter: 0.1,
            jitter_tail: JitterTail::Normal,
            loss: 0.0,
        },
        droppers: 0,
        greedy: 0,
        dying: 0,
        counts_from: Time::ZERO,
        seed,
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::SECOND * seconds
}

#[test]
fn a_user_downloads_over_relays_and_gets_what_the_exit_sent() {
    let mut world = OnionWorld::<Transparent>::new(&run(12, 2, 1), ()).expect("settings");
    world.step(at(60));
    for user in world.users() {
        let Downloaded { bytes, whole, wrong, ended, .. } = user.downloaded;
        assert_eq!((bytes, wrong), (500_000, false), "{user:?}");
        assert!(whole.is_some() && ended <= 1, "{user:?}");
    }
}

/// Each had begun with 1000 cells a second, of which the relays could pass 48: eight of twenty were not answered before
/// they gave up, and those who were had what they took first for a quarter of an hour.
#[test]
fn all_who_begin_at_once_are_answered_and_share() {
    let limit = Some((LimitKind::Window, Rate::from_bytes_per_sec(400_000)));
    let mut run = OnionRun { wish: Wish::Endless, receive_only: 0.0, limit, ..run(20, 20, 1) };
    run.settings.guards = 0;
    let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
    world.step(at(40));
    let before = world.totals();
    world.step(at(80));
    let totals = world.totals();
    assert!(world.users().all(|user| user.downloaded.ended == 0 && !user.downloaded.wrong));
    let read =
        |totals: &OnionTotals| -> Vec<f64> { totals.of_users.iter().map(|[down, up]| (down + up) as f64).collect() };
    let took: Vec<f64> = read(&totals).iter().zip(read(&before)).map(|(now, then)| now - then).collect();
    let jain = anabranch_stats::jain_fairness(&took).unwrap();
    assert!(jain > 0.75, "{jain}: {took:?}");
}

/// What was sent, when, between whom, and how long it was.
#[derive(Default)]
struct Trace(Vec<(Time, NodeId, NodeId, u32)>);

impl<C: Cryptography> Observer<OnionNode<C>> for Trace {
    fn on_sent(&mut self, now: Time, from: NodeId, to: NodeId, frame: &Frame) {
        self.0.push((now, from, to, frame.length()));
    }

    fn on_arrival(&mut self, now: Time, transit: Transit, frame: &Frame) {
        self.0.push((now, transit.to, transit.from, frame.length()));
    }
}

#[test]
fn real_and_transparent_cryptography_give_the_same_events() {
    let mut run = run(50, 4, 3);
    run.wish = Wish::Kilobytes(100);
    run.pairs.loss = 0.01;
    let mut transparent = OnionWorld::<Transparent, _>::new(&run, Trace::default()).expect("settings");
    transparent.step(at(20));
    run.settings.secrecy = Secrecy::Sealed;
    let mut real = OnionWorld::<Real, _>::new(&run, Trace::default()).expect("settings");
    real.step(at(20));
    let (one, other) = (&transparent.observer().0, &real.observer().0);
    assert!(one.len() > 4000, "{} events", one.len());
    assert!(transparent.users().all(|user| user.downloaded.whole.is_some()));
    let differs = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!((differs, one.len()), (None, other.len()));
    let mut bytes = Vec::new();
    Frame::default().write(&mut bytes);
    assert_eq!(bytes.len(), 1400, "all packets are as long");
}

#[test]
fn a_download_outlives_a_quarter_of_the_relays() {
    for (relays, seed) in [(24, 5)].into_iter().chain((1..=24).map(|seed| (12, seed))) {
        let mut run = run(relays, 1, seed);
        run.wish = Wish::Kilobytes(5_000);
        let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
        let mut end = 2;
        while world.users().all(|user| user.downloaded.bytes < 1_000_000) {
            world.step(at(end));
            end += 1;
            assert!(end < 60, "it gets nowhere");
        }
        // Neither its guards nor its exit, which no other can stand in for.
        let keeps = of_the_user(&world);
        let killed = usize::from(relays) / 4;
        (0..relays).filter(|node| !keeps.contains(node)).take(killed).for_each(|node| world.kill(node));
        world.step(at(end + 180));
        let user = world.users().next().expect("a user");
        assert!(user.downloaded.whole.is_some() && !user.downloaded.wrong, "{user:?}");
        println!("{relays} relays, seed {seed}: no longer without bytes than {:?}", user.downloaded.longest_stall);
        assert!(user.downloaded.longest_stall <= Duration::SECOND * 2, "{relays} relays, seed {seed}: {user:?}");
    }
}

#[test]
fn a_download_outlives_one_of_its_guards() {
    let mut run = run(24, 1, 9);
    run.wish = Wish::Kilobytes(5_000);
    let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
    world.step(at(2));
    let before = world.users().next().expect("a user").downloaded;
    assert!(before.bytes > 100_000 && before.whole.is_none(), "{before:?}");
    let guard = {
        let OnionNode::User(user) = world.world.node(NodeId(24)).expect("a user") else { panic!("a user") };
        let member = user.user.document().member(user.user.choice().in_use[0]).expect("a member");
        node::node(member.descriptor.address).expect("a node")
    };
    world.kill(guard as u16);
    world.step(at(120));
    let user = world.users().next().expect("a user");
    assert!(user.downloaded.whole.is_some() && !user.downloaded.wrong, "{user:?}");
    assert!(user.downloaded.longest_stall <= Duration::SECOND * 5, "{user:?}");
}

/// A run's one user, and the nodes of its guards and its exit.
fn of_the_user(world: &OnionWorld<Transparent>) -> Vec<u16> {
    let OnionNode::User(user) = world.world.node(NodeId(world.relays)).expect("a user") else { panic!("a user") };
    let document = user.user.document();
    let of = |relay: &RelayIndex| node::node(document.member(*relay).expect("a member").descriptor.address);
    let guards = user.user.choice().in_use.iter().filter_map(of);
    guards.chain(of(&user.destination().relay)).map(|node| node as u16).collect()
}

#[test]
fn a_download_over_the_change_of_an_epoch_does_not_stall() {
    for seed in [5, 6, 7] {
        let mut run = run(24, 1, seed);
        run.wish = Wish::Endless;
        let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
        world.step(at(15));
        let before = world.users().next().expect("a user").downloaded;
        assert!(before.bytes > 2_000_000 && before.longest_stall < Duration::from_millis(500), "{before:?}");
        // Every third of the others goes, so that indices mean other relays.
        let keeps = of_the_user(&world);
        let unlisted: Vec<u16> = (0..24).filter(|node| !keeps.contains(node)).step_by(3).collect();
        world.begin_epoch(&unlisted, Duration::SECOND).expect("settings");
        world.step(at(30));
        let user = world.users().next().expect("a user");
        let after = user.downloaded;
        assert!(!after.wrong && after.ended == 0 && after.longest_stall < Duration::from_millis(500), "{user:?}");
        let [before, after] = [before.bytes, after.bytes - before.bytes];
        assert!(after > before, "{after} bytes in the 15 s after, {before} in the 15 s before: {user:?}");
        assert_eq!(user.counts.unknown, 0, "all blocks were opened");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    let trace = |seed| {
        let mut run = run(20, 3, seed);
        run.wish = Wish::Kilobytes(100);
        run.pairs.loss = 0.02;
        let mut world = OnionWorld::<Transparent, _>::new(&run, Trace::default()).expect("settings");
        world.step(at(10));
        world.observer().0.clone()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}

fn scenario(text: &str) -> anabranch_scenario::onion_run::OnionRunScenario {
    anabranch_scenario::file::parse_onion_run(text, "o.toml", &[]).expect("a good scenario")
}

const SHORT: &str = "[run]\nseconds = 12\nwarmup_s = 4\n[onion]\nrelays = 12\nguards = 0\n[users]\ncount = 4\n";

#[test]
fn a_run_counts_what_users_and_services_read_below_what_relays_can_carry() {
    let measured = super::run(&scenario(SHORT), &()).expect("a good scenario");
    let OnionMetrics { download_bytes_per_s, upload_bytes_per_s, limit_share, wrong, .. } = measured.metrics;
    assert!(download_bytes_per_s > 20e3 && upload_bytes_per_s > 20e3 && wrong == 0, "{:?}", measured.metrics);
    assert!((0.1..=1.0).contains(&limit_share), "{limit_share}");
    assert_eq!(measured.seconds.len(), 12);
    let down: u64 = measured.seconds[4..].iter().map(|second| second.downloaded).sum();
    assert!((down as f64 / 8.0 - download_bytes_per_s).abs() < 1.0, "what counts is what seconds say");
    let receiving = super::run(&scenario(&format!("{SHORT}receive_only = 1\n")), &()).expect("a good scenario");
    assert_eq!(receiving.metrics.upload_bytes_per_s, 0.0);
}

#[test]
fn what_relays_could_carry_is_read_idle_lost_or_beyond_the_least() {
    let of = |more: &str| super::run(&scenario(&format!("{SHORT}{more}")), &()).expect("a good scenario").metrics;
    let (plain, dropped) = (of(""), of("[relays]\ndroppers = 0.25\n"));
    for metrics in [&plain, &dropped] {
        let Account { idle, lost, beyond } = metrics.account;
        assert!((metrics.limit_share + idle + lost + beyond - 1.0).abs() < 1e-9, "{metrics:?}");
        // No relay can carry more than its limit, nor be read more than it carries.
        assert!(idle > 0.0 && lost > 0.0 && beyond > 0.0, "{metrics:?}");
    }
    // Where hardly anything is read, or loops and data would compete.
    let quiet = format!("{SHORT}receive_only = 1\ndownload_kilobytes = 1\n");
    let loops = quiet.replace("guards = 0", "guards = 0\ncover = \"loops\"\nloops_per_s = 20");
    let [quiet, loops] = [quiet, loops].map(|text| super::run(&scenario(&text), &()).expect("a good scenario"));
    assert!(loops.metrics.account.beyond > quiet.metrics.account.beyond + 0.01);
    assert!(of("[relays]\ngreedy = 0.25\n").account.idle.is_nan());
}

#[test]
fn a_packet_that_a_relay_refuses_has_come_once() {
    let mut run = run(20, 20, 3);
    run.limit = Some((LimitKind::Window, Rate::from_bytes_per_sec(100_000)));
    run.wish = Wish::Endless;
    let mut world = OnionWorld::<Transparent, _>::new(&run, Treatment::default()).expect("settings");
    world.step(at(20));
    let totals = world.totals();
    assert!(totals.refused > 500, "{totals:?}");
    assert_eq!(totals.packets, world.observer().came_in_all);
}

#[test]
fn runs_are_the_same_on_any_number_of_threads() {
    let of = |seed| anabranch_scenario::onion_run::OnionRunScenario { seed, ..scenario(SHORT) };
    let jobs = [of(1), of(2), of(3)];
    let on = |threads| {
        let progress = crate::parallel::Progress::default();
        crate::parallel::run_all(&jobs, Some(threads), &progress, |_, measured| format!("{measured:?}")).expect("runs")
    };
    let (one, three) = (on(1), on(3));
    assert_eq!(one, three);
    assert_ne!(one[0], one[1]);
}

#[test]
fn relays_that_are_killed_carry_nothing_and_downloads_go_on() {
    let text = format!(
        "{}[relays]\nkill_share = 0.25\nkill_at_s = 15\nlimit = \"2 MB/s\"\n",
        SHORT.replace("seconds = 12", "seconds = 40").replace("warmup_s = 4", "warmup_s = 10")
    );
    let text = text.replace("relays = 12", "relays = 24").replace("count = 4", "count = 2\nreceive_only = 1");
    let measured = super::run(&scenario(&text), &()).expect("a good scenario");
    assert!(measured.seconds[25..].iter().all(|second| second.downloaded > 0), "{:?}", measured.seconds);
    assert_eq!((measured.metrics.wrong, measured.metrics.ended_sessions), (0, 0));
}

#[test]
fn loops_come_back_and_teach_which_relays_drop() {
    let text = "[run]\nseconds = 60\n[onion]\nrelays = 20\nguards = 0\ncover = \"loops\"\nloops_per_s = 40\n\
                [users]\ncount = 2\nreceive_only = 1\ndownload_kilobytes = 1\n[relays]\nlimit = \"none\"\n";
    let honest = super::run(&scenario(text), &()).expect("a good scenario").metrics;
    assert!(honest.loops > 1000 && honest.loops_returned_percent > 99.0, "{honest:?}");
    let dropping = super::run(&scenario(&format!("{text}droppers = 0.2\n")), &()).expect("a good scenario").metrics;
    assert_eq!(honest.ended_sessions, 0, "who has all that it wanted ends its session in time");
    // Nothing but loops goes through the middles of users who have what they wanted.
    assert!(dropping.finished == 2 && dropping.dropper_attraction < 0.8, "{dropping:?}");
}

/// What leaves one node: when, and how long it is.
struct LineOf(NodeId, Vec<(Time, u32)>);

impl<C: Cryptography> Observer<OnionNode<C>> for LineOf {
    fn on_sent(&mut self, now: Time, from: NodeId, _: NodeId, frame: &Frame) {
        if from == self.0 {
            self.1.push((now, frame.length()));
        }
    }
}

#[test]
fn p05_at_a_constant_rate_nobody_sees_on_a_line_out_whether_there_is_something_to_say() {
    let line = |kilobytes| {
        let mut run = run(20, 1, 4);
        run.cover = Cover::ConstantRate(200);
        run.wish = Wish::Kilobytes(kilobytes);
        let mut world = OnionWorld::<Transparent, _>::new(&run, LineOf(NodeId(20), Vec::new())).expect("settings");
        world.step(at(30));
        let user = world.users().next().expect("a user");
        assert!(user.downloaded.whole.is_some() && user.counts.loops > 1000, "{user:?}");
        (world.observer().1.clone(), user.counts.sent)
    };
    let ((little, few), (much, many)) = (line(1), line(1500));
    assert!(many > few + 200, "{few} and {many} cells");
    assert!(little.len() > 5000 && little == much, "what left differs");
}

/// Whose packets go from relay to relay, as pairs of nodes.
#[derive(Default)]
struct Neighbours(std::collections::BTreeMap<(u32, u32), u64>);

impl<C: Cryptography> Observer<OnionNode<C>> for Neighbours {
    fn on_sent(&mut self, _: Time, from: NodeId, to: NodeId, frame: &Frame) {
        if frame.length() == 1400 {
            *self.0.entry((from.0, to.0)).or_default() += 1;
        }
    }
}

#[test]
fn no_two_relays_of_one_family_are_neighbours_on_a_path() {
    let neighbours = |per_family| {
        let mut run = run(24, 4, 6);
        run.per_family = per_family;
        run.cover = Cover::Loops(20.0);
        run.receive_only = 0.0;
        let mut world = OnionWorld::<Transparent, _>::new(&run, Neighbours::default()).expect("settings");
        world.step(at(20));
        assert!(world.users().all(|user| user.downloaded.bytes == 500_000), "{per_family} of each family");
        let among = world.observer().0.iter().filter(|((from, to), _)| *from < 24 && *to < 24);
        let (near, all) = among.fold((0, 0), |(near, all), ((from, to), packets)| {
            (near + if from / 4 == to / 4 { *packets } else { 0 }, all + packets)
        });
        (near, all)
    };
    let ((near, all), (near_without, _)) = (neighbours(4), neighbours(1));
    assert!(all > 10_000 && near_without > 500, "{near_without} without families, of {all}");
    assert_eq!(near, 0, "of {all}");
}

/// How long everything is that travels, and what relays do with what comes.
#[derive(Default)]
struct Treatment {
    lengths: std::collections::BTreeSet<u32>,
    /// For each relay that a packet has come to at this instant.
    came: Option<(Time, NodeId)>,
    passed_on: u64,
    came_in_all: u64,
}

impl<C: Cryptography> Observer<OnionNode<C>> for Treatment {
    fn on_sent(&mut self, now: Time, from: NodeId, _: NodeId, frame: &Frame) {
        if frame.length() != 1400 {
            return;
        }
        self.lengths.insert(frame.length());
        // A relay passes on what has just come; of an answer there is more than one.
        if self.came.take_if(|came| *came == (now, from)).is_some() {
            self.passed_on += 1;
        }
    }

    fn on_arrival(&mut self, now: Time, transit: Transit, frame: &Frame) {
        if transit.to.0 < 20 && frame.length() == 1400 {
            self.came_in_all += 1;
            self.came = Some((now, transit.to));
        }
    }
}

#[test]
fn p05_data_acks_blocks_loops_and_set_ups_have_one_size_and_leave_relays_as_they_came() {
    let mut run = run(20, 2, 6);
    run.cover = Cover::Loops(100.0);
    run.receive_only = 0.0;
    run.wish = Wish::Kilobytes(200);
    let mut world = OnionWorld::<Transparent, _>::new(&run, Treatment::default()).expect("settings");
    world.step(at(20));
    let counts: Vec<_> = world.relays().map(|(_, counts)| counts).collect();
    let sum = |of: fn(&anabranch_onion::relay::Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let (set_up, delivered) = (sum(|counts| counts.set_up), sum(|counts| counts.delivered));
    // All kinds were there.
    let users: Vec<UserOutcome> = world.users().collect();
    assert!(users.iter().all(|user| user.counts.blocks > 100 && user.counts.loops > 1000), "{users:?}");
    assert!(set_up > 100 && delivered > 100, "{set_up} and {delivered}");
    let seen = world.observer();
    assert_eq!(seen.lengths.iter().copied().collect::<Vec<_>>(), [1400]);
    // All but what ends at a service leaves at once; what a service answers may leave at that instant too.
    let passed = sum(|counts| counts.forwarded + counts.to_clients);
    assert!(seen.passed_on >= passed && seen.came_in_all == passed + delivered, "{passed} of {}", seen.came_in_all);
}

#[test]
fn an_onion_overlay_that_delivers_nothing_is_an_error() {
    let text = |seconds: u32, onion: &str| {
        format!("[run]\nseconds = {seconds}\nwarmup_s = 4\n[onion]\nrelays = 12\n{onion}\n[users]\ncount = 2\n")
    };
    let of = |seconds, onion: &str, monitor: &dyn Monitor| {
        let text = text(seconds, onion);
        run::run(&anabranch_scenario::file::parse_onion_run(&text, "o.toml", &[]).unwrap(), monitor)
    };
    let lossy = "loss = 0.99";
    let error = of(40, lossy, &()).unwrap_err().to_string();
    for words in ["in 40 s nothing was delivered to users or services", "no figure can come of this run"] {
        assert!(error.contains(words), "{words}: {error}");
    }
    // Too short to say so, where relays mix a longer time is; and what was stopped says what it has.
    assert!(of(30, lossy, &()).is_ok());
    assert!(of(40, &format!("{lossy}\nmix_delay_ms = 1000"), &()).is_ok());
    let stopped = Progress::default();
    stopped.interrupted.store(true, Ordering::Relaxed);
    assert!(of(40, lossy, &stopped).unwrap().metrics.simulated < Duration::SECOND * 40);
}

/// What is seen of all users after each of `seconds` more seconds.
fn course(world: &mut OnionWorld<Transparent>, seconds: u64) -> Vec<[f32; OBSERVATION_LENGTH]> {
    let mut seen = Vec::new();
    for _ in 0..seconds {
        world.step(world.now() + Duration::SECOND);
        for user in 0..world.users().count() {
            let mut one = [f32::NAN; OBSERVATION_LENGTH];
            world.observe(user, &mut one);
            seen.push(one);
        }
    }
    seen
}

fn of(seen: &[f32; OBSERVATION_LENGTH], name: &str) -> f32 {
    seen[OBSERVATION.iter().position(|(other, _)| *other == name).unwrap()]
}

#[test]
fn one_that_is_reset_is_as_one_that_is_new_with_that_seed() {
    let mut run = run(20, 4, 7);
    (run.wish, run.receive_only, run.pairs.loss) = (Wish::Endless, 0.5, 0.01);
    run.limit = Some((LimitKind::Window, Rate::from_bytes_per_sec(300_000)));
    (run.droppers, run.greedy, run.dying, run.cover) = (1, 1, 2, Cover::Loops(1.0));
    let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
    let first = course(&mut world, 5);
    world.kill_dying();
    course(&mut world, 2);
    for seed in [8, 7] {
        world.reset(seed);
        run.seed = seed;
        let mut new = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
        let (again, fresh) = (course(&mut world, 5), course(&mut new, 5));
        assert!(again == fresh && (again == first) == (seed == 7), "seed {seed}");
        // Those that are to die are there again.
        world.kill_dying();
        new.kill_dying();
        assert!(course(&mut world, 3) == course(&mut new, 3), "seed {seed}");
        assert_eq!((world.totals(), world.events()), (new.totals(), new.events()), "seed {seed}");
        assert!(world.totals().packets > 1000);
    }
}

#[test]
fn what_is_observed_is_what_happened_in_the_units_that_are_named() {
    let mut run = run(12, 2, 1);
    run.receive_only = 0.5;
    let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
    let seen = course(&mut world, 20);
    assert!(seen.iter().flatten().all(|number| number.is_finite() && *number >= 0.0));
    let sum = |name, user: usize| seen.iter().skip(user).step_by(2).map(|one| f64::from(of(one, name))).sum::<f64>();
    let totals = world.totals();
    for user in 0..2 {
        // Of 500 kB, second by second.
        assert!((sum("downloaded_kbyte_s", user) - 500.0).abs() < 1e-3, "{}", sum("downloaded_kbyte_s", user));
        let uploaded = totals.of_users[user][1] as f64 / 1e3;
        assert!((sum("uploaded_kbyte_s", user) - uploaded).abs() < 1e-3 * uploaded.max(1.0), "{uploaded}");
        assert!(sum("delivered_packets_s", user) <= sum("sent_packets_s", user));
        // Each packet brings less than its own length.
        assert!(sum("received_packets_s", user) > 500e3 / anabranch_onion::size::DATAGRAM as f64);
    }
    assert!(totals.of_users.iter().any(|[_, up]| *up > 0) && totals.of_users.iter().any(|[_, up]| *up == 0));
    // It begins after a second, waits for its first bytes, and has all in the end.
    assert_eq!((of(&seen[0], "stall_s"), of(&seen[0], "has_all")), (1.0, 0.0));
    let last = &seen[seen.len() - 2..];
    assert!(last.iter().all(|one| of(one, "has_all") == 1.0 && of(one, "stall_s") == 0.0), "{last:?}");
    // Nothing new happens in no time.
    let mut again = [f32::NAN; OBSERVATION_LENGTH];
    world.observe(0, &mut again);
    assert_eq!(again[..6], [0.0; 6]);
}
