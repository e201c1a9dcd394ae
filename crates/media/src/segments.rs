//! The stream as HTTP Live Streaming has it (RFC 8216): segments that begin at entry points, and the
//! playlist that names the newest of them.
//!
//! A segment is whole when the next one begins: players are at least one behind. Segments are of
//! MPEG transport stream, each with its tables first (RFC 8216, 3.2), and at least a second long: a
//! keyframe more often makes no shorter ones, since each costs a player a request. How long they are and when
//! they are from, the stream's own clock says, since a peer that begins gets several seconds at once: of a clock that did
//! not jump,
//!
//! ```text
//! date of a segment = least over all packets of (date of arrival - media time) + media time of its beginning
//! ```
//!
//! so that dates advance as the media does (RFC 8216, 4.3.2.6), and what came without delay has its date of arrival.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use m3u8_rs::{MediaPlaylist, MediaSegment};

use crate::alignment::PACKET;
use crate::clock::{MediaClock, Tick};
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
    /// By the stream's clock.
    begun_at: Duration,
    /// When that was; none while the clock has not jumped since, so that it may yet be known better.
    begun: Option<SystemTime>,
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
    /// Nothing comes any more.
    has_ended: bool,
    entry_points: EntryPoints,
    clock: MediaClock,
    /// When the stream's clock was at zero, as far as is known; none since it has jumped.
    zero: Option<SystemTime>,
}

#[derive(Debug)]
struct Current {
    /// By the stream's clock.
    begun_at: Duration,
    bytes: Vec<u8>,
    is_discontinuous: bool,
}

impl Segments {
    /// Something of the stream is missing before what comes next.
    pub fn note_gap(&mut self) {
        self.is_broken = true;
    }

    /// The next piece of the stream, which comes at `date`: whole packets of a transport stream.
    pub fn push(&mut self, date: SystemTime, bytes: &[u8]) {
        for packet in bytes.as_chunks::<PACKET>().0 {
            let changes = self.entry_points.changes();
            let role = self.entry_points.next(packet);
            let has_jumped = matches!(self.clock.next(packet), Some(Tick::Jump(_)));
            if has_jumped || self.entry_points.changes() > changes {
                // Another stream begins: what came belongs to the last one.
                self.complete();
                self.is_broken = true;
                self.settle_dates();
            }
            let zero = date.checked_sub(self.clock.elapsed()).unwrap_or(date);
            self.zero = Some(self.zero.map_or(zero, |before| before.min(zero)));
            if role == Role::EntryPoint && self.is_long_enough() {
                self.begin();
            }
            if let Some(current) = &mut self.current {
                current.bytes.extend_from_slice(packet);
                if current.bytes.len() >= LONGEST {
                    self.begin();
                }
            }
        }
    }

    /// Nothing comes any more: the last segment is whole.
    pub fn end(&mut self) {
        self.complete();
        self.has_ended = true;
    }

    fn is_long_enough(&self) -> bool {
        self.current.as_ref().is_none_or(|current| self.clock.elapsed().saturating_sub(current.begun_at) >= SHORTEST)
    }

    /// The segment that was collected is whole, and another begins.
    fn begin(&mut self) {
        self.complete();
        let Some(bytes) = self.entry_points.tables() else { return };
        let is_discontinuous = std::mem::take(&mut self.is_broken);
        self.current = Some(Current { begun_at: self.clock.elapsed(), bytes, is_discontinuous });
    }

    /// The segment that was collected is whole.
    fn complete(&mut self) {
        if let Some(Current { begun_at, bytes, is_discontinuous }) = self.current.take() {
            let duration = self.clock.elapsed().saturating_sub(begun_at);
            let (number, bytes) = (self.next, bytes.into());
            self.whole.push_back(Segment { number, begun_at, begun: None, duration, bytes, is_discontinuous });
            self.next += 1;
            while self.whole.len() > LISTED + UNLISTED {
                self.whole.pop_front();
            }
            if let Some(unlisted) = self.whole.len().checked_sub(LISTED + 1) {
                self.left_behind += u64::from(self.whole[unlisted].is_discontinuous);
            }
        }
    }

    /// The clock has jumped: dates before it are as well known as they will be.
    fn settle_dates(&mut self) {
        let zero = self.zero.take();
        for segment in &mut self.whole {
            segment.begun = segment.begun.or_else(|| Some(zero? + segment.begun_at));
        }
    }

    /// Segment `number`, if it is here.
    pub fn segment(&self, number: u64) -> Option<Arc<[u8]>> {
        let place = number.checked_sub(self.whole.front()?.number)?;
        self.whole.get(usize::try_from(place).ok()?).map(|segment| Arc::clone(&segment.bytes))
    }

    /// The playlist, in which segment 7 is `{folder}7.ts`; none before the first segment is whole.
    pub fn playlist(&self, folder: &str) -> Option<String> {
        let first = self.whole.len().saturating_sub(LISTED);
        let listed = || self.whole.range(first..);
        let longest = listed().map(|segment| segment.duration).max()?;
        let segments = listed().map(|segment| MediaSegment {
            uri: format!("{folder}{}.ts", segment.number),
            duration: segment.duration.as_secs_f32(),
            discontinuity: segment.is_discontinuous,
            program_date_time: segment
                .begun
                .or_else(|| Some(self.zero? + segment.begun_at))
                .map(|begun| chrono::DateTime::<chrono::Utc>::from(begun).fixed_offset()),
            ..MediaSegment::empty()
        });
        let playlist = MediaPlaylist {
            version: Some(3),
            // The nearest whole second, below which no segment may be rounded (RFC 8216, 4.3.3.1).
            target_duration: longest.as_secs_f64().round().max(1.0) as u64,
            media_sequence: self.whole.get(first)?.number,
            discontinuity_sequence: self.left_behind,
            end_list: self.has_ended,
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

    use crate::repetition::Repetition;

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    /// The clip again and again, three seconds each.
    #[derive(Default)]
    struct Film {
        repetition: Repetition,
        played: u32,
    }

    impl Film {
        fn play(&mut self, segments: &mut Segments, times: u32) {
            let packets = CLIP.as_chunks::<PACKET>().0;
            for _ in 0..times {
                for (number, packet) in packets.iter().enumerate() {
                    let now = 3.0 * (f64::from(self.played) + number as f64 / packets.len() as f64);
                    let mut packet = *packet;
                    self.repetition.next(&mut packet);
                    segments.push(SystemTime::UNIX_EPOCH + Duration::from_secs_f64(now), &packet);
                }
                self.repetition.rewind();
                self.played += 1;
            }
        }
    }

    fn play(segments: &mut Segments, times: u32) {
        Film::default().play(segments, times);
    }

    #[test]
    fn a_segment_begins_with_the_tables_and_a_keyframe() {
        let mut segments = Segments::default();
        assert_eq!(segments.playlist(""), None, "nothing is whole");
        play(&mut segments, 1);
        let bytes = segments.segment(0).expect("the first second is whole");
        let mut entry_points = EntryPoints::default();
        let roles: Vec<Role> = bytes.as_chunks::<PACKET>().0.iter().map(|packet| entry_points.next(packet)).collect();
        assert_eq!(roles[..3], [Role::Table, Role::Table, Role::EntryPoint]);
        assert!(segments.segment(2).is_none() && segments.segment(u64::MAX).is_none());
    }

    #[test]
    fn the_playlist_names_the_newest_segments() {
        let mut segments = Segments::default();
        play(&mut segments, 4);
        let text = segments.playlist("").unwrap();
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
    fn what_comes_at_once_has_dates_that_advance_as_the_media_does() {
        let mut segments = Segments::default();
        let arrival = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let at_once = |segments: &mut Segments, arrival| {
            CLIP.as_chunks::<PACKET>().0.iter().for_each(|packet| segments.push(arrival, packet));
        };
        at_once(&mut segments, arrival);
        // Another stream, whose clock is another one.
        at_once(&mut segments, arrival + Duration::from_secs(500));
        segments.end();
        let dates: Vec<f64> = segments
            .playlist("")
            .unwrap()
            .lines()
            .filter_map(|line| line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:"))
            .map(|date| chrono::DateTime::parse_from_rfc3339(date).unwrap().timestamp_millis() as f64 / 1000.0)
            .collect();
        assert_eq!(dates.len(), 6, "{dates:?}");
        // The clip lasts three seconds, and its last packet came at once.
        for (begins, ends) in [(&dates[..3], 1000.0), (&dates[3..], 1500.0)] {
            for (number, date) in begins.iter().enumerate() {
                let expected = ends - 3.0 + number as f64;
                assert!((date - expected).abs() < 0.2, "{dates:?}");
            }
        }
    }

    #[test]
    fn segments_that_have_left_the_playlist_stay_for_a_while() {
        let mut segments = Segments::default();
        play(&mut segments, 8);
        let oldest = segments.next - (LISTED + UNLISTED) as u64;
        assert!(segments.segment(oldest).is_some() && segments.segment(oldest - 1).is_none());
    }

    #[test]
    fn a_gap_is_a_discontinuity_once() {
        let (mut film, mut segments) = (Film::default(), Segments::default());
        film.play(&mut segments, 1);
        segments.note_gap();
        film.play(&mut segments, 2);
        let text = segments.playlist("").unwrap();
        assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
        // It leaves the playlist, and is counted.
        film.play(&mut segments, 9);
        let text = segments.playlist("").unwrap();
        assert!(text.contains("#EXT-X-DISCONTINUITY-SEQUENCE:1\n"), "{text}");
    }

    #[test]
    fn another_stream_is_a_discontinuity_and_begins_a_segment() {
        let mut segments = Segments::default();
        play(&mut segments, 1);
        let before = segments.next;
        // Its clock begins where that of the first began.
        play(&mut segments, 1);
        let text = segments.playlist("").unwrap();
        assert_eq!(text.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{text}");
        let joint = segments.segment(before).expect("the end of the first");
        assert!(CLIP.ends_with(&joint[joint.len() - 4 * PACKET..][..PACKET]) || joint.len() > 2 * PACKET);
    }

    #[test]
    fn what_comes_at_once_is_cut_by_its_own_clock() {
        let mut segments = Segments::default();
        for packet in CLIP.as_chunks::<PACKET>().0 {
            segments.push(SystemTime::UNIX_EPOCH, packet);
        }
        segments.end();
        let text = segments.playlist("segments/").unwrap();
        assert_eq!(text.matches("#EXTINF:").count(), 3, "{text}");
        assert!(text.contains("\nsegments/2.ts\n") && text.ends_with("#EXT-X-ENDLIST\n"), "{text}");
        let bytes: usize = (0..3).map(|number| segments.segment(number).unwrap().len()).sum();
        // The tables of the first are not in what it was cut from.
        assert!(bytes >= CLIP.len() - 3 * PACKET, "{bytes} of {}: nothing is lost", CLIP.len());
    }
}
