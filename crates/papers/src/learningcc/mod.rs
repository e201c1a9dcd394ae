//! [LearningCC] figures 2 to 6 and the fluid model.
//!
//! The letter compares with Vivace. Its authors' code runs another sender of the PCC family
//! under that name, `allegro-quic` here, so both are shown.

mod cases;
mod fluid;

use anabranch_control::flow::registry::{self, Entry};

use self::cases::{LAST, Plan, Shown, cases, names};
use super::runs::{self, Estimate, OfRuns};
use super::{ExperimentError, Findings, FlowLab, Row};
use anabranch_report::{Axis, BarChart, BarSeries, Cell, Figure, Report, Series, Table, XyChart};

pub use fluid::run as fluid;

/// Who is compared.
const CONTROLLERS: &[&str] = &["reno", "cubic", "vivace", "allegro-quic", "learningcc"];
/// Who of them runs on real packets in a quick run.
const CONTROLLERS_QUICK: &[&str] = &["reno", "cubic", "learningcc"];
/// Who is set against loss-based senders.
const LEARNERS: &[&str] = &["learningcc", "vivace", "allegro-quic"];
/// Who of them runs on real packets in a quick run.
const LEARNERS_QUICK: &[&str] = &["learningcc"];
/// What the letter's "Vivace" is.
const VIVACES: &[&str] = &["vivace", "allegro-quic"];
/// Random losses of IV-B.
const LOSSES: [f64; 9] = [0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.045, 0.05];

/// Digits behind the point in such a table.
const TABLE_DIGITS: usize = 3;

/// Seeds and seconds of each point: the letter has 300 s and one run. On real packets a full
/// run of a figure takes two hours so, or a quarter of one with eight at a time; intervals of
/// two seeds say nothing.
fn size(lab: &FlowLab) -> (u64, u64) {
    lab.form(((10, 300), (2, 60)), ((4, 40), (3, 15)))
}

/// A row of an estimate, judged by its interval.
fn row(lab: &FlowLab, subject: &str, metric: &str, unit: &str, ours: Estimate) -> Row {
    lab.expected.row_of_estimate(subject, metric, unit, Some(ours.mean), ours.half_width)
}

/// What each controller shows in each case when all four flows are its own.
struct Own {
    cases: &'static [usize],
    subjects: Vec<String>,
    shown: Vec<Vec<Shown>>,
}

/// A controller, and what it is run with: a variant has its parameters in its name.
struct Subject {
    name: String,
    entry: &'static Entry,
    parameters: toml::Table,
}

fn subjects(lab: &FlowLab, variants: &[(&str, &str)]) -> Result<Vec<Subject>, ExperimentError> {
    let mut subjects: Vec<Subject> = lab
        .controllers(lab.form((CONTROLLERS, CONTROLLERS), (CONTROLLERS, CONTROLLERS_QUICK)))?
        .into_iter()
        .map(|entry| Subject { name: entry.name.to_owned(), entry, parameters: toml::Table::new() })
        .collect();
    // They explain what is seen in the simulator.
    let variants = if lab.medium.is_real_form() { &[] } else { variants };
    for (name, parameters) in variants {
        let table = parameters.parse().expect("an experiment's own parameters");
        let entry = registry::find(name)?;
        subjects.push(Subject { name: format!("{name}[{parameters}]"), entry, parameters: table });
    }
    Ok(subjects)
}

impl Own {
    fn run(lab: &FlowLab, loss: f64, variants: &[(&str, &str)]) -> Result<Own, ExperimentError> {
        let subjects = subjects(lab, variants)?;
        let cases = cases(lab);
        let plans: Vec<Plan> = subjects
            .iter()
            .flat_map(|subject| cases.iter().map(|&case| Plan::all(case, subject.entry, &subject.parameters, loss)))
            .collect();
        let (seeds, seconds) = size(lab);
        let shown = cases::run(lab, &plans, seeds, seconds)?;
        Ok(Own {
            cases,
            subjects: subjects.into_iter().map(|subject| subject.name).collect(),
            shown: shown.chunks(cases.len()).map(<[Shown]>::to_vec).collect(),
        })
    }

    fn of(&self, subject: &str) -> Option<&[Shown]> {
        let place = self.subjects.iter().position(|name| name == subject)?;
        Some(&self.shown[place])
    }

    /// In each case, `f` of the values of both subjects with the same seed.
    fn pairs(&self, one: &str, other: &str, value: fn(&Shown) -> &OfRuns, f: fn(f64, f64) -> f64) -> Vec<OfRuns> {
        let pairs = self.of(one).into_iter().flatten().zip(self.of(other).into_iter().flatten());
        pairs.map(|(one, other)| value(one).with(value(other), f)).collect()
    }

    /// A row for each subject and case.
    fn rows(&self, lab: &FlowLab, metric: &str, unit: &str, value: fn(&Shown) -> &OfRuns) -> Vec<Row> {
        let mut rows = Vec::new();
        for (name, shown) in self.subjects.iter().zip(&self.shown) {
            for (case, shown) in self.cases.iter().zip(shown) {
                rows.push(row(lab, name, &format!("{metric}_case_{}", case + 1), unit, value(shown).estimate()));
            }
        }
        rows
    }

    /// Bars of every case, or a table where there are too many subjects to tell bars apart;
    /// `limit` is a line that none can exceed, and its name.
    fn show(
        &self,
        report: Report,
        caption: &str,
        axis: Axis,
        limit: Option<(&str, f64)>,
        value: fn(&Shown) -> &OfRuns,
    ) -> Report {
        if self.subjects.len() > BarChart::MOST_SERIES {
            return report.table(self.table(caption, value));
        }
        let mut chart = BarChart::new("Each case", axis, names(self.cases));
        for (name, shown) in self.subjects.iter().zip(&self.shown) {
            chart = chart.series(bars(name, shown, value));
        }
        if let Some((name, at)) = limit {
            chart = chart.reference(name, at);
        }
        report.figure(Figure::chart(caption, chart))
    }

    /// A row for each subject, the highest mean over all cases first.
    fn table(&self, caption: &str, value: fn(&Shown) -> &OfRuns) -> Table {
        let mean = |shown: &[Shown]| {
            anabranch_stats::mean(&shown.iter().map(|shown| value(shown).mean()).collect::<Vec<f64>>())
        };
        let mut subjects: Vec<(&String, &Vec<Shown>)> = self.subjects.iter().zip(&self.shown).collect();
        subjects
            .sort_by(|(_, one), (_, other)| mean(other).unwrap_or(f64::NAN).total_cmp(&mean(one).unwrap_or(f64::NAN)));
        let headers = ["controller".to_owned()].into_iter().chain(names(self.cases)).chain(["mean".to_owned()]);
        subjects.into_iter().fold(Table::new(caption, headers), |table, (name, shown)| {
            let cells = shown.iter().map(|shown| Cell::number(value(shown).mean(), TABLE_DIGITS));
            let last = Cell::number(mean(shown).unwrap_or(f64::NAN), TABLE_DIGITS);
            table.row([Cell::text(name)].into_iter().chain(cells).chain([last]))
        })
    }
}

fn bars(name: &str, shown: &[Shown], value: fn(&Shown) -> &OfRuns) -> BarSeries {
    let estimates: Vec<Estimate> = shown.iter().map(|shown| value(shown).estimate()).collect();
    let half_widths = estimates.iter().map(|estimate| estimate.half_width.unwrap_or(0.0)).collect();
    BarSeries::new(name, estimates.iter().map(|estimate| Some(estimate.mean)).collect()).intervals(half_widths)
}

/// Figure 2: mean one-way delay of path 1.
pub fn delay(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    // What lengthens Vivace's queue: steps whose bound grows, judged over a few packets.
    let own = Own::run(
        lab,
        0.0,
        &[
            ("vivace", "boundary_step = 0.0001"),
            ("vivace", "epsilon = 0.1"),
            ("allegro-quic", "interval_packets = 50.0"),
        ],
    )?;
    let value: fn(&Shown) -> &OfRuns = |shown| &shown.one_way_ms;
    let mut rows = own.rows(lab, "one_way_ms", "ms", value);
    rows.extend(own.rows(lab, "dropped", "", |shown| &shown.dropped));
    let ratio = |one, other| own.pairs(one, other, value, |one, other| one / other);
    for other in ["reno", "cubic"] {
        let metric = format!("highest_one_way_over_{other}");
        rows.push(runs::highest(lab, "learningcc", &metric, "", &ratio("learningcc", other)));
    }
    for name in own.subjects.iter().filter(|name| VIVACES.iter().any(|vivace| name.starts_with(vivace))) {
        rows.push(runs::highest(lab, name, "highest_one_way_over_learningcc", "", &ratio(name, "learningcc")));
    }
    let sentence = "LearningCC has a lower delay than Reno and Cubic; Vivace has the lowest.";
    let axis = Axis::new("mean one-way delay", "ms").from_zero();
    let report = own
        .show(Report::new("LearningCC, figure 2"), "Mean one-way delay of flows 1 and 2, ms.", axis, None, value)
        .figure(Figure::quote("The letter", sentence, "section IV"));
    Ok(Findings { rows, report })
}

/// Figure 3: Jain's index.
pub fn fairness(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    // Whether the arms, or the delay threshold, part flows of different round trips.
    let own = Own::run(lab, 0.0, &[("learningcc", "theta = 1.0"), ("learningcc", "actions = [3.0]")])?;
    let value: fn(&Shown) -> &OfRuns = |shown| &shown.jain;
    let mut rows = own.rows(lab, "jain", "", value);
    for one in ["learningcc", "reno"] {
        for other in ["cubic", "vivace", "allegro-quic"] {
            let less = own.pairs(one, other, value, |one, other| one - other);
            rows.push(runs::average(lab, one, &format!("mean_jain_less_{other}"), "", &less));
        }
    }
    let axis = Axis::new("Jain's index", "").from_zero();
    let caption = "Jain's index over the throughput of four flows under one controller.";
    let report = own.show(Report::new("LearningCC, figure 3"), caption, axis, None, value).figure(Figure::quote(
        "The letter",
        "LearningCC and Reno are fairer than the others.",
        "section IV",
    ));
    Ok(Findings { rows, report })
}

/// Figure 4: a learner, or any controller that is asked for, and a loss-based sender on
/// each path.
pub fn ratio(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let mut against = Vec::new();
    let learners = lab.form((LEARNERS, LEARNERS), (LEARNERS, LEARNERS_QUICK));
    for loss_based in ["reno", "cubic"] {
        for learner in lab.controllers(learners)? {
            against.push((learner.name, "", loss_based, None));
        }
    }
    // What decides between LearningCC and Reno.
    if !lab.medium.is_real_form() {
        for parameters in ["theta = 1.0", "beta = 1.0", "actions = [5.0]"] {
            against.push(("learningcc", parameters, "reno", None));
        }
        against.push(("learningcc", "", "reno", Some(1)));
    }
    let cases = cases(lab);
    let mut plans = Vec::new();
    for (learner, parameters, loss_based, ack_every) in &against {
        let odd = (registry::find(learner)?, parameters.parse().expect("an experiment's own parameters"));
        let even = (registry::find(loss_based)?, toml::Table::new());
        let plan = |case| Plan { case, odd: odd.clone(), even: even.clone(), loss: 0.0, ack_every: *ack_every };
        plans.extend(cases.iter().map(|&case| plan(case)));
    }
    let (seeds, seconds) = size(lab);
    let shown = cases::run(lab, &plans, seeds, seconds)?;
    let mut rows = Vec::new();
    let mut charts = vec![];
    let mut tables = vec![];
    for loss_based in ["reno", "cubic"] {
        let title = format!("Against {loss_based}");
        let mut own = Own { cases, subjects: Vec::new(), shown: Vec::new() };
        let mut chart = BarChart::new(title, Axis::new("throughput over that of the other", ""), names(cases));
        for ((learner, parameters, other, ack_every), shown) in against.iter().zip(shown.chunks(cases.len())) {
            if *other != loss_based {
                continue;
            }
            let variant = match (parameters.is_empty(), ack_every) {
                (true, None) => String::new(),
                (true, Some(every)) => format!("[ack_every = {every}]"),
                _ => format!("[{parameters}]"),
            };
            let name = format!("{learner}{variant}");
            for (case, shown) in cases.iter().zip(shown) {
                rows.push(row(
                    lab,
                    &name,
                    &format!("ratio_against_{other}_case_{}", case + 1),
                    "",
                    shown.ratio.estimate(),
                ));
            }
            let ratios: Vec<OfRuns> = shown.iter().map(|shown| shown.ratio.clone()).collect();
            rows.push(runs::average(lab, &name, &format!("mean_ratio_against_{other}"), "", &ratios));
            rows.push(runs::highest(lab, &name, &format!("highest_ratio_against_{other}"), "", &ratios));
            if variant.is_empty() {
                chart = chart.series(bars(&name, shown, |shown| &shown.ratio));
            }
            own.subjects.push(name);
            own.shown.push(shown.to_vec());
        }
        let caption = format!("Flow 1 over flow 2, which {loss_based} sends.");
        if own.subjects.len() > BarChart::MOST_SERIES {
            tables.push(own.table(&caption, |shown| &shown.ratio));
        } else {
            charts.push(Figure::chart(caption, chart.reference("equal", 1.0)));
        }
    }
    let sentence = "LearningCC gets slightly more than Reno and more than Cubic; Vivace is nearly starved by both.";
    let mut report = Report::new("LearningCC, figure 4");
    if !charts.is_empty() {
        report = report.figures_side_by_side(charts);
    }
    report = tables.into_iter().fold(report, Report::table);
    let report = report.figure(Figure::quote("The letter", sentence, "section IV-A"));
    Ok(Findings { rows, report })
}

/// Figures 5 and 6: utilisation under random loss.
fn utilisation(lab: &FlowLab, loss: f64, title: &str, sentence: &str) -> Result<Findings, ExperimentError> {
    // What holds LearningCC where it is below the letter's 90 %.
    let variants = [("learningcc", "actions = [5.0]"), ("learningcc", "theta = 1.0"), ("learningcc", "beta = 1.0")];
    let own = Own::run(lab, loss, &variants)?;
    let value: fn(&Shown) -> &OfRuns = |shown| &shown.utilisation;
    let mut rows = own.rows(lab, "utilisation", "", value);
    let of_each: Vec<OfRuns> =
        own.of("learningcc").into_iter().flatten().map(|shown| shown.utilisation.clone()).collect();
    rows.push(runs::lowest(lab, "learningcc", "lowest_utilisation", "", &of_each));
    for other in VIVACES {
        let ratio = own.pairs("learningcc", other, value, |one, other| one / other);
        rows.push(runs::lowest(lab, "learningcc", &format!("lowest_utilisation_over_{other}"), "", &ratio));
    }
    let (lines, over_loss) = over_loss(lab, &own)?;
    rows.extend(lines);
    let axis = Axis::new("utilisation of the bottleneck", "").from_zero();
    let caption = format!("Received packets over the bottleneck's capacity, {:.1} % random loss.", loss * 100.0);
    let limit = Some(("what is not lost", 1.0 - loss));
    let mut report = own.show(Report::new(title), &caption, axis, limit, value);
    if let Some(chart) = over_loss {
        report = report.small_multiples("Case 6, over the rate of random loss.", chart);
    }
    let report = report.figure(Figure::quote("The letter", sentence, "section IV-B"));
    Ok(Findings { rows, report })
}

/// Case 6 over the letter's rates of random loss; nothing in a quick run on real packets.
fn over_loss(lab: &FlowLab, own: &Own) -> Result<(Vec<Row>, Option<XyChart>), ExperimentError> {
    let few = &[0.01, 0.03, 0.05][..];
    let losses = lab.form((&LOSSES[..], few), (few, &[]));
    if losses.is_empty() {
        return Ok((Vec::new(), None));
    }
    let subjects = subjects(lab, &[])?;
    let plans: Vec<Plan> = subjects
        .iter()
        .flat_map(|subject| losses.iter().map(|loss| Plan::all(LAST, subject.entry, &subject.parameters, *loss)))
        .collect();
    let (seeds, seconds) = size(lab);
    let shown = cases::run(lab, &plans, seeds, seconds)?;
    let mut chart = XyChart::new(Axis::new("random loss", "%"), Axis::new("utilisation", "").from_zero());
    let mut rows = Vec::new();
    for (slot, (name, shown)) in own.subjects.iter().zip(shown.chunks(losses.len())).enumerate() {
        let points = losses.iter().zip(shown).map(|(loss, shown)| {
            let Estimate { mean, half_width } = shown.utilisation.estimate();
            (loss * 100.0, mean, half_width.unwrap_or(0.0))
        });
        chart = chart.series(Series::intervals(name, points.collect()).slot(slot));
        for (loss, shown) in losses.iter().zip(shown) {
            rows.push(row(lab, name, &format!("utilisation_case_6[loss={loss}]"), "", shown.utilisation.estimate()));
        }
    }
    Ok((rows, Some(chart)))
}

/// Figure 5.
pub fn utilisation_3_5(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let sentence = "In test 6 Reno uses 31 % and Cubic 27 % of the channel; in all tests LearningCC uses more than \
                    Vivace.";
    utilisation(lab, 0.035, "LearningCC, figure 5", sentence)
}

/// Figure 6.
pub fn utilisation_5(lab: &FlowLab) -> Result<Findings, ExperimentError> {
    let sentence = "LearningCC uses above 90 % of the channel even with 5 % random loss, and more than Vivace in all \
                    tests.";
    utilisation(lab, 0.05, "LearningCC, figure 6", sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_subjects_than_bars_have_colours_are_a_table() {
        let of = |count: usize| {
            let one = || OfRuns::new(vec![1.0, 2.0]);
            let shown = Shown { one_way_ms: one(), jain: one(), ratio: one(), utilisation: one(), dropped: one() };
            let subjects = (0..count).map(|i| format!("controller {i}")).collect();
            let own = Own { cases: &[0], subjects, shown: vec![vec![shown]; count] };
            own.show(Report::new("page"), "caption", Axis::new("y", ""), None, |shown| &shown.jain).to_html()
        };
        let (few, many) = (of(BarChart::MOST_SERIES), of(BarChart::MOST_SERIES + 1));
        assert!(few.contains("<svg") && !few.contains("<table"), "bars");
        assert!(many.contains("<table") && !many.contains("<svg"), "a table");
    }
}
