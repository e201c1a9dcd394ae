//! Fuzz targets, their corpus, and a short run of them that any compiler can do: each input of the corpus is changed a
//! fixed number of times by a seeded generator.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_control::rng::Rng;

/// Mutations of each target's corpus in an ordinary test run, if one costs little.
const ITERATIONS: usize = 20_000;

/// A fuzz target.
#[derive(Debug)]
pub struct Target {
    /// Its name, which is that of its corpus' folder.
    pub name: &'static str,
    /// Panics if something does not hold of an input that must hold of any.
    pub check: fn(&[u8]),
    /// How many inputs of a target that only decodes cost as much as one.
    pub cost: usize,
    /// Inputs that the formats give, by name.
    pub own: Vec<(String, Vec<u8>)>,
}

impl Target {
    fn folder(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(self.name)
    }

    /// Checks that the corpus has what the formats give, or writes it there if `UPDATE_CORPUS` is set.
    pub fn check_corpus(&self) {
        let (folder, name) = (self.folder(), self.name);
        let updates = std::env::var_os("UPDATE_CORPUS").is_some();
        assert!(!self.own.is_empty(), "{name}");
        for (own, bytes) in &self.own {
            if updates {
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join(own), bytes).unwrap();
            }
            let kept = fs::read(folder.join(own)).unwrap_or_default();
            assert!(kept == *bytes, "fuzz/corpus/{name}/{own} is old: write it anew with UPDATE_CORPUS=1");
        }
    }

    /// Checks the corpus, and what [`mutate`] makes of it.
    pub fn run(&self) {
        self.run_changed(mutate);
    }

    /// The same, of what `change` makes of it.
    pub fn run_changed(&self, change: impl Fn(&mut Vec<u8>, &[Vec<u8>], &mut Rng)) {
        let mut inputs: Vec<Vec<u8>> = self.own.iter().map(|(_, bytes)| bytes.clone()).collect();
        // What a fuzzer has found before is tried again.
        for entry in fs::read_dir(self.folder()).unwrap() {
            inputs.push(fs::read(entry.unwrap().path()).unwrap());
        }
        Run::asked_for().of(self, &inputs, change);
    }
}

/// Changes a byte, drops or adds one, cuts the input short, or goes on as another of
/// `inputs` does.
pub fn mutate(input: &mut Vec<u8>, inputs: &[Vec<u8>], rng: &mut Rng) {
    const EDGES: [u8; 8] = [0, 1, 4, 6, 7, 8, 0x7f, 0xff];
    let place = rng.below(input.len() + 1);
    match rng.below(6) {
        0 => input.truncate(place),
        1 => input.insert(place, rng.bits() as u8),
        2 if place < input.len() => input[place] ^= 1 << rng.below(8),
        3 if place < input.len() => input[place] = EDGES[rng.below(EDGES.len())],
        4 if place < input.len() => {
            input.remove(place);
        }
        _ => {
            // The end of another input behind the beginning of this one.
            let other = &inputs[rng.below(inputs.len())];
            input.truncate(place);
            input.extend_from_slice(&other[rng.below(other.len() + 1)..]);
        }
    }
}

/// How long a run is and what it is of: in an ordinary test run the same each time. `FUZZ_ITERATIONS`
/// makes it longer, `FUZZ_SEED` another one, `FUZZ_TARGET` has it leave all other targets out.
struct Run {
    iterations: usize,
    seed: u64,
    target: Option<String>,
}

impl Run {
    fn asked_for() -> Run {
        let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number is expected"));
        Run {
            iterations: number("FUZZ_ITERATIONS").map_or(ITERATIONS, |asked: u64| asked as usize),
            seed: number("FUZZ_SEED").unwrap_or(1),
            target: std::env::var("FUZZ_TARGET").ok(),
        }
    }

    /// Checks `inputs`, and what `change` makes of any of them.
    fn of(&self, target: &Target, inputs: &[Vec<u8>], change: impl Fn(&mut Vec<u8>, &[Vec<u8>], &mut Rng)) {
        let &Target { name: target, check, cost, .. } = target;
        if self.target.as_ref().is_some_and(|wanted| wanted != target) {
            return;
        }
        inputs.iter().for_each(|input| check(input));
        let mut rng = Rng::stream(self.seed, target);
        for number in 0..self.iterations / cost {
            let mut input = inputs[rng.below(inputs.len())].clone();
            for _ in 0..=rng.below(4) {
                change(&mut input, inputs, &mut rng);
            }
            let broken = Broken { target, seed: self.seed, number, input: &input };
            check(&input);
            std::mem::forget(broken);
        }
    }
}

/// Says which input has broken a rule, so that it can be added to the corpus.
struct Broken<'a> {
    target: &'a str,
    seed: u64,
    number: usize,
    input: &'a [u8],
}

impl Drop for Broken<'_> {
    fn drop(&mut self) {
        let Broken { target, seed, number, input } = self;
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("target {target}, seed {seed}, mutation {number}: {hex}");
    }
}
