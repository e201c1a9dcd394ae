//! A bug for each invariant, planted in one machine or disk of an otherwise quiet case: each is found, under its
//! name and with the seed that repeats it. Without one the same case breaks no rule.

use std::net::SocketAddr;

use anabranch_control::path::registry::Pacing;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::machine::{Arrival, Machine, Out};
use anabranch_proto::peer::Peer;
use anabranch_proto::transfer::Limits;
use anabranch_proto::wire::OwnedDatagram;

use super::case::{Case, RelayLimit};
use super::invariants::Invariant;
use super::network::Network;
use super::runner::Soaked;
use super::store::SourceFault;
use super::transfer::{self, Ending};

/// Every invariant has a bug that breaks it.
pub type Sabotage = Invariant;

/// The sender, with a bug in how it is driven.
pub fn on_message<O: Out<Peer>>(
    sabotage: Sabotage,
    peer: &mut Peer,
    now: Time,
    arrival: Arrival<SocketAddr>,
    datagram: &mut OwnedDatagram,
    out: &mut O,
) {
    assert!(sabotage != Invariant::Panic, "a planted panic");
    // It is deaf: what would end it never comes.
    if sabotage != Invariant::Ends {
        peer.on_message(now, arrival, datagram, out);
    }
}

pub fn on_timer<O: Out<Peer>>(sabotage: Sabotage, peer: &mut Peer, now: Time, out: &mut O) {
    // It sleeps through its deadlines.
    if sabotage != Invariant::Ends {
        peer.on_timer(now, out);
    }
}

pub fn timer(sabotage: Sabotage, peer: &Peer, now: Time) -> Time {
    match sabotage {
        // Once there is a past, it waits for it.
        Invariant::Timer if now > Time::ZERO => Time::ZERO,
        // It always has more to do.
        Invariant::Progress => now,
        Invariant::Ends => Time::MAX,
        _ => peer.timer(now),
    }
}

/// A transfer of 60 kB over three relays that hold nothing back, after which the receiver forgets everything.
fn quiet(seed: u64) -> Case {
    let rate = Rate::from_bytes_per_sec(20_000);
    let relay = RelayLimit { model: LimitModel::Window { phase: Duration::ZERO }, rate };
    Case {
        relays: vec![relay; 3],
        lies: vec![None; 3],
        hops: 1,
        packet: Some(1000),
        network: Network::Pairs,
        span: Duration::from_millis(20),
        jitter: 0.0,
        controller: "random",
        pacing: Pacing::Paced,
        upload: Some(Rate::from_bytes_per_sec(100_000)),
        has_key: true,
        length: 60_000,
        source: SourceFault::None,
        limits: Limits { idle: Duration::SECOND * 10, ..Limits::default() },
        room: u64::MAX,
        disks: [None; 2],
        fetches_events: true,
        lingers: true,
        troubles: Vec::new(),
        calm: Time::ZERO,
        ..Case::draw(seed)
    }
}

#[test]
fn a_quiet_case_breaks_no_rule() {
    let ran = transfer::run(&quiet(7), &()).expect("nobody interrupts it");
    assert_eq!((ran.violation, ran.ending), (None, Some(Ending::Whole)));
}

#[test]
fn each_invariant_finds_the_bug_that_breaks_it_and_names_its_seed() {
    const ALL: [Invariant; 7] = [
        Invariant::Whole,
        Invariant::Ends,
        Invariant::Memory,
        Invariant::Limit,
        Invariant::Timer,
        Invariant::Progress,
        Invariant::Panic,
    ];
    for (invariant, seed) in ALL.into_iter().zip(7..) {
        let case = Case { sabotage: Some(invariant), ..quiet(seed) };
        let ran = transfer::run(&case, &()).expect("nobody interrupts it");
        let mut soaked = Soaked::default();
        soaked.add(ran);
        let found: Vec<_> = soaked.failures.iter().map(|failure| (failure.invariant, failure.seed)).collect();
        assert_eq!(found, [(invariant, seed)], "{:?}", soaked.failures);
    }
}
