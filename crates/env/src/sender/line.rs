//! A flow in its world, heard ACK by ACK.

use std::sync::Arc;

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::{FlowRunError, FlowWorld};
use anabranch_scenario::flows::{FlowScenario, Workload};

use super::SenderError;
use crate::watcher::Watcher;

/// The flow that is the agent.
const AGENT: usize = 0;

/// What a sender hears.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Heard {
    /// This many packets were acknowledged, with a round trip of this many seconds.
    Ack {
        /// Packets.
        packets: f64,
        /// Seconds.
        rtt: f64,
    },
    /// This many packets are lost.
    Lost(f64),
    /// Nothing more until the time that was given.
    Silence,
}

/// The flow.
#[derive(Clone, Debug)]
pub struct Line {
    world: FlowWorld<Watcher>,
    /// What was heard of before.
    acked_bytes: u64,
    lost: u64,
    window: f64,
    rate: Option<f64>,
    /// Whether there was a connection when they were set.
    in_force: bool,
}

impl Line {
    /// The first flow of `scenario`, at its beginning.
    ///
    /// # Errors
    ///
    /// When that can't be an agent, or the scenario can't be run.
    pub fn new(scenario: Arc<FlowScenario>, seed: u64) -> Result<Line, SenderError> {
        if let Some(flow) = scenario.flows.first() {
            let is_bulk = matches!(flow.workload, Workload::Bulk) && flow.start == Time::ZERO && flow.stop.is_none();
            if !is_bulk || flow.receivers.len() != 1 {
                return Err(SenderError::NoBulk(flow.name.clone()));
            }
        }
        let watcher = Watcher::new(&scenario);
        let mut world = FlowWorld::watching(scenario, &[], watcher)?;
        world.reset(seed);
        Ok(Line { world, acked_bytes: 0, lost: 0, window: 0.0, rate: None, in_force: false })
    }

    /// What it runs.
    pub fn scenario(&self) -> &Arc<FlowScenario> {
        self.world.scenario()
    }

    /// The time in the episode.
    pub fn now(&self) -> Time {
        self.world.now()
    }

    /// The same in seconds.
    pub fn now_s(&self) -> f64 {
        self.now().as_secs_f64()
    }

    /// Whether the scenario's time is over.
    pub fn is_over(&self) -> bool {
        self.now() >= self.end()
    }

    /// The scenario's end.
    pub fn end(&self) -> Time {
        Time::ZERO + self.scenario().length
    }

    /// This many seconds from now, or the end.
    pub fn after(&self, seconds: f64) -> Time {
        self.end().min(self.now() + Duration::from_secs_f64(seconds))
    }

    /// Data of a full packet, in bits.
    pub fn packet_bits(&self) -> f64 {
        self.scenario().packets.data.get() as f64 * 8.0
    }

    /// Packets that were sent.
    pub fn sent(&self) -> u64 {
        self.world.sent(AGENT).packets
    }

    /// What may be in flight, in packets, and the pace in packets a second.
    pub fn limits(&self) -> (f64, Option<f64>) {
        (self.window, self.rate)
    }

    /// Sets both, from now on.
    pub fn set(&mut self, window: f64, rate: Option<f64>) {
        (self.window, self.rate) = (window, rate);
        self.in_force = self.world.sender(AGENT).is_some();
        let data = self.scenario().packets.data.get() as f64;
        let bounds = Bounds {
            fixed: Some(Bytes::new((window * data) as u64)),
            rate: rate.map(|rate| Rate::from_bytes_per_sec_f64(rate * data)),
            ..Bounds::default()
        };
        self.world.set_bounds(AGENT, bounds);
    }

    /// What is heard next, but not after `until`. A loss comes before the ACK that reported it.
    ///
    /// # Errors
    ///
    /// When a flow of the scenario can't go on.
    pub fn hear(&mut self, until: Time) -> Result<Heard, FlowRunError> {
        loop {
            let sent = self.world.sent(AGENT);
            if sent.lost > self.lost {
                let lost = sent.lost - std::mem::replace(&mut self.lost, sent.lost);
                return Ok(Heard::Lost(lost as f64));
            }
            if sent.acked_bytes > self.acked_bytes {
                let acked = sent.acked_bytes - std::mem::replace(&mut self.acked_bytes, sent.acked_bytes);
                let packets = acked as f64 / self.scenario().packets.data.get() as f64;
                let rtt = self.world.sender(AGENT).and_then(|sender| sender.metrics(PeerId(0)).rtt);
                // An ACK of packets that were sent again has no round trip of its own: the mean is the nearest.
                let rtt = rtt.map_or(0.0, |rtt| rtt.latest.unwrap_or(rtt.smoothed).as_secs_f64());
                return Ok(Heard::Ack { packets, rtt });
            }
            let is_done = self.world.step_until_called(until, 1);
            let scenario = Arc::clone(self.world.scenario());
            let watcher = self.world.observer_mut();
            while watcher.pop_changed().is_some() || watcher.pop_finished().is_some() {}
            if let Some(error) = watcher.take_error(&scenario) {
                return Err(error);
            }
            let sent = self.world.sent(AGENT);
            if is_done && (sent.lost, sent.acked_bytes) == (self.lost, self.acked_bytes) {
                return Ok(Heard::Silence);
            }
            // Its connection has begun since.
            if !self.in_force && self.window > 0.0 && self.world.sender(AGENT).is_some() {
                self.set(self.window, self.rate);
            }
        }
    }
}
