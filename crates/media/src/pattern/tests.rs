//! What the stream is to those who read it: ours, and ffmpeg, where it is installed.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use mpeg2ts_reader::packet::Packet;
use proptest::prelude::*;

use super::picture::Colour;
use super::*;
use crate::clock::{MediaClock, Tick};
use crate::cutter::{Cut, Cutter};

const NOW: Duration = Duration::from_millis(1_795_435_200_123);

fn config(width: usize, height: usize, frames_per_s: u32, bits_per_s: u64) -> PatternConfig {
    PatternConfig { width, height, frames_per_s, keyframe_interval: frames_per_s, bits_per_s }
}

/// This many pictures, each sent when it is due.
fn frames(config: PatternConfig, count: u32) -> Vec<Vec<u8>> {
    let mut pattern = Pattern::new(config).unwrap();
    (0..count).map(|frame| pattern.next_frame(NOW + frame * pattern.interval())).collect()
}

/// What a program prints of what it is given; none where it is not installed.
fn piped(program: &str, arguments: &[&str], input: Vec<u8>) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: {program} is not installed");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || _ = stdin.write_all(&input));
    let mut printed = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut printed).unwrap();
    writing.join().unwrap();
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert!(child.wait().unwrap().success(), "{errors}");
    assert_eq!(errors, "", "{program} found something wrong");
    Some(printed)
}

/// The planes of each picture in it, as ffmpeg decodes them.
fn decoded(format: &str, stream: Vec<u8>, width: usize, height: usize) -> Option<Vec<Vec<u8>>> {
    let arguments = ["-v", "warning", "-f", format, "-i", "-", "-fps_mode", "passthrough", "-f", "rawvideo", "-"];
    let pixels = piped("ffmpeg", &arguments, stream)?;
    Some(pixels.chunks(width * height * 3 / 2).map(<[u8]>::to_vec).collect())
}

/// The planes of a picture, 4:2:0.
fn planes(picture: &Picture, width: usize, height: usize) -> Vec<u8> {
    let plane = |number: usize, scale: usize| {
        let (wide, high) = (width / scale, height / scale);
        let at = move |pixel: usize| {
            let (x, y) = (pixel % wide * scale / 16, pixel / wide * scale / 16);
            picture.colours[y * picture.columns + x][number]
        };
        (0..wide * high).map(at)
    };
    plane(0, 1).chain(plane(1, 2)).chain(plane(2, 2)).collect()
}

#[test]
fn players_see_the_counter_and_every_pixel_as_painted() {
    // The last is cropped: its height is no whole number of macroblocks.
    for config in [
        PatternConfig::default(),
        config(640, 384, 30, 2_000_000),
        PatternConfig { keyframe_interval: 1, ..config(400, 300, 10, 700_000) },
        config(1280, 720, 50, 20_000_000),
        config(1920, 1080, 25, 10_000_000),
    ] {
        let (width, height) = (config.width, config.height);
        let stream = frames(config, 40).concat();
        let Some(pictures) = decoded("mpegts", stream, width, height) else { return };
        assert_eq!(pictures.len(), 40);
        for (number, pixels) in pictures.iter().enumerate() {
            let sent = NOW + number as u32 * (Duration::from_secs(1) / config.frames_per_s);
            let counter = Counter::new(number as u64, sent);
            assert_eq!(read(&pixels[..width * height], width, height), Some(counter), "{config:?}");
            let picture = Picture::paint(width, height, counter, number as u64);
            assert!(*pixels == planes(&picture, width, height), "picture {number} of {config:?} is another");
        }
    }
}

/// Four pictures of the default stream, of which the first and the last need no other, without filler.
fn access_units() -> (Vec<u8>, Vec<Picture>) {
    let config = PatternConfig::default();
    let mut encoder = Encoder::new(config.width, config.height, config.frames_per_s, config.level().unwrap());
    let picture = |frame: u32| {
        let counter = Counter::new(frame.into(), NOW + frame * Duration::from_millis(40));
        Picture::paint(config.width, config.height, counter, frame.into())
    };
    let pictures: Vec<Picture> = (0..4).map(picture).collect();
    let units = pictures.iter().enumerate().map(|(number, picture)| encoder.encode(picture, number % 3 == 0));
    (units.collect::<Vec<_>>().concat(), pictures)
}

#[test]
fn the_golden_bytes_are_made() {
    let (units, pictures) = access_units();
    if let Some(decoded) = decoded("h264", units.clone(), 320, 192) {
        let painted: Vec<Vec<u8>> = pictures.iter().map(|picture| planes(picture, 320, 192)).collect();
        assert!(decoded == painted, "the golden bytes are no such pictures");
    }
    assert!(units == include_bytes!("golden.264"), "not the bytes that ffmpeg was seen to decode");
}

#[test]
fn our_cutter_finds_each_keyframe_with_its_tables_and_the_clock() {
    let config = PatternConfig { keyframe_interval: 20, ..config(320, 192, 25, 1_500_000) };
    let stream = frames(config, 100).concat();
    let (mut cutter, mut cuts) = (Cutter::default(), Vec::<Cut>::new());
    cutter.push(&stream, |cut| cuts.push(cut)).unwrap();
    cuts.extend(cutter.flush());
    assert_eq!(cuts.iter().filter(|cut| cut.is_entry_point).count(), 5);
    assert!(cuts[0].is_entry_point);
    assert!(cuts.iter().filter(|cut| cut.is_entry_point).all(|cut| cut.bytes[1..3] == [0x40, 0]), "tables first");
    assert_eq!((cutter.skipped(), cutter.entry_points().changes()), (0, 0));
    let mut clock = MediaClock::default();
    let ticks: Vec<Tick> = stream.as_chunks().0.iter().filter_map(|packet| clock.next(packet)).collect();
    assert_eq!(ticks.len(), 100);
    for (frame, tick) in ticks.into_iter().enumerate() {
        let Tick::At(time) = tick else { panic!("the clock jumped") };
        // Within a packet's time of when it is due; keyframes have their tables before them, as has the first.
        let due = frame as f64 / 25.0;
        assert!((time.as_secs_f64() - due).abs() < 3.5 * 1504.0 / 1.5e6, "{frame}: {time:?}");
    }
}

#[test]
fn ffprobe_reads_pictures_times_and_what_the_stream_is() {
    let stream = frames(config(320, 192, 50, 1_000_000), 101).concat();
    let show = "packet=pts,dts,flags:stream=codec_name,profile,level,width,height,avg_frame_rate,has_b_frames,pix_fmt";
    let arguments = ["-v", "warning", "-f", "mpegts", "-show_packets", "-show_streams", "-show_entries", show];
    let Some(printed) = piped("ffprobe", &[&arguments[..], &["-of", "compact=p=0", "-"]].concat(), stream) else {
        return;
    };
    let printed = String::from_utf8(printed).unwrap();
    let pictures: Vec<&str> = printed.lines().filter(|line| line.starts_with("pts=")).collect();
    assert_eq!(pictures.len(), 101);
    for (frame, line) in pictures.into_iter().enumerate() {
        let time = (frame + 1) * 1800;
        assert!(line.starts_with(&format!("pts={time}|dts={time}|flags=")), "{frame}: {line}");
        assert_eq!(line.contains("flags=K"), frame % 50 == 0, "{frame}: {line}");
    }
    for expected in [
        "codec_name=h264",
        "profile=Constrained Baseline",
        "level=21",
        "width=320|height=192",
        "has_b_frames=0",
        "avg_frame_rate=50/1",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

#[test]
fn clocks_and_counters_that_begin_anew_interrupt_nothing() {
    // The counter after half a day, the clock after 26 hours, and much later.
    for frame in [(1 << 20) - 2, (1 << 33) / 3600 - 1, 1 << 40] {
        let mut pattern = Pattern::new(PatternConfig::default()).unwrap();
        (pattern.frame, pattern.packets) = (frame, share(frame, 1_000_000, 25 * PACKET_BITS));
        let mut clock = MediaClock::default();
        for _ in 0..4 {
            let bytes = pattern.next_frame(NOW);
            assert!((26..=27).contains(&(bytes.len() / PACKET)), "{} packets of 40 kbit", bytes.len() / PACKET);
            for packet in bytes.as_chunks().0 {
                assert!(!matches!(clock.next(packet), Some(Tick::Jump(_))), "frame {}", pattern.frame);
            }
        }
        let elapsed = clock.elapsed().as_secs_f64();
        assert!((elapsed - 0.12).abs() < 0.004, "{elapsed} s after {frame}");
    }
}

fn configs() -> impl Strategy<Value = PatternConfig> {
    (160usize..=400, 96usize..=300, 10u32..=60, 0.0..1.0f64, 1u64..9_000_000).prop_map(
        |(width, height, frames_per_s, share, bits_per_s)| {
            let keyframe_interval = 1 + (share * f64::from(frames_per_s)) as u32;
            let config =
                PatternConfig { width: 2 * width, height: 2 * height, frames_per_s, keyframe_interval, bits_per_s };
            match Pattern::new(config) {
                Err(BadPattern::TooSlow(_, least)) => PatternConfig { bits_per_s: least, ..config },
                made => made.map(|_| config).unwrap(),
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_rate_is_what_was_asked_for_and_no_packet_misses(config in configs()) {
        let mut pattern = Pattern::new(config).unwrap();
        let mut counters = std::collections::HashMap::new();
        let mut total = 0;
        for frame in 1..=3 * u64::from(config.frames_per_s) {
            // Far from the last, so that many squares change.
            let bytes = pattern.next_frame(Duration::from_millis(frame * 0x9_3b57));
            total += bytes.len() as u64 * 8;
            // To a packet, after each picture.
            let due = share(frame, config.bits_per_s, config.frames_per_s.into());
            prop_assert!(total <= due && due - total <= PACKET_BITS, "{total} bits, {due} are due");
            let (packets, rest) = bytes.as_chunks::<PACKET>();
            prop_assert!(rest.is_empty());
            for packet in packets {
                let packet = Packet::try_new(packet).unwrap();
                let counter = packet.continuity_counter().count();
                if let Some(last) = counters.insert(packet.pid(), counter) {
                    prop_assert_eq!((last + 1) % 16, counter);
                }
            }
        }
        // The association, the map, and the video: no null packets, whose loss nobody would see.
        prop_assert_eq!(counters.len(), 3);
    }

    #[test]
    fn same_times_same_bytes(config in configs()) {
        prop_assert_eq!(frames(config, 3), frames(config, 3));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3))]

    #[test]
    fn any_colours_are_coded_without_loss(
        pictures in proptest::collection::vec(proptest::collection::vec(any::<Option<Colour>>(), 21 * 13), 12),
        far in any::<bool>(),
    ) {
        // Macroblocks without a colour stay as they were.
        let (mut colours, mut encoder) = (vec![[128; 3]; 21 * 13], Encoder::new(336, 208, 25, 30));
        let (mut stream, mut painted) = (Vec::new(), Vec::new());
        for (number, picture) in pictures.into_iter().enumerate() {
            for (colour, new) in colours.iter_mut().zip(picture) {
                *colour = new.map_or(*colour, |new| if far { new } else { new.map(|value| 120 + value % 16) });
            }
            let picture = Picture { columns: 21, colours: colours.clone() };
            stream.extend(encoder.encode(&picture, number % 5 == 0));
            painted.push(planes(&picture, 336, 208));
        }
        if let Some(decoded) = decoded("h264", stream, 336, 208) {
            prop_assert!(decoded == painted);
        }
    }
}
