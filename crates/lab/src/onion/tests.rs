use anabranch_onion::crypto::{Real, Transparent};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_onion::session::{Rates, Secrecy};
use anabranch_proto::machine::Wire;
use anabranch_sim::delay::{DelayModel, JitterTail};

use super::*;
use crate::world::Transit;
use anabranch_onion::node::Frame;

fn run(relays: u16, users: u32, seed: u64) -> OnionRun {
    OnionRun {
        relays,
        limit: None,
        users,
        settings: UserSettings {
            guards: 2,
            hops: 3,
            placement: "timeouts".to_owned(),
            placement_back: "timeouts".to_owned(),
            packets_per_key: PacketsPerKey::STANDARD,
            secrecy: Secrecy::Transparent,
            mixing: None,
        },
        cover: Cover::Off,
        rates: UserRates::Alike(Rates::default()),
        wish: Wish::Kilobytes(500),
        receive_only: 1.0,
        begin_within: Duration::from_millis(100),
        pairs: PairsConfig {
            delay: DelayModel::Plane {
                span: Duration::from_millis(40),
                access: Duration::from_millis(5),
                stretch: 1.0,
            },
            jitter: 0.1,
            jitter_tail: JitterTail::Normal,
            loss: 0.0,
        },
        droppers: 0,
        greedy: 0,
        dying: 0,
        counts_from: Time::ZERO,
        seed,
    }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::SECOND * seconds
}

#[test]
fn a_user_downloads_over_relays_and_gets_what_the_exit_sent() {
    let mut world = OnionWorld::<Transparent>::new(&run(12, 2, 1), ()).expect("settings");
    world.step(at(60));
    for user in world.users() {
        let Downloaded { bytes, whole, wrong, ended, .. } = user.downloaded;
        assert_eq!((bytes, wrong), (500_000, false), "{user:?}");
        assert!(whole.is_some() && ended <= 1, "{user:?}");
    }
}

/// What was sent, when, between whom, and how long it was.
#[derive(Default)]
struct Trace(Vec<(Time, NodeId, NodeId, u32)>);

impl<C: Cryptography> Observer<OnionNode<C>> for Trace {
    fn on_sent(&mut self, now: Time, from: NodeId, to: NodeId, frame: &Frame) {
        self.0.push((now, from, to, frame.length()));
    }

    fn on_arrival(&mut self, now: Time, transit: Transit, frame: &Frame) {
        self.0.push((now, transit.to, transit.from, frame.length()));
    }
}

#[test]
fn real_and_transparent_cryptography_give_the_same_events() {
    let mut run = run(50, 4, 3);
    run.wish = Wish::Kilobytes(100);
    run.pairs.loss = 0.01;
    let mut transparent = OnionWorld::<Transparent, _>::new(&run, Trace::default()).expect("settings");
    transparent.step(at(20));
    run.settings.secrecy = Secrecy::Sealed;
    let mut real = OnionWorld::<Real, _>::new(&run, Trace::default()).expect("settings");
    real.step(at(20));
    let (one, other) = (&transparent.observer().0, &real.observer().0);
    assert!(one.len() > 4000, "{} events", one.len());
    assert!(transparent.users().all(|user| user.downloaded.whole.is_some()));
    let differs = one.iter().zip(other).position(|(one, other)| one != other);
    assert_eq!((differs, one.len()), (None, other.len()));
    let mut bytes = Vec::new();
    Frame::default().write(&mut bytes);
    assert_eq!(bytes.len(), 1400, "all packets are as long");
}

#[test]
fn a_download_outlives_a_quarter_of_the_relays() {
    let mut run = run(24, 1, 5);
    run.wish = Wish::Kilobytes(5_000);
    let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
    let mut end = 2;
    while world.users().all(|user| user.downloaded.bytes < 1_000_000) {
        world.step(at(end));
        end += 1;
        assert!(end < 60, "it gets nowhere");
    }
    // Neither its guards nor its exit, which no other can stand in for: six of the others.
    let keeps: Vec<u16> = {
        let OnionNode::User(user) = world.world.node(NodeId(24)).expect("a user") else { panic!("a user") };
        let document = user.user.document();
        let of = |relay: &RelayIndex| node::node(document.member(*relay).expect("a member").descriptor.address);
        let guards = user.user.choice().in_use.iter().filter_map(of);
        guards.chain(of(&user.destination().relay)).map(|node| node as u16).collect()
    };
    (0..24).filter(|node| !keeps.contains(node)).take(6).for_each(|node| world.kill(node));
    world.step(at(end + 180));
    let user = world.users().next().expect("a user");
    assert!(user.downloaded.whole.is_some() && !user.downloaded.wrong, "{user:?}");
    assert!(user.downloaded.longest_stall <= Duration::SECOND * 2, "{user:?}");
}

#[test]
fn a_download_outlives_one_of_its_guards() {
    let mut run = run(24, 1, 9);
    run.wish = Wish::Kilobytes(5_000);
    let mut world = OnionWorld::<Transparent>::new(&run, ()).expect("settings");
    world.step(at(2));
    let before = world.users().next().expect("a user").downloaded;
    assert!(before.bytes > 100_000 && before.whole.is_none(), "{before:?}");
    let guard = {
        let OnionNode::User(user) = world.world.node(NodeId(24)).expect("a user") else { panic!("a user") };
        let member = user.user.document().member(user.user.choice().in_use[0]).expect("a member");
        node::node(member.descriptor.address).expect("a node")
    };
    world.kill(guard as u16);
    world.step(at(120));
    let user = world.users().next().expect("a user");
    assert!(user.downloaded.whole.is_some() && !user.downloaded.wrong, "{user:?}");
    assert!(user.downloaded.longest_stall <= Duration::SECOND * 5, "{user:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let trace = |seed| {
        let mut run = run(20, 3, seed);
        run.wish = Wish::Kilobytes(100);
        run.pairs.loss = 0.02;
        let mut world = OnionWorld::<Transparent, _>::new(&run, Trace::default()).expect("settings");
        world.step(at(10));
        world.observer().0.clone()
    };
    assert_eq!(trace(7), trace(7));
    assert_ne!(trace(7), trace(8));
}
