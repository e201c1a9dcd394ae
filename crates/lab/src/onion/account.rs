//! Where what relays could carry went, so that what is missing of the limit has a cause.
//!
//! With C what relays that carry anything may take, A what they took, B the relays that arrived packets passed, and W
//! what reading takes at least (`limit.rs`), all in packets:
//!
//! ```text
//! C = W + (C - A) + (A - B) + (B - W)
//!     read  idle      lost      beyond
//! ```
//!
//! Idle is what nobody asked for in time: rates are too low, or packets came unevenly. Lost was carried part of the way,
//! and then refused or dropped. Beyond the least are reports, blocks for nothing, what came twice, and loops.

use super::OnionTotals;

/// Shares of what relays can carry; with [`limit_share`](super::OnionMetrics::limit_share) they add up to 1. Not a number
/// without limits, or where greedy relays carry more than a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Account {
    /// What relays did not carry, though they could.
    pub idle: f64,
    /// What they carried of packets that did not arrive.
    pub lost: f64,
    /// What they carried of packets that arrived, beyond what reading takes at least.
    pub beyond: f64,
}

impl Account {
    /// Of what has happened since `before`, where relays could carry `capacity` packets, and `work` was the least for
    /// what was read over halves of `hops` relays.
    pub fn new(totals: &OnionTotals, before: &OnionTotals, capacity: f64, work: f64, hops: u64) -> Account {
        let since = |of: fn(&OnionTotals) -> u64| (of(totals) - of(before)) as f64;
        let carried = since(|totals| totals.carried);
        let to_services = since(|totals| totals.to_services) * hops as f64;
        let to_users = since(|totals| totals.received - totals.loops_returned) * (hops as f64 - 1.0);
        // Of what arrives first, some was carried before; no more is lost than is carried.
        let arrived = (to_services + to_users + since(|totals| totals.loop_hops)).min(carried);
        Account {
            idle: (capacity - carried) / capacity,
            lost: (carried - arrived) / capacity,
            beyond: (arrived - work) / capacity,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_on_its_way_when_counting_began_is_no_loss_that_was_gained() {
        let before = OnionTotals { carried: 100, to_services: 10, ..OnionTotals::default() };
        let totals = OnionTotals { carried: 130, to_services: 21, ..before.clone() };
        let account = Account::new(&totals, &before, 60.0, 24.0, 3);
        assert_eq!((account.idle, account.lost, account.beyond), (0.5, 0.0, 0.1));
    }
}
