//! `anabranch onion demo`: authorities, relays, an exit, a site and a proxy as processes of this machine; pages are
//! fetched through all of them, and what each relay came to know is counted.

mod browse;
mod pages;
mod part;
mod report;
mod seen;
mod site;
mod tor;

use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_report::output::create_dir;
use serde::Serialize;

use crate::browser;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::network::{say, socket_address};
use crate::printer::print_line;
use crate::stderr::eprint_line;
use browse::Browsed;
use pages::{LONGEST, Pages, Site, fetch};
use part::{Part, free, processor_s, processor_s_of_ended};
use seen::{Names, Seen};
use tor::{Tor, Way};

/// Authorities, of which all but one must sign.
const AUTHORITIES: u8 = 3;

/// The small page, in bytes: what tor's own measurements fetch (50 KiB).
const SMALL: usize = 50 << 10;

/// A round of the authorities' vote: while one of them is held up for longer, they do not agree, and vote again.
const ROUND_S: f64 = 1.5;

/// Seconds until an epoch begins on a machine with nothing else to do. What is left of the one before has a list as soon
/// as relays are known to authorities that vote; if that was too early for some of them, the next one has all.
const LEAST_LEAD_S: u64 = 12;

/// The same on the busiest; with the ten seconds that an epoch may be later, the list is still there within [`part::PATIENCE`].
const MOST_LEAD_S: u64 = 40;

/// How much later for the time that the authorities' keys take: eight relays and a proxy are three times as many
/// processes, each of which does more.
const LEAD_OF_KEYS: f64 = 10.0;

/// Between two pages that are fetched to be looked at, of which every this many is the large file.
const PAUSE: Duration = Duration::from_millis(500);
const EACH_LARGE: u32 = 20;

/// Arguments of `onion demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
All runs on this machine, which so sees everything: it shows that the parts work, and how fast, not what they hide. \
What that is, and what it is not, docs/onion.md says. Each relay has a loopback address in a network of its own, since \
no path has two relays of one network.")]
pub struct Args {
    /// Relays, of which every sixth is an exit; 6 to 200
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u8).range(6..=200))]
    relays: u8,
    /// Megabytes of the large file; 1 to 1024
    #[arg(long, value_name = "MB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    megabytes: u32,
    /// Write report.html into DIR: traffic and entropy over time, and what each relay knows, by what it wrote down itself
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on fetching pages until Ctrl-C, and serve the user's page at ADDR [default without ADDR: the first free port from
    /// 127.0.0.1:8080 on]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, value_parser = socket_address)]
    page: Option<Option<SocketAddr>>,
    /// Measure a private Tor network beside it, of as many authorities, relays and exits, on loopback alone: the same pages
    /// over one circuit and over two legs (Conflux). It needs the programs tor and tor-gencert
    #[arg(long)]
    beside_tor: bool,
    /// Open no page in a browser
    #[arg(long)]
    no_browser: bool,
    /// Print what was measured as one JSON object on standard output, and all else on standard error
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Measured {
    authorities: u8,
    relays: u8,
    exits: u8,
    /// From the start of all until the proxy had a list of the relays.
    first_list_s: f64,
    #[serde(flatten)]
    pages: Pages,
    /// Processor time of all parts and of curl, from beginning to end; without the browser's.
    processor_s: f64,
    /// Whether curl got the same page; null where there is none.
    curl: Option<bool>,
    /// Whether a headless Chromium got all parts of a page as they were sent; null where there is none.
    chromium: Option<bool>,
    /// From that page's beginning until its last part.
    chromium_page_s: Option<f64>,
    /// What each relay has done, and so come to know: it ends with what it says of itself.
    knew: Vec<serde_json::Value>,
    /// What the proxy has done.
    proxy: serde_json::Value,
    /// A private Tor network on this machine; null without `--beside-tor`, and where it did not come to be.
    tor: Option<Tor>,
}

/// Runs it all.
pub fn run(args: &Args) -> Result<(), Failure> {
    let programs = args.beside_tor.then(tor::Programs::find).transpose()?;
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    let interrupt = Interrupt::listen()?;
    let folder = tempfile::tempdir()?;
    let large: Arc<[u8]> = pattern(args.megabytes as usize * 1_000_000).into();
    let small: Arc<[u8]> = pattern(SMALL).into();
    let address = site::serve(Arc::clone(&small), Arc::clone(&large))?;
    let site = Site { address, small, large };
    // One network after the other: what the one does while nobody asks it would be held against the other.
    let tor = programs.map(|programs| beside(&programs, args, &site, &interrupt)).transpose()?.flatten();
    let before_ours = processor_s_of_ended()?;
    let begun = Instant::now();
    say(args.json, &format!("{AUTHORITIES} authorities, {} relays, a site, and a proxy begin", args.relays));
    let network = folder.path().join("network.toml");
    let mut parts = authorities(folder.path(), &network)?;
    let (mut relays, mut exits, mut names) = (Vec::new(), 0, Names::default());
    let mut notes: Vec<(PathBuf, f64)> = Vec::new();
    for number in 0..args.relays {
        let listen = free(|host| UdpSocket::bind(host)?.local_addr(), number.wrapping_add(20))?;
        names.0.insert(listen, usize::from(number));
        let (state, listen) = (state(folder.path(), &format!("relay-{number}")), listen.to_string());
        let notes_at = folder.path().join(format!("relay-{number}.jsonl"));
        let observe = notes_at.display().to_string();
        let network = network.display().to_string();
        let allow = site.address.to_string();
        let mut arguments =
            vec!["onion", "relay", "--json", "--network", &network, "--state", &state, "--listen", &listen];
        arguments.extend(["--limit", "1 Gbit/s"]);
        if args.out.is_some() {
            arguments.extend(["--observe", &observe]);
        }
        notes.push((notes_at, begun.elapsed().as_secs_f64()));
        if is_exit(number) {
            arguments.extend(["--allow", &allow]);
            exits += 1;
        }
        relays.push(Part::start(&arguments)?);
    }
    let (state, network) = (state(folder.path(), "proxy"), network.display().to_string());
    let mut arguments =
        vec!["onion", "proxy", "--json", "--network", &network, "--state", &state, "--socks", "127.0.0.1:0"];
    let page = args.page.flatten().map(|at| at.to_string());
    if args.page.is_some() {
        arguments.push("--page");
        arguments.extend(page.as_deref());
    }
    let proxy = Part::start(&arguments)?;
    let line = proxy.await_line("SOCKS5 at ", &interrupt)?;
    let socks = line.rsplit(' ').next().unwrap_or_default().to_owned();
    let shown = args.page.map(|_| proxy.await_line("page: ", &interrupt)).transpose()?;
    // The first list that names all; relays take it up a moment later.
    proxy.await_line(&format!("{} relays", args.relays), &interrupt).map_err(|failure| {
        let said = |(kind, parts): (&str, &[Part])| {
            let lines = |part: &Part| part.lines.try_iter().collect::<Vec<_>>().join(" | ");
            parts
                .iter()
                .zip(1..)
                .map(|(part, number)| format!("\n{kind} {number}: {}", lines(part)))
                .collect::<String>()
        };
        failure.with([("authority", &parts[..]), ("relay", &relays[..])].map(said).concat())
    })?;
    let first_list_s = begun.elapsed().as_secs_f64();
    say(args.json, &format!("a list of all relays is signed after {first_list_s:.1} s"));
    let all = || parts.iter().chain(&relays).chain([&proxy]);
    let pages = pages::measure(&socks, &site, || processor_s(all()), &interrupt)?;
    let curl = curl(&socks, site.address, &site.small);
    let before = processor_s_of_ended()?;
    let browsed = match browser::find().filter(|_| !args.no_browser) {
        Some(path) => match browse::browse(&path, &socks, site.address, &site.small, &interrupt) {
            Ok(browsed) => Some(browsed),
            Err(failure) if interrupt.is_raised() => return Err(failure),
            Err(failure) => {
                say(args.json, failure.words());
                Some(Browsed { is_whole: false, seconds: f64::NAN })
            }
        },
        None => None,
    };
    let browser_s = processor_s_of_ended()? - before;
    if let Some(line) = shown {
        say(args.json, &format!("{line}; pages are fetched until Ctrl-C"));
        go_on(&socks, site.address, &interrupt);
    }
    let proxy = proxy.end();
    let knew = relays.into_iter().map(Part::end).collect();
    parts.drain(..).for_each(|part| drop(part.end()));
    let measured = Measured {
        authorities: AUTHORITIES,
        relays: args.relays,
        exits,
        first_list_s,
        pages,
        processor_s: processor_s_of_ended()? - browser_s - before_ours,
        curl,
        chromium: browsed.map(|browsed| browsed.is_whole),
        chromium_page_s: browsed.map(|browsed| browsed.seconds).filter(|seconds| seconds.is_finite()),
        knew,
        proxy,
        tor,
    };
    // First: where nobody reads standard output any more, printing ends the program.
    if let Some(out) = &args.out {
        let seen: Vec<Seen> =
            notes.iter().map(|(path, began_s)| Seen::read(path, *began_s)).collect::<Result<_, _>>()?;
        let path = out.join("report.html");
        report::of(&measured, &seen, &names).write(&path)?;
        eprint_line!("wrote {}", path.display());
    }
    if args.json { print_line!("{}", serde_json::to_string(&measured)?) } else { show(&measured) }
}

/// Whether a relay is an exit: every sixth.
fn is_exit(number: u8) -> bool {
    number % 6 == 5
}

/// What a Tor network of as many relays does; where it does not come to be, why is said, and ours is measured alone.
fn beside(programs: &tor::Programs, args: &Args, site: &Site, interrupt: &Interrupt) -> Result<Option<Tor>, Failure> {
    say(
        args.json,
        &format!("first, a private Tor network begins: {} authorities and {} relays", AUTHORITIES, args.relays),
    );
    match tor::measure(programs, args.relays, is_exit, site, interrupt) {
        Ok(tor) => Ok(Some(tor)),
        // What ended its parts ends us, and what they said of it is no reason.
        Err(_) if interrupt.is_raised() => Err(Failure::interrupted("nothing is left")),
        Err(failure) => {
            eprint_line!("Tor beside it was not measured: {}", failure.words());
            Ok(None)
        }
    }
}

/// Fetches pages for somebody who looks, until that is enough. One that does not come is no matter: the page says so.
fn go_on(socks: &str, site: SocketAddr, interrupt: &Interrupt) {
    let mut turn = 0u32;
    while !interrupt.is_raised() {
        turn = turn.wrapping_add(1);
        let page = if turn.is_multiple_of(EACH_LARGE) { "/large" } else { "/small" };
        let _ = fetch(socks, site, page, interrupt);
        thread::sleep(PAUSE);
    }
}

fn show(measured: &Measured) -> Result<(), Failure> {
    let Pages { first_page_s, small_page_s, large_bytes, large_s, mb_per_s, large_processor_s } = measured.pages;
    print_line!("the first page came after {first_page_s:.2} s, others of 50 KiB after {small_page_s:.2} s")?;
    print_line!("{} MB in {large_s:.2} s: {mb_per_s:.1} MB/s", large_bytes / 1_000_000)?;
    if let Some(seconds) = large_processor_s {
        print_line!(
            "all parts together took {seconds:.2} s of processor time for it, {:.2} s in all",
            measured.processor_s
        )?;
    }
    if let Some(tor) = &measured.tor {
        show_tor(tor)?;
    }
    match measured.curl {
        Some(true) => print_line!("curl got the same page")?,
        Some(false) => print_line!("curl did not get the page")?,
        None => print_line!("there is no curl here")?,
    }
    match (measured.chromium, measured.chromium_page_s) {
        (Some(true), Some(seconds)) => {
            print_line!("a Chromium got a page and its {} parts in {seconds:.2} s", site::PARTS)?
        }
        (Some(_), _) => print_line!("a Chromium did not get the page and all its parts")?,
        (None, _) => print_line!("no page was opened in a Chromium")?,
    }
    print_line!(
        "what relays came to know: packets passed on, handed to clients (guards), taken by an exit; senders' keys"
    )?;
    for (number, knew) in measured.knew.iter().enumerate() {
        let of = |key: &str| knew.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        let line = (of("forwarded"), of("to_clients"), of("delivered"), of("keys_set_up"));
        print_line!("  relay {number:>3}: {:>8} {:>8} {:>8}   {:>6}", line.0, line.1, line.2, line.3)?;
    }
    Ok(())
}

fn show_tor(tor: &Tor) -> Result<(), Failure> {
    print_line!(
        "Tor {} beside it, {} authorities and {} relays of which {} are exits, ready after {:.1} s:",
        tor.version,
        tor.authorities,
        tor.relays,
        tor.exits,
        tor.ready_s
    )?;
    for (name, way) in tor.ways() {
        let Way { pages, .. } = way;
        print_line!(
            "  {name}: {} MB in {:.2} s: {:.1} MB/s; the first page after {:.2} s, others after {:.2} s",
            pages.large_bytes / 1_000_000,
            pages.large_s,
            pages.mb_per_s,
            pages.first_page_s,
            pages.small_page_s
        )?;
        if let Some(seconds) = pages.large_processor_s {
            print_line!("    {seconds:.2} s of processor time for the file; {}", way.carried())?;
        }
    }
    print_line!("  {}", tor.took())?;
    Ok(())
}

fn state(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

/// Bytes that are not alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Starts the authorities of a network that its file at `network` describes.
fn authorities(folder: &Path, network: &Path) -> Result<Vec<Part>, Failure> {
    let mut file = String::new();
    let begun = Instant::now();
    for number in 0..AUTHORITIES {
        let listen = free(|host| TcpListener::bind(host)?.local_addr(), number + 1)?;
        let state = state(folder, &format!("authority-{number}"));
        let key = Command::new(std::env::current_exe()?).args(["onion", "authority", "--state", &state]).output()?;
        let key = String::from_utf8_lossy(&key.stdout).trim().to_owned();
        file.push_str(&format!("\n[[authority]]\nkey = \"{key}\"\naddress = \"{listen}\"\n"));
    }
    let epoch_s = epoch(lead(begun.elapsed()));
    fs::write(network, format!("threshold = {}\nepoch_s = {epoch_s}\nround_s = {ROUND_S}\n{file}", AUTHORITIES - 1))?;
    let network = network.display().to_string();
    (0..AUTHORITIES)
        .map(|number| {
            let state = state(folder, &format!("authority-{number}"));
            Part::start(&["onion", "authority", "--network", &network, "--state", &state])
        })
        .collect()
}

/// Seconds until an epoch begins, at least: until then all relays have said what they are, and the vote is over.
/// They take as much longer as the machine is busy, of which the time that the authorities' keys `took` tells: as many
/// processes as there are authorities, one after the other.
fn lead(took: Duration) -> u64 {
    (LEAST_LEAD_S + (LEAD_OF_KEYS * took.as_secs_f64()) as u64).min(MOST_LEAD_S)
}

/// An epoch's length with which one begins in `lead` seconds or a little later, and the next not before the demo is over.
fn epoch(lead: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let begins =
        (now + lead..now + lead + 11).flat_map(|at| (LONGEST.as_secs()..=3600).map(move |length| (at, length)));
    let found = begins.into_iter().find(|(at, length)| at % length == 0);
    found.map_or(LONGEST.as_secs(), |(_, length)| length)
}

/// Whether curl gets the page; none where it is not installed.
fn curl(socks: &str, site: SocketAddr, page: &[u8]) -> Option<bool> {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--max-time",
            "30",
            "--proxy",
            &format!("socks5h://{socks}"),
            &format!("http://{site}/small"),
        ])
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => Some(output.status.success() && output.stdout == page),
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => Some(false),
    }
}
