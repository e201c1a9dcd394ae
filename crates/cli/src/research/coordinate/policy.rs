//! The policy that decides in the rule's place, from its files.

use std::path::Path;
use std::sync::Arc;

use anabranch_proto::coordination::config::CoordinatorConfig;
use anabranch_proto::coordination::fitness::{self, Unfit};
use anabranch_proto::coordination::policy::Learned;
use anabranch_scenario::policy::Saved;

use crate::failure::Failure;

/// The policy of the file at `path`, if hosts can be directed by it.
pub fn load(path: &Path) -> Result<Arc<Learned>, Failure> {
    let saved = Saved::load(path).map_err(|error| Failure::new(error.to_string()))?;
    let described = path.with_extension("json");
    let sight = saved.purpose.sight(0);
    let sight = sight.map_err(|error| Failure::new(format!("{}: purpose: {error}", described.display())))?;
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let learned = Learned { name, policy: saved.policy, sight };
    fitness::can_direct_hosts(&learned).map_err(|error| Failure::new(format!("{}: {error}", described.display())))?;
    Ok(Arc::new(learned))
}

/// Whether the policy of `config`, from the file at `path`, can decide for the links that `file` has.
pub fn check(path: &Path, file: &Path, config: &CoordinatorConfig) -> Result<(), Failure> {
    let Some(learned) = &config.policy else { return Ok(()) };
    fitness::check(learned, config).map_err(|error| unfit(&file.display().to_string(), path, &error))
}

/// That the policy from the file at `path` can't decide for the hosts of `whose`.
pub fn unfit(whose: &str, path: &Path, error: &Unfit) -> Failure {
    let of = match error {
        Unfit::Shape { .. } => path.to_owned(),
        _ => path.with_extension("json"),
    };
    Failure::new(format!("{whose} with {}: {error}", of.display()))
}
