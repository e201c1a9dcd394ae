//! A viewer that lies in what it passes on, for demonstrations and tests on one machine: what honest viewers make
//! of it shows only where somebody does it.

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::codec::CodecError;
use anabranch_proto::session::{
    Application, Closed, DATAGRAM_HEADERS, PeerKey, Remote, SessionId, Sessions, WireLength,
};
use anabranch_proto::stream::message::{Datagram, Message};
use anabranch_proto::stream::peer::{StreamEvent, StreamPeer};
use anabranch_proto::stream::traffic::Traffic;

use super::content::Signed;
use crate::sessions::WireApplication;

/// The part of its packets that a dropper drops.
const DROPPED: f64 = 0.5;

/// What claimers say that they can send, of what they can.
const CLAIMED: u64 = 10;

/// How somebody lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// It passes nothing on.
    FreeRides,
    /// It says that it can send ten times what it can.
    Claims,
    /// It drops half of what it should pass on.
    Drops,
    /// It changes what it passes on.
    Poisons,
}

impl Lie {
    /// All of them.
    pub const ALL: [Lie; 4] = [Lie::FreeRides, Lie::Claims, Lie::Drops, Lie::Poisons];

    /// What one is called who does so.
    pub fn name(self) -> &'static str {
        match self {
            Lie::FreeRides => "free-rider",
            Lie::Claims => "claimer",
            Lie::Drops => "dropper",
            Lie::Poisons => "poisoner",
        }
    }

    /// What somebody says that it can send who can send `upload`.
    pub fn announced(lie: Option<Lie>, upload: Rate) -> Rate {
        let factor = if lie == Some(Lie::Claims) { CLAIMED } else { 1 };
        Rate::from_bits_per_sec(upload.bits_per_sec().saturating_mul(factor))
    }
}

impl FromStr for Lie {
    type Err = String;

    fn from_str(text: &str) -> Result<Lie, String> {
        let known = Lie::ALL.into_iter().find(|lie| lie.name() == text);
        known.ok_or_else(|| format!("expected one of {}", Lie::ALL.map(Lie::name).join(", ")))
    }
}

type Inner = StreamPeer<SocketAddr, Signed>;

/// A server or viewer as it runs; of viewers, one may lie.
#[derive(Clone, Debug)]
pub struct MaybeLiar {
    peer: Inner,
    lie: Option<Lie>,
    rng: Rng,
    traffic: Traffic,
}

impl MaybeLiar {
    /// `peer`, which lies so, by `rng`.
    pub fn new(peer: Inner, lie: Option<Lie>, rng: Rng) -> MaybeLiar {
        MaybeLiar { peer, lie, rng, traffic: Traffic::default() }
    }

    /// The peer itself.
    pub fn peer(&self) -> &Inner {
        &self.peer
    }

    /// What it has handed over to be sent: datagrams with their packets' headers, messages without. What QUIC adds
    /// is not known here.
    pub fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// The peer itself, to act on.
    pub fn peer_mut(&mut self) -> &mut Inner {
        &mut self.peer
    }

    /// What leaves in the place of `datagram`, if anything does.
    fn replacement(&mut self, datagram: Datagram<Signed>) -> Option<Datagram<Signed>> {
        let Datagram::Packet { id, stamp, packet } = datagram else { return Some(datagram) };
        let packet = match self.lie {
            None | Some(Lie::Claims) => packet,
            Some(Lie::FreeRides) => return None,
            Some(Lie::Drops) if self.rng.chance(DROPPED) => return None,
            Some(Lie::Drops) => packet,
            Some(Lie::Poisons) => poisoned(&packet),
        };
        Some(Datagram::Packet { id, stamp, packet })
    }
}

fn poisoned(packet: &[u8]) -> Arc<[u8]> {
    let mut bytes = packet.to_vec();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    bytes.into()
}

/// Its sessions, as the peer within uses them.
struct Within<'a, S>(&'a mut S, &'a mut Traffic);

impl<S: Sessions<MaybeLiar>> Sessions<Inner> for Within<'_, S> {
    fn open(&mut self, to: SocketAddr, key: Option<PeerKey>) -> Option<SessionId> {
        self.0.open(to, key)
    }

    fn open_way(&mut self, from: SocketAddr) {
        self.0.open_way(from);
    }

    fn send(&mut self, session: SessionId, message: Message<SocketAddr, Signed>) {
        self.1.messages += message.wire_length() as u64;
        self.0.send(session, message);
    }

    fn close(&mut self, session: SessionId) {
        self.0.close(session);
    }

    fn least_round_trip(&self, session: SessionId) -> Option<Duration> {
        self.0.least_round_trip(session)
    }

    fn delivered(&self) -> Bytes {
        self.0.delivered()
    }

    fn event(&mut self, event: StreamEvent<Arc<[u8]>>) {
        self.0.event(event);
    }
}

impl Application for MaybeLiar {
    type Address = SocketAddr;
    type Message = Message<SocketAddr, Signed>;
    type Datagram = Datagram<Signed>;
    type Event = StreamEvent<Arc<[u8]>>;

    fn accepts(&mut self, now: Time, remote: &Remote<SocketAddr>) -> bool {
        self.peer.accepts(now, remote)
    }

    fn on_open(
        &mut self,
        now: Time,
        id: SessionId,
        remote: &Remote<SocketAddr>,
        sessions: &mut impl Sessions<MaybeLiar>,
    ) {
        self.peer.on_open(now, id, remote, &mut Within(sessions, &mut self.traffic));
    }

    fn on_message(
        &mut self,
        now: Time,
        id: SessionId,
        message: Self::Message,
        sessions: &mut impl Sessions<MaybeLiar>,
    ) {
        self.peer.on_message(now, id, message, &mut Within(sessions, &mut self.traffic));
    }

    fn on_datagram(
        &mut self,
        now: Time,
        id: SessionId,
        datagram: Self::Datagram,
        sessions: &mut impl Sessions<MaybeLiar>,
    ) {
        self.peer.on_datagram(now, id, datagram, &mut Within(sessions, &mut self.traffic));
    }

    fn on_silent(&mut self, now: Time, id: SessionId, is_silent: bool, sessions: &mut impl Sessions<MaybeLiar>) {
        self.peer.on_silent(now, id, is_silent, &mut Within(sessions, &mut self.traffic));
    }

    fn on_closed(&mut self, now: Time, id: SessionId, why: Closed, sessions: &mut impl Sessions<MaybeLiar>) {
        self.peer.on_closed(now, id, why, &mut Within(sessions, &mut self.traffic));
    }

    fn on_timer(&mut self, now: Time, sessions: &mut impl Sessions<MaybeLiar>) {
        self.peer.on_timer(now, &mut Within(sessions, &mut self.traffic));
    }

    fn timer(&self, now: Time) -> Time {
        self.peer.timer(now)
    }

    fn waiting(&self) -> Bytes {
        self.peer.waiting()
    }

    fn next_datagram(&mut self, now: Time) -> Option<(SessionId, Self::Datagram)> {
        loop {
            let (to, datagram) = self.peer.next_datagram(now)?;
            if let Some(replacement) = self.replacement(datagram) {
                self.traffic.on_datagram(&replacement, (DATAGRAM_HEADERS + replacement.wire_length()) as u64);
                return Some((to, replacement));
            }
        }
    }
}

impl WireApplication for MaybeLiar {
    fn write_message(message: &Self::Message, out: &mut Vec<u8>) {
        Inner::write_message(message, out);
    }

    fn read_message(bytes: &[u8]) -> Result<Self::Message, CodecError> {
        Inner::read_message(bytes)
    }

    fn write_datagram(datagram: &Self::Datagram, out: &mut Vec<u8>) {
        Inner::write_datagram(datagram, out);
    }

    fn read_datagram(bytes: &[u8]) -> Result<Self::Datagram, CodecError> {
        Inner::read_datagram(bytes)
    }
}
