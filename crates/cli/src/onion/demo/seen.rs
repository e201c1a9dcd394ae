//! What each relay of a demo has written down itself, and nothing else: neighbours and counts.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use anabranch_stats::Entropy;

use super::super::observe::{Hop, Noted, Passed};
use crate::failure::Failure;

/// One relay's log.
#[derive(Clone, Debug)]
pub struct Seen {
    lines: Vec<Noted>,
    /// When its clock began, in seconds since the demo did.
    began_s: f64,
}

/// What a relay is to the user, by what it has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It met the user's address.
    Guard,
    /// It talked with the site.
    Exit,
    /// It met relays alone.
    Between,
    /// Nothing came by it.
    Unused,
}

impl Role {
    /// In words, with what it knows.
    pub fn words(self) -> &'static str {
        match self {
            Role::Guard => "a guard: it knows the user's address, and not where to",
            Role::Exit => "the exit: it knows where to, and not who",
            Role::Between => "between: it knows neither who nor where to",
            Role::Unused => "nothing came by it",
        }
    }
}

/// Numbers of relays by their addresses.
#[derive(Clone, Debug, Default)]
pub struct Names(pub BTreeMap<SocketAddr, usize>);

impl Names {
    /// What a relay knows of a neighbour.
    pub fn of(&self, hop: Hop) -> String {
        match hop {
            Hop::Relay(at) => self.0.get(&at).map_or_else(|| at.to_string(), |number| format!("relay {number}")),
            Hop::Client(at) => format!("a client at {at}"),
            Hop::Exit => "its own exit".to_owned(),
        }
    }
}

impl Seen {
    /// Reads a relay's file; it is missing where the relay did not come to write.
    pub fn read(path: &Path, began_s: f64) -> Result<Seen, Failure> {
        let text = match fs::read_to_string(path) {
            Err(why) if why.kind() == ErrorKind::NotFound => String::new(),
            other => other?,
        };
        let lines = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Seen { lines, began_s })
    }

    fn passed(&self) -> impl Iterator<Item = &Passed> {
        self.lines.iter().flat_map(|line| &line.passed)
    }

    /// All packets, by both neighbours.
    pub fn pairs(&self) -> BTreeMap<(Hop, Hop), u64> {
        let mut pairs = BTreeMap::new();
        self.passed().for_each(|passed| *pairs.entry((passed.from, passed.to)).or_default() += passed.packets);
        pairs
    }

    /// What it is to the user.
    pub fn role(&self) -> Role {
        let has = |is: fn(&Hop) -> bool| self.passed().any(|passed| is(&passed.from) || is(&passed.to));
        if has(|hop| matches!(hop, Hop::Client(_))) {
            Role::Guard
        } else if has(|hop| *hop == Hop::Exit) {
            Role::Exit
        } else if self.lines.is_empty() {
            Role::Unused
        } else {
            Role::Between
        }
    }

    /// Packets by the neighbour that `side` picks.
    pub fn by(&self, side: fn(&Passed) -> Hop) -> BTreeMap<Hop, u64> {
        let mut all = BTreeMap::new();
        self.passed().for_each(|passed| *all.entry(side(passed)).or_default() += passed.packets);
        all
    }

    /// What it does not know of the neighbour that `side` picks, before the next packet comes.
    pub fn entropy(&self, side: fn(&Passed) -> Hop) -> Option<Entropy> {
        entropy(self.by(side).values().copied())
    }

    /// Second by second of the demo: the packets that `which` picks, by the neighbour before.
    fn by_second(&self, which: impl Fn(&Passed) -> bool) -> BTreeMap<u64, BTreeMap<Hop, u64>> {
        let mut seconds: BTreeMap<u64, BTreeMap<Hop, u64>> = BTreeMap::new();
        for line in &self.lines {
            // The last line of a relay that ends is of less than a second.
            let second = seconds.entry((self.began_s + line.at_s) as u64).or_default();
            for passed in line.passed.iter().filter(|passed| which(passed)) {
                *second.entry(passed.from).or_default() += passed.packets;
            }
        }
        seconds
    }

    /// Second by second of the demo: the packets that `which` picks.
    pub fn each_second(&self, which: impl Fn(&Passed) -> bool) -> BTreeMap<u64, u64> {
        self.by_second(which).into_iter().map(|(second, counts)| (second, counts.into_values().sum())).collect()
    }

    /// Second by second: the entropy of where packets for its own exit came from.
    pub fn exit_entropy_each_second(&self) -> BTreeMap<u64, f64> {
        let seconds = self.by_second(|passed| passed.to == Hop::Exit).into_iter();
        seconds.filter_map(|(second, counts)| Some((second, entropy(counts.into_values())?.bits))).collect()
    }
}

fn entropy(counts: impl Iterator<Item = u64>) -> Option<Entropy> {
    Entropy::of(&counts.map(|count| count as f64).collect::<Vec<f64>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Hop = Hop::Client(SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9));

    fn relay(number: u8) -> Hop {
        Hop::Relay(([127, 1, number, 1], 5).into())
    }

    /// When, and what passed.
    type Line<'a> = (f64, &'a [(Hop, Hop, u64)]);

    fn seen(lines: &[Line<'_>]) -> Seen {
        let lines = lines.iter().map(|(at_s, passed)| {
            let passed = passed.iter().map(|&(from, to, packets)| Passed { from, to, packets }).collect();
            Noted { at_s: *at_s, passed, others: 0 }
        });
        Seen { lines: lines.collect(), began_s: 2.0 }
    }

    #[test]
    fn a_relay_is_what_it_has_met() {
        assert_eq!(seen(&[]).role(), Role::Unused);
        assert_eq!(seen(&[(1.0, &[(relay(1), relay(2), 3)])]).role(), Role::Between);
        assert_eq!(seen(&[(1.0, &[(relay(1), relay(2), 3), (CLIENT, relay(2), 1)])]).role(), Role::Guard);
        assert_eq!(seen(&[(1.0, &[(Hop::Exit, relay(2), 1)])]).role(), Role::Exit);
    }

    #[test]
    fn packets_add_up_over_seconds_and_entropy_is_of_what_came() {
        let log = seen(&[
            (1.2, &[(relay(1), Hop::Exit, 4), (Hop::Exit, relay(3), 9)]),
            (2.2, &[(relay(1), Hop::Exit, 1), (relay(2), Hop::Exit, 6)]),
            (2.9, &[(relay(1), Hop::Exit, 1)]),
        ]);
        assert_eq!(log.pairs()[&(relay(1), Hop::Exit)], 6);
        assert_eq!(log.each_second(|passed| passed.to == Hop::Exit), [(3, 4), (4, 8)].into());
        let each = log.exit_entropy_each_second();
        assert!(each[&3] == 0.0 && (each[&4] - 0.811).abs() < 0.001, "{each:?}");
        let entropy = log.entropy(|passed| passed.to).unwrap();
        assert!((entropy.bits - 0.985).abs() < 0.001, "{entropy:?}");
        let names = Names([(([127, 1, 1, 1], 5).into(), 7)].into());
        assert_eq!((names.of(relay(1)), names.of(CLIENT)), ("relay 7".into(), "a client at 127.0.0.1:9".into()));
    }
}
