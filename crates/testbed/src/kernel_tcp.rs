//! The operating system's own TCP, to be measured beside ours: connections under a
//! congestion control that is named, and a receiver that counts what they bring.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};

use anabranch_control::time::Time;
use anabranch_control::units::Rate;
use mio::{Events, Interest, Poll, Token};
use nix::sys::socket::setsockopt;
use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use socket2::{Domain, SockRef, Socket, Type};

use anabranch_net::clock::{Clock, std_duration};

/// Where the kernel lists the congestion controls that it can run now.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Bytes read at once.
const CHUNK: usize = 1 << 18;

/// The congestion controls that the kernel can run now.
///
/// # Errors
///
/// When there is no such list: on another system than Linux.
pub fn available() -> io::Result<Vec<String>> {
    Ok(std::fs::read_to_string(AVAILABLE)?.split_whitespace().map(str::to_owned).collect())
}

/// Why a kernel does not run `congestion`, which may load one when it is asked for.
fn refused(error: Errno, congestion: &str) -> io::Error {
    match error {
        Errno::NOENT => io::Error::new(
            io::ErrorKind::NotFound,
            format!(
                "the kernel has no congestion control \"{congestion}\"; it offers {}",
                available().unwrap_or_default().join(", ")
            ),
        ),
        error => error.into(),
    }
}

/// Looks whether there is such a congestion control, which the kernel may load for it.
///
/// # Errors
///
/// When there is none ([`io::ErrorKind::NotFound`]), or this process may not have it.
pub fn check(congestion: &str) -> io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    set_tcp_congestion(&socket, congestion).map_err(|error| refused(error, congestion))
}

/// An error of a socket's; what to do about it, if it is that there is no room for another.
fn in_words(error: io::Error) -> io::Error {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => io::Error::new(
            error.kind(),
            format!(
                "{error}: each flow of the kernel's takes three of the files that this process may have; expected a higher \
                 limit (`ulimit -n`), or fewer flows"
            ),
        ),
        _ => error,
    }
}

/// Begins a connection from `local` to `remote` whose sender is under `congestion`; it is made in the network namespace of
/// the thread that calls. Nothing here blocks: the connection stands, or has failed ([`TcpStream::take_error`]), once it can
/// be written to.
///
/// # Errors
///
/// When the kernel has no such congestion control, or no room for a connection.
pub fn connect(local: SocketAddr, remote: SocketAddr, congestion: &str) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(remote), Type::STREAM, None).map_err(in_words)?;
    set_tcp_congestion(&socket, congestion).map_err(|error| refused(error, congestion))?;
    socket.bind(&local.into())?;
    socket.set_nonblocking(true)?;
    match socket.connect(&remote.into()) {
        Err(error) if error.raw_os_error() != Some(Errno::INPROGRESS.raw_os_error()) => return Err(error),
        _ => {}
    }
    let runs = tcp_congestion(&socket)?;
    if runs != congestion {
        return Err(io::Error::other(format!("the kernel runs \"{runs}\" where \"{congestion}\" was asked for")));
    }
    Ok(socket.into())
}

/// Lets a connection send no faster than `rate`, whatever its congestion control says; none lifts
/// that (socket(7): SO_MAX_PACING_RATE). The kernel counts what TCP carries, without headers.
///
/// # Errors
///
/// As the system says.
pub fn set_most_pace(stream: &TcpStream, rate: Option<Rate>) -> io::Result<()> {
    let bytes_a_second = rate.map_or(u64::MAX, |rate| rate.bits_per_sec() / 8);
    Ok(setsockopt(stream, option::MaxPacingRate, &bytes_a_second)?)
}

#[allow(missing_docs, reason = "nix's macro makes the type")]
mod option {
    use nix::libc;
    use nix::sys::socket::sockopt::SetStruct;

    #[derive(Clone, Copy, Debug)]
    pub struct MaxPacingRate;
    nix::setsockopt_impl!(MaxPacingRate, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, u64, SetStruct<u64>);
}

/// Ends a connection at once; what has not arrived is lost.
///
/// # Errors
///
/// As the system says.
pub fn abort(stream: TcpStream) -> io::Result<()> {
    SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO))?;
    drop(stream);
    Ok(())
}

/// Receivers of TCP, each a listener and its connections.
#[derive(Debug)]
pub struct Receivers {
    clock: Clock,
    poll: Poll,
    events: Events,
    listeners: Vec<mio::net::TcpListener>,
    /// Bytes, of all connections of each listener together.
    delivered: Vec<u64>,
    completed: VecDeque<(usize, Time)>,
    streams: Vec<Option<Stream>>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Stream {
    io: mio::net::TcpStream,
    listener: usize,
}

impl Receivers {
    /// None yet.
    ///
    /// # Errors
    ///
    /// When the system has no room for another descriptor.
    pub fn new(clock: Clock) -> io::Result<Receivers> {
        Ok(Receivers {
            clock,
            poll: Poll::new()?,
            events: Events::with_capacity(256),
            listeners: Vec::new(),
            delivered: Vec::new(),
            completed: VecDeque::new(),
            streams: Vec::new(),
            buffer: vec![0; CHUNK],
        })
    }

    /// Accepts what comes to `listener`, whose number is how many there were before. All are
    /// added before the first turn.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub fn add(&mut self, listener: TcpListener) -> io::Result<usize> {
        let number = self.listeners.len();
        listener.set_nonblocking(true)?;
        let mut listener = mio::net::TcpListener::from_std(listener);
        self.poll.registry().register(&mut listener, Token(number), Interest::READABLE)?;
        self.listeners.push(listener);
        self.delivered.push(0);
        Ok(number)
    }

    /// Bytes that listener `number` has received.
    pub fn delivered(&self, number: usize) -> u64 {
        self.delivered[number]
    }

    /// The next stream that has arrived whole: at which listener, and when.
    pub fn poll_completed(&mut self) -> Option<(usize, Time)> {
        self.completed.pop_front()
    }

    /// Waits for something to come, at most until `until`, and takes it.
    ///
    /// # Errors
    ///
    /// When the system's poll fails.
    pub fn turn(&mut self, until: Time) -> io::Result<()> {
        let longest = std_duration(until.since(self.clock.now()));
        match self.poll.poll(&mut self.events, Some(longest)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let tokens: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
        for token in tokens {
            match token.checked_sub(self.listeners.len()) {
                None => self.accept(token)?,
                Some(stream) => self.read(stream),
            }
        }
        Ok(())
    }

    fn accept(&mut self, listener: usize) -> io::Result<()> {
        loop {
            match self.listeners[listener].accept() {
                Ok((mut io, _)) => {
                    let token = Token(self.listeners.len() + self.streams.len());
                    self.poll.registry().register(&mut io, token, Interest::READABLE)?;
                    self.streams.push(Some(Stream { io, listener }));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    // A connection that ended before it was accepted is no error of ours.
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => return Err(in_words(error)),
                },
            }
        }
    }

    fn read(&mut self, number: usize) {
        let Some(Some(stream)) = self.streams.get_mut(number) else { return };
        loop {
            match stream.io.read(&mut self.buffer) {
                Ok(0) => {
                    self.completed.push_back((stream.listener, self.clock.now()));
                    break;
                }
                Ok(length) => self.delivered[stream.listener] += length as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Its sender has ended it.
                Err(_) => break,
            }
        }
        self.streams[number] = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_control::time::Duration;
    use std::io::Write;
    use std::net::Ipv4Addr;

    #[test]
    fn what_a_connection_brings_is_counted_and_its_end_seen() {
        let clock = Clock::start();
        let mut receivers = Receivers::new(clock).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let remote = listener.local_addr().unwrap();
        let number = receivers.add(listener).unwrap();
        let local = (Ipv4Addr::LOCALHOST, 0).into();
        // Over the loopback device a connection stands at once.
        let mut whole = connect(local, remote, "reno").unwrap();
        let aborted = connect(local, remote, "reno").unwrap();
        whole.write_all(&[7; 1000]).unwrap();
        drop(whole);
        abort(aborted).unwrap();
        for _ in 0..1000 {
            receivers.turn(clock.now() + Duration::from_millis(10)).unwrap();
            if receivers.streams.len() == 2 && receivers.streams.iter().all(Option::is_none) {
                break;
            }
        }
        assert_eq!(receivers.delivered(number), 1000);
        assert_eq!(receivers.poll_completed().map(|(listener, _)| listener), Some(number));
        assert_eq!(receivers.poll_completed(), None, "who aborts has not said all");
    }

    #[test]
    fn who_has_no_room_for_another_file_is_told_how_to_get_some() {
        let words = |errno: Errno| in_words(errno.into()).to_string();
        assert!(words(Errno::MFILE).contains("expected a higher limit (`ulimit -n`), or fewer flows"));
        assert_eq!(words(Errno::NOMEM), io::Error::from(Errno::NOMEM).to_string());
    }

    #[test]
    fn a_congestion_control_that_the_kernel_has_not_is_named_with_those_that_it_has() {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let error = connect(local, local, "nosuch").unwrap_err().to_string();
        assert!(error.contains("\"nosuch\"; it offers") && error.contains("reno"), "{error}");
    }
}
