//! What the files share that come to one receiver, and how many may come from one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anabranch_proto::transfer::{Limits, Senders, origin_of};

use super::Progress;
use super::claim::ComingFiles;
use crate::disk::DiskStore;

/// What all files of a receiver share.
#[derive(Debug)]
pub struct Shared {
    pub store: DiskStore,
    pub limits: Limits,
    pub senders: Senders,
    pub progress: Arc<Progress>,
    /// Places for files.
    pub files: Arc<tokio::sync::Semaphore>,
    /// How many of the places each address has.
    shares: Mutex<BTreeMap<IpAddr, usize>>,
    pub coming: Arc<ComingFiles>,
}

impl Shared {
    /// For files of `senders` into `store`.
    pub fn new(store: DiskStore, limits: Limits, senders: Senders) -> Shared {
        Shared {
            store,
            files: Arc::new(tokio::sync::Semaphore::new(limits.files)),
            limits,
            senders,
            progress: Arc::default(),
            shares: Mutex::default(),
            coming: Arc::default(),
        }
    }
}

/// One of the places of an address, until this value ends.
pub struct Share {
    shared: Arc<Shared>,
    origin: IpAddr,
}

impl Share {
    /// One more for `source`, unless it has its share.
    pub fn of(shared: &Arc<Shared>, source: IpAddr) -> Option<Share> {
        let origin = origin_of(source);
        let mut shares = shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let share = shares.entry(origin).or_default();
        if *share >= shared.limits.files_of_one {
            return None;
        }
        *share += 1;
        Some(Share { shared: Arc::clone(shared), origin })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.shared.shares.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get_mut(&self.origin) {
            *share -= 1;
            if *share == 0 {
                shares.remove(&self.origin);
            }
        }
    }
}
