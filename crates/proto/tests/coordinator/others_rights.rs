//! What hosts that are silent, or whose clocks go wrong, take from the others of their link: nothing.

use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::coordination::message::{HostSeen, LinkSeen, Seen};

use crate::driven::{CAPACITY, Driven, at, host};
use crate::expecting::of_hosts;

/// Each of them was told what a first flow of its own might have, which is no part of the link that it has taken.
#[test]
fn hosts_without_flows_that_fall_silent_take_nothing_from_one_that_has_some() {
    const HOSTS: u32 = 6;
    let mut driven = Driven::new(of_hosts(HOSTS as usize, Expected::LastSpan));
    let mut sent = 0;
    for span in 0..60 {
        let now = at(100 * span);
        driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(sent), ..host(1) }));
        if span < 30 {
            (1..HOSTS).for_each(|place| driven.report(now, place, Seen::Host(host(0))));
        }
        driven.report(now, HOSTS, Seen::Link(LinkSeen { sent: Bytes::new(sent), ..LinkSeen::default() }));
        driven.act(now);
        let Some((rate, _)) = driven.coordinator.known()[0].budget() else { continue };
        if span > 2 {
            assert_eq!(rate, CAPACITY, "at span {span}");
        }
        sent += rate.bits_per_sec() / 80;
    }
}

/// A host whose clock goes at `tenths` of what it should, beside one whose clock is right; others come after 20 s.
fn other_at_last(tenths: u64) -> u64 {
    let mut driven = Driven::new(of_hosts(2, Expected::LastSpan));
    let (mut sent, mut passed) = ([0; 2], 0);
    for span in 0..240 {
        let now = at(100 * span);
        driven.report(now, 0, Seen::Host(HostSeen { sent: Bytes::new(sent[0]), ..host(1) }));
        let its = Duration::from_millis(10 * span * tenths);
        driven.report_of(now, its, 1, Seen::Host(HostSeen { sent: Bytes::new(sent[1]), ..host(1) }));
        driven.report(now, 2, Seen::Link(LinkSeen { sent: Bytes::new(passed), ..LinkSeen::default() }));
        driven.act(now);
        let others = if span >= 200 { 8_000_000 / 80 } else { 0 };
        for (sent, known) in sent.iter_mut().zip(driven.coordinator.known()) {
            let rate = known.budget().map_or(0, |(rate, _)| rate.bits_per_sec() / 80);
            *sent += rate;
            passed += rate;
        }
        passed += others;
    }
    driven.coordinator.divided()[0].other.bits_per_sec()
}

#[test]
fn a_slow_clock_keeps_nobody_from_seeing_what_others_send() {
    for tenths in [10, 9, 5, 1] {
        let other = other_at_last(tenths);
        assert!(other.abs_diff(8_000_000) < 1_000_000, "{other} bit/s, of a clock at {tenths} tenths");
    }
}
