//! The file in which a peer keeps its key: the secret in 64 hexadecimal digits on a line, for its
//! owner alone. It is written under another name and put in its place whole; what somebody else
//! can read, or what is no key, is refused and left as it is.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anabranch_proto::key_text;
use anabranch_proto::seal::Identity;

use crate::disk::naming::rename_without_replacing;
use crate::sessions::identity::PeerIdentity;
use crate::setup::random_seed;

/// A longer file is no key: digits, and space around them.
const LONGEST: u64 = 256;

/// A key pair that is made of 32 secret bytes.
pub trait KeyPair: Sized {
    /// A new one.
    fn generate() -> Self;

    /// The one of `secret`.
    fn from_secret(secret: [u8; 32]) -> Self;

    /// What it is made of.
    fn secret(&self) -> &[u8; 32];
}

impl KeyPair for Identity {
    fn generate() -> Identity {
        Identity::generate()
    }

    fn from_secret(secret: [u8; 32]) -> Identity {
        Identity::from_secret(secret)
    }

    fn secret(&self) -> &[u8; 32] {
        Identity::secret(self)
    }
}

impl KeyPair for PeerIdentity {
    fn generate() -> PeerIdentity {
        PeerIdentity::generate()
    }

    fn from_secret(secret: [u8; 32]) -> PeerIdentity {
        PeerIdentity::from_secret(secret)
    }

    fn secret(&self) -> &[u8; 32] {
        PeerIdentity::secret(self)
    }
}

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The system does not let us.
    #[error("cannot {what} the key {path}: {why}")]
    File {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: String,
        /// Why not.
        why: io::Error,
    },
    /// Something else is in it.
    #[error("{0} holds no key: expected 64 hexadecimal digits; move it away and a new one is made")]
    Damaged(String),
    /// Its owner is not the only one who can read it.
    #[error("others can read the key {0}, or write it: chmod 600 {0}")]
    Open(String),
    /// It is a link to what is not there.
    #[error("the key {0} is a link that leads nowhere: remove it, and a new one is made, or mend what it leads to")]
    Dangling(String),
    /// There is no folder for it.
    #[error(
        "where is the key to be kept? neither XDG_CONFIG_HOME nor HOME is a folder's path; name a file with --identity"
    )]
    NoFolder,
}

/// Where the key is unless somebody says otherwise: `anabranch/key` in the user's folder for
/// settings (XDG Base Directory Specification).
///
/// # Errors
///
/// When the environment names no such folder.
pub fn default_path() -> Result<PathBuf, IdentityError> {
    in_settings("key")
}

/// Where the key of a user's streams is unless somebody says otherwise: `anabranch/stream-key` there.
///
/// # Errors
///
/// When the environment names no such folder.
pub fn stream_path() -> Result<PathBuf, IdentityError> {
    in_settings("stream-key")
}

/// Where a coordinator's key is unless somebody says otherwise: `anabranch/coordinator-key` there.
///
/// # Errors
///
/// When the environment names no such folder.
pub fn coordinator_path() -> Result<PathBuf, IdentityError> {
    in_settings("coordinator-key")
}

/// Where an agent's key is unless somebody says otherwise: `anabranch/agent-key` there.
///
/// # Errors
///
/// When the environment names no such folder.
pub fn agent_path() -> Result<PathBuf, IdentityError> {
    in_settings("agent-key")
}

fn in_settings(name: &str) -> Result<PathBuf, IdentityError> {
    // Paths that are not absolute are to be ignored, as that specification has it.
    let folder = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    Ok(settings.ok_or(IdentityError::NoFolder)?.join("anabranch").join(name))
}

/// The key in the file at `path`; none if there is no such file.
///
/// # Errors
///
/// When it can't be read, others can read it, or it is no key.
pub fn load<K: KeyPair>(path: &Path) -> Result<Option<K>, IdentityError> {
    let failed = |why| IdentityError::File { what: "read", path: path.display().to_string(), why };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    check_mode(&file, path)?;
    let mut text = String::new();
    match file.take(LONGEST).read_to_string(&mut text) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(IdentityError::Damaged(path.display().to_string()));
        }
        Err(error) => return Err(failed(error)),
    }
    // The digits are never shown, wrong ones neither.
    let secret = key_text::parse(&text).map_err(|_| IdentityError::Damaged(path.display().to_string()))?;
    Ok(Some(K::from_secret(secret)))
}

/// The key in the file at `path`, which is made if it is missing, with its folder.
///
/// # Errors
///
/// As [`load`], or when it can't be written.
pub fn load_or_make<K: KeyPair>(path: &Path) -> Result<K, IdentityError> {
    if let Some(pair) = load(path)? {
        return Ok(pair);
    }
    // Nothing is made in a link's place, nor where it leads.
    if path.is_symlink() {
        return Err(IdentityError::Dangling(path.display().to_string()));
    }
    let pair = K::generate();
    match save(pair.secret(), path) {
        Ok(()) => Ok(pair),
        // Somebody else has made one meanwhile: it is the key.
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {
            load(path)?.ok_or_else(|| IdentityError::File { what: "read", path: path.display().to_string(), why })
        }
        Err(why) => Err(IdentityError::File { what: "write", path: path.display().to_string(), why }),
    }
}

fn save(secret: &[u8; 32], path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        make_folder(folder)?;
    }
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{:016x}.new", random_seed()));
    let saved = write_whole(secret, &new).and_then(|()| rename_without_replacing(&new, path));
    if saved.is_err() {
        // Nothing half-written stays; what can't be removed was not written.
        let _ = fs::remove_file(&new);
    }
    saved
}

fn write_whole(secret: &[u8; 32], path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{digits}")?;
    file.sync_all()
}

/// For its owner alone, if it is new.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(unix)]
fn check_mode(file: &File, path: &Path) -> Result<(), IdentityError> {
    let metadata = file.metadata();
    let metadata =
        metadata.map_err(|why| IdentityError::File { what: "read", path: path.display().to_string(), why })?;
    let mode = std::os::unix::fs::MetadataExt::mode(&metadata);
    if metadata.is_file() && mode & 0o077 != 0 {
        return Err(IdentityError::Open(path.display().to_string()));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_mode(_: &File, _: &Path) -> Result<(), IdentityError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(path: &Path) -> Result<Option<Identity>, IdentityError> {
        super::load(path)
    }

    fn load_or_make(path: &Path) -> Result<Identity, IdentityError> {
        super::load_or_make(path)
    }

    #[test]
    fn a_key_is_made_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings/anabranch/key");
        assert!(load(&path).unwrap().is_none());
        let made = load_or_make(&path).unwrap();
        assert_eq!(load_or_make(&path).unwrap().public(), made.public());
        assert_eq!(load(&path).unwrap().unwrap().secret(), made.secret());
        let names = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(names, 1, "nothing else is left");
    }

    #[test]
    fn who_comes_second_takes_the_key_that_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let first = Identity::generate();
        save(first.secret(), &path).unwrap();
        let error = save(Identity::generate().secret(), &path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!(load_or_make(&path).unwrap().public(), first.public());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_streams_key_is_kept_as_a_persons_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stream-key");
        let made: PeerIdentity = super::load_or_make(&path).unwrap();
        let again: PeerIdentity = super::load_or_make(&path).unwrap();
        assert_eq!(made.public(), again.public());
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_reads_a_key_and_one_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/key");
        load_or_make(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        for open in [0o640, 0o604, 0o620, 0o610] {
            fs::set_permissions(&path, fs::Permissions::from_mode(open)).unwrap();
            let error = load_or_make(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("chmod 600 {}", path.display())), "{error}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(load(&path).unwrap().is_some());
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_nowhere_is_said_to_be_one_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::os::unix::fs::symlink("missing", &path).unwrap();
        let error = load_or_make(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("{} is a link that leads nowhere", path.display())), "{error}");
        assert!(load(&path).unwrap().is_none() && path.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_key_is_named_and_left_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let good = format!("{}\n", "ab".repeat(32));
        for content in [&b""[..], b"12\n", &good.as_bytes()[1..], &[0xff; 65], &[b'a'; 5000], b"\0\0\0"] {
            fs::write(&path, content).unwrap();
            #[cfg(unix)]
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            let error = load_or_make(&path).unwrap_err();
            assert!(matches!(&error, IdentityError::Damaged(name) if *name == path.display().to_string()), "{error}");
            assert_eq!(fs::read(&path).unwrap(), content);
        }
        fs::write(&path, &good).unwrap();
        assert_eq!(load(&path).unwrap().unwrap().secret(), &[0xab; 32]);
        assert!(matches!(load(folder.path()), Err(IdentityError::File { .. })), "a folder");
    }
}
