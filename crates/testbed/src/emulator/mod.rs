//! Real IP packets over the simulator's links: what the kernel transmits through a TUN
//! device enters the model when it is read, and is written to the device of its
//! destination when the model says that it arrives. What the model drops vanishes; what it
//! marks gets its mark in the IP header. A packet's own length, plus a constant for each
//! route, is what the model charges.
//!
//! ```text
//! namespace 10.1.0.0/16             emulator                namespace 10.2.0.0/16
//!  sockets > TUN --read--> [ links, queues, losses ] --write--> TUN > sockets
//!          < TUN <-write-- [     of the model      ] <--read--- TUN <
//! ```
//!
//! The model's clock is the real one: each packet is offered at the time of its reading,
//! and events of the model that are due come before it.

mod ip;
mod report;
mod run;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anabranch_control::time::{Duration, Time};
use anabranch_sim::network::{Network, NetworkBuilder, RouteId};

pub use report::{DeviceReport, LATE, LATE_SHARE, Report, RouteReport, SourceReport};

use crate::namespace::{Namespace, TestbedError};
use crate::tun::{Block, Tun, TunConfig};
use anabranch_net::clock::Clock;
use run::Engine;

/// Packets on their way at most, unless the configuration says otherwise: 0.8 s of
/// 1 Gbit/s, in 100 MB of buffers.
pub const PACKETS: usize = 1 << 16;

/// How long before a packet is due the thread stops sleeping and looks at the clock again
/// and again, unless the configuration says otherwise.
pub const SPIN: Duration = Duration::ZERO;

/// While packets come one close upon the other, how often the thread wakes up at most,
/// unless the configuration says otherwise.
pub const GRAIN: Duration = Duration::from_nanos(50_000);

/// Whose packets take a route of the model.
#[derive(Clone, Copy, Debug)]
pub struct RouteConfig {
    /// Who sends them.
    pub source: Ipv4Addr,
    /// Whom they are for.
    pub destination: Ipv4Addr,
    /// The way that they take.
    pub route: RouteId,
    /// Bytes that the model charges beyond the IP packet's own: those of a frame around
    /// it, or less than none where the model's packets are shorter than the real ones. A
    /// packet is charged one byte at least.
    pub extra_bytes: i32,
    /// Whether a packet that says it is ECN-capable may be marked; else it is dropped like
    /// one that says nothing. For senders that cannot be told to say nothing.
    pub ecn: bool,
}

/// Packets that exist in the model only: cross traffic that needs no sockets.
pub trait Source: Send {
    /// When the next packet sets out, not before the last one; `Time::MAX` if none does.
    fn next_at(&self) -> Time;

    /// That packet. Then comes another.
    fn take(&mut self) -> ModelPacket;

    /// One of its packets has arrived.
    fn arrived(&mut self) {}
}

/// A packet that exists in the model only.
#[derive(Clone, Copy, Debug)]
pub struct ModelPacket {
    /// The way that it takes.
    pub route: RouteId,
    /// What the model charges, in bytes.
    pub size: u32,
    /// Whether a mark may take the place of a drop.
    pub ecn_capable: bool,
}

/// A packet that was read and offered to the model.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its route's place in the configuration.
    pub route: usize,
    /// When it was read.
    pub at: Time,
    /// What the model charges, in bytes.
    pub size: u32,
    /// The IP packet.
    pub packet: &'a [u8],
}

/// A packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// Its route's place in the configuration.
    pub route: usize,
    /// When it was read.
    pub entered_at: Time,
    /// When it arrived in the model.
    pub due: Time,
    /// When it had been written.
    pub written_at: Time,
    /// What the model charged, in bytes.
    pub size: u32,
    /// Whether the model marked it.
    pub is_marked: bool,
    /// The IP packet, as it was written.
    pub packet: &'a [u8],
}

/// Looks on while packets pass. It runs on the emulator's thread, which it must not hold up.
pub trait Observer: Send {
    /// A packet was offered to the model.
    fn entered(&mut self, _entry: &Entry<'_>) {}

    /// A packet has arrived.
    fn delivered(&mut self, _delivery: &Delivery<'_>) {}

    /// The interval of the configuration is over: queues and counts can be read from the
    /// model, which stands at `now`.
    fn sampled(&mut self, _now: Time, _network: &mut Network<Payload>) {}

    /// The same for the interval of looks.
    fn looked(&mut self, _now: Time, _network: &mut Network<Payload>) {}
}

/// What a packet of the model stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A real one, on the route of that place in the configuration.
    Real(u32),
    /// Nothing but itself, from the source of that place in the configuration.
    Model(u32),
}

/// How an emulator works. [`EmulatorConfig::new`] fills in what is seldom changed.
pub struct EmulatorConfig {
    /// The links, and the routes over them.
    pub network: NetworkBuilder,
    /// From which the links' random streams are made.
    pub seed: u64,
    /// Where packets come from and go to: no address is in the blocks of two.
    pub devices: Vec<Tun>,
    /// Whose packets take which route; those of nobody here are dropped and counted.
    pub routes: Vec<RouteConfig>,
    /// Packets of the model's own.
    pub sources: Vec<Box<dyn Source>>,
    /// Who looks on.
    pub observer: Option<Box<dyn Observer>>,
    /// How often [`Observer::sampled`] is called, from the clock's zero on.
    pub sample_interval: Option<Duration>,
    /// How often [`Observer::looked`] is, likewise.
    pub look_interval: Option<Duration>,
    /// Packets on their way at most; more are dropped, and the emulator is saturated.
    pub packets: usize,
    /// How long before a packet is due the thread stops sleeping.
    pub spin: Duration,
    /// While packets come closer than this upon each other, the thread wakes up once in so
    /// long and serves many at once; each may then be late by as much. Zero never waits.
    pub grain: Duration,
    /// Whether the thread shall go before all others of the machine (`SCHED_FIFO`), as far
    /// as the system allows.
    pub realtime: bool,
}

impl EmulatorConfig {
    /// No sources, nobody who looks on, and the usual limits.
    pub fn new(network: NetworkBuilder, seed: u64, devices: Vec<Tun>, routes: Vec<RouteConfig>) -> EmulatorConfig {
        EmulatorConfig {
            network,
            seed,
            devices,
            routes,
            sources: Vec::new(),
            observer: None,
            sample_interval: None,
            look_interval: None,
            packets: PACKETS,
            spin: SPIN,
            grain: GRAIN,
            realtime: true,
        }
    }

    /// Starts a thread that carries packets until it is stopped. The model's time is that of
    /// `clock`; links that change with time begin at its zero.
    pub fn start(self, clock: Clock) -> Result<Emulator, TestbedError> {
        let ways = self.ways()?;
        let [stop, over] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&over));
        let engine = Engine::new(self, ways, clock)?;
        let thread = std::thread::Builder::new()
            .name("emulator".into())
            .spawn(move || engine.run(&stopped, &counted))
            .map_err(TestbedError::system("start the emulator's thread"))?;
        Ok(Emulator { stop, over, thread: Some(thread) })
    }

    /// By source and destination: the route's place in the configuration and the device
    /// that it leads to.
    fn ways(&self) -> Result<HashMap<(Ipv4Addr, Ipv4Addr), Way>, TestbedError> {
        let mut ways = HashMap::with_capacity(self.routes.len());
        for (&route, place) in self.routes.iter().zip(0..) {
            let RouteConfig { source, destination, extra_bytes, ecn, .. } = route;
            let [from, to] = [source, destination].map(|address| {
                let device = self.devices.iter().position(|device| device.block().contains(address));
                device.ok_or_else(|| TestbedError::Invalid(format!("{address}: in the block of no device")))
            });
            let (from, to) = (from?, to?);
            if from == to {
                let message = format!(
                    "{source} to {destination}: both behind one device, where the kernel carries packets itself"
                );
                return Err(TestbedError::Invalid(message));
            }
            let way = Way { place, route: route.route, from, to, extra_bytes, ecn };
            if ways.insert((source, destination), way).is_some() {
                return Err(TestbedError::Invalid(format!("{source} to {destination}: two routes")));
            }
        }
        Ok(ways)
    }
}

/// What becomes of the packets of a source and a destination.
#[derive(Clone, Copy, Debug)]
struct Way {
    place: u32,
    route: RouteId,
    from: usize,
    to: usize,
    extra_bytes: i32,
    ecn: bool,
}

/// An emulator at work. It stops when this is dropped.
#[derive(Debug)]
pub struct Emulator {
    stop: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Report, TestbedError>>>,
}

impl Emulator {
    /// What links and sources do from now on is not counted: those at the ends are still to hear that all is over.
    pub fn end_counting(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// Stops it; the devices are gone afterwards.
    pub fn stop(mut self) -> Result<Report, TestbedError> {
        self.join().expect("it is stopped once")
    }

    /// Whether it has ended by itself, with an error that [`Emulator::stop`] returns.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> Option<Result<Report, TestbedError>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take()?.join();
        Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether emulated networks can be made here, and if not, why and what to do.
pub fn testbed_available() -> Result<(), String> {
    let block = Block::new(Ipv4Addr::new(10, 1, 0, 0), 16).map_err(|error| error.to_string())?;
    let made = Namespace::new().and_then(|namespace| Tun::open(&namespace, TunConfig::new(block)));
    made.map(drop).map_err(|error| error.to_string())
}
