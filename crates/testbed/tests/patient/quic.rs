//! Real QUIC over loopback: every controller carries data, through quinn and through noq.

use std::sync::Arc;

use anabranch_control::flow::Bounds;
use anabranch_control::flow::registry::CONTROLLERS;
use anabranch_control::units::Bytes;
use anabranch_net::disk::DiskStore;
use anabranch_net::quic::identity::{self, Identity, Trust};
use anabranch_net::quic::transfer::{PROTOCOL, Progress, Receiver, Sender};
use anabranch_net::quic::{self, ControllerError};
use anabranch_proto::overlay::message::{Code, FileName, Message, Offer, Report};
use anabranch_proto::transfer::{Event, Limits, Senders, TransferError};
use anabranch_testbed::bulk::{Bulk, Library};

#[path = "../../../net/examples/quinn.rs"]
mod example;

/// 1 MB; where only one packet may be in flight each waits for a delayed ACK, so less.
fn bytes(controller: &str) -> u64 {
    if controller == "min-delay" { 100_000 } else { 1_000_000 }
}

fn every_controller_carries(library: Library) {
    for entry in CONTROLLERS {
        let factory = Arc::new(quic::controller_with(entry.name, &entry.example()).unwrap().with_seed(1));
        let steering = factory.steering();
        let bulk = Bulk { library, factory: Some(factory), bytes: bytes(entry.name), link: None };
        let measured = bulk.run().unwrap();
        assert_eq!(measured.arrived, bulk.bytes, "{}", entry.name);
        let flow = measured.flow.expect("our controller ran");
        assert!(flow.delivered >= Bytes::new(bulk.bytes), "{}: {flow:?}", entry.name);
        assert!(flow.smoothed_rtt.is_some(), "{}: {flow:?}", entry.name);
        assert!(steering.flows().is_empty(), "{}: the connection is over", entry.name);
    }
}

#[test]
fn every_controller_carries_data_over_quinn() {
    every_controller_carries(Library::Quinn);
}

#[test]
fn every_controller_carries_data_over_noq() {
    every_controller_carries(Library::Noq);
}

#[test]
fn the_example_runs() {
    example::main().unwrap();
}

#[test]
fn a_fixed_window_holds_on_a_real_connection() {
    let factory = Arc::new(quic::controller("cubic").unwrap());
    let fixed = Bounds { fixed: Some(Bytes::new(6000)), ..Bounds::default() };
    factory.steering().set(fixed);
    for library in [Library::Quinn, Library::Noq] {
        let bulk = Bulk { library, factory: Some(factory.clone()), bytes: 300_000, link: None };
        let measured = bulk.run().unwrap();
        assert_eq!(measured.arrived, bulk.bytes);
        assert_eq!(measured.flow.unwrap().window, Bytes::new(6000), "{library}");
    }
}

#[test]
fn a_wrong_name_or_parameter_is_refused_with_what_was_expected() {
    let unknown = quic::controller("cobic").unwrap_err();
    assert!(matches!(unknown, ControllerError::Unknown(_)));
    assert!(unknown.to_string().contains("did you mean \"cubic\"?"), "{unknown}");
    let wrong = quic::controller_with("cubic", &"beta = 3".parse().unwrap()).unwrap_err();
    assert!(wrong.to_string().contains("controller \"cubic\": beta = 3 is not between"), "{wrong}");
    assert!(quic::controller("remy").unwrap_err().to_string().contains("rules"));
}

const LOCAL: &str = "127.0.0.1:0";

/// What TLS asks for.
fn name_of(identity: &Identity) -> String {
    Trust::Only(identity.public()).name().unwrap()
}

/// A message with its length before it.
fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn offer(content: &[u8]) -> Vec<u8> {
    let hash = *blake3::hash(content).as_bytes();
    let offer = Offer { name: FileName::sanitised("a"), length: content.len() as u64, block: 1000, hash };
    let mut message = Vec::new();
    Message::Offer(offer).encode(0, &mut message);
    framed(&message)
}

/// Says `said` to a receiver and ends the stream; what the receiver makes of it.
async fn made_of(said: &[u8], receiver: &Receiver, identity: &Identity) -> Event {
    let (events, mut happened) = tokio::sync::mpsc::channel(4);
    let (tls, _) = identity::client_tls(None, PROTOCOL).unwrap();
    let tls = noq::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = noq::Endpoint::client(LOCAL.parse().unwrap()).unwrap();
    endpoint.set_default_client_config(noq::ClientConfig::new(Arc::new(tls)));
    let says = async {
        let connection = endpoint.connect(receiver.address().unwrap(), &name_of(identity)).unwrap().await.unwrap();
        let (mut to, _from) = connection.open_bi().await.unwrap();
        // The receiver may have heard enough before the end.
        let _ = to.write_all(said).await;
        let _ = to.finish();
        connection.closed().await
    };
    let hears = async {
        loop {
            match happened.recv().await.unwrap() {
                Event::Offered { .. } | Event::Begun { .. } => {}
                end => return end,
            }
        }
    };
    tokio::select! {
        _ = receiver.run(events) => panic!("the receiver ends"),
        event = async { tokio::join!(says, hears).1 } => event,
    }
}

#[tokio::test]
async fn what_a_hostile_sender_says_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::generate();
    for (said, says) in [
        (b"".to_vec(), "connection was lost"),
        (vec![0xff; 600], "a message that is too long"),
        (vec![0], "connection was lost"),
        (framed(&[0; 100]), "something other than an offer"),
        (framed(&[3; 9]), "something other than an offer"),
        (offer(b"whole"), "less than it has offered"),
        ([&offer(b"whole")[..], b"whole and more"].concat(), "more than it has offered"),
        ([&offer(b"whole")[..], b"whale"].concat(), "hash is wrong"),
    ] {
        let store = DiskStore::open(folder.path()).unwrap();
        let receiver =
            Receiver::new(LOCAL.parse().unwrap(), &identity, store, Limits::default(), Senders::Anybody).unwrap();
        match made_of(&said, &receiver, &identity).await {
            Event::Failed { reason, .. } => assert!(reason.contains(says), "{reason}, not {says}"),
            event => panic!("{event:?} of {said:?}"),
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{says}");
    }
}

/// A client at whose address nobody hears the answers, as when its address is another's: what it says
/// reaches `receiver`, and nothing comes back.
async fn deaf(receiver: std::net::SocketAddr, identity: &Identity) -> (noq::Endpoint, noq::Connecting) {
    let ear = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
    let address = ear.local_addr().unwrap();
    tokio::spawn(async move {
        let mouth = tokio::net::UdpSocket::bind(LOCAL).await.unwrap();
        let mut datagram = vec![0; 2000];
        while let Ok((length, _)) = ear.recv_from(&mut datagram).await {
            let _ = mouth.send_to(&datagram[..length], receiver).await;
        }
    });
    let (tls, _) = identity::client_tls(None, PROTOCOL).unwrap();
    let tls = noq::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = noq::Endpoint::client(LOCAL.parse().unwrap()).unwrap();
    endpoint.set_default_client_config(noq::ClientConfig::new(Arc::new(tls)));
    let connecting = endpoint.connect(address, &name_of(identity)).unwrap();
    (endpoint, connecting)
}

#[tokio::test]
async fn who_does_not_hear_the_answers_takes_no_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    std::fs::write(&file, "content").unwrap();
    let identity = Identity::generate();
    let store = DiskStore::open(&folder.path().join("in")).unwrap();
    let limits = Limits { files: 1, ..Limits::default() };
    let receiver = Receiver::new(LOCAL.parse().unwrap(), &identity, store, limits, Senders::Anybody).unwrap();
    let address = receiver.address().unwrap();
    let (events, mut happened) = tokio::sync::mpsc::channel(16);
    let sends = async {
        let mut strangers = Vec::new();
        for _ in 0..5 {
            strangers.push(deaf(address, &identity).await);
        }
        // Their greetings have come, and come again.
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        let factory = Arc::new(quic::controller("reno").unwrap());
        let sender = Sender::new(&[address], Trust::Only(identity.public()), None, factory).unwrap();
        let sent = sender.send(&file, &Arc::<Progress>::default()).await;
        assert_eq!(sent.unwrap().name, "a");
    };
    tokio::select! {
        () = receiver.run(events) => panic!("the receiver ends"),
        () = sends => {}
    }
    let first = happened.recv().await.unwrap();
    // Of the one place that there is: a stranger that was let in would have had it for 10 s.
    assert!(matches!(first, Event::Offered { .. }), "nobody else was let in: {first:?}");
}

#[tokio::test]
async fn one_address_gets_its_share_of_the_connections_and_gives_them_back() {
    let folder = tempfile::tempdir().unwrap();
    let identity = Identity::generate();
    let store = DiskStore::open(folder.path()).unwrap();
    let limits = Limits { sessions_of_one: 2, ..Limits::default() };
    let receiver = Receiver::new(LOCAL.parse().unwrap(), &identity, store, limits, Senders::Anybody).unwrap();
    let address = receiver.address().unwrap();
    let (tls, _) = identity::client_tls(None, PROTOCOL).unwrap();
    let tls = noq::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let endpoint = noq::Endpoint::client(LOCAL.parse().unwrap()).unwrap();
    endpoint.set_default_client_config(noq::ClientConfig::new(Arc::new(tls)));
    let connect = async || endpoint.connect(address, &name_of(&identity)).unwrap().await;
    let (events, _happened) = tokio::sync::mpsc::channel(16);
    let takes = async {
        let (first, _second) = (connect().await.unwrap(), connect().await.unwrap());
        assert!(matches!(connect().await, Err(noq::ConnectionError::ConnectionClosed(_))), "it has its share");
        first.close(0u32.into(), b"");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while connect().await.is_err() {
            assert!(std::time::Instant::now() < deadline, "there is room for one again");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = receiver.run(events) => panic!("the receiver ends"),
        () = takes => {}
    }
}

#[tokio::test]
async fn a_receivers_words_are_made_printable_and_nonsense_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    std::fs::write(&file, "content").unwrap();
    let report = |code, text| {
        let mut message = Vec::new();
        Report { proof: 0, code, text }.encode(&mut message);
        framed(&message)
    };
    for (answer, says) in [
        (report(Code::Refused, "no\x1b[2J"), r"the receiver refuses the file: no\u{1b}[2J"),
        (report(Code::Complete, "a"), "a report out of turn"),
        (framed(&[9; 20]), "a report that cannot be read"),
        (vec![0xff; 9], "a message that is too long"),
    ] {
        let identity = Identity::generate();
        let tls = identity::server_tls(&identity, PROTOCOL).unwrap();
        let tls = noq::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
        let server = noq::ServerConfig::with_crypto(Arc::new(tls));
        let endpoint = noq::Endpoint::server(server, LOCAL.parse().unwrap()).unwrap();
        let address = endpoint.local_addr().unwrap();
        let answers = tokio::spawn(async move {
            let connection = endpoint.accept().await.unwrap().await.unwrap();
            let (mut to, _from) = connection.accept_bi().await.unwrap();
            to.write_all(&answer).await.unwrap();
            connection.closed().await;
        });
        let factory = Arc::new(quic::controller("reno").unwrap());
        let sender = Sender::new(&[address], Trust::Only(identity.public()), None, factory).unwrap();
        let error = sender.send(&file, &Arc::<Progress>::default()).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}, not {says}");
        assert!(!matches!(error, TransferError::Connection(_)));
        sender.close().await;
        answers.await.unwrap();
    }
}
