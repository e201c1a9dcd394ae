//! `anabranch onion family`: the key by which the relays of one operator know each other, and all others them.

use std::path::{Path, PathBuf};

use anabranch_net::identity_file::{self, KeyPair};
use anabranch_net::state::Seed;
use anabranch_onion::directory::SecretKey;

use super::network::digits;
use crate::failure::Failure;
use crate::printer::print_line;

/// Arguments of `onion family`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Whoever runs several relays says so, so that no path has two of them: make a key, copy the file to each of the \
machines, and start each relay with --family FILE. The list of relays then says that they are of one family. \
Nobody without the file can put a relay into it, and so nobody can keep another's relays off paths.

Whoever gets the file can: make a new key then, and give it to all your relays.")]
pub struct Args {
    /// The file with the family's key, which is made, for its owner alone, if it is missing
    file: PathBuf,
}

/// Prints the family's public key.
pub fn run(args: &Args) -> Result<(), Failure> {
    let seed: Seed = identity_file::load_or_make(&args.file)?;
    print_line!("{}", digits(&SecretKey::from_seed(seed.secret()).public()))?;
    Ok(())
}

/// The key in the file at `path`, which must be there: a relay with a family of its own by mistake would say of nobody
/// that it is of one.
pub fn read(path: &Path) -> Result<SecretKey, Failure> {
    let seed: Option<Seed> = identity_file::load(path)?;
    let seed = seed.ok_or_else(|| {
        let path = path.display();
        Failure::new(format!(
            "--family {path}: there is no such file; make it once with `anabranch onion family {path}`"
        ))
    })?;
    Ok(SecretKey::from_seed(seed.secret()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_made_once_and_by_its_own_verb_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("family");
        let refused = read(&file).unwrap_err();
        assert!(refused.words().contains("anabranch onion family"), "{refused:?}");
        assert!(!file.exists());
        run(&Args { file: file.clone() }).unwrap();
        let made = read(&file).unwrap().public();
        run(&Args { file: file.clone() }).unwrap();
        assert_eq!(read(&file).unwrap().public(), made);
        std::fs::write(&file, "no key\n").unwrap();
        assert!(read(&file).unwrap_err().words().contains("64 hexadecimal digits"));
    }
}
