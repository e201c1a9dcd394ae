//! The page that is embedded was built from `web/`: what both are is held against `page/built-from.txt`, whose form
//! `web/scripts/built-from.mjs` describes. `npm run build` there writes it.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

const FOLDERS: [&str; 3] = ["src", "public", "scripts"];
const FILES: [&str; 8] = [
    "index.html",
    "coordinator.html",
    "onion.html",
    "package.json",
    "package-lock.json",
    "svelte.config.js",
    "tsconfig.json",
    "vite.config.ts",
];

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file below `folder` of `base`, relative to that, but those whose name begins with a dot.
fn below(base: &Path, folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(base.join(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with('.') {
            continue;
        }
        let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        if entry.file_type().unwrap().is_dir() {
            files.extend(below(base, &path));
        } else {
            files.push(path);
        }
    }
    files
}

fn hash(base: &Path, mut files: Vec<String>) -> String {
    files.sort();
    let mut sum = Sha256::new();
    for file in files {
        let bytes = fs::read(base.join(&file)).unwrap();
        sum.update(format!("{file}\0{}\0", bytes.len()));
        sum.update(bytes);
    }
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_embedded_page_was_built_from_web() {
    let (web, page) = (crate_folder().join("../../web"), crate_folder().join("page"));
    let mut sources: Vec<String> = FILES.map(str::to_owned).into();
    sources.extend(FOLDERS.iter().flat_map(|folder| below(&web, folder)));
    assert!(sources.len() > 20, "{sources:?}");
    let built: Vec<String> = below(&page, "").into_iter().filter(|file| file != "built-from.txt").collect();
    let expected = format!("sources {}\npage {}\n", hash(&web, sources), hash(&page, built));
    let said = fs::read_to_string(page.join("built-from.txt")).unwrap();
    assert_eq!(said, expected, "the page is another than web/ makes: run `npm ci && npm run build` in web/");
}
