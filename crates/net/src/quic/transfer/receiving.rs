//! The receiver's half.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use anabranch_proto::message::Code;
use anabranch_proto::transfer::{Limits, Owner, Partial, StoreError, TransferError};
use noq::crypto::rustls::QuicServerConfig;
use noq::{Endpoint, EndpointConfig, SendStream, TokioRuntime, TransportConfig, VarInt};
use tokio::sync::mpsc;

use super::arriving::Arriving;
use super::claim::Claim;
use super::event::Event;
use super::shared::{Share, Shared};
use super::{GIVEN_UP, LEAVE, MOST_UNACKNOWLEDGED, PATIENCE, PROTOCOL, Progress, QuicError, read_offer, report};
use crate::disk::DiskStore;
use crate::quic::identity::Identity;
use crate::udp::enlarge_buffers;

/// A receiver's end.
#[derive(Debug)]
pub struct Receiver {
    endpoint: Endpoint,
    shared: Arc<Shared>,
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
        let bind = || {
            let socket = UdpSocket::bind(listen)?;
            // A sender's first bursts are longer than a usual buffer.
            enlarge_buffers(&socket);
            Endpoint::new(EndpointConfig::default(), Some(config), socket, Arc::new(TokioRuntime))
        };
        let endpoint = bind().map_err(|why| QuicError::Socket { address: listen, why })?;
        Ok(Receiver { endpoint, shared: Arc::new(Shared::new(store, limits)) })
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
                if let Err(event) = take(&shared, incoming, connection, &events).await {
                    // Nobody listens any more when the receiver is about to end.
                    let _ = events.send(event).await;
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

/// Takes one sender's file; what else is to be said of it if it does not come.
async fn take(
    shared: &Arc<Shared>,
    incoming: noq::Incoming,
    number: u64,
    events: &mpsc::Sender<Event>,
) -> Result<(), Event> {
    let failed = |why: QuicError| Event::Failed { connection: number, why };
    let asked = async {
        let connection = incoming.await?;
        let (to, mut from) = connection.accept_bi().await?;
        let (offer, length) = read_offer(&mut from).await?;
        Ok::<_, QuicError>((connection, to, from.into_unordered(), offer, length))
    };
    let late = |_| failed(TransferError::Malformed("nothing: it has offered no file").into());
    let asked = tokio::time::timeout(PATIENCE, asked).await.map_err(late)?;
    let (connection, mut to, from, offer, offset) = asked.map_err(failed)?;
    if let Some(why) = shared.limits.refusal(&offer) {
        let told = report(&mut to, Code::Refused, &why).await;
        return match told {
            Ok(()) => leave(&connection, &mut to).await.map_err(failed),
            Err(why) => Err(failed(why)),
        };
    }
    let claim = Claim::of(&shared.coming, Partial::of(Owner::Anybody, &offer), number, &connection).await;
    let coming = claim.as_ref().map(|claim| Arc::clone(&claim.coming));
    let name = offer.name.to_string();
    let taken = async {
        let (of, wanted) = (Arc::clone(shared), offer.clone());
        let begun = tokio::task::spawn_blocking(move || Arriving::begin(of, wanted, claim)).await;
        let arriving = match begun.unwrap_or_else(|error| Err(StoreError(error.to_string()))) {
            Ok(arriving) => arriving,
            Err(why) => {
                report(&mut to, Code::Refused, &why.0).await?;
                leave(&connection, &mut to).await?;
                return Err(TransferError::Store(why).into());
            }
        };
        let _ = events.send(Event::Offered { connection: number, name, length: offer.length }).await;
        match arriving.whole(from, offset, &mut to, &connection, number, events).await {
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
    };
    taken.await.map_err(|why| match coming.and_then(|coming| coming.successor()) {
        Some(by) => Event::Continued { connection: number, by },
        None => failed(why),
    })
}

/// Waits until the sender has heard all and closes the connection.
async fn leave(connection: &noq::Connection, to: &mut SendStream) -> Result<(), QuicError> {
    to.finish()?;
    let _ = tokio::time::timeout(PATIENCE, connection.closed()).await;
    Ok(())
}
