//! [LearningCC] table I: six settings of one dumbbell, and what a run of it shows.
//!
//! ```text
//! n0 --l1--.              .--l3-- n4      path 1: flows 1 and 2
//!          n2 ====l2==== n3
//! n1 --l4--'              '--l5-- n5      path 2: flows 3 and 4
//! ```

use anabranch_control::flow::registry::Entry;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::Capacity;
use anabranch_sim::varying::Course;

use crate::runs::OfRuns;
use crate::{ExperimentError, FlowLab};
use anabranch_lab::flows::FlowsMeasured;
use anabranch_scenario::flows::{FlowScenario, QueueSpec};
use anabranch_stats::jain_fairness;

/// Cases of table I.
const CASES: usize = 6;

/// The last case, from 0.
pub const LAST: usize = CASES - 1;

/// The cases that run, from 0: all, but on real packets in a quick run only the first, where
/// all rates and delays are least, and the last, of which the letter tells most.
pub fn cases(lab: &FlowLab) -> &'static [usize] {
    const ALL: &[usize] = &[0, 1, 2, 3, 4, LAST];
    lab.form((ALL, ALL), (ALL, &[0, LAST]))
}

/// A link of table I: rate in Mbit/s, propagation one way and queue in ms.
type Link = (u64, u64, u64);

/// l1 to l5 of each case.
const TABLE: [[Link; 5]; CASES] = [
    [(100, 10, 60), (5, 10, 60), (100, 10, 60), (100, 10, 60), (100, 10, 60)],
    [(100, 10, 120), (5, 10, 120), (100, 10, 120), (100, 20, 120), (100, 10, 120)],
    [(100, 30, 100), (6, 10, 100), (100, 10, 100), (100, 20, 100), (100, 20, 100)],
    [(100, 10, 150), (6, 10, 150), (100, 10, 150), (100, 20, 150), (100, 20, 150)],
    [(100, 5, 90), (8, 10, 90), (100, 5, 90), (100, 15, 90), (100, 5, 90)],
    [(100, 20, 120), (8, 20, 120), (100, 20, 120), (100, 20, 120), (100, 20, 120)],
];

/// What is run, with several seeds.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A case of table I, from 0.
    pub case: usize,
    /// Who sends flows 1 and 3.
    pub odd: (&'static Entry, toml::Table),
    /// Who sends flows 2 and 4.
    pub even: (&'static Entry, toml::Table),
    /// Probability that the bottleneck loses a packet.
    pub loss: f64,
    /// How many packets an ACK answers, if not as many as the scenario says.
    pub ack_every: Option<u32>,
}

impl Plan {
    /// One controller for all four flows.
    pub fn all(case: usize, controller: &'static Entry, parameters: &toml::Table, loss: f64) -> Plan {
        let sender = (controller, parameters.clone());
        Plan { case, odd: sender.clone(), even: sender, loss, ack_every: None }
    }
}

/// What the runs of a plan show, from [`START_UP_S`] on.
#[derive(Clone, Debug)]
pub struct Shown {
    /// Mean one-way delay of the two flows of path 1, ms.
    pub one_way_ms: OfRuns,
    /// Jain's index over the four flows' throughput (12).
    pub jain: OfRuns,
    /// Flow 1's throughput over flow 2's (14).
    pub ratio: OfRuns,
    /// Received data with its headers over the bottleneck's capacity (15).
    pub utilisation: OfRuns,
    /// Share of packets that found the bottleneck's queue full, over the whole run.
    pub dropped: OfRuns,
}

/// Nothing is counted before, in seconds: the letter is about flows that have started, and
/// `anabranch validate` leaves out as much...
const START_UP_S: u64 = 20;

/// ...but of a short run no more than one part of this many.
const LONGEST_START_UP: u64 = 3;

/// From when on a run of `seconds` is counted.
fn counted_from(seconds: u64) -> u64 {
    START_UP_S.min(seconds / LONGEST_START_UP)
}

/// Runs each of `plans` with `seeds` seeds for `seconds`.
pub fn run(lab: &FlowLab, plans: &[Plan], seeds: u64, seconds: u64) -> Result<Vec<Shown>, ExperimentError> {
    let mut scenarios = Vec::new();
    for plan in plans {
        for seed in 0..seeds {
            scenarios.push(lab.as_carried(scenario(lab.with_seed(lab.scenario.seed + seed), plan, seconds)));
        }
    }
    let measured = lab.run_all(&scenarios)?;
    let runs = measured.chunks(seeds as usize).zip(scenarios.chunks(seeds as usize));
    Ok(runs.map(|(measured, scenarios)| shown(measured, &scenarios[0])).collect())
}

/// The scenario, which is case 1, as `plan` has it.
fn scenario(mut scenario: FlowScenario, plan: &Plan, seconds: u64) -> FlowScenario {
    scenario.length = Duration::SECOND * seconds;
    let start_up = Duration::SECOND * counted_from(seconds);
    scenario.goodput_from = Time::ZERO + start_up;
    // The first row is the start-up, which delays leave out by it.
    scenario.sample_every = Some(start_up);
    scenario.packets.ack_policy.every = plan.ack_every.unwrap_or(scenario.packets.ack_policy.every);
    let [l1, l2, l3, l4, l5] = TABLE[plan.case];
    for link in &mut scenario.links {
        let (rate, delay, queue) = match link.name.as_str() {
            "bottleneck" | "bottleneck-back" => l2,
            "s0-left" | "left-s0" | "s1-left" | "left-s1" => l1,
            "right-r0" | "r0-right" | "right-r1" | "r1-right" => l3,
            "s2-left" | "left-s2" | "s3-left" | "left-s3" => l4,
            _ => l5,
        };
        let rate = Rate::from_bits_per_sec(rate * 1_000_000);
        link.rate = Some(Course::constant(rate));
        link.delay = Course::constant(Duration::from_millis(delay));
        // q = B Qdelay (IV)
        link.queue = QueueSpec::DropTail(Capacity::Bytes((rate * Duration::from_millis(queue)).get()));
        if link.name == "bottleneck" && plan.loss > 0.0 {
            link.loss = LossModel::Random(Course::constant(plan.loss));
        }
    }
    for (i, flow) in scenario.flows.iter_mut().enumerate() {
        let (controller, parameters) = if i % 2 == 0 { &plan.odd } else { &plan.even };
        flow.controller = controller;
        flow.parameters = parameters.clone();
    }
    scenario
}

fn shown(measured: &[FlowsMeasured], scenario: &FlowScenario) -> Shown {
    let over = |value: &dyn Fn(&FlowsMeasured) -> f64| OfRuns::new(measured.iter().map(value).collect());
    let counted = |run: &FlowsMeasured| run.length.as_secs_f64() - scenario.goodput_from.as_secs_f64();
    let throughput = |run: &FlowsMeasured| -> Vec<f64> {
        run.flows.iter().map(|flow| flow.goodput_bytes as f64 / counted(run)).collect()
    };
    let data = scenario.packets.data.get() as f64;
    let wire = (scenario.packets.data + scenario.packets.header).get() as f64;
    let capacity = scenario.links[0].rate.as_ref().map_or(f64::NAN, |rate| rate.first.bytes_per_sec());
    Shown {
        one_way_ms: over(&|run| (one_way_ms(run, 0) + one_way_ms(run, 1)) / 2.0),
        jain: over(&|run| jain_fairness(&throughput(run)).unwrap_or(f64::NAN)),
        ratio: over(&|run| throughput(run)[0] / throughput(run)[1]),
        // Bulk flows send full packets.
        utilisation: over(&|run| throughput(run).iter().sum::<f64>() * wire / data / capacity),
        dropped: over(&|run| {
            let count = run.links[0].count;
            count.dropped as f64 / (count.dropped + count.packets).max(1) as f64
        }),
    }
}

/// The mean delay of a flow's packets after the first row, each row's weighed by what it
/// delivered.
fn one_way_ms(run: &FlowsMeasured, flow: usize) -> f64 {
    let series = &run.series.flows[flow];
    let rows = series.one_way_ms.iter().zip(&series.goodput_mbit_s).skip(1);
    let (sum, weight) = rows
        .filter(|(delay, _)| delay.is_finite())
        .fold((0.0, 0.0), |(sum, weight), (delay, delivered)| (sum + delay * delivered, weight + delivered));
    sum / weight
}

/// The names of the cases in charts.
pub fn names(cases: &[usize]) -> Vec<String> {
    cases.iter().map(|case| format!("case {}", case + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_leaves_out_as_much_as_validate_and_a_short_one_a_third() {
        assert_eq!([300, 60, 40, 15].map(counted_from), [20, 20, 13, 5]);
    }
    /// A quarter of a minute, of which 5 s are the start-up: the same run with a row for each second says what is after it.
    #[test]
    fn the_start_up_of_flows_is_in_no_figure() {
        const SECONDS: u64 = 15;
        let file = "experiments/learningcc-fig-2/scenario.toml";
        let text = include_str!("../../../../experiments/learningcc-fig-2/scenario.toml");
        let base = anabranch_scenario::file::parse_flows(text, file, &[]).unwrap();
        let plan = Plan::all(0, anabranch_control::flow::registry::find("cubic").unwrap(), &toml::Table::new(), 0.0);
        let run = |scenario: &FlowScenario| anabranch_lab::flows::run(scenario, &()).unwrap();
        let counted = scenario(base, &plan, SECONDS);
        let shown = shown(&[run(&counted)], &counted);

        let each_second = run(&FlowScenario { sample_every: Some(Duration::SECOND), ..counted.clone() });
        let (header, data) = (counted.packets.header.get() as f64, counted.packets.data.get() as f64);
        let from = |second: usize| {
            let flows = || each_second.series.flows.iter();
            let rows = SECONDS as usize - second;
            let bits: f64 = flows().flat_map(|flow| &flow.goodput_mbit_s[second..]).sum::<f64>() / rows as f64 * 1e6;
            let delay = |flow: &anabranch_lab::flows::measured::FlowSeries| {
                let rows = flow.one_way_ms[second..].iter().zip(&flow.goodput_mbit_s[second..]);
                let rows = rows.filter(|(delay, _)| delay.is_finite());
                let (sum, weight) =
                    rows.fold((0.0, 0.0), |(sum, weight), (delay, mbit)| (sum + delay * mbit, weight + mbit));
                sum / weight
            };
            let utilisation = bits * (data + header) / data / 5e6;
            (utilisation, flows().take(2).map(delay).sum::<f64>() / 2.0)
        };
        let (utilisation, one_way_ms) = from(counted_from(SECONDS) as usize);
        let near = |ours: f64, wanted: f64, within: f64| (ours / wanted - 1.0).abs() < within;
        assert!(near(shown.utilisation.mean(), utilisation, 1e-9), "{} and {utilisation}", shown.utilisation.mean());
        // A row's packets and its bytes are not quite of the same second.
        assert!(near(shown.one_way_ms.mean(), one_way_ms, 0.002), "{} and {one_way_ms}", shown.one_way_ms.mean());
        let (with_start_up, delay_with_it) = from(0);
        assert!(!near(utilisation, with_start_up, 0.01), "{utilisation} and {with_start_up} with the start-up");
        assert!(!near(one_way_ms, delay_with_it, 0.01), "{one_way_ms} and {delay_with_it} with the start-up");
    }
}
