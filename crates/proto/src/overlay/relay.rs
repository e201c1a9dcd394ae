//! A relay: looks at a packet, holds to its limit, says where the packet goes.
//!
//! Every packet that a peer receives counts against what it is willing to take,
//! also one that is addressed to it; an ACK that has come home does not.
//! It keeps nothing of a packet that has passed. [Raiber 2010] 6.1.4.

use core::hash::Hash;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use crate::limiter::{Admission, LimitModel, Limiter};
use crate::overlay::fair_share::{FairShare, Source, Traffic};
use crate::overlay::granted_rate::GrantedRate;
use crate::overlay::packet::{Kind, Packet, TelemetryField};

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<A> {
    /// Send it to `to` after `wait`.
    Forward {
        /// The next node.
        to: A,
        /// How long it waits here first.
        wait: Duration,
    },
    /// It is for us, after `wait`.
    Deliver {
        /// How long it waits here first.
        wait: Duration,
    },
    /// An ACK has come home.
    Home,
    /// Discard it: it would exceed the limit.
    Refuse,
    /// Discard it: it is beyond the fair share of the neighbour that it comes from.
    OverShare,
}

/// One peer's relay.
#[derive(Clone, Debug)]
pub struct Relay {
    limiter: Limiter,
    /// What not every relay does.
    extras: Option<Box<Extras>>,
}

#[derive(Clone, Debug, Default)]
struct Extras {
    /// Of each neighbour.
    share: Option<FairShare>,
    /// What is stamped on ACKs.
    granted: Option<GrantedRate>,
}

impl Relay {
    /// A relay that holds to `limit`.
    pub fn new(model: LimitModel, limit: Rate) -> Relay {
        Relay { limiter: Limiter::new(model, limit), extras: None }
    }

    /// A relay that holds to `limit` and stamps on each ACK the rate that it grants its sender.
    pub fn stamping(model: LimitModel, limit: Rate) -> Relay {
        let granted = Some(GrantedRate::new(model, limit));
        Relay { extras: Some(Box::new(Extras { granted, share: None })), ..Relay::new(model, limit) }
    }

    /// The same, but each neighbour has its share of the limit, as `share` divides it.
    #[must_use]
    pub fn with_fair_share(mut self, share: FairShare) -> Relay {
        self.extras.get_or_insert_default().share = Some(share);
        self
    }

    /// The limit in force.
    pub fn limit(&self) -> Rate {
        self.limiter.limit()
    }

    /// The limit is `limit` from now on.
    pub fn set_limit(&mut self, now: Time, limit: Rate) {
        self.limiter.set_limit(now, limit);
        if let Some(share) = self.extras.as_mut().and_then(|extras| extras.share.as_mut()) {
            share.set_limit(limit);
        }
    }

    /// A packet of `size` has arrived at the node that its route is at. If it goes
    /// on, its route is moved to the next node.
    ///
    /// Always inlined: each packet of a simulation passes here, and the packet and the verdict would
    /// go through memory.
    #[inline(always)]
    pub fn on_packet<A, T>(&mut self, now: Time, packet: &mut Packet<A, T>, size: Bytes) -> Verdict<A>
    where
        A: Copy + Hash + Source,
        T: TelemetryField,
    {
        // One branch for both: the kind alone can't be predicted.
        if (packet.kind == Kind::Ack) & packet.route.is_home() {
            return Verdict::Home;
        }
        if self.extras.is_some() && self.is_over_share(now, packet, size) {
            return Verdict::OverShare;
        }
        let Admission::After(wait) = self.limiter.admit(now, size) else {
            return Verdict::Refuse;
        };
        packet.step().map_or(Verdict::Deliver { wait }, |to| Verdict::Forward { to, wait })
    }

    /// Whether the packet is beyond the fair share of the neighbour that it comes from. An ACK is
    /// stamped, if that is what this relay does.
    #[inline(never)]
    fn is_over_share<A, T>(&mut self, now: Time, packet: &mut Packet<A, T>, size: Bytes) -> bool
    where
        A: Copy + Hash + Source,
        T: TelemetryField,
    {
        let Some(extras) = &mut self.extras else { return false };
        // An ACK is never its neighbour's own: what that sends itself would leave nothing for it.
        let is_first = packet.kind == Kind::Data && packet.route.position() == 1;
        let traffic = if is_first { Traffic::Originated } else { Traffic::Transit };
        let source = &packet.route.nodes()[0];
        let Extras { share, granted, .. } = &mut **extras;
        let (mut is_over_share, mut is_believed) = (false, true);
        if let Some(share) = share {
            // Who is no neighbour is believed to be there as far as the neighbour may say so.
            let named = granted.as_mut().filter(|_| !is_first);
            let named = named.and_then(|granted| granted.turn_of_new(now, source, &self.limiter));
            let admitted = share.admit(now, &packet.previous(), traffic, size, named);
            (is_over_share, is_believed) = (!admitted.passes, admitted.is_believed);
        }
        if let Some(granted) = granted {
            let wait = self.limiter.backlog(now);
            let round_trip = packet.telemetry.round_trip();
            let source = is_believed.then_some(source);
            granted.on_packet(now, source, size, &self.limiter, wait, round_trip);
            if is_over_share {
                granted.on_over_share();
            }
            packet.stamp(granted.stamp());
        }
        is_over_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::packet::{PacketId, Route};

    fn packet() -> Packet<u32> {
        Packet::new(PacketId::default(), 1, Kind::Data, Route::new(0, [1, 2].into_iter(), 3))
    }

    fn relay(limit: u64) -> Relay {
        Relay::new(LimitModel::Window { phase: Duration::ZERO }, Rate::from_bytes_per_sec(limit))
    }

    #[test]
    fn data_goes_forth_is_delivered_and_its_ack_comes_home() {
        let (mut relay, mut packet, now) = (relay(1_000_000), packet(), Time::ZERO);
        let size = Bytes::new(1500);
        let wait = Duration::ZERO;
        assert_eq!(relay.on_packet(now, &mut packet, size), Verdict::Forward { to: 2, wait });
        assert_eq!(relay.on_packet(now, &mut packet, size), Verdict::Forward { to: 3, wait });
        assert_eq!(relay.on_packet(now, &mut packet, size), Verdict::Deliver { wait });
        assert_eq!(packet.turn_around(now), Some(2));
        assert_eq!(relay.on_packet(now, &mut packet, size), Verdict::Forward { to: 1, wait });
        assert_eq!(relay.on_packet(now, &mut packet, size), Verdict::Forward { to: 0, wait });
        assert_eq!(relay.on_packet(now, &mut packet, size), Verdict::Home);
    }

    #[test]
    fn what_exceeds_the_limit_is_refused_but_an_ack_at_home_never() {
        let (mut relay, mut packet) = (relay(1500), packet());
        let size = Bytes::new(1500);
        assert_ne!(relay.on_packet(Time::ZERO, &mut packet, size), Verdict::Refuse);
        assert_eq!(relay.on_packet(Time::ZERO, &mut packet, size), Verdict::Refuse);
        packet.kind = Kind::Ack;
        while packet.route.step_back().is_some() {}
        assert_eq!(relay.on_packet(Time::ZERO, &mut packet, size), Verdict::Home);
    }

    #[test]
    fn a_neighbour_that_invents_sources_takes_little_from_what_others_are_granted() {
        let (model, limit) = (LimitModel::Queue { longest: Duration::from_millis(100) }, 4_000_000);
        let limit = Rate::from_bytes_per_sec(limit);
        let mut relay = Relay::stamping(model, limit).with_fair_share(FairShare::new(model, limit, 64, [1, 2, 3, 4]));
        // Twenty senders over two relays of the neighbourhood.
        let mut comes = |at: u64, source: u32, neighbour: u32, size: u64| {
            let route = Route::from_nodes(&[source, neighbour, 7, 8], 2).unwrap();
            let mut packet = Packet::new(PacketId::default(), 1, Kind::Data, route);
            relay.on_packet(Time::ZERO + Duration::from_millis(at), &mut packet, Bytes::new(size));
            let granted = relay.extras.as_ref().and_then(|extras| extras.granted.as_ref()).unwrap();
            granted.stamp().rate().unwrap().bytes_per_sec()
        };
        let sender = |at: u64| (1000 + (at % 20) as u32, 100 + (at % 2) as u32);
        let before = (0..5_000).map(|at| comes(at, sender(at).0, sender(at).1, 1500)).last().unwrap();
        let mut least = before;
        for at in 5_000..10_000 {
            let invented = (0..4).map(|number| comes(at, 1_000_000 + 4 * at as u32 + number, 102, 100));
            least = invented.fold(least, f64::min);
            least = least.min(comes(at, sender(at).0, sender(at).1, 1500));
        }
        // Two turns of NAMED_BY_ONE sources beside the twenty.
        assert!(least > before / 5.0, "{least} of {before} bytes a second");
    }
}
