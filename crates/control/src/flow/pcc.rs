//! What the controllers of the PCC family share beside monitor intervals: a target rate
//! becomes limits, a round trip decides how long an interval is, and utilities are judged
//! in Mbit/s.

use super::monitor::{Monitor, Report};
use super::{Feedback, Limits};
use crate::round_trip::INITIAL_RTT;
use crate::time::Duration;
use crate::units::{Bytes, Octets, Packets, Rate};

/// The window over what the rate keeps in flight. The rate decides; the window only bounds
/// what a silent network is sent.
const WINDOW_GAIN: f64 = 2.0;

/// The smallest window.
const MINIMUM_WINDOW: Packets = Packets(10.0);

/// What an interval was for, in a search that may have been given up since.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Purpose<K> {
    /// The search that it belongs to.
    pub epoch: u32,
    /// What for.
    pub kind: K,
    /// The rate that was asked for, Mbit/s.
    pub rate: f64,
    /// The smoothed round trip when it began.
    pub srtt: Duration,
}

/// A sender with a rate, and the intervals in which it tries rates.
#[derive(Clone, Debug)]
pub struct Trial<K> {
    pub monitor: Monitor<Purpose<K>>,
    /// Of the open interval, Mbit/s.
    pub rate: f64,
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
        let rate = packets.0 * mbit(packet) / INITIAL_RTT.as_secs_f64();
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

    /// The lowest rate, Mbit/s.
    pub fn minimum(&self) -> f64 {
        self.packets_per_rtt(self.minimum)
    }

    /// The rate of `packets` in a smoothed round trip, Mbit/s.
    pub fn packets_per_rtt(&self, packets: Packets) -> f64 {
        packets.0 * mbit(self.packet) / self.srtt().as_secs_f64().max(1e-6)
    }

    /// How long `packets` packets take at `rate` Mbit/s.
    pub fn time_to_send(&self, packets: Packets, rate: f64) -> Duration {
        Duration::from_secs_f64(packets.0 * mbit(self.packet) / rate.max(1e-6))
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
        let in_flight = Octets(rate * 1e6 / 8.0 * self.srtt().max(self.latest).as_secs_f64());
        let window = (in_flight * WINDOW_GAIN).max(MINIMUM_WINDOW.in_bytes(self.packet.into()));
        Limits {
            window: window.whole(),
            rate: Some(Rate::from_bits_per_sec((rate * 1e6).max(1.0) as u64)),
            burst: self.packet,
        }
    }
}

/// A packet in Mbit.
fn mbit(packet: Bytes) -> f64 {
    packet.get() as f64 * 8.0 / 1e6
}

/// `1 / (1 + exp(steepness x))`: 1 far below 0, 0 far above, 1/2 at 0.
pub fn sigmoid(steepness: f64, x: f64) -> f64 {
    1.0 / (1.0 + libm::exp((steepness * x).min(700.0)))
}
