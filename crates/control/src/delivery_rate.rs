//! Delivery rate: how fast the network hands over what a sender sends.
//!
//! Each packet carries away how much had been delivered when it left; its ACK tells how
//! much has been since. The sample is that amount over the longer of the spans in which
//! it was sent and in which it was acknowledged, so that neither a burst of packets nor
//! one of ACKs makes it too high (draft-cheng-iccrg-delivery-rate-estimation-02).

use crate::flow::sent::Sent;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// A delivery rate taken over one packet's flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Delivered over the interval.
    pub delivered: Bytes,
    /// The longer of the sending and the acknowledging span.
    pub interval: Duration,
    /// Declared lost over the packet's flight.
    pub lost: Bytes,
    /// Delivered when the packet left, since the sender began.
    pub prior_delivered: Bytes,
    /// Whether the application limited the sender when the packet left: the network may
    /// have been able to do more.
    pub app_limited: bool,
}

impl RateSample {
    /// Data delivered a second.
    #[inline]
    pub fn rate(&self) -> Rate {
        self.delivered / self.interval
    }
}

/// The connection's side of the samples.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryRate {
    delivered: Bytes,
    delivered_at: Time,
    first_sent_at: Time,
    lost: Bytes,
    /// Packets that leave until this much was delivered are limited by the application.
    app_limited_until: Option<Bytes>,
}

impl DeliveryRate {
    /// Notes in `packet`, which leaves at `packet.at`, what its ACK will need.
    /// `in_flight` counts the packets before it.
    #[inline]
    pub fn on_sent(&mut self, packet: &mut Sent, in_flight: Bytes) {
        if in_flight == Bytes::ZERO {
            self.first_sent_at = packet.at;
            self.delivered_at = packet.at;
        }
        packet.delivered = self.delivered;
        packet.delivered_at = self.delivered_at;
        packet.first_sent_at = self.first_sent_at;
        packet.lost = self.lost;
        packet.app_limited = self.app_limited_until.is_some();
    }

    /// Declares `size` lost.
    #[inline]
    pub fn on_lost(&mut self, size: Bytes) {
        self.lost += size;
    }

    /// The application has no more to send than what is in flight.
    #[inline]
    pub fn set_app_limited(&mut self, in_flight: Bytes) {
        self.app_limited_until = Some((self.delivered + in_flight).max(Bytes::new(1)));
    }

    /// Whether packets that leave now are limited by the application.
    pub fn is_app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    /// What has been delivered.
    #[inline]
    pub fn delivered(&self) -> Bytes {
        self.delivered
    }

    /// Learns that `bytes` were acknowledged at `now`, of which `newest` left last;
    /// none if the sample's interval is below `min_rtt`, which no real flight is.
    #[inline]
    pub fn on_acked(&mut self, now: Time, bytes: Bytes, newest: &Sent, min_rtt: Duration) -> Option<RateSample> {
        self.delivered += bytes;
        self.delivered_at = now;
        if self.app_limited_until.is_some_and(|until| self.delivered > until) {
            self.app_limited_until = None;
        }
        self.first_sent_at = newest.at;
        let send_span = newest.at.since(newest.first_sent_at);
        let ack_span = now.since(newest.delivered_at);
        let interval = send_span.max(ack_span);
        (interval >= min_rtt && interval > Duration::ZERO).then(|| RateSample {
            delivered: self.delivered - newest.delivered,
            interval,
            lost: self.lost - newest.lost,
            prior_delivered: newest.delivered,
            app_limited: newest.app_limited,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Bytes = Bytes::new(1000);
    const RTT: Duration = Duration::from_millis(100);

    /// Sends ten packets in a burst at 0 that a link of 1 Mbit/s hands over one each 8 ms.
    fn burst_over_a_link(estimator: &mut DeliveryRate) -> Vec<Sent> {
        let mut in_flight = Bytes::ZERO;
        (0..10)
            .map(|_| {
                let mut packet = Sent { size: SIZE, ..Sent::default() };
                estimator.on_sent(&mut packet, in_flight);
                in_flight += SIZE;
                packet
            })
            .collect()
    }

    #[test]
    fn a_burst_over_a_link_shows_the_rate_at_which_its_acks_come() {
        let mut estimator = DeliveryRate::default();
        let packets = burst_over_a_link(&mut estimator);
        let mut samples = Vec::new();
        for (i, packet) in packets.iter().enumerate() {
            let now = Time::ZERO + RTT + Duration::from_millis(8 * i as u64);
            samples.extend(estimator.on_acked(now, SIZE, packet, RTT));
        }
        let last = samples.last().unwrap();
        assert_eq!(last.delivered, SIZE * 10);
        assert_eq!(last.interval, RTT + Duration::from_millis(72));
    }

    #[test]
    fn a_sample_shorter_than_any_round_trip_is_none() {
        let mut estimator = DeliveryRate::default();
        let packets = burst_over_a_link(&mut estimator);
        assert!(estimator.on_acked(Time::from_nanos(1), SIZE, &packets[0], RTT).is_none());
    }

    #[test]
    fn what_leaves_while_the_application_has_nothing_more_is_marked_until_it_is_delivered() {
        let mut estimator = DeliveryRate::default();
        let before = burst_over_a_link(&mut estimator);
        estimator.set_app_limited(SIZE * 10);
        let mut during = Sent { at: Time::from_nanos(5), size: SIZE, ..Sent::default() };
        estimator.on_sent(&mut during, SIZE * 10);
        assert!(during.app_limited);
        estimator.on_acked(Time::ZERO + RTT, SIZE * 10, &before[9], RTT);
        assert!(estimator.is_app_limited());
        estimator.on_acked(Time::ZERO + RTT, SIZE, &during, RTT);
        assert!(!estimator.is_app_limited());
    }
}
