//! A scenario as text that says everything, defaults too: what a report shows, and
//! what repeats a run after the defaults have changed.

use std::fmt::Write;

use anabranch_control::path::registry::Pacing;
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::delay::DelayModel;

use crate::overlay::{LimitKind, Scenario};

/// `scenario` as TOML; reading it gives the same scenario.
pub fn to_toml(scenario: &Scenario) -> String {
    let mut out = String::new();
    write_all(scenario, &mut out).expect("a string takes whatever is written to it");
    out
}

fn write_all(scenario: &Scenario, out: &mut String) -> std::fmt::Result {
    let overlay = &scenario.overlay;
    writeln!(out, "[run]\nseconds = {}\nseed = {}", scenario.seconds, scenario.seed)?;
    if let Some(watch) = overlay.watch {
        writeln!(out, "watch = {watch}")?;
    }
    writeln!(out, "\n[overlay]\npeers = {}\nrelays = {}", overlay.peers, overlay.relays)?;
    writeln!(out, "known_peers = {}", overlay.known_peers)?;
    writeln!(out, "limit = \"{}\"", rate(overlay.limit))?;
    match overlay.limit_model {
        LimitKind::Window => writeln!(out, "limit_model = \"window\"")?,
        LimitKind::Bucket { depth } => writeln!(out, "limit_model = \"bucket\"\nbucket_bytes = {}", depth.get())?,
        LimitKind::Queue { longest } => writeln!(out, "limit_model = \"queue\"\nqueue_ms = {}", millis(longest))?,
    }
    writeln!(out, "packet_bytes = {}\nack_bytes = {}", overlay.packet.get(), overlay.ack.get())?;
    writeln!(out, "controller = \"{}\"", overlay.controller.name)?;
    let pacing = match overlay.pacing {
        Pacing::Burst => "burst",
        Pacing::Paced => "paced",
    };
    writeln!(out, "pacing = \"{pacing}\"\nloss = {}", overlay.loss)?;
    if let Some(offered) = overlay.offered {
        writeln!(out, "offered = \"{}\"", rate(offered))?;
    }
    if !overlay.parameters.is_empty() {
        writeln!(out, "\n[overlay.parameters]")?;
        for (key, value) in &overlay.parameters {
            writeln!(out, "{key} = {value}")?;
        }
    }
    writeln!(out, "\n[overlay.delay]")?;
    match &overlay.delay {
        DelayModel::Plane { span, access, stretch } => {
            writeln!(out, "model = \"plane\"\nspan_ms = {}\naccess_ms = {}", millis(*span), millis(*access))?;
            writeln!(out, "stretch = {stretch}")?;
        }
        DelayModel::Matrix(delays) => {
            writeln!(out, "model = \"matrix\"\nmatrix_ms = [")?;
            for row in delays.chunks(overlay.peers) {
                let row: Vec<String> = row.iter().map(|&delay| millis(delay).to_string()).collect();
                writeln!(out, "    [{}],", row.join(", "))?;
            }
            writeln!(out, "]")?;
        }
        DelayModel::Constant(delay) => writeln!(out, "model = \"constant\"\nconstant_ms = {}", millis(*delay))?,
    }
    writeln!(out, "jitter = {}", overlay.jitter)?;
    writeln!(out, "\n[overlay.rtt]\ngain = {}\ndeviations = {}", overlay.rtt.gain, overlay.rtt.deviations)?;
    if overlay.join_every > Duration::ZERO {
        writeln!(out, "\n[overlay.join]\nevery_s = {}", overlay.join_every.as_secs_f64())?;
    }
    for change in &overlay.limit_changes {
        writeln!(out, "\n[[overlay.limit_change]]\nat_s = {}", change.at.as_secs_f64())?;
        writeln!(out, "peers = {:?}\nlimit = \"{}\"", change.peers, rate(change.limit))?;
    }
    for (peers, misbehaviour) in &overlay.misbehaving {
        writeln!(out, "\n[[overlay.misbehave]]\npeers = {peers:?}\ndrop = {}", misbehaviour.drop)?;
        writeln!(out, "delay_ms = {}\nforge = {}", millis(misbehaviour.delay), misbehaviour.forge)?;
    }
    Ok(())
}

fn millis(span: Duration) -> f64 {
    span.as_millis_f64()
}

fn rate(rate: Rate) -> String {
    match rate.bits_per_sec() {
        bits if bits % 8 == 0 => format!("{} B/s", bits / 8),
        bits => format!("{bits} bit/s"),
    }
}
