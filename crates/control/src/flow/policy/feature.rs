//! The features that one sender can know of its path, by their names, and the intervals of which a policy sees them.
//!
//! The first three, with ten intervals of them, are Aurora's (ICML 2019, section 4.1), cut where its authors' code cuts
//! latencies, and at ten where what it tells apart no longer matters.

use super::interval::Seen;
use crate::units::{Bytes, Octets};

/// Of less than a bit no share is taken.
const BIT: Octets = Octets(1.0 / 8.0);

/// The most intervals that an observation holds.
pub const MOST_HISTORY: usize = 64;

/// Intervals of an observation of Aurora's.
pub const AURORA_HISTORY: usize = 10;

/// One number of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FlowFeature {
    /// What left over what was acknowledged.
    SendRatio,
    /// The latency over the least one.
    LatencyRatio,
    /// How fast the latency rises.
    LatencyGradient,
    /// What was lost.
    Loss,
    /// What was acknowledged over what might have been sent.
    Throughput,
    /// The sender's own rate.
    Rate,
}

impl FlowFeature {
    /// All.
    pub const ALL: [FlowFeature; 6] = [
        FlowFeature::SendRatio,
        FlowFeature::LatencyRatio,
        FlowFeature::LatencyGradient,
        FlowFeature::Loss,
        FlowFeature::Throughput,
        FlowFeature::Rate,
    ];

    /// Aurora's.
    pub const AURORA: [FlowFeature; 3] =
        [FlowFeature::SendRatio, FlowFeature::LatencyRatio, FlowFeature::LatencyGradient];

    /// Its name in options and files.
    pub fn name(self) -> &'static str {
        match self {
            FlowFeature::SendRatio => "send_ratio",
            FlowFeature::LatencyRatio => "latency_ratio",
            FlowFeature::LatencyGradient => "latency_gradient",
            FlowFeature::Loss => "loss",
            FlowFeature::Throughput => "throughput",
            FlowFeature::Rate => "rate",
        }
    }

    /// That of the name.
    pub fn named(name: &str) -> Option<FlowFeature> {
        FlowFeature::ALL.into_iter().find(|feature| feature.name() == name)
    }

    /// What it measures, in which unit.
    pub fn unit(self) -> &'static str {
        match self {
            FlowFeature::SendRatio => "data that left over data that was acknowledged; 1 if nothing did either",
            FlowFeature::LatencyRatio => "the mean round trip over the least mean of any interval",
            FlowFeature::LatencyGradient => "the slope of the round trips over their packets' times of leaving",
            FlowFeature::Loss => "data that was lost over all whose fate was learned",
            FlowFeature::Throughput => "data that was acknowledged over what the rate would have let leave",
            FlowFeature::Rate => "the decadic logarithm of the rate in Mbit/s",
        }
    }

    /// The least and the highest value: what lies beyond is cut off.
    pub fn range(self) -> (f32, f32) {
        match self {
            FlowFeature::SendRatio => (0.0, 10.0),
            FlowFeature::LatencyRatio => (1.0, 10.0),
            FlowFeature::LatencyGradient => (-1.0, 10.0),
            FlowFeature::Loss => (0.0, 1.0),
            // What was held up before an interval may be acknowledged in it.
            FlowFeature::Throughput => (0.0, 2.0),
            FlowFeature::Rate => (-4.0, 6.0),
        }
    }

    /// Its value.
    pub fn value(self, seen: &Seen) -> f32 {
        let bytes = |bytes: Bytes| bytes.get() as f64;
        let value = match self {
            FlowFeature::SendRatio => match (bytes(seen.sent), bytes(seen.acked)) {
                (0.0, 0.0) => 1.0,
                // Nothing comes back: as much as there is.
                (sent, acked) => sent / acked,
            },
            FlowFeature::LatencyRatio => match (seen.latency, seen.least_latency) {
                (Some(latency), Some(least)) if least.0 > 0.0 => latency / least,
                // Nothing is known yet, or the path takes no time and has no queue.
                _ => 1.0,
            },
            FlowFeature::LatencyGradient => seen.gradient,
            FlowFeature::Loss => bytes(seen.lost) / (bytes(seen.lost) + bytes(seen.acked)).max(1.0),
            FlowFeature::Throughput => Octets::from(seen.acked) / (seen.rate * seen.span.seconds()).max(BIT),
            FlowFeature::Rate => libm::log10((seen.rate.bits_per_sec() / 1e6).max(1e-9)),
        };
        let (low, high) = self.range();
        (value as f32).clamp(low, high)
    }
}

/// The newest intervals, as a policy sees them: the newest first, each with its features in their order.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    features: Vec<FlowFeature>,
    numbers: Vec<f32>,
}

impl History {
    /// `intervals` of them, in which nothing was sent.
    pub fn new(features: &[FlowFeature], intervals: usize) -> History {
        let mut history = History { features: features.to_vec(), numbers: vec![0.0; features.len() * intervals] };
        history.clear();
        history
    }

    /// As at the beginning.
    pub fn clear(&mut self) {
        for interval in self.numbers.chunks_exact_mut(self.features.len()) {
            for (number, feature) in interval.iter_mut().zip(&self.features) {
                *number = feature.value(&Seen::default());
            }
        }
    }

    /// An interval has ended; the oldest is forgotten.
    pub fn push(&mut self, seen: &Seen) {
        let features = self.features.len();
        self.numbers.rotate_right(features);
        for (number, feature) in self.numbers.iter_mut().zip(&self.features) {
            *number = feature.value(seen);
        }
    }

    /// What a policy sees.
    pub fn observation(&self) -> &[f32] {
        &self.numbers
    }

    /// Its features, which repeat interval by interval.
    pub fn features(&self) -> &[FlowFeature] {
        &self.features
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Duration, Seconds};
    use crate::units::{Bytes, OctetRate};

    fn seen() -> Seen {
        Seen {
            span: Duration::from_millis(100),
            sent: Bytes::new(30_000),
            acked: Bytes::new(20_000),
            lost: Bytes::new(5_000),
            latency: Some(Seconds(0.06)),
            least_latency: Some(Seconds(0.04)),
            gradient: 0.25,
            rate: OctetRate(500_000.0),
            app_limited: false,
        }
    }

    #[test]
    fn each_feature_is_what_it_is_by_hand_and_is_found_by_its_name() {
        let by_hand = [1.5, 1.5, 0.25, 0.2, 0.4, 0.60206];
        for (feature, by_hand) in FlowFeature::ALL.into_iter().zip(by_hand) {
            let value = feature.value(&seen());
            assert!((value - by_hand).abs() < 1e-6, "{feature:?}: {value}");
            assert_eq!(FlowFeature::named(feature.name()), Some(feature));
            let (low, high) = feature.range();
            assert!(low < high && !feature.unit().is_empty());
        }
        assert_eq!(FlowFeature::named("queue"), None, "no sender knows it");
    }

    #[test]
    fn a_path_from_which_nothing_comes_back_is_distinguished_from_one_to_which_nothing_went() {
        let silent = Seen { sent: Bytes::ZERO, acked: Bytes::ZERO, ..seen() };
        assert_eq!(FlowFeature::SendRatio.value(&silent), 1.0);
        let dark = Seen { acked: Bytes::ZERO, ..seen() };
        assert_eq!(FlowFeature::SendRatio.value(&dark), 10.0);
        let nothing = Seen::default();
        for feature in FlowFeature::ALL {
            let value = feature.value(&nothing);
            assert!((feature.range().0..=feature.range().1).contains(&value), "{feature:?} is {value}");
        }
        assert_eq!(FlowFeature::AURORA.map(|feature| feature.value(&nothing)), [1.0, 1.0, 0.0]);
    }

    #[test]
    fn a_history_has_the_newest_interval_first_and_forgets_the_oldest() {
        let mut history = History::new(&FlowFeature::AURORA, 2);
        assert_eq!(history.observation(), [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        history.push(&seen());
        assert_eq!(history.observation(), [1.5, 1.5, 0.25, 1.0, 1.0, 0.0]);
        history.push(&Seen { gradient: -0.5, ..seen() });
        assert_eq!(history.observation(), [1.5, 1.5, -0.5, 1.5, 1.5, 0.25]);
        history.clear();
        assert_eq!(history, History::new(&FlowFeature::AURORA, 2));
    }
}
