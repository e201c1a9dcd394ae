//! Flow controllers: one sender's window and pacing rate.
//!
//! A sender counts the data that is in flight (sent, neither acknowledged nor declared
//! lost) and asks its controller how much may be. The controller sees each packet that
//! leaves and, whole, what each ACK says; it never sees a clock, a packet format or a
//! socket. Windows, rates and sizes count data bytes without headers.

mod allegro;
mod bbr;
mod bbr3;
mod bic;
mod block_window;
mod bounded;
mod c3_cubic;
mod compound;
mod copa;
pub mod counting;
mod cubic;
mod fixed;
#[cfg(test)]
mod hostile;
pub mod hystart;
mod learningcc;
mod ledbat;
#[cfg(test)]
mod liveness;
mod monitor;
mod pcc;
pub mod recovery;
pub mod registry;
mod remy;
mod reno;
pub mod round;
mod sliding;
pub mod slow_start;
#[cfg(test)]
mod testing;
mod vegas;
mod vivace;
mod westwood;
mod xavier;

use core::fmt::Debug;

pub use bounded::{Bounded, Bounds};

use crate::delivery_rate::RateSample;
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// A receiver as its sender numbers those it serves, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// What was true when a packet left; it comes back with its ACK or its loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// When it left.
    pub at: Time,
    /// Its data.
    pub size: Bytes,
    /// In flight once it had left, itself included.
    pub in_flight: Bytes,
    /// Delivered since the sender began, all receivers together, when it left.
    pub delivered: Bytes,
    /// When that much had been delivered, as far as the sender knew.
    pub delivered_at: Time,
    /// When the first packet of the flight that it belongs to left; begins the span over
    /// which a delivery rate is taken.
    pub first_sent_at: Time,
    /// Declared lost since the sender began, when it left.
    pub lost: Bytes,
    /// Whether the application, not the window, limited the sender then.
    pub app_limited: bool,
}

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
    Open,
    /// A duplicate ACK, or a recovery that goes on: the window rests.
    Resting,
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
    /// Where TCP's loss recovery stands; none of a sender that follows RFC 9002. A timeout is a
    /// persistent congestion too.
    pub tcp: Option<TcpRecovery>,
    /// The window was not used up before this feedback: the sender had nothing more to send,
    /// or a bound from outside held it back.
    pub app_limited: bool,
}

/// What the sender must hold to until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most that may be in flight. A window above 0 always admits one packet to an
    /// empty network, however small it is.
    pub window: Bytes,
    /// The most that may leave a second; none leaves the ACKs to set the pace.
    pub rate: Option<Rate>,
    /// How much may leave at once under `rate`.
    pub burst: Bytes,
}

impl Limits {
    /// A window and no rate.
    pub const fn window(window: Bytes) -> Limits {
        Limits { window, rate: None, burst: Bytes::ZERO }
    }
}

/// Decides one sender's window and pacing rate.
pub trait FlowController: Debug + Send + Sync {
    /// A packet leaves for receiver `to`. Says whether that may have changed the limits.
    fn on_sent(&mut self, now: Time, to: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        let _ = (now, to, packet, rng);
        false
    }

    /// A receiver has answered, or losses were found by a timer.
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng);

    /// The instant that `timer` named has come.
    fn on_timer(&mut self, now: Time, rng: &mut Rng) {
        let _ = (now, rng);
    }

    /// When `on_timer` must be called, if the controller waits for time to pass.
    fn timer(&self) -> Option<Time> {
        None
    }

    /// What holds now.
    fn limits(&self) -> Limits;

    /// Named values for plots and logs, always the same names in the same order. Windows
    /// are in bytes, rates in bits a second, times in milliseconds.
    fn trace(&self, record: &mut dyn FnMut(&'static str, f64));
}
