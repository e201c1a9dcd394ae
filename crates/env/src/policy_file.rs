//! A policy as files: its numbers as `NAME.safetensors`, and what it is for beside them as `NAME.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::action::Actuator;
use crate::policy::{Activation, Layer, Policy, PolicyError};
use crate::spec::Spec;

/// The version of the files.
const VERSION: u32 = 1;

/// More bytes are no policy's: sixteen layers of 4096 are a quarter of it.
const MOST_BYTES: u64 = 1 << 32;

/// What a policy is for: the environment in which its numbers mean what they meant when it was trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Purpose {
    /// A host's row, by the features' names.
    pub features: Vec<String>,
    /// Observations in one.
    pub history: usize,
    /// How its rates become windows.
    pub actuator: String,
    /// Seconds between two of its actions.
    pub interval_s: f64,
}

impl Purpose {
    /// That of an environment.
    pub fn of(spec: &Spec) -> Purpose {
        let actuator = Actuator::ALL.into_iter().find(|(_, actuator)| *actuator == spec.actuator);
        Purpose {
            features: spec.features.iter().map(|feature| feature.name().to_owned()).collect(),
            history: spec.history,
            actuator: actuator.map_or("", |(name, _)| name).to_owned(),
            interval_s: spec.interval.as_secs_f64(),
        }
    }

    /// Whether it is for environments like this one.
    ///
    /// # Errors
    ///
    /// What is otherwise.
    pub fn check(&self, spec: &Spec) -> Result<(), FileError> {
        let other = Purpose::of(spec);
        let differences = [
            ("features", self.features.join(", "), other.features.join(", ")),
            ("history", self.history.to_string(), other.history.to_string()),
            ("actuator", self.actuator.clone(), other.actuator),
            ("interval_s", self.interval_s.to_string(), other.interval_s.to_string()),
        ];
        match differences.into_iter().find(|(_, own, other)| own != other) {
            Some((what, own, other)) => Err(FileError::Other { what, own, other }),
            None => Ok(()),
        }
    }
}

/// What is in the JSON file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    version: u32,
    activation: String,
    purpose: Purpose,
    /// How it came to be, for people.
    #[serde(default)]
    trained: serde_json::Value,
}

/// A policy, what it is for, and how it came to be.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    /// The network.
    pub policy: Policy,
    /// What it is for.
    pub purpose: Purpose,
    /// How it came to be, as whoever trained it says.
    pub trained: serde_json::Value,
}

/// Why there is no policy in a file, or none for this.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refuses it.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is named otherwise.
    #[error("{}: a policy's file is named NAME.safetensors, and NAME.json stands beside it", .0.display())]
    Name(PathBuf),
    /// It holds something else.
    #[error("{}: {problem}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The network is none.
    #[error("{}: {error}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// Why.
        error: PolicyError,
    },
    /// It is for other environments.
    #[error(
        "this policy was made for the {what} \"{own}\", and here is \"{other}\": its numbers would mean something else"
    )]
    Other {
        /// What is otherwise.
        what: &'static str,
        /// What the policy is for.
        own: String,
        /// What is here.
        other: String,
    },
}

fn beside(path: &Path) -> Result<PathBuf, FileError> {
    match path.extension().is_some_and(|extension| extension == "safetensors") {
        true => Ok(path.with_extension("json")),
        false => Err(FileError::Name(path.to_owned())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |source| FileError::Unreadable { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MOST_BYTES {
        let problem = format!("has {bytes} bytes; no policy has more than {MOST_BYTES}");
        return Err(FileError::Wrong { path: path.to_owned(), problem });
    }
    fs::read(path).map_err(unreadable)
}

/// A tensor of so many dimensions: its numbers and its shape.
fn tensor(all: &SafeTensors<'_>, name: &str, dimensions: usize) -> Result<(Vec<f32>, Vec<usize>), String> {
    let view = all.tensor(name).map_err(|_| format!("has no tensor \"{name}\""))?;
    if view.dtype() != Dtype::F32 || view.shape().len() != dimensions {
        let (dtype, shape) = (view.dtype(), view.shape());
        return Err(format!("tensor \"{name}\" is {dtype:?} {shape:?}, must be F32 with {dimensions} dimensions"));
    }
    let (numbers, _) = view.data().as_chunks::<4>();
    Ok((numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(), view.shape().to_vec()))
}

impl Saved {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// What the operating system says, or what in the files is no policy.
    pub fn load(path: &Path) -> Result<Saved, FileError> {
        let described = beside(path)?;
        let wrong = |path: &Path, problem: String| FileError::Wrong { path: path.to_owned(), problem };
        let description: Description =
            serde_json::from_slice(&read(&described)?).map_err(|error| wrong(&described, error.to_string()))?;
        if description.version != VERSION {
            let problem = format!("version is {}, must be {VERSION}", description.version);
            return Err(wrong(&described, problem));
        }
        let activation = Activation::named(&description.activation).ok_or_else(|| {
            let names = Activation::ALL.map(|(name, _)| name).join(", ");
            wrong(&described, format!("there is no activation \"{}\"; there are: {names}", description.activation))
        })?;
        let bytes = read(path)?;
        let all = SafeTensors::deserialize(&bytes).map_err(|error| wrong(path, error.to_string()))?;
        let mut layers = Vec::new();
        let number = |name: &str| name.strip_prefix("layers.")?.strip_suffix(".weights")?.parse::<usize>().ok();
        let count = all.names().into_iter().filter(|name| number(name).is_some()).count();
        let mut parts = || -> Result<(Vec<f32>, Vec<f32>), String> {
            for number in 0..count {
                let (weights, shape) = tensor(&all, &format!("layers.{number}.weights"), 2)?;
                let (biases, _) = tensor(&all, &format!("layers.{number}.biases"), 1)?;
                if shape[1] != biases.len() {
                    return Err(format!(
                        "layer {number} has weights for {} outputs and {} biases",
                        shape[1],
                        biases.len()
                    ));
                }
                layers.push(Layer { weights, biases });
            }
            Ok((tensor(&all, "mean", 1)?.0, tensor(&all, "deviation", 1)?.0))
        };
        let (mean, deviation) = parts().map_err(|problem| wrong(path, problem))?;
        let network = Policy::new(layers, activation, mean, deviation);
        let policy = network.map_err(|error| FileError::Network { path: path.to_owned(), error })?;
        Ok(Saved { policy, purpose: description.purpose, trained: description.trained })
    }

    /// Writes it: `path`, and the file beside it.
    ///
    /// # Errors
    ///
    /// When it is named otherwise, or the operating system refuses it.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let described = beside(path)?;
        let (mean, deviation) = self.policy.normal();
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut parts = BTreeMap::from([
            ("mean".to_owned(), (vec![mean.len()], bytes(mean))),
            ("deviation".to_owned(), (vec![deviation.len()], bytes(deviation))),
        ]);
        for (number, layer) in self.policy.layers().iter().enumerate() {
            let (weights, biases) = (&layer.weights, &layer.biases);
            let shape = vec![weights.len() / biases.len(), biases.len()];
            parts.insert(format!("layers.{number}.weights"), (shape, bytes(weights)));
            parts.insert(format!("layers.{number}.biases"), (vec![biases.len()], bytes(biases)));
        }
        let views = parts.iter().map(|(name, (shape, data))| {
            let view = TensorView::new(Dtype::F32, shape.clone(), data).expect("a shape has as many numbers");
            (name.clone(), view)
        });
        let numbers = safetensors::serialize(views, None).expect("these tensors can be written");
        let description = Description {
            version: VERSION,
            activation: self.policy.activation().name().to_owned(),
            purpose: self.purpose.clone(),
            trained: self.trained.clone(),
        };
        let text = serde_json::to_string_pretty(&description).expect("a description is JSON") + "\n";
        for (path, bytes) in [(path, numbers.as_slice()), (&described, text.as_bytes())] {
            fs::write(path, bytes).map_err(|source| FileError::Unreadable { path: path.to_owned(), source })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    fn saved() -> Saved {
        let layers = vec![
            Layer { weights: vec![0.1, -0.2, 0.3, f32::MIN_POSITIVE], biases: vec![0.5, 1.0 / 3.0] },
            Layer { weights: vec![2.0, -3.0], biases: vec![-0.0] },
        ];
        let policy = Policy::new(layers, Activation::Relu, vec![0.25, 1e-30], vec![1.5, 2.0]).unwrap();
        let spec = catalogue::find("C3-Parallel").unwrap().spec();
        Saved { policy, purpose: Purpose::of(&spec), trained: serde_json::json!({ "seed": 7 }) }
    }

    #[test]
    fn what_is_written_is_read_to_the_bit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("small.v1.safetensors");
        saved().save(&path).unwrap();
        let read = Saved::load(&path).unwrap();
        assert_eq!(read, saved());
        let bits = |saved: &Saved| -> Vec<u32> {
            saved.policy.layers().iter().flat_map(|layer| layer.biases.iter().map(|bias| bias.to_bits())).collect()
        };
        assert_eq!(bits(&read), bits(&saved()));
        let first = fs::read(&path).unwrap();
        saved().save(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first, "the same policy is the same bytes");
    }

    #[test]
    fn a_file_that_is_no_policy_is_refused_with_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.safetensors");
        let error = |path: &Path| Saved::load(path).unwrap_err().to_string();
        assert!(
            error(&dir.path().join("p.bin"))
                .ends_with("a policy's file is named NAME.safetensors, and NAME.json stands beside it")
        );
        assert!(error(&path).contains("p.json: "), "nothing is there");
        saved().save(&path).unwrap();
        let (bytes, text) = (fs::read(&path).unwrap(), fs::read_to_string(path.with_extension("json")).unwrap());
        // Every cut, and every byte that is another: an error or a policy, and never a panic.
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(error(&path).contains("p.safetensors: "), "{length}");
        }
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 0x55;
            fs::write(&path, other).unwrap();
            let _ = Saved::load(&path);
        }
        fs::write(&path, &bytes).unwrap();
        for (from, to, said) in [
            ("\"version\": 1", "\"version\": 2", "version is 2, must be 1"),
            ("relu", "gelu", "there are: tanh, relu"),
            ("\"history\"", "\"histori\"", "unknown field `histori`"),
        ] {
            fs::write(path.with_extension("json"), text.replace(from, to)).unwrap();
            assert!(error(&path).contains(said), "{}", error(&path));
        }
    }

    #[test]
    fn a_policy_for_another_environment_says_what_is_otherwise() {
        let spec = || catalogue::find("C3-Parallel").unwrap().spec();
        let purpose = Purpose::of(&spec());
        assert!(purpose.check(&spec()).is_ok());
        let said = |spec: Spec| purpose.check(&spec).unwrap_err().to_string();
        let cross = said(catalogue::find("C3-Cross").unwrap().spec());
        assert!(cross.starts_with("this policy was made for the features \"throughput, queue"), "{cross}");
        assert!(said(Spec { history: 2, ..spec() }).contains("history \"1\", and here is \"2\""));
        assert!(said(Spec { actuator: Actuator::Rate, ..spec() }).contains("actuator \"fixed\", and here is \"rate\""));
        let slow = Spec { interval: anabranch_control::time::Duration::from_millis(200), ..spec() };
        assert!(said(slow).contains("interval_s \"0.1\", and here is \"0.2\""));
    }
}
