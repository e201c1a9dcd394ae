//! What a user shares with relays: a stock of keys for each relay and position and, but for guards, which know their
//! user anyway, for each [`Isolation`]: a relay that sees one key knows that its packets are one user's.
//!
//! The first packet under a key sets it up (index 0); k − 1 further ones show one-time ids. Since packets
//! overtake each other, a key is used again only when the packet that set it up is known to have arrived,
//! and then for [`AHEAD_AT_FIRST`] packets, until one of those is known to have, and [`AHEAD`] past the newest. A new key
//! is set up before the old ones run out: where keys that may be used are short, each packet sets up one.
//!
//! A key whose packets do not arrive is given up, since its relay may have restarted. If one of them arrives after all,
//! the relay has it: a burst of late packets does not cost the set-ups of all keys that they took.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use arrayvec::ArrayVec;
use rand_core::Rng;

use super::header::{self, Layer, build};
use super::path::check;
use super::{Datagram, HEADER, Half, Hop, INTEGRITY, Label, MATERIAL, Next, PacketsPerKey, PathError, Position, parts};
use crate::RelayIndex;
use crate::crypto::{Cryptography, HopKey, PacketKeys};
use crate::size::MOST_HOPS;

/// How many ids beyond the newest seen a relay knows of a key, and a sender uses.
pub const AHEAD: u16 = 32;

/// The same of a key under which none was seen but its set-up: little, so that a flood of set-ups takes little.
pub const AHEAD_AT_FIRST: u16 = 8;

/// Keys of one relay and position. Where no more fit, and none of them may be used yet, further packets set up keys
/// that serve once. Four round trips use a key up (1, 8, 32 and 23 packets of 64), so that a quarter of these would do
/// for 4096 packets on their way that keep their order.
const MOST_KEYS: usize = 1024;

/// Packets that keys shall still be good for, for each that is on its way. A key lasts for four round trips, in which 1, 8,
/// 32 and 23 of its 64 packets leave, 16 on average, and meanwhile it is good for 43 more on average: a rate that stands
/// still needs 43 / 16 = 2.7. One that doubles each round trip has four times as many on their way once a key that is
/// set up now is good for more than eight at a time, and where keys are short, each packet sets up one. With these, keys
/// last for three times the packets that are on their way.
const AHEAD_OF_USE: u32 = 8;

/// Losses in a row, none of its packets having arrived between, after which a key is given up: its relay may
/// have restarted. On paths that lose half of all packets, one key in 256 is given up for nothing.
const LOSSES_TO_GIVE_UP: u8 = 8;

/// Keys of one relay and position that were given up and may be taken up again: as many as are in use at once where 4096
/// packets are on their way.
const MOST_GIVEN_UP: usize = 256;

/// Whose packets share keys at the relays behind guards. Those of two isolations have none in common, so that no relay
/// there, an exit least of all, can tell by its keys that both are of one user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Isolation(pub u64);

/// A user's keys at relays, for one epoch.
#[derive(Clone, Debug)]
pub struct PathKeys<C> {
    packets: PacketsPerKey,
    epoch: u64,
    guards: BTreeSet<RelayIndex>,
    /// By isolation; those at the user's edge are with the first one's.
    stocks: BTreeMap<Isolation, Stocks>,
    /// Keys made so far, over all epochs.
    made: u64,
    /// Those made before this epoch.
    past: u64,
    cryptography: core::marker::PhantomData<C>,
}

/// The keys of one isolation.
#[derive(Debug)]
pub struct Isolated<'a, C> {
    pub(crate) keys: &'a mut PathKeys<C>,
    isolation: Isolation,
}

/// Those of a program that is one user with one purpose.
impl<'a, C> From<&'a mut PathKeys<C>> for Isolated<'a, C> {
    fn from(keys: &'a mut PathKeys<C>) -> Isolated<'a, C> {
        Isolated { keys, isolation: Isolation::default() }
    }
}

/// Which keys a packet took: whoever learns what became of it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "keys are used again when their first packet is known to have arrived"]
pub struct Receipt {
    isolation: Isolation,
    used: [Option<Used>; MOST_HOPS],
}

#[cfg(test)]
impl<C> PathKeys<C> {
    /// Of how many there is something.
    pub(crate) fn isolations(&self) -> usize {
        self.stocks.len()
    }
}

#[cfg(test)]
impl Receipt {
    /// The place of each relay, 0 for the guard, and the number of the key that the packet took there.
    pub(crate) fn serials(&self) -> impl Iterator<Item = (usize, u64)> {
        self.used.iter().flatten().map(|used| (usize::from(used.position.place), used.serial))
    }
}

/// Where the keys of this place are kept.
fn kept_with(isolation: Isolation, position: Position) -> Isolation {
    if position.place == 0 { Isolation::default() } else { isolation }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Used {
    relay: RelayIndex,
    position: Position,
    serial: u64,
    index: u16,
}

/// For each position, by the relay's index: what is there for a packet lies in one place, of a thousand relays.
#[derive(Clone, Debug, Default)]
struct Stocks([[Vec<Stock>; MOST_HOPS]; Half::ALL.len()]);

impl Stocks {
    fn get_mut(&mut self, relay: RelayIndex, position: Position) -> Option<&mut Stock> {
        let at = &mut self.0[position.half as usize][usize::from(position.place)];
        at.get_mut(usize::from(relay.0))
    }

    /// The same, which is begun if there was none.
    fn at(&mut self, relay: RelayIndex, position: Position) -> &mut Stock {
        let at = &mut self.0[position.half as usize][usize::from(position.place)];
        let place = usize::from(relay.0);
        if at.len() <= place {
            at.resize_with(place + 1, Stock::default);
        }
        &mut at[place]
    }

    /// What there is of `relay` at the places from `first` on goes.
    fn forget(&mut self, relay: RelayIndex, first: usize) {
        for half in &mut self.0 {
            let of = half[first..].iter_mut().filter_map(|at| at.get_mut(usize::from(relay.0)));
            of.for_each(|stock| *stock = Stock::default());
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Stock> {
        self.0.iter().flatten().flatten()
    }
}

#[derive(Clone, Debug, Default)]
struct Stock {
    keys: Keys,
    /// Those that were given up.
    given_up: Keys,
    /// Packets that all keys are still good for.
    left: u32,
    /// Packets of whose fate nothing is known.
    underway: u32,
}

/// By serial: the oldest first. They are one or two, but where very much is sent.
#[derive(Clone, Debug, Default)]
struct Keys(Vec<Key>);

impl Keys {
    fn place(&self, serial: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&serial, |key| key.serial)
    }

    fn get_mut(&mut self, serial: u64) -> Option<&mut Key> {
        let place = self.place(serial).ok()?;
        Some(&mut self.0[place])
    }

    fn remove(&mut self, serial: u64) -> Option<Key> {
        let place = self.place(serial).ok()?;
        Some(self.0.remove(place))
    }

    fn insert(&mut self, key: Key) {
        let (Ok(place) | Err(place)) = self.place(key.serial);
        self.0.insert(place, key);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Clone, Debug)]
struct Key {
    serial: u64,
    key: HopKey,
    /// The index of the next packet.
    next: u16,
    /// The newest packet known to have arrived.
    arrived: Option<u16>,
    /// Packets lost since one arrived.
    lost: u8,
}

/// What a packet takes of a stock.
struct Drawn {
    key: HopKey,
    serial: u64,
    index: u16,
    material: [u8; MATERIAL],
}

/// What the maker of a packet knows of one relay's part in it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub relay: RelayIndex,
    pub key: HopKey,
    pub index: u16,
}

/// A header and what its maker knows of it.
pub(crate) struct Made<C: Cryptography> {
    pub name: u64,
    pub receipt: Receipt,
    pub layers: ArrayVec<Layer<C>, MOST_HOPS>,
    pub parts: ArrayVec<Part, MOST_HOPS>,
}

impl<C: Cryptography> PathKeys<C> {
    /// None yet, in a network that allows `packets` a key.
    pub fn new(packets: PacketsPerKey) -> PathKeys<C> {
        PathKeys {
            packets,
            epoch: 0,
            guards: BTreeSet::new(),
            stocks: BTreeMap::new(),
            made: 0,
            past: 0,
            cryptography: core::marker::PhantomData,
        }
    }

    /// Another epoch: relays have other keys and other indices. `guards` are this user's there: no path has one
    /// of them anywhere but at the user's edge.
    pub fn begin_epoch(&mut self, epoch: u64, guards: impl IntoIterator<Item = RelayIndex>) {
        self.stocks.clear();
        self.past = self.made;
        self.epoch = epoch;
        self.guards = guards.into_iter().collect();
    }

    /// Other guards in the same epoch. Keys stay, but for those at a relay inside of paths that is a guard now.
    pub fn set_guards(&mut self, guards: impl IntoIterator<Item = RelayIndex>) {
        self.guards = guards.into_iter().collect();
        for stocks in self.stocks.values_mut() {
            self.guards.iter().for_each(|guard| stocks.forget(*guard, 1));
        }
    }

    /// The epoch that its keys are of.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Those of an isolation.
    pub fn isolated(&mut self, isolation: Isolation) -> Isolated<'_, C> {
        Isolated { keys: self, isolation }
    }

    /// Nothing of an isolation leaves any more: its keys are forgotten, but for those at guards.
    pub fn end(&mut self, isolation: Isolation) {
        if isolation != Isolation::default() {
            self.stocks.remove(&isolation);
        }
    }

    /// Seals the datagram's [`body`](super::body_mut) for the end behind the last of `hops`, which finds it by
    /// `label`. The datagram goes to the first of `hops`.
    ///
    /// # Errors
    ///
    /// When there is no such path.
    pub fn seal(
        &mut self,
        hops: &[Hop],
        label: Label,
        rng: &mut impl Rng,
        datagram: &mut Datagram,
    ) -> Result<Receipt, PathError> {
        Isolated::from(self).seal(hops, label, rng, datagram)
    }

    /// The packet has arrived: at the other end, or as a block back here.
    pub fn arrived(&mut self, receipt: &Receipt) {
        self.settle(receipt, Fate::Arrived);
    }

    /// The packet is given up as lost.
    pub fn lost(&mut self, receipt: &Receipt) {
        self.settle(receipt, Fate::Lost);
    }

    /// The packet, given up before, has arrived after all.
    pub fn arrived_late(&mut self, receipt: &Receipt) {
        self.settle(receipt, Fate::ArrivedLate);
    }

    /// Nothing is known of the relay any more: it may have lost its keys.
    pub fn forget(&mut self, relay: RelayIndex) {
        self.stocks.values_mut().for_each(|stocks| stocks.forget(relay, 0));
    }

    /// Keys that are kept.
    pub fn len(&self) -> usize {
        self.stocks.values().flat_map(Stocks::iter).map(|stock| stock.keys.len()).sum()
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells each key of a packet its fate.
    fn settle(&mut self, receipt: &Receipt, fate: Fate) {
        let most = self.packets.get();
        for used in receipt.used.iter().flatten().filter(|used| used.serial >= self.past) {
            let stocks = self.stocks.get_mut(&kept_with(receipt.isolation, used.position));
            let Some(stock) = stocks.and_then(|stocks| stocks.get_mut(used.relay, used.position)) else { continue };
            if fate != Fate::ArrivedLate {
                stock.underway = stock.underway.saturating_sub(1);
            }
            match fate {
                Fate::Lost => stock.on_lost(used, most),
                Fate::Arrived | Fate::ArrivedLate => stock.on_arrived(used, most),
            }
        }
    }
}

impl<C: Cryptography> Isolated<'_, C> {
    /// Seals the datagram's body as [`PathKeys::seal`] does.
    ///
    /// # Errors
    ///
    /// When there is no such path.
    pub fn seal(
        &mut self,
        hops: &[Hop],
        label: Label,
        rng: &mut impl Rng,
        datagram: &mut Datagram,
    ) -> Result<Receipt, PathError> {
        let (header, payload) = parts(datagram);
        let made = self.make(Half::Sender, hops, Next::Here, label, rng, header)?;
        payload[..INTEGRITY].fill(0);
        for layer in made.layers.iter().rev() {
            layer.keys.invert(payload);
        }
        Ok(made.receipt)
    }

    /// Makes a header of `half`.
    pub(crate) fn make(
        &mut self,
        half: Half,
        hops: &[Hop],
        last: Next,
        label: Label,
        rng: &mut impl Rng,
        header: &mut [u8; HEADER],
    ) -> Result<Made<C>, PathError> {
        check(half, hops, |relay| self.keys.guards.contains(&relay))?;
        let mut receipt = Receipt { isolation: self.isolation, used: [None; MOST_HOPS] };
        // No path is longer: it was checked.
        let (mut layers, mut parts) = (ArrayVec::new(), ArrayVec::new());
        for (place, hop) in hops.iter().enumerate() {
            let position = Position::of(half, place, hops.len());
            let Some(Drawn { key, serial, index, material }) = self.draw(hop, position, rng) else {
                self.keys.lost(&receipt);
                return Err(PathError::Key(hop.relay));
            };
            receipt.used[place] = Some(Used { relay: hop.relay, position, serial, index });
            let next = hops.get(place + 1).map_or(last, |hop| Next::Relay(hop.relay));
            layers.push(Layer { material, keys: C::packet(&key, index), next, wait: hop.wait });
            parts.push(Part { relay: hop.relay, key, index });
        }
        let name = build(&layers, label, rng, header);
        Ok(Made { name, receipt, layers, parts })
    }

    /// A key for one packet at one relay: one of the stock, or a new one.
    fn draw(&mut self, hop: &Hop, position: Position, rng: &mut impl Rng) -> Option<Drawn> {
        let PathKeys { packets, stocks, made, .. } = &mut *self.keys;
        let most = packets.get();
        let stock = stocks.entry(kept_with(self.isolation, position)).or_default().at(hop.relay, position);
        let found = if stock.needs_key(most) { None } else { stock.next(most) };
        let drawn = match found {
            Some((key, serial, index)) => {
                let mut id = [0];
                C::ids(&key, index, &mut id);
                let mut random = [0; MATERIAL];
                rng.fill_bytes(&mut random);
                Drawn { key, serial, index, material: header::cached(id[0], random) }
            }
            None => {
                let mut random = [0; 32];
                rng.fill_bytes(&mut random);
                let secret = C::secret(&random);
                let ephemeral = C::public(&secret);
                let key = C::agree(&secret, &hop.key, &ephemeral, &hop.key)?;
                let serial = *made;
                *made += 1;
                if most > 1 && stock.keys.len() < MOST_KEYS {
                    stock.keys.insert(Key { serial, key: key.clone(), next: 1, arrived: None, lost: 0 });
                    stock.left += u32::from(most - 1);
                }
                Drawn { key, serial, index: 0, material: header::set_up(ephemeral.0) }
            }
        };
        stock.underway += 1;
        Some(drawn)
    }
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Arrived,
    Lost,
    /// It counted as lost before.
    ArrivedLate,
}

/// How far past `arrived`, the newest known to have arrived, a key may be used.
fn ahead(arrived: u16) -> u16 {
    if arrived == 0 { AHEAD_AT_FIRST } else { AHEAD }
}

impl Key {
    fn on_arrived(&mut self, index: u16) {
        self.arrived = self.arrived.max(Some(index));
        self.lost = 0;
    }

    /// Whether its next packet is within what its relay knows of it.
    fn may_be_used(&self) -> bool {
        self.arrived.is_some_and(|arrived| self.next <= arrived.saturating_add(ahead(arrived)))
    }
}

impl Stock {
    fn on_arrived(&mut self, used: &Used, most: u16) {
        // No serial is in both lists.
        if let Some(key) = self.keys.get_mut(used.serial) {
            key.on_arrived(used.index);
        } else if let Some(mut key) = self.given_up.remove(used.serial)
            && self.keys.len() < MOST_KEYS
        {
            key.on_arrived(used.index);
            self.left += u32::from(most - key.next);
            self.keys.insert(key);
        }
    }

    fn on_lost(&mut self, used: &Used, most: u16) {
        let Some(key) = self.keys.get_mut(used.serial) else { return };
        key.lost = key.lost.saturating_add(1);
        // What was to set it up may not have come so far.
        if used.index != 0 && key.lost < LOSSES_TO_GIVE_UP {
            return;
        }
        let Some(key) = self.keys.remove(used.serial) else { return };
        self.left -= u32::from(most - key.next);
        if self.given_up.len() >= MOST_GIVEN_UP {
            self.given_up.0.remove(0);
        }
        self.given_up.insert(key);
    }

    /// Whether this packet is to set up a key: fewer ids are left, or will be, than packets may soon be on their way. For
    /// few of them what one key has is enough.
    fn needs_key(&self, most: u16) -> bool {
        let most = u32::from(most);
        let many = (self.underway * AHEAD_OF_USE).saturating_sub(most);
        self.left < many.max(self.underway).max(most / 2) && self.keys.len() < MOST_KEYS
    }

    /// The next packet of the oldest key that may be used: key, serial and index. A key's last packet takes it
    /// off the stock.
    fn next(&mut self, most: u16) -> Option<(HopKey, u64, u16)> {
        let place = self.keys.0.iter().position(Key::may_be_used)?;
        let key = &mut self.keys.0[place];
        let drawn = (key.key.clone(), key.serial, key.next);
        key.next += 1;
        self.left -= 1;
        if key.next == most {
            self.keys.0.remove(place);
        }
        Some(drawn)
    }
}
