//! A policy that was trained controls one flow from end to end: at the end of each monitor interval, about a round trip,
//! a network sees what the sender knows of the last intervals and says by how much the rate rises or falls. Between two
//! decisions nothing changes but the window, which only bounds what a silent path is sent.
//!
//! ```text
//! x_(t+1) = x_t (1 + α a)      a >= 0
//!         = x_t / (1 - α a)    else                    α = 0.025, |a| at most 40: twice or half the rate
//! x_0     = initial window / smoothed round trip       once that is known; until then the initial window holds
//! W       = 2 x max(smoothed, latest round trip)
//! ```
//!
//! Jay, Rotman, Godfrey, Schapira, Tamar (Aurora), ICML 2019, section 4.1. Departures. Its rates begin at random near the
//! link's, which no sender knows; here as slow start's first round trip does. Its actions have no bound. While
//! the application or a bound from outside holds the sender back, the rate does not rise (RFC 9002, 7.8). After persistent
//! congestion all begins anew from the least rate (RFC 9002, 7.6).
//!
//! What no training showed the network is cut at what it saw (see [`crate::policy`]), and said once.

pub mod feature;
pub mod interval;
pub mod network;

pub use feature::{FlowFeature, History};
pub use interval::{Seen, Watch};
pub use network::FlowNetwork;

use super::pcc::SHORTEST_RTT;
use super::setup::{Factory, Setup, factory};
use super::{Feedback, FlowController, Limits, PeerId, Sent};
use crate::policy::Scratch;
use crate::registry::ParameterError;
use crate::rng::Rng;
use crate::round_trip::INITIAL_RTT;
use crate::time::{Duration, Time};
use crate::units::{OctetRate, Octets, Packets};

/// What `policy` cannot do without.
pub const NEEDS: &str = "network: the policy that it runs (a scenario may say file = \"NAME.safetensors\")";

/// α: what an action of 1 adds to the rate.
pub const STEP: f64 = 0.025;

/// The largest action: it doubles the rate, or halves it.
pub const MOST_ACTION: f32 = 40.0;

/// The highest rate: a terabit a second.
pub const MOST_RATE: OctetRate = OctetRate(1e12 / 8.0);

/// No rate counts as lower: a bit a second.
const LEAST_RATE: OctetRate = OctetRate(1.0 / 8.0);

/// Packets a round trip of the least rate (PCC, NSDI 2015, 3.2).
pub const LEAST_PACKETS: Packets = Packets(2.0);

/// The rate after one of `rate` and `action`; one that is no number changes nothing.
pub fn stepped(rate: OctetRate, action: f32) -> OctetRate {
    if action.is_nan() {
        return rate;
    }
    let action = f64::from(action.clamp(-MOST_ACTION, MOST_ACTION));
    if action >= 0.0 { rate * (1.0 + STEP * action) } else { rate / (1.0 - STEP * action) }
}

/// The window over what the rate keeps in flight: the rate decides, and the window only bounds what a silent network is
/// sent.
const WINDOW_GAIN: f64 = 2.0;

/// The smallest window, in packets.
const LEAST_WINDOW: u64 = 10;

/// The controller.
#[derive(Clone, Debug)]
struct Learned {
    network: FlowNetwork,
    setup: Setup,
    rate: OctetRate,
    /// The smoothed round trip; none before the first sample.
    srtt: Option<Duration>,
    latest: Duration,
    watch: Watch,
    history: History,
    /// When the interval ends; none before the first, and while nothing is sent.
    due: Option<Time>,
    action: f32,
    scratch: Scratch,
    note: Option<String>,
}

/// Makes `policy` of its one parameter `network`.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    if let Some(key) = parameters.keys().find(|key| *key != "network") {
        return Err(ParameterError(format!("unknown field `{key}`, expected `network`")));
    }
    let network = parameters.get("network").ok_or_else(|| ParameterError(format!("missing {NEEDS}")))?;
    let network = network.as_table().ok_or_else(|| ParameterError("network must be a table".to_owned()))?;
    let network = FlowNetwork::read(network)?;
    Ok(factory(move |setup| Learned::new(*setup, network.clone())))
}

impl Learned {
    fn new(setup: Setup, network: FlowNetwork) -> Learned {
        let mut learned = Learned {
            history: History::new(network.features(), network.history()),
            watch: Watch::new(setup.start),
            network,
            setup,
            rate: OctetRate::ZERO,
            srtt: None,
            latest: INITIAL_RTT,
            due: None,
            action: 0.0,
            scratch: Scratch::default(),
            note: None,
        };
        learned.rate = learned.per_round_trip(learned.setup.initial_window.into());
        learned
    }

    fn srtt(&self) -> Duration {
        self.srtt.unwrap_or(INITIAL_RTT)
    }

    /// The rate of this many bytes in a smoothed round trip, within what a rate can be.
    fn per_round_trip(&self, bytes: Octets) -> OctetRate {
        (bytes / self.srtt().seconds().max(SHORTEST_RTT)).clamp(LEAST_RATE, MOST_RATE)
    }

    fn least_rate(&self) -> OctetRate {
        self.per_round_trip(LEAST_PACKETS.in_bytes(self.setup.packet.into()))
    }

    /// The next interval begins `now`.
    fn begin(&mut self, now: Time) {
        self.due = Some(now + interval::length(self.network.rtts(), self.srtt(), self.rate, self.setup.packet));
    }

    /// An interval is over.
    fn decide(&mut self, now: Time) {
        let seen = self.watch.end(now, self.rate);
        self.history.push(&seen);
        self.action = self.network.action(self.history.observation(), &mut self.scratch);
        if self.note.is_none() {
            self.note = self.network.note(now, self.history.observation(), &mut self.scratch);
        }
        let wanted = stepped(self.rate, self.action);
        // RFC 9002, 7.8: a rate that was not used is not raised.
        let wanted = if seen.app_limited { wanted.min(self.rate) } else { wanted };
        self.rate = wanted.max(self.least_rate()).min(MOST_RATE);
        self.begin(now);
    }
}

impl FlowController for Learned {
    #[inline]
    fn on_sent(&mut self, now: Time, _: PeerId, packet: &Sent, _: &mut Rng) -> bool {
        if self.due.is_none() && self.srtt.is_some() {
            // What nothing was sent in is no interval.
            self.watch.skip(now);
            self.begin(now);
        }
        self.watch.on_sent(packet);
        false
    }

    fn on_feedback(&mut self, now: Time, feedback: &Feedback<'_>, _: &mut Rng) {
        if let Some(latest) = feedback.rtt.latest {
            self.latest = latest;
            let is_first = self.srtt.replace(feedback.rtt.smoothed).is_none();
            if is_first {
                self.rate = self.per_round_trip(self.setup.initial_window.into()).max(self.least_rate());
                self.watch = Watch::new(now);
                self.begin(now);
            }
        }
        if feedback.persistent_congestion {
            self.history.clear();
            self.watch = Watch::new(now);
            self.rate = self.least_rate();
            self.begin(now);
            return;
        }
        self.watch.on_feedback(feedback);
    }

    fn on_timer(&mut self, now: Time, _: &mut Rng) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        if self.watch.is_silent() {
            // An idle sender decides nothing, and is not woken for it.
            self.due = None;
        } else {
            self.decide(now);
        }
    }

    fn timer(&self) -> Option<Time> {
        self.due
    }

    fn limits(&self) -> Limits {
        if self.srtt.is_none() {
            return Limits::window(self.setup.initial_window.max(self.setup.packet));
        }
        let in_flight = self.rate * self.srtt().max(self.latest).seconds();
        let window = (in_flight * WINDOW_GAIN).whole().max(self.setup.packet * LEAST_WINDOW);
        Limits { window, rate: Some(self.rate.whole()), burst: self.setup.packet }
    }

    fn note(&self) -> Option<String> {
        self.note.clone()
    }

    fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        let limits = self.limits();
        record("window", limits.window.get() as f64);
        record("rate", self.rate.bits_per_sec());
        record("action", f64::from(self.action));
        for (feature, value) in self.network.features().iter().zip(self.history.observation()) {
            record(feature.name(), f64::from(*value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::setup::made;
    use crate::flow::testing::{Drive, PACKET, PATH, Path, drive, silence, traced};
    use crate::units::Rate;

    /// The newest interval's features, and the action `bias + Σ weight feature`.
    fn network(features: &[FlowFeature], weights: &[f32], bias: f32) -> toml::Table {
        let names: Vec<&str> = features.iter().map(|feature| feature.name()).collect();
        let zeros = vec![0.0f32; weights.len()];
        let text = format!(
            "[network]\nname = \"by hand\"\nfeatures = {names:?}\nhistory = 1\ninterval_rtts = 1.0\nactivation = \"tanh\"\n\
             mean = {zeros:?}\ndeviation = {:?}\nleast = {zeros:?}\nmost = {:?}\n\
             layers = [{{ weights = {weights:?}, biases = [{bias:?}] }}]",
            vec![1.0f32; weights.len()],
            vec![5.0f32; weights.len()],
        );
        text.parse().unwrap()
    }

    /// Sends more until latencies rise by a tenth, then less: 10 (1.1 - latency ratio).
    fn delay_based() -> toml::Table {
        network(&[FlowFeature::LatencyRatio], &[-10.0], 11.0)
    }

    fn run(parameters: &toml::Table, path: Path, seconds: f64) -> (Drive, Box<dyn FlowController>) {
        let mut learned = made(build, &Setup::new(PACKET, Time::ZERO), parameters).unwrap();
        let drive = drive(&mut *learned, path, seconds, 1);
        (drive, learned)
    }

    #[test]
    fn a_network_that_answers_to_latency_fills_the_path_with_a_short_queue() {
        let (run, learned) = run(&delay_based(), PATH, 60.0);
        // 1000 packets a second, 100 ms.
        let rates = run.late(30.0, &run.rate);
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((900.0..1050.0).contains(&mean), "{mean} packets/s");
        let rtts = run.late(30.0, &run.rtt_ms);
        let mean = rtts.iter().sum::<f64>() / rtts.len() as f64;
        assert!((101.0..125.0).contains(&mean), "{mean} ms");
        assert_eq!(learned.note(), None, "it saw what it knows");
    }

    #[test]
    fn it_decides_once_an_interval_and_never_by_an_ack() {
        let (run, _) = run(&network(&[FlowFeature::Loss], &[0.0], 1.0), PATH, 5.0);
        let changes = run.rate.windows(2).filter(|pair| pair[0] != pair[1] && pair[0].is_finite()).count();
        // A round trip is 100 ms and more once the queue grows.
        assert!((30..=50).contains(&changes), "{changes} changes at {} feedbacks", run.rate.len());
        // 2.5 % each: 100 packets/s at first.
        let first = run.rate.iter().copied().find(|rate| rate.is_finite()).unwrap();
        let last = *run.rate.last().unwrap();
        assert!((last / (first * 1.025f64.powi(changes as i32)) - 1.0).abs() < 1e-3, "{first} to {last} by {changes}");
    }

    #[test]
    fn what_no_training_showed_is_cut_and_said_once() {
        // It knows latencies up to five times the least, and always wants more.
        let path = Path { buffer: 10_000, ..PATH };
        let (run, learned) = run(&network(&[FlowFeature::LatencyRatio], &[10.0], 0.0), path, 6.0);
        assert!(run.rtt_ms.iter().any(|rtt| *rtt > 500.0), "the queue grew");
        assert_eq!(traced(&*learned, "action"), 40.0, "50 is cut at 40");
        let note = learned.note().unwrap();
        assert!(note.starts_with("by hand: at ") && note.contains("latency_ratio"), "{note}");
        assert!(note.contains("from 0 to 5 in its training"), "{note}");
    }

    #[test]
    fn a_rate_that_is_not_used_is_not_raised() {
        let mut learned =
            made(build, &Setup::new(PACKET, Time::ZERO), &network(&[FlowFeature::Loss], &[0.0], 40.0)).unwrap();
        let mut rng = Rng::stream(1, "controller");
        let mut rate_after = |learned: &mut Box<dyn FlowController>, from_ms: u64, app_limited: bool| {
            for ms in from_ms..from_ms + 200 {
                let now = Time::ZERO + Duration::from_millis(ms);
                learned.on_sent(now, PeerId(0), &Sent { at: now, size: PACKET, ..Sent::default() }, &mut rng);
                let rtt = Duration::from_millis(50);
                crate::flow::testing::acknowledge(&mut **learned, now, rtt, app_limited, &mut rng);
                learned.on_timer(now, &mut rng);
            }
            learned.limits().rate.unwrap()
        };
        let idle = rate_after(&mut learned, 1000, true);
        // Ten packets in 50 ms.
        assert_eq!(idle, Rate::from_bits_per_sec(1_600_000));
        assert!(rate_after(&mut learned, 1200, false) >= Rate::from_bits_per_sec(12_000_000));
    }

    #[test]
    fn after_persistent_congestion_it_begins_from_the_least_rate_and_while_idle_it_sleeps() {
        let (_, mut learned) = run(&delay_based(), PATH, 20.0);
        let now = Time::from_secs_f64(20.0);
        let mut rng = Rng::stream(1, "controller");
        let dark = Feedback { persistent_congestion: true, ..silence() };
        learned.on_feedback(now, &dark, &mut rng);
        let least = learned.limits().rate.unwrap();
        // Two packets in a round trip of 100 ms and some queue.
        assert!((100_000..=160_000).contains(&least.bits_per_sec()), "{least}");
        let due = learned.timer().unwrap();
        assert!(due > now);
        learned.on_timer(due, &mut rng);
        assert_eq!((learned.timer(), learned.limits().rate), (None, Some(least)), "nothing was sent");
        let later = due + Duration::SECOND;
        learned.on_sent(later, PeerId(0), &Sent { at: later, size: PACKET, ..Sent::default() }, &mut rng);
        assert!(learned.timer().is_some_and(|due| due > later));
    }

    #[test]
    fn a_network_that_can_not_be_is_refused_with_what_was_expected() {
        let refused = |from: &str, to: &str| {
            let text = delay_based().to_string();
            let other = text.replace(from, to);
            assert_ne!(text, other, "{text}");
            made(build, &Setup::new(PACKET, Time::ZERO), &other.parse().unwrap()).unwrap_err().0
        };
        for (from, to, said) in [
            ("latency_ratio", "queue", "there is no feature \"queue\" that a sender knows; there are: send_ratio"),
            ("history = 1", "history = 0", "history = 0 is not between 1 and 64"),
            ("history = 1", "history = 2", "1 numbers for 1 outputs; 2 intervals of 1 features"),
            ("interval_rtts = 1.0", "interval_rtts = 0.0", "interval_rtts = 0 is not between 0.1 and 100"),
            ("activation = \"tanh\"", "activation = \"gelu\"", "there are: tanh, relu"),
            ("deviation = [1.0]", "deviation = [0.0]", "a deviation is 0, must be above 0"),
            ("least = [0.0]\n", "", "least and most"),
            ("11.0", "nan", "a bias of layer 0 is NaN"),
            ("history = 1", "histori = 1", "unknown field `histori`"),
        ] {
            let error = refused(from, to);
            assert!(error.contains(said), "{error}; expected {said}");
        }
    }

    #[test]
    fn an_action_and_its_opposite_leave_the_rate_as_it_was() {
        let rate = OctetRate(100.0);
        assert!((stepped(rate, 1.0).0 - 102.5).abs() < 1e-9);
        assert_eq!(stepped(rate, -40.0), OctetRate(50.0));
        assert_eq!(stepped(rate, 1e9), OctetRate(200.0));
        assert_eq!((stepped(rate, f32::NAN), stepped(rate, 0.0)), (rate, rate));
        for action in [0.5, 3.0, 40.0] {
            assert!((stepped(stepped(rate, action), -action).0 - 100.0).abs() < 1e-9);
        }
    }
}
