//! Finds the packets of a transport stream in bytes: 188 of them begin with a sync byte (ISO/IEC
//! 13818-1, 2.4.3.2), and nothing says where the first one is.

use mpeg2ts_reader::packet::Packet;

/// Bytes of a packet.
pub const PACKET: usize = Packet::SIZE;

/// A packet begins with it.
const SYNC: u8 = Packet::SYNC_BYTE;

/// Packets in a row that begin with a sync byte until bytes are believed to be a transport stream.
const CONVINCING: usize = 5;

/// What is no transport stream in this many bytes is none: that many are in a second of the slowest video.
pub const MOST_SKIPPED: usize = 64 * 1024;

/// Bytes that are no transport stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no MPEG transport stream: {MOST_SKIPPED} bytes without packets of {PACKET} bytes that begin with 0x47; \
     for other containers, let ffmpeg pass the streams on as they are (-c copy -f mpegts)"
)]
pub struct NoTransportStream;

/// Cuts bytes into packets of a transport stream.
#[derive(Clone, Debug, Default)]
pub struct Alignment {
    /// What is not cut yet.
    bytes: Vec<u8>,
    is_aligned: bool,
    /// Bytes in a row that were no packet.
    skipped: usize,
    /// All of them.
    skipped_in_all: u64,
}

impl Alignment {
    /// Bytes that belonged to no packet so far.
    pub fn skipped(&self) -> u64 {
        self.skipped_in_all
    }

    /// The stream begins again: what was no whole packet is dropped.
    pub fn restart(&mut self) {
        self.skipped_in_all += self.bytes.len() as u64;
        self.bytes.clear();
        (self.is_aligned, self.skipped) = (false, 0);
    }

    /// More bytes come; whole packets go to `take`, in order.
    ///
    /// # Errors
    ///
    /// When the last [`MOST_SKIPPED`] bytes were no packets. What comes next may be.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8; PACKET])) -> Result<(), NoTransportStream> {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        let mut result = Ok(());
        while let Some(rest) = self.bytes.get(at..).filter(|rest| rest.len() >= self.needed()) {
            if self.is_aligned && rest[0] == SYNC {
                let packet = rest.first_chunk().expect("there is a whole packet");
                take(packet);
                self.skipped = 0;
                at += PACKET;
                continue;
            }
            self.is_aligned = (0..CONVINCING).all(|packet| rest.get(packet * PACKET) == Some(&SYNC));
            if self.is_aligned || rest.len() < Self::SPAN {
                if self.is_aligned {
                    continue;
                }
                break;
            }
            // On to the next byte that may be the first of a packet.
            let next = rest[1..].iter().position(|&byte| byte == SYNC).map_or(rest.len(), |place| place + 1);
            at += next;
            self.skipped += next;
            self.skipped_in_all += next as u64;
            if self.skipped >= MOST_SKIPPED {
                self.skipped = 0;
                result = Err(NoTransportStream);
                break;
            }
        }
        self.bytes.drain(..at);
        result
    }

    /// Bytes from the first sync byte to the last that convinces.
    const SPAN: usize = (CONVINCING - 1) * PACKET + 1;

    fn needed(&self) -> usize {
        if self.is_aligned { PACKET } else { Self::SPAN }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// This many packets, each filled with its number.
    fn stream(packets: u8) -> Vec<u8> {
        (0..packets).flat_map(|number| std::iter::once(SYNC).chain(std::iter::repeat_n(number, PACKET - 1))).collect()
    }

    fn numbers(alignment: &mut Alignment, bytes: &[u8]) -> Vec<u8> {
        let mut numbers = Vec::new();
        alignment.push(bytes, |packet| numbers.push(packet[1])).unwrap();
        numbers
    }

    #[test]
    fn packets_are_found_behind_what_is_none() {
        let mut alignment = Alignment::default();
        let bytes = [&[1, SYNC, 2][..], &stream(10)].concat();
        assert_eq!(numbers(&mut alignment, &bytes), (0..10).collect::<Vec<_>>());
        assert_eq!(alignment.skipped(), 3);
    }

    #[test]
    fn a_stream_that_loses_bytes_is_found_again() {
        let mut alignment = Alignment::default();
        let mut bytes = stream(20);
        bytes.drain(8 * PACKET + 6..8 * PACKET + 106);
        // The ninth packet lost a hundred bytes: it is whole with those of the tenth, which is lost.
        assert_eq!(numbers(&mut alignment, &bytes), [(0..9).collect::<Vec<_>>(), (10..20).collect()].concat());
    }

    #[test]
    fn a_stream_that_begins_again_is_cut_from_its_first_packet_on() {
        let mut alignment = Alignment::default();
        numbers(&mut alignment, &stream(10)[..9 * PACKET + 5]);
        alignment.restart();
        assert_eq!(numbers(&mut alignment, &stream(10)), (0..10).collect::<Vec<_>>());
        assert_eq!(alignment.skipped(), 5);
    }

    #[test]
    fn what_is_no_transport_stream_is_said() {
        let mut alignment = Alignment::default();
        assert_eq!(alignment.push(&vec![0; 2 * MOST_SKIPPED], |_| panic!("no packet")), Err(NoTransportStream));
        assert_eq!(numbers(&mut alignment, &stream(10)).len(), 10, "what comes next may be one");
    }

    proptest! {
        #[test]
        fn packets_come_out_as_they_went_in_however_they_are_read(cuts in proptest::collection::vec(1usize..400, 1..60)) {
            let bytes = stream(30);
            let mut alignment = Alignment::default();
            let (mut rest, mut found) = (&bytes[..], Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                found.extend(numbers(&mut alignment, head));
                rest = tail;
            }
            prop_assert_eq!(found, (0..30).collect::<Vec<u8>>());
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(prop_oneof![Just(SYNC), any::<u8>()], 0..3000)) {
            let mut alignment = Alignment::default();
            let mut packets = 0;
            let _ = alignment.push(&bytes, |_| packets += 1);
            prop_assert!(packets * PACKET <= bytes.len());
        }
    }
}
