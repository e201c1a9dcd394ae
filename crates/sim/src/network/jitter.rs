//! The random part of a link's delay.
//!
//! Packets that may overtake each other draw a delay each. Packets that may not need another
//! model: if each drew its own and waited for those before it, the delay would be the running
//! maximum of the draws, and grow with the rate of packets. So the delay in order is a function
//! of time, the same for whatever packet leaves then, as it is where queues that are not
//! simulated, or a radio, cause it:
//!
//! ```text
//! d(t) = mean + deviation * (cos(u pi/2) z_k + sin(u pi/2) z_(k+1))     t = (k + u) step, 0 <= u < 1
//! ```
//!
//! The `z` are standard normal, each a function of its number alone. The weights' squares add
//! up to 1, so that d(t) is normal with the mean and deviation at every instant, which it would
//! not be between the draws under linear weights. A packet overtakes none before it while d
//! falls by less than time goes on:
//!
//! ```text
//! |d'(t)| <= deviation / step * pi/2 * sqrt(z_k^2 + z_(k+1)^2)
//! ```
//!
//! The root is Rayleigh distributed. With a step of ten deviations it exceeds 20/pi once in
//! 6e8 steps: then, where a delay is cut off at none, and where the link's own delay falls at
//! once, a packet waits for those before it.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};

/// Deviations between two draws of a delay in order, in the same unit.
const STEP: u64 = 10;

/// The random part of a link's delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Standard deviation of a normal distribution around the delay, cut off at none.
    pub deviation: Duration,
    /// Whether packets may overtake each other: each then draws its delay by itself. Else the
    /// delay changes with time, slowly enough to keep them in order.
    pub reorders: bool,
}

impl Jitter {
    /// None.
    pub const NONE: Jitter = Jitter { deviation: Duration::ZERO, reorders: false };
}

/// The jitter of a link at work.
#[derive(Clone, Debug)]
pub struct JitterCourse {
    jitter: Jitter,
    seed: u64,
    stream: String,
    /// Draws for packets that may overtake each other.
    rng: Rng,
    /// The present step and the draws at its two ends.
    step: Option<u64>,
    ends: [f64; 2],
}

impl JitterCourse {
    /// Draws from streams of the link called `name`.
    pub fn new(jitter: Jitter, seed: u64, name: &str) -> JitterCourse {
        let stream = format!("jitter/{name}");
        let rng = Rng::stream(seed, &stream);
        JitterCourse { jitter, seed, stream, rng, step: None, ends: [0.0; 2] }
    }

    /// As new, with draws of `seed`.
    pub fn reset(&mut self, seed: u64) {
        self.seed = seed;
        if self.jitter.deviation > Duration::ZERO {
            self.rng = Rng::stream(seed, &self.stream);
            self.step = None;
        }
    }

    /// Whether packets may overtake each other.
    pub fn reorders(&self) -> bool {
        self.jitter.reorders
    }

    /// What the delay of a packet that leaves at `at` becomes if its mean is `mean`.
    #[inline]
    pub fn delay(&mut self, at: Time, mean: Duration) -> Duration {
        let deviation = self.jitter.deviation;
        if deviation == Duration::ZERO {
            return mean;
        }
        let factor = if self.jitter.reorders { self.rng.normal() } else { self.in_order(at) };
        Duration::from_nanos((mean.as_nanos() as f64 + deviation.as_nanos() as f64 * factor).max(0.0) as u64)
    }

    fn in_order(&mut self, at: Time) -> f64 {
        let length = self.jitter.deviation.as_nanos().saturating_mul(STEP);
        let (step, into) = (at.as_nanos() / length, at.as_nanos() % length);
        if self.step != Some(step) {
            self.ends = [self.draw(step), self.draw(step + 1)];
            self.step = Some(step);
        }
        let angle = into as f64 / length as f64 * core::f64::consts::FRAC_PI_2;
        libm::cos(angle) * self.ends[0] + libm::sin(angle) * self.ends[1]
    }

    fn draw(&self, number: u64) -> f64 {
        Rng::indexed(self.seed, &self.stream, number).normal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVIATION: Duration = Duration::from_millis(5);
    const MEAN: Duration = Duration::from_millis(20);

    fn in_order() -> JitterCourse {
        JitterCourse::new(Jitter { deviation: DEVIATION, reorders: false }, 1, "a")
    }

    #[test]
    fn a_delay_in_order_depends_on_the_instant_alone() {
        let at = |millis: u64| Time::ZERO + Duration::from_millis(millis);
        let mut all = in_order();
        let each: Vec<Duration> = (0..5000).map(|millis| all.delay(at(millis), MEAN)).collect();
        for millis in [4999, 0, 137, 50, 49] {
            assert_eq!(in_order().delay(at(millis), MEAN), each[millis as usize]);
        }
        assert_ne!(JitterCourse::new(all.jitter, 2, "a").delay(at(1), MEAN), each[1]);
        assert_ne!(JitterCourse::new(all.jitter, 1, "b").delay(at(1), MEAN), each[1]);
    }

    #[test]
    fn a_delay_in_order_is_normal_between_its_draws_too_and_falls_no_faster_than_time_goes_on() {
        const STEPS: u64 = 20_000;
        let length = DEVIATION.as_nanos() * STEP;
        let mut course = in_order();
        for place in [0, 1, 3, 5, 8] {
            let delays: Vec<f64> = (0..STEPS)
                .map(|step| {
                    let at = Time::from_nanos(step * length + place * length / 10);
                    course.delay(at, Duration::SECOND).as_millis_f64() - 1000.0
                })
                .collect();
            let mean = delays.iter().sum::<f64>() / STEPS as f64;
            let deviation = (delays.iter().map(|delay| delay * delay).sum::<f64>() / STEPS as f64).sqrt();
            assert!(mean.abs() < 0.15 && (deviation - 5.0).abs() < 0.1, "at {place}: {mean} and {deviation}");
            let beyond = delays.iter().filter(|delay| delay.abs() > 2.0 * 5.0).count() as f64 / STEPS as f64;
            assert!((beyond - 0.0455).abs() < 0.006, "at {place}: {beyond} beyond two deviations");
        }
        let mut last = Time::ZERO;
        for micros in 0..2_000_000 {
            let at = Time::from_nanos(micros * 100_000);
            let arrival = at + course.delay(at, Duration::SECOND);
            assert!(arrival >= last, "a packet of {at} overtakes");
            last = arrival;
        }
    }
}
