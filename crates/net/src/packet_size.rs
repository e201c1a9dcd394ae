//! Which packets a transfer may have: what the links of this machine carry, and what the paths do.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_proto::overlay::path_mtu::{Found, PathMtu};
use rustix::net::sockopt;

use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::setup::{PACKET, secret};
use crate::udp::Socket;

/// Bytes of IPv4 and UDP headers, and of IPv6 and UDP headers.
const HEADERS: [usize; 2] = [20 + 8, 40 + 8];

/// What every path of IPv6 carries, and nearly every one of IPv4: 1280 bytes (RFC 8200, 5).
pub const LEAST: usize = 1280 - HEADERS[1];

/// What a WireGuard tunnel over Ethernet carries, which leaves 1420 bytes.
const TUNNEL: usize = 1420 - HEADERS[1];

/// Sizes that are tried, in growing order.
const SIZES: [usize; 3] = [LEAST, TUNNEL, PACKET];

/// While sizes are tried, it is asked so often whether that is still wanted.
const TICK: Duration = Duration::from_millis(100);

/// Why there is no size.
#[derive(Debug)]
pub enum SizeError {
    /// The link to a relay carries less.
    Narrow {
        /// Which relay.
        relay: SocketAddr,
        /// Bytes of a packet, without headers, that its link carries.
        carries: usize,
        /// Bytes that are asked for.
        packet: usize,
    },
    /// The system refuses something.
    System(io::Error),
    /// It is not wanted any more.
    GivenUp,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeError::Narrow { relay, carries, packet } => write!(
                f,
                "this machine's link to the relay {relay} carries packets of at most {carries} bytes, and {packet} are \
                 to be sent: raise its MTU, or send shorter packets with --packet {carries}"
            ),
            SizeError::System(error) => error.fmt(f),
            SizeError::GivenUp => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for SizeError {}

impl From<io::Error> for SizeError {
    fn from(error: io::Error) -> SizeError {
        SizeError::System(error)
    }
}

/// Bytes of the longest packet that this machine's link to `relay` carries, headers apart.
///
/// # Errors
///
/// When there is no way to it.
pub fn carried_to(relay: SocketAddr) -> io::Result<usize> {
    let any: SocketAddr = if relay.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    // Nothing is sent: the system says what it knows of the way.
    socket.connect(relay)?;
    let (mtu, headers) = match relay {
        SocketAddr::V4(_) => (sockopt::ip_mtu(&socket)?, HEADERS[0]),
        SocketAddr::V6(_) => (sockopt::ipv6_mtu(&socket)?, HEADERS[1]),
    };
    Ok((mtu as usize).saturating_sub(headers))
}

/// Refuses packets of `packet` bytes if this machine's link to one of `relays` does not carry them.
///
/// # Errors
///
/// As said.
pub fn check(relays: &[SocketAddr], packet: usize) -> Result<(), SizeError> {
    for &relay in relays {
        // A relay to which there is no way is one that is dead.
        if let Ok(carries) = carried_to(relay)
            && carries < packet
        {
            return Err(SizeError::Narrow { relay, carries, packet });
        }
    }
    Ok(())
}

/// Bytes that packets from `from` over `hops` of `relays` to `to` shall have: `wanted`, if somebody has
/// said so, or what is [found](find).
///
/// # Errors
///
/// When this machine's own link does not carry them, or the system has no socket.
pub fn choose(
    wanted: Option<usize>,
    from: SocketAddr,
    relays: &[SocketAddr],
    hops: usize,
    to: SocketAddr,
    upload: Option<Rate>,
    is_given_up: impl Fn() -> bool,
) -> Result<usize, SizeError> {
    match wanted {
        Some(packet) => check(relays, packet).map(|()| packet),
        None => find(from, relays, hops, to, upload, is_given_up).map(|found| found.packet),
    }
}

/// Tries which packets paths of `hops` of `relays` to `to` carry, from `from`, no faster than `upload`:
/// [`PACKET`] bytes, or less. `is_given_up` is asked again and again.
///
/// # Errors
///
/// When this machine's own link does not carry [`LEAST`] bytes, or the system has no socket.
pub fn find(
    from: SocketAddr,
    relays: &[SocketAddr],
    hops: usize,
    to: SocketAddr,
    upload: Option<Rate>,
    is_given_up: impl Fn() -> bool,
) -> Result<Found, SizeError> {
    check(relays, LEAST)?;
    // What does not leave this machine need not be tried.
    let widest = relays.iter().filter_map(|&relay| carried_to(relay).ok()).min().unwrap_or(PACKET);
    let sizes: Vec<usize> = SIZES.into_iter().filter(|&size| size <= widest).collect();
    let mut runtime = Runtime::new(NoWork)?;
    let probe = PathMtu::new(runtime.now(), relays, hops, to, &sizes, upload, secret());
    let number = runtime.add(Socket::bind(from)?, probe, None)?;
    loop {
        if let Some(found) = runtime.machine(number).found() {
            return Ok(found);
        }
        if is_given_up() {
            return Err(SizeError::GivenUp);
        }
        let until = runtime.now() + TICK;
        runtime.turn(until)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_carries_the_largest_size_and_more_than_its_mtu_is_refused_with_what_to_do() {
        for relay in ["127.0.0.1:9", "[::1]:9"].map(|relay| relay.parse::<SocketAddr>().unwrap()) {
            let Ok(carries) = carried_to(relay) else { continue };
            assert!(carries > PACKET, "{carries}");
            assert!(check(&[relay], carries).is_ok());
            let error = check(&[relay], carries + 1).unwrap_err().to_string();
            assert!(error.contains(&format!("--packet {carries}")), "{error}");
        }
    }

    #[test]
    fn sockets_do_not_let_packets_be_fragmented() {
        let socket = Socket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let discovery = sockopt::ip_mtu_discover(socket.io()).unwrap();
        assert_eq!(discovery, sockopt::Ipv4PathMtuDiscovery::PROBE);
    }
}
