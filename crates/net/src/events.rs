//! What has happened, for an application that reads it between two turns.

use std::collections::VecDeque;

/// Events that wait for their reader at most; the oldest are dropped then.
pub const MAX_EVENTS: usize = 1 << 16;

/// Events in order, of which the oldest are dropped.
#[derive(Debug)]
pub(crate) struct Events<T> {
    queue: VecDeque<T>,
    dropped: u64,
    /// Some came since the last turn ended: their reader must not wait for the next.
    fresh: bool,
}

impl<T> Default for Events<T> {
    fn default() -> Events<T> {
        Events { queue: VecDeque::new(), dropped: 0, fresh: false }
    }
}

impl<T> Events<T> {
    pub fn push(&mut self, event: T) {
        if self.queue.len() == MAX_EVENTS {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back(event);
        self.fresh = true;
    }

    pub fn pop(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    /// How many were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether some came since the last turn ended.
    pub fn are_fresh(&self) -> bool {
        self.fresh
    }

    /// A turn has ended: whoever turns can read them now.
    pub fn end_turn(&mut self) {
        self.fresh = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_events_the_oldest_are_dropped_and_counted() {
        let mut events = Events::default();
        (0..MAX_EVENTS + 3).for_each(|event| events.push(event));
        assert_eq!((events.dropped(), events.pop(), events.are_fresh()), (3, Some(3), true));
        events.end_turn();
        assert!(!events.are_fresh());
    }
}
