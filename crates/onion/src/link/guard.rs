//! The guard's half: which label is where.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};

use anabranch_control::time::Time;
use anabranch_proto::overlay::hello::{Cookies, HelloBody};

use super::{LIFETIME, LinkFrame};
use crate::directory::Network;
use crate::packet::Label;

/// Links that a guard keeps at most: some 12 MiB, with what tells clients from strangers.
pub const MOST_LINKS: usize = 65_536;

/// Links of one network at most: as many users as a large household or a small office has, with two guards in
/// two epochs each.
pub const MOST_LINKS_OF_NETWORK: usize = 256;

#[derive(Clone, Copy, Debug)]
struct Link {
    address: SocketAddr,
    until: Time,
}

/// The clients that hang on a guard.
#[derive(Default)]
pub struct Links {
    cookies: Cookies,
    links: BTreeMap<Label, Link>,
    /// How many links each address has.
    addresses: HashMap<SocketAddr, u32>,
    /// How many links each network has.
    networks: BTreeMap<Network, usize>,
    /// When links may be over: nothing is looked through before.
    next: Option<Time>,
}

impl core::fmt::Debug for Links {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Links({} of {} networks)", self.links.len(), self.networks.len())
    }
}

impl Links {
    /// What a client says is answered, if it is a client's.
    pub fn on_frame(&mut self, now: Time, from: SocketAddr, frame: &LinkFrame) -> Option<LinkFrame> {
        let LinkFrame::Attach { label, cookie } = *frame else { return None };
        let source = address_of(from);
        let hello = HelloBody { cookie, proof: 0, opening: &label.0 };
        if !self.cookies.is_right(now, source, &hello) {
            return Some(LinkFrame::Prove { label, cookie: self.cookies.make(now, source, &label.0) });
        }
        self.forget(now);
        self.detach(label);
        let network = Network::of(source);
        let count = self.networks.get(&network).copied().unwrap_or(0);
        if self.links.len() >= MOST_LINKS || count >= MOST_LINKS_OF_NETWORK {
            return Some(LinkFrame::Refused { label });
        }
        let until = now + LIFETIME;
        self.networks.insert(network, count + 1);
        *self.addresses.entry(from).or_insert(0) += 1;
        self.links.insert(label, Link { address: from, until });
        self.next = Some(self.next.map_or(until, |next| next.min(until)));
        Some(LinkFrame::Attached { label })
    }

    /// Where the client with this label is.
    pub fn address(&self, now: Time, label: Label) -> Option<SocketAddr> {
        self.links.get(&label).filter(|link| now < link.until).map(|link| link.address)
    }

    /// Whether a client is at `address`, or was a little while ago.
    pub fn has(&self, now: Time, address: SocketAddr) -> bool {
        let is_over = self.next.is_some_and(|next| now >= next + LIFETIME);
        !is_over && self.addresses.contains_key(&address)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Forgets those that were silent for too long, in one pass each [`LIFETIME`] or less often.
    fn forget(&mut self, now: Time) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let over: Vec<Label> =
            self.links.iter().filter(|(_, link)| link.until <= now).map(|(label, _)| *label).collect();
        over.into_iter().for_each(|label| self.detach(label));
        self.next = (!self.links.is_empty()).then(|| now + LIFETIME);
    }

    fn detach(&mut self, label: Label) {
        let Some(link) = self.links.remove(&label) else { return };
        if let Some(count) = self.addresses.get_mut(&link.address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&link.address);
            }
        }
        let network = Network::of(address_of(link.address));
        if let Some(count) = self.networks.get_mut(&network) {
            *count -= 1;
            if *count == 0 {
                self.networks.remove(&network);
            }
        }
    }
}

fn address_of(address: SocketAddr) -> IpAddr {
    address.ip().to_canonical()
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;
    use anabranch_proto::overlay::hello::Cookie;

    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    fn attach(links: &mut Links, now: Time, from: SocketAddr, label: Label) -> Option<LinkFrame> {
        let Some(LinkFrame::Prove { cookie, .. }) =
            links.on_frame(now, from, &LinkFrame::Attach { label, cookie: Cookie::default() })
        else {
            panic!("an address is to be proved first");
        };
        links.on_frame(now, from, &LinkFrame::Attach { label, cookie })
    }

    #[test]
    fn nothing_is_remembered_before_an_address_is_proved() {
        let mut links = Links::default();
        for host in 0..1000_u16 {
            let from = SocketAddr::from(([10, 0, (host >> 8) as u8, host as u8], 5));
            let label = Label(u64::from(host).to_be_bytes());
            let answer = links.on_frame(at(1.0), from, &LinkFrame::Attach { label, cookie: [7; 16] });
            assert!(matches!(answer, Some(LinkFrame::Prove { .. })), "{answer:?}");
        }
        assert!(links.is_empty() && links.networks.is_empty());
    }

    #[test]
    fn a_cookie_is_good_for_its_address_and_its_label() {
        let mut links = Links::default();
        let (here, there, label) = (address("192.0.2.1:5"), address("198.51.100.1:5"), Label([1; 8]));
        let Some(LinkFrame::Prove { cookie, .. }) =
            links.on_frame(at(1.0), here, &LinkFrame::Attach { label, cookie: Cookie::default() })
        else {
            panic!("a cookie");
        };
        let others = [(there, label), (here, Label([2; 8]))];
        for (from, label) in others {
            let answer = links.on_frame(at(1.0), from, &LinkFrame::Attach { label, cookie });
            assert!(matches!(answer, Some(LinkFrame::Prove { .. })), "{answer:?}");
        }
        assert_eq!(
            links.on_frame(at(1.0), here, &LinkFrame::Attach { label, cookie }),
            Some(LinkFrame::Attached { label })
        );
        assert_eq!(links.address(at(2.0), label), Some(here));
    }

    #[test]
    fn who_says_nothing_for_a_minute_is_forgotten_and_who_moves_is_found() {
        let mut links = Links::default();
        let (here, there, label) = (address("192.0.2.1:5"), address("[2001:db8::1]:5"), Label([1; 8]));
        attach(&mut links, at(1.0), here, label);
        attach(&mut links, at(31.0), there, label);
        assert_eq!((links.address(at(90.9), label), links.len()), (Some(there), 1));
        assert!(links.has(at(90.9), there) && !links.has(at(90.9), here));
        assert_eq!(links.address(at(91.0), label), None);
        attach(&mut links, at(200.0), here, Label([2; 8]));
        assert_eq!((links.len(), links.networks.len()), (1, 1), "the one that was silent is gone");
        assert!(links.has(at(200.0), here) && !links.has(at(200.0), there));
    }

    #[test]
    fn one_network_does_not_take_all_the_room() {
        let mut links = Links::default();
        let label = |number: usize| Label((number as u64).to_be_bytes());
        let here = |number: usize| SocketAddr::from(([192, 0, 2, number as u8], 5));
        for number in 0..MOST_LINKS_OF_NETWORK {
            assert!(matches!(
                attach(&mut links, at(1.0), here(number), label(number)),
                Some(LinkFrame::Attached { .. })
            ));
        }
        assert_eq!(attach(&mut links, at(1.0), here(9), label(999)), Some(LinkFrame::Refused { label: label(999) }));
        assert!(matches!(attach(&mut links, at(2.0), here(9), label(7)), Some(LinkFrame::Attached { .. })), "again");
        let other = attach(&mut links, at(1.0), address("192.0.3.1:5"), label(999));
        assert!(matches!(other, Some(LinkFrame::Attached { .. })));
    }

    #[test]
    fn there_are_never_more_links_than_fit_and_old_ones_make_room() {
        let mut links = Links::default();
        let from = |number: usize| SocketAddr::from(([10, (number >> 16) as u8, (number >> 8) as u8, number as u8], 5));
        let label = |number: usize| Label((number as u64).to_be_bytes());
        for number in 0..MOST_LINKS + 5 {
            attach(&mut links, at(1.0), from(number), label(number));
        }
        assert_eq!(links.len(), MOST_LINKS);
        let later = at(1.0) + LIFETIME + Duration::from_millis(1);
        assert!(matches!(attach(&mut links, later, from(1), label(1)), Some(LinkFrame::Attached { .. })));
        assert_eq!(links.len(), 1);
    }

    #[test]
    fn what_a_guard_says_is_not_answered() {
        let mut links = Links::default();
        let label = Label([1; 8]);
        for frame in
            [LinkFrame::Prove { label, cookie: [1; 16] }, LinkFrame::Attached { label }, LinkFrame::Refused { label }]
        {
            assert_eq!(links.on_frame(at(1.0), address("192.0.2.1:5"), &frame), None);
        }
    }
}
