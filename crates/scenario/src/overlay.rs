//! What a run is: everything that decides its outcome, in checked types.

use anabranch_control::path::registry::{self, Entry, Pacing};
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_sim::delay::{DelayModel, JitterTail};

/// No run is longer: 115 days.
pub const LONGEST_RUN_S: u64 = 10_000_000;

/// No overlay is larger.
pub const MOST_PEERS: u64 = 1_000_000;

/// The longest wait in a queue if none is given.
pub const STANDARD_QUEUE: Duration = Duration::from_millis(100);

/// What an application offers to a controller without a rate of its own: the access
/// line of 10 Mbit/s that OverSim's standard channel gives each node of the thesis's
/// simulations. Without it, the outcome would be how fast our processor is.
const ACCESS_LINE: Rate = Rate::from_bits_per_sec(10_000_000);

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Simulated seconds.
    pub seconds: u64,
    /// From which every random stream is made.
    pub seed: u64,
    /// Who sends what to whom over what.
    pub overlay: Overlay,
}

/// Peers that relay and send.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// How many peers there are.
    pub peers: usize,
    /// Relays for each packet.
    pub relays: usize,
    /// What each peer forwards and receives, at the beginning.
    pub limit: Rate,
    /// How a peer holds to its limit.
    pub limit_model: LimitKind,
    /// When limits change.
    pub limit_changes: Vec<LimitChange>,
    /// Whether relays stamp on ACKs the rate that they grant.
    pub stamps: bool,
    /// Whether relays give each neighbour its share of their limit.
    pub fair_shares: bool,
    /// Size of a data packet.
    pub packet: Bytes,
    /// Size of an ACK.
    pub ack: Bytes,
    /// Who decides the rates.
    pub controller: &'static Entry,
    /// The controller's parameters that differ from its defaults.
    pub parameters: toml::Table,
    /// How rates become sending times.
    pub pacing: Pacing,
    /// Parameters of the round-trip time estimate.
    pub rtt: RttConfig,
    /// How many others each peer knows; all, if there are not more.
    pub known_peers: usize,
    /// Where delays come from.
    pub delay: DelayModel,
    /// Standard deviation of the jitter, as a share of the delay.
    pub jitter: f64,
    /// How the jitter is distributed.
    pub jitter_tail: JitterTail,
    /// Probability that a packet is lost between two nodes.
    pub loss: f64,
    /// What each application has to send; no limit if none is given.
    pub offered: Option<Rate>,
    /// Peer i begins to send i times this after the start.
    pub join_every: Duration,
    /// Relays that do not do what they should.
    pub misbehaving: Vec<(Vec<u32>, Misbehaviour)>,
    /// Senders that are not like the others.
    pub senders: Vec<(Vec<u32>, Sender)>,
    /// The sender whose rates are recorded.
    pub watch: Option<u32>,
}

/// How a peer holds to its limit; each peer's windows begin at a phase of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Counted in windows of a second.
    Window,
    /// A token bucket of this depth.
    Bucket {
        /// What may pass at once.
        depth: Bytes,
    },
    /// A drop-tail queue served at the limit.
    Queue {
        /// The longest wait.
        longest: Duration,
    },
}

/// Some peers' limit becomes another one.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitChange {
    /// When.
    pub at: Time,
    /// Whose.
    pub peers: Vec<u32>,
    /// The new limit.
    pub limit: Rate,
}

/// What some peers send by, in place of what the overlay says.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Who decides their rates, with its default parameters.
    pub controller: &'static Entry,
    /// What each of their applications has to send; no limit if none is given.
    pub offered: Option<Rate>,
}

/// What a relay does that it should not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misbehaviour {
    /// Share of the packets and ACKs that it swallows.
    pub drop: f64,
    /// By how much it delays the others.
    pub delay: Duration,
    /// Whether it discards data and sends an ACK of its own making.
    pub forge: bool,
    /// By what it multiplies the stamps on the ACKs that it forwards, its own and others'.
    pub stamp_factor: f64,
    /// From when on it does so.
    pub from: Time,
    /// Until when.
    pub until: Time,
}

/// A relay that does nothing wrong, all the time.
impl Default for Misbehaviour {
    fn default() -> Misbehaviour {
        Misbehaviour {
            drop: 0.0,
            delay: Duration::ZERO,
            forge: false,
            stamp_factor: 1.0,
            from: Time::ZERO,
            until: Time::MAX,
        }
    }
}

impl Scenario {
    /// The thesis's standard scenario ([Raiber 2010] 7), and the default of
    /// whatever a scenario file leaves out.
    pub fn standard() -> Scenario {
        let peers = 20;
        Scenario {
            seconds: 2000,
            seed: 1,
            overlay: Overlay {
                peers,
                relays: 3,
                limit: Rate::from_bytes_per_sec(400_000),
                limit_model: LimitKind::Window,
                limit_changes: Vec::new(),
                stamps: true,
                fair_shares: false,
                packet: Bytes::new(1500),
                ack: Bytes::new(40),
                controller: registry::find("q-learning").expect("a registered controller"),
                parameters: toml::Table::new(),
                pacing: Pacing::Burst,
                rtt: RttConfig::default(),
                known_peers: peers - 1,
                delay: DelayModel::Plane {
                    span: Duration::from_millis(100),
                    access: Duration::from_millis(5),
                    stretch: 1.0,
                },
                jitter: 0.1,
                jitter_tail: JitterTail::Normal,
                loss: 0.0,
                offered: None,
                join_every: Duration::ZERO,
                misbehaving: Vec::new(),
                senders: Vec::new(),
                watch: None,
            },
        }
    }
}

/// What each application offers to `controller` if nothing else is said: no limit,
/// except to `random`, which sends whatever it gets.
pub fn default_offered(controller: &Entry) -> Option<Rate> {
    (controller.name == "random").then_some(ACCESS_LINE)
}

impl Overlay {
    /// Whether any sender reads what ACKs tell beside their arrival.
    pub fn reads_telemetry(&self) -> bool {
        self.controller.reads_telemetry || self.senders.iter().any(|(_, sender)| sender.controller.reads_telemetry)
    }

    /// What peer `node` sends by, if it is not like the others.
    pub fn sender(&self, node: u32) -> Option<&Sender> {
        self.senders.iter().rev().find(|(peers, _)| peers.contains(&node)).map(|(_, sender)| sender)
    }

    /// For each node what it does wrong; empty if all behave.
    pub fn misbehaviours(&self) -> Vec<Option<Misbehaviour>> {
        if self.misbehaving.is_empty() {
            return Vec::new();
        }
        let mut all = vec![None; self.peers];
        for (peers, misbehaviour) in &self.misbehaving {
            for &peer in peers {
                all[peer as usize] = Some(*misbehaviour);
            }
        }
        all
    }
}
