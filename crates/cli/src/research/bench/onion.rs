//! `anabranch bench onion`: packets that one relay of the onion passes on a second, for each k.
//!
//! Thousands of users send over it, each with keys of its own, so that their ids lie all over the relay's table.
//! A packet is sealed outside of the measured time, and taken off in it as on a network: whole datagrams, in
//! batches that a socket would give. Users begin at random places of their keys' lives, so that one packet in k
//! sets up a key. Time is that of the thread on its processor, so that other programs disturb it little.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::{Cryptography, PublicKey, Real};
use anabranch_onion::packet::{AHEAD, Hop, Label, PacketsPerKey, PathKeys, Receipt};
use anabranch_onion::relay::{EpochKeys, Limits, Outcome, Relay};
use anabranch_onion::size::DATAGRAM;
use serde::Serialize;

use super::processor_time;
use crate::failure::Failure;
use crate::printer::print_line;

/// The dials that are shown when none is asked for; the last as good as never sets up a key.
const DIALS: [u16; 5] = [1, 16, 64, 256, CACHED];

/// Packets under one key in which the measured ones set up none.
const CACHED: u16 = u16::MAX;

/// Datagrams taken off at once.
const BATCH: usize = 256;

/// Ids that await their packet while it is measured, about.
const AWAITED: usize = 400_000;

/// Users, at most; nor are there more than packets that are measured.
const MOST_USERS: usize = 16_384;

/// Arguments of `bench onion`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Packets under one key; several without it
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    k: Option<u16>,
    /// How often each k is measured; the fastest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Packets that are measured for each k above 1; of k = 1 an eighth
    #[arg(long, default_value_t = 131_072, value_parser = clap::value_parser!(u32).range(2_048..))]
    packets: u32,
    /// Print one JSON object and nothing else: k, hops_per_s_per_core, setup_us and packet_us; without --k those of
    /// k = 64, with all others as `dials`
    #[arg(long)]
    json: bool,
}

/// What is printed without `--k`: the k of networks that say nothing else, as `--k` alone prints it, and all of them.
#[derive(Debug, Serialize)]
struct Json {
    #[serde(flatten)]
    standard: Dial,
    dials: Vec<Dial>,
}

/// One k.
#[derive(Clone, Copy, Debug, Serialize)]
struct Dial {
    k: u16,
    hops_per_s_per_core: f64,
    /// A packet that sets up a key.
    setup_us: Option<f64>,
    /// A packet under a key that was set up before.
    packet_us: Option<f64>,
}

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let dials = args.k.map_or(DIALS.to_vec(), |k| vec![k]);
    if !args.json {
        print_line!("{:>7} {:>12} {:>10} {:>10}", "k", "hops/s/core", "set-up us", "packet us")?;
    }
    let mut measured = Vec::new();
    for k in dials {
        let dial = measure(k, args.packets, args.repeat)?;
        if !args.json {
            let or_none = |us: Option<f64>| us.map_or("-".to_string(), |us| format!("{us:.2}"));
            let name = if k == CACHED { "cached".to_string() } else { k.to_string() };
            print_line!(
                "{name:>7} {:>12.0} {:>10} {:>10}",
                dial.hops_per_s_per_core,
                or_none(dial.setup_us),
                or_none(dial.packet_us)
            )?;
        }
        measured.push(dial);
    }
    match (args.json, args.k, measured.as_slice()) {
        (true, Some(_), [dial]) => print_line!("{}", serde_json::to_string(dial)?)?,
        (true, _, dials) => {
            let standard = dials.iter().find(|dial| dial.k == PacketsPerKey::STANDARD.get());
            let standard = *standard.expect("the standard k is among those that are shown");
            print_line!("{}", serde_json::to_string(&Json { standard, dials: measured })?)?;
        }
        (false, ..) => {}
    }
    Ok(())
}

/// The relay, and who sends over it.
struct Bench {
    relay: Relay<Real>,
    /// The keys of each.
    users: Vec<PathKeys<Real>>,
    path: [Hop; 2],
    rng: Rng,
    /// By whether a packet sets up a key: packets, and seconds they took.
    spent: [(u64, f64); 2],
}

fn measure(k: u16, packets: u32, repeat: u32) -> Result<Dial, Failure> {
    let mut rng = Rng::stream(1, "bench onion");
    let mut random = || {
        let mut bytes = [0; 32];
        bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&rng.bits().to_le_bytes()));
        bytes
    };

    let secret = Real::secret(&random());
    let other = Real::public(&Real::secret(&random()));
    let dial = PacketsPerKey::new(k).expect("k is at least 1");
    let limits = Limits { agreements_per_s: 1 << 40, agreements_at_once: 1 << 40, ..Limits::standard(dial) };
    let keys = EpochKeys { epoch: 0, secret, members: 2, own: Some(RelayIndex(0)) };
    let relay = Relay::new(dial, limits, keys, [rng.bits(), rng.bits()]);
    let hop = |relay: u16, key: PublicKey| Hop { relay: RelayIndex(relay), key, wait: Duration::ZERO };
    let path = [hop(0, relay.public_key()), hop(1, other)];
    let users = (AWAITED / usize::from(k.min(AHEAD))).min(MOST_USERS).min(packets as usize);
    let users = (0..users).map(|_| PathKeys::new(dial)).collect();
    let mut bench = Bench { relay, users, path, rng, spent: [(0, 0.0); 2] };
    let mut batch = vec![[0; DATAGRAM]; BATCH];

    // Every user's first key, and then as many packets as bring each to another place of its life.
    let users = bench.users.len();
    if k > 1 {
        let most = if k == CACHED { 2 } else { usize::from(k) };
        let sends: Vec<usize> = (0..users).map(|_| 1 + bench.rng.below(most)).collect();
        for round in 0..most {
            let senders: Vec<usize> = (0..users).filter(|&user| sends[user] > round).collect();
            for senders in senders.chunks(BATCH) {
                bench.pass(senders, &mut batch)?;
            }
        }
    }
    let packets = if k == 1 { packets / 8 } else { packets };
    let mut best: Option<Dial> = None;
    for _ in 0..repeat {
        bench.spent = [(0, 0.0); 2];
        for _ in 0..packets as usize / BATCH {
            let senders: Vec<usize> = (0..BATCH).map(|_| bench.rng.below(users)).collect();
            bench.pass(&senders, &mut batch)?;
        }
        let dial = bench.dial(k);
        if best.is_none_or(|best| best.hops_per_s_per_core < dial.hops_per_s_per_core) {
            best = Some(dial);
        }
    }
    Ok(best.expect("it is measured at least once"))
}

impl Bench {
    /// What was spent, as figures.
    fn dial(&self, k: u16) -> Dial {
        let [cached, set_up] = self.spent;
        let us = |(packets, seconds): (u64, f64)| (packets > 0).then(|| seconds * 1e6 / packets as f64);
        Dial {
            k,
            hops_per_s_per_core: (cached.0 + set_up.0) as f64 / (cached.1 + set_up.1),
            setup_us: us(set_up),
            packet_us: us(cached),
        }
    }

    /// A packet of each of `senders` passes the relay: those under known keys first, then those that set one up.
    fn pass(&mut self, senders: &[usize], batch: &mut [[u8; DATAGRAM]]) -> Result<(), Failure> {
        let mut receipts: Vec<(usize, Receipt)> = Vec::with_capacity(senders.len());
        for (&user, datagram) in senders.iter().zip(batch.iter_mut()) {
            let sealed = self.users[user].seal(&self.path, Label([0; 8]), &mut self.rng, datagram);
            receipts.push((user, sealed.expect("the path is one")));
        }
        let batch = &mut batch[..senders.len()];
        batch.sort_unstable_by_key(is_set_up);
        let (cached, set_up) = batch.split_at_mut(batch.partition_point(|datagram| !is_set_up(datagram)));
        for (datagrams, (packets, seconds)) in [cached, set_up].into_iter().zip(&mut self.spent) {
            let before = processor_time::now();
            let mut passed = 0;
            for datagram in datagrams.iter_mut() {
                let outcome = self.relay.process(Time::ZERO, datagram);
                passed += usize::from(matches!(outcome, Outcome::Forward { to: RelayIndex(1), .. }));
            }
            *seconds += (processor_time::now() - before).as_secs_f64();
            *packets += datagrams.len() as u64;
            if passed != datagrams.len() {
                return Err(Failure::new(format!("the relay passed {passed} of {} packets", datagrams.len())));
            }
        }
        for (user, receipt) in receipts {
            self.users[user].arrived(&receipt);
        }
        Ok(())
    }
}

/// Whether a datagram sets up a key: its format says so in bit 255.
fn is_set_up(datagram: &[u8; DATAGRAM]) -> bool {
    datagram[31] & 0x80 != 0
}
