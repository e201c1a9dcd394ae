//! One whose rule expects others than its hosts to come and go.

use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::coordinator::{CoordinatorConfig, Duty, LinkConfig, Member, Share};
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::coordination::message::{Actuator, HostSeen, LinkSeen, Seen};
use anabranch_proto::session::PeerKey;

use crate::driven::{CAPACITY, Driven, at, host};

/// A host of one link, and its monitor.
fn config(expected: Expected) -> CoordinatorConfig {
    of_hosts(1, expected)
}

/// Hosts of one link, and its monitor.
pub fn of_hosts(hosts: usize, expected: Expected) -> CoordinatorConfig {
    let host = Duty::Host { link: 0, least: Rate::ZERO, most: CAPACITY, most_flows: 8 };
    let members = vec![host; hosts].into_iter().chain([Duty::Monitor { link: 0 }]).zip(1..);
    let member = |(duty, key)| Member { name: format!("member {key}"), key: PeerKey([key; 32]), duty };
    CoordinatorConfig {
        epoch: 1,
        every: Duration::from_millis(100),
        utilisation: 1.0,
        actuator: Actuator::Rate,
        share: Share::PerHost,
        expected,
        links: vec![LinkConfig { name: "uplink".into(), capacity: CAPACITY, queue: None }],
        members: members.map(member).collect(),
        policy: None,
    }
}

/// What the host is told each 100 ms, in tenths of a Mbit/s, where others send half of the link in the spans of 100 ms
/// for which `are_there` says so.
fn told(expected: Expected, spans: u64, are_there: impl Fn(u64) -> bool) -> Vec<u64> {
    told_anew(expected, spans, are_there, u64::MAX)
}

/// The same, where the host's agent is started again before one of them.
fn told_anew(expected: Expected, spans: u64, are_there: impl Fn(u64) -> bool, anew: u64) -> Vec<u64> {
    let mut driven = Driven::new(config(expected));
    let (mut sent, mut passed, mut rate) = (0, 0, 0);
    let mut told = Vec::new();
    for span in 0..spans {
        // The monitor reports four times as often as the host.
        for quarter in 0..4 {
            let now = at(100 * span + 25 * quarter);
            if quarter == 0 {
                if span == anew {
                    driven.open(now, 0);
                }
                driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(sent), ..host(1) }));
            }
            driven.report(now, 1, Seen::Link(LinkSeen { sent: Bytes::new(passed), ..LinkSeen::default() }));
            for (place, directive) in driven.act(now) {
                assert_eq!(place, 0);
                rate = directive.rate.bits_per_sec();
            }
            let others = if are_there(span) { 5_000_000 } else { 0 };
            sent += rate / 8 / 40;
            passed += rate / 8 / 40 + others / 8 / 40;
        }
        told.push((rate + 50_000) / 100_000);
    }
    told
}

#[test]
fn by_the_last_period_room_is_made_before_others_come_and_taken_when_they_go() {
    // There for five spans of twelve.
    let are_there = |span: u64| span % 12 >= 7;
    let room: Vec<u64> = (48..72).map(|span| if are_there(span) { 50 } else { 100 }).collect();
    let expecting = told(Expected::LastPeriod, 72, are_there);
    assert_eq!(expecting[48..], room);
    assert_eq!(told(Expected::Closer, 72, are_there)[48..], room);
    // By the last span it is late by one, both ways.
    let late = told(Expected::LastSpan, 72, are_there);
    assert_eq!(late[49..], room[..23]);
}

/// What it has sent until its second report is not known, and others' part of that neither.
#[test]
fn an_agent_that_is_started_again_is_nobody_who_comes_and_goes() {
    let are_there = |span: u64| span % 12 >= 7;
    let room: Vec<u64> = (56..96).map(|span| if are_there(span) { 50 } else { 100 }).collect();
    for anew in 48..54 {
        let told = told_anew(Expected::LastPeriod, 96, are_there, anew);
        assert_eq!(told[56..], room, "before span {anew}");
    }
}

#[test]
fn a_forecast_that_errs_more_than_the_last_span_is_not_taken() {
    // Primes and their like: no time is as long as the one before.
    let are_there = |span: u64| (span * span / 11) % 2 == 1 && span % 7 > 1;
    let errors = |expected| {
        let told = told(expected, 300, are_there);
        let wrong = told.iter().zip(0..).skip(30).filter(|(told, span)| (**told < 75) != are_there(*span));
        wrong.count()
    };
    let (span, period, closer) = (errors(Expected::LastSpan), errors(Expected::LastPeriod), errors(Expected::Closer));
    assert!(
        period > span && closer <= span + 5,
        "{span} by the last span, {period} by the last period, {closer} by the closer"
    );
}

#[test]
fn what_was_known_before_a_monitor_began_anew_is_forgotten() {
    let mut driven = Driven::new(config(Expected::LastPeriod));
    let mut told = 0;
    for span in 0..40_u64 {
        // The monitor was started anew at the twentieth, and counts from zero; others send half of the link always.
        let counted = if span < 20 { span } else { span - 20 };
        driven.report(at(100 * span), 0, Seen::Host(HostSeen { sent: Bytes::ZERO, ..host(1) }));
        let passed = Bytes::new(62_500 * counted);
        driven.report(at(100 * span), 1, Seen::Link(LinkSeen { sent: passed, ..LinkSeen::default() }));
        told = driven.act(at(100 * span)).first().map_or(told, |(_, directive)| directive.rate.bits_per_sec());
        if span > 2 {
            assert_eq!((told + 50_000) / 100_000, 50, "at span {span}");
        }
    }
}

/// Others come at once, and wait behind what the host has sent: what passes tells of them late, what comes does not.
#[test]
fn others_are_seen_when_they_come_to_a_queue_not_when_they_leave_it() {
    for (knows_queue, expected) in [(true, 25), (false, 75)] {
        let mut driven = Driven::new(config(Expected::LastSpan));
        let (mut sent, mut passed, mut queued, mut rate) = (0, 0, 0, 0);
        // The host sends what the link carries, as it is told until others come, three quarters of the link.
        for span in 0..12_u64 {
            let now = at(100 * span);
            driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(sent), ..host(1) }));
            let queued_now = knows_queue.then_some(Bytes::new(queued));
            let link = LinkSeen { sent: Bytes::new(passed), queued: queued_now, ..LinkSeen::default() };
            driven.report(now, 1, Seen::Link(link));
            for (_, directive) in driven.act(now) {
                rate = directive.rate.bits_per_sec();
            }
            if span == 11 {
                assert_eq!((rate + 50_000) / 100_000, expected, "{knows_queue}");
            }
            let others = if span == 10 { 7_500_000 / 80 } else { 0 };
            sent += rate / 80;
            queued += rate / 80 + others;
            // Of what waits, a quarter of others' at first.
            let passes = if span == 10 { rate / 80 + others / 3 } else { queued.min(10_000_000 / 80) };
            passed += passes;
            queued -= passes;
        }
    }
}

/// They come to a queue that is full and stays so.
#[test]
fn others_whose_packets_are_dropped_are_seen_as_well() {
    for (knows_drops, expected) in [(true, 26), (false, 100)] {
        let mut driven = Driven::new(config(Expected::LastSpan));
        let (mut sent, mut passed, mut dropped, mut rate) = (0, 0, 0, 0);
        for span in 0..12_u64 {
            let now = at(100 * span);
            driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(sent), ..host(1) }));
            let dropped_now = if knows_drops { dropped / 1514 } else { 0 };
            let queued = Some(Bytes::new(50_000));
            let link = LinkSeen { sent: Bytes::new(passed), queued, dropped: dropped_now, ..LinkSeen::default() };
            driven.report(now, 1, Seen::Link(link));
            for (_, directive) in driven.act(now) {
                rate = directive.rate.bits_per_sec();
            }
            // All that the link carries, and three quarters of that beside it.
            let others = if span == 10 { 7_500_000 / 80 } else { 0 };
            sent += rate / 80;
            passed += rate / 80;
            dropped += others;
        }
        assert_eq!((rate + 50_000) / 100_000, expected, "{knows_drops}");
    }
}

/// Of half of the link, in 25 ms.
const HALF: u64 = 15_625;

/// What the host is directed each 25 ms, in tenths of a Mbit/s, where it and others send `each` in that time; the monitor
/// says at each of them that `queued` bytes wait beside what `grows` of each 25 ms.
fn directed(each: u64, grows: u64, queued: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
    let mut driven = Driven::new(config(Expected::LastSpan));
    let (mut rate, mut directed) = (0, Vec::new());
    for quarter in 0..160_u64 {
        let now = at(25 * quarter);
        if quarter % 4 == 0 {
            driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(each * quarter), ..host(1) }));
        }
        let queued = queued(quarter).map(|queued| Bytes::new(queued + grows * quarter));
        let sent = Bytes::new((2 * each - grows) * quarter);
        driven.report(now, 1, Seen::Link(LinkSeen { sent, queued, ..LinkSeen::default() }));
        rate = driven.act(now).first().map_or(rate, |(_, directive)| directive.rate.bits_per_sec());
        directed.push((rate + 50_000) / 100_000);
    }
    directed
}

/// Whether the monitor knows the queue changes in the middle of a span.
#[test]
fn a_queue_that_becomes_known_has_not_come_just_then_and_one_that_is_not_known_hides_nobody() {
    let directed = directed(HALF, 0, |quarter| (quarter % 13 > 5).then_some(500_000));
    assert_eq!(directed[12..], [50; 148]);
}

/// Counters are read one after the other, and what is in neither once is there the next time. Others' packets wait here, so
/// that whoever forgets what waits sees nobody.
#[test]
fn what_is_in_neither_counter_once_makes_nothing_be_forgotten() {
    let directed = directed(HALF, HALF, |quarter| Some(if quarter % 40 == 37 { 0 } else { 50_000 }));
    assert!(directed[12..].iter().all(|rate| rate.abs_diff(50) <= 13), "{directed:?}");
}

/// As when a device goes down and comes up again: nobody counts what was thrown away.
#[test]
fn a_queue_that_is_thrown_away_uncounted_hides_others_no_longer_than_a_period() {
    // As much as comes in a second.
    let directed = directed(HALF / 8, 0, |quarter| Some(if quarter < 82 { 140_000 } else { 0 }));
    let rates = |range: std::ops::Range<usize>| directed[range].iter().all(|rate| *rate == 94);
    assert!(rates(12..82) && rates(92..160), "{directed:?}");
}

/// What was expected of a moment does not hold for as long as a monitor is silent: what was seen last does.
#[test]
fn what_a_silent_monitor_said_last_holds_and_not_what_was_expected_then() {
    let are_there = |span: u64| span % 12 >= 7;
    for silent_from in 60..72 {
        let mut driven = Driven::new(config(Expected::LastPeriod));
        let (mut sent, mut passed, mut rate) = (0, 0, 0);
        for span in 0..silent_from + 20 {
            for quarter in 0..4 {
                let now = at(100 * span + 25 * quarter);
                if quarter == 0 {
                    driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(sent), ..host(1) }));
                }
                if span < silent_from {
                    driven.report(now, 1, Seen::Link(LinkSeen { sent: Bytes::new(passed), ..LinkSeen::default() }));
                }
                for (_, directive) in driven.act(now) {
                    rate = directive.rate.bits_per_sec();
                }
                sent += rate / 320;
                passed += rate / 320 + if are_there(span) { 15_625 } else { 0 };
            }
            if span > silent_from + 5 {
                let divided = driven.coordinator.divided()[0];
                assert_eq!(divided.expected, divided.other, "silent from {silent_from}, at {span}");
                assert_eq!(rate, CAPACITY.bits_per_sec() - divided.other.bits_per_sec(), "at {span}");
            }
        }
    }
}

/// What others have sent is seen again after a monitor has said once that more waits than there is.
#[test]
fn a_queue_that_was_never_there_is_forgotten() {
    let directed = directed(HALF, 0, |quarter| Some(if quarter == 80 { u64::MAX - 2 * HALF * 80 } else { 3_000 }));
    assert_eq!(directed[12..80], [50; 68]);
    assert_eq!(directed[80..84], [0; 4]);
    assert_eq!(directed[88..], [50; 72]);
}
