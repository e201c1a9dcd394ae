//! The SOCKS5 server (RFC 1928) through which programs use the overlay.
//!
//! CONNECT and UDP ASSOCIATE; names go to the exit as they are and are never resolved here. A user name and password (RFC 1929)
//! authenticate nobody: they say with whom a connection may share a session, as Tor's `IsolateSOCKSAuth` does.
//! Whoever gives none shares one with all who give none.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_onion::session::{Reason, Target};
use fast_socks5::server::{
    PasswordAuthenticationStarted, Socks5ServerProtocol, SocksServerError, StandardAuthentication,
    StandardAuthenticationStarted,
};
use fast_socks5::{ReplyError, Socks5Command};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use super::association::{self, target_of};
use super::flow;
use super::pipe::{self, ConnectionId, FromTask, INBOX, Inbox, Outbox, ToTask};

/// A program has so long to say what it wants.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Connections at once.
pub const MOST_CONNECTIONS: usize = 1024;

/// Requests that wait for the driver.
const MOST_WAITING: usize = 64;

/// What tasks say that waits for the driver.
const MOST_SAID: usize = 1024;

/// With whom a connection may share a session: a hash of the user name and password that it gave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SocksUser([u8; 32]);

impl fmt::Debug for SocksUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SocksUser")
    }
}

impl SocksUser {
    /// Whoever gave these.
    pub fn new(name: &str, password: &str) -> SocksUser {
        let mut hasher = blake3::Hasher::new_derive_key("anabranch onion proxy user");
        hasher.update(&(name.len() as u64).to_be_bytes()).update(name.as_bytes()).update(password.as_bytes());
        SocksUser(*hasher.finalize().as_bytes())
    }
}

/// What a program wants to be carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Bytes, to and from this target.
    Stream(Target),
    /// Datagrams, each of which says where to.
    Datagrams,
}

/// What a program wants.
#[derive(Debug)]
pub struct Request {
    /// Its connection.
    pub connection: ConnectionId,
    /// With whom it may share a session.
    pub user: SocksUser,
    /// What it wants.
    pub wants: Wants,
    /// How its task is notified of what becomes of it.
    pub inbox: Inbox,
}

/// A server that listens.
#[derive(Debug)]
pub struct SocksServer {
    address: SocketAddr,
    requests: mpsc::Receiver<Request>,
    said: mpsc::Receiver<(ConnectionId, FromTask)>,
    task: tokio::task::JoinHandle<()>,
}

impl SocksServer {
    /// Listens at `address`.
    ///
    /// # Errors
    ///
    /// When it can't.
    pub async fn bind(address: SocketAddr) -> io::Result<SocksServer> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (request_sender, requests) = mpsc::channel(MOST_WAITING);
        let (outbox, said) = mpsc::channel(MOST_SAID);
        let task = tokio::spawn(serve(listener, request_sender, outbox));
        Ok(SocksServer { address, requests, said, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What programs want, and what tasks say of their connections: both to be polled by the driver.
    pub fn channels(&mut self) -> (&mut mpsc::Receiver<Request>, &mut mpsc::Receiver<(ConnectionId, FromTask)>) {
        (&mut self.requests, &mut self.said)
    }
}

impl Drop for SocksServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, requests: mpsc::Sender<Request>, outbox: Outbox) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(_) => {
                // Out of descriptors, or a connection that was gone: the next may do.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let id = ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed));
        let (requests, outbox) = (requests.clone(), outbox.clone());
        tokio::spawn(async move {
            // What went wrong was reported to the program, which is all that can be done.
            let _ = connection(id, socket, requests, outbox).await;
            drop(place);
        });
    }
}

async fn connection(
    id: ConnectionId,
    socket: TcpStream,
    requests: mpsc::Sender<Request>,
    outbox: Outbox,
) -> Result<(), SocksServerError> {
    let asked = timeout(REQUEST_TIME, ask(socket)).await.map_err(|_| SocksServerError::EOF)?;
    let (protocol, user, target) = match asked? {
        Asked::Stream(protocol, user, target) => (protocol, user, target),
        Asked::Datagrams(protocol, user, place) => {
            return associate(id, protocol, user, place, requests, outbox).await;
        }
        Asked::Refused => return Ok(()),
    };
    let (inbox, mut messages) = mpsc::channel(INBOX);
    if requests.send(Request { connection: id, user, wants: Wants::Stream(target), inbox }).await.is_err() {
        return protocol.reply_error(&ReplyError::GeneralFailure).await;
    }
    let refused = loop {
        match messages.recv().await {
            Some(ToTask::Accepted) => break None,
            Some(ToTask::Reset(reason)) => break Some(reply_of(reason)),
            Some(_) => {}
            None => break Some(ReplyError::GeneralFailure),
        }
    };
    if let Some(error) = refused {
        return protocol.reply_error(&error).await;
    }
    // The exit's own address is nobody's business here.
    match protocol.reply_success(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))).await {
        Ok(socket) => {
            pipe::run(id, socket, outbox, messages).await;
            Ok(())
        }
        Err(error) => {
            let _ = outbox.send((id, FromTask::Reset(Reason::Stopped))).await;
            Err(error)
        }
    }
}

/// Where a program's datagrams come from, and where they come to.
struct Place {
    program: SocketAddr,
    socket: UdpSocket,
}

/// A program wants datagrams carried. Nobody can be asked whether they may leave before there is one: success says that
/// they are taken here.
async fn associate(
    id: ConnectionId,
    protocol: Protocol,
    user: SocksUser,
    place: Place,
    requests: mpsc::Sender<Request>,
    outbox: Outbox,
) -> Result<(), SocksServerError> {
    let (inbox, messages) = mpsc::channel(flow::INBOX);
    let Ok(address) = place.socket.local_addr() else {
        return protocol.reply_error(&ReplyError::GeneralFailure).await;
    };
    if requests.send(Request { connection: id, user, wants: Wants::Datagrams, inbox }).await.is_err() {
        return protocol.reply_error(&ReplyError::GeneralFailure).await;
    }
    match protocol.reply_success(address).await {
        Ok(control) => {
            association::run(id, control, place.socket, place.program, outbox, messages).await;
            Ok(())
        }
        Err(error) => {
            let _ = outbox.send((id, FromTask::Finish)).await;
            Err(error)
        }
    }
}

type Protocol = Socks5ServerProtocol<TcpStream, fast_socks5::server::states::CommandRead>;

enum Asked {
    Stream(Protocol, SocksUser, Target),
    Datagrams(Protocol, SocksUser, Place),
    /// It was answered so.
    Refused,
}

/// What the program wants.
async fn ask(socket: TcpStream) -> Result<Asked, SocksServerError> {
    // Where both ends of the connection are; it may break at any time.
    let ends = (socket.local_addr(), socket.peer_addr());
    let methods = StandardAuthentication::allow_no_auth(true);
    let (protocol, user) = match Socks5ServerProtocol::start(socket).negotiate_auth(methods).await? {
        StandardAuthenticationStarted::NoAuthentication(started) => {
            (Socks5ServerProtocol::finish_auth(started), SocksUser::default())
        }
        StandardAuthenticationStarted::PasswordAuthentication(started) => authenticate(started).await?,
    };
    let (protocol, command, target) = protocol.read_command().await?;
    let refused = match (command, target_of(target), ends) {
        (Socks5Command::TCPConnect, Some(target), _) => return Ok(Asked::Stream(protocol, user, target)),
        (Socks5Command::TCPConnect, None, _) => ReplyError::HostUnreachable,
        (Socks5Command::UDPAssociate, said, (Ok(local), Ok(peer))) => {
            // The port from which datagrams will come, or 0; an address is what most programs do not know of themselves.
            let port = said.map_or(0, |said| match said {
                Target::Address(_, port) | Target::Name(_, port) => port,
                Target::Itself => 0,
            });
            match UdpSocket::bind((local.ip(), 0)).await {
                Ok(socket) => {
                    let program = SocketAddr::new(peer.ip(), port);
                    return Ok(Asked::Datagrams(protocol, user, Place { program, socket }));
                }
                Err(_) => ReplyError::GeneralFailure,
            }
        }
        (Socks5Command::UDPAssociate, ..) => ReplyError::GeneralFailure,
        (Socks5Command::TCPBind, ..) => ReplyError::CommandNotSupported,
    };
    protocol.reply_error(&refused).await?;
    Ok(Asked::Refused)
}

async fn authenticate(
    started: PasswordAuthenticationStarted<TcpStream>,
) -> Result<(Socks5ServerProtocol<TcpStream, fast_socks5::server::states::Authenticated>, SocksUser), SocksServerError>
{
    let (name, password, received) = started.read_username_password().await?;
    Ok((Socks5ServerProtocol::finish_auth(received.accept().await?), SocksUser::new(&name, &password)))
}

fn reply_of(reason: Reason) -> ReplyError {
    match reason {
        Reason::Forbidden => ReplyError::ConnectionNotAllowed,
        Reason::NameUnknown => ReplyError::HostUnreachable,
        Reason::Unreachable => ReplyError::NetworkUnreachable,
        Reason::Refused => ReplyError::ConnectionRefused,
        Reason::TimedOut => ReplyError::ConnectionTimeout,
        Reason::Stopped | Reason::Busy | Reason::Broken => ReplyError::GeneralFailure,
    }
}
