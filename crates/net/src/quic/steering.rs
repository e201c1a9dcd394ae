//! Watching and bounding many connections at once, from any thread.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_control::flow::Bounds;

use super::flow::{Flow, WeakFlow};

/// The connections of one factory. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Steering(Arc<Mutex<Fleet>>);

#[derive(Debug, Default)]
struct Fleet {
    bounds: Bounds,
    flows: Vec<WeakFlow>,
}

impl Steering {
    /// Bounds the window of each connection, those that live and those to come, in bytes of
    /// QUIC packets. It holds when this returns. `bounds.expires` is on the clock of each
    /// connection, which begins with it; for a lease from now on there is [`Flow::lease`].
    pub fn set(&self, bounds: Bounds) {
        let mut fleet = self.lock();
        fleet.bounds = bounds;
        for flow in fleet.flows.iter().filter_map(WeakFlow::upgrade) {
            flow.set(bounds);
        }
    }

    /// What was set.
    pub fn bounds(&self) -> Bounds {
        self.lock().bounds
    }

    /// The connections that live, in the order in which they began.
    pub fn flows(&self) -> Vec<Flow> {
        self.lock().flows.iter().filter_map(WeakFlow::upgrade).collect()
    }

    /// Adds a connection, and forgets those that are over.
    pub(super) fn begin(&self, make: impl FnOnce(Bounds) -> Flow) -> Flow {
        let mut fleet = self.lock();
        let flow = make(fleet.bounds);
        fleet.flows.retain(|flow| flow.upgrade().is_some());
        fleet.flows.push(flow.downgrade());
        flow
    }

    fn lock(&self) -> MutexGuard<'_, Fleet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
