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
            None | Some(TcpRecovery::Open | TcpRecovery::Jumped { ended: false }) => is_covered(),
            Some(TcpRecovery::Ended | TcpRecovery::Jumped { ended: true }) => feedback.acked.is_empty(),
            Some(
                TcpRecovery::Resting | TcpRecovery::FastRetransmit | TcpRecovery::Timeout { .. } | TcpRecovery::Idle,
            ) => true,
        };
        if rests || feedback.app_limited {
            return Octets::ZERO;
        }
        match self {
            Counting::Bytes if matches!(feedback.tcp, Some(TcpRecovery::Jumped { .. })) => packet,
            Counting::Bytes => feedback.acked_bytes.into(),
            Counting::Acks => packet,
        }
    }
}
