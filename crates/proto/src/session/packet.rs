//! What sessions' packets carry in a simulation, and how long they would be as QUIC's.

use super::{PeerKey, WireLength};
use crate::flow::Ack;

/// Headers of UDP and IPv4.
const UDP_IPV4: usize = 8 + 20;

/// A packet's own: its first byte, a connection ID of 8 bytes, as QUIC libraries choose it, and 2 of
/// its number (RFC 9000, 17.3.1); the tag of its AEAD (RFC 9001, 5.3).
const SHORT_HEADER: usize = 1 + 8 + 2 + 16;

/// Type and length of a DATAGRAM frame (RFC 9221, 4).
const DATAGRAM_FRAME: usize = 1 + 2;

/// Headers of a packet that carries nothing but a datagram: those of IPv4, UDP and QUIC.
pub const DATAGRAM_HEADERS: usize = UDP_IPV4 + SHORT_HEADER + DATAGRAM_FRAME;

/// Type, stream, an offset below 2^30 and length of a STREAM frame (RFC 9000, 19.8).
const STREAM_FRAME: usize = 1 + 1 + 4 + 2;

/// Type, highest number, delay, count and first range of an ACK frame (RFC 9000, 19.3).
const ACK_FRAME: usize = 1 + 4 + 2 + 1 + 2;

/// A packet that carries nothing but an ACK of one range.
pub const ACK_ALONE: usize = UDP_IPV4 + SHORT_HEADER + ACK_FRAME;

/// A gap and a range more.
const ACK_RANGE: usize = 2 + 2;

/// An ACK_FREQUENCY frame: type, sequence number, threshold, delay in microseconds, reordering threshold
/// (draft-ietf-quic-ack-frequency, 4).
const ACK_FREQUENCY_FRAME: usize = 2 + 1 + 1 + 4 + 1;

/// A PING frame (RFC 9000, 19.2).
const PING_FRAME: usize = 1;

/// Type, error code and an empty reason of a CONNECTION_CLOSE frame (RFC 9000, 19.19).
const CLOSE_FRAME: usize = 1 + 2 + 1;

/// The first packet of either end fills at least this much of a UDP datagram (RFC 9000, 14.1); what
/// raw public keys (RFC 7250) and signatures take fits in.
const FIRST_DATAGRAM: usize = 1200;

/// A stateless reset: what looks like a short header, and its token (RFC 9000, 10.3).
const RESET: usize = 5 + 16;

/// Names a session at the end that made it. An end uses none twice, so that what belongs to a session
/// that is over is not taken for another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionId {
    /// Where the session stands at that end.
    pub(super) slot: u32,
    /// Random.
    pub(super) token: u32,
}

/// A packet of a session.
#[derive(Clone, Debug)]
pub struct Packet<M, D> {
    pub(super) to: ConnectionId,
    /// Its number, if it is one that is acknowledged.
    pub(super) number: u64,
    pub(super) ack: Option<Ack>,
    pub(super) asked: AckRequest,
    pub(super) content: Content<M, D>,
}

/// How long its ACK may be put off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AckRequest {
    pub delay_ms: u16,
    /// The other end does not know it yet.
    pub is_new: bool,
}

/// What a packet carries beside an ACK.
#[derive(Clone, Debug)]
pub(super) enum Content<M, D> {
    /// Nothing; such a packet is not acknowledged and has no number.
    Nothing,
    Datagram(D),
    Messages(Box<Messages<M>>),
    Ping,
    Hello(Box<Hello>),
    Welcome(Box<Welcome>),
    /// The session that was asked for does not come about.
    Refusal,
    Close,
    /// Nobody has the session that a packet was for: this is the ID that it bore.
    Reset,
}

impl<M, D> Content<M, D> {
    /// Whether it belongs to a handshake.
    pub fn is_handshake(&self) -> bool {
        matches!(self, Content::Hello(_) | Content::Welcome(_) | Content::Refusal | Content::Reset)
    }
}

/// A part of the stream that messages form.
#[derive(Clone, Debug)]
pub(super) struct Messages<M> {
    pub offset: u64,
    pub length: u32,
    /// The messages that end in it, each with its end.
    pub messages: Vec<(u64, M)>,
}

/// Asks for a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hello {
    pub from: ConnectionId,
    pub attempt: u32,
    pub key: PeerKey,
    /// The key that the other end must have.
    pub asked: Option<PeerKey>,
}

/// Grants it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Welcome {
    pub from: ConnectionId,
    /// The attempt that it answers; none if it is repeated for want of an answer itself.
    pub attempt: Option<u32>,
    pub key: PeerKey,
}

impl<M, D> Default for Packet<M, D> {
    fn default() -> Packet<M, D> {
        Packet {
            to: ConnectionId::default(),
            number: 0,
            ack: None,
            asked: AckRequest::default(),
            content: Content::Nothing,
        }
    }
}

impl<M, D: WireLength> Packet<M, D> {
    /// Bytes on the wire, with the headers of IPv4.
    #[inline]
    pub fn size(&self) -> u32 {
        let frames = match &self.content {
            Content::Nothing => 0,
            Content::Datagram(datagram) => DATAGRAM_FRAME + datagram.wire_length(),
            Content::Messages(messages) => STREAM_FRAME + messages.length as usize,
            Content::Ping => PING_FRAME,
            Content::Close | Content::Refusal => CLOSE_FRAME,
            Content::Hello(_) | Content::Welcome(_) => return (UDP_IPV4 + FIRST_DATAGRAM) as u32,
            Content::Reset => return (UDP_IPV4 + RESET) as u32,
        };
        (UDP_IPV4 + SHORT_HEADER + frames) as u32 + self.ack_length()
    }

    /// Of these, what the ACK takes that rides on it, and what is asked of ACKs.
    #[inline]
    pub fn ack_length(&self) -> u32 {
        let ack = self.ack.as_ref().map_or(0, |ack| ACK_FRAME + ACK_RANGE * ack.ranges.count().saturating_sub(1));
        let asked = if self.asked.is_new { ACK_FREQUENCY_FRAME } else { 0 };
        (ack + asked) as u32
    }

    /// Whether a datagram of the application is in it.
    pub fn datagram(&self) -> Option<&D> {
        match &self.content {
            Content::Datagram(datagram) => Some(datagram),
            _ => None,
        }
    }

    /// Whether it carries messages.
    pub fn has_messages(&self) -> bool {
        matches!(self.content, Content::Messages(_))
    }

    /// Whether it carries nothing but an ACK.
    pub fn is_ack_alone(&self) -> bool {
        matches!(self.content, Content::Nothing)
    }
}
