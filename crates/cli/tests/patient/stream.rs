//! `anabranch stream`, as a user sees it: real processes over loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crate::common::Place;

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A process that is killed at the end. What it says on standard error is kept by the pipe, which holds some pages.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    words: BufReader<ChildStderr>,
}

impl Running {
    fn start(place: &Place, arguments: &[&str]) -> Running {
        let mut command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let words = BufReader::new(child.stderr.take().unwrap());
        Running { child, output, words }
    }

    /// Where it says that its page is.
    fn page(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with("page: ") {
            line.clear();
            assert!(self.words.read_line(&mut line).unwrap() > 0, "it says nothing of a page");
        }
        line.trim_start_matches("page: ").trim().to_owned()
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The first line for which `is_it`.
    fn until(&mut self, mut is_it: impl FnMut(&serde_json::Value) -> bool) -> serde_json::Value {
        let began = Instant::now();
        loop {
            let line = self.line();
            if is_it(&line) {
                return line;
            }
            assert!(began.elapsed() < LONG, "{line}");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves the clip that media's tests have, over and over.
fn serve(place: &Place) -> (Running, String, String) {
    serve_with(place, &[])
}

fn serve_with(place: &Place, options: &[&str]) -> (Running, String, String) {
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../media/tests/clip.ts");
    let arguments = ["stream", "serve", clip, "--loop", "--listen", "127.0.0.1:0", "--key", "key", "--http"];
    let mut server = Running::start(place, &[&arguments[..], &["127.0.0.1:0", "--json"], options].concat());
    let first = server.line();
    let text = |key: &str| first[key].as_str().unwrap().to_owned();
    (server, text("link"), text("page"))
}

/// The first bytes of what the HTTP server at `page` gives for `path`.
fn get(page: &str, path: &str, bytes: usize) -> Vec<u8> {
    let host = page.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.take(bytes as u64).read_to_end(&mut answer).unwrap();
    answer
}

/// Asks, and hangs up at once, so that the answer meets a reset.
fn hang_up(page: &str, path: &str) {
    let host = page.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &at_once).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    // An end before the reset: without one, the answer would not be what SIGPIPE is for.
    stream.shutdown(Shutdown::Write).unwrap();
}

#[test]
fn players_and_pages_that_hang_up_end_neither_server_nor_viewer() {
    let place = Place::new("");
    let (server, link, page) = serve(&place);
    let watch = ["stream", "watch", &link, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut viewer = Running::start(&place, &watch);
    let viewers = viewer.page();
    for (page, mut running) in [(page, server), (viewers, viewer)] {
        for _ in 0..10 {
            ["/stream.ts", "/events", "/api/overview", "/metrics"].iter().for_each(|path| hang_up(&page, path));
        }
        // They are answered before who asks next.
        assert_eq!(running.child.try_wait().unwrap(), None, "it goes on");
        assert!(get(&page, "/api/overview", 12).starts_with(b"HTTP/1.1 200"));
    }
}

/// What reads standard output stands still: no more goes there than a pipe and a queue hold, and nobody else waits.
#[test]
fn who_reads_standard_output_no_more_holds_up_neither_the_page_nor_the_end() {
    let place = Place::new("");
    let (_server, link, _) = serve(&place);
    let watch = ["stream", "watch", &link, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--output", "-"];
    let mut viewer = Running::start(&place, &watch);
    let page = viewer.page();
    let played = |page: &str| -> u64 {
        let answer = String::from_utf8(get(page, "/api/overview", 1 << 20)).unwrap();
        let body = answer.split_once("\r\n\r\n").expect(&answer).1;
        let overview: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        overview["here"]["played_packets"].as_u64().unwrap()
    };
    // More than a pipe holds, which is 64 KiB: 100 packets have 131 kB.
    let began = Instant::now();
    while played(&page) < 100 {
        assert!(began.elapsed() < LONG, "{} packets", played(&page));
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(played(&page) > 100, "it goes on");
    let id = viewer.child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let began = Instant::now();
    while viewer.child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < LONG, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Holds what was scraped to OpenMetrics: each family is described once, before its samples, whose names are its own
/// and whose values are numbers; nothing stands behind the end.
fn is_open_metrics(text: &str) {
    let (mut families, mut samples) = (Vec::new(), 0);
    let body = text.strip_suffix("# EOF\n").expect(text);
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind) && !families.contains(&(name, kind)), "{line}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            families.push((name, kind));
        } else if !line.starts_with("# HELP ") && !line.starts_with("# UNIT ") {
            let (name, value) = line.split_once(' ').unwrap();
            let (family, kind) = families.last().unwrap();
            let expected = if *kind == "counter" { format!("{family}_total") } else { (*family).to_owned() };
            assert_eq!(name, expected, "{line}");
            assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
            samples += 1;
        }
    }
    assert!(families.len() > 20 && samples == families.len(), "{text}");
}

#[test]
fn a_viewer_plays_and_reports_what_is_served() {
    let place = Place::new("");
    let (mut server, link, page) = serve(&place);
    let mut viewer = Running::start(
        &place,
        &["stream", "watch", &link, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"],
    );
    let live = viewer.until(|line| line["here"]["played_packets"].as_u64() > Some(200));
    assert_eq!((&live["role"], &live["here"]["state"]), (&"viewer".into(), &"live".into()));
    assert!(live["started_after_s"].is_number() && live["released"].is_array(), "{live}");
    let seen = server.until(|line| !line["overlay"]["clients"].as_array().unwrap().is_empty());
    assert_eq!(seen["overlay"]["trees"].as_array().unwrap().len(), 20);
    let overview = String::from_utf8(get(&page, "/api/overview", 1 << 20)).unwrap();
    assert!(overview.starts_with("HTTP/1.1 200") && overview.contains(&link), "{overview}");
    let metrics = String::from_utf8(get(&page, "/metrics", 1 << 20)).unwrap();
    is_open_metrics(metrics.split_once("\r\n\r\n").unwrap().1);
    for line in
        ["anabranch_stream_is_live 1.0", "anabranch_stream_sessions 1.0", "anabranch_stream_narrow_sessions 0.0"]
    {
        assert!(metrics.lines().any(|found| found == line), "no {line} in {metrics}");
    }
    // Players of the server's own machine get the transport stream.
    let stream = get(&page, "/stream.ts", 64 << 10);
    let body = stream.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(stream[body..].contains(&0x47) && stream.starts_with(b"HTTP/1.1 200"));
}

/// A viewer without a page.
fn watch(place: &Place, link: &str, options: &[&str]) -> Running {
    let arguments = ["stream", "watch", link, "--listen", "127.0.0.1:0", "--no-http", "--json"];
    Running::start(place, &[&arguments[..], options].concat())
}

/// Holds a viewer that nobody may know to it: over its whole life it has one session, with the server, and all that
/// came came from there; it passes nothing on, and was sent no other. Its number.
fn deals_with_the_server_alone(viewer: &mut Running) -> u64 {
    let mut met = Vec::new();
    let last = viewer.until(|line| {
        let here = &line["here"];
        let from_server = here["server_share"].as_f64().is_none_or(|share| share == 1.0);
        let is_fed_by_server = |feed: &serde_json::Value| feed["parent"].is_null();
        let children = here["children_by_slice"].as_array().unwrap();
        let is_alone = here["sessions"].as_u64().unwrap() <= 1
            && from_server
            && here["feeds"].as_array().unwrap().iter().all(is_fed_by_server)
            && children.iter().all(|to| to.as_array().unwrap().is_empty());
        if !is_alone {
            met.push(line.clone());
        }
        here["played_packets"].as_u64() > Some(150)
    });
    assert!(met.is_empty(), "{met:?}");
    assert_eq!((&last["here"]["is_private"], &last["here"]["server_share"]), (&true.into(), &1.0.into()), "{last}");
    last["here"]["client"].as_u64().unwrap()
}

#[test]
fn viewers_of_a_private_stream_meet_nobody_but_the_server() {
    let place = Place::new("");
    let (mut server, link, _) = serve_with(&place, &["--private"]);
    assert!(link.ends_with("/private"), "{link}");
    // Whether a viewer knows it from the link or from the server alone.
    let plain = link.trim_end_matches("/private");
    let mut viewers = [watch(&place, &link, &[]), watch(&place, plain, &[]), watch(&place, plain, &["--private"])];
    for viewer in &mut viewers {
        deals_with_the_server_alone(viewer);
    }
    let seen = server.until(|line| line["overlay"]["watching"] == 3);
    let clients = seen["overlay"]["clients"].as_array().unwrap();
    assert!(clients.iter().all(|client| client["is_private"] == true), "{seen}");
    assert_eq!(seen["stream"]["is_private"], true);
}

#[test]
fn a_viewer_that_asks_for_it_is_named_to_nobody_in_a_public_stream() {
    let place = Place::new("");
    let (_server, link, _) = serve_with(&place, &["--upload", "4 Mbit/s"]);
    let mut others: Vec<Running> = (0..4).map(|_| watch(&place, &link, &[])).collect();
    let mut shy = watch(&place, &link, &["--private"]);
    let number = deals_with_the_server_alone(&mut shy);
    for other in &mut others {
        let mut met = Vec::new();
        let last = other.until(|line| {
            let here = &line["here"];
            let feeds = here["feeds"].as_array().unwrap().iter().map(|feed| &feed["parent"]);
            let children = here["children_by_slice"].as_array().unwrap().iter();
            let mut named = feeds.chain(children.flat_map(|to| to.as_array().unwrap()));
            if named.any(|client| *client == number) {
                met.push(line.clone());
            }
            here["played_packets"].as_u64() > Some(150)
        });
        assert!(met.is_empty(), "{met:?}");
        assert_eq!(last["here"]["is_private"], false);
        // The server, and three others at most.
        assert!((2..=4).contains(&last["here"]["sessions"].as_u64().unwrap()), "{last}");
    }
}

/// What a viewer says on standard error until a line for which `is_it`.
fn says_until(viewer: &mut Running, is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let mut said = Vec::new();
    while !said.last().is_some_and(|line: &String| is_it(line)) {
        let mut line = String::new();
        assert!(viewer.words.read_line(&mut line).unwrap() > 0, "it ends after {said:?}");
        said.push(line.trim().to_owned());
    }
    said
}

#[test]
fn a_newcomer_for_whom_there_is_no_room_learns_so_and_plays_once_there_is() {
    const NO_ROOM: &str = "nobody has room to pass the stream on to another viewer";
    let place = Place::new("");
    // The clip has 84 kbit/s: the server can feed one viewer and a half, and viewers next to nobody.
    let (mut server, link, _) = serve_with(&place, &["--upload", "150 kbit/s"]);
    let poor = ["--upload", "10 kbit/s"];
    let mut first = watch(&place, &link, &poor);
    first.until(|line| line["here"]["played_packets"].as_u64() > Some(50));
    let mut second = watch(&place, &link, &poor);
    let line = second.until(|line| line["here"]["state"] == "overloaded");
    assert_eq!(line["here"]["detail"], format!("{NO_ROOM}; the server is asked again"), "{line}");
    assert_eq!(line["here"]["played_packets"], 0, "{line}");
    let said = says_until(&mut second, |line| line.contains("no") && line.contains("room"));
    assert_eq!(said.last().unwrap(), &format!("{NO_ROOM}; trying again"));
    assert!(!said.iter().any(|line| line.contains("lets this viewer in")), "{said:?}");
    let refused = |event: &serde_json::Value| event["text"].as_str().unwrap().contains("nobody has room");
    server.until(|line| line["overlay"]["events"].as_array().unwrap().iter().any(refused));
    // It has cost the first viewer nothing, and takes its place.
    let before = first.line();
    assert_eq!((&before["here"]["state"], &before["here"]["skipped_packets"]), (&"live".into(), &0.into()), "{before}");
    drop(first);
    says_until(&mut second, |line| line == "the server lets this viewer in");
    let live = second.until(|line| line["here"]["played_packets"].as_u64() > Some(100));
    assert_eq!((&live["here"]["state"], &live["here"]["skipped_packets"]), (&"live".into(), &0.into()), "{live}");
}

#[test]
fn who_looks_is_sent_all_and_who_does_not_costs_nothing() {
    let place = Place::new("");
    let (_server, link, _) = serve(&place);
    let mut other = watch(&place, &link, &[]);
    let watch = ["stream", "watch", &link, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut unseen = Running::start(&place, &watch);
    let page = unseen.page();
    let metrics = || String::from_utf8(get(&page, "/metrics", 1 << 20)).unwrap();
    let until = |what: &str, holds: &dyn Fn(&str) -> bool| {
        let began = Instant::now();
        while !holds(&metrics()) {
            assert!(began.elapsed() < LONG, "{what}: {}", metrics());
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    let played = |metrics: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix("anabranch_stream_played_packets_total "));
        line.and_then(|count| count.parse::<u64>().ok()).unwrap_or(0)
    };
    until("it plays", &|metrics| played(metrics) > 300);
    assert!(!metrics().contains("anabranch_stream_viewers"), "nobody has asked: {}", metrics());
    let host = page.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut events = TcpStream::connect(&host).unwrap();
    write!(events, "GET /events HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    until("the page is sent all", &|metrics| metrics.contains("anabranch_stream_viewers 2"));
    // Who reads its lines looks, too.
    let mut viewer = Running::start(&place, &[&watch[..], &["--json"]].concat());
    let line = viewer.until(|line| line["overlay"]["watching"] == 3 && line["overlay"]["savings"].is_number());
    let overlay = &line["overlay"];
    assert_eq!((&overlay["watching"], overlay["trees"].as_array().unwrap().len()), (&3.into(), 20), "{overlay}");
    assert!(overlay["delivered_bytes"].as_u64() > Some(0) && overlay["savings"].is_number(), "{overlay}");
    let kinds: Vec<_> = overlay["events"].as_array().unwrap().iter().map(|event| &event["kind"]).collect();
    assert!(kinds.contains(&&"joined".into()), "{overlay}");
    // Numbers alone: no address and no key of anybody.
    let text = overlay.to_string();
    assert!(!text.contains("127.0.0.1") && !text.contains("key"), "{text}");
    let blind = other.until(|line| line["here"]["played_packets"].as_u64() > Some(300));
    assert!(blind["overlay"].is_null(), "{blind}");
}

#[test]
fn who_does_not_read_what_a_server_prints_holds_up_no_viewer() {
    let place = Place::new("");
    // Its lines fill a pipe in some seconds.
    let (_server, link, _) = serve(&place);
    let mut viewer = watch(&place, &link, &[]);
    viewer.until(|line| line["uptime_s"].as_f64() > Some(30.0));
    let late = viewer.until(|line| line["here"]["played_packets"].as_u64() > Some(150));
    assert!(late["here"]["delay_s"].as_f64() < Some(10.0), "{late}");
}

#[test]
fn nobody_lies_to_a_stream_of_others() {
    let place = Place::new("");
    let link = format!("anabranch://{}@192.0.2.1:7443", "ab".repeat(32));
    for lie in ["poisoner", "free-rider", "dropper", "claimer"] {
        place.say(&["stream", "watch", &link, "--no-http", "--lie", lie]).refuses("this machine alone");
    }
    place.say(&["stream", "watch", &link, "--lie", "liar"]).refuses("poisoner");
    let help = place.say(&["stream", "watch", "--help"]);
    assert!(!help.stdout.contains("--lie"), "{}", help.stdout);
}

#[test]
fn what_goes_to_standard_output_is_a_transport_stream() {
    let place = Place::new("");
    let (_server, link, _) = serve(&place);
    let arguments = ["stream", "watch", &link, "--listen", "127.0.0.1:0", "--no-http", "--output", "-"];
    let mut viewer = Running::start(&place, &arguments);
    let mut bytes = vec![0; 188 * 200];
    viewer.output.read_exact(&mut bytes).unwrap();
    assert!(bytes.chunks(188).all(|packet| packet[0] == 0x47), "every packet begins with the sync byte");
}

#[test]
fn a_stream_keeps_its_key_and_a_link_with_another_one_is_not_believed() {
    let place = Place::new("");
    let (server, link, _) = serve(&place);
    let (key, address) = link.trim_start_matches("anabranch://").split_once('@').unwrap();
    let other = format!("anabranch://{}@{address}", "ab".repeat(32));
    let arguments = ["stream", "watch", &other, "--listen", "127.0.0.1:0", "--no-http", "--json"];
    let mut viewer = Running::start(&place, &arguments);
    let line = viewer.until(|line| line["here"]["state"] == "unreachable");
    assert!(line["here"]["detail"].as_str().unwrap().contains("another key"), "{line}");
    drop(server);
    let (_server, again, _) = serve(&place);
    assert!(again.contains(key), "{again} and {link}");
}

#[test]
fn a_file_that_is_over_ends_the_server_once_viewers_have_it() {
    let place = Place::new("");
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../media/tests/clip.ts");
    let options = ["--listen", "127.0.0.1:0", "--key", "key", "--http", "127.0.0.1:0", "--buffer", "1", "--json"];
    let mut server = Running::start(&place, &[&["stream", "serve", clip][..], &options].concat());
    let over = server.until(|line| line["input"]["detail"] == "the file is over");
    assert_eq!(over["input"]["received_bytes"].as_u64().unwrap(), std::fs::metadata(clip).unwrap().len());
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    std::fs::write(place.path("none.ts"), vec![b'x'; 100_000]).unwrap();
    let said = place.say(&[&["stream", "serve", "none.ts"][..], &options].concat());
    assert!(said.code == Some(2) && said.stderr.contains("transport stream"), "{said:?}");
}

#[test]
fn the_demo_serves_to_the_end_though_a_viewer_is_killed_and_one_lies() {
    let place = Place::new("");
    let demo = ["stream", "demo", "--clients", "5", "--kill", "1", "--seconds", "12", "--json", "--no-browser"];
    let said = place.say(&[&demo[..], &["--liars", "poisoner=1"]].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    assert_eq!((&json["clients"], &json["started"], &json["killed"]), (&5.into(), &5.into(), &1.into()));
    assert_eq!((&json["liars"], &json["browser_frames"]), (&1.into(), &serde_json::Value::Null));
    for key in ["savings_percent", "startup_p95_s", "latency_p95_s", "slices_back_p99_s", "overhead_percent"] {
        assert!(json[key].is_number(), "{key} in {json}");
    }
    // Each viewer gets each manifest once at least: 64 bytes, and 16 for each of some ten packets.
    assert!(json["overhead_manifests_percent"].as_f64().unwrap() > 1.0, "{json}");
    assert!(json["overhead_acks_percent"].as_f64().unwrap() > 1.0, "{json}");
    let kinds = json.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("overhead_"));
    let kinds = kinds.filter(|(name, _)| *name != "overhead_percent").map(|(_, percent)| percent.as_f64().unwrap());
    let (sum, all) = (kinds.sum::<f64>(), json["overhead_percent"].as_f64().unwrap());
    assert!((sum - all).abs() < 1e-6, "{sum} of {json}");
    assert!(json["delivered_percent"].as_f64().unwrap() > 90.0, "{json}");
    assert!(json["source_bytes"].as_u64().unwrap() > 2_000_000, "{json}");
    assert!(place.path("out/stream-demo/figures.json").is_file());
    let page = std::fs::read_to_string(place.path("out/stream-demo/report.html")).unwrap();
    assert!(page.contains("5 (1 killed, 1 lying)"), "{page}");
}

#[test]
fn wrong_input_is_refused_in_words() {
    let place = Place::new("");
    place.say(&["stream", "watch", "http://192.0.2.1/"]).refuses("anabranch://");
    place.say(&["stream", "watch", "anabranch://12@127.0.0.1:1"]).refuses("64 hexadecimal digits");
    place.say(&["stream", "serve", "missing.ts", "--key", "key"]).refuses("missing.ts");
    place.say(&["stream", "serve", "gopher://x", "--key", "key"]).refuses("--via-ffmpeg");
    place.say(&["stream", "serve", "-", "--slices", "65", "--key", "key"]).refuses("slices");
    place.say(&["stream", "serve", "-", "--controller", "cubik", "--key", "key"]).refuses("cubic");
    place.say(&["stream", "serve", "-", "--upload", "fast", "--key", "key"]).refuses("upload");
    place.say(&["stream", "demo", "--clients", "3", "--kill", "3"]).refuses("--kill 2");
    place.say(&["stream", "demo", "--clients", "5", "--kill", "1", "--liars", "dropper=4"]).refuses("--kill 0");
    place.say(&["stream", "demo", "--liars", "saint=1"]).refuses("poisoner");
    place.say(&["stream", "serve", "rtsp://127.0.0.1/x", "--key", "key"]).refuses("--via-ffmpeg");
    std::fs::write(place.path("bad"), "no key").unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(place.path("bad"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    place.say(&["stream", "serve", "-", "--key", "bad"]).refuses("holds no key");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    place.say(&["stream", "serve", "-", "--key", "key", "--listen", &address]).refuses("cannot listen");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["stream", "serve", "-", "--key", "key", "--listen", "127.0.0.1:0", "--http", &address];
    place.say(&arguments).refuses("players cannot be served at");
}
