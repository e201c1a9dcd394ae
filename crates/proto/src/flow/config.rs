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
}

impl LossRecovery {
    /// All, by the names that scenarios give them.
    pub const ALL: [(&'static str, LossRecovery); 2] =
        [("rack", LossRecovery::Rack), ("rfc6675", LossRecovery::Rfc6675)];

    /// Its name in a scenario.
    pub fn name(self) -> &'static str {
        match self {
            LossRecovery::Rack => "rack",
            LossRecovery::Rfc6675 => "rfc6675",
        }
    }

    /// What receivers must answer in.
    pub fn ack_form(self) -> AckForm {
        match self {
            LossRecovery::Rack => AckForm::Ranges,
            LossRecovery::Rfc6675 => AckForm::Sack,
        }
    }
}
