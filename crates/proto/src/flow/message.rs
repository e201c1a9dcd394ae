//! What the ends of a flow send each other, as structs; [`wire`](super::wire) is their form in a
//! datagram.

use anabranch_control::flow::{LossCause, PeerId};

use super::wire::{Handshake, Label};
use super::{Ack, Data, Fault};

/// A packet of a flow. Simulated packets are copied often: fields lie so that little is lost
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMessage {
    /// The connection, as its sender numbers it.
    pub connection: u32,
    /// Which of the connection's receivers.
    pub receiver: u16,
    /// Of an ACK, the low end of its own number, for logs: it takes no room in a packet.
    pub ack_number: u16,
    /// What it says.
    pub body: FlowBody,
}

const _: () = assert!(size_of::<FlowMessage>() == 72, "packets are copied often: keep them small");

impl FlowMessage {
    /// Whose packet it is.
    pub fn label(&self) -> Label {
        Label { connection: self.connection, receiver: self.receiver }
    }
}

/// What a packet says. A tag of a whole word leaves no gap before the rest, which compilers copy
/// byte by byte, too narrow for the loads that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub enum FlowBody {
    /// Data.
    Data(Data),
    /// What a receiver has received.
    Ack(Ack),
    /// A connection's first packet.
    Syn(Handshake),
    /// The answer to it, which says the same.
    SynAck(Handshake),
    /// Something of no connection, which nobody answers.
    #[default]
    Datagram,
}

/// Bytes on the wire beside data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireSizes {
    /// Of a packet with data, beside the data.
    pub header: u32,
    /// Of an ACK and of a handshake's packet.
    pub control: u32,
}

/// What the ends of a flow tell of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowEvent {
    /// Every receiver has answered the connection's first packet. Data leaves with the next timer,
    /// which is due at once.
    Established,
    /// A packet was declared lost.
    Lost {
        /// To whom it went.
        to: PeerId,
        /// Its number.
        number: u64,
        /// How its loss was found.
        cause: LossCause,
    },
    /// The controller lets nothing leave any more.
    Stopped(Fault),
    /// Data has arrived.
    Received {
        /// Its connection.
        connection: u32,
        /// Data bytes of the packet.
        bytes: u32,
        /// Of those, bytes that had not arrived before.
        new_bytes: u64,
        /// Whether the stream is complete with them.
        completed: bool,
    },
    /// Data of an earlier connection has arrived; nobody wants it any more.
    Stale {
        /// Data bytes of the packet.
        bytes: u32,
    },
}
