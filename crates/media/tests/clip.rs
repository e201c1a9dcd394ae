//! A clip of three seconds of H.264 and audio, a keyframe a second, as ffmpeg muxes it: where players can
//! begin, and that no byte is lost.

use anabranch_media::alignment::PACKET;
use anabranch_media::cutter::{Cut, Cutter, MOST_PACKETS, NARROW_PACKETS};
use mpeg2ts_reader::packet::Packet;
use proptest::prelude::*;

const CLIP: &[u8] = include_bytes!("clip.ts");

/// Where ffprobe says that keyframes begin: the packet in which each picture starts.
const KEYFRAMES: [usize; 3] = [564, 11_656, 22_560];

fn cut(pieces: impl Iterator<Item = usize>) -> Vec<Cut> {
    let (mut cutter, mut rest, mut cuts) = (Cutter::default(), CLIP, Vec::new());
    for piece in pieces.chain([usize::MAX]) {
        let (head, tail) = rest.split_at(piece.min(rest.len()));
        cutter.push(head, |cut| cuts.push(cut)).unwrap();
        rest = tail;
    }
    cuts.extend(cutter.flush());
    cuts
}

#[test]
fn a_cut_begins_at_each_keyframe_with_the_tables_before_it() {
    let mut at = 0;
    let mut entries = Vec::new();
    for cut in cut(std::iter::empty()) {
        if cut.is_entry_point {
            entries.push((at, cut.bytes.clone()));
        }
        at += cut.bytes.len();
    }
    assert_eq!(entries.len(), KEYFRAMES.len());
    for ((at, bytes), keyframe) in entries.into_iter().zip(KEYFRAMES) {
        assert!(at <= keyframe && keyframe < at + bytes.len(), "{at}: {keyframe}");
        let before = bytes[..keyframe - at].chunks_exact(PACKET);
        for packet in before {
            let pid = u16::from(Packet::try_new(packet).unwrap().pid());
            assert!([0, 0x1000].contains(&pid), "{pid}: only tables come before the picture");
        }
    }
}

#[test]
fn cuts_are_full_but_before_tables_and_entry_points() {
    let cuts = cut(std::iter::empty());
    let short = cuts.iter().filter(|cut| cut.bytes.len() < MOST_PACKETS * PACKET).count();
    let tables = CLIP.chunks_exact(PACKET).filter(|packet| u16::from(Packet::try_new(packet).unwrap().pid()) == 0);
    assert!(short <= tables.count() + KEYFRAMES.len() + 1, "{short}");
    assert!(cuts.len() <= CLIP.len() / (MOST_PACKETS * PACKET) + short + 1);
}

#[test]
fn narrow_networks_get_the_same_bytes_in_shorter_packets() {
    let (mut cutter, mut cuts) = (Cutter::of(NARROW_PACKETS), Vec::new());
    cutter.push(CLIP, |cut| cuts.push(cut)).unwrap();
    cuts.extend(cutter.flush());
    assert!(cuts.iter().all(|cut| cut.bytes.len() <= NARROW_PACKETS * PACKET));
    assert!(cuts.iter().filter(|cut| cut.bytes.len() == NARROW_PACKETS * PACKET).count() > cuts.len() / 2);
    assert_eq!(cuts.iter().filter(|cut| cut.is_entry_point).count(), KEYFRAMES.len());
    assert_eq!(cuts.iter().flat_map(|cut| cut.bytes.iter().copied()).collect::<Vec<_>>(), CLIP);
}

proptest! {
    #[test]
    fn the_bytes_that_leave_are_those_that_came(pieces in proptest::collection::vec(1usize..5000, 0..20)) {
        let cuts = cut(pieces.into_iter());
        let whole: Vec<u8> = cuts.iter().flat_map(|cut| cut.bytes.iter().copied()).collect();
        prop_assert_eq!(&whole[..], CLIP);
        prop_assert!(cuts.iter().all(|cut| cut.bytes.len() % PACKET == 0 && cut.bytes.len() <= MOST_PACKETS * PACKET));
        prop_assert_eq!(cuts.iter().filter(|cut| cut.is_entry_point).count(), KEYFRAMES.len());
    }

    #[test]
    fn damage_is_survived(places in proptest::collection::vec((0usize..37_000, any::<u8>()), 0..200)) {
        let mut clip = CLIP.to_vec();
        for (place, byte) in places {
            clip[place] = byte;
        }
        let mut cutter = Cutter::default();
        let mut bytes = 0;
        let _ = cutter.push(&clip, |cut| bytes += cut.bytes.len());
        prop_assert!(bytes <= clip.len());
    }
}
