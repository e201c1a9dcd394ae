//! The trained tables that experiments run, where the environment says where they lie.

use toml::Table;

use super::{ExperimentError, FlowLab, Row};
use anabranch_scenario::remy_table;

/// The tables of [Xavier]'s figures, by how much delay counted in their training.
const TABLES: [(&str, &str); 3] = [
    ("delta10", "RemyCC-2013-delta10.dna"),
    ("delta1", "RemyCC-2013-delta1.dna"),
    ("delta0.1", "RemyCC-2013-delta0.1.dna"),
];

/// A table, or why there is none.
#[derive(Clone, Debug)]
pub struct Trained {
    /// What it is called in metrics.
    pub name: &'static str,
    /// Parameters of `remy`; else why it is skipped.
    pub parameters: Result<Table, String>,
}

/// All of them.
///
/// # Errors
///
/// When a file is there and is no table.
pub fn all() -> Result<Vec<Trained>, ExperimentError> {
    let read = |(name, file): (&'static str, &str)| {
        Ok(Trained { name, parameters: remy_table::from_environment(file).map_err(ExperimentError::Table)? })
    };
    TABLES.into_iter().map(read).collect()
}

/// A row that says that it is skipped, and why.
pub fn skipped(lab: &FlowLab, metric: &str, unit: &str, why: &str) -> Row {
    Row { note: format!("skipped: {why}"), ..lab.row("remy", metric, unit, None) }
}

/// A sentence for the report about tables that are missing; none if all are there.
pub fn missing(tables: &[Trained]) -> Option<String> {
    let missing: Vec<String> = tables
        .iter()
        .filter_map(|table| Some(format!("{} ({})", table.name, table.parameters.as_ref().err()?)))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "Skipped, since their tables are not part of the project: {}. Set {} to a directory that holds them.",
            missing.join(", "),
            remy_table::DIRECTORY_VARIABLE
        )
    })
}
