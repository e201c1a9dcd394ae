//! `anabranch reproduce --train`: the module of Python trains the policies that an experiment plays.

use std::path::{Path, PathBuf};
use std::process::Command;

use anabranch_papers::{Experiment, ExperimentError};

use crate::failure::Failure;

/// Who trains, as it is found where programs are.
const PYTHON: &str = "python3";

/// What says by its exit code what is not installed.
const PROBE: &str = "import sys, importlib.util as u
sys.exit(next((code for code, names in ((71, ('anabranch',)), (72, ('jax', 'optax', 'gymnasium'))) \
for name in names if u.find_spec(name) is None), 0))";

const NO_MODULE: i32 = 71;
const NO_JAX: i32 = 72;

/// Trains what `experiment` plays into `out/policies`, which it gives back. What was trained there before goes on.
///
/// # Errors
///
/// When the experiment plays no policies, Python or what it needs is not here, or training ends otherwise than it should.
pub fn train(experiment: &Experiment, out: &Path) -> Result<PathBuf, Failure> {
    if !experiment.is_learned() {
        return Err(ExperimentError::NotLearned { id: experiment.id }.into());
    }
    let failed = |problem: String| Failure::new(format!("--train: {problem}"));
    let missing = match Command::new(PYTHON).args(["-c", PROBE]).status() {
        Ok(status) if status.success() => None,
        Ok(status) if matches!(status.code(), Some(NO_MODULE | NO_JAX)) => Some(
            "the module of anabranch with JAX, optax and Gymnasium is not installed for python3: pip install '.[train]' \
             in its sources",
        ),
        Ok(status) => return Err(failed(format!("{PYTHON} does not run ({status})"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(
            "python3 is not here: install Python 3.11 or later, then pip install '.[train]' in the sources of anabranch",
        ),
        Err(error) => return Err(failed(format!("{PYTHON}: {error}"))),
    };
    if let Some(missing) = missing {
        return Err(failed(missing.to_owned()));
    }
    let policies = out.join("policies");
    let mut command = Command::new(PYTHON);
    command.args(["-m", "anabranch.train.c3", experiment.id, "--out"]).arg(&policies);
    // Its standard output is this command's, which may have to be one JSON object.
    command.stdout(std::io::stderr());
    let status = command.status()?;
    if status.success() { Ok(policies) } else { Err(failed(format!("training ended with {status}"))) }
}
