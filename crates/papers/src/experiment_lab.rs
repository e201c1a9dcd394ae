//! Where an experiment runs: its scenario, its length, all cores, progress and
//! interruption.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;

use anabranch_control::flow::registry as flow;
use anabranch_control::path::registry::{self as path, Build, CONTROLLERS, Entry, flow_controllers};
use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_lab::monitor::Monitor;
use anabranch_lab::onion::OnionMeasured;
use anabranch_lab::overlay::Measured;
use anabranch_lab::parallel::{self, Job, Progress};
use anabranch_lab::stream::{self, StreamMeasured};
use anabranch_scenario::file::{self as scenario_file, Override};
use anabranch_scenario::onion::OnionScenario;
use anabranch_scenario::onion_run::OnionRunScenario;
use anabranch_scenario::overlay::{Scenario, default_offered};
use anabranch_scenario::stream::StreamScenario;

use super::error::ExperimentError;
use super::expected::Expected;
use super::findings::Row;
use super::folder::Folder;
use super::loopback::{Arrived, FileOverRelays, Loopback, OnSockets};
use super::of_runs::{Estimate, OfRuns};
use super::packets::{self, Carrier, Medium};
use super::request::{Length, Request};

/// The controllers of [Raiber 2010], in its order.
const THESIS: [&str; 5] = ["q-learning", "aimd", "aimd-literal", "perfect", "random"];

/// One experiment's place to run in; `S` is its kind of scenario.
#[derive(Debug)]
pub struct Lab<S = Scenario> {
    /// The experiment's name.
    pub id: &'static str,
    /// The scenario beside the experiment, with the seed that was asked for.
    pub scenario: S,
    /// How long to run.
    pub length: Length,
    /// What the paper says.
    pub expected: Expected,
    /// Where packets are.
    pub medium: Medium,
    /// Whose machine sends there.
    carrier: Carrier,
    /// What is done so far.
    pub progress: Arc<Progress>,
    /// Names of controllers that were asked for instead of the paper's.
    asked: Vec<String>,
    /// Names of settings that were asked for; all if there is none.
    settings: Vec<String>,
    /// What sends files over sockets, if something does.
    pub loopback: Option<Arc<dyn Loopback>>,
    /// A folder of policies in place of the repository's.
    pub(crate) policies: Option<PathBuf>,
    /// The scenario's text and file, from which it is read again for another seed.
    text: (&'static str, String),
}

/// A place for flows over links.
pub type FlowLab = Lab<FlowScenario>;
/// A place for streams over their viewers.
pub type StreamLab = Lab<StreamScenario>;
/// A place for onion overlays that carry traffic.
pub type OnionLab = Lab<OnionRunScenario>;
/// A place for adversaries that watch an onion overlay.
pub type AttackLab = Lab<OnionScenario>;

/// How long a quick run of an onion overlay is, and from when on it counts.
const QUICK_ONION: [Duration; 2] = [Duration::from_millis(60_000), Duration::from_millis(30_000)];

impl<S> Lab<S> {
    /// The paper's length, or a quick one.
    pub fn seconds(&self, full: u64, quick: u64) -> u64 {
        match self.length {
            Length::Full => full,
            Length::Quick => quick,
        }
    }

    /// The one of the full and the quick form that is asked for; real packets take real time,
    /// and have forms of their own.
    pub fn form<T>(&self, simulated: (T, T), on_packets: (T, T)) -> T {
        let (full, quick) = if self.medium.is_real_form() { on_packets } else { simulated };
        match self.length {
            Length::Full => full,
            Length::Quick => quick,
        }
    }

    /// The values of a full run, or of a quick one.
    pub fn choose<'v, T>(&self, full: &'v [T], quick: &'v [T]) -> &'v [T] {
        match self.length {
            Length::Full => full,
            Length::Quick => quick,
        }
    }

    /// Whether `setting` is to be run.
    pub fn wants(&self, setting: &str) -> bool {
        self.settings.is_empty() || self.settings.iter().any(|name| name == setting)
    }

    /// A figure in which nothing is left to chance beside the paper's, judged: of runs without
    /// randomness, or about these runs and no others.
    pub fn row(&self, subject: &str, metric: &str, unit: &str, ours: Option<f64>) -> Row {
        self.expected.row(subject, metric, unit, ours)
    }

    /// The mean over independent runs beside the paper's, judged by its interval over them.
    pub fn mean_row(&self, subject: &str, metric: &str, unit: &str, of_runs: &[f64]) -> Row {
        let Estimate { mean, half_width } = OfRuns::new(of_runs.to_vec()).estimate();
        let row = self.expected.row_of_estimate(subject, metric, unit, Some(mean), half_width);
        let without = of_runs.iter().filter(|value| !value.is_finite()).count();
        match (without, of_runs.len()) {
            (0, 1) => row.with_caveat("no interval: one run"),
            (0, _) => row,
            (without, runs) => row.with_caveat(&format!("no figure in {without} of {runs} runs")),
        }
    }

    /// A count beside the claim that it is always 0, which one run refutes; the mean over runs
    /// with its interval is reported.
    pub fn never_row(&self, subject: &str, metric: &str, unit: &str, of_runs: &[f64]) -> Row {
        let most = of_runs.iter().copied().reduce(f64::max);
        let verdict = self.row(subject, metric, unit, most).verdict;
        Row { verdict, ..self.mean_row(subject, metric, unit, of_runs) }
    }

    /// For an experiment whose question leaves no choice of controllers.
    ///
    /// # Errors
    ///
    /// When others were asked for.
    pub fn no_other_controllers(&self) -> Result<(), ExperimentError> {
        if self.asked.is_empty() { Ok(()) } else { Err(ExperimentError::FixedControllers(self.id)) }
    }

    /// The flow controllers that were asked for, or else those of `shown`.
    ///
    /// # Errors
    ///
    /// When there is none of a name.
    pub fn flow_controllers(&self, shown: &[&str]) -> Result<Vec<&'static flow::Entry>, ExperimentError> {
        let asked: Vec<&str> = self.asked.iter().map(String::as_str).collect();
        if asked.contains(&"all") {
            return Ok(flow::CONTROLLERS.iter().filter(|entry| entry.needs().is_none()).collect());
        }
        let names = if asked.is_empty() { shown } else { &asked };
        names.iter().map(|name| flow::find(name).map_err(ExperimentError::from)).collect()
    }

    /// Sends `files` over sockets, one after the other; the results are in their order.
    ///
    /// # Errors
    ///
    /// What went wrong with one of them, or at an interruption.
    pub fn send_all(
        &self,
        loopback: &dyn Loopback,
        files: &[FileOverRelays],
    ) -> Result<Vec<Option<Arrived>>, ExperimentError> {
        let jobs: Vec<OnSockets<'_>> = files.iter().map(|file| OnSockets(loopback, file)).collect();
        self.run_whole(&jobs, Some(1))
    }

    /// Runs all jobs, on all cores if no number of threads is given.
    pub(crate) fn run_whole<J: Job>(
        &self,
        jobs: &[J],
        threads: Option<usize>,
    ) -> Result<Vec<J::Measured>, ExperimentError>
    where
        ExperimentError: From<J::Error>,
    {
        let outcomes = parallel::run_all(jobs, threads, &self.progress, |_, outcome| outcome)?;
        // One that was stopped is none.
        outcomes.into_iter().collect::<Option<Vec<_>>>().ok_or(ExperimentError::Interrupted)
    }
}

impl Lab<Scenario> {
    /// For an experiment with this folder, as it was asked for.
    ///
    /// # Errors
    ///
    /// When its files do not read.
    pub fn new(folder: &Folder, request: &Request) -> Result<Lab, ExperimentError> {
        let mut scenario = scenario_file::parse(folder.scenario, &folder.scenario_file(), &[])?;
        scenario.seed = request.seed.unwrap_or(scenario.seed);
        Lab::with_scenario(folder, Carrier::Kernel, request, scenario)
    }

    /// The experiment's scenario with another controller, its parameters at their defaults.
    pub fn with_controller(&self, controller: &'static Entry) -> Scenario {
        let mut scenario = self.scenario.clone();
        scenario.overlay.controller = controller;
        scenario.overlay.parameters = toml::Table::new();
        scenario.overlay.offered = default_offered(controller);
        scenario
    }

    /// The controllers that were asked for, or else those of the thesis; `all` means every registered
    /// one, and every flow controller as a rule for each peer.
    ///
    /// # Errors
    ///
    /// When there is none of a name.
    pub fn controllers(&self) -> Result<Vec<&'static Entry>, ExperimentError> {
        self.controllers_or(&THESIS)
    }

    /// The controllers that were asked for, or else those of `shown`.
    ///
    /// # Errors
    ///
    /// When there is none of a name.
    pub fn controllers_or(&self, shown: &[&str]) -> Result<Vec<&'static Entry>, ExperimentError> {
        if self.asked.is_empty() {
            return shown.iter().map(|name| path::find(name).map_err(ExperimentError::from)).collect();
        }
        if self.asked.iter().any(|name| name == "all") {
            let made = |entry: &&Entry| !matches!(entry.build, Build::Flow(flow) if flow.needs().is_some());
            return Ok(CONTROLLERS.iter().chain(flow_controllers()).filter(made).collect());
        }
        self.asked.iter().map(|name| path::find(name).map_err(ExperimentError::from)).collect()
    }

    /// Those of them that learn a rate for each peer.
    ///
    /// # Errors
    ///
    /// When there is none of a name.
    pub fn learners(&self) -> Result<Vec<&'static Entry>, ExperimentError> {
        let learns = |entry: &&Entry| !matches!(entry.build, Build::Omniscient) && entry.name != "random";
        Ok(self.controllers()?.into_iter().filter(learns).collect())
    }

    /// Runs each of `scenarios` with the same `seeds` seeds, the lab's first: each seed draws
    /// other positions, and with them other delays. The runs of a scenario are in the order of
    /// the seeds.
    ///
    /// # Errors
    ///
    /// As [`run_all`](Self::run_all).
    pub fn run_seeds(&self, scenarios: &[Scenario], seeds: u64) -> Result<Vec<Vec<Measured>>, ExperimentError> {
        let with_seeds = |scenario: &Scenario| {
            let scenario = scenario.clone();
            (0..seeds).map(move |i| Scenario { seed: scenario.seed + i, ..scenario.clone() })
        };
        let mut runs = self.run_all(&scenarios.iter().flat_map(with_seeds).collect::<Vec<Scenario>>())?.into_iter();
        Ok(scenarios.iter().map(|_| runs.by_ref().take(seeds as usize).collect()).collect())
    }

    /// Runs all of them on all cores; the results are in the order of the scenarios.
    ///
    /// # Errors
    ///
    /// When a controller refuses its parameters, or at an interruption.
    pub fn run_all(&self, scenarios: &[Scenario]) -> Result<Vec<Measured>, ExperimentError> {
        let measured = self.run_whole(scenarios, None)?;
        for (scenario, measured) in scenarios.iter().zip(&measured) {
            assert_eq!(scenario.overlay.controller.name, measured.controller, "another controller ran");
        }
        Ok(measured)
    }
}

impl Lab<FlowScenario> {
    /// For an experiment with this folder, as it was asked for; `carrier` sends where packets are real.
    ///
    /// # Errors
    ///
    /// When its files do not read.
    pub fn new_flows(folder: &Folder, carrier: Carrier, request: &Request) -> Result<FlowLab, ExperimentError> {
        let mut scenario = scenario_file::parse_flows(folder.scenario, &folder.scenario_file(), &[])?;
        scenario.seed = request.seed.unwrap_or(scenario.seed);
        Lab::with_scenario(folder, carrier, request, scenario)
    }

    /// The controllers that were asked for, or else those of the paper.
    ///
    /// # Errors
    ///
    /// When there is none of a name.
    pub fn controllers(&self, paper: &[&str]) -> Result<Vec<&'static flow::Entry>, ExperimentError> {
        self.flow_controllers(paper)
    }

    /// The controllers that were asked for beside those of `shown`, which the experiment is
    /// about and shows in any case; none if none were asked for.
    ///
    /// # Errors
    ///
    /// When there is none of a name.
    pub fn others(&self, shown: &[&str]) -> Result<Vec<&'static flow::Entry>, ExperimentError> {
        let asked = if self.asked.is_empty() { Vec::new() } else { self.controllers(&[])? };
        Ok(asked.into_iter().filter(|entry| !shown.contains(&entry.name)).collect())
    }

    /// The experiment's scenario with `seed`, which also decides when flows begin.
    pub fn with_seed(&self, seed: u64) -> FlowScenario {
        let (text, file) = &self.text;
        let seed = Override::new(format!("seed {seed}"), "run.seed", seed.to_string());
        scenario_file::parse_flows(text, file, &[seed]).expect("it was read before")
    }

    /// The experiment's scenario with `controller` for every flow, its parameters at their
    /// defaults, and `seed`.
    pub fn with_controller(&self, controller: &'static flow::Entry, seed: u64) -> FlowScenario {
        let mut scenario = self.with_seed(seed);
        for flow in &mut scenario.flows {
            flow.controller = controller;
            flow.parameters = toml::Table::new();
        }
        scenario
    }

    /// The scenario as it runs where packets are: on real ones, TCP is the kernel's or QUIC.
    pub fn as_carried(&self, mut scenario: FlowScenario) -> FlowScenario {
        scenario.flows.iter_mut().for_each(|flow| self.medium.adopt(self.carrier, flow));
        scenario
    }

    /// Who it is that a controller of this name stands for.
    pub fn name(&self, controller: &str) -> String {
        self.medium.name(self.carrier, controller)
    }

    /// Runs all of them on all cores, or on real packets as many at a time as the testbed
    /// makes; the results are in the order of the scenarios.
    ///
    /// # Errors
    ///
    /// When a controller refuses its parameters or misbehaves, or at an interruption.
    pub fn run_all(&self, scenarios: &[FlowScenario]) -> Result<Vec<FlowsMeasured>, ExperimentError> {
        if let Medium::RealPackets(testbed) = &self.medium {
            return packets::run_all(&**testbed, scenarios, &self.progress);
        }
        let measured = self.run_whole(scenarios, None)?;
        for (scenario, measured) in scenarios.iter().zip(&measured) {
            let asked = scenario.flows.iter().map(|flow| flow.controller.name);
            assert!(asked.eq(measured.flows.iter().map(|flow| &*flow.controller)), "another controller ran");
        }
        Ok(measured)
    }
}

impl Lab<StreamScenario> {
    /// For an experiment with this folder, as it was asked for.
    ///
    /// # Errors
    ///
    /// When its files do not read.
    pub fn new_streams(folder: &Folder, request: &Request) -> Result<StreamLab, ExperimentError> {
        let mut scenario = scenario_file::parse_stream(folder.scenario, &folder.scenario_file(), &[])?;
        scenario.seed = request.seed.unwrap_or(scenario.seed);
        Lab::with_scenario(folder, Carrier::Kernel, request, scenario)
    }

    /// The experiment's scenario, in a quick run for this many viewers, who come within three seconds, and twenty
    /// seconds long. The server's upload shrinks with the audience, to the stream twice at least.
    pub fn shortened(&self, clients: usize) -> StreamScenario {
        let mut scenario = self.scenario.clone();
        if self.length == Length::Quick {
            let share = clients as f64 / scenario.audience.clients as f64;
            let least = scenario.stream.bitrate.bytes_per_sec() * 2.0;
            let upload = (scenario.audience.server_upload.bytes_per_sec() * share).max(least);
            scenario.audience.server_upload = Rate::from_bytes_per_sec_f64(upload);
            scenario.audience.clients = clients;
            scenario.audience.arrival = Duration::from_millis(3000);
            scenario.duration = Duration::from_millis(20_000);
        }
        scenario
    }

    /// Runs each of `scenarios` with the same `seeds` seeds, the lab's first. The runs of a scenario are in the
    /// order of the seeds.
    ///
    /// # Errors
    ///
    /// When a run delivers nothing, or at an interruption.
    pub fn run_seeds(
        &self,
        scenarios: &[StreamScenario],
        seeds: u64,
    ) -> Result<Vec<Vec<StreamMeasured>>, ExperimentError> {
        self.run_jobs(scenarios, seeds, |scenario| scenario)
    }

    /// The same where it is asked whether anything is delivered, so that nothing is a result too.
    ///
    /// # Errors
    ///
    /// At an interruption.
    pub fn measure_seeds(
        &self,
        scenarios: &[StreamScenario],
        seeds: u64,
    ) -> Result<Vec<Vec<StreamMeasured>>, ExperimentError> {
        self.run_jobs(scenarios, seeds, Whatever)
    }

    fn run_jobs<J: Job<Measured = StreamMeasured>>(
        &self,
        scenarios: &[StreamScenario],
        seeds: u64,
        job: fn(StreamScenario) -> J,
    ) -> Result<Vec<Vec<StreamMeasured>>, ExperimentError>
    where
        ExperimentError: From<J::Error>,
    {
        let with_seeds = |scenario: &StreamScenario| {
            let scenario = scenario.clone();
            (0..seeds).map(move |i| job(StreamScenario { seed: scenario.seed + i, ..scenario.clone() }))
        };
        let jobs: Vec<J> = scenarios.iter().flat_map(with_seeds).collect();
        let mut runs = self.run_whole(&jobs, None)?.into_iter();
        Ok(scenarios.iter().map(|_| runs.by_ref().take(seeds as usize).collect()).collect())
    }
}

/// A stream whose run is a result even if it delivers nothing.
struct Whatever(StreamScenario);

impl Job for Whatever {
    type Measured = StreamMeasured;
    type Error = Infallible;

    fn seconds(&self) -> u64 {
        self.0.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<StreamMeasured, Infallible> {
        Ok(stream::measure(&self.0, monitor))
    }

    fn is_whole(&self, measured: &StreamMeasured) -> bool {
        self.0.is_whole(measured)
    }
}

impl Lab<OnionRunScenario> {
    /// For an experiment with this folder, as it was asked for.
    ///
    /// # Errors
    ///
    /// When its files do not read.
    pub fn new_onion(folder: &Folder, request: &Request) -> Result<OnionLab, ExperimentError> {
        let mut scenario = scenario_file::parse_onion_run(folder.scenario, &folder.scenario_file(), &[])?;
        scenario.seed = request.seed.unwrap_or(scenario.seed);
        Lab::with_scenario(folder, Carrier::Kernel, request, scenario)
    }

    /// The experiment's scenario, in a quick run as long as one is.
    pub fn shortened(&self) -> OnionRunScenario {
        let mut scenario = self.scenario.clone();
        if self.length == Length::Quick {
            [scenario.duration, scenario.warmup] = QUICK_ONION;
        }
        scenario
    }

    /// Runs each of `scenarios` with the same `seeds` seeds, the lab's first. The runs of a scenario are in the
    /// order of the seeds.
    ///
    /// # Errors
    ///
    /// When users cannot choose so, when a run delivers nothing, or at an interruption.
    pub fn run_seeds(
        &self,
        scenarios: &[OnionRunScenario],
        seeds: u64,
    ) -> Result<Vec<Vec<OnionMeasured>>, ExperimentError> {
        let with_seeds = |scenario: &OnionRunScenario| {
            let scenario = scenario.clone();
            (0..seeds).map(move |i| OnionRunScenario { seed: scenario.seed + i, ..scenario.clone() })
        };
        let jobs: Vec<OnionRunScenario> = scenarios.iter().flat_map(with_seeds).collect();
        let mut runs = self.run_whole(&jobs, None)?.into_iter();
        Ok(scenarios.iter().map(|_| runs.by_ref().take(seeds as usize).collect()).collect())
    }
}

impl Lab<OnionScenario> {
    /// For an experiment with this folder, as it was asked for.
    ///
    /// # Errors
    ///
    /// When its files do not read.
    pub fn new_attack(folder: &Folder, request: &Request) -> Result<AttackLab, ExperimentError> {
        let mut scenario = scenario_file::parse_onion(folder.scenario, &folder.scenario_file(), &[])?;
        scenario.seed = request.seed.unwrap_or(scenario.seed);
        Lab::with_scenario(folder, Carrier::Kernel, request, scenario)
    }
}

impl<S> Lab<S> {
    fn with_scenario(
        folder: &Folder,
        carrier: Carrier,
        request: &Request,
        scenario: S,
    ) -> Result<Lab<S>, ExperimentError> {
        Ok(Lab {
            id: folder.id,
            scenario,
            length: request.length,
            expected: folder.expected()?,
            medium: request.medium.clone(),
            carrier,
            progress: request.progress.clone(),
            asked: request.controllers.clone(),
            settings: request.settings.clone(),
            loopback: request.loopback.clone(),
            policies: request.policies.clone(),
            text: (folder.scenario, folder.scenario_file()),
        })
    }
}
