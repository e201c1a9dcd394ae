//! Who follows a run from outside, counts its seconds, and may interrupt it.

use anabranch_control::time::Time;

/// Events of a world between two questions whether a run shall stop: some milliseconds of work,
/// against which a question costs nothing.
pub const EVENTS_BETWEEN_QUESTIONS: u64 = 65_536;

/// Follows a run, and may interrupt it. `()` follows nothing, and lets a run come to its end.
pub trait Monitor {
    /// A simulated second is over.
    fn on_second(&self);

    /// At `now` a policy has directed each host to a rate relative to its link's, before it is cut at its range.
    fn on_decision(&self, now: Time, rates: &[f32]) {
        let _ = (now, rates);
    }

    /// Whether the run shall stop now. It is asked after each simulated second, and within one
    /// after every [`EVENTS_BETWEEN_QUESTIONS`] events at the latest.
    fn is_interrupted(&self) -> bool;
}

impl Monitor for () {
    fn on_second(&self) {}

    fn is_interrupted(&self) -> bool {
        false
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    /// Interrupts a run after this many seconds or questions; counts both.
    #[derive(Debug)]
    pub struct Until {
        pub second: u64,
        pub question: u64,
        pub seconds: Cell<u64>,
        pub questions: Cell<u64>,
    }

    impl Until {
        pub fn second(second: u64) -> Until {
            Until { second, question: u64::MAX, seconds: Cell::new(0), questions: Cell::new(0) }
        }

        pub fn question(question: u64) -> Until {
            Until { question, ..Until::second(u64::MAX) }
        }
    }

    impl Monitor for Until {
        fn on_second(&self) {
            self.seconds.set(self.seconds.get() + 1);
        }

        fn is_interrupted(&self) -> bool {
            self.questions.set(self.questions.get() + 1);
            self.seconds.get() >= self.second || self.questions.get() >= self.question
        }
    }
}
