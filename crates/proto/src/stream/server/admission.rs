//! Who wants to watch: where it begins, what the server sends it itself, and what others believe it by.

use std::sync::Arc;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;

use super::super::beginning::{Beginnings, GIVEN_UP_AFTER};
use super::super::content::{ClientId, Content, TICKET_LIFE, Ticket};
use super::super::message::{Datagram, Message, Mode, StreamInfo, Welcome};
use super::super::packet::PacketId;
use super::super::tracker::Refusal;
use super::super::uplink::USED;
use super::{Server, ServerEvent};
use crate::network::Address;
use crate::session::{PeerKey, SessionId, Sessions};

impl<A: Address, C: Content> Server<A, C> {
    pub(super) fn ticket(&self, now: Time, client: ClientId, key: PeerKey) -> Ticket<C> {
        let expires = self.source.stamp(now).after(TICKET_LIFE);
        let signature = C::sign_ticket(self.source.secret(), self.source.broadcast(), client, &key, expires);
        Ticket { client, key, expires, signature }
    }

    pub(super) fn on_join(
        &mut self,
        now: Time,
        session: SessionId,
        upload: Option<Rate>,
        sessions: &mut impl Sessions<Self>,
    ) {
        let Some(peer) = self.peers.get_mut(session) else { return };
        let (None, Some(remote)) = (peer.client, peer.remote) else { return };
        // To look for a place costs more than to ask for one, and an answer more than a question.
        if std::mem::replace(&mut peer.has_asked, true) {
            return;
        }
        if self.excluded.contains(&remote.key) {
            sessions.event(ServerEvent::Refused(Refusal::Excluded));
            sessions.close(session);
            self.forget(session);
            return;
        }
        // What comes before the stream is known is admitted when it is.
        let bitrate = self.source.bitrate(now);
        self.tracker.set_bitrate(bitrate);
        // Where all are private, nobody need ask for it.
        let upload = upload.filter(|_| !self.tracker.is_private());
        let joined = match upload {
            _ if !self.has_room_for_viewer(remote.address) => Err(Refusal::NetworkIsFull),
            Some(upload) => self.tracker.join(now, session, &remote, upload, sessions.least_round_trip(session)),
            None => self.tracker.join_privately(now, session, &remote),
        };
        match joined {
            Err(refusal) => {
                sessions.event(ServerEvent::Refused(refusal));
                self.send(now, session, Message::Overloaded, sessions);
            }
            Ok(client) => {
                self.peers.on_proved(session, client);
                let edge = (self.source.edge(), self.source.stamp(now));
                let group = Beginnings::group(bitrate);
                let room = self.beginnings.room(now, self.left());
                // A newcomer begins with a whole group of pictures that has left, where the server sends it all of the
                // past itself, or where a mesh alone brings nothing sooner. Else with the newest one: with what of it
                // has left, where its parents have room to send that. Where they have not, with one of which nothing has
                // left yet, mostly: it need not wait for a past that nobody has room to send.
                let past = |begin: Option<PacketId>| begin.map_or(0, |begin| edge.0.since(begin));
                let whole = self.source.keyframe(now, self.config.begin_behind + self.source.delay());
                let sends_all = past(whole) <= room;
                let catches_up = self.tracker.has_room_to_catch_up(now, self.config.begin_behind);
                let newest = self.source.keyframe(now, if catches_up { self.source.delay() } else { Duration::ZERO });
                let is_behind = sends_all || self.config.mode == Mode::Mesh && catches_up;
                let behind = if is_behind { whole } else { newest };
                // Whom the server feeds itself, it repairs as well.
                let mode = if upload.is_some() { self.config.mode } else { Mode::Hybrid };
                let begin = if mode.has_mesh() { behind.unwrap_or(edge.0) } else { edge.0 };
                let (slices, is_private) = (self.config.tracker.slices, self.tracker.is_private());
                let broadcast = self.source.broadcast();
                let stream = StreamInfo { broadcast, mode, is_private, slices, bitrate, begin, edge };
                self.views.on_joined(now, client, begin);
                let most = if sends_all { room } else { group.min(room) };
                let most = if mode == Mode::Hybrid { most } else { 0 };
                let sent = self.send_beginning(now, session, begin, most);
                let ticket = self.ticket(now, client, remote.key);
                self.send(now, session, Message::Welcome(Box::new(Welcome { stream, sent, ticket })), sessions);
                // By them it can tell what others send it before anybody pushes it any.
                for manifest in self.manifests.iter().filter(|manifest| manifest.end() > begin) {
                    self.uplink.push_ahead(session, Datagram::Manifest(Arc::clone(manifest)));
                }
                sessions.event(ServerEvent::Joined(client));
                if self.config.mode.has_mesh() {
                    let neighbours = self.tracker.neighbours(client, 0, &mut self.rng);
                    self.announce_caller(now, session, neighbours.iter().map(|contact| contact.client), sessions);
                    self.send(now, session, Message::Neighbours(neighbours), sessions);
                }
                self.send_assignments(now, sessions);
            }
        }
    }

    /// What pushes leave of what the server can send.
    fn left(&self) -> Rate {
        let held = self.pushing.held().max(self.tracker.server_held());
        let pushed = self.tracker.slice_rate().bytes_per_sec() * held as f64;
        Rate::from_bytes_per_sec_f64((USED * self.tracker.for_the_stream().bytes_per_sec() - pushed).max(0.0))
    }

    /// Sends a newcomer `most` packets at most from `begin` on: how many.
    fn send_beginning(&mut self, now: Time, session: SessionId, begin: PacketId, most: u64) -> u16 {
        let packets = most.min(self.source.edge().since(begin));
        self.beginnings.promise(now, self.left(), packets);
        let ids = (0..packets).map(|number| begin.after(number));
        self.uplink.ask(now, session, ids, now + GIVEN_UP_AFTER, 0);
        packets as u16
    }
}
