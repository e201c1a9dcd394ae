//! The omniscient controller: a manager that knows every relay's limit and load.
//!
//! All relays count in the same one-second slices. A path is found by depth-first
//! search: a relay is taken if, in the slice in which the packet will arrive there,
//! the relay has room for it; the first path found is used, and its bytes are
//! booked. [Raiber 2010] 6.3.2, A.0.1; A.0.2 remembers where no path was found.
//!
//! Where we depart from the letter, and why:
//! - A.0.1 books relays only. The destination counts what it receives too, so we
//!   ask for room there and book it, and book the ACK's bytes on the way back.
//! - "For all n in N" is read as a set, visited from a random place on. In fixed
//!   order the first relays fill up before the last are used, and can then receive
//!   nothing that is addressed to them.
//! - A.0.2 takes a failure at two instants as a failure at all instants between,
//!   whatever was excluded from the path. That prunes paths that exist: a relay may
//!   have been excluded then and not now, or be reached in another slice. We keep,
//!   with a failure, the span in which every arrival that it looked at stays in its
//!   slice, and the relays that were passed over though they had room. Loads only
//!   grow, so within that span and with those relays excluded it stays a failure.
//!   And we look only at relays that have room in some slice within reach.
//! - Both visit exponentially many paths where a destination has room in one slice of those within reach and no path
//!   arrives in it: with twenty peers, no search over seven relays ends. From a while on a search therefore leaves out
//!   relays from which not even a walk, which may pass a relay twice, finds room everywhere ([`Walks`]); its result is
//!   the same. What is left, walks for which there is no path, is given up after `MOST_VISITS`.

use std::cell::{Cell, OnceCell};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::{Hop, MAX_RELAYS, PathController, Report, Slot};
use crate::rng::Rng;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};
use crate::wake::Wake;

/// Length of a slice in nanoseconds: one second, like the relays' windows.
const SLICE_NANOS: u64 = Duration::SECOND.as_nanos();

/// A search that has gone on from so many relays looks from where there are walks: by far most have ended before.
const PATIENT_VISITS: u64 = 2_000;

/// A search that has gone on from so many relays is given up, as if there were no path: it would take hours.
const MOST_VISITS: u64 = 1_000_000;

/// Mean one-way delays between nodes.
pub type Delays = Arc<dyn Fn(u32, u32) -> Duration + Send + Sync>;

/// What the manager knows of the whole network. A clone is the manager of a copy of the network.
#[derive(Clone)]
pub struct Manager {
    /// Bytes that each node forwards in a slice.
    limits: Vec<u32>,
    delays: Delays,
    /// No delay is longer.
    longest: Duration,
    packet: u32,
    ack: u32,
    /// Bytes booked for each node, from slice `first_slice` on.
    booked: VecDeque<Box<[u32]>>,
    first_slice: u64,
}

impl core::fmt::Debug for Manager {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Manager").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A failed search from one relay at one depth.
#[derive(Clone, Copy, Debug)]
struct Failure {
    destination: u32,
    /// The failure holds for departures in `from..until`.
    from: Time,
    until: Time,
    /// It holds if these relays are on the path already.
    passed_over: [u32; MAX_RELAYS],
    passed: u8,
}

/// What one search depends on, gathered while it runs.
#[derive(Clone, Copy, Debug)]
struct Basis {
    /// Departures may be this much earlier, in nanoseconds, and no arrival changes its slice.
    earlier: u64,
    /// Departures may be less than this much later.
    later: u64,
    passed_over: [u32; MAX_RELAYS],
    passed: u8,
}

impl Basis {
    const ANY: Basis = Basis { earlier: u64::MAX, later: u64::MAX, passed_over: [0; MAX_RELAYS], passed: 0 };

    fn arrival(&mut self, at: Time) {
        let into_slice = at.as_nanos() % SLICE_NANOS;
        self.earlier = self.earlier.min(into_slice);
        self.later = self.later.min(SLICE_NANOS - into_slice);
    }

    fn passed_over(&mut self, node: u32) {
        let known = &self.passed_over[..usize::from(self.passed)];
        if !known.contains(&node) {
            self.passed_over[usize::from(self.passed)] = node;
            self.passed += 1;
        }
    }

    fn add(&mut self, other: &Basis) {
        self.earlier = self.earlier.min(other.earlier);
        self.later = self.later.min(other.later);
        for &node in &other.passed_over[..usize::from(other.passed)] {
            self.passed_over(node);
        }
    }
}

/// One sender's search: what it may use, and what it found in vain before.
#[derive(Clone, Debug)]
pub struct Search {
    source: u32,
    /// The nodes that the sender knows; never itself.
    view: Box<[u32]>,
    hops: usize,
    /// For each depth and each node of the view (and the source) the last failure; none without pruning.
    failures: Option<Vec<Option<Failure>>>,
}

struct Query<'a> {
    manager: &'a Manager,
    view: &'a [u32],
    source: u32,
    destination: u32,
    hops: usize,
    /// Indices of the view in the order in which every level visits them.
    order: Vec<usize>,
    /// The order leaves out relays without room in the slices from here...
    first: Time,
    /// ...to there.
    last: Time,
    /// How often it has gone on from a relay.
    visits: Cell<u64>,
    /// From how many visits on it looks at `walks`.
    patient_visits: u64,
    walks: OnceCell<Walks>,
}

impl Search {
    /// A.0.1: looks through every path each time.
    pub fn exhaustive(source: u32, view: Box<[u32]>, hops: usize) -> Search {
        Search { source, view, hops, failures: None }
    }

    /// A.0.2: remembers failures. Returns what `exhaustive` returns.
    pub fn pruned(source: u32, view: Box<[u32]>, hops: usize) -> Search {
        let failures = Some(vec![None; (view.len() + 1) * hops]);
        Search { source, view, hops, failures }
    }

    /// The first path to `destination` at `now` with room everywhere, as indices
    /// into the view; every level visits the view from index `start` on.
    pub fn find(&mut self, manager: &Manager, now: Time, destination: u32, start: usize) -> Option<Vec<usize>> {
        self.find_patiently(PATIENT_VISITS, manager, now, destination, start)
    }

    /// The same, which looks from where there are walks after `patient_visits`.
    fn find_patiently(
        &mut self,
        patient_visits: u64,
        manager: &Manager,
        now: Time,
        destination: u32,
        start: usize,
    ) -> Option<Vec<usize>> {
        let reach = manager.longest * (self.hops as u64 + 1);
        let slices = now.as_nanos() / SLICE_NANOS..=(now + reach).as_nanos() / SLICE_NANOS;
        let (first, last) = (slices.start() * SLICE_NANOS, (slices.end() + 1) * SLICE_NANOS);
        let open = |node: u32| slices.clone().any(|slice| manager.has_room_in(node, slice));
        let all = (0..self.view.len()).map(|index| (start + index) % self.view.len());
        let order: Vec<usize> = match self.failures {
            Some(_) if !open(destination) => return None,
            Some(_) => all.filter(|&place| open(self.view[place])).collect(),
            None => all.collect(),
        };
        let query = Query {
            manager,
            view: &self.view,
            source: self.source,
            destination,
            hops: self.hops,
            order,
            first: Time::from_nanos(first),
            last: Time::from_nanos(last),
            visits: Cell::new(0),
            patient_visits,
            walks: OnceCell::new(),
        };
        let mut path = Vec::with_capacity(self.hops);
        let place = self.view.len();
        query.descend(&mut self.failures, place, now, &mut path, &mut Basis::ANY.clone()).then_some(path)
    }

    /// Forgets failures: some limit was raised.
    pub fn forget(&mut self) {
        if let Some(failures) = &mut self.failures {
            failures.fill(None);
        }
    }
}

impl Query<'_> {
    fn node(&self, place: usize) -> u32 {
        self.view.get(place).copied().unwrap_or(self.source)
    }

    /// From where there are walks, once this is worth the time that it takes.
    fn walks(&self) -> Option<&Walks> {
        (self.visits.get() >= self.patient_visits).then(|| self.walks.get_or_init(|| Walks::of(self)))
    }

    fn is_given_up(&self) -> bool {
        self.visits.get() > MOST_VISITS
    }

    /// GETPATH: extends `path`, which ends at `place` at `now`.
    fn descend(
        &self,
        failures: &mut Option<Vec<Option<Failure>>>,
        place: usize,
        now: Time,
        path: &mut Vec<usize>,
        basis: &mut Basis,
    ) -> bool {
        let here = self.node(place);
        if path.len() == self.hops {
            let arrival = now + (self.manager.delays)(here, self.destination);
            basis.arrival(arrival);
            return self.manager.has_room(self.destination, arrival);
        }
        let memory = path.len() * (self.view.len() + 1) + place;
        if let Some(failure) = failures.as_ref().and_then(|all| all[memory])
            && self.still_holds(&failure, now, path)
        {
            basis.earlier = basis.earlier.min(now.since(failure.from).as_nanos());
            basis.later = basis.later.min(failure.until.since(now).as_nanos());
            for &node in &failure.passed_over[..usize::from(failure.passed)] {
                basis.passed_over(node);
            }
            return false;
        }
        let prunes = failures.is_some();
        if prunes {
            self.visits.set(self.visits.get() + 1);
        }
        let mut own = self.basis_of_order(now, path.len());
        for &next in &self.order {
            let node = self.view[next];
            if node == here || node == self.destination {
                continue;
            }
            let arrival = now + (self.manager.delays)(here, node);
            own.arrival(arrival);
            if !self.manager.has_room(node, arrival) {
                continue;
            }
            if let Some(walks) = self.walks().filter(|_| prunes)
                && let Err((from, until)) = walks.from(self.hops - path.len() - 1, next, arrival)
            {
                own.earlier = own.earlier.min(arrival.since(from).as_nanos());
                own.later = own.later.min(until.since(arrival).as_nanos());
                continue;
            }
            if path.contains(&next) {
                own.passed_over(node);
                continue;
            }
            path.push(next);
            if self.descend(failures, next, arrival, path, &mut own) {
                return true;
            }
            path.pop();
            if self.is_given_up() {
                return false;
            }
            // The relay below was on the path because of us, not of those above.
            own.forgive(node);
        }
        if let Some(failures) = failures {
            failures[memory] = Some(Failure {
                destination: self.destination,
                from: Time::from_nanos(now.as_nanos() - own.earlier.min(now.as_nanos())),
                until: now + Duration::from_nanos(own.later),
                passed_over: own.passed_over,
                passed: own.passed,
            });
        }
        basis.add(&own);
        false
    }

    /// The relays that the order leaves out have no room while their arrivals stay
    /// within its slices.
    fn basis_of_order(&self, now: Time, depth: usize) -> Basis {
        let latest = now + self.manager.longest * (self.hops - depth + 1) as u64;
        Basis { earlier: now.since(self.first).as_nanos(), later: self.last.since(latest).as_nanos(), ..Basis::ANY }
    }

    fn still_holds(&self, failure: &Failure, now: Time, path: &[usize]) -> bool {
        failure.destination == self.destination
            && failure.from <= now
            && now < failure.until
            && failure.passed_over[..usize::from(failure.passed)]
                .iter()
                .all(|node| path.iter().any(|&place| self.view[place] == *node))
    }
}

/// When a walk with room everywhere begins: a path that may pass a relay twice. Where there is none, there is no path.
///
/// ```text
/// W(0, v) = { t : the destination has room at t + d(v, destination) }
/// W(k, v) = { t : some relay u has room at t + d(v, u), which is in W(k - 1, u) }
/// ```
#[derive(Debug)]
struct Walks {
    /// For each number of relays that follow, and each place of the view, spans of time in order, with gaps between.
    begin: Vec<Vec<Spans>>,
    first: Time,
    last: Time,
}

/// Spans of time in nanoseconds, each without its end.
type Spans = Vec<(u64, u64)>;

impl Walks {
    fn of(query: &Query<'_>) -> Walks {
        let (first, last) = (query.first.as_nanos(), query.last.as_nanos());
        let open = |node: u32| -> Spans {
            let slices =
                (first / SLICE_NANOS..last / SLICE_NANOS).filter(|&slice| query.manager.has_room_in(node, slice));
            united(slices.map(|slice| (slice * SLICE_NANOS, (slice + 1) * SLICE_NANOS)).collect())
        };
        let delay = |from: u32, to: u32| (query.manager.delays)(from, to).as_nanos();
        let is_open: Vec<Spans> = query.view.iter().map(|&node| open(node)).collect();
        let destination = open(query.destination);
        let of_last = query.view.iter().map(|&node| earlier(&destination, delay(node, query.destination)));
        let mut begin = vec![of_last.collect::<Vec<Spans>>()];
        for follow in 1..query.hops {
            let of_next = &begin[follow - 1];
            let through: Vec<Spans> =
                of_next.iter().zip(&is_open).map(|(spans, is_open)| common(spans, is_open)).collect();
            let of_place = query.view.iter().map(|&here| {
                let next = query.order.iter().map(|&next| (query.view[next], &through[next]));
                let next = next.filter(|&(node, _)| node != here && node != query.destination);
                united(next.flat_map(|(node, spans)| earlier(spans, delay(here, node))).collect())
            });
            let of_place = of_place.collect();
            begin.push(of_place);
        }
        Walks { begin, first: query.first, last: query.last }
    }

    /// Whether a walk over `follow` more relays begins at `place` at `at`, and if not, from when and until when none does.
    fn from(&self, follow: usize, place: usize, at: Time) -> Result<(), (Time, Time)> {
        let spans = &self.begin[follow][place];
        let behind = spans.partition_point(|&(start, _)| start <= at.as_nanos());
        let from = match behind.checked_sub(1).map(|before| spans[before].1) {
            Some(end) if at.as_nanos() < end => return Ok(()),
            Some(end) => Time::from_nanos(end),
            None => self.first,
        };
        Err((from, spans.get(behind).map_or(self.last, |&(start, _)| Time::from_nanos(start))))
    }
}

/// `spans` in order, those that touch as one.
fn united(mut spans: Spans) -> Spans {
    spans.sort_unstable();
    let mut united: Spans = Vec::new();
    for (start, end) in spans {
        match united.last_mut() {
            Some((_, last)) if start <= *last => *last = end.max(*last),
            _ => united.push((start, end)),
        }
    }
    united
}

/// `spans` sooner by `nanos`; what would begin before time does is cut.
fn earlier(spans: &Spans, nanos: u64) -> Spans {
    let sooner = spans.iter().map(|&(start, end)| (start.saturating_sub(nanos), end.saturating_sub(nanos)));
    sooner.filter(|(start, end)| start < end).collect()
}

/// What is in both.
fn common(one: &Spans, other: &Spans) -> Spans {
    let pairs =
        one.iter().flat_map(|&(start, end)| other.iter().map(move |&(from, until)| (start.max(from), end.min(until))));
    pairs.filter(|(start, end)| start < end).collect()
}

impl Basis {
    /// `node` was passed over below because this level had put it on the path; a
    /// search that comes here again will have done the same.
    fn forgive(&mut self, node: u32) {
        let known = &mut self.passed_over[..usize::from(self.passed)];
        if let Some(place) = known.iter().position(|&other| other == node) {
            known.swap(place, usize::from(self.passed) - 1);
            self.passed -= 1;
        }
    }
}

impl Manager {
    /// For nodes with these limits and mean one-way delays of at most `longest`,
    /// packets and ACKs of one size.
    pub fn new(limits: &[Rate], delays: Delays, longest: Duration, packet: Bytes, ack: Bytes) -> Manager {
        Manager {
            limits: limits.iter().map(|&limit| bytes_in_slice(limit)).collect(),
            delays,
            longest,
            packet: u32::try_from(packet.get()).expect("a packet is at most 64 KiB"),
            ack: u32::try_from(ack.get()).expect("an ACK is at most 64 KiB"),
            booked: VecDeque::new(),
            first_slice: 0,
        }
    }

    /// A node's limit changes.
    pub fn set_limit(&mut self, node: u32, limit: Rate) {
        self.limits[node as usize] = bytes_in_slice(limit);
    }

    fn has_room(&self, node: u32, at: Time) -> bool {
        self.has_room_in(node, at.as_nanos() / SLICE_NANOS)
    }

    fn has_room_in(&self, node: u32, slice: u64) -> bool {
        // R_c + l <= R_l
        let booked = slice.checked_sub(self.first_slice).and_then(|index| self.booked.get(index as usize));
        booked.map_or(0, |nodes| nodes[node as usize]) + self.packet <= self.limits[node as usize]
    }

    fn book(&mut self, node: u32, at: Time, bytes: u32) {
        let index = (at.as_nanos() / SLICE_NANOS - self.first_slice) as usize;
        while self.booked.len() <= index {
            self.booked.push_back(vec![0; self.limits.len()].into());
        }
        self.booked[index][node as usize] += bytes;
    }

    /// Books a packet that leaves `source` now over `relays`, and its ACK.
    pub fn commit(&mut self, now: Time, source: u32, relays: &[u32], destination: u32) {
        let current = now.as_nanos() / SLICE_NANOS;
        while self.first_slice < current {
            self.booked.pop_front();
            self.first_slice += 1;
        }
        let (mut at, mut previous) = (now, source);
        for &node in relays.iter().chain([&destination]) {
            at += (self.delays)(previous, node);
            self.book(node, at, self.packet);
            previous = node;
        }
        for &node in relays.iter().rev() {
            at += (self.delays)(previous, node);
            self.book(node, at, self.ack);
            previous = node;
        }
    }
}

fn bytes_in_slice(limit: Rate) -> u32 {
    (limit * Duration::SECOND).get().min(u64::from(u32::MAX / 2)) as u32
}

/// A sender that asks the manager for every path.
///
/// All senders of a network share its manager, and a clone asks the same one: what a clone sends
/// is booked for the original's network too. A copy of a network therefore needs a copy of its manager,
/// which its senders [are given](PathController::set_manager).
#[derive(Clone, Debug)]
pub struct Perfect {
    manager: Arc<Mutex<Manager>>,
    search: Search,
    next_slice: Time,
}

impl Perfect {
    /// For node `source`, which knows `view` (its slots in order) and sends over `hops` relays.
    pub fn new(manager: Arc<Mutex<Manager>>, source: u32, view: Box<[u32]>, hops: usize) -> Perfect {
        Perfect { manager, search: Search::pruned(source, view, hops), next_slice: Time::ZERO }
    }
}

impl PathController for Perfect {
    fn select(&mut self, now: Time, destination: Slot, _size: Bytes, path: &mut [Hop], rng: &mut Rng) -> bool {
        self.next_slice = Time::from_nanos((now.as_nanos() / SLICE_NANOS + 1) * SLICE_NANOS);
        let mut manager = self.manager.lock().expect("no sender panics while it asks the manager");
        let destination = self.search.view[destination.index()];
        let start = rng.below(self.search.view.len());
        let Some(found) = self.search.find(&manager, now, destination, start) else {
            return false;
        };
        let relays: Vec<u32> = found.iter().map(|&place| self.search.view[place]).collect();
        manager.commit(now, self.search.source, &relays, destination);
        for (hop, &place) in path.iter_mut().zip(&found) {
            *hop = Hop { slot: Slot(place as u16), ..Hop::default() };
        }
        true
    }

    fn on_outcome(&mut self, _report: &Report<'_>, _rng: &mut Rng) {}

    fn set_manager(&mut self, manager: &Arc<Mutex<Manager>>) {
        self.manager = Arc::clone(manager);
    }

    fn wake(&self, now: Time) -> Wake {
        Wake::at(self.next_slice, now)
    }

    fn rate(&self, _peer: Slot) -> Option<Rate> {
        None
    }

    fn memory_bytes(&self) -> usize {
        let failures = self.search.failures.as_ref().map_or(0, |all| all.capacity() * size_of::<Option<Failure>>());
        size_of::<Self>() + size_of_val(&*self.search.view) + failures
    }

    fn trace(&self, _peer: Slot, _record: &mut dyn FnMut(&'static str, f64)) {}
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODES: u32 = 6;

    fn manager(limits: &[u64], delays_ms: &[u64]) -> Manager {
        let limits: Vec<Rate> = limits.iter().map(|&packets| Rate::from_bytes_per_sec(packets * 1000)).collect();
        let delays = delays_ms.to_vec();
        let delay = move |a: u32, b: u32| {
            let (low, high) = (a.min(b), a.max(b));
            Duration::from_millis(delays[(low * NODES + high) as usize])
        };
        Manager::new(&limits, Arc::new(delay), Duration::from_millis(700), Bytes::new(1000), Bytes::new(40))
    }

    fn view(source: u32) -> Box<[u32]> {
        (0..NODES).filter(|&node| node != source).collect()
    }

    proptest! {
        #[test]
        fn pruned_search_returns_what_exhaustive_search_returns(
            limits in proptest::collection::vec(0u64..5, NODES as usize),
            delays_ms in proptest::collection::vec(0u64..700, (NODES * NODES) as usize),
            hops in 1usize..5,
            patient_visits in proptest::sample::select(vec![0, 3, 10, PATIENT_VISITS]),
            sends in proptest::collection::vec((0u64..400, 0..NODES, 0..NODES, 0usize..5), 1..60),
        ) {
            let mut manager = manager(&limits, &delays_ms);
            let mut exhaustive: Vec<Search> = (0..NODES).map(|n| Search::exhaustive(n, view(n), hops)).collect();
            let mut pruned: Vec<Search> = (0..NODES).map(|n| Search::pruned(n, view(n), hops)).collect();
            let mut now = Time::ZERO;
            for (wait_ms, source, destination, start) in sends {
                now += Duration::from_millis(wait_ms);
                if source == destination {
                    continue;
                }
                let all = exhaustive[source as usize].find(&manager, now, destination, start);
                let some = pruned[source as usize].find_patiently(patient_visits, &manager, now, destination, start);
                prop_assert_eq!(&all, &some);
                if let Some(path) = all {
                    let relays: Vec<u32> = path.iter().map(|&place| view(source)[place]).collect();
                    manager.commit(now, source, &relays, destination);
                }
            }
        }
    }

    /// Twenty peers whose delays reach over seconds, until no path is left: some searches fail because of when packets
    /// would arrive, and looked through all paths for that.
    #[test]
    fn a_search_over_as_many_relays_as_there_can_be_ends() {
        let mut rng = crate::rng::Rng::stream(1, "delays");
        let delays: Vec<u64> = (0..400).map(|_| 50 + rng.below(200) as u64).collect();
        let delay = move |a: u32, b: u32| Duration::from_millis(delays[(a.min(b) * 20 + a.max(b)) as usize]);
        for hops in [6, 7, MAX_RELAYS] {
            let limits = vec![Rate::from_bytes_per_sec(40_000); 20];
            let (packet, ack) = (Bytes::new(1000), Bytes::new(40));
            let longest = Duration::from_millis(250);
            let mut manager = Manager::new(&limits, Arc::new(delay.clone()), longest, packet, ack);
            let views: Vec<Box<[u32]>> = (0..20).map(|own| (0..20).filter(|&node| node != own).collect()).collect();
            let mut searches: Vec<Search> =
                (0..20).map(|own| Search::pruned(own, views[own as usize].clone(), hops)).collect();
            let mut found = 0;
            for turn in 0..4_000u64 {
                let (source, now) = ((turn % 20) as usize, Time::from_nanos(turn * 500_000));
                let destination = (source as u32 + 1 + (turn / 20 % 19) as u32) % 20;
                if let Some(path) = searches[source].find(&manager, now, destination, rng.below(19)) {
                    let relays: Vec<u32> = path.iter().map(|&place| views[source][place]).collect();
                    manager.commit(now, source as u32, &relays, destination);
                    found += 1;
                }
            }
            assert!(found > 100, "{hops}: {found}");
        }
    }

    #[test]
    fn no_node_is_booked_above_its_limit_but_for_acks() {
        let mut manager = manager(&[4; 6], &[10; 36]);
        let mut search = Search::pruned(0, view(0), 2);
        let mut found = 0;
        while let Some(path) = search.find(&manager, Time::ZERO, 5, found % 5) {
            let relays: Vec<u32> = path.iter().map(|&place| view(0)[place]).collect();
            assert!(!relays.contains(&5) && !relays.contains(&0));
            manager.commit(Time::ZERO, 0, &relays, 5);
            found += 1;
        }
        // The destination takes 4 packets of 1000 B, as 4000 B a slice allow.
        assert_eq!(found, 4);
        assert!(manager.booked[0].iter().all(|&bytes| bytes <= 4000 + 4 * 40));
    }

    #[test]
    fn a_saturated_slice_is_searched_in_vain_once_for_each_relay() {
        // The destination has room, but only where no path arrives in time to use it.
        let mut manager = manager(&[100, 1, 100, 100, 100, 100], &[10; 36]);
        let mut search = Search::pruned(0, view(0), 2);
        manager.commit(Time::ZERO, 2, &[3], 1);
        assert_eq!(search.find(&manager, Time::ZERO, 1, 0), None);
        let failures = search.failures.as_ref().unwrap();
        assert_eq!(failures.iter().flatten().count(), 5, "the source and the four relays that may be first");
        assert_eq!(search.find(&manager, Time::ZERO + Duration::from_millis(900), 1, 0).map(|path| path.len()), None);
    }
}
