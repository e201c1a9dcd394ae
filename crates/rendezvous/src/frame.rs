//! What a rendezvous and those who come to it say to each other, on one stream of a QUIC connection.
//! Integers are big-endian:
//!
//! ```text
//! length 2 (of what follows), tag 1, then
//! to the rendezvous:    1 open     side 1
//!                       2 claim    side 1, number 4
//!                       3 put      bytes for the other side: the rest
//! from the rendezvous:  16 placed  number 4, the address that is seen: text, the rest
//!                       17 got     bytes of the other side: the rest
//!                       18 gone    -
//!                       19 refused reason 1
//! ```

use std::fmt;
use std::net::SocketAddr;

use crate::limits::MESSAGE_BYTES;

/// The longest frame, its length apart.
pub const MOST: usize = MESSAGE_BYTES + 1;

/// Which of the two sides of a mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Who sends files.
    Sender,
    /// Who receives them.
    Receiver,
}

impl Side {
    /// Its place in a pair.
    pub fn index(self) -> usize {
        self as usize
    }

    /// Across from this one.
    pub fn other(self) -> Side {
        match self {
            Side::Sender => Side::Receiver,
            Side::Receiver => Side::Sender,
        }
    }

    fn read(byte: u8) -> Option<Side> {
        [Side::Sender, Side::Receiver].into_iter().find(|&side| side as u8 == byte)
    }
}

/// Why a rendezvous does not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Refusal {
    /// It has as many mailboxes as it can have.
    Full = 1,
    /// This address has as many as it may have.
    Share = 2,
    /// Somebody has claimed this side of the mailbox before.
    Taken = 3,
    /// The mailbox is too old.
    Expired = 4,
    /// Too much waits there for the other side.
    TooMuch = 5,
    /// Too many messages, or what makes no sense.
    Unruly = 6,
}

impl Refusal {
    const ALL: [Refusal; 6] =
        [Refusal::Full, Refusal::Share, Refusal::Taken, Refusal::Expired, Refusal::TooMuch, Refusal::Unruly];
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::Full => "it has as many mailboxes as it can have; try again later, or another relay",
            Refusal::Share => "too many mailboxes are open from this address; try again later, or another relay",
            Refusal::Taken => "somebody has used this code's number before; each code is good for one try",
            Refusal::Expired => "the other side did not come in time",
            Refusal::TooMuch => "too much waits for the other side",
            Refusal::Unruly => "it does not understand us, or we say too much",
        })
    }
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A mailbox with any number, please; this side of it is ours.
    Open(Side),
    /// This side of this mailbox.
    Claim(Side, u32),
    /// For the other side.
    Put(Vec<u8>),
    /// The mailbox is yours, and this is the address that you are seen at.
    Placed {
        /// The mailbox's number.
        number: u32,
        /// Where the datagrams of this connection come from.
        seen: SocketAddr,
    },
    /// From the other side.
    Got(Vec<u8>),
    /// The other side has gone, and will not come back.
    Gone,
    /// No. Nothing more will come.
    Refused(Refusal),
}

impl Frame {
    /// Appends its bytes, with their length, to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0, 0]);
        match self {
            Frame::Open(side) => out.extend_from_slice(&[1, *side as u8]),
            Frame::Claim(side, number) => {
                out.extend_from_slice(&[2, *side as u8]);
                out.extend_from_slice(&number.to_be_bytes());
            }
            Frame::Put(bytes) => {
                out.push(3);
                out.extend_from_slice(bytes);
            }
            Frame::Placed { number, seen } => {
                out.push(16);
                out.extend_from_slice(&number.to_be_bytes());
                out.extend_from_slice(seen.to_string().as_bytes());
            }
            Frame::Got(bytes) => {
                out.push(17);
                out.extend_from_slice(bytes);
            }
            Frame::Gone => out.push(18),
            Frame::Refused(reason) => out.extend_from_slice(&[19, *reason as u8]),
        }
        let length = (out.len() - start - 2).min(usize::from(u16::MAX)) as u16;
        out[start..start + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// Reads one from the bytes behind its length; none if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let (&tag, rest) = bytes.split_first()?;
        Some(match tag {
            1 => Frame::Open(Side::read(*rest.first().filter(|_| rest.len() == 1)?)?),
            2 => {
                let (&side, number) = rest.split_first()?;
                Frame::Claim(Side::read(side)?, u32::from_be_bytes(number.try_into().ok()?))
            }
            3 => Frame::Put(rest.to_vec()),
            16 => {
                let (number, seen) = rest.split_first_chunk()?;
                let seen = str::from_utf8(seen).ok()?.parse().ok()?;
                Frame::Placed { number: u32::from_be_bytes(*number), seen }
            }
            17 => Frame::Got(rest.to_vec()),
            18 if rest.is_empty() => Frame::Gone,
            19 => {
                let &reason = rest.first().filter(|_| rest.len() == 1)?;
                Frame::Refused(Refusal::ALL.into_iter().find(|&known| known as u8 == reason)?)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_frame() -> impl Strategy<Value = Frame> {
        let side = prop_oneof![Just(Side::Sender), Just(Side::Receiver)];
        let bytes = prop::collection::vec(any::<u8>(), 0..200);
        let seen = (any::<std::net::IpAddr>(), any::<u16>()).prop_map(SocketAddr::from);
        prop_oneof![
            side.clone().prop_map(Frame::Open),
            (side, any::<u32>()).prop_map(|(side, number)| Frame::Claim(side, number)),
            bytes.clone().prop_map(Frame::Put),
            (any::<u32>(), seen).prop_map(|(number, seen)| Frame::Placed { number, seen }),
            bytes.prop_map(Frame::Got),
            Just(Frame::Gone),
            prop::sample::select(Refusal::ALL.to_vec()).prop_map(Frame::Refused),
        ]
    }

    proptest! {
        #[test]
        fn a_frame_is_read_as_it_is_written(frame in any_frame()) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            let (length, rest) = bytes.split_first_chunk().unwrap();
            prop_assert_eq!(usize::from(u16::from_be_bytes(*length)), rest.len());
            prop_assert_eq!(Frame::decode(rest), Some(frame));
        }

        #[test]
        fn whatever_comes_is_a_frame_or_none(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Some(frame) = Frame::decode(&bytes) {
                let mut again = Vec::new();
                frame.encode(&mut again);
                prop_assert_eq!(Frame::decode(&again[2..]), Some(frame));
            }
        }
    }
}
