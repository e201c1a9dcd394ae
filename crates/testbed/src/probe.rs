//! Datagrams that say when they were sent, from one namespace to another: what an emulated
//! network does to them is seen at its ends, by one clock.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_control::time::{Duration, Time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::namespace::{Namespace, TestbedError};
use crate::realtime;
use anabranch_net::clock::{Clock, std_duration};
use anabranch_net::udp::{Batch, Socket};

/// Bytes of the headers of IPv4 (without options) and UDP.
const HEADERS: usize = 20 + 8;

/// A datagram's own: its number and its time.
const STAMP: usize = 8 + 8;

/// Where probes are received.
const PORT: u16 = 9;

/// A sender that sleeps wakes up after this at the earliest, and sends all that is due.
const TICK: Duration = Duration::from_nanos(50_000);

/// How long the receiver waits for more once the sender has ended.
const PATIENCE: Duration = Duration::from_millis(200);

/// What is sent, by threads that go before all others if the system allows it, so that their
/// own waiting for a processor is no part of what is measured.
#[derive(Clone, Copy, Debug)]
pub struct ProbeConfig {
    /// Who sends.
    pub source: Ipv4Addr,
    /// Whom it is for.
    pub destination: Ipv4Addr,
    /// Length of each IP packet in bytes.
    pub packet: usize,
    /// From one packet to the next; zero sends as fast as the system allows.
    pub interval: Duration,
    /// How long packets are sent.
    pub length: Duration,
    /// Longest delay that is waited for.
    pub longest_delay: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// When each packet was sent.
    pub sent: Vec<Time>,
    /// The number of each packet that arrived and when it did, in the order of arrival.
    pub received: Vec<(u64, Time)>,
}

/// Sends and receives probes; it returns when all is over.
pub fn run(sender: &Namespace, receiver: &Namespace, clock: Clock, config: ProbeConfig) -> Result<Probe, TestbedError> {
    if config.packet < HEADERS + STAMP {
        let message = format!("a probe of {} B: it needs {} B at least", config.packet, HEADERS + STAMP);
        return Err(TestbedError::Invalid(message));
    }
    let bind = |namespace: &Namespace, address: Ipv4Addr| {
        let bound = namespace.run(|| Socket::bind(SocketAddr::from((address, PORT))))?;
        bound.map_err(TestbedError::system(format!("bind a socket to {address}")))
    };
    let source = bind(sender, config.source)?;
    let destination = bind(receiver, config.destination)?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiving = scope.spawn(|| receive(&destination, clock, &is_over, config.longest_delay + PATIENCE));
        let sent = scope.spawn(|| send(&source, clock, config)).join();
        let sent = sent.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        is_over.store(true, Ordering::Relaxed);
        let received = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(Probe { sent: sent?, received: received? })
    })
}

fn send(socket: &Socket, clock: Clock, config: ProbeConfig) -> Result<Vec<Time>, TestbedError> {
    realtime::sleep_exactly();
    realtime::go_first();
    let to = SocketAddr::from((config.destination, PORT));
    let mut bytes = vec![0; config.packet - HEADERS];
    let mut sent = Vec::new();
    let began = clock.now();
    let mut due = began;
    while due < began + config.length {
        let now = clock.now();
        if config.interval == Duration::ZERO {
            due = now;
        }
        if due > now {
            std::thread::sleep(std_duration(due.since(now).max(TICK)));
            continue;
        }
        bytes[..8].copy_from_slice(&(sent.len() as u64).to_be_bytes());
        bytes[8..STAMP].copy_from_slice(&now.as_nanos().to_be_bytes());
        match socket.send(to, &bytes) {
            Ok(()) => sent.push(now),
            // The device's queue is full; the packet is none that was sent.
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted) => {}
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {}
            Err(error) => return Err(TestbedError::system("send a probe")(error)),
        }
        due += config.interval;
    }
    Ok(sent)
}

fn receive(
    socket: &Socket,
    clock: Clock,
    is_over: &AtomicBool,
    patience: Duration,
) -> Result<Vec<(u64, Time)>, TestbedError> {
    realtime::go_first();
    let mut batch = Batch::default();
    let mut received = Vec::new();
    let mut over_since = None;
    loop {
        let taken = batch.receive(socket, |_, datagram| {
            if let Some(number) = datagram.first_chunk::<8>() {
                received.push((u64::from_be_bytes(*number), clock.now()));
            }
        });
        if taken.map_err(TestbedError::system("receive a probe"))?.datagrams > 0 {
            continue;
        }
        if is_over.load(Ordering::Relaxed) {
            let since = *over_since.get_or_insert_with(|| clock.now());
            if clock.now().since(since) >= patience {
                return Ok(received);
            }
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(TestbedError::system("wait for a probe")(error)),
        }
    }
}
