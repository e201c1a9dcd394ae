//! Flows: who sends what to whom under which controller.

use std::path::Path;

use anabranch_control::flow::registry::{self, Entry, Setup};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;

use super::super::error::{Problem, is_option};
use super::super::parameters::Parameters;
use super::super::shape::{
    Each, Optional, OrStandard, Said, Section, Sections, Shape, Value, keys, one_of, said, sections, some, span, write,
};
use super::super::values::{Name, Whole, after_start, since_start};
use super::ways::{self, ReceiverKeys, numbered};
use super::workload::{self, Sends};
use super::{MOST_BYTES, MOST_FLOWS, MOST_PACKETS, MOST_RECEIVERS, RunSeconds};
use crate::flows::topology::Topology;
use crate::flows::{FlowScenario, FlowSpec, LinkSpec, Receiver, Stack, Workload};
use crate::parameter_files;

keys! {
    /// `[[flow]]`.
    pub struct FlowKeys {
        name: Optional<Name>,
        count: Optional<Whole<1, { MOST_FLOWS as u64 }>>,
        first: Optional<Whole<0, { MOST_FLOWS as u64 }>>,
        controller: Said<Controller>,
        parameters: Optional<Parameters>,
        from: Optional<String>,
        to: Optional<Each<String>>,
        receivers: Sections<ReceiverKeys>,
        workload: Optional<Sends>,
        start_s: Optional<RunSeconds>,
        start_within_s: Optional<RunSeconds>,
        start_step_s: Optional<RunSeconds>,
        stop_s: Optional<RunSeconds>,
        initial_window_packets: Optional<Whole<1, MOST_PACKETS>>,
        initial_window_bytes: Optional<Whole<1, MOST_BYTES>>,
        handshake: Optional<bool>,
        steered: Optional<bool>,
    }
}

/// Who decides, and on whose machine.
struct Controller {
    stack: Stack,
    entry: &'static Entry,
}

impl Shape for Controller {
    type Holds = Self;

    fn expected() -> String {
        "a controller's name in quotes (anabranch controllers)".to_owned()
    }

    fn read(value: &Value<'_>) -> Result<Self, Problem> {
        let text = value.text(Self::expected)?;
        let (stack, name) = match (text.strip_prefix(Stack::KERNEL), text.strip_prefix(Stack::QUIC)) {
            (Some(kernel), _) => (Stack::Kernel(kernel.to_owned()), kernel),
            (None, Some(ours)) => (Stack::Quic, ours),
            (None, None) => (Stack::Ours, text),
        };
        let entry = registry::find(name).map_err(|unknown| value.wrong(unknown.to_string()))?;
        Ok(Controller { stack, entry })
    }

    fn write(controller: &Self, out: &mut String) {
        write(&*controller.stack.named(controller.entry), out);
    }
}

/// How many flows take the dumbbell's pairs in turn.
pub fn on_pairs(said: &Sections<FlowKeys>) -> usize {
    let flows = said.iter().flat_map(|flows| flows.iter());
    flows.filter(|flow| flow.takes_pairs()).map(|flow| flow.count()).sum()
}

/// The nodes and links that flows name.
pub fn named(said: &Sections<FlowKeys>) -> Vec<String> {
    said.iter().flat_map(|flows| flows.iter()).flat_map(|flow| flow.named()).collect()
}

/// The flows that are described; those that say nothing about who sends to whom take the
/// `pairs` of a dumbbell in turn. Files that they name lie in `directory`.
pub fn read(
    said: &Sections<FlowKeys>,
    topology: &Topology,
    pairs: usize,
    scenario: &FlowScenario,
    directory: &Path,
) -> Result<Vec<FlowSpec>, Problem> {
    let mut flows: Vec<FlowSpec> = Vec::new();
    let mut receivers = 0;
    let mut next_pair = 0;
    for section in said.iter().flat_map(|flows| flows.iter()) {
        let count = section.count();
        if flows.len() + count > MOST_FLOWS {
            let problem = format!("expected at most {MOST_FLOWS} flows");
            return Err(Problem::at(span(&section.count).unwrap_or(section.span()), problem));
        }
        let alike = section.alike(count, scenario, directory)?;
        let first = section.first.as_ref().map_or(0, |first| **first as usize);
        for copy in 0..count {
            let number = if section.takes_pairs() { next_pair + copy } else { first + copy };
            let ways = if section.takes_pairs() {
                vec![section.pair(topology, number, pairs)?]
            } else {
                section.ways(topology, number)?
            };
            receivers += ways.len();
            if receivers > MOST_RECEIVERS {
                return Err(section.wrong(format!("expected at most {MOST_RECEIVERS} receivers of all flows together")));
            }
            let name = match &section.name {
                Some(name) => numbered(name, number),
                None => format!("flow{}", flows.len()),
            };
            let flow = section.copy(&alike, copy, name, ways, scenario.seed)?;
            if flows.iter().any(|other| other.name == flow.name) {
                let hint = if count > 1 { ", with {i} in place of each copy's number" } else { "" };
                let problem = format!("there is a flow \"{}\" already; expected another name{hint}", flow.name);
                return Err(Problem::at(span(&section.name).unwrap_or(section.span()), problem));
            }
            flows.push(flow);
        }
        if section.takes_pairs() {
            next_pair += count;
        }
    }
    Ok(flows)
}

impl Section<FlowKeys> {
    /// Whether it says nothing about who sends to whom.
    fn takes_pairs(&self) -> bool {
        self.from.is_none() && self.to.is_none() && self.receivers.is_none()
    }

    fn count(&self) -> usize {
        self.count.as_ref().map_or(1, |count| **count as usize)
    }

    /// The nodes and links that it names: of copies, those of the last.
    fn named(&self) -> Vec<String> {
        let last = self.first.as_ref().map_or(0, |first| **first as usize) + self.count() - 1;
        let to = self.to.as_ref().map(|to| match &**to {
            Each::All(one) => vec![one.clone()],
            Each::Each(list) => list.iter().map(|one| (**one).clone()).collect(),
        });
        let nodes = self.from.iter().map(|from| (**from).clone()).chain(to.into_iter().flatten());
        let ways =
            self.receivers.iter().flat_map(|ways| ways.iter()).flat_map(|way| way.path.iter().chain(way.back.iter()));
        nodes.map(|node| numbered(&node, last)).chain(ways.map(|link| (**link).clone())).collect()
    }

    /// What all copies of the flow have in common.
    fn alike(&self, count: usize, scenario: &FlowScenario, directory: &Path) -> Result<FlowSpec, Problem> {
        let seconds = |said: &Optional<RunSeconds>| said.or_standard(Duration::ZERO);
        let start = Time::ZERO + seconds(&self.start_s);
        let latest = start + seconds(&self.start_within_s) + seconds(&self.start_step_s) * (count as u64 - 1);
        if let Some(stop) = self.stop_s.as_ref().filter(|stop| after_start(***stop) <= latest) {
            return Err(stop.wrong("the flow may end before it begins; expected more than its start"));
        }
        let Controller { stack, entry } = &*self.controller;
        if let (Stack::Kernel(_), Some(parameters)) = (stack, &self.parameters) {
            return Err(parameters.wrong("the operating system's congestion control takes no parameters from here"));
        }
        if let (true, Some(first)) = (self.takes_pairs(), &self.first) {
            return Err(first.wrong("this belongs to a flow with from and to"));
        }
        let initial_window = self.initial_window(scenario)?;
        Ok(FlowSpec {
            name: String::new(),
            stack: stack.clone(),
            controller: entry,
            parameters: self.controller_parameters(initial_window, scenario, directory)?,
            receivers: Vec::new(),
            workload: self.workload.as_ref().map_or(Ok(Workload::Bulk), |said| said.workload(directory))?,
            start,
            stop: self.stop_s.as_ref().map(|stop| after_start(**stop)),
            initial_window,
            handshake: self.handshake.or_standard(false),
            steered: self.steered.or_standard(false),
        })
    }

    fn initial_window(&self, scenario: &FlowScenario) -> Result<Option<Bytes>, Problem> {
        let (packets, bytes) = (&self.initial_window_packets, &self.initial_window_bytes);
        if packets.is_none() && bytes.is_none() {
            return Ok(None);
        }
        let keys = [("initial_window_packets", span(packets)), ("initial_window_bytes", span(bytes))];
        Ok(match one_of(&keys, self.span(), "the window to begin with")? {
            0 => packets.as_ref().map(|packets| scenario.packets.data * **packets),
            _ => bytes.as_ref().map(|bytes| Bytes::new(**bytes)),
        })
    }

    /// The controller's parameters, checked by making one; some need parameters.
    fn controller_parameters(
        &self,
        window: Option<Bytes>,
        scenario: &FlowScenario,
        directory: &Path,
    ) -> Result<toml::Table, Problem> {
        let controller = self.controller.entry;
        let mut setup = Setup::new(scenario.packets.data, Time::ZERO);
        setup.initial_window = window.unwrap_or(setup.initial_window);
        let Some(parameters) = &self.parameters else {
            let none = toml::Table::new();
            return match controller.make(&setup, &none) {
                Ok(_) => Ok(none),
                Err(error) => Err(self.controller.wrong(error.to_string())),
            };
        };
        // What an option says begins where the program runs.
        let from = if is_option(&parameters.span()) { Path::new("") } else { directory };
        let resolved = |table: &toml::Table| parameter_files::resolved(controller.name, table, from);
        let table = parameters.checked(|table| controller.make(&setup, &resolved(table)?).map(drop))?;
        resolved(&table).map_err(|error| parameters.wrong(error.to_string()))
    }

    /// The copy that comes after `copy` others.
    fn copy(
        &self,
        alike: &FlowSpec,
        copy: usize,
        name: String,
        receivers: Vec<Receiver>,
        seed: u64,
    ) -> Result<FlowSpec, Problem> {
        if receivers.len() > 1 && !matches!(alike.workload, Workload::Blocks(_)) {
            let problem = "several receivers get blocks in turn; expected workload = { block_bytes = 15000 }, or one \
                           receiver";
            return Err(Problem::at(span(&self.to).or(span(&self.receivers)).unwrap_or(self.span()), problem));
        }
        let mut start = alike.start;
        if let Some(step) = &self.start_step_s {
            start += **step * copy as u64;
        }
        if let Some(within) = self.start_within_s.as_ref().filter(|within| ***within > Duration::ZERO) {
            let share = Rng::stream(seed, &format!("start/{name}")).uniform();
            start += Duration::from_secs_f64(within.as_secs_f64() * share);
        }
        Ok(FlowSpec { name, start, receivers, ..alike.clone() })
    }

    /// The way of a dumbbell's pair.
    fn pair(&self, topology: &Topology, number: usize, pairs: usize) -> Result<Receiver, Problem> {
        if pairs == 0 {
            return Err(self.missing("from", "the node that sends"));
        }
        if number >= pairs {
            let problem = format!("the dumbbell has {pairs} pairs; expected dumbbell.pairs = {} or more", number + 1);
            return Err(self.wrong(problem));
        }
        let way = ways::there_and_back(topology, &format!("s{number}"), &format!("r{number}"));
        way.map_err(|problem| problem.at(self.span(), self.span()))
    }

    /// Whom a copy sends to, and over which links.
    fn ways(&self, topology: &Topology, number: usize) -> Result<Vec<Receiver>, Problem> {
        if let Some(receivers) = &self.receivers {
            if let Some(span) = span(&self.from).or(span(&self.to)) {
                return Err(Problem::at(span, "there are \"receivers\" already; expected either of them"));
            }
            if receivers.is_empty() {
                return Err(receivers.wrong("this names no receiver"));
            }
            return receivers.iter().map(|receiver| receiver.way(topology)).collect();
        }
        let Some(from) = &self.from else { return Err(self.missing("from", "the node that sends")) };
        let Some(to) = &self.to else {
            return Err(self.missing("to", "the node that receives, or a list of them"));
        };
        let sender = ways::node(from, topology, number)?;
        let way = |receiver: &Said<String>| {
            let receiver = ways::node(receiver, topology, number)?;
            let way = ways::there_and_back(topology, &sender, &receiver);
            way.map_err(|problem| problem.at(from.span(), to.span()))
        };
        match &**to {
            Each::All(receiver) => Ok(vec![way(&Said::new(receiver.clone(), to.span()))?]),
            Each::Each(receivers) if receivers.is_empty() => Err(to.wrong("this names no receiver")),
            Each::Each(receivers) => receivers.iter().map(way).collect(),
        }
    }
}

/// What is written of flows.
pub fn written(flows: &[FlowSpec], links: &[LinkSpec]) -> Sections<FlowKeys> {
    sections(flows.iter().map(|flow| FlowKeys {
        name: some(flow.name.clone()),
        count: None,
        first: None,
        controller: said(Controller { stack: flow.stack.clone(), entry: flow.controller }),
        parameters: Parameters::written(&flow.parameters),
        from: None,
        to: None,
        receivers: sections(flow.receivers.iter().map(|way| ways::written_receiver(way, links))),
        workload: some(workload::written(&flow.workload)),
        start_s: some(since_start(flow.start)),
        start_within_s: None,
        start_step_s: None,
        stop_s: flow.stop.map(|stop| said(since_start(stop))),
        initial_window_packets: None,
        initial_window_bytes: flow.initial_window.map(|window| said(window.get())),
        handshake: flow.handshake.then(|| said(true)),
        steered: flow.steered.then(|| said(true)),
    }))
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Time;

    use super::super::tests::{LEAST, assert_comes_back, names, read};
    use crate::flows::Stack;

    #[test]
    fn copies_have_their_number_in_their_names_and_nodes() {
        let flow = |more: &str| {
            format!("[star]\nhosts = 5\nrate = \"1 Mbit/s\"\ndelay_ms = 1\n[[flow]]\ncontroller = \"reno\"\n{more}")
        };
        let text =
            flow("name = \"f{i}\"\ncount = 3\nfirst = 1\nfrom = \"h{i}\"\nto = \"h0\"\nstart_s = 1\nstart_step_s = 10");
        let scenario = read(&text, &[]).unwrap();
        for (i, flow) in (1..).zip(&scenario.flows) {
            assert_eq!(flow.name, format!("f{i}"));
            assert_eq!(names(&scenario, &flow.receivers[0].there), [format!("h{i}-hub"), "hub-h0".to_owned()]);
            assert_eq!(flow.start, Time::from_secs_f64(1.0 + 10.0 * f64::from(i - 1)));
        }
        let text = flow("name = \"f\"\ncount = 2\nfrom = \"h1\"\nto = \"h0\"");
        assert!(read(&text, &[]).unwrap_err().contains("with {i} in place of each copy's number"));
    }

    #[test]
    fn the_kernels_congestion_control_has_the_one_of_its_name_for_a_stand_in() {
        let scenario = read(&LEAST.replace("\"reno\"", "\"kernel:cubic\""), &[]).unwrap();
        let flow = &scenario.flows[0];
        assert_eq!((&flow.stack, flow.controller.name), (&Stack::Kernel("cubic".to_owned()), "cubic"));
        assert_eq!(flow.controller_name(), "kernel:cubic");
        assert_comes_back(&scenario);
        let error = read(&LEAST.replace("\"reno\"", "\"kernel:cubik\""), &[]).unwrap_err();
        assert!(error.contains("did you mean \"cubic\"?"), "{error}");
        let error =
            read(&LEAST.replace("\"reno\"", "\"kernel:reno\"\nparameters.counting = \"acks\""), &[]).unwrap_err();
        assert!(error.contains("takes no parameters from here"), "{error}");
    }

    #[test]
    fn a_controller_under_quic_is_ours_and_takes_its_parameters() {
        let scenario = read(&LEAST.replace("\"reno\"", "\"quic:cubic\"\nparameters.hystart = true"), &[]).unwrap();
        let flow = &scenario.flows[0];
        assert_eq!((&flow.stack, flow.controller.name), (&Stack::Quic, "cubic"));
        assert_eq!(flow.controller_name(), "quic:cubic");
        assert_comes_back(&scenario);
    }

    #[test]
    fn a_table_of_rules_is_read_from_the_file_that_is_named() {
        let text = LEAST.replace("\"reno\"", "\"remy\"\nparameters = { table_file = \"no/such.dna\" }");
        let error = read(&text, &[]).unwrap_err();
        assert!(error.contains("no/such.dna") && error.contains("f.toml:6"), "{error}");
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("one.dna");
        // A tree that is one leaf: its box has no bounds of its own, its window grows by a packet.
        std::fs::write(&file, [0x1a, 0x03, 0xf8, 0x01, 0x02]).unwrap();
        let text = text.replace("no/such.dna", file.to_str().unwrap());
        let scenario = read(&text, &[]).unwrap();
        let rules = scenario.flows[0].parameters["rules"].as_array().unwrap();
        assert_eq!((rules.len(), rules[0]["increment"].as_float()), (1, Some(1.0)));
    }
}
