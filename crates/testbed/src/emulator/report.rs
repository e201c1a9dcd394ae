//! What an emulator has done, and whether it could: a link that is late, or loses packets
//! that its model would have carried, is another link than the one that was asked for.

use std::fmt;

use anabranch_control::time::Duration;
use anabranch_sim::network::LinkCount;
use hdrhistogram::Histogram;

/// A packet that is written this much after its arrival in the model is late.
pub const LATE: Duration = Duration::from_millis(1);

/// The share of late packets, and of the time in which any packet would have been late, from which an emulator is
/// saturated.
pub const LATE_SHARE: f64 = 0.01;

/// An emulator that stands still for so long is saturated, however long the run: Linux's senders time out after 200 ms
/// at the least (`TCP_RTO_MIN`), and then take for lost what no link has lost.
pub const LONGEST_STALL: Duration = Duration::from_millis(200);

/// Longest lateness that is told apart, in nanoseconds: a minute.
const LONGEST: u64 = 60_000_000_000;

/// One route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteReport {
    /// Packets read and offered to the model.
    pub entered: u64,
    /// Their bytes, as the model charges them.
    pub entered_bytes: u64,
    /// Packets written at the far end.
    pub delivered: u64,
    /// Their bytes, as the model charges them.
    pub delivered_bytes: u64,
    /// Of those, packets that the model marked.
    pub marked: u64,
    /// Packets that the model dropped or lost; [`Report::links`] tells one from the other.
    pub gone: u64,
    /// Packets on their way when the emulator stopped.
    pub in_flight: u64,
}

/// One source of packets of the model's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceReport {
    /// Packets offered to the model.
    pub sent: u64,
    /// Packets that arrived at the far end.
    pub arrived: u64,
}

/// One device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceReport {
    /// Packets read.
    pub read: u64,
    /// Packets written.
    pub written: u64,
    /// Packets that the kernel would not take.
    pub refused: u64,
    /// Packets that the kernel dropped because too many waited to be read.
    pub overruns: u64,
    /// Packets between addresses without a route, which were dropped.
    pub unroutable: u64,
    /// Packets of another version of IP than 4, which were dropped.
    pub other_version: u64,
    /// What was no packet, and was dropped.
    pub malformed: u64,
}

/// What an emulator has done.
#[derive(Clone)]
pub struct Report {
    /// The routes, in the order of the configuration.
    pub routes: Vec<RouteReport>,
    /// The sources, in the order of the configuration.
    pub sources: Vec<SourceReport>,
    /// The model's links, in their order; packets of the model's own are among theirs.
    pub links: Vec<LinkCount>,
    /// The devices, in the order of the configuration.
    pub devices: Vec<DeviceReport>,
    /// For each packet, the time from its arrival in the model until it had been written,
    /// in nanoseconds.
    pub lateness: Histogram<u64>,
    /// Packets that found no buffer and were dropped.
    pub overflows: u64,
    /// The longest time that its thread was back later than it had meant to: nothing was read or written then.
    pub longest_stall: Duration,
    /// All time in which a packet that was due would have been written more than [`LATE`] after that: what each of those
    /// times has beyond it.
    pub stalled: Duration,
    /// How long it ran.
    pub elapsed: Duration,
    /// How long of that its thread used a processor.
    pub busy: Duration,
    /// Whether its thread went before all others of the machine.
    pub is_realtime: bool,
}

impl Report {
    pub(super) fn new(routes: usize, devices: usize, sources: usize, is_realtime: bool) -> Report {
        Report {
            routes: vec![RouteReport::default(); routes],
            sources: vec![SourceReport::default(); sources],
            links: Vec::new(),
            devices: vec![DeviceReport::default(); devices],
            lateness: Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are in order"),
            overflows: 0,
            longest_stall: Duration::ZERO,
            stalled: Duration::ZERO,
            elapsed: Duration::ZERO,
            busy: Duration::ZERO,
            is_realtime,
        }
    }

    /// Its thread is back this much later than it meant to.
    pub(super) fn on_back(&mut self, late: Duration) {
        self.longest_stall = self.longest_stall.max(late);
        self.stalled = self.stalled + (late - LATE);
    }

    /// The share of packets that were late.
    pub fn late_share(&self) -> f64 {
        let all = self.lateness.len();
        if all == 0 {
            return 0.0;
        }
        let in_time = self.lateness.count_between(0, LATE.as_nanos());
        (all - in_time) as f64 / all as f64
    }

    /// Whether it was asked for more than it can carry, so that what was measured over it
    /// says nothing about the link that was asked for.
    pub fn is_saturated(&self) -> bool {
        !self.warnings().is_empty()
    }

    /// Why it is saturated, in words; nothing if it is not. It is when a packet was dropped
    /// by anything but the model: the kernel's queue before us, the kernel after us, or a
    /// want of buffers; and when more than [`LATE_SHARE`] of the packets were late by more
    /// than [`LATE`]. Senders that wait for a thread that stands still send few packets meanwhile, so time counts
    /// too: that in which any packet would have been late, and the longest that it stood still.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let sum = |of: fn(&DeviceReport) -> u64| self.devices.iter().map(of).sum::<u64>();
        let overruns = sum(|device| device.overruns);
        if overruns > 0 {
            warnings.push(format!("the kernel dropped {overruns} packets that the emulator did not read in time"));
        }
        let refused = sum(|device| device.refused);
        if refused > 0 {
            warnings.push(format!("the kernel refused {refused} packets that had arrived"));
        }
        if self.overflows > 0 {
            let overflows = self.overflows;
            warnings.push(format!("{overflows} packets found no buffer: more are on their way than the limit"));
        }
        let late = self.late_share();
        if late > LATE_SHARE {
            let at_99 = self.lateness.value_at_quantile(0.99) as f64 / 1e6;
            warnings.push(format!(
                "{:.1} % of the packets came more than {LATE} late (the 99th percentile is {at_99:.2} ms)",
                100.0 * late
            ));
        }
        let stalled = self.stalled.as_secs_f64() / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        if stalled > LATE_SHARE || self.longest_stall >= LONGEST_STALL {
            warnings.push(format!(
                "the emulator stood still: for {:.1} % of the time any packet would have been more than {LATE} late, the \
                 longest stall took {:.1} ms",
                100.0 * stalled,
                self.longest_stall.as_millis_f64()
            ));
        }
        warnings
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lateness_ns = [0.5, 0.99, 1.0].map(|quantile| self.lateness.value_at_quantile(quantile));
        formatter
            .debug_struct("Report")
            .field("routes", &self.routes)
            .field("sources", &self.sources)
            .field("links", &self.links)
            .field("devices", &self.devices)
            .field("lateness_ns (median, 99 %, most)", &lateness_ns)
            .field("overflows", &self.overflows)
            .field("longest_stall", &self.longest_stall)
            .field("stalled", &self.stalled)
            .field("elapsed", &self.elapsed)
            .field("busy", &self.busy)
            .field("is_realtime", &self.is_realtime)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(late: u64, in_time: u64) -> Report {
        let mut report = Report::new(1, 1, 0, false);
        report.lateness.record_n(LATE.as_nanos() * 2, late).expect("it is in bounds");
        report.lateness.record_n(LATE.as_nanos() / 2, in_time).expect("it is in bounds");
        report
    }

    #[test]
    fn more_than_one_late_packet_in_a_hundred_saturates() {
        assert!(!report(0, 0).is_saturated());
        assert!(!report(1, 99).is_saturated());
        assert!(report(2, 98).is_saturated());
        assert_eq!(report(2, 98).warnings().len(), 1);
    }

    #[test]
    fn time_in_which_any_packet_would_have_been_late_saturates_without_packets() {
        let stalled = |stalls: u64, millis: u64| {
            let mut report = Report { elapsed: Duration::SECOND * 100, ..report(0, 1000) };
            (0..stalls).for_each(|_| report.on_back(Duration::from_millis(millis)));
            report.warnings()
        };
        // 0.99 and 1.01 s of 100, each less the millisecond that no packet is late by.
        assert_eq!(stalled(99, 11), Vec::<String>::new());
        assert_eq!(stalled(101, 11).len(), 1);
        assert_eq!(stalled(100_000, 1), Vec::<String>::new());
        // One that senders time out over, however long the run.
        assert_eq!(stalled(1, 199), Vec::<String>::new());
        assert_eq!(
            stalled(1, 200),
            [
                "the emulator stood still: for 0.2 % of the time any packet would have been more than 1 ms late, the longest \
             stall took 200.0 ms"
            ]
        );
    }

    #[test]
    fn a_packet_that_anything_but_the_model_drops_saturates() {
        for of in [
            |report: &mut Report| report.devices[0].overruns = 1,
            |report: &mut Report| report.devices[0].refused = 1,
            |report: &mut Report| report.overflows = 1,
        ] {
            let mut report = report(0, 1);
            of(&mut report);
            assert!(report.is_saturated());
        }
        let mut lossy = report(0, 1);
        lossy.routes[0].gone = 1;
        assert!(!lossy.is_saturated());
    }
}
