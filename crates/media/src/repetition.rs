//! Plays a file again and again as one stream: where it begins anew, its clocks, time stamps and counters go
//! on from where they were, since players take a clock that goes back for a fault.
//!
//! Each round, all times (90 kHz, modulo 2^33: ISO/IEC 13818-1, 2.4.3.5 and 2.4.3.7) are later by what the
//! pictures last, the last one included, and so much at least that each stream's times rise:
//!
//! ```text
//! round = max over streams (last - first + step),   step: of pictures, between the last two; of others, 1
//! ```
//!
//! Where there are no pictures, of others too between the last two: units of sound are long, and not equally so.

use std::collections::BTreeMap;

use mpeg2ts_reader::packet::{Packet, Pid};

use crate::alignment::PACKET;

/// Time stamps begin anew after this many ticks.
const WRAP: u64 = 1 << 33;

/// No stamp is later than the one before by more, in an uninterrupted stream: ten seconds.
const LONGEST_STEP: u64 = 900_000;

/// One elementary stream.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Added to its counters.
    shift: u8,
    /// The last counter that left.
    counter: Option<u8>,
    /// Whether a packet has come since the file began.
    has_begun: bool,
    /// What it lasts so far, in ticks, less the last step.
    lasts: u64,
    last: Option<u64>,
    step: u64,
    is_video: bool,
}

/// Makes one stream of the rounds of a file.
#[derive(Clone, Debug, Default)]
pub struct Repetition {
    /// Ticks that are added to all times.
    offset: u64,
    streams: BTreeMap<u16, Stream>,
}

impl Repetition {
    /// The file begins anew.
    pub fn rewind(&mut self) {
        let has_video = self.streams.values().any(|stream| stream.is_video);
        let step = |stream: &Stream| if has_video && !stream.is_video { 1 } else { stream.step };
        let round = self.streams.values().map(|stream| stream.lasts + step(stream)).max().unwrap_or(0);
        self.offset = (self.offset + round) % WRAP;
        for stream in self.streams.values_mut() {
            *stream = Stream { shift: stream.shift, counter: stream.counter, ..Stream::default() };
        }
    }

    /// The next packet of the file becomes that of the stream.
    pub fn next(&mut self, bytes: &mut [u8; PACKET]) {
        let Some(packet) = Packet::try_new(bytes) else { return };
        let pid = packet.pid();
        if pid == Pid::STUFFING {
            return;
        }
        let has_payload = packet.adaptation_control().has_payload();
        let counter = packet.continuity_counter().count();
        let is_start = packet.payload_unit_start_indicator();
        let has_reference = packet.adaptation_field().is_some_and(|field| field.pcr().is_ok());
        let payload = packet.payload().map_or(PACKET, |payload| PACKET - payload.len());

        let stream = self.streams.entry(pid.into()).or_default();
        if !stream.has_begun {
            stream.has_begun = true;
            // Packets without payload do not count (2.4.3.3).
            let next = stream.counter.map_or(counter, |last| last + u8::from(has_payload));
            stream.shift = next.wrapping_sub(counter) & 0x0f;
        }
        let counter = (counter + stream.shift) & 0x0f;
        bytes[3] = bytes[3] & 0xf0 | counter;
        stream.counter = Some(counter);

        if has_reference {
            // 33 bits of base, 6 reserved, 9 of extension; only the base is shifted.
            let mut field = [0; 8];
            field[2..].copy_from_slice(&bytes[6..12]);
            let value = u64::from_be_bytes(field);
            let base = ((value >> 15) + self.offset) % WRAP;
            bytes[6..12].copy_from_slice(&(base << 15 | value & 0x7fff).to_be_bytes()[2..]);
        }
        if !is_start {
            return;
        }
        let unit = &mut bytes[payload..];
        // Table 2-22: pictures are 1110 xxxx.
        stream.is_video |= matches!(unit, [0, 0, 1, 0xe0..=0xef, ..]);
        for place in stamps(unit) {
            let stamp = read(&unit[place..]);
            write(&mut unit[place..], (stamp + self.offset) % WRAP);
            // Of two, the second says when it is decoded, in order.
            if Some(place) == stamps(unit).last() {
                stream.note(stamp);
            }
        }
    }
}

impl Stream {
    fn note(&mut self, stamp: u64) {
        if let Some(last) = self.last {
            let step = (stamp + WRAP - last) % WRAP;
            if step <= LONGEST_STEP {
                self.lasts += step;
                self.step = step;
            }
        }
        self.last = Some(stamp);
    }
}

/// Where time stamps are in the beginning of a packet of an elementary stream (table 2-21).
fn stamps(unit: &[u8]) -> impl Iterator<Item = usize> + use<> {
    /// Where the first is.
    const FIRST: usize = 9;
    const BYTES: usize = 5;
    // Program stream map, padding, private 2, ECM, EMM, DSM-CC, H.222.1 type E, directory: they have no header.
    const BARE: [u8; 8] = [0xbc, 0xbe, 0xbf, 0xf0, 0xf1, 0xf2, 0xf8, 0xff];
    let count = match unit {
        [0, 0, 1, id, _, _, flags, which, ..] if flags >> 6 == 0b10 && !BARE.contains(id) => match which >> 6 {
            0b10 => 1,
            0b11 => 2,
            _ => 0,
        },
        _ => 0,
    };
    let room = unit.len();
    (0..count).map(|number| FIRST + number * BYTES).take_while(move |place| place + BYTES <= room)
}

/// 3, 15 and 15 bits, each with a marker behind it.
fn read(field: &[u8]) -> u64 {
    let field = |place: usize| u64::from(field[place]);
    (field(0) >> 1 & 0x07) << 30 | field(1) << 22 | (field(2) >> 1) << 15 | field(3) << 7 | field(4) >> 1
}

fn write(field: &mut [u8], stamp: u64) {
    field[0] = field[0] & 0xf1 | (stamp >> 29) as u8 & 0x0e;
    field[1] = (stamp >> 22) as u8;
    field[2] = (stamp >> 14) as u8 | 1;
    field[3] = (stamp >> 7) as u8;
    field[4] = (stamp << 1) as u8 | 1;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mpeg2ts_reader::pes::{PesContents, PesHeader, PtsDts};
    use proptest::prelude::*;

    use super::*;
    use crate::clock::{MediaClock, Tick};

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    fn play(rounds: usize) -> Vec<[u8; PACKET]> {
        let mut repetition = Repetition::default();
        let mut packets = Vec::new();
        for _ in 0..rounds {
            for packet in CLIP.as_chunks::<PACKET>().0 {
                let mut packet = *packet;
                repetition.next(&mut packet);
                packets.push(packet);
            }
            repetition.rewind();
        }
        packets
    }

    /// Of each stream in the order in which they come, when units are to be decoded.
    fn decoding_times(packets: &[[u8; PACKET]]) -> BTreeMap<u16, Vec<u64>> {
        let mut times: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        for bytes in packets {
            let packet = Packet::try_new(bytes).unwrap();
            let Some(header) = packet.payload().filter(|_| packet.payload_unit_start_indicator()) else { continue };
            let Some(header) = PesHeader::from_bytes(header) else { continue };
            let PesContents::Parsed(Some(contents)) = header.contents() else { continue };
            let stamp = match contents.pts_dts() {
                Ok(PtsDts::PtsOnly(Ok(stamp))) => stamp,
                Ok(PtsDts::Both { dts: Ok(stamp), .. }) => stamp,
                _ => continue,
            };
            times.entry(packet.pid().into()).or_default().push(stamp.value());
        }
        times
    }

    #[test]
    fn the_first_round_is_the_file() {
        assert_eq!(play(1).concat(), CLIP);
    }

    #[test]
    fn time_goes_on_without_a_jump_or_a_pause() {
        let mut clock = MediaClock::default();
        for packet in play(5) {
            assert!(!matches!(clock.next(&packet), Some(Tick::Jump(_))));
        }
        let elapsed = clock.elapsed();
        assert!(elapsed > Duration::from_millis(14_800) && elapsed < Duration::from_millis(15_300), "{elapsed:?}");
        let times = decoding_times(&play(5));
        assert_eq!(times.len(), 2, "pictures and sound");
        for times in times.values() {
            for pair in times.windows(2) {
                // 10 to 40 pictures a second, and sound of 1024 samples a frame, several a packet.
                assert!(pair[1] > pair[0] && pair[1] - pair[0] < 40_000, "{pair:?}");
            }
        }
    }

    #[test]
    fn counters_go_on() {
        let mut counters: BTreeMap<u16, u8> = BTreeMap::new();
        for bytes in play(3) {
            let packet = Packet::try_new(&bytes).unwrap();
            let counter = packet.continuity_counter().count();
            let step = u8::from(packet.adaptation_control().has_payload());
            if let Some(last) = counters.insert(packet.pid().into(), counter) {
                assert_eq!(counter, (last + step) & 0x0f, "{:?}", packet.pid());
            }
        }
        assert!(counters.len() >= 4);
    }

    proptest! {
        #[test]
        fn a_stamp_is_read_as_it_was_written(stamp in 0..WRAP, before in any::<[u8; 5]>()) {
            let mut field = before;
            write(&mut field, stamp);
            prop_assert_eq!(read(&field), stamp);
            prop_assert_eq!(field[0] >> 4, before[0] >> 4);
        }

        #[test]
        fn any_packet_is_taken(heads in proptest::collection::vec(proptest::array::uniform32(any::<u8>()), 0..50)) {
            let mut repetition = Repetition::default();
            for head in heads {
                let mut packet = [0x47; PACKET];
                packet[1..33].copy_from_slice(&head);
                repetition.next(&mut packet);
                if head[0] == 0 {
                    repetition.rewind();
                }
            }
        }
    }
}
