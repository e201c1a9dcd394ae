//! What runs of the demo gave, in figures.

use anabranch_control::time::Time;
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::summary::FlowsSummary;
use anabranch_scenario::policy::hosts;
use anabranch_stats::{jain_fairness, percentile};
use anabranch_testbed::Emulated;
use anabranch_testbed::service::{Believed, Coordination};
use serde::Serialize;

use super::decisions::Decisions;

/// The hosts, in the order of the scenario's.
pub const HOSTS: [&str; 3] = ["alpha", "beta", "gamma"];

/// Figures are counted from then on: hosts begin, and are found.
pub const SETTLE_S: f64 = 3.0;

/// What one of the runs gave.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// What the link transmitted of what it could, cross traffic included.
    pub utilisation: Option<f64>,
    /// How long a packet would have waited for the link: the median and what 95 % of the instants did not exceed.
    pub wait_ms_p50: f64,
    pub wait_ms_p95: f64,
    /// One way, of all flows' packets.
    pub one_way_ms_p50: Option<f64>,
    pub one_way_ms_p99: Option<f64>,
    pub lost_percent: Option<f64>,
    /// Data of each host's flows, while all three have flows.
    pub hosts_mbit_s: Vec<f64>,
    /// Jain's index of these.
    pub fairness: Option<f64>,
}

/// All runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Runs {
    pub controller: String,
    pub seconds: u64,
    pub seed: u64,
    /// How often coordinators decided.
    pub every_s: f64,
    /// What the rule took cross traffic to do.
    pub expected: &'static str,
    pub hosts: [&'static str; HOSTS.len()],
    pub on_their_own: Figures,
    /// By the rule.
    pub steered: Figures,
    /// Of the instants at which that coordinator was looked at, those at which all hosts with flows had a lease.
    pub leased_percent: f64,
    /// By a policy, if there is one.
    pub by_policy: Option<ByPolicy>,
    /// Why figures say nothing of these links; empty where they do.
    pub warnings: Vec<String>,
}

/// What the run gave in which a policy decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ByPolicy {
    /// Its file's name.
    pub policy: String,
    #[serde(flatten)]
    pub figures: Figures,
    /// As that of [`Runs`].
    pub leased_percent: f64,
    /// What it saw that no training had shown it, if it did.
    pub beyond: Option<String>,
    pub decisions: Decisions,
}

impl ByPolicy {
    /// Of that run, in which `policy` was to decide.
    pub fn of(scenario: &FlowScenario, policy: &str, emulated: &Emulated, coordination: &Coordination) -> ByPolicy {
        ByPolicy {
            policy: policy.to_owned(),
            figures: Figures::of(scenario, emulated),
            leased_percent: leased_percent(scenario, &coordination.believed),
            beyond: coordination.beyond.clone(),
            decisions: Decisions::of(&coordination.decided),
        }
    }
}

impl Figures {
    /// Of that run.
    pub fn of(scenario: &FlowScenario, emulated: &Emulated) -> Figures {
        let summary = FlowsSummary::of(scenario, &emulated.measured);
        let waits: Vec<f64> = counted(&emulated.measured.series.at, &emulated.measured.series.backlog_ms[0], SETTLE_S);
        let wait = |percent: f64| percentile(&waits, percent / 100.0).unwrap_or(f64::NAN);
        let all_from = scenario.flows.iter().map(|flow| flow.start.as_secs_f64()).fold(SETTLE_S, f64::max) + SETTLE_S;
        let hosts_mbit_s: Vec<f64> = of_hosts(scenario, emulated)
            .iter()
            .map(|rates| {
                let rates = counted(&emulated.measured.series.at, rates, all_from);
                rates.iter().sum::<f64>() / rates.len().max(1) as f64
            })
            .collect();
        Figures {
            utilisation: summary.links.first().and_then(|link| link.utilisation),
            wait_ms_p50: wait(50.0),
            wait_ms_p95: wait(95.0),
            one_way_ms_p50: summary.one_way.p50_ms,
            one_way_ms_p99: summary.one_way.p99_ms,
            lost_percent: summary.loss_percent,
            fairness: jain_fairness(&hosts_mbit_s),
            hosts_mbit_s,
        }
    }
}

/// Of a series, what was so from then on and is known.
fn counted(at: &[Time], values: &[f64], from_s: f64) -> Vec<f64> {
    let later = at.iter().zip(values).filter(|(at, value)| at.as_secs_f64() >= from_s && value.is_finite());
    later.map(|(_, value)| *value).collect()
}

/// What each host's flows deliver, row by row.
pub fn of_hosts(scenario: &FlowScenario, emulated: &Emulated) -> Vec<Vec<f64>> {
    let series = &emulated.measured.series;
    let sum = |flows: &Vec<usize>, row: usize| {
        let rates = flows.iter().filter_map(|flow| series.flows[*flow].goodput_mbit_s.get(row));
        rates.filter(|rate| rate.is_finite()).sum()
    };
    hosts(scenario, 0).iter().map(|flows| (0..series.at.len()).map(|row| sum(flows, row)).collect()).collect()
}

/// Of the instants after the beginning, the part at which each host with flows had a lease.
pub fn leased_percent(scenario: &FlowScenario, believed: &[Believed]) -> f64 {
    let starts: Vec<f64> = hosts(scenario, 0)
        .iter()
        .map(|flows| flows.iter().map(|flow| scenario.flows[*flow].start.as_secs_f64()).fold(f64::MAX, f64::min))
        .collect();
    let settled: Vec<&Believed> = believed.iter().filter(|one| one.at.as_secs_f64() >= SETTLE_S).collect();
    let is_leased = |one: &&&Believed| {
        let mut hosts = one.budgets.iter().zip(&starts);
        hosts.all(|(budget, start)| budget.is_some() || one.at.as_secs_f64() < start + 1.0)
    };
    100.0 * settled.iter().filter(is_leased).count() as f64 / settled.len().max(1) as f64
}

impl Runs {
    /// The runs' names and figures.
    fn named(&self) -> Vec<(String, &Figures)> {
        let alone = ("on their own".to_owned(), &self.on_their_own);
        match &self.by_policy {
            None => vec![alone, ("steered".to_owned(), &self.steered)],
            Some(by) => {
                vec![alone, ("by the rule".to_owned(), &self.steered), (format!("by {}", by.policy), &by.figures)]
            }
        }
    }

    /// The runs' names.
    pub fn names(&self) -> Vec<String> {
        self.named().into_iter().map(|(name, _)| name).collect()
    }

    /// For people.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let number = |value: f64, digits: usize| format!("{value:.digits$}");
        let maybe = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| number(value, digits));
        let row = |name: &str, of: &dyn Fn(&Figures) -> String| {
            [vec![name.to_owned()], self.named().iter().map(|(_, run)| of(run)).collect()].concat()
        };
        let mut rows = vec![[vec![String::new()], self.names()].concat()];
        rows.push(row("link used, %", &|run| maybe(run.utilisation.map(|part| part * 100.0), 1)));
        rows.push(row("wait for the link, ms, p50", &|run| number(run.wait_ms_p50, 1)));
        rows.push(row("wait for the link, ms, p95", &|run| number(run.wait_ms_p95, 1)));
        rows.push(row("one way, ms, p50", &|run| maybe(run.one_way_ms_p50, 1)));
        rows.push(row("one way, ms, p99", &|run| maybe(run.one_way_ms_p99, 1)));
        rows.push(row("lost, %", &|run| maybe(run.lost_percent, 2)));
        for (number_of, name) in HOSTS.iter().enumerate() {
            rows.push(row(&format!("{name}, Mbit/s"), &|run| maybe(run.hosts_mbit_s.get(number_of).copied(), 2)));
        }
        rows.push(row("Jain's index of hosts", &|run| maybe(run.fairness, 3)));
        rows
    }
}
