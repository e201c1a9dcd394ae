//! Every experiment's folder is complete: its scenario, what the paper says, and a
//! page that names the command and says what came out.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anabranch_papers::EXPERIMENTS;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
}

#[test]
fn every_experiment_has_its_three_files_and_its_page_names_the_command() {
    assert!(!EXPERIMENTS.is_empty());
    for experiment in EXPERIMENTS {
        let folder = folder().join(experiment.id);
        for name in ["scenario.toml", "expected.csv", "README.md"] {
            assert!(folder.join(name).is_file(), "experiments/{}/{name} is missing", experiment.id);
        }
        let page = fs::read_to_string(folder.join("README.md")).unwrap();
        let command = format!("anabranch reproduce {}\n", experiment.id);
        let heading = format!("# {}: {}\n", experiment.id, experiment.title);
        assert!(page.starts_with(&heading), "experiments/{}/README.md does not begin with {heading}", experiment.id);
        assert!(page.contains(&command), "experiments/{}/README.md does not name `{}`", experiment.id, command.trim());
    }
}

#[test]
fn pages_without_a_full_run_are_named_in_the_book() {
    let book = fs::read_to_string(folder().join("../docs/experiments.md")).unwrap();
    let line = book.lines().find(|line| line.starts_with("Pages without a full run")).expect("the book names them");
    let named: BTreeSet<&str> = line.split('`').skip(1).step_by(2).collect();
    let is_empty = |id: &str| {
        let page = fs::read_to_string(folder().join(id).join("README.md")).unwrap();
        let (_, rest) = page.split_once("<!-- figures of a full run -->").expect("a place for figures");
        let (figures, _) = rest.split_once("<!-- end of figures -->").expect("an end of that place");
        figures.trim().is_empty()
    };
    let without: BTreeSet<&str> =
        EXPERIMENTS.iter().map(|experiment| experiment.id).filter(|id| is_empty(id)).collect();
    assert_eq!(named, without);
}

#[test]
fn every_folder_is_an_experiment() {
    let known: BTreeSet<&str> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
    let folders = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir());
    let found: BTreeSet<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert!(!found.is_empty());
    for name in &found {
        assert!(known.contains(name.as_str()), "experiments/{name} belongs to no experiment");
    }
}
