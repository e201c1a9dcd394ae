//! Cases on all cores, and what they come to in the order of their numbers.

use std::any::Any;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Builder};

use crate::monitor::Monitor;
use crate::parallel::Progress;

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

/// Runs the cases numbered from 0 on `threads` threads, or on as many as there are cores or can be had, until there are
/// `cases` of them or `add` breaks off. It is given what each came to in the order of the numbers, whatever the threads;
/// a case that was interrupted comes to nothing.
pub(super) fn run<R: Send>(
    cases: u64,
    threads: Option<usize>,
    progress: &Progress,
    counted: Counted,
    case: impl Fn(u64, &Watch<'_>) -> Option<R> + Sync,
    mut add: impl FnMut(R) -> ControlFlow<()>,
) {
    let watch = Watch { progress, counted, enough: AtomicBool::new(false) };
    let next = AtomicU64::new(0);
    let one = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= cases || watch.is_interrupted() {
            return None;
        }
        let ran = case(number, &watch);
        if counted == Counted::Cases {
            progress.on_second();
        }
        Some((number, ran))
    };
    let work = |ended: Sender<(u64, Option<R>)>| while one().is_some_and(|ran| ended.send(ran).is_ok()) {};
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = threads.unwrap_or_else(cores) as u64;
    thread::scope(|scope| {
        let (ended, results) = mpsc::channel();
        let begun = (0..threads.min(cases)).take_while(|_| {
            let (work, ended) = (&work, ended.clone());
            Builder::new().spawn_scoped(scope, move || work(ended)).is_ok()
        });
        // Where the system has no thread left, this one does the work.
        let mut alone = (begun.count() == 0).then_some(&one);
        drop(ended);
        let results = std::iter::from_fn(|| match &mut alone {
            Some(one) => one(),
            None => results.recv().ok(),
        });
        let mut ahead = BTreeMap::new();
        let mut due = 0;
        'all: for (number, ran) in results {
            ahead.insert(number, ran);
            while let Some(ran) = ahead.remove(&due) {
                due += 1;
                if ran.is_some_and(|ran| add(ran).is_break()) {
                    break 'all;
                }
            }
        }
        watch.enough.store(true, Ordering::Relaxed);
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
    use std::time::Duration;

    use super::*;

    /// The numbers that were added, of cases of which the first of eight takes longest.
    fn numbers(cases: u64, threads: usize, most: usize, progress: &Progress) -> Vec<u64> {
        let mut added = Vec::new();
        let case = |number: u64, _: &Watch<'_>| {
            thread::sleep(Duration::from_millis(if number.is_multiple_of(8) { 5 } else { 0 }));
            Some(number)
        };
        run(cases, Some(threads), progress, Counted::Cases, case, |number| {
            added.push(number);
            if added.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        added
    }

    #[test]
    fn cases_are_added_in_the_order_of_their_numbers_whatever_the_threads() {
        for threads in [1, 2, 7, 100] {
            let progress = Progress::default();
            assert_eq!(numbers(50, threads, usize::MAX, &progress), Vec::from_iter(0..50));
            assert_eq!(progress.done.load(Ordering::Relaxed), 50);
        }
    }

    #[test]
    fn nothing_is_added_after_there_is_enough_and_what_runs_hears_of_it() {
        for threads in [1, 2, 7] {
            assert_eq!(numbers(u64::MAX, threads, 20, &Progress::default()), Vec::from_iter(0..20));
        }
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
        assert!(numbers(50, 2, usize::MAX, &progress).is_empty());
    }
}
