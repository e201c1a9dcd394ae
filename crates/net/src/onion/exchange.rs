//! One message to an authority, and what it answers: a TCP connection each.
//!
//! Whoever asks writes its message and closes its half; the other answers and closes. Three packets prove
//! the asker's address before anything is done. What is said is signed or public, so nothing is
//! encrypted; who asks is seen, as is who hangs on a guard.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anabranch_onion::directory::Message;
use anabranch_proto::machine::Wire;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// An exchange takes no longer: a long document over a slow line is 16 MB at 10 Mbit/s.
pub const LONGEST: Duration = Duration::from_secs(15);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The connection.
    #[error("cannot talk to the authority at {address}: {why}")]
    Connection {
        /// Where it should be.
        address: SocketAddr,
        /// Why not.
        why: io::Error,
    },
    /// It takes too long.
    #[error("the authority at {0} does not answer")]
    Silent(SocketAddr),
    /// What came is no message, or a longer one than is taken.
    #[error("what {0} answers is no message of at most {1} bytes")]
    Unreadable(SocketAddr, usize),
}

/// Says `message` to the authority at `to`, from the address `from` if that matters, and hears its answer, of
/// `most` bytes at most; none if it closes without one.
///
/// # Errors
///
/// When there is none in time, or none that can be read.
pub async fn exchange(
    from: Option<IpAddr>,
    to: SocketAddr,
    message: &Message,
    most: usize,
) -> Result<Option<Message>, ExchangeError> {
    let talk = async {
        let mut stream = connect(from, to).await?;
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        stream.write_all(&bytes).await?;
        stream.shutdown().await?;
        read_all(&mut stream, most).await
    };
    match timeout(LONGEST, talk).await {
        Err(_) => Err(ExchangeError::Silent(to)),
        Ok(Err(why)) => Err(ExchangeError::Connection { address: to, why }),
        Ok(Ok(Some(bytes))) if bytes.is_empty() => Ok(None),
        Ok(Ok(bytes)) => {
            let read = bytes.and_then(|bytes| {
                let mut answer = Message::default();
                answer.read(&bytes).ok().map(|()| answer)
            });
            read.map(Some).ok_or(ExchangeError::Unreadable(to, most))
        }
    }
}

async fn connect(from: Option<IpAddr>, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
        socket.bind(SocketAddr::new(from, 0))?;
    }
    socket.connect(to).await
}

/// All until the other half closes; none if that is more than `most`.
pub(super) async fn read_all(stream: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    stream.take(most as u64 + 1).read_to_end(&mut bytes).await?;
    Ok((bytes.len() <= most).then_some(bytes))
}
