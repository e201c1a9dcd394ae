//! A point's result on disk, so that a sweep that was interrupted goes on where it was.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::grid::Point;
use super::numbers::{Numbers, PointError};
use crate::VERSION;
use anabranch_report::output::{OutputError, write_atomically};

/// What a point measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The whole scenario, to be sure that this is its result.
    scenario: String,
    /// The version that measured it, and the hash of its sources: another may measure something
    /// else.
    version: String,
    /// The registered names of the controllers that ran.
    pub controller: String,
    /// Packets and ACKs that arrived at a node.
    pub packet_hops: u64,
    /// Every number of its summary.
    pub metrics: Map<String, Value>,
    /// Why it has no run, in words; it has no numbers then, and is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

impl Outcome {
    /// What a run of `point` measured.
    pub fn new(point: &Point, numbers: Numbers) -> Outcome {
        let Numbers { controller, packet_hops, metrics, .. } = numbers;
        let (scenario, version) = (point.text.clone(), VERSION.to_owned());
        Outcome { scenario, version, controller, packet_hops, metrics, failed: None }
    }

    /// That `point` has no run, for `why`.
    pub fn of_failure(point: &Point, why: &PointError) -> Outcome {
        let (scenario, version, failed) = (point.text.clone(), VERSION.to_owned(), Some(why.to_string()));
        Outcome { scenario, version, controller: String::new(), packet_hops: 0, metrics: Map::new(), failed }
    }

    /// Why it has no run, in words, if it has none.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// One of its numbers; none where there was none.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).and_then(Value::as_f64)
    }

    /// What is there of `point` in `dir`: nothing, unless it was measured by this
    /// version, made from the same sources, from the very same scenario.
    pub fn read(dir: &Path, point: &Point) -> Option<Outcome> {
        let found = Outcome::of_text(&fs::read_to_string(file(dir, point)).ok()?, point).ok();
        found.filter(|outcome| outcome.failed.is_none())
    }

    /// As it is kept, and as it goes from one process to another.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and numbers can be written as JSON")
    }

    /// What another process measured of `point`, as [`Outcome::to_text`] has it.
    ///
    /// # Errors
    ///
    /// What it is instead, or who made it.
    pub fn of_text(text: &str, point: &Point) -> Result<Outcome, StrangeOutcome> {
        let found: Outcome =
            serde_json::from_str(text).map_err(|error| StrangeOutcome::Unreadable(error.to_string()))?;
        if found.version != VERSION {
            return Err(StrangeOutcome::Version(found.version));
        }
        if found.scenario == point.text { Ok(found) } else { Err(StrangeOutcome::Scenario) }
    }

    /// Keeps it in `dir`, which is there, unless it has no run: that is tried again.
    pub fn write(&self, dir: &Path, point: &Point) -> Result<(), OutputError> {
        if self.failed.is_some() {
            return Ok(());
        }
        let text = self.to_text();
        write_atomically(&file(dir, point), |writer| writeln!(writer, "{text}"))
    }
}

/// Why what came is no outcome of the point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StrangeOutcome {
    /// It does not read.
    #[error("what was measured does not read: {0}")]
    Unreadable(String),
    /// Another version measured it, or one that was made from other sources.
    #[error("it was measured by version {0}, and this is {VERSION}: install the same everywhere")]
    Version(String),
    /// It is of another scenario.
    #[error("it was measured of another scenario")]
    Scenario,
}

/// The name is a hash of the scenario, so that it stays when the grid grows.
fn file(dir: &Path, point: &Point) -> PathBuf {
    dir.join(format!("{:016x}.json", fnv1a(point.text.as_bytes())))
}

/// FNV-1a with 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), which never changes as
/// the standard library's hash may.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::{Progress, run_one};
    use anabranch_scenario::file::AnyScenario;
    use anabranch_scenario::overlay::Scenario;

    fn point(text: &str) -> Point {
        let scenario = AnyScenario::Overlay(Scenario { seconds: 5, ..Scenario::standard() });
        Point { values: Vec::new(), seed: 1, scenario, text: text.to_owned() }
    }

    fn outcome(point: &Point) -> Outcome {
        Outcome::new(point, run_one(&point.scenario, &Progress::default()).unwrap())
    }

    #[test]
    fn what_is_kept_comes_back_to_the_last_bit() {
        let dir = tempfile::tempdir().unwrap();
        let point = point("a");
        let kept = outcome(&point);
        kept.write(dir.path(), &point).unwrap();
        let read = Outcome::read(dir.path(), &point).unwrap();
        assert_eq!(read, kept);
        assert!(read.metric("received_bytes_per_s").unwrap() > 1000.0);
        assert_eq!(read.metric("convergence_s"), None);
    }

    #[test]
    fn what_is_damaged_or_of_another_scenario_or_version_is_not_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, other) = (point("a"), point("b"));
        assert_eq!(Outcome::read(dir.path(), &ours), None);
        outcome(&other).write(dir.path(), &ours).unwrap();
        assert_eq!(Outcome::read(dir.path(), &ours), None);
        // The same release made from other sources, and by none that is known.
        for version in [format!("{}+0123456789abcdef", env!("CARGO_PKG_VERSION")), env!("CARGO_PKG_VERSION").to_owned()]
        {
            let old = Outcome { version, ..outcome(&ours) };
            old.write(dir.path(), &ours).unwrap();
            assert_eq!(Outcome::read(dir.path(), &ours), None);
            let said = Outcome::of_text(&old.to_text(), &ours).unwrap_err().to_string();
            assert!(said.contains(&old.version) && said.contains("install the same"), "{said}");
        }
        assert_eq!(Outcome::of_text(&outcome(&other).to_text(), &ours), Err(StrangeOutcome::Scenario));
        assert!(matches!(Outcome::of_text("{}", &ours), Err(StrangeOutcome::Unreadable(_))));
        fs::write(file(dir.path(), &ours), "{\"scenario\": \"a\"").unwrap();
        assert_eq!(Outcome::read(dir.path(), &ours), None);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // The reference's test vectors.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
