//! What one environment keeps: rates that are told are sent, what is seen has happened, and the same seed gives the
//! same numbers.

use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_env::SightError;
use anabranch_env::feature::Feature;
use anabranch_env::oracle::{oracle, period, rule};
use anabranch_env::spec::Source;
use anabranch_env::{Actuator, Ended, Session, Spec, SpecError, Weights, catalogue};
use anabranch_scenario::file::parse_flows;
use anabranch_sim::network::LinkId;

fn named(name: &str) -> Spec {
    catalogue::find(name).unwrap().spec()
}

fn session(spec: Spec, seed: u64) -> Session {
    Session::new(Arc::new(spec), seed).unwrap()
}

/// Mean throughput of each host and mean queue over the episode's second half, in which `rates` says what is directed.
fn steady(session: &mut Session, mut rates: impl FnMut(&mut Session, &mut [f32])) -> (Vec<f64>, f64) {
    let end = session.scenario().length.as_secs_f64();
    let hosts = session.hosts();
    let (mut sums, mut queue, mut steps) = (vec![0.0; hosts], 0.0, 0.0);
    let mut action = vec![0.0; hosts];
    loop {
        rates(session, &mut action);
        let ended = session.step(&action).unwrap();
        if session.now().as_secs_f64() > end / 2.0 {
            session.seen().iter().zip(&mut sums).for_each(|(seen, sum)| *sum += seen.throughput);
            queue += f64::from(session.terms().queue);
            steps += 1.0;
        }
        if ended.is_over() {
            assert_eq!(ended, Ended { terminated: false, truncated: true });
            return (sums.iter().map(|sum| sum / steps).collect(), queue / steps);
        }
    }
}

#[test]
fn a_host_sends_what_it_is_directed_under_each_actuator() {
    for actuator in Actuator::OF_RATES {
        let name = actuator.name();
        for rate in [0.25, 0.5, 0.9] {
            let mut session = session(Spec { actuator, ..named("C3-Single") }, 1);
            let (sent, _) = steady(&mut session, |_, rates| rates.fill(rate));
            // A window of a round trip is cut to whole packets: of 21.6 a twentieth, of 5.4 nearly a fifth.
            let least = if actuator == Actuator::Rate { 0.97 } else { 0.78 };
            let share = sent[0] / f64::from(rate);
            assert!((least..=1.03).contains(&share), "{name}: {rate} became {sent:?}");
        }
    }
}

#[test]
fn a_host_that_was_directed_nothing_sends_as_soon_as_it_is_directed_more() {
    for actuator in Actuator::OF_RATES {
        let name = actuator.name();
        let mut session = session(Spec { actuator, ..named("C3-Single") }, 1);
        for _ in 0..10 {
            session.step(&[0.0]).unwrap();
        }
        assert!(session.seen()[0].throughput < 0.1, "{name}");
        for _ in 0..5 {
            session.step(&[0.9]).unwrap();
        }
        assert!(session.seen()[0].throughput > 0.7, "{name}: {:?}", session.seen());
    }
}

#[test]
fn a_last_step_that_is_shorter_has_its_shares_of_the_time_that_it_took() {
    let interval = Duration::from_millis(350);
    let mut session = session(Spec { actuator: Actuator::Rate, interval, ..named("C3-Single") }, 1);
    let (mut ended, mut before) = (Ended::default(), 0.0);
    while !ended.is_over() {
        before = session.now().as_secs_f64();
        ended = session.step(&[0.5]).unwrap();
    }
    let last = session.now().as_secs_f64() - before;
    assert!(last < 0.6 * interval.as_secs_f64(), "{last} s");
    let throughput = session.seen()[0].throughput;
    assert!((0.45..=0.55).contains(&throughput), "{throughput}");
}

#[test]
fn two_hosts_at_half_share_the_link_and_leave_no_queue() {
    for actuator in Actuator::OF_RATES {
        let name = actuator.name();
        let mut session = session(Spec { actuator, ..named("C3-Parallel") }, 1);
        let (sent, queue) = steady(&mut session, |_, rates| rates.fill(0.48));
        // Ten packets and a bit are ten: small windows waste short pipes, a pace does not.
        let least = if actuator == Actuator::Rate { 0.93 } else { 0.7 };
        assert!((sent[0] - sent[1]).abs() < 0.05 && sent[0] + sent[1] > least, "{name}: {sent:?}");
        assert!(queue < 0.1, "{name}: {queue}");
    }
}

/// One of two hosts begins later: who was told all there is gets half of it from the next word on.
#[test]
fn a_share_is_divided_among_those_who_are_active() {
    let mut session = session(Spec { actuator: Actuator::Share, ..named("C3-Staggered") }, 1);
    let mut of_first = [Vec::new(), Vec::new()];
    while !session.step(&[0.95, 0.95]).unwrap().is_over() {
        let together = session.seen()[1].active;
        of_first[together].push(session.seen()[0].rate);
        let directed = session.seen().iter().filter(|host| host.active > 0).map(|host| host.rate).sum::<f64>();
        assert!(directed <= 0.95 + 1e-6 || together == 1 && of_first[1].len() == 1, "{directed} at {}", session.now());
    }
    let (alone, shared) = (of_first[0].last().unwrap(), of_first[1].last().unwrap());
    assert!((alone - 0.95).abs() < 1e-6 && (shared - 0.475).abs() < 1e-6, "{alone}, {shared}");
}

#[test]
fn shares_of_unequal_hosts_are_equal() {
    let mut session = session(named("C3-Fairness"), 5);
    let mut sent = vec![0.0; session.hosts()];
    while !session.step(&vec![0.9; session.hosts()]).unwrap().is_over() {
        if session.now().as_secs_f64() > 5.0 {
            sent.iter_mut().zip(session.seen()).for_each(|(sum, host)| *sum += host.throughput);
        }
    }
    let active: Vec<f64> =
        session.seen().iter().zip(&sent).filter(|(host, _)| host.active > 0).map(|(_, &sum)| sum).collect();
    let (least, most) =
        (active.iter().copied().fold(f64::INFINITY, f64::min), active.iter().copied().fold(0.0, f64::max));
    assert!((4..=16).contains(&active.len()) && least > 0.8 * most, "{active:?}");
}

/// Cubic fills the queue when nobody steers it.
#[test]
fn who_is_not_directed_is_left_to_its_controller() {
    let mut session = session(named("C3-Single"), 1);
    let mut queue: f32 = 0.0;
    while !session.step_undirected().unwrap().is_over() {
        queue = queue.max(session.terms().queue);
    }
    assert!(queue > 0.5 && session.seen()[0].throughput > 0.9, "{queue}, {:?}", session.seen());
    assert_eq!(session.terms().sending, 0.0);
}

#[test]
fn more_than_the_link_carries_waits_and_is_dropped_and_costs() {
    let reward = |rate: f32| {
        let mut session = session(Spec { actuator: Actuator::Rate, ..named("C3-Single") }, 1);
        let mut sum = 0.0;
        while !session.step(&[rate]).unwrap().is_over() {
            sum += session.reward();
        }
        (sum, session.terms())
    };
    let ((too_much, terms), (enough, _), (little, _)) = (reward(1.25), reward(0.97), reward(0.5));
    assert!(terms.queue > 0.5 && terms.drop == 1.0, "{terms:?}");
    assert!(enough > little && enough > too_much, "{enough}, {little}, {too_much}");
}

#[test]
fn a_rate_for_nobody_costs_and_one_that_is_no_number_is_none() {
    let mut waits = session(named("C3-Staggered"), 1);
    waits.step(&[0.5, 0.5]).unwrap();
    assert_eq!(waits.terms().sending, 0.5, "the second host has not begun");
    waits.step(&[0.5, f32::NAN]).unwrap();
    assert_eq!(waits.terms().sending, 0.0);
    waits.step(&[9.0, -1.0]).unwrap();
    assert_eq!(waits.seen().iter().map(|seen| seen.rate).collect::<Vec<_>>(), [1.25, 0.0]);
}

#[test]
fn a_seed_says_everything_and_each_episode_differs_from_the_last() {
    for environment in catalogue::ALL {
        let run = |session: &mut Session| {
            let mut seen = Vec::new();
            let mut row = vec![0.0; session.observation_len()];
            for step in 0..40 {
                session.observe(&mut row);
                seen.extend_from_slice(&row);
                let rates: Vec<f32> = (0..session.hosts()).map(|host| 0.1 + 0.02 * (step + host) as f32).collect();
                session.step(&rates).unwrap();
                seen.push(session.reward());
            }
            seen
        };
        let (mut one, mut other) = (session(environment.spec(), 7), session(environment.spec(), 7));
        let first = run(&mut one);
        assert_eq!(first, run(&mut other), "{}", environment.name);
        one.reset(Some(8)).unwrap();
        run(&mut one);
        one.reset(None).unwrap();
        let second = run(&mut one);
        one.reset(Some(7)).unwrap();
        assert_eq!(first, run(&mut one), "{}: after a reset", environment.name);
        one.reset(Some(8)).unwrap();
        run(&mut one);
        one.reset(None).unwrap();
        assert_eq!(second, run(&mut one), "{}: the second episode of a seed", environment.name);
        assert!(first.iter().all(|value| value.is_finite()));
        let is_drawn = matches!(one.spec().source, Source::Drawn(_));
        assert!(!is_drawn || first != second, "{}: episodes are drawn anew", environment.name);
    }
}

/// What a link has counted it could have carried: a link that is not watched counts what it will.
#[test]
fn nothing_is_seen_before_it_happens() {
    for environment in catalogue::ALL {
        let mut session = session(environment.spec(), 3);
        let link = LinkId(session.spec().link as u32);
        let mut world = session.world().clone();
        let rate = world.network().rate(link).unwrap().bytes_per_sec();
        let rates = vec![1.25; session.hosts()];
        for _ in 0..60 {
            session.step(&rates).unwrap();
            let mut world = session.world().clone();
            let carried = world.network().count(link).bytes as f64;
            let most = rate * session.now().as_secs_f64() + 1514.0;
            assert!(carried <= most, "{}: {carried} bytes of {most} at {}", environment.name, session.now());
        }
    }
}

/// Four hosts; from the fourth second on one world differs from the other: a flow begins or not, another ends or not, and
/// traffic that crosses begins or ends, twice as fast.
#[test]
fn until_two_worlds_differ_all_that_is_seen_of_them_is_the_same() {
    let world = |[begins, ends, crosses, rate]: [&str; 4]| {
        let text = format!(
            r#"
            [run]
            seconds = 8
            [dumbbell]
            pairs = 4
            rate = "10 Mbit/s"
            delay_ms = 10
            access_rate = "50 Mbit/s"
            access_delay_ms = 5
            [[flow]]
            name = "always"
            controller = "cubic"
            [[flow]]
            name = "later"
            controller = "cubic"
            start_s = {begins}
            [[flow]]
            name = "no longer"
            controller = "cubic"
            stop_s = {ends}
            [[cross_traffic]]
            from = "s3"
            to = "r3"
            rate = "3 Mbit/s"
            pattern = {{ on_s = 0.5, off_s = 0.5 }}
            stop_s = {ends}
            [[cross_traffic]]
            from = "s3"
            to = "r3"
            rate = "{rate}"
            start_s = {crosses}
        "#
        );
        let scenario = Arc::new(parse_flows(&text, "world.toml", &[]).unwrap());
        let features = Feature::ALL.into_iter().filter(|feature| *feature != Feature::CrossNext).collect();
        session(Spec { features, history: 3, ..Spec::of(Source::Fixed(scenario)) }, 1)
    };
    let (mut one, mut other) = (world(["4", "7", "4", "2 Mbit/s"]), world(["6", "4", "6", "4 Mbit/s"]));
    let (mut seen, mut seen_of_other) = (vec![0.0; one.observation_len()], vec![0.0; one.observation_len()]);
    let mut differed = None;
    for step in 0..70 {
        one.observe(&mut seen);
        other.observe(&mut seen_of_other);
        if seen.iter().map(|value| value.to_bits()).ne(seen_of_other.iter().map(|value| value.to_bits())) {
            differed.get_or_insert(one.now());
        }
        let rates = vec![0.05 * (step % 9) as f32; one.hosts()];
        one.step(&rates).unwrap();
        other.step(&rates).unwrap();
    }
    let differed = differed.expect("they do differ").as_secs_f64();
    assert!((4.0..=4.2).contains(&differed), "at {differed} s");
}

#[test]
fn an_observation_that_is_late_is_the_one_of_then() {
    let spec = Spec { history: 2, ..named("C3-Parallel") };
    let late = Spec { delay: 3, ..spec.clone() };
    let (mut now, mut then) = (session(spec, 1), session(late, 1));
    let row = now.observation_len();
    assert_eq!(then.observation_len(), row);
    let mut seen = vec![vec![0.0; row]; 3];
    for step in 0..30 {
        let mut row = vec![0.0; row];
        now.observe(&mut row);
        seen.push(row.clone());
        then.observe(&mut row);
        assert_eq!(row, seen[step], "at step {step}");
        assert_eq!(seen[step + 3][row.len() / 2..], seen[step + 2][..row.len() / 2], "the one before stands beside it");
        let rates = [0.1 * (step % 5) as f32, 0.3];
        now.step(&rates).unwrap();
        then.step(&rates).unwrap();
    }
}

#[test]
fn flows_that_have_sent_all_end_an_episode() {
    let text = r#"
        [run]
        seconds = 20
        [dumbbell]
        rate = "5 Mbit/s"
        delay_ms = 10
        access_rate = "50 Mbit/s"
        access_delay_ms = 5
        [[flow]]
        controller = "cubic"
        workload = { once_bytes = 500000 }
        handshake = true
    "#;
    let scenario = Arc::new(parse_flows(text, "once.toml", &[]).unwrap());
    let mut session = session(Spec::of(Source::Fixed(Arc::clone(&scenario))), 1);
    let mut steps = 0;
    let ended = loop {
        let ended = session.step(&[0.9]).unwrap();
        steps += 1;
        if ended.is_over() {
            break ended;
        }
    };
    assert_eq!(ended, Ended { terminated: true, truncated: false });
    // 500 kB at nine tenths of 5 Mbit/s take 0.93 s with headers, and two round trips.
    assert!((9..=13).contains(&steps), "{steps}");
    let (rewarded, now) = (session.reward(), session.now());
    assert_eq!(session.step(&[0.9]), Ok(ended), "it stays over");
    assert_eq!((session.reward(), session.now()), (rewarded, now));
    session.reset(None).unwrap();
    assert_eq!(session.ended(), Ended::default());
}

#[test]
fn what_is_expected_comes_nearer_than_what_was_seen_last_however_late_reports_are() {
    for delay in [0, 10] {
        let features = vec![Feature::CrossShare, Feature::CrossExpected, Feature::CrossNext];
        let (mut of_seen, mut of_expected) = (0.0, 0.0);
        for seed in 1..=6 {
            let mut session = session(Spec { features: features.clone(), delay, ..named("C3-Cross") }, seed);
            let (mut shown, mut rates) = (Vec::new(), [0.0]);
            while !session.ended().is_over() {
                let mut row = [0.0_f32; 3];
                session.observe(&mut row);
                shown.push(row);
                rule(&session, &mut rates);
                session.step(&rates).unwrap();
            }
            // The later half, when it has come and gone; what comes next was shown `delay` steps late, too.
            for (row, then) in shown.iter().zip(&shown[delay..]).skip(250) {
                of_seen += (row[0] - then[2]).abs();
                of_expected += (row[1] - then[2]).abs();
            }
        }
        assert!(of_expected < 0.6 * of_seen, "{delay} steps late: {of_expected}, {of_seen}");
    }
}

#[test]
fn who_knows_what_comes_is_paid_more_than_who_knows_what_was() {
    let total = |policy: fn(&mut Session, &mut [f32])| -> f32 {
        (1..=4)
            .map(|seed| {
                let mut session = session(named("C3-Cross"), seed);
                let (mut rates, mut sum) = ([0.0], 0.0);
                loop {
                    policy(&mut session, &mut rates);
                    let ended = session.step(&rates).unwrap();
                    sum += session.reward() / 500.0;
                    if ended.is_over() {
                        break sum / 4.0;
                    }
                }
            })
            .sum()
    };
    let (known, expected) = (total(oracle), total(|session, rates| period(session, 0, rates)));
    let (seen, full) = (total(|session, rates| rule(session, rates)), total(|_, rates| rates.fill(1.0)));
    let all = format!("oracle {known}, last period {expected}, rule {seen}, all of it {full}");
    assert!(known > expected && expected > seen && seen > full, "{all}");
    assert!((0.8..0.86).contains(&known), "{known}");
}

#[test]
fn what_can_not_be_is_refused_with_what_can() {
    let refused = |spec: Spec| Session::new(Arc::new(spec), 1).unwrap_err().to_string();
    let single = || named("C3-Single");
    assert_eq!(
        refused(Spec { features: Vec::new(), ..single() }),
        format!("an observation needs a feature; there are: {}", Feature::ALL.map(Feature::name).join(", "))
    );
    assert_eq!(refused(Spec { history: 0, ..single() }), "history is 0, must be from 1 to 64");
    assert_eq!(refused(Spec { delay: 65, ..single() }), "delay is 65, must be from 0 to 64");
    assert_eq!(refused(Spec { link: 99, ..single() }), "the scenario has no link number 99; it has 6");
    let weights = Weights { queue: f32::NAN, ..Weights::default() };
    assert_eq!(refused(Spec { weights, ..single() }), "weight of queue is NaN, must be from 0 to 1000000");
    // The way back carries ACKs alone.
    assert_eq!(refused(Spec { link: 1, ..single() }), "no flow of the scenario passes link \"bottleneck-back\"");
    assert!(matches!(Session::new(Arc::new(single()), 1), Ok(session) if session.hosts() == 1));
    assert!(matches!(
        Session::new(Arc::new(Spec { link: 99, ..single() }), 1),
        Err(SpecError::Sight(SightError::NoLink { link: 99, .. }))
    ));
}

/// One flow of 50 KiB over 100 Mbit/s and a round trip of 50 ms, as in [C3]'s figure.
fn fifty_kib() -> Spec {
    let text = "[run]\nseconds = 5\n[dumbbell]\nrate = \"100 Mbit/s\"\ndelay_ms = 15\nqueue = { ms = 50 }\n\
                access_rate = \"1 Gbit/s\"\naccess_delay_ms = 5\n[[flow]]\ncontroller = \"cubic\"\n\
                workload = { once_bytes = 51200 }\nhandshake = true\nstart_s = 0.25\n";
    let scenario = parse_flows(text, "s.toml", &[]).unwrap();
    let features = vec![Feature::Pipe, Feature::PreviousRate, Feature::Active];
    let spec = Spec::of(Source::Fixed(Arc::new(scenario)));
    Spec { actuator: Actuator::Initial, weights: Weights::OF_COMPLETION, features, ..spec }
}

#[test]
fn a_transfer_counts_by_the_time_that_it_would_take_alone() {
    // 36 packets with their headers are 53 576 bytes, 4.286 ms at 100 Mbit/s; two round trips are 100 ms.
    let alone = 0.1 + 53_576.0 * 8.0 / 100e6;
    // Three flights of ten, twenty and six packets and the handshake are four round trips; one flight leaves two.
    // On the wire a flight takes as long as its packets, of which the last flight's count.
    // Less than the ten packets that the controller begins with by itself is ten.
    for (log2_packets, trips, packets) in [(f32::log2(10.0), 4.0, 6.0), (6.0, 2.0, 36.0), (0.0, 4.0, 6.0)] {
        let mut session = session(fifty_kib(), 1);
        let mut sum = 0.0;
        let ended = loop {
            let ended = session.step(&[log2_packets]).unwrap();
            sum += f64::from(session.reward());
            assert_eq!(session.reward(), session.terms().completion);
            if ended.is_over() {
                break ended;
            }
        };
        assert_eq!(ended, Ended { terminated: true, truncated: false }, "all work is done");
        assert!((session.alone(0, 51_200).as_secs_f64() - alone).abs() < 1e-6);
        let took = trips * 0.05 + packets * 1514.0 * 8.0 / 100e6;
        assert!((sum - alone / took).abs() < 0.01, "2^{log2_packets}: {sum}, not {}", alone / took);
    }
}

#[test]
fn what_has_begun_keeps_its_initial_window() {
    let reward = |first: f32, then: f32| {
        let mut session = session(fifty_kib(), 1);
        let mut sum = 0.0;
        // It begins after 0.25 s, and is established after 0.3 s.
        for step in 0.. {
            let ended = session.step(&[if step < 4 { first } else { then }]).unwrap();
            sum += session.reward();
            if ended.is_over() {
                return sum;
            }
        }
        unreachable!("episodes end")
    };
    assert_eq!(reward(6.0, 0.0), reward(6.0, 6.0));
    assert!(reward(1.0, 6.0) < 0.6 * reward(6.0, 6.0));
}

#[test]
fn a_pipe_is_known_once_a_round_trip_is_and_its_rule_goes_by_it() {
    let mut session = session(fifty_kib(), 1);
    let (mut by_rule, mut best) = ([0.0], [0.0]);
    let seen = |session: &Session| {
        let mut seen = [0.0; 3];
        session.observe(&mut seen);
        seen
    };
    assert_eq!(seen(&session), [0.0; 3]);
    rule(&session, &mut by_rule);
    assert!((by_rule[0] - f32::log2(10.0)).abs() < 1e-6, "RFC 6928's, as long as nothing is known");
    // 100 Mbit/s for 50 ms are 413 packets of 1514 bytes.
    oracle(&mut session, &mut best);
    assert!((best[0] - f32::log2(412.8)).abs() < 0.01, "{best:?}");
    for _ in 0..5 {
        session.step(&[5.0]).unwrap();
    }
    let [pipe, previous, _] = seen(&session);
    assert!((pipe * 10.0 - f32::log2(413.8)).abs() < 0.05 && previous == 0.5, "{pipe}, {previous}");
    rule(&session, &mut by_rule);
    assert!(session.seen()[0].active == 1 || (by_rule[0] - f32::log2(412.8)).abs() < 0.05, "{by_rule:?}");
}

#[test]
fn windows_that_are_divided_complete_sooner_than_the_usual_one() {
    let mean = |decide: &dyn Fn(&mut Session, &mut [f32])| {
        let mut sum = 0.0;
        for seed in 0..20 {
            let mut session = session(named("C3-Fct"), seed);
            let mut rates = [0.0];
            loop {
                decide(&mut session, &mut rates);
                let ended = session.step(&rates).unwrap();
                sum += session.reward() / 16.0;
                if ended.is_over() {
                    break;
                }
            }
        }
        sum / 20.0
    };
    let usual = mean(&|_, rates| rates.fill(f32::log2(10.0)));
    let most = mean(&|_, rates| rates.fill(10.0));
    let (by_rule, by_oracle) =
        (mean(&|session, rates| rule(session, rates)), mean(&|session, rates| oracle(session, rates)));
    println!("usual {usual}, most {most}, rule {by_rule}, oracle {by_oracle}");
    assert!(by_rule > usual && by_oracle > usual && by_rule > most, "{usual}, {most}, {by_rule}, {by_oracle}");
}

/// Whoever directs knows what was directed; all that is reported comes later.
#[test]
fn what_was_directed_is_known_at_once_where_reports_are_late() {
    let features = vec![Feature::PreviousRate, Feature::PromptRate];
    let mut session = session(Spec { features, delay: 3, history: 2, ..named("C3-Parallel") }, 1);
    let mut row = vec![0.0; session.observation_len()];
    let mut directed = Vec::new();
    for step in 0..6 {
        let rates = [0.1 * step as f32, 0.05 * step as f32];
        session.step(&rates).unwrap();
        directed.push(rates);
        session.observe(&mut row);
        // Of each observation both hosts, of each the late one and the prompt one.
        let before =
            |late: usize, host: usize| directed.len().checked_sub(late + 1).map_or(0.0, |at| directed[at][host]);
        let wanted = [0, 1].map(|age| [0, 1].map(|host| [before(age + 3, host), before(age, host)]));
        assert_eq!(row, wanted.as_flattened().as_flattened(), "step {step}");
    }
}
