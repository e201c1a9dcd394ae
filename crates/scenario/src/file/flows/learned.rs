//! The policy of a coordinator that has learned: from a file, or whole as a scenario is written.

use std::path::Path;

use super::super::error::{Problem, is_option};
use super::super::shape::{Either, Said, keys, said};
use crate::flows::{FlowScenario, Learned};
use crate::policy::file::PartError;
use crate::policy::{Saved, SightError, agents_of, check_in};

/// A file's name, or all that is in it.
pub type Policy = Either<String, PolicyKeys>;

keys! {
    /// What a policy's files hold.
    pub struct PolicyKeys {
        name: Said<String>,
        about: Said<String>,
        numbers: Said<String>,
    }
}

impl Said<Policy> {
    /// The policy, over the link with the number `link`. A relative path begins in `directory`, or where the program runs
    /// if an option says it.
    pub fn learned(&self, link: usize, scenario: &FlowScenario, directory: &Path) -> Result<Learned, Problem> {
        let (name, saved) = match &**self {
            Either::Plain(file) => {
                let path = if is_option(&self.span()) { Path::new(file).to_owned() } else { directory.join(file) };
                (file.clone(), Saved::load(&path).map_err(|error| self.wrong(error.to_string()))?)
            }
            Either::Table(keys) => (keys.name.to_string(), keys.saved()?),
        };
        let wrong = |problem: String| self.wrong(format!("{name}: {problem}"));
        let sight = saved.purpose.sight(link).map_err(|error| wrong(error.to_string()))?;
        if let Some(hidden) = sight.features.iter().find(|feature| !feature.is_deployable()) {
            let problem =
                format!("sees \"{}\", which no coordinator can know; expected one that does not", hidden.name());
            return Err(wrong(problem));
        }
        if !scenario.flows.iter().any(|flow| flow.steered) {
            return Err(wrong("it steers nobody; expected steered = true in a [[flow]]".to_owned()));
        }
        check_in(&sight, scenario).map_err(|error| match error {
            SightError::NoHost(link) => wrong(format!("no flow that is steered passes link \"{link}\"")),
            error => wrong(error.to_string()),
        })?;
        let (agents, features) = (agents_of(sight.agents, scenario, link).len(), sight.features.len());
        let reading = saved.policy.reading(agents, features, sight.history);
        let reading = reading.map_err(|error| wrong(error.to_string()))?;
        Ok(Learned { name, saved, sight, reading })
    }
}

impl PolicyKeys {
    fn saved(&self) -> Result<Saved, Problem> {
        let numbers =
            bytes(&self.numbers).ok_or_else(|| self.numbers.wrong("expected hexadecimal digits, two a byte"))?;
        Saved::decode(self.about.as_bytes(), &numbers).map_err(|error| match error {
            PartError::Description(problem) => self.about.wrong(problem),
            PartError::Numbers(problem) => self.numbers.wrong(problem),
        })
    }
}

/// All of it, whatever file it came from: the text says all that is run.
pub fn written(learned: &Learned) -> Policy {
    let (about, numbers) = learned.saved.encode();
    let numbers = numbers.iter().map(|byte| format!("{byte:02x}")).collect();
    Either::Table(PolicyKeys { name: said(learned.name.clone()), about: said(about), numbers: said(numbers) })
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = digits.chars().map(|digit| digit.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high << 4 | low) as u8).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use anabranch_control::policy::{Activation, Layer, Policy};
    use anabranch_control::time::Duration;

    use super::super::tests::assert_comes_back;
    use crate::file::{AnyScenario, Override, read_any};
    use crate::flows::FlowScenario;
    use crate::policy::file::Purpose;
    use crate::policy::{Actuator, Agents, Feature, Saved, Sight};

    const TEXT: &str = "[run]\nseconds = 10\n[dumbbell]\npairs = 2\nrate = \"5 Mbit/s\"\ndelay_ms = 10\n\
                        access_rate = \"50 Mbit/s\"\naccess_delay_ms = 1\n\
                        [[flow]]\nname = \"f{i}\"\ncount = 2\ncontroller = \"cubic\"\nsteered = true\n\
                        [steering]\nlink = \"bottleneck\"\npolicy = \"p.safetensors\"\n";

    fn saved(features: &[Feature], inputs: usize) -> Saved {
        let layers = vec![Layer { weights: vec![0.25; inputs], biases: vec![0.5] }];
        let policy = Policy::new(layers, Activation::Tanh, vec![0.0; inputs], vec![1.0; inputs]).unwrap();
        let sight = Sight {
            link: 0,
            interval: Duration::from_millis(50),
            actuator: Actuator::Rate,
            features: features.to_vec(),
            history: 1,
            delay: 0,
            agents: Agents::Hosts,
        };
        let policy = policy.with_known(vec![0.0; inputs], vec![1.0; inputs]).unwrap();
        Saved { policy, purpose: Purpose::of(&sight), trained: serde_json::json!({ "by": "a \"test\"\n" }) }
    }

    fn read(directory: &Path, text: &str, overrides: &[Override]) -> Result<FlowScenario, String> {
        let path = directory.join("s.toml");
        fs::write(&path, text).unwrap();
        match read_any(&path, overrides) {
            Ok(AnyScenario::Flows(scenario)) => Ok(scenario),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_policy_is_read_from_its_file_and_what_is_written_needs_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let made = saved(&[Feature::Queue, Feature::Active], 2);
        made.save(&directory.path().join("p.safetensors")).unwrap();
        let scenario = read(directory.path(), TEXT, &[]).unwrap();
        let steering = scenario.steering.as_ref().unwrap();
        assert_eq!(steering.every, Duration::from_millis(50), "the policy says it");
        let learned = steering.policy.as_ref().unwrap();
        assert_eq!((&learned.saved, learned.name.as_str()), (&made, "p.safetensors"));
        assert_comes_back(&scenario);
        let path = directory.path().join("p.safetensors");
        let set = Override::set(&format!("steering.policy={}", path.display())).unwrap();
        let other = read(directory.path(), &TEXT.replace("p.safetensors", "none"), &[set]).unwrap();
        assert_eq!(other.steering.unwrap().policy.unwrap().saved, made);
    }

    #[test]
    fn what_can_not_steer_is_refused_with_the_file_the_key_and_what_was_expected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("p.safetensors");
        let refused = |text: &str| read(directory.path(), text, &[]).unwrap_err();
        let holds = |error: String, parts: &[&str]| {
            parts.iter().for_each(|part| assert!(error.contains(part), "expected {part}\n     got {error}"));
        };
        let key = "s.toml:16:1: steering.policy = \"p.safetensors\": ";
        holds(refused(TEXT), &[key, "p.json: No such file"]);
        holds(refused(&TEXT.replace("p.safetensors", "p.bin")), &["a policy's file is named NAME.safetensors"]);
        // Three inputs, and two features.
        saved(&[Feature::Queue, Feature::Active], 3).save(&path).unwrap();
        holds(refused(TEXT), &[key, "makes 1 rates of 3 numbers", "a policy for it makes 1 rate of 2, or 2 of 4"]);
        saved(&[Feature::CrossNext], 1).save(&path).unwrap();
        holds(refused(TEXT), &[key, "sees \"cross_next\", which no coordinator can know"]);
        saved(&[Feature::Queue], 1).save(&path).unwrap();
        let json = fs::read_to_string(path.with_extension("json")).unwrap();
        fs::write(path.with_extension("json"), json.replace("queue", "goodput")).unwrap();
        holds(refused(TEXT), &[key, "there is no feature \"goodput\"; there are: throughput"]);
        fs::write(path.with_extension("json"), json).unwrap();
        let numbers = fs::read(&path).unwrap();
        fs::write(&path, b"no tensors").unwrap();
        holds(refused(TEXT), &[key, "p.safetensors: is no safetensors file"]);
        // The last four bytes are a number of the last tensor.
        let mut nan = numbers.clone();
        let at = nan.len() - 4;
        nan[at..].copy_from_slice(&f32::NAN.to_le_bytes());
        fs::write(&path, nan).unwrap();
        holds(refused(TEXT), &[key, "p.safetensors: a number of most is NaN, must be a number"]);
        fs::write(&path, numbers).unwrap();
        assert!(read(directory.path(), TEXT, &[]).is_ok());
        holds(refused(&format!("{TEXT}every_ms = 100\n")), &["steering.every_ms", "made to decide every 50 ms"]);
        assert!(read(directory.path(), &format!("{TEXT}every_ms = 50\n"), &[]).is_ok());
        holds(
            refused(&format!("{TEXT}expected = \"last-period\"\n")),
            &["steering.expected", "the policy decides by what it sees"],
        );
        holds(refused(&format!("{TEXT}actuator = \"fixed\"\n")), &["steering.actuator", "(\"rate\"); take this out"]);
        holds(refused(&TEXT.replace("seconds = 10", "seconds = 0.04")), &[key, "interval in seconds is 0.05"]);
        let without = TEXT.replace("policy = \"p.safetensors\"\n", "");
        holds(refused(&without), &["every_ms", "or a policy, which says it"]);
        holds(refused(&TEXT.replace("steered = true", "")), &[key, "it steers nobody"]);
        let back = TEXT.replace("\"bottleneck\"", "\"bottleneck-back\"");
        holds(refused(&back), &[key, "no flow that is steered passes link \"bottleneck-back\""]);
    }
}
