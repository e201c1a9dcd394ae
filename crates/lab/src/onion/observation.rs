//! What an agent sees of a user of an onion overlay: numbers with fixed places.

use anabranch_control::time::Time;
use anabranch_onion::crypto::Cryptography;
use anabranch_onion::node::UserCounts;

use super::OnionWorld;
use super::node::OnionNode;
use crate::world::Observer;

/// What [`OnionWorld::observe`] writes of a user, in its order, with units. "New" is since the user was observed last.
pub const OBSERVATION: [(&str, &str); OBSERVATION_LENGTH] = [
    ("downloaded_kbyte_s", "new bytes that it read, kB/s"),
    ("uploaded_kbyte_s", "new bytes that services read of it, kB/s"),
    ("sent_packets_s", "new packets that left, without loops, packets/s"),
    ("delivered_packets_s", "new packets of those that are known to have arrived, packets/s"),
    ("loss_share", "new packets that were given up over those and known arrivals, 0 to 1; 0 without either"),
    ("received_packets_s", "new packets that came back, packets/s"),
    ("stall_s", "since it last read something or, before that, since the beginning, s; 0 once it has all"),
    ("has_all", "1 once it has all that it wants, else 0"),
];

/// Numbers in an observation.
pub const OBSERVATION_LENGTH: usize = 8;

/// A user as it was when it was observed last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Observed {
    at: Time,
    downloaded: u64,
    uploaded: u64,
    counts: UserCounts,
}

impl<C: Cryptography, O: Observer<OnionNode<C>>> OnionWorld<C, O> {
    /// Writes what [`OBSERVATION`] says of `user`.
    ///
    /// # Panics
    ///
    /// If there is no such user.
    pub fn observe(&mut self, user: usize, into: &mut [f32; OBSERVATION_LENGTH]) {
        let now = self.now();
        let relays = (0..self.relays).filter_map(|node| match self.machine(node)? {
            OnionNode::Relay(relay) => relay.uploads.get(&(user as u32)),
            OnionNode::User(_) => None,
        });
        let uploaded = relays.map(|uploaded| uploaded.read).sum();
        let Some(OnionNode::User(downloader)) = self.machine(self.relays + user as u32) else {
            panic!("there is no user {user}")
        };
        let (has, counts) = (downloader.has, *downloader.user.counts());
        let seen = Observed { at: now, downloaded: has.bytes, uploaded, counts };
        let before = std::mem::replace(&mut self.observed[user], seen);
        let seconds = now.since(before.at).as_secs_f64();
        let rate = |new: u64| if seconds > 0.0 { new as f64 / seconds } else { 0.0 };
        let (delivered, lost) = (counts.delivered - before.counts.delivered, counts.lost - before.counts.lost);
        let known = delivered + lost;
        let stall = if has.whole.is_some() { 0.0 } else { now.since(has.last.unwrap_or(Time::ZERO)).as_secs_f64() };
        *into = [
            rate(has.bytes - before.downloaded) / 1e3,
            rate(uploaded - before.uploaded) / 1e3,
            rate(counts.sent - before.counts.sent),
            rate(delivered),
            if known > 0 { lost as f64 / known as f64 } else { 0.0 },
            rate(counts.received - before.counts.received),
            stall,
            f64::from(u8::from(has.whole.is_some())),
        ]
        .map(|number| number as f32);
    }
}
