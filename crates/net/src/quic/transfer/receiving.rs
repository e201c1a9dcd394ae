//! The receiver's half.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anabranch_proto::overlay::message::Code;
use anabranch_proto::seal::{Identity, SessionId};
use anabranch_proto::transfer::{Event, Limits, Owner, Partial, Senders, StoreError, TransferError};
use noq::crypto::rustls::QuicServerConfig;
use noq::{Endpoint, SendStream, TokioRuntime, TransportConfig, VarInt};
use tokio::sync::mpsc;

use super::arriving::Arriving;
use super::claim::Claim;
use super::places::{Guest, Place};
use super::shared::Shared;
use super::{
    BY_RECEIVER, GIVEN_UP, Held, LEAVE, MOST_UNACKNOWLEDGED, PATIENCE, PROTOCOL, Progress, lost, no_tls, read_offer,
    report,
};
use crate::disk::DiskStore;
use crate::quic::identity;
use crate::reset::endpoint_config;
use crate::setup::random_seed;
use crate::udp::enlarge_buffers;

/// What a sender may send before it has a place: an offer is much shorter.
const BEFORE_A_PLACE: u32 = 1 << 14;

/// Who waits is told so again after so long: a third of what a connection bears without a word (RFC 9308, 3.2), so that
/// neither side, nor a NAT between them, gives it up.
const STILL_WAITING: Duration = Duration::from_secs(10);

/// A receiver's end.
#[derive(Debug)]
pub struct Receiver {
    endpoint: Endpoint,
    shared: Arc<Shared>,
}

impl Receiver {
    /// Will receive at `listen` as `identity` into `store`, from `senders`. To be called within a tokio
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
        senders: Senders,
    ) -> Result<Receiver, TransferError> {
        let tls = identity::server_tls(identity, PROTOCOL).map_err(no_tls)?;
        let tls = QuicServerConfig::try_from(tls).map_err(no_tls)?;
        let mut config = noq::ServerConfig::with_crypto(Arc::new(tls));
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(VarInt::from_u32(MOST_UNACKNOWLEDGED));
        transport.receive_window(VarInt::from_u32(BEFORE_A_PLACE));
        transport.max_concurrent_bidi_streams(VarInt::from_u32(1));
        transport.max_concurrent_uni_streams(VarInt::from_u32(0));
        config.transport_config(Arc::new(transport));
        let bind = || {
            let socket = UdpSocket::bind(listen)?;
            // A sender's first bursts are longer than a usual buffer.
            enlarge_buffers(&socket);
            // Who sends to this receiver's former life learns at once that it is over.
            let endpoint = endpoint_config(identity.secret(), socket.local_addr()?);
            Endpoint::new(endpoint, Some(config), socket, Arc::new(TokioRuntime))
        };
        let endpoint = bind().map_err(|why| TransferError::Socket { address: listen, why: Arc::new(why) })?;
        Ok(Receiver { endpoint, shared: Arc::new(Shared::new(store, limits, senders)) })
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

    /// Takes files until it is dropped; says what becomes of each. A connection is a session.
    pub async fn run(&self, events: mpsc::Sender<Event>) {
        let mut transfers = tokio::task::JoinSet::new();
        while let Some(incoming) = self.endpoint.accept().await {
            while transfers.try_join_next().is_some() {}
            if !incoming.remote_address_validated() && !is_link_local(incoming.remote_address()) {
                // Who is told so already says so with a token, and is validated.
                let _ = incoming.retry();
                continue;
            }
            let Some(guest) = self.shared.places.connect(incoming.remote_address().ip()) else {
                incoming.refuse();
                continue;
            };
            let (shared, events) = (self.shared.clone(), events.clone());
            let session = SessionId(random_seed());
            transfers.spawn(async move {
                // Nobody listens any more when the receiver is about to end.
                let _ = events.send(take(&shared, incoming, &guest, session, &events).await).await;
            });
        }
    }

    /// Takes leave: each sender learns at once that its file is not taken.
    pub async fn close(&self) {
        self.endpoint.close(GIVEN_UP, BY_RECEIVER);
        let _ = tokio::time::timeout(LEAVE, self.endpoint.wait_idle()).await;
    }
}

/// Takes one sender's file; what is to be said of it in the end.
async fn take(
    shared: &Arc<Shared>,
    incoming: noq::Incoming,
    guest: &Guest,
    session: SessionId,
    events: &mpsc::Sender<Event>,
) -> Event {
    let failed = |why: TransferError| Event::Failed { session, reason: why.to_string() };
    let asked = async {
        let connection = incoming.await.map_err(lost)?;
        let (to, mut from) = connection.accept_bi().await.map_err(lost)?;
        let connection = Held { connection, farewell: BY_RECEIVER };
        let (offer, length) = read_offer(&mut from).await?;
        Ok::<_, TransferError>((to, from.into_unordered(), offer, length, connection))
    };
    let late = |_| Err(TransferError::Malformed("nothing: it has offered no file"));
    let (mut to, from, offer, offset, connection) =
        match tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(late) {
            Ok(asked) => asked,
            Err(why) => return failed(why),
        };
    let sender = identity::shown_by(connection.peer_identity());
    let partial = Partial::of(Owner::of(sender), &offer);
    let refusal = shared.senders.refusal(sender.as_ref()).or_else(|| shared.limits.refusal(&offer));
    let entered = refusal.map_or_else(
        || {
            if sender.is_some() {
                // Its own connection of before must not be what it waits for.
                shared.coming.supersede(partial.id, session);
            }
            guest.enter()
        },
        Err,
    );
    let mut place = match entered {
        Ok(place) => place,
        Err(reason) => {
            if report(&mut to, Code::Refused, &reason).await.is_ok() {
                let _ = leave(&connection, &mut to).await;
            }
            return Event::Failed { session, reason };
        }
    };
    if let Err(why) = wait(&mut place, &mut to, &connection).await {
        return failed(why);
    }
    connection.set_receive_window(VarInt::from_u32(MOST_UNACKNOWLEDGED));
    let claim = Claim::of(&shared.coming, partial, session, &connection, sender.is_some()).await;
    let coming = claim.as_ref().map(|claim| Arc::clone(&claim.coming));
    let taken = async {
        let (of, wanted) = (Arc::clone(shared), offer.clone());
        let begun = tokio::task::spawn_blocking(move || Arriving::begin(of, session, wanted, claim)).await;
        let arriving = match begun.unwrap_or_else(|error| Err(StoreError(error.to_string()))) {
            Ok(arriving) => arriving,
            Err(why) => {
                report(&mut to, Code::Refused, &why.0).await?;
                leave(&connection, &mut to).await?;
                return Err(TransferError::Store(why));
            }
        };
        let length = offer.length;
        let _ = events.send(Event::Offered { session, offer }).await;
        match arriving.whole(from, offset, &mut to, &connection, events).await {
            Ok(name) => {
                // The file is kept, whether the sender learns it or not.
                let reported = report(&mut to, Code::Complete, &name).await;
                if reported.is_ok() {
                    let _ = leave(&connection, &mut to).await;
                }
                let _ = events.send(Event::Complete { session, name, length }).await;
                Ok(Event::Closed { session, complete: true })
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
    taken.await.unwrap_or_else(|why| match coming.and_then(|coming| coming.successor()) {
        Some(by) => Event::Continued { session, by },
        None => failed(why),
    })
}

/// Waits until `place` is one, and tells the sender meanwhile which it has in the queue.
async fn wait(place: &mut Place, to: &mut SendStream, connection: &noq::Connection) -> Result<(), TransferError> {
    loop {
        let turn = place.in_queue();
        if turn == 0 {
            return Ok(());
        }
        let text = turn.to_string();
        let told = tokio::time::timeout(PATIENCE, report(to, Code::Waiting, &text));
        told.await.unwrap_or(Err(TransferError::Malformed("no credit for what it is told")))?;
        tokio::select! {
            error = connection.closed() => return Err(lost(error)),
            () = place.moves_from(turn) => {}
            () = tokio::time::sleep(STILL_WAITING) => {}
        }
    }
}

/// Waits until the sender has heard all and closes the connection.
async fn leave(connection: &noq::Connection, to: &mut SendStream) -> Result<(), TransferError> {
    to.finish().map_err(lost)?;
    let _ = tokio::time::timeout(PATIENCE, connection.closed()).await;
    Ok(())
}

/// Nobody beyond the link can claim such an address, and nobody who has one can show that it does: a token says nothing of
/// the interface, and is taken for another address's.
fn is_link_local(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if ip.is_unicast_link_local())
}
