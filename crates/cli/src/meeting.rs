//! What both sides do at a rendezvous.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anabranch_rendezvous::client::{Mailbox, MeetError};
use anabranch_rendezvous::frame::Side;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::stderr::eprint_line;
use crate::tasks;

/// A rendezvous that has too much to do is asked again after so long: its handshakes are counted by the
/// second.
const BUSY: Duration = Duration::from_millis(1_100);

/// This many times.
const MOST_BUSY: u32 = 3;

/// So long the socket with which a silent rendezvous was asked may be held: a connection is closed for three probe timeouts
/// (RFC 9000, 10.2), each of a second where nothing was heard.
const HELD: Duration = Duration::from_secs(5);

/// How often it is looked whether it is let go.
const LOOK: Duration = Duration::from_millis(100);

/// So long what was dropped may take to say that it leaves: a rendezvous that hears nothing keeps a mailbox for a while.
const GOODBYE: Duration = Duration::from_millis(100);

/// `work`'s result, unless Ctrl-C comes before: then `what` says what that means.
pub fn run<T>(interrupt: &Interrupt, what: &str, work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tasks::runtime()?;
    let done = runtime.block_on(tasks::until_interrupted(interrupt, || {}, work));
    if done.is_none() {
        // Connections that are dropped are closed by tasks of the runtime.
        runtime.block_on(async { tokio::time::sleep(GOODBYE).await });
    }
    // Whoever reads from a terminal need not be waited for.
    runtime.shutdown_background();
    done.ok_or_else(|| Failure::interrupted(what))
}

/// A mailbox at the first of `relays` that offers one: both sides have the same list, or one has the
/// first of the other's. The socket from which it is reached stays with the caller.
pub async fn first_that_answers(
    relays: &[SocketAddr],
    side: Side,
    number: Option<u32>,
    socket: impl Fn(SocketAddr) -> io::Result<UdpSocket>,
) -> Result<(Mailbox, SocketAddr, UdpSocket), MeetError> {
    let mut nobody = None;
    let mut left = relays.iter();
    while let Some(&relay) = left.next() {
        let held = if nobody.is_some() { HELD } else { Duration::ZERO };
        let socket = once_let_go(held, || socket(relay)).await.map_err(MeetError::Socket)?;
        let clone = socket.try_clone().map_err(MeetError::Socket)?;
        let mut opened = Mailbox::open(clone, relay, side, number).await;
        for _ in 0..MOST_BUSY {
            if !matches!(opened, Err(MeetError::Busy(_))) {
                break;
            }
            tokio::time::sleep(BUSY).await;
            let clone = socket.try_clone().map_err(MeetError::Socket)?;
            opened = Mailbox::open(clone, relay, side, number).await;
        }
        match opened {
            Ok(mailbox) => return Ok((mailbox, relay, socket)),
            Err(error @ (MeetError::NobodyAnswers(_) | MeetError::Busy(_))) => {
                if let Some(next) = left.as_slice().first() {
                    eprint_line!("anabranch: {}", skipped(&error, *next));
                }
                nobody.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(nobody.unwrap_or_else(|| MeetError::Socket(io::ErrorKind::AddrNotAvailable.into())))
}

/// The socket of `bind`, whose address may be `held` for so long by the one before.
async fn once_let_go(held: Duration, bind: impl Fn() -> io::Result<UdpSocket>) -> io::Result<UdpSocket> {
    let began = Instant::now();
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && began.elapsed() < held => {
                tokio::time::sleep(LOOK).await;
            }
            bound => return bound,
        }
    }
}

/// That a rendezvous was skipped because of `error`: its relay may be one that every packet has to pass.
fn skipped(error: &MeetError, next: SocketAddr) -> String {
    let why = match error {
        MeetError::NobodyAnswers(relay) => format!("no rendezvous answers at {relay}"),
        error => error.to_string(),
    };
    format!("{why}; asking the next one, at {next}")
}

/// A socket from which `relay` can be reached.
pub fn any_socket(relay: SocketAddr) -> io::Result<UdpSocket> {
    UdpSocket::bind(crate::network::any_address(relay))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendezvous_that_is_skipped_is_named() {
        let [dead, next] = ["127.0.0.1:4001", "127.0.0.1:4002"].map(|text| text.parse().unwrap());
        let said = skipped(&MeetError::NobodyAnswers(dead), next);
        assert_eq!(said, "no rendezvous answers at 127.0.0.1:4001; asking the next one, at 127.0.0.1:4002");
        assert!(skipped(&MeetError::Busy(dead), next).contains("the rendezvous at 127.0.0.1:4001 has too much to do"));
    }
    #[test]
    fn an_address_that_the_socket_before_still_holds_is_waited_for() {
        let before = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = before.local_addr().unwrap();
        let bound = |held| tasks::runtime().unwrap().block_on(once_let_go(held, || UdpSocket::bind(address)));
        assert_eq!(bound(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let letting_go = std::thread::spawn(move || {
            std::thread::sleep(LOOK * 2);
            drop(before);
        });
        assert!(bound(HELD).is_ok());
        letting_go.join().unwrap();
    }
}
