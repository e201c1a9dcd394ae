//! Waits that end at an instant, not at the next millisecond: a pacer's are far shorter. All loops over
//! descriptors wait here: the runtime's for sockets, the emulator's for TUN devices.

use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anabranch_control::time::Duration;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{self, EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::io::Errno;

/// The waker's own number.
const WAKER: u64 = u64::MAX;

/// Descriptors that one wait tells of at most; the next tells of the others.
const MOST_AT_ONCE: usize = 64;

/// Ends the wait of a loop that another thread turns.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// Ends the wait at work, or else the next one.
    pub fn wake(&self) {
        // The only error is a counter that is full: the wait ends anyway.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// Waits for sockets and devices, for time, and for a [`Waker`].
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    waker: Waker,
    sharp: bool,
}

/// What a socket or device is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Its number.
    pub number: usize,
    /// Something can be read, an error perhaps.
    pub readable: bool,
    /// There is room for what is to be sent.
    pub writable: bool,
}

impl Waiter {
    /// Watches nothing yet.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new() -> io::Result<Waiter> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Waker(Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?));
        epoll::add(&epoll, &waker.0, EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Waiter { epoll, waker, sharp: false })
    }

    /// Ends a wait of this from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Watches `socket` from now on, as `number`, for what can be read.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn watch(&self, socket: impl AsFd, number: usize) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, socket, EventData::new_u64(number as u64), EventFlags::IN)?)
    }

    /// Whether `socket`, watched as `number`, is also watched for room.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn watch_room(&self, socket: impl AsFd, number: usize, wanted: bool) -> io::Result<()> {
        let flags = if wanted { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, socket, EventData::new_u64(number as u64), flags)?)
    }

    /// Waits until one is ready, at most for `longest`; `ready` is called with which are.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn wait(&mut self, longest: Option<Duration>, mut ready: impl FnMut(Ready)) -> io::Result<()> {
        if !self.sharp {
            // By default Linux wakes a thread up to 50 us late, to save energy.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            self.sharp = true;
        }
        // `epoll_pwait` knows whole milliseconds only, and `epoll_pwait2` is as new as Linux 5.11: what is to end sooner is
        // waited for by `ppoll`, and what it found asked for.
        let longest = match longest.filter(|&longest| longest > Duration::ZERO) {
            Some(longest) => {
                let mut all = [PollFd::new(&self.epoll, PollFlags::IN)];
                match event::poll(&mut all, Some(&timespec(longest))) {
                    Ok(0) | Err(Errno::INTR) => return Ok(()),
                    Ok(_) => Some(Duration::ZERO),
                    Err(error) => return Err(error.into()),
                }
            }
            None => longest,
        };
        let mut buffer = [MaybeUninit::<Event>::uninit(); MOST_AT_ONCE];
        let events = match epoll::wait(&self.epoll, &mut buffer, longest.map(timespec).as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for Event { flags, data, .. } in events.iter().copied() {
            if data.u64() == WAKER {
                let _ = rustix::io::read(&self.waker.0, &mut [0; 8]);
                continue;
            }
            ready(Ready {
                number: data.u64() as usize,
                readable: flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP),
                writable: flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP),
            });
        }
        Ok(())
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: (span.as_nanos() / 1_000_000_000) as i64, tv_nsec: (span.as_nanos() % 1_000_000_000) as _ }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};
    use std::time::Instant;

    use super::*;
    use crate::udp::Socket;

    fn watched() -> (Waiter, Socket) {
        let waiter = Waiter::new().unwrap();
        let socket = Socket::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        waiter.watch(&socket, 3).unwrap();
        (waiter, socket)
    }

    fn ready(waiter: &mut Waiter, longest: Duration) -> Vec<Ready> {
        let mut ready = Vec::new();
        waiter.wait(Some(longest), |one| ready.push(one)).unwrap();
        ready
    }

    #[test]
    fn a_wait_ends_when_it_shall_and_not_before() {
        let (mut waiter, _socket) = watched();
        for nanos in [0, 300_000, 2_500_000] {
            let began = Instant::now();
            assert_eq!(ready(&mut waiter, Duration::from_nanos(nanos)), []);
            assert!(began.elapsed().as_nanos() >= u128::from(nanos));
        }
    }

    #[test]
    fn a_wait_does_not_last_until_the_next_millisecond() {
        let (mut waiter, _socket) = watched();
        let waited = || {
            let began = Instant::now();
            ready(&mut waiter, Duration::from_nanos(100_000));
            began.elapsed()
        };
        // The shortest of many: a busy machine wakes a thread late as well.
        let shortest = std::iter::repeat_with(waited).take(200).min().unwrap();
        assert!(shortest.as_micros() < 900, "{shortest:?}");
    }

    #[test]
    fn sockets_are_reported_that_can_be_read_and_those_with_room_if_asked_for() {
        let (mut waiter, socket) = watched();
        assert_eq!(ready(&mut waiter, Duration::ZERO), []);
        waiter.watch_room(&socket, 3, true).unwrap();
        assert_eq!(ready(&mut waiter, Duration::SECOND), [Ready { number: 3, readable: false, writable: true }]);
        waiter.watch_room(&socket, 3, false).unwrap();
        let other = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        other.send_to(&[1], socket.local_addr().unwrap()).unwrap();
        for _ in 0..2 {
            let readable = [Ready { number: 3, readable: true, writable: false }];
            assert_eq!(ready(&mut waiter, Duration::SECOND), readable, "until it has been read");
        }
    }

    #[test]
    fn a_waker_ends_the_wait_at_work_or_the_next_one_and_no_other() {
        let (mut waiter, _socket) = watched();
        let waker = waiter.waker();
        waker.wake();
        waker.wake();
        waiter.wait(None, |ready| panic!("{ready:?}")).unwrap();
        let began = Instant::now();
        assert_eq!(ready(&mut waiter, Duration::from_millis(5)), []);
        assert!(began.elapsed().as_millis() >= 5);
        let thread = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            waker.wake();
        });
        waiter.wait(None, |ready| panic!("{ready:?}")).unwrap();
        thread.join().unwrap();
    }
}
