//! Ranges of numbers: which packets have arrived, and which data.

/// What an ACK tells where more has arrived than it has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckForm {
    /// The highest ranges of numbers and the newest arrival's (RFC 9000, 13.2.3).
    #[default]
    Ranges,
    /// A cumulative acknowledgment and three SACK blocks, those that changed last (RFC 2018, 4;
    /// beside timestamps there is room for three).
    Sack,
    /// A cumulative acknowledgment alone, which says nothing before the first number has arrived.
    Cumulative,
}

/// Ranges that one ACK carries at most; TCP's option space holds three or four (RFC 2018).
pub const MAX_ACK_RANGES: usize = 4;

/// SACK blocks of an ACK beside its cumulative acknowledgment.
const SACK_BLOCKS: usize = MAX_ACK_RANGES - 1;

/// Ranges of packet numbers that a receiver remembers at most; older ones are forgotten
/// (RFC 9000, 13.2.3), which its sender takes for lost packets.
const MAX_RECEIVED_RANGES: usize = 32;

/// Pieces of a stream, apart from its beginning, that a receiver keeps at most.
const MAX_PIECES: usize = 4096;

/// Numbers in ranges and in the gaps between them, in turn.
pub(super) const MAX_SPANS: usize = 2 * MAX_ACK_RANGES - 1;

/// Ranges of packet numbers, both ends included, the highest first. Kept as lengths, as an
/// ACK frame of RFC 9000 (19.3) does: ACKs are copied often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckRanges {
    largest: u64,
    /// From `largest` down: of each range what it holds beside its last number, of each gap
    /// what is missing.
    spans: [u32; MAX_SPANS],
    count: u8,
}

impl AckRanges {
    /// Of `ranges`, the highest first and with gaps between, as many as an ACK carries. Where
    /// that order ends, the rest stays untold, and of a range or gap longer than 32 bits can
    /// say, the end that is older.
    #[inline]
    pub fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> AckRanges {
        let mut these = AckRanges::default();
        let mut lowest: u64 = 0;
        for (i, (low, high)) in ranges.into_iter().take(MAX_ACK_RANGES).enumerate() {
            let Some(span) = high.checked_sub(low) else { break };
            if i == 0 {
                these.largest = high;
            } else {
                let missing = lowest.checked_sub(high).and_then(|distance| distance.checked_sub(1));
                let Some(gap @ 1..) = missing.and_then(|missing| u32::try_from(missing).ok()) else { break };
                these.spans[2 * i - 1] = gap;
            }
            let span = u32::try_from(span).unwrap_or(u32::MAX);
            these.spans[2 * i] = span;
            these.count += 1;
            lowest = high - u64::from(span);
        }
        these
    }

    /// The highest range; only its end says something where there is none.
    #[inline]
    pub(super) fn highest(&self) -> (u64, u64) {
        (self.largest - u64::from(self.spans[0]), self.largest)
    }

    /// The highest range ends at `largest` now, which is no lower than before. What that is, unless the range
    /// becomes too long: then nothing has changed.
    #[inline(always)]
    fn grow_to(&mut self, largest: u64) -> Option<AckRanges> {
        let span = self.spans[0].checked_add(u32::try_from(largest - self.largest).ok()?)?;
        // Not a copy of what is written here: a processor would wait for these two short writes before it
        // reads them as part of a longer copy.
        let mut grown = *self;
        (grown.largest, grown.spans[0]) = (largest, span);
        (self.largest, self.spans[0]) = (largest, span);
        Some(grown)
    }

    /// Ranges by their highest number and, down from there, what each range holds beside its
    /// last number and what each gap misses. None if they are too many, if a gap misses
    /// nothing, or if they go below 0.
    pub(super) fn from_spans(largest: u64, spans: impl IntoIterator<Item = u32>) -> Option<AckRanges> {
        let mut these = AckRanges { largest, ..AckRanges::default() };
        let (mut length, mut low) = (0, largest);
        for (i, span) in spans.into_iter().enumerate() {
            *these.spans.get_mut(i)? = span;
            let is_gap = i % 2 == 1;
            if is_gap && span == 0 {
                return None;
            }
            low = low.checked_sub(u64::from(span) + u64::from(is_gap))?;
            length = i + 1;
        }
        these.count = length.div_ceil(2) as u8;
        (length % 2 == 1).then_some(these)
    }

    /// What each range holds beside its last number and what each gap misses, in turn, from
    /// the highest number down.
    pub(super) fn spans(&self) -> &[u32] {
        &self.spans[..(2 * usize::from(self.count)).saturating_sub(1)]
    }

    /// The ranges, the highest first.
    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + use<> {
        let mut ranges = [(0, 0); MAX_ACK_RANGES];
        let mut high = self.largest;
        for (i, range) in ranges.iter_mut().take(usize::from(self.count)).enumerate() {
            if i > 0 {
                high -= u64::from(self.spans[2 * i - 1]) + 1;
            }
            let low = high - u64::from(self.spans[2 * i]);
            *range = (low, high);
            high = low;
        }
        ranges.into_iter().take(usize::from(self.count))
    }

    /// Whether these and `others` differ at most in where the highest range ends: an ACK then
    /// tells nothing new of packets that were missing.
    #[inline]
    pub(super) fn misses_the_same(&self, others: &AckRanges) -> bool {
        self.count == others.count && self.highest().0 == others.highest().0 && self.spans[1..] == others.spans[1..]
    }

    /// Which numbers these have that `previous` do not, the first and the last of each of two ranges (none of
    /// where the last is lower), if these are `previous` with another range above: the highest of those may have
    /// grown, and the lowest may be missing. None where they differ otherwise.
    #[inline]
    pub(super) fn ends_over(&self, previous: &AckRanges) -> Option<[(u64, u64); 2]> {
        let (low, high) = self.highest();
        let below = low.checked_sub(u64::from(self.spans[1]) + 1)?;
        let is_shifted = self.count >= 2
            && previous.count >= 1
            && below.checked_sub(u64::from(self.spans[2])) == Some(previous.highest().0)
            && below >= previous.largest
            && self.spans[3..] == previous.spans[1..MAX_SPANS - 2];
        is_shifted.then_some([(low, high), (previous.largest + 1, below)])
    }

    /// How many ranges there are.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// The highest number.
    #[inline]
    pub fn largest(&self) -> Option<u64> {
        (self.count > 0).then_some(self.largest)
    }
}

/// Which packets have arrived.
#[derive(Clone, Debug, Default)]
pub struct ReceivedNumbers {
    /// Ascending, both ends included, with gaps between.
    ranges: Vec<(u64, u64)>,
    /// Where the newest arrival's range stands.
    newest: usize,
    form: AckForm,
    /// What the last ACK said, as long as no more than its highest range has grown since.
    last_ack: Option<AckRanges>,
    /// A number of each block that the last ACK reported, the block that changed last first.
    reported: [Option<u64>; SACK_BLOCKS],
}

impl ReceivedNumbers {
    /// Of a receiver that answers in `form`.
    pub fn new(form: AckForm) -> ReceivedNumbers {
        ReceivedNumbers { form, ..ReceivedNumbers::default() }
    }

    /// How many ranges are remembered. What a TCP receiver has acknowledged it keeps, so that
    /// the pieces of its stream are the bound.
    fn room(&self) -> usize {
        match self.form {
            AckForm::Ranges => MAX_RECEIVED_RANGES,
            AckForm::Sack | AckForm::Cumulative => MAX_PIECES + 1,
        }
    }

    /// Adds `number`; false if it has arrived before, or is too old to be remembered.
    #[inline]
    pub fn insert(&mut self, number: u64) -> bool {
        match self.ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => {
                *last = number;
                self.newest = self.ranges.len() - 1;
                true
            }
            _ => self.insert_seldom(number),
        }
    }

    #[cold]
    fn insert_seldom(&mut self, number: u64) -> bool {
        self.last_ack = None;
        let at = self.ranges.partition_point(|(first, _)| *first <= number);
        if at > 0 && self.ranges[at - 1].1 >= number {
            // A copy: the ACK of the first was lost, so that this one must tell it.
            self.newest = at - 1;
            return false;
        }
        if at == 0 && self.ranges.len() == self.room() {
            return false;
        }
        let joins_left = at > 0 && self.ranges[at - 1].1.checked_add(1) == Some(number);
        let joins_right = at < self.ranges.len() && number.checked_add(1) == Some(self.ranges[at].0);
        self.newest = match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
                at - 1
            }
            (true, false) => {
                self.ranges[at - 1].1 = number;
                at - 1
            }
            (false, true) => {
                self.ranges[at].0 = number;
                at
            }
            (false, false) => {
                self.ranges.insert(at, (number, number));
                at
            }
        };
        if self.ranges.len() > self.room() {
            self.ranges.remove(0);
            self.newest = self.newest.saturating_sub(1);
        }
        true
    }

    /// The highest number that has arrived.
    #[inline]
    pub fn largest(&self) -> Option<u64> {
        self.ranges.last().map(|(_, last)| *last)
    }

    /// What an ACK says: the highest ranges, and in place of the last of them the range of
    /// the newest arrival if it is lower (RFC 2018, 4: the newest must be reported).
    #[inline(always)]
    pub fn next_ack(&mut self) -> AckRanges {
        if let (Some(last), Some((_, largest))) = (&mut self.last_ack, self.ranges.last())
            && let Some(grown) = last.grow_to(*largest)
        {
            return grown;
        }
        self.ack_anew()
    }

    /// The same, from all ranges.
    fn ack_anew(&mut self) -> AckRanges {
        let highest = self.ranges.len().saturating_sub(MAX_ACK_RANGES);
        if self.form != AckForm::Ranges {
            let first = self.ranges.first().filter(|(low, _)| *low == 0);
            if self.form == AckForm::Cumulative && (self.ranges.len() > 1 || first.is_none()) {
                return AckRanges::new(first.copied());
            }
            if self.ranges.len() > 1 {
                return self.next_sack();
            }
        }
        if self.newest >= highest {
            let ranges = AckRanges::new(self.ranges[highest..].iter().rev().copied());
            self.last_ack = Some(ranges);
            return ranges;
        }
        let reported = self.ranges[highest + 1..].iter().rev();
        AckRanges::new(reported.chain([&self.ranges[self.newest]]).copied())
    }

    /// A cumulative acknowledgment, if number 0 has arrived, and of the ranges behind it the
    /// newest arrival's and those that were reported last (RFC 2018, 4).
    #[cold]
    fn next_sack(&mut self) -> AckRanges {
        let cumulative = usize::from(self.ranges.first().is_some_and(|(low, _)| *low == 0));
        let mut blocks = [usize::MAX; SACK_BLOCKS];
        let mut count = 0;
        let before = self.reported;
        let mut reported_now = [None; SACK_BLOCKS];
        let reported = before.into_iter().flatten().map(|number| self.place(number));
        // Room that is left reports the highest.
        let places = [self.newest].into_iter().chain(reported).chain((cumulative..self.ranges.len()).rev());
        for place in places.take(2 * SACK_BLOCKS + 1) {
            if place >= cumulative && count < SACK_BLOCKS && !blocks[..count].contains(&place) {
                blocks[count] = place;
                reported_now[count] = Some(self.ranges[place].0);
                count += 1;
            }
        }
        self.reported = reported_now;
        let blocks = &mut blocks[..count];
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        AckRanges::new(blocks.iter().copied().chain((0..cumulative).rev()).map(|place| self.ranges[place]))
    }

    /// Where the range of a number stands that has arrived.
    fn place(&self, number: u64) -> usize {
        self.ranges.partition_point(|(first, _)| *first <= number).saturating_sub(1)
    }
}

/// Which of a stream's data has arrived.
#[derive(Clone, Debug, Default)]
pub struct Assembly {
    /// All before this offset has.
    contiguous: u64,
    /// Pieces beyond, ascending, ends excluded, with gaps between.
    pieces: Vec<(u64, u64)>,
}

impl Assembly {
    /// Adds data at `offset`; how many of its bytes are new, none if there is no room to
    /// remember it.
    #[inline]
    pub fn insert(&mut self, offset: u64, length: u64) -> Option<u64> {
        // In order, behind all that has arrived: where there is a gap, behind the last piece.
        let reached = self.pieces.last_mut().map_or(&mut self.contiguous, |(_, end)| end);
        if offset == *reached {
            *reached = offset.checked_add(length)?;
            return Some(length);
        }
        self.insert_seldom(offset, offset.saturating_add(length))
    }

    #[cold]
    fn insert_seldom(&mut self, start: u64, end: u64) -> Option<u64> {
        let start = start.max(self.contiguous);
        if end <= start {
            return Some(0);
        }
        // The pieces that the data touches or overlaps become one with it.
        let from = self.pieces.partition_point(|(_, piece_end)| *piece_end < start);
        let to = self.pieces.partition_point(|(piece_start, _)| *piece_start <= end);
        let known: u64 = self.pieces[from..to].iter().map(|(a, b)| b.min(&end).saturating_sub(*a.max(&start))).sum();
        if from == to && self.pieces.len() == MAX_PIECES && start > self.contiguous {
            return None;
        }
        let (mut joined_start, mut joined_end) = (start, end);
        if from < to {
            joined_start = joined_start.min(self.pieces[from].0);
            joined_end = joined_end.max(self.pieces[to - 1].1);
        }
        self.pieces.splice(from..to, [(joined_start, joined_end)]);
        if self.pieces[0].0 == self.contiguous {
            self.contiguous = self.pieces.remove(0).1;
        }
        Some(end - start - known)
    }

    /// How much has arrived without a gap.
    #[inline]
    pub fn contiguous(&self) -> u64 {
        self.contiguous
    }

    /// What has arrived beyond the first gap: ascending, ends excluded, with gaps between.
    #[inline]
    pub fn pieces(&self) -> &[(u64, u64)] {
        &self.pieces
    }

    /// Whether data beyond a gap has arrived.
    #[inline]
    pub fn has_gap(&self) -> bool {
        !self.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn numbers_that_arrived_are_reported_once_each(arrivals in prop::collection::vec(0u64..60, 1..120)) {
            let mut ranges = ReceivedNumbers::default();
            let mut seen = BTreeSet::new();
            for &number in &arrivals {
                prop_assert_eq!(ranges.insert(number), seen.insert(number));
                let ack = ranges.next_ack();
                prop_assert_eq!(ack.largest(), seen.last().copied());
                let reported: Vec<u64> = ack.iter().flat_map(|(a, b)| a..=b).collect();
                prop_assert!(reported.iter().all(|number| seen.contains(number)));
                prop_assert!(reported.contains(&number));
                let listed: Vec<(u64, u64)> = ack.iter().collect();
                prop_assert!(listed.windows(2).all(|pair| pair[1].1 + 1 < pair[0].0));
                prop_assert_eq!(AckRanges::new(listed), ack);
            }
        }

        #[test]
        fn an_ack_after_arrivals_in_order_says_what_one_that_looks_at_all_ranges_says(
            steps in prop::collection::vec((prop_oneof![6 => Just(1i64), 1 => 2i64..9, 1 => -20i64..0], any::<bool>()), 1..200),
            sack: bool,
        ) {
            let mut numbers = ReceivedNumbers::new(if sack { AckForm::Sack } else { AckForm::Ranges });
            let mut number = 0i64;
            for (step, answers) in steps {
                number = (number + step).max(0);
                numbers.insert(number as u64);
                let mut looking = ReceivedNumbers { last_ack: None, ..numbers.clone() };
                if answers {
                    prop_assert_eq!(numbers.next_ack(), looking.next_ack());
                }
            }
        }

        #[test]
        fn what_another_range_above_adds_is_shown_by_its_ends(
            steps in prop::collection::vec(prop_oneof![4 => Just(1i64), 4 => 2i64..4, 1 => -9i64..0], 2..100),
            lag in 1usize..4,
        ) {
            let mut numbers = ReceivedNumbers::default();
            let mut number = 0i64;
            let mut acks = vec![AckRanges::default()];
            for step in steps {
                number = (number + step).max(0);
                numbers.insert(number as u64);
                acks.push(numbers.next_ack());
                let (ack, previous) = (acks[acks.len() - 1], acks[acks.len().saturating_sub(1 + lag)]);
                let acked = |ranges: &AckRanges| -> BTreeSet<u64> {
                    ranges.iter().flat_map(|(low, high)| low..=high).collect()
                };
                let new: BTreeSet<u64> = acked(&ack).difference(&acked(&previous)).copied().collect();
                if let Some(ends) = ack.ends_over(&previous) {
                    prop_assert_eq!(ends.into_iter().flat_map(|(low, high)| low..=high).collect::<BTreeSet<u64>>(), new);
                } else {
                    // It is found whenever all that is new is a range of its own above the others.
                    let own: BTreeSet<u64> = (ack.highest().0..=ack.highest().1).collect();
                    prop_assert!(previous.count() == 0 || ack.count() != previous.count() + 1 || new != own);
                }
            }
        }

        #[test]
        fn new_bytes_add_up_to_what_is_there(pieces in prop::collection::vec((0u64..100, 1u64..20), 1..60)) {
            let mut assembly = Assembly::default();
            let mut bytes = BTreeSet::new();
            for (offset, length) in pieces {
                let before = bytes.len();
                bytes.extend(offset..offset + length);
                prop_assert_eq!(assembly.insert(offset, length), Some((bytes.len() - before) as u64));
                let contiguous = (0..).take_while(|byte| bytes.contains(byte)).count() as u64;
                prop_assert_eq!(assembly.contiguous(), contiguous);
                prop_assert_eq!(assembly.has_gap(), bytes.len() as u64 > contiguous);
            }
        }
    }

    #[test]
    fn of_a_range_or_gap_that_is_too_long_the_older_end_stays_unreported() {
        let long = 1 << 40;
        let ranges = |all: &[(u64, u64)]| AckRanges::new(all.iter().copied()).iter().collect::<Vec<_>>();
        assert_eq!(ranges(&[(5, long)]), [(long - u64::from(u32::MAX), long)]);
        assert_eq!(ranges(&[(long, long + 1), (0, 7)]), [(long, long + 1)]);
        assert_eq!(ranges(&[]), []);
        let mut numbers = ReceivedNumbers { ranges: vec![(0, 1), (3, long)], newest: 1, ..ReceivedNumbers::default() };
        assert_eq!(numbers.next_ack().iter().collect::<Vec<_>>(), [(long - u64::from(u32::MAX), long)]);
        assert!(numbers.insert(long + 1));
        let grown: Vec<_> = numbers.next_ack().iter().collect();
        assert_eq!(grown, [(long + 1 - u64::from(u32::MAX), long + 1)]);
    }

    #[test]
    fn ranges_in_disorder_are_reported_as_far_as_the_order_goes() {
        let ranges = |all: &[(u64, u64)]| AckRanges::new(all.iter().copied()).iter().collect::<Vec<_>>();
        assert_eq!(ranges(&[(8, 9), (1, 2), (5, 6)]), [(8, 9), (1, 2)]);
        assert_eq!(ranges(&[(8, 9), (5, 7)]), [(8, 9)], "there is no gap between");
        assert_eq!(ranges(&[(8, 9), (8, u64::MAX)]), [(8, 9)]);
        assert_eq!(ranges(&[(9, 8)]), []);
    }

    #[test]
    fn a_cumulative_ack_reports_the_beginning_alone() {
        let mut numbers = ReceivedNumbers::new(AckForm::Cumulative);
        let acked = |numbers: &mut ReceivedNumbers| numbers.next_ack().iter().collect::<Vec<_>>();
        numbers.insert(2);
        assert_eq!(acked(&mut numbers), [], "nothing from the first number on");
        for (number, end) in [(0, 0), (3, 0), (5, 0), (1, 3), (6, 3), (4, 6), (7, 7), (8, 8)] {
            assert!(numbers.insert(number));
            assert_eq!(acked(&mut numbers), [(0, end)], "after {number}");
        }
        assert!(!numbers.insert(3));
        assert_eq!(acked(&mut numbers), [(0, 8)]);
    }

    #[test]
    fn a_sack_reports_what_is_cumulative_and_the_blocks_that_changed_last() {
        let mut numbers = ReceivedNumbers::new(AckForm::Sack);
        let mut report = |number: u64| {
            numbers.insert(number);
            numbers.next_ack().iter().collect::<Vec<_>>()
        };
        assert_eq!(report(2), [(2, 2)], "nothing is cumulative");
        assert_eq!(report(0), [(2, 2), (0, 0)]);
        for number in [4, 6, 8, 10] {
            report(number);
        }
        assert_eq!(report(12), [(12, 12), (10, 10), (8, 8), (0, 0)]);
        // A block that grows is reported first, whatever lies above it.
        assert_eq!(report(5), [(12, 12), (10, 10), (4, 6), (0, 0)]);
        assert_eq!(report(14), [(14, 14), (12, 12), (4, 6), (0, 0)]);
        assert_eq!(report(1), [(14, 14), (12, 12), (4, 6), (0, 2)]);
        // Where room is left, the highest of the others are reported.
        assert_eq!(report(3), [(14, 14), (12, 12), (10, 10), (0, 6)]);
    }

    #[test]
    fn what_a_receiver_remembers_is_bounded() {
        let mut numbers = ReceivedNumbers::default();
        let mut assembly = Assembly::default();
        for i in 0..2 * MAX_PIECES as u64 {
            numbers.insert(2 * i);
            assembly.insert(2 * i + 1, 1);
        }
        assert_eq!(numbers.ranges.len(), MAX_RECEIVED_RANGES);
        assert!(!numbers.insert(1), "a forgotten number was taken for a new one");
        assert_eq!(assembly.pieces.len(), MAX_PIECES);
        assert_eq!(assembly.insert(4 * MAX_PIECES as u64 + 9, 1), None);
        assert_eq!(assembly.insert(0, 1), Some(1), "data that closes a gap must always fit");
    }
}
