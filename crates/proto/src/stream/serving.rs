//! What server and clients do alike for those below them.

use anabranch_control::time::{Duration, Time};

use super::buffer::Buffer;
use super::content::Content;
use super::message::Datagram;
use super::packet::{PacketId, SliceSet, Stamp};
use super::pushing::{Pushing, Subscription};
use super::uplink::{Next, Uplink};
use crate::session::SessionId;

/// Serves a child as far as there is room, and sends it what is here of its slices until `until`; the
/// slices that there is no room for.
pub(super) fn subscribe<C: Content>(
    now: Time,
    asked: Subscription,
    until: Time,
    (pushing, uplink): (&mut Pushing, &mut Uplink<C>),
    held: &Buffer<C::Packet>,
) -> SliceSet {
    let Subscription { session, slices, from, .. } = asked;
    let new = slices.without(pushing.served(session));
    let refused = pushing.on_subscribe(now, asked);
    // Who asks again for what it gets is sent nothing twice.
    uplink.ask(now, session, held.of_slices(new.without(refused), pushing.slices(), from), until, 0);
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
