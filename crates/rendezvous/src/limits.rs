//! What strangers can't make a rendezvous hold or do. Together: 1024 mailboxes of at most 16 KiB that
//! wait, 2048 connections of at most 32 KiB, and 256 datagrams, less than 100 MiB.

use anabranch_control::time::Duration;

/// Mailboxes in all.
pub const MAILBOXES: usize = 1024;

/// Of them, opened from one source's address (of IPv6 its first 64 bits).
pub const MAILBOXES_OF_ONE: usize = 16;

/// Bytes that wait in a mailbox for a side that has not come yet.
pub const MAILBOX_BYTES: usize = 16 << 10;

/// The longest message: an offer with a list of relays is shorter.
pub const MESSAGE_BYTES: usize = 8 << 10;

/// A mailbox is closed after so long: time to find the other person, and to think before saying yes.
pub const AGE: Duration = Duration::from_millis(3_600_000);

/// Messages of one connection in a second. A transfer needs three in all.
pub const MESSAGES_PER_SECOND: u32 = 10;

/// Connections at once: two for each mailbox.
pub const CONNECTIONS: usize = 2 * MAILBOXES;

/// Of them, of one source's address.
pub const CONNECTIONS_OF_ONE: usize = 2 * MAILBOXES_OF_ONE;

/// Handshakes that are answered in a second, from addresses that are proved; as many as a receiver
/// of files answers.
pub const HANDSHAKES_PER_SECOND: u32 = 200;

/// Of them, of one source's address: whoever tries numbers one after the other tries this many.
pub const HANDSHAKES_PER_SECOND_OF_ONE: u32 = HANDSHAKES_PER_SECOND / 50;

/// Datagrams that are handed over to QUIC in a second, whoever sends them; each costs some 10 µs, so
/// that a flood takes some hundredths of a processor and nothing from what is relayed. Two connections
/// for a transfer need about 40.
pub const DATAGRAMS_PER_SECOND: u32 = 4_000;

/// Datagrams that wait for QUIC.
pub const DATAGRAMS_WAITING: usize = 256;

/// Who has not said what it wants so long after its handshake, in milliseconds, is sent away.
pub const PATIENCE_MS: u64 = 10_000;

/// Nothing heard for so long, in milliseconds, ends a connection.
pub const IDLE_MS: u64 = 20_000;

/// What strangers can't exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Mailboxes in all.
    pub mailboxes: usize,
    /// Mailboxes opened from one source's address.
    pub mailboxes_of_one: usize,
    /// Bytes that wait in a mailbox.
    pub mailbox_bytes: usize,
    /// The longest message in bytes.
    pub message_bytes: usize,
    /// A mailbox is closed after so long.
    pub age: Duration,
    /// Messages of one connection in a second.
    pub messages_per_second: u32,
    /// Connections at once.
    pub connections: usize,
    /// Connections of one source's address.
    pub connections_of_one: usize,
    /// Handshakes in a second.
    pub handshakes_per_second: u32,
    /// Handshakes of one source's address in a second.
    pub handshakes_per_second_of_one: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            mailboxes: MAILBOXES,
            mailboxes_of_one: MAILBOXES_OF_ONE,
            mailbox_bytes: MAILBOX_BYTES,
            message_bytes: MESSAGE_BYTES,
            age: AGE,
            messages_per_second: MESSAGES_PER_SECOND,
            connections: CONNECTIONS,
            connections_of_one: CONNECTIONS_OF_ONE,
            handshakes_per_second: HANDSHAKES_PER_SECOND,
            handshakes_per_second_of_one: HANDSHAKES_PER_SECOND_OF_ONE,
        }
    }
}
