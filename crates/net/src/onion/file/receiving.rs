//! The receiver's half: files of any number of streams, into one folder.

use std::collections::BTreeMap;

use anabranch_onion::session::{Reason, SessionName, StreamId};
use anabranch_proto::message::{Code, Message, Offer, Report};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Finished, Limits, Owner, Partial, Store, Streamed, TransferError};

use super::super::streams::End;
use super::{PIECE, frame, read, take_message, write};
use crate::setup::random_seed;

/// Pieces that are taken of one stream at a time, so that others are not kept waiting.
const PORTION: usize = 16;

/// Streams at once, with a file or without one yet.
const MOST_STREAMS: usize = 64;

/// What happens to files.
#[derive(Clone, Debug)]
pub enum FileEvent {
    /// Somebody offers one, and it is taken.
    Offered {
        /// Its stream.
        of: (SessionName, StreamId),
        /// What.
        offer: Offer,
    },
    /// One is there.
    Complete {
        /// Its stream.
        of: (SessionName, StreamId),
        /// Under which name.
        name: String,
        /// Its bytes.
        length: u64,
    },
    /// One is not.
    Failed {
        /// Its stream.
        of: (SessionName, StreamId),
        /// Why.
        why: TransferError,
    },
    /// The session of one is lost: what has come is kept, and its sender may go on.
    Suspended {
        /// Its stream.
        of: (SessionName, StreamId),
    },
}

#[derive(Default)]
struct Stream {
    heard: Vec<u8>,
    out: Vec<u8>,
    file: Option<Streamed>,
    is_over: bool,
}

/// Files that come.
pub struct Files<S> {
    store: S,
    limits: Limits,
    streams: BTreeMap<(SessionName, StreamId), Stream>,
    events: Vec<FileEvent>,
}

impl<S: Store> Files<S> {
    /// None yet, into `store`.
    pub fn new(store: S, limits: Limits) -> Files<S> {
        Files { store, limits, streams: BTreeMap::new(), events: Vec::new() }
    }

    /// Streams that are open.
    pub fn streams(&self) -> Vec<(SessionName, StreamId)> {
        self.streams.keys().copied().collect()
    }

    /// Files that are coming.
    pub fn coming(&self) -> usize {
        self.streams.values().filter(|stream| stream.file.is_some()).count()
    }

    /// Bytes of the files that are coming, and how many of them are there.
    pub fn progress(&self) -> (u64, u64) {
        let files = self.streams.values().filter_map(|stream| stream.file.as_ref());
        let of = |file: &Streamed| (file.done(), file.offer().length);
        files.map(of).fold((0, 0), |sum, file| (sum.0 + file.0, sum.1 + file.1))
    }

    /// What has happened since.
    pub fn poll_event(&mut self) -> Option<FileEvent> {
        (!self.events.is_empty()).then(|| self.events.remove(0))
    }

    /// Somebody has opened a stream; whether there is room for it.
    pub fn open(&mut self, of: (SessionName, StreamId)) -> bool {
        let has_room = self.streams.len() < MOST_STREAMS;
        if has_room {
            self.streams.insert(of, Stream::default());
        }
        has_room
    }

    /// The stream can be read or written; whether there may be more to read.
    pub fn drive(&mut self, of: (SessionName, StreamId), end: &mut impl End) -> bool {
        let mut portions = 0;
        loop {
            if self.streams.get(&of).is_none_or(|stream| stream.is_over) {
                self.say(of, end);
                return false;
            }
            match self.take(of, end) {
                Ok(true) if portions < PORTION => portions += 1,
                Ok(is_more) => {
                    self.say(of, end);
                    return is_more;
                }
                Err(why) => self.fail(of, why),
            }
        }
    }

    fn say(&mut self, of: (SessionName, StreamId), end: &mut impl End) {
        let Some(stream) = self.streams.get_mut(&of) else { return };
        if write(end, of.1, &mut stream.out) && stream.is_over {
            end.finish(of.1);
            self.streams.remove(&of);
        }
    }

    fn fail(&mut self, of: (SessionName, StreamId), why: TransferError) {
        let Some(stream) = self.streams.get_mut(&of) else { return };
        if let Some(file) = stream.file.take() {
            self.store.discard(file.session());
        }
        let code = if let TransferError::Refused(_) = why { Code::Refused } else { Code::Failed };
        let text = match &why {
            TransferError::Refused(reason) => reason.clone(),
            other => other.to_string(),
        };
        report(code, &text, &mut stream.out);
        stream.is_over = true;
        self.events.push(FileEvent::Failed { of, why });
    }

    /// Takes a piece; whether there may be another.
    fn take(&mut self, of: (SessionName, StreamId), end: &mut impl End) -> Result<bool, TransferError> {
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(false) };
        if stream.file.is_none() {
            let has_ended = read(end, of.1, super::LONGEST_MESSAGE, &mut stream.heard);
            let Some(message) = take_message(&mut stream.heard).map_err(TransferError::Malformed)? else {
                if has_ended {
                    stream.is_over = true;
                }
                return Ok(false);
            };
            let Ok((_, Message::Offer(offer))) = Message::decode(&message) else {
                return Err(TransferError::Malformed("something other than an offer"));
            };
            self.begin(of, offer)?;
            return Ok(true);
        }
        let before = stream.heard.len();
        let has_ended = read(end, of.1, usize::from(PIECE) - before.min(usize::from(PIECE)), &mut stream.heard);
        let bytes = std::mem::take(&mut stream.heard);
        let Some(file) = &mut stream.file else { return Ok(false) };
        if !bytes.is_empty() {
            file.take_next(&mut self.store, &bytes)?;
        }
        if file.left() == 0 {
            self.finish(of)?;
            return Ok(self.streams.get(&of).is_some_and(|stream| !stream.is_over));
        }
        if has_ended {
            return Err(TransferError::Malformed("less than it has offered"));
        }
        Ok(!bytes.is_empty())
    }

    fn begin(&mut self, of: (SessionName, StreamId), offer: Offer) -> Result<(), TransferError> {
        if let Some(reason) = self.limits.refusal(&offer) {
            return Err(TransferError::Refused(reason));
        }
        let partial = Partial::of(Owner::Anybody, &offer);
        // Its sender has begun again: the session before is lost, whether that is known here or not.
        let same = |stream: &Stream| stream.file.as_ref().and_then(Streamed::partial) == Some(&partial);
        let before: Vec<_> = self.streams.iter().filter(|(_, stream)| same(stream)).map(|(of, _)| *of).collect();
        before.into_iter().for_each(|before| self.suspend(before));
        if self.coming() >= self.limits.files {
            return Err(TransferError::Refused("too many files come at once; try again later".into()));
        }
        let session = SessionId(random_seed());
        let file = Streamed::begin(&mut self.store, session, offer.clone(), Some(partial))?;
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(()) };
        report(Code::Accepted, file.reported(), &mut stream.out);
        let is_whole = file.left() == 0;
        stream.file = Some(file);
        self.events.push(FileEvent::Offered { of, offer });
        if is_whole { self.finish(of) } else { Ok(()) }
    }

    /// All of it has come.
    fn finish(&mut self, of: (SessionName, StreamId)) -> Result<(), TransferError> {
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(()) };
        let Some(file) = &mut stream.file else { return Ok(()) };
        match file.finish(&mut self.store)? {
            Finished::Whole(name) => {
                let length = file.offer().length;
                report(Code::Complete, &name, &mut stream.out);
                (stream.file, stream.is_over) = (None, true);
                self.events.push(FileEvent::Complete { of, name, length });
            }
            Finished::Again => report(Code::Accepted, file.reported(), &mut stream.out),
        }
        Ok(())
    }

    /// The other end has reset a stream: it wants nothing to be kept.
    pub fn on_reset(&mut self, of: (SessionName, StreamId), _: Reason) {
        if let Some(Stream { file: Some(file), .. }) = self.streams.remove(&of) {
            self.store.discard(file.session());
            self.events.push(FileEvent::Failed { of, why: TransferError::Cancelled });
        }
    }

    /// A session is lost.
    pub fn on_end(&mut self, session: SessionName) {
        let streams: Vec<_> = self.streams.keys().filter(|(of, _)| *of == session).copied().collect();
        streams.into_iter().for_each(|of| self.suspend(of));
    }

    /// All sessions are over: what has come is kept.
    pub fn end(&mut self) {
        let streams: Vec<_> = self.streams.keys().copied().collect();
        streams.into_iter().for_each(|of| self.suspend(of));
    }

    fn suspend(&mut self, of: (SessionName, StreamId)) {
        if let Some(Stream { file: Some(file), .. }) = self.streams.remove(&of) {
            self.store.suspend(file.session());
            self.events.push(FileEvent::Suspended { of });
        }
    }
}

fn report(code: Code, text: &str, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    Report { proof: 0, code, text }.encode(&mut message);
    frame(&message, out);
}
