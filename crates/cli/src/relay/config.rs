//! How a relay is configured, by a file and by options; options win.
//!
//! ```toml
//! listen = "0.0.0.0:4000"
//! limit = "4 MB/s"
//! limit_model = "window"             # window | bucket | queue
//! forward_to = ["10.1.0.0/16"]       # networks; nothing but public addresses if left out
//! from = ["198.51.100.0/24"]         # networks; everybody if left out
//! metrics = "127.0.0.1:9464"         # none if left out
//! rendezvous = "on"                  # on | off
//! log = "info"                       # off | error | warn | info | debug
//! ```

use std::net::SocketAddr;
use std::path::Path;

use anabranch_control::units::Rate;
use anabranch_net::file_error::{FileError, Problem};
use anabranch_scenario::file::nearest;
use clap::ValueEnum;
use ipnet::IpNet;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::log::Level;
use super::{Args, Switch};
use crate::failure::Failure;
use crate::network::{self, LimitKind};

const KEYS: [&str; 8] = ["listen", "limit", "limit_model", "forward_to", "from", "metrics", "rendezvous", "log"];

/// What is forwarded if nothing is said: Fast Ethernet's rate, which a small server's link and processor
/// bear, and below which most uplinks are.
const LIMIT: Rate = Rate::from_bits_per_sec(100_000_000);

/// What a relay does.
#[derive(Debug)]
pub struct Settings {
    /// Where; none for all addresses at the usual port.
    pub listen: Option<SocketAddr>,
    pub limit: Rate,
    pub limit_model: LimitKind,
    pub forward_to: Vec<IpNet>,
    /// Those who may use it; none for everybody.
    pub from: Option<Vec<IpNet>>,
    pub metrics: Option<SocketAddr>,
    pub rendezvous: Switch,
    pub log: Level,
}

/// What a file says.
#[derive(Debug, Default, PartialEq)]
struct File {
    listen: Option<SocketAddr>,
    limit: Option<Rate>,
    limit_model: Option<LimitKind>,
    forward_to: Option<Vec<IpNet>>,
    from: Option<Vec<IpNet>>,
    metrics: Option<SocketAddr>,
    rendezvous: Option<Switch>,
    log: Option<Level>,
}

impl Settings {
    /// From the options, and from the file that they name.
    pub fn new(args: &Args) -> Result<Settings, Failure> {
        let file = args.config.as_deref().map_or(Ok(File::default()), read)?;
        let given = |networks: &[IpNet]| (!networks.is_empty()).then(|| networks.to_vec());
        Ok(Settings {
            listen: args.listen.or(file.listen),
            limit: args.limit.or(file.limit).unwrap_or(LIMIT),
            limit_model: args.limit_model.or(file.limit_model).unwrap_or(LimitKind::Window),
            forward_to: given(&args.forward_to).or(file.forward_to).unwrap_or_default(),
            from: given(&args.from).or(file.from),
            metrics: args.metrics.or(file.metrics),
            rendezvous: args.rendezvous.or(file.rendezvous).unwrap_or(Switch::On),
            log: args.log.or(file.log).unwrap_or(Level::Info),
        })
    }
}

fn read(path: &Path) -> Result<File, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    parse(&text).map_err(|error| Failure::new(format!("{name}:{error}")))
}

/// What the text says.
fn parse(text: &str) -> Result<File, FileError> {
    let at = |offset, message| FileError::at(text, offset, message);
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        at(offset, format!("this is not TOML: {}", error.message().trim_end().replace('\n', " ")))
    })?;
    let mut file = File::default();
    for (key, value) in table.get_ref() {
        let name = key.get_ref().as_ref();
        let said = match name {
            "listen" => one(value, address).map(|address| file.listen = Some(address)),
            "limit" => one(value, network::limit).map(|limit| file.limit = Some(limit)),
            "limit_model" => one(value, choice).map(|model| file.limit_model = Some(model)),
            "forward_to" => list(value).map(|networks| file.forward_to = Some(networks)),
            "from" => list(value).map(|networks| file.from = Some(networks)),
            "metrics" => one(value, address).map(|address| file.metrics = Some(address)),
            "rendezvous" => one(value, choice).map(|switch| file.rendezvous = Some(switch)),
            "log" => one(value, choice).map(|level| file.log = Some(level)),
            _ => {
                let near = nearest(name, &KEYS).map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                Err((key.span().start, format!("unknown key{near} (known: {})", KEYS.join(", "))))
            }
        };
        said.map_err(|(offset, problem)| at(offset, format!("key `{name}`: {problem}")))?;
    }
    Ok(file)
}

/// A value in quotation marks.
fn one<T>(value: &Spanned<DeValue<'_>>, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Problem> {
    let wrong = |problem: String| (value.span().start, problem);
    match value.get_ref() {
        DeValue::String(text) => parse(text).map_err(|problem| wrong(format!("{text:?}: {problem}"))),
        other => Err(wrong(format!("expected a text in quotation marks, not {}", kind(other)))),
    }
}

/// Networks; an empty list would say the opposite of what it seems to.
fn list(value: &Spanned<DeValue<'_>>) -> Result<Vec<IpNet>, Problem> {
    let wrong = |problem: String| (value.span().start, problem);
    match value.get_ref() {
        DeValue::Array(networks) if networks.is_empty() => {
            Err(wrong("an empty list; expected networks, or no such key".to_owned()))
        }
        DeValue::Array(networks) => networks.iter().map(|network| one(network, network::cidr)).collect(),
        other => Err(wrong(format!("expected a list of networks, such as [\"10.1.0.0/16\"], not {}", kind(other)))),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, such as \"192.0.2.1:4000\" or \"[2001:db8::1]:4000\"".to_owned())
}

fn choice<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let names: Vec<String> = values.map(|value| value.get_name().to_owned()).collect();
        format!("expected one of {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_say_every_option() {
        let text = "listen = \"0.0.0.0:4000\"\nlimit = \"4 MB/s\"\nlimit_model = \"bucket\"\n\
                    forward_to = [\"10.1.0.0/16\"]\nfrom = [\"198.51.100.0/24\", \"2001:db8::1\"]\n\
                    metrics = \"127.0.0.1:9464\"\nrendezvous = \"off\"\nlog = \"debug\"\n";
        let networks = |texts: &[&str]| Some(texts.iter().map(|text| text.parse().unwrap()).collect());
        let expected = File {
            listen: Some("0.0.0.0:4000".parse().unwrap()),
            limit: Some(Rate::from_bytes_per_sec(4_000_000)),
            limit_model: Some(LimitKind::Bucket),
            forward_to: networks(&["10.1.0.0/16"]),
            from: networks(&["198.51.100.0/24", "2001:db8::1/128"]),
            metrics: Some("127.0.0.1:9464".parse().unwrap()),
            rendezvous: Some(Switch::Off),
            log: Some(Level::Debug),
        };
        assert_eq!(parse(text), Ok(expected));
        assert!(KEYS.iter().all(|key| text.contains(&format!("{key} = "))), "a key is untested");
        assert_eq!(parse(""), Ok(File::default()));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_its_key_and_what_would_be_right() {
        for (text, line, says) in [
            ("limit = 3", 1, "key `limit`: expected a text in quotation marks, not a number"),
            ("\nlimit = \"fast\"", 2, "key `limit`: \"fast\": expected a number and a unit"),
            ("limit = \"1 B/s\"", 1, "at least one packet a second"),
            ("listen = \"4000\"", 1, "key `listen`: \"4000\": expected IP:PORT"),
            ("log = \"loud\"", 1, "key `log`: \"loud\": expected one of off, error, warn, info, debug"),
            ("limit_model = \"windows\"", 1, "expected one of window, bucket, queue"),
            ("from = \"10.0.0.0/8\"", 1, "key `from`: expected a list of networks"),
            ("rendezvous = \"maybe\"", 1, "expected one of on, off"),
            ("from = []", 1, "an empty list"),
            ("from = [\n\"10.0.0.0/8\",\n\"10.0.0.1/8\"]", 3, "key `from`: \"10.0.0.1/8\": the address has bits"),
            ("forward_to = [7]", 1, "key `forward_to`: expected a text"),
            ("listne = \"\"", 1, "key `listne`: unknown key; did you mean `listen`?"),
            ("\n\n[relay]\nlisten = \"\"", 3, "key `relay`: unknown key"),
            ("listen", 1, "this is not TOML"),
            ("limit = \"4 MB/s\"\nlimit = \"4 MB/s\"", 2, "duplicate key"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.line == line && error.message.contains(says), "{text:?}: {error}");
        }
    }
}
