//! [Raiber 2010] figures 7.4, 7.5, 7.6 and 7.8: received bytes against the number of
//! peers, hops, the delay and the rate of each peer.

use anabranch_control::path::registry::{CONTROLLERS, Entry};

use super::parameter::{BANDWIDTH, Curves, DELAY, HOPS, PEERS, Parameter, received, vary};
use crate::{ExperimentError, Findings, Lab};
use anabranch_report::{Figure, Report};

/// Seeds of a full run and of a quick one. The thesis has one run a point, which shows one
/// set of positions.
const SEEDS: (u64, u64) = (5, 2);

/// Simulated seconds: 5 000 for what learns, without the first third (the thesis has
/// 10 000, 7.3.1), 600 for what does not, and for AIMD with consistent units, which settles in
/// seconds and sends a hundred times as much as arrives; a quick run is short in proportion to
/// what it costs.
fn seconds(lab: &Lab, entry: &Entry, cost: f64) -> u64 {
    let quick = (600.0 / cost.max(1.0)) as u64;
    match entry.name {
        "perfect" | "random" => lab.seconds(600, (quick / 10).max(30)),
        "aimd" => lab.seconds(300, 30),
        _ => lab.seconds(5_000, quick.max(200)),
    }
}

fn measure(lab: &Lab, parameter: Parameter, cost: fn(f64) -> f64) -> Result<Curves, ExperimentError> {
    let controllers: Vec<&'static Entry> = CONTROLLERS.iter().collect();
    let seeds = lab.seconds(SEEDS.0, SEEDS.1);
    vary(lab, parameter, &controllers, seeds, |entry, value| seconds(lab, entry, cost(value)))
}

fn findings(lab: &Lab, curves: &Curves, title: &str, sentence: &str) -> Findings {
    let mut rows = curves.received_rows(lab);
    let values = curves.values();
    let (first, last) = (values[0], values[values.len() - 1]);
    for (name, _) in &curves.curves {
        rows.push(lab.mean_row(name, "growth", "", curves.growth(name, received).values()));
        for (at, metric) in [(first, "share_of_perfect_first"), (last, "share_of_perfect_last")] {
            rows.push(lab.mean_row(name, metric, "", curves.ratio(name, "perfect", at).values()));
        }
        rows.push(lab.mean_row(name, "times_random_last", "", curves.ratio(name, "random", last).values()));
        let trend = curves.ratio(name, "perfect", last).over(&curves.ratio(name, "perfect", first));
        rows.push(lab.mean_row(name, "growth_of_share_of_perfect", "", trend.values()));
    }
    let report = Report::new(title).figures_side_by_side(vec![
        Figure::chart("Ours: means over the seeds with their 95 % intervals.", curves.received_chart()),
        Figure::quote("The thesis", sentence, title),
    ]);
    Findings { rows, report }
}

pub fn peers(lab: &Lab) -> Result<Findings, ExperimentError> {
    let curves = measure(lab, PEERS, |peers| peers / 10.0)?;
    let sentence = "With more peers the AIMD approach gets better and the Q-learning approach gets worse: less is \
                    learned about each peer, and one reaction to congestion throttles a smaller share of the rate.";
    Ok(findings(lab, &curves, "Raiber 2010, figure 7.4", sentence))
}

pub fn hops(lab: &Lab) -> Result<Findings, ExperimentError> {
    let curves = measure(lab, HOPS, |_| 1.0)?;
    let sentence = "Relative to the perfect controller, neither AIMD nor Q-learning loses with more hops: a timeout \
                    may be held against every relay of the path.";
    Ok(findings(lab, &curves, "Raiber 2010, figure 7.5", sentence))
}

pub fn delay(lab: &Lab) -> Result<Findings, ExperimentError> {
    let curves = measure(lab, DELAY, |_| 1.0)?;
    let sentence = "Q-learning is nearly unaffected by the delay. AIMD climbs more slowly the longer the round trip, \
                    and is barely better than random at 200 ms.";
    Ok(findings(lab, &curves, "Raiber 2010, figure 7.6", sentence))
}

pub fn bandwidth(lab: &Lab) -> Result<Findings, ExperimentError> {
    let curves = measure(lab, BANDWIDTH, |limit| limit / 400e3)?;
    let sentence = "Q-learning gains with the rate of the peers, for more is learned about each; AIMD cannot use what \
                    higher rates tell it.";
    Ok(findings(lab, &curves, "Raiber 2010, figure 7.8", sentence))
}
