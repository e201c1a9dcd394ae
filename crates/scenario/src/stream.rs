//! A live stream over its viewers: who sends, who watches, who comes and goes, who lies.

use anabranch_control::flow::registry::{self, Entry};
use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_proto::stream::message::Mode;

/// No stream has more viewers.
pub const MOST_CLIENTS: u64 = 100_000;

/// No run is longer, in seconds: a day.
pub const LONGEST_RUN_S: u64 = 86_400;

/// No player holds more, in seconds.
pub const LONGEST_BUFFER_S: u64 = 60;

/// When the audience begins to come: the server knows its stream by then.
pub const OPENING: Duration = Duration::from_millis(1000);

/// No player holds less: what is missing is given up 300 ms before it is due.
pub const SHORTEST_BUFFER: Duration = Duration::from_millis(500);

/// No stream is faster than that: 1 Gbit/s.
pub const HIGHEST_BITRATE: Rate = Rate::from_bits_per_sec(1_000_000_000);

/// A run of a stream.
#[derive(Clone, Debug)]
pub struct StreamScenario {
    /// Seed of all random streams.
    pub seed: u64,
    /// How long the stream runs.
    pub duration: Duration,
    /// The stream.
    pub stream: StreamConfig,
    /// Who watches.
    pub audience: Audience,
    /// Who comes and goes.
    pub churn: Churn,
    /// Who lies.
    pub liars: Liars,
    /// How much the server may send where a mesh alone carries the stream, by what gossip finds: as much as its
    /// line bears if nothing is said.
    pub helper: Option<Helper>,
}

/// The least and the most that a server sends which only helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Helper {
    /// The least.
    pub least: Rate,
    /// The most.
    pub most: Rate,
}

impl StreamScenario {
    /// A minute of video of 2 Mbit/s for a hundred homes with room to spare.
    pub fn standard() -> StreamScenario {
        let mbit = |mbit: u64| Rate::from_bits_per_sec(mbit * 1_000_000);
        StreamScenario {
            seed: 1,
            duration: Duration::from_millis(60_000),
            stream: StreamConfig {
                bitrate: mbit(2),
                slices: 20,
                mode: Mode::Hybrid,
                exploration: None,
                buffer: Duration::from_millis(3000),
                controller: registry::find("copa").expect("it is registered"),
                parameters: toml::Table::new(),
            },
            audience: Audience {
                clients: 100,
                arrival: Duration::from_millis(10_000),
                upload: Rates::InTurn(vec![mbit(5)]),
                upload_every: None,
                download: mbit(50),
                server_upload: mbit(20),
                span: Duration::from_millis(100),
                access: Duration::from_millis(5),
                loss: 0.0,
            },
            churn: Churn::default(),
            liars: Liars::default(),
            helper: None,
        }
    }
}

impl StreamConfig {
    /// The part of what the server can send that explores viewers, if none is given: five percent where trees
    /// alone carry the stream, as in [Raiber 2010].
    pub fn exploration(&self) -> f64 {
        self.exploration.unwrap_or(if self.mode == Mode::Trees { 0.05 } else { 0.0 })
    }
}

/// The stream.
#[derive(Clone, Debug)]
pub struct StreamConfig {
    /// Its bits a second.
    pub bitrate: Rate,
    /// How many slices.
    pub slices: u8,
    /// How it travels.
    pub mode: Mode,
    /// The part of what the server can send that explores viewers; see [`StreamConfig::exploration`].
    pub exploration: Option<f64>,
    /// What a player holds ready.
    pub buffer: Duration,
    /// The flow controller of every peer.
    pub controller: &'static Entry,
    /// Its parameters.
    pub parameters: toml::Table,
}

/// Who watches, and over which lines.
#[derive(Clone, Debug)]
pub struct Audience {
    /// How many.
    pub clients: usize,
    /// How long it takes until all have come, evenly.
    pub arrival: Duration,
    /// What each can send.
    pub upload: Rates,
    /// How often each line's upload is drawn anew between the least and the most of `upload`, which is uniform
    /// then; never if none is given.
    pub upload_every: Option<Duration>,
    /// What each can receive.
    pub download: Rate,
    /// What the server can send.
    pub server_upload: Rate,
    /// Between any two: across the plane on which they lie, and at either end.
    pub span: Duration,
    /// At either end of each way.
    pub access: Duration,
    /// Packets that get lost on the way to a viewer.
    pub loss: f64,
}

/// The rates of many lines.
#[derive(Clone, Debug, PartialEq)]
pub enum Rates {
    /// One line has the first, the next one the second, and so on, from the first again.
    InTurn(Vec<Rate>),
    /// All between these two are as likely.
    Uniform(Rate, Rate),
    /// Their logarithms are normal: half of the lines have less than `median`, two thirds are within a factor
    /// of e to the power of `sigma`.
    LogNormal {
        /// The rate that half of the lines have at most.
        median: Rate,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
}

impl Rates {
    /// The rate of line `number`; at least a bit a second.
    pub fn of(&self, number: u64, seed: u64) -> Rate {
        let mut rng = Rng::indexed(seed, "line", number);
        let drawn = match self {
            Rates::InTurn(rates) => return rates[(number % rates.len() as u64) as usize],
            Rates::Uniform(least, most) => {
                least.bytes_per_sec() + (most.bytes_per_sec() - least.bytes_per_sec()) * rng.uniform()
            }
            Rates::LogNormal { median, sigma } => median.bytes_per_sec() * libm::exp(sigma * rng.normal()),
        };
        Rate::from_bytes_per_sec_f64(drawn).max(Rate::from_bits_per_sec(1))
    }

    /// The mean over many lines.
    pub fn mean(&self) -> Rate {
        match self {
            Rates::InTurn(rates) => {
                let sum: f64 = rates.iter().map(|rate| rate.bytes_per_sec()).sum();
                Rate::from_bytes_per_sec_f64(sum / rates.len() as f64)
            }
            Rates::Uniform(least, most) => {
                Rate::from_bytes_per_sec_f64((least.bytes_per_sec() + most.bytes_per_sec()) / 2.0)
            }
            Rates::LogNormal { median, sigma } => {
                Rate::from_bytes_per_sec_f64(median.bytes_per_sec() * libm::exp(sigma * sigma / 2.0))
            }
        }
    }
}

/// Who comes and goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Churn {
    /// How long a viewer stays on average; for ever if none is given. Another comes in its place.
    pub mean_stay: Option<Duration>,
    /// The share of the viewers that die at once, unannounced.
    pub kill_share: f64,
    /// When they do.
    pub kill_at: Duration,
}

/// Who lies; shares of the viewers, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Liars {
    /// Those who pass on nothing.
    pub free_riders: f64,
    /// Those who claim to be able to send more than they can.
    pub claimers: f64,
    /// How many times as much.
    pub claim_factor: f64,
    /// Those who drop half of what they should pass on.
    pub droppers: f64,
    /// Those who pass on something else.
    pub poisoners: f64,
}

impl Default for Liars {
    fn default() -> Liars {
        Liars { free_riders: 0.0, claimers: 0.0, claim_factor: 10.0, droppers: 0.0, poisoners: 0.0 }
    }
}
