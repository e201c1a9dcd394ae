//! [Raiber 2010] table 7.6: drops a second against peers, rate, hops and delay.

use super::parameter::{BANDWIDTH, DELAY, HOPS, PEERS, drops, vary};
use crate::{ExperimentError, Findings, Lab};
use anabranch_report::{Figure, Report};

/// Seeds of a full run and of a quick one.
const SEEDS: (u64, u64) = (5, 2);

pub fn run(lab: &Lab) -> Result<Findings, ExperimentError> {
    let learners = lab.learners()?;
    let mut rows = Vec::new();
    let mut figures = Vec::new();
    for (parameter, caption) in [
        (PEERS, "Against the number of peers."),
        (BANDWIDTH, "Against the rate of each peer."),
        (HOPS, "Against the number of hops."),
        (DELAY, "Against the delay, which is constant here."),
    ] {
        let curves = vary(lab, parameter, &learners, lab.seconds(SEEDS.0, SEEDS.1), |entry, _| match entry.name {
            // It settles in seconds, and sends a hundred times as much as arrives.
            "aimd" => lab.seconds(150, 45),
            _ => lab.seconds(3_000, 300),
        })?;
        rows.extend(curves.drop_rows(lab));
        for entry in &learners {
            let metric = format!("growth_of_drops[{}]", parameter.name);
            rows.push(lab.mean_row(entry.name, &metric, "", curves.growth(entry.name, drops).values()));
        }
        figures.push(Figure::chart(caption, curves.drops_chart()));
    }
    let second = figures.split_off(2);
    let report = Report::new("Raiber 2010, table 7.6")
        .paragraph(
            "The thesis: with many peers Q-learning causes many drops; AIMD has next to none in most scenarios, and \
             none at long delays.",
        )
        .figures_side_by_side(figures)
        .figures_side_by_side(second);
    Ok(Findings { rows, report })
}
