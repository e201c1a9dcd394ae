//! What a viewer is believed to pass on.
//!
//! What it announces orders nothing but its first join: nobody holds more than one stream's worth of
//! children before others have said that they get what it should push. Each second in which it holds
//! most of what it may, and children got nearly all, doubles that, up to what it announced; a second in
//! which they did not cuts it to what they got (ours; the thesis learns rates by exploration).

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::content::ClientId;
use super::message::ParentReport;

/// Who pushes this share of what it should may hold more. Losses on the way, of a few percent, are not
/// its fault.
const GOOD: f64 = 0.95;

/// Who pushes less than this holds less.
const BAD: f64 = 0.85;

/// Reports tell of it only if they expected this many packets together.
const ENOUGH: u32 = 50;

/// Children that miss it within [`SILENCE_WINDOW`] until it is suspect.
const SILENT_CHILDREN: usize = 2;
const SILENCE_WINDOW: Duration = Duration::from_millis(1000);

/// Who is suspect is asked whether it is there, and has this long to answer: two long round trips.
const ANSWER: Duration = Duration::from_millis(500);

/// Who may hold nobody may try again with one child after this.
const RETRY: Duration = Duration::from_millis(10_000);

/// One viewer's.
#[derive(Clone, Debug)]
pub struct Contribution {
    announced: Rate,
    /// Children that it may have, whatever it announced.
    proven: usize,
    expected: u32,
    received: u32,
    forged: u32,
    /// Children that miss it, and since when.
    silent_to: Vec<(ClientId, Time)>,
    /// When it may hold somebody again.
    retry_at: Time,
    /// Since when several children miss it, if it was not heard of since.
    suspect_since: Option<Time>,
    /// It was asked whether it is there, and has not answered.
    is_gone: bool,
}

impl Contribution {
    /// Of somebody who announces `upload`, in a stream of `slices` slices.
    pub fn new(announced: Rate, slices: usize) -> Contribution {
        Contribution {
            announced,
            proven: slices,
            expected: 0,
            received: 0,
            forged: 0,
            silent_to: Vec::new(),
            retry_at: Time::ZERO,
            suspect_since: None,
            is_gone: false,
        }
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

    /// A child says what came from it.
    pub fn on_report(&mut self, report: &ParentReport) {
        self.expected = self.expected.saturating_add(u32::from(report.expected));
        self.received = self.received.saturating_add(u32::from(report.received.min(report.expected)));
        self.forged = self.forged.saturating_add(u32::from(report.forged));
    }

    /// A child says that nothing comes from it: whether it has become suspect by that. Nobody is given to
    /// it then before it is heard of again; whom it has says for itself what it misses.
    pub fn on_silent(&mut self, now: Time, child: ClientId) -> bool {
        self.silent_to.retain(|&(other, at)| other != child && now.since(at) < SILENCE_WINDOW);
        self.silent_to.push((child, now));
        let becomes_suspect = self.suspect_since.is_none() && self.silent_to.len() >= SILENT_CHILDREN;
        if becomes_suspect {
            self.suspect_since = Some(now);
        }
        becomes_suspect
    }

    /// Whether it has just been suspect for so long without an answer that it is believed to be gone.
    pub fn give_up(&mut self, now: Time) -> bool {
        let becomes_gone = !self.is_gone && self.suspect_since.is_some_and(|since| now >= since + ANSWER);
        self.is_gone |= becomes_gone;
        becomes_gone
    }

    /// It has said something: whether it was suspect.
    pub fn on_heard(&mut self) -> bool {
        self.is_gone = false;
        self.suspect_since.take().is_some()
    }

    fn begin_again(&mut self, now: Time, proven: usize) {
        self.proven = proven;
        self.retry_at = now + RETRY;
        (self.expected, self.received) = (0, 0);
    }

    /// The end of a period in which it held `held` of `places` children: whether it may hold more or
    /// less from now on.
    pub fn review(&mut self, now: Time, places: usize, held: usize) -> bool {
        let before = self.proven;
        if self.expected < ENOUGH {
            if self.proven == 0 && now >= self.retry_at {
                self.proven = 1;
            }
            return self.proven != before;
        }
        let share = f64::from(self.received) / f64::from(self.expected);
        (self.expected, self.received) = (0, 0);
        if share >= GOOD && held.saturating_mul(5) >= self.proven.min(places).saturating_mul(4) {
            self.proven = self.proven.saturating_mul(2);
        } else if share < BAD {
            self.begin_again(now, (held as f64 * share) as usize);
        }
        self.proven != before
    }
}
