//! Flows on UDP sockets: [`Senders`] drives flow senders, [`Receivers`] drives flow receivers,
//! each in one thread and over any number of sockets.
//!
//! Neither starts a thread nor opens a socket: whoever calls `turn` again and again is the
//! driver, and sockets may come from a network namespace of their own. Data leaves as
//! segments of one send where several packets go to one destination at once, arrives many
//! datagrams a system call, and ACKs leave together. What comes from strangers is counted
//! and changes nothing; nothing here is encrypted, so whoever sees the packets can forge them.

mod content;
mod port;
mod received;
mod receivers;
mod senders;
mod spec;
mod timers;
mod wait;

pub use content::{Pattern, Sink, Source};
pub use received::{Accept, FlowKey, ReceiverConfig, ReceiverEvent, Report};
pub use receivers::Receivers;
pub use senders::Senders;
pub use spec::{EndReason, FlowId, FlowSpec, OpenError, SenderEvent};
pub use wait::Waker;

use std::collections::VecDeque;

use crate::send_queue::SendCounters;

/// Events that wait for their reader at most; the oldest are dropped then.
const MAX_EVENTS: usize = 1 << 16;

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
    /// What left.
    pub out: SendCounters,
}

/// Events in order, of which the oldest are dropped.
#[derive(Debug)]
struct Events<T> {
    queue: VecDeque<T>,
    /// Some came since the last turn ended: their reader must not wait for the next.
    fresh: bool,
}

impl<T> Default for Events<T> {
    fn default() -> Events<T> {
        Events { queue: VecDeque::new(), fresh: false }
    }
}

impl<T> Events<T> {
    fn push(&mut self, event: T, counters: &mut Counters) {
        if self.queue.len() == MAX_EVENTS {
            self.queue.pop_front();
            counters.events_dropped += 1;
        }
        self.queue.push_back(event);
        self.fresh = true;
    }

    fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }
}
