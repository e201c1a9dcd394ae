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
        EntryPoints { programme, reader, association: None, map: None, since_entry: SPACING_WITHOUT_VIDEO }
    }
}

impl EntryPoints {
    /// The next packet of the stream: what it is to a player.
    pub fn next(&mut self, bytes: &[u8; PACKET]) -> Role {
        let Some(packet) = Packet::try_new(bytes) else { return Role::Other };
        let pid = packet.pid();
        if pid == PAT_PID || self.programme.map == Some(pid) {
            self.reader.push(&mut self.programme, bytes);
        }
        if pid == PAT_PID {
            self.association = Some(Box::new(*bytes));
            return Role::Table;
        }
        if self.programme.map == Some(pid) {
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

    /// The tables that a player needs before an entry point; none before they have come.
    pub fn tables(&self) -> Option<[&[u8; PACKET]; 2]> {
        Some([self.association.as_deref()?, self.map.as_deref()?])
    }

    /// Whether there is video; none before the tables have come.
    pub fn has_video(&self) -> Option<bool> {
        self.map.as_ref().map(|_| self.programme.video.is_some())
    }
}
