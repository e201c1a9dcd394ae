//! Work on several threads, whose results come in the order in which it was begun.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Builder};

/// Does `work` numbered from 0 on, each number once, on `threads` threads: on as many as there are cores if none is given,
/// and never on more than can be had. Where it has none for a number, that thread is done; so it is once `take`, which is
/// given the results in the order of the numbers, breaks off. A panic of `work` ends it as well, and goes on here.
pub(crate) fn in_order<R: Send>(
    threads: Option<usize>,
    work: impl Fn(u64) -> Option<R> + Sync,
    mut take: impl FnMut(R) -> ControlFlow<()>,
) {
    let next = AtomicU64::new(0);
    let one = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        // One that panicked has no result: what comes behind it would be waited for until all is done, or for ever.
        let result = catch_unwind(AssertUnwindSafe(|| work(number))).transpose()?;
        Some((number, result))
    };
    let all = |done: Sender<(u64, thread::Result<R>)>| while one().is_some_and(|result| done.send(result).is_ok()) {};
    let cores = || thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = threads.unwrap_or_else(cores);
    thread::scope(|scope| {
        let (done, results) = mpsc::channel();
        let begun = (0..threads).take_while(|_| {
            let (all, done) = (&all, done.clone());
            Builder::new().spawn_scoped(scope, move || all(done)).is_ok()
        });
        // Where the system has no thread left, this one does the work.
        let is_alone = begun.count() == 0;
        drop(done);
        let mut early = BTreeMap::new();
        let mut due = 0;
        while let Some((number, result)) = if is_alone { one() } else { results.recv().ok() } {
            early.insert(number, result.unwrap_or_else(|panic| resume_unwind(panic)));
            while let Some(result) = early.remove(&due) {
                due += 1;
                if take(result).is_break() {
                    return;
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The results that were taken of `count` pieces of work, of which the first of eight takes longest.
    fn taken(threads: usize, count: u64, most: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        let work = |number: u64| {
            thread::sleep(Duration::from_millis(if number.is_multiple_of(8) { 5 } else { 0 }));
            (number < count).then_some(number)
        };
        in_order(Some(threads), work, |number| {
            taken.push(number);
            if taken.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        taken
    }

    #[test]
    fn results_come_in_the_order_of_the_numbers_whatever_the_threads() {
        for threads in [0, 1, 2, 7, 100] {
            assert_eq!(taken(threads, 50, usize::MAX), Vec::from_iter(0..50), "{threads} threads");
        }
    }

    #[test]
    fn nothing_is_taken_after_it_breaks_off() {
        for threads in [0, 1, 2, 7] {
            assert_eq!(taken(threads, u64::MAX, 20), Vec::from_iter(0..20), "{threads} threads");
        }
    }

    #[test]
    fn a_panic_ends_work_without_an_end() {
        for threads in [0, 1, 7] {
            let work = |number| if number == 20 { panic!("at {number}") } else { Some(number) };
            let ended = catch_unwind(|| in_order(Some(threads), work, |_| ControlFlow::Continue(())));
            assert_eq!(ended.unwrap_err().downcast_ref::<String>().unwrap(), "at 20");
        }
    }
}
