//! The steps in which a total rate is tried: of one's own cells, and of the other end's.
//!
//! A step counts the cells that leave between two times. It is over when the fate of each is known; cells of before and
//! after say nothing of its rate.

use anabranch_control::pacer::Pacer;
use anabranch_control::time::{Duration, Time};

use super::receiver::ACK_CELLS;
use super::total_rate::{LEAST_CELLS, Step, TotalRate};

/// A step is no shorter.
const SHORTEST_STEP: Duration = Duration::from_millis(100);

/// Nor longer.
const LONGEST_STEP: Duration = Duration::from_millis(2000);

/// Cells that may leave at once after a pause: as many as one report is about, so that bursts are no longer than what is
/// answered at once. RFC 9002 7.7 has a paced sender's bursts as long as an initial window, of 10 packets.
const BURST: u64 = ACK_CELLS as u64;

/// What may leave at once covers what a driver's timer of so long lets pass. Linux's TCP sends a millisecond's worth at once
/// (`sk_pacing_shift`), and BBR as much (draft-ietf-ccwg-bbr, send quantum); with another one that is due by then, two.
const GRAIN: Duration = Duration::from_millis(2);

/// How long a step of `rate` lasts, as far as it may: four round trips, or half of one at the start.
fn step_length(rate: &dyn TotalRate, round_trip: Option<Duration>) -> Duration {
    let length = |time: Duration| if rate.is_starting() { time / 2 } else { time * 4 };
    round_trip.map_or(SHORTEST_STEP, |time| length(time).max(SHORTEST_STEP).min(LONGEST_STEP))
}

/// Holds cells to a rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct CellPacer {
    pacer: Pacer,
}

impl CellPacer {
    /// When the next cell may leave; in the past if now.
    pub fn release(&self) -> Time {
        self.pacer.release()
    }

    /// A cell left.
    pub fn on_sent(&mut self, now: Time, cells_per_s: u32) {
        let each = Duration::SECOND / u64::from(cells_per_s.max(1));
        self.pacer.charge(now, (each * BURST).max(GRAIN), each);
    }
}

/// The total rate of one's own cells, and the step that is going on.
#[derive(Clone, Debug)]
pub struct Shape {
    rate: Box<dyn TotalRate>,
    pacer: CellPacer,
    /// Numbers from here on belong to the step.
    from: u64,
    /// And none from here on.
    to: Option<u64>,
    began: Option<Time>,
    ends: Time,
    elapsed: Duration,
    gives_up: Time,
    sent: u64,
    delivered: u64,
    lost: u64,
    /// Those of the step's numbers that count for nothing, in their order.
    trials: Vec<u64>,
    longest_timeout: Duration,
    round_trip: Option<Duration>,
}

impl Shape {
    /// Shaped by `rate`.
    pub fn new(rate: Box<dyn TotalRate>) -> Shape {
        Shape {
            rate,
            pacer: CellPacer::default(),
            from: 0,
            to: None,
            began: None,
            ends: Time::ZERO,
            elapsed: Duration::ZERO,
            gives_up: Time::ZERO,
            sent: 0,
            delivered: 0,
            lost: 0,
            trials: Vec::new(),
            longest_timeout: Duration::ZERO,
            round_trip: None,
        }
    }

    /// What decides.
    pub fn rate(&self) -> &dyn TotalRate {
        &*self.rate
    }

    /// The session is answered, after `round_trip` if that was measured.
    pub fn on_answered(&mut self, round_trip: Option<Duration>) {
        self.rate.on_answered(round_trip);
    }

    /// There is another way in place of one that was dead: the step that goes on is none.
    pub fn on_new_way(&mut self) {
        self.rate.on_new_way();
        (self.began, self.to) = (None, None);
    }

    /// When the next cell may leave; in the past if now.
    pub fn release(&self) -> Time {
        self.pacer.release()
    }

    /// Cells a second now: a rate that may be too much by half is tried for a short step, not until its outcome is known.
    fn pace(&self) -> u32 {
        let rate = self.rate.cells_per_s();
        if self.rate.is_starting() && self.to.is_some() { rate / 2 } else { rate }
    }

    /// Cell `number` left; `asks` if its outcome will be known, by `timeout` at the latest.
    pub fn on_sent(&mut self, now: Time, number: u64, asks: bool, timeout: Duration, round_trip: Option<Duration>) {
        self.pacer.on_sent(now, self.pace());
        self.round_trip = round_trip;
        if !asks || self.to.is_some() {
            return;
        }
        if self.began.is_none() {
            (self.began, self.from, self.ends) = (Some(now), number, now + step_length(&*self.rate, round_trip));
            (self.sent, self.delivered, self.lost, self.longest_timeout) = (0, 0, 0, Duration::ZERO);
            self.trials.clear();
        }
        self.sent += 1;
        if self.sent == LEAST_CELLS {
            self.ends = self.ends.min(self.began.unwrap_or(now) + step_length(&*self.rate, round_trip));
            self.ends = self.ends.max(now + GRAIN);
        }
        self.longest_timeout = self.longest_timeout.max(timeout);
    }

    /// The outcome of cell `number` is known.
    pub fn on_outcome(&mut self, number: u64, is_delivered: bool) {
        if self.has(number) {
            *(if is_delivered { &mut self.delivered } else { &mut self.lost }) += 1;
        }
    }

    /// Cell `number`, which was reported as lost, has come after all.
    pub fn on_late(&mut self, number: u64) {
        if self.has(number) && self.lost > 0 {
            (self.delivered, self.lost) = (self.delivered + 1, self.lost - 1);
        }
    }

    /// Cell `number` left over a relay that is believed to be gone: that it is lost says nothing of the rate.
    pub fn on_trial(&mut self, now: Time, number: u64) {
        self.pacer.on_sent(now, self.pace());
        if self.began.is_some() && self.to.is_none() {
            self.trials.push(number);
        }
    }

    /// Whether cell `number` belongs to the step.
    fn has(&self, number: u64) -> bool {
        let is_within = self.began.is_some() && number >= self.from && self.to.is_none_or(|to| number < to);
        is_within && self.trials.binary_search(&number).is_err()
    }

    /// Time has passed; `next` is the number of the next cell.
    pub fn on_timer(&mut self, now: Time, next: u64) {
        let Some(began) = self.began else { return };
        // Few cells say nothing: as long as it may, the step waits for more.
        if self.to.is_none() && now >= self.ends && self.sent < LEAST_CELLS && now < began + LONGEST_STEP {
            self.ends = began + LONGEST_STEP;
        }
        if self.to.is_none() && now >= self.ends {
            self.to = Some(next);
            self.elapsed = now.since(began);
            self.gives_up = now + self.longest_timeout.min(LONGEST_STEP);
        }
        if self.to.is_some() && (self.delivered + self.lost >= self.sent || now >= self.gives_up) {
            let delivered = self.delivered.min(self.sent);
            let (sent, elapsed, round_trip) = (self.sent, self.elapsed, self.round_trip);
            self.rate.on_step(&Step { sent, delivered, elapsed, now, round_trip });
            (self.began, self.to) = (None, None);
        }
    }

    /// When [`on_timer`](Shape::on_timer) has something to do.
    pub fn timer(&self) -> Option<Time> {
        self.began.map(|_| if self.to.is_none() { self.ends } else { self.gives_up })
    }
}

/// The total rate of the other end's cells, which this end sets.
#[derive(Clone, Debug)]
pub struct Watch {
    rate: Box<dyn TotalRate>,
    turn: u32,
    /// Whether the rate must be sent to the other end.
    pub is_due: bool,
    /// Since when it knows the rate, in its clock.
    known: Option<Time>,
    /// The number after the highest that has come, and what that was when it was reported since when: of the cells
    /// below, those that had come by then were not counted.
    next: u64,
    counts_from: u64,
    from: Option<(u64, Time)>,
    last: u64,
    to: Option<u64>,
    elapsed: Duration,
    decides: Time,
    came: u64,
    /// Cells that did not come over relays that are believed to be gone, since the last step was over.
    trials_lost: u64,
    round_trip: Option<Duration>,
}

impl Watch {
    /// Shaped by `rate`.
    pub fn new(rate: Box<dyn TotalRate>) -> Watch {
        Watch {
            rate,
            turn: 1,
            is_due: true,
            known: None,
            next: 0,
            counts_from: 0,
            from: None,
            last: 0,
            to: None,
            elapsed: Duration::ZERO,
            decides: Time::ZERO,
            came: 0,
            trials_lost: 0,
            round_trip: None,
        }
    }

    /// What decides.
    pub fn rate(&self) -> &dyn TotalRate {
        &*self.rate
    }

    /// The session is answered, after `round_trip` if that was measured: the other end is sent what follows from it.
    pub fn on_answered(&mut self, round_trip: Option<Duration>) {
        self.rate.on_answered(round_trip);
    }

    /// There is another way in place of one that was dead: the step that goes on is none.
    pub fn on_new_way(&mut self) {
        let before = self.rate.cells_per_s();
        self.rate.on_new_way();
        self.begin_step(before);
    }

    /// Counts the rates that are sent to the other end.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// The rate reached the other end at `at` in its clock.
    pub fn on_rate_received(&mut self, at: Time) {
        if self.known.is_none() {
            (self.known, self.counts_from) = (Some(at), self.next);
        }
    }

    /// A cell of the other end did not come over a relay that is believed to be gone: that says nothing of the rate.
    pub fn on_trial_lost(&mut self) {
        self.trials_lost += 1;
    }

    /// The other end's cell `number` came, which had left at `left` in its clock.
    pub fn on_cell(&mut self, now: Time, number: u64, left: Time, round_trip: Option<Duration>) {
        self.round_trip = round_trip;
        self.next = self.next.max(number + 1);
        if number < self.counts_from || self.known.is_none_or(|known| left < known) {
            return;
        }
        let (from, began) = *self.from.get_or_insert((number, left));
        if number < from || self.to.is_some_and(|to| number >= to) {
            return;
        }
        self.came += 1;
        self.last = self.last.max(number);
        let is_enough = self.last + 1 - from >= LEAST_CELLS || left.since(began) >= LONGEST_STEP;
        if self.to.is_none() && is_enough && left.since(began) >= step_length(&*self.rate, round_trip) {
            self.to = Some(self.last + 1);
            self.elapsed = left.since(began);
            // What is still to come has taken a slower path.
            let wait = round_trip.map_or(SHORTEST_STEP, |time| if self.rate.is_starting() { time / 2 } else { time });
            self.decides = now + wait.max(SHORTEST_STEP).min(LONGEST_STEP);
        }
    }

    /// Time has passed.
    pub fn on_timer(&mut self, now: Time) {
        let (Some((from, _)), Some(to)) = (self.from, self.to) else { return };
        if now < self.decides {
            return;
        }
        let before = self.rate.cells_per_s();
        let missing = (to - from).saturating_sub(self.came);
        let sent = to - from - std::mem::take(&mut self.trials_lost).min(missing);
        let (delivered, elapsed, round_trip) = (self.came.min(sent), self.elapsed, self.round_trip);
        self.rate.on_step(&Step { sent, delivered, elapsed, now, round_trip });
        self.begin_step(before);
    }

    /// A step begins; the other end is sent the rate unless it is that of `before`.
    fn begin_step(&mut self, before: u32) {
        (self.from, self.to, self.came, self.last) = (None, None, 0, 0);
        if self.rate.cells_per_s() != before {
            self.turn = self.turn.wrapping_add(1);
            self.is_due = true;
            self.known = None;
        }
    }

    /// When [`on_timer`](Watch::on_timer) has something to do.
    pub fn timer(&self) -> Option<Time> {
        self.to.map(|_| self.decides)
    }
}

#[cfg(test)]
mod tests {
    use super::super::total_rate::Stepped;
    use super::*;

    #[test]
    fn a_step_lasts_half_a_round_trip_at_the_start_then_four() {
        let length = |first: u32, ms: u64| step_length(&Stepped::new(first), Some(Duration::from_millis(ms)));
        assert_eq!(length(400, 300), Duration::from_millis(150));
        assert_eq!(length(1000, 300), Duration::from_millis(1200));
        assert_eq!((length(400, 100), length(1000, 900)), (SHORTEST_STEP, LONGEST_STEP));
    }

    #[test]
    fn a_rate_is_tried_for_a_short_step_and_halved_until_its_outcome_is_known() {
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        let mut shape = Shape::new(Box::new(Stepped::new(400)));
        (0..40).for_each(|number| shape.on_sent(at(number), number, true, Duration::from_millis(500), None));
        assert_eq!(shape.pace(), 400);
        shape.on_timer(at(100), 40);
        assert_eq!(shape.pace(), 200);
        (0..40).for_each(|number| shape.on_outcome(number, true));
        shape.on_timer(at(150), 60);
        assert_eq!(shape.pace(), 800);
    }

    #[test]
    fn what_suspects_lose_decides_nothing() {
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        let mut shape = Shape::new(Box::new(Stepped::default()));
        for number in 0..100 {
            match number % 2 {
                0 => shape.on_sent(at(number), number, true, Duration::from_millis(50), None),
                _ => shape.on_trial(at(number), number),
            }
        }
        (0..100).for_each(|number| shape.on_outcome(number, number % 2 == 0));
        // Half of the rate was used by what counts.
        shape.on_timer(at(100), 100);
        assert_eq!((shape.rate().cells_per_s(), shape.timer()), (1000, None));

        let mut watch = Watch::new(Box::new(Stepped::default()));
        watch.is_due = false;
        watch.on_rate_received(at(0));
        (1..=200)
            .filter(|number| number % 10 != 0)
            .for_each(|number| watch.on_cell(at(number), number, at(number), None));
        (0..10).for_each(|_| watch.on_trial_lost());
        watch.on_timer(watch.timer().unwrap());
        assert_eq!(watch.rate().cells_per_s(), 2000, "all others came");
    }

    #[test]
    fn cells_of_other_steps_decide_nothing() {
        let mut shape = Shape::new(Box::new(Stepped::default()));
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        for number in 0..100 {
            shape.on_sent(at(number), number, true, Duration::from_millis(50), None);
        }
        shape.on_timer(at(100), 100);
        for number in 100..200 {
            shape.on_sent(at(number), number, true, Duration::from_millis(50), None);
            shape.on_outcome(number, false);
        }
        assert_eq!(shape.timer(), Some(at(150)));
        (0..100).for_each(|number| shape.on_outcome(number, true));
        shape.on_timer(at(120), 200);
        assert_eq!((shape.rate().cells_per_s(), shape.timer()), (2000, None));
    }

    #[test]
    fn a_cell_that_comes_late_counts_once_and_as_delivered() {
        let mut shape = Shape::new(Box::new(Stepped::default()));
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        for number in 0..100 {
            shape.on_sent(at(number), number, true, Duration::from_millis(900), None);
        }
        (0..60).for_each(|number| shape.on_outcome(number, false));
        (0..60).for_each(|number| shape.on_late(number));
        shape.on_timer(at(100), 100);
        assert_eq!(shape.timer(), Some(at(1000)), "of 40 nothing is known yet");
        (60..100).for_each(|number| shape.on_outcome(number, true));
        shape.on_timer(at(150), 100);
        assert_eq!(shape.rate().cells_per_s(), 2000, "nothing was lost");
    }

    #[test]
    fn the_other_ends_cells_count_from_when_it_knows_its_rate() {
        let mut watch = Watch::new(Box::new(Stepped::default()));
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        watch.is_due = false;
        (0..50).for_each(|number| watch.on_cell(at(number), number, at(number), None));
        assert_eq!(watch.from, None);
        watch.on_rate_received(at(50));
        // Half of 1000 cells a second are lost.
        for number in (50..152).step_by(2) {
            watch.on_cell(at(number), number, at(number), None);
        }
        let decides = watch.timer().unwrap();
        watch.on_timer(decides);
        assert_eq!((watch.rate().cells_per_s(), watch.is_due, watch.turn()), (554, true, 2));
    }

    #[test]
    fn cells_that_came_before_it_learned_that_the_rate_is_known_are_not_lost() {
        let mut watch = Watch::new(Box::new(Stepped::default()));
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        watch.is_due = false;
        (0..100).filter(|number| *number != 55).for_each(|number| watch.on_cell(at(number), number, at(number), None));
        // The report on the cell with the rate has waited; one of those that left since is slow.
        watch.on_rate_received(at(50));
        watch.on_cell(at(101), 55, at(55), None);
        (100..300).for_each(|number| watch.on_cell(at(number), number, at(number), None));
        watch.on_timer(watch.timer().unwrap());
        assert_eq!(watch.rate().cells_per_s(), 2000);
    }
}
