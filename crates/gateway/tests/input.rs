//! Sources that go wrong in every way: each is reported in words, and tried again where that may help.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc as channel;
use std::time::{Duration, Instant};

use anabranch_gateway::input::{Datagrams, Input, Source, SourceOptions, Status};
use anabranch_gateway::overview::InputState;
use anabranch_media::clock::{MediaClock, Tick};
use anabranch_media::cutter::Cut;
use common::{CLIP, CLIP_PATH, LONG, until};
use tokio::sync::mpsc::Receiver;

/// A server that does to each connection what it is given to do.
struct Server {
    address: SocketAddr,
    orders: channel::Sender<Box<dyn FnOnce(TcpStream) + Send>>,
}

impl Server {
    fn start() -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (orders, todo) = channel::channel::<Box<dyn FnOnce(TcpStream) + Send>>();
        std::thread::spawn(move || {
            for order in todo {
                let (mut stream, _) = listener.accept().unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    if stream.read_exact(&mut byte).is_err() {
                        break;
                    }
                    head.push(byte[0]);
                }
                order(stream);
            }
        });
        Server { address, orders }
    }

    fn then(&self, order: impl FnOnce(TcpStream) + Send + 'static) -> &Server {
        self.orders.send(Box::new(order)).unwrap();
        self
    }

    fn answer(&self, head: &'static str, body: &'static [u8]) -> &Server {
        self.then(move |mut stream| {
            let _ = write!(stream, "HTTP/1.1 {head}\r\n\r\n");
            let _ = stream.write_all(body);
        })
    }

    fn source(&self) -> Source {
        Source::parse(&format!("http://{}/live/stream.ts", self.address), false).unwrap()
    }
}

fn start(source: Source) -> (Input, Receiver<Cut>, Status) {
    let options = SourceOptions { stall: Duration::from_millis(500), ..SourceOptions::default() };
    let (input, cuts) = Input::start(source, &options).unwrap();
    let status = input.status();
    (input, cuts, status)
}

fn until_status(status: &Status, state: InputState, words: &str) {
    until(words, || {
        let input = status.get();
        input.state == state && input.detail.unwrap_or_default().contains(words)
    });
}

fn received(cuts: &mut Receiver<Cut>, count: usize) -> Vec<u8> {
    let (began, mut bytes) = (Instant::now(), Vec::new());
    while bytes.len() < count {
        assert!(began.elapsed() < LONG, "{} bytes of {count}", bytes.len());
        match cuts.try_recv() {
            Ok(cut) => bytes.extend_from_slice(&cut.bytes),
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    bytes
}

#[test]
fn a_server_that_breaks_off_is_asked_again_and_nothing_that_came_is_lost() {
    let server = Server::start();
    server.answer("200 OK", CLIP).answer("200 OK", CLIP);
    let (_input, mut cuts, status) = start(server.source());
    assert_eq!(received(&mut cuts, 2 * CLIP.len()), [CLIP, CLIP].concat());
    until_status(&status, InputState::Waiting, "the source is over; it is asked again in");
    assert_eq!((status.get().restarts, status.get().skipped_bytes), (1, 0));
    assert!(status.get().source.ends_with("/live/stream.ts"));
}

#[test]
fn a_server_that_stalls_is_left_and_asked_again() {
    let server = Server::start();
    let (hold, held) = channel::channel::<()>();
    server
        .then(move |mut stream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\n");
            let _ = stream.write_all(CLIP);
            // Until the reader has gone.
            let _ = stream.read(&mut [0]);
            drop(held);
        })
        .answer("200 OK", CLIP);
    let (_input, mut cuts, status) = start(server.source());
    until_status(&status, InputState::Waiting, "nothing has come for 0.5 s; it is asked again");
    assert_eq!(received(&mut cuts, 2 * CLIP.len()).len(), 2 * CLIP.len());
    drop(hold);
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    for (head, body, state, words) in [
        ("404 Not Found", &b""[..], InputState::Failed, "the server answers 404 Not Found"),
        ("503 Busy", b"", InputState::Waiting, "the server answers 503"),
        ("200 OK", &[b'x'; 100_000], InputState::Failed, "no MPEG transport stream"),
        ("200 OK", b"<html>no video</html>", InputState::Failed, "there is no MPEG transport stream in it"),
        ("200 OK\r\nContent-Type: application/vnd.apple.mpegURL", b"#EXTM3U", InputState::Failed, "playlist"),
        ("302 Found\r\nLocation: ftp://other/", b"", InputState::Failed, "\"ftp://other/\""),
        ("nonsense", b"", InputState::Waiting, "no HTTP as expected"),
    ] {
        let server = Server::start();
        server.answer(head, body);
        let (_input, _cuts, status) = start(server.source());
        until_status(&status, state, words);
    }
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (_input, _cuts, status) = start(Source::parse(&format!("http://{nobody}/"), false).unwrap());
    until_status(&status, InputState::Waiting, "cannot be reached");
}

#[test]
fn a_server_may_send_elsewhere_but_not_in_circles() {
    let (server, other) = (Server::start(), Server::start());
    let location = format!("302 Found\r\nLocation: http://{}/x\r\nContent-Length: 0", other.address);
    server.answer(location.leak(), b"");
    other.answer("200 OK", CLIP);
    let (_input, mut cuts, _) = start(server.source());
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP);

    let circle = Server::start();
    for _ in 0..6 {
        circle.answer("302 Found\r\nLocation: again\r\nContent-Length: 0", b"");
    }
    let (_input, _cuts, status) = start(circle.source());
    until_status(&status, InputState::Failed, "elsewhere more than 5 times");
}

#[test]
fn datagrams_of_one_sender_are_a_stream_and_silence_is_reported() {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let (_input, mut cuts, status) = start(Source::parse(&format!("udp://{free}"), false).unwrap());
    until_status(&status, InputState::Waiting, "nothing has come yet");
    let [sender, other] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let send = |socket: &UdpSocket| {
        for datagram in CLIP.chunks(1316) {
            socket.send_to(datagram, free).unwrap();
        }
    };
    sender.send_to(&CLIP[..1316], free).unwrap();
    until("the first is heard", || status.get().received_bytes == 1316);
    other.send_to(&[b'x'; 1000], free).unwrap();
    for datagram in CLIP[1316..].chunks(1316) {
        sender.send_to(datagram, free).unwrap();
    }
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP, "nobody speaks in between");
    until_status(&status, InputState::Waiting, "nothing has come for 0.5 s");
    send(&other);
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP, "another is heard after silence");
    assert_eq!((status.get().restarts, status.get().skipped_bytes), (1, 0));

    let datagrams = Datagrams { address: free, interface: None };
    let taken = Input::start(Source::Udp(datagrams), &SourceOptions::default()).err().unwrap();
    assert!(taken.to_string().contains(&format!("udp://{free}")), "{taken}");
}

/// A source of datagrams that waits as long as by default, and where they go to.
fn datagrams() -> (Input, Receiver<Cut>, SocketAddr) {
    let free = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let source = Source::parse(&format!("udp://{free}"), false).unwrap();
    let (input, cuts) = Input::start(source, &SourceOptions::default()).unwrap();
    (input, cuts, free)
}

/// Sends `bytes` from a socket of its own, which is kept.
fn send_all(bytes: &[u8], to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for datagram in bytes.chunks(1316) {
        socket.send_to(datagram, to).unwrap();
    }
    socket
}

#[test]
fn whoever_sends_no_transport_stream_holds_no_source_of_datagrams() {
    let (input, mut cuts, to) = datagrams();
    let status = input.status();
    let stranger = send_all(&[0; 1000], to);
    until_status(&status, InputState::Waiting, "is no MPEG transport stream");
    send_all(CLIP, to);
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP);
    assert_eq!(status.get().skipped_bytes, 0);
    drop(input);

    // Nor does who goes on with something else.
    let (input, mut cuts, to) = datagrams();
    let status = input.status();
    let sender = send_all(&CLIP[..1316], to);
    until("it is heard", || status.get().received_bytes == 1316);
    for _ in 0..80 {
        sender.send_to(&[0; 1000], to).unwrap();
    }
    until("it is let go", || status.get().detail.is_some_and(|words| words.contains("no MPEG transport stream")));
    while cuts.try_recv().is_ok() {}
    stranger.send_to(&[0; 1000], to).unwrap();
    send_all(CLIP, to);
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP, "another is heard at once, from its beginning");
    assert_eq!(status.get().restarts, 1);
}

#[test]
fn an_encoder_that_is_started_again_takes_its_place_after_a_second() {
    let (input, mut cuts, to) = datagrams();
    let _old = send_all(&CLIP[..1316 * 10], to);
    assert_eq!(received(&mut cuts, 1316 * 10), &CLIP[..1316 * 10]);
    let began = Instant::now();
    // What comes before its time is not taken.
    let new = send_all(&CLIP[..1316], to);
    std::thread::sleep(Duration::from_millis(1200));
    for datagram in CLIP.chunks(1316) {
        new.send_to(datagram, to).unwrap();
    }
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP, "it begins anew");
    assert!(began.elapsed() < SourceOptions::default().stall / 2, "{:?}", began.elapsed());
    assert_eq!((input.status().get().restarts, input.status().get().skipped_bytes), (1, 0));
}

#[test]
fn datagrams_to_a_group_are_received() {
    let sender = socket2::Socket::from(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    // They do not leave this machine.
    sender.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap();
    sender.set_multicast_ttl_v4(0).unwrap();
    let free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap().local_addr().unwrap().port();
    let source = Source::parse(&format!("udp://@239.255.77.1:{free}?localaddr=127.0.0.1"), false).unwrap();
    let (_input, mut cuts, _) = start(source);
    let group: SocketAddr = (Ipv4Addr::new(239, 255, 77, 1), free).into();
    for datagram in CLIP.chunks(1316) {
        sender.send_to(datagram, &group.into()).unwrap();
    }
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP);
}

#[test]
fn a_file_is_played_by_its_clock_again_and_again() {
    let options = SourceOptions { is_looped: true, ..SourceOptions::default() };
    let (input, mut cuts) = Input::start(Source::File(CLIP_PATH.into()), &options).unwrap();
    let (mut clock, began) = (MediaClock::default(), Instant::now());
    let bytes = received(&mut cuts, CLIP.len() * 3 / 2);
    let took = began.elapsed();
    for packet in bytes.as_chunks().0 {
        assert!(!matches!(clock.next(packet), Some(Tick::Jump(_))), "it is one stream");
    }
    assert!(
        clock.elapsed() > Duration::from_secs(4) && took + Duration::from_millis(500) > clock.elapsed(),
        "{took:?}"
    );
    drop(input);
    until("the cuts end with the input", || {
        matches!(cuts.try_recv(), Err(tokio::sync::mpsc::error::TryRecvError::Disconnected))
    });
}

#[test]
fn a_test_picture_comes_when_it_is_due_at_the_rate_that_was_asked_for() {
    let (_input, mut cuts, status) = start(Source::parse("pattern:2M,fps=50,keyframes=10", false).unwrap());
    let (began, mut clock) = (Instant::now(), MediaClock::default());
    // Two seconds, to a packet.
    let bytes = received(&mut cuts, 500_000 / 188 * 188);
    let took = began.elapsed();
    for packet in bytes.as_chunks().0 {
        assert!(!matches!(clock.next(packet), Some(Tick::Jump(_))), "it is one stream");
    }
    let lasts = clock.elapsed();
    assert!((1.95..2.0).contains(&lasts.as_secs_f64()), "{lasts:?} of 2 Mbit/s in 500 kB");
    assert!(took + Duration::from_millis(200) > lasts, "{took:?}: it came before it was due");
    let input = status.get();
    assert_eq!((input.state, input.skipped_bytes, input.restarts), (InputState::Receiving, 0, 0));
}

#[test]
fn a_file_ends_once_it_is_over_and_one_that_is_none_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short.ts");
    std::fs::write(&short, &CLIP[..CLIP.len() / 4]).unwrap();
    let (_input, mut cuts, status) = start(Source::File(short));
    until_status(&status, InputState::Waiting, "the file is over");
    assert_eq!(received(&mut cuts, CLIP.len() / 4 / 188 * 188), &CLIP[..CLIP.len() / 4 / 188 * 188]);

    for (name, bytes, words) in [
        ("text", vec![b'x'; 100_000], "no MPEG transport stream"),
        ("empty", vec![], "--via-ffmpeg"),
        (
            "clockless",
            [0x47, 0x1f, 0xff, 0x10].into_iter().chain([0xff; 184]).collect::<Vec<u8>>().repeat(50_000),
            "no programme clock",
        ),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let (_input, mut cuts, status) = start(Source::File(path));
        let mut is_over = || loop {
            match cuts.try_recv() {
                Ok(_) => {}
                Err(error) => return error == tokio::sync::mpsc::error::TryRecvError::Disconnected,
            }
        };
        until("the cuts end", &mut is_over);
        until_status(&status, InputState::Failed, words);
    }
    for path in [folder.path().join("missing"), folder.path().to_owned()] {
        let error = Input::start(Source::File(path.clone()), &SourceOptions::default()).err().unwrap();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}

/// Whether `begin` is over soon, or waits.
fn is_soon<T: Send + 'static>(begin: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, over) = channel::channel();
    std::thread::spawn(move || done.send(begin()));
    over.recv_timeout(LONG).expect("it waits")
}

#[test]
fn what_is_no_regular_file_is_read_as_it_comes_and_nobody_waits_for_its_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let source = Source::File(path.clone());
    let (input, mut cuts, status) = is_soon(move || start(source));
    until_status(&status, InputState::Waiting, "nothing has come yet");
    std::fs::write(&path, CLIP).unwrap();
    assert_eq!(received(&mut cuts, CLIP.len()), CLIP);
    until_status(&status, InputState::Waiting, "the source is over");
    drop(input);

    // Whoever gives it up meanwhile does not wait for a writer either.
    let source = Source::File(path.clone());
    is_soon(move || drop(start(source)));

    let looped = SourceOptions { is_looped: true, ..SourceOptions::default() };
    let error = Input::start(Source::File(path), &looped).err().unwrap();
    assert!(error.to_string().contains("leave --loop out"), "{error}");
}

#[test]
fn what_a_program_in_ffmpegs_place_leaves_running_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ffmpeg");
    // What goes on holds its standard error.
    std::fs::write(&program, "#!/bin/sh\nsleep 20 >/dev/null &\necho cannot read >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let options = SourceOptions { ffmpeg: program, ..SourceOptions::default() };
    let began = Instant::now();
    let (input, _cuts) = Input::start(Source::parse("x", true).unwrap(), &options).unwrap();
    until_status(&input.status(), InputState::Failed, "ffmpeg ended (exit status: 1): cannot read");
    drop(input);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_missing_ffmpeg_and_its_last_words_are_reported() {
    let options = SourceOptions { ffmpeg: "/nowhere/ffmpeg".into(), ..SourceOptions::default() };
    let (input, _cuts) = Input::start(Source::parse("x", true).unwrap(), &options).unwrap();
    until_status(&input.status(), InputState::Failed, "there is no program /nowhere/ffmpeg");

    // What stands in for it says what it was asked to read.
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ffmpeg");
    std::fs::write(&program, "#!/bin/sh\necho cannot read \"$@\" >&2\nexit 7\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let options = SourceOptions { ffmpeg: program, ..SourceOptions::default() };
    let source = Source::parse("rtsp://me:secret@camera/1?key=hidden", true).unwrap();
    let (input, _cuts) = Input::start(source, &options).unwrap();
    until_status(&input.status(), InputState::Failed, "ffmpeg ended (exit status: 7): cannot read");
    let words = format!("{:?}", input.status().get());
    assert!(
        words.contains("rtsp://***@camera/1?***") && !words.contains("secret") && !words.contains("hidden"),
        "{words}"
    );
    until("it is run again", || input.status().get().restarts >= 1);
}
