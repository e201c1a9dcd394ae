//! Moving a file: a sender that resends each block until its arrival is proven, and a
//! receiver that keeps a file only when its hash is right.
//!
//! ```text
//! sender                                 receiver
//!   hello            ------------------>
//!                    <------------------ hello reply: a cookie, if many sessions are half-open
//!   hello, cookie    ------------------>   (again every half second, by other relays)
//!                    <------------------ hello reply: an answer
//!   offer            ------------------>   (again every half second, also while it waits)
//!   first blocks     ------------------>   (64 KiB at most)
//!                    <------------------ report: accepted, or waiting and its place, or refused and why
//!   block, block...  ------------------>
//!                    <------------------ ACK, ACK...
//!   finish           ------------------>
//!                    <------------------ report: checking; complete, or failed and why
//!   close            ------------------>
//! ```
//!
//! Every packet takes its own path, and its answer is evidence about the relays on it.
//!
//! What has come of a file outlives its session where the store can keep it: when the same sender
//! offers the same file again, "accepted" tells which blocks are there, and the others follow. The
//! hash of the whole file decides in the end; if it is wrong and a part was there from before, all of
//! it comes again, once.

mod around;
pub mod block_ranges;
mod check;
mod error;
mod extents;
mod jobs;
mod limits;
mod partial;
mod phase;
mod reading;
mod receiving;
mod senders;
mod sending;
mod streamed;

pub use around::{Event, ReceiverCounters, Reply, Source, Store, StoreError};
pub use check::FileCheck;
pub use error::TransferError;
pub use extents::Extents;
pub use jobs::{Batch, Creation, FileDone, FileJob, FileResult, FileTask};
pub use limits::Limits;
pub use partial::{Owner, Partial, PartialId};
pub use phase::Phase;
pub use reading::MOST_KEPT;
pub use receiving::{MAX_EVENTS, Receiver, origin_of};
pub use senders::Senders;
pub use sending::{FileSender, Transferred, block_size};
pub use streamed::{Finished, Streamed};
