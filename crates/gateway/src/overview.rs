//! What a peer tells of itself and of its stream: the body of `GET /api/overview`, and of each event of
//! `GET /events`.
//!
//! Units are in the names. What is unknown is `None`, and `null` in JSON; it is never zero.

use serde::{Deserialize, Serialize};

/// Events that an overview holds at most.
pub const MOST_EVENTS: usize = 100;

/// What a peer knows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    /// Where the stream begins, or one who watches it.
    pub role: Role,
    /// Of the program.
    pub version: String,
    /// Since the peer began.
    pub uptime_s: f64,
    /// What is watched.
    pub stream: Stream,
    /// Where the video comes from; the server's alone.
    pub input: Option<Input>,
    /// This peer itself.
    pub here: Here,
    /// All peers: what the server knows, and viewers whose page somebody looks at are sent.
    pub overlay: Option<Overlay>,
}

/// What a peer is to its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The stream begins here.
    Server,
    /// The stream is watched here.
    Viewer,
}

/// A stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stream {
    /// Its public key, 64 hexadecimal digits.
    pub key: String,
    /// By which others join.
    pub link: String,
    /// How packets get to viewers.
    pub mode: Mode,
    /// Into this many slices it is cut, each with a tree.
    pub slices: u32,
    /// Of the video, over the last seconds.
    pub bitrate_bits_per_s: Option<f64>,
    /// What players hold against late packets.
    pub buffer_s: f64,
    /// Whether there are pictures; none before the stream has said so.
    pub has_video: Option<bool>,
    /// Whether viewers get it from the server alone, and see no addresses.
    pub is_private: bool,
}

/// How packets get to viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Trees push, a mesh repairs.
    Hybrid,
    /// Trees alone.
    Trees,
    /// A mesh alone.
    Mesh,
}

/// Where the video comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Input {
    /// In the user's words, without what may be secret.
    pub source: String,
    /// How it goes.
    pub state: InputState,
    /// What is wrong, or what is awaited.
    pub detail: Option<String>,
    /// Since the peer began.
    pub received_bytes: u64,
    /// Of these, belonged to no packet of a transport stream.
    pub skipped_bytes: u64,
    /// How often it began again.
    pub restarts: u64,
}

/// How an input goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InputState {
    /// Video comes.
    Receiving,
    /// None comes now, and some may yet.
    #[default]
    Waiting,
    /// It is of no use as it is, and the detail says why; it is tried again where that may help.
    Failed,
}

/// A peer as it sees itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Here {
    /// Where others reach it.
    pub address: Option<String>,
    /// Its number among the viewers.
    pub client: Option<u64>,
    /// Whether it deals with the server alone, and is named to nobody.
    pub is_private: bool,
    /// How it goes.
    pub state: HereState,
    /// What is wrong, or what is awaited.
    pub detail: Option<String>,
    /// Of these, went to players.
    pub played_packets: u64,
    /// Packets that did not come in time.
    pub skipped_packets: u64,
    /// Packets that are not the stream's.
    pub forged_packets: u64,
    /// Age of what goes to players.
    pub delay_s: Option<f64>,
    /// What players hold or can be given at once.
    pub buffered_s: Option<f64>,
    /// What it sends.
    pub upload: Upload,
    /// What it receives.
    pub download_bits_per_s: Option<f64>,
    /// Part of the received video that came from the server itself.
    pub server_share: Option<f64>,
    /// Peers that it talks with.
    pub sessions: u64,
    /// Peers that it sends slices to.
    pub children: u64,
    /// Players that read from it.
    pub players: u64,
    /// Whom it gets each slice from.
    pub feeds: Vec<Feed>,
    /// The numbers of those that it sends each slice to.
    pub children_by_slice: Vec<Vec<u64>>,
}

/// How a peer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HereState {
    /// It is no member yet.
    Connecting,
    /// It is a member.
    Live,
    /// It is a member, and nothing of the stream comes.
    Silent,
    /// The server has no place for it.
    Overloaded,
    /// The server does not answer.
    Unreachable,
}

/// What a peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Upload {
    /// Since the peer began: all that left, with the headers of UDP and IP where they are known.
    pub sent_bytes: u64,
    /// The same by what it is for.
    pub by_kind: SentByKind,
    /// Over the last second.
    pub sent_bits_per_s: Option<f64>,
    /// What it believes that it could send.
    pub capacity_bits_per_s: Option<f64>,
    /// What its user allows.
    pub limit_bits_per_s: Option<f64>,
}

/// What a peer has sent since it began, in bytes, by what it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentByKind {
    /// Packets of the stream.
    pub packets: u64,
    /// What they are told apart by.
    pub manifests: u64,
    /// What is here, for neighbours.
    pub maps: u64,
    /// Questions for packets.
    pub wants: u64,
    /// What peers know together.
    pub gossip: u64,
    /// Messages.
    pub messages: u64,
    /// ACKs, handshakes, and whatever else the transport sends by itself.
    pub transport: u64,
}

/// Whom a peer gets a slice from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Feed {
    /// Its number.
    pub slice: u32,
    /// The number of the viewer that sends it.
    pub parent: Option<u64>,
    /// Whether the server sends it.
    pub is_server: bool,
    /// How it goes.
    pub state: FeedState,
}

/// How a slice comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedState {
    /// It comes.
    Live,
    /// Somebody was asked for it, and nothing has come yet.
    Asked,
    /// It should come, and does not.
    Silent,
    /// Nobody sends it.
    None,
}

/// All peers of a stream.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overlay {
    /// How old this is.
    pub age_s: f64,
    /// How many watch. A viewer is told of those around it alone where they are many.
    pub watching: u64,
    /// What the server sends.
    pub server: ServerLoad,
    /// Bytes of video that viewers received.
    pub delivered_bytes: u64,
    /// 1 less bytes that the server sent by bytes that viewers received.
    pub savings: Option<f64>,
    /// Viewers.
    pub clients: Vec<Client>,
    /// A tree for each slice.
    pub trees: Vec<Tree>,
    /// How late viewers are.
    pub delays_s: Histogram,
    /// What happened, newest last, [`MOST_EVENTS`] at most.
    pub events: Vec<Event>,
}

/// What the server sends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ServerLoad {
    /// Over the last second.
    pub sent_bits_per_s: Option<f64>,
    /// Since it began.
    pub sent_bytes: u64,
    /// Of the source, since it began.
    pub source_bytes: u64,
    /// Viewers that it sends slices to.
    pub children: u64,
}

/// A viewer as the server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Client {
    /// Its number.
    pub client: u64,
    /// How it goes.
    pub state: ClientState,
    /// Whether the server alone feeds it, and it is named to nobody.
    pub is_private: bool,
    /// What it sends.
    pub upload_bits_per_s: Option<f64>,
    /// What it was seen to bear.
    pub capacity_bits_per_s: Option<f64>,
    /// Children that it may have, over all trees.
    pub places: u64,
    /// Children that it has, over all trees.
    pub children: u64,
    /// Packets that went to its players.
    pub played_packets: u64,
    /// Packets that it did not get in time.
    pub skipped_packets: u64,
    /// Age of what goes to its players.
    pub delay_s: Option<f64>,
    /// Between server and viewer.
    pub round_trip_s: Option<f64>,
    /// What its players hold or can be given at once.
    pub buffered_s: Option<f64>,
}

/// How a viewer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientState {
    /// It gets the stream.
    Live,
    /// It gets the stream late.
    Late,
    /// It says nothing.
    Silent,
    /// Others complain of it.
    Suspect,
    /// It was shut out.
    Excluded,
}

/// Who sends a slice to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// Its number.
    pub slice: u32,
    /// Child and parent; a parent that is none is the server.
    pub edges: Vec<(u64, Option<u64>)>,
}

/// How often values were in which range.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Histogram {
    /// Of each range, its highest value; of the last, none.
    pub upper_bounds: Vec<Option<f64>>,
    /// Values in each range, not added up.
    pub counts: Vec<u64>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Since the peer began.
    pub at_s: f64,
    /// What.
    pub kind: EventKind,
    /// To whom.
    pub client: Option<u64>,
    /// In words.
    pub text: String,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// A viewer came.
    Joined,
    /// A viewer went, and said so.
    Left,
    /// A viewer went without a word.
    Died,
    /// A viewer was not let in.
    Refused,
    /// A viewer was shut out.
    Excluded,
}
