//! The number and the time in a picture: how they become squares, and how pixels are read.

use std::time::Duration;

/// Squares in a row.
pub(super) const COLUMNS: usize = 10;

/// Rows of squares, with the one below them that holds the bars.
pub(super) const ROWS: usize = 6;

/// Bits of the frame's number, and of the time.
const BITS: u32 = 20;

/// Bits of the checksum.
const CHECK_BITS: u32 = 10;

/// Squares of a counter.
const SQUARES: usize = (2 * BITS + CHECK_BITS) as usize;

/// Video's black and white.
pub(super) const BLACK_LUMA: u8 = 16;
pub(super) const WHITE_LUMA: u8 = 235;

/// A square is black up to the one and white from the other on; what is between has been damaged, or is no square.
const DARKEST_GREY: u32 = 80;
const LIGHTEST_GREY: u32 = 176;

/// What a picture says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The frame's number, modulo 2^20.
    pub frame: u32,
    /// When it was sent, in milliseconds of the clock that the pattern was given, modulo 2^20 (17 minutes and 28
    /// seconds).
    pub sent_ms: u32,
}

impl Counter {
    /// Of a frame that is sent now.
    pub fn new(frame: u64, now: Duration) -> Counter {
        Counter { frame: (frame % (1 << BITS)) as u32, sent_ms: (now.as_millis() % (1 << BITS)) as u32 }
    }

    /// How long ago it was sent, by the same clock; modulo 2^20 ms.
    pub fn age(self, now: Duration) -> Duration {
        let now_ms = Counter::new(0, now).sent_ms;
        Duration::from_millis(u64::from(now_ms.wrapping_sub(self.sent_ms) % (1 << BITS)))
    }

    fn number(self) -> u64 {
        u64::from(self.frame) << BITS | u64::from(self.sent_ms)
    }

    /// Which squares are white.
    pub(super) fn squares(self) -> [bool; SQUARES] {
        let bits = self.number() << CHECK_BITS | u64::from(checksum(self.number()));
        std::array::from_fn(|square| bits >> (SQUARES - 1 - square) & 1 == 1)
    }
}

/// CRC-10 (x^10 + x^9 + x^5 + x^4 + x + 1) over 40 bits, begun with ones, so that no black picture is right.
fn checksum(number: u64) -> u32 {
    const POLYNOMIAL: u32 = 0x233;
    const ONES: u32 = (1 << CHECK_BITS) - 1;
    (0..2 * BITS).rev().fold(ONES, |sum, bit| {
        let feeds_back = (sum >> (CHECK_BITS - 1)) ^ (number >> bit & 1) as u32 == 1;
        (sum << 1 & ONES) ^ if feeds_back { POLYNOMIAL } else { 0 }
    })
}

/// The counter in a picture's luma, `width` by `height` bytes row by row, at whatever size it is shown; none if a
/// square is neither black nor white, or the checksum is wrong.
pub fn read(luma: &[u8], width: usize, height: usize) -> Option<Counter> {
    if width < COLUMNS || height < ROWS || width.checked_mul(height)? != luma.len() {
        return None;
    }
    let mut bits = 0;
    for square in 0..SQUARES {
        let columns = middle(square % COLUMNS, COLUMNS, width);
        let (mut sum, mut count) = (0, 0);
        for row in middle(square / COLUMNS, ROWS, height) {
            let pixels = &luma[row * width..][columns.clone()];
            sum += pixels.iter().map(|&pixel| u64::from(pixel)).sum::<u64>();
            count += pixels.len() as u64;
        }
        let mean = (sum / count) as u32;
        let is_white = mean >= LIGHTEST_GREY;
        if !is_white && mean > DARKEST_GREY {
            return None;
        }
        bits = bits << 1 | u64::from(is_white);
    }
    let (number, sum) = (bits >> CHECK_BITS, bits % (1 << CHECK_BITS));
    let counter = Counter { frame: (number >> BITS) as u32, sent_ms: (number % (1 << BITS)) as u32 };
    (u64::from(checksum(number)) == sum).then_some(counter)
}

/// The quarter in the middle of one of this many parts of a side.
fn middle(part: usize, parts: usize, pixels: usize) -> std::ops::Range<usize> {
    let first = (8 * part + 3) * pixels / (8 * parts);
    let end = (8 * part + 5) * pixels / (8 * parts);
    first..end.max(first + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::picture::Picture;

    /// The luma of a picture of that size, shown at another.
    fn shown(picture: &Picture, size: (usize, usize), shown: (usize, usize)) -> Vec<u8> {
        let pixel = |number: usize| {
            let (x, y) = (number % shown.0 * size.0 / shown.0, number / shown.0 * size.1 / shown.1);
            picture.colours[y / 16 * picture.columns + x / 16][0]
        };
        (0..shown.0 * shown.1).map(pixel).collect()
    }

    fn counters() -> impl Strategy<Value = Counter> {
        (0u32..1 << BITS, 0u32..1 << BITS).prop_map(|(frame, sent_ms)| Counter { frame, sent_ms })
    }

    #[test]
    fn the_checksum_is_crc_10_begun_with_ones() {
        // The remainder of the number times x^10; beginning with ones is turning over its first ten bits.
        let by_division = |number: u64| {
            let mut rest = u128::from(number ^ 0x3ff << 30) << 10;
            for bit in (10..50).rev() {
                if rest >> bit & 1 == 1 {
                    rest ^= 0x633 << (bit - 10);
                }
            }
            rest as u32
        };
        for number in [0, 1, 0x00_0001_0000, 0x12_3456_789a, (1 << 40) - 1] {
            assert_eq!(checksum(number), by_division(number), "{number:#x}");
        }
    }

    #[test]
    fn a_picture_of_one_colour_has_no_counter() {
        for luma in 0..=255 {
            assert_eq!(read(&[luma; 320 * 192], 320, 192), None, "{luma}");
        }
    }

    #[test]
    fn an_age_is_counted_beyond_the_clock_s_end() {
        let end = Duration::from_millis(1 << BITS);
        let counter = Counter::new(0, end - Duration::from_millis(100));
        assert_eq!(counter.age(7 * end + Duration::from_millis(250)), Duration::from_millis(350));
    }

    proptest! {
        #[test]
        fn a_counter_is_read_at_any_size_it_is_shown(
            counter in counters(),
            size in (160usize..=960, 96usize..=544),
            zoom in (50usize..=150, 50usize..=150),
        ) {
            let (width, height) = (2 * size.0, 2 * size.1);
            let picture = Picture::paint(width, height, counter, 3);
            let (wide, high) = (width * zoom.0 / 100, height * zoom.1 / 100);
            prop_assert_eq!(read(&shown(&picture, (width, height), (wide, high)), wide, high), Some(counter));
        }

        #[test]
        fn a_square_that_is_wrong_or_grey_is_found_out(counter in counters(), square in 0usize..50, luma in any::<u8>()) {
            let mut luma_plane = shown(&Picture::paint(320, 192, counter, 0), (320, 192), (320, 192));
            let was = counter.squares()[square];
            prop_assume!(if was { luma < LIGHTEST_GREY as u8 } else { luma > DARKEST_GREY as u8 });
            for y in 0..32 {
                let begin = (square / 10 * 32 + y) * 320 + square % 10 * 32;
                luma_plane[begin..begin + 32].fill(luma);
            }
            prop_assert_eq!(read(&luma_plane, 320, 192), None);
        }

        #[test]
        fn any_bytes_are_read(luma in proptest::collection::vec(any::<u8>(), 0..300), width in 0usize..40, height in 0usize..40) {
            let _ = read(&luma, width, height);
            let _ = read(&luma, width, luma.len().checked_div(width).unwrap_or(usize::MAX));
        }
    }
}
