//! What is inside a cell: frames, then zeros up to the length that all cells have.
//!
//! A cell's plain text begins with the instant at which it left, in its sender's clock. A frame begins
//! with a byte for its kind; kind 0 ends them, and nothing but zeros follows. Every decoder here is
//! total: any bytes are frames or an error, and no count is believed beyond the bytes that are there.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_control::time::Time;
use anabranch_proto::codec::{CodecError, Reader, Writer};

/// Bytes of a datagram at most: what IPv4 and UDP leave of an Ethernet frame. QUIC asks for 1200 (RFC 9000 14), DNS
/// for 1232 (the flag day of 2020).
pub const MOST_DATAGRAM: usize = 1500 - 20 - 8;

/// Names a stream within its session: counted up from 0 by whoever opens streams, the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// Bytes of a host name at most (RFC 1035 2.3.4).
pub const MAX_HOST: usize = 255;

/// Cells before the newest that an [`Acked`] can speak of, the newest included.
pub const ACK_BITS: u64 = 256;

const ACK_BYTES: usize = ACK_BITS as usize / 8;

/// Arrivals in one frame at most.
pub const MAX_ARRIVALS: usize = 64;

/// Bytes of one reply block at most.
pub const MAX_BLOCK: usize = 1024;

/// Bytes before the bytes of a [`Frame::Data`].
pub const DATA_HEADER: usize = 1 + 4 + 8 + 2;

/// Bytes before the blocks of a [`Frame::Blocks`].
pub const BLOCKS_HEADER: usize = 1 + 1 + 2;

/// Bytes of what a plain text begins with.
pub const PLAIN_HEADER: usize = 8;

/// Bytes of the longest frame of those that are neither data, blocks nor arrivals.
pub const MAX_SMALL_FRAME: usize = 1 + 4 + 1 + 1 + MAX_HOST + 2;

/// What a stream leads to; a name is resolved at the other end, never here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Target {
    /// A host by name, and its port.
    Name(String, u16),
    /// A host by address, and its port.
    Address(IpAddr, u16),
    /// The other end itself: what a hidden receiver offers.
    Itself,
}

/// Why a stream ended before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Whoever used it wants no more of it.
    Stopped = 0,
    /// The exit's policy does not allow the target.
    Forbidden = 1,
    /// The target's name has no address.
    NameUnknown = 2,
    /// There is no way to the target's host.
    Unreachable = 3,
    /// The target's host refused the connection.
    Refused = 4,
    /// The target did not answer in time.
    TimedOut = 5,
    /// The exit has as many connections as it may have.
    Busy = 6,
    /// The connection to the target broke.
    Broken = 7,
}

impl Reason {
    const ALL: [Reason; 8] = [
        Reason::Stopped,
        Reason::Forbidden,
        Reason::NameUnknown,
        Reason::Unreachable,
        Reason::Refused,
        Reason::TimedOut,
        Reason::Busy,
        Reason::Broken,
    ];
}

/// Which of the newest cells have come: bit i of `bits`, lowest first, is cell `largest` − i.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acked {
    /// The highest number that has come.
    pub largest: u64,
    /// One bit for each of the [`ACK_BITS`] numbers up to it.
    pub bits: [u8; ACK_BYTES],
}

impl Acked {
    /// The numbers, highest first.
    #[cfg(test)]
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        (0..=self.largest).rev().take(ACK_BITS as usize).filter(|number| self.contains(*number))
    }

    /// Whether it says that cell `number` has come.
    pub fn contains(&self, number: u64) -> bool {
        let behind = self.largest.checked_sub(number).filter(|behind| *behind < ACK_BITS);
        behind.is_some_and(|i| self.bits[i as usize / 8] >> (i % 8) & 1 == 1)
    }
}

/// When a cell came, in the clock of whoever got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The cell's number.
    pub number: u64,
    /// To the microsecond.
    pub at: Time,
}

/// An ACK vector: arrivals, each relative to the least number and the earliest instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrivals<'a> {
    number: u64,
    micros: u64,
    entries: &'a [u8],
}

/// Bytes of one in a [`Frame::Arrivals`], and those before the first.
pub const ARRIVAL: usize = 2 + 4;

/// See [`ARRIVAL`].
pub const ARRIVALS_HEADER: usize = 1 + 8 + 8 + 1;

/// Bytes of a [`Frame::Acked`].
pub const ACKED_FRAME: usize = 1 + 8 + ACK_BYTES;

impl Arrivals<'_> {
    /// The arrivals. What a liar puts beyond the range of numbers or time stops at its end.
    pub fn iter(&self) -> impl Iterator<Item = Arrival> + '_ {
        self.entries.chunks_exact(ARRIVAL).map(|entry| {
            let number = u64::from(u16::from_be_bytes([entry[0], entry[1]]));
            let micros = u64::from(u32::from_be_bytes([entry[2], entry[3], entry[4], entry[5]]));
            Arrival {
                number: self.number.saturating_add(number),
                at: Time::from_nanos(self.micros.saturating_add(micros).saturating_mul(1000)),
            }
        })
    }
}

/// One of the things that cells carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// To be answered, and nothing else.
    Ping,
    /// The client wants a stream.
    Open {
        /// Its name.
        stream: StreamId,
        /// What it leads to.
        target: Target,
    },
    /// The client wants a flow of datagrams.
    OpenFlow {
        /// Its name, among those of streams.
        stream: StreamId,
        /// What it leads to.
        target: Target,
    },
    /// A piece of a datagram.
    Datagram {
        /// The flow.
        stream: StreamId,
        /// Counted up, with wrapping: pieces of one number are one datagram's.
        number: u32,
        /// Bytes of the datagram, up to [`MOST_DATAGRAM`].
        length: u16,
        /// Bytes of it before these.
        offset: u16,
        /// The bytes; none only of a datagram that has none.
        bytes: &'a [u8],
    },
    /// The stream or flow has reached what it leads to.
    Accepted {
        /// Its name.
        stream: StreamId,
    },
    /// Bytes of a stream.
    Data {
        /// Its name.
        stream: StreamId,
        /// Bytes of the stream before these.
        offset: u64,
        /// Whether nothing follows.
        is_end: bool,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Both directions of a stream end here.
    Reset {
        /// Its name.
        stream: StreamId,
        /// Why.
        reason: Reason,
        /// Bytes that its sender had sent, so that both ends count alike.
        end: u64,
    },
    /// So much of a stream may be sent.
    Credit {
        /// Its name.
        stream: StreamId,
        /// Bytes from the stream's beginning.
        limit: u64,
    },
    /// So much may be sent in all streams together.
    SessionCredit {
        /// Bytes from the session's beginning, summed over streams.
        limit: u64,
    },
    /// Which cells have come.
    Acked(Acked),
    /// When they came.
    Arrivals(Arrivals<'a>),
    /// Single-use reply blocks, all of one size.
    Blocks {
        /// Bytes of each, more than 0.
        size: usize,
        /// The blocks.
        bytes: &'a [u8],
    },
    /// How fast blocks may be used.
    Pace {
        /// Counted up, with wrapping: an older one is none.
        turn: u32,
        /// Cells a second, more than 0.
        cells_per_s: u32,
        /// Whether cells leave at that rate though there is nothing to say.
        pads: bool,
    },
    /// Blocks that came in earlier cells lead to where nobody is any more.
    Void {
        /// Those of cells below this number.
        before: u64,
    },
    /// The session is over.
    Close,
}

const PING: u8 = 1;
const OPEN: u8 = 2;
const ACCEPTED: u8 = 3;
const DATA: u8 = 4;
const RESET: u8 = 5;
const CREDIT: u8 = 6;
const SESSION_CREDIT: u8 = 7;
const ACKED: u8 = 8;
const ARRIVALS: u8 = 9;
const BLOCKS: u8 = 10;
const PACE: u8 = 11;
const CLOSE: u8 = 12;
const OPEN_FLOW: u8 = 13;
const DATAGRAM: u8 = 14;
const VOID: u8 = 15;

/// What padding is compared with, at once: most cells are padded.
const ZEROS: [u8; 1024] = [0; 1024];

const BY_NAME: u8 = 0;
const BY_IPV4: u8 = 1;
const BY_IPV6: u8 = 2;
const ITSELF: u8 = 3;

/// The highest bit of a data frame's length says whether the stream ends with it.
const END: u16 = 1 << 15;

impl Frame<'_> {
    /// Whether whoever gets it shall say soon that it has come.
    pub fn asks_for_ack(&self) -> bool {
        !matches!(self, Frame::Acked(_) | Frame::Arrivals(_) | Frame::Close)
    }

    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        match self {
            Frame::Ping => writer.u8(PING),
            Frame::Open { stream, target } => {
                writer.u8(OPEN);
                writer.u32(stream.0);
                write_target(target, &mut writer);
            }
            Frame::OpenFlow { stream, target } => {
                writer.u8(OPEN_FLOW);
                writer.u32(stream.0);
                write_target(target, &mut writer);
            }
            Frame::Datagram { stream, number, length, offset, bytes } => {
                writer.u8(DATAGRAM);
                writer.u32(stream.0);
                writer.u32(*number);
                writer.u16(*length);
                writer.u16(*offset);
                writer.u16(bytes.len() as u16);
                writer.bytes(bytes);
            }
            Frame::Accepted { stream } => {
                writer.u8(ACCEPTED);
                writer.u32(stream.0);
            }
            Frame::Data { stream, offset, is_end, bytes } => {
                writer.u8(DATA);
                writer.u32(stream.0);
                writer.u64(*offset);
                writer.u16(bytes.len() as u16 | if *is_end { END } else { 0 });
                writer.bytes(bytes);
            }
            Frame::Reset { stream, reason, end } => {
                writer.u8(RESET);
                writer.u32(stream.0);
                writer.u8(*reason as u8);
                writer.u64(*end);
            }
            Frame::Credit { stream, limit } => {
                writer.u8(CREDIT);
                writer.u32(stream.0);
                writer.u64(*limit);
            }
            Frame::SessionCredit { limit } => {
                writer.u8(SESSION_CREDIT);
                writer.u64(*limit);
            }
            Frame::Acked(Acked { largest, bits }) => {
                let length = bits.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
                writer.u8(ACKED);
                writer.u64(*largest);
                writer.u8(length as u8);
                writer.bytes(&bits[..length]);
            }
            Frame::Arrivals(Arrivals { number, micros, entries }) => {
                writer.u8(ARRIVALS);
                writer.u64(*number);
                writer.u64(*micros);
                writer.u8((entries.len() / ARRIVAL) as u8);
                writer.bytes(entries);
            }
            Frame::Blocks { size, bytes } => {
                writer.u8(BLOCKS);
                writer.u8((bytes.len() / size) as u8);
                writer.u16(*size as u16);
                writer.bytes(bytes);
            }
            Frame::Pace { turn, cells_per_s, pads } => {
                writer.u8(PACE);
                writer.u32(*turn);
                writer.u32(*cells_per_s);
                writer.u8(u8::from(*pads));
            }
            Frame::Void { before } => {
                writer.u8(VOID);
                writer.u64(*before);
            }
            Frame::Close => writer.u8(CLOSE),
        }
    }
}

/// Appends as many of `arrivals` as one frame takes and as fit `room` bytes; how many those are.
pub fn encode_arrivals(arrivals: &[Arrival], room: usize, out: &mut Vec<u8>) -> usize {
    let most = room.saturating_sub(ARRIVALS_HEADER) / ARRIVAL;
    let mut taken = &arrivals[..arrivals.len().min(most).min(MAX_ARRIVALS)];
    let micros = |arrival: &Arrival| arrival.at.as_nanos() / 1000;
    let (mut number, mut earliest);
    loop {
        let Some(least) = taken.iter().map(|arrival| arrival.number).min() else { return 0 };
        number = least;
        earliest = taken.iter().map(micros).min().unwrap_or(0);
        let fits = |arrival: &Arrival| {
            arrival.number - number <= u64::from(u16::MAX) && micros(arrival) - earliest <= u64::from(u32::MAX)
        };
        if taken.iter().all(fits) {
            break;
        }
        // Far apart: fewer of them are nearer.
        taken = &taken[..taken.len() / 2];
    }
    let mut writer = Writer::new(out);
    writer.u8(ARRIVALS);
    writer.u64(number);
    writer.u64(earliest);
    writer.u8(taken.len() as u8);
    for arrival in taken {
        writer.u16((arrival.number - number) as u16);
        writer.u32((micros(arrival) - earliest) as u32);
    }
    taken.len()
}

fn write_target(target: &Target, writer: &mut Writer<'_>) {
    match target {
        Target::Name(host, port) => {
            writer.u8(BY_NAME);
            writer.u8(host.len() as u8);
            writer.bytes(host.as_bytes());
            writer.u16(*port);
        }
        Target::Address(IpAddr::V4(address), port) => {
            writer.u8(BY_IPV4);
            writer.bytes(&address.octets());
            writer.u16(*port);
        }
        Target::Address(IpAddr::V6(address), port) => {
            writer.u8(BY_IPV6);
            writer.bytes(&address.octets());
            writer.u16(*port);
        }
        Target::Itself => writer.u8(ITSELF),
    }
}

/// Whether `host` is a name that could be resolved: printable ASCII without spaces, not too long.
pub fn is_host_name(host: &str) -> bool {
    (1..=MAX_HOST).contains(&host.len()) && host.bytes().all(|byte| byte.is_ascii_graphic())
}

fn read_target(reader: &mut Reader<'_>) -> Result<Target, CodecError> {
    const HOST: CodecError = CodecError::Value("host");
    Ok(match reader.u8()? {
        BY_NAME => {
            let length = usize::from(reader.u8()?);
            let host = str::from_utf8(reader.bytes(length)?).map_err(|_| HOST)?;
            if !is_host_name(host) {
                return Err(HOST);
            }
            Target::Name(host.to_owned(), reader.u16()?)
        }
        BY_IPV4 => Target::Address(Ipv4Addr::from(reader.array::<4>()?).into(), reader.u16()?),
        BY_IPV6 => Target::Address(Ipv6Addr::from(reader.array::<16>()?).into(), reader.u16()?),
        ITSELF => Target::Itself,
        _ => return Err(CodecError::Value("target")),
    })
}

/// The frames of a cell, after what its plain text begins with.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    is_over: bool,
}

/// When a cell left, in its sender's clock, and what it carries.
///
/// # Errors
///
/// When `plain` is too short for the former.
pub fn decode(plain: &[u8]) -> Result<(Time, Frames<'_>), CodecError> {
    let mut reader = Reader::new(plain);
    let left = Time::from_nanos(reader.u64()?);
    Ok((left, Frames { reader, is_over: false }))
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, CodecError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over || self.reader.left() == 0 {
            return None;
        }
        let frame = self.read().transpose();
        self.is_over = !matches!(frame, Some(Ok(_)));
        frame
    }
}

impl<'a> Frames<'a> {
    /// The next frame; nothing where the padding begins.
    fn read(&mut self) -> Result<Option<Frame<'a>>, CodecError> {
        let reader = &mut self.reader;
        Ok(Some(match reader.u8()? {
            0 => {
                let is_padding = reader.rest().chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()]);
                return if is_padding { Ok(None) } else { Err(CodecError::Value("padding")) };
            }
            PING => Frame::Ping,
            OPEN => Frame::Open { stream: StreamId(reader.u32()?), target: read_target(reader)? },
            OPEN_FLOW => Frame::OpenFlow { stream: StreamId(reader.u32()?), target: read_target(reader)? },
            DATAGRAM => {
                let (stream, number, length) = (StreamId(reader.u32()?), reader.u32()?, reader.u16()?);
                let (offset, count) = (reader.u16()?, reader.u16()?);
                let bytes = reader.bytes(usize::from(count))?;
                let lies_within = usize::from(offset) + bytes.len() <= usize::from(length);
                if !lies_within || usize::from(length) > MOST_DATAGRAM || (bytes.is_empty() && length > 0) {
                    return Err(CodecError::Value("datagram"));
                }
                Frame::Datagram { stream, number, length, offset, bytes }
            }
            ACCEPTED => Frame::Accepted { stream: StreamId(reader.u32()?) },
            DATA => {
                let (stream, offset, length) = (StreamId(reader.u32()?), reader.u64()?, reader.u16()?);
                let bytes = reader.bytes(usize::from(length & !END))?;
                if offset.checked_add(bytes.len() as u64).is_none() {
                    return Err(CodecError::Value("offset"));
                }
                Frame::Data { stream, offset, is_end: length & END != 0, bytes }
            }
            RESET => {
                let (stream, byte, end) = (StreamId(reader.u32()?), reader.u8()?, reader.u64()?);
                let reason = Reason::ALL.into_iter().find(|&reason| reason as u8 == byte);
                Frame::Reset { stream, reason: reason.ok_or(CodecError::Value("reason"))?, end }
            }
            CREDIT => Frame::Credit { stream: StreamId(reader.u32()?), limit: reader.u64()? },
            SESSION_CREDIT => Frame::SessionCredit { limit: reader.u64()? },
            ACKED => {
                let (largest, count) = (reader.u64()?, usize::from(reader.u8()?));
                let length = reader.count("acked", count, ACK_BYTES, 1)?;
                let mut bits = [0; ACK_BYTES];
                bits[..length].copy_from_slice(reader.bytes(length)?);
                // One way to say it: the newest has come, and no byte is there for nothing.
                if bits[0] & 1 == 0 || bits[length - 1] == 0 {
                    return Err(CodecError::Value("acked"));
                }
                Frame::Acked(Acked { largest, bits })
            }
            ARRIVALS => {
                let (number, micros, count) = (reader.u64()?, reader.u64()?, usize::from(reader.u8()?));
                let count = reader.count("arrivals", count, MAX_ARRIVALS, ARRIVAL)?;
                Frame::Arrivals(Arrivals { number, micros, entries: reader.bytes(count * ARRIVAL)? })
            }
            BLOCKS => {
                let (count, size) = (usize::from(reader.u8()?), usize::from(reader.u16()?));
                if count == 0 || !(1..=MAX_BLOCK).contains(&size) {
                    return Err(CodecError::Value("blocks"));
                }
                Frame::Blocks { size, bytes: reader.bytes(count * size)? }
            }
            PACE => {
                let (turn, cells_per_s, pads) = (reader.u32()?, reader.u32()?, reader.u8()?);
                if cells_per_s == 0 || pads > 1 {
                    return Err(CodecError::Value("pace"));
                }
                Frame::Pace { turn, cells_per_s, pads: pads == 1 }
            }
            VOID => Frame::Void { before: reader.u64()? },
            CLOSE => Frame::Close,
            _ => return Err(CodecError::Value("frame")),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target() -> impl Strategy<Value = Target> {
        prop_oneof![
            ("[!-~]{1,255}", any::<u16>()).prop_map(|(host, port)| Target::Name(host, port)),
            (any::<Ipv4Addr>(), any::<u16>()).prop_map(|(address, port)| Target::Address(address.into(), port)),
            (any::<Ipv6Addr>(), any::<u16>()).prop_map(|(address, port)| Target::Address(address.into(), port)),
            Just(Target::Itself),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            number: u32, limit: u64, turn: u32, target in target(), reason in 0usize..8, is_end: bool,
            bytes in prop::collection::vec(any::<u8>(), 1..400), bits in prop::collection::vec(any::<u8>(), 32),
            padding in 0usize..100,
        ) {
            let stream = StreamId(number);
            let mut acked = Acked { largest: limit, bits: bits.try_into().unwrap() };
            acked.bits[0] |= 1;
            let frames = vec![
                Frame::Ping,
                Frame::Open { stream, target: target.clone() },
                Frame::OpenFlow { stream, target },
                Frame::Datagram { stream, number, length: 9 + bytes.len() as u16, offset: 9, bytes: &bytes },
                Frame::Accepted { stream },
                Frame::Data { stream, offset: limit >> 1, is_end, bytes: &bytes },
                Frame::Reset { stream, reason: Reason::ALL[reason], end: limit },
                Frame::Credit { stream, limit },
                Frame::SessionCredit { limit },
                Frame::Acked(acked),
                Frame::Blocks { size: bytes.len(), bytes: &bytes },
                Frame::Pace { turn, cells_per_s: number.max(1), pads: is_end },
                Frame::Void { before: number.into() },
                Frame::Close,
            ];
            let mut plain = limit.to_be_bytes().to_vec();
            frames.iter().for_each(|frame| frame.encode(&mut plain));
            plain.resize(plain.len() + padding, 0);
            let (left, read) = decode(&plain).unwrap();
            prop_assert_eq!(left, Time::from_nanos(limit));
            prop_assert_eq!(read.collect::<Result<Vec<_>, _>>().unwrap(), frames);
        }

        #[test]
        fn arrivals_are_read_as_they_were_to_the_microsecond(
            all in prop::collection::vec((any::<u32>(), 0u64..1 << 50), 0..100), room in 0usize..600,
        ) {
            let all: Vec<Arrival> =
                all.iter().map(|&(n, t)| Arrival { number: n.into(), at: Time::from_nanos(t * 1000) }).collect();
            let mut plain = vec![0; PLAIN_HEADER];
            let taken = encode_arrivals(&all, room, &mut plain);
            prop_assert!(plain.len() - PLAIN_HEADER <= room);
            prop_assert!(taken > 0 || room < 24 || all.is_empty());
            let read: Vec<Arrival> = decode(&plain).unwrap().1.flat_map(|frame| match frame.unwrap() {
                Frame::Arrivals(arrivals) => arrivals.iter().collect::<Vec<_>>(),
                _ => vec![],
            }).collect();
            prop_assert_eq!(&read[..], &all[..taken]);
        }

        #[test]
        fn any_bytes_are_frames_or_an_error_and_frames_are_written_as_they_came(
            bytes in prop::collection::vec(prop_oneof![0u8..16, any::<u8>()], 0..300),
        ) {
            check_any(&bytes);
        }
    }

    /// What must hold for any plain text.
    pub(crate) fn check_any(bytes: &[u8]) {
        let Ok((left, frames)) = decode(bytes) else { return };
        let mut written = left.as_nanos().to_be_bytes().to_vec();
        for frame in frames {
            let Ok(frame) = frame else { return };
            frame.encode(&mut written);
        }
        assert_eq!(written[..], bytes[..written.len()]);
        assert!(bytes[written.len()..].iter().all(|&byte| byte == 0), "what follows is padding");
    }

    #[test]
    fn pieces_lie_within_their_datagram_and_say_something() {
        let read = |length, offset, bytes: &[u8]| {
            let mut plain = vec![0; PLAIN_HEADER];
            Frame::Datagram { stream: StreamId(0), number: 0, length, offset, bytes }.encode(&mut plain);
            decode(&plain).unwrap().1.next().unwrap().is_ok()
        };
        let most = MOST_DATAGRAM as u16;
        assert!(read(0, 0, &[]) && read(most, most - 1, &[1]) && read(3, 0, &[1]));
        assert!(!read(1, 0, &[]) && !read(most, most, &[1]) && !read(most + 1, 0, &[1]) && !read(2, u16::MAX, &[1]));
    }

    #[test]
    fn numbers_below_zero_are_none() {
        let acked = Acked { largest: 2, bits: [0xff; ACK_BYTES] };
        assert_eq!(acked.numbers().collect::<Vec<_>>(), [2, 1, 0]);
    }
}
