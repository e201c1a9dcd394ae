//! Cross traffic: packets that come whatever becomes of them.

use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

use super::super::error::{Problem, Span};
use super::super::shape::{
    Either, Many, Optional, OrStandard, Said, Section, Sections, keys, one_of, said, some, span,
};
use super::super::values::{BitRate, Name, Seconds, Word, Words, after_start, since_start};
use super::{LONGEST_RUN_S, MOST_FLOWS, PacketBytes, RunSeconds, ways};
use crate::flows::topology::Topology;
use crate::flows::{CrossTraffic, LinkSpec, Pattern};

/// A packet's size on the wire if nothing is said.
const STANDARD_PACKET: u64 = 1500;

/// An on time is at least a microsecond.
type OnTime = Seconds<1000, LONGEST_RUN_S>;

keys! {
    /// `[[cross_traffic]]`.
    pub struct CrossTrafficKeys {
        name: Optional<Name>,
        from: Optional<String>,
        to: Optional<String>,
        path: Optional<Many<String>>,
        rate: Said<BitRate>,
        packet_bytes: Optional<PacketBytes>,
        pattern: Optional<Either<Word<Constant>, PatternKeys>>,
        start_s: Optional<RunSeconds>,
        stop_s: Optional<RunSeconds>,
    }
}

keys! {
    /// When it is on.
    #[derive(Default)]
    pub struct PatternKeys {
        on_s: Optional<OnTime>,
        off_s: Optional<RunSeconds>,
        on_mean_s: Optional<OnTime>,
        off_mean_s: Optional<RunSeconds>,
    }
}

/// It is always on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant;

impl Words for Constant {
    const WORDS: &'static [(&'static str, Self)] = &[("constant", Constant)];

    fn expected() -> String {
        "\"constant\", { on_s = 1, off_s = 1 }, or { on_mean_s = 1, off_mean_s = 1 } for exponential times".to_owned()
    }
}

/// The sources that are described.
pub fn read(said: &Sections<CrossTrafficKeys>, topology: &Topology) -> Result<Vec<CrossTraffic>, Problem> {
    let mut sources: Vec<CrossTraffic> = Vec::new();
    let Some(sections) = said else { return Ok(sources) };
    if sections.len() > MOST_FLOWS {
        return Err(sections.wrong(format!("expected at most {MOST_FLOWS} sources")));
    }
    for section in sections.iter() {
        let source = section.source(topology, sources.len())?;
        if sources.iter().any(|other| other.name == source.name) {
            let problem = format!("there is a source \"{}\" already; expected another name", source.name);
            return Err(Problem::at(span(&section.name).unwrap_or(section.span()), problem));
        }
        sources.push(source);
    }
    Ok(sources)
}

/// The nodes and links that sources name.
pub fn named(said: &Sections<CrossTrafficKeys>) -> Vec<String> {
    let sources = said.iter().flat_map(|sources| sources.iter());
    let ends = |source: &Section<CrossTrafficKeys>| {
        let nodes = source.from.iter().chain(&source.to).map(|node| (**node).clone());
        nodes.chain(source.path.iter().flat_map(|path| path.iter()).map(|link| (**link).clone())).collect::<Vec<_>>()
    };
    sources.flat_map(ends).collect()
}

impl Section<CrossTrafficKeys> {
    fn source(&self, topology: &Topology, before: usize) -> Result<CrossTraffic, Problem> {
        let path = match (&self.path, &self.from, &self.to) {
            (Some(path), None, None) => ways::along(path, topology)?,
            (Some(_), ..) => {
                let other = span(&self.from).or(span(&self.to)).unwrap_or(self.span());
                return Err(Problem::at(other, "there is a \"path\" already; expected either of them"));
            }
            (None, Some(from), Some(to)) => {
                let (from_node, to_node) = (ways::node(from, topology, 0)?, ways::node(to, topology, 0)?);
                ways::shortest(topology, &from_node, &to_node).map_err(|problem| problem.at(from.span(), to.span()))?
            }
            (None, None, _) => return Err(self.missing("from", "the node that sends")),
            (None, _, None) => return Err(self.missing("to", "the node that receives")),
        };
        let start = self.start_s.as_ref().map_or(Time::ZERO, |start| after_start(**start));
        let stop = self.stop_s.as_ref().map(|stop| (after_start(**stop), stop));
        if let Some((_, stop)) = stop.filter(|(at, _)| *at <= start) {
            return Err(stop.wrong("it would end before it begins; expected more than its start"));
        }
        Ok(CrossTraffic {
            name: self.name.as_ref().map_or_else(|| format!("cross{before}"), |name| name.to_string()),
            path,
            rate: *self.rate,
            packet: Bytes::new(self.packet_bytes.or_standard(STANDARD_PACKET)),
            pattern: match &self.pattern {
                Some(said) => match &**said {
                    Either::Plain(_) => Pattern::Constant,
                    Either::Table(keys) => keys.pattern(said.span())?,
                },
                None => Pattern::Constant,
            },
            start,
            stop: stop.map(|(at, _)| at),
        })
    }
}

impl PatternKeys {
    fn pattern(&self, at: Span) -> Result<Pattern, Problem> {
        let keys = [("on_s", span(&self.on_s)), ("on_mean_s", span(&self.on_mean_s))];
        let is_random = one_of(&keys, at.clone(), "when it is on")? == 1;
        let (key, on, needed, off, stray) = match is_random {
            true => ("on_mean_s", &self.on_mean_s, "off_mean_s", &self.off_mean_s, &self.off_s),
            false => ("on_s", &self.on_s, "off_s", &self.off_s, &self.off_mean_s),
        };
        if let Some(stray) = stray {
            return Err(stray.wrong(format!("this does not go with \"{key}\"; expected \"{needed}\"")));
        }
        let (Some(on), Some(off)) = (on, off) else {
            return Err(Problem::missing(at, needed, "the seconds in which it is off"));
        };
        let (on, off) = (**on, **off);
        Ok(if is_random { Pattern::Exponential { on, off } } else { Pattern::Periodic { on, off } })
    }
}

/// What is written of a source.
pub fn written(source: &CrossTraffic, links: &[LinkSpec]) -> CrossTrafficKeys {
    CrossTrafficKeys {
        name: some(source.name.clone()),
        from: None,
        to: None,
        path: ways::written(&source.path, links),
        rate: said(source.rate),
        packet_bytes: some(source.packet.get()),
        pattern: some(match source.pattern {
            Pattern::Constant => Either::Plain(Constant),
            Pattern::Periodic { on, off } => {
                Either::Table(PatternKeys { on_s: some(on), off_s: some(off), ..PatternKeys::default() })
            }
            Pattern::Exponential { on, off } => {
                Either::Table(PatternKeys { on_mean_s: some(on), off_mean_s: some(off), ..PatternKeys::default() })
            }
        }),
        start_s: some(since_start(source.start)),
        stop_s: source.stop.map(|stop| said(since_start(stop))),
    }
}
