//! Remy: a table of rules made in advance, by search over simulated networks, says what
//! each ACK does to the window and how far apart packets leave. The table is cut into boxes
//! of three or four signals; the box in which the signals lie is the rule that applies. The
//! controller only looks up: it learns nothing while it runs.
//!
//! ```text
//! send_interval  = 7/8 send_interval + 1/8 (sent_i - sent_(i-1))            packet by packet
//! ack_interval   = 7/8 ack_interval  + 1/8 (acked_i - acked_(i-1))
//! slow_interval  = 255/256 slow_interval + 1/256 (acked_i - acked_(i-1))
//! rtt_ratio      = rtt / least rtt
//! W = clamp(int(multiple W + increment), 0, 10^6)  packets, from W = 0       at each ACK
//! gap between two packets >= intersend
//! ```
//!
//! Winstein and Balakrishnan, TCP ex Machina, SIGCOMM 2013, 4.1 to 4.3; the slow interval is
//! of Sivaraman et al., SIGCOMM 2014. Signals begin at 0, and a flow's first packet only
//! begins the intervals: the ratio is 0 until the second.
//!
//! Departures. One packet may always leave to an empty network, where a table says 0. What
//! no rule holds changes nothing. Losses change nothing, as in 4.1 of the paper; after
//! persistent congestion the flow begins anew, of which the paper says nothing. An
//! application that sends less than the window lets it fall, not grow.

use std::sync::Arc;

use super::setup::{Factory, factory};
use super::{Feedback, FlowController, Limits};
use crate::registry::ParameterError;
use crate::rng::Rng;
use crate::time::{Duration, Millis, Time};
use crate::units::{Bytes, Packets, Rate};

/// What `remy` cannot do without.
pub const NEEDS: &str = "rules: the table that it runs";

/// Signals that a rule may look at, in this order: the interval of sending and of ACKs in
/// ms, the round-trip time over the least, and the slow interval of ACKs in ms.
pub const SIGNALS: usize = 4;

/// Weight of a new interval.
const WEIGHT: f64 = 1.0 / 8.0;

/// Weight of a new interval in the slow mean.
const SLOW_WEIGHT: f64 = 1.0 / 256.0;

/// The largest window.
const MAXIMUM_WINDOW: Packets = Packets(1e6);

/// The most rules in a table; trained tables have some hundreds.
const MAXIMUM_RULES: usize = 65_536;

/// Values of the signals.
type Signals = [f64; SIGNALS];

/// What to do while the signals lie in a box.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rule {
    /// The least signals in the box.
    from: Signals,
    /// The least beyond it.
    to: Signals,
    multiple: f64,
    increment: Packets,
    intersend: Millis,
}

impl Rule {
    #[inline]
    fn holds(&self, signals: &Signals) -> bool {
        (0..SIGNALS).all(|i| self.from[i] <= signals[i] && signals[i] < self.to[i])
    }
}

/// The controller.
#[derive(Clone, Debug)]
struct Remy {
    packet: Bytes,
    /// Clones share the table.
    rules: Arc<[Rule]>,
    /// Where the rule was found last: signals move little from ACK to ACK.
    last: usize,
    signals: Signals,
    min_rtt: Millis,
    /// When the newest packet left and was acknowledged.
    newest: Option<(Time, Time)>,
    window: Packets,
    intersend: Millis,
}

/// Makes `remy` from its one parameter `rules`: a list of tables with `from` and `to` (three
/// or four signals, the fourth without bounds if it is left out), `multiple`, `increment`
/// and `intersend_ms`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let rules = rules(parameters)?;
    Ok(factory(move |setup| Remy::new(setup.packet, Arc::clone(&rules))))
}

/// Reads the rules. By reference and by hand: a table has hundreds.
fn rules(parameters: &toml::Table) -> Result<Arc<[Rule]>, ParameterError> {
    if let Some(key) = parameters.keys().find(|key| *key != "rules") {
        return Err(ParameterError(format!("unknown field `{key}`, expected `rules`")));
    }
    let list = parameters.get("rules").ok_or_else(|| ParameterError(format!("missing {NEEDS}")))?;
    let list = list.as_array().ok_or_else(|| ParameterError("rules must be a list of tables".to_owned()))?;
    if list.is_empty() || list.len() > MAXIMUM_RULES {
        return Err(ParameterError(format!("{} rules, expected 1 to {MAXIMUM_RULES}", list.len())));
    }
    let rules = list
        .iter()
        .enumerate()
        .map(|(i, value)| rule(value).map_err(|ParameterError(error)| ParameterError(format!("rules[{i}]: {error}"))));
    let rules = rules.collect::<Result<Arc<[Rule]>, ParameterError>>()?;
    match rules.iter().any(|rule| rule.holds(&[0.0; SIGNALS])) {
        true => Ok(rules),
        false => Err(ParameterError("no rule holds the beginning, where all signals are 0".to_owned())),
    }
}

fn rule(value: &toml::Value) -> Result<Rule, ParameterError> {
    const KEYS: [&str; 5] = ["from", "to", "multiple", "increment", "intersend_ms"];
    let table = value.as_table().ok_or_else(|| ParameterError("expected a table".to_owned()))?;
    if let Some(key) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(ParameterError(format!("unknown field `{key}`, expected one of {}", KEYS.join(", "))));
    }
    let get = |key: &str| table.get(key).ok_or_else(|| ParameterError(format!("missing field `{key}`")));
    let rule = Rule {
        from: signals("from", get("from")?, 0.0)?,
        to: signals("to", get("to")?, f64::INFINITY)?,
        multiple: number("multiple", get("multiple")?, 1e6)?,
        increment: Packets(number("increment", get("increment")?, 1e6)?),
        intersend: Millis(number("intersend_ms", get("intersend_ms")?, 1e6)?),
    };
    if rule.multiple < 0.0 || rule.intersend < Millis::ZERO {
        return Err(ParameterError("multiple and intersend_ms must not be negative".to_owned()));
    }
    match (0..SIGNALS).find(|&i| rule.from[i] >= rule.to[i]) {
        Some(i) => Err(ParameterError(format!("from {} is not below to {}", rule.from[i], rule.to[i]))),
        None => Ok(rule),
    }
}

/// A finite number that is at most `limit` from 0.
fn number(key: &str, value: &toml::Value, limit: f64) -> Result<f64, ParameterError> {
    let number = value.as_float().or_else(|| value.as_integer().map(|integer| integer as f64));
    match number {
        Some(number) if number.abs() <= limit => Ok(number),
        _ => Err(ParameterError(format!("{key} = {value} is not a number between -{limit} and {limit}"))),
    }
}

/// Three or four signals.
fn signals(key: &str, value: &toml::Value, fourth: f64) -> Result<Signals, ParameterError> {
    let wrong = || ParameterError(format!("{key} must be a list of {} or {SIGNALS} numbers", SIGNALS - 1));
    let list = value.as_array().filter(|list| [SIGNALS - 1, SIGNALS].contains(&list.len())).ok_or_else(wrong)?;
    let mut signals = [fourth; SIGNALS];
    for (signal, value) in signals.iter_mut().zip(list) {
        *signal = number(key, value, f64::MAX)?;
    }
    Ok(signals)
}

impl Remy {
    fn new(packet: Bytes, rules: Arc<[Rule]>) -> Remy {
        let (signals, min_rtt, intersend) = ([0.0; SIGNALS], Millis::INFINITY, Millis::ZERO);
        let mut remy = Remy { packet, rules, last: 0, signals, min_rtt, newest: None, window: Packets(0.0), intersend };
        remy.apply();
        remy
    }

    /// A packet that left at `sent` was acknowledged at `now`.
    #[inline]
    fn observe(&mut self, sent: Time, now: Time) {
        let rtt = now.since(sent).millis();
        self.min_rtt = self.min_rtt.min(rtt);
        if let Some((last_sent, last_acked)) = self.newest {
            let (Millis(acked), Millis(sent)) = (now.since(last_acked).millis(), sent.since(last_sent).millis());
            let [send_interval, ack_interval, rtt_ratio, slow_interval] = &mut self.signals;
            // send_interval = 7/8 send_interval + 1/8 (sent_i - sent_(i-1))
            *send_interval += WEIGHT * (sent - *send_interval);
            // ack_interval = 7/8 ack_interval + 1/8 (acked_i - acked_(i-1))
            *ack_interval += WEIGHT * (acked - *ack_interval);
            *slow_interval += SLOW_WEIGHT * (acked - *slow_interval);
            // A path that takes no time has no queue either.
            *rtt_ratio = if self.min_rtt > Millis::ZERO { rtt / self.min_rtt } else { 1.0 };
        }
        self.newest = Some((sent, now));
    }

    /// The rule for the signals changes window and gap.
    #[inline]
    fn apply(&mut self) {
        let holds = |rule: &Rule| rule.holds(&self.signals);
        if !self.rules.get(self.last).is_some_and(holds) {
            let Some(place) = self.rules.iter().position(holds) else { return };
            self.last = place;
        }
        let rule = &self.rules[self.last];
        // W = clamp(int(multiple W + increment), 0, 10^6)
        let Packets(window) = self.window * rule.multiple + rule.increment;
        self.window = Packets(window.trunc()).clamp(Packets(0.0), MAXIMUM_WINDOW);
        self.intersend = rule.intersend;
    }

    /// Forgets all but the rules.
    fn restart(&mut self) {
        *self = Remy::new(self.packet, Arc::clone(&self.rules));
    }
}

impl FlowController for Remy {
    #[inline]
    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        if feedback.persistent_congestion {
            return self.restart();
        }
        if feedback.acked.is_empty() {
            return;
        }
        for packet in feedback.acked {
            self.observe(packet.at, now);
        }
        let before = self.window;
        self.apply();
        if feedback.app_limited {
            self.window = self.window.min(before);
        }
    }

    #[inline]
    fn limits(&self) -> Limits {
        let window = self.window.max(Packets(1.0)).in_bytes(self.packet.into()).whole();
        if self.intersend <= Millis::ZERO {
            return Limits::window(window);
        }
        let rate = self.packet / Duration::from(self.intersend);
        Limits { window, rate: Some(rate.max(Rate::LOWEST)), burst: Bytes::ZERO }
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let Limits { window, rate, .. } = self.limits();
        record("window", window.get() as f64);
        record("rate", rate.map_or(0.0, |rate| rate.bits_per_sec() as f64));
        let [send_interval, ack_interval, rtt_ratio, slow_interval] = self.signals;
        record("send_interval_ms", send_interval);
        record("ack_interval_ms", ack_interval);
        record("rtt_ratio", rtt_ratio);
        record("slow_ack_interval_ms", slow_interval);
        record("rule", self.last as f64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flow::testing::{PACKET, Path, drive};
    use crate::flow::{PeerId, RoundTrip, Sent};
    use crate::rng::Rng;

    /// Grows by a packet at each ACK while the round trip is below 1.5 times the least, and
    /// halves above.
    const TABLE: &str = "rules = [
        { from = [0, 0, 0], to = [1e5, 1e5, 1.5], multiple = 1, increment = 1, intersend_ms = 0.5 },
        { from = [0, 0, 1.5], to = [1e5, 1e5, 1e5], multiple = 0.5, increment = 0, intersend_ms = 4 },
    ]";

    const PATH: Path =
        Path { rate: Rate::from_bytes_per_sec(1_000_000), rtt: Duration::from_millis(100), buffer: 1000, loss: 0.0 };

    fn remy(table: &str) -> Remy {
        Remy::new(PACKET, rules(&table.parse().unwrap()).unwrap())
    }

    fn error(table: &str) -> String {
        rules(&table.parse().unwrap()).unwrap_err().0
    }

    fn ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn acknowledge(remy: &mut Remy, now: Time, sent: &[Time], app_limited: bool) {
        let acked: Vec<Sent> = sent.iter().map(|&at| Sent { at, size: PACKET, ..Sent::default() }).collect();
        let none = Duration::ZERO;
        let feedback = Feedback {
            receiver: PeerId(0),
            rtt: RoundTrip { latest: None, smoothed: none, variation: none, min: none },
            acked: &acked,
            lost: &[],
            acked_bytes: PACKET * acked.len() as u64,
            in_flight: Bytes::ZERO,
            delivered: Bytes::ZERO,
            rate: None,
            ecn_marked_packets: 0,
            persistent_congestion: false,
            tcp: None,
            app_limited,
        };
        remy.on_feedback(now, &feedback, &mut Rng::stream(1, "remy"));
    }

    #[test]
    fn the_first_window_is_the_increment_of_the_rule_at_0() {
        let remy = remy(TABLE);
        assert_eq!(remy.limits().window, PACKET);
        assert_eq!(remy.limits().rate, Some(PACKET / Duration::from_nanos(500_000)));
    }

    #[test]
    fn signals_follow_their_equations() {
        let mut remy = remy(TABLE);
        acknowledge(&mut remy, ms(100), &[ms(0)], false);
        assert_eq!(remy.signals, [0.0; 4], "the first packet only begins the intervals");
        acknowledge(&mut remy, ms(116), &[ms(8)], false);
        assert_eq!(remy.signals, [8.0 / 8.0, 16.0 / 8.0, 1.08, 16.0 / 256.0]);
        acknowledge(&mut remy, ms(132), &[ms(24)], false);
        let ack_interval = 7.0 / 8.0 * 2.0 + 16.0 / 8.0;
        assert_eq!(remy.signals[..2], [7.0 / 8.0 + 2.0, ack_interval]);
        // Two packets in one ACK: the second came no time after the first.
        acknowledge(&mut remy, ms(132), &[ms(24), ms(24)], false);
        assert_eq!(remy.signals[1], ack_interval * 49.0 / 64.0);
    }

    #[test]
    fn the_box_decides_and_its_upper_bound_belongs_to_the_next() {
        let mut remy = remy(TABLE);
        acknowledge(&mut remy, ms(100), &[ms(0)], false);
        assert_eq!(remy.window, Packets(2.0));
        acknowledge(&mut remy, ms(200), &[ms(51)], false);
        assert_eq!(remy.window, Packets(3.0), "a ratio of 1.49");
        acknowledge(&mut remy, ms(250), &[ms(100)], false);
        assert_eq!(remy.window, Packets(1.0), "int(0.5 * 3) at a ratio of 1.5");
        assert_eq!(remy.limits().rate, Some(PACKET / Duration::from_millis(4)));
    }

    #[test]
    fn a_window_of_0_still_lets_one_packet_leave() {
        let mut remy = remy(
            "rules = [{ from = [0, 0, 0], to = [1e5, 1e5, 1e5], multiple = 0, increment = -7, intersend_ms = 0 }]",
        );
        acknowledge(&mut remy, ms(100), &[ms(0)], false);
        assert_eq!(remy.window, Packets(0.0));
        assert_eq!(remy.limits(), Limits::window(PACKET));
        assert!(drive(&mut remy, PATH, 1.0, 1).delivered >= 9);
    }

    #[test]
    fn an_application_that_sends_less_than_the_window_does_not_grow_it() {
        let mut remy = remy(TABLE);
        acknowledge(&mut remy, ms(100), &[ms(0)], true);
        assert_eq!(remy.window, Packets(1.0));
    }

    #[test]
    fn the_window_stays_within_a_million_packets() {
        let mut remy = remy(
            "rules = [{ from = [0, 0, 0], to = [1e5, 1e5, 1e5], multiple = 1e6, increment = 1e6, intersend_ms = 0 }]",
        );
        acknowledge(&mut remy, ms(100), &[ms(0)], false);
        assert_eq!(remy.window, MAXIMUM_WINDOW);
    }

    #[test]
    fn over_a_path_it_keeps_the_queue_at_the_bound_of_its_rules() {
        let run = drive(&mut remy(TABLE), PATH, 30.0, 1);
        let late = &run.rtt_ms[run.rtt_ms.len() / 2..];
        // It grows until 1.5 times the least round trip, then overshoots for a round trip.
        let most = late.iter().copied().fold(0.0, f64::max);
        assert!((150.0..=260.0).contains(&most), "{most} ms");
        assert!(run.throughput() > 300.0, "{} packets a second", run.throughput());
    }

    #[test]
    fn what_is_wrong_with_a_table_is_named() {
        assert!(error("").contains("rules: the table"));
        assert!(error("rules = 3").contains("list of tables"));
        assert!(error("rules = []").contains("0 rules"));
        let rule = |change: (&str, &str)| {
            let rule = "rules = [{ from = [0, 0, 0], to = [9, 9, 9], multiple = 1, increment = 1, intersend_ms = 1 }]";
            error(&rule.replace(change.0, change.1))
        };
        assert!(rule(("multiple = 1", "multiple = nan")).contains("rules[0]: multiple"));
        assert!(rule(("intersend_ms = 1", "intersend_ms = -1")).contains("negative"));
        assert!(rule(("from = [0, 0, 0]", "from = [0, 0]")).contains("3 or 4 numbers"));
        assert!(rule(("from = [0, 0, 0]", "from = [0, 0, 9]")).contains("from 9 is not below to 9"));
        assert!(rule(("from = [0, 0, 0]", "from = [0, 0, 1]")).contains("all signals are 0"));
        assert!(rule(("increment", "incremet")).contains("incremet"));
    }

    proptest! {
        #[test]
        fn any_rules_leave_a_window_and_a_rate(
            multiple in 0.0..1e6f64, increment in -1e6..1e6f64, intersend in 0.0..1e6f64, seed in any::<u64>(),
        ) {
            let mut remy = remy(&format!(
                "rules = [{{ from = [0, 0, 0], to = [1e9, 1e9, 1e9], multiple = {multiple:?},
                   increment = {increment:?}, intersend_ms = {intersend:?} }}]"
            ));
            let mut rng = Rng::stream(seed, "acks");
            let mut now = ms(100);
            for _ in 0..50 {
                now += Duration::from_millis(rng.below(300) as u64);
                let sent = now.since(ms(rng.below(100) as u64));
                acknowledge(&mut remy, now, &[Time::ZERO + sent], rng.chance(0.2));
                let Limits { window, rate, .. } = remy.limits();
                prop_assert!(window >= PACKET);
                prop_assert!(rate.is_none_or(|rate| rate > Rate::ZERO));
                let mut finite = true;
                remy.trace(&mut |_, value| finite &= value.is_finite());
                prop_assert!(finite);
            }
        }
    }
}
