//! What the simulator says about the same peers, limits, delays and sizes, with the same
//! random choices.

use anabranch_control::rtt::RttConfig;
use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;
use anabranch_lab::overlay;
use anabranch_net::loopback::Crowd;
use anabranch_net::setup::PACKET;
use anabranch_proto::limiter::LimitModel;
use anabranch_scenario::overlay::{self as scenario, Overlay, Scenario};
use anabranch_sim::delay::JitterTail;

use crate::failure::Failure;

/// Figures that are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Bytes of data packets that a peer received in a second.
    pub received_bytes_per_s: f64,
    /// Refused packets and ACKs in per cent of all that peers received.
    pub drop_percent: f64,
}

/// Simulates `crowd` for `seconds`, with ACKs of `ack` bytes.
pub fn predict(crowd: &Crowd, seconds: u64, ack: usize) -> Result<Figures, Failure> {
    let limit_model = match crowd.models[0] {
        LimitModel::Window { .. } => scenario::LimitKind::Window,
        LimitModel::Bucket { depth } => scenario::LimitKind::Bucket { depth },
        LimitModel::Queue { longest } => scenario::LimitKind::Queue { longest },
    };
    let overlay = Overlay {
        peers: crowd.models.len(),
        relays: crowd.hops,
        limit: crowd.limit,
        limit_model,
        stamps: true,
        fair_shares: false,
        limit_changes: Vec::new(),
        packet: Bytes::new(PACKET as u64),
        ack: Bytes::new(ack as u64),
        controller: crowd.controller,
        parameters: crowd.parameters.clone(),
        pacing: crowd.pacing,
        rtt: RttConfig::default(),
        known_peers: crowd.models.len() - 1,
        delay: super::delay_model(),
        jitter: super::JITTER,
        jitter_tail: JitterTail::Normal,
        loss: 0.0,
        offered: crowd.upload,
        join_every: Duration::ZERO,
        misbehaving: Vec::new(),
        senders: Vec::new(),
        watch: None,
    };
    let measured = overlay::run(&Scenario { seconds, seed: crowd.seed, overlay }, &())?;
    let received = measured.received_bytes_per_s().sum::<f64>() / seconds as f64;
    Ok(Figures { received_bytes_per_s: received, drop_percent: measured.drop_percent() })
}
