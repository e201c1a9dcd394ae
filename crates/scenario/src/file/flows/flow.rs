//! Flows: who sends what to whom under which controller.

use anabranch_control::flow::registry::{self, Setup};
use anabranch_control::registry::ParameterError;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::super::error::ScenarioError;
use super::super::parameters;
use super::super::section::{Entry, Section, nearest};
use super::sizes;
use super::{LONGEST_RUN_S, MOST_BYTES, MOST_FLOWS, MOST_LINKS, MOST_PACKETS, MOST_RECEIVERS, name};
use crate::flows::topology::{Topology, least};
use crate::flows::{FlowScenario, FlowSpec, OnPeriod, Path, Receiver, Size, Stack, Workload};
use crate::remy_table;

pub const FLOW: &[&str] = &[
    "name",
    "count",
    "first",
    "controller",
    "parameters",
    "from",
    "to",
    "receivers",
    "workload",
    "start_s",
    "start_within_s",
    "start_step_s",
    "stop_s",
    "initial_window_packets",
    "initial_window_bytes",
    "handshake",
    "steered",
];
const RECEIVER: &[&str] = &["path", "back"];
const WORKLOAD: &[&str] =
    &["once_bytes", "every_s", "block_bytes", "on_mean_s", "on_mean_bytes", "sizes", "off_mean_s", "new_connections"];

/// What stands for a copy's number in names.
const NUMBER: &str = "{i}";

/// A shorter round trip would let a controller send without end in no time.
const SHORTEST_ROUND_TRIP: Duration = Duration::from_nanos(1000);

/// A mean on time is at least so many seconds.
const SHORTEST_ON_S: f64 = 1e-6;

/// How many names an error lists.
const NAMES_LISTED: usize = 12;

/// How many flows take the dumbbell's pairs in turn.
pub fn on_pairs(sections: &[Section<'_>]) -> Result<usize, ScenarioError> {
    sections.iter().filter(|section| takes_pairs(section)).map(count).sum()
}

/// Whether a flow says nothing about who sends to whom.
fn takes_pairs(section: &Section<'_>) -> bool {
    ["from", "to", "receivers"].iter().all(|key| section.get(key).is_none())
}

fn count(section: &Section<'_>) -> Result<usize, ScenarioError> {
    section.get("count").map_or(Ok(1), |entry| Ok(entry.whole(1..=MOST_FLOWS as u64)? as usize))
}

/// The flows in `sections`; those that say nothing about who sends to whom take the
/// `pairs` of a dumbbell in turn.
pub fn read(
    sections: &[Section<'_>],
    topology: &Topology,
    pairs: usize,
    scenario: &FlowScenario,
) -> Result<Vec<FlowSpec>, ScenarioError> {
    let mut flows: Vec<FlowSpec> = Vec::new();
    let mut receivers = 0;
    let mut next_pair = 0;
    for section in sections {
        let count = count(section)?;
        if flows.len() + count > MOST_FLOWS {
            return Err(section.blame(&["count"], format!("expected at most {MOST_FLOWS} flows")));
        }
        let alike = FlowReader::new(section, count, scenario)?;
        for copy in 0..count {
            let number = if takes_pairs(section) { next_pair + copy } else { alike.first + copy };
            let ways = match takes_pairs(section) {
                true if pairs == 0 => return Err(section.missing("from", "the node that sends")),
                true if number >= pairs => {
                    let problem =
                        format!("the dumbbell has {pairs} pairs; expected dumbbell.pairs = {} or more", number + 1);
                    return Err(section.wrong(problem));
                }
                true => vec![way_between(section, topology, &format!("s{number}"), &format!("r{number}"))?],
                false => ways(section, topology, number)?,
            };
            receivers += ways.len();
            if receivers > MOST_RECEIVERS {
                return Err(section.wrong(format!("expected at most {MOST_RECEIVERS} receivers of all flows together")));
            }
            let flow = alike.copy(copy, number, ways, flows.len())?;
            if flows.iter().any(|other| other.name == flow.name) {
                let hint = if count > 1 { ", with {i} in place of each copy's number" } else { "" };
                let problem = format!("there is a flow \"{}\" already; expected another name{hint}", flow.name);
                return Err(section.blame(&["name"], problem));
            }
            flows.push(flow);
        }
        if takes_pairs(section) {
            next_pair += count;
        }
    }
    Ok(flows)
}

/// What all copies of a flow have in common.
struct FlowReader<'s, 't> {
    section: &'s Section<'t>,
    name: Option<String>,
    /// The number of the first copy.
    first: usize,
    flow: FlowSpec,
    within: Duration,
    step: Duration,
    seed: u64,
}

impl<'s, 't> FlowReader<'s, 't> {
    fn new(section: &'s Section<'t>, count: usize, scenario: &FlowScenario) -> Result<Self, ScenarioError> {
        let span = |key: &str| match section.get(key) {
            Some(entry) => Ok(Some(entry.seconds_in(0.0..=LONGEST_RUN_S)?)),
            None => Ok(None),
        };
        let [start, within, step] =
            ["start_s", "start_within_s", "start_step_s"].map(|key| Ok(span(key)?.unwrap_or(Duration::ZERO)));
        let (start, within, step) = (Time::ZERO + start?, within?, step?);
        let stop = span("stop_s")?.map(|stop| Time::ZERO + stop);
        if stop.is_some_and(|stop| stop <= start + within + step * (count as u64 - 1)) {
            return Err(section.blame(&["stop_s"], "the flow may end before it begins; expected more than its start"));
        }
        let entry = section.required("controller", "the controller's name in quotes (anabranch controllers)")?;
        let named = entry.text("the controller's name")?;
        let (stack, named) = match (named.strip_prefix(Stack::KERNEL), named.strip_prefix(Stack::QUIC)) {
            (Some(kernel), _) => (Stack::Kernel(kernel.to_owned()), kernel),
            (None, Some(ours)) => (Stack::Quic, ours),
            (None, None) => (Stack::Ours, named),
        };
        let controller = registry::find(named).map_err(|unknown| entry.wrong(unknown.to_string()))?;
        if let (Stack::Kernel(_), Some(parameters)) = (&stack, section.get("parameters")) {
            return Err(parameters.wrong("the operating system's congestion control takes no parameters from here"));
        }
        let initial_window = initial_window(section, scenario)?;
        let mut setup = Setup::new(scenario.packets.data, Time::ZERO);
        setup.initial_window = initial_window.unwrap_or(setup.initial_window);
        let parameters = match section.get("parameters") {
            Some(entry) => {
                let resolved = |table: &toml::Table| with_rules(controller, table);
                let table = parameters::read(&entry, |table| (controller.build)(&setup, &resolved(table)?).map(drop))?;
                resolved(&table).map_err(|error| entry.wrong(error.to_string()))?
            }
            None => {
                // Some need parameters.
                let none = toml::Table::new();
                (controller.build)(&setup, &none).map_err(|error| entry.wrong(error.to_string()))?;
                none
            }
        };
        let first = section.get("first").map_or(Ok(0), |entry| entry.whole(0..=MOST_FLOWS as u64))?;
        if let (true, Some(entry)) = (takes_pairs(section), section.get("first")) {
            return Err(entry.wrong("this belongs to a flow with from and to"));
        }
        let workload = section.get("workload").map_or(Ok(Workload::Bulk), |entry| workload(&entry))?;
        let name = section.get("name").map(|entry| name(&entry)).transpose()?;
        let flow = FlowSpec {
            name: String::new(),
            stack,
            controller,
            parameters,
            receivers: Vec::new(),
            workload,
            start,
            stop,
            initial_window,
            handshake: section.get("handshake").map_or(Ok(false), |entry| entry.flag())?,
            steered: section.get("steered").map_or(Ok(false), |entry| entry.flag())?,
        };
        Ok(FlowReader { section, name, first: first as usize, flow, within, step, seed: scenario.seed })
    }

    /// The copy that comes after `copy` others, with `number` in its names.
    fn copy(&self, copy: usize, number: usize, ways: Vec<Receiver>, flows: usize) -> Result<FlowSpec, ScenarioError> {
        if ways.len() > 1 && !matches!(self.flow.workload, Workload::Blocks(_)) {
            let problem = "several receivers get blocks in turn; expected workload = { block_bytes = 15000 }, or one \
                           receiver";
            return Err(self.section.blame(&["to", "receivers"], problem));
        }
        let name = match &self.name {
            Some(name) => numbered(name, number),
            None => format!("flow{flows}"),
        };
        let mut start = self.flow.start + self.step * copy as u64;
        if self.within > Duration::ZERO {
            let share = Rng::stream(self.seed, &format!("start/{name}")).uniform();
            start += Duration::from_secs_f64(self.within.as_secs_f64() * share);
        }
        Ok(FlowSpec { name, start, receivers: ways, ..self.flow.clone() })
    }
}

/// The parameters, with the rules of a table in place of its file's name. A relative path
/// begins where the program runs.
fn with_rules(controller: &registry::Entry, parameters: &toml::Table) -> Result<toml::Table, ParameterError> {
    let mut parameters = parameters.clone();
    if controller.name == "remy" {
        let wrong = |error: remy_table::TableError| ParameterError(error.to_string());
        remy_table::resolve(&mut parameters, std::path::Path::new("")).map_err(wrong)?;
    }
    Ok(parameters)
}

/// `text` with a copy's number.
pub fn numbered(text: &str, number: usize) -> String {
    text.replace(NUMBER, &number.to_string())
}

fn initial_window(section: &Section<'_>, scenario: &FlowScenario) -> Result<Option<Bytes>, ScenarioError> {
    let keys = ["initial_window_packets", "initial_window_bytes"];
    if keys.iter().all(|key| section.get(key).is_none()) {
        return Ok(None);
    }
    let (key, entry) = section.one_of(&keys, "the window to begin with")?;
    Ok(Some(match key {
        "initial_window_packets" => scenario.packets.data * entry.whole(1..=MOST_PACKETS)?,
        _ => Bytes::new(entry.whole(1..=MOST_BYTES)?),
    }))
}

/// Whom a flow's copy sends to, and over which links.
fn ways(section: &Section<'_>, topology: &Topology, number: usize) -> Result<Vec<Receiver>, ScenarioError> {
    if let Some(entry) = section.get("receivers") {
        if let Some(other) = section.get("from").or_else(|| section.get("to")) {
            return Err(other.wrong("there are \"receivers\" already; expected either of them"));
        }
        let receivers = entry.list("a list of { path = [...], back = [...] }, the links by their names")?;
        if receivers.is_empty() {
            return Err(entry.wrong("this names no receiver"));
        }
        let read = |receiver: &Entry<'_>| {
            let section = receiver.open(RECEIVER)?;
            let there = path(&section.required("path", "the links that data passes")?, topology)?;
            let back = path(&section.required("back", "the links that ACKs pass")?, topology)?;
            long_enough(receiver.wrong(NO_TIME), topology, Receiver { there, back })
        };
        return receivers.iter().map(read).collect();
    }
    let from = section.required("from", "the node that sends")?;
    let to = section.required("to", "the node that receives, or a list of them")?;
    let from = node_name(&from, topology, number)?;
    let receivers = if to.is_list() { to.list("nodes")? } else { vec![to.clone()] };
    if receivers.is_empty() {
        return Err(to.wrong("this names no receiver"));
    }
    receivers.iter().map(|to| way_between(section, topology, &from, &node_name(to, topology, number)?)).collect()
}

const NO_TIME: &str = "packets would take no time at all; expected links with a delay_ms of at least 0.001 together";

fn way_between(section: &Section<'_>, topology: &Topology, from: &str, to: &str) -> Result<Receiver, ScenarioError> {
    let way = |from: &str, to: &str| way(section, topology, from, to);
    let receiver = Receiver { there: way(from, to)?, back: way(to, from)? };
    long_enough(section.blame(&["from"], NO_TIME), topology, receiver)
}

/// The shortest path between two nodes that there are.
pub fn way(section: &Section<'_>, topology: &Topology, from: &str, to: &str) -> Result<Path, ScenarioError> {
    if from == to {
        return Err(section.blame(&["to"], format!("\"{from}\" would send to itself; expected another node")));
    }
    let path = topology.node(from).zip(topology.node(to)).and_then(|(from, to)| topology.path(from, to));
    path.ok_or_else(|| section.blame(&["from"], format!("no links lead from \"{from}\" to \"{to}\"")))
}

/// The way, unless packets take no time on it.
fn long_enough(error: ScenarioError, topology: &Topology, way: Receiver) -> Result<Receiver, ScenarioError> {
    let round_trip: Duration =
        way.there.iter().chain(&way.back).map(|&link| least(&topology.links()[link].delay)).sum();
    if round_trip < SHORTEST_ROUND_TRIP { Err(error) } else { Ok(way) }
}

/// The node that a value names.
pub fn node_name(entry: &Entry<'_>, topology: &Topology, number: usize) -> Result<String, ScenarioError> {
    let name = numbered(entry.text("a node's name")?, number);
    if topology.node(&name).is_some() {
        return Ok(name);
    }
    let known: Vec<&str> = topology.node_names().iter().map(String::as_str).collect();
    Err(entry.wrong(unknown("node", &name, &known)))
}

/// The links that a value names, each of which begins where the one before it ends.
pub fn path(entry: &Entry<'_>, topology: &Topology) -> Result<Path, ScenarioError> {
    let what = "a list of links by their names, in the order in which packets pass them";
    let names = entry.list(what)?;
    if names.is_empty() || names.len() as u64 > MOST_LINKS {
        return Err(entry.wrong(format!("expected {what}")));
    }
    let mut path: Path = Vec::with_capacity(names.len());
    for name in names {
        let text = name.text("a link's name")?;
        let Some(link) = topology.links().iter().position(|link| link.name == text) else {
            let known: Vec<&str> = topology.links().iter().map(|link| link.name.as_str()).collect();
            return Err(name.wrong(unknown("link", text, &known)));
        };
        if path.contains(&link) {
            return Err(name.wrong("packets would pass this link twice"));
        }
        let before = path.last().and_then(|&before| topology.ends(before));
        if let (Some((_, end)), Some((begin, _))) = (before, topology.ends(link))
            && end != begin
        {
            let nodes = topology.node_names();
            let problem =
                format!("the link before it ends at \"{}\", this one begins at \"{}\"", nodes[end], nodes[begin]);
            return Err(name.wrong(problem));
        }
        path.push(link);
    }
    Ok(path)
}

/// That nothing of a kind is called `name`.
fn unknown(kind: &str, name: &str, known: &[&str]) -> String {
    let near = nearest(name, known).map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
    let more = if known.len() > NAMES_LISTED { ", ..." } else { "" };
    let listed = &known[..known.len().min(NAMES_LISTED)];
    format!("there is no {kind} \"{name}\"{near} ({kind}s: {}{more})", listed.join(", "))
}

/// What an application sends.
fn workload(entry: &Entry<'_>) -> Result<Workload, ScenarioError> {
    if !entry.is_table() {
        let examples = "\"bulk\", { once_bytes = 51200 }, { block_bytes = 15000 }, { on_mean_s = 10, off_mean_s = 10 }, \
                        { on_mean_bytes = 100000, off_mean_s = 0.5 } or { sizes = \"web-search\", off_mean_s = 0.5 }";
        return match entry.words() {
            Some("bulk") => Ok(Workload::Bulk),
            _ => Err(entry.wrong(format!("expected {examples}"))),
        };
    }
    let section = entry.open(WORKLOAD)?;
    let keys = ["once_bytes", "block_bytes", "on_mean_s", "on_mean_bytes", "sizes"];
    let (key, amount) = section.one_of(&keys, "what the application sends")?;
    let bytes = || Ok(Bytes::new(amount.whole(1..=MOST_BYTES)?));
    let refuse = |key: &str, why: &str| match section.get(key) {
        Some(entry) => Err(entry.wrong(why)),
        None => Ok(()),
    };
    let goes_off = section.get("off_mean_s").is_some();
    let on = match key {
        "on_mean_s" => OnPeriod::Time { mean: amount.seconds_in(SHORTEST_ON_S..=LONGEST_RUN_S)? },
        "on_mean_bytes" => OnPeriod::Bytes { mean: bytes()? },
        "sizes" if goes_off => OnPeriod::Drawn(sizes::read(&amount)?),
        _ => {
            let owner = if key == "sizes" { "a workload with off_mean_s" } else { "on_mean_s, on_mean_bytes or sizes" };
            for key in ["off_mean_s", "new_connections"] {
                refuse(key, &format!("this belongs to {owner}"))?;
            }
            if key == "block_bytes" {
                refuse("every_s", "this belongs to once_bytes or sizes")?;
                return Ok(Workload::Blocks(bytes()?));
            }
            let size = if key == "sizes" { Size::Drawn(sizes::read(&amount)?) } else { Size::Fixed(bytes()?) };
            return Ok(match section.get("every_s") {
                None => Workload::Once(size),
                Some(every) => Workload::Repeated { size, every: every.seconds_in(SHORTEST_ON_S..=LONGEST_RUN_S)? },
            });
        }
    };
    refuse("every_s", "this belongs to once_bytes, or to sizes without off_mean_s")?;
    let off = section.required("off_mean_s", "the mean seconds between two on-times")?;
    let new_connections = section.get("new_connections").map_or(Ok(false), |entry| entry.flag())?;
    Ok(Workload::OnOff { on, off_mean: off.seconds_in(0.0..=LONGEST_RUN_S)?, new_connections })
}
