//! Flows of the kernel's TCP: each sender a thread with its application, all receivers one.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::kernel_tcp::{self, Receivers};
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::traffic::{Action, Application};
use anabranch_net::clock::std_duration;
use anabranch_scenario::flows::Stack;

use super::failure::TestbedFailure;
use super::kernel_info::Samples;
use super::{LONGEST_WAIT, Pending, Run, Tick, Ticks};

/// Bytes written at once.
const CHUNK: usize = 1 << 16;

/// How long a connection may take to begin.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(30);

/// What a flow of the kernel's did.
#[derive(Debug)]
pub struct Sent {
    /// The flow.
    pub flow: usize,
    /// How long transfers with an end took until the receiver's end was known.
    pub completion_acked: Vec<Duration>,
    /// When each connection's transfer began.
    pub since: Vec<Time>,
    /// How long it was on.
    pub on_time: Duration,
    /// When it went on and off.
    pub notes: Vec<(Time, usize, bool)>,
    /// What the kernel said of it.
    pub series: FlowSeries,
}

impl Sent {
    fn none(flow: usize) -> Sent {
        Sent {
            flow,
            completion_acked: Vec::new(),
            since: Vec::new(),
            on_time: Duration::ZERO,
            notes: Vec::new(),
            series: FlowSeries::default(),
        }
    }
}

/// What a flow of the kernel's brought.
#[derive(Debug)]
pub struct Arrived {
    /// The flow.
    pub flow: usize,
    /// Bytes.
    pub delivered: u64,
    /// Bytes when goodput began to count.
    pub before: u64,
    /// Bytes at each row.
    pub rows: Vec<u64>,
    /// When each connection's stream had arrived whole, in their order.
    pub completed: Vec<Option<Time>>,
}

struct Sender<'a> {
    run: &'a Run<'a>,
    flow: usize,
    application: Application,
    stream: Option<TcpStream>,
    pending: Pending,
    samples: Samples,
    sent: Sent,
}

/// Sends one flow until the run is over; on a thread in the senders' namespace.
pub fn send(run: &Run<'_>, flow: usize) -> Result<Sent, TestbedFailure> {
    let spec = &run.scenario.flows[flow];
    let paces = matches!(&spec.stack, Stack::Kernel(name) if name.starts_with("bbr"));
    let mut sender = Sender {
        run,
        flow,
        application: Application::new(spec, run.scenario.seed),
        stream: None,
        pending: Pending::default(),
        samples: Samples::new(run.scenario, spec, paces),
        sent: Sent::none(flow),
    };
    let chunk = vec![0x5a; CHUNK];
    loop {
        let now = run.clock.now();
        sender.samples.take(now, sender.stream.as_ref());
        if !run.goes_on(now) {
            break;
        }
        sender.step(now, &chunk)?;
    }
    sender.sent.series = std::mem::take(&mut sender.samples.series);
    let end = run.clock.now().min(run.end());
    sender.sent.on_time = sender.application.on_time(end);
    if let Some(stream) = sender.stream.take() {
        kernel_tcp::abort(stream).map_err(TestbedFailure::sockets("end a TCP connection"))?;
    }
    Ok(sender.sent)
}

impl Sender<'_> {
    fn failed(&self, why: impl ToString) -> TestbedFailure {
        let flow = self.run.scenario.flows[self.flow].name.clone();
        TestbedFailure::Flow { flow, at: self.run.clock.now(), why: why.to_string() }
    }

    /// Does what is due, or waits a moment. The receivers end with the run, so that what a
    /// connection says after it is no failure.
    fn step(&mut self, now: Time, chunk: &[u8]) -> Result<(), TestbedFailure> {
        let done = self.work(now, chunk);
        if self.run.goes_on(self.run.clock.now()) { done } else { Ok(()) }
    }

    fn work(&mut self, now: Time, chunk: &[u8]) -> Result<(), TestbedFailure> {
        if self.application.wake <= now {
            self.wake(now)?;
        }
        self.application.refill(&mut self.pending);
        if self.pending.bytes == 0 || self.stream.is_none() {
            let wake = self.application.wake.min(self.samples.next()).min(self.run.end());
            let wake = wake.since(self.run.clock.now());
            std::thread::sleep(std_duration(wake).min(LONGEST_WAIT));
            return Ok(());
        }
        self.write(chunk)
    }

    fn note(&mut self) {
        self.sent.notes.push((self.run.clock.now(), self.flow, self.application.is_on()));
    }

    fn wake(&mut self, now: Time) -> Result<(), TestbedFailure> {
        match self.application.wake(now) {
            Action::Open => self.open(now)?,
            Action::Resume => self.application.begin(now, &mut self.pending),
            Action::Pause => self.pending = Pending::default(),
            Action::Close => self.close()?,
        }
        self.note();
        Ok(())
    }

    fn open(&mut self, now: Time) -> Result<(), TestbedFailure> {
        self.close()?;
        let plan = self.run.plan;
        let local = SocketAddr::from((plan.senders[self.flow], 0));
        let remote = plan.receiver(plan.receivers[self.flow][0]);
        let Stack::Kernel(congestion) = &self.run.scenario.flows[self.flow].stack else {
            return Err(self.failed("it is not the kernel's"));
        };
        self.sent.since.push(now);
        self.samples.begin_connection();
        self.application.await_handshake(now);
        let stream = kernel_tcp::connect(local, remote, congestion, CONNECT).map_err(|error| self.failed(error))?;
        stream.set_write_timeout(Some(LONGEST_WAIT)).map_err(|error| self.failed(error))?;
        stream.set_read_timeout(Some(LONGEST_WAIT)).map_err(|error| self.failed(error))?;
        self.stream = Some(stream);
        self.application.begin(self.run.clock.now(), &mut self.pending);
        Ok(())
    }

    fn close(&mut self) -> Result<(), TestbedFailure> {
        self.pending = Pending::default();
        match self.stream.take() {
            Some(stream) => kernel_tcp::abort(stream).map_err(TestbedFailure::sockets("end a TCP connection")),
            None => Ok(()),
        }
    }

    /// Writes as much as the kernel takes in a moment; at the end of a transfer waits until
    /// its receiver has it.
    fn write(&mut self, chunk: &[u8]) -> Result<(), TestbedFailure> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let length = chunk.len().min(usize::try_from(self.pending.bytes).unwrap_or(chunk.len()));
        match stream.write(&chunk[..length]) {
            Ok(written) => self.pending.took(written as u64),
            Err(error) if is_pause(error.kind()) => {}
            Err(error) => return Err(self.failed(error)),
        }
        if self.pending.bytes == 0 && self.application.ends_with_its_data() {
            self.finish()?;
        }
        Ok(())
    }

    /// The last byte is written. Its receiver ends the connection when it has it, which is
    /// known here half a round trip later, as an ACK would be.
    fn finish(&mut self) -> Result<(), TestbedFailure> {
        if !self.pending.last {
            // The connection goes on: what is in flight cannot be told from what arrived.
            self.application.finished(self.run.clock.now());
            self.note();
            return Ok(());
        }
        let Some(mut stream) = self.stream.take() else { return Ok(()) };
        stream.shutdown(std::net::Shutdown::Write).map_err(|error| self.failed(error))?;
        let mut byte = [0];
        while self.run.goes_on(self.run.clock.now()) {
            self.samples.take(self.run.clock.now(), Some(&stream));
            match stream.read(&mut byte) {
                Ok(_) => {
                    let now = self.run.clock.now();
                    let since = self.sent.since.last().copied().unwrap_or(now);
                    self.sent.completion_acked.push(now.since(since));
                    self.application.finished(now);
                    self.note();
                    break;
                }
                Err(error) if is_pause(error.kind()) => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Receives all flows of the kernel's until the run is over.
pub fn receive(run: &Run<'_>, listeners: Vec<(usize, TcpListener)>) -> Result<Vec<Arrived>, TestbedFailure> {
    let mut receivers = Receivers::new(run.clock).map_err(TestbedFailure::sockets("drive TCP receivers"))?;
    let mut flows = Vec::new();
    for (flow, listener) in listeners {
        receivers.add(listener).map_err(TestbedFailure::sockets("accept TCP connections"))?;
        flows.push(Arrived { flow, delivered: 0, before: 0, rows: Vec::new(), completed: Vec::new() });
    }
    let mut ticks = Ticks::new(run.scenario);
    loop {
        let now = run.clock.now();
        while let Some(tick) = ticks.pop(now) {
            for (number, flow) in flows.iter_mut().enumerate() {
                let delivered = receivers.report(number).delivered;
                match tick {
                    Tick::Row => flow.rows.push(delivered),
                    Tick::Goodput => flow.before = delivered,
                    Tick::Steering => {}
                }
            }
        }
        if !run.goes_on(now) {
            break;
        }
        receivers.turn(run.until(now, ticks.next())).map_err(TestbedFailure::sockets("receive TCP"))?;
    }
    for (number, flow) in flows.iter_mut().enumerate() {
        let report = receivers.report(number);
        flow.delivered = report.delivered;
        flow.completed = report.connections.iter().map(|(_, end)| *end).collect();
    }
    Ok(flows)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Shutdown};
    use std::sync::atomic::{AtomicBool, Ordering};

    use anabranch_net::clock::Clock;
    use anabranch_scenario::file::parse_flows;

    use super::super::plan::Plan;
    use super::super::watch::Watched;
    use super::*;

    #[test]
    fn what_a_connection_says_after_the_run_is_no_failure() {
        let text = "[run]\nseconds = 1000\n[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 5\n[[flow]]\n\
                    controller = \"kernel:reno\"\nstart_s = 999";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let plan = Plan {
            senders: vec![],
            receivers: vec![],
            addresses: vec![],
            quic_packet: 1200,
            watched: Watched::default(),
            cross_bytes: Default::default(),
        };
        let stop = AtomicBool::new(false);
        let run = Run { scenario: &scenario, plan: &plan, clock: Clock::start(), stop: &stop, steered: None };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // As after a reset by the other end: each write fails.
        stream.shutdown(Shutdown::Write).unwrap();
        let mut sender = Sender {
            run: &run,
            flow: 0,
            application: Application::new(&scenario.flows[0], 1),
            stream: Some(stream),
            pending: Pending { bytes: u64::MAX, last: false },
            samples: Samples::new(&scenario, &scenario.flows[0], false),
            sent: Sent::none(0),
        };
        assert!(matches!(sender.step(Time::ZERO, &[0; 8]), Err(TestbedFailure::Flow { .. })));
        stop.store(true, Ordering::Relaxed);
        assert!(sender.step(Time::ZERO, &[0; 8]).is_ok());
    }
}
