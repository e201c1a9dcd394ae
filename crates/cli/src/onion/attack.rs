//! `anabranch onion attack`: an adversary that owns c of n relays, and has their logs.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anabranch_lab::VERSION;
use anabranch_lab::attack::tradeoff::{self, SHARES, Way};
use anabranch_lab::attack::{Found, run as attack};
use anabranch_lab::parallel::Progress;
use anabranch_report::output::{Staged, create_dir, stage};
use anabranch_scenario::file::{onion_to_toml, read_onion};
use anabranch_scenario::onion::OnionScenario;
use serde::Serialize;

use crate::failure::Failure;
use crate::number::short;
use crate::printer::on_stdout;
use crate::research::progress;
use crate::research::run::ScenarioArgs;
use crate::stderr::eprint_line;
use crate::table;

/// Arguments of `onion attack`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    what: ScenarioArgs,
    /// Write attack.json into DIR; with --tradeoff, tradeoff.json and onion-tradeoff.svg
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Instead of the scenario's one way, all ways of using the overlay for ten minutes, with 1, 5, 10 and 20 % of the relays
    #[arg(long)]
    tradeoff: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    version: &'static str,
    scenario: String,
    #[serde(flatten)]
    found: &'a Found,
}

#[derive(Serialize)]
struct TradeoffJson<'a> {
    version: &'static str,
    scenario: String,
    goodput: &'static str,
    ways: &'a [Way],
}

/// Runs the scenario until its end or Ctrl-C.
pub fn run(args: &Args) -> Result<(), Failure> {
    let scenario = read_onion(&args.what.scenario, &args.what.overrides()?)?;
    if let Some(out) = &args.out {
        create_dir(out)?;
    }
    let progress = progress::until_interrupted()?;
    let bar = progress::show(&progress, &args.what.name());
    let started = Instant::now();
    let done = match args.tradeoff {
        true => tradeoff_of(args, &scenario, &progress),
        false => attack_of(args, &scenario, &progress),
    };
    bar.end();
    let (lines, staged) = done?;
    // First: where nobody reads standard output any more, printing ends the program.
    for (path, file) in staged {
        file.commit()?;
        eprint_line!("wrote {}", path.display());
    }
    on_stdout(|stdout| {
        lines.iter().try_for_each(|line| writeln!(stdout, "{line}"))?;
        match args.what.json {
            true => Ok(()),
            false => writeln!(stdout, "in {} s", short(started.elapsed().as_secs_f64())),
        }
    })
}

/// What is printed, and the files that have not their names yet.
type Done = (Vec<String>, Vec<(PathBuf, Staged)>);

fn interrupted() -> Failure {
    Failure::interrupted("nothing was written")
}

fn attack_of(args: &Args, scenario: &OnionScenario, progress: &Progress) -> Result<Done, Failure> {
    let found = attack(scenario, &[scenario.adversary.share], progress).ok_or_else(interrupted)?.remove(0);
    let json = serde_json::to_string(&Json { version: VERSION, scenario: onion_to_toml(scenario), found: &found })?;
    let files = written(args.out.as_deref(), &[("attack.json", &json)])?;
    let lines = if args.what.json { vec![json] } else { rows(scenario, &found)? };
    Ok((lines, files))
}

fn tradeoff_of(args: &Args, scenario: &OnionScenario, progress: &Progress) -> Result<Done, Failure> {
    let ways = tradeoff::run(scenario, progress).map_err(|why| Failure::new(why.to_string()))?;
    let ways = ways.ok_or_else(interrupted)?;
    let what = "of one download in the simulated overlay, the mean of all repetitions";
    let json = TradeoffJson { version: VERSION, scenario: onion_to_toml(scenario), goodput: what, ways: &ways };
    let json = serde_json::to_string(&json)?;
    let svg = tradeoff::chart(&ways).to_svg("Goodput against the chance of being linked within ten minutes");
    let files = written(args.out.as_deref(), &[("tradeoff.json", &json), ("onion-tradeoff.svg", &svg)])?;
    if args.what.json {
        return Ok((vec![json], files));
    }
    let head = ["way", "MB/s"].map(str::to_owned).into_iter();
    let mut table = vec![head.chain(SHARES.map(percent)).collect::<Vec<String>>()];
    for way in &ways {
        let goodput = way.goodput_bytes_per_s / 1e6;
        let linked = way.found.iter().map(|found| percent(found.linked));
        table.push([way.name.to_owned(), short(goodput)].into_iter().chain(linked).collect());
    }
    Ok((printed(&table, 1..)?, files))
}

/// Every file, written but for its name, or none.
fn written(out: Option<&Path>, files: &[(&str, &str)]) -> Result<Vec<(PathBuf, Staged)>, Failure> {
    let Some(out) = out else { return Ok(Vec::new()) };
    let file = |(name, text): &(&str, &str)| {
        let path = out.join(name);
        let staged = stage(&path, |writer| writeln!(writer, "{}", text.trim_end()))?;
        Ok((path, staged))
    };
    files.iter().map(file).collect()
}

fn printed(rows: &[Vec<String>], numbers: impl std::ops::RangeBounds<usize>) -> Result<Vec<String>, Failure> {
    let mut text = Vec::new();
    table::print(rows, numbers, &mut text)?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
}

fn percent(share: f64) -> String {
    format!("{} %", short(100.0 * share))
}

fn rows(scenario: &OnionScenario, found: &Found) -> Result<Vec<String>, Failure> {
    let seconds = |time: Option<f64>| time.map_or("never".to_owned(), |time| format!("{} s", short(time)));
    let by_theory =
        |theory: Option<f64>| theory.map_or(String::new(), |theory| format!(", {} by theory", short(theory)));
    let watched = scenario.duration;
    let mut rows = vec![
        (
            "relays",
            format!("{} of {} are the adversary's ({})", found.relays, scenario.overlay.relays, percent(found.share)),
        ),
        ("flows", format!("{}, watched for {watched} each", found.flows)),
        (
            "exposed",
            format!(
                "{} enter by its relays for good, {} by theory",
                percent(found.exposed),
                percent(found.exposed_expected)
            ),
        ),
        ("linked", format!("{}, at {} of wrong pairs", percent(found.linked), percent(found.false_positives))),
        ("by counts", percent(found.linked_by_counts)),
        ("by names", format!("{}, all relays of a packet being its own", percent(found.traced))),
        (
            "correlation",
            found.correlation.map_or("no flow was seen at both ends".to_owned(), |seen| {
                format!("{} where both ends are seen{}", short(seen), by_theory(found.correlation_expected))
            }),
        ),
        ("AUC", short(found.auc)),
        ("rank", format!("{} of {} on average", short(found.rank), scenario.senders.count)),
        (
            "entropy",
            format!(
                "{} bits of who a sender is, {} of what equal senders would be",
                short(found.entropy_bits),
                short(found.degree)
            ),
        ),
        (
            "predecessor",
            format!(
                "{} of senders found, the median after {}",
                percent(found.predecessor_found),
                seconds(found.predecessor_s)
            ),
        ),
        ("attracted", format!("{} of all hops", percent(found.attracted))),
        ("goodput", format!("{} MB/s of a download, at most, by theory", short(found.goodput_bytes_per_s / 1e6))),
    ];
    if let Some(both) = found.both_ends_s {
        rows.push(("both ends", format!("seen of some packet after {} s on average, by theory", short(both))));
    }
    if let Some(probed) = &found.probed {
        let text = format!("AUC {} for any relay, {} for a first one", short(probed.auc), short(probed.auc_first));
        rows.push(("probing", text));
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
    printed(&rows, 2..)
}
