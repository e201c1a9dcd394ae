//! What pages name of the sources is there: tests, items and files that were renamed since are found.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `folder` with one of these endings. What is built or installed there is none of the sources.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && !["target", "node_modules", "assets", "__pycache__"].iter().any(|built| name == *built) {
            found.extend(files(&path, endings));
        } else if path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter| !is_of_name(letter)).filter(|word| !word.is_empty())
}

/// Each page that tells of the sources, and what stands in it between backticks on one line.
fn quoted() -> Vec<(String, Vec<String>)> {
    let mut pages = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    pages.extend(["docs", "experiments", "policies"].iter().flat_map(|folder| files(&root().join(folder), &["md"])));
    let of_page = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        // Tables of experiments hold metrics, under the names that runs gave them.
        let tables = path.starts_with(root().join("experiments"));
        let quoted = text.lines().filter(|line| !(line.starts_with("```") || tables && line.starts_with('|')));
        let quoted = quoted.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned));
        (path.strip_prefix(root()).unwrap().display().to_string(), quoted.collect())
    };
    pages.into_iter().map(of_page).collect()
}

/// What `of` finds wrong in any page.
fn wrong(of: impl Fn(&str) -> bool) -> Vec<String> {
    let pages = quoted();
    let said = pages.iter().flat_map(|(page, quoted)| quoted.iter().map(move |said| (page, said)));
    said.filter(|(_, said)| of(said)).map(|(page, said)| format!("{page}: `{said}`")).collect()
}

/// Names of tests are sentences. A name of four words or more that is none has to stand in the sources, as a metric or
/// a key, or among what is expected of experiments; what begins with `tcp_` is Linux's.
#[test]
fn tests_that_pages_name_are_there() {
    let sources = ["crates", "python"].iter().flat_map(|folder| files(&root().join(folder), &["rs", "py"]));
    let sources: Vec<String> = sources.map(|path| fs::read_to_string(path).unwrap()).collect();
    let expected = files(&root().join("experiments"), &["csv"]);
    let expected: Vec<String> = expected.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let known: BTreeSet<&str> = sources.iter().chain(&expected).flat_map(|text| words(text)).collect();
    let is_name = |said: &str| {
        said.split('_').filter(|word| !word.is_empty()).count() >= 4
            && said.chars().all(|letter| is_of_name(letter) && !letter.is_ascii_uppercase())
    };
    let missing = wrong(|said| is_name(said) && !said.starts_with("tcp_") && !known.contains(said));
    assert!(missing.is_empty(), "nothing has these names: {missing:#?}");
    let tests = quoted().iter().flat_map(|(_, quoted)| quoted).filter(|said| is_name(said)).count();
    assert!(tests > 100, "{tests} names were found in pages");
}

/// `anabranch_lab::overlay::stepped` and the like: each part is declared in its crate, or taken from another one.
#[test]
fn items_that_pages_name_are_there() {
    let missing = wrong(|said| {
        let Some((name, path)) = said.strip_prefix("anabranch_").and_then(|said| said.split_once("::")) else {
            return false;
        };
        let folder = root().join("crates").join(name).join("src");
        if !folder.is_dir() {
            return true;
        }
        let texts: Vec<String> = files(&folder, &["rs"]).iter().map(|path| fs::read_to_string(path).unwrap()).collect();
        let is_declared = |part: &str| {
            let declared = ["mod", "fn", "struct", "enum", "trait", "const", "type", "use"];
            let declares = |line: &str| {
                let line: Vec<&str> = words(line).collect();
                declared.iter().any(|kind| line.contains(kind)) && line.contains(&part)
            };
            texts.iter().any(|text| text.lines().any(declares))
        };
        !words(path).all(is_declared)
    });
    assert!(missing.is_empty(), "no crate has these: {missing:#?}");
}

/// `crates/sim/src/{fabric,pairs}.rs` is two files; a name in angle brackets stands for many.
#[test]
fn files_that_pages_name_are_there() {
    let folders = ["crates/", "python/", "docs/", "experiments/", "policies/", "scenarios/", "contrib/", "web/src/"];
    let missing = wrong(|said| {
        let is_path = folders.iter().any(|folder| said.starts_with(folder)) && !said.contains(['<', '*', ' ', '…']);
        let said = said.split("::").next().unwrap_or(said);
        is_path && !alternatives(said).iter().all(|path| root().join(path).exists())
    });
    assert!(missing.is_empty(), "these are not there: {missing:#?}");
}

/// The paths that one with braces stands for.
fn alternatives(path: &str) -> Vec<String> {
    let Some((before, rest)) = path.split_once('{') else { return vec![path.to_owned()] };
    let (list, after) = rest.split_once('}').unwrap_or((rest, ""));
    list.split(',').flat_map(|one| alternatives(&format!("{before}{one}{after}"))).collect()
}
