//! By which addresses this host reaches others, and is reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// The address from which packets to `to` leave; none if there is no route. Nothing is sent.
pub fn outgoing(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// By which address a socket that is bound at `local` is reached: if at all of the host's, then by the one that
/// leads out.
pub fn reachable(local: SocketAddr) -> SocketAddr {
    if !local.ip().is_unspecified() {
        return local;
    }
    // Addresses for documentation (RFC 5737, RFC 3849): routed as all others are.
    let out: SocketAddr = if local.is_ipv4() {
        (Ipv4Addr::new(192, 0, 2, 1), 9).into()
    } else {
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9).into()
    };
    let here: IpAddr = if local.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    SocketAddr::new(outgoing(out).unwrap_or(here), local.port())
}
