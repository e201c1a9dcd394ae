//! Who does the jobs of files: a receiver's disk on a shelf and a sender's source, which may be
//! slow.

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::machine::Machine;
use anabranch_proto::transfer::{FileDone, FileJob};
use anabranch_sim::fabric::NodeId;

use super::store::{MemorySource, MemoryStore};
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

/// Does the jobs of a world in which one node receives files and one sends a file.
#[derive(Clone, Debug)]
pub struct Disks {
    store: MemoryStore,
    source: MemorySource,
    /// The receiver's, and the sender's.
    slow: [Option<SlowDisk>; 2],
    rngs: [Rng; 2],
    done: u64,
}

impl Disks {
    /// The receiver's files are kept in `store`, the sender's comes from `source`, in no time unless
    /// its disk is slow; what chance does to a disk's times is a function of the seed and of how
    /// many jobs it was given.
    pub fn new(
        store: MemoryStore,
        source: MemorySource,
        [receiver, sender]: [Option<SlowDisk>; 2],
        seed: u64,
    ) -> Disks {
        let rngs = ["disk/receiver", "disk/sender"].map(|name| Rng::stream(seed, name));
        Disks { store, source, slow: [receiver, sender], rngs, done: 0 }
    }

    /// Jobs that are done.
    pub fn done(&self) -> u64 {
        self.done
    }
}

impl<M: Machine<Job = FileJob, Done = FileDone>> Worker<M> for Disks {
    fn takes(&mut self, _: Time, _: NodeId, job: &FileJob) -> Duration {
        let whose = usize::from(job.task.is_of_sender());
        let Some(SlowDisk { access, rate, stalls, stall }) = self.slow[whose] else { return Duration::ZERO };
        let rng = &mut self.rngs[whose];
        let mut share = |most: Duration| Duration::from_secs_f64(most.as_secs_f64() * rng.uniform());
        let (access, stall) = (share(access), share(stall));
        let stands_still = rng.chance(stalls);
        access + Bytes::new(job.bytes()) / rate + if stands_still { stall } else { Duration::ZERO }
    }

    fn work(&mut self, _: Time, _: NodeId, job: FileJob) -> FileDone {
        self.done += 1;
        job.work(&mut self.store, &mut self.source)
    }
}
