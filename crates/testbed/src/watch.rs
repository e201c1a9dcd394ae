//! What passes the emulator: delays, packets that carry data, queues.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::emulator::{Delivery, Entry, ModelPacket, Observer, Payload, Source};
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::cross::CrossSource;
use anabranch_lab::flows::measured::Delays;
use anabranch_lab::flows::steerable::LinkState;
use anabranch_proto::flow::wire::{self, Body};
use anabranch_scenario::flows::Stack;
use anabranch_sim::network::{LinkId, Network, RouteId};

/// Bytes of cross traffic that have arrived, as the emulator's thread counts them.
pub type CrossBytes = Arc<AtomicU64>;

/// Between two looks at the queues where no series is taken.
const LOOK: Duration = Duration::from_millis(100);

/// A longer IP packet of QUIC's carries data, most likely: an ACK with its ranges is shorter,
/// the last packet of a stream may be too.
const LONGEST_QUIC_ACK: usize = 128;

/// TCP's flag of a connection's first packet (RFC 9293, 3.1), which takes a sequence number.
const SYN: u8 = 0x02;

/// How often the queues are looked at.
pub fn interval(scenario: &FlowScenario) -> Duration {
    scenario.sample_every.unwrap_or(LOOK)
}

/// What the emulator's thread leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Watched(Arc<Mutex<Sights>>);

impl Watched {
    /// All that was seen, once the emulator has stopped.
    pub fn take(&self) -> Sights {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What was seen.
#[derive(Debug, Default)]
pub struct Sights {
    /// One for each flow.
    pub flows: Vec<FlowSight>,
    /// Mean one-way delay of each flow's packets in each row, in ms; NaN without a packet.
    pub one_way_ms: Vec<Vec<f64>>,
    /// How long a packet would have waited for each link, in ms, at each row.
    pub backlog_ms: Vec<Vec<f64>>,
    /// Bytes that each link had transmitted at each look at it, from time zero on.
    pub transmitted: Vec<Vec<u64>>,
}

impl Sights {
    /// Bytes that each link has transmitted from `from` to `until`, of links that were looked at every `interval`:
    /// the emulator goes on for a while after a run's end.
    pub fn transmitted_within(&self, interval: Duration, from: Time, until: Time) -> Vec<u64> {
        let at = |looks: &Vec<u64>, time: Time| {
            let last = (time.as_nanos() / interval.as_nanos().max(1)).min(looks.len().saturating_sub(1) as u64);
            looks.get(last as usize).copied().unwrap_or(0)
        };
        self.transmitted.iter().map(|looks| at(looks, until) - at(looks, from.min(until))).collect()
    }
}

/// One flow's packets with data.
#[derive(Clone, Debug, Default)]
pub struct FlowSight {
    /// From entering the emulator to leaving it.
    pub one_way: Delays,
    /// Packets that entered.
    pub sent: u64,
    /// Of TCP's, those whose data had been sent before: what it declared lost.
    pub sent_again: u64,
}

/// What has passed so far, counted while the run goes on: what the devices of its hosts and routers would tell.
#[derive(Debug)]
pub struct Counted {
    /// On the wire, of each flow's packets there, as they enter the emulator.
    entered: Vec<AtomicU64>,
    /// The same as they leave it.
    delivered: Vec<AtomicU64>,
    /// The link that is divided: nanoseconds that a packet would wait for it, packets that it has transmitted, and
    /// packets that it has dropped.
    link: [AtomicU64; 3],
}

impl Counted {
    /// Of this many flows.
    pub fn new(flows: usize) -> Counted {
        let zeros = || (0..flows).map(|_| AtomicU64::new(0)).collect();
        Counted { entered: zeros(), delivered: zeros(), link: Default::default() }
    }

    /// Bytes of a flow's that its host has sent.
    pub fn sent(&self, flow: usize) -> u64 {
        self.entered[flow].load(Ordering::Relaxed)
    }

    /// Bytes of a flow's that have passed its links.
    pub fn passed(&self, flow: usize) -> u64 {
        self.delivered[flow].load(Ordering::Relaxed)
    }

    /// The link that is divided is so now.
    pub fn set_link(&self, now: LinkState) {
        let values = [now.waits.as_nanos(), now.transmitted, now.dropped];
        self.link.iter().zip(values).for_each(|(kept, value)| kept.store(value, Ordering::Relaxed));
    }

    /// The link that is divided, as it was looked at last.
    pub fn link(&self) -> LinkState {
        let [waits, transmitted, dropped] = self.link.each_ref().map(|count| count.load(Ordering::Relaxed));
        LinkState { waits: Duration::from_nanos(waits), transmitted, dropped }
    }
}

/// How often the link that is divided is looked at: what is decided by is no older.
pub const LINK_LOOK: Duration = Duration::from_millis(1);

/// The link that the scenario's policy divides, if it has one.
pub fn divided(scenario: &FlowScenario) -> Option<LinkId> {
    let steering = scenario.steering.as_ref().filter(|steering| steering.policy.is_some())?;
    Some(LinkId(steering.link as u32))
}

/// Looks on.
pub struct Watcher {
    counted: Arc<Counted>,
    sights: Sights,
    watched: Watched,
    /// The flow whose data takes each route; none where ACKs do.
    flows: Vec<Option<usize>>,
    /// The end of what TCP has sent, by flow and the sender's port.
    sent_to: HashMap<(usize, u16), u32>,
    /// Sum and number of the delays since the last row.
    since: Vec<(Duration, u32)>,
    delays_from: Time,
    /// The run's end: flows hear of it a little later, and what they send meanwhile is not seen.
    end: Time,
    rows: bool,
    /// Whether each flow is QUIC's.
    quic: Vec<bool>,
    /// The link that somebody divides who wants to know of its queue.
    divided: Option<LinkId>,
}

impl Watcher {
    /// Of the routes of `receivers`, there and back for each of a flow.
    pub fn new(
        scenario: &FlowScenario,
        receivers: &[Vec<usize>],
        divided: Option<LinkId>,
        watched: Watched,
        counted: Arc<Counted>,
    ) -> Watcher {
        let flows = receivers.len();
        let of = |(flow, numbers): (usize, &Vec<usize>)| numbers.iter().flat_map(move |_| [Some(flow), None]).collect();
        let routes: Vec<Vec<Option<usize>>> = receivers.iter().enumerate().map(of).collect();
        Watcher {
            counted,
            sights: Sights {
                flows: vec![FlowSight::default(); flows],
                one_way_ms: vec![Vec::new(); flows],
                backlog_ms: vec![Vec::new(); scenario.links.len()],
                transmitted: vec![Vec::new(); scenario.links.len()],
            },
            watched,
            flows: routes.concat(),
            sent_to: HashMap::new(),
            since: vec![(Duration::ZERO, 0); flows],
            delays_from: scenario.delays_from,
            end: Time::ZERO + scenario.length,
            rows: scenario.sample_every.is_some(),
            quic: scenario.flows.iter().map(|flow| flow.stack == Stack::Quic).collect(),
            divided,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        *self.watched.0.lock().unwrap_or_else(PoisonError::into_inner) = std::mem::take(&mut self.sights);
    }
}

/// What an IP packet is to whoever counts data.
enum Carried {
    /// Data over UDP.
    Udp,
    /// Data of TCP: the sender's port, and where it begins and ends.
    Tcp { port: u16, begin: u32, end: u32 },
    /// No data yet: a connection of TCP's begins at the sender's port, its data after `begin`.
    Syn { port: u16, begin: u32 },
}

impl Carried {
    fn is_data(&self) -> bool {
        !matches!(self, Carried::Syn { .. })
    }
}

/// What an IP packet carries; none if that is neither data nor a beginning. Which of QUIC's carry data is
/// encrypted: those that are longer than ACKs.
fn carried(packet: &[u8], quic: bool) -> Option<Carried> {
    if quic {
        return (packet.len() > LONGEST_QUIC_ACK).then_some(Carried::Udp);
    }
    let header = usize::from(packet.first()? & 0x0f) * 4;
    let transport = packet.get(header..)?;
    let word = |at: usize| Some(u32::from_be_bytes(transport.get(at..at + 4)?.try_into().ok()?));
    match packet.get(9)? {
        17 => matches!(wire::decode(transport.get(8..)?), Ok((_, Body::Data(..)))).then_some(Carried::Udp),
        6 => {
            let length = transport.len().checked_sub(usize::from(transport.get(12)? >> 4) * 4)?;
            let begin = word(4)?;
            let port = (word(0)? >> 16) as u16;
            if transport.get(13)? & SYN != 0 {
                return Some(Carried::Syn { port, begin: begin.wrapping_add(1) });
            }
            (length > 0).then_some(Carried::Tcp { port, begin, end: begin.wrapping_add(length as u32) })
        }
        _ => None,
    }
}

impl Observer for Watcher {
    fn entered(&mut self, entry: &Entry<'_>) {
        let Some(flow) = self.flows[entry.route] else { return };
        self.counted.entered[flow].fetch_add(u64::from(entry.size), Ordering::Relaxed);
        if entry.at >= self.end {
            return;
        }
        let Some(carried) = carried(entry.packet, self.quic[flow]) else { return };
        let sight = &mut self.sights.flows[flow];
        sight.sent += u64::from(carried.is_data());
        match carried {
            Carried::Udp => {}
            // The kernel gives ports again: what an earlier connection has sent from there says nothing of this one.
            Carried::Syn { port, begin } => {
                self.sent_to.insert((flow, port), begin);
            }
            Carried::Tcp { port, begin, end } => {
                let sent_to = self.sent_to.entry((flow, port)).or_insert(begin);
                // Sequence numbers wrap (RFC 9293, 3.4): before is less than half a circle behind.
                if (begin.wrapping_sub(*sent_to) as i32) < 0 {
                    sight.sent_again += 1;
                }
                if (end.wrapping_sub(*sent_to) as i32) > 0 {
                    *sent_to = end;
                }
            }
        }
    }

    fn delivered(&mut self, delivery: &Delivery<'_>) {
        let Some(flow) = self.flows[delivery.route] else { return };
        self.counted.delivered[flow].fetch_add(u64::from(delivery.size), Ordering::Relaxed);
        let carries_data = carried(delivery.packet, self.quic[flow]).is_some_and(|carried| carried.is_data());
        if !carries_data || delivery.written_at >= self.end {
            return;
        }
        let delay = delivery.written_at.since(delivery.entered_at);
        if delivery.written_at >= self.delays_from {
            self.sights.flows[flow].one_way.record(delay);
        }
        let (sum, count) = &mut self.since[flow];
        (*sum, *count) = (*sum + delay, *count + 1);
    }

    fn sampled(&mut self, now: Time, network: &mut Network<Payload>) {
        for (link, looks) in (0..).zip(&mut self.sights.transmitted) {
            looks.push(network.transmitted(LinkId(link)).get());
        }
        if !self.rows || now == Time::ZERO {
            return;
        }
        for (link, column) in (0..).zip(&mut self.sights.backlog_ms) {
            column.push(network.backlog(LinkId(link)).as_millis_f64());
        }
        for (column, (sum, count)) in self.sights.one_way_ms.iter_mut().zip(&mut self.since) {
            column.push(sum.as_millis_f64() / f64::from(*count));
            (*sum, *count) = (Duration::ZERO, 0);
        }
    }

    fn looked(&mut self, _: Time, network: &mut Network<Payload>) {
        let Some(link) = self.divided else { return };
        let count = network.count(link);
        let waits = network.backlog(link);
        self.counted.set_link(LinkState { waits, transmitted: count.packets, dropped: count.dropped });
    }
}

/// The scenario's cross traffic, which exists in the model only.
pub struct CrossSources(Vec<Cross>);

struct Cross {
    source: CrossSource,
    route: RouteId,
    arrived_bytes: CrossBytes,
}

impl CrossSources {
    /// With a route for each source's path.
    pub fn new(
        scenario: &FlowScenario,
        mut route: impl FnMut(&[usize]) -> RouteId,
        arrived_bytes: &CrossBytes,
    ) -> CrossSources {
        let source = |spec: &anabranch_scenario::flows::CrossTraffic| Cross {
            // In the model no node takes it.
            source: CrossSource::new(spec, 0, scenario.packets.ecn, scenario.seed),
            route: route(&spec.path),
            arrived_bytes: Arc::clone(arrived_bytes),
        };
        CrossSources(scenario.cross_traffic.iter().map(source).collect())
    }

    /// As the emulator takes them.
    pub fn into_sources(self) -> Vec<Box<dyn Source>> {
        self.0.into_iter().map(|cross| Box::new(cross) as Box<dyn Source>).collect()
    }
}

impl Source for Cross {
    fn next_at(&self) -> Time {
        self.source.due()
    }

    fn take(&mut self) -> ModelPacket {
        self.source.next(self.source.due());
        let CrossSource { size, ecn_capable, .. } = self.source;
        ModelPacket { route: self.route, size, ecn_capable }
    }

    fn arrived(&mut self) {
        self.arrived_bytes.fetch_add(u64::from(self.source.size), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_scenario::file::parse_flows;

    use super::*;

    /// A packet of TCP's from port 1000.
    fn tcp(sequence: u32, flags: u8, data: usize) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6];
        packet.resize(20, 0);
        packet.extend(1000_u16.to_be_bytes());
        packet.extend(5001_u16.to_be_bytes());
        packet.extend(sequence.to_be_bytes());
        packet.extend([0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        packet.resize(40 + data, 0);
        packet
    }

    #[test]
    fn a_port_that_is_used_again_has_sent_nothing_before() {
        let text = "[run]\nseconds = 1\n[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 5\n[[flow]]\n\
                    controller = \"kernel:reno\"";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let mut watcher = Watcher::new(&scenario, &[vec![0]], None, Watched::default(), Arc::new(Counted::new(1)));
        const ACK: u8 = 0x10;
        // The second connection's numbers are before the first one's, and its second packet is sent again.
        for (sequence, flags, data) in [
            (5000, SYN, 0),
            (5001, ACK, 1000),
            (6001, ACK, 1000),
            (100, SYN, 0),
            (101, ACK, 1000),
            (1101, ACK, 1000),
            (1101, ACK, 1000),
        ] {
            let packet = tcp(sequence, flags, data);
            watcher.entered(&Entry { route: 0, at: Time::ZERO, size: packet.len() as u32, packet: &packet });
        }
        let FlowSight { sent, sent_again, .. } = watcher.sights.flows[0];
        assert_eq!((sent, sent_again), (5, 1));
    }

    #[test]
    fn what_a_link_transmits_after_the_end_or_before_goodput_counts_is_not_counted() {
        let interval = Duration::from_millis(100);
        // A link that is never idle: 100 bytes between two looks, for half a second longer than the run.
        let sights = Sights { transmitted: vec![(0..=25).map(|look| look * 100).collect()], ..Sights::default() };
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        assert_eq!(sights.transmitted_within(interval, at(500), at(2000)), [1500]);
        // Between two looks it is the earlier one that is known.
        assert_eq!(sights.transmitted_within(interval, at(550), at(2050)), [1500]);
        // A run that was interrupted before, and one that ended before anybody looked.
        assert_eq!(sights.transmitted_within(interval, at(500), at(300)), [0]);
        let unseen = Sights { transmitted: vec![Vec::new()], ..Sights::default() };
        assert_eq!(unseen.transmitted_within(interval, at(0), at(2000)), [0]);
    }
}
