//! [Raiber 2010] figures 7.4, 7.5, 7.6 and 7.8: received bytes against the number of
//! peers, hops, the delay and the rate of each peer.

use anabranch_control::path::registry::{CONTROLLERS, Entry};

use super::parameter::{BANDWIDTH, Curves, DELAY, HOPS, PEERS, Parameter, received, vary};
use super::{ExperimentError, Findings, Lab};
use anabranch_report::{Figure, Report};

/// Simulated seconds: 10 000 for what learns (7.3.1), 1 000 for what does not, and for
/// AIMD with consistent units, which settles in seconds and sends a hundred times as
/// much as arrives; a quick run is short in proportion to what it costs.
fn seconds(lab: &Lab, entry: &Entry, cost: f64) -> u64 {
    let quick = (1_500.0 / cost.max(1.0)) as u64;
    match entry.name {
        "perfect" | "random" => lab.seconds(1_000, (quick / 10).max(60)),
        "aimd" => lab.seconds(1_000, 60),
        _ => lab.seconds(10_000, quick.max(300)),
    }
}

fn measure(lab: &Lab, parameter: Parameter, cost: fn(f64) -> f64) -> Result<Curves, ExperimentError> {
    let controllers: Vec<&'static Entry> = CONTROLLERS.iter().collect();
    vary(lab, parameter, &controllers, |entry, value| seconds(lab, entry, cost(value)))
}

fn findings(lab: &Lab, curves: &Curves, title: &str, sentence: &str) -> Findings {
    let mut rows = curves.received_rows(lab);
    let values = curves.values();
    let (first, last) = (values[0], values[values.len() - 1]);
    for (name, _) in &curves.curves {
        rows.push(lab.row(name, "growth", "", curves.growth(name, received)));
        for (at, metric) in [(first, "share_of_perfect_first"), (last, "share_of_perfect_last")] {
            rows.push(lab.row(name, metric, "", curves.ratio(name, "perfect", at)));
        }
        rows.push(lab.row(name, "times_random_last", "", curves.ratio(name, "random", last)));
        let trend = || Some(curves.ratio(name, "perfect", last)? / curves.ratio(name, "perfect", first)?);
        rows.push(lab.row(name, "growth_of_share_of_perfect", "", trend()));
    }
    let report = Report::new(title).figures_side_by_side(vec![
        Figure::chart("Ours, with 95 % intervals where batches allow them.", curves.received_chart()),
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
