//! What lies between the nodes of a file's transfer: delays alone, or a link with a queue before its receiver as well.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::access::{Access, AccessConfig, AccessLinks};
use anabranch_sim::delay::JitterTail;
use anabranch_sim::fabric::{Departure, Event, Fabric, Forwarded, NodeId};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter, LinkConfig};
use anabranch_sim::pairs::{Letter, Pairs, PairsConfig};
use anabranch_sim::varying::Course;

use super::OneFile;

type Message = Letter<Vec<u8>>;

/// The link over which a receiver gets what is sent to it: first come, first served, and what finds its queue full is
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Downlink {
    /// What it carries.
    pub rate: Rate,
    /// What would wait for longer is dropped.
    pub queue: Duration,
}

/// Without a receiver's link the network is one of pairs, which costs less and whose results are older.
#[derive(Clone, Debug)]
pub enum Network {
    Pairs(Box<Pairs<Message>>),
    Access(Box<Access<Message>>),
}

impl Network {
    /// Of `case`, without a node.
    pub fn new(case: &OneFile) -> Network {
        let (delay, jitter, nodes) = (case.delay.clone(), case.jitter, case.relays.len() + 2);
        if case.downlink.is_none() {
            let config = PairsConfig { delay, jitter, jitter_tail: JitterTail::Normal, loss: 0.0 };
            return Network::Pairs(Box::new(Pairs::new(config, nodes, case.seed)));
        }
        let links = AccessLinks { up: link("up", None), down: link("down", None) };
        Network::Access(Box::new(Access::new(AccessConfig { delay, jitter, links }, nodes, case.seed)))
    }

    /// The next node that joins is behind `downlink`, if that was there from the start.
    pub fn put_next_behind(&mut self, downlink: Option<Downlink>) {
        if let (Network::Access(access), Some(_)) = (self, downlink) {
            access.set_next(AccessLinks { up: link("up", None), down: link("down", downlink) });
        }
    }
}

/// One that takes no time, unless it has a rate.
fn link(name: &str, limit: Option<Downlink>) -> LinkConfig {
    LinkConfig {
        name: name.to_owned(),
        rate: limit.map(|limit| Course::constant(limit.rate)),
        delay: Course::constant(Duration::ZERO),
        capacity: limit.map_or(Capacity::Unlimited, |limit| Capacity::Time(limit.queue)),
        discipline: None,
        loss: LossModel::None,
        jitter: Jitter::NONE,
    }
}

/// Does the same with either.
macro_rules! either {
    ($network:expr, $fabric:ident => $does:expr) => {
        match $network {
            Network::Pairs($fabric) => $does,
            Network::Access($fabric) => $does,
        }
    };
}

impl Fabric for Network {
    type Payload = Message;

    fn now(&self) -> Time {
        either!(self, fabric => fabric.now())
    }

    fn send(&mut self, departure: Departure) -> Option<&mut Message> {
        either!(self, fabric => fabric.send(departure))
    }

    fn forward(&mut self, departure: Departure) -> Option<Forwarded<'_, Message>> {
        either!(self, fabric => fabric.forward(departure))
    }

    fn set_timer(&mut self, node: NodeId, at: Time) {
        either!(self, fabric => fabric.set_timer(node, at));
    }

    fn next(&mut self, end: Time) -> Option<Event> {
        either!(self, fabric => fabric.next(end))
    }

    fn arrived(&self) -> &Message {
        either!(self, fabric => fabric.arrived())
    }

    fn arrived_mut(&mut self) -> &mut Message {
        either!(self, fabric => fabric.arrived_mut())
    }

    fn departed(&self) -> Option<Time> {
        either!(self, fabric => fabric.departed())
    }

    fn release(&mut self) {
        either!(self, fabric => fabric.release());
    }

    fn join(&mut self) -> NodeId {
        either!(self, fabric => fabric.join())
    }

    fn reset(&mut self, seed: u64) {
        either!(self, fabric => fabric.reset(seed));
    }
}
