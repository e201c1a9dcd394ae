//! Policies in files, which say for which environments they are.

use std::path::PathBuf;

use anabranch_env::policy::Policy as Network;
use anabranch_env::policy_file::{FileError, Purpose, Saved};
use pyo3::prelude::*;

use crate::environments::Environments;
use crate::errors;
use crate::policy::Policy;

fn file_error(error: FileError) -> PyErr {
    match &error {
        // Python has a class for each kind.
        FileError::Unreadable { source, .. } => std::io::Error::new(source.kind(), error.to_string()).into(),
        _ => errors::value(error),
    }
}

/// Whether a network, and what it is for, are for these environments.
fn check(network: &Network, purpose: &Purpose, environments: &Environments) -> PyResult<()> {
    let (spec, hosts) = (environments.spec(), environments.hosts());
    purpose.check(&spec.sight()).map_err(errors::value)?;
    network.reading(hosts, spec.features.len(), spec.history).map(|_| ()).map_err(errors::value)
}

/// Writes `policy` as one for these environments: `path`, which ends in .safetensors, and a JSON file beside it.
/// `trained` is JSON on how it came to be.
#[pyfunction]
pub fn save_policy(policy: &Policy, path: PathBuf, environments: &Environments, trained: &str) -> PyResult<()> {
    let purpose = Purpose::of(&environments.spec().sight());
    check(&policy.0, &purpose, environments)?;
    let trained = serde_json::from_str(trained).map_err(errors::value)?;
    Saved { policy: policy.0.clone(), purpose, trained }.save(&path).map_err(file_error)
}

/// Reads one, and refuses it if it is not for these environments: the policy, and as JSON what it is for and how it
/// came to be.
#[pyfunction]
#[pyo3(signature = (path, environments=None))]
pub fn load_policy(path: PathBuf, environments: Option<&Environments>) -> PyResult<(Policy, String, String)> {
    let Saved { policy, purpose, trained } = Saved::load(&path).map_err(file_error)?;
    if let Some(environments) = environments {
        check(&policy, &purpose, environments)?;
    }
    let purpose = serde_json::to_string(&purpose).map_err(errors::value)?;
    Ok((Policy(policy), purpose, trained.to_string()))
}
