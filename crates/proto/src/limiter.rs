//! How a relay holds to its limit: counting in windows, a token bucket, or a queue.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

/// The window in which the thesis's relays count. [Raiber 2010] 6.1.2.
pub const WINDOW: Duration = Duration::SECOND;

/// How the limit is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitModel {
    /// Bytes are counted from zero each second, first at `phase`; what exceeds the
    /// limit is refused. Any second holds at most twice the limit.
    Window {
        /// When the first window begins, less than a second after the start.
        phase: Duration,
    },
    /// A token bucket: any span t holds at most `depth` + limit · t.
    Bucket {
        /// The bytes that may pass at once after a pause.
        depth: Bytes,
    },
    /// A drop-tail queue that is served at the limit: packets wait their turn, and are
    /// refused when they would wait longer than `longest`.
    Queue {
        /// The longest wait.
        longest: Duration,
    },
}

/// Whether a packet may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may, after this wait.
    After(Duration),
    /// It may not.
    Refused,
}

/// One relay's limit and what has passed.
#[derive(Clone, Debug)]
pub struct Limiter {
    model: Model,
    limit: Rate,
    /// What the limit lets through in one window.
    per_window: u64,
}

#[derive(Clone, Debug)]
enum Model {
    Window {
        ends: Time,
        used: u64,
    },
    /// `full_at`: when the bucket will be full again if nothing passes.
    Bucket {
        depth: Bytes,
        full_at: Time,
    },
    /// `idle_at`: when the last admitted packet has been served.
    Queue {
        longest: Duration,
        idle_at: Time,
    },
}

impl Limiter {
    /// Holds to `limit` from the beginning of the run.
    pub fn new(model: LimitModel, limit: Rate) -> Limiter {
        let model = match model {
            LimitModel::Window { phase } => Model::Window { ends: Time::ZERO + phase, used: 0 },
            LimitModel::Bucket { depth } => Model::Bucket { depth, full_at: Time::ZERO },
            LimitModel::Queue { longest } => Model::Queue { longest, idle_at: Time::ZERO },
        };
        Limiter { model, limit, per_window: (limit * WINDOW).get() }
    }

    /// The limit in force.
    pub fn limit(&self) -> Rate {
        self.limit
    }

    /// The limit is `limit` from now on; what is owed from before is not forgiven.
    pub fn set_limit(&mut self, now: Time, limit: Rate) {
        let rescale = |until: Time, old: Rate| now + (old * until.since(now)) / limit;
        match &mut self.model {
            Model::Window { .. } => {}
            Model::Bucket { full_at, .. } => *full_at = rescale(*full_at, self.limit),
            Model::Queue { idle_at, .. } => *idle_at = rescale(*idle_at, self.limit),
        }
        self.limit = limit;
        self.per_window = (limit * WINDOW).get();
    }

    /// The time until a queue is empty, or a bucket full: what was admitted beyond the limit.
    #[inline]
    pub fn backlog(&self, now: Time) -> Duration {
        match self.model {
            Model::Queue { idle_at, .. } => idle_at.since(now),
            Model::Bucket { full_at, .. } => full_at.since(now),
            Model::Window { .. } => Duration::ZERO,
        }
    }

    /// The backlog beyond which a packet is refused; zero in windows, whose end no backlog foretells.
    #[inline]
    pub fn longest_wait(&self) -> Duration {
        match self.model {
            Model::Queue { longest, .. } => longest,
            Model::Bucket { depth, .. } => depth / self.limit,
            Model::Window { .. } => Duration::ZERO,
        }
    }

    /// Asks for `size` to pass now, and counts it if it may.
    #[inline(always)]
    pub fn admit(&mut self, now: Time, size: Bytes) -> Admission {
        match &mut self.model {
            Model::Window { ends, used } => {
                if now >= *ends {
                    *ends = end_of_window(now, *ends);
                    *used = 0;
                }
                // R_c + l <= R_l
                if *used + size.get() > self.per_window {
                    return Admission::Refused;
                }
                *used += size.get();
                Admission::After(Duration::ZERO)
            }
            Model::Bucket { depth, full_at } => {
                let refilled = (*full_at).max(now) + size / self.limit;
                if self.limit * refilled.since(now) > *depth {
                    return Admission::Refused;
                }
                *full_at = refilled;
                Admission::After(Duration::ZERO)
            }
            Model::Queue { longest, idle_at } => {
                let wait = idle_at.since(now);
                if wait > *longest {
                    return Admission::Refused;
                }
                *idle_at = (*idle_at).max(now) + size / self.limit;
                Admission::After(idle_at.since(now))
            }
        }
    }
}

/// When the window ends in which `now` lies, if an earlier one ended at `ended`. Out of the way of
/// packets: there are many in a window.
#[cold]
fn end_of_window(now: Time, ended: Time) -> Time {
    let windows = now.since(ended).as_nanos() / WINDOW.as_nanos() + 1;
    ended + WINDOW * windows
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: Rate = Rate::from_bytes_per_sec(10_000);

    /// Departure times and sizes of what passed.
    fn passed(model: LimitModel, arrivals: &[(u64, u64)]) -> Vec<(Time, u64)> {
        let mut limiter = Limiter::new(model, LIMIT);
        let mut now = Time::ZERO;
        let mut out = Vec::new();
        for &(gap_ms, size) in arrivals {
            now += Duration::from_millis(gap_ms);
            if let Admission::After(wait) = limiter.admit(now, Bytes::new(size)) {
                out.push((now + wait, size));
            }
        }
        out
    }

    /// The most bytes in any span of `length` that begins with a departure.
    fn busiest(departures: &[(Time, u64)], length: Duration) -> u64 {
        let sum = |start: Time| {
            departures.iter().filter(|(at, _)| *at >= start && *at < start + length).map(|(_, size)| size).sum()
        };
        departures.iter().map(|&(start, _)| sum(start)).max().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_window_passes_more_than_the_limit(
            phase_ms in 0u64..1000,
            arrivals in proptest::collection::vec((0u64..60, 40u64..1501), 1..400),
        ) {
            let phase = Duration::from_millis(phase_ms);
            let departures = passed(LimitModel::Window { phase }, &arrivals);
            for window in 0..30 {
                let start = Time::ZERO + phase + Duration::SECOND * window;
                let inside = departures.iter().filter(|(at, _)| *at >= start && *at < start + WINDOW);
                prop_assert!(inside.map(|(_, size)| size).sum::<u64>() <= 10_000);
            }
            prop_assert!(busiest(&departures, WINDOW) <= 20_000);
        }

        #[test]
        fn any_span_of_a_bucket_passes_its_depth_and_the_limit(
            arrivals in proptest::collection::vec((0u64..60, 40u64..1501), 1..300),
            span_ms in 1u64..3000,
        ) {
            let departures = passed(LimitModel::Bucket { depth: Bytes::new(3000) }, &arrivals);
            // One byte for rounding.
            prop_assert!(busiest(&departures, Duration::from_millis(span_ms)) <= 3000 + 10 * span_ms + 1);
        }

        #[test]
        fn a_queue_serves_at_the_limit_in_order_and_no_later_than_promised(
            arrivals in proptest::collection::vec((0u64..60, 40u64..1501), 1..300),
            span_ms in 1u64..3000,
        ) {
            let longest = Duration::from_millis(200);
            let departures = passed(LimitModel::Queue { longest }, &arrivals);
            prop_assert!(departures.is_sorted_by_key(|(at, _)| *at));
            // The first packet of a span was being served before it began.
            prop_assert!(busiest(&departures, Duration::from_millis(span_ms)) <= 1500 + 10 * span_ms + 1);
        }
    }

    #[test]
    fn what_fits_passes_and_what_does_not_is_refused() {
        let sizes = [(0, 6000), (0, 4000), (0, 1)];
        let model = LimitModel::Window { phase: Duration::ZERO };
        assert_eq!(passed(model, &sizes).len(), 2);
        assert_eq!(passed(LimitModel::Bucket { depth: Bytes::new(10_000) }, &sizes).len(), 2);
        let queue = passed(LimitModel::Queue { longest: Duration::from_millis(900) }, &sizes);
        assert_eq!(queue, [(Time::from_secs_f64(0.6), 6000), (Time::from_secs_f64(1.0), 4000)]);
    }

    #[test]
    fn a_new_limit_holds_at_once() {
        for model in [
            LimitModel::Window { phase: Duration::ZERO },
            LimitModel::Bucket { depth: Bytes::new(1000) },
            LimitModel::Queue { longest: Duration::from_millis(100) },
        ] {
            let mut limiter = Limiter::new(model, LIMIT);
            let mut passed = [0u64; 2];
            for (half, bytes) in passed.iter_mut().enumerate() {
                for ms in 0..10_000 {
                    let now = Time::from_secs_f64(10.0 * half as f64) + Duration::from_millis(ms);
                    if limiter.admit(now, Bytes::new(100)) != Admission::Refused {
                        *bytes += 100;
                    }
                }
                limiter.set_limit(Time::from_secs_f64(10.0), Rate::from_bytes_per_sec(5_000));
            }
            assert!(
                (98_000..102_500).contains(&passed[0]) && (49_000..52_000).contains(&passed[1]),
                "{model:?} {passed:?}"
            );
        }
    }
}
