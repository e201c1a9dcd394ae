//! The sender's half.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anabranch_proto::overlay::message::{Code, Message};
use anabranch_proto::seal::Identity;
use anabranch_proto::transfer::{Source, TransferError, block_ranges};
use noq::crypto::rustls::QuicClientConfig;
use noq::{ConnectionError, Endpoint, PathId, SendStream, TransportConfig, TransportErrorCode, VarInt};
use tokio::sync::mpsc;

use super::{
    BY_SENDER, GIVEN_UP, Held, LEAVE, MOST_UNACKNOWLEDGED, MOST_WAITING, PIECE, PROTOCOL, Progress, expect, lost,
    no_tls, write_message,
};
use crate::disk;
use crate::quic::identity::{self, Trust};
use crate::quic::{Factory, Snapshot, flow_of_noq};
use crate::tls::Shown;

/// Between the first attempts to reach two of a receiver's addresses (RFC 8305, 5).
const ATTEMPT: Duration = Duration::from_millis(250);

/// What a transfer was like.
#[derive(Clone, Debug)]
pub struct Done {
    /// Under which name the receiver keeps the file.
    pub name: String,
    /// At which of its addresses it has answered.
    pub to: SocketAddr,
    /// Its bytes.
    pub length: u64,
    /// Of them, those that the receiver had from a transfer before.
    pub resumed: u64,
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
    /// To the receiver's addresses.
    ways: Vec<Way>,
    /// What TLS asks for there.
    name: String,
}

/// To one address.
#[derive(Clone, Debug)]
struct Way {
    to: SocketAddr,
    endpoint: Endpoint,
    /// Who has answered there.
    answered: Shown,
}

impl Sender {
    /// Will send to the receiver at one of the addresses `to`, if `trust` accepts who answers there, with `factory`'s
    /// controller; shows `own` to the one receiver that is trusted, and to nobody else. To be called within a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// When there is no socket, TLS cannot be set up, or nobody can have the receiver's key.
    pub fn new(
        to: &[SocketAddr],
        trust: Trust,
        own: Option<&Identity>,
        factory: Arc<Factory>,
    ) -> Result<Sender, TransferError> {
        let name = trust.name().ok_or(TransferError::NobodysKey)?;
        let own = own.filter(|_| trust != Trust::Anybody);
        let way = |&to: &SocketAddr| {
            let (tls, answered) = identity::client_tls(own, PROTOCOL).map_err(no_tls)?;
            let tls = QuicClientConfig::try_from(tls).map_err(no_tls)?;
            let mut config = noq::ClientConfig::new(Arc::new(tls));
            let mut transport = TransportConfig::default();
            transport.congestion_controller_factory(factory.clone());
            transport.send_window(u64::from(MOST_UNACKNOWLEDGED));
            config.transport_config(Arc::new(transport));
            let any = match to {
                SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
                SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
            };
            let endpoint =
                Endpoint::client(any).map_err(|why| TransferError::Socket { address: any, why: Arc::new(why) })?;
            endpoint.set_default_client_config(config);
            Ok(Way { to, endpoint, answered })
        };
        // A machine without one family has the other.
        let (ways, without): (Vec<_>, Vec<_>) = to.iter().map(way).partition(Result::is_ok);
        let ways: Vec<_> = ways.into_iter().flatten().collect();
        match without.into_iter().find_map(Result::err) {
            Some(error) if ways.is_empty() => Err(error),
            _ => Ok(Sender { ways, name }),
        }
    }

    /// Sends the file at `path`, and waits until the receiver has checked it.
    ///
    /// # Errors
    ///
    /// When it was not kept over there, or cannot be read.
    pub async fn send(&self, path: &Path, progress: &Arc<Progress>) -> Result<Done, TransferError> {
        // A long file takes its time to be hashed, and who waits may give up meanwhile.
        let (file, shown) = (path.to_owned(), Arc::clone(progress));
        let hashed = tokio::task::spawn_blocking(move || {
            shown.total.store(file.metadata()?.len(), Ordering::Relaxed);
            disk::offer(&file, PIECE, |hashed| {
                shown.hashed.store(hashed, Ordering::Relaxed);
                false
            })
        });
        let hashed = hashed.await.map_err(std::io::Error::other).and_then(|offer| offer);
        let (offer, source) = hashed.map_err(TransferError::unreadable)?;
        progress.hashed.store(offer.length, Ordering::Relaxed);
        progress.total.store(offer.length, Ordering::Relaxed);
        let (connection, receiver) = self.connect().await?;
        let (mut to, mut from) = connection.open_bi().await.map_err(lost)?;
        let connection = Held { connection, farewell: BY_SENDER };
        let mut message = Vec::new();
        Message::Offer(offer.clone()).encode(0, &mut message);
        write_message(&mut to, &message).await?;
        let there = loop {
            match expect(&mut from, &[Code::Accepted, Code::Waiting]).await? {
                (Code::Waiting, place) => progress.place.store(place.parse().unwrap_or(1), Ordering::Relaxed),
                (_, there) => break there,
            }
        };
        progress.place.store(0, Ordering::Relaxed);
        let mut parts = block_ranges::missing(&offer, &there);
        let mut resumed = offer.length - block_ranges::bytes(&parts);
        let began = Instant::now();
        let name = loop {
            progress.done.store(resumed, Ordering::Relaxed);
            write_parts(source.clone(), parts, &mut to, progress).await?;
            if resumed == 0 {
                // Nothing more can be wanted.
                to.finish().map_err(lost)?;
            }
            match expect(&mut from, &[Code::Complete, Code::Accepted]).await? {
                // What was there from before had another hash.
                (Code::Accepted, _) if resumed > 0 => (resumed, parts) = (0, block_ranges::missing(&offer, "")),
                (Code::Complete, name) => break name,
                _ => return Err(TransferError::Malformed("a report out of turn")),
            }
        };
        let took = began.elapsed();
        let flow = flow_of_noq(&connection, PathId::ZERO).map(|flow| flow.snapshot());
        let stats = connection.path_stats(PathId::ZERO);
        connection.close(VarInt::from_u32(0), b"");
        let (Some(flow), Some(stats)) = (flow, stats) else {
            return Err(TransferError::Malformed("its farewell before its report"));
        };
        let (packets, packets_lost) = (stats.sent_packets, stats.lost_packets);
        Ok(Done { name, to: receiver, length: offer.length, resumed, took, flow, packets, packets_lost })
    }

    /// To whichever address answers first: each is tried [`ATTEMPT`] after the one before it (RFC 8305, 5).
    async fn connect(&self) -> Result<(noq::Connection, SocketAddr), TransferError> {
        let mut attempts = tokio::task::JoinSet::new();
        for (number, way) in (0..).zip(&self.ways) {
            let (way, name) = (way.clone(), self.name.clone());
            attempts.spawn(async move {
                tokio::time::sleep(ATTEMPT * number).await;
                let to = way.to;
                Ok((way.connect(&name).await?, to))
            });
        }
        let mut failure = None;
        while let Some(outcome) = attempts.join_next().await {
            match outcome.map_err(|error| TransferError::Connection(error.to_string())).flatten() {
                Ok(connection) => return Ok(connection),
                // Who answers wrongly says more than who does not answer.
                Err(error) if matches!(failure, None | Some(TransferError::NobodyAnswers(_))) => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(|| TransferError::Connection("the receiver has no address".to_owned())))
    }

    /// Takes leave: the receiver learns at once that nothing more will come.
    pub async fn close(&self) {
        self.ways.iter().for_each(|way| way.endpoint.close(GIVEN_UP, BY_SENDER));
        let idle = async {
            for way in &self.ways {
                way.endpoint.wait_idle().await;
            }
        };
        // Who does not hear it finds out by itself.
        let _ = tokio::time::timeout(LEAVE, idle).await;
    }
}

impl Way {
    async fn connect(self, name: &str) -> Result<noq::Connection, TransferError> {
        let Way { to, endpoint, answered } = self;
        let connecting = endpoint.connect(to, name);
        let connecting = connecting.map_err(|error| TransferError::Connection(error.to_string()))?;
        connecting.await.map_err(|error| match (&error, identity::answered(&answered)) {
            (ConnectionError::TimedOut, None) => TransferError::NobodyAnswers(to),
            (ConnectionError::ConnectionClosed(closed), _)
                if closed.error_code == TransportErrorCode::CONNECTION_REFUSED =>
            {
                TransferError::Refused("enough senders are there, or of this address; try again later".to_owned())
            }
            // TLS ends the handshake on our side only when the key is not accepted.
            (ConnectionError::TransportError(_), Some(answered)) => TransferError::Stranger { to, answered },
            _ => lost(error),
        })
    }
}

/// Sends `parts` of the file.
async fn write_parts(
    source: impl Source + 'static,
    parts: Vec<Range<u64>>,
    to: &mut SendStream,
    progress: &Progress,
) -> Result<(), TransferError> {
    let (pieces, mut waiting) = mpsc::channel(MOST_WAITING);
    let reading = tokio::task::spawn_blocking(move || read_parts(source, parts, &pieces));
    while let Some(piece) = waiting.recv().await {
        to.write_all(&piece).await.map_err(lost)?;
        progress.done.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    let read = reading.await.map_err(std::io::Error::other).and_then(|read| read);
    read.map_err(TransferError::unreadable)
}

/// Reads `parts` into `pieces`, until nobody wants them any more. It blocks.
fn read_parts(mut source: impl Source, parts: Vec<Range<u64>>, pieces: &mpsc::Sender<Vec<u8>>) -> std::io::Result<()> {
    for Range { start, end } in parts {
        let mut offset = start;
        while offset < end {
            let mut piece = vec![0; (end - offset).min(u64::from(PIECE)) as usize];
            source.read(offset, &mut piece)?;
            offset += piece.len() as u64;
            if pieces.blocking_send(piece).is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}
