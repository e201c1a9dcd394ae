//! What the files share that come to one receiver.

use std::sync::Arc;

use anabranch_proto::transfer::{Limits, Senders};

use super::Progress;
use super::claim::ComingFiles;
use super::places::Places;
use crate::disk::DiskStore;

/// What all files of a receiver share.
#[derive(Debug)]
pub struct Shared {
    pub store: DiskStore,
    pub limits: Limits,
    pub senders: Senders,
    pub progress: Arc<Progress>,
    pub places: Arc<Places>,
    pub coming: Arc<ComingFiles>,
}

impl Shared {
    /// For files of `senders` into `store`.
    pub fn new(store: DiskStore, limits: Limits, senders: Senders) -> Shared {
        let places = Arc::new(Places::new(limits));
        Shared { store, limits, senders, progress: Arc::default(), places, coming: Arc::default() }
    }
}
