//! How a sender numbers the peers that it knows.

/// A peer as one sender numbers those it knows, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index into tables with an entry for each known peer.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}
