//! Any flow controller as the total rate of a session, given feedback of one step at a time.
//!
//! A flow controller reacts to single packets, and so does the rate that it sets; what a relay drops would be seen
//! at the other end at once. Here it hears of a step when the step is over, as if all of its cells had been answered
//! at that instant, and what it then allows holds for the whole next step:
//!
//! ```text
//! rate = min(pacing rate, window / round trip) / cell
//! ```
//!
//! Round trips are smoothed ones (RFC 6298), so that rules which read a queue from single samples see less of it
//! than on a path of their own.

use anabranch_control::delivery_rate::RateSample;
use anabranch_control::flow::registry::{Entry, Setup};
use anabranch_control::flow::{Feedback, FlowController, LossCause, Lost, PeerId, RoundTrip, Sent};
use anabranch_control::registry::ParameterError;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::total_rate::{LEAST_RATE, MOST_RATE, Step, TotalRate, UNKNOWN_ROUND_TRIP, first_rate};

/// Of a cell, as a controller counts it: what is a packet's data on other paths. Only ratios matter.
const CELL: Bytes = Bytes::new(1000);

/// A flow controller and the feedback that it got.
#[derive(Clone, Debug)]
pub struct FlowRate {
    controller: Box<dyn FlowController>,
    first: u32,
    round_trip: Option<Duration>,
    least: Duration,
    delivered: Bytes,
    lost: Bytes,
    now: Time,
    rng: Rng,
}

impl FlowRate {
    /// `entry`'s controller with its own parameters, which begins with `cells_per_s` until the first step is over. What
    /// it draws follows from `seed`.
    ///
    /// # Errors
    ///
    /// What it says of its parameters.
    pub fn new(
        entry: &Entry,
        parameters: &toml::Table,
        cells_per_s: u32,
        seed: u64,
    ) -> Result<FlowRate, ParameterError> {
        let controller = entry.make(&Setup::new(CELL, Time::ZERO), parameters)?;
        Ok(FlowRate {
            controller,
            first: cells_per_s,
            round_trip: None,
            least: Duration::from_nanos(u64::MAX),
            delivered: Bytes::ZERO,
            lost: Bytes::ZERO,
            now: Time::ZERO,
            rng: Rng::stream(seed, "total rate"),
        })
    }

    /// A cell as it left: cells of a step leave one after the other.
    fn sent(&self, step: &Step, number: u64, in_flight: Bytes) -> Sent {
        let began = Time::from_nanos(step.now.as_nanos().saturating_sub(step.elapsed.as_nanos()));
        Sent {
            at: began + step.elapsed * number / step.sent.max(1),
            size: CELL,
            in_flight,
            delivered: self.delivered,
            delivered_at: began,
            first_sent_at: began,
            lost: self.lost,
            app_limited: false,
        }
    }
}

impl TotalRate for FlowRate {
    fn on_answered(&mut self, round_trip: Option<Duration>) {
        self.first = self.first.min(first_rate(round_trip));
    }

    fn cells_per_s(&self) -> u32 {
        let Some(round_trip) = self.round_trip else { return self.first.clamp(LEAST_RATE, MOST_RATE) };
        let limits = self.controller.limits();
        let cell = CELL.get() as f64;
        let by_window = limits.window.get() as f64 / cell / round_trip.as_secs_f64().max(1e-3);
        let by_rate = limits.rate.map_or(f64::INFINITY, |rate| rate.bytes_per_sec() / cell);
        (by_window.min(by_rate) as u32).clamp(LEAST_RATE, MOST_RATE)
    }

    fn on_step(&mut self, step: &Step) {
        let round_trip = step.round_trip.unwrap_or(UNKNOWN_ROUND_TRIP).max(Duration::from_millis(1));
        self.round_trip = Some(round_trip);
        self.least = self.least.min(round_trip);
        // The clock of a session goes on; that of a controller must not stand still.
        self.now = step.now.max(self.now + Duration::from_nanos(1));
        if self.controller.timer().is_some_and(|at| at <= self.now) {
            self.controller.on_timer(self.now, &mut self.rng);
        }
        // Of what left in a step, a round trip's worth was under way at a time.
        let flight = round_trip.as_secs_f64() / step.elapsed.as_secs_f64().max(1e-3);
        let in_flight = CELL * ((step.sent as f64 * flight.min(1.0)) as u64).max(1);
        let lost = step.sent.saturating_sub(step.delivered);
        // Which of them were lost is not reported; they are taken to lie evenly among the others.
        let is_lost = |number: u64| (number + 1) * lost / step.sent.max(1) > number * lost / step.sent.max(1);
        let (mut acked, mut gone) = (Vec::new(), Vec::new());
        for number in 0..step.sent {
            let sent = self.sent(step, number, in_flight);
            self.controller.on_sent(self.now, PeerId(0), &sent, &mut self.rng);
            match is_lost(number) {
                true => gone.push(Lost { sent, cause: LossCause::TimeThreshold }),
                false => acked.push(sent),
            }
        }
        let (prior, acked_bytes) = (self.delivered, CELL * acked.len() as u64);
        self.delivered += acked_bytes;
        self.lost += CELL * gone.len() as u64;
        let rate = (!acked.is_empty()).then_some(RateSample {
            delivered: acked_bytes,
            interval: step.elapsed.max(Duration::from_millis(1)),
            lost: CELL * gone.len() as u64,
            prior_delivered: prior,
            app_limited: false,
        });
        let feedback = Feedback {
            receiver: PeerId(0),
            rtt: RoundTrip {
                latest: step.round_trip,
                smoothed: round_trip,
                variation: Duration::ZERO,
                min: self.least,
            },
            acked: &acked,
            lost: &gone,
            acked_bytes,
            in_flight,
            delivered: self.delivered,
            rate,
            ecn_marked_packets: 0,
            persistent_congestion: step.delivered == 0 && step.sent > 0,
            tcp: None,
            app_limited: !step.is_full(self.cells_per_s()),
        };
        self.controller.on_feedback(self.now, &feedback, &mut self.rng);
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::registry;

    use super::*;

    fn made(name: &str) -> FlowRate {
        let entry = registry::find(name).expect("a registered controller");
        FlowRate::new(entry, &toml::Table::new(), 100, 1).expect("its own parameters")
    }

    /// A path of 50 ms that passes `capacity` cells a second; the rates of this many steps.
    fn over_a_path(mut rate: FlowRate, capacity: f64, steps: usize) -> Vec<u32> {
        let elapsed = Duration::from_millis(200);
        (0..steps)
            .map(|step| {
                let sent = (f64::from(rate.cells_per_s()) * elapsed.as_secs_f64()) as u64;
                let delivered = sent.min((capacity * elapsed.as_secs_f64()) as u64);
                let now = Time::ZERO + elapsed * (step as u64 + 1);
                rate.on_step(&Step { sent, delivered, elapsed, now, round_trip: Some(Duration::from_millis(50)) });
                rate.cells_per_s()
            })
            .collect()
    }

    #[test]
    fn controllers_that_answer_loss_find_what_a_path_carries_and_go_on_from_it() {
        for name in ["reno", "cubic", "westwood", "bic"] {
            let rates = over_a_path(made(name), 4000.0, 600);
            let settled = &rates[300..];
            let mean = settled.iter().map(|rate| f64::from(*rate)).sum::<f64>() / settled.len() as f64;
            assert!((1500.0..6000.0).contains(&mean), "{name}: {mean}");
            assert!(settled.iter().any(|rate| rate != &settled[0]), "{name} stands still");
        }
    }

    #[test]
    fn no_controller_leaves_the_bounds_of_all_rates() {
        for entry in registry::CONTROLLERS.iter().filter(|entry| entry.needs().is_none()) {
            for capacity in [0.0, 30.0, 1e6] {
                let rates = over_a_path(made(entry.name), capacity, 40);
                assert!(rates.iter().all(|rate| (LEAST_RATE..=MOST_RATE).contains(rate)), "{}", entry.name);
            }
        }
    }

    #[test]
    fn until_a_step_is_over_the_first_rate_holds() {
        assert_eq!(made("cubic").cells_per_s(), 100);
    }
}
