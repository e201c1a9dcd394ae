//! `anabranch key`: the key by which others know this user, made if it is missing.

use std::path::PathBuf;

use anabranch_net::identity_file;
use anabranch_proto::seal::Identity;

use crate::failure::Failure;
use crate::printer::print_line;

/// Arguments of `key`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The public key is what others may know: senders give a receiver's to `send --key`, receivers \
a sender's to `receive --allow`. The secret is in the file, which nobody else may read; a copy of \
the file is the same identity on another machine.")]
pub struct Args {
    #[command(flatten)]
    identity: IdentityArg,
}

/// Where the key is.
#[derive(Debug, clap::Args)]
pub struct IdentityArg {
    /// The file with the own key [default: anabranch/key in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl IdentityArg {
    /// The key; it is made if there is none.
    pub fn load_or_make(&self) -> Result<Identity, Failure> {
        Ok(identity_file::load_or_make(&self.path()?)?)
    }

    /// The key; none if no file was named and there is none at the usual place.
    pub fn load(&self) -> Result<Option<Identity>, Failure> {
        let Some(file) = &self.identity else {
            // Who has no folder for it has no key.
            return Ok(identity_file::default_path()
                .ok()
                .map(|path| identity_file::load(&path))
                .transpose()?
                .flatten());
        };
        let missing =
            || Failure::new(format!("there is no key {}: `anabranch key --identity` makes it", file.display()));
        identity_file::load(file)?.map(Some).ok_or_else(missing)
    }

    /// Whether a file was named.
    pub fn is_named(&self) -> bool {
        self.identity.is_some()
    }

    fn path(&self) -> Result<PathBuf, Failure> {
        match &self.identity {
            Some(file) => Ok(file.clone()),
            None => Ok(identity_file::default_path()?),
        }
    }
}

/// Prints the public key.
pub fn run(args: &Args) -> Result<(), Failure> {
    print_line!("{}", args.identity.load_or_make()?.public())?;
    Ok(())
}
