//! What a program says to a SOCKS5 server and hears from it (RFC 1928, and RFC 1929 for user names and passwords).
//!
//! User names, passwords and names of hosts are bytes here: those of two users who differ are apart whatever they are
//! encoded in, an empty password is one, and a name that could not be resolved is answered as such.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use anabranch_onion::session::cell::is_host_name;
use anabranch_onion::session::{Reason, Target};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const VERSION: u8 = 5;

/// Methods of RFC 1928 3.
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NONE_ACCEPTABLE: u8 = 0xff;

/// The version of RFC 1929, and its success.
const SUBNEGOTIATION: u8 = 1;
const WELCOME: u8 = 0;

/// Kinds of address.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// What is answered to SOCKS4: rejected, and an address that means nothing.
const SOCKS4_REJECTED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// What is answered to HTTP.
const HTTP_REJECTED: &[u8] = b"HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n\
    This is a SOCKS5 proxy and no HTTP proxy: set it as SOCKS5, with names resolved by the proxy (socks5h://).\n";

/// Bytes of what is no SOCKS5 that are read at most.
const LONGEST_FOREIGN: u64 = 16 << 10;

/// What a request may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Connect,
    Bind,
    UdpAssociate,
}

/// How a request is answered (RFC 1928 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TimedOut = 6,
    CommandNotSupported = 7,
    AddressNotSupported = 8,
}

impl From<Reason> for Reply {
    fn from(reason: Reason) -> Reply {
        match reason {
            Reason::Forbidden => Reply::NotAllowed,
            Reason::NameUnknown => Reply::HostUnreachable,
            Reason::Unreachable => Reply::NetworkUnreachable,
            Reason::Refused => Reply::ConnectionRefused,
            Reason::TimedOut => Reply::TimedOut,
            Reason::Stopped | Reason::Busy | Reason::Broken => Reply::GeneralFailure,
        }
    }
}

/// What is no SOCKS5, and may be what a program was set to by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// The version before.
    Socks4,
    /// A request to an HTTP proxy.
    Http,
    /// Something else.
    Unknown,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Foreign::Socks4 => "SOCKS4",
            Foreign::Http => "HTTP",
            Foreign::Unknown => "something that is not SOCKS5",
        })
    }
}

/// Why a program is not served.
#[derive(Debug)]
pub enum Unserved {
    /// The connection has broken.
    Gone,
    /// It speaks something else, and was answered in that where there is an answer.
    Foreign(Foreign),
    /// It was answered so.
    Refused,
}

impl From<io::Error> for Unserved {
    fn from(_: io::Error) -> Unserved {
        Unserved::Gone
    }
}

/// Agrees with a program on how it says who it is: its name and password, if it gives any.
pub async fn greet(socket: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Result<Option<(Vec<u8>, Vec<u8>)>, Unserved> {
    let foreign = match socket.read_u8().await? {
        VERSION => None,
        4 => Some((Foreign::Socks4, &SOCKS4_REJECTED[..])),
        letter if letter.is_ascii_alphabetic() => Some((Foreign::Http, HTTP_REJECTED)),
        _ => Some((Foreign::Unknown, &[][..])),
    };
    if let Some((foreign, answer)) = foreign {
        socket.write_all(answer).await?;
        socket.shutdown().await?;
        // A connection that is closed before all was read is reset, and the answer with it.
        tokio::io::copy(&mut socket.take(LONGEST_FOREIGN), &mut tokio::io::sink()).await?;
        return Err(Unserved::Foreign(foreign));
    }
    let methods = read_short(socket).await?;
    if methods.contains(&USER_AND_PASSWORD) {
        socket.write_all(&[VERSION, USER_AND_PASSWORD]).await?;
        let version = socket.read_u8().await?;
        if version != SUBNEGOTIATION {
            return Err(Unserved::Refused);
        }
        let user = (read_short(socket).await?, read_short(socket).await?);
        socket.write_all(&[SUBNEGOTIATION, WELCOME]).await?;
        return Ok(Some(user));
    }
    if methods.contains(&NO_AUTHENTICATION) {
        socket.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
        return Ok(None);
    }
    socket.write_all(&[VERSION, NONE_ACCEPTABLE]).await?;
    Err(Unserved::Refused)
}

/// What a program asks for, and where; no target if it is no name that could be resolved.
pub async fn read_request(
    socket: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(Command, Option<Target>), Unserved> {
    let mut head = [0; 4];
    socket.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != VERSION {
        return Err(Unserved::Refused);
    }
    let host: Result<IpAddr, Vec<u8>> = match kind {
        IPV4 => Ok(Ipv4Addr::from_bits(socket.read_u32().await?).into()),
        IPV6 => Ok(Ipv6Addr::from_bits(socket.read_u128().await?).into()),
        NAME => Err(read_short(socket).await?),
        _ => {
            reply(socket, Reply::AddressNotSupported, NOWHERE).await?;
            return Err(Unserved::Refused);
        }
    };
    let port = socket.read_u16().await?;
    let command = match command {
        1 => Command::Connect,
        2 => Command::Bind,
        3 => Command::UdpAssociate,
        _ => {
            reply(socket, Reply::CommandNotSupported, NOWHERE).await?;
            return Err(Unserved::Refused);
        }
    };
    let target = match host {
        Ok(address) => Some(Target::Address(address, port)),
        Err(name) => String::from_utf8(name).ok().and_then(|name| name_of(name, port)),
    };
    Ok((command, target))
}

/// Where a program wants to by a name; nothing if it is no name that could be resolved.
pub fn name_of(name: String, port: u16) -> Option<Target> {
    match name.parse::<IpAddr>() {
        Ok(address) => Some(Target::Address(address, port)),
        Err(_) => is_host_name(&name).then_some(Target::Name(name, port)),
    }
}

/// An address that is nobody's business, or none.
pub const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Answers a request, with the address at which this end is reached.
pub async fn reply(socket: &mut (impl AsyncWrite + Unpin), reply: Reply, at: SocketAddr) -> io::Result<()> {
    let mut bytes = vec![VERSION, reply as u8, 0];
    match at.ip() {
        IpAddr::V4(address) => bytes.extend([&[IPV4], &address.octets()[..]].concat()),
        IpAddr::V6(address) => bytes.extend([&[IPV6], &address.octets()[..]].concat()),
    }
    bytes.extend(at.port().to_be_bytes());
    socket.write_all(&bytes).await
}

/// Bytes with their number, of up to 255, before them.
async fn read_short(socket: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::from(socket.read_u8().await?)];
    socket.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// What `said` is taken for, and what is answered.
    async fn greeted(said: &[u8]) -> (Result<Option<(Vec<u8>, Vec<u8>)>, Unserved>, Vec<u8>) {
        let (mut program, mut server) = duplex(4096);
        program.write_all(said).await.unwrap();
        program.shutdown().await.unwrap();
        let outcome = greet(&mut server).await;
        drop(server);
        let mut heard = Vec::new();
        program.read_to_end(&mut heard).await.unwrap();
        (outcome, heard)
    }

    #[tokio::test]
    async fn any_bytes_are_a_name_and_an_empty_password_is_one() {
        for (name, password) in [(&b"alice"[..], &b""[..]), (b"caf\xe9", b"x"), (b"", b""), (&[9; 255], &[0xff; 255])] {
            let lengths = [name.len() as u8, password.len() as u8];
            let said = [&[5, 2, 0, 2, 1, lengths[0]], name, &lengths[1..], password].concat();
            let (user, heard) = greeted(&said).await;
            assert_eq!(user.unwrap(), Some((name.to_vec(), password.to_vec())));
            assert_eq!(heard, [5, 2, 1, 0]);
        }
        let (user, heard) = greeted(&[5, 1, 0]).await;
        assert!(user.unwrap().is_none() && heard == [5, 0]);
        let (user, heard) = greeted(&[5, 1, 1]).await;
        assert!(matches!(user, Err(Unserved::Refused)) && heard == [5, 0xff], "GSSAPI alone");
    }

    #[tokio::test]
    async fn what_is_no_socks5_is_answered_in_its_own_words() {
        let (outcome, heard) = greeted(b"\x04\x01\x00\x50\xc0\x00\x02\x01me\0").await;
        assert!(matches!(outcome, Err(Unserved::Foreign(Foreign::Socks4))) && heard == SOCKS4_REJECTED);
        for request in [&b"CONNECT example.org:443 HTTP/1.1\r\n\r\n"[..], b"GET http://example.org/ HTTP/1.1\r\n\r\n"] {
            let (outcome, heard) = greeted(request).await;
            assert!(matches!(outcome, Err(Unserved::Foreign(Foreign::Http))) && heard == HTTP_REJECTED);
        }
        let (outcome, heard) = greeted(&[22, 3, 1, 0]).await;
        assert!(matches!(outcome, Err(Unserved::Foreign(Foreign::Unknown))) && heard.is_empty());
    }

    #[tokio::test]
    async fn a_request_is_read_with_its_target_or_refused_by_number() {
        async fn asked(said: &[u8]) -> (Result<(Command, Option<Target>), Unserved>, Vec<u8>) {
            let (mut program, mut server) = duplex(4096);
            program.write_all(said).await.unwrap();
            let request = read_request(&mut server).await;
            drop(server);
            let mut heard = Vec::new();
            program.read_to_end(&mut heard).await.unwrap();
            (request, heard)
        }
        let name = |name: &[u8]| [&[5, 1, 0, 3, name.len() as u8], name, &[0, 80]].concat();
        let target = async |said: &[u8]| asked(said).await.0.unwrap();
        let of_name = Target::Name("example.org".into(), 80);
        assert_eq!(target(&name(b"example.org")).await, (Command::Connect, Some(of_name)));
        let by_number = Target::Address([192, 0, 2, 1].into(), 80);
        assert_eq!(target(&name(b"192.0.2.1")).await, (Command::Connect, Some(by_number.clone())));
        assert_eq!(target(&[5, 2, 0, 1, 192, 0, 2, 1, 0, 80]).await, (Command::Bind, Some(by_number)));
        let v6 = [&[5, 3, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[0, 53]].concat();
        let localhost = Target::Address(Ipv6Addr::LOCALHOST.into(), 53);
        assert_eq!(target(&v6).await, (Command::UdpAssociate, Some(localhost)));
        for unresolvable in [&b"caf\xe9.example"[..], b"", b"a b"] {
            assert_eq!(target(&name(unresolvable)).await, (Command::Connect, None));
        }
        for (wrong, code) in [(&[5, 9, 0, 1, 192, 0, 2, 1, 0, 80][..], 7), (&[5, 1, 0, 9, 0, 0, 0, 0][..], 8)] {
            let (request, heard) = asked(wrong).await;
            assert!(matches!(request, Err(Unserved::Refused)), "{request:?}");
            assert_eq!(heard, [5, code, 0, 1, 0, 0, 0, 0, 0, 0]);
        }
    }
}
