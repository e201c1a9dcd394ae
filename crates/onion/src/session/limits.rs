//! What both ends of a session keep to.

/// Bytes of one stream that its receiver holds at most.
pub const STREAM_WINDOW: u64 = 1 << 20;

/// Bytes of a stream that its receiver has room for in any case, whatever other streams hold: about as much as is granted
/// to a stream of HTTP/2 or QUIC at first (RFC 9113 6.9.2 has 64 KiB).
pub const STREAM_RESERVE: u64 = 32 << 10;

/// Bytes beyond their reserves that the streams of a session have in common.
pub const SHARED_WINDOW: u64 = 8 << 20;

/// Bytes of all streams of a session that a receiver holds at most: what they share, the reserve of each, and one more
/// for what was read and is not granted again yet.
pub const SESSION_WINDOW: u64 = SHARED_WINDOW + (MAX_STREAMS as u64 + 1) * STREAM_RESERVE;

/// Bytes of one stream that its sender holds at most, sent and not.
pub const STREAM_BUFFER: usize = STREAM_WINDOW as usize;

/// Bytes of all streams of a session that a sender holds at most.
pub const SESSION_BUFFER: usize = SESSION_WINDOW as usize;

/// A stream may hold this part of what nobody holds of what all share.
const PART_OF_FREE: u64 = 4;

/// Bytes that one stream may hold where `left` of the [`SESSION_WINDOW`] are held by none.
///
/// A stream whose reader stands still keeps what it holds, so a bound of all streams alone lets a few of them stop the
/// others (RFC 9113 5.2.2 and RFC 9000 4.1 warn of that). With a part of what is free as its bound (Choudhury and Hahne
/// 1998, "Dynamic queue length thresholds", T = α · free) each leaves something, and below the reserves of all nothing is
/// shared:
///
/// ```text
/// T = min(STREAM_WINDOW, max(STREAM_RESERVE, (left - reserves) / PART_OF_FREE))
/// ```
pub fn stream_bound(left: u64) -> u64 {
    (left.saturating_sub(SESSION_WINDOW - SHARED_WINDOW) / PART_OF_FREE).clamp(STREAM_RESERVE, STREAM_WINDOW)
}

/// Streams of a session at once, as far as the client opens them.
pub const MAX_STREAMS: usize = 256;

/// Streams that a service still knows while the client has forgotten some.
pub const MAX_KNOWN: usize = 2 * MAX_STREAMS;

/// Bytes of memory of all streams of a session together whose opening has not come yet. It is sent again within a round
/// trip or two, and programs write only once they are accepted: what is ahead of it is seldom more than one cell. One stream
/// may always be ahead by its window, in pieces that are half empty.
pub const MAX_EARLY: usize = 3 * STREAM_WINDOW as usize;

/// How a peer breaks the rules; the session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// A cell does not decode.
    Format,
    /// More bytes than there was credit for.
    Credit,
    /// Bytes beyond a stream's end, or two ends.
    End,
    /// A stream that nobody opened, or that only the other end may open, or a flow in place of a stream.
    Stream,
    /// Too many streams, or too many gaps.
    TooMany,
    /// An ACK of what was never sent.
    Ack,
    /// A frame that only the other end may send.
    Role,
}
