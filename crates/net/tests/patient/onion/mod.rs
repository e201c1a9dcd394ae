//! Authorities, relays and users of the onion overlay, on real sockets: each relay has a loopback address in a network
//! of its own.

mod datagrams;
mod packets;
mod programs;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};

use anabranch_control::time::Duration;
use anabranch_net::clock::Clock;
use anabranch_net::onion::authority::AuthorityNode;
use anabranch_net::onion::network_file::NetworkFile;
use anabranch_onion::directory::{Authority, AuthorityConfig, AuthorityState, SecretKey, WallClock};
use anabranch_onion::packet::PacketsPerKey;

/// Longer than everything takes on a busy machine.
const PATIENCE: StdDuration = StdDuration::from_secs(120);

/// What runs, until this is dropped.
struct Running {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok(), "a thread panicked");
        }
    }
}

impl Running {
    fn start(&mut self, run: impl FnOnce(&AtomicBool) + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(thread::spawn(move || run(&stop)));
    }
}

/// A network of three authorities, of which `threshold` must sign, and epochs of `epoch_s`.
fn network(threshold: usize, hosts: u8, epoch_s: u64) -> (NetworkFile, Vec<SecretKey>, Vec<std::net::TcpListener>) {
    let keys: Vec<SecretKey> = (0..3).map(|_| SecretKey::from_seed(&anabranch_net::setup::secret())).collect();
    let listeners: Vec<_> = (hosts..hosts + 3)
        .map(|host| std::net::TcpListener::bind(SocketAddr::from(([127, 0, host, 1], 0))).expect("loopback"))
        .collect();
    let authorities =
        keys.iter().zip(&listeners).map(|(key, at)| (key.public(), at.local_addr().expect("it is bound"))).collect();
    let (round, packets_per_key) = (Duration::from_millis(200), PacketsPerKey::STANDARD);
    let config = AuthorityConfig { authorities, threshold, epoch_s, round, valid_epochs: 3, packets_per_key };
    (NetworkFile { authorities: config }, keys, listeners)
}

fn authority(network: &NetworkFile, key: SecretKey, listener: std::net::TcpListener, stop: &AtomicBool) {
    let clock = Clock::start();
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let wall = WallClock::new(clock.now(), wall);
    let config = network.authorities.clone();
    let others = config.authorities.iter().filter(|(other, _)| *other != key.public()).map(|(_, at)| *at).collect();
    let authority = Authority::new(config, key, wall, clock.now(), AuthorityState::default()).expect("it is right");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let stopped = async {
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(StdDuration::from_millis(20)).await;
            }
        };
        let node = AuthorityNode::new(authority, others, clock, listener);
        node.run(|_, _| Ok::<(), Infallible>(()), stopped).await.unwrap_or_else(|error| match error {});
    });
}
