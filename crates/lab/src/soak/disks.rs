//! Who does receivers' jobs: a disk on a shelf, which may be slow.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::machine::Machine;
use anabranch_proto::transfer::{FileDone, FileJob};
use anabranch_sim::fabric::NodeId;

use super::store::MemoryStore;
use crate::world::Worker;

/// How slow a disk is. Jobs do not wait for each other: their order is their machine's business.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowDisk {
    /// The longest that a job takes before its first byte; any time up to that is as likely.
    pub access: Duration,
    /// Bytes in a second.
    pub rate: Rate,
    /// The share of jobs for which the disk stands still first.
    pub stalls: f64,
    /// For so long at most.
    pub stall: Duration,
}

/// Does the jobs of a world in which one node receives files.
#[derive(Clone, Debug)]
pub struct Disks {
    store: MemoryStore,
    slow: Option<SlowDisk>,
    rng: Rng,
    done: u64,
}

impl Disks {
    /// Files are kept in `store`, in no time unless the disk is slow; what chance does to its
    /// times is a function of the seed and of how many jobs it was given.
    pub fn new(store: MemoryStore, slow: Option<SlowDisk>, seed: u64) -> Disks {
        Disks { store, slow, rng: Rng::stream(seed, "disk"), done: 0 }
    }

    /// Jobs that are done.
    pub fn done(&self) -> u64 {
        self.done
    }
}

impl<M: Machine<Job = FileJob, Done = FileDone>> Worker<M> for Disks {
    fn takes(&mut self, _: Time, _: NodeId, job: &FileJob) -> Duration {
        let Some(SlowDisk { access, rate, stalls, stall }) = self.slow else { return Duration::ZERO };
        let mut share = |most: Duration| Duration::from_secs_f64(most.as_secs_f64() * self.rng.uniform());
        let (access, stall) = (share(access), share(stall));
        let stands_still = self.rng.chance(stalls);
        access + Bytes::new(job.bytes()) / rate + if stands_still { stall } else { Duration::ZERO }
    }

    fn work(&mut self, _: Time, _: NodeId, job: FileJob) -> FileDone {
        self.done += 1;
        job.work(&mut self.store)
    }
}
