//! What a window's growth counts: RFC 5681 3.1 leaves it open, and with a receiver that
//! answers each second packet the choice is a factor of two.

use serde::Deserialize;

use super::recovery::Recovery;
use super::{Feedback, TcpRecovery};
use crate::units::{Octets, WindowUnit};

/// What growth counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Counting {
    /// What is acknowledged (RFC 3465, RFC 9002, RFC 9438).
    #[default]
    Bytes,
    /// ACKs, each as one packet, however much it acknowledges (RFC 5681).
    Acks,
    /// By how much an ACK moves the point up to which all has arrived, as RFC 5681 (eq. 2) and RFC 3465 (2.1) have it
    /// where nothing is acknowledged selectively: what arrived behind a gap counts once the gap is filled. The same as
    /// bytes for senders that have no such point.
    Cumulative,
}

impl Counting {
    /// What, once acknowledged, lets the window grow: none while the newest of them left before the
    /// last reduction (RFC 6582; RFC 9002, 7.3.2), and none when the window was not used up.
    /// RFC 9002 looks at each packet; one feedback with some from before and some from after
    /// the reduction counts as a whole here. TCP's recovery says by itself when a window rests,
    /// and when it no longer does ([`TcpRecovery::Ended`]).
    #[inline]
    pub fn counted(self, feedback: &Feedback<'_>, recovery: &Recovery, packet: Octets) -> Octets {
        let is_covered = || feedback.acked.last().is_none_or(|newest| recovery.covers(newest));
        let rests = match feedback.tcp {
            None | Some(TcpRecovery::Open { .. } | TcpRecovery::Jumped { ended: false }) => is_covered(),
            Some(TcpRecovery::Ended { .. } | TcpRecovery::Jumped { ended: true }) => feedback.acked.is_empty(),
            Some(
                TcpRecovery::Resting | TcpRecovery::FastRetransmit | TcpRecovery::Timeout { .. } | TcpRecovery::Idle,
            ) => true,
        };
        if rests || feedback.app_limited {
            return Octets::ZERO;
        }
        match (self, feedback.tcp) {
            (Counting::Acks, _) | (Counting::Bytes, Some(TcpRecovery::Jumped { .. })) => packet,
            (Counting::Cumulative, Some(TcpRecovery::Open { advanced } | TcpRecovery::Ended { advanced })) => {
                advanced.into()
            }
            (Counting::Bytes | Counting::Cumulative, _) => feedback.acked_bytes.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Sent;
    use crate::flow::testing::{PACKET, feedback};
    use crate::time::{Duration, Time};

    #[test]
    fn what_arrived_behind_a_gap_counts_once_that_is_filled_where_the_cumulative_point_is_counted() {
        let acked = [Sent { at: Time::from_secs_f64(1.0), size: PACKET, ..Sent::default() }];
        let counted = |counting: Counting, tcp| {
            let feedback = Feedback { tcp, ..feedback(&acked, Duration::SECOND) };
            counting.counted(&feedback, &Recovery::default(), PACKET.into()) / Octets::from(PACKET)
        };
        let advanced = PACKET * 7;
        for tcp in [TcpRecovery::Open { advanced }, TcpRecovery::Ended { advanced }].map(Some) {
            assert_eq!(
                [Counting::Bytes, Counting::Acks, Counting::Cumulative].map(|it| counted(it, tcp)),
                [1.0, 1.0, 7.0]
            );
        }
        assert_eq!(counted(Counting::Cumulative, None), 1.0);
        assert_eq!(counted(Counting::Cumulative, Some(TcpRecovery::Resting)), 0.0);
    }
}
