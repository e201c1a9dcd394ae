//! What an onion overlay on loopback tells those who look: metrics of all its parts and the user's page while packets
//! go through, and the report of a demo.

use super::*;

/// What is fetched, and as who.
const HOST: &str = "localhost";
const USER: &str = "alice-at-socks";
const PAGE: &[u8] = b"a page that nobody else has";

/// Fetches by SOCKS5 (RFC 1928, 1929) as [`USER`], by the site's name.
fn fetch_as_user(socks: &str, port: u16) -> std::io::Result<Vec<u8>> {
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
    stream.set_read_timeout(Some(PATIENCE))?;
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

#[test]
fn metrics_and_the_page_show_traffic_and_hold_no_target_and_no_user() {
    let start = |part: Part, _: &Path, arguments: &[&str]| {
        let more: &[&str] = match part {
            Part::Relay(_) => &["--metrics", "127.0.0.1:0"],
            Part::Proxy => &["--metrics", "127.0.0.1:0", "--page", "127.0.0.1:0"],
        };
        Process::start(&[arguments, more].concat())
    };
    let overlay = Overlay::start_with(180, 6, None, start, |path| (path == "/").then(|| PAGE.to_vec()));
    let page = overlay.proxy.line_where(|line| line.starts_with("page: http://"));
    let page = page["page: http://".len()..].trim_end_matches('/').to_owned();
    let proxy_metrics = overlay.proxy.metrics();
    let relay_metrics: Vec<String> = overlay.relays.iter().map(|relay| relay.process.metrics()).collect();
    let of_all = |texts: &[String], name: &str| texts.iter().map(|text| value(text, name)).sum::<f64>();
    let are_counted = |proxy: &str, relays: &[String]| {
        value(proxy, "anabranch_onion_proxy_opened_connections_total") >= 5.0
            && value(proxy, "anabranch_onion_proxy_answering_guards") == 2.0
            && of_all(relays, "anabranch_onion_relay_client_packets_total") > 5.0
            && of_all(relays, "anabranch_onion_relay_service_packets_total") > 5.0
            && of_all(relays, "anabranch_onion_relay_clients ") == 2.0
    };
    let begun = Instant::now();
    let (mut fetched, mut last) = (0, String::new());
    // Figures are renewed once a second, each part's at an instant of its own: there is traffic until all are of it.
    let (proxy, of_relays, overview) = loop {
        match fetch_as_user(&overlay.socks, overlay.site.port()) {
            Ok(response) => {
                assert!(response.ends_with(PAGE), "{}", String::from_utf8_lossy(&response));
                fetched += 1;
            }
            Err(why) => last = why.to_string(),
        }
        let proxy = get(&proxy_metrics, "/metrics").unwrap();
        let of_relays: Vec<String> = relay_metrics.iter().map(|at| get(at, "/metrics").unwrap()).collect();
        if fetched >= 5 && are_counted(&proxy, &of_relays) {
            break (proxy, of_relays, get(&page, "/api/overview").unwrap());
        }
        assert!(begun.elapsed() < PATIENCE, "{fetched} pages came, {last}: {proxy} {of_relays:?}");
        thread::sleep(Duration::from_millis(50));
    };
    let authority = get(&overlay.authorities[0].process.metrics(), "/metrics").unwrap();
    assert_eq!(value(&authority, "anabranch_onion_authority_listed_relays"), 6.0, "{authority}");
    assert!(value(&proxy, "anabranch_onion_proxy_received_packets_total") > 5.0, "{proxy}");
    // One relay is an exit, and has what all have.
    assert!(value(&of_relays[EXIT], "anabranch_onion_relay_service_packets_total") > 5.0, "{}", of_relays[EXIT]);
    // The page has what the metrics have, and more; of targets and users neither tells.
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
        for secret in [HOST, USER, &format!(":{}", overlay.site.port())] {
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
