//! Programs that come by SOCKS5, over relays and an exit, to servers on loopback.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration as StdDuration, Instant};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_net::onion::exit_edge::ExitEdge;
use anabranch_net::onion::network_file::NetworkFile;
use anabranch_net::onion::relay::{OnionRelay, RelayNews, RelaySettings};
use anabranch_net::onion::user_edge::{EdgeNews, EdgeSettings, MOST_SESSIONS, UserEdge};
use anabranch_net::onion::{Policy, SocksUser};
use anabranch_net::setup::secret;
use anabranch_net::udp::Socket;
use anabranch_onion::crypto::Real;
use anabranch_onion::directory::{Remembered, SecretKey, ServiceEntry};
use anabranch_onion::guards::GuardState;
use anabranch_onion::hidden::Mailboxes;
use anabranch_onion::node::{Cover, EXIT, SessionService, UserSettings, WithMailboxes};
use anabranch_onion::session::{Entropy, Rates, Secrecy, ServiceSecret};
use fast_socks5::client::{Config, Socks5Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{PATIENCE, Running, authority, network};

pub const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Relays of a network at most.
const MOST_SEATS: usize = 8;

/// How a network is.
#[derive(Clone, Copy)]
struct Shape {
    /// Relays, and how many of them are exits.
    relays: [u8; 2],
    epoch_s: u64,
    cover: Cover,
}

const SHAPE: Shape = Shape { relays: [7, 2], epoch_s: 4, cover: Cover::Off };

/// A relay as those who test it see and stop it.
#[derive(Default)]
struct Seat {
    /// Connections of its exit.
    connections: AtomicUsize,
    /// It stands still, and is heard of no more.
    is_silent: AtomicBool,
}

/// A relay that exits to what `rules` allow.
fn relay(network: &NetworkFile, host: u8, rules: &[String], seat: &Seat, stop: &AtomicBool) {
    let socket = Socket::bind(SocketAddr::from(([127, 0, host, 1], 0))).expect("loopback");
    let policy = Policy::new(rules.iter().map(|rule| rule.parse().expect("a rule")));
    let service = ServiceSecret::from_seed(&secret());
    let identity = SecretKey::from_seed(&secret());
    let mailboxes = Mailboxes::new(identity.public(), 0);
    let settings = RelaySettings {
        network: network.clone(),
        identity,
        address: socket.local_addr().expect("it is bound"),
        limit: Rate::from_bytes_per_sec(100_000_000),
        family: None,
        exit: policy.advertised(),
        service: (!policy.is_empty()).then(|| ServiceEntry::new(&service.keys())),
        remembered: Remembered::default(),
        keep: Box::new(|_| Ok(())),
    };
    let sessions = SessionService::<Real>::new(EXIT, service, Secrecy::Sealed, Entropy(secret()));
    let mut relay = OnionRelay::start(settings, socket, WithMailboxes::new(mailboxes, sessions)).expect("it starts");
    let mut edge = ExitEdge::start(policy, relay.runtime().waker()).expect("it starts");
    while !stop.load(Ordering::Relaxed) {
        if seat.is_silent.load(Ordering::Relaxed) {
            std::thread::sleep(StdDuration::from_millis(20));
            continue;
        }
        let until = relay.now() + Duration::from_millis(20);
        edge.turn(&mut relay, until).expect("it turns");
        seat.connections.store(edge.connections(), Ordering::Relaxed);
        while let Some(news) = relay.poll_news() {
            if let RelayNews::Service(event) = news {
                edge.on_event(&mut relay, event);
            }
        }
    }
}

/// What a user's edge says of itself while it runs.
#[derive(Default)]
struct Watched {
    /// Where programs come, once all relays are listed.
    socks: Mutex<Option<SocketAddr>>,
    /// Sessions, at most.
    most: Mutex<usize>,
    /// Packets of sessions that have left, and all that have.
    left: Mutex<[u64; 2]>,
    /// The relays.
    seats: [Seat; MOST_SEATS],
    /// No authority is there any more.
    no_authorities: AtomicBool,
}

/// Says so when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A user's edge, until `stop`, that begins once `shape`'s relays are listed.
fn user(network: &NetworkFile, shape: Shape, watched: &Watched, stop: &AtomicBool) {
    let cover = shape.cover;
    let rates = match cover {
        Cover::ConstantRate(per_s) => Rates::covered(per_s),
        _ => Rates::default(),
    };
    let mut edge = UserEdge::start(EdgeSettings {
        network: network.clone(),
        user: UserSettings {
            guards: 2,
            hops: 3,
            placement: "timeouts".to_owned(),
            placement_back: "timeouts".to_owned(),
            packets_per_key: network.authorities.packets_per_key,
            secrecy: Secrecy::Sealed,
            mixing: None,
        },
        cover,
        rates,
        socks: LOOPBACK,
        socket: Socket::bind(LOOPBACK).expect("loopback"),
        guards: GuardState::default(),
        keep_guards: Box::new(|_| Ok(())),
        remembered: Remembered::default(),
        keep: Box::new(|_| Ok(())),
    })
    .expect("it starts");
    while !stop.load(Ordering::Relaxed) {
        edge.turn(edge.now() + Duration::from_millis(20)).expect("it turns");
        let mut most = watched.most.lock().expect("nobody panics with it");
        *most = edge.sessions().max(*most);
        if let Some(user) = edge.user() {
            let counts = user.counts();
            *watched.left.lock().expect("nobody panics with it") = [counts.sent, counts.sent + counts.loops];
        }
        while let Some(news) = edge.poll_news() {
            if let EdgeNews::Epoch { relays, exits, .. } = news
                && [relays, exits] == shape.relays.map(usize::from)
            {
                *watched.socks.lock().expect("nobody panics with it") = Some(edge.socks());
            }
        }
    }
}

/// Runs `programs` with a proxy at the address that they are given, over a network whose exits allow `rules` and whose
/// relays are at `hosts` and what follows; what they said, and how many sessions there were at a time.
pub fn with_proxy<F: Future>(rules: &[&str], hosts: u8, programs: impl FnOnce(SocketAddr) -> F) -> (F::Output, usize) {
    with_shape(SHAPE, rules, hosts, |proxy, _| programs(proxy))
}

/// The same in a network of `shape`, and for programs that look at what the proxy says of itself.
fn with_shape<F: Future>(
    shape: Shape,
    rules: &[&str],
    hosts: u8,
    programs: impl FnOnce(SocketAddr, &'static Watched) -> F,
) -> (F::Output, usize) {
    let (network, keys, listeners) = network(2, hosts, shape.epoch_s);
    let watched: &'static Watched = Box::leak(Box::default());
    let mut running = Running { stop: Default::default(), threads: Vec::new() };
    for (key, listener) in keys.into_iter().zip(listeners) {
        let network = network.clone();
        running.start(move |_| authority(&network, key, listener, &watched.no_authorities));
    }
    for number in 0..shape.relays[0] {
        let network = network.clone();
        let is_exit = number < shape.relays[1];
        let rules: Vec<String> = rules.iter().filter(|_| is_exit).map(|rule| (*rule).to_owned()).collect();
        let seat = &watched.seats[usize::from(number)];
        running.start(move |stop| relay(&network, hosts + 3 + number, &rules, seat, stop));
    }
    running.start(move |stop| user(&network, shape, watched, stop));
    let _over = Over(&watched.no_authorities);
    let begun = Instant::now();
    let address = loop {
        if let Some(address) = *watched.socks.lock().expect("nobody panics with it") {
            break address;
        }
        assert!(begun.elapsed() < PATIENCE, "no list names all relays");
        std::thread::sleep(StdDuration::from_millis(20));
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let said =
        runtime.block_on(async { tokio::time::timeout(PATIENCE, programs(address, watched)).await }).expect("in time");
    let most = *watched.most.lock().expect("nobody panics with it");
    (said, most)
}

fn page(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 / 7 % 251) as u8).collect()
}

/// A server that gives each visitor a page of this many bytes; where it listens.
async fn page_server(length: usize) -> SocketAddr {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    if socket.read_buf(&mut asked).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                assert!(asked.starts_with(b"GET /page HTTP/1.1\r\n"));
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                let _ = socket.write_all(&[head.into_bytes(), page(length)].concat()).await;
            });
        }
    });
    address
}

async fn fetch(mut socket: impl AsyncReadExt + AsyncWriteExt + Unpin) -> Vec<u8> {
    socket.write_all(b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut got = Vec::new();
    socket.read_to_end(&mut got).await.unwrap();
    let head = got.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
    assert!(got.starts_with(b"HTTP/1.1 200 OK\r\n"));
    got.split_off(head)
}

async fn connect(proxy: SocketAddr, host: &str, port: u16, user: Option<&str>) -> Socks5Stream<TcpStream> {
    let (host, config) = (host.to_owned(), Config::default());
    match user {
        None => Socks5Stream::connect(proxy, host, port, config).await.unwrap(),
        Some(user) => {
            Socks5Stream::connect_with_password(proxy, host, port, user.into(), "x".into(), config).await.unwrap()
        }
    }
}

/// What the server answers to a request in bytes: its reply code.
async fn ask(proxy: SocketAddr, command: u8, host: &str, port: u16) -> u8 {
    let mut socket = TcpStream::connect(proxy).await.unwrap();
    socket.write_all(&[5, 1, 0]).await.unwrap();
    let mut chosen = [0; 2];
    socket.read_exact(&mut chosen).await.unwrap();
    assert_eq!(chosen, [5, 0]);
    let request = [&[5, command, 0, 3, host.len() as u8], host.as_bytes(), &port.to_be_bytes()].concat();
    socket.write_all(&request).await.unwrap();
    let mut reply = [0; 10];
    socket.read_exact(&mut reply).await.unwrap();
    assert_eq!((reply[0], &reply[2..]), (5, &[0, 1, 0, 0, 0, 0, 0, 0][..]), "no address is told");
    reply[1]
}

#[test]
fn a_page_comes_whole_and_its_name_is_resolved_at_the_exit() {
    // The rule names the address alone: the exit finds it by the name.
    let ((), sessions) = with_proxy(&["127.0.0.1:*"], 30, |proxy| async move {
        let server = page_server(300_000).await;
        for _ in 0..2 {
            assert!(fetch(connect(proxy, "localhost", server.port(), None).await).await == page(300_000));
        }
    });
    assert_eq!(sessions, 1);
}

#[test]
fn at_a_constant_rate_as_much_leaves_whether_programs_have_something_to_say_or_not() {
    const PER_S: u32 = 100;
    let shape = Shape { cover: Cover::ConstantRate(PER_S), ..SHAPE };
    let ((), sessions) = with_shape(shape, &["127.0.0.1:*"], 120, |proxy, watched| async move {
        let left = || *watched.left.lock().expect("nobody panics with it");
        // What leaves in `span`, as a share of the rate; what was counted late belongs to a second before at most.
        let within = |before: u64, after: u64, span: StdDuration| {
            let packets = (after - before) as f64;
            let [least, most] = [0.25, 1.0].map(|share| share * f64::from(PER_S) * span.as_secs_f64());
            assert!((least..=most + f64::from(PER_S)).contains(&packets), "{packets} in {span:?}");
        };
        let (begun, [cells, all]) = (Instant::now(), left());
        tokio::time::sleep(StdDuration::from_secs(3)).await;
        let [cells_idle, all_idle] = left();
        assert_eq!(cells_idle, cells, "programs say nothing");
        within(all, all_idle, begun.elapsed());
        let server = page_server(200_000).await;
        let begun = Instant::now();
        assert!(fetch(connect(proxy, "localhost", server.port(), None).await).await == page(200_000));
        let span = begun.elapsed();
        tokio::time::sleep(StdDuration::from_millis(100)).await;
        let [cells_busy, all_busy] = left();
        assert!(cells_busy > cells_idle + 20, "{cells_busy} cells carry the page");
        within(all_idle, all_busy, span + StdDuration::from_millis(100));
    });
    assert_eq!(sessions, 1);
}

#[test]
fn each_user_has_a_session_of_their_own() {
    let ((), sessions) = with_proxy(&["127.0.0.1:*"], 45, |proxy| async move {
        let server = page_server(1000).await;
        for user in [Some("anna"), Some("bert"), None, Some("anna")] {
            assert!(fetch(connect(proxy, "localhost", server.port(), user).await).await == page(1000));
        }
    });
    assert_eq!(sessions, 3);
    assert_ne!(SocksUser::new(b"ab", b"c"), SocksUser::new(b"a", b"bc"));
}

#[test]
fn what_cannot_be_is_refused_with_the_right_code() {
    let ((), sessions) = with_proxy(&["*:1-65534"], 60, |proxy| async move {
        assert_eq!(ask(proxy, 2, "example.org", 80).await, 7, "BIND is not supported");
        assert_eq!(ask(proxy, 1, "a b", 80).await, 4, "no host name");
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(ask(proxy, 1, "localhost", port).await, 2, "loopback is not allowed though all is");
        assert_eq!(ask(proxy, 1, "127.0.0.1", port).await, 2);
        assert_eq!(ask(proxy, 1, "example.org", 65535).await, 2, "the port is not allowed");
    });
    assert_eq!(sessions, 1);
    let ((), _) = with_proxy(&["127.0.0.1:*"], 75, |proxy| async move {
        let closed = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
        assert_eq!(ask(proxy, 1, "127.0.0.1", closed.port()).await, 5, "nobody listens");
        assert_eq!(ask(proxy, 1, "nobody.invalid", 80).await, 4, "there is no such name");
    });
}

#[test]
fn both_directions_flow_at_once_and_end_one_by_one() {
    const LENGTH: usize = 3 << 20;
    with_proxy(&["127.0.0.1:*"], 90, |proxy| async move {
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let (mut reader, mut writer) = socket.split();
            tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            writer.write_all(b"that was all").await.unwrap();
        });
        let socket = connect(proxy, "127.0.0.1", port, None).await;
        let (mut reader, mut writer) = tokio::io::split(socket);
        let written = async {
            writer.write_all(&page(LENGTH)).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut got = Vec::new();
        let (_, read) = tokio::join!(written, reader.read_to_end(&mut got));
        read.unwrap();
        assert_eq!(got.split_off(LENGTH), b"that was all");
        assert!(got == page(LENGTH));
    });
}

#[test]
fn a_server_that_breaks_off_breaks_the_programs_connection_and_no_other() {
    with_proxy(&["127.0.0.1:*"], 105, |proxy| async move {
        let server = page_server(1000).await;
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            socket.read_exact(&mut [0]).await.unwrap();
            socket.set_zero_linger().unwrap();
        });
        let mut broken = connect(proxy, "127.0.0.1", port, None).await;
        broken.write_all(&[1]).await.unwrap();
        assert!(fetch(connect(proxy, "127.0.0.1", server.port(), None).await).await == page(1000));
        let mut rest = Vec::new();
        assert!(broken.read_to_end(&mut rest).await.is_err(), "a part was taken for the whole");
    });
}

/// A server that says nothing, and ends what the other end has ended.
async fn quiet_server() -> SocketAddr {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move { _ = socket.read_to_end(&mut Vec::new()).await });
        }
    });
    address
}

#[test]
fn an_exit_that_falls_silent_is_left_for_another_long_before_its_session_ends() {
    let shape = Shape { relays: [8, 5], epoch_s: 60, ..SHAPE };
    with_shape(shape, &["127.0.0.1:*"], 135, |proxy, watched| async move {
        let (server, quiet) = (page_server(1000).await, quiet_server().await);
        let mut open = connect(proxy, "127.0.0.1", quiet.port(), Some("anna")).await;
        let exit = loop {
            match watched.seats.iter().position(|seat| seat.connections.load(Ordering::Relaxed) > 0) {
                Some(exit) => break exit,
                None => tokio::time::sleep(StdDuration::from_millis(10)).await,
            }
        };
        watched.seats[exit].is_silent.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        // It has sent nothing before it leads somewhere, so that it can lead elsewhere.
        let fetched = async |user| {
            let begun = Instant::now();
            assert!(fetch(connect(proxy, "127.0.0.1", server.port(), Some(user)).await).await == page(1000));
            begun.elapsed()
        };
        // A session whose exit is not left ends after a minute of silence. All this takes 15 s where a processor is free.
        let soon = StdDuration::from_secs(45);
        let first = fetched("anna").await;
        assert!(first < soon, "{first:?}");
        // New sessions, which may not choose it.
        for user in ["anna", "bert", "carl", "dora", "emil", "fred"] {
            let took = fetched(user).await;
            assert!(took < soon, "{user} waited for {took:?} where nobody answers");
        }
        // What was open there is over, once nothing is to be hoped of it.
        assert!(!matches!(open.read(&mut [0]).await, Ok(1..)));
        let took = begun.elapsed();
        println!("at another exit after {first:?}, given up after {took:?}");
        assert!(took < soon, "{took:?}");
    });
}

#[test]
fn more_users_than_there_are_sessions_are_served_one_after_the_other() {
    let shape = Shape { epoch_s: 60, ..SHAPE };
    let ((), most) = with_shape(shape, &["127.0.0.1:*"], 148, |proxy, _| async move {
        let server = page_server(100).await;
        for user in 0..MOST_SESSIONS + 10 {
            let user = format!("user {user}");
            assert!(fetch(connect(proxy, "127.0.0.1", server.port(), Some(&user)).await).await == page(100));
        }
    });
    assert_eq!(most, MOST_SESSIONS);
}

#[test]
fn programs_are_turned_away_once_the_list_of_relays_is_out_of_date() {
    with_shape(SHAPE, &["127.0.0.1:*"], 160, |proxy, watched| async move {
        let quiet = quiet_server().await;
        let mut open = connect(proxy, "127.0.0.1", quiet.port(), Some("anna")).await;
        assert_eq!(ask(proxy, 1, "127.0.0.1", quiet.port()).await, 0);
        watched.no_authorities.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        while ask(proxy, 1, "127.0.0.1", quiet.port()).await != 1 {
            assert!(begun.elapsed() < StdDuration::from_secs(40), "lists are good for three epochs of 4 s");
            tokio::time::sleep(StdDuration::from_millis(200)).await;
        }
        assert!(!matches!(open.read(&mut [0]).await, Ok(1..)), "what was open goes by that list, too");
    });
}
