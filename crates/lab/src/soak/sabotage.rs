//! A bug for each invariant, planted in one machine or disk of an otherwise quiet case: each is found, under its
//! name and with the seed that repeats it. Without one the same case breaks no rule.

use std::net::SocketAddr;

use anabranch_control::path::registry::Pacing;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::machine::{Arrival, Machine, Out};
use anabranch_proto::overlay::peer::Peer;
use anabranch_proto::overlay::wire::OwnedDatagram;
use anabranch_proto::transfer::Limits;

use super::case::{Case, RelayLimit, Trouble};
use super::disks::SlowDisk;
use super::invariants::Invariant;
use super::network::Network;
use super::runner::Soaked;
use super::store::SourceFault;
use super::transfer::{self, Ending};

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// Of one machine or disk; it breaks this rule.
    Breaks(Invariant),
    /// The sender's disk has one byte otherwise than when it was hashed, and nobody has changed it.
    FileChanges,
    /// The receiver's disk is said to be full, and is not.
    NoRoom,
    /// A receiver gives a file up at once, and calls that a long time without a block.
    Impatient,
    /// This bound of what is remembered does not hold.
    Unbounded(Bound),
}

/// What is to be bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    Sessions,
    HalfOpen,
    Waiting,
    Files,
    Unwritten,
    /// The receiver forgets no session.
    Idle,
    /// The most is a constant of the machine, so what is looked for is less than it keeps.
    Events,
    /// As the last.
    Kept,
    /// As the last.
    Packets,
}

impl Bound {
    /// All, and how a violation of it is reported.
    const ALL: [(Bound, &str); 9] = [
        (Bound::Sessions, "sessions,"),
        (Bound::HalfOpen, "half-open sessions,"),
        (Bound::Waiting, "files that wait,"),
        (Bound::Files, "files that are kept,"),
        (Bound::Unwritten, "bytes that are not written,"),
        (Bound::Idle, "still there after the idle time"),
        (Bound::Events, "events,"),
        (Bound::Kept, "bytes of a file,"),
        (Bound::Packets, "packets,"),
    ];
}

/// The sender, with a bug in how it is driven.
pub fn on_message<O: Out<Peer>>(
    sabotage: Sabotage,
    peer: &mut Peer,
    now: Time,
    arrival: Arrival<SocketAddr>,
    datagram: &mut OwnedDatagram,
    out: &mut O,
) {
    assert!(sabotage != Sabotage::Breaks(Invariant::Panic), "a planted panic");
    // It is deaf: what would end it never comes, nor a half-open session's second message.
    let is_deaf = [Sabotage::Breaks(Invariant::Ends), Sabotage::Unbounded(Bound::HalfOpen)].contains(&sabotage);
    if !is_deaf {
        peer.on_message(now, arrival, datagram, out);
    }
}

pub fn on_timer<O: Out<Peer>>(sabotage: Sabotage, peer: &mut Peer, now: Time, out: &mut O) {
    // It sleeps through its deadlines.
    if sabotage != Sabotage::Breaks(Invariant::Ends) {
        peer.on_timer(now, out);
    }
}

pub fn timer(sabotage: Sabotage, peer: &Peer, now: Time) -> Time {
    match sabotage {
        // Once there is a past, it waits for it.
        Sabotage::Breaks(Invariant::Timer) if now > Time::ZERO => Time::ZERO,
        // It always has more to do.
        Sabotage::Breaks(Invariant::Progress) => now,
        Sabotage::Breaks(Invariant::Ends) => Time::MAX,
        _ => peer.timer(now),
    }
}

/// What is wrong with the sender's disk, and what fits the receiver's.
pub fn disks(sabotage: Option<Sabotage>, fault: SourceFault, room: u64) -> (SourceFault, u64) {
    match sabotage {
        Some(Sabotage::FileChanges) => (SourceFault::Changed, room),
        Some(Sabotage::NoRoom) => (fault, 0),
        _ => (fault, room),
    }
}

/// What a relay keeps to.
pub fn relay(sabotage: Option<Sabotage>, limit: RelayLimit) -> RelayLimit {
    match sabotage {
        Some(Sabotage::Breaks(Invariant::Limit)) => {
            RelayLimit { rate: Rate::from_bytes_per_sec_f64(limit.rate.bytes_per_sec() * 2.0), ..limit }
        }
        _ => limit,
    }
}

/// What a receiver keeps to, which should be `limits`.
pub fn limits(sabotage: Option<Sabotage>, limits: Limits) -> Limits {
    let standard = Limits::default();
    match sabotage {
        Some(Sabotage::Impatient) => Limits { stalled: Duration::from_millis(1), ..limits },
        Some(Sabotage::Unbounded(Bound::Sessions | Bound::HalfOpen | Bound::Files | Bound::Unwritten)) => {
            Limits { idle: limits.idle, ..standard }
        }
        // Nothing is ever taken, so all wait.
        Some(Sabotage::Unbounded(Bound::Waiting)) => Limits { files: 0, idle: limits.idle, ..standard },
        Some(Sabotage::Unbounded(Bound::Idle)) => Limits { idle: Duration::SECOND * 100_000, ..limits },
        _ => limits,
    }
}

/// How much is allowed of `what`, which should be `most`.
pub fn most(sabotage: Option<Sabotage>, what: &str, most: usize) -> usize {
    match (sabotage, what) {
        (Some(Sabotage::Unbounded(Bound::Events)), "events")
        | (Some(Sabotage::Unbounded(Bound::Kept)), "bytes of a file")
        | (Some(Sabotage::Unbounded(Bound::Packets)), "packets") => 0,
        _ => most,
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

/// What is found of a bug in `case`: the rule, and how it was broken.
#[track_caller]
fn found(case: &Case) -> (Invariant, String) {
    let ran = transfer::run(case, &()).expect("nobody interrupts it");
    let mut soaked = Soaked::default();
    soaked.add(ran);
    let [failure] = &soaked.failures[..] else { panic!("{:?} is not found", case.sabotage) };
    assert_eq!(failure.seed, case.seed);
    (failure.invariant, failure.what.clone())
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
        let (broken, what) = found(&Case { sabotage: Some(Sabotage::Breaks(invariant)), ..quiet(seed) });
        assert_eq!(broken, invariant, "{what}");
    }
}

#[test]
fn a_reason_that_is_not_true_is_found_whoever_gives_it() {
    for sabotage in [Sabotage::FileChanges, Sabotage::NoRoom, Sabotage::Impatient] {
        let mut case = Case { sabotage: Some(sabotage), ..quiet(7) };
        if sabotage == Sabotage::Impatient {
            // So slowly that there are seconds between two blocks.
            case.upload = Some(Rate::from_bytes_per_sec(300));
        }
        let (broken, what) = found(&case);
        assert_eq!(broken, Invariant::Reason, "{sabotage:?}: {what}");
    }
}

#[test]
fn each_bound_of_memory_is_found_when_it_does_not_hold() {
    // A receiver that should keep nothing, with a disk that is slow enough for blocks to wait.
    let slow = SlowDisk {
        access: Duration::SECOND,
        rate: Rate::from_bytes_per_sec(1_000_000),
        stalls: 0.0,
        stall: Duration::ZERO,
    };
    for (bound, message) in Bound::ALL {
        let mut case = Case { sabotage: Some(Sabotage::Unbounded(bound)), ..quiet(7) };
        let limits = &mut case.limits;
        match bound {
            Bound::Sessions => {
                *limits = Limits {
                    greetings: 0,
                    half_open: 0,
                    waiting: 0,
                    files: 0,
                    complete: 0,
                    idle: limits.idle,
                    ..*limits
                }
            }
            Bound::HalfOpen => limits.half_open = 0,
            Bound::Waiting => limits.waiting = 0,
            Bound::Files => limits.files = 0,
            Bound::Unwritten => {
                limits.writes = 0;
                case.disks[0] = Some(slow);
            }
            Bound::Events => case.fetches_events = false,
            Bound::Idle => {
                // A sender that dies takes no leave.
                let at = |ms| Time::ZERO + Duration::from_millis(ms);
                let sender = case.sender();
                case.troubles = vec![(at(600), Trouble::Crash(sender)), (at(900), Trouble::Restart(sender))];
                let without =
                    transfer::run(&Case { sabotage: None, ..case.clone() }, &()).expect("nobody interrupts it");
                assert_eq!(without.violation, None);
            }
            Bound::Kept | Bound::Packets => {}
        }
        let (broken, what) = found(&case);
        let is_named =
            what.split_once(' ').is_some_and(|(_, rest)| rest.starts_with(message)) || what.ends_with(message);
        assert!(broken == Invariant::Memory && is_named, "{bound:?}: {what}");
    }
}
