//! Tor beside it: a private network of this machine's own `tor`, on loopback alone, through which the same pages are
//! fetched by the same code and timed by the same clock.
//!
//! One client after the other, each with a SOCKS port: one whose streams have one circuit, and one whose streams have
//! two legs (Conflux). Which circuits carried the file is counted, not believed.

mod control;
mod network;
mod settings;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use serde::Serialize;

use super::pages::{self, Pages, Site};
use super::part::{Part, processor_s, processor_s_of_ended};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use control::{Carried, Circuit, Control};
use network::Network;
use settings::Size;

/// What a client has to be ready: many times what it takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a sign of it is looked for so often.
const LOOK: Duration = Duration::from_millis(200);

/// Tor has Conflux since then.
const CONFLUX_SINCE: Version = Version(0, 4, 8);

/// A circuit has carried a file if at least this share of what was read came by it: what else a client reads, of lists
/// of relays and of circuits that are made, is less.
const LEAST_SHARE: f64 = 0.01;

/// The programs of a private network.
#[derive(Clone, Debug)]
pub struct Programs {
    tor: PathBuf,
    gencert: PathBuf,
    version: String,
}

/// The first three of a version's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

/// What was measured.
#[derive(Debug, Serialize)]
pub struct Tor {
    pub version: String,
    pub authorities: u8,
    pub relays: u8,
    pub exits: u8,
    /// From the start of all until all relays had said that they are ready, without the clients.
    pub ready_s: f64,
    /// Processor time of all processes until then, with what made their keys; null where the system does not tell.
    pub ready_processor_s: Option<f64>,
    pub one_circuit: Way,
    /// Null for a `tor` that has no Conflux.
    pub two_legs: Option<Way>,
    /// Processor time of all processes, from beginning to end, for both ways.
    pub processor_s: f64,
}

/// One way of a client to carry a stream.
#[derive(Debug, Serialize)]
pub struct Way {
    /// The client's option `ConfluxEnabled`; null where there is none.
    pub conflux_enabled: Option<u8>,
    /// From the client's start until it could fetch.
    pub client_ready_s: f64,
    #[serde(flatten)]
    pub pages: Pages,
    /// Bytes read over each circuit that carried pages, the most first, by what the client says: 509 of each cell of 514.
    pub circuit_bytes: Vec<u64>,
}

impl Tor {
    /// What it took in all, in words.
    pub fn took(&self) -> String {
        let until =
            self.ready_processor_s.map_or_else(String::new, |s| format!(", of which {s:.2} s until it was ready"));
        format!("{:.2} s of processor time in all{until}", self.processor_s)
    }

    /// What was measured, each with its name for people.
    pub fn ways(&self) -> impl Iterator<Item = (String, &Way)> {
        [Some(&self.one_circuit), self.two_legs.as_ref()].into_iter().flatten().map(|way| {
            let option = way.conflux_enabled.map_or_else(String::new, |enabled| format!(" (ConfluxEnabled {enabled})"));
            (format!("{}{option}", name(way.conflux_enabled)), way)
        })
    }
}

impl Way {
    /// By how many circuits pages came, in words.
    pub fn carried(&self) -> String {
        let all: u64 = self.circuit_bytes.iter().sum();
        let shares = self.circuit_bytes.iter().map(|bytes| format!("{:.0}", *bytes as f64 / all as f64 * 100.0));
        match self.circuit_bytes.len() {
            0 => "by which circuits, the client did not tell".to_owned(),
            1 => "one circuit carried it".to_owned(),
            circuits => format!("{circuits} circuits carried {} % of it", shares.collect::<Vec<_>>().join(" and ")),
        }
    }
}

impl Programs {
    /// Those that the path has.
    ///
    /// # Errors
    ///
    /// Where one is missing, or does not run.
    pub fn find() -> Result<Programs, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let find = |name: &str| std::env::split_paths(&path).map(|at| at.join(name)).find(|at| at.is_file());
        let [tor, gencert] = ["tor", "tor-gencert"].map(|name| {
            let missing = || {
                Failure::new(format!(
                    "--beside-tor: there is no program {name} in PATH: install Tor (Debian, Ubuntu: apt install tor), or \
                     leave the option out"
                ))
            };
            find(name).ok_or_else(missing)
        });
        let (tor, gencert) = (tor?, gencert?);
        let does_not_run =
            |why: &dyn std::fmt::Display| Failure::new(format!("--beside-tor: {}: {why}", tor.display()));
        let output = Command::new(&tor).arg("--version").output().map_err(|why| does_not_run(&why))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = version(&text).ok_or_else(|| {
            let said = text.lines().next().unwrap_or_default();
            does_not_run(&format!(
                "expected \"Tor version 0.4.8.1.\" or the like of its --version, and it says \"{said}\""
            ))
        })?;
        Ok(Programs { version: version.to_owned(), tor, gencert })
    }

    /// Whether its clients can have two legs.
    fn has_conflux(&self) -> bool {
        Version::of(&self.version).is_some_and(|version| version >= CONFLUX_SINCE)
    }
}

/// The version that `tor --version` prints.
fn version(text: &str) -> Option<&str> {
    let version = text.lines().next()?.strip_prefix("Tor version ")?.split([' ', '(']).next()?.trim_end_matches('.');
    Version::of(version).map(|_| version)
}

impl Version {
    fn of(text: &str) -> Option<Version> {
        let mut numbers = text.split(['.', '-']).map_while(|number| number.parse().ok());
        Some(Version(numbers.next()?, numbers.next()?, numbers.next()?))
    }
}

/// Starts a network with `relays`, of which those are exits for which `is_exit` holds, and fetches pages through it.
///
/// # Errors
///
/// When it does not come to be, a page does not come as it was sent, or the user has had enough.
pub fn measure(
    programs: &Programs,
    relays: u8,
    is_exit: fn(u8) -> bool,
    site: &Site,
    interrupt: &Interrupt,
) -> Result<Tor, Failure> {
    // A terminal alone shows it.
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(LOOK);
    let outcome = measure_and_say(programs, Size { relays, is_exit }, site, &bar, interrupt);
    bar.finish_and_clear();
    outcome
}

fn measure_and_say(
    programs: &Programs,
    size: Size,
    site: &Site,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<Tor, Failure> {
    let before = processor_s_of_ended()?;
    let begun = Instant::now();
    let network = Network::start(programs, size, site.address, bar, interrupt)?;
    let ready_s = begun.elapsed().as_secs_f64();
    let of_ended = processor_s_of_ended()? - before;
    let ready_processor_s = processor_s(network.parts()).map(|of_others| of_ended + of_others);
    let one_circuit = way(&network, programs.has_conflux().then_some(0), site, bar, interrupt)?;
    let two_legs = programs.has_conflux().then(|| way(&network, Some(1), site, bar, interrupt)).transpose()?;
    network.end();
    Ok(Tor {
        version: programs.version.clone(),
        authorities: settings::AUTHORITIES,
        relays: size.relays,
        exits: size.exits().count() as u8,
        ready_s,
        ready_processor_s,
        one_circuit,
        two_legs,
        processor_s: processor_s_of_ended()? - before,
    })
}

/// One client of `network`, from its start to its end.
fn way(
    network: &Network,
    conflux_enabled: Option<u8>,
    site: &Site,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<Way, Failure> {
    let begun = Instant::now();
    let (client, folder) = network.client(conflux_enabled)?;
    let [socks, control] = ["Socks", "Control"].map(|port| opened(&client, port, interrupt));
    let (socks, control) = (socks?, control?);
    // By then it has written down who may ask it.
    client.await_line("Bootstrapped 0%", interrupt)?;
    let cookie = folder.join(settings::COOKIE);
    let cookie = fs::read(&cookie).map_err(|why| Failure::new(format!("{}: {why}", cookie.display())))?;
    let mut asked = Control::open(control, &cookie)?;
    await_circuits(&mut asked, conflux_enabled == Some(1), bar, interrupt)?;
    let client_ready_s = begun.elapsed().as_secs_f64();
    bar.set_message(format!("pages come through Tor, {}", name(conflux_enabled)));
    let carried = Carried::count(Control::open(control, &cookie)?)?;
    let all = || network.parts().chain([&client]);
    let pages = pages::measure(&socks.to_string(), site, || processor_s(all()), interrupt)?;
    let circuit_bytes = carried.once(pages.large_bytes as u64, LEAST_SHARE);
    client.end();
    Ok(Way { conflux_enabled, client_ready_s, pages, circuit_bytes })
}

/// What the option is called for people.
fn name(conflux_enabled: Option<u8>) -> &'static str {
    if conflux_enabled == Some(1) { "two legs" } else { "one circuit" }
}

/// Where the client listens for `what`.
fn opened(client: &Part, what: &str, interrupt: &Interrupt) -> Result<SocketAddr, Failure> {
    let line = client.await_line(&format!("Opened {what} listener"), interrupt)?;
    settings::address_of(&line).ok_or_else(|| Failure::new(format!("expected an address at the end of \"{line}\"")))
}

/// Waits until a client says that it is ready, and has the circuits that its streams will take.
fn await_circuits(
    client: &mut Control,
    two_legs: bool,
    bar: &ProgressBar,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let begun = Instant::now();
    loop {
        let percent = control::percent(&client.ask("GETINFO status/bootstrap-phase")?);
        let circuits = control::circuits(&client.ask("GETINFO circuit-status")?);
        if percent == Some(100) && serve(&circuits, two_legs) {
            return Ok(());
        }
        let percent = percent.map_or_else(String::new, |percent| format!(", at {percent} %"));
        let words = format!("a client of Tor's begins, {}{percent}", name(two_legs.then_some(1)));
        bar.set_message(words.clone());
        if interrupt.is_raised() {
            return Err(Failure::interrupted("nothing is left"));
        }
        if begun.elapsed() > PATIENCE {
            return Err(Failure::new(format!("{words}: it had no circuits for pages within {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
}

/// Whether `circuits` can carry a stream to the site: one, or two that are linked.
fn serve(circuits: &[Circuit], two_legs: bool) -> bool {
    let built = || circuits.iter().filter(|circuit| circuit.is_built && circuit.hops == settings::HOPS);
    if two_legs {
        let linked = |set: &str| built().filter(|circuit| circuit.linked.as_deref() == Some(set)).count();
        built().filter_map(|circuit| circuit.linked.as_deref()).any(|set| linked(set) >= 2)
    } else {
        built().any(|circuit| circuit.is_for_streams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_tor_prints_it() {
        let debian = "Tor version 0.4.9.11.\nThis build of Tor is covered by the GNU General Public License\n";
        assert_eq!(version(debian), Some("0.4.9.11"));
        assert_eq!(version("Tor version 0.4.8.1-alpha (git-0123456789abcdef).\n"), Some("0.4.8.1-alpha"));
        for wrong in ["", "Tor version \n", "torsocks 2.4", "Tor version 0.4\n"] {
            assert_eq!(version(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn two_legs_are_there_since_their_version() {
        let has = |version: &str| {
            Programs { tor: PathBuf::new(), gencert: PathBuf::new(), version: version.to_owned() }.has_conflux()
        };
        assert!(has("0.4.8.1-alpha") && has("0.4.9.11") && has("0.10.0.1") && has("1.0.0"));
        assert!(!has("0.4.7.16") && !has("0.3.9.12"));
    }

    fn circuit(hops: usize, linked: Option<&str>) -> Circuit {
        let is_for_streams = linked.is_none();
        Circuit { is_built: true, hops, is_for_streams, linked: linked.map(str::to_owned) }
    }

    #[test]
    fn legs_serve_in_pairs_and_a_circuit_alone() {
        let [one, a, b] = [circuit(3, None), circuit(3, Some("A")), circuit(3, Some("B"))];
        assert!(serve(std::slice::from_ref(&one), false) && !serve(std::slice::from_ref(&one), true));
        assert!(!serve(&[a.clone(), b.clone()], true), "of two sets one each");
        assert!(serve(&[a.clone(), b, a.clone()], true) && !serve(&[a.clone(), a], false));
        assert!(!serve(&[circuit(1, None)], false), "a circuit of one hop is for lists of relays");
        assert!(!serve(&[Circuit { is_built: false, ..one }], false));
    }
}
