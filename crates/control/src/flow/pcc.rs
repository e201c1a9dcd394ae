//! What the controllers of the PCC family share beside monitor intervals: a target rate
//! becomes limits, a round trip decides how long an interval is, and utilities are judged
//! in Mbit/s.

use super::monitor::{Monitor, Report};
use super::{Feedback, Limits};
use crate::round_trip::INITIAL_RTT;
use crate::time::{Duration, Seconds};
use crate::units::{Bytes, MbitRate, Mbits, OctetRate, Packets, Rate};

/// The window over what the rate keeps in flight. The rate decides; the window only bounds
/// what a silent network is sent.
const WINDOW_GAIN: f64 = 2.0;

/// The smallest window.
const MINIMUM_WINDOW: Packets = Packets(10.0);

/// No round trip counts as shorter where something is divided by it.
pub const SHORTEST_RTT: Seconds = Seconds(1e-6);

/// Nor a rate as lower: a bit a second.
const LOWEST_RATE: MbitRate = MbitRate(1e-6);

/// What an interval was for, in a search that may have been given up since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Purpose<K> {
    /// The search that it belongs to.
    pub epoch: u32,
    /// What for.
    pub kind: K,
    /// The rate that was asked for.
    pub rate: MbitRate,
    /// The smoothed round trip when it began.
    pub srtt: Duration,
}

/// A sender with a rate, and the intervals in which it tries rates.
#[derive(Clone, Debug)]
pub struct Trial<K> {
    pub monitor: Monitor<Purpose<K>>,
    /// Of the open interval.
    pub rate: MbitRate,
    pub epoch: u32,
    pub packet: Bytes,
    /// The smoothed round trip; none before the first sample.
    pub srtt: Option<Duration>,
    pub min_rtt: Duration,
    latest: Duration,
    pub app_limited: bool,
    /// What the lowest rate sends in a round trip.
    minimum: Packets,
}

impl<K: Copy> Trial<K> {
    /// At `packets` packets a round trip, of a length that is not known yet.
    pub fn new(packet: Bytes, packets: Packets, minimum: Packets) -> Trial<K> {
        let rate = Mbits::of(packets, packet.into()) / INITIAL_RTT.seconds();
        Trial {
            monitor: Monitor::new(),
            rate,
            epoch: 0,
            packet,
            srtt: None,
            min_rtt: INITIAL_RTT,
            latest: INITIAL_RTT,
            app_limited: false,
            minimum,
        }
    }

    /// The smoothed round trip, or what stands for it before the first sample.
    pub fn srtt(&self) -> Duration {
        self.srtt.unwrap_or(INITIAL_RTT)
    }

    /// The lowest rate.
    pub fn minimum(&self) -> MbitRate {
        self.packets_per_rtt(self.minimum)
    }

    /// The rate of `packets` in a smoothed round trip.
    pub fn packets_per_rtt(&self, packets: Packets) -> MbitRate {
        Mbits::of(packets, self.packet.into()) / self.srtt().seconds().max(SHORTEST_RTT)
    }

    /// How long `packets` packets take at `rate`.
    pub fn time_to_send(&self, packets: Packets, rate: MbitRate) -> Duration {
        (Mbits::of(packets, self.packet.into()) / rate.max(LOWEST_RATE)).into()
    }

    /// Takes in what `feedback` says of packets and round trips; whether it brought the
    /// first round trip.
    pub fn on_feedback(&mut self, feedback: &Feedback<'_>) -> bool {
        let first = self.srtt.is_none() && feedback.rtt.latest.is_some();
        if let Some(latest) = feedback.rtt.latest {
            self.latest = latest;
            self.srtt = Some(feedback.rtt.smoothed);
            self.min_rtt = feedback.rtt.min;
        }
        self.app_limited = feedback.app_limited;
        self.monitor.on_feedback(feedback);
        first
    }

    /// The next report of the present search.
    pub fn next_report(&mut self) -> Option<Report<Purpose<K>>> {
        loop {
            let report = self.monitor.next_report()?;
            if report.purpose.epoch == self.epoch {
                return Some(report);
            }
        }
    }

    /// Gives up what is under way: its reports count no more.
    pub fn next_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Begins anew at the lowest rate: nothing has arrived for long (RFC 9002, 7.6).
    pub fn restart(&mut self) {
        self.monitor.clear();
        self.next_epoch();
        self.rate = self.minimum();
    }

    /// The rate as pace; the window is twice what it keeps in flight.
    pub fn limits(&self) -> Limits {
        let rate = self.rate.max(self.minimum());
        let in_flight = OctetRate::from(rate) * self.srtt().max(self.latest).seconds();
        let window = (in_flight * WINDOW_GAIN).max(MINIMUM_WINDOW.in_bytes(self.packet.into()));
        Limits { window: window.whole(), rate: Some(rate.whole().max(Rate::LOWEST)), burst: self.packet }
    }
}

/// `1 / (1 + exp(steepness x))`: 1 far below 0, 0 far above, 1/2 at 0.
pub fn sigmoid(steepness: f64, x: f64) -> f64 {
    1.0 / (1.0 + libm::exp((steepness * x).min(700.0)))
}
