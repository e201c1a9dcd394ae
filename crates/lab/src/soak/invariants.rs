//! What must hold whatever happens, and the observer that watches relays.

use std::fmt;

use anabranch_control::time::Time;
use anabranch_proto::limiter::{LimitModel, WINDOW};
use anabranch_proto::overlay::wire::OwnedDatagram;
use anabranch_sim::fabric::NodeId;
use serde::Serialize;

use super::case::RelayLimit;
use super::node::Node;
use crate::world::Observer;

/// A rule that nothing may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// What is published is whole and equal to what was sent; what a sender calls arrived is there.
    Whole,
    /// A file fails only for what has happened.
    Reason,
    /// A sender ends within a bound of simulated time, with success or an error.
    Ends,
    /// What machines remember is bounded.
    Memory,
    /// A relay forwards no more than its limit.
    Limit,
    /// No machine waits for an instant that has passed.
    Timer,
    /// Time goes on: this many events at most in a simulated second.
    Progress,
    /// No machine panics.
    Panic,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Invariant::Whole => "a published file is whole",
            Invariant::Reason => "a file fails only for what has happened",
            Invariant::Ends => "a sender ends in time",
            Invariant::Memory => "memory is bounded",
            Invariant::Limit => "a relay holds to its limit",
            Invariant::Timer => "no timer is in the past",
            Invariant::Progress => "time goes on",
            Invariant::Panic => "no machine panics",
        })
    }
}

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// How.
    pub what: String,
}

impl Violation {
    pub(super) fn new(invariant: Invariant, what: impl Into<String>) -> Violation {
        Violation { invariant, what: what.into() }
    }
}

/// What one relay has sent, counted as its limit says.
#[derive(Clone, Debug)]
enum Count {
    /// Bytes in the window that ends at `ends`.
    Window { phase: u64, window: u64, bytes: u64, most: u64 },
    /// A bucket that leaks at the limit, in bytes times 10^9, and its depth.
    Bucket { level: u128, depth: u128, rate: u128, at: Time },
}

/// What is added to a bucket's depth for each packet, as times are whole nanoseconds: the bytes
/// of three nanoseconds.
const ROUNDING_NANOS: u128 = 3;

impl Count {
    /// For a relay whose packets are no longer than `packet`.
    fn new(limit: &RelayLimit, packet: u64) -> Count {
        let rate = limit.rate.bytes_per_sec();
        let bucket = |depth: f64| {
            let scaled = |bytes: f64| (bytes * 1e9) as u128;
            Count::Bucket { level: 0, depth: scaled(depth + 1.0), rate: rate.ceil() as u128, at: Time::ZERO }
        };
        match limit.model {
            LimitModel::Window { phase } => {
                Count::Window { phase: phase.as_nanos(), window: 0, bytes: 0, most: (limit.rate * WINDOW).get() }
            }
            LimitModel::Bucket { depth } => bucket(depth.get() as f64),
            // A packet is taken while those before it are served within the longest wait.
            LimitModel::Queue { longest } => bucket(rate * longest.as_secs_f64() + packet as f64),
        }
    }

    /// Counts `size` bytes; how much more than the limit was sent, if it was.
    fn add(&mut self, now: Time, size: u64) -> Option<u64> {
        match self {
            Count::Window { phase, window, bytes, most } => {
                // Window 0 is what is before the first that begins at the phase.
                let current = (now.as_nanos() + WINDOW.as_nanos() - *phase) / WINDOW.as_nanos();
                if current != *window {
                    (*window, *bytes) = (current, 0);
                }
                *bytes += size;
                bytes.checked_sub(*most).filter(|over| *over > 0)
            }
            Count::Bucket { level, depth, rate, at } => {
                let leaked = u128::from(now.since(*at).as_nanos()) * *rate;
                *at = now;
                *level = (level.saturating_sub(leaked) + u128::from(size) * 1_000_000_000)
                    .saturating_sub(ROUNDING_NANOS * *rate);
                level.checked_sub(*depth).map(|over| (over / 1_000_000_000) as u64)
            }
        }
    }
}

/// Watches what honest relays forward.
#[derive(Clone, Debug)]
pub struct Watch {
    limits: Vec<RelayLimit>,
    packet: u64,
    counts: Vec<Option<Count>>,
    violation: Option<Violation>,
}

impl Watch {
    /// Over the relays 0, 1, ... with these limits, and packets no longer than `packet`; of those
    /// that are `honest`.
    pub fn new(limits: &[RelayLimit], honest: impl Fn(usize) -> bool, packet: u64) -> Watch {
        let counts = limits.iter().enumerate().map(|(node, limit)| honest(node).then(|| Count::new(limit, packet)));
        Watch { packet, counts: counts.collect(), limits: limits.to_vec(), violation: None }
    }

    /// A relay was restarted, and does not know what it has forwarded.
    pub fn restart(&mut self, node: NodeId) {
        if let Some(Some(count)) = self.counts.get_mut(node.index()) {
            *count = Count::new(&self.limits[node.index()], self.packet);
        }
    }

    /// What was seen, if something was.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }
}

impl Observer<Node> for Watch {
    fn on_sent(&mut self, now: Time, from: NodeId, _: NodeId, datagram: &OwnedDatagram) {
        if let Some(Some(count)) = self.counts.get_mut(from.index())
            && let Some(over) = count.add(now, datagram.len() as u64)
            && self.violation.is_none()
        {
            let limit = self.limits[from.index()];
            let what = format!("relay {} forwarded {over} B more than {limit:?} allows, at {now}", from.0);
            self.violation = Some(Violation::new(Invariant::Limit, what));
        }
    }
}
