//! A path to drive controllers over, packet by packet, without a simulator: a bottleneck
//! with a rate, a round trip and a buffer, where each packet is acknowledged by itself.

use std::collections::VecDeque;

use super::registry::{Builder, Setup};
use super::setup::made;
use super::{Feedback, FlowController, Limits, LossCause, Lost, PeerId, RoundTrip, Sent};
use crate::delivery_rate::DeliveryRate;
use crate::pacer::Pacer;
use crate::rng::Rng;
use crate::round_trip::RoundTripEstimator;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// Data in each packet.
pub const PACKET: Bytes = Bytes::new(1000);

/// The path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Of the bottleneck.
    pub rate: Rate,
    /// Round trip without a queue.
    pub rtt: Duration,
    /// Packets that may wait.
    pub buffer: usize,
    /// Probability that a packet is lost behind the bottleneck.
    pub loss: f64,
}

/// 100 packets a round trip fill it, each taking 1 ms; ten times as many find room in the
/// queue.
pub const PATH: Path =
    Path { rate: Rate::from_bytes_per_sec(1_000_000), rtt: Duration::from_millis(100), buffer: 1000, loss: 0.0 };

/// What a drive showed, a value for each feedback.
#[derive(Clone, Debug, Default)]
pub struct Drive {
    /// When.
    pub at: Vec<Time>,
    /// The window in packets, after it.
    pub window: Vec<f64>,
    /// The pacing rate in packets a second, after it; infinity without one.
    pub rate: Vec<f64>,
    /// The round trip of the acknowledged packet in ms; NaN for losses alone.
    pub rtt_ms: Vec<f64>,
    /// Packets delivered.
    pub delivered: u64,
    /// Packets lost.
    pub lost: u64,
}

impl Drive {
    /// Packets a second over the whole drive.
    pub fn throughput(&self) -> f64 {
        self.delivered as f64 / self.at.last().map_or(1.0, |at| at.as_secs_f64())
    }

    /// Those of `values`, one of the drive's, that were seen after `from` seconds.
    pub fn late(&self, from: f64, values: &[f64]) -> Vec<f64> {
        let late = self.at.iter().zip(values).filter(|(at, value)| at.as_secs_f64() > from && value.is_finite());
        late.map(|(_, value)| *value).collect()
    }
}

enum Fate {
    Acked,
    Lost,
}

/// What a receiver says that acknowledges `acked` after `rtt`, and nothing else.
pub fn feedback(acked: &[Sent], rtt: Duration) -> Feedback<'_> {
    Feedback {
        receiver: PeerId(0),
        rtt: RoundTrip { latest: Some(rtt), smoothed: rtt, variation: Duration::ZERO, min: rtt },
        acked,
        lost: &[],
        acked_bytes: acked.iter().map(|sent| sent.size).sum(),
        in_flight: Bytes::ZERO,
        delivered: acked.last().map_or(Bytes::ZERO, |sent| sent.delivered + sent.size),
        rate: None,
        ecn_marked_packets: 0,
        persistent_congestion: false,
        tcp: None,
        app_limited: false,
    }
}

/// Tells `controller` that one packet was acknowledged `rtt` after it left.
pub fn acknowledge(controller: &mut dyn FlowController, now: Time, rtt: Duration, app_limited: bool, rng: &mut Rng) {
    let acked = [Sent { at: Time::from_nanos(now.as_nanos() - rtt.as_nanos()), size: PACKET, ..Sent::default() }];
    controller.on_feedback(now, &Feedback { app_limited, ..feedback(&acked, rtt) }, rng);
}

/// What `controller` records under `name`.
pub fn traced(controller: &dyn FlowController, name: &str) -> f64 {
    let mut found = None;
    controller.trace(&mut |recorded, value| {
        if recorded == name {
            found = Some(value);
        }
    });
    found.expect("the controller records it")
}

/// Drives `controller` with bulk data for `seconds` over `path`.
pub fn drive(controller: &mut dyn FlowController, path: Path, seconds: f64, seed: u64) -> Drive {
    drive_behind(controller, path, |_| Duration::ZERO, seconds, seed)
}

/// Drives what `build` makes without parameters as `drive` does.
pub fn drive_new(build: Builder, path: Path, seconds: f64, seed: u64) -> Drive {
    let mut controller =
        made(build, &Setup::new(PACKET, Time::ZERO), &toml::Table::new()).expect("no parameter is needed");
    drive(&mut *controller, path, seconds, seed)
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A feedback that says nothing, to be filled in.
pub fn silence() -> Feedback<'static> {
    Feedback {
        receiver: PeerId(0),
        rtt: RoundTripEstimator::default().report(false),
        acked: &[],
        lost: &[],
        acked_bytes: Bytes::ZERO,
        in_flight: Bytes::ZERO,
        delivered: Bytes::ZERO,
        rate: None,
        ecn_marked_packets: 0,
        persistent_congestion: false,
        tcp: None,
        app_limited: false,
    }
}

/// Drives as `drive` does, where packets that leave at some time also wait for so long in a
/// queue that others fill, and that does not slow them otherwise.
pub fn drive_behind(
    controller: &mut dyn FlowController,
    path: Path,
    others: impl Fn(Time) -> Duration,
    seconds: f64,
    seed: u64,
) -> Drive {
    let mut drive = Drive::default();
    let (mut loss_rng, mut rng) = (Rng::stream(seed, "loss"), Rng::stream(seed, "controller"));
    let (mut pacer, mut delivery, mut estimator) =
        (Pacer::default(), DeliveryRate::default(), RoundTripEstimator::default());
    // Packets in the order in which their fates become known; those lost are noticed with
    // the ACK of the packet behind them, as if that had come a moment later.
    let mut fates: VecDeque<(Time, Sent, Fate)> = VecDeque::new();
    let (mut now, mut in_flight, mut busy_until) = (Time::ZERO, Bytes::ZERO, Time::ZERO);
    let end = Time::from_secs_f64(seconds);
    let transmission = PACKET / path.rate;
    while now < end {
        let Limits { window, rate, burst } = controller.limits();
        let fits = in_flight + PACKET <= window || (in_flight == Bytes::ZERO && window > Bytes::ZERO);
        if fits && (rate.is_none() || pacer.release() <= now) {
            let mut sent = Sent { at: now, size: PACKET, ..Sent::default() };
            delivery.on_sent(&mut sent, in_flight);
            in_flight += PACKET;
            sent.in_flight = in_flight;
            if let Some(rate) = rate {
                pacer.on_sent(now, PACKET, rate, burst);
            }
            let start = busy_until.max(now);
            let waiting = start.since(now).as_secs_f64() / transmission.as_secs_f64();
            if waiting > path.buffer as f64 {
                fates.push_back((start + path.rtt, sent, Fate::Lost));
            } else {
                busy_until = start + transmission;
                let fate = if loss_rng.chance(path.loss) { Fate::Lost } else { Fate::Acked };
                fates.push_back((busy_until + path.rtt + others(now), sent, fate));
            }
            controller.on_sent(now, PeerId(0), &sent, &mut rng);
            continue;
        }
        let next_fate = fates.front().map_or(Time::MAX, |(at, ..)| *at);
        let timer = controller.timer().unwrap_or(Time::MAX);
        let release = if fits && rate.is_some() { pacer.release() } else { Time::MAX };
        let next = next_fate.min(timer).min(release);
        assert!(next < Time::MAX, "the controller has stopped for good: {controller:?}");
        now = now.max(next);
        if timer <= now {
            controller.on_timer(now, &mut rng);
        }
        if next_fate > now {
            continue;
        }
        let (_, sent, fate) = fates.pop_front().expect("its time has come");
        in_flight -= PACKET;
        let (mut acked, mut lost) = (Vec::new(), Vec::new());
        let mut sample = None;
        match fate {
            Fate::Acked => {
                estimator.sample(now.since(sent.at), Duration::ZERO);
                let min = estimator.report(true).min;
                sample = delivery.on_acked(now, PACKET, &sent, min);
                acked.push(sent);
                drive.delivered += 1;
            }
            Fate::Lost => {
                delivery.on_lost(PACKET);
                lost.push(Lost { sent, cause: LossCause::PacketThreshold });
                drive.lost += 1;
            }
        }
        let rtt: RoundTrip = estimator.report(!acked.is_empty());
        let feedback = Feedback {
            receiver: PeerId(0),
            rtt,
            acked_bytes: PACKET * acked.len() as u64,
            acked: &acked,
            lost: &lost,
            in_flight,
            delivered: delivery.delivered(),
            rate: sample,
            ecn_marked_packets: 0,
            persistent_congestion: false,
            tcp: None,
            app_limited: false,
        };
        controller.on_feedback(now, &feedback, &mut rng);
        drive.at.push(now);
        drive.window.push(controller.limits().window.get() as f64 / PACKET.get() as f64);
        let packets_per_s = |rate: Rate| rate.bytes_per_sec() / PACKET.get() as f64;
        drive.rate.push(controller.limits().rate.map_or(f64::INFINITY, packets_per_s));
        drive.rtt_ms.push(rtt.latest.map_or(f64::NAN, Duration::as_millis_f64));
    }
    drive
}
