//! How long packets took from the source to their release, counted in classes.

use anabranch_control::time::Duration;

/// The width of a class, up to ten seconds.
const CLASS: Duration = Duration::from_millis(10);
const CLASSES: usize = 1000;

/// This many of them are counted as one.
const TOGETHER: usize = 5;

/// Delays of packets, in classes of ten milliseconds.
#[derive(Clone, Debug)]
pub struct ReleaseDelays(Vec<u64>);

impl Default for ReleaseDelays {
    fn default() -> ReleaseDelays {
        ReleaseDelays(vec![0; CLASSES + 1])
    }
}

impl ReleaseDelays {
    /// Counts a packet that took so long.
    #[inline]
    pub fn note(&mut self, delay: Duration) {
        self.0[((delay.as_nanos() / CLASS.as_nanos()) as usize).min(CLASSES)] += 1;
    }

    /// How many packets took at most this many seconds, and more than those of the class before; in classes of 50 ms.
    pub fn classes(&self) -> Vec<(f64, u64)> {
        let used = self.0.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let classes = (1..).zip(self.0[..used].chunks(TOGETHER));
        let width = CLASS * TOGETHER as u64;
        classes.map(|(class, counts)| ((width * class).as_secs_f64(), counts.iter().sum())).collect()
    }

    /// The delay in seconds that this share of the packets had at most; not a number without a packet.
    pub fn quantile(&self, share: f64) -> f64 {
        let total: u64 = self.0.iter().sum();
        let rank = (total as f64 * share).ceil() as u64;
        let mut below = 0;
        let class = self.0.iter().position(|&count| {
            below += count;
            below >= rank.max(1)
        });
        class.map_or(f64::NAN, |class| (CLASS * (class as u64 + 1)).as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_upper_ends_of_classes_and_of_nothing_there_is_none() {
        let mut delays = ReleaseDelays::default();
        assert!(delays.quantile(0.5).is_nan());
        for millis in 0..100 {
            delays.note(Duration::from_millis(10 * millis + 5));
        }
        assert_eq!((delays.quantile(0.5), delays.quantile(0.95), delays.quantile(1.0)), (0.5, 0.95, 1.0));
        let classes = delays.classes();
        assert_eq!((classes.len(), classes[0], classes[19]), (20, (0.05, 5), (1.0, 5)));
        delays.note(Duration::from_millis(1_000_000));
        assert_eq!(delays.quantile(1.0), 10.01);
    }
}
