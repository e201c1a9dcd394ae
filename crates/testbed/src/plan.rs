//! Where everybody is: addresses, sockets, routes and devices of a scenario.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::sync::Arc;

use crate::emulator::{EmulatorConfig, RouteConfig};
use crate::kernel_tcp;
use crate::namespace::{DEVICE, Namespace, TestbedError};
use crate::netlink::Netlink;
use crate::tun::{Block, LEAST_MTU, Tun, TunConfig};
use anabranch_control::flow::Actuator;
use anabranch_lab::flows::FlowScenario;
use anabranch_net::quic::identity::Identity;
use anabranch_scenario::flows::{FlowSpec, Learned, Stack};
use anabranch_scenario::policy;
use anabranch_sim::network::{LinkId, NetworkBuilder};

use super::failure::TestbedFailure;
use super::lengths::{HEADER, UDP_HEADERS, quic_packet};
use super::watch::{Counted, CrossBytes, CrossSources, Watched, Watcher};

/// The least that a path of QUIC carries in a packet of UDP (RFC 9000, 14).
const LEAST_QUIC: i32 = 1200;

/// Where receivers listen.
const PORT: u16 = 5001;

/// Receivers of all flows together at most: their addresses are one block.
const MOST_RECEIVERS: usize = 60_000;

/// The first number of an address that we give: 0 is the block's name, 1 the device's own.
const FIRST: u32 = 2;

/// Room for what the kernel's TCP keeps in flight and out of order: more than any window.
const TCP_BUFFERS: &str = "4096 1048576 134217728";

/// Bytes that the kernel's TCP takes from an application beyond what is in flight.
const TCP_UNSENT: &str = "131072";

/// Addresses and places of a run's parties.
#[derive(Debug)]
pub struct Plan {
    /// Each flow's sender.
    pub senders: Vec<Ipv4Addr>,
    /// Each flow's receivers, by their number among all.
    pub receivers: Vec<Vec<usize>>,
    /// The receivers.
    pub addresses: Vec<Ipv4Addr>,
    /// Bytes of a full QUIC packet: on the links as long as a full packet of ours.
    pub quic_packet: u16,
    /// What the emulator has seen.
    pub watched: Watched,
    /// Bytes of cross traffic that have arrived.
    pub cross_bytes: CrossBytes,
    /// What flows have sent, and what of it has arrived.
    pub counted: Arc<Counted>,
}

impl Plan {
    /// Without anybody, for drivers whose stacks open no sockets.
    #[cfg(test)]
    pub fn of_nobody() -> Plan {
        Plan {
            senders: vec![],
            receivers: vec![],
            addresses: vec![],
            quic_packet: 1200,
            watched: Watched::default(),
            cross_bytes: CrossBytes::default(),
            counted: Arc::new(Counted::new(0)),
        }
    }

    /// Where a receiver listens.
    pub fn receiver(&self, number: usize) -> SocketAddr {
        SocketAddrV4::new(self.addresses[number], PORT).into()
    }
}

/// The sockets of our machines, by flow or receiver, and the kernel's listeners.
pub struct Sockets {
    /// One for each flow of ours: the flow, and its socket.
    pub senders: Vec<(usize, UdpSocket)>,
    /// One for each receiver of ours: its number, and its socket.
    pub receivers: Vec<(usize, UdpSocket)>,
    /// One for each flow under QUIC: the flow, and its sender's socket.
    pub quic_senders: Vec<(usize, UdpSocket)>,
    /// One for each flow under QUIC: its receiver's number, and its socket.
    pub quic_receivers: Vec<(usize, UdpSocket)>,
    /// One for each receiver of the kernel's flows: its number, and its listener.
    pub listeners: Vec<(usize, TcpListener)>,
}

/// What is ready to run.
pub struct Ready {
    /// Where senders are; the receivers' namespace lives in their sockets.
    pub left: Namespace,
    /// The links.
    pub emulator: EmulatorConfig,
    /// The sockets.
    pub sockets: Sockets,
    /// Who receivers under QUIC are.
    pub identity: Identity,
}

/// Refuses what real packets cannot do.
pub fn check(scenario: &FlowScenario) -> Result<(), TestbedFailure> {
    let refuse = |what: String| Err(TestbedFailure::Scenario(what));
    let receivers: usize = scenario.flows.iter().map(|flow| flow.receivers.len()).sum();
    if receivers > MOST_RECEIVERS {
        return refuse(format!("{receivers} receivers; {MOST_RECEIVERS} have an address on real packets"));
    }
    if let Some(learned) = scenario.steering.as_ref().and_then(|steering| steering.policy.as_ref()) {
        check_policy(scenario, learned).or_else(refuse)?;
    }
    for flow in &scenario.flows {
        let whose = match &flow.stack {
            Stack::Ours => continue,
            Stack::Quic => "a flow under QUIC",
            Stack::Kernel(name) => {
                // In a namespace of its own it may have what it may not have here.
                match kernel_tcp::check(name) {
                    Err(why) if why.kind() == io::ErrorKind::NotFound => {
                        return refuse(format!("flow \"{}\": {why}", flow.name));
                    }
                    _ => {}
                }
                "the kernel's TCP"
            }
        };
        if flow.receivers.len() > 1 {
            return refuse(format!("flow \"{}\": {whose} has one receiver; expected one", flow.name));
        }
        let by_rule = scenario.steering.as_ref().filter(|steering| steering.policy.is_none());
        let fixes = by_rule.is_some_and(|steering| steering.actuator == Actuator::Fixed);
        if flow.steered && fixes && flow.stack != Stack::Quic {
            return refuse(format!(
                "flow \"{}\": nobody can fix the window of the kernel's TCP from outside; expected steering.actuator = \
                 \"maximum\", which bounds its pace",
                flow.name
            ));
        }
    }
    let data = scenario.packets.data.get();
    let least = (LEAST_QUIC + UDP_HEADERS - HEADER) as u64;
    if data < least && scenario.flows.iter().any(|flow| flow.stack == Stack::Quic) {
        return refuse(format!("packets.data_bytes = {data}: QUIC needs longer packets; expected {least} at least"));
    }
    let least = u64::from(LEAST_MTU) - HEADER as u64;
    if data < least {
        return refuse(format!(
            "packets.data_bytes = {data}: no device has packets so short, with {HEADER} bytes of headers; expected {least} \
             at least"
        ));
    }
    if data + HEADER as u64 > u64::from(u16::MAX) {
        return refuse(format!(
            "packets.data_bytes = {data}: an IPv4 packet has 65535 bytes with its {HEADER} of headers"
        ));
    }
    Ok(())
}

/// Refuses a policy that sees or does what nobody can on real packets.
fn check_policy(scenario: &FlowScenario, learned: &Learned) -> Result<(), String> {
    let Learned { name, sight, .. } = learned;
    if let Some(hidden) = sight.features.iter().find(|feature| !feature.is_deployable()) {
        return Err(format!(
            "steering.policy = \"{name}\": it sees \"{}\", which nobody knows of real packets; expected a policy that does \
             not",
            hidden.name()
        ));
    }
    let is_kernels = |flow: &&FlowSpec| flow.steered && matches!(flow.stack, Stack::Kernel(_));
    let does = match sight.actuator {
        policy::Actuator::Fixed => "fixes windows",
        policy::Actuator::Initial => "tells connections the window to begin with",
        policy::Actuator::Bounded | policy::Actuator::Rate | policy::Actuator::Share | policy::Actuator::Lent => {
            return Ok(());
        }
    };
    match scenario.flows.iter().find(is_kernels) {
        Some(flow) => Err(format!(
            "steering.policy = \"{name}\": it {does} (\"{}\"), which nobody can from outside for the kernel's TCP of flow \
             \"{}\"; expected a policy whose actuator is a pace (\"bounded\", \"rate\", \"share\" or \"lent\"), or \
             controller = \"quic:{}\"",
            sight.actuator.name(),
            flow.name,
            flow.controller.name
        )),
        None => Ok(()),
    }
}

/// Makes the namespaces, devices and sockets, and describes the links, of which somebody divides `divided`.
pub fn prepare(scenario: &FlowScenario, divided: Option<LinkId>) -> Result<(Plan, Ready), TestbedFailure> {
    let [left_block, right_block] =
        [Ipv4Addr::new(10, 1, 0, 0), Ipv4Addr::new(10, 2, 0, 0)].map(|ip| Block::new(ip, 16));
    let (left_block, right_block) = (left_block?, right_block?);
    let address = |block: Block, number: usize| block.address(FIRST + number as u32).expect("checked: they fit");
    let mut receivers = Vec::new();
    let mut addresses = Vec::new();
    for flow in &scenario.flows {
        receivers.push((addresses.len()..addresses.len() + flow.receivers.len()).collect::<Vec<usize>>());
        let first = addresses.len();
        addresses.extend((first..first + flow.receivers.len()).map(|number| address(right_block, number)));
    }
    let senders: Vec<Ipv4Addr> = (0..scenario.flows.len()).map(|flow| address(left_block, flow)).collect();

    let mut network = NetworkBuilder::new();
    for link in &scenario.links {
        let id = network.link(link.config());
        network.watch(id);
    }
    let mut route = |path: &[usize]| {
        let links: Vec<LinkId> = path.iter().map(|&link| LinkId(link as u32)).collect();
        network.route(&links)
    };
    let packets = &scenario.packets;
    let [there_extra, back_extra] = [packets.header, packets.ack].map(|size| size.get() as i32 - HEADER);
    let mut routes = Vec::new();
    for ((flow, source), numbers) in scenario.flows.iter().zip(&senders).zip(&receivers) {
        for (way, &number) in flow.receivers.iter().zip(numbers) {
            let (source, destination) = (*source, addresses[number]);
            let ecn = packets.ecn;
            let there = RouteConfig { source, destination, route: route(&way.there), extra_bytes: there_extra, ecn };
            let back = RouteConfig {
                source: destination,
                destination: source,
                route: route(&way.back),
                extra_bytes: back_extra,
                ecn,
            };
            routes.extend([there, back]);
        }
    }
    let cross_bytes = CrossBytes::default();
    let cross = CrossSources::new(scenario, |path| route(path), &cross_bytes);

    let (left, right) = (Namespace::new()?, Namespace::new()?);
    for namespace in [&left, &right] {
        for (name, value) in [
            ("net.ipv4.tcp_rmem", TCP_BUFFERS),
            ("net.ipv4.tcp_wmem", TCP_BUFFERS),
            ("net.ipv4.tcp_notsent_lowat", TCP_UNSENT),
            // A connection must not begin with what an earlier one learned.
            ("net.ipv4.tcp_no_metrics_save", "1"),
            ("net.ipv4.tcp_ecn", if packets.ecn { "1" } else { "0" }),
        ] {
            namespace.set_variable(name, value)?;
        }
    }
    let mtu = packets.data.get() as u32 + HEADER as u32;
    let device = |namespace: &Namespace, block| Tun::open(namespace, TunConfig { mtu, ..TunConfig::new(block) });
    let devices = vec![device(&left, left_block)?, device(&right, right_block)?];
    set_initial_windows(scenario, &left, &receivers, &addresses)?;
    let sockets = sockets(scenario, &left, &right, &senders, &receivers, &addresses)?;

    let watched = Watched::default();
    let counted = Arc::new(Counted::new(scenario.flows.len()));
    let mut emulator = EmulatorConfig::new(network, scenario.seed, devices, routes);
    emulator.observer =
        Some(Box::new(Watcher::new(scenario, &receivers, divided, watched.clone(), Arc::clone(&counted))));
    emulator.sample_interval = Some(super::watch::interval(scenario));
    emulator.look_interval = divided.map(|_| super::watch::LINK_LOOK);
    emulator.sources = cross.into_sources();
    let quic_packet = quic_packet(packets);
    let identity = Identity::generate();
    let plan = Plan { senders, receivers, addresses, quic_packet, watched, cross_bytes, counted };
    Ok((plan, Ready { left, emulator, sockets, identity }))
}

/// Routes by which the kernel's connections begin with their flow's window.
fn set_initial_windows(
    scenario: &FlowScenario,
    left: &Namespace,
    receivers: &[Vec<usize>],
    addresses: &[Ipv4Addr],
) -> Result<(), TestbedFailure> {
    let set = || {
        let mut netlink = Netlink::open()?;
        let device = netlink.index(DEVICE)?;
        for (flow, numbers) in scenario.flows.iter().zip(receivers) {
            if let (Stack::Kernel(_), Some(window)) = (&flow.stack, flow.initial_window) {
                let packets = window.get().div_ceil(scenario.packets.data.get()).clamp(1, u64::from(u32::MAX));
                netlink.add_route_with_initial_window(device, addresses[numbers[0]], packets as u32)?;
            }
        }
        Ok(())
    };
    Ok(left.run(set)?.map_err(TestbedError::system::<std::io::Error>("set a connection's initial window"))?)
}

fn sockets(
    scenario: &FlowScenario,
    left: &Namespace,
    right: &Namespace,
    senders: &[Ipv4Addr],
    receivers: &[Vec<usize>],
    addresses: &[Ipv4Addr],
) -> Result<Sockets, TestbedFailure> {
    let flows = 0..scenario.flows.len();
    let stack = |flow: usize| &scenario.flows[flow].stack;
    let is_kernel = |flow: usize| matches!(stack(flow), Stack::Kernel(_));
    let bound = |ip: Ipv4Addr, port| {
        UdpSocket::bind((ip, port)).map_err(TestbedFailure::sockets(format!("bind a UDP socket to {ip}")))
    };
    let senders: Result<Vec<_>, TestbedFailure> = left.run(|| {
        flows.clone().filter(|&flow| !is_kernel(flow)).map(|flow| Ok((flow, bound(senders[flow], 0)?))).collect()
    })?;
    let is_quic = |flow: usize| *stack(flow) == Stack::Quic;
    let (quic_senders, senders) = senders?.into_iter().partition(|&(flow, _)| is_quic(flow));
    let first = |flow: usize| (receivers[flow][0], addresses[receivers[flow][0]]);
    let (ours, quic, listeners) = right.run(|| {
        let ours: Result<Vec<_>, TestbedFailure> = flows
            .clone()
            .filter(|&flow| *stack(flow) == Stack::Ours)
            .flat_map(|flow| receivers[flow].iter())
            .map(|&number| Ok((number, bound(addresses[number], PORT)?)))
            .collect();
        let quic: Result<Vec<_>, TestbedFailure> = flows
            .clone()
            .filter(|&flow| is_quic(flow))
            .map(first)
            .map(|(number, ip)| Ok((number, bound(ip, PORT)?)))
            .collect();
        let listeners: Result<Vec<_>, TestbedFailure> = flows
            .filter(|&flow| is_kernel(flow))
            .map(first)
            .map(|(number, ip)| {
                let listener = TcpListener::bind((ip, PORT));
                Ok((number, listener.map_err(TestbedFailure::sockets(format!("listen at {ip}")))?))
            })
            .collect();
        (ours, quic, listeners)
    })?;
    Ok(Sockets { senders, quic_senders, receivers: ours?, quic_receivers: quic?, listeners: listeners? })
}
