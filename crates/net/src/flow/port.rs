//! A socket of an endpoint, with what waits to leave by it.

use std::io;

use super::wait::Waiter;
use crate::send_queue::{SendCounters, SendQueue};
use crate::udp::{Batch, Socket};
use anabranch_control::time::Duration;

#[derive(Debug)]
pub struct Port {
    pub socket: Socket,
    pub queue: SendQueue,
    /// The socket was full at the last try.
    pub blocked: bool,
    /// Datagrams may wait at the socket.
    readable: bool,
}

impl Port {
    pub fn new(socket: std::net::UdpSocket, segmentation: bool) -> io::Result<Port> {
        let socket = Socket::from_std(socket)?;
        let segments = if segmentation { socket.max_segments() } else { 1 };
        Ok(Port { queue: SendQueue::new(segments), socket, blocked: false, readable: true })
    }

    /// Sends what waits, unless the socket is still full.
    pub fn flush(&mut self, counters: &mut SendCounters) {
        if !self.queue.is_empty() {
            self.blocked = !self.queue.flush(&self.socket, counters);
        }
    }

    /// Takes one batch of datagrams, if there may be some.
    pub fn receive(
        &mut self,
        batch: &mut Batch,
        take: impl FnMut(std::net::SocketAddr, &[u8], bool),
    ) -> io::Result<usize> {
        if !self.readable {
            return Ok(0);
        }
        let received = batch.receive_marked(&self.socket, take)?;
        self.readable = received.more;
        Ok(received.datagrams)
    }

    /// Waits until something happens at one of `ports`, at most for `longest`.
    pub fn wait(ports: &mut [Port], waiter: &mut Waiter, longest: Option<Duration>) -> io::Result<()> {
        let longest = if ports.iter().any(|port| port.readable) { Some(Duration::ZERO) } else { longest };
        if longest == Some(Duration::ZERO) && ports.iter().all(|port| port.readable && !port.blocked) {
            return Ok(());
        }
        let mut ready = Vec::with_capacity(ports.len());
        let sockets = ports.iter().map(|port| (&port.socket, port.blocked));
        waiter.wait(sockets, longest, |number, readable, writable| ready.push((number, readable, writable)))?;
        for (number, readable, writable) in ready {
            let port = &mut ports[number];
            port.readable |= readable;
            port.blocked &= !writable;
        }
        Ok(())
    }
}
