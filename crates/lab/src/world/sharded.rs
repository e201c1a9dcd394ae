//! A world in shards, each with its part of the nodes, of the fabric and of the events.
//!
//! No message arrives sooner than the fabric's lookahead after it has departed. So all shards may go
//! on by that much without hearing of each other; then they hand over what they have for each other,
//! and go on. Each node meets the same events in the same order whatever the number of shards, and of
//! threads ([`Pairs`] has the order and its sources).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};

use anabranch_control::time::{Duration, Time};
use anabranch_proto::machine::Machine;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Addressed, Mail, Pairs};

use super::{Address, Carrier, Observer, Port, Worker, World};
use crate::monitor::Monitor;

/// Worlds that are one. One that is not `PARTED` has one shard, and spends nothing on others.
#[allow(missing_debug_implementations, reason = "messages need not have one")]
pub struct Sharded<M: Machine, P, C, O = (), W = (), const PARTED: bool = true> {
    shards: Vec<World<M, Pairs<P, PARTED>, C, O, W>>,
    /// Nodes of each shard but the last, which may have fewer.
    room: usize,
    threads: usize,
}

/// What one shard has for another; written after one window, and read after it.
type Mailbox<P> = Mutex<Vec<Mail<P>>>;

impl<M, P, C, O, W, const PARTED: bool> Sharded<M, P, C, O, W, PARTED>
where
    M: Machine<Address: Address, Message: Default + Send> + Send,
    M::Job: Send,
    P: Addressed + Clone + Send,
    C: Carrier<M, Payload = P> + Send,
    O: Observer<M> + Send,
    W: Worker<M> + Send,
{
    /// An empty world for `nodes` nodes, on the parts of one fabric, with a carrier, an observer and a
    /// worker for each. It is stepped by this many threads, or as many as it has shards.
    ///
    /// # Panics
    ///
    /// If there are several parts without a lookahead: what one sends now could arrive elsewhere now.
    pub fn new(
        parts: Vec<Pairs<P, PARTED>>,
        nodes: usize,
        threads: usize,
        mut around: impl FnMut() -> (C, O, W),
    ) -> Self {
        let alone = parts.len() == 1;
        assert!(alone || parts[0].lookahead() > Duration::ZERO, "shards need delays that have a least value");
        let room = nodes.div_ceil(parts.len()).max(1);
        let shards: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let (carrier, observer, worker) = around();
                World::new(part, carrier, observer, worker)
            })
            .collect();
        let threads = threads.clamp(1, shards.len());
        Sharded { shards, room, threads }
    }

    /// The shards, in the order of their nodes.
    pub fn shards(&self) -> &[World<M, Pairs<P, PARTED>, C, O, W>] {
        &self.shards
    }

    /// The shards themselves.
    pub fn into_shards(self) -> Vec<World<M, Pairs<P, PARTED>, C, O, W>> {
        self.shards
    }

    /// The same, to read out observers.
    pub fn shards_mut(&mut self) -> &mut [World<M, Pairs<P, PARTED>, C, O, W>] {
        &mut self.shards
    }

    /// The time up to which everything has happened.
    pub fn now(&self) -> Time {
        self.shards[0].now()
    }

    /// A node joins the first shard that has room.
    ///
    /// # Panics
    ///
    /// If there are several shards, and no more room.
    pub fn join(&mut self, machine: M) -> NodeId {
        let last = self.shards.len() - 1;
        let place = self.shards[..last].iter().position(|shard| shard.len() < self.room).unwrap_or(last);
        assert!(last == 0 || self.shards[place].len() < self.room, "a sharded world has room for its first nodes");
        self.shards[place].join(machine)
    }

    fn shard_of(&self, node: NodeId) -> usize {
        (node.index() / self.room).min(self.shards.len() - 1)
    }

    /// A node's machine; none if it has left or never joined.
    pub fn node(&self, node: NodeId) -> Option<&M> {
        self.shards[self.shard_of(node)].node(node)
    }

    /// A node leaves, as [`World::leave`].
    pub fn leave(&mut self, node: NodeId) -> Option<M> {
        let shard = self.shard_of(node);
        self.shards[shard].leave(node)
    }

    /// `machine` takes the place of a node that has left, as [`World::rejoin`].
    ///
    /// # Panics
    ///
    /// If the node is there.
    pub fn rejoin(&mut self, node: NodeId, machine: M) {
        let shard = self.shard_of(node);
        self.shards[shard].rejoin(node, machine);
    }

    /// Back to time zero, without nodes, with the random streams of `seed`, as [`World::reset`]. Memory is kept.
    ///
    /// # Panics
    ///
    /// If there are several shards and the delays of `seed` have no least value.
    pub fn reset(&mut self, seed: u64) {
        self.shards.iter_mut().for_each(|shard| shard.reset(seed));
        let alone = self.shards.len() == 1;
        assert!(
            alone || self.shards[0].fabric().lookahead() > Duration::ZERO,
            "shards need delays that have a least value"
        );
    }

    /// The machines that are there, by node.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &M)> {
        self.shards.iter().flat_map(World::nodes)
    }

    /// Acts on a node's machine, as [`World::act`].
    pub fn act<R>(
        &mut self,
        node: NodeId,
        act: impl FnOnce(&mut M, Time, &mut Port<'_, M, Pairs<P, PARTED>, C, O, W>) -> R,
    ) -> Option<R> {
        let shard = self.shard_of(node);
        self.shards[shard].act(node, act)
    }

    /// Lets everything happen that happens before `until`, unless `monitor` interrupts it: whether
    /// everything has happened.
    pub fn step_monitored(&mut self, until: Time, monitor: &dyn Monitor) -> bool {
        if let [alone] = &mut self.shards[..] {
            return alone.step_monitored(until, monitor);
        }
        let step = Step::new(&self.shards, self.threads, until);
        let mut groups = Vec::new();
        let (mut first, mut left) = (0, &mut self.shards[..]);
        for thread in 0..self.threads {
            let (group, others) = left.split_at_mut(left.len().div_ceil(self.threads - thread));
            let next = first + group.len();
            groups.push((first, group));
            (first, left) = (next, others);
        }
        let mut groups = groups.into_iter();
        let own = groups.next().expect("there is a thread, and each has a shard");
        std::thread::scope(|scope| {
            for (first, group) in groups {
                let step = &step;
                scope.spawn(move || step.run(first, group, || false));
            }
            step.run(own.0, own.1, || monitor.is_interrupted());
        });
        if let Some(panic) = step.panic.into_inner().unwrap_or_else(PoisonError::into_inner) {
            resume_unwind(panic);
        }
        self.now() >= until
    }
}

/// What the threads of one step share.
struct Step<P> {
    begin: Time,
    until: Time,
    lookahead: Duration,
    shards: usize,
    barrier: Barrier,
    /// For each from and to: two, so that a shard may write while another still reads what was written
    /// in the window before.
    mailboxes: Vec<[Mailbox<P>; 2]>,
    /// The last window, once it is known: the step was interrupted, or a thread has panicked.
    last: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl<P: Addressed + Clone + Send> Step<P> {
    fn new<M, C, O, W, const PARTED: bool>(
        shards: &[World<M, Pairs<P, PARTED>, C, O, W>],
        threads: usize,
        until: Time,
    ) -> Step<P>
    where
        M: Machine<Address: Address, Message: Default>,
        C: Carrier<M, Payload = P>,
        O: Observer<M>,
        W: Worker<M>,
    {
        Step {
            begin: shards[0].now(),
            until,
            lookahead: shards[0].fabric().lookahead(),
            shards: shards.len(),
            barrier: Barrier::new(threads),
            mailboxes: (0..shards.len() * shards.len()).map(|_| Default::default()).collect(),
            last: AtomicUsize::new(usize::MAX),
            panic: Mutex::default(),
        }
    }

    /// Steps `group`, whose first shard has the number `first`, window by window.
    fn run<M, C, O, W, const PARTED: bool>(
        &self,
        first: usize,
        group: &mut [World<M, Pairs<P, PARTED>, C, O, W>],
        interrupted: impl Fn() -> bool,
    ) where
        M: Machine<Address: Address, Message: Default>,
        C: Carrier<M, Payload = P>,
        O: Observer<M>,
        W: Worker<M>,
    {
        let (mut end, mut window) = (self.begin, 0);
        // All threads come to the same end: whether a window is the last is known before its barrier,
        // and read behind it.
        while end < self.until && self.last.load(Ordering::Acquire) >= window {
            end = (end + self.lookahead).min(self.until);
            // A thread that did not come to the barrier would leave the others waiting for ever.
            self.guard(window, || {
                for (from, shard) in (first..).zip(&mut *group) {
                    shard.step(end);
                    for to in (0..self.shards).filter(|&to| to != from) {
                        std::mem::swap(shard.fabric_mut().mail_for(to), &mut *lock(self.mail(from, to, window)));
                    }
                }
            });
            if interrupted() {
                self.last.fetch_min(window, Ordering::AcqRel);
            }
            self.barrier.wait();
            self.guard(window + 1, || {
                for (to, shard) in (first..).zip(&mut *group) {
                    for from in (0..self.shards).filter(|&from| from != to) {
                        shard.fabric_mut().deliver(&mut lock(self.mail(from, to, window)));
                    }
                }
            });
            window += 1;
        }
    }

    fn mail(&self, from: usize, to: usize, window: usize) -> &Mailbox<P> {
        &self.mailboxes[from * self.shards + to][window % 2]
    }

    /// Does `work`; if it panics, `window` is the last.
    fn guard(&self, window: usize, work: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            *lock(&self.panic) = Some(panic);
            self.last.fetch_min(window, Ordering::AcqRel);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

    use anabranch_proto::machine::{Arrival, Departure, Out};
    use anabranch_sim::delay::{DelayModel, JitterTail};
    use anabranch_sim::pairs::{Letter, PairsConfig};

    use super::*;

    const NODES: u32 = 10;

    /// Passes a number on to the next node.
    #[derive(Clone, Debug, Default)]
    struct Ring {
        heard: Vec<(Time, u64)>,
    }

    impl Machine for Ring {
        type Address = u32;
        type Message = u64;
        type Event = Infallible;
        type Job = Infallible;
        type Done = Infallible;

        fn on_message(&mut self, now: Time, arrival: Arrival<u32>, message: &mut u64, out: &mut impl Out<Ring>) {
            self.heard.push((now, *message));
            let step = (NODES + arrival.from) % NODES + 2;
            out.send(Departure::now(step % NODES, 8), &(*message + 1));
        }

        fn on_timer(&mut self, _: Time, _: &mut impl Out<Ring>) {}

        fn on_done(&mut self, _: Time, done: Infallible, _: &mut impl Out<Ring>) {
            match done {}
        }

        fn timer(&self, _: Time) -> Time {
            Time::MAX
        }
    }

    struct Plain;

    impl Carrier<Ring> for Plain {
        type Payload = Letter<u64>;

        fn pack(&mut self, message: &u64, letter: &mut Letter<u64>) {
            letter.content = *message;
        }

        fn unpack(&mut self, letter: &Letter<u64>, message: &mut u64) -> bool {
            *message = letter.content;
            true
        }
    }

    type Rings = Sharded<Ring, Letter<u64>, Plain>;

    fn rings(shards: usize, seed: u64) -> Rings {
        let delay =
            DelayModel::Plane { span: Duration::from_millis(50), access: Duration::from_millis(2), stretch: 1.0 };
        let config = PairsConfig { delay, jitter: 0.05, jitter_tail: JitterTail::Normal, loss: 0.0 };
        let parts = Pairs::<_, true>::parts(config, NODES as usize, seed, shards);
        Sharded::new(parts, NODES as usize, 2, || (Plain, (), ()))
    }

    /// All join, one leaves and is back later; what each has heard.
    fn course(world: &mut Rings) -> Vec<Vec<(Time, u64)>> {
        let at = |ms| Time::ZERO + Duration::from_millis(ms);
        for _ in 0..NODES {
            world.join(Ring::default());
        }
        for node in 0..NODES {
            world.act(NodeId(node), |_, _, out| out.send(Departure::now((node + 1) % NODES, 8), &0));
        }
        assert!(world.step_monitored(at(500), &()));
        let away = world.leave(NodeId(7)).expect("it is there");
        assert!(world.leave(NodeId(7)).is_none() && world.node(NodeId(7)).is_none() && !away.heard.is_empty());
        assert!(world.step_monitored(at(700), &()));
        world.rejoin(NodeId(7), Ring::default());
        assert!(world.step_monitored(at(2000), &()));
        world.nodes().map(|(_, ring)| ring.heard.clone()).collect()
    }

    #[test]
    fn a_world_that_is_reset_is_as_new_in_any_number_of_shards() {
        let new = course(&mut rings(1, 1));
        assert!(new.iter().map(Vec::len).sum::<usize>() > 100, "{new:?}");
        for shards in [1, 3] {
            let mut world = rings(shards, 1);
            assert_eq!(course(&mut world), new);
            world.reset(2);
            assert_ne!(course(&mut world), new, "another seed has other delays");
            world.reset(1);
            assert_eq!(course(&mut world), new);
        }
    }
}
