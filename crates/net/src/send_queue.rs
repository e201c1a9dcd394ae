//! Datagrams on their way out of one socket, many in one system call.
//!
//! Neighbours of one length to one destination may leave as segments of one send
//! (segmentation offload), and such that are no neighbours if their order does not matter, or matters to one
//! destination alone; the others leave together by `sendmmsg`. What a full socket does
//! not take stays for the next try, and what it refuses is counted.

use std::cmp::Reverse;
use std::io;

use crate::udp::{Socket, Way};

/// Bytes that wait at most: two sends of the longest kind.
const CAPACITY: usize = 1 << 17;

/// The most that leaves as segments of one send: one IPv4 packet's worth.
const MAX_SEGMENTED: usize = 65535 - 20 - 8;

/// Messages of one `sendmmsg`.
#[cfg(target_os = "linux")]
const MAX_MESSAGES: usize = 32;

/// What became of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Datagrams that the system took.
    pub sent: u64,
    /// Datagrams that it refused: no route, too long, and the like.
    pub refused: u64,
    /// Times that the socket was full.
    pub blocked: u64,
    /// System calls.
    pub calls: u64,
    /// Why the last one was refused, as the system numbers errors.
    pub last_refusal: Option<i32>,
}

/// Which order of datagrams matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// That of all.
    All,
    /// That of those which go one way: their receiver takes what comes late for lost, as QUIC does.
    EachWay,
    /// That of those which go one way and have one length.
    EachLength,
}

/// Datagrams for one destination, back to back.
#[derive(Clone, Copy, Debug)]
struct Run {
    way: Way,
    start: usize,
    end: usize,
    /// Bytes of each but the last, which may be shorter.
    segment: usize,
}

impl Run {
    fn is_single(&self) -> bool {
        self.end - self.start <= self.segment
    }

    fn datagrams(&self) -> usize {
        (self.end - self.start).div_ceil(self.segment.max(1)).max(1)
    }
}

/// Datagrams that wait to leave.
#[derive(Debug)]
pub struct SendQueue {
    bytes: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    /// Runs before this one have left.
    next: usize,
    /// Datagrams that a run holds at most.
    segments: usize,
    order: Order,
    /// Where they are put in another order, if they may be; empty otherwise.
    sorted: Box<[u8]>,
    #[cfg(target_os = "linux")]
    addresses: Vec<rustix::net::SocketAddrAny>,
}

impl SendQueue {
    /// An empty one that joins up to `segments` datagrams for one destination; 1 joins none.
    pub fn new(segments: usize) -> SendQueue {
        SendQueue {
            bytes: vec![0; CAPACITY].into(),
            used: 0,
            runs: Vec::new(),
            next: 0,
            segments: segments.max(1),
            order: Order::All,
            sorted: Box::default(),
            #[cfg(target_os = "linux")]
            addresses: Vec::new(),
        }
    }

    /// The same, but what leaves together is put in order of destinations and lengths first, so that more of
    /// it can be joined: for datagrams that each stand for themselves.
    pub fn gathering(segments: usize) -> SendQueue {
        SendQueue::sorting(segments, Order::EachLength)
    }

    /// The same, but what goes one way stays in order: for protocols that number their packets.
    pub fn gathering_in_order(segments: usize) -> SendQueue {
        SendQueue::sorting(segments, Order::EachWay)
    }

    fn sorting(segments: usize, order: Order) -> SendQueue {
        let sorted = if segments > 1 { vec![0; CAPACITY].into() } else { Box::default() };
        SendQueue { order, sorted, ..SendQueue::new(segments) }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.next == self.runs.len()
    }

    /// Whether a datagram of `length` bytes fits.
    pub fn has_room(&self, length: usize) -> bool {
        self.used + length <= CAPACITY
    }

    /// Room for a datagram of `length` bytes that leaves by `way`; None if it doesn't fit. Its bytes
    /// are whatever was there before.
    pub fn push(&mut self, way: Way, length: usize) -> Option<&mut [u8]> {
        if !self.has_room(length) {
            return None;
        }
        let (start, end) = (self.used, self.used + length);
        self.used = end;
        match self.runs[self.next..].last_mut() {
            Some(run)
                if run.way == way
                    && (1..=run.segment).contains(&length)
                    && (run.end - run.start) % run.segment == 0
                    && (run.end - run.start) / run.segment < self.segments
                    && end - run.start <= MAX_SEGMENTED =>
            {
                run.end = end;
            }
            _ => self.runs.push(Run { way, start, end, segment: length }),
        }
        Some(&mut self.bytes[start..end])
    }

    /// Puts what goes the same way side by side; if lengths may change places, the longest first, and what could be
    /// joined before the rest.
    fn gather(&mut self) {
        // What has waited for a socket is in order already, but for what came since.
        if self.sorted.is_empty() || self.segments == 1 || self.next > 0 || self.runs.len() < 2 {
            return;
        }
        let mut runs = std::mem::take(&mut self.runs);
        if self.order == Order::EachLength {
            runs.sort_by_key(|run| (run.way, Reverse(run.segment)));
        } else {
            runs.sort_by_key(|run| run.way);
        }
        std::mem::swap(&mut self.bytes, &mut self.sorted);
        self.used = 0;
        for run in &runs {
            let mut start = run.start;
            loop {
                let end = run.end.min(start + run.segment);
                let room = self.used..self.used + (end - start);
                self.push(run.way, end - start).expect("it had room before");
                self.bytes[room].copy_from_slice(&self.sorted[start..end]);
                start = end;
                if start == run.end {
                    break;
                }
            }
        }
        if self.order == Order::EachLength {
            self.runs.sort_by_key(Run::is_single);
        }
    }

    /// Sends what waits; false if the socket is full and some of it still does.
    pub fn flush(&mut self, socket: &Socket, counters: &mut SendCounters) -> bool {
        self.gather();
        while let Some(run) = self.runs.get(self.next) {
            // What says more than where it goes takes a control message, and a call of its own.
            let is_plain = |run: &&Run| run.is_single() && !run.way.ect && run.way.from.is_none();
            let singles = self.runs[self.next..].iter().take_while(is_plain).count();
            let sent = if singles > 1 { self.send_singles(socket, singles) } else { self.send_run(socket, *run) };
            counters.calls += 1;
            match sent {
                Ok(sent) => counters.sent += sent as u64,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        counters.blocked += 1;
                        return false;
                    }
                    io::ErrorKind::Interrupted => {}
                    _ => {
                        counters.refused += self.runs[self.next].datagrams() as u64;
                        counters.last_refusal = error.raw_os_error();
                        self.next += 1;
                    }
                },
            }
        }
        self.clear();
        true
    }

    /// Drops what waits; how many datagrams it was.
    pub fn clear(&mut self) -> usize {
        let dropped = self.runs[self.next..].iter().map(Run::datagrams).sum();
        self.runs.clear();
        self.next = 0;
        self.used = 0;
        dropped
    }

    /// Sends the next run, or its first datagram where there is no segmentation offload.
    fn send_run(&mut self, socket: &Socket, run: Run) -> io::Result<usize> {
        let whole = run.is_single() || run.datagrams() <= socket.max_segments();
        let end = if whole { run.end } else { run.start + run.segment };
        let sent = socket.send_segments(run.way, &self.bytes[run.start..end], run.segment);
        if sent.is_err() && !run.is_single() && socket.max_segments() == 1 {
            // The network device has just refused segments: they leave one by one.
            self.segments = 1;
            return if whole { Ok(0) } else { sent.map(|()| 0) };
        }
        sent?;
        if end == run.end {
            self.next += 1;
        } else {
            self.runs[self.next].start = end;
        }
        Ok(Run { end, ..run }.datagrams())
    }

    /// Sends the next `count` runs, single datagrams all, as far as one system call goes.
    #[cfg(target_os = "linux")]
    fn send_singles(&mut self, socket: &Socket, count: usize) -> io::Result<usize> {
        use std::io::IoSlice;

        use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

        let runs = &self.runs[self.next..][..count.min(MAX_MESSAGES)];
        self.addresses.clear();
        self.addresses.extend(runs.iter().map(|run| rustix::net::SocketAddrAny::from(socket.reach(run.way.to))));
        let slices: [IoSlice<'_>; MAX_MESSAGES] =
            std::array::from_fn(|i| IoSlice::new(runs.get(i).map_or(&[], |run| &self.bytes[run.start..run.end])));
        let mut controls: [SendAncillaryBuffer<'_, '_, '_>; MAX_MESSAGES] = Default::default();
        let parts = self.addresses.iter().zip(&slices).zip(&mut controls);
        let message =
            |((address, slice), control)| MMsgHdr::new_with_addr(address, std::slice::from_ref(slice), control);
        let mut messages: Vec<MMsgHdr<'_>> = parts.map(message).collect();
        let sent = sendmmsg(socket.io(), &mut messages, SendFlags::empty())?;
        self.next += sent;
        Ok(sent)
    }

    #[cfg(not(target_os = "linux"))]
    fn send_singles(&mut self, socket: &Socket, _: usize) -> io::Result<usize> {
        let run = self.runs[self.next];
        self.send_run(socket, run)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

    use super::*;

    fn socket() -> (Socket, UdpSocket) {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        (Socket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap(), receiver)
    }

    /// Pushes datagrams of these lengths, each filled with its number.
    fn push(queue: &mut SendQueue, to: SocketAddr, lengths: &[usize]) {
        for (number, &length) in lengths.iter().enumerate() {
            queue.push(Way::to(to), length).expect("there is room").fill(number as u8);
        }
    }

    fn receive(receiver: &UdpSocket, lengths: &[usize]) {
        let mut bytes = vec![0; 1 << 16];
        for (number, &length) in lengths.iter().enumerate() {
            assert_eq!(receiver.recv(&mut bytes).unwrap(), length, "datagram {number}");
            assert!(bytes[..length].iter().all(|&byte| byte == number as u8), "datagram {number}");
        }
    }

    #[test]
    fn datagrams_leave_in_order_whether_they_are_joined_or_not() {
        let lengths: Vec<usize> =
            [100; 40].into_iter().chain([60, 100, 0, 100, 200, 200, 1, 1]).chain([1400; 20]).collect();
        for segments in [1, 2, 64] {
            let ((socket, receiver), mut queue) = (socket(), SendQueue::new(segments));
            let mut counters = SendCounters::default();
            push(&mut queue, receiver.local_addr().unwrap(), &lengths);
            assert!(queue.flush(&socket, &mut counters) && queue.is_empty());
            receive(&receiver, &lengths);
            assert_eq!((counters.sent, counters.refused), (lengths.len() as u64, 0));
            assert!(counters.calls < lengths.len() as u64 / 2, "{counters:?}");
        }
    }

    #[test]
    fn what_goes_one_way_is_gathered_and_equals_stay_in_order() {
        let ((socket, one), (_, two)) = (socket(), socket());
        let mut queue = SendQueue::gathering(socket.max_segments());
        let mut counters = SendCounters::default();
        // To two destinations in turn, in two lengths and now and then none at all.
        let lengths: Vec<usize> = (0..60).map(|number| [1400, 100, 1400, 100, 0][number % 5]).collect();
        for (number, &length) in lengths.iter().enumerate() {
            let to = [&one, &two][number % 2].local_addr().unwrap();
            queue.push(Way::to(to), length).expect("there is room").fill(number as u8);
        }
        assert!(queue.flush(&socket, &mut counters) && queue.is_empty());
        let mut bytes = vec![0; 1 << 16];
        for (which, receiver) in [one, two].iter().enumerate() {
            let mut got = Vec::new();
            for _ in 0..30 {
                let length = receiver.recv(&mut bytes).unwrap();
                got.push((length, bytes[..length].first().copied()));
                assert!(bytes[..length].iter().all(|&byte| Some(byte) == got.last().unwrap().1));
            }
            for length in [1400, 100, 0] {
                let wanted = (0..60).filter(|number| number % 2 == which && lengths[*number] == length);
                let wanted: Vec<_> = wanted.map(|number| (length, (length > 0).then_some(number as u8))).collect();
                let got: Vec<_> = got.iter().copied().filter(|&(got, _)| got == length).collect();
                assert_eq!(got, wanted);
            }
        }
        assert_eq!((counters.sent, counters.refused), (60, 0));
        let calls = if socket.max_segments() > 1 { 8 } else { 60 };
        assert!(counters.calls <= calls, "{counters:?}");
    }

    #[test]
    fn what_goes_one_way_stays_in_order_whatever_its_length_where_order_matters() {
        let ((socket, one), (_, two)) = (socket(), socket());
        let mut queue = SendQueue::gathering_in_order(socket.max_segments());
        let mut counters = SendCounters::default();
        let lengths: Vec<usize> =
            (0..60).map(|number| [1400, 1400, 100, 100, 1400, 1400, 7, 1300][number % 8]).collect();
        for (number, &length) in lengths.iter().enumerate() {
            let to = [&one, &two][number % 2].local_addr().unwrap();
            queue.push(Way::to(to), length).expect("there is room").fill(number as u8);
        }
        assert!(queue.flush(&socket, &mut counters) && queue.is_empty());
        let mut bytes = vec![0; 1 << 16];
        for (which, receiver) in [one, two].iter().enumerate() {
            for number in (0..60).filter(|number| number % 2 == which) {
                assert_eq!(receiver.recv(&mut bytes).unwrap(), lengths[number], "datagram {number}");
                assert!(bytes[..lengths[number]].iter().all(|&byte| usize::from(byte) == number), "datagram {number}");
            }
        }
        assert_eq!((counters.sent, counters.refused), (60, 0));
        assert!(socket.max_segments() == 1 || counters.calls < 40, "{counters:?}");
    }

    #[test]
    fn what_the_system_refuses_is_counted_and_the_rest_leaves() {
        let ((socket, receiver), mut queue) = (socket(), SendQueue::new(64));
        let mut counters = SendCounters::default();
        let to = receiver.local_addr().unwrap();
        // No IPv4 packet holds so much, and nothing is sent to port 0.
        push(&mut queue, to, &[10, 65_530]);
        push(&mut queue, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), &[10, 10]);
        push(&mut queue, to, &[10]);
        assert!(queue.flush(&socket, &mut counters));
        receive(&receiver, &[10]);
        receive(&receiver, &[10]);
        assert_eq!((counters.sent, counters.refused), (2, 3));
        assert!(counters.last_refusal.is_some());
    }

    #[test]
    fn what_waits_is_bounded_and_can_be_dropped() {
        let mut queue = SendQueue::new(4);
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
        let pushed = (0..1000).take_while(|_| queue.push(Way::to(to), 1000).is_some()).count();
        assert_eq!(pushed, CAPACITY / 1000);
        assert_eq!(queue.clear(), pushed);
        assert!(queue.is_empty() && queue.has_room(CAPACITY));
    }
}
