//! What a relay says of itself, under its own signature.
//!
//! A descriptor is true of what only its relay can say (keys, address, what it carries, to where it
//! exits); that the address is the relay's is proved to each authority by the session over which the
//! descriptor comes. How long a relay has been there, and what it weighs, others say of it.

use core::net::{IpAddr, SocketAddr};

use anabranch_proto::seal;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::clock::UnixTime;
use super::keys::{Context, PublicKey, SecretKey, Signature};
use crate::session::ServiceKeys;
use crate::session::handshake::KEM_KEY;

/// Epochs for which a descriptor may bring keys: this one and those that users may need before the
/// next descriptor has reached them.
pub const MOST_EPOCH_KEYS: usize = 3;

/// Rules of an exit policy.
pub const MOST_RULES: usize = 32;

/// Bytes of a descriptor with its signature; larger ones are refused unread.
pub const MOST_DESCRIPTOR: usize = 4096;

/// A public key under which a relay unwraps packets during one epoch. Its algorithm is the packets'
/// matter: here it is 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EpochKey {
    /// The epoch.
    pub epoch: u64,
    /// The key.
    pub key: [u8; 32],
}

/// Membership in a family: relays that one person or organisation runs, of which a path takes one.
///
/// The family's key signs for each member, or anybody could fill up the places of another's family and
/// shut its relays out (as in Tor's proposal 321).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Family {
    /// What names the family.
    pub key: PublicKey,
    /// Its signature of the member's identity.
    pub certificate: Signature,
}

impl Family {
    /// Takes the relay `identity` into the family of `key`.
    pub fn admit(key: &SecretKey, identity: &PublicKey) -> Family {
        Family { key: key.public(), certificate: key.sign(Context::Family, &identity.0) }
    }
}

/// What carries what an exit sends to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Protocol {
    /// Streams.
    #[default]
    Tcp,
    /// Datagrams.
    Udp,
}

/// One rule of an exit policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExitRule {
    /// Whether what it matches may be reached.
    pub accept: bool,
    /// Of which protocol; the rule says nothing of the other.
    pub protocol: Protocol,
    /// Addresses that it matches; all if none.
    pub net: Option<IpNet>,
    /// The lowest and the highest port that it matches.
    pub ports: (u16, u16),
}

impl ExitRule {
    fn is_of(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol == protocol && (self.ports.0..=self.ports.1).contains(&port)
    }

    fn matches(&self, protocol: Protocol, address: IpAddr, port: u16) -> bool {
        self.is_of(protocol, port) && self.net.is_none_or(|net| net.contains(&address))
    }
}

/// Where a relay connects to on behalf of others: the first rule that matches decides, and what none
/// matches is refused. No rule at all is no exit.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExitPolicy {
    /// The rules, in the order in which they are asked.
    pub rules: Vec<ExitRule>,
}

impl ExitPolicy {
    /// Whether it exits anywhere.
    pub fn is_exit(&self) -> bool {
        self.rules.iter().any(|rule| rule.accept)
    }

    /// Whether it connects to `port` at `address`. An IPv4 address inside IPv6 counts as what it is.
    pub fn allows(&self, protocol: Protocol, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        self.rules.iter().find(|rule| rule.matches(protocol, address, port)).is_some_and(|rule| rule.accept)
    }

    /// Whether it may connect to `port` at some address: what a user can know before the exit has
    /// resolved a name.
    pub fn may_allow(&self, protocol: Protocol, port: u16) -> bool {
        let mut of_port = self.rules.iter().filter(|rule| rule.is_of(protocol, port));
        let first_for_all = of_port.find(|rule| rule.accept || rule.net.is_none());
        first_for_all.is_some_and(|rule| rule.accept)
    }
}

/// The keys by which users talk to a relay's service, end to end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceEntry {
    /// Of X25519.
    pub dh: [u8; 32],
    /// Of ML-KEM-768.
    pub kem: Vec<u8>,
}

impl ServiceEntry {
    /// What others learn of these keys.
    pub fn new(keys: &ServiceKeys) -> ServiceEntry {
        ServiceEntry { dh: keys.dh.0, kem: keys.kem.to_vec() }
    }

    /// The keys; none if one of them is of another length.
    pub fn keys(&self) -> Option<ServiceKeys> {
        let kem: [u8; KEM_KEY] = self.kem[..].try_into().ok()?;
        Some(ServiceKeys { dh: seal::PublicKey(self.dh), kem: Box::new(kem) })
    }
}

/// What a relay says of itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Descriptor {
    /// What names the relay, and signs this.
    pub identity: PublicKey,
    /// When it was made: a later one takes the place of an earlier one.
    pub published: UnixTime,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it is willing to forward, in bytes a second.
    pub bytes_per_s: u64,
    /// The keys of its epochs, by epoch.
    pub epoch_keys: Vec<EpochKey>,
    /// The family that it belongs to, if any.
    pub family: Option<Family>,
    /// Where it exits to.
    pub exit: ExitPolicy,
    /// The keys of its exit; an exit has some.
    pub service: Option<ServiceEntry>,
}

/// Why a descriptor is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DescriptorError {
    /// It is too long, or not what a descriptor looks like.
    #[error("these bytes are no descriptor of at most {MOST_DESCRIPTOR} bytes")]
    Unreadable,
    /// The signature is not that of the key that it names.
    #[error("the descriptor of relay {0} is not signed by it")]
    Unsigned(PublicKey),
    /// The family has not signed for this relay.
    #[error("relay {relay} is not signed for by family {family}")]
    Family {
        /// Who claims it.
        relay: PublicKey,
        /// The family.
        family: PublicKey,
    },
    /// A bound is broken.
    #[error("relay {relay}: {problem}")]
    OutOfBounds {
        /// Whose it is.
        relay: PublicKey,
        /// What is wrong, and what would be right.
        problem: &'static str,
    },
}

impl Descriptor {
    /// Checks the bounds, and that its family has signed for it.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self) -> Result<(), DescriptorError> {
        self.check_bounds()?;
        match &self.family {
            Some(family) if !family.key.verifies(Context::Family, &self.identity.0, &family.certificate) => {
                Err(DescriptorError::Family { relay: self.identity, family: family.key })
            }
            _ => Ok(()),
        }
    }

    /// Checks the bounds alone.
    ///
    /// # Errors
    ///
    /// Which one is broken.
    pub fn check_bounds(&self) -> Result<(), DescriptorError> {
        let wrong = |problem| Err(DescriptorError::OutOfBounds { relay: self.identity, problem });
        let address = self.address.ip();
        if self.address.port() == 0 || address.is_unspecified() || address.is_multicast() {
            return wrong("its address names no host; expected that of one machine, and a port above 0");
        }
        if matches!(self.address, SocketAddr::V6(v6) if v6.flowinfo() != 0 || v6.scope_id() != 0 || v6.ip().to_ipv4_mapped().is_some())
        {
            return wrong("its IPv6 address has a scope or holds an IPv4 address; expected one that all can reach");
        }
        if self.bytes_per_s == 0 {
            return wrong("it forwards nothing; expected bytes_per_s above 0");
        }
        if self.epoch_keys.is_empty() || self.epoch_keys.len() > MOST_EPOCH_KEYS {
            return wrong("expected keys of one to three epochs");
        }
        if !self.epoch_keys.is_sorted_by(|a, b| a.epoch < b.epoch) {
            return wrong("its keys are not in the order of their epochs");
        }
        if self.exit.rules.len() > MOST_RULES {
            return wrong("its exit policy has more than 32 rules");
        }
        if self.service.as_ref().is_some_and(|service| service.kem.len() != KEM_KEY) {
            return wrong("its exit's key of ML-KEM-768 does not have 1184 bytes");
        }
        if self.exit.rules.iter().any(|rule| rule.ports.0 > rule.ports.1) {
            return wrong("an exit rule's lowest port is above its highest");
        }
        Ok(())
    }

    /// The key of `epoch`, if there is one.
    pub fn key_of(&self, epoch: u64) -> Option<[u8; 32]> {
        self.epoch_keys.iter().find(|key| key.epoch == epoch).map(|key| key.key)
    }

    fn bytes(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a descriptor's parts can all be written")
    }

    /// Signs it.
    ///
    /// # Errors
    ///
    /// When a bound is broken, or `key` is not the one that it names.
    pub fn sign(self, key: &SecretKey) -> Result<SignedDescriptor, DescriptorError> {
        self.check()?;
        if key.public() != self.identity {
            return Err(DescriptorError::Unsigned(self.identity));
        }
        let signature = key.sign(Context::Descriptor, &self.bytes());
        Ok(SignedDescriptor { descriptor: self, signature })
    }
}

/// A descriptor and its relay's signature.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SignedDescriptor {
    /// What is signed.
    pub descriptor: Descriptor,
    signature: Signature,
}

impl SignedDescriptor {
    /// Checks signature and bounds.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), DescriptorError> {
        self.descriptor.check()?;
        let identity = self.descriptor.identity;
        match identity.verifies(Context::Descriptor, &self.descriptor.bytes(), &self.signature) {
            true => Ok(()),
            false => Err(DescriptorError::Unsigned(identity)),
        }
    }

    /// Signed by `key` without a look at it, as a liar does.
    #[cfg(test)]
    pub(crate) fn unchecked(descriptor: Descriptor, key: &SecretKey) -> SignedDescriptor {
        let signature = key.sign(Context::Descriptor, &descriptor.bytes());
        SignedDescriptor { descriptor, signature }
    }

    /// As it travels.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(self).expect("a descriptor's parts can all be written")
    }

    /// Reads one, and checks it.
    ///
    /// # Errors
    ///
    /// When the bytes are none, or what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<SignedDescriptor, DescriptorError> {
        if bytes.len() > MOST_DESCRIPTOR {
            return Err(DescriptorError::Unreadable);
        }
        let (signed, rest) =
            postcard::take_from_bytes::<SignedDescriptor>(bytes).map_err(|_| DescriptorError::Unreadable)?;
        // One descriptor has one form, so that equal hashes and equal descriptors are the same.
        if !rest.is_empty() || signed.encode() != bytes {
            return Err(DescriptorError::Unreadable);
        }
        signed.check()?;
        Ok(signed)
    }

    /// What tells it from any other.
    pub fn hash(&self) -> [u8; 32] {
        blake3::hash(&self.encode()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn what_is_signed_is_read_as_it_was_and_nothing_else_is_read() {
        let signed = testing::descriptor(1).sign(&testing::key(1)).unwrap();
        let bytes = signed.encode();
        assert_eq!(SignedDescriptor::decode(&bytes).unwrap(), signed);
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(SignedDescriptor::decode(&changed).is_err(), "bit {bit} is not signed");
        }
        assert_eq!(SignedDescriptor::decode(&[&bytes[..], &[0]].concat()), Err(DescriptorError::Unreadable));
        assert_eq!(SignedDescriptor::decode(&vec![0; MOST_DESCRIPTOR + 1]), Err(DescriptorError::Unreadable));
    }

    #[test]
    fn a_relay_signs_for_itself_alone() {
        let refused = testing::descriptor(1).sign(&testing::key(2)).unwrap_err();
        assert_eq!(refused, DescriptorError::Unsigned(testing::key(1).public()));
    }

    #[test]
    fn nobody_joins_a_family_that_has_not_signed_for_it() {
        let family = SecretKey::from_seed(&[77; 32]);
        let mut descriptor = testing::descriptor(1);
        descriptor.family = Some(Family::admit(&family, &testing::key(1).public()));
        assert!(descriptor.check().is_ok());
        descriptor.family = Some(Family::admit(&family, &testing::key(2).public()));
        let refused = descriptor.check().unwrap_err();
        assert_eq!(refused, DescriptorError::Family { relay: descriptor.identity, family: family.public() });
        // Nor with a family's certificate for another, which all can read in the list.
        let claim = SignedDescriptor::unchecked(descriptor, &testing::key(1));
        assert_eq!(claim.check(), Err(refused.clone()));
        assert_eq!(SignedDescriptor::decode(&claim.encode()), Err(refused));
    }

    #[test]
    fn bounds_are_kept() {
        let broken: [fn(&mut Descriptor); 8] = [
            |d| d.address.set_port(0),
            |d| d.address = "0.0.0.0:9".parse().unwrap(),
            |d| d.address = "[::ffff:1.2.3.4]:9".parse().unwrap(),
            |d| d.bytes_per_s = 0,
            |d| d.epoch_keys.clear(),
            |d| d.epoch_keys = (0..4).map(|epoch| EpochKey { epoch, key: [0; 32] }).collect(),
            |d| d.epoch_keys = vec![EpochKey { epoch: 1, key: [0; 32] }; 2],
            |d| d.exit.rules = vec![ExitRule { accept: true, protocol: Protocol::Tcp, net: None, ports: (2, 1) }],
        ];
        for (index, breaks) in broken.iter().enumerate() {
            let mut descriptor = testing::descriptor(1);
            breaks(&mut descriptor);
            assert!(matches!(descriptor.check(), Err(DescriptorError::OutOfBounds { .. })), "{index}");
        }
    }

    #[test]
    fn exits_refuse_everything_unless_allowed_and_the_first_rule_decides() {
        use Protocol::{Tcp, Udp};
        let policy = ExitPolicy::default();
        assert!(!policy.is_exit() && !policy.allows(Tcp, [1, 2, 3, 4].into(), 443) && !policy.may_allow(Tcp, 443));
        let of = |protocol, accept, net: Option<&str>, ports| {
            let net = net.map(|n| n.parse().unwrap());
            ExitRule { accept, protocol, net, ports }
        };
        let rule = |accept, net, ports| of(Tcp, accept, net, ports);
        let rules = vec![rule(false, Some("10.0.0.0/8"), (0, u16::MAX)), rule(true, None, (443, 443))];
        let policy = ExitPolicy { rules };
        assert!(policy.is_exit() && policy.may_allow(Tcp, 443) && !policy.may_allow(Tcp, 25));
        assert!(policy.allows(Tcp, [1, 2, 3, 4].into(), 443) && !policy.allows(Tcp, [10, 2, 3, 4].into(), 443));
        let mapped: IpAddr = "::ffff:10.2.3.4".parse().unwrap();
        assert!(!policy.allows(Tcp, mapped, 443), "an address in disguise is what it is");
        assert!(!policy.allows(Udp, [1, 2, 3, 4].into(), 443) && !policy.may_allow(Udp, 443), "of TCP alone");
        let names = ExitPolicy { rules: vec![of(Udp, true, None, (53, 53))] };
        assert!(names.is_exit() && names.may_allow(Udp, 53) && !names.may_allow(Tcp, 53));
        let closed = ExitPolicy { rules: vec![rule(false, None, (0, 1000)), rule(true, None, (1, 2000))] };
        assert!(!closed.may_allow(Tcp, 443) && closed.may_allow(Tcp, 1001));
    }
}
