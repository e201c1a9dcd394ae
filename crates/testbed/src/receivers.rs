//! Our flows' receivers, on one thread.

use std::collections::HashSet;
use std::net::UdpSocket;

use anabranch_control::time::Time;
use anabranch_net::flow::{Accept, FlowKey, ReceiverConfig, ReceiverEvent, Receivers};

use super::failure::TestbedFailure;
use super::{Run, Tick, Ticks};

/// Flows at a time at most: more than there are addresses.
const MOST_FLOWS: usize = 1 << 17;

/// What a receiver got.
#[derive(Clone, Debug, Default)]
pub struct Arrived {
    /// Its number among all.
    pub number: usize,
    /// Data delivered for the first time.
    pub delivered: u64,
    /// The same when goodput began to count.
    pub before: u64,
    /// The same at each row.
    pub rows: Vec<u64>,
}

/// What all receivers of ours got.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// The receivers.
    pub receivers: Vec<Arrived>,
    /// Streams that arrived whole: the connection's number, and when.
    pub completed: Vec<(u32, Time)>,
}

/// What is live of a receiver.
#[derive(Default)]
struct Live {
    arrived: Arrived,
    /// Delivered by flows that are closed.
    closed: u64,
    flows: Vec<FlowKey>,
}

impl Live {
    fn delivered(&self, receivers: &Receivers) -> u64 {
        let live = self.flows.iter().filter_map(|&flow| receivers.report(flow)).map(|report| report.delivered);
        self.closed + live.sum::<u64>()
    }
}

/// Receives until the run is over.
pub fn run(run: &Run<'_>, sockets: Vec<(usize, UdpSocket)>) -> Result<Arrivals, TestbedFailure> {
    let config = ReceiverConfig {
        policy: run.scenario.packets.receiver_policy(),
        together: false,
        accept: Accept::All,
        max_flows: MOST_FLOWS,
        patience: None,
    };
    let mut receivers = Receivers::new(run.clock, config).map_err(TestbedFailure::sockets("drive UDP receivers"))?;
    let mut live = Vec::new();
    for (number, socket) in sockets {
        receivers.add_socket(socket).map_err(TestbedFailure::sockets("receive on a UDP socket"))?;
        live.push(Live { arrived: Arrived { number, ..Arrived::default() }, ..Live::default() });
    }
    let mut completed = Vec::new();
    // What still comes of a connection that was closed belongs to nobody.
    let mut over = HashSet::new();
    let mut ticks = Ticks::new(run.scenario);
    loop {
        let now = receivers.now();
        while let Some(tick) = ticks.pop(now) {
            for live in &mut live {
                let delivered = live.delivered(&receivers);
                match tick {
                    Tick::Row => live.arrived.rows.push(delivered),
                    Tick::Goodput => live.arrived.before = delivered,
                    Tick::Steering => {}
                }
            }
        }
        if !run.goes_on(now) {
            break;
        }
        receivers.turn(run.until(now, ticks.next())).map_err(TestbedFailure::sockets("receive packets"))?;
        while let Some(event) = receivers.poll_event() {
            match event {
                ReceiverEvent::Accepted { flow, .. } if over.contains(&flow.label.connection) => {
                    receivers.close(flow);
                }
                ReceiverEvent::Accepted { flow, .. } => live[flow.port].flows.push(flow),
                ReceiverEvent::Completed { flow, at, .. } => completed.push((flow.label.connection, at)),
                ReceiverEvent::Closed { flow, report, .. } | ReceiverEvent::Silent { flow, report, .. } => {
                    over.insert(flow.label.connection);
                    let live = &mut live[flow.port];
                    live.flows.retain(|known| *known != flow);
                    live.closed += report.delivered;
                }
                ReceiverEvent::Reached { .. } => {}
            }
        }
    }
    let arrived = live.into_iter().map(|live| Arrived { delivered: live.delivered(&receivers), ..live.arrived });
    Ok(Arrivals { receivers: arrived.collect(), completed })
}
