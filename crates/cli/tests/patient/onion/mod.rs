//! A whole onion overlay of real processes on loopback, with trouble in it.

mod beside_tor;
mod datagrams;
mod demo;
mod families;
mod floods;
mod held_up;
mod hidden;
mod killed;
mod programs;
mod watched;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_net::state::StateFolder;
use anabranch_onion::directory::{PublicKey, SecretKey};
use anabranch_onion::guards::GuardState;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Longer than everything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// A process that ends with this value, and the lines that it has printed.
struct Process {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn of(command: &mut Command) -> Process {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built for this test");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let streams: [Option<Box<dyn Read + Send>>; 2] =
            [child.stdout.take().map(|out| Box::new(out) as _), child.stderr.take().map(|err| Box::new(err) as _)];
        for stream in streams.into_iter().flatten() {
            let lines = Arc::clone(&lines);
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            });
        }
        Process { child, lines }
    }

    fn start(arguments: &[&str]) -> Process {
        Process::of(Command::new(BINARY).args(arguments))
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first line that `fits`, once there is one.
    fn line_where(&self, fits: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            if let Some(line) = self.lines().into_iter().find(|line| fits(line)) {
                return line;
            }
            assert!(begun.elapsed() < PATIENCE, "it said nothing like that, but {:?}", self.lines());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where it serves its metrics, if it was asked to.
    fn metrics(&self) -> String {
        let line = self.line_where(|line| line.starts_with("metrics at http://"));
        line["metrics at http://".len()..].trim_end_matches("/metrics").to_owned()
    }

    /// Ends it at once, as `kill -9` does.
    fn kill(&mut self) {
        self.child.kill().expect("it was there");
        self.child.wait().expect("it has ended");
    }

    /// Its exit code, once it has ended by itself.
    fn code(&mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is a child") {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {:?}", self.lines());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks it to end; the object that it prints then.
    fn end(mut self) -> serde_json::Value {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("there is kill").success());
        self.code();
        let line = self.line_where(|line| line.starts_with('{'));
        serde_json::from_str(&line).expect("an object")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A relay, and what is known of it.
struct RelayProcess {
    process: Process,
    address: SocketAddr,
    identity: PublicKey,
}

/// An authority, and where it is.
struct AuthorityProcess {
    process: Process,
    address: SocketAddr,
}

/// Authorities, relays, one of them an exit to a site, and a proxy.
struct Overlay {
    folder: tempfile::TempDir,
    network: PathBuf,
    authorities: Vec<AuthorityProcess>,
    relays: Vec<RelayProcess>,
    proxy: Process,
    socks: String,
    site: SocketAddr,
}

/// What a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The relay of this number.
    Relay(u8),
    Proxy,
}

/// The relay that is the exit.
const EXIT: usize = 0;

impl Overlay {
    /// Of this many relays, in loopback networks from 127.1.`hosts`.1 on; `epoch_s` if lists are to come often, or else
    /// none comes after the first for a while. `site` serves what lies at a path.
    fn start(
        hosts: u8,
        relays: u8,
        epoch_s: Option<u64>,
        site: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static,
    ) -> Overlay {
        Overlay::start_with(hosts, relays, epoch_s, |_, _, arguments| Process::start(arguments), site)
    }

    /// The same; `start` starts each relay and the proxy, by what it is, the overlay's folder and its arguments.
    fn start_with(
        hosts: u8,
        relays: u8,
        epoch_s: Option<u64>,
        start: impl Fn(Part, &Path, &[&str]) -> Process,
        site: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static,
    ) -> Overlay {
        let folder = tempfile::tempdir().expect("a folder");
        let site = serve(site);
        let state = |name: &str| folder.path().join(name).display().to_string();
        // A busy machine holds up an authority for a second. In short rounds a vote may then fail, and there is another.
        let (epoch_s, round_s) = epoch_s.map_or_else(|| (epoch(), 3.0), |epoch_s| (epoch_s, 0.5));
        let (network, authorities) = start_authorities(folder.path(), hosts, epoch_s, round_s);
        let shown = network.display().to_string();
        let relay = |number: u8| {
            let address =
                UdpSocket::bind((host(hosts + 3 + number), 0)).and_then(|at| at.local_addr()).expect("loopback");
            let (state, listen, allow) = (state(&format!("r{number}")), address.to_string(), site.to_string());
            let seed = StateFolder::open(Path::new(&state)).and_then(|folder| folder.seed("key")).expect("a key");
            let mut arguments = vec!["onion", "relay", "--json", "--network", &shown, "--state", &state];
            arguments.extend(["--listen", &listen, "--limit", "1 Gbit/s"]);
            if usize::from(number) == EXIT {
                arguments.extend(["--allow", &allow, "--allow", "127.0.0.1:*/udp"]);
            }
            let process = start(Part::Relay(number), folder.path(), &arguments);
            RelayProcess { process, address, identity: SecretKey::from_seed(&seed).public() }
        };
        let all: Vec<RelayProcess> = (0..relays).map(relay).collect();
        let arguments = ["onion", "proxy", "--json", "--network", &shown, "--state", &state("proxy")];
        let arguments = [&arguments[..], &["--socks", "127.0.0.1:0"]].concat();
        let proxy = start(Part::Proxy, folder.path(), &arguments);
        let socks = proxy.line_where(|line| line.contains("SOCKS5 at "));
        let socks = socks.rsplit(' ').next().expect("an address").to_owned();
        proxy.line_where(|line| line.contains(&format!("{relays} relays")));
        Overlay { network, authorities, relays: all, proxy, socks, site, folder }
    }

    /// The relays that are the proxy's guards.
    fn guards(&self) -> Vec<usize> {
        let state = StateFolder::open(&self.folder.path().join("proxy")).expect("a folder");
        let guards: GuardState = state.load("guards.json").expect("guards");
        let guards: Vec<PublicKey> = guards.identities().collect();
        (0..self.relays.len()).filter(|relay| guards.contains(&self.relays[*relay].identity)).collect()
    }

    /// Fetches what lies at `path`, as soon as that is possible; calls `at` with the bytes that came so far.
    fn fetch(&self, path: &str, mut at: impl FnMut(usize)) -> Fetched {
        let begun = Instant::now();
        loop {
            match fetch(&self.socks, self.site, path, &mut at) {
                Ok(fetched) => return fetched,
                Err(why) => assert!(begun.elapsed() < PATIENCE, "{path} does not come: {why}"),
            }
            thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Three authorities in networks from `hosts` on, and the file that says so.
fn start_authorities(folder: &Path, hosts: u8, epoch_s: u64, round_s: f64) -> (PathBuf, Vec<AuthorityProcess>) {
    let mut file = format!("threshold = 2\nepoch_s = {epoch_s}\nround_s = {round_s}\n");
    let mut addresses = Vec::new();
    for number in 0..3 {
        let address = TcpListener::bind((host(hosts + number), 0)).and_then(|at| at.local_addr()).expect("loopback");
        let state = authority_folder(folder, number).display().to_string();
        let key = Command::new(BINARY).args(["onion", "authority", "--state", &state]).output();
        let key = String::from_utf8(key.expect("it runs").stdout).expect("a key").trim().to_owned();
        file.push_str(&format!("\n[[authority]]\nkey = \"{key}\"\naddress = \"{address}\"\n"));
        addresses.push(address);
    }
    let network = folder.join("network.toml");
    fs::write(&network, file).expect("a file");
    let start = |(number, address)| AuthorityProcess { process: start_authority(folder, &network, number), address };
    let started = (0..).zip(addresses).map(start).collect();
    (network, started)
}

fn authority_folder(folder: &Path, number: u8) -> PathBuf {
    folder.join(format!("a{number}"))
}

fn start_authority(folder: &Path, network: &Path, number: u8) -> Process {
    let (network, state) = (network.display().to_string(), authority_folder(folder, number).display().to_string());
    Process::start(&["onion", "authority", "--network", &network, "--state", &state, "--metrics", "127.0.0.1:0"])
}

fn host(network: u8) -> std::net::IpAddr {
    [127, 1, network, 1].into()
}

/// An epoch's length with which one begins once all relays are there, also on a busy machine, and the next not for long.
fn epoch() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let begins = (now + 35..now + 50).flat_map(|at| (300..=3600).map(move |length| (at, length)));
    begins.into_iter().find(|(at, length)| at % length == 0).expect("one of some thousand").1
}

/// What came, and when.
struct Fetched {
    bytes: Vec<u8>,
    /// When the connection was made, and when more bytes had come, and how many.
    arrivals: Vec<(Instant, usize)>,
}

impl Fetched {
    /// The longest time without a byte, among those that began when at least `from` and less than `to` had come.
    fn longest_stall(&self, from: usize, to: usize) -> Duration {
        let pairs = self.arrivals.windows(2).filter(|pair| (from..to).contains(&pair[0].1));
        pairs.map(|pair| pair[1].0 - pair[0].0).max().unwrap_or_default()
    }
}

fn fetch(socks: &str, site: SocketAddr, path: &str, at: &mut impl FnMut(usize)) -> std::io::Result<Fetched> {
    let mut stream = TcpStream::connect(socks)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let SocketAddr::V4(target) = site else { panic!("the site has an address of IPv4") };
    stream.write_all(&[5, 1, 0])?;
    stream.read_exact(&mut [0; 2])?;
    stream.write_all(&[&[5, 1, 0, 1], &target.ip().octets()[..], &target.port().to_be_bytes()].concat())?;
    let mut reply = [0; 10];
    stream.read_exact(&mut reply)?;
    if reply[1] != 0 {
        return Err(std::io::Error::other(format!("SOCKS reply {}", reply[1])));
    }
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {site}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let (mut bytes, mut arrivals, mut buffer) = (Vec::new(), vec![(Instant::now(), 0)], vec![0; 1 << 16]);
    loop {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
        arrivals.push((Instant::now(), bytes.len()));
        at(bytes.len());
    }
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)? + 4;
    if !bytes.starts_with(b"HTTP/1.1 200 ") {
        return Err(std::io::Error::other("it is not there"));
    }
    Ok(Fetched { bytes: bytes.split_off(head), arrivals })
}

/// A site; where it is.
fn serve(site: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a socket")).lines().map_while(Result::ok);
            let first = lines.next().unwrap_or_default();
            let _ = lines.take_while(|line| !line.is_empty()).count();
            let path = first.split(' ').nth(1).unwrap_or("/").split('?').next().unwrap_or("/").to_owned();
            let page = site(&path);
            thread::spawn(move || {
                let (code, page) = page.map_or(("404 Not Found", Vec::new()), |page| ("200 OK", page));
                let kind = if path.ends_with(".html") { "text/html" } else { "application/octet-stream" };
                let head = format!(
                    "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    page.len()
                );
                // Who breaks off wants no more.
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&page));
            });
        }
    });
    address
}

/// Bytes that are not alike.
fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}
