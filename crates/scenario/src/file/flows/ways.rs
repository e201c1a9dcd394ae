//! Which links packets pass: between nodes, or named one by one.

use std::fmt;

use anabranch_control::time::Duration;

use super::super::error::{Problem, Span, nearest};
use super::super::shape::{Many, Optional, Said, Section, keys, many};
use super::{MOST_HOSTS, MOST_LINKS};
use crate::flows::topology::{Topology, least};
use crate::flows::{LinkSpec, Path, Receiver};

/// What stands for a copy's number in names.
const NUMBER: &str = "{i}";

/// A shorter round trip would let a controller send without end in no time.
const SHORTEST_ROUND_TRIP: Duration = Duration::from_nanos(1000);

/// How many names an error lists.
const NAMES_LISTED: usize = 12;

keys! {
    /// The way to one receiver.
    pub struct ReceiverKeys {
        pub path: Said<Many<String>>,
        pub back: Said<Many<String>>,
    }
}

impl Section<ReceiverKeys> {
    /// The way there and back.
    pub fn way(&self, topology: &Topology) -> Result<Receiver, Problem> {
        let way = Receiver { there: along(&self.path, topology)?, back: along(&self.back, topology)? };
        takes_time(way, topology).map_err(|problem| self.wrong(problem))
    }
}

/// Why there is no way between two nodes; whose fault that is.
#[derive(Debug)]
pub struct NoWay {
    problem: String,
    is_of_receiver: bool,
}

impl NoWay {
    /// The problem where the sender, or the receiver, is named.
    pub fn at(self, from: Span, to: Span) -> Problem {
        Problem::at(if self.is_of_receiver { to } else { from }, self.problem)
    }
}

/// The shortest path between two nodes that there are.
pub fn shortest(topology: &Topology, from: &str, to: &str) -> Result<Path, NoWay> {
    if from == to {
        let problem = format!("\"{from}\" would send to itself; expected another node");
        return Err(NoWay { problem, is_of_receiver: true });
    }
    let path = topology.node(from).zip(topology.node(to)).and_then(|(from, to)| topology.path(from, to));
    path.ok_or_else(|| NoWay { problem: format!("no links lead from \"{from}\" to \"{to}\""), is_of_receiver: false })
}

/// The shortest way there and back.
pub fn there_and_back(topology: &Topology, from: &str, to: &str) -> Result<Receiver, NoWay> {
    let way = Receiver { there: shortest(topology, from, to)?, back: shortest(topology, to, from)? };
    takes_time(way, topology).map_err(|problem| NoWay { problem: problem.to_owned(), is_of_receiver: false })
}

fn takes_time(way: Receiver, topology: &Topology) -> Result<Receiver, &'static str> {
    let links = way.there.iter().chain(&way.back);
    let round_trip: Duration = links.map(|&link| least(&topology.links()[link].delay)).sum();
    match round_trip >= SHORTEST_ROUND_TRIP {
        true => Ok(way),
        false => Err("packets would take no time at all; expected links with a delay_ms of at least 0.001 together"),
    }
}

/// The host of a dumbbell that a name is of, its own or one of its links', and the number of its pair: of `s3`, of `s3-left`
/// and of `left-s3`, `s3` and 3.
pub fn pair(name: &str) -> Option<(&str, usize)> {
    let host = match name.split_once('-') {
        Some((host, "left" | "right") | ("left" | "right", host)) => host,
        Some(_) => return None,
        None => name,
    };
    let digits = host.strip_prefix(['s', 'r'])?;
    let number: usize = digits.parse().ok()?;
    ((number as u64) < MOST_HOSTS && number.to_string() == digits).then_some((host, number))
}

/// `text` with a copy's number.
pub fn numbered(text: &str, number: usize) -> String {
    text.replace(NUMBER, &number.to_string())
}

/// The node that a value names.
pub fn node(said: &Said<String>, topology: &Topology, number: usize) -> Result<String, Problem> {
    let name = numbered(said, number);
    match topology.node(&name) {
        Some(_) => Ok(name),
        None => Err(said.wrong(unknown("node", &name, topology.node_names()))),
    }
}

/// The links that a value names, each of which begins where the one before it ends.
pub fn along(names: &Said<Many<String>>, topology: &Topology) -> Result<Path, Problem> {
    if names.is_empty() || names.len() as u64 > MOST_LINKS {
        let expected = "expected a list of links by their names, in the order in which packets pass them";
        return Err(names.wrong(expected));
    }
    let mut path: Path = Vec::with_capacity(names.len());
    for name in names.iter() {
        let link = link(name, topology.links())?;
        if path.contains(&link) {
            return Err(name.wrong("packets would pass this link twice"));
        }
        let before = path.last().and_then(|&before| topology.ends(before));
        if let (Some((_, end)), Some((begin, _))) = (before, topology.ends(link))
            && end != begin
        {
            let nodes = topology.node_names();
            let problem =
                format!("the link before it ends at \"{}\", this one begins at \"{}\"", nodes[end], nodes[begin]);
            return Err(name.wrong(problem));
        }
        path.push(link);
    }
    Ok(path)
}

/// The link of a name.
pub fn link(name: &Said<String>, links: &[LinkSpec]) -> Result<usize, Problem> {
    let known = || links.iter().map(|link| &link.name).collect::<Vec<_>>();
    links.iter().position(|link| link.name == **name).ok_or_else(|| name.wrong(unknown("link", name, &known())))
}

/// That nothing of a kind is called `name`.
fn unknown<N: AsRef<str> + fmt::Display>(kind: &str, name: &str, known: &[N]) -> String {
    let known: Vec<&str> = known.iter().map(AsRef::as_ref).collect();
    let near = nearest(name, &known).map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
    let more = if known.len() > NAMES_LISTED { ", ..." } else { "" };
    let listed = &known[..known.len().min(NAMES_LISTED)];
    format!("there is no {kind} \"{name}\"{near} ({kind}s: {}{more})", listed.join(", "))
}

/// The links of a path by their names.
pub fn written(path: &Path, links: &[LinkSpec]) -> Optional<Many<String>> {
    Some(names(path, links))
}

/// The way to one receiver by its links' names.
pub fn written_receiver(way: &Receiver, links: &[LinkSpec]) -> ReceiverKeys {
    ReceiverKeys { path: names(&way.there, links), back: names(&way.back, links) }
}

fn names(path: &Path, links: &[LinkSpec]) -> Said<Many<String>> {
    many(path.iter().map(|&link| links[link].name.clone()))
}
