//! What server and clients do alike for those below them.

use anabranch_control::time::{Duration, Time};

use super::buffer::Buffer;
use super::content::{ClientId, Content};
use super::message::Datagram;
use super::packet::{PacketId, SliceSet, Stamp};
use super::pushing::Pushing;
use super::uplink::{Next, Uplink};
use crate::session::SessionId;

/// A child asks for slices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub session: SessionId,
    pub client: ClientId,
    pub slices: SliceSet,
    /// What it has of them ends here.
    pub from: PacketId,
}

/// Serves a child as far as there is room, and sends it what is here of its slices until `until`; the
/// slices that there is no room for.
pub(super) fn subscribe<C: Content>(
    now: Time,
    asked: Subscription,
    until: Time,
    (pushing, uplink): (&mut Pushing, &mut Uplink<C>),
    held: &Buffer<C::Packet>,
) -> SliceSet {
    let Subscription { session, client, slices, from } = asked;
    let new = slices.without(pushing.served(session));
    let refused = pushing.on_subscribe(now, session, client, slices);
    // Who asks again for what it gets is sent nothing twice.
    let ids: Vec<PacketId> = held.of_slices(new.without(refused), pushing.slices(), from).collect();
    // The newest of each slice is pushed: by it who asks knows that it is served, and asks nobody else.
    let is_newest = |place: usize| {
        let slice = ids[place].slice(pushing.slices());
        ids[place + 1..].iter().all(|later| later.slice(pushing.slices()) != slice)
    };
    let (newest, older): (Vec<usize>, Vec<usize>) = (0..ids.len()).partition(|&place| is_newest(place));
    newest.into_iter().for_each(|place| uplink.push(now, session, ids[place]));
    uplink.ask(now, session, older.into_iter().map(|place| ids[place]), until, 0);
    refused
}

/// What leaves next. `get` gives a packet that is here, and how old it is. Nobody can use any more what is
/// older than `patience`, and no push waits for its turn for longer than `push_patience`.
pub(super) fn next_datagram<'a, C: Content>(
    now: Time,
    uplink: &mut Uplink<C>,
    (push_patience, patience): (Duration, Duration),
    get: impl Fn(PacketId) -> Option<(Duration, Stamp, &'a C::Packet)>,
) -> Option<(SessionId, Datagram<C>)> {
    loop {
        let (to, next) = uplink.pop(now, push_patience)?;
        let (id, is_push) = match next {
            Next::Ready(datagram) => return Some((to, datagram)),
            Next::Push(id) => (id, true),
            Next::Reply(id) => (id, false),
        };
        let Some((age, stamp, packet)) = get(id) else { continue };
        // Who asked says for itself how long it waits.
        if is_push && age >= patience {
            continue;
        }
        return Some((to, Datagram::Packet { id, stamp, packet: packet.clone() }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::buffer::BufferConfig;
    use super::super::testing::{TestPacket, Tested};
    use super::*;
    use anabranch_control::units::Rate;

    #[test]
    fn the_newest_of_each_slice_is_pushed_and_what_is_older_is_an_answer() {
        let now = Time::ZERO + Duration::from_millis(1000);
        let config = BufferConfig { patience: Duration::from_millis(2700), capacity: 2048 };
        let mut held = Buffer::new(config, PacketId(0));
        for id in 0..10 {
            held.insert(PacketId(id), Stamp(0), TestPacket { is_genuine: true });
        }
        let (mut pushing, mut uplink) = (Pushing::new(3), Uplink::<Tested>::new(Rate::from_bits_per_sec(100_000_000)));
        pushing.set_places(3);
        let slices = SliceSet(0b101);
        let asked = Subscription { session: SessionId(4), client: ClientId(7), slices, from: PacketId(2) };
        let refused = subscribe(now, asked, now + Duration::SECOND, (&mut pushing, &mut uplink), &held);
        assert!(refused.is_empty());
        let (mut pushes, mut replies) = (Vec::new(), Vec::new());
        while let Some((session, next)) = uplink.pop(now, Duration::SECOND) {
            assert_eq!(session, SessionId(4));
            match next {
                Next::Push(id) => pushes.push(id.0),
                Next::Reply(id) => replies.push(id.0),
                Next::Ready(_) => panic!("nothing else was asked for"),
            }
        }
        pushes.sort_unstable();
        assert_eq!((pushes, replies), (vec![8, 9], vec![2, 3, 5, 6]), "slices 0 and 2 of 3");
    }
}
