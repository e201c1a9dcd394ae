//! An onion overlay and who watches it: relays, senders, and an adversary that runs some of the relays.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

/// No overlay has more relays: as many as a document lists.
pub const MOST_RELAYS: u64 = 10_000;

/// No overlay has more senders: every pair of them is compared.
pub const MOST_SENDERS: u64 = 2_000;

/// No run is longer, in seconds.
pub const LONGEST_RUN_S: u64 = 3_600;

/// No scenario is run more often.
pub const MOST_REPETITIONS: u64 = 1_000;

/// How packets find their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Another path for every packet.
    PerPacket,
    /// One path for all packets of a sender, as Tor has it.
    Circuit,
    /// Two paths that meet at one exit, as Conflux has it.
    TwoLegs,
}

/// How long the last relay of a path is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Each packet has another, as to a receiver without guards.
    PerPacket,
    /// It is drawn once, by weight, as a proxy draws the exit of a session.
    PerSession,
}

/// What hides when a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cover {
    /// Nothing.
    Off,
    /// A packet at every tick of the sender's rate; those without data end in the overlay.
    ConstantRate,
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionScenario {
    /// Seed of all random streams.
    pub seed: u64,
    /// How long the adversary watches.
    pub duration: Duration,
    /// How often it all is done with other relays, guards and senders.
    pub repetitions: u64,
    /// The overlay.
    pub overlay: OnionConfig,
    /// Who sends.
    pub senders: Senders,
    /// Who watches.
    pub adversary: Adversary,
}

/// The overlay.
#[derive(Clone, Debug, PartialEq)]
pub struct OnionConfig {
    /// Relays, n, all of equal weight.
    pub relays: u64,
    /// Relays that the sender chooses.
    pub hops: u64,
    /// Relays behind them that the receiver chooses.
    pub far_hops: u64,
    /// How packets find their way.
    pub mode: Mode,
    /// Guards of each sender, g; 0 is MORE to the letter.
    pub guards: u64,
    /// How long a path's last relay is the same, if its sender chooses all of them.
    pub exit: Exit,
    /// Guards of each receiver; 0 is another last relay for every packet.
    pub far_guards: u64,
    /// What places packets on relays.
    pub placement: String,
    /// What hides when a sender sends.
    pub cover: Cover,
    /// Mean of the exponential delay that each relay adds.
    pub mix_delay: Duration,
    /// Across one side of the square that relays and ends stand in.
    pub span: Duration,
    /// Of each access link.
    pub access: Duration,
    /// What a relay carries.
    pub relay_rate: Rate,
    /// The part of it that others use.
    pub load: f64,
    /// What a sender's own line carries.
    pub line_rate: Rate,
    /// Probability that an honest relay loses a packet, while the adversary's lose none.
    pub honest_loss: f64,
}

impl OnionConfig {
    /// Relays of a whole path.
    pub fn path(&self) -> u64 {
        self.hops + self.far_hops
    }
}

/// Who sends, each to a destination of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Senders {
    /// How many.
    pub count: u64,
    /// Packets a second while one sends.
    pub packets_per_s: f64,
    /// Mean time for which it sends, exponential.
    pub on: Duration,
    /// Mean time for which it does not.
    pub off: Duration,
}

/// Who runs relays in order to see who sends what to whom.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adversary {
    /// The share of the relays, c/n.
    pub share: f64,
    /// Packets are counted in bins of this length.
    pub bin: Duration,
    /// The share of wrong pairs that it is content to accuse.
    pub false_positives: f64,
    /// Flows that are probed by clogging relays; none if 0.
    pub probes: u64,
    /// For how long each is probed.
    pub probe_time: Duration,
}

impl OnionScenario {
    /// Four hundred senders that come and go over a thousand relays, of which a tenth is the adversary's,
    /// for a minute.
    pub fn standard() -> OnionScenario {
        let mbytes = |mbytes: u64| Rate::from_bytes_per_sec(mbytes * 1_000_000);
        OnionScenario {
            seed: 1,
            duration: Duration::from_millis(60_000),
            repetitions: 1,
            overlay: OnionConfig {
                relays: 1_000,
                hops: 3,
                far_hops: 0,
                mode: Mode::PerPacket,
                guards: 2,
                exit: Exit::PerPacket,
                far_guards: 0,
                placement: "random".to_owned(),
                cover: Cover::Off,
                mix_delay: Duration::ZERO,
                span: Duration::from_millis(100),
                access: Duration::from_millis(5),
                relay_rate: mbytes(2),
                load: 0.5,
                line_rate: mbytes(10),
                honest_loss: 0.0,
            },
            senders: Senders {
                count: 400,
                packets_per_s: 100.0,
                on: Duration::from_millis(2_000),
                off: Duration::from_millis(2_000),
            },
            adversary: Adversary {
                share: 0.1,
                bin: Duration::SECOND,
                false_positives: 1e-3,
                probes: 0,
                probe_time: Duration::from_millis(120_000),
            },
        }
    }
}
