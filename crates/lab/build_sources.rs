//! A number that stands for the sources which decide what a run measures.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// FNV-1a with 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), which never changes as the
/// standard library's hash may.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The hash of every file below `roots` that holds code or tables, by its place and content. Roots that
/// are not there count as empty.
///
/// # Errors
///
/// What the operating system refused.
pub fn hash(base: &Path, roots: &[PathBuf]) -> io::Result<u64> {
    let mut files = Vec::new();
    for root in roots {
        collect(root, &mut files)?;
    }
    files.sort();
    let mut all = 0xcbf2_9ce4_8422_2325;
    for file in files {
        // Equal on every system: no separators, and not where the sources lie.
        let place = file.strip_prefix(base).unwrap_or(&file);
        for part in place.components() {
            all = fnv1a(all, part.as_os_str().as_encoded_bytes());
            all = fnv1a(all, b"/");
        }
        let content = fs::read(&file)?;
        all = fnv1a(all, &(content.len() as u64).to_le_bytes());
        all = fnv1a(all, &content);
    }
    Ok(all)
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path.is_file() {
        files.push(path.to_owned());
    }
    Ok(())
}
