//! The few fields of an IPv4 header (RFC 791) that the emulator reads, and the one it
//! writes: a congestion-experienced mark (RFC 3168 section 5).

use std::net::Ipv4Addr;

use etherparse::Ipv4HeaderSlice;

/// The bits of the second byte that hold the ECN field, all ones when congestion was
/// experienced.
const ECN: u8 = 0b11;

/// What decides a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Who sent it.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
    /// Its length, header included, in bytes.
    pub length: usize,
    /// Whether a mark may take the place of a drop.
    pub ecn_capable: bool,
}

/// Why a packet is none that is carried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Of another version of IP than 4.
    OtherVersion,
    /// Its header is cut off, or contradicts its length.
    Malformed,
}

/// Reads a packet's header.
pub fn parse(packet: &[u8]) -> Result<Header, Unfit> {
    match packet.first() {
        None => return Err(Unfit::Malformed),
        Some(first) if first >> 4 != 4 => return Err(Unfit::OtherVersion),
        Some(_) => {}
    }
    let header = Ipv4HeaderSlice::from_slice(packet).map_err(|_| Unfit::Malformed)?;
    let length = usize::from(header.total_len());
    if length < header.slice().len() || length > packet.len() {
        return Err(Unfit::Malformed);
    }
    Ok(Header {
        source: header.source_addr(),
        destination: header.destination_addr(),
        length,
        ecn_capable: header.ecn().value() != 0,
    })
}

/// Marks a packet whose header [`parse`] has read and found ECN-capable.
pub fn mark(packet: &mut [u8]) {
    let before = u16::from_be_bytes([packet[0], packet[1]]);
    packet[1] |= ECN;
    let after = u16::from_be_bytes([packet[0], packet[1]]);
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    packet[10..12].copy_from_slice(&updated(checksum, before, after).to_be_bytes());
}

/// The checksum of a header one of whose words has changed (RFC 1624 equation 3):
///
/// HC' = ~(~HC + ~m + m')
fn updated(checksum: u16, before: u16, after: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use etherparse::{IpEcn, IpNumber, Ipv4Header};
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn packet(ecn: u8, identification: u16, payload: usize) -> Vec<u8> {
        let mut header =
            Ipv4Header::new(payload as u16, 64, IpNumber::UDP, [10, 1, 0, 1], [10, 2, 0, 1]).expect("it fits");
        header.ecn = IpEcn::try_new(ecn).expect("two bits");
        header.identification = identification;
        header.header_checksum = header.calc_header_checksum();
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(bytes.len() + payload, 7);
        bytes
    }

    #[test]
    fn a_header_is_read() {
        let header = parse(&packet(0b10, 1, 8)).expect("it is well formed");
        assert_eq!(header.source, Ipv4Addr::new(10, 1, 0, 1));
        assert_eq!(header.destination, Ipv4Addr::new(10, 2, 0, 1));
        assert_eq!((header.length, header.ecn_capable), (28, true));
        assert!(!parse(&packet(0, 1, 8)).expect("it is well formed").ecn_capable);
    }

    #[test]
    fn what_is_no_ipv4_packet_is_unfit() {
        assert_eq!(parse(&[]), Err(Unfit::Malformed));
        assert_eq!(parse(&[0x60; 60]), Err(Unfit::OtherVersion));
        let whole = packet(0, 1, 100);
        assert_eq!(parse(&whole[..19]), Err(Unfit::Malformed));
        assert_eq!(parse(&whole[..119]), Err(Unfit::Malformed));
        let mut short = whole.clone();
        short[3] = 19;
        assert_eq!(parse(&short), Err(Unfit::Malformed));
        let mut no_header = whole;
        no_header[0] = 0x44;
        assert_eq!(parse(&no_header), Err(Unfit::Malformed));
    }

    proptest! {
        #[test]
        fn a_mark_keeps_the_checksum_right(ecn in 1u8..4, identification in any::<u16>(), payload in 0usize..1400) {
            let mut bytes = packet(ecn, identification, payload);
            mark(&mut bytes);
            let header = Ipv4HeaderSlice::from_slice(&bytes).expect("it is well formed");
            prop_assert_eq!(header.ecn().value(), 3);
            prop_assert_eq!(header.header_checksum(), header.to_header().calc_header_checksum());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..100)) {
            if let Ok(header) = parse(&bytes) {
                prop_assert!(header.length <= bytes.len());
            }
        }
    }
}
