//! Transfers over real sockets on 127.0.0.1, with relays that die, drop, repeat, reorder
//! and forge. Each relay of these is a thread of its own with a plain blocking socket.

use std::collections::VecDeque;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration as StdDuration;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{self, Pacing};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::clock::Clock;
use anabranch_net::disk::{self, DiskStore};
use anabranch_net::loopback::NoFiles;
use anabranch_net::runtime::Runtime;
use anabranch_net::setup::{self, PACKET, SenderSetup};
use anabranch_net::udp::Socket;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::machine::{Arrival, Wire};
use anabranch_proto::overlay::courier::SendCounters;
use anabranch_proto::overlay::packet::Kind;
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::{Handling, RelayNode};
use anabranch_proto::overlay::wire::{self, Datagram, OwnedDatagram, Type};
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{self, FileSender, Limits, Receiver, Transferred};

const LIMIT: Rate = Rate::from_bytes_per_sec(4_000_000);
const RELAYS: usize = 6;

/// What a relay does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// It stops after this many datagrams.
    DiesAfter(u64),
    /// It drops this share.
    Drops(f64),
    /// It sends a third of all datagrams twice, and holds back every fifth until two more have come.
    RepeatsAndReorders,
    /// It swallows data and claims that it has arrived.
    Forges,
    /// It changes a bit of each datagram.
    Damages,
}

/// A relay on a thread that ends with this value.
struct TestRelay {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl TestRelay {
    fn start(fault: Fault, seed: u64) -> TestRelay {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(StdDuration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap();
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = std::thread::spawn(move || relay(&socket, fault, seed, &stopped, &counted));
        TestRelay { address, stop, seen, thread: Some(thread) }
    }
}

impl Drop for TestRelay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn relay(socket: &UdpSocket, fault: Fault, seed: u64, stop: &AtomicBool, seen: &AtomicU64) {
    let clock = Clock::start();
    let mut node = RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, LIMIT);
    let mut rng = Rng::stream(seed, "fault");
    let mut held: VecDeque<(SocketAddr, Vec<u8>)> = VecDeque::new();
    let (mut buffer, mut out, mut datagram) = (vec![0; 2048], Vec::new(), OwnedDatagram::default());
    while !stop.load(Ordering::Relaxed) {
        let Ok((length, from)) = socket.recv_from(&mut buffer) else { continue };
        let count = seen.fetch_add(1, Ordering::Relaxed);
        if let Fault::DiesAfter(last) = fault
            && count >= last
        {
            return;
        }
        if datagram.read(&buffer[..length]).is_err() {
            continue;
        }
        let size = Bytes::new(length as u64);
        let Handling::Forward { to, .. } = node.on_datagram(clock.now(), Arrival::new(from), &mut datagram, size)
        else {
            continue;
        };
        datagram.write(&mut out);
        let send = |to: SocketAddr, bytes: &[u8]| drop(socket.send_to(bytes, to));
        match fault {
            Fault::Drops(share) if rng.chance(share) => {}
            Fault::Forges if datagram.packet.kind == Kind::Data => {
                // Back to where it came from, with a guessed proof.
                let mut packet = datagram.packet;
                packet.route.step_back();
                if let Some(back) = packet.turn_around(clock.now()) {
                    packet.nonce = rng.bits();
                    Datagram { what: Type::Ack, packet, body: &[] }.encode(&mut out);
                    send(back, &out);
                }
            }
            Fault::Damages => {
                let place = rng.below(out.len());
                out[place] ^= 1 << rng.below(8);
                send(to, &out);
            }
            Fault::RepeatsAndReorders => {
                if rng.chance(0.2) {
                    held.push_back((to, out.clone()));
                } else {
                    send(to, &out);
                    if rng.chance(0.33) {
                        send(to, &out);
                    }
                }
                if held.len() > 1
                    && let Some((to, bytes)) = held.pop_front()
                {
                    send(to, &bytes);
                }
            }
            _ => send(to, &out),
        }
    }
}

struct Outcome {
    result: Result<Transferred, String>,
    counters: SendCounters,
    folder: tempfile::TempDir,
    seen: Vec<u64>,
}

/// Sends `length` bytes over relays with these faults; at most two minutes.
fn transfer(controller: &str, faults: [Fault; RELAYS], length: usize, with_key: bool) -> Outcome {
    let relays: Vec<TestRelay> = faults.iter().zip(0..).map(|(&fault, seed)| TestRelay::start(fault, seed)).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng::stream(9, "file");
    let file: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
    fs::write(folder.path().join("original.bin"), &file).unwrap();

    let identity = Identity::generate();
    let key = with_key.then(|| identity.public());
    let store = DiskStore::open(&folder.path().join("in")).unwrap();
    let receiver = Receiver::new(identity, Limits::default());
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket.local_addr().unwrap();
    let mut peers: Vec<SocketAddr> = relays.iter().map(|relay| relay.address).collect();
    let block = transfer::block_size(&setup::longest_route(&peers, 3, to), PACKET).unwrap();
    peers.push(to);
    let courier = SenderSetup {
        peers,
        hops: 3,
        controller: registry::find(controller).unwrap(),
        parameters: toml::Table::new(),
        pacing: Pacing::Burst,
        upload: None,
        packet: PACKET,
        start: Time::ZERO,
        rng: Rng::stream(1, "sender"),
    }
    .build()
    .unwrap();
    let (offer, source) = disk::offer(&folder.path().join("original.bin"), block, |_| false).unwrap();
    let mut runtime = Runtime::new((store, source)).unwrap();
    runtime.add(socket, Peer::new(RelayNode::end(), Some(receiver), None), None).unwrap();
    let sender = FileSender::new(runtime.now(), courier, Slot(RELAYS as u16), key, offer);
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let sender = Peer::new(RelayNode::end(), None, Some(Sender::File(Box::new(sender))));
    let number = runtime.add(socket, sender, None).unwrap();
    let end = Time::from_secs_f64(120.0);
    while runtime.now() < end && !runtime.machine_mut(number).file_sender_mut().unwrap().is_over() {
        runtime.turn(end).unwrap();
    }
    runtime.run_until(runtime.now() + Duration::from_millis(100)).unwrap();
    let sender = runtime.machine_mut(number).file_sender_mut().unwrap();
    let result = match sender.outcome() {
        Some(Ok(done)) => Ok(done.clone()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err("not over after two minutes".into()),
    };
    let counters = *sender.courier().counters();
    if let Ok(done) = &result {
        assert_eq!(fs::read(folder.path().join("in").join(&done.name)).unwrap(), file, "what arrived differs");
    }
    let seen = relays.iter().map(|relay| relay.seen.load(Ordering::Relaxed)).collect();
    Outcome { result, counters, folder, seen }
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_file_arrives_over_relays_that_behave() {
    for with_key in [false, true] {
        let outcome = transfer("q-learning", [Fault::None; RELAYS], 200_000, with_key);
        let done = outcome.result.unwrap();
        assert_eq!((done.name.as_str(), done.length), ("original.bin", 200_000));
        assert_eq!(names(&outcome.folder.path().join("in")), 1);
        // How often is the controller's business: on a busy machine, what is late counts as lost.
        assert!(outcome.seen.iter().all(|&seen| seen > 1), "every relay was used: {:?}", outcome.seen);
        assert_eq!(outcome.counters.forged, 0);
    }
}

#[test]
fn a_relay_may_die_in_the_middle() {
    let mut faults = [Fault::None; RELAYS];
    // While all start slowly, and each is used: later, AIMD may do without one.
    faults[1] = Fault::DiesAfter(10);
    faults[4] = Fault::DiesAfter(0);
    let outcome = transfer("aimd", faults, 300_000, true);
    outcome.result.unwrap();
    assert!(outcome.seen[1] >= 10 && outcome.counters.lost > 0, "{:?} {:?}", outcome.seen, outcome.counters);
}

#[test]
fn relays_may_drop_a_fifth() {
    let mut faults = [Fault::None; RELAYS];
    faults[0] = Fault::Drops(0.2);
    faults[3] = Fault::Drops(0.2);
    let outcome = transfer("aimd", faults, 300_000, true);
    outcome.result.unwrap();
    assert!(outcome.counters.lost > 0);
}

#[test]
fn relays_may_repeat_and_reorder() {
    let outcome = transfer("aimd", [Fault::RepeatsAndReorders; RELAYS], 200_000, false);
    outcome.result.unwrap();
    assert!(outcome.counters.unknown > 0, "repeated ACKs are not taken twice: {:?}", outcome.counters);
}

#[test]
fn forged_acks_are_counted_and_have_no_effect() {
    let mut faults = [Fault::None; RELAYS];
    faults[2] = Fault::Forges;
    let outcome = transfer("aimd", faults, 200_000, true);
    outcome.result.unwrap();
    let counters = outcome.counters;
    assert!(counters.forged > 0, "{counters:?}");
    // What it swallowed was missed, not believed.
    assert!(counters.lost > 0 && counters.acked + counters.late < counters.sent, "{counters:?}");
}

#[test]
fn damaged_datagrams_do_no_harm() {
    let mut faults = [Fault::None; RELAYS];
    faults[5] = Fault::Damages;
    transfer("aimd", faults, 200_000, true).result.unwrap();
}

#[test]
fn an_oversized_or_foreign_datagram_is_counted_and_forgotten() {
    let mut runtime = Runtime::new(NoFiles).unwrap();
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let to = socket.local_addr().unwrap();
    let relay = RelayNode::new(LimitModel::Window { phase: Duration::ZERO }, LIMIT);
    runtime.add(socket, Peer::new(relay, None, None), None).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    for bytes in [&[0; wire::MAX_DATAGRAM + 1][..], &[0; 60_000], b"hello", b"", b"AB\x01"] {
        stranger.send_to(bytes, to).unwrap();
    }
    let end = runtime.now() + Duration::from_millis(500);
    while runtime.now() < end && runtime.counters().unreadable.total() < 5 {
        runtime.turn(end).unwrap();
    }
    let unreadable = runtime.counters().unreadable;
    assert_eq!((unreadable.oversized, unreadable.foreign, unreadable.truncated), (2, 1, 2), "{unreadable:?}");
}
