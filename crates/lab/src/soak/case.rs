//! A case: everything that happens to one transfer from outside, drawn from a seed by named
//! streams.

use anabranch_control::path::registry::Pacing;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::transfer::Limits;
use anabranch_sim::fabric::NodeId;
use anabranch_sim::faults::Faults;

use super::disks::SlowDisk;
use super::draw::{log_uniform, now_and_then, seconds};
use super::liar::{LIES, Lie};
use super::network::Network;
use super::store::SourceFault;

/// Controllers that are tried, those of the overlay three times as often as one for each peer.
const LEARNERS: [&str; 4] = ["q-learning", "aimd", "aimd-literal", "random"];
const FLOWS: [&str; 6] = ["flow:reno", "flow:cubic", "flow:bbr", "flow:copa", "flow:vegas", "flow:ledbat"];

/// The longest file of a case.
const LONGEST: f64 = 2e6;

/// A file with more blocks of one byte than a sender may remember packets, and some more.
const MANY_BLOCKS: u64 = anabranch_proto::overlay::path_sender::MAX_REMEMBERED as u64 + 10_000;

/// Something that happens to the network at an instant.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    /// A node crashes and forgets everything.
    Crash(NodeId),
    /// It is back.
    Restart(NodeId),
    /// These nodes are cut off from the others.
    Partition(Vec<NodeId>),
    /// All nodes reach each other again.
    Heal,
    /// Messages fare like this from now on.
    Faults(Faults),
    /// The sender is told to give up.
    Cancel,
}

/// A relay's limit, and how it is held.
#[derive(Clone, Copy, Debug)]
pub struct RelayLimit {
    /// How.
    pub model: LimitModel,
    /// How much.
    pub rate: Rate,
}

/// One transfer and its troubles.
#[derive(Clone, Debug)]
pub struct Case {
    /// All is drawn from it.
    pub seed: u64,
    /// Each relay's limit.
    pub relays: Vec<RelayLimit>,
    /// Which relays lie, and how often they do so on their own.
    pub lies: Vec<Option<(Lie, Duration)>>,
    /// Relays on each packet's path.
    pub hops: usize,
    /// The longest datagram; none for the shortest that carries a byte of a file.
    pub packet: Option<usize>,
    /// What lies between the nodes.
    pub network: Network,
    /// The way over the plane of the nodes.
    pub span: Duration,
    /// The standard deviation of delays as a share of their mean.
    pub jitter: f64,
    /// The sender's controller.
    pub controller: &'static str,
    /// How it sends.
    pub pacing: Pacing,
    /// The sender's upload limit.
    pub upload: Option<Rate>,
    /// Whether the sender knows the receiver's key.
    pub has_key: bool,
    /// The file's length in bytes.
    pub length: u64,
    /// What is wrong with it.
    pub source: SourceFault,
    /// The receiver's limits.
    pub limits: Limits,
    /// Bytes that fit its disk.
    pub room: u64,
    /// How slow its disk and the sender's are; none if jobs take no time.
    pub disks: [Option<SlowDisk>; 2],
    /// Whether the receiver's events are fetched.
    pub fetches_events: bool,
    /// Whether it is waited for until the receiver has forgotten everything.
    pub lingers: bool,
    /// What happens when, in this order.
    pub troubles: Vec<(Time, Trouble)>,
    /// From here on nothing happens from outside any more.
    pub calm: Time,
    /// A bug that is planted.
    #[cfg(test)]
    pub(super) sabotage: Option<super::sabotage::Sabotage>,
}

impl Case {
    /// The case of `seed`.
    pub fn draw(seed: u64) -> Case {
        let mut rng = Rng::stream(seed, "soak/network");
        let count = 2 + rng.below(9);
        let (all, spread) = (log_uniform(&mut rng, 4e3, 40e3), rng.uniform() * 2.0);
        let relays: Vec<RelayLimit> = (0..count).map(|_| relay_limit(&mut rng, all, spread)).collect();
        let hops = 1 + rng.below(count.min(3));
        let packet = Some(300 + rng.below(1100));
        let span = seconds(&mut rng, 0.002, 0.3);
        let jitter = now_and_then(&mut rng, 0.5);

        let mut rng = Rng::stream(seed, "soak/sender");
        let learns = rng.chance(0.75);
        let controller = if learns { LEARNERS[rng.below(LEARNERS.len())] } else { FLOWS[rng.below(FLOWS.len())] };
        let pacing = if rng.chance(0.5) { Pacing::Burst } else { Pacing::Paced };
        let upload = log_uniform(&mut rng, 1e3, 20e3);
        let is_limited = controller == "random" || rng.chance(0.7);
        let has_key = rng.chance(0.5);
        let wanted = upload * log_uniform(&mut rng, 3.0, 600.0);
        let length = if rng.chance(0.05) { rng.below(2) as u64 } else { wanted.min(LONGEST) as u64 };
        let source = match rng.below(40) {
            0 | 1 if length > 0 => SourceFault::Changed,
            2 if length > 0 => SourceFault::Broken(rng.below(length as usize) as u64),
            _ => SourceFault::None,
        };

        let mut case = Case {
            seed,
            lies: lies(&mut Rng::stream(seed, "soak/liars"), count),
            relays,
            hops,
            packet,
            network: Network::draw(&mut Rng::stream(seed, "soak/access"), count as u32 + 2),
            span,
            jitter,
            controller,
            pacing,
            upload: is_limited.then(|| Rate::from_bytes_per_sec_f64(upload)),
            has_key,
            length,
            source,
            limits: Limits::default(),
            room: u64::MAX,
            disks: [None; 2],
            fetches_events: true,
            lingers: false,
            troubles: Vec::new(),
            calm: Time::ZERO,
            #[cfg(test)]
            sabotage: None,
        };
        case.draw_receiver(&mut Rng::stream(seed, "soak/receiver"));
        case.draw_disks(&mut Rng::stream(seed, "soak/disk"));
        case.draw_troubles(&mut Rng::stream(seed, "soak/troubles"));
        let mut rng = Rng::stream(seed, "soak/extremes");
        if rng.chance(0.002) {
            case.burst();
        } else if rng.chance(0.003) {
            case.crowd();
        }
        case
    }

    fn draw_receiver(&mut self, rng: &mut Rng) {
        let files = 1 + rng.below(8);
        let idle = seconds(rng, 8.0, 60.0);
        self.limits = Limits {
            files,
            files_of_one: 1 + rng.below(files),
            waiting: rng.below(4),
            complete: files + rng.below(8),
            greetings: 2 + rng.below(30),
            sessions_of_one: 2 + rng.below(16),
            greetings_per_second: 1 + rng.below(50) as u32,
            greetings_per_second_of_one: 1 + rng.below(20) as u32,
            file_bytes: if rng.chance(0.03) { self.length / 2 } else { 1 << 26 },
            blocks: 1 << 20,
            idle,
            stalled: idle * 2,
            ..Limits::default()
        };
        if rng.chance(0.08) {
            self.room = rng.below(self.length as usize + 1) as u64;
        }
        self.fetches_events = rng.chance(0.5);
        self.lingers = rng.chance(0.1);
    }

    /// Half of all disks are slow, some slower than what comes, and what waits for them is bounded
    /// closely in half of all cases.
    fn draw_disks(&mut self, rng: &mut Rng) {
        self.disks = [(); 2].map(|()| slow_disk(rng));
        if rng.chance(0.5) {
            self.limits.file_writes = log_uniform(rng, 2e3, 2e5) as usize;
            self.limits.writes = self.limits.file_writes * (1 + rng.below(self.limits.files));
        }
    }

    fn draw_troubles(&mut self, rng: &mut Rng) {
        let calm = log_uniform(rng, 1.0, 300.0);
        self.calm = Time::from_secs_f64(calm);
        let mut troubles = Vec::new();
        let at = |rng: &mut Rng| rng.uniform() * calm;
        for storm in 0..rng.below(4) {
            let faults = Faults {
                loss: now_and_then(rng, 0.4),
                duplication: now_and_then(rng, 0.4),
                reordering: now_and_then(rng, 0.4),
                delay: seconds(rng, 0.01, 3.0),
                corruption: now_and_then(rng, 0.3),
            };
            troubles.push((if storm == 0 { 0.0 } else { at(rng) }, Trouble::Faults(faults)));
        }
        for _ in 0..rng.below(6).saturating_sub(2) {
            let members = (0..self.nodes()).filter(|_| rng.chance(0.3)).map(NodeId).collect();
            let start = at(rng);
            troubles.push((start, Trouble::Partition(members)));
            troubles.push(((start + log_uniform(rng, 0.1, 60.0)).min(calm), Trouble::Heal));
        }
        for _ in 0..rng.below(6).saturating_sub(1) {
            let node = match rng.below(6) {
                0 => self.receiver(),
                1 => self.sender(),
                _ => NodeId(rng.below(self.relays.len()) as u32),
            };
            let start = at(rng);
            troubles.push((start, Trouble::Crash(node)));
            if node.index() < self.relays.len() && rng.chance(0.2) || node == self.receiver() && rng.chance(0.1) {
                continue; // For good.
            }
            troubles.push(((start + log_uniform(rng, 0.05, 60.0)).min(calm), Trouble::Restart(node)));
        }
        if rng.chance(0.04) {
            troubles.push((at(rng), Trouble::Cancel));
        }
        troubles.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut troubles: Vec<(Time, Trouble)> =
            troubles.into_iter().map(|(at, trouble)| (Time::from_secs_f64(at), trouble)).collect();
        troubles.push((self.calm, Trouble::Faults(Faults::default())));
        self.troubles = troubles;
    }

    /// Everything leaves at once, in more packets than a sender may remember, and nothing but that
    /// holds it back.
    fn burst(&mut self) {
        let rate = Rate::from_bytes_per_sec(1_000_000_000);
        self.relays.fill(RelayLimit { model: LimitModel::Window { phase: Duration::ZERO }, rate });
        self.lies.fill(None);
        (self.controller, self.upload, self.packet, self.hops) = ("random", None, None, 1);
        (self.length, self.source, self.room, self.disks) = (MANY_BLOCKS, SourceFault::None, u64::MAX, [None; 2]);
        self.limits = Limits::default();
        (self.troubles, self.calm, self.network) = (Vec::new(), Time::ZERO, Network::Pairs);
    }

    /// Strangers greet so often that a receiver whose events nobody fetches can't keep them all.
    fn crowd(&mut self) {
        self.lies[0] = Some((Lie::Greets, Duration::from_millis(25)));
        (self.limits.greetings_per_second, self.limits.greetings_per_second_of_one) = (50, 50);
        self.limits.idle = Duration::from_millis(60_000);
        (self.fetches_events, self.lingers) = (false, true);
    }

    /// The receiver comes after the relays.
    pub fn receiver(&self) -> NodeId {
        NodeId(self.relays.len() as u32)
    }

    /// The sender comes last.
    pub fn sender(&self) -> NodeId {
        NodeId(self.relays.len() as u32 + 1)
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> u32 {
        self.relays.len() as u32 + 2
    }
}

/// Half of all networks are honest; in others, up to half of the relays lie.
fn lies(rng: &mut Rng, relays: usize) -> Vec<Option<(Lie, Duration)>> {
    let mut lies = vec![None; relays];
    if rng.chance(0.5) {
        for _ in 0..=rng.below(relays / 2) {
            let lie = LIES[rng.below(LIES.len())];
            lies[rng.below(relays)] = Some((lie, seconds(rng, 0.5, 20.0)));
        }
    }
    lies
}

fn slow_disk(rng: &mut Rng) -> Option<SlowDisk> {
    let disk = SlowDisk {
        access: seconds(rng, 1e-4, 0.5),
        rate: Rate::from_bytes_per_sec_f64(log_uniform(rng, 5e3, 1e7)),
        stalls: now_and_then(rng, 0.2),
        stall: seconds(rng, 0.1, 20.0),
    };
    rng.chance(0.5).then_some(disk)
}

fn relay_limit(rng: &mut Rng, all: f64, spread: f64) -> RelayLimit {
    let rate = Rate::from_bytes_per_sec_f64(all * libm::exp(spread * rng.uniform()));
    let model = match rng.below(4) {
        0 => LimitModel::Bucket { depth: Bytes::new(log_uniform(rng, 3e3, 30e3) as u64) },
        1 => LimitModel::Queue { longest: seconds(rng, 0.05, 1.0) },
        _ => LimitModel::Window { phase: Duration::from_nanos(rng.below(1_000_000_000) as u64) },
    };
    RelayLimit { model, rate }
}
