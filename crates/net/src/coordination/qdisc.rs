//! What waits before a network device, as the kernel counts it: the queueing discipline at its root (tc(8)), asked for over
//! the routing socket (rtnetlink(7), `RTM_GETQDISC`), which anybody may.

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcStats2};
use netlink_sys::protocols::NETLINK_ROUTE;
use netlink_sys::{Socket, SocketAddr};

/// The kernel's name of no queue: what a device like that takes leaves at once.
const NONE: &str = "noqueue";

/// The queue before a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Bytes that wait.
    pub bytes: u64,
    /// Packets that it has dropped.
    pub dropped: u64,
}

/// The queue before the device with this index; none if the kernel does not say.
///
/// # Errors
///
/// When the kernel can't be asked.
pub fn queue(device: i32) -> io::Result<Option<Queue>> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(device));
    let mut request = NetlinkMessage::new(header, NetlinkPayload::from(request));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut found = None;
    // Many answers in each datagram, until one says that it is the last.
    loop {
        let (answers, _) = socket.recv_from_full()?;
        let mut rest = answers.as_slice();
        while !rest.is_empty() {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
            let answer = answer.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()))?;
            // Each is followed by the next at a multiple of four bytes.
            let length = (answer.header.length as usize).next_multiple_of(4).clamp(1, rest.len());
            rest = &rest[length..];
            match answer.payload {
                NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewQueueDiscipline(discipline)) => {
                    found = found.or(at_root(&discipline, device));
                }
                NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                NetlinkPayload::Done(_) => return Ok(found),
                _ => {}
            }
        }
    }
}

/// What it says, if it is at the root of that device.
fn at_root(discipline: &TcMessage, device: i32) -> Option<Queue> {
    if discipline.header.index != device || discipline.header.parent != TcHandle::ROOT {
        return None;
    }
    discipline.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) if kind == NONE => Some(Queue::default()),
        TcAttribute::Stats2(all) => all.iter().find_map(|one| match one {
            TcStats2::Queue(queue) => Some(Queue { bytes: queue.backlog.into(), dropped: queue.drops.into() }),
            _ => None,
        }),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_waits_before_loopback_and_of_no_device_nothing_is_known() {
        let index = std::fs::read_to_string("/sys/class/net/lo/ifindex").unwrap().trim().parse().unwrap();
        let found = queue(index).unwrap();
        // Who has given it a queue has one that may hold something.
        assert!(found.is_some(), "the kernel says nothing of loopback");
        assert_eq!(queue(i32::MAX).unwrap(), None);
    }
}
