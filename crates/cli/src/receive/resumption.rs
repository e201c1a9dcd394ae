//! What a receiver by a code remembers until it ends, so that the same command goes on after the process was killed.
//!
//! A code works once. But the sender goes on trying for a while, at the same address and for the holder of the same key:
//! whoever is both takes up the transfer where it was. What is written down is for its owner alone, and goes when the
//! receiver ends in any way in which it can still tidy up.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anabranch_net::state::{StateFolder, default_path};
use anabranch_proto::seal::Identity;
use anabranch_rendezvous::agreement::Offer;
use anabranch_rendezvous::code::Code;
use serde::{Deserialize, Serialize};

use super::by_code::Agreed;
use crate::failure::Failure;

/// Where it is kept: a file for each receiver that runs.
const FOLDER: &str = "receive";

/// What is older is of no use: every sender has given up long since.
const OF_USE: Duration = Duration::from_secs(600);

/// What was agreed on, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    secret: [u8; 32],
    offer: Offer,
    address: SocketAddr,
    socket: SocketAddr,
}

/// What one receiver has written down.
#[derive(Debug)]
pub struct Resumption {
    folder: StateFolder,
    name: String,
    /// Written, or taken over, by this process.
    is_own: bool,
}

impl Resumption {
    /// Of who receives by `code` into the folder `out`.
    ///
    /// # Errors
    ///
    /// When there is no place for it.
    pub fn of(code: &Code, out: &Path) -> Result<Resumption, Failure> {
        let path = default_path(FOLDER).ok_or("neither XDG_STATE_HOME nor HOME is a folder's path")?;
        let folder = StateFolder::open(&path)?;
        folder.forget_older(OF_USE)?;
        let out = std::path::absolute(out)?;
        // Who can read the folder's names does not learn the code before it works no more.
        let of = format!("{code} {}", out.display());
        let name = blake3::derive_key("anabranch 2026-11-26 what a receiver by code remembers", of.as_bytes());
        let name = name[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Resumption { folder, name, is_own: false })
    }

    /// What a receiver that was killed had agreed on, at its socket; none if there was none, or if that is taken.
    ///
    /// # Errors
    ///
    /// When what was written can't be read.
    pub fn recall(&mut self) -> Result<Option<Agreed>, Failure> {
        let Some(record) = self.folder.load::<Option<Record>>(&self.name)? else { return Ok(None) };
        // Taken by the very receiver that has written it, for one: it is not dead.
        let Ok(socket) = UdpSocket::bind(record.socket) else { return Ok(None) };
        self.is_own = true;
        let identity = Identity::from_secret(record.secret);
        Ok(Some(Agreed { offer: record.offer, identity, address: record.address, socket }))
    }

    /// Writes down what was agreed on.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn keep(&mut self, agreed: &Agreed) -> Result<(), Failure> {
        let record = Record {
            secret: *agreed.identity.secret(),
            offer: agreed.offer.clone(),
            address: agreed.address,
            socket: agreed.socket.local_addr()?,
        };
        self.is_own = true;
        Ok(self.folder.save(&self.name, &Some(record))?)
    }
}

impl Drop for Resumption {
    fn drop(&mut self) {
        if self.is_own {
            // What can't be removed goes with the next receiver after `OF_USE`.
            let _ = self.folder.remove(&self.name);
        }
    }
}
