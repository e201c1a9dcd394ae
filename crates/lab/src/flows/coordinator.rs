//! A coordinator with a global view that steers many senders ([C3]), without learning.
//!
//! At equal spans it divides what a link has left beside cross traffic among the flows
//! that are active, and bounds each one's window: `window = rate per flow * RTT_min`. What
//! cross traffic takes is what was measured over the span before, since monitoring looks back, or a forecast ([`Forecast`]).
//! Bounds are a lease, as long as that of a coordinator of hosts that decides as often ([`hold`]): a flow that hears no
//! more of its coordinator goes on alone.

use anabranch_control::flow::Bounds;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::budget::hold;
use anabranch_proto::coordination::forecast::{Forecast, LEAST_SHARE};
use anabranch_scenario::flows::Steering;
use anabranch_sim::network::LinkId;

/// The coordinator at work.
#[derive(Clone, Debug)]
pub struct Coordinator {
    steering: Steering,
    due: Time,
    /// When it looked last.
    looked: Time,
    /// Bytes of cross traffic that had arrived then.
    cross_before: u64,
    forecast: Forecast,
    /// What it is taken to have until the next decision.
    cross_rate: Rate,
}

impl Coordinator {
    /// Decides for the first time at the beginning.
    pub fn new(steering: &Steering) -> Coordinator {
        let (due, looked) = (Time::ZERO, Time::ZERO);
        let forecast = Forecast::new(steering.expected);
        Coordinator { steering: steering.clone(), due, looked, cross_before: 0, forecast, cross_rate: Rate::ZERO }
    }

    /// When it decides next.
    pub fn due(&self) -> Time {
        self.due
    }

    /// The link that it watches.
    pub fn link(&self) -> LinkId {
        LinkId(self.steering.link as u32)
    }

    /// Looks at `now`, which is not before its next decision is due, at the cross traffic that has arrived in all over the
    /// link of `capacity`, `cross_bytes`.
    pub fn observe(&mut self, now: Time, cross_bytes: u64, capacity: Rate) {
        let new = Bytes::new(cross_bytes - self.cross_before);
        let span = now.since(self.looked);
        self.cross_rate = if span > Duration::ZERO { new / span } else { Rate::ZERO };
        if span > Duration::ZERO {
            let least = LEAST_SHARE * capacity.bits_per_sec() as f64;
            self.forecast.pass(span.as_secs_f64(), self.cross_rate.bits_per_sec() as f64, least);
        }
        if let Some(expected) = self.forecast.by_period(0.0, self.steering.every.as_secs_f64()) {
            self.cross_rate = Rate::from_bits_per_sec(expected as u64);
        }
        (self.looked, self.cross_before) = (now, cross_bytes);
        while self.due <= now {
            self.due += self.steering.every;
        }
    }

    /// The bounds of one of `flows` flows over the link of `capacity`, of whose bytes the
    /// share `data_share` is data, under a least round trip of `min_rtt`.
    pub fn bounds(&self, capacity: Rate, flows: usize, data_share: f64, min_rtt: Duration) -> Bounds {
        let left = capacity.bits_per_sec().saturating_sub(self.cross_rate.bits_per_sec()) as f64 * data_share;
        let rate = Rate::from_bits_per_sec((left / flows.max(1) as f64) as u64);
        // Not nothing, which admits a packet at a time: a flow without a share must still learn
        // when that ends.
        let window = (rate * min_rtt).max(Bytes::new(1));
        Bounds { expires: Some(self.looked + hold(self.steering.every)), ..self.steering.actuator.bounds(window) }
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::Actuator;
    use anabranch_proto::coordination::forecast::Expected;

    use super::*;

    fn rule(every: Duration, actuator: Actuator, expected: Expected) -> Steering {
        Steering { link: 0, every, actuator, expected, policy: None }
    }

    #[test]
    fn by_the_last_period_room_is_made_before_cross_traffic_comes_and_given_back_before_it_has_gone() {
        let every = Duration::from_millis(100);
        let mut coordinator = Coordinator::new(&rule(every, Actuator::Maximum, Expected::LastPeriod));
        let capacity = Rate::from_bits_per_sec(100_000_000);
        // There for three spans of ten, and then half of one.
        let mut arrived = 0;
        let mut windows = Vec::new();
        for span in 0..30_u64 {
            coordinator.observe(Time::ZERO + every * span, arrived, capacity);
            windows.push(coordinator.bounds(capacity, 1, 1.0, every).maximum.unwrap().get() / 1000);
            arrived += [875_000, 875_000, 875_000, 437_500, 0, 0, 0, 0, 0, 0][(span % 10) as usize];
        }
        assert_eq!(windows[20..], [375, 375, 375, 812, 1250, 1250, 1250, 1250, 1250, 1250]);
    }

    /// As a coordinator of hosts has it, to whom what is always there is none that comes and goes.
    #[test]
    fn beside_a_little_that_stays_the_closer_expects_what_comes_and_goes() {
        let every = Duration::from_millis(100);
        let capacity = Rate::from_bits_per_sec(100_000_000);
        let mut coordinator = Coordinator::new(&rule(every, Actuator::Maximum, Expected::Closer));
        let mut arrived = 0;
        for span in 0..400_u64 {
            coordinator.observe(Time::ZERO + every * span, arrived, capacity);
            // A twentieth always, and 0.6 of the link for a second of three.
            let bytes = if span % 30 < 10 { 812_500 } else { 62_500 };
            let room = coordinator.bounds(capacity, 1, 1.0, every).maximum.unwrap().get();
            if span >= 90 {
                assert!(room.abs_diff(1_250_000 - bytes) < 25_000, "{room} at {span}");
            }
            arrived += bytes;
        }
    }

    #[test]
    fn what_is_left_is_divided_and_becomes_a_window_over_the_round_trip() {
        let (every, actuator) = (Duration::from_millis(100), Actuator::Maximum);
        let mut coordinator = Coordinator::new(&rule(every, actuator, Expected::LastSpan));
        let capacity = Rate::from_bits_per_sec(100_000_000);
        let rtt = Duration::from_millis(40);
        let window = |coordinator: &Coordinator, flows| coordinator.bounds(capacity, flows, 1.0, rtt).maximum.unwrap();
        assert_eq!(window(&coordinator, 1), Bytes::new(500_000));
        assert_eq!(window(&coordinator, 2), Bytes::new(250_000));
        // 70 Mbit/s for a tenth of a second.
        coordinator.observe(Time::ZERO, 0, capacity);
        assert_eq!(coordinator.due(), Time::ZERO + every);
        coordinator.observe(Time::ZERO + every, 875_000, capacity);
        assert_eq!(window(&coordinator, 1), Bytes::new(150_000));
        coordinator.observe(Time::ZERO + every * 2, 875_000, capacity);
        assert_eq!(window(&coordinator, 1), Bytes::new(500_000));
        assert_eq!(coordinator.due(), Time::ZERO + every * 3);
    }

    #[test]
    fn a_look_that_comes_late_counts_over_the_time_that_passed() {
        let (every, actuator) = (Duration::from_millis(100), Actuator::Fixed);
        let mut coordinator = Coordinator::new(&rule(every, actuator, Expected::LastSpan));
        let capacity = Rate::from_bits_per_sec(100_000_000);
        coordinator.observe(Time::ZERO + every * 2 + every / 2, 250_000, capacity);
        let bounds = coordinator.bounds(capacity, 1, 1.0, every);
        let window = bounds.fixed;
        assert_eq!(window, Some(Bytes::new(1_150_000)), "8 of 100 Mbit/s are taken");
        assert_eq!(coordinator.due(), Time::ZERO + every * 3);
        let ends = Time::ZERO + every * 2 + every / 2 + Duration::from_nanos(262_500_000);
        assert_eq!(bounds.expires, Some(ends), "counted from the look");
    }
}
