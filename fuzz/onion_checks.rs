//! What must hold for anything that an onion's relays get. Fuzz targets and an ordinary test include this file, as
//! they do `checks.rs`.

use std::collections::BTreeSet;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::{Cryptography, Real, Transparent};
use anabranch_onion::packet::{Datagram, HEADER, Hop, Label, PacketsPerKey, PathKeys, Receipt};
use anabranch_onion::relay::{EpochKeys, Limits, Outcome, Relay};
use anabranch_onion::reply::{MadeBlocks, ReplyBlock};
use anabranch_onion::size::DATAGRAM;

/// Relays of each check.
pub const RELAYS: u16 = 3;

/// Room for little, so that an input can reach each limit.
fn limits(packets: PacketsPerKey) -> Limits {
    Limits { ids: 64 * 64, keys: 6, seen_bytes: 1_024, ..Limits::simulated(packets) }
}

fn packets() -> PacketsPerKey {
    PacketsPerKey::new(12).expect("12 is not zero")
}

fn epoch_keys<C: Cryptography>(epoch: u64, own: u16) -> EpochKeys<C> {
    let mut random = [1; 32];
    random[..8].copy_from_slice(&epoch.to_le_bytes());
    random[8] = own as u8;
    let secret = C::secret(&random);
    EpochKeys { epoch, secret, members: RELAYS, own: Some(RelayIndex(own)) }
}

/// Relays that are the same each time.
pub fn relays<C: Cryptography>() -> Vec<Relay<C>> {
    (0..RELAYS).map(|own| Relay::new(packets(), limits(packets()), epoch_keys(0, own), [1, 2])).collect()
}

/// A path through `relays`.
pub fn hops<C: Cryptography>(relays: &[Relay<C>], path: &[u16]) -> Vec<Hop> {
    let hop = |&relay: &u16| Hop {
        relay: RelayIndex(relay),
        key: relays[usize::from(relay)].public_key(),
        wait: Duration::ZERO,
    };
    path.iter().map(hop).collect()
}

/// A user without keys.
pub fn user<C: Cryptography>() -> PathKeys<C> {
    PathKeys::new(packets())
}

/// A relay takes a datagram once or not at all, and sends to members only; nobody opens what is not theirs, and a
/// block that is read comes out the same.
pub fn onion_datagram(input: &[u8]) {
    let mut datagram = [0; DATAGRAM];
    let length = input.len().min(DATAGRAM);
    datagram[..length].copy_from_slice(&input[..length]);
    let mut relay = relays::<Real>().swap_remove(0);
    let given = datagram;
    if let Outcome::Forward { to, .. } = relay.process(Time::ZERO, &mut datagram) {
        assert!(to.0 < RELAYS && to.0 != 0);
    }
    assert!(matches!(relay.process(Time::ZERO, &mut given.clone()), Outcome::Drop(_)));
    assert!(relay.memory() < 1 << 20);
    let mut keys = user::<Real>();
    assert!(MadeBlocks::<Real>::new(1).open(&mut keys, &mut datagram).is_err());
    let bytes = given.first_chunk().expect("a datagram is longer than a block");
    let Some(block) = ReplyBlock::from_bytes(bytes) else { return };
    assert_eq!(&block.to_bytes(), bytes);
    let _ = block.seal::<Real>(&mut datagram);
    let _ = relay.process(Time::ZERO, &mut datagram);
}

/// A packet and the relay that it goes to.
type Underway = (u16, Datagram);

/// What happens to packets among three relays, a byte a step and more for its choices: each passes a relay once and no
/// header but those that a user or a relay made for it, and relays keep no more than they may.
pub fn onion_relays(input: &[u8]) {
    let mut input = input.iter().copied();
    let mut rng = Rng::stream(1, "onion relays");
    let (mut relays, mut user, mut made) = (relays::<Transparent>(), user::<Transparent>(), MadeBlocks::new(8));
    let (mut now, mut epoch) = (Time::ZERO, 0);
    let mut underway: Vec<Underway> = Vec::new();
    let mut seen: Vec<Underway> = Vec::new();
    let mut receipts: Vec<Receipt> = Vec::new();
    // Headers that were made for a relay and have not passed it.
    let mut awaited: BTreeSet<(u16, Vec<u8>)> = BTreeSet::new();
    let header = |packet: &Underway| (packet.0, packet.1[..HEADER].to_vec());
    while let Some(step) = input.next() {
        let choice = usize::from(input.next().unwrap_or(0));
        match step % 8 {
            0 | 1 => {
                let path = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]][choice % 4];
                let hops = hops(&relays, &path[..1 + choice / 4 % 3]);
                let mut datagram = [choice as u8; DATAGRAM];
                if step % 8 == 0 {
                    receipts.extend(user.seal(&hops, Label([1; 8]), &mut rng, &mut datagram));
                } else if let Ok((_, block)) = made.make(&mut user, &hops, Label([2; 8]), now, &mut rng) {
                    assert_eq!(block.seal::<Transparent>(&mut datagram), hops[0].relay);
                }
                let packet = (path[0], datagram);
                awaited.insert(header(&packet));
                underway.push(packet);
            }
            2 | 3 if !underway.is_empty() => {
                let given = underway.swap_remove(choice % underway.len());
                let (relay, mut datagram) = given;
                let outcome = relays[usize::from(relay)].process(now, &mut datagram);
                if !matches!(outcome, Outcome::Drop(_)) {
                    assert!(awaited.remove(&header(&given)), "a packet passes that was changed or has passed");
                }
                match outcome {
                    Outcome::Forward { to, .. } => {
                        let packet = (to.0, datagram);
                        awaited.insert(header(&packet));
                        underway.push(packet);
                    }
                    Outcome::ToClient { .. } => {
                        let _ = made.open(&mut user, &mut datagram);
                        assert!(made.open(&mut user, &mut datagram).is_err(), "a block opens twice");
                    }
                    _ => {}
                }
                seen.push(given);
            }
            4 if !seen.is_empty() => underway.push(seen[choice % seen.len()]),
            5 if !underway.is_empty() => {
                let which = choice % underway.len();
                let place = 6 * usize::from(input.next().unwrap_or(0)) % DATAGRAM;
                underway[which].1[place] ^= input.next().unwrap_or(1);
            }
            6 if !receipts.is_empty() => {
                let receipt = receipts.swap_remove(choice % receipts.len());
                if choice < 200 { user.arrived(&receipt) } else { user.lost(&receipt) }
            }
            7 if choice < 8 => {
                epoch += 1;
                for (own, relay) in relays.iter_mut().enumerate() {
                    relay.begin_epoch(now, epoch_keys(epoch, own as u16), Duration::from_millis(20));
                }
                user.begin_epoch(epoch, []);
            }
            7 => {
                now += Duration::from_millis(choice as u64);
                for relay in &mut relays {
                    for _ in 0..8 {
                        if relay.timer(now) <= now {
                            relay.on_timer(now);
                        }
                    }
                    assert!(relay.timer(now) > now, "a timer gets on");
                }
            }
            _ => {}
        }
        for relay in &relays {
            assert!(relay.ids() <= 6 * 48 && relay.memory() < 64 << 10);
        }
    }
}
