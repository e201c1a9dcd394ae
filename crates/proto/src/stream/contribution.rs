//! What a viewer is believed to pass on.
//!
//! What it announces orders nothing but its first join: nobody holds more than one stream's worth of
//! children before others have said that they get what it should push. Each period in which it holds
//! most of what it may, and children got nearly all, doubles that, up to what it announced; a period in
//! which they did not cuts it to what they got, and it grows slowly from there (additive increase,
//! multiplicative decrease; ours: the thesis learns rates by exploration).
//!
//! Only children that the server has named to it are believed, and each of them no more than it can
//! know: what a slice has packets in a period, and whether something was forged. What it has not got itself it cannot
//! pass on: only what was there is counted ([`supply`](super::tracker::supply)). What is forged counts by heads: who
//! most of its children accuse is to be excluded.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::content::ClientId;
use super::feeds::SILENT_PACKETS;
use super::message::FeedReport;

/// Who pushes this share of what it should may hold more. Losses on the way, of a few percent, are not
/// its fault.
const GOOD: f64 = 0.95;

/// Who pushes less than this holds less.
const BAD: f64 = 0.85;

/// Reports tell of it only if they expected this many packets together.
const ENOUGH: f64 = 50.0;

/// What a child has waited for in vain that says that nothing comes.
const MISSED: f64 = SILENT_PACKETS as f64 + 1.0;

/// Children that miss it within [`SILENCE_WINDOW`] until it is suspect.
const SILENT_CHILDREN: usize = 2;
const SILENCE_WINDOW: Duration = Duration::from_millis(1000);

/// Who is suspect is asked whether it is there, and has this long to answer: two long round trips.
pub(super) const ANSWER: Duration = Duration::from_millis(500);

/// Who was cut may hold one child more after this, or try again with one child if it may hold nobody.
/// Each time in a row that it is cut to nothing doubles the wait.
const RETRY: Duration = Duration::from_millis(10_000);
const MOST_DOUBLINGS: u32 = 6;

/// What comes of more children, or of fewer, shows only after this: a report tells of the period before the last, and
/// who has to go is served until another pushes. What is told sooner is of what was before: it would double again what
/// has just been doubled, and cut again what has just been cut.
const SETTLING: Duration = Duration::from_millis(2500);

/// How often in a row a cut goes further than what children got. Who was cut to what its line bears brings all after
/// that; who brings no more although it has fewer children drops what it should pass on.
const MOST_CUTS: u32 = 3;

/// How long an accusation of forgery counts: some reports.
const ACCUSATION: Duration = Duration::from_millis(5000);

/// Accusers until somebody may be excluded, or left out as idle: no single liar, nor two, can do it.
const LEAST_ACCUSERS: usize = 3;

/// One viewer's.
#[derive(Clone, Debug)]
pub struct Contribution {
    announced: Rate,
    /// Children that it may have, whatever it announced.
    proven: usize,
    /// Up to where that doubles.
    threshold: usize,
    expected: f64,
    received: f64,
    /// Children that accuse it of forging, and when they last did.
    accusers: Vec<(ClientId, Time)>,
    /// Children that miss it, and since when.
    silent_to: Vec<(ClientId, Time)>,
    /// When it may hold one more.
    retry_at: Time,
    /// Until when reports tell of what was before its places changed.
    settles_at: Time,
    /// How often in a row it was cut, and how often to nothing.
    cuts: u32,
    failures: u32,
    /// Children that it has lost so.
    in_vain: usize,
    /// Since when several children miss it, if it was not heard of since.
    suspect_since: Option<Time>,
    /// It has left something of the server's unanswered for a probe timeout.
    is_unanswering: bool,
    /// It was asked whether it is there, and has not answered.
    is_gone: bool,
}

impl Contribution {
    /// Of somebody who announces `upload`, and may have `proven` children before anything is known: one
    /// stream's worth, unless it is known already.
    pub fn new(announced: Rate, proven: usize) -> Contribution {
        Contribution {
            announced,
            proven,
            threshold: usize::MAX,
            expected: 0.0,
            received: 0.0,
            accusers: Vec::new(),
            silent_to: Vec::new(),
            retry_at: Time::ZERO,
            settles_at: Time::ZERO,
            cuts: 0,
            failures: 0,
            in_vain: 0,
            suspect_since: None,
            is_unanswering: false,
            is_gone: false,
        }
    }

    /// Whether several of its children miss it.
    pub fn is_suspect(&self) -> bool {
        self.suspect_since.is_some()
    }

    /// What it says that it can send.
    pub fn announced(&self) -> Rate {
        self.announced
    }

    /// Children that it may have, of whom what it announced would bear `announced`, and `held` it has.
    pub fn places(&self, announced: usize, held: usize) -> usize {
        let most = match self.suspect_since {
            _ if self.is_gone => 0,
            Some(_) => held,
            None => usize::MAX,
        };
        announced.min(self.proven).min(most)
    }

    /// Whether all have left it whom it had, since little or nothing came of it. One child or two do not show it: they may lie, or
    /// have left.
    pub fn is_idle(&self) -> bool {
        self.proven == 0 && self.in_vain >= LEAST_ACCUSERS
    }

    /// A child says what came of a slice in a period in which a slice has at most `packets`, and of which the `supplied`
    /// part was there to be passed on.
    pub fn on_feed(&mut self, packets: u32, supplied: f64, report: &FeedReport) {
        if report.expected == 0 || supplied <= 0.0 {
            return;
        }
        let due = f64::from(u32::from(report.expected).min(packets)) * supplied;
        // As large a share of what is counted as of what it told.
        let received = f64::from(report.received) / (f64::from(report.expected) * supplied);
        self.expected += due;
        self.received += due * received.min(1.0);
    }

    /// A child accuses it of forging.
    pub fn on_accused(&mut self, now: Time, child: ClientId) {
        self.accusers.retain(|&(accuser, at)| accuser != child && now.since(at) < ACCUSATION);
        self.accusers.push((child, now));
    }

    /// Whether it is to be excluded, which has, or has lately had, children for as many as `children`
    /// different viewers: most of them accuse it.
    pub fn is_forger(&mut self, now: Time, children: usize) -> bool {
        self.accusers.retain(|&(_, at)| now.since(at) < ACCUSATION);
        self.accusers.len() >= LEAST_ACCUSERS && 2 * self.accusers.len() > children
    }

    /// A child says that nothing comes of a slice of which the `supplied` part was there.
    pub fn on_missed(&mut self, supplied: f64) {
        self.expected += MISSED * supplied;
    }

    /// A child says that nothing comes from it: whether it has become suspect by that. Nobody is given to
    /// it then before it is heard of again; whom it has says for itself what it misses.
    pub fn on_silent(&mut self, now: Time, child: ClientId) -> bool {
        self.on_missed(1.0);
        self.silent_to.retain(|&(other, at)| other != child && now.since(at) < SILENCE_WINDOW);
        self.silent_to.push((child, now));
        let becomes_suspect = self.suspect_since.is_none() && self.silent_to.len() >= SILENT_CHILDREN;
        if becomes_suspect {
            self.suspect_since = Some(now);
        }
        becomes_suspect
    }

    /// Whether something of the server's has waited for its answer for a probe timeout.
    pub fn is_unanswering(&self) -> bool {
        self.is_unanswering
    }

    /// It has left something of the server's unanswered for a probe timeout, or has answered again.
    pub fn set_unanswering(&mut self, is_unanswering: bool) {
        self.is_unanswering = is_unanswering;
    }

    /// Whether it has just been suspect for so long without an answer that it is believed to be gone.
    pub fn give_up(&mut self, now: Time) -> bool {
        let is_late = |since| self.is_unanswering || now >= since + ANSWER;
        let becomes_gone = !self.is_gone && self.suspect_since.is_some_and(is_late);
        self.is_gone |= becomes_gone;
        becomes_gone
    }

    /// It has said something: whether it was suspect.
    pub fn on_heard(&mut self) -> bool {
        (self.is_gone, self.is_unanswering) = (false, false);
        self.suspect_since.take().is_some()
    }

    /// The end of a period in which it held `held` of `places` children: whether it may hold more or
    /// less from now on.
    pub fn review(&mut self, now: Time, places: usize, held: usize) -> bool {
        let before = self.proven;
        let is_full = held.saturating_mul(5) >= self.proven.min(places).saturating_mul(4);
        let is_due = now >= self.retry_at;
        if now < self.settles_at {
            (self.expected, self.received) = (0.0, 0.0);
        }
        // Few children tell little in a period, but enough if nothing comes of all that they miss.
        let enough = ENOUGH.min(MISSED * self.proven.max(1) as f64);
        if self.expected < enough {
            if self.proven == 0 && is_due {
                self.proven = 1;
            }
            return self.proven != before;
        }
        let share = self.received / self.expected;
        (self.expected, self.received) = (0.0, 0.0);
        if share < BAD {
            // Those who missed it have left by now.
            let children = (held + self.silent_to.len()).min(self.proven);
            self.cuts = (self.cuts + 1).min(MOST_CUTS);
            // Who serves most of what a single child is to get goes on with it.
            let left = |cuts: u32| (children as f64 * (0..cuts).map(|_| share).product::<f64>()).round() as usize;
            (self.threshold, self.proven) = (left(1), left(self.cuts));
            self.in_vain = self.in_vain.saturating_add(children - self.proven);
            if self.proven == 0 {
                self.threshold = 0;
                self.failures = (self.failures + 1).min(MOST_DOUBLINGS);
                self.in_vain = self.in_vain.saturating_add(usize::from(children == 0));
            }
            self.retry_at = now + RETRY * (1 << self.failures.saturating_sub(1));
        } else if share >= GOOD {
            (self.cuts, self.failures, self.in_vain) = (0, 0, 0);
            if is_full && self.proven < self.threshold {
                self.proven = self.proven.saturating_mul(2).min(self.threshold);
            } else if is_full && is_due {
                self.proven = self.proven.saturating_add(1);
                self.threshold = self.proven;
                self.retry_at = now + RETRY;
            }
        }
        if self.proven != before {
            self.settles_at = now + SETTLING;
        }
        self.proven != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(1000 * seconds)
    }

    fn one() -> Contribution {
        Contribution::new(Rate::from_bits_per_sec(3_000_000), 20)
    }

    fn said(expected: u16, received: u16) -> FeedReport {
        FeedReport { slice: 0, parent: Some(ClientId(99)), expected, received }
    }

    /// A period in which `children` children say that this share of ten packets each came.
    fn period(contribution: &mut Contribution, children: u32, share: f64) {
        for _ in 0..children {
            let received = (100.0 * share) as u16;
            contribution.on_feed(10, 1.0, &said(100, received));
        }
    }

    #[test]
    fn places_double_with_delivery_and_grow_slowly_after_a_cut() {
        let mut contribution = one();
        assert_eq!(contribution.places(1000, 0), 20);
        period(&mut contribution, 20, 1.0);
        assert!(contribution.review(at(1), 20, 20));
        assert_eq!(contribution.places(1000, 20), 40);
        period(&mut contribution, 40, 0.7);
        contribution.review(at(4), 40, 40);
        assert_eq!(contribution.places(1000, 40), 28);
        for second in 5..=24 {
            period(&mut contribution, 28, 1.0);
            let places = contribution.places(1000, 0);
            contribution.review(at(second), places, places);
        }
        assert_eq!(contribution.places(1000, 0), 30, "one each ten seconds");
    }

    #[test]
    fn what_was_before_a_change_neither_doubles_nor_cuts_again() {
        let places = |share: f64| {
            let mut contribution = one();
            let reviewed = (1..=7).map(|second| {
                period(&mut contribution, 20, share);
                let held = contribution.places(1000, 0);
                contribution.review(at(second), held, held);
                contribution.places(1000, 0)
            });
            reviewed.collect::<Vec<_>>()
        };
        assert_eq!(places(1.0), [40, 40, 40, 80, 80, 80, 160]);
        // What a line bears shows in one cut: it is left with that.
        assert_eq!(places(0.8)[..3], [16, 16, 16]);
    }

    #[test]
    fn who_brings_no_more_to_fewer_children_is_cut_ever_further_and_has_lost_them_all_in_the_end() {
        let mut contribution = one();
        let mut left = Vec::new();
        for cut in 0..5 {
            let held = contribution.places(1000, 0);
            period(&mut contribution, 20, 0.7);
            contribution.review(at(1 + 3 * cut), held, held);
            left.push((contribution.places(1000, 0), contribution.is_idle()));
        }
        assert_eq!(left, [(14, false), (7, false), (2, false), (1, false), (0, true)]);
        // Who brings all to those that it is left with may soon have as many as it bore.
        let mut overloaded = one();
        for (second, share) in [(1, 0.7), (4, 0.7), (7, 1.0), (10, 1.0), (14, 1.0)] {
            let held = overloaded.places(1000, 0);
            period(&mut overloaded, 20, share);
            overloaded.review(at(second), held, held);
        }
        assert_eq!(overloaded.places(1000, 0), 11, "at first 10 of 14, then one more after a while");
    }

    #[test]
    fn nobody_is_to_blame_for_what_it_has_not_got_itself() {
        let mut contribution = one();
        // Of slices of which it had half, half came; of others all, but of one nothing.
        for (supplied, received) in [(0.5, 5), (0.5, 6), (1.0, 10), (0.0, 0), (1.0, 0)] {
            (0..4).for_each(|_| contribution.on_feed(10, supplied, &said(10, received)));
        }
        let share = contribution.received / contribution.expected;
        assert!((share - 2.0 / 3.0).abs() < 1e-9, "of 30 packets that were there 20 came: {share}");
    }

    #[test]
    fn who_holds_few_of_its_places_does_not_get_more() {
        let mut contribution = one();
        period(&mut contribution, 10, 1.0);
        assert!(!contribution.review(at(1), 20, 10));
    }

    #[test]
    fn who_pushes_nothing_holds_nobody_and_waits_longer_each_time() {
        let mut contribution = one();
        let mut tries = Vec::new();
        for second in 1..200 {
            // Whoever it gets misses it within the second.
            for child in 0..contribution.places(20, 0) as u32 {
                contribution.on_silent(at(second), ClientId(child));
            }
            contribution.on_heard();
            contribution.review(at(second), 20, 0);
            if contribution.places(20, 0) > 0 {
                tries.push(second);
            }
        }
        // Found out in the next second each time, and left alone for 10, 20, 40 and 80 s.
        assert_eq!(tries, [11, 32, 73, 154]);
    }

    #[test]
    fn a_single_child_shows_nobody_to_be_idle_but_three_do() {
        let mut contribution = one();
        // One child gets four fifths: it keeps its parent.
        contribution.proven = 1;
        period(&mut contribution, 5, 0.8);
        contribution.review(at(1), 20, 1);
        assert_eq!((contribution.places(20, 1), contribution.is_idle()), (1, false));
        // Each try with a child that gets nothing counts; one that gets all is forgiven everything before.
        for (second, share) in [(2, 0.0), (20, 0.0), (50, 1.0), (60, 0.0), (90, 0.0)] {
            contribution.proven = 1;
            period(&mut contribution, 5, share);
            contribution.review(at(second), 20, 1);
            assert!(!contribution.is_idle(), "at {second} s");
        }
        contribution.proven = 1;
        period(&mut contribution, 5, 0.0);
        contribution.review(at(150), 20, 1);
        assert!(contribution.is_idle());
        // A free rider has many children at first.
        let mut rider = one();
        period(&mut rider, 5, 0.0);
        rider.review(at(1), 20, 5);
        assert!(rider.is_idle());
    }

    #[test]
    fn one_liar_can_say_no_more_than_its_slices_bear() {
        let mut contribution = one();
        period(&mut contribution, 19, 1.0);
        contribution.on_feed(10, 1.0, &said(u16::MAX, 0));
        (0..9).for_each(|_| contribution.on_accused(at(1), ClientId(19)));
        assert!(contribution.review(at(1), 20, 20), "it grows nevertheless");
        assert!(!contribution.is_forger(at(1), 20));
    }

    #[test]
    fn most_children_together_have_a_forger_excluded() {
        let mut contribution = one();
        for child in 0..3 {
            contribution.on_accused(at(1), ClientId(child));
            contribution.on_accused(at(2), ClientId(child));
        }
        assert!(!contribution.is_forger(at(2), 6));
        assert!(contribution.is_forger(at(2), 5));
        assert!(!contribution.is_forger(at(8), 5), "that was long ago");
    }
}
