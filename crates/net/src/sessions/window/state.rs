//! The window behind its lock: what leaves, arrives and is lost over all connections.

use std::time::Instant;

use anabranch_control::flow::{Bounds, FlowController, Limits, LossCause, Lost, PeerId, Sent};
use anabranch_control::pacer::Pacer;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::shared_controller::{Learned, SharedController};
use anabranch_proto::session::SessionConfig;

use super::member::{Member, Outstanding};

/// What a host wakes too late for, the pacer makes up for up to this, so that it does not become a lower rate.
const CATCH_UP: Duration = Duration::from_millis(10);

/// How long it takes to read ACKs that have come while this host was busy with something else, before they are
/// missed; and as much as another busy host's timers may be late.
const LATENESS: Duration = Duration::from_millis(25);

/// A receiver's silence has begun or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    /// Whose.
    pub member: u32,
    /// Whether it has begun.
    pub has_begun: bool,
}

#[derive(Debug)]
pub(super) struct State {
    /// The library's time when ours was zero.
    began: Instant,
    pub shared: SharedController,
    pub limits: Limits,
    pacer: Pacer,
    /// The most that a receiver is asked to put off an ACK.
    max_ack_delay: Duration,
    packet: Bytes,
    members: Vec<Option<Member>>,
    free: Vec<u32>,
    /// The member that was made last, for whoever began its connection.
    pub newest: Option<u32>,
    pub sent_bytes: Bytes,
    /// When something last happened.
    last: Time,
    /// The pacer holds back a packet that may leave by the window.
    awaits_pacer: bool,
    /// Members whose silence has changed.
    pub silences: Vec<Silence>,
    /// No member's silence is due earlier.
    silence_due: Time,
}

impl State {
    /// That of `controller`, which draws from `rng`; our time is zero at `began`.
    pub fn new(config: &SessionConfig, controller: Box<dyn FlowController>, rng: Rng, began: Instant) -> State {
        let (packet, max_ack_delay) = (config.packet, config.ack.max_delay);
        let mut shared = SharedController::of_many(controller, rng, packet, max_ack_delay);
        shared.set_bounds(config.bounds());
        State {
            began,
            limits: shared.limits(),
            shared,
            pacer: Pacer::default(),
            max_ack_delay,
            packet,
            members: Vec::new(),
            free: Vec::new(),
            newest: None,
            sent_bytes: Bytes::ZERO,
            last: Time::ZERO,
            awaits_pacer: false,
            silences: Vec::new(),
            silence_due: Time::MAX,
        }
    }

    /// What is known of a connection, if it is there.
    pub fn find(&self, number: u32) -> Option<&Member> {
        self.members.get(number as usize)?.as_ref()
    }

    /// Asks the controller what holds now.
    fn refresh(&mut self) {
        let before = std::mem::replace(&mut self.limits, self.shared.limits()).rate;
        self.pacer.on_rate(before, self.limits.rate, self.packet);
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.shared.set_bounds(bounds);
        self.refresh();
    }

    pub fn time(&self, at: Instant) -> Time {
        let since = at.saturating_duration_since(self.began);
        Time::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn member(&mut self, number: u32) -> &mut Member {
        self.members[number as usize].as_mut().expect("a share's member lives as long as the share")
    }

    /// What a member has in flight is `in_flight` now.
    fn recount(&mut self, number: u32, in_flight: Bytes) {
        let member = self.member(number);
        member.in_flight = in_flight;
        let counted = if member.is_given_up { Bytes::ZERO } else { in_flight };
        let before = std::mem::replace(&mut member.counted, counted);
        self.shared.restore(counted);
        self.shared.release(before);
    }

    pub fn join(&mut self, mtu: u16) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.members.push(None);
            self.members.len() as u32 - 1
        });
        self.members[number as usize] = Some(Member::new(Bytes::new(u64::from(mtu))));
        self.newest = Some(number);
        self.shared.join(PeerId(number));
        number
    }

    /// The connection is over: what is in flight over it counts no more (RFC 9002, 6.4).
    pub fn leave(&mut self, number: u32) {
        self.recount(number, Bytes::ZERO);
        let Some(member) = self.members[number as usize].take() else { return };
        self.free.push(number);
        self.silences.retain(|silence| silence.member != number);
        let packets: Vec<Sent> = member.packets.iter().map(|packet| packet.sent).collect();
        self.abandon(self.last, number, &packets, true);
    }

    /// The connection is as good as over: the library keeps it for some probe timeouts yet (RFC 9000, 10.2), in which
    /// what is in flight is answered no more.
    pub fn end(&mut self, number: u32) {
        self.recount(number, Bytes::ZERO);
        let member = self.member(number);
        member.waiting_since = None;
        let packets: Vec<Sent> = member.packets.drain(..).map(|packet| packet.sent).collect();
        self.abandon(self.last, number, &packets, false);
    }

    fn abandon(&mut self, now: Time, number: u32, packets: &[Sent], is_gone: bool) {
        self.shared.abandon(now, PeerId(number), packets, is_gone);
        self.refresh();
    }

    pub fn on_sent(&mut self, now: Time, number: u32, packet: u64, size: Bytes) {
        self.last = now;
        let mut sent = Sent { at: now, size, ..Sent::default() };
        let may_have_changed = self.shared.on_sent(now, PeerId(number), &mut sent);
        self.sent_bytes += size;
        let most = self.max_ack_delay;
        let member = self.member(number);
        member.in_flight += size;
        let is_given_up = member.is_given_up;
        member.counted += if is_given_up { Bytes::ZERO } else { size };
        member.packets.push_back(Outstanding { number: packet, sent });
        if member.waiting_since.is_none() && size <= member.mtu {
            member.waiting_since = Some(now);
            let due = now + member.probe_timeout(most);
            self.silence_due = self.silence_due.min(due);
        }
        if is_given_up {
            self.shared.release(size);
        }
        if may_have_changed {
            self.refresh();
        }
        if let Some(rate) = self.limits.rate {
            self.pacer.on_sent(now, size, rate, self.limits.burst + rate * CATCH_UP);
        }
    }

    pub fn on_ack(&mut self, number: u32, packet: u64, left: Time, size: Bytes) {
        let unknown = self.shared.unknown(left, size);
        let member = self.member(number);
        // One that is not known was given up.
        let sent = member.take(packet, size).unwrap_or(unknown);
        member.acked_bytes += size;
        member.acked.push(sent);
        member.is_unreported = true;
    }

    /// All packets of an ACK were reported; `in_flight` is what the connection has in flight now.
    pub fn on_end_acks(&mut self, now: Time, number: u32, in_flight: Bytes) {
        let most = self.max_ack_delay;
        let member = self.member(number);
        let newest = member.acked.iter().map(|sent| sent.at).max();
        if let Some(newest) = newest.filter(|_| newest > member.newest_acked) {
            // RFC 9002, 5.1: a sample only when the newest packet of all is newly acknowledged.
            member.newest_acked = Some(newest);
            member.on_round_trip(now.since(newest));
        }
        member.waiting_since = (in_flight > member.probes()).then_some(now);
        let due = member.waiting_since.map(|since| since + member.probe_timeout(most));
        member.is_given_up = false;
        member.missed_at = None;
        if std::mem::take(&mut member.is_silent) {
            self.silences.push(Silence { member: number, has_begun: false });
        }
        self.silence_due = self.silence_due.min(due.unwrap_or(Time::MAX));
        self.recount(number, in_flight);
    }

    pub fn on_packet_lost(&mut self, number: u32, packet: u64, size: Bytes, is_by_ack: bool) {
        let member = self.member(number);
        let known = member.take(packet, size);
        let in_flight = member.in_flight - size.min(member.in_flight);
        if let Some(sent) = known {
            let cause = if is_by_ack { LossCause::PacketThreshold } else { LossCause::TimeThreshold };
            member.lost.push(Lost { sent, cause });
            member.is_unreported = true;
        }
        if in_flight <= member.probes() {
            member.waiting_since = None;
        }
        self.recount(number, in_flight);
    }

    /// Reports to the controller all that one instant brought of a connection, whose mean round trip is `mean` to
    /// the library.
    pub fn report(&mut self, now: Time, number: u32, mean: Option<Duration>) {
        self.run_timer(now);
        let most = self.max_ack_delay;
        let in_flight = self.shared.in_flight();
        let Some(member) = self.members.get_mut(number as usize).and_then(Option::as_mut) else { return };
        if !std::mem::take(&mut member.is_unreported) {
            return;
        }
        let (sampled, ack_delay) = member.take_round_trip(mean, most);
        member.settle(now);
        let (mut acked, mut lost) = (std::mem::take(&mut member.acked), std::mem::take(&mut member.lost));
        acked.sort_by_key(|sent| sent.at);
        lost.sort_by_key(|lost| lost.sent.at);
        let lost_bytes = lost.iter().map(|lost| lost.sent.size).sum::<Bytes>();
        let of = |bytes: Bytes| (bytes + lost_bytes).get() as f64;
        let learned = Learned {
            receiver: PeerId(number),
            rtt: member.rtt.report(sampled),
            ack_delay,
            acked: &acked,
            lost: &lost,
            acked_bytes: std::mem::take(&mut member.acked_bytes),
            share: of(member.counted) / of(in_flight).max(1.0),
            marked: std::mem::take(&mut member.marked),
            persistent_congestion: std::mem::take(&mut member.is_persistent),
            tcp: None,
        };
        if self.shared.on_learned(now, &learned) {
            self.refresh();
        }
        // What was taken is given back, so that nothing is allocated for the next ACK.
        acked.clear();
        lost.clear();
        let member = self.member(number);
        (member.acked, member.lost) = (acked, lost);
    }

    pub fn run_timer(&mut self, now: Time) {
        self.last = now;
        if self.shared.on_timer(now) {
            self.refresh();
        }
    }

    /// Looks for receivers that have begun to be silent, and those that have been for long.
    pub fn look_for_silence(&mut self, now: Time) {
        if now < self.silence_due {
            return;
        }
        let most = self.max_ack_delay;
        self.silence_due = Time::MAX;
        for number in 0..self.members.len() as u32 {
            let Some(member) = &mut self.members[number as usize] else { continue };
            let Some(since) = member.waiting_since else { continue };
            let timeout = member.probe_timeout(most);
            let due = |member: &Member| match (member.is_silent, member.missed_at) {
                (true, _) => since + timeout * 3,
                (false, Some(missed_at)) => missed_at + LATENESS,
                (false, None) => since + timeout,
            };
            if !member.is_silent && member.missed_at.is_none() && now >= due(member) {
                member.missed_at = Some(now);
            }
            if !member.is_silent && now >= due(member) {
                (member.is_silent, member.missed_at) = (true, None);
                self.silences.push(Silence { member: number, has_begun: true });
            }
            if member.is_silent && !member.is_given_up && now >= due(member) {
                self.give_up(now, number);
                continue;
            }
            if !member.is_given_up {
                self.silence_due = self.silence_due.min(due(member));
            }
        }
    }

    fn give_up(&mut self, now: Time, number: u32) {
        let member = self.member(number);
        member.is_given_up = true;
        let in_flight = member.in_flight;
        let packets: Vec<Sent> = member.packets.drain(..).map(|packet| packet.sent).collect();
        self.recount(number, in_flight);
        // If another one has answered to what left later, the others' way is open.
        if packets.first().is_none_or(|oldest| !self.shared.is_closed_since(oldest.at)) {
            return self.abandon(now, number, &packets, false);
        }
        let member = self.member(number);
        member.lost.extend(packets.iter().map(|&sent| Lost { sent, cause: LossCause::RetransmissionTimeout }));
        (member.is_persistent, member.is_unreported) = (true, true);
        let mean = member.mean();
        self.report(now, number, mean);
    }

    /// Nothing counts as in flight, and the window is not closed.
    pub fn is_empty(&self) -> bool {
        self.shared.in_flight() == Bytes::ZERO && self.limits.window > Bytes::ZERO
    }

    pub fn left(&self) -> Bytes {
        self.limits.window - self.shared.in_flight().min(self.limits.window)
    }

    pub fn has_room(&mut self, now: Time, size: Bytes, waiting: Bytes) -> bool {
        let fits = self.is_empty() || self.left() >= size;
        self.awaits_pacer = fits && self.limits.rate.is_some() && self.pacer.release() > now;
        let may = fits && !self.awaits_pacer;
        if self.awaits_pacer {
            self.shared.set_paced(waiting);
        } else if !may {
            self.shared.set_held_back();
        }
        may
    }

    /// When something is due, or the pacer has room for two packets: one wake for both.
    pub fn timer(&self) -> Time {
        let released = self.limits.rate.filter(|_| self.awaits_pacer);
        let released = released.map(|rate| self.pacer.release() + self.packet / rate);
        [released, self.shared.timer()].into_iter().flatten().fold(self.silence_due, Time::min)
    }
}
