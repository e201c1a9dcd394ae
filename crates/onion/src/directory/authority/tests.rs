use std::collections::{BTreeMap, BTreeSet};

use super::super::testing::{authorities, descriptor, key};
use super::super::vote::Seen;
use super::super::{Descriptor, EpochKey};
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

/// Authorities whose messages take 100 ms; who is silent sends nothing and gets nothing, and who is held up does
/// nothing until it goes on, and then finds what has come meanwhile.
struct Group {
    keys: Vec<SecretKey>,
    machines: Vec<Authority>,
    silent: BTreeSet<usize>,
    held_up: BTreeSet<usize>,
    now: Time,
    under_way: Vec<(Time, SocketAddr, SocketAddr, Message)>,
    events: BTreeMap<usize, Vec<AuthorityEvent>>,
}

const DELAY: Duration = Duration::from_millis(100);

fn config(keys: &[SecretKey], threshold: usize) -> AuthorityConfig {
    let authorities = keys.iter().enumerate().map(|(index, key)| (key.public(), address(index))).collect();
    AuthorityConfig { authorities, threshold, epoch_s: EPOCH_S, round: ROUND, valid_epochs: 3 }
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
            machines,
            silent: BTreeSet::new(),
            held_up: BTreeSet::new(),
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
        self.events.entry(index).or_default().extend(out.events);
        if !self.silent.contains(&index) {
            for (to, message) in &out.sent {
                self.under_way.push((self.now + DELAY, address(index), *to, message.clone()));
            }
        }
        out.sent
    }

    fn run_until(&mut self, seconds: f64) {
        let end = Time::from_secs_f64(seconds);
        loop {
            let goes_on = |index: &usize| !self.held_up.contains(index);
            let timers =
                (0..self.machines.len()).filter(goes_on).map(|index| (index, self.machines[index].timer(self.now)));
            let timer = timers.min_by_key(|(_, timer)| *timer).unwrap();
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
    let vote_starts = 50.0 - 3.0 * 2.0;
    group.run_until(vote_starts + 0.05);
    let liar = group.keys[3].public();
    let vote = |relays: &[u16]| {
        let mut relays: Vec<Seen> =
            relays.iter().map(|&n| Seen { relay: of_epochs(n).sign(&key(n)).unwrap(), since: UnixTime(0) }).collect();
        relays.sort();
        let vote = Vote { author: liar, ballot: Ballot::first(11), previous: None, relays };
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
    group.run_until(50.0 - 3.0 * 2.0 + 2.5);
    let relays = vec![Seen { relay: of_epochs(2).sign(&key(2)).unwrap(), since: UnixTime(0) }];
    let vote = Vote { author: group.keys[3].public(), ballot: Ballot::first(11), previous: None, relays };
    let late = Message::Vote(Box::new(EndorsedVote::new(vote, &group.keys[3])));
    let sent = group.deliver(0, address(3), late);
    assert!(sent.is_empty() && group.machines[0].refused_votes() == 1);
    group.run_until(51.0);
    assert!(all_equal(&group.hashes(11)) && group.relays(0) == 1);
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

#[test]
fn an_authority_signs_once_an_epoch_also_after_a_restart() {
    let mut group = Group::new(3, 2);
    group.upload(1, &[0, 1, 2]);
    // It counts all votes, signs, and hears no other signature.
    group.run_until(50.0 - 2.01);
    group.silent = [0].into();
    group.run_until(50.0 - 1.0);
    assert!(group.machines[0].merged.is_some() && group.machines[0].document().is_none());
    let state = group.machines[0].state();
    let bytes = postcard::to_allocvec(&state).unwrap();
    let state: AuthorityState = postcard::from_bytes(&bytes).unwrap();
    let mut again =
        Authority::new(config(&group.keys, 2), secret(0, 3, 2), clock(), Time::from_secs_f64(30.0), state).unwrap();
    let next = again.timer(Time::from_secs_f64(30.0));
    assert_eq!(next, Time::from_secs_f64(50.0), "it has voted in the first ballot");
    let mut out = Outbox::default();
    again.on_timer(next, &mut out);
    let second = Ballot { epoch: 11, number: 1 };
    assert!(out.sent.iter().all(|(_, message)| matches!(message, Message::Vote(vote) if vote.vote.ballot == second)));
    assert_eq!((out.sent.len(), again.known()), (2, 1));
    let others = EndorsedVote::new(
        Vote { relays: again.known.seen(11, UnixTime(1100), 100), ..vote_without_relays(&group.keys[1], second) },
        &group.keys[1],
    );
    again.on_message(next, Arrival::new(address(1)), &mut Message::Vote(Box::new(others)), &mut out);
    out.sent.clear();
    again.on_timer(again.timer(next), &mut out);
    assert_eq!(again.counted, 2, "a relay has enough votes");
    assert_eq!(out.sent, [], "and it signs nothing more for the epoch");
}

fn vote_without_relays(author: &SecretKey, ballot: Ballot) -> Vote {
    Vote { author: author.public(), ballot, previous: None, relays: Vec::new() }
}

/// Two of three were held up over the whole ballot: the list is there with the next.
#[test]
fn authorities_vote_again_until_there_is_a_list() {
    for (until, ballot) in [(45.5, 0), (47.0, 1), (49.5, 1), (51.5, 1), (53.0, 2), (55.5, 2), (70.0, 5)] {
        let mut group = Group::new(3, 2);
        for relay in 0..5 {
            group.upload(relay, &[0, 1, 2]);
        }
        group.held_up = [0, 1].into();
        group.run_until(until);
        group.held_up.clear();
        let listed_by = 50.0 + 6.0 * f64::from(ballot);
        group.run_until(listed_by - 2.1);
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
    group.run_until(80.1);
    let hashes = group.hashes(11);
    assert!(hashes.len() == 3 && all_equal(&hashes), "{hashes:?}");
    assert_eq!(group.relays(0), 1);
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
    // A hundred seconds have room for 16 ballots of six; ten of epoch 10 were over when the authorities began.
    let of = |epoch| (0..16).map(move |number| Ballot { epoch, number });
    assert_eq!(ballots, of(10).skip(10).chain(of(11)).chain(of(12)).chain([Ballot::first(13)]).collect::<Vec<_>>());
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
    assert_eq!(make(short, secret(0, 3, 2)), Err(AuthorityError::EpochTooShort { rounds: 3 }));
    let long = AuthorityConfig { valid_epochs: u64::MAX, ..good.clone() };
    assert_eq!(make(long, secret(0, 3, 2)), Err(AuthorityError::Validity));
    let minority = AuthorityConfig { threshold: 1, ..good };
    assert!(matches!(make(minority, secret(0, 3, 2)), Err(AuthorityError::Trust(_))));
}
