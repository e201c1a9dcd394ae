//! What travels between nodes: packets of one length, and what clients and guards say about their link.

use anabranch_proto::machine::Wire;

use crate::link::{self, LinkFrame};
use crate::packet::Datagram;
use crate::size::DATAGRAM;

/// What a datagram is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// A packet, which lies in [`Frame::datagram`].
    #[default]
    Packet,
    /// About a link.
    Link(LinkFrame),
}

/// One datagram. A packet lies in it as it came, and is changed there before it is sent on.
#[derive(Clone)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The packet, if it is one.
    pub datagram: Datagram,
}

impl Default for Frame {
    fn default() -> Frame {
        Frame { kind: Kind::Packet, datagram: [0; DATAGRAM] }
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.kind.fmt(f)
    }
}

impl Frame {
    /// What is said about a link.
    pub fn link(frame: LinkFrame) -> Frame {
        Frame { kind: Kind::Link(frame), ..Frame::default() }
    }

    /// Its bytes on the wire.
    pub fn length(&self) -> u32 {
        match self.kind {
            Kind::Packet => DATAGRAM as u32,
            Kind::Link(_) => link::LENGTH as u32,
        }
    }
}

/// A datagram of another length than packets and link frames have, or a link frame that says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFrame;

impl Wire for Frame {
    type Error = NoFrame;
    type Unreadable = u64;

    fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        match &self.kind {
            Kind::Packet => out.extend_from_slice(&self.datagram),
            Kind::Link(frame) => out.extend_from_slice(&frame.encode()),
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<(), NoFrame> {
        if bytes.len() == DATAGRAM {
            self.kind = Kind::Packet;
            self.datagram.copy_from_slice(bytes);
            return Ok(());
        }
        let frame = bytes.try_into().ok().and_then(LinkFrame::decode).ok_or(NoFrame)?;
        self.kind = Kind::Link(frame);
        Ok(())
    }

    fn count(_: NoFrame, unreadable: &mut u64) {
        *unreadable += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::packet::Label;

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_none_and_never_more(bytes in vec(any::<u8>(), 0..1500), of_frame: bool) {
            let mut bytes = bytes;
            if of_frame {
                bytes.resize(if bytes.len() % 2 == 0 { DATAGRAM } else { link::LENGTH }, 0);
            }
            let mut frame = Frame::default();
            if frame.read(&bytes).is_ok() {
                let mut written = vec![1, 2, 3];
                frame.write(&mut written);
                prop_assert_eq!(&written, &bytes);
                prop_assert_eq!(frame.length() as usize, bytes.len());
            } else {
                prop_assert!(bytes.len() != DATAGRAM, "every datagram of this length is a packet");
            }
        }
    }

    #[test]
    fn a_link_frame_is_read_into_what_was_a_packet() {
        let mut frame = Frame { datagram: [7; DATAGRAM], ..Frame::default() };
        let said = LinkFrame::Attached { label: Label([3; 8]) };
        assert_eq!(frame.read(&said.encode()), Ok(()));
        assert_eq!((frame.kind, frame.length()), (Kind::Link(said), 64));
    }
}
