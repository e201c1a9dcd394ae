//! What a run tells a recorder, packet by packet.

use core::fmt::Debug;

use anabranch_control::flow::{LossCause, PeerId};
use anabranch_control::time::Time;
use anabranch_proto::flow::{Ack, Data, Metrics};

/// Records each event of a run, in the order of their times.
pub trait Recorder: Debug {
    /// Something happened to a flow.
    fn on_flow(&mut self, event: &FlowEvent<'_>);

    /// Something happened to a source of cross traffic.
    fn on_cross(&mut self, event: &CrossEvent) {
        let _ = event;
    }

    /// Whether nothing can be recorded any more: the run need not go on.
    fn has_failed(&self) -> bool {
        false
    }
}

/// An event of a flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowEvent<'a> {
    /// When.
    pub at: Time,
    /// The flow's place in the scenario.
    pub flow: usize,
    /// The connection's number in its flow, from 0.
    pub connection: u32,
    /// The receiver that it is about.
    pub peer: PeerId,
    /// What happened.
    pub what: What<'a>,
}

/// What happened to a flow.
#[derive(Clone, Copy, Debug)]
pub enum What<'a> {
    /// A connection began; recorded once for each receiver.
    Opened,
    /// A connection ended; recorded once for each receiver.
    Closed,
    /// The sender sent data.
    DataSent {
        /// The data.
        data: &'a Data,
        /// Bytes on the wire.
        size: u32,
    },
    /// A receiver got data.
    DataReceived {
        /// The data.
        data: &'a Data,
        /// Bytes on the wire.
        size: u32,
        /// Whether its packet bears a congestion-experienced mark.
        marked: bool,
    },
    /// A receiver answered.
    AckSent {
        /// The ACK's own number, from 0 for each receiver and connection.
        number: u64,
        /// What it says.
        ack: &'a Ack,
        /// Bytes on the wire.
        size: u32,
        /// What the receiver had of the stream.
        stream: Stream<'a>,
    },
    /// The sender got an answer.
    AckReceived {
        /// The ACK's own number. Right as long as no ACK is overtaken by 65536 others.
        number: u64,
        /// What it says.
        ack: &'a Ack,
        /// Bytes on the wire.
        size: u32,
    },
    /// The sender declared a packet lost.
    Lost {
        /// Its number.
        number: u64,
        /// How it was found.
        cause: LossCause,
    },
    /// Where the sender stands after it has acted; perhaps where it stood before.
    Metrics(Metrics),
}

/// What has arrived of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream<'a> {
    /// All before this offset.
    pub contiguous: u64,
    /// Whether that is all there is.
    pub complete: bool,
    /// What has arrived beyond: ascending, ends excluded, with gaps between.
    pub pieces: &'a [(u64, u64)],
}

/// An event of cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrossEvent {
    /// When.
    pub at: Time,
    /// The source's place in the scenario.
    pub source: usize,
    /// Bytes on the wire.
    pub size: u32,
    /// What happened to the packet.
    pub what: CrossWhat,
}

/// What happened to a packet of cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossWhat {
    /// It was sent.
    Sent,
    /// It arrived.
    Received {
        /// Whether it bears a congestion-experienced mark.
        marked: bool,
    },
}
