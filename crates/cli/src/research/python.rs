//! What Python does for this command: whether it is here, with what that takes.

use std::io;
use std::process::Command;

use crate::failure::Failure;

/// As it is found where programs are.
pub const PYTHON: &str = "python3";

/// The exit code for the first of the modules; those for the others follow.
const FIRST_MISSING: i32 = 71;

/// Whether Python has all modules: their names, and what to say where one is missing.
///
/// # Errors
///
/// What is missing, and how it comes here; `flag` is what asked for it, and `extra` the one of the module's extras that has
/// all.
pub fn require(flag: &str, extra: &str, modules: &[(&str, &str)]) -> Result<(), Failure> {
    let names: Vec<String> = modules.iter().map(|(name, _)| format!("'{name}'")).collect();
    let probe = format!(
        "import sys, importlib.util as u\n\
         sys.exit(next(({FIRST_MISSING} + place for place, name in enumerate([{}]) if u.find_spec(name) is None), 0))",
        names.join(", ")
    );
    let missing = match Command::new(PYTHON).args(["-c", &probe]).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => {
            let place = status.code().and_then(|code| usize::try_from(code - FIRST_MISSING).ok());
            match place.and_then(|place| modules.get(place)) {
                Some((_, missing)) => (*missing).to_owned(),
                None => format!("{PYTHON} does not run ({status})"),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => format!(
            "python3 is not here: install Python 3.11 or later, then pip install '.[{extra}]' in the sources of anabranch"
        ),
        Err(error) => format!("{PYTHON}: {error}"),
    };
    Err(Failure::new(format!("{flag}: {missing}")))
}
