//! Where a stream's peers are: a network namespace each, behind links of its own.
//!
//! ```text
//! namespace of peer a          emulator                              namespace of peer b
//!  process > device --> [uplink of a] > [delay a to b] > [downlink of b] --> device > process
//! ```
//!
//! The links are the simulation's: the same rates, queues, losses and delays, made by the same functions.

use std::net::Ipv4Addr;

use anabranch_lab::stream::script::{Arriving, Script, delays, link, links};
use anabranch_net::clock::Clock;
use anabranch_scenario::stream::StreamScenario;
use anabranch_sim::access::AccessLinks;
use anabranch_sim::delay::Delays;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig, LinkId, NetworkBuilder};
use anabranch_sim::varying::Course;

use crate::emulator::{Emulator, EmulatorConfig, RouteConfig};
use crate::failure::TestbedFailure;
use crate::namespace::{DeviceCounters, Namespace};
use crate::tun::{Block, Tun, TunConfig};

/// The most peers, the server included: each has two bytes of the address, and every pair a link.
pub const MOST_HOMES: usize = 200;

/// Room in a home's block of addresses, of which one is the peer's.
const PREFIX: u8 = 24;

/// Packets that may wait in a device: a home sends a few hundred a second.
const QUEUE: u32 = 1000;

/// A peer's place.
#[derive(Debug)]
pub struct Home {
    namespace: Namespace,
    /// The peer's address.
    pub address: Ipv4Addr,
    counters: DeviceCounters,
}

impl Home {
    /// Runs `inside` where the peer is.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T, TestbedFailure> {
        Ok(self.namespace.run(inside)?)
    }

    /// Bytes that have left by the device, with the headers of IP.
    pub fn sent_bytes(&mut self) -> Result<u64, TestbedFailure> {
        Ok(self.counters.sent_bytes()?)
    }
}

/// The block of addresses of a peer: 10.200.0.0/24 is the server's.
fn block(node: u32) -> Result<Block, TestbedFailure> {
    let third = u8::try_from(node).map_err(|_| too_many(node as usize + 1))?;
    Ok(Block::new(Ipv4Addr::new(10, 200, third, 0), PREFIX)?)
}

fn too_many(homes: usize) -> TestbedFailure {
    TestbedFailure::Scenario(format!(
        "{homes} peers, the server and those in the place of others included; expected at most {MOST_HOMES} on real \
         packets: lower audience.clients, or raise churn.mean_stay_s"
    ))
}

/// Makes the homes of the server and of all who come, and the links between them. The server is the first.
pub fn build(
    scenario: &StreamScenario,
    script: &Script,
    clock: Clock,
) -> Result<(Vec<Home>, Emulator), TestbedFailure> {
    let audience = &scenario.audience;
    let uploads = script.arriving().map(|Arriving { upload, .. }| *upload);
    let uploads: Vec<_> = std::iter::once(audience.server_upload).chain(uploads).collect();
    if uploads.len() > MOST_HOMES {
        return Err(too_many(uploads.len()));
    }
    let delays = Delays::new(&delays(audience), uploads.len(), scenario.seed);
    let mut network = NetworkBuilder::new();
    let access: Vec<(LinkId, LinkId)> = (0..)
        .zip(&uploads)
        .map(|(node, &upload)| {
            // The server's line loses nothing, and takes what it sends.
            let AccessLinks { up, down } = match node {
                0 => AccessLinks { up: link("up", upload, 0.0), down: link("down", upload, 0.0) },
                _ => links(audience, upload),
            };
            let mut named =
                |link: LinkConfig| network.link(LinkConfig { name: format!("{} {node}", link.name), ..link });
            (named(up), named(down))
        })
        .collect();
    let (mut homes, mut devices) = (Vec::new(), Vec::new());
    for node in 0..uploads.len() as u32 {
        let (namespace, block) = (Namespace::new()?, block(node)?);
        devices.push(Tun::open(&namespace, TunConfig { queue: QUEUE, ..TunConfig::new(block) })?);
        let address = block.address(2).expect("a block of this prefix has an address for the peer");
        homes.push(Home { counters: namespace.device_counters()?, namespace, address });
    }
    let mut routes = Vec::new();
    for (from, (up, _)) in (0u32..).zip(&access) {
        for (to, (_, down)) in (0u32..).zip(&access).filter(|(to, _)| *to != from) {
            let between = network.link(LinkConfig {
                name: format!("{from} to {to}"),
                rate: None,
                delay: Course::constant(delays.mean(from, to)),
                capacity: Capacity::Unlimited,
                discipline: None,
                loss: LossModel::None,
                jitter: Jitter::NONE,
            });
            let route = network.route(&[*up, between, *down]);
            let (source, destination) = (homes[from as usize].address, homes[to as usize].address);
            routes.push(RouteConfig { source, destination, route, extra_bytes: 0, ecn: false });
        }
    }
    let emulator = EmulatorConfig::new(network, scenario.seed, devices, routes).start(clock)?;
    Ok((homes, emulator))
}
