//! One document out of many votes, the same in whatever order they have come.
//!
//! A relay is listed if the same descriptor of it is in at least t votes. With no more than f = a − t
//! authorities that lie, at least t − f = 2t − a ≥ 1 honest ones have seen it so, and no relay that t
//! honest ones have seen is left out. It has been there since the (f + 1)-th earliest time that its
//! votes name: nobody is made older by liars than an honest authority knows it. Its weight is
//!
//! ```text
//! w = min(b, 4 B) r        b: what it says that it carries; B: the median of that
//! r = max(1/8, min(1, age / M))        M = min(8 days, the median age)
//! ```
//!
//! What relays say that they carry nobody measures here, so one lie is worth four typical relays at
//! most. The ramp follows Tor's rule for guards: at least eight days, or as long as the median relay, if
//! that is less (dir-spec, "Guard"), so that who adds many relays at once gets little for days. That a
//! newcomer begins with an eighth and not with nothing is ours: it is to be tried, and to be seen.
//!
//! Where a bound of the document leaves places for some only, the oldest have them.

use std::collections::BTreeMap;

use super::clock::{DAY, UnixTime};
use super::descriptor::SignedDescriptor;
use super::document::{Document, MOST_PER_FAMILY, MOST_PER_NETWORK, MOST_RELAYS, Member, Terms, count};
use super::hash::DocumentHash;
use super::keys::PublicKey;
use super::network::Network;
use super::trust::Trust;
use super::vote::Vote;

/// The age at which a relay has its whole weight, and may be a guard, in seconds; less in a young network.
pub const MATURE_AGE: u64 = 8 * DAY;

/// What a newcomer's weight is divided by.
const NEWCOMER: u64 = 8;

/// How many typical relays one may say that it is.
const MOST_TYPICAL: u64 = 4;

/// When a document is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From when on.
    pub from: UnixTime,
    /// Until when.
    pub until: UnixTime,
}

/// A descriptor, and since when each of those that vouch for it has known its relay.
type Vouched<'a> = (&'a SignedDescriptor, Vec<UnixTime>);

/// The document that follows from `votes`, of which each author has one. Votes for another epoch count
/// for nothing. `known` says whether a descriptor's signature was checked before.
pub fn merge(
    votes: &[&Vote],
    trust: &Trust,
    epoch: u64,
    validity: Validity,
    terms: Terms,
    known: impl Fn(&[u8; 32]) -> bool,
) -> Document {
    let mut previous: Option<(u64, DocumentHash)> = None;
    let mut seen: BTreeMap<(PublicKey, [u8; 32]), Vouched<'_>> = BTreeMap::new();
    for vote in votes.iter().filter(|vote| vote.ballot.epoch == epoch) {
        if let Some(proof) = &vote.previous {
            let of = Some((proof.ballot.epoch, proof.hash));
            if proof.ballot.epoch < epoch && of > previous && proof.holds(trust) {
                previous = of;
            }
        }
        for relay in &vote.relays {
            let key = (relay.relay.descriptor.identity, relay.relay.hash());
            seen.entry(key).or_insert_with(|| (&relay.relay, Vec::new())).1.push(relay.since);
        }
    }
    let mut listed = Vec::new();
    for ((_, hash), (relay, mut times)) in seen {
        let enough = times.len() >= trust.threshold();
        if !enough || relay.descriptor.key_of(epoch).is_none() || !(known(&hash) || relay.check().is_ok()) {
            continue;
        }
        times.sort_unstable();
        let since = times[trust.faulty().min(times.len() - 1)].min(validity.from);
        listed.push((since, relay));
    }
    within_bounds(&mut listed);
    let members = weighed(&listed, validity.from);
    let previous = previous.map_or(DocumentHash::default(), |(_, hash)| hash);
    Document { epoch, valid_from: validity.from, valid_until: validity.until, previous, terms, members }
}

/// Leaves out whom the document has no place for, and brings the others into its order.
fn within_bounds(listed: &mut Vec<(UnixTime, &SignedDescriptor)>) {
    listed.sort_by_key(|(since, relay)| (*since, relay.descriptor.identity));
    let (mut families, mut networks, mut places) = (BTreeMap::new(), BTreeMap::new(), MOST_RELAYS);
    listed.retain(|(_, relay)| {
        let network = Network::of(relay.descriptor.address.ip());
        let family = relay.descriptor.family.map(|family| family.key);
        let has_room = places > 0
            && networks.get(&network).is_none_or(|&count| count < MOST_PER_NETWORK)
            && family.is_none_or(|family| families.get(&family).is_none_or(|&count| count < MOST_PER_FAMILY));
        if has_room {
            places -= 1;
            count(&mut networks, network);
            family.map(|family| count(&mut families, family));
        }
        has_room
    });
    listed.sort_by_key(|(_, relay)| relay.descriptor.identity);
}

/// The relays with their weights.
fn weighed(listed: &[(UnixTime, &SignedDescriptor)], now: UnixTime) -> Vec<Member> {
    let ages: Vec<u64> = listed.iter().map(|(since, _)| now.since(*since)).collect();
    let mature = low_median(ages.clone()).min(MATURE_AGE);
    let typical = low_median(listed.iter().map(|(_, relay)| relay.descriptor.bytes_per_s).collect());
    let most = typical.saturating_mul(MOST_TYPICAL);
    let member = |(&(since, relay), &age): (&(UnixTime, &SignedDescriptor), &u64)| {
        let descriptor = relay.descriptor.clone();
        let claimed = descriptor.bytes_per_s.min(most);
        let grown = match age < mature {
            // No overflow: an age below eight days times what fits 64 bits fits 128.
            true => (u128::from(claimed) * u128::from(age) / u128::from(mature)) as u64,
            false => claimed,
        };
        let weight = grown.max(claimed / NEWCOMER).max(1);
        Member { descriptor, since, weight, guard: age >= mature }
    };
    listed.iter().zip(&ages).map(member).collect()
}

/// The lower of the two middle values; 0 of none.
fn low_median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ballot::Ballot;
    use super::super::descriptor::Family;
    use super::super::keys::SecretKey;
    use super::super::testing::{authorities, descriptor, document, key, sign};
    use super::super::vote::{Proof, Seen};
    use super::*;

    const VALIDITY: Validity = Validity { from: UnixTime(30 * DAY), until: UnixTime(30 * DAY + 3600) };

    /// A vote for relays, each with the day since when its authority has known it.
    fn vote(author: &SecretKey, relays: &[(u16, u64)]) -> Vote {
        let seen = |&(number, day): &(u16, u64)| {
            let relay = descriptor(number).sign(&key(number)).unwrap();
            Seen { relay, since: UnixTime(day * DAY) }
        };
        let mut relays: Vec<Seen> = relays.iter().map(seen).collect();
        relays.sort();
        Vote { author: author.public(), ballot: Ballot::first(1), previous: None, lock: None, relays }
    }

    fn merged(votes: &[Vote], trust: &Trust) -> Document {
        let votes: Vec<&Vote> = votes.iter().collect();
        let document = merge(&votes, trust, 1, VALIDITY, Terms::default(), |_| false);
        assert_eq!(document.check(), Ok(()));
        document
    }

    fn numbers(document: &Document) -> Vec<u16> {
        let mut numbers: Vec<u16> = document
            .members
            .iter()
            .map(|m| (0..50).find(|&n| key(n).public() == m.descriptor.identity).unwrap())
            .collect();
        numbers.sort_unstable();
        numbers
    }

    #[test]
    fn a_relay_is_listed_that_t_authorities_have_seen_and_no_other() {
        let (keys, trust) = authorities(4, 3);
        let all = [(1, 0), (2, 0)];
        // Relay 3 was seen by two; the fourth authority lies, but that makes t with two honest ones
        // only where t - f of them have seen it, which is the rule.
        let votes = [vote(&keys[0], &all), vote(&keys[1], &[(1, 0), (3, 0)]), vote(&keys[2], &all)];
        assert_eq!(numbers(&merged(&votes, &trust)), [1]);
        let with_liar = [&votes[..], &[vote(&keys[3], &[(2, 0), (3, 0), (4, 0)])]].concat();
        assert_eq!(numbers(&merged(&with_liar, &trust)), [1, 2], "what only liars and too few name is not there");
    }

    #[test]
    fn two_descriptors_of_one_relay_do_not_add_up() {
        let (keys, trust) = authorities(3, 2);
        let mut other = descriptor(1);
        other.address.set_port(9);
        let other = Seen { relay: other.sign(&key(1)).unwrap(), since: UnixTime(0) };
        let votes = [vote(&keys[0], &[(1, 0)]), Vote { relays: vec![other], ..vote(&keys[1], &[]) }];
        assert!(merged(&votes, &trust).is_empty());
    }

    #[test]
    fn liars_make_no_relay_older_than_an_honest_authority_knows_it() {
        let (keys, trust) = authorities(3, 2);
        let votes = [vote(&keys[0], &[(1, 20)]), vote(&keys[1], &[(1, 21)]), vote(&keys[2], &[(1, 0)])];
        assert_eq!(merged(&votes, &trust).members[0].since, UnixTime(20 * DAY));
        assert_eq!(merged(&votes[1..], &trust).members[0].since, UnixTime(21 * DAY));
    }

    #[test]
    fn weight_grows_with_age_and_one_lie_is_worth_four_relays() {
        let (keys, trust) = authorities(1, 1);
        // Most are 30 days old; relay 9 is two days old, relay 10 new.
        let ages: Vec<(u16, u64)> = (1..9).map(|n| (n, 0)).chain([(9, 28), (10, 30)]).collect();
        let mut vote = vote(&keys[0], &ages);
        for seen in &mut vote.relays {
            if seen.relay.descriptor.identity == key(1).public() {
                let greedy = super::super::Descriptor { bytes_per_s: u64::MAX, ..descriptor(1) };
                seen.relay = greedy.sign(&key(1)).unwrap();
            }
        }
        let document = merged(&[vote], &trust);
        let of = |n: u16| document.member(document.index_of(&key(n).public()).unwrap()).unwrap();
        assert_eq!((of(1).weight, of(2).weight), (4_000_000, 1_000_000));
        assert_eq!((of(9).weight, of(10).weight), (250_000, 125_000));
        assert_eq!((of(2).guard, of(9).guard, of(10).guard), (true, false, false));
    }

    #[test]
    fn a_young_network_has_guards() {
        let (keys, trust) = authorities(1, 1);
        let votes = [vote(&keys[0], &[(1, 30), (2, 30), (3, 30)])];
        assert!(merged(&votes, &trust).members.iter().all(|member| member.guard && member.weight == 1_000_000));
    }

    #[test]
    fn the_newest_document_that_enough_have_signed_is_the_one_before() {
        let (keys, trust) = authorities(3, 2);
        let proof = |document: &Document, signers: &[SecretKey]| {
            let signed = sign(document, signers);
            Some(Proof { ballot: signed.ballot(), hash: document.hash(), signatures: signed.signatures().to_vec() })
        };
        let (old, lie) = (document(0, 3), document(0, 4));
        let honest = Vote { previous: proof(&old, &keys[..2]), ..vote(&keys[0], &[]) };
        let liar = Vote { previous: proof(&lie, &keys[2..]), ..vote(&keys[2], &[]) };
        let later = Vote { previous: proof(&document(1, 3), &keys), ..vote(&keys[1], &[]) };
        assert_eq!(merged(&[honest, liar, later], &trust).previous, old.hash());
    }

    #[test]
    fn the_oldest_have_the_places() {
        let (keys, trust) = authorities(1, 1);
        let mut crowd = vote(&keys[0], &[]);
        for number in 0..12u16 {
            let mut in_one_network = descriptor(number);
            in_one_network.address = ([192, 0, 2, number as u8 + 1], 9).into();
            let since = UnixTime(u64::from(20 - number) * DAY);
            crowd.relays.push(Seen { relay: in_one_network.sign(&key(number)).unwrap(), since });
        }
        crowd.relays.sort();
        assert_eq!(numbers(&merged(&[crowd], &trust)), [4, 5, 6, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn a_false_claim_to_a_family_excludes_nobody_but_who_makes_it() {
        let (keys, trust) = authorities(3, 2);
        let family = key(900);
        let of_family = |number: u16| {
            let mut descriptor = descriptor(number);
            descriptor.family = Some(Family::admit(&family, &descriptor.identity));
            descriptor
        };
        // Sixty-four relays, the oldest of all, claim the family of two others, with what it signed for one of these.
        let claim = |number: u16| {
            let mut descriptor = descriptor(number);
            descriptor.family = of_family(1).family;
            let relay = SignedDescriptor::unchecked(descriptor, &key(number));
            Seen { relay, since: UnixTime(0) }
        };
        let honest = |number: u16| Seen { relay: of_family(number).sign(&key(number)).unwrap(), since: UnixTime(DAY) };
        let mut relays: Vec<Seen> = (10..10 + MOST_PER_FAMILY as u16).map(claim).chain([1, 2].map(honest)).collect();
        relays.sort();
        // Even if all authorities had let them pass.
        let votes: Vec<Vote> = keys.iter().map(|key| Vote { relays: relays.clone(), ..vote(key, &[]) }).collect();
        let document = merged(&votes, &trust);
        assert_eq!(numbers(&document), [1, 2]);
        assert!(document.members.iter().all(|member| member.family() == Some(family.public())));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn votes_give_one_document_in_any_order(
            seen in prop::collection::vec(prop::collection::btree_map(0u16..12, 0u64..30, 0..12), 5),
            shuffle in Just((0..5usize).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let (keys, trust) = authorities(5, 3);
            let relays: Vec<Vec<(u16, u64)>> = seen.iter().map(|of| of.iter().map(|(&n, &d)| (n, d)).collect()).collect();
            let votes: Vec<Vote> = keys.iter().zip(&relays).map(|(key, seen)| vote(key, seen)).collect();
            let shuffled: Vec<Vote> = shuffle.iter().map(|&i| votes[i].clone()).collect();
            let document = merged(&votes, &trust);
            prop_assert_eq!(&document, &merged(&shuffled, &trust));
            for number in 0..12 {
                let vouching = seen.iter().filter(|of| of.contains_key(&number)).count();
                prop_assert_eq!(document.index_of(&key(number).public()).is_some(), vouching >= 3);
            }
        }
    }
}
