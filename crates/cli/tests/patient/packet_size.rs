//! Links that carry less than Ethernet does, in network namespaces: a tunnel of 1420 bytes, the 1280 of
//! IPv6, less than that, and one that becomes narrow while a file is on its way.
//!
//! ```text
//!  namespace of the sender and the relays            namespace of the receiver, or of the relays too
//!    10.0.0.1 --------------- a pair of devices, MTU as it is said --------------- 10.0.0.2
//!    fd77::1                                                                       fd77::2
//! ```

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::running::Running;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// A process that holds a namespace.
struct Holder(Child);

impl Holder {
    fn start(command: &mut Command) -> Holder {
        Holder(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The addresses of both namespaces' ends of the link.
const V4: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const V6: [&str; 2] = ["[fd77::1]", "[fd77::2]"];

/// Two namespaces with a link between them.
struct Network {
    near: Holder,
    far: Holder,
    folder: tempfile::TempDir,
}

fn inside(holder: &Holder, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["--target", &holder.0.id().to_string(), "--user", "--net", "--preserve-credentials", program]);
    command.args(arguments);
    command
}

impl Network {
    /// None, and it is said, where there are no namespaces.
    fn new(mtu: u32) -> Option<Network> {
        let namespace = ["--user", "--map-root-user", "--net"];
        let may = Command::new("unshare").args(namespace).args(["ip", "link"]).output();
        if !may.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: no network namespaces here ({may:?})");
            return None;
        }
        let near = Holder::start(Command::new("unshare").args(namespace).args(["sleep", "600"]));
        let deadline = Instant::now() + Duration::from_secs(10);
        let other = |holder: &Holder| {
            let namespace = |id: String| fs::read_link(format!("/proc/{id}/ns/net")).ok();
            namespace(holder.0.id().to_string()).is_some_and(|found| Some(found) != namespace("self".into()))
        };
        while !other(&near) {
            assert!(Instant::now() < deadline, "no namespace");
            sleep(Duration::from_millis(10));
        }
        // Until its user is mapped.
        sleep(Duration::from_millis(300));
        let far = Holder::start(&mut inside(&near, "unshare", &["--net", "sleep", "600"]));
        let link = |holder: &Holder| fs::read_link(format!("/proc/{}/ns/net", holder.0.id())).ok();
        while link(&far).is_none() || link(&far) == link(&near) || !other(&far) {
            assert!(Instant::now() < deadline, "no second namespace");
            sleep(Duration::from_millis(10));
        }
        let network = Network { near, far, folder: tempfile::tempdir().unwrap() };
        let id = network.far.0.id().to_string();
        network.ip(&network.near, &["link", "add", "v0", "type", "veth", "peer", "name", "v1", "netns", &id]);
        for (holder, device, number) in [(&network.near, "v0", 1), (&network.far, "v1", 2)] {
            network.ip(holder, &["address", "add", &format!("10.0.0.{number}/24"), "dev", device]);
            network.ip(holder, &["link", "set", device, "mtu", &mtu.to_string(), "up"]);
            // IPv6 is on no link that carries less (RFC 8200, 5).
            if mtu >= 1280 {
                network.ip(holder, &["address", "add", &format!("fd77::{number}/64"), "dev", device, "nodad"]);
            }
            network.ip(holder, &["link", "set", "lo", "up"]);
        }
        let file: Vec<u8> = (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(network.path("film.bin"), file).unwrap();
        Some(network)
    }

    fn ip(&self, holder: &Holder, arguments: &[&str]) {
        let output = inside(holder, "ip", arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, holder: &Holder, arguments: &[&str]) -> Running {
        let mut command = inside(holder, BINARY, arguments);
        Running::of(command.current_dir(self.folder.path()).env("XDG_CONFIG_HOME", self.path("settings")))
    }

    /// Two relays, the sender's neighbours or not, and a receiver that is far; the arguments of `send`.
    fn serve(&self, [near, far]: [&str; 2], relays_are_near: bool) -> (Vec<Running>, Running, Vec<String>) {
        let (holder, address) = if relays_are_near { (&self.near, near) } else { (&self.far, far) };
        let (address, listen) = (format!("{address}:0"), format!("{far}:0"));
        let mut list = String::new();
        let relays = (0..2).map(|_| {
            let mut relay = self.run(holder, &["relay", "--listen", &address, "--limit", "4 MB/s"]);
            list += &format!("[[relay]]\naddress = \"{}\"\n", relay.after(" on "));
            relay
        });
        let relays: Vec<Running> = relays.collect();
        fs::write(self.path("RELAYS.toml"), list).unwrap();
        let mut receiver = self.run(&self.far, &["receive", "--listen", &listen, "--out", "in", "--once"]);
        let (to, key) = (receiver.after("receiving on "), receiver.after("public key "));
        let send = ["send", "film.bin", "--to", &to, "--relays", "RELAYS.toml", "--hops", "1", "--key", &key];
        let how = ["--controller", "aimd", "--pacing", "paced", "--upload", "1 MB/s"];
        (relays, receiver, send.iter().chain(&how).map(|&argument| argument.to_owned()).collect())
    }

    fn send(&self, arguments: &[String], more: &[&str]) -> Running {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        self.run(&self.near, &arguments)
    }

    fn check(&self, receiver: Running) {
        let (code, out, err) = receiver.end();
        assert_eq!(code, Some(0), "{out} {err}");
        assert!(fs::read(self.path("in/film.bin")).unwrap() == fs::read(self.path("film.bin")).unwrap());
    }
}

/// MTUs, whether the relays are at the sender's end, and the packets that are sent then.
const NARROW: [(u32, bool, &str); 4] =
    [(1280, true, "1232"), (1280, false, "1232"), (1420, true, "1372"), (1420, false, "1372")];

#[test]
fn links_of_1280_and_of_1420_are_used_with_what_they_carry_wherever_they_are() {
    are_used(V4, &NARROW);
    are_used(V4, &[(1500, false, "")]);
}

/// Headers have 48 bytes, where IPv4's have 28: 1232 and 1372 fit exactly.
#[test]
fn links_are_used_with_what_they_carry_over_ipv6() {
    are_used(V6, &NARROW);
    are_used(V6, &[(1419, false, "1232"), (1500, false, "")]);
}

/// On links of each MTU, with relays at this end or the other, packets are sent whose size is said, or the longest.
fn are_used(addresses: [&str; 2], cases: &[(u32, bool, &str)]) {
    for &(mtu, relays_are_near, says) in cases {
        let Some(network) = Network::new(mtu) else { return };
        let (_relays, receiver, send) = network.serve(addresses, relays_are_near);
        let began = Instant::now();
        let (code, out, err) = network.send(&send, &[]).end();
        assert_eq!(code, Some(0), "{mtu}, {addresses:?}: {out} {err}");
        let is_named = out.contains(&format!("packets of {says} bytes"));
        assert_eq!(
            (is_named, out.contains("packets of")),
            (!says.is_empty(), !says.is_empty()),
            "{mtu}, {addresses:?}: {out}"
        );
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        network.check(receiver);
    }
}

#[test]
fn what_the_own_link_does_not_carry_is_said_at_once_with_what_to_do() {
    let Some(network) = Network::new(1000) else { return };
    let (_relays, receiver, send) = network.serve(V4, false);
    for more in [&[][..], &["--packet", "973"]] {
        let began = Instant::now();
        let (code, out, err) = network.send(&send, more).end();
        assert_eq!((code, out.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("carries packets of at most 972 bytes") && err.contains("--packet 972"), "{err}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    let (code, out, err) = network.send(&send, &["--packet", "972"]).end();
    assert_eq!(code, Some(0), "{out} {err}");
    network.check(receiver);
}

#[test]
fn a_path_that_becomes_narrow_while_a_file_is_on_its_way_is_gone_on_with_in_shorter_packets() {
    becomes_narrow(V4);
}

#[test]
fn so_does_one_over_ipv6() {
    becomes_narrow(V6);
}

fn becomes_narrow(addresses: [&str; 2]) {
    let Some(network) = Network::new(1500) else { return };
    let (_relays, receiver, send) = network.serve(addresses, true);
    let sender = network.send(&send, &[]);
    let deadline = Instant::now() + Duration::from_secs(30);
    let has_begun = || {
        let entries = fs::read_dir(network.path("in")).ok()?;
        entries.filter_map(|entry| entry.ok()?.metadata().ok()).map(|metadata| metadata.len()).max()
    };
    while has_begun().is_none_or(|length| length < 500_000) {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(50));
    }
    // The relays' way out; the sender's own link is as it was.
    network.ip(&network.near, &["link", "set", "v0", "mtu", "1280"]);
    let (code, out, err) = sender.end();
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(err.contains("packets of 1400 bytes are lost on the way: going on with 1232"), "{err}");
    assert!(out.contains("bytes of it had come before"), "{out}");
    network.check(receiver);
}
