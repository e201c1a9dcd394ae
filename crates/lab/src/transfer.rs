//! One file over relays in simulated time: the machines that `anabranch send`, `relay` and `receive`
//! run, on their wire format, and where the time of a transfer goes.
//!
//! Nothing depends on the machine that simulates, except that keys are drawn anew in each run; no delay
//! follows from them.

use std::fmt;
use std::net::SocketAddr;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{Entry, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::courier::{Courier, SendCounters};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::message::{FileName, Offer};
use anabranch_proto::path_sender::{PathSender, SenderConfig};
use anabranch_proto::peer::{Peer, Sender};
use anabranch_proto::relay_node::RelayNode;
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{FileSender, Limits, Phase, Receiver, block_size};
use anabranch_proto::wire;
use anabranch_sim::delay::{DelayModel, JitterTail};
use anabranch_sim::fabric::NodeId;
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};

use crate::physical::{self, Sizes};
use crate::soak::disks::Disks;
use crate::soak::store::{MemorySource, MemoryStore, Shelf, SourceFault};
use crate::world::{Address, OnTheWire, World};

/// As `send` has it (`SenderSetup`), and so what follows of it: no ACK is late sooner.
const LEAST_TIMEOUT: Duration = Duration::from_millis(200);

/// So often it is looked at.
const LOOK: Duration = Duration::from_millis(1);

/// No transfer takes longer.
const LONGEST: Time = Time::from_nanos(3_600_000_000_000);

/// A file, the relays that it goes over, and what lies between them.
#[derive(Clone)]
pub struct OneFile {
    /// The limits of the relays, and how they are held.
    pub relays: Vec<(LimitModel, Rate)>,
    /// From when on relays are gone, by their place in the list.
    pub dying: Vec<(usize, Time)>,
    /// Relays for each packet.
    pub hops: usize,
    /// Delays between nodes.
    pub delay: DelayModel,
    /// Standard deviation of a datagram's delay, as a share of the mean.
    pub jitter: f64,
    /// The sender's controller.
    pub controller: &'static Entry,
    /// How its rates become sending times.
    pub pacing: Pacing,
    /// Bytes of a packet as UDP payload.
    pub packet: usize,
    /// Bytes of the file.
    pub length: usize,
    /// Decides positions and random choices.
    pub seed: u64,
}

impl fmt::Debug for OneFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneFile({} bytes over {} relays, {})", self.length, self.relays.len(), self.controller.name)
    }
}

/// Where the time of a transfer went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Until the offer was accepted.
    pub accepted: Duration,
    /// Until a hundredth, a tenth, half, 90 and 99 % of the file had arrived, as its sender knew.
    pub arrived: [Duration; 5],
    /// Until the receiver had checked it, and its sender knew.
    pub took: Duration,
    /// What no controller exceeds, in bytes of the file a second.
    pub possible: f64,
    /// The smoothed round-trip time at the end.
    pub round_trip: Duration,
    /// The sender's packets.
    pub packets: SendCounters,
    /// Datagrams that relays refused.
    pub refused: u64,
    /// Datagrams that they passed on.
    pub forwarded: u64,
    /// Blocks that the receiver had already.
    pub duplicates: u64,
}

/// Of the file, those of [`Measured::arrived`].
const PARTS: [f64; 5] = [0.01, 0.1, 0.5, 0.9, 0.99];

impl Measured {
    /// Goodput over the whole file, start and end included, as a share of what is possible.
    pub fn share(&self, length: usize) -> f64 {
        length as f64 / self.took.as_secs_f64() / self.possible
    }

    /// The same from a tenth of the file to 90 %.
    pub fn steady_share(&self, length: usize) -> f64 {
        0.8 * length as f64 / (self.arrived[3].as_secs_f64() - self.arrived[1].as_secs_f64()) / self.possible
    }
}

type Network = World<Peer, Pairs<Letter<Vec<u8>>>, OnTheWire, (), Disks>;

impl OneFile {
    /// Sends the file.
    ///
    /// # Panics
    ///
    /// When it does not arrive within an hour, or for paths that can't be.
    pub fn run(&self) -> Measured {
        let count = self.relays.len();
        let node = |number: usize| NodeId(number as u32);
        let addresses: Vec<SocketAddr> = (0..=count).map(|number| SocketAddr::of(node(number))).collect();
        let route: Vec<SocketAddr> = [wire::unknown_source(addresses[0])]
            .into_iter()
            .chain(addresses[..self.hops].iter().copied())
            .chain([addresses[count]])
            .collect();
        let block = block_size(&route, self.packet).expect("a packet has room for data");
        let sizes = Sizes { packet: self.packet as f64, ack: wire::ack_len(&route) as f64, payload: f64::from(block) };
        let limits: Vec<Rate> = self.relays.iter().map(|&(_, limit)| limit).collect();
        let packet = Bytes::new(self.packet as u64);
        let config = SenderConfig { peers: count + 1, relays: self.hops, packet, rtt: RttConfig::default() };
        let setup = Setup { peers: count + 1, packet, start: Time::ZERO, pacing: self.pacing };
        let made = self.controller.build.make(&setup, &toml::Table::new()).expect("not for simulation only");
        let sender = PathSender::new(&config, made.expect("defaults are valid"), Rng::stream(self.seed, "sender"));
        let sender = sender.with_least_timeout(LEAST_TIMEOUT).with_moving_deadlines();
        let deliver = |sender| Courier::new(sender, addresses, packet, None, [3; 32]);
        let courier = match self.controller.reads_telemetry {
            true => deliver(sender.with_relays_in_order()).with_bound(),
            false => deliver(sender),
        };
        let file: Vec<u8> = (0..self.length).map(|place| (place >> 8) as u8 ^ place as u8).collect();
        let (length, hash) = (self.length as u64, *blake3::hash(&file).as_bytes());
        let offer = Offer { name: FileName::sanitised("file"), length, block, hash };
        let identity = Identity::generate();
        let key = Some(identity.public());
        let sender = FileSender::new(Time::ZERO, courier, Slot(count as u16), key, offer);
        let store = MemoryStore::new(Shelf::default(), u64::MAX);
        let source = MemorySource::new(file.into(), SourceFault::None);
        let config =
            PairsConfig { delay: self.delay.clone(), jitter: self.jitter, jitter_tail: JitterTail::Normal, loss: 0.0 };
        let pairs = Pairs::new(config, count + 2, self.seed);
        let mut network: Network = World::new(pairs, OnTheWire, (), Disks::new(store, source, [None; 2], self.seed));
        for &(model, limit) in &self.relays {
            network.join(Peer::new(RelayNode::new(model, limit), None, None));
        }
        network.join(Peer::new(RelayNode::end(), Some(Receiver::new(identity, Limits::default())), None));
        network.join(Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))));

        let mut dying = self.dying.clone();
        let (mut accepted, mut arrived) = (None, [None; PARTS.len()]);
        let done = loop {
            network.step(network.now() + LOOK);
            let now = network.now();
            assert!(now < LONGEST, "the file has not arrived within an hour");
            dying.retain(|&(relay, at)| {
                let lives = now < at;
                if !lives {
                    network.leave(node(relay));
                }
                lives
            });
            let Some(Sender::File(sender)) = network.node(node(count + 1)).and_then(Peer::sender) else {
                unreachable!("the last node sends a file");
            };
            if sender.phase() >= Phase::Sending {
                accepted.get_or_insert(now);
            }
            for (part, arrived) in PARTS.iter().zip(&mut arrived) {
                if sender.arrived_bytes() as f64 >= part * self.length as f64 {
                    arrived.get_or_insert(now);
                }
            }
            match sender.outcome() {
                Some(Ok(done)) => break done.clone(),
                Some(Err(error)) => panic!("{error}"),
                None => {}
            }
        };
        let Some(Sender::File(sender)) = network.node(node(count + 1)).and_then(Peer::sender) else {
            unreachable!("the last node sends a file");
        };
        let relays = (0..count).filter_map(|number| network.node(node(number)));
        let (mut refused, mut forwarded) = (0, 0);
        for relay in relays {
            let counters = relay.relay().counters();
            refused += counters.refused_data + counters.refused_acks;
            forwarded += counters.forwarded;
        }
        let receiver = network.node(node(count)).and_then(Peer::receiver).expect("it receives");
        let since = |time: Option<Time>| time.unwrap_or(network.now()).since(Time::ZERO);
        Measured {
            accepted: since(accepted),
            arrived: arrived.map(since),
            took: done.took,
            possible: physical::one_sender(&limits, self.hops, &sizes),
            round_trip: sender.courier().smoothed_rtt().unwrap_or(Duration::ZERO),
            packets: *sender.courier().counters(),
            refused,
            forwarded,
            duplicates: receiver.counters().duplicates,
        }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry;

    use super::*;

    /// 20 MB over eight relays of 4 MB/s on one machine, by each model.
    fn fast() -> impl Iterator<Item = (LimitModel, OneFile)> {
        let limit = Rate::from_bytes_per_sec(4_000_000);
        let tenth = Duration::from_millis(100);
        let models = [
            LimitModel::Window { phase: tenth },
            LimitModel::Bucket { depth: limit * tenth },
            LimitModel::Queue { longest: tenth },
        ];
        models.into_iter().map(move |model| {
            let case = OneFile {
                relays: vec![(model, limit); 8],
                dying: Vec::new(),
                hops: 3,
                delay: DelayModel::Constant(Duration::from_nanos(50_000)),
                jitter: 0.1,
                controller: registry::find("explicit-rate").unwrap(),
                pacing: Pacing::Burst,
                packet: 1400,
                length: 20_000_000,
                seed: 1,
            };
            (model, case)
        })
    }

    /// As `anabranch demo`: 6 MB over twenty relays of 30 to 90 kB/s, some hundred milliseconds from each other.
    fn slow(model: impl Fn(Rate, f64) -> LimitModel, seed: u64) -> OneFile {
        let mut phases = Rng::stream(seed, "phases");
        let limits = (0..20).map(|relay| Rate::from_bytes_per_sec_f64(60e3 * (0.5 + f64::from(relay) / 19.0)));
        OneFile {
            relays: limits.map(|limit| (model(limit, phases.uniform()), limit)).collect(),
            delay: DelayModel::Plane {
                span: Duration::from_millis(100),
                access: Duration::from_millis(5),
                stretch: 1.0,
            },
            length: 6_000_000,
            seed,
            ..fast().next().expect("there is one").1
        }
    }

    /// What a transfer takes besides the time in which its blocks leave: a round trip for the greeting, one for what
    /// the relays grant, one for the first block and its answer. The offer's answer is there after two, and at the
    /// end the last block and its answer take one more.
    #[test]
    fn a_file_over_slow_relays_costs_three_round_trips_at_its_start_and_one_at_its_end() {
        const SEEDS: u64 = 3;
        let tenth = Duration::from_millis(100);
        let room = Bytes::new(10 * 1400);
        let window = |_, phase| LimitModel::Window { phase: Duration::from_secs_f64(phase) };
        let bucket = |limit: Rate, _| LimitModel::Bucket { depth: (limit * tenth).max(room) };
        let queue = |limit: Rate, _| LimitModel::Queue { longest: tenth.max(room / limit) };
        let models: [&dyn Fn(Rate, f64) -> LimitModel; 3] = [&window, &bucket, &queue];
        for (model, name) in models.into_iter().zip(["window", "bucket", "queue"]) {
            let (mut accepted, mut start, mut end, mut lost) = (0.0, 0.0, 0.0, 0.0);
            for seed in 1..=SEEDS {
                let case = slow(model, seed);
                let measured = case.run();
                let part = 0.1 * case.length as f64 / (measured.possible * measured.steady_share(case.length));
                let seconds = |time: Duration| time.as_secs_f64();
                let round_trips = |time: f64| time / seconds(measured.round_trip) / SEEDS as f64;
                accepted += round_trips(seconds(measured.accepted));
                start += round_trips(seconds(measured.arrived[1]) - part);
                end += round_trips(seconds(measured.took) - seconds(measured.arrived[3]) - part);
                lost += measured.packets.lost as f64 / measured.packets.sent as f64 / SEEDS as f64;
            }
            assert!(accepted < 2.0, "{name}: {accepted} round trips until the offer is accepted");
            assert!(start < 3.0, "{name}: {start} round trips at the start");
            assert!(end < 1.0, "{name}: {end} round trips at the end");
            assert!(lost < 0.02, "{name}: {lost} lost");
        }
    }

    /// All that is on the way to them counts as in flight until its deadline: there must be room for more.
    #[test]
    fn relays_that_die_on_the_way_do_not_hold_up_a_file() {
        for (model, case) in fast() {
            let dying = vec![(0, Time::from_secs_f64(1.2)), (1, Time::from_secs_f64(1.2))];
            let measured = OneFile { dying, ..case }.run();
            assert!(measured.took < Duration::SECOND * 5, "{model:?}: {measured:?}");
            assert!(measured.packets.lost > 100, "{model:?}: {measured:?}");
        }
    }

    #[test]
    fn a_file_over_fast_relays_takes_nine_tenths_of_what_is_possible_and_loses_next_to_nothing() {
        for (model, case) in fast() {
            let measured = case.run();
            assert!((0.9..1.05).contains(&measured.share(case.length)), "{model:?}: {measured:?}");
            let SendCounters { sent, lost, .. } = measured.packets;
            assert!(lost * 1000 <= sent, "{model:?}: {measured:?}");
        }
    }
}
