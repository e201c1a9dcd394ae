//! Waits that end at an instant, not at the next millisecond: a pacer's are far shorter.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anabranch_control::time::Duration;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::udp::Socket;

/// Ends the wait of an endpoint that another thread drives.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the wait at work, or else the next one.
    pub fn wake(&self) {
        // The only error is a counter that is full: the wait ends anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Waits for sockets, for time, and for a [`Waker`].
#[derive(Debug)]
pub struct Waiter {
    waker: Waker,
    sharp: bool,
}

impl Waiter {
    pub fn new() -> io::Result<Waiter> {
        let waker = Waker(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?));
        Ok(Waiter { waker, sharp: false })
    }

    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Waits until something can be read from a socket, or written to one that `wants` it,
    /// at most for `longest`; `ready` is told which sockets are readable and writable.
    pub fn wait<'s>(
        &mut self,
        sockets: impl Iterator<Item = (&'s Socket, bool)>,
        longest: Option<Duration>,
        mut ready: impl FnMut(usize, bool, bool),
    ) -> io::Result<()> {
        if !self.sharp {
            // By default Linux wakes a thread up to 50 us late, to save energy.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            self.sharp = true;
        }
        let mut fds = vec![PollFd::new(&self.waker.0, PollFlags::IN)];
        for (socket, wants) in sockets {
            let events = if wants { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(socket.io(), events));
        }
        let timeout = longest.map(|span| Timespec {
            tv_sec: (span.as_nanos() / 1_000_000_000) as i64,
            tv_nsec: (span.as_nanos() % 1_000_000_000) as _,
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if !fds[0].revents().is_empty() {
            let _ = rustix::io::read(&self.waker.0, &mut [0; 8]);
        }
        for (number, fd) in fds[1..].iter().enumerate() {
            let events = fd.revents();
            let readable = events.intersects(PollFlags::IN | PollFlags::ERR | PollFlags::HUP);
            ready(number, readable, events.contains(PollFlags::OUT));
        }
        Ok(())
    }
}
