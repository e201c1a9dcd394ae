//! What a receiver by a code remembers until it ends, so that the same command goes on after the process was killed.
//!
//! A code works once. But the sender goes on trying for a while, at the same address and for the holder of the same key:
//! whoever is both takes up the transfer where it was. What is written down is for its owner alone, and goes when the
//! receiver ends in any way in which it can still tidy up.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use anabranch_net::state::{StateFolder, default_path};
use anabranch_proto::overlay::message::{self, FileName};
use anabranch_proto::seal::Identity;
use anabranch_rendezvous::agreement::Offer;
use anabranch_rendezvous::code::Code;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Where it is kept: a file for each receiver that runs.
const FOLDER: &str = "receive";

/// What was not said to be of use for so long is of none: every sender has given up long since.
pub const OF_USE: Duration = Duration::from_secs(600);

/// Receivers of one folder whose codes were drawn, and that are remembered: people rarely have two.
const MOST_DRAWN: usize = 8;

/// What was agreed on.
#[derive(Debug)]
pub struct Agreed {
    /// What is to come.
    pub offer: Offer,
    /// Whom the sender knows.
    pub identity: Identity,
    /// Where the sender will send to.
    pub address: SocketAddr,
    /// The socket that is seen there.
    pub socket: UdpSocket,
    /// The archive of a folder that was being received before, if one was.
    pub archive: Option<Archive>,
}

/// The archive of a folder, by which a receiver knows whether it has all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Archive {
    name: String,
    length: u64,
    hash: [u8; 32],
    /// It could not be unpacked, and its sender was told so.
    pub is_over: bool,
}

impl Archive {
    /// The one that was offered.
    pub fn of(offer: &message::Offer, is_over: bool) -> Archive {
        Archive { name: offer.name.to_string(), length: offer.length, hash: offer.hash, is_over }
    }

    /// As it was offered, but for its blocks, which nobody sends.
    pub fn offer(&self) -> message::Offer {
        message::Offer { name: FileName::sanitised(&self.name), length: self.length, block: 1, hash: self.hash }
    }
}

/// What was agreed on, as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// Of a key that was made for this transfer; one that the user has named stays in its own file alone.
    secret: Option<[u8; 32]>,
    offer: Offer,
    address: SocketAddr,
    socket: SocketAddr,
    #[serde(default)]
    archive: Option<Archive>,
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
        let name = name(&code.to_string(), out)?;
        Ok(Resumption { folder: folder()?, name, is_own: false })
    }

    /// Of who receives into the folder `out` by a code that is drawn, and meets its sender at one of `relays`: of one
    /// that was killed if there is one, and of none that lives.
    ///
    /// # Errors
    ///
    /// When there is no place for it.
    pub fn drawn(relays: &[SocketAddr], out: &Path) -> Result<Resumption, Failure> {
        let by = relays.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        Resumption::drawn_in(folder()?, &by, out)
    }

    fn drawn_in(folder: StateFolder, by: &str, out: &Path) -> Result<Resumption, Failure> {
        let mut free = None;
        for number in 0..MOST_DRAWN {
            let name = name(&format!("drawn {number} {by}"), out)?;
            match folder.load::<Option<Record>>(&name)? {
                None => free = free.or(Some(name)),
                // Its socket is free again.
                Some(record) if UdpSocket::bind(record.socket).is_ok() => {
                    return Ok(Resumption { folder, name, is_own: false });
                }
                Some(_) => {}
            }
        }
        let name = free.ok_or_else(|| format!("{MOST_DRAWN} receivers are at work in this folder"))?;
        Ok(Resumption { folder, name, is_own: false })
    }

    /// What a receiver that was killed had agreed on, at its socket; none if there was none, if that is taken, or if its
    /// key was one that was `named` and none is now.
    ///
    /// # Errors
    ///
    /// When what was written can't be read.
    pub fn recall(&mut self, named: Option<Identity>) -> Result<Option<Agreed>, Failure> {
        let Some(record) = self.folder.load::<Option<Record>>(&self.name)? else { return Ok(None) };
        let Some(identity) = record.secret.map(Identity::from_secret).or(named) else { return Ok(None) };
        // Taken by the very receiver that has written it, for one: it is not dead.
        let Ok(socket) = UdpSocket::bind(record.socket) else { return Ok(None) };
        self.is_own = true;
        let Record { offer, address, archive, .. } = record;
        Ok(Some(Agreed { offer, identity, address, socket, archive }))
    }

    /// Writes down what was agreed on, but for a key that `is_named`.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn keep(&mut self, agreed: &Agreed, is_named: bool) -> Result<(), Failure> {
        let record = Record {
            secret: (!is_named).then(|| *agreed.identity.secret()),
            offer: agreed.offer.clone(),
            address: agreed.address,
            socket: agreed.socket.local_addr()?,
            archive: agreed.archive.clone(),
        };
        self.is_own = true;
        Ok(self.folder.save(&self.name, &Some(record))?)
    }

    /// Writes down which archive comes, beside what was agreed on.
    ///
    /// # Errors
    ///
    /// When it can't be written.
    pub fn keep_archive(&self, archive: Archive) -> Result<(), Failure> {
        if self.is_own
            && let Some(record) = self.folder.load::<Option<Record>>(&self.name)?
        {
            self.folder.save(&self.name, &Some(Record { archive: Some(archive), ..record }))?;
        }
        Ok(())
    }

    /// Leaves what is written down for whoever gives the same command next.
    pub fn leave(mut self) {
        self.is_own = false;
    }

    /// The transfer goes on, however long it takes.
    pub fn is_of_use(&self) {
        if self.is_own {
            // What can't be written is forgotten sooner than it should be.
            let _ = self.folder.touch(&self.name);
        }
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

/// Where all of this user's are; what is of no use any more is forgotten.
fn folder() -> Result<StateFolder, Failure> {
    let path = default_path(FOLDER).ok_or("neither XDG_STATE_HOME nor HOME is a folder's path")?;
    let folder = StateFolder::open(&path)?;
    folder.forget_older(OF_USE)?;
    Ok(folder)
}

/// The file's name for what is received into `out` by `what`, of which it tells nothing.
fn name(what: &str, out: &Path) -> Result<String, Failure> {
    let of = format!("{what} {}", std::path::absolute(out)?.display());
    let name = blake3::derive_key("anabranch 2026-11-26 what a receiver by code remembers", of.as_bytes());
    Ok(name[..16].iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use anabranch_rendezvous::agreement::Packing;

    use super::*;

    fn resumption(folder: &Path) -> Resumption {
        Resumption { folder: StateFolder::open(folder).unwrap(), name: "it".to_owned(), is_own: false }
    }

    fn agreed() -> Agreed {
        let identity = Identity::generate();
        let offer = Offer::new(identity.public(), Packing::Plain, [1, 2, 2], &["name".to_owned()], &[]);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        Agreed { offer, identity, address: "192.0.2.1:9".parse().unwrap(), socket, archive: None }
    }

    #[test]
    fn what_was_agreed_on_is_recalled_once_its_socket_is_free_and_goes_with_who_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, agreed) = (resumption(folder.path()), agreed());
        assert!(first.recall(None).unwrap().is_none());
        first.keep(&agreed, false).unwrap();
        let mut other = resumption(folder.path());
        assert!(other.recall(None).unwrap().is_none(), "who has written it lives");
        drop(other);
        let (offer, key, at) = (agreed.offer.clone(), agreed.identity.public(), agreed.socket.local_addr().unwrap());
        drop(agreed);
        std::mem::forget(first); // SIGKILL
        let mut again = resumption(folder.path());
        let recalled = again.recall(Some(Identity::generate())).unwrap().unwrap();
        assert_eq!((recalled.offer, recalled.identity.public()), (offer, key));
        assert_eq!((recalled.address, recalled.socket.local_addr().unwrap()), ("192.0.2.1:9".parse().unwrap(), at));
        drop(again);
        assert!(resumption(folder.path()).recall(None).unwrap().is_none());
    }

    #[test]
    fn who_draws_its_code_goes_on_for_one_that_was_killed_and_for_none_that_lives() {
        let folder = tempfile::tempdir().unwrap();
        let drawn = |by: &str, out: &str| {
            Resumption::drawn_in(StateFolder::open(folder.path()).unwrap(), by, Path::new(out)).unwrap()
        };
        let (mut first, of_first) = (drawn("relay", "in"), agreed());
        first.keep(&of_first, false).unwrap();
        let (mut second, of_second) = (drawn("relay", "in"), agreed());
        assert_ne!(first.name, second.name, "the first lives");
        second.keep(&of_second, false).unwrap();
        let key = of_second.identity.public();
        drop(of_second);
        std::mem::forget(second); // SIGKILL
        for (by, out) in [("other", "in"), ("relay", "out")] {
            assert!(drawn(by, out).recall(None).unwrap().is_none(), "{by} {out}");
        }
        let recalled = drawn("relay", "in").recall(None).unwrap().unwrap();
        assert_eq!(recalled.identity.public(), key);
        assert!(first.folder.load::<Option<Record>>(&first.name).unwrap().is_some());
    }

    #[test]
    fn a_key_that_the_user_has_named_is_not_written_down() {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, agreed) = (resumption(folder.path()), agreed());
        first.keep(&agreed, true).unwrap();
        let text = std::fs::read_to_string(folder.path().join("it")).unwrap();
        assert!(text.contains("\"secret\":null"), "{text}");
        let named = agreed.identity.clone();
        drop(agreed);
        std::mem::forget(first); // SIGKILL
        assert!(resumption(folder.path()).recall(None).unwrap().is_none());
        let recalled = resumption(folder.path()).recall(Some(named.clone())).unwrap().unwrap();
        assert_eq!(recalled.identity.public(), named.public());
    }

    #[test]
    fn an_archive_is_recalled_by_its_name_length_and_hash() {
        let folder = tempfile::tempdir().unwrap();
        let (mut first, agreed) = (resumption(folder.path()), agreed());
        first.keep(&agreed, false).unwrap();
        let offer = message::Offer { name: FileName::sanitised("a.tar"), length: 7, block: 3, hash: [4; 32] };
        first.keep_archive(Archive::of(&offer, true)).unwrap();
        drop(agreed);
        first.leave();
        let archive = resumption(folder.path()).recall(None).unwrap().unwrap().archive.unwrap();
        assert!(archive.is_over);
        assert_eq!(archive.offer(), message::Offer { block: 1, ..offer });
        assert!(resumption(folder.path()).recall(None).unwrap().is_none(), "gone with who has recalled it");
    }

    #[test]
    fn a_transfer_that_takes_long_is_of_use_all_the_time() {
        let folder = tempfile::tempdir().unwrap();
        let mut receiver = resumption(folder.path());
        receiver.keep(&agreed(), false).unwrap();
        let path = folder.path().join("it");
        let long_ago = std::time::SystemTime::now() - 2 * OF_USE;
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        receiver.is_of_use();
        receiver.folder.forget_older(OF_USE).unwrap();
        assert!(path.exists());
    }
}
