//! What a client and its guard say to each other besides packets.
//!
//! ```text
//! 0       1 attach, 2 prove, 3 attached, 4 refused
//! 1..9    label, the client's
//! 9..25   attach: the cookie that it was given, or zeros; prove: the cookie; else zeros
//! 25..64  zeros
//! ```
//!
//! All have 64 bytes, so that no answer is longer than what asked for it; a packet has 1400, and is never
//! taken for one of these.

use anabranch_proto::overlay::hello::{COOKIE, Cookie};

use crate::packet::{LABEL, Label};

/// Bytes of each.
pub const LENGTH: usize = 64;

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkFrame {
    /// The client, to its guard: what comes for `label` is to go to where this comes from.
    Attach {
        /// Its name for the link, random.
        label: Label,
        /// What the guard has answered before; zeros if nothing was heard of it.
        cookie: Cookie,
    },
    /// The guard: say it again with this cookie.
    Prove {
        /// Which link.
        label: Label,
        /// What to say with it.
        cookie: Cookie,
    },
    /// The guard: so it is, for [`LIFETIME`](super::LIFETIME).
    Attached {
        /// Which link.
        label: Label,
    },
    /// The guard has no room.
    Refused {
        /// Which link.
        label: Label,
    },
}

impl LinkFrame {
    /// Which link.
    pub fn label(&self) -> Label {
        match *self {
            LinkFrame::Attach { label, .. }
            | LinkFrame::Prove { label, .. }
            | LinkFrame::Attached { label }
            | LinkFrame::Refused { label } => label,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; LENGTH] {
        let (kind, cookie) = match self {
            LinkFrame::Attach { cookie, .. } => (1, *cookie),
            LinkFrame::Prove { cookie, .. } => (2, *cookie),
            LinkFrame::Attached { .. } => (3, Cookie::default()),
            LinkFrame::Refused { .. } => (4, Cookie::default()),
        };
        let mut bytes = [0; LENGTH];
        bytes[0] = kind;
        bytes[1..1 + LABEL].copy_from_slice(&self.label().0);
        bytes[1 + LABEL..1 + LABEL + COOKIE].copy_from_slice(&cookie);
        bytes
    }

    /// Reads it; none if the bytes are no such thing.
    pub fn decode(bytes: &[u8; LENGTH]) -> Option<LinkFrame> {
        let (&kind, rest) = bytes.split_first()?;
        let (label, rest) = rest.split_first_chunk()?;
        let (cookie, zeros) = rest.split_first_chunk::<COOKIE>()?;
        if zeros.iter().any(|&byte| byte != 0) {
            return None;
        }
        let (label, cookie) = (Label(*label), *cookie);
        let bare = cookie == Cookie::default();
        match kind {
            1 => Some(LinkFrame::Attach { label, cookie }),
            2 => Some(LinkFrame::Prove { label, cookie }),
            3 if bare => Some(LinkFrame::Attached { label }),
            4 if bare => Some(LinkFrame::Refused { label }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_written_is_read_and_what_is_read_is_written_alike(
            kind in 0..6_u8, label: [u8; LABEL], cookie: [u8; COOKIE], last: u8, bare: bool,
        ) {
            let mut bytes = [0; LENGTH];
            bytes[0] = kind;
            bytes[1..9].copy_from_slice(&label);
            bytes[9..25].copy_from_slice(&if bare { Cookie::default() } else { cookie });
            bytes[63] = last & u8::from(!bare);
            if let Some(frame) = LinkFrame::decode(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
            } else {
                let is_well_formed = matches!(kind, 1 | 2) || bare && matches!(kind, 3 | 4);
                prop_assert!(!is_well_formed || bytes[63] != 0);
            }
        }
    }
}
