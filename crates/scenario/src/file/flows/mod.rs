//! Scenarios of flows over links as TOML files.
//!
//! Nodes are known by the links between them. Packets take the path with the least
//! propagation delay at the beginning (then the fewest links, then the links that come
//! first); a flow may name its links instead.
//!
//! ```toml
//! [run]
//! seconds = 30                         # simulated; may have a fraction
//! seed = 1
//! goodput_from_s = 5                   # goodput and utilisation are counted from then on
//! delays_from_s = 0
//! sample_every_s = 0.1                 # rows of the series; a 600th of the run if left out, 0 for none
//!
//! [packets]                            # of all flows
//! data_bytes = 1448
//! header_bytes = 66
//! ack_bytes = 66
//! ack_every = 2
//! max_ack_delay_ms = 25
//! ecn = false
//! paced = false                        # spread windows over the round trip
//! recovery = "rack"                    # or "rfc6675": how losses are found and repaired
//!
//! [dumbbell]                           # s0, s1, ... - left = bottleneck = right - r0, r1, ...
//! pairs = 6                            # as many as the flows need if left out
//! rate = { at_s = [0, 10], values = ["5 Mbit/s", "8 Mbit/s"] }
//! delay_ms = 10                        # or { uniform = [5, 15], every_s = 10 }
//! queue = { ms = 60 }                  # or { bytes = 37500 }, { packets = 25 }, "unlimited"
//! # queue = { kind = "codel", packets = 1000, target_ms = 5, interval_ms = 100 }
//! # queue = { kind = "fq-codel", queues = 1024, quantum_bytes = 1514 }
//! # queue = { kind = "red", packets = 100, min_threshold = 5, max_threshold = 15 }
//! loss = 0.001                         # or { to_bad = 0.01, to_good = 0.3, loss_good = 0, loss_bad = 0.5 }
//! jitter_ms = 0.1                      # standard deviation
//! reorder = false                      # whether packets may overtake each other
//! access_rate = "100 Mbit/s"
//! access_delay_ms = [10, 10, 10, 10, 20, 20]  # one for each pair, or one for all
//!
//! [star]                               # h0, h1, ... around hub
//! hosts = 3
//! rate = "4 Mbit/s"
//! down_rate = "16 Mbit/s"              # from the hub, if it differs
//! delay_ms = [5, 10, 20]
//! queue = { packets = 50 }
//!
//! [[link]]
//! name = "bridge"                      # "left-hub" if left out
//! from = "left"
//! to = "hub"
//! rate = "unlimited"
//! delay_ms = 1
//! both_ways = true                     # and "bridge-back", which is like it
//!
//! [[flow]]
//! controller = "reno"                  # the dumbbell's next pair, as neither from nor to is there
//! count = 4
//! name = "reno{i}"                     # each copy's number in place of {i}
//!
//! [[flow]]
//! name = "steady"
//! controller = "fixed"
//! parameters = { window = 20 }
//! from = "s0"
//! to = ["h0", "h1"]                    # blocks in turn
//! start_s = 2
//! start_within_s = 1                   # begins within so long after that, at random
//! stop_s = 25
//! workload = { block_bytes = 15000 }
//! # workload = { sizes = "web-search", off_mean_s = 0.5 }
//! # workload = { sizes = { cdf = [[100, 0], [1e6, 1]], interpolate = "log" } }
//! # workload = { sizes = { file = "sizes.csv" }, every_s = 10 }
//! initial_window_packets = 10
//! handshake = false                    # a round trip before any data
//! steered = false                      # its window is the coordinator's
//!
//! [steering]                           # a coordinator divides a link among the steered flows
//! link = "bottleneck"
//! every_ms = 100
//! actuator = "maximum"                 # or "fixed"
//!
//! [[cross_traffic]]
//! from = "s1"
//! to = "r1"
//! rate = "2 Mbit/s"
//! packet_bytes = 1500
//! pattern = { on_s = 1, off_s = 3 }
//! ```

use anabranch_control::flow::Actuator;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::flow::{AckPolicy, LossRecovery};

pub use write::to_toml;

use super::error::ScenarioError;
use super::section::{Entry, Section, nearest};
use super::tree::Node;
use crate::flows::Steering;
use crate::flows::{FlowScenario, FlowSpec, LinkSpec, PacketSpec};

mod flow;
mod links;
mod queues;
mod sizes;
#[cfg(test)]
mod tests;
mod traffic;
mod values;
mod write;

/// The tables that only a scenario of flows has.
pub(super) const OWN: &[&str] = &["flow", "dumbbell", "star", "link", "packets", "cross_traffic", "steering"];
pub(super) const ROOT: &[&str] = &["run", "packets", "dumbbell", "star", "link", "flow", "cross_traffic", "steering"];
const RUN: &[&str] = &["seconds", "seed", "goodput_from_s", "delays_from_s", "sample_every_s"];
const STEERING: &[&str] = &["link", "every_ms", "actuator"];

/// What the coordinator's window is to a flow.
const ACTUATORS: &[(&str, Actuator)] = &[("maximum", Actuator::Maximum), ("fixed", Actuator::Fixed)];
const PACKETS: &[&str] =
    &["data_bytes", "header_bytes", "ack_bytes", "ack_every", "max_ack_delay_ms", "ecn", "paced", "recovery"];

/// No run is longer, in seconds: 11 days.
const LONGEST_RUN_S: f64 = 1e6;
/// No run is shorter, in seconds.
const SHORTEST_RUN_S: f64 = 1e-3;
/// A run's length if nothing is said.
const STANDARD_RUN: Duration = Duration::from_millis(60_000);
/// Rows of the series if nothing is said.
const STANDARD_ROWS: u64 = 600;
/// The most values that a series may hold: 400 MB.
const MOST_VALUES: u64 = 50_000_000;
/// About how many values a flow has in each row.
const VALUES_OF_A_FLOW: u64 = 12;
/// No scenario has more flows, or more sources of cross traffic.
const MOST_FLOWS: usize = 4096;
/// No dumbbell has more pairs, no star more hosts.
const MOST_HOSTS: u64 = 4096;
/// No scenario has more links.
const MOST_LINKS: u64 = 20_000;
/// No flows have more receivers together.
const MOST_RECEIVERS: usize = 100_000;
/// The most that one UDP datagram over IPv4 carries.
const LARGEST_PACKET: u64 = 65_507;
/// No amount of data is larger.
const MOST_BYTES: u64 = 1 << 40;
/// No queue or window has more packets.
const MOST_PACKETS: u64 = 1 << 30;
/// A coordinator decides at most so often.
const SHORTEST_STEERING: Duration = Duration::from_millis(1);
/// An ACK answers at most so many packets.
const MOST_TO_ACK: u64 = 1000;
/// The longest name of a node, a link or a flow, in characters.
const LONGEST_NAME: usize = 60;

/// The scenario that `root` describes.
pub(super) fn scenario(root: &Node) -> Result<FlowScenario, ScenarioError> {
    let root = Section::open("", root, ROOT)?;
    let run = root.section("run", RUN)?;
    let packets = root.section("packets", PACKETS)?;
    let sections = root.sections("flow", flow::FLOW)?;
    let on_pairs = flow::on_pairs(&sections)?;
    let (topology, pairs) = links::read(&root, on_pairs)?;
    let mut scenario = FlowScenario {
        length: STANDARD_RUN,
        seed: 1,
        goodput_from: Time::ZERO,
        delays_from: Time::ZERO,
        sample_every: None,
        links: Vec::new(),
        flows: Vec::new(),
        cross_traffic: Vec::new(),
        steering: None,
        packets: packets.map_or(Ok(PacketSpec::default()), |section| read_packets(&section))?,
    };
    if let Some(run) = &run {
        read_run(run, &mut scenario)?;
    }
    scenario.flows = flow::read(&sections, &topology, pairs, &scenario)?;
    scenario.cross_traffic = traffic::read(&root, &topology)?;
    if scenario.flows.is_empty() && scenario.cross_traffic.is_empty() {
        return Err(root.missing("flow", "a table [[flow]] with a controller"));
    }
    scenario.links = topology.into_links();
    scenario.steering =
        root.section("steering", STEERING)?.map(|section| steering(&section, &scenario.links)).transpose()?;
    if let (None, Some(flow)) = (&scenario.steering, scenario.flows.iter().find(|flow| flow.steered)) {
        let problem = format!("the flow \"{}\" is steered; expected the link that is divided", flow.name);
        return Err(root.missing("steering", &problem));
    }
    read_samples(&root, run.as_ref(), &mut scenario)?;
    Ok(scenario)
}

fn read_run(run: &Section<'_>, scenario: &mut FlowScenario) -> Result<(), ScenarioError> {
    if let Some(entry) = run.get("seconds") {
        scenario.length = entry.seconds_in(SHORTEST_RUN_S..=LONGEST_RUN_S)?;
    }
    if let Some(entry) = run.get("seed") {
        // What TOML can write.
        scenario.seed = entry.whole(0..=i64::MAX as u64)?;
    }
    let from = |key: &str| {
        let Some(entry) = run.get(key) else { return Ok(Time::ZERO) };
        let span = entry.seconds_in(0.0..=LONGEST_RUN_S)?;
        if span >= scenario.length {
            let problem =
                format!("the run ends before anything is counted; expected less than its {}", scenario.length);
            return Err(entry.wrong(problem));
        }
        Ok(Time::ZERO + span)
    };
    (scenario.goodput_from, scenario.delays_from) = (from("goodput_from_s")?, from("delays_from_s")?);
    Ok(())
}

/// How the flows that are steered are.
fn steering(section: &Section<'_>, links: &[LinkSpec]) -> Result<Steering, ScenarioError> {
    let entry = section.required("link", "the name of the link whose rate is divided")?;
    let name = entry.text("a link's name")?;
    let Some(link) = links.iter().position(|link| link.name == name) else {
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        let near = nearest(name, &names).map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
        return Err(entry.wrong(format!("there is no link \"{name}\"{near}")));
    };
    let entry = section.required("every_ms", "the time between two decisions")?;
    let every = entry.millis()?;
    if every < SHORTEST_STEERING {
        return Err(entry.wrong(format!("expected {SHORTEST_STEERING} or more")));
    }
    let actuator = section.get("actuator").map_or(Ok(ACTUATORS[0]), |entry| entry.choice(ACTUATORS))?.1;
    Ok(Steering { link, every, actuator })
}

/// How often the series has a row.
fn read_samples(
    root: &Section<'_>,
    run: Option<&Section<'_>>,
    scenario: &mut FlowScenario,
) -> Result<(), ScenarioError> {
    let entry = run.and_then(|run| run.get("sample_every_s"));
    let every = match &entry {
        Some(entry) => entry.seconds_in(0.0..=LONGEST_RUN_S)?,
        None => scenario.length / STANDARD_ROWS,
    };
    scenario.sample_every = (every > Duration::ZERO).then_some(every);
    let rows = scenario.sample_every.map_or(0, |every| scenario.length.as_nanos() / every.as_nanos());
    let receivers = |flow: &FlowSpec| if flow.receivers.len() > 1 { flow.receivers.len() as u64 } else { 0 };
    let of_flows: u64 = scenario.flows.iter().map(|flow| VALUES_OF_A_FLOW + receivers(flow)).sum();
    let in_a_row = of_flows + scenario.links.len() as u64;
    if rows.saturating_mul(in_a_row) > MOST_VALUES {
        let problem = format!(
            "{rows} rows of {in_a_row} values are more than {MOST_VALUES}; expected a longer run.sample_every_s, or 0 \
             for no series"
        );
        return Err(entry.map_or_else(|| root.wrong(problem.clone()), |entry| entry.wrong(problem.clone())));
    }
    Ok(())
}

fn read_packets(section: &Section<'_>) -> Result<PacketSpec, ScenarioError> {
    let standard = PacketSpec::default();
    let bytes = |key: &str, least: u64, standard: Bytes| match section.get(key) {
        Some(entry) => Ok(Bytes::new(entry.whole(least..=LARGEST_PACKET)?)),
        None => Ok(standard),
    };
    let flag = |key: &str| section.get(key).map_or(Ok(false), |entry| entry.flag());
    let AckPolicy { every, max_delay, form } = standard.ack_policy;
    let most = 1..=MOST_TO_ACK;
    Ok(PacketSpec {
        data: bytes("data_bytes", 1, standard.data)?,
        header: bytes("header_bytes", 0, standard.header)?,
        ack: bytes("ack_bytes", 1, standard.ack)?,
        ack_policy: AckPolicy {
            every: section.get("ack_every").map_or(Ok(every), |entry| Ok(entry.whole(most)? as u32))?,
            max_delay: section.get("max_ack_delay_ms").map_or(Ok(max_delay), |entry| entry.millis())?,
            form,
        },
        ecn: flag("ecn")?,
        paced: flag("paced")?,
        recovery: match section.get("recovery") {
            Some(entry) => entry.choice(&LossRecovery::ALL)?.1,
            None => standard.recovery,
        },
    })
}

/// A name that fits into tables.
fn name(entry: &Entry<'_>) -> Result<String, ScenarioError> {
    let text = entry.text("a name")?;
    let fits = (1..=LONGEST_NAME).contains(&text.chars().count()) && !text.chars().any(char::is_control);
    if fits { Ok(text.to_owned()) } else { Err(entry.wrong(format!("expected 1 to {LONGEST_NAME} characters"))) }
}
