//! A client and a service with a network between them that loses, delays, doubles and overtakes, over several
//! paths; and what must hold at every instant.

use std::collections::BTreeMap;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_sim::agenda::Agenda;

use crate::RelayIndex;
use crate::session::limits::{SESSION_BUFFER, SESSION_WINDOW};
use crate::session::*;

/// Bytes of a reply block.
const BLOCK: usize = 240;

/// Whatever happens at one instant ends after this many rounds.
const MOST_ROUNDS: usize = 1000;

#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub delay: Duration,
    /// Up to so much more, evenly.
    pub jitter: Duration,
    pub loss: f64,
    pub doubled: f64,
    /// Cells a second; what waits longer than 50 ms is dropped.
    pub capacity: u32,
    pub dies: Time,
}

impl Path {
    pub fn good(delay_ms: u64) -> Path {
        Path {
            delay: Duration::from_millis(delay_ms),
            jitter: Duration::from_millis(1),
            loss: 0.0,
            doubled: 0.0,
            capacity: 1_000_000,
            dies: Time::MAX,
        }
    }
}

/// Paths in one direction, and what the client has learned of them.
#[derive(Debug)]
struct Direction {
    paths: Vec<Path>,
    free: Vec<Time>,
    /// Of cells lately, the share that came: what a placement of the simplest kind knows.
    share: Vec<f64>,
    delays: RelayDelays,
}

impl Direction {
    fn new(paths: &[Path]) -> Direction {
        Direction {
            paths: paths.to_vec(),
            free: vec![Time::ZERO; paths.len()],
            share: vec![1.0; paths.len()],
            delays: RelayDelays::default(),
        }
    }

    /// In proportion to the fourth power of the share that came, and each once in a while.
    fn choose(&self, rng: &mut Rng) -> usize {
        let weights: Vec<f64> = self.share.iter().map(|share| share.powi(4).max(0.01)).collect();
        let mut at = rng.uniform() * weights.iter().sum::<f64>();
        weights
            .iter()
            .position(|weight| {
                at -= weight;
                at <= 0.0
            })
            .unwrap_or(0)
    }

    fn learn(&mut self, path: usize, came: bool) {
        self.share[path] += 0.05 * (f64::from(u8::from(came)) - self.share[path]);
    }

    /// When a cell that leaves now arrives, each time that it does.
    fn pass(&mut self, now: Time, path: usize, rng: &mut Rng) -> Vec<Time> {
        let Path { delay, jitter, loss, doubled, capacity, dies } = self.paths[path];
        let each = Duration::SECOND / u64::from(capacity);
        let start = self.free[path].max(now);
        if now >= dies || start.since(now) > Duration::from_millis(50) || rng.chance(loss) {
            return vec![];
        }
        self.free[path] = start + each;
        let copies = 1 + usize::from(rng.chance(doubled));
        (0..copies)
            .map(|_| start + each + delay + Duration::from_secs_f64(jitter.as_secs_f64() * rng.uniform()))
            .collect()
    }
}

/// One request: so much goes up, so much comes down.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub up: usize,
    pub down: usize,
}

#[derive(Debug, Default)]
struct Side {
    written: usize,
    read: usize,
    is_over: bool,
    failed: Option<Reason>,
}

/// A cell on its way, to the service or by a block to the client.
#[derive(Debug)]
struct Coming {
    to_exit: bool,
    cell: Vec<u8>,
    /// Of the block.
    serial: u64,
}

#[derive(Debug)]
pub struct World {
    pub now: Time,
    rng: Rng,
    pub client: Client,
    pub exits: Exits,
    forward: Direction,
    backward: Direction,
    on_way: Agenda<Coming>,
    blocks_made: u64,
    /// The path of each block, by serial; the serial of each, by what it says.
    blocks: BTreeMap<u64, usize>,
    serials: BTreeMap<u64, u64>,
    jobs: BTreeMap<StreamId, Job>,
    client_side: BTreeMap<StreamId, Side>,
    exit_side: BTreeMap<StreamId, Side>,
    /// When the client last read something.
    progress: Time,
    pub longest_stall: Duration,
    pub most_memory: usize,
    pub end: Option<End>,
    /// Whether the exit reads nothing.
    pub is_slow: bool,
    pub cells: [u64; 2],
    /// Datagrams that came to the service, which sends each back, and those that came back.
    pub datagrams: [Vec<Box<[u8]>>; 2],
    trace: blake3::Hasher,
}

fn byte(stream: StreamId, place: usize, goes_up: bool) -> u8 {
    (place * 31 + place / 251 + stream.0 as usize * 7 + usize::from(goes_up) * 3) as u8
}

fn content(stream: StreamId, from: usize, to: usize, goes_up: bool) -> Vec<u8> {
    (from..to).map(|place| byte(stream, place, goes_up)).collect()
}

impl World {
    pub fn new(seed: u64, secrecy: Secrecy, forward: &[Path], backward: &[Path], rates: Rates) -> World {
        let format = CellFormat::new(1050, secrecy).unwrap();
        let secret = ServiceSecret::from_seed(&[5; 32]);
        World {
            now: Time::ZERO,
            rng: Rng::stream(seed, "channel"),
            client: Client::new(Time::ZERO, format, secret.keys(), rates, Entropy([seed as u8; 32])),
            exits: Exits::new(format, secret, Entropy([9; 32])),
            forward: Direction::new(forward),
            backward: Direction::new(backward),
            on_way: Agenda::default(),
            blocks_made: 0,
            blocks: BTreeMap::new(),
            serials: BTreeMap::new(),
            jobs: BTreeMap::new(),
            client_side: BTreeMap::new(),
            exit_side: BTreeMap::new(),
            progress: Time::ZERO,
            longest_stall: Duration::ZERO,
            most_memory: 0,
            end: None,
            is_slow: false,
            cells: [0; 2],
            datagrams: Default::default(),
            trace: blake3::Hasher::new(),
        }
    }

    pub fn start(&mut self, job: Job) -> StreamId {
        let id = self.client.open_stream(self.now, Target::Name("example.org".into(), 80)).unwrap();
        self.jobs.insert(id, job);
        self.client_side.insert(id, Side::default());
        self.progress = self.now;
        id
    }

    fn put(&mut self, to_exit: bool, path: usize, cell: &[u8], serial: u64) {
        self.cells[usize::from(!to_exit)] += 1;
        let World { forward, backward, rng, .. } = self;
        let direction = if to_exit { forward } else { backward };
        for at in direction.pass(self.now, path, rng) {
            self.on_way.add(at, Coming { to_exit, cell: cell.to_vec(), serial });
        }
    }

    /// All that can happen now happens.
    fn settle(&mut self) {
        for round in 0.. {
            assert!(round < MOST_ROUNDS, "no end at {}: {:?}", self.now, self.client.timer(self.now));
            let mut is_busy = self.client_acts();
            is_busy |= self.exit_acts();
            if !is_busy {
                break;
            }
        }
        for timer in [self.client.timer(self.now), self.exits.timer(self.now)].into_iter().flatten() {
            assert!(timer > self.now, "a timer in the past: {timer} at {}", self.now);
        }
        let memory = self.exits.memory().max(self.client.streams().memory());
        self.most_memory = self.most_memory.max(memory);
        // What is held to be sent, what came, and room that grew by doubling; blocks.
        assert!(memory <= 2 * SESSION_BUFFER + SESSION_WINDOW as usize + (2 << 20), "{memory} bytes");
    }

    fn client_acts(&mut self) -> bool {
        let mut is_busy = false;
        for _ in 0..self.client.blocks_wanted() {
            let path = self.backward.choose(&mut self.rng);
            let relay = [RelayIndex(path as u16)];
            self.blocks_made += 1;
            let mut block = self.blocks_made.to_be_bytes().to_vec();
            block.resize(BLOCK, 0);
            let serial = self.client.give_block(&block, self.backward.delays.timeout(&relay), false).unwrap();
            self.blocks.insert(serial, path);
            self.serials.insert(self.blocks_made, serial);
            is_busy = true;
        }
        let mut cell = Vec::new();
        while self.client.wants_cell(self.now) {
            let path = self.forward.choose(&mut self.rng);
            let timeout = self.forward.delays.timeout(&[RelayIndex(path as u16)]);
            let via = Via { tag: path as u64, timeout, is_trial: false };
            assert!(self.client.poll_cell(self.now, via, &mut cell), "it wanted a cell");
            self.put(true, path, &cell, 0);
            is_busy = true;
        }
        while let Some(event) = self.client.poll_event() {
            self.trace.update(format!("{} {event:?}", self.now).as_bytes());
            is_busy = true;
            match event {
                ClientEvent::Delivered(Delivered { via, round_trip, is_late, .. }) => {
                    let path = via as usize;
                    if let Some(time) = round_trip {
                        self.forward.delays.sample(&[RelayIndex(path as u16)], time);
                    }
                    if !is_late {
                        self.forward.learn(path, true);
                    }
                }
                ClientEvent::Lost { via } => self.forward.learn(via as usize, false),
                ClientEvent::BlockReturned { serial, delay } => {
                    let path = self.blocks[&serial];
                    self.backward.delays.sample(&[RelayIndex(path as u16)], delay);
                    self.backward.learn(path, true);
                }
                ClientEvent::BlockLost { serial } => self.backward.learn(self.blocks[&serial], false),
                ClientEvent::Stream(event) => self.on_client_stream(event),
                ClientEvent::Connected | ClientEvent::BlockUndelivered { .. } => {}
                ClientEvent::Ended(end) => self.end = Some(end),
            }
        }
        let ids: Vec<StreamId> = self.client_side.keys().copied().collect();
        for id in ids {
            is_busy |= self.client_writes(id);
        }
        is_busy
    }

    fn on_client_stream(&mut self, event: StreamEvent) {
        match event {
            StreamEvent::Readable(id) => {
                let mut out = [0; 3000];
                while let Ok(ReadOutcome::Bytes(count)) = self.client.read(id, &mut out) {
                    let side = self.client_side.get_mut(&id).unwrap();
                    assert_eq!(out[..count], content(id, side.read, side.read + count, false), "wrong bytes");
                    side.read += count;
                    self.longest_stall = self.longest_stall.max(self.now.since(self.progress));
                    self.progress = self.now;
                }
                let side = self.client_side.get_mut(&id).unwrap();
                side.is_over |= side.read == self.jobs[&id].down;
            }
            StreamEvent::Reset(id, reason) => {
                if let Some(side) = self.client_side.get_mut(&id) {
                    side.failed = Some(reason);
                }
            }
            StreamEvent::Datagram(_, bytes) => self.datagrams[1].push(bytes),
            _ => {}
        }
    }

    fn client_writes(&mut self, id: StreamId) -> bool {
        let (job, side) = (self.jobs[&id], self.client_side.get_mut(&id).unwrap());
        if side.written > job.up {
            return false;
        }
        let to = job.up.min(side.written + 5000);
        let bytes = content(id, side.written, to, true);
        let Ok(count) = self.client.write(id, &bytes) else { return false };
        side.written += count;
        if side.written == job.up {
            self.client.finish(id);
            side.written += 1;
        }
        count > 0
    }

    fn exit_acts(&mut self) -> bool {
        let mut is_busy = false;
        let (mut cells, mut cell) = (Vec::new(), Vec::new());
        for (_, exit) in self.exits.iter_mut() {
            while let Some(event) = exit.poll_event() {
                is_busy = true;
                match event {
                    ExitEvent::Stream(StreamEvent::Opened(id, target)) => {
                        assert_eq!(target, Target::Name("example.org".into(), 80));
                        exit.accept(id);
                        assert!(self.exit_side.insert(id, Side::default()).is_none(), "{id:?} opened twice");
                    }
                    ExitEvent::Stream(StreamEvent::FlowOpened(id, target)) => {
                        assert_eq!(target, Target::Name("example.org".into(), 53));
                        exit.accept(id);
                    }
                    ExitEvent::Stream(StreamEvent::Datagram(id, bytes)) => {
                        exit.send_datagram(id, &bytes).unwrap();
                        self.datagrams[0].push(bytes);
                    }
                    ExitEvent::Stream(StreamEvent::Reset(id, reason)) if self.jobs.contains_key(&id) => {
                        self.exit_side.entry(id).or_default().failed = Some(reason);
                    }
                    _ => {}
                }
            }
            for (&id, side) in &mut self.exit_side {
                let job = self.jobs[&id];
                let mut out = [0; 3000];
                while !self.is_slow
                    && let Ok(ReadOutcome::Bytes(count)) = exit.read(id, &mut out)
                {
                    assert_eq!(out[..count], content(id, side.read, side.read + count, true), "wrong bytes");
                    side.read += count;
                    is_busy = true;
                }
                if side.written <= job.down {
                    let to = job.down.min(side.written + 5000);
                    if let Ok(count) = exit.write(id, &content(id, side.written, to, false)) {
                        side.written += count;
                        is_busy |= count > 0;
                        if side.written == job.down {
                            exit.finish(id);
                            side.written += 1;
                        }
                    }
                }
                side.is_over |= side.read == job.up;
            }
            while let Some(block) = exit.poll_cell(self.now, &mut cell) {
                cells.push((cell.clone(), u64::from_be_bytes(block[..8].try_into().unwrap())));
                is_busy = true;
            }
        }
        for (cell, block) in cells {
            let serial = self.serials.remove(&block).expect("a block was used twice");
            self.put(false, self.blocks[&serial], &cell, serial);
        }
        is_busy
    }

    /// Goes on to the next instant at which something happens; false when nothing ever will, or not before `until`.
    pub fn step(&mut self, until: Time) -> bool {
        self.settle();
        if self.end.is_some() && self.now < until && self.exits.is_empty() && self.on_way.is_empty() {
            return false;
        }
        let timers = [self.on_way.next_at(), self.client.timer(self.now), self.exits.timer(self.now)];
        let Some(next) = timers.into_iter().flatten().min().filter(|next| *next <= until) else { return false };
        assert!(next >= self.now);
        self.now = next;
        while self.on_way.next_at().is_some_and(|at| at <= self.now) {
            let (_, Coming { to_exit, cell, serial }) = self.on_way.take().unwrap();
            match to_exit {
                true => _ = self.exits.on_cell(self.now, &cell),
                false => self.client.on_cell(self.now, &cell, serial),
            }
        }
        self.client.on_timer(self.now);
        self.exits.on_timer(self.now);
        true
    }

    /// Whether all jobs are done, both ways.
    pub fn is_done(&self) -> bool {
        self.client_side.values().all(|side| side.is_over || side.failed.is_some())
            && self
                .jobs
                .keys()
                .all(|id| self.exit_side.get(id).is_some_and(|side| side.is_over || side.failed.is_some()))
    }

    /// Until all is done or the session has ended; how long that took.
    pub fn run(&mut self, seconds: f64) -> Duration {
        let (start, until) = (self.now, self.now + Duration::from_secs_f64(seconds));
        while !self.is_done() && self.end.is_none() {
            let goes_on = self.step(until);
            assert!(
                goes_on || self.end.is_some(),
                "not done after {seconds} s: {:?}, {:?}",
                self.client_side,
                self.exit_side
            );
        }
        self.now.since(start)
    }

    /// Goes on for so long whatever happens.
    pub fn pass(&mut self, seconds: f64) {
        let until = self.now + Duration::from_secs_f64(seconds);
        while self.step(until) {}
        self.now = until;
        self.client.on_timer(until);
        self.exits.on_timer(until);
    }

    /// No path is dead any more.
    pub fn heal(&mut self) {
        self.forward.paths.iter_mut().chain(&mut self.backward.paths).for_each(|path| path.dies = Time::MAX);
    }

    pub fn failed(&self) -> Vec<Reason> {
        self.client_side.values().filter_map(|side| side.failed).collect()
    }

    pub fn read_by_exit(&self) -> usize {
        self.exit_side.values().map(|side| side.read).sum()
    }

    pub fn trace(&self) -> blake3::Hash {
        self.trace.finalize()
    }
}
