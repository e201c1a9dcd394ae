//! The receiver's half: files of any number of streams, into one folder.

use std::collections::BTreeMap;

use anabranch_onion::session::{Reason, SessionName, StreamId};
use anabranch_proto::message::{Code, Message, Offer, Report};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{
    Extents, FileCheck, Limits, Owner, Partial, PartialId, Store, TransferError, block_ranges,
};

use super::super::streams::End;
use super::{PIECE, frame, read, take_message, write};
use crate::quic::transfer::{bytes_of, missing};
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

/// A file that comes.
struct Coming {
    id: PartialId,
    session: SessionId,
    check: FileCheck,
    /// What is missing, in its order: the next part first, from where its next byte goes.
    parts: std::collections::VecDeque<std::ops::Range<u64>>,
    left: u64,
    resumed: u64,
}

#[derive(Default)]
struct Stream {
    heard: Vec<u8>,
    out: Vec<u8>,
    file: Option<Coming>,
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
        let of = |file: &Coming| (file.check.offer().length - file.left, file.check.offer().length);
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
            self.store.discard(file.session);
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
            write_file(&mut self.store, file, &bytes)?;
        }
        if file.left == 0 {
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
        let same = |stream: &Stream| stream.file.as_ref().is_some_and(|file| file.id == partial.id);
        let before: Vec<_> = self.streams.iter().filter(|(_, stream)| same(stream)).map(|(of, _)| *of).collect();
        before.into_iter().for_each(|before| self.suspend(before));
        if self.coming() >= self.limits.files {
            return Err(TransferError::Refused("too many files come at once; try again later".into()));
        }
        let session = SessionId(random_seed());
        let extents = self.store.resume(session, &offer, &partial)?;
        let (file, reported) = coming(partial.id, session, &offer, &extents);
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(()) };
        report(Code::Accepted, &reported, &mut stream.out);
        let is_whole = file.left == 0;
        stream.file = Some(file);
        self.events.push(FileEvent::Offered { of, offer });
        if is_whole { self.finish(of) } else { Ok(()) }
    }

    /// All of it is there.
    fn finish(&mut self, of: (SessionName, StreamId)) -> Result<(), TransferError> {
        let Some(stream) = self.streams.get_mut(&of) else { return Ok(()) };
        let Some(file) = &mut stream.file else { return Ok(()) };
        while file.check.left() > 0 {
            file.check.update_from(&mut self.store, file.session)?;
        }
        match file.check.publish(&mut self.store, file.session) {
            Ok(name) => {
                let length = file.check.offer().length;
                report(Code::Complete, &name, &mut stream.out);
                (stream.file, stream.is_over) = (None, true);
                self.events.push(FileEvent::Complete { of, name, length });
                Ok(())
            }
            // What was there from before was wrong: all of it comes again, once.
            Err(TransferError::WrongHash) if file.resumed > 0 => {
                let (offer, id, session) = (file.check.offer().clone(), file.id, file.session);
                self.store.discard(session);
                let partial = Partial::of(Owner::Anybody, &offer);
                self.store.resume(session, &offer, &partial)?;
                let (again, _) = coming(id, session, &offer, &Extents::default());
                *file = again;
                report(Code::Accepted, "", &mut stream.out);
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    /// The other end has reset a stream: it wants nothing to be kept.
    pub fn on_reset(&mut self, of: (SessionName, StreamId), _: Reason) {
        if let Some(Stream { file: Some(file), .. }) = self.streams.remove(&of) {
            self.store.discard(file.session);
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
            self.store.suspend(file.session);
            self.events.push(FileEvent::Suspended { of });
        }
    }
}

fn report(code: Code, text: &str, out: &mut Vec<u8>) {
    let mut message = Vec::new();
    Report { proof: 0, code, text }.encode(&mut message);
    frame(&message, out);
}

/// A file of which `extents` are there, and what is reported of them to its sender.
fn coming(id: PartialId, session: SessionId, offer: &Offer, extents: &Extents) -> (Coming, String) {
    let text = block_ranges::write(&block_ranges::whole_blocks(offer, extents), block_ranges::MOST_BLOCK_RANGES);
    // What is not reported comes again.
    let there = block_ranges::read(&text, offer.blocks()).into_iter();
    let parts = missing(offer, there.map(|blocks| u64::from(blocks.start)..u64::from(blocks.end)));
    let left = bytes_of(&parts);
    let (check, resumed) = (FileCheck::new(offer.clone()), offer.length - left);
    (Coming { id, session, check, parts: parts.into(), left, resumed }, text)
}

fn write_file(store: &mut impl Store, file: &mut Coming, mut bytes: &[u8]) -> Result<(), TransferError> {
    while !bytes.is_empty() {
        let Some(part) = file.parts.front_mut() else {
            return Err(TransferError::Malformed("more than it has offered"));
        };
        let length = bytes.len().min((part.end - part.start) as usize);
        let (here, behind) = bytes.split_at(length);
        if part.start == file.check.hashed() {
            file.check.update(here)?;
        }
        store.write(file.session, part.start, here)?;
        part.start += length as u64;
        file.left -= length as u64;
        if part.is_empty() {
            file.parts.pop_front();
        }
        bytes = behind;
    }
    Ok(())
}
