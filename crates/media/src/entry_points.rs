//! Where players can begin: the first packet of a picture that needs no other, by the flag that
//! muxers set for that (random_access_indicator, ISO/IEC 13818-1, 2.4.3.5). What players need before
//! it are the tables that say what is in the stream: the programme association and map (2.4.4), which
//! come again and again.

use mpeg2ts_reader::demultiplex::Demultiplex;
use mpeg2ts_reader::packet::Packet;
use mpeg2ts_reader::psi::pat::PAT_PID;

use crate::alignment::PACKET;
use crate::programme::Programme;

/// Where there is no video, players can begin at any packet of audio that begins a frame; one in this many
/// packets is enough.
const SPACING_WITHOUT_VIDEO: u32 = 32;

/// What a packet of a transport stream is to a player.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A player can begin here, once it has the tables.
    EntryPoint,
    /// A part of a table that says what is in the stream: a player can begin before the tables that come
    /// right before an entry point.
    Table,
    /// Anything else.
    Other,
}

/// Reads the tables of a stream, and keeps the last of each for those who begin.
pub struct EntryPoints {
    programme: Programme,
    reader: Demultiplex<Programme>,
    association: Table,
    map: Table,
    since_entry: u32,
    /// How often a table said other than before.
    changes: u64,
}

impl core::fmt::Debug for EntryPoints {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Programme { map, video, audio, .. } = &self.programme;
        f.debug_struct("EntryPoints")
            .field("map", map)
            .field("video", video)
            .field("audio", audio)
            .finish_non_exhaustive()
    }
}

impl Default for EntryPoints {
    fn default() -> EntryPoints {
        let mut programme = Programme::default();
        let reader = Demultiplex::new(&mut programme);
        EntryPoints {
            programme,
            reader,
            association: Table::default(),
            map: Table::default(),
            since_entry: SPACING_WITHOUT_VIDEO,
            changes: 0,
        }
    }
}

impl EntryPoints {
    /// The next packet of the stream: what it is to a player.
    pub fn next(&mut self, bytes: &[u8; PACKET]) -> Role {
        let Some(packet) = Packet::try_new(bytes) else { return Role::Other };
        let pid = packet.pid();
        if pid == PAT_PID {
            if self.association.take(&packet, |id, _| id == ASSOCIATION) == Taken::Changed {
                self.forget();
                self.map = Table::default();
            }
            self.reader.push(&mut self.programme, bytes);
            return Role::Table;
        }
        if self.programme.map == Some(pid) {
            let number = self.programme.number;
            if self.map.take(&packet, |id, programme| id == MAP && Some(programme) == number) == Taken::Changed {
                self.forget();
                self.reader.push(&mut self.programme, &self.association.packets);
            }
            self.reader.push(&mut self.programme, bytes);
            return Role::Table;
        }
        self.since_entry = self.since_entry.saturating_add(1);
        let begins = packet.payload_unit_start_indicator();
        let is_entry = match self.programme {
            Programme { video: Some(video), .. } => {
                let is_flagged = || packet.adaptation_field().is_some_and(|field| field.random_access_indicator());
                begins && pid == video && is_flagged()
            }
            Programme { audio, .. } => begins && audio == Some(pid) && self.since_entry >= SPACING_WITHOUT_VIDEO,
        };
        if !is_entry {
            return Role::Other;
        }
        self.since_entry = 0;
        Role::EntryPoint
    }

    /// Tables are read anew: a muxer that begins again says other things under the same version, and a reader
    /// takes a table of a version that it has read for a copy.
    fn forget(&mut self) {
        self.programme = Programme::default();
        self.reader = Demultiplex::new(&mut self.programme);
        self.since_entry = SPACING_WITHOUT_VIDEO;
        self.changes += 1;
    }

    /// How often the tables said other than before: the stream has changed.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The tables that a player needs before an entry point; none before they have come.
    pub fn tables(&self) -> Option<Vec<u8>> {
        let is_known = !self.association.packets.is_empty() && !self.map.packets.is_empty();
        is_known.then(|| [&self.association.packets[..], &self.map.packets].concat())
    }

    /// Whether there is video; none before the tables have come.
    pub fn has_video(&self) -> Option<bool> {
        (!self.map.packets.is_empty()).then_some(self.programme.video.is_some())
    }
}

/// Of the programme association and of a programme's map (table 2-31).
const ASSOCIATION: u8 = 0;
const MAP: u8 = 2;

/// Packets of a table at most: a section has 1021 bytes behind its length, and so six packets.
const MOST_PACKETS: usize = 6;

/// A table as it came last.
#[derive(Default)]
struct Table {
    packets: Vec<u8>,
    /// Whether the next packet without a beginning belongs to it.
    is_open: bool,
}

#[derive(PartialEq, Eq)]
enum Taken {
    Same,
    Changed,
}

impl Table {
    /// A packet of the stream that the table comes in: it is kept if the table is `wanted` by its kind and by what it is for;
    /// whether it says other than the last.
    fn take(&mut self, packet: &Packet<'_>, wanted: impl FnOnce(u8, u16) -> bool) -> Taken {
        if !packet.payload_unit_start_indicator() {
            if self.is_open && self.packets.len() < MOST_PACKETS * PACKET {
                self.packets.extend_from_slice(packet.buffer());
            }
            return Taken::Same;
        }
        // A pointer to the section, its kind, its length, and the programme that it is for (2.4.4).
        self.is_open = matches!(packet.payload(), Some([0, id, _, _, high, low, ..])
            if wanted(*id, u16::from_be_bytes([*high, *low])));
        if !self.is_open {
            return Taken::Same;
        }
        let is_changed = self.packets.first_chunk().is_some_and(|kept| says_other(kept, packet.buffer()));
        self.packets.clear();
        self.packets.extend_from_slice(packet.buffer());
        if is_changed { Taken::Changed } else { Taken::Same }
    }
}

/// Whether a packet of a table says other than the one that came before; in each that repeats it, the continuity
/// counter (2.4.3.3) differs.
fn says_other(kept: &[u8; PACKET], bytes: &[u8]) -> bool {
    const COUNTER: u8 = 0x0f;
    kept[..3] != bytes[..3] || (kept[3] ^ bytes[3]) & !COUNTER != 0 || kept[4..] != bytes[4..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    /// A table of one section, with its checksum (2.4.4.1, annex A), in as many packets as it takes.
    fn packets(pid: u16, counter: u8, section: &[u8]) -> Vec<[u8; PACKET]> {
        let checksum = section.iter().fold(u32::MAX, |sum, &byte| {
            (0..8).rev().fold(sum, |sum, bit| {
                let feeds_back = (sum >> 31) ^ u32::from(byte >> bit & 1) == 1;
                sum << 1 ^ if feeds_back { 0x04c1_1db7 } else { 0 }
            })
        });
        let payload = [&[0], section, &checksum.to_be_bytes()].concat();
        let packet = |(number, part): (usize, &[u8])| {
            let mut packet = [0xff; PACKET];
            let begins = if number == 0 { 0x40 } else { 0 };
            let counter = (counter + number as u8) & 0x0f;
            packet[..4].copy_from_slice(&[0x47, begins | (pid >> 8) as u8, pid as u8, 0x10 | counter]);
            packet[4..4 + part.len()].copy_from_slice(part);
            packet
        };
        payload.chunks(PACKET - 4).enumerate().map(packet).collect()
    }

    fn table(pid: u16, counter: u8, section: &[u8]) -> [u8; PACKET] {
        packets(pid, counter, section)[0]
    }

    fn association(counter: u8, map: u16) -> [u8; PACKET] {
        table(0, counter, &[0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xe0 | (map >> 8) as u8, map as u8])
    }

    fn map(pid: u16, counter: u8, kind: u8, stream: u16) -> [u8; PACKET] {
        let [high, low] = (0xe000 | stream).to_be_bytes();
        table(pid, counter, &[2, 0xb0, 18, 0, 1, 0xc1, 0, 0, high, low, 0xf0, 0, kind, high, low, 0xf0, 0])
    }

    /// The first packet of a picture that needs no other.
    fn keyframe(pid: u16) -> [u8; PACKET] {
        let mut packet = [0; PACKET];
        packet[..6].copy_from_slice(&[0x47, 0x40 | (pid >> 8) as u8, pid as u8, 0x30, 1, 0x40]);
        packet
    }

    #[test]
    fn a_stream_that_begins_again_with_other_tables_has_entry_points_of_its_own() {
        let mut entry_points = EntryPoints::default();
        let mut next = |packet: [u8; PACKET]| entry_points.next(&packet);
        next(association(0, 4096));
        next(map(4096, 0, 0x1b, 256));
        assert_eq!((next(keyframe(256)), next(keyframe(300))), (Role::EntryPoint, Role::Other));
        // The same once more is no change, whatever its counter.
        next(association(1, 4096));
        next(map(4096, 1, 0x1b, 256));
        assert_eq!(next(keyframe(256)), Role::EntryPoint);
        // Another map of the same version, then another association.
        next(map(4096, 0, 0x1b, 300));
        assert_eq!((next(keyframe(256)), next(keyframe(300))), (Role::Other, Role::EntryPoint));
        next(association(0, 4000));
        next(map(4000, 0, 0x0f, 257));
        assert_eq!(next(map(4096, 0, 0x1b, 300)), Role::Other, "it is no table any more");
        assert_eq!((entry_points.changes(), entry_points.has_video()), (2, Some(false)));
    }

    #[test]
    fn a_map_of_several_packets_is_kept_whole_and_maps_of_other_programmes_are_not() {
        // A descriptor of 200 bytes in the map.
        let descriptor = [&[0xf0, 202, 0x80, 200][..], &[b'x'; 200]].concat();
        let section = [&[2, 0xb0, 220, 0, 1, 0xc1, 0, 0, 0xe1, 0][..], &descriptor, &[0x1b, 0xe1, 0, 0xf0, 0]].concat();
        let other = table(4096, 9, &[2, 0xb0, 18, 0, 2, 0xc1, 0, 0, 0xe1, 0, 0xf0, 0, 0x0f, 0xe1, 1, 0xf0, 0]);
        let mut entry_points = EntryPoints::default();
        for counter in 0..4 {
            entry_points.next(&association(counter, 4096));
            for packet in packets(4096, 2 * counter, &section) {
                assert_eq!(entry_points.next(&packet), Role::Table);
            }
            entry_points.next(&other);
            assert_eq!(entry_points.next(&keyframe(256)), Role::EntryPoint);
            assert_eq!((entry_points.changes(), entry_points.has_video()), (0, Some(true)));
            let expected = [&[association(counter, 4096)][..], &packets(4096, 2 * counter, &section)].concat();
            assert_eq!(entry_points.tables().unwrap(), expected.as_flattened());
        }
    }

    #[test]
    fn a_stream_that_goes_on_has_no_changes() {
        let mut entry_points = EntryPoints::default();
        for packet in CLIP.as_chunks().0 {
            entry_points.next(packet);
        }
        assert_eq!((entry_points.changes(), entry_points.has_video()), (0, Some(true)));
    }
}
