//! The dumbbell that other people's simulators were measured on: bulk flows that start
//! within a second over a bottleneck with a drop-tail queue of 60 ms.

use anabranch_control::flow::registry::Entry;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::{AckPolicy, LossRecovery, TcpOptions};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::Capacity;
use anabranch_sim::varying::Course;

use super::topology::{Access, Dumbbell};
use crate::flows::{FlowScenario, FlowSpec, LinkSpec, PacketSpec, QueueSpec, Stack, Workload};

/// Propagation of each of the three links, one way.
const DELAY: Duration = Duration::from_millis(10);

/// What the bottleneck's queue holds, in time at its rate.
const QUEUE: Duration = Duration::from_millis(60);

/// Goodput is counted after the start-up.
const COUNTED_FROM_S: f64 = 20.0;

/// Bulk flows over the dumbbell.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// How many.
    pub flows: usize,
    /// Who decides.
    pub controller: &'static Entry,
    /// The controller's parameters that differ from its defaults.
    pub parameters: toml::Table,
    /// The bottleneck's rate; access links have 100 Mbit/s, or 1 Gbit/s from 100 Mbit/s on.
    pub rate: Rate,
    /// Probability that a data packet is lost behind the bottleneck.
    pub loss: f64,
    /// Simulated time.
    pub length: Duration,
    /// The seed of every random stream.
    pub seed: u64,
}

impl Bulk {
    /// The scenario.
    pub fn scenario(&self) -> FlowScenario {
        let access_rate = if self.rate.bits_per_sec() < 100_000_000 { 100_000_000 } else { 1_000_000_000 };
        let access = Access { rate: Some(Rate::from_bits_per_sec(access_rate)), delay: DELAY };
        let queue = QueueSpec::DropTail(Capacity::Bytes((self.rate * QUEUE).get()));
        let bottleneck = LinkSpec {
            loss: if self.loss > 0.0 { LossModel::Random(Course::constant(self.loss)) } else { LossModel::None },
            ..LinkSpec::new("bottleneck", self.rate, DELAY).with_queue(queue)
        };
        let unlimited = QueueSpec::DropTail(Capacity::Unlimited);
        let dumbbell = Dumbbell { pairs: vec![(access, access); self.flows], bottleneck, access_queue: unlimited };
        let (links, ways) = dumbbell.build();
        let mut starts = Rng::stream(self.seed, "starts");
        let flow = |(i, way)| FlowSpec {
            name: format!("flow{i}"),
            stack: Stack::Ours,
            controller: self.controller,
            parameters: self.parameters.clone(),
            receivers: vec![way],
            workload: Workload::Bulk,
            start: Time::from_secs_f64(starts.uniform()),
            stop: None,
            initial_window: None,
            handshake: false,
            steered: false,
        };
        FlowScenario {
            length: self.length,
            seed: self.seed,
            goodput_from: Time::from_secs_f64(COUNTED_FROM_S),
            delays_from: Time::ZERO,
            sample_every: None,
            links,
            flows: ways.into_iter().enumerate().map(flow).collect(),
            cross_traffic: Vec::new(),
            packets: PacketSpec {
                data: Bytes::new(1448),
                header: Bytes::new(54),
                ack: Bytes::new(54),
                // ns-3 and ns-2 wait up to 200 ms and 100 ms for a second packet.
                ack_policy: AckPolicy { every: 2, max_delay: Duration::from_millis(200), ..AckPolicy::default() },
                ecn: false,
                paced: false,
                recovery: LossRecovery::default(),
                tcp: TcpOptions::default(),
                push: false,
            },
            steering: None,
        }
    }
}
