//! What a caller of [`Receivers`](super::Receivers) says and is notified of: whose flows are received
//! and how, what has arrived, and what becomes of a flow.

use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::AckPolicy;
use anabranch_proto::flow::wire::{Body, Label};

/// A received flow, by what makes its packets its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowKey {
    /// The socket that it comes to.
    pub port: usize,
    /// Where it comes from.
    pub from: SocketAddr,
    /// Its connection, and which of the connection's receivers this is.
    pub label: Label,
}

/// Whose flows are received, beside those that are expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Accept {
    /// Nobody's.
    #[default]
    Expected,
    /// Those that begin with a handshake.
    Handshakes,
    /// All: data alone begins a flow.
    All,
}

/// How flows are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// When packets are acknowledged.
    pub policy: AckPolicy,
    /// Packets that arrive in one system call are answered together, once for each flow
    /// (RFC 9000, 13.2.2 allows it), and not each as `policy` would have it alone.
    pub together: bool,
    /// Whose flows are received.
    pub accept: Accept,
    /// The most flows at a time, expected ones included.
    pub max_flows: usize,
    /// A flow that nothing came of for so long is forgotten; none is if this is None.
    pub patience: Option<Duration>,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            policy: AckPolicy::default(),
            together: true,
            accept: Accept::default(),
            // A flow holds 64 kB at most, in pieces of its stream: 64 MB.
            max_flows: 1024,
            // Twice a sender's, so that the sender is the first to give up.
            patience: Some(Duration::SECOND * 60),
        }
    }
}

/// What a receiver has received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes of the stream, each counted once.
    pub delivered: u64,
    /// Bytes of the stream without a gap from its beginning.
    pub contiguous: u64,
    /// Packets with data, copies included.
    pub packets: u64,
    /// Packets with a congestion-experienced mark.
    pub marked: u64,
    /// ACKs that have left.
    pub acks: u64,
    /// When the first packet with data came.
    pub first: Option<Time>,
    /// When the last one did.
    pub last: Option<Time>,
    /// When the stream was complete.
    pub completed: Option<Time>,
}

/// What has happened to a received flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// It has begun, though it was not expected.
    Accepted {
        /// The flow.
        flow: FlowKey,
        /// When.
        at: Time,
    },
    /// The stream has arrived up to an offset that was asked for.
    Reached {
        /// The flow.
        flow: FlowKey,
        /// When.
        at: Time,
        /// The offset.
        offset: u64,
    },
    /// The stream has arrived, up to its end.
    Completed {
        /// The flow.
        flow: FlowKey,
        /// When.
        at: Time,
        /// Its length.
        bytes: u64,
    },
    /// Its sender has closed it; it is forgotten.
    Closed {
        /// The flow.
        flow: FlowKey,
        /// When.
        at: Time,
        /// What it had received.
        report: Report,
    },
    /// Nothing came of it for too long; it is forgotten.
    Silent {
        /// The flow.
        flow: FlowKey,
        /// When.
        at: Time,
        /// What it had received.
        report: Report,
    },
}

impl Accept {
    /// Whether `body` begins a flow that was not expected.
    pub(super) fn begins_with(self, body: &Body<'_>) -> bool {
        match body {
            Body::Syn(_) => self != Accept::Expected,
            Body::Data(..) => self == Accept::All,
            Body::Ack(_) | Body::SynAck(_) | Body::Close(_) => false,
        }
    }
}
