//! What runs of an experiment read of its folder under `experiments/`.

use super::expected::{Expected, ExpectedError};

/// An experiment's files, as they were compiled in.
#[derive(Clone, Copy, Debug)]
pub struct Folder {
    /// The experiment's name, which is the folder's.
    pub id: &'static str,
    /// Its scenario file.
    pub scenario: &'static str,
    /// The paper's numbers and what counts as agreement, as CSV.
    pub expected: &'static str,
}

impl Folder {
    /// Where its scenario lies, for messages.
    pub fn scenario_file(&self) -> String {
        format!("experiments/{}/scenario.toml", self.id)
    }

    /// What the paper says.
    ///
    /// # Errors
    ///
    /// When it does not read.
    pub fn expected(&self) -> Result<Expected, ExpectedError> {
        Expected::parse(self.expected, &format!("experiments/{}/expected.csv", self.id))
    }
}
