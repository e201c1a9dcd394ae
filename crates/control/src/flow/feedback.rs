//! What a receiver tells its sender, and what the sender finds out without it.

use super::sent::Sent;
use crate::delivery_rate::RateSample;
use crate::time::Duration;
use crate::units::Bytes;

/// A receiver as its sender numbers those it serves, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// How a packet was found lost: by one of RFC 9002's two thresholds (section 6.1), or by a
/// timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossCause {
    /// Three packets sent after it have been acknowledged.
    PacketThreshold,
    /// It left long enough before a packet that has been acknowledged.
    TimeThreshold,
    /// The retransmission timer expired (RFC 6298).
    RetransmissionTimeout,
}

/// What TCP's loss recovery makes of a feedback. Its segments keep their numbers when they are
/// sent again, so that not the controller but the scoreboard tells one congestion event from
/// the next (RFC 6675, 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpRecovery {
    /// All that was sent up to somewhere has arrived: the window may grow.
    Open {
        /// How far that point has moved: over what arrived before, behind a gap, too. None by an ACK that also reports
        /// new data behind a gap, which is a duplicate one (RFC 6675, 2). After a timeout over what this ACK is the
        /// first to report, and with the ACK that ends it over what was sent since.
        advanced: Bytes,
    },
    /// A duplicate ACK, or a recovery that goes on: the window rests.
    Resting,
    /// The ACK that ends a fast recovery: it finds none going on (RFC 6675, 5, step A), and the
    /// window grows by it as by every ACK of new data (RFC 5681, 3.1), though all that it newly
    /// acknowledges may have left when the recovery began.
    Ended {
        /// As of [`Open`](TcpRecovery::Open).
        advanced: Bytes,
    },
    /// The same as [`Open`](TcpRecovery::Open), or as [`Ended`](TcpRecovery::Ended), by one cumulative ACK of more than
    /// two segments: most of it arrived before, behind a gap, of which nothing could tell. A window grows by no more
    /// than a packet then (RFC 5681, eq. 2; RFC 3465, 2.3).
    Jumped {
        /// It ends a fast recovery.
        ended: bool,
    },
    /// A fast recovery begins: the window is reduced, once for all its losses.
    FastRetransmit,
    /// The retransmission timer has expired: slow start begins from one packet, up to a
    /// threshold that this event has lowered (RFC 5681, 3.1).
    Timeout {
        /// Data in flight when it expired.
        in_flight: Bytes,
        /// It has expired for the same segment before: the threshold stays.
        repeated: bool,
    },
    /// Nothing was in flight for a retransmission timeout, and the sender restarts then: a window that is larger than
    /// the first one falls to it, and the threshold stays (RFC 5681, 4.1). Nothing else is reported with it.
    Idle,
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

/// Packets to one receiver whose fate nobody waits for any more: they count as in flight no longer,
/// and say nothing of the path (RFC 9002, 6.4, where a connection's keys are discarded).
#[derive(Clone, Copy, Debug)]
pub struct Abandoned<'a> {
    /// Whom they were sent to.
    pub receiver: PeerId,
    /// The packets, in the order in which they left.
    pub packets: &'a [Sent],
    /// Data in flight to others.
    pub in_flight: Bytes,
    /// Whether nothing more goes to that receiver, whose number may then name another one.
    pub is_gone: bool,
}

/// All that one receiver reported at one instant, or what the sender found out without it:
/// losses come with the ACK that reveals them, or alone when a timer does.
#[derive(Clone, Copy, Debug)]
pub struct Feedback<'a> {
    /// Who reported it.
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
    /// Where TCP's loss recovery stands; none of a sender that follows RFC 9002. A timeout is a
    /// persistent congestion too.
    pub tcp: Option<TcpRecovery>,
    /// The window was not used up before this feedback: the sender had nothing more to send,
    /// or a bound from outside held it back.
    pub app_limited: bool,
}
