//! Datagrams of programs, by UDP ASSOCIATE, over relays and an exit, to servers on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anabranch_onion::session::MOST_DATAGRAM;
use fast_socks5::client::Socks5Datagram;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::programs::{LOOPBACK, with_proxy};

/// So long an answer is waited for before the question is sent once more: datagrams get lost.
const AGAIN: Duration = Duration::from_millis(500);

/// So long something is waited for that must not come.
const QUIET: Duration = Duration::from_secs(2);

/// A server that sends back what it gets, with its mark in front; where it is, and how many datagrams have come.
async fn echo(mark: u8) -> (SocketAddr, Arc<AtomicU64>) {
    let socket = UdpSocket::bind(LOOPBACK).await.unwrap();
    let (address, count) = (socket.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let counted = count.clone();
    tokio::spawn(async move {
        let mut buffer = [0; 2000];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = socket.send_to(&[&[mark], &buffer[..length]].concat(), from).await;
        }
    });
    (address, count)
}

/// The same program as every other, by a client that is not ours.
async fn associate(proxy: SocketAddr, user: Option<&str>) -> Socks5Datagram<TcpStream> {
    let (control, socket) = (TcpStream::connect(proxy).await.unwrap(), UdpSocket::bind(LOOPBACK).await.unwrap());
    match user {
        None => Socks5Datagram::use_socket(control, socket).await.unwrap(),
        Some(user) => Socks5Datagram::use_socket_with_password(control, socket, user, "x").await.unwrap(),
    }
}

/// Asks until there is an answer that bears the target's `mark`; who it is from, as the program is told.
async fn ask(program: &Socks5Datagram<TcpStream>, target: (&str, u16), mark: u8, question: &[u8]) -> (String, Vec<u8>) {
    let mut buffer = [0; 2000];
    loop {
        program.send_to(question, target).await.unwrap();
        let Ok(came) = timeout(AGAIN, program.recv_from(&mut buffer)).await else { continue };
        let (length, from) = came.unwrap();
        // Else it is an answer to a question before this one, which was asked again: of another, or by another.
        if buffer[0] == mark && buffer[1..length] == *question {
            return (from.to_string(), buffer[..length].to_vec());
        }
    }
}

/// Whether nothing comes.
async fn is_quiet(program: &Socks5Datagram<TcpStream>) -> bool {
    timeout(QUIET, program.recv_from(&mut [0; 2000])).await.is_err()
}

#[test]
fn datagrams_of_any_length_go_to_several_targets_and_answers_say_whose_they_are() {
    // The rule names the address alone: the exit finds it by the name.
    let ((), sessions) = with_proxy(&["127.0.0.1:*/udp"], 180, |proxy| async move {
        let ((one, _), (two, _)) = (echo(1).await, echo(2).await);
        let program = associate(proxy, None).await;
        let text = one.to_string();
        for length in [0, 1, 500, 1200, MOST_DATAGRAM - 1] {
            let question: Vec<u8> = (0..length).map(|place| (place * 3) as u8).collect();
            let (from, answer) = ask(&program, ("127.0.0.1", one.port()), 1, &question).await;
            assert_eq!((&from, answer[0], answer.len()), (&text, 1, length + 1));
            let (from, answer) = ask(&program, ("localhost", two.port()), 2, &question).await;
            assert_eq!((from, answer[0]), (format!("localhost:{}", two.port()), 2), "as the program has named it");
        }
    });
    assert_eq!(sessions, 1);
}

#[test]
fn an_exit_sends_no_datagram_that_no_rule_allows() {
    with_proxy(&["*:*", "*:1-65534/udp", "127.0.0.1:*"], 195, |proxy| async move {
        let (server, count) = echo(1).await;
        let program = associate(proxy, None).await;
        // Loopback is allowed for TCP alone, and by the rule for all addresses it is not allowed at all.
        for target in ["localhost", "127.0.0.1"] {
            for _ in 0..3 {
                program.send_to(b"let me in", (target, server.port())).await.unwrap();
            }
        }
        assert!(is_quiet(&program).await && count.load(Ordering::Relaxed) == 0);
    });
}

#[test]
fn users_share_no_session_and_hear_nothing_of_each_other() {
    let ((), sessions) = with_proxy(&["127.0.0.1:*/udp"], 210, |proxy| async move {
        let (server, _) = echo(1).await;
        let mut programs = Vec::new();
        for user in [Some("anna"), Some("bert"), None] {
            programs.push(associate(proxy, user).await);
        }
        for (number, program) in programs.iter().enumerate() {
            ask(program, ("127.0.0.1", server.port()), 1, &[number as u8; 9]).await;
        }
        // What comes late is an answer to oneself.
        for (number, program) in programs.iter().enumerate() {
            let mut buffer = [0; 2000];
            while let Ok(came) = timeout(AGAIN, program.recv_from(&mut buffer)).await {
                assert_eq!(buffer[1..came.unwrap().0], [number as u8; 9]);
            }
        }
        // Whoever does not own an association, but sits at the same host, does not speak in it.
        let stranger = UdpSocket::bind(LOOPBACK).await.unwrap();
        let to = [&[0, 0, 0, 1, 127, 0, 0, 1], &server.port().to_be_bytes()[..], b"stranger"].concat();
        let relay = programs[0].proxy_addr().unwrap().to_string();
        stranger.send_to(&to, relay).await.unwrap();
        assert!(timeout(QUIET, stranger.recv_from(&mut [0; 100])).await.is_err() && is_quiet(&programs[0]).await);
    });
    assert_eq!(sessions, 3);
}

#[test]
fn a_flood_of_datagrams_takes_nothing_from_others_and_ends_with_its_association() {
    with_proxy(&["127.0.0.1:*/udp"], 225, |proxy| async move {
        let ((flooded, count), (other, _)) = (echo(1).await, echo(2).await);
        let (flooder, program) = (associate(proxy, Some("anna")).await, associate(proxy, Some("bert")).await);
        let flood = async {
            // Some hundred times what leaves, and to many targets at which nobody listens.
            for number in 0..60_000u32 {
                let port = if number % 2 == 0 { flooded.port() } else { 20_000 + (number / 2 % 400) as u16 };
                let _ = flooder.send_to(&[number as u8; 1000], ("127.0.0.1", port)).await;
                if number % 256 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let begun = Instant::now();
        let asked = async {
            for number in 0..5 {
                ask(&program, ("127.0.0.1", other.port()), 2, &[number; 50]).await;
            }
        };
        tokio::join!(flood, asked);
        println!("{} of 30 000 have come, five questions took {:?}", count.load(Ordering::Relaxed), begun.elapsed());
        // Those may be answered before the first of the flood is.
        while count.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(AGAIN).await;
        }
        drop(flooder);
        ask(&program, ("127.0.0.1", other.port()), 2, b"still there").await;
    });
}

#[test]
fn an_association_ends_with_the_connection_that_asked_for_it() {
    with_proxy(&["127.0.0.1:*/udp"], 240, |proxy| async move {
        let (server, count) = echo(1).await;
        let mut control = TcpStream::connect(proxy).await.unwrap();
        control.write_all(&[5, 1, 0]).await.unwrap();
        control.read_exact(&mut [0; 2]).await.unwrap();
        let program = UdpSocket::bind(LOOPBACK).await.unwrap();
        let port = program.local_addr().unwrap().port().to_be_bytes();
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, port[0], port[1]]).await.unwrap();
        let mut reply = [0; 10];
        control.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[..8], [5, 0, 0, 1, 127, 0, 0, 1]);
        let relay = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([reply[8], reply[9]])));
        let question = [&[0, 0, 0, 1, 127, 0, 0, 1], &server.port().to_be_bytes()[..], b"?"].concat();
        let mut buffer = [0; 100];
        loop {
            program.send_to(&question, relay).await.unwrap();
            if let Ok(came) = timeout(AGAIN, program.recv_from(&mut buffer)).await {
                assert_eq!(buffer[..came.unwrap().0], [&question[..question.len() - 1], &[1], b"?"].concat());
                break;
            }
        }
        drop(control);
        tokio::time::sleep(AGAIN).await;
        let before = count.load(Ordering::Relaxed);
        for _ in 0..3 {
            // The port may be closed by now.
            let _ = program.send_to(&question, relay).await;
        }
        tokio::time::sleep(QUIET).await;
        assert_eq!(count.load(Ordering::Relaxed), before);
    });
}
