//! A program, the SOCKS server, a session, a lossy channel, an exit, and a server on loopback.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::session::{
    CellFormat, Client, Entropy, Exits, Rates, RelayDelays, Secrecy, ServiceSecret, SessionName, Target, Via,
};
use fast_socks5::client::{Config, Socks5Stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// The exit, or a user by a block's serial.
type ToWhom = Option<(User, u64)>;

/// A channel with delay and loss between the sessions of a proxy and those of an exit.
struct World {
    start: std::time::Instant,
    rng: Rng,
    loss: f64,
    proxy: Proxy,
    exits: Exits,
    streams: ExitStreams,
    secret: ServiceSecret,
    arrivals: BinaryHeap<Reverse<(Time, u64)>>,
    cells: BTreeMap<u64, (ToWhom, Vec<u8>)>,
    sequence: u64,
    /// Of each block: whose it is, and its serial.
    blocks: BTreeMap<u64, (User, u64)>,
    users: u64,
    delays: RelayDelays,
    spreads: RelayDelays,
}

fn format() -> CellFormat {
    CellFormat::new(1050, Secrecy::Sealed).unwrap()
}

impl World {
    fn new(loss: f64, connector: Connector) -> World {
        let secret = ServiceSecret::from_seed(&[1; 32]);
        World {
            start: std::time::Instant::now(),
            rng: Rng::stream(1, "channel"),
            loss,
            proxy: Proxy::default(),
            exits: Exits::new(format(), secret.clone(), Entropy([2; 32])),
            streams: ExitStreams::new(connector),
            secret,
            arrivals: BinaryHeap::new(),
            cells: BTreeMap::new(),
            sequence: 0,
            blocks: BTreeMap::new(),
            users: 0,
            delays: RelayDelays::default(),
            spreads: RelayDelays::default(),
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    fn send(&mut self, now: Time, to: ToWhom, cell: &[u8]) {
        if !self.rng.chance(self.loss) {
            self.sequence += 1;
            let delay = Duration::from_millis(1 + self.rng.below(8) as u64);
            self.arrivals.push(Reverse((now + delay, self.sequence)));
            self.cells.insert(self.sequence, (to, cell.to_vec()));
        }
    }

    /// All that is due, until nothing is.
    fn settle(&mut self) -> Time {
        loop {
            let now = self.now();
            let mut is_busy = false;
            while let Some(&Reverse((_, sequence))) = self.arrivals.peek().filter(|Reverse((at, _))| *at <= now) {
                self.arrivals.pop();
                match self.cells.remove(&sequence).unwrap() {
                    (None, cell) => _ = self.exits.on_cell(now, &cell),
                    (Some((user, serial)), cell) => {
                        if let Some(client) = self.proxy.get_mut(user) {
                            client.on_cell(now, &cell, serial);
                        }
                    }
                }
            }
            self.exits.on_timer(now);
            let (mut out, mut cell) = (Vec::new(), Vec::new());
            let World { delays, spreads, .. } = self;
            self.proxy.poll(|_, _, event| match event {
                anabranch_onion::session::ClientEvent::Delivered(delivered) => {
                    if let Some(time) = delivered.round_trip {
                        delays.sample(&[], time);
                    }
                }
                anabranch_onion::session::ClientEvent::BlockReturned { delay, .. } => spreads.sample(&[], delay),
                _ => {}
            });
            for (user, client) in self.proxy.iter_mut() {
                client.on_timer(now);
                for _ in 0..client.blocks_wanted() {
                    self.sequence += 1;
                    let mut block = self.sequence.to_be_bytes().to_vec();
                    block.resize(250, 0);
                    let serial = client.give_block(&block, self.spreads.timeout(&[])).unwrap();
                    self.blocks.insert(self.sequence, (user, serial));
                }
                while client.poll_cell(now, Via { tag: 0, timeout: self.delays.timeout(&[]) }, &mut cell) {
                    out.push((None, cell.clone()));
                }
            }
            let names: Vec<SessionName> = self.exits.iter_mut().map(|(name, _)| name).collect();
            for name in names {
                let exit = self.exits.get_mut(name).unwrap();
                self.streams.poll(name, exit);
                while let Some(block) = exit.poll_cell(now, &mut cell) {
                    let block = u64::from_be_bytes(block[..8].try_into().unwrap());
                    out.push((Some(self.blocks.remove(&block).expect("a block was used twice")), cell.clone()));
                }
            }
            self.streams.tidy(&mut self.exits);
            for (to, cell) in out {
                is_busy = true;
                self.send(now, to, &cell);
            }
            if !is_busy {
                let timers = self.proxy.iter_mut().filter_map(|(_, client)| client.timer(now)).min();
                let arrival = self.arrivals.peek().map(|&Reverse((at, _))| at);
                let next = [timers, arrival, self.exits.timer(now)].into_iter().flatten().min();
                return next.unwrap_or(now + Duration::SECOND);
            }
        }
    }
}

/// Runs `programs` with a proxy at the address that they are given; what they said, and how many sessions there were.
fn with_proxy<F: Future>(rules: &[String], loss: f64, programs: impl FnOnce(SocketAddr) -> F) -> (F::Output, u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let policy = Policy::new(rules.iter().map(|rule| rule.parse().unwrap()));
        let (connector, mut exit_said) = Connector::new(policy);
        let mut world = World::new(loss, connector);
        let mut socks = SocksServer::bind(LOOPBACK).await.unwrap();
        let programs = programs(socks.address());
        tokio::pin!(programs);
        loop {
            let next = world.settle();
            let wait = std::time::Duration::from_nanos(next.since(world.now()).as_nanos());
            let (requests, said) = socks.channels();
            tokio::select! {
                outcome = &mut programs => return (outcome, world.users),
                Some(request) = requests.recv() => {
                    assert!(!matches!(&request.target, Target::Address(address, _) if address.is_loopback() && rules.is_empty()));
                    let (now, entropy) = (world.now(), Entropy([world.users as u8; 32]));
                    let World { proxy, users, secret, .. } = &mut world;
                    proxy.on_request(now, request, |_| {
                        *users += 1;
                        Client::new(now, format(), secret.keys(), Rates::default(), entropy)
                    });
                }
                Some((connection, said)) = said.recv() => world.proxy.on_task(connection, said),
                Some((connection, said)) = exit_said.recv() => world.streams.on_task(&mut world.exits, connection, said),
                () = tokio::time::sleep(wait) => {}
            }
        }
    })
}

fn page(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 / 7 % 251) as u8).collect()
}

/// A server that gives each visitor a page of so many bytes; where it listens.
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
fn a_page_comes_whole_over_a_lossy_channel_and_its_name_is_resolved_at_the_exit() {
    // The rule names the address alone: the exit finds it by the name.
    let ((), sessions) = with_proxy(&["127.0.0.1:*".into()], 0.05, |proxy| async move {
        let server = page_server(300_000).await;
        for _ in 0..2 {
            assert!(fetch(connect(proxy, "localhost", server.port(), None).await).await == page(300_000));
        }
    });
    assert_eq!(sessions, 1);
}

#[test]
fn each_user_has_a_session_of_their_own() {
    let ((), sessions) = with_proxy(&["127.0.0.1:*".into()], 0.0, |proxy| async move {
        let server = page_server(1000).await;
        for user in [Some("anna"), Some("bert"), None, Some("anna")] {
            assert!(fetch(connect(proxy, "localhost", server.port(), user).await).await == page(1000));
        }
    });
    assert_eq!(sessions, 3);
    assert_ne!(User::new("ab", "c"), User::new("a", "bc"));
}

#[test]
fn what_cannot_be_is_refused_with_the_right_code() {
    let ((), sessions) = with_proxy(&["*:1-65534".into()], 0.0, |proxy| async move {
        for command in [2, 3] {
            assert_eq!(ask(proxy, command, "example.org", 80).await, 7, "BIND and UDP ASSOCIATE are not supported");
        }
        assert_eq!(ask(proxy, 1, "a b", 80).await, 4, "no host name");
        let listener = TcpListener::bind(LOOPBACK).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(ask(proxy, 1, "localhost", port).await, 2, "loopback is not allowed though all is");
        assert_eq!(ask(proxy, 1, "127.0.0.1", port).await, 2);
        assert_eq!(ask(proxy, 1, "example.org", 65535).await, 2, "the port is not allowed");
    });
    assert_eq!(sessions, 1);
    let ((), _) = with_proxy(&["127.0.0.1:*".into()], 0.0, |proxy| async move {
        let closed = TcpListener::bind(LOOPBACK).await.unwrap().local_addr().unwrap();
        assert_eq!(ask(proxy, 1, "127.0.0.1", closed.port()).await, 5, "nobody listens");
        assert_eq!(ask(proxy, 1, "nobody.invalid", 80).await, 4, "there is no such name");
    });
}

#[test]
fn both_directions_flow_at_once_and_end_one_by_one() {
    const LENGTH: usize = 3 << 20;
    with_proxy(&["127.0.0.1:*".into()], 0.01, |proxy| async move {
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
    with_proxy(&["127.0.0.1:*".into()], 0.0, |proxy| async move {
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
