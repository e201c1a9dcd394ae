//! What the verbs on a network have in common: arguments, sockets, and how amounts are
//! shown.

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anabranch_control::flow::registry as flow_registry;
use anabranch_control::path::registry::{self, Entry, Pacing};
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_net::disk::{self, DiskSource};
use anabranch_net::setup::PACKET;
use anabranch_net::udp::Socket;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::message::Offer;
use anabranch_proto::overlay::relay_node::RelayCounters;
use anabranch_proto::overlay::wire::{MAX_DATAGRAM, Unreadable};
use anabranch_proto::printable::printable;
use anabranch_scenario::parameter_files;
use clap::ValueEnum;
use ipnet::IpNet;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::printer::print_line;
use crate::stderr::eprint_line;
use crate::transfer_bar;

/// How often the display is renewed and Ctrl-C is looked for.
pub const TICK: Duration = Duration::from_millis(100);

/// How a relay holds to its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LimitKind {
    /// Counted in windows of one second, as in the thesis
    Window,
    /// A token bucket as deep as a tenth of a second's limit, and ten packets at least
    Bucket,
    /// A queue served at the limit; who would wait longer than 100 ms, and ten packets, is refused
    Queue,
}

impl LimitKind {
    /// The model for a relay of `limit` whose windows begin at `phase`.
    pub fn model(self, limit: Rate, phase: Duration) -> LimitModel {
        let tenth = Duration::from_millis(100);
        // A slow relay has room for some packets all the same: they come by many paths, and so in
        // no even order however evenly they are sent.
        let least = Bytes::new(10 * PACKET as u64);
        match self {
            LimitKind::Window => LimitModel::Window { phase },
            LimitKind::Bucket => LimitModel::Bucket { depth: (limit * tenth).max(least) },
            LimitKind::Queue => LimitModel::Queue { longest: tenth.max(least / limit) },
        }
    }
}

/// How rates become sending times, as an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PacingArg {
    /// All that a second allows leaves at its beginning, as in the thesis
    Burst,
    /// Packets leave evenly
    Paced,
}

impl From<PacingArg> for Pacing {
    fn from(pacing: PacingArg) -> Pacing {
        match pacing {
            PacingArg::Burst => Pacing::Burst,
            PacingArg::Paced => Pacing::Paced,
        }
    }
}

/// A relay's limit as an argument: at least one packet a second.
pub fn limit(text: &str) -> Result<Rate, String> {
    let rate: Rate = text.parse()?;
    if rate < Rate::from_bytes_per_sec(PACKET as u64) {
        return Err(format!("nothing would pass: expected at least one packet a second, {PACKET} B/s"));
    }
    Ok(rate)
}

/// Bytes of a packet as an argument: what IPv4 surely carries at least (RFC 791, 3.1: 576 with headers),
/// and what relays read at most.
pub fn packet(text: &str) -> Result<usize, String> {
    const LEAST: usize = 576 - 20 - 8;
    let bytes: Option<usize> = text.parse().ok().filter(|bytes| (LEAST..=MAX_DATAGRAM).contains(bytes));
    bytes.ok_or_else(|| format!("expected bytes, {LEAST} to {MAX_DATAGRAM}"))
}

/// A network, or one address.
pub fn cidr(text: &str) -> Result<IpNet, String> {
    let one = text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse::<IpNet>().or(one);
    let network = network.map_err(|_| "expected a network such as 10.1.0.0/16 or fd00::/8, or one address")?;
    if network != network.trunc() {
        return Err(format!("the address has bits beyond its prefix: expected {}", network.trunc()));
    }
    Ok(network)
}

/// The controller's entry, or who comes nearest.
pub fn controller(name: &str) -> Result<&'static Entry, String> {
    registry::find(name).map_err(|error| match registry::find(&format!("flow:{name}")) {
        // A flow controller is a rule for each relay under a name of its own.
        Ok(entry) => format!("\"{name}\" controls one flow; as the rule for each relay it is \"{}\"", entry.name),
        Err(_) => error.to_string(),
    })
}

/// `key=value` for the parameters of `controller`, one of flows or a rule for each relay, with what a file holds in
/// place of its name.
pub fn parameters(controller: &str, settings: &[String]) -> Result<toml::Table, Failure> {
    let name = controller.strip_prefix("flow:").unwrap_or(controller);
    if settings.is_empty()
        && let Some(needs) = flow_registry::find(name).ok().and_then(|entry| entry.needs())
    {
        let what = needs.split_once(": ").map_or(needs, |(_, what)| what);
        let what = what.split(" (").next().unwrap_or(what);
        return Err(Failure::new(format!(
            "controller \"{controller}\" needs {what}: give its file by --set file=FILE"
        )));
    }
    parameter_files::resolved(name, &written(settings)?, Path::new(""))
        .map_err(|error| Failure::new(format!("controller \"{controller}\": {error}")))
}

fn written(settings: &[String]) -> Result<toml::Table, Failure> {
    let mut table = toml::Table::new();
    for setting in settings {
        let wrong = || Failure::new(format!("--set {setting}: expected key=value, such as epsilon=0.05"));
        let (key, value) = setting.split_once('=').ok_or_else(wrong)?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() {
            return Err(wrong());
        }
        // A word without quotation marks is meant as a text.
        let parsed = format!("value = {value}").parse::<toml::Table>().ok().and_then(|mut one| one.remove("value"));
        table.insert(key.to_owned(), parsed.unwrap_or_else(|| toml::Value::String(value.to_owned())));
    }
    Ok(table)
}

/// An address and a port, as options say them.
pub fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, such as 127.0.0.1:4000 or [::]:4000".to_owned())
}

/// A socket at `address`, or why there is none.
pub fn bind(address: SocketAddr) -> Result<Socket, Failure> {
    Socket::bind(address).map_err(|error| Failure::new(format!("cannot listen on {address}: {error}")))
}

/// A socket at `address` for those who come to it, or why there is none.
pub fn listen(address: SocketAddr) -> Result<Socket, Failure> {
    Ok(bind(address)?.serving()?)
}

/// An address from which all of `like`'s family can be reached.
pub fn any_address(like: SocketAddr) -> SocketAddr {
    if like.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() }
}

/// Says a line to people: on standard output, unless that is for one JSON object, or cannot be written: what is only said
/// ends nothing that is under way.
pub fn say(json: bool, line: &str) {
    if json || print_line!("{line}").is_err() {
        eprint_line!("{line}");
    }
}

/// What is said of a file that waits for its receiver, at `place` of the queue.
pub fn waiting(place: impl fmt::Display) -> String {
    format!("waiting, place {place}: the receiver takes others' files first")
}

/// A path as it may be shown: the user's own files may have been named by others.
pub fn shown_path(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// The offer of the file at `path` in blocks of `block` bytes, and the file; while it is hashed, a terminal
/// shows how far that is, and Ctrl-C is heard.
pub fn offer(path: &Path, block: u16, interrupt: &Interrupt) -> Result<(Offer, DiskSource), Failure> {
    let title = shown_path(path);
    let file = File::open(path).map_err(|error| Failure::new(format!("cannot read {title}: {error}")))?;
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    offer_of(file, &name, &title, block, interrupt)
}

/// The same of a file that is open and offered as `name`; `title` is what messages call it.
pub fn offer_of(
    file: File,
    name: &str,
    title: &str,
    block: u16,
    interrupt: &Interrupt,
) -> Result<(Offer, DiskSource), Failure> {
    // Where it can't be read, that is said below.
    let bar = transfer_bar::hashing(file.metadata().map_or(0, |metadata| metadata.len()));
    let offered = disk::offer_of(file, name, block, |hashed| {
        bar.set_position(hashed);
        interrupt.is_raised()
    });
    bar.finish_and_clear();
    offered.map_err(|error| match error.kind() {
        ErrorKind::Interrupted => Failure::interrupted(format_args!("{title} was not sent")),
        _ => Failure::new(format!("cannot read {title}: {error}")),
    })
}

/// An amount of bytes, for people.
pub struct Amount(pub f64);

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes < 1e3 => write!(f, "{bytes:.0} B"),
            bytes if bytes < 1e6 => write!(f, "{:.1} kB", bytes / 1e3),
            bytes if bytes < 1e9 => write!(f, "{:.2} MB", bytes / 1e6),
            bytes => write!(f, "{:.2} GB", bytes / 1e9),
        }
    }
}

/// Datagrams that were discarded for one reason.
pub struct Discard {
    /// The reason, as a label.
    pub reason: &'static str,
    /// For people.
    what: &'static str,
    /// How many.
    pub count: u64,
}

/// What a relay discarded, by reason.
pub fn discards(counters: &RelayCounters, unreadable: &Unreadable) -> [Discard; 13] {
    [
        ("refused_data", "data beyond the limit", counters.refused_data),
        ("refused_acks", "ACKs beyond the limit", counters.refused_acks),
        ("over_share", "beyond their sender's share", counters.over_share),
        ("misrouted", "from a wrong neighbour", counters.misrouted),
        ("unwilling", "not ours to forward", counters.unwilling),
        ("reflected", "back to where they came from", counters.reflected),
        ("unlisted", "of others than --from names", counters.unlisted),
        ("barred", "from or to where nothing is forwarded (see --forward-to)", counters.barred),
        ("truncated", "truncated", unreadable.truncated),
        ("oversized", "oversized", unreadable.oversized),
        ("foreign", "foreign", unreadable.foreign),
        ("unknown_version", "of an unknown version", unreadable.unknown_version),
        ("malformed", "malformed", unreadable.malformed),
    ]
    .map(|(reason, what, count)| Discard { reason, what, count })
}

/// What a relay discarded, for people; nothing if there is nothing to say.
pub fn discarded(counters: &RelayCounters, unreadable: &Unreadable) -> String {
    let discards = discards(counters, unreadable);
    let said = discards.iter().filter(|discard| discard.count > 0);
    let said: Vec<String> = said.map(|Discard { what, count, .. }| format!("{count} {what}")).collect();
    if said.is_empty() { "nothing discarded".to_owned() } else { format!("discarded: {}", said.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_lets_nothing_pass_is_refused() {
        assert_eq!(limit("4 MB/s"), Ok(Rate::from_bytes_per_sec(4_000_000)));
        for (wrong, says) in [
            ("0 B/s", "at least one packet"),
            ("1399 B/s", "1400 B/s"),
            ("fast", "a number and a unit"),
            ("-1 MB/s", "between"),
        ] {
            assert!(limit(wrong).unwrap_err().contains(says), "{wrong}");
        }
    }

    #[test]
    fn a_network_is_a_prefix_or_one_address_and_has_no_bits_beyond() {
        assert_eq!(cidr("10.1.0.0/16").unwrap().to_string(), "10.1.0.0/16");
        assert_eq!(cidr("fd00::7").unwrap().to_string(), "fd00::7/128");
        for (wrong, says) in [("10.1.2.3/16", "expected 10.1.0.0/16"), ("10.1/16", "such as"), ("::/129", "such as")] {
            assert!(cidr(wrong).unwrap_err().contains(says), "{wrong}");
        }
    }

    #[test]
    fn settings_are_numbers_truths_or_words() {
        let table = written(&["epsilon=0.05".into(), "exploration=softmax".into()]).unwrap();
        assert_eq!(table["epsilon"].as_float(), Some(0.05));
        assert_eq!(table["exploration"].as_str(), Some("softmax"));
        for wrong in ["epsilon", "=1", "epsilon="] {
            assert!(written(&[wrong.into()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn buckets_and_queues_hold_ten_packets_at_any_limit() {
        let (slow, fast) = (Rate::from_bytes_per_sec(1400), Rate::from_bytes_per_sec(1_400_000));
        let held = |kind: LimitKind, limit| kind.model(limit, Duration::ZERO);
        assert_eq!(held(LimitKind::Bucket, slow), LimitModel::Bucket { depth: Bytes::new(14_000) });
        assert_eq!(held(LimitKind::Bucket, fast), LimitModel::Bucket { depth: Bytes::new(140_000) });
        assert_eq!(held(LimitKind::Queue, slow), LimitModel::Queue { longest: Duration::SECOND * 10 });
        assert_eq!(held(LimitKind::Queue, fast), LimitModel::Queue { longest: Duration::from_millis(100) });
    }
}
