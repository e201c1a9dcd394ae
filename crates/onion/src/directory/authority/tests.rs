use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::super::testing::{authorities, descriptor, key};
use super::super::vote::Seen;
use super::super::{Descriptor, EpochKey, Terms};
use super::*;

const EPOCH_S: u64 = 100;
const ROUND: Duration = Duration::from_millis(2_000);
/// The wall when the machines' time is zero: 50 s into epoch 10.
const WALL_S: u64 = 10 * EPOCH_S + 50;

fn address(index: usize) -> SocketAddr {
    ([10, 200, 0, index as u8 + 1], 7000).into()
}

#[derive(Default)]
struct Outbox {
    sent: Vec<(SocketAddr, Message)>,
    events: Vec<AuthorityEvent>,
}

impl Out<Authority> for Outbox {
    fn send(&mut self, departure: Departure<SocketAddr>, message: &Message) {
        self.sent.push((departure.to, message.clone()));
    }

    fn event(&mut self, event: AuthorityEvent) {
        self.events.push(event);
    }

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

/// Authorities whose messages take 100 ms; who is silent sends nothing and gets nothing, who is held up does nothing
/// until it goes on, and then finds what has come meanwhile, and what is sent over a link that is cut is lost.
struct Group {
    keys: Vec<SecretKey>,
    threshold: usize,
    machines: Vec<Authority>,
    /// What each had written down when it was last told to.
    kept: Vec<AuthorityState>,
    silent: BTreeSet<usize>,
    held_up: BTreeSet<usize>,
    cut: BTreeSet<(usize, usize)>,
    /// Who has ever signed what, whether it reached anybody or not.
    signed: BTreeMap<(Ballot, DocumentHash), BTreeSet<PublicKey>>,
    now: Time,
    under_way: Vec<(Time, SocketAddr, SocketAddr, Message)>,
    events: BTreeMap<usize, Vec<AuthorityEvent>>,
}

const DELAY: Duration = Duration::from_millis(100);

fn config(keys: &[SecretKey], threshold: usize) -> AuthorityConfig {
    let authorities = keys.iter().enumerate().map(|(index, key)| (key.public(), address(index))).collect();
    AuthorityConfig {
        authorities,
        threshold,
        epoch_s: EPOCH_S,
        round: ROUND,
        valid_epochs: 3,
        packets_per_key: PacketsPerKey::STANDARD,
    }
}

fn secret(index: usize, count: usize, threshold: usize) -> SecretKey {
    let (mut keys, _) = authorities(count as u16, threshold);
    keys.swap_remove(index)
}

fn clock() -> WallClock {
    WallClock::new(Time::ZERO, core::time::Duration::from_secs(WALL_S))
}

impl Group {
    fn new(count: usize, threshold: usize) -> Group {
        let (keys, _) = authorities(count as u16, threshold);
        let config = config(&keys, threshold);
        let machine = |index| {
            let key = secret(index, count, threshold);
            Authority::new(config.clone(), key, clock(), Time::ZERO, AuthorityState::default()).unwrap()
        };
        let machines = (0..count).map(machine).collect();
        Group {
            keys,
            threshold,
            machines,
            kept: vec![AuthorityState::default(); count],
            silent: BTreeSet::new(),
            held_up: BTreeSet::new(),
            cut: BTreeSet::new(),
            signed: BTreeMap::new(),
            now: Time::ZERO,
            under_way: Vec::new(),
            events: BTreeMap::new(),
        }
    }

    fn deliver(&mut self, to: usize, from: SocketAddr, mut message: Message) -> Vec<(SocketAddr, Message)> {
        let mut out = Outbox::default();
        self.machines[to].on_message(self.now, Arrival::new(from), &mut message, &mut out);
        self.take(to, out)
    }

    fn take(&mut self, index: usize, out: Outbox) -> Vec<(SocketAddr, Message)> {
        if out.events.contains(&AuthorityEvent::Keep) {
            self.kept[index] = self.machines[index].state();
        }
        self.events.entry(index).or_default().extend(out.events);
        for (to, message) in &out.sent {
            if let Message::Signed(Statement { ballot, hash, signer, .. }) = message {
                self.signed.entry((*ballot, *hash)).or_default().insert(*signer);
            }
            let is_cut = self.cut.iter().any(|(from, other)| *from == index && address(*other) == *to);
            if !is_cut && !self.silent.contains(&index) {
                self.under_way.push((self.now + DELAY, address(index), *to, message.clone()));
            }
        }
        out.sent
    }

    /// Kills it and starts it anew with what it has written down.
    fn restart(&mut self, index: usize) {
        let (count, state) = (self.machines.len(), self.kept[index].clone());
        let state = postcard::from_bytes(&postcard::to_allocvec(&state).unwrap()).unwrap();
        let key = secret(index, count, self.threshold);
        self.machines[index] =
            Authority::new(config(&self.keys, self.threshold), key, clock(), self.now, state).unwrap();
        self.under_way.retain(|(_, _, to, _)| *to != address(index));
    }

    /// Documents of `epoch` for which there are enough signatures in the world.
    fn valid(&self, epoch: u64) -> BTreeSet<DocumentHash> {
        let of_epoch =
            self.signed.iter().filter(|((of, _), signers)| of.epoch == epoch && signers.len() >= self.threshold);
        of_epoch.map(|((_, hash), _)| *hash).collect()
    }

    fn run_until(&mut self, seconds: f64) {
        let end = Time::from_secs_f64(seconds);
        loop {
            let goes_on = |index: &usize| !self.held_up.contains(index);
            let timers =
                (0..self.machines.len()).filter(goes_on).map(|index| (index, self.machines[index].timer(self.now)));
            let timer = timers.min_by_key(|(_, timer)| *timer).unwrap_or((usize::MAX, Time::MAX));
            self.under_way.sort_by_key(|(at, ..)| *at);
            let reaches = |to: &SocketAddr| self.held_up.iter().all(|&index| address(index) != *to);
            let first = self.under_way.iter().position(|(_, _, to, _)| reaches(to));
            let arrival = first.map_or(Time::MAX, |first| self.under_way[first].0);
            if arrival.min(timer.1) > end {
                break;
            }
            if arrival <= timer.1 {
                let (at, from, to, message) = self.under_way.remove(first.expect("it arrives"));
                self.now = at.max(self.now);
                if let Some(index) = (0..self.machines.len()).find(|&index| address(index) == to)
                    && !self.silent.contains(&index)
                {
                    self.deliver(index, from, message);
                }
            } else {
                self.now = timer.1;
                let mut out = Outbox::default();
                self.machines[timer.0].on_timer(self.now, &mut out);
                self.take(timer.0, out);
            }
        }
        self.now = end;
    }

    fn upload(&mut self, relay: u16, to: &[usize]) {
        let descriptor = of_epochs(relay);
        let from = descriptor.address;
        let signed = descriptor.sign(&key(relay)).unwrap();
        for &index in to {
            let answer = self.deliver(index, from, Message::Upload(Box::new(signed.clone())));
            assert_eq!(answer, [(from, Message::Taken)]);
        }
        self.under_way.retain(|(_, _, to, _)| *to != from);
    }

    fn hashes(&self, epoch: u64) -> BTreeMap<usize, DocumentHash> {
        let published = self.events.iter().flat_map(|(index, events)| events.iter().map(move |event| (*index, event)));
        published
            .filter_map(|(index, event)| match event {
                AuthorityEvent::Published { epoch: of, hash, .. } if *of == epoch => Some((index, *hash)),
                _ => None,
            })
            .collect()
    }

    fn relays(&self, index: usize) -> usize {
        let (document, _) =
            self.machines[index].document().unwrap().clone().verify(&self.machines[index].trust).unwrap();
        document.len()
    }
}

/// A relay with keys for the epochs 11 to 13.
fn of_epochs(relay: u16) -> Descriptor {
    let epoch_keys = (11..14).map(|epoch| EpochKey { epoch, key: [9; 32] }).collect();
    Descriptor { epoch_keys, ..descriptor(relay) }
}

fn all_equal(hashes: &BTreeMap<usize, DocumentHash>) -> bool {
    hashes.values().collect::<BTreeSet<_>>().len() == 1
}

#[test]
fn authorities_sign_one_document_of_what_enough_have_seen() {
    let mut group = Group::new(3, 2);
    for relay in 0..5 {
        group.upload(relay, &[0, 1, 2]);
    }
    group.upload(5, &[0, 2]);
    group.upload(6, &[1]);
    group.run_until(50.5);
    let hashes = group.hashes(11);
    assert!(hashes.len() == 3 && all_equal(&hashes), "{hashes:?}");
    assert_eq!(group.relays(0), 6);
    group.run_until(150.5);
    let (second, _) = group.machines[1].document().unwrap().clone().verify(&group.machines[1].trust).unwrap();
    assert_eq!((second.epoch, second.previous), (12, hashes[&0]), "each follows the one before");
}

#[test]
fn as_many_as_a_minus_t_may_be_silent_and_no_more() {
    for (count, threshold, silent, agrees) in [(3, 2, 1, true), (3, 2, 2, false), (5, 3, 2, true), (5, 4, 2, false)] {
        let mut group = Group::new(count, threshold);
        group.silent = (0..silent).collect();
        let speaking: Vec<usize> = (silent..count).collect();
        group.upload(1, &speaking);
        group.run_until(51.0);
        let hashes = group.hashes(11);
        assert_eq!(hashes.len(), if agrees { count - silent } else { 0 }, "{silent} of {count} are silent");
        if agrees {
            assert!(all_equal(&hashes));
            assert_eq!(group.relays(count - 1), 1);
        }
    }
}

/// One authority shows two votes, each to one other: both are found, and neither is counted.
#[test]
fn who_votes_twice_is_found_and_not_counted() {
    let mut group = Group::new(4, 3);
    group.silent = [3].into();
    group.upload(1, &[0, 1, 2]);
    group.upload(2, &[0, 1]);
    let vote_starts = 50.0 - 4.0 * 2.0;
    group.run_until(vote_starts + 0.05);
    let liar = group.keys[3].public();
    let vote = |relays: &[u16]| {
        let mut relays: Vec<Seen> =
            relays.iter().map(|&n| Seen { relay: of_epochs(n).sign(&key(n)).unwrap(), since: UnixTime(0) }).collect();
        relays.sort();
        let vote = Vote { author: liar, ballot: Ballot::first(11), previous: None, lock: None, relays };
        Message::Vote(Box::new(EndorsedVote::new(vote, &group.keys[3])))
    };
    // With the liar's, relay 2 would have three votes at some and two at others.
    let votes = [vote(&[1, 2]), vote(&[1])];
    group.deliver(0, address(3), votes[0].clone());
    group.deliver(1, address(3), votes[1].clone());
    group.run_until(51.0);
    let hashes = group.hashes(11);
    assert!((0..3).all(|index| hashes.contains_key(&index)) && all_equal(&hashes), "{hashes:?}");
    assert_eq!(group.relays(0), 1);
    for index in 0..3 {
        assert!(group.events[&index].contains(&AuthorityEvent::Lies(liar)), "{index}");
    }
}

/// A vote that a liar shows in the last moment, to one honest authority alone, is not counted by it.
#[test]
fn a_vote_in_the_last_round_must_have_been_seen_by_an_honest_one() {
    let mut group = Group::new(4, 3);
    group.silent = [3].into();
    group.upload(1, &[0, 1, 2]);
    group.upload(2, &[0, 1]);
    // Two rounds of 2 s; in the second a vote with one endorsement comes too late.
    group.run_until(50.0 - 4.0 * 2.0 + 2.5);
    let relays = vec![Seen { relay: of_epochs(2).sign(&key(2)).unwrap(), since: UnixTime(0) }];
    let vote = Vote { author: group.keys[3].public(), ballot: Ballot::first(11), previous: None, lock: None, relays };
    let late = Message::Vote(Box::new(EndorsedVote::new(vote, &group.keys[3])));
    let sent = group.deliver(0, address(3), late);
    assert!(sent.is_empty() && group.machines[0].refused_votes() == 1);
    group.run_until(51.0);
    assert!(all_equal(&group.hashes(11)) && group.relays(0) == 1);
}

#[test]
fn descriptors_are_written_down_together_and_one_that_is_known_not_again() {
    let mut group = Group::new(1, 1);
    let keeps = |group: &Group| group.events[&0].iter().filter(|event| **event == AuthorityEvent::Keep).count();
    for relay in [1, 2, 1, 3] {
        group.upload(relay, &[0]);
        assert_eq!(keeps(&group), 0, "it is not written down for each");
    }
    assert!(group.machines[0].timer(group.now) <= group.now + ROUND);
    group.run_until(2.5);
    assert_eq!((group.kept[0].relays.len(), group.machines[0].keep_at), (3, Time::MAX));
    group.upload(1, &[0]);
    assert_eq!(group.machines[0].keep_at, Time::MAX);
}

#[test]
fn an_authority_whose_clock_was_set_votes_when_the_others_do() {
    for early_s in [-300i64, 300] {
        let mut group = Group::new(3, 2);
        let wrong = core::time::Duration::from_secs(WALL_S.saturating_add_signed(early_s));
        group.machines[0].set_clock(group.now, WallClock::new(Time::ZERO, wrong));
        group.upload(1, &[0, 1, 2]);
        // Whoever votes ahead of time may not vote again when it comes.
        group.held_up = [0].into();
        group.run_until(20.0);
        group.held_up.clear();
        group.machines[0].set_clock(group.now, clock());
        group.run_until(51.0);
        let hashes = group.hashes(11);
        assert!(hashes.len() == 3 && all_equal(&hashes), "{early_s}: {hashes:?}");
    }
}

#[test]
fn a_relay_is_listed_at_the_address_that_its_session_proves() {
    let mut group = Group::new(1, 1);
    let signed = of_epochs(1).sign(&key(1)).unwrap();
    let elsewhere: SocketAddr = "192.0.2.77:4000".parse().unwrap();
    let answer = group.deliver(0, elsewhere, Message::Upload(Box::new(signed.clone())));
    assert_eq!(answer, [(elsewhere, Message::Refused(Refusal::OtherAddress))]);
    assert_eq!(group.machines[0].known(), 0);
    let from = signed.descriptor.address;
    assert_eq!(group.deliver(0, from, Message::Upload(Box::new(signed))), [(from, Message::Taken)]);
}

/// Of three authorities the first has counted all votes and has signed, and then hears nothing more, nor is heard.
fn signed_alone() -> Group {
    let mut group = Group::new(3, 2);
    group.upload(1, &[0, 1, 2]);
    group.run_until(50.0 - 4.0 + 0.05);
    // Who it was that has prepared the same it hears, and they do not.
    group.cut = (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).collect();
    group.under_way.retain(|(.., to, message)| *to == address(0) && matches!(message, Message::Prepared(_)));
    group.run_until(50.0 - 2.0);
    let own = group.keys[0].public();
    assert_eq!(group.signed.values().collect::<Vec<_>>(), [&BTreeSet::from([own])]);
    assert!(group.machines.iter().all(|machine| machine.document().is_none()));
    group
}

#[test]
fn an_authority_is_locked_on_what_it_has_signed_also_after_a_restart() {
    let mut group = signed_alone();
    let (_, locked) = *group.signed.keys().next().unwrap();
    group.restart(0);
    let next = group.machines[0].timer(group.now);
    assert_eq!(next, Time::from_secs_f64(50.0), "it has voted in the first ballot");
    // All hear of another relay, and vote again.
    group.upload(2, &[0, 1, 2]);
    group.cut.clear();
    group.run_until(58.0);
    let hashes = group.hashes(11);
    assert!(hashes.len() == 3 && hashes.values().all(|hash| *hash == locked), "{hashes:?} and not {locked}");
    assert_eq!(group.relays(0), 1);
}

/// Who is locked and came too late to vote finds its lock not among the votes: it prepares nothing else.
#[test]
fn who_is_locked_prepares_nothing_else_without_a_newer_lock() {
    for is_locked in [true, false] {
        let mut group = signed_alone();
        if !is_locked {
            group.kept[0].lock = None;
        }
        group.restart(0);
        group.upload(2, &[0, 1, 2]);
        group.cut.clear();
        // Votes of the others come, and it begins when the first round is over.
        group.held_up = [0].into();
        group.run_until(52.1);
        group.held_up.clear();
        group.run_until(54.05);
        let own = group.keys[0].public();
        assert_eq!(group.machines[0].counted, 2);
        assert_eq!(group.machines[0].prepared.contains_key(&own), !is_locked);
        group.run_until(66.0);
        assert!(group.valid(11).len() == 1 && all_equal(&group.hashes(11)));
    }
}

/// A liar shows a lock of its own making, on a document without the relays that all have seen.
#[test]
fn a_lock_that_only_liars_have_prepared_decides_nothing() {
    let mut group = Group::new(3, 2);
    group.silent = [2].into();
    // No relay is there in the first ballot.
    group.run_until(49.0);
    for relay in 0..5 {
        group.upload(relay, &[0, 1]);
    }
    group.run_until(50.05);
    let first = Ballot::first(11);
    let liar = &group.keys[2];
    let relays = vec![Seen { relay: of_epochs(9).sign(&key(9)).unwrap(), since: UnixTime(0) }];
    let lone = Vote { relays, ..vote_without_relays(liar, first) };
    let validity = Validity { from: UnixTime(1100), until: UnixTime(1400) };
    let trust = Trust::new(&[liar.public()], 1).unwrap();
    let document = merge(&[&lone], &trust, 11, validity, Terms::default(), |_| false);
    let statement = Statement::new(Context::Prepare, first, document.hash(), liar);
    let prepared = vec![(liar.public(), statement.signature); 2];
    let lock = Some(Box::new(Lock { number: 0, document, prepared }));
    let vote = Vote { lock, ..vote_without_relays(liar, Ballot { epoch: 11, number: 1 }) };
    let message = Message::Vote(Box::new(EndorsedVote::new(vote, liar)));
    let passed_on = group.deliver(0, address(2), message);
    assert_eq!((passed_on.len(), group.machines[0].refused_votes()), (2, 0), "the vote counts");
    group.run_until(58.0);
    assert_eq!(group.machines[0].counted, 3);
    assert_eq!((group.hashes(11).len(), group.relays(0), group.relays(1)), (2, 5, 5));
}

fn vote_without_relays(author: &SecretKey, ballot: Ballot) -> Vote {
    Vote { author: author.public(), ballot, previous: None, lock: None, relays: Vec::new() }
}

/// Two of three were held up over the whole ballot: the list is there with the next.
#[test]
fn authorities_vote_again_until_there_is_a_list() {
    for (until, ballot) in [(43.5, 0), (45.0, 1), (49.5, 1), (51.5, 1), (53.0, 2), (57.5, 2), (70.0, 4)] {
        let mut group = Group::new(3, 2);
        for relay in 0..5 {
            group.upload(relay, &[0, 1, 2]);
        }
        group.held_up = [0, 1].into();
        group.run_until(until);
        group.held_up.clear();
        let listed_by = 50.0 + 8.0 * f64::from(ballot);
        group.run_until(listed_by - 4.1);
        assert_eq!(group.hashes(11).len(), 0, "held up until {until}");
        group.run_until(listed_by);
        let hashes = group.hashes(11);
        assert!(hashes.len() == 3 && all_equal(&hashes), "held up until {until}: {hashes:?}");
        assert_eq!(group.relays(0), 5);
        group.run_until(143.0);
        assert_eq!(group.hashes(11), hashes, "there is one document an epoch");
        group.run_until(150.5);
        assert!(group.hashes(12).len() == 3 && all_equal(&group.hashes(12)));
    }
}

/// A network begins with authorities, and relays come later: they are listed with the next ballot, not with the next
/// epoch; and nobody signs that there are none.
#[test]
fn relays_that_come_within_an_epoch_are_listed_in_it() {
    let mut group = Group::new(3, 2);
    group.run_until(70.0);
    assert!(group.machines.iter().all(|machine| machine.document().is_none()));
    group.upload(1, &[0, 1, 2]);
    group.run_until(82.1);
    let hashes = group.hashes(11);
    assert!(hashes.len() == 3 && all_equal(&hashes), "{hashes:?}");
    assert_eq!(group.relays(0), 1);
}

/// A while of trouble: how long, in tenths of a second; who is held up; which links are cut; who is killed and starts anew;
/// and who hears of another relay.
type Trouble = (u64, u32, u32, Option<usize>, u32);

fn trouble() -> impl Strategy<Value = Vec<Trouble>> {
    // Half of all authorities stand still at a time, and half of all links are cut, or less.
    let while_of = (1u64..45, any::<u32>(), any::<u32>(), prop::option::weighted(0.2, 0usize..5), any::<u32>());
    prop::collection::vec(while_of, 8..16)
}

fn members(bits: u32, count: usize) -> impl Iterator<Item = usize> {
    (0..count).filter(move |index| bits >> index & 1 == 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whoever stands still, is cut off or starts anew, and whatever each has heard by then: there are never two
    /// documents of an epoch, and once all is well again there is one, whoever has signed what before.
    #[test]
    fn no_trouble_gives_two_documents_of_an_epoch_and_none_outlasts_it(
        (count, threshold) in prop::sample::select(vec![(3, 2), (4, 3), (5, 3), (5, 4)]),
        troubles in trouble(),
    ) {
        let mut group = Group::new(count, threshold);
        let mut now = 38.0;
        group.run_until(now);
        for (relay, (tenths, held_up, cut, restarted, uploaded)) in troubles.into_iter().enumerate() {
            group.held_up = members(held_up & held_up >> 8, count).collect();
            let links = (0..count).flat_map(|from| (0..count).map(move |to| (from, to)));
            group.cut = links.filter(|(from, to)| cut.rotate_left((5 * from + to) as u32) & 1 == 1).collect();
            if let Some(index) = restarted.filter(|index| *index < count) {
                group.restart(index);
            }
            group.upload(relay as u16, &members(uploaded, count).collect::<Vec<_>>());
            now += tenths as f64 / 10.0;
            group.run_until(now);
            prop_assert!(group.valid(11).len() <= 1, "{:?}", group.signed);
        }
        group.held_up.clear();
        group.cut.clear();
        group.upload(99, &(0..count).collect::<Vec<_>>());
        // A ballot that may have begun in trouble, another one, and what each then asks the others for.
        group.run_until(now + 30.0);
        prop_assert!(now + 30.0 < 140.0, "it is still the same epoch");
        let of_epoch = |machine: &Authority| machine.document().is_some_and(|signed| signed.epoch() == 11);
        prop_assert!(group.machines.iter().all(of_epoch), "{:?}", group.signed);
        let hashes = group.hashes(11);
        prop_assert!(all_equal(&hashes) && group.valid(11).len() == 1, "{:?} {:?}", hashes, group.signed);
    }
}

/// No ballot of an epoch runs into the first of the next.
#[test]
fn every_ballot_ends_before_the_next_begins() {
    let mut group = Group::new(3, 2);
    group.silent = [1, 2].into();
    group.run_until(250.0);
    let ballots: Vec<Ballot> = group.events[&0]
        .iter()
        .filter_map(|event| match event {
            AuthorityEvent::NoAgreement { ballot, votes: 1, signed: 0 } => Some(*ballot),
            _ => None,
        })
        .collect();
    // A hundred seconds have room for 12 ballots of eight; eight of epoch 10 were over when the authorities began.
    let of = |epoch| (0..12).map(move |number| Ballot { epoch, number });
    assert_eq!(ballots, of(10).skip(8).chain(of(11)).chain(of(12)).chain([Ballot::first(13)]).collect::<Vec<_>>());
}

/// One that was away while the others agreed takes their document when the epoch begins.
#[test]
fn who_missed_the_vote_fetches_the_document() {
    let mut group = Group::new(3, 2);
    group.silent = [0].into();
    group.upload(1, &[1, 2]);
    group.run_until(49.9);
    group.silent.clear();
    group.run_until(51.0);
    let hashes = group.hashes(11);
    assert!(hashes.len() == 3 && all_equal(&hashes), "{hashes:?}");
}

#[test]
fn what_cannot_work_is_refused() {
    let (keys, _) = authorities(3, 2);
    let good = config(&keys, 2);
    let make = |config: AuthorityConfig, key| {
        Authority::new(config, key, clock(), Time::ZERO, AuthorityState::default()).map(|_| ())
    };
    assert_eq!(make(good.clone(), key(7)), Err(AuthorityError::Stranger(key(7).public())));
    let short = AuthorityConfig { epoch_s: 6, ..good.clone() };
    assert_eq!(make(short, secret(0, 3, 2)), Err(AuthorityError::EpochTooShort { rounds: 4 }));
    let long = AuthorityConfig { valid_epochs: u64::MAX, ..good.clone() };
    assert_eq!(make(long, secret(0, 3, 2)), Err(AuthorityError::Validity));
    let minority = AuthorityConfig { threshold: 1, ..good };
    assert!(matches!(make(minority, secret(0, 3, 2)), Err(AuthorityError::Trust(_))));
}
