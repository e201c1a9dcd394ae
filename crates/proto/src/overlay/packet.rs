//! What travels: data that carries its whole route, and ACKs that go the same way back.

use core::fmt::Debug;

use anabranch_control::path::{MAX_RELAYS, Stamp};
use anabranch_control::time::{Duration, Time};

/// The sender's name for a packet in flight: a place in its table and how often that
/// place was used before, so that an old ACK is not taken for a new one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketId {
    /// Place in the sender's table.
    pub index: u32,
    /// How often the place was used before.
    pub generation: u32,
}

/// Source, relays and destination of a packet, and where on it the packet is.
/// `A` is a node in a simulation, an address on a network.
#[derive(Clone, Copy, Debug)]
pub struct Route<A> {
    nodes: [A; MAX_RELAYS + 2],
    /// Index of the destination.
    last: u8,
    /// Index of the node that has the packet, or that it is on its way to.
    at: u8,
}

/// Equal nodes at equal places; what stands behind the destination says nothing.
impl<A: PartialEq> PartialEq for Route<A> {
    fn eq(&self, other: &Route<A>) -> bool {
        let last = usize::from(self.last);
        self.at == other.at && self.last == other.last && self.nodes[..=last] == other.nodes[..=last]
    }
}

impl<A: Eq> Eq for Route<A> {}

impl<A: Copy> Route<A> {
    /// The route from `source` over `relays` to `destination`; on its way to the first relay.
    ///
    /// Panics with more than `MAX_RELAYS` relays, which no path controller chooses.
    pub fn new(source: A, relays: impl Iterator<Item = A>, destination: A) -> Route<A> {
        let mut nodes = [source; MAX_RELAYS + 2];
        let mut last = 1;
        for relay in relays {
            nodes[last] = relay;
            last += 1;
        }
        nodes[last] = destination;
        Route { nodes, last: last as u8, at: 1 }
    }

    /// The route over `nodes` (source, relays, destination) of a packet that is at, or
    /// on its way to, `nodes[at]`; none unless it has 1 to `MAX_RELAYS` relays and `at`
    /// is one of the nodes.
    pub fn from_nodes(nodes: &[A], at: usize) -> Option<Route<A>> {
        let relays = nodes.len().checked_sub(2)?;
        if !(1..=MAX_RELAYS).contains(&relays) || at >= nodes.len() {
            return None;
        }
        let mut all = [nodes[0]; MAX_RELAYS + 2];
        all[..nodes.len()].copy_from_slice(nodes);
        Some(Route { nodes: all, last: (nodes.len() - 1) as u8, at: at as u8 })
    }

    /// Source, relays and destination.
    pub fn nodes(&self) -> &[A] {
        &self.nodes[..=usize::from(self.last)]
    }

    /// Which of `nodes` has the packet, or is the one that it is on its way to.
    #[inline]
    pub fn position(&self) -> usize {
        usize::from(self.at)
    }

    /// The source is in fact `source`: what the first relay has observed.
    pub fn set_source(&mut self, source: A) {
        self.nodes[0] = source;
    }

    /// The node that has the packet, or that it is on its way to.
    #[inline]
    pub fn at(&self) -> A {
        self.nodes[usize::from(self.at)]
    }

    /// The node after `at` on the way to the destination; none at the destination.
    #[inline]
    pub fn step_forth(&mut self) -> Option<A> {
        self.step(Kind::Data)
    }

    /// The node before `at`, on the way to the source; none at the source.
    #[inline]
    pub fn step_back(&mut self) -> Option<A> {
        self.step(Kind::Ack)
    }

    /// Whether `at` is the source.
    #[inline]
    pub fn is_home(&self) -> bool {
        self.at == 0
    }

    /// The next node in the direction of `kind`, without a branch on it: which way a
    /// packet goes is what a processor predicts worst.
    #[inline]
    fn step(&mut self, kind: Kind) -> Option<A> {
        let end = self.last & (kind as u8).wrapping_sub(1);
        if self.at == end {
            return None;
        }
        self.at = (self.at + 1).wrapping_sub(2 * kind as u8);
        Some(self.at())
    }

    /// The node before `at` in the direction of `kind`, itself at the beginning; without a branch
    /// on it either, nor on whether the index is in bounds.
    #[inline]
    fn previous(&self, kind: Kind) -> A {
        let index = (self.at + 2 * kind as u8).saturating_sub(1).min(self.last);
        self.nodes[usize::from(index).min(MAX_RELAYS + 1)]
    }
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the source to the destination.
    Data = 0,
    /// From the destination back to the source.
    Ack = 1,
}

/// What data tells the relays on its way, and what its ACK tells the sender of it (in-band
/// telemetry, as RFC 9197 has it for IP). Claims, all of them: whoever forwards can change them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Telemetry {
    /// The sender's smoothed round-trip time in microseconds, on data; 0 if it knows none.
    pub round_trip_us: u32,
    /// The destination's clock in microseconds when the data arrived, modulo 2³², on the ACK;
    /// 0 if it did not tell.
    pub arrived_us: u32,
    /// What each relay stamped on the ACK, in the order of the route.
    pub stamps: [Stamp; MAX_RELAYS],
}

/// What a packet has room for beside its route: [`Telemetry`], or nothing, where nobody would read it.
pub trait TelemetryField: Copy + Default + Debug + PartialEq + Send {
    /// What data tells, whose sender's smoothed round-trip time is `round_trip`.
    fn of_data(round_trip: Option<Duration>) -> Self;

    /// What an ACK tells as it leaves the destination, where its data arrived at `now`.
    fn of_arrival(now: Time) -> Self;

    /// The relay at `place` of the route stamps an ACK.
    fn stamp(&mut self, place: usize, stamp: Stamp);

    /// A relay multiplies all stamps by `factor`.
    fn scale_stamps(&mut self, factor: f64);

    /// The sender's smoothed round-trip time, if it was told.
    fn round_trip(&self) -> Option<Duration>;

    /// The destination's clock at the arrival less the sender's at `sent_at`, in nanoseconds:
    /// within ±36 minutes, since the clock on the wire begins again after 71. None if it was not
    /// told.
    fn one_way_nanos(&self, sent_at: Time) -> Option<i64>;

    /// What each of this many relays stamped; empty if there is no room for stamps.
    fn stamps(&self, relays: usize) -> &[Stamp];
}

impl TelemetryField for Telemetry {
    #[inline]
    fn of_data(round_trip: Option<Duration>) -> Telemetry {
        let micros = round_trip.map_or(0, |time| (time.as_nanos() / 1_000).clamp(1, u64::from(u32::MAX)));
        Telemetry { round_trip_us: micros as u32, ..Telemetry::default() }
    }

    #[inline]
    fn of_arrival(now: Time) -> Telemetry {
        Telemetry { arrived_us: micros(now).max(1), ..Telemetry::default() }
    }

    #[inline]
    fn stamp(&mut self, place: usize, stamp: Stamp) {
        if let Some(place) = self.stamps.get_mut(place) {
            *place = stamp;
        }
    }

    fn scale_stamps(&mut self, factor: f64) {
        for stamp in &mut self.stamps {
            if let Some(rate) = stamp.rate() {
                *stamp = Stamp::granting((rate.bytes_per_sec() * factor) as f32);
            }
        }
    }

    #[inline]
    fn round_trip(&self) -> Option<Duration> {
        (self.round_trip_us > 0).then(|| Duration::from_nanos(u64::from(self.round_trip_us) * 1_000))
    }

    #[inline]
    fn one_way_nanos(&self, sent_at: Time) -> Option<i64> {
        let difference = self.arrived_us.wrapping_sub(micros(sent_at)) as i32;
        (self.arrived_us > 0).then(|| i64::from(difference) * 1_000)
    }

    #[inline]
    fn stamps(&self, relays: usize) -> &[Stamp] {
        &self.stamps[..relays]
    }
}

/// Tells nothing.
impl TelemetryField for () {
    #[inline]
    fn of_data(_: Option<Duration>) {}

    #[inline]
    fn of_arrival(_: Time) {}

    #[inline]
    fn stamp(&mut self, _: usize, _: Stamp) {}

    fn scale_stamps(&mut self, _: f64) {}

    #[inline]
    fn round_trip(&self) -> Option<Duration> {
        None
    }

    #[inline]
    fn one_way_nanos(&self, _: Time) -> Option<i64> {
        None
    }

    #[inline]
    fn stamps(&self, _: usize) -> &[Stamp] {
        &[]
    }
}

/// A clock as it travels.
#[inline]
fn micros(now: Time) -> u32 {
    (now.as_nanos() / 1_000) as u32
}

/// A packet as relays see it. Aligned to a cache line, and what every relay reads in the first
/// one, which is all of it where nothing is told: a simulation holds many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Packet<A, T = Telemetry> {
    /// The sender's name for it.
    pub id: PacketId,
    /// Drawn by the sender and told to the destination alone (on a network it travels
    /// encrypted); the ACK returns it, which proves that the packet arrived.
    pub nonce: u64,
    /// Data or ACK.
    pub kind: Kind,
    /// Where it goes.
    pub route: Route<A>,
    /// What is said of its way.
    pub telemetry: T,
}

const _: () = assert!(size_of::<Packet<u32, ()>>() == 64, "a packet that is simulated is one line");

/// A packet that goes nowhere, to be filled in.
impl<A: Copy + Default, T: Default> Default for Packet<A, T> {
    fn default() -> Packet<A, T> {
        let route = Route { nodes: [A::default(); MAX_RELAYS + 2], last: 1, at: 0 };
        Packet { id: PacketId::default(), nonce: 0, kind: Kind::Data, route, telemetry: T::default() }
    }
}

impl<A: Copy> Packet<A> {
    /// A packet of which nothing is told yet.
    pub fn new(id: PacketId, nonce: u64, kind: Kind, route: Route<A>) -> Packet<A> {
        Packet { id, nonce, kind, route, telemetry: Telemetry::default() }
    }
}

impl<A: Copy, T: TelemetryField> Packet<A, T> {
    /// The relay that has this packet stamps it, if it is an ACK.
    #[inline]
    pub fn stamp(&mut self, stamp: Stamp) {
        if self.kind == Kind::Ack
            && let Some(place) = usize::from(self.route.at).checked_sub(1)
        {
            self.telemetry.stamp(place, stamp);
        }
    }

    /// The node that it comes from: the one before on its way, itself at the beginning of it.
    #[inline]
    pub fn previous(&self) -> A {
        self.route.previous(self.kind)
    }

    /// Becomes `forwarded`, which is this packet after a node has worked on it: a node changes its
    /// kind, its nonce, where on its route it is, and its telemetry.
    #[inline]
    pub fn update(&mut self, forwarded: &Packet<A, T>) {
        self.kind = forwarded.kind;
        self.nonce = forwarded.nonce;
        self.route.at = forwarded.route.at;
        self.telemetry = forwarded.telemetry;
    }

    /// The next node on the way, forth for data and back for an ACK; none at its end.
    #[inline]
    pub fn step(&mut self) -> Option<A> {
        self.route.step(self.kind)
    }

    /// At the destination: the data becomes its ACK, which tells when it arrived, and goes to the
    /// last relay.
    #[inline]
    pub fn turn_around(&mut self, now: Time) -> Option<A> {
        self.kind = Kind::Ack;
        self.telemetry = T::of_arrival(now);
        self.route.step_back()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_comes_from_the_node_before_it_on_its_way() {
        let route = Route::new('a', "bcd".chars(), 'e');
        let mut packet = Packet::new(PacketId::default(), 7, Kind::Data, route);
        let mut came_from = Vec::new();
        loop {
            came_from.push(packet.previous());
            if packet.step().is_none() {
                break;
            }
        }
        packet.turn_around(Time::from_nanos(5_000));
        loop {
            came_from.push(packet.previous());
            if packet.step().is_none() {
                break;
            }
        }
        assert_eq!(came_from.iter().collect::<String>(), "abcdedcb");
        // At the beginning of its way it comes from itself.
        packet.kind = Kind::Data;
        assert_eq!(packet.previous(), 'a');
        assert_eq!(Packet { kind: Kind::Ack, route: Route { at: 4, ..route }, ..packet }.previous(), 'e');
    }

    #[test]
    fn an_update_brings_what_a_node_has_changed() {
        let route = Route::new('a', "bcd".chars(), 'e');
        let arrived = Packet::new(PacketId::default(), 7, Kind::Data, route);
        let (mut forwarded, mut updated) = (arrived, arrived);
        forwarded.step();
        forwarded.nonce = 8;
        forwarded.turn_around(Time::from_nanos(5_000));
        updated.update(&forwarded);
        assert_eq!(updated, forwarded);
        assert_ne!(updated, arrived);
    }

    #[test]
    fn an_ack_goes_back_the_way_its_packet_came() {
        let route = Route::new('a', "bcd".chars(), 'e');
        let mut packet = Packet::new(PacketId::default(), 7, Kind::Data, route);
        let mut forth = vec![packet.route.at()];
        forth.extend(core::iter::from_fn(|| packet.route.step_forth()));
        let mut back: Vec<char> = packet.turn_around(Time::from_nanos(5_000)).into_iter().collect();
        back.extend(core::iter::from_fn(|| packet.route.step_back()));
        assert_eq!((forth.iter().collect::<String>(), back.iter().collect::<String>()), ("bcde".into(), "dcba".into()));
        assert_eq!(packet.kind, Kind::Ack);
        assert!(packet.route.is_home());
    }

    #[test]
    fn one_way_delay_is_what_the_clocks_differ_by() {
        let mut packet = Packet::<u32>::default();
        assert_eq!(packet.telemetry.one_way_nanos(Time::ZERO), None);
        packet.route = Route::new(0, [1].into_iter(), 2);
        packet.turn_around(Time::from_secs_f64(5.25));
        assert_eq!(packet.telemetry.one_way_nanos(Time::from_secs_f64(5.0)), Some(250_000_000));
        // A receiver whose clock began later; and both clocks after more than 2³² microseconds.
        assert_eq!(packet.telemetry.one_way_nanos(Time::from_secs_f64(6.0)), Some(-750_000_000));
        let late = Time::from_secs_f64(10_000.0);
        packet.telemetry.arrived_us = micros(late + Duration::SECOND).max(1);
        assert_eq!(packet.telemetry.one_way_nanos(late), Some(1_000_000_000));
    }

    #[test]
    fn a_round_trip_travels_in_microseconds() {
        let of = |nanos| Telemetry::of_data(Some(Duration::from_nanos(nanos))).round_trip().map(Duration::as_nanos);
        assert_eq!(Telemetry::of_data(None).round_trip(), None);
        assert_eq!((of(0), of(1_999), of(u64::MAX)), (Some(1_000), Some(1_000), Some(u64::from(u32::MAX) * 1_000)));
    }
}
