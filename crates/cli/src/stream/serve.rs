//! `anabranch stream serve`: a source in, a link out.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anabranch_control::flow::registry::Entry;
use anabranch_control::time::Duration as Span;
use anabranch_control::units::Rate;
use anabranch_gateway::input::{Input, Source, SourceOptions, Status};
use anabranch_gateway::outlet::Outlet;
use anabranch_gateway::overview::InputState;
use anabranch_media::cutter::Cut;
use anabranch_net::identity_file;
use anabranch_net::stream::events::{NodeEvent, Video};
use anabranch_net::stream::link::is_somewhere;
use anabranch_net::stream::node::{self, InputError, ServeOptions, StreamNode};
use anabranch_proto::stream::message::Mode;
use anabranch_proto::stream::packet::MAX_SLICES;
use anabranch_proto::stream::server::MOST_OF_NETWORK;
use tokio::sync::mpsc;

use super::events::Events;
use super::local::{self, Http, HttpArgs, Trouble};
use super::overview::{self, About};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::socket_address;
use crate::printer::{Printer, print_line};
use crate::stderr::eprint_line;

/// How often it is looked whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);

/// Viewers are served for so long after what players hold is over: what came last is repaired too.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the server has not taken yet is offered again after this.
const AGAIN: Duration = Duration::from_millis(5);

/// Arguments of `stream serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
SOURCE is a file, - for standard input, http://, https:// or udp:// of a transport stream, or `ingest`: then \
ffmpeg -i ... -c copy -f mpegts -method PUT http://127.0.0.1:8080/ingest puts one in. Anything else goes \
through your ffmpeg with --via-ffmpeg.

Viewers of a stream send it on to each other, and so see each other's network addresses; with --private they see \
the server's alone. The link holds the stream's public key: nobody else can send anything under it.")]
pub struct Args {
    /// Where the video comes from: an MPEG transport stream
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Let your ffmpeg read SOURCE, whatever it is, and copy it into a transport stream
    #[arg(long)]
    via_ffmpeg: bool,
    /// Begin a file again at its end
    #[arg(long = "loop")]
    is_looped: bool,
    /// What whoever puts in a stream has to say, as a bearer token
    #[arg(long, value_name = "TOKEN", value_parser = ingest_token)]
    ingest_token: Option<String>,
    /// Where viewers reach the server
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7443", value_parser = socket_address)]
    listen: SocketAddr,
    /// An address for the link, if it is another than this machine sees, as behind a router
    #[arg(long, value_name = "ADDRESS", value_parser = announced)]
    announce: Vec<SocketAddr>,
    /// What this machine can send: viewers beyond it are fed by viewers
    #[arg(long, value_name = "RATE", default_value = "10 Mbit/s", value_parser = local::upload)]
    upload: Rate,
    /// Never send more than --upload
    #[arg(long)]
    limit: bool,
    /// How the stream travels: trees that push, a mesh that repairs, or both
    #[arg(long, value_name = "MODE", default_value = "hybrid")]
    mode: ModeArg,
    /// Into how many slices the stream is cut, each with a tree of its own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_SLICES)))]
    slices: u8,
    /// What players hold, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = local::buffer)]
    buffer: Duration,
    /// The most viewers
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    most_viewers: u32,
    /// The most viewers of one network, be it behind one router: of a /24 of IPv4 or a /56 of IPv6
    #[arg(long, value_name = "N", default_value_t = MOST_OF_NETWORK as u32, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    most_of_network: u32,
    /// What decides how fast the server sends; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = node::DEFAULT_CONTROLLER, value_parser = local::controller)]
    controller: &'static Entry,
    /// Feed every viewer from here alone: no viewer learns another's address, and nobody passes anything on. It
    /// takes a copy of the stream for each of them
    #[arg(long)]
    private: bool,
    /// Send packets that fit networks which carry 1280 bytes, as some tunnels: the overhead grows
    #[arg(long)]
    narrow: bool,
    /// The file with the stream's key [default: anabranch/stream-key in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    http: HttpArgs,
    /// Print one JSON object with the link, then one each second with what a page is told
    #[arg(long)]
    json: bool,
}

/// How a stream travels.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum ModeArg {
    Hybrid,
    Trees,
    Mesh,
}

impl From<ModeArg> for Mode {
    fn from(mode: ModeArg) -> Mode {
        match mode {
            ModeArg::Hybrid => Mode::Hybrid,
            ModeArg::Trees => Mode::Trees,
            ModeArg::Mesh => Mode::Mesh,
        }
    }
}

/// An address for the link.
fn announced(text: &str) -> Result<SocketAddr, String> {
    let expected = || "expected where viewers reach this server, as 192.0.2.1:7443, and a port from 1 on".to_owned();
    socket_address(text).and_then(|address| if is_somewhere(address) { Ok(address) } else { Err(expected()) })
}

/// A token that a header field can carry (RFC 9110, 5.5): any other would match none.
fn ingest_token(text: &str) -> Result<String, String> {
    let is_token = !text.is_empty() && text.trim() == text && !text.chars().any(char::is_control);
    let expected = || "expected a token of one character at least, without spaces at its ends".to_owned();
    is_token.then(|| text.to_owned()).ok_or_else(expected)
}

/// Whether the source has what options are for.
fn fits(args: &Args, source: &Source) -> Result<(), Failure> {
    let is_file = match source {
        Source::File(_) => true,
        Source::Ffmpeg(name) => Path::new(name).is_file(),
        _ => false,
    };
    if args.is_looped && !is_file {
        return Err(Failure::new(format!("--loop begins a file again: {} is none", args.source)));
    }
    if args.ingest_token.is_some() && !matches!(source, Source::Ingest) {
        return Err(Failure::new(format!(
            "--ingest-token is for who puts a stream in: SOURCE must be ingest, not {}",
            args.source
        )));
    }
    Ok(())
}

/// Serves until the source or the user ends it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let source = Source::parse(&args.source, args.via_ffmpeg)?;
    fits(args, &source)?;
    let path = args.key.clone().map_or_else(identity_file::stream_path, Ok)?;
    let identity = identity_file::load_or_make(&path)?;
    let options = SourceOptions {
        is_looped: args.is_looped,
        ingest_token: args.ingest_token.clone(),
        is_narrow: args.narrow,
        ..SourceOptions::default()
    };
    let served = StreamNode::serve(ServeOptions {
        announce: args.announce.clone(),
        mode: args.mode.into(),
        slices: args.slices,
        is_limited: args.limit,
        controller: args.controller.name.to_owned(),
        buffer: local::span(args.buffer),
        most_clients: args.most_viewers as usize,
        most_of_network: args.most_of_network as usize,
        is_private: args.private,
        ..ServeOptions::new(args.listen, identity, args.upload)
    });
    let (node, video, events) = local::listening(served)?;
    let outlet = local::outlet(args.buffer);
    let (input, cuts) = Input::start(source, &options)?;
    let http = args.http.start(&outlet, &node, Some(input.handle()))?;
    let about = About { link: node.link(), address: node.local_addr().to_string(), buffer: args.buffer };
    if args.json {
        let line = serde_json::json!({ "link": about.link.to_string(), "page": http.page() });
        print_line!("{line}")?;
    } else {
        print_line!("{}", about.link)?;
        eprint_line!("watch it with: anabranch stream watch {}", about.link);
        eprint_line!("page and players here: {}", http.page());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let ended = runtime.block_on(serve(
        args,
        &node,
        &video,
        events,
        cuts,
        &outlet,
        http,
        &about,
        &input.status(),
        &interrupt,
    ))?;
    let status = input.status().get();
    node.stop()?;
    match (ended, status.state) {
        (Ended::Source, InputState::Failed) => {
            Err(Failure::new(status.detail.unwrap_or_else(|| "the source has failed".to_owned())))
        }
        _ => Ok(()),
    }
}

/// Why serving is over.
enum Ended {
    ByUser,
    Source,
}

#[allow(clippy::too_many_arguments, reason = "what serves is made in one place and used in one")]
async fn serve(
    args: &Args,
    node: &StreamNode,
    video: &node::Input,
    mut events: mpsc::Receiver<NodeEvent>,
    mut cuts: mpsc::Receiver<Cut>,
    outlet: &Outlet,
    mut http: Http,
    about: &About<'_>,
    status: &Status,
    interrupt: &Interrupt,
) -> Result<Ended, Failure> {
    let (mut noted, mut snapshots) = (Events::default(), node.snapshots());
    let (mut look, mut trouble) = (tokio::time::interval(LOOK), Trouble::default());
    let (mut source, mut printer) = (SaidOfSource::default(), Printer::start()?);
    let mut too_fast = TooFast::default();
    // When the last viewer has what came last, once the source is over.
    let (mut has_begun, mut end): (bool, Option<Instant>) = (false, None);
    loop {
        tokio::select! {
            cut = cuts.recv(), if end.is_none() => match cut {
                Some(cut) => {
                    has_begun = true;
                    push(video, outlet, cut).await?;
                }

                None => {
                    outlet.end();
                    // Of a source that gave nothing, nobody awaits the rest.
                    let rest = if has_begun { args.buffer + LAST_WORDS } else { Duration::ZERO };
                    end = Some(Instant::now() + rest);
                }
            },
            Some(event) = events.recv() => {
                let words = noted.note(local::uptime(node), &event);
                if let (Some(words), false) = (words, args.json) {
                    eprint_line!("{words}");
                }
            }
            Some(request) = http.overviews.recv() => {
                // Whoever asked may have gone.
                let _ = request.send(overview::of(about, &node.snapshot(), &noted));
            }
            changed = snapshots.changed(), if args.json => {
                changed.map_err(|_| Failure::new("the server has stopped by itself"))?;
                let overview = overview::of(about, &node.snapshot(), &noted);
                printer = printer.print(&local::complete(overview, outlet, Some(status)))?;
            }
            _ = look.tick() => {
                trouble.look(node);
                let snapshot = node.snapshot();
                let bytes = snapshot.server.as_ref().map_or(0, |server| server.source_bytes);
                if let Some(words) = too_fast.look(snapshot.uptime, bytes, args.upload) {
                    eprint_line!("{words}");
                }
                // What has ended it is said as the last word.
                let is_last = end.is_some() && status.get().state == InputState::Failed;
                source.look(status, args.json || is_last);
                if interrupt.is_raised() {
                    return Ok(Ended::ByUser);
                }
                if end.is_some_and(|end| Instant::now() >= end) {
                    return Ok(Ended::Source);
                }
                if !node.is_running() {
                    return Err(Failure::new("the server has stopped by itself"));
                }
            }
        }
    }
}

/// A stream is as fast as it was over so long: keyframes are longer than what is between them.
const MEASURED_OVER: Span = Span::from_millis(3000);

/// Whether the stream is faster than what this machine can send, which is said once.
#[derive(Debug, Default)]
struct TooFast {
    /// When the present span began, by the server's own time, and how much had come then.
    began: Option<(Span, u64)>,
    is_said: bool,
}

impl TooFast {
    /// `source_bytes` have come since the server runs, which is for `uptime`, and it can send `upload`.
    fn look(&mut self, uptime: Span, source_bytes: u64, upload: Rate) -> Option<String> {
        if self.is_said || source_bytes == 0 {
            return None;
        }
        let (since, before) = *self.began.get_or_insert((uptime, source_bytes));
        let span = uptime - since;
        if span < MEASURED_OVER {
            return None;
        }
        self.began = Some((uptime, source_bytes));
        let takes = Rate::from_bytes_per_sec_f64((source_bytes - before) as f64 / span.as_secs_f64());
        self.is_said = takes > upload;
        self.is_said.then(|| {
            format!(
                "the stream takes {:.2} Mbit/s, and --upload says that this machine can send {:.2}: not even one \
                 viewer gets all of it; give the stream a lower bitrate, or --upload what the line can do",
                takes.bytes_per_sec() * 8e-6,
                upload.bytes_per_sec() * 8e-6
            )
        })
    }
}

/// What was said of the source on standard error: each change of how it goes, once.
#[derive(Debug, Default)]
struct SaidOfSource {
    said: Option<(InputState, Option<String>)>,
    /// It has failed since the last look: if that ends the server, it is the server's last word, and said there.
    has_failed: bool,
}

impl SaidOfSource {
    fn look(&mut self, status: &Status, is_quiet: bool) {
        let now = status.get();
        let now = (now.state, now.detail);
        if self.said.as_ref() == Some(&now) {
            return;
        }
        if now.0 == InputState::Failed && !std::mem::replace(&mut self.has_failed, true) {
            return;
        }
        self.has_failed = false;
        let words = match (now.0, now.1.as_deref()) {
            // A source that gives at once, as most do, needs no word.
            (InputState::Receiving, None) => self.said.is_some().then(|| "the source gives video".to_owned()),
            (_, words) => words.map(|words| format!("source: {words}")),
        };
        if let (Some(words), false) = (words, is_quiet) {
            eprint_line!("{words}");
        }
        self.said = Some(now);
    }
}

/// Gives players here and viewers a piece of the stream; waits while the server cannot take it.
async fn push(video: &node::Input, outlet: &Outlet, cut: Cut) -> Result<(), Failure> {
    outlet.push([cut.bytes.clone()]);
    let mut next = Video { bytes: cut.bytes, is_entry_point: cut.is_entry_point };
    loop {
        match video.push(next) {
            Ok(()) => return Ok(()),
            Err(InputError::Full(back)) => next = back,
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::said;

    #[test]
    fn only_a_file_begins_again() {
        let fits = |words: &[&str]| {
            let args: Args = said::parse([&["serve", "--loop"], words].concat()).unwrap();
            fits(&args, &Source::parse(&args.source, args.via_ffmpeg).unwrap())
        };
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert!(fits(&[file]).is_ok() && fits(&[file, "--via-ffmpeg"]).is_ok());
        for words in [&["rtsp://camera/1", "--via-ffmpeg"][..], &["ingest"], &["-"], &["http://host/film.ts"]] {
            let refused = fits(words).unwrap_err();
            assert!(refused.words().contains("--loop begins a file again"), "{}", refused.words());
        }
    }

    #[test]
    fn a_stream_that_is_faster_than_the_line_is_reported_once() {
        let (mut too_fast, upload) = (TooFast::default(), Rate::from_bits_per_sec(1_000_000));
        let mut look = |seconds: u64, bytes: u64| too_fast.look(Span::SECOND * seconds, bytes, upload);
        // A second with a keyframe has twice as much, and is not the stream's rate.
        let calm = [(0, 0), (5, 0), (6, 100_000), (7, 350_000), (9, 400_000)];
        assert!(calm.into_iter().all(|(seconds, bytes)| look(seconds, bytes).is_none()));
        let words = look(12, 400_000 + 3 * 250_000).unwrap();
        assert!(words.contains("takes 2.00 Mbit/s") && words.contains("can send 1.00: "), "{words}");
        assert_eq!(look(15, 400_000 + 6 * 250_000), None);
    }
}
