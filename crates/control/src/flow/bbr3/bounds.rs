//! What losses teach: a long-term bound on the data in flight, from losses of probes, and
//! short-term bounds on rate and flight, from losses between them (5.5.10).

use super::{Ack, Bbr3, MIN_PIPE, State};
use crate::flow::Sent;
use crate::rng::Rng;
use crate::time::Time;
use crate::units::{Bytes, OctetRate, Octets, WindowUnit};

/// The bounds, and what the last round trip delivered.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// `bw_shortterm`; infinite without losses since the last probe.
    pub bandwidth_short: OctetRate,
    /// `inflight_shortterm`; infinite without losses since the last probe.
    pub inflight_short: Octets,
    /// `inflight_longterm`; infinite until a probe lost too much.
    pub inflight_long: Octets,
    /// `bw_latest`, the highest delivery rate of this round.
    latest_bandwidth: OctetRate,
    /// `inflight_latest`, the most that a sample of this round delivered.
    pub latest_inflight: Octets,
    loss_in_round: bool,
    /// The round ends with a packet that left when this much had been delivered.
    loss_round_end: Bytes,
    /// Whether it ended with this ACK.
    pub loss_round_ended: bool,
    /// ACKs and timers of this round that reported losses.
    pub loss_events: u32,
    /// Losses may still be those of the last probe, which nothing has answered.
    pub of_probe: bool,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            bandwidth_short: OctetRate::INFINITY,
            inflight_short: Octets::INFINITY,
            inflight_long: Octets::INFINITY,
            latest_bandwidth: OctetRate::ZERO,
            latest_inflight: Octets::ZERO,
            loss_in_round: false,
            loss_round_end: Bytes::ZERO,
            loss_round_ended: false,
            loss_events: 0,
            of_probe: false,
        }
    }
}

impl Bounds {
    /// BBRUpdateLatestDeliverySignals: the newest packet of the ACK left when
    /// `newest_delivered` had been delivered, and now `delivered` has.
    #[inline]
    pub fn begin_ack(&mut self, ack: &Ack, newest_delivered: Bytes, delivered: Bytes) {
        self.latest_bandwidth = self.latest_bandwidth.max(ack.rate);
        self.latest_inflight = self.latest_inflight.max(ack.delivered);
        self.loss_round_ended = newest_delivered >= self.loss_round_end;
        if self.loss_round_ended {
            self.loss_round_end = delivered;
        }
    }

    /// BBRAdvanceLatestDeliverySignals.
    #[inline]
    pub fn end_ack(&mut self, ack: &Ack) {
        if self.loss_round_ended {
            self.latest_bandwidth = ack.rate;
            self.latest_inflight = ack.delivered;
        }
    }

    /// BBRResetCongestionSignals.
    pub fn forget_round(&mut self) {
        self.loss_in_round = false;
        self.latest_bandwidth = OctetRate::ZERO;
        self.latest_inflight = Octets::ZERO;
    }

    /// BBRResetShortTermModel.
    pub fn forget_short_term(&mut self) {
        self.bandwidth_short = OctetRate::INFINITY;
        self.inflight_short = Octets::INFINITY;
    }

    /// BBRNoteLoss.
    fn note_loss(&mut self, delivered: Bytes) {
        if !self.loss_in_round {
            self.loss_round_end = delivered;
        }
        self.loss_in_round = true;
    }
}

impl Bbr3 {
    /// Whether losing `lost` of `in_flight` shows that it was too much (IsInflightTooHigh).
    #[inline]
    pub fn is_too_much(&self, lost: Octets, in_flight: Octets) -> bool {
        lost > in_flight * self.config.loss_threshold
    }

    /// BBRHandleLostPacket: `packet` is lost, and counted in `self.lost`.
    pub fn on_lost(&mut self, now: Time, packet: &Sent, delivered: Bytes, rng: &mut Rng) {
        self.bounds.note_loss(delivered);
        if !self.bounds.of_probe {
            return;
        }
        let lost = Octets::from(self.lost - packet.lost);
        let in_flight = Octets::from(packet.in_flight);
        if self.is_too_much(lost, in_flight) {
            let in_flight = self.in_flight_at_loss(in_flight, lost, packet.size.into());
            self.bounds.of_probe = false;
            if !(packet.app_limited || self.lull.contains(packet)) {
                // inflight_longterm = max(tx_in_flight, target_inflight * Beta)
                self.bounds.inflight_long = in_flight.max(self.target_inflight() * self.config.beta);
            }
            if self.state == State::Up {
                self.start_down(now, delivered, rng);
            }
        }
    }

    /// How much of the flight had left when its losses reached the threshold
    /// (BBRInflightAtLoss).
    fn in_flight_at_loss(&self, in_flight: Octets, lost: Octets, size: Octets) -> Octets {
        let threshold = self.config.loss_threshold;
        let (in_flight_before, lost_before) = (in_flight - size, lost - size);
        // lost_prefix = (LossThresh * inflight_prev - lost_prev) / (1 - LossThresh)
        let prefix = (in_flight_before * threshold - lost_before) / (1.0 - threshold);
        in_flight_before + prefix
    }

    /// Once a round with losses, while not probing: the bounds fall to what is delivered,
    /// by no more than to `beta` of themselves (BBRAdaptLowerBoundsFromCongestion).
    #[inline]
    pub fn adapt_short_term(&mut self) {
        if !self.bounds.loss_round_ended {
            return;
        }
        let bounds = &mut self.bounds;
        if bounds.loss_in_round && !self.state.is_accelerating() {
            let beta = self.config.beta;
            let (bandwidth, inflight) = (bounds.bandwidth_short, bounds.inflight_short);
            let bandwidth = if bandwidth.is_finite() { bandwidth } else { self.max_bandwidth };
            let inflight = if inflight.is_finite() { inflight } else { self.window };
            bounds.bandwidth_short = bounds.latest_bandwidth.max(bandwidth * beta);
            bounds.inflight_short = bounds.latest_inflight.max(inflight * beta);
        }
        bounds.loss_in_round = false;
    }

    /// The long-term bound less the headroom (BBRInflightWithHeadroom).
    #[inline]
    pub fn inflight_with_headroom(&self) -> Octets {
        let long = self.bounds.inflight_long;
        if long == Octets::INFINITY {
            return long;
        }
        let headroom = self.packet.max(long * self.config.headroom);
        (long - headroom).max(MIN_PIPE.in_bytes(self.packet))
    }

    /// The estimated product, unless congestion cut the window (BBRTargetInflight).
    #[inline]
    pub fn target_inflight(&self) -> Octets {
        self.product(self.bandwidth, 1.0).min(self.window)
    }
}
