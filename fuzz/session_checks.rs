//! What must hold in whole sessions, whatever happens in them and in which order: a sender and a
//! receiver over a network that a fuzzer drives, and a sender whose receiver lies. Fuzz targets and
//! an ordinary test include this file.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{self, Pacing, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::RttConfig;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_net::loopback::NoFiles;
use anabranch_proto::machine::Wire;
use anabranch_proto::overlay::courier::Courier;
use anabranch_proto::overlay::hello::{HelloBody, HelloReply};
use anabranch_proto::overlay::message::{Code, FileName, Message, Offer, Report};
use anabranch_proto::overlay::path_sender::{PathSender, SenderConfig};
use anabranch_proto::overlay::wire::{OwnedDatagram, Type};
use anabranch_proto::seal::{self, Identity, PublicKey, Session, SessionId};
use anabranch_proto::transfer::{
    Extents, FileJob, FileSender, Limits, MOST_KEPT, Partial, PartialId, Phase, Receiver, Reply, Source, Store,
    StoreError,
};

const PACKET: Bytes = Bytes::new(600);
const PEERS: u8 = 4;
const BLOCK: u16 = 100;
const LENGTH: usize = 1950;
const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

/// Datagrams on their way at most: the network drops what is more.
const IN_FLIGHT: usize = 64;

/// After the last of what a fuzzer does, a sender ends in so long: twice the time that a receiver
/// remembers who has fallen silent, and what a sender waits for then.
const END: Duration = Duration::from_millis(200_000);

fn file() -> Vec<u8> {
    (0..LENGTH).map(|place| (place * 31 % 251) as u8).collect()
}

fn offer(block: u16) -> Offer {
    let hash = *blake3::hash(&file()).as_bytes();
    Offer { name: FileName::sanitised("a"), length: LENGTH as u64, block, hash }
}

fn new_sender(now: Time, key: PublicKey, own: Option<&Identity>, block: u16, life: u64) -> FileSender {
    let addresses: Vec<SocketAddr> = (1..=PEERS).map(|last| SocketAddr::from(([10, 0, 0, last], 4000))).collect();
    let config = SenderConfig { peers: addresses.len(), relays: 2, packet: PACKET, rtt: RttConfig::default() };
    let setup = Setup { peers: addresses.len(), packet: PACKET, start: now, pacing: Pacing::Burst };
    let made = registry::find("aimd").expect("there is one").build.make(&setup, &toml::Table::new());
    let controller = made.expect("not for simulation only").expect("it needs no parameters");
    let machine = PathSender::new(&config, controller, Rng::indexed(1, "fuzz", life));
    let courier = Courier::new(machine, addresses, PACKET, None, [3; 32]);
    let sender = FileSender::new(now, courier, Slot(u16::from(PEERS) - 1), Some(key), offer(block));
    if let Some(own) = own { sender.with_identity(own) } else { sender }
}

/// Bytes that say what happens.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// One of `most`.
    fn below(&mut self, most: usize) -> usize {
        usize::from(self.next().unwrap_or(0)) % most.max(1)
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = self.below(256).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }
}

/// A disk, and the file that is sent.
#[derive(Clone, Default)]
struct Disk {
    arriving: BTreeMap<SessionId, Arriving>,
    kept: BTreeMap<PartialId, Arriving>,
    published: u32,
    is_broken: bool,
}

#[derive(Clone, Default)]
struct Arriving {
    bytes: Vec<u8>,
    extents: Extents,
    partial: Option<PartialId>,
}

impl Disk {
    /// The receiver was killed: of each file the half of each range that was written is known.
    fn crash(&mut self) {
        for (_, mut file) in std::mem::take(&mut self.arriving) {
            file.extents = file.extents.iter().map(|range| range.start..(range.start + range.end) / 2).collect();
            self.keep(file);
        }
    }

    fn keep(&mut self, file: Arriving) -> bool {
        match file.partial {
            Some(partial) if !file.extents.is_empty() => {
                self.kept.insert(partial, file);
                true
            }
            _ => false,
        }
    }
}

fn unknown() -> StoreError {
    StoreError("no such file".into())
}

impl Store for Disk {
    fn create(&mut self, session: SessionId, _: &Offer) -> Result<(), StoreError> {
        assert!(self.arriving.insert(session, Arriving::default()).is_none(), "two files under one name");
        Ok(())
    }

    fn resume(&mut self, session: SessionId, offer: &Offer, partial: &Partial) -> Result<Extents, StoreError> {
        let is_there = self.arriving.values().any(|file| file.partial == Some(partial.id));
        assert!(!is_there, "two sessions have one file");
        self.create(session, offer)?;
        let kept = self.kept.remove(&partial.id);
        let file = kept.unwrap_or_else(|| Arriving { partial: Some(partial.id), ..Arriving::default() });
        let extents = file.extents.clone();
        self.arriving.insert(session, file);
        Ok(extents)
    }

    fn suspend(&mut self, session: SessionId) -> bool {
        self.arriving.remove(&session).is_some_and(|file| self.keep(file))
    }

    fn write(&mut self, session: SessionId, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let file = self.arriving.get_mut(&session).ok_or_else(unknown)?;
        if self.is_broken {
            return Err(StoreError("the disk is broken".into()));
        }
        let end = offset as usize + bytes.len();
        assert!(end <= LENGTH, "beyond the end");
        file.bytes.resize(file.bytes.len().max(end), 0);
        file.bytes[offset as usize..end].copy_from_slice(bytes);
        file.extents.insert(offset..end as u64);
        Ok(())
    }

    fn read(&mut self, session: SessionId, offset: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let file = self.arriving.get(&session).ok_or_else(unknown)?;
        let part = file.bytes.get(offset as usize..).and_then(|rest| rest.get(..bytes.len())).ok_or_else(unknown)?;
        bytes.copy_from_slice(part);
        Ok(())
    }

    fn publish(&mut self, session: SessionId, offer: &Offer) -> Result<String, StoreError> {
        let Arriving { bytes, .. } = self.arriving.remove(&session).ok_or_else(unknown)?;
        assert!(bytes == file(), "a file that differs is in its place");
        self.published += 1;
        Ok(offer.name.to_string())
    }

    fn discard(&mut self, session: SessionId) {
        self.arriving.remove(&session);
    }
}

impl Source for Disk {
    fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = offset as usize + bytes.len();
        bytes.copy_from_slice(file().get(offset as usize..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A sender and a receiver, with a network and a disk between them.
struct World {
    now: Time,
    key: Identity,
    own: Option<Identity>,
    limits: Limits,
    sender: FileSender,
    life: u64,
    receiver: Receiver,
    disk: Disk,
    jobs: Vec<FileJob>,
    /// Whether they go to the receiver, and their bytes.
    network: Vec<(bool, Vec<u8>)>,
}

impl World {
    fn new(has_key: bool) -> World {
        let (now, key) = (Time::ZERO, Identity::generate());
        let own = has_key.then(Identity::generate);
        // Room for some blocks that wait to be written.
        let limits = Limits { file_writes: 1000, writes: 1500, files: 2, files_of_one: 2, ..Limits::default() };
        World {
            now,
            sender: new_sender(now, key.public(), own.as_ref(), BLOCK, 0),
            life: 0,
            receiver: Receiver::new(key.clone(), limits),
            key,
            own,
            limits,
            disk: Disk::default(),
            jobs: Vec::new(),
            network: Vec::new(),
        }
    }

    fn put(&mut self, to_receiver: bool, datagram: &OwnedDatagram) {
        let mut bytes = Vec::new();
        datagram.write(&mut bytes);
        if self.network.len() < IN_FLIGHT {
            self.network.push((to_receiver, bytes));
        }
    }

    fn poll(&mut self) -> bool {
        let mut out = OwnedDatagram::default();
        let is_sent = self.sender.poll(self.now, &mut out).is_some();
        if is_sent {
            self.put(true, &out);
        }
        self.fetch_jobs();
        is_sent
    }

    fn fetch_jobs(&mut self) {
        self.jobs.extend(std::iter::from_fn(|| self.receiver.next_job()));
        self.jobs.extend(std::iter::from_fn(|| self.sender.next_job()));
    }

    fn deliver(&mut self, place: usize) {
        if place >= self.network.len() {
            return;
        }
        let (to_receiver, bytes) = self.network.remove(place);
        let mut datagram = OwnedDatagram::default();
        if datagram.read(&bytes).is_err() {
            return;
        }
        if !to_receiver {
            self.sender.on_answer(self.now, &datagram);
            return self.fetch_jobs();
        }
        let mut answer = datagram.clone();
        answer.body.clear();
        let what = match datagram.what {
            Type::Hello => {
                let is_answered = self.receiver.on_hello(self.now, HERE, &datagram.body, &mut answer.body);
                is_answered.then_some(Type::HelloReply)
            }
            Type::Data => self.receiver.on_data(self.now, &datagram.body, &mut answer.body).map(|reply| match reply {
                Reply::Ack(proof) => {
                    answer.packet.nonce = proof;
                    Type::Ack
                }
                Reply::Report => Type::Report,
            }),
            Type::HelloReply | Type::Ack | Type::Report => None,
        };
        self.fetch_jobs();
        if let Some(what) = what {
            answer.what = what;
            // The way back is as it was given out: relays are not part of this.
            answer.packet.turn_around(self.now);
            self.put(false, &answer);
        }
    }

    fn work(&mut self, place: usize) {
        if place >= self.jobs.len() {
            return;
        }
        let job = self.jobs.remove(place);
        let is_read = matches!(job.task, anabranch_proto::transfer::FileTask::Read(_));
        let mut source = self.disk.clone();
        let done = job.work(&mut self.disk, &mut source);
        match is_read {
            true => self.sender.on_done(self.now, done),
            false => self.receiver.on_done(done),
        }
        self.fetch_jobs();
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.sender.on_timer(self.now);
        self.receiver.on_timer(self.now);
        self.fetch_jobs();
    }

    fn go_on(&mut self) {
        (0..8).all(|_| self.poll());
        for _ in 0..self.network.len() {
            self.deliver(0);
        }
        while !self.jobs.is_empty() {
            self.work(0);
        }
    }

    fn happen(&mut self, what: u8, script: &mut Script<'_>) {
        match what % 24 {
            0..=7 => {
                self.go_on();
                self.pass(Duration::from_millis(10));
            }
            8 => self.pass(Duration::from_millis(100 * script.below(256) as u64)),
            9 => self.network.truncate(script.below(IN_FLIGHT)),
            10 if !self.network.is_empty() && self.network.len() < IN_FLIGHT => {
                let again = self.network[script.below(self.network.len())].clone();
                self.network.push(again);
            }
            11 => self.deliver(script.below(IN_FLIGHT)),
            12 if !self.network.is_empty() => {
                let place = script.below(self.network.len());
                let bytes = &mut self.network[place].1;
                let at = (script.below(256) * 6).min(bytes.len() - 1);
                bytes[at] ^= 1 << script.below(8);
            }
            13 => {
                self.jobs.retain(|job| matches!(job.task, anabranch_proto::transfer::FileTask::Read(_)));
                self.disk.crash();
                let kept: Vec<PartialId> = self.disk.kept.keys().copied().collect();
                // One in two does not know what it has.
                let kept = if script.below(2) == 0 { kept } else { Vec::new() };
                self.receiver = Receiver::new(self.key.clone(), self.limits).with_kept(kept);
            }
            14 => {
                self.life += 1;
                self.jobs.retain(|job| !matches!(job.task, anabranch_proto::transfer::FileTask::Read(_)));
                let block = [BLOCK, 77][script.below(2)];
                self.sender = new_sender(self.now, self.key.public(), self.own.as_ref(), block, self.life);
            }
            15 => self.sender.cancel(),
            16 => self.work(script.below(8)),
            17 => {
                self.receiver.close_all(self.now, Duration::from_millis(3_000));
                self.fetch_jobs();
            }
            18 => self.disk.is_broken = !self.disk.is_broken,
            19 => {
                let what = [Type::Hello, Type::Data, Type::Ack, Type::Report, Type::HelloReply][script.below(5)];
                let mut out = OwnedDatagram { what, ..OwnedDatagram::default() };
                if let Some((_, bytes)) = self.network.first() {
                    // On the way of another.
                    let _ = out.read(&bytes.clone());
                }
                out.body = script.bytes().to_vec();
                self.put(script.below(2) == 0, &out);
            }
            _ => _ = self.poll(),
        }
        self.check();
    }

    fn check(&self) {
        assert!(self.receiver.unwritten() <= self.limits.writes);
        assert!(self.receiver.files() <= self.limits.files);
        assert!(self.disk.arriving.len() <= self.receiver.files(), "orphans on the disk");
        assert!(self.sender.kept() <= MOST_KEPT);
        assert!(self.sender.arrived_bytes() <= LENGTH as u64 && self.sender.resumed_bytes() <= LENGTH as u64);
        if let Some(Ok(done)) = self.sender.outcome() {
            assert!(self.disk.published > 0 && done.length == LENGTH as u64, "what is called sent is there");
        }
    }
}

/// A sender and a receiver, started again, with a network that loses, doubles, turns round and damages.
pub fn session(input: &[u8]) {
    let mut script = Script(input);
    let mut world = World::new(script.below(2) == 1);
    while let Some(what) = script.next() {
        world.happen(what, &mut script);
    }
    // From now on all is well: the sender ends, and nothing is left of it.
    world.disk.is_broken = false;
    let calm = world.now;
    while !world.sender.is_over() {
        assert!(world.now.since(calm) < END, "no end: {:?}, {:?}", world.sender, world.receiver);
        world.go_on();
        let next = world.sender.timer(world.now).min(world.receiver.timer()).max(world.now);
        world.pass(next.since(world.now).clamp(Duration::from_millis(1), Duration::SECOND));
        world.check();
    }
    world.go_on();
    for _ in 0..70 {
        world.pass(Duration::SECOND);
        world.go_on();
    }
    assert_eq!((world.receiver.sessions(), world.disk.arriving.len()), (0, 0), "something is left");
}

/// A sender whose receiver holds the right key and says whatever it likes, and whose network does, too.
pub fn sender(input: &[u8]) {
    let mut script = Script(input);
    let identity = Identity::generate();
    let mut now = Time::ZERO;
    let mut sender = new_sender(now, identity.public(), None, BLOCK, 0);
    let mut sessions: Vec<Session> = Vec::new();
    let mut sent: Vec<OwnedDatagram> = Vec::new();
    let mut disk = Disk::default();
    while let Some(what) = script.next() {
        let mut out = OwnedDatagram::default();
        for _ in 0..4 {
            if sender.poll(now, &mut out).is_some() {
                sent.push(out.clone());
            }
        }
        let excess = sent.len().saturating_sub(IN_FLIGHT);
        sent.drain(..excess);
        if what % 12 == 0 {
            now += Duration::from_millis(20 * script.below(256) as u64);
            sender.on_timer(now);
        }
        while let Some(job) = sender.next_job() {
            sender.on_done(now, job.work(&mut NoFiles, &mut disk));
        }
        let Some(datagram) = (!sent.is_empty()).then(|| sent[script.below(sent.len())].clone()) else { continue };
        let mut answer = datagram.clone();
        answer.body.clear();
        answer.packet.turn_around(now);
        let hello = HelloBody::decode(&datagram.body).filter(|_| datagram.what == Type::Hello);
        match (what % 12, hello) {
            (1, Some(hello)) => {
                answer.what = Type::HelloReply;
                HelloReply::Cookie { proof: hello.proof, cookie: [what; 16] }.encode(&mut answer.body);
            }
            (0..=7, Some(hello)) => {
                let Ok(answered) = seal::answer(&identity, hello.opening) else { continue };
                let (mut session, mut sealed) = (answered.session, Vec::new());
                session.seal(&hello.proof.to_be_bytes(), &mut sealed);
                answer.what = Type::HelloReply;
                HelloReply::Answer { answer: &answered.answer, sealed: &sealed }.encode(&mut answer.body);
                if sessions.iter().all(|other| other.id() != session.id()) {
                    sessions.push(session);
                }
            }
            (0..=7, None) => {
                // What it said, opened with the session that it named.
                let Some((id, body)) = seal::split_session(&datagram.body) else { continue };
                let Some(session) = sessions.iter_mut().find(|session| session.id() == id) else { continue };
                let mut plain = Vec::new();
                let proof = match session.open(body, &mut plain) {
                    Ok(()) => Message::decode(&plain).expect("what our sender says makes sense").0,
                    // It was opened before.
                    Err(_) => u64::from(what),
                };
                if what % 12 == 2 {
                    answer.what = Type::Ack;
                    answer.packet.nonce = proof;
                } else {
                    let codes = [
                        Code::Accepted,
                        Code::Refused,
                        Code::Checking,
                        Code::Complete,
                        Code::Failed,
                        Code::Incomplete,
                        Code::Waiting,
                    ];
                    let code = codes[script.below(codes.len())];
                    let text = String::from_utf8_lossy(script.bytes()).into_owned();
                    Report { proof, code, text: &text }.encode(&mut plain);
                    answer.what = Type::Report;
                    session.seal(&plain, &mut answer.body);
                }
            }
            _ => {
                answer.what = [Type::HelloReply, Type::Ack, Type::Report, Type::Data, Type::Hello][script.below(5)];
                answer.packet.id.index = answer.packet.id.index.wrapping_add(script.below(3) as u32);
                answer.body = script.bytes().to_vec();
            }
        }
        sender.on_answer(now, &answer);
        assert!(sender.kept() <= MOST_KEPT);
        assert!(sender.arrived_bytes() <= LENGTH as u64 && sender.resumed_bytes() <= LENGTH as u64);
        if let Some(outcome) = sender.outcome() {
            assert_eq!(sender.phase(), Phase::Over);
            assert!(outcome.is_err() || !sessions.is_empty(), "nobody has confirmed it");
        }
    }
    // Of a receiver that falls silent a sender hears no more, and ends.
    let silent = now;
    while sender.outcome().is_none() {
        assert!(now.since(silent) < END, "no end: {sender:?}");
        let mut out = OwnedDatagram::default();
        (0..64).all(|_| sender.poll(now, &mut out).is_some());
        while let Some(job) = sender.next_job() {
            sender.on_done(now, job.work(&mut NoFiles, &mut disk));
        }
        now += Duration::from_millis(250);
        sender.on_timer(now);
    }
}
