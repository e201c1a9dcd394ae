//! What the thread of a peer and its application tell each other.

use std::sync::Arc;

use anabranch_proto::stream::message::StreamInfo;
#[cfg(doc)]
use anabranch_proto::stream::packet::MAX_PACKET;
use anabranch_proto::stream::tracker::Refusal;

use super::liar::MaybeLiar;
use crate::sessions::QuicSessions;

/// What runs.
pub(super) type Peer = QuicSessions<MaybeLiar>;

/// A packet of video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Video {
    /// Up to [`MAX_PACKET`] bytes: whole packets of a transport stream.
    pub bytes: Arc<[u8]>,
    /// Whether players can begin here.
    pub is_entry_point: bool,
}

/// What an application is notified of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// At a viewer: the server has let it in.
    Welcomed(StreamInfo),
    /// At a viewer: the server has begun anew, as another broadcast; what comes next does not follow what came.
    Restarted,
    /// At a viewer: the server has no room; it is asked again.
    Overloaded,
    /// At a viewer: the server is not reached, in words why; it is tried again.
    Unreachable(String),
    /// At a viewer: the next packet for players.
    Packet {
        /// Its number.
        number: u64,
        /// Its bytes.
        bytes: Arc<[u8]>,
    },
    /// At a viewer: this many packets from this one on are missing here.
    Gap {
        /// The first of them.
        number: u64,
        /// How many.
        packets: u64,
    },
    /// At a viewer: nothing comes of a slice; the client that should push it, or the server.
    Silent {
        /// Which.
        slice: u8,
        /// Who should push it.
        parent: Option<u32>,
    },
    /// At a viewer: somebody has sent what is not the source's; its number, if it has one.
    Forged(Option<u32>),
    /// At the server: somebody watches.
    Joined(u32),
    /// At the server: somebody may not watch.
    Refused(Refusal),
    /// At the server: somebody watches no more.
    Left {
        /// Who.
        client: u32,
        /// Whether because nothing was heard of it.
        was_silent: bool,
    },
    /// At the server: somebody has sent what is not the source's to most of its children, and may watch no more.
    Excluded(u32),
    /// At the server: there is not enough for all, and somebody passes nothing on; it may come back later.
    LeftOut(u32),
}
