//! Cases on all cores, in batches.

use std::any::Any;
use std::sync::atomic::Ordering;

use rayon::prelude::*;

use crate::monitor::Monitor;
use crate::parallel::Progress;

/// Cases that are begun together. Whether more are needed is asked after each batch, so that the
/// number of threads changes nothing.
const BATCH: u64 = 32;

/// Counts no seconds, since cases are counted.
pub(super) struct ByCase<'a>(&'a Progress);

impl Monitor for ByCase<'_> {
    fn on_second(&self) {}

    fn is_interrupted(&self) -> bool {
        self.0.is_interrupted()
    }
}

/// Runs the cases numbered from 0 on `threads` threads, as many as there are cores if none is given, until there are
/// `cases` of them, or `go_on`, which is given what each batch came to in the order of its cases, says no. A case that was
/// interrupted comes to nothing.
///
/// # Panics
///
/// When the system has no thread left.
pub(super) fn run<R: Send>(
    cases: u64,
    threads: Option<usize>,
    progress: &Progress,
    run: impl Fn(u64) -> Option<R> + Sync,
    mut go_on: impl FnMut(Vec<R>) -> bool,
) {
    // More than a batch has cases would have nothing to do.
    let threads = threads.map_or(0, |threads| threads.min(BATCH as usize));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.expect("a process may start as many threads as there are cores, or cases in a batch");
    let mut begun = 0;
    while begun < cases && !progress.is_interrupted() {
        let batch = BATCH.min(cases - begun);
        let numbers: Vec<u64> = (begun..begun + batch).collect();
        // One case a task: they are of different length.
        let ran: Vec<Option<R>> = pool.install(|| numbers.par_iter().with_max_len(1).copied().map(&run).collect());
        begun += batch;
        if !go_on(ran.into_iter().flatten().collect()) {
            break;
        }
    }
}

/// As [`run`], of `cases` cases, whose seeds are `first`, `first` + 1, ...; `progress` counts them.
///
/// # Panics
///
/// When the system has no thread left.
pub(super) fn run_counted<R: Send>(
    first: u64,
    cases: u64,
    threads: Option<usize>,
    progress: &Progress,
    case: impl Fn(u64, &ByCase<'_>) -> Option<R> + Sync,
    mut add: impl FnMut(R),
) {
    progress.total.fetch_add(cases, Ordering::Relaxed);
    let one = |number: u64| {
        let ran = case(first.wrapping_add(number), &ByCase(progress));
        progress.done.fetch_add(1, Ordering::Relaxed);
        ran
    };
    run(cases, threads, progress, one, |batch| {
        batch.into_iter().for_each(&mut add);
        true
    });
}

/// What a panic said.
pub(super) fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().cloned();
    words.or_else(|| panic.downcast_ref::<&str>().map(|&words| words.to_owned())).unwrap_or_default()
}
