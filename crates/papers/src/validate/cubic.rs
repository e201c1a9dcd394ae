//! Cubic's window between losses, sample by sample, beside RFC 9438's equations. They are
//! computed here from the time since the window began to grow, the round trip, and the
//! windows after the last reductions, and from nothing else that the controller says.
//!
//! ```text
//! W_cubic(t) = C (t - K)^3 + W_max                                            figure 1
//! K          = cbrt((W_max - W_epoch) / C)                                    figure 2
//! W_est     += alpha each round trip, and 1 from the window before on              4.3
//! alpha      = 3 (1 - beta) / (1 + beta)                                      figure 4
//! W_max      = the window before, or (1 + beta) / 2 of it below the last W_max     4.7
//! W(t)       = W_est(t) where W_cubic(t) < W_est(t), else W_cubic(t)               4.3
//! W_epoch    = beta of the window before                                           4.6
//! ```

use anabranch_control::flow::registry;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::flow::AckPolicy;
use anabranch_sim::network::Capacity;

use super::{Check, ValidationError, run_all};
use anabranch_lab::flows::FlowsMeasured;
use anabranch_lab::parallel::Progress;
use anabranch_scenario::flows::{FlowScenario, FlowSpec, LinkSpec, PacketSpec, QueueSpec, Receiver, Stack, Workload};

/// RFC 9438 4.6 and 5.
const BETA: f64 = 0.7;
const C: f64 = 0.4;

/// Both regions, by the round trip: the curve grows by the clock, Reno by the round trip.
/// From a window of W packets the curve is back at W_max after `cbrt(0.3 W / C)` seconds and
/// W_est after `0.3 W / alpha` round trips: 9 s and 60 s in the first, 4 s and 0.6 s in the
/// second.
const REGIONS: [Region; 2] = [
    Region { name: "W_cubic(t), figures 1 and 2", rtt_ms: 100, seconds: 300, sample_ms: 5 },
    Region { name: "W_est, 4.3 and figure 4", rtt_ms: 10, seconds: 60, sample_ms: 1 },
];

/// Packets a second through the bottleneck, which also spreads the ACKs over the round trip.
const RATE_PACKETS: u64 = 10_000;

/// What may wait there, as a share of what is on its way: the round trip hardly changes.
const QUEUE: f64 = 0.05;

/// Samples before this share of a run are not judged: slow start's overshoot.
const BEGINNING: f64 = 0.1;

struct Region {
    name: &'static str,
    rtt_ms: u64,
    seconds: u64,
    /// A small part of a round trip: so late is a fall seen.
    sample_ms: u64,
}

/// One flow over a bottleneck with a short queue, whose overflow is the only loss.
fn scenario(region: &Region) -> FlowScenario {
    let packets = PacketSpec { ack_policy: AckPolicy { every: 1, ..AckPolicy::default() }, ..PacketSpec::default() };
    let one_way = Duration::from_millis(region.rtt_ms) / 2;
    let rate = Rate::from_bytes_per_sec((packets.data + packets.header).get() * RATE_PACKETS);
    let queue = Capacity::Time(Duration::from_secs_f64(QUEUE * region.rtt_ms as f64 / 1e3));
    let there = LinkSpec::new("there", rate, one_way).with_queue(QueueSpec::DropTail(queue));
    let back = LinkSpec { rate: None, ..LinkSpec::new("back", rate, one_way) };
    FlowScenario {
        length: Duration::SECOND * region.seconds,
        seed: 1,
        goodput_from: Time::ZERO,
        delays_from: Time::ZERO,
        sample_every: Some(Duration::from_millis(region.sample_ms)),
        links: vec![there, back],
        flows: vec![FlowSpec {
            name: "flow".to_owned(),
            stack: Stack::Ours,
            controller: registry::find("cubic").expect("a registered controller"),
            parameters: toml::Table::new(),
            receivers: vec![Receiver { there: vec![0], back: vec![1] }],
            workload: Workload::Bulk,
            start: Time::ZERO,
            stop: None,
            initial_window: None,
            handshake: false,
            steered: false,
        }],
        cross_traffic: Vec::new(),
        packets,
        steering: None,
    }
}

/// A time between two reductions; windows in packets, times in seconds.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// The window before the last reduction, and after it.
    before: f64,
    after: f64,
    w_max: f64,
    w_est: f64,
}

impl Epoch {
    fn new(before: f64, after: f64, w_max: f64) -> Epoch {
        Epoch { before, after, w_max, w_est: after }
    }

    fn w_cubic(&self, t: f64) -> f64 {
        // The window is below W_max after a reduction by beta and fast convergence alike.
        let k = libm::cbrt((self.w_max - self.after) / C);
        C * (t - k) * (t - k) * (t - k) + self.w_max
    }

    /// `round_trips` pass, a small part of one.
    fn grow_w_est(&mut self, round_trips: f64) {
        let alpha = if self.w_est < self.before { 3.0 * (1.0 - BETA) / (1.0 + BETA) } else { 1.0 };
        self.w_est += alpha * round_trips;
    }

    fn window(&self, t: f64) -> f64 {
        self.w_cubic(t).max(self.w_est)
    }
}

/// The sample that lies farthest from the equations.
#[derive(Clone, Copy, Debug, Default)]
struct Farthest {
    ours: f64,
    rfc: f64,
    samples: u64,
    epochs: u64,
}

impl Farthest {
    fn add(&mut self, ours: f64, rfc: f64) {
        let share = |ours: f64, rfc: f64| (ours / rfc - 1.0).abs();
        if self.samples == 0 || share(ours, rfc) > share(self.ours, self.rfc) {
            (self.ours, self.rfc) = (ours, rfc);
        }
        self.samples += 1;
    }
}

/// A sample: the time and the round trip in seconds, the window in packets.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: f64,
    rtt: f64,
    window: f64,
}

/// Follows the window from reduction to reduction; samples before `from` are not judged.
fn farthest(samples: &[Sample], from: f64) -> Farthest {
    let mut farthest = Farthest::default();
    let mut w_max = 0.0;
    let falls: Vec<usize> = (1..samples.len()).filter(|&i| samples[i].window < 0.9 * samples[i - 1].window).collect();
    for (&fall, &end) in falls.iter().zip(falls.iter().skip(1)) {
        // The window grows until the instant of the reduction, so the sample before is a
        // little lower than what beta was taken of.
        let after = samples[fall].window;
        let before = after / BETA;
        // W_max is W (1 + beta) / 2 where W is below the last one (4.7).
        w_max = if before < w_max { before * (1.0 + BETA) / 2.0 } else { before };
        // It grows from the first packet on that left after the reduction.
        let Some(start) = (fall..end).find(|&i| samples[i].window > after) else { continue };
        if samples[start].at < from {
            continue;
        }
        farthest.epochs += 1;
        farthest.add(after, BETA * samples[fall - 1].window);
        let mut epoch = Epoch::new(before, after, w_max);
        for i in start..end {
            if i > start {
                epoch.grow_w_est((samples[i].at - samples[i - 1].at) / samples[i].rtt);
            }
            farthest.add(samples[i].window, epoch.window(samples[i].at - samples[start].at));
        }
    }
    farthest
}

fn of_run(region: &Region, scenario: &FlowScenario, run: &FlowsMeasured) -> Check {
    let packet = scenario.packets.data.get() as f64;
    let series = &run.series;
    let flow = &series.flows[0];
    let trace = flow.trace.iter().find(|(name, _)| *name == "window");
    let windows = trace.map_or(&[][..], |(_, column)| column.as_slice());
    let sample = |((at, window), srtt_ms): ((&Time, &f64), &f64)| Sample {
        at: at.as_secs_f64(),
        rtt: srtt_ms / 1e3,
        window: window / packet,
    };
    let samples: Vec<Sample> = series.at.iter().zip(windows).zip(&flow.srtt_ms).map(sample).collect();
    let Farthest { ours, rfc, samples, epochs } = farthest(&samples, BEGINNING * region.seconds as f64);
    let share = 0.01;
    Check {
        model: format!("cubic, 1 flow, round trip of {} ms", region.rtt_ms),
        against: format!("RFC 9438, {}", region.name),
        quantity: "window between losses, where farthest".to_owned(),
        unit: "packets",
        // Without a sample nothing holds.
        ours: if samples > 0 { ours } else { f64::NAN },
        reference: rfc,
        low: rfc * (1.0 - share),
        high: rfc * (1.0 + share),
        bound: format!("within {} % at {samples} samples between {epochs} losses", share * 100.0),
    }
}

pub fn checks(progress: &Progress) -> Result<Vec<Check>, ValidationError> {
    let scenarios: Vec<FlowScenario> = REGIONS.iter().map(scenario).collect();
    let runs = run_all(&scenarios, progress)?;
    Ok(REGIONS
        .iter()
        .zip(&scenarios)
        .zip(&runs)
        .map(|((region, scenario), run)| of_run(region, scenario, run))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH: Epoch = Epoch { before: 1000.0, after: 700.0, w_max: 1000.0, w_est: 700.0 };

    /// Two reductions and a window that follows `of` the time between them.
    fn follow(of: impl Fn(f64) -> f64) -> Farthest {
        let mut samples = Vec::new();
        let mut add = |at: f64, window: f64| samples.push(Sample { at, rtt: 0.1, window });
        add(0.0, 1000.0);
        add(0.01, 700.0);
        for i in 0..1000 {
            add(0.1 + f64::from(i) / 100.0, of(f64::from(i) / 100.0) + 1e-9);
        }
        add(10.2, 1.0);
        farthest(&samples, 0.0)
    }

    #[test]
    fn the_equations_meet_the_points_that_the_rfc_names() {
        let k = libm::cbrt(300.0 / 0.4);
        assert!((EPOCH.w_cubic(0.0) - 700.0).abs() < 1e-9);
        assert!((EPOCH.w_cubic(k) - 1000.0).abs() < 1e-9);
        // 9/17 of a packet a round trip, and a whole one from the window before on.
        let mut epoch = EPOCH;
        epoch.grow_w_est(1.0);
        assert!((epoch.w_est - 700.0 - 9.0 / 17.0).abs() < 1e-9);
        epoch.w_est = 1000.0;
        epoch.grow_w_est(1.0);
        assert!((epoch.w_est - 1001.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_off_the_equations_is_found() {
        let good = follow(|t| EPOCH.w_cubic(t));
        // 1000 between the reductions, and the reduction itself.
        assert_eq!((good.samples, good.epochs), (1001, 1));
        assert!((good.ours / good.rfc - 1.0).abs() < 1e-6, "{good:?}");
        let off = follow(|t| EPOCH.w_cubic(t) * if t == 5.0 { 0.95 } else { 1.0 });
        assert!((off.ours / off.rfc - 0.95).abs() < 1e-6, "{off:?}");
    }

    #[test]
    fn a_run_without_a_loss_shows_nothing() {
        let samples = [0.0, 1.0, 2.0].map(|at| Sample { at, rtt: 0.1, window: 10.0 + at });
        assert_eq!(farthest(&samples, 0.0).samples, 0);
    }

    #[test]
    fn both_regions_hold() {
        let checks = checks(&Progress::default()).unwrap();
        assert_eq!(checks.len(), REGIONS.len());
        for check in checks {
            assert!(check.holds(), "{check:?}");
        }
    }
}
