//! ns-3's reading as a whole: Linux's rules without its interval and its growth before the first loss, what was counted
//! towards the next packet is kept, and what arrived behind a gap counts once that is filled. A window by hand, from loss
//! to loss.

use super::NS_3;
use crate::flow::registry::find;
use crate::flow::setup::Setup;
use crate::flow::testing::{PACKET, feedback, silence, traced};
use crate::flow::{Feedback, FlowController, Sent, TcpRecovery};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::Bytes;

const RTT: Duration = Duration::from_millis(60);

/// A controller of the reading, and whatever else `parameters` say.
fn ns_3(parameters: &str) -> Box<dyn FlowController> {
    let mut table: toml::Table = NS_3.parse().unwrap();
    table.extend(parameters.parse::<toml::Table>().unwrap());
    let setup = Setup { initial_window: PACKET * 13, ..Setup::new(PACKET, Time::ZERO) };
    find("cubic").unwrap().make(&setup, &table).unwrap()
}

fn window(controller: &dyn FlowController) -> f64 {
    traced(controller, "window") / PACKET.get() as f64
}

/// An ACK of one segment, which moves the cumulative point over `segments`.
fn acknowledge(controller: &mut dyn FlowController, at_ms: u64, tcp: impl Fn(Bytes) -> TcpRecovery, segments: u64) {
    let now = Time::ZERO + Duration::from_millis(at_ms);
    let acked = [Sent { at: now, size: PACKET, ..Sent::default() }];
    let feedback = Feedback { tcp: Some(tcp(PACKET * segments)), ..feedback(&acked, RTT) };
    controller.on_feedback(now, &feedback, &mut Rng::stream(1, "controller"));
}

fn lose(controller: &mut dyn FlowController, at_ms: u64) {
    let feedback = Feedback { tcp: Some(TcpRecovery::FastRetransmit), ..silence() };
    let now = Time::ZERO + Duration::from_millis(at_ms);
    controller.on_feedback(now, &feedback, &mut Rng::stream(1, "controller"));
}

/// A recovery that ends at `from_ms` with an ACK over `segments`, then an ACK of two each 10 ms for a second: when the
/// window grew, and to what.
fn growth(controller: &mut dyn FlowController, from_ms: u64, segments: u64) -> Vec<(u64, f64)> {
    let mut grown = Vec::new();
    let mut before = window(controller);
    for i in 0..=100 {
        let at_ms = from_ms + i * 10;
        match i {
            0 => acknowledge(controller, at_ms, |advanced| TcpRecovery::Ended { advanced }, segments),
            _ => acknowledge(controller, at_ms, |advanced| TcpRecovery::Open { advanced }, 2),
        }
        let after = window(controller);
        if after != before {
            grown.push((at_ms, after));
        }
        before = after;
    }
    grown
}

#[test]
fn the_window_after_two_losses_is_the_one_computed_by_hand() {
    let mut controller = ns_3("");
    let cubic = &mut *controller;
    assert_eq!(window(cubic), 13.0);
    // 13 leave floor(9.1) = 9, K = cbrt(4 / 0.4) = 2.15 s, and the curve is at 13 - floor(0.4 · 2.09³) = 10 a round trip
    // from now: 9 segments make a packet, and the 14 of the ACK that ends the recovery are more.
    lose(cubic, 900);
    assert_eq!(window(cubic), 9.0);
    let first = growth(cubic, 1000, 14);
    // W_est, by a packet for 15/8 W, is ahead of the curve: W follows it at the next ACK, since more than W segments
    // wait, counted while nothing was above W.
    let by_hand = [(1000, 10), (1120, 11), (1220, 12), (1330, 13), (1450, 14), (1580, 15), (1720, 16), (1870, 17)];
    assert_eq!(first, by_hand.map(|(at, packets)| (at, f64::from(packets))));
    // 17 leave 11, and the curve aims at 17 and is at 12. A partial ACK has left 3 segments for the one that ends the
    // recovery, less than 11; but 114 were left over.
    lose(cubic, 2050);
    assert_eq!(window(cubic), 11.0);
    let second = growth(cubic, 2100, 3);
    let by_hand = [(2100, 12), (2190, 13), (2360, 14), (2550, 15), (2740, 16), (2890, 17), (3050, 18)];
    assert_eq!(second, by_hand.map(|(at, packets)| (at, f64::from(packets))));
}

#[test]
fn each_rule_of_the_reading_moves_that_window() {
    let both = |parameters: &str| {
        let mut controller = ns_3(parameters);
        lose(&mut *controller, 900);
        let mut grown = growth(&mut *controller, 1000, 14);
        lose(&mut *controller, 2050);
        grown.extend(growth(&mut *controller, 2100, 3));
        grown
    };
    let whole = both("");
    for other in [
        "counting = \"bytes\"",
        "counting = \"acks\"",
        "remainder = \"forgotten\"",
        "linux = [\"whole-reduction\", \"whole-growth\", \"least-rtt\"]",
        "linux = [\"whole-growth\", \"w-est\", \"least-rtt\"]",
        "linux = [\"whole-reduction\", \"w-est\", \"least-rtt\"]\nremainder = \"forgotten\"",
    ] {
        assert_ne!(both(other), whole, "{other}");
    }
}

/// When the window grew after a timeout in a window of 17 packets, and to what.
fn grown_after_a_timeout(parameters: &str) -> Vec<(u64, f64)> {
    let mut controller = ns_3(parameters);
    let cubic = &mut *controller;
    lose(cubic, 900);
    growth(cubic, 1000, 14);
    let timeout = TcpRecovery::Timeout { in_flight: PACKET * 17, repeated: false };
    let expired = Feedback { tcp: Some(timeout), persistent_congestion: true, ..silence() };
    cubic.on_feedback(Time::ZERO + Duration::from_millis(3000), &expired, &mut Rng::stream(1, "controller"));
    assert_eq!((window(cubic), traced(cubic, "w_max"), traced(cubic, "w_est")), (1.0, 0.0, 0.0));
    growth(cubic, 3100, 2)
}

#[test]
fn after_a_timeout_the_curve_and_the_estimate_begin_anew() {
    // ssthresh is floor(0.7 · 17) = 11; two segments an ACK lead there. Then the curve is flat at 11 and W_est is there
    // too, so that 1100 segments would make a packet, of which 114 and more were left over; 15/8 · 11 = 20 of them and
    // one more raise W_est, and 11 are enough.
    let by_hand = [(3100, 3), (3110, 5), (3120, 7), (3130, 9), (3140, 11), (3250, 12)];
    assert_eq!(grown_after_a_timeout("")[..6], by_hand.map(|(at, packets)| (at, f64::from(packets))));
    // Linux's growth before the first loss makes a packet of 20 segments, which are there.
    let startup = "linux = [\"whole-reduction\", \"whole-growth\", \"w-est\", \"least-rtt\", \"startup\"]";
    assert_eq!(grown_after_a_timeout(startup)[5], (3150, 12.0));
}
