//! One reduction for each round trip: losses of packets that left before the last
//! reduction belong to the same congestion event (RFC 9002, 7.3.2; RFC 6582).

use super::{Feedback, Sent, TcpRecovery};
use crate::time::Time;
use crate::units::Packets;

/// The smallest window (RFC 9002, 7.2), where a controller's own text names none.
pub const MINIMUM_WINDOW: Packets = Packets(2.0);

/// The window after a timeout (RFC 5681, 3.1, LW).
const LOSS_WINDOW: Packets = Packets(1.0);

/// The window after persistent congestion (RFC 9002, 7.6.2), or after a timeout, the
/// loss window (RFC 5681, 3.1).
pub fn restart_window(feedback: &Feedback<'_>) -> Packets {
    if matches!(feedback.tcp, Some(TcpRecovery::Timeout { .. })) { LOSS_WINDOW } else { MINIMUM_WINDOW }
}

/// When the controller last reacted to congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    since: Option<Time>,
}

impl Recovery {
    /// Enters a recovery period at `now` if `feedback` reports a loss or a mark that the last
    /// reduction has not answered; whether it does.
    #[inline]
    pub fn enter(&mut self, now: Time, feedback: &Feedback<'_>) -> bool {
        let lost = match feedback.tcp {
            None => feedback.lost.last().is_some_and(|lost| !self.covers(&lost.sent)),
            Some(
                TcpRecovery::Open { .. }
                | TcpRecovery::Ended { .. }
                | TcpRecovery::Jumped { .. }
                | TcpRecovery::Resting
                | TcpRecovery::Idle,
            ) => false,
            Some(TcpRecovery::FastRetransmit) => true,
            Some(TcpRecovery::Timeout { repeated, .. }) => !repeated,
        };
        let marked = feedback.ecn_marked_packets > 0 && feedback.acked.last().is_some_and(|sent| !self.covers(sent));
        if lost || marked {
            self.since = Some(now);
        }
        lost || marked
    }

    /// Whether `packet` left before the last reduction could have slowed it.
    #[inline]
    pub fn covers(&self, packet: &Sent) -> bool {
        self.since.is_some_and(|since| packet.at <= since)
    }

    /// Forgets the last reduction, so that the next loss is answered.
    pub fn reset(&mut self) {
        self.since = None;
    }
}
