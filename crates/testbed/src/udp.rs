//! Our flows on UDP sockets.

use std::collections::{HashSet, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use anabranch_control::flow::{Bounds, PeerId};
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::measured::FlowSeries;
use anabranch_lab::flows::steerable::RoundTripSeen;
use anabranch_lab::flows::{FlowRunError, node};
use anabranch_net::flow::{
    Accept, EndReason, FlowId, FlowKey, FlowSpec, Pattern, ReceiverConfig, ReceiverEvent, Receivers, SenderEvent,
    Senders, Source,
};
use anabranch_proto::flow::FlowSender;
use anabranch_scenario::flows::{FlowSpec as Flow, Workload};

use super::Run;
use super::failure::TestbedFailure;
use super::receiving::ReceiverStack;
use super::sending::{Event, Happened, Packets, SenderStack, Shared, lock};

/// A receiver's silence ends no flow before the run does.
const PATIENCE: Duration = Duration::from_millis(86_400_000);

/// Flows at a time at most: more than there are addresses.
const MOST_FLOWS: usize = 1 << 17;

/// Keeps blocks coming while packets leave.
struct Blocks(Shared);

impl Source for Blocks {
    fn fill(&mut self, to: PeerId, offset: u64, bytes: &mut [u8]) {
        Pattern.fill(to, offset, bytes);
    }

    fn refill(&mut self, _: Time, sender: &mut FlowSender) {
        lock(&self.0).refill(sender);
    }
}

/// Senders of ours.
pub struct UdpSenders<'a> {
    run: &'a Run<'a>,
    senders: Senders,
    flows: Vec<Sender<'a>>,
}

struct Sender<'a> {
    number: usize,
    spec: &'a Flow,
    id: Option<FlowId>,
    packets: Packets,
    /// What the controller of the first connection that had something to say has said.
    note: Option<String>,
}

impl<'a> UdpSenders<'a> {
    /// Each socket is a flow's. Parameters are refused before anything leaves.
    pub fn new(run: &'a Run<'a>, sockets: Vec<(usize, UdpSocket)>) -> Result<UdpSenders<'a>, TestbedFailure> {
        let mut senders = Senders::new(run.clock).map_err(TestbedFailure::sockets("drive UDP senders"))?;
        let mut flows = Vec::new();
        for (number, socket) in sockets {
            // One by one: a queue on the way must see each packet.
            senders.add_socket(socket, false).map_err(TestbedFailure::sockets("send on a UDP socket"))?;
            let spec = &run.scenario.flows[number];
            new_sender(run, spec, 0)?;
            flows.push(Sender { number, spec, id: None, packets: Packets::default(), note: None });
        }
        Ok(UdpSenders { run, senders, flows })
    }

    fn sender(&self, flow: usize) -> Option<&FlowSender> {
        self.flows[flow].id.and_then(|id| self.senders.sender(id))
    }
}

fn new_sender(run: &Run<'_>, spec: &Flow, connection: u32) -> Result<FlowSender, TestbedFailure> {
    let scenario = run.scenario;
    let sender = node::new_sender(spec, &scenario.packets, scenario.seed, run.clock.now(), connection);
    Ok(sender.map_err(|error| FlowRunError::refused(spec, error))?)
}

impl SenderStack for UdpSenders<'_> {
    fn open(&mut self, flow: usize, connection: u32, application: &Shared) -> Result<bool, TestbedFailure> {
        let this = &mut self.flows[flow];
        let plan = self.run.plan;
        let receivers: Vec<SocketAddr> = plan.receivers[this.number].iter().map(|&to| plan.receiver(to)).collect();
        let source: Box<dyn Source> = match this.spec.workload {
            Workload::Blocks(_) => Box::new(Blocks(Arc::clone(application))),
            _ => Box::new(Pattern),
        };
        let spec = FlowSpec {
            port: flow,
            handshake: this.spec.handshake,
            patience: PATIENCE,
            source,
            receivers: receivers.clone(),
            ..FlowSpec::new(connection, receivers[0], new_sender(self.run, this.spec, connection)?)
        };
        this.id = Some(self.senders.open(spec).map_err(|error| self.run.failed(this.number, error))?);
        Ok(!this.spec.handshake)
    }

    fn write(&mut self, flow: usize, to: PeerId, bytes: u64, last: bool) {
        if let Some(id) = self.flows[flow].id {
            self.senders.write(id, to, bytes, last);
        }
    }

    fn unsent(&self, flow: usize) -> u64 {
        // Without a connection there is nowhere to keep more.
        self.sender(flow).map_or(u64::MAX, FlowSender::unsent)
    }

    fn pause(&mut self, flow: usize) {
        if let Some(id) = self.flows[flow].id {
            self.senders.pause(id);
        }
    }

    fn close(&mut self, flow: usize) -> Result<(), TestbedFailure> {
        let this = &mut self.flows[flow];
        if let Some(sender) = this.id.take().and_then(|id| self.senders.close(id)) {
            this.packets = this.packets.plus(Packets::of(&sender));
            this.note = this.note.take().or_else(|| sender.note());
        }
        Ok(())
    }

    fn turn(&mut self, until: Time, events: &mut Vec<Event>) -> Result<(), TestbedFailure> {
        self.senders.turn(until).map_err(TestbedFailure::sockets("send packets"))?;
        while let Some(event) = self.senders.poll_event() {
            let (SenderEvent::Established { flow: id, at }
            | SenderEvent::Delivered { flow: id, at }
            | SenderEvent::Ended { flow: id, at, .. }) = event;
            let Some(flow) = self.flows.iter().position(|flow| flow.id == Some(id)) else { continue };
            let spec = self.flows[flow].spec;
            let happened = match event {
                SenderEvent::Established { .. } if !spec.handshake => continue,
                SenderEvent::Established { .. } => Happened::Established,
                SenderEvent::Delivered { .. } => Happened::Delivered,
                SenderEvent::Ended { reason: EndReason::Fault(fault), .. } => {
                    return Err(FlowRunError::stuck(spec, at, fault).into());
                }
                SenderEvent::Ended { reason: EndReason::NoAnswer { .. }, .. } => {
                    let why = "its receiver is silent".into();
                    return Err(TestbedFailure::Flow { flow: spec.name.clone(), at, why });
                }
            };
            events.push(Event { flow, at, happened });
        }
        Ok(())
    }

    fn sample(&mut self, flow: usize, series: &mut FlowSeries, _: bool) {
        series.push_sender(self.sender(flow));
    }

    fn packets(&self, flow: usize) -> Option<Packets> {
        Some(self.flows[flow].packets)
    }

    fn note(&self, flow: usize) -> Option<String> {
        self.flows[flow].note.clone()
    }

    fn counted(&self, flow: usize) -> Packets {
        let live = self.sender(flow).map(Packets::of).unwrap_or_default();
        self.flows[flow].packets.plus(live)
    }

    fn round_trip(&self, flow: usize) -> Option<RoundTripSeen> {
        let rtt = self.sender(flow)?.metrics(PeerId(0)).rtt?;
        Some(RoundTripSeen { smoothed: rtt.smoothed, min: rtt.min })
    }

    fn set_bounds(&mut self, flow: usize, bounds: Bounds) {
        if let Some(id) = self.flows[flow].id {
            self.senders.set_bounds(id, bounds);
        }
    }
}

/// Receivers of ours.
pub struct UdpReceivers {
    receivers: Receivers,
    ports: Vec<Port>,
    /// What still comes of a connection that was closed belongs to nobody.
    over: HashSet<u32>,
    completed: VecDeque<(usize, Time)>,
}

#[derive(Default)]
struct Port {
    /// Delivered by flows that are closed.
    closed: u64,
    flows: Vec<FlowKey>,
}

impl UdpReceivers {
    /// Each socket is a receiver's.
    pub fn new(run: &Run<'_>, sockets: Vec<(usize, UdpSocket)>) -> Result<UdpReceivers, TestbedFailure> {
        let config = ReceiverConfig {
            policy: run.scenario.packets.receiver_policy(),
            together: false,
            accept: Accept::All,
            max_flows: MOST_FLOWS,
            patience: None,
        };
        let mut receivers =
            Receivers::new(run.clock, config).map_err(TestbedFailure::sockets("drive UDP receivers"))?;
        let mut ports = Vec::new();
        for (_, socket) in sockets {
            receivers.add_socket(socket).map_err(TestbedFailure::sockets("receive on a UDP socket"))?;
            ports.push(Port::default());
        }
        Ok(UdpReceivers { receivers, ports, over: HashSet::new(), completed: VecDeque::new() })
    }
}

impl ReceiverStack for UdpReceivers {
    fn turn(&mut self, until: Time) -> Result<(), TestbedFailure> {
        self.receivers.turn(until).map_err(TestbedFailure::sockets("receive packets"))?;
        while let Some(event) = self.receivers.poll_event() {
            match event {
                ReceiverEvent::Accepted { flow, .. } if self.over.contains(&flow.label.connection) => {
                    self.receivers.close(flow);
                }
                ReceiverEvent::Accepted { flow, .. } => self.ports[flow.port].flows.push(flow),
                ReceiverEvent::Completed { flow, at, .. } => self.completed.push_back((flow.port, at)),
                ReceiverEvent::Closed { flow, report, .. } | ReceiverEvent::Silent { flow, report, .. } => {
                    self.over.insert(flow.label.connection);
                    let port = &mut self.ports[flow.port];
                    port.flows.retain(|known| *known != flow);
                    port.closed += report.delivered;
                }
                ReceiverEvent::Reached { .. } => {}
            }
        }
        Ok(())
    }

    fn delivered(&self, receiver: usize) -> u64 {
        let Port { closed, flows } = &self.ports[receiver];
        let live = flows.iter().filter_map(|&flow| self.receivers.report(flow)).map(|report| report.delivered);
        closed + live.sum::<u64>()
    }

    fn poll_completed(&mut self) -> Option<(usize, Time)> {
        self.completed.pop_front()
    }
}
