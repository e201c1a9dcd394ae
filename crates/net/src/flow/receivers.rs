//! The receiving end: any number of flows at any number of sockets, in one thread.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use anabranch_control::time::Time;

use super::Counters;
use super::content::Sink;
use super::received::{FlowKey, ReceiverConfig, ReceiverEvent, Report};
use super::receiving::{ReceivingEndpoint, Shared};
use crate::clock::Clock;
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::udp::Socket;
use crate::wait::Waker;

/// Flows to receive, their sockets, and the clock.
pub struct Receivers {
    config: ReceiverConfig,
    runtime: Runtime<ReceivingEndpoint>,
    sockets: usize,
    shared: Arc<Shared>,
}

impl fmt::Debug for Receivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receivers({} flows, {} sockets)", self.shared.flows(), self.sockets)
    }
}

impl Receivers {
    /// No flow yet, on `clock`.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new(clock: Clock, config: ReceiverConfig) -> io::Result<Receivers> {
        let runtime = Runtime::on_clock(clock, NoWork)?;
        Ok(Receivers { config, runtime, sockets: 0, shared: Arc::default() })
    }

    /// Adds a socket, whose number is how many there were before.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that receiving needs.
    pub fn add_socket(&mut self, socket: UdpSocket) -> io::Result<usize> {
        let endpoint = ReceivingEndpoint::new(self.config, self.sockets, Arc::clone(&self.shared));
        // ACKs are of several lengths and to several senders: segments would rarely match.
        let number = self.runtime.add(Socket::from_std(socket)?, endpoint, None)?;
        self.sockets += 1;
        Ok(number)
    }

    /// Where socket `port` is bound.
    ///
    /// # Errors
    ///
    /// As the system says.
    ///
    /// # Panics
    ///
    /// When there is no such socket.
    pub fn local_addr(&self, port: usize) -> io::Result<SocketAddr> {
        self.runtime.local_addr(port)
    }

    /// Ends a `turn` of another thread early.
    pub fn waker(&self) -> Waker {
        self.runtime.waker()
    }

    /// Now, on the clock that all times of these receivers are of.
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// Where the data of flows goes that are accepted from now on; without, it goes nowhere.
    pub fn set_sinks(&mut self, make: impl FnMut(FlowKey) -> Option<Box<dyn Sink>> + Send + 'static) {
        self.shared.set_sinks(Box::new(make));
    }

    /// Receives a flow whatever `accept` says, with or without a handshake; false if there are
    /// too many flows, this one is known, or there is no such socket.
    pub fn expect(&mut self, key: FlowKey, sink: Option<Box<dyn Sink>>) -> bool {
        let key = FlowKey { from: anabranch_proto::overlay::wire::canonical(key.from), ..key };
        key.port < self.sockets && self.runtime.machine_mut(key.port).expect(key, sink)
    }

    /// Asks for a [`ReceiverEvent::Reached`] once the flow's stream has arrived up to
    /// `offset`, higher than all that were asked for before; at once if it has already.
    pub fn notify_at(&mut self, flow: FlowKey, offset: u64) {
        if flow.port < self.sockets {
            self.runtime.act(flow.port, |endpoint, now, port| endpoint.notify_at(now, flow, offset, port));
        }
    }

    /// Forgets a flow: what still comes of it comes from a stranger.
    pub fn close(&mut self, flow: FlowKey) -> Option<Report> {
        (flow.port < self.sockets).then(|| self.runtime.machine_mut(flow.port).close(flow)).flatten()
    }

    /// What a flow has received.
    pub fn report(&self, flow: FlowKey) -> Option<Report> {
        (flow.port < self.sockets).then(|| self.runtime.machine(flow.port).report(flow)).flatten()
    }

    /// The flows that are received.
    pub fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.runtime.machines().flat_map(ReceivingEndpoint::flows)
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.runtime.poll_event().map(|(_, event)| event)
    }

    /// Datagrams so far.
    pub fn counters(&self) -> Counters {
        Counters::new(&self.runtime.counters(), self.runtime.machines().map(ReceivingEndpoint::refused))
    }

    /// Sends the ACKs that are due, waits for something to happen, at most until `until`,
    /// takes what has come and answers it.
    ///
    /// # Errors
    ///
    /// When a socket is no longer usable.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        self.runtime.turn(until)
    }
}
