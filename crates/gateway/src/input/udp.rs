//! Transport streams in datagrams, as encoders and televisions' head ends send them; to a group, if the address is one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anabranch_media::alignment::PACKET;
use bytes::Bytes;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

use super::feed::{Ending, Feed, Read, Status};
use super::source::Datagrams;
use crate::overview::InputState;

/// What the system is to hold while nobody reads: a second of 32 Mbit/s.
const BUFFER: usize = 4 << 20;

/// No datagram is longer.
const LONGEST: usize = 65_536;

/// After a read that failed, so long nothing is read.
const PAUSE: Duration = Duration::from_millis(100);

/// A packet of a transport stream begins with it (ISO/IEC 13818-1, 2.4.3.2).
const SYNC: u8 = 0x47;

/// Whoever has sent nothing of a stream for so long has lost its place to the next who does: an encoder that is
/// started again sends from another port.
const SILENCE: Duration = Duration::from_secs(1);

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
    let mut datagrams =
        Reception { socket, status: feed.status(), sender: None, stranger: None, next: None, buffer: vec![0; LONGEST] };
    feed.begin("nothing has come yet");
    loop {
        let ending = feed.pump(&mut datagrams, stall).await;
        match ending {
            Ending::Unwanted => return,
            Ending::Over => feed.begin("another sends now"),
            ending => {
                if matches!(ending, Ending::Broken(_)) {
                    sleep(PAUSE).await;
                }
                // Whoever sends a stream next is heard.
                if datagrams.sender.take().is_some() {
                    feed.begin(ending.to_string());
                }
                if matches!(ending, Ending::NoTransportStream(_)) {
                    feed.note_failed(ending.to_string());
                }
            }
        }
    }
}

/// Datagrams of one sender: those of two make no stream.
struct Reception {
    socket: UdpSocket,
    status: Status,
    sender: Option<Sender>,
    /// Who has been named as one that sends no stream, while nobody else does: one of any number of them, whose addresses
    /// may be made up.
    stranger: Option<SocketAddr>,
    /// What came first of a sender that has taken another's place.
    next: Option<Bytes>,
    buffer: Vec<u8>,
}

/// Whose datagrams are taken.
struct Sender {
    address: SocketAddr,
    /// When something of a stream came last.
    heard: Instant,
}

impl Read for Reception {
    /// It is over when another has taken the sender's place, with whose first datagram it goes on.
    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        loop {
            let (count, address) = self.socket.recv_from(&mut self.buffer).await?;
            let (datagram, heard) = (&self.buffer[..count], Instant::now());
            let is_stream = is_of_stream(datagram);
            match &mut self.sender {
                Some(sender) if sender.address == address => {
                    if is_stream {
                        sender.heard = heard;
                    }
                    if count > 0 {
                        return Ok(Some(Bytes::copy_from_slice(datagram)));
                    }
                }
                Some(sender) if is_stream && sender.heard.elapsed() >= SILENCE => {
                    *sender = Sender { address, heard };
                    self.next = Some(Bytes::copy_from_slice(datagram));
                    return Ok(None);
                }
                Some(_) => {}
                None if is_stream => {
                    (self.sender, self.stranger) = (Some(Sender { address, heard }), None);
                    return Ok(Some(Bytes::copy_from_slice(datagram)));
                }
                None if self.stranger.is_some() => {}
                None => {
                    self.stranger = Some(address);
                    let words = format!(
                        "what comes from {address} is no MPEG transport stream: expected datagrams with packets of \
                         {PACKET} bytes that begin with 0x47, as ffmpeg sends with -f mpegts"
                    );
                    self.status.set(InputState::Waiting, words);
                }
            }
        }
    }
}

/// Whether a datagram may be of a transport stream: all packets that begin in it, the first wherever the datagram
/// before has left off or behind a header of RTP (RFC 2250, 2), begin with a sync byte. One packet alone proves
/// something at the datagram's beginning only.
fn is_of_stream(datagram: &[u8]) -> bool {
    let begins = |first: usize| datagram.iter().skip(first).step_by(PACKET);
    (0..PACKET).any(|first| begins(first).len() > usize::from(first > 0) && begins(first).all(|byte| *byte == SYNC))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: &[u8] = include_bytes!("../../../media/tests/clip.ts");

    #[tokio::test]
    async fn of_many_who_send_no_stream_one_is_named_until_somebody_sends_one() {
        let bind = async || UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (socket, status) = (bind().await, Status::new(String::new()));
        let to = socket.local_addr().unwrap();
        let (sender, stranger, next) = (None, None, None);
        let mut reception =
            Reception { socket, status: status.clone(), sender, stranger, next, buffer: vec![0; LONGEST] };
        let (first, second, encoder) = (bind().await, bind().await, bind().await);
        for stranger in [&first, &second, &second, &first] {
            stranger.send_to(b"junk", to).await.unwrap();
        }
        encoder.send_to(&CLIP[..1316], to).await.unwrap();
        assert_eq!(reception.read().await.unwrap().as_deref(), Some(&CLIP[..1316]));
        let words = status.get().detail.unwrap();
        assert!(words.starts_with(&format!("what comes from {} is", first.local_addr().unwrap())), "{words}");
        assert_eq!(reception.stranger, None, "the next one is named again");
    }

    #[test]
    fn datagrams_are_of_a_stream_however_it_is_cut_and_junk_is_not() {
        let mut streams: Vec<Vec<u8>> = [PACKET, 1316, 1472, 1024, 8192]
            .into_iter()
            .flat_map(|length| CLIP.chunks_exact(length).take(50).map(<[u8]>::to_vec))
            .collect();
        let header = [0x80, 33, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4];
        streams.push([&header[..], &CLIP[..1316]].concat());
        for stream in &streams {
            assert!(is_of_stream(stream), "{} bytes", stream.len());
        }
        let text: Vec<u8> = b"GET / HTTP/1.1\r\nHost: me\r\n\r\n".repeat(30);
        for junk in [&[][..], &[0; 1000], &[0x80; 188], &text, &CLIP[1..PACKET]] {
            assert!(!is_of_stream(junk), "{junk:?}");
        }
    }
}
