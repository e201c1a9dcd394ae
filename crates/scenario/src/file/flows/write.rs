//! A scenario of flows as text that says everything, defaults and drawn starts too. Paths
//! are written as the links that they pass, so that any scenario can be written.

use std::fmt::{Display, Write};

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::loss::LossModel;
use anabranch_sim::varying::{Change, Course};

use super::{ACTUATORS, queues};
use crate::flows::sizes::{Interpolation, SizeDistribution};
use crate::flows::{CrossTraffic, FlowScenario, FlowSpec, LinkSpec, OnPeriod, Path, Pattern, Size, Workload};

/// `scenario` as TOML; reading it gives the same scenario.
pub fn to_toml(scenario: &FlowScenario) -> String {
    let mut out = String::new();
    write_all(scenario, &mut out).expect("a string takes whatever is written to it");
    out
}

fn write_all(scenario: &FlowScenario, out: &mut String) -> std::fmt::Result {
    let FlowScenario { length, seed, goodput_from, delays_from, sample_every, .. } = scenario;
    writeln!(out, "[run]\nseconds = {}\nseed = {seed}", length.as_secs_f64())?;
    writeln!(out, "goodput_from_s = {}", goodput_from.as_secs_f64())?;
    writeln!(out, "delays_from_s = {}", delays_from.as_secs_f64())?;
    writeln!(out, "sample_every_s = {}", sample_every.unwrap_or(Duration::ZERO).as_secs_f64())?;
    let packets = &scenario.packets;
    writeln!(out, "\n[packets]\ndata_bytes = {}", packets.data.get())?;
    writeln!(out, "header_bytes = {}\nack_bytes = {}", packets.header.get(), packets.ack.get())?;
    let policy = packets.ack_policy;
    writeln!(out, "ack_every = {}\nmax_ack_delay_ms = {}", policy.every, policy.max_delay.as_millis_f64())?;
    writeln!(out, "ecn = {}\npaced = {}", packets.ecn, packets.paced)?;
    writeln!(out, "recovery = {}", quoted(packets.recovery.name()))?;
    if let Some(steering) = &scenario.steering {
        writeln!(out, "\n[steering]\nlink = {}", quoted(&scenario.links[steering.link].name))?;
        writeln!(out, "every_ms = {}", steering.every.as_millis_f64())?;
        let name = ACTUATORS.iter().find(|(_, actuator)| *actuator == steering.actuator);
        let (name, _) = name.expect("each actuator has its name");
        writeln!(out, "actuator = {}", quoted(name))?;
    }
    scenario.links.iter().try_for_each(|link| write_link(link, out))?;
    scenario.flows.iter().try_for_each(|flow| write_flow(flow, &scenario.links, out))?;
    scenario.cross_traffic.iter().try_for_each(|source| write_source(source, &scenario.links, out))
}

fn write_link(link: &LinkSpec, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[[link]]\nname = {}", quoted(&link.name))?;
    let unlimited = || quoted("unlimited");
    writeln!(out, "rate = {}", link.rate.as_ref().map_or_else(unlimited, |rate| course(rate, rate_text)))?;
    writeln!(out, "delay_ms = {}", course(&link.delay, |delay| delay.as_millis_f64()))?;
    writeln!(out, "queue = {}", queues::text(link.queue))?;
    match &link.loss {
        LossModel::None => {}
        LossModel::Random(share) => writeln!(out, "loss = {}", course(share, |share| share))?,
        LossModel::GilbertElliott(model) => {
            write!(out, "loss = {{ to_bad = {}, to_good = {}, ", model.to_bad, model.to_good)?;
            writeln!(out, "loss_good = {}, loss_bad = {} }}", model.loss_good, model.loss_bad)?;
        }
    }
    if link.jitter.deviation > Duration::ZERO || link.jitter.reorders {
        writeln!(out, "jitter_ms = {}\nreorder = {}", link.jitter.deviation.as_millis_f64(), link.jitter.reorders)?;
    }
    Ok(())
}

fn write_flow(flow: &FlowSpec, links: &[LinkSpec], out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[[flow]]\nname = {}\ncontroller = {}", quoted(&flow.name), quoted(&flow.controller_name()))?;
    if !flow.parameters.is_empty() {
        writeln!(out, "parameters = {}", toml::Value::Table(flow.parameters.clone()))?;
    }
    writeln!(out, "receivers = [")?;
    for way in &flow.receivers {
        writeln!(out, "    {{ path = {}, back = {} }},", path(&way.there, links), path(&way.back, links))?;
    }
    writeln!(out, "]\nworkload = {}", workload(&flow.workload))?;
    writeln!(out, "start_s = {}", flow.start.as_secs_f64())?;
    if let Some(stop) = flow.stop {
        writeln!(out, "stop_s = {}", stop.as_secs_f64())?;
    }
    if let Some(window) = flow.initial_window {
        writeln!(out, "initial_window_bytes = {}", window.get())?;
    }
    for (key, holds) in [("handshake", flow.handshake), ("steered", flow.steered)] {
        if holds {
            writeln!(out, "{key} = true")?;
        }
    }
    Ok(())
}

fn workload(workload: &Workload) -> String {
    match workload {
        Workload::Bulk => quoted("bulk"),
        Workload::Once(amount) => format!("{{ {} }}", size(amount)),
        Workload::Repeated { size: amount, every } => {
            format!("{{ {}, every_s = {} }}", size(amount), every.as_secs_f64())
        }
        Workload::Blocks(bytes) => format!("{{ block_bytes = {} }}", bytes.get()),
        Workload::OnOff { on, off_mean, new_connections } => {
            let on = match on {
                OnPeriod::Time { mean } => format!("on_mean_s = {}", mean.as_secs_f64()),
                OnPeriod::Bytes { mean } => format!("on_mean_bytes = {}", mean.get()),
                OnPeriod::Drawn(distribution) => sizes(distribution),
            };
            format!("{{ {on}, off_mean_s = {}, new_connections = {new_connections} }}", off_mean.as_secs_f64())
        }
    }
}

fn size(size: &Size) -> String {
    match size {
        Size::Fixed(bytes) => format!("once_bytes = {}", bytes.get()),
        Size::Drawn(distribution) => sizes(distribution),
    }
}

/// Every point, whatever file or name it came from: the text says all that is run.
fn sizes(sizes: &SizeDistribution) -> String {
    let points: Vec<String> =
        sizes.points().iter().map(|point| format!("[{}, {}]", point.bytes, point.probability)).collect();
    let interpolation = match sizes.interpolation() {
        Interpolation::Linear => "linear",
        Interpolation::Log => "log",
    };
    format!("sizes = {{ cdf = [{}], interpolate = \"{interpolation}\" }}", points.join(", "))
}

fn write_source(source: &CrossTraffic, links: &[LinkSpec], out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[[cross_traffic]]\nname = {}\npath = {}", quoted(&source.name), path(&source.path, links))?;
    writeln!(out, "rate = {}\npacket_bytes = {}", rate_text(source.rate), source.packet.get())?;
    match source.pattern {
        Pattern::Constant => writeln!(out, "pattern = \"constant\"")?,
        Pattern::Periodic { on, off } => {
            writeln!(out, "pattern = {{ on_s = {}, off_s = {} }}", on.as_secs_f64(), off.as_secs_f64())?;
        }
        Pattern::Exponential { on, off } => {
            writeln!(out, "pattern = {{ on_mean_s = {}, off_mean_s = {} }}", on.as_secs_f64(), off.as_secs_f64())?;
        }
    }
    writeln!(out, "start_s = {}", source.start.as_secs_f64())?;
    match source.stop {
        Some(stop) => writeln!(out, "stop_s = {}", stop.as_secs_f64()),
        None => Ok(()),
    }
}

/// A value, or how it changes.
fn course<T: Copy, S: Display>(course: &Course<T>, show: impl Fn(T) -> S) -> String {
    match &course.change {
        Change::Never => show(course.first).to_string(),
        Change::At(changes) => {
            let times: Vec<String> = changes.iter().map(|(at, _)| at.as_secs_f64().to_string()).collect();
            let values: Vec<String> = changes.iter().map(|(_, value)| show(*value).to_string()).collect();
            let (times, values) = (times.join(", "), values.join(", "));
            format!("{{ at_s = [0, {times}], values = [{}, {values}] }}", show(course.first))
        }
        Change::Uniform { every, low, high } => {
            format!("{{ uniform = [{}, {}], every_s = {} }}", show(*low), show(*high), every.as_secs_f64())
        }
    }
}

fn path(path: &Path, links: &[LinkSpec]) -> String {
    let names: Vec<String> = path.iter().map(|&link| quoted(&links[link].name)).collect();
    format!("[{}]", names.join(", "))
}

/// In the largest unit that leaves no fraction.
fn rate_text(rate: Rate) -> String {
    let bits = rate.bits_per_sec();
    let units = [("Gbit/s", 1_000_000_000), ("Mbit/s", 1_000_000), ("kbit/s", 1000)];
    match units.into_iter().find(|(_, unit)| bits.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("\"{} {name}\"", bits / unit),
        None => format!("\"{bits} bit/s\""),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
