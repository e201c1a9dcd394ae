//! How a client hangs on its guard: the guard sends what comes for the client's label to where the client was
//! last heard of, so that it needs no address that others can reach.
//!
//! ```text
//! client                             guard
//!   attach: label, no cookie  ---->    nothing is remembered
//!                             <----  prove: cookie = keyed hash of address and label
//!   attach: label, cookie     ---->    label -> address, for a minute
//!                             <----  attached
//! ```
//!
//! The cookie proves the address, so that nobody has packets sent to another. A client says it again
//! every [`PERIOD`], also because that keeps a NAT's binding (RFC 4787, 4.3, and RFC 8085, 3.5: no more often than
//! every 15 s). The label is 64 random bits that the client and its guards alone know, besides whoever listens on
//! the wire between them, who could as well drop all that passes there: whoever knows it may move the link to an
//! address that is proved. So a client that gets another address goes on.

mod client;
mod frame;
mod guard;

use anabranch_control::time::Duration;

pub use client::Attachment;
pub use frame::{LENGTH, LinkFrame};
pub use guard::{Links, MOST_LINKS, MOST_LINKS_OF_NETWORK};

/// How often a client says where it is.
pub const PERIOD: Duration = Duration::from_millis(15_000);

/// After so long a silence the guard forgets it: four of its periods.
pub const LIFETIME: Duration = Duration::from_millis(60_000);
