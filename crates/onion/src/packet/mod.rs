//! Packets: always 1400 bytes, whatever they carry.
//!
//! A path has two halves: the sender chooses the relays of the first, the receiver those of the second. Each half
//! is a packet of its own with the same form; what ends the first half begins the second with a reply block.
//!
//! # Format
//!
//! | bytes | what |
//! |---|---|
//! | 0..32 | slot of this relay: material. A set-up: an X25519 key, bit 255 set. Else: 0..8 a one-time id, 8..32 random, bit 255 clear |
//! | 32..44 | slot: tag over bytes 0..32 and 44..200 |
//! | 44..46 | slot: next, sealed: an index in the epoch's directory, 0xfffe to a client, 0xffff ends here |
//! | 46..48 | slot: wait, sealed, in eighths of a millisecond |
//! | 48..192 | three further slots, or random bytes, sealed |
//! | 192..200 | the same; behind the last slot stands the label of a local end |
//! | 200..216 | payload, permuted: 16 zeros |
//! | 216..1400 | payload, permuted: the body |
//!
//! Numbers are little-endian. A relay finds its keys by the material, compares the tag in constant time, XORs bytes
//! 44..200 with the first 156 bytes of its keystream, moves bytes 48..200 to the front and appends 48 bytes of
//! keystream, and permutes the payload. So a header looks the same at every place of a path, whose length nobody
//! reads: behind the last slot all is random or keystream.
//!
//! **Keys.** With sender's X25519 key E, one for each relay and set-up, and a relay's key R of this epoch:
//! K = BLAKE3-KDF(X25519 ‖ E ‖ R), 16 B. Packet i under K has the id AES_K(i, 0) and takes tag, payload and
//! stream keys from AES_K(i, 1..). The set-up is packet 0; 1 to k − 1 show ids. k ([`PacketsPerKey`]) is the
//! network's: a relay can tell of at most k packets that one user sent them.
//!
//! **Payload.** A sender inverts the permutation of each relay, last to first, so that the last one opens it. The
//! user of a block inverts one permutation, whose key is in the block; the block's maker inverts those of the relays
//! and permutes with the key that it gave away. Relays only ever permute, hash first (`crypto`'s `uiv.rs`): a changed
//! payload is random behind the next honest relay, and the 16 zeros of its end are gone.
//!
//! **Blocks** are 219 B ([`ReplyBlock::BYTES`](crate::reply::ReplyBlock::BYTES)): the index of the first relay (2),
//! a header (200), a payload key (16), the last byte of the epoch's number that the index is of (1). Five fit into a body.
//!
//! # Who calls what
//!
//! - A user keeps [`PathKeys`] (an epoch's keys at relays), seals bodies with [`PathKeys::seal`], and says by the
//!   [`Receipt`] what became of each packet; makes blocks and loops with [`MadeBlocks`](crate::reply::MadeBlocks),
//!   and opens with it what comes back.
//! - A relay is a [`Relay`](crate::relay::Relay), and its [`process`](crate::relay::Relay::process) says where a packet
//!   goes.
//! - Who answers keeps the other's blocks in [`HeldBlocks`](crate::reply::HeldBlocks) and seals with them. So does a
//!   mailbox, with the body that it got: bodies have one length.
//!
//! A packet over three relays to a service, and an answer by a block:
//!
//! ```
//! use anabranch_control::rng::Rng;
//! use anabranch_control::time::{Duration, Time};
//! use anabranch_onion::RelayIndex;
//! use anabranch_onion::crypto::{Cryptography, Real};
//! use anabranch_onion::packet::{Hop, Label, PacketsPerKey, PathKeys, body, body_mut};
//! use anabranch_onion::relay::{EpochKeys, Limits, Outcome, Relay};
//! use anabranch_onion::reply::{MadeBlocks, ReplyBlock};
//! use anabranch_onion::size::DATAGRAM;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (now, k) = (Time::ZERO, PacketsPerKey::STANDARD);
//! let mut rng = Rng::stream(1, "example"); // On a network: the operating system's.
//! let mut relays: Vec<Relay<Real>> = (0..3)
//!     .map(|own| {
//!         let secret = Real::secret(&[own as u8 + 1; 32]);
//!         let keys = EpochKeys { epoch: 0, secret, members: 3, own: Some(RelayIndex(own)) };
//!         Relay::new(k, Limits::simulated(k), keys, [7, 8])
//!     })
//!     .collect();
//! let hop = |relay: u16| Hop {
//!     relay: RelayIndex(relay),
//!     key: relays[usize::from(relay)].public_key(),
//!     wait: Duration::ZERO,
//! };
//! let (forth, back) = ([hop(0), hop(1), hop(2)], [hop(2), hop(1), hop(0)]);
//! let (service, client) = (Label(*b"the exit"), Label([42; 8]));
//!
//! // The client: a block for the answer, in a packet to the service at relay 2.
//! let mut keys = PathKeys::<Real>::new(k);
//! keys.begin_epoch(0, [RelayIndex(0)]);
//! let mut blocks = MadeBlocks::new(1_000);
//! let (id, block) = blocks.make(&mut keys, &back, client, now, &mut rng)?;
//! let mut datagram = [0; DATAGRAM];
//! body_mut(&mut datagram)[..ReplyBlock::BYTES].copy_from_slice(&block.to_bytes());
//! let receipt = keys.seal(&forth, service, &mut rng, &mut datagram)?;
//!
//! // The relays.
//! let mut carry = |mut at: RelayIndex, datagram: &mut [u8; DATAGRAM]| loop {
//!     match relays[usize::from(at.0)].process(now, datagram) {
//!         Outcome::Forward { to, .. } => at = to,
//!         end => return end,
//!     }
//! };
//! assert_eq!(carry(RelayIndex(0), &mut datagram), Outcome::Deliver { label: service, wait: Duration::ZERO });
//!
//! // The service answers.
//! let block = body(&datagram).first_chunk().and_then(ReplyBlock::from_bytes).ok_or("no block")?;
//! body_mut(&mut datagram)[..6].copy_from_slice(b"answer");
//! let first = block.seal::<Real>(&mut datagram);
//! assert_eq!(carry(first, &mut datagram), Outcome::ToClient { label: client, wait: Duration::ZERO });
//!
//! // The client: the answer, by which block and over which relays.
//! let opened = blocks.open(&mut keys, &mut datagram).map_err(|error| format!("{error:?}"))?;
//! assert_eq!((&body(&datagram)[..6], opened.block), (&b"answer"[..], id));
//! assert_eq!(opened.relays, [RelayIndex(2), RelayIndex(1), RelayIndex(0)]);
//! keys.arrived(&receipt); // Its answer has come: the keys that it set up may be used again.
//! # Ok(())
//! # }
//! ```
mod header;
mod keys;
mod path;
#[cfg(test)]
mod pitfalls;
#[cfg(test)]
pub(crate) mod testing;

use core::fmt;
use core::num::NonZeroU16;

pub(crate) use header::{Material, material, name as header_name, strip, tag, tagged};
pub(crate) use keys::Part;
pub use keys::{AHEAD, AHEAD_AT_FIRST, Isolated, Isolation, PathKeys, Receipt};
pub use path::{Half, Hop, PathError, Position};

use crate::RelayIndex;
use crate::size::{DATAGRAM, LEAST_PAYLOAD, MOST_HEADER, MOST_HOPS};

/// Bytes in which a relay finds a set-up's ephemeral key or a one-time id.
pub const MATERIAL: usize = 32;
/// Bytes of a header's tag.
pub const TAG: usize = 12;
/// Bytes that say what a relay does next.
pub const ROUTING: usize = 4;
/// Bytes of a header that one relay reads.
pub const SLOT: usize = MATERIAL + TAG + ROUTING;
/// Bytes of a [`Label`], which follow the last slot.
pub const LABEL: usize = 8;
/// Bytes of a header.
pub const HEADER: usize = MOST_HOPS * SLOT + LABEL;
/// Bytes of a payload.
pub const PAYLOAD: usize = DATAGRAM - HEADER;
/// Bytes of a payload by which an end sees that nothing was changed: zeros.
pub const INTEGRITY: usize = 16;
/// Bytes of a payload that an application fills.
pub const BODY: usize = PAYLOAD - INTEGRITY;
/// Bytes of keystream that a relay takes: over its routing, over the rest, and what it appends.
pub const KEYSTREAM: usize = ROUTING + HEADER;
/// Bytes of a header that its tag covers: all but the tag.
pub const TAGGED: usize = HEADER - TAG;

const _: () = assert!(HEADER <= MOST_HEADER && BODY >= LEAST_PAYLOAD);

/// All that ever travels.
pub type Datagram = [u8; DATAGRAM];

/// Where a datagram's name begins as the client that made its path gets it: what the last relay appended.
pub(crate) const NAME: usize = HEADER - SLOT;

/// What an application has to say, or was sent.
pub fn body(datagram: &Datagram) -> &[u8; BODY] {
    datagram[HEADER + INTEGRITY..].try_into().expect("the rest of a datagram is its body")
}

/// Where an application writes what it has to say, before it is sealed.
pub fn body_mut(datagram: &mut Datagram) -> &mut [u8; BODY] {
    (&mut datagram[HEADER + INTEGRITY..]).try_into().expect("the rest of a datagram is its body")
}

pub(crate) fn parts(datagram: &mut Datagram) -> (&mut [u8; HEADER], &mut [u8; PAYLOAD]) {
    let (header, payload) = datagram.split_first_chunk_mut().expect("a datagram begins with its header");
    (header, payload.try_into().expect("the rest of a datagram is its payload"))
}

/// How many packets of a sender one relay may see under one key: the network's dial between speed and
/// what a relay can link. All senders of a network take the same, or theirs would stand out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketsPerKey(NonZeroU16);

impl PacketsPerKey {
    /// A new key for every packet and relay, as in Sphinx.
    pub const ONE: PacketsPerKey = PacketsPerKey(NonZeroU16::MIN);
    /// Where a set-up costs a quarter of what the rest does.
    pub const STANDARD: PacketsPerKey = PacketsPerKey(NonZeroU16::new(64).expect("64 is not zero"));

    /// None for zero.
    pub const fn new(packets: u16) -> Option<PacketsPerKey> {
        match NonZeroU16::new(packets) {
            Some(packets) => Some(PacketsPerKey(packets)),
            None => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }
}

/// What a path's last relay finds its local end by: a service of its own, a mailbox, a client's link.
/// Whoever is not to be reached by strangers has a random one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label(pub [u8; LABEL]);

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({:016x})", u64::from_be_bytes(self.0))
    }
}

/// What a relay does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// To another member.
    Relay(RelayIndex),
    /// To a client of this relay, who holds the keys of the payload.
    Client,
    /// The path's half ends here: the payload is open.
    Here,
}

/// The largest index that fits into a routing.
pub const LAST_INDEX: RelayIndex = RelayIndex(0xfffd);
const CLIENT: u16 = 0xfffe;
const HERE: u16 = 0xffff;

impl Next {
    fn code(self) -> u16 {
        match self {
            Next::Relay(RelayIndex(index)) => index,
            Next::Client => CLIENT,
            Next::Here => HERE,
        }
    }

    fn of(code: u16) -> Next {
        match code {
            HERE => Next::Here,
            CLIENT => Next::Client,
            index => Next::Relay(RelayIndex(index)),
        }
    }
}
