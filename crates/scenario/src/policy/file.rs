//! A policy as files: its numbers as `NAME.safetensors`, and what it is for beside them as `NAME.json`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempPath;

use anabranch_control::policy::{Activation, Cell, Layer, Policy};

use super::{Actuator, Agents, Feature, Sight, SightError, sight};

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
    /// Steps that an observation is late.
    #[serde(default)]
    pub delay: usize,
    /// Whose rows and rates these are; not written where they are hosts'.
    #[serde(default = "hosts", skip_serializing_if = "are_hosts")]
    pub agents: String,
}

fn hosts() -> String {
    Agents::Hosts.name().to_owned()
}

fn are_hosts(agents: &str) -> bool {
    agents == Agents::Hosts.name()
}

impl Purpose {
    /// That of who sees this.
    pub fn of(sight: &Sight) -> Purpose {
        Purpose {
            features: sight.features.iter().map(|feature| feature.name().to_owned()).collect(),
            history: sight.history,
            actuator: sight.actuator.name().to_owned(),
            interval_s: sight.interval.as_secs_f64(),
            delay: sight.delay,
            agents: sight.agents.name().to_owned(),
        }
    }

    /// What is seen, over the link with the number `link`.
    ///
    /// # Errors
    ///
    /// A name that nothing has, or a number out of its range.
    pub fn sight(&self, link: usize) -> Result<Sight, SightError> {
        let features = Feature::all_named(&self.features)?;
        let actuator = Actuator::named(&self.actuator).ok_or_else(|| SightError::actuator(&self.actuator))?;
        let interval = sight::interval(self.interval_s)?;
        let agents = Agents::named(&self.agents).ok_or_else(|| SightError::agents(&self.agents))?;
        let sight = Sight { link, interval, actuator, features, history: self.history, delay: self.delay, agents };
        sight.check().map(|()| sight)
    }

    /// Whether it is for who sees this.
    ///
    /// # Errors
    ///
    /// What is otherwise.
    pub fn check(&self, sight: &Sight) -> Result<(), FileError> {
        let other = Purpose::of(sight);
        let differences = [
            ("features", self.features.join(", "), other.features.join(", ")),
            ("history", self.history.to_string(), other.history.to_string()),
            ("actuator", self.actuator.clone(), other.actuator),
            ("interval_s", self.interval_s.to_string(), other.interval_s.to_string()),
            ("delay", self.delay.to_string(), other.delay.to_string()),
            ("agents", self.agents.clone(), other.agents),
        ];
        FileError::first_of(differences)
    }
}

/// What is in the JSON file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description<P> {
    version: u32,
    activation: String,
    purpose: P,
    /// How it came to be, for people.
    #[serde(default)]
    trained: serde_json::Value,
}

/// A policy, what it is for, and how it came to be. `P` says whether it steers hosts or is one flow's.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedFor<P> {
    /// The network.
    pub policy: Policy,
    /// What it is for.
    pub purpose: P,
    /// How it came to be, as whoever trained it says.
    pub trained: serde_json::Value,
}

/// Why there is no policy in a file, or none for this.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refuses it.
    #[error("{}: {source}", path.display())]
    System {
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

impl FileError {
    /// The first of these pairs, of what a policy is for and what is here, that differs.
    pub(super) fn first_of<const N: usize>(pairs: [(&'static str, String, String); N]) -> Result<(), FileError> {
        match pairs.into_iter().find(|(_, own, other)| own != other) {
            Some((what, own, other)) => Err(FileError::Other { what, own, other }),
            None => Ok(()),
        }
    }
}

fn beside(path: &Path) -> Result<PathBuf, FileError> {
    match path.extension().is_some_and(|extension| extension == "safetensors") {
        true => Ok(path.with_extension("json")),
        false => Err(FileError::Name(path.to_owned())),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let unreadable = |source| FileError::System { path: path.to_owned(), source };
    let bytes = fs::metadata(path).map_err(unreadable)?.len();
    if bytes > MOST_BYTES {
        let problem = format!("has {bytes} bytes; no policy has more than {MOST_BYTES}");
        return Err(FileError::Wrong { path: path.to_owned(), problem });
    }
    fs::read(path).map_err(unreadable)
}

/// A tensor of this many dimensions: its numbers and its shape.
fn tensor(all: &SafeTensors<'_>, name: &str, dimensions: usize) -> Result<(Vec<f32>, Vec<usize>), String> {
    let view = all.tensor(name).map_err(|_| format!("has no tensor \"{name}\""))?;
    if view.dtype() != Dtype::F32 || view.shape().len() != dimensions {
        let (dtype, shape) = (view.dtype(), view.shape());
        return Err(format!("tensor \"{name}\" is {dtype:?} {shape:?}, must be F32 with {dimensions} dimensions"));
    }
    let (numbers, _) = view.data().as_chunks::<4>();
    Ok((numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(), view.shape().to_vec()))
}

/// What is wrong, and in which part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartError {
    /// In what it is for.
    Description(String),
    /// In its numbers.
    Numbers(String),
}

/// A policy that steers hosts.
pub type Saved = SavedFor<Purpose>;

impl<P: Clone + Serialize + DeserializeOwned> SavedFor<P> {
    /// Reads it from what is in its files: what it is for, and its numbers.
    ///
    /// # Errors
    ///
    /// What in them is no policy.
    pub fn decode(description: &[u8], numbers: &[u8]) -> Result<SavedFor<P>, PartError> {
        let description: Description<P> =
            serde_json::from_slice(description).map_err(|error| PartError::Description(error.to_string()))?;
        if description.version != VERSION {
            let problem = format!("version is {}, must be {VERSION}", description.version);
            return Err(PartError::Description(problem));
        }
        let activation = Activation::named(&description.activation).ok_or_else(|| {
            let names = Activation::ALL.map(|(name, _)| name).join(", ");
            let problem = format!("there is no activation \"{}\"; there are: {names}", description.activation);
            PartError::Description(problem)
        })?;
        let policy = network(numbers, activation).map_err(PartError::Numbers)?;
        Ok(SavedFor { policy, purpose: description.purpose, trained: description.trained })
    }

    /// What stands in its files: what it is for, and its numbers. The same policy is the same bytes.
    pub fn encode(&self) -> (String, Vec<u8>) {
        let (mean, deviation) = self.policy.normal();
        let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let mut parts = BTreeMap::new();
        let mut vectors = vec![("mean", mean), ("deviation", deviation)];
        if let Some((least, most)) = self.policy.known() {
            vectors.extend([("least", least), ("most", most)]);
        }
        for (name, vector) in vectors {
            parts.insert(name.to_owned(), (vec![vector.len()], bytes(vector)));
        }
        let layers = self.policy.layers().iter().enumerate().map(|(number, layer)| (format!("layers.{number}"), layer));
        let cell = self.policy.cell().into_iter();
        let cells =
            cell.flat_map(|cell| [("cell.inputs".to_owned(), &cell.inputs), ("cell.state".to_owned(), &cell.state)]);
        for (name, layer) in layers.chain(cells) {
            let (weights, biases) = (&layer.weights, &layer.biases);
            let shape = vec![weights.len() / biases.len(), biases.len()];
            parts.insert(format!("{name}.weights"), (shape, bytes(weights)));
            parts.insert(format!("{name}.biases"), (vec![biases.len()], bytes(biases)));
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
        (text, numbers)
    }

    /// Reads it.
    ///
    /// # Errors
    ///
    /// What the operating system says, or what in the files is no policy.
    pub fn load(path: &Path) -> Result<SavedFor<P>, FileError> {
        let described = beside(path)?;
        let (description, numbers) = (read(&described)?, read(path)?);
        SavedFor::decode(&description, &numbers).map_err(|error| match error {
            PartError::Description(problem) => FileError::Wrong { path: described, problem },
            PartError::Numbers(problem) => FileError::Wrong { path: path.to_owned(), problem },
        })
    }

    /// Writes it: `path`, and the file beside it. Both are whole before either replaces what was there.
    ///
    /// # Errors
    ///
    /// When it is named otherwise, or the operating system refuses it.
    pub fn save(&self, path: &Path) -> Result<(), FileError> {
        let described = beside(path)?;
        let (text, numbers) = self.encode();
        let files = [(path, numbers.as_slice()), (described.as_path(), text.as_bytes())];
        let failed = |path: &Path, source| FileError::System { path: path.to_owned(), source };
        let staged = files.map(|(path, bytes)| Ok((path, stage(path, bytes).map_err(|source| failed(path, source))?)));
        for (path, temporary) in staged.into_iter().collect::<Result<Vec<_>, FileError>>()?.into_iter().rev() {
            temporary.persist(path).map_err(|error| failed(path, error.error))?;
        }
        Ok(())
    }
}

/// A whole file beside `path`, under a name of its own.
fn stage(path: &Path, bytes: &[u8]) -> io::Result<TempPath> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".unfinished-");
    // As any file: what the user's mask leaves.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

/// The network with these numbers.
fn network(bytes: &[u8], activation: Activation) -> Result<Policy, String> {
    let all = SafeTensors::deserialize(bytes).map_err(|error| format!("is no safetensors file: {error}"))?;
    let number = |name: &str| name.strip_prefix("layers.")?.strip_suffix(".weights")?.parse::<usize>().ok();
    let count = all.names().into_iter().filter(|name| number(name).is_some()).count();
    let layer = |name: &str, called: &str| {
        let (weights, shape) = tensor(&all, &format!("{name}.weights"), 2)?;
        let (biases, _) = tensor(&all, &format!("{name}.biases"), 1)?;
        match shape[1] == biases.len() {
            true => Ok(Layer { weights, biases }),
            false => Err(format!("{called} has weights for {} outputs and {} biases", shape[1], biases.len())),
        }
    };
    let layers = (0..count).map(|number| layer(&format!("layers.{number}"), &format!("layer {number}")));
    let layers = layers.collect::<Result<Vec<_>, _>>()?;
    let (mean, deviation) = (tensor(&all, "mean", 1)?.0, tensor(&all, "deviation", 1)?.0);
    let policy = if all.names().into_iter().any(|name| name.starts_with("cell.")) {
        let cell = Cell { inputs: layer("cell.inputs", "cell.inputs")?, state: layer("cell.state", "cell.state")? };
        Policy::recurrent(cell, layers, activation, mean, deviation)
    } else {
        Policy::new(layers, activation, mean, deviation)
    };
    let policy = policy.map_err(|error| error.to_string())?;
    if !all.names().into_iter().any(|name| name == "least" || name == "most") {
        return Ok(policy);
    }
    let (least, most) = (tensor(&all, "least", 1)?.0, tensor(&all, "most", 1)?.0);
    policy.with_known(least, most).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use anabranch_control::time::Duration;

    use super::*;

    fn sight() -> Sight {
        Sight {
            link: 0,
            interval: Duration::from_millis(100),
            actuator: Actuator::Fixed,
            features: Feature::C3.to_vec(),
            history: 1,
            delay: 0,
            agents: Agents::Hosts,
        }
    }

    fn saved() -> Saved {
        let layers = vec![
            Layer { weights: vec![0.1, -0.2, 0.3, f32::MIN_POSITIVE], biases: vec![0.5, 1.0 / 3.0] },
            Layer { weights: vec![2.0, -3.0], biases: vec![-0.0] },
        ];
        let policy = Policy::new(layers, Activation::Relu, vec![0.25, 1e-30], vec![1.5, 2.0]).unwrap();
        let policy = policy.with_known(vec![-1.0, 0.0], vec![0.1, 1e30]).unwrap();
        Saved { policy, purpose: Purpose::of(&sight()), trained: serde_json::json!({ "seed": 7 }) }
    }

    #[test]
    fn a_policy_that_remembers_comes_back_to_the_bit_and_files_without_are_as_they_were() {
        let layer = |inputs: usize, outputs: usize| {
            let weights = (0..inputs * outputs).map(|at| 0.1 * at as f32 - 1.0 / 3.0).collect();
            Layer { weights, biases: vec![0.25; outputs] }
        };
        let cell = Cell { inputs: layer(2, 9), state: layer(3, 9) };
        let layers = vec![layer(3, 1)];
        let policy = Policy::recurrent(cell, layers, Activation::Tanh, vec![0.0; 2], vec![1.0; 2]).unwrap();
        let purpose = Purpose { agents: "domains".to_owned(), ..Purpose::of(&sight()) };
        let saved = Saved { policy, purpose, ..saved() };
        let (text, numbers) = saved.encode();
        assert_eq!(Saved::decode(text.as_bytes(), &numbers), Ok(saved.clone()));
        assert!(text.contains("\"agents\": \"domains\""));
        let plain = Saved { purpose: Purpose::of(&sight()), ..saved };
        assert!(!plain.encode().0.contains("agents"), "who are hosts is not said");
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
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else stays");
    }

    #[test]
    fn the_numbers_that_were_there_stay_where_what_describes_others_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.safetensors");
        fs::write(&path, "of before").unwrap();
        fs::create_dir(path.with_extension("json")).unwrap();
        let said = saved().save(&path).unwrap_err().to_string();
        assert!(said.contains("p.json: "), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "of before");
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
        let purpose = Purpose::of(&sight());
        assert!(purpose.check(&sight()).is_ok());
        let said = |other: Sight| purpose.check(&other).unwrap_err().to_string();
        let cross = said(Sight { features: vec![Feature::Queue], ..sight() });
        assert!(cross.starts_with("this policy was made for the features \"throughput, queue"), "{cross}");
        assert!(said(Sight { history: 2, ..sight() }).contains("history \"1\", and here is \"2\""));
        assert!(
            said(Sight { actuator: Actuator::Rate, ..sight() }).contains("actuator \"fixed\", and here is \"rate\"")
        );
        assert!(said(Sight { delay: 3, ..sight() }).contains("delay \"0\", and here is \"3\""));
        let slow = Sight { interval: Duration::from_millis(200), ..sight() };
        assert!(said(slow).contains("interval_s \"0.1\", and here is \"0.2\""));
        let domains = said(Sight { agents: Agents::Domains, ..sight() });
        assert!(domains.contains("agents \"hosts\", and here is \"domains\""), "{domains}");
    }

    #[test]
    fn what_it_is_for_is_what_is_seen_or_says_why_not() {
        assert_eq!(Purpose::of(&sight()).sight(0), Ok(sight()));
        let refused = |purpose: Purpose| purpose.sight(0).unwrap_err().to_string();
        let purpose = || Purpose::of(&sight());
        let unknown = refused(Purpose { features: vec!["goodput".into()], ..purpose() });
        assert!(unknown.starts_with("there is no feature \"goodput\"; there are: throughput, queue"), "{unknown}");
        let actuator = refused(Purpose { actuator: "pace".into(), ..purpose() });
        assert_eq!(actuator, "there is no actuator \"pace\"; there are: fixed, bounded, rate, share, lent, initial");
        let agents = refused(Purpose { agents: "groups".into(), ..purpose() });
        assert_eq!(agents, "there is no agents \"groups\"; there are: hosts, domains");
        let windows = Purpose { agents: "domains".into(), actuator: "initial".into(), ..purpose() };
        assert!(refused(windows).starts_with("sub-domains divide rates"));
        assert_eq!(refused(Purpose { history: 0, ..purpose() }), "history is 0, must be from 1 to 64");
        for interval_s in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e300] {
            let interval = refused(Purpose { interval_s, ..purpose() });
            assert!(interval.starts_with("interval in seconds is"), "{interval}");
        }
    }
}
