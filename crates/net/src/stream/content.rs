//! A stream's bytes, and what vouches for them: an Ed25519 signature (RFC 8032) for each generation's
//! manifest, which holds a BLAKE3 hash of each packet, cut to 16 bytes; and one for each ticket.
//!
//! ```text
//! hash of a packet    BLAKE3 in the context below, of id 8, stamp 4, bytes: the first 16 bytes
//! manifest's signed   context, broadcast 8, generation 4, first 8, packets 2, hashes
//! ticket's signed     context, broadcast 8, client 4, key 32, expires 4
//! ```
//!
//! To forge a packet is to find another preimage of its hash, which takes 2^128 tries; that only the source
//! itself finds two packets of one hash, with 2^64, harms nobody but it. What is signed begins with a context of
//! its own, so that no signature passes for one of another kind, and names the broadcast, so that nothing passes in
//! another run of the server, which numbers packets and viewers anew.

use std::sync::Arc;

use anabranch_proto::codec::{CodecError, Reader, Writer};
use anabranch_proto::session::PeerKey;
use anabranch_proto::stream::content::{Broadcast, ClientId, Content, HASH, Manifest, SIGNATURE, Ticket};
use anabranch_proto::stream::packet::{MAX_PACKET, PacketId, Stamp};
use anabranch_proto::stream::wire::WireContent;
use ring::signature::{ED25519, UnparsedPublicKey};

use crate::sessions::identity::PeerIdentity;

const PACKET_CONTEXT: &str = "anabranch stream 2 packet";
const MANIFEST_CONTEXT: &[u8] = b"anabranch stream 2 manifest\0";
const TICKET_CONTEXT: &[u8] = b"anabranch stream 2 ticket\0";

/// Content of streams on networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed;

/// What proves the packets of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proofs {
    hashes: Arc<[[u8; HASH]]>,
    signature: [u8; SIGNATURE],
}

fn hash(id: PacketId, stamp: Stamp, packet: &[u8]) -> [u8; HASH] {
    let mut hasher = blake3::Hasher::new_derive_key(PACKET_CONTEXT);
    hasher.update(&id.0.to_be_bytes()).update(&stamp.0.to_be_bytes()).update(packet);
    *hasher.finalize().as_bytes().first_chunk().expect("a hash has 32 bytes")
}

fn manifest_bytes(
    broadcast: Broadcast,
    generation: u32,
    first: PacketId,
    packets: u16,
    hashes: &[[u8; HASH]],
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MANIFEST_CONTEXT.len() + 22 + HASH * hashes.len());
    let mut writer = Writer::new(&mut bytes);
    writer.bytes(MANIFEST_CONTEXT);
    writer.u64(broadcast.0);
    writer.u32(generation);
    writer.u64(first.0);
    writer.u16(packets);
    writer.bytes(hashes.as_flattened());
    bytes
}

fn ticket_bytes(broadcast: Broadcast, client: ClientId, key: &PeerKey, expires: Stamp) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(TICKET_CONTEXT.len() + 48);
    let mut writer = Writer::new(&mut bytes);
    writer.bytes(TICKET_CONTEXT);
    writer.u64(broadcast.0);
    writer.u32(client.0);
    writer.bytes(&key.0);
    writer.u32(expires.0);
    bytes
}

fn is_signed_by(source: &PeerKey, message: &[u8], signature: &[u8; SIGNATURE]) -> bool {
    UnparsedPublicKey::new(&ED25519, source.0).verify(message, signature).is_ok()
}

impl Content for Signed {
    type Packet = Arc<[u8]>;
    type Proofs = Proofs;
    type Signature = [u8; SIGNATURE];
    type Secret = PeerIdentity;

    const SIGNATURE_LENGTH: usize = SIGNATURE;

    fn public(secret: &PeerIdentity) -> PeerKey {
        secret.public()
    }

    fn prove(
        secret: &PeerIdentity,
        broadcast: Broadcast,
        generation: u32,
        first: PacketId,
        packets: &[(Stamp, Arc<[u8]>)],
    ) -> Proofs {
        let of = |(number, (stamp, packet)): (u64, &(Stamp, Arc<[u8]>))| hash(first.after(number), *stamp, packet);
        let hashes: Arc<[[u8; HASH]]> = (0..).zip(packets).map(of).collect();
        let signature = secret.sign(&manifest_bytes(broadcast, generation, first, packets.len() as u16, &hashes));
        Proofs { hashes, signature }
    }

    fn sign_ticket(
        secret: &PeerIdentity,
        broadcast: Broadcast,
        client: ClientId,
        key: &PeerKey,
        expires: Stamp,
    ) -> [u8; SIGNATURE] {
        secret.sign(&ticket_bytes(broadcast, client, key, expires))
    }

    fn packet_length(packet: &Arc<[u8]>) -> usize {
        packet.len()
    }

    fn proofs_length(proofs: &Proofs) -> usize {
        SIGNATURE + HASH * proofs.hashes.len()
    }

    fn is_signed(source: &PeerKey, broadcast: Broadcast, manifest: &Manifest<Signed>) -> bool {
        let Manifest { generation, first, packets, proofs } = manifest;
        let bytes = || manifest_bytes(broadcast, *generation, *first, *packets, &proofs.hashes);
        usize::from(*packets) == proofs.hashes.len() && is_signed_by(source, &bytes(), &proofs.signature)
    }

    fn is_genuine(manifest: &Manifest<Signed>, id: PacketId, stamp: Stamp, packet: &Arc<[u8]>) -> bool {
        let place = id.since(manifest.first) as usize;
        id >= manifest.first && manifest.proofs.hashes.get(place) == Some(&hash(id, stamp, packet))
    }

    fn is_ticket(source: &PeerKey, broadcast: Broadcast, ticket: &Ticket<Signed>) -> bool {
        is_signed_by(source, &ticket_bytes(broadcast, ticket.client, &ticket.key, ticket.expires), &ticket.signature)
    }
}

impl WireContent for Signed {
    fn write_packet(packet: &Arc<[u8]>, writer: &mut Writer<'_>) {
        writer.bytes(packet);
    }

    fn read_packet(bytes: &[u8]) -> Result<Arc<[u8]>, CodecError> {
        if bytes.is_empty() || bytes.len() > MAX_PACKET { Err(CodecError::Value("packet")) } else { Ok(bytes.into()) }
    }

    fn write_proofs(proofs: &Proofs, writer: &mut Writer<'_>) {
        writer.bytes(proofs.hashes.as_flattened());
        writer.bytes(&proofs.signature);
    }

    fn read_proofs(packets: u16, reader: &mut Reader<'_>) -> Result<Proofs, CodecError> {
        let hashes = (0..packets).map(|_| reader.array()).collect::<Result<_, _>>()?;
        Ok(Proofs { hashes, signature: reader.array()? })
    }

    fn write_signature(signature: &[u8; SIGNATURE], writer: &mut Writer<'_>) {
        writer.bytes(signature);
    }

    fn read_signature(reader: &mut Reader<'_>) -> Result<[u8; SIGNATURE], CodecError> {
        reader.array()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROADCAST: Broadcast = Broadcast(5);

    fn secret(seed: u8) -> PeerIdentity {
        PeerIdentity::from_secret([seed; 32])
    }

    fn packets() -> Vec<(Stamp, Arc<[u8]>)> {
        (0..5).map(|number| (Stamp(number * 10), vec![number as u8; 188].into())).collect()
    }

    fn manifest() -> Manifest<Signed> {
        let (generation, first) = (7, PacketId(100));
        let proofs = Signed::prove(&secret(1), BROADCAST, generation, first, &packets());
        Manifest { generation, first, packets: 5, proofs }
    }

    #[test]
    fn a_manifest_vouches_for_its_packets_and_for_no_other() {
        let (manifest, source) = (manifest(), secret(1).public());
        assert!(Signed::is_signed(&source, BROADCAST, &manifest));
        for (id, (stamp, packet)) in (100..).map(PacketId).zip(packets()) {
            assert!(Signed::is_genuine(&manifest, id, stamp, &packet));
            assert!(!Signed::is_genuine(&manifest, id.after(1), stamp, &packet), "another place");
            assert!(!Signed::is_genuine(&manifest, id, Stamp(stamp.0 + 1), &packet), "another time");
            for changed in [&packet[1..], &[&packet[..], &[0]].concat(), &[&[packet[0] ^ 1], &packet[1..]].concat()] {
                assert!(!Signed::is_genuine(&manifest, id, stamp, &changed.into()), "other bytes");
            }
        }
        assert!(!Signed::is_genuine(&manifest, PacketId(0), Stamp(0), &packets()[0].1));
    }

    #[test]
    fn no_field_of_a_manifest_can_be_forged() {
        let (good, source) = (manifest(), secret(1).public());
        let mut hashes = good.proofs.hashes.to_vec();
        hashes.swap(0, 1);
        let swapped = Proofs { hashes: hashes.clone().into(), ..good.proofs.clone() };
        hashes.pop();
        let fewer = Proofs { hashes: hashes.into(), ..good.proofs.clone() };
        let others = Signed::prove(&secret(2), BROADCAST, 7, PacketId(100), &packets());
        let mut forged = vec![
            Manifest { generation: 8, ..good.clone() },
            Manifest { first: PacketId(101), ..good.clone() },
            Manifest { packets: 4, ..good.clone() },
            Manifest { packets: 4, proofs: fewer, ..good.clone() },
            Manifest { proofs: swapped, ..good.clone() },
            Manifest { proofs: others, ..good.clone() },
        ];
        for byte in 0..SIGNATURE {
            let mut manifest = good.clone();
            manifest.proofs.signature[byte] ^= 0x10;
            forged.push(manifest);
        }
        assert!(forged.iter().all(|manifest| !Signed::is_signed(&source, BROADCAST, manifest)));
        assert!(!Signed::is_signed(&source, Broadcast(6), &good), "another broadcast");
        assert!(!Signed::is_signed(&secret(2).public(), BROADCAST, &good), "another source");
        assert!(!Signed::is_signed(&PeerKey::default(), BROADCAST, &good), "no key at all");
    }

    #[test]
    fn no_field_of_a_ticket_can_be_forged_and_no_manifest_passes_for_one() {
        let (client, key, expires) = (ClientId(3), secret(9).public(), Stamp(60_000));
        let signature = Signed::sign_ticket(&secret(1), BROADCAST, client, &key, expires);
        let good = Ticket { client, key, expires, signature };
        let source = secret(1).public();
        assert!(Signed::is_ticket(&source, BROADCAST, &good));
        assert!(!Signed::is_ticket(&secret(2).public(), BROADCAST, &good), "another source");
        assert!(!Signed::is_ticket(&source, Broadcast(6), &good), "another broadcast");
        let mut forged = vec![
            Ticket { client: ClientId(4), ..good.clone() },
            Ticket { key: secret(8).public(), ..good.clone() },
            Ticket { expires: Stamp(60_001), ..good.clone() },
            Ticket { signature: manifest().proofs.signature, ..good.clone() },
        ];
        for byte in 0..SIGNATURE {
            let mut ticket = good.clone();
            ticket.signature[byte] ^= 0x10;
            forged.push(ticket);
        }
        assert!(forged.iter().all(|ticket| !Signed::is_ticket(&source, BROADCAST, ticket)));
    }

    #[test]
    fn what_is_written_is_read_and_as_long_as_it_says() {
        let proofs = manifest().proofs;
        let mut bytes = Vec::new();
        Signed::write_proofs(&proofs, &mut Writer::new(&mut bytes));
        assert_eq!(bytes.len(), Signed::proofs_length(&proofs));
        assert_eq!(Signed::read_proofs(5, &mut Reader::new(&bytes)), Ok(proofs));
        assert_eq!(Signed::read_proofs(6, &mut Reader::new(&bytes)), Err(CodecError::Short));
        assert!(Signed::read_packet(&[]).is_err() && Signed::read_packet(&[0; MAX_PACKET + 1]).is_err());
        assert!(Signed::read_packet(&[0; MAX_PACKET]).is_ok());
    }
}
