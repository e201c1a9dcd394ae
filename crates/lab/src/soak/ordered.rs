//! Cases on all cores, and what they come to in the order of their numbers.

use std::any::Any;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::monitor::Monitor;
use crate::parallel::Progress;
use crate::workers::in_order;

/// What the progress of a soak counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counted {
    /// Simulated seconds.
    Seconds,
    /// Cases.
    Cases,
}

/// Stops a case when the soak is interrupted, or has enough of them.
pub(super) struct Watch<'a> {
    progress: &'a Progress,
    counted: Counted,
    enough: AtomicBool,
}

impl Monitor for Watch<'_> {
    fn on_second(&self) {
        if self.counted == Counted::Seconds {
            self.progress.on_second();
        }
    }

    fn is_interrupted(&self) -> bool {
        self.enough.load(Ordering::Relaxed) || self.progress.is_interrupted()
    }
}

/// Runs the cases numbered from 0 on `threads` threads, or on as many as there are cores, until there are `cases` of them
/// or `add` breaks off. It is given what each came to in the order of the numbers, whatever the threads; a case that was
/// interrupted comes to nothing.
pub(super) fn run<R: Send>(
    cases: u64,
    threads: Option<usize>,
    progress: &Progress,
    counted: Counted,
    case: impl Fn(u64, &Watch<'_>) -> Option<R> + Sync,
    mut add: impl FnMut(R) -> ControlFlow<()>,
) {
    let watch = Watch { progress, counted, enough: AtomicBool::new(false) };
    let one = |number| {
        let ran = (number < cases && !watch.is_interrupted()).then(|| case(number, &watch))?;
        if counted == Counted::Cases {
            progress.on_second();
        }
        Some(ran)
    };
    in_order(threads, one, |ran| {
        let goes_on = ran.map_or(ControlFlow::Continue(()), &mut add);
        watch.enough.store(goes_on.is_break(), Ordering::Relaxed);
        goes_on
    });
}

/// As [`run`], of `cases` cases, whose seeds are `first`, `first` + 1, ...; `progress` counts them.
pub(super) fn run_counted<R: Send>(
    first: u64,
    cases: u64,
    threads: Option<usize>,
    progress: &Progress,
    case: impl Fn(u64, &Watch<'_>) -> Option<R> + Sync,
    mut add: impl FnMut(R),
) {
    progress.total.fetch_add(cases, Ordering::Relaxed);
    let one = |number: u64, watch: &Watch<'_>| case(first.wrapping_add(number), watch);
    run(cases, threads, progress, Counted::Cases, one, |ran| {
        add(ran);
        ControlFlow::Continue(())
    });
}

/// What a panic said.
pub(super) fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|&words| words.to_owned())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn numbers(progress: &Progress, most: usize) -> Vec<u64> {
        let mut added = Vec::new();
        run(
            50,
            Some(2),
            progress,
            Counted::Cases,
            |number, _| (number != 7).then_some(number),
            |number| {
                added.push(number);
                if added.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            },
        );
        added
    }

    #[test]
    fn all_cases_are_counted_and_those_that_come_to_something_are_added() {
        let progress = Progress::default();
        assert_eq!(numbers(&progress, usize::MAX), (0..50).filter(|&number| number != 7).collect::<Vec<_>>());
        assert_eq!(progress.done.load(Ordering::Relaxed), 50);
        assert_eq!(numbers(&progress, 20), (0..21).filter(|&number| number != 7).collect::<Vec<_>>());
    }

    #[test]
    fn a_case_hears_that_there_is_enough() {
        // The second case goes on until it hears that the first was enough.
        let case = |number: u64, watch: &Watch<'_>| {
            while number > 0 && !watch.is_interrupted() {
                thread::yield_now();
            }
            (number == 0).then_some(number)
        };
        let mut added = 0;
        run(u64::MAX, Some(2), &Progress::default(), Counted::Seconds, case, |_| {
            added += 1;
            ControlFlow::Break(())
        });
        assert_eq!(added, 1);
    }

    #[test]
    fn an_interrupted_soak_begins_no_case() {
        let progress = Progress::default();
        progress.interrupted.store(true, Ordering::Relaxed);
        assert!(numbers(&progress, usize::MAX).is_empty());
    }
}
