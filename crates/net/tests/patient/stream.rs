//! A stream over the sockets of this host: a server and its viewers, each with its thread, as applications run
//! them.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration as StdDuration, Instant};

use anabranch_control::flow::registry::{self, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_net::pool::NoWork;
use anabranch_net::runtime::Runtime;
use anabranch_net::sessions::QuicSessions;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::content::{Proofs, Signed};
use anabranch_net::stream::link::Link;
use anabranch_net::stream::{Input, NodeEvent, ServeOptions, StreamNode, Video, WatchOptions};
use anabranch_net::udp::Socket;
use anabranch_proto::codec::{CodecError, Reader, Writer};
use anabranch_proto::session::{PeerKey, SessionConfig};
use anabranch_proto::stream::buffer::BufferConfig;
use anabranch_proto::stream::client::{Client, ClientConfig};
use anabranch_proto::stream::content::{Broadcast, ClientId, Content, Manifest, Ticket};
use anabranch_proto::stream::packet::{MAX_PACKET, PacketId, Stamp};
use anabranch_proto::stream::peer::StreamPeer;
use anabranch_proto::stream::wire::WireContent;
use tokio::sync::mpsc::Receiver;
use tokio::sync::mpsc::error::TryRecvError;

/// Long enough for whatever is expected, on a host that does much else.
const PATIENCE: StdDuration = StdDuration::from_secs(60);

/// Between packets of the source: about 0.5 Mbit/s.
const INTERVAL: StdDuration = StdDuration::from_millis(20);

/// Packets between those with which players can begin: a second.
const ENTRY_POINTS: u64 = 50;

fn upload() -> Rate {
    Rate::from_bits_per_sec(5_000_000)
}

/// The source's packet of this number: its number, and what follows from it.
fn packet(number: u64) -> Arc<[u8]> {
    let mut rng = Rng::indexed(1, "source", number);
    let mut bytes = vec![0; MAX_PACKET];
    bytes.iter_mut().for_each(|byte| *byte = rng.bits() as u8);
    bytes.into()
}

/// A server, and a thread that gives it a packet each interval.
struct Source {
    server: StreamNode,
    events: Receiver<NodeEvent>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Source {
    fn start() -> Source {
        Source::with_upload(upload())
    }

    fn with_upload(upload: Rate) -> Source {
        Source::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), PeerIdentity::generate(), upload)
    }

    fn at(listen: SocketAddr, identity: PeerIdentity, upload: Rate) -> Source {
        let options = ServeOptions { slices: 4, ..ServeOptions::new(listen, identity, upload) };
        let (server, input, events) = StreamNode::serve(options).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let thread = thread::spawn(move || feed(&input, &stop));
        Source { server, events, is_over, thread: Some(thread) }
    }

    fn link(&self) -> Link {
        self.server.link().clone()
    }

    fn wait_for(&mut self, what: &str, mut is_it: impl FnMut(&NodeEvent) -> bool) {
        wait_for(&mut self.events, what, &mut is_it);
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn feed(input: &Input, is_over: &AtomicBool) {
    let began = Instant::now();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        let video = Video { bytes: packet(number), is_entry_point: number % ENTRY_POINTS == 0 };
        if input.push(video).is_err() {
            return;
        }
        let next = began + INTERVAL * (number as u32 + 1);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn watch(link: &Link) -> (StreamNode, Receiver<NodeEvent>) {
    let listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let options = WatchOptions::new(link.clone(), PeerIdentity::generate(), upload());
    StreamNode::watch(WatchOptions { listen, ..options }).unwrap()
}

#[track_caller]
fn wait_for(events: &mut Receiver<NodeEvent>, what: &str, is_it: &mut dyn FnMut(&NodeEvent) -> bool) {
    let end = Instant::now() + PATIENCE;
    let mut seen = Vec::new();
    loop {
        match events.try_recv() {
            Ok(event) if is_it(&event) => return,
            Ok(NodeEvent::Packet { .. }) => {}
            Ok(event) => seen.push(event),
            Err(TryRecvError::Empty) => thread::sleep(StdDuration::from_millis(5)),
            Err(TryRecvError::Disconnected) => panic!("the peer has stopped before {what}; {seen:?}"),
        }
        assert!(Instant::now() < end, "{what} never came; {seen:?}");
    }
}

/// Takes this many packets, or as many as gaps stand for: how many are missing.
#[track_caller]
fn take(events: &mut Receiver<NodeEvent>, count: u64, next: &mut Option<u64>) -> u64 {
    let (mut taken, mut missing) = (0, 0);
    wait_for(events, "the stream", &mut |event| {
        match event {
            NodeEvent::Packet { number, bytes } => {
                assert_eq!(next.unwrap_or(*number), *number, "packets come in order");
                assert!(*bytes == packet(*number), "packet {number} is not the source's");
                *next = Some(number + 1);
                taken += 1;
            }
            NodeEvent::Gap { number, packets } => {
                assert_eq!(next.unwrap_or(*number), *number, "gaps are told where they are");
                *next = Some(number + packets);
                (taken, missing) = (taken + packets, missing + packets);
            }
            _ => {}
        }
        taken >= count
    });
    missing
}

#[test]
fn what_eight_viewers_get_is_the_source_from_their_beginning_on_and_much_of_it_comes_from_each_other() {
    // The server bears two or three copies of the stream.
    let source = Source::with_upload(Rate::from_bits_per_sec(1_500_000));
    let mut viewers: Vec<_> = (0..8).map(|_| watch(&source.link())).collect();
    for (viewer, events) in &mut viewers {
        let mut next = None;
        // What comes right after the beginning is in nobody's hands yet.
        take(events, 100, &mut next);
        let missing = take(events, 300, &mut next);
        assert_eq!(missing, 0, "{:?}", viewer.snapshot());
    }
    thread::sleep(StdDuration::from_millis(1500));
    let figures: Vec<_> = viewers.iter().map(|(viewer, _)| viewer.snapshot()).collect();
    assert!(figures.iter().all(|figures| figures.client.is_some() && figures.forged_packets == 0), "{figures:?}");
    let shares: f64 = figures.iter().filter_map(|figures| figures.server_share).sum::<f64>() / 8.0;
    assert!(shares < 0.8, "{shares}");
    let server = source.server.snapshot();
    let overlay = server.overlay.as_ref().map(|(_, view)| (view.viewers.len(), view.trees.len()));
    assert_eq!((overlay, server.slices), (Some((8, 4)), Some(4)));
    // Viewers know to whom they push, and nothing of the others until somebody looks.
    let pushed: usize = figures.iter().flat_map(|figures| &figures.children_by_slice).map(Vec::len).sum();
    assert!(pushed > 4 && figures.iter().all(|figures| figures.overlay.is_none()), "{figures:?}");
    viewers[0].0.look();
    let end = Instant::now() + PATIENCE;
    while viewers[0].0.snapshot().overlay.is_none() {
        assert!(Instant::now() < end, "nobody tells it");
        thread::sleep(StdDuration::from_millis(20));
    }
    let (_, view) = viewers[0].0.snapshot().overlay.unwrap();
    assert!(view.watching == 8 && view.delivered_bytes > 0 && view.load.sent_bytes > 0, "{view:?}");
}

#[test]
fn who_stops_says_goodbye() {
    let mut source = Source::start();
    let (viewer, mut events) = watch(&source.link());
    take(&mut events, 20, &mut None);
    source.wait_for("a viewer", |event| matches!(event, NodeEvent::Joined(_)));
    viewer.stop().unwrap();
    // Somebody who is only not heard of any more is gone after ten seconds.
    source.wait_for("a goodbye", |event| matches!(event, NodeEvent::Left { was_silent: false, .. }));
    let (viewer, mut events) = watch(&source.link());
    take(&mut events, 20, &mut None);
    drop(source);
    wait_for(&mut events, "the server's end", &mut |event| matches!(event, NodeEvent::Unreachable(_)));
    assert!(viewer.is_running());
}

#[test]
fn viewers_of_a_server_that_is_started_again_watch_what_it_sends_then() {
    let identity = PeerIdentity::generate();
    let mut source = Source::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), identity.clone(), upload());
    let (at, mut viewers) = (source.server.local_addr(), [watch(&source.link()), watch(&source.link())]);
    for (_, events) in &mut viewers {
        // So many that what begins again would be below all that is remembered.
        take(events, 200, &mut None);
    }
    source.wait_for("both", |event| matches!(event, NodeEvent::Joined(_)));
    drop(source);
    let _again = Source::at(at, identity, upload());
    for (viewer, events) in &mut viewers {
        wait_for(events, "another broadcast", &mut |event| matches!(event, NodeEvent::Restarted));
        let missing = take(events, 200, &mut None);
        let figures = viewer.snapshot();
        assert!(missing <= 20 && figures.forged_packets == 0, "{missing} missing, {figures:?}");
    }
}

#[test]
fn a_link_with_another_key_is_refused_in_words() {
    let source = Source::start();
    let link = Link::new(PeerIdentity::generate().public(), &[source.server.local_addr()]).unwrap();
    let (_viewer, mut events) = watch(&link);
    wait_for(
        &mut events,
        "a refusal",
        &mut |event| matches!(event, NodeEvent::Unreachable(why) if why.contains("another key than the link says")),
    );
    let (_viewer, mut events) = watch(&source.link());
    take(&mut events, 20, &mut None);
}

/// As [`Signed`], but what leaves is not what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Poison;

fn honest(manifest: &Manifest<Poison>) -> Manifest<Signed> {
    let Manifest { generation, first, packets, proofs } = manifest.clone();
    Manifest { generation, first, packets, proofs }
}

impl Content for Poison {
    type Packet = Arc<[u8]>;
    type Proofs = Proofs;
    type Signature = [u8; 64];
    type Secret = PeerIdentity;

    const SIGNATURE_LENGTH: usize = Signed::SIGNATURE_LENGTH;

    fn public(secret: &PeerIdentity) -> PeerKey {
        Signed::public(secret)
    }

    fn prove(
        secret: &PeerIdentity,
        broadcast: Broadcast,
        generation: u32,
        first: PacketId,
        packets: &[(Stamp, Arc<[u8]>)],
    ) -> Proofs {
        Signed::prove(secret, broadcast, generation, first, packets)
    }

    fn sign_ticket(
        secret: &PeerIdentity,
        broadcast: Broadcast,
        client: ClientId,
        key: &PeerKey,
        expires: Stamp,
    ) -> [u8; 64] {
        Signed::sign_ticket(secret, broadcast, client, key, expires)
    }

    fn packet_length(packet: &Arc<[u8]>) -> usize {
        packet.len()
    }

    fn proofs_length(proofs: &Proofs) -> usize {
        Signed::proofs_length(proofs)
    }

    fn is_signed(source: &PeerKey, broadcast: Broadcast, manifest: &Manifest<Poison>) -> bool {
        Signed::is_signed(source, broadcast, &honest(manifest))
    }

    fn is_genuine(manifest: &Manifest<Poison>, id: PacketId, stamp: Stamp, packet: &Arc<[u8]>) -> bool {
        Signed::is_genuine(&honest(manifest), id, stamp, packet)
    }

    fn is_ticket(source: &PeerKey, broadcast: Broadcast, ticket: &Ticket<Poison>) -> bool {
        let Ticket { client, key, expires, signature } = ticket.clone();
        Signed::is_ticket(source, broadcast, &Ticket { client, key, expires, signature })
    }
}

impl WireContent for Poison {
    fn write_packet(packet: &Arc<[u8]>, writer: &mut Writer<'_>) {
        writer.bytes(&packet[..packet.len() - 1]);
        writer.u8(packet[packet.len() - 1] ^ 1);
    }

    fn read_packet(bytes: &[u8]) -> Result<Arc<[u8]>, CodecError> {
        Signed::read_packet(bytes)
    }

    fn write_proofs(proofs: &Proofs, writer: &mut Writer<'_>) {
        Signed::write_proofs(proofs, writer);
    }

    fn read_proofs(packets: u16, reader: &mut Reader<'_>) -> Result<Proofs, CodecError> {
        Signed::read_proofs(packets, reader)
    }

    fn write_signature(signature: &[u8; 64], writer: &mut Writer<'_>) {
        Signed::write_signature(signature, writer);
    }

    fn read_signature(reader: &mut Reader<'_>) -> Result<[u8; 64], CodecError> {
        Signed::read_signature(reader)
    }
}

/// A viewer that runs until it is killed: its packets are never answered again, and it says no goodbye.
struct Doomed {
    is_killed: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Doomed {
    fn watch<C: WireContent + Send>(link: &Link) -> Doomed
    where
        Client<SocketAddr, C>: Send,
        QuicSessions<StreamPeer<SocketAddr, C>>: Send,
    {
        let buffer = BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 };
        let server = link.look_up().unwrap()[0];
        let config = ClientConfig { server, source: link.key, upload: upload(), buffer };
        let cubic = registry::find("cubic").unwrap();
        let controller = cubic.make(&Setup::new(SessionConfig::PACKET, Time::ZERO), &toml::Table::new()).unwrap();
        let (identity, rng) = (PeerIdentity::generate(), Rng::stream(1, "doomed"));
        let is_killed = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_killed);
        let thread = thread::spawn(move || {
            let app = StreamPeer::Client(Client::<SocketAddr, C>::new(config));
            let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let local = socket.local_addr().unwrap();
            let peer = QuicSessions::new(app, SessionConfig::default(), &identity, local, controller, &rng).unwrap();
            let mut runtime = Runtime::new(NoWork).unwrap();
            runtime.add_gathering_in_order(socket, peer).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let soon = runtime.now() + Duration::from_millis(20);
                runtime.turn(soon).unwrap();
                while runtime.poll_event().is_some() {}
            }
        });
        Doomed { is_killed, thread: Some(thread) }
    }

    fn kill(&mut self) {
        self.is_killed.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn who_dies_without_a_word_or_sends_poison_spoils_nothing_for_others() {
    let mut source = Source::start();
    let mut victim = Doomed::watch::<Signed>(&source.link());
    let poisoner = Doomed::watch::<Poison>(&source.link());
    source.wait_for("both", |event| matches!(event, NodeEvent::Joined(_)));
    source.wait_for("both", |event| matches!(event, NodeEvent::Joined(_)));
    let mut viewers: Vec<_> = (0..6).map(|_| (watch(&source.link()), None)).collect();
    for ((_, events), next) in &mut viewers {
        take(events, 150, next);
    }
    victim.kill();
    let mut missing = 0;
    for ((_, events), next) in &mut viewers {
        missing += take(events, 600, next);
    }
    // Of 3600 packets; each byte that came was compared with the source's.
    let forged: u64 = viewers.iter().map(|((viewer, _), _)| viewer.snapshot().forged_packets).sum();
    assert!(missing <= 36, "{missing} missing, {forged} forged");
    assert!(forged > 0, "nobody has got poison");
    source.wait_for("the victim's end", |event| matches!(event, NodeEvent::Left { .. }));
    drop(poisoner);
}
