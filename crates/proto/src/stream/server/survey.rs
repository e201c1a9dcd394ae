//! What the server finds out about all viewers: what each bears and how far apart they are, by exploration; what
//! is idle, by gossip.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::super::content::Content;
use super::super::message::{Datagram, Message};
use super::super::on_wire;
use super::super::packet::PacketId;
use super::Server;
use crate::network::Address;
use crate::session::{SessionId, Sessions};

/// How long an ACK's way counts as where no round trip was seen yet.
const UNKNOWN_WAY: Duration = Duration::from_millis(500);

impl<A: Address, C: Content> Server<A, C> {
    /// Chains are drawn, and what was learned is what viewers bear: after the trees have changed, so that what
    /// is learned next is of them [Raiber 2010, 3.2.3].
    pub(super) fn explore(&mut self, now: Time, is_review: bool, sessions: &mut impl Sessions<Self>) {
        let Some(exploration) = &mut self.exploration else { return };
        let (members, rates) = (self.tracker.members(), (self.tracker.upload(), self.tracker.slice_rate()));
        let chain_links = exploration.on_tick(now, &members, rates, self.tracker.explored_links());
        exploration.expire(now, self.tracker.explored_links());
        if is_review {
            self.tracker.set_explored(|client| exploration.places(client));
        }
        for (session, link) in chain_links {
            self.send(now, session, Message::Chain(Box::new(link)), sessions);
        }
    }

    /// Exploration packets leave that are due: the newest of the stream.
    pub(super) fn depart(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let Server { exploration: Some(exploration), tracker, kept, uplink, .. } = self else { return };
        let back = |session| sessions.least_round_trip(session).unwrap_or(UNKNOWN_WAY);
        let Some(departure) = exploration.depart(now, tracker.explored_links(), back) else { return };
        let newest = kept.end().0.checked_sub(1).map(PacketId);
        if let Some((id, (stamp, packet))) = newest.and_then(|id| Some((id, kept.get(id)?))) {
            let (chain, nonce, packet) = (departure.chain, departure.nonce, packet.clone());
            uplink.push_ahead(departure.session, Datagram::Explore { chain, nonce, id, stamp, packet });
        }
    }

    /// The server takes part in gossip, and does what the law says with its result.
    pub(super) fn monitor(&mut self, now: Time, sessions: &mut impl Sessions<Self>) {
        let stamp = self.source.stamp(now);
        let viewers = self.tracker.len();
        let is_over = self.monitoring.on_time(now, stamp, self.tracker.upload(), sessions.delivered());
        if is_over && let (Some(mean), Some(enabler)) = (self.monitoring.gossip().mean(), &mut self.enabler) {
            let bitrate = Rate::from_bytes_per_sec_f64(self.source.bitrate(now).bytes_per_sec() * on_wire::STREAM);
            let advice = enabler.on_epoch(&mean, viewers + 1, viewers, bitrate);
            self.tracker.set_upload(advice.helper);
        }
        let to: Vec<SessionId> = self.tracker.viewers().map(|viewer| viewer.session).collect();
        if let Some((to, epoch, mass)) = self.monitoring.give(stamp, &to) {
            self.uplink.push_ahead(to, Datagram::Mass(epoch, mass));
        }
    }
}
