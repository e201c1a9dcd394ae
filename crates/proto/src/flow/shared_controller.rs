//! What a controller learns that all receivers of a sender share, whoever carries the packets: when it sees
//! a loss, which round trips it is told, whether a congestion is persistent, and what it allows.
//!
//! Where receivers come and go ([`SharedController::of_many`]), three things differ from a connection's:
//!
//! - Round trips are reported as those of one path ([`CommonPath`]), unless the controller keeps receivers
//!   apart, and without what the receiver says it waited before it answered (RFC 9002, 5.3).
//! - Losses weigh what their receiver has of the window ([`LossShares`]).
//! - A congestion is persistent only if nothing that left later arrived anywhere (RFC 9002, 7.6.2).

use anabranch_control::delivery_rate::DeliveryRate;
use anabranch_control::flow::{
    Abandoned, Bounded, Bounds, Feedback, FlowController, Limits, Lost, PeerId, RoundTrip, Sent, TcpRecovery,
};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};

use super::common_path::CommonPath;
use super::loss_shares::{LossShares, packets_wait};

/// What leaves at once under a pace that is set for a window: an initial window (RFC 9002, 7.7).
const BURST_PACKETS: u64 = 10;

/// A paced window controller sends a window in 4/5 of a round trip (RFC 9002, 7.7).
pub(crate) const PACING_GAIN_PERCENT: u64 = 125;

/// What one instant has brought of one receiver.
#[derive(Clone, Copy, Debug)]
pub struct Learned<'a> {
    /// Whose packets they are.
    pub receiver: PeerId,
    /// Its own round trips.
    pub rtt: RoundTrip,
    /// What of the latest it waited before it answered.
    pub ack_delay: Duration,
    /// Acknowledged for the first time, in the order in which they left.
    pub acked: &'a [Sent],
    /// Declared lost, in the order in which they left.
    pub lost: &'a [Lost],
    /// Data in `acked` that was in flight.
    pub acked_bytes: Bytes,
    /// What of all that was in flight was on its way to it, the lost packets included; 0 to 1.
    pub share: f64,
    /// Packets newly reported with a mark.
    pub marked: u64,
    /// No packet to it of a span longer than several probe timeouts has arrived.
    pub persistent_congestion: bool,
    /// Where TCP's loss recovery stands.
    pub tcp: Option<TcpRecovery>,
}

/// What receivers that come and go take.
#[derive(Clone, Debug, Default)]
struct Many {
    path: CommonPath,
    loss_shares: LossShares,
    /// How long acknowledged packets have waited for their ACK, in the mean.
    ack_wait: Duration,
    /// Packets that are lost, of which the controller does not learn as losses.
    excused: Vec<Sent>,
    /// When the packet left that, of all that were acknowledged, left last.
    newest_acked: Time,
}

/// A controller that receivers share.
#[derive(Clone, Debug)]
pub struct SharedController {
    controller: Bounded,
    rng: Rng,
    delivery: DeliveryRate,
    in_flight: Bytes,
    lost: Bytes,
    app_limited: bool,
    /// The most data in a packet, and the longest that a receiver puts off an ACK.
    packet: Bytes,
    max_ack_delay: Duration,
    many: Option<Box<Many>>,
}

impl SharedController {
    /// `controller`, which draws from `rng`, of receivers that are always the same.
    pub fn new(controller: Box<dyn FlowController>, rng: Rng) -> SharedController {
        SharedController {
            controller: Bounded::new(controller),
            rng,
            delivery: DeliveryRate::default(),
            in_flight: Bytes::ZERO,
            lost: Bytes::ZERO,
            app_limited: true,
            packet: Bytes::ZERO,
            max_ack_delay: Duration::ZERO,
            many: None,
        }
    }

    /// The same, of receivers that come and go, to whom packets with `packet` data bytes leave, and who
    /// answer after `max_ack_delay` at the latest.
    pub fn of_many(
        controller: Box<dyn FlowController>,
        rng: Rng,
        packet: Bytes,
        max_ack_delay: Duration,
    ) -> SharedController {
        let many = Some(Box::default());
        SharedController { packet, max_ack_delay, many, ..SharedController::new(controller, rng) }
    }

    /// A receiver comes, under a number that another one may have had.
    pub fn join(&mut self, receiver: PeerId) {
        if let Some(many) = &mut self.many {
            many.loss_shares.join(receiver.0 as usize);
        }
    }

    /// Bounds that hold for the controller's window from now on.
    pub fn set_bounds(&mut self, bounds: Bounds) {
        self.controller.set(bounds);
    }

    /// What holds now. Where the controller sets no rate, and receivers come and go, a window leaves within
    /// a round trip, and not as a burst into the uplink's queue once there is something to send.
    #[inline]
    pub fn limits(&self) -> Limits {
        let limits = self.controller.limits();
        match &self.many {
            Some(many) if limits.rate.is_none() => self.spread(many, limits),
            _ => limits,
        }
    }

    fn spread(&self, many: &Many, limits: Limits) -> Limits {
        match many.path.round_trip().map(|path| path + many.ack_wait) {
            Some(round_trip) if round_trip > Duration::ZERO => {
                let bits = (limits.window / round_trip).bits_per_sec().saturating_mul(PACING_GAIN_PERCENT) / 100;
                let rate = Rate::from_bits_per_sec(bits).max(Rate::LOWEST);
                Limits { rate: Some(rate), burst: self.packet * BURST_PACKETS, ..limits }
            }
            _ => limits,
        }
    }

    /// Data in flight that counts, to all receivers.
    #[inline(always)]
    pub fn in_flight(&self) -> Bytes {
        self.in_flight
    }

    /// So much of what is in flight counts no more.
    #[inline(always)]
    pub fn release(&mut self, size: Bytes) {
        self.in_flight -= size;
    }

    /// So much of what is in flight counts again.
    pub fn restore(&mut self, size: Bytes) {
        self.in_flight += size;
    }

    /// Whether a packet with `size` data bytes fits into `window`.
    #[inline(always)]
    pub fn fits(&self, size: Bytes, window: Bytes) -> bool {
        self.in_flight + size <= window || (self.in_flight == Bytes::ZERO && window > Bytes::ZERO)
    }

    /// Something waits to leave that the window or the pacer holds back.
    #[inline(always)]
    pub fn set_held_back(&mut self) {
        self.app_limited = false;
    }

    /// The pacer holds back what waits, `waiting` of it. That limits the sender only where all of it, without the pacer,
    /// would have filled what the controller lets leave in a round trip (RFC 9002, 7.8): the window, or what its rate
    /// gives. A controller must not learn of a queue by packets that are spread over a round trip that they don't fill.
    pub fn set_paced(&mut self, waiting: Bytes) {
        let limits = self.limits();
        let round_trip = self.many.as_ref().and_then(|many| Some(many.path.round_trip()? + many.ack_wait));
        let paced = limits.rate.zip(round_trip).map(|(rate, round_trip)| rate * round_trip);
        let most = paced.map_or(limits.window, |paced| paced.min(limits.window));
        if self.in_flight + waiting >= most {
            self.app_limited = false;
        } else if waiting == Bytes::ZERO {
            self.set_app_limited();
        } else {
            self.app_limited = true;
        }
    }

    /// There is nothing to send although the window has room.
    #[inline]
    pub fn set_app_limited(&mut self) {
        if !self.app_limited || !self.delivery.is_app_limited() {
            self.app_limited = true;
            self.delivery.set_app_limited(self.in_flight);
        }
    }

    /// `sent` leaves for `to`, whose time and size are noted; the rest is noted here. Whether that may
    /// have changed the limits.
    #[inline(always)]
    pub fn on_sent(&mut self, now: Time, to: PeerId, sent: &mut Sent) -> bool {
        self.delivery.on_sent(sent, self.in_flight);
        self.in_flight += sent.size;
        sent.in_flight = self.in_flight;
        self.controller.on_sent(now, to, sent, &mut self.rng)
    }

    /// What a packet that left at `left` would have noted, of which nothing is known any more: no rate can
    /// be measured by it.
    pub fn unknown(&self, left: Time, size: Bytes) -> Sent {
        let delivered = self.delivery.delivered();
        let lost = self.lost;
        Sent {
            at: left,
            size,
            delivered,
            delivered_at: left,
            first_sent_at: left,
            lost,
            app_limited: true,
            ..Sent::default()
        }
    }

    /// Tells the controller what an instant has brought. What of it was in flight must have been
    /// [released](SharedController::release) before. Whether it may have changed the limits.
    #[inline(always)]
    pub fn on_learned(&mut self, now: Time, learned: &Learned<'_>) -> bool {
        let Learned { receiver, acked, mut lost, .. } = *learned;
        let (mut rtt, mut persistent_congestion) = (learned.rtt, learned.persistent_congestion);
        for lost in lost {
            self.delivery.on_lost(lost.sent.size);
            self.lost += lost.sent.size;
        }
        let rate = acked.last().and_then(|newest| self.delivery.on_acked(now, learned.acked_bytes, newest, rtt.min));
        let by_timer = matches!(learned.tcp, Some(TcpRecovery::Timeout { .. } | TcpRecovery::Idle));
        if acked.is_empty() && lost.is_empty() && learned.marked == 0 && !by_timer {
            return false;
        }
        if self.many.is_some() {
            persistent_congestion &= self.is_closed_since(lost.first().map_or(Time::MAX, |lost| lost.sent.at));
            let own = self.take_ack_wait(now, learned);
            if !persistent_congestion && self.is_excused(now, learned, &own) {
                lost = &[];
            }
            rtt = self.sample_round_trip(own, acked.len());
        }
        let feedback = Feedback {
            receiver,
            rtt,
            acked,
            lost,
            acked_bytes: learned.acked_bytes,
            in_flight: self.in_flight,
            delivered: self.delivery.delivered(),
            rate,
            ecn_marked_packets: learned.marked,
            persistent_congestion,
            tcp: learned.tcp,
            app_limited: self.app_limited,
        };
        self.controller.on_feedback(now, &feedback, &mut self.rng);
        true
    }

    /// Whether nothing that left at `left` or later has arrived anywhere.
    pub fn is_closed_since(&self, left: Time) -> bool {
        self.many.as_ref().is_none_or(|many| many.newest_acked < left)
    }

    /// Takes what the receiver waited before it answered out of the sample: it is no delay of the
    /// path. What the packets that it has acknowledged waited for that counts in the window all the
    /// same, and where a receiver gets few packets it is long; the controller is told of it.
    #[inline]
    fn take_ack_wait(&mut self, now: Time, learned: &Learned<'_>) -> RoundTrip {
        let (mut rtt, most) = (learned.rtt, self.max_ack_delay.as_nanos());
        let Some(many) = &mut self.many else { return rtt };
        many.newest_acked = learned.acked.last().map_or(many.newest_acked, |sent| sent.at.max(many.newest_acked));
        let Some(latest) = &mut rtt.latest else { return rtt };
        // As RFC 9002, 5.3, has it for the mean.
        if *latest >= rtt.min + learned.ack_delay {
            *latest = *latest - learned.ack_delay;
        }
        let packets = learned.acked.len().max(1) as u64;
        let sum: u64 = learned.acked.iter().map(|sent| (now.since(sent.at) - *latest).as_nanos().min(most)).sum();
        // 7/8 and 1/8, as in the mean of round trips.
        many.ack_wait = Duration::from_nanos((many.ack_wait.as_nanos() * 7 + sum / packets) / 8);
        self.controller.set_ack_wait(many.ack_wait);
        rtt
    }

    /// Takes a sample of a receiver's round trips; the controller's view of them.
    #[inline]
    fn sample_round_trip(&mut self, own: RoundTrip, packets: usize) -> RoundTrip {
        let Some(many) = &mut self.many else { return own };
        let common = many.path.sample(&own, packets);
        if self.controller.distinguishes_receivers() { own } else { common }
    }

    /// Whether the losses weigh too little for the controller to learn of them as such.
    #[inline]
    fn is_excused(&mut self, now: Time, learned: &Learned<'_>, own: &RoundTrip) -> bool {
        let Some(many) = &mut self.many else { return false };
        let Some(newest) = learned.lost.iter().map(|lost| lost.sent.at).max() else { return false };
        let receiver = learned.receiver;
        if many.loss_shares.weigh(now, receiver.0 as usize, learned.share, newest, packets_wait(own)) {
            return false;
        }
        many.excused.clear();
        many.excused.extend(learned.lost.iter().map(|lost| lost.sent));
        let abandoned = Abandoned { receiver, packets: &many.excused, in_flight: self.in_flight, is_gone: false };
        self.controller.on_abandoned(now, &abandoned);
        true
    }

    /// Nobody waits any more for `packets`, which count no more.
    pub fn abandon(&mut self, now: Time, receiver: PeerId, packets: &[Sent], is_gone: bool) {
        let abandoned = Abandoned { receiver, packets, in_flight: self.in_flight, is_gone };
        self.controller.on_abandoned(now, &abandoned);
    }

    /// Whether receivers come and go.
    pub fn is_of_many(&self) -> bool {
        self.many.is_some()
    }

    /// When the controller waits for time to pass.
    #[inline(always)]
    pub fn timer(&self) -> Option<Time> {
        self.controller.timer()
    }

    /// The controller's time has come, perhaps: whether it has.
    #[inline]
    pub fn on_timer(&mut self, now: Time) -> bool {
        let is_due = self.controller.timer().is_some_and(|due| due <= now);
        if is_due {
            self.controller.on_timer(now, &mut self.rng);
        }
        is_due
    }

    /// Data that has arrived, at all receivers.
    pub fn delivered(&self) -> Bytes {
        self.delivery.delivered()
    }

    /// Data that was declared lost.
    pub fn lost(&self) -> Bytes {
        self.lost
    }

    /// What its controller has to say.
    pub fn note(&self) -> Option<String> {
        self.controller.note()
    }

    /// The controller's named values.
    pub fn trace(&self, record: &mut dyn FnMut(&'static str, f64)) {
        self.controller.trace(record);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use anabranch_control::flow::LossCause;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const SIZE: Bytes = Bytes::new(1000);

    /// The feedback that a controller got: round trips, losses, whether a congestion is persistent.
    type FeedbackLog = Arc<Mutex<Vec<(RoundTrip, usize, bool)>>>;

    /// A controller that notes its feedback.
    #[derive(Clone, Debug)]
    struct Notes {
        feedback: FeedbackLog,
        keeps_apart: bool,
        rate: Option<Rate>,
    }

    impl FlowController for Notes {
        fn on_feedback(&mut self, _: Time, feedback: &Feedback<'_>, _: &mut Rng) {
            let noted = (feedback.rtt, feedback.lost.len(), feedback.persistent_congestion);
            self.feedback.lock().unwrap().push(noted);
        }

        fn distinguishes_receivers(&self) -> bool {
            self.keeps_apart
        }

        fn limits(&self) -> Limits {
            Limits { rate: self.rate, ..Limits::window(SIZE * 10) }
        }

        fn trace(&self, _: &mut dyn FnMut(&'static str, f64)) {}
    }

    fn shared(keeps_apart: bool) -> (SharedController, FeedbackLog) {
        paced(keeps_apart, None)
    }

    fn paced(keeps_apart: bool, rate: Option<Rate>) -> (SharedController, FeedbackLog) {
        let feedback = FeedbackLog::default();
        let notes = Notes { feedback: Arc::clone(&feedback), keeps_apart, rate };
        (SharedController::of_many(Box::new(notes), Rng::stream(1, "test"), SIZE, MS(25)), feedback)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + MS(millis)
    }

    fn send(shared: &mut SharedController, millis: u64, to: u32) -> Sent {
        let mut sent = Sent { at: at(millis), size: SIZE, ..Sent::default() };
        shared.on_sent(at(millis), PeerId(to), &mut sent);
        sent
    }

    fn rtt(latest: u64, min: u64) -> RoundTrip {
        RoundTrip { latest: Some(MS(latest)), smoothed: MS(latest), variation: MS(1), min: MS(min) }
    }

    fn learned<'a>(receiver: u32, rtt: RoundTrip, acked: &'a [Sent], lost: &'a [Lost]) -> Learned<'a> {
        Learned {
            receiver: PeerId(receiver),
            rtt,
            ack_delay: Duration::ZERO,
            acked,
            lost,
            acked_bytes: SIZE * acked.len() as u64,
            share: 0.1,
            marked: 0,
            persistent_congestion: false,
            tcp: None,
        }
    }

    #[test]
    fn the_pacer_limits_a_sender_only_where_what_waits_would_fill_what_it_is_allowed() {
        let (mut shared, _) = shared(false);
        (0..4).for_each(|millis| _ = send(&mut shared, millis, 0));
        // Of a window of ten packets.
        for (waiting, is_limited) in [(6, true), (5, false), (0, false), (20, true)] {
            shared.set_paced(SIZE * waiting);
            assert_eq!(!shared.app_limited, is_limited, "{waiting} wait");
        }
        shared.set_paced(Bytes::ZERO);
        assert!(shared.delivery.is_app_limited(), "nothing waits");
        // A rate of a packet each 10 ms, over a way of 30 ms.
        let (mut shared, _) = paced(false, Some(Rate::from_bits_per_sec(800_000)));
        let sent = [send(&mut shared, 0, 0)];
        shared.release(SIZE);
        shared.on_learned(at(30), &learned(0, rtt(30, 30), &sent, &[]));
        send(&mut shared, 30, 0);
        for (waiting, is_limited) in [(1, false), (2, true)] {
            shared.set_paced(SIZE * waiting);
            assert_eq!(!shared.app_limited, is_limited, "{waiting} wait for a rate");
        }
    }

    #[test]
    fn a_far_receiver_is_no_queue_and_who_keeps_them_apart_sees_each_ones_way() {
        for keeps_apart in [false, true] {
            let (mut shared, feedback) = shared(keeps_apart);
            for (receiver, way) in [(0, 20), (1, 200), (0, 20), (1, 200)] {
                let sent = [send(&mut shared, 0, receiver)];
                shared.release(SIZE);
                shared.on_learned(at(way), &learned(receiver, rtt(way, way), &sent, &[]));
            }
            let round_trips: Vec<RoundTrip> = feedback.lock().unwrap().iter().map(|(rtt, ..)| *rtt).collect();
            assert!(round_trips.iter().all(|rtt| rtt.latest == Some(rtt.min)));
            assert_eq!(round_trips[3].min, if keeps_apart { MS(200) } else { MS(110) });
        }
    }

    #[test]
    fn what_a_receiver_waits_before_it_answers_is_no_queue() {
        let (mut shared, feedback) = shared(true);
        for (latest, delay, expected) in [(20, 0, 20), (60, 25, 35), (40, 25, 40)] {
            let sent = [send(&mut shared, 0, 0)];
            let learned = Learned { ack_delay: MS(delay), ..learned(0, rtt(latest, 20), &sent, &[]) };
            shared.on_learned(at(latest), &learned);
            assert_eq!(feedback.lock().unwrap().last().unwrap().0.latest, Some(MS(expected)), "after {latest} ms");
        }
    }

    #[test]
    fn a_loss_weighs_what_its_receiver_has_of_the_window() {
        let (mut shared, feedback) = shared(false);
        let mut reported = 0;
        for round in 0..100 {
            let lost = [Lost { sent: send(&mut shared, 100 * round, 0), cause: LossCause::TimeThreshold }];
            // A queue of 80 ms.
            let learned = learned((round % 10) as u32, rtt(100, 20), &[], &lost);
            shared.on_learned(at(100 * round + 99), &learned);
            reported += feedback.lock().unwrap().drain(..).map(|(_, lost, _)| lost).sum::<usize>();
        }
        assert_eq!((reported, shared.lost()), (10, SIZE * 100));
    }

    #[test]
    fn a_congestion_is_persistent_only_if_nothing_that_left_later_has_arrived_anywhere() {
        for (answered, expected) in [(5, true), (15, false)] {
            let (mut shared, feedback) = shared(false);
            let arrived = [send(&mut shared, answered, 1)];
            let lost = [Lost { sent: send(&mut shared, 10, 0), cause: LossCause::TimeThreshold }];
            shared.on_learned(at(50), &learned(1, rtt(30, 30), &arrived, &[]));
            let learned = Learned { persistent_congestion: true, ..learned(0, rtt(30, 30), &[], &lost) };
            shared.on_learned(at(500), &learned);
            assert_eq!(feedback.lock().unwrap().last().unwrap().2, expected);
        }
    }

    #[test]
    fn a_window_without_a_rate_of_its_own_leaves_within_a_round_trip() {
        let (mut shared, _) = shared(false);
        assert_eq!(shared.limits().rate, None, "no round trip is known");
        let sent = [send(&mut shared, 0, 0)];
        shared.on_learned(at(100), &learned(0, rtt(100, 100), &sent, &[]));
        // Ten packets in 100 ms, a quarter more.
        assert_eq!(shared.limits().rate.map(|rate| rate.bits_per_sec()), Some(1_000_000));
    }
}
