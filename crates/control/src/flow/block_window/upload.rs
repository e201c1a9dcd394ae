//! `U`: the rate at which ACKs have come in over the last `t_c`, period by period.

use crate::time::{Duration, Seconds};
use crate::units::{Bytes, OctetRate, Octets};

/// Periods in `t_c` at most; a longer one is cut off.
const MAX_PERIODS: u64 = 4096;

/// Periods in a row in which the sender had enough data that show more than the whole span does: a
/// round trip or so. A sender whose data comes in spells would else learn what it can send half a
/// second late, each time.
const SPELL: u32 = 25;

/// One period.
#[derive(Clone, Copy, Debug, Default)]
struct Period {
    acked: u64,
    /// The sender had no more data than it sent.
    unused: bool,
}

/// Measures `U`.
#[derive(Clone, Debug)]
pub struct Upload {
    /// The last periods; a ring.
    periods: Box<[Period]>,
    next: usize,
    filled: usize,
    /// Acknowledged in all of them; wide enough for any number of them.
    acked: u128,
    /// How many of them were unused.
    unused: usize,
    /// How many used ones came last in a row, and what was acknowledged in them.
    spell: (u32, u128),
    /// Acknowledged in the present period.
    present: u64,
    /// The length of a period.
    period: Seconds,
    rate: OctetRate,
    /// What it was at the end of the last whole span.
    kept: OctetRate,
}

impl Upload {
    /// Over the last `span`, in whole periods.
    pub fn new(span: Duration, period: Duration) -> Upload {
        let periods = span.as_nanos().div_ceil(period.as_nanos().max(1)).clamp(1, MAX_PERIODS);
        Upload {
            periods: vec![Period::default(); periods as usize].into(),
            next: 0,
            filled: 0,
            acked: 0,
            unused: 0,
            spell: (0, 0),
            present: 0,
            period: period.seconds(),
            rate: OctetRate::ZERO,
            kept: OctetRate::ZERO,
        }
    }

    /// `bytes` were acknowledged in the present period.
    #[inline]
    pub fn on_acked(&mut self, bytes: Bytes) {
        self.present = self.present.saturating_add(bytes.get());
    }

    /// The present period has ended, and `skipped` more in which nobody looked; `unused` if
    /// the sender was allowed more than it had.
    pub fn end_period(&mut self, unused: bool, skipped: u64) {
        let acked = core::mem::take(&mut self.present);
        self.push(Period { acked, unused });
        for _ in 0..skipped.min(self.periods.len() as u64) {
            self.push(Period { acked: 0, unused });
        }
        let measured = Octets(self.acked as f64) / (self.period * self.filled as f64);
        if self.is_filled() {
            // The ACKs of a sender without data show what it sent, not what it could.
            self.rate = if self.unused > 0 { self.kept.max(measured).max(self.of_spell()) } else { measured };
            self.kept = self.rate;
        } else {
            // What would be kept for long must not be the burst of one period.
            let spread = measured * self.filled as f64 / self.periods.len() as f64;
            self.rate = if self.unused > 0 { spread } else { measured };
        }
    }

    /// The rate of the last spell of used periods, if it is long enough to have one.
    fn of_spell(&self) -> OctetRate {
        let (periods, acked) = self.spell;
        if periods < SPELL { OctetRate::ZERO } else { Octets(acked as f64) / (self.period * f64::from(periods)) }
    }

    fn push(&mut self, period: Period) {
        // A place that was never filled holds nothing.
        let place = &mut self.periods[self.next];
        self.acked -= u128::from(place.acked);
        self.unused -= usize::from(place.unused);
        *place = period;
        self.acked += u128::from(period.acked);
        self.unused += usize::from(period.unused);
        self.spell = if period.unused {
            (0, 0)
        } else {
            (self.spell.0.saturating_add(1), self.spell.1 + u128::from(period.acked))
        };
        self.next = (self.next + 1) % self.periods.len();
        self.filled = (self.filled + 1).min(self.periods.len());
    }

    /// Whether it spans all of `t_c`.
    pub fn is_filled(&self) -> bool {
        self.filled == self.periods.len()
    }

    /// `U`; 0 before the first period has ended.
    #[inline]
    pub fn rate(&self) -> OctetRate {
        self.rate
    }

    /// Forgets all.
    pub fn reset(&mut self) {
        self.periods.fill(Period::default());
        (self.next, self.filled, self.acked, self.unused, self.present) = (0, 0, 0, 0, 0);
        (self.spell, self.rate, self.kept) = ((0, 0), OctetRate::ZERO, OctetRate::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(10);

    fn upload() -> Upload {
        Upload::new(Duration::from_millis(50), PERIOD)
    }

    #[test]
    fn the_rate_is_what_came_in_over_the_last_span() {
        let mut upload = upload();
        for kilobytes in [1, 2, 3, 4, 5, 6, 7] {
            upload.on_acked(Bytes::new(kilobytes * 1000));
            upload.end_period(false, 0);
        }
        // 3 + 4 + 5 + 6 + 7 kB in 50 ms.
        assert!((upload.rate().0 - 500_000.0).abs() < 1e-6, "{}", upload.rate().0);
        upload.end_period(false, 1);
        assert!((upload.rate().0 - 360_000.0).abs() < 1e-6, "{}", upload.rate().0);
        upload.end_period(false, u64::MAX);
        assert_eq!(upload.rate().0, 0.0);
    }

    #[test]
    fn before_the_span_is_full_it_counts_what_there_is() {
        let mut upload = upload();
        upload.on_acked(Bytes::new(1000));
        upload.end_period(false, 0);
        assert!((upload.rate().0 - 100_000.0).abs() < 1e-6);
        assert!(!upload.is_filled());
        upload.end_period(false, 0);
        assert!((upload.rate().0 - 50_000.0).abs() < 1e-6);
    }

    #[test]
    fn unused_periods_raise_the_rate_but_do_not_lower_it() {
        let mut upload = upload();
        let mut pass = |kilobytes: u64, unused| {
            upload.on_acked(Bytes::new(kilobytes * 1000));
            upload.end_period(unused, 0);
            upload.rate().0
        };
        (0..5).for_each(|_| _ = pass(10, false));
        let low = (0..20).map(|_| pass(1, true)).last().unwrap();
        assert!((low - 1_000_000.0).abs() < 1e-6, "{low}");
        let high = (0..5).map(|_| pass(20, true)).last().unwrap();
        assert!((high - 2_000_000.0).abs() < 1e-6, "{high}");
        let used = (0..5).map(|_| pass(1, false)).last().unwrap();
        assert!((used - 100_000.0).abs() < 1e-6, "{used}");
    }

    #[test]
    fn the_burst_of_one_period_is_not_kept_for_the_rate() {
        let mut upload = upload();
        upload.on_acked(Bytes::new(10_000));
        upload.end_period(false, 0);
        assert!((upload.rate().0 - 1_000_000.0).abs() < 1e-6);
        (0..4).for_each(|_| upload.end_period(true, 0));
        assert!((upload.rate().0 - 200_000.0).abs() < 1e-6, "{}", upload.rate().0);
    }

    #[test]
    fn a_spell_in_which_there_was_enough_to_send_raises_the_rate_at_once() {
        let mut upload = Upload::new(Duration::from_millis(500), PERIOD);
        let mut pass = |bytes: u64, unused| {
            upload.on_acked(Bytes::new(bytes));
            upload.end_period(unused, 0);
            upload.rate().0
        };
        (0..50).for_each(|_| _ = pass(1000, true));
        let short = (1..SPELL).map(|_| pass(3000, false)).last().unwrap();
        assert!(short < 200_000.0, "{short}");
        assert!((pass(3000, false) - 300_000.0).abs() < 1e-6);
    }
}
