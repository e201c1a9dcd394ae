//! Processor time for set-ups, which cost an agreement each before anybody knows whether they are genuine: this many a
//! second, and in such an order that whoever floods a relay with them leaves the others theirs.
//!
//! Whom a relay can place, a member or a client that hangs on it, may take an eighth of the budget by itself whatever
//! the others do. What is beyond that, and all set-ups of strangers, take what is left over: they find the budget used
//! up while less than half of what may be done at once is left.
//!
//! A member's address can be forged by whoever sends from a network that lets it (RFC 2827): eight forged members take
//! all. So a flood from there is bounded in what it costs, and not in whom it pushes out.

use core::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};

use anabranch_control::time::{Duration, Time};
use anabranch_proto::token_bucket::TokenBucket;

/// Of the budget, what one sender may take by itself is one part of this many.
const SHARES: u64 = 8;

/// Senders that are kept apart; those of one place share.
const PLACES: usize = 256;

/// Who sends, as far as a relay knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// One that the relay does not tell from others: all is its.
    Any,
    /// A member, or a client that hangs on the relay, at this address.
    Known(IpAddr),
    /// Somebody.
    Stranger,
}

/// The budget.
#[derive(Debug)]
pub(super) struct Budget {
    each: Duration,
    at_once: u64,
    all: TokenBucket,
    /// Each sender's own, by a keyed hash: nobody chooses with whom it shares one.
    own: Box<[TokenBucket; PLACES]>,
    hasher: ahash::RandomState,
}

impl Budget {
    /// This many agreements a second, and this many at once after a pause.
    pub fn new(per_s: u64, at_once: u64, [one, other]: [u64; 2]) -> Budget {
        Budget {
            each: Duration::SECOND / per_s.clamp(1, Duration::SECOND.as_nanos()),
            at_once: at_once.max(1),
            all: TokenBucket::default(),
            own: Box::new([TokenBucket::default(); PLACES]),
            hasher: ahash::RandomState::with_seeds(other, one, !one, !other),
        }
    }

    /// Whether one more may be done for `sender`, which is counted then.
    pub fn admit(&mut self, now: Time, sender: Sender) -> bool {
        let has_share = match sender {
            Sender::Any => true,
            Sender::Known(address) => {
                let place = self.hasher.hash_one(network(address)) as usize % PLACES;
                self.own[place].take(now, self.each * SHARES, (self.at_once / SHARES).max(1))
            }
            Sender::Stranger => false,
        };
        let depth = if has_share { self.at_once } else { (self.at_once / 2).max(1) };
        self.all.take(now, self.each, depth)
    }
}

/// Who has one address of IPv6 has all of a /64.
fn network(address: IpAddr) -> impl Hash {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(host: u8) -> Sender {
        Sender::Known(IpAddr::from([192, 0, 2, host]))
    }

    /// What `senders` get in a second, if each of them tries so often in each millisecond.
    fn second(budget: &mut Budget, senders: &[(Sender, u32)]) -> Vec<u32> {
        let mut got = vec![0; senders.len()];
        for ms in 0..1000 {
            let now = Time::ZERO + Duration::from_millis(5000 + ms);
            for ((sender, tries), got) in senders.iter().zip(&mut got) {
                *got += (0..*tries).map(|_| u32::from(budget.admit(now, *sender))).sum::<u32>();
            }
        }
        got
    }

    #[test]
    fn strangers_and_the_greedy_leave_others_their_share() {
        // Floods come before the quiet one in each millisecond, which is the worst for it.
        let flood = [(Sender::Stranger, 1000), (known(1), 1000), (known(2), 1)];
        let mut budget = Budget::new(10_000, 1_000, [1, 2]);
        let got = second(&mut budget, &flood);
        assert_eq!(got[2], 1000, "a thousand a second are less than an eighth of the budget: {got:?}");
        assert!(got.iter().sum::<u32>() <= 11_000, "{got:?}");
    }

    #[test]
    fn who_is_alone_has_all_of_the_budget_but_for_a_reserve() {
        for sender in [Sender::Any, known(1), Sender::Stranger] {
            let got = second(&mut Budget::new(10_000, 1_000, [1, 2]), &[(sender, 100)]);
            assert!((10_000..=11_000).contains(&got[0]), "{sender:?}: {got:?}");
        }
    }

    #[test]
    fn addresses_of_one_network_of_ipv6_are_one_sender() {
        let of =
            |last: u16, network: u16| Sender::Known(Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, last).into());
        let one: Vec<_> = (0..8).map(|last| (of(last, 1), 100)).chain([(of(1, 2), 1)]).collect();
        let got = second(&mut Budget::new(10_000, 1_000, [1, 2]), &one);
        assert_eq!(got[8], 1000, "{got:?}");
    }
}
