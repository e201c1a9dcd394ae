//! One alarm for each flow, in order of time.
//!
//! An instant that moves to later, as that of a probe does with each ACK, moves nothing here:
//! the alarm comes too early, once, and is then set again.

use std::collections::BTreeSet;

use anabranch_control::time::Time;

#[derive(Debug, Default)]
pub struct Timers(BTreeSet<(Time, u32)>);

/// When a flow's alarm is set to.
pub type Alarm = Option<Time>;

impl Timers {
    /// Flow `of` shall be woken at `due` at the latest.
    #[inline]
    pub fn set(&mut self, of: u32, alarm: &mut Alarm, due: Option<Time>) {
        let Some(due) = due else { return };
        match *alarm {
            Some(set) if set <= due => {}
            old => {
                if let Some(old) = old {
                    self.0.remove(&(old, of));
                }
                self.0.insert((due, of));
                *alarm = Some(due);
            }
        }
    }

    /// Forgets flow `of`.
    pub fn clear(&mut self, of: u32, alarm: &mut Alarm) {
        if let Some(set) = alarm.take() {
            self.0.remove(&(set, of));
        }
    }

    /// When the first alarm is.
    pub fn first(&self) -> Time {
        self.0.first().map_or(Time::MAX, |(at, _)| *at)
    }

    /// The first alarm, if its time has come; whoever it wakes sets it again.
    pub fn pop(&mut self, now: Time) -> Option<u32> {
        (self.first() <= now).then(|| self.0.pop_first().map(|(_, of)| of)).flatten()
    }
}
