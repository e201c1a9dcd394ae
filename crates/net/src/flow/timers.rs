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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_comes_at_the_earliest_instant_that_was_asked_for_and_once() {
        let at = Time::from_nanos;
        let (mut timers, mut one, mut two) = (Timers::default(), None, None);
        timers.set(1, &mut one, Some(at(50)));
        timers.set(2, &mut two, Some(at(40)));
        timers.set(1, &mut one, Some(at(70)));
        timers.set(1, &mut one, None);
        assert_eq!((timers.first(), one), (at(40), Some(at(50))));
        timers.set(1, &mut one, Some(at(30)));
        assert_eq!(timers.pop(at(29)), None);
        assert_eq!([timers.pop(at(60)), timers.pop(at(60)), timers.pop(at(60))], [Some(1), Some(2), None]);
        timers.set(1, &mut None, Some(at(80)));
        timers.clear(1, &mut Some(at(80)));
        assert_eq!(timers.first(), Time::MAX);
    }
}
