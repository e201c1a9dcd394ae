//! What a viewer says of itself: its last report, and what it has missed lately.

use anabranch_control::time::{Duration, Time};

use super::message::Report;

/// What was missed counts for so long, and for half of that at least.
pub const LATELY: Duration = Duration::from_millis(10_000);

/// Packets that went to players and that came too late for them, both since the beginning.
#[derive(Clone, Copy, Debug, Default)]
struct Packets {
    played: u64,
    skipped: u64,
}

/// What a viewer has said.
#[derive(Clone, Debug)]
pub struct ReportHistory {
    last: Option<Report>,
    /// What it had said when what counts as lately began.
    before: Packets,
    /// What it said at some time since.
    between: Packets,
    /// When that was.
    between_at: Time,
}

impl ReportHistory {
    /// Of a viewer that comes now, and has said nothing.
    pub(super) fn new(now: Time) -> ReportHistory {
        ReportHistory { last: None, before: Packets::default(), between: Packets::default(), between_at: now }
    }

    /// It says how it fares; what it says of its parents is not kept.
    pub(super) fn on_report(&mut self, now: Time, report: &Report) {
        let Report { played, skipped, .. } = *report;
        if now.since(self.between_at) >= LATELY / 2 {
            self.before = self.between;
            self.between = Packets { played, skipped };
            self.between_at = now;
        }
        self.last = Some(Report { feeds: Vec::new(), forgers: Vec::new(), ..*report });
    }

    /// Its last report, without what it said of its parents.
    pub fn last(&self) -> Option<&Report> {
        self.last.as_ref()
    }

    /// Whether it has said that its players got nothing and miss nothing since the beginning.
    pub fn has_nothing(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.played == 0 && last.skipped == 0)
    }

    /// Of the packets that were due [lately](LATELY), the part that came too late; 0 if none was due.
    pub fn missed_lately(&self) -> f64 {
        let Some(last) = &self.last else { return 0.0 };
        // Viewers may say what they like: a count that falls is one that has not grown.
        let played = last.played.saturating_sub(self.before.played) as f64;
        let skipped = last.skipped.saturating_sub(self.before.skipped) as f64;
        if skipped > 0.0 { skipped / (played + skipped) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_millis(1000 * seconds)
    }

    fn report(played: u64, skipped: u64) -> Report {
        Report { played, skipped, ..Report::default() }
    }

    #[test]
    fn what_was_missed_in_the_beginning_is_forgotten_after_a_while() {
        let mut reports = ReportHistory::new(at(0));
        assert_eq!(reports.missed_lately(), 0.0);
        let missed = (1..=20).map(|second| {
            reports.on_report(at(second), &report(100 * second - 50, 50));
            reports.missed_lately()
        });
        let missed: Vec<f64> = missed.collect();
        assert_eq!((missed[0], missed[4], missed[8]), (0.5, 0.1, 50.0 / 900.0));
        assert_eq!(missed[9..], [0.0; 11]);
    }

    #[test]
    fn what_is_missed_after_an_hour_without_misses_shows_at_once() {
        let mut reports = ReportHistory::new(at(0));
        (1..=3600).for_each(|second| reports.on_report(at(second), &report(100 * second, 0)));
        assert_eq!(reports.missed_lately(), 0.0);
        reports.on_report(at(3601), &report(360_000, 100));
        assert!((0.08..0.2).contains(&reports.missed_lately()), "{}", reports.missed_lately());
    }

    #[test]
    fn counts_that_fall_or_are_absurd_are_no_share_beyond_one() {
        let mut reports = ReportHistory::new(at(0));
        for (second, played, skipped) in [(1, u64::MAX, u64::MAX), (9, 0, 0), (18, 0, u64::MAX), (27, u64::MAX, 5)] {
            reports.on_report(at(second), &report(played, skipped));
            assert!((0.0..=1.0).contains(&reports.missed_lately()), "{second} {}", reports.missed_lately());
        }
    }
}
