//! Where players can begin: the first packet of a picture that needs no other, by the flag that
//! muxers set for that (random_access_indicator, ISO/IEC 13818-1, 2.4.3.5). What players need before
//! it are the tables that say what is in the stream: the programme association and map (2.4.4), which
//! come again and again.

use mpeg2ts_reader::demultiplex::Demultiplex;
use mpeg2ts_reader::packet::Packet;
use mpeg2ts_reader::psi::pat::PAT_PID;

use crate::alignment::PACKET;
use crate::programme::Programme;

/// Where there is no video, players can begin at any packet of audio that begins a frame; one in so many
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
    association: Option<Box<[u8; PACKET]>>,
    map: Option<Box<[u8; PACKET]>>,
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
        EntryPoints { programme, reader, association: None, map: None, since_entry: SPACING_WITHOUT_VIDEO, changes: 0 }
    }
}

impl EntryPoints {
    /// The next packet of the stream: what it is to a player.
    pub fn next(&mut self, bytes: &[u8; PACKET]) -> Role {
        let Some(packet) = Packet::try_new(bytes) else { return Role::Other };
        let pid = packet.pid();
        if pid == PAT_PID {
            if self.association.as_ref().is_some_and(|kept| says_other(kept, bytes)) {
                self.forget();
                (self.association, self.map) = (None, None);
            }
            self.reader.push(&mut self.programme, bytes);
            self.association = Some(Box::new(*bytes));
            return Role::Table;
        }
        if self.programme.map == Some(pid) {
            if self.map.as_ref().is_some_and(|kept| says_other(kept, bytes)) {
                self.forget();
                if let Some(association) = &self.association {
                    self.reader.push(&mut self.programme, association.as_slice());
                }
            }
            self.reader.push(&mut self.programme, bytes);
            self.map = Some(Box::new(*bytes));
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
    pub fn tables(&self) -> Option<[&[u8; PACKET]; 2]> {
        Some([self.association.as_deref()?, self.map.as_deref()?])
    }

    /// Whether there is video; none before the tables have come.
    pub fn has_video(&self) -> Option<bool> {
        self.map.as_ref().map(|_| self.programme.video.is_some())
    }
}

/// Whether a packet of a table says other than the one that came before; in each that repeats it, the continuity
/// counter (2.4.3.3) differs.
fn says_other(kept: &[u8; PACKET], bytes: &[u8; PACKET]) -> bool {
    const COUNTER: u8 = 0x0f;
    kept[..3] != bytes[..3] || (kept[3] ^ bytes[3]) & !COUNTER != 0 || kept[4..] != bytes[4..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    /// A table of one section, with its checksum (2.4.4.1, annex A).
    fn table(pid: u16, counter: u8, section: &[u8]) -> [u8; PACKET] {
        let mut packet = [0xff; PACKET];
        packet[..5].copy_from_slice(&[0x47, 0x40 | (pid >> 8) as u8, pid as u8, 0x10 | counter, 0]);
        packet[5..5 + section.len()].copy_from_slice(section);
        let checksum = section.iter().fold(u32::MAX, |sum, &byte| {
            (0..8).rev().fold(sum, |sum, bit| {
                let feeds_back = (sum >> 31) ^ u32::from(byte >> bit & 1) == 1;
                sum << 1 ^ if feeds_back { 0x04c1_1db7 } else { 0 }
            })
        });
        packet[5 + section.len()..9 + section.len()].copy_from_slice(&checksum.to_be_bytes());
        packet
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
    fn a_stream_that_goes_on_has_no_changes() {
        let mut entry_points = EntryPoints::default();
        for packet in CLIP.as_chunks().0 {
            entry_points.next(packet);
        }
        assert_eq!((entry_points.changes(), entry_points.has_video()), (0, Some(true)));
    }
}
