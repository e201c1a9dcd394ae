//! The series: each flow's and each link's values at equal spans.

use anabranch_control::flow::{Limits, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::FlowSender;
use anabranch_sim::network::LinkId;

use super::measured::FlowMeasured;
use super::measured::{Delays, FlowSeries, Series};
use super::node::FlowNode;
use super::world::FlowWorld;
use super::{FlowRunError, check_traces};
use crate::world::Observer;
use anabranch_scenario::flows::FlowScenario;

/// Takes the series.
#[derive(Clone, Debug)]
pub(super) struct Sampler {
    every: Option<Duration>,
    due: Time,
    series: Series,
    /// Each flow's delivered bytes, delays' sum in ms and their number at the last row.
    before: Vec<(u64, f64, u64)>,
    /// What had been delivered to each of a flow's receivers at the last row.
    before_to: Vec<Vec<u64>>,
}

impl Sampler {
    pub fn new(scenario: &FlowScenario) -> Sampler {
        let flows = scenario.flows.len();
        Sampler {
            every: scenario.sample_every,
            due: scenario.sample_every.map_or(Time::MAX, |every| Time::ZERO + every),
            series: Series {
                at: Vec::new(),
                flows: scenario.flows.iter().map(FlowSeries::of).collect(),
                backlog_ms: vec![Vec::new(); scenario.links.len()],
            },
            before: vec![(0, 0.0, 0); flows],
            before_to: scenario.flows.iter().map(|flow| vec![0; flow.receivers.len()]).collect(),
        }
    }

    /// When the next row is due.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Takes a row.
    ///
    /// # Errors
    ///
    /// When a controller's values are not numbers.
    pub fn sample<O: Observer<FlowNode>>(
        &mut self,
        world: &mut FlowWorld<O>,
        measured: impl Fn(&O) -> &[FlowMeasured],
    ) -> Result<(), FlowRunError> {
        let Some(every) = self.every else { return Ok(()) };
        check_traces(world)?;
        self.series.at.push(self.due);
        let rows = self.series.flows.iter_mut().zip(self.before.iter_mut().zip(&mut self.before_to));
        for (flow, (series, (before, before_to))) in rows.enumerate() {
            let measured = &measured(world.observer())[flow];
            let receivers = measured.receivers.iter().zip(series.receivers_mbit_s.iter_mut().zip(before_to));
            for (receiver, (column, before)) in receivers {
                column.push((receiver.delivered_bytes - *before) as f64 * 8.0 / every.as_secs_f64() / 1e6);
                *before = receiver.delivered_bytes;
            }
            let bits = (measured.delivered_bytes - before.0) as f64 * 8.0;
            series.goodput_mbit_s.push(bits / every.as_secs_f64() / 1e6);
            let (sum, count) = delays(&measured.one_way);
            series.one_way_ms.push((sum - before.1) / (count - before.2) as f64);
            *before = (measured.delivered_bytes, sum, count);
            series.push_sender(world.sender(flow));
        }
        for (link, backlog) in (0..).zip(&mut self.series.backlog_ms) {
            backlog.push(world.network().backlog(LinkId(link)).as_millis_f64());
        }
        self.due += every;
        Ok(())
    }

    pub fn into_series(self) -> Series {
        self.series
    }
}

fn delays(delays: &Delays) -> (f64, u64) {
    let count = delays.count();
    (delays.mean_ms().unwrap_or(0.0) * count as f64, count)
}

/// What a sender says of itself.
pub trait SenderState {
    /// Window and rate.
    fn limits(&self) -> Limits;

    /// Sent and neither acknowledged nor lost.
    fn in_flight(&self) -> Bytes;

    /// The smoothed round-trip time to its first receiver, once there was a sample.
    fn smoothed_rtt(&self) -> Option<Duration>;

    /// The controller's named values.
    fn trace(&self, record: &mut dyn FnMut(&'static str, f64));
}

impl SenderState for FlowSender {
    fn limits(&self) -> Limits {
        FlowSender::limits(self)
    }

    fn in_flight(&self) -> Bytes {
        FlowSender::in_flight(self)
    }

    fn smoothed_rtt(&self) -> Option<Duration> {
        FlowSender::smoothed_rtt(self, PeerId(0))
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        FlowSender::trace(self, record);
    }
}

impl FlowSeries {
    /// Adds a row of what a sender says of itself; none while there is no connection.
    pub fn push_sender(&mut self, sender: Option<&impl SenderState>) {
        self.in_flight.push(sender.map_or(0.0, |sender| sender.in_flight().get() as f64));
        let limits = sender.map(SenderState::limits);
        self.window.push(limits.map_or(0.0, |limits| limits.window.get() as f64));
        let rate = limits.and_then(|limits| limits.rate);
        self.rate_mbit_s.push(rate.map_or(f64::NAN, |rate| rate.bits_per_sec() as f64 / 1e6));
        let srtt = sender.and_then(SenderState::smoothed_rtt);
        self.srtt_ms.push(srtt.map_or(f64::NAN, Duration::as_millis_f64));
        self.push_trace(sender);
    }

    /// Adds the controller's values; rows without a controller are NaN.
    fn push_trace(&mut self, sender: Option<&impl SenderState>) {
        let rows = self.window.len();
        if let Some(sender) = sender {
            sender.trace(&mut |name, value| {
                let column = match self.trace.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, column)) => column,
                    None => {
                        self.trace.push((name, Vec::new()));
                        &mut self.trace.last_mut().expect("just pushed").1
                    }
                };
                column.resize(rows - 1, f64::NAN);
                column.push(value);
            });
        }
        for (_, column) in &mut self.trace {
            column.resize(rows, f64::NAN);
        }
    }
}
