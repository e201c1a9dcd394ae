//! Bulk data from one end of a connection to the other, both in this thread on loopback,
//! over quinn or noq, with one of our controllers or the library's own: for measurements
//! and tests.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::bottleneck::{Bottleneck, Link};
use anabranch_net::quic::identity::{self, Identity, Trust};
use anabranch_net::quic::{Factory, Snapshot};

/// What the two ends say that they speak.
const PROTOCOL: &[u8] = b"anabranch-bulk";

/// What is written at once.
const PIECE: usize = 1 << 16;

/// How often the round-trip time is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// Data that may be on its way: more than any window that is of use on loopback.
const MOST_UNACKNOWLEDGED: u32 = 64 << 20;

/// Which QUIC library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// quinn.
    Quinn,
    /// noq.
    Noq,
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Quinn => "quinn",
            Library::Noq => "noq",
        })
    }
}

/// A transfer.
#[derive(Clone, Debug)]
pub struct Bulk {
    /// Over which library.
    pub library: Library,
    /// With which controller; without one with the library's Cubic.
    pub factory: Option<Arc<Factory>>,
    /// How much.
    pub bytes: u64,
    /// Through which bottleneck; without one as fast as the machine is.
    pub link: Option<Link>,
}

/// What a transfer was like.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// From the first byte until the last was acknowledged.
    pub took: Duration,
    /// Bytes that arrived.
    pub arrived: u64,
    /// The mean of the smoothed round-trip time, looked at every 5 ms.
    pub mean_rtt: Duration,
    /// QUIC packets that were sent.
    pub packets: u64,
    /// Of them, declared lost.
    pub packets_lost: u64,
    /// What our controller was like at the end; none if the library's own ran.
    pub flow: Option<Snapshot>,
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
#[error("the transfer over {library} failed: {why}")]
pub struct BulkError {
    library: Library,
    why: String,
}

impl Bulk {
    /// Runs the transfer in this thread.
    ///
    /// # Errors
    ///
    /// When there is no socket, or the connection is lost.
    pub fn run(&self) -> Result<Measured, BulkError> {
        let failed = |why: Box<dyn std::error::Error>| BulkError { library: self.library, why: why.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.into()))?;
        let measured = match self.library {
            Library::Quinn => runtime.block_on(over_quinn(self)),
            Library::Noq => runtime.block_on(over_noq(self)),
        };
        measured.map_err(failed)
    }
}

/// What both libraries have under the same names.
///
/// Macro, not trait: neither library has one for it.
macro_rules! over {
    ($run:ident, $library:ident, $rtt:expr, $packets:expr, $flow:expr) => {
        async fn $run(bulk: &Bulk) -> Result<Measured, Box<dyn std::error::Error>> {
            use $library::crypto::rustls::{QuicClientConfig, QuicServerConfig};
            use $library::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig, VarInt};

            let window = VarInt::from_u32(MOST_UNACKNOWLEDGED);
            let identity = Identity::generate()?;
            let tls = QuicServerConfig::try_from(identity.tls(PROTOCOL)?)?;
            let mut server = ServerConfig::with_crypto(Arc::new(tls));
            let mut transport = TransportConfig::default();
            transport.stream_receive_window(window).receive_window(window);
            server.transport_config(Arc::new(transport));
            let receiver = Endpoint::server(server, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
            let address = receiver.local_addr()?;
            let bottleneck = bulk.link.map(|link| Bottleneck::start(address, link)).transpose()?;
            let address = bottleneck.as_ref().map_or(address, Bottleneck::address);

            let (tls, _) = identity::tls_to(Trust::Only(identity.fingerprint()), PROTOCOL)?;
            let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
            let mut transport = TransportConfig::default();
            transport.send_window(u64::from(MOST_UNACKNOWLEDGED));
            if let Some(factory) = &bulk.factory {
                transport.congestion_controller_factory(factory.clone());
            }
            client.transport_config(Arc::new(transport));
            let sender = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;

            let takes = tokio::spawn(async move {
                let Some(incoming) = receiver.accept().await else { return Ok(0) };
                let connection = incoming.await?;
                let mut stream = connection.accept_uni().await?;
                let (mut arrived, mut piece) = (0, vec![0; PIECE]);
                while let Some(length) = stream.read(&mut piece).await? {
                    arrived += length as u64;
                }
                connection.closed().await;
                Ok::<u64, Box<dyn std::error::Error + Send + Sync>>(arrived)
            });
            let connection: Connection = sender.connect_with(client, address, identity::NAME)?.await?;
            let mut stream = connection.open_uni().await?;
            let looking = connection.clone();
            let began = Instant::now();
            let looks = tokio::spawn(async move {
                let (mut sum, mut count) = (Duration::ZERO, 0u32);
                loop {
                    if looking.close_reason().is_some() {
                        return sum / count.max(1);
                    }
                    sum += $rtt(&looking);
                    count += 1;
                    tokio::time::sleep(LOOK).await;
                }
            });
            let piece = vec![0x5a; PIECE];
            let mut left = bulk.bytes;
            while left > 0 {
                let length = left.min(PIECE as u64) as usize;
                stream.write_all(&piece[..length]).await?;
                left -= length as u64;
            }
            stream.finish()?;
            stream.stopped().await?;
            let took = began.elapsed();
            let (packets, packets_lost) = $packets(&connection);
            let flow = $flow(&connection).map(|flow| flow.snapshot());
            connection.close(VarInt::from_u32(0), b"");
            sender.wait_idle().await;
            let arrived = takes.await?.map_err(|error| error.to_string())?;
            Ok(Measured { took, arrived, mean_rtt: looks.await?, packets, packets_lost, flow })
        }
    };
}

over!(over_quinn, quinn, quinn::Connection::rtt, quinn_packets, anabranch_net::quic::flow_of);
over!(over_noq, noq, noq_rtt, noq_packets, |connection| anabranch_net::quic::flow_of_noq(
    connection,
    noq::PathId::ZERO
));

/// Sent and lost.
fn quinn_packets(connection: &quinn::Connection) -> (u64, u64) {
    let path = connection.stats().path;
    (path.sent_packets, path.lost_packets)
}

/// Sent and lost; nothing once the connection is over.
fn noq_packets(connection: &noq::Connection) -> (u64, u64) {
    connection.path_stats(noq::PathId::ZERO).map_or((0, 0), |path| (path.sent_packets, path.lost_packets))
}

fn noq_rtt(connection: &noq::Connection) -> Duration {
    connection.rtt(noq::PathId::ZERO).unwrap_or_default()
}
