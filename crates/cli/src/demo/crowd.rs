//! The standard scenario on real sockets: all peers relay, send and receive.

use anabranch_control::path::registry::Build;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_net::loopback::NoFiles;
use anabranch_net::loopback::{Crowd, Sockets};
use anabranch_net::runtime::Runtime;
use anabranch_net::setup::{self, PACKET};
use anabranch_proto::overlay::message::FILLER_PREFIX;
use anabranch_proto::overlay::packet::Kind;
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::wire;
use anabranch_proto::seal;
use anabranch_report::{Cell, Table};

use super::page::{self, Page};
use super::predict::{self, Figures};
use super::series::{self, Series};
use super::view::View;
use super::{Args, SECONDS};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{self, Amount};
use crate::printer::print_line;
use anabranch_lab::physical::{self, Sizes};

/// The limit of each peer in the thesis.
const LIMIT: Rate = Rate::from_bytes_per_sec(400_000);

/// The most peers: what one thread serves without falling behind.
const MAX_PEERS: usize = 200;

/// All peers together, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    sent: u64,
    acked: u64,
    late: u64,
    lost: u64,
    forged: u64,
    delivered: u64,
    /// Datagrams that peers received, and those that they refused because of their limit.
    received: u64,
    refused_data: u64,
    refused_acks: u64,
}

/// Lets `peers` peers send for as long as asked, and prints what was measured.
pub fn run(args: &Args, peers: usize, interrupt: &Interrupt) -> Result<(), Failure> {
    check_peers(peers, args.hops)?;
    let run_seconds = args.seconds.unwrap_or(SECONDS);
    let limit = args.limit.unwrap_or(LIMIT);
    let phases = super::phases(args.seed, peers);
    let crowd = Crowd {
        limit,
        models: phases.iter().map(|&phase| args.limit_model.model(limit, phase)).collect(),
        starts: phases.iter().map(|&phase| Time::ZERO + phase).collect(),
        hops: args.hops,
        controller: args.controller,
        parameters: network::parameters(args.controller.name, &args.set)?,
        pacing: args.pacing.into(),
        // What limits nothing sends as much as a peer may forward.
        upload: limits_nothing(args).then_some(limit),
        seed: args.seed,
    };
    let sockets = Sockets::bind(peers)?;
    let route = setup::longest_route(&sockets.addresses()[1..], args.hops, sockets.addresses()[0]);
    let around = wire::header_len(Kind::Data, &route) + seal::DATA_PREFIX + seal::TAG + FILLER_PREFIX;
    let sizes = Sizes {
        packet: PACKET as f64,
        ack: wire::ack_len(&route) as f64,
        payload: PACKET.saturating_sub(around) as f64,
    };
    let members = crowd.peers(sockets.addresses())?;
    // Before its clock starts: agreeing on keys takes a moment.
    let mut runtime = Runtime::new(NoFiles)?;
    sockets.serve(&mut runtime, members, super::delays(args.seed, peers))?;
    print_line!(
        "{peers} peers, each relaying, receiving and sending to random others over {} relays; \
         controller {}, seed {}, {} s",
        args.hops,
        args.controller.name,
        args.seed,
        run_seconds
    )?;
    let ceiling = physical::all_senders(limit, args.hops, &sizes);
    let mut series = Series::new(vec![limit; peers - 1]);
    let totals = measure(&mut runtime, interrupt, &mut series, run_seconds, &sizes, ceiling)?;
    let seconds = run_seconds as f64;
    let measured = Figures {
        received_bytes_per_s: totals.delivered as f64 * sizes.packet / (seconds * peers as f64),
        drop_percent: 100.0 * (totals.refused_data + totals.refused_acks) as f64 / totals.received.max(1) as f64,
    };
    let predicted = predict::predict(&crowd, run_seconds, wire::ack_len(&route))?;
    print_figures(&runtime, &totals, &measured, &predicted, ceiling, args.hops, &sizes)?;
    let table = Table::new("Measured and simulated", ["", "measured", "simulated"])
        .row(figures("received, B/s a peer", measured.received_bytes_per_s, predicted.received_bytes_per_s, 0))
        .row(figures("dropped, %", measured.drop_percent, predicted.drop_percent, 3));
    let page = Page {
        title: format!("{peers} peers that all send"),
        meta: vec![
            ("controller", args.controller.name.to_owned()),
            ("seed", args.seed.to_string()),
            ("wall clock", format!("{run_seconds} s")),
        ],
        series: &series,
        ceiling: ceiling * peers as f64,
        table: Some(table),
    };
    print_line!("report                {}", page::write(&page, None, &args.out)?.display())?;
    Ok(())
}

fn figures(name: &str, measured: f64, predicted: f64, digits: usize) -> [Cell; 3] {
    [Cell::text(name), Cell::number(measured, digits), Cell::number(predicted, digits)]
}

/// Refuses fewer or more peers than can be, and numbers of relays that can't.
fn check_peers(peers: usize, hops: usize) -> Result<(), Failure> {
    setup::check_hops(hops, usize::MAX)?;
    // Each packet has a source and a destination that are not among its relays.
    let least = hops + 2;
    if (least..=MAX_PEERS).contains(&peers) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "--senders {peers}: expected {least} to {MAX_PEERS} peers, for a packet's source and destination are not among its \
         relays (--hops {hops})"
    )))
}

fn limits_nothing(args: &Args) -> bool {
    matches!(args.controller.build, Build::Anywhere(_)) && args.controller.name == "random"
}

fn totals(runtime: &Runtime<Peer>) -> Totals {
    runtime.machines().fold(Totals::default(), |mut totals, peer| {
        if let Some(sender) = peer.sender() {
            let counters = sender.courier().counters();
            totals.sent += counters.sent;
            totals.acked += counters.acked;
            totals.late += counters.late;
            totals.lost += counters.lost;
            totals.forged += counters.forged;
        }
        totals.delivered += peer.receiver().map_or(0, |receiver| receiver.counters().fillers);
        let counters = peer.relay().counters();
        totals.received += counters.received;
        totals.refused_data += counters.refused_data;
        totals.refused_acks += counters.refused_acks;
        totals
    })
}

/// Turns for `seconds`, showing and noting what happens.
fn measure(
    runtime: &mut Runtime<Peer>,
    interrupt: &Interrupt,
    series: &mut Series,
    seconds: u64,
    sizes: &Sizes,
    ceiling: f64,
) -> Result<Totals, Failure> {
    // Of each other peer's limit, as many shares as there are senders that know it.
    let shares = series.limits.iter().enumerate().map(|(slot, limit)| {
        let share = Rate::from_bytes_per_sec_f64(limit.bytes_per_sec() / series.limits.len() as f64);
        (format!("peer {:>3}", slot + 1), share)
    });
    let view = View::new(seconds * 10, "fair share", shares);
    let end = Time::ZERO + Duration::SECOND * seconds;
    let mut next_sample = Time::ZERO + Duration::SECOND;
    let mut next_look = Time::ZERO;
    let peers = series.limits.len() as f64 + 1.0;
    while runtime.now() < end {
        runtime.turn(next_look.min(next_sample).min(end))?;
        let now = runtime.now();
        if interrupt.is_raised() {
            view.clear();
            return Err(Failure::interrupted(format_args!("after {:.0} s of {seconds}", now.as_secs_f64())));
        }
        let Some(watched) = runtime.machine(0).sender().map(Sender::courier) else { continue };
        if now >= next_sample {
            let totals = totals(runtime);
            let arrived = totals.delivered * sizes.payload as u64;
            series.note(now.as_secs_f64(), arrived, totals.sent, totals.lost, watched);
            next_sample += Duration::SECOND;
        }
        if now >= next_look {
            next_look = now + network::TICK;
            let goodput = Amount(series.latest(3) / peers);
            let rtt = watched.smoothed_rtt().map_or(0.0, |rtt| rtt.as_millis_f64());
            let lost = series.samples.last().map_or(0.0, |s| 100.0 * s.lost as f64 / s.sent.max(1) as f64);
            let message = format!(
                "{goodput}/s of {}/s possible at each peer, round trip {rtt:.0} ms, {lost:.1} % lost; rates of peer 0",
                Amount(ceiling)
            );
            let position = (now.as_secs_f64() * 10.0) as u64;
            view.show(message, position, &series::learned(watched, series.limits.len()));
        }
    }
    view.clear();
    Ok(totals(runtime))
}

fn print_figures(
    runtime: &Runtime<Peer>,
    totals: &Totals,
    measured: &Figures,
    predicted: &Figures,
    ceiling: f64,
    hops: usize,
    sizes: &Sizes,
) -> Result<(), Failure> {
    let difference = 100.0 * (measured.received_bytes_per_s / predicted.received_bytes_per_s - 1.0);
    print_line!("                        measured    simulated")?;
    print_line!(
        "received, B/s a peer  {:>10.0}   {:>10.0}   {difference:+.1} %",
        measured.received_bytes_per_s,
        predicted.received_bytes_per_s
    )?;
    print_line!("dropped, %            {:>10.3}   {:>10.3}", measured.drop_percent, predicted.drop_percent)?;
    let payload = measured.received_bytes_per_s * sizes.payload / sizes.packet;
    print_line!(
        "payload, B/s a peer   {payload:>10.0}   of {ceiling:.0} possible: limit / ({} x {:.0} + {hops} x {:.0}) x {:.0}",
        hops + 1,
        sizes.packet,
        sizes.ack,
        sizes.payload
    )?;
    print_line!(
        "packets               {} sent: {} arrived, {} refused; {} acknowledged in time, {} late, {} lost; {} forged ACKs",
        totals.sent,
        totals.delivered,
        totals.refused_data,
        totals.acked,
        totals.late,
        totals.lost,
        totals.forged
    )?;
    let counters = runtime.counters();
    let misread = counters.unreadable.total();
    print_line!(
        "driver                {} datagrams received, {} unsendable, {} beyond the delay queue, {misread} unreadable",
        counters.received,
        counters.out.refused,
        counters.overflowed
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_peers_that_cannot_be_is_refused_with_what_can() {
        let check = |peers, hops| check_peers(peers, hops).map_err(|why| why.words().to_owned());
        for (peers, hops, says) in [
            (4, 3, "--senders 4: expected 5 to 200 peers"),
            (0, 1, "--senders 0: expected 3 to 200 peers"),
            (201, 3, "--senders 201: expected 5 to 200 peers"),
            (20, 9, "--hops 9: "),
            (20, 0, "--hops 0: "),
        ] {
            let error = check(peers, hops).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        assert_eq!((check(5, 3), check(200, 8)), (Ok(()), Ok(())));
    }
}
