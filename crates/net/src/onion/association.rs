//! UDP ASSOCIATE of SOCKS5 (RFC 1928 7): a program's datagrams, each with where to in front of it, and the answers with
//! where from.
//!
//! The association lives as long as the TCP connection that asked for it. It takes datagrams from that connection's
//! address alone, and of one port there: the one that the program named, or else the first that sends one that can be
//! read. Pieces of datagrams (FRAG) are dropped, as the RFC has it for whoever does not put them together.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use anabranch_onion::session::cell::MAX_HOST;
use anabranch_onion::session::{MOST_DATAGRAM, Target};
use bytes::Bytes;
use fast_socks5::util::target_addr::TargetAddr;
use fast_socks5::{new_udp_header, parse_udp_request};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::mpsc;

use super::flow::MOST_UNSENT;
use super::pipe::{ConnectionId, FromTask, Outbox, ToTask};
use super::socks::words::name_of;

/// Bytes before a datagram at most: reserved, fragment, kind of address, a name with its length, port.
const MOST_HEADER: usize = 2 + 1 + 1 + 1 + MAX_HOST + 2;

/// Where a program wants to; nothing if it is no name that could be resolved.
fn target_of(address: TargetAddr) -> Option<Target> {
    match address {
        TargetAddr::Ip(address) => Some(Target::Address(address.ip(), address.port())),
        TargetAddr::Domain(name, port) => name_of(name, port),
    }
}

/// A program's datagram: where to, and what; nothing if it is none, a piece of one, or too long.
pub fn read(datagram: &[u8]) -> Option<(Target, &[u8])> {
    // Bytes that are there are never waited for.
    let parsed = pin!(parse_udp_request(datagram)).poll(&mut Context::from_waker(Waker::noop()));
    let Poll::Ready(Ok((fragment, address, bytes))) = parsed else { return None };
    let target = target_of(address).filter(|_| fragment == 0 && bytes.len() <= MOST_DATAGRAM)?;
    Some((target, bytes))
}

/// A datagram for a program, from the target as it has named it; nothing if there is no way to say that.
pub fn write(from: &Target, bytes: &[u8]) -> Option<Vec<u8>> {
    let header = match from {
        Target::Address(address, port) => new_udp_header((*address, *port)),
        Target::Name(name, port) => new_udp_header(TargetAddr::Domain(name.clone(), *port)),
        Target::Itself => return None,
    };
    Some([&header.ok()?, bytes].concat())
}

/// Carries datagrams both ways until `control` ends, something comes there, or the driver gives it up. `program` is where
/// its datagrams come from; the first one tells where no port is.
pub async fn run(
    id: ConnectionId,
    mut control: TcpStream,
    socket: UdpSocket,
    mut program: SocketAddr,
    outbox: Outbox,
    mut inbox: mpsc::Receiver<ToTask>,
) {
    // One more than may come: what is longer is told from what was cut.
    let mut buffer = [0; MOST_HEADER + MOST_DATAGRAM + 1];
    let mut unsent = 0;
    loop {
        tokio::select! {
            came = socket.recv_from(&mut buffer), if unsent < MOST_UNSENT => {
                // An answer that was refused is an error here; the program may listen again.
                let Ok((length, from)) = came else { continue };
                let is_its = from.ip() == program.ip() && (program.port() == 0 || from.port() == program.port());
                if !is_its || length == buffer.len() {
                    continue;
                }
                let Some((target, bytes)) = read(&buffer[..length]) else { continue };
                program.set_port(from.port());
                unsent += 1;
                let said = FromTask::DatagramTo(target, Bytes::copy_from_slice(bytes));
                if outbox.send((id, said)).await.is_err() {
                    return;
                }
            }
            message = inbox.recv() => match message {
                Some(ToTask::DatagramFrom(from, bytes)) => {
                    if let Some(datagram) = write(&from, &bytes).filter(|_| program.port() != 0) {
                        // Where the socket has no room, this one is lost.
                        let _ = socket.try_send_to(&datagram, program);
                    }
                }
                Some(ToTask::Taken) => unsent -= 1,
                Some(ToTask::Reset(_)) | None => return,
                Some(_) => {}
            },
            // Nothing is to come there: bytes as well as an end mean that the program has done with it.
            _ = control.read_u8() => break,
        }
    }
    let _ = outbox.send((id, FromTask::Finish)).await;
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn what_a_program_sends_is_read_and_what_it_is_sent_has_the_same_form() {
        let name = Target::Name("example.org".into(), 53);
        let targets = [
            name.clone(),
            Target::Address([192, 0, 2, 1].into(), 7),
            Target::Address("2001:db8::1".parse().unwrap(), 9),
        ];
        for target in targets {
            for length in [0, 1, MOST_DATAGRAM] {
                let datagram = write(&target, &vec![7; length]).unwrap();
                assert_eq!(read(&datagram), Some((target.clone(), &vec![7; length][..])));
                let too_long = write(&target, &[7; MOST_DATAGRAM + 1]).unwrap();
                assert_eq!(read(&too_long), None);
                let mut piece = datagram.clone();
                piece[2] = 1;
                assert_eq!(read(&piece), None, "a piece");
                let header = datagram.len() - length;
                for cut in 0..header {
                    assert_eq!(read(&datagram[..cut]), None, "cut to {cut}");
                }
            }
        }
        // By the RFC's picture, and not by whatever the library writes.
        let datagram = write(&name, b"?").unwrap();
        assert_eq!(datagram, [&[0, 0, 0, 3, 11][..], b"example.org", &[0, 53], b"?"].concat());
        let spaces = [&[0, 0, 0, 3, 3][..], b"a b", &[0, 53], b"?"].concat();
        assert_eq!(read(&spaces), None);
        let by_text = [&[0, 0, 0, 3, 9][..], b"127.0.0.1", &[0, 53], b"?"].concat();
        assert_eq!(read(&by_text).unwrap().0, Target::Address(Ipv4Addr::LOCALHOST.into(), 53));
        assert_eq!(write(&Target::Itself, b"?"), None);
    }
}
