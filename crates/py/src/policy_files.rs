//! Policies in files, which say for which environments they are.

use std::path::PathBuf;

use anabranch_env::policy::Policy as Network;
use anabranch_env::policy_file::{FileError, Purpose, Saved, SavedFor};
use anabranch_scenario::policy::flow::{FlowPurpose, SavedFlow};
use pyo3::prelude::*;

use crate::environments::Environments;
use crate::errors;
use crate::policy::Policy;
use crate::senders::Senders;

fn file_error(error: FileError) -> PyErr {
    match &error {
        // Python has a class for each kind.
        FileError::System { source, .. } => std::io::Error::new(source.kind(), error.to_string()).into(),
        _ => errors::value(error),
    }
}

/// Where a policy shall act.
#[derive(FromPyObject)]
pub enum Worlds<'py> {
    /// Its rates are hosts'.
    Hosts(Bound<'py, Environments>),
    /// It controls one flow.
    Flow(Bound<'py, Senders>),
}

/// Whether a network, and what it is for, are for these environments.
fn check(network: &Network, purpose: &Purpose, environments: &Environments) -> PyResult<()> {
    let (spec, hosts) = (environments.spec(), environments.hosts());
    purpose.check(&spec.sight()).map_err(errors::value)?;
    network.reading(hosts, spec.features.len(), spec.history).map(|_| ()).map_err(errors::value)
}

/// Whether a flow's policy is one, and for what these environments' agent sees.
fn check_flow(saved: &SavedFlow, environments: Option<&Senders>) -> PyResult<()> {
    if let Some(environments) = environments {
        saved.purpose.check(&environments.purpose()?).map_err(errors::value)?;
    }
    saved.clone().network(String::new()).map(|_| ()).map_err(errors::value)
}

/// Writes `policy` as one for these environments: `path`, which ends in .safetensors, and a JSON file beside it.
/// `trained` is JSON on how it came to be.
#[pyfunction]
pub fn save_policy(policy: &Policy, path: PathBuf, environments: Worlds<'_>, trained: &str) -> PyResult<()> {
    let environments = match &environments {
        Worlds::Hosts(environments) => environments.get(),
        Worlds::Flow(environments) => return save_flow(policy, path, environments.get().purpose()?, trained),
    };
    let purpose = Purpose::of(&environments.spec().sight());
    check(&policy.0, &purpose, environments)?;
    let trained = serde_json::from_str(trained).map_err(errors::value)?;
    Saved { policy: policy.0.clone(), purpose, trained }.save(&path).map_err(file_error)
}

/// Writes `policy` as one that controls a flow which sees these features of `history` intervals, each `interval_rtts` smoothed round
/// trips long.
#[pyfunction]
pub fn save_flow_policy(
    policy: &Policy,
    path: PathBuf,
    features: Vec<String>,
    history: usize,
    interval_rtts: f64,
    trained: &str,
) -> PyResult<()> {
    save_flow(policy, path, FlowPurpose { features, history, interval_rtts }, trained)
}

fn save_flow(policy: &Policy, path: PathBuf, purpose: FlowPurpose, trained: &str) -> PyResult<()> {
    let trained = serde_json::from_str(trained).map_err(errors::value)?;
    let saved = SavedFlow { policy: policy.0.clone(), purpose, trained };
    check_flow(&saved, None)?;
    saved.save(&path).map_err(file_error)
}

/// Reads one, and refuses it if it is not for these environments: the policy, and as JSON what it is for and how it
/// came to be.
#[pyfunction]
#[pyo3(signature = (path, environments=None))]
pub fn load_policy(path: PathBuf, environments: Option<Worlds<'_>>) -> PyResult<(Policy, String, String)> {
    let any = SavedFor::<serde_json::Value>::load(&path).map_err(file_error)?;
    let is_flows = any.purpose.get("interval_rtts").is_some();
    let other =
        |own: &str, here: &str| errors::value(format!("{}: this policy {own}, and here {here}", path.display()));
    if is_flows {
        let saved = SavedFlow::load(&path).map_err(file_error)?;
        match &environments {
            None => check_flow(&saved, None)?,
            Some(Worlds::Flow(environments)) => check_flow(&saved, Some(environments.get()))?,
            Some(Worlds::Hosts(_)) => return Err(other("controls one flow", "rates of hosts are told")),
        }
        return parts(saved.policy, serde_json::to_string(&saved.purpose), &saved.trained);
    }
    let saved = Saved::load(&path).map_err(file_error)?;
    match &environments {
        None => {}
        Some(Worlds::Hosts(environments)) => check(&saved.policy, &saved.purpose, environments.get())?,
        Some(Worlds::Flow(_)) => return Err(other("tells hosts their rates", "one flow is controlled")),
    }
    parts(saved.policy, serde_json::to_string(&saved.purpose), &saved.trained)
}

fn parts(
    network: Network,
    purpose: serde_json::Result<String>,
    trained: &serde_json::Value,
) -> PyResult<(Policy, String, String)> {
    Ok((Policy(network), purpose.map_err(errors::value)?, trained.to_string()))
}
