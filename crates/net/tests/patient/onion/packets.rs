//! A packet over the relays of a signed list, and its answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_net::clock::Clock;
use anabranch_net::onion::follow::{Follower, Following, Found};
use anabranch_net::onion::network_file::NetworkFile;
use anabranch_net::onion::relay::{OnionRelay, RelayNews, RelaySettings};
use anabranch_net::udp::Socket;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::{PublicKey as RelayKey, Real};
use anabranch_onion::directory::{Document, ExitPolicy, PublicKey, Remembered, SecretKey};
use anabranch_onion::link::Attachment;
use anabranch_onion::node::{Frame, Kind, Service};
use anabranch_onion::packet::{BODY, Datagram, Hop, Label, PathKeys, body, body_mut};
use anabranch_onion::reply::{First, MadeBlocks, OpenError, ReplyBlock};
use anabranch_proto::machine::Wire;
use rand::rngs::StdRng;

use super::{PATIENCE, Running, authority, network};

/// What the relays offer.
const ECHO: Label = Label(*b"the echo");

/// Sends back what comes, by the block that lies in front of it.
#[derive(Default)]
struct Echo(VecDeque<(First, Datagram)>);

impl Service for Echo {
    type Event = Infallible;

    fn on_body(&mut self, _: Time, label: Label, body: &[u8; BODY], _: &mut Vec<Infallible>) {
        let block = body.first_chunk().and_then(ReplyBlock::from_bytes).filter(|_| label == ECHO);
        let Some(block) = block else { return };
        let mut datagram = [0; 1400];
        body_mut(&mut datagram)[..6].copy_from_slice(&body[ReplyBlock::BYTES..ReplyBlock::BYTES + 6]);
        let first = block.first();
        let _ = block.seal::<Real>(&mut datagram);
        self.0.push_back((first, datagram));
    }

    fn on_timer(&mut self, _: Time, _: &mut Vec<Infallible>) {}

    fn poll(&mut self, _: Time, datagram: &mut Datagram) -> Option<First> {
        let (first, answer) = self.0.pop_front()?;
        *datagram = answer;
        Some(first)
    }

    fn timer(&self, now: Time) -> Time {
        if self.0.is_empty() { Time::MAX } else { now }
    }
}

fn relay(network: &NetworkFile, host: u8, identity: SecretKey, stop: &AtomicBool) {
    let socket = Socket::bind(SocketAddr::from(([127, 0, host, 1], 0))).expect("loopback");
    let settings = RelaySettings {
        network: network.clone(),
        identity,
        address: socket.local_addr().expect("it is bound"),
        limit: Rate::from_bytes_per_sec(4_000_000),
        family: None,
        exit: ExitPolicy::default(),
        service: None,
        remembered: Remembered::default(),
        keep: Box::new(|_| Ok(())),
    };
    let mut relay = OnionRelay::start(settings, socket, Echo::default()).expect("it starts");
    while !stop.load(Ordering::Relaxed) {
        relay.turn(relay.now() + Duration::from_millis(20)).expect("it turns");
        while let Some(news) = relay.poll_news() {
            assert!(!matches!(news, RelayNews::Directory(Found::Refused { .. } | Found::Disbelieved(_))), "{news:?}");
        }
    }
}

fn follow(network: &NetworkFile) -> Follower {
    Follower::start(Following {
        network: network.clone(),
        remembered: Remembered::default(),
        from: None,
        describe: None,
        keep: Box::new(|_| Ok(())),
        wake: Box::new(|| {}),
    })
    .expect("it follows")
}

/// The next list that has `relays` relays with keys for its epoch.
fn document(follower: &mut Follower, relays: usize) -> Document {
    let begun = Instant::now();
    let mut last = None;
    while begun.elapsed() < PATIENCE {
        match follower.poll() {
            Some(Found::Document(document)) if document.len() == relays => return *document,
            Some(found) => last = Some(found),
            None => thread::sleep(StdDuration::from_millis(10)),
        }
    }
    panic!("no list names {relays} relays; the last that was found: {last:?}");
}

/// What the echo sends back, and how it came; none if nothing does in a second.
fn echo(document: &Document, path: [RelayIndex; 3], socket: &UdpSocket, keys: &mut PathKeys<Real>) -> Option<[u8; 6]> {
    let hop = |relay: RelayIndex| {
        let member = document.member(relay).expect("a member");
        let key = RelayKey(member.descriptor.key_of(document.epoch).expect("a key"));
        Hop { relay, key, wait: Duration::ZERO }
    };
    let address = |relay: RelayIndex| document.member(relay).expect("a member").descriptor.address;
    let clock = Clock::start();
    let mut rng: StdRng = rand::make_rng();
    let guard = path[0];
    let label = Label(anabranch_net::setup::random_seed().to_be_bytes());
    let mut attachment = Attachment::new(label);
    let mut blocks = MadeBlocks::new(10);
    keys.begin_epoch(document.epoch, [guard]);
    let (mut frame, mut bytes) = (Frame::default(), vec![0; 2000]);
    let mut is_sent = false;
    while clock.now() < Time::ZERO + Duration::SECOND {
        let now = clock.now();
        if let Some(said) = attachment.poll(now) {
            socket.send_to(&said.encode(), address(guard)).expect("it is sent");
        }
        if attachment.is_attached(now) && !is_sent {
            let back = path.map(hop);
            let back = [back[2], back[1], back[0]];
            let (_, block) = blocks.make(&mut *keys, &back, label, now, &mut rng).expect("a path");
            let body = body_mut(&mut frame.datagram);
            body[..ReplyBlock::BYTES].copy_from_slice(&block.to_bytes());
            body[ReplyBlock::BYTES..ReplyBlock::BYTES + 6].copy_from_slice(b"hello!");
            let _ = keys.seal(&path.map(hop), ECHO, &mut rng, &mut frame.datagram).expect("a path");
            socket.send_to(&frame.datagram, address(guard)).expect("it is sent");
            is_sent = true;
        }
        let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
        assert_eq!(from, address(guard), "nobody but the guard talks to a user");
        frame.read(&bytes[..length]).expect("a frame");
        match frame.kind {
            Kind::Link(said) => attachment.on_frame(now, &said),
            Kind::Packet => {
                let opened = match blocks.open(keys, &mut frame.datagram) {
                    // What an earlier attempt asked for comes late where the machine is busy.
                    Err(OpenError::Unknown) => continue,
                    opened => opened.expect("an answer"),
                };
                assert_eq!(opened.relays, [path[2], path[1], path[0]]);
                return body(&frame.datagram).first_chunk().copied();
            }
        }
    }
    None
}

#[test]
fn a_packet_passes_the_relays_of_a_signed_list_and_its_answer_comes_back_epoch_after_epoch() {
    let (network, keys, listeners) = network(2, 1, 3);
    let mut running = Running { stop: Arc::default(), threads: Vec::new() };
    let mut authorities = keys.into_iter().zip(listeners);
    // One of three is silent.
    drop(authorities.next());
    for (key, listener) in authorities {
        let network = network.clone();
        running.start(move |stop| authority(&network, key, listener, stop));
    }
    let mut identities: Vec<PublicKey> = Vec::new();
    for host in 11..=15 {
        let (network, identity) = (network.clone(), SecretKey::from_seed(&anabranch_net::setup::secret()));
        identities.push(identity.public());
        running.start(move |stop| relay(&network, host, identity, stop));
    }
    identities.sort_unstable();
    let mut follower = follow(&network);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.set_read_timeout(Some(StdDuration::from_millis(20))).expect("a time");
    let mut keys = PathKeys::<Real>::new(network.authorities.packets_per_key);
    let mut epochs = Vec::new();
    let begun = Instant::now();
    while epochs.len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "answers came in the epochs {epochs:?} alone");
        let document = document(&mut follower, 5);
        let listed: Vec<PublicKey> = document.relays().map(|(_, member)| member.descriptor.identity).collect();
        assert_eq!(listed, identities);
        // Relays take the list up as they hear of it.
        let path = [RelayIndex(3), RelayIndex(0), RelayIndex(4)];
        for _ in 0..3 {
            match echo(&document, path, &socket, &mut keys) {
                Some(said) => {
                    assert_eq!(&said, b"hello!");
                    epochs.push(document.epoch);
                    break;
                }
                None => thread::sleep(StdDuration::from_millis(100)),
            }
        }
    }
}
