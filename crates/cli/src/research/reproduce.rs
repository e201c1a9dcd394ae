//! `anabranch reproduce`: a paper's experiment, our figures beside the paper's.

mod on_packets;
mod on_sockets;
mod training;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anabranch_lab::parallel::Progress;
use anabranch_papers::{
    self, EXPERIMENTS, Experiment, ExperimentError, Findings, Kind, Length, Request, Row, Summary, Tally, Totals,
    Verdict,
};
use anabranch_report::output::{create_dir, write_atomically};
use anabranch_report::{Cell, Report, Table};
use serde::Serialize;

use self::on_sockets::Processes;
use crate::failure::Failure;
use crate::number::short;
use crate::printer::{on_stdout, print_line};
use crate::research::progress;
use crate::stderr::eprint_line;
use crate::table;

/// Arguments of `reproduce`.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true))]
pub struct Args {
    /// The experiment, as `--list` names it
    #[arg(group = "what")]
    id: Option<String>,
    /// Name every experiment, how many figures it judges and what quick runs said of them; with --out,
    /// say what its results there are
    #[arg(long, group = "what")]
    list: bool,
    /// Run every experiment
    #[arg(long, group = "what")]
    all: bool,
    /// A short run: the ordering holds, intervals are wide
    #[arg(long)]
    quick: bool,
    /// Also on real packets, over emulated links and with the kernel's TCP, beside a simulation
    /// of the same runs; in real time, and for the experiments that it makes sense for
    #[arg(long, conflicts_with = "list")]
    emulated: bool,
    /// Runs on real packets at a time: they take real time, and at low rates little of a
    /// processor; each that the machine could not carry is told
    #[arg(long, default_value_t = 1, requires = "emulated", value_parser = clap::value_parser!(u64).range(1..=64))]
    jobs: u64,
    /// Print one JSON object for each experiment and nothing else
    #[arg(long)]
    json: bool,
    /// The seed of every random stream instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Other controllers than the paper's: names with commas between, or all
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    controllers: Vec<String>,
    /// Only this setting of an experiment that has several; may be given several times
    #[arg(long = "setting", value_name = "NAME", requires = "id", conflicts_with = "emulated")]
    settings: Vec<String>,
    /// With what it has to say of files on real sockets: processes on this machine send them, in real time
    #[arg(long, requires = "id", conflicts_with = "emulated")]
    sockets: bool,
    /// Policies in place of the repository's, for an experiment that plays some: a folder that
    /// `python -m anabranch.train.c3 ID --out DIR` has filled
    #[arg(long, value_name = "DIR", requires = "id", conflicts_with_all = ["emulated", "train"])]
    policies: Option<PathBuf>,
    /// Train the policies first, for an experiment that plays some, into DIR/policies of --out; what is there
    /// goes on. Python does it: pip install '.[train]' in the sources
    #[arg(long, requires = "id", requires = "out", conflicts_with = "emulated")]
    train: bool,
    /// Write report.html and rows.json into DIR/ID, with --emulated into DIR/ID/emulated
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs what was asked for.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.list {
        return list(args.out.as_deref());
    }
    let chosen: Vec<&Experiment> = match &args.id {
        Some(id) => vec![anabranch_papers::find(id)?],
        None => EXPERIMENTS.iter().collect(),
    };
    let progress = progress::until_interrupted()?;
    if args.emulated {
        // Of all, those that it makes sense for; one that was named is refused by itself.
        let named = args.id.is_some();
        let chosen: Vec<_> = chosen.into_iter().filter(|experiment| named || experiment.is_on_packets()).collect();
        return on_packets::run(args, &chosen, &progress);
    }
    for experiment in chosen {
        reproduce(args, experiment, &progress)?;
    }
    Ok(())
}

/// Names every experiment, how many figures it judges by ranges of each kind and what its quick run
/// said of them; with `out`, what its results there say.
fn list(out: Option<&Path>) -> Result<(), Failure> {
    let kinds = Kind::ALL.map(|kind| kind.name().to_owned());
    let ends = ["asks".to_owned()].into_iter().chain(out.map(|out| out.display().to_string()));
    let mut rows = vec![["experiment".to_owned()].into_iter().chain(kinds).chain(ends).collect::<Vec<_>>()];
    for experiment in EXPERIMENTS {
        let (judged, quick) = (experiment.judged().map_err(ExperimentError::from)?, experiment.quick_verdicts());
        let of_kind = |kind| match judged.iter().filter(|&&of| of == kind).count() {
            0 => "-".to_owned(),
            count => {
                let Tally { agree, disagree, open } = quick.of_kind(kind);
                format!("{count} ({agree}/{disagree}/{open})")
            }
        };
        let mut row = vec![experiment.id.to_owned()];
        row.extend(Kind::ALL.map(of_kind));
        row.push(experiment.title.to_owned());
        row.extend(out.map(|out| state(&out.join(experiment.id).join("rows.json"))));
        rows.push(row);
    }
    print_line!("Judged figures by how their range came to be (of a quick run: agree/disagree/open)")?;
    on_stdout(|stdout| table::print(&rows, 1..=Kind::ALL.len(), stdout))
}

/// What the results in `rows` say: how many figures agree.
fn state(rows: &Path) -> String {
    let Ok(text) = std::fs::read(rows) else {
        return "[not run]".to_owned();
    };
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&text) else {
        return format!("[{} does not read]", rows.display());
    };
    // Made by a version that judged otherwise.
    if !json["totals"].is_object() {
        return format!("[{}: no verdicts by intervals; run it again]", rows.display());
    }
    let judged = json["rows"].as_array().into_iter().flatten().filter_map(|row| {
        let kind: Kind = serde_json::from_value(row["kind"].clone()).ok()?;
        let verdict: Verdict = serde_json::from_value(row["verdict"].clone()).ok()?;
        Some((kind, verdict))
    });
    let length = if json["quick"] == true { "quick" } else { "full" };
    format!("[{length}, seed {}; {}]", json["seed"], Totals::of(judged))
}

fn reproduce(args: &Args, experiment: &Experiment, progress: &Arc<Progress>) -> Result<(), Failure> {
    let policies = match &args.out {
        Some(out) if args.train => Some(training::train(experiment, out)?),
        _ => args.policies.clone(),
    };
    let out = args.out.as_ref().map(|out| out.join(experiment.id));
    // They go with this value, if nothing comes to lie in them.
    let _made = out.as_deref().map(NewFolders::of);
    if let Some(out) = &out {
        create_dir(out)?;
    }
    let length = if args.quick { Length::Quick } else { Length::Full };
    let mut request = Request {
        length,
        seed: args.seed,
        controllers: args.controllers.clone(),
        settings: args.settings.clone(),
        policies,
        progress: progress.clone(),
        ..Request::default()
    };
    let seed = experiment.seed(&request)?;
    let started = Instant::now();
    let bar = progress::show(progress, experiment.id);
    if args.sockets {
        request.loopback = Some(Arc::new(Processes::of_this_program(bar.lines())?));
    } else if experiment.is_on_sockets() && args.settings.is_empty() {
        bar.lines().say(&format!("{}: files on real sockets are left out; --sockets sends them", experiment.id));
    }
    let findings = experiment.run(&request);
    bar.end();
    let Findings { rows, report } = whole(findings, experiment)?;
    let json = Summary {
        id: experiment.id,
        seed,
        quick: args.quick,
        wall_s: started.elapsed().as_secs_f64(),
        totals: Totals::of_rows(&rows),
        rows: &rows,
    };
    // First: where nobody reads standard output any more, printing ends the program. Where there is no room for files,
    // the figures are printed all the same.
    let written = out.map_or(Ok(()), |out| write(&out, experiment, &json, report));
    let printed = match args.json {
        true => print_line!("{}", serde_json::to_string(&json)?),
        false => on_stdout(|stdout| print(&json, experiment, stdout)),
    };
    written?;
    printed
}

/// Folders that a run has made, to say early that it can't: those that are still empty go when it ends.
struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Those of `out` and above it that are not there yet.
    fn of(out: &Path) -> NewFolders {
        NewFolders(
            out.ancestors()
                .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
                .map(Path::to_path_buf)
                .collect(),
        )
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        // One that is not empty stays, and so do those above it.
        let _ = self.0.iter().all(|folder| std::fs::remove_dir(folder).is_ok());
    }
}

/// The findings of an experiment that has come to its end.
fn whole(findings: Result<Findings, ExperimentError>, experiment: &Experiment) -> Result<Findings, Failure> {
    match findings {
        Err(ExperimentError::Interrupted) => {
            Err(Failure::interrupted(format!("{} did not end, and nothing of it was written", experiment.id)))
        }
        // Of many, one has no result.
        Err(ExperimentError::Run(error)) => Err(Failure::new(format!("{}: {error}", experiment.id))),
        other => Ok(other?),
    }
}

fn print(json: &Summary<'_>, experiment: &Experiment, stdout: &mut impl Write) -> io::Result<()> {
    writeln!(stdout, "{}: {} (seed {}, {:.1} s)", json.id, experiment.title, json.seed, json.wall_s)?;
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), short);
    let rows = json.rows.iter().map(|row| {
        let ours = match row.ci95 {
            Some(half) => format!("{} ± {}", number(row.ours), short(half)),
            None => number(row.ours),
        };
        let (verdict, kind) = (row.verdict.map_or("-", Verdict::name), row.kind.map_or("-", Kind::name));
        let (subject, paper) = (format!("  {}", row.subject), number(row.paper));
        [&*subject, &row.metric, &row.unit, &ours, &paper, verdict, kind, &row.note].map(str::to_owned).to_vec()
    });
    let headers = ["  subject", "metric", "unit", "ours", "paper", "verdict", "kind", "note"];
    let rows: Vec<Vec<String>> = [headers.map(str::to_owned).to_vec()].into_iter().chain(rows).collect();
    table::print(&rows, 3..5, stdout)?;
    writeln!(stdout, "{}", json.totals)
}

/// A verdict as a cell of a page.
fn verdict_cell(verdict: Option<Verdict>) -> Cell {
    use anabranch_report::Verdict as Shown;
    Cell::Verdict(match verdict {
        Some(Verdict::Agrees) => Shown::Agrees,
        Some(Verdict::Disagrees) => Shown::Disagrees,
        Some(Verdict::Open) => Shown::Open,
        None => Shown::NotJudged,
    })
}

fn write(out: &Path, experiment: &Experiment, json: &Summary<'_>, report: Report) -> Result<(), Failure> {
    let headers = ["subject", "metric", "unit", "ours", "paper", "verdict", "range", "note"];
    let (said, other) = in_order(json.rows, |row| (row.paper.is_some(), row.kind.is_some()));
    let table = |caption: &str, rows: &[&Row]| {
        rows.iter().fold(Table::new(caption, headers), |table, row| table.row(cells(row)))
    };
    let (said, other) = (table("Ours and the paper's", &said), table("Figures that no paper speaks of", &other));
    let report = Facts { experiment, seed: json.seed, quick: json.quick, wall_s: json.wall_s }
        .head(report)
        .meta("verdicts", json.totals.to_string())
        .section("Figures");
    let report = if said.is_empty() { report } else { report.table(said) };
    let report = if other.is_empty() { report } else { report.folded_table("All other figures", other) };
    write_files(out, &report.listing("Scenario", experiment.scenario), json)
}

/// Rows as a page shows them: those with a paper's number first, then those with a range alone; and those that it folds
/// away, of which no paper speaks. `has` says whether a row has the one and the other; otherwise they stay in their order.
fn in_order<R>(rows: &[R], has: impl Fn(&R) -> (bool, bool)) -> (Vec<&R>, Vec<&R>) {
    let (mut said, other): (Vec<&R>, Vec<&R>) = rows.iter().partition(|row| has(row) != (false, false));
    said.sort_by_key(|row| !has(row).0);
    (said, other)
}

/// A row of a page's table.
fn cells(row: &Row) -> [Cell; 8] {
    let ours = row.ours.unwrap_or(f64::NAN);
    let digits = if ours.abs() >= 1000.0 { 0 } else { 4 };
    [
        Cell::text(&row.subject),
        Cell::text(&row.metric),
        Cell::text(&row.unit),
        row.ci95.map_or(Cell::number(ours, digits), |half| Cell::interval(ours, half)),
        row.paper.map_or(Cell::text("–"), |paper| Cell::number(paper, digits)),
        verdict_cell(row.verdict),
        Cell::text(row.kind.map_or("", Kind::name)),
        Cell::text(&row.note),
    ]
}

/// What every page says of its run.
struct Facts<'a> {
    experiment: &'a Experiment,
    seed: u64,
    quick: bool,
    wall_s: f64,
}

impl Facts<'_> {
    /// Puts them at the head of `report`.
    fn head(&self, report: Report) -> Report {
        report
            .meta("experiment", self.experiment.id)
            .meta("seed", self.seed.to_string())
            .meta("length", if self.quick { "quick" } else { "full" })
            .meta("wall clock", format!("{:.1} s", self.wall_s))
            .meta("version", env!("CARGO_PKG_VERSION"))
    }
}

/// Writes the page and the rows, and says so.
fn write_files(out: &Path, report: &Report, rows: &impl Serialize) -> Result<(), Failure> {
    report.write(&out.join("report.html"))?;
    write_atomically(&out.join("rows.json"), |file| {
        serde_json::to_writer_pretty(&mut *file, rows)?;
        file.write_all(b"\n")
    })?;
    eprint_line!("wrote {} and rows.json beside it", out.join("report.html").display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;
    use anabranch_lab::flows::FlowRunError;

    use super::*;

    #[test]
    fn a_run_that_delivers_nothing_is_said_with_the_experiments_name() {
        let experiment = anabranch_papers::find("c3-loss").unwrap();
        let nothing = FlowRunError::NothingDelivered { length: Duration::SECOND * 40, sent: 3 };
        let failure = whole(Err(nothing.into()), experiment).unwrap_err();
        assert!(failure.words().starts_with("c3-loss: in 40 s no flow has delivered anything"), "{failure:?}");
    }

    fn row(metric: &str, paper: Option<f64>, kind: Option<Kind>) -> Row {
        Row {
            subject: "cubic".to_owned(),
            metric: metric.to_owned(),
            unit: String::new(),
            ours: Some(1.0),
            ci95: None,
            paper,
            range: (f64::NEG_INFINITY, f64::INFINITY),
            kind,
            verdict: None,
            note: String::new(),
        }
    }

    /// `metrics` as `page` shows them: those before what it folds away, and those in there.
    pub(super) fn shown<'m>(page: &str, metrics: &[&'m str]) -> [Vec<&'m str>; 2] {
        let place = |metric: &str| page.find(&format!(">{metric}<")).unwrap_or_else(|| panic!("{metric} is in {page}"));
        let (from, to) = (page.find("<details").expect("a part that folds"), page.find("Scenario").expect("a listing"));
        let mut sorted = metrics.to_vec();
        sorted.sort_by_key(|metric| place(metric));
        assert!(place(sorted[sorted.len() - 1]) < to, "all are in tables");
        let (before, folded) = sorted.into_iter().partition(|metric| place(metric) < from);
        [before, folded]
    }

    #[test]
    fn rows_with_a_papers_number_come_first_and_what_no_paper_speaks_of_folds_away() {
        let (number, range) = (Some(2.0), Some(Kind::After));
        let rows = [
            row("unsaid_1", None, None),
            row("range_1", None, range),
            row("number_1", number, range),
            row("unsaid_2", None, None),
            row("number_2", number, None),
            row("range_2", None, range),
            row("number_3", number, range),
        ];
        let out = tempfile::tempdir().unwrap();
        let experiment = anabranch_papers::find("c3-loss").unwrap();
        let totals = Totals::of_rows(&rows);
        let json = Summary { id: experiment.id, seed: 1, quick: true, wall_s: 0.0, totals, rows: &rows };
        write(out.path(), experiment, &json, Report::new("loss")).unwrap();
        let page = std::fs::read_to_string(out.path().join("report.html")).unwrap();
        let metrics: Vec<&str> = rows.iter().map(|row| &*row.metric).collect();
        let [before, folded] = shown(&page, &metrics);
        assert_eq!(before, ["number_1", "number_2", "number_3", "range_1", "range_2"]);
        assert_eq!(folded, ["unsaid_1", "unsaid_2"]);
    }
}
