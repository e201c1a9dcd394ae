//! Every flow controller by its name. A new one is one file and one line in
//! `CONTROLLERS`; it then appears in every experiment and in the list of controllers.

use super::reading::ClassicReading;
use super::setup::made;
pub use super::setup::{Builder, Factory, Setup};
use super::{
    FlowController, allegro, bbr, bbr3, bic, block_window, c3_cubic, compound, copa, cubic, fixed, learningcc, ledbat,
    policy, remy, reno, vegas, vivace, westwood, xavier,
};
use crate::registry::{ParameterError, UnknownController};

/// The controllers, in the order in which they are listed.
pub const CONTROLLERS: &[Entry] = &[
    Entry {
        name: "reno",
        summary: "slow start, then a packet more each round trip; half after a loss",
        source: "RFC 5681, RFC 6582, RFC 9002 7.3",
        build: reno::build,
    },
    Entry {
        name: "learningcc",
        summary: "a bandit chooses the window's increment; a back-off leaves 0.9 of what the path holds",
        source: "[LearningCC] II",
        build: learningcc::build,
    },
    Entry {
        name: "allegro",
        summary: "tries more and less twice each, keeps what had the higher utility; 5 % loss is borne",
        source: "PCC Allegro, NSDI 2015",
        build: allegro::build,
    },
    Entry {
        name: "allegro-quic",
        summary: "Allegro as QUIC implementations have it, and the LearningCC authors under the name of Vivace",
        source: "PCC Allegro, NSDI 2015; [LearningCC] IV",
        build: allegro::build_quic,
    },
    Entry {
        name: "vivace",
        summary: "climbs the slope of a utility of rate, loss and the round trip's rise",
        source: "PCC Vivace, NSDI 2018",
        build: vivace::build,
    },
    Entry {
        name: "block-window",
        summary: "blocks to receivers in turn; holds the shared queue at a share of what it can hold",
        source: "[Efthymiopoulos 2015] 4, 5",
        build: block_window::build,
    },
    Entry {
        name: "cubic",
        summary: "a cubic function of the time since the last loss, never below Reno",
        source: "RFC 9438; HyStart++: RFC 9406",
        build: cubic::build,
    },
    Entry {
        name: "c3-cubic",
        summary: "Cubic beneath a window that a coordinator sets",
        source: "[C3], non-ML baseline",
        build: c3_cubic::build,
    },
    Entry {
        name: "bic",
        summary: "a binary search between the window after the last loss and that before it",
        source: "Xu, Harfoush, Rhee 2004",
        build: bic::build,
    },
    Entry {
        name: "vegas",
        summary: "keeps 2 to 4 packets of its own in the queue, by round-trip times",
        source: "Brakmo, Peterson 1995",
        build: vegas::build,
    },
    Entry {
        name: "westwood",
        summary: "Reno that falls to the measured rate times the least round trip (Westwood+)",
        source: "Grieco, Mascolo 2004",
        build: westwood::build,
    },
    Entry {
        name: "compound",
        summary: "Reno plus a window that grows fast while the queue is short",
        source: "Tan, Song, Zhang, Sridharan 2006; draft-sridharan-tcpm-ctcp-02",
        build: compound::build,
    },
    Entry {
        name: "bbr",
        summary: "version 1: paces at the highest delivery rate of ten rounds, whatever is lost",
        source: "draft-cardwell-iccrg-bbr-congestion-control-00",
        build: bbr::build,
    },
    Entry {
        name: "bbr3",
        summary: "version 3: as version 1, within bounds that losses above 2 % set",
        source: "draft-ietf-ccwg-bbr-04",
        build: bbr3::build,
    },
    Entry {
        name: "copa",
        summary: "steers towards a rate of 1 over half the queueing delay, in packets",
        source: "Arun, Balakrishnan, NSDI 2018",
        build: copa::build,
    },
    Entry {
        name: "ledbat",
        summary: "fills what others leave, with a queue of at most 100 ms",
        source: "RFC 6817",
        build: ledbat::build,
    },
    Entry {
        name: "ledbat++",
        summary: "the same with 60 ms, a slower growth and periodic slowdowns",
        source: "draft-irtf-iccrg-ledbat-plus-plus-01",
        build: ledbat::plus_plus::build,
    },
    Entry {
        name: "xavier",
        summary: "learns by SARSA what an ACK should do to the window",
        source: "[Xavier] 4.3",
        build: xavier::build,
    },
    Entry {
        name: "xavier-precursor",
        summary: "the same with the discount and the step of its precursor's code",
        source: "[Xavier] 4.3",
        build: xavier::build_precursor,
    },
    Entry {
        name: "remy",
        summary: "a table of rules, made in advance, says what an ACK does",
        source: "Winstein and Balakrishnan, SIGCOMM 2013",
        build: remy::build,
    },
    Entry {
        name: "policy",
        summary: "a network that was trained says each round trip by how much the rate changes",
        source: "Jay et al., Aurora, ICML 2019",
        build: policy::build,
    },
    Entry {
        name: "fixed",
        summary: "a window that never changes",
        source: "the window is its parameter",
        build: fixed::build,
    },
    Entry {
        name: "max-throughput",
        summary: "40 packets in flight, whatever the delay",
        source: "[Xavier] 4.1",
        build: fixed::max_throughput,
    },
    Entry { name: "min-delay", summary: "one packet in flight", source: "[Xavier] 4.1", build: fixed::min_delay },
];

/// Controllers that cannot be made from their defaults, and the parameter that they need.
const NEEDS: &[(&str, &str)] = &[("remy", remy::NEEDS), ("policy", policy::NEEDS)];

/// Controllers that judge a stretch of sending once each packet of it is known to have arrived or to be lost
/// (NSDI 2015, 2.1).
const JUDGE_EACH_PACKET: &[&str] = &["allegro", "vivace"];

/// Controllers whose RFCs leave open what classic simulators, ns-3 above all, settle otherwise than our defaults do.
const CLASSIC: &[(&str, ClassicReading)] = &[("reno", reno::CLASSIC), ("cubic", cubic::CLASSIC)];

/// One controller that can be asked for by name.
#[derive(Debug)]
pub struct Entry {
    /// The name in scenarios, options and results.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper or RFC that it follows.
    pub source: &'static str,
    /// How it is made.
    pub build: Builder,
}

impl Entry {
    /// One of it.
    ///
    /// # Errors
    ///
    /// What it says of its parameters.
    pub fn make(&self, setup: &Setup, parameters: &toml::Table) -> Result<Box<dyn FlowController>, ParameterError> {
        made(self.build, setup, parameters)
    }

    /// Parameters with which it can be made, as tests need them: none where it needs none. They do something, and nothing
    /// sensible.
    #[doc(hidden)]
    pub fn example(&self) -> toml::Table {
        const RULES: &str = "rules = [
            { from = [0, 0, 0], to = [1e5, 1e5, 1.5], multiple = 1, increment = 1, intersend_ms = 0.5 },
            { from = [0, 0, 1.5], to = [1e5, 1e5, 1e5], multiple = 0.5, increment = 0, intersend_ms = 4 },
        ]";
        const NETWORK: &str = "[network]
            features = [\"send_ratio\", \"latency_ratio\", \"latency_gradient\", \"loss\", \"throughput\", \"rate\"]
            history = 1
            interval_rtts = 1.0
            activation = \"tanh\"
            mean = [0, 0, 0, 0, 0, 0]
            deviation = [1, 1, 1, 1, 1, 1]
            least = [0, 1, -1, 0, 0, -4]
            most = [2, 3, 1, 1, 2, 3]
            layers = [{ weights = [-5, -20, -50, -5, 10, -1], biases = [20] }]
        ";
        let text = match self.name {
            "remy" => RULES,
            "policy" => NETWORK,
            _ => "",
        };
        text.parse().expect("a table")
    }

    /// The parameters with which it is what classic simulators run, where its defaults are not that: over a recovery
    /// with selective ACKs if `has_sack`, and beside `set`, those that were set.
    pub fn classic(&self, has_sack: bool, set: &toml::Table) -> toml::Table {
        let Some((_, classic)) = CLASSIC.iter().find(|(name, _)| *name == self.name) else { return toml::Table::new() };
        let text = match has_sack {
            true if classic.chosen_by.iter().any(|key| set.contains_key(*key)) => "",
            true => classic.with_sack,
            false => classic.without_sack,
        };
        text.parse().expect("a table")
    }

    /// The keys of what classic simulators read otherwise than its defaults are, whichever of them hold.
    pub fn classic_keys(&self, has_sack: bool) -> Vec<String> {
        let chosen_by = CLASSIC.iter().find(|(name, _)| *name == self.name && has_sack);
        let chosen_by = chosen_by.map_or(&[][..], |(_, classic)| classic.chosen_by);
        let mut keys: Vec<String> =
            self.classic(has_sack, &toml::Table::new()).into_iter().map(|(key, _)| key).collect();
        keys.extend(chosen_by.iter().map(|key| (*key).to_owned()));
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Whether it judges what it has sent by what became of each packet, which only selective ACKs tell.
    pub fn judges_each_packet(&self) -> bool {
        JUDGE_EACH_PACKET.contains(&self.name)
    }

    /// The parameter without which it cannot be made, and what that is.
    pub fn needs(&self) -> Option<&'static str> {
        NEEDS.iter().find(|(name, _)| *name == self.name).map(|(_, needs)| *needs)
    }
}

/// The controller of that name.
///
/// # Errors
///
/// There is none; the error names those that there are and the nearest.
pub fn find(name: &str) -> Result<&'static Entry, UnknownController> {
    CONTROLLERS
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| UnknownController::new(name, CONTROLLERS.iter().map(|entry| entry.name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Time;
    use crate::units::Bytes;

    const SETUP: Setup = Setup {
        packet: Bytes::new(1448),
        initial_window: Bytes::new(14480),
        start: Time::ZERO,
        shared: false,
        line: None,
    };

    #[test]
    fn every_controller_is_made_from_its_defaults_with_a_window_and_a_trace() {
        for entry in CONTROLLERS.iter().filter(|entry| entry.needs().is_none()) {
            let controller = entry.make(&SETUP, &toml::Table::new()).unwrap();
            assert!(controller.limits().window > Bytes::ZERO, "{} begins with no window", entry.name);
            let mut names = Vec::new();
            controller.trace(&mut |name, value| {
                assert!(value.is_finite(), "{}: {name} is {value}", entry.name);
                names.push(name);
            });
            assert!(!names.is_empty(), "{} has no trace", entry.name);
        }
    }

    #[test]
    fn a_controller_that_needs_a_parameter_says_so() {
        for (name, needs) in NEEDS {
            let error = find(name).unwrap().make(&SETUP, &toml::Table::new()).unwrap_err();
            assert!(error.0.contains(needs), "{name}: {error}");
        }
    }

    #[test]
    fn every_controller_refuses_a_parameter_that_it_does_not_have() {
        for entry in CONTROLLERS {
            let error = entry.make(&SETUP, &"windwo = 3".parse().unwrap()).unwrap_err();
            assert!(error.0.contains("windwo"), "{}: {error}", entry.name);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = CONTROLLERS.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONTROLLERS.len());
    }
}
