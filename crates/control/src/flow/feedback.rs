//! What a receiver tells its sender, and what the sender finds out without it.

use super::sent::Sent;
use crate::delivery_rate::RateSample;
use crate::time::Duration;
use crate::units::Bytes;

/// A receiver as its sender numbers those it serves, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// By which of RFC 9002's two thresholds (section 6.1) a packet was declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// Three packets sent after it have been acknowledged.
    PacketThreshold,
    /// It left long enough before a packet that has been acknowledged.
    TimeThreshold,
}

/// A lost packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// What was true when it left.
    pub sent: Sent,
    /// How its loss was found.
    pub cause: LossCause,
}

/// Round-trip times of the path to one receiver, RFC 9002 section 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The sample that this feedback gives, if it gives one.
    pub latest: Option<Duration>,
    /// Exponentially weighted mean.
    pub smoothed: Duration,
    /// Exponentially weighted mean deviation.
    pub variation: Duration,
    /// The least since the path was first used.
    pub min: Duration,
}

/// All that one receiver told us at one instant, or what the sender found out without it:
/// losses come with the ACK that reveals them, or alone when a timer does.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// Who told us.
    pub receiver: PeerId,
    /// Round-trip times to it.
    pub rtt: RoundTrip,
    /// Packets acknowledged for the first time, in the order in which they left.
    pub acked: &'a [Sent],
    /// Packets declared lost, in the order in which they left.
    pub lost: &'a [Lost],
    /// Data in `acked`.
    pub acked_bytes: Bytes,
    /// Data in flight after this feedback.
    pub in_flight: Bytes,
    /// Delivered since the sender began, this feedback included.
    pub delivered: Bytes,
    /// Delivery rate over the flight of the newest acknowledged packet, if there is one.
    pub rate: Option<RateSample>,
    /// Packets newly reported with a congestion-experienced mark.
    pub ecn_marked_packets: u64,
    /// No packet of a span longer than several probe timeouts has arrived (RFC 9002, 7.6).
    pub persistent_congestion: bool,
    /// The window was not used up before this feedback: the sender had nothing more to send,
    /// or a bound from outside held it back.
    pub app_limited: bool,
}
