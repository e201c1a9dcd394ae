//! What a sender notes of each packet that leaves.

use crate::time::Time;
use crate::units::Bytes;

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
