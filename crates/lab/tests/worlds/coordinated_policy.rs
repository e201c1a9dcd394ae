//! A policy tells the same through the coordinator of real hosts as through the one of simulated flows, if both are told the
//! same of the same world.

#[path = "../../../proto/tests/common/standing.rs"]
mod standing;

use std::path::Path;
use std::sync::Arc;

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::acting::Acting;
use anabranch_lab::flows::node::Sent;
use anabranch_lab::flows::steerable::{LinkState, RoundTripSeen, Steerable};
use anabranch_lab::flows::{FlowScenario, FlowWorld};
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorConfig, Duty, LinkConfig, Member, Share};
use anabranch_proto::coordination::message::{Datagram, HostSeen, LinkSeen, Report, Seen};
use anabranch_proto::coordination::policy::{Learned, action};
use anabranch_proto::session::{Application, PeerKey, SessionId};
use anabranch_scenario::file::{AnyScenario, Override, read_any};
use anabranch_scenario::policy::hosts;
use standing::{Standing, coordinator};

/// A world as agents report it: queues in bytes.
struct Reported<'a>(&'a mut FlowWorld<()>);

impl Reported<'_> {
    fn queued(&mut self, link: usize) -> Bytes {
        let rate = self.rate(link).unwrap();
        rate * Steerable::link(self.0, link).waits
    }
}

impl Steerable for Reported<'_> {
    fn now(&self) -> Time {
        Steerable::now(self.0)
    }
    fn scenario(&self) -> &FlowScenario {
        Steerable::scenario(self.0)
    }
    fn is_on(&self, flow: usize) -> bool {
        self.0.is_on(flow)
    }
    fn sent(&self, flow: usize) -> Sent {
        Steerable::sent(self.0, flow)
    }
    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen> {
        Steerable::round_trip(self.0, flow)
    }
    fn rate(&mut self, link: usize) -> Option<Rate> {
        Steerable::rate(self.0, link)
    }
    fn link(&mut self, link: usize) -> LinkState {
        let waits = self.queued(link) / self.rate(link).unwrap();
        LinkState { waits, ..Steerable::link(self.0, link) }
    }
    fn cross_bytes(&self) -> u64 {
        Steerable::cross_bytes(self.0)
    }
    fn cross_to_come(&mut self, _: Time) -> Option<u64> {
        None
    }
    fn set_bounds(&mut self, flow: usize, bounds: Bounds) {
        Steerable::set_bounds(self.0, flow, bounds);
    }
}

fn scenario(file: &str, overrides: &[&str]) -> FlowScenario {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let overrides: Vec<Override> = overrides.iter().map(|set| Override::set(set).unwrap()).collect();
    match read_any(&path, &overrides).unwrap() {
        AnyScenario::Flows(scenario) => scenario,
        other => panic!("{other:?}"),
    }
}

/// How many decisions both made, of which none differed, and how many told a host something else than before.
fn assert_same_directives(scenario: FlowScenario, queue: Duration) -> (usize, usize) {
    let scenario = Arc::new(scenario);
    let steering = scenario.steering.as_ref().unwrap();
    let (link, learned) = (steering.link, steering.policy.as_ref().unwrap());
    let mut world = FlowWorld::watching(Arc::clone(&scenario), &[link], ()).unwrap();
    let mut acting = Acting::new(&scenario).unwrap();
    let capacity = Steerable::rate(&mut world, link).unwrap();
    let hosts = hosts(&scenario, link);
    let most = Rate::from_bytes_per_sec_f64(capacity.bytes_per_sec() * f64::from(action::MOST));
    let duty = Duty::Host { link: 0, least: Rate::ZERO, most, most_flows: u32::MAX };
    let duties = hosts.iter().map(|_| duty).chain([Duty::Monitor { link: 0 }]);
    let member = |(place, duty)| Member { name: format!("member {place}"), key: PeerKey([place as u8; 32]), duty };
    let policy = learned.saved.policy.clone();
    let learned = Learned { name: learned.name.clone(), policy, sight: learned.sight.clone() };
    let config = CoordinatorConfig {
        epoch: 1,
        every: learned.sight.interval,
        utilisation: 0.95,
        actuator: learned.actuator(),
        share: Share::PerHost,
        expected: Default::default(),
        links: vec![LinkConfig { name: "uplink".into(), capacity, queue: Some(queue) }],
        members: duties.enumerate().map(member).collect(),
        policy: Some(Arc::new(learned)),
    };
    let mut coordinator = coordinator(&config);
    let header = scenario.packets.header.get();
    let (on_wire, data) = (scenario.packets.data.get() + header, scenario.packets.data.get());
    let (mut decided, mut changes, mut before) = (0, 0, Vec::new());
    while acting.due() < Time::MAX {
        let now = acting.due();
        world.step(now);
        let (mut reported, mut left) = (Reported(&mut world), 0);
        let report = |coordinator: &mut Coordinator<u32>, place: usize, seen| {
            let report = Report { number: decided as u64 + 1, at: now.since(Time::ZERO), period: config.every, seen };
            coordinator.on_datagram(now, SessionId(place as u32), Datagram::Report(report), &mut Standing::default());
        };
        for (place, flows) in hosts.iter().enumerate() {
            let of = |count: &dyn Fn(Sent) -> u64| flows.iter().map(|&flow| count(reported.sent(flow))).sum::<u64>();
            let acked = of(&|sent| sent.acked_bytes);
            assert_eq!(acked % data, 0, "whole packets");
            let lost = of(&|sent| sent.lost) * on_wire;
            let sent = acked / data * on_wire + lost;
            left += sent;
            let on = flows.iter().filter(|&&flow| reported.is_on(flow)).count() as u32;
            let seen = HostSeen { flows: on, sent: Bytes::new(sent), lost: Bytes::new(lost), ..HostSeen::default() };
            report(&mut coordinator, place, Seen::Host(seen));
        }
        let state = Steerable::link(&mut reported, link);
        // What passed, where no others send: whole packets, of which those that were dropped are a share.
        let passed =
            if scenario.cross_traffic.is_empty() { state.transmitted * on_wire } else { left + reported.cross_bytes() };
        let (queued, sent) = (Some(reported.queued(link)), Bytes::new(passed));
        let seen = LinkSeen { sent, queued, dropped: state.dropped, ..LinkSeen::default() };
        report(&mut coordinator, hosts.len(), Seen::Link(seen));
        while coordinator.timer(now) <= now {
            coordinator.on_timer(now, &mut Standing::default());
        }
        assert!(coordinator.is_by_policy(0), "{:?}", coordinator.blocked(0));
        acting.act(&mut reported).unwrap();
        let rate = |&relative: &f32| Rate::from_bytes_per_sec_f64(capacity.bytes_per_sec() * f64::from(relative));
        let expected: Vec<Rate> = acting.rates().unwrap().iter().map(rate).collect();
        let directed: Vec<Rate> =
            (0..hosts.len()).map(|place| coordinator.known()[place].budget().unwrap().0).collect();
        assert_eq!(directed, expected, "decision {decided}, at {now}");
        while let Some((session, datagram)) = coordinator.next_datagram(now) {
            let Datagram::Directive(directive) = datagram else { panic!("{datagram:?}") };
            assert_eq!(directive.rate, expected[session.index()]);
        }
        assert_eq!(coordinator.beyond(0).is_some(), acting.note().is_some(), "decision {decided}");
        changes += usize::from(before != expected);
        (decided, before) = (decided + 1, expected);
    }
    (decided, changes)
}

#[test]
fn beside_cross_traffic_the_same_reports_give_the_same_windows() {
    // Cross traffic begins after the first look, and takes more than the least that counts in each interval that it is in.
    let scenario = scenario("policies/cross.toml", &["run.seconds=12"]);
    let (decided, changes) = assert_same_directives(scenario, Duration::from_millis(50));
    assert_eq!(decided, 120);
    assert!(changes > 20, "what is told depends on what is seen: {changes}");
}

#[test]
fn of_several_hosts_the_same_reports_give_the_same_shares() {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/c3-fairness/seed-1/policy.safetensors");
    let set = format!("steering.policy={}", policy.display());
    let text = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/c3-fairness/scenario.toml"),
    )
    .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("s.toml");
    std::fs::write(&file, text.replace("every_ms = 100\n", "")).unwrap();
    // Hosts with less than 2 Mbit/s are told seldom, so that control takes a hundredth of what they have.
    let sets = [&set, "dumbbell.rate=20 Mbit/s", "dumbbell.access_rate=200 Mbit/s"];
    let scenario = scenario(file.to_str().unwrap(), &sets);
    let (decided, changes) = assert_same_directives(scenario, Duration::from_millis(50));
    assert_eq!(decided, 200);
    assert!(changes > 20, "what is told depends on what is seen: {changes}");
}
