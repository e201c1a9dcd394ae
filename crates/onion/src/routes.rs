//! Which relays a packet takes in one half of its path, and how much each of them is given.
//!
//! A half is one of the user's guards and h − 1 middles, other ones for every packet; with no guards it
//! is h relays. On a path no relay is twice, no two are of one family or one network, and a guard of
//! this user is never a middle. The total rate is decided elsewhere and never here: a learner only moves
//! packets between relays, by
//!
//! ```text
//! b_i = w_i / Σ w                                    the share that the document advertises
//! q_i = min(C b_i, max(F b_i, λ r_i)), Σ q = 1       the share that relay i is drawn with
//! ```
//!
//! where r_i is the rate that the learner believes relay i to carry, F [`FLOOR`] and C [`CAP`]. The floor
//! keeps every relay tried; that of a relay which is gone shrinks with each further loss ([`floor`]). The
//! cap bounds what a relay gains that is fast, or that makes others look bad: by dropping what does not
//! pass its friends, or by withholding ACKs, it gets twice its advertised share at most. `per-path` alone goes by paths instead (`per_path.rs`).
//!
//! Outcomes come packet by packet, late, or never; a packet of which nothing is heard is given up when
//! [`MOST_OPEN`] others have left after it.

mod config;
mod per_path;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use anabranch_control::path::{Hop, Outcome, PathController, Report, Slot};
use anabranch_control::rng::Rng;
use anabranch_control::rtt::{PairRtts, RttConfig};
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use thiserror::Error;

pub use config::{CAP, FLOOR, PlacementError, RoutesConfig};

use crate::RelayIndex;
use crate::directory::{Document, Network, PublicKey};
use crate::guards::Choice;
use crate::size::MOST_HOPS;
use config::Placement;
use per_path::PerPath;
use shares::{Candidate, Shares};

/// Packets whose outcome may be open.
pub const MOST_OPEN: usize = 1 << 16;

/// Halves of others that may be told apart: each is one node to a learner, which takes its share of
/// blame and delay.
pub const MOST_FAR: usize = 16;

/// A draw that breaks a rule is drawn again so often; then it is drawn of those that break none.
const TRIES: usize = 32;

/// A relay of which fewer outcomes are known is believed to be as the others of its weight are.
const EVIDENCE: u32 = 8;

/// A relay over which this many packets in a row did not arrive has the least share until one does, whatever its learner
/// believes: rates that were learned in minutes are unlearned in minutes, and what a relay that is gone loses meanwhile
/// holds down the total rate. With a third of all packets lost for other reasons, one in 6000 packets comes after eight lost ones.
const GONE: u32 = 8;

/// A relay over which this many in a row did not arrive is a suspect. If all relays lose alike, which of them are says
/// nothing of what the next packets over the others meet: to count those alone is no bias.
const SUSPECT: u32 = 3;

/// The rate for its weight of a relay that is gone, of the least of those that are there: below any floor, unless most are gone.
const GONE_PART: f64 = 1.0 / 1024.0;

/// Shares are computed anew after this many outcomes, or an eighth of the number of relays.
const REVIEW: usize = 32;

/// Whose half of a path it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// From the user: its guard is first.
    FromUser,
    /// To the user: its guard is last.
    ToUser,
}

/// What a half is to lead to, or to come from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Whose half it is.
    pub half: Half,
    /// Relays that are elsewhere on the path: the exit, the mailbox, a known part of the other half.
    pub elsewhere: &'a [RelayIndex],
    /// Which of the other halves it joins, below [`MOST_FAR`].
    pub far: u8,
}

/// Relays of one half, in the order in which a packet passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    relays: [RelayIndex; MOST_HOPS],
    hops: u8,
}

impl Path {
    fn new() -> Path {
        Path { relays: [RelayIndex(0); MOST_HOPS], hops: 0 }
    }

    fn push(&mut self, relay: RelayIndex) {
        self.relays[usize::from(self.hops)] = relay;
        self.hops += 1;
    }

    /// The relays.
    pub fn relays(&self) -> &[RelayIndex] {
        &self.relays[..usize::from(self.hops)]
    }
}

/// Names a packet until its outcome is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(u64);

/// A path that a packet takes, and by which name its outcome is to be reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its name.
    pub id: RouteId,
    /// Its relays.
    pub path: Path,
    /// Whether one of them is a suspect, while most are not: over the last packets that took it, none arrived. Who decides
    /// how many packets leave learns nothing from what becomes of this one.
    pub is_trial: bool,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has arrived: an ACK vector names it, or the block that it was came back.
    Arrived {
        /// Arrival on the receiver's clock less departure on ours, in nanoseconds, if that is known: the
        /// delay one way plus an offset between the clocks (RFC 6817 2.1).
        one_way_nanos: Option<i64>,
    },
    /// Nothing was heard of it by its deadline.
    Lost,
}

/// What was sent over a relay, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// On whose path it stood first, second and so on, in the order in which packets pass relays.
    pub at: [u64; MOST_HOPS],
    /// Of these, those that arrived.
    pub arrived: u64,
    /// Of these, those that were given up.
    pub lost: u64,
}

/// Why there is no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RouteError {
    /// No guard answers, and no further one may be drawn.
    #[error("none of the user's guards answers; no other relay takes their place")]
    NoGuard,
    /// The document has too few relays that may stand on one path.
    #[error("the document has too few relays of different families and networks for a path of {hops} hops")]
    TooFewRelays {
        /// How many there must be.
        hops: usize,
    },
}

/// What a path needs to know of a relay.
#[derive(Clone, Copy, Debug)]
struct Place {
    network: Network,
    family: Option<PublicKey>,
    weight: f64,
    slot: Slot,
    is_reserved: bool,
}

/// What is known of a relay. It lies together: of a thousand relays none is in a near cache.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Outcomes.
    evidence: u32,
    /// Packets that were lost since one arrived.
    lost_in_a_row: u32,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Open {
    sent_at: Time,
    hops: [Hop; MOST_HOPS],
    path: Path,
    far: u8,
    /// Where on the list of `per-path` its path stands.
    candidate: Option<u32>,
}

/// Chooses the relays of one user's halves.
#[derive(Clone, Debug)]
pub struct Routes {
    config: RoutesConfig,
    places: Vec<Place>,
    guards: Choice,
    /// Whether the user goes by guards at all.
    is_guarded: bool,
    learner: Learner,
    rtts: PairRtts,
    slots: BTreeMap<PublicKey, Slot>,
    /// Slots that relays may have.
    capacity: usize,
    /// What is known of each slot, and what was sent over it.
    known: Vec<Known>,
    used: Vec<Used>,
    middles: Shares,
    first: Shares,
    /// Outcomes since the shares were computed.
    outcomes: usize,
    /// Whether most relays are no suspects.
    has_others: bool,
    /// How often each relay was drawn in a place that the learner fills, by its place in the document.
    drawn: Vec<u64>,
    open: VecDeque<Option<Open>>,
    /// The name of the first of `open`.
    oldest: u64,
}

#[derive(Clone, Debug)]
enum Learner {
    /// By advertised weight alone.
    Weights,
    PerRelay(Box<dyn PathController>),
    PerPath(PerPath),
}

impl Routes {
    /// Routes over the relays of `document`, for a user with `guards` (in use, of `count`), from `now` on.
    ///
    /// # Errors
    ///
    /// What is wrong with the configuration.
    pub fn new(
        config: RoutesConfig,
        document: &Document,
        count: usize,
        guards: Choice,
        now: Time,
    ) -> Result<Routes, PlacementError> {
        config.check()?;
        // Room for relays to come, so that what is known of the others outlives many epochs.
        let capacity = (document.len() + document.len() / 4 + 16).min(usize::from(u16::MAX) - 1 - MOST_FAR);
        let (learner, rtts) = Routes::learner(&config, capacity, now)?;
        let mut routes = Routes {
            config,
            places: Vec::new(),
            guards: Choice::default(),
            is_guarded: count > 0,
            learner,
            rtts,
            slots: BTreeMap::new(),
            capacity,
            known: vec![Known { evidence: 0, lost_in_a_row: 0 }; capacity],
            used: vec![Used::default(); capacity],
            middles: Shares::default(),
            first: Shares::default(),
            outcomes: 0,
            has_others: false,
            drawn: Vec::new(),
            open: VecDeque::new(),
            oldest: 0,
        };
        routes.take(document, guards);
        Ok(routes)
    }

    fn learner(config: &RoutesConfig, capacity: usize, now: Time) -> Result<(Learner, PairRtts), PlacementError> {
        let peers = capacity + MOST_FAR;
        let learner = match config.placement()? {
            Placement::Weights => Learner::Weights,
            Placement::PerPath(config) => Learner::PerPath(PerPath::new(config)),
            Placement::Learner(entry) => Learner::PerRelay(config.controller(entry, peers, now)?),
        };
        let peers = if matches!(learner, Learner::PerRelay(_)) { peers } else { 0 };
        Ok((learner, PairRtts::per_relay(&RttConfig::default(), peers)))
    }

    /// Goes on with the document of another epoch, or with other guards. What is known of relays that
    /// stay is kept. Packets on their way keep their names; those of the epoch before teach nothing if
    /// too many relays are new.
    ///
    /// # Errors
    ///
    /// None that [`Routes::new`] has not had.
    pub fn renew(&mut self, document: &Document, guards: Choice, now: Time) -> Result<(), PlacementError> {
        let new = document.members.iter().filter(|member| !self.slots.contains_key(&member.descriptor.identity));
        if self.slots.len() + new.count() > self.capacity {
            let (config, open, count) = (self.config.clone(), self.open.len(), usize::from(self.is_guarded));
            let oldest = self.oldest + open as u64;
            *self = Routes { oldest, ..Routes::new(config, document, count, guards, now)? };
            return Ok(());
        }
        if let Learner::PerPath(paths) = &mut self.learner {
            paths.clear();
        }
        self.take(document, guards);
        Ok(())
    }

    fn take(&mut self, document: &Document, guards: Choice) {
        self.places.clear();
        for (relay, member) in document.relays() {
            let next = Slot(self.slots.len() as u16);
            let slot = *self.slots.entry(member.descriptor.identity).or_insert(next);
            self.places.push(Place {
                network: member.network(),
                family: member.family(),
                weight: member.weight as f64,
                slot,
                is_reserved: guards.reserved.contains(&relay),
            });
        }
        self.guards = guards;
        self.drawn.resize(self.places.len(), 0);
        self.review();
    }

    /// The relays for a packet that leaves at `now`.
    ///
    /// # Errors
    ///
    /// When no guard answers, or too few relays may stand on one path.
    pub fn choose(&mut self, now: Time, request: Request<'_>, rng: &mut Rng) -> Result<Route, RouteError> {
        let hops = self.config.hops;
        let too_few = RouteError::TooFewRelays { hops };
        let mut taken = Taken { elsewhere: request.elsewhere, path: Path::new() };
        if self.is_guarded {
            if self.guards.in_use.is_empty() {
                return Err(RouteError::NoGuard);
            }
            let guard = self.draw(&self.first, &taken, rng).ok_or(too_few)?;
            taken.path.push(guard);
        }
        let middles = hops - usize::from(taken.path.hops);
        let candidate = match &mut self.learner {
            Learner::PerPath(paths) => {
                let (places, shares) = (&self.places, &self.middles);
                let draw = |rng: &mut Rng| {
                    let (mut taken, mut drawn) = (taken, Path::new());
                    for _ in 0..middles {
                        let relay = draw(places, shares, &taken, rng)?;
                        drawn.push(relay);
                        taken.path.push(relay);
                    }
                    Some(drawn)
                };
                let (candidate, middles) =
                    paths.choose(|path| taken.allows_all(places, path.relays()), draw, rng).ok_or(too_few)?;
                middles.relays().iter().for_each(|relay| taken.path.push(*relay));
                candidate
            }
            _ => {
                for _ in 0..middles {
                    let relay = self.draw(&self.middles, &taken, rng).ok_or(too_few)?;
                    taken.path.push(relay);
                }
                None
            }
        };
        let mut path = taken.path;
        for relay in &path.relays()[usize::from(self.is_guarded)..] {
            self.drawn[usize::from(relay.0)] += 1;
        }
        if request.half == Half::ToUser && self.is_guarded {
            path.relays[..hops].rotate_left(1);
        }
        let mut open = Open {
            sent_at: now,
            hops: [Hop::default(); MOST_HOPS],
            path,
            far: request.far % MOST_FAR as u8,
            candidate,
        };
        for (at, (hop, relay)) in open.hops.iter_mut().zip(path.relays()).enumerate() {
            hop.slot = self.places[usize::from(relay.0)].slot;
            self.used[hop.slot.index()].at[at] += 1;
        }
        if let Learner::PerRelay(controller) = &mut self.learner {
            controller.adopt(now, self.config.packet, &mut open.hops[..hops], rng);
        }
        if self.open.len() == MOST_OPEN {
            self.on_outcome(RouteId(self.oldest), now, Fate::Lost, rng);
        }
        let is_suspect = |hop: &Hop| self.known[hop.slot.index()].lost_in_a_row >= SUSPECT;
        let is_trial = self.has_others && open.hops[..hops].iter().any(is_suspect);
        self.open.push_back(Some(open));
        Ok(Route { id: RouteId(self.oldest + self.open.len() as u64 - 1), path, is_trial })
    }

    fn draw(&self, shares: &Shares, taken: &Taken<'_>, rng: &mut Rng) -> Option<RelayIndex> {
        draw(&self.places, shares, taken, rng)
    }

    /// Learns what became of a packet; once for each. A report on one that is not known counts for nothing.
    pub fn on_outcome(&mut self, id: RouteId, now: Time, fate: Fate, rng: &mut Rng) {
        let Some(place) = id.0.checked_sub(self.oldest) else { return };
        let Some(open) = self.open.get_mut(place as usize).and_then(Option::take) else { return };
        while matches!(self.open.front(), Some(None)) {
            self.open.pop_front();
            self.oldest += 1;
        }
        let hops = &open.hops[..usize::from(open.path.hops)];
        for hop in hops {
            let used = &mut self.used[hop.slot.index()];
            let Known { lost_in_a_row, .. } = &mut self.known[hop.slot.index()];
            match fate {
                Fate::Arrived { .. } => (used.arrived, *lost_in_a_row) = (used.arrived + 1, 0),
                Fate::Lost => (used.lost, *lost_in_a_row) = (used.lost + 1, lost_in_a_row.saturating_add(1)),
            }
        }
        match &mut self.learner {
            Learner::Weights => return,
            Learner::PerPath(paths) => paths.on_outcome(open.candidate, fate != Fate::Lost),
            Learner::PerRelay(controller) => {
                let destination = Slot((self.capacity + usize::from(open.far)) as u16);
                let (outcome, one_way_nanos) = match fate {
                    Fate::Arrived { one_way_nanos } => (Outcome::Acked, one_way_nanos),
                    Fate::Lost => (Outcome::TimedOut, None),
                };
                let mut route = [destination; MOST_HOPS + 1];
                for (place, hop) in hops.iter().enumerate() {
                    let known = &mut self.known[hop.slot.index()];
                    route[place] = hop.slot;
                    known.evidence = known.evidence.saturating_add(1);
                }
                if outcome == Outcome::Acked {
                    self.rtts.sample(&route[..=hops.len()], now.since(open.sent_at));
                }
                let report = Report {
                    now,
                    sent_at: open.sent_at,
                    destination,
                    path: hops,
                    outcome,
                    one_way_nanos,
                    stamps: &[],
                    rtts: &self.rtts,
                };
                controller.on_outcome(&report, rng);
            }
        }
        self.outcomes += 1;
        if self.outcomes >= REVIEW.max(self.places.len() / 8) {
            self.review();
        }
    }

    /// Nobody will know what became of a packet: nothing is learned of it.
    pub fn forget(&mut self, id: RouteId) {
        if let Some(place) = id.0.checked_sub(self.oldest).and_then(|place| self.open.get_mut(place as usize)) {
            *place = None;
        }
        while matches!(self.open.front(), Some(None)) {
            self.open.pop_front();
            self.oldest += 1;
        }
    }

    /// A relay with the share of a middle, for an end of a path that anybody can be: none of `elsewhere`, and of other
    /// networks and families.
    pub fn any(&self, elsewhere: &[RelayIndex], rng: &mut Rng) -> Option<RelayIndex> {
        self.draw(&self.middles, &Taken { elsewhere, path: Path::new() }, rng)
    }

    /// How often each relay of the document was drawn where a learner draws: all places but the guard's. Documents
    /// of other epochs have other places.
    pub fn drawn(&self) -> &[u64] {
        &self.drawn
    }

    /// After how long a packet over `path` that nothing is heard of is lost (eq. 4.6).
    pub fn deadline(&self, path: &Path, far: u8) -> Duration {
        let Learner::PerRelay(controller) = &self.learner else { return DEADLINE };
        let destination = Slot((self.capacity + usize::from(far) % MOST_FAR) as u16);
        let mut route = [destination; MOST_HOPS + 1];
        for (slot, relay) in route.iter_mut().zip(path.relays()) {
            *slot = self.places.get(usize::from(relay.0)).map_or(destination, |place| place.slot);
        }
        let hops = usize::from(path.hops);
        controller.timeout(&route[..hops], destination, self.rtts.timeout(&route[..=hops]))
    }

    /// The share of the middles' places that a relay is drawn with; 0 for a guard of this user.
    pub fn share(&self, relay: RelayIndex) -> f64 {
        self.middles.of(relay)
    }

    /// What was sent over a relay since this began, or was last without room for new relays.
    pub fn used(&self, relay: RelayIndex) -> Used {
        self.places.get(usize::from(relay.0)).map_or(Used::default(), |place| self.used[place.slot.index()])
    }

    /// The rate that the learner believes a relay to carry for this user; none if it has no opinion.
    pub fn rate(&self, relay: RelayIndex) -> Option<Rate> {
        let place = self.places.get(usize::from(relay.0))?;
        match &self.learner {
            Learner::PerRelay(controller) if self.known[place.slot.index()].evidence >= EVIDENCE => {
                controller.rate(place.slot)
            }
            _ => None,
        }
    }

    /// Packets whose outcome is open.
    pub fn open(&self) -> usize {
        self.open.iter().flatten().count()
    }

    /// Bytes of a packet that rates count in.
    pub fn packet(&self) -> Bytes {
        self.config.packet
    }

    /// Computes the shares anew.
    fn review(&mut self) {
        self.outcomes = 0;
        let mut believed: Vec<Option<f64>> =
            (0..self.places.len()).map(|i| self.rate(RelayIndex(i as u16)).map(Rate::bytes_per_sec)).collect();
        let (gone, there): (Vec<usize>, Vec<usize>) =
            (0..self.places.len()).partition(|i| self.known[self.places[*i].slot.index()].lost_in_a_row >= GONE);
        let is_suspect = |place: &&Place| self.known[place.slot.index()].lost_in_a_row >= SUSPECT;
        self.has_others = 2 * self.places.iter().filter(is_suspect).count() < self.places.len();
        let per_weight = there.iter().filter_map(|i| Some(believed[*i]? / self.places[*i].weight));
        if let Some(least) = per_weight.min_by(f64::total_cmp) {
            gone.iter().for_each(|i| believed[*i] = Some(least * GONE_PART * self.places[*i].weight));
        }
        let (places, known, guards) = (&self.places, &self.known, &self.guards.in_use);
        let relays = |of: &dyn Fn(usize) -> bool| -> Vec<Candidate> {
            let of = (0..places.len()).filter(|&i| of(i));
            let candidate = |i: usize| Candidate {
                relay: RelayIndex(i as u16),
                weight: places[i].weight,
                rate: believed[i],
                floor: floor(&known[places[i].slot.index()]),
            };
            of.map(candidate).collect()
        };
        self.middles = Shares::new(places.len(), &relays(&|i| !places[i].is_reserved), CAP);
        self.first = Shares::new(places.len(), &relays(&|i| guards.contains(&RelayIndex(i as u16))), CAP);
    }
}

/// The least that a relay gets of its advertised share. After n losses in a row and no arrival, the next packet arrives
/// with a probability of 1 / (n + 2) (Laplace's rule of succession): a relay that is gone is asked ever more seldom, in
/// proportion to that.
fn floor(known: &Known) -> f64 {
    FLOOR * f64::from(GONE + 2) / f64::from(known.lost_in_a_row.max(GONE) + 2)
}

/// Where nothing is learned of delays: RFC 6298 2.1's first timeout for each of three links.
const DEADLINE: Duration = Duration::from_millis(3_000);

/// The relays that a path has already, wherever on it.
#[derive(Clone, Copy, Debug)]
struct Taken<'a> {
    elsewhere: &'a [RelayIndex],
    path: Path,
}

impl Taken<'_> {
    /// Whether `relay` may stand on the path too.
    fn allows(&self, places: &[Place], relay: RelayIndex) -> bool {
        let of = |relay: &RelayIndex| places.get(usize::from(relay.0));
        let Some(place) = of(&relay) else { return false };
        self.elsewhere.iter().chain(self.path.relays()).all(|other| {
            let shares = of(other).is_some_and(|other| {
                other.network == place.network || (place.family.is_some() && other.family == place.family)
            });
            *other != relay && !shares
        })
    }

    fn allows_all(&self, places: &[Place], relays: &[RelayIndex]) -> bool {
        relays.iter().all(|relay| self.allows(places, *relay))
    }
}

/// A relay that the path allows, by the shares.
fn draw(places: &[Place], shares: &Shares, taken: &Taken<'_>, rng: &mut Rng) -> Option<RelayIndex> {
    for _ in 0..TRIES {
        let relay = shares.draw(rng)?;
        if taken.allows(places, relay) {
            return Some(relay);
        }
    }
    shares.draw_of(|relay| taken.allows(places, relay), rng)
}
