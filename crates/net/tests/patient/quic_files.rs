//! Files over QUIC whose receiver is attacked.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anabranch_net::disk::DiskStore;
use anabranch_net::quic;
use anabranch_net::quic::identity::{Identity, Trust};
use anabranch_net::quic::transfer::{Progress, Receiver, Sender};
use anabranch_proto::transfer::{Limits, Senders};
use tokio::sync::mpsc;

/// More than a receiver has places for.
const FORGED: usize = 24;
const PLACES: usize = 2;

fn sender(to: SocketAddr, trust: Trust) -> Sender {
    let factory = quic::controller_with("cubic", &toml::Table::new()).unwrap();
    Sender::new(&[to], trust, None, Arc::new(factory)).unwrap()
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

/// Each would take a place for as long as a handshake may take, if an address had not to be proved first
/// (RFC 9000, 8.1.2).
#[tokio::test]
async fn initials_from_addresses_that_never_answer_take_no_place_and_get_less_than_they_sent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    let store = DiskStore::open(&folder.path().join("in")).unwrap();
    let identity = Identity::generate();
    let limits = Limits { files: PLACES, files_of_one: PLACES, ..Limits::default() };
    let listen = "127.0.0.1:0".parse().unwrap();
    let receiver = Arc::new(Receiver::new(listen, &identity, store, limits, Senders::Anybody).unwrap());
    let at = receiver.address().unwrap();
    let (events, mut happened) = mpsc::channel(64);
    let running = tokio::spawn(async move { receiver.run(events).await });

    let mut strangers = Vec::new();
    for number in 0..FORGED {
        let datagram = initial(&path).await;
        assert!(datagram.len() >= 1200 && datagram[0] >> 4 == 0b1100, "an Initial");
        // Loopback has many addresses: one limit for each would not hold them.
        let stranger = UdpSocket::bind(SocketAddr::from(([127, 0, 1, number as u8 + 1], 0))).unwrap();
        stranger.set_nonblocking(true).unwrap();
        stranger.send_to(&datagram, at).unwrap();
        strangers.push((stranger, datagram.len()));
    }
    // A handshake's packets would be sent again by now.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    for (stranger, sent) in strangers {
        let (mut answered, mut answer) = (Vec::new(), [0; 2048]);
        while let Ok(length) = stranger.recv(&mut answer) {
            answered.push((answer[0] >> 4, length));
        }
        let [(kind, length)] = answered[..] else { panic!("one answer: {answered:?}") };
        assert!(kind == 0b1111 && length < sent, "a Retry, of {length} bytes for {sent}: {kind:b}");
    }
    let sent = sender(at, Trust::Only(identity.public())).send(&path, &Arc::default()).await;
    assert_eq!(sent.expect("there is a place").length, 100_000);
    running.abort();
    assert!(happened.try_recv().is_ok());
}
