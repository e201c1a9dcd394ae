//! Files over QUIC whose receiver has more senders than places, or is attacked.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anabranch_control::flow::Bounds;
use anabranch_control::units::Bytes;
use anabranch_net::disk::DiskStore;
use anabranch_net::quic;
use anabranch_net::quic::Steering;
use anabranch_net::quic::identity::{self, Identity, PublicKey, Trust};
use anabranch_net::quic::transfer::{Done, PROTOCOL, Progress, Receiver, Sender};
use anabranch_proto::overlay::message::{FileName, Message, Offer};
use anabranch_proto::transfer::{Event, Limits, Senders, TransferError};
use noq::Endpoint;
use noq::crypto::rustls::QuicClientConfig;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

fn sender(to: SocketAddr, trust: Trust) -> Sender {
    let factory = quic::controller_with("cubic", &toml::Table::new()).unwrap();
    Sender::new(&[to], trust, None, Arc::new(factory)).unwrap()
}

/// Bytes of a file that takes long, a packet at a time.
const LONG: usize = 20_000_000;

/// A receiver that takes files until this value ends.
struct Receiving {
    folder: tempfile::TempDir,
    at: SocketAddr,
    key: PublicKey,
    happened: mpsc::Receiver<Event>,
    running: JoinHandle<()>,
}

impl Receiving {
    fn start(limits: Limits) -> Receiving {
        let folder = tempfile::tempdir().unwrap();
        let store = DiskStore::open(&folder.path().join("in")).unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let identity = Identity::generate();
        let receiver = Receiver::new(listen, &identity, store, limits, Senders::Anybody).unwrap();
        let (at, key) = (receiver.address().unwrap(), identity.public());
        let (events, happened) = mpsc::channel(64);
        let running = tokio::spawn(async move { receiver.run(events).await });
        Receiving { folder, at, key, happened, running }
    }

    fn file(&self, name: &str, length: usize) -> PathBuf {
        let path = self.folder.path().join(name);
        if !path.exists() {
            std::fs::write(&path, vec![name.as_bytes()[0]; length]).unwrap();
        }
        path
    }

    /// A file on its way to it, by a sender with or without a key.
    fn send(&self, name: &str, length: usize, own: Option<&Identity>) -> Sending {
        let factory = quic::controller_with("cubic", &toml::Table::new()).unwrap();
        let steering = factory.steering();
        let sender = Sender::new(&[self.at], Trust::Only(self.key), own, Arc::new(factory)).unwrap();
        let (path, progress) = (self.file(name, length), Arc::<Progress>::default());
        let (sender, shown) = (Arc::new(sender), Arc::clone(&progress));
        let of = Arc::clone(&sender);
        Sending { sender, progress, steering, sent: tokio::spawn(async move { of.send(&path, &shown).await }) }
    }

    /// One that takes so long that others find it, until it is let go.
    async fn send_slowly(&self, name: &str, own: Option<&Identity>) -> Sending {
        let slow = self.send(name, LONG, own);
        slow.steering.set(Bounds { fixed: Some(Bytes::new(1200)), ..Bounds::default() });
        slow.until("something is sent", |progress| progress.done.load(Ordering::Relaxed) > 0).await;
        slow
    }

    /// Waits for an event.
    async fn happens(&mut self, is_it: impl Fn(&Event) -> bool) {
        let found = async { while !is_it(&self.happened.recv().await.unwrap()) {} };
        tokio::time::timeout(Duration::from_secs(20), found).await.expect("it does not happen");
    }

    /// The names of the first `count` files that have come, in their order.
    async fn complete(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        let all = async {
            while names.len() < count {
                if let Event::Complete { name, .. } = self.happened.recv().await.unwrap() {
                    names.push(name);
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("fewer have come");
        names
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A file on its way.
struct Sending {
    sender: Arc<Sender>,
    progress: Arc<Progress>,
    steering: Steering,
    sent: JoinHandle<Result<Done, TransferError>>,
}

impl Sending {
    async fn until(&self, what: &str, is_so: impl Fn(&Progress) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !is_so(&self.progress) {
            assert!(Instant::now() < deadline && !self.sent.is_finished(), "{what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn waits_at(self, place: u64) -> Sending {
        let what = format!("place {place}");
        self.until(&what, |progress| progress.place.load(Ordering::Relaxed) == place).await;
        self
    }

    fn let_go(&self) {
        self.steering.set(Bounds::default());
    }

    async fn ends(self) -> Result<Done, TransferError> {
        tokio::time::timeout(Duration::from_secs(60), self.sent).await.expect("it does not end").unwrap()
    }
}

#[tokio::test]
async fn senders_beyond_the_places_wait_in_their_order_and_all_of_their_files_arrive() {
    let mut receiving = Receiving::start(Limits { files: 1, waiting: 3, ..Limits::default() });
    let first = receiving.send_slowly("a", None).await;
    let second = receiving.send("b", 100_000, None).waits_at(1).await;
    let leaving = receiving.send("c", 100_000, None).waits_at(2).await;
    let last = receiving.send("d", 100_000, None).waits_at(3).await;
    let refused = receiving.send("e", 100_000, None).ends().await.unwrap_err().to_string();
    assert!(refused.contains("refuses the file: 3 files wait already; try again later"), "{refused}");
    leaving.sender.close().await;
    let last = last.waits_at(2).await;
    assert!(leaving.ends().await.is_err());
    first.let_go();
    for sending in [first, second, last] {
        sending.ends().await.unwrap();
    }
    assert_eq!(receiving.complete(3).await, ["a", "b", "d"]);
    for name in ["a", "b", "d"] {
        let [sent, kept] = [name.to_owned(), format!("in/{name}")].map(|name| receiving.folder.path().join(name));
        assert!(std::fs::read(sent).unwrap() == std::fs::read(kept).unwrap(), "{name}");
    }
}

/// QUIC gives a connection up over which nothing was said for 30 s.
#[tokio::test]
async fn who_waits_for_longer_than_a_connection_is_silent_still_has_its_turn() {
    let receiving = Receiving::start(Limits { files: 1, ..Limits::default() });
    let first = receiving.send_slowly("a", None).await;
    let second = receiving.send("b", 100_000, None).waits_at(1).await;
    tokio::time::sleep(Duration::from_secs(33)).await;
    assert!(!first.sent.is_finished(), "it was too fast");
    first.let_go();
    second.ends().await.unwrap();
}

/// The connection before it has the only place, and does not know yet that its sender has gone.
#[tokio::test]
async fn a_sender_with_a_key_that_begins_again_does_not_wait_for_itself() {
    let mut receiving = Receiving::start(Limits { files: 1, ..Limits::default() });
    let own = Identity::generate();
    let before = receiving.send_slowly("a", Some(&own)).await;
    let again = receiving.send("a", LONG, Some(&own));
    again.ends().await.unwrap();
    assert_eq!(receiving.complete(1).await, ["a"]);
    let before = before.ends().await.unwrap_err().to_string();
    assert!(before.contains("has begun to send this file again"), "{before}");
}

/// Offers a file of which nothing comes, over a connection that is kept; none if the receiver takes no more of them.
async fn offer_and_hold(
    from: &Endpoint,
    at: SocketAddr,
    number: u8,
) -> Option<(noq::Connection, noq::SendStream, noq::RecvStream)> {
    let (tls, _) = identity::client_tls(None, PROTOCOL).unwrap();
    let mut config = noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    let mut transport = noq::TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(200)));
    config.transport_config(Arc::new(transport));
    let connection = from.connect_with(config, at, &Trust::Anybody.name().unwrap()).unwrap().await.ok()?;
    let (mut to, back) = connection.open_bi().await.unwrap();
    let (mut message, name) = (Vec::new(), FileName::sanitised("held"));
    Message::Offer(Offer { name, length: 1 << 20, block: 1 << 15, hash: [number; 32] }).encode(0, &mut message);
    to.write_all(&(message.len() as u16).to_be_bytes()).await.unwrap();
    to.write_all(&message).await.unwrap();
    Some((connection, to, back))
}

#[tokio::test]
async fn who_offers_a_file_and_sends_nothing_of_it_loses_its_place() {
    let stalled = anabranch_control::time::Duration::from_millis(1500);
    let mut receiving = Receiving::start(Limits { files: 1, stalled, ..Limits::default() });
    let silent = Endpoint::client("127.0.0.2:0".parse().unwrap()).unwrap();
    let held = offer_and_hold(&silent, receiving.at, 1).await.unwrap();
    receiving.happens(|event| matches!(event, Event::Offered { .. })).await;
    let second = receiving.send("b", 100_000, None).waits_at(1).await;
    second.ends().await.unwrap();
    let reason = |event: &Event| matches!(event, Event::Failed { reason, .. } if reason.contains("has come for 1.5 s"));
    receiving.happens(reason).await;
    drop(held);
}

#[tokio::test]
async fn a_flood_of_one_address_has_its_share_and_others_are_taken_and_wait() {
    let limits =
        Limits { files: 2, files_of_one: 1, waiting: 4, greetings: 4, sessions_of_one: 4, ..Limits::default() };
    let mut receiving = Receiving::start(limits);
    let flood = Endpoint::client("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut held = Vec::new();
    for number in 0..20u8 {
        held.extend(offer_and_hold(&flood, receiving.at, number).await);
    }
    assert!((3..=4).contains(&held.len()), "its share of connections: {}", held.len());
    let first = receiving.send_slowly("a", None).await;
    // Two of the flood's wait before it, as many as may.
    let second = receiving.send("b", 100_000, None).waits_at(3).await;
    first.let_go();
    first.ends().await.unwrap();
    second.ends().await.unwrap();
    assert_eq!(receiving.complete(2).await, ["a", "b"]);
    drop(held);
}

/// The first datagram of a sender of the file at `path`, as it is: anybody can read the keys in it.
async fn initial(path: &Path) -> Vec<u8> {
    let trap = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let sender = sender(trap.local_addr().unwrap(), Trust::Anybody);
    let mut datagram = vec![0; 2048];
    let progress = Arc::<Progress>::default();
    let length = tokio::select! {
        outcome = sender.send(path, &progress) => panic!("nobody answers: {outcome:?}"),
        length = trap.recv(&mut datagram) => length.unwrap(),
    };
    datagram.truncate(length);
    datagram
}

/// Whoever's address it bears gets one datagram, and less than was sent in its name (RFC 9000, 8.1.2, 21.3).
#[tokio::test]
async fn an_initial_from_an_address_that_never_answers_gets_one_retry_which_is_shorter() {
    // One connection in all.
    let limits = Limits { files: 1, waiting: 0, greetings: 0, ..Limits::default() };
    let mut receiving = Receiving::start(limits);
    let (at, path) = (receiving.at, receiving.file("stranger", 100_000));
    let datagram = initial(&path).await;
    assert!(datagram.len() >= 1200 && datagram[0] >> 4 == 0b1100, "an Initial");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    stranger.send_to(&datagram, at).unwrap();
    // A handshake's packets would be sent again by now.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    receiving.send("a", 100_000, None).ends().await.expect("who has proved no address takes no place");
    assert_eq!(receiving.complete(1).await, ["a"]);
    let (mut answered, mut answer) = (Vec::new(), [0; 2048]);
    while let Ok(length) = stranger.recv(&mut answer) {
        answered.push((answer[0] >> 4, length));
    }
    let [(kind, length)] = answered[..] else { panic!("one answer: {answered:?}") };
    assert!(kind == 0b1111 && length < datagram.len(), "a Retry: {kind:b}, {length} bytes");
}
