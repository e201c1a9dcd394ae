//! What must hold for whatever the other end of an onion session says. Fuzz targets and an ordinary test
//! include this file. Cells are not encrypted here: whoever holds a session's keys can say anything.

use anabranch_control::time::{Duration, Time};
use anabranch_onion::session::cell::{self, PLAIN_HEADER};
use anabranch_onion::session::envelope::Envelope;
use anabranch_onion::session::handshake::Sealing;
use anabranch_onion::session::limits::{SESSION_BUFFER, SESSION_WINDOW};
use anabranch_onion::session::{
    CellFormat, Client, ClientEvent, Entropy, ExitEvent, Exits, MOST_DATAGRAM, Rates, ReadOutcome, Reason, Secrecy,
    ServiceSecret, SessionName, StreamEvent, StreamId, Target, Via,
};

/// Frames that are read come out the same, and what follows them is zeros.
pub fn onion_cell(input: &[u8]) {
    let Ok((left, frames)) = cell::decode(input) else { return };
    let mut written = left.as_nanos().to_be_bytes().to_vec();
    for frame in frames {
        let Ok(frame) = frame else { return };
        frame.encode(&mut written);
    }
    assert_eq!(written[..], input[..written.len()]);
    assert!(input[written.len()..].iter().all(|&byte| byte == 0));
}

/// Bytes of a session that its two ends hold at most: streams, and blocks.
const MOST_MEMORY: usize = 2 * SESSION_BUFFER + SESSION_WINDOW as usize + (6 << 20);

struct World {
    now: Time,
    format: CellFormat,
    client: Client,
    exits: Exits,
    name: Option<SessionName>,
    serial: u64,
    /// Cells on their way: to the client, by a block.
    network: Vec<(Option<u64>, Vec<u8>)>,
}

impl World {
    fn new() -> World {
        let format = CellFormat::new(800, Secrecy::Transparent).expect("it is a length of cells");
        let secret = ServiceSecret::from_seed(&[1; 32]);
        World {
            now: Time::ZERO,
            format,
            client: Client::new(Time::ZERO, format, secret.keys(), Rates::default(), Entropy([2; 32])),
            exits: Exits::new(format, secret, Entropy([3; 32])),
            name: None,
            serial: 0,
            network: Vec::new(),
        }
    }

    /// Both ends do what they want to.
    fn act(&mut self) {
        for _ in 0..self.client.blocks_wanted().min(100) {
            let block = [self.serial.to_be_bytes(), [0; 8]].concat();
            self.serial = self
                .client
                .give_block(&block, Duration::from_millis(50), self.serial.is_multiple_of(3))
                .expect("it fits")
                + 1;
        }
        let mut cell = Vec::new();
        for _ in 0..50 {
            let via = Via { tag: 1, timeout: Duration::from_millis(100), is_trial: self.serial.is_multiple_of(2) };
            if !self.client.poll_cell(self.now, via, &mut cell) {
                break;
            }
            self.name = Envelope::read(&self.format, &cell).ok().map(|envelope| envelope.name());
            self.network.push((None, cell.clone()));
        }
        while let Some(event) = self.client.poll_event() {
            if let ClientEvent::Stream(StreamEvent::Readable(stream)) = event {
                while let Ok(ReadOutcome::Bytes(_)) = self.client.read(stream, &mut [0; 500]) {}
            }
        }
        for (_, exit) in self.exits.iter_mut() {
            while let Some(event) = exit.poll_event() {
                match event {
                    ExitEvent::Stream(StreamEvent::Opened(stream, _)) => {
                        exit.accept(stream);
                        let _ = exit.write(stream, &[7; 900]);
                    }
                    ExitEvent::Stream(StreamEvent::FlowOpened(flow, _)) => exit.accept(flow),
                    ExitEvent::Stream(StreamEvent::Datagram(flow, bytes)) => {
                        assert!(bytes.len() <= MOST_DATAGRAM);
                        for _ in 0..3 {
                            let _ = exit.send_datagram(flow, &bytes);
                        }
                    }
                    // One stream in two is not read.
                    ExitEvent::Stream(StreamEvent::Readable(stream)) if stream.0 % 2 == 0 => {
                        while let Ok(ReadOutcome::Bytes(_)) = exit.read(stream, &mut [0; 500]) {}
                    }
                    _ => {}
                }
            }
            for _ in 0..50 {
                let Some(block) = exit.poll_cell(self.now, &mut cell) else { break };
                let serial = block.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
                self.network.push((Some(serial), cell.clone()));
            }
        }
        assert!(self.exits.memory() <= MOST_MEMORY, "{} bytes", self.exits.memory());
        assert!(self.client.streams().memory() <= MOST_MEMORY);
        self.network.truncate(200);
    }

    fn deliver(&mut self, place: usize) {
        let (serial, cell) = self.network.remove(place);
        match serial {
            None => _ = self.exits.on_cell(self.now, &cell),
            Some(serial) => self.client.on_cell(self.now, &cell, serial),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        self.client.on_timer(self.now);
        self.exits.on_timer(self.now);
    }
}

/// A session whose network and whose two ends say, besides what they should, whatever the input has.
pub fn onion_session(input: &[u8]) {
    let mut world = World::new();
    let stream = world.client.open_stream(world.now, Target::Name("a.example".into(), 80)).expect("it is the first");
    let _ = world.client.write(stream, &[5; 3000]);
    let mut rest = input;
    let mut number = 1_000;
    while let Some((&what, more)) = rest.split_first() {
        rest = more;
        match what % 8 {
            0..=2 => {
                world.act();
                while !world.network.is_empty() {
                    world.deliver(0);
                }
                world.pass(1);
            }
            3 => world.pass(u64::from(what) * 4),
            4 if !world.network.is_empty() => world.deliver(usize::from(what / 8) % world.network.len()),
            5 => world.network.truncate(usize::from(what / 64)),
            6 => {
                let id = StreamId(u32::from(what / 64));
                world.client.reset(id, Reason::Stopped);
                if what >= 128 {
                    if let Some(flow) = world.client.open_flow(world.now, Target::Itself) {
                        let most = usize::from(what) * 12;
                        while let Ok(true) = world.client.send_datagram(flow, &vec![what; most.min(MOST_DATAGRAM)]) {}
                    }
                } else if let Some(stream) = world.client.open_stream(world.now, Target::Itself) {
                    let _ = world.client.write(stream, &[what; 700]);
                    world.client.finish(stream);
                }
            }
            _ => {
                // A cell of the session with any frames: to the exit or to the client.
                let length = rest.first().map_or(0, |&length| usize::from(length)).min(rest.len());
                let (content, more) = rest.split_at(length);
                rest = more;
                let mut plain = world.now.as_nanos().to_be_bytes().to_vec();
                plain.extend_from_slice(content.get(1..).unwrap_or_default());
                debug_assert!(plain.len() >= PLAIN_HEADER);
                plain.resize(world.format.plain(), 0);
                let Some(name) = world.name else { continue };
                number += 1 + u64::from(what / 128) * (1 << 40);
                let mut cell = Vec::new();
                Envelope::begin_sealed(name, number, &mut cell);
                Sealing::Transparent.seal(number, &plain, &mut cell);
                match what / 8 % 2 {
                    0 => _ = world.exits.on_cell(world.now, &cell),
                    _ => world.client.on_cell(world.now, &cell, number % 7),
                }
            }
        }
        world.act();
    }
    // Of whoever falls silent the other end hears no more, and ends.
    world.network.clear();
    for _ in 0..400 {
        world.act();
        world.network.clear();
        world.pass(1000);
    }
    assert!(world.client.end().is_some() && world.exits.is_empty(), "no end: {:?}", world.client);
}
