//! A relay that runs: its machine behind a UDP socket, its keys, and the directory that it follows.
//!
//! Keys of epochs live in memory alone: what was sent before a restart, nobody can open any more, the relay
//! included. So a relay that starts again is of use from the next epoch on.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::{Cryptography, Real};
use anabranch_onion::directory::{
    Descriptor, Document, EpochKey, ExitPolicy, Family, PublicKey, Remembered, SecretKey, ServiceEntry,
    SignedDescriptor, UnixTime,
};
use anabranch_onion::node::{Members, Observed, RelayNode, Service};
use anabranch_onion::relay::{EpochKeys, Limits, Relay};
use anabranch_proto::limiter::LimitModel;

use super::follow::{Describe, Follower, Following, Found, Keep};
use super::network_file::NetworkFile;
use crate::pool::NoWork;
use crate::runtime::Runtime;
use crate::setup::{random_seed, secret as random_secret};
use crate::udp::Socket;

/// How a relay keeps to its limit: a queue of 100 ms at most, as for the plain relay.
const LONGEST_QUEUE: Duration = Duration::from_millis(100);

/// How unevenly a relay may hold to its limit, so that what goes the same way leaves in few system calls: as long as a
/// timer's usual grain.
const GRAIN: Duration = Duration::from_millis(1);

/// How long packets are gathered while they come a few at a time: as long as what a sender's pace lets leave at once, so
/// that relays wake once for it. Over five relays, there and back, that is 10 ms at most, and nothing where packets come
/// seldom.
const GATHER: Duration = Duration::from_millis(2);

/// Epochs, from this one on, of which a relay publishes its keys.
const EPOCHS_PUBLISHED: u64 = 2;

type Secret = <Real as Cryptography>::Secret;

/// The secrets of epochs.
#[derive(Clone, Default)]
struct Secrets(Arc<Mutex<BTreeMap<u64, Secret>>>);

impl Secrets {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Secret>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The public keys of `epochs`; those that are missing are made.
    fn keys(&self, epochs: impl Iterator<Item = u64>) -> Vec<EpochKey> {
        let mut all = self.all();
        let key = |epoch| EpochKey {
            epoch,
            key: Real::public(all.entry(epoch).or_insert_with(|| Real::secret(&random_secret()))).0,
        };
        epochs.map(key).collect()
    }

    /// The secret of `epoch`; those of earlier ones are forgotten.
    fn take(&self, epoch: u64) -> Option<Secret> {
        let mut all = self.all();
        *all = all.split_off(&epoch);
        all.get(&epoch).cloned()
    }
}

/// What a relay is.
pub struct RelaySettings {
    /// Of which network.
    pub network: NetworkFile,
    /// Its key: by it others know it from epoch to epoch.
    pub identity: SecretKey,
    /// Where others reach it.
    pub address: SocketAddr,
    /// The most that it takes.
    pub limit: Rate,
    /// The key of the family that it belongs to, if any.
    pub family: Option<SecretKey>,
    /// Where it exits to.
    pub exit: ExitPolicy,
    /// The keys of its exit, if it has one.
    pub service: Option<ServiceEntry>,
    /// What was seen of the directory before.
    pub remembered: Remembered,
    /// Where it is written down what was seen.
    pub keep: Keep,
}

/// What a relay's operator is notified of.
#[derive(Debug)]
pub enum RelayNews<E> {
    /// It is in the list of an epoch, at this place, or it is not.
    Epoch {
        /// Which epoch.
        epoch: u64,
        /// How many relays there are.
        relays: usize,
        /// Its own place, if it has the keys that the list has.
        own: Option<RelayIndex>,
    },
    /// Something else about the directory.
    Directory(Found),
    /// What its service tells.
    Service(E),
}

/// A relay that runs, in the thread of whoever calls [`OnionRelay::turn`].
pub struct OnionRelay<S: Service> {
    runtime: Runtime<RelayNode<Real, S>>,
    follower: Follower,
    secrets: Secrets,
    identity: PublicKey,
    /// Packets of an epoch are taken for so long after the next has begun.
    grace: Duration,
    epoch: Option<u64>,
}

impl<S: Service + Send + 'static> OnionRelay<S>
where
    S::Event: Send,
{
    /// It listens at `socket` and offers `service` besides.
    ///
    /// # Errors
    ///
    /// When the system does not let it run.
    pub fn start(settings: RelaySettings, socket: Socket, service: S) -> io::Result<OnionRelay<S>> {
        let RelaySettings { network, identity, address, limit, family, exit, service: entry, remembered, keep } =
            settings;
        // Nothing can be opened until a list says what this relay's place is.
        let nothing =
            EpochKeys { epoch: 0, secret: Real::secret(&random_secret()), members: 0, own: Some(RelayIndex(0)) };
        let k = network.authorities.packets_per_key;
        let relay = Relay::new(k, Limits::standard(k), nothing, [random_seed(), random_seed()]);
        let node = RelayNode::new(relay, Members::default(), service)
            .limited(LimitModel::Queue { longest: LONGEST_QUEUE }, limit)
            .with_grain(GRAIN);
        let from = leaves_by(&socket)?;
        let mut runtime = Runtime::new(NoWork)?;
        runtime.add_gathering(socket, node)?;
        runtime.gather(GATHER);
        let (secrets, public) = (Secrets::default(), identity.public());
        let epoch_s = network.authorities.epoch_s;
        let family = family.map(|key| Family::admit(&key, &public));
        let said = Said { identity, address, limit, family, exit, service: entry };
        let waker = runtime.waker();
        let following = Following {
            remembered,
            from,
            describe: Some(describe(said, epoch_s, secrets.clone())),
            keep,
            wake: Box::new(move || waker.wake()),
            network,
        };
        let follower = Follower::start(following)?;
        let grace = Duration::SECOND * epoch_s;
        Ok(OnionRelay { runtime, follower, secrets, identity: public, grace, epoch: None })
    }

    /// Its machine.
    pub fn node(&self) -> &RelayNode<Real, S> {
        self.runtime.machine(0)
    }

    /// Acts on what it offers; what that wants to send leaves.
    pub fn act<R>(&mut self, act: impl FnOnce(&mut S, Time) -> R) -> R {
        self.runtime.act(0, |node, now, port| node.act(now, port, |service| act(service, now)))
    }

    /// From now on it keeps who sends to whom through it: for demonstrations alone.
    pub fn observe(&mut self) {
        self.runtime.act(0, |node, _, _| node.observe());
    }

    /// What it has seen since this was last asked; none unless it observes.
    pub fn take_observed(&mut self) -> Option<Observed> {
        self.runtime.act(0, |node, _, _| node.take_observed())
    }

    /// Now, on its clock.
    pub fn now(&self) -> Time {
        self.runtime.now()
    }

    /// The runtime, to be woken from another thread, and its counters.
    pub fn runtime(&self) -> &Runtime<RelayNode<Real, S>> {
        &self.runtime
    }

    /// Does what is due, then waits for something to happen, at most until `until`.
    ///
    /// # Errors
    ///
    /// When the system can't wait or read.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        self.runtime.turn(until)
    }

    /// What has happened since.
    pub fn poll_news(&mut self) -> Option<RelayNews<S::Event>> {
        if let Some((_, event)) = self.runtime.poll_event() {
            return Some(RelayNews::Service(event));
        }
        match self.follower.poll()? {
            Found::Document(document) => Some(self.begin_epoch(&document)),
            found => Some(RelayNews::Directory(found)),
        }
    }

    fn begin_epoch(&mut self, document: &Document) -> RelayNews<S::Event> {
        let (epoch, relays) = (document.epoch, document.len());
        let listed = document.index_of(&self.identity);
        let secret = self.secrets.take(epoch).filter(|secret| {
            let member = listed.and_then(|place| document.member(place));
            member.and_then(|member| member.descriptor.key_of(epoch)) == Some(Real::public(secret).0)
        });
        let own = listed.filter(|_| secret.is_some());
        // One that is not listed forwards nothing in this epoch.
        let secret = secret.unwrap_or_else(|| Real::secret(&random_secret()));
        let members = u16::try_from(relays).unwrap_or(u16::MAX);
        let keys = EpochKeys { epoch, secret, members, own };
        let addresses = document.relays().map(|(_, member)| member.descriptor.address).collect();
        let grace = self.grace;
        self.runtime.act(0, |node, now, _| node.begin_epoch(now, keys, addresses, grace));
        self.epoch = Some(epoch);
        RelayNews::Epoch { epoch, relays, own }
    }

    /// The epoch whose list it has.
    pub fn epoch(&self) -> Option<u64> {
        self.epoch
    }
}

/// By which of this machine's addresses a relay talks to authorities, which compare it with where the relay says that it
/// is reached: where it listens. That is not where others reach it if an address is translated on the way (NAT): then
/// whatever translates it makes one of the other.
fn leaves_by(socket: &Socket) -> io::Result<Option<IpAddr>> {
    Ok(Some(socket.local_addr()?.ip()).filter(|address| !address.is_unspecified()))
}

/// What a relay always says of itself.
struct Said {
    identity: SecretKey,
    address: SocketAddr,
    limit: Rate,
    family: Option<Family>,
    exit: ExitPolicy,
    service: Option<ServiceEntry>,
}

/// What a relay says of itself at a time.
fn describe(said: Said, epoch_s: u64, secrets: Secrets) -> Describe {
    let Said { identity, address, limit, family, exit, service } = said;
    let mut last: Option<SignedDescriptor> = None;
    Box::new(move |now: UnixTime| {
        let epoch = now.0 / epoch_s;
        let epoch_keys = secrets.keys(epoch..epoch + EPOCHS_PUBLISHED);
        // What has been said already is said alike to those who have not heard it.
        if let Some(last) = last.as_ref().filter(|last| last.descriptor.epoch_keys == epoch_keys) {
            return last.clone();
        }
        let descriptor = Descriptor {
            identity: identity.public(),
            published: now,
            address,
            bytes_per_s: (limit.bits_per_sec() / 8).max(1),
            epoch_keys,
            family,
            exit: exit.clone(),
            service: service.clone(),
        };
        let signed = descriptor.sign(&identity).expect("an own descriptor is within all bounds");
        last = Some(signed.clone());
        signed
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_relay_talks_to_authorities_by_where_it_listens_wherever_others_reach_it() {
        let by = |listen: &str| leaves_by(&Socket::bind(listen.parse().unwrap()).unwrap()).unwrap();
        assert_eq!(by("127.0.61.1:0"), Some([127, 0, 61, 1].into()));
        assert_eq!(by("0.0.0.0:0"), None, "the system chooses");
    }

    #[test]
    fn p18_a_relay_draws_other_keys_for_every_epoch_and_at_every_start() {
        let starts = [Secrets::default(), Secrets::default()];
        let keys = || starts.iter().flat_map(|secrets| secrets.keys(1..9)).map(|of_epoch| of_epoch.key);
        let first: Vec<[u8; 32]> = keys().collect();
        assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 16, "no two are alike");
        assert_eq!(keys().collect::<Vec<_>>(), first, "and one start keeps to its own");
    }
}
