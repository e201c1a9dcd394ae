//! What pages show of all peers: who watches, how they fare, who gets which slice from whom. The server knows it,
//! and tells the viewers that ask, in numbers alone: no address and no key is in it.
//!
//! Somebody has to look: a viewer asks while its page is open, every [`ASK_PERIOD`]. One answer tells of
//! [`MOST_LISTED`] viewers at most, those around the one who asks: it, those above it up to the server, those that it
//! feeds, then others. All answers together take a part of what the server can send; who asks when that
//! is used up waits for its turn.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::content::ClientId;

/// How often a viewer asks whose page is open.
pub const ASK_PERIOD: Duration = Duration::from_millis(2000);

/// A page has been left if nobody has looked for so long.
pub const LOOKED_AT: Duration = Duration::from_millis(5000);

/// The most viewers that one answer lists: it takes 37 bytes for each, and 2 for each slice.
pub const MOST_LISTED: usize = 100;

/// What has happened lately, in this many events at most.
pub const MOST_HAPPENINGS: usize = 50;

/// Upper ends of the classes of delays; the last class has none.
pub const DELAYS: [Duration; 7] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_millis(1000),
    Duration::from_millis(2000),
    Duration::from_millis(3000),
    Duration::from_millis(4000),
    Duration::from_millis(5000),
];

/// What the server has sent, as its driver counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerLoad {
    /// Over the last second.
    pub sent: Rate,
    /// Since it began, with all headers.
    pub sent_bytes: u64,
    /// Of the source, since it began.
    pub source_bytes: u64,
}

/// How a viewer fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViewerState {
    /// It gets the stream.
    Live,
    /// It has missed more than one packet in a hundred in the last seconds.
    Late,
    /// Nothing is heard of it, or it has gone without a word.
    Silent,
    /// Several of its children miss it.
    Suspect,
    /// It has sent what is not the source's, and was shut out.
    Excluded,
}

impl ViewerState {
    /// All of them, in the order of their codes.
    pub const ALL: [ViewerState; 5] =
        [ViewerState::Live, ViewerState::Late, ViewerState::Silent, ViewerState::Suspect, ViewerState::Excluded];
}

/// A viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViewerFigures {
    /// Its number.
    pub client: ClientId,
    /// How it fares.
    pub state: ViewerState,
    /// Whether the server alone feeds it, and nobody is told where it is.
    pub is_private: bool,
    /// Children that it may have, over all slices.
    pub places: u16,
    /// Children that it has in the trees.
    pub children: u16,
    /// What it sends.
    pub sent: Rate,
    /// What it was seen to bear; 0 if that is unknown.
    pub capacity: Rate,
    /// Packets that went to its players.
    pub played: u64,
    /// Packets that came too late for them.
    pub skipped: u64,
    /// How old what goes to its players is.
    pub delay: Option<Duration>,
    /// Between it and the server.
    pub round_trip: Option<Duration>,
}

/// What happens to viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It watches.
    Joined,
    /// It has said goodbye.
    Left,
    /// It has gone without a word.
    Died,
    /// It had sent what is not the source's.
    Excluded,
    /// There was no room for it any more.
    LeftOut,
}

impl Happened {
    /// All of them, in the order of their codes.
    pub const ALL: [Happened; 5] =
        [Happened::Joined, Happened::Left, Happened::Died, Happened::Excluded, Happened::LeftOut];
}

/// Something that has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// How long ago; at most what 16 bits of tenths of a second hold.
    pub ago: Duration,
    /// To whom.
    pub client: ClientId,
    /// What.
    pub what: Happened,
}

/// All of this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlayView {
    /// What the server sends.
    pub load: ServerLoad,
    /// Children of the server, over all slices.
    pub server_children: u32,
    /// Video that viewers have got, in bytes, those who are gone included.
    pub delivered_bytes: u64,
    /// How many watch: more than are listed here, perhaps.
    pub watching: u32,
    /// How many viewers' delays are in which class of [`DELAYS`].
    pub delays: [u32; DELAYS.len() + 1],
    /// Viewers, by number.
    pub viewers: Vec<ViewerFigures>,
    /// For each slice, which of these viewers gets it from whom of them: none for the server.
    pub trees: Vec<Vec<(ClientId, Option<ClientId>)>>,
    /// What has happened lately, the oldest first.
    pub happenings: Vec<Happening>,
}
