//! One whose links a policy divides.

use std::sync::Arc;

use anabranch_control::policy::{Activation, Layer, Policy};
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::budget::Budget;
use anabranch_proto::coordination::coordinator::{
    CoordinatorConfig, CoordinatorEvent, Duty, LinkConfig, Member, Share,
};
use anabranch_proto::coordination::fitness;
use anabranch_proto::coordination::message::{self, Directive, HostSeen, LinkSeen, Seen};
use anabranch_proto::coordination::policy::{Actuator, Agents, Feature, Learned, Sight};
use anabranch_proto::session::PeerKey;

use crate::driven::{CAPACITY, Driven, MBIT, at, host};

/// A policy that says `bias` and `weights` times what it sees.
fn policy(features: &[Feature], weights: &[f32], bias: f32, actuator: Actuator, interval_ms: u64) -> Learned {
    let layers = vec![Layer { weights: weights.to_vec(), biases: vec![bias] }];
    let normal = (vec![0.0; weights.len()], vec![1.0; weights.len()]);
    let policy = Policy::new(layers, Activation::Tanh, normal.0, normal.1).unwrap();
    let (interval, features) = (Duration::from_millis(interval_ms), features.to_vec());
    let sight = Sight { link: 0, interval, actuator, features, history: 1, delay: 0, agents: Agents::Hosts };
    Learned { name: "p.safetensors".into(), policy, sight }
}

/// Two hosts of one link, and its monitor.
fn config(learned: Learned, [least, most]: [Rate; 2], share: Share) -> CoordinatorConfig {
    let host = Duty::Host { link: 0, least, most, most_flows: 8 };
    let members = [host, host, Duty::Monitor { link: 0 }].into_iter().zip(1..);
    let member = |(duty, key)| Member { name: format!("member {key}"), key: PeerKey([key; 32]), duty };
    CoordinatorConfig {
        epoch: 1,
        every: learned.sight.interval,
        utilisation: 0.95,
        actuator: learned.actuator(),
        share,
        expected: Default::default(),
        links: vec![LinkConfig { name: "uplink".into(), capacity: CAPACITY, queue: Some(Duration::from_millis(50)) }],
        members: members.map(member).collect(),
        policy: Some(Arc::new(learned)),
    }
}

#[test]
fn every_actuator_keeps_budgets_between_least_and_most_under_either_share_and_limit_and_renews_leases() {
    let half = |actuator| policy(&[Feature::Active], &[0.0], 0.5, actuator, 100);
    for actuator in [Actuator::Fixed, Actuator::Bounded, Actuator::Rate, Actuator::Share, Actuator::Lent] {
        for least in [Rate::ZERO, MBIT(6)] {
            for most in [MBIT(12), MBIT(4).max(least)] {
                for share in [Share::PerFlow, Share::PerHost] {
                    for limit in [None, Some(MBIT(2))] {
                        let setting = format!("{actuator:?}, {least} to {most}, {share:?}, {limit:?}");
                        let mut driven = Driven::new(config(half(actuator), [least, most], share));
                        driven.report_all(at(0), [HostSeen { limit, ..host(1) }, host(3)], LinkSeen::default());
                        let directives = driven.act(at(0));
                        // Of an even share it is half of that; all else is relative to the link, whatever the rule's
                        // share is.
                        let half = if actuator == Actuator::Share { 2_500_000 } else { 5_000_000 };
                        // Where not even what all keep fits, each has as large a part of that.
                        let mut keeps = [least.min(limit.unwrap_or(least)), least].map(Rate::bits_per_sec);
                        if keeps[0] + keeps[1] > CAPACITY.bits_per_sec() {
                            keeps = [CAPACITY.bits_per_sec() / 2; 2];
                        }
                        let most = [limit.map_or(most, |limit| most.min(limit)), most].map(Rate::bits_per_sec);
                        let expected = [0, 1].map(|place| half.min(most[place]).max(keeps[place]));
                        let rates: Vec<u64> = directives.iter().map(|(_, said)| said.rate.bits_per_sec()).collect();
                        assert_eq!(rates, expected, "{setting}");
                        let how = match actuator {
                            Actuator::Fixed => message::Actuator::Fixed,
                            Actuator::Bounded => message::Actuator::Maximum,
                            _ => message::Actuator::Rate,
                        };
                        assert!(directives.iter().all(|(_, said)| said.actuator == how), "{setting}");
                        assert!(directives.iter().all(|(_, said)| said.minimum == least.min(said.rate)), "{setting}");
                        // Directed again after half of a decision, for a lease as the rule's.
                        let renewed = driven.act(at(50));
                        assert_eq!(renewed.len(), 2, "{setting}");
                        let mut budget = Budget::default();
                        for (_, said) in [directives[1], renewed[1]] {
                            assert_eq!(said.lifetime, Duration::from_nanos(262_500_000), "{setting}");
                            budget.take(at(0), said, None).unwrap();
                        }
                        assert!(!budget.expire(at(262)) && budget.expire(at(263)), "{setting}");
                        let given = driven.coordinator.divided()[0].given.bits_per_sec();
                        assert_eq!(given, expected.iter().sum::<u64>(), "{setting}");
                    }
                }
            }
        }
    }
}

#[test]
fn until_all_that_it_sees_is_reported_the_rule_decides_and_says_why() {
    let learned = policy(&[Feature::Queue, Feature::RoundTrip], &[-0.5, 0.0], 0.5, Actuator::Rate, 100);
    let mut driven = Driven::new(config(learned, [Rate::ZERO, CAPACITY], Share::PerHost));
    let rates = |directives: &[(u32, Directive)]| {
        directives.iter().map(|(_, said)| said.rate.bits_per_sec()).collect::<Vec<_>>()
    };
    driven.report(at(0), 0, Seen::Host(host(1)));
    assert_eq!(rates(&driven.act(at(0))), [], "the rule's, which waits for the monitor");
    assert_eq!(driven.take_events(), [CoordinatorEvent::ByRule(0)]);
    let why = driven.coordinator.blocked(0).unwrap();
    assert_eq!(why, "no monitor of link \"uplink\" reports, and p.safetensors sees \"queue\"");
    driven.report_all(at(100), [host(1), host(0)], LinkSeen::default());
    assert_eq!(rates(&driven.act(at(100))), [], "one count is no rate");
    let why = driven.coordinator.blocked(0).unwrap();
    assert_eq!(why, "the monitor of link \"uplink\" does not know its queue, and p.safetensors sees \"queue\"");
    // Half of the 50 ms that may wait: 31 250 bytes.
    let link = LinkSeen { queued: Some(Bytes::new(31_250)), ..LinkSeen::default() };
    driven.report_all(at(200), [host(1), host(0)], link);
    assert_eq!(rates(&driven.act(at(200)))[0], 9_500_000, "the rule's, whose share is 95 % of the link");
    let why = driven.coordinator.blocked(0).unwrap();
    assert_eq!(why, "host \"member 1\" tells no round trips, and p.safetensors sees \"round_trip\"");
    assert!(!driven.coordinator.is_by_policy(0) && driven.take_events().is_empty(), "it is told once");
    let rtt = Some(Duration::from_millis(10));
    driven.report_all(at(300), [HostSeen { rtt, min_rtt: rtt, ..host(1) }, host(0)], link);
    assert_eq!(rates(&driven.act(at(300))), [2_500_000; 2], "0.5 - 0.5 times half of a queue");
    assert_eq!(driven.take_events(), [CoordinatorEvent::ByPolicy(0)]);
    assert_eq!((driven.coordinator.blocked(0), driven.coordinator.is_by_policy(0)), (None, true));
    // Who has told some may have none for a while; one who has not stops it.
    driven.report_all(at(400), [host(1), host(0)], link);
    driven.act(at(400));
    assert!(driven.coordinator.is_by_policy(0));
    driven.report_all(at(500), [host(1), host(1)], link);
    driven.act(at(500));
    assert_eq!(driven.take_events(), [CoordinatorEvent::ByRule(0)]);
}

#[test]
fn what_it_directed_before_is_what_hosts_were_directed_whoever_decided() {
    // It directs what it directed before.
    let learned = policy(&[Feature::PreviousRate, Feature::Queue], &[1.0, 0.0], 0.0, Actuator::Rate, 100);
    let mut driven = Driven::new(config(learned, [Rate::ZERO, CAPACITY], Share::PerHost));
    for now in [0, 100] {
        driven.report_all(at(now), [host(1), host(1)], LinkSeen::default());
        driven.act(at(now));
    }
    let link = LinkSeen { queued: Some(Bytes::ZERO), ..LinkSeen::default() };
    driven.report_all(at(200), [host(1), host(1)], link);
    let directives = driven.act(at(200));
    assert!(driven.coordinator.is_by_policy(0));
    for (_, said) in directives {
        assert!(said.rate.bits_per_sec().abs_diff(4_750_000) < 10, "{}", said.rate);
    }
}

#[test]
fn a_decision_comes_at_equal_spans_whatever_flows_do_and_what_the_idle_lend_is_divided_each_tenth_of_a_second() {
    let learned = policy(&[Feature::Active], &[0.0], 0.4, Actuator::Lent, 500);
    let mut driven = Driven::new(config(learned, [Rate::ZERO, CAPACITY], Share::PerFlow));
    let directed = |driven: &mut Driven, millis| {
        let mut rates = [0; 2];
        for (place, said) in driven.act(at(millis)) {
            rates[place as usize] = said.rate.bits_per_sec();
        }
        rates.map(|rate| (rate + 5000) / 100_000)
    };
    driven.report_all(at(0), [host(1), host(0)], LinkSeen::default());
    assert_eq!(directed(&mut driven, 0), [80, 40], "the idle one keeps what it has when it begins");
    driven.report(at(40), 1, Seen::Host(host(2)));
    assert_eq!(directed(&mut driven, 50), [0, 0], "no decision in haste");
    assert_eq!(directed(&mut driven, 100), [40, 0], "who has begun takes back what it had lent");
    driven.report(at(140), 0, Seen::Host(host(0)));
    assert_eq!(directed(&mut driven, 200), [0, 80]);
}

/// A soak found it: eight hosts that are told a whole link each lend all of it to the one that sends.
#[test]
fn what_the_idle_lend_is_no_more_than_a_quarter_more_than_the_link_carries() {
    let learned = policy(&[Feature::Active], &[0.0], 1.0, Actuator::Lent, 100);
    let mut driven = Driven::new(config(learned, [Rate::ZERO, MBIT(20)], Share::PerFlow));
    driven.report_all(at(0), [host(1), host(0)], LinkSeen::default());
    let directives = driven.act(at(0));
    assert_eq!(directives[0].1.rate, Rate::from_bits_per_sec(12_500_000));
}

#[test]
fn what_no_training_showed_it_is_reported_once_for_each_link() {
    let mut learned = policy(&[Feature::Flows], &[1.0], 0.0, Actuator::Rate, 100);
    learned.policy = learned.policy.with_known(vec![0.0], vec![0.25]).unwrap();
    let mut driven = Driven::new(config(learned, [Rate::ZERO, CAPACITY], Share::PerFlow));
    driven.report_all(at(0), [host(2), host(0)], LinkSeen::default());
    driven.act(at(0));
    assert_eq!(driven.take_events(), [CoordinatorEvent::ByPolicy(0)]);
    for now in [100, 200] {
        driven.report_all(at(now), [host(4), host(0)], LinkSeen::default());
        let directives = driven.act(at(now));
        // Four of eight are cut to what two are.
        assert!(
            directives.iter().all(|(place, said)| *place != 0 || said.rate.bits_per_sec() == 2_500_000),
            "{directives:?}"
        );
    }
    assert_eq!(driven.take_events(), [CoordinatorEvent::Beyond(0)]);
    let said = driven.coordinator.beyond(0).unwrap();
    assert!(
        said.starts_with("p.safetensors: at 0.1") && said.contains("flows is 0.5, and was from 0 to 0.25"),
        "{said}"
    );
}

#[test]
fn others_are_counted_over_an_interval_and_next_to_nothing_is_none() {
    let features = [Feature::CrossShare, Feature::CrossAge];
    let learned = policy(&features, &[-1.0, 0.0], 1.0, Actuator::Rate, 100);
    let mut driven = Driven::new(config(learned, [Rate::ZERO, MBIT(20)], Share::PerFlow));
    let mut now = 0;
    let mut passed = 0;
    let mut sent = 0;
    // 4 Mbit/s of a host and 2 of others; then others send half a percent.
    for (others, expected) in [(25_000, 0.8), (25_000, 0.8), (625, 1.0), (625, 1.0)] {
        driven.report_all(
            at(now),
            [HostSeen { sent: Bytes::new(sent), ..host(1) }, host(0)],
            LinkSeen { sent: Bytes::new(passed), ..LinkSeen::default() },
        );
        if now == 0 {
            driven.act(at(now));
        }
        (now, sent, passed) = (now + 100, sent + 50_000, passed + 50_000 + others);
        driven.report_all(
            at(now),
            [HostSeen { sent: Bytes::new(sent), ..host(1) }, host(0)],
            LinkSeen { sent: Bytes::new(passed), ..LinkSeen::default() },
        );
        let directives = driven.act(at(now));
        let rate =
            directives.iter().find(|(place, _)| *place == 0).map(|(_, said)| said.rate.bits_per_sec() as f64 / 1e7);
        assert!(rate.is_none_or(|rate| (rate - expected).abs() < 1e-6), "{rate:?} at {now} ms");
        let known = driven.coordinator.known()[0].budget().unwrap().0.bits_per_sec() as f64 / 1e7;
        assert!((known - expected).abs() < 1e-6, "{known} at {now} ms");
    }
}

#[test]
fn what_no_coordinator_can_know_or_direct_is_refused_by_its_name() {
    let refused = |learned: &Learned, change: &dyn Fn(&mut CoordinatorConfig)| {
        let mut config =
            config(policy(&[Feature::Active], &[0.0], 0.0, Actuator::Rate, 100), [CAPACITY; 2], Share::PerFlow);
        change(&mut config);
        fitness::check(learned, &config).unwrap_err().to_string()
    };
    let of = |feature| policy(&[feature], &[0.0], 0.0, Actuator::Rate, 100);
    let said = refused(&of(Feature::CrossNext), &|_| ());
    assert!(
        said.starts_with("purpose.features has \"cross_next\", which no coordinator of real hosts can know"),
        "{said}"
    );
    for feature in Feature::ALL.into_iter().filter(|feature| feature.needs_monitor()) {
        let said = refused(&of(feature), &|config| _ = config.members.pop());
        let expected =
            format!("has \"{}\", and nobody watches link \"uplink\"; expected a [[monitor]]", feature.name());
        assert!(said.contains(&expected), "{said}");
    }
    let said = refused(&of(Feature::Queue), &|config| config.links[0].queue = None);
    assert!(said.contains("has \"queue\", and it is not known how long the queue of link \"uplink\" is"), "{said}");
    assert!(said.contains("queue_ms = 50"), "{said}");
    let initial = policy(&[Feature::Active], &[0.0], 0.0, Actuator::Initial, 100);
    assert!(refused(&initial, &|_| ()).starts_with("purpose.actuator is \"initial\""));
    let mut domains = of(Feature::Active);
    domains.sight.agents = Agents::Domains;
    assert!(refused(&domains, &|_| ()).starts_with("purpose.agents is \"domains\""));
    let slow = policy(&[Feature::Active], &[0.0], 0.0, Actuator::Rate, 2000);
    assert!(refused(&slow, &|_| ()).starts_with("purpose.interval_s is 2, and agents report 0.005 to 1.9 s apart"));
    let wide = policy(&[Feature::Active], &[0.0; 3], 0.0, Actuator::Rate, 100);
    let said = refused(&wide, &|_| ());
    assert!(said.starts_with("its tensors are not for link \"uplink\" with 2 hosts: "), "{said}");
}
