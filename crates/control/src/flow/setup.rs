//! What every flow controller is made from.

use crate::time::Time;
use crate::units::Bytes;

/// What a sender tells its controller at the start.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Data in a full packet: the maximum segment size.
    pub packet: Bytes,
    /// The window to begin with, where the controller does not say another one.
    pub initial_window: Bytes,
    /// When it begins.
    pub start: Time,
    /// Whether receivers that come and go share it, who are sent what there is, in spells.
    pub shared: bool,
}

impl Setup {
    /// RFC 6928's initial window: ten packets.
    pub const INITIAL_PACKETS: u64 = 10;

    /// For packets with `packet` data bytes, from `start`, with RFC 6928's initial window.
    pub fn new(packet: Bytes, start: Time) -> Setup {
        Setup { packet, initial_window: packet * Setup::INITIAL_PACKETS, start, shared: false }
    }

    /// The same, for a window that receivers share who come and go.
    pub fn shared(self) -> Setup {
        Setup { shared: true, ..self }
    }
}
