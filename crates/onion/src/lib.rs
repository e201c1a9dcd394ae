//! MORE: an onion overlay in which every packet takes another path ([Raiber 2010] 3.1).
//!
//! A path has two halves: the sender chooses the first, the receiver the second. Relays keep no state
//! of a flow. What is here are machines and formats without IO; simulations and sockets drive the same.

pub mod session;
pub mod size;

/// What names a relay in the document of an epoch: its place in the list there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayIndex(pub u16);
