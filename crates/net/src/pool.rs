//! A pool of threads for slow work that endpoints hand out: disk, hashes.

use std::convert::Infallible;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::wait::Waker;

/// Threads at most: such work waits for disks more than for processors.
const MOST_THREADS: usize = 4;

/// Does jobs `J`, which endpoints hand out, and gives `D`.
pub trait Work<J, D>: Clone + Send + 'static {
    /// Does `job` for endpoint `number`.
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
    done: Receiver<(usize, D)>,
    pending: usize,
}

impl<J: Send + 'static, D: Send + 'static> Pool<J, D> {
    /// Threads that do jobs by `work`, and call `waker` for each result.
    pub(crate) fn new(work: impl Work<J, D>, waker: Waker) -> Pool<J, D> {
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
                    if results.send((number, work.work(number, job))).is_err() {
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
    pub(crate) fn next_done(&mut self) -> Option<(usize, D)> {
        if self.pending == 0 {
            return None;
        }
        let next = self.done.try_recv().ok()?;
        self.pending -= 1;
        Some(next)
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
