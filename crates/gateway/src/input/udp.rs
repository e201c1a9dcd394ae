//! Transport streams in datagrams, as encoders and televisions' head ends send them; to a group, if the address is one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::sleep;

use super::feed::{Ending, Feed, Read};
use super::source::Datagrams;

/// What the system is to hold while nobody reads: a second of 32 Mbit/s.
const BUFFER: usize = 4 << 20;

/// No datagram is longer.
const LONGEST: usize = 65_536;

/// After a read that failed, so long nothing is read.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket at the address; a member of the group, if it is one.
pub fn bind(Datagrams { address, interface }: Datagrams) -> io::Result<std::net::UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    // What the system does not grant is no reason to give up.
    let _ = socket.set_recv_buffer_size(BUFFER);
    if address.ip().is_multicast() {
        // Others on this machine may be members too.
        socket.set_reuse_address(true)?;
    }
    socket.bind(&address.into())?;
    match address.ip() {
        IpAddr::V4(group) if group.is_multicast() => {
            socket.join_multicast_v4(&group, &interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
        }
        IpAddr::V6(group) if group.is_multicast() => socket.join_multicast_v6(&group, 0)?,
        _ => {}
    }
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Receives for good.
pub async fn run(mut feed: Feed, socket: std::net::UdpSocket, stall: Duration) {
    let socket = match UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return feed.note_failed(error.to_string()),
    };
    let mut datagrams = Reception { socket, from: None, buffer: vec![0; LONGEST] };
    feed.begin("nothing has come yet");
    loop {
        match feed.pump(&mut datagrams, stall).await {
            Ending::Unwanted => return,
            ending @ Ending::NoTransportStream(_) => feed.note_failed(ending.to_string()),
            ending => {
                if matches!(ending, Ending::Broken(_)) {
                    sleep(PAUSE).await;
                }
                // Whoever sends next is heard.
                let had_sender = datagrams.from.take().is_some();
                if had_sender {
                    feed.begin(ending.to_string());
                }
            }
        }
    }
}

/// Datagrams of one sender: those of two make no stream.
struct Reception {
    socket: UdpSocket,
    from: Option<SocketAddr>,
    buffer: Vec<u8>,
}

impl Read for Reception {
    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            let (count, from) = self.socket.recv_from(&mut self.buffer).await?;
            if *self.from.get_or_insert(from) == from && count > 0 {
                return Ok(Some(Bytes::copy_from_slice(&self.buffer[..count])));
            }
        }
    }
}
