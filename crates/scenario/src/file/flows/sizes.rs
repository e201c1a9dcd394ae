//! Distributions of sizes: by name, as points in the scenario, or in a CSV file beside it.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::super::error::is_option;
use super::super::error::{Problem, Span, nearest};
use super::super::shape::{Either, Many, Optional, OrStandard, Said, Shape, Value, keys, many, one_of, some, span};
use super::super::values::{Number, Word, Words};
use super::MOST_BYTES;
use crate::flows::sizes::{Interpolation, MOST_POINTS, SizeDistribution, SizeError, SizePoint, named, names};

/// The columns of a file.
const COLUMNS: [&str; 2] = ["bytes", "probability"];

/// No file is longer, in bytes: some 100 for each point.
const LONGEST_FILE: u64 = 100 * MOST_POINTS as u64;

/// A distribution by its name, or a table.
pub type Sizes = Either<Named, SizesKeys>;

keys! {
    /// The points of a distribution.
    pub struct SizesKeys {
        cdf: Optional<Many<Many<Number<0, MOST_BYTES>>>>,
        file: Optional<String>,
        interpolate: Optional<Word<Interpolation>>,
    }
}

impl Words for Interpolation {
    const WORDS: &'static [(&'static str, Self)] = &[("linear", Interpolation::Linear), ("log", Interpolation::Log)];
}

/// A distribution that many papers measured with.
pub struct Named;

impl Shape for Named {
    type Holds = SizeDistribution;

    fn expected() -> String {
        let listed: Vec<String> = names().map(|name| format!("\"{name}\"")).collect();
        format!("{}, {{ cdf = [[100, 0], [5000, 1]] }} or {{ file = \"sizes.csv\" }}", listed.join(", "))
    }

    fn read(value: &Value<'_>) -> Result<SizeDistribution, Problem> {
        let name = value.text(Self::expected)?;
        named(name).ok_or_else(|| {
            let known: Vec<&str> = names().collect();
            let near = nearest(name, &known).map_or(String::new(), |near| format!("did you mean \"{near}\"? "));
            value.wrong(format!("there is no distribution of this name; {near}expected {}", Self::expected()))
        })
    }

    /// Names are not written: every point is.
    fn write(sizes: &SizeDistribution, out: &mut String) {
        Sizes::write(&written(sizes), out);
    }
}

impl Said<Sizes> {
    /// The distribution that is named, held or pointed at. A relative path begins in
    /// `directory`, or where the program runs if an option says it.
    pub fn distribution(&self, directory: &Path) -> Result<Arc<SizeDistribution>, Problem> {
        match &**self {
            Either::Plain(named) => Ok(Arc::new(named.clone())),
            Either::Table(keys) => keys.distribution(self.span(), directory).map(Arc::new),
        }
    }
}

impl SizesKeys {
    fn distribution(&self, at: Span, directory: &Path) -> Result<SizeDistribution, Problem> {
        let interpolation = self.interpolate.or_standard(Interpolation::Linear);
        let keys = [("cdf", span(&self.cdf)), ("file", span(&self.file))];
        match (one_of(&keys, at.clone(), "the points of the distribution")?, &self.cdf, &self.file) {
            (0, Some(points), _) => inline(points, interpolation),
            (_, _, Some(file)) => in_file(file, interpolation, directory),
            _ => Err(Problem::missing(at, "cdf", "the points of the distribution")),
        }
    }
}

fn inline(
    rows: &Said<Many<Many<Number<0, MOST_BYTES>>>>,
    interpolation: Interpolation,
) -> Result<SizeDistribution, Problem> {
    let point = |row: &Said<Many<Number<0, MOST_BYTES>>>| match &row[..] {
        [_, probability] if **probability > 1.0 => Err(probability.wrong("expected a probability from 0 to 1")),
        [bytes, probability] => Ok(SizePoint { bytes: **bytes, probability: **probability }),
        _ => Err(row.wrong("expected a point [bytes, cumulative probability]")),
    };
    let points = rows.iter().map(point).collect::<Result<Vec<SizePoint>, Problem>>()?;
    SizeDistribution::new(points, interpolation).map_err(|error| match error {
        SizeError::Point { index, problem } => rows[index].wrong(problem),
        count @ SizeError::Count(_) => rows.wrong(count.to_string()),
    })
}

/// Every point, whatever file or name it came from: the text says all that is run.
pub fn written(sizes: &SizeDistribution) -> Sizes {
    let point = |point: &SizePoint| many([point.bytes, point.probability]);
    Either::Table(SizesKeys {
        cdf: some(sizes.points().iter().map(point).collect()),
        file: None,
        interpolate: some(sizes.interpolation()),
    })
}

fn in_file(file: &Said<String>, interpolation: Interpolation, directory: &Path) -> Result<SizeDistribution, Problem> {
    let path = if is_option(&file.span()) { Path::new(&**file).to_owned() } else { directory.join(&**file) };
    let read = || {
        let text = text_of(&path).map_err(|error| format!(": {error}"))?;
        let (points, lines) = points(&text)?;
        SizeDistribution::new(points, interpolation).map_err(|error| match error {
            SizeError::Point { index, problem } => format!(":{}: {problem}", lines[index]),
            count @ SizeError::Count(_) => format!(": {count}"),
        })
    };
    read().map_err(|problem: String| file.wrong(format!("{}{problem}", path.display())))
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::{LEAST, assert_comes_back, read};
    use crate::file::AnyScenario;
    use crate::flows::sizes::{Interpolation, SizeDistribution, SizePoint, named};
    use crate::flows::{Size, Workload};

    #[test]
    fn sizes_have_a_name_or_a_file_beside_the_scenario() {
        let with = |sizes: &str| LEAST.replace("\"reno\"", &format!("\"reno\"\nworkload = {{ sizes = {sizes} }}"));
        let once = |sizes: SizeDistribution| Workload::Once(Size::Drawn(Arc::new(sizes)));
        let scenario = read(&with("\"web-search\""), &[]).unwrap();
        assert_eq!(scenario.flows[0].workload, once(named("web-search").unwrap()));
        assert_comes_back(&scenario);
        let error = read(&with("\"web-serch\""), &[]).unwrap_err();
        assert!(
            error.contains("f.toml:6:14: flow.workload.sizes = \"web-serch\"")
                && error.contains("mean \"web-search\"?")
        );

        let directory = tempfile::tempdir().unwrap();
        let scenario = directory.path().join("s.toml");
        let csv = directory.path().join("sizes.csv");
        std::fs::write(&scenario, with("{ file = \"sizes.csv\" }")).unwrap();
        let read_both = |text: &str| {
            std::fs::write(&csv, text).unwrap();
            match crate::file::read_any(&scenario, &[]) {
                Ok(AnyScenario::Flows(scenario)) => Ok(scenario),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        let read =
            read_both("# measured somewhere\nbytes, probability\n100, 0.25\n# a gap\n1e4,0.5\n20000,1\n").unwrap();
        let points =
            [(100.0, 0.25), (1e4, 0.5), (2e4, 1.0)].map(|(bytes, probability)| SizePoint { bytes, probability });
        let expected = SizeDistribution::new(points.to_vec(), Interpolation::Linear).unwrap();
        assert_eq!(read.flows[0].workload, once(expected));
        // What is written needs no file.
        assert_comes_back(&read);
        for (text, expected) in [
            ("100,0\n200,1\n", "sizes.csv:1: the header is 100,0; expected bytes,probability"),
            ("bytes,probability\n100,0\n\n50,1\n", "sizes.csv:4: 50 bytes after 100; expected sizes that do not fall"),
            ("bytes,probability\n100,0\n200,1.5\n", "sizes.csv:3: probability = 1.5: expected a number from 0 to 1"),
            (
                "bytes,probability\n100 B,0\n200,1\n",
                "sizes.csv:2: bytes = 100 B: expected a number from 0 to 1099511627776",
            ),
            ("bytes,probability\n100,0\n200,0.5\n", "sizes.csv:3: the last probability is 0.5; expected 1"),
            ("bytes,probability\n100,0,7\n", "sizes.csv:2: 3 fields; expected two, bytes,probability"),
            ("bytes,probability\n", "sizes.csv: no points"),
            ("bytes,probability\n5,1\n", "sizes.csv: 1 points; expected 2 to 10000"),
            ("", "sizes.csv: no points"),
        ] {
            let error = read_both(text).unwrap_err();
            let place = "s.toml:6:24: flow.workload.sizes.file = \"sizes.csv\": ";
            assert!(error.contains(place) && error.contains(expected), "expected {expected}\n     got {error}");
        }
        let error = read_both(&"#\n".repeat(600_000)).unwrap_err();
        assert!(error.contains("longer than 1000000 bytes"), "{error}");
        std::fs::remove_file(&csv).unwrap();
        let error = crate::file::read_any(&scenario, &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("{}: No such file", csv.display())), "{error}");
    }
}
