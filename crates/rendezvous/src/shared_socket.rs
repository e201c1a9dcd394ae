//! A relay's own socket as QUIC's: the relay's loop reads it and hands over what is QUIC's, which is
//! distinguished from the overlay's datagrams by its first bytes (as RFC 9443 does for other protocols). So a
//! rendezvous needs no port of its own, and it sees the very address from which a socket reaches the
//! relay, through whatever NAT.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use anabranch_control::time::{Duration, Time};
use anabranch_net::clock::Clock;
use anabranch_proto::machine::Arrival;
use quinn::udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use quinn::{AsyncUdpSocket, UdpPoller};

use crate::connection_id::MARK;
use crate::limits::{DATAGRAMS_PER_SECOND, DATAGRAMS_WAITING};

/// What a sender of nothing else sends so that its NAT keeps the way open (RFC 3948, 2.3). A relay
/// drops it without a word.
pub const KEEPALIVE: [u8; 1] = [0xff];

/// Whether these bytes are a QUIC packet for a rendezvous: one of version 1 with a long header, or one
/// with a short header and a connection ID of its making.
pub fn is_quic(bytes: &[u8]) -> bool {
    match *bytes {
        [first, 0, 0, 0, 1, ..] => first & 0xc0 == 0xc0,
        [first, second, ..] => first & 0xc0 == 0x40 && second == MARK,
        _ => false,
    }
}

/// A datagram on its way to QUIC.
#[derive(Debug)]
struct Waiting {
    from: SocketAddr,
    at: Option<IpAddr>,
    marked: bool,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: std::collections::VecDeque<Waiting>,
    waker: Option<Waker>,
}

/// Where a relay's loop hands QUIC's datagrams over.
#[derive(Clone, Debug)]
pub struct Inlet {
    queue: Arc<Mutex<Queue>>,
    clock: Clock,
    /// Datagrams in the second that ends at `until`.
    taken: u32,
    until: Time,
}

impl Inlet {
    /// Takes what is QUIC's, and what keeps NATs open; false for all else. More than
    /// [`DATAGRAMS_PER_SECOND`], or than may wait, are dropped.
    pub fn take(&mut self, arrival: &Arrival<SocketAddr>, bytes: &[u8]) -> bool {
        if bytes == KEEPALIVE {
            return true;
        }
        if !is_quic(bytes) {
            return false;
        }
        let now = self.clock.now();
        if now >= self.until {
            (self.taken, self.until) = (0, now + Duration::SECOND);
        }
        self.taken += 1;
        if self.taken > DATAGRAMS_PER_SECOND {
            return true;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.waiting.len() < DATAGRAMS_WAITING {
            let Arrival { from, at, marked } = *arrival;
            queue.waiting.push_back(Waiting { from, at: at.map(|at| at.ip()), marked, bytes: bytes.to_vec() });
            if let Some(waker) = queue.waker.take() {
                waker.wake();
            }
        }
        true
    }
}

/// QUIC's end.
#[derive(Debug)]
pub struct SharedSocket {
    io: UdpSocket,
    state: UdpSocketState,
    queue: Arc<Mutex<Queue>>,
    is_ipv6: bool,
}

/// Shares `io`, a clone of the relay's socket, which somebody else reads.
///
/// # Errors
///
/// When the system refuses.
pub fn share(io: UdpSocket) -> io::Result<(Inlet, SharedSocket)> {
    let queue: Arc<Mutex<Queue>> = Arc::default();
    let state = UdpSocketState::new((&io).into())?;
    let is_ipv6 = io.local_addr()?.is_ipv6();
    let inlet = Inlet { queue: queue.clone(), clock: Clock::start(), taken: 0, until: Time::ZERO };
    Ok((inlet, SharedSocket { io, state, queue, is_ipv6 }))
}

impl SharedSocket {
    fn spelt(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V4(v4) if self.is_ipv6 => v4.to_ipv6_mapped().into(),
            ip => ip,
        }
    }
}

/// There is always room: what the system does not take is lost, as datagrams may be.
#[derive(Debug)]
struct AlwaysWritable;

impl UdpPoller for AlwaysWritable {
    fn poll_writable(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncUdpSocket for SharedSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(AlwaysWritable)
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        match self.state.send((&self.io).into(), transmit) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        metas: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let mut filled = 0;
        for (buffer, meta) in buffers.iter_mut().zip(metas) {
            let Some(Waiting { from, at, marked, bytes }) = queue.waiting.pop_front() else { break };
            let length = bytes.len().min(buffer.len());
            buffer[..length].copy_from_slice(&bytes[..length]);
            *meta = RecvMeta {
                addr: from,
                len: length,
                stride: length,
                ecn: marked.then_some(EcnCodepoint::Ce),
                dst_ip: at.map(|at| self.spelt(at)),
            };
            filled += 1;
        }
        if filled > 0 {
            return Poll::Ready(Ok(filled));
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.io.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_proto::overlay::wire::{MAGIC, VERSION};
    use proptest::prelude::*;

    use super::*;

    fn inlet() -> (Inlet, SharedSocket) {
        share(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap()
    }

    proptest! {
        #[test]
        fn no_datagram_of_the_overlay_is_taken_for_quic(rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = [&MAGIC[..], &[VERSION], &rest].concat();
            prop_assert!(!is_quic(&bytes));
            prop_assert!(!inlet().0.take(&Arrival::new("127.0.0.1:9".parse().unwrap()), &bytes));
        }

        #[test]
        fn what_a_rendezvous_calls_its_own_is_quic(first in 0x40u8..0x80, rest in prop::collection::vec(any::<u8>(), 0..40)) {
            let own = [&[first, MARK][..], &rest].concat();
            prop_assert!(is_quic(&own));
        }
    }

    #[test]
    fn a_flood_fills_no_more_than_its_room() {
        let (mut inlet, socket) = inlet();
        let from = Arrival::new("127.0.0.1:9".parse().unwrap());
        let initial = [&[0xc0, 0, 0, 0, 1][..], &[7; 1195]].concat();
        for _ in 0..3 * DATAGRAMS_PER_SECOND {
            assert!(inlet.take(&from, &initial));
        }
        assert_eq!(socket.queue.lock().unwrap().waiting.len(), DATAGRAMS_WAITING);
        assert!(inlet.take(&from, &KEEPALIVE));
        assert!(!inlet.take(&from, b"noise") && !inlet.take(&from, b""));
    }
}
