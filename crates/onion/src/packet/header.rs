//! Headers: one slot a relay, nested.
//!
//! A relay checks the tag over the whole header, reads its slot, XORs the rest with its keystream, and moves
//! it to the front; what it appends is keystream too. So a header keeps its length, and each relay finds
//! its slot in front. Whoever makes one goes forward to learn what relays append, then backward to put
//! tags over it; what lies behind the last slot is random.

use anabranch_control::time::Duration;
use rand_core::Rng;

use super::{HEADER, KEYSTREAM, LABEL, Label, MATERIAL, NAME, Next, ROUTING, SLOT, TAG, TAGGED};
use crate::crypto::{Cryptography, PacketKeys};

/// The unit of waits.
const WAIT_UNIT: Duration = Duration::from_nanos(125_000);

/// The bit that marks a set-up: bit 255, which X25519 does not use.
const SET_UP: u8 = 0x80;

/// What one relay reads.
pub(crate) struct Layer<C: Cryptography> {
    /// What it finds the keys by.
    pub material: [u8; MATERIAL],
    /// The keys of this packet.
    pub keys: C::Packet,
    /// Where the packet goes then.
    pub next: Next,
    /// How long it waits before.
    pub wait: Duration,
}

/// The material of a set-up.
pub(crate) fn set_up(ephemeral: [u8; MATERIAL]) -> [u8; MATERIAL] {
    let mut material = ephemeral;
    material[MATERIAL - 1] |= SET_UP;
    material
}

/// The material of a packet under a key that was installed before, in the midst of `random` bytes.
pub(crate) fn cached(id: u64, random: [u8; MATERIAL]) -> [u8; MATERIAL] {
    let mut material = random;
    material[..8].copy_from_slice(&id.to_le_bytes());
    material[MATERIAL - 1] &= !SET_UP;
    material
}

/// What a relay finds in front of a header.
pub(crate) enum Material {
    SetUp([u8; MATERIAL]),
    Cached(u64),
}

pub(crate) fn material(header: &[u8; HEADER]) -> Material {
    let (bytes, _) = header.split_first_chunk::<MATERIAL>().expect("a header is longer than its material");
    if bytes[MATERIAL - 1] & SET_UP != 0 {
        let mut ephemeral = *bytes;
        ephemeral[MATERIAL - 1] &= !SET_UP;
        return Material::SetUp(ephemeral);
    }
    let (id, _) = bytes.split_first_chunk().expect("an id is shorter than the material");
    Material::Cached(u64::from_le_bytes(*id))
}

/// What the tag covers: all of the header but the tag.
pub(crate) fn tagged(header: &[u8; HEADER]) -> [u8; TAGGED] {
    let mut tagged = [0; TAGGED];
    tagged[..MATERIAL].copy_from_slice(&header[..MATERIAL]);
    tagged[MATERIAL..].copy_from_slice(&header[MATERIAL + TAG..]);
    tagged
}

/// The tag that a header bears.
pub(crate) fn tag(header: &[u8; HEADER]) -> &[u8] {
    &header[MATERIAL..MATERIAL + TAG]
}

/// Where a packet goes, and after which wait.
fn routing(next: Next, wait: Duration) -> [u8; ROUTING] {
    let units = u16::try_from(wait.as_nanos() / WAIT_UNIT.as_nanos()).unwrap_or(u16::MAX);
    let mut routing = [0; ROUTING];
    routing[..2].copy_from_slice(&next.code().to_le_bytes());
    routing[2..].copy_from_slice(&units.to_le_bytes());
    routing
}

/// Takes the front slot off: where the packet goes, and after which wait. What is left is the header that
/// the next one finds, or, at the last, one that begins with its [`Label`].
pub(crate) fn strip(header: &mut [u8; HEADER], stream: &[u8; KEYSTREAM]) -> (Next, Duration) {
    let word = |place: usize| {
        let at = MATERIAL + TAG + place;
        u16::from_le_bytes([header[at] ^ stream[place], header[at + 1] ^ stream[place + 1]])
    };
    let (next, units) = (Next::of(word(0)), word(2));
    header.copy_within(SLOT.., 0);
    header[HEADER - SLOT..].fill(0);
    header.iter_mut().zip(&stream[ROUTING..]).for_each(|(byte, stream)| *byte ^= stream);
    (next, WAIT_UNIT * u64::from(units))
}

/// Writes the header of a path with at most [`MOST_HOPS`](crate::size::MOST_HOPS) relays; the name by which
/// whoever gets the packet from the last of them finds what it knows of it.
pub(crate) fn build<C: Cryptography>(
    layers: &[Layer<C>],
    label: Label,
    rng: &mut impl Rng,
    header: &mut [u8; HEADER],
) -> u64 {
    // Forward: what relays append, as it lies behind the last slot in the end.
    header.fill(0);
    for layer in layers {
        header.copy_within(SLOT.., 0);
        header[HEADER - SLOT..].fill(0);
        header.iter_mut().zip(&layer.keys.keystream()[ROUTING..]).for_each(|(byte, stream)| *byte ^= stream);
    }
    let open = HEADER - SLOT * layers.len();
    header[..LABEL].copy_from_slice(&label.0);
    rng.fill_bytes(&mut header[LABEL..open]);
    let name = name(header);
    // Backward: each slot before what its relay is to find behind it.
    for layer in layers.iter().rev() {
        let stream = layer.keys.keystream();
        header.copy_within(..HEADER - SLOT, SLOT);
        header[SLOT..].iter_mut().zip(&stream[ROUTING..]).for_each(|(byte, stream)| *byte ^= stream);
        header[..MATERIAL].copy_from_slice(&layer.material);
        let routing = routing(layer.next, layer.wait);
        for (place, byte) in routing.iter().enumerate() {
            header[MATERIAL + TAG + place] = byte ^ stream[place];
        }
        let tag = layer.keys.tag(&tagged(header));
        header[MATERIAL..MATERIAL + TAG].copy_from_slice(&tag);
    }
    name
}

/// The name of a packet that the last relay has passed on.
pub(crate) fn name(header: &[u8; HEADER]) -> u64 {
    let (name, _) = header[NAME..].split_first_chunk().expect("a slot is longer than a name");
    u64::from_le_bytes(*name)
}
