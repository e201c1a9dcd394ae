//! Links, routes over them, and timers: whatever a packet carries, it is moved from one
//! end of its route to the other.
//!
//! A link is one pending event, the next arrival at its far end; so is a timer. Links that
//! are first in, first out need fewer: see [`plan`].

mod count;
mod fabric;
mod jitter;
mod link;
mod marks;
mod merge;
mod plan;
mod queue;
mod ring;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

pub use count::LinkCount;
pub use fabric::{Links, Way};
pub use jitter::Jitter;
pub use link::{LinkConfig, rate_stream};
pub use queue::{
    Capacity, Codel, CodelConfig, CodelLaw, Discipline, FqCodel, FqCodelConfig, Limit, Red, RedConfig, RedMeasure,
    Waiting,
};

use crate::tournament::Tournament;
pub(crate) use link::{Link, Offer};
use merge::Merge;
use plan::{End, Hop, Kind, Plan, Then};

/// A link, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// A route, numbered in the order in which they were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteId(pub u32);

/// A timer, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimerId(pub u32);

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A packet has come to the end of its route; [`Network::arrived`] shows it.
    Arrived,
    /// A timer's instant has come.
    Timer(TimerId),
}

/// A packet on its way, or at the end of it.
#[derive(Clone, Copy, Debug)]
pub struct Packet<P> {
    /// What it carries.
    pub payload: P,
    /// When it set out.
    pub sent_at: Time,
    size: u32,
    route: RouteId,
    /// Where it is, among the hops of all routes.
    hop: u32,
    ecn_capable: bool,
    /// Whether it bears a congestion-experienced mark.
    pub marked: bool,
}

/// What a network is made of.
#[derive(Clone, Debug)]
pub struct NetworkBuilder {
    links: Vec<LinkConfig>,
    routes: Vec<Box<[u32]>>,
    watched: Vec<LinkId>,
}

impl Default for NetworkBuilder {
    fn default() -> NetworkBuilder {
        NetworkBuilder::new()
    }
}

impl NetworkBuilder {
    /// Nothing.
    pub fn new() -> NetworkBuilder {
        NetworkBuilder { links: Vec::new(), routes: Vec::new(), watched: Vec::new() }
    }

    /// Adds a link.
    pub fn link(&mut self, config: LinkConfig) -> LinkId {
        self.links.push(config);
        LinkId(self.links.len() as u32 - 1)
    }

    /// Adds a route over `links`, which is not empty.
    pub fn route(&mut self, links: &[LinkId]) -> RouteId {
        assert!(!links.is_empty(), "a route needs a link");
        self.routes.push(links.iter().map(|link| link.0).collect());
        RouteId(self.routes.len() as u32 - 1)
    }

    /// How many routes there are.
    pub fn routes(&self) -> usize {
        self.routes.len()
    }

    /// `link`'s queue will be looked at: it must not be computed in advance.
    pub fn watch(&mut self, link: LinkId) {
        self.watched.push(link);
    }

    /// The network, with `timers` timers and random streams of `seed`.
    pub fn build<P>(self, timers: usize, seed: u64) -> Network<P> {
        let links: Vec<Link> = self.links.into_iter().map(|config| Link::new(config, seed)).collect();
        let Plan { hops, first_hops, ends, seen, merging } = Plan::new(&links, &self.routes, &self.watched);
        let mut goes_on = vec![false; links.len()];
        hops.iter().filter(|hop| hop.then != Then::Arrived).for_each(|hop| goes_on[hop.link as usize] = true);
        let arrival =
            |link: u32| if goes_on[link as usize] { Source::Arrival(link) } else { Source::LastArrival(link) };
        let mut sources: Vec<Source> = seen.into_iter().map(arrival).collect();
        let merges = (0..).zip(&merging).map(|(number, merging)| {
            sources.push(Source::Merge(number));
            Merge::new(merging, sources.len() as u32 - 1)
        });
        let merges = merges.collect();
        let first_timer = sources.len();
        sources.extend((0..timers as u32).map(Source::Timer));
        let services = (0..).zip(&links).map(|(place, link)| {
            if link.discipline.is_some() {
                sources.push(Source::Service(place));
            }
            (sources.len() - 1) as u32
        });
        let services = services.collect();
        Network {
            first_timer,
            services,
            pending: Tournament::new(sources.len()),
            sources: sources.into(),
            links,
            hops,
            first_hops,
            merges,
            ends,
            packets: Vec::new(),
            free: Vec::new(),
            arrived: None,
            timers: vec![Time::MAX; timers].into(),
            fired: None,
            now: Time::ZERO,
            dropped: Vec::new(),
            events: 0,
        }
    }
}

/// What is pending.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The next arrival at a link's far end.
    Arrival(u32),
    /// The same, where every route that has this link ends with it.
    LastArrival(u32),
    /// The time until which a link may take late what its feeders bring.
    Merge(u32),
    /// The end of a transmission on a link with a discipline.
    Service(u32),
    Timer(u32),
}

/// Moves packets that carry a `P`.
#[derive(Clone, Debug)]
pub struct Network<P> {
    links: Vec<Link>,
    /// The hops of all routes, one route after the other.
    hops: Box<[Hop]>,
    /// Where each route's begin.
    first_hops: Box<[u32]>,
    merges: Vec<Merge>,
    /// What follows at each link's far end.
    ends: Box<[End]>,
    packets: Vec<Packet<P>>,
    free: Vec<u32>,
    /// The packet that arrived last: it is kept until the next event.
    arrived: Option<u32>,
    /// When each timer is really due; what is pending may be earlier.
    timers: Box<[Time]>,
    /// The timer that came last: most are set again at once, so it stays pending until then.
    fired: Option<u32>,
    /// Arrivals of links, merges, timers, then ends of transmission of links with a discipline.
    pending: Tournament,
    /// What each pending time is.
    sources: Box<[Source]>,
    /// Where timers begin among the sources.
    first_timer: usize,
    /// Where each link's end of transmission stands among the sources, if it has one.
    services: Box<[u32]>,
    now: Time,
    dropped: Vec<Waiting>,
    events: u64,
}

impl<P> Network<P> {
    /// Sends `payload` in a packet of `size` bytes over `route`, now.
    #[inline(always)]
    pub fn send(&mut self, route: RouteId, size: u32, ecn_capable: bool, payload: P) {
        self.send_numbered(route, size, ecn_capable, payload);
    }

    /// Does the same, and returns the packet's number: no other packet on its way has it,
    /// and the next that is sent once it is gone may.
    #[inline(always)]
    pub fn send_numbered(&mut self, route: RouteId, size: u32, ecn_capable: bool, payload: P) -> u32 {
        let number = match self.free.pop() {
            Some(number) => {
                self.packets[number as usize].payload = payload;
                number
            }
            None => self.make_room(payload),
        };
        self.depart(number, route, size, ecn_capable);
        number
    }

    /// A packet of `size` bytes departs over `route` now: where to write what it carries, over
    /// what an earlier packet left there.
    #[inline(always)]
    pub fn send_into(&mut self, route: RouteId, size: u32, ecn_capable: bool) -> &mut P
    where
        P: Default,
    {
        let number = self.free.pop().unwrap_or_else(|| self.make_room(P::default()));
        // Nobody looks at what a packet carries before it arrives: it may be written later.
        self.depart(number, route, size, ecn_capable);
        &mut self.packets[number as usize].payload
    }

    #[cold]
    fn make_room(&mut self, payload: P) -> u32 {
        let (route, sent_at) = (RouteId(0), self.now);
        self.packets.push(Packet { payload, sent_at, size: 0, route, hop: 0, ecn_capable: false, marked: false });
        self.packets.len() as u32 - 1
    }

    #[inline(always)]
    fn depart(&mut self, number: u32, route: RouteId, size: u32, ecn_capable: bool) {
        let hop = self.first_hops[route.0 as usize];
        let packet = &mut self.packets[number as usize];
        packet.sent_at = self.now;
        packet.size = size;
        packet.route = route;
        packet.hop = hop;
        packet.ecn_capable = ecn_capable;
        packet.marked = false;
        self.enter(number, hop, size);
    }

    /// Back to time zero: nothing is on its way, no timer runs, and random streams are those of
    /// `seed`. Links, routes and memory stay.
    pub fn reset(&mut self, seed: u64) {
        self.links.iter_mut().for_each(|link| link.reset(seed));
        self.merges.iter_mut().for_each(Merge::reset);
        self.pending.clear();
        self.timers.fill(Time::MAX);
        self.free.clear();
        // The first packet takes the first place, as in a new network.
        self.free.extend((0..self.packets.len() as u32).rev());
        (self.arrived, self.fired) = (None, None);
        self.dropped.clear();
        (self.now, self.events) = (Time::ZERO, 0);
    }

    /// Sets when `timer` is due; `Time::MAX` stops it. An instant before now counts as now: whoever
    /// drives a network by a clock may be late.
    #[inline(always)]
    pub fn set_timer(&mut self, timer: TimerId, at: Time) {
        let at = at.max(self.now);
        self.timers[timer.0 as usize] = at;
        // One that is put off is looked at again when it was due before: most are put off
        // many times before they come.
        let source = self.first_timer + timer.0 as usize;
        if !self.pending.is_due_by(source, at) {
            self.pending.set(source, at);
        }
    }

    /// What happens next before `end`; none brings the time to `end`, if that is an instant.
    #[inline(always)]
    pub fn next(&mut self, end: Time) -> Option<Event> {
        self.release();
        if let Some(timer) = self.fired.take() {
            self.pending.set(self.first_timer + timer as usize, self.timers[timer as usize]);
        }
        loop {
            let Some((at, source)) = self.pending.earliest_before(end) else {
                if end < Time::MAX {
                    self.now = self.now.max(end);
                }
                return None;
            };
            self.now = at;
            self.events += 1;
            match self.sources[source] {
                Source::LastArrival(place) => {
                    let (number, next) = self.links[place as usize].arrive();
                    self.pending.set(source, next);
                    self.arrived = Some(number);
                    return Some(Event::Arrived);
                }
                Source::Arrival(place) => {
                    let (number, next) = self.links[place as usize].arrive();
                    self.pending.set(source, next);
                    let packet = &mut self.packets[number as usize];
                    if self.hops[packet.hop as usize].then == Then::Arrived {
                        self.arrived = Some(number);
                        return Some(Event::Arrived);
                    }
                    packet.hop += 1;
                    let (hop, size) = (packet.hop, packet.size);
                    self.enter(number, hop, size);
                }
                Source::Merge(merge) => self.merge(merge as usize, at),
                Source::Service(place) => {
                    self.pending.set(source, Time::MAX);
                    self.serve(place as usize);
                }
                Source::Timer(timer) => {
                    let due = self.timers[timer as usize];
                    if due > at {
                        self.pending.set(source, due);
                        continue;
                    }
                    self.timers[timer as usize] = Time::MAX;
                    self.fired = Some(timer);
                    return Some(Event::Timer(TimerId(timer)));
                }
            }
        }
    }

    /// The packet that has just arrived.
    ///
    /// # Panics
    ///
    /// Unless the last event was an arrival.
    #[inline]
    pub fn arrived(&self) -> &Packet<P> {
        &self.packets[self.arrived.expect("the last event was an arrival") as usize]
    }

    /// The same, to change.
    ///
    /// # Panics
    ///
    /// Unless the last event was an arrival.
    #[inline]
    pub fn arrived_mut(&mut self) -> &mut Packet<P> {
        &mut self.packets[self.arrived.expect("the last event was an arrival") as usize]
    }

    /// Frees the place of the packet that has just arrived, which [`Network::next`] does at the
    /// latest.
    #[inline(always)]
    pub fn release(&mut self) {
        if let Some(number) = self.arrived.take() {
            self.free.push(number);
        }
    }

    /// The number of the packet that has just arrived.
    ///
    /// # Panics
    ///
    /// Unless the last event was an arrival.
    #[inline]
    pub fn arrived_number(&self) -> u32 {
        self.arrived.expect("the last event was an arrival")
    }

    /// Nothing happens before this time, unless something is sent or a timer is set;
    /// `Time::MAX` if nothing is pending.
    #[inline]
    pub fn next_time(&self) -> Time {
        self.pending.earliest()
    }

    /// A packet of `size` bytes comes to `hop` now.
    #[inline(always)]
    fn enter(&mut self, number: u32, hop: u32, size: u32) {
        let Hop { link, kind, .. } = self.hops[hop as usize];
        match kind {
            Kind::Prompt => {}
            Kind::Late(merge) => self.settle(merge as usize),
            Kind::Disciplined => return self.enqueue(link as usize, number),
        }
        self.forward(self.now, number, hop, size);
    }

    /// Brings a packet of `size` bytes, which comes at `at`, over `hop` and over those that
    /// follow as far as that can be known.
    #[inline(always)]
    fn forward(&mut self, at: Time, number: u32, hop: u32, size: u32) {
        let mut hop = hop as usize;
        let mut at = at;
        loop {
            let Hop { link: place, then, .. } = self.hops[hop];
            let Offer::Arrives(arrival) = self.links[place as usize].offer(at, size) else {
                self.free.push(number);
                return;
            };
            if then != Then::NextInAdvance {
                self.packets[number as usize].hop = hop as u32;
                self.carry(place as usize, arrival, number);
                return;
            }
            hop += 1;
            at = arrival;
        }
    }

    /// Puts a packet on its way over a link.
    #[inline(always)]
    fn carry(&mut self, place: usize, arrival: Time, number: u32) {
        if self.links[place].carry(arrival, number) {
            match self.ends[place] {
                End::Event(source) => self.pending.set(source as usize, arrival),
                End::Feeds(feeds) => self.feed(feeds, arrival),
                End::Unseen => unreachable!("packets wait only for the far ends of links that a plan has"),
            }
        }
    }

    /// A packet comes to a link with a discipline.
    fn enqueue(&mut self, place: usize, number: u32) {
        // A transmission that ends in this instant has left room, as in a link without a discipline.
        let service = self.services[place] as usize;
        if self.pending.get(service) <= self.now {
            self.pending.set(service, Time::MAX);
            self.serve(place);
        }
        let Packet { size, route, ecn_capable, marked, .. } = self.packets[number as usize];
        let waiting = Waiting { packet: number, size, flow: u64::from(route.0), since: self.now, ecn_capable, marked };
        self.links[place].enqueue(self.now, waiting, &mut self.dropped);
        self.release_dropped(place);
        if self.links[place].busy_until() <= self.now {
            self.serve(place);
        }
    }

    /// The transmitter of a link with a discipline is free: it takes the next packet.
    fn serve(&mut self, place: usize) {
        let next = self.links[place].next_waiting(self.now, &mut self.dropped);
        self.release_dropped(place);
        let Some(waiting) = next else { return };
        let link = &mut self.links[place];
        let packet = &mut self.packets[waiting.packet as usize];
        link.count.marked += u64::from(waiting.marked && !packet.marked);
        packet.marked = waiting.marked;
        match link.depart(self.now, waiting.size) {
            Offer::Arrives(arrival) => self.carry(place, arrival, waiting.packet),
            Offer::Gone => self.free.push(waiting.packet),
        }
        let free_at = self.links[place].busy_until();
        self.pending.set(self.services[place] as usize, free_at);
    }

    fn release_dropped(&mut self, place: usize) {
        self.links[place].count.dropped += self.dropped.len() as u64;
        self.free.extend(self.dropped.drain(..).map(|waiting| waiting.packet));
    }

    /// The present.
    #[inline]
    pub fn now(&self) -> Time {
        self.now
    }

    /// What `link` has done so far; a link that is computed in advance counts a packet as
    /// soon as its future is known.
    pub fn count(&mut self, link: LinkId) -> LinkCount {
        self.settle_all();
        self.links[link.0 as usize].count
    }

    /// What each link has done by each of these two instants, the first not after the second, will be asked for then,
    /// exactly. To be said before the first packet.
    pub fn set_marks(&mut self, at: [Time; 2]) {
        self.links.iter_mut().for_each(|link| link.set_marks(at));
    }

    /// At one of the marks: the packets whose transmission over `link` is over and all else that has happened to it by
    /// now, and the bytes that it has transmitted, parts of a packet among them. To be asked once for each link and mark;
    /// none at another instant.
    pub fn pass_mark(&mut self, link: LinkId) -> Option<(LinkCount, Bytes)> {
        self.settle_all();
        self.links[link.0 as usize].pass_mark(self.now)
    }

    /// The rate of `link` now; none if a packet takes no time.
    pub fn rate(&mut self, link: LinkId) -> Option<Rate> {
        self.settle_all();
        self.links[link.0 as usize].rate_at(self.now)
    }

    /// Bytes that `link` has transmitted until now, without those that wait; an estimate where its rate changes, or it is
    /// computed in advance.
    pub fn transmitted(&mut self, link: LinkId) -> Bytes {
        self.settle_all();
        let link = &mut self.links[link.0 as usize];
        Bytes::new(link.count.bytes) - link.bytes_ahead(self.now)
    }

    /// How long a packet that came to `link` now would wait before its transmission.
    pub fn backlog(&mut self, link: LinkId) -> Duration {
        self.settle_all();
        self.links[link.0 as usize].backlog(self.now)
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Nothing happens from then on, however it was sent: far beyond any run.
    pub fn horizon(&self) -> Time {
        self.pending.horizon()
    }

    /// Packets on their way.
    pub fn in_flight(&mut self) -> usize {
        self.settle_all();
        self.packets.len() - self.free.len() - usize::from(self.arrived.is_some())
    }

    /// Events so far: arrivals that needed one, merges, ends of transmission, timers.
    pub fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests;
