//! `anabranch validate`: what each model was held against, and the difference.

mod kernel;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anabranch_lab::parallel::Progress;
use anabranch_papers::validate::kernel::Only;
use anabranch_papers::validate::{Check, Validation, ValidationError, curves, page, validate};
use anabranch_papers::{Length, Request};
use anabranch_report::output::create_dir;
use serde::Serialize;

use crate::failure::Failure;
use crate::number::short;
use crate::printer::print_line;
use crate::research::progress;
use crate::stderr::eprint_line;

/// Arguments of `validate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Another table of other programs' dumbbell figures than the one that comes with us
    #[arg(long, value_name = "FILE.csv")]
    reference: Option<PathBuf>,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
    /// Draw every controller's window curve into DIR/window-curves.html, or with --kernel both
    /// windows of each comparison into DIR/kernel-windows.html
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Hold the running kernel's Reno, Cubic and BBR over emulated links beside ours instead;
    /// takes ten to fifteen minutes, and root or a user namespace
    #[arg(long, conflicts_with = "reference")]
    kernel: bool,
    /// With --kernel: shorter and fewer runs, about two minutes
    #[arg(long, requires = "kernel")]
    quick: bool,
    /// With --kernel: compare these cases alone, a congestion control with perhaps a rate in Mbit/s and a loss in
    /// per cent: reno,20,1. May be given several times
    #[arg(long, requires = "kernel", value_name = "NAME[,MBIT_S[,LOSS]]")]
    only: Vec<Only>,
    /// With --kernel: make RUNS runs in all of what the first four (two with --quick) leave unsettled;
    /// 32 take about half an hour
    #[arg(long, requires = "kernel", value_name = "RUNS", value_parser = clap::value_parser!(u64).range(5..=1000))]
    settle: Option<u64>,
}

#[derive(Serialize)]
struct Json<'a> {
    wall_s: f64,
    checks: &'a [Check],
    outside: &'a [Check],
    skipped: &'a [String],
    failed: usize,
}

/// Makes every check; fails when one does not hold.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.kernel {
        return kernel::run(args);
    }
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    let progress = progress::until_interrupted()?;
    let started = Instant::now();
    let bar = progress::show(&progress, "validate");
    let request = Request { length: Length::Full, progress: progress.clone(), ..Request::default() };
    let validation = validate(args.reference.as_deref(), &request);
    let drawn = args.out.as_deref().map(|out| draw(out, &progress)).transpose();
    bar.end();
    let Validation { checks, outside, skipped } = match validation {
        Err(ValidationError::Interrupted) => return Err(Failure::interrupted("nothing was written")),
        other => other?,
    };
    let failed = checks.iter().filter(|check| !check.holds()).count();
    let wall_s = started.elapsed().as_secs_f64();
    if args.json {
        let json = Json { wall_s, checks: &checks, outside: &outside, skipped: &skipped, failed };
        print_line!("{}", serde_json::to_string(&json)?)?;
    } else {
        print(&checks, &outside, &skipped, wall_s)?;
    }
    if let Some(path) = drawn? {
        eprint_line!("wrote {}: each controller's window over time", path.display());
    }
    match failed {
        0 => Ok(()),
        failed => Err(Failure::new(format!("{failed} of {} checks do not hold", checks.len()))),
    }
}

/// Writes the page with the window curves.
fn draw(out: &Path, progress: &Progress) -> Result<PathBuf, Failure> {
    let path = out.join("window-curves.html");
    page(&curves(progress)?).write(&path)?;
    Ok(path)
}

fn print(checks: &[Check], outside: &[Check], skipped: &[String], wall_s: f64) -> Result<(), Failure> {
    let header = ["model", "held against", "quantity", "ours", "theirs", "difference", "bound", ""].map(str::to_owned);
    let judged = checks.iter().map(|check| (check, if check.holds() { "holds" } else { "DOES NOT HOLD" }));
    let rows = judged.chain(outside.iter().map(|check| (check, "no check"))).map(|(check, verdict)| {
        [
            check.model.clone(),
            check.against.clone(),
            check.quantity.clone(),
            format!("{} {}", short(check.ours), check.unit),
            format!("{} {}", short(check.reference), check.unit),
            match check.difference() {
                share if share.is_finite() => format!("{:+.2} %", share * 100.0),
                _ => "-".to_owned(),
            },
            check.bound.clone(),
            verdict.to_owned(),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(header).chain(rows).collect();
    let widths: Vec<usize> =
        (0..8).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in rows {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        print_line!("{}", line.join("  ").trim_end())?;
    }
    for skipped in skipped {
        print_line!("skipped {skipped}")?;
    }
    print_line!("{} checks in {wall_s:.1} s; {} figures outside of their model", checks.len(), outside.len())?;
    Ok(())
}
