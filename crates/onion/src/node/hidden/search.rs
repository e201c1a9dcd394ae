//! Finding a receiver by its address: the relays that keep its descriptor are asked one after the other.

use std::collections::BTreeMap;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use thiserror::Error;

use crate::RelayIndex;
use crate::directory::Document;
use crate::directory::PublicKey;
use crate::hidden::blind::blinded_key;
use crate::hidden::body::Answer;
use crate::hidden::descriptor::{PARTS, Part, SALT};
use crate::hidden::places::stores;
use crate::hidden::{Address, Descriptor};

/// A relay has so long to answer before the next one is asked as well.
const WAIT: Duration = Duration::from_millis(1_500);

/// Each is asked so often.
const ROUNDS: usize = 2;

/// After the last one answers are waited for so long.
const LAST_WAIT: Duration = Duration::from_millis(5_000);

/// Versions of which one part has come: more are none of ours.
const MOST_HALVES: usize = 16;

/// Why no receiver was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FindError {
    /// Relays that would know it do not.
    #[error(
        "nobody receives under this address now: {silent} of {asked} relays that would know where are silent, and the \
         others have not heard of it; is `anabranch onion receive` running there, with this key, in this network?"
    )]
    NotKnown {
        /// Relays asked.
        asked: usize,
        /// Relays that have not answered.
        silent: usize,
    },
    /// It was there before, and does not answer.
    #[error(
        "the receiver was there in this epoch, and does not answer at its mailboxes: it has gone, or all of them have; \
         what it said last is known to relays until the epoch ends"
    )]
    Gone,
    /// No relay that would know it answers.
    #[error("none of the {asked} relays that would know where the receiver is answers")]
    Silent {
        /// Relays asked.
        asked: usize,
    },
    /// All mailboxes are at guards of this user, or at relays that are not there.
    #[error(
        "the receiver's mailboxes are at relays that this user's packets cannot go to; try again when it has others"
    )]
    NoUsableMailbox,
}

/// What a search wants or has found.
#[derive(Debug)]
pub enum Step {
    /// This relay is to be asked.
    Ask(RelayIndex),
    /// Nothing now.
    Wait,
    /// The receiver is not to be found.
    Failed(FindError),
}

/// A search that goes on.
#[derive(Debug)]
pub struct Search {
    address: Address,
    key: PublicKey,
    places: Vec<RelayIndex>,
    asked: usize,
    answered: Vec<RelayIndex>,
    next_at: Time,
    halves: BTreeMap<(u64, [u8; SALT]), [Option<Part>; PARTS]>,
    /// Versions up to this one were tried, and led nowhere.
    older_than: u64,
    /// One of those was handed out again.
    is_stale: bool,
}

impl Search {
    /// Looks for `address` among the relays of `document`, none of which is one of `not`; for a version after
    /// `newer_than`.
    pub fn new(
        address: Address,
        document: &Document,
        not: &[RelayIndex],
        newer_than: u64,
        now: Time,
        mut rng: Rng,
    ) -> Search {
        let key = blinded_key(&address, document.epoch);
        let mut places = stores(document, &key);
        places.retain(|relay| !not.contains(relay));
        // Each sender begins elsewhere.
        for place in (1..places.len()).rev() {
            places.swap(place, rng.below(place + 1));
        }
        Search {
            address,
            key,
            places,
            asked: 0,
            answered: Vec::new(),
            next_at: now,
            halves: BTreeMap::new(),
            older_than: newer_than,
            is_stale: false,
        }
    }

    /// The receiver's key in the epoch.
    pub fn key(&self) -> PublicKey {
        self.key
    }

    /// What is to be done now.
    pub fn step(&mut self, now: Time) -> Step {
        if now < self.next_at {
            return Step::Wait;
        }
        let all = ROUNDS * self.places.len();
        if self.asked >= all {
            let asked = self.places.len();
            let silent = asked - self.answered.len();
            return Step::Failed(match silent {
                _ if self.is_stale => FindError::Gone,
                silent if silent == asked => FindError::Silent { asked },
                silent => FindError::NotKnown { asked, silent },
            });
        }
        let relay = self.places[self.asked % self.places.len()];
        self.asked += 1;
        self.next_at = now + if self.asked == all { LAST_WAIT } else { WAIT };
        if self.answered.contains(&relay) {
            self.next_at = now;
            return self.step(now);
        }
        Step::Ask(relay)
    }

    /// A relay has answered; the descriptor and its version, once both parts of one are there.
    pub fn on_answer(&mut self, now: Time, relay: RelayIndex, answer: Answer) -> Option<(u64, Descriptor)> {
        if !self.answered.contains(&relay) {
            self.answered.push(relay);
        }
        let Answer::Part(part) = answer else {
            // The next one may know.
            self.next_at = self.next_at.min(now);
            return None;
        };
        if part.key != self.key || !part.is_signed() {
            return None;
        }
        if part.version <= self.older_than {
            self.is_stale = true;
            self.next_at = self.next_at.min(now);
            return None;
        }
        let name = (part.version, part.salt);
        if self.halves.len() >= MOST_HALVES && !self.halves.contains_key(&name) {
            self.halves.pop_first();
        }
        let version = part.version;
        let halves = self.halves.entry(name).or_default();
        let place = usize::from(part.is_second);
        halves[place] = Some(*part);
        let [Some(first), Some(second)] = halves else { return None };
        let opened = Descriptor::open(&self.address, first, second);
        opened.ok().map(|descriptor| (version, descriptor))
    }

    /// When [`Search::step`] has something to do.
    pub fn timer(&self) -> Time {
        self.next_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::document;
    use crate::hidden::descriptor::tests::parts;

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn relays_are_asked_in_turn_until_both_parts_of_a_version_have_come() {
        let document = document(5, 40);
        let (secret, descriptor, [first, second]) = parts(1, 5, 8);
        let search = |newer| Search::new(secret.address(), &document, &[], newer, at(0), Rng::stream(1, "search"));
        let mut looking = search(7);
        let Step::Ask(one) = looking.step(at(0)) else { panic!("it asks") };
        assert!(matches!(looking.step(at(100)), Step::Wait));
        assert_eq!(looking.on_answer(at(200), one, Answer::NotKnown), None);
        let Step::Ask(other) = looking.step(at(200)) else { panic!("it asks the next at once") };
        assert_ne!(one, other);
        assert_eq!(looking.on_answer(at(300), other, Answer::Part(Box::new(first.clone()))), None);
        let (_, _, [_, newer]) = parts(1, 5, 9);
        assert_eq!(looking.on_answer(at(300), other, Answer::Part(Box::new(newer))), None);
        let mut forged = second.clone();
        forged.half[0] ^= 1;
        assert_eq!(looking.on_answer(at(300), other, Answer::Part(Box::new(forged))), None);
        let found = looking.on_answer(at(300), other, Answer::Part(Box::new(second.clone())));
        assert_eq!(found, Some((8, descriptor)));
        // One that led nowhere is not taken again.
        let mut again = search(8);
        again.on_answer(at(0), one, Answer::Part(Box::new(first)));
        assert_eq!(again.on_answer(at(0), one, Answer::Part(Box::new(second))), None);
        let mut now = at(0);
        let why = loop {
            match again.step(now) {
                Step::Failed(why) => break why,
                _ => now = again.timer().max(now),
            }
        };
        assert_eq!(why, FindError::Gone);
    }

    #[test]
    fn what_is_wrong_is_distinguished() {
        let document = document(5, 40);
        let (secret, ..) = parts(1, 5, 8);
        for knows in [0, 2] {
            let mut search = Search::new(secret.address(), &document, &[], 0, at(0), Rng::stream(1, "search"));
            let (mut now, mut asked) = (at(0), 0);
            let why = loop {
                match search.step(now) {
                    Step::Ask(relay) => {
                        asked += 1;
                        if asked <= knows {
                            search.on_answer(now, relay, Answer::NotKnown);
                        }
                    }
                    Step::Wait => now = search.timer(),
                    Step::Failed(why) => break why,
                }
            };
            match knows {
                0 => assert_eq!((why, asked), (FindError::Silent { asked: 6 }, 12)),
                _ => assert_eq!((why, asked), (FindError::NotKnown { asked: 6, silent: 4 }, 10)),
            }
            assert!(now < at(30_000));
        }
    }
}
