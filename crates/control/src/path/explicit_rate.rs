//! Sends over each relay at the rate that the relay grants, as long as its word holds.
//!
//! A relay stamps on each ACK the rate that it grants to every sender (the relay's half of the rule
//! is `granted_rate.rs` of the protocol). A sender obeys, and looks at what becomes of its packets:
//!
//! - **Which stamp counts.** Relays nearer to the sender can change a stamp, and each packet takes
//!   others: a stamp of more than four times the one before, or less than a quarter, counts only
//!   if the next one confirms it.
//! - **How far it counts.** Who grants more than half of the relays do is given that much at once, and the
//!   rest step by step, as it delivers (`delivered.rs`).
//! - **Who does not keep its word.** A relay that loses more than a fifth of the packets, and more
//!   than twice what half of the relays lose (`losses.rs`), drops them on purpose or grants what it
//!   has not; a quarter of that is enough while it is sent less than two thirds of what it grants. So
//!   does one over which nothing has ever come, once this many packets over it were lost, though the
//!   other nodes of their paths are known to pass packets on, that this would be chance in one case of
//!   10⁵: a sequential test [Wald 1945], of a relay that drops everything against one that loses what
//!   half of the relays lose. So does, by the same test of what was lost over it and relays that live,
//!   one over which nothing has come for a second or two: it has died. Where there are several destinations, that is
//!   believed of relays that stamp alone: one that does not may refuse a sender's few packets for as long. It is set
//!   aside, first for ten seconds, then for twice as long each time, and judged anew. It comes back slowly, its rate
//!   doubling each round trip: all who set it aside come back with one, and it has granted to each what nobody used.
//! - **As long as nothing has come** over any relay, none is judged: a destination has part in all that is
//!   lost. Each is tried eight times a second once something was lost.
//! - **Who stamps nothing** gets what loss alone allows (`timeouts.rs`).
//!
//! For who watches, it says which relays misbehave: those that are set aside, those that change what others have
//! stamped (`stamp_changes.rs`), and those that delay what passes them far more than half of the relays do
//! (`delays.rs`). Nothing is done about the latter two: they carry, and what was changed does not count.
//!
//! Limits of use: a relay may grant too little and stay unused; that is its right. Loss that does not
//! come from load costs nothing, since rates do not follow loss.

use serde::Deserialize;

use super::ceiling::Startup;
use super::credits::Credits;
use super::delays::Delays;
use super::delivered::{Delivered, first_rate};
use super::losses::{Blame, Losses};
use super::round_trips::RoundTrips;
use super::setup::{Factory, factory};
use super::stamp_changes::StampChanges;
use super::timeouts::{LEAST, LossRates, MOST, TimeoutsConfig};
use super::{Hop, Outcome, PathController, Report, Slot};
use crate::filter::median;
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Octets, PacketRate, Rate, SinglePacketRate};
use crate::wake::Wake;

/// Parameters. Those from `moves` on are there to measure what each part is worth.
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
    /// Whether packets are moved against their relays' schedules.
    pub moves: bool,
    /// Whether that leaves the schedules even.
    pub evens: bool,
    /// Whether what goes to a node counts against its rate.
    pub counts: bool,
    /// Whether a stamp that is out of line counts only once the next confirms it.
    pub confirms: bool,
    /// Whether relays that grant more than most are believed step by step.
    pub steps: bool,
    /// Whether relays over which nothing comes are tested, and asked more often until they are.
    pub tests: bool,
    /// Whether relays are put on trial of which nothing is known, or that are set aside.
    pub tries: bool,
    /// Whether an ACK is waited for as long as its path takes.
    pub sums: bool,
    /// Whether what a sender's one destination is sent is bounded by what lately arrived there.
    pub begins: bool,
    /// Whether a queue before that one, which round trips tell of, bounds it further.
    pub queues: bool,
    /// Whether that one has a rate of its own once it seems to lose.
    pub caps: bool,
    /// Whether relays are set aside over which nothing comes any more.
    pub dies: bool,
    /// Whether packets that leave together take one path.
    pub trains: bool,
}

impl Default for ExplicitRateConfig {
    fn default() -> ExplicitRateConfig {
        let TimeoutsConfig { increase, decrease, .. } = TimeoutsConfig::default();
        ExplicitRateConfig {
            stamps: true,
            sets_aside: true,
            increase,
            decrease,
            tolerated_loss: 0.2,
            moves: true,
            evens: true,
            counts: true,
            confirms: true,
            steps: true,
            tests: true,
            tries: true,
            sums: true,
            begins: true,
            queues: true,
            caps: true,
            dies: true,
            trains: true,
        }
    }
}

impl ExplicitRateConfig {
    fn credits(&self, credits: Credits) -> Credits {
        let mut credits = credits.with_last_path_filled();
        if !self.moves {
            credits = credits.without_moves();
        }
        if !self.counts {
            credits = credits.without_destinations();
        }
        if self.trains {
            credits = credits.with_trains();
        }
        if self.evens { credits.without_drift() } else { credits }
    }
}

/// No grant counts as less: once a minute a relay is asked anew.
const LEAST_GRANT: PacketRate = PacketRate(1.0 / 60.0);

/// A stamp that differs by more than this factor from the one before needs another one.
const CREDIBLE: f64 = 4.0;

/// After this many ACKs in a row without a stamp, a relay that has stamped counts as one that does not.
const UNSTAMPED: u8 = 3;

/// A relay is judged after this many outcomes, at the earliest.
const JUDGED_AFTER: u32 = 10;

/// The likelihood ratio, as a logarithm, at which a relay counts as one that drops everything: ln 10⁵.
const SILENT: f32 = 11.5;

/// A relay over which something has come counts as one that has died when nothing has for so long: what exceeds a limit
/// in windows is lost for a second at most. Where there are several destinations, a few packets may find a long queue
/// full for longer.
const QUIET: Duration = Duration::from_millis(1_100);
const QUIET_OF_SEVERAL: Duration = Duration::from_millis(2_000);

/// The rate over a relay over which nothing has come and something was lost: twice what others that are not
/// known are tried with. About five decide (see [`SILENT`]), and are known to be lost after a second or two.
const DOUBTED: PacketRate = PacketRate(2.0 * LEAST.0);

/// The rate over a relay as long as nothing has come over any and something was lost over it: where half of eight are
/// dead, one path in fourteen over three of them is whole.
const UNHEARD: PacketRate = PacketRate(8.0 * LEAST.0);

/// What the best relay is taken to lose.
const LEAST_LOSS: f64 = 0.02;

/// A packet that leaves before any round trip is known is lost after RFC 6298's 2.1 first timeout.
const FIRST_TIMEOUT: Duration = Duration::SECOND;

/// A relay that is not yet sent all that it grants, by this factor, must not lose more than this part of what
/// is tolerated else: it would lose still more if it were believed.
const OVERSTATED: f64 = 1.5;
const OVERSTATED_PART: f64 = 0.25;

/// How long a relay is set aside the first time, and how often that is doubled.
const ASIDE: Duration = Duration::from_millis(10_000);
const MOST_DOUBLINGS: u8 = 6;

/// Outcomes between two looks at what half of the relays lose and grant: the first, doubled each time, and the
/// last. Before that one, what they grant is looked at four times as often: at the start it grows.
const FIRST_REVIEW: u32 = 4;
const REVIEW: u32 = 64;

#[derive(Clone, Copy, Debug)]
struct Relay {
    /// What it grants; zero where it has not said.
    granted: SinglePacketRate,
    /// Whether its last stamp was not credible.
    doubted: bool,
    /// ACKs without a stamp since the last one with.
    unstamped: u8,
    delivered: Delivered,
    /// The logarithm of the likelihood ratio of the losses since something has come over it.
    silence: f32,
    /// When the last packet left that has come over it, in seconds; the beginning if none has.
    heard: f32,
    /// Whether it was set aside, and has not yet delivered what it grants.
    is_back: bool,
    /// Set aside until then.
    aside_until: Option<Time>,
    /// How often it has been set aside, as far as that makes the next time longer.
    asides: u8,
}

// A sender keeps one for each peer that it knows: 64 of each of a million peers take 3 GB.
const _: () = assert!(size_of::<Relay>() <= 48);

impl Relay {
    /// One that has said nothing yet.
    fn new(start: Time) -> Relay {
        Relay {
            granted: SinglePacketRate::ZERO,
            doubted: false,
            unstamped: 0,
            delivered: Delivered::new(start),
            silence: 0.0,
            heard: single(start),
            is_back: false,
            aside_until: None,
            asides: 0,
        }
    }

    /// What it grants, if it does.
    fn granted(&self) -> Option<PacketRate> {
        (!self.stamps_nothing() && self.has_granted()).then_some(self.granted.into())
    }

    /// Whether it has said what it grants.
    fn has_granted(&self) -> bool {
        self.granted > SinglePacketRate::ZERO
    }

    /// Whether no ACK has come over it.
    fn is_unknown(&self) -> bool {
        !self.has_granted() && self.unstamped == 0
    }

    /// Whether it has died: of what left for `quiet` before `sent_at` nothing has come over it, and what others can't
    /// have lost by that was lost.
    fn has_died(&self, sent_at: Time, quiet: Duration) -> bool {
        self.silence >= SILENT && !self.is_unknown() && single(sent_at) - self.heard >= single(Time::ZERO + quiet)
    }

    /// Whether it does not stamp, as far as its ACKs tell.
    fn stamps_nothing(&self) -> bool {
        self.unstamped >= UNSTAMPED || (!self.has_granted() && self.unstamped > 0)
    }

    /// Whether a stamp of `rate` is in line with the one before; whatever it is, if there was none.
    fn is_credible(&self, rate: PacketRate) -> bool {
        let (before, now) = (PacketRate::from(self.granted), PacketRate::from(SinglePacketRate::from(rate)));
        !self.has_granted() || (before / CREDIBLE..=before * CREDIBLE).contains(&now)
    }

    /// A stamp that grants `rate`, or none, has come; whether one that is out of line must be confirmed.
    fn on_stamp(&mut self, rate: Option<PacketRate>, confirms: bool) {
        let Some(rate) = rate else {
            self.unstamped = self.unstamped.saturating_add(1);
            return;
        };
        self.unstamped = 0;
        let credible = !confirms || self.is_credible(rate);
        if credible || self.doubted {
            self.granted = rate.into();
        }
        self.doubted = !credible && !self.doubted;
    }
}

/// The controller.
#[derive(Clone, Debug)]
pub struct ExplicitRate {
    config: ExplicitRateConfig,
    by_loss: TimeoutsConfig,
    packet: Octets,
    credits: Credits,
    losses: Losses,
    delays: Delays,
    stamp_changes: StampChanges,
    relays: Box<[Relay]>,
    /// What loss allows over each relay; nothing as long as all stamp.
    loss_rates: Option<LossRates>,
    round_trips: RoundTrips,
    /// What half of the relays lose at most, and grant at most, when it was looked at last.
    usual_loss: f64,
    usual_grant: PacketRate,
    /// Outcomes since then, and with how many it is looked at again.
    outcomes: u32,
    next_review: u32,
}

/// In seconds, half as large.
fn single(time: Time) -> f32 {
    time.since(Time::ZERO).as_secs_f64() as f32
}

/// Makes one.
///
/// # Errors
///
/// When a parameter is unknown or out of its range.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: ExplicitRateConfig = crate::registry::parameters(parameters)?;
    let by_loss = TimeoutsConfig { increase: config.increase, decrease: config.decrease, ..TimeoutsConfig::default() };
    by_loss.check()?;
    in_range("tolerated_loss", config.tolerated_loss, 0.01..=0.9)?;
    Ok(factory(move |setup| ExplicitRate {
        config: config.clone(),
        by_loss: by_loss.clone(),
        packet: setup.packet.into(),
        credits: config.credits(Credits::new(setup.peers, LEAST, setup.start)),
        losses: Losses::new(setup.peers),
        delays: Delays::new(setup.peers, setup.start),
        stamp_changes: StampChanges::new(setup.peers),
        relays: vec![Relay::new(setup.start); setup.peers].into(),
        loss_rates: None,
        round_trips: RoundTrips::default(),
        usual_loss: 0.0,
        usual_grant: PacketRate::ZERO,
        outcomes: 0,
        next_review: FIRST_REVIEW,
    }))
}

impl ExplicitRate {
    /// Looks again at what half of the relays lose, and half of those that grant something grant.
    fn review(&mut self, now: Time) {
        self.outcomes = 0;
        self.next_review = (2 * self.next_review).min(REVIEW);
        let losses = (0..self.relays.len()).map(|index| self.losses.of(Slot(index as u16)));
        self.usual_loss = median(losses.collect()).unwrap_or(0.0);
        self.review_grants(now);
        self.delays.review(now);
    }

    /// What half of them grant is believed at once, also of those whose grants came before it was known: they would
    /// wait for another ACK.
    fn review_grants(&mut self, now: Time) {
        let grants = self.relays.iter().filter_map(Relay::granted).map(|granted| granted.0);
        self.usual_grant = median(grants.collect()).map_or(PacketRate::ZERO, PacketRate);
        for (index, relay) in self.relays.iter().enumerate() {
            let slot = Slot(index as u16);
            if let Some(granted) = relay.granted()
                && relay.aside_until.is_none()
                && !relay.is_back
                && self.credits.rate(slot) < granted.min(self.usual_grant)
            {
                self.credits.set_rate(now, slot, granted.min(self.usual_grant));
            }
        }
    }

    /// An ACK has come, in time or late.
    fn on_round_trip(&mut self, report: &Report<'_>) {
        self.round_trips.learn(report);
        self.delays.learn(report);
    }

    /// Whether over all other relays of the path something has come that left later: they have not lost it by being dead.
    fn others_live(&self, report: &Report<'_>, place: usize) -> bool {
        let sent_at = single(report.sent_at);
        let is_other = |&(other, _): &(usize, &Hop)| other != place;
        report.path.iter().enumerate().filter(is_other).all(|(_, hop)| self.relays[hop.slot.index()].heard >= sent_at)
    }

    /// What the destination may be sent, if that is bounded: only that of all packets is.
    fn startup(&self, report: &Report<'_>) -> Option<Startup> {
        if !self.config.begins || !self.credits.is_only(report.destination) {
            return None;
        }
        let arrived = &self.relays[report.destination.index()].delivered;
        let startup = Startup::of(arrived, self.round_trips.mean(), self.relays.len() - 1, report.path.len())?;
        Some(match self.grants() {
            true if self.config.queues => startup.unqueued(&self.round_trips),
            true => startup,
            false => startup.blind(),
        })
    }

    /// Whether the destination could have lost a packet. If there is no other it has part in all that is lost, but is not
    /// suspected where relays' limits are unknown, as long as none stamps: their rates fall together if it was the
    /// destination after all.
    fn suspects(&self, report: &Report<'_>) -> bool {
        !self.credits.is_only(report.destination) || (self.grants() && self.credits.tells_of_destination(report))
    }

    /// Whether relays grant something.
    fn grants(&self) -> bool {
        self.usual_grant > PacketRate::ZERO
    }

    /// Nothing has come over any relay, which says nothing of any of them: their destination had part in all that was
    /// lost, and who is always there would be blamed for it.
    fn try_sooner(&mut self, report: &Report<'_>) {
        for hop in report.path {
            self.credits.set_rate(report.now, hop.slot, Credits::first_rate(UNHEARD, self.relays.len()));
        }
    }

    /// Learns from a packet that has come or not; the blame of the relays that it passed.
    fn learn(&mut self, report: &Report<'_>, has_come: bool, blames: &[Blame]) {
        if has_come {
            self.on_round_trip(report);
            self.learn_who_changes_stamps(report);
        }
        let usual_loss = self.usual_loss.max(LEAST_LOSS);
        // What goes to a node counts against its rate as well.
        let destination = &mut self.relays[report.destination.index()];
        destination.delivered.learn(report.now, has_come, self.round_trips.mean());
        for (place, (hop, blame)) in report.path.iter().zip(blames).enumerate() {
            let stamp = self.stamp(report, place);
            let others_live = !has_come && self.others_live(report, place);
            let relay = &mut self.relays[hop.slot.index()];
            relay.delivered.learn(report.now, has_come, self.round_trips.mean());
            if has_come {
                if relay.is_unknown() && relay.aside_until.take().is_some() {
                    relay.is_back = true;
                    self.losses.forget(hop.slot);
                }
                relay.on_stamp(stamp, self.config.confirms);
                (relay.silence, relay.heard) = (0.0, single(report.sent_at).max(relay.heard));
            } else if self.config.tests && (relay.is_unknown() || others_live) {
                relay.silence -= libm::log(1.0 - (1.0 - usual_loss) * blame.others_pass) as f32;
            }
            let before = self.credits.rate(hop.slot);
            if self.config.sets_aside {
                self.judge(report, hop.slot);
            }
            let relay = self.relays[hop.slot.index()];
            let is_doubtful = relay.aside_until.is_some() || relay.is_unknown();
            self.credits.set_on_trial(hop.slot, self.config.tries && is_doubtful);
            let rate = match (relay.aside_until, relay.granted()) {
                (Some(_), _) => LEAST,
                // At once: a relay takes what is not used for room, and grants it to others.
                (None, Some(granted)) => self.believed(hop.slot, granted),
                // Its test takes as many packets at any rate, so it is sooner over.
                (None, None) if relay.is_unknown() && relay.silence > 0.0 => before.max(DOUBTED),
                // Until its first ACK is there, nobody knows whether it stamps.
                (None, None) if !relay.stamps_nothing() => before,
                (None, None) => self.by_loss(report, hop.slot, blame.share),
            };
            if rate != before {
                self.credits.set_rate(report.now, hop.slot, rate);
            }
        }
    }

    /// What the relay at `place` grants, if it says so and stamps are read.
    fn stamp(&self, report: &Report<'_>, place: usize) -> Option<PacketRate> {
        let stamp = report.stamp(place).filter(|_| self.config.stamps)?;
        Some(PacketRate::of(stamp.into(), self.packet).clamp(LEAST_GRANT, MOST))
    }

    /// A stamp passes the relays nearer to the sender. The first of a relay says nothing about them.
    fn learn_who_changes_stamps(&mut self, report: &Report<'_>) {
        for place in 1..report.path.len() {
            let relay = &self.relays[report.path[place].slot.index()];
            if relay.has_granted()
                && let Some(stamp) = self.stamp(report, place)
            {
                self.stamp_changes.learn(&report.path[..place], relay.is_credible(stamp));
            }
        }
    }

    /// Whether a relay is known not to do what relays should.
    fn misbehaves(&self, slot: Slot) -> bool {
        let is_aside = self.relays[slot.index()].aside_until.is_some();
        is_aside || self.stamp_changes.are_of(slot) || self.delays.is_out_of_line(slot)
    }

    /// What loss allows over a relay that stamps nothing, of which one had `share` now.
    fn by_loss(&mut self, report: &Report<'_>, slot: Slot, share: f64) -> PacketRate {
        let peers = self.relays.len();
        let rates = self.loss_rates.get_or_insert_with(|| LossRates::new(peers, report.now));
        let (before, loss) = (self.credits.rate(slot), self.losses.of(slot));
        let is_only = self.credits.is_only(report.destination);
        rates.after(&self.by_loss, slot, before, report, (share, loss), is_only)
    }

    /// How much of what `slot` grants is used.
    fn believed(&mut self, slot: Slot, granted: PacketRate) -> PacketRate {
        let relay = &mut self.relays[slot.index()];
        if relay.is_back {
            let allowed = relay.delivered.allows(LEAST);
            relay.is_back = allowed < granted;
            return granted.min(allowed);
        }
        if !self.config.steps {
            return granted;
        }
        let allowed = relay.delivered.allows(first_rate(self.round_trips.mean()).max(LEAST));
        granted.min(allowed.max(self.usual_grant))
    }

    /// Sets the relay aside if it loses too much, and takes it back once its time is over.
    fn judge(&mut self, report: &Report<'_>, slot: Slot) {
        let Report { now, sent_at, destination, .. } = *report;
        let loss = self.losses.of(slot);
        let relay = &mut self.relays[slot.index()];
        let sent = self.credits.rate(slot);
        let overstates = !relay.is_back && relay.granted().is_some_and(|granted| granted > sent * OVERSTATED);
        let part = if overstates { OVERSTATED_PART } else { 1.0 };
        let tolerated = part * self.config.tolerated_loss + 2.0 * self.usual_loss;
        let is_only = self.credits.is_only(destination);
        let quiet = if is_only { QUIET } else { QUIET_OF_SEVERAL };
        // Where there are several, relays that stamp nothing may refuse a sender's few packets for as long.
        let has_died = self.config.dies && (is_only || relay.has_granted()) && relay.has_died(sent_at, quiet);
        match relay.aside_until {
            None if (loss > tolerated && self.losses.seen(slot) >= JUDGED_AFTER)
                || (relay.is_unknown() && relay.silence >= SILENT)
                || has_died =>
            {
                // Who had part in all that was lost was blamed for it.
                if !has_died {
                    self.credits.reopen_ceiling(destination);
                } else if self.credits.lift_ceiling(destination) {
                    self.losses.forget(destination);
                }
                relay.aside_until = Some(now + ASIDE * (1 << relay.asides));
                relay.asides = (relay.asides + 1).min(MOST_DOUBLINGS);
            }
            // What is known of it is old: it is judged anew, as if nothing had come over it.
            Some(until) if now >= until => {
                relay.aside_until = None;
                relay.is_back = true;
                relay.granted = SinglePacketRate::ZERO;
                relay.unstamped = 0;
                (relay.silence, relay.heard) = (0.0, single(now));
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
        if report.outcome == Outcome::TimedOut && self.round_trips.mean() == Duration::ZERO {
            return self.try_sooner(report);
        }
        let mut blames = [Blame::default(); super::MAX_RELAYS];
        let suspects = self.suspects(report);
        self.losses.learn(report, suspects, |place, blame| blames[place] = blame);
        let loss = self.config.caps.then(|| self.losses.of(report.destination));
        self.credits.learn(report, loss, self.startup(report));
        self.learn(report, report.outcome == Outcome::Acked, &blames);
        self.outcomes += 1;
        if self.outcomes >= self.next_review {
            self.review(report.now);
        } else if self.next_review < REVIEW && self.outcomes.is_multiple_of((self.next_review / 4).max(FIRST_REVIEW)) {
            self.review_grants(report.now);
        }
    }

    fn on_late(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        self.losses.forgive(report);
        self.learn(report, true, &[Blame::default(); super::MAX_RELAYS]);
    }

    fn timeout(&self, path: &[Slot], destination: Slot, by_pairs: Duration) -> Duration {
        match self.config.sums {
            true => by_pairs.min(self.delays.timeout(path, destination).unwrap_or(FIRST_TIMEOUT)),
            false => by_pairs,
        }
    }

    fn wake(&self, now: Time) -> Wake {
        self.credits.wake(now)
    }

    fn rate(&self, peer: Slot) -> Option<Rate> {
        Some(self.credits.rate(peer).in_bytes(self.packet).whole())
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.credits.heap_bytes()
            + self.losses.heap_bytes()
            + self.delays.heap_bytes()
            + self.stamp_changes.heap_bytes()
            + size_of_val(&*self.relays)
            + self.loss_rates.as_ref().map_or(0, LossRates::heap_bytes)
    }

    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64)) {
        let relay = &self.relays[peer.index()];
        record("rate_bytes_per_s", self.credits.rate(peer).in_bytes(self.packet).0);
        record("granted_bytes_per_s", relay.granted().unwrap_or(PacketRate::ZERO).in_bytes(self.packet).0);
        record("loss", self.losses.of(peer));
        record("delay_ms", self.delays.of(peer).as_millis_f64());
        record("set_aside", f64::from(u8::from(relay.aside_until.is_some())));
        record("misbehaves", f64::from(u8::from(self.misbehaves(peer))));
    }
}

#[cfg(test)]
mod tests;
