//! A private Tor network: its keys, its authorities and relays as processes, and the signs that it is there.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::ProgressBar;
use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::super::part::{Part, free};
use super::Programs;
use super::settings::{self, AUTHORITIES, Authority, Size, Vote};
use crate::failure::Failure;
use crate::interrupt::Interrupt;

/// What relays have to be ready once there is a list; ten times what they take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much longer the second try waits with its vote, if the first list lacks relays.
const LONGER: u32 = 4;

/// An authority's vote key is encrypted where it lies, and `tor-gencert` asks by what. It lies in a folder of nobody
/// else's, for a minute.
const PASSPHRASE: &str = "private network\n";

/// All that runs. What is left of it is ended when this is dropped, before its folder is removed.
pub struct Network {
    authorities: Vec<Part>,
    relays: Vec<Part>,
    known: Vec<Authority>,
    tor: PathBuf,
    folder: TempDir,
}

impl Network {
    /// Starts one, and waits until its relays say that they are ready.
    ///
    /// # Errors
    ///
    /// When they do not, or the user has had enough.
    pub fn start(
        programs: &Programs,
        size: Size,
        site: SocketAddr,
        bar: &ProgressBar,
        interrupt: &Interrupt,
    ) -> Result<Network, Failure> {
        let network = Network::with_a_list(programs, size, site, 1, bar, interrupt)?;
        let network = match network.listed() {
            listed if listed == size.listed() => network,
            // Some were late on a busy machine; the next list would be an hour away.
            _ => {
                drop(network);
                let network = Network::with_a_list(programs, size, site, LONGER, bar, interrupt)?;
                let (listed, all) = (network.listed(), size.listed());
                if listed != all {
                    return Err(Failure::new(format!("the list of its relays lacks some twice: {listed} of {all}")));
                }
                network
            }
        };
        // What was asked of others before there was a list is asked again only after a while, which grows; this signal
        // has it asked now.
        network.relays.iter().for_each(|relay| relay.signal(Signal::SIGHUP));
        let (sign, words) = ((settings::knows_relays as Fits, settings::KNOWS_RELAYS), "of Tor's relays are ready");
        await_all(&network.relays, sign, PATIENCE, bar, words, interrupt)?;
        Ok(network)
    }

    /// Starts one whose vote leaves `slack` times what its parts took for their keys, and waits for a list.
    fn with_a_list(
        programs: &Programs,
        size: Size,
        site: SocketAddr,
        slack: u32,
        bar: &ProgressBar,
        interrupt: &Interrupt,
    ) -> Result<Network, Failure> {
        let folder = tempfile::tempdir()?;
        let at = folder.path();
        let begun = Instant::now();
        bar.set_message("Tor's authorities and relays make their keys");
        // Read for what neither file nor command line says; there is nothing.
        fs::write(at.join("defaults"), "")?;
        let numbered = |letter: char, count: u8| (0..count).map(move |number| format!("{letter}{number}"));
        let names: Vec<String> = numbered('a', AUTHORITIES).chain(numbered('r', size.relays)).collect();
        let ports = |number: u8| free(|host| TcpListener::bind(host)?.local_addr(), number);
        let authorities = (1..=AUTHORITIES)
            .map(|number| Ok([ports(number)?, ports(number)?]))
            .collect::<Result<Vec<_>, Failure>>()?;
        let relays =
            (0..size.relays).map(|number| ports(number.wrapping_add(20))).collect::<Result<Vec<_>, Failure>>()?;
        make_keys(programs, at, &names, &authorities, interrupt)?;
        let known = (0..)
            .zip(&authorities)
            .map(|(number, &[or, dir])| {
                let folder = at.join(format!("a{number}"));
                Ok(Authority {
                    or,
                    dir,
                    vote_key: read(&folder.join("keys/authority_certificate"), settings::of_certificate)?,
                    identity: read(&folder.join("fingerprint"), settings::of_relay)?,
                })
            })
            .collect::<Result<Vec<_>, Failure>>()?;
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let vote = Vote::after(now_s, begun.elapsed() * slack);
        let mut network =
            Network { authorities: Vec::new(), relays: Vec::new(), known, tor: programs.tor.clone(), folder };
        for (number, authority) in network.known.iter().enumerate() {
            let text = settings::authority(authority, number, &relays, size, vote);
            network.authorities.push(network.part(&format!("a{number}"), &text)?);
        }
        for (number, &at) in (0..).zip(&relays) {
            let text = settings::relay(number, at, (size.is_exit)(number).then_some(site));
            network.relays.push(network.part(&format!("r{number}"), &text)?);
        }
        let words = "of Tor's authorities have a list";
        let sign = (settings::has_list as Fits, settings::HAS_LIST);
        await_all(&network.authorities, sign, vote.patience(), bar, words, interrupt)?;
        Ok(network)
    }

    /// Starts `tor` with `text` besides what is said to all.
    fn part(&self, name: &str, text: &str) -> Result<Part, Failure> {
        let file = self.folder.path().join(format!("{name}.torrc"));
        let folder = settings::folder(&self.folder.path().join(name));
        fs::write(&file, format!("{}{folder}{text}", settings::common(&self.known)))?;
        Part::of(command(&self.tor, self.folder.path()).arg("-f").arg(file))
    }

    /// Starts a client; and its folder.
    pub fn client(&self, conflux_enabled: Option<u8>) -> Result<(Part, PathBuf), Failure> {
        let name = format!("client-{}", conflux_enabled.unwrap_or(0));
        let client = self.part(&name, &settings::client(&self.known, conflux_enabled))?;
        Ok((client, self.folder.path().join(name)))
    }

    /// Relays of which an authority's list tells; none while it has none.
    fn listed(&self) -> usize {
        let list = self.folder.path().join("a0/cached-microdesc-consensus");
        fs::read_to_string(list).map_or(0, |list| settings::relays_in(&list))
    }

    /// All processes, without clients.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.authorities.iter().chain(&self.relays)
    }

    /// Ends it, as its programs end by themselves.
    pub fn end(mut self) {
        self.parts().for_each(|part| part.signal(Signal::SIGINT));
        self.authorities.drain(..).chain(self.relays.drain(..)).for_each(|part| drop(part.end()));
    }
}

fn command(tor: &Path, folder: &Path) -> Command {
    let mut command = Command::new(tor);
    command.arg("--defaults-torrc").arg(folder.join("defaults")).stdin(Stdio::null());
    command
}

/// Makes the keys of all at once: what they have when they begin, they begin with sooner, and all alike.
fn make_keys(
    programs: &Programs,
    at: &Path,
    names: &[String],
    authorities: &[[SocketAddr; 2]],
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let passphrase = at.join("passphrase");
    fs::write(&passphrase, PASSPHRASE)?;
    let mut makers = Vec::new();
    for (name, [_, dir]) in names.iter().zip(authorities) {
        let keys = at.join(name).join("keys");
        private_folder(&at.join(name))?;
        private_folder(&keys)?;
        let file = |name: &str| keys.join(format!("authority_{name}"));
        let mut command = Command::new(&programs.gencert);
        command.args(["--create-identity-key", "--passphrase-fd", "0", "-m", "12", "-a", &dir.to_string()]);
        command.arg("-i").arg(file("identity_key")).arg("-s").arg(file("signing_key"));
        command.arg("-c").arg(file("certificate")).stdin(File::open(&passphrase)?);
        makers.push((format!("tor-gencert for {name}"), Part::of(&mut command)?));
    }
    // To make a relay's keys needs the name of some authority, and asks it nothing.
    let nobody = format!("x 127.0.0.1:1 {}", "f".repeat(40));
    for name in names {
        let mut command = command(&programs.tor, at);
        command.arg("-f").arg(at.join("defaults")).args(["--list-fingerprint", "--ORPort", "127.0.0.1:1"]);
        command.args(["--Address", "127.0.0.1", "--Nickname", name, "--DirAuthority", &nobody]);
        command.arg("--DataDirectory").arg(at.join(name));
        makers.push((format!("tor --list-fingerprint for {name}"), Part::of(&mut command)?));
    }
    makers.into_iter().try_for_each(|(what, maker)| maker.finish(&what, interrupt))
}

/// A folder that is for its owner alone, or Tor refuses it.
fn private_folder(at: &Path) -> Result<(), Failure> {
    #[cfg(unix)]
    use std::os::unix::fs::DirBuilderExt;
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    builder.mode(0o700);
    Ok(builder.create(at)?)
}

fn read(file: &Path, fingerprint: fn(&str) -> Option<&str>) -> Result<String, Failure> {
    let text = fs::read_to_string(file).map_err(|why| Failure::new(format!("{}: {why}", file.display())))?;
    let missing = || Failure::new(format!("{}: expected a fingerprint of 40 hexadecimal digits", file.display()));
    fingerprint(&text).map(str::to_owned).ok_or_else(missing)
}

/// Whether a line is a sign.
type Fits = fn(&str) -> bool;

/// Waits until each of `parts` has given the sign, which is called something; a terminal is told how many did, and
/// `words`.
fn await_all(
    parts: &[Part],
    (fits, what): (Fits, &str),
    patience: Duration,
    bar: &ProgressBar,
    words: &str,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let begun = Instant::now();
    for (number, part) in parts.iter().enumerate() {
        bar.set_message(format!("{number} of {} {words}", parts.len()));
        part.await_line_where(fits, what, patience.saturating_sub(begun.elapsed()), interrupt)?;
    }
    Ok(())
}
