//! What a sender asks of its packets in flight and is answered, whoever keeps them.

use anabranch_control::flow::Lost;
use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;

/// Packets in flight to one receiver at most, whatever a controller allows.
pub const MAX_PACKETS_IN_FLIGHT: usize = 1 << 20;

/// Data of the stream that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub length: u32,
    pub fin: bool,
}

impl Piece {
    /// Nothing of the stream, and nowhere in it: the packet carries something else.
    pub const NONE: Piece = Piece { offset: u64::MAX, length: 0, fin: false };

    /// Whether nothing need be sent again when the packet is lost.
    #[inline]
    pub fn is_none(&self) -> bool {
        *self == Piece::NONE
    }
}

/// Packets that are declared lost at one instant.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// In the order in which they left.
    pub packets: Vec<Lost>,
    /// Their numbers.
    pub numbers: Vec<u64>,
}

impl Losses {
    #[inline]
    pub fn clear(&mut self) {
        self.packets.clear();
        self.numbers.clear();
    }
}

/// What an ACK said, beside the packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Answer {
    /// Whether it gave a round-trip sample.
    pub sampled: bool,
    /// What of the sample the receiver waited before it answered.
    pub ack_delay: Duration,
    pub acked_bytes: Bytes,
    /// Data that is no longer in flight.
    pub pipe_bytes: Bytes,
    /// Data that is in flight after all: a duplicate ACK had stood for its arrival.
    pub restored_bytes: Bytes,
    pub newly_marked: u64,
    /// Packets that had been declared lost.
    pub spurious_losses: u64,
}

/// An ACK that no honest receiver sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckError {
    /// It acknowledges nothing.
    Empty,
    /// It acknowledges a packet that was never sent.
    NeverSent {
        /// The packet.
        number: u64,
    },
    /// It comes from somebody whom we do not send to.
    Stranger,
}
