//! Flows over links: everything that decides a run's outcome, in checked types.

use std::sync::Arc;

use std::borrow::Cow;

use anabranch_control::flow::Actuator;
use anabranch_control::flow::registry::Entry;
use anabranch_control::policy::Reading;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::forecast::Expected;
use anabranch_proto::flow::{AckPolicy, LossRecovery, TcpOptions};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, CodelConfig, FqCodelConfig, Jitter, RedConfig};
use anabranch_sim::varying::Course;

pub mod dumbbell;
mod links;
pub mod sizes;
pub mod topology;

use crate::policy::{Saved, Sight};

use sizes::SizeDistribution;

/// Steering of flows over one link.
#[derive(Clone, Debug, PartialEq)]
pub struct Steering {
    /// The link whose rate is divided.
    pub link: usize,
    /// Between two decisions.
    pub every: Duration,
    /// What a decision does to a window; a policy's rates become windows as the policy says.
    pub actuator: Actuator,
    /// What the rule takes cross traffic to do until the next decision.
    pub expected: Expected,
    /// Who decides in place of the rule.
    pub policy: Option<Arc<Learned>>,
}

/// A policy that steers.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// What messages call it: the file's name, if it came from one.
    pub name: String,
    /// The network, and what it is for.
    pub saved: Saved,
    /// What it sees, and how its rates become windows.
    pub sight: Sight,
    /// How it reads that.
    pub reading: Reading,
}

/// One run.
#[derive(Clone, Debug)]
pub struct FlowScenario {
    /// Simulated time.
    pub length: Duration,
    /// From which every random stream is made.
    pub seed: u64,
    /// Goodput and utilisation are counted from then on.
    pub goodput_from: Time,
    /// Delays are counted from then on.
    pub delays_from: Time,
    /// Between two rows of the series; none records no series.
    pub sample_every: Option<Duration>,
    /// The links, each in one direction.
    pub links: Vec<LinkSpec>,
    /// Who sends under a controller.
    pub flows: Vec<FlowSpec>,
    /// Who sends without one.
    pub cross_traffic: Vec<CrossTraffic>,
    /// What all flows' packets have in common.
    pub packets: PacketSpec,
    /// How the flows that are steered are, if any is.
    pub steering: Option<Steering>,
}

/// Sizes, and when receivers answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketSpec {
    /// Data in a full packet.
    pub data: Bytes,
    /// What a packet has on the wire beside its data.
    pub header: Bytes,
    /// An ACK on the wire.
    pub ack: Bytes,
    /// When receivers answer.
    pub ack_policy: AckPolicy,
    /// Whether queues may mark packets in place of dropping them.
    pub ecn: bool,
    /// Spread windows over the round trip where the controller sets no rate.
    pub paced: bool,
    /// How senders find and repair losses.
    pub recovery: LossRecovery,
    /// What TCP's recoveries leave open.
    pub tcp: TcpOptions,
    /// Whether senders push the last of several packets that leave together, so that it is answered
    /// at once, as Linux's do.
    pub push: bool,
}

impl PacketSpec {
    /// When and in which form receivers answer.
    pub fn receiver_policy(&self) -> AckPolicy {
        AckPolicy { form: self.recovery.ack_form(), ..self.ack_policy }
    }
}

impl Default for PacketSpec {
    /// Ethernet frames of 1514 B with IPv4, TCP and its timestamps.
    fn default() -> PacketSpec {
        PacketSpec {
            data: Bytes::new(1448),
            header: Bytes::new(66),
            ack: Bytes::new(66),
            ack_policy: AckPolicy::default(),
            ecn: false,
            paced: false,
            recovery: LossRecovery::default(),
            tcp: TcpOptions::default(),
            push: false,
        }
    }
}

/// A link in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSpec {
    /// Its name, which is unique.
    pub name: String,
    /// What it transmits; none if a packet takes no time.
    pub rate: Option<Course<Rate>>,
    /// Propagation.
    pub delay: Course<Duration>,
    /// What may wait.
    pub queue: QueueSpec,
    /// Losses at its far end.
    pub loss: LossModel,
    /// Random part of the delay.
    pub jitter: Jitter,
}

/// What waits for a link, and in which order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueSpec {
    /// First in, first out; what does not fit is dropped.
    DropTail(Capacity),
    /// Random early detection. After an idle time its average falls as many packets as the
    /// link's first rate could have transmitted.
    Red(RedConfig),
    /// Controlled delay.
    Codel(CodelConfig),
    /// Fair queues, each under controlled delay. A flow's data, and its ACKs, are one flow
    /// to the hash, whatever connection they belong to; so is a source of cross traffic.
    FqCodel(FqCodelConfig),
}

impl LinkSpec {
    /// A link of `rate` and `delay` that never changes, with an unlimited queue.
    pub fn new(name: impl Into<String>, rate: Rate, delay: Duration) -> LinkSpec {
        LinkSpec {
            name: name.into(),
            rate: Some(Course::constant(rate)),
            delay: Course::constant(delay),
            queue: QueueSpec::DropTail(Capacity::Unlimited),
            loss: LossModel::None,
            jitter: Jitter::NONE,
        }
    }

    /// The same with another queue.
    pub fn with_queue(mut self, queue: QueueSpec) -> LinkSpec {
        self.queue = queue;
        self
    }
}

/// Links by their places in `FlowScenario::links`, in the order in which packets pass them.
pub type Path = Vec<usize>;

/// The way to a receiver and back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receiver {
    /// What data passes.
    pub there: Path,
    /// What ACKs pass.
    pub back: Path,
}

/// One sender under a controller.
#[derive(Clone, Debug)]
pub struct FlowSpec {
    /// Its name, which is unique.
    pub name: String,
    /// Whose machine sends on real packets.
    pub stack: Stack,
    /// Who decides window and rate.
    pub controller: &'static Entry,
    /// The controller's parameters that differ from its defaults: those that were set. What holds besides under TCP's
    /// recovery, [`parameters_under`](FlowSpec::parameters_under) adds.
    pub parameters: toml::Table,
    /// To whom it sends; more than one get blocks in turn.
    pub receivers: Vec<Receiver>,
    /// What it sends.
    pub workload: Workload,
    /// When its application begins.
    pub start: Time,
    /// When its application ends, if before the run does.
    pub stop: Option<Time>,
    /// The window to begin with; RFC 6928's if none is given.
    pub initial_window: Option<Bytes>,
    /// Whether a connection begins with a round trip before any data.
    pub handshake: bool,
    /// Whether the scenario's coordinator sets its window.
    pub steered: bool,
}

impl FlowSpec {
    /// The controller's parameters under `recovery`: those that were set, and under one of
    /// [TCP's](LossRecovery::is_tcp), which stand for TCP as classic simulators run it, their reading of the window's
    /// rule too where nothing else was set.
    pub fn parameters_under(&self, recovery: LossRecovery) -> Cow<'_, toml::Table> {
        let classic = match has_sack(recovery) {
            Some(has_sack) => self.controller.classic(has_sack, &self.parameters),
            None => toml::Table::new(),
        };
        if classic.keys().all(|key| self.parameters.contains_key(key)) {
            return Cow::Borrowed(&self.parameters);
        }
        Cow::Owned(classic.into_iter().chain(self.parameters.clone()).collect())
    }

    /// Of these parameters the ones that classic simulators read otherwise than our defaults, as they hold.
    pub fn reading_under(&self, recovery: LossRecovery) -> toml::Table {
        let Some(has_sack) = has_sack(recovery) else { return toml::Table::new() };
        let holds = self.parameters_under(recovery);
        let holding = |key: String| holds.get(&key).cloned().map(|value| (key, value));
        self.controller.classic_keys(has_sack).into_iter().filter_map(holding).collect()
    }
}

/// Whether a recovery of TCP's hears selective ACKs.
fn has_sack(recovery: LossRecovery) -> Option<bool> {
    recovery.is_tcp().then_some(recovery != LossRecovery::Rfc6582)
}

/// Whose machine sends for a flow on real packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Ours, under the flow's controller.
    Ours,
    /// A QUIC library's, under the flow's controller. A simulation runs ours in its place.
    Quic,
    /// The operating system's TCP under its congestion control of this name. A simulation
    /// runs the flow's controller in its place, which has the same name.
    Kernel(String),
}

impl Stack {
    /// What a scenario puts before the name of a congestion control of the operating system.
    pub const KERNEL: &'static str = "kernel:";

    /// What a scenario puts before the name of a controller that runs under QUIC.
    pub const QUIC: &'static str = "quic:";

    /// The controller as a scenario names it.
    pub fn named(&self, controller: &Entry) -> Cow<'static, str> {
        match self {
            Stack::Ours => Cow::Borrowed(controller.name),
            Stack::Quic => Cow::Owned(format!("{}{}", Stack::QUIC, controller.name)),
            Stack::Kernel(name) => Cow::Owned(format!("{}{name}", Stack::KERNEL)),
        }
    }
}

/// What an application sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Workload {
    /// All that the controller lets through.
    Bulk,
    /// So much, once.
    Once(Size),
    /// So much again and again, each on a connection of its own, a period after the last
    /// one began, or when it has ended if that is later.
    Repeated {
        /// Each time.
        size: Size,
        /// From beginning to beginning.
        every: Duration,
    },
    /// On and off in turn, beginning with an off time.
    OnOff {
        /// How long, or how much, it sends when it is on.
        on: OnPeriod,
        /// Mean of the exponential off time.
        off_mean: Duration,
        /// Whether each on-period is a connection of its own, with a new controller; else
        /// one connection goes idle and on.
        new_connections: bool,
    },
    /// Blocks of this size to its receivers in turn, without a pause.
    Blocks(Bytes),
}

/// How much a transfer is.
#[derive(Clone, Debug, PartialEq)]
pub enum Size {
    /// So much.
    Fixed(Bytes),
    /// Drawn for each transfer, from the flow's own random stream.
    Drawn(Arc<SizeDistribution>),
}

/// How long, or how much, an application sends when it is on.
#[derive(Clone, Debug, PartialEq)]
pub enum OnPeriod {
    /// Exponential time with this mean.
    Time {
        /// The mean.
        mean: Duration,
    },
    /// Exponential amount with this mean, at least a byte.
    Bytes {
        /// The mean.
        mean: Bytes,
    },
    /// An amount from a distribution.
    Drawn(Arc<SizeDistribution>),
}

/// Packets that come whatever becomes of them.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossTraffic {
    /// Its name, which is unique.
    pub name: String,
    /// What its packets pass.
    pub path: Path,
    /// On the wire, while it is on.
    pub rate: Rate,
    /// A packet on the wire.
    pub packet: Bytes,
    /// When it is on.
    pub pattern: Pattern,
    /// When it begins.
    pub start: Time,
    /// When it ends, if before the run does.
    pub stop: Option<Time>,
}

/// When cross traffic is on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// Always.
    Constant,
    /// On and off in turn for fixed times, on first.
    Periodic {
        /// On.
        on: Duration,
        /// Off.
        off: Duration,
    },
    /// On and off in turn for exponential times with these means, on first.
    Exponential {
        /// Mean on time.
        on: Duration,
        /// Mean off time.
        off: Duration,
    },
}

impl FlowSpec {
    /// The controller as a scenario names it.
    pub fn controller_name(&self) -> Cow<'static, str> {
        self.stack.named(self.controller)
    }
}
