//! [Efthymiopoulos 2015] section 6: one sender's blocks to receivers in turn, alone under
//! changing delays and rates, and beside TCP.
//!
//! ```text
//! sender ---- upload, 4 Mbit/s, 20 ms ---- router ---- 2 to 22 ms ---- each receiver
//! ```

pub mod alone;
pub mod lemmas;
mod others;
mod run;
pub mod tcp;

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_sim::varying::{Between, Change, Course, Varying};

use super::{FlowLab, Row};
use anabranch_lab::flows::FlowScenario;

/// The scenario with each seed, its random laws written out.
fn with_seeds(lab: &FlowLab, full: u64, quick: u64) -> Vec<FlowScenario> {
    let seeds = lab.scenario.seed..lab.scenario.seed + lab.seconds(full, quick);
    seeds.map(|seed| written_out(&lab.with_seed(seed))).collect()
}

/// Every link's random law as the values that it gives with the scenario's seed, so that
/// they can be shown beside what was measured. A link and its way back share one law's
/// values: the paper's links have one latency.
fn written_out(scenario: &FlowScenario) -> FlowScenario {
    let mut scenario = scenario.clone();
    let (length, seed) = (scenario.length, scenario.seed);
    for link in &mut scenario.links {
        let there = link.name.strip_suffix("-back").unwrap_or(&link.name);
        link.delay = drawn(&link.delay, length, Rng::stream(seed, &format!("delay/{there}")));
        link.rate = link.rate.as_ref().map(|rate| drawn(rate, length, Rng::stream(seed, &format!("rate/{there}"))));
    }
    scenario
}

/// `course` with its values up to `length`, if they are random.
fn drawn<T: Between + PartialEq>(course: &Course<T>, length: Duration, rng: Rng) -> Course<T> {
    let Change::Uniform { every, .. } = course.change else { return course.clone() };
    let mut varying = Varying::new(course, rng);
    let first = varying.at(Time::ZERO);
    let mut changes = Vec::new();
    let mut at = Time::ZERO + every;
    while at < Time::ZERO + length {
        changes.push((at, varying.at(at)));
        at += every;
    }
    Course { first, change: Change::At(changes) }
}

/// What `course`, whose values are written out, is at `at`.
fn value<T: Copy>(course: &Course<T>, at: Time) -> T {
    let Change::At(changes) = &course.change else { return course.first };
    changes.iter().take_while(|(when, _)| *when <= at).last().map_or(course.first, |(_, value)| *value)
}

/// The highest of all seeds.
fn highest_row(lab: &FlowLab, subject: &str, metric: &str, unit: &str, of_seeds: &[f64]) -> Row {
    lab.row(subject, metric, unit, of_seeds.iter().copied().reduce(f64::max))
}

/// The lowest of all seeds.
fn lowest_row(lab: &FlowLab, subject: &str, metric: &str, unit: &str, of_seeds: &[f64]) -> Row {
    lab.row(subject, metric, unit, of_seeds.iter().copied().reduce(f64::min))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_law_is_written_out_as_it_would_be_drawn() {
        let every = Duration::SECOND * 10;
        let course = Course { first: 0.0, change: Change::Uniform { every, low: 2.0, high: 22.0 } };
        let rng = || Rng::stream(7, "law");
        let written = drawn(&course, Duration::SECOND * 95, rng());
        let mut varying = Varying::new(&course, rng());
        for tenth in 0..950 {
            let at = Time::from_secs_f64(f64::from(tenth) / 10.0);
            assert_eq!(value(&written, at), varying.at(at), "at {at}");
        }
        assert_eq!(drawn(&Course::constant(3.0), Duration::SECOND, rng()), Course::constant(3.0));
    }
}
