//! The time of a session's two ends without a network: a download over a channel that loses nothing.
//!
//! `time cargo run --release -p anabranch-onion --example session_speed [MIB]`; `user` is what counts on a busy machine.

use anabranch_control::time::{Duration, Time};
use anabranch_onion::session::{
    CellFormat, Client, ClientEvent, Entropy, ExitEvent, Exits, Rates, ReadOutcome, Secrecy, ServiceSecret,
    StreamEvent, Target, Via,
};

/// What each cell's way takes, and how often both ends are asked.
const WAY: Duration = Duration::from_millis(2);
const TICK: Duration = Duration::from_millis(1);

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(64);
    for secrecy in [Secrecy::Transparent, Secrecy::Sealed] {
        let start = std::time::Instant::now();
        let (simulated, cells) = download(mib << 20, secrecy);
        let took = start.elapsed().as_secs_f64();
        println!(
            "{secrecy:?}: {mib} MiB in {took:.2} s, {simulated} of the channel's time; {} cells forward, {} back",
            cells[0], cells[1],
        );
    }
}

fn download(length: usize, secrecy: Secrecy) -> (Time, [usize; 2]) {
    let format = CellFormat::new(1050, secrecy).expect("it is a length of cells");
    let secret = ServiceSecret::from_seed(&[1; 32]);
    let mut client = Client::new(Time::ZERO, format, secret.keys(), Rates::default(), Entropy([2; 32]));
    let mut exits = Exits::new(format, secret, Entropy([3; 32]));
    client.open_stream(Time::ZERO, Target::Itself).expect("it is the first");
    let (mut now, mut cell, mut cells) = (Time::ZERO, Vec::new(), [0; 2]);
    let (mut forward, mut back) = (Vec::<(Time, Vec<u8>)>::new(), Vec::<(Time, Vec<u8>, u64)>::new());
    let (mut written, mut read, mut serial) = (0, 0, 0u64);
    let (mut open, page, mut buffer) = (None, vec![7; 1 << 16], vec![0; 1 << 16]);
    while read < length {
        now += TICK;
        let due = forward.partition_point(|(at, _)| *at <= now);
        forward.drain(..due).for_each(|(_, cell)| _ = exits.on_cell(now, &cell));
        let due = back.partition_point(|(at, _, _)| *at <= now);
        back.drain(..due).for_each(|(_, cell, serial)| client.on_cell(now, &cell, serial));
        client.on_timer(now);
        exits.on_timer(now);
        while let Some(event) = client.poll_event() {
            if let ClientEvent::Stream(StreamEvent::Readable(stream)) = event {
                while let Ok(ReadOutcome::Bytes(count)) = client.read(stream, &mut buffer) {
                    read += count;
                }
            }
        }
        for _ in 0..client.blocks_wanted() {
            let mut block = serial.to_be_bytes().to_vec();
            block.resize(240, 0);
            serial = client.give_block(&block, WAY, false).expect("it fits") + 1;
        }
        while client.poll_cell(now, Via { tag: 0, timeout: WAY * 10, is_trial: false }, &mut cell) {
            forward.push((now + WAY, cell.clone()));
            cells[0] += 1;
        }
        for (_, exit) in exits.iter_mut() {
            while let Some(event) = exit.poll_event() {
                if let ExitEvent::Stream(StreamEvent::Opened(stream, _)) = event {
                    exit.accept(stream);
                    open = Some(stream);
                }
            }
            while let Some(stream) = open.filter(|_| written < length) {
                match exit.write(stream, &page[..page.len().min(length - written)]) {
                    Ok(count) if count > 0 => written += count,
                    _ => break,
                }
            }
            while let Some(block) = exit.poll_cell(now, &mut cell) {
                let serial = u64::from_be_bytes(*block.first_chunk().expect("a block has 240 bytes"));
                back.push((now + WAY, cell.clone(), serial));
                cells[1] += 1;
            }
        }
    }
    (now, cells)
}
