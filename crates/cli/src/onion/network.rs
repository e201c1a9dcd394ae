//! What all verbs of the onion overlay are given: of which network they are, and where they keep what they know.

use std::fs;
use std::path::{Path, PathBuf};

use anabranch_net::onion::network_file::{self, NetworkFile};
use anabranch_net::state::{StateError, StateFolder, default_path};
use anabranch_onion::directory::PublicKey;

use crate::failure::Failure;

/// The file of the network.
#[derive(Debug, clap::Args)]
pub struct NetworkArg {
    /// The file that says of which network: its authorities, and what all have alike
    #[arg(long, value_name = "FILE")]
    pub network: PathBuf,
}

impl NetworkArg {
    /// Reads it.
    pub fn read(&self) -> Result<NetworkFile, Failure> {
        read(&self.network)
    }
}

/// Reads the network's file at `path`.
pub fn read(path: &Path) -> Result<NetworkFile, Failure> {
    let bytes = fs::read(path)
        .map_err(|why| Failure::new(format!("cannot read the network's file {}: {why}", path.display())))?;
    network_file::read(&bytes).map_err(|error| Failure::new(format!("{}:{error}", path.display())))
}

/// All digits of a key, as the network's file has them.
pub fn digits(key: &PublicKey) -> String {
    key.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The folder for what must outlive a restart.
#[derive(Debug, clap::Args)]
pub struct StateArg {
    /// Keep keys and what was seen in this folder [default: anabranch/VERB in $XDG_STATE_HOME or ~/.local/state]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl StateArg {
    /// The folder, which is made if it is missing, for this process alone; `verb` names the usual one.
    pub fn open(&self, verb: &str) -> Result<StateFolder, Failure> {
        StateFolder::open_alone(&self.path(verb)?).map_err(|why| match why {
            StateError::InUse { .. } => Failure::new(format!("{why} with --state")),
            why => why.into(),
        })
    }

    /// The folder to look into, whoever has it.
    pub fn look_into(&self, verb: &str) -> Result<StateFolder, Failure> {
        Ok(StateFolder::open(&self.path(verb)?)?)
    }

    fn path(&self, verb: &str) -> Result<PathBuf, Failure> {
        let missing =
            "where is it to be kept? neither XDG_STATE_HOME nor HOME is a folder's path; name one with --state";
        match &self.state {
            Some(path) => Ok(path.clone()),
            None => Ok(default_path(verb).ok_or(missing)?),
        }
    }
}
