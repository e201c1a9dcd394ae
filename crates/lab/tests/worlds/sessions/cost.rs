//! What a delivered datagram costs: a mesh of many nodes, each with twenty sessions, in which each
//! gets as many datagrams a second as a stream of 4 Mbit/s has.
//!
//! `cargo test --release -p anabranch-lab --test worlds sessions::cost -- --ignored --nocapture`

use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_lab::world::{AsTheyAre, World};
use anabranch_proto::session::{
    Application, Closed, FlowSessions, PeerKey, Remote, SessionConfig, SessionId, Sessions, WireLength,
};

use super::{MBIT, MS, access, at};

/// A part of a stream, or a message of as many bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    #[expect(dead_code, reason = "what a block of a stream says of itself, so that it takes its room")]
    name: [u64; 2],
}

impl WireLength for Block {
    fn wire_length(&self) -> usize {
        1316
    }
}

/// Sends a datagram to each session in turn, or to each that it has begun.
#[derive(Clone, Debug)]
struct Source {
    opens: Vec<u32>,
    /// To those who began their session too.
    both_ways: bool,
    receivers: Vec<SessionId>,
    period: Duration,
    next: Time,
    /// Receivers that have got their datagram of this round.
    served: usize,
    received: u64,
}

impl Application for Source {
    type Address = u32;
    type Message = Block;
    type Datagram = Block;
    type Event = core::convert::Infallible;

    fn accepts(&mut self, _: Time, _: &Remote<u32>) -> bool {
        true
    }

    fn on_open(&mut self, _: Time, session: SessionId, remote: &Remote<u32>, _: &mut impl Sessions<Source>) {
        if self.both_ways || !remote.is_initiator {
            self.receivers.push(session);
            self.served = self.receivers.len();
        }
    }

    fn on_message(&mut self, _: Time, _: SessionId, _: Block, _: &mut impl Sessions<Source>) {}

    fn on_datagram(&mut self, _: Time, _: SessionId, _: Block, _: &mut impl Sessions<Source>) {
        self.received += 1;
    }

    fn on_closed(&mut self, _: Time, session: SessionId, why: Closed, _: &mut impl Sessions<Source>) {
        panic!("{session:?} is over: {why:?}");
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<Source>) {
        for to in self.opens.drain(..) {
            sessions.open(to, None).expect("there is room");
        }
        if self.next <= now {
            self.next += self.period;
            self.served = 0;
        }
    }

    fn timer(&self, _: Time) -> Time {
        if self.opens.is_empty() { self.next } else { Time::ZERO }
    }

    fn waiting(&self) -> Bytes {
        let waiting = self.receivers.len().saturating_sub(self.served) as u64;
        Bytes::new(Block { name: [0; 2] }.wire_length() as u64 * waiting)
    }

    #[inline]
    fn next_datagram(&mut self, _: Time) -> Option<(SessionId, Block)> {
        let session = *self.receivers.get(self.served)?;
        self.served += 1;
        Some((session, Block { name: [0; 2] }))
    }
}

/// Nanoseconds that this thread has been on a processor: other programs disturb that little.
fn processor_nanos() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    text.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("the first number is that")
}

/// Runs `seconds` of a mesh in which each node sends over its sessions, both ways or one way, and
/// prints what that took.
fn measure(nodes: u32, controller: &str, both_ways: bool, config: SessionConfig, seconds: u64) {
    let (begun, rate) = (10u32, 380);
    let sends_to = u64::from(if both_ways { 2 * begun } else { begun });
    let period = Duration::from_nanos(1_000_000_000 * sends_to / rate);
    let mut world = World::new(access(nodes as usize, MBIT(10), MBIT(50), 0.0, 1), AsTheyAre, (), ());
    for node in 0..nodes {
        let entry = find(controller).unwrap();
        let controller = entry.make(&Setup::new(Bytes::new(1316), Time::ZERO), &toml::Table::new()).unwrap();
        let phase = Rng::indexed(1, "phase", u64::from(node)).bits() % period.as_nanos();
        let source = Source {
            // Far and near in the numbers, so that no two share all their neighbours.
            opens: (1..=begun).map(|step| (node + step * step * 7) % nodes).collect(),
            both_ways,
            receivers: Vec::new(),
            period,
            next: at(1000) + Duration::from_nanos(phase),
            served: 0,
            received: 0,
        };
        let rng = Rng::indexed(1, "peer", u64::from(node));
        world.join(FlowSessions::new(source, config, PeerKey::default(), controller, &rng));
    }
    world.step(at(3000));
    let received = |world: &World<FlowSessions<Source>, _, _>| -> (u64, u64, u64) {
        world.nodes().fold((0, 0, 0), |(datagrams, alone, riding), (_, machine)| {
            let counters = machine.counters();
            (datagrams + machine.app().received, alone + counters.acks_alone, riding + counters.acks_riding)
        })
    };
    let (before, events, start) = (received(&world), world.counters().events, processor_nanos());
    world.step(at(3000 + 1000 * seconds));
    let (took, after) = (processor_nanos() - start, received(&world));
    let datagrams = (after.0 - before.0) as f64;
    println!(
        "{nodes:>5} nodes {controller:<13} {} every {:>2} or {:>3} ms: {:>4.0} ns a datagram, {:.0} a node and second, {:.2} events, {:.3} ACKs alone and {:.3} riding each",
        if both_ways { "both ways" } else { "one way  " },
        config.ack.every,
        config.ack.max_delay.as_millis_f64(),
        took as f64 / datagrams,
        datagrams / f64::from(nodes) / seconds as f64,
        (world.counters().events - events) as f64 / datagrams,
        (after.1 - before.1) as f64 / datagrams,
        (after.2 - before.2) as f64 / datagrams,
    );
    assert_eq!(world.counters().late_timers, 0);
}

#[test]
#[ignore = "measures, in a release build"]
fn cost_of_a_datagram() {
    let seconds = std::env::var("SECONDS_SIMULATED").ok().and_then(|text| text.parse().ok()).unwrap_or(3);
    let nodes = std::env::var("NODES").ok().and_then(|text| text.parse().ok()).unwrap_or(1000);
    for controller in ["cubic", "block-window"] {
        for both_ways in [true, false] {
            for millis in [25, 100] {
                let mut config = SessionConfig::default();
                config.ack.max_delay = MS(millis);
                measure(nodes, controller, both_ways, config, seconds);
            }
        }
    }
}
