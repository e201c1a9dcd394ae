//! The stream as HTTP Live Streaming has it (RFC 8216): segments that begin at entry points, and the
//! playlist that names the newest of them.
//!
//! A segment is whole when the next one begins: players are at least one behind. Segments are of
//! MPEG transport stream, each with its tables first (RFC 8216, 3.2), and at least a second long: a
//! keyframe more often makes no shorter ones, since each costs a player a request.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use m3u8_rs::{MediaPlaylist, MediaSegment};

use crate::alignment::PACKET;
use crate::entry_points::{EntryPoints, Role};

/// A segment is no shorter, but for the last of a stream.
const SHORTEST: Duration = Duration::from_secs(1);

/// Segments in the playlist. A player begins three from the end (RFC 8216, 6.3.3), and what is older is for
/// those who are late.
const LISTED: usize = 6;

/// Segments that stay when they have left the playlist, for who has just read it (RFC 8216, 6.2.2).
const UNLISTED: usize = 3;

/// A segment that gets no entry point is cut here all the same, so that memory is bounded.
const LONGEST: usize = 32 << 20;

#[derive(Clone, Debug)]
struct Segment {
    number: u64,
    begun: SystemTime,
    duration: Duration,
    bytes: Arc<[u8]>,
    is_discontinuous: bool,
}

/// Segments of one stream.
#[derive(Debug, Default)]
pub struct Segments {
    whole: VecDeque<Segment>,
    /// The segment that is being collected; none before the first entry point.
    current: Option<Current>,
    next: u64,
    /// Discontinuities of segments that have left the playlist.
    left_behind: u64,
    /// Something is missing before what comes next.
    is_broken: bool,
    entry_points: EntryPoints,
}

#[derive(Debug)]
struct Current {
    begun_at: Duration,
    begun: SystemTime,
    bytes: Vec<u8>,
    is_discontinuous: bool,
}

impl Segments {
    /// Something of the stream is missing before what comes next.
    pub fn note_gap(&mut self) {
        self.is_broken = true;
    }

    /// The next piece of the stream: whole packets of a transport stream, at `now` by a clock that
    /// never jumps and at `date` by the one on the wall.
    pub fn push(&mut self, now: Duration, date: SystemTime, bytes: &[u8]) {
        for packet in bytes.as_chunks::<PACKET>().0 {
            if self.entry_points.next(packet) == Role::EntryPoint && self.is_long_enough(now) {
                self.begin(now, date);
            }
            if let Some(current) = &mut self.current {
                current.bytes.extend_from_slice(packet);
                if current.bytes.len() >= LONGEST {
                    self.begin(now, date);
                }
            }
        }
    }

    fn is_long_enough(&self, now: Duration) -> bool {
        self.current.as_ref().is_none_or(|current| now.saturating_sub(current.begun_at) >= SHORTEST)
    }

    /// The segment that was collected is whole, and another begins.
    fn begin(&mut self, now: Duration, date: SystemTime) {
        let Some(tables) = self.entry_points.tables() else { return };
        if let Some(Current { begun_at, begun, bytes, is_discontinuous }) = self.current.take() {
            let duration = now.saturating_sub(begun_at);
            self.whole.push_back(Segment { number: self.next, begun, duration, bytes: bytes.into(), is_discontinuous });
            self.next += 1;
            while self.whole.len() > LISTED + UNLISTED {
                self.whole.pop_front();
            }
            if let Some(unlisted) = self.whole.len().checked_sub(LISTED + 1) {
                self.left_behind += u64::from(self.whole[unlisted].is_discontinuous);
            }
        }
        let is_discontinuous = std::mem::take(&mut self.is_broken);
        let bytes = tables.map(|table| table.as_slice()).concat();
        self.current = Some(Current { begun_at: now, begun: date, bytes, is_discontinuous });
    }

    /// Segment `number`, if it is here.
    pub fn segment(&self, number: u64) -> Option<Arc<[u8]>> {
        let place = number.checked_sub(self.whole.front()?.number)?;
        self.whole.get(usize::try_from(place).ok()?).map(|segment| Arc::clone(&segment.bytes))
    }

    /// The playlist, in which segment 7 is `7.ts`; none before the first segment is whole.
    pub fn playlist(&self) -> Option<String> {
        let first = self.whole.len().saturating_sub(LISTED);
        let listed = || self.whole.range(first..);
        let longest = listed().map(|segment| segment.duration).max()?;
        let segments = listed().map(|segment| MediaSegment {
            uri: format!("{}.ts", segment.number),
            duration: segment.duration.as_secs_f32(),
            discontinuity: segment.is_discontinuous,
            program_date_time: Some(chrono::DateTime::<chrono::Utc>::from(segment.begun).fixed_offset()),
            ..MediaSegment::empty()
        });
        let playlist = MediaPlaylist {
            version: Some(3),
            // The nearest whole second, below which no segment may be rounded (RFC 8216, 4.3.3.1).
            target_duration: longest.as_secs_f64().round().max(1.0) as u64,
            media_sequence: self.whole.get(first)?.number,
            discontinuity_sequence: self.left_behind,
            independent_segments: true,
            segments: segments.collect(),
            ..MediaPlaylist::default()
        };
        let mut text = Vec::new();
        playlist.write_to(&mut text).expect("memory takes it");
        Some(String::from_utf8(text).expect("a playlist is UTF-8"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    /// The clip again and again, three seconds each, from the `from`th time to before the `to`th.
    fn play(segments: &mut Segments, from: u64, to: u64) {
        let packets = CLIP.as_chunks::<PACKET>().0;
        for time in from..to {
            for (number, packet) in packets.iter().enumerate() {
                let now = Duration::from_millis(3000 * time + 3000 * number as u64 / packets.len() as u64);
                segments.push(now, SystemTime::UNIX_EPOCH + now, packet);
            }
        }
    }

    #[test]
    fn a_segment_begins_with_the_tables_and_a_keyframe() {
        let mut segments = Segments::default();
        assert_eq!(segments.playlist(), None, "nothing is whole");
        play(&mut segments, 0, 1);
        let bytes = segments.segment(0).expect("the first second is whole");
        let mut entry_points = EntryPoints::default();
        let roles: Vec<Role> = bytes.as_chunks::<PACKET>().0.iter().map(|packet| entry_points.next(packet)).collect();
        assert_eq!(roles[..3], [Role::Table, Role::Table, Role::EntryPoint]);
        assert!(segments.segment(1).is_none() && segments.segment(u64::MAX).is_none());
    }

    #[test]
    fn the_playlist_names_the_newest_segments() {
        let mut segments = Segments::default();
        play(&mut segments, 0, 4);
        let text = segments.playlist().unwrap();
        let first = segments.next - LISTED as u64;
        let last = segments.next - 1;
        for expected in [
            "#EXTM3U\n",
            "#EXT-X-VERSION:3\n",
            &format!("#EXT-X-MEDIA-SEQUENCE:{first}\n"),
            &format!("\n{first}.ts\n"),
            &format!("\n{last}.ts\n"),
            "#EXT-X-INDEPENDENT-SEGMENTS\n",
            "#EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        assert!(!text.contains("ENDLIST") && !text.contains("#EXT-X-DISCONTINUITY\n"));
        assert!(!text.contains(&format!("\n{}.ts\n", segments.next)));
        let target: f64 = text.split("TARGETDURATION:").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        for duration in text.split("#EXTINF:").skip(1) {
            let seconds: f64 = duration.split(',').next().unwrap().parse().unwrap();
            assert!((1.0..target + 0.5).contains(&seconds), "{seconds} of {target}");
        }
    }

    #[test]
    fn segments_that_have_left_the_playlist_stay_for_a_while() {
        let mut segments = Segments::default();
        play(&mut segments, 0, 8);
        let oldest = segments.next - (LISTED + UNLISTED) as u64;
        assert!(segments.segment(oldest).is_some() && segments.segment(oldest - 1).is_none());
    }

    #[test]
    fn a_gap_is_a_discontinuity_once() {
        let mut segments = Segments::default();
        play(&mut segments, 0, 1);
        segments.note_gap();
        play(&mut segments, 1, 3);
        let text = segments.playlist().unwrap();
        assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
        // It leaves the playlist, and is counted.
        play(&mut segments, 3, 12);
        let text = segments.playlist().unwrap();
        assert!(text.contains("#EXT-X-DISCONTINUITY-SEQUENCE:1\n"), "{text}");
    }
}
