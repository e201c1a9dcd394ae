//! Cubic as Linux reads it, rule by rule, so that each one's share in a difference between
//! the two can be measured. Linux counts windows in whole packets, which RFC 9438 leaves
//! open; the rest is as it was before the RFC.
//!
//! ```text
//! loss      W      = floor(717/1024 W), at least 2 packets                whole-reduction
//!           W_max  = floor(W), or floor((1024 + 717)/2048 W)
//!           what was acknowledged towards the next packet is forgotten    whole-growth
//! ACK       count  = W / (W_cubic(t + RTT) - W), at least 2, at most 100 W
//!           W     += 1 for each `count` packets acknowledged, in whole packets  whole-growth
//!           RTT    the least one, not the smoothed one                    least-rtt
//!           count  is computed anew when W changes or after 1/32 s        interval
//!           count <= 20 before the first loss                             startup
//! Reno      W_est += 1 for each 15/8 W packets acknowledged               w-est
//!           count <= W / (W_est - W) where W_est is above W
//! ```
//!
//! Linux's numbers are its module's documented parameters and what follows from them: beta
//! is 717 of 1024, and `8 (1 + beta) / 3 / (1 - beta)` is 15 in whole eighths.

use serde::{Deserialize, Deserializer};

use super::super::RoundTrip;
use super::super::classic::{Acked, Window};
use super::{Cubic, Epoch, RenoFriendly};
use crate::time::{Duration, Seconds, Time};
use crate::units::{Packets, WindowUnit};

/// Linux's beta.
const BETA: f64 = 717.0 / 1024.0;

/// A packet of growth takes this many packets acknowledged or more: as RFC 9438's bound on
/// the target, half of the window in a round trip.
const LEAST_COUNT: Packets = Packets(2.0);

/// Above the curve the window grows by a packet in this many windows.
const IDLE_WINDOWS: f64 = 100.0;

/// Packets acknowledged for each packet of growth before the first loss, at most.
const STARTUP_COUNT: Packets = Packets(20.0);

/// The growth is computed anew after this, if the window has not changed.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 32);

/// What becomes of packets that were acknowledged towards the next packet of whole growth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remainder {
    /// They are forgotten at a loss; those that are more than the count make one packet at the next ACK, and no more
    /// (Linux).
    #[default]
    Forgotten,
    /// They are kept until they make packets, one for each ACK (ns-3).
    Kept,
}

/// A rule of Linux's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Rule {
    All,
    WholeReduction,
    WholeGrowth,
    WEst,
    LeastRtt,
    Interval,
    Startup,
}

/// The rules that hold; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// A loss leaves whole packets.
    whole_reduction: bool,
    /// The window grows by whole packets.
    pub whole_growth: bool,
    /// Reno's window is estimated in whole packets, and bounds the growth alone.
    w_est: bool,
    /// The curve is followed by the least round trip.
    least_rtt: bool,
    /// The growth is computed 32 times a second.
    interval: bool,
    /// Growth before the first loss.
    startup: bool,
}

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Rules, D::Error> {
        let asked = Vec::<Rule>::deserialize(deserializer)?;
        let has = |rule| asked.iter().any(|asked| [rule, Rule::All].contains(asked));
        Ok(Rules {
            whole_reduction: has(Rule::WholeReduction),
            whole_growth: has(Rule::WholeGrowth),
            w_est: has(Rule::WEst),
            least_rtt: has(Rule::LeastRtt),
            interval: has(Rule::Interval),
            startup: has(Rule::Startup),
        })
    }
}

impl Rules {
    /// Whether the growth is not the RFC's.
    #[inline]
    pub fn change_growth(self) -> bool {
        Rules { whole_reduction: false, ..self } != Rules::default()
    }

    /// What a loss leaves of a window, before its minimum, and what the next curve aims at; `beta` if it is set.
    pub fn reduced(self, window: Packets, w_max: Packets, beta: Option<f64>) -> Option<(Packets, Packets)> {
        self.whole_reduction.then(|| ((window.floor() * beta.unwrap_or(BETA)).floor(), w_max.floor()))
    }

    fn round(self, packets: Packets) -> Packets {
        if self.whole_growth { Packets(libm::trunc(packets.0)) } else { packets }
    }
}

/// What Linux keeps beside the curve.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Packets acknowledged towards the next packet of growth.
    towards: Packets,
    /// Packets acknowledged towards the next packet of `w_est`.
    towards_est: Packets,
    /// Packets acknowledged for a packet of growth.
    count: Packets,
    /// When that was computed, and for which window.
    computed: Option<(Time, Packets)>,
}

impl State {
    /// Forgets what a loss ends.
    pub fn end_epoch(&mut self, remainder: Remainder) {
        let kept = if remainder == Remainder::Kept { self.towards } else { Packets::ZERO };
        *self = State { towards: kept, ..State::default() };
    }

    /// Packets of growth by one ACK of `packets`, where what was counted is kept.
    fn kept(&mut self, packets: Packets) -> Packets {
        self.towards += packets;
        if self.towards < self.count {
            return Packets::ZERO;
        }
        self.towards -= self.count;
        Packets(1.0)
    }

    /// Packets of growth. What was acknowledged while the count was higher makes one, not
    /// several.
    fn whole(&mut self, packets: Packets) -> Packets {
        let first = if self.towards >= self.count { 1.0 } else { 0.0 };
        self.towards = self.towards * (1.0 - first) + packets;
        let more = libm::floor(self.towards / self.count);
        self.towards -= self.count * more;
        Packets(first + more)
    }
}

impl Cubic {
    /// Congestion avoidance after packets were acknowledged.
    pub(super) fn avoid_as_linux(&mut self, window: &mut Window<Packets>, acked: &Acked<'_, Packets>) {
        let (now, packets, rtt) = (acked.now, acked.counted, &acked.feedback.rtt);
        let rules = self.config.linux;
        let mut epoch = self.epoch.unwrap_or_else(|| self.epoch(now, window.size));
        self.linux.towards_est += packets;
        let stands = |(at, size): (Time, Packets)| rules.interval && size == window.size && now.since(at) <= INTERVAL;
        if !self.linux.computed.is_some_and(stands) {
            self.linux.count = self.count(now, window.size, &mut epoch, rtt);
            self.linux.computed = Some((now, window.size));
        }
        let before = window.size;
        window.size += match self.config.remainder {
            _ if !rules.whole_growth => Packets(packets / self.linux.count),
            Remainder::Forgotten => self.linux.whole(packets),
            Remainder::Kept => self.linux.kept(packets),
        };
        if !rules.w_est {
            self.follow_reno(now, window, packets / before, &mut epoch);
        }
        self.epoch = Some(epoch);
    }

    /// Packets acknowledged for each packet of growth of a window of `size`.
    fn count(&mut self, now: Time, size: Packets, epoch: &mut Epoch, rtt: &RoundTrip) -> Packets {
        let rules = self.config.linux;
        let ahead = if rules.least_rtt { rtt.min } else { rtt.smoothed };
        let Seconds(t) = (now.since(epoch.start) + ahead).seconds() - epoch.k;
        let target = epoch.w_max + rules.round(Packets(self.config.c * t * t * t));
        let per_packet = |above: Packets| rules.round(Packets(size / above));
        let mut count = if target > size { per_packet(target - size) } else { size * IDLE_WINDOWS };
        if rules.startup && self.w_max == Packets::ZERO {
            count = count.min(STARTUP_COUNT);
        }
        if rules.w_est {
            let beta = match self.config.beta {
                None if rules.whole_reduction => BETA,
                _ => self.config.beta(),
            };
            let eighths = libm::floor(8.0 * (1.0 + beta) / 3.0 / (1.0 - beta));
            // However much is acknowledged at once: W_est goes on while more than a step is left.
            let step = rules.round(size * eighths / 8.0).max(Packets(1.0));
            let steps = (libm::ceil(self.linux.towards_est / step) - 1.0).max(0.0);
            self.linux.towards_est -= step * steps;
            epoch.w_est += Packets(steps);
            if epoch.w_est > size {
                count = count.min(per_packet(epoch.w_est - size));
            }
        }
        count.max(LEAST_COUNT)
    }

    /// RFC 9438's bound, or RFC 8312's, on a window that may be whole.
    fn follow_reno(&mut self, now: Time, window: &mut Window<Packets>, share: f64, epoch: &mut Epoch) {
        epoch.w_est += epoch.alpha * share;
        if epoch.w_est >= self.w_prior && self.config.reno_friendly == RenoFriendly::Rfc9438 {
            epoch.alpha = Packets(1.0);
        }
        let Seconds(t) = now.since(epoch.start).seconds() - epoch.k;
        let is_slower = Packets(self.config.c * t * t * t) + epoch.w_max < epoch.w_est;
        if self.config.reno_friendly != RenoFriendly::Off && is_slower {
            window.size = window.size.max(self.config.linux.round(epoch.w_est));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use crate::flow::classic::testing::avoiding;
    use crate::flow::classic::{Classic, WindowRule};
    use crate::flow::counting::Counting;
    use crate::flow::testing::{acknowledge, silence};
    use crate::rng::Rng;

    const RTT: Duration = Duration::from_millis(60);

    fn cubic(rules: &str, window: f64) -> Classic<Cubic> {
        let config: Config = toml::from_str(&format!("linux = [{rules}]")).unwrap();
        avoiding(window, Counting::Bytes, Cubic::new(config))
    }

    fn reduce(controller: &mut Classic<Cubic>) {
        let (cubic, window) = controller.parts();
        cubic.reduce(window, &silence());
    }

    /// The window and W_max.
    fn state(controller: &mut Classic<Cubic>) -> (f64, f64) {
        let (cubic, window) = controller.parts();
        (window.size.0, cubic.w_max.0)
    }

    /// The window after each of `packets` single ACKs, 1 ms apart.
    fn windows(cubic: &mut Classic<Cubic>, packets: u64) -> Vec<f64> {
        let mut rng = Rng::stream(1, "controller");
        let each = |at| {
            acknowledge(cubic, Time::from_nanos(1_000_000_000 + at * 1_000_000), RTT, false, &mut rng);
            cubic.size()
        };
        (0..packets).map(each).collect()
    }

    #[test]
    fn a_loss_leaves_whole_packets_and_two_at_least() {
        for (before, after) in [(5.0, 3.0), (6.0, 4.0), (10.0, 7.0), (7.0, 4.0), (3.0, 2.0), (2.0, 2.0)] {
            let mut cubic = cubic("\"whole-reduction\"", before);
            reduce(&mut cubic);
            assert_eq!(state(&mut cubic), (after, before));
        }
        let mut cubic = cubic("\"whole-reduction\"", 10.0);
        reduce(&mut cubic);
        reduce(&mut cubic);
        // 7 is below the last W_max: floor(1741/2048 · 7) = 5.
        assert_eq!(state(&mut cubic), (4.0, 5.0));
    }

    #[test]
    fn a_share_that_is_set_holds_in_whole_packets_too() {
        let config: Config = toml::from_str("linux = [\"whole-reduction\"]\nbeta = 0.8").unwrap();
        let mut cubic = avoiding(10.0, Counting::Bytes, Cubic::new(config));
        reduce(&mut cubic);
        assert_eq!(state(&mut cubic), (8.0, 10.0));
    }

    #[test]
    fn what_was_counted_towards_the_next_packet_is_kept_over_a_loss_and_makes_a_packet_an_ack() {
        let config: Config = toml::from_str("linux = [\"whole-growth\"]\nremainder = \"kept\"").unwrap();
        let mut cubic = avoiding(100.0, Counting::Bytes, Cubic::new(config));
        reduce(&mut cubic);
        windows(&mut cubic, 50);
        let before = cubic.parts().0.linux.towards;
        assert!(before > Packets::ZERO);
        reduce(&mut cubic);
        assert_eq!(cubic.parts().0.linux.towards, before);
        // 90 wait where 40 make a packet: one now, one with the next ACK.
        let mut state = State { towards: Packets(90.0), count: Packets(40.0), ..State::default() };
        let grown = [1.0, 1.0, 1.0].map(|packets| state.kept(Packets(packets)).0);
        assert_eq!((grown, state.towards), ([1.0, 1.0, 0.0], Packets(13.0)));
    }

    #[test]
    fn the_estimate_of_renos_window_grows_by_a_packet_for_15_eighths_of_a_window() {
        let mut cubic = cubic("\"whole-reduction\", \"whole-growth\", \"w-est\"", 12.0);
        reduce(&mut cubic);
        // The curve is flat for longer than this test.
        cubic.parts().0.w_max = Packets::ZERO;
        assert_eq!(cubic.size(), 8.0);
        let grown = windows(&mut cubic, 60);
        let at = |packets: f64| grown.iter().position(|window| *window == packets).unwrap();
        // 15/8 · 8 packets and one more make W_est 9. The 16 that were counted until then are
        // more than a window, and make one packet. Then 15/8 · 9 = 16 more make W_est 10.
        assert_eq!((at(9.0), at(10.0)), (15, 15 + 16));
    }

    #[test]
    fn growth_is_by_whole_packets_and_a_loss_forgets_what_was_counted_towards_the_next() {
        let mut cubic = cubic("\"whole-growth\"", 100.0);
        reduce(&mut cubic);
        assert_eq!(cubic.size(), 70.0);
        let grown = windows(&mut cubic, 50);
        assert!(grown.iter().all(|window| window.fract() == 0.0), "{grown:?}");
        assert!(cubic.parts().0.linux.towards > Packets::ZERO);
        reduce(&mut cubic);
        assert_eq!(cubic.parts().0.linux.towards, Packets::ZERO);
    }

    #[test]
    fn the_growth_stands_for_a_32nd_of_a_second_while_the_window_does() {
        let mut with = cubic("\"interval\"", 1000.0);
        reduce(&mut with);
        let mut rng = Rng::stream(1, "controller");
        let mut counts = Vec::new();
        for at in [0, 31, 32, 63] {
            // What is acknowledged grows the window by a fraction; it is put back.
            acknowledge(&mut with, Time::from_nanos(1_000_000_000 + at * 1_000_000), RTT, false, &mut rng);
            let (cubic, window) = with.parts();
            window.size = Packets(700.0);
            counts.push(cubic.linux.count);
        }
        assert_eq!(counts[0], counts[1]);
        assert!(counts[2] < counts[1] && counts[3] == counts[2], "{counts:?}");
    }

    #[test]
    fn before_the_first_loss_growth_is_a_twentieth_of_what_is_acknowledged_or_more() {
        let grown = |rules| *windows(&mut cubic(rules, 100.0), 100).last().unwrap() - 100.0;
        let (with, without) = (grown("\"startup\""), grown("\"least-rtt\""));
        assert!(without < 2.0 && (with - 5.0).abs() < 0.5, "{with} and {without}");
    }

    #[test]
    fn a_rule_that_linux_has_not_is_refused_with_those_that_it_has() {
        let error = toml::from_str::<Config>("linux = [\"prr\"]").unwrap_err().to_string();
        assert!(error.contains("prr") && error.contains("whole-reduction"), "{error}");
    }
}
