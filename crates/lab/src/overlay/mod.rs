//! A run of an overlay: senders and relays of the protocol on simulated nodes.
//!
//! Every peer relays, and sends data to random peers that it knows; what happens is
//! counted for each simulated second.

pub mod run_files;
pub mod summary;

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use anabranch_control::path::perfect::{Manager, Perfect};
use anabranch_control::path::registry::{Build, Pacing, Setup};
use anabranch_control::path::{PathController, Slot};
use anabranch_control::registry::ParameterError;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::packet::{Kind, Packet, Route};
use anabranch_proto::path_sender::{AckVerdict, PathSender, SenderConfig};
use anabranch_proto::relay::{Relay, Verdict};
use anabranch_sim::delay::{Delays, Jitter};
use anabranch_sim::event_queue::EventQueue;

use anabranch_scenario::overlay::{LimitKind, Misbehaviour, Overlay, Scenario};

/// What happened in one simulated second, over all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Data packets that left their source.
    pub sent: u32,
    /// Data packets that reached their destination.
    pub delivered: u32,
    /// Packets and ACKs that arrived at a node, refused ones too.
    pub packet_hops: u32,
    /// Data packets that a relay or a destination refused because of its limit.
    pub refused: u32,
    /// ACKs that a relay refused because of its limit.
    pub refused_acks: u32,
    /// Data packets that were lost at random between two nodes.
    pub lost: u32,
    /// ACKs that were lost at random between two nodes.
    pub lost_acks: u32,
    /// Data packets that a misbehaving relay swallowed.
    pub swallowed: u32,
    /// ACKs that a misbehaving relay swallowed.
    pub swallowed_acks: u32,
    /// ACKs that came in time.
    pub acked: u32,
    /// Deadlines that passed without an ACK.
    pub timed_out: u32,
    /// ACKs that came after their deadline: nothing had been lost.
    pub late_acks: u32,
    /// ACKs that did not know their packet's nonce.
    pub forged_acks: u32,
    /// Sum over the ACKs in time of how long before their deadline they came, in µs.
    pub early_us: u64,
}

impl Second {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Second) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.packet_hops += other.packet_hops;
        self.refused += other.refused;
        self.refused_acks += other.refused_acks;
        self.lost += other.lost;
        self.lost_acks += other.lost_acks;
        self.swallowed += other.swallowed;
        self.swallowed_acks += other.swallowed_acks;
        self.acked += other.acked;
        self.timed_out += other.timed_out;
        self.late_acks += other.late_acks;
        self.forged_acks += other.forged_acks;
        self.early_us += other.early_us;
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// One row a simulated second; fewer than asked for if the run was interrupted.
    pub seconds: Vec<Second>,
    /// The registered name of the controller that ran.
    pub controller: &'static str,
    /// Peers in the overlay.
    pub peers: usize,
    /// Bytes of a data packet.
    pub packet: Bytes,
    /// Data packets on their way when the run ended.
    pub data_in_flight: u64,
    /// Memory of all senders at the end, in bytes.
    pub sender_memory_bytes: u64,
    /// Peers that the senders know, summed over the senders.
    pub peer_pairs: u64,
    /// The rates of the watched sender, if one was asked for.
    pub rates: Option<RateTrace>,
}

/// The learned rates of one sender, sampled each second.
#[derive(Clone, Debug, PartialEq)]
pub struct RateTrace {
    /// The node that was watched.
    pub sender: u32,
    /// The nodes that it knows, in the order of the rates.
    pub known: Vec<u32>,
    /// For each second a rate for each known node, in bytes a second; not a number
    /// where the controller has no rate.
    pub rates_bytes_per_s: Vec<f32>,
}

impl Measured {
    /// Received payload in bytes a second a peer, for each second.
    pub fn received_bytes_per_s(&self) -> impl Iterator<Item = f64> + '_ {
        let scale = self.packet.get() as f64 / self.peers as f64;
        self.seconds.iter().map(move |second| f64::from(second.delivered) * scale)
    }

    /// All counts of the run together.
    pub fn packet_hops(&self) -> u64 {
        self.seconds.iter().map(|second| u64::from(second.packet_hops)).sum()
    }

    /// Refused packets in per cent of all packets that nodes received ([Raiber 2010]
    /// table 7.4, note 3), data and ACKs, over the whole run.
    pub fn drop_percent(&self) -> f64 {
        let sum = |count: fn(&Second) -> u32| self.seconds.iter().map(|s| u64::from(count(s))).sum::<u64>() as f64;
        let refused = sum(|s| s.refused) + sum(|s| s.refused_acks);
        100.0 * refused / sum(|s| s.packet_hops).max(1.0)
    }
}

/// What shall happen at an instant.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The packet arrives at the node that its route is at.
    Arrive(u32),
    /// A sender's timer.
    Sender(u32),
    /// A change of limits takes effect.
    Change(u32),
}

/// An event in the queue: what it is in the highest two bits, of what below. Half of
/// an enum's size, and the queue's size is what an event costs.
#[derive(Clone, Copy, Debug)]
struct Packed(u32);

impl Packed {
    const INDEX: u32 = (1 << 30) - 1;

    #[inline]
    fn event(self) -> Event {
        let index = self.0 & Packed::INDEX;
        match self.0 >> 30 {
            0 => Event::Arrive(index),
            1 => Event::Sender(index),
            _ => Event::Change(index),
        }
    }
}

impl From<Event> for Packed {
    #[inline]
    fn from(event: Event) -> Packed {
        let (what, index) = match event {
            Event::Arrive(index) => (0, index),
            Event::Sender(index) => (1, index),
            Event::Change(index) => (2, index),
        };
        debug_assert!(index <= Packed::INDEX, "a run holds fewer than 2^30 packets");
        Packed(what << 30 | index)
    }
}

struct Sender {
    machine: PathSender,
    view: Box<[u32]>,
    rng: Rng,
    /// Where the next packet goes; drawn once for each packet.
    destination: Slot,
    starts: Time,
    /// When the application has the next packet, if it does not always have one.
    offers: Option<Offer>,
    /// The timer event that counts; others are stale.
    armed: Time,
}

#[derive(Clone, Copy, Debug)]
struct Offer {
    next: Time,
    gap: Duration,
}

struct World<'a> {
    overlay: &'a Overlay,
    /// Of data and of an ACK, by kind.
    sizes: [Bytes; 2],
    now: Time,
    queue: EventQueue<Packed>,
    packets: Vec<Packet<u32>>,
    free: Vec<u32>,
    relays: Vec<Relay>,
    senders: Vec<Sender>,
    delays: Delays,
    jitter: Jitter,
    loss: Rng,
    /// What each node does to what it should forward; empty if all behave.
    misbehaviour: Vec<Option<Misbehaviour>>,
    manager: Option<Arc<Mutex<Manager>>>,
    second: Second,
}

/// Runs `scenario`; `each_second` sees every simulated second and may stop the run.
pub fn run(
    scenario: &Scenario,
    mut each_second: impl FnMut(&Second) -> ControlFlow<()>,
) -> Result<Measured, ParameterError> {
    let mut world = World::new(scenario)?;
    let overlay = &scenario.overlay;
    let mut rates = overlay.watch.map(|sender| RateTrace {
        sender,
        known: world.senders[sender as usize].view.to_vec(),
        rates_bytes_per_s: Vec::new(),
    });
    let mut seconds = Vec::with_capacity(scenario.seconds as usize);
    for index in 0..scenario.seconds {
        world.run_until(Time::ZERO + Duration::SECOND * (index + 1));
        let second = std::mem::take(&mut world.second);
        if let Some(trace) = &mut rates {
            world.sample_rates(trace);
        }
        seconds.push(second);
        if each_second(&second).is_break() {
            break;
        }
    }
    let data_in_flight = world.data_in_flight();
    Ok(Measured {
        seconds,
        controller: overlay.controller.name,
        peers: overlay.peers,
        packet: overlay.packet,
        data_in_flight,
        sender_memory_bytes: world.senders.iter().map(|sender| sender.machine.memory_bytes() as u64).sum(),
        peer_pairs: world.senders.iter().map(|sender| sender.view.len() as u64).sum(),
        rates,
    })
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario) -> Result<World<'a>, ParameterError> {
        let overlay = &scenario.overlay;
        let seed = scenario.seed;
        let mut phases = Rng::stream(seed, "phases");
        let phases: Vec<Duration> = (0..overlay.peers).map(|_| Duration::from_secs_f64(phases.uniform())).collect();
        let omniscient = matches!(overlay.controller.build, Build::Omniscient);
        let delays = Delays::new(&overlay.delay, overlay.peers, seed);
        let manager = omniscient.then(|| {
            let known = delays.clone();
            let mean = move |from: u32, to: u32| known.mean(from, to);
            let limits = vec![overlay.limit; overlay.peers];
            Arc::new(Mutex::new(Manager::new(&limits, Box::new(mean), delays.longest(), overlay.packet, overlay.ack)))
        });
        let relays = phases.iter().map(|&phase| {
            // The manager's first step: all relays count in the same windows (6.3.2).
            let phase = if omniscient { Duration::ZERO } else { phase };
            let model = match overlay.limit_model {
                LimitKind::Window => LimitModel::Window { phase },
                LimitKind::Bucket { depth } => LimitModel::Bucket { depth },
                LimitKind::Queue { longest } => LimitModel::Queue { longest },
            };
            Relay::new(model, overlay.limit)
        });
        let mut world = World {
            overlay,
            sizes: [overlay.packet, overlay.ack],
            now: Time::ZERO,
            queue: EventQueue::new(),
            packets: Vec::new(),
            free: Vec::new(),
            relays: relays.collect(),
            senders: Vec::with_capacity(overlay.peers),
            delays,
            jitter: Jitter::new(overlay.jitter, Rng::stream(seed, "jitter")),
            loss: Rng::stream(seed, "loss"),
            misbehaviour: overlay.misbehaviours(),
            manager,
            second: Second::default(),
        };
        for (node, &phase) in phases.iter().enumerate() {
            let sender = world.sender(seed, node as u32, phase)?;
            world.queue.push(sender.armed, Event::Sender(node as u32).into());
            world.senders.push(sender);
        }
        for (index, change) in overlay.limit_changes.iter().enumerate() {
            world.queue.push(change.at, Event::Change(index as u32).into());
        }
        Ok(world)
    }

    fn sender(&self, seed: u64, node: u32, phase: Duration) -> Result<Sender, ParameterError> {
        let overlay = self.overlay;
        let view = view(overlay, seed, node);
        let starts = Time::ZERO + overlay.join_every * u64::from(node) + phase;
        let config =
            SenderConfig { peers: view.len(), relays: overlay.relays, packet: overlay.packet, rtt: overlay.rtt };
        let controller: Box<dyn PathController> = match &self.manager {
            Some(manager) => Box::new(Perfect::new(manager.clone(), node, view.clone(), overlay.relays)),
            None => {
                let setup = Setup { peers: view.len(), packet: overlay.packet, start: starts, pacing: overlay.pacing };
                let made = overlay.controller.build.make(&setup, &overlay.parameters);
                made.expect("an omniscient controller has a manager")?
            }
        };
        let machine = PathSender::new(&config, controller, Rng::indexed(seed, "sender", u64::from(node)));
        let mut rng = Rng::indexed(seed, "destinations", u64::from(node));
        let destination = Slot(rng.below(view.len()) as u16);
        let offers = overlay.offered.map(|rate| Offer { next: starts, gap: overlay.packet / rate });
        Ok(Sender { machine, view, rng, destination, starts, offers, armed: starts })
    }

    fn run_until(&mut self, end: Time) {
        while let Some((at, event)) = self.queue.pop_before(end) {
            self.now = at;
            // The next packet is fetched into the cache while this one is worked on.
            if let Some(Event::Arrive(next)) = self.queue.upcoming().map(Packed::event) {
                std::hint::black_box(self.packets[next as usize].kind);
            }
            match event.event() {
                Event::Arrive(index) => self.arrive(index),
                Event::Sender(node) => self.sender_timer(node),
                Event::Change(index) => self.change_limits(index),
            }
        }
        self.now = end;
    }

    fn arrive(&mut self, index: u32) {
        self.second.packet_hops += 1;
        let packet = &mut self.packets[index as usize];
        let node = packet.route.at();
        let size = self.sizes[packet.kind as usize];
        match self.relays[node as usize].on_packet(self.now, packet, size) {
            Verdict::Forward { to, wait } if self.misbehaviour.is_empty() => self.travel(index, node, to, wait),
            Verdict::Forward { to, wait } => self.misbehave(index, node, to, wait),
            Verdict::Deliver { wait } => {
                self.second.delivered += 1;
                if let Some(to) = packet.turn_around() {
                    self.travel(index, node, to, wait);
                }
            }
            Verdict::Home => self.come_home(index, node),
            Verdict::Refuse => {
                match packet.kind {
                    Kind::Data => self.second.refused += 1,
                    Kind::Ack => self.second.refused_acks += 1,
                }
                self.free.push(index);
            }
        }
    }

    /// Sends a packet from `from` to `to`, which its route is at already.
    #[inline]
    fn travel(&mut self, index: u32, from: u32, to: u32, wait: Duration) {
        if self.overlay.loss > 0.0 && self.loss.chance(self.overlay.loss) {
            match self.packets[index as usize].kind {
                Kind::Data => self.second.lost += 1,
                Kind::Ack => self.second.lost_acks += 1,
            }
            self.free.push(index);
            return;
        }
        let delay = self.delays.sample(from, to, &mut self.jitter);
        self.queue.push(self.now + wait + delay, Event::Arrive(index).into());
    }

    /// A relay that may misbehave has something to forward.
    fn misbehave(&mut self, index: u32, node: u32, to: u32, wait: Duration) {
        let Some(misbehaviour) = self.misbehaviour[node as usize] else {
            return self.travel(index, node, to, wait);
        };
        if self.loss.chance(misbehaviour.drop) {
            match self.packets[index as usize].kind {
                Kind::Data => self.second.swallowed += 1,
                Kind::Ack => self.second.swallowed_acks += 1,
            }
            self.free.push(index);
            return;
        }
        let packet = &mut self.packets[index as usize];
        if misbehaviour.forge && packet.kind == Kind::Data {
            // It claims the arrival of what it discards. The nonce it can only guess.
            self.second.swallowed += 1;
            packet.nonce = self.loss.bits();
            packet.route.step_back();
            if let Some(back) = packet.turn_around() {
                return self.travel(index, node, back, wait);
            }
        }
        self.travel(index, node, to, wait + misbehaviour.delay);
    }

    fn come_home(&mut self, index: u32, node: u32) {
        let packet = &self.packets[index as usize];
        let sender = &mut self.senders[node as usize];
        match sender.machine.on_ack(self.now, packet.id, packet.nonce) {
            AckVerdict::Acked { early, .. } => {
                self.second.acked += 1;
                self.second.early_us += early.as_nanos() / 1000;
            }
            AckVerdict::Late { .. } => self.second.late_acks += 1,
            AckVerdict::Forged => self.second.forged_acks += 1,
            AckVerdict::Unknown => {}
        }
        self.free.push(index);
        // Evenly paced, an ACK may raise a rate and so bring a departure forward.
        if self.overlay.pacing == Pacing::Paced {
            self.arm(node);
        }
    }

    fn sender_timer(&mut self, node: u32) {
        let sender = &mut self.senders[node as usize];
        if sender.armed != self.now {
            return;
        }
        sender.armed = Time::MAX;
        let timed_out = &mut self.second.timed_out;
        sender.machine.on_timer(self.now, |_| *timed_out += 1);
        while let Some((index, to)) = self.depart(node) {
            self.second.sent += 1;
            self.travel(index, node, to, Duration::ZERO);
        }
        self.arm(node);
    }

    /// The next packet of `node`, if its application has one and its controller has room.
    fn depart(&mut self, node: u32) -> Option<(u32, u32)> {
        let sender = &mut self.senders[node as usize];
        if sender.starts > self.now || sender.offers.is_some_and(|offer| offer.next > self.now) {
            return None;
        }
        let destination = sender.destination;
        let departure = sender.machine.poll(self.now, destination)?;
        if let Some(offer) = &mut sender.offers {
            offer.next += offer.gap;
        }
        sender.destination = Slot(sender.rng.below(sender.view.len()) as u16);
        let view = &sender.view;
        let relays = departure.relays().iter().map(|slot| view[slot.index()]);
        let route = Route::new(node, relays, view[destination.index()]);
        let to = route.at();
        let packet = Packet { id: departure.id, nonce: departure.nonce, kind: Kind::Data, route };
        let index = match self.free.pop() {
            Some(index) => {
                self.packets[index as usize] = packet;
                index
            }
            None => {
                self.packets.push(packet);
                (self.packets.len() - 1) as u32
            }
        };
        Some((index, to))
    }

    /// Makes sure that the sender's timer fires when its machine or application wants it.
    #[inline]
    fn arm(&mut self, node: u32) {
        let sender = &mut self.senders[node as usize];
        let mut at = sender.machine.timer();
        if let Some(offer) = sender.offers {
            at = at.min(offer.next);
        }
        let at = at.max(sender.starts);
        if at < sender.armed {
            sender.armed = at;
            self.queue.push(at, Event::Sender(node).into());
        }
    }

    fn change_limits(&mut self, index: u32) {
        let change = &self.overlay.limit_changes[index as usize];
        for &node in &change.peers {
            self.relays[node as usize].set_limit(self.now, change.limit);
            if let Some(manager) = &self.manager {
                manager.lock().expect("no sender panics while it asks the manager").set_limit(node, change.limit);
            }
        }
    }

    fn sample_rates(&self, trace: &mut RateTrace) {
        let sender = &self.senders[trace.sender as usize];
        let rate = |slot: usize| {
            let rate: Option<Rate> = sender.machine.controller().rate(Slot(slot as u16));
            rate.map_or(f32::NAN, |rate| rate.bytes_per_sec() as f32)
        };
        trace.rates_bytes_per_s.extend((0..sender.view.len()).map(rate));
    }

    fn data_in_flight(&mut self) -> u64 {
        let mut count = 0;
        while let Some((_, event)) = self.queue.pop() {
            if let Event::Arrive(index) = event.event() {
                count += u64::from(self.packets[index as usize].kind == Kind::Data);
            }
        }
        count
    }
}

/// The nodes that `node` knows: all others, or as many as the scenario says at random.
fn view(overlay: &Overlay, seed: u64, node: u32) -> Box<[u32]> {
    let others = overlay.peers - 1;
    // The i-th of the others, in order of their numbers.
    let other = |index: usize| if index < node as usize { index as u32 } else { index as u32 + 1 };
    let known = overlay.known_peers.min(others);
    if known == others {
        return (0..others).map(other).collect();
    }
    // Floyd's sampling without replacement (Bentley, Floyd, CACM 1987).
    let mut rng = Rng::indexed(seed, "view", u64::from(node));
    let mut chosen = std::collections::BTreeSet::new();
    for top in others - known..others {
        let drawn = rng.below(top + 1);
        chosen.insert(if chosen.contains(&drawn) { top } else { drawn });
    }
    chosen.into_iter().map(other).collect()
}
