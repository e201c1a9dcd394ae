//! What must hold for any transport stream: a source's at a server, and what a viewer plays of a stream whose source
//! may be anybody's. Fuzz targets and an ordinary test include this file, as they do `checks.rs`.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anabranch_media::alignment::PACKET;
use anabranch_media::clock::{MediaClock, Tick};
use anabranch_media::cutter::{Cut, Cutter, MOST_PACKETS};
use anabranch_media::playout::Playout;
use anabranch_media::repetition::Repetition;
use anabranch_media::segments::Segments;

/// Bytes that a playout keeps here.
const KEPT: usize = 20 * PACKET;

/// The input is read in two parts, cut, and played in all ways. Whatever it is, its packets leave as they came, in
/// order; time does not go back; memory is bounded; and what a playlist names is there.
pub fn transport_stream(input: &[u8]) {
    let Some((&split, stream)) = input.split_first() else { return };
    let cuts = cut(stream, usize::from(split) * stream.len() / 256);
    clock(&cuts);
    play(&cuts);
    segments(&cuts);
    repeat(&cuts);
}

/// The packets that are found in `stream`, which is read in two parts.
fn cut(stream: &[u8], split: usize) -> Vec<Cut> {
    let (mut cutter, mut cuts) = (Cutter::default(), Vec::new());
    let (first, second) = stream.split_at(split);
    let is_one = cutter.push(first, |cut| cuts.push(cut)).and_then(|()| cutter.push(second, |cut| cuts.push(cut)));
    cuts.extend(cutter.flush());
    assert_eq!(cutter.flush(), None);
    let mut from = 0;
    for cut in &cuts {
        let (packets, rest) = cut.bytes.as_chunks::<PACKET>();
        assert!(rest.is_empty() && (1..=MOST_PACKETS).contains(&packets.len()));
        for packet in packets {
            let behind = &stream[from..];
            let at = behind.windows(PACKET).position(|window| window == packet).expect("it came, behind the last one");
            from += at + PACKET;
        }
    }
    let taken: usize = cuts.iter().map(|cut| cut.bytes.len()).sum();
    assert!(taken as u64 + cutter.skipped() <= stream.len() as u64);
    if is_one.is_err() {
        assert!(cutter.skipped() > 0, "what is no transport stream has bytes that belong to no packet");
    }
    cuts
}

fn packets(cuts: &[Cut]) -> impl Iterator<Item = &[u8; PACKET]> {
    cuts.iter().flat_map(|cut| cut.bytes.as_chunks::<PACKET>().0)
}

fn clock(cuts: &[Cut]) {
    let (mut clock, mut last) = (MediaClock::default(), Duration::ZERO);
    for packet in packets(cuts) {
        if let Some(Tick::At(now) | Tick::Jump(now)) = clock.next(packet) {
            assert!(now >= last && clock.elapsed() == now && clock.is_running());
            last = now;
        }
    }
}

/// A player begins at each piece, and each gets what is there or is told that it fell behind.
fn play(cuts: &[Cut]) {
    let ms = |number: usize| Duration::from_millis(10 * number as u64);
    let mut playout = Playout::new(ms(5), ms(20), KEPT);
    let mut player = None;
    for (number, cut) in cuts.iter().enumerate() {
        let now = ms(number);
        playout.push(now, Arc::clone(&cut.bytes));
        if let Some((tables, mut cursor)) = playout.begin(now) {
            assert_eq!(tables.len() % PACKET, 0);
            assert!(playout.buffered(now).is_some_and(|buffered| buffered <= ms(20)));
            let mut bytes = 0;
            while let Some(piece) = playout.next(&mut cursor).expect("it has just begun") {
                bytes += piece.len();
            }
            assert!((1..=KEPT.max(cut.bytes.len())).contains(&bytes));
            player.get_or_insert(cursor);
        }
        if let Some(cursor) = &mut player
            && playout.next(cursor).is_err()
        {
            player = None;
        }
    }
}

/// What a playlist names is there, and begins with tables.
fn segments(cuts: &[Cut]) {
    let (mut segments, mut pushed) = (Segments::default(), 0);
    for (number, cut) in cuts.iter().enumerate() {
        if number % 16 == 15 {
            segments.note_gap();
        }
        segments.push(SystemTime::UNIX_EPOCH + Duration::from_millis(number as u64), &cut.bytes);
        pushed += cut.bytes.len();
    }
    segments.end();
    let Some(playlist) = segments.playlist("segment/") else { return };
    let mut named = 0;
    for line in playlist.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let number = line.strip_prefix("segment/").and_then(|name| name.strip_suffix(".ts")).expect("its name");
        let segment = segments.segment(number.parse().expect("its number")).expect("what is named is there");
        // Two tables, which may come from another place of the stream, and what was pushed.
        assert!(!segment.is_empty() && segment.len() % PACKET == 0 && segment.len() <= pushed + 2 * PACKET);
        assert!(segment.chunks(PACKET).all(|packet| packet[0] == 0x47));
        named += 1;
    }
    assert!(named > 0, "{playlist}");
    assert!(playlist.starts_with("#EXTM3U") && playlist.contains("#EXT-X-ENDLIST"), "{playlist}");
}

/// A file that is played twice: the second time goes on where the first one ended.
fn repeat(cuts: &[Cut]) {
    let (mut repetition, mut clock) = (Repetition::default(), MediaClock::default());
    for _ in 0..2 {
        for packet in packets(cuts) {
            let mut packet = *packet;
            repetition.next(&mut packet);
            assert_eq!(packet[0], 0x47);
            clock.next(&packet);
        }
        repetition.rewind();
    }
}
