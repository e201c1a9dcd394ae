//! What a peer has still to send, and what of it leaves first when its window has room:
//!
//! 1. manifests and what neighbours announce to and ask of each other: small, and others wait for it;
//! 2. pushes, in the order in which they came: a packet that is late here is late in a whole subtree;
//! 3. packets that were asked for, of the neighbour that has least of what is here [Efthymiopoulos
//!    2015, 2: the most deprived].
//!
//! What was asked for leaves only as far as pushes leave room: packets that leave are counted against what the
//! peer believes that it can send, and an answer waits until all that left before it has had its time. Otherwise
//! answers to newcomers would fill the line's queue, and delay or lose what whole subtrees wait for. Where a mesh alone
//! carries the stream, viewers push nothing: there answers wait for the window alone, which knows the line better than
//! who believed something of it at the beginning.
//!
//! What waits for too long is dropped, not sent. Where a mesh repairs, a push waits no longer than a
//! child needs to miss it: by then the child asks others, and what is behind it in the queue would be
//! late as well.

use std::collections::VecDeque;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::content::Content;
use super::message::Datagram;
use super::on_wire;
use super::packet::PacketId;
use crate::session::SessionId;

/// Datagrams ahead of pushes that wait at most, over all sessions: enough for a manifest and a map
/// to each of a thousand neighbours.
const MOST_AHEAD: usize = 2048;

/// Pushes that wait at most: two seconds of a gigabit a second would not fit, but a window would long
/// have been known to be too small.
const MOST_PUSHES: usize = 1 << 16;

/// Exploration packets that wait at most.
const MOST_BEHIND: usize = 256;

/// Packets that one neighbour may have asked for and not got: three seconds of 4 Mbit/s, with which a
/// viewer begins.
pub const MOST_ASKED: usize = 1152;

/// The part of what a peer can send that answers may use up with what it pushes: the rest is for ACKs, which
/// are a twentieth of what comes.
pub(super) const USED: f64 = 0.95;

/// Bytes of a packet.
const PACKET: f64 = on_wire::PACKET as f64;

/// Answers that leave at once at most after a rest.
const ANSWERS_AT_ONCE: f64 = 4.0;

/// Whoever can send nothing looks again after this.
const LONGEST_WAIT: Duration = Duration::from_millis(1000);

/// What one neighbour has asked for.
#[derive(Clone, Debug, Default)]
struct Asked {
    /// Each with the time until which it is waited for.
    ids: VecDeque<(PacketId, Time)>,
    /// How many of our packets it has, by its last map.
    has: u32,
}

/// Queues of a peer.
#[derive(Clone, Debug)]
pub struct Uplink<C: Content> {
    /// What leaves ahead of all others.
    ahead: VecDeque<(SessionId, Datagram<C>)>,
    /// Each with the time since which it waits.
    pushes: VecDeque<(SessionId, PacketId, Time)>,
    /// What leaves behind pushes, each with how many pushes had waited before it, all in all.
    behind: VecDeque<(u64, SessionId, Datagram<C>)>,
    /// Pushes that have waited so far, and that wait no more.
    pushed: u64,
    popped: u64,
    /// By session.
    asked: Vec<Asked>,
    /// How many packets are asked for, over all sessions.
    asked_packets: usize,
    /// What this peer believes that it can send; what is left of it for answers, in bytes, less than none while
    /// pushes take more, and since when.
    rate: Rate,
    left: f64,
    counted: Time,
    /// When the next answer may leave, if one was held back.
    held_until: Time,
    /// Whether answers wait for the window alone.
    answers_freely: bool,
}

/// What leaves next.
#[derive(Clone, Debug)]
pub enum Next<C: Content> {
    /// This, as it is.
    Ready(Datagram<C>),
    /// This packet, pushed.
    Push(PacketId),
    /// This packet, because it was asked for.
    Reply(PacketId),
}

impl<C: Content> Uplink<C> {
    /// Empty, of a peer that believes that it can send `rate`.
    pub fn new(rate: Rate) -> Uplink<C> {
        Uplink {
            ahead: VecDeque::new(),
            pushes: VecDeque::new(),
            behind: VecDeque::new(),
            pushed: 0,
            popped: 0,
            asked: Vec::new(),
            asked_packets: 0,
            rate,
            left: 0.0,
            counted: Time::ZERO,
            held_until: Time::MAX,
            answers_freely: false,
        }
    }

    /// It can send `rate` from now on.
    pub fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// It pushes nothing, or does: whether answers wait for the window alone.
    pub fn set_answers_freely(&mut self, answers_freely: bool) {
        self.answers_freely = answers_freely;
    }

    /// When an answer that was held back may leave; `Time::MAX` if none was.
    pub fn timer(&self) -> Time {
        self.held_until
    }

    /// That time has come: it is asked for again.
    pub fn on_timer(&mut self, now: Time) {
        if now >= self.held_until {
            self.held_until = Time::MAX;
        }
    }

    /// Counts what has had its time since the last call.
    fn count(&mut self, now: Time) {
        let had = self.rate.bytes_per_sec() * USED * now.since(self.counted).as_secs_f64();
        (self.left, self.counted) = ((self.left + had).min(ANSWERS_AT_ONCE * PACKET), now);
    }

    /// Sends `datagram` before any packet.
    pub fn push_ahead(&mut self, to: SessionId, datagram: Datagram<C>) {
        if self.ahead.len() < MOST_AHEAD {
            self.ahead.push_back((to, datagram));
        }
    }

    /// Sends `id` behind the pushes before it.
    #[inline]
    pub fn push(&mut self, now: Time, to: SessionId, id: PacketId) {
        if self.pushes.len() < MOST_PUSHES {
            self.pushes.push_back((to, id, now));
            self.pushed += 1;
        }
    }

    /// Sends `datagram` behind the pushes before it, as one of them.
    pub fn push_behind(&mut self, to: SessionId, datagram: Datagram<C>) {
        if self.behind.len() < MOST_BEHIND {
            self.behind.push_back((self.pushed, to, datagram));
        }
    }

    /// `from` asks for `ids`, waits for them until `until`, and has `has` of our packets. What is not
    /// sent by then is not sent at all: who asked has asked somebody else.
    pub fn ask(&mut self, now: Time, from: SessionId, ids: impl IntoIterator<Item = PacketId>, until: Time, has: u32) {
        if self.asked.len() <= from.index() {
            self.asked.resize_with(from.index() + 1, Asked::default);
        }
        let asked = &mut self.asked[from.index()];
        asked.has = has;
        // What nobody waits for any more takes no room.
        while asked.ids.front().is_some_and(|&(_, until)| until <= now) {
            asked.ids.pop_front();
            self.asked_packets -= 1;
        }
        for id in ids {
            if asked.ids.len() < MOST_ASKED {
                asked.ids.push_back((id, until));
                self.asked_packets += 1;
            }
        }
    }

    /// How long the push that leaves next has waited.
    pub fn waited(&self, now: Time) -> Duration {
        self.pushes.front().map_or(Duration::ZERO, |&(.., since)| now.since(since))
    }

    /// How many pushes wait.
    pub fn pushes(&self) -> usize {
        self.pushes.len()
    }

    /// Whether nothing waits to leave.
    pub fn is_empty(&self) -> bool {
        !self.waits_for_room() && self.asked_packets == 0
    }

    /// Whether anything waits only until the window has room.
    pub fn waits_for_room(&self) -> bool {
        self.waiting_for_room() > 0
    }

    fn waiting_for_room(&self) -> usize {
        let answers = if self.answers_freely { self.asked_packets } else { 0 };
        self.ahead.len() + self.pushes.len() + self.behind.len() + answers
    }

    /// What waits only until the window has room, each of it counted as a packet.
    pub fn waiting(&self) -> Bytes {
        Bytes::new((self.waiting_for_room() * on_wire::PACKET) as u64)
    }

    /// What leaves next, and to whom; pushes that have waited for `patience` do not.
    #[inline]
    pub fn pop(&mut self, now: Time, patience: Duration) -> Option<(SessionId, Next<C>)> {
        self.held_until = Time::MAX;
        self.count(now);
        if let Some((to, datagram)) = self.ahead.pop_front() {
            self.left -= on_wire::of(&datagram) as f64;
            return Some((to, Next::Ready(datagram)));
        }
        loop {
            if self.behind.front().is_some_and(|&(before, ..)| before <= self.popped)
                && let Some((_, to, datagram)) = self.behind.pop_front()
            {
                self.left -= on_wire::of(&datagram) as f64;
                return Some((to, Next::Ready(datagram)));
            }
            let Some((to, id, since)) = self.pushes.pop_front() else { break };
            self.popped += 1;
            if now.since(since) < patience {
                self.left -= PACKET;
                return Some((to, Next::Push(id)));
            }
        }
        while self.asked_packets > 0 {
            if !self.answers_freely && self.left < PACKET {
                let needed = Rate::from_bytes_per_sec_f64(self.rate.bytes_per_sec() * USED);
                let wait = Bytes::new((PACKET - self.left).ceil() as u64) / needed;
                self.held_until = now + wait.min(LONGEST_WAIT);
                return None;
            }
            let waiting = self.asked.iter().enumerate().filter(|(_, asked)| !asked.ids.is_empty());
            let (session, _) = waiting.min_by_key(|(_, asked)| asked.has)?;
            let asked = &mut self.asked[session];
            let (id, until) = asked.ids.pop_front()?;
            self.asked_packets -= 1;
            if now < until {
                asked.has += 1;
                self.left -= PACKET;
                return Some((SessionId(session as u32), Next::Reply(id)));
            }
        }
        None
    }

    /// A session is over: what was for it is not for the next one of its number.
    pub fn forget(&mut self, session: SessionId) {
        self.ahead.retain(|(to, _)| *to != session);
        self.behind.retain(|(_, to, _)| *to != session);
        // Who was before the others is not known any more: what waits behind leaves a little sooner.
        let before = self.pushes.len();
        self.pushes.retain(|(to, ..)| *to != session);
        self.popped += (before - self.pushes.len()) as u64;
        if let Some(asked) = self.asked.get_mut(session.index()) {
            self.asked_packets -= asked.ids.len();
            *asked = Asked::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Tested;
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn a_push_that_has_waited_too_long_does_not_leave_and_holds_up_nothing() {
        let mut uplink: Uplink<Tested> = Uplink::new(Rate::from_bits_per_sec(10_000_000));
        uplink.push(at(0), SessionId(1), PacketId(7));
        uplink.push(at(100), SessionId(1), PacketId(8));
        let next = uplink.pop(at(250), Duration::from_millis(250));
        assert!(matches!(next, Some((SessionId(1), Next::Push(PacketId(8))))), "{next:?}");
        assert!(uplink.is_empty());
    }

    #[test]
    fn what_is_behind_pushes_leaves_in_their_turn() {
        let mut uplink: Uplink<Tested> = Uplink::new(Rate::from_bits_per_sec(10_000_000));
        uplink.push(at(0), SessionId(1), PacketId(1));
        uplink.push(at(0), SessionId(2), PacketId(2));
        uplink.push_behind(SessionId(9), Datagram::WantManifests(PacketId(0), PacketId(0)));
        uplink.push(at(0), SessionId(3), PacketId(3));
        let patience = Duration::from_millis(250);
        let order: Vec<u32> = std::iter::from_fn(|| uplink.pop(at(10), patience)).map(|(to, _)| to.0).collect();
        assert_eq!(order, [1, 2, 9, 3]);
        uplink.push(at(20), SessionId(1), PacketId(4));
        uplink.push_behind(SessionId(9), Datagram::WantManifests(PacketId(0), PacketId(0)));
        uplink.forget(SessionId(1));
        assert_eq!(uplink.pop(at(30), patience).map(|(to, _)| to.0), Some(9), "nothing is before it any more");
        assert!(uplink.is_empty());
    }

    #[test]
    fn what_was_asked_for_waits_until_what_left_before_has_had_its_time() {
        // A packet takes 1.1 ms of ten megabits a second.
        let mut uplink: Uplink<Tested> = Uplink::new(Rate::from_bits_per_sec(10_000_000));
        let patience = Duration::from_millis(250);
        for id in 0..50 {
            uplink.push(at(1000), SessionId(1), PacketId(id));
        }
        uplink.ask(at(1000), SessionId(2), [PacketId(7)], at(2000), 0);
        let pushed = std::iter::from_fn(|| uplink.pop(at(1000), patience)).filter(|(to, _)| to.0 == 1).count();
        assert_eq!((pushed, uplink.is_empty()), (50, false), "pushes wait for nothing");
        let due = uplink.timer();
        assert!((at(1050)..at(1065)).contains(&due), "{due}");
        uplink.on_timer(due);
        assert_eq!(uplink.timer(), Time::MAX);
        assert!(matches!(uplink.pop(due, patience), Some((SessionId(2), Next::Reply(PacketId(7))))));
    }

    #[test]
    fn where_nothing_is_pushed_answers_wait_for_the_window_alone() {
        // A packet takes 1.1 s of what this peer believes that it can send; its line may have become faster.
        let mut uplink: Uplink<Tested> = Uplink::new(Rate::from_bits_per_sec(10_000));
        let patience = Duration::from_millis(250);
        let mut answered = |answers_freely: bool| {
            uplink.set_answers_freely(answers_freely);
            uplink.ask(at(1000), SessionId(2), (0..50).map(PacketId), at(1300), 0);
            let waits = (uplink.waits_for_room(), uplink.waiting());
            let packets = std::iter::from_fn(|| uplink.pop(at(1000), patience)).count();
            uplink.forget(SessionId(2));
            (packets, uplink.timer() == Time::MAX, waits)
        };
        assert_eq!(answered(true), (50, true, (true, Bytes::new(50 * on_wire::PACKET as u64))));
        assert_eq!(answered(false), (0, false, (false, Bytes::ZERO)));
    }

    #[test]
    fn what_was_asked_for_leaves_after_pushes_to_who_has_least_first() {
        let mut uplink: Uplink<Tested> = Uplink::new(Rate::from_bits_per_sec(10_000_000));
        uplink.ask(at(0), SessionId(1), [PacketId(1)], at(300), 90);
        uplink.ask(at(0), SessionId(2), [PacketId(2), PacketId(3)], at(300), 10);
        uplink.push(at(0), SessionId(3), PacketId(4));
        let patience = Duration::from_millis(250);
        let order: Vec<u32> = std::iter::from_fn(|| uplink.pop(at(10), patience)).map(|(to, _)| to.0).collect();
        assert_eq!(order, [3, 2, 2, 1]);
        uplink.ask(at(0), SessionId(1), [PacketId(1)], at(300), 90);
        assert!(uplink.pop(at(300), patience).is_none(), "who asked has asked somebody else");
    }
}
