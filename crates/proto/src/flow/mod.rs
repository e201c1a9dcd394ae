//! A flow: one sender's data, in numbered packets, to one receiver or several in turn,
//! and what the receivers answer.
//!
//! Every transmission has a packet number of its own, whatever data it carries, so that an
//! ACK is never ambiguous (RFC 9000, 12.3); under a recovery of TCP's
//! ([`LossRecovery::is_tcp`]) data keeps its number instead. Receivers answer with ranges of numbers; the
//! sender finds losses by RFC 9002, repairs them, and asks a flow controller how much may
//! be in flight and how fast. Numbers and offsets count from 0 for each receiver.

pub mod acknowledger;
pub(crate) mod answer;
mod coming_and_going;
mod common_path;
mod config;
#[cfg(test)]
mod hostile;
mod loss_shares;
mod message;
pub(crate) mod ranges;
mod receiver;
mod receiving;
mod reduction;
mod reordering;
mod scoreboard;
mod sender;
mod sending;
pub mod shared_controller;
pub(crate) mod shared_window;
mod space;
pub mod wire;

use anabranch_control::time::Duration;

pub use acknowledger::AckPolicy;
pub use answer::AckError;
pub use config::{LossRecovery, PartialAck, Reduction, SenderConfig, TcpOptions};
pub use message::{FlowBody, FlowEvent, FlowMessage, WireSizes};
pub use ranges::{AckForm, AckRanges, Assembly};
pub use receiver::{FlowReceiver, Received};
pub use receiving::ReceivingEnd;
pub use sender::{FlowSender, Transmit};
pub use sending::{HANDSHAKE_TIMEOUT, Heard, SendingEnd};
pub use shared_window::{CatchUp, Fault, Metrics};
pub use space::Ecn;

/// A packet with data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Data {
    /// Its number; never used for other data.
    pub number: u64,
    /// Where its data lies in the stream.
    pub offset: u64,
    /// Data bytes.
    pub length: u32,
    /// Whether the stream ends with this data.
    pub fin: bool,
    /// Whether nothing follows for now, so that it is answered at once: TCP's push (RFC 9293, 3.9.1).
    pub push: bool,
}

/// What a receiver has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Numbers of packets that have arrived.
    pub ranges: AckRanges,
    /// How long the newest of them waited for this ACK.
    pub delay: Duration,
    /// Packets that have arrived with a congestion-experienced mark.
    pub ce_count: u64,
}
