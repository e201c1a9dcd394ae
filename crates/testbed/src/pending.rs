//! What an application has handed over to a stack that is not ours.

use anabranch_control::flow::PeerId;
use anabranch_lab::flows::traffic::Outlet;

/// What waits to be written.
#[derive(Debug, Default)]
pub struct Pending {
    /// Bytes; `u64::MAX` never end.
    pub bytes: u64,
    /// Whether the stream ends with them.
    pub last: bool,
}

impl Pending {
    /// This many of them were written.
    pub fn took(&mut self, bytes: u64) {
        if self.bytes != u64::MAX {
            self.bytes -= bytes;
        }
    }
}

impl Outlet for Pending {
    fn write(&mut self, _: PeerId, bytes: u64, last: bool) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.last = last;
    }

    fn unsent(&self) -> u64 {
        self.bytes
    }
}
