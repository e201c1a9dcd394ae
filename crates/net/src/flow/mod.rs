//! Flows on UDP sockets: [`Senders`] drives flow senders, [`Receivers`] drives flow receivers,
//! each in one thread and over any number of sockets.
//!
//! Neither starts a thread nor opens a socket: whoever calls `turn` again and again is the
//! driver, and sockets may come from a network namespace of their own. Both are a
//! [`Runtime`](crate::runtime::Runtime) with an endpoint for each socket. Data leaves as
//! segments of one send where several packets go to one destination at once, arrives many
//! datagrams a system call, and ACKs leave together. What comes from strangers is counted
//! and changes nothing; nothing here is encrypted, so whoever sees the packets can forge them.

mod content;
mod received;
mod receivers;
mod receiving;
mod senders;
mod sending;
mod spec;
mod timers;

pub use content::{Pattern, Sink, Source};
pub use received::{Accept, FlowKey, ReceiverConfig, ReceiverEvent, Report};
pub use receivers::Receivers;
pub use senders::Senders;
pub use spec::{EndReason, FlowId, FlowSpec, OpenError, SenderEvent};

use crate::endpoint::RuntimeCounters;
use crate::send_queue::SendCounters;

/// What a socket's flows did not believe.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    strangers: u64,
    untrue: u64,
    flows: u64,
}

/// Datagrams at an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Arrived, readable or not.
    pub received: u64,
    /// Not readable, or of a kind that this side is never sent.
    pub unreadable: u64,
    /// Of no flow that we know, or not from where it should come.
    pub strangers: u64,
    /// Refused because they cannot be true, such as ACKs of what was never sent.
    pub untrue: u64,
    /// Flows refused because there were too many.
    pub flows_refused: u64,
    /// Events that nobody read in time.
    pub events_dropped: u64,
    /// Dropped because the socket had been full for long.
    pub overflowed: u64,
    /// What left.
    pub out: SendCounters,
}

impl Counters {
    /// What a runtime has counted, and the flows of each of its sockets.
    fn new(runtime: &RuntimeCounters<u64>, refused: impl Iterator<Item = Refused>) -> Counters {
        let RuntimeCounters { received, unreadable, out, overflowed, events_dropped } = *runtime;
        let nothing = Counters { received, unreadable, out, overflowed, events_dropped, ..Counters::default() };
        refused.fold(nothing, |sum, refused| Counters {
            strangers: sum.strangers + refused.strangers,
            untrue: sum.untrue + refused.untrue,
            flows_refused: sum.flows_refused + refused.flows,
            ..sum
        })
    }
}
