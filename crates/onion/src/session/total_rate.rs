//! How many cells a second leave in all, whatever relays they take: shape, apart from placement.
//!
//! What a relay drops, an accomplice at the other end can see in a rate that reacts to it. So a total rate
//! stands still for a step, and moves by whole factors between steps, or it never moves (the constant class, which
//! also sends when there is nothing to say). Learners move cells between relays at once.
//!
//! A step sends at one rate and ends when the fate of each of its cells is known: a monitor interval of
//! PCC Allegro [Dong et al. 2015], of four round trips where that has 1.7 to 2.2. With `loss` its lost share:
//!
//! ```text
//! rate <- 2 rate                 below half of what once came, if loss <= 1 %
//! rate <- (1.05 - loss) rate     else, at least half of it
//! ```
//!
//! and never up if less than three quarters of what the rate allowed were used. 5 % is what Allegro bears (where the
//! sigmoid of its utility cuts off, T sigmoid(L - 0.05) - x L): below it, loss is the network's; and its greatest trial
//! step (ε_max, from 1 % on). The rest is not Allegro's, which tries two rates and takes the better one. In proportion
//! to what is lost, a rate rests where 5 % are. With a step up of 19 %, and none between 5 and 10 %, sessions that share
//! relays rested where 7 % were lost, and with a cut wherever more than 5 % were, chance made rates dip
//! (`experiments/raiber-more`). It doubles as slow start does, below a threshold that
//! is at first infinite, then half of the highest rate that was delivered (RFC 5681 3.1): after the network was gone
//! for a while, the rate is soon back. The threshold is infinite again after some steps in a row
//! that lost next to nothing ([`SMOOTH`]). Until the first loss, and below [`FIRST_RATE`], a step lasts half a round
//! trip: there was none that an accomplice could have caused. A rate is then tried for such a step, halved until its
//! outcome is known, and left for the one before when more than 5 % are lost.
//!
//! In the first round trip, as the handshake measured it, [`FIRST_WINDOW`] cells leave, but no faster than
//! [`FIRST_RATE`]; a round trip that is not known counts as a second (RFC 6298 2.1). A rate that does not ask how long
//! the way is floods what many begin to use at once: of twenty users who began with 1000 cells a second over twenty
//! relays that take 285 each, eight were not answered for want of room, came later, and had less for a quarter of an
//! hour, since factors keep what is uneven (`experiments/raiber-more`).
//!
//! Cells over relays that are suspects (three packets in a row did not arrive, where most relays' do) count for nothing
//! here: placement asks such a relay from time to time, and what that loses would hold down who sends little, and
//! therefore learns slowly.

use core::fmt::Debug;

use anabranch_control::pacer::Pacer;
use anabranch_control::time::{Duration, Time};
use dyn_clone::DynClone;

use super::receiver::ACK_CELLS;

/// Cells a second at first, at most: a second's are as many as Tor's circuits had under way before they had congestion
/// control (tor-spec 7.3).
pub const FIRST_RATE: u32 = 1000;

/// Cells of the first round trip: as many as Tor's circuits may have under way then, where cells are shorter
/// (`cc_cwnd_init` of its proposal 324). With as many bytes, 45 cells, a megabyte over idle relays took a third longer.
pub const FIRST_WINDOW: u32 = 124;

/// A round trip of which nothing is known (RFC 6298 2.1).
pub(super) const UNKNOWN_ROUND_TRIP: Duration = Duration::SECOND;

/// Cells a second of a first window, over a way of that round trip.
pub fn first_rate(round_trip: Option<Duration>) -> u32 {
    let seconds = round_trip.unwrap_or(UNKNOWN_ROUND_TRIP).as_secs_f64().max(1e-6);
    ((f64::from(FIRST_WINDOW) / seconds) as u32).clamp(LEAST_RATE, FIRST_RATE)
}

/// Never fewer cells a second: a cell each 50 ms finds out soon whether a path is there again.
pub const LEAST_RATE: u32 = 20;

/// Never more: what no relay forwards.
pub const MOST_RATE: u32 = 1_000_000;

/// A step is no shorter.
const SHORTEST_STEP: Duration = Duration::from_millis(100);

/// Nor longer.
const LONGEST_STEP: Duration = Duration::from_millis(2000);

/// Fewer cells say nothing of 5 %.
const LEAST_CELLS: u64 = 20;

/// Cells that may leave at once after a pause: as many as one report is about, so that bursts are no longer than what is
/// answered at once. RFC 9002 7.7 has a paced sender's bursts as long as an initial window, of 10 packets.
const BURST: u64 = ACK_CELLS as u64;

/// What may leave at once covers what a driver's timer of so long lets pass. Linux's TCP sends a millisecond's worth at once
/// (`sk_pacing_shift`), and BBR as much (draft-ietf-ccwg-bbr, send quantum); with another one that is due by then, two.
const GRAIN: Duration = Duration::from_millis(2);

/// What came of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Cells that left in it.
    pub sent: u64,
    /// Those of them that came.
    pub delivered: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// When its last outcome is known: now.
    pub now: Time,
    /// The smoothed round trip then, if one is known.
    pub round_trip: Option<Duration>,
}

impl Step {
    /// Whether it used so much of a rate of `cells_per_s` that its outcome says something of that rate.
    pub fn is_full(&self, cells_per_s: u32) -> bool {
        self.sent as f64 >= USED * f64::from(cells_per_s) * self.elapsed.as_secs_f64().max(1e-3)
    }
}

/// Decides the total rate of one direction.
pub trait TotalRate: Debug + DynClone + Send + Sync {
    /// Cells a second, [`LEAST_RATE`] to [`MOST_RATE`].
    fn cells_per_s(&self) -> u32;

    /// Whether cells leave at that rate though there is nothing to say.
    fn pads(&self) -> bool {
        false
    }

    /// Whether it is not known what the network bears, so that steps are short.
    fn is_starting(&self) -> bool {
        false
    }

    /// The session is answered, after `round_trip` if the handshake measured one: its first cells leave.
    fn on_answered(&mut self, _round_trip: Option<Duration>) {}

    /// A guard or a mailbox that was dead is replaced: that most was lost says nothing of the way that there is now.
    fn on_new_way(&mut self) {}

    /// A step is over.
    fn on_step(&mut self, step: &Step);
}

dyn_clone::clone_trait_object!(TotalRate);

/// A rate that never moves, with padding.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    cells_per_s: u32,
}

impl Constant {
    /// This many cells a second, brought into the bounds of all rates.
    pub fn new(cells_per_s: u32) -> Constant {
        Constant { cells_per_s: cells_per_s.clamp(LEAST_RATE, MOST_RATE) }
    }
}

impl TotalRate for Constant {
    fn cells_per_s(&self) -> u32 {
        self.cells_per_s
    }

    fn pads(&self) -> bool {
        true
    }

    fn on_step(&mut self, _: &Step) {}
}

/// A rate that moves in steps.
#[derive(Clone, Copy, Debug)]
pub struct Stepped {
    /// What is asked for at first.
    most_first: f64,
    rate: f64,
    /// Whether the round trip was not known when it was set.
    guesses: bool,
    /// The highest rate that was delivered; unknown before the first loss.
    reached: f64,
    /// No step has lost more than is borne.
    is_starting: bool,
    /// Whether the last step doubled it.
    has_doubled: bool,
    /// The last steps, which used the rate, grew it by little, and lost next to nothing; and their cells.
    smooth: (u32, u64),
    /// What it was when most cells of a step arrived last.
    before: f64,
}

impl Stepped {
    /// At first at most `cells_per_s`.
    pub fn new(cells_per_s: u32) -> Stepped {
        Stepped {
            most_first: f64::from(cells_per_s),
            rate: f64::from(cells_per_s),
            guesses: false,
            reached: f64::INFINITY,
            is_starting: true,
            has_doubled: false,
            smooth: (0, 0),
            before: 0.0,
        }
    }
}

impl Default for Stepped {
    fn default() -> Stepped {
        Stepped::new(FIRST_RATE)
    }
}

impl TotalRate for Stepped {
    fn cells_per_s(&self) -> u32 {
        (self.rate as u32).clamp(LEAST_RATE, MOST_RATE)
    }

    fn is_starting(&self) -> bool {
        self.is_starting && self.rate < f64::from(FIRST_RATE)
    }

    fn on_answered(&mut self, round_trip: Option<Duration>) {
        self.guesses = round_trip.is_none();
        self.rate = self.most_first.min(f64::from(first_rate(round_trip)));
    }

    fn on_new_way(&mut self) {
        self.rate = self.rate.max(self.before);
        self.has_doubled = false;
    }

    fn on_step(&mut self, step: &Step) {
        if step.sent < LEAST_CELLS {
            return;
        }
        let loss = 1.0 - step.delivered as f64 / step.sent as f64;
        let elapsed = step.elapsed.as_secs_f64().max(1e-3);
        let delivered = step.delivered as f64 / elapsed;
        let is_full = step.sent as f64 >= USED * self.rate * elapsed;
        let creeps = self.rate >= self.reached / 2.0;
        if loss > LEAST_LOSS || !creeps {
            self.smooth = (0, 0);
        } else if is_full {
            self.smooth = (self.smooth.0 + 1, self.smooth.1 + step.sent);
        }
        if self.smooth.0 >= SMOOTH.0 && self.smooth.1 >= SMOOTH.1 {
            // What was reached was less than there is now.
            self.reached = f64::INFINITY;
        }
        let doubles = self.rate < self.reached / 2.0;
        let guessed = std::mem::take(&mut self.guesses);
        if guessed && loss < 0.5 {
            self.rate = self.rate.max(self.most_first.min(f64::from(first_rate(step.round_trip))));
        }
        if loss > MOST_LOSS {
            // In a short step, relays may have had room that is used up now: back to the last rate that lost nothing.
            let was_short = self.is_starting() && self.has_doubled;
            self.is_starting = false;
            if self.has_doubled || self.reached.is_infinite() {
                // What was reached once is not there any more, or was not known.
                self.reached = if was_short { self.rate / 2.0 } else { delivered.max(self.rate / 2.0) };
            }
            // Never by more than half at once: a step may have met what is over already.
            self.rate *= if was_short { 0.5 } else { (1.0 + MOST_LOSS - loss).max(0.5) };
            self.has_doubled = false;
        } else if is_full && !guessed {
            if self.reached.is_finite() {
                self.reached = self.reached.max(delivered);
            }
            self.has_doubled = doubles && loss <= LEAST_LOSS;
            // A short step leads no further than to where sessions once began: what lies beyond may be in a queue yet.
            let most = if self.is_starting() { f64::from(FIRST_RATE) } else { f64::INFINITY };
            self.rate = most.min(self.rate * if self.has_doubled { 2.0 } else { 1.0 + MOST_LOSS - loss });
        }
        self.rate = self.rate.clamp(f64::from(LEAST_RATE), f64::from(MOST_RATE));
        if loss < 0.5 {
            self.before = self.rate;
        }
    }
}

/// What PCC Allegro bears, and its greatest trial step.
const MOST_LOSS: f64 = 0.05;

/// Allegro's least step.
const LEAST_LOSS: f64 = 0.01;

/// After so many steps in a row that lost next to nothing, and cells in them, the rate doubles again: BBR takes three
/// rounds to believe that there is no more (draft-ietf-ccwg-bbr, 5.3.1.2), and of 300 cells that are lost with a
/// probability of 1 % some are, at 95 % (the rule of three).
const SMOOTH: (u32, u64) = (3, 300);

/// Of a step that used less of its rate, nothing is known of that rate (RFC 7661).
const USED: f64 = 0.75;

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
    use super::*;

    fn step(sent: u64, delivered: u64) -> Step {
        Step { sent, delivered, elapsed: Duration::SECOND, now: Time::ZERO, round_trip: None }
    }

    #[test]
    fn the_rate_doubles_until_cells_are_lost_then_is_what_came_and_rises_slowly() {
        let mut rate = Stepped::default();
        rate.on_step(&step(1000, 995));
        assert_eq!(rate.cells_per_s(), 2000);
        rate.on_step(&step(2000, 1950));
        assert_eq!(rate.cells_per_s(), 2050, "2.5 % are lost: no more is doubled");
        rate.on_step(&step(2050, 1896));
        assert_eq!(rate.cells_per_s(), 1998, "7.5 % are lost, of which 5 % are borne");
        rate.on_step(&step(1998, 1499));
        assert_eq!(rate.cells_per_s(), 1599);
        rate.on_step(&step(1599, 78));
        assert_eq!(rate.cells_per_s(), 799, "half at least");
        rate.on_step(&step(799, 799));
        assert_eq!(rate.cells_per_s(), 1599, "below half of what came once");
        rate.on_step(&step(1599, 1599));
        assert_eq!(rate.cells_per_s(), 1679);
        rate.on_step(&step(300, 300));
        assert_eq!(rate.cells_per_s(), 1679, "it was not used");
        rate.on_step(&step(19, 0));
        assert_eq!(rate.cells_per_s(), 1679, "too few");
        (0..40).for_each(|_| rate.on_step(&step(100, 0)));
        assert_eq!(rate.cells_per_s(), LEAST_RATE);
    }

    #[test]
    fn after_an_outage_the_rate_doubles_up_to_half_of_what_it_was() {
        let mut rate = Stepped::new(8000);
        rate.on_step(&step(8000, 6000));
        (0..20).for_each(|_| rate.on_step(&step(100, 0)));
        assert_eq!(rate.cells_per_s(), LEAST_RATE);
        let steps = (0..).take_while(|_| {
            let sent = u64::from(rate.cells_per_s());
            rate.on_step(&step(sent, sent));
            rate.cells_per_s() < 3000
        });
        assert_eq!(steps.count(), 7);
        rate.on_step(&step(5120, 5120));
        assert_eq!(rate.cells_per_s(), (5120.0 * (1.0 + MOST_LOSS)) as u32);
    }

    #[test]
    fn the_first_rate_is_a_window_a_round_trip_and_a_constant_one_is_what_it_is() {
        let ms = |ms: u64| Some(Duration::from_millis(ms));
        let answered = |mut rate: Box<dyn TotalRate>, round_trip: Option<Duration>| {
            rate.on_answered(round_trip);
            rate.cells_per_s()
        };
        let stepped = |round_trip| answered(Box::<Stepped>::default(), round_trip);
        assert_eq!(stepped(ms(400)), 310);
        assert_eq!(stepped(ms(1)), FIRST_RATE);
        assert_eq!(stepped(ms(60_000)), LEAST_RATE);
        assert_eq!(stepped(None), FIRST_WINDOW, "a round trip that is not known counts as a second");
        let mut guess = Stepped::default();
        guess.on_answered(None);
        guess.on_step(&Step { round_trip: ms(200), ..step(124, 124) });
        assert_eq!(guess.cells_per_s(), 620, "until it is");
        assert_eq!(answered(Box::new(Stepped::new(50)), ms(400)), 50, "what was asked for is less");
        assert_eq!(answered(Box::new(Constant::new(900)), ms(400)), 900);
    }

    #[test]
    fn the_rate_doubles_again_after_three_steps_and_300_cells_that_lost_nothing() {
        let mut rate = Stepped::new(200);
        rate.on_step(&step(200, 160));
        assert_eq!((rate.cells_per_s(), rate.is_starting()), (170, false));
        let mut rates = Vec::new();
        for lost in [0, 0, 4, 0, 0, 0, 0] {
            let sent = u64::from(rate.cells_per_s());
            rate.on_step(&step(sent, sent - lost));
            rates.push(rate.cells_per_s());
        }
        assert_eq!(rates, [178, 187, 192, 202, 212, 425, 850]);
        // Half of it was there.
        rate.on_step(&step(850, 430));
        assert_eq!(rate.cells_per_s(), 472);
    }

    #[test]
    fn the_first_loss_at_the_start_leads_back_to_the_rate_that_lost_nothing() {
        let mut rate = Stepped::new(400);
        let length = |rate: &Stepped| step_length(rate, Some(Duration::from_millis(300)));
        rate.on_step(&step(400, 400));
        assert_eq!((rate.cells_per_s(), length(&rate)), (800, Duration::from_millis(150)));
        let mut other = rate;
        other.on_step(&step(800, 800));
        assert_eq!((other.cells_per_s(), length(&other)), (1000, Duration::from_millis(1200)), "no further so fast");
        rate.on_step(&step(800, 736));
        assert_eq!((rate.cells_per_s(), length(&rate)), (400, Duration::from_millis(1200)));
        // There is a way again, after one that was dead.
        (0..10).for_each(|_| rate.on_step(&step(100, 0)));
        assert_eq!(rate.cells_per_s(), LEAST_RATE);
        rate.on_new_way();
        assert_eq!(rate.cells_per_s(), 400);
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
    fn a_constant_rate_moves_for_nothing() {
        let mut rate = Constant::new(300);
        rate.on_step(&step(300, 0));
        assert!(rate.cells_per_s() == 300 && rate.pads());
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
