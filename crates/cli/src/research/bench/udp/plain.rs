//! Programs that do nothing but move datagrams: what the system allows.

use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, recvmmsg, sendmmsg, sendmsg, setsockopt, sockopt,
};

use super::super::processor_time;
use super::{DATAGRAM, Moved};
use crate::failure::Failure;

/// Datagrams of one system call.
const BATCH: usize = 32;

/// Segments of one send: as many as an IPv4 packet holds.
const SEGMENTS: usize = (65535 - 20 - 8) / DATAGRAM;

/// Datagrams on their way through a forwarder or a relay: they fit the smallest usual socket
/// buffer (208 KiB), where each counts for 2304 B.
const WINDOW: u64 = 64;

/// Nothing has arrived for so long: what is on its way is lost.
const LOST: Duration = Duration::from_millis(100);

/// Calls without a datagram after which what is missing is lost.
const MAX_IDLE: u32 = 1000;

/// Asked for as socket buffers, in bytes.
const BUFFER: usize = 4 << 20;

/// A socket on the loopback interface that waits for a tenth of a second at most.
pub fn socket() -> Result<UdpSocket, Failure> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(LOST))?;
    // Less than was asked for is no error.
    let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER);
    let _ = setsockopt(&socket, sockopt::SndBuf, &BUFFER);
    Ok(socket)
}

fn address(of: &UdpSocket) -> Result<SockaddrIn, Failure> {
    match of.local_addr()? {
        SocketAddr::V4(address) => Ok(SockaddrIn::from(address)),
        SocketAddr::V6(address) => Err(Failure::new(format!("{address}: not an IPv4 address"))),
    }
}

/// Receives and sends datagrams in batches.
///
/// Headers for receiving are never used to send: `sendmmsg` leaves addresses of the caller's
/// in them, which a later `recvmmsg` would write to.
pub struct Batches {
    incoming: MultiHeaders<SockaddrIn>,
    outgoing: MultiHeaders<SockaddrIn>,
    buffers: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl Batches {
    /// With buffers of `room` bytes.
    pub fn new(room: usize) -> Batches {
        Batches {
            incoming: MultiHeaders::preallocate(BATCH, None),
            outgoing: MultiHeaders::preallocate(BATCH, None),
            buffers: vec![vec![0; room]; BATCH],
            lengths: vec![0; BATCH],
        }
    }

    /// Takes what has come, waiting for the first unless `flags` say not to; how many.
    pub fn receive(&mut self, socket: &UdpSocket, flags: MsgFlags) -> Result<usize, Failure> {
        let mut slices: Vec<[IoSliceMut<'_>; 1]> =
            self.buffers.iter_mut().map(|buffer| [IoSliceMut::new(buffer)]).collect();
        let received = recvmmsg(socket.as_raw_fd(), &mut self.incoming, slices.iter_mut(), flags, None);
        match received {
            Ok(received) => {
                let mut count = 0;
                for (message, length) in received.zip(&mut self.lengths) {
                    *length = message.bytes;
                    count += 1;
                }
                Ok(count)
            }
            Err(Errno::EAGAIN | Errno::EINTR) => Ok(0),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    /// Bytes of the first `count` that were received.
    fn bytes(&self, count: usize) -> usize {
        self.lengths[..count].iter().sum()
    }

    /// Sends the first `count` datagrams, as long as they were received.
    fn send(&mut self, socket: &UdpSocket, to: SockaddrIn, count: usize) -> Result<usize, Failure> {
        let parts = self.buffers.iter().zip(&self.lengths).take(count);
        let slices: Vec<[IoSlice<'_>; 1]> = parts.map(|(buffer, &length)| [IoSlice::new(&buffer[..length])]).collect();
        let to = vec![Some(to); count];
        let fd = socket.as_raw_fd();
        match sendmmsg(fd, &mut self.outgoing, slices.iter(), to, [], MsgFlags::empty()) {
            Ok(sent) => Ok(sent.count()),
            Err(Errno::EAGAIN | Errno::EINTR | Errno::ENOBUFS) => Ok(0),
            Err(error) => Err(std::io::Error::from(error).into()),
        }
    }

    /// Makes each buffer hold `datagram`.
    fn fill(&mut self, datagram: &[u8]) {
        for (buffer, length) in self.buffers.iter_mut().zip(&mut self.lengths) {
            buffer[..datagram.len()].copy_from_slice(datagram);
            *length = datagram.len();
        }
    }
}

/// One thread sends without end, another one receives; with segmentation offload both, or
/// neither.
pub fn blast(time: Duration, offload: bool) -> Result<Moved, Failure> {
    let (from, to) = (socket()?, socket()?);
    if offload {
        setsockopt(&to, sockopt::UdpGroSegment, &true).map_err(std::io::Error::from)?;
    }
    let destination = address(&to)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<(u64, Duration), Failure> {
            let mut batches = Batches::new(if offload { 1 << 16 } else { 2048 });
            let (before, mut arrived) = (processor_time::now(), 0);
            while !stop.load(Ordering::Relaxed) {
                let count = batches.receive(&to, MsgFlags::MSG_WAITFORONE)?;
                arrived += (batches.bytes(count) / DATAGRAM) as u64;
            }
            Ok((arrived, processor_time::now() - before))
        });
        let mut batches = Batches::new(DATAGRAM);
        batches.fill(&[7; DATAGRAM]);
        let joined = vec![7; DATAGRAM * SEGMENTS];
        let (started, before) = (Instant::now(), processor_time::now());
        let sent = (|| -> Result<(), Failure> {
            while started.elapsed() < time {
                if offload {
                    let segments = [ControlMessage::UdpGsoSegments(&(DATAGRAM as u16))];
                    let slices = [IoSlice::new(&joined)];
                    sendmsg(from.as_raw_fd(), &slices, &segments, MsgFlags::empty(), Some(&destination))
                        .map_err(std::io::Error::from)?;
                } else {
                    batches.send(&from, destination, BATCH)?;
                }
            }
            Ok(())
        })();
        let (wall, spent) = (started.elapsed(), processor_time::now() - before);
        stop.store(true, Ordering::Relaxed);
        let (arrived, receiver) = receiver.join().expect("the receiver does not panic")?;
        sent?;
        Ok(Moved { arrived, wall, sender: spent, receiver })
    })
}

/// One thread passes on what another one sends through it.
pub fn forward(time: Duration) -> Result<Moved, Failure> {
    let (middle, end) = (socket()?, socket()?);
    let next = address(&end)?;
    let entry = middle.local_addr()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let forwarder = scope.spawn(|| -> Result<Duration, Failure> {
            let mut batches = Batches::new(2048);
            let before = processor_time::now();
            while !stop.load(Ordering::Relaxed) {
                let count = batches.receive(&middle, MsgFlags::MSG_WAITFORONE)?;
                if count > 0 {
                    batches.send(&middle, next, count)?;
                }
            }
            Ok(processor_time::now() - before)
        });
        let through = send_through(time, entry, &end, &[7; DATAGRAM]);
        stop.store(true, Ordering::Relaxed);
        let receiver = forwarder.join().expect("the forwarder does not panic")?;
        Ok(Moved { receiver, ..through? })
    })
}

/// Fills the forwarder's socket, then lets it pass on all of it, in turn in one thread.
pub fn forward_full(time: Duration) -> Result<Moved, Failure> {
    let (middle, end) = (socket()?, socket()?);
    let next = address(&end)?;
    let mut batches = Batches::new(2048);
    fill_and_empty(time, middle.local_addr()?, &end, &[7; DATAGRAM], None, || {
        let count = batches.receive(&middle, MsgFlags::MSG_DONTWAIT)?;
        Ok(if count > 0 { batches.send(&middle, next, count)? as u64 } else { 0 })
    })
}

/// Writes another datagram in place of the last one.
pub type Fresh<'a> = &'a mut dyn FnMut(&mut [u8]);

/// Sends a window of `datagram`, or of what `fresh` writes in its place, to `entry`, calls `pass_on` until it says that it has passed on
/// as many, and takes what comes out at `end`. Processor time of `pass_on` alone counts.
pub fn fill_and_empty(
    time: Duration,
    entry: SocketAddr,
    end: &UdpSocket,
    datagram: &[u8],
    mut fresh: Option<Fresh<'_>>,
    mut pass_on: impl FnMut() -> Result<u64, Failure>,
) -> Result<Moved, Failure> {
    let SocketAddr::V4(entry) = entry else { return Err(Failure::new(format!("{entry}: not an IPv4 address"))) };
    let (from, entry) = (socket()?, SockaddrIn::from(entry));
    let (mut out, mut back) = (Batches::new(datagram.len()), Batches::new(2048));
    out.fill(datagram);
    let (started, before) = (Instant::now(), processor_time::now());
    let (mut arrived, mut receiver) = (0, Duration::ZERO);
    while started.elapsed() < time {
        let mut waiting = 0;
        while waiting + BATCH as u64 <= WINDOW {
            if let Some(write) = &mut fresh {
                out.buffers.iter_mut().for_each(|buffer| write(buffer));
            }
            waiting += out.send(&from, entry, BATCH)? as u64;
        }
        let begun = processor_time::now();
        let mut idle = 0;
        while waiting > 0 && idle < MAX_IDLE {
            let passed = pass_on()?;
            waiting = waiting.saturating_sub(passed);
            idle = if passed == 0 { idle + 1 } else { 0 };
        }
        receiver += processor_time::now() - begun;
        loop {
            let count = back.receive(end, MsgFlags::MSG_DONTWAIT)? as u64;
            arrived += count;
            if count == 0 {
                break;
            }
        }
    }
    let sender = (processor_time::now() - before).saturating_sub(receiver);
    Ok(Moved { arrived, wall: started.elapsed(), sender, receiver })
}

/// Sends `datagram` to `entry` again and again and takes what comes out at `end`, with a
/// window of them on their way. Its `receiver` is nobody's time.
pub fn send_through(time: Duration, entry: SocketAddr, end: &UdpSocket, datagram: &[u8]) -> Result<Moved, Failure> {
    let SocketAddr::V4(entry) = entry else { return Err(Failure::new(format!("{entry}: not an IPv4 address"))) };
    send_from(&socket()?, time, entry, end, datagram)
}

/// As [`send_through`], from a socket of the caller's.
fn send_from(
    from: &UdpSocket,
    time: Duration,
    entry: SocketAddrV4,
    end: &UdpSocket,
    datagram: &[u8],
) -> Result<Moved, Failure> {
    let entry = SockaddrIn::from(entry);
    let (mut out, mut back) = (Batches::new(datagram.len()), Batches::new(2048));
    out.fill(datagram);
    let (started, before) = (Instant::now(), processor_time::now());
    let (mut arrived, mut on_way, mut heard) = (0, 0u64, started);
    while started.elapsed() < time {
        if on_way + BATCH as u64 <= WINDOW {
            on_way += out.send(from, entry, BATCH)? as u64;
        }
        let count = back.receive(end, MsgFlags::MSG_DONTWAIT)? as u64;
        arrived += count;
        on_way = on_way.saturating_sub(count);
        if count > 0 {
            heard = Instant::now();
        } else if heard.elapsed() > LOST {
            (on_way, heard) = (0, Instant::now());
        } else {
            std::thread::yield_now();
        }
    }
    let (wall, sender) = (started.elapsed(), processor_time::now() - before);
    Ok(Moved { arrived, wall, sender, receiver: Duration::ZERO })
}
