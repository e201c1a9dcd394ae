//! A few relays and a user, for tests.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use rand_core::Rng as _;

use crate::RelayIndex;
use crate::crypto::Cryptography;
use crate::packet::{BODY, Datagram, Hop, Label, PacketsPerKey, PathKeys, Receipt, body_mut};
use crate::relay::{EpochKeys, Limits, Outcome, Relay};
use crate::reply::{BlockId, MadeBlocks, ReplyBlock};
use crate::size::DATAGRAM;

pub(crate) const SERVICE: Label = Label(*b"service.");
pub(crate) const CLIENT: Label = Label(*b"client..");

/// Relays, and one user's keys. Two with one seed are equal.
pub(crate) struct Net<C: Cryptography> {
    pub k: PacketsPerKey,
    pub now: Time,
    pub rng: Rng,
    pub relays: Vec<Relay<C>>,
    pub user: PathKeys<C>,
    pub made: MadeBlocks<C>,
}

impl<C: Cryptography> Net<C> {
    pub fn new(relays: u16, k: u16, seed: u64) -> Net<C> {
        let mut rng = Rng::stream(seed, "net");
        let k = PacketsPerKey::new(k).unwrap();
        let relays = (0..relays)
            .map(|own| {
                let keys = epoch_keys::<C>(0, relays, own, &mut rng);
                Relay::new(k, Limits::simulated(k), keys, [rng.bits(), rng.bits()])
            })
            .collect();
        let (user, made) = (PathKeys::new(k), MadeBlocks::new(10_000));
        Net { k, now: Time::ZERO, rng, relays, user, made }
    }

    pub fn hops(&self, path: &[u16]) -> Vec<Hop> {
        let hop = |&relay: &u16| Hop {
            relay: RelayIndex(relay),
            key: self.relays[usize::from(relay)].public_key(),
            wait: Duration::ZERO,
        };
        path.iter().map(hop).collect()
    }

    pub fn body(&mut self) -> [u8; BODY] {
        let mut body = [0; BODY];
        self.rng.fill_bytes(&mut body);
        body
    }

    /// A packet with `body` to the service behind `path`.
    pub fn packet(&mut self, path: &[u16], body: &[u8; BODY]) -> (Datagram, Receipt) {
        let hops = self.hops(path);
        let mut datagram = [0; DATAGRAM];
        *body_mut(&mut datagram) = *body;
        let receipt = self.user.seal(&hops, SERVICE, &mut self.rng, &mut datagram).unwrap();
        (datagram, receipt)
    }

    /// A block that leads back over `path`.
    pub fn block(&mut self, path: &[u16]) -> (BlockId, ReplyBlock) {
        let hops = self.hops(path);
        self.made.make(&mut self.user, &hops, CLIENT, self.now, &mut self.rng).unwrap()
    }

    pub fn process(&mut self, relay: u16, datagram: &mut Datagram) -> Outcome {
        self.relays[usize::from(relay)].process(self.now, datagram)
    }

    /// From `first` to an end. What each relay got, and what the last of them says.
    pub fn carry(&mut self, first: RelayIndex, datagram: &mut Datagram) -> (Vec<Datagram>, Outcome) {
        let (mut at, mut seen) = (first, Vec::new());
        loop {
            seen.push(*datagram);
            match self.process(at.0, datagram) {
                Outcome::Forward { to, .. } => at = to,
                end => return (seen, end),
            }
        }
    }

    /// The first packet over `path`, which sets up keys, has arrived: the next shows ids.
    pub fn set_up(&mut self, path: &[u16]) {
        let (mut datagram, receipt) = self.packet(path, &[0; BODY]);
        let (_, end) = self.carry(RelayIndex(path[0]), &mut datagram);
        assert_eq!(end, Outcome::Deliver { label: SERVICE, wait: Duration::ZERO });
        self.user.arrived(&receipt);
    }

    /// The same for blocks.
    pub fn set_up_back(&mut self, path: &[u16]) {
        let (_, block) = self.block(path);
        let mut datagram = [0; DATAGRAM];
        let first = block.seal::<C>(&mut datagram);
        let (_, end) = self.carry(first, &mut datagram);
        assert_eq!(end, Outcome::ToClient { label: CLIENT, wait: Duration::ZERO });
        self.made.open(&mut self.user, &mut datagram).unwrap();
    }
}

pub(crate) fn epoch_keys<C: Cryptography>(epoch: u64, members: u16, own: u16, rng: &mut Rng) -> EpochKeys<C> {
    let mut random = [0; 32];
    rng.fill_bytes(&mut random);
    EpochKeys { epoch, secret: C::secret(&random), members, own: Some(RelayIndex(own)) }
}

/// Whether a packet sets up a key at the relay that gets it.
pub(crate) fn is_set_up(datagram: &Datagram) -> bool {
    datagram[31] & 0x80 != 0
}
