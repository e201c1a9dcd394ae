//! Where the members of an epoch's directory are.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::RelayIndex;
use crate::reply::First;

/// Their addresses, in this epoch and the one before. A clone has the same tables: a thousand relays of one process
/// need them once.
#[derive(Clone, Debug, Default)]
pub struct Members {
    current: (u64, Arc<[SocketAddr]>),
    previous: Option<(u64, Arc<[SocketAddr]>)>,
    /// All addresses of both.
    all: Arc<HashSet<SocketAddr>>,
}

impl Members {
    /// Those of `epoch`, by index.
    pub fn new(epoch: u64, addresses: Vec<SocketAddr>) -> Members {
        let all = Arc::new(addresses.iter().copied().map(canonical).collect());
        Members { current: (epoch, addresses.into()), previous: None, all }
    }

    /// Another epoch begins.
    pub fn begin_epoch(&mut self, epoch: u64, addresses: Vec<SocketAddr>) {
        self.previous = Some(core::mem::replace(&mut self.current, (epoch, addresses.into())));
        let previous = self.previous.iter().flat_map(|(_, addresses)| addresses.iter());
        self.all = Arc::new(self.current.1.iter().chain(previous).copied().map(canonical).collect());
    }

    /// Where `relay` is that the directory of `epoch` names.
    pub fn address(&self, epoch: u64, relay: RelayIndex) -> Option<SocketAddr> {
        let of = |(number, addresses): &(u64, Arc<[SocketAddr]>)| {
            (*number == epoch).then(|| addresses.get(usize::from(relay.0)).copied())?
        };
        of(&self.current).or_else(|| self.previous.as_ref().and_then(of))
    }

    /// Where a packet goes that leaves by a block, of this epoch or the one before.
    pub fn first(&self, first: First) -> Option<SocketAddr> {
        let previous = self.previous.as_ref().map(|(number, _)| *number);
        let epoch = [Some(self.current.0), previous].into_iter().flatten().find(|number| *number as u8 == first.epoch);
        self.address(epoch?, first.relay)
    }

    /// Whether a member is at `address`.
    pub fn has(&self, address: SocketAddr) -> bool {
        self.all.contains(&canonical(address))
    }

    /// Where `relay` of this epoch is.
    pub fn current(&self, relay: RelayIndex) -> Option<SocketAddr> {
        self.current.1.get(usize::from(relay.0)).copied()
    }

    /// This epoch.
    pub fn epoch(&self) -> u64 {
        self.current.0
    }

    /// How many there are in this epoch.
    pub fn len(&self) -> usize {
        self.current.1.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.current.1.is_empty()
    }
}

/// A socket for both families calls IPv4 by addresses of IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_means_the_member_of_its_epoch() {
        let address = |port: u16| SocketAddr::from(([192, 0, 2, 1], port));
        let mut members = Members::new(4, vec![address(1), address(2)]);
        members.begin_epoch(5, vec![address(3)]);
        assert_eq!(members.address(5, RelayIndex(0)), Some(address(3)));
        assert_eq!(members.address(4, RelayIndex(1)), Some(address(2)));
        assert_eq!(members.address(5, RelayIndex(1)), None);
        assert_eq!(members.address(3, RelayIndex(0)), None);
        assert_eq!((members.current(RelayIndex(0)), members.len(), members.epoch()), (Some(address(3)), 1, 5));
        let first = |epoch| members.first(First { relay: RelayIndex(0), epoch });
        assert!(members.has(address(1)) && members.has(address(3)) && !members.has(address(4)));
        assert!(members.has("[::ffff:192.0.2.1]:3".parse().expect("an address")));
        assert_eq!((first(5), first(4), first(3)), (Some(address(3)), Some(address(1)), None));
        members.begin_epoch(6, vec![]);
        assert!(members.address(4, RelayIndex(1)).is_none() && members.is_empty());
    }
}
