//! The few relays that a user's packets enter by, and leave by: guards, kept for months.
//!
//! Who runs a share p of the relays sees a user's end of the traffic with probability 1 − (1 − p)^g, and
//! keeps seeing it only for as long as the user keeps that guard. With fresh first hops it sees some
//! packet of every user within seconds. So a guard is kept by name over restarts, and one that fails is
//! waited for: an adversary that could make a user try one guard after the other would only have to
//! knock the honest ones out until one of its own is tried.
//!
//! The rules are those of Tor's guard-spec, with smaller numbers where users here have fewer needs:
//!
//! - A user has g guards in use, g from 0 to [`MOST_GUARDS`]; 0 is MORE to the letter, any first hop.
//! - A guard is kept for 120 days (`GUARD_LIFETIME`), a tenth more or less, so that not all end together.
//! - One that no document lists is dropped after 20 days (`REMOVE_UNLISTED_GUARDS_AFTER`), and is not
//!   used meanwhile.
//! - While one of the g works, no other is tried. If none does, a spare is, in the order in which they
//!   were drawn; and within 30 days no more than g + [`SPARES`] guards are drawn in all. Then the user
//!   waits.
//! - A guard that failed is tried again after 5 s, and after twice as long each time, up to ten minutes.

use std::collections::BTreeMap;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use serde::{Deserialize, Serialize};

use crate::RelayIndex;
use crate::directory::clock::{DAY, UnixTime};
use crate::directory::{Document, Member, PublicKey};

/// Guards that a user may have in use.
pub const MOST_GUARDS: usize = 8;

/// Guards beyond those in use that may be drawn within [`PERIOD`].
pub const SPARES: usize = 2;

/// In this time, in seconds, the number of guards that are drawn is bounded.
pub const PERIOD: u64 = 30 * DAY;

/// A guard is kept for this, in seconds.
pub const LIFETIME: u64 = 120 * DAY;

/// A guard that is in no document for this is dropped, in seconds.
pub const DROPPED_AFTER: u64 = 20 * DAY;

const FIRST_RETRY: Duration = Duration::from_millis(5_000);
const LAST_RETRY: Duration = Duration::from_millis(600_000);

/// One that was drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    identity: PublicKey,
    /// When it was drawn; none in what was written down before that was.
    #[serde(default)]
    drawn: Option<UnixTime>,
    until: UnixTime,
    /// Since when no document lists it.
    unlisted: Option<UnixTime>,
}

/// What must outlive a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardState {
    /// In the order in which they were drawn.
    kept: Vec<Kept>,
    /// When guards were drawn, of which some may have been dropped since.
    drawn: Vec<UnixTime>,
}

/// A guard that a user has, as it is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Which.
    pub identity: PublicKey,
    /// When it was drawn, if that is known.
    pub at: Option<UnixTime>,
    /// Until when it is kept.
    pub until: UnixTime,
}

impl GuardState {
    /// Who was drawn, and is kept.
    pub fn identities(&self) -> impl Iterator<Item = PublicKey> + '_ {
        self.kept.iter().map(|kept| kept.identity)
    }

    /// The guards, in the order in which they were drawn; spares are among them.
    pub fn drawn(&self) -> impl Iterator<Item = Drawn> {
        self.kept.iter().map(|kept| Drawn { identity: kept.identity, at: kept.drawn, until: kept.until })
    }
}

/// One that does not answer.
#[derive(Clone, Copy, Debug)]
struct Failing {
    tries: u32,
    retry_at: Time,
}

/// A user's guards.
#[derive(Clone, Debug)]
pub struct Guards {
    count: usize,
    state: GuardState,
    failing: BTreeMap<PublicKey, Failing>,
    /// When they were chosen last: whoever was to be tried again by then has been considered.
    chosen_at: Time,
}

/// Which guards a user's packets take now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Those in use, of which each packet takes one. Empty if none answers, and with g = 0.
    pub in_use: Vec<RelayIndex>,
    /// All that were ever drawn and are listed: they serve nowhere else on this user's paths.
    pub reserved: Vec<RelayIndex>,
    /// Whether [`Guards::state`] has changed, and is to be written down before a packet leaves.
    pub changed: bool,
}

impl Choice {
    /// Those of `relays` that a session of this user may end at: no guard of its, and none of a guard's family or
    /// network while there are others. Who runs a guard sees when its user sends, by whatever guard a packet went;
    /// and with a single guard no path has both.
    pub fn ends(&self, document: &Document, relays: impl IntoIterator<Item = RelayIndex>) -> Vec<RelayIndex> {
        let guards: Vec<&Member> = self.reserved.iter().filter_map(|guard| document.member(*guard)).collect();
        let is_apart = |relay: &RelayIndex| {
            document.member(*relay).is_some_and(|member| guards.iter().all(|guard| !guard.is_near(member)))
        };
        let free = relays.into_iter().filter(|relay| !self.reserved.contains(relay));
        let (apart, near): (Vec<RelayIndex>, Vec<RelayIndex>) = free.partition(is_apart);
        if apart.is_empty() { near } else { apart }
    }
}

impl Guards {
    /// `count` guards, going on from what was written down.
    ///
    /// # Panics
    ///
    /// When `count` is above [`MOST_GUARDS`].
    pub fn new(count: usize, mut state: GuardState) -> Guards {
        assert!(count <= MOST_GUARDS, "a user has at most {MOST_GUARDS} guards");
        // What was written down may have been written by anybody: it takes no more than it ever could.
        state.kept.truncate(4 * (MOST_GUARDS + SPARES));
        state.drawn.truncate(4 * (MOST_GUARDS + SPARES));
        Guards { count, state, failing: BTreeMap::new(), chosen_at: Time::ZERO }
    }

    /// How many a user has, g.
    pub fn count(&self) -> usize {
        self.count
    }

    /// What must outlive a restart.
    pub fn state(&self) -> &GuardState {
        &self.state
    }

    /// A guard answers.
    pub fn on_success(&mut self, guard: &PublicKey) {
        self.failing.remove(guard);
    }

    /// A guard does not answer, or has dropped its session.
    pub fn on_failure(&mut self, guard: &PublicKey, now: Time) {
        if self.state.kept.iter().all(|kept| kept.identity != *guard) {
            return;
        }
        let failing = self.failing.entry(*guard).or_insert(Failing { tries: 0, retry_at: now });
        let wait = Duration::from_nanos(FIRST_RETRY.as_nanos() << failing.tries.min(7));
        failing.retry_at = now + wait.min(LAST_RETRY);
        failing.tries += 1;
    }

    /// When one that failed may be tried again that was not when they were chosen last, if there is one:
    /// [`Guards::choose`] then considers it.
    pub fn retry_at(&self) -> Option<Time> {
        self.failing.values().map(|failing| failing.retry_at).filter(|at| *at > self.chosen_at).min()
    }

    /// The guards to use at `now`, by the document; draws what is missing and may be drawn.
    pub fn choose(&mut self, document: &Document, now: Time, wall: UnixTime, rng: &mut Rng) -> Choice {
        let before = self.state.clone();
        self.chosen_at = now;
        self.review(document, wall);
        let mut in_use = self.usable(document, now);
        // All g of them first; then one more at a time, and only while none answers.
        while self.listed(document).count() < self.count || (in_use.is_empty() && self.count > 0) {
            if !self.draw(document, wall, rng) {
                break;
            }
            in_use = self.usable(document, now);
        }
        let reserved = self.listed(document).map(|(relay, _)| relay).collect();
        Choice { in_use, reserved, changed: self.state != before }
    }

    /// Drops those whose time is over.
    fn review(&mut self, document: &Document, wall: UnixTime) {
        for kept in &mut self.state.kept {
            kept.unlisted = match document.index_of(&kept.identity) {
                Some(_) => None,
                None => kept.unlisted.or(Some(wall)),
            };
        }
        self.state
            .kept
            .retain(|kept| kept.until > wall && kept.unlisted.is_none_or(|since| wall.since(since) < DROPPED_AFTER));
        self.state.drawn.retain(|drawn| wall.since(*drawn) < PERIOD);
        let kept = &self.state.kept;
        self.failing.retain(|identity, _| kept.iter().any(|kept| kept.identity == *identity));
    }

    /// Those that the document lists, in the order in which they were drawn.
    fn listed<'a>(&'a self, document: &'a Document) -> impl Iterator<Item = (RelayIndex, &'a Kept)> {
        self.state.kept.iter().filter_map(|kept| Some((document.index_of(&kept.identity)?, kept)))
    }

    /// Of the first g those that answer, or else the first spare that does.
    fn usable(&self, document: &Document, now: Time) -> Vec<RelayIndex> {
        let answers = |kept: &Kept| self.failing.get(&kept.identity).is_none_or(|failing| failing.retry_at <= now);
        let first: Vec<RelayIndex> =
            self.listed(document).take(self.count).filter(|(_, kept)| answers(kept)).map(|(relay, _)| relay).collect();
        if !first.is_empty() || self.count == 0 {
            return first;
        }
        let mut spares = self.listed(document).skip(self.count).filter(|(_, kept)| answers(kept));
        spares.next().map(|(relay, _)| relay).into_iter().collect()
    }

    /// Draws one more, by weight, of another family and network than those there are; false if there
    /// is none, or no more may be drawn.
    fn draw(&mut self, document: &Document, wall: UnixTime, rng: &mut Rng) -> bool {
        if self.state.drawn.len() >= self.count + SPARES {
            return false;
        }
        let kept: Vec<&Member> = self.listed(document).filter_map(|(relay, _)| document.member(relay)).collect();
        let is_free = |member: &Member| kept.iter().all(|other| !other.is_near(member));
        // One that is a user's guard is no exit of that user. A network that begins may list its only exit before most
        // relays: as a guard, for months, it would leave the user none.
        let exits = || document.members.iter().filter(|member| member.descriptor.exit.is_exit() && is_free(member));
        let is_last_exit =
            |member: &Member| member.descriptor.exit.is_exit() && exits().all(|exit| exit.is_near(member));
        let may_be_drawn = |member: &&Member| member.guard && is_free(member) && !is_last_exit(member);
        let free: Vec<&Member> = document.members.iter().filter(may_be_drawn).collect();
        // Exits are scarce.
        let has_others = free.iter().any(|member| !member.descriptor.exit.is_exit());
        let drawn = |member: &&&Member| !(has_others && member.descriptor.exit.is_exit());
        let total: u128 = free.iter().filter(drawn).map(|member| u128::from(member.weight)).sum();
        let mut left = (rng.uniform() * total as f64) as u128;
        let chosen = free.iter().filter(drawn).find(|member| match left.checked_sub(u128::from(member.weight)) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        let Some(member) = chosen else { return false };
        let until = wall.after((LIFETIME as f64 * (0.9 + 0.2 * rng.uniform())) as u64);
        self.state.kept.push(Kept { identity: member.descriptor.identity, drawn: Some(wall), until, unlisted: None });
        self.state.drawn.push(wall);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::document;
    use crate::directory::{ExitPolicy, ExitRule, Family, Protocol};

    const WALL: UnixTime = UnixTime(1_000 * DAY);

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    fn identity(document: &Document, relay: RelayIndex) -> PublicKey {
        document.member(relay).unwrap().descriptor.identity
    }

    #[test]
    fn p12_guards_persist_over_a_restart() {
        let document = document(1, 50);
        let mut rng = Rng::stream(1, "guards");
        let mut guards = Guards::new(2, GuardState::default());
        let first = guards.choose(&document, at(0.0), WALL, &mut rng);
        assert_eq!((first.in_use.len(), first.changed), (2, true));
        assert!(!guards.choose(&document, at(1.0), WALL, &mut rng).changed);
        let state = postcard::to_allocvec(guards.state()).unwrap();
        let mut restarted = Guards::new(2, postcard::from_bytes(&state).unwrap());
        let again = restarted.choose(&document, at(0.0), WALL.after(DAY), &mut Rng::stream(2, "guards"));
        assert_eq!((again.in_use, again.changed), (first.in_use.clone(), false));
        // They are as old as they are, and not as what reads them.
        let drawn: Vec<Drawn> = restarted.state().drawn().collect();
        assert!(drawn.len() == 2 && drawn.iter().all(|guard| guard.at == Some(WALL) && guard.until > WALL.after(DAY)));
        // And over another document, in which their places are others.
        let mut other = crate::directory::testing::document(2, 80);
        other.members.retain(|member| {
            document.index_of(&member.descriptor.identity).is_none_or(|i| i.0 % 3 > 0 || first.in_use.contains(&i))
        });
        let moved = restarted.choose(&other, at(0.0), WALL.after(DAY), &mut rng);
        let names = |document: &Document, choice: &[RelayIndex]| {
            choice.iter().map(|relay| identity(document, *relay)).collect::<Vec<_>>()
        };
        assert_eq!(names(&other, &moved.in_use), names(&document, &first.in_use));
    }

    #[test]
    fn one_that_is_tried_again_is_chosen_once_and_not_ever_again_until_it_answers() {
        let document = document(1, 50);
        let mut rng = Rng::stream(1, "guards");
        let mut guards = Guards::new(2, GuardState::default());
        let first = guards.choose(&document, at(0.0), WALL, &mut rng).in_use;
        for (relay, failed) in first.iter().zip([0.0, 1.0]) {
            guards.on_failure(&identity(&document, *relay), at(failed));
        }
        assert_eq!(guards.retry_at(), Some(at(5.0)));
        let again = guards.choose(&document, at(5.0), WALL, &mut rng).in_use;
        assert_eq!(again, first[..1]);
        assert_eq!(guards.retry_at(), Some(at(6.0)), "the other; of the one it is not known whether it answers");
        assert_eq!(guards.choose(&document, at(6.0), WALL, &mut rng).in_use, first);
        assert_eq!(guards.retry_at(), None);
        guards.on_failure(&identity(&document, first[0]), at(8.0));
        assert_eq!(guards.retry_at(), Some(at(18.0)));
    }

    #[test]
    fn p12_failing_guards_are_not_rotated_through() {
        let document = document(1, 50);
        let mut rng = Rng::stream(1, "guards");
        let mut guards = Guards::new(2, GuardState::default());
        let mut tried = std::collections::BTreeSet::new();
        // Whatever is tried fails, for a month.
        for minute in 0..30 * 24 * 60 {
            let now = at(60.0 * f64::from(minute));
            let choice = guards.choose(&document, now, WALL.after(60 * minute as u64), &mut rng);
            for relay in choice.in_use {
                tried.insert(relay);
                guards.on_failure(&identity(&document, relay), now);
            }
        }
        assert_eq!(tried.len(), 2 + SPARES);
        // While one of the two works, no other is tried.
        let mut guards = Guards::new(2, GuardState::default());
        let first = guards.choose(&document, at(0.0), WALL, &mut rng);
        guards.on_failure(&identity(&document, first.in_use[0]), at(0.0));
        for second in 1..1_000 {
            let choice = guards.choose(&document, at(f64::from(second)), WALL, &mut rng);
            assert!(choice.in_use.iter().all(|relay| first.in_use.contains(relay)));
            assert_eq!(choice.reserved, first.reserved);
        }
    }

    #[test]
    fn a_guard_that_failed_is_tried_again_ever_more_seldom_and_comes_back() {
        let document = document(1, 50);
        let mut rng = Rng::stream(1, "guards");
        let mut guards = Guards::new(1, GuardState::default());
        let first = guards.choose(&document, at(0.0), WALL, &mut rng).in_use;
        let name = identity(&document, first[0]);
        guards.on_failure(&name, at(0.0));
        let spare = guards.choose(&document, at(0.0), WALL, &mut rng);
        assert!(spare.in_use.len() == 1 && spare.in_use != first && spare.changed, "a spare serves at once");
        assert!(spare.reserved.contains(&first[0]) && spare.reserved.len() == 2);
        assert_eq!(guards.retry_at(), Some(at(5.0)));
        assert_eq!(guards.choose(&document, at(5.0), WALL, &mut rng).in_use, first);
        guards.on_failure(&name, at(5.0));
        assert_eq!(guards.retry_at(), Some(at(15.0)));
        (0..20).for_each(|_| guards.on_failure(&name, at(15.0)));
        assert_eq!(guards.retry_at(), Some(at(615.0)));
        guards.on_success(&name);
        assert_eq!(guards.choose(&document, at(16.0), WALL, &mut rng).in_use, first);
    }

    #[test]
    fn a_guard_has_its_time_and_the_unlisted_are_dropped() {
        let mut document = document(1, 50);
        let mut rng = Rng::stream(1, "guards");
        let mut guards = Guards::new(1, GuardState::default());
        let first = guards.choose(&document, at(0.0), WALL, &mut rng).in_use;
        let later = guards.choose(&document, at(0.0), WALL.after(LIFETIME * 89 / 100), &mut rng);
        assert_eq!(later.in_use, first);
        let name = identity(&document, first[0]);
        document.members.retain(|member| member.descriptor.identity != name);
        let wall = WALL.after(LIFETIME * 89 / 100);
        let without = guards.choose(&document, at(0.0), wall, &mut rng);
        assert_eq!(without.in_use.len(), 1, "another one serves while it is not listed");
        assert!(guards.state().kept.iter().any(|kept| kept.identity == name));
        guards.choose(&document, at(0.0), wall.after(DROPPED_AFTER), &mut rng);
        assert!(guards.state().kept.iter().all(|kept| kept.identity != name));
    }

    #[test]
    fn guards_are_old_enough_of_different_networks_and_no_exits() {
        let mut document = document(1, 40);
        let accept = ExitRule { accept: true, protocol: Protocol::Tcp, net: None, ports: (443, 443) };
        for (place, member) in document.members.iter_mut().enumerate() {
            member.guard = place % 2 == 0;
            if place % 4 == 0 {
                member.descriptor.exit = ExitPolicy { rules: vec![accept] };
            }
            member.descriptor.address = ([10, 0, (place / 8) as u8, place as u8], 9).into();
        }
        for seed in 0..50 {
            let choice =
                Guards::new(3, GuardState::default()).choose(&document, at(0.0), WALL, &mut Rng::stream(seed, "g"));
            let places: Vec<u16> = choice.in_use.iter().map(|relay| relay.0).collect();
            assert!(places.len() == 3 && places.iter().all(|place| place % 4 == 2), "{places:?}");
            let networks: std::collections::BTreeSet<u16> = places.iter().map(|place| place / 8).collect();
            assert_eq!(networks.len(), 3);
        }
        assert!(
            Guards::new(0, GuardState::default())
                .choose(&document, at(0.0), WALL, &mut Rng::stream(1, "g"))
                .in_use
                .is_empty()
        );
    }

    #[test]
    fn the_last_exit_is_never_drawn() {
        let accept = ExitRule { accept: true, protocol: Protocol::Tcp, net: None, ports: (443, 443) };
        let with_exits = |relays, exits: usize| {
            let mut document = document(1, relays);
            let members = document.members.iter_mut().take(exits);
            members.for_each(|member| member.descriptor.exit = ExitPolicy { rules: vec![accept] });
            document
        };
        let mut rng = Rng::stream(3, "g");
        // A list of a network that begins: the rest comes later.
        let mut guards = Guards::new(3, GuardState::default());
        let first = guards.choose(&with_exits(2, 1), at(0.0), WALL, &mut rng);
        assert_eq!(first.in_use, [RelayIndex(1)]);
        let document = with_exits(6, 1);
        let choice = guards.choose(&document, at(1.0), WALL, &mut rng);
        assert!(choice.in_use.len() == 3 && !choice.in_use.contains(&RelayIndex(0)), "{choice:?}");
        assert_eq!(choice.ends(&document, [RelayIndex(0)]), [RelayIndex(0)]);
        // Where there are but exits, one is left.
        let alone = with_exits(3, 3);
        let choice = Guards::new(3, GuardState::default()).choose(&alone, at(0.0), WALL, &mut rng);
        assert_eq!(choice.in_use.len(), 2);
    }

    #[test]
    fn a_session_ends_at_no_guard_and_at_none_of_a_guards_family_while_there_are_others() {
        let mut document = document(1, 6);
        let family = crate::directory::testing::key(900);
        for place in [0, 1, 2] {
            let member = &mut document.members[place];
            member.descriptor.family = Some(Family::admit(&family, &member.descriptor.identity));
        }
        // Relay 3 is in the network of relay 4.
        document.members[3].descriptor.address = ([10, 0, 9, 1], 9).into();
        document.members[4].descriptor.address = ([10, 0, 9, 2], 9).into();
        let choice = |reserved: &[u16]| Choice {
            in_use: Vec::new(),
            reserved: reserved.iter().copied().map(RelayIndex).collect(),
            changed: false,
        };
        let ends = |reserved: &[u16], of: &[u16]| -> Vec<u16> {
            let relays = of.iter().copied().map(RelayIndex);
            choice(reserved).ends(&document, relays).iter().map(|relay| relay.0).collect()
        };
        let all = [0, 1, 2, 3, 4, 5];
        assert_eq!(ends(&[], &all), all);
        assert_eq!(ends(&[0], &all), [3, 4, 5]);
        assert_eq!(ends(&[0, 4], &all), [5]);
        assert_eq!(ends(&[0, 4], &[0, 1, 3]), [1, 3], "a session is better than none");
        assert_eq!(ends(&[0], &[0]), [], "a guard is no exit of its user");
    }

    #[test]
    fn no_two_guards_are_of_one_family() {
        let mut document = document(1, 12);
        for (place, member) in document.members.iter_mut().enumerate() {
            let family = crate::directory::testing::key(900 + place as u16 % 3);
            member.descriptor.family = Some(Family::admit(&family, &member.descriptor.identity));
        }
        for seed in 0..50 {
            let mut rng = Rng::stream(seed, "g");
            let choice = Guards::new(3, GuardState::default()).choose(&document, at(0.0), WALL, &mut rng);
            let families: std::collections::BTreeSet<u16> = choice.in_use.iter().map(|relay| relay.0 % 3).collect();
            assert_eq!((choice.in_use.len(), families.len()), (3, 3));
            // Of three families there is no fourth guard.
            let four = Guards::new(4, GuardState::default()).choose(&document, at(0.0), WALL, &mut rng);
            assert_eq!(four.in_use.len(), 3);
        }
    }

    /// With a share p of bad relays, 1 − (1 − p)^g of the users have a bad guard: within 3 σ.
    #[test]
    fn exposure_is_one_minus_the_power_of_g() {
        const USERS: u64 = 2_000;
        let document = document(1, 200);
        for (bad, guards) in [(10, 1), (20, 2), (40, 3)] {
            let exposed = (0..USERS).filter(|&user| {
                let mut rng = Rng::indexed(5, "guards", user);
                let choice = Guards::new(guards, GuardState::default()).choose(&document, at(0.0), WALL, &mut rng);
                choice.in_use.iter().any(|relay| relay.0 < bad)
            });
            let seen = exposed.count() as f64 / USERS as f64;
            let p = f64::from(bad) / 200.0;
            let expected = 1.0 - (1.0 - p).powi(guards as i32);
            let sigma = (expected * (1.0 - expected) / USERS as f64).sqrt();
            assert!((seen - expected).abs() < 3.0 * sigma, "{bad} bad, {guards} guards: {seen}, not {expected}");
        }
    }
}
