//! `anabranch sweep --ray`: the module of Python drives Ray's workers, over the same code and into the same files.

use std::ffi::OsString;
use std::process::Command;

use anabranch_lab::VERSION;

use super::Args;
use crate::failure::Failure;
use crate::research::python::{PYTHON, require};

/// What Python needs for it, and what to say where it is missing.
const NEEDS: [(&str, &str); 2] = [
    ("anabranch", "the module of anabranch is not installed for python3: pip install '.[ray]' in its sources"),
    ("ray", "Ray is not installed for python3: pip install ray"),
];

/// Hands the sweep over; where this process can be replaced, it is, so that Ctrl-C and the exit code are the driver's.
pub fn run(args: &Args, address: Option<&str>) -> Result<(), Failure> {
    require("--ray", "ray", &NEEDS)?;
    hand_over(Command::new(PYTHON).args(["-m", "anabranch.sweep"]).args(arguments(args, address)))
}

/// The arguments of the driver. It refuses to measure what this version would measure otherwise.
fn arguments(args: &Args, address: Option<&str>) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec![args.scenario.clone().into(), "--out".into(), args.out.clone().into()];
    for key in &args.grid {
        all.extend(["--grid".into(), format!("{}={}", key.key, key.values.join(",")).into()]);
    }
    for set in &args.set {
        all.extend(["--set".into(), set.into()]);
    }
    if let Some(seeds) = &args.seeds {
        // They follow one another: the command takes no others.
        let (first, last) = (seeds.0.first().copied().unwrap_or(1), seeds.0.last().copied().unwrap_or(1));
        all.extend(["--seeds".into(), format!("{first}..{last}").into()]);
    }
    if let Some(threads) = args.threads {
        all.extend(["--threads".into(), threads.to_string().into()]);
    }
    all.extend(
        [(args.again, "--again"), (args.json, "--json")].into_iter().filter(|one| one.0).map(|one| one.1.into()),
    );
    all.extend(["--made-by".into(), VERSION.into()]);
    if let Some(address) = address {
        all.extend(["--ray".into(), address.into()]);
    }
    all
}

#[cfg(unix)]
fn hand_over(command: &mut Command) -> Result<(), Failure> {
    use std::os::unix::process::CommandExt;
    Err(Failure::new(format!("--ray: {PYTHON}: {}", command.exec())))
}

#[cfg(not(unix))]
fn hand_over(command: &mut Command) -> Result<(), Failure> {
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("--ray: {status}"))) }
}
