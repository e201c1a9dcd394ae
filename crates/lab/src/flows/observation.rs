//! What an agent sees of a flow: numbers with fixed places.

use anabranch_control::flow::PeerId;
use anabranch_control::time::Time;

use super::node::{FlowSource, Sent};

/// What [`FlowWorld::observe`](super::world::FlowWorld::observe) writes, in its order, with units.
/// "New" is since the flow was observed last. What is not known yet is 0.
pub const OBSERVATION: [(&str, &str); OBSERVATION_LENGTH] = [
    ("active", "1 while the application has something to send or in flight, else 0"),
    ("acked_mbit_s", "new data that was acknowledged, Mbit/s"),
    ("sent_packets_s", "new packets that were sent, packets/s"),
    ("loss_share", "new losses over new packets, 0 to 1; 0 without new packets"),
    ("rtt_ms", "latest round-trip time to the first receiver, ms"),
    ("srtt_ms", "smoothed round-trip time, ms"),
    ("min_rtt_ms", "least round-trip time, ms"),
    ("window_bytes", "what may be in flight, bytes"),
    ("in_flight_bytes", "what is in flight, bytes"),
    ("rate_mbit_s", "pacing rate, Mbit/s; 0 without one"),
];

/// Numbers in an observation.
pub const OBSERVATION_LENGTH: usize = 10;

/// A flow as it was when it was observed last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    at: Time,
    sent: Sent,
}

impl Observed {
    /// Writes the flow's observation at `now`.
    pub fn observe(&mut self, now: Time, source: &FlowSource, into: &mut [f32; OBSERVATION_LENGTH]) {
        let sent = source.sent();
        let seconds = now.since(self.at).as_secs_f64();
        let rate = |new: u64| if seconds > 0.0 { new as f64 / seconds } else { 0.0 };
        let packets = sent.packets - self.sent.packets;
        let lost = sent.lost - self.sent.lost;
        into.fill(0.0);
        into[0] = f32::from(u8::from(source.is_on()));
        into[1] = (rate(sent.acked_bytes - self.sent.acked_bytes) * 8.0 / 1e6) as f32;
        into[2] = rate(packets) as f32;
        into[3] = if packets > 0 { (lost as f64 / packets as f64).min(1.0) as f32 } else { 0.0 };
        if let Some(sender) = source.sender() {
            if let Some(rtt) = sender.metrics(PeerId(0)).rtt {
                into[4] = rtt.latest.map_or(0.0, |latest| latest.as_millis_f64() as f32);
                into[5] = rtt.smoothed.as_millis_f64() as f32;
                into[6] = rtt.min.as_millis_f64() as f32;
            }
            let limits = sender.limits();
            into[7] = limits.window.get() as f32;
            into[8] = sender.in_flight().get() as f32;
            into[9] = limits.rate.map_or(0.0, |rate| (rate.bits_per_sec() as f64 / 1e6) as f32);
        }
        *self = Observed { at: now, sent };
    }
}
