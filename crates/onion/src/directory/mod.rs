//! Who the relays are: one document for everybody, signed by a threshold of authorities.
//!
//! Each relay signs a [`Descriptor`] of itself and hands it to every authority over a session that
//! proves its address. Once an epoch the [`Authority`] machines exchange votes, merge them by one rule
//! and sign what comes out; again, while that lists nobody or not enough have signed the same. A user's [`View`] takes a [`Document`] with enough signatures, never an
//! older one and never two of one epoch, and always the whole: who knows but a part of the relays is
//! known by it.
//!
//! ```text
//! relay ── SignedDescriptor ──▶ authorities ── votes ──▶ merge ── signatures ──▶ SignedDocument ──▶ View
//! ```
//!
//! There is no resistance against one person running many relays beyond what the authorities and the
//! bounds below do: figures of what is hidden hold for a share c/n of bad relays, and no larger one.

pub mod authority;
pub mod ballot;
pub mod clock;
pub mod descriptor;
pub mod document;
mod hash;
pub mod keys;
mod known;
pub mod lock;
pub mod merge;
pub mod message;
pub mod network;
#[cfg(test)]
pub(crate) mod testing;
pub mod trust;
pub mod view;
pub mod vote;

pub use authority::{Authority, AuthorityConfig, AuthorityEvent, AuthorityState};
pub use ballot::Ballot;
pub use clock::{UnixTime, WallClock};
pub use descriptor::{
    Descriptor, DescriptorError, EpochKey, ExitPolicy, ExitRule, Family, Protocol, ServiceEntry, SignedDescriptor,
};
pub use document::{Document, DocumentError, Member, OtherTerms, SignedDocument, Terms};
pub use hash::DocumentHash;
pub use keys::{Context, PublicKey, SecretKey, Signature};
pub use message::Message;
pub use network::Network;
pub use trust::{Trust, TrustError};
pub use view::{Remembered, View, ViewError};
