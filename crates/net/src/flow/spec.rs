//! What a caller of [`Senders`](super::Senders) says and is notified of: a flow to open, why it can't
//! be, what becomes of it and why it ends.

use std::fmt;
use std::net::SocketAddr;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::{Fault, FlowSender, wire};

use super::content::{Pattern, Source};

/// The most receivers that a flow's packets can tell apart.
pub(super) const MAX_RECEIVERS: usize = 1 << 16;

/// A flow of [`Senders`](super::Senders), by its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(pub u32);

/// A flow to open.
pub struct FlowSpec {
    /// The connection's number, which no other flow of these senders has at the time.
    pub connection: u32,
    /// The socket by which it leaves: how many were added before it.
    pub port: usize,
    /// Where its receivers are; the first is `PeerId(0)`.
    pub receivers: Vec<SocketAddr>,
    /// The flow itself, with its controller.
    pub sender: FlowSender,
    /// Whether each receiver must answer a first packet before data leaves.
    pub handshake: bool,
    /// How long receivers may be silent while something is on its way to them.
    pub patience: Duration,
    /// Where its data comes from.
    pub source: Box<dyn Source>,
}

impl FlowSpec {
    /// Connection `connection` to `receiver` by the first socket: with a handshake, with a pattern for data, and with 30 s of patience (quinn's and Chromium's idle
    /// timeout; RFC 9000 10.1 leaves it to us).
    pub fn new(connection: u32, receiver: SocketAddr, sender: FlowSender) -> FlowSpec {
        FlowSpec {
            connection,
            port: 0,
            receivers: vec![receiver],
            sender,
            handshake: true,
            patience: Duration::SECOND * 30,
            source: Box::new(Pattern),
        }
    }
}

impl fmt::Debug for FlowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowSpec({} to {:?})", self.connection, self.receivers)
    }
}

/// Why a flow can't be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Another flow has its connection's number.
    InUse {
        /// The number.
        connection: u32,
    },
    /// There is no such socket.
    NoPort {
        /// The socket.
        port: usize,
    },
    /// It has no receivers, too many, or not as many as its sender serves.
    Receivers {
        /// How many addresses there are.
        addresses: usize,
        /// How many its sender serves.
        served: usize,
    },
    /// Its packets don't fit a datagram.
    PacketTooLong {
        /// Data in a packet.
        packet: Bytes,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::InUse { connection } => write!(f, "connection {connection} is in use: choose another number"),
            OpenError::NoPort { port } => write!(f, "there is no socket {port}: add it first"),
            OpenError::Receivers { addresses, served } => write!(
                f,
                "{addresses} receivers' addresses for a sender that serves {served}: give one for each, \
                 1 to {MAX_RECEIVERS}"
            ),
            OpenError::PacketTooLong { packet } => write!(
                f,
                "packets of {packet}: a datagram holds 1 to {} bytes of data",
                wire::MAX_DATAGRAM - wire::HEADER
            ),
        }
    }
}

impl std::error::Error for OpenError {}

/// Why a flow has ended before it was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// A receiver was silent for longer than the flow's patience.
    NoAnswer {
        /// The patience.
        patience: Duration,
    },
    /// Its controller lets nothing leave, ever.
    Fault(Fault),
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::NoAnswer { patience } => {
                write!(f, "its receiver has not answered for {} s", patience.as_secs_f64())
            }
            EndReason::Fault(Fault::NoWindow) => {
                write!(f, "its controller has stopped it for good: its window is 0 and it waits for nothing")
            }
            EndReason::Fault(Fault::NoRate) => {
                write!(f, "its controller has stopped it for good: its pacing rate is 0")
            }
        }
    }
}

/// What has happened to a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// Its receivers have answered the first packets; data leaves.
    Established {
        /// The flow.
        flow: FlowId,
        /// When.
        at: Time,
    },
    /// All that was handed over has been acknowledged.
    Delivered {
        /// The flow.
        flow: FlowId,
        /// When.
        at: Time,
    },
    /// It has ended: nothing leaves any more, and only `close` is left to do.
    Ended {
        /// The flow.
        flow: FlowId,
        /// When.
        at: Time,
        /// Why.
        reason: EndReason,
    },
}
