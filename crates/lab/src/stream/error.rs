//! Why a run of a stream has no result.

use anabranch_control::time::Duration;

/// Why a run of a stream has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamRunError {
    /// No player has got anything.
    #[error(
        "in {length} nothing was delivered to any viewer ({sent} packets left the source, the server let in {let_in} of \
         {viewers} viewers): no figure can come of this run; look at the lines' rates, delays and losses, and at the \
         controller \"{controller}\""
    )]
    NothingDelivered {
        /// The registered name of the controller.
        controller: &'static str,
        /// Simulated time.
        length: Duration,
        /// Packets of the stream.
        sent: u64,
        /// Viewers that came.
        viewers: usize,
        /// Of those, whom the server had let in at the end.
        let_in: usize,
    },
}
