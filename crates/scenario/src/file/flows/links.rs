//! The network: a dumbbell, a star, links between any nodes.

use std::collections::BTreeSet;

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::{Capacity, Jitter};
use anabranch_sim::varying::{Change, Course};

use super::super::error::{Problem, Span};
use super::super::shape::{
    Each, Optional, OrStandard, Said, Section, Sections, Shape, keys, said, sections, some, span,
};
use super::super::values::{HIGHEST_RATE, Millis, Name, Whole};
use super::queues::{self, Queue};
use super::varying::{self, LinkRate, Losses, MaybeUnlimited, Varying};
use super::{MOST_HOSTS, MOST_LINKS, flow, traffic, ways};
use crate::flows::topology::{Access, Dumbbell, Topology};
use crate::flows::{LinkSpec, QueueSpec};

/// Access links of a dumbbell are this many times as fast as its bottleneck if nothing is
/// said, but no faster than any rate may be; beside one without a limit they have none.
const ACCESS_FACTOR: u64 = 10;

const UNLIMITED: QueueSpec = QueueSpec::DropTail(Capacity::Unlimited);

keys! {
    /// `[dumbbell]`.
    pub struct DumbbellKeys {
        pairs: Optional<Whole<1, MOST_HOSTS>>,
        rate: Said<LinkRate>,
        delay_ms: Optional<Varying<Millis>>,
        queue: Optional<Queue>,
        loss: Optional<Losses>,
        jitter_ms: Optional<Millis>,
        reorder: Optional<bool>,
        access_rate: Optional<Each<MaybeUnlimited>>,
        access_delay_ms: Optional<Each<Millis>>,
        sender_rate: Optional<Each<MaybeUnlimited>>,
        sender_delay_ms: Optional<Each<Millis>>,
        receiver_rate: Optional<Each<MaybeUnlimited>>,
        receiver_delay_ms: Optional<Each<Millis>>,
        access_queue: Optional<Queue>,
    }
}

keys! {
    /// `[star]`.
    pub struct StarKeys {
        hosts: Said<Whole<2, MOST_HOSTS>>,
        rate: Said<Each<LinkRate>>,
        down_rate: Optional<Each<LinkRate>>,
        delay_ms: Optional<Each<Varying<Millis>>>,
        queue: Optional<Queue>,
        loss: Optional<Losses>,
        jitter_ms: Optional<Millis>,
        reorder: Optional<bool>,
    }
}

keys! {
    /// `[[link]]`.
    pub struct LinkKeys {
        name: Optional<Name>,
        from: Optional<Name>,
        to: Optional<Name>,
        both_ways: Optional<bool>,
        rate: Said<LinkRate>,
        delay_ms: Optional<Varying<Millis>>,
        queue: Optional<Queue>,
        loss: Optional<Losses>,
        jitter_ms: Optional<Millis>,
        reorder: Optional<bool>,
    }
}

/// The network that is described, and how many pairs of hosts its dumbbell has.
pub fn read(file: &super::File) -> Result<(Topology, usize), Problem> {
    let mut topology = Topology::default();
    let mut pairs = 0;
    if let Some(section) = &file.dumbbell {
        let dumbbell = section.dumbbell(pairs_needed(file))?;
        pairs = dumbbell.pairs.len();
        dumbbell.add_to(&mut topology);
    }
    if let Some(section) = &file.star {
        section.add_to(&mut topology)?;
    }
    for section in file.link.iter().flat_map(|links| links.iter()) {
        section.add_to(&mut topology)?;
    }
    Ok((topology, pairs))
}

/// How many pairs a dumbbell has if nothing is said: as many as flows take in turn; where none does, as many as there must
/// be for the hosts and access links that are named. What a table `[[link]]` names is its own.
fn pairs_needed(file: &super::File) -> usize {
    let taken = flow::on_pairs(&file.flow);
    if taken > 0 {
        return taken;
    }
    let links = || file.link.iter().flat_map(|links| links.iter());
    let own: BTreeSet<&str> =
        links().flat_map(|link| [&link.name, &link.from, &link.to]).flatten().map(|name| &***name).collect();
    let named: Vec<String> = [flow::named(&file.flow), traffic::named(&file.cross_traffic)].concat();
    let hosts = named.iter().filter(|name| !own.contains(&***name)).filter_map(|name| ways::pair(name));
    let last = hosts.filter(|(host, _)| !own.contains(host)).map(|(_, number)| number).max();
    last.map_or(0, |last| last + 1)
}

impl Section<DumbbellKeys> {
    fn dumbbell(&self, pairs_needed: usize) -> Result<Dumbbell, Problem> {
        let count = self.pairs.as_ref().map_or(pairs_needed, |pairs| **pairs as usize);
        let end = end("bottleneck", &self.queue, &self.loss, &self.jitter_ms, &self.reorder)?;
        let bottleneck = with_rate(&self.rate, &self.delay_ms, end)?;
        let standard = bottleneck.rate.as_ref().map(|rate| {
            let highest = match &rate.change {
                Change::Never => rate.first,
                Change::At(changes) => changes.iter().map(|(_, rate)| *rate).fold(rate.first, Rate::max),
                Change::Uniform { high, .. } => *high,
            };
            HIGHEST_RATE.min(Rate::from_bits_per_sec(highest.bits_per_sec() * ACCESS_FACTOR))
        });
        let side = |rate: &Optional<Each<MaybeUnlimited>>, delay: &Optional<Each<Millis>>| {
            let (rate, delay) =
                (rate.as_ref().or(self.access_rate.as_ref()), delay.as_ref().or(self.access_delay_ms.as_ref()));
            let rates = for_each(rate, count, "pairs of hosts", standard, |rate, _| Ok(*rate))?;
            let delays = for_each(delay, count, "pairs of hosts", Duration::ZERO, |delay, _| Ok(*delay))?;
            Ok(rates.into_iter().zip(delays).map(|(rate, delay)| Access { rate, delay }))
        };
        let senders = side(&self.sender_rate, &self.sender_delay_ms)?;
        let receivers = side(&self.receiver_rate, &self.receiver_delay_ms)?;
        Ok(Dumbbell {
            pairs: senders.zip(receivers).collect(),
            bottleneck,
            access_queue: self.access_queue.as_ref().map_or(Ok(UNLIMITED), Said::spec)?,
        })
    }
}

impl Section<StarKeys> {
    fn add_to(&self, topology: &mut Topology) -> Result<(), Problem> {
        let hosts = *self.hosts as usize;
        let down = self.down_rate.as_ref().unwrap_or(&self.rate);
        let up = for_each(Some(&self.rate), hosts, "hosts", None, varying::rate)?;
        let down = for_each(Some(down), hosts, "hosts", None, varying::rate)?;
        let still = Course::constant(Duration::ZERO);
        let delays = for_each(self.delay_ms.as_ref(), hosts, "hosts", still, varying::delay)?;
        let end = end("", &self.queue, &self.loss, &self.jitter_ms, &self.reorder)?;
        for (i, ((up, down), delay)) in up.into_iter().zip(down).zip(delays).enumerate() {
            let host = format!("h{i}");
            for (from, to, rate) in [(host.as_str(), "hub", up), ("hub", host.as_str(), down)] {
                let (name, delay) = (format!("{from}-{to}"), delay.clone());
                topology.add(from, to, LinkSpec { name, rate, delay, ..end.clone() });
            }
        }
        Ok(())
    }
}

impl Section<LinkKeys> {
    fn add_to(&self, topology: &mut Topology) -> Result<(), Problem> {
        if topology.links().len() as u64 >= MOST_LINKS {
            return Err(self.wrong(format!("expected at most {MOST_LINKS} links")));
        }
        let name = self.name.as_ref().map(|name| name.to_string());
        let (from, to, to_span) = match (&self.from, &self.to) {
            (Some(from), Some(to)) => (&**from, &**to, to.span()),
            (Some(_), None) => return Err(self.missing("to", "the node to which the link leads")),
            (None, Some(_)) => return Err(self.missing("from", "the node from which the link leads")),
            (None, None) => {
                if let Some(both_ways) = &self.both_ways {
                    return Err(both_ways.wrong("this belongs to a link with from and to"));
                }
                let Some(name) = name else {
                    return Err(self.missing("from", "the nodes from and to which the link leads, or a name"));
                };
                self.unique(topology, &name)?;
                topology.add_alone(self.link(&name)?);
                return Ok(());
            }
        };
        if from == to {
            return Err(Problem::at(to_span, "the link leads nowhere; expected two nodes"));
        }
        let back = name.as_ref().map_or_else(|| format!("{to}-{from}"), |name| format!("{name}-back"));
        let name = name.unwrap_or_else(|| format!("{from}-{to}"));
        let link = self.link(&name)?;
        self.unique(topology, &name)?;
        topology.add(from, to, link.clone());
        if self.both_ways.as_ref().is_none_or(|both_ways| **both_ways) {
            self.unique(topology, &back)?;
            topology.add(to, from, LinkSpec { name: back, ..link });
        }
        Ok(())
    }

    fn link(&self, name: &str) -> Result<LinkSpec, Problem> {
        with_rate(&self.rate, &self.delay_ms, end(name, &self.queue, &self.loss, &self.jitter_ms, &self.reorder)?)
    }

    fn unique(&self, topology: &Topology, name: &str) -> Result<(), Problem> {
        if topology.links().iter().any(|link| link.name == name) {
            let problem = format!("there is a link \"{name}\" already; expected another name");
            return Err(Problem::at(span(&self.name).or(span(&self.from)).unwrap_or(self.span()), problem));
        }
        Ok(())
    }
}

/// The link with a rate and a delay.
fn with_rate(rate: &Said<LinkRate>, delay: &Optional<Varying<Millis>>, end: LinkSpec) -> Result<LinkSpec, Problem> {
    let still = Course::constant(Duration::ZERO);
    Ok(LinkSpec {
        rate: varying::rate(rate, rate.span())?,
        delay: delay.as_ref().map_or(Ok(still), |delay| varying::delay(delay, delay.span()))?,
        ..end
    })
}

/// What waits for a link, and what happens at its far end.
fn end(
    name: &str,
    queue: &Optional<Queue>,
    loss: &Optional<Losses>,
    jitter: &Optional<Millis>,
    reorder: &Optional<bool>,
) -> Result<LinkSpec, Problem> {
    Ok(LinkSpec {
        queue: queue.as_ref().map_or(Ok(UNLIMITED), Said::spec)?,
        loss: loss.as_ref().map_or(Ok(LossModel::None), Said::model)?,
        jitter: Jitter { deviation: jitter.or_standard(Duration::ZERO), reorders: reorder.or_standard(false) },
        ..LinkSpec::new(name, Rate::ZERO, Duration::ZERO)
    })
}

/// What is said to each of `count`: one value for all, or a list with one for each;
/// `standard` if nothing is.
fn for_each<T: Shape, V: Clone>(
    said: Option<&Said<Each<T>>>,
    count: usize,
    of_what: &str,
    standard: V,
    value: impl Fn(&T::Holds, Span) -> Result<V, Problem>,
) -> Result<Vec<V>, Problem> {
    let Some(said) = said else { return Ok(vec![standard; count]) };
    match &**said {
        Each::All(one) => Ok(vec![value(one, said.span())?; count]),
        Each::Each(list) if list.len() == count => list.iter().map(|one| value(one, one.span())).collect(),
        Each::Each(list) => {
            let expected = "expected one for each, or one for all";
            Err(said.wrong(format!("{} values for {count} {of_what}; {expected}", list.len())))
        }
    }
}

/// What is written of links.
pub fn written(links: &[LinkSpec]) -> Sections<LinkKeys> {
    sections(links.iter().map(|link| {
        let jitters = link.jitter.deviation > Duration::ZERO || link.jitter.reorders;
        LinkKeys {
            name: some(link.name.clone()),
            from: None,
            to: None,
            both_ways: None,
            rate: said(varying::written_rate(&link.rate)),
            delay_ms: some(varying::written_delay(&link.delay)),
            queue: some(queues::written(link.queue)),
            loss: varying::written_loss(&link.loss),
            jitter_ms: jitters.then(|| said(link.jitter.deviation)),
            reorder: jitters.then(|| said(link.jitter.reorders)),
        }
    }))
}
