//! The sending end: any number of flows by any number of sockets, in one thread.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::Time;
use anabranch_proto::flow::{FlowSender, wire};

use super::Counters;
use super::sending::SendingEndpoint;
use super::spec::{EndReason, FlowId, FlowSpec, MAX_RECEIVERS, OpenError, SenderEvent};
use crate::clock::Clock;
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::udp::Socket;
use crate::wait::Waker;

/// Flows to send, their sockets, and the clock.
pub struct Senders {
    runtime: Runtime<SendingEndpoint>,
    sockets: usize,
    /// The socket by which each leaves.
    flows: HashMap<FlowId, usize>,
}

impl fmt::Debug for Senders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Senders({} flows, {} sockets)", self.flows.len(), self.sockets)
    }
}

impl Senders {
    /// No flow yet, on `clock`.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new(clock: Clock) -> io::Result<Senders> {
        Ok(Senders { runtime: Runtime::on_clock(clock, NoWork)?, sockets: 0, flows: HashMap::new() })
    }

    /// Adds a socket, whose number is how many there were before. With `segmentation`,
    /// packets that leave together travel the system as one until a network device, or the
    /// receiving socket, takes them apart: faster, and coarser for a queue on the way.
    ///
    /// # Errors
    ///
    /// When the system refuses an option that receiving needs.
    pub fn add_socket(&mut self, socket: UdpSocket, segmentation: bool) -> io::Result<usize> {
        let (socket, endpoint) = (Socket::from_std(socket)?, SendingEndpoint::default());
        self.sockets += 1;
        if segmentation {
            self.runtime.add_with_segmentation(socket, endpoint, None)
        } else {
            self.runtime.add(socket, endpoint, None)
        }
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

    /// Now, on the clock that all times of these senders are of.
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// Opens a flow; what is written to it leaves in the next turns.
    ///
    /// # Errors
    ///
    /// When it can't be; nothing has changed then.
    pub fn open(&mut self, spec: FlowSpec) -> Result<FlowId, OpenError> {
        let FlowSpec { connection, port, receivers, sender, .. } = &spec;
        let (&connection, &port, id) = (connection, port, FlowId(*connection));
        let (addresses, served, packet) = (receivers.len(), sender.receivers(), sender.packet());
        if self.flows.contains_key(&id) {
            return Err(OpenError::InUse { connection });
        }
        if port >= self.sockets {
            return Err(OpenError::NoPort { port });
        }
        if addresses != served || !(1..=MAX_RECEIVERS).contains(&served) {
            return Err(OpenError::Receivers { addresses, served });
        }
        if !(1..=(wire::MAX_DATAGRAM - wire::HEADER) as u64).contains(&packet.get()) {
            return Err(OpenError::PacketTooLong { packet });
        }
        let now = self.runtime.now();
        self.runtime.machine_mut(port).open(now, spec);
        self.flows.insert(id, port);
        Ok(id)
    }

    /// Hands over `bytes` for receiver `to` of `flow`; the stream ends with them if `last`.
    /// `u64::MAX` bytes never end. False if there is no such flow, or it has ended.
    ///
    /// # Panics
    ///
    /// When the flow has no such receiver.
    pub fn write(&mut self, flow: FlowId, to: PeerId, bytes: u64, last: bool) -> bool {
        self.endpoint_mut(flow).is_some_and(|endpoint| endpoint.write(flow.0, to, bytes, last))
    }

    /// Takes back what was handed over to `flow` and has not left yet: the flow goes idle
    /// until more is written.
    pub fn pause(&mut self, flow: FlowId) {
        if let Some(endpoint) = self.endpoint_mut(flow) {
            endpoint.pause(flow.0);
        }
    }

    /// Bounds that hold for the flow's window from now on.
    pub fn set_bounds(&mut self, flow: FlowId, bounds: Bounds) {
        if let Some(endpoint) = self.endpoint_mut(flow) {
            endpoint.set_bounds(flow.0, bounds);
        }
    }

    /// Ends a flow, tells its receivers, and gives back its sender with all it has counted.
    /// What is on its way is not waited for.
    pub fn close(&mut self, flow: FlowId) -> Option<FlowSender> {
        let port = self.flows.remove(&flow)?;
        self.runtime.act(port, |endpoint, _, port| endpoint.close(flow.0, port))
    }

    /// The sender of a flow that was not closed yet: its limits, counts and trace.
    pub fn sender(&self, flow: FlowId) -> Option<&FlowSender> {
        self.runtime.machine(*self.flows.get(&flow)?).sender(flow.0)
    }

    /// Why a flow has ended, if it has.
    pub fn ended(&self, flow: FlowId) -> Option<EndReason> {
        self.runtime.machine(*self.flows.get(&flow)?).ended(flow.0)
    }

    /// The next thing that has happened.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.runtime.poll_event().map(|(_, event)| event)
    }

    /// Datagrams so far.
    pub fn counters(&self) -> Counters {
        Counters::new(&self.runtime.counters(), self.runtime.machines().map(SendingEndpoint::refused))
    }

    /// Sends what may leave, then waits for something to happen, at most until `until`, and
    /// learns from it.
    ///
    /// # Errors
    ///
    /// When a socket is no longer usable.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        self.runtime.turn(until)
    }

    fn endpoint_mut(&mut self, flow: FlowId) -> Option<&mut SendingEndpoint> {
        Some(self.runtime.machine_mut(*self.flows.get(&flow)?))
    }
}
