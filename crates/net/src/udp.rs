//! UDP sockets that receive many datagrams in one system call (`recvmmsg`, by way of
//! `quinn-udp`) and send several to one destination in one (segmentation offload). What
//! goes to several destinations leaves by a [`SendQueue`](crate::send_queue::SendQueue).
//!
//! A socket that is bound to the unspecified address serves all addresses of its host. There the
//! system says to which one a datagram came (`IP_PKTINFO`, RFC 3542), and what it gives rise to
//! leaves from that one if the socket is a [`Socket::serving`] one: peers know a relay by the address
//! that is listed.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, BorrowedFd};

use anabranch_proto::machine::Arrival;
use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::SockRef;

/// How a datagram leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Where to.
    pub to: SocketAddr,
    /// From which address of ours, if not from the one that the system chooses.
    pub from: Option<IpAddr>,
    /// Whether as ECN-capable, ECT(0).
    pub ect: bool,
}

impl Way {
    /// To `to`; the system chooses the rest.
    pub fn to(to: SocketAddr) -> Way {
        Way { to, from: None, ect: false }
    }
}

/// Asked for as socket buffers in bytes, so that a second's burst fits; the system may give less.
const BUFFER: usize = 4 << 20;

/// Longest datagram that is taken from the system: the longest there is.
const LONGEST: usize = 1 << 16;

/// Asks for room for a burst. Less than was asked for is no error: the datagrams that don't
/// fit are losses.
pub(crate) fn enlarge_buffers(socket: &std::net::UdpSocket) {
    let socket = SockRef::from(socket);
    let _ = socket.set_recv_buffer_size(BUFFER);
    let _ = socket.set_send_buffer_size(BUFFER);
}

/// A bound socket that never blocks.
#[derive(Debug)]
pub struct Socket {
    io: std::net::UdpSocket,
    state: UdpSocketState,
    is_ipv6: bool,
    /// Its port, if it answers from whichever of all addresses was asked.
    serves_at: Option<u16>,
}

impl Socket {
    /// Binds to `address`; port 0 lets the system choose one.
    pub fn bind(address: SocketAddr) -> io::Result<Socket> {
        Socket::from_std(std::net::UdpSocket::bind(address)?)
    }

    /// Takes over a socket that somebody has bound, in a network namespace of its own perhaps.
    pub fn from_std(io: std::net::UdpSocket) -> io::Result<Socket> {
        let is_ipv6 = io.local_addr()?.is_ipv6();
        let state = UdpSocketState::new((&io).into())?;
        enlarge_buffers(&io);
        io.set_nonblocking(true)?;
        Ok(Socket { io, state, is_ipv6, serves_at: None })
    }

    /// The same, for those who come to it. If it is bound to all addresses, datagrams say to which
    /// one they came, and what they give rise to leaves from there. Each then takes a system call of
    /// its own.
    pub fn serving(self) -> io::Result<Socket> {
        let bound = self.local_addr()?;
        Ok(Socket { serves_at: bound.ip().is_unspecified().then_some(bound.port()), ..self })
    }

    /// Whether it is of IPv6 and of IPv4 too: the system's setting decides (RFC 3493, 5.3).
    pub fn is_dual(&self) -> bool {
        self.is_ipv6 && SockRef::from(&self.io).only_v6().is_ok_and(|is_only| !is_only)
    }

    /// Bytes that the system holds at most for what has come and was not read; and how many were asked for,
    /// if that is less.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn receive_buffer(&self) -> io::Result<(usize, Option<usize>)> {
        let given = SockRef::from(&self.io).recv_buffer_size()?;
        // Linux counts its own book-keeping, and so says twice what it was asked for (socket(7)).
        let given = if cfg!(target_os = "linux") { given / 2 } else { given };
        Ok((given, (given < BUFFER).then_some(BUFFER)))
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    /// Sends one datagram.
    pub fn send(&self, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
        self.io.send_to(bytes, self.reach(to)).map(drop)
    }

    /// Sends `bytes` as datagrams of `segment` bytes each (the last may be shorter), all in
    /// one system call.
    pub(crate) fn send_segments(&self, way: Way, bytes: &[u8], segment: usize) -> io::Result<()> {
        // An address of one family can't be what a datagram of the other leaves from.
        let from = way.from.filter(|from| from.is_ipv4() == way.to.ip().to_canonical().is_ipv4());
        let transmit = Transmit {
            destination: self.reach(way.to),
            ecn: way.ect.then_some(EcnCodepoint::Ect0),
            contents: bytes,
            segment_size: (segment < bytes.len()).then_some(segment),
            src_ip: from.map(|from| self.reach(SocketAddr::new(from, 0)).ip()),
        };
        self.state.try_send((&self.io).into(), &transmit)
    }

    /// How many datagrams `send_segments` sends at most; 1 without segmentation offload.
    pub(crate) fn max_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// `to` as this socket's family spells it.
    pub(crate) fn reach(&self, to: SocketAddr) -> SocketAddr {
        match to.ip() {
            IpAddr::V4(ip) if self.is_ipv6 => SocketAddrV6::new(ip.to_ipv6_mapped(), to.port(), 0, 0).into(),
            _ => to,
        }
    }

    pub(crate) fn io(&self) -> &std::net::UdpSocket {
        &self.io
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

/// What one system call has received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How many datagrams.
    pub datagrams: usize,
    /// Whether more may wait.
    pub more: bool,
}

/// Buffers for the datagrams of one system call.
#[derive(Debug)]
pub struct Batch {
    buffers: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { buffers: vec![0; BATCH_SIZE * LONGEST], metas: [RecvMeta::default(); BATCH_SIZE] }
    }
}

impl Batch {
    /// Hands the datagrams that wait at `socket`, `BATCH_SIZE` buffers at most, to `take`,
    /// with who sent them.
    pub fn receive(&mut self, socket: &Socket, mut take: impl FnMut(SocketAddr, &[u8])) -> io::Result<Received> {
        self.receive_whole(socket, |arrival, bytes| take(arrival.from, bytes))
    }

    /// As [`Batch::receive`]; `take` also learns to which address a datagram came, if the socket serves
    /// several, and whether it bears a congestion-experienced mark.
    pub fn receive_whole(
        &mut self,
        socket: &Socket,
        mut take: impl FnMut(Arrival<SocketAddr>, &[u8]),
    ) -> io::Result<Received> {
        let mut chunks = self.buffers.chunks_exact_mut(LONGEST);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().expect("a chunk for each slice")));
        let state = &socket.state;
        let metas = &mut self.metas;
        let filled = match state.recv((&socket.io).into(), &mut slices, metas) {
            Ok(filled) => filled,
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(Received { datagrams: 0, more: false }),
                // Somebody we sent to is not there; that is theirs to say by silence.
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::Interrupted => {
                    return Ok(Received { datagrams: 0, more: true });
                }
                _ => return Err(error),
            },
        };
        let mut datagrams = 0;
        for (buffer, meta) in self.buffers.chunks_exact(LONGEST).zip(&self.metas).take(filled) {
            // What is sent to many hosts is answered from whichever address the system chooses.
            let one_host = |ip: &IpAddr| !ip.is_multicast() && *ip != IpAddr::V4(Ipv4Addr::BROADCAST);
            let at = socket.serves_at.zip(meta.dst_ip.filter(one_host));
            let arrival = Arrival {
                from: meta.addr,
                at: at.map(|(port, ip)| SocketAddr::new(ip.to_canonical(), port)),
                marked: meta.ecn == Some(EcnCodepoint::Ce),
            };
            // The system may have joined datagrams of one sender, all `stride` long but the last.
            for datagram in buffer[..meta.len].chunks(meta.stride.max(1)) {
                take(arrival, datagram);
                datagrams += 1;
            }
            if meta.len == 0 {
                take(arrival, &[]);
                datagrams += 1;
            }
        }
        // Buffers that stayed empty had nothing to wait for.
        Ok(Received { datagrams, more: filled == BATCH_SIZE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_buffer_than_was_asked_for_is_said() {
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        SockRef::from(&socket.io).set_recv_buffer_size(BUFFER / 8).unwrap();
        let (given, asked) = socket.receive_buffer().unwrap();
        assert!(given <= BUFFER / 8, "{given}");
        assert_eq!(asked, Some(BUFFER));
    }

    #[test]
    fn a_socket_of_one_family_is_not_dual() {
        assert!(!Socket::bind((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap().is_dual());
        // Some hosts have no IPv6.
        let Ok(socket) = Socket::bind((std::net::Ipv6Addr::UNSPECIFIED, 0).into()) else { return };
        let is_only = SockRef::from(&socket.io).only_v6().unwrap();
        assert_eq!(socket.is_dual(), !is_only);
        let alone = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
        alone.set_only_v6(true).unwrap();
        alone.bind(&SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)).into()).unwrap();
        assert!(!Socket::from_std(alone.into()).unwrap().is_dual());
    }
}
