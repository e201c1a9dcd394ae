//! The time that a stream tells of itself: the programme clock reference (ISO/IEC 13818-1, 2.4.2.2), 27 MHz
//! ticks modulo 2^33 · 300, some 26 hours, which comes at least ten times a second in a field before a
//! packet's payload (2.4.3.5). What a segment lasts and when a packet of a file is due are counted by it: when packets
//! come says little.

use std::time::Duration;

use mpeg2ts_reader::packet::{Packet, Pid};

use crate::alignment::PACKET;

/// Ticks a second.
const HERTZ: u64 = 27_000_000;

/// The clock begins anew after this many ticks.
const WRAP: u64 = (1 << 33) * 300;

/// The clock of an uninterrupted stream is never so far ahead of when it was read last: a hundred times what
/// is allowed.
const LONGEST_STEP: u64 = 10 * HERTZ;

/// After this many references of others, and none of the one that is read, another is read.
const PATIENCE: u32 = 5;

/// What a packet says of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// So long after the first reference.
    At(Duration),
    /// The clock has jumped: another stream begins here. Time goes on from where it was.
    Jump(Duration),
}

/// Reads the clock of a stream.
#[derive(Clone, Debug, Default)]
pub struct MediaClock {
    /// The stream that the clock comes in.
    pid: Option<Pid>,
    /// The reference that was read last, in ticks.
    last: u64,
    /// Ticks from the first reference to the last, without jumps.
    elapsed: u64,
    /// References of other programmes since the last.
    others: u32,
}

impl MediaClock {
    /// The next packet of the stream: what time it tells, if it does.
    pub fn next(&mut self, bytes: &[u8; PACKET]) -> Option<Tick> {
        let packet = Packet::try_new(bytes)?;
        let field = packet.adaptation_field()?;
        let reference = field.pcr().ok()?;
        // PCR = base · 300 + extension (equation 2-1).
        let ticks = reference.base() * 300 + u64::from(reference.extension());
        if self.pid.is_some_and(|pid| pid != packet.pid()) && self.others < PATIENCE {
            self.others += 1;
            return None;
        }
        let is_first = self.pid.is_none();
        let is_other = self.pid.replace(packet.pid()).is_some_and(|pid| pid != packet.pid());
        self.others = 0;
        let step = (ticks + WRAP - self.last % WRAP) % WRAP;
        self.last = ticks;
        if is_first {
            return Some(Tick::At(Duration::ZERO));
        }
        if is_other || step > LONGEST_STEP || field.discontinuity_indicator() {
            return Some(Tick::Jump(self.elapsed()));
        }
        self.elapsed += step;
        Some(Tick::At(self.elapsed()))
    }

    /// From the first reference to the last, without jumps.
    pub fn elapsed(&self) -> Duration {
        Duration::from_secs(self.elapsed / HERTZ) + Duration::from_nanos(self.elapsed % HERTZ * 1_000 / 27)
    }

    /// Whether the stream has given its time.
    pub fn is_running(&self) -> bool {
        self.pid.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CLIP: &[u8] = include_bytes!("../tests/clip.ts");

    /// A packet without payload that tells the time.
    fn reference(pid: u16, ticks: u64) -> [u8; PACKET] {
        let (base, extension) = (ticks % WRAP / 300, ticks % 300);
        let mut packet = [0xff; PACKET];
        packet[..6].copy_from_slice(&[0x47, (pid >> 8) as u8, pid as u8, 0x20, 183, 0x10]);
        let bytes = (base << 15 | 0x3f << 9 | extension).to_be_bytes();
        packet[6..12].copy_from_slice(&bytes[2..]);
        packet
    }

    fn at(seconds: f64) -> Option<Tick> {
        Some(Tick::At(Duration::from_secs_f64(seconds)))
    }

    #[test]
    fn a_clip_of_three_seconds_lasts_three_seconds() {
        let mut clock = MediaClock::default();
        for packet in CLIP.as_chunks().0 {
            assert!(!matches!(clock.next(packet), Some(Tick::Jump(_))));
        }
        // The last reference is that of the last picture.
        let elapsed = clock.elapsed().as_secs_f64();
        assert!((2.8..=3.0).contains(&elapsed), "{elapsed}");
    }

    #[test]
    fn time_goes_on_when_the_clock_begins_anew() {
        let mut clock = MediaClock::default();
        assert_eq!(clock.next(&reference(256, WRAP - HERTZ)), at(0.0));
        assert_eq!(clock.next(&reference(256, HERTZ)), at(2.0));
    }

    #[test]
    fn a_jump_is_reported_and_takes_no_time() {
        let mut clock = MediaClock::default();
        clock.next(&reference(256, 5 * HERTZ));
        clock.next(&reference(256, 6 * HERTZ));
        assert_eq!(clock.next(&reference(256, 0)), Some(Tick::Jump(Duration::from_secs(1))));
        assert_eq!(clock.next(&reference(256, HERTZ / 2)), at(1.5));
        assert_eq!(clock.next(&reference(256, 60 * HERTZ)), Some(Tick::Jump(Duration::from_millis(1500))));
    }

    #[test]
    fn one_programme_has_the_clock_until_it_falls_silent() {
        let mut clock = MediaClock::default();
        clock.next(&reference(256, 0));
        assert_eq!(clock.next(&reference(512, 9 * HERTZ)), None);
        assert_eq!(clock.next(&reference(256, HERTZ)), at(1.0));
        for _ in 0..PATIENCE {
            assert_eq!(clock.next(&reference(512, 9 * HERTZ)), None);
        }
        assert_eq!(clock.next(&reference(512, 9 * HERTZ)), Some(Tick::Jump(Duration::from_secs(1))));
    }

    proptest! {
        #[test]
        fn any_packet_is_read(packets in proptest::collection::vec(proptest::array::uniform32(any::<u8>()), 0..50)) {
            let mut clock = MediaClock::default();
            for head in packets {
                let mut packet = [0x47; PACKET];
                packet[1..33].copy_from_slice(&head);
                let _ = clock.next(&packet);
            }
            prop_assert!(clock.elapsed() < Duration::from_secs(500), "no packet is worth more than ten seconds");
        }
    }
}
