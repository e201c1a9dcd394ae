//! Lengths that all packets share: whatever a packet carries, it looks like any other.

/// Bytes of a UDP datagram's payload, always.
pub const DATAGRAM: usize = 1400;

/// The most relays in one half of a path.
pub const MOST_HOPS: usize = 4;

/// Bytes of what a half's relays read, at most.
pub const MOST_HEADER: usize = 256;

/// Bytes that reach the other end of a path, at least.
pub const LEAST_PAYLOAD: usize = 1100;
