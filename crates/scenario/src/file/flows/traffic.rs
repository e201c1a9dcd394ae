//! Cross traffic: packets that come whatever becomes of them.

use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

use super::super::error::ScenarioError;
use super::super::section::{Entry, Section};
use super::{LARGEST_PACKET, LONGEST_RUN_S, MOST_FLOWS, flow, name};
use crate::flows::topology::Topology;
use crate::flows::{CrossTraffic, Pattern};

const CROSS_TRAFFIC: &[&str] = &["name", "from", "to", "path", "rate", "packet_bytes", "pattern", "start_s", "stop_s"];
const PATTERN: &[&str] = &["on_s", "off_s", "on_mean_s", "off_mean_s"];

/// A packet's size on the wire if nothing is said.
const STANDARD_PACKET: u64 = 1500;

/// An on time is at least so many seconds.
const SHORTEST_ON_S: f64 = 1e-6;

/// The sources that `root` describes.
pub fn read(root: &Section<'_>, topology: &Topology) -> Result<Vec<CrossTraffic>, ScenarioError> {
    let sections = root.sections("cross_traffic", CROSS_TRAFFIC)?;
    if sections.len() > MOST_FLOWS {
        return Err(root.blame(&["cross_traffic"], format!("expected at most {MOST_FLOWS} sources")));
    }
    let mut sources: Vec<CrossTraffic> = Vec::new();
    for section in &sections {
        let source = source(section, topology, sources.len())?;
        if sources.iter().any(|other| other.name == source.name) {
            let problem = format!("there is a source \"{}\" already; expected another name", source.name);
            return Err(section.blame(&["name"], problem));
        }
        sources.push(source);
    }
    Ok(sources)
}

fn source(section: &Section<'_>, topology: &Topology, before: usize) -> Result<CrossTraffic, ScenarioError> {
    let path = match section.get("path") {
        Some(entry) => {
            if let Some(other) = section.get("from").or_else(|| section.get("to")) {
                return Err(other.wrong("there is a \"path\" already; expected either of them"));
            }
            flow::path(&entry, topology)?
        }
        None => {
            let from = flow::node_name(&section.required("from", "the node that sends")?, topology, 0)?;
            let to = flow::node_name(&section.required("to", "the node that receives")?, topology, 0)?;
            flow::way(section, topology, &from, &to)?
        }
    };
    let seconds = |entry: Entry<'_>| Ok(Time::ZERO + entry.seconds_in(0.0..=LONGEST_RUN_S)?);
    let start = section.get("start_s").map_or(Ok(Time::ZERO), seconds)?;
    let stop = section.get("stop_s").map(seconds).transpose()?;
    if stop.is_some_and(|stop| stop <= start) {
        return Err(section.blame(&["stop_s"], "it would end before it begins; expected more than its start"));
    }
    let packet = section.get("packet_bytes").map_or(Ok(STANDARD_PACKET), |entry| entry.whole(1..=LARGEST_PACKET))?;
    Ok(CrossTraffic {
        name: section.get("name").map_or_else(|| Ok(format!("cross{before}")), |entry| name(&entry))?,
        path,
        rate: section.required("rate", "its rate while it is on, such as \"2 Mbit/s\"")?.rate()?,
        packet: Bytes::new(packet),
        pattern: section.get("pattern").map_or(Ok(Pattern::Constant), |entry| pattern(&entry))?,
        start,
        stop,
    })
}

/// When it is on.
fn pattern(entry: &Entry<'_>) -> Result<Pattern, ScenarioError> {
    if !entry.is_table() {
        return match entry.words() {
            Some("constant") => Ok(Pattern::Constant),
            _ => Err(entry.wrong(
                "expected \"constant\", { on_s = 1, off_s = 1 }, or { on_mean_s = 1, off_mean_s = 1 } for exponential times",
            )),
        };
    }
    let section = entry.open(PATTERN)?;
    let (key, on) = section.one_of(&["on_s", "on_mean_s"], "when it is on")?;
    let (off, stray) = if key == "on_s" { ("off_s", "off_mean_s") } else { ("off_mean_s", "off_s") };
    if let Some(entry) = section.get(stray) {
        return Err(entry.wrong(format!("this does not go with \"{key}\"; expected \"{off}\"")));
    }
    let on = on.seconds_in(SHORTEST_ON_S..=LONGEST_RUN_S)?;
    let off = section.required(off, "the seconds in which it is off")?.seconds_in(0.0..=LONGEST_RUN_S)?;
    Ok(if key == "on_s" { Pattern::Periodic { on, off } } else { Pattern::Exponential { on, off } })
}
