//! The receiver's half: files of any number of streams, into one folder.

use std::collections::{BTreeMap, VecDeque};

use anabranch_onion::session::{Reason, SessionName, StreamId};
use anabranch_proto::overlay::message::{Code, Message, Offer, Report};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Event, Finished, Limits, Owner, Partial, PartialId, Store, Streamed, TransferError};

use super::super::streams::End;
use super::{PIECE, frame, read, take_message, write};
use crate::setup::random_seed;

/// Pieces that are taken of one stream at a time, so that others are not kept waiting.
const PORTION: usize = 16;

/// Streams at once, with a file or without one yet.
const MOST_STREAMS: usize = 64;

/// Of them, of one session: who sends uses one, and none takes all that there are.
const MOST_STREAMS_OF_SESSION: usize = 8;

struct Stream {
    session: SessionId,
    heard: Vec<u8>,
    out: Vec<u8>,
    file: Option<Streamed>,
    /// Something of the file is kept.
    is_begun: bool,
    is_over: bool,
}

impl Stream {
    fn new() -> Stream {
        let session = SessionId(random_seed());
        Stream { session, heard: Vec::new(), out: Vec::new(), file: None, is_begun: false, is_over: false }
    }
}

/// Files that come.
pub struct Files<S> {
    store: S,
    limits: Limits,
    streams: BTreeMap<(SessionName, StreamId), Stream>,
    /// Files that have come whose senders may not know it yet. Of these, and of those that are suspended, no more are
    /// remembered than may come at once; a stranger's does not push out what came before it.
    complete: Vec<(SessionName, SessionId)>,
    suspended: Vec<(PartialId, SessionId)>,
    events: VecDeque<Event>,
}

impl<S: Store> Files<S> {
    /// None yet, into `store`.
    pub fn new(store: S, limits: Limits) -> Files<S> {
        Files {
            store,
            limits,
            streams: BTreeMap::new(),
            complete: Vec::new(),
            suspended: Vec::new(),
            events: VecDeque::new(),
        }
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

    /// The next thing that happened.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Somebody has opened a stream; whether there is room for it.
    pub fn open(&mut self, of: (SessionName, StreamId)) -> bool {
        let of_session = self.streams.keys().filter(|(session, _)| *session == of.0).count();
        let has_room = self.streams.len() < MOST_STREAMS && of_session < MOST_STREAMS_OF_SESSION;
        if has_room {
            self.streams.insert(of, Stream::new());
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
        // Here it is no news who refuses it.
        let reason = match why {
            TransferError::Refused(reason) => reason,
            other => other.to_string(),
        };
        report(code, &reason, &mut stream.out);
        stream.is_over = true;
        self.events.push_back(Event::Failed { session: stream.session, reason });
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
        if let Some(file) = stream.file.as_mut().filter(|file| file.left() == 0) {
            if file.hash_step(&mut self.store)? {
                self.finish(of)?;
            }
            return Ok(self.streams.get(&of).is_some_and(|stream| !stream.is_over));
        }
        let before = stream.heard.len();
        let has_ended = read(end, of.1, usize::from(PIECE) - before.min(usize::from(PIECE)), &mut stream.heard);
        let bytes = std::mem::take(&mut stream.heard);
        let Some(file) = &mut stream.file else { return Ok(false) };
        if !bytes.is_empty() {
            file.take_next(&mut self.store, &bytes)?;
            if !std::mem::replace(&mut stream.is_begun, true) {
                self.events.push_back(Event::Begun { session: stream.session });
            }
        }
        if file.left() == 0 {
            return Ok(true);
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
        let Some(session) = self.streams.get(&of).map(|stream| stream.session) else { return Ok(()) };
        // Its sender has begun again: the session before is lost, whether that is known here or not.
        let same = |stream: &Stream| stream.file.as_ref().and_then(Streamed::partial) == Some(&partial);
        let before: Vec<_> = self.streams.iter().filter(|(_, stream)| same(stream)).map(|(of, _)| *of).collect();
        before.into_iter().for_each(|before| _ = self.suspend(before));
        if self.coming() >= self.limits.files {
            return Err(TransferError::Refused("too many files come at once; try again later".into()));
        }
        let begun = Streamed::begin(&mut self.store, session, offer.clone(), Some(partial));
        let file = begun.map_err(|error| TransferError::Refused(error.0))?;
        if let Some(place) = self.suspended.iter().position(|(id, _)| *id == partial.id) {
            let (_, before) = self.suspended.remove(place);
            self.events.push_back(Event::Continued { session: before, by: session });
        }
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(()) };
        report(Code::Accepted, file.reported(), &mut stream.out);
        stream.is_begun = file.resumed() > 0;
        self.events.push_back(Event::Offered { session, offer });
        if stream.is_begun {
            self.events.push_back(Event::Begun { session });
        }
        stream.file = Some(file);
        Ok(())
    }

    /// All of it has come, and is hashed.
    fn finish(&mut self, of: (SessionName, StreamId)) -> Result<(), TransferError> {
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(()) };
        let Some(file) = &mut stream.file else { return Ok(()) };
        match file.finish(&mut self.store)? {
            Finished::Whole(name) => {
                let length = file.offer().length;
                report(Code::Complete, &name, &mut stream.out);
                (stream.file, stream.is_over) = (None, true);
                let session = stream.session;
                if self.complete.len() < MOST_STREAMS {
                    self.complete.push((of.0, session));
                }
                self.events.push_back(Event::Complete { session, name, length });
            }
            Finished::Again => report(Code::Accepted, file.reported(), &mut stream.out),
        }
        Ok(())
    }

    /// The other end has reset a stream: it wants nothing to be kept.
    pub fn on_reset(&mut self, of: (SessionName, StreamId), _: Reason) {
        if let Some(Stream { file: Some(file), .. }) = self.streams.remove(&of) {
            self.store.discard(file.session());
            self.events.push_back(Event::Closed { session: file.session(), complete: false });
        }
    }

    /// A session is over.
    pub fn on_end(&mut self, session: SessionName) {
        let closed = self.complete.extract_if(.., |(of, _)| *of == session);
        self.events.extend(closed.map(|(_, session)| Event::Closed { session, complete: true }));
        let streams: Vec<_> = self.streams.keys().filter(|(of, _)| *of == session).copied().collect();
        self.lose(streams);
    }

    /// All sessions are over: what has come is kept.
    pub fn end(&mut self) {
        self.lose(self.streams());
    }

    fn lose(&mut self, streams: Vec<(SessionName, StreamId)>) {
        for of in streams {
            let session = self.suspend(of);
            self.events.extend(session.map(|session| Event::Suspended { session }));
        }
    }

    /// Keeps what has come of the file of a stream that is lost; whose it was.
    fn suspend(&mut self, of: (SessionName, StreamId)) -> Option<SessionId> {
        let file = self.streams.remove(&of)?.file?;
        self.store.suspend(file.session());
        if let Some(partial) = file.partial().filter(|_| self.suspended.len() < MOST_STREAMS) {
            self.suspended.push((partial.id, file.session()));
        }
        Some(file.session())
    }
}

fn report(code: Code, text: &str, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    Report { proof: 0, code, text }.encode(&mut message);
    frame(&message, out);
}
