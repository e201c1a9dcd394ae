//! The blocks that a receiver has from before, as it tells the sender: ranges in the text of the report
//! that accepts an offer.
//!
//! ```text
//! 0+873 900+12       from block 0 on 873 blocks, from block 900 on 12
//! ```
//!
//! A text holds the longest ranges that have room. Whatever it leaves out comes again, and is
//! acknowledged as a duplicate: it costs, and does no harm.

use std::ops::Range;

use super::extents::Extents;
use crate::overlay::message::{MAX_BLOCK_RANGES, Offer};

/// What is reported of the parts that are there over a stream, in bytes, so that it fits a message there.
pub const MOST_BLOCK_RANGES: usize = 400;

/// The blocks of `offer` of which all bytes are in `extents`, in ranges.
pub fn whole_blocks(offer: &Offer, extents: &Extents) -> Vec<Range<u64>> {
    let (block, blocks) = (u64::from(offer.block.max(1)), offer.blocks());
    let whole = extents.iter().map(|bytes| {
        // The last block may be shorter.
        let end = if bytes.end >= offer.length { blocks } else { bytes.end / block };
        bytes.start.div_ceil(block)..end
    });
    whole.filter(|blocks| !blocks.is_empty()).collect()
}

/// Reports that these ranges of blocks have come, which are in order, in at most `most` bytes.
pub fn write(ranges: &[Range<u64>], most: usize) -> String {
    let most = most.min(MAX_BLOCK_RANGES);
    let text = |range: &Range<u64>| format!("{}+{}", range.start, range.end - range.start);
    let mut longest: Vec<&Range<u64>> = ranges.iter().collect();
    longest.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
    let mut used = 0;
    longest.retain(|range| {
        used += text(range).len() + 1;
        used <= most
    });
    longest.sort_by_key(|range| range.start);
    longest.into_iter().map(text).collect::<Vec<_>>().join(" ")
}

/// Reads which of `blocks` blocks a receiver says to have. Where it makes no sense it ends: ranges
/// come in order, so that together they are never more than the file.
pub fn read(text: &str, blocks: u64) -> Vec<Range<u32>> {
    let mut ranges = Vec::new();
    let mut last = 0;
    for range in text.split(' ') {
        let Some((start, length)) = range.split_once('+') else { break };
        let (Ok(start), Ok(length)) = (start.parse::<u64>(), length.parse::<u64>()) else { break };
        let Some(end) = start.checked_add(length).filter(|&end| end <= blocks) else { break };
        let (Ok(from), Ok(to)) = (u32::try_from(start), u32::try_from(end)) else { break };
        if start < last || length == 0 {
            break;
        }
        last = end;
        ranges.push(from..to);
    }
    ranges
}

/// The bytes of the file of `offer` that are in none of the blocks that `text` reports, in ranges.
pub fn missing(offer: &Offer, text: &str) -> Vec<Range<u64>> {
    let (block, mut from, mut missing) = (u64::from(offer.block), 0, Vec::new());
    for there in read(text, offer.blocks()) {
        missing.push(from..u64::from(there.start) * block);
        from = (u64::from(there.end) * block).min(offer.length);
    }
    missing.push(from..offer.length);
    missing.retain(|range| !range.is_empty());
    missing
}

/// Bytes of all of them.
pub fn bytes(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::overlay::message::FileName;

    proptest! {
        #[test]
        fn what_is_written_is_true_and_all_of_it_where_there_is_room(
            spans in prop::collection::vec((1u64..2000, 1u64..2000), 0..200),
        ) {
            let mut last = 0;
            let ranges: Vec<Range<u64>> = spans.iter().map(|(gap, length)| {
                let start = last + gap;
                last = start + length;
                start..last
            }).collect();
            let text = write(&ranges, MAX_BLOCK_RANGES);
            prop_assert!(text.len() <= MAX_BLOCK_RANGES);
            let read_back = read(&text, last);
            let is_one = |range: &Range<u32>| ranges.contains(&(u64::from(range.start)..u64::from(range.end)));
            prop_assert!(read_back.iter().all(is_one));
            // The next one has 6 and 4 digits and two signs at most.
            prop_assert!(read_back.len() == ranges.len() || text.len() + 13 > MAX_BLOCK_RANGES);
            let length = |range: &Range<u32>| u64::from(range.end - range.start);
            let shortest = read_back.iter().map(length).min().unwrap_or(0);
            let is_read = |range: &Range<u64>| read_back.iter().any(|read| u64::from(read.start) == range.start);
            let left_out = ranges.iter().filter(|range| !is_read(range));
            prop_assert!(left_out.into_iter().all(|range| range.end - range.start <= shortest));
        }

        #[test]
        fn whatever_a_receiver_reports_is_read_as_blocks_of_the_file_each_once(
            text in "[0-9+ ]{0,60}|.{0,40}",
            blocks in 0u64..2000,
        ) {
            let read_back = read(&text, blocks);
            prop_assert!(read_back.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert!(read_back.iter().all(|range| !range.is_empty() && u64::from(range.end) <= blocks));
        }

        #[test]
        fn what_is_missing_is_what_is_not_reported(
            length in 0u64..3000,
            block in 1u16..50,
            kept in prop::collection::vec((0u64..3000, 1u64..600), 0..6),
            room in 0usize..60,
        ) {
            let offer = Offer { name: FileName::sanitised("a"), length, block, hash: [0; 32] };
            let kept = kept.into_iter().map(|(start, more)| start.min(length)..(start + more).min(length));
            let extents: Extents = kept.collect();
            let wanted = missing(&offer, &write(&whole_blocks(&offer, &extents), room));
            prop_assert!(wanted.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", wanted);
            for byte in 0..length {
                let is_wanted = wanted.iter().any(|range| range.contains(&byte));
                prop_assert!(is_wanted || extents.holds(&(byte..byte + 1)), "{} of {:?}", byte, wanted);
            }
            prop_assert!(bytes(&wanted) <= length);
            if extents.is_empty() {
                prop_assert_eq!(bytes(&wanted), length);
            }
        }
    }

    #[test]
    fn no_block_is_an_empty_text() {
        assert_eq!((write(&[], 90), read("", 9)), (String::new(), Vec::new()));
        assert_eq!(write(&[0..65, 70..71], 90), "0+65 70+1");
        assert_eq!(write(&[0..65, 70..71], 8), "0+65");
    }

    #[test]
    fn ranges_that_lie_are_read_up_to_the_lie() {
        for lie in ["3+1", "9+1", "0+5", "4+0", "18446744073709551615+9", "x", "4", "-1+2"] {
            let blocks: Vec<u32> = read(&format!("0+4 {lie} 5+1"), 9).into_iter().flatten().collect();
            assert_eq!(blocks, [0, 1, 2, 3], "{lie}");
        }
    }
}
