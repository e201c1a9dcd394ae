//! Policies that control one flow from end to end: their files, and how they become the parameter `network` of the
//! controller `policy`.
//!
//! The controller reads no file. Where a scenario's parameters name a `file`, [`resolve`] puts the network in its place,
//! so that what runs says everything about itself.

use std::path::Path;

use anabranch_control::flow::policy::network::named;
use anabranch_control::flow::policy::{FlowFeature, FlowNetwork};
use anabranch_control::registry::ParameterError;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::file::{FileError, SavedFor};

/// A policy of one flow, what it is for, and how it came to be.
pub type SavedFlow = SavedFor<FlowPurpose>;

/// The parameter that names a file.
const FILE_KEY: &str = "file";

/// What a policy of one flow is for: what it sees, and how often it decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlowPurpose {
    /// Of an interval, by the features' names.
    pub features: Vec<String>,
    /// Intervals in an observation, the newest first.
    pub history: usize,
    /// Smoothed round trips in an interval.
    pub interval_rtts: f64,
}

impl FlowPurpose {
    /// Aurora's: three features of ten intervals, each a round trip.
    pub fn aurora() -> FlowPurpose {
        FlowPurpose {
            features: FlowFeature::AURORA.map(|feature| feature.name().to_owned()).into(),
            history: anabranch_control::flow::policy::feature::AURORA_HISTORY,
            interval_rtts: 1.0,
        }
    }

    /// Whether it is for what this one is for.
    ///
    /// # Errors
    ///
    /// What is otherwise.
    pub fn check(&self, other: &FlowPurpose) -> Result<(), FileError> {
        let differences = [
            ("features", self.features.join(", "), other.features.join(", ")),
            ("history", self.history.to_string(), other.history.to_string()),
            ("interval_rtts", self.interval_rtts.to_string(), other.interval_rtts.to_string()),
        ];
        FileError::first_of(differences)
    }
}

impl SavedFlow {
    /// The network as the controller takes it; `name` is what messages call it.
    ///
    /// # Errors
    ///
    /// When it is for what no sender sees, or does not fit what it is for.
    pub fn network(self, name: String) -> Result<FlowNetwork, ParameterError> {
        let FlowPurpose { features, history, interval_rtts } = self.purpose;
        FlowNetwork::new(name, self.policy, named(&features)?, history, interval_rtts)
    }
}

/// The network in a policy's file, as the controller takes it.
///
/// # Errors
///
/// When the file can't be read, or holds something else, such as a policy that steers hosts.
pub fn load(path: &Path) -> Result<FlowNetwork, FileError> {
    let wrong = |problem: String| FileError::Wrong { path: path.to_owned(), problem };
    let saved = SavedFlow::load(path).map_err(|error| match error {
        FileError::Wrong { path, problem } if problem.contains("purpose") || problem.contains("unknown field") => {
            let expected = "expected the purpose of a flow's policy: features, history, interval_rtts";
            FileError::Wrong { path, problem: format!("{problem}; {expected}") }
        }
        error => error,
    })?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    saved.network(name).map_err(|ParameterError(problem)| wrong(problem))
}

/// Puts the network where `parameters` name a `file`; a relative path begins at `directory`.
///
/// # Errors
///
/// When the file is no policy of a flow, or when a `network` stands there already.
pub fn resolve(parameters: &mut Table, directory: &Path) -> Result<(), ParameterError> {
    let Some(file) = parameters.get(FILE_KEY) else { return Ok(()) };
    let Some(file) = file.as_str().filter(|_| !parameters.contains_key("network")) else {
        return Err(ParameterError("file must be the path of a policy, and stand without network".to_owned()));
    };
    let network = load(&directory.join(file)).map_err(|error| ParameterError(error.to_string()))?;
    parameters.remove(FILE_KEY);
    parameters.insert("network".to_owned(), Value::Table(network.written()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use anabranch_control::flow::registry::{Setup, find};
    use anabranch_control::policy::{Activation, Cell, Layer, Policy};
    use anabranch_control::time::{Duration, Time};
    use anabranch_control::units::Bytes;

    use super::super::file::{Purpose, Saved};
    use super::super::{Actuator, Agents, Feature, Sight};
    use super::*;

    fn saved() -> SavedFlow {
        let inputs = 30;
        let weights = (0..inputs * 2).map(|at| (at as f32 - 29.5) / 7.0).collect();
        let layers = vec![
            Layer { weights, biases: vec![1.0 / 3.0, -0.1] },
            Layer { weights: vec![0.1, -1e-30], biases: vec![0.7] },
        ];
        let policy = Policy::new(layers, Activation::Tanh, vec![0.1; inputs], vec![0.3; inputs]).unwrap();
        let policy = policy.with_known(vec![-1.0; inputs], vec![2.5; inputs]).unwrap();
        SavedFlow { policy, purpose: FlowPurpose::aurora(), trained: serde_json::json!({ "seed": 7 }) }
    }

    fn resolved(directory: &Path, file: &str) -> Result<Table, String> {
        let mut parameters = Table::from_iter([("file".to_owned(), file.into())]);
        resolve(&mut parameters, directory).map_err(|error| error.to_string())?;
        Ok(parameters)
    }

    #[test]
    fn a_file_becomes_the_network_of_the_controller_to_the_bit() {
        let directory = tempfile::tempdir().unwrap();
        saved().save(&directory.path().join("p.safetensors")).unwrap();
        let parameters = resolved(directory.path(), "p.safetensors").unwrap();
        let setup = Setup::new(Bytes::new(1000), Time::ZERO);
        assert!(find("policy").unwrap().make(&setup, &parameters).is_ok());
        let network = parameters["network"].as_table().unwrap();
        // A written scenario is read again as it was.
        let again: Table = toml::to_string(&parameters).unwrap().parse().unwrap();
        assert_eq!(again, parameters);
        let bits = |value: &Value| -> Vec<u32> {
            value.as_array().unwrap().iter().map(|number| (number.as_float().unwrap() as f32).to_bits()).collect()
        };
        for (layer, own) in network["layers"].as_array().unwrap().iter().zip(saved().policy.layers()) {
            let own_bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&layer["weights"]), own_bits(&own.weights));
            assert_eq!(bits(&layer["biases"]), own_bits(&own.biases));
        }
        assert_eq!(network["name"].as_str(), Some("p.safetensors"));
        assert_eq!(network["history"].as_integer(), Some(10));
    }

    #[test]
    fn a_network_that_remembers_is_one_of_a_flow_too() {
        let directory = tempfile::tempdir().unwrap();
        let layer = |inputs: usize, outputs: usize| Layer {
            weights: (0..inputs * outputs).map(|at| (at as f32 - 9.5) / 70.0).collect(),
            biases: vec![1.0 / 3.0; outputs],
        };
        let cell = Cell { inputs: layer(30, 6), state: layer(2, 6) };
        let layers = vec![layer(2, 1)];
        let policy = Policy::recurrent(cell, layers, Activation::Tanh, vec![0.1; 30], vec![0.3; 30]).unwrap();
        SavedFlow { policy, ..saved() }.save(&directory.path().join("p.safetensors")).unwrap();
        let parameters = resolved(directory.path(), "p.safetensors").unwrap();
        let mut again: Table = toml::to_string(&parameters).unwrap().parse().unwrap();
        assert_eq!(again, parameters);
        let build = find("policy").unwrap().build;
        assert!(build(&again).is_ok());
        let biases = again["network"]["cell"]["state"]["biases"].as_array_mut().unwrap();
        biases.pop();
        let error = build(&again).err().expect("a state lacks a bias").to_string();
        assert!(error.contains("the cell's states have 12 weights and 5 biases"), "{error}");
    }

    #[test]
    fn what_is_no_policy_of_a_flow_is_refused_with_its_file_and_what_was_expected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.safetensors");
        assert!(resolved(directory.path(), "none.safetensors").unwrap_err().contains("none.json: No such file"));
        let sight = Sight {
            link: 0,
            interval: Duration::from_millis(100),
            actuator: Actuator::Rate,
            features: vec![Feature::Queue],
            history: 1,
            delay: 0,
            agents: Agents::Hosts,
        };
        let SavedFlow { policy, trained, .. } = saved();
        Saved { policy, purpose: Purpose::of(&sight), trained }.save(&path).unwrap();
        let error = resolved(directory.path(), "p.safetensors").unwrap_err();
        assert!(error.contains("p.json") && error.contains("expected the purpose of a flow's policy"), "{error}");
        for (purpose, said) in [
            (
                FlowPurpose { history: 9, ..FlowPurpose::aurora() },
                "30 numbers for 1 outputs; 9 intervals of 3 features",
            ),
            (FlowPurpose { features: vec!["queue".to_owned()], ..FlowPurpose::aurora() }, "no feature \"queue\""),
            (FlowPurpose { interval_rtts: 0.0, ..FlowPurpose::aurora() }, "interval_rtts = 0 is not between"),
        ] {
            SavedFlow { purpose, ..saved() }.save(&path).unwrap();
            let error = resolved(directory.path(), "p.safetensors").unwrap_err();
            assert!(error.contains("p.safetensors: ") && error.contains(said), "{error}; expected {said}");
        }
        let mut both: Table = "file = \"p.safetensors\"\nnetwork = {}".parse().unwrap();
        assert!(resolve(&mut both, directory.path()).unwrap_err().to_string().contains("stand without network"));
    }
}
