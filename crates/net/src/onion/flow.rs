//! A flow of datagrams at an exit: a UDP socket of its own for each target, and the task that serves it.
//!
//! The socket is connected, so that the system hands on what comes from the target's address and port and nothing else:
//! who spoofs other senders is not heard, and the exit sends to nobody who was not named by a user and allowed by the
//! policy. Nothing waits without a bound: what finds no room is dropped, as it is in any UDP socket.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anabranch_onion::session::{MOST_DATAGRAM, Reason};
use bytes::Bytes;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::pipe::{ConnectionId, FromTask, Inbox, Outbox, ToTask};

/// A flow in which the user has sent nothing for so long is over: the least that a NAT may have (RFC 4787, REQ-5), and
/// what comes does not prolong it (REQ-6 has that as a choice): who is asked once must not hold it open.
pub const IDLE: Duration = Duration::from_secs(120);

/// A new socket is writable within so long, or its first datagrams are lost as in any that has no room.
const WRITABLE_TIME: Duration = Duration::from_secs(1);

/// Datagrams for a task that it has not taken.
const MOST_UNTAKEN: usize = 32;

/// Datagrams from a task that the driver has not taken.
pub const MOST_UNSENT: usize = 8;

/// Places in a task's inbox: datagrams, what was taken, that it is accepted, one reset.
pub const INBOX: usize = MOST_UNTAKEN + MOST_UNSENT + 2;

/// Hands a datagram to a task; false if it is dropped. What is no datagram always finds a place.
pub fn hand(inbox: &Inbox, datagram: ToTask) -> bool {
    inbox.capacity() > INBOX - MOST_UNTAKEN && inbox.try_send(datagram).is_ok()
}

/// A socket that talks with `target` alone.
///
/// # Errors
///
/// When the system has none, or knows no way there.
pub async fn connect(target: SocketAddr) -> std::io::Result<UdpSocket> {
    let any: SocketAddr = match target {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(target).await?;
    // Until the runtime has heard from the system that it is, no socket counts as writable, and the flow's first datagram
    // would find no room.
    match timeout(WRITABLE_TIME, socket.writable()).await {
        Ok(writable) => writable.map(|()| socket),
        Err(_) => Ok(socket),
    }
}

/// Carries datagrams both ways until the flow is reset, breaks, or is silent for `idle`; the driver is notified of the
/// latter two.
pub async fn run(
    id: ConnectionId,
    socket: UdpSocket,
    outbox: Outbox,
    mut inbox: mpsc::Receiver<ToTask>,
    idle: Duration,
) {
    // One more than may be sent on: what is longer is told from what was cut.
    let mut buffer = [0; MOST_DATAGRAM + 1];
    let mut unsent = 0;
    let mut over = Instant::now() + idle;
    let why = loop {
        tokio::select! {
            came = socket.recv(&mut buffer), if unsent < MOST_UNSENT => match came {
                Ok(length) if length <= MOST_DATAGRAM => {
                    unsent += 1;
                    let said = FromTask::Datagram(Bytes::copy_from_slice(&buffer[..length]));
                    if outbox.send((id, said)).await.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(_) => break Reason::Refused,
            },
            message = inbox.recv() => match message {
                Some(ToTask::Datagram(bytes)) => {
                    over = Instant::now() + idle;
                    match socket.try_send(&bytes) {
                        // "Port unreachable" (RFC 1122 4.1.3.3) came for one before; only who sends is told.
                        Err(why) if why.kind() == std::io::ErrorKind::ConnectionRefused => break Reason::Refused,
                        // Where the socket has no room, or no way leads there now, this one is lost.
                        _ => {}
                    }
                }
                Some(ToTask::Taken) => unsent -= 1,
                Some(ToTask::Reset(_)) | None => return,
                Some(_) => {}
            },
            () = sleep_until(over) => break Reason::Stopped,
        }
    };
    let _ = outbox.send((id, FromTask::Reset(why))).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Flow {
        target: UdpSocket,
        /// Where the flow's socket is.
        address: SocketAddr,
        inbox: Inbox,
        said: mpsc::Receiver<(ConnectionId, FromTask)>,
    }

    async fn flow(idle: Duration) -> Flow {
        let target = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let socket = connect(target.local_addr().unwrap()).await.unwrap();
        let address = (Ipv4Addr::LOCALHOST, socket.local_addr().unwrap().port()).into();
        let (inbox, messages) = mpsc::channel(INBOX);
        let (outbox, said) = mpsc::channel(64);
        tokio::spawn(run(ConnectionId(3), socket, outbox, messages, idle));
        Flow { target, address, inbox, said }
    }

    async fn next(flow: &mut Flow) -> Option<FromTask> {
        let said = tokio::time::timeout(Duration::from_secs(20), flow.said.recv()).await.expect("it says something");
        said.map(|(_, said)| said)
    }

    fn datagram(bytes: &[u8]) -> ToTask {
        ToTask::Datagram(Bytes::copy_from_slice(bytes))
    }

    #[tokio::test]
    async fn the_first_datagram_to_a_target_reaches_it() {
        for _ in 0..20 {
            let flow = flow(IDLE).await;
            assert!(hand(&flow.inbox, datagram(b"first")));
            let mut buffer = [0; 100];
            let came = tokio::time::timeout(Duration::from_secs(5), flow.target.recv(&mut buffer)).await;
            assert_eq!(came.expect("it comes").unwrap(), 5);
        }
    }

    #[tokio::test]
    async fn only_the_target_is_heard_and_nothing_that_is_too_long() {
        let mut flow = flow(IDLE).await;
        let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        stranger.send_to(b"from elsewhere", flow.address).await.unwrap();
        assert!(hand(&flow.inbox, datagram(b"question")));
        let mut buffer = [0; 2000];
        let (length, from) = flow.target.recv_from(&mut buffer).await.unwrap();
        assert_eq!((&buffer[..length], from.port()), (&b"question"[..], flow.address.port()));
        flow.target.send_to(&[1; MOST_DATAGRAM + 1], from).await.unwrap();
        stranger.send_to(b"from elsewhere", flow.address).await.unwrap();
        for length in [0, MOST_DATAGRAM] {
            flow.target.send_to(&vec![2; length], from).await.unwrap();
            let Some(FromTask::Datagram(bytes)) = next(&mut flow).await else { panic!("something else") };
            assert_eq!(bytes[..], vec![2; length][..]);
        }
    }

    #[tokio::test]
    async fn who_floods_waits_in_the_socket_and_a_reset_is_sent_all_the_same() {
        let mut flow = flow(IDLE).await;
        for _ in 0..200 {
            flow.target.send_to(&[7; 1000], flow.address).await.unwrap();
        }
        for _ in 0..MOST_UNSENT {
            assert!(matches!(next(&mut flow).await, Some(FromTask::Datagram(_))));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(flow.said.try_recv().is_err(), "what was not taken is followed by nothing");
        flow.inbox.try_send(ToTask::Taken).unwrap();
        assert!(matches!(next(&mut flow).await, Some(FromTask::Datagram(_))));
        // The task does not run meanwhile: datagrams leave room for what must not be lost.
        let handed = (0..200).filter(|_| hand(&flow.inbox, datagram(b"x"))).count();
        assert!(handed <= MOST_UNTAKEN && handed > 0, "{handed}");
        flow.inbox.try_send(ToTask::Reset(Reason::Stopped)).unwrap();
        assert!(next(&mut flow).await.is_none(), "its task is gone");
    }

    #[tokio::test]
    async fn a_flow_ends_when_its_user_is_silent_whatever_the_target_says() {
        let mut flow = flow(Duration::from_millis(300)).await;
        for _ in 0..4 {
            flow.target.send_to(b"again", flow.address).await.unwrap();
            assert!(matches!(next(&mut flow).await, Some(FromTask::Datagram(_))));
            flow.inbox.send(ToTask::Taken).await.unwrap();
        }
        assert!(matches!(next(&mut flow).await, Some(FromTask::Reset(Reason::Stopped))));
        assert!(next(&mut flow).await.is_none());
    }

    #[tokio::test]
    async fn a_port_at_which_nobody_listens_ends_it() {
        let mut flow = flow(IDLE).await;
        let gone = std::mem::replace(&mut flow.target, UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap());
        drop(gone);
        // The system tells of what one datagram has met when the next one leaves.
        let why = loop {
            hand(&flow.inbox, datagram(b"hello?"));
            if let Ok(said) = tokio::time::timeout(Duration::from_millis(20), flow.said.recv()).await {
                break said.expect("it says why").1;
            }
        };
        assert!(matches!(why, FromTask::Reset(Reason::Refused)), "{why:?}");
    }
}
