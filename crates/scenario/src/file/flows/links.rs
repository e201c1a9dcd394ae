//! The network: a dumbbell, a star, links between any nodes.

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter};
use anabranch_sim::varying::{Change, Course};

use super::super::error::ScenarioError;
use super::super::section::{Entry, Section};
use super::{MOST_HOSTS, MOST_LINKS, queues, values};
use crate::flows::topology::{Access, Dumbbell, Topology};
use crate::flows::{LinkSpec, QueueSpec};

pub const DUMBBELL: &[&str] = &[
    "pairs",
    "rate",
    "delay_ms",
    "queue",
    "loss",
    "jitter_ms",
    "reorder",
    "access_rate",
    "access_delay_ms",
    "sender_rate",
    "sender_delay_ms",
    "receiver_rate",
    "receiver_delay_ms",
    "access_queue",
];
pub const STAR: &[&str] = &["hosts", "rate", "down_rate", "delay_ms", "queue", "loss", "jitter_ms", "reorder"];
pub const LINK: &[&str] =
    &["name", "from", "to", "both_ways", "rate", "delay_ms", "queue", "loss", "jitter_ms", "reorder"];

/// Access links of a dumbbell are so many times as fast as its bottleneck if nothing is
/// said, but no faster than any rate may be.
const ACCESS_FACTOR: u64 = 10;
const FASTEST_ACCESS: Rate = Rate::from_bits_per_sec(100_000_000_000);

const UNLIMITED: QueueSpec = QueueSpec::DropTail(Capacity::Unlimited);

/// The network that `root` describes, and how many pairs of hosts its dumbbell has;
/// `flows_on_pairs` is how many it has if nothing is said.
pub fn read(root: &Section<'_>, flows_on_pairs: usize) -> Result<(Topology, usize), ScenarioError> {
    let mut topology = Topology::default();
    let mut pairs = 0;
    if let Some(section) = root.section("dumbbell", DUMBBELL)? {
        let dumbbell = dumbbell(&section, flows_on_pairs)?;
        pairs = dumbbell.pairs.len();
        dumbbell.add_to(&mut topology);
    }
    if let Some(section) = root.section("star", STAR)? {
        add_star(&section, &mut topology)?;
    }
    for section in root.sections("link", LINK)? {
        add_link(&section, &mut topology)?;
    }
    if topology.links().is_empty() {
        return Err(root.missing("link", "links: [dumbbell], [star] or [[link]]"));
    }
    Ok((topology, pairs))
}

fn dumbbell(section: &Section<'_>, flows_on_pairs: usize) -> Result<Dumbbell, ScenarioError> {
    let count = match section.get("pairs") {
        Some(entry) => entry.whole(1..=MOST_HOSTS)? as usize,
        None => flows_on_pairs,
    };
    if count == 0 {
        return Err(section.missing("pairs", "how many pairs of hosts there are"));
    }
    let bottleneck = properties(section, "bottleneck")?;
    let standard = bottleneck.rate.as_ref().map_or(FASTEST_ACCESS, |rate| {
        let highest = match &rate.change {
            Change::Never => rate.first,
            Change::At(changes) => changes.iter().map(|(_, rate)| *rate).fold(rate.first, Rate::max),
            Change::Uniform { high, .. } => *high,
        };
        FASTEST_ACCESS.min(Rate::from_bits_per_sec(highest.bits_per_sec() * ACCESS_FACTOR))
    });
    let pairs = "pairs of hosts";
    let side = |side: &str| {
        let keys = [format!("{side}_rate"), "access_rate".to_owned()];
        let rates = for_each(section, &keys, count, pairs, standard, Entry::rate)?;
        let keys = [format!("{side}_delay_ms"), "access_delay_ms".to_owned()];
        let delays = for_each(section, &keys, count, pairs, Duration::ZERO, Entry::millis)?;
        Ok(rates.into_iter().zip(delays).map(|(rate, delay)| Access { rate, delay }))
    };
    Ok(Dumbbell {
        pairs: side("sender")?.zip(side("receiver")?).collect(),
        bottleneck,
        access_queue: section.get("access_queue").map_or(Ok(UNLIMITED), |entry| queues::read(&entry))?,
    })
}

fn add_star(section: &Section<'_>, topology: &mut Topology) -> Result<(), ScenarioError> {
    let hosts = section.required("hosts", "how many hosts there are")?.whole(2..=MOST_HOSTS)? as usize;
    section.required("rate", "the rate of each host's link, such as \"4 Mbit/s\"")?;
    let keys = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let what = "hosts";
    let up = for_each(section, &keys(&["rate"]), hosts, what, None, values::rate)?;
    let down = for_each(section, &keys(&["down_rate", "rate"]), hosts, what, None, values::rate)?;
    let still = Course::constant(Duration::ZERO);
    let delays = for_each(section, &keys(&["delay_ms"]), hosts, what, still, values::delay)?;
    for (i, ((up, down), delay)) in up.into_iter().zip(down).zip(delays).enumerate() {
        let host = format!("h{i}");
        for (from, to, rate) in [(host.as_str(), "hub", up), ("hub", host.as_str(), down)] {
            let link = LinkSpec { rate, delay: delay.clone(), ..end(section, &format!("{from}-{to}"))? };
            topology.add(from, to, link);
        }
    }
    Ok(())
}

fn add_link(section: &Section<'_>, topology: &mut Topology) -> Result<(), ScenarioError> {
    if topology.links().len() as u64 >= MOST_LINKS {
        return Err(section.wrong(format!("expected at most {MOST_LINKS} links")));
    }
    let name = section.get("name").map(|entry| super::name(&entry)).transpose()?;
    let ends = match (section.get("from"), section.get("to")) {
        (Some(from), Some(to)) => Some((super::name(&from)?, super::name(&to)?)),
        (None, None) => None,
        (Some(_), None) => return Err(section.missing("to", "the node to which the link leads")),
        (None, Some(_)) => return Err(section.missing("from", "the node from which the link leads")),
    };
    let both_ways = section.get("both_ways").map(|entry| Ok((entry.flag()?, entry))).transpose()?;
    let Some((from, to)) = ends else {
        if let Some((_, entry)) = both_ways {
            return Err(entry.wrong("this belongs to a link with from and to"));
        }
        let Some(name) = name else {
            return Err(section.missing("from", "the nodes from and to which the link leads, or a name"));
        };
        unique(section, topology, &name)?;
        topology.add_alone(properties(section, &name)?);
        return Ok(());
    };
    if from == to {
        return Err(section.blame(&["to"], "the link leads nowhere; expected two nodes"));
    }
    let back = name.as_ref().map_or_else(|| format!("{to}-{from}"), |name| format!("{name}-back"));
    let name = name.unwrap_or_else(|| format!("{from}-{to}"));
    let link = properties(section, &name)?;
    unique(section, topology, &name)?;
    topology.add(&from, &to, link.clone());
    if both_ways.is_none_or(|(both_ways, _)| both_ways) {
        unique(section, topology, &back)?;
        topology.add(&to, &from, LinkSpec { name: back, ..link });
    }
    Ok(())
}

fn unique(section: &Section<'_>, topology: &Topology, name: &str) -> Result<(), ScenarioError> {
    if topology.links().iter().any(|link| link.name == name) {
        let problem = format!("there is a link \"{name}\" already; expected another name");
        return Err(section.blame(&["name", "from"], problem));
    }
    Ok(())
}

/// A link's rate and delay, and all that [`end`] reads.
fn properties(section: &Section<'_>, name: &str) -> Result<LinkSpec, ScenarioError> {
    let rate = section.required("rate", "the link's rate, such as \"10 Mbit/s\", or \"unlimited\"")?;
    let still = Course::constant(Duration::ZERO);
    Ok(LinkSpec {
        rate: values::rate(&rate)?,
        delay: section.get("delay_ms").map_or(Ok(still), |entry| values::delay(&entry))?,
        ..end(section, name)?
    })
}

/// What waits for a link, and what happens at its far end.
fn end(section: &Section<'_>, name: &str) -> Result<LinkSpec, ScenarioError> {
    let deviation = section.get("jitter_ms").map_or(Ok(Duration::ZERO), |entry| entry.millis())?;
    let reorders = section.get("reorder").map_or(Ok(false), |entry| entry.flag())?;
    Ok(LinkSpec {
        queue: section.get("queue").map_or(Ok(UNLIMITED), |entry| queues::read(&entry))?,
        loss: section.get("loss").map_or(Ok(LossModel::None), |entry| values::loss(&entry))?,
        jitter: Jitter { deviation, reorders },
        ..LinkSpec::new(name, Rate::ZERO, Duration::ZERO)
    })
}

/// What the first of `keys` that is there says to each of `count`: one value for all, or
/// a list with one for each; `standard` if none is there.
fn for_each<'t, T: Clone>(
    section: &Section<'t>,
    keys: &[String],
    count: usize,
    of_what: &str,
    standard: T,
    read: impl Fn(&Entry<'t>) -> Result<T, ScenarioError>,
) -> Result<Vec<T>, ScenarioError> {
    let Some(entry) = keys.iter().find_map(|key| section.get(key)) else {
        return Ok(vec![standard; count]);
    };
    if !entry.is_list() {
        return Ok(vec![read(&entry)?; count]);
    }
    let values = entry.list("a list")?;
    if values.len() != count {
        let problem = format!("{} values for {count} {of_what}; expected one for each, or one for all", values.len());
        return Err(entry.wrong(problem));
    }
    values.iter().map(read).collect()
}
