//! What every rate learner is: the rate that one peer can forward for us.

use core::fmt::Debug;

use serde::de::DeserializeOwned;

use super::{Report, Slot};
use crate::registry::ParameterError;
use crate::rng::Rng;
use crate::time::Duration;
use crate::units::{Bytes, Rate};

/// What one outcome says about one relay of the path, whose learner notes an `N` for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a, N> {
    /// What is known of the packet.
    pub report: &'a Report<'a>,
    /// Where on its path the relay is.
    pub place: usize,
    /// What this learner noted when the packet left.
    pub note: N,
}

impl<N> Evidence<'_, N> {
    /// The relay.
    #[inline]
    pub fn relay(&self) -> Slot {
        self.report.path[self.place].slot
    }

    /// The smoothed round-trip time from us to the relay, once there is a sample of it.
    #[inline]
    pub fn srtt(&self) -> Option<Duration> {
        self.report.rtts.mean_to(self.relay())
    }

    /// The rate that the relay has stamped on the ACK.
    #[inline]
    pub fn stamp(&self) -> Option<Rate> {
        self.report.stamp(self.place)
    }
}

/// Estimates the rate that one peer can forward for us, from what is known of the packets that it forwards.
///
/// Parameters are shared by the learners of all peers and handed to every call.
pub trait RateLearner: Debug + Clone + Send + 'static {
    /// What may be set, with the paper's values as default.
    type Config: Debug + Clone + Default + Send + Sync + DeserializeOwned + 'static;
    /// What is true of the learner when a packet leaves, and matters with its outcome. A sender
    /// keeps it for every relay of every packet, so it must fit four bytes; a number does, and several fields
    /// do as a `bitfield`.
    type Note: Copy + Debug + From<u32> + Into<u32>;

    /// Refuses parameters outside their range, naming the key and the range.
    fn check(config: &Self::Config) -> Result<(), ParameterError>;

    /// A learner that has seen nothing yet.
    fn new(config: &Self::Config, packet: Bytes) -> Self;

    /// The rate to send with; never below one packet a second, or the peer would
    /// never be tried again.
    fn rate(&self, config: &Self::Config, packet: Bytes) -> Rate;

    /// A packet leaves; the answer comes back with its outcome.
    fn on_sent(&mut self, config: &Self::Config) -> Self::Note;

    /// A packet's outcome is known.
    fn on_outcome(&mut self, config: &Self::Config, packet: Bytes, evidence: Evidence<'_, Self::Note>, rng: &mut Rng);

    /// A packet has arrived whose loss was reported before.
    fn on_late(&mut self, _config: &Self::Config, _packet: Bytes, _evidence: Evidence<'_, Self::Note>, _rng: &mut Rng) {
    }

    /// Heap memory in bytes.
    fn heap_bytes(&self) -> usize;

    /// Named values in a fixed order.
    fn trace(&self, config: &Self::Config, packet: Bytes, record: &mut dyn FnMut(&'static str, f64));
}
