//! Players and encoders as people have them: ffmpeg, ffprobe and mpv. What is not installed is skipped, with a word.

mod common;

use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch_gateway::input::{Source, SourceOptions};
use anabranch_gateway::overview::InputState;
use anabranch_gateway::server::Bounds;
use anabranch_media::pattern;
use common::{LONG, Live, until};

/// A program that is ended when this is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> Program {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Program(command.spawn().unwrap())
}

/// Runs to its end, or is ended when it takes too long.
fn output(program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Program(command.spawn().unwrap());
    let stdout = read(child.0.stdout.take().unwrap());
    let stderr = read(child.0.stderr.take().unwrap());
    let mut status = None;
    until(&format!("{program} {arguments:?} ends"), || {
        status = child.0.try_wait().unwrap();
        status.is_some()
    });
    Output { status: status.unwrap(), stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

fn read(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        bytes
    })
}

/// A picture of moving things with sound, as a small encoder would send it: a keyframe a second.
const PICTURE: [&str; 24] = [
    "-nostdin",
    "-loglevel",
    "error",
    "-re",
    "-f",
    "lavfi",
    "-i",
    "testsrc2=size=320x180:rate=25",
    "-f",
    "lavfi",
    "-i",
    "sine=frequency=440",
    "-c:v",
    "libx264",
    "-preset",
    "ultrafast",
    "-tune",
    "zerolatency",
    "-g",
    "25",
    "-c:a",
    "aac",
    "-f",
    "mpegts",
];

fn encode(to: &[&str]) -> Program {
    run("ffmpeg", &[&PICTURE[..], to].concat())
}

/// How many pictures a player gets that reads for some seconds, and what it complained of.
fn frames(url: &str, seconds: &str) -> (u64, String) {
    let arguments = [
        "-v",
        "warning",
        "-count_frames",
        "-select_streams",
        "v:0",
        "-read_intervals",
        seconds,
        "-show_entries",
        "stream=nb_read_frames",
        "-of",
        "csv=p=0",
        url,
    ];
    let output = output("ffprobe", &arguments);
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let count = text.lines().find_map(|line| line.trim().trim_end_matches(',').parse().ok());
    (count.unwrap_or_else(|| panic!("{text} {errors}")), errors.into_owned())
}

/// How long ffmpeg takes to its first picture, as `ffplay` would: it probes with its defaults.
fn first_picture(url: &str) -> Duration {
    let began = Instant::now();
    let output =
        output("ffmpeg", &["-nostdin", "-v", "error", "-i", url, "-map", "0:v:0", "-frames:v", "1", "-f", "null", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    began.elapsed()
}

fn receives(live: &Live) {
    let status = live.input.as_ref().unwrap().status();
    until("the encoder's stream is received", || status.get().state == InputState::Receiving);
    until("a player would get a burst", || {
        live.outlet.buffered().is_some_and(|buffered| buffered >= Duration::from_secs(3))
    });
    assert_eq!((status.get().skipped_bytes, status.get().detail), (0, None));
}

/// Whoever reads gets what was sent: `/stream.ts` and the segments, from a burst on.
fn plays(live: &Live, name: &str) {
    let url = live.served.url("/stream.ts");
    let took = first_picture(&url);
    let (count, errors) = frames(&url, "%+4");
    println!("{name}: first picture after {} ms by default ffmpeg, {count} frames in 4 s", took.as_millis());
    assert!((90..=115).contains(&count), "{count} frames in 4 s of 25 a second: {errors}");
    assert!(errors.is_empty(), "a stream from its entry point on needs no excuse: {errors}");
}

#[test]
fn ffmpeg_puts_in_a_stream_and_players_get_it() {
    if !is_installed("ffmpeg") || !is_installed("ffprobe") {
        return;
    }
    let live = Live::start(Source::Ingest, &SourceOptions::default(), Bounds::default());
    let url = live.served.url("/ingest");
    let encoder = encode(&["-method", "PUT", &url]);
    receives(&live);
    plays(&live, "PUT");
    let second = output("ffmpeg", &[&PICTURE[..], &["-t", "5", "-method", "PUT", &url]].concat());
    assert!(!second.status.success(), "a second encoder is refused");
    plays(&live, "PUT, after a second encoder was refused");
    drop(encoder);
    let status = live.input.as_ref().unwrap().status();
    until("its end is told", || status.get().state == InputState::Waiting);
    // The next has other streams.
    let _encoder = encode(&["-mpegts_start_pid", "0x200", "-mpegts_pmt_start_pid", "0x1200", "-method", "PUT", &url]);
    until("it is told", || status.get().detail.unwrap_or_default().contains("the programme has changed"));
    until("its segments are in the list", || {
        let playlist = live.served.get("/index.m3u8");
        playlist.split("#EXT-X-DISCONTINUITY\n").nth(1).is_some_and(|rest| rest.contains("#EXTINF"))
    });
    until("a player begins with it", || {
        live.outlet.buffered().is_some_and(|buffered| buffered >= Duration::from_secs(3))
    });
    std::thread::sleep(Duration::from_secs(4));
    plays(&live, "PUT, of another programme");
}

fn receives_again(live: &Live) {
    let status = live.input.as_ref().unwrap().status();
    until("the next encoder is received", || status.get().state == InputState::Receiving);
    assert_eq!(status.get().skipped_bytes, 0);
}

#[test]
fn ffmpeg_sends_datagrams_and_players_get_them() {
    if !is_installed("ffmpeg") || !is_installed("ffprobe") {
        return;
    }
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let source = Source::parse(&format!("udp://{free}"), false).unwrap();
    let live = Live::start(source, &SourceOptions::default(), Bounds::default());
    let _encoder = encode(&[&format!("udp://{free}?pkt_size=1316")]);
    receives(&live);
    plays(&live, "UDP");
}

#[test]
fn ffmpeg_calls_by_srt_and_players_get_it() {
    if !is_installed("ffmpeg") || !is_installed("ffprobe") {
        return;
    }
    if !String::from_utf8_lossy(&output("ffmpeg", &["-hide_banner", "-protocols"]).stdout).contains(" srt\n") {
        return println!("skipped: this ffmpeg has no SRT");
    }
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let source = Source::parse(&format!("srt://127.0.0.1:{port}"), false).unwrap();
    let live = Live::start(source, &SourceOptions::default(), Bounds::default());
    let status = live.input.as_ref().unwrap().status();
    let call = || {
        let mut encoder = encode(&[&format!("srt://127.0.0.1:{port}?pkt_size=1316")]);
        until("somebody is heard", || {
            // One that called before anybody waited has given up.
            if encoder.0.try_wait().unwrap().is_some() {
                encoder = encode(&[&format!("srt://127.0.0.1:{port}?pkt_size=1316")]);
            }
            status.get().state == InputState::Receiving
        });
        encoder
    };
    let encoder = call();
    receives(&live);
    plays(&live, "SRT");
    drop(encoder);
    until("its end is told", || status.get().state != InputState::Receiving);
    let _encoder = call();
}

#[test]
fn a_url_that_ffmpeg_serves_is_read_and_players_get_it() {
    if !is_installed("ffmpeg") || !is_installed("ffprobe") {
        return;
    }
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let url = format!("http://{free}/live.ts");
    let live = Live::start(Source::parse(&url, false).unwrap(), &SourceOptions::default(), Bounds::default());
    let status = live.input.as_ref().unwrap().status();
    until("nobody answers", || status.get().detail.unwrap_or_default().contains("asked again"));
    let encoder = encode(&["-listen", "1", &url]);
    receives(&live);
    plays(&live, "URL");
    drop(encoder);
    until("its end is told", || status.get().detail.unwrap_or_default().contains("asked again"));
    let _encoder = encode(&["-listen", "1", &url]);
    receives_again(&live);
    assert!(status.get().restarts >= 1);
}

#[test]
fn what_ffmpeg_reads_is_passed_on_and_its_death_is_reported() {
    if !is_installed("ffmpeg") || !is_installed("ffprobe") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("clip.mkv");
    let path = path.to_str().unwrap();
    let made = output("ffmpeg", &["-nostdin", "-v", "error", "-i", common::CLIP_PATH, "-c", "copy", path]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let live = Live::start(Source::parse(path, true).unwrap(), &SourceOptions::default(), Bounds::default());
    let status = live.input.as_ref().unwrap().status();
    until("it is received", || status.get().state == InputState::Receiving);
    until("its end is told", || status.get().detail.as_deref() == Some("the file is over"));
    assert_eq!((status.get().state, status.get().restarts), (InputState::Waiting, 0));
    let once = status.get().received_bytes;
    drop(live);

    let options = SourceOptions { is_looped: true, ..SourceOptions::default() };
    let live = Live::start(Source::parse(path, true).unwrap(), &options, Bounds::default());
    let status = live.input.as_ref().unwrap().status();
    until("it goes on behind its end", || status.get().received_bytes > once * 3 / 2);
    assert_eq!((status.get().state, status.get().restarts), (InputState::Receiving, 0));
    drop(live);

    let live = Live::start(Source::parse("/nowhere.mkv", true).unwrap(), &SourceOptions::default(), Bounds::default());
    let status = live.input.as_ref().unwrap().status();
    until("its last words are told", || status.get().detail.unwrap_or_default().contains("No such file"));
    assert_eq!(status.get().state, InputState::Failed);
}

#[test]
fn a_repeated_clip_plays_without_a_complaint_as_a_stream_and_in_segments() {
    if !is_installed("ffprobe") || !is_installed("ffmpeg") {
        return;
    }
    let live = Live::clip();
    receives(&live);
    let url = live.served.url("/stream.ts");
    let (count, errors) = frames(&url, "%+8");
    println!("file: first picture after {} ms by default ffmpeg", first_picture(&url).as_millis());
    // Ten pictures a second.
    assert!((75..=90).contains(&count), "{count}: {errors}");
    assert!(errors.is_empty(), "the clip's joints are not seen: {errors}");
    until("there are segments", || live.served.get("/index.m3u8").matches("#EXTINF").count() >= 4);
    let (count, errors) = frames(&live.served.url("/index.m3u8"), "%+6");
    assert!((50..=75).contains(&count), "{count}: {errors}");
    assert!(errors.is_empty(), "{errors}");
}

/// How late ffmpeg shows each of this many pictures, by what is in their pixels.
fn delays(url: &str, count: u32) -> Vec<Duration> {
    const SIZE: (usize, usize) = (320, 192);
    let output = ["-fps_mode", "passthrough", "-pix_fmt", "gray", "-f", "rawvideo", "-"];
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "error", "-rw_timeout", "30000000", "-i", url]).args(output);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut player = Program(command.spawn().unwrap());
    let mut stdout = player.0.stdout.take().unwrap();
    let (mut luma, mut last) = (vec![0; SIZE.0 * SIZE.1], None);
    let next = |_| {
        stdout.read_exact(&mut luma).unwrap();
        let counter = pattern::read(&luma, SIZE.0, SIZE.1).expect("its squares are read");
        let before = last.replace(counter.frame);
        assert!(before.is_none_or(|before| before + 1 == counter.frame), "{before:?}, then {}", counter.frame);
        counter.age(SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
    };
    (0..count).map(next).collect()
}

#[test]
fn a_test_picture_measures_how_late_a_player_shows_it() {
    if !is_installed("ffmpeg") || !is_installed("ffprobe") {
        return;
    }
    let source = Source::parse("pattern:2Mbit/s", false).unwrap();
    let live = Live::start(source, &SourceOptions::default(), Bounds::default());
    receives(&live);
    plays(&live, "test picture");
    let delays = delays(&live.served.url("/stream.ts"), 150);
    let (first, last) = (delays[0], *delays.last().unwrap());
    println!("test picture: the first is shown {} ms late, the last {} ms", first.as_millis(), last.as_millis());
    // It begins with a burst of three seconds and more, and shows what comes as soon as it is there.
    assert!(first > Duration::from_secs(3) && first < LONG, "{first:?}");
    assert!(last < first, "{last:?} after {first:?}: ffmpeg plays as fast as it gets pictures");
}

#[test]
fn segments_play_to_the_end_of_a_finished_stream() {
    if !is_installed("ffprobe") {
        return;
    }
    let live = Live::start(Source::File(common::CLIP_PATH.into()), &SourceOptions::default(), Bounds::default());
    until("the file is over", || live.served.get("/index.m3u8").contains("#EXT-X-ENDLIST"));
    let (count, errors) = frames(&live.served.url("/index.m3u8"), "%+60");
    let (expected, _) = frames(common::CLIP_PATH, "%+60");
    assert_eq!(count, expected, "{errors}");
}

#[test]
fn the_page_plays_in_a_browser_within_its_policy() {
    if !is_installed("chromium") {
        return;
    }
    let live = Live::clip();
    receives(&live);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new("chromium");
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
    command.args([
        "--autoplay-policy=no-user-gesture-required",
        "--enable-logging=stderr",
        "--remote-debugging-port=0",
    ]);
    command.arg(format!("--user-data-dir={}", folder.path().join("profile").display())).arg(live.served.url("/"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log).unwrap());
    let browser = Program(command.spawn().unwrap());
    until("the page reads the stream", || live.outlet.players() == 1);
    until("it listens to events", || live.served.asked.load(std::sync::atomic::Ordering::SeqCst) >= 5);
    // Its burst is no more than four seconds of three.
    let much = 3 * common::CLIP.len() as u64;
    until("it goes on to read", || live.served.metric("anabranch_gateway_sent_bytes_total") > much);
    assert_eq!(
        (live.outlet.players(), live.served.metric("anabranch_gateway_players_begun_total")),
        (1, 1),
        "it plays without a break"
    );
    drop(browser);
    let log = std::fs::read_to_string(log).unwrap();
    for complaint in ["Content Security Policy", "Uncaught", "Failed to load"] {
        assert!(!log.contains(complaint), "{log}");
    }
}

#[test]
fn mpv_shows_a_picture_soon_and_goes_on() {
    if !is_installed("mpv") {
        return;
    }
    let live = Live::clip();
    receives(&live);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("mpv");
    let began = Instant::now();
    let arguments = ["--no-config", "--vo=null", "--ao=null", "--no-terminal", "--idle=no"];
    let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
    arguments.extend([format!("--input-ipc-server={}", socket.display()), live.served.url("/stream.ts")]);
    let _mpv = run("mpv", &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut connected = None;
    until("mpv runs", || {
        connected = UnixStream::connect(&socket).ok();
        connected.is_some()
    });
    let mut mpv = connected.unwrap();
    mpv.set_read_timeout(Some(LONG)).unwrap();
    mpv.write_all(b"{\"command\": [\"observe_property\", 1, \"time-pos\"]}\n").unwrap();
    let mut first = None;
    for line in BufReader::new(mpv).lines() {
        let event: serde_json::Value = serde_json::from_str(&line.expect("mpv goes on")).unwrap();
        assert_ne!(event["event"], "end-file", "mpv goes on: {event}");
        let Some(time) = event["data"].as_f64().filter(|_| event["event"] == "property-change") else { continue };
        let (begin, took) = *first.get_or_insert_with(|| (time, began.elapsed()));
        // Beyond the burst that it began with.
        if time >= begin + 7.0 {
            println!("mpv: plays {} ms after it was started", took.as_millis());
            return;
        }
    }
    panic!("mpv ended");
}
