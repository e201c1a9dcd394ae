//! Distributions of sizes: by name, as points in the scenario, or in a CSV file beside it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::super::error::ScenarioError;
use super::super::section::{Entry, nearest};
use super::MOST_BYTES;
use crate::flows::sizes::{Interpolation, MOST_POINTS, SizeDistribution, SizeError, SizePoint, named, names};

const SIZES: &[&str] = &["cdf", "file", "interpolate"];

/// The columns of a file.
const COLUMNS: [&str; 2] = ["bytes", "probability"];

/// No file is longer, in bytes: some 100 for each point.
const LONGEST_FILE: u64 = 100 * MOST_POINTS as u64;

/// The distribution that a value names, holds or points at.
pub fn read(entry: &Entry<'_>) -> Result<Arc<SizeDistribution>, ScenarioError> {
    if !entry.is_table() {
        let known: Vec<&str> = names().collect();
        let listed = known.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        let expected = format!("expected {listed}, {{ cdf = [[100, 0], [5000, 1]] }} or {{ file = \"sizes.csv\" }}");
        let name = entry.words().ok_or_else(|| entry.wrong(expected.clone()))?;
        return named(name).map(Arc::new).ok_or_else(|| {
            let near = nearest(name, &known).map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
            entry.wrong(format!("there is no distribution of this name; {near}{expected}"))
        });
    }
    let section = entry.open(SIZES)?;
    let interpolation = match section.get("interpolate") {
        Some(entry) => entry.choice(&[("linear", Interpolation::Linear), ("log", Interpolation::Log)])?.1,
        None => Interpolation::Linear,
    };
    let (key, entry) = section.one_of(&["cdf", "file"], "the points of the distribution")?;
    let sizes = if key == "cdf" { inline(&entry, interpolation)? } else { in_file(&entry, interpolation)? };
    Ok(Arc::new(sizes))
}

fn inline(entry: &Entry<'_>, interpolation: Interpolation) -> Result<SizeDistribution, ScenarioError> {
    let what = "a list of points [bytes, cumulative probability]";
    let rows = entry.list(what)?;
    let point = |row: &Entry<'_>| match &row.list("a point [bytes, cumulative probability]")?[..] {
        [bytes, probability] => {
            let (bytes, probability) = (bytes.number(0.0..=MOST_BYTES as f64)?, probability.number(0.0..=1.0)?);
            Ok(SizePoint { bytes, probability })
        }
        _ => Err(row.wrong("expected a point [bytes, cumulative probability]")),
    };
    let points = rows.iter().map(point).collect::<Result<Vec<SizePoint>, ScenarioError>>()?;
    SizeDistribution::new(points, interpolation).map_err(|error| match error {
        SizeError::Point { index, problem } => rows[index].wrong(problem),
        count @ SizeError::Count(_) => entry.wrong(count.to_string()),
    })
}

/// A relative path begins beside the scenario.
fn in_file(entry: &Entry<'_>, interpolation: Interpolation) -> Result<SizeDistribution, ScenarioError> {
    let path = entry.directory().join(entry.text("the path of a CSV file")?);
    let read = || {
        let text = text_of(&path).map_err(|error| format!(": {error}"))?;
        let (points, lines) = points(&text)?;
        SizeDistribution::new(points, interpolation).map_err(|error| match error {
            SizeError::Point { index, problem } => format!(":{}: {problem}", lines[index]),
            count @ SizeError::Count(_) => format!(": {count}"),
        })
    };
    read().map_err(|problem: String| entry.wrong(format!("{}{problem}", path.display())))
}

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A length may be unknown before the end: of a pipe, for instance.
    if File::open(path)?.take(LONGEST_FILE + 1).read_to_string(&mut text)? as u64 > LONGEST_FILE {
        return Err(io::Error::other(format!(
            "longer than {LONGEST_FILE} bytes; expected {MOST_POINTS} points or fewer"
        )));
    }
    Ok(text)
}

/// The points of a file, and the line of each; what is wrong begins with its line. Numbers
/// need no quotes, and lines that are left out must count: so nothing but commas is cut at.
fn points(text: &str) -> Result<(Vec<SizePoint>, Vec<usize>), String> {
    let [first, second] = COLUMNS;
    let (mut points, mut lines) = (Vec::new(), Vec::new());
    let mut is_header = true;
    for (line, row) in (1..).zip(text.lines()) {
        if row.trim().is_empty() || row.trim_start().starts_with('#') {
            continue;
        }
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let [bytes, probability] = fields[..] else {
            return Err(format!(":{line}: {} fields; expected two, {first},{second}", fields.len()));
        };
        if is_header {
            if [bytes, probability] != COLUMNS {
                return Err(format!(":{line}: the header is {bytes},{probability}; expected {first},{second}"));
            }
            is_header = false;
            continue;
        }
        let number = |column: &str, field: &str, most: f64| match field.parse::<f64>() {
            Ok(number) if (0.0..=most).contains(&number) => Ok(number),
            _ => Err(format!(":{line}: {column} = {field}: expected a number from 0 to {most}")),
        };
        let bytes = number(first, bytes, MOST_BYTES as f64)?;
        points.push(SizePoint { bytes, probability: number(second, probability, 1.0)? });
        lines.push(line);
    }
    match points.is_empty() {
        true => Err(format!(": no points; expected {first},{second} and a line for each")),
        false => Ok((points, lines)),
    }
}
