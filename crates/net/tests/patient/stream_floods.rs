//! Who floods a stream's server or a viewer with messages, over sockets of this host: others go on undisturbed, and
//! memory is bounded.
//!
//! What is sent are each kind of message and datagram, as the fuzzers' corpus has them, some of them changed, over
//! real sessions that are opened again whenever they are closed.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use anabranch_control::flow::registry::{self, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::pool::NoWork;
use anabranch_net::runtime::Runtime;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::sessions::{QuicSessions, WireApplication};
use anabranch_net::stream::{NodeEvent, ServeOptions, StreamNode, Video, WatchOptions};
use anabranch_net::udp::Socket;
use anabranch_proto::codec::CodecError;
use anabranch_proto::session::{Application, Closed, PeerKey, Remote, SessionConfig, SessionId, Sessions, WireLength};
use tokio::sync::mpsc::Receiver;

/// How long a flood lasts.
const FLOOD: StdDuration = StdDuration::from_secs(8);

/// Messages that each session sends in a turn.
const AT_ONCE: usize = 20;

/// Sessions of one flooder.
const SESSIONS: usize = 8;

/// What this process may grow by while it is flooded, the flooder's own queues included.
#[cfg(target_os = "linux")]
const MOST_GROWTH: u64 = 128 << 20;

/// Bytes as they are.
#[derive(Clone, Debug)]
struct Blob(Vec<u8>);

impl WireLength for Blob {
    fn wire_length(&self) -> usize {
        self.0.len()
    }
}

/// Sends whatever it is given, and hears nothing.
#[derive(Debug, Default)]
struct Flooder {
    open: Vec<SessionId>,
    /// Sessions that were ended, by whomever.
    ended: u64,
    datagrams: Vec<(SessionId, Blob)>,
}

impl Application for Flooder {
    type Address = SocketAddr;
    type Message = Blob;
    type Datagram = Blob;
    type Event = ();

    fn accepts(&mut self, _: Time, _: &Remote<SocketAddr>) -> bool {
        true
    }

    fn on_open(&mut self, _: Time, session: SessionId, _: &Remote<SocketAddr>, _: &mut impl Sessions<Flooder>) {
        self.open.push(session);
    }

    fn on_message(&mut self, _: Time, _: SessionId, _: Blob, _: &mut impl Sessions<Flooder>) {}

    fn on_datagram(&mut self, _: Time, _: SessionId, _: Blob, _: &mut impl Sessions<Flooder>) {}

    fn on_silent(&mut self, _: Time, _: SessionId, _: bool, _: &mut impl Sessions<Flooder>) {}

    fn on_closed(&mut self, _: Time, session: SessionId, _: Closed, _: &mut impl Sessions<Flooder>) {
        self.open.retain(|open| *open != session);
        self.datagrams.retain(|(open, _)| *open != session);
        self.ended += 1;
    }

    fn on_timer(&mut self, _: Time, _: &mut impl Sessions<Flooder>) {}

    fn timer(&self, _: Time) -> Time {
        Time::MAX
    }

    fn waiting(&self) -> Bytes {
        Bytes::new(self.datagrams.iter().map(|(_, blob)| blob.0.len() as u64).sum())
    }

    fn next_datagram(&mut self, _: Time) -> Option<(SessionId, Blob)> {
        self.datagrams.pop()
    }
}

impl WireApplication for Flooder {
    fn write_message(message: &Blob, out: &mut Vec<u8>) {
        out.extend_from_slice(&message.0);
    }

    fn read_message(bytes: &[u8]) -> Result<Blob, CodecError> {
        Ok(Blob(bytes.to_vec()))
    }

    fn write_datagram(datagram: &Blob, out: &mut Vec<u8>) {
        out.extend_from_slice(&datagram.0);
    }

    fn read_datagram(bytes: &[u8]) -> Result<Blob, CodecError> {
        Ok(Blob(bytes.to_vec()))
    }
}

/// Each kind of message, or of datagram, as it is sent.
fn kinds(kind: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/stream");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_one = |path: &Path| path.file_name().unwrap().to_str().unwrap().starts_with(kind);
    let kinds: Vec<_> = paths.iter().filter(|path| is_one(path)).map(|path| std::fs::read(path).unwrap()).collect();
    assert!(kinds.len() >= 6, "a {kind} of each kind: {}", kinds.len());
    kinds
}

/// One of `kinds`; one in eight is changed in a byte.
fn any(kinds: &[Vec<u8>], rng: &mut Rng) -> Blob {
    let mut bytes = kinds[rng.below(kinds.len())].clone();
    if rng.chance(0.125) {
        let place = rng.below(bytes.len());
        bytes[place] = rng.bits() as u8;
    }
    Blob(bytes)
}

/// Floods `to` until `is_over`: how many messages were sent, and how many of its sessions were ended.
fn flood(to: SocketAddr, key: Option<PeerKey>, is_over: &AtomicBool, sent: &AtomicU64) -> u64 {
    let (identity, mut rng) = (PeerIdentity::generate(), Rng::stream(1, "flood"));
    let cubic = registry::find("cubic").unwrap();
    let controller = cubic.make(&Setup::new(SessionConfig::PACKET, Time::ZERO), &toml::Table::new()).unwrap();
    let config = SessionConfig::default();
    let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let local = socket.local_addr().unwrap();
    let peer = QuicSessions::new(Flooder::default(), config, &identity, local, controller, &rng).unwrap();
    let mut runtime = Runtime::new(NoWork).unwrap();
    let peer = runtime.add_gathering_in_order(socket, peer).unwrap();
    let (messages, datagrams) = (kinds("message"), kinds("datagram"));
    while !is_over.load(Ordering::Relaxed) {
        runtime.act(peer, |machine, now, port| {
            let waiting = machine.sessions();
            machine.act(now, port, |app, sessions| {
                for _ in waiting..SESSIONS {
                    sessions.open(to, key);
                }
                for session in app.open.clone() {
                    // To be let in comes first: of strangers, nothing else is read.
                    sessions.send(session, Blob(messages[0].clone()));
                    (0..AT_ONCE).for_each(|_| sessions.send(session, any(&messages, &mut rng)));
                    if app.datagrams.len() < SESSIONS * AT_ONCE {
                        app.datagrams.extend((0..AT_ONCE).map(|_| (session, any(&datagrams, &mut rng))));
                    }
                    sent.fetch_add(AT_ONCE as u64, Ordering::Relaxed);
                }
            });
        });
        let soon = runtime.now() + Duration::from_millis(2);
        runtime.turn(soon).unwrap();
        while runtime.poll_event().is_some() {}
    }
    runtime.machine(peer).app().ended
}

/// Takes packets until `until`: how many came, and how many are missing.
fn take(events: &mut Receiver<NodeEvent>, until: Instant) -> (u64, u64) {
    let (mut came, mut missing) = (0, 0);
    while Instant::now() < until {
        match events.try_recv() {
            Ok(NodeEvent::Packet { .. }) => came += 1,
            Ok(NodeEvent::Gap { packets, .. }) => missing += packets,
            Ok(_) => {}
            Err(_) => thread::sleep(StdDuration::from_millis(5)),
        }
    }
    (came, missing)
}

/// Memory of this process, in bytes.
#[cfg(target_os = "linux")]
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn upload() -> Rate {
    Rate::from_bits_per_sec(5_000_000)
}

#[test]
fn a_flood_of_messages_to_server_and_viewer_stops_nobody_and_fills_no_memory() {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = ServeOptions { slices: 4, ..ServeOptions::new(listen, PeerIdentity::generate(), upload()) };
    let (server, input, _events) = StreamNode::serve(options).unwrap();
    let (is_over, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::clone(&is_over);
    let source = thread::spawn(move || {
        let mut number = 0u64;
        while !stop.load(Ordering::Relaxed) {
            let bytes = vec![number as u8; 1316].into();
            input.push(Video { bytes, is_entry_point: number.is_multiple_of(50) }).unwrap();
            number += 1;
            thread::sleep(StdDuration::from_millis(20));
        }
    });
    let watch = || {
        let options = WatchOptions::new(server.link().clone(), PeerIdentity::generate(), upload());
        StreamNode::watch(WatchOptions { listen: Some(listen), ..options }).unwrap()
    };
    let mut viewers = [watch(), watch(), watch()];
    for (_, events) in &mut viewers {
        let end = Instant::now() + StdDuration::from_secs(60);
        while take(events, Instant::now() + StdDuration::from_millis(200)).0 == 0 {
            assert!(Instant::now() < end, "the stream never comes");
        }
    }
    #[cfg(target_os = "linux")]
    let before = resident();
    let is_flooded = Arc::new(AtomicBool::new(false));
    let targets = [(server.local_addr(), Some(server.link().key)), (viewers[0].0.local_addr(), None)];
    let floods = targets.map(|(to, key)| {
        let (is_over, sent) = (Arc::clone(&is_flooded), Arc::clone(&sent));
        thread::spawn(move || flood(to, key, &is_over, &sent))
    });
    thread::sleep(FLOOD);
    let a_moment = || Instant::now() + StdDuration::from_millis(200);
    let got: Vec<_> = viewers.iter_mut().map(|(_, events)| take(events, a_moment())).collect();
    #[cfg(target_os = "linux")]
    let growth = resident().saturating_sub(before);
    is_flooded.store(true, Ordering::Relaxed);
    let ended: Vec<u64> = floods.map(|flood| flood.join().unwrap()).into();
    is_over.store(true, Ordering::Relaxed);
    source.join().unwrap();
    assert!(sent.load(Ordering::Relaxed) > 1000, "a flood: {sent:?}");
    for (came, missing) in got {
        // 50 packets a second; a busy machine may be late with some.
        assert!(came > 200 && missing <= came / 20, "{came} came and {missing} did not; sessions ended: {ended:?}");
    }
    assert!(ended[0] > 0, "who sends nonsense is shown out");
    #[cfg(target_os = "linux")]
    assert!(growth < MOST_GROWTH, "{growth} bytes more");
    assert!(server.is_running() && viewers.iter().all(|(viewer, _)| viewer.is_running()));
}
