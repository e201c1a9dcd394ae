//! `anabranch reproduce --train`: the module of Python trains the policies that an experiment plays.

use std::path::{Path, PathBuf};
use std::process::Command;

use anabranch_papers::Experiment;

use crate::failure::Failure;
use crate::research::python::{PYTHON, require};

/// What Python needs for it, and what to say where it is missing.
const NEEDS: [(&str, &str); 4] = [("anabranch", MODULE), ("gymnasium", MODULE), ("jax", JAX), ("optax", JAX)];
const MODULE: &str = "the module of anabranch is not installed for python3: pip install '.[train]' in its sources";
const JAX: &str = "JAX and optax are not installed for python3: pip install jax optax";

/// Trains what `experiment` plays into `out/policies`, which it gives back. What was trained there before goes on.
///
/// # Errors
///
/// When the experiment plays no policies, Python or what it needs is not here, or training ends otherwise than it should.
pub fn train(experiment: &Experiment, out: &Path) -> Result<PathBuf, Failure> {
    if !experiment.is_learned() {
        return Err(experiment.not_learned().into());
    }
    require("--train", "train", &NEEDS)?;
    let policies = out.join("policies");
    let mut command = Command::new(PYTHON);
    command.args(["-m", "anabranch.train.c3", experiment.id, "--out"]).arg(&policies);
    // Its standard output is this command's, which may have to be one JSON object.
    command.stdout(std::io::stderr());
    let status = command.status()?;
    if status.success() { Ok(policies) } else { Err(Failure::new(format!("--train: training ended with {status}"))) }
}
