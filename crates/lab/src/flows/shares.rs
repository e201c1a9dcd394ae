//! Each flow's share of time: a second in which it is on with `n - 1` others counts as
//! `1 / n` s. What a flow delivers over its share, over the bottleneck's rate, is 1 where
//! each gets an equal part of a link that is always busy, however many are on.

use anabranch_control::time::{Duration, Time};

/// Counts the shares.
#[derive(Clone, Debug)]
pub struct Shares {
    /// Share of a flow that is always on, in s, until `since`.
    clock: f64,
    since: Time,
    active: u32,
    flows: Vec<Share>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// The clock when it went on, while it is on.
    from: Option<f64>,
    total: f64,
}

impl Shares {
    /// For `flows`, none of which is on.
    pub fn new(flows: usize) -> Shares {
        Shares { clock: 0.0, since: Time::ZERO, active: 0, flows: vec![Share::default(); flows] }
    }

    /// A flow is on, or off, from `now` on.
    pub fn note(&mut self, now: Time, flow: usize, on: bool) {
        if self.flows[flow].from.is_some() == on {
            return;
        }
        if self.active > 0 {
            self.clock += now.since(self.since).as_secs_f64() / f64::from(self.active);
        }
        self.since = now;
        let share = &mut self.flows[flow];
        match share.from.take() {
            Some(from) => {
                share.total += self.clock - from;
                self.active -= 1;
            }
            None => {
                share.from = Some(self.clock);
                self.active += 1;
            }
        }
    }

    /// A flow's share until it last went off.
    pub fn of(&self, flow: usize) -> Duration {
        Duration::from_secs_f64(self.flows[flow].total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_with_another_counts_half() {
        let mut shares = Shares::new(3);
        let at = Time::from_secs_f64;
        shares.note(at(1.0), 0, true);
        shares.note(at(2.0), 0, true);
        shares.note(at(3.0), 1, true);
        shares.note(at(7.0), 0, false);
        shares.note(at(8.0), 1, false);
        shares.note(at(9.0), 1, true);
        shares.note(at(9.5), 1, false);
        assert_eq!(shares.of(0).as_secs_f64(), 2.0 + 4.0 / 2.0);
        assert_eq!(shares.of(1).as_secs_f64(), 4.0 / 2.0 + 1.0 + 0.5);
        assert_eq!(shares.of(2), Duration::ZERO);
    }
}
