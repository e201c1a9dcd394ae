//! Bulk data from one end of a connection to the other, both in this thread on loopback,
//! over quinn or noq, with one of our controllers or the library's own: for measurements
//! and tests.

mod over_noq;
mod over_quinn;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anabranch_net::quic::{Factory, Snapshot};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::bottleneck::Link;

/// What the two ends say that they speak.
const PROTOCOL: &[u8] = b"anabranch-bulk";

/// What is written at once.
const PIECE: usize = 1 << 16;

/// Where both ends are.
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

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

/// Of either library.
type Error = Box<dyn std::error::Error + Send + Sync>;

impl Bulk {
    /// Runs the transfer in this thread.
    ///
    /// # Errors
    ///
    /// When there is no socket, or the connection is lost.
    pub fn run(&self) -> Result<Measured, BulkError> {
        let failed = |why: Error| BulkError { library: self.library, why: why.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| failed(error.into()))?;
        let measured = match self.library {
            Library::Quinn => runtime.block_on(over_quinn::run(self)),
            Library::Noq => runtime.block_on(over_noq::run(self)),
        };
        measured.map_err(failed)
    }
}

/// Writes `bytes` bytes to `stream`.
async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: u64) -> io::Result<()> {
    let piece = vec![0x5a; PIECE];
    let mut left = bytes;
    while left > 0 {
        let length = left.min(PIECE as u64) as usize;
        stream.write_all(&piece[..length]).await?;
        left -= length as u64;
    }
    Ok(())
}

/// How many bytes there are in `stream` until its end.
async fn read(mut stream: impl AsyncRead + Unpin) -> io::Result<u64> {
    let (mut arrived, mut piece) = (0, vec![0; PIECE]);
    loop {
        match stream.read(&mut piece).await? {
            0 => return Ok(arrived),
            length => arrived += length as u64,
        }
    }
}

/// The mean of what `rtt` says every [`LOOK`] while it says anything.
async fn mean(rtt: impl Fn() -> Option<Duration>) -> Duration {
    let (mut sum, mut count) = (Duration::ZERO, 0u32);
    while let Some(rtt) = rtt() {
        sum += rtt;
        count += 1;
        tokio::time::sleep(LOOK).await;
    }
    sum / count.max(1)
}
