//! Where the members of an epoch's directory are.

use std::net::SocketAddr;

use crate::RelayIndex;

/// Their addresses, in this epoch and the one before.
#[derive(Clone, Debug, Default)]
pub struct Members {
    current: (u64, Vec<SocketAddr>),
    previous: Option<(u64, Vec<SocketAddr>)>,
}

impl Members {
    /// Those of `epoch`, by index.
    pub fn new(epoch: u64, addresses: Vec<SocketAddr>) -> Members {
        Members { current: (epoch, addresses), previous: None }
    }

    /// Another epoch begins.
    pub fn begin_epoch(&mut self, epoch: u64, addresses: Vec<SocketAddr>) {
        self.previous = Some(core::mem::replace(&mut self.current, (epoch, addresses)));
    }

    /// Where `relay` is that the directory of `epoch` names.
    pub fn address(&self, epoch: u64, relay: RelayIndex) -> Option<SocketAddr> {
        let of = |(number, addresses): &(u64, Vec<SocketAddr>)| {
            (*number == epoch).then(|| addresses.get(usize::from(relay.0)).copied())?
        };
        of(&self.current).or_else(|| self.previous.as_ref().and_then(of))
    }

    /// Where `relay` of this epoch is.
    pub fn current(&self, relay: RelayIndex) -> Option<SocketAddr> {
        self.current.1.get(usize::from(relay.0)).copied()
    }

    /// Whether a relay of this epoch or of the one before is at `address`; looks at all of them.
    pub fn is_at(&self, address: SocketAddr) -> bool {
        let previous = self.previous.iter().flat_map(|(_, addresses)| addresses);
        self.current.1.iter().chain(previous).any(|member| *member == address)
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
        assert!(members.is_at(address(3)) && members.is_at(address(2)) && !members.is_at(address(4)));
        members.begin_epoch(6, vec![]);
        assert!(members.address(4, RelayIndex(1)).is_none() && members.is_empty());
    }
}
