//! Who is compared, and where they come to lie in the throughput-delay plane.

use anabranch_control::flow::registry::find;

use super::{ExperimentError, FlowLab, length};
use crate::runs::OfRuns;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_scenario::flows::Workload;
use anabranch_stats::percentile;

/// A controller as it is compared.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its registered name.
    pub name: &'static str,
    /// What tells it from others of that name.
    pub variant: Option<&'static str>,
    /// Its parameters.
    pub parameters: toml::Table,
    /// Whether each transfer has a connection, and so a controller, of its own.
    pub anew: bool,
}

impl Contender {
    /// The controller of that name at its defaults, made anew for each transfer.
    pub fn named(name: &str) -> Result<Contender, ExperimentError> {
        Ok(Contender { name: find(name)?.name, variant: None, parameters: toml::Table::new(), anew: true })
    }

    /// `xavier` with these parameters. It keeps what it learned from transfer to transfer,
    /// and with it its window: a transfer of 100 kB has some 80 ACKs to learn from.
    pub fn xavier(variant: &'static str, parameters: &str) -> Contender {
        let parameters = parameters.parse().expect("written here");
        Contender { name: "xavier", variant: Some(variant), parameters, anew: false }
    }

    /// Name and variant.
    pub fn label(&self) -> String {
        match self.variant {
            Some(variant) if self.name == "xavier" || self.name == "remy" => format!("{} ({variant})", self.name),
            // Its variant keeps what it learned.
            None if self.name == "xavier-precursor" => "xavier-precursor (learns anew each time)".to_owned(),
            _ => self.name.to_owned(),
        }
    }
}

/// Those of `names` that are registered.
pub fn names<'n>(names: &[&'n str]) -> Vec<&'n str> {
    names.iter().copied().filter(|name| find(name).is_ok()).collect()
}

/// What a contender did, a point for each sender and run.
#[derive(Clone, Debug)]
pub struct Cloud {
    /// Who.
    pub contender: Contender,
    /// Queueing delay in ms and throughput in Mbit/s.
    pub points: Vec<(f64, f64)>,
    /// The medians of each run over its senders, in the order of the seeds: throughput and
    /// queueing delay.
    of_runs: Vec<(f64, f64)>,
    /// Packets declared lost, of those sent.
    pub loss_percent: f64,
}

impl Cloud {
    fn new(contender: &Contender, runs: &[FlowsMeasured]) -> Cloud {
        let (lost, sent) = runs
            .iter()
            .flat_map(|run| &run.flows)
            .fold((0, 0), |(lost, sent), flow| (lost + flow.packets_lost, sent + flow.packets_sent));
        Cloud {
            contender: contender.clone(),
            points: runs.iter().flat_map(points).collect(),
            of_runs: runs.iter().map(|run| medians(&points(run))).collect(),
            loss_percent: 100.0 * lost as f64 / sent as f64,
        }
    }

    /// The median over senders and runs in Mbit/s.
    pub fn throughput(&self) -> f64 {
        medians(&self.points).0
    }

    /// The median over senders and runs in ms.
    pub fn queueing(&self) -> f64 {
        medians(&self.points).1
    }

    /// Each run's median over its senders in Mbit/s.
    pub fn throughputs(&self) -> OfRuns {
        OfRuns::new(self.of_runs.iter().map(|run| run.0).collect())
    }

    /// Each run's median over its senders in ms.
    pub fn queueings(&self) -> OfRuns {
        OfRuns::new(self.of_runs.iter().map(|run| run.1).collect())
    }
}

/// Medians of throughput and queueing delay.
fn medians(points: &[(f64, f64)]) -> (f64, f64) {
    let median =
        |of: fn(&(f64, f64)) -> f64| percentile(&points.iter().map(of).collect::<Vec<f64>>(), 0.5).unwrap_or(f64::NAN);
    (median(|point| point.1), median(|point| point.0))
}

/// Each sender's queueing delay and throughput; those that sent nothing have none.
fn points(run: &FlowsMeasured) -> Vec<(f64, f64)> {
    let least = run.flows.iter().filter_map(|flow| flow.one_way.least_ms()).fold(f64::INFINITY, f64::min);
    let point = |flow: &anabranch_lab::flows::measured::FlowMeasured| {
        let on_s = flow.on_time.as_secs_f64();
        let queueing = flow.one_way.mean_ms()? - least;
        (on_s > 0.0).then(|| (queueing, flow.delivered_bytes as f64 * 8.0 / on_s / 1e6))
    };
    run.flows.iter().filter_map(point).collect()
}

/// Runs each in the experiment's scenario after `change`, with as many seeds as the report
/// has runs.
pub fn run(
    lab: &FlowLab,
    contenders: &[Contender],
    change: impl Fn(&mut FlowScenario),
) -> Result<Vec<Cloud>, ExperimentError> {
    run_often(lab, 10, contenders, change)
}

/// The same with `runs` seeds.
pub fn run_often(
    lab: &FlowLab,
    runs: u64,
    contenders: &[Contender],
    change: impl Fn(&mut FlowScenario),
) -> Result<Vec<Cloud>, ExperimentError> {
    let runs = lab.choose(&[runs], &[2])[0];
    let mut scenarios = Vec::new();
    for contender in contenders {
        for i in 0..runs {
            let mut scenario = lab.with_controller(find(contender.name)?, lab.scenario.seed + i);
            scenario.length = length(lab);
            for flow in &mut scenario.flows {
                flow.parameters = contender.parameters.clone();
                if let Workload::OnOff { new_connections, .. } = &mut flow.workload {
                    *new_connections = contender.anew;
                }
            }
            change(&mut scenario);
            scenarios.push(scenario);
        }
    }
    let measured = lab.run_all(&scenarios)?;
    let clouds = contenders.iter().zip(measured.chunks(runs as usize));
    Ok(clouds.map(|(contender, runs)| Cloud::new(contender, runs)).collect())
}
