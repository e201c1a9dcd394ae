use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use anabranch_onion::session::{Reason, SessionName, StreamError};
use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Event, Limits, TransferError};

use super::*;
use crate::disk::{self, DiskStore};

/// One end of a stream that takes a few bytes at a time.
#[derive(Default)]
struct Pipe {
    to_read: VecDeque<u8>,
    written: VecDeque<u8>,
    room: usize,
    is_over: bool,
    was_reset: bool,
}

impl End for Pipe {
    fn write(&mut self, _: StreamId, bytes: &[u8]) -> Result<usize, StreamError> {
        let taken = bytes.len().min(self.room);
        self.room -= taken;
        self.written.extend(&bytes[..taken]);
        Ok(taken)
    }

    fn finish(&mut self, _: StreamId) {
        self.is_over = true;
    }

    fn read(&mut self, _: StreamId, out: &mut [u8]) -> Result<ReadOutcome, StreamError> {
        if self.was_reset {
            return Err(StreamError::Reset(Reason::Stopped));
        }
        let count = out.len().min(self.to_read.len());
        self.to_read.drain(..count).zip(out).for_each(|(byte, place)| *place = byte);
        Ok(if count > 0 { ReadOutcome::Bytes(count) } else { ReadOutcome::Pending })
    }

    fn reset(&mut self, _: StreamId, _: Reason) {
        self.was_reset = true;
    }
}

const OF: (SessionName, StreamId) = (SessionName(1), StreamId(1));
const AGAIN: (SessionName, StreamId) = (SessionName(2), StreamId(1));

/// What has happened since, each session by its place among those that were named.
fn events(files: &mut Files<DiskStore>, sessions: &mut Vec<SessionId>) -> Vec<String> {
    let mut place = |session| match sessions.iter().position(|&known| known == session) {
        Some(place) => place,
        None => {
            sessions.push(session);
            sessions.len() - 1
        }
    };
    let in_words = |event| match event {
        Event::Offered { session, offer } => format!("{}: offered {}", place(session), offer.name),
        Event::Begun { session } => format!("{}: begun", place(session)),
        Event::Continued { session, by } => format!("{}: continued by {}", place(session), place(by)),
        Event::Suspended { session } => format!("{}: suspended", place(session)),
        Event::Complete { session, name, .. } => format!("{}: complete {name}", place(session)),
        Event::Failed { session, reason } => format!("{}: {reason}", place(session)),
        Event::Closed { session, complete } => format!("{}: closed, complete {complete}", place(session)),
    };
    std::iter::from_fn(|| files.next_event()).map(in_words).collect()
}

/// Carries bytes both ways until nothing moves, or this many have gone to the receiver.
fn carry<S: anabranch_proto::transfer::Source>(
    sending: &mut Sending<S>,
    files: &mut Files<DiskStore>,
    of: (SessionName, StreamId),
    most: usize,
) -> usize {
    let (mut here, mut there) = (Pipe::default(), Pipe::default());
    assert!(files.open(of));
    sending.begin();
    let mut moved = 0;
    loop {
        (here.room, there.room) = (5_000.min(most - moved), 700);
        sending.drive(&mut here, of.1);
        moved += here.written.len();
        there.to_read.extend(here.written.drain(..));
        while files.drive(of, &mut there) {}
        let back = there.written.len();
        here.to_read.extend(there.written.drain(..));
        if moved >= most || (back == 0 && here.room == 5_000.min(most - moved) && sending.is_over()) {
            return moved;
        }
    }
}

fn store(folder: &Path) -> DiskStore {
    DiskStore::open(folder).unwrap()
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place * 31 / 7 % 251) as u8).collect()
}

fn sending(folder: &Path, length: usize) -> Sending<disk::DiskSource> {
    let path = folder.join("photo.jpg");
    fs::write(&path, content(length)).unwrap();
    let (offer, source) = disk::offer(&path, PIECE, |_| false).unwrap();
    Sending::new(offer, source)
}

#[test]
fn a_file_arrives_as_it_was_and_one_that_is_there_is_not_replaced() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut files = Files::new(store(to.path()), Limits::default());
    for (number, length) in [100_001, 0, usize::from(u16::MAX)].into_iter().enumerate() {
        let mut sending = sending(from.path(), length);
        carry(&mut sending, &mut files, OF, usize::MAX);
        let SendingState::Done(kept) = sending.state() else { panic!("{:?}", sending.state()) };
        assert_eq!(fs::read(to.path().join(kept)).unwrap(), content(length), "{kept}");
        assert_eq!(&**kept == "photo.jpg", number == 0, "{kept}");
        assert_eq!((files.coming(), sending.done(), sending.resumed()), (0, length as u64, 0));
    }
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 3, "nothing else is left");
}

#[test]
fn what_came_before_a_session_was_lost_does_not_come_again() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut files = Files::new(store(to.path()), Limits::default());
    let mut sending = sending(from.path(), 1_000_000);
    carry(&mut sending, &mut files, OF, 400_000);
    assert_eq!(files.coming(), 1);
    files.on_end(OF.0);
    let moved = carry(&mut sending, &mut files, AGAIN, usize::MAX);
    assert!(matches!(sending.state(), SendingState::Done(_)), "{:?}", sending.state());
    assert!((600_000..=700_000).contains(&moved), "{moved} bytes came in the second session");
    assert_eq!(fs::read(to.path().join("photo.jpg")).unwrap(), content(1_000_000));
    // Also where the receiver does not know yet that the first session is lost.
    let mut again = Files::new(store(to.path()), Limits::default());
    let mut other = self::sending(from.path(), 900_000);
    carry(&mut other, &mut again, OF, 500_000);
    let moved = carry(&mut other, &mut again, AGAIN, usize::MAX);
    assert!(matches!(other.state(), SendingState::Done(_)) && moved < 500_000, "{moved}");
}

#[test]
fn what_becomes_of_a_file_is_said_as_of_one_that_comes_otherwise() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut files, mut sessions) = (Files::new(store(to.path()), Limits::default()), Vec::new());
    let mut long = sending(from.path(), 1_000_000);
    carry(&mut long, &mut files, OF, 400_000);
    files.on_end(OF.0);
    assert_eq!(events(&mut files, &mut sessions), ["0: offered photo.jpg", "0: begun", "0: suspended"]);
    carry(&mut long, &mut files, AGAIN, 100_000);
    // Here it is not known that the session is lost.
    carry(&mut long, &mut files, OF, usize::MAX);
    let again = ["0: continued by 1", "1: offered photo.jpg", "1: begun", "1: continued by 2", "2: offered photo.jpg"];
    let whole = ["2: begun", "2: complete photo.jpg"];
    assert_eq!(events(&mut files, &mut sessions), [&again[..], &whole].concat());
    files.on_end(AGAIN.0);
    assert_eq!(events(&mut files, &mut sessions), [""; 0]);
    files.on_end(OF.0);
    assert_eq!(events(&mut files, &mut sessions), ["2: closed, complete true"]);
    carry(&mut sending(from.path(), 900_000), &mut files, OF, 400_000);
    // A stream that was reset may be read before that is said.
    files.drive(OF, &mut Pipe { was_reset: true, ..Pipe::default() });
    files.on_reset(OF, Reason::Stopped);
    files.on_end(OF.0);
    let given_up = ["3: offered photo.jpg", "3: begun", "3: closed, complete false"];
    assert_eq!(events(&mut files, &mut sessions), given_up);
    carry(&mut sending(from.path(), 0), &mut files, OF, usize::MAX);
    assert_eq!(events(&mut files, &mut sessions), ["4: offered photo.jpg", "4: complete photo (1).jpg"]);
}

#[test]
fn who_resets_the_stream_leaves_nothing() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut files = Files::new(store(to.path()), Limits::default());
    carry(&mut sending(from.path(), 1_000_000), &mut files, OF, 400_000);
    files.on_reset(OF, Reason::Stopped);
    assert_eq!((fs::read_dir(to.path()).unwrap().count(), files.coming()), (0, 0));
}

#[test]
fn one_session_takes_eight_streams_and_leaves_others_theirs() {
    let to = tempfile::tempdir().unwrap();
    let mut files = Files::new(store(to.path()), Limits::default());
    let taken = (0..100).filter(|number| files.open((OF.0, StreamId(*number)))).count();
    assert_eq!((taken, files.open(AGAIN)), (8, true));
}

#[test]
fn what_is_too_long_or_makes_no_sense_is_refused_in_words() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let limits = Limits { file_bytes: 1000, ..Limits::default() };
    let mut files = Files::new(store(to.path()), limits);
    let mut long = sending(from.path(), 1001);
    carry(&mut long, &mut files, OF, usize::MAX);
    let SendingState::Failed(TransferError::Refused(why)) = long.state() else { panic!("{:?}", long.state()) };
    assert_eq!(why, "the file has 1001 bytes; 1000 are taken");
    assert_eq!(events(&mut files, &mut Vec::new()), ["0: the file has 1001 bytes; 1000 are taken"]);
    for nonsense in [&[255, 255, 1][..], &[0, 1, 77], &[0, 0]] {
        let mut pipe = Pipe { to_read: nonsense.iter().copied().collect(), room: 1000, ..Pipe::default() };
        assert!(files.open(AGAIN));
        while files.drive(AGAIN, &mut pipe) {}
        assert!(pipe.is_over && !pipe.written.is_empty(), "{nonsense:?}");
    }
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}

#[test]
fn a_folder_that_is_full_refuses_the_file_in_words() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut files = Files::new(store(to.path()).with_max_total(500), Limits::default());
    let mut long = sending(from.path(), 1001);
    carry(&mut long, &mut files, OF, usize::MAX);
    let SendingState::Failed(TransferError::Refused(why)) = long.state() else { panic!("{:?}", long.state()) };
    assert!(why.contains("500 bytes"), "{why}");
}
