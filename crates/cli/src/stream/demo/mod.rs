//! `anabranch stream demo`: a server and many viewers on this machine, over real sockets; some are killed, some lie.
//!
//! ```text
//! test picture --> server --QUIC--> viewer --QUIC--> viewer ...     each viewer a process of its own
//!                                     |
//!                                     +--HTTP--> a headless browser, where there is one
//! ```
//!
//! What viewers say of packets that went to their players is held against when the server sent those: both read
//! one machine's clock. Bytes of the server are those of all its UDP datagrams, with 28 for the headers of IP and
//! UDP of each: on one machine all share the loopback's counters.

mod figures;
mod liars;
mod page;
mod playing;
mod viewer;

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch_control::flow::registry::{self, Entry};
use anabranch_control::units::Rate;
use anabranch_media::cutter::{Cut, Cutter};
use anabranch_media::pattern::{Pattern, PatternConfig};
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::events::{NodeEvent, Video};
use anabranch_net::stream::liar::Lie;
use anabranch_net::stream::node::{self, InputError, ServeOptions, StreamNode};
use anabranch_report::Report;
use anabranch_report::output::{create_dir, write_atomically};

use self::figures::{Figures, Measured};
use self::liars::Liars;
use self::playing::Shown;
use self::viewer::Viewer;
use super::local;
use super::serve::ModeArg;
use super::status::unix_s;
use crate::browser::{self, Browser};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::{on_stdout, print_line};
use crate::stderr::eprint_line;

/// What the server sends at most: a few copies of the stream.
const SERVER: Rate = Rate::from_bits_per_sec(6_000_000);

/// The stream is older than what players hold before the first viewer comes.
const AHEAD: Duration = Duration::from_millis(3500);

/// From the last viewer's coming until it is counted from, and again as long until some are killed.
const SETTLE: Duration = Duration::from_secs(6);

/// Between two viewers.
const APART: Duration = Duration::from_millis(50);

/// Arguments of `stream demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Server and viewers are real processes over loopback. Liars are free riders, who pass nothing on, claimers, who say \
that they can send ten times what they can, droppers, who drop half, and poisoners, who change what they pass on; \
figures are of the others. Where there is a Chromium ($CHROMIUM), it plays the first viewer's page.")]
pub struct Args {
    /// Viewers, each a process of its own
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub clients: u32,
    /// How many of them are killed without a word
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub kill: u32,
    /// How many of them lie: free-rider=N, claimer=N, dropper=N, poisoner=N, with commas, or none [default: one of
    /// each, from 12 viewers on]
    #[arg(long, value_name = "KIND=N,...")]
    pub liars: Option<Liars>,
    /// How long all watch
    #[arg(long, value_name = "S", default_value_t = 25, value_parser = clap::value_parser!(u64).range(10..=3600))]
    pub seconds: u64,
    /// The stream's bitrate
    #[arg(long, value_name = "RATE", default_value = "1 Mbit/s", value_parser = local::upload)]
    pub bitrate: Rate,
    /// What players hold, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = local::buffer)]
    pub buffer: Duration,
    /// How the stream travels: trees that push, a mesh that repairs, or both
    #[arg(long, value_name = "MODE", default_value = "hybrid")]
    pub mode: ModeArg,
    /// What decides how fast server and viewers send; see `anabranch controllers`
    #[arg(long, value_name = "NAME", default_value = node::DEFAULT_CONTROLLER, value_parser = local::controller)]
    pub controller: &'static Entry,
    /// Play in no browser
    #[arg(long)]
    pub no_browser: bool,
    /// Print the figures as one JSON object, and all else on standard error
    #[arg(long)]
    pub json: bool,
    /// Folder for the figures and the page
    #[arg(long, value_name = "DIR", default_value = "out/stream-demo")]
    pub out: PathBuf,
}

impl Args {
    /// As without options, into `out`.
    pub fn plain(out: PathBuf) -> Args {
        Args {
            clients: 20,
            kill: 5,
            liars: None,
            seconds: 25,
            bitrate: Rate::from_bits_per_sec(1_000_000),
            buffer: Duration::from_secs(3),
            mode: ModeArg::Hybrid,
            controller: registry::find(node::DEFAULT_CONTROLLER).expect("it is registered"),
            no_browser: false,
            json: false,
            out,
        }
    }

    /// Who lies how, by the viewers' numbers; never the first, whose page is shown.
    fn cast(&self) -> Result<Vec<Option<Lie>>, Failure> {
        let liars = self.liars.clone().unwrap_or_else(|| Liars::by_default(self.clients));
        let honest = self.clients.saturating_sub(liars.count());
        if honest == 0 {
            return Err(Failure::new(format!(
                "of {} viewers, {} lie; expected fewer liars, as with --liars none",
                self.clients,
                liars.count()
            )));
        }
        if self.kill >= honest {
            return Err(Failure::new(format!(
                "of {} viewers, {} lie and {} are killed; expected that one at least is left, as with --kill {}",
                self.clients,
                liars.count(),
                self.kill,
                honest.saturating_sub(1)
            )));
        }
        Ok(liars.among(self.clients))
    }
}

/// The server of the demo, and its test picture.
struct Source {
    pattern: Pattern,
    cutter: Cutter,
    next: Instant,
    /// When each packet went to the server, in seconds since 1970.
    sent: Vec<f64>,
    bytes: u64,
}

impl Source {
    /// Sends the pictures that are due.
    fn run(&mut self, video: &anabranch_net::stream::node::Input) -> Result<(), Failure> {
        while Instant::now() >= self.next {
            self.next += self.pattern.interval();
            let now = unix_s();
            let bytes = self.pattern.next_frame(Duration::from_secs_f64(now));
            let mut cuts: Vec<Cut> = Vec::new();
            self.cutter
                .push(&bytes, |cut| cuts.push(cut))
                .map_err(|_| Failure::new("the test picture is no stream"))?;
            for cut in cuts {
                self.bytes += cut.bytes.len() as u64;
                self.sent.push(now);
                match video.push(Video { bytes: cut.bytes, is_entry_point: cut.is_entry_point }) {
                    Ok(()) => {}
                    Err(InputError::Full(_)) => return Err(Failure::new("this machine is too slow for the demo")),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }
}

/// Runs the demo.
pub fn run(args: &Args) -> Result<(), Failure> {
    let interrupt = Interrupt::listen()?;
    let (figures, report) = play(args, &interrupt)?;
    // First: where nobody reads standard output any more, printing ends the program. Where there is no room for files, the
    // figures are printed all the same.
    let written = write(&figures, &args.out).and_then(|file| {
        let page = args.out.join("report.html");
        report.write(&page)?;
        eprint_line!("wrote {} and {}", file.display(), page.display());
        Ok(())
    });
    let printed = match args.json {
        true => print_line!("{}", serde_json::to_string(&figures)?),
        false => on_stdout(|stdout| crate::table::print(&figures.rows(), 2.., stdout)),
    };
    written?;
    printed
}

/// Writes the demo's figures into `out`: where they are.
pub fn write(figures: &Figures, out: &Path) -> Result<PathBuf, Failure> {
    let file = out.join("figures.json");
    write_atomically(&file, |writer| Ok(serde_json::to_writer_pretty(writer, figures)?))?;
    Ok(file)
}

/// Runs the demo: its figures, and what a page tells of it.
pub fn play(args: &Args, interrupt: &Interrupt) -> Result<(Figures, Report), Failure> {
    let cast = args.cast()?;
    let pattern = Pattern::new(PatternConfig { bits_per_s: args.bitrate.bits_per_sec(), ..PatternConfig::default() })?;
    create_dir(&args.out)?;
    let frames_per_s = PatternConfig::default().frames_per_s;
    let (node, video, mut events) = StreamNode::serve(ServeOptions {
        is_limited: true,
        mode: args.mode.into(),
        controller: args.controller.name.to_owned(),
        buffer: local::span(args.buffer),
        // All are on this machine, and one that begins anew may come before its last session is given up.
        most_of_network: 2 * args.clients as usize + 16,
        ..ServeOptions::new(([127, 0, 0, 1], 0).into(), PeerIdentity::generate(), SERVER)
    })?;
    let mut source = Source { pattern, cutter: Cutter::default(), next: Instant::now(), sent: Vec::new(), bytes: 0 };
    let link = node.link().to_string();
    let say = |words: &str| crate::network::say(args.json, words);
    say(&format!("a stream of {} Mbit/s at {link}", args.bitrate.bits_per_sec() as f64 / 1e6));
    let demo = Instant::now();
    let (mut viewers, mut killed_at, mut excluded): (Vec<Viewer>, Option<Duration>, u32) = (Vec::new(), None, 0);
    let last_comes = AHEAD + APART * args.clients;
    let end = last_comes + SETTLE + Duration::from_secs(args.seconds);
    let mut screen = Screen::Waiting;
    while demo.elapsed() < end {
        if interrupt.is_raised() {
            return Err(Failure::interrupted("the demo was stopped before its figures were there"));
        }
        source.run(&video)?;
        while let Ok(event) = events.try_recv() {
            excluded += u32::from(matches!(event, NodeEvent::Excluded(_)));
        }
        viewers.iter_mut().for_each(Viewer::hear);
        let number = viewers.len();
        if number < cast.len() && demo.elapsed() >= AHEAD + APART * number as u32 {
            viewers.push(Viewer::start(&link, number, cast[number], args)?);
            if viewers.len() == cast.len() {
                say(&format!("{} viewers have come", args.clients));
            }
        }
        screen.look(args, &viewers, demo.elapsed() >= last_comes, interrupt, &say)?;
        if killed_at.is_none() && demo.elapsed() >= last_comes + SETTLE * 2 {
            kill(&mut viewers, args.kill)?;
            killed_at = Some(demo.elapsed());
            say(&format!("{} of them were killed", args.kill));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    viewers.iter_mut().for_each(Viewer::hear);
    let shown = screen.end(&say);
    let snapshot = node.snapshot();
    let measured = Measured {
        args,
        demo,
        from: last_comes + SETTLE,
        killed_at,
        viewers: &viewers,
        source_sent: &source.sent,
        source_bytes: source.bytes,
        server: &snapshot,
        excluded,
        shown: shown.as_ref(),
        frames_per_s,
    };
    let figures = figures::of(&measured);
    let report = page::of(&measured, &figures);
    drop(viewers);
    node.stop()?;
    Ok((figures, report))
}

/// Honest viewers at equal distances, so that all kinds of lines die; never the first.
fn kill(viewers: &mut [Viewer], count: u32) -> Result<(), Failure> {
    let mut mortal: Vec<&mut Viewer> = viewers.iter_mut().skip(1).filter(|viewer| viewer.lie.is_none()).collect();
    let step = (mortal.len() / (count as usize).max(1)).max(1);
    for viewer in mortal.iter_mut().step_by(step).take(count as usize) {
        viewer.kill()?;
    }
    Ok(())
}

/// A browser that is being opened by a thread. It is waited for when this is dropped: the browser must not outlive us.
struct Opening(Option<JoinHandle<Result<Browser, Failure>>>);

impl Opening {
    fn begin(path: PathBuf, page: String, interrupt: &Interrupt) -> Result<Opening, Failure> {
        let interrupt = interrupt.clone();
        let thread = std::thread::Builder::new().name("browser".into());
        Ok(Opening(Some(thread.spawn(move || playing::play(&path, &page, &interrupt))?)))
    }

    fn has_ended(&self) -> bool {
        self.0.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// The browser, once it is open or could not be opened.
    fn end(mut self) -> Result<Browser, Failure> {
        let opened = self.0.take().and_then(|thread| thread.join().ok());
        opened.unwrap_or_else(|| Err(Failure::new("the thread that opens the browser has panicked")))
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // What it has opened is closed with what the thread leaves.
        drop(self.0.take().map(JoinHandle::join));
    }
}

/// A browser that plays the first viewer's page.
enum Screen {
    Waiting,
    /// It is being opened by a thread: the demo goes on meanwhile.
    Opening(Opening),
    Open(Browser),
    None,
}

impl Screen {
    fn look(
        &mut self,
        args: &Args,
        viewers: &[Viewer],
        is_time: bool,
        interrupt: &Interrupt,
        say: &dyn Fn(&str),
    ) -> Result<(), Failure> {
        *self = match std::mem::replace(self, Screen::None) {
            Screen::Waiting if args.no_browser => Screen::None,
            Screen::Waiting => match viewers.first().and_then(Viewer::page).filter(|_| is_time) {
                // The first viewer may have to be waited for.
                None => Screen::Waiting,
                Some(page) => match browser::find() {
                    None => Screen::None,
                    Some(path) => Screen::Opening(Opening::begin(path, page, interrupt)?),
                },
            },
            Screen::Opening(opening) if opening.has_ended() => match opening.end() {
                Ok(browser) => {
                    say("a browser plays the first viewer's page");
                    Screen::Open(browser)
                }
                Err(failure) => {
                    say(failure.words());
                    Screen::None
                }
            },
            other => other,
        };
        Ok(())
    }

    fn end(self, say: &dyn Fn(&str)) -> Option<Shown> {
        let Screen::Open(mut browser) = self else { return None };
        match playing::shown(&mut browser) {
            Ok(shown) => Some(shown),
            Err(failure) => {
                say(failure.words());
                None
            }
        }
    }
}
