//! What links count.

/// What a link has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCount {
    /// Packets transmitted, those lost at the far end included.
    pub packets: u64,
    /// Bytes transmitted.
    pub bytes: u64,
    /// Packets dropped for want of room, or by the discipline.
    pub dropped: u64,
    /// Packets lost at the far end.
    pub lost: u64,
    /// Packets that the discipline marked.
    pub marked: u64,
}
