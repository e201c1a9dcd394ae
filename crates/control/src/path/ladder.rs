//! A ladder of rates: a step of one packet a second up after a number of ACKs in a
//! row, and down to a share of the rate at a timeout.
//!
//! It serves as an example of a rate learner, and follows no paper.

use serde::Deserialize;

use super::Outcome;
use super::learner::{Evidence, RateLearner};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::units::{Bytes, Rate};

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LadderConfig {
    /// ACKs in a row that are worth a step.
    pub patience: u32,
    /// The share of the rate that a timeout leaves, in (0, 1).
    pub keep: f64,
}

impl Default for LadderConfig {
    fn default() -> LadderConfig {
        LadderConfig { patience: 20, keep: 0.8 }
    }
}

/// One peer's step.
#[derive(Clone, Debug)]
pub struct Ladder {
    packets_per_sec: u32,
    acks: u32,
}

impl RateLearner for Ladder {
    type Config = LadderConfig;
    type Note = u32;

    fn check(config: &LadderConfig) -> Result<(), ParameterError> {
        in_range("patience", f64::from(config.patience), 1.0..=1e6)?;
        in_range("keep", config.keep, 0.01..=0.99)
    }

    fn new(_config: &LadderConfig, _packet: Bytes) -> Ladder {
        Ladder { packets_per_sec: 1, acks: 0 }
    }

    fn rate(&self, _config: &LadderConfig, packet: Bytes) -> Rate {
        Rate::from_bytes_per_sec(u64::from(self.packets_per_sec) * packet.get())
    }

    /// The step at which the packet leaves, so that its timeout is not counted twice.
    fn on_sent(&mut self, _config: &LadderConfig) -> u32 {
        self.packets_per_sec
    }

    fn on_outcome(&mut self, config: &LadderConfig, _packet: Bytes, evidence: Evidence<'_, u32>, _rng: &mut Rng) {
        match evidence.report.outcome {
            Outcome::Acked => {
                self.acks += 1;
                if self.acks >= config.patience {
                    self.packets_per_sec += 1;
                    self.acks = 0;
                }
            }
            // The rate is lower already than when this packet left: an old story.
            Outcome::TimedOut if evidence.note > self.packets_per_sec => {}
            Outcome::TimedOut => {
                self.packets_per_sec = ((f64::from(self.packets_per_sec) * config.keep) as u32).max(1);
                self.acks = 0;
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        0
    }

    fn trace(&self, _config: &LadderConfig, packet: Bytes, record: &mut dyn FnMut(&'static str, f64)) {
        record("rate_bytes_per_s", f64::from(self.packets_per_sec) * packet.get() as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Report};
    use crate::rtt::{PairRtts, RttConfig};

    const PACKET: Bytes = Bytes::new(1500);

    fn after(learner: &mut Ladder, outcome: Outcome, note: u32) -> u32 {
        let rtts = PairRtts::new(&RttConfig::default(), 1);
        let path = [Hop::default()];
        let report = Report::of(outcome, &path, &rtts);
        let evidence = Evidence { report: &report, place: 0, note };
        learner.on_outcome(&LadderConfig::default(), PACKET, evidence, &mut Rng::stream(1, "ladder"));
        learner.packets_per_sec
    }

    #[test]
    fn timeouts_of_one_step_cost_one_fall() {
        let mut learner = Ladder { packets_per_sec: 10, acks: 0 };
        let note = learner.on_sent(&LadderConfig::default());
        assert_eq!(after(&mut learner, Outcome::TimedOut, note), 8);
        assert_eq!(after(&mut learner, Outcome::TimedOut, note), 8);
    }

    #[test]
    fn patience_is_worth_a_step() {
        let mut learner = Ladder::new(&LadderConfig::default(), PACKET);
        let steps: Vec<u32> = (0..20).map(|_| after(&mut learner, Outcome::Acked, 1)).collect();
        assert_eq!((steps[18], steps[19]), (1, 2));
    }
}
