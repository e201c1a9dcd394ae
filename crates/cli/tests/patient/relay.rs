//! The real relay as those who run one meet it: settings, addresses, metrics, and what it logs.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::Place;
use crate::common::running::Running;
use anabranch_proto::overlay::packet::{Packet, PacketId, Route};
use anabranch_proto::overlay::wire::{self, Datagram, Type};

/// Data on its way from a source that does not know itself over `relay` to `to`.
fn data(relay: SocketAddr, to: SocketAddr, body: &[u8]) -> Vec<u8> {
    let route = Route::from_nodes(&[wire::unknown_source(relay), relay, to], 1).unwrap();
    let packet = Packet::new(PacketId::default(), 0, Type::Data.kind(), route);
    let mut bytes = Vec::new();
    Datagram { what: Type::Data, packet, body }.encode(&mut bytes);
    bytes
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    socket
}

/// The page of metrics.
fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: relay\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// An address at which nobody listens now.
fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn a_relay_on_all_addresses_passes_on_what_is_near_to_whom_it_is_near() {
    let mut relay = Running::start(&["relay", "--listen", "0.0.0.0:0", "--limit", "4 MB/s"]);
    let port = relay.after(" on 0.0.0.0:").parse().unwrap();
    let at = SocketAddr::from(([127, 0, 0, 2], port));
    let (source, destination) = (socket("127.0.0.1:0"), socket("127.0.0.3:0"));
    let mut buffer = [0; 2000];
    source.send_to(&data(at, destination.local_addr().unwrap(), b"sealed"), at).unwrap();
    assert_eq!(destination.recv_from(&mut buffer).unwrap().1, at, "from the address that is listed");
    // No private network is loopback's, and nobody is at a documentation address.
    for elsewhere in ["10.0.0.1:4000", "169.254.169.254:53", "192.0.2.1:4000", "8.8.8.8:53"] {
        source.send_to(&data(at, elsewhere.parse().unwrap(), b"sealed"), at).unwrap();
    }
    source.send_to(&data(at, destination.local_addr().unwrap(), b"sealed"), at).unwrap();
    destination.recv_from(&mut buffer).unwrap();
    relay.interrupt();
    let (code, out, _) = relay.end();
    assert_eq!(code, Some(0));
    assert!(out.contains("forwarded 2 datagrams") && out.contains("4 from or to where nothing is forwarded"), "{out}");
}

#[test]
fn a_flooder_takes_nothing_from_those_who_keep_to_their_share() {
    const HONEST: usize = 9;
    // A limit of 1 MB/s, a tenth of it for each honest one, ten times it for the flooder, packets of
    // 1000 bytes: in a tick of 10 ms, 1 packet of each and 100.
    let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0", "--limit", "1 MB/s", "--log", "off"]);
    let at = relay.after(" on ").parse().unwrap();
    let destination = socket("127.0.0.1:0");
    // In the first second the flooder has the whole limit at once, and nothing comes until the next.
    destination.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let to = destination.local_addr().unwrap();
    let bytes = data(at, to, &vec![7; 1000 - data(at, to, b"").len()]);
    let sources: Vec<UdpSocket> = (0..=HONEST).map(|number| socket(&format!("127.0.1.{}:0", number + 1))).collect();
    let began = Instant::now();
    // Averages are three quarters of what comes after two seconds.
    let (settled, end) = (Duration::from_secs(3), Duration::from_secs(8));
    let (mut sent, mut arrived) = (0u32, [0u32; HONEST + 1]);
    std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let mut arrived = [0; HONEST + 1];
            let mut buffer = [0; 2000];
            while let Ok(length) = destination.recv(&mut buffer) {
                let SocketAddr::V4(source) = wire::decode(&buffer[..length]).unwrap().packet.route.nodes()[0] else {
                    panic!("no IPv4")
                };
                let is_counted = (settled..end).contains(&began.elapsed());
                arrived[usize::from(source.ip().octets()[3]) - 1] += u32::from(is_counted);
            }
            arrived
        });
        let mut tick = Duration::ZERO;
        while tick < end {
            std::thread::sleep(tick.saturating_sub(began.elapsed()));
            for (number, source) in sources.iter().enumerate() {
                for _ in 0..if number == HONEST { 100 } else { 1 } {
                    source.send_to(&bytes, at).unwrap();
                }
            }
            sent += u32::from((settled..end).contains(&began.elapsed()));
            tick += Duration::from_millis(10);
        }
        arrived = counting.join().unwrap();
    });
    // Each honest one has sent this many.
    assert!(sent > 300, "this machine is too busy: {sent}");
    assert!(arrived[..HONEST].iter().all(|&count| 5 * count >= 4 * sent), "{arrived:?} of {sent}");
    assert!(arrived[HONEST] <= 2 * sent, "{arrived:?} of {sent}");
}

#[test]
fn who_may_use_a_relay_and_what_it_may_reach_can_be_configured() {
    let allowed = ["--from", "127.0.0.1", "--forward-to", "127.0.0.0/8", "--listen", "127.0.0.1:0"];
    let mut relay = Running::start(&[&["relay", "--limit", "4 MB/s"][..], &allowed].concat());
    let at = relay.after(" on ").parse().unwrap();
    let (client, stranger, destination) = (socket("127.0.0.1:0"), socket("127.0.0.2:0"), socket("127.0.0.3:0"));
    let datagram = data(at, destination.local_addr().unwrap(), b"sealed");
    stranger.send_to(&datagram, at).unwrap();
    destination.recv_from(&mut [0; 2000]).unwrap_err();
    client.send_to(&datagram, at).unwrap();
    destination.recv_from(&mut [0; 2000]).unwrap();
    relay.interrupt();
    let (_, out, _) = relay.end();
    assert!(out.contains("forwarded 1 datagrams") && out.contains("1 of others than --from names"), "{out}");
}

#[test]
fn metrics_are_scraped_and_name_nobody() {
    let metrics = free();
    let arguments = ["relay", "--listen", "127.0.0.1:0", "--limit", "1 MB/s", "--metrics", &metrics.to_string()];
    let mut relay = Running::start(&arguments);
    let at = relay.after(" on ").parse().unwrap();
    let (source, destination) = (socket("127.0.0.5:0"), socket("127.0.0.6:0"));
    for _ in 0..3 {
        source.send_to(&data(at, destination.local_addr().unwrap(), b"sealed"), at).unwrap();
    }
    source.send_to(b"hello", at).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let page = loop {
        let page = scrape(metrics);
        if page.contains("discarded_datagrams_total{reason=\"foreign\"} 1") {
            break page;
        }
        assert!(Instant::now() < deadline, "{page}");
        std::thread::sleep(Duration::from_millis(50));
    };
    for line in [
        "anabranch_relay_limit_bytes_per_second 1000000.0",
        "anabranch_relay_received_datagrams_total 4",
        "anabranch_relay_forwarded_datagrams_total 3",
        "anabranch_relay_sent_datagrams_total 3",
    ] {
        assert!(page.lines().any(|found| found == line), "no {line} in {page}");
    }
    assert!(!page.contains("127.0.0"), "{page}");
    relay.interrupt();
    assert_eq!(relay.end().0, Some(0));
}

#[test]
fn strangers_cause_a_bounded_number_of_lines() {
    let began = Instant::now();
    let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0", "--limit", "1 MB/s", "--log", "debug"]);
    let at: SocketAddr = relay.after(" on ").parse().unwrap();
    let stranger = socket("127.0.0.1:0");
    let barred = data(at, "10.0.0.1:4000".parse().unwrap(), b"sealed");
    while began.elapsed() < Duration::from_millis(2_500) {
        for _ in 0..100 {
            stranger.send_to(b"junk", at).unwrap();
            stranger.send_to(&barred, at).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    relay.interrupt();
    let (_, out, err) = relay.end();
    let seconds = began.elapsed().as_secs() as usize + 1;
    // One at the start, then at most what was forwarded and what was discarded, each second.
    let lines = err.lines().count();
    assert!((2..=1 + 2 * seconds).contains(&lines), "{lines} lines in {seconds} s: {err}");
    assert!(err.contains("WARN discarded ") && err.contains(" foreign"), "{err}");
    assert!(!err.contains("10.0.0.1"), "{err}");
    assert!(out.contains("foreign"), "{out}");
}

#[test]
fn a_file_says_what_options_do_and_options_win() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/relay.toml");
    let metrics = free().to_string();
    let arguments = ["relay", "--config", example.to_str().unwrap(), "--listen", "127.0.0.1:0", "--metrics", &metrics];
    let mut relay = Running::start(&[&arguments[..], &["--log", "off"]].concat());
    assert!(relay.after("relaying up to 4000000 B/s on ").starts_with("127.0.0.1:"));
    assert!(scrape(metrics.parse().unwrap()).contains("limit_bytes_per_second 4000000.0"));
    relay.interrupt();
    let (code, _, err) = relay.end();
    assert_eq!((code, err.as_str()), (Some(0), ""), "nothing is logged");
}

#[test]
fn wrong_settings_are_refused_with_file_line_and_key() {
    let place = Place::new("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (text, more, expected) in [
        ("listen = \"127.0.0.1:0\"\nlimit = 4", &[][..], "r.toml:2:9: key `limit`: expected a text"),
        ("listen = \"127.0.0.1:0\"\nlimits = 4", &[], "r.toml:2:1: key `limits`: unknown key; did you mean `limit`?"),
        ("rendezvous = \"perhaps\"", &[], ":1:14: key `rendezvous`: \"perhaps\": expected one of on, off"),
        // What an option replaces is read all the same.
        ("listen = \"nowhere\"\nlimit = \"4 MB/s\"", &["--listen", "127.0.0.1:0"], ":1:10: key `listen`"),
        ("listen = \"127.0.0.1:0\"\nlimit = \"4 MB/s\"", &["--from", "10.0.0.1/8"], "expected 10.0.0.0/8"),
        ("listen = \"127.0.0.1:0\"\nlimit = \"4 MB/s\"", &["--metrics", &taken], "cannot serve metrics on"),
    ] {
        fs::write(place.path("r.toml"), text).unwrap();
        place.say(&[&["relay", "--config", "r.toml"][..], more].concat()).refuses(expected);
    }
    place.say(&["relay", "--config", "absent.toml"]).refuses("cannot read absent.toml");
    place.say(&["relay", "--rendezvous", "perhaps"]).refuses("[possible values: on, off]");
}

#[test]
fn what_a_relay_is_not_configured_with_has_a_usual_value() {
    let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0"]);
    let said = relay.after("relaying up to ");
    assert!(said.starts_with("12500000 B/s on 127.0.0.1:"), "100 Mbit/s: {said}");
    // Port 4000 may be taken by whoever else is on this machine; then it says so.
    let relay = Running::start(&["relay", "--limit", "4 MB/s"]);
    std::thread::sleep(Duration::from_millis(500));
    relay.interrupt();
    let (code, out, err) = relay.end();
    let listens = ["[::]:4000", "0.0.0.0:4000"].iter().any(|address| out.contains(address) || err.contains(address));
    assert!(listens && matches!(code, Some(0 | 2)), "{out} {err}");
}

#[test]
fn a_relay_that_offers_no_rendezvous_answers_nobody_who_wants_one() {
    let mut relay = Running::start(&["relay", "--listen", "127.0.0.1:0", "--rendezvous", "off"]);
    let at = relay.after(" on ");
    let place = Place::new("");
    place.say(&["receive", "7-crowfoot-orlando", "--relays", &at]).refuses("no rendezvous answers");
    relay.interrupt();
    let (code, out, _) = relay.end();
    assert!(code == Some(0) && out.contains("foreign"), "{out}");
}

#[test]
fn the_benchmark_of_relays_sends_a_file_and_splits_its_processor_time() {
    let place = Place::new("");
    let said = place.say(&["bench", "relays", "--bytes", "2000000", "--relays", "4", "--hops", "2", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let of = |key: &str| json[key].as_f64().unwrap_or_else(|| panic!("{key}: {json}"));
    let packets = of("packets");
    assert!(packets * 1400.0 > 2e6, "{json}");
    // Each of two relays passes on a packet and its ACK; packets and ACKs of which one is lost pass fewer.
    let passages = of("passages") / (packets - of("lost_packets"));
    assert!((3.9..8.0).contains(&passages), "{passages} passages for each packet: {json}");
    let parts = ["sender", "receiver", "relays", "files"].map(|part| of(&format!("{part}_us_per_packet")));
    assert!(parts.iter().all(|&part| part > 0.0), "{json}");
    let all = of("cpu_us_per_packet");
    assert!(all > 0.5 * parts.iter().sum::<f64>(), "{json}");
    assert!((of("ratio") * of("udp_us_per_packet") / all - 1.0).abs() < 1e-6, "{json}");
    place
        .say(&["bench", "relays", "--hops", "9"])
        .refuses("9 relays for each packet are asked for, but only 8 are known");
}
