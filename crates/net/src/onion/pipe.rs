//! A socket and a session's stream, joined by channels: what a task sends, what it is sent, and the task itself.
//!
//! Neither waits for the other without a bound. A task has at most [`MOST_UNTAKEN`] pieces with the driver that
//! no stream has taken yet, then it reads no more from its socket; the driver has at most [`MOST_UNWRITTEN`] pieces
//! with a task, then it reads no more from the stream. So a channel of [`INBOX`] places never fills.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use anabranch_onion::session::{Reason, Target};
use bytes::{Bytes, BytesMut};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Names a connection of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Bytes of a piece at most.
pub const PIECE: usize = 32 << 10;

/// Pieces from a socket that no stream has taken.
pub const MOST_UNTAKEN: usize = 2;

/// Pieces from a stream that no socket has taken.
pub const MOST_UNWRITTEN: usize = 4;

/// Places in a task's inbox: pieces and an end, what was taken, one that it is connected, one reset.
pub const INBOX: usize = MOST_UNWRITTEN + 1 + MOST_UNTAKEN + 1 + 1;

/// What a task sends the driver.
#[derive(Debug)]
pub enum FromTask {
    /// An exit's task has reached the target.
    Connected,
    /// Bytes from the socket.
    Data(Bytes),
    /// Nothing more will come from it.
    Finish,
    /// A piece was written to it.
    Written,
    /// A datagram from a target.
    Datagram(Bytes),
    /// A datagram from a program, and where to.
    DatagramTo(Target, Bytes),
    /// It is broken, or was never there.
    Reset(Reason),
}

/// What a driver sends a task.
#[derive(Debug)]
pub enum ToTask {
    /// The stream leads where it shall: a SOCKS client may be answered.
    Accepted,
    /// Bytes for the socket.
    Data(Bytes),
    /// Nothing more follows.
    Finish,
    /// A datagram for the target.
    Datagram(Bytes),
    /// A datagram for a program, and where from.
    DatagramFrom(Target, Bytes),
    /// A piece or datagram was taken.
    Taken,
    /// All is over.
    Reset(Reason),
}

/// A task's inbox, as the driver has it.
pub type Inbox = mpsc::Sender<ToTask>;

/// What a task says, with its name.
pub type Outbox = mpsc::Sender<(ConnectionId, FromTask)>;

/// Carries bytes both ways until both directions are over, or one breaks, which the driver is notified of. What is left when
/// the driver has said all is written as long as some of it is taken within `patience` each time.
pub async fn run(
    id: ConnectionId,
    socket: TcpStream,
    outbox: Outbox,
    inbox: mpsc::Receiver<ToTask>,
    patience: Duration,
) {
    // A small write must not wait for an ACK that a network of relays delays.
    let _ = socket.set_nodelay(true);
    // Whatever ends this before all was written, the end of the process included, resets the connection: an end in order
    // would have a program take a part for the whole.
    let _ = socket.set_zero_linger();
    if let Err(reason) = carry(id, socket, &outbox, inbox, patience).await {
        let _ = outbox.send((id, FromTask::Reset(reason))).await;
    }
}

async fn carry(
    id: ConnectionId,
    mut socket: TcpStream,
    outbox: &Outbox,
    mut inbox: mpsc::Receiver<ToTask>,
    patience: Duration,
) -> Result<(), Reason> {
    let (mut reader, mut writer) = socket.split();
    let (mut untaken, mut has_read_all) = (0, false);
    // Reading goes on while a write waits: a program may read only once it has written.
    let (mut unwritten, mut is_last, mut has_written_all) = (VecDeque::<Bytes>::new(), false, false);
    let mut buffer = BytesMut::with_capacity(PIECE);
    let broken = |_: io::Error| Reason::Broken;
    while !(has_read_all && has_written_all) {
        let front = unwritten.front().cloned().unwrap_or_default();
        tokio::select! {
            read = reader.read_buf(&mut buffer), if !has_read_all && untaken < MOST_UNTAKEN => {
                let said = if read.map_err(broken)? == 0 {
                    has_read_all = true;
                    FromTask::Finish
                } else {
                    untaken += 1;
                    FromTask::Data(buffer.split().freeze())
                };
                outbox.send((id, said)).await.map_err(|_| Reason::Broken)?;
                buffer.reserve(PIECE);
            }
            written = writer.write(&front), if !front.is_empty() => {
                let count = written.map_err(broken)?;
                if count == 0 {
                    return Err(Reason::Broken);
                }
                if count < front.len() {
                    unwritten[0] = front.slice(count..);
                } else {
                    unwritten.pop_front();
                    outbox.send((id, FromTask::Written)).await.map_err(|_| Reason::Broken)?;
                }
            }
            message = inbox.recv() => match message {
                Some(ToTask::Data(bytes)) => unwritten.push_back(bytes),
                Some(ToTask::Finish) => is_last = true,
                Some(ToTask::Taken) => untaken -= 1,
                Some(ToTask::Accepted | ToTask::Datagram(_) | ToTask::DatagramFrom(..)) => {}
                // All that the driver still had to say has been said.
                None if is_last => break,
                Some(ToTask::Reset(_)) | None => return Ok(()),
            },
        }
        if is_last && unwritten.is_empty() && !has_written_all {
            has_written_all = true;
            // A peer that is gone already has closed its end, too.
            let _ = writer.shutdown().await;
        }
    }
    for mut piece in unwritten {
        while !piece.is_empty() {
            let written = timeout(patience, writer.write(&piece)).await.map_err(|_| Reason::TimedOut)?;
            match written.map_err(broken)? {
                0 => return Err(Reason::Broken),
                count => drop(piece.split_to(count)),
            }
        }
    }
    let _ = writer.shutdown().await;
    end_in_order(&socket);
    Ok(())
}

/// All was written: what the system still holds of it is to arrive.
fn end_in_order(socket: &TcpStream) {
    let _ = SockRef::from(socket).set_linger(None);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::net::TcpListener;

    use super::*;

    const ID: ConnectionId = ConnectionId(7);

    /// Both ends of a connection.
    async fn connection() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (near, far) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (near.unwrap(), far.unwrap().0)
    }

    fn channels() -> (Outbox, mpsc::Receiver<(ConnectionId, FromTask)>, Inbox, mpsc::Receiver<ToTask>) {
        let ((outbox, said), (inbox, messages)) = (mpsc::channel(64), mpsc::channel(INBOX));
        (outbox, said, inbox, messages)
    }

    async fn rest(socket: &mut TcpStream) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).await.map(|_| bytes)
    }

    #[tokio::test]
    async fn what_is_whole_ends_in_order_and_a_part_never_does() {
        for is_whole in [true, false] {
            let ((socket, mut peer), (outbox, _said, inbox, messages)) = (connection().await, channels());
            let task = tokio::spawn(run(ID, socket, outbox, messages, Duration::from_secs(60)));
            inbox.send(ToTask::Data(Bytes::from_static(b"hello"))).await.unwrap();
            let mut first = [0; 5];
            peer.read_exact(&mut first).await.unwrap();
            if is_whole {
                inbox.send(ToTask::Data(vec![1; 20_000].into())).await.unwrap();
                inbox.send(ToTask::Finish).await.unwrap();
                peer.shutdown().await.unwrap();
                task.await.unwrap();
                assert_eq!(rest(&mut peer).await.unwrap().len(), 20_000);
            } else {
                // As when the process ends.
                task.abort();
                let _ = task.await;
                assert_eq!(rest(&mut peer).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
            }
        }
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_more_is_reset_once_nobody_waits_for_it() {
        let ((socket, mut peer), (outbox, mut said, inbox, messages)) = (connection().await, channels());
        let task = tokio::spawn(run(ID, socket, outbox, messages, Duration::from_millis(200)));
        peer.shutdown().await.unwrap();
        // As much as the system holds, until nothing more is written.
        let mut unwritten = 0;
        loop {
            if unwritten < MOST_UNWRITTEN {
                unwritten += 1;
                inbox.send(ToTask::Data(vec![1; PIECE].into())).await.unwrap();
                continue;
            }
            match timeout(Duration::from_millis(300), said.recv()).await {
                Ok(Some((_, FromTask::Written))) => unwritten -= 1,
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => break,
            }
        }
        inbox.send(ToTask::Finish).await.unwrap();
        drop(inbox);
        timeout(Duration::from_secs(10), task).await.expect("it does not wait for ever").unwrap();
        assert!(rest(&mut peer).await.is_err(), "a part is not taken for the whole");
    }
}
