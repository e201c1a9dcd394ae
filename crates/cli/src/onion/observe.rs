//! What a relay writes down of who sends to whom through it: for demonstrations alone.
//!
//! Nobody who uses a network expects that of a relay, so this is refused wherever others could be: the relay and all
//! authorities must be on loopback. The file has one JSON object a line, [`Noted`], for each second in which packets
//! passed.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anabranch_control::time::Time;
use anabranch_net::onion::network_file::NetworkFile;
use anabranch_onion::node::{Neighbour, Observed};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::stderr::eprint_line;

/// What passed since the line before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noted {
    /// Since the relay began.
    pub at_s: f64,
    /// Packets, by neighbours.
    pub passed: Vec<Passed>,
    /// Packets of further neighbours.
    pub others: u64,
}

/// Packets from one neighbour to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// From whom.
    pub from: Hop,
    /// To whom.
    pub to: Hop,
    /// How many.
    pub packets: u64,
}

/// A neighbour, as the relay knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hop {
    /// A relay of the list.
    Relay(SocketAddr),
    /// Somebody who is no relay.
    Client(SocketAddr),
    /// The relay's own exit.
    Exit,
}

impl From<Neighbour> for Hop {
    fn from(neighbour: Neighbour) -> Hop {
        match neighbour {
            Neighbour::Relay(at) => Hop::Relay(at),
            Neighbour::Client(at) => Hop::Client(at),
            Neighbour::Itself => Hop::Exit,
        }
    }
}

/// Refuses to observe a relay of `network`, which others reach at `reached`, unless all of it is on loopback.
pub fn check(network: &NetworkFile, reached: SocketAddr) -> Result<(), Failure> {
    let authorities = network.authorities.authorities.iter().map(|(_, address)| *address);
    match authorities.chain([reached]).find(|address| !address.ip().is_loopback()) {
        None => Ok(()),
        Some(other) => Err(Failure::new(format!(
            "--observe writes down who sends to whom, and is for demonstrations on one machine alone: {other} is no \
             loopback address"
        ))),
    }
}

/// Writes it down.
#[derive(Debug)]
pub struct Observer {
    path: PathBuf,
    file: File,
}

impl Observer {
    /// Into `path`, which must not be there yet.
    pub fn begin(path: &Path) -> Result<Observer, Failure> {
        let file = File::create_new(path)
            .map_err(|why| Failure::new(format!("--observe {}: cannot make the file: {why}", path.display())))?;
        eprint_line!(
            "FOR DEMONSTRATIONS ALONE: who sends to whom through this relay is written down in {}; no relay of a network \
             that people use may do that",
            path.display()
        );
        Ok(Observer { path: path.to_owned(), file })
    }

    /// So much has passed since the last time.
    pub fn note(&mut self, now: Time, observed: &Observed) -> Result<(), Failure> {
        if observed.packets.is_empty() {
            return Ok(());
        }
        let passed =
            observed.packets.iter().map(|(&(from, to), &packets)| Passed { from: from.into(), to: to.into(), packets });
        let noted =
            Noted { at_s: now.since(Time::ZERO).as_secs_f64(), passed: passed.collect(), others: observed.others };
        let mut line = serde_json::to_vec(&noted)?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .map_err(|why| Failure::new(format!("--observe {}: cannot write: {why}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_net::onion::network_file::parse;

    fn network(address: &str) -> NetworkFile {
        let key = "07".repeat(32);
        parse(&format!("[[authority]]\nkey = \"{key}\"\naddress = \"{address}\"\n")).unwrap()
    }

    #[test]
    fn what_is_written_down_is_read_as_it_was_and_nothing_is_no_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("seen.jsonl");
        let (client, relay) = (SocketAddr::from(([127, 0, 0, 1], 5)), SocketAddr::from(([127, 1, 2, 1], 6)));
        let mut observer = Observer::begin(&path).unwrap();
        let mut observed = Observed::default();
        observer.note(Time::ZERO, &observed).unwrap();
        observed.count(Neighbour::Client(client), Neighbour::Relay(relay));
        observed.count(Neighbour::Client(client), Neighbour::Relay(relay));
        observed.count(Neighbour::Itself, Neighbour::Client(client));
        observer.note(Time::from_secs_f64(2.5), &observed).unwrap();
        let lines: Vec<Noted> =
            std::fs::read_to_string(&path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let passed = |from, to, packets| Passed { from, to, packets };
        let expected =
            vec![passed(Hop::Client(client), Hop::Relay(relay), 2), passed(Hop::Exit, Hop::Client(client), 1)];
        assert_eq!(lines, [Noted { at_s: 2.5, passed: expected, others: 0 }]);
        // Nothing that is there is written over.
        let again = Observer::begin(&path).unwrap_err();
        assert!(again.words().contains("cannot make the file"), "{again:?}");
    }

    #[test]
    fn a_relay_or_an_authority_that_others_can_reach_observes_nothing() {
        let (here, elsewhere) = ("127.0.0.1:7", "192.0.2.1:7");
        check(&network(here), here.parse().unwrap()).unwrap();
        for (authority, relay) in [(elsewhere, here), (here, elsewhere)] {
            let refused = check(&network(authority), relay.parse().unwrap()).unwrap_err();
            assert!(refused.words().contains("192.0.2.1:7 is no loopback address"), "{refused:?}");
        }
    }
}
