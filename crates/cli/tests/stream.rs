//! `anabranch stream`, as a user sees it: real processes over loopback.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use common::Place;

/// How long anything may take on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A process that is killed at the end.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(place: &Place, arguments: &[&str]) -> Running {
        let mut command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).stdin(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    fn line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    /// The first line for which `is_it`.
    fn until(&mut self, is_it: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
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
    let clip = concat!(env!("CARGO_MANIFEST_DIR"), "/../media/tests/clip.ts");
    let arguments = ["stream", "serve", clip, "--loop", "--listen", "127.0.0.1:0", "--key", "key", "--http"];
    let mut server = Running::start(place, &[&arguments[..], &["127.0.0.1:0", "--json"]].concat());
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

#[test]
fn a_viewer_plays_and_tells_of_what_is_served() {
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
    // Players of the server's own machine get the transport stream.
    let stream = get(&page, "/stream.ts", 64 << 10);
    let body = stream.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(stream[body..].contains(&0x47) && stream.starts_with(b"HTTP/1.1 200"));
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
fn the_demo_serves_to_the_end_though_a_viewer_is_killed() {
    let place = Place::new("");
    let said = place.say(&["stream", "demo", "--clients", "4", "--kill", "1", "--seconds", "12", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    assert_eq!((&json["clients"], &json["started"], &json["killed"]), (&4.into(), &4.into(), &1.into()));
    for key in ["savings_percent", "startup_p95_s", "latency_p95_s", "slices_back_p99_s", "overhead_percent"] {
        assert!(json[key].is_number(), "{key} in {json}");
    }
    assert!(json["delivered_percent"].as_f64().unwrap() > 90.0, "{json}");
    assert!(json["source_bytes"].as_u64().unwrap() > 2_000_000, "{json}");
    assert!(place.path("out/stream-demo/figures.json").is_file());
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
    place.say(&["stream", "demo", "--clients", "3", "--kill", "3"]).refuses("at most 2");
    std::fs::write(place.path("bad"), "no key").unwrap();
    #[cfg(unix)]
    std::fs::set_permissions(place.path("bad"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    place.say(&["stream", "serve", "-", "--key", "bad"]).refuses("holds no key");
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    place.say(&["stream", "serve", "-", "--key", "key", "--listen", &address]).refuses("cannot listen");
}
