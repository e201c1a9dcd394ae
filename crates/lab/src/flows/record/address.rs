//! Addresses for those who have none: senders, receivers, and both ends of cross traffic.

use std::net::Ipv4Addr;

use anabranch_control::flow::PeerId;

use crate::flows::FlowScenario;

/// Where receivers listen; iperf's port.
pub const SERVER_PORT: u16 = 5001;

/// Where cross traffic goes: the port of the discard service (RFC 863).
pub const DISCARD_PORT: u16 = 9;

/// Ports that a client chooses from (RFC 6335, 6).
const FIRST_CLIENT_PORT: u16 = 49_152;
const CLIENT_PORTS: u32 = 16_384;

/// A quarter of 10.0.0.0/8.
const QUARTER: u32 = 1 << 22;

/// Who has which address.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The place of each flow's first receiver among all receivers.
    first_receiver: Vec<u32>,
}

impl Addresses {
    pub fn new(scenario: &FlowScenario) -> Addresses {
        let mut receivers = 0;
        let first = |flow: &anabranch_scenario::flows::FlowSpec| {
            let first = receivers;
            receivers += flow.receivers.len() as u32;
            first
        };
        Addresses { first_receiver: scenario.flows.iter().map(first).collect() }
    }

    /// 10.0.0.1 and up.
    pub fn client(&self, flow: usize) -> Ipv4Addr {
        within(0, flow as u32)
    }

    /// 10.128.0.1 and up.
    pub fn server(&self, flow: usize, peer: PeerId) -> Ipv4Addr {
        within(2, self.first_receiver[flow] + peer.0)
    }

    /// Each connection of a flow has a port of its own, until they come round.
    pub fn client_port(&self, connection: u32) -> u16 {
        FIRST_CLIENT_PORT + (connection % CLIENT_PORTS) as u16
    }

    /// From 10.64.0.1 and up to 10.192.0.1 and up.
    pub fn cross(&self, source: usize) -> (Ipv4Addr, Ipv4Addr) {
        (within(1, source as u32), within(3, source as u32))
    }

    pub fn cross_port(&self) -> u16 {
        FIRST_CLIENT_PORT
    }
}

fn within(quarter: u32, place: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits((10 << 24) + quarter * QUARTER + (place + 1) % QUARTER)
}
