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

/// Whoever's address it bears gets one datagram, and less than was sent in its name (RFC 9000, 8.1.2, 21.3).
#[tokio::test]
async fn an_initial_from_an_address_that_never_answers_gets_one_retry_which_is_shorter() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.bin");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    let store = DiskStore::open(&folder.path().join("in")).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let limits = Limits::default();
    let receiver = Receiver::new(listen, &Identity::generate(), store, limits, Senders::Anybody).unwrap();
    let at = receiver.address().unwrap();
    let (events, _happened) = mpsc::channel(64);
    let running = tokio::spawn(async move { receiver.run(events).await });
    let datagram = initial(&path).await;
    assert!(datagram.len() >= 1200 && datagram[0] >> 4 == 0b1100, "an Initial");
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    stranger.send_to(&datagram, at).unwrap();
    // A handshake's packets would be sent again by now.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    running.abort();
    let (mut answered, mut answer) = (Vec::new(), [0; 2048]);
    while let Ok(length) = stranger.recv(&mut answer) {
        answered.push((answer[0] >> 4, length));
    }
    let [(kind, length)] = answered[..] else { panic!("one answer: {answered:?}") };
    assert!(kind == 0b1111 && length < datagram.len(), "a Retry: {kind:b}, {length} bytes");
}
