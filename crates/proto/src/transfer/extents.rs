//! Which bytes of a file are there: disjoint ranges, of which neighbours are joined.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// The end of each by its start.
    ends: BTreeMap<u64, u64>,
    /// Bytes in all.
    bytes: u64,
}

impl Extents {
    /// These bytes are there too.
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        // From the right to the left: each that overlaps or touches becomes part of it.
        while let Some((&other, &its_end)) = self.ends.range(..=end).next_back()
            && its_end >= start
        {
            self.ends.remove(&other);
            self.bytes -= its_end - other;
            (start, end) = (start.min(other), end.max(its_end));
        }
        self.ends.insert(start, end);
        self.bytes += end - start;
    }

    /// Whether all bytes of `range` are there; of an empty one they are.
    pub fn holds(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.ends.range(..=range.start).next_back().is_some_and(|(_, &end)| range.end <= end)
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// How many ranges there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many bytes are there.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The `most` longest of them, of equal ones the first.
    pub fn longest(&self, most: usize) -> Extents {
        let mut ranges: Vec<Range<u64>> = self.iter().collect();
        // The sort is stable: equal ones stay in their order.
        ranges.sort_by_key(|range| std::cmp::Reverse(range.end - range.start));
        ranges.truncate(most);
        ranges.into_iter().collect()
    }
}

impl FromIterator<Range<u64>> for Extents {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Extents {
        let mut extents = Extents::default();
        ranges.into_iter().for_each(|range| extents.insert(range));
        extents
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn they_hold_what_was_inserted_and_nothing_else_and_no_two_of_them_touch(
            ranges in prop::collection::vec((0u64..60, 0u64..20), 0..20),
            asked in (0u64..80, 0u64..20),
        ) {
            let mut there = [false; 80];
            let mut extents = Extents::default();
            for (start, length) in ranges {
                extents.insert(start..start + length);
                there[start as usize..(start + length) as usize].fill(true);
            }
            let held: Vec<Range<u64>> = extents.iter().collect();
            prop_assert!(held.windows(2).all(|pair| pair[0].end < pair[1].start), "{held:?}");
            let is_held = |byte: u64| held.iter().any(|range| range.contains(&byte));
            prop_assert!((0..80).all(|byte| is_held(byte) == there[byte as usize]), "{held:?}");
            prop_assert_eq!(extents.bytes(), there.iter().filter(|there| **there).count() as u64);
            let (start, end) = (asked.0, (asked.0 + asked.1).min(80));
            let range = start..end.max(start);
            prop_assert_eq!(extents.holds(&range), range.clone().all(|byte| there[byte as usize]));
        }

        #[test]
        fn the_longest_are_some_of_them_and_none_is_longer(
            ranges in prop::collection::vec((0u64..200, 1u64..20), 0..20),
            most in 0usize..5,
        ) {
            let extents: Extents = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            let longest = extents.longest(most);
            prop_assert_eq!(longest.len(), extents.len().min(most));
            prop_assert!(longest.iter().all(|range| extents.iter().any(|other| other == range)));
            let length = |range: Range<u64>| range.end - range.start;
            let shortest = longest.iter().map(length).min().unwrap_or(0);
            prop_assert!(extents.iter().filter(|other| longest.iter().all(|range| range != *other))
                .all(|other| most == 0 || length(other) <= shortest));
        }
    }
}
