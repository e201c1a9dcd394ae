//! What an onion overlay on loopback tells those who look: metrics of all its parts and the user's page while packets
//! go through, and the report of a demo.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// What is fetched, and as who.
const HOST: &str = "localhost";
const USER: &str = "alice-at-socks";
const PAGE: &[u8] = b"a page that nobody else has";

/// Longer than anything here takes, on a machine that does much else.
const LONG: Duration = Duration::from_secs(120);

/// A process that ends with this value.
struct Part(Child);

impl Part {
    fn start(arguments: &[&str]) -> Part {
        let mut command = Command::new(BINARY);
        command.arg("onion").args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Part(command.spawn().unwrap())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An address of `network` at which nothing listens now.
fn free(network: u8) -> SocketAddr {
    UdpSocket::bind(SocketAddr::from(([127, 1, network, 1], 0))).and_then(|socket| socket.local_addr()).unwrap()
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).unwrap().to_string()
}

/// An epoch's length with which one begins in some seconds, and the next in a quarter of an hour or more.
fn epoch_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let all = (now + 8..now + 60).flat_map(|at| (900..7200).map(move |length| (at, length)));
    all.filter(|(at, length)| at % length == 0).map(|(_, length)| length).next().unwrap()
}

fn serve_site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", PAGE.len());
            let _ = stream.write_all(&[head.as_bytes(), PAGE].concat());
        }
    });
    address
}

/// Fetches by SOCKS5 (RFC 1928, 1929) as [`USER`], by the site's name.
fn fetch(socks: &str, port: u16) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(socks)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(&[5, 1, 2])?;
    let mut two = [0; 2];
    stream.read_exact(&mut two)?;
    stream.write_all(&[&[1, USER.len() as u8], USER.as_bytes(), &[1, b'x']].concat())?;
    stream.read_exact(&mut two)?;
    stream.write_all(&[&[5, 1, 0, 3, HOST.len() as u8], HOST.as_bytes(), &port.to_be_bytes()].concat())?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    if answer[1] != 0 {
        return Err(std::io::Error::other("refused"));
    }
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    Ok(response)
}

fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    body.ok_or_else(|| std::io::Error::other("no answer"))
}

/// The value of a metric, summed over what it is of.
fn value(text: &str, name: &str) -> f64 {
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn state(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn metrics_and_the_page_show_traffic_and_hold_no_target_and_no_user() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let site = serve_site();
    let network = state(folder, "network.toml");
    let authority_state = state(folder, "authority");
    let key = Command::new(BINARY).args(["onion", "authority", "--state", &authority_state]).output().unwrap();
    let key = String::from_utf8_lossy(&key.stdout).trim().to_owned();
    let authority_at = TcpListener::bind("127.1.1.1:0").and_then(|listener| listener.local_addr()).unwrap();
    let file = format!(
        "threshold = 1\nepoch_s = {}\nround_s = 0.5\n[[authority]]\nkey = \"{key}\"\naddress = \"{authority_at}\"\n",
        epoch_s()
    );
    fs::write(&network, file).unwrap();
    let [authority_metrics, proxy_metrics, page, socks] = std::array::from_fn(|_| free_port());
    let mut parts = vec![Part::start(&[
        "authority",
        "--network",
        &network,
        "--state",
        &authority_state,
        "--metrics",
        &authority_metrics,
    ])];
    let mut relays = Vec::new();
    for number in 0..6u8 {
        let (listen, metrics) = (free(100 + number).to_string(), free_port());
        let (state, allow) = (state(folder, &format!("relay-{number}")), site.to_string());
        let mut arguments = vec!["relay", "--network", &network, "--state", &state, "--listen", &listen];
        arguments.extend(["--metrics", &metrics]);
        if number == 5 {
            arguments.extend(["--allow", &allow]);
        }
        parts.push(Part::start(&arguments));
        relays.push(metrics);
    }
    let proxy_state = state(folder, "proxy");
    let mut arguments = vec!["proxy", "--network", &network, "--state", &proxy_state, "--socks", &socks];
    arguments.extend(["--metrics", &proxy_metrics, "--page", &page]);
    parts.push(Part::start(&arguments));
    let begun = Instant::now();
    let mut fetched = 0;
    // Until some pages have come, and a second later figures are of all of them.
    while fetched < 5 {
        assert!(begun.elapsed() < LONG, "{fetched} pages came");
        match fetch(&socks, site.port()) {
            Ok(response) => {
                assert!(response.ends_with(PAGE));
                fetched += 1;
            }
            Err(_) => thread::sleep(Duration::from_millis(300)),
        }
    }
    let (mut proxy, mut of_relays) = (String::new(), Vec::new());
    // Figures are renewed once a second, each part's at an instant of its own.
    let of_all = |texts: &[String], name: &str| texts.iter().map(|text| value(text, name)).sum::<f64>();
    let are_counted = |proxy: &str, relays: &[String]| {
        value(proxy, "anabranch_onion_proxy_opened_connections_total") >= 5.0
            && of_all(relays, "anabranch_onion_relay_client_packets_total") > 5.0
            && of_all(relays, "anabranch_onion_relay_service_packets_total") > 5.0
            && of_all(relays, "anabranch_onion_relay_clients ") == 2.0
    };
    while !are_counted(&proxy, &of_relays) {
        assert!(begun.elapsed() < LONG, "{proxy} {of_relays:?}");
        // There is always traffic while somebody scrapes.
        fetch(&socks, site.port()).unwrap();
        proxy = get(&proxy_metrics, "/metrics").unwrap();
        of_relays = relays.iter().map(|metrics| get(metrics, "/metrics").unwrap()).collect();
    }
    let authority = get(&authority_metrics, "/metrics").unwrap();
    assert_eq!(value(&authority, "anabranch_onion_authority_listed_relays"), 6.0, "{authority}");
    assert!(value(&proxy, "anabranch_onion_proxy_received_packets_total") > 5.0, "{proxy}");
    assert_eq!(value(&proxy, "anabranch_onion_proxy_answering_guards"), 2.0, "{proxy}");
    // One relay is an exit, and has what all have.
    assert!(value(&of_relays[5], "anabranch_onion_relay_service_packets_total") > 5.0, "{}", of_relays[5]);
    // The page has what the metrics have, and more; of targets and users neither tells.
    let overview = get(&page, "/api/overview").unwrap();
    let shown: serde_json::Value = serde_json::from_str(&overview).unwrap();
    assert!(shown["network"]["relays"] == 6 && shown["network"]["exits"] == 1, "{shown}");
    let guards = shown["guards"].as_array().unwrap();
    assert!(guards.len() == 2 && guards.iter().all(|guard| guard["answers"] == true), "{shown}");
    assert!(guards.iter().all(|guard| guard["age_s"].as_u64().is_some_and(|age| age < 600)), "{shown}");
    assert!(guards.iter().map(|guard| guard["received"].as_u64().unwrap()).sum::<u64>() > 5, "{shown}");
    assert!(shown["round_trip"]["median_s"].as_f64().is_some_and(|median| median > 0.0), "{shown}");
    let places = shown["places"].as_array().unwrap();
    assert_eq!(places.len(), 4, "{shown}");
    assert!(
        places.iter().all(|place| (0.0..=2.6).contains(&place["bits"].as_f64().unwrap())),
        "of six relays nothing has more than log2 6 bits: {shown}"
    );
    let given: f64 = shown["relays"].as_array().unwrap().iter().filter_map(|relay| relay["given"].as_f64()).sum();
    assert!((given - 1.0).abs() < 1e-6, "{shown}");
    let all = of_relays.iter().chain([&authority, &proxy]);
    for text in all.clone().chain([&overview]) {
        for secret in [HOST, USER, &format!(":{}", site.port())] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
    for text in all {
        let mut words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && !".:[]".contains(letter));
        let is_address = |word: &str| word.parse::<SocketAddr>().is_ok() || word.parse::<std::net::IpAddr>().is_ok();
        assert!(!words.any(is_address), "an address in {text}");
    }
    // The same figures stand at the page's own path.
    assert!(get(&page, "/metrics").unwrap().contains("anabranch_onion_proxy_sent_packets_total"));
}

#[test]
fn the_report_of_a_demo_says_of_each_relay_what_it_noted_itself() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let output = Command::new(BINARY)
        .args(["onion", "demo", "--relays", "8", "--megabytes", "1", "--json", "--out"])
        .arg(&out)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let measured: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = fs::read_to_string(out.join("report.html")).unwrap();
    // What it does not protect against comes first, with c and n.
    let first = report.split("<p>").nth(1).unwrap();
    assert!(first.starts_with("An overlay does not hide its user") && first.contains("c of these 8 relays"), "{first}");
    // Each relay has a part of its own, and says what its own counts say.
    let parts: Vec<&str> = report.split("<details>").skip(1).collect();
    assert_eq!(parts.len(), 8);
    for (number, (part, knew)) in parts.iter().zip(measured["knew"].as_array().unwrap()).enumerate() {
        assert!(part.contains(&format!("<summary>relay {number}, ")), "{part}");
        let (to_clients, delivered) = (knew["to_clients"].as_u64().unwrap(), knew["delivered"].as_u64().unwrap());
        assert_eq!(part.contains("a client at 127."), to_clients > 0, "relay {number}: {part}");
        assert_eq!(part.contains("its own exit"), delivered > 0, "relay {number}: {part}");
        assert!(!(part.contains("a client at") && part.contains("its own exit")), "nobody knows both ends: {part}");
    }
}

#[test]
fn a_relay_that_others_could_use_notes_nothing_and_begins_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (network, notes) = (folder.path().join("network.toml"), folder.path().join("notes"));
    let state = folder.path().join("state");
    let key = "07".repeat(32);
    fs::write(&network, format!("[[authority]]\nkey = \"{key}\"\naddress = \"192.0.2.1:7\"\n")).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["onion", "relay", "--listen", "127.0.0.1:0", "--network"]).arg(&network).arg("--state").arg(&state);
    let output = command.arg("--observe").arg(&notes).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("for demonstrations on one machine alone: 192.0.2.1:7 is no loopback"), "{stderr}");
    assert!(!notes.exists() && !state.exists());
}
