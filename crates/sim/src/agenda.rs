//! Things in the order of their times, and of their adding within one time, whatever their size: for what is planned and
//! for small worlds of tests. What happens millions of times goes through an [`EventQueue`](crate::event_queue).

use std::collections::BTreeMap;

use anabranch_control::time::Time;

/// What is to come.
#[derive(Clone, Debug)]
pub struct Agenda<T> {
    to_come: BTreeMap<(Time, u64), T>,
    added: u64,
    /// When the thing happened that was taken last.
    now: Time,
}

impl<T> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { to_come: BTreeMap::new(), added: 0, now: Time::ZERO }
    }
}

impl<T> Agenda<T> {
    /// Adds a thing that happens at `at`.
    ///
    /// # Panics
    ///
    /// If `at` is before the thing that was taken last: time does not go back.
    pub fn add(&mut self, at: Time, thing: T) {
        assert!(at >= self.now, "a thing at {at} is before now, {}", self.now);
        self.added += 1;
        self.to_come.insert((at, self.added), thing);
    }

    /// When the next thing happens.
    pub fn next_at(&self) -> Option<Time> {
        self.to_come.first_key_value().map(|(&(at, _), _)| at)
    }

    /// Takes the next thing.
    pub fn take(&mut self) -> Option<(Time, T)> {
        let ((at, _), thing) = self.to_come.pop_first()?;
        self.now = at;
        Some((at, thing))
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.to_come.is_empty()
    }

    /// Forgets what `keeps` says no to.
    pub fn retain(&mut self, mut keeps: impl FnMut(&T) -> bool) {
        self.to_come.retain(|_, thing| keeps(thing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_nanos(seconds * 1_000_000_000)
    }

    #[test]
    fn things_come_in_the_order_of_their_times_and_of_their_adding() {
        let mut agenda = Agenda::default();
        for (seconds, name) in [(2, "c"), (1, "a"), (2, "d"), (1, "b"), (3, "e")] {
            agenda.add(at(seconds), name);
        }
        agenda.retain(|name| *name != "e");
        assert_eq!(agenda.next_at(), Some(at(1)));
        assert_eq!(agenda.take(), Some((at(1), "a")));
        // What is added for now comes after what was to come now.
        agenda.add(at(1), "b, too");
        let rest: Vec<_> = std::iter::from_fn(|| agenda.take()).collect();
        assert_eq!(rest, [(at(1), "b"), (at(1), "b, too"), (at(2), "c"), (at(2), "d")]);
        assert!(agenda.is_empty() && agenda.next_at().is_none());
    }

    #[test]
    #[should_panic(expected = "is before now")]
    fn nothing_is_added_to_the_past() {
        let mut agenda = Agenda::default();
        agenda.add(at(2), ());
        agenda.take();
        agenda.add(at(1), ());
    }
}
