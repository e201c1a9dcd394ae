//! What machines of a stream need to know of its bytes, and who vouches for them.

use core::fmt::Debug;

use anabranch_control::time::Duration;

use super::packet::{PacketId, Stamp};
use crate::session::PeerKey;

/// One run of a server, which numbers its packets and its viewers from the beginning. What its key has signed for another
/// run says nothing in this one, and viewers of this one have no use for what is there of another. Drawn at random where
/// strangers listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Broadcast(pub u64);

/// The bytes of a stream and its signatures, or what stands for them in a simulation, where a
/// packet knows by itself whether it is genuine.
pub trait Content: Clone + Debug + PartialEq + Eq + 'static {
    /// The bytes of a packet; cheap to clone.
    type Packet: Clone + Debug + PartialEq + Eq;
    /// Hashes of the packets of a generation, and the source's signature; cheap to clone.
    type Proofs: Clone + Debug + PartialEq + Eq;
    /// The source's signature of a [`Ticket`].
    type Signature: Clone + Debug + PartialEq + Eq;

    /// By which the source signs.
    type Secret: Clone + Debug;

    /// The public key of `secret`.
    fn public(secret: &Self::Secret) -> PeerKey;

    /// Proofs of the packets of a generation of `broadcast`, the first of which is `first`.
    fn prove(
        secret: &Self::Secret,
        broadcast: Broadcast,
        generation: u32,
        first: PacketId,
        packets: &[(Stamp, Self::Packet)],
    ) -> Self::Proofs;

    /// Signs that `client` of `broadcast` has `key`, until `expires`.
    fn sign_ticket(
        secret: &Self::Secret,
        broadcast: Broadcast,
        client: ClientId,
        key: &PeerKey,
        expires: Stamp,
    ) -> Self::Signature;

    /// Bytes of a packet.
    fn packet_length(packet: &Self::Packet) -> usize;

    /// Bytes of the proofs of a generation on the wire.
    fn proofs_length(proofs: &Self::Proofs) -> usize;

    /// Bytes of a signature on the wire.
    const SIGNATURE_LENGTH: usize;

    /// Whether `manifest` is signed with `source`, the stream's key, for `broadcast`.
    fn is_signed(source: &PeerKey, broadcast: Broadcast, manifest: &Manifest<Self>) -> bool;

    /// Whether a packet is the one that `manifest`, which covers `id`, tells of.
    fn is_genuine(manifest: &Manifest<Self>, id: PacketId, stamp: Stamp, packet: &Self::Packet) -> bool;

    /// Whether `ticket` is signed with `source` for `broadcast`.
    fn is_ticket(source: &PeerKey, broadcast: Broadcast, ticket: &Ticket<Self>) -> bool;
}

/// What the source vouches for together: by it, anybody tells the packets of a generation from
/// others, before passing them on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest<C: Content> {
    /// Its number, one more than that of the one before.
    pub generation: u32,
    /// The first of its packets.
    pub first: PacketId,
    /// How many packets it has; at most [`MAX_GENERATION`].
    pub packets: u16,
    /// Hashes and signature.
    pub proofs: C::Proofs,
}

/// The most packets of a generation: with a hash of 16 bytes each, its manifest fits a datagram.
pub const MAX_GENERATION: u16 = 64;

/// Bytes of a manifest on the wire, without its proofs: generation 4, first 8, packets 2.
pub(super) const MANIFEST_HEADER: usize = 4 + 8 + 2;

/// Bytes of a packet's hash in its manifest.
pub const HASH: usize = 16;

/// Bytes of a signature: Ed25519's.
pub const SIGNATURE: usize = 64;

impl<C: Content> Manifest<C> {
    /// Whether `id` is one of its packets.
    #[inline]
    pub fn covers(&self, id: PacketId) -> bool {
        id >= self.first && id.since(self.first) < u64::from(self.packets)
    }

    /// The first packet of the generation after it.
    pub fn end(&self) -> PacketId {
        self.first.after(u64::from(self.packets))
    }

    /// Bytes on the wire.
    pub fn wire_length(&self) -> usize {
        MANIFEST_HEADER + C::proofs_length(&self.proofs)
    }
}

/// A client, as the tracker numbers it; never used again for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u32);

/// How long a ticket is good; a new one is given when half of the time is over.
pub(super) const TICKET_LIFE: Duration = Duration::from_millis(60_000);

/// The source's word that somebody is one of its clients, which clients show each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<C: Content> {
    /// Who.
    pub client: ClientId,
    /// The key that it proves to have.
    pub key: PeerKey,
    /// Until when, by the stream's time.
    pub expires: Stamp,
    /// The source's signature of all this.
    pub signature: C::Signature,
}

impl<C: Content> Ticket<C> {
    /// Bytes on the wire: client 4, key 32, end 4, signature.
    pub const LENGTH: usize = 4 + 32 + 4 + C::SIGNATURE_LENGTH;

    /// Whether it is good at `time`. Stamps wrap, so one that ended weeks ago seems to end in weeks to come; viewers only
    /// estimate the source's time, so two lives ahead are allowed.
    pub(super) fn is_good_at(&self, time: Stamp) -> bool {
        !self.expires.is_before(time) && !time.after(TICKET_LIFE * 2).is_before(self.expires)
    }
}
