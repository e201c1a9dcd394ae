//! A socket and a session's stream, joined by channels: what a task sends, what it is sent, and the task itself.
//!
//! Neither waits for the other without a bound. A task has at most [`MOST_UNTAKEN`] pieces with the driver that
//! no stream has taken yet, then it reads no more from its socket; the driver has at most [`MOST_UNWRITTEN`] pieces
//! with a task, then it reads no more from the stream. So a channel of [`INBOX`] places never fills.

use std::collections::VecDeque;
use std::io;

use anabranch_onion::session::{Reason, Target};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

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

/// Carries bytes both ways until both directions are over, or one breaks, which the driver is notified of.
pub async fn run(id: ConnectionId, socket: TcpStream, outbox: Outbox, inbox: mpsc::Receiver<ToTask>) {
    // A small write must not wait for an ACK that a network of relays delays.
    let _ = socket.set_nodelay(true);
    if let Err(reason) = carry(id, socket, &outbox, inbox).await {
        let _ = outbox.send((id, FromTask::Reset(reason))).await;
    }
}

async fn carry(
    id: ConnectionId,
    mut socket: TcpStream,
    outbox: &Outbox,
    mut inbox: mpsc::Receiver<ToTask>,
) -> Result<(), Reason> {
    let (mut reader, mut writer) = socket.split();
    let (mut untaken, mut has_read_all) = (0, false);
    // Reading goes on while a write waits: a program may read only once it has written.
    let (mut unwritten, mut is_last, mut has_written_all) = (VecDeque::<Bytes>::new(), false, false);
    let mut is_reset = false;
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
                Some(ToTask::Reset(_)) | None => {
                    is_reset = true;
                    break;
                }
            },
        }
        if is_last && unwritten.is_empty() && !has_written_all {
            has_written_all = true;
            // A peer that is gone already has closed its end, too.
            let _ = writer.shutdown().await;
        }
    }
    if is_reset {
        // An end in order would have the program take a part for the whole.
        let _ = socket.set_zero_linger();
        return Ok(());
    }
    for piece in unwritten {
        writer.write_all(&piece).await.map_err(broken)?;
    }
    let _ = writer.shutdown().await;
    Ok(())
}
