//! What is settled before a flow's first packet.

use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;

use super::AckForm;

/// How a sender sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderConfig {
    /// Data in a full packet.
    pub packet: Bytes,
    /// The longest that its receivers wait before they answer.
    pub max_ack_delay: Duration,
    /// Spread a window over the round trip where the controller sets no rate.
    pub paced: bool,
    /// Let queues mark packets in place of dropping them.
    pub ecn: bool,
    /// How losses are found and repaired.
    pub recovery: LossRecovery,
    /// What TCP's recoveries leave open; of no other.
    pub tcp: TcpOptions,
}

/// What TCP's recoveries leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    /// The least retransmission timeout: a second (RFC 6298, 2.4). Linux, ns-2 and others take less.
    pub least_timeout: Duration,
    /// Whether the window falls to the first one where nothing was in flight for a retransmission timeout (RFC 5681,
    /// 4.1). The threshold of slow start stays.
    pub restart_after_idle: bool,
    /// How what is in flight comes down to the reduced window. With selective ACKs and one receiver alone; without
    /// those it is RFC 6582's way, and what receivers share falls at once.
    pub reduction: Reduction,
    /// What an ACK sends that leaves a gap in a recovery. With selective ACKs alone, as before.
    pub partial_ack: PartialAck,
}

impl TcpOptions {
    /// The letter of the RFCs, and without restarts, as classic simulators measure bulk transfers.
    pub const RFC: TcpOptions = TcpOptions {
        least_timeout: Duration::SECOND,
        restart_after_idle: false,
        reduction: Reduction::Rfc6675,
        partial_ack: PartialAck::Rfc6582,
    };

    /// What `recovery` stands for: under [`LossRecovery::Rfc6675`] ns-3's reading, else [`TcpOptions::RFC`].
    pub fn under(recovery: LossRecovery) -> TcpOptions {
        match recovery {
            LossRecovery::Rfc6675 => {
                TcpOptions { reduction: Reduction::Ns3, partial_ack: PartialAck::NextSeg, ..TcpOptions::RFC }
            }
            LossRecovery::Rack | LossRecovery::Rfc6582 => TcpOptions::RFC,
        }
    }
}

impl Default for TcpOptions {
    /// [`TcpOptions::RFC`].
    fn default() -> TcpOptions {
        TcpOptions::RFC
    }
}

/// How what is in flight comes down to the reduced window in a fast recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// The window is reduced at once: nothing leaves until that much is no longer in flight (RFC 6675, 5, step 4.2).
    #[default]
    Rfc6675,
    /// In proportion to what arrives: proportional rate reduction, with its slow start below the reduced window
    /// (RFC 6937).
    Rfc6937,
    /// As ns-3.44 reads that: about a window leaves in the first round trip.
    Ns3,
}

impl Reduction {
    /// All, by the names that scenarios give them.
    pub const ALL: [(&'static str, Reduction); 3] =
        [("rfc6675", Reduction::Rfc6675), ("rfc6937", Reduction::Rfc6937), ("ns-3", Reduction::Ns3)];

    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            Reduction::Rfc6675 => "rfc6675",
            Reduction::Rfc6937 => "rfc6937",
            Reduction::Ns3 => "ns-3",
        }
    }
}

/// What leaves whatever the window says upon an ACK in a fast recovery that moves the cumulative point to the next gap,
/// which was not sent again yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartialAck {
    /// The first segment of that gap, which is lost (RFC 6582, 3.2, step 3).
    #[default]
    Rfc6582,
    /// What NextSeg names (RFC 6675, 4): a segment that is known to be lost, by three behind it, or a new one; as ns-3
    /// has it. The gap waits until it is known to be lost.
    NextSeg,
}

impl PartialAck {
    /// All, by the names that scenarios give them.
    pub const ALL: [(&'static str, PartialAck); 2] =
        [("rfc6582", PartialAck::Rfc6582), ("next-seg", PartialAck::NextSeg)];

    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            PartialAck::Rfc6582 => "rfc6582",
            PartialAck::NextSeg => "next-seg",
        }
    }
}

/// How losses are found and repaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossRecovery {
    /// As QUIC does (RFC 9002), which is near to a TCP with RACK-TLP and timestamps (RFC 8985):
    /// each transmission has a number of its own, thresholds adapt to reordering, probes find
    /// lost tails.
    #[default]
    Rack,
    /// As TCP did before, and as classic simulators do: selective ACKs (RFC 6675) and a
    /// retransmission timer of a second at least (RFC 6298). Receivers must answer in the
    /// form [`Sack`](super::AckForm::Sack).
    Rfc6675,
    /// As TCP does without selective ACKs: NewReno (RFC 6582), one retransmission a round trip, with the same timer.
    /// Receivers must answer in the form [`Cumulative`](super::AckForm::Cumulative).
    Rfc6582,
}

impl LossRecovery {
    /// All, by the names that scenarios give them.
    pub const ALL: [(&'static str, LossRecovery); 3] =
        [("rack", LossRecovery::Rack), ("rfc6675", LossRecovery::Rfc6675), ("rfc6582", LossRecovery::Rfc6582)];

    /// Whether it is TCP's, which numbers data and not packets, with a retransmission timer.
    #[inline]
    pub fn is_tcp(self) -> bool {
        self != LossRecovery::Rack
    }

    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            LossRecovery::Rack => "rack",
            LossRecovery::Rfc6675 => "rfc6675",
            LossRecovery::Rfc6582 => "rfc6582",
        }
    }

    /// What receivers must answer in.
    pub fn ack_form(self) -> AckForm {
        match self {
            LossRecovery::Rack => AckForm::Ranges,
            LossRecovery::Rfc6675 => AckForm::Sack,
            LossRecovery::Rfc6582 => AckForm::Cumulative,
        }
    }
}
