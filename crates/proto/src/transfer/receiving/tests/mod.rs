//! Blocks, jobs and disks, and what the tests of greetings and of places share.

mod greetings;
mod places;
mod resume;

use super::super::extents::Extents;
use super::super::jobs::{Batch, FileTask};
use super::super::{Source, Store, StoreError};
use super::*;
use crate::overlay::hello::{COOKIE, Cookie, HELLO};
use crate::overlay::message::FileName;
use crate::seal::Hello;

const BLOCK: usize = 10;

/// Keeps files in memory, and fails as it is told.
#[derive(Clone, Debug, Default)]
struct Memory {
    files: BTreeMap<SessionId, Vec<u8>>,
    published: Vec<(String, Vec<u8>)>,
    /// Bytes that it takes.
    room: usize,
    /// Files that are kept for a later session, and what of them is there.
    kept: BTreeMap<PartialId, (Vec<u8>, Extents)>,
    /// The same of those that arrive.
    known: BTreeMap<SessionId, (PartialId, Extents)>,
}

impl Store for Memory {
    fn create(&mut self, session: SessionId, _: &Offer) -> Result<(), StoreError> {
        if self.room == 0 {
            return Err(StoreError("cannot create the file".into()));
        }
        assert!(self.files.insert(session, Vec::new()).is_none(), "two files under one name");
        Ok(())
    }

    fn resume(&mut self, session: SessionId, offer: &Offer, partial: &Partial) -> Result<Extents, StoreError> {
        self.create(session, offer)?;
        let (file, extents) = self.kept.remove(&partial.id).unwrap_or_default();
        self.files.insert(session, file);
        self.known.insert(session, (partial.id, extents.clone()));
        Ok(extents)
    }

    fn suspend(&mut self, session: SessionId) -> bool {
        let (Some(file), Some((id, extents))) = (self.files.remove(&session), self.known.remove(&session)) else {
            return false;
        };
        let is_kept = !extents.is_empty();
        if is_kept {
            self.kept.insert(id, (file, extents));
        }
        is_kept
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some((_, extents)) = self.known.get_mut(&session) {
            extents.insert(offset..offset + bytes.len() as u64);
        }
        let file = self.files.get_mut(&session).expect("what is written to was created");
        let end = offset as usize + bytes.len();
        if end > self.room {
            return Err(StoreError("no space left".into()));
        }
        file.resize(file.len().max(end), 0);
        file[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let file = self.files.get(&session).expect("what is read was created");
        bytes.copy_from_slice(&file[offset as usize..][..bytes.len()]);
        Ok(())
    }

    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let file = self.files.remove(&session).expect("what is published was created");
        self.published.push((offer.name.to_string(), file));
        Ok(offer.name.to_string())
    }

    fn discard(&mut self, session: SessionId) {
        self.files.remove(&session);
    }
}

/// A receiver reads nothing.
#[derive(Clone)]
struct NoSource;

impl Source for NoSource {
    fn read(&mut self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
        unreachable!("a receiver reads nothing")
    }
}

/// Where senders are.
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

fn body(waiting: &Hello, cookie: Cookie, proof: u64) -> Vec<u8> {
    let mut body = Vec::new();
    HelloBody { cookie, proof, opening: waiting.opening() }.encode(&mut body);
    body
}

/// The cookie that a receiver gives a sender at `source`, which has a wrong one.
fn cookie_for(receiver: &mut Receiver, now: Time, source: IpAddr, waiting: &Hello) -> Cookie {
    let mut reply = Vec::new();
    assert!(receiver.on_hello(now, source, &body(waiting, [1; COOKIE], 5), &mut reply));
    match HelloReply::decode(&reply) {
        Some(HelloReply::Cookie { proof: 5, cookie }) => cookie,
        other => panic!("{other:?}"),
    }
}

/// The session that `hello` begins, or has begun.
fn session_with(receiver: &mut Receiver, waiting: &Hello, hello: &[u8]) -> Session {
    let mut reply = Vec::new();
    assert!(receiver.on_hello(Time::ZERO, HERE, hello, &mut reply));
    let Some(HelloReply::Answer { answer, sealed }) = HelloReply::decode(&reply) else { panic!("{reply:?}") };
    let mut session = waiting.complete(answer).unwrap();
    let mut proof = Vec::new();
    session.open(sealed, &mut proof).unwrap();
    assert_eq!(proof, hello[COOKIE..][..8], "it proves that this very hello has come");
    session
}

/// A receiver, a sender's session with it, and a disk whose jobs wait until they are done.
struct Pair {
    receiver: Receiver,
    session: Session,
    now: Time,
    /// As it came with the right cookie.
    hello: Vec<u8>,
    store: Memory,
    jobs: VecDeque<FileJob>,
    file: Vec<u8>,
}

impl Pair {
    fn new(blocks: usize, limits: Limits) -> Pair {
        let identity = Identity::generate();
        let mut receiver = Receiver::new(identity.clone(), limits);
        let waiting = Hello::new(Some(&identity.public()), None);
        let cookie = cookie_for(&mut receiver, Time::ZERO, HERE, &waiting);
        let hello = body(&waiting, cookie, 1);
        let session = session_with(&mut receiver, &waiting, &hello);
        let file = (0..BLOCK * blocks).map(|place| place as u8).collect();
        let store = Memory { room: usize::MAX, ..Memory::default() };
        Pair { receiver, session, now: Time::ZERO, hello, store, jobs: VecDeque::new(), file }
    }

    fn offer(&self) -> Offer {
        let hash = *blake3::hash(&self.file).as_bytes();
        Offer { name: FileName::sanitised("a"), length: self.file.len() as u64, block: BLOCK as u16, hash }
    }

    /// A session of somebody at `source` with this receiver; none if it takes no more.
    fn join(&mut self, source: IpAddr) -> Option<Session> {
        let waiting = Hello::new(None, None);
        let cookie = cookie_for(&mut self.receiver, self.now, source, &waiting);
        let mut reply = Vec::new();
        if !self.receiver.on_hello(self.now, source, &body(&waiting, cookie, 1), &mut reply) {
            return None;
        }
        let Some(HelloReply::Answer { answer, .. }) = HelloReply::decode(&reply) else { panic!("{reply:?}") };
        Some(waiting.complete(answer).unwrap())
    }

    /// As `say`, in `session`.
    fn say_in(&mut self, session: &mut Session, message: &Message<'_>) -> Option<Option<(Code, String)>> {
        std::mem::swap(&mut self.session, session);
        let answer = self.say(message);
        std::mem::swap(&mut self.session, session);
        answer
    }

    /// What is said of the offer of the file in `session`, under a name of its own.
    fn offer_in(&mut self, session: &mut Session) -> Option<(Code, String)> {
        let name = FileName::sanitised(&session.id().0.to_string());
        let offer = Offer { name, ..self.offer() };
        self.say_in(session, &Message::Offer(offer)).map(Option::unwrap)
    }

    /// `session` sends the whole file, and the disk does its jobs.
    fn send_all_in(&mut self, session: &mut Session) {
        for index in 0..self.file.len() / BLOCK {
            let bytes = self.file[index * BLOCK..][..BLOCK].to_vec();
            assert!(is_taken(self.say_in(session, &Message::Block { index: index as u32, bytes: &bytes })));
        }
        while !self.jobs.is_empty() {
            self.work();
        }
        assert_eq!(self.say_in(session, &Message::Finish).unwrap().unwrap().0, Code::Complete);
    }

    /// This many seconds pass.
    fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.now += Duration::SECOND;
            self.receiver.on_timer(self.now);
            self.jobs.extend(std::iter::from_fn(|| self.receiver.next_job()));
        }
    }

    /// How the receiver answers: an acknowledgment, a report, nothing.
    fn say(&mut self, message: &Message<'_>) -> Option<Option<(Code, String)>> {
        let (mut plain, mut sealed) = (Vec::new(), Vec::new());
        message.encode(7, &mut plain);
        self.session.seal_data(&plain, &mut sealed);
        self.send(&sealed)
    }

    /// The same for a datagram.
    fn send(&mut self, sealed: &[u8]) -> Option<Option<(Code, String)>> {
        let mut reply = Vec::new();
        let answer = self.receiver.on_data(self.now, sealed, &mut reply);
        self.jobs.extend(std::iter::from_fn(|| self.receiver.next_job()));
        answer.map(|answer| match answer {
            Reply::Ack(proof) => {
                assert_eq!(proof, 7);
                None
            }
            Reply::Report => {
                let mut opened = Vec::new();
                self.session.open(&reply, &mut opened).unwrap();
                let report = Report::decode(&opened).unwrap();
                Some((report.code, report.text.to_owned()))
            }
        })
    }

    fn say_block(&mut self, index: usize) -> Option<Option<(Code, String)>> {
        let bytes = self.file[index * BLOCK..][..BLOCK].to_vec();
        self.say(&Message::Block { index: index as u32, bytes: &bytes })
    }

    /// Whether block `index` is taken: acknowledged or, if all has come, answered so.
    fn block(&mut self, index: usize) -> bool {
        is_taken(self.say_block(index))
    }

    fn code(&mut self) -> Code {
        self.say(&Message::Finish).unwrap().unwrap().0
    }

    /// What is under way, in words.
    fn tasks(&self) -> Vec<&'static str> {
        let name = |job: &FileJob| match job.task {
            FileTask::Create(_) => "create",
            FileTask::Write(_) => "write",
            FileTask::Check(_) => "check",
            FileTask::Publish(_) => "publish",
            FileTask::Discard => "discard",
            FileTask::Suspend(_) => "suspend",
            FileTask::Read(_) => "read",
            FileTask::CheckSource(_) => "check the source",
        };
        self.jobs.iter().map(name).collect()
    }

    /// The disk does the next job.
    fn work(&mut self) {
        let job = self.jobs.pop_front().expect("a job is under way");
        self.receiver.on_done(job.work(&mut self.store, &mut NoSource));
        self.jobs.extend(std::iter::from_fn(|| self.receiver.next_job()));
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.receiver.next_event()).collect()
    }
}

/// Whether a block was answered that it has come, or that all have.
fn is_taken(answer: Option<Option<(Code, String)>>) -> bool {
    matches!(answer, Some(None | Some((Code::Checking | Code::Complete, _))))
}

fn at(last: u8) -> IpAddr {
    IpAddr::from([198, 51, 100, last])
}

#[test]
fn of_one_file_one_job_is_under_way_and_the_check_begins_when_all_is_written() {
    let mut pair = Pair::new(5, Limits::default());
    assert_eq!(pair.say(&Message::Offer(pair.offer())), Some(Some((Code::Accepted, String::new()))));
    assert!(pair.block(1) && pair.block(0));
    assert_eq!(pair.tasks(), ["create"], "what comes meanwhile waits");
    pair.work();
    assert!(pair.block(4) && pair.block(2) && pair.block(3));
    assert_eq!((pair.tasks(), pair.code()), (vec!["write"], Code::Checking), "all has come");
    pair.work();
    assert_eq!(pair.tasks(), ["write"]);
    pair.work();
    assert_eq!((pair.tasks(), pair.receiver.unwritten()), (vec!["check"], 0));
    pair.work();
    assert_eq!((pair.tasks(), pair.code()), (vec!["publish"], Code::Checking));
    pair.work();
    assert_eq!((pair.tasks(), pair.code()), (vec![], Code::Complete));
    assert_eq!(pair.store.published, [("a".to_owned(), pair.file.clone())]);
    let events = pair.events();
    let [Event::Offered { .. }, Event::Begun { .. }, Event::Complete { length: 50, .. }] = events[..] else {
        panic!("{events:?}");
    };
}

/// The ACKs of the others may have been lost.
#[test]
fn a_block_is_answered_that_all_has_come_from_the_last_one_on() {
    let mut pair = Pair::new(2, Limits::default());
    pair.say(&Message::Offer(pair.offer()));
    pair.work();
    assert_eq!(pair.say_block(1), Some(None));
    let (checking, complete) = ((Code::Checking, String::new()), (Code::Complete, "a".to_owned()));
    assert_eq!(pair.say_block(0), Some(Some(checking.clone())));
    while !pair.jobs.is_empty() {
        assert_eq!(pair.say_block(1), Some(Some(checking.clone())), "{:?}", pair.tasks());
        pair.work();
    }
    assert_eq!(pair.say_block(1), Some(Some(complete)));
}

#[test]
fn blocks_beyond_what_may_wait_to_be_written_are_not_acknowledged() {
    let limits = Limits { file_writes: 2 * Batch::cost_of(BLOCK), ..Limits::default() };
    let mut pair = Pair::new(4, limits);
    pair.say(&Message::Offer(pair.offer()));
    let acked: Vec<bool> = (0..4).map(|index| pair.block(index)).collect();
    assert_eq!((acked, pair.receiver.counters().deferred), (vec![true, true, false, false], 2));
    assert_eq!(pair.receiver.unwritten(), limits.file_writes);
    // Created; what is being written counts until it is.
    pair.work();
    assert!(!pair.block(2));
    pair.work();
    assert!(pair.block(2) && pair.block(3));
    while !pair.jobs.is_empty() {
        pair.work();
    }
    assert_eq!((pair.code(), pair.receiver.unwritten()), (Code::Complete, 0));
}

#[test]
fn what_all_files_together_may_hold_is_bounded_too() {
    let limits = Limits { writes: Batch::cost_of(BLOCK), ..Limits::default() };
    let mut pair = Pair::new(4, limits);
    pair.say(&Message::Offer(pair.offer()));
    assert!(pair.block(0) && !pair.block(1));
}

#[test]
fn a_disk_that_fails_is_said_once_and_frees_what_waited() {
    for (room, says, code) in [(0, "cannot create the file", Code::Refused), (25, "no space left", Code::Failed)] {
        let mut pair = Pair::new(5, Limits::default());
        pair.store.room = room;
        pair.say(&Message::Offer(pair.offer()));
        assert!((0..3).all(|index| pair.block(index)), "it has come");
        pair.work();
        if room > 0 {
            pair.block(3);
            pair.work();
        }
        let answer = (code, says.to_owned());
        assert_eq!(pair.tasks(), ["discard"]);
        assert_eq!(pair.say(&Message::Finish), Some(Some(answer.clone())));
        let block = Message::Block { index: 4, bytes: &[0; BLOCK] };
        assert_eq!(pair.say(&block), Some(Some(answer)));
        pair.work();
        assert!(pair.jobs.is_empty() && pair.store.files.is_empty());
        assert_eq!((pair.receiver.unwritten(), pair.receiver.closing()), (0, 0));
        let events = pair.events();
        let failures = events.iter().filter(|event| matches!(event, Event::Failed { reason, .. } if reason == says));
        assert_eq!(failures.count(), 1, "{events:?}");
    }
}

/// However far it is, each job may be under way when the sender takes its leave.
#[test]
fn results_for_a_closed_session_are_ignored_and_free_what_it_held() {
    for jobs in 0..4 {
        let mut pair = Pair::new(3, Limits { files: 1, ..Limits::default() });
        pair.say(&Message::Offer(pair.offer()));
        (0..2).for_each(|index| assert!(pair.block(index)));
        (0..jobs).for_each(|number| {
            pair.work();
            (number == 0).then(|| assert!(pair.block(2)));
        });
        let under_way = pair.tasks();
        assert_eq!(under_way, [["create", "write", "write", "check"][jobs]]);
        pair.say(&Message::Close);
        assert_eq!(pair.tasks(), under_way, "nothing is discarded at which somebody works");
        assert_eq!((pair.receiver.sessions(), pair.receiver.closing()), (0, 1));
        // The same session again would take the result for its own.
        let mut reply = Vec::new();
        assert!(!pair.receiver.on_hello(Time::ZERO, HERE, &pair.hello, &mut reply));
        pair.work();
        assert_eq!(pair.tasks(), ["discard"]);
        pair.work();
        assert!(pair.store.files.is_empty() && pair.store.published.is_empty());
        assert_eq!((pair.receiver.unwritten(), pair.receiver.closing(), pair.jobs.len()), (0, 0, 0));
        assert!(matches!(pair.events().last(), Some(Event::Closed { complete: false, .. })));
        assert!(pair.receiver.on_hello(Time::ZERO, HERE, &pair.hello, &mut reply));
    }
}

#[test]
fn a_file_that_nobody_waits_for_takes_a_place_until_nothing_is_left_of_it() {
    let mut pair = Pair::new(1, Limits { files: 1, ..Limits::default() });
    pair.say(&Message::Offer(pair.offer()));
    pair.say(&Message::Close);
    let Pair { mut receiver, jobs, store, .. } = pair;
    let (ours, theirs) = crate::seal::local_session(&Identity::generate());
    receiver.install(Time::ZERO, theirs);
    let mut other = Pair { receiver, session: ours, jobs, store, ..Pair::new(1, Limits::default()) };
    let offer = other.offer();
    assert_eq!(other.say(&Message::Offer(offer)), Some(Some((Code::Waiting, "1".into()))));
    other.work();
    assert_eq!((other.receiver.closing(), other.tasks()), (1, vec!["discard"]));
    other.work();
    assert_eq!((other.receiver.closing(), other.tasks()), (0, vec!["create"]));
}

#[test]
fn a_file_that_was_being_put_in_its_place_when_its_session_ended_is_said_to_be_there() {
    let mut pair = Pair::new(1, Limits::default());
    pair.say(&Message::Offer(pair.offer()));
    assert!(pair.block(0));
    (0..3).for_each(|_| pair.work());
    assert_eq!(pair.tasks(), ["publish"]);
    pair.say(&Message::Close);
    pair.work();
    assert_eq!((pair.store.published.len(), pair.receiver.closing(), pair.jobs.len()), (1, 0, 0));
    let events = pair.events();
    assert!(matches!(events[..], [_, _, Event::Complete { .. }, Event::Closed { complete: true, .. }]), "{events:?}");
}
