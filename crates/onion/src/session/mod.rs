//! What a client and a service say to each other, whatever carries it: the layer between a user's streams and
//! packets that take another path each.
//!
//! The service is an exit, which connects to hosts, or a hidden receiver. Both ends are machines without IO:
//! they hand out *cells* of one length to be carried, and are given which cells came, in any order, twice, or never.
//! A cell of the [`Client`] goes over a path that the driver chooses; a cell of the service ([`Exit`], one of the
//! [`Exits`] of a service) goes over a single-use reply block of the client, and without a block it waits.
//!
//! | part | where |
//! |---|---|
//! | Noise NK with ML-KEM-768, sealing | [`handshake`] |
//! | the outside of cells, and the frames inside | [`envelope`], [`cell`] |
//! | cells on their way, deadlines, outcomes | [`sender`]; a driver's timeouts for paths: [`delays`] |
//! | which cells came, ACK vectors | [`receiver`] |
//! | datagrams, which are sent once | [`datagrams`] |
//! | streams, credit | [`streams`], [`outgoing`], [`incoming`] |
//! | reply blocks | [`blocks`] |
//! | cells a second | [`total_rate`]; a flow controller's: [`FlowRate`] |
//!
//! # What a driver does
//!
//! With a client, after anything happens: make as many blocks as [`Client::blocks_wanted`] says and give each with
//! [`Client::give_block`]; while [`Client::wants_cell`], choose a path and send what [`Client::poll_cell`] gives over it;
//! give each cell that comes back to [`Client::on_cell`] with the serial of its block; fetch all of
//! [`Client::poll_event`]; call [`Client::on_timer`] when [`Client::timer`] says so. A learner that places cells on relays takes
//! [`ClientEvent::Delivered`] and [`ClientEvent::Lost`] as outcomes of forward paths, and [`ClientEvent::BlockReturned`] and
//! [`ClientEvent::BlockLost`] as those of the blocks' paths. How many cells leave in all is none of its business.
//!
//! A session belongs to one user: streams of two users never share one, and so neither ids nor keys nor blocks.
//!
//! ```
//! use anabranch_control::time::{Duration, Time};
//! use anabranch_onion::session::*;
//!
//! let format = CellFormat::new(1050, Secrecy::Sealed).unwrap();
//! let secret = ServiceSecret::from_seed(&[1; 32]); // from the operating system, outside of examples
//! let mut client = Client::new(Time::ZERO, format, secret.keys(), Rates::default(), Entropy([2; 32]));
//! let mut exits = Exits::new(format, secret, Entropy([3; 32]));
//!
//! let stream = client.open_stream(Time::ZERO, Target::Name("example.org".into(), 80)).unwrap();
//! client.write(stream, b"ping").unwrap();
//!
//! let (mut now, mut cell, mut reply) = (Time::ZERO, Vec::new(), None);
//! while reply.is_none() {
//!     // A real block is a path that the client has prepared; here it is only its serial.
//!     for serial in 0..client.blocks_wanted() as u64 {
//!         let serial = serial + 1000 * now.as_nanos();
//!         client.give_block(&serial.to_be_bytes(), Duration::ZERO, false).unwrap();
//!     }
//!     while client.wants_cell(now) {
//!         let path = Via { tag: 7, timeout: Duration::from_millis(100), is_trial: false };
//!         assert!(client.poll_cell(now, path, &mut cell));
//!         exits.on_cell(now, &cell);
//!     }
//!     for (_, exit) in exits.iter_mut() {
//!         while let Some(event) = exit.poll_event() {
//!             if let ExitEvent::Stream(StreamEvent::Opened(stream, target)) = event {
//!                 assert_eq!(target, Target::Name("example.org".into(), 80));
//!                 exit.accept(stream);
//!                 exit.write(stream, b"pong").unwrap();
//!                 exit.finish(stream);
//!             }
//!         }
//!         while let Some(block) = exit.poll_cell(now, &mut cell) {
//!             client.on_cell(now, &cell, u64::from_be_bytes(block[..].try_into().unwrap()));
//!         }
//!     }
//!     while let Some(event) = client.poll_event() {
//!         if let ClientEvent::Stream(StreamEvent::Readable(stream)) = event {
//!             let mut bytes = [0; 100];
//!             if let ReadOutcome::Bytes(count) = client.read(stream, &mut bytes).unwrap() {
//!                 reply = Some(bytes[..count].to_vec());
//!             }
//!         }
//!     }
//!     now += Duration::from_millis(1);
//!     client.on_timer(now);
//!     exits.on_timer(now);
//! }
//! assert_eq!(reply.unwrap(), b"pong");
//! ```

pub mod blocks;
pub mod cell;
mod client;
pub mod datagrams;
pub mod delays;
pub mod envelope;
mod exit;
mod exits;
mod flow_rate;
pub mod handshake;
pub mod incoming;
pub mod limits;
mod link;
pub mod outgoing;
pub mod receiver;
pub mod sender;
mod steps;
pub mod streams;
#[cfg(test)]
mod tests;
pub mod total_rate;

pub use blocks::BlockError;
pub use cell::{MOST_DATAGRAM, Reason, StreamId, Target};
pub use client::{Client, ClientEvent, GONE, IDLE, Rates, Via};
pub use delays::RelayDelays;
pub use envelope::CellFormat;
pub use exit::{Exit, ExitEvent};
pub use exits::Exits;
pub use flow_rate::FlowRate;
pub use handshake::{Entropy, Secrecy, ServiceKeys, ServiceSecret, SessionName};
pub use limits::Violation;
pub use link::End;
pub use sender::Delivered;
pub use streams::{ReadOutcome, StreamError, StreamEvent};
