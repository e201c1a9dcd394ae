//! What a session's streams owe their sockets: pieces that no stream has taken yet, and bytes that no socket has.

use std::collections::{BTreeMap, VecDeque};

use anabranch_onion::session::{Client, Exit, ReadOutcome, Reason, StreamError, StreamEvent, StreamId};
use bytes::Bytes;

use super::pipe::{ConnectionId, FromTask, Inbox, MOST_UNTAKEN, MOST_UNWRITTEN, PIECE, ToTask};

/// One end of a session, as far as streams are concerned.
pub trait End {
    /// Takes of `bytes` what fits.
    ///
    /// # Errors
    ///
    /// When the stream takes no more.
    fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, StreamError>;
    /// Nothing more will be written.
    fn finish(&mut self, stream: StreamId);
    /// Reads into `out`.
    ///
    /// # Errors
    ///
    /// When the stream is not there any more.
    fn read(&mut self, stream: StreamId, out: &mut [u8]) -> Result<ReadOutcome, StreamError>;
    /// Ends both directions.
    fn reset(&mut self, stream: StreamId, reason: Reason);
}

macro_rules! end {
    ($end:ty) => {
        impl End for $end {
            fn write(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
                <$end>::write(self, stream, bytes)
            }

            fn finish(&mut self, stream: StreamId) {
                <$end>::finish(self, stream);
            }

            fn read(&mut self, stream: StreamId, out: &mut [u8]) -> Result<ReadOutcome, StreamError> {
                <$end>::read(self, stream, out)
            }

            fn reset(&mut self, stream: StreamId, reason: Reason) {
                <$end>::reset(self, stream, reason);
            }
        }
    };
}

end!(Client);
end!(Exit);

#[derive(Debug)]
struct Plug {
    connection: ConnectionId,
    inbox: Inbox,
    /// Whether the stream leads where it shall. A SOCKS client must not get bytes before it is answered.
    is_accepted: bool,
    /// From the socket, not taken by the stream; at most [`MOST_UNTAKEN`].
    untaken: VecDeque<Bytes>,
    /// Whether the socket has ended, and whether the stream was notified.
    has_ended: bool,
    is_finished: bool,
    /// Pieces that the socket has not taken.
    unwritten: usize,
    /// Whether the stream's end was reported.
    has_reported_end: bool,
}

/// The streams of one session, each with its socket.
#[derive(Debug, Default)]
pub struct Streams {
    plugs: BTreeMap<StreamId, Plug>,
    by_connection: BTreeMap<ConnectionId, StreamId>,
}

impl Streams {
    /// Joins a stream to the task of a socket.
    pub fn join(&mut self, stream: StreamId, connection: ConnectionId, inbox: Inbox) {
        let plug = Plug {
            connection,
            inbox,
            is_accepted: false,
            untaken: VecDeque::new(),
            has_ended: false,
            is_finished: false,
            unwritten: 0,
            has_reported_end: false,
        };
        self.by_connection.insert(connection, stream);
        self.plugs.insert(stream, plug);
    }

    /// How many are joined.
    pub fn len(&self) -> usize {
        self.plugs.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.plugs.is_empty()
    }

    /// The stream of a connection.
    pub fn stream_of(&self, connection: ConnectionId) -> Option<StreamId> {
        self.by_connection.get(&connection).copied()
    }

    /// A task says something of its connection.
    pub fn on_task(&mut self, end: &mut impl End, connection: ConnectionId, said: FromTask) {
        let Some(stream) = self.stream_of(connection) else { return };
        let Some(plug) = self.plugs.get_mut(&stream) else { return };
        match said {
            FromTask::Data(bytes) if plug.untaken.len() < MOST_UNTAKEN && !plug.has_ended => {
                plug.untaken.push_back(bytes);
                self.push(end, stream);
            }
            FromTask::Data(_) => {}
            FromTask::Finish => {
                plug.has_ended = true;
                self.push(end, stream);
            }
            FromTask::Written => {
                plug.unwritten = plug.unwritten.saturating_sub(1);
                self.pull(end, stream);
            }
            FromTask::Reset(reason) => {
                end.reset(stream, reason);
                self.part(stream, None);
            }
            FromTask::Connected => {
                plug.is_accepted = true;
                self.pull(end, stream);
            }
            // Nobody has joined a flow here.
            FromTask::Datagram(_) | FromTask::DatagramTo(..) => {}
        }
    }

    /// Something happened to a stream.
    pub fn on_event(&mut self, end: &mut impl End, event: &StreamEvent) {
        match *event {
            StreamEvent::Accepted(stream) => {
                if let Some(plug) = self.plugs.get_mut(&stream) {
                    plug.is_accepted = true;
                    send(plug, ToTask::Accepted);
                }
                // Bytes may have overtaken it.
                self.pull(end, stream);
            }
            StreamEvent::Readable(stream) => self.pull(end, stream),
            StreamEvent::Writable(stream) => self.push(end, stream),
            StreamEvent::Reset(stream, reason) => self.part(stream, Some(reason)),
            StreamEvent::Opened(..) | StreamEvent::FlowOpened(..) | StreamEvent::Datagram(..) => {}
        }
    }

    /// Parts with those that do not lead where they shall yet, so that others may lead there.
    pub fn take_unaccepted(&mut self) -> Vec<(StreamId, ConnectionId, Inbox)> {
        let waiting = |(stream, plug): (&StreamId, &Plug)| {
            (!plug.is_accepted).then(|| (*stream, plug.connection, plug.inbox.clone()))
        };
        let waiting: Vec<_> = self.plugs.iter().filter_map(waiting).collect();
        waiting.iter().for_each(|(stream, ..)| self.forget(*stream));
        waiting
    }

    /// The session is over.
    pub fn on_end(&mut self, reason: Reason) {
        while let Some((&stream, _)) = self.plugs.first_key_value() {
            self.part(stream, Some(reason));
        }
    }

    /// From the socket to the stream.
    fn push(&mut self, end: &mut impl End, stream: StreamId) {
        let Some(plug) = self.plugs.get_mut(&stream) else { return };
        while let Some(piece) = plug.untaken.front_mut() {
            let Ok(taken) = end.write(stream, piece) else {
                return self.part(stream, Some(Reason::Broken));
            };
            if taken < piece.len() {
                let _ = piece.split_to(taken);
                return;
            }
            plug.untaken.pop_front();
            send(plug, ToTask::Taken);
        }
        if plug.has_ended && !plug.is_finished {
            plug.is_finished = true;
            end.finish(stream);
            self.part_if_over(stream);
        }
    }

    /// From the stream to the socket.
    fn pull(&mut self, end: &mut impl End, stream: StreamId) {
        let Some(plug) = self.plugs.get_mut(&stream) else { return };
        while plug.is_accepted && plug.unwritten < MOST_UNWRITTEN && !plug.has_reported_end {
            let mut piece = vec![0; PIECE];
            let mut length = 0;
            let outcome = loop {
                match end.read(stream, &mut piece[length..]) {
                    Ok(ReadOutcome::Bytes(count)) if length + count < PIECE => length += count,
                    Ok(ReadOutcome::Bytes(_)) => {
                        length = PIECE;
                        break Ok(ReadOutcome::Pending);
                    }
                    other => break other,
                }
            };
            if length > 0 {
                plug.unwritten += 1;
                piece.truncate(length);
                send(plug, ToTask::Data(piece.into()));
            }
            match outcome {
                Ok(ReadOutcome::End) => {
                    plug.has_reported_end = true;
                    send(plug, ToTask::Finish);
                    self.part_if_over(stream);
                    return;
                }
                Err(_) => return self.part(stream, Some(Reason::Broken)),
                Ok(_) if length < PIECE => return,
                Ok(_) => {}
            }
        }
    }

    /// Both directions are notified of their end: the task goes on by itself.
    fn part_if_over(&mut self, stream: StreamId) {
        if self.plugs.get(&stream).is_some_and(|plug| plug.is_finished && plug.has_reported_end) {
            self.forget(stream);
        }
    }

    fn part(&mut self, stream: StreamId, reset: Option<Reason>) {
        if let Some((plug, reason)) = self.plugs.get(&stream).zip(reset) {
            send(plug, ToTask::Reset(reason));
        }
        self.forget(stream);
    }

    fn forget(&mut self, stream: StreamId) {
        if let Some(plug) = self.plugs.remove(&stream) {
            self.by_connection.remove(&plug.connection);
        }
    }
}

/// The inbox has room for all that a task may be sent, see [`pipe`](super::pipe); a task that is gone needs nothing.
fn send(plug: &Plug, message: ToTask) {
    let _ = plug.inbox.try_send(message);
}
