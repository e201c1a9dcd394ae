//! The sender's half.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anabranch_proto::message::{Code, Message};
use anabranch_proto::transfer::{Source, TransferError};
use noq::crypto::rustls::QuicClientConfig;
use noq::{ConnectionError, Endpoint, PathId, TransportConfig, VarInt};
use tokio::sync::mpsc;

use super::{
    GIVEN_UP, LEAVE, MOST_UNACKNOWLEDGED, MOST_WAITING, PIECE, PROTOCOL, Progress, QuicError, expect, write_message,
};
use crate::disk;
use crate::quic::identity::{self, Answered, Trust};
use crate::quic::{Factory, Snapshot, flow_of_noq};

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
        let hashed = tokio::task::spawn_blocking(move || disk::offer(&file, PIECE, |_| false)).await;
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
