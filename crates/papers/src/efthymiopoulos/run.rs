//! One run beside what is known of its network.

use anabranch_control::time::{Duration, Time};

use super::value;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_report::{Axis, Figure, Series, XyChart};

/// The link that all packets share, by its name in the scenarios.
const UPLOAD: &str = "upload";

/// The controller's names for the last round trip to each receiver.
const RTT: [&str; 4] = ["rtt_0", "rtt_1", "rtt_2", "rtt_3"];

/// What is delivered is shown as the mean over so long, in seconds.
const SHOWN_OVER_S: f64 = 0.2;

/// The beginning, in which the window grows, in seconds: not counted.
pub const BEGINNING_S: f64 = 5.0;

/// A run whose first flow is the block window's.
#[derive(Clone, Copy, Debug)]
pub struct Run<'r> {
    pub scenario: &'r FlowScenario,
    pub measured: &'r FlowsMeasured,
}

impl<'r> Run<'r> {
    /// All runs with their scenarios.
    pub fn all(scenarios: &'r [FlowScenario], measured: &'r [FlowsMeasured]) -> Vec<Run<'r>> {
        scenarios.iter().zip(measured).map(|(scenario, measured)| Run { scenario, measured }).collect()
    }

    /// The controller's values of this name.
    pub fn trace(&self, name: &str) -> &'r [f64] {
        let trace = &self.measured.series.flows[0].trace;
        &trace.iter().find(|(known, _)| *known == name).expect("the block window traces this name").1
    }

    /// The window in bytes: as the block window traces it, and what bounds the data in flight
    /// of any other controller.
    pub fn window(&self) -> &'r [f64] {
        let flow = &self.measured.series.flows[0];
        if self.measured.flows[0].controller == "block-window" { self.trace("window") } else { &flow.window }
    }

    /// The rows from `from` on and before `to`, in seconds.
    pub fn rows(&self, from: f64, to: f64) -> std::ops::Range<usize> {
        let at = &self.measured.series.at;
        let row = |seconds: f64| at.partition_point(|at| at.as_secs_f64() < seconds);
        row(from)..row(to)
    }

    /// All rows from `from` seconds on.
    pub fn rows_from(&self, from: f64) -> std::ops::Range<usize> {
        self.rows(from, f64::INFINITY)
    }

    /// When a row was taken.
    pub fn at(&self, row: usize) -> Time {
        self.measured.series.at[row]
    }

    /// A row tells of the span that ends with it: what was available is that of just before.
    pub fn before(&self, row: usize) -> Time {
        Time::from_nanos(self.at(row).as_nanos() - 1)
    }

    /// Data delivered, Mbit/s.
    pub fn goodput(&self, flow: usize) -> &'r [f64] {
        &self.measured.series.flows[flow].goodput_mbit_s
    }

    /// The upload's rate in data at `at`, Mbit/s: without headers, as U is.
    pub fn available(&self, at: Time) -> f64 {
        let link = &self.scenario.links[self.upload()];
        let rate = value(link.rate.as_ref().expect("the upload has a rate"), at);
        rate.bits_per_sec() as f64 / 1e6 * self.data_share()
    }

    /// Data in a full packet on the wire.
    pub fn data_share(&self) -> f64 {
        let packets = self.scenario.packets;
        packets.data.get() as f64 / (packets.data + packets.header).get() as f64
    }

    /// The upload's place among the links.
    pub fn upload(&self) -> usize {
        let place = self.scenario.links.iter().position(|link| link.name == UPLOAD);
        place.expect("the scenario has a link named upload")
    }

    /// Packets dropped at the upload.
    pub fn dropped(&self) -> u64 {
        self.measured.links[self.upload()].count.dropped
    }

    /// The round trip that the links to `receiver` have at `at`, without queues and
    /// transmission, ms.
    pub fn path_rtt(&self, receiver: usize, at: Time) -> f64 {
        let way = &self.scenario.flows[0].receivers[receiver];
        let delays = way.there.iter().chain(&way.back).map(|&link| value(&self.scenario.links[link].delay, at));
        delays.sum::<Duration>().as_millis_f64()
    }

    /// The last round trip to `receiver` less that of its path, which the paper calls dRTT,
    /// ms; NaN before there is one.
    pub fn queue_delay(&self, receiver: usize, row: usize) -> f64 {
        let rtt = self.trace(RTT[receiver])[row];
        if rtt > 0.0 { rtt - self.path_rtt(receiver, self.at(row)) } else { f64::NAN }
    }

    /// The same where a packet to `receiver` was acknowledged since the row before: between
    /// its blocks the last value stays, which is no new one.
    pub fn new_queue_delay(&self, receiver: usize, row: usize) -> Option<f64> {
        let rtt = self.trace(RTT[receiver]);
        (row > 0 && rtt[row] != rtt[row - 1] && rtt[row] > 0.0).then(|| self.queue_delay(receiver, row))
    }

    /// Receivers of the blocks.
    pub fn receivers(&self) -> usize {
        self.scenario.flows[0].receivers.len()
    }

    /// How often `d_ref` changes in these rows.
    pub fn reference_changes(&self, rows: std::ops::Range<usize>) -> f64 {
        let changes = self.trace("queue_reference")[rows].windows(2).filter(|pair| pair[0] != pair[1]).count();
        changes as f64
    }

    fn points(&self, value: impl Fn(usize) -> f64) -> Vec<(f64, f64)> {
        (0..self.measured.series.at.len()).map(|row| (self.at(row).as_secs_f64(), value(row))).collect()
    }

    /// The queue's delay as each receiver's packets show it, and `d_ref`.
    pub fn queue_figure(&self) -> Figure {
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("delay of the queue", "ms").from_zero());
        let reference = Series::line("d_ref", self.points(|row| self.trace("queue_reference")[row]));
        let chart = (0..self.receivers()).fold(chart.series(reference), |chart, receiver| {
            let points = self.points(|row| self.queue_delay(receiver, row));
            chart.series(Series::line(format!("receiver {}", receiver + 1), points))
        });
        Figure::chart("Round trip to each receiver less its path's, and what is aimed at.", chart)
    }

    /// `u(kT)` and `w(kT)`.
    pub fn window_figure(&self) -> Figure {
        let kbit = |name: &'static str| self.points(move |row| self.trace(name)[row] * 8.0 / 1e3);
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("data", "kbit").from_zero())
            .series(Series::line("w(kT)", kbit("window")))
            .series(Series::line("u(kT)", kbit("injection")));
        Figure::chart("The window, and what is let out in a period.", chart)
    }

    /// What was delivered a second, over the last fifth of a second.
    fn delivered(&self, flow: usize, row: usize) -> f64 {
        let rows = (SHOWN_OVER_S / self.at(0).as_secs_f64()) as usize;
        let shown = &self.goodput(flow)[(row + 1).saturating_sub(rows.max(1))..=row];
        shown.iter().sum::<f64>() / shown.len() as f64
    }

    /// What is available, what arrives and `U`.
    pub fn rate_figure(&self) -> Figure {
        let mut chart = XyChart::new(Axis::new("time", "s"), Axis::new("data rate", "Mbit/s").from_zero())
            .series(Series::line("available", self.points(|row| self.available(self.at(row)))))
            .series(Series::line("delivered", self.points(|row| self.delivered(0, row))))
            .series(Series::line("U", self.points(|row| self.trace("upload_rate")[row] / 1e6)));
        for (flow, measured) in self.measured.flows.iter().enumerate().skip(1) {
            let points = self.points(|row| self.delivered(flow, row));
            chart = chart.series(Series::line(format!("{}, delivered", measured.controller), points));
        }
        Figure::chart("What the upload can carry, what is delivered, and the measured U.", chart)
    }

    /// Figure 3: round trips to the only receiver.
    pub fn round_trip_figure(&self) -> Figure {
        let chart = XyChart::new(Axis::new("time", "s"), Axis::new("round trip", "ms").from_zero())
            .series(Series::line("path", self.points(|row| self.path_rtt(0, self.at(row)))))
            .series(Series::line("reference", self.points(|row| self.reference_rtt(row))))
            .series(Series::line("measured", self.points(|row| known(self.trace("rtt_0")[row]))));
        Figure::chart("The path's round trip, the one aimed at, and the measured one.", chart)
    }

    /// The round trip that is aimed at, ms: `dmin_p + d_ref`.
    pub fn reference_rtt(&self, row: usize) -> f64 {
        known(self.trace("base_delay")[row]) + self.trace("queue_reference")[row]
    }
}

/// What the controller does not know yet it gives as 0.
fn known(value: f64) -> f64 {
    if value > 0.0 { value } else { f64::NAN }
}
