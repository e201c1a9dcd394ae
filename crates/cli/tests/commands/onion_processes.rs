//! Processes of the onion as the system lets them be: folders and ports that others have, descriptors that run out.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, SMALL};

const NETWORK: &str = "[[authority]]\nkey = \"0707070707070707070707070707070707070707070707070707070707070707\"\n\
                       address = \"127.0.0.1:7\"\n";

const PROXY: [&str; 8] = ["onion", "proxy", "--network", "network.toml", "--state", "state", "--socks", "127.0.0.1:0"];

/// A process that ends with this value, as by SIGKILL.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One that has said where it is, and the address.
fn start(place: &Place, arguments: &[&str], before: &str) -> (Killed, String) {
    let mut child = place.command(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (mut said, stdout) = (Vec::new(), child.stdout.as_mut().unwrap());
    while !said.ends_with(b"\n") {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "it has ended");
        said.push(byte[0]);
    }
    let line = String::from_utf8(said).unwrap();
    let address = line.trim().strip_prefix(before).unwrap_or_else(|| panic!("{line:?}")).to_owned();
    (Killed(child), address)
}

fn place() -> Place {
    let place = Place::new(SMALL);
    std::fs::write(place.path("network.toml"), NETWORK).unwrap();
    place
}

#[test]
fn a_folder_is_one_process_s_and_free_again_when_that_is_killed() {
    let place = place();
    let (first, _) = start(&place, &PROXY, "SOCKS5 at ");
    let said = place.say(&PROXY);
    said.refuses("the folder state is in use by process ");
    assert!(said.stderr.contains(&format!("process {}:", first.0.id())) && said.stderr.contains("--state"), "{said:?}");
    place.say(&["onion", "authority", "--state", "state"]).stdout.trim().parse::<u8>().expect_err("it prints its key");
    drop(first);
    start(&place, &PROXY, "SOCKS5 at ");
}

#[test]
fn a_port_that_others_have_is_found_before_anything_begins() {
    let place = place();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let at = ["--metrics", &address];
    let words = format!("cannot serve metrics on {address}: ");
    place.say(&[&PROXY[..], &at].concat()).refuses(&words);
    let relay = ["onion", "relay", "--network", "network.toml", "--state", "state", "--listen", "127.0.0.1:0"];
    place.say(&[&relay[..], &at].concat()).refuses(&words);
}

#[test]
fn what_is_no_socks5_is_answered_and_said() {
    let place = place();
    let mut child = place.command(&PROXY).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 64];
    let length = child.stdout.as_mut().unwrap().read(&mut line).unwrap();
    let address = std::str::from_utf8(&line[..length]).unwrap().trim().trim_start_matches("SOCKS5 at ").to_owned();
    for _ in 0..3 {
        let mut program = TcpStream::connect(&address).unwrap();
        program.write_all(b"CONNECT example.org:443 HTTP/1.1\r\n\r\n").unwrap();
        program.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        program.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.0 400") && answer.contains("socks5h://"), "{answer}");
    }
    // It says so, and does nothing else, before there is a list of relays.
    std::thread::sleep(Duration::from_millis(500));
    let mut stderr = child.stderr.take().unwrap();
    drop(Killed(child));
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(said.matches("a program speaks HTTP to the proxy; expected SOCKS5").count(), 1, "{said}");
}

/// What a process has had of a processor, in ticks of 10 ms.
#[cfg(target_os = "linux")]
fn ticks(of: &Killed) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", of.0.id())).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn an_authority_out_of_descriptors_waits_for_one() {
    let place = place();
    let key = place.say(&["onion", "authority", "--state", "state"]).stdout;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let network = format!("[[authority]]\nkey = \"{}\"\naddress = \"127.0.0.1:{port}\"\n", key.trim());
    std::fs::write(place.path("network.toml"), network).unwrap();
    let (authority, address) =
        start(&place, &["onion", "authority", "--network", "network.toml", "--state", "state"], "authority at ");
    let limit = ["--pid", &authority.0.id().to_string(), "--nofile=20:20"].map(str::to_owned);
    match std::process::Command::new("prlimit").args(limit).status() {
        Ok(status) if status.success() => {}
        _ => return eprintln!("there is no prlimit here"),
    }
    let _silent: Vec<TcpStream> = (0..30).filter_map(|_| TcpStream::connect(&address).ok()).collect();
    std::thread::sleep(Duration::from_millis(500));
    let (begun, before) = (Instant::now(), ticks(&authority));
    std::thread::sleep(Duration::from_secs(2));
    let share = (ticks(&authority) - before) as f64 / 100.0 / begun.elapsed().as_secs_f64();
    assert!(share < 0.1, "{share} of a processor for connections that it cannot take");
}
