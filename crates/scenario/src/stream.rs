//! A live stream over its viewers: who sends, who watches, who comes and goes, who lies.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_proto::stream::message::Mode;

/// A run of a stream.
#[derive(Clone, Debug, PartialEq)]
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
}

/// The stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamConfig {
    /// Its bits a second.
    pub bitrate: Rate,
    /// How many slices.
    pub slices: u8,
    /// How it travels.
    pub mode: Mode,
    /// What a player holds ready.
    pub buffer: Duration,
    /// The flow controller of every peer.
    pub controller: String,
}

/// Who watches, and over which lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Audience {
    /// How many.
    pub clients: usize,
    /// How long it takes until all have come, evenly.
    pub arrival: Duration,
    /// What each can send: these in turn.
    pub upload: Vec<Rate>,
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
