//! A file over QUIC: one connection, one stream each way, TLS 1.3. The sender offers, the
//! receiver agrees, the bytes follow, and the receiver says under which name it keeps them
//! once their hash is right.
//!
//! ```text
//! to the receiver:  length 2, offer (proto::message)    then the file, then the end
//! to the sender:    length 2, report                    then length 2, report
//! ```
//!
//! noq carries it, for there a controller's rate holds. Any QUIC library can answer.
//!
//! Who has not shown that it hears what is sent to its address is told to come again (a Retry packet;
//! RFC 9000, 8.1.2): until then nothing is computed and no place is taken. No address gets more than its
//! share of the places.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch_proto::message::{Code, Message, Offer, Report};
use anabranch_proto::printable::printable;
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{FileCheck, Limits, Source, Store, StoreError, TransferError, origin_of};
use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{ConnectionError, Endpoint, PathId, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::sync::mpsc;

use super::identity::{self, Answered, Identity, Trust};
use super::{Factory, Snapshot, flow_of_noq};
use crate::disk::{self, DiskStore};
use crate::setup::random_seed;

/// What both sides say that they speak.
pub const PROTOCOL: &[u8] = b"anabranch-file/1";

/// What is read from a file, or written to one, at once.
const PIECE: u16 = 1 << 15;

/// Pieces that wait at most between a disk and QUIC: half a megabyte a file.
const MOST_WAITING: usize = 16;

/// The longest message: an offer with the longest name is shorter.
const LONGEST_MESSAGE: u16 = 512;

/// Data that may be on its way: 1 Gbit/s over 200 ms.
const MOST_UNACKNOWLEDGED: u32 = 25_000_000;

/// So long a receiver waits for a sender to say what it wants, and to take leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// So long a side tries to tell the other that it is over.
const LEAVE: Duration = Duration::from_secs(1);

/// How a connection that was given up says so.
const GIVEN_UP: VarInt = VarInt::from_u32(1);

/// Why a file was not transferred over QUIC.
#[derive(Debug, thiserror::Error)]
pub enum QuicError {
    /// For a reason that does not come of QUIC.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// There is no socket.
    #[error("cannot use {address}: {why}")]
    Socket {
        /// Where.
        address: SocketAddr,
        /// Why.
        why: std::io::Error,
    },
    /// Somebody else answered.
    #[error(
        "the receiver at {to} has the fingerprint {answered}, not the expected one: check what it printed, it is \
         another one after each start; if it did print the expected one, somebody else answers in its place"
    )]
    Stranger {
        /// Where.
        to: SocketAddr,
        /// Their fingerprint.
        answered: identity::Fingerprint,
    },
    /// Nobody answers.
    #[error("nobody answers at {0}: is the receiver running, and does UDP pass on the way?")]
    NobodyAnswers(SocketAddr),
    /// The connection is over.
    #[error("the connection was lost: {0}")]
    Connection(String),
    /// TLS does not work here.
    #[error("cannot set up TLS: {0}")]
    Tls(String),
}

macro_rules! lost_connection {
    ($($error:ty),*) => {$(
        impl From<$error> for QuicError {
            fn from(error: $error) -> QuicError {
                QuicError::Connection(printable(&error.to_string()))
            }
        }
    )*};
}
lost_connection!(ConnectionError, noq::ReadError, noq::ReadExactError, noq::WriteError, noq::ClosedStream);

/// How far a transfer is, for who looks from outside.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that were handed over to QUIC, or taken from it.
    pub done: AtomicU64,
    /// Bytes of the files.
    pub total: AtomicU64,
}

/// What a transfer was like.
#[derive(Clone, Debug)]
pub struct Done {
    /// Under which name the receiver keeps the file.
    pub name: String,
    /// Its bytes.
    pub length: u64,
    /// From the first byte until the receiver had checked the last.
    pub took: Duration,
    /// What the controller was like at the end.
    pub flow: Snapshot,
    /// QUIC packets that were sent.
    pub packets: u64,
    /// Of them, declared lost.
    pub packets_lost: u64,
}

/// A sender's end.
#[derive(Debug)]
pub struct Sender {
    endpoint: Endpoint,
    to: SocketAddr,
    answered: Answered,
}

impl Sender {
    /// Will send to `to`, if `trust` accepts who answers there, with `factory`'s controller.
    /// To be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When there is no socket, or TLS cannot be set up.
    pub fn new(to: SocketAddr, trust: Trust, factory: Arc<Factory>) -> Result<Sender, QuicError> {
        let any = match to {
            SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
            SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
        };
        let endpoint = Endpoint::client(any).map_err(|why| QuicError::Socket { address: any, why })?;
        let failed = |error: &dyn std::fmt::Display| QuicError::Tls(error.to_string());
        let (tls, answered) = identity::tls_to(trust, PROTOCOL).map_err(|error| failed(&error))?;
        let tls = QuicClientConfig::try_from(tls).map_err(|error| failed(&error))?;
        let mut config = noq::ClientConfig::new(Arc::new(tls));
        let mut transport = TransportConfig::default();
        transport.congestion_controller_factory(factory);
        transport.send_window(u64::from(MOST_UNACKNOWLEDGED));
        config.transport_config(Arc::new(transport));
        endpoint.set_default_client_config(config);
        Ok(Sender { endpoint, to, answered })
    }

    /// Sends the file at `path`, and waits until the receiver has checked it.
    ///
    /// # Errors
    ///
    /// When it was not kept over there, or cannot be read.
    pub async fn send(&self, path: &Path, progress: &Progress) -> Result<Done, QuicError> {
        // A long file takes its time to be hashed, and who waits may give up meanwhile.
        let file = path.to_owned();
        let hashed = tokio::task::spawn_blocking(move || disk::offer(&file, PIECE, || false)).await;
        let hashed = hashed.map_err(std::io::Error::other).and_then(|offer| offer);
        let (offer, source) = hashed.map_err(TransferError::unreadable)?;
        progress.total.store(offer.length, Ordering::Relaxed);
        let connection = self.connect().await?;
        let (mut to, mut from) = connection.open_bi().await?;
        let mut message = Vec::new();
        Message::Offer(offer.clone()).encode(0, &mut message);
        write_message(&mut to, &message).await?;
        expect(&mut from, Code::Accepted).await?;
        let began = Instant::now();
        let (pieces, mut waiting) = mpsc::channel(MOST_WAITING);
        let length = offer.length;
        let reading = tokio::task::spawn_blocking(move || read_all(source, length, &pieces));
        while let Some(piece) = waiting.recv().await {
            to.write_all(&piece).await?;
            progress.done.fetch_add(piece.len() as u64, Ordering::Relaxed);
        }
        let read = reading.await.map_err(std::io::Error::other).and_then(|read| read);
        read.map_err(TransferError::unreadable)?;
        to.finish()?;
        let name = expect(&mut from, Code::Complete).await?;
        let took = began.elapsed();
        let flow = flow_of_noq(&connection, PathId::ZERO).map(|flow| flow.snapshot());
        let stats = connection.path_stats(PathId::ZERO);
        connection.close(VarInt::from_u32(0), b"");
        let (Some(flow), Some(stats)) = (flow, stats) else {
            return Err(TransferError::Malformed("its farewell before its report").into());
        };
        let (packets, packets_lost) = (stats.sent_packets, stats.lost_packets);
        Ok(Done { name, length: offer.length, took, flow, packets, packets_lost })
    }

    async fn connect(&self) -> Result<noq::Connection, QuicError> {
        let connecting = self.endpoint.connect(self.to, identity::NAME);
        let connecting = connecting.map_err(|error| QuicError::Connection(error.to_string()))?;
        connecting.await.map_err(|error| match (&error, self.answered.fingerprint()) {
            (ConnectionError::TimedOut, None) => QuicError::NobodyAnswers(self.to),
            // TLS ends the handshake on our side only when the certificate is not accepted.
            (ConnectionError::TransportError(_), Some(answered)) => QuicError::Stranger { to: self.to, answered },
            _ => error.into(),
        })
    }

    /// Takes leave: the receiver learns at once that nothing more will come.
    pub async fn close(&self) {
        self.endpoint.close(GIVEN_UP, b"given up");
        // Who does not hear it finds out by itself.
        let _ = tokio::time::timeout(LEAVE, self.endpoint.wait_idle()).await;
    }
}

/// What became of a file at a receiver. Connections are numbered in the order in which they come.
#[derive(Debug)]
pub enum Event {
    /// A file comes.
    Offered {
        /// Over which connection.
        connection: u64,
        /// Its name, as the sender calls it.
        name: String,
        /// Its bytes.
        length: u64,
    },
    /// The first of its bytes have come; an empty file has none.
    Begun {
        /// Over which connection.
        connection: u64,
    },
    /// It is in its place, its hash right.
    Complete {
        /// Over which connection.
        connection: u64,
        /// Its name in the folder.
        name: String,
        /// Its bytes.
        length: u64,
    },
    /// It did not arrive, and nothing of it is left.
    Failed {
        /// Over which connection.
        connection: u64,
        /// Why.
        why: QuicError,
    },
}

impl Event {
    /// Over which connection it has happened.
    pub fn connection(&self) -> u64 {
        match *self {
            Event::Offered { connection, .. }
            | Event::Begun { connection }
            | Event::Complete { connection, .. }
            | Event::Failed { connection, .. } => connection,
        }
    }
}

/// Reads `length` bytes into `pieces`, until nobody wants them any more. It blocks.
fn read_all(mut source: impl Source, length: u64, pieces: &mpsc::Sender<Vec<u8>>) -> std::io::Result<()> {
    let mut offset = 0;
    while offset < length {
        let mut piece = vec![0; (length - offset).min(u64::from(PIECE)) as usize];
        source.read(offset, &mut piece)?;
        offset += piece.len() as u64;
        if pieces.blocking_send(piece).is_err() {
            break;
        }
    }
    Ok(())
}

/// A receiver's end.
#[derive(Debug)]
pub struct Receiver {
    endpoint: Endpoint,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: DiskStore,
    limits: Limits,
    progress: Arc<Progress>,
    files: Arc<tokio::sync::Semaphore>,
    /// How many of the places each address has.
    shares: Mutex<BTreeMap<IpAddr, usize>>,
}

/// One of the places of an address, until this value ends.
struct Share {
    shared: Arc<Shared>,
    origin: IpAddr,
}

impl Share {
    /// One more for `source`, unless it has its share.
    fn of(shared: &Arc<Shared>, source: IpAddr) -> Option<Share> {
        let origin = origin_of(source);
        let mut shares = shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(origin).or_default();
        if *share >= shared.limits.files_of_one {
            return None;
        }
        *share += 1;
        Some(Share { shared: Arc::clone(shared), origin })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(&self.origin) {
            *share -= 1;
            if *share == 0 {
                shares.remove(&self.origin);
            }
        }
    }
}

impl Receiver {
    /// Will receive at `listen` as `identity` into `store`. To be called within a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// When there is no socket, or TLS cannot be set up.
    pub fn new(
        listen: SocketAddr,
        identity: &Identity,
        store: DiskStore,
        limits: Limits,
    ) -> Result<Receiver, QuicError> {
        let failed = |error: &dyn std::fmt::Display| QuicError::Tls(error.to_string());
        let tls = identity.tls(PROTOCOL).map_err(|error| failed(&error))?;
        let tls = QuicServerConfig::try_from(tls).map_err(|error| failed(&error))?;
        let mut config = noq::ServerConfig::with_crypto(Arc::new(tls));
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(VarInt::from_u32(MOST_UNACKNOWLEDGED));
        transport.receive_window(VarInt::from_u32(MOST_UNACKNOWLEDGED));
        transport.max_concurrent_bidi_streams(VarInt::from_u32(1));
        transport.max_concurrent_uni_streams(VarInt::from_u32(0));
        config.transport_config(Arc::new(transport));
        let endpoint = Endpoint::server(config, listen).map_err(|why| QuicError::Socket { address: listen, why })?;
        let shared = Shared {
            store,
            files: Arc::new(tokio::sync::Semaphore::new(limits.files)),
            limits,
            progress: Arc::default(),
            shares: Mutex::default(),
        };
        Ok(Receiver { endpoint, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// How far the files are that are on their way.
    pub fn progress(&self) -> Arc<Progress> {
        self.shared.progress.clone()
    }

    /// Takes files until it is dropped; says what becomes of each.
    pub async fn run(&self, events: mpsc::Sender<Event>) {
        let mut transfers = tokio::task::JoinSet::new();
        let mut connections = 0;
        while let Some(incoming) = self.endpoint.accept().await {
            while transfers.try_join_next().is_some() {}
            if !incoming.remote_address_validated() {
                // Who is told so already says so with a token, and is validated.
                let _ = incoming.retry();
                continue;
            }
            let Some(share) = Share::of(&self.shared, incoming.remote_address().ip()) else {
                incoming.refuse();
                continue;
            };
            let Ok(permit) = self.shared.files.clone().try_acquire_owned() else {
                incoming.refuse();
                continue;
            };
            let (shared, events) = (self.shared.clone(), events.clone());
            let connection = connections;
            connections += 1;
            transfers.spawn(async move {
                if let Err(why) = take(&shared, incoming, connection, &events).await {
                    // Nobody listens any more when the receiver is about to end.
                    let _ = events.send(Event::Failed { connection, why }).await;
                }
                drop((permit, share));
            });
        }
    }

    /// Takes leave: each sender learns at once that its file is not taken.
    pub async fn close(&self) {
        self.endpoint.close(GIVEN_UP, b"the receiver ends");
        let _ = tokio::time::timeout(LEAVE, self.endpoint.wait_idle()).await;
    }
}

/// Takes one sender's file.
async fn take(
    shared: &Arc<Shared>,
    incoming: noq::Incoming,
    number: u64,
    events: &mpsc::Sender<Event>,
) -> Result<(), QuicError> {
    let asked = async {
        let connection = incoming.await?;
        let (to, mut from) = connection.accept_bi().await?;
        let offer = read_offer(&mut from).await?;
        Ok::<_, QuicError>((connection, to, from, offer))
    };
    let late = |_| TransferError::Malformed("nothing: it has offered no file");
    let (connection, mut to, mut from, offer) = tokio::time::timeout(PATIENCE, asked).await.map_err(late)??;
    if let Some(why) = shared.limits.refusal(&offer) {
        report(&mut to, Code::Refused, &why).await?;
        return leave(&connection, &mut to).await;
    }
    let (of, wanted) = (Arc::clone(shared), offer.clone());
    let begun = tokio::task::spawn_blocking(move || Arriving::begin(of, wanted)).await;
    let arriving = match begun.unwrap_or_else(|error| Err(StoreError(error.to_string()))) {
        Ok(arriving) => arriving,
        Err(why) => {
            report(&mut to, Code::Refused, &why.0).await?;
            leave(&connection, &mut to).await?;
            return Err(TransferError::Store(why).into());
        }
    };
    let _ =
        events.send(Event::Offered { connection: number, name: offer.name.to_string(), length: offer.length }).await;
    report(&mut to, Code::Accepted, "").await?;
    let begun = async || drop(events.send(Event::Begun { connection: number }).await);
    match arriving.rest(&mut from, begun).await {
        Ok(name) => {
            // The file is kept, whether the sender learns it or not.
            let told = report(&mut to, Code::Complete, &name).await;
            if told.is_ok() {
                let _ = leave(&connection, &mut to).await;
            }
            let _ = events.send(Event::Complete { connection: number, name, length: offer.length }).await;
            Ok(())
        }
        Err(why) => {
            // Who is gone need not be told.
            if report(&mut to, Code::Failed, &why.to_string()).await.is_ok() {
                let _ = leave(&connection, &mut to).await;
            }
            Err(why)
        }
    }
}

/// A file that is being written; what is not whole goes away with this value.
struct Arriving {
    shared: Arc<Shared>,
    store: DiskStore,
    session: SessionId,
    check: FileCheck,
}

impl Arriving {
    /// It blocks.
    fn begin(shared: Arc<Shared>, offer: Offer) -> Result<Arriving, StoreError> {
        let (session, mut store) = (SessionId(random_seed()), shared.store.clone());
        store.create(session, &offer)?;
        shared.progress.total.fetch_add(offer.length, Ordering::Relaxed);
        Ok(Arriving { shared, store, session, check: FileCheck::new(offer) })
    }

    /// The name under which the file is kept, once all of it has come.
    async fn rest(self, from: &mut RecvStream, begun: impl AsyncFnOnce()) -> Result<String, QuicError> {
        let mut begun = Some(begun);
        let (pieces, waiting) = mpsc::channel(MOST_WAITING);
        let kept = tokio::task::spawn_blocking(move || self.keep(waiting));
        let read = async {
            while let Some(piece) = from.read_chunk(usize::from(PIECE)).await? {
                if let Some(begun) = begun.take() {
                    begun().await;
                }
                if pieces.send(piece).await.is_err() {
                    break;
                }
            }
            Ok::<(), QuicError>(())
        };
        let read = read.await;
        drop(pieces);
        let kept = kept.await.unwrap_or_else(|error| Err(StoreError(error.to_string()).into()));
        match (kept, read) {
            // All of it is there, whether its end was heard or not.
            (Ok(name), _) => Ok(name),
            // That the sender has gone says more than that its file is not whole.
            (Err(_), Err(why)) => Err(why),
            (Err(why), Ok(())) => Err(why.into()),
        }
    }

    /// Keeps what comes by `pieces` until there is no more. It blocks.
    fn keep(mut self, mut pieces: mpsc::Receiver<impl AsRef<[u8]>>) -> Result<String, TransferError> {
        while let Some(piece) = pieces.blocking_recv() {
            let (piece, offset) = (piece.as_ref(), self.check.hashed());
            self.check.update(piece)?;
            self.shared.progress.done.fetch_add(piece.len() as u64, Ordering::Relaxed);
            self.store.write(self.session, offset, piece)?;
        }
        // Only what is whole is published: its length and its hash must be right.
        self.check.publish(&mut self.store, self.session)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.store.discard(self.session);
        self.shared.progress.total.fetch_sub(self.check.offer().length, Ordering::Relaxed);
        self.shared.progress.done.fetch_sub(self.check.hashed(), Ordering::Relaxed);
    }
}

/// Waits until the sender has heard all and closes the connection.
async fn leave(connection: &noq::Connection, to: &mut SendStream) -> Result<(), QuicError> {
    to.finish()?;
    let _ = tokio::time::timeout(PATIENCE, connection.closed()).await;
    Ok(())
}

async fn report(to: &mut SendStream, code: Code, text: &str) -> Result<(), QuicError> {
    let mut message = Vec::new();
    Report { proof: 0, code, text }.encode(&mut message);
    write_message(to, &message).await
}

/// The text of the report that must come next.
async fn expect(from: &mut RecvStream, expected: Code) -> Result<String, QuicError> {
    let message = read_message(from).await?;
    let report = Report::decode(&message).map_err(|_| TransferError::Malformed("a report that cannot be read"))?;
    if report.code == expected {
        return Ok(printable(report.text));
    }
    Err(TransferError::reported(&report).unwrap_or(TransferError::Malformed("a report out of turn")).into())
}

async fn read_offer(from: &mut RecvStream) -> Result<Offer, QuicError> {
    let message = read_message(from).await?;
    match Message::decode(&message) {
        Ok((_, Message::Offer(offer))) => Ok(offer),
        _ => Err(TransferError::Malformed("something other than an offer").into()),
    }
}

async fn write_message(to: &mut SendStream, message: &[u8]) -> Result<(), QuicError> {
    let length = u16::try_from(message.len()).expect("names and texts are cut to a few hundred bytes");
    to.write_all(&length.to_be_bytes()).await?;
    to.write_all(message).await?;
    Ok(())
}

async fn read_message(from: &mut RecvStream) -> Result<Vec<u8>, QuicError> {
    let mut length = [0; 2];
    from.read_exact(&mut length).await?;
    let length = u16::from_be_bytes(length);
    if length > LONGEST_MESSAGE {
        return Err(TransferError::Malformed("a message that is too long").into());
    }
    let mut message = vec![0; usize::from(length)];
    from.read_exact(&mut message).await?;
    Ok(message)
}
