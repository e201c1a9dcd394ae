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
mod classic;
mod compound;
mod copa;
pub mod counting;
mod cubic;
pub mod feedback;
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
pub mod policy;
mod reading;
pub mod recovery;
pub mod registry;
mod remy;
mod reno;
pub mod round;
pub mod sent;
pub mod setup;
mod sliding;
pub mod slow_start;
#[cfg(test)]
mod testing;
mod vegas;
mod vivace;
mod westwood;
mod xavier;

use core::fmt::Debug;

use dyn_clone::{DynClone, clone_trait_object};

pub use bounded::{Actuator, Bounded, Bounds};
pub use feedback::{Abandoned, Feedback, LossCause, Lost, PeerId, RoundTrip, TcpRecovery};
pub use sent::Sent;

use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

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
///
/// A controller is a value: a clone goes on from where the original stands, and neither knows of
/// the other. What it shares with a clone must never change.
pub trait FlowController: Debug + DynClone + Send + Sync {
    /// A packet leaves for receiver `to`. Says whether that may have changed the limits.
    fn on_sent(&mut self, now: Time, to: PeerId, packet: &Sent, rng: &mut Rng) -> bool {
        let _ = (now, to, packet, rng);
        false
    }

    /// A receiver has answered, or losses were found by a timer.
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, rng: &mut Rng);

    /// From now on packets that have arrived wait for `wait`, in the mean, until a receiver that puts
    /// off its ACKs reports them; round trips are reported without that. It is 0 at first, and where a
    /// sender tells round trips with it.
    fn set_ack_wait(&mut self, wait: Duration) {
        let _ = wait;
    }

    /// Whether it keeps the round trips to each receiver apart. To one that takes all packets for those of
    /// one path, a sender that many receivers share tells their mean least round trip, and the queue
    /// beyond each one's own (`proto::flow::common_path`).
    fn distinguishes_receivers(&self) -> bool {
        false
    }

    /// A receiver is gone, or was silent for so long that what is in flight to it does not count
    /// any more.
    fn on_abandoned(&mut self, now: Time, abandoned: &Abandoned<'_>) {
        let _ = (now, abandoned);
    }

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

    /// What whoever runs it should know and can't see in a trace, such as that a network was shown what no training
    /// showed it; said once a connection.
    fn note(&self) -> Option<String> {
        None
    }

    /// Named values for plots and logs, always the same names in the same order. Windows
    /// are in bytes, rates in bits a second, times in milliseconds.
    fn trace(&self, record: &mut dyn FnMut(&'static str, f64));
}

clone_trait_object!(FlowController);
