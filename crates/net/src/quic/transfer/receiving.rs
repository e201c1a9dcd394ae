//! The receiver's half.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_proto::message::{Code, Offer};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{FileCheck, Limits, Store, StoreError, TransferError, origin_of};
use noq::crypto::rustls::QuicServerConfig;
use noq::{Endpoint, RecvStream, SendStream, TransportConfig, VarInt};
use tokio::sync::mpsc;

use super::{
    GIVEN_UP, LEAVE, MOST_UNACKNOWLEDGED, MOST_WAITING, PATIENCE, PIECE, PROTOCOL, Progress, QuicError, read_offer,
    report,
};
use crate::disk::DiskStore;
use crate::quic::identity::Identity;
use crate::setup::random_seed;

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
