//! Which relays: from an option, the environment or the user's settings, by address or by name.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anabranch_net::file_error::{self, FileError};
use anabranch_net::identity_file;
use anabranch_net::relay_list::{self, DEFAULT_PORT, Relays};
use serde::Deserialize;
use toml::Spanned;

use crate::failure::Failure;

/// Names relays where no option does.
const VARIABLE: &str = "ANABRANCH_RELAYS";

/// Where the user's settings name relays, beside the key.
const SETTINGS: &str = "config.toml";

/// The relays, as an option.
#[derive(Debug, clap::Args)]
pub struct RelaysArg {
    /// Relays: HOST[:PORT], several with commas between, or a file that lists them (RELAYS.toml) [default:
    /// $ANABRANCH_RELAYS, or `relays` in anabranch/config.toml in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "RELAYS")]
    relays: Option<String>,
}

/// Relays, and who named them.
#[derive(Clone, Debug)]
pub struct Named {
    /// They.
    pub relays: Relays,
    /// For messages.
    pub by: String,
    /// Whether the command line did: then the other side may not know of them.
    pub by_option: bool,
}

impl RelaysArg {
    /// Whether the option was given.
    pub fn is_given(&self) -> bool {
        self.relays.is_some()
    }

    /// Those that are named, looked up now.
    pub fn load(&self) -> Result<Named, Failure> {
        if let Some(said) = &self.relays {
            return read(said, "--relays", true);
        }
        if let Some(said) = env::var_os(VARIABLE).filter(|said| !said.is_empty()) {
            let said = said.to_str().ok_or_else(|| Failure::new(format!("{VARIABLE} is not UTF-8")))?;
            return read(said, VARIABLE, false);
        }
        let settings = identity_file::default_path().ok().map(|key| key.with_file_name(SETTINGS));
        if let Some(settings) = settings.filter(|settings| settings.exists()) {
            let text = fs::read_to_string(&settings)
                .map_err(|error| Failure::new(format!("cannot read {}: {error}", settings.display())))?;
            let wrong = |error: FileError| Failure::new(format!("{}:{error}", settings.display()));
            if let Some(said) = from_settings(&text).map_err(wrong)? {
                return read(&said.join(","), &settings.display().to_string(), false);
            }
        }
        Err(Failure::new(format!(
            "which relays? name them with --relays HOST[:PORT],..., in {VARIABLE}, or as relays = [\"HOST:PORT\"] in \
             {SETTINGS} beside the key"
        )))
    }
}

/// Relays that `by` names: a file, or addresses and names.
fn read(said: &str, by: &str, by_option: bool) -> Result<Named, Failure> {
    let look_up = |text: &str| relay_list::resolve(text, Some(DEFAULT_PORT));
    if is_file(said) {
        let path = Path::new(said).display();
        let text = fs::read_to_string(said).map_err(|error| Failure::new(format!("cannot read {path}: {error}")))?;
        let relays =
            relay_list::parse_with(&text, &look_up).map_err(|error| Failure::new(format!("{path}:{error}")))?;
        return Ok(Named { relays, by: path.to_string(), by_option });
    }
    let written: Vec<&str> = said.split(',').map(str::trim).filter(|text| !text.is_empty()).collect();
    if written.is_empty() {
        return Err(Failure::new(format!("{by}: no relay is named; expected HOST[:PORT],...")));
    }
    let relays =
        relay_list::collect(&written, &look_up).map_err(|(_, message)| Failure::new(format!("{by}: {message}")))?;
    Ok(Named { relays, by: by.to_owned(), by_option })
}

fn is_file(said: &str) -> bool {
    said.contains('/') || said.ends_with(".toml") || Path::new(said).is_file()
}

/// What a user's settings may say.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    relays: Option<Spanned<toml::Value>>,
}

/// The relays that a user's settings name, if they do.
fn from_settings(text: &str) -> Result<Option<Vec<String>>, FileError> {
    file_error::parse(text, |settings: Settings| {
        let Some(relays) = settings.relays else { return Ok(None) };
        let texts = relays.get_ref().as_array().map(|list| list.iter().map(|entry| entry.as_str().map(str::to_owned)));
        let texts: Option<Vec<String>> = texts.and_then(Iterator::collect);
        let expected = "key `relays`: expected a list such as [\"relay.example:4000\"]";
        let texts = texts.filter(|texts| !texts.is_empty());
        texts.map(Some).ok_or_else(|| (relays.span().start, expected.to_owned()))
    })
}

/// A receiver's address: HOST:PORT, looked up now.
pub fn receiver(text: &str) -> Result<Vec<SocketAddr>, String> {
    relay_list::resolve(text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relays_are_named_by_address_by_name_or_in_a_file() {
        let like = "127.0.0.1:1".parse().unwrap();
        let named = |said: &str| read(said, "--relays", true).map(|named| named.relays.like(like).unwrap().to_vec());
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        assert_eq!(named("127.0.0.1, 127.0.0.2:7").unwrap(), addresses(&["127.0.0.1:4000", "127.0.0.2:7"]));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        fs::write(&path, "[[relay]]\naddress = \"localhost:4001\"\n").unwrap();
        assert_eq!(named(path.to_str().unwrap()).unwrap(), addresses(&["127.0.0.1:4001"]));
        for wrong in ["", ",", "127.0.0.1:x", "missing.toml", "127.0.0.1,[::1]", "127.0.0.1,127.0.0.1:4000"] {
            assert!(named(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn settings_name_relays_and_nothing_that_is_not_known() {
        assert_eq!(from_settings("relays = [\"a\", \"b:7\"]").unwrap().unwrap(), ["a", "b:7"]);
        assert_eq!(from_settings("").unwrap(), None);
        for (text, says) in [
            ("relays = []", "1:10: key `relays`: expected a list"),
            ("relays = \"a\"", "1:10: key `relays`: expected a list"),
            ("\n relays = [7]", "2:11: key `relays`: expected a list"),
            ("relay = [\"a\"]", "1:1: unknown field `relay`, expected `relays`"),
            ("\nrelays", "2:7: "),
        ] {
            let error = from_settings(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
