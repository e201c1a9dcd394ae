//! When each relay may be used again, and which relays a packet takes: a virtual scheduling
//! algorithm for each relay (GCRA, ITU-T I.371), and the relays that have waited longest, counted
//! in packets of their rates.

use super::ceiling::{Ceiling, Startup};
use super::train::{self, Train};
use super::{Hop, Outcome, Report, Slot};
use crate::pacer::{burst_of, charged};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{PacketRate, Packets, SinglePacketRate, WindowUnit};
use crate::wake::Wake;

/// However much goes to a node, it is asked to relay again after what its rate takes for this many, and
/// the first time at once, or nobody would learn what it could: at the start, most nodes get more than
/// their first rate.
const LONGEST_REST: Packets = Packets(8.0);

/// A relay that is due and was not asked for so long comes before all others: beside relays that grant a
/// million packets a second it would else never have most credit, and what it grants now would stay unknown.
const LONGEST_UNASKED: Duration = Duration::SECOND;

/// Relays of which nothing is known that are tried at once, and then each second: a sender that knows
/// thousands of peers is not to begin with a thousand packets. Of fewer, each is tried once a second, by
/// which relays count their senders.
const TRIES: usize = 100;

/// So many packets to a sender's one destination, which may take little, take no relay on trial before one does that
/// could do without.
const UNTRIED: u8 = 3;

/// A packet is moved by a random part of its relay's interval, at most this to either side: relays of equal rates
/// would else meet on the same paths again and again, and no outcome would tell them apart.
const DITHER: f64 = 0.2;

/// In place of an option, which would take as much again.
const NEVER: Time = Time::MAX;

/// Rates and theoretical arrival times of all relays that a sender knows.
#[derive(Clone, Debug)]
pub struct Credits {
    /// In packets a second, in single precision: a sender may know many.
    rates: Box<[SinglePacketRate]>,
    /// The theoretical arrival time of each relay's next packet.
    due: Box<[Time]>,
    /// By what part of its interval each relay's last packet was moved; empty where that moves those after it.
    moved: Box<[f32]>,
    /// The most that a packet is moved by, as a part of its relay's interval.
    dither: f64,
    /// Whether what goes to a node counts against its rate.
    counts_destinations: bool,
    /// Whether the last relays that were never asked are asked together with others that are not due.
    fills_last: bool,
    /// The last packet's path, where others that leave with it take the same.
    train: Option<Train>,
    /// Which relays are on trial, and how many are not.
    on_trial: Box<[bool]>,
    trusted: usize,
    /// Packets since one took one.
    untried: u8,
    /// When each relay was last given a packet to relay; [`NEVER`] before the first.
    relayed: Box<[Time]>,
    /// What may leave to the destination, if there is only one.
    ceiling: Ceiling,
    /// What was refused last: where to, and over how many relays.
    refused: Option<(Slot, u8)>,
    /// When enough relays are due for it.
    retry_at: Time,
}

impl Credits {
    /// All of `peers` relays at `rate` from `start` on; of more than [`TRIES`], that
    /// many at once and then as many a second, and each at a rate that keeps to this.
    pub fn new(peers: usize, rate: PacketRate, start: Time) -> Credits {
        let turn = |index: usize| Packets(index.saturating_sub(TRIES) as f64) / (rate * TRIES as f64);
        Credits {
            rates: vec![Credits::first_rate(rate, peers).into(); peers].into(),
            due: (0..peers).map(|index| start + turn(index).into()).collect(),
            moved: Box::default(),
            dither: DITHER,
            counts_destinations: true,
            fills_last: false,
            train: None,
            on_trial: vec![false; peers].into(),
            trusted: peers,
            untried: UNTRIED,
            relayed: vec![NEVER; peers].into(),
            ceiling: Ceiling::default(),
            refused: None,
            retry_at: start,
        }
    }

    /// The rate over each of `peers` relays of which nothing is known: of more than [`TRIES`], all of them together have
    /// that of so many at `rate`.
    pub fn first_rate(rate: PacketRate, peers: usize) -> PacketRate {
        rate * (TRIES as f64 / peers as f64).min(1.0)
    }

    /// The same, but no relay's schedule drifts: what a packet is moved by does not move those after it. So in any
    /// window there is a packet or two more than the rate says at most, however many there are; where it adds up,
    /// of a hundred it is now and then three more. Not for a controller that learns from how bursts fare
    /// (`tomography.rs`).
    #[must_use]
    pub fn without_drift(self) -> Credits {
        Credits { moved: vec![0.0; self.rates.len()].into(), ..self }
    }

    /// The same, but the last relays that were never asked do not wait for others to fill a path with. Not for a
    /// controller that learns from how bursts fare either.
    #[must_use]
    pub fn with_last_path_filled(self) -> Credits {
        Credits { fills_last: true, ..self }
    }

    /// The same, but packets that leave together take one path where its relays may be given as many at once.
    #[must_use]
    pub fn with_trains(self) -> Credits {
        Credits { train: Some(Train::default()), ..self }
    }

    /// The same, but no packet is moved: to measure what that is worth.
    #[must_use]
    pub fn without_moves(self) -> Credits {
        Credits { dither: 0.0, ..self }
    }

    /// The same, but what goes to a node does not count against its rate: to measure what that is worth.
    #[must_use]
    pub fn without_destinations(self) -> Credits {
        Credits { counts_destinations: false, ..self }
    }

    /// Whether `slot` is on trial from now on: as long as there are enough others, it gets no packet together with another
    /// one that is, so that an outcome tells of it alone, and of packets to a sender's one destination one of four takes
    /// such a relay at most: where little may leave, most arrives.
    #[inline]
    pub fn set_on_trial(&mut self, slot: Slot, on_trial: bool) {
        let before = std::mem::replace(&mut self.on_trial[slot.index()], on_trial);
        self.trusted = self.trusted + usize::from(before) - usize::from(on_trial);
    }

    /// How many of `hops` relays to `destination` may be on trial.
    #[inline]
    fn most_on_trial(&self, destination: Slot, hops: usize) -> usize {
        let trusted = self.trusted - usize::from(!self.on_trial[destination.index()]);
        hops.saturating_sub(trusted).max(1)
    }

    /// The rate over `slot`.
    #[inline]
    pub fn rate(&self, slot: Slot) -> PacketRate {
        self.rate_at(slot.index())
    }

    #[inline]
    fn rate_at(&self, index: usize) -> PacketRate {
        self.rates[index].into()
    }

    /// From now on `rate` over `slot`; what it has still to wait for, or has saved up, stays the same in
    /// packets.
    pub fn set_rate(&mut self, now: Time, slot: Slot, rate: PacketRate) {
        let index = slot.index();
        let before = self.rate_at(index);
        let scale = before / rate;
        let due = self.due[index];
        self.due[index] =
            if due > now { now + scaled(due.since(now), scale) } else { now.before(scaled(now.since(due), scale)) };
        self.rates[index] = rate.into();
        if let Some((destination, hops)) = self.refused {
            self.retry_at = self.next_time(destination, usize::from(hops));
        }
    }

    /// Learns from an outcome what its destination takes, which loses a packet with the probability `loss`, none if that is
    /// not to count, and may be sent `startup`, once a round trip is known.
    pub fn learn(&mut self, report: &Report<'_>, loss: Option<f64>, startup: Option<Startup>) {
        if let Some(train) = &mut self.train {
            train.learn(report.outcome == Outcome::TimedOut);
        }
        self.ceiling.learn(report, self.tells_of_destination(report), loss, startup);
    }

    /// Whether an outcome tells of its destination. Over a relay on trial it does not, if others carry what goes there:
    /// else relays that have died and are tried again would keep the destination under suspicion.
    pub fn tells_of_destination(&self, report: &Report<'_>) -> bool {
        let is_on_trial = |hop: &Hop| self.on_trial[hop.slot.index()];
        !report.path.iter().any(is_on_trial) || self.most_on_trial(report.destination, report.path.len()) > 1
    }

    /// Fills `path` with relays that were not asked for long, then those that have most credit, in random
    /// order; false if fewer than asked for are due. The packet counts against the rate of its destination
    /// as well: where an application sends is chance, but what arrives at a node is the same load whatever
    /// it is for, so the relays' share makes up for it.
    pub fn take(&mut self, now: Time, destination: Slot, path: &mut [Hop], rng: &mut Rng) -> bool {
        if self.ceiling.due(destination) > now || !self.fill(now, destination, path, rng) {
            return self.refuse(destination, path.len());
        }
        self.refused = None;
        self.ceiling.charge(now, destination);
        for hop in path {
            let index = hop.slot.index();
            let moved = self.dither * (2.0 * rng.uniform() - 1.0);
            let before = self.moved.get_mut(index).map_or(0.0, |before| std::mem::replace(before, moved as f32));
            self.charge(now, index, Packets(1.0 + moved - f64::from(before)));
            self.relayed[index] = now;
        }
        if self.counts_destinations {
            self.charge_destination(now, destination.index());
        }
        true
    }

    /// Chooses the relays of a packet that leaves now: those of the last one, if it leaves together with that. False if too
    /// few are due.
    fn fill(&mut self, now: Time, destination: Slot, path: &mut [Hop], rng: &mut Rng) -> bool {
        let Some(mut last) = self.train else { return self.choose(now, destination, path, rng) };
        let may = |slot: Slot| {
            let index = slot.index();
            self.due[index] <= now && burst_of(self.rate_at(index)) >= train::LEAST && !self.on_trial[index]
        };
        let follows = last.follow(now, destination, path.len(), may).map(|slots| {
            path.iter_mut().zip(slots).for_each(|(hop, &slot)| hop.slot = slot);
        });
        let is_chosen = follows.is_some() || self.choose(now, destination, path, rng);
        if follows.is_none() && is_chosen {
            last.begin(now, destination, path);
        }
        self.train = Some(last);
        is_chosen
    }

    /// Of the relays that are due those that were not asked for long, then those that have most credit, in random order;
    /// false if they are too few.
    fn choose(&mut self, now: Time, destination: Slot, path: &mut [Hop], rng: &mut Rng) -> bool {
        let mut best = [NONE; super::MAX_RELAYS];
        let mut tried = [NONE; super::MAX_RELAYS];
        let (best, tried) = (&mut best[..path.len()], &mut tried[..path.len()]);
        for (index, &due) in self.due.iter().enumerate() {
            if due > now || index == destination.index() {
                continue;
            }
            let rate = self.rate_at(index);
            let credit = self.claim(destination, rate, rate * now.since(due).seconds(), rng);
            let relayed = self.relayed[index];
            let is_unasked = relayed == NEVER || now.since(relayed) >= LONGEST_UNASKED;
            insert(if self.on_trial[index] { tried } else { best }, (is_unasked, credit), index);
        }
        let most_on_trial = self.most_on_trial(destination, best.len());
        let others = best.iter().take_while(|(claim, _)| *claim > NONE.0).count();
        let first = others.min(best.len() - 1);
        let has_room = match best.len() - first {
            // One on trial, if one is due, in the last place.
            1 => {
                let is_full = best[first].0 > NONE.0;
                let may_try = !is_full || self.untried >= UNTRIED || !self.is_only(destination);
                let tries = tried[0].0 > NONE.0 && may_try;
                self.untried = if tries { 0 } else { self.untried.saturating_add(1) };
                if tries {
                    best[first] = tried[0];
                }
                is_full || tries
            }
            places => {
                best[first..].copy_from_slice(&tried[..places]);
                places <= most_on_trial && tried[places - 1].0 > NONE.0
            }
        };
        if !has_room && !self.fill_last(destination, best) {
            return false;
        }
        for place in (1..best.len()).rev() {
            best.swap(place, rng.below(place + 1));
        }
        for (hop, &(_, index)) in path.iter_mut().zip(&*best) {
            hop.slot = Slot(index as u16);
        }
        true
    }

    /// What a relay has to show for being taken: its credit, beyond what it may save up as well. Where something else limits
    /// the sender, all have saved that up, and of equals the first would be taken for ever. To one destination, the same
    /// relays would follow each other again and again in the order in which they were taken last; where there are several,
    /// what goes to them moves their turns.
    fn claim(&self, destination: Slot, rate: PacketRate, credit: Packets, rng: &mut Rng) -> Packets {
        let saved = burst_of(rate);
        if credit <= saved || self.dither == 0.0 || !self.is_only(destination) {
            return credit;
        }
        saved + (credit - saved) * rng.uniform()
    }

    /// Whether nothing has lately gone anywhere else, as far as is known.
    pub fn is_only(&self, destination: Slot) -> bool {
        self.ceiling.is_only(destination)
    }

    /// What was lost on the way to `destination` was lost by relays, as is now known; whether there was no other.
    pub fn lift_ceiling(&mut self, destination: Slot) -> bool {
        self.ceiling.lift(destination)
    }

    /// Of what was lost on the way to `destination`, a relay has lost more than was thought.
    pub fn reopen_ceiling(&mut self, destination: Slot) {
        self.ceiling.reopen(destination);
    }

    fn refuse(&mut self, destination: Slot, hops: usize) -> bool {
        self.ceiling.refuse();
        self.refused = Some((destination, hops as u8));
        self.retry_at = self.next_time(destination, hops);
        false
    }

    /// When a packet over `hops` relays may leave to `destination`.
    fn next_time(&self, destination: Slot, hops: usize) -> Time {
        self.next_room(destination, hops).max(self.ceiling.due(destination))
    }

    /// Relays that were never asked, too few for a path and the last ones: `best` begins with them, and those that
    /// are due soonest fill it up, for which they wait the longer. Else what these grant would be known last,
    /// when others may be asked once more.
    fn fill_last(&self, destination: Slot, best: &mut [(Claim, usize)]) -> bool {
        if !self.fills_last {
            return false;
        }
        let others = |&index: &usize| index != destination.index();
        let is_unasked = |index: usize| self.relayed[index] == NEVER;
        let unasked = (0..self.due.len()).filter(others).filter(|&index| is_unasked(index)).take(best.len()).count();
        let (first, rest) = best.split_at_mut(unasked);
        if unasked == 0 || rest.is_empty() || !first.iter().all(|&(claim, index)| claim > NONE.0 && is_unasked(index)) {
            return false;
        }
        rest.fill(NONE);
        let asked = (0..self.due.len()).filter(others).filter(|&index| !is_unasked(index) && !self.on_trial[index]);
        for index in asked {
            let soonest = Packets(-self.due[index].since(Time::ZERO).seconds().0);
            insert(rest, (false, soonest), index);
        }
        rest.iter().all(|&(claim, _)| claim > NONE.0)
    }

    fn charge(&mut self, now: Time, index: usize, packets: Packets) {
        let rate = self.rate_at(index);
        self.due[index] = charged(self.due[index], now, (burst_of(rate) / rate).into(), (packets / rate).into());
    }

    /// A packet goes to a node: so much less can it relay, but it is asked now and then, and on trial
    /// all the time.
    fn charge_destination(&mut self, now: Time, index: usize) {
        if self.on_trial[index] || self.relayed[index] == NEVER {
            return;
        }
        let latest = self.relayed[index] + (LONGEST_REST / self.rate_at(index)).into();
        if self.due[index] < latest {
            self.charge(now, index, Packets::ONE);
            self.due[index] = self.due[index].min(latest.max(now));
        }
    }

    /// When enough relays other than `destination` are due, of which no more are on trial than may be.
    fn next_room(&self, destination: Slot, hops: usize) -> Time {
        let mut soonest = [[Time::MAX; super::MAX_RELAYS]; 2];
        for (index, &due) in self.due.iter().enumerate() {
            let soonest = &mut soonest[usize::from(self.on_trial[index])][..hops];
            let mut place = hops - 1;
            if index == destination.index() || due >= soonest[place] {
                continue;
            }
            while place > 0 && soonest[place - 1] > due {
                soonest[place] = soonest[place - 1];
                place -= 1;
            }
            soonest[place] = due;
        }
        let [trusted, tried] = soonest;
        let last =
            |soonest: [Time; super::MAX_RELAYS], count: usize| count.checked_sub(1).map_or(Time::ZERO, |i| soonest[i]);
        let with = |on_trial: usize| last(trusted, hops - on_trial).max(last(tried, on_trial));
        (0..=self.most_on_trial(destination, hops)).map(with).min().unwrap_or(Time::MAX)
    }

    /// What a packet that was refused waits for.
    pub fn wake(&self, now: Time) -> Wake {
        Wake::at(self.retry_at, now)
    }

    /// Heap memory in bytes.
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.rates)
            + size_of_val(&*self.due)
            + size_of_val(&*self.moved)
            + size_of_val(&*self.relayed)
            + size_of_val(&*self.on_trial)
    }
}

/// What a relay has to show for being taken: whether it was not asked for long, then its credit.
type Claim = (bool, Packets);

/// No candidate.
const NONE: (Claim, usize) = ((false, Packets(f64::NEG_INFINITY)), 0);

/// Puts a candidate into its place among the `best`, the greatest claim first, unless all of them have greater ones.
#[inline]
fn insert(best: &mut [(Claim, usize)], claim: Claim, index: usize) {
    let mut place = best.len() - 1;
    if claim <= best[place].0 {
        return;
    }
    while place > 0 && best[place - 1].0 < claim {
        best[place] = best[place - 1];
        place -= 1;
    }
    best[place] = (claim, index);
}

fn scaled(time: Duration, factor: f64) -> Duration {
    Duration::from_nanos((time.as_nanos() as f64 * factor) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    const DESTINATION: Slot = Slot(0);

    /// The paths of what leaves in a second over three of eight relays of `rate` packets a second each, from a host that
    /// looks each millisecond.
    fn paths(mut credits: Credits, rate: f64) -> Vec<(Time, [Slot; 3])> {
        for index in 0..9 {
            credits.set_rate(Time::ZERO, Slot(index), PacketRate(rate));
        }
        credits.train.iter_mut().for_each(|train| (0..100).for_each(|_| train.learn(false)));
        let (mut now, mut rng, mut paths) = (Time::ZERO, Rng::stream(1, "trains"), Vec::new());
        while now < Time::from_secs_f64(1.0) {
            let mut path = [Hop::default(); 3];
            while credits.take(now, DESTINATION, &mut path, &mut rng) {
                paths.push((now, path.map(|hop| hop.slot)));
            }
            now += Duration::from_millis(1);
        }
        paths
    }

    #[test]
    fn packets_that_leave_together_take_one_path_where_relays_may_save_up_several_and_nowhere_else() {
        for credits in both(9, 50.0) {
            // Of a thousand and nine hundred in a second, a millisecond carries less than two.
            for rate in [50.0, 900.0, 1900.0] {
                let credits = || credits.clone();
                assert_eq!(paths(credits().with_trains(), rate), paths(credits(), rate), "{rate} packets a second");
            }
            let trains = |credits, rate| {
                let paths = paths(credits, rate);
                paths.len() as f64 / paths.chunk_by(|(_, one), (_, next)| one == next).count() as f64
            };
            // Three of 3500 each millisecond, 16 at most of a hundred thousand.
            let lengths = [3500.0, 100_000.0].map(|rate| trains(credits.clone().with_trains(), rate));
            assert!(lengths[0] > 1.8 && lengths[0] < 4.0 && lengths[1] > 8.0, "{lengths:?} packets in a row");
            assert!(trains(credits, 100_000.0) < 1.1);
        }
    }

    /// For peers of `rate` packets a second, by either kind of schedule.
    fn both(peers: usize, rate: f64) -> [Credits; 2] {
        let drifting = Credits::new(peers, PacketRate(rate), Time::ZERO);
        [drifting.clone(), drifting.without_drift()]
    }

    /// Packets over each of the relays in `seconds` over `hops` relays each, sent as soon as they may be.
    fn sent(mut credits: Credits, rates: &[f64], hops: usize, seconds: f64) -> Vec<u32> {
        for (index, &rate) in rates.iter().enumerate() {
            credits.set_rate(Time::ZERO, Slot(index as u16), PacketRate(rate));
        }
        let (mut now, mut rng) = (Time::ZERO, Rng::stream(1, "credits"));
        let mut counts = vec![0; rates.len()];
        let mut path = [Hop::default(); super::super::MAX_RELAYS];
        let path = &mut path[..hops];
        while now < Time::from_secs_f64(seconds) {
            while credits.take(now, DESTINATION, path, &mut rng) {
                for (place, hop) in path.iter().enumerate() {
                    assert!(path[..place].iter().all(|other| other.slot != hop.slot) && hop.slot != DESTINATION);
                    counts[hop.slot.index()] += 1;
                }
            }
            let wake = credits.wake(now).time(now);
            assert!(wake > now, "what was refused waits");
            now = wake;
        }
        counts
    }

    #[test]
    fn each_relay_is_used_at_its_rate() {
        let rates = [1.0, 10.0, 20.0, 30.0, 40.0, 20.0];
        for credits in both(rates.len(), 1.0) {
            let counts = sent(credits, &rates, 2, 100.0);
            for (&count, &rate) in counts.iter().zip(&rates).skip(1) {
                assert!((f64::from(count) / (100.0 * rate) - 1.0).abs() < 0.02, "{counts:?}");
            }
        }
    }

    /// Packets over each of the relays, and how many different paths those took, of `packets` that leave `every`.
    fn asked(mut credits: Credits, every: Duration, packets: u32) -> (Vec<u32>, usize) {
        let (mut now, mut rng, mut path) = (Time::ZERO, Rng::stream(1, "credits"), [Hop::default(); 3]);
        let (mut counts, mut paths) = (vec![0; credits.rates.len()], BTreeSet::new());
        for _ in 0..packets {
            now += every;
            assert!(credits.take(now, DESTINATION, &mut path, &mut rng));
            let mut slots = path.map(|hop| hop.slot.index());
            slots.sort_unstable();
            slots.iter().for_each(|&slot| counts[slot] += 1);
            paths.insert(slots);
        }
        (counts, paths.len())
    }

    #[test]
    fn where_something_else_limits_a_sender_all_relays_meet_and_each_is_asked_as_often() {
        for credits in both(9, 2000.0) {
            let (counts, paths) = asked(credits, Duration::from_millis(100), 400);
            assert!(paths > 50, "{paths} of the 56 paths over three of eight relays");
            assert!(counts[1..].iter().all(|count| (135..=165).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn where_little_may_leave_one_packet_of_four_takes_a_relay_on_trial_at_most() {
        for mut credits in both(9, 2000.0) {
            for slot in 1..=4 {
                credits.set_on_trial(Slot(slot), true);
            }
            let (counts, _) = asked(credits, Duration::from_millis(500), 400);
            assert!((95..=100).contains(&counts[1..=4].iter().sum::<u32>()), "{counts:?}");
        }
    }

    /// The most packets beyond `rate` in any of two hundred seconds, over a relay among eight others that leave
    /// it no other choice.
    fn most_beyond(mut credits: Credits, rate: f64) -> f64 {
        (0..9).for_each(|slot| credits.set_rate(Time::ZERO, Slot(slot), PacketRate(rate)));
        let (mut now, mut rng, mut path) = (Time::ZERO, Rng::stream(1, "credits"), [Hop::default(); 2]);
        let mut counts = [0u32; 200];
        loop {
            while !credits.take(now, DESTINATION, &mut path, &mut rng) {
                now = credits.wake(now).time(now);
            }
            let Some(count) = counts.get_mut(now.since(Time::ZERO).as_secs_f64() as usize) else { break };
            *count += u32::from(path.iter().any(|hop| hop.slot == Slot(1)));
        }
        f64::from(counts[1..].iter().copied().max().unwrap_or(0)) - rate
    }

    #[test]
    fn a_schedule_without_drift_has_two_packets_more_in_a_window_at_most_however_many_there_are() {
        for rate in [10.0, 100.0, 300.0] {
            let [drifting, even] = both(9, 1.0);
            assert!(most_beyond(even, rate) <= 2.0, "{rate} packets a second");
            assert!(rate < 100.0 || most_beyond(drifting, rate) > 2.0, "{rate} packets a second, drifting");
        }
    }

    #[test]
    fn a_relay_that_the_others_cannot_match_is_used_with_every_packet() {
        // Two relays each: the fast one goes with each packet of the two slow ones.
        for credits in both(4, 1.0) {
            let counts = sent(credits, &[1.0, 1000.0, 10.0, 10.0], 2, 100.0);
            assert_eq!(counts[1], counts[2] + counts[3]);
        }
    }

    #[test]
    fn relays_that_do_not_limit_the_sender_are_used_alike() {
        let mut credits = Credits::new(9, PacketRate(1000.0), Time::ZERO);
        let (mut rng, mut path, mut counts) = (Rng::stream(1, "credits"), [Hop::default(); 3], [0u32; 9]);
        // Ten packets a second, each over three of eight relays that would take a thousand each.
        for packet in 1..=800 {
            let now = Time::ZERO + Duration::from_millis(100) * packet;
            assert!(credits.take(now, DESTINATION, &mut path, &mut rng));
            path.iter().for_each(|hop| counts[hop.slot.index()] += 1);
        }
        assert!(counts[1..].iter().all(|&count| (290..=310).contains(&count)), "{counts:?}");
    }

    #[test]
    fn the_last_relays_that_were_never_asked_do_not_wait_for_others_to_fill_their_path() {
        for relays in [3, 4, 5, 20, 80] {
            let destination = Slot(relays as u16);
            for credits in both(relays + 1, 1.0) {
                let mut credits = credits.with_last_path_filled();
                let (mut rng, mut path, mut used) = (Rng::stream(1, "credits"), [Hop::default(); 3], vec![0; relays]);
                while credits.take(Time::ZERO, destination, &mut path, &mut rng) {
                    path.iter().for_each(|hop| used[hop.slot.index()] += 1);
                }
                // Each once, and as many twice as fill the last path.
                assert!(used.iter().all(|&times| times == 1 || times == 2), "{used:?}");
                assert_eq!(used.iter().sum::<u32>() as usize, 3 * relays.div_ceil(3), "{used:?}");
                let wake = credits.wake(Time::ZERO).time(Time::ZERO);
                assert!(wake >= Time::from_secs_f64(0.8), "what is refused waits until relays are due: {wake}");
            }
        }
    }

    /// A random path in each packet: of ten equal relays every pair meets about equally often.
    #[test]
    fn relays_of_equal_rates_meet_all_others() {
        for mut credits in both(11, 10.0) {
            let (mut now, mut rng) = (Time::ZERO, Rng::stream(1, "credits"));
            let mut met = [[0u32; 11]; 11];
            let mut path = [Hop::default(); 2];
            for _ in 0..9_000 {
                while !credits.take(now, DESTINATION, &mut path, &mut rng) {
                    now = credits.wake(now).time(now);
                }
                met[path[0].slot.index()][path[1].slot.index()] += 1;
            }
            // 90 ordered pairs, 100 packets each.
            let counts = (1..11).flat_map(|a| (1..11).filter(move |&b| a != b).map(move |b| met[a][b]));
            assert!(counts.clone().all(|count| (40..=200).contains(&count)), "{:?}", counts.collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_relay_that_grants_little_is_asked_beside_others_that_grant_a_million_times_as_much() {
        for mut credits in both(9, 1000.0) {
            (1..7).for_each(|slot| credits.set_rate(Time::ZERO, Slot(slot), PacketRate(4e6)));
            (7..9).for_each(|slot| credits.set_rate(Time::ZERO, Slot(slot), PacketRate(4.0)));
            let (mut rng, mut path, mut counts) = (Rng::stream(1, "credits"), [Hop::default(); 3], [0u32; 9]);
            // A packet each millisecond, which the six fast ones could take alone.
            for packet in 0..20_000 {
                let now = Time::ZERO + Duration::from_millis(1) * packet;
                assert!(credits.take(now, DESTINATION, &mut path, &mut rng));
                path.iter().for_each(|hop| counts[hop.slot.index()] += 1);
            }
            // Once a second at least, and never above their rate: four a second, and one in advance.
            assert!(counts[7..].iter().all(|count| (19..=81).contains(count)), "{counts:?}");
            assert!(counts[1..7].iter().all(|&count| count > 9_000), "{counts:?}");
        }
    }

    #[test]
    fn what_goes_to_a_node_counts_like_what_passes_it() {
        let mut credits = Credits::new(5, PacketRate(10.0), Time::ZERO);
        let (mut now, mut rng) = (Time::ZERO, Rng::stream(1, "credits"));
        let mut arrived = [0u32; 5];
        let mut path = [Hop::default(); 1];
        while now < Time::from_secs_f64(100.0) {
            let destination = Slot(rng.below(5) as u16);
            while !credits.take(now, destination, &mut path, &mut rng) {
                now = credits.wake(now).time(now);
            }
            arrived[destination.index()] += 1;
            arrived[path[0].slot.index()] += 1;
        }
        assert!(arrived.iter().all(|&count| (960..=1040).contains(&count)), "{arrived:?}");
    }

    #[test]
    fn one_on_trial_is_tried_with_others_at_its_rate_whatever_goes_to_it() {
        let mut credits = Credits::new(8, PacketRate(10.0), Time::ZERO);
        for slot in (0..3).map(Slot) {
            credits.set_rate(Time::ZERO, slot, PacketRate(1.0));
            credits.set_on_trial(slot, true);
        }
        let (mut now, mut rng) = (Time::ZERO, Rng::stream(1, "credits"));
        let (mut path, mut tried) = ([Hop::default(); 3], [0u32; 3]);
        for packet in 0..1_000 {
            while !credits.take(now, Slot(packet % 8), &mut path, &mut rng) {
                now = credits.wake(now).time(now);
            }
            let on_trial: Vec<usize> = path.iter().map(|hop| hop.slot.index()).filter(|&slot| slot < 3).collect();
            assert!(on_trial.len() <= 1, "{on_trial:?}");
            on_trial.iter().for_each(|&slot| tried[slot] += 1);
        }
        let seconds = now.since(Time::ZERO).as_secs_f64();
        assert!(
            tried.iter().all(|&tried| (0.8..1.2).contains(&(f64::from(tried) / seconds))),
            "{tried:?} in {seconds}"
        );
    }

    #[test]
    fn where_too_few_are_trusted_those_on_trial_make_up_for_them() {
        let mut credits = Credits::new(5, PacketRate(10.0), Time::ZERO);
        (0..3).for_each(|slot| credits.set_on_trial(Slot(slot), true));
        let (mut now, mut rng) = (Time::ZERO, Rng::stream(1, "credits"));
        let mut path = [Hop::default(); 3];
        for _ in 0..100 {
            while !credits.take(now, Slot(4), &mut path, &mut rng) {
                let wake = credits.wake(now).time(now);
                assert!(wake > now && wake < now + Duration::SECOND, "{wake}");
                now = wake;
            }
            assert!(path.iter().any(|hop| hop.slot == Slot(3)), "the one that is trusted is in every path");
        }
    }

    #[test]
    fn a_node_that_gets_more_than_its_rate_relays_all_the_same() {
        let mut credits = Credits::new(4, PacketRate(100.0), Time::ZERO);
        credits.set_rate(Time::ZERO, Slot(3), PacketRate(1.0));
        let (mut now, mut rng) = (Time::ZERO, Rng::stream(1, "credits"));
        let (mut path, mut relayed) = ([Hop::default(); 1], 0);
        for packet in 0..2_000 {
            let destination = Slot(packet % 4);
            while !credits.take(now, destination, &mut path, &mut rng) {
                now = credits.wake(now).time(now);
            }
            relayed += u32::from(path[0].slot == Slot(3));
        }
        assert!(relayed > 0 && now > Time::from_secs_f64(5.0), "{relayed} in {now}");
    }

    #[test]
    fn who_knows_many_begins_with_few() {
        let mut credits = Credits::new(1_000, PacketRate(1.0), Time::ZERO);
        let mut rng = Rng::stream(1, "credits");
        let (mut now, mut path, mut sent, mut used) = (Time::ZERO, [Hop::default(); 2], 0, [false; 1_000]);
        while now < Time::from_secs_f64(12.0) {
            while credits.take(now, DESTINATION, &mut path, &mut rng) {
                sent += 1;
                path.iter().for_each(|hop| used[hop.slot.index()] = true);
            }
            if now == Time::ZERO {
                assert!((49..=51).contains(&sent), "{sent} at once");
            }
            now = credits.wake(now).time(now);
        }
        // A hundred relays a second in pairs; each of the thousand once in ten seconds.
        assert!((550..=700).contains(&sent), "{sent} in twelve seconds");
        assert!(used[1..].iter().all(|&used| used));
    }

    proptest! {
        #[test]
        fn what_waits_is_asked_again_in_time(
            rates in prop::collection::vec(0.5f64..1e4, 4..10), hops in 1usize..3, seconds in 0.01f64..0.5,
        ) {
            for credits in both(rates.len(), 1.0) {
                sent(credits, &rates, hops, seconds);
            }
        }
    }
}
