//! A pool of threads for slow work that endpoints hand out: disk, hashes.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::wait::Waker;

/// Threads at most: such work waits for disks more than for processors.
const MOST_THREADS: usize = 4;

/// Does jobs `J`, which endpoints hand out, and gives `D`.
pub trait Work<J, D>: Clone + Send + 'static {
    /// Does `job` for endpoint `number`. A runtime replaces no endpoint, so that a result never
    /// comes to another than asked for it.
    fn work(&mut self, number: usize, job: J) -> D;
}

/// For machines that hand out nothing.
#[derive(Clone, Copy, Debug)]
pub struct NoWork;

impl<D> Work<Infallible, D> for NoWork {
    fn work(&mut self, _: usize, job: Infallible) -> D {
        match job {}
    }
}

/// The threads. They start with the first job, and end with the pool once the jobs that are there
/// are done.
pub(crate) struct Pool<J, D> {
    start: Box<dyn Fn() -> JoinHandle<()> + Send>,
    threads: Vec<JoinHandle<()>>,
    jobs: Option<Sender<(usize, J)>>,
    done: Receiver<(usize, thread::Result<D>)>,
    pending: usize,
}

impl<J: Send + 'static, D: Send + 'static> Pool<J, D> {
    /// Threads that do jobs by `work`, and call `waker` for each result.
    pub(crate) fn new(work: impl Work<J, D>, waker: Waker) -> Pool<J, D> {
        // Machines bound what waits here: of each file there is one job at a time, and what blocks it holds counts
        // against what a receiver may hold unwritten.
        let (jobs, queue) = channel::<(usize, J)>();
        let (results, done) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let start = move || {
            let (mut work, queue, results, waker) = (work.clone(), Arc::clone(&queue), results.clone(), waker.clone());
            thread::spawn(move || {
                loop {
                    // One thread waits for the next job; the others wait for their turn.
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok((number, job)) = next else { return };
                    // Its state is not used again: the runtime's thread panics too.
                    let done = catch_unwind(AssertUnwindSafe(|| work.work(number, job)));
                    if results.send((number, done)).is_err() {
                        return;
                    }
                    waker.wake();
                }
            })
        };
        Pool { start: Box::new(start), threads: Vec::new(), jobs: Some(jobs), done, pending: 0 }
    }

    /// Hands out `job` of machine `number`.
    pub(crate) fn submit(&mut self, number: usize, job: J) {
        if self.threads.len() <= self.pending && self.threads.len() < MOST_THREADS {
            self.threads.push((self.start)());
        }
        self.pending += 1;
        if let Some(jobs) = &self.jobs {
            jobs.send((number, job)).expect("the queue lives as long as the pool can start threads");
        }
    }

    /// The next result, if there is one.
    ///
    /// # Panics
    ///
    /// When a job has: nobody would ever get its result.
    pub(crate) fn next_done(&mut self) -> Option<(usize, D)> {
        if self.pending == 0 {
            return None;
        }
        let (number, done) = self.done.try_recv().ok()?;
        self.pending -= 1;
        Some((number, done.unwrap_or_else(|panic| resume_unwind(panic))))
    }
}

impl<J, D> Drop for Pool<J, D> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A worker that has panicked has said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::wait::Waiter;

    use super::*;

    #[derive(Clone)]
    struct Halving;

    impl Work<u32, u32> for Halving {
        fn work(&mut self, number: usize, job: u32) -> u32 {
            assert!(job.is_multiple_of(2), "job {job} of endpoint {number}");
            job / 2
        }
    }

    /// The next result, once it is there.
    fn next(waiter: &mut Waiter, pool: &mut Pool<u32, u32>) -> (usize, u32) {
        loop {
            if let Some(next) = pool.next_done() {
                return next;
            }
            waiter.wait(None, |ready| panic!("{ready:?}")).unwrap();
        }
    }

    #[test]
    fn each_job_has_a_result_that_wakes_who_waits() {
        let mut waiter = Waiter::new().unwrap();
        let mut pool = Pool::new(Halving, waiter.waker());
        assert_eq!(pool.next_done(), None);
        (0..100).for_each(|job| pool.submit(job as usize, 2 * job));
        let mut done: Vec<_> = (0..100).map(|_| next(&mut waiter, &mut pool)).collect();
        done.sort_unstable();
        assert!(done.into_iter().eq((0..100).map(|job| (job as usize, job))));
        assert!(pool.threads.len() <= MOST_THREADS);
    }

    #[test]
    #[should_panic(expected = "job 7 of endpoint 3")]
    fn a_job_that_panics_does_not_vanish() {
        let mut waiter = Waiter::new().unwrap();
        let mut pool = Pool::new(Halving, waiter.waker());
        pool.submit(3, 7);
        next(&mut waiter, &mut pool);
    }
}
