//! A flow's packets as bytes: what its sender and its receivers say to each other over UDP.
//!
//! Every packet begins with the same 8 bytes, and all but long ACKs have a header of 24:
//! behind the headers of IPv4 and UDP that makes 52, as much as TCP's with timestamps. Data
//! carries whole packet numbers and offsets; an ACK carries the low 32 bits of its largest
//! number and of its count of marks, which the sender completes (RFC 9000, 17.1 and A.3).
//! Integers are big-endian:
//!
//! ```text
//!  0  version, kind         1 byte   version in the high half (1); kind in the low half:
//!                                    1 data, 2 ACK, 3 SYN, 4 SYN-ACK, 5 close
//!  1  detail                1        data: 1 if the stream ends with it, and 2 if it is pushed, or
//!                                    the sum; ACK: ranges, 1 to 4; SYN, SYN-ACK: which attempt;
//!                                    close: 0
//!  2  receiver              2        which of the sender's receivers
//!  4  connection            4        chosen by the sender
//!
//!     data                           ACK                            SYN, SYN-ACK, close
//!  8  packet number         8        largest number, low half  4    nonce             16
//! 12                                 delay in ns               4
//! 16  offset                8        marks, low half           4
//! 20                                 first range               4
//! 24  data               rest        gap, range (4 + 4) for each further range
//! ```
//!
//! A range is reported as what it holds beside its last number, a gap as what it misses. A delay
//! beyond 32 bits (4.3 s) is reported as the longest that fits.

use std::fmt;

use anabranch_control::time::Duration;

use super::ranges::{MAX_ACK_RANGES, MAX_SPANS};
use super::{Ack, AckRanges, Data};

/// The version that this build speaks.
pub const VERSION: u8 = 1;

/// Bytes of every header but that of an ACK with several ranges.
pub const HEADER: usize = 24;

/// Bytes of the longest ACK.
pub const MAX_ACK: usize = HEADER + 8 * (MAX_ACK_RANGES - 1);

/// Bytes of the longest datagram: an IPv4 packet of 65535 B.
pub const MAX_DATAGRAM: usize = 65535 - 20 - 8;

/// Bytes before an ACK's first range.
const BEFORE_RANGES: usize = 20;

/// The details of data.
const FIN: u8 = 1;
const PUSH: u8 = 2;

const DATA: u8 = 1;
const ACK: u8 = 2;
const SYN: u8 = 3;
const SYN_ACK: u8 = 4;
const CLOSE: u8 = 5;

/// Whose packet it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The connection, as its sender numbers it.
    pub connection: u32,
    /// Which of the connection's receivers.
    pub receiver: u16,
}

/// What a sender proves itself by that it and its receiver alone have seen.
pub type Nonce = [u8; 16];

/// A connection's first packet, or the answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// Which attempt, from 0; the answer repeats it, so that the round trip is unambiguous.
    pub attempt: u8,
    /// Drawn by the sender, repeated by the receiver.
    pub nonce: Nonce,
}

/// An ACK as it travels: without the high halves of its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShortAck {
    largest: u32,
    spans: [u32; MAX_SPANS],
    ranges: u8,
    delay: u32,
    ce_count: u32,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A packet with data, and the data.
    Data(Data, &'a [u8]),
    /// What a receiver has received.
    Ack(ShortAck),
    /// A connection's first packet.
    Syn(Handshake),
    /// The answer to it.
    SynAck(Handshake),
    /// The sender will send nothing more.
    Close(Nonce),
}

/// Why bytes are no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// It ends before its header does.
    Truncated,
    /// Another version, or something else altogether.
    Foreign,
    /// A field has a value that it can't have.
    Malformed(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "truncated"),
            DecodeError::Foreign => write!(f, "not a packet of version {VERSION}"),
            DecodeError::Malformed(what) => write!(f, "malformed: {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Reads a packet.
///
/// # Errors
///
/// When the bytes are none. What is read comes out the same when it is written again.
#[inline]
pub fn decode(bytes: &[u8]) -> Result<(Label, Body<'_>), DecodeError> {
    if bytes.len() > MAX_DATAGRAM {
        return Err(DecodeError::Malformed("longer than any datagram"));
    }
    let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(DecodeError::Truncated)?;
    let [first, detail, ..] = *header;
    if first >> 4 != VERSION {
        return Err(DecodeError::Foreign);
    }
    let label = Label { connection: u32_at(header, 4), receiver: u16::from_be_bytes([header[2], header[3]]) };
    let nonce = || *header.last_chunk::<16>().expect("the last 16 of 24 bytes");
    let alone = |body| if rest.is_empty() { Ok(body) } else { Err(DecodeError::Malformed("bytes behind the end")) };
    let body = match first & 0xf {
        DATA if detail <= FIN | PUSH => {
            let (number, offset, length) = (u64_at(header, 8), u64_at(header, 16), rest.len() as u32);
            Body::Data(Data { number, offset, length, fin: detail & FIN != 0, push: detail & PUSH != 0 }, rest)
        }
        DATA => return Err(DecodeError::Malformed("detail of data")),
        ACK => Body::Ack(ShortAck::decode(header, rest)?),
        SYN => alone(Body::Syn(Handshake { attempt: detail, nonce: nonce() }))?,
        SYN_ACK => alone(Body::SynAck(Handshake { attempt: detail, nonce: nonce() }))?,
        CLOSE if detail == 0 => alone(Body::Close(nonce()))?,
        CLOSE => return Err(DecodeError::Malformed("detail of close")),
        _ => return Err(DecodeError::Malformed("unknown kind")),
    };
    Ok((label, body))
}

/// The header of a packet with data; the data follows it.
#[inline]
pub fn data_header(label: Label, data: &Data) -> [u8; HEADER] {
    let detail = if data.fin { FIN } else { 0 } | if data.push { PUSH } else { 0 };
    let mut header = begin(label, DATA, detail);
    header[8..16].copy_from_slice(&data.number.to_be_bytes());
    header[16..24].copy_from_slice(&data.offset.to_be_bytes());
    header
}

/// An ACK.
#[derive(Clone, Copy, Debug)]
pub struct AckBytes {
    bytes: [u8; MAX_ACK],
    length: usize,
}

impl AckBytes {
    /// `ack` as bytes; one that acknowledges nothing has none.
    #[inline]
    pub fn new(label: Label, ack: &Ack) -> Option<AckBytes> {
        let largest = ack.ranges.largest()?;
        let spans = ack.ranges.spans();
        let mut bytes = [0; MAX_ACK];
        bytes[..HEADER].copy_from_slice(&begin(label, ACK, spans.len().div_ceil(2) as u8));
        let delay = u32::try_from(ack.delay.as_nanos()).unwrap_or(u32::MAX);
        bytes[8..12].copy_from_slice(&(largest as u32).to_be_bytes());
        bytes[12..16].copy_from_slice(&delay.to_be_bytes());
        bytes[16..20].copy_from_slice(&(ack.ce_count as u32).to_be_bytes());
        for (place, span) in bytes[BEFORE_RANGES..].chunks_exact_mut(4).zip(spans) {
            place.copy_from_slice(&span.to_be_bytes());
        }
        Some(AckBytes { bytes, length: BEFORE_RANGES + 4 * spans.len() })
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// A connection's first packet.
pub fn syn(label: Label, handshake: Handshake) -> [u8; HEADER] {
    with_nonce(begin(label, SYN, handshake.attempt), handshake.nonce)
}

/// The answer to a connection's first packet.
pub fn syn_ack(label: Label, handshake: Handshake) -> [u8; HEADER] {
    with_nonce(begin(label, SYN_ACK, handshake.attempt), handshake.nonce)
}

/// The end of a connection.
pub fn close(label: Label, nonce: Nonce) -> [u8; HEADER] {
    with_nonce(begin(label, CLOSE, 0), nonce)
}

fn with_nonce(mut header: [u8; HEADER], nonce: Nonce) -> [u8; HEADER] {
    header[8..].copy_from_slice(&nonce);
    header
}

#[inline]
fn begin(label: Label, kind: u8, detail: u8) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = VERSION << 4 | kind;
    header[1] = detail;
    header[2..4].copy_from_slice(&label.receiver.to_be_bytes());
    header[4..8].copy_from_slice(&label.connection.to_be_bytes());
    header
}

#[inline]
fn u32_at(header: &[u8; HEADER], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[inline]
fn u64_at(header: &[u8; HEADER], at: usize) -> u64 {
    u64::from(u32_at(header, at)) << 32 | u64::from(u32_at(header, at + 4))
}

impl ShortAck {
    #[inline]
    fn decode(header: &[u8; HEADER], rest: &[u8]) -> Result<ShortAck, DecodeError> {
        let ranges = usize::from(header[1]);
        if !(1..=MAX_ACK_RANGES).contains(&ranges) {
            return Err(DecodeError::Malformed("number of ranges"));
        }
        if rest.len() != 8 * (ranges - 1) {
            return Err(DecodeError::Malformed("length of an ACK"));
        }
        let mut spans = [0; MAX_SPANS];
        spans[0] = u32_at(header, BEFORE_RANGES);
        for (span, bytes) in spans[1..].iter_mut().zip(rest.chunks_exact(4)) {
            *span = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        if spans[1..].iter().step_by(2).take(ranges - 1).any(|&gap| gap == 0) {
            return Err(DecodeError::Malformed("a gap that misses nothing"));
        }
        let (largest, delay, ce_count) = (u32_at(header, 8), u32_at(header, 12), u32_at(header, 16));
        Ok(ShortAck { largest, spans, ranges: ranges as u8, delay, ce_count })
    }

    /// The whole ACK, for a sender whose next packet to be acknowledged is `expected` and
    /// that knows of `ce_count` marks.
    ///
    /// # Errors
    ///
    /// When its ranges go below 0.
    #[inline]
    pub fn complete(&self, expected: u64, ce_count: u64) -> Result<Ack, DecodeError> {
        let spans = self.spans.into_iter().take(2 * usize::from(self.ranges) - 1);
        let ranges = AckRanges::from_spans(nearest(expected, self.largest), spans)
            .ok_or(DecodeError::Malformed("ranges below 0"))?;
        let delay = Duration::from_nanos(u64::from(self.delay));
        Ok(Ack { ranges, delay, ce_count: nearest(ce_count, self.ce_count) })
    }
}

/// The number nearest to `expected` whose low half is `low` (RFC 9000, A.3).
#[inline]
fn nearest(expected: u64, low: u32) -> u64 {
    const WINDOW: u64 = 1 << 32;
    let candidate = expected & !(WINDOW - 1) | u64::from(low);
    if candidate.saturating_add(WINDOW / 2) <= expected {
        candidate.checked_add(WINDOW).unwrap_or(candidate)
    } else if candidate > expected.saturating_add(WINDOW / 2) {
        candidate.checked_sub(WINDOW).unwrap_or(candidate)
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn label() -> impl Strategy<Value = Label> {
        any::<(u32, u16)>().prop_map(|(connection, receiver)| Label { connection, receiver })
    }

    /// What is read, as bytes.
    fn encoded(label: Label, body: &Body<'_>) -> Vec<u8> {
        match body {
            Body::Data(data, bytes) => [&data_header(label, data)[..], bytes].concat(),
            // An ACK far enough from 0 has room for all its ranges.
            Body::Ack(short) => {
                let ack = short.complete(1 << 40, 1 << 40).expect("the ranges fit");
                AckBytes::new(label, &ack).expect("it has ranges").as_slice().to_vec()
            }
            Body::Syn(handshake) => syn(label, *handshake).to_vec(),
            Body::SynAck(handshake) => syn_ack(label, *handshake).to_vec(),
            Body::Close(nonce) => close(label, *nonce).to_vec(),
        }
    }

    proptest! {
        #[test]
        fn data_comes_out_as_it_went_in(
            label in label(), number: u64, offset: u64, fin: bool, push: bool,
            bytes in prop::collection::vec(any::<u8>(), 0..1500),
        ) {
            let data = Data { number, offset, length: bytes.len() as u32, fin, push };
            let datagram = [&data_header(label, &data)[..], &bytes].concat();
            prop_assert_eq!(decode(&datagram), Ok((label, Body::Data(data, &bytes))));
        }

        #[test]
        fn an_ack_comes_out_as_it_went_in_for_a_sender_near_it(
            label in label(), largest in any::<u64>(), spans in prop::collection::vec(1u32..1000, 0..4),
            delay: u32, ce_count: u64, ahead in -1_000_000i64..1_000_000,
        ) {
            let largest = largest.max(10_000);
            // A range of one number, then gaps and ranges of the spans' lengths.
            let mut ranges = vec![(largest, largest)];
            for &span in &spans[..spans.len().min(3)] {
                let high = ranges.last().unwrap().0 - 1 - u64::from(span);
                ranges.push((high - u64::from(span), high));
            }
            let delay = Duration::from_nanos(u64::from(delay));
            let ack = Ack { ranges: AckRanges::new(ranges.clone()), delay, ce_count };
            let bytes = AckBytes::new(label, &ack).unwrap();
            prop_assert_eq!(bytes.as_slice().len(), HEADER + 8 * (ranges.len() - 1));
            let (of, body) = decode(bytes.as_slice()).unwrap();
            let Body::Ack(short) = body else { panic!("{body:?}") };
            prop_assert_eq!(of, label);
            let expected = largest.saturating_add_signed(ahead);
            let known = ce_count.saturating_add_signed(ahead);
            prop_assert_eq!(short.complete(expected, known), Ok(ack));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_come_out_the_same(
            (first, detail) in (prop_oneof![0x10u8..0x18, any::<u8>()], prop_oneof![0u8..6, any::<u8>()]),
            rest in prop::collection::vec(any::<u8>(), 0..80), expected: u64,
        ) {
            let bytes = [&[first, detail][..], &rest].concat();
            if let Ok((label, body)) = decode(&bytes) {
                if let Body::Ack(short) = body {
                    let _ = short.complete(expected, expected);
                }
                prop_assert_eq!(encoded(label, &body), bytes);
            }
        }

        #[test]
        fn handshakes_and_ends_come_out_as_they_went_in(label in label(), attempt: u8, nonce: Nonce) {
            let handshake = Handshake { attempt, nonce };
            for (bytes, body) in [
                (syn(label, handshake), Body::Syn(handshake)),
                (syn_ack(label, handshake), Body::SynAck(handshake)),
                (close(label, nonce), Body::Close(nonce)),
            ] {
                prop_assert_eq!(decode(&bytes), Ok((label, body)));
            }
        }

        #[test]
        fn a_number_is_completed_from_any_within_half_the_window(number: u64, ahead in -(1i64 << 31)..(1 << 31)) {
            prop_assert_eq!(nearest(number.saturating_add_signed(ahead), number as u32), number);
        }
    }

    #[test]
    fn data_and_an_ack_of_one_range_have_24_bytes_of_header() {
        let data = data_header(Label::default(), &Data::default());
        let ack = Ack { ranges: AckRanges::new([(3, 9)]), delay: Duration::ZERO, ce_count: 0 };
        let ack = AckBytes::new(Label::default(), &ack).unwrap();
        assert_eq!((data.len(), ack.as_slice().len()), (24, 24));
        let most = AckRanges::new([(30, 40), (20, 21), (10, 11), (0, 1)]);
        let ack = Ack { ranges: most, delay: Duration::SECOND * 60, ce_count: u64::MAX };
        let ack = AckBytes::new(Label::default(), &ack).unwrap();
        assert_eq!(ack.as_slice().len(), MAX_ACK);
        assert!(
            AckBytes::new(Label::default(), &Ack { ranges: AckRanges::default(), delay: Duration::ZERO, ce_count: 0 })
                .is_none()
        );
    }

    #[test]
    fn each_kind_of_damage_has_its_name() {
        let good = data_header(Label::default(), &Data::default());
        let damaged = |place: usize, value: u8| {
            let mut bytes = good;
            bytes[place] = value;
            decode(&bytes).unwrap_err()
        };
        assert_eq!(decode(&good[..23]), Err(DecodeError::Truncated));
        assert_eq!(decode(&vec![0x11; MAX_DATAGRAM + 1]), Err(DecodeError::Malformed("longer than any datagram")));
        assert_eq!(damaged(0, 0x41), DecodeError::Foreign);
        assert_eq!(damaged(0, 0x16), DecodeError::Malformed("unknown kind"));
        assert_eq!(damaged(1, 4), DecodeError::Malformed("detail of data"));
        assert_eq!(damaged(0, 0x12), DecodeError::Malformed("number of ranges"));
        let ack = Ack { ranges: AckRanges::new([(30, 40), (20, 21)]), delay: Duration::ZERO, ce_count: 0 };
        let mut ack = AckBytes::new(Label::default(), &ack).unwrap().as_slice().to_vec();
        assert_eq!(decode(&ack[..30]), Err(DecodeError::Malformed("length of an ACK")));
        ack[24..28].fill(0);
        assert_eq!(decode(&ack), Err(DecodeError::Malformed("a gap that misses nothing")));
        let syn = [&syn(Label::default(), Handshake::default())[..], &[0]].concat();
        assert_eq!(decode(&syn), Err(DecodeError::Malformed("bytes behind the end")));
    }

    #[test]
    fn ranges_below_0_are_no_ack() {
        let ack = Ack { ranges: AckRanges::new([(1000, 2000)]), delay: Duration::ZERO, ce_count: 0 };
        let mut bytes = AckBytes::new(Label::default(), &ack).unwrap().as_slice().to_vec();
        bytes[20..24].copy_from_slice(&3000u32.to_be_bytes());
        let Ok((_, Body::Ack(short))) = decode(&bytes) else { panic!("its length is right") };
        assert_eq!(short.complete(2000, 0), Err(DecodeError::Malformed("ranges below 0")));
    }
}
