//! Requests to the kernel's routing socket: devices, addresses and routes of one network
//! namespace, the one in which the socket was opened.

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, LinkAttribute, LinkFlags, LinkMessage, Stats64,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// The loopback device is the first of every namespace.
pub const LOOPBACK: u32 = 1;

/// The routing table that says which addresses are local (`RT_TABLE_LOCAL`).
const LOCAL_TABLE: u8 = 255;
/// The table of all other routes (`RT_TABLE_MAIN`).
const MAIN_TABLE: u8 = 254;

/// A routing socket.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// A socket in the namespace of the calling thread.
    pub fn open() -> io::Result<Netlink> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Brings a device up.
    pub fn set_up(&mut self, device: u32) -> io::Result<()> {
        let mut message = link(device);
        message.header.flags = LinkFlags::Up;
        message.header.change_mask = LinkFlags::Up;
        self.acknowledged(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Sets a device's longest packet in bytes and the length of its queue in packets.
    pub fn set_limits(&mut self, device: u32, mtu: u32, queue: u32) -> io::Result<()> {
        let mut message = link(device);
        message.attributes = vec![LinkAttribute::Mtu(mtu), LinkAttribute::TxQueueLen(queue)];
        self.acknowledged(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Keeps a device from giving itself an IPv6 address.
    pub fn set_no_ipv6_address(&mut self, device: u32) -> io::Result<()> {
        let mut message = link(device);
        let mode = vec![AfSpecInet6::AddrGenMode(In6AddrGenMode::None)];
        message.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(mode)])];
        self.acknowledged(RouteNetlinkMessage::SetLink(message), 0)
    }

    /// Gives a device an address of its own, without a network around it.
    pub fn add_address(&mut self, device: u32, address: Ipv4Addr) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = AddressFamily::Inet;
        message.header.prefix_len = 32;
        message.header.index = device;
        message.header.scope = AddressScope::Universe;
        message.attributes = vec![AddressAttribute::Local(address.into()), AddressAttribute::Address(address.into())];
        self.acknowledged(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Makes every address of a block local to the namespace, as long as the device is there.
    pub fn add_local_block(&mut self, device: u32, first: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let header = RouteHeader {
            destination_prefix_length: prefix,
            table: LOCAL_TABLE,
            scope: RouteScope::Host,
            kind: RouteType::Local,
            ..route()
        };
        let to = RouteAttribute::Destination(RouteAddress::Inet(first));
        self.add_route(header, vec![to, RouteAttribute::Oif(device)])
    }

    /// Sends everything that is not local through a device, from `source` if the sender
    /// names no address of its own.
    pub fn add_default_route(&mut self, device: u32, source: Ipv4Addr) -> io::Result<()> {
        let header = RouteHeader { table: MAIN_TABLE, scope: RouteScope::Link, kind: RouteType::Unicast, ..route() };
        let source = RouteAttribute::PrefSource(RouteAddress::Inet(source));
        self.add_route(header, vec![RouteAttribute::Oif(device), source])
    }

    /// Sends what is for `to` through a device, as the default route does, and has TCP connections
    /// to it begin with a window of `packets` packets (ip-route(8): initcwnd).
    pub fn add_route_with_initial_window(&mut self, device: u32, to: Ipv4Addr, packets: u32) -> io::Result<()> {
        self.add_host_route(device, to, vec![RouteMetric::InitCwnd(packets)])
    }

    fn add_host_route(&mut self, device: u32, to: Ipv4Addr, metrics: Vec<RouteMetric>) -> io::Result<()> {
        let header = RouteHeader {
            destination_prefix_length: 32,
            table: MAIN_TABLE,
            scope: RouteScope::Link,
            kind: RouteType::Unicast,
            ..route()
        };
        let to = RouteAttribute::Destination(RouteAddress::Inet(to));
        self.add_route(header, vec![to, RouteAttribute::Oif(device), RouteAttribute::Metrics(metrics)])
    }

    fn add_route(&mut self, header: RouteHeader, attributes: Vec<RouteAttribute>) -> io::Result<()> {
        let mut message = RouteMessage::default();
        message.header = header;
        message.attributes = attributes;
        self.acknowledged(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// The number of the device of that name.
    pub fn index(&mut self, name: &str) -> io::Result<u32> {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::IfName(name.to_owned())];
        Ok(self.get_link(message)?.header.index)
    }

    /// What a device has counted.
    pub fn statistics(&mut self, device: u32) -> io::Result<Stats64> {
        let answer = self.get_link(link(device))?;
        let found = answer.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(statistics) => Some(*statistics),
            _ => None,
        });
        found.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel names no counters of the device"))
    }

    fn get_link(&mut self, message: LinkMessage) -> io::Result<LinkMessage> {
        match self.request(RouteNetlinkMessage::GetLink(message), 0)? {
            Some(RouteNetlinkMessage::NewLink(answer)) => Ok(answer),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel answers with no device")),
        }
    }

    fn acknowledged(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, NLM_F_ACK | flags).map(drop)
    }

    /// Sends a request and waits for its answer; none if that is an acknowledgement.
    fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Option<RouteNetlinkMessage>> {
        self.sequence += 1;
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        loop {
            let (answer, _) = self.socket.recv_from_full()?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            if answer.header.sequence_number != self.sequence {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::Error(error) => match error.code {
                    None => Ok(None),
                    Some(_) => Err(error.to_io()),
                },
                NetlinkPayload::InnerMessage(message) => Ok(Some(message)),
                _ => Ok(None),
            };
        }
    }
}

impl std::fmt::Debug for Netlink {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Netlink").finish_non_exhaustive()
    }
}

fn link(device: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = device;
    message
}

fn route() -> RouteHeader {
    RouteHeader { address_family: AddressFamily::Inet, protocol: RouteProtocol::Static, ..RouteHeader::default() }
}
