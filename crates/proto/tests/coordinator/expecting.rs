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
    let host = Duty::Host { link: 0, least: Rate::ZERO, most: CAPACITY, most_flows: 8 };
    let members = [host, Duty::Monitor { link: 0 }].into_iter().zip(1..);
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
/// for which `are_there` says so; and what they send of the same spans, in tenths of a Mbit/s.
fn told(expected: Expected, spans: u64, are_there: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut driven = Driven::new(config(expected));
    let (mut sent, mut passed, mut rate) = (0, 0, 0);
    let mut told = Vec::new();
    for span in 0..spans {
        // The monitor reports four times as often as the host.
        for quarter in 0..4 {
            let now = at(100 * span + 25 * quarter);
            if quarter == 0 {
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

/// Others send half of the link always; whether the monitor knows the queue changes in the middle of a span.
#[test]
fn a_queue_that_becomes_known_has_not_come_just_then_and_one_that_is_not_known_hides_nobody() {
    let mut driven = Driven::new(config(Expected::LastSpan));
    for quarter in 0..160_u64 {
        let now = at(25 * quarter);
        if quarter % 4 == 0 {
            driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(15_625 * quarter), ..host(1) }));
        }
        let queued = (quarter % 13 > 5).then_some(Bytes::new(500_000));
        driven.report(
            now,
            1,
            Seen::Link(LinkSeen { sent: Bytes::new(31_250 * quarter), queued, ..LinkSeen::default() }),
        );
        for (_, directive) in driven.act(now) {
            let megabits = (directive.rate.bits_per_sec() + 500_000) / 1_000_000;
            assert_eq!(megabits, 5, "at quarter {quarter}");
        }
    }
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
    let mut driven = Driven::new(config(Expected::LastSpan));
    for span in 0..20_u64 {
        let queued = Some(Bytes::new(if span == 10 { u64::MAX } else { 3_000 }));
        driven.report(at(100 * span), 0, Seen::Host(host(1)));
        let link = LinkSeen { sent: Bytes::new(62_500 * span), queued, ..LinkSeen::default() };
        driven.report(at(100 * span), 1, Seen::Link(link));
        for (_, directive) in driven.act(at(100 * span)) {
            let megabits = (directive.rate.bits_per_sec() + 500_000) / 1_000_000;
            assert_eq!(megabits, if span == 10 { 0 } else { 5 }, "at span {span}");
        }
    }
}
