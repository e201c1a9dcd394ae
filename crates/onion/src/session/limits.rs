//! What both ends of a session keep to.

/// Bytes of one stream that its receiver holds at most.
pub const STREAM_WINDOW: u64 = 1 << 20;

/// Bytes of all streams of a session that a receiver holds at most.
pub const SESSION_WINDOW: u64 = 8 << 20;

/// Bytes of one stream that its sender holds at most, sent and not.
pub const STREAM_BUFFER: usize = 1 << 20;

/// Bytes of all streams of a session that a sender holds at most.
pub const SESSION_BUFFER: usize = 8 << 20;

/// Streams of a session at once, as far as the client opens them.
pub const MAX_STREAMS: usize = 256;

/// Streams that a service still knows while the client has forgotten some.
pub const MAX_KNOWN: usize = 2 * MAX_STREAMS;

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
