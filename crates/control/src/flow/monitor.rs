//! Monitor intervals: what became of the packets of each stretch of sending.
//!
//! A sender of the PCC family sends at one rate for an interval, waits until each packet of
//! that interval is acknowledged or lost, and only then judges the rate (Dong et al., "PCC:
//! re-architecting congestion control for consistent high performance", NSDI 2015, 2.1).
//! A packet belongs to the interval in which it left, whenever its fate is known; intervals
//! follow each other without a gap, each begun by its first packet.

use std::collections::VecDeque;

use super::{Abandoned, Feedback, Sent};
use crate::time::{Duration, Seconds, SquareSeconds, Time};
use crate::units::{Bytes, MbitRate, Octets};

/// Intervals whose packets are under way; the newest is stretched when there are more.
const MOST_INTERVALS: usize = 64;

/// Squares of times of leaving that add up to no more have no slope: the packets left at one instant.
const LEAST_SPREAD: SquareSeconds = SquareSeconds(1e-12);

/// A stretch of sending whose packets have all been acknowledged or lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report<P> {
    /// What the interval was for.
    pub purpose: P,
    /// When it began.
    pub start: Time,
    /// From its first packet to the first of the next interval.
    pub span: Duration,
    /// Data that left.
    pub sent: Bytes,
    /// Data that was acknowledged.
    pub acked: Bytes,
    /// Data that was lost.
    pub lost: Bytes,
    /// Slope of the least-squares line through its packets' round-trip times over their
    /// times of leaving, in seconds a second; 0 with less than two samples.
    pub rtt_gradient: f64,
    /// The first and the last round-trip sample; none without any.
    pub rtt_ends: Option<(Duration, Duration)>,
    /// Whether the application, not the rate, limited the sender.
    pub app_limited: bool,
}

impl<P> Report<P> {
    /// What was sent over time.
    pub fn sent_rate(&self) -> MbitRate {
        rate(self.sent, self.span)
    }

    /// What was acknowledged over time.
    pub fn acked_rate(&self) -> MbitRate {
        rate(self.acked, self.span)
    }

    /// Share of the data that was lost.
    pub fn loss(&self) -> f64 {
        self.lost.get() as f64 / self.sent.get().max(1) as f64
    }
}

fn rate(bytes: Bytes, span: Duration) -> MbitRate {
    let rate = Octets::from(bytes) / span.seconds().max(Seconds::NANOSECOND);
    MbitRate(rate.bits_per_sec() / 1e6)
}

/// Sums of a least-squares line; times since the interval began.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    count: f64,
    t: Seconds,
    rtt: Seconds,
    t_t: SquareSeconds,
    t_rtt: SquareSeconds,
}

impl Line {
    /// A round trip `rtt` of a packet that left at `t`.
    pub(super) fn add(&mut self, t: Seconds, rtt: Seconds) {
        self.count += 1.0;
        self.t += t;
        self.rtt += rtt;
        self.t_t += t * t;
        self.t_rtt += t * rtt;
    }

    /// By how much round trips rise over time, in seconds a second; 0 with less than two.
    pub(super) fn slope(&self) -> f64 {
        // Σ (t - mean t)²
        let spread = self.t_t - self.t * self.t / self.count.max(1.0);
        if self.count < 2.0 || spread <= LEAST_SPREAD {
            return 0.0;
        }
        (self.t_rtt - self.t * self.rtt / self.count) / spread
    }
}

#[derive(Clone, Copy, Debug)]
struct Interval<P> {
    purpose: P,
    start: Time,
    /// The first packet that leaves from then on begins the next one.
    due: Time,
    end: Option<Time>,
    sent: Bytes,
    acked: Bytes,
    lost: Bytes,
    line: Line,
    rtt_ends: Option<(Duration, Duration)>,
    app_limited: bool,
}

/// The intervals of one sender.
#[derive(Clone, Debug)]
pub struct Monitor<P> {
    /// The oldest first; only the last is open.
    intervals: VecDeque<Interval<P>>,
}

impl<P: Copy> Monitor<P> {
    /// None yet.
    pub fn new() -> Monitor<P> {
        Monitor { intervals: VecDeque::with_capacity(MOST_INTERVALS) }
    }

    /// Whether a packet that leaves at `now` must be the first of a new interval.
    #[inline]
    pub fn is_due(&self, now: Time) -> bool {
        self.intervals.back().is_none_or(|open| now >= open.due && self.intervals.len() < MOST_INTERVALS)
    }

    /// Ends the open interval and begins another, of at least `length`, with the packet that
    /// leaves `now`; to be called only when that is due.
    pub fn begin(&mut self, now: Time, length: Duration, purpose: P) {
        debug_assert!(self.is_due(now), "an interval is begun before it is due");
        if let Some(open) = self.intervals.back_mut() {
            open.end = Some(now);
        }
        self.intervals.push_back(Interval {
            purpose,
            start: now,
            // Packets of one instant belong together.
            due: now + length.max(Duration::from_nanos(1)),
            end: None,
            sent: Bytes::ZERO,
            acked: Bytes::ZERO,
            lost: Bytes::ZERO,
            line: Line::default(),
            rtt_ends: None,
            app_limited: false,
        });
    }

    /// Lets the packet that leaves next after `now` begin a new interval.
    pub fn cut(&mut self, now: Time) {
        if let Some(open) = self.intervals.back_mut() {
            open.due = open.due.min(now + Duration::from_nanos(1));
        }
    }

    /// A packet leaves, in the open interval.
    #[inline]
    pub fn on_sent(&mut self, packet: &Sent) {
        // Where the application had no more, the interval before lasted until it had.
        let begun = self.intervals.len();
        if packet.app_limited && begun >= 2 && self.intervals[begun - 1].sent == Bytes::ZERO {
            self.intervals[begun - 2].app_limited = true;
        }
        if let Some(open) = self.intervals.back_mut() {
            open.sent += packet.size;
            open.app_limited |= packet.app_limited;
        }
    }

    /// Books what `feedback` says to the intervals in which its packets left.
    #[inline]
    pub fn on_feedback(&mut self, feedback: &Feedback<'_>) {
        // Packets come in the order in which they left: the search goes on from the last hit.
        let mut at = 0;
        for sent in feedback.acked {
            if let Some(interval) = self.of(&mut at, sent) {
                interval.acked += sent.size;
            }
        }
        // The sample belongs to the newest packet; those before it waited for its ACK.
        if let (Some(newest), Some(rtt)) = (feedback.acked.last(), feedback.rtt.latest)
            && let Some(interval) = self.of(&mut at, newest)
        {
            interval.line.add(newest.at.since(interval.start).seconds(), rtt.seconds());
            interval.rtt_ends = Some((interval.rtt_ends.map_or(rtt, |(first, _)| first), rtt));
        }
        at = 0;
        for lost in feedback.lost {
            if let Some(interval) = self.of(&mut at, &lost.sent) {
                interval.lost += lost.sent.size;
            }
        }
    }

    /// Takes packets whose fate will never be known out of their intervals, which would wait for it.
    pub fn on_abandoned(&mut self, abandoned: &Abandoned<'_>) {
        let mut at = 0;
        for sent in abandoned.packets {
            if let Some(interval) = self.of(&mut at, sent) {
                interval.sent -= sent.size;
            }
        }
    }

    /// The interval in which `packet` left, from the one at `at` on; none if it left before
    /// all of them.
    #[inline]
    fn of(&mut self, at: &mut usize, packet: &Sent) -> Option<&mut Interval<P>> {
        while self.intervals.get(*at)?.end.is_some_and(|end| packet.at >= end) {
            *at += 1;
        }
        self.intervals.get_mut(*at).filter(|interval| packet.at >= interval.start)
    }

    /// The oldest interval, once it is over and its last packet's fate is known.
    #[inline]
    pub fn next_report(&mut self) -> Option<Report<P>> {
        let oldest = self.intervals.front()?;
        let end = oldest.end?;
        if oldest.acked + oldest.lost < oldest.sent {
            return None;
        }
        let Interval { purpose, start, sent, acked, lost, line, rtt_ends, app_limited, .. } =
            self.intervals.pop_front()?;
        let rtt_gradient = line.slope();
        Some(Report { purpose, start, span: end.since(start), sent, acked, lost, rtt_gradient, rtt_ends, app_limited })
    }

    /// Forgets all intervals; what is still under way belongs to none.
    pub fn clear(&mut self) {
        self.intervals.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::{LossCause, Lost, PeerId, RoundTrip};
    use crate::rng::Rng;

    const SIZE: Bytes = Bytes::new(1000);
    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn at(ms: u64) -> Time {
        Time::ZERO + MS(ms)
    }

    fn packet(left: Time) -> Sent {
        Sent { at: left, size: SIZE, ..Sent::default() }
    }

    fn feed(monitor: &mut Monitor<u32>, acked: &[Sent], lost: &[Sent], rtt: Option<Duration>) {
        let lost: Vec<Lost> = lost.iter().map(|sent| Lost { sent: *sent, cause: LossCause::PacketThreshold }).collect();
        monitor.on_feedback(&Feedback {
            receiver: PeerId(0),
            rtt: RoundTrip { latest: rtt, smoothed: MS(100), variation: MS(0), min: MS(100) },
            acked,
            lost: &lost,
            acked_bytes: SIZE * acked.len() as u64,
            in_flight: Bytes::ZERO,
            delivered: Bytes::ZERO,
            rate: None,
            ecn_marked_packets: 0,
            persistent_congestion: false,
            tcp: None,
            app_limited: false,
        });
    }

    /// Sends a packet each ms from `from` to `to`, an interval each 10 ms.
    fn send(monitor: &mut Monitor<u32>, from: u64, to: u64) -> Vec<Sent> {
        (from..to)
            .map(|ms| {
                if monitor.is_due(at(ms)) {
                    monitor.begin(at(ms), MS(10), ms as u32);
                }
                let packet = packet(at(ms));
                monitor.on_sent(&packet);
                packet
            })
            .collect()
    }

    #[test]
    fn an_interval_does_not_wait_for_packets_that_are_abandoned() {
        let mut monitor = Monitor::new();
        let packets = send(&mut monitor, 0, 25);
        feed(&mut monitor, &packets[..7], &[], Some(MS(100)));
        let abandoned =
            Abandoned { receiver: PeerId(0), packets: &packets[7..12], in_flight: Bytes::ZERO, is_gone: true };
        assert_eq!(monitor.next_report(), None);
        monitor.on_abandoned(&abandoned);
        let report = monitor.next_report().unwrap();
        assert_eq!((report.sent, report.acked, report.lost), (SIZE * 7, SIZE * 7, Bytes::ZERO));
        // Two of the next one's were abandoned too.
        feed(&mut monitor, &packets[12..20], &[], Some(MS(100)));
        assert_eq!(monitor.next_report().unwrap().sent, SIZE * 8);
    }

    #[test]
    fn an_interval_is_reported_when_the_last_packet_that_left_in_it_is_known() {
        let mut monitor = Monitor::new();
        let packets = send(&mut monitor, 0, 25);
        for sent in &packets[..9] {
            feed(&mut monitor, &[*sent], &[], Some(MS(100)));
        }
        assert_eq!(monitor.next_report(), None);
        // The tenth is lost, and found out with an ACK of the next interval.
        feed(&mut monitor, &[packets[10]], &[packets[9]], Some(MS(100)));
        let report = monitor.next_report().unwrap();
        assert_eq!((report.purpose, report.start, report.span), (0, at(0), MS(10)));
        assert_eq!((report.sent, report.acked, report.lost), (SIZE * 10, SIZE * 9, SIZE));
        assert!((report.sent_rate().0 - 8.0).abs() < 1e-9 && (report.loss() - 0.1).abs() < 1e-12);
        assert_eq!(monitor.next_report(), None);
        // The open interval is never reported, whatever is known of it.
        for sent in &packets[11..] {
            feed(&mut monitor, &[*sent], &[], Some(MS(100)));
        }
        assert_eq!(monitor.next_report().unwrap().purpose, 10);
        assert_eq!(monitor.next_report(), None);
    }

    #[test]
    fn the_gradient_is_the_slope_of_round_trips_over_times_of_leaving() {
        let mut monitor = Monitor::new();
        let packets = send(&mut monitor, 0, 11);
        for (i, sent) in packets.iter().enumerate() {
            // 100 ms and 2 ms more for each ms: 2 s a second.
            feed(&mut monitor, &[*sent], &[], Some(MS(100 + 2 * i as u64)));
        }
        let report = monitor.next_report().unwrap();
        assert!((report.rtt_gradient - 2.0).abs() < 1e-9, "{}", report.rtt_gradient);
        assert_eq!(report.rtt_ends, Some((MS(100), MS(118))));
    }

    #[test]
    fn an_interval_that_ends_with_a_pause_of_the_application_is_limited_by_it() {
        let mut monitor = Monitor::new();
        let packets = send(&mut monitor, 0, 5);
        // The application has no more after 5 ms, and goes on 10 s later.
        let later = Sent { app_limited: true, ..packet(at(10_000)) };
        monitor.begin(later.at, MS(10), 1);
        monitor.on_sent(&later);
        feed(&mut monitor, &packets, &[], Some(MS(100)));
        assert!(monitor.next_report().unwrap().app_limited, "10 s are not what it took to send five packets");
    }

    #[test]
    fn one_sample_or_none_has_no_gradient() {
        let mut monitor = Monitor::new();
        let packets = send(&mut monitor, 0, 11);
        feed(&mut monitor, &packets[..10], &[], Some(MS(100)));
        assert_eq!(monitor.next_report().unwrap().rtt_gradient.to_bits(), 0);
    }

    #[test]
    fn without_room_for_another_the_open_interval_is_stretched() {
        let mut monitor = Monitor::new();
        let packets = send(&mut monitor, 0, 10_000);
        assert_eq!(monitor.intervals.len(), MOST_INTERVALS);
        for sent in &packets {
            feed(&mut monitor, &[*sent], &[], Some(MS(100)));
        }
        let closed: u64 = core::iter::from_fn(|| monitor.next_report()).map(|report| report.sent.get()).sum();
        assert_eq!(closed, 1000 * 10 * (MOST_INTERVALS as u64 - 1));
        assert_eq!(monitor.intervals.len(), 1);
    }

    proptest! {
        #[test]
        fn every_packet_is_booked_once_to_the_interval_in_which_it_left(
            gaps in proptest::collection::vec(0u64..4, 20..200), length in 1u64..12, loss in 0.0..0.9, seed in 0u64..10_000,
        ) {
            let mut rng = Rng::stream(seed, "fates");
            let mut monitor = Monitor::new();
            let (mut now, mut begun, mut packets) = (Time::ZERO, 0u32, Vec::new());
            for gap in gaps {
                now += MS(gap);
                if monitor.is_due(now) {
                    begun += 1;
                    monitor.begin(now, MS(length), begun);
                }
                monitor.on_sent(&packet(now));
                packets.push((begun, packet(now)));
            }
            // Fates in an order of their own, some packets together.
            let mut expected = vec![(0u64, 0u64); begun as usize + 1];
            let mut fates = packets.clone();
            for i in (1..fates.len()).rev() {
                fates.swap(i, rng.below(i + 1));
            }
            let mut reports = Vec::new();
            while !fates.is_empty() {
                let mut batch: Vec<(u32, Sent)> = fates.split_off(fates.len() - fates.len().min(1 + rng.below(3)));
                batch.sort_by_key(|(_, sent)| sent.at);
                let (mut acked, mut lost) = (Vec::new(), Vec::new());
                for (interval, sent) in batch {
                    if rng.chance(loss) {
                        expected[interval as usize].1 += sent.size.get();
                        lost.push(sent);
                    } else {
                        expected[interval as usize].0 += sent.size.get();
                        acked.push(sent);
                    }
                }
                feed(&mut monitor, &acked, &lost, (!acked.is_empty()).then_some(MS(50)));
                reports.extend(core::iter::from_fn(|| monitor.next_report()));
            }
            prop_assert_eq!(reports.len(), begun as usize - 1, "all but the open interval are over");
            for (i, report) in reports.iter().enumerate() {
                prop_assert_eq!(report.purpose, i as u32 + 1);
                prop_assert_eq!((report.acked.get(), report.lost.get()), expected[i + 1]);
                prop_assert_eq!(report.sent, report.acked + report.lost);
                prop_assert!(report.rtt_gradient.is_finite());
            }
        }
    }
}
