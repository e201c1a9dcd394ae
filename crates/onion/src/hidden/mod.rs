//! Hidden receivers: both ends are users, and an address is a key.
//!
//! A receiver has blocks of its own at *mailboxes*: relays that staple the next block on to what comes for it. So
//! whoever sends to it knows its mailboxes and not it, and a mailbox knows neither. It answers over the sender's
//! blocks, from another relay each time, which passes a cell on with the block that lies beside it.
//!
//! ```text
//!  sender ─▶ guard ─▶ middle ─▶ mailbox ═▶ middle ═▶ the receiver's guard ─▶ receiver
//!  sender ◀─ guard ◀═ middle ◀═ any relay ◀─ middle ◀─ the receiver's guard ◀─ receiver
//!          ═ a reply block of the one whom it leads to
//! ```
//!
//! Where the mailboxes of an address are, its *descriptor* says ([`descriptor`]). Some relays that follow from the
//! address and the epoch keep it ([`places`]): everybody has the whole list of relays, so that a hash over the list
//! is enough and nobody has to be asked. They know it by a key that is another one in each epoch ([`blind`]), they
//! can check that its owner has signed it, and cannot read it without the address.
//!
//! | part | where |
//! |---|---|
//! | what people tell each other | [`address`] |
//! | what is said to relays in packets' bodies | [`body`] |
//! | a relay's mailboxes and descriptors | [`mailbox`] |
//! | the two users' machines | [`HiddenReceiver`](crate::node::HiddenReceiver), [`HiddenSender`](crate::node::HiddenSender) |

pub mod address;
pub mod blind;
pub mod body;
pub mod descriptor;
pub mod mailbox;
pub mod places;

pub use address::{Address, AddressError};
pub use blind::{BlindedSecret, ReceiverSecret};
pub use descriptor::{Descriptor, MailboxAt};
pub use mailbox::{MailboxCounts, Mailboxes};

use crate::packet::{BODY, Label};
use crate::reply::ReplyBlock;
use crate::session::{CellFormat, Secrecy};

/// What a relay's mailboxes are opened, filled and asked at.
pub const MAILBOX: Label = Label(*b"mailbox ");

/// Where a relay passes a cell on with the block that lies beside it.
pub const ONWARD: Label = Label(*b"onward  ");

/// Bytes of a cell to and from a hidden receiver: a body holds it and the block by which it goes on.
pub const HIDDEN_CELL: usize = BODY - ReplyBlock::BYTES;

/// The form of cells to and from hidden receivers, the same in both directions.
///
/// # Panics
///
/// Never: what a block leaves of a body is as long as cells may be.
pub fn hidden_format(secrecy: Secrecy) -> CellFormat {
    CellFormat::new(HIDDEN_CELL, secrecy).expect("what a block leaves of a body is long enough for a cell")
}
