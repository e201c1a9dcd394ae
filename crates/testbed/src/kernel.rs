//! Flows of the kernel's TCP: each sender has a thread, in its namespace. No connection blocks it, so that it sees the run's
//! end and its coordinator's word whatever the connection waits for.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::steerable::RoundTripSeen;
use anabranch_lab::flows::traffic::Outlet;
use anabranch_net::clock::std_duration;
use anabranch_scenario::flows::Stack;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::kernel_tcp::{self, Receivers};

use super::failure::TestbedFailure;
use super::kernel_info::{self, Samples};
use super::receiving::ReceiverStack;
use super::sending::{Event, Happened, Packets, SenderStack, Shared};
use super::{Pending, Run};

/// Bytes written at once.
const CHUNK: usize = 1 << 16;

/// The longest time between two packets of a connection that is bounded: the kernel sets the time
/// of the next one when one leaves, and a higher rate then comes too late for it.
const LONGEST_GAP: Duration = Duration::from_millis(100);

/// How long a connection may take to begin.
const CONNECT: Duration = Duration::from_millis(30_000);

/// Between two looks whether all is acknowledged.
const LOOK: Duration = Duration::from_millis(1);

/// One sender of the kernel's; to be used on a thread in the senders' namespace.
pub struct KernelSender<'a> {
    run: &'a Run<'a>,
    number: usize,
    congestion: &'a str,
    stream: Option<TcpStream>,
    pending: Pending,
    stage: Stage,
    samples: Samples,
    /// What connections that have ended have counted.
    ended: Packets,
    /// When what bounds its pace ends.
    bounded_until: Option<Time>,
    chunk: Vec<u8>,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The end of its handshake, which began then.
    Handshake(Time),
    /// Room for what was handed over, or that something is.
    Data,
    /// That all that was written is acknowledged; the connection goes on.
    Acks,
    /// Its receiver's end: all is written, the stream's end with it.
    End,
}

impl<'a> KernelSender<'a> {
    /// That of flow `number`.
    pub fn new(run: &'a Run<'a>, number: usize) -> Result<KernelSender<'a>, TestbedFailure> {
        let Stack::Kernel(congestion) = &run.scenario.flows[number].stack else {
            return Err(run.failed(number, "it is not the kernel's"));
        };
        Ok(KernelSender {
            run,
            number,
            congestion,
            stream: None,
            pending: Pending::default(),
            stage: Stage::Data,
            samples: Samples::new(congestion.starts_with("bbr") || run.scenario.flows[number].steered),
            ended: Packets::default(),
            bounded_until: None,
            chunk: vec![0x5a; CHUNK],
        })
    }

    fn failed(&self, why: impl ToString) -> TestbedFailure {
        self.run.failed(self.number, why)
    }

    /// Bounds what the connection sends, until `until`.
    fn set_pace(&mut self, rate: Option<Rate>, until: Option<Time>) {
        self.bounded_until = until;
        if let Some(stream) = &self.stream {
            // It can fail for a connection alone that has ended, which its next write says.
            let _ = kernel_tcp::set_most_pace(stream, rate);
        }
    }

    /// The connection ends; what it has counted stays.
    fn take_stream(&mut self) -> Option<TcpStream> {
        let stream = self.stream.take()?;
        self.ended = self.ended.plus(counted(&stream));
        Some(stream)
    }

    /// What its stage waited for has come, or may have. The receiver's end ends the connection when it has all, which is
    /// known here half a round trip later, as an ACK would be.
    fn work(&mut self) -> std::io::Result<Option<Happened>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        match self.stage {
            Stage::Handshake(_) => {
                if let Some(error) = stream.take_error()? {
                    return Err(error);
                }
                self.stage = Stage::Data;
                Ok(Some(Happened::Established))
            }
            Stage::Data => {
                let length = self.chunk.len().min(usize::try_from(self.pending.bytes).unwrap_or(self.chunk.len()));
                let written = stream.write(&self.chunk[..length])?;
                self.pending.took(written as u64);
                if self.pending.bytes > 0 {
                    return Ok(None);
                }
                self.stage = Stage::Acks;
                if self.pending.last {
                    stream.shutdown(Shutdown::Write)?;
                    self.stage = Stage::End;
                }
                Ok(None)
            }
            Stage::Acks => {
                if !kernel_info::info(stream)?.is_all_acked {
                    return Ok(None);
                }
                self.stage = Stage::Data;
                Ok(Some(Happened::Delivered))
            }
            Stage::End => {
                if stream.read(&mut [0])? > 0 {
                    return Ok(None);
                }
                self.take_stream();
                self.stage = Stage::Data;
                Ok(Some(Happened::Delivered))
            }
        }
    }

    /// Waits for what its stage waits for, until `until` at most: whether that may have come.
    fn wait(&self, until: Time) -> std::io::Result<bool> {
        let now = self.run.clock.now();
        let sleep = |until: Time| std::thread::sleep(std_duration(until.since(now)));
        let Some(stream) = &self.stream else {
            sleep(until);
            return Ok(false);
        };
        let awaited = match self.stage {
            Stage::Handshake(_) => PollFlags::OUT,
            Stage::Data if self.pending.bytes > 0 => PollFlags::OUT,
            Stage::Data => {
                sleep(until);
                return Ok(false);
            }
            Stage::Acks => {
                sleep(until.min(now + LOOK));
                return Ok(true);
            }
            Stage::End => PollFlags::IN,
        };
        let longest = std_duration(until.since(now));
        let timeout = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        Ok(poll(&mut [PollFd::new(stream, awaited)], Some(&timeout))? > 0)
    }
}

/// What a connection has counted; nothing once it is reset.
fn counted(stream: &TcpStream) -> Packets {
    kernel_info::info(stream).map_or_else(
        |_| Packets::default(),
        |info| Packets { packets: info.sent, lost: info.retransmits, spurious: 0, acked_bytes: info.acked },
    )
}

impl SenderStack for KernelSender<'_> {
    fn open(&mut self, _: usize, _: u32, _: &Shared) -> Result<bool, TestbedFailure> {
        let plan = self.run.plan;
        let local = SocketAddr::from((plan.senders[self.number], 0));
        let remote = plan.receiver(plan.receivers[self.number][0]);
        self.samples.begin_connection();
        let stream = kernel_tcp::connect(local, remote, self.congestion).map_err(|error| self.failed(error))?;
        (self.stream, self.stage) = (Some(stream), Stage::Handshake(self.run.clock.now()));
        Ok(false)
    }

    fn write(&mut self, _: usize, to: PeerId, bytes: u64, last: bool) {
        self.pending.write(to, bytes, last);
        if self.stage == Stage::Acks {
            self.stage = Stage::Data;
        }
    }

    fn unsent(&self, _: usize) -> u64 {
        self.pending.bytes
    }

    fn pause(&mut self, _: usize) {
        self.pending = Pending::default();
        if self.stage == Stage::Acks {
            self.stage = Stage::Data;
        }
    }

    fn close(&mut self, _: usize) -> Result<(), TestbedFailure> {
        (self.pending, self.stage) = (Pending::default(), Stage::Data);
        let ended = self.take_stream().map_or(Ok(()), kernel_tcp::abort);
        ended.map_err(TestbedFailure::sockets("end a TCP connection"))
    }

    fn turn(&mut self, until: Time, events: &mut Vec<Event>) -> Result<(), TestbedFailure> {
        if self.bounded_until.is_some_and(|end| end <= self.run.clock.now()) {
            self.set_pace(None, None);
        }
        if let Stage::Handshake(since) = self.stage
            && self.run.clock.now() >= since + CONNECT
        {
            return Err(self.failed(format!("its receiver has not answered for {CONNECT}")));
        }
        let happened = match self.wait(until) {
            Ok(true) => self.work(),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        match happened {
            Ok(happened) => {
                events.extend(happened.map(|happened| Event { flow: 0, at: self.run.clock.now(), happened }));
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn sample(&mut self, _: usize, series: &mut FlowSeries, is_late: bool) {
        let stands = !matches!(self.stage, Stage::Handshake(_));
        self.samples.push(series, self.stream.as_ref().filter(|_| stands && !is_late));
    }

    fn packets(&self, _: usize) -> Option<Packets> {
        None
    }

    fn counted(&self, _: usize) -> Packets {
        self.ended.plus(self.stream.as_ref().map(counted).unwrap_or_default())
    }

    fn round_trip(&self, _: usize) -> Option<RoundTripSeen> {
        let info = kernel_info::info(self.stream.as_ref()?).ok()?;
        Some(RoundTripSeen { smoothed: info.smoothed_rtt?, min: info.min_rtt? })
    }

    /// What bounds a window elsewhere bounds the pace here: nobody but a congestion control can set
    /// the window of a connection that stands.
    fn set_bounds(&mut self, _: usize, bounds: Bounds) {
        let over_round_trip = || Some(bounds.maximum? / self.round_trip(0)?.min);
        let packet = self.run.scenario.packets.data;
        let least = packet / LONGEST_GAP;
        let rate = bounds.rate.or_else(over_round_trip).map(|rate| rate.max(least));
        self.set_pace(rate, bounds.expires);
    }
}

/// Receivers of the kernel's, each at a listener.
pub fn receivers(run: &Run<'_>, listeners: Vec<(usize, TcpListener)>) -> Result<Receivers, TestbedFailure> {
    let mut receivers = Receivers::new(run.clock).map_err(TestbedFailure::sockets("drive TCP receivers"))?;
    for (_, listener) in listeners {
        receivers.add(listener).map_err(TestbedFailure::sockets("accept TCP connections"))?;
    }
    Ok(receivers)
}

impl ReceiverStack for Receivers {
    fn turn(&mut self, until: Time) -> Result<(), TestbedFailure> {
        Receivers::turn(self, until).map_err(TestbedFailure::sockets("receive TCP"))
    }

    fn delivered(&self, receiver: usize) -> u64 {
        Receivers::delivered(self, receiver)
    }

    fn poll_completed(&mut self) -> Option<(usize, Time)> {
        Receivers::poll_completed(self)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};

    use anabranch_net::clock::Clock;
    use anabranch_scenario::file::parse_flows;

    use super::super::plan::Plan;
    use super::super::sending::Driver;
    use super::*;

    #[test]
    fn what_a_connection_says_after_the_run_is_no_failure() {
        let text = "[run]\nseconds = 1000\n[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 5\n[[flow]]\n\
                    controller = \"kernel:reno\"\nstart_s = 999";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let plan = Plan::of_nobody();
        let stop = AtomicBool::new(false);
        let run = Run { scenario: &scenario, plan: &plan, clock: Clock::start(), stop: &stop, steered: None };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // As after a reset by the other end: each write fails.
        stream.shutdown(Shutdown::Write).unwrap();
        let mut sender = KernelSender::new(&run, 0).unwrap();
        sender.stream = Some(stream);
        sender.write(0, PeerId(0), u64::MAX, false);
        let mut driver = Driver::new(&run, &[0], sender);
        assert!(matches!(driver.step(Time::ZERO, Time::MAX), Err(TestbedFailure::Flow { .. })));
        stop.store(true, Ordering::Relaxed);
        assert!(driver.step(Time::ZERO, Time::MAX).is_ok());
    }
}
