//! Cells on their way: what each carried, over which path it went, and when it counts as lost.
//!
//! A cell has one of two outcomes: the other end says that it came, or its own deadline passes. The
//! deadline is the path's (`T = Σ (L + α V)`, [Raiber 2010] 4.6, see
//! [`RelayDelays`](super::delays::RelayDelays)), and nothing else tells a loss: over paths of different
//! delay, cells that overtake others mean nothing. What a lost cell carried is sent in new
//! cells under new numbers; the cell itself is remembered for as long again, so that a late ACK still
//! teaches, and takes back what was not sent again yet.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use anabranch_control::time::{Duration, Time};

use super::cell::{Acked, StreamId};

/// Cells that one end remembers at most, on their way and late together.
pub const MAX_FLIGHT: usize = 16_384;

/// No one-way or round-trip time that the other end's clock suggests counts as longer.
const LONGEST: Duration = Duration::from_millis(60_000);

/// No cell counts as lost sooner after others have come again: two senders' grain, as for blocks.
const GRACE: Duration = Duration::from_millis(10);

/// Something that must reach the other end, and did in this cell if the cell did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carried {
    /// A stream's wish to be opened.
    Open(StreamId),
    /// That a stream has reached its target.
    Accepted(StreamId),
    /// Bytes of a stream.
    Data {
        /// The stream.
        stream: StreamId,
        /// Where they begin.
        start: u64,
        /// Where they end.
        end: u64,
        /// Whether the stream ends there.
        is_end: bool,
    },
    /// A piece of a datagram of this flow, which does not leave again.
    Datagram(StreamId),
    /// The end of a stream before its end.
    Reset(StreamId),
    /// What of a stream may be sent.
    Credit(StreamId),
    /// What of all streams may be sent.
    SessionCredit,
    /// The pace of the other end.
    Pace,
    /// That earlier blocks are void.
    Void,
    /// Reply blocks, by the serial of the first.
    Blocks {
        /// The first one's serial.
        first: u64,
        /// How many follow each other.
        count: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InFlight,
    /// Nobody was asked to say that it came.
    Unasked,
    Late,
    Done,
}

#[derive(Clone, Debug)]
struct Record {
    at: Time,
    deadline: Time,
    /// What the path alone would have had it wait.
    timeout: Duration,
    via: u64,
    state: State,
    carried: Vec<Carried>,
}

/// After how long an ACK is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// By what is known of the path.
    pub timeout: Duration,
    /// The same, grown while nothing is heard.
    pub backed_off: Duration,
}

/// A cell that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its number.
    pub number: u64,
    /// The path that it took, as it was named.
    pub via: u64,
    /// Since it left until this was known.
    pub elapsed: Duration,
    /// The same without the time that the other end waited to say so.
    pub round_trip: Option<Duration>,
    /// What it took longer than the fastest cell lately.
    pub delay: Option<Duration>,
    /// When it came, in the other end's clock.
    pub arrived: Option<Time>,
    /// Whether it had counted as lost.
    pub is_late: bool,
}

/// The cells of one end.
#[derive(Clone, Debug, Default)]
pub struct Flight {
    /// The number of the first that is remembered.
    base: u64,
    records: VecDeque<Record>,
    deadlines: BinaryHeap<Reverse<(Time, u64)>>,
    /// Lists that are used again.
    spare: Vec<Vec<Carried>>,
    in_flight: usize,
    /// Whether some of them wait longer than their paths would have them, since nothing was heard when they left.
    is_stretched: bool,
    offset: LeastOffset,
}

impl Flight {
    /// Whether one more cell can be remembered.
    pub fn has_room(&self) -> bool {
        self.records.len() < MAX_FLIGHT
    }

    /// The number of the next cell.
    pub fn next(&self) -> u64 {
        self.base + self.records.len() as u64
    }

    /// Cells whose outcome is not known.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Cells that are remembered.
    pub fn remembered(&self) -> usize {
        self.records.len()
    }

    /// An empty list to fill.
    pub fn list(&mut self) -> Vec<Carried> {
        self.spare.pop().unwrap_or_default()
    }

    /// The next cell leaves over the path `via`, whose ACK is late after the path's own timeout or, while nothing is
    /// heard, the longer one of `wait`.
    pub fn on_sent(&mut self, now: Time, via: u64, wait: Wait, carried: Vec<Carried>, asks: bool) {
        let number = self.next();
        let Wait { timeout, backed_off } = wait;
        let deadline = now + backed_off.min(LONGEST);
        let state = if asks { State::InFlight } else { State::Unasked };
        self.in_flight += usize::from(asks);
        self.is_stretched |= asks && timeout < backed_off;
        self.records.push_back(Record { at: now, deadline, timeout, via, state, carried });
        self.deadlines.push(Reverse((deadline, number)));
    }

    /// Whether a cell of this number was ever sent.
    pub fn was_sent(&self, number: u64) -> bool {
        number < self.next()
    }

    /// The cells that have come by this report and of which that is not known yet, newest first.
    pub fn open_among(&self, acked: &Acked) -> Vec<u64> {
        let is_new = |(number, record): &(u64, &Record)| record.state != State::Done && acked.contains(*number);
        let known = (self.base..=acked.largest).zip(&self.records);
        let mut numbers: Vec<u64> = known.filter(is_new).map(|(number, _)| number).collect();
        numbers.reverse();
        numbers
    }

    /// The other end says, in a cell that left it at `said` in its clock, that cell `number` came, and
    /// at best when. What the cell carried goes to `settle`; nothing if that is known already.
    pub fn on_ack(
        &mut self,
        now: Time,
        number: u64,
        arrived: Option<Time>,
        said: Time,
        mut settle: impl FnMut(&Carried),
    ) -> Option<Delivered> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        let record = self.records.get_mut(index).filter(|record| record.state != State::Done)?;
        self.in_flight -= usize::from(record.state == State::InFlight);
        let is_late = record.state == State::Late;
        record.state = State::Done;
        record.carried.iter().for_each(&mut settle);
        let mut carried = std::mem::take(&mut record.carried);
        let (at, via) = (record.at, record.via);
        carried.clear();
        self.spare.push(carried);
        let elapsed = now.since(at).min(LONGEST);
        let round_trip = arrived.map(|arrived| elapsed - said.since(arrived));
        let delay = arrived.map(|arrived| self.offset.excess(now, at, arrived));
        self.drop_done();
        Some(Delivered { number, via, elapsed, round_trip, delay, arrived, is_late })
    }

    /// Cells come again, the quickest of those of a report after `took`: what left when nothing was heard waits no longer
    /// than its path would have it, or than that one took. Streams would wait for what it carried.
    pub fn relax(&mut self, now: Time, took: Duration) {
        if !std::mem::take(&mut self.is_stretched) {
            return;
        }
        let first = self.base;
        for (number, record) in (first..).zip(&mut self.records).filter(|(_, record)| record.state == State::InFlight) {
            let deadline = (record.at + record.timeout.max(took)).max(now + GRACE);
            if deadline < record.deadline {
                record.deadline = deadline;
                self.deadlines.push(Reverse((deadline, number)));
            }
            self.is_stretched |= record.deadline > record.at + record.timeout;
        }
    }

    /// Time has passed: each cell whose deadline is over goes to `lost`, with what it carried.
    pub fn on_timer(&mut self, now: Time, mut lost: impl FnMut(u64, u64, &[Carried])) {
        while let Some(&Reverse((deadline, number))) = self.deadlines.peek() {
            if deadline > now {
                break;
            }
            self.deadlines.pop();
            let Some(index) = number.checked_sub(self.base).map(|index| index as usize) else { continue };
            let Some(record) = self.records.get_mut(index).filter(|record| record.deadline == deadline) else {
                continue;
            };
            match record.state {
                State::InFlight => {
                    record.state = State::Late;
                    record.deadline = deadline + deadline.since(record.at);
                    self.deadlines.push(Reverse((record.deadline, number)));
                    self.in_flight -= 1;
                    lost(number, record.via, &record.carried);
                }
                State::Late | State::Unasked => {
                    record.state = State::Done;
                    let mut carried = std::mem::take(&mut record.carried);
                    carried.clear();
                    self.spare.push(carried);
                }
                State::Done => {}
            }
        }
        self.drop_done();
    }

    /// The next deadline.
    pub fn timer(&self) -> Option<Time> {
        self.deadlines.peek().map(|&Reverse((deadline, _))| deadline)
    }

    fn drop_done(&mut self) {
        while self.records.front().is_some_and(|record| record.state == State::Done) {
            self.records.pop_front();
            self.base += 1;
        }
        // Deadlines of what is done wait for their time; they must not be most of the heap.
        if self.deadlines.len() > 2 * self.records.len() + 64 {
            let (base, records) = (self.base, &self.records);
            self.deadlines.retain(|&Reverse((deadline, number))| {
                let record = number.checked_sub(base).and_then(|index| records.get(index as usize));
                record.is_some_and(|record| record.state != State::Done && record.deadline == deadline)
            });
        }
        self.spare.truncate(64);
    }
}

/// The least difference between two clocks that a cell lately met: what no queue was part of. Clocks drift
/// apart, by some milliseconds in this time.
const OFFSET_LIFE: Duration = Duration::from_millis(60_000);

/// The least of arrival minus departure over one to two [`OFFSET_LIFE`]s.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastOffset {
    since: Time,
    now: Option<i128>,
    before: Option<i128>,
}

impl LeastOffset {
    /// How much more it is from `left` in one clock to `arrived` in the other than it was at least.
    pub fn excess(&mut self, now: Time, left: Time, arrived: Time) -> Duration {
        let offset = i128::from(arrived.as_nanos()) - i128::from(left.as_nanos());
        if now.since(self.since) > OFFSET_LIFE {
            (self.since, self.before, self.now) = (now, self.now, None);
        }
        let least = self.now.map_or(offset, |least| least.min(offset));
        self.now = Some(least);
        let least = self.before.map_or(least, |before| least.min(before));
        Duration::from_nanos(u64::try_from(offset - least).unwrap_or(0)).min(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    fn send(flight: &mut Flight, now: Time, timeout: Duration) -> u64 {
        let number = flight.next();
        let wait = Wait { timeout, backed_off: timeout };
        flight.on_sent(now, number + 100, wait, vec![Carried::SessionCredit], true);
        number
    }

    #[test]
    fn what_left_when_nothing_was_heard_waits_no_longer_than_its_path_once_cells_come_again() {
        let mut flight = Flight::default();
        let wait = Wait { timeout: T, backed_off: T * 50 };
        (0..3).for_each(|ms| flight.on_sent(at(100 * ms), ms, wait, vec![], true));
        let slow = Wait { timeout: T * 20, backed_off: T * 50 };
        flight.on_sent(at(300), 3, slow, vec![], true);
        flight.on_sent(at(1000), 4, wait, vec![], true);
        let came = flight.on_ack(at(1050), 4, None, at(0), |_| {}).unwrap();
        flight.relax(at(1050), came.elapsed);
        let mut lost = Vec::new();
        let mut take = |flight: &mut Flight, ms| {
            flight.on_timer(at(ms), |number, _, _| lost.push(number));
            std::mem::take(&mut lost)
        };
        assert_eq!(take(&mut flight, 1059), []);
        assert_eq!(take(&mut flight, 1060), [0, 1, 2]);
        // Its path is as slow as that.
        assert_eq!((take(&mut flight, 2299), take(&mut flight, 2300)), (vec![], vec![3]));
        // Where cells come but late, all are taken to be as late.
        let mut flight = Flight::default();
        (0..2).for_each(|ms| flight.on_sent(at(ms), ms, wait, vec![], true));
        let came = flight.on_ack(at(2000), 0, None, at(0), |_| {}).unwrap();
        flight.relax(at(2000), came.elapsed);
        assert_eq!((take(&mut flight, 2009), take(&mut flight, 2010)), (vec![], vec![1]));
    }

    #[test]
    fn overtaken_cells_are_not_lost_before_the_deadline_of_their_path() {
        let mut flight = Flight::default();
        let slow = send(&mut flight, at(0), T * 10);
        for i in 0..200 {
            let number = send(&mut flight, at(i), T);
            flight.on_ack(at(i + 1), number, None, at(0), |_| {}).unwrap();
        }
        let mut lost = Vec::new();
        flight.on_timer(at(999), |number, via, _| lost.push((number, via)));
        assert_eq!(lost, []);
        flight.on_timer(at(1000), |number, via, carried| {
            assert_eq!(carried, [Carried::SessionCredit]);
            lost.push((number, via));
        });
        assert_eq!((lost, flight.in_flight()), (vec![(slow, 100)], 0));
        let late = flight.on_ack(at(1500), slow, None, at(0), |_| {}).unwrap();
        assert!(late.is_late);
        assert_eq!((flight.on_ack(at(1501), slow, None, at(0), |_| {}), flight.remembered()), (None, 0));
    }

    #[test]
    fn what_the_other_end_waited_is_no_part_of_the_round_trip() {
        let mut flight = Flight::default();
        let (a, b) = (send(&mut flight, at(0), T), send(&mut flight, at(0), T));
        // The other clock is far ahead; cell a took 10 ms, cell b 30, and the answer left 20 ms after b.
        let clock = at(5_000_000);
        let said = clock + Duration::from_millis(50);
        let first = flight.on_ack(at(55), a, Some(clock + Duration::from_millis(10)), said, |_| {}).unwrap();
        let second = flight.on_ack(at(55), b, Some(clock + Duration::from_millis(30)), said, |_| {}).unwrap();
        assert_eq!(first.round_trip, Some(Duration::from_millis(15)));
        assert_eq!(second.round_trip, Some(Duration::from_millis(35)));
        assert_eq!((first.delay, second.delay), (Some(Duration::ZERO), Some(Duration::from_millis(20))));
    }

    #[test]
    fn all_is_forgotten_in_the_end() {
        let mut flight = Flight::default();
        for i in 0..1000 {
            send(&mut flight, at(i), T);
        }
        let mut lost = 0;
        flight.on_timer(at(1099), |_, _, _| lost += 1);
        assert_eq!((lost, flight.timer()), (1000, Some(at(1100))));
        flight.on_timer(at(1199), |_, _, _| lost += 1);
        assert_eq!((lost, flight.remembered(), flight.timer()), (1000, 0, None));
    }
}
