//! What a run of flows measured.

use std::borrow::Cow;

use anabranch_control::time::{Duration, Time};
use anabranch_sim::network::LinkCount;
use hdrhistogram::Histogram;

use anabranch_scenario::flows::FlowSpec;

/// Longest delay that the histogram tells apart, in ns: ten minutes.
const LONGEST_DELAY_NS: u64 = 600_000_000_000;

/// Significant decimal digits of a recorded delay.
const DELAY_DIGITS: u8 = 3;

/// A run.
#[derive(Clone, Debug)]
pub struct FlowsMeasured {
    /// One for each flow of the scenario, in its order.
    pub flows: Vec<FlowMeasured>,
    /// One for each link of the scenario, in its order.
    pub links: Vec<LinkMeasured>,
    /// One for each source of cross traffic, in the scenario's order.
    pub cross_traffic: Vec<CrossMeasured>,
    /// The series, if one was asked for.
    pub series: Series,
    /// How long it ran: less than the scenario's length if it was interrupted.
    pub length: Duration,
    /// Events of the simulator; none of a run on real packets.
    pub events: Option<u64>,
    /// Why its links were not those that were asked for, so that it says nothing of them;
    /// never of a simulation.
    pub warnings: Vec<String>,
    /// What is to be known before its figures are believed: that a policy saw what its training never had shown it.
    pub notes: Vec<String>,
}

/// One flow.
#[derive(Clone, Debug)]
pub struct FlowMeasured {
    /// The name of the controller that ran: registered, or the operating system's.
    pub controller: Cow<'static, str>,
    /// Data delivered for the first time, from `goodput_from` on.
    pub goodput_bytes: u64,
    /// The same over the whole run.
    pub delivered_bytes: u64,
    /// The same two for each of its receivers, if it has several; else none.
    pub receivers: Vec<ReceiverMeasured>,
    /// From the application to the receiver, for each packet that arrived.
    pub one_way: Delays,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets that the sender declared lost.
    pub packets_lost: u64,
    /// Of those, packets that were acknowledged later: they were only late.
    pub spurious_losses: u64,
    /// Time in which the application had something to send or in flight.
    pub on_time: Duration,
    /// The same, where time with `n` flows on counts as an `n`-th.
    pub share_time: Duration,
    /// Data that arrived after its connection had ended; of data that was sent again, each
    /// time.
    pub late_bytes: u64,
    /// How long each transfer with an end took, from its beginning to its last byte's arrival.
    pub completion: Vec<Duration>,
    /// The same until its sender knew of that.
    pub completion_acked: Vec<Duration>,
}

/// What one of a flow's receivers got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverMeasured {
    /// Data delivered to it for the first time, from `goodput_from` on.
    pub goodput_bytes: u64,
    /// The same over the whole run.
    pub delivered_bytes: u64,
}

impl ReceiverMeasured {
    /// Nothing yet for each of `receivers`; none where a flow has a single one.
    pub fn of_each(receivers: usize) -> Vec<ReceiverMeasured> {
        if receivers > 1 { vec![ReceiverMeasured::default(); receivers] } else { Vec::new() }
    }
}

/// Packets whose delays wait to be counted together: one by one, their classes would be looked up among all else that
/// is done for a packet.
const COUNTED_TOGETHER: usize = 256;

/// Delays of packets.
#[derive(Clone, Debug)]
pub struct Delays {
    histogram: Histogram<u32>,
    /// In ns, of the packets that are not in the histogram yet.
    recent: Vec<u64>,
    total_ns: u128,
    count: u64,
    least_ns: u64,
}

impl Default for Delays {
    fn default() -> Delays {
        let histogram = Histogram::new_with_bounds(1_000, LONGEST_DELAY_NS, DELAY_DIGITS);
        Delays {
            histogram: histogram.expect("bounds that a histogram takes"),
            recent: Vec::new(),
            total_ns: 0,
            count: 0,
            least_ns: u64::MAX,
        }
    }
}

impl Delays {
    /// Adds a packet's.
    #[inline]
    pub fn record(&mut self, delay: Duration) {
        if self.recent.len() == self.recent.capacity() {
            self.classify();
        }
        let ns = delay.as_nanos();
        self.recent.push(ns);
        self.total_ns += u128::from(ns);
        self.count += 1;
        self.least_ns = self.least_ns.min(ns);
    }

    /// Makes room for recent delays: counts those that are there.
    #[cold]
    #[inline(never)]
    fn classify(&mut self) {
        for ns in self.recent.drain(..) {
            self.histogram.saturating_record(ns);
        }
        self.recent.reserve_exact(COUNTED_TOGETHER);
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Delays) {
        self.histogram.add(&other.histogram).expect("all delays have the same bounds");
        other.recent.iter().for_each(|&ns| self.histogram.saturating_record(ns));
        self.total_ns += other.total_ns;
        self.count += other.count;
        self.least_ns = self.least_ns.min(other.least_ns);
    }

    /// Packets.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their mean in ms; none without a packet.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64 / 1e6)
    }

    /// The least in ms; none without a packet.
    pub fn least_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.least_ns as f64 / 1e6)
    }

    /// What each of these shares of the packets did not exceed, in ms; none without a packet.
    pub fn quantiles_ms<const N: usize>(&self, shares: [f64; N]) -> [Option<f64>; N] {
        let mut histogram = Cow::Borrowed(&self.histogram);
        for &ns in &self.recent {
            histogram.to_mut().saturating_record(ns);
        }
        shares.map(|share| (self.count > 0).then(|| histogram.value_at_quantile(share) as f64 / 1e6))
    }
}

/// One link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkMeasured {
    /// Over the whole run.
    pub count: LinkCount,
    /// Bytes transmitted from `goodput_from` on.
    pub counted_bytes: u64,
}

/// One source of cross traffic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CrossMeasured {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub arrived: u64,
}

/// Values over time, in columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// When each row was taken: it tells of the span since the row before.
    pub at: Vec<Time>,
    /// One for each flow.
    pub flows: Vec<FlowSeries>,
    /// How long a packet would have waited for each link, in ms, when the row was taken.
    pub backlog_ms: Vec<Vec<f64>>,
}

/// One flow's values over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlowSeries {
    /// Data delivered for the first time, Mbit/s.
    pub goodput_mbit_s: Vec<f64>,
    /// The same for each of its receivers, if it has several; else none.
    pub receivers_mbit_s: Vec<Vec<f64>>,
    /// Mean one-way delay of the packets that arrived, ms; NaN without any.
    pub one_way_ms: Vec<f64>,
    /// Data in flight, bytes.
    pub in_flight: Vec<f64>,
    /// The window, bytes.
    pub window: Vec<f64>,
    /// The pacing rate, Mbit/s; NaN without one.
    pub rate_mbit_s: Vec<f64>,
    /// The smoothed round-trip time, ms; NaN before the first sample.
    pub srtt_ms: Vec<f64>,
    /// The controller's own values, by name; empty until it has run.
    pub trace: Vec<(&'static str, Vec<f64>)>,
}

impl FlowSeries {
    /// Without rows, with a column for each of the flow's receivers if there are several.
    pub fn of(flow: &FlowSpec) -> FlowSeries {
        let receivers = if flow.receivers.len() > 1 { flow.receivers.len() } else { 0 };
        FlowSeries { receivers_mbit_s: vec![Vec::new(); receivers], ..FlowSeries::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(ms: std::ops::RangeInclusive<u64>) -> Delays {
        let mut delays = Delays::default();
        ms.for_each(|ms| delays.record(Duration::from_millis(ms)));
        delays
    }

    #[test]
    fn a_quantile_counts_every_delay_whether_it_waits_to_be_counted_or_not() {
        for last in [1, 100, COUNTED_TOGETHER as u64, COUNTED_TOGETHER as u64 + 1, 1000] {
            let [none, half, all] = delays(1..=last).quantiles_ms([0.0, 0.5, 1.0]).map(Option::unwrap);
            let near = |value: f64, ms: u64| (value / ms as f64 - 1.0).abs() < 1e-3;
            assert!(near(none, 1) && near(half, last.div_ceil(2)) && near(all, last), "{last}: {none} {half} {all}");
        }
        assert_eq!(Delays::default().quantiles_ms([0.5]), [None]);
    }

    #[test]
    fn delays_of_two_flows_are_those_of_one_that_had_all() {
        let (mut merged, all) = (delays(1..=300), delays(1..=400));
        merged.merge(&delays(301..=400));
        let shares = [0.0, 0.25, 0.5, 0.75, 0.8, 1.0];
        assert_eq!(merged.quantiles_ms(shares), all.quantiles_ms(shares));
        assert_eq!((merged.count(), merged.mean_ms(), merged.least_ms()), (400, all.mean_ms(), Some(1.0)));
    }
}
