//! Where trained policies come from: the repository's, or a folder that `python -m anabranch.train.c3` has filled.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use anabranch_env::policy_file::{PartError, Saved};
use include_dir::{Dir, include_dir};

use crate::{ExperimentError, FlowLab};

/// The repository's, which are part of the program.
static OWN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../policies");

/// The folder that holds an experiment's, or one of its variants'.
pub struct Policies<'a> {
    lab: &'a FlowLab,
    /// Under the root: the experiment's name, and the variant's.
    folder: PathBuf,
}

impl<'a> Policies<'a> {
    /// Those of `experiment`, of the `variant` if it has several; another experiment may use them, too.
    pub fn of(lab: &'a FlowLab, experiment: &str, variant: &str) -> Policies<'a> {
        let mut folder = PathBuf::from(experiment);
        // An empty part would end the path with a separator, which the repository's own have not.
        if !variant.is_empty() {
            folder.push(variant);
        }
        Policies { lab, folder }
    }

    /// A file's bytes; none if there is no such file.
    fn bytes(&self, path: &Path) -> Result<Option<Vec<u8>>, ExperimentError> {
        let Some(root) = &self.lab.policies else {
            return Ok(OWN.get_file(path).map(|file| file.contents().to_vec()));
        };
        let own = || OWN.get_file(path).map(|file| file.contents().to_vec());
        match std::fs::read(root.join(path)) {
            Ok(bytes) => Ok(Some(bytes)),
            // A folder that was filled for one experiment has not what that takes from another.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(if self.folder.starts_with(self.lab.id) { None } else { own() })
            }
            Err(error) => Err(self.wrong(path, error)),
        }
    }

    fn wrong(&self, path: &Path, problem: impl Display) -> ExperimentError {
        let root = self.lab.policies.clone().unwrap_or_else(|| PathBuf::from("policies"));
        ExperimentError::Policy(format!("{}: {problem}", root.join(path).display()))
    }

    /// The policy `name` of the training with that seed; none if there is none.
    pub fn find(&self, seed: u64, name: &str) -> Result<Option<Saved>, ExperimentError> {
        let numbers = self.folder.join(format!("seed-{seed}")).join(format!("{name}.safetensors"));
        let description = numbers.with_extension("json");
        let Some(of_numbers) = self.bytes(&numbers)? else { return Ok(None) };
        let Some(of_description) = self.bytes(&description)? else {
            return Err(self.wrong(&description, "is missing; it says what the numbers beside it are for"));
        };
        Saved::decode(&of_description, &of_numbers).map(Some).map_err(|error| match error {
            PartError::Description(problem) => self.wrong(&description, problem),
            PartError::Numbers(problem) => self.wrong(&numbers, problem),
        })
    }

    /// What the trainings of the seeds 1, 2, ... ended with, as many as there are, and at most `most`.
    ///
    /// # Errors
    ///
    /// When there is none, or a file is no policy.
    pub fn trained(&self, most: u64) -> Result<Vec<Saved>, ExperimentError> {
        let mut all = Vec::new();
        for seed in 1..=most {
            match self.find(seed, "policy")? {
                Some(policy) => all.push(policy),
                None => break,
            }
        }
        if all.is_empty() {
            let id = self.folder.iter().next().unwrap_or_default().display();
            let missing = self.folder.join("seed-1").join("policy.safetensors");
            let problem = format!("is missing; `python -m anabranch.train.c3 {id} --out DIR` makes it");
            return Err(self.wrong(&missing, problem));
        }
        Ok(all)
    }

    /// The learning curve of the training with that seed, where it was kept: steps, and the reward of one.
    pub fn curve(&self, seed: u64) -> Result<Vec<(f64, f64)>, ExperimentError> {
        let path = self.folder.join(format!("seed-{seed}")).join("curve.csv");
        let Some(bytes) = self.bytes(&path)? else { return Ok(Vec::new()) };
        let mut rows = csv::Reader::from_reader(&*bytes);
        let point = |row: Result<(f64, f64, f64), csv::Error>| row.map(|(steps, reward, _)| (steps, reward));
        rows.deserialize().map(point).collect::<Result<_, _>>().map_err(|error| self.wrong(&path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::Carrier;
    use crate::{Request, find};

    fn lab(id: &str, policies: Option<PathBuf>) -> FlowLab {
        FlowLab::new_flows(&find(id).unwrap().folder(), Carrier::Kernel, &Request { policies, ..Request::default() })
            .unwrap()
    }

    #[test]
    fn each_experiment_that_plays_policies_has_some() {
        for experiment in crate::EXPERIMENTS.iter().filter(|experiment| experiment.is_learned()) {
            let lab = lab(experiment.id, None);
            let variants: &[&str] = match experiment.id {
                "c3-cross-learned" => &["100-ms", "20-ms", "expects-100-ms", "expects-20-ms"],
                "c3-delayed" => &["", "told", "expects"],
                _ => &[""],
            };
            for variant in variants {
                let trained = Policies::of(&lab, experiment.id, variant).trained(100).unwrap();
                assert!(trained.len() >= 3, "{} {variant}: {}", experiment.id, trained.len());
            }
        }
    }

    #[test]
    fn a_folder_of_ones_own_must_have_what_it_is_for_and_may_leave_out_what_is_anothers() {
        let lab = lab("c3-delayed", Some(PathBuf::from("nowhere")));
        let missing = Policies::of(&lab, "c3-delayed", "").trained(3).unwrap_err().to_string();
        assert!(missing.contains("seed-1") && missing.contains("anabranch.train.c3 c3-delayed --out DIR"), "{missing}");
        assert_eq!(Policies::of(&lab, "c3-cross-learned", "100-ms").trained(3).unwrap().len(), 3);
    }

    #[test]
    fn curves_are_read_as_they_were_written() {
        let lab = lab("c3-scenario-1", None);
        let policies = Policies::of(&lab, "c3-scenario-1", "");
        let curve = policies.curve(1).unwrap();
        assert_eq!((curve.len(), curve[0].0, curve[499].0), (500, 1000.0, 500_000.0));
        assert!(policies.curve(99).unwrap().is_empty());
    }
}
