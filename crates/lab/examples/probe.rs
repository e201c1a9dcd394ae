use anabranch_control::path::registry;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::overlay;
use anabranch_lab::scenario::*;
use anabranch_sim::delay::DelayModel;
use std::ops::ControlFlow;
fn env(k: &str, d: f64) -> f64 {
    std::env::var(k).ok().map_or(d, |v| v.parse().unwrap())
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let name = &a[1];
    let seconds: u64 = a[2].parse().unwrap();
    let params: toml::Table = a.get(3).map_or(String::new(), |s| s.clone()).replace(';', "\n").parse().unwrap();
    let peers: usize = a.get(4).map_or(20, |s| s.parse().unwrap());
    let offered = a.get(5).and_then(|s| s.parse().ok());
    let s = Scenario {
        seconds,
        seed: env("SEED", 1.0) as u64,
        overlay: Overlay {
            peers,
            relays: 3,
            limit: Rate::from_bytes_per_sec(400_000),
            limit_model: LimitKind::Window,
            limit_changes: vec![],
            packet: Bytes::new(1500),
            ack: Bytes::new(40),
            controller: registry::find(name).unwrap(),
            parameters: params,
            pacing: Default::default(),
            rtt: anabranch_control::rtt::RttConfig { gain: env("GAIN", 0.1), deviations: env("DEV", 4.0) },
            known_peers: if peers >= 1000 { 64 } else { peers },
            delay: DelayModel::Plane {
                span: Duration::from_secs_f64(env("SPAN", 100.0) / 1000.0),
                access: Duration::from_secs_f64(env("ACCESS", 5.0) / 1000.0),
                stretch: env("STRETCH", 1.0),
            },
            jitter: env("JITTER", 0.1),
            loss: 0.0,
            offered,
            join_every: Duration::ZERO,
            misbehaving: vec![],
            watch: None,
        },
    };
    let t = std::time::Instant::now();
    let m = overlay::run(&s, |_| ControlFlow::Continue(())).unwrap();
    let w = t.elapsed().as_secs_f64();
    let hops = m.packet_hops();
    let r: Vec<f64> = m.received_bytes_per_s().collect();
    let n = r.len();
    let tail = &r[n / 2..];
    let sum = |f: fn(&overlay::Second) -> u32| {
        m.seconds[n / 2..].iter().map(|s| f(s) as u64).sum::<u64>() as f64 / (n - n / 2) as f64
    };
    println!(
        "{name}: {hops} hops {w:.2} s {:.2} Mhops/s {:.1} ns/hop; received all {:.0} tail {:.0}; drop% {:.4}; mem/pair {:.0} B",
        hops as f64 / w / 1e6,
        w * 1e9 / hops as f64,
        r.iter().sum::<f64>() / n as f64,
        tail.iter().sum::<f64>() / tail.len() as f64,
        m.drop_percent(),
        m.sender_memory_bytes as f64 / m.peer_pairs as f64
    );
    println!(
        "  tail per s: sent {:.1} delivered {:.1} refused {:.2} refused_acks {:.2} timed_out {:.2} late {:.3} acked {:.1}",
        sum(|s| s.sent),
        sum(|s| s.delivered),
        sum(|s| s.refused),
        sum(|s| s.refused_acks),
        sum(|s| s.timed_out),
        sum(|s| s.late_acks),
        sum(|s| s.acked)
    );
    println!("  conv {:?}", anabranch_lab::stats::time_to_convergence(&r, 100, 0.9));
    for c in r.chunks((n / 10).max(1)) {
        print!(" {:.0}", c.iter().sum::<f64>() / c.len() as f64);
    }
    println!();
}
