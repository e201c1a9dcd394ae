//! An agent inside a program that sends: it tells the coordinator what the program's own flows do, and what comes back
//! bounds them above their controllers, for as long as the lease holds.
//!
//! ```text
//! rate   = budget / flows                              each flow's
//! window = 2 rate RTT_min + 4 packets                  at most: the rate decides, whole packets need room
//! window = rate RTT_min                                where a policy was made to tell windows: at first and at most, or fixed
//! ```
//!
//! A coordinator caps the local controller and never replaces it ([C3]; design of `Bounds`): the window is a maximum, so
//! that the controller's answer to loss stays.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use anabranch_control::flow::Bounds;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::agent::AgentEvent;
use anabranch_proto::coordination::message::{Actuator, Directive, Seen};
use anabranch_proto::coordination::peer::CoordinationEvent;

use super::node::{CoordinationError, CoordinationNode};
use crate::clock::std_duration;
use crate::sessions::identity::PeerIdentity;
use crate::stream::link::Link;

/// How often it looks at what the program has reported to it: reports are wanted ten times a second or less often by
/// hosts, and four times as often by monitors.
const LOOK: Duration = Duration::from_millis(10);

/// Packets that a window has room for beside what the rate keeps in flight.
const RESERVE: u64 = 4;

/// The agent, in a thread of its own, which ends with this value.
#[derive(Debug)]
pub struct FlowAgent {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Option<Seen>>,
    lease: Mutex<Option<Lease>>,
    is_over: AtomicBool,
}

/// What holds until when.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    /// What the coordinator said.
    pub directive: Directive,
    /// When it ends.
    pub ends: Instant,
}

impl Lease {
    /// The bounds of one of `flows` flows, whose controller counts `share` of a packet on the wire and sends packets of
    /// `packet`. They have no end yet: see [`Lease::left`].
    pub fn bounds(&self, flows: u32, share: f64, min_rtt: Option<Duration>, packet: Bytes) -> Bounds {
        if self.directive.actuator != Actuator::Rate {
            let counted = |rate: Rate| Rate::from_bits_per_sec((rate.bits_per_sec() as f64 * share) as u64);
            let (rate, minimum) = (counted(self.directive.rate), counted(self.directive.minimum));
            return Directive { rate, minimum, ..self.directive }.bounds(flows, min_rtt);
        }
        let each = self.directive.rate.bits_per_sec() as f64 * share / f64::from(flows.max(1));
        let rate = Rate::from_bits_per_sec(each as u64);
        let window = min_rtt.map(|min_rtt| rate * min_rtt * 2 + packet * RESERVE);
        Bounds { rate: Some(rate), maximum: window, ..Bounds::default() }
    }

    /// How long it holds yet; none if it is over.
    pub fn left(&self) -> Option<Duration> {
        let left = self.ends.saturating_duration_since(Instant::now());
        (!left.is_zero()).then(|| Duration::from_nanos(u64::try_from(left.as_nanos()).unwrap_or(u64::MAX)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FlowAgent {
    /// An agent of the coordinator at `link`.
    ///
    /// # Errors
    ///
    /// As [`CoordinationNode::agent`].
    pub fn start(link: Link, identity: PeerIdentity) -> Result<FlowAgent, CoordinationError> {
        let shared = Arc::new(Shared::default());
        let its = Arc::clone(&shared);
        let (report, started) = mpsc::channel();
        let thread = std::thread::Builder::new().name("agent".into()).spawn(move || {
            // A runtime stays in the thread that made it.
            match CoordinationNode::agent(link, &identity, None) {
                Ok(node) => {
                    let _ = report.send(Ok(()));
                    // The system can't wait or read: the lease ends, and the flows are on their own.
                    let _ = its.run(node);
                }
                Err(error) => _ = report.send(Err(error)),
            }
        })?;
        started.recv().map_err(io::Error::other)??;
        Ok(FlowAgent { shared, thread: Some(thread) })
    }

    /// What the program has done; sent with the next report.
    pub fn set_seen(&self, seen: Seen) {
        *lock(&self.shared.seen) = Some(seen);
    }

    /// What holds now; none while the flows are on their own.
    pub fn lease(&self) -> Option<Lease> {
        lock(&self.shared.lease).filter(|lease| lease.left().is_some())
    }
}

impl Shared {
    fn run(&self, mut node: CoordinationNode) -> io::Result<()> {
        while !self.is_over.load(Ordering::Relaxed) {
            if let Some(seen) = lock(&self.seen).take() {
                node.set_seen(seen);
            }
            let until = node.now() + LOOK;
            node.turn(until)?;
            while let Some(event) = node.poll_event() {
                match event {
                    CoordinationEvent::Agent(AgentEvent::Directed(directive, _)) => {
                        let ends = Instant::now() + std_duration(directive.lifetime);
                        *lock(&self.lease) = Some(Lease { directive, ends });
                    }
                    CoordinationEvent::Agent(AgentEvent::Alone) => *lock(&self.lease) = None,
                    _ => {}
                }
            }
        }
        node.stop()
    }
}

impl Drop for FlowAgent {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Had it panicked, it would have said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::coordination::coordinator::{CoordinatorConfig, Duty, LinkConfig, Member, Share};
    use anabranch_proto::coordination::message::HostSeen;

    use super::*;

    const DIRECTIVE: Directive = Directive {
        epoch: 1,
        number: 1,
        rate: Rate::from_bits_per_sec(80_000_000),
        minimum: Rate::ZERO,
        actuator: Actuator::Rate,
        lifetime: Duration::from_millis(500),
    };

    #[test]
    fn a_budget_is_divided_by_flows_and_multiplied_by_their_own_round_trips() {
        let lease = Lease { directive: DIRECTIVE, ends: Instant::now() + std::time::Duration::from_secs(60) };
        let bounds = lease.bounds(4, 0.9, Some(Duration::from_millis(10)), Bytes::new(1000));
        // A quarter of 72 Mbit/s; twice 22.5 kB and four packets.
        let rate = Rate::from_bits_per_sec(18_000_000);
        assert_eq!((bounds.rate, bounds.maximum), (Some(rate), Some(Bytes::new(49_000))));
        assert_eq!((bounds.fixed, bounds.minimum, bounds.expires), (None, None, None), "local control stays");
        assert_eq!(lease.bounds(1, 1.0, None, Bytes::new(1000)).maximum, None);
        let over = Lease { ends: Instant::now(), ..lease };
        assert_eq!(over.left(), None);
    }

    #[test]
    fn windows_are_directed_where_a_policy_directs_windows() {
        let ends = Instant::now() + std::time::Duration::from_secs(60);
        let minimum = Rate::from_bits_per_sec(8_000_000);
        let bounds = |actuator, min_rtt: Option<Duration>| {
            let directive = Directive { actuator, minimum, ..DIRECTIVE };
            Lease { directive, ends }.bounds(4, 0.9, min_rtt, Bytes::new(1000))
        };
        // A quarter of 72 Mbit/s for 10 ms, and a quarter of 7.2.
        let (window, least, rtt) = (Some(Bytes::new(22_500)), Some(Bytes::new(2250)), Some(Duration::from_millis(10)));
        assert_eq!(bounds(Actuator::Fixed, rtt), Bounds { fixed: window, ..Bounds::default() });
        let expected = Bounds { initial: window, maximum: window, minimum: least, ..Bounds::default() };
        assert_eq!(bounds(Actuator::Maximum, rtt), expected);
        assert_eq!(bounds(Actuator::Fixed, None), Bounds::default());
    }

    #[test]
    fn flows_have_a_lease_while_their_coordinator_lives_and_none_soon_after() {
        let (coordinator, host) = (PeerIdentity::generate(), PeerIdentity::generate());
        let capacity = Rate::from_bits_per_sec(10_000_000);
        let duty = Duty::Host { link: 0, least: Rate::ZERO, most: capacity, most_flows: 10 };
        let config = CoordinatorConfig {
            epoch: 1,
            every: Duration::from_millis(50),
            utilisation: 1.0,
            actuator: Actuator::Rate,
            share: Share::PerFlow,
            expected: Default::default(),
            links: vec![LinkConfig { name: "uplink".into(), capacity, queue: None }],
            members: vec![Member { name: "host".into(), key: host.public(), duty }],
            policy: None,
        };
        let mut node = CoordinationNode::coordinate(config, &coordinator, ([127, 0, 0, 1], 0).into()).unwrap();
        let agent = FlowAgent::start(node.link().clone(), host).unwrap();
        agent.set_seen(Seen::Host(HostSeen { flows: 2, ..HostSeen::default() }));
        let deadline = Instant::now() + std::time::Duration::from_secs(60);
        while agent.lease().is_none() {
            assert!(Instant::now() < deadline, "it is told nothing");
            let until = node.now() + LOOK;
            node.turn(until).unwrap();
        }
        let rate = agent.lease().unwrap().bounds(2, 1.0, None, Bytes::new(1000)).rate;
        assert_eq!(rate, Some(Rate::from_bits_per_sec(5_000_000)));
        drop(node);
        while agent.lease().is_some() {
            assert!(Instant::now() < deadline, "a lease that does not end");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}
