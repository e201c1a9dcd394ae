//! What a stream costs on this host: a server and viewers in one process, over loopback.
//!
//! ```sh
//! cargo run --release -p anabranch-net --example stream_cost -- 20 2000000 30
//! ```
//!
//! Viewers, bits a second, seconds. Prints the processor's time for each datagram of video that a viewer got (at
//! both of its ends, with encryption, signatures and system calls), and what left all sockets, with the headers of
//! IPv4 and UDP, for each byte of video that viewers got.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anabranch_control::units::Rate;
use anabranch_net::sessions::identity::PeerIdentity;
use anabranch_net::stream::{NodeEvent, ServeOptions, StreamNode, Video, WatchOptions};

/// Bytes of a packet of video.
const PACKET: usize = 1316;

/// Headers of IPv4 and UDP.
const HEADERS: u64 = 28;

/// How long until the trees are settled, which is not measured.
const OPENING: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [viewers, bits_per_s, seconds] = arguments[..] else {
        return Err("expected: VIEWERS BITS_PER_SECOND SECONDS".into());
    };
    let rate = Rate::from_bits_per_sec(bits_per_s);
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let upload = Rate::from_bits_per_sec(3 * bits_per_s);
    let options = ServeOptions::new(listen, PeerIdentity::generate(), upload);
    let (server, input, server_events) = StreamNode::serve(options)?;
    let watch = |_| {
        let options = WatchOptions::new(server.link().clone(), PeerIdentity::generate(), upload);
        StreamNode::watch(WatchOptions { listen: Some(listen), ..options })
    };
    let mut watching: Vec<_> = (0..viewers).map(watch).collect::<Result<_, _>>()?;
    drop(server_events);
    let interval = Duration::from_secs_f64(PACKET as f64 / rate.bytes_per_sec());
    let began = Instant::now();
    let (mut before, mut gaps, mut packets) = (None, 0, 0);
    for number in 0u32.. {
        let bytes: Arc<[u8]> = vec![number as u8; PACKET].into();
        let is_entry_point = (interval * number).subsec_nanos() < interval.subsec_nanos();
        input.push(Video { bytes, is_entry_point })?;
        for (_, events) in &mut watching {
            while let Ok(event) = events.try_recv() {
                match event {
                    NodeEvent::Packet { .. } => packets += 1,
                    NodeEvent::Gap { packets, .. } => gaps += packets,
                    _ => {}
                }
            }
        }
        if before.is_none() && began.elapsed() >= OPENING {
            before = Some((Instant::now(), cpu_time()?, wire(&server, &watching)));
            (gaps, packets) = (0, 0);
        }
        if began.elapsed() >= OPENING + Duration::from_secs(seconds) {
            break;
        }
        thread::sleep((began + interval * (number + 1)).saturating_duration_since(Instant::now()));
    }
    let (since, cpu, (sent, bytes)) = before.ok_or("the run is shorter than its opening")?;
    let span = since.elapsed().as_secs_f64();
    let cpu = cpu_time()? - cpu;
    let (sent, bytes) = {
        let now = wire(&server, &watching);
        (now.0 - sent, now.1 - bytes)
    };
    let video = packets * PACKET as u64;
    println!("delivered      {packets} packets of video, {gaps} missing");
    println!("processor      {:.0} % of a core", cpu.as_secs_f64() / span * 100.0);
    println!("a packet       {:.1} us", cpu.as_secs_f64() / packets as f64 * 1e6);
    println!("sent           {sent} datagrams, {:.2} for each packet", sent as f64 / packets as f64);
    println!("wire bytes     {:.3} for each byte of video", (bytes + sent * HEADERS) as f64 / video as f64);
    let server = server.snapshot();
    println!("server         {:.2} copies of the stream", server.upload.bytes_per_sec() / rate.bytes_per_sec());
    Ok(())
}

/// Datagrams and bytes that have left all peers, as of their last second.
fn wire(server: &StreamNode, viewers: &[(StreamNode, impl Sized)]) -> (u64, u64) {
    let all = viewers.iter().map(|(viewer, _)| viewer).chain([server]).map(StreamNode::snapshot);
    all.fold((0, 0), |sum, figures| (sum.0 + figures.sent_packets, sum.1 + figures.sent_bytes))
}

/// User's and system's time of this process.
fn cpu_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields
        .get(11..13)
        .ok_or("no times in /proc/self/stat")?
        .iter()
        .map(|field| field.parse::<u64>())
        .sum::<Result<_, _>>()?;
    // USER_HZ is 100 on Linux.
    Ok(Duration::from_millis(ticks * 10))
}
