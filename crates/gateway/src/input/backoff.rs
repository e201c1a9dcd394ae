//! How long to wait before something that failed is tried again: twice as long each time, up to a bound.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// What went well for so long begins with the shortest wait again.
const GOOD: Duration = Duration::from_secs(10);

/// Counts failures.
#[derive(Debug)]
pub struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff(FIRST)
    }
}

impl Backoff {
    /// It failed, after it had gone well for `lasted`: how long to wait.
    pub fn on_failure(&mut self, lasted: Duration) -> Duration {
        if lasted >= GOOD {
            self.0 = FIRST;
        }
        let wait = self.0;
        self.0 = (2 * wait).min(LONGEST);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_begin_again_after_good_times() {
        let mut backoff = Backoff::default();
        let waits: Vec<u128> = (0..7).map(|_| backoff.on_failure(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 10_000, 10_000]);
        assert_eq!(backoff.on_failure(GOOD), FIRST);
    }
}
