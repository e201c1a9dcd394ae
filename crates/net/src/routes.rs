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

/// All addresses by which a socket that is bound at `local` is reached: one of IPv6 that is bound to all addresses is
/// reached by IPv4 too, if it `is_dual` and there is a way out.
pub fn all_reachable(local: SocketAddr, is_dual: bool) -> Vec<SocketAddr> {
    let any_ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), local.port());
    let has_both = is_dual && local.is_ipv6() && local.ip().is_unspecified();
    let ipv4 = has_both.then(|| reachable(any_ipv4)).filter(|address| !address.ip().is_loopback());
    [reachable(local)].into_iter().chain(ipv4).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_both_families_is_reached_by_both() {
        let at = |ip: IpAddr| SocketAddr::new(ip, 7443);
        let (any, any_ipv4) = (at(Ipv6Addr::UNSPECIFIED.into()), at(Ipv4Addr::UNSPECIFIED.into()));
        let has_ipv4 = !reachable(any_ipv4).ip().is_loopback();
        let both = all_reachable(any, true);
        assert_eq!(both.first(), Some(&reachable(any)));
        assert_eq!(both.get(1), has_ipv4.then(|| reachable(any_ipv4)).as_ref());
        assert_eq!(all_reachable(any, false), [reachable(any)], "IPv6 alone");
        assert_eq!(all_reachable(any_ipv4, false), [reachable(any_ipv4)]);
        let own = at(Ipv6Addr::LOCALHOST.into());
        assert_eq!(all_reachable(own, true), [own], "it is bound to one");
    }
}
