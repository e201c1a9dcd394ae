//! Rates from the delay and the loss of each relay, told apart from round trips and timeouts alone.
//!
//! How long packets wait at each relay, w, is found by delay tomography (`queue_delays.rs`), who loses
//! them by loss tomography (`losses.rs`). What a sender does over a relay depends on which it meets:
//!
//! - **A start.** The rate grows by 1.4 each round trip, until packets wait or are lost, and falls to
//!   what it was two round trips before.
//! - **A queue.** With the round trip T and x packets a second, RCP's rule [Dukkipati 2007], at a sender:
//!
//!   ```text
//!   x  <- x exp(-α dw / T + β (w* - w) / T dt / T)
//!   w* = τ (x τ)^(-1/4)
//!   ```
//!
//!   A queue's length does not tell senders apart. That who sends more wants it shorter makes their rates
//!   meet, as in FAST [Wei 2006]. Three more rules: where nothing has waited for three round trips, the
//!   rate climbs, faster each round trip, up to four times that at which something did; where many are
//!   lost, it falls by the share that is; and a wait that stays beyond w* whatever the rate is slowly
//!   taken for a part of the way. Loss that does not follow load costs nothing.
//! - **None.** Where packets are lost and none waits, loss decides as in `timeouts.rs`. What a single
//!   relay is may be uncertain: as long as most have been seen to queue, the others are taken to.
//! - **A dropper.** A relay that loses more than a fifth, and more than twice what half of the relays lose,
//!   is on trial: it gets a sixteenth of the usual rate until three packets in a row have come over it.
//!
//! A loss is shared among the relays of a path that queue beyond w*, as far as they do; if none does, by
//! the noisy OR.
//!
//! Limits of use: see `docs/controllers/tomography.md`.

use serde::Deserialize;

use super::credits::Credits;
use super::losses::Losses;
use super::queue_delays::{Parts, QueueDelays};
use super::setup::{Factory, factory};
use super::timeouts::{LossRate, MOST, TimeoutsConfig};
use super::{Hop, Outcome, PathController, Report, Slot};
use crate::filter::median;
use crate::registry::{ParameterError, in_range};
use crate::rng::Rng;
use crate::time::{Millis, Seconds, Time};
use crate::units::{Bytes, Octets, PacketRate, Packets, Rate, WindowUnit};
use crate::wake::Wake;

/// Parameters. All but the first are there to measure what each part is worth.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TomographyConfig {
    /// The wait τ that a sender of one packet in τ aims at. More fills
    /// relays better and loses more: the page of the controller has figures.
    pub target_ms: Millis,
    /// Whether ways between two nodes are learned.
    pub pairs: bool,
    /// Whether relays' queues have a part in common.
    pub shared: bool,
    /// Whether rates climb where nothing waits.
    pub climbs: bool,
    /// Whether rates fall where much is lost.
    pub cuts: bool,
    /// Whether waits that stay become part of the way.
    pub renews: bool,
    /// Whether loss decides where nothing waits.
    pub falls_back: bool,
    /// Whether a relay that loses too much is put on trial.
    pub tries: bool,
}

impl Default for TomographyConfig {
    fn default() -> TomographyConfig {
        TomographyConfig {
            target_ms: Millis(10.0),
            pairs: true,
            shared: true,
            climbs: true,
            cuts: true,
            renews: true,
            falls_back: true,
            tries: true,
        }
    }
}

/// The first rate, and the least but for one on trial.
const FIRST: PacketRate = PacketRate(1.0);
const LEAST: PacketRate = PacketRate(0.25);
const LEAST_ON_TRIAL: PacketRate = PacketRate(1.0 / 60.0);

/// A rate grows by this each round trip at the start.
const START_GROWTH: f64 = 1.4;

/// α and β, RCP's [Dukkipati 2007].
const DAMPING: f64 = 0.4;
const RESTORING: f64 = 0.226;

/// By what power of the rate the wait that is aimed at falls.
const YIELDS: f64 = 0.25;

/// Nothing waits if it is less than this share of what is aimed at. The climb begins after this many round
/// trips without, with this growth a round trip; growth doubles in two and has a limit.
const SHORT: f64 = 0.25;
const CLIMB_AFTER: f64 = 3.0;
const CLIMB: f64 = 0.1;
const FASTEST_CLIMB: f64 = 0.4;

/// The climb ends at this many times the rate at which something waited.
const HIGHEST_CLIMB: f64 = 4.0;

/// Once something waits, the climb of this many round trips is undone: what has been sent since then.
const UNDONE: f64 = 1.5;

/// A rate is no more than this many times what is used of it, if it grows; a start grows by 2 while one
/// round trip is under way and one is averaged over.
const UNUSED: f64 = 4.0;

/// No more counts as used.
const MOST_USED: PacketRate = PacketRate(1e9);

/// Weight of an outcome in what has lately been lost; the share from which on it is much; and how many
/// round trips pass between two falls, until the outcomes tell of the first.
const RECENT: f32 = 1.0 / 16.0;
const MUCH_LOST: f64 = 0.15;
const BETWEEN_CUTS: f64 = 2.5;

/// In this many round trips a wait beyond what is aimed at becomes part of the way.
const RENEWED: f64 = 200.0;

/// A wait of this many deviations is a queue if it lasts this many round trips, or one in what all share.
const CERTAIN: f64 = 4.0;
const LASTS: f64 = 4.0;

/// A loss that tells that packets are refused, once this many round trips have passed since the start.
const REFUSED: f64 = 0.01;
const SETTLED: f64 = 10.0;

/// As `explicit_rate.rs` has them: what a relay may lose, and from how many outcomes on it is judged.
const TOLERATED: f64 = 0.2;
const JUDGED_AFTER: u32 = 10;

/// The share of the usual rate on trial, and ACKs in a row that end it.
const TRIAL: f64 = 1.0 / 16.0;
const CLEARED: u8 = 3;

/// What stands for a round trip before the first.
const UNKNOWN_TRIP: Seconds = Seconds(1.0);

/// Outcomes between two looks at all relays.
const REVIEW: u32 = 64;

/// What a relay is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Starts,
    Queues,
    Refuses,
    OnTrial,
}

#[derive(Clone, Copy, Debug)]
struct Relay {
    kind: Kind,
    by_loss: LossRate,
    updated: Time,
    /// What packets waited when it was updated, in seconds.
    wait: f32,
    /// Since when nothing waits, and the rate before, in packets a second.
    short_since: Time,
    waited_at: f32,
    /// The growth of its climb; zero if it does not.
    climb: f32,
    /// Since when it certainly has a queue, or when it last certainly had none.
    uncertain_at: Time,
    has_queued: bool,
    started_until: Time,
    cut_at: Time,
    /// The share of its last packets that is lost.
    lost: f32,
    /// Outcomes a second.
    used: f32,
    /// ACKs in a row.
    acks: u8,
    has_acked: bool,
}

impl Relay {
    fn new(start: Time) -> Relay {
        Relay {
            kind: Kind::Starts,
            by_loss: LossRate::new(start),
            updated: start,
            wait: 0.0,
            short_since: start,
            waited_at: 0.0,
            climb: 0.0,
            uncertain_at: start,
            has_queued: false,
            started_until: start,
            cut_at: start,
            lost: 0.0,
            used: 0.0,
            acks: 0,
            has_acked: false,
        }
    }

    /// Outcomes of its packets over time.
    fn used(&self) -> PacketRate {
        PacketRate(f64::from(self.used))
    }

    /// The start ends with what was sent two round trips ago.
    fn end_start(&mut self, now: Time, rate: PacketRate) -> PacketRate {
        self.kind = Kind::Queues;
        (self.started_until, self.cut_at) = (now, now);
        rate / (START_GROWTH * START_GROWTH)
    }
}

/// What an outcome tells of one relay.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The smoothed round trip.
    trip: Seconds,
    /// Its packets' wait less one deviation, and what is aimed at.
    wait: Seconds,
    target: Seconds,
    /// The deviation of the wait.
    deviation: Seconds,
    /// Round trips since the last outcome.
    steps: f64,
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Tomography {
    config: TomographyConfig,
    by_loss: TimeoutsConfig,
    packet: Octets,
    credits: Credits,
    losses: Losses,
    queues: QueueDelays,
    relays: Box<[Relay]>,
    /// What half of the relays lose and get, and whether most have queued, when it was looked at last.
    usual_loss: f64,
    usual_rate: PacketRate,
    most_queue: bool,
    /// Outcomes since then.
    outcomes: u32,
}

/// Makes one.
///
/// # Errors
///
/// When a parameter is unknown or out of its range.
pub fn build(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: TomographyConfig = crate::registry::parameters(parameters)?;
    in_range("target_ms", config.target_ms.0, 0.01..=1e4)?;
    let parts = Parts { pairs: config.pairs, shared: config.shared };
    Ok(factory(move |setup| Tomography {
        config: config.clone(),
        by_loss: TimeoutsConfig::default(),
        packet: setup.packet.into(),
        credits: Credits::new(setup.peers, FIRST, setup.start),
        losses: Losses::new(setup.peers),
        queues: QueueDelays::new(parts, setup.peers, setup.start),
        relays: vec![Relay::new(setup.start); setup.peers].into(),
        usual_loss: 0.0,
        usual_rate: FIRST,
        most_queue: false,
        outcomes: 0,
    }))
}

impl Tomography {
    /// Looks again at what holds for most relays.
    fn review(&mut self) {
        self.outcomes = 0;
        let slots = || (0..self.relays.len()).map(|index| Slot(index as u16));
        self.usual_loss = median(slots().map(|slot| self.losses.of(slot)).collect()).unwrap_or(0.0);
        self.usual_rate = median(slots().map(|slot| self.credits.rate(slot).0).collect()).map_or(FIRST, PacketRate);
        self.most_queue = 2 * self.relays.iter().filter(|relay| relay.has_queued).count() > self.relays.len();
    }

    /// w* at the relay's rate.
    fn target(&self, slot: Slot) -> Seconds {
        let least = Seconds::from(self.config.target_ms);
        // x τ: how many packets that is.
        let packets = self.credits.rate(slot) * least;
        least * libm::pow(packets.0, -YIELDS)
    }

    /// Of a loss, what each relay that queues beyond its target has, as far as it does; nothing changed if
    /// none does.
    fn share_by_wait(&self, path: &[Hop], shares: &mut [f64]) {
        let beyond = |slot: Slot| match self.relays[slot.index()].kind {
            Kind::Queues => (self.queues.of(slot) - self.target(slot)).max(Seconds::ZERO),
            _ => Seconds::ZERO,
        };
        let total = Seconds(path.iter().map(|hop| beyond(hop.slot).0).sum());
        if total > Seconds::ZERO {
            for (hop, share) in path.iter().zip(shares) {
                *share = beyond(hop.slot) / total;
            }
        }
    }

    /// What the outcome tells of the relay; what is known of it is brought up to date.
    fn look(&mut self, report: &Report<'_>, slot: Slot, share: f64) -> Seen {
        let now = report.now;
        let is_lost = report.outcome == Outcome::TimedOut;
        let trip = self.queues.round_trip().unwrap_or(UNKNOWN_TRIP);
        let (target, wait, deviation) = (self.target(slot), self.queues.of(slot), self.queues.deviation(slot));
        let (shared, shared_deviation) = self.queues.shared();
        let rate = self.credits.rate(slot);
        let relay = &mut self.relays[slot.index()];
        let elapsed = now.since(relay.updated).seconds();
        relay.updated = relay.updated.max(now);
        let averaged = trip * 2.0;
        let arrived = if is_lost { Packets::ZERO } else { Packets::ONE };
        let used = relay.used() * libm::exp(-(elapsed / averaged)) + arrived / averaged;
        relay.used = used.min(MOST_USED).0 as f32;
        relay.lost += RECENT * (share as f32 - relay.lost);
        relay.acks = if is_lost { 0 } else { relay.acks.saturating_add(1) };
        relay.has_acked |= !is_lost;
        let surely = (wait - deviation).max(Seconds::ZERO);
        if surely > target * SHORT {
            relay.short_since = now;
            relay.waited_at = rate.0 as f32;
        }
        let queues_alone = wait > (deviation * CERTAIN).max(target);
        let queues_with_others = shared > (shared_deviation * CERTAIN).max(target / 2.0) && wait > target;
        if !queues_alone && !queues_with_others {
            relay.uncertain_at = now;
        }
        // A rate of less than one packet a round trip is brought up to date by each of them.
        let steps = elapsed.min(trip.max(Packets::ONE / rate)) / trip;
        Seen { trip, wait: surely, target, deviation, steps: steps.min(4.0) }
    }

    /// The rate over a relay after an outcome.
    fn rate_after(&mut self, report: &Report<'_>, slot: Slot, share: f64) -> PacketRate {
        let seen = self.look(report, slot, share);
        let tolerated = TOLERATED + 2.0 * self.usual_loss;
        let loss = self.losses.of(slot);
        let before = self.credits.rate(slot);
        let relay = &mut self.relays[slot.index()];
        let since = |time: Time| report.now.since(time).seconds() / seen.trip;
        let judged = self.config.tries && self.losses.seen(slot) >= JUDGED_AFTER;
        match relay.kind {
            Kind::Starts | Kind::Queues | Kind::Refuses if judged && loss > tolerated => {
                relay.kind = Kind::OnTrial;
                relay.acks = 0;
            }
            Kind::Starts
                if f64::from(relay.lost) > MUCH_LOST && seen.wait < seen.deviation && self.config.falls_back =>
            {
                relay.kind = Kind::Refuses;
                relay.by_loss = LossRate::new(report.now);
            }
            Kind::Queues
                if self.config.falls_back
                    && !self.most_queue
                    && loss > REFUSED
                    && since(relay.started_until) > SETTLED =>
            {
                relay.kind = Kind::Refuses;
                relay.has_queued = false;
                relay.uncertain_at = report.now;
                // Its start is over: the first loss ends it.
                relay.by_loss = LossRate::new(report.now);
                return relay.by_loss.after(&self.by_loss, before, report, 1.0);
            }
            Kind::Refuses if since(relay.uncertain_at) > LASTS => {
                relay.kind = Kind::Queues;
                relay.has_queued = true;
            }
            Kind::OnTrial if relay.acks >= CLEARED => {
                relay.kind = Kind::Starts;
                relay.lost = 0.0;
                self.losses.forget(slot);
            }
            _ => {}
        }
        match self.relays[slot.index()].kind {
            Kind::Starts => self.start(report.now, slot, &seen),
            Kind::Queues => self.hold_queue(report, slot, &seen),
            Kind::Refuses => self.relays[slot.index()].by_loss.after(&self.by_loss, before, report, share),
            Kind::OnTrial => return (self.usual_rate * TRIAL).clamp(LEAST_ON_TRIAL, FIRST),
        }
        .clamp(LEAST, MOST)
    }

    fn start(&mut self, now: Time, slot: Slot, seen: &Seen) -> PacketRate {
        let before = self.credits.rate(slot);
        let relay = &mut self.relays[slot.index()];
        let waits = seen.wait > (seen.deviation * 2.0).max(seen.target / 2.0);
        let ends = waits || f64::from(relay.lost) > MUCH_LOST;
        if ends {
            return relay.end_start(now, before);
        }
        let is_used = before < relay.used() * UNUSED;
        before * if is_used { libm::pow(START_GROWTH, seen.steps) } else { 1.0 }
    }

    fn hold_queue(&mut self, report: &Report<'_>, slot: Slot, seen: &Seen) -> PacketRate {
        let &Seen { trip, wait, target, steps, .. } = seen;
        let before = self.credits.rate(slot);
        if wait > target && self.config.renews {
            self.queues.renew(slot, (wait - target) * steps.min(2.0) / RENEWED);
        }
        let relay = &mut self.relays[slot.index()];
        let since = |time: Time| report.now.since(time).seconds() / trip;
        relay.has_queued |= since(relay.uncertain_at) > 1.0;
        let moved = wait - Seconds(f64::from(relay.wait));
        relay.wait = wait.0 as f32;
        let mut growth = moved * -DAMPING / trip + (target - wait) * RESTORING / trip * steps;
        let short = since(relay.short_since) - CLIMB_AFTER;
        if self.config.climbs && short > 0.0 && before < PacketRate(f64::from(relay.waited_at)) * HIGHEST_CLIMB {
            relay.climb = (CLIMB * libm::exp2((short / 2.0).min(20.0))).min(FASTEST_CLIMB) as f32;
            growth = growth.max(f64::from(relay.climb) * steps);
        } else if short <= 0.0 && relay.climb > 0.0 {
            growth -= UNDONE * f64::from(relay.climb);
            relay.climb = 0.0;
        }
        if before >= relay.used() * UNUSED {
            growth = growth.min(0.0);
        }
        let rate = before * libm::exp(growth.clamp(-0.7, 0.7));
        let lost = f64::from(relay.lost);
        let is_lost = report.outcome == Outcome::TimedOut;
        if self.config.cuts && is_lost && lost > MUCH_LOST && since(relay.cut_at) > BETWEEN_CUTS {
            relay.cut_at = report.now;
            relay.lost = 0.0;
            return rate * (1.0 - lost);
        }
        rate
    }

    fn learn(&mut self, report: &Report<'_>) {
        let relays = &self.relays;
        self.queues.learn(report, |slot| relays[slot.index()].kind == Kind::Starts);
    }
}

impl PathController for Tomography {
    fn select(&mut self, now: Time, destination: Slot, _size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        self.credits.take(now, destination, path, rng)
    }

    fn on_outcome(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        let mut shares = [0.0; super::MAX_RELAYS];
        let shares = &mut shares[..report.path.len()];
        self.losses.learn(report, true, |place, blame| shares[place] = blame.share);
        match report.outcome {
            Outcome::Acked => self.learn(report),
            Outcome::TimedOut => self.share_by_wait(report.path, shares),
        }
        self.outcomes += 1;
        if self.outcomes >= REVIEW {
            self.review();
        }
        for (hop, &mut share) in report.path.iter().zip(shares) {
            let rate = self.rate_after(report, hop.slot, share);
            let relay = &self.relays[hop.slot.index()];
            // Nothing has come over it yet, and something was lost.
            let is_suspect = self.config.tries && !relay.has_acked;
            self.credits.set_on_trial(hop.slot, relay.kind == Kind::OnTrial || is_suspect);
            if rate != self.credits.rate(hop.slot) {
                self.credits.set_rate(report.now, hop.slot, rate);
            }
        }
    }

    fn on_late(&mut self, report: &Report<'_>, _rng: &mut Rng) {
        self.losses.forgive(report);
        self.learn(report);
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
            + self.queues.heap_bytes()
            + size_of_val(&*self.relays)
    }

    fn trace(&self, peer: Slot, record: &mut dyn FnMut(&'static str, f64)) {
        let relay = &self.relays[peer.index()];
        record("rate_bytes_per_s", self.credits.rate(peer).in_bytes(self.packet).0);
        record("wait_ms", self.queues.of(peer).as_millis());
        record("wait_deviation_ms", self.queues.deviation(peer).as_millis());
        record("loss", self.losses.of(peer));
        record("queues", f64::from(u8::from(relay.kind == Kind::Queues)));
        record("set_aside", f64::from(u8::from(relay.kind == Kind::OnTrial)));
    }
}

#[cfg(test)]
mod tests;
