//! When a cell's ACK is late, from what each relay was seen to add.
//!
//! [Raiber 2010] 4.2.1 keeps a mean and a deviation for each pair of peers. Of a thousand relays a sender
//! would keep half a million pairs, most of them never sampled again; here the hop into a relay is
//! kept whatever the hop before, and the last part, from the last relay to the other end and
//! its answer, is one more:
//!
//! ```text
//! l = R / (h + 1)        L <- L + γ (l - L)        V <- V + γ (|l - L| - V)      (4.3, 4.4)
//! T = Σ (L + α V)        over the h relays and what comes after                  (4.6)
//! ```
//!
//! with γ and α as the thesis has them. Until a relay is sampled, it adds what the others do on average,
//! and a second if none is sampled (RFC 6298 2.1).

use std::collections::VecDeque;

use anabranch_control::rtt::RttConfig;
use anabranch_control::time::Duration;

use crate::RelayIndex;

/// What a part without a sample adds to a timeout: RFC 6298 2.1's first timeout.
const UNSAMPLED: Duration = Duration::SECOND;

/// No timeout is shorter. With the 50 ms for which the other end's reports may wait it is Linux's `TCP_RTO_MIN` of 200 ms
/// (RFC 6298 2.4 would have a second): what a busy machine keeps waiting so long is no loss.
const SHORTEST: Duration = Duration::from_millis(150);

/// No timeout is longer: RFC 6298 2.5 allows a maximum of 60 s or more.
const LONGEST: Duration = Duration::from_millis(60_000);

/// This many samples are kept to be looked at.
const RECENT: usize = 256;

/// Mean and deviation in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Estimate {
    mean: f64,
    deviation: f64,
}

impl Estimate {
    fn learn(entry: &mut Option<Estimate>, sample: f64, gain: f64) {
        match entry {
            // RFC 6298 2.2: a first deviation of half the sample.
            None => *entry = Some(Estimate { mean: sample, deviation: sample / 2.0 }),
            Some(Estimate { mean, deviation }) => {
                let error = sample - *mean;
                *deviation += gain * (error.abs() - *deviation);
                *mean += gain * error;
            }
        }
    }
}

/// The estimates of one end. Also of use for a single path: of no relays.
#[derive(Clone, Debug)]
pub struct RelayDelays {
    gain: f64,
    deviations: f64,
    /// By index; as far as relays were sampled.
    relays: Vec<Option<Estimate>>,
    after: Option<Estimate>,
    /// Of all relays together.
    any: Option<Estimate>,
    /// The last samples, oldest first.
    recent: VecDeque<Duration>,
}

impl RelayDelays {
    /// Nothing is known yet.
    pub fn new(config: &RttConfig) -> RelayDelays {
        let RttConfig { gain, deviations, .. } = *config;
        RelayDelays { gain, deviations, relays: Vec::new(), after: None, any: None, recent: VecDeque::new() }
    }

    /// A cell over `path` took `time`, there and back or one way.
    pub fn sample(&mut self, path: &[RelayIndex], time: Duration) {
        let sample = time.as_nanos() as f64 / (path.len() + 1) as f64;
        for relay in path {
            let place = usize::from(relay.0);
            if self.relays.len() <= place {
                self.relays.resize(place + 1, None);
            }
            Estimate::learn(&mut self.relays[place], sample, self.gain);
            Estimate::learn(&mut self.any, sample, self.gain);
        }
        Estimate::learn(&mut self.after, sample, self.gain);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(time);
    }

    /// The last samples, oldest first: [`RECENT`] at most.
    pub fn recent(&self) -> impl Iterator<Item = Duration> {
        self.recent.iter().copied()
    }

    /// After so long the ACK of a cell over `path` is late.
    pub fn timeout(&self, path: &[RelayIndex]) -> Duration {
        let part = |estimate: Option<Estimate>| match estimate {
            None => UNSAMPLED.as_nanos() as f64,
            Some(Estimate { mean, deviation }) => mean + self.deviations * deviation,
        };
        let of = |relay: &RelayIndex| self.relays.get(usize::from(relay.0)).copied().flatten().or(self.any);
        let relays: f64 = path.iter().map(|relay| part(of(relay))).sum();
        Duration::from_nanos((relays + part(self.after)) as u64).min(LONGEST).max(SHORTEST)
    }

    /// In another epoch relays have other indices, which `moved` gives; those that are gone are forgotten.
    pub fn renumber(&mut self, mut moved: impl FnMut(RelayIndex) -> Option<RelayIndex>) {
        for (place, estimate) in core::mem::take(&mut self.relays).into_iter().enumerate() {
            let Some(to) = estimate.and_then(|_| moved(RelayIndex(place as u16))) else { continue };
            let to = usize::from(to.0);
            if self.relays.len() <= to {
                self.relays.resize(to + 1, None);
            }
            self.relays[to] = estimate;
        }
    }
}

impl Default for RelayDelays {
    fn default() -> RelayDelays {
        RelayDelays::new(&RttConfig::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(relays: &[u16]) -> Vec<RelayIndex> {
        relays.iter().map(|&relay| RelayIndex(relay)).collect()
    }

    #[test]
    fn a_path_of_constant_delay_times_out_at_its_round_trip_once_learned() {
        let mut delays = RelayDelays::default();
        assert_eq!(delays.timeout(&path(&[1, 2, 3])), Duration::SECOND * 4);
        for _ in 0..200 {
            delays.sample(&path(&[1, 2, 3]), Duration::from_millis(400));
        }
        let timeout = delays.timeout(&path(&[3, 1, 2])).as_millis_f64();
        assert!((399.0..401.0).contains(&timeout), "{timeout} ms");
    }

    #[test]
    fn what_a_busy_machine_keeps_waiting_for_a_fifth_of_a_second_is_not_late() {
        let mut delays = RelayDelays::default();
        (0..200).for_each(|_| delays.sample(&path(&[1, 2, 3]), Duration::from_millis(1)));
        let timeout = delays.timeout(&path(&[1, 2, 3])) + super::super::receiver::report_wait(None);
        assert_eq!(timeout, Duration::from_millis(200));
    }

    #[test]
    fn the_last_samples_can_be_looked_at_and_no_more_are_kept() {
        let mut delays = RelayDelays::default();
        (0..RECENT as u64 + 2).for_each(|millis| delays.sample(&path(&[1]), Duration::from_millis(millis)));
        let recent: Vec<Duration> = delays.recent().collect();
        assert_eq!((recent.len(), recent[0]), (RECENT, Duration::from_millis(2)));
    }

    #[test]
    fn the_timeout_adds_alpha_deviations_and_a_slow_relay_has_its_own() {
        let mut delays = RelayDelays::new(&RttConfig { gain: 0.5, ..RttConfig::default() });
        delays.sample(&[], Duration::from_millis(100)); // L = 100, V = 50
        assert_eq!(delays.timeout(&[]), Duration::from_millis(300));
        delays.sample(&[], Duration::from_millis(140)); // V = 50 + (40 - 50) / 2 = 45, L = 120
        assert_eq!(delays.timeout(&[]), Duration::from_millis(120 + 4 * 45));
        let mut delays = RelayDelays::default();
        for _ in 0..100 {
            delays.sample(&path(&[1]), Duration::from_millis(20));
            delays.sample(&path(&[2]), Duration::from_millis(400));
        }
        assert!(delays.timeout(&path(&[2])) > delays.timeout(&path(&[1])) + Duration::from_millis(150));
        let (fast, slow) = (delays.timeout(&path(&[1])), delays.timeout(&path(&[2])));
        delays.renumber(|relay| (relay.0 == 2).then_some(RelayIndex(1)));
        assert_eq!((delays.relays.iter().flatten().count(), delays.timeout(&path(&[1]))), (1, slow));
        assert!(fast < slow);
    }
}
