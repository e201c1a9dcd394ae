//! What players of one viewer get: each begins with the tables and a burst from an entry point, so that it
//! can show a picture at once and holds what it needs against late packets, and then gets what comes.
//!
//! ```text
//!      entry          entry          entry
//! |----|--------------|--------------|--------|
//! oldest              |                       newest
//!                     a player begins here: the newest that is `burst` old
//! ```
//!
//! All players read from one window of the stream. Who reads too slowly, so that what it needs next has
//! left the window, is told so, and disturbs nobody.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::alignment::PACKET;
use crate::entry_points::{EntryPoints, Role};

/// One piece of the stream, as it came.
#[derive(Clone, Debug)]
struct Piece {
    /// When it came, by the viewer's clock.
    at: Duration,
    bytes: Arc<[u8]>,
    /// The tables that a player needs that begins here; none if none can.
    tables: Option<Arc<[u8]>>,
}

/// The window of the stream that players read from.
#[derive(Debug)]
pub struct Playout {
    /// How old an entry point must be for a player to begin there.
    burst: Duration,
    /// How long pieces stay.
    window: Duration,
    /// The most bytes of pieces that stay.
    most_bytes: usize,
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// The number of the first piece.
    first: u64,
    entry_points: EntryPoints,
    tables: Option<Arc<[u8]>>,
}

/// How far a player has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    next: u64,
}

/// A player has read so slowly that what it needs next is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the player reads more slowly than the stream comes, and what it needs next is gone")]
pub struct FellBehind;

impl Playout {
    /// Players get `burst` at once; who is slower by more than the rest of `window`, or by
    /// `most_bytes`, falls behind.
    pub fn new(burst: Duration, window: Duration, most_bytes: usize) -> Playout {
        Playout {
            burst,
            window,
            most_bytes,
            pieces: VecDeque::new(),
            bytes: 0,
            first: 0,
            entry_points: EntryPoints::default(),
            tables: None,
        }
    }

    /// The next piece of the stream has come: whole packets of a transport stream.
    pub fn push(&mut self, now: Duration, bytes: Arc<[u8]>) {
        let mut is_entry_point = false;
        for packet in bytes.as_chunks::<PACKET>().0 {
            match self.entry_points.next(packet) {
                Role::EntryPoint => is_entry_point = true,
                Role::Table => self.tables = self.entry_points.tables().map(Into::into),
                Role::Other => {}
            }
        }
        let tables = if is_entry_point { self.tables.clone() } else { None };
        self.bytes += bytes.len();
        self.pieces.push_back(Piece { at: now, bytes, tables });
        while let Some(oldest) = self.pieces.front()
            && self.pieces.len() > 1
            && (now.saturating_sub(oldest.at) > self.window || self.bytes > self.most_bytes)
        {
            self.bytes -= oldest.bytes.len();
            self.pieces.pop_front();
            self.first += 1;
        }
    }

    /// Whether there is video; none before the stream has said so.
    pub fn has_video(&self) -> Option<bool> {
        self.entry_points.has_video()
    }

    /// How long before the newest piece came that which a player gets first that begins now; none before one
    /// can begin.
    pub fn buffered(&self, now: Duration) -> Option<Duration> {
        let first = self.beginning(now)?;
        Some(self.pieces.back()?.at.saturating_sub(self.pieces.get(first)?.at))
    }

    /// A player begins: what it gets first, and from where it goes on. None before there is an entry
    /// point.
    pub fn begin(&self, now: Duration) -> Option<(Arc<[u8]>, Cursor)> {
        let place = self.beginning(now)?;
        Some((self.pieces.get(place)?.tables.clone()?, Cursor { next: self.first + place as u64 }))
    }

    /// Where a player begins.
    fn beginning(&self, now: Duration) -> Option<usize> {
        let entries = || self.pieces.iter().enumerate().filter(|(_, piece)| piece.tables.is_some());
        let is_old = |(_, piece): &(usize, &Piece)| now.saturating_sub(piece.at) >= self.burst;
        let (place, _) = entries().rfind(is_old).or_else(|| entries().next())?;
        Some(place)
    }

    /// The next piece for a player; none if it has all that has come.
    ///
    /// # Errors
    ///
    /// When it has left the window.
    pub fn next(&self, cursor: &mut Cursor) -> Result<Option<Arc<[u8]>>, FellBehind> {
        let place = cursor.next.checked_sub(self.first).ok_or(FellBehind)?;
        let Some(piece) = self.pieces.get(place as usize) else { return Ok(None) };
        cursor.next += 1;
        Ok(Some(Arc::clone(&piece.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cutter::Cutter;

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// The clip's three seconds, spread over as many.
    fn play(playout: &mut Playout) -> usize {
        let (mut cutter, mut pieces) = (Cutter::default(), Vec::new());
        cutter.push(CLIP, |cut| pieces.push(cut.bytes)).unwrap();
        pieces.extend(cutter.flush().map(|cut| cut.bytes));
        let count = pieces.len();
        for (number, bytes) in pieces.into_iter().enumerate() {
            playout.push(MS(3000 * number as u64 / count as u64), bytes);
        }
        count
    }

    fn read(playout: &Playout, cursor: &mut Cursor) -> Vec<u8> {
        std::iter::from_fn(|| playout.next(cursor).unwrap()).flat_map(|bytes| bytes.to_vec()).collect()
    }

    #[test]
    fn a_player_begins_with_the_tables_at_the_newest_entry_point_that_is_old_enough() {
        let mut playout = Playout::new(MS(1500), MS(10_000), 1 << 20);
        assert_eq!(playout.begin(MS(0)), None, "nothing has come");
        play(&mut playout);
        // Keyframes are about a second apart: the second of three is 1.5 s old, and the third is not.
        let (tables, mut cursor) = playout.begin(MS(3000)).unwrap();
        assert_eq!(tables.len(), 2 * PACKET);
        let buffered = playout.buffered(MS(3000)).unwrap();
        assert!((MS(1400)..MS(2600)).contains(&buffered), "{buffered:?}");
        let rest = read(&playout, &mut cursor);
        assert!(CLIP.ends_with(&rest) && rest.len() > CLIP.len() / 2 && rest.len() < CLIP.len() * 3 / 4);
        let mut entry_points = EntryPoints::default();
        for packet in tables.as_chunks::<PACKET>().0 {
            entry_points.next(packet);
        }
        let roles: Vec<Role> = rest.as_chunks::<PACKET>().0.iter().map(|packet| entry_points.next(packet)).collect();
        let first = roles.iter().position(|role| *role != Role::Table);
        assert_eq!(first.map(|place| roles[place]), Some(Role::EntryPoint), "the picture needs nothing before it");
    }

    #[test]
    fn a_player_that_begins_early_gets_the_oldest_entry_point() {
        let mut playout = Playout::new(MS(10_000), MS(20_000), 1 << 20);
        play(&mut playout);
        let (_, mut cursor) = playout.begin(MS(3000)).unwrap();
        assert!(read(&playout, &mut cursor).len() > CLIP.len() * 9 / 10);
    }

    #[test]
    fn who_reads_too_slowly_learns_so_and_others_read_on() {
        let mut playout = Playout::new(MS(0), MS(500), 1 << 20);
        playout.push(MS(0), CLIP[..7 * PACKET].into());
        let (_, mut slow) = playout.begin(MS(0)).unwrap();
        let mut fast = slow;
        read(&playout, &mut fast);
        playout.push(MS(400), CLIP[7 * PACKET..14 * PACKET].into());
        playout.push(MS(800), CLIP[14 * PACKET..21 * PACKET].into());
        assert_eq!(playout.next(&mut slow), Err(FellBehind));
        assert_eq!(read(&playout, &mut fast), &CLIP[7 * PACKET..21 * PACKET]);
        assert_eq!(playout.next(&mut fast), Ok(None), "it has all");
    }

    #[test]
    fn the_window_is_bounded_in_bytes() {
        let mut playout = Playout::new(MS(0), MS(1_000_000), 20 * PACKET);
        play(&mut playout);
        assert!(playout.bytes <= 20 * PACKET);
    }
}
