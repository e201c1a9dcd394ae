//! `anabranch bench udp`: datagrams a second over the loopback interface, ours against
//! programs that do nothing but move datagrams.
//!
//! Two ends: a blaster that only sends and one that only receives are what the system
//! allows; a flow has ACKs, losses to find and a controller besides. Relays: a forwarder that
//! sends on whatever comes, in the same batches, is what the system allows a relay that can't
//! join datagrams; the relay also reads each one's route, checks and rewrites it. A source
//! keeps a window of datagrams on their way through them, so that none is lost. Batches are
//! then as long as wake-ups happen to be late; with a full socket, which is what limits a
//! relay, source, relay and end take turns in one thread, and the relay's part is timed: as a mere
//! forwarder of what is well-formed, then with a policy and shares, then with what goes one way leaving as
//! one, as `anabranch relay` runs (all of it goes one way here, which is the best case), and bound to all
//! addresses, where each datagram says from which one it leaves. Last comes a relay of the onion overlay, which takes a
//! layer off each of its datagrams of 1400 B, one in 64 of which sets up a key.
//!
//! Processor time is that of one thread, so that other programs disturb it little: the
//! rate that it would allow the thread alone is the one to compare.

mod onion;
pub mod ours;
mod plain;

use std::time::Duration;

use anabranch_proto::flow::wire::HEADER;
use serde::Serialize;

use self::ours::Guard;
use crate::failure::Failure;
use crate::printer::print_line;

/// Data in a full packet: what an Ethernet frame of 1500 B holds behind the headers of IPv4
/// and UDP and ours.
const DATA: usize = 1500 - 20 - 8 - HEADER;

/// Bytes of each datagram.
const DATAGRAM: usize = DATA + HEADER;

/// Arguments of `bench udp`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Milliseconds that each runs
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    millis: u64,
    /// How often each runs; the fastest counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// What one run has moved.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Datagrams that arrived at the end.
    arrived: u64,
    wall: Duration,
    /// Processor time of who sends.
    sender: Duration,
    /// Of who receives, or passes on.
    receiver: Duration,
}

#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    /// Arrived at the end, in wall time.
    packets_per_s: f64,
    /// Processor time for each that arrived.
    sender_ns_per_packet: f64,
    /// Of the receiver, the forwarder or the relay.
    receiver_ns_per_packet: f64,
}

#[derive(Debug, Serialize)]
struct Json {
    datagram_bytes: usize,
    rows: Vec<Row>,
    /// The relay's packets a second of processor time over the forwarder's, sockets full.
    relay_share_of_forwarder: f64,
    /// The onion's relay's over the relay's, both with segments joined.
    onion_share_of_relay: f64,
}

type Run = fn(Duration) -> Result<Moved, Failure>;

const FORWARDER: &str = "forwarder, full socket";
const RELAY: &str = "relay, full socket";

const GATHERING: &str = "the same, GSO";
const ONION: &str = "onion relay, full, GSO";

const ROWS: [(&str, Run); 13] = [
    ("blaster, sendmmsg", |time| plain::blast(time, false)),
    ("flow, fixed window", |time| ours::flow(time, "fixed", false)),
    ("blaster, GSO and GRO", |time| plain::blast(time, true)),
    ("flow, fixed window, GSO", |time| ours::flow(time, "fixed", true)),
    ("flow, cubic, GSO", |time| ours::flow(time, "cubic", true)),
    ("forwarder", plain::forward),
    ("relay", ours::relay),
    (FORWARDER, plain::forward_full),
    (RELAY, |time| ours::relay_full(time, Guard::None)),
    ("relay for strangers, full", |time| ours::relay_full(time, Guard::Strangers)),
    (GATHERING, |time| ours::relay_full(time, Guard::StrangersGathering)),
    ("relay on all addresses", |time| ours::relay_full(time, Guard::StrangersAtAllAddresses)),
    (ONION, onion::relay_full),
];

/// Measures and prints.
pub fn run(args: &Args) -> Result<(), Failure> {
    let time = Duration::from_millis(args.millis);
    let mut best: [Option<Row>; ROWS.len()] = [const { None }; ROWS.len()];
    // In turn, so that whatever else this machine does falls on all of them.
    for _ in 0..args.repeat {
        for ((what, run), best) in ROWS.iter().zip(&mut best) {
            // On a busy machine a thread may not even have begun.
            let Some(row) = row(what, run(time)?) else { continue };
            if best.as_ref().is_none_or(|best| row.receiver_ns_per_packet < best.receiver_ns_per_packet) {
                *best = Some(row);
            }
        }
    }
    if let Some(((what, _), _)) = ROWS.iter().zip(&best).find(|(_, best)| best.is_none()) {
        return Err(Failure::new(format!("{what}: no datagram has arrived in {} ms: try --millis 5000", args.millis)));
    }
    let rows: Vec<Row> = best.into_iter().flatten().collect();
    if !args.json {
        print_line!("datagrams of {DATAGRAM} B over the loopback interface (best of {})", args.repeat)?;
        print_line!(
            "{:<26} {:>12} {:>16} {:>16} {:>16}",
            "",
            "arrived/s",
            "sender ns each",
            "receiver ns each",
            "receiver 1/CPU s"
        )?;
        for Row { what, packets_per_s, sender_ns_per_packet, receiver_ns_per_packet } in &rows {
            print_line!(
                "{what:<26} {packets_per_s:>12.0} {sender_ns_per_packet:>16.0} {receiver_ns_per_packet:>16.0} {:>16.0}",
                1e9 / receiver_ns_per_packet
            )?;
        }
    }
    let of = |name: &str| rows.iter().find(|row| row.what == name).map_or(f64::NAN, |row| row.receiver_ns_per_packet);
    let relay_share_of_forwarder = of(FORWARDER) / of(RELAY);
    let onion_share_of_relay = of(GATHERING) / of(ONION);
    if args.json {
        let json = Json { datagram_bytes: DATAGRAM, rows, relay_share_of_forwarder, onion_share_of_relay };
        print_line!("{}", serde_json::to_string(&json)?)?;
    } else {
        print_line!(
            "with full sockets the relay passes on {:.0} % of what the forwarder does",
            100.0 * relay_share_of_forwarder
        )?;
        print_line!(
            "and a relay of the onion, where one packet in 64 sets up a key, {:.0} % of what the relay does with GSO",
            100.0 * onion_share_of_relay
        )?;
    }
    Ok(())
}

/// Processor time of all passages of a packet and its ACK over `hops` relays, in us: of a flow, and of the full
/// relay there and back, whose datagrams leave as one.
///
/// # Errors
///
/// When a system call fails, or this machine is so busy that nothing arrives.
pub fn passages_us(hops: usize) -> Result<f64, Failure> {
    let time = Duration::from_millis(500);
    let (flow, relay) = (ours::flow(time, "fixed", true)?, ours::relay_full(time, Guard::StrangersGathering)?);
    if flow.arrived == 0 || relay.arrived == 0 {
        return Err(Failure::new("no datagram has arrived: this machine is too busy"));
    }
    let us = |time: Duration, moved: &Moved| time.as_secs_f64() * 1e6 / moved.arrived as f64;
    Ok(us(flow.sender + flow.receiver, &flow) + 2.0 * hops as f64 * us(relay.receiver, &relay))
}

/// None if nothing has arrived.
fn row(what: &'static str, moved: Moved) -> Option<Row> {
    let each = |time: Duration| time.as_nanos() as f64 / moved.arrived as f64;
    (moved.arrived > 0).then(|| Row {
        what,
        packets_per_s: moved.arrived as f64 / moved.wall.as_secs_f64(),
        sender_ns_per_packet: each(moved.sender),
        receiver_ns_per_packet: each(moved.receiver),
    })
}
