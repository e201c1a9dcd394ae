//! Rates from ACKs and timeouts alone, the thesis's own terms.
//!
//! Each relay's rate x, in packets a second, grows a little all the time and falls by its share r in
//! each loss (`losses.rs`):
//!
//! ```text
//! x <- x + a √x 2^(t / 20 s) dt        t: since it had part in a loss
//! x <- x (1 - β r)                     at each loss
//! ```
//!
//! Where growth and fall are equal, a relay loses p = a / (β x^1.5) of its packets, 0.17 % at the 13
//! packets a second of the thesis's standard scenario: the root makes senders with unequal rates meet
//! (a rule that grows in proportion to x would leave them apart), and still lets large rates move.
//! Until its first loss a rate grows by half each round trip. None grows beyond four times what lately arrived over
//! its relay and ten packets a round trip (`delivered.rs`).
//!
//! **Where a sender has one destination**, as of a file, its packets over a relay are so many that a round trip tells what
//! share of them is lost, and that rule would take minutes to find a rate of thousands. Then a relay may be sent RFC 6928's
//! initial window as soon as something has come over it, and from its first loss on its rate follows what arrives
//! (`rounds.rs`). The destination, which has part in all that is lost, is not suspected: if it was the destination, all
//! relays' rates fall together. It is sent no more than a start allows, and hardly anything once nothing comes from it
//! (`ceiling.rs`).
//!
//! Limits of use: loss that does not come from load holds the rates to several destinations down as loss from load does,
//! to x = (a / (β p))^(2/3): at 2 % a node, 2.5 packets a second.

use serde::Deserialize;

use super::ceiling::Startup;
use super::credits::Credits;
use super::delivered::{Delivered, first_rate};
use super::losses::{Blame, Losses};
use super::round_trips::smoothed;
use super::rounds::{Rounds, TOLERATED};
use super::setup::{Factory, factory};
use super::{Hop, Outcome, PathController, Report, Slot};
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Seconds, Time};
use crate::units::{Bytes, Octets, PacketRate, Rate};
use crate::wake::Wake;

/// Parameters. All but the first two are there to measure what each part is worth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsConfig {
    /// The growth a, in packets a second squared at a rate of one packet a second.
    pub increase: f64,
    /// The part β of its rate that a loss takes which is all a relay's own.
    pub decrease: f64,
    /// Whether a loss is shared by who is known to lose; if not, all nodes of its path have equal shares.
    pub shares: bool,
    /// Whether rates grow by half each round trip until the first loss.
    pub starts: bool,
    /// Whether growth doubles with the time since the last loss.
    pub quickens: bool,
    /// Whether growth goes with the root of the rate; if not, all rates grow alike.
    pub roots: bool,
    /// Whether what left before the start came to its end is let pass.
    pub ends_once: bool,
    /// Whether a loss is taken back when its ACK comes late.
    pub forgives: bool,
    /// Whether a sender with one destination goes by rounds.
    pub rounds: bool,
}

impl Default for TimeoutsConfig {
    fn default() -> TimeoutsConfig {
        TimeoutsConfig {
            increase: 0.004,
            decrease: 0.05,
            shares: true,
            starts: true,
            quickens: true,
            roots: true,
            ends_once: true,
            forgives: true,
            rounds: true,
        }
    }
}

impl TimeoutsConfig {
    /// Refuses parameters outside their range.
    pub fn check(&self) -> Result<(), ParameterError> {
        in_range("increase", self.increase, 1e-6..=1e3)?;
        in_range("decrease", self.decrease, 1e-3..=0.9)
    }
}

/// No rate is below this, or a relay would not be tried again; nor above.
pub const LEAST: PacketRate = PacketRate(1.0);
pub const MOST: PacketRate = PacketRate(1e7);

/// No round trip counts as shorter.
const SHORTEST: Seconds = Seconds(1e-3);

/// Until its first loss a rate grows by this each round trip.
const START_GROWTH: f64 = 1.5;

/// What is left of it at that loss.
const START_END: f64 = 0.7;

/// Without a loss, growth doubles in this time; and is no more than this part of the rate a second.
const DOUBLING: Seconds = Seconds(20.0);
const FASTEST: f64 = 0.3;

/// A share in a loss from which on a relay counts as part of it: less than that of any of four
/// nodes that are equally suspect.
const PART: f64 = 0.2;

/// What is known of one relay's rate.
#[derive(Clone, Copy, Debug)]
pub struct LossRate {
    /// When it had part in a loss.
    lost_at: Time,
    /// When its start came to an end.
    fell_at: Time,
    /// When its rate was last brought up to date.
    updated: Time,
    delivered: Delivered,
    starting: bool,
}

impl LossRate {
    /// Nothing is known yet.
    pub fn new(start: Time) -> LossRate {
        LossRate { lost_at: start, fell_at: start, updated: start, delivered: Delivered::new(start), starting: true }
    }

    /// An outcome is known: the most that the rate may be after `rate`.
    fn learn(&mut self, report: &Report<'_>, rate: PacketRate) -> PacketRate {
        self.delivered.learn(report.now, report.outcome == Outcome::Acked, report.round_trip());
        self.delivered.supports(first_rate(report.round_trip())).max(rate).min(MOST)
    }

    /// The rate after `rate`, now that an outcome is known in which the relay's share is `share`.
    pub fn after(&mut self, config: &TimeoutsConfig, rate: PacketRate, report: &Report<'_>, share: f64) -> PacketRate {
        let now = report.now;
        let round_trip = report.round_trip().seconds().max(SHORTEST);
        let elapsed = now.since(self.updated).seconds().min(round_trip);
        self.updated = now;
        let most = self.learn(report, rate);
        if self.starting && config.starts {
            if share < PART {
                return (rate * libm::pow(START_GROWTH, elapsed / round_trip)).min(most);
            }
            self.starting = false;
            self.lost_at = now;
            self.fell_at = now;
            return (rate * START_END).max(LEAST);
        }
        if share >= PART {
            // What left before the start came to its end tells of its rates.
            if config.ends_once && report.sent_at < self.fell_at {
                return rate;
            }
            self.lost_at = now;
        }
        let alone = now.since(self.lost_at).seconds();
        // What a second adds to the rate.
        let root = if config.roots { libm::sqrt(rate.0) } else { 1.0 };
        let quicker = if config.quickens { libm::exp2((alone / DOUBLING).min(20.0)) } else { 1.0 };
        let growth = PacketRate(config.increase * root * quicker);
        let grown = rate + growth.min(rate * FASTEST) * elapsed.0;
        (grown.min(most) * (1.0 - config.decrease * share)).max(LEAST)
    }
}

/// The rates over all relays.
#[derive(Clone, Debug)]
pub struct LossRates {
    relays: Box<[LossRate]>,
    /// Those of a sender with one destination, of relays that have lost something; none as long as it has several.
    rounds: Vec<Option<Rounds>>,
    /// Relays of outcomes since it had another.
    alone: usize,
}

impl LossRates {
    /// Nothing is known of any of `peers`.
    pub fn new(peers: usize, start: Time) -> LossRates {
        LossRates { relays: vec![LossRate::new(start); peers].into(), rounds: Vec::new(), alone: 0 }
    }

    /// The rate over `slot` after `rate`, now that an outcome is known in which its share is `share`, and that it is
    /// thought to lose `loss` of its packets. `is_only` says that the sender has no other destination.
    pub fn after(
        &mut self,
        config: &TimeoutsConfig,
        slot: Slot,
        rate: PacketRate,
        report: &Report<'_>,
        (share, loss): (f64, f64),
        is_only: bool,
    ) -> PacketRate {
        let relay = &mut self.relays[slot.index()];
        if !is_only || !config.rounds {
            self.rounds.clear();
            self.alone = 0;
            return relay.after(config, rate, report, share);
        }
        self.alone = self.alone.saturating_add(1);
        let first = first_rate(report.round_trip());
        if relay.starting && config.starts {
            let grown = relay.after(config, rate, report, share);
            // Not after the first packet: who has several destinations has had one by then.
            let is_known = report.outcome == Outcome::Acked && self.alone > report.path.len();
            let after = if relay.starting && is_known { grown.max(first) } else { grown };
            return after.min(relay.delivered.allows(first)).max(LEAST);
        }
        relay.learn(report, rate);
        self.rounds.resize(self.relays.len(), None);
        let rounds = self.rounds[slot.index()].get_or_insert_with(|| Rounds::starting(report, rate));
        rounds.learn(report, share, loss > TOLERATED);
        rounds.bound(self.relays[slot.index()].delivered.allows(first).max(rate));
        rounds.rate().unwrap_or(rate).max(LEAST)
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.relays) + size_of_val(&*self.rounds)
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Timeouts {
    config: TimeoutsConfig,
    packet: Octets,
    credits: Credits,
    losses: Losses,
    rates: LossRates,
    /// The mean round trip, zero before the first, and what lately arrived, of a sender with one destination.
    round_trip: Duration,
    arrived: Delivered,
}

/// Makes one.
///
/// # Errors
///
/// When a parameter is unknown or out of its range.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: TimeoutsConfig = crate::registry::parameters(parameters)?;
    config.check()?;
    Ok(factory(move |setup| Timeouts {
        config: config.clone(),
        packet: setup.packet.into(),
        credits: Credits::new(setup.peers, LEAST, setup.start),
        losses: Losses::new(setup.peers),
        rates: LossRates::new(setup.peers, setup.start),
        round_trip: Duration::ZERO,
        arrived: Delivered::new(setup.start),
    }))
}

impl Timeouts {
    /// What a sender's one destination may be sent, once a round trip is known.
    fn startup(&mut self, report: &Report<'_>) -> Option<Startup> {
        let has_come = report.outcome == Outcome::Acked;
        if has_come {
            self.round_trip = smoothed(self.round_trip, report.round_trip());
        }
        self.arrived.learn(report.now, has_come, self.round_trip);
        Startup::of(&self.arrived, self.round_trip, self.rates.relays.len() - 1, report.path.len()).map(Startup::blind)
    }
}

impl PathController for Timeouts {
    fn select(&mut self, now: Time, destination: Slot, _size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        self.credits.take(now, destination, path, rng)
    }

    fn on_outcome(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        let startup = self.startup(report);
        let Timeouts { config, credits, losses, rates, .. } = self;
        let equal = if report.outcome == Outcome::TimedOut { 1.0 / (report.path.len() + 1) as f64 } else { 0.0 };
        let mut blames = [Blame::default(); super::MAX_RELAYS];
        let suspects = !config.rounds || !credits.is_only(report.destination);
        losses.learn(report, suspects, |place, blame| blames[place] = blame);
        if config.rounds {
            credits.learn(report, Some(losses.of(report.destination)), startup);
        }
        let is_only = credits.is_only(report.destination);
        for (hop, Blame { share, .. }) in report.path.iter().zip(blames) {
            let blame = (if config.shares { share } else { equal }, losses.of(hop.slot));
            let rate = rates.after(config, hop.slot, credits.rate(hop.slot), report, blame, is_only);
            credits.set_rate(report.now, hop.slot, rate);
        }
    }

    fn on_late(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        if self.config.forgives {
            self.losses.forgive(report);
        }
    }

    fn wake(&self, now: Time) -> Wake {
        self.credits.wake(now)
    }

    fn rate(&self, peer: Slot) -> Option<Rate> {
        Some(self.credits.rate(peer).in_bytes(self.packet).whole())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.credits.heap_bytes() + self.losses.heap_bytes() + self.rates.heap_bytes()
    }

    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64)) {
        record("rate_bytes_per_s", self.credits.rate(peer).in_bytes(self.packet).0);
        record("loss", self.losses.of(peer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtt::{PairRtts, RttConfig};

    const RTT: f64 = 0.5;

    /// One relay that takes `limit` packets a second and refuses what comes beyond; the mean rate and
    /// the share that is lost in the second half of `seconds`.
    fn alone(limit: f64, seconds: f64) -> (f64, f64) {
        let config = TimeoutsConfig::default();
        let rtts = PairRtts::new(&RttConfig::default(), 2);
        let path = [Hop::default()];
        let mut relay = LossRate::new(Time::ZERO);
        let (mut rate, mut now, mut credit) = (LEAST, RTT, 0.0);
        let (mut sum, mut sent, mut lost) = (0.0, 0.0, 0.0);
        while now < seconds {
            now += 1.0 / rate.0;
            credit = (credit + limit / rate.0).min(2.0);
            let refused = credit < 1.0;
            if !refused {
                credit -= 1.0;
            }
            if now > seconds / 2.0 {
                sum += 1.0;
                sent += 1.0;
                lost += f64::from(u8::from(refused));
            }
            let outcome = if refused { Outcome::TimedOut } else { Outcome::Acked };
            let time = Time::from_secs_f64;
            let report = Report { now: time(now), sent_at: time(now - RTT), ..Report::of(outcome, &path, &rtts) };
            rate = relay.after(&config, rate, &report, f64::from(u8::from(refused)));
        }
        (sum / (seconds / 2.0), lost / sent)
    }

    /// Growth a √x and fall β x for each loss balance at a share a / (β x^1.5) that is lost.
    #[test]
    fn what_is_lost_is_where_growth_and_fall_balance() {
        for limit in [13.0, 50.0, 200.0] {
            let (rate, lost) = alone(limit, 4_000.0);
            let expected = 0.004 / (0.05 * limit.powf(1.5));
            assert!((rate / limit - 1.0).abs() < 0.06, "{rate} of {limit}");
            assert!(lost < 6.0 * expected, "{lost} lost at {limit}, where {expected} balance");
        }
    }

    #[test]
    fn a_rate_that_is_not_used_stays_below_four_times_what_arrives_and_ten_packets_a_round_trip() {
        let rtts = PairRtts::new(&RttConfig::default(), 2);
        let path = [Hop::default()];
        for starts in [true, false] {
            let config = TimeoutsConfig { starts, ..TimeoutsConfig::default() };
            let mut relay = LossRate::new(Time::ZERO);
            let mut rate = PacketRate(1.0);
            for packet in 1..=1000 {
                let now = Time::from_secs_f64(RTT * f64::from(packet));
                let sent_at = now.before(Duration::from_secs_f64(RTT));
                let report = Report { now, sent_at, ..Report::of(Outcome::Acked, &path, &rtts) };
                rate = relay.after(&config, rate, &report, 0.0);
            }
            let most = (4.0 + 10.0) / RTT;
            assert!((0.99 * most..1.01 * most).contains(&rate.0), "{rate:?}, not {most}");
        }
    }

    #[test]
    fn a_rate_starts_by_half_a_round_trip_and_ends_its_start_once() {
        let rtts = PairRtts::new(&RttConfig::default(), 2);
        let path = [Hop::default()];
        let config = TimeoutsConfig::default();
        let mut relay = LossRate::new(Time::ZERO);
        let at = |now: f64, sent: f64, outcome| Report {
            now: Time::from_secs_f64(now),
            sent_at: Time::from_secs_f64(sent),
            ..Report::of(outcome, &path, &rtts)
        };
        let mut rate = PacketRate(1.0);
        for trip in 0..10 {
            let packets = (rate.0 * RTT).ceil() as u32;
            for packet in 1..=packets {
                let now = RTT * (f64::from(trip) + f64::from(packet) / f64::from(packets));
                rate = relay.after(&config, rate, &at(now, now - RTT, Outcome::Acked), 0.0);
            }
        }
        assert!((rate.0 - 1.5f64.powi(10)).abs() < 1e-6 && relay.starting, "{rate:?}");
        let ended = relay.after(&config, rate, &at(5.1, 4.6, Outcome::TimedOut), 1.0);
        assert!((ended / rate - START_END).abs() < 1e-9 && !relay.starting);
        // What left before that says nothing new.
        assert_eq!(relay.after(&config, ended, &at(5.2, 4.7, Outcome::TimedOut), 1.0), ended);
        assert!(relay.after(&config, ended, &at(5.9, 5.4, Outcome::TimedOut), 1.0) < ended);
    }
}
