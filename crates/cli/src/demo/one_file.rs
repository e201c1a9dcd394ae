//! One sender, one file, twenty relays of different limits.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anabranch_control::path::Slot;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_net::disk::DiskStore;
use anabranch_net::loopback::Sockets;
use anabranch_net::runtime::Runtime;
use anabranch_net::setup::{self, PACKET, SenderSetup};
use anabranch_proto::overlay::courier::SendCounters;
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::overlay::wire;
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{self, FileSender, Limits, Receiver, Transferred};
use anabranch_report::Report;

use super::page::{self, Page};
use super::series::{self, Series};
use super::view::View;
use super::{Args, PEERS};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount};
use crate::printer::{on_stdout, print_line};
use crate::stream::demo;
use anabranch_lab::physical::{self, Sizes};

/// Limits of the relays, on average, if nothing else is asked for.
const LIMIT: Rate = Rate::from_bytes_per_sec(60_000);

/// Behind the relays: who receives, and who sends.
const RECEIVER: usize = PEERS;
const SENDER: usize = PEERS + 1;

/// Bytes of the file, unless others are asked for.
const SIZE: u64 = 6_000_000;

/// The best this many seconds in a row are shown.
const BEST: usize = 10;

/// Sends the file and prints what was measured.
pub fn run(args: &Args, interrupt: &Interrupt) -> Result<(), Failure> {
    setup::check_hops(args.hops, PEERS)?;
    let limits = limits(args.limit.unwrap_or(LIMIT));
    let sockets = Sockets::bind(PEERS + 2)?;
    let route = setup::longest_route(&sockets.addresses()[..PEERS], args.hops, sockets.addresses()[RECEIVER]);
    let block = transfer::block_size(&route, PACKET)
        .ok_or_else(|| Failure::new("the route leaves no room for data in a packet"))?;
    let sizes = Sizes { packet: PACKET as f64, ack: wire::ack_len(&route) as f64, payload: f64::from(block) };
    let ceiling = physical::one_sender(&limits, args.hops, &sizes);

    let identity = Identity::generate();
    let courier = SenderSetup {
        peers: sockets.addresses()[..=RECEIVER].to_vec(),
        hops: args.hops,
        controller: args.controller,
        parameters: network::parameters(args.controller.name, &args.set)?,
        pacing: args.pacing.into(),
        // What limits nothing would send as fast as the machine can.
        upload: Some(upload(ceiling, &sizes)),
        packet: PACKET,
        start: Time::ZERO,
        rng: Rng::stream(args.seed, "sender"),
    }
    .build()?;
    // Files come last: what is wrong with the arguments leaves none behind.
    let received = args.out.join("received");
    let store = DiskStore::open(&received)
        .map_err(|error| Failure::new(format!("cannot keep files in {}: {error}", received.display())))?;
    let path = match &args.file {
        Some(path) => path.clone(),
        None => make_file(args, &received)?,
    };
    let (offer, source) = network::offer(&path, block, interrupt)?;
    let hash = blake3::Hash::from_bytes(offer.hash);
    let length = offer.length;
    let mut runtime = Runtime::new((store, source))?;
    let key = Some(identity.public());
    let sender = FileSender::new(runtime.now(), courier, Slot(RECEIVER as u16), key, offer);
    let relays = limits
        .iter()
        .zip(super::phases(args.seed, PEERS))
        .map(|(&limit, phase)| Peer::new(RelayNode::new(args.limit_model.model(limit, phase), limit), None, None));
    let receiver = Receiver::new(identity, Limits::default());
    let ends = [
        Peer::new(RelayNode::end(), Some(receiver), None),
        Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender)))),
    ];
    sockets.serve(&mut runtime, relays.chain(ends), super::delays(args.seed, PEERS + 2))?;

    let what = format!(
        "{}, {}: over {} of {PEERS} relays for each packet, controller {}, seed {}",
        path.display(),
        Amount(length as f64),
        args.hops,
        args.controller.name,
        args.seed
    );
    network::say(args.json, &what);
    let mut series = Series::new(limits);
    let done = transfer(&mut runtime, interrupt, &mut series, length, ceiling)?;
    let arrived = received.join(&done.name);
    check(&arrived, hash)?;
    if let Some(sender) = runtime.machine(SENDER).sender() {
        let counters = sender.courier().counters();
        if args.json {
            print_line!("{}", figures(&done, ceiling, counters))?;
        } else {
            print_relays(&runtime, &series.limits, &series::learned(sender.courier(), PEERS))?;
            print_figures(&done, &series, ceiling, args.hops, &sizes, counters)?;
        }
    }
    let right = format!("file            {}, {length} bytes, BLAKE3 {hash}: right", arrived.display());
    network::say(args.json, &right);
    let page = Page {
        title: "A file over relays".to_owned(),
        meta: vec![
            ("file", format!("{}, {length} bytes, BLAKE3 {hash}", path.display())),
            ("controller", args.controller.name.to_owned()),
            ("seed", args.seed.to_string()),
            ("wall clock", format!("{:.1} s", done.took.as_secs_f64())),
        ],
        series: &series,
        ceiling,
        table: None,
    };
    let stream = if args.with_stream { Some(stream(&args.out, interrupt)?) } else { None };
    network::say(args.json, &format!("report          {}", page::write(&page, stream, &args.out)?.display()));
    Ok(())
}

/// A live stream after the file: its figures are printed, and the page tells of them.
fn stream(out: &Path, interrupt: &Interrupt) -> Result<Report, Failure> {
    print_line!("")?;
    let args = demo::Args::plain(out.join("stream"));
    let (figures, report) = demo::play(&args, interrupt)?;
    on_stdout(|stdout| crate::table::print(&figures.rows(), 2.., stdout))?;
    demo::write(&figures, &args.out)?;
    Ok(report)
}

/// From half of `mean` to one and a half of it.
fn limits(mean: Rate) -> Vec<Rate> {
    let share = |relay: usize| 0.5 + relay as f64 / (PEERS - 1) as f64;
    (0..PEERS).map(|relay| Rate::from_bytes_per_sec_f64(mean.bytes_per_sec() * share(relay))).collect()
}

/// Twice what the relays could forward: it hinders no controller that learns.
fn upload(ceiling: f64, sizes: &Sizes) -> Rate {
    Rate::from_bytes_per_sec_f64(2.0 * ceiling / sizes.payload * sizes.packet)
}

/// Turns until the file is there, showing and noting what happens.
fn transfer(
    runtime: &mut Runtime<Peer>,
    interrupt: &Interrupt,
    series: &mut Series,
    length: u64,
    ceiling: f64,
) -> Result<Transferred, Failure> {
    let relays = series.limits.iter().enumerate().map(|(number, &limit)| (format!("relay {number:>2}"), limit));
    let view = View::new(length, "limit", relays);
    let start = runtime.now();
    let (mut next_look, mut next_sample) = (start, start + Duration::SECOND);
    loop {
        let until = next_look.min(next_sample);
        runtime.turn(until)?;
        let now = runtime.now();
        let Some(sender) = runtime.machine_mut(SENDER).file_sender_mut() else {
            return Err(Failure::new("the sender is gone"));
        };
        if interrupt.is_raised() {
            view.clear();
            return Err(Failure::interrupted("the file did not arrive"));
        }
        let over = sender.is_over();
        let (arrived, courier) = (sender.arrived_bytes(), sender.courier());
        if now >= next_sample || over {
            let SendCounters { sent, lost, .. } = *courier.counters();
            series.note(now.since(start).as_secs_f64(), arrived, sent, lost, courier);
            next_sample += Duration::SECOND;
        }
        if now >= next_look {
            next_look = now + network::TICK;
            let message = headline(courier.counters(), courier.smoothed_rtt(), series.latest(3), ceiling);
            view.show(message, arrived, &series::learned(courier, PEERS));
        }
        match sender.outcome() {
            Some(Ok(done)) if over => {
                let done = done.clone();
                view.clear();
                settle(runtime, now)?;
                return Ok(done);
            }
            Some(Err(error)) => {
                let failure = Failure::new(format!("the file did not arrive: {error}"));
                view.clear();
                return Err(failure);
            }
            _ => {}
        }
    }
}

/// Lets the last words arrive.
fn settle(runtime: &mut Runtime<Peer>, now: Time) -> io::Result<()> {
    runtime.run_until(now + Duration::from_millis(500))
}

fn headline(counters: &SendCounters, rtt: Option<Duration>, goodput: f64, ceiling: f64) -> String {
    let rtt = rtt.map_or("no round trip yet".to_owned(), |rtt| format!("round trip {:.0} ms", rtt.as_millis_f64()));
    let lost = 100.0 * counters.lost as f64 / counters.sent.max(1) as f64;
    format!("{}/s of {}/s possible, {rtt}, {lost:.1} % lost", Amount(goodput), Amount(ceiling))
}

/// A file of random bytes in the demo's folder; the one that was received before goes.
fn make_file(args: &Args, received: &Path) -> Result<PathBuf, Failure> {
    let name = format!("sample-{}.bin", args.seed);
    let path = args.out.join(&name);
    let failed = |error: io::Error| Failure::new(format!("cannot make {}: {error}", path.display()));
    let before = received.join(&name);
    if before.exists() {
        fs::remove_file(before).map_err(failed)?;
    }
    let part = args.out.join(format!(".{name}.part"));
    fill(&part, args.size.unwrap_or(SIZE), args.seed).and_then(|()| fs::rename(&part, &path)).map_err(|error| {
        // Nothing half-written stays; what can't be removed was not written.
        let _ = fs::remove_file(&part);
        failed(error)
    })?;
    Ok(path)
}

fn fill(path: &Path, size: u64, seed: u64) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    let mut rng = Rng::stream(seed, "file");
    let mut left = size;
    while left > 0 {
        let bytes = rng.bits().to_le_bytes();
        let count = left.min(8) as usize;
        file.write_all(&bytes[..count])?;
        left -= count as u64;
    }
    file.flush()
}

/// Reads what has arrived once more, independently of the receiver.
fn check(path: &Path, expected: blake3::Hash) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot read {}: {error}", path.display()));
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(fs::File::open(path).map_err(failed)?).map_err(failed)?;
    if hasher.finalize() == expected {
        return Ok(());
    }
    Err(Failure::new(format!("{} does not have the hash of the file that was sent", path.display())))
}

fn print_relays(runtime: &Runtime<Peer>, limits: &[Rate], learned: &[Option<f64>]) -> Result<(), Failure> {
    print_line!("relay       limit     learned  forwarded  refused")?;
    for (number, (limit, learned)) in limits.iter().zip(learned).enumerate() {
        let counters = runtime.machine(number).relay().counters();
        print_line!(
            "{number:>5}  {:>8}/s  {:>8}/s  {:>9}  {:>7}",
            Amount(limit.bytes_per_sec()).to_string(),
            learned.map_or("-".to_owned(), |rate| Amount(rate).to_string()),
            counters.forwarded,
            counters.refused_data + counters.refused_acks
        )?;
    }
    Ok(())
}

/// What `--json` says.
fn figures(done: &Transferred, ceiling: f64, counters: &SendCounters) -> serde_json::Value {
    let seconds = done.took.as_secs_f64();
    serde_json::json!({
        "bytes": done.length,
        "seconds": seconds,
        "bytes_per_second": done.length as f64 / seconds.max(1e-9),
        "possible_bytes_per_second": ceiling,
        "packets": counters.sent,
        "acknowledged_packets": counters.acked,
        "late_packets": counters.late,
        "lost_packets": counters.lost,
        "forged_acks": counters.forged,
    })
}

fn print_figures(
    done: &Transferred,
    series: &Series,
    ceiling: f64,
    hops: usize,
    sizes: &Sizes,
    counters: &SendCounters,
) -> Result<(), Failure> {
    let mean = done.length as f64 / done.took.as_secs_f64();
    let percent = |rate: f64| 100.0 * rate / ceiling;
    print_line!("time            {:.1} s, from the first greeting to the checked file", done.took.as_secs_f64())?;
    print_line!("goodput         {}/s on average, {:.0} % of what is possible", Amount(mean), percent(mean))?;
    if let Some(best) = series.best(BEST) {
        print_line!("  best {BEST} s     {}/s, {:.0} %", Amount(best), percent(best))?;
    }
    print_line!(
        "possible        {}/s: sum of limits / ({hops} x ({:.0} + {:.0})) x {:.0}",
        Amount(ceiling),
        sizes.packet,
        sizes.ack,
        sizes.payload
    )?;
    print_line!(
        "packets         {}: {} acknowledged in time, {} late, {} lost; {} forged ACKs",
        counters.sent,
        counters.acked,
        counters.late,
        counters.lost,
        counters.forged
    )?;
    Ok(())
}
