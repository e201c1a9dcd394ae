//! Cells that came: each counts once, and it is reported to the other end which came and when.
//!
//! A report is owed once 16 cells that ask for it have come, or a quarter of a round trip after the first, 25 ms at
//! least. Who only receives sends nothing but blocks and reports: waiting lets a report ride with as many blocks as a cell
//! holds, and over relays a quarter of a round trip costs nobody anything. Sooner it leaves only where a cell has room
//! for it: in each cell it would take a twelfth of what data has. It says which of the
//! newest 256 cells have come, and of those that are new when they came (ACK vectors); the latter
//! twice, in two cells over two paths, so that a lost report is seldom taken for lost cells.

use anabranch_control::time::{Duration, Time};
use anabranch_proto::replay::ReplayWindow;

use super::cell::{
    ACK_BITS, ACKED_FRAME, ARRIVAL, ARRIVALS_HEADER, Acked, Arrival, Frame, MAX_ARRIVALS, encode_arrivals,
};

/// This many cells make a report due.
pub const ACK_CELLS: usize = 16;

/// After so long it is due anyway (RFC 9000 18.2's default of `max_ack_delay`), or after a [`SHARE`]th of a round trip.
pub const ACK_DELAY: Duration = Duration::from_millis(25);

/// Which part of a round trip a report waits for: a quarter, as Chromium's QUIC has it where it thins out ACKs
/// (`kAckDecimationDelay`).
const SHARE: u64 = 4;

/// It never waits longer (RFC 5681 4.2).
const LONGEST_ACK_DELAY: Duration = Duration::from_millis(500);

/// How long a report waits for more cells, where a round trip takes so long.
pub fn report_delay(round_trip: Option<Duration>) -> Duration {
    round_trip.map_or(ACK_DELAY, |time| (time / SHARE).max(ACK_DELAY).min(LONGEST_ACK_DELAY))
}

/// How long the other end's report and the next, which says the same again, wait at most, as far as this end can tell: its
/// round trips are a little longer or shorter than this end's.
pub fn report_wait(round_trip: Option<Duration>) -> Duration {
    let delay = report_delay(round_trip);
    if delay > ACK_DELAY { delay * 2 + ACK_DELAY } else { delay * 2 }
}

/// Arrivals that wait to be reported at most; of more, the oldest are only among the newest 256.
const MAX_WAITING: usize = 1024;

const WORDS: usize = ACK_BITS as usize / 64;

/// What one end has got.
#[derive(Clone, Debug, Default)]
pub struct Received {
    replay: ReplayWindow,
    highest: Option<u64>,
    /// Bit i, lowest first, is cell `highest` − i.
    newest: [u64; WORDS],
    /// Not reported yet, in the order of arrival.
    waiting: Vec<Arrival>,
    /// Reported once, in the last report.
    reported: Vec<Arrival>,
    /// Cells since the last report that ask for one.
    asking: usize,
    due: Option<Time>,
    round_trip: Option<Duration>,
}

impl Received {
    /// A round trip takes so long.
    pub fn set_round_trip(&mut self, round_trip: Duration) {
        self.round_trip = Some(round_trip);
    }

    /// Whether cell `number` has not come yet.
    pub fn is_new(&self, number: u64) -> bool {
        self.replay.is_new(number)
    }

    /// The highest number that came.
    pub fn highest(&self) -> Option<u64> {
        self.highest
    }

    /// Cell `number` came, and was what it should be.
    pub fn on_cell(&mut self, now: Time, number: u64, asks: bool) {
        self.replay.note(number);
        let highest = self.highest.map_or(number, |highest| highest.max(number));
        let ahead = self.highest.map_or(ACK_BITS, |before| highest - before);
        shift(&mut self.newest, ahead);
        self.highest = Some(highest);
        let behind = highest - number;
        if behind < ACK_BITS {
            self.newest[(behind / 64) as usize] |= 1 << (behind % 64);
        }
        if asks {
            if self.waiting.len() == MAX_WAITING {
                self.waiting.remove(0);
            }
            self.waiting.push(Arrival { number, at: now });
            self.asking += 1;
            let due = if self.asking >= ACK_CELLS { now } else { now + report_delay(self.round_trip) };
            self.due = Some(self.due.map_or(due, |before| before.min(due)));
        }
    }

    /// When a report is due, if one is owed.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether there is something to report.
    pub fn has_news(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a report fits `room` bytes with all that waits, and what is to be said again: a cell that is only among the
    /// newest has come without a time.
    pub fn fits(&self, room: usize) -> bool {
        let arrivals = self.waiting.len() + self.reported.len();
        ACKED_FRAME + 2 * ARRIVALS_HEADER + arrivals * ARRIVAL <= room
    }

    /// Appends a report to `out`, of `room` bytes at most.
    pub fn write(&mut self, room: usize, out: &mut Vec<u8>) {
        let Some(largest) = self.highest else { return };
        let mut acked = Acked { largest, bits: [0; ACK_BITS as usize / 8] };
        for (bytes, word) in acked.bits.chunks_exact_mut(8).zip(self.newest) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let mut newest = Vec::new();
        Frame::Acked(acked).encode(&mut newest);
        let Some(room) = room.checked_sub(newest.len()) else { return };
        // Arrivals first: what only the other frame says has come without a time.
        let start = out.len();
        let before = std::mem::take(&mut self.reported);
        let taken = encode_arrivals(&self.waiting, room, out);
        self.reported.extend(self.waiting.drain(..taken));
        // Once more what was in the last report.
        let repeated = &before[before.len().saturating_sub(MAX_ARRIVALS)..];
        encode_arrivals(repeated, room - (out.len() - start), out);
        out.extend_from_slice(&newest);
        if self.waiting.is_empty() {
            (self.asking, self.due) = (0, None);
        }
    }
}

fn shift(words: &mut [u64; WORDS], by: u64) {
    let (whole, bits) = ((by / 64) as usize, by % 64);
    for place in (0..WORDS).rev() {
        let at = |place: Option<usize>| place.map_or(0, |place| words[place]);
        let high = if by < ACK_BITS { at(place.checked_sub(whole)) } else { 0 };
        let low = if by < ACK_BITS { at(place.checked_sub(whole + 1)) } else { 0 };
        words[place] = if bits == 0 { high } else { high << bits | low >> (64 - bits) };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::cell::{PLAIN_HEADER, decode};
    use super::*;

    fn report(received: &mut Received) -> (Vec<u64>, Vec<Vec<Arrival>>) {
        let mut plain = vec![0; PLAIN_HEADER];
        received.write(1000, &mut plain);
        let (mut numbers, mut arrivals) = (vec![], vec![]);
        for frame in decode(&plain).unwrap().1 {
            match frame.unwrap() {
                Frame::Acked(acked) => numbers.extend(acked.numbers()),
                Frame::Arrivals(all) => arrivals.push(all.iter().collect()),
                other => panic!("{other:?}"),
            }
        }
        (numbers, arrivals)
    }

    proptest! {
        #[test]
        fn a_report_says_which_of_the_newest_cells_came(numbers in prop::collection::vec(0u64..700, 1..300)) {
            let (mut received, mut all) = (Received::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(received.is_new(number), !all.contains(&number));
                received.on_cell(Time::ZERO, number, true);
                all.insert(number);
                let newest = all.last().unwrap();
                let expected: Vec<u64> =
                    all.iter().rev().copied().filter(|n| newest - n < ACK_BITS).collect();
                prop_assert_eq!(report(&mut received).0, expected);
            }
        }
    }

    #[test]
    fn a_report_is_due_after_sixteen_cells_or_25_ms() {
        let mut received = Received::default();
        received.on_cell(Time::ZERO, 0, false);
        assert_eq!(received.due(), None, "nobody asks");
        for number in 1..ACK_CELLS as u64 {
            received.on_cell(Time::from_nanos(number), number, true);
            assert_eq!(received.due(), Some(Time::from_nanos(1) + ACK_DELAY));
        }
        received.on_cell(Time::from_nanos(99), 16, true);
        assert_eq!(received.due(), Some(Time::from_nanos(99)));
        report(&mut received);
        assert_eq!((received.due(), received.has_news()), (None, false));
    }

    #[test]
    fn a_report_waits_for_a_quarter_of_a_long_round_trip() {
        let due = |ms: u64| {
            let mut received = Received::default();
            received.set_round_trip(Duration::from_millis(ms));
            received.on_cell(Time::ZERO, 0, true);
            (received.due().map(|due| due.since(Time::ZERO)), report_wait(Some(Duration::from_millis(ms))))
        };
        assert_eq!(due(8), (Some(ACK_DELAY), ACK_DELAY * 2));
        assert_eq!(due(400), (Some(Duration::from_millis(100)), Duration::from_millis(225)));
        assert_eq!(due(9000).0, Some(LONGEST_ACK_DELAY));
        assert_eq!(report_delay(None), ACK_DELAY);
    }

    #[test]
    fn an_arrival_is_in_two_reports() {
        let mut received = Received::default();
        let mut seen = vec![0; 40];
        for number in 0..40 {
            received.on_cell(Time::from_nanos(number * 1000), number, true);
            if number % 7 == 6 {
                report(&mut received).1.iter().flatten().for_each(|arrival| seen[arrival.number as usize] += 1);
            }
        }
        for _ in 0..2 {
            report(&mut received).1.iter().flatten().for_each(|arrival| seen[arrival.number as usize] += 1);
        }
        assert_eq!(seen, [2; 40]);
    }

    #[test]
    fn what_waits_to_be_reported_is_bounded() {
        let mut received = Received::default();
        (0..5000).for_each(|number| received.on_cell(Time::ZERO, number, true));
        assert_eq!(received.waiting.len(), MAX_WAITING);
        (0..40).for_each(|_| _ = report(&mut received));
        assert_eq!((received.has_news(), received.due()), (false, None));
    }
}
