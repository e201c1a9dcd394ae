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

use anabranch_control::time::{Duration, Time};
use dyn_clone::DynClone;

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

/// Fewer cells say nothing of 5 %.
pub(super) const LEAST_CELLS: u64 = 20;

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
        rate.on_step(&step(400, 400));
        assert_eq!((rate.cells_per_s(), rate.is_starting()), (800, true));
        let mut other = rate;
        other.on_step(&step(800, 800));
        assert_eq!((other.cells_per_s(), other.is_starting()), (1000, false), "no further so fast");
        rate.on_step(&step(800, 736));
        assert_eq!((rate.cells_per_s(), rate.is_starting()), (400, false));
        // There is a way again, after one that was dead.
        (0..10).for_each(|_| rate.on_step(&step(100, 0)));
        assert_eq!(rate.cells_per_s(), LEAST_RATE);
        rate.on_new_way();
        assert_eq!(rate.cells_per_s(), 400);
    }

    #[test]
    fn a_constant_rate_moves_for_nothing() {
        let mut rate = Constant::new(300);
        rate.on_step(&step(300, 0));
        assert!(rate.cells_per_s() == 300 && rate.pads());
    }
}
