use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::machine::{Arrival, Departure, Machine, Out};
use rand_core::Rng as _;

use super::*;
use crate::RelayIndex;
use crate::crypto::{Cryptography, Real, Transparent};
use crate::directory::clock::{DAY, UnixTime};
use crate::directory::testing::document;
use crate::guards::GuardState;
use crate::link::LinkFrame;
use crate::packet::testing::{SERVICE, epoch_keys};
use crate::packet::{Hop, Label, PacketsPerKey, PathKeys, body_mut};
use crate::relay::{DropReason, Limits, Relay};
use crate::session::Secrecy;
use crate::size::DATAGRAM;

const WALL: UnixTime = UnixTime(1_000 * DAY);

/// What a machine sends and tells.
struct Said<E> {
    sent: Vec<(SocketAddr, Duration, Frame)>,
    events: Vec<E>,
}

impl<E> Default for Said<E> {
    fn default() -> Said<E> {
        Said { sent: Vec::new(), events: Vec::new() }
    }
}

impl<E, M> Out<M> for Said<E>
where
    M: Machine<Address = SocketAddr, Message = Frame, Event = E, Job = Infallible>,
{
    fn send(&mut self, departure: Departure<SocketAddr>, frame: &Frame) {
        self.sent.push((departure.to, departure.wait, frame.clone()));
    }

    fn event(&mut self, event: E) {
        self.events.push(event);
    }

    fn job(&mut self, job: Infallible) {
        match job {}
    }
}

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

fn settings(guards: usize) -> UserSettings {
    UserSettings {
        guards,
        hops: 3,
        placement: "timeouts".to_owned(),
        placement_back: "timeouts".to_owned(),
        packets_per_key: PacketsPerKey::STANDARD,
        secrecy: Secrecy::Transparent,
        mixing: None,
    }
}

fn user(guards: usize, relays: usize, state: GuardState) -> User<Transparent, Rng> {
    let document = Arc::new(document(1, relays));
    User::new(settings(guards), document, state, at(0.0), WALL, Rng::stream(1, "user")).expect("settings")
}

/// The relays that a user asked for links.
fn asked(said: &Said<UserEvent>) -> BTreeSet<SocketAddr> {
    let is_asking = |frame: &Frame| matches!(frame.kind, Kind::Link(LinkFrame::Attach { .. }));
    assert!(said.sent.iter().all(|(.., frame)| is_asking(frame)));
    said.sent.iter().map(|(to, ..)| *to).collect()
}

#[test]
fn p12_a_new_guard_hears_nothing_before_it_is_written_down() {
    let mut user = user(2, 50, GuardState::default());
    let mut said = Said::default();
    user.serve(at(0.0), &mut said);
    user.on_timer(at(1.0), &mut said);
    assert_eq!((said.sent.len(), &said.events[..]), (0, &[UserEvent::Guards][..]));
    let state = user.guards().clone();
    user.on_guards_kept(at(1.0), &state);
    user.serve(at(1.0), &mut said);
    assert_eq!(asked(&said).len(), 2);
    // One that takes the place of both is written down first, too.
    let mut said = Said::default();
    for second in 2..40 {
        user.on_timer(at(f64::from(second)), &mut said);
    }
    assert!(asked(&said).len() == 2 && said.events.contains(&UserEvent::Guards), "{:?}", said.events);
    let spare = user.guards().clone();
    assert_eq!((state.identities().count(), spare.identities().count()), (2, 3));
    user.on_guards_kept(at(40.0), &spare);
    user.on_timer(at(40.0), &mut said);
    assert_eq!(asked(&said).len(), 3);
}

#[test]
fn guards_that_were_written_down_are_used_at_once() {
    let mut first = user(2, 50, GuardState::default());
    let state = first.guards().clone();
    first.on_guards_kept(at(0.0), &state);
    let (mut one, mut other) = (Said::default(), Said::default());
    first.serve(at(0.0), &mut one);
    user(2, 50, state).serve(at(0.0), &mut other);
    assert!(!asked(&other).is_empty() && other.events.is_empty());
    assert_eq!(asked(&one), asked(&other));
}

#[test]
fn without_guards_a_user_hangs_on_a_bounded_number_of_relays_and_on_all_in_the_long_run() {
    let few = user(0, 40, GuardState::default());
    let mut said = Said::default();
    let mut user_of_few = few;
    user_of_few.serve(at(0.0), &mut said);
    assert_eq!(asked(&said).len(), 40, "of few relays all");
    let mut user = user(0, 400, GuardState::default());
    let (mut all, mut labels, mut now) = (BTreeSet::new(), BTreeSet::new(), at(0.0));
    for _ in 0..3600 {
        let mut said = Said::default();
        user.on_timer(now, &mut said);
        assert!(asked(&said).len() <= 64);
        for (to, _, frame) in said.sent {
            let Kind::Link(LinkFrame::Attach { label, .. }) = frame.kind else { continue };
            all.insert(to);
            labels.insert(label.0);
            let answer = Frame::link(LinkFrame::Attached { label });
            user.on_message(now, Arrival::new(to), &mut answer.clone(), &mut Said::default());
        }
        assert!(user.is_attached(now));
        now += Duration::SECOND;
    }
    // 64 links each minute, for an hour.
    assert!((3000..4200).contains(&labels.len()), "{} links", labels.len());
    assert_eq!(all.len(), 400);
}

/// A relay, and one who knows its key.
struct Station {
    node: RelayNode<Real, ()>,
    keys: PathKeys<Real>,
    path: [Hop; 2],
    rng: Rng,
}

const MEMBERS: [&str; 3] = ["192.0.2.1:1", "198.51.100.1:1", "203.0.113.1:1"];

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

impl Station {
    fn new(limits: impl FnOnce(Limits) -> Limits, limit: Rate) -> Station {
        let mut rng = Rng::stream(1, "station");
        let k = PacketsPerKey::STANDARD;
        let keys = epoch_keys::<Real>(0, 3, 0, &mut rng);
        let relay = Relay::new(k, limits(Limits::simulated(k)), keys, [1, 2]);
        let hop = |relay, key| Hop { relay: RelayIndex(relay), key, wait: Duration::ZERO };
        let path = [hop(0, relay.public_key()), hop(1, Real::public(&Real::secret(&[7; 32])))];
        let node = RelayNode::new(relay, Members::new(0, MEMBERS.map(address).to_vec()), ())
            .limited(LimitModel::Queue { longest: Duration::from_millis(100) }, limit);
        Station { node, keys: PathKeys::new(k), path, rng }
    }

    /// A packet that sets up a key.
    fn packet(&mut self) -> Frame {
        let mut frame = Frame::default();
        body_mut(&mut frame.datagram).fill(3);
        let _ = self.keys.seal(&self.path, SERVICE, &mut self.rng, &mut frame.datagram).expect("a path");
        frame
    }

    /// Random bytes, which set up a key as it seems, or use one.
    fn garbage(&mut self, sets_up: bool) -> Frame {
        let mut frame = Frame::default();
        self.rng.fill_bytes(&mut frame.datagram);
        frame.datagram[31] = frame.datagram[31] & 0x7f | u8::from(sets_up) << 7;
        frame
    }

    /// How many of what comes is sent on.
    fn pass(&mut self, now: Time, from: &str, mut frame: Frame) -> usize {
        let mut said = Said::default();
        self.node.on_message(now, Arrival::new(address(from)), &mut frame, &mut said);
        said.sent.len()
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.node.relay().counts().dropped[reason as usize]
    }
}

#[test]
fn what_was_not_made_for_a_relay_takes_nothing_of_its_limit() {
    // Ten packets a second: of the flood each would have taken a tenth of a second.
    let mut station = Station::new(|limits| limits, Rate::from_bytes_per_sec(10 * DATAGRAM as u64));
    for number in 0..1000 {
        let garbage = station.garbage(number % 2 == 0);
        assert_eq!(station.pass(at(1.0), "10.0.0.1:5", garbage), 0);
    }
    let packet = station.packet();
    assert_eq!((station.pass(at(1.0), MEMBERS[2], packet), station.node.counts().refused), (1, 0));
    // What was made for it counts.
    for _ in 0..10 {
        let packet = station.packet();
        station.pass(at(1.0), MEMBERS[2], packet);
    }
    assert!(station.node.counts().refused > 0);
}

#[test]
fn a_flood_of_set_ups_from_strangers_leaves_members_and_clients_theirs() {
    let limits = |limits| Limits { agreements_per_s: 1000, agreements_at_once: 100, ..limits };
    let mut station = Station::new(limits, Rate::from_bytes_per_sec(1_000_000_000));
    // One that hangs on the relay is no stranger.
    let (client, label) = ("10.9.9.9:9", Label([4; 8]));
    let mut said = Said::default();
    let mut ask = Frame::link(LinkFrame::Attach { label, cookie: Default::default() });
    station.node.on_message(at(1.0), Arrival::new(address(client)), &mut ask, &mut said);
    let Some((_, _, Frame { kind: Kind::Link(LinkFrame::Prove { cookie, .. }), .. })) = said.sent.first() else {
        panic!("a cookie");
    };
    let mut prove = Frame::link(LinkFrame::Attach { label, cookie: *cookie });
    station.node.on_message(at(1.0), Arrival::new(address(client)), &mut prove, &mut said);
    let mut passed = [0; 2];
    for ms in 0..200 {
        let now = at(2.0 + f64::from(ms) / 1000.0);
        for from in ["10.0.0.1:5", "10.0.0.2:5", "10.0.0.3:6"] {
            for _ in 0..5 {
                let garbage = station.garbage(true);
                station.pass(now, from, garbage);
            }
        }
        if ms % 20 == 0 {
            for (from, passed) in [MEMBERS[1], client].into_iter().zip(&mut passed) {
                let packet = station.packet();
                *passed += station.pass(now, from, packet);
            }
        }
    }
    assert_eq!(passed, [10, 10], "{:?}", station.node.relay().counts());
    assert!(station.dropped(DropReason::OverBudget) > 2000 && station.dropped(DropReason::Header) < 400);
    assert!(station.node.relay().memory() < 1 << 20);
}

#[test]
fn waits_below_a_relays_grain_are_none() {
    let rate = Rate::from_bytes_per_sec(1_400_000);
    let waits = |grain: Duration| {
        let mut station = Station::new(|limits| limits, rate);
        let node = RelayNode::new(
            Relay::new(
                PacketsPerKey::STANDARD,
                Limits::simulated(PacketsPerKey::STANDARD),
                epoch_keys(0, 3, 0, &mut station.rng),
                [1, 2],
            ),
            Members::new(0, MEMBERS.map(address).to_vec()),
            (),
        );
        let node = node.limited(LimitModel::Queue { longest: Duration::SECOND }, rate).with_grain(grain);
        station.path[0].key = node.relay().public_key();
        station.node = node;
        let mut waits = Vec::new();
        for _ in 0..5 {
            let (mut said, mut packet) = (Said::default(), station.packet());
            station.node.on_message(at(1.0), Arrival::new(address(MEMBERS[2])), &mut packet, &mut said);
            waits.extend(said.sent.into_iter().map(|(_, wait, _)| wait.as_nanos() / 1_000_000));
        }
        waits
    };
    assert_eq!(waits(Duration::ZERO), [1, 2, 3, 4, 5]);
    assert_eq!(waits(Duration::from_nanos(2_500_000)), [0, 0, 3, 4, 5]);
}
