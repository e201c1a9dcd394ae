//! An onion overlay that carries its users' downloads and uploads: relays with limits, users who choose paths
//! through them, and relays that do not do what they should.

use anabranch_control::flow::registry as flow;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use crate::overlay::LimitKind;

/// No overlay has more relays: as many as have addresses in networks of their own.
pub const MOST_RELAYS: u64 = 10_000;

/// No overlay has more users.
pub const MOST_USERS: u64 = 10_000;

/// No run is longer, in seconds.
pub const LONGEST_RUN_S: u64 = 100_000;

/// A download has fewer kilobytes, if it has an end.
pub const MOST_KILOBYTES: u64 = u16::MAX as u64;

/// The greatest number of packets a second that a user sends at a constant rate, or for cover.
pub const MOST_PACKETS_PER_S: u64 = 100_000;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionRunScenario {
    /// Seed of all random streams.
    pub seed: u64,
    /// How long it is.
    pub duration: Duration,
    /// What is measured counts from then on.
    pub warmup: Duration,
    /// The overlay, and how users choose in it.
    pub onion: OnionOverlay,
    /// Who uses it.
    pub users: OnionUsers,
    /// What its relays can do, and what some of them do instead.
    pub relays: OnionRelays,
}

/// The overlay, and how users choose in it.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionOverlay {
    /// Relays, all of the same advertised weight.
    pub relays: u64,
    /// Relays of each half of a path, the service's own included.
    pub hops: u64,
    /// Guards of each user, g; 0 is MORE to the letter.
    pub guards: u64,
    /// k, packets for each key.
    pub packets_per_key: u64,
    /// What places packets on relays, by name.
    pub placement: String,
    /// What places the blocks by which users are answered, by name.
    pub placement_back: String,
    /// What decides how much is sent in all.
    pub total_rate: RateRule,
    /// Cells a second at first, or all the time where the rate is constant.
    pub cells_per_s: u64,
    /// What hides when a user sends.
    pub cover: CoverKind,
    /// Mean loops a second with [`CoverKind::Loops`].
    pub loops_per_s: f64,
    /// Packets a second with [`CoverKind::ConstantRate`].
    pub cover_per_s: u64,
    /// Mean of the exponential delay that packets are asked to wait at each relay.
    pub mix_delay: Duration,
    /// Across one side of the square that relays and users stand in.
    pub span: Duration,
    /// Of each access link.
    pub access: Duration,
    /// Standard deviation of the jitter, as a share of the delay.
    pub jitter: f64,
    /// Probability that a packet is lost between two nodes.
    pub loss: f64,
}

/// What decides how much a session sends in all, whatever relays take it.
#[derive(Clone, Copy, Debug)]
pub enum RateRule {
    /// Slow steps.
    Stepped,
    /// Never anything else, with padding.
    Constant,
    /// A flow controller, told of a step at a time.
    Flow(&'static flow::Entry),
}

impl RateRule {
    /// Its name in scenarios.
    pub fn name(&self) -> String {
        match self {
            RateRule::Stepped => "stepped".to_owned(),
            RateRule::Constant => "constant".to_owned(),
            RateRule::Flow(entry) => format!("flow:{}", entry.name),
        }
    }
}

impl PartialEq for RateRule {
    fn eq(&self, other: &RateRule) -> bool {
        self.name() == other.name()
    }
}

/// What hides when a user sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoverKind {
    /// Nothing.
    Off,
    /// Packets to oneself, as a Poisson process ([Loopix 2017] 3).
    Loops,
    /// A packet at every tick of a constant rate: a session's if one wants to leave, a loop else.
    ConstantRate,
}

/// Who uses the overlay.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionUsers {
    /// How many; each downloads.
    pub count: u64,
    /// They begin one after the other, all in this time.
    pub begin_within: Duration,
    /// The share of them that only receive; the others upload without end as well.
    pub receive_only: f64,
    /// What each downloads; without end if none is given.
    pub download_kilobytes: Option<u64>,
}

/// What relays can do, and what some of them do instead.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionRelays {
    /// What each takes; none for no limit.
    pub limit: Option<Rate>,
    /// How it holds to that.
    pub limit_model: LimitKind,
    /// Relays of each family, of which a path has one; with 1 there are no families.
    pub per_family: u64,
    /// The share of them that drop all that they should forward.
    pub droppers: f64,
    /// The share of them that take whatever comes, without the limit of the others: they attract.
    pub greedy: f64,
    /// The share of them that are gone at once.
    pub kill_share: f64,
    /// When; halfway through the run if it is not said.
    pub kill_at: Duration,
}

impl OnionOverlay {
    /// The registered names of what decides: what places packets there and back, and what says how many.
    pub fn controllers(&self) -> String {
        let rate = self.total_rate.name();
        match self.placement == self.placement_back {
            true => format!("{} at {rate}", self.placement),
            false => format!("{} and {} at {rate}", self.placement, self.placement_back),
        }
    }
}

impl OnionRunScenario {
    /// Table 7.4's peers ([Raiber 2010] 7.3) as relays, with a user beside each.
    pub fn standard() -> OnionRunScenario {
        OnionRunScenario {
            seed: 1,
            duration: Duration::from_millis(120_000),
            warmup: Duration::from_millis(60_000),
            onion: OnionOverlay {
                relays: 20,
                hops: 3,
                guards: 2,
                packets_per_key: 64,
                placement: "timeouts".to_owned(),
                placement_back: "timeouts".to_owned(),
                total_rate: RateRule::Stepped,
                cells_per_s: 1000,
                cover: CoverKind::Off,
                loops_per_s: 10.0,
                cover_per_s: 100,
                mix_delay: Duration::ZERO,
                span: Duration::from_millis(100),
                access: Duration::from_millis(5),
                jitter: 0.1,
                loss: 0.0,
            },
            users: OnionUsers {
                count: 20,
                begin_within: Duration::SECOND,
                receive_only: 0.0,
                download_kilobytes: None,
            },
            relays: OnionRelays {
                limit: Some(Rate::from_bytes_per_sec(400_000)),
                limit_model: LimitKind::Window,
                per_family: 1,
                droppers: 0.0,
                greedy: 0.0,
                kill_share: 0.0,
                kill_at: Duration::from_millis(60_000),
            },
        }
    }

    /// Relays of each kind: those that drop, and the greedy ones.
    pub fn misbehaving(&self) -> (u64, u64) {
        let of = |share: f64| (share * self.onion.relays as f64).round() as u64;
        (of(self.relays.droppers), of(self.relays.greedy))
    }

    /// Relays that are killed.
    pub fn killed(&self) -> u64 {
        (self.relays.kill_share * self.onion.relays as f64).round() as u64
    }
}
