//! Tells the library which sources it is made from, so that results which older ones made are
//! not taken for its own. Without the version control system: sources may have come as an
//! archive.

use std::path::{Path, PathBuf};

#[path = "build_sources.rs"]
mod sources;

/// What decides the numbers of a run, from this crate's folder; the crates beside it are there
/// wherever the workspace is.
const ROOTS: [&str; 9] = [
    "src",
    "../control/src",
    "../onion/src",
    "../proto/src",
    "../scenario/src",
    "../sim/src",
    "../stats/src",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn main() {
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo tells where the crate lies"));
    let roots: Vec<PathBuf> = ROOTS.iter().map(|root| here.join(root)).collect();
    for root in roots.iter().filter(|root| root.exists()) {
        println!("cargo:rerun-if-changed={}", root.display());
    }
    for own in ["build.rs", "build_sources.rs"] {
        println!("cargo:rerun-if-changed={own}");
    }
    let base = here.parent().and_then(Path::parent).unwrap_or(&here).to_owned();
    let hash = sources::hash(&base, &roots).expect("the sources can be read");
    println!("cargo:rustc-env=ANABRANCH_SOURCES={hash:016x}");
}
