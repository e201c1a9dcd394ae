//! A world of flows as an agent sees it: it resets, is kept and gone back to, observed and acted on.

use std::sync::Arc;

use anabranch_control::flow::{Bounds, registry};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::FlowWorld;
use anabranch_lab::flows::observation::{OBSERVATION, OBSERVATION_LENGTH};
use anabranch_scenario::flows::FlowScenario;
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_sim::network::LinkId;

const MS: fn(u64) -> Duration = Duration::from_millis;

fn scenario(controller: &str, flows: usize) -> Arc<FlowScenario> {
    let bulk = Bulk {
        flows,
        controller: registry::find(controller).unwrap(),
        parameters: toml::Table::new(),
        rate: Rate::from_bits_per_sec(5_000_000),
        loss: 0.01,
        length: Duration::SECOND * 60,
        seed: 1,
    };
    Arc::new(bulk.scenario())
}

fn world(controller: &str, flows: usize) -> FlowWorld {
    FlowWorld::new(scenario(controller, flows), ()).unwrap()
}

/// Observes every flow each 100 ms for `spans` spans.
fn course(world: &mut FlowWorld, spans: u64) -> Vec<f32> {
    let flows = world.scenario().flows.len();
    let mut course = Vec::new();
    for _ in 0..spans {
        world.step(world.now() + MS(100));
        for flow in 0..flows {
            let mut seen = [0.0; OBSERVATION_LENGTH];
            world.observe(flow, &mut seen);
            course.extend(seen);
        }
    }
    course
}

/// Controllers that an agent may meet: by window, by rate, learning, and under random draws.
const CONTROLLERS: [&str; 6] = ["reno", "cubic", "bbr3", "allegro", "xavier", "learningcc"];

#[test]
fn a_reset_world_is_as_new() {
    for controller in CONTROLLERS {
        let mut world = world(controller, 4);
        let first = course(&mut world, 100);
        world.reset(2);
        assert_ne!(course(&mut world, 100), first, "{controller}: another seed has other losses");
        world.reset(1);
        assert_eq!(course(&mut world, 100), first, "{controller}");
    }
}

#[test]
fn a_snapshot_goes_on_as_the_original_does_and_may_be_gone_back_to() {
    for controller in CONTROLLERS {
        let mut world = world(controller, 2);
        course(&mut world, 50);
        let snapshot = world.clone();
        let original = course(&mut world, 50);
        for _ in 0..2 {
            world = snapshot.clone();
            assert_eq!(course(&mut world, 50), original, "{controller}");
        }
    }
}

#[test]
fn an_observation_says_what_happened_since_the_last() {
    let mut world = world("reno", 1);
    let at = |name: &str| OBSERVATION.iter().position(|(known, _)| *known == name).unwrap();
    let mut seen = [0.0; OBSERVATION_LENGTH];
    world.step(Time::ZERO + Duration::SECOND * 20);
    world.observe(0, &mut seen);
    assert_eq!(seen[at("active")], 1.0);
    assert!(seen[at("min_rtt_ms")] <= seen[at("srtt_ms")] && seen[at("min_rtt_ms")] > 0.0, "{seen:?}");
    let (mut acked, mut packets) = (0.0, 0.0);
    let before = world.sent(0);
    for _ in 0..100 {
        world.step(world.now() + MS(100));
        world.observe(0, &mut seen);
        acked += f64::from(seen[at("acked_mbit_s")]) * 0.1e6 / 8.0;
        packets += f64::from(seen[at("sent_packets_s")]) * 0.1;
        assert_eq!(f64::from(seen[at("window_bytes")]), world.sender(0).unwrap().limits().window.get() as f64);
    }
    let after = world.sent(0);
    assert!((acked - (after.acked_bytes - before.acked_bytes) as f64).abs() < 100.0, "{acked} bytes");
    assert!((packets - (after.packets - before.packets) as f64).abs() < 0.5, "{packets} packets");
    // Nothing has happened since.
    world.observe(0, &mut seen);
    assert_eq!((seen[at("acked_mbit_s")], seen[at("sent_packets_s")]), (0.0, 0.0));
}

#[test]
fn what_an_agent_bounds_is_bounded_and_goes_on_when_it_lets_go() {
    let mut world = world("cubic", 1);
    let goodput = |world: &mut FlowWorld, seconds: u64| {
        let before = world.sent(0).acked_bytes;
        world.step(world.now() + Duration::SECOND * seconds);
        (world.sent(0).acked_bytes - before) as f64 * 8.0 / seconds as f64 / 1e6
    };
    goodput(&mut world, 10);
    let rate = Some(Rate::from_bits_per_sec(500_000));
    world.set_bounds(0, Bounds { rate, ..Bounds::default() });
    let bounded = goodput(&mut world, 10);
    assert!((0.4..0.51).contains(&bounded), "{bounded} Mbit/s");
    world.set_bounds(0, Bounds { fixed: Some(Bytes::new(20 * 1448)), ..Bounds::default() });
    let fixed = goodput(&mut world, 10);
    assert!(fixed > 1.5, "{fixed} Mbit/s");
    world.set_bounds(0, Bounds::default());
    assert!(goodput(&mut world, 10) > 1.0);
}

#[test]
fn a_world_nobody_observes_and_one_that_is_measured_are_the_same() {
    let scenario = scenario("reno", 3);
    let measured = anabranch_lab::flows::run(&scenario, &()).unwrap();
    let mut world = FlowWorld::new(Arc::clone(&scenario), ()).unwrap();
    let end = Time::ZERO + scenario.length;
    world.network().set_marks([end; 2]);
    world.step(end);
    for (flow, measured) in measured.flows.iter().enumerate() {
        let sent = world.sent(flow);
        assert_eq!((sent.packets, sent.lost), (measured.packets_sent, measured.packets_lost));
    }
    for (link, measured) in (0..).zip(&measured.links) {
        let (done, _) = world.network().pass_mark(LinkId(link)).expect("the end is marked");
        assert_eq!(done, measured.count);
    }
}

/// What the coordinator tells is a window over the round trip, which the first connection learns and the others know.
#[test]
fn a_connection_with_0rtt_has_its_window_at_once_where_the_path_is_known() {
    let text = "[run]\nseconds = 12\n[dumbbell]\nrate = \"100 Mbit/s\"\ndelay_ms = 15\naccess_rate = \"1 Gbit/s\"\n\
                access_delay_ms = 5\nqueue = { ms = 50 }\n[[flow]]\ncontroller = \"c3-cubic\"\nsteered = true\n\
                workload = { once_bytes = 51200, every_s = 1 }\n[steering]\nlink = \"bottleneck\"\nevery_ms = 100\n";
    let scenario = anabranch_scenario::file::parse_flows(text, "s.toml", &[]).unwrap();
    let measured = anabranch_lab::flows::run(&scenario, &()).unwrap();
    assert_eq!(measured.flows[0].controller, "c3-cubic");
    let [first, others @ ..] = &measured.flows[0].completion_acked[..] else { panic!("none has ended") };
    // Three round trips of 50 ms with RFC 6928's ten packets, and one.
    assert!(*first > MS(150) && others.len() >= 10, "{first:?} {others:?}");
    assert!(others.iter().all(|took| (MS(50)..MS(56)).contains(took)), "{others:?}");
}

/// An ACK that ends a probe timeout's backoff, or shortens the round trip, leaves a probe overdue while the window lets
/// nothing leave: it is due at once (RFC 9002, A.8). A step asserts that no timer had passed when it was said.
#[test]
fn a_probe_that_is_overdue_is_due_now() {
    let text = r#"
        [run]
        seconds = 600
        seed = 3
        [packets]
        max_ack_delay_ms = 1
        data_bytes = 1448
        header_bytes = 52
        ack_bytes = 52
        [dumbbell]
        pairs = 4
        rate = "20 Mbit/s"
        delay_ms = 10
        queue = { ms = 60 }
        loss = 0.05
        access_rate = "100 Mbit/s"
        access_delay_ms = 10
        [[flow]]
        name = "flow{i}"
        controller = "reno"
        count = 4
        start_within_s = 1
    "#;
    let scenario = anabranch_scenario::file::parse_flows(text, "s.toml", &[]).unwrap();
    let mut world = FlowWorld::new(Arc::new(scenario), ()).unwrap();
    world.step(Time::ZERO + Duration::SECOND * 600);
}
