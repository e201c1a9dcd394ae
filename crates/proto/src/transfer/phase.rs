//! How far a sender's transfer is, and how long it waits.

use anabranch_control::time::Duration;

/// After so long without any answer the receiver is given up.
pub(super) const PATIENCE: Duration = Duration::from_millis(30_000);

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Agreeing on keys.
    Greeting,
    /// Waiting for the offer to be accepted.
    Offering,
    /// Sending blocks.
    Sending,
    /// Waiting until the receiver has checked the file.
    Finishing,
    /// Over, well or not.
    Over,
}
