//! Sends over each relay at the rate that the relay grants, as long as its word holds.
//!
//! A relay stamps on each ACK the rate that it grants to every sender (the relay's half of the rule
//! is `granted_rate.rs` of the protocol). A sender obeys, and looks at what becomes of its packets:
//!
//! - **Which stamp counts.** Relays nearer to the sender can change a stamp, and each packet takes
//!   others: a stamp of more than four times the one before, or less than a quarter, counts only
//!   if the next one confirms it.
//! - **Who does not keep its word.** A relay that loses more than a fifth of the packets, and more
//!   than twice what half of the relays lose (`losses.rs`), drops them on purpose or grants what it
//!   has not: it is set aside, first for ten seconds, then for twice as long each time, and judged
//!   anew. It comes back slowly, its rate doubling each round trip: all who set it aside come back
//!   with one, and it has granted to each what nobody used.
//! - **Who stamps nothing** gets what loss alone allows (`timeouts.rs`).
//!
//! Limits of use: a relay may grant too little and stay unused; that is its right. Loss that does not
//! come from load costs nothing, since rates do not follow loss.

use serde::Deserialize;

use super::credits::Credits;
use super::delays::Delays;
use super::losses::Losses;
use super::setup::Setup;
use super::timeouts::{LEAST, LossRate, MOST, TimeoutsConfig};
use super::{Hop, Outcome, PathController, Report, Slot};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

/// Parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExplicitRateConfig {
    /// Whether stamps are read; if not, all rates come from loss.
    pub stamps: bool,
    /// Whether relays are set aside that lose too much.
    pub sets_aside: bool,
    /// The growth where nothing is stamped: see [`TimeoutsConfig::increase`].
    pub increase: f64,
    /// The fall where nothing is stamped: see [`TimeoutsConfig::decrease`].
    pub decrease: f64,
    /// A relay that loses more than this share is set aside.
    pub tolerated_loss: f64,
}

impl Default for ExplicitRateConfig {
    fn default() -> ExplicitRateConfig {
        let TimeoutsConfig { increase, decrease } = TimeoutsConfig::default();
        ExplicitRateConfig { stamps: true, sets_aside: true, increase, decrease, tolerated_loss: 0.2 }
    }
}

/// No grant counts as less, in packets a second: once a minute a relay is asked anew.
const LEAST_GRANT: f64 = 1.0 / 60.0;

/// A stamp that differs by more than this factor from the one before needs another one.
const CREDIBLE: f32 = 4.0;

/// After so many ACKs in a row without a stamp, a relay that has stamped counts as one that does not.
const UNSTAMPED: u8 = 3;

/// A relay is judged after so many outcomes, at the earliest.
const JUDGED_AFTER: u32 = 10;

/// How long a relay is set aside the first time, and at most.
const ASIDE: Duration = Duration::from_millis(10_000);
const LONGEST_ASIDE: Duration = Duration::from_millis(600_000);

/// Outcomes between two looks at what half of the relays lose.
const REVIEW: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Relay {
    /// What it grants in packets a second; zero where it has not said.
    granted: f32,
    /// Whether its last stamp was not credible.
    doubted: bool,
    /// ACKs without a stamp since the last one with.
    unstamped: u8,
    /// What loss allows, where nothing is stamped.
    by_loss: LossRate,
    /// Set aside until then.
    aside_until: Option<Time>,
    /// Back since then, and not yet at what it grants.
    back_since: Option<Time>,
    /// How long it is set aside the next time.
    next_aside: Duration,
}

impl Relay {
    /// What it grants, if it does.
    fn granted(&self) -> Option<f64> {
        (!self.stamps_nothing() && self.granted > 0.0).then_some(f64::from(self.granted))
    }

    /// Whether it does not stamp, as far as its ACKs tell.
    fn stamps_nothing(&self) -> bool {
        self.unstamped >= UNSTAMPED || (self.granted == 0.0 && self.unstamped > 0)
    }

    /// A stamp that grants `rate` packets a second, or none, has come.
    fn on_stamp(&mut self, rate: Option<f32>) {
        let Some(rate) = rate else {
            self.unstamped = self.unstamped.saturating_add(1);
            return;
        };
        self.unstamped = 0;
        let credible = self.granted == 0.0 || (self.granted / CREDIBLE..=self.granted * CREDIBLE).contains(&rate);
        if credible || self.doubted {
            self.granted = rate;
        }
        self.doubted = !credible && !self.doubted;
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct ExplicitRate {
    config: ExplicitRateConfig,
    by_loss: TimeoutsConfig,
    packet: Bytes,
    credits: Credits,
    losses: Losses,
    delays: Delays,
    relays: Box<[Relay]>,
    /// What half of the relays lose, when it was looked at last.
    usual_loss: f64,
    /// Outcomes since then.
    outcomes: u32,
}

/// Makes one.
///
/// # Errors
///
/// When a parameter is unknown or out of its range.
pub fn build(setup: &Setup, parameters: &toml::Table) -> Result<Box<dyn PathController>, ParameterError> {
    let config: ExplicitRateConfig = crate::registry::parameters(parameters)?;
    let by_loss = TimeoutsConfig { increase: config.increase, decrease: config.decrease };
    by_loss.check()?;
    in_range("tolerated_loss", config.tolerated_loss, 0.01..=0.9)?;
    let relay = Relay {
        granted: 0.0,
        doubted: false,
        unstamped: 0,
        by_loss: LossRate::new(setup.start),
        aside_until: None,
        back_since: None,
        next_aside: ASIDE,
    };
    Ok(Box::new(ExplicitRate {
        config,
        by_loss,
        packet: setup.packet,
        credits: Credits::new(setup.peers, LEAST, setup.start),
        losses: Losses::new(setup.peers),
        delays: Delays::new(setup.peers),
        relays: vec![relay; setup.peers].into(),
        usual_loss: 0.0,
        outcomes: 0,
    }))
}

impl ExplicitRate {
    /// Looks again at what half of the relays lose.
    fn review(&mut self) {
        self.outcomes = 0;
        let mut losses: Vec<f64> = (0..self.relays.len()).map(|index| self.losses.of(Slot(index as u16))).collect();
        let middle = losses.len() / 2;
        self.usual_loss = *losses.select_nth_unstable_by(middle, f64::total_cmp).1;
    }

    /// What of the grant is used by a relay that may have been set aside.
    fn coming_back(&mut self, report: &Report<'_>, slot: Slot, granted: f64) -> f64 {
        let relay = &mut self.relays[slot.index()];
        let Some(since) = relay.back_since else { return granted };
        let round_trips = report.now.since(since).as_secs_f64() / report.round_trip().as_secs_f64().max(1e-4);
        let rate = LEAST * libm::exp2(round_trips.min(40.0));
        if rate < granted {
            return rate;
        }
        relay.back_since = None;
        granted
    }

    /// Sets the relay aside if it loses too much, and takes it back once its time is over.
    fn judge(&mut self, now: Time, slot: Slot) {
        let loss = self.losses.of(slot);
        let tolerated = self.config.tolerated_loss + 2.0 * self.usual_loss;
        let relay = &mut self.relays[slot.index()];
        match relay.aside_until {
            None if loss > tolerated && self.losses.seen(slot) >= JUDGED_AFTER => {
                relay.aside_until = Some(now + relay.next_aside);
                relay.next_aside = (relay.next_aside * 2).min(LONGEST_ASIDE);
            }
            // What is known of it is old: it is judged anew.
            Some(until) if now >= until => {
                relay.aside_until = None;
                relay.back_since = Some(now);
                self.losses.forget(slot);
            }
            _ => {}
        }
    }
}

impl PathController for ExplicitRate {
    fn select(&mut self, now: Time, destination: Slot, _size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        self.credits.take(now, destination, path, rng)
    }

    fn on_outcome(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        let mut shares = [0.0; super::MAX_RELAYS];
        self.losses.learn(report, |place, share| shares[place] = share);
        if report.outcome == Outcome::Acked {
            self.delays.learn(report);
        }
        self.outcomes += 1;
        if self.outcomes >= REVIEW {
            self.review();
        }
        let packet = self.packet.get() as f64;
        for (place, (hop, share)) in report.path.iter().zip(shares).enumerate() {
            let relay = &mut self.relays[hop.slot.index()];
            if report.outcome == Outcome::Acked {
                let stamp = report.stamp(place).filter(|_| self.config.stamps);
                relay.on_stamp(stamp.map(|rate| (rate.bytes_per_sec() / packet).clamp(LEAST_GRANT, MOST) as f32));
            }
            let before = self.credits.rate(hop.slot);
            let by_loss = relay.by_loss.after(&self.by_loss, before, report, share);
            if self.config.sets_aside {
                self.judge(report.now, hop.slot);
            }
            let relay = self.relays[hop.slot.index()];
            // Nothing has come over it yet, and something was lost.
            let is_suspect = relay.granted == 0.0 && relay.unstamped == 0;
            self.credits.set_on_trial(hop.slot, relay.aside_until.is_some() || is_suspect);
            let rate = match (relay.aside_until, relay.granted()) {
                (Some(_), _) => LEAST,
                // At once: a relay takes what is not used for room, and grants it to others.
                (None, Some(granted)) => self.coming_back(report, hop.slot, granted),
                // Until its first ACK is there, nobody knows whether it stamps.
                (None, None) if !relay.stamps_nothing() => before,
                (None, None) => by_loss,
            };
            if rate != before {
                self.credits.set_rate(report.now, hop.slot, rate);
            }
        }
    }

    fn on_late(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        self.losses.forgive(report);
        self.delays.learn(report);
    }

    fn wake(&self, now: Time) -> Wake {
        self.credits.wake(now)
    }

    fn rate(&self, peer: Slot) -> Option<Rate> {
        Some(Rate::from_bytes_per_sec_f64(self.credits.rate(peer) * self.packet.get() as f64))
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.credits.heap_bytes()
            + self.losses.heap_bytes()
            + self.delays.heap_bytes()
            + size_of_val(&*self.relays)
    }

    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64)) {
        let relay = &self.relays[peer.index()];
        let packet = self.packet.get() as f64;
        record("rate_bytes_per_s", self.credits.rate(peer) * packet);
        record("granted_bytes_per_s", relay.granted().unwrap_or(0.0) * packet);
        record("loss", self.losses.of(peer));
        record("delay_ms", self.delays.of(peer).as_millis_f64());
        record("set_aside", f64::from(u8::from(relay.aside_until.is_some())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Stamp;
    use crate::path::setup::Pacing;
    use crate::rtt::{PairRtts, RttConfig};

    const SETUP: Setup = Setup { peers: 6, packet: Bytes::new(1500), start: Time::ZERO, pacing: Pacing::Burst };

    /// The controller, its clock, and relays that grant so many packets a second, lose a share, and
    /// may stamp nothing.
    struct Overlay {
        controller: Box<dyn PathController>,
        rng: Rng,
        rtts: PairRtts,
        now: Time,
    }

    impl Overlay {
        fn new(parameters: &str) -> Overlay {
            let controller = build(&SETUP, &parameters.parse().unwrap()).unwrap();
            let rtts = PairRtts::new(&RttConfig::default(), 6);
            Overlay { controller, rng: Rng::stream(1, "overlay"), rtts, now: Time::ZERO }
        }

        fn run(&mut self, seconds: f64, grants: [Option<f32>; 5], loses: [f64; 5]) {
            let end = self.now + Duration::from_secs_f64(seconds);
            while self.now < end {
                let mut path = [Hop::default(); 2];
                if !self.controller.select(self.now, Slot(5), SETUP.packet, &mut path, &mut self.rng) {
                    self.now = self.controller.wake(self.now).time(self.now);
                    continue;
                }
                let relays = path.map(|hop| hop.slot.index());
                let lost = relays.map(|relay| self.rng.chance(loses[relay])).contains(&true);
                let stamps =
                    relays.map(|relay| grants[relay].map_or(Stamp::NONE, |rate| Stamp::granting(1500.0 * rate)));
                let (outcome, stamps) = if lost { (Outcome::TimedOut, &[][..]) } else { (Outcome::Acked, &stamps[..]) };
                let now = self.now + Duration::from_millis(100);
                let told = Report::of(outcome, &path, &self.rtts);
                let report = Report { now, sent_at: self.now, destination: Slot(5), stamps, ..told };
                self.controller.on_outcome(&report, &mut self.rng);
            }
        }

        fn traced(&self, relay: u16, key: &str) -> f64 {
            let mut found = f64::NAN;
            self.controller.trace(Slot(relay), &mut |name, value| {
                if name == key {
                    found = value
                }
            });
            found
        }

        fn rates(&self) -> Vec<f64> {
            (0..5).map(|relay| self.controller.rate(Slot(relay)).unwrap().bytes_per_sec() / 1500.0).collect()
        }
    }

    #[test]
    fn a_rate_is_what_the_relay_grants() {
        let mut overlay = Overlay::new("");
        overlay.run(5.0, [Some(10.0), Some(20.0), Some(30.0), Some(40.0), Some(50.0)], [0.0; 5]);
        assert_eq!(overlay.rates(), [10.0, 20.0, 30.0, 40.0, 50.0]);
    }

    #[test]
    fn a_relay_that_drops_is_set_aside_named_and_taken_back_once_it_has_mended() {
        let mut overlay = Overlay::new("");
        let grants = [Some(20.0); 5];
        overlay.run(10.0, grants, [0.0, 0.0, 0.9, 0.0, 0.0]);
        assert_eq!((overlay.traced(2, "set_aside"), overlay.traced(1, "set_aside")), (1.0, 0.0));
        assert_eq!(overlay.rates()[2], LEAST);
        assert!(overlay.traced(2, "loss") > 0.5 && overlay.traced(1, "loss") < 0.1);
        overlay.run(30.0, grants, [0.0; 5]);
        assert_eq!((overlay.traced(2, "set_aside"), overlay.rates()[2]), (0.0, 20.0));
        let mut letter = Overlay::new("sets_aside = false");
        letter.run(10.0, grants, [0.0, 0.0, 0.9, 0.0, 0.0]);
        assert_eq!(letter.traced(2, "set_aside"), 0.0);
    }

    #[test]
    fn loss_on_every_path_alike_sets_nobody_aside() {
        let mut overlay = Overlay::new("");
        overlay.run(60.0, [Some(20.0); 5], [0.05; 5]);
        assert_eq!(overlay.rates(), [20.0; 5]);
    }

    #[test]
    fn a_relay_that_stamps_nothing_gets_what_loss_allows() {
        let mut overlay = Overlay::new("");
        overlay.run(5.0, [Some(20.0), None, Some(20.0), None, Some(20.0)], [0.0; 5]);
        let rates = overlay.rates();
        assert!(rates[1] > 20.0 && rates[3] > 20.0 && rates[0] == 20.0, "{rates:?}");
        let mut blind = Overlay::new("stamps = false");
        blind.run(5.0, [Some(20.0); 5], [0.0; 5]);
        assert!(blind.rates().iter().all(|&rate| rate > 20.0), "{:?}", blind.rates());
    }

    #[test]
    fn one_stamp_that_is_out_of_line_changes_nothing_and_two_do() {
        let mut relay = Relay {
            granted: 0.0,
            doubted: false,
            unstamped: 0,
            by_loss: LossRate::new(Time::ZERO),
            aside_until: None,
            back_since: None,
            next_aside: ASIDE,
        };
        relay.on_stamp(Some(10.0));
        relay.on_stamp(Some(1000.0));
        assert_eq!(relay.granted(), Some(10.0));
        relay.on_stamp(Some(11.0));
        relay.on_stamp(Some(1.0));
        assert_eq!(relay.granted(), Some(11.0));
        relay.on_stamp(Some(1.0));
        assert_eq!(relay.granted(), Some(1.0));
        (0..UNSTAMPED).for_each(|_| relay.on_stamp(None));
        assert_eq!(relay.granted(), None);
    }
}
