//! The world: machines on a fabric, moved by its events.
//!
//! Two doors lead in. An *observer* sees what happens and changes nothing; `()` sees nothing and
//! costs nothing. An *agent* is whoever steps the world and acts on a machine in between: a
//! coordinator, a learning environment, a script of changes, a test of invariants.

mod address;
mod carrier;
mod jobs;
mod observer;
mod sharded;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anabranch_control::time::Time;
use anabranch_proto::machine::{self, Arrival, Machine, Out};
use anabranch_sim::fabric::{self, Event, Fabric, Forwarded, NodeId};

use crate::monitor::{EVENTS_BETWEEN_QUESTIONS, Monitor};
pub use address::Address;
pub use carrier::{AsTheyAre, Carrier, OnTheWire};
use jobs::Pending;
pub use jobs::Worker;
pub use observer::{Observer, Transit};
pub use sharded::Sharded;

/// What the world itself has done, since its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldCounters {
    /// Messages and timers that machines were called for.
    pub events: u64,
    /// Messages that could not be read where they arrived.
    pub unreadable: u64,
    /// Messages to addresses that no node has, or whose node has left.
    pub undeliverable: u64,
    /// Timers that a machine said after a call and that had passed before it. A machine that has
    /// just joined has seen no clock: it counts from its first call on.
    pub late_timers: u64,
}

/// Machines `M` on a fabric `F`, with messages carried by `C`, seen by `O`, jobs done by `W`.
#[derive(Clone, Debug)]
pub struct World<M: Machine, F, C, O = (), W = ()> {
    nodes: Vec<Option<M>>,
    surroundings: Surroundings<M, F, C, O, W>,
    /// The message that a machine is shown.
    inbox: M::Message,
}

/// All but the machines: what a machine's [`Out`] reaches.
#[derive(Clone, Debug)]
struct Surroundings<M: Machine, F, C, O, W> {
    fabric: F,
    carrier: C,
    observer: O,
    worker: W,
    pending: BinaryHeap<Reverse<Pending<M::Job>>>,
    jobs: u64,
    /// How often each node that has joined has left.
    lives: Vec<u32>,
    counters: WorldCounters,
}

/// Why a part of a step was over.
enum Stop {
    /// Nothing more happens before its end.
    End,
    /// A job was asked for.
    Job,
    /// There were as many events as there may be.
    Events,
    /// The observer calls an agent.
    Call,
}

impl<M: Machine, F: Fabric, C, O, W> Surroundings<M, F, C, O, W> {
    /// Where a node stands in tables of those that are here.
    #[inline]
    fn place(&self, node: NodeId) -> usize {
        node.0.wrapping_sub(self.fabric.first_node().0) as usize
    }

    /// `node` said after a call that it waits for `at`.
    #[inline]
    fn set_timer(&mut self, node: NodeId, at: Time) {
        let now = self.fabric.now();
        self.counters.late_timers += u64::from(at < now);
        self.fabric.set_timer(node, at.max(now));
    }
}

impl<M, F, C, O, W> World<M, F, C, O, W>
where
    M: Machine<Address: Address, Message: Default>,
    F: Fabric,
    C: Carrier<M, Payload = F::Payload>,
    O: Observer<M>,
    W: Worker<M>,
{
    /// Whether machines ask for jobs at all: one that cannot has a job without values, of which an option needs no
    /// room.
    const HAS_JOBS: bool = size_of::<Option<M::Job>>() > 0;

    /// An empty world on `fabric`.
    pub fn new(fabric: F, carrier: C, observer: O, worker: W) -> World<M, F, C, O, W> {
        World {
            nodes: Vec::new(),
            surroundings: Surroundings {
                fabric,
                carrier,
                observer,
                worker,
                pending: BinaryHeap::new(),
                jobs: 0,
                lives: Vec::new(),
                counters: WorldCounters::default(),
            },
            inbox: M::Message::default(),
        }
    }

    /// Back to time zero, without nodes, with the random streams of `seed`. Memory is kept.
    pub fn reset(&mut self, seed: u64) {
        self.nodes.clear();
        self.surroundings.fabric.reset(seed);
        self.surroundings.pending.clear();
        self.surroundings.jobs = 0;
        self.surroundings.lives.clear();
        self.surroundings.counters = WorldCounters::default();
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.surroundings.fabric.now()
    }

    /// A node joins; its timer counts from now on.
    pub fn join(&mut self, machine: M) -> NodeId {
        let node = self.surroundings.fabric.join();
        debug_assert_eq!(self.surroundings.place(node), self.nodes.len(), "nodes are numbered in the order of joining");
        self.nodes.push(Some(machine));
        self.surroundings.lives.push(0);
        self.arm(node);
        node
    }

    /// A node leaves, as it is: what is on its way to it is lost, and so is what it waited for.
    pub fn leave(&mut self, node: NodeId) -> Option<M> {
        let place = self.surroundings.place(node);
        let machine = self.nodes.get_mut(place)?.take()?;
        self.surroundings.lives[place] += 1;
        Some(machine)
    }

    /// `machine` takes the place of a node that has left: it is back under the same address, and
    /// knows what it is given.
    ///
    /// # Panics
    ///
    /// If the node is there.
    pub fn rejoin(&mut self, node: NodeId, machine: M) {
        let place = &mut self.nodes[self.surroundings.place(node)];
        assert!(place.is_none(), "node {} is there", node.0);
        *place = Some(machine);
        self.arm(node);
    }

    /// How many nodes have joined, those that have left included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no node has joined.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// A node's machine; none if it has left or never joined.
    pub fn node(&self, node: NodeId) -> Option<&M> {
        self.nodes.get(self.surroundings.place(node))?.as_ref()
    }

    /// The machines that are there, by node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &M)> {
        (self.surroundings.fabric.first_node().0..)
            .map(NodeId)
            .zip(&self.nodes)
            .filter_map(|(node, machine)| Some((node, machine.as_ref()?)))
    }

    /// Acts on a node's machine, as an application or an agent: what it sends leaves now. None if
    /// it is not there.
    pub fn act<R>(
        &mut self,
        node: NodeId,
        act: impl FnOnce(&mut M, Time, &mut Port<'_, M, F, C, O, W>) -> R,
    ) -> Option<R> {
        let now = self.now();
        let machine = self.nodes.get_mut(self.surroundings.place(node))?.as_mut()?;
        let result = act(machine, now, &mut Port { node, keep_timer: false, world: &mut self.surroundings });
        let timer = machine.timer(now);
        self.surroundings.set_timer(node, timer);
        self.surroundings.observer.on_acted(now, node, machine);
        Some(result)
    }

    /// Lets everything happen that happens before `until`.
    pub fn step(&mut self, until: Time) {
        while !self.step_until::<false>(until, u64::MAX) {}
    }

    /// The same, but returns as soon as the observer [calls an agent](Observer::calls_agent), and
    /// after `events` events: whether everything has happened. What has not goes on with the next
    /// step.
    pub fn step_until_called(&mut self, until: Time, events: u64) -> bool {
        self.step_until::<true>(until, self.surroundings.counters.events.saturating_add(events))
    }

    /// The same, but gives up after `events` events: whether everything has happened. What was
    /// given up goes on with the next step.
    pub fn step_at_most(&mut self, until: Time, events: u64) -> bool {
        let last = self.surroundings.counters.events.saturating_add(events);
        while !self.step_until::<true>(until, last) {
            if self.surroundings.counters.events >= last {
                return false;
            }
        }
        true
    }

    /// The same, but gives up when `monitor` interrupts it: whether everything has happened.
    pub fn step_monitored(&mut self, until: Time, monitor: &dyn Monitor) -> bool {
        while !self.step_at_most(until, EVENTS_BETWEEN_QUESTIONS) {
            if monitor.is_interrupted() {
                return false;
            }
        }
        true
    }

    /// Lets everything happen before `until`; false if the observer has called an agent before
    /// that or, if `BOUNDED`, there were `last` events.
    fn step_until<const BOUNDED: bool>(&mut self, until: Time, last: u64) -> bool {
        loop {
            let jobs = self.surroundings.pending.peek().map_or(Time::MAX, |Reverse(pending)| pending.at);
            match self.step_between_jobs::<BOUNDED>(until.min(jobs), last) {
                Stop::Events | Stop::Call => return false,
                Stop::Job => continue,
                Stop::End if jobs >= until => return true,
                Stop::End => {}
            }
            let Some(Reverse(Pending { node, life, job, .. })) = self.surroundings.pending.pop() else { return true };
            // A machine that has left in the meantime asked for it: nobody waits for it any more.
            if life == self.surroundings.lives[self.surroundings.place(node)] {
                self.surroundings.counters.events += 1;
                let done = self.surroundings.worker.work(self.now(), node, job);
                self.act(node, |machine, now, out| machine.on_done(now, done, out));
                if self.surroundings.observer.calls_agent() {
                    return false;
                }
            }
        }
    }

    /// Lets everything happen before `end`, or until a job is asked for that may be done before
    /// that.
    #[inline]
    fn step_between_jobs<const BOUNDED: bool>(&mut self, end: Time, last: u64) -> Stop {
        let jobs = self.surroundings.jobs;
        loop {
            if BOUNDED && self.surroundings.counters.events >= last {
                return Stop::Events;
            }
            let Some(event) = self.surroundings.fabric.next(end) else { return Stop::End };
            self.surroundings.counters.events += 1;
            match event {
                Event::Arrival { from, to, marked } => self.on_arrival(from, to, marked),
                Event::Timer(node) => self.on_timer(node),
            }
            if self.surroundings.observer.calls_agent() {
                return Stop::Call;
            }
            if Self::HAS_JOBS && self.surroundings.jobs != jobs {
                return Stop::Job;
            }
        }
    }

    #[inline(always)]
    fn on_arrival(&mut self, from: NodeId, to: NodeId, marked: bool) {
        let World { nodes, surroundings, inbox } = self;
        let Some(machine) = nodes.get_mut(surroundings.place(to)).and_then(Option::as_mut) else {
            surroundings.counters.undeliverable += 1;
            return;
        };
        let mut fresh;
        let inbox = if C::REUSES_MEMORY {
            inbox
        } else {
            fresh = M::Message::default();
            &mut fresh
        };
        let is_readable = surroundings.carrier.unpack(surroundings.fabric.arrived(), inbox);
        let departed = surroundings.fabric.departed();
        if !is_readable {
            surroundings.counters.unreadable += 1;
            return;
        }
        let now = surroundings.fabric.now();
        surroundings.observer.on_arrival(now, Transit { from, to, departed, marked }, inbox);
        let mut port = Port { node: to, keep_timer: false, world: surroundings };
        machine.on_message(now, Arrival { marked, ..Arrival::new(M::Address::of(from)) }, inbox, &mut port);
        if !port.keep_timer {
            let timer = machine.timer(now);
            surroundings.set_timer(to, timer);
        }
        surroundings.observer.on_acted(now, to, machine);
    }

    #[inline]
    fn on_timer(&mut self, node: NodeId) {
        let World { nodes, surroundings, .. } = self;
        let Some(machine) = nodes.get_mut(surroundings.place(node)).and_then(Option::as_mut) else { return };
        let now = surroundings.fabric.now();
        machine.on_timer(now, &mut Port { node, keep_timer: false, world: surroundings });
        let timer = machine.timer(now);
        surroundings.set_timer(node, timer);
        surroundings.observer.on_acted(now, node, machine);
    }

    fn arm(&mut self, node: NodeId) {
        let World { nodes, surroundings, .. } = self;
        if let Some(machine) = nodes.get(surroundings.place(node)).and_then(Option::as_ref) {
            let now = surroundings.fabric.now();
            surroundings.fabric.set_timer(node, machine.timer(now).max(now));
        }
    }

    /// What the world has done.
    pub fn counters(&self) -> WorldCounters {
        self.surroundings.counters
    }

    /// Asserts, where assertions are checked, that no machine has said a timer that had passed. What falls due while
    /// a machine cannot send is due when it can, and the machine says so itself: whoever forgets a deadline is found.
    pub fn debug_assert_no_late_timers(&self) {
        let late = self.surroundings.counters.late_timers;
        debug_assert_eq!(late, 0, "timers that had passed when a machine said them");
    }

    /// What is between the nodes.
    pub fn fabric(&self) -> &F {
        &self.surroundings.fabric
    }

    /// What is between the nodes, to change: a fault, a new rate.
    pub fn fabric_mut(&mut self) -> &mut F {
        &mut self.surroundings.fabric
    }

    /// How messages are carried, to change: what is lost on the way.
    pub fn carrier_mut(&mut self) -> &mut C {
        &mut self.surroundings.carrier
    }

    /// Who sees what happens.
    pub fn observer(&self) -> &O {
        &self.surroundings.observer
    }

    /// Who sees what happens, to read out.
    pub fn observer_mut(&mut self) -> &mut O {
        &mut self.surroundings.observer
    }

    /// Who does the jobs.
    pub fn worker_mut(&mut self) -> &mut W {
        &mut self.surroundings.worker
    }
}

/// The way out of one machine.
#[derive(Debug)]
pub struct Port<'a, M: Machine, F, C, O, W> {
    node: NodeId,
    keep_timer: bool,
    world: &'a mut Surroundings<M, F, C, O, W>,
}

impl<M, F, C, O, W> Port<'_, M, F, C, O, W>
where
    M: Machine<Address: Address>,
    F: Fabric,
    O: Observer<M>,
{
    /// `departure` as the fabric has it, once the observer has seen it; none if it leads nowhere.
    #[inline(always)]
    fn departure(
        &mut self,
        departure: machine::Departure<M::Address>,
        message: &M::Message,
    ) -> Option<fabric::Departure> {
        let world = &mut *self.world;
        let machine::Departure { to, wait, size, ecn_capable } = departure;
        let exists = |to: &NodeId| world.place(*to) < world.lives.len() || world.fabric.is_elsewhere(*to);
        let Some(to) = to.node().filter(exists) else {
            world.counters.undeliverable += 1;
            return None;
        };
        let Surroundings { fabric, observer, .. } = world;
        observer.on_sent(fabric.now(), self.node, to, message);
        Some(fabric::Departure { from: self.node, to, wait, size, ecn_capable })
    }
}

impl<M, F, C, O, W> Out<M> for Port<'_, M, F, C, O, W>
where
    M: Machine<Address: Address>,
    F: Fabric,
    C: Carrier<M, Payload = F::Payload>,
    O: Observer<M>,
    W: Worker<M>,
{
    #[inline(always)]
    fn send(&mut self, departure: machine::Departure<M::Address>, message: &M::Message) {
        let Some(departure) = self.departure(departure, message) else { return };
        let Surroundings { fabric, carrier, observer, .. } = &mut *self.world;
        match fabric.send(departure) {
            Some(payload) => carrier.pack(message, payload),
            None => observer.on_lost(fabric.now(), self.node, message),
        }
    }

    #[inline(always)]
    fn forward(&mut self, departure: machine::Departure<M::Address>, message: &M::Message) {
        let Some(departure) = self.departure(departure, message) else { return };
        let Surroundings { fabric, carrier, observer, .. } = &mut *self.world;
        match fabric.forward(departure) {
            Some(Forwarded::InPlace(payload)) => carrier.repack(message, payload),
            Some(Forwarded::Elsewhere(payload)) => carrier.pack(message, payload),
            None => observer.on_lost(fabric.now(), self.node, message),
        }
    }

    #[inline(always)]
    fn event(&mut self, event: M::Event) {
        self.world.observer.on_event(self.world.fabric.now(), self.node, event);
    }

    fn job(&mut self, job: M::Job) {
        let world = &mut *self.world;
        let now = world.fabric.now();
        let takes = world.worker.takes(now, self.node, &job);
        world.jobs += 1;
        let (at, sequence, life) = (now + takes, world.jobs, world.lives[world.place(self.node)]);
        world.pending.push(Reverse(Pending { at, sequence, node: self.node, life, job }));
    }

    #[inline]
    fn keep_timer(&mut self) {
        self.keep_timer = true;
    }
}
