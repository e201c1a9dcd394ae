//! Which relays a packet passes, and which paths are refused.

use core::fmt;

use anabranch_control::time::Duration;

use crate::RelayIndex;
use crate::crypto::PublicKey;
use crate::size::MOST_HOPS;

use super::LAST_INDEX;

/// A relay of a path, in the order in which packets pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its place in the directory.
    pub relay: RelayIndex,
    /// Its key in this epoch.
    pub key: PublicKey,
    /// How long it holds the packet, in steps of an eighth of a millisecond, at most 8 s.
    pub wait: Duration,
}

/// Which half of a path its maker chose it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// From whoever made it to another: the first half.
    Sender,
    /// Back to whoever made it: the second half.
    Receiver,
    /// From whoever made it back to it.
    Loop,
}

impl Half {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Half; 3] = [Half::Sender, Half::Receiver, Half::Loop];
}

/// What a key serves for, and nothing else: a relay that saw one key in two places could tell that one
/// user is behind both, and a guard knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// In which half.
    pub half: Half,
    /// How many relays are between it and whoever made the path: 0 for the guard.
    pub place: u8,
}

/// Why no packet goes over these relays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// None, or more than [`MOST_HOPS`].
    Length(usize),
    /// A relay twice.
    Twice(RelayIndex),
    /// A guard where it is not next to its user.
    GuardInside(RelayIndex),
    /// A relay that no packet can name.
    Index(RelayIndex),
    /// A relay whose key has a low order.
    Key(RelayIndex),
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Length(hops) => write!(f, "a half of a path has 1 to {MOST_HOPS} relays, not {hops}"),
            PathError::Twice(RelayIndex(relay)) => write!(f, "relay {relay} stands twice on one path"),
            PathError::GuardInside(RelayIndex(relay)) => {
                write!(f, "relay {relay} is a guard of this user and serves nowhere else on its paths")
            }
            PathError::Index(RelayIndex(relay)) => {
                write!(f, "relay {relay} has no name in packets, which end at {}", LAST_INDEX.0)
            }
            PathError::Key(RelayIndex(relay)) => {
                write!(f, "the key of relay {relay} has a low order, so that anybody would know what it shares")
            }
        }
    }
}

impl std::error::Error for PathError {}

impl Position {
    /// Of the relay that packets pass as number `place` of `length`.
    pub(super) fn of(half: Half, place: usize, length: usize) -> Position {
        let place = if half == Half::Receiver { length - 1 - place } else { place };
        Position { half, place: place as u8 }
    }
}

/// Why there is no such path, if there is none.
pub(super) fn check(half: Half, hops: &[Hop], is_guard: impl Fn(RelayIndex) -> bool) -> Result<(), PathError> {
    let length = hops.len();
    if length == 0 || length > MOST_HOPS {
        return Err(PathError::Length(length));
    }
    for (place, hop) in hops.iter().enumerate() {
        if hop.relay > LAST_INDEX {
            return Err(PathError::Index(hop.relay));
        }
        // A loop ends at the guard that it began at, or at another.
        let closes = half == Half::Loop && place + 1 == length && length > 2;
        if hops[usize::from(closes)..place].iter().any(|other| other.relay == hop.relay) {
            return Err(PathError::Twice(hop.relay));
        }
        let at_edge = match half {
            Half::Sender => place == 0,
            Half::Receiver => place + 1 == length,
            Half::Loop => place == 0 || place + 1 == length,
        };
        if !at_edge && is_guard(hop.relay) {
            return Err(PathError::GuardInside(hop.relay));
        }
    }
    Ok(())
}
