//! A scenario's coordinator beside real packets: it knows the link's rate and what cross
//! traffic has arrived from the emulator, and senders ask it for their bounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::coordinator::Coordinator;
use anabranch_lab::flows::scenario::Stack;

use super::plan::quic_packet;

/// What the emulator's thread tells of the links.
#[derive(Debug, Default)]
pub struct LinkSight {
    /// Bytes of cross traffic that have arrived.
    pub cross_bytes: AtomicU64,
    /// The rate of the link that is divided, in bits a second; 0 while it has none.
    pub rate: AtomicU64,
}

/// The coordinator at work.
#[derive(Debug)]
pub struct Steered<'a> {
    scenario: &'a FlowScenario,
    coordinator: Mutex<Coordinator>,
    sight: Arc<LinkSight>,
    /// Whether each flow's application is on.
    on: Vec<AtomicBool>,
}

impl<'a> Steered<'a> {
    /// That of `scenario`, if it has one.
    pub fn new(scenario: &'a FlowScenario, sight: Arc<LinkSight>) -> Option<Steered<'a>> {
        let steering = scenario.steering.as_ref()?;
        let on = scenario.flows.iter().map(|_| AtomicBool::new(false)).collect();
        Some(Steered { scenario, coordinator: Mutex::new(Coordinator::new(steering)), sight, on })
    }

    /// A flow's application goes on or off.
    pub fn note(&self, flow: usize, is_on: bool) {
        self.on[flow].store(is_on, Ordering::Relaxed);
    }

    /// The bounds of `flow` at `now`, under a least round trip of `min_rtt`; none for a flow
    /// that is not steered, or while the link has no rate. A decision that is due is made
    /// first, whoever asks.
    pub fn bounds(&self, now: Time, flow: usize, min_rtt: Option<Duration>) -> Option<Bounds> {
        let mut coordinator = self.coordinator.lock().unwrap_or_else(PoisonError::into_inner);
        if coordinator.due() <= now {
            coordinator.observe(now, self.sight.cross_bytes.load(Ordering::Relaxed));
        }
        let rate = self.sight.rate.load(Ordering::Relaxed);
        let min_rtt = min_rtt.filter(|_| self.scenario.flows[flow].steered && rate > 0)?;
        let flows = self.scenario.flows.iter().zip(&self.on);
        let active = flows.filter(|(flow, on)| flow.steered && on.load(Ordering::Relaxed)).count();
        Some(coordinator.bounds(Rate::from_bits_per_sec(rate), active, self.share(flow), min_rtt))
    }

    /// The share of a full packet on the link that the flow's window counts.
    fn share(&self, flow: usize) -> f64 {
        let packets = &self.scenario.packets;
        let counted = match self.scenario.flows[flow].stack {
            // QUIC counts its packets with their headers.
            Stack::Quic => u64::from(quic_packet(packets)),
            Stack::Ours | Stack::Kernel(_) => packets.data.get(),
        };
        counted as f64 / (packets.data + packets.header).get() as f64
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::units::Bytes;
    use anabranch_lab::scenario_file::parse_flows;

    use super::*;

    #[test]
    fn active_flows_share_what_cross_traffic_leaves_and_others_are_left_alone() {
        let text = "[run]\nseconds = 1\n[packets]\ndata_bytes = 1448\nheader_bytes = 52\n[dumbbell]\npairs = 3\n\
                    rate = \"150 Mbit/s\"\ndelay_ms = 5\n[[flow]]\ncontroller = \"c3-cubic\"\nsteered = true\n\
                    [[flow]]\ncontroller = \"quic:c3-cubic\"\nsteered = true\n[[flow]]\ncontroller = \"reno\"\n\
                    [steering]\nlink = \"bottleneck\"\nevery_ms = 100";
        let scenario = parse_flows(text, "f.toml", &[]).unwrap();
        let sight = Arc::new(LinkSight::default());
        let steered = Steered::new(&scenario, Arc::clone(&sight)).unwrap();
        let rtt = Some(Duration::from_millis(10));
        let window = |at_ms, flow| {
            let now = Time::ZERO + Duration::from_millis(at_ms);
            steered.bounds(now, flow, rtt).map(|bounds| bounds.fixed.unwrap())
        };
        assert_eq!(window(0, 0), None, "the link's rate is not known");
        sight.rate.store(150_000_000, Ordering::Relaxed);
        (0..3).for_each(|flow| steered.note(flow, flow != 1));
        // 18.75 kB a millisecond, of which 1448 in 1500 are data.
        assert_eq!(window(0, 0), Some(Bytes::new(181_000)));
        assert_eq!(window(0, 1), Some(Bytes::new(184_000)));
        assert_eq!(window(0, 2), None);
        steered.note(1, true);
        sight.cross_bytes.store(937_500, Ordering::Relaxed);
        assert_eq!(window(50, 0), Some(Bytes::new(90_500)), "what came since is not looked at yet");
        assert_eq!(window(100, 0), Some(Bytes::new(45_250)), "75 Mbit/s were taken");
        assert_eq!(steered.bounds(Time::ZERO, 0, None), None, "without a round trip there is no window");
    }
}
