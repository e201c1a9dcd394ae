//! Links, routes over them, and timers: whatever a packet carries, it is moved from one
//! end of its route to the other.
//!
//! A link is one pending event, the next arrival at its far end; so is a timer. Where all
//! packets of a link come over one other link, first in, first out, its part is computed
//! together with that link's, in advance, which changes nothing but the number of events.

mod link;
mod queue;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

pub use link::{Jitter, LinkConfig, LinkCount};
pub use queue::{Capacity, Discipline, Waiting};

use crate::tournament::Tournament;
use link::{Link, Offer};

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
pub enum Event<P> {
    /// A packet has come to the end of its route.
    Arrived(Arrived<P>),
    /// A timer's instant has come.
    Timer(TimerId),
}

/// A packet at the end of its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived<P> {
    /// What it carries.
    pub payload: P,
    /// When it set out.
    pub sent_at: Time,
    /// Whether it bears a congestion-experienced mark.
    pub marked: bool,
}

/// A packet on its way.
#[derive(Clone, Copy, Debug)]
struct Packet<P> {
    payload: P,
    sent_at: Time,
    size: u32,
    route: RouteId,
    /// Links of the route behind it.
    passed: u16,
    ecn_capable: bool,
    marked: bool,
}

/// What a network is made of.
#[derive(Debug)]
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

    /// `link`'s queue will be looked at: it must not be computed in advance.
    pub fn watch(&mut self, link: LinkId) {
        self.watched.push(link);
    }

    /// The network, with `timers` timers and random streams of `seed`.
    pub fn build<P: Copy>(self, timers: usize, seed: u64) -> Network<P> {
        let links: Vec<Link> = self.links.into_iter().map(|config| Link::new(config, seed)).collect();
        let in_advance = computed_in_advance(&links, &self.routes, &self.watched);
        let mut sources: Vec<Source> = (0..links.len() as u32).map(Source::Arrival).collect();
        let arrivals = sources.len();
        sources.extend((0..timers as u32).map(Source::Timer));
        let services = (0..links.len()).map(|place| {
            let place = place as u32;
            let has_discipline = links[place as usize].discipline.is_some();
            if has_discipline {
                sources.push(Source::Service(place));
            }
            (sources.len() - 1) as u32
        });
        let services = services.collect();
        Network {
            in_advance,
            first_timer: arrivals,
            services,
            pending: Tournament::new(sources.len()),
            sources: sources.into(),
            links,
            routes: self.routes,
            packets: Vec::new(),
            free: Vec::new(),
            timers: vec![Time::MAX; timers].into(),
            now: Time::ZERO,
            dropped: Vec::new(),
            events: 0,
        }
    }
}

/// Which links follow a single other one on every route, first in, first out.
fn computed_in_advance(links: &[Link], routes: &[Box<[u32]>], watched: &[LinkId]) -> Box<[bool]> {
    #[derive(Clone, Copy, PartialEq)]
    enum Feeder {
        Unknown,
        Only(u32),
        Several,
    }
    let mut feeders = vec![Feeder::Unknown; links.len()];
    for route in routes {
        feeders[route[0] as usize] = Feeder::Several;
        for pair in route.windows(2) {
            let feeder = &mut feeders[pair[1] as usize];
            *feeder = match *feeder {
                Feeder::Unknown => Feeder::Only(pair[0]),
                Feeder::Only(only) if only == pair[0] => Feeder::Only(only),
                _ => Feeder::Several,
            };
        }
    }
    let follows = |(link, feeder): (usize, &Feeder)| match *feeder {
        Feeder::Only(before) => {
            links[before as usize].is_first_in_first_out()
                && links[link].is_first_in_first_out()
                && !watched.contains(&LinkId(link as u32))
        }
        _ => false,
    };
    feeders.iter().enumerate().map(follows).collect()
}

/// What is pending.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The next arrival at a link's far end.
    Arrival(u32),
    /// The end of a transmission on a link with a discipline.
    Service(u32),
    Timer(u32),
}

/// Moves packets that carry a `P`.
#[derive(Debug)]
pub struct Network<P> {
    links: Vec<Link>,
    routes: Vec<Box<[u32]>>,
    in_advance: Box<[bool]>,
    packets: Vec<Packet<P>>,
    free: Vec<u32>,
    /// When each timer is really due; what is pending may be earlier.
    timers: Box<[Time]>,
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

impl<P: Copy> Network<P> {
    /// Sends `payload` in a packet of `size` bytes over `route`, now.
    #[inline]
    pub fn send(&mut self, route: RouteId, size: u32, ecn_capable: bool, payload: P) {
        let sent_at = self.now;
        let packet = Packet { payload, sent_at, size, route, passed: 0, ecn_capable, marked: false };
        let number = match self.free.pop() {
            Some(number) => {
                self.packets[number as usize] = packet;
                number
            }
            None => {
                self.packets.push(packet);
                self.packets.len() as u32 - 1
            }
        };
        self.forward(number);
    }

    /// Sets when `timer` is due; `Time::MAX` stops it.
    #[inline]
    pub fn set_timer(&mut self, timer: TimerId, at: Time) {
        self.timers[timer.0 as usize] = at;
        // One that is put off is looked at again when it was due before: most are put off
        // many times before they come.
        let source = self.first_timer + timer.0 as usize;
        if at < self.pending.get(source) {
            self.pending.set(source, at);
        }
    }

    /// What happens next before `end`; none brings the time to `end`, if that is an instant.
    #[inline]
    pub fn next(&mut self, end: Time) -> Option<Event<P>> {
        loop {
            let (at, source) = self.pending.earliest();
            if at >= end {
                if end < Time::MAX {
                    self.now = self.now.max(end);
                }
                return None;
            }
            self.now = at;
            self.events += 1;
            match self.sources[source] {
                Source::Arrival(place) => {
                    let (number, next) = self.links[place as usize].arrive();
                    self.pending.set(source, next);
                    let packet = &mut self.packets[number as usize];
                    packet.passed += 1;
                    if usize::from(packet.passed) == self.routes[packet.route.0 as usize].len() {
                        self.free.push(number);
                        let Packet { payload, sent_at, marked, .. } = *packet;
                        return Some(Event::Arrived(Arrived { payload, sent_at, marked }));
                    }
                    self.forward(number);
                }
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
                    self.pending.set(source, Time::MAX);
                    return Some(Event::Timer(TimerId(timer)));
                }
            }
        }
    }

    /// Brings a packet onto the next link of its route, and over those that follow as far
    /// as that can be known now.
    #[inline]
    fn forward(&mut self, number: u32) {
        let packet = &mut self.packets[number as usize];
        let route = &self.routes[packet.route.0 as usize];
        let mut at = self.now;
        loop {
            let place = route[usize::from(packet.passed)] as usize;
            let link = &mut self.links[place];
            if link.discipline.is_some() {
                self.enqueue(place, number);
                return;
            }
            let Offer::Arrives(arrival) = link.offer(at, packet.size) else {
                self.free.push(number);
                return;
            };
            let next = route.get(usize::from(packet.passed) + 1);
            if next.is_some_and(|&next| self.in_advance[next as usize]) {
                packet.passed += 1;
                at = arrival;
                continue;
            }
            if link.carry(arrival, number) {
                self.pending.set(place, arrival);
            }
            return;
        }
    }

    /// A packet comes to a link with a discipline.
    fn enqueue(&mut self, place: usize, number: u32) {
        let Packet { size, route, ecn_capable, marked, .. } = self.packets[number as usize];
        let waiting = Waiting { packet: number, size, flow: u64::from(route.0), since: self.now, ecn_capable, marked };
        let link = &mut self.links[place];
        if let Some(discipline) = &mut link.discipline {
            discipline.enqueue(self.now, waiting, &mut self.dropped, &mut link.discipline_rng);
        }
        self.release_dropped(place);
        if self.links[place].busy_until() <= self.now && self.pending.get(self.services[place] as usize) == Time::MAX {
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
            Offer::Arrives(arrival) => {
                if link.carry(arrival, waiting.packet) {
                    self.pending.set(place, arrival);
                }
            }
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
    pub fn count(&self, link: LinkId) -> LinkCount {
        self.links[link.0 as usize].count
    }

    /// The rate of `link` now; none if a packet takes no time.
    pub fn rate(&mut self, link: LinkId) -> Option<Rate> {
        self.links[link.0 as usize].rate_at(self.now)
    }

    /// How long a packet that came to `link` now would wait before its transmission.
    pub fn backlog(&mut self, link: LinkId) -> Duration {
        self.links[link.0 as usize].backlog(self.now)
    }

    /// Packets on their way.
    pub fn in_flight(&self) -> usize {
        self.packets.len() - self.free.len()
    }

    /// Events so far: arrivals that were not computed in advance, ends of transmission,
    /// timers.
    pub fn events(&self) -> u64 {
        self.events
    }
}

#[cfg(test)]
mod tests;
