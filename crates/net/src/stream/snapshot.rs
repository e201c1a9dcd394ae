//! Where a running peer stands, for dashboards: figures as the machines know them. What is unknown is none,
//! never 0. Clients are known by their numbers.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_proto::session::PeerKey;
use anabranch_proto::stream::feeds::FeedState;
use anabranch_proto::stream::message::Mode;
use anabranch_proto::stream::overlay::OverlayView;
use anabranch_proto::stream::traffic::Traffic;

use super::outages::Outage;

/// A viewer for whose players nothing has come for so long, beyond what a missing packet is waited for, is
/// [silent](State::Silent): by then a picture stands still.
pub const NOTHING_COMES: Duration = Duration::from_millis(2500);

/// Server or viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the stream.
    Server,
    /// It watches.
    Viewer,
}

/// How a peer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// A viewer asks the server to be let in.
    Connecting,
    /// The stream runs.
    Live,
    /// The server has let a viewer in, and nothing comes that could be played.
    Silent {
        /// Since then, or since the last packet.
        span: Duration,
        /// What is missing is known, since the source has signed it.
        is_missed: bool,
    },
    /// The server has no room for another viewer; it is asked again.
    Overloaded,
    /// The server is not reached, in words why; it is tried again.
    Unreachable(String),
}

/// Where a slice comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feed {
    /// From nowhere yet.
    None,
    /// From the server.
    Server(FeedState),
    /// From this client.
    Client(u32, FeedState),
}

/// What only the server knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFigures {
    /// Video that has come in, in bytes.
    pub source_bytes: u64,
    /// Packets that have come in.
    pub source_packets: u64,
    /// How often a viewer got another parent.
    pub parent_changes: u64,
}

/// Where a peer stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Server or viewer.
    pub role: Role,
    /// Since it runs.
    pub uptime: Duration,
    /// The stream's key.
    pub key: PeerKey,
    /// How it is.
    pub state: State,
    /// How the stream travels; none before a viewer is informed.
    pub mode: Option<Mode>,
    /// In how many slices.
    pub slices: Option<u8>,
    /// What it takes, by the last seconds.
    pub bitrate: Option<Rate>,
    /// A viewer's number.
    pub client: Option<u32>,
    /// Packets that went to players.
    pub played_packets: u64,
    /// Packets that players miss.
    pub skipped_packets: u64,
    /// Packets that were not the source's.
    pub forged_packets: u64,
    /// The age of what goes to players, as far as clocks tell: beyond the fastest way from the source.
    pub delay: Option<Duration>,
    /// Datagrams that have come, in bytes: video, manifests, maps and questions.
    pub received_bytes: u64,
    /// UDP payload that has left, in bytes: all of QUIC's packets.
    pub sent_bytes: u64,
    /// UDP datagrams that have left.
    pub sent_packets: u64,
    /// The same by kind, with 28 bytes of headers for each: all that is QUIC's own, handshakes and what is sent again
    /// among it, stands with the ACKs.
    pub sent_by_kind: Traffic,
    /// Of those that ask for an ACK, lost, in bytes.
    pub lost_bytes: u64,
    /// Received over the last period.
    pub download: Rate,
    /// Sent over the last period.
    pub upload: Rate,
    /// What it can send, measured while packets waited to leave; at a viewer.
    pub capacity: Option<Rate>,
    /// The user's limit.
    pub upload_limit: Option<Rate>,
    /// What the congestion controller lets be in flight, in bytes.
    pub window_bytes: u64,
    /// What is in flight, in bytes.
    pub in_flight_bytes: u64,
    /// Of what a viewer has received since it began, the share that came from the server itself.
    pub server_share: Option<f64>,
    /// Sessions, those that are being opened included.
    pub sessions: usize,
    /// Children, over all slices.
    pub children: usize,
    /// Where each slice comes from, at a viewer.
    pub feeds: Vec<Feed>,
    /// To which clients a viewer pushes each slice.
    pub children_by_slice: Vec<Vec<u32>>,
    /// Whether the stream is private: the server feeds every viewer itself, and names none to another.
    pub is_private: bool,
    /// Whether this viewer deals with the server alone.
    pub is_alone: bool,
    /// Datagrams that were longer than a path carries, and did not leave.
    pub too_long: u64,
    /// Of the paths that are open and did not carry one, what the narrowest carries: bytes of UDP payload.
    pub narrowest: Option<u16>,
    /// How many of those paths there are.
    pub narrow_sessions: usize,
    /// When slices stopped coming, at a viewer.
    pub outages: Vec<Outage>,
    /// Packets for the application that it did not take in time.
    pub untaken_packets: u64,
    /// What only the server knows.
    pub server: Option<ServerFigures>,
    /// How all fare, and how long ago that was: at the server, and at a viewer that was told since somebody looks
    /// at its page.
    pub overlay: Option<(Duration, OverlayView)>,
}
