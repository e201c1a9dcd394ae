//! The gateway to its clients: players, programs, browsers, and those who mean no good.

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anabranch_gateway::input::{Input, Source, SourceOptions};
use anabranch_gateway::outlet::{Outlet, OutletConfig};
use anabranch_gateway::server::{Bounds, StartError};
use anabranch_media::alignment::PACKET;
use anabranch_media::entry_points::{EntryPoints, Role};
use common::*;

/// A stream that has been there for a while and is over.
fn finished(rounds: usize) -> Outlet {
    let outlet = Outlet::new(OutletConfig { burst: Duration::ZERO, ..OutletConfig::default() });
    outlet.push(pieces(&film(rounds)));
    outlet.end();
    outlet
}

#[test]
fn every_path_answers_what_it_is_for() {
    let served = serve(&finished(2), None, short());
    for (path, code, expected) in [
        ("/", 200, ""),
        ("/stream.ts", 200, "content-type: video/mp2t"),
        ("/index.m3u8", 200, "\nsegments/0.ts\n"),
        ("/segments/0.ts", 200, "content-type: video/mp2t"),
        ("/segments/99.ts", 404, "not here"),
        ("/segments/x", 404, "numbers"),
        ("/segments/../../etc/passwd", 404, "nothing"),
        ("/assets/%2e%2e/README.md", 404, "nothing"),
        ("/api/overview", 200, "\"role\":\"server\""),
        ("/api/other", 404, "{\"error\":\""),
        ("/metrics", 200, "anabranch_gateway_players "),
        ("/ingest", 405, "method"),
        ("/other", 404, "nothing"),
    ] {
        let answer = served.get(path);
        assert_eq!(status(&answer), code, "{path}: {answer}");
        assert!(answer.contains(expected), "{path}: {answer}");
        assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("frame-ancestors 'none'"));
        assert!(!answer.contains("access-control-allow-origin"), "{path}: {answer}");
    }
    let answer =
        served.ask("PUT /ingest HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(status(&answer), 404, "no stream is taken here: {answer}");
}

#[test]
fn a_player_begins_with_the_tables_at_an_entry_point_and_gets_every_byte_to_the_end() {
    let outlet = Outlet::new(OutletConfig::default());
    let served = serve(&outlet, None, short());
    let film = film(3);
    let mut pieces = pieces(&film).into_iter();
    outlet.push(pieces.by_ref().take(30));
    let (head, mut body, mut stream) = served.open("/stream.ts");
    assert_eq!(status(&head), 200, "{head}");
    assert_eq!(outlet.players(), 1);
    outlet.push(pieces);
    outlet.end();
    stream.read_to_end(&mut body).unwrap();
    let mut entry_points = EntryPoints::default();
    let roles: Vec<Role> = body.as_chunks::<PACKET>().0.iter().map(|packet| entry_points.next(packet)).collect();
    assert_eq!(roles[..2], [Role::Table, Role::Table]);
    assert_eq!(roles.iter().find(|role| **role != Role::Table), Some(&Role::EntryPoint));
    assert!(film.ends_with(&body[2 * PACKET..]) && body.len() > film.len() / 2);
    until("the player's place is free", || outlet.players() == 0);
}

#[test]
fn a_player_that_stops_reading_is_closed_and_others_get_every_byte() {
    let outlet = Outlet::new(OutletConfig { burst: Duration::ZERO, ..OutletConfig::default() });
    let served = serve(&outlet, None, short());
    let round = film(20);
    outlet.push(pieces(&round));
    let (_, _, stopped) = served.open("/stream.ts");
    let (_, _, mut good) = served.open("/stream.ts");
    let is_over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&is_over);
    let reader = std::thread::spawn(move || {
        let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
        while !seen.load(Ordering::SeqCst) {
            match good.read(&mut buffer) {
                Ok(count) if count > 0 => bytes += count,
                end => panic!("a player that reads was closed after {bytes} bytes: {end:?}"),
            }
        }
    });
    // More than the system holds for one that does not read.
    let began = Instant::now();
    while outlet.players() > 1 {
        assert!(began.elapsed() < LONG, "the player that does not read is still there");
        outlet.push(pieces(&round));
        std::thread::sleep(Duration::from_millis(20));
    }
    is_over.store(true, Ordering::SeqCst);
    outlet.push(pieces(&round));
    reader.join().unwrap();
    let closed = served.metric("anabranch_gateway_stalled_connections_total")
        + served.metric("anabranch_gateway_slow_players_total");
    assert_eq!(closed, 1);
    drop(stopped);
}

#[test]
fn a_stream_that_has_not_begun_is_awaited_and_then_said_to_be_missing() {
    let outlet = Outlet::new(OutletConfig::default());
    let served = serve(&outlet, None, Bounds { first_picture: Duration::from_millis(300), ..short() });
    let answer = served.get("/stream.ts");
    assert_eq!(status(&answer), 503);
    assert!(answer.contains("no video has come yet") && answer.contains("retry-after: "), "{answer}");
    assert_eq!(status(&served.get("/index.m3u8")), 503);
    assert_eq!(outlet.players(), 0);
    drop(served);
    // It begins while a player waits.
    let served = serve(&outlet, None, Bounds { first_picture: LONG, ..short() });
    let late = outlet.clone();
    let push = std::thread::spawn(move || {
        until("a player waits", || late.players() == 1);
        late.push(pieces(CLIP));
        late.end();
    });
    assert_eq!(status(&served.open("/stream.ts").0), 200);
    push.join().unwrap();
}

#[test]
fn no_more_players_are_let_in_than_there_are_places() {
    let outlet = Outlet::new(OutletConfig::default());
    outlet.push(pieces(CLIP));
    let served = serve(&outlet, None, Bounds { players: 2, ..short() });
    let players = [served.open("/stream.ts"), served.open("/stream.ts")];
    let answer = served.get("/stream.ts");
    assert_eq!(status(&answer), 503);
    assert!(answer.contains("2 players"), "{answer}");
    assert_eq!(status(&served.get("/index.m3u8")), 200, "everything else is served");
    drop(players);
    // The server sees that they are gone when it sends to them.
    until("their places are free", || {
        outlet.push(pieces(CLIP));
        outlet.players() == 0
    });
    assert_eq!(status(&served.open("/stream.ts").0), 200);
}

#[test]
fn those_who_never_finish_a_request_are_closed_and_hold_up_nobody() {
    let served = serve(&finished(2), None, short());
    let mut slow: Vec<_> = (0..20).map(|_| served.connect()).collect();
    for stream in &mut slow[..10] {
        stream.write_all(b"GET /stream.ts HTTP/1.1\r\nHost: loc").unwrap();
    }
    assert_eq!(status(&served.get("/index.m3u8")), 200);
    for mut stream in slow {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "it is closed, not answered");
    }
}

const REQUEST: &[u8] = b"GET /index.m3u8 HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection over which something was asked, and is being answered.
fn asked(served: &Served) -> TcpStream {
    let mut asks = served.connect();
    asks.write_all(REQUEST).unwrap();
    asks.read_exact(&mut [0; 12]).unwrap();
    asks
}

#[test]
fn who_asks_is_answered_and_keeps_its_connection_however_many_others_ask_nothing() {
    let served = serve(&finished(2), None, Bounds { connections: 4, head: LONG, ..short() });
    let mut asks = asked(&served);
    let silent: Vec<_> = (0..40).map(|_| served.connect()).collect();
    assert_eq!(status(&served.get("/index.m3u8")), 200);
    asks.write_all(REQUEST).unwrap();
    let (mut answers, mut piece) = (Vec::new(), [0; 1000]);
    while !String::from_utf8_lossy(&answers).contains("HTTP/1.1 200") {
        let read = asks.read(&mut piece).unwrap();
        assert!(read > 0, "it is closed: {}", String::from_utf8_lossy(&answers));
        answers.extend_from_slice(&piece[..read]);
    }
    // Three have places; the fourth's is of who asked for this.
    until("the first were closed", || served.metric("anabranch_gateway_silent_connections_total") >= 37);
    drop(silent);
}

#[test]
fn who_asked_once_makes_room_for_those_who_ask_and_who_is_being_answered_does_not() {
    let outlet = Outlet::new(OutletConfig::default());
    outlet.push(pieces(CLIP));
    let served = serve(&outlet, None, Bounds { connections: 4, head: LONG, ..short() });
    let (_, _, mut player) = served.open("/stream.ts");
    let idle: Vec<_> = (0..40).map(|_| asked(&served)).collect();
    assert_eq!(status(&served.get("/index.m3u8")), 200);
    outlet.push(pieces(CLIP));
    outlet.end();
    let mut got = Vec::new();
    player.read_to_end(&mut got).unwrap();
    assert!(got.len() > CLIP.len(), "{} bytes: it was closed", got.len());
    drop(idle);
}

#[test]
fn an_address_has_so_many_connections_at_work_and_no_more() {
    let outlet = Outlet::new(OutletConfig::default());
    outlet.push(pieces(CLIP));
    let served = serve(&outlet, None, Bounds { connections_per_address: 3, head: LONG, ..short() });
    let players: Vec<_> = (0..3).map(|_| served.open("/stream.ts")).collect();
    assert_eq!(served.get("/index.m3u8"), "", "the fourth is closed");
    drop(players);
    until("another is let in", || served.get("/index.m3u8").starts_with("HTTP/1.1 200"));
    assert!(served.metric("anabranch_gateway_refused_connections_total") >= 1);
}

#[test]
fn connections_of_an_address_that_ask_nothing_make_room_for_its_next() {
    let served = serve(&finished(2), None, Bounds { connections_per_address: 3, head: LONG, ..short() });
    let mut held: Vec<_> = (0..9).map(|_| asked(&served)).collect();
    assert!(served.get("/index.m3u8").starts_with("HTTP/1.1 200"), "the tenth is let in");
    held[0].read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(served.metric("anabranch_gateway_refused_connections_total"), 0);
}

#[test]
fn a_connection_has_so_many_requests() {
    let served = serve(&finished(2), None, Bounds { requests_per_connection: 2, head: LONG, ..short() });
    let mut asks = asked(&served);
    let mut rest = Vec::new();
    asks.write_all(REQUEST).unwrap();
    asks.read_to_end(&mut rest).unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.contains("HTTP/1.1 200") && rest.contains("connection: close"), "closed after the second: {rest}");
}

#[test]
fn heads_that_are_too_long_or_nonsense_are_refused() {
    let served = serve(&finished(2), None, short());
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nA: {}\r\n\r\n", "x".repeat(20_000));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "A: b\r\n".repeat(100));
    for (request, codes) in [(long.as_str(), [431, 400]), (&many, [431, 400]), ("nonsense\r\n\r\n", [400, 400])] {
        let answer = served.ask(request);
        assert!(answer.is_empty() || codes.contains(&status(&answer)), "{answer}");
    }
    assert_eq!(status(&served.get("/")), 200, "and the next one is served");
}

#[test]
fn pages_of_other_sites_get_nothing_and_friends_get_to_read() {
    let outlet = Outlet::new(OutletConfig::default());
    let (input, _cuts) = Input::start(Source::Ingest, &SourceOptions::default()).unwrap();
    let served = serve(&outlet, Some(input.handle()), short());
    let ask = |method, path, fields: &str| {
        served.ask(&format!("{method} {path} HTTP/1.1\r\n{fields}Connection: close\r\nContent-Length: 0\r\n\r\n"))
    };
    for path in ["/", "/stream.ts", "/api/overview", "/events", "/metrics", "/segments/0.ts"] {
        assert_eq!(status(&ask("GET", path, "Host: evil.example\r\n")), 403, "{path}");
        assert_eq!(status(&ask("GET", path, "Host: localhost\r\nOrigin: https://evil.example\r\n")), 403, "{path}");
        assert_eq!(status(&ask("GET", path, "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n")), 403, "{path}");
    }
    let answer = ask("GET", "/api/overview", "Host: evil.example\r\n");
    assert!(answer.contains("{\"error\":\"the name "), "{answer}");
    let own =
        ["Host: localhost\r\nOrigin: https://evil.example\r\n", "Host: localhost\r\nSec-Fetch-Site: same-site\r\n"];
    for fields in own {
        assert_eq!(status(&ask("POST", "/ingest", fields)), 403, "nor put in a stream");
    }
    let friend = "Host: localhost\r\nOrigin: https://friend.example\r\nSec-Fetch-Site: cross-site\r\n";
    let answer = ask("GET", "/api/overview", friend);
    assert_eq!(status(&answer), 200);
    assert!(answer.contains("access-control-allow-origin: https://friend.example"), "{answer}");
    let answer = ask("OPTIONS", "/stream.ts", &format!("{friend}Access-Control-Request-Method: GET\r\n"));
    assert!(status(&answer) == 204 && answer.contains("access-control-allow-methods: GET, HEAD"), "{answer}");
    assert_eq!(status(&ask("POST", "/ingest", friend)), 403, "friends read and do not write");
}

#[test]
fn the_peer_is_asked_once_a_second_while_somebody_listens_and_never_else() {
    let live = Live::clip();
    let served = &live.served;
    until("video comes", || live.outlet.buffered().is_some());
    assert_eq!(served.asked.load(Ordering::SeqCst), 0, "nobody has asked");
    let listen = || {
        let (head, _, stream) = served.open("/events");
        assert!(status(&head) == 200 && head.contains("content-type: text/event-stream"), "{head}");
        stream
    };
    let began = Instant::now();
    let mut listeners = [listen(), listen(), listen()];
    for stream in &mut listeners {
        let mut text = String::new();
        while text.matches("event: overview\n").count() < 3 || !text.ends_with("\n\n") {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "it goes on: {text}");
            text.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
        }
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let overview: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(overview["stream"]["has_video"], true, "what the gateway knows: {data}");
        assert_eq!(overview["input"]["state"], "receiving");
        assert!(overview["here"]["buffered_s"].is_number() && overview["overlay"].is_null());
    }
    let (asked, passed) = (served.asked.load(Ordering::SeqCst), began.elapsed());
    assert!(
        asked >= 3 && asked <= passed.as_millis() as u64 / 900 + 1,
        "{asked} times in {passed:?} for three listeners"
    );
    drop(listeners);
    until("nobody is asked any more", || {
        let before = served.asked.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2500));
        served.asked.load(Ordering::SeqCst) == before
    });
}

/// A request of a body that is said to be longer than what comes.
fn put(served: &Served, fields: &str, body: &[u8]) -> std::net::TcpStream {
    let mut stream = served.connect();
    write!(stream, "PUT /ingest HTTP/1.1\r\nHost: localhost\r\n{fields}Content-Length: 1000000\r\n\r\n").unwrap();
    let _ = stream.write_all(body);
    stream
}

fn answer(mut stream: std::net::TcpStream) -> String {
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn one_stream_is_put_in_at_a_time_and_what_is_wrong_with_it_is_said() {
    let outlet = Outlet::new(OutletConfig::default());
    let (input, mut cuts) = Input::start(Source::Ingest, &SourceOptions::default()).unwrap();
    // The second is to come before the first has stalled.
    let served = serve(&outlet, Some(input.handle()), Bounds { ingest: Duration::from_secs(5), ..short() });
    assert!(input.status().get().detail.unwrap().contains("waiting for a stream at /ingest"));

    let first = put(&served, "", CLIP);
    until("the first is received", || input.status().get().received_bytes == CLIP.len() as u64);
    let second = answer(put(&served, "", &[]));
    assert!(status(&second) == 409 && second.contains("one at a time"), "{second}");
    let first = answer(first);
    assert!(status(&first) == 408 && first.contains("nothing has come for 5 s"), "{first}");
    assert_eq!(input.status().get().state, anabranch_gateway::overview::InputState::Waiting);

    let garbage = answer(put(&served, "", &[b'x'; 200_000]));
    assert!(status(&garbage) == 415 && garbage.contains("no MPEG transport stream"), "{garbage}");
    // Something was put in before: what is empty is refused all the same.
    let empty = served.ask("PUT /ingest HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert!(status(&empty) == 415 && empty.contains("no MPEG transport stream"), "{empty}");
    drop(put(&served, "", &CLIP[..1000]));
    until("one that breaks off is told", || input.status().get().detail.unwrap_or_default().contains("broke off"));
    assert_eq!(input.status().get().restarts, 3);

    let mut stream = served.connect();
    let head = format!(
        "POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        CLIP.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(CLIP).unwrap();
    assert_eq!(status(&answer(stream)), 200);
    let mut bytes = Vec::new();
    while let Ok(cut) = cuts.try_recv() {
        bytes.extend_from_slice(&cut.bytes);
    }
    assert!(bytes.starts_with(CLIP) && bytes.ends_with(CLIP), "nothing that was put in is lost");
}

#[test]
fn only_who_knows_the_token_puts_in_a_stream() {
    let outlet = Outlet::new(OutletConfig::default());
    let options = SourceOptions { ingest_token: Some("open sesame".into()), ..SourceOptions::default() };
    let (input, _cuts) = Input::start(Source::Ingest, &options).unwrap();
    let served = serve(&outlet, Some(input.handle()), short());
    for fields in ["", "Authorization: Bearer open\r\n", "Authorization: Basic open sesame\r\n"] {
        let answer = answer(put(&served, fields, &[]));
        assert!(status(&answer) == 401 && answer.contains("www-authenticate: Bearer"), "{fields}: {answer}");
    }
    let answer = answer(put(&served, "Authorization: Bearer open sesame\r\n", CLIP));
    assert_eq!(status(&answer), 408, "it was taken, and did not end: {answer}");
}

#[test]
fn a_stream_is_not_taken_from_everybody() {
    let outlet = Outlet::new(OutletConfig::default());
    let (input, _cuts) = Input::start(Source::Ingest, &SourceOptions::default()).unwrap();
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    let refused = try_serve(listener, &outlet, Some(input.handle()), short()).err().unwrap();
    assert!(matches!(refused, StartError::OpenIngest(_)) && refused.to_string().contains("token"), "{refused}");
}

#[test]
fn segments_of_a_finished_stream_are_all_of_it() {
    let served = serve(&finished(2), None, short());
    let text = served.get("/index.m3u8");
    let text = text.split("\r\n\r\n").nth(1).unwrap();
    let Ok((_, playlist)) = m3u8_rs::parse_media_playlist(text.as_bytes()) else { panic!("{text}") };
    assert!(playlist.end_list && playlist.independent_segments && !text.contains("DISCONTINUITY"), "{text}");
    let seconds: f32 = playlist.segments.iter().map(|segment| segment.duration).sum();
    assert!((5.5..6.5).contains(&seconds), "{seconds} of six");
    for segment in &playlist.segments {
        assert!(segment.duration <= playlist.target_duration as f32 + 0.5);
        let (head, mut body, mut stream) = served.open(&format!("/{}", segment.uri));
        stream.read_to_end(&mut body).unwrap();
        assert!(status(&head) == 200 && body.len() > PACKET && body.len() % PACKET == 0, "{head}");
    }
}
