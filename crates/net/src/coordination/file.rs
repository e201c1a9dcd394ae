//! The file that says what a coordinator divides, and among whom:
//!
//! ```toml
//! every_ms = 100           # how often it decides
//! utilisation = 0.95       # which part of a link is given away
//! share = "per-flow"       # or "per-host"
//! expected = "closer"      # or "last-span", or "last-period"
//!
//! [[link]]
//! name = "uplink"
//! capacity = "100 Mbit/s"
//! queue_ms = 50            # the longest wait for it; for policies that see its queue
//!
//! [[host]]
//! name = "alpha"
//! key = "9d…"              # what `anabranch agent` prints there
//! link = "uplink"
//! least = "1 Mbit/s"       # if it has something to send; none unless said
//! most = "50 Mbit/s"       # the link's capacity unless said; a quarter more where a policy decides
//! most_flows = 100         # more do not count, whatever it reports
//!
//! [[monitor]]
//! name = "gateway"
//! key = "41…"
//! link = "uplink"
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_proto::coordination::agent::{LEAST_PERIOD, LONGEST_PERIOD};
use anabranch_proto::coordination::coordinator::{CoordinatorConfig, Duty, LinkConfig, Member, Share};
use anabranch_proto::coordination::forecast::{Expected, UnknownForecast};
use anabranch_proto::coordination::message::Actuator;
use anabranch_proto::coordination::policy::{Learned, action};
use anabranch_proto::key_text;
use anabranch_proto::session::PeerKey;
use serde::Deserialize;
use toml::Spanned;

use crate::file_error::{self, FileError, Problem};

/// The most links of a coordinator.
pub const MOST_LINKS: usize = 1000;

/// The most hosts and monitors of a coordinator.
pub const MOST_MEMBERS: usize = 10_000;

/// Flows of a host that count at most, unless its entry says otherwise.
const MOST_FLOWS: u32 = 1000;

/// No packet waits longer for a link.
const MOST_QUEUE_MS: u64 = 60_000;

/// Characters of a name at most, as those of a scenario's flows.
const LONGEST_NAME: usize = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    every_ms: Option<Spanned<u64>>,
    utilisation: Option<Spanned<f64>>,
    #[serde(default)]
    share: ShareText,
    expected: Option<Spanned<String>>,
    #[serde(default)]
    link: Vec<LinkEntry>,
    #[serde(default)]
    host: Vec<HostEntry>,
    #[serde(default)]
    monitor: Vec<MonitorEntry>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ShareText {
    #[default]
    PerFlow,
    PerHost,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LinkEntry {
    name: Spanned<String>,
    capacity: Spanned<String>,
    queue_ms: Option<Spanned<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    name: Spanned<String>,
    key: Spanned<String>,
    link: Spanned<String>,
    least: Option<Spanned<String>>,
    most: Option<Spanned<String>>,
    most_flows: Option<Spanned<u32>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MonitorEntry {
    name: Spanned<String>,
    key: Spanned<String>,
    link: Spanned<String>,
}

/// Reads a coordinator's file, of the life `epoch`, where that `policy` decides in the rule's place, if it is there. Whether
/// it can, [`anabranch_proto::coordination::fitness`] says.
///
/// # Errors
///
/// What is wrong, and where.
pub fn parse(text: &str, epoch: u64, policy: Option<Arc<Learned>>) -> Result<CoordinatorConfig, FileError> {
    file_error::parse(text, |file| config(file, epoch, policy))
}

fn config(file: File, epoch: u64, policy: Option<Arc<Learned>>) -> Result<CoordinatorConfig, Problem> {
    let (links, hosts) = (file.link.len(), file.host.len());
    if links == 0 || links > MOST_LINKS {
        return Err((
            0,
            format!("{links} links; expected 1 to {MOST_LINKS} [[link]] entries with a name and a capacity"),
        ));
    }
    let members = hosts + file.monitor.len();
    if hosts == 0 || members > MOST_MEMBERS {
        let expected = format!("expected at least one [[host]] entry, and {MOST_MEMBERS} hosts and monitors at most");
        return Err((0, format!("{hosts} hosts and {} monitors; {expected}", file.monitor.len())));
    }
    let every = match (file.every_ms, &policy) {
        (Some(said), Some(policy)) if Duration::from_millis(*said.get_ref()) != policy.sight.interval => {
            let (name, interval) = (&policy.name, policy.sight.interval.as_millis_f64());
            let message = format!("key `every_ms`: {}; {name} was made to decide every {interval} ms", said.get_ref());
            return Err((said.span().start, format!("{message}: take this out")));
        }
        (_, Some(policy)) => policy.sight.interval,
        (Some(said), None) => every(said)?,
        (None, None) => Duration::from_millis(100),
    };
    let utilisation = match file.utilisation {
        Some(part) if !(*part.get_ref() > 0.0 && *part.get_ref() <= 1.0) => {
            return Err((
                part.span().start,
                format!("key `utilisation`: {}; expected more than 0, up to 1", part.get_ref()),
            ));
        }
        part => part.map_or(0.95, Spanned::into_inner),
    };
    let mut places = BTreeMap::new();
    let mut known = Vec::with_capacity(links);
    for entry in file.link {
        let offset = entry.name.span().start;
        let capacity = rate("capacity", &entry.capacity)?;
        check_name(&entry.name)?;
        let name = entry.name.into_inner();
        if places.insert(name.clone(), known.len()).is_some() {
            return Err((offset, format!("key `name`: there are two links \"{name}\"")));
        }
        let queue = entry.queue_ms.map(queue).transpose()?;
        known.push(LinkConfig { name, capacity, queue });
    }
    let place = |link: &Spanned<String>| {
        places.get(link.get_ref()).copied().ok_or_else(|| {
            let names: Vec<&str> = known.iter().map(|link| link.name.as_str()).collect();
            (
                link.span().start,
                format!("key `link`: there is no link \"{}\"; there are: {}", link.get_ref(), names.join(", ")),
            )
        })
    };
    // A policy may tell more than the link has, so that a queue is built on purpose.
    let most_of = |capacity: Rate| match &policy {
        Some(_) => Rate::from_bytes_per_sec_f64(capacity.bytes_per_sec() * f64::from(action::MOST)),
        None => capacity,
    };
    let mut members = Members::default();
    for host in &file.host {
        let link = place(&host.link)?;
        let least = host.least.as_ref().map_or(Ok(Rate::ZERO), |text| rate("least", text))?;
        let most = host.most.as_ref().map_or(Ok(most_of(known[link].capacity)), |text| rate("most", text))?;
        if let Some(text) = host.least.as_ref().filter(|_| least > most) {
            let message = format!("key `least`: {} is more than the host's most, {most}", text.get_ref());
            return Err((text.span().start, message));
        }
        let most_flows = match &host.most_flows {
            Some(flows) if *flows.get_ref() == 0 => {
                return Err((flows.span().start, "key `most_flows`: 0; expected at least 1".to_owned()));
            }
            flows => flows.as_ref().map_or(MOST_FLOWS, |flows| *flows.get_ref()),
        };
        members.add(&host.name, &host.key, Duty::Host { link, least, most, most_flows })?;
    }
    for monitor in &file.monitor {
        members.add(&monitor.name, &monitor.key, Duty::Monitor { link: place(&monitor.link)? })?;
    }
    let share = match file.share {
        ShareText::PerFlow => Share::PerFlow,
        ShareText::PerHost => Share::PerHost,
    };
    let expected = file.expected.map_or(Ok(Expected::Closer), expected)?;
    // Hosts of Linux keep to rates: their kernels' windows are their own. Programs that send do as a policy's windows say.
    let actuator = policy.as_ref().map_or(Actuator::Rate, |policy| policy.actuator());
    let (links, members) = (known, members.all);
    Ok(CoordinatorConfig { epoch, every, utilisation, actuator, share, expected, links, members, policy })
}

fn expected(text: Spanned<String>) -> Result<Expected, Problem> {
    let said = text.get_ref().parse();
    said.map_err(|error: UnknownForecast| (text.span().start, format!("key `expected`: {:?}; {error}", text.get_ref())))
}

fn every(every_ms: Spanned<u64>) -> Result<Duration, Problem> {
    let (least, most) = (LEAST_PERIOD.as_nanos() / 1_000_000, LONGEST_PERIOD.as_nanos() / 1_000_000);
    match *every_ms.get_ref() {
        ms if (least..=most).contains(&ms) => Ok(Duration::from_millis(ms)),
        ms => Err((every_ms.span().start, format!("key `every_ms`: {ms}; expected {least} to {most}"))),
    }
}

fn queue(queue_ms: Spanned<u64>) -> Result<Duration, Problem> {
    match *queue_ms.get_ref() {
        ms if (1..=MOST_QUEUE_MS).contains(&ms) => Ok(Duration::from_millis(ms)),
        ms => Err((queue_ms.span().start, format!("key `queue_ms`: {ms}; expected 1 to {MOST_QUEUE_MS}"))),
    }
}

fn rate(key: &str, text: &Spanned<String>) -> Result<Rate, Problem> {
    match text.get_ref().parse::<Rate>() {
        Ok(rate) if rate > Rate::ZERO => Ok(rate),
        Ok(_) => Err((text.span().start, format!("key `{key}`: expected more than nothing"))),
        Err(why) => Err((text.span().start, format!("key `{key}`: {:?}: {why}", text.get_ref()))),
    }
}

/// Names stand in tables, charts and metrics, where an empty one cannot be told and a long one leaves no room.
fn check_name(name: &Spanned<String>) -> Result<(), Problem> {
    match name.get_ref().chars().count() {
        1..=LONGEST_NAME => Ok(()),
        count => Err((name.span().start, format!("key `name`: {count} characters; expected 1 to {LONGEST_NAME}"))),
    }
}

/// Members so far, each with a name and a key that no other has.
#[derive(Default)]
struct Members {
    all: Vec<Member>,
    names: BTreeMap<String, PeerKey>,
    keys: BTreeMap<PeerKey, String>,
}

impl Members {
    fn add(&mut self, name: &Spanned<String>, key: &Spanned<String>, duty: Duty) -> Result<(), Problem> {
        check_name(name)?;
        let digits = key_text::parse(key.get_ref()).map_err(|_| {
            let expected = "expected the 64 hexadecimal digits that `anabranch agent` prints";
            (key.span().start, format!("key `key`: {:?}; {expected}", key.get_ref()))
        })?;
        let (key_at, key, name_at, name) =
            (key.span().start, PeerKey(digits), name.span().start, name.get_ref().clone());
        if let Some(other) = self.keys.insert(key, name.clone()) {
            return Err((key_at, format!("key `key`: \"{other}\" has the same; each agent has its own")));
        }
        if self.names.insert(name.clone(), key).is_some() {
            return Err((name_at, format!("key `name`: there are two \"{name}\" among hosts and monitors")));
        }
        self.all.push(Member { name, key, duty });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anabranch_control::policy::{Activation, Layer, Policy};
    use anabranch_proto::coordination::policy::{Actuator as PolicyActuator, Agents, Feature, Sight};

    use super::*;

    fn file() -> String {
        let (alpha, gateway) = ("9d".repeat(32), "41".repeat(32));
        format!(
            "every_ms = 50\n\n[[link]]\nname = \"uplink\"\ncapacity = \"100 Mbit/s\"\n\n[[host]]\nname = \"alpha\"\n\
             key = \"{alpha}\"\nlink = \"uplink\"\nleast = \"1 Mbit/s\"\n\n[[monitor]]\nname = \"gateway\"\n\
             key = \"{gateway}\"\nlink = \"uplink\"\n"
        )
    }

    #[test]
    fn hosts_and_monitors_are_members_of_the_links_that_they_name() {
        let config = parse(&file(), 7, None).unwrap();
        let capacity = Rate::from_bits_per_sec(100_000_000);
        assert_eq!((config.epoch, config.every, config.utilisation), (7, Duration::from_millis(50), 0.95));
        assert_eq!(config.links, [LinkConfig { name: "uplink".into(), capacity, queue: None }]);
        let duty =
            Duty::Host { link: 0, least: Rate::from_bits_per_sec(1_000_000), most: capacity, most_flows: MOST_FLOWS };
        let alpha = Member { name: "alpha".into(), key: PeerKey([0x9d; 32]), duty };
        let gateway = Member { name: "gateway".into(), key: PeerKey([0x41; 32]), duty: Duty::Monitor { link: 0 } };
        assert_eq!(config.members, [alpha, gateway]);
    }

    #[test]
    fn what_others_are_expected_to_send_has_a_name_under_a_policy_too() {
        for (name, expected) in Expected::ALL {
            let text = format!("expected = \"{name}\"\n{}", file());
            assert_eq!(parse(&text, 1, None).unwrap().expected, expected);
            let policy = Some(policy(50, PolicyActuator::Rate));
            assert_eq!(parse(&text, 1, policy).unwrap().expected, expected, "where the rule decides in its place");
        }
        assert_eq!(parse(&file(), 1, None).unwrap().expected, Expected::Closer);
    }

    fn policy(interval_ms: u64, actuator: PolicyActuator) -> Arc<Learned> {
        let layers = vec![Layer { weights: vec![0.5], biases: vec![0.0] }];
        let policy = Policy::new(layers, Activation::Tanh, vec![0.0], vec![1.0]).unwrap();
        let (interval, features) = (Duration::from_millis(interval_ms), vec![Feature::Active]);
        let sight = Sight { link: 0, interval, actuator, features, history: 1, delay: 0, agents: Agents::Hosts };
        Arc::new(Learned { name: "p.safetensors".into(), policy, sight })
    }

    #[test]
    fn a_policy_says_how_often_and_how_and_may_direct_more_than_the_link_has() {
        let text = file().replace("every_ms = 50", "").replace("\"100 Mbit/s\"", "\"100 Mbit/s\"\nqueue_ms = 50");
        for (actuator, expected) in [
            (PolicyActuator::Fixed, Actuator::Fixed),
            (PolicyActuator::Bounded, Actuator::Maximum),
            (PolicyActuator::Rate, Actuator::Rate),
            (PolicyActuator::Share, Actuator::Rate),
            (PolicyActuator::Lent, Actuator::Rate),
        ] {
            let config = parse(&text, 1, Some(policy(20, actuator))).unwrap();
            assert_eq!((config.every, config.actuator), (Duration::from_millis(20), expected));
            assert_eq!(config.links[0].queue, Some(Duration::from_millis(50)));
            let (least, most) = (Rate::from_bits_per_sec(1_000_000), Rate::from_bits_per_sec(125_000_000));
            let duty = Duty::Host { link: 0, least, most, most_flows: MOST_FLOWS };
            assert_eq!(config.members[0].duty, duty);
        }
        assert!(parse(&file(), 1, Some(policy(50, PolicyActuator::Rate))).is_ok(), "both say the same");
        let error = parse(&file(), 1, Some(policy(20, PolicyActuator::Rate))).unwrap_err().to_string();
        let said = "1:12: key `every_ms`: 50; p.safetensors was made to decide every 20 ms: take this out";
        assert_eq!(error, said);
    }

    #[test]
    fn the_file_on_the_books_page_is_one() {
        let page = include_str!("../../../../docs/coordination.md");
        let text = page.split_once("```toml\n").unwrap().1.split_once("```").unwrap().0;
        let config = parse(text, 1, None).unwrap();
        let most = Rate::from_bits_per_sec(50_000_000);
        assert!(matches!(config.members[0].duty, Duty::Host { most: of, most_flows: 100, .. } if of == most));
        assert_eq!(config.members.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_its_key_and_what_was_expected() {
        let same = ("41".repeat(32), "9d".repeat(32));
        let long = format!("\"{}\"", "ö".repeat(61));
        for (from, to, line, said) in [
            ("every_ms = 50", "every_ms = 4", 1, "key `every_ms`: 4; expected 5 to 1900"),
            ("every_ms = 50", "utilisation = 0.0", 1, "key `utilisation`: 0; expected more than 0, up to 1"),
            ("every_ms = 50", "utilisation = nan", 1, "key `utilisation`: NaN"),
            ("every_ms = 50", "share = \"fair\"", 1, "unknown variant `fair`, expected `per-flow` or `per-host`"),
            (
                "every_ms = 50",
                "expected = \"rain\"",
                1,
                "key `expected`: \"rain\"; expected one of last-span, last-period, closer",
            ),
            ("every_ms = 50", "often = 1", 1, "unknown field `often`"),
            ("\"100 Mbit/s\"", "\"100\"", 5, "key `capacity`: \"100\": expected a number and a unit"),
            ("\"100 Mbit/s\"", "\"0 Mbit/s\"", 5, "key `capacity`: expected more than nothing"),
            ("\"100 Mbit/s\"", "\"1 Mbit/s\"\nqueue_ms = 0", 6, "key `queue_ms`: 0; expected 1 to 60000"),
            ("\"uplink\"\ncapacity", "\"\"\ncapacity", 4, "key `name`: 0 characters; expected 1 to 60"),
            ("\"alpha\"", "\"\"", 8, "key `name`: 0 characters; expected 1 to 60"),
            ("\"gateway\"", &long, 14, "key `name`: 61 characters; expected 1 to 60"),
            ("9d9d", "9d", 9, "expected the 64 hexadecimal digits that `anabranch agent` prints"),
            (&same.0, &same.1, 15, "\"alpha\" has the same"),
            ("\"gateway\"", "\"alpha\"", 14, "there are two \"alpha\""),
            ("link = \"uplink\"\nleast", "link = \"up\"\nleast", 10, "there is no link \"up\"; there are: uplink"),
            ("\"1 Mbit/s\"", "\"1 Gbit/s\"", 11, "key `least`: 1 Gbit/s is more than the host's most"),
            ("least = \"1 Mbit/s\"", "most_flows = 0", 11, "key `most_flows`: 0; expected at least 1"),
            ("[[link]]\nname = \"uplink\"\ncapacity = \"100 Mbit/s\"", "", 1, "0 links; expected 1 to 1000"),
        ] {
            let text = file().replacen(from, to, 1);
            assert_ne!(text, file(), "{from}");
            let error = parse(&text, 1, None).unwrap_err();
            assert_eq!(error.line, line, "{error}");
            assert!(error.message.contains(said), "{error}; expected {said}");
        }
        let two = format!("{}\n[[link]]\nname = \"uplink\"\ncapacity = \"1 Mbit/s\"\n", file());
        assert_eq!(parse(&two, 1, None).unwrap_err().to_string(), "19:8: key `name`: there are two links \"uplink\"");
        let nobody = "[[link]]\nname = \"a\"\ncapacity = \"1 Mbit/s\"\n";
        assert!(parse(nobody, 1, None).unwrap_err().message.contains("expected at least one [[host]]"));
    }
}
