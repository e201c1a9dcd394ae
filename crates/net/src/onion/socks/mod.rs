//! The SOCKS5 server (RFC 1928) through which programs use the overlay.
//!
//! CONNECT and UDP ASSOCIATE; names go to the exit as they are and are never resolved here. A user name and password (RFC 1929)
//! authenticate nobody: they say with whom a connection may share a session, as Tor's `IsolateSOCKSAuth` does.
//! Whoever gives none shares one with all who give none.

pub(super) mod words;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anabranch_onion::session::{Reason, Target};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

pub use self::words::Foreign;
use self::words::{Command, NOWHERE, Reply, Unserved, greet, read_request, reply};
use super::association;
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
    pub fn new(name: &[u8], password: &[u8]) -> SocksUser {
        let mut hasher = blake3::Hasher::new_derive_key("anabranch onion proxy user");
        hasher.update(&(name.len() as u64).to_be_bytes()).update(name).update(password);
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
    foreign: mpsc::Receiver<Foreign>,
    task: tokio::task::JoinHandle<()>,
}

/// What a driver polls.
pub type Channels<'a> = (
    &'a mut mpsc::Receiver<Request>,
    &'a mut mpsc::Receiver<(ConnectionId, FromTask)>,
    &'a mut mpsc::Receiver<Foreign>,
);

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
        // Of many only that there are some is of use.
        let (foreign_sender, foreign) = mpsc::channel(1);
        let task = tokio::spawn(serve(listener, request_sender, outbox, foreign_sender));
        Ok(SocksServer { address, requests, said, foreign, task })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What programs want, what tasks say of their connections, and that a program speaks something else: all to be polled
    /// by the driver.
    pub fn channels(&mut self) -> Channels<'_> {
        (&mut self.requests, &mut self.said, &mut self.foreign)
    }
}

impl Drop for SocksServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, requests: mpsc::Sender<Request>, outbox: Outbox, foreign: mpsc::Sender<Foreign>) {
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
        let (requests, outbox, foreign) = (requests.clone(), outbox.clone(), foreign.clone());
        tokio::spawn(async move {
            // What else went wrong was reported to the program, which is all that can be done.
            if let Err(Unserved::Foreign(what)) = connection(id, socket, requests, outbox).await {
                let _ = foreign.try_send(what);
            }
            drop(place);
        });
    }
}

async fn connection(
    id: ConnectionId,
    mut socket: TcpStream,
    requests: mpsc::Sender<Request>,
    outbox: Outbox,
) -> Result<(), Unserved> {
    let asked = timeout(REQUEST_TIME, ask(&mut socket)).await.map_err(|_| Unserved::Refused)?;
    let (user, target) = match asked? {
        Asked::Stream(user, target) => (user, target),
        Asked::Datagrams(user, place) => return associate(id, socket, user, place, requests, outbox).await,
    };
    let (inbox, mut messages) = mpsc::channel(INBOX);
    let wants = Wants::Stream(target);
    let refused = match requests.send(Request { connection: id, user, wants, inbox }).await {
        Err(_) => Some(Reply::GeneralFailure),
        Ok(()) => loop {
            match messages.recv().await {
                Some(ToTask::Accepted) => break None,
                Some(ToTask::Reset(reason)) => break Some(reason.into()),
                Some(_) => {}
                None => break Some(Reply::GeneralFailure),
            }
        },
    };
    if let Some(why) = refused {
        return Ok(reply(&mut socket, why, NOWHERE).await?);
    }
    // The exit's own address is nobody's business here.
    match reply(&mut socket, Reply::Succeeded, NOWHERE).await {
        Ok(()) => {
            // A program that stands still holds nothing but its own place.
            pipe::run(id, socket, outbox, messages, Duration::MAX).await;
            Ok(())
        }
        Err(error) => {
            let _ = outbox.send((id, FromTask::Reset(Reason::Stopped))).await;
            Err(error.into())
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
    mut control: TcpStream,
    user: SocksUser,
    place: Place,
    requests: mpsc::Sender<Request>,
    outbox: Outbox,
) -> Result<(), Unserved> {
    let (inbox, messages) = mpsc::channel(flow::INBOX);
    let address = place.socket.local_addr();
    let request = Request { connection: id, user, wants: Wants::Datagrams, inbox };
    let (Ok(address), Ok(())) = (address, requests.send(request).await) else {
        return Ok(reply(&mut control, Reply::GeneralFailure, NOWHERE).await?);
    };
    match reply(&mut control, Reply::Succeeded, address).await {
        Ok(()) => {
            association::run(id, control, place.socket, place.program, outbox, messages).await;
            Ok(())
        }
        Err(error) => {
            let _ = outbox.send((id, FromTask::Finish)).await;
            Err(error.into())
        }
    }
}

enum Asked {
    Stream(SocksUser, Target),
    Datagrams(SocksUser, Place),
}

/// What the program wants.
async fn ask(socket: &mut TcpStream) -> Result<Asked, Unserved> {
    let user = greet(socket).await?.map_or(SocksUser::default(), |(name, password)| SocksUser::new(&name, &password));
    let (command, target) = read_request(socket).await?;
    let refused = match (command, target) {
        (Command::Connect, Some(target)) => return Ok(Asked::Stream(user, target)),
        (Command::Connect, None) => Reply::HostUnreachable,
        (Command::UdpAssociate, said) => {
            // The port from which datagrams will come, or 0; an address is what most programs do not know of themselves.
            let port = said.map_or(0, |said| match said {
                Target::Address(_, port) | Target::Name(_, port) => port,
                Target::Itself => 0,
            });
            let (local, peer) = (socket.local_addr()?, socket.peer_addr()?);
            match UdpSocket::bind((local.ip(), 0)).await {
                Ok(place) => {
                    let program = SocketAddr::new(peer.ip(), port);
                    return Ok(Asked::Datagrams(user, Place { program, socket: place }));
                }
                Err(_) => Reply::GeneralFailure,
            }
        }
        (Command::Bind, _) => Reply::CommandNotSupported,
    };
    reply(socket, refused, NOWHERE).await?;
    Err(Unserved::Refused)
}
