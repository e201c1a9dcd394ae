//! Cuts a transport stream into packets for distribution: up to seven packets of 188 bytes each, and a new
//! one at each entry point, so that a player that begins there gets nothing that it cannot use.
//!
//! The tables that come right before an entry point belong to it: a packet that begins with them is
//! marked, and needs nothing before it.

use std::sync::Arc;

use crate::alignment::{Alignment, NoTransportStream, PACKET};
use crate::entry_points::{EntryPoints, Role};

/// Packets of the transport stream in one for distribution.
pub const MOST_PACKETS: usize = 7;

/// The same where networks carry no more than 1280 bytes (RFC 8200, 5): with all headers of a session.
pub const NARROW_PACKETS: usize = 6;

/// A part of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Whole packets of the transport stream.
    pub bytes: Arc<[u8]>,
    /// Whether players can begin here.
    pub is_entry_point: bool,
}

/// Cuts a stream.
#[derive(Debug)]
pub struct Cutter {
    /// Packets of the transport stream in one.
    most: usize,
    alignment: Alignment,
    entry_points: EntryPoints,
    /// What is not full yet.
    bytes: Vec<u8>,
    is_entry_point: bool,
    /// How many bytes at its end are tables.
    tables: usize,
}

impl Default for Cutter {
    fn default() -> Cutter {
        Cutter::of(MOST_PACKETS)
    }
}

impl Cutter {
    /// Puts `most` packets of the transport stream into one at most; from 1 to [`MOST_PACKETS`].
    pub fn of(most: usize) -> Cutter {
        Cutter {
            most: most.clamp(1, MOST_PACKETS),
            alignment: Alignment::default(),
            entry_points: EntryPoints::default(),
            bytes: Vec::new(),
            is_entry_point: false,
            tables: 0,
        }
    }

    /// More of the stream comes; what is full goes to `take`.
    ///
    /// # Errors
    ///
    /// When it is no transport stream.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Cut)) -> Result<(), NoTransportStream> {
        let Cutter { alignment, entry_points, bytes: collected, is_entry_point, tables, most } = self;
        alignment.push(bytes, |packet| {
            let mut hand_out = |collected: &mut Vec<u8>, is_entry_point: &mut bool, tables: &mut usize, rest: usize| {
                let split = collected.len() - rest;
                if split > 0 {
                    take(Cut { bytes: collected[..split].into(), is_entry_point: *is_entry_point });
                    *is_entry_point = false;
                }
                collected.drain(..split);
                *tables = (*tables).min(rest);
            };
            let role = entry_points.next(packet);
            if role == Role::EntryPoint {
                // The tables right before it go with it.
                let before = *tables;
                hand_out(collected, is_entry_point, tables, before);
                *is_entry_point = true;
            }
            collected.extend_from_slice(packet);
            *tables = if role == Role::Table { *tables + PACKET } else { 0 };
            if collected.len() == *most * PACKET {
                // Tables at its end wait for what comes behind them.
                let rest = if *tables < collected.len() { *tables } else { 0 };
                hand_out(collected, is_entry_point, tables, rest);
            }
        })
    }

    /// Nothing comes for a while, or ever: what is not full goes out as it is.
    pub fn flush(&mut self) -> Option<Cut> {
        if self.bytes.is_empty() {
            return None;
        }
        let cut = Cut { bytes: self.bytes.as_slice().into(), is_entry_point: self.is_entry_point };
        self.bytes.clear();
        (self.is_entry_point, self.tables) = (false, 0);
        Some(cut)
    }

    /// The stream begins again, maybe at another place of a packet: what was not whole is dropped.
    pub fn restart(&mut self) {
        self.alignment.restart();
        self.bytes.clear();
        (self.is_entry_point, self.tables) = (false, 0);
    }

    /// Bytes that belonged to no packet so far.
    pub fn skipped(&self) -> u64 {
        self.alignment.skipped()
    }

    /// What is known of the stream's tables.
    pub fn entry_points(&self) -> &EntryPoints {
        &self.entry_points
    }
}
