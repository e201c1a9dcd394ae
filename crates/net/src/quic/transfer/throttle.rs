//! Holds a sender back while what has come of its file waits for the disk.
//!
//! What has come is read at once, whatever the disk does: noq gives a connection up when there are more
//! than 1024 gaps in what it holds of a stream. So no more credit is given, where else nothing would be
//! read (RFC 9000, 4.1): what the sender was allowed to send may come still, and no more until the disk
//! has caught up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use noq::VarInt;

/// A sender's credit.
#[derive(Debug)]
pub struct Throttle<C> {
    /// Has the sender send so much more than what was read.
    grant: C,
    /// Bytes that it may send beyond what was read.
    window: u32,
    /// Bytes that may wait before it gets no more credit.
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    /// Of the credit that it had when it was to get no more, what has not come yet; none while it gets
    /// more.
    left: Option<u64>,
}

impl<C: Fn(VarInt)> Throttle<C> {
    /// A sender that may send `window` bytes beyond what was read, of which `most` may wait for the disk.
    pub fn new(window: u32, most: usize, grant: C) -> Throttle<C> {
        Throttle { grant, window, most, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This many bytes were read, and wait.
    pub fn on_read(&self, bytes: usize) {
        let mut state = self.state();
        state.waiting += bytes;
        if let Some(left) = &mut state.left {
            *left = left.saturating_sub(bytes as u64);
        } else if state.waiting > self.most {
            state.left = Some(u64::from(self.window));
            (self.grant)(VarInt::from_u32(0));
        }
        self.reopen(&mut state);
    }

    /// Whether something that was read waits for the disk still.
    pub fn is_waiting(&self) -> bool {
        self.state().waiting > 0
    }

    /// This many bytes are written.
    pub fn on_written(&self, bytes: usize) {
        let mut state = self.state();
        state.waiting -= bytes;
        self.reopen(&mut state);
    }

    /// Gives credit again once all that there was is used up and half of the room is free. Sooner, the
    /// sender would have more than its window.
    fn reopen(&self, state: &mut State) {
        if state.left == Some(0) && state.waiting <= self.most / 2 {
            state.left = None;
            (self.grant)(VarInt::from_u32(self.window));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The sender sends whatever it may; credit as noq counts it: a window that shrinks takes nothing
        /// back, but what is read then gives none until that is made up for.
        #[test]
        fn no_more_waits_than_may_and_a_window_and_whatever_a_disk_does_all_of_it_comes(
            steps in prop::collection::vec((any::<bool>(), 1usize..2000), 1..300),
            window in 1u32..5000,
            most in 2usize..3000,
        ) {
            let (credit, debt, size) = (Cell::new(u64::from(window)), Cell::new(0u64), Cell::new(u64::from(window)));
            let throttle = Throttle::new(window, most, |granted| {
                let (granted, before) = (granted.into_inner(), size.replace(granted.into_inner()));
                credit.set(credit.get() + granted.saturating_sub(before));
                debt.set(debt.get() + before.saturating_sub(granted));
            });
            let mut waiting = 0;
            let read = |bytes: usize, waiting: &mut usize| {
                let bytes = bytes.min(credit.get() as usize);
                let paid = debt.get().min(bytes as u64);
                credit.set(credit.get() - paid);
                debt.set(debt.get() - paid);
                *waiting += bytes;
                throttle.on_read(bytes);
                bytes
            };
            for (reads, bytes) in steps {
                if reads {
                    read(bytes, &mut waiting);
                } else {
                    let bytes = bytes.min(waiting);
                    waiting -= bytes;
                    throttle.on_written(bytes);
                }
                prop_assert!(waiting <= most + 2 * window as usize, "{waiting}");
                prop_assert!(credit.get() <= u64::from(window), "{} of {}", credit.get(), window);
            }
            // A disk that goes on lets everything come.
            throttle.on_written(waiting);
            waiting = 0;
            for _ in 0..10 {
                let came = read(usize::MAX, &mut waiting);
                throttle.on_written(came);
                waiting = 0;
            }
            prop_assert!(read(1, &mut waiting) == 1, "it is held back for ever");
        }
    }
}
