//! Which parts of a network need no event of their own.
//!
//! What leaves a link first in, first out is known as soon as what comes to it is. So a
//! link that a single other one feeds is computed together with that one, *in advance*; and
//! a link that several feed takes what they bring *late*, many packets at once, before the
//! first of them could be seen at its far end. Neither changes anything but the number of
//! events.

use anabranch_control::time::Duration;

use super::LinkId;
use super::link::Link;

/// A link of a route.
#[derive(Clone, Copy, Debug)]
pub struct Hop {
    pub link: u32,
    pub kind: Kind,
    pub then: Then,
}

/// How a link takes a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// First in, first out, at once.
    Prompt,
    /// First in, first out, after what the feeders of this merge have brought.
    Late(u32),
    /// Under a queue discipline.
    Disciplined,
}

impl Kind {
    fn without_merge(link: &Link) -> Kind {
        if link.discipline.is_some() { Kind::Disciplined } else { Kind::Prompt }
    }
}

/// What follows when a packet has passed a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The end of the route.
    Arrived,
    /// The next hop, once it is there.
    Next,
    /// The next hop, which is computed in advance.
    NextInAdvance,
}

/// A link that takes late what other links bring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merging {
    pub link: u32,
    /// Those that bring packets to it and to nothing else that is not in advance.
    pub feeders: Box<[u32]>,
    /// What a packet needs at least from its far end to where it is seen: over links that
    /// are computed in advance.
    pub beyond: Duration,
}

/// How packets are moved.
#[derive(Debug)]
pub struct Plan {
    /// The hops of all routes, one route after the other.
    pub hops: Box<[Hop]>,
    /// Where each route's begin.
    pub first_hops: Box<[u32]>,
    /// What follows at the far end of each link that packets wait for.
    pub ends: Box<[End]>,
    /// Links whose arrivals are events, ascending.
    pub seen: Vec<u32>,
    pub merging: Vec<Merging>,
}

/// The far end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its packets' next arrivals are known to the links after it, or there are none.
    Unseen,
    /// Each arrival is an event, and the next one this number among those that are pending.
    Event(u32),
    /// Arrivals are taken late by the link after it.
    Feeds(Feeds),
}

/// Which merge a link feeds, and its place among the feeders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feeds {
    pub merge: u32,
    pub place: u32,
}

impl Plan {
    pub fn new(links: &[Link], routes: &[Box<[u32]>], watched: &[LinkId]) -> Plan {
        let is_watched = |link: usize| watched.contains(&LinkId(link as u32));
        let in_advance = computed_in_advance(links, routes, is_watched);
        let merging = merging(links, routes, is_watched, &in_advance);
        let mut kinds: Vec<Kind> = links.iter().map(Kind::without_merge).collect();
        (0..).zip(&merging).for_each(|(number, merging)| kinds[merging.link as usize] = Kind::Late(number));
        let mut hops = Vec::new();
        let mut first_hops = Vec::new();
        for route in routes {
            first_hops.push(hops.len() as u32);
            for (passed, &link) in route.iter().enumerate() {
                let then = match route.get(passed + 1) {
                    None => Then::Arrived,
                    Some(&next) if in_advance[next as usize] => Then::NextInAdvance,
                    Some(_) => Then::Next,
                };
                hops.push(Hop { link, kind: kinds[link as usize], then });
            }
        }
        let mut ends = vec![End::Unseen; links.len()];
        for (merge, merging) in (0..).zip(&merging) {
            for (place, &feeder) in (0..).zip(&merging.feeders) {
                ends[feeder as usize] = End::Feeds(Feeds { merge, place });
            }
        }
        let mut seen: Vec<u32> =
            hops.iter().filter(|hop| hop.then != Then::NextInAdvance).map(|hop| hop.link).collect();
        seen.sort_unstable();
        seen.dedup();
        seen.retain(|&link| ends[link as usize] == End::Unseen);
        (0..).zip(&seen).for_each(|(number, &link)| ends[link as usize] = End::Event(number));
        Plan { hops: hops.into(), first_hops: first_hops.into(), ends: ends.into(), seen, merging }
    }
}

/// The only one of several, if there is only one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Only {
    Unknown,
    One(u32),
    Several,
}

impl Only {
    fn add(&mut self, one: u32) {
        *self = match *self {
            Only::Unknown => Only::One(one),
            Only::One(only) if only == one => Only::One(only),
            _ => Only::Several,
        };
    }
}

/// Which links follow a single other one on every route, first in, first out.
fn computed_in_advance(links: &[Link], routes: &[Box<[u32]>], is_watched: impl Fn(usize) -> bool) -> Box<[bool]> {
    let mut feeders = vec![Only::Unknown; links.len()];
    for route in routes {
        feeders[route[0] as usize] = Only::Several;
        route.windows(2).for_each(|pair| feeders[pair[1] as usize].add(pair[0]));
    }
    let follows = |(link, feeder): (usize, &Only)| match *feeder {
        Only::One(before) => {
            links[before as usize].is_first_in_first_out() && links[link].is_first_in_first_out() && !is_watched(link)
        }
        _ => false,
    };
    feeders.iter().enumerate().map(follows).collect()
}

/// The links that take late what others bring, first in, first out on both sides.
fn merging(
    links: &[Link],
    routes: &[Box<[u32]>],
    is_watched: impl Fn(usize) -> bool,
    in_advance: &[bool],
) -> Vec<Merging> {
    let mut followers = vec![Only::Unknown; links.len()];
    for route in routes {
        let after = route[1..].iter().map(Some).chain([None]);
        for (&link, next) in route.iter().zip(after) {
            match next {
                None => followers[link as usize] = Only::Several,
                Some(&next) if !in_advance[next as usize] => followers[link as usize].add(next),
                Some(_) => {}
            }
        }
    }
    let feeds = |feeder: usize, link: usize| {
        followers[feeder] == Only::One(link as u32) && feeder != link && links[feeder].is_first_in_first_out()
    };
    let can_merge = |&link: &usize| links[link].is_first_in_first_out() && !is_watched(link);
    (0..links.len())
        .filter(can_merge)
        .map(|link| Merging {
            link: link as u32,
            feeders: (0..links.len()).filter(|&feeder| feeds(feeder, link)).map(|feeder| feeder as u32).collect(),
            beyond: beyond(links, routes, in_advance, link as u32),
        })
        .filter(|merging| !merging.feeders.is_empty())
        .collect()
}

/// What every packet needs at least over the links that follow `link` in advance.
fn beyond(links: &[Link], routes: &[Box<[u32]>], in_advance: &[bool], link: u32) -> Duration {
    let after = |route: &[u32], place: usize| -> Duration {
        let chain = route[place + 1..].iter().take_while(|&&next| in_advance[next as usize]);
        chain.map(|&next| links[next as usize].least_delay()).sum()
    };
    let places = routes.iter().flat_map(|route| {
        let places = route.iter().enumerate().filter(|&(_, &hop)| hop == link);
        places.map(|(place, _)| after(route, place))
    });
    places.min().unwrap_or(Duration::ZERO)
}
