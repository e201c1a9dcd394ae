use core::convert::Infallible;

use anabranch_control::time::Duration;
use anabranch_sim::access::{Access, AccessConfig, AccessLinks};
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig, Links, NetworkBuilder};
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};
use anabranch_sim::varying::Course;

use super::*;
use crate::monitor::tests::Until;

const MS: fn(u64) -> Duration = Duration::from_millis;

/// Hands out a job each millisecond, and writes to somebody who is not there.
#[derive(Debug, Default)]
struct Clerk {
    next: Time,
    done: u32,
    /// How much too early its timer is, and whether it moves at all.
    early: Duration,
    stays: bool,
}

impl Machine for Clerk {
    type Address = u32;
    type Message = ();
    type Event = Infallible;
    type Job = ();
    type Done = ();

    fn on_message(&mut self, _: Time, _: Arrival<u32>, (): &mut (), _: &mut impl Out<Clerk>) {}

    fn on_timer(&mut self, now: Time, out: &mut impl Out<Clerk>) {
        if !self.stays {
            self.next = now + MS(1);
            out.job(());
            out.send(machine::Departure::now(1 << 20, 0), &());
        }
    }

    fn on_done(&mut self, _: Time, (): (), _: &mut impl Out<Clerk>) {
        self.done += 1;
    }

    fn timer(&self, _: Time) -> Time {
        Time::ZERO + self.next.since(Time::ZERO + self.early)
    }
}

struct Nothing;

impl Carrier<Clerk> for Nothing {
    type Payload = Letter<()>;

    fn pack(&mut self, (): &(), _: &mut Letter<()>) {}

    fn unpack(&mut self, _: &Letter<()>, (): &mut ()) -> bool {
        true
    }
}

struct Slowly;

impl Worker<Clerk> for Slowly {
    fn takes(&mut self, _: Time, _: NodeId, (): &()) -> Duration {
        MS(20)
    }

    fn work(&mut self, _: Time, _: NodeId, (): ()) {}
}

fn world(clerk: Clerk) -> World<Clerk, Pairs<Letter<()>>, Nothing, (), Slowly> {
    let config =
        PairsConfig { delay: DelayModel::Constant(MS(1)), jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
    let mut world = World::new(Pairs::new(config, 1, 1), Nothing, (), Slowly);
    world.join(clerk);
    world
}

#[test]
fn a_step_goes_on_after_a_job_is_asked_for() {
    let mut world = world(Clerk::default());
    world.step(Time::ZERO + MS(100));
    // Timers at 0, 1, ..., 99 ms; jobs are done 20 ms later.
    assert_eq!((world.now(), world.node(NodeId(0)).unwrap().done), (Time::ZERO + MS(100), 80));
    assert_eq!(world.counters().late_timers, 0);
}

#[test]
fn a_message_to_a_node_that_never_joined_is_counted_and_lost() {
    let mut world = world(Clerk::default());
    world.step(Time::ZERO + MS(10));
    assert_eq!(world.counters().undeliverable, 10);
}

#[test]
fn a_machine_that_does_not_get_on_ends_a_bounded_step() {
    let mut world = world(Clerk { stays: true, ..Clerk::default() });
    assert!(!world.step_at_most(Time::ZERO + MS(1), 1000));
    assert_eq!((world.counters().events, world.now()), (1000, Time::ZERO));
    let mut world = self::world(Clerk::default());
    assert!(!world.step_at_most(Time::ZERO + MS(100), 150), "there are 180 events");
    assert!(world.step_at_most(Time::ZERO + MS(100), 1000));
    assert_eq!(world.node(NodeId(0)).unwrap().done, 80);
}

#[test]
fn who_interrupts_a_step_is_asked_after_so_many_events_and_what_was_given_up_goes_on() {
    // Timers, and from the twentieth on jobs' ends: two events a millisecond.
    let end = Time::ZERO + MS(100_000);
    let mut interrupted = world(Clerk::default());
    let monitor = Until::question(2);
    assert!(!interrupted.step_monitored(end, &monitor));
    assert_eq!((interrupted.counters().events, monitor.seconds.get()), (2 * EVENTS_BETWEEN_QUESTIONS, 0));
    assert!(interrupted.now() < end);
    let patient = Until::question(u64::MAX);
    assert!(interrupted.step_monitored(end, &patient));
    let mut alone = world(Clerk::default());
    alone.step(end);
    assert_eq!(interrupted.counters(), alone.counters());
    assert_eq!(interrupted.node(NodeId(0)).unwrap().done, alone.node(NodeId(0)).unwrap().done);
    let left = alone.counters().events - 2 * EVENTS_BETWEEN_QUESTIONS;
    assert_eq!(patient.questions.get(), left / EVENTS_BETWEEN_QUESTIONS);
}

/// Calls an agent at every third act, until the agent has seen it.
#[derive(Default)]
struct Calling {
    acts: u64,
    seen: u64,
}

impl Observer<Clerk> for Calling {
    fn on_acted(&mut self, _: Time, _: NodeId, _: &Clerk) {
        self.acts += 1;
    }

    fn calls_agent(&self) -> bool {
        self.acts >= self.seen + 3
    }
}

#[test]
fn an_observer_calls_an_agent_in_the_middle_of_a_step_and_nothing_is_lost() {
    let config =
        PairsConfig { delay: DelayModel::Constant(MS(1)), jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
    let mut called = World::new(Pairs::new(config, 1, 1), Nothing, Calling::default(), Slowly);
    called.join(Clerk::default());
    let end = Time::ZERO + MS(100);
    let mut calls = Vec::new();
    while !called.step_until_called(end, u64::MAX) {
        called.observer_mut().seen += 3;
        calls.push(called.now());
    }
    // Timers at 0, 1, 2, ... ms.
    assert_eq!(calls[..2], [Time::ZERO + MS(2), Time::ZERO + MS(5)]);
    // 100 timers and 80 jobs' ends.
    assert_eq!((calls.len(), called.observer().acts, called.now()), (60, 180, end));
    let mut alone = world(Clerk::default());
    alone.step(end);
    assert_eq!(called.node(NodeId(0)).unwrap().done, alone.node(NodeId(0)).unwrap().done);
    assert_eq!(called.counters(), alone.counters());
}

/// Waits for an instant that has passed, as often as it is told.
#[derive(Default)]
struct Late {
    due: Time,
    left: u32,
    woken: Vec<Time>,
}

impl Machine for Late {
    type Address = u32;
    type Message = ();
    type Event = Infallible;
    type Job = Infallible;
    type Done = Infallible;

    fn on_message(&mut self, _: Time, _: Arrival<u32>, (): &mut (), _: &mut impl Out<Late>) {}

    fn on_timer(&mut self, now: Time, _: &mut impl Out<Late>) {
        self.woken.push(now);
        self.left -= 1;
        self.due = Time::ZERO + now.since(Time::ZERO + MS(1));
    }

    fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<Late>) {
        match done {}
    }

    fn timer(&self, _: Time) -> Time {
        if self.left == 0 { Time::MAX } else { self.due }
    }
}

impl Carrier<Late> for Nothing {
    type Payload = Letter<()>;

    fn pack(&mut self, (): &(), _: &mut Letter<()>) {}

    fn unpack(&mut self, _: &Letter<()>, (): &mut ()) -> bool {
        true
    }
}

/// When a machine is woken that is always late.
fn woken<F: Fabric<Payload = Letter<()>>>(fabric: F) -> Vec<Time> {
    let mut world = World::new(fabric, Nothing, (), ());
    let node = world.join(Late { due: Time::ZERO + MS(3), left: 3, ..Late::default() });
    world.step(Time::ZERO + MS(20));
    assert_eq!((world.counters().late_timers, world.now()), (2, Time::ZERO + MS(20)));
    world.act(node, |machine, _, _| machine.left = 1);
    world.step(Time::ZERO + MS(30));
    let machine = world.leave(node).unwrap();
    // One that joins has seen no clock: it is not late.
    world.rejoin(node, Late { left: 1, ..machine });
    world.step(Time::ZERO + MS(40));
    assert_eq!(world.counters().late_timers, 3);
    world.leave(node).unwrap().woken
}

#[test]
fn a_timer_that_has_passed_is_counted_and_comes_now_on_every_fabric() {
    let all = [3, 3, 3, 20, 30].map(|millis| Time::ZERO + MS(millis));
    let delay = DelayModel::Constant(MS(1));
    let pairs = PairsConfig { delay: delay.clone(), jitter: 0.0, jitter_tail: JitterTail::Normal, loss: 0.0 };
    assert_eq!(woken(Pairs::new(pairs, 1, 1)), all);
    let link = |name: &str| LinkConfig {
        name: name.into(),
        rate: None,
        delay: Course::constant(MS(1)),
        capacity: Capacity::Unlimited,
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    };
    let links = AccessLinks { up: link("up"), down: link("down") };
    assert_eq!(woken(Access::new(AccessConfig { delay, jitter: 0.0, links }, 1, 1)), all);
    let mut network = NetworkBuilder::new();
    network.link(link("a"));
    assert_eq!(woken(Links::new(network, 1, &[], 1)), all);
}

#[test]
#[should_panic(expected = "timers that had passed")]
fn a_run_that_ends_with_a_late_timer_is_found() {
    let mut world = world(Clerk { next: Time::ZERO + MS(10), early: MS(2), ..Clerk::default() });
    world.step_at_most(Time::ZERO + MS(20), 10);
    world.debug_assert_no_late_timers();
}
