//! `anabranch stream watch`: a link in, video out, and on to others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anabranch_control::flow::registry::Entry;
use anabranch_control::units::Rate;
use anabranch_gateway::outlet::Outlet;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::events::NodeEvent;
use anabranch_net::stream::liar::Lie;
use anabranch_net::stream::link::Link;
use anabranch_net::stream::node::{self, StreamNode, WatchOptions};
use tokio::sync::mpsc;

use super::events::Events;
use super::local::{self, Http, HttpArgs, Trouble};
use super::overview::{self, About};
use super::status::{self, EACH, StatusLine};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::socket_address;
use crate::printer::Printer;
use crate::stderr::eprint_line;

/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// What is missed is said so often at most.
const EACH_GAP: Duration = Duration::from_secs(1);

/// Portions of the stream that wait for whoever reads standard output at most: with [`PORTION`] packets each 80 MB, and some
/// seconds of a fast stream where each has one.
const MOST_WRITTEN: usize = 1024;

/// Packets that are handed to players together at most.
const PORTION: usize = 64;

/// Arguments of `stream watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Whoever watches sends the stream on to others, and is seen by them with its network address, unless the stream \
or this viewer is --private. Any player plays \
http://127.0.0.1:8080/stream.ts, or /index.m3u8; a browser shows the page at http://127.0.0.1:8080/. With \
--output -, the stream goes to standard output: anabranch stream watch LINK --output - | mpv -")]
pub struct Args {
    /// What `anabranch stream serve` printed
    #[arg(value_name = "LINK", value_parser = link)]
    link: Link,
    /// What this machine can send to others
    #[arg(long, value_name = "RATE", default_value = "5 Mbit/s", value_parser = local::upload)]
    upload: Rate,
    /// Never send more than --upload
    #[arg(long)]
    limit: bool,
    /// Deal with the server alone: no other viewer learns this one's address, and this one learns none. It passes
    /// nothing on, and costs the server a whole copy
    #[arg(long)]
    private: bool,
    /// Where others reach this viewer [default: any free port]
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// What players hold, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = local::buffer)]
    buffer: Duration,
    /// What decides how fast this viewer sends; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = node::DEFAULT_CONTROLLER, value_parser = local::controller)]
    controller: &'static Entry,
    #[command(flatten)]
    http: HttpArgs,
    /// Serve no page and no players
    #[arg(long, conflicts_with_all = ["http", "http_name", "http_origin"])]
    no_http: bool,
    /// Write the stream to standard output, for a player behind a pipe
    #[arg(long, value_name = "-", value_parser = ["-"], conflicts_with = "json")]
    output: Option<String>,
    /// Print one JSON object each second with what a page is told; with --no-http, nothing of how the others fare
    #[arg(long)]
    json: bool,
    /// For demonstrations on one machine alone: pass on less, or something else
    #[arg(long, hide = true)]
    lie: Option<Lie>,
}

fn link(text: &str) -> Result<Link, String> {
    text.parse::<Link>().map_err(|error| error.to_string())
}

/// Watches until the user ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    // A viewer needs no name that lasts.
    let watched = StreamNode::watch(WatchOptions {
        listen: args.listen,
        is_limited: args.limit,
        controller: args.controller.name.to_owned(),
        buffer: local::span(args.buffer),
        is_private: args.private,
        lie: args.lie,
        ..WatchOptions::new(args.link.clone(), PeerIdentity::generate(), args.upload)
    });
    let (node, events) = local::listening(watched)?;
    let outlet = local::outlet(args.buffer);
    let http = if args.no_http { None } else { Some(args.http.start(&outlet, &node, None)?) };
    let about = About { link: node.link(), address: node.local_addr().to_string(), buffer: args.buffer };
    if let Some(http) = &http {
        eprint_line!("page: {}", http.page());
        eprint_line!("for players: {}", http.stream());
    }
    eprint_line!("asking the server at {}", about.link.addresses().join(" and "));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(watch(args, &node, events, &outlet, http, &about, &interrupt))?;
    node.stop()?;
    Ok(())
}

async fn watch(
    args: &Args,
    node: &StreamNode,
    mut events: mpsc::Receiver<NodeEvent>,
    outlet: &Outlet,
    mut http: Option<Http>,
    about: &About<'_>,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let (mut noted, mut snapshots, began) = (Events::default(), node.snapshots(), Instant::now());
    let (mut look, mut trouble) = (tokio::time::interval(LOOK), Trouble::default());
    let (mut missed, mut said_at, mut printer) =
        (0, began, if args.json { Printer::start()? } else { Printer::holding(MOST_WRITTEN)? });
    let (mut is_too_slow, mut slow_said_at) = (false, began);
    let (mut taken, mut released, mut gaps, mut started) = (Vec::new(), Vec::new(), Vec::new(), None);
    loop {
        tokio::select! {
            count = events.recv_many(&mut taken, PORTION) => {
                if count == 0 {
                    return Err(Failure::new("the viewer has stopped by itself"));
                }
                let pieces = taken.iter().filter_map(|event| match event {
                    NodeEvent::Packet { bytes, .. } => Some(bytes.clone()),
                    _ => None,
                });
                put(outlet, &taken, pieces.clone());
                if args.output.is_some() {
                    let together: Vec<u8> = pieces.flat_map(|bytes| bytes.to_vec()).collect();
                    // A player that is gone is the end, as for any program before a pipe; one that stands still misses some.
                    if !together.is_empty() {
                        let has_room;
                        (printer, has_room) = printer.write(together)?;
                        is_too_slow |= !has_room;
                    }
                }
                if args.json {
                    for event in &taken {
                        match event {
                            NodeEvent::Packet { number, .. } => {
                                if number.is_multiple_of(EACH) || started.is_none() {
                                    released.push((*number, status::unix_s()));
                                }
                                started.get_or_insert_with(|| began.elapsed().as_secs_f64());
                            }
                            NodeEvent::Gap { number, packets } => gaps.push((*number, *packets, status::unix_s())),
                            _ => {}
                        }
                    }
                }
                missed += taken.iter().map(|event| if let NodeEvent::Gap { packets, .. } = event { *packets } else { 0 }).sum::<u64>();
                for event in taken.drain(..) {
                    print_event(&event, args.private || args.link.is_private);
                    noted.note(local::uptime(node), &event);
                }
            }
            request = next(&mut http) => {
                node.look();
                // Whoever asked may have gone.
                let _ = request.send(overview::of(about, &node.snapshot(), &noted));
            }
            changed = snapshots.changed(), if args.json => {
                changed.map_err(|_| Failure::new("the viewer has stopped by itself"))?;
                // Without a page nobody asks the server how the others fare.
                if !args.no_http {
                    node.look();
                }
                let snapshot = node.snapshot();
                let outages = snapshot.outages.iter();
                let line = StatusLine {
                    overview: &local::complete(overview::of(about, &snapshot, &noted), outlet, None),
                    started_after_s: started,
                    released: &released,
                    gaps: &gaps,
                    outages_s: outages.map(|one| (one.began.as_secs_f64(), one.length.as_secs_f64())).collect(),
                };
                printer = printer.print(&line)?;
                released.clear();
                gaps.clear();
            }
            _ = look.tick() => {
                trouble.look(node);
                if missed > 0 && said_at.elapsed() >= EACH_GAP {
                    eprint_line!("{missed} packets did not come in time");
                    (missed, said_at) = (0, Instant::now());
                }
                if is_too_slow && slow_said_at.elapsed() >= EACH_GAP {
                    eprint_line!("whatever reads standard output is too slow: a part of the stream is left out");
                    (is_too_slow, slow_said_at) = (false, Instant::now());
                }
                if interrupt.is_raised() {
                    return Ok(());
                }
            }
        }
    }
}

/// Hands on what came, with its gaps in their places.
fn put(outlet: &Outlet, events: &[NodeEvent], pieces: impl Iterator<Item = std::sync::Arc<[u8]>>) {
    if !events.iter().any(|event| matches!(event, NodeEvent::Gap { .. } | NodeEvent::Restarted)) {
        return outlet.push(pieces);
    }
    for event in events {
        match event {
            NodeEvent::Packet { bytes, .. } => outlet.push([bytes.clone()]),
            NodeEvent::Gap { .. } | NodeEvent::Restarted => outlet.note_gap(),
            _ => {}
        }
    }
}

/// Says what a person at a terminal wants to know.
fn print_event(event: &NodeEvent, is_private: bool) {
    match event {
        NodeEvent::Restarted => eprint_line!("the server has begun anew: what comes next is another broadcast"),
        NodeEvent::Welcomed(_) => eprint_line!("the server lets this viewer in"),
        NodeEvent::Overloaded if is_private => eprint_line!("{}; trying again", overview::NO_ROOM_ALONE),
        NodeEvent::Overloaded => eprint_line!("{}; trying again", overview::NO_ROOM),
        NodeEvent::Unreachable(why) => eprint_line!("{why}; trying again"),
        _ => {}
    }
}

/// The next page that wants to know how things stand; never, where there is no HTTP server.
async fn next(http: &mut Option<Http>) -> anabranch_gateway::server::OverviewRequest {
    if let Some(http) = http
        && let Some(request) = http.overviews.recv().await
    {
        return request;
    }
    std::future::pending().await
}
