//! What clients of the HTTP server may cost.

use std::time::Duration;

/// What clients may cost. The longest request head is 8 KiB in [`MOST_HEADERS`] fields.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at once. One more closes the first over which nothing was asked yet, else the one over which nothing
    /// goes on for longest, or waits in the system's backlog, if something goes on over all.
    pub connections: usize,
    /// Of these, from one address, or one /56 of IPv6. One more closes the first of its own over which nothing goes on, as
    /// above, and is closed itself if something goes on over all.
    pub connections_per_address: usize,
    /// Requests on one connection; after the last it is closed.
    pub requests_per_connection: u32,
    /// From the first byte that may come of a request's head to its last.
    pub head: Duration,
    /// A client that takes no byte for so long is closed.
    pub patience: Duration,
    /// Players that read the stream at once; more are refused.
    pub players: u64,
    /// Of these, from one address or /56 that is not this machine's.
    pub players_per_address: usize,
    /// A player waits so long for a stream that has not begun.
    pub first_picture: Duration,
    /// Pages that are sent events at once; more are refused.
    pub listeners: usize,
    /// Of these, from one address or /56 that is not this machine's.
    pub listeners_per_address: usize,
    /// Whoever puts in a stream and sends nothing for so long is closed.
    pub ingest: Duration,
}

/// Header fields of a request at most.
pub(super) const MOST_HEADERS: usize = 64;

/// Bytes of a request's head at most: the least that the library can be set to.
pub(super) const MOST_HEAD: usize = 8192;

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 512,
            connections_per_address: 128,
            requests_per_connection: 1000,
            head: Duration::from_secs(10),
            patience: Duration::from_secs(10),
            players: 100,
            // A quarter of them, as with connections: a home or a proxy elsewhere, and never all.
            players_per_address: 25,
            first_picture: Duration::from_secs(10),
            listeners: 16,
            listeners_per_address: 4,
            ingest: Duration::from_secs(10),
        }
    }
}
