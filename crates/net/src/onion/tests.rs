//! Where the random numbers of an onion overlay on sockets come from.

use std::fs;
use std::path::{Path, PathBuf};

/// What makes a generator, or a key, out of something.
const MAKERS: [&str; 8] = [
    "Rng::stream(",
    "Rng::indexed(",
    "Rng::seed_from_u64(",
    "Rng::from_seed(",
    "from_rng(",
    "Real::secret(",
    " User::new(",
    " Relay::new(",
];

/// What may stand there: the system's numbers, here; what was drawn from a generator that a driver has handed in, in the
/// machines.
const FROM_THE_SYSTEM: [&str; 3] = ["random_seed()", "random_secret()", "rand::make_rng()"];
const FROM_A_DRIVER: [&str; 3] = ["rng.next_u64()", "bytes(", "seed, \"total rate\""];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("it is there").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        // These are of tests alone.
        let is_of_tests = ["tests", "testing", "pitfalls"].contains(&name.as_str());
        if path.is_dir() && !is_of_tests {
            sources(&path, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") && !is_of_tests {
            found.push(path);
        }
    }
}

/// The places in `folder` that make a generator or a key, each with what it is made of.
fn made_in(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("it is read");
        let code = text.split("#[cfg(test)]\nmod tests {").next().expect("something").lines();
        for line in code.filter(|line| !line.trim_start().starts_with("//")) {
            let makes = MAKERS.iter().any(|maker| line.contains(maker));
            if makes {
                all.push(format!("{}: {}", file.display(), line.trim()));
            }
        }
    }
    all
}

/// Whoever knows a seed knows every path, key and delay that is drawn from it: on sockets nothing is drawn from a seed that
/// was not the system's, and machines draw from what their driver hands in. Only the simulator hands in seeded generators.
#[test]
fn p18_random_numbers_are_the_systems_on_sockets_and_the_drivers_in_machines() {
    for (folder, allowed, least) in [("src/onion", &FROM_THE_SYSTEM[..], 7), ("../onion/src", &FROM_A_DRIVER[..], 3)] {
        let made = made_in(folder);
        assert!(made.len() >= least, "{made:?}");
        let wrong: Vec<&String> = made.iter().filter(|line| !allowed.iter().any(|from| line.contains(from))).collect();
        assert!(wrong.is_empty(), "{folder}: {wrong:#?}");
    }
}
