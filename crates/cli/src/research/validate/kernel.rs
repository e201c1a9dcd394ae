//! `anabranch validate --kernel`: the running kernel's TCP over emulated links, beside ours.
//!
//! Runs are made several at a time, as many as the links' sum allows; one whose links were
//! not carried as asked is thrown away and made again.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anabranch_lab::parallel::{Progress, run_one};
use anabranch_papers::validate::ValidationError;
use anabranch_papers::validate::kernel::{
    Case, Comparison, Extent, Ours, Run, Verdict, cases, kernel_page, only, simulate, subjects,
};
use anabranch_report::output::create_dir;
use anabranch_testbed::emulator::testbed_available;
use anabranch_testbed::kernel_tcp::available;
use anabranch_testbed::{Emulated, TestbedFailure};
use serde::Serialize;

use super::Args;
use crate::failure::Failure;
use crate::number::short;
use crate::printer::{on_stdout, print_line};
use crate::research::emulate::OnRealPackets;
use crate::research::progress;
use crate::stderr::eprint_line;
use crate::table;

/// What runs that are made at a time may carry together. Two processors carry more than
/// twice as much (docs/emulator.md).
const MOST_MBIT_S: f64 = 60.0;

/// Runs at a time.
const MOST_RUNS: usize = 12;

/// How often a run is made that was disturbed.
const TRIES: u32 = 3;

#[derive(Serialize)]
struct Json<'a> {
    wall_s: f64,
    comparisons: &'a [Comparison],
    skipped: &'a [String],
    /// Runs that were thrown away.
    disturbed: u64,
    /// Cases of which no run was left.
    without_runs: &'a [String],
    differ: usize,
}

/// Makes the comparison; fails when a difference is beyond its bound.
pub fn run(args: &Args) -> Result<(), Failure> {
    // Before anything is made: none that there is not may be asked for.
    let asked = only(&args.only, cases(&subjects())).map_err(Failure::new)?;
    testbed_available().map_err(Failure::new)?;
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    let offered = available()?;
    let is_offered = |name: &str| offered.iter().any(|offered| offered == name);
    let (here, there): (Vec<Case>, Vec<Case>) = asked.into_iter().partition(|case| is_offered(case.congestion));
    let mut missing: Vec<&str> = there.iter().map(|case| case.congestion).collect();
    missing.dedup();
    let skip = |name: &&str| format!("{name}: the running kernel does not offer it; it offers {}", offered.join(", "));
    let skipped: Vec<String> = missing.iter().map(skip).collect();
    is_something(&here, &skipped)?;
    let extent = if args.quick { Extent::QUICK } else { Extent::FULL };

    let progress = progress::until_interrupted()?;
    let started = Instant::now();
    let bar = progress::show(&progress, "validate --kernel");
    let made = make(&here, extent, args.settle, &progress);
    bar.end();
    let Compared { comparisons, disturbed, without_runs } = made?;
    let wall_s = started.elapsed().as_secs_f64();
    let differ = comparisons.iter().filter(|comparison| comparison.verdict == Verdict::Differs).count();
    // First: where nobody reads standard output any more, printing ends the program.
    let drawn = args.out.as_ref().map_or(Ok(()), |out| draw(out, &comparisons));
    if args.json {
        let (comparisons, without_runs, skipped) = (&comparisons[..], &without_runs[..], &skipped[..]);
        let json = Json { wall_s, comparisons, skipped, disturbed: disturbed.runs, without_runs, differ };
        print_line!("{}", serde_json::to_string(&json)?)?;
    } else {
        on_stdout(|stdout| print(&comparisons, stdout))?;
        skipped.iter().try_for_each(|skipped| print_line!("skipped {skipped}"))?;
        let counted = comparisons.len();
        let disturbed = disturbed.runs;
        print_line!("{counted} comparisons in {wall_s:.0} s; {disturbed} disturbed runs were thrown away")?;
    }
    drawn?;
    if progress.is_interrupted() {
        return Err(Failure::interrupted(match comparisons.len() {
            0 => "no run had ended undisturbed until then".to_owned(),
            _ => "what had been measured until then was kept".to_owned(),
        }));
    }
    succeeds(&without_runs, &disturbed, differ)
}

/// Whether there is anything to compare: what compares nothing has not succeeded.
fn is_something(here: &[Case], skipped: &[String]) -> Result<(), Failure> {
    if here.is_empty() {
        return Err(Failure::new(format!("there is nothing to compare: {}", skipped.join("; "))));
    }
    Ok(())
}

/// Whether all cases were compared, and nothing differs.
fn succeeds(without_runs: &[String], disturbed: &Disturbed, differ: usize) -> Result<(), Failure> {
    if !without_runs.is_empty() {
        return Err(Failure::new(format!(
            "nothing is said of {}: each of the kernel's runs was disturbed, the last of all as {}; expected a machine \
             with less else to do",
            without_runs.join(" and "),
            disturbed.last
        )));
    }
    match differ {
        0 => Ok(()),
        differ => Err(Failure::new(format!("{differ} differences are beyond their bound"))),
    }
}

fn draw(out: &Path, comparisons: &[Comparison]) -> Result<(), Failure> {
    let path = out.join("kernel-windows.html");
    kernel_page(comparisons).write(&path)?;
    eprint_line!("wrote {}: the kernel's windows beside ours", path.display());
    Ok(())
}

/// A run to make.
struct Task {
    case: usize,
    repeat: u64,
    tries: u32,
}

/// What all workers share.
#[derive(Default)]
struct Board {
    waiting: Vec<Task>,
    load_mbit_s: f64,
    made: Made,
    failure: Option<TestbedFailure>,
}

/// The kernel's runs of all cases.
#[derive(Default)]
struct Made {
    runs: Vec<Vec<(u64, Run)>>,
    disturbed: Disturbed,
}

/// Runs that were thrown away.
#[derive(Default)]
struct Disturbed {
    runs: u64,
    /// What disturbed the last one.
    last: String,
}

/// What was made of all cases.
#[derive(Default)]
struct Compared {
    /// Of those that have a run.
    comparisons: Vec<Comparison>,
    disturbed: Disturbed,
    /// The others.
    without_runs: Vec<String>,
}

/// Compares all cases. Of one that is unsettled then, `settle` runs are made in all.
fn make(cases: &[Case], extent: Extent, settle: Option<u64>, progress: &Progress) -> Result<Compared, Failure> {
    let mut ours = match simulate(cases, extent, progress) {
        Err(ValidationError::Interrupted) => return Ok(Compared::default()),
        other => other?,
    };
    let mut made = Made { runs: vec![Vec::new(); cases.len()], ..Made::default() };
    let all: Vec<usize> = (0..cases.len()).collect();
    measure(&mut made, &ours, cases, &all, (1, extent), progress)?;
    if let Some(repeats) = settle.filter(|&repeats| repeats > extent.repeats) {
        let is_unsettled = |case: &usize| {
            let comparisons = ours[*case].beside(&made.of(*case));
            comparisons.iter().any(|comparison| comparison.verdict == Verdict::Unsettled)
        };
        let unsettled: Vec<usize> = all.into_iter().filter(is_unsettled).collect();
        let more = Extent { repeats, ..extent };
        let some: Vec<Case> = unsettled.iter().map(|&case| cases[case]).collect();
        match simulate(&some, more, progress) {
            Err(ValidationError::Interrupted) => {}
            again => {
                unsettled.iter().zip(again?).for_each(|(&case, again)| ours[case] = again);
                measure(&mut made, &ours, cases, &unsettled, (extent.repeats + 1, more), progress)?;
            }
        }
    }
    let mut compared = Compared::default();
    for (place, (case, ours)) in cases.iter().zip(&ours).enumerate() {
        match &made.of(place)[..] {
            [] => compared.without_runs.push(case.to_string()),
            runs => compared.comparisons.extend(ours.beside(runs)),
        }
    }
    compared.disturbed = made.disturbed;
    Ok(compared)
}

impl Made {
    /// In the order of their numbers: workers end in any.
    fn of(&self, case: usize) -> Vec<Run> {
        let mut runs = self.runs[case].clone();
        runs.sort_by_key(|(repeat, _)| *repeat);
        runs.into_iter().map(|(_, run)| run).collect()
    }
}

/// Makes the kernel's runs of the cases at these places, from number `first` to the last of `extent`.
fn measure(
    made: &mut Made,
    ours: &[Ours],
    cases: &[Case],
    places: &[usize],
    (first, extent): (u64, Extent),
    progress: &Progress,
) -> Result<(), Failure> {
    let each = |&case: &usize| (first..=extent.repeats).map(move |repeat| Task { case, repeat, tries: 1 });
    let mut waiting: Vec<Task> = places.iter().flat_map(each).collect();
    progress.total.fetch_add(waiting.len() as u64 * extent.seconds, Ordering::Relaxed);
    // The first repeat of every case is made before the second of any.
    waiting.sort_by_key(|task| task.repeat);
    let board = Mutex::new(Board { waiting, made: std::mem::take(made), ..Board::default() });
    let changed = Condvar::new();
    std::thread::scope(|scope| {
        for _ in 0..MOST_RUNS {
            scope.spawn(|| work(&board, &changed, ours, cases, extent, progress));
        }
    });
    let board = board.into_inner().unwrap_or_else(PoisonError::into_inner);
    *made = board.made;
    board.failure.map_or(Ok(()), |failure| Err(failure.into()))
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes one run after the other while there are any.
fn work(board: &Mutex<Board>, changed: &Condvar, ours: &[Ours], cases: &[Case], extent: Extent, progress: &Progress) {
    loop {
        let (task, load) = {
            let mut now = lock(board);
            loop {
                if progress.is_interrupted() || now.failure.is_some() || now.waiting.is_empty() {
                    return;
                }
                let load = |task: &Task| ours[task.case].load_mbit_s();
                let room = MOST_MBIT_S - now.load_mbit_s;
                let fits = now.waiting.iter().position(|task| load(task) <= room || now.load_mbit_s == 0.0);
                if let Some(place) = fits {
                    let task = now.waiting.remove(place);
                    let load = load(&task);
                    now.load_mbit_s += load;
                    break (task, load);
                }
                now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let scenario = cases[task.case].theirs(extent, task.repeat);
        let outcome = run_one(&OnRealPackets(&scenario), progress);
        let mut now = lock(board);
        now.load_mbit_s -= load;
        if now.load_mbit_s < 1e-9 {
            now.load_mbit_s = 0.0;
        }
        match outcome {
            Err(failure) => now.failure = Some(failure),
            // An interrupted run is not a whole one.
            Ok(Emulated { measured, .. }) if measured.length < scenario.length => {}
            Ok(Emulated { emulator, .. }) if emulator.is_saturated() => {
                let disturbed = &mut now.made.disturbed;
                (disturbed.runs, disturbed.last) = (disturbed.runs + 1, emulator.warnings().join(", "));
                if task.tries < TRIES {
                    progress.total.fetch_add(extent.seconds, Ordering::Relaxed);
                    now.waiting.push(Task { tries: task.tries + 1, ..task });
                }
            }
            Ok(Emulated { measured, .. }) => {
                now.made.runs[task.case].push((task.repeat, Run::of(&scenario, &measured)))
            }
        }
        changed.notify_all();
    }
}

fn print(comparisons: &[Comparison], stdout: &mut impl Write) -> io::Result<()> {
    let header = ["kernel", "ours", "rate", "loss", "runs", "kernel, Mbit/s", "ours, Mbit/s", "difference", "Jain", ""];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for comparison in comparisons {
        let Case { congestion, rate_mbit_s, loss } = comparison.case;
        let mean = |values: &[f64]| short(values.iter().sum::<f64>() / values.len() as f64);
        let difference = match (comparison.difference, comparison.half_width) {
            (Some(share), Some(half)) => format!("{:+.1} % ± {:.1}", share * 100.0, half * 100.0),
            _ => "-".to_owned(),
        };
        let jain = |index: Option<f64>| index.map_or("-".to_owned(), |index| format!("{index:.3}"));
        let verdict = match comparison.verdict {
            Verdict::Holds => "holds",
            Verdict::Unsettled => "unsettled",
            Verdict::Differs => "DIFFERS",
            Verdict::NotJudged => "not judged",
            Verdict::Unknown => "too few runs",
        };
        rows.push(vec![
            congestion.to_owned(),
            comparison.ours.clone(),
            format!("{rate_mbit_s} Mbit/s"),
            format!("{:.1} %", loss * 100.0),
            comparison.kernel_mbit_s.len().to_string(),
            mean(&comparison.kernel_mbit_s),
            mean(&comparison.ours_mbit_s),
            difference,
            format!("{}, {}", jain(comparison.kernel_jain), jain(comparison.ours_jain)),
            verdict.to_owned(),
        ]);
    }
    table::print(&rows, 2.., stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_of_which_each_run_was_disturbed_is_no_success() {
        let disturbed = Disturbed { runs: 6, last: "9.2 % of the packets came more than 1 ms late".to_owned() };
        let lacking = ["reno,20,1".to_owned(), "bbr,20,1".to_owned()];
        let said = succeeds(&lacking, &disturbed, 0).unwrap_err().words().to_owned();
        assert!(said.contains("nothing is said of reno,20,1 and bbr,20,1") && said.contains("9.2 %"), "{said}");
        assert!(succeeds(&[], &disturbed, 0).is_ok());
        assert!(succeeds(&[], &disturbed, 1).unwrap_err().words().starts_with("1 differences"));
    }

    #[test]
    fn what_compares_nothing_is_no_success() {
        let skipped = ["bbr: the running kernel does not offer it; it offers reno".to_owned()];
        let said = is_something(&[], &skipped).unwrap_err().words().to_owned();
        assert_eq!(said, "there is nothing to compare: bbr: the running kernel does not offer it; it offers reno");
        assert!(is_something(&cases(&["reno"]), &skipped).is_ok());
    }
}
