//! Every path controller by its name. A new rate learner is one file and one line
//! in `CONTROLLERS`; it then appears in every experiment, in the real sender and
//! in the list of controllers.

use std::sync::OnceLock;

use super::PathController;
use super::aimd::{Aimd, Consistent, Literal};
use super::burst_credit::BurstCredit;
use super::explicit_rate;
use super::flow_peers;
use super::learner::RateLearner;
use super::paced_credit::PacedCredit;
use super::per_peer::PerPeer;
use super::q_learning::QLearning;
use super::random::Random;
use super::setup::factory;
pub use super::setup::{Factory, Pacing, Setup};
use super::timeouts;
use super::tomography;
use crate::flow::registry as flow;
use crate::registry::{ParameterError, UnknownController};

/// The controllers, in the order in which they are listed.
pub const CONTROLLERS: &[Entry] = &[
    Entry {
        name: "q-learning",
        summary: "learns by reward which packet rate each relay takes",
        source: "[Raiber 2010] 5.4, 6.2",
        reads_telemetry: false,
        build: Build::Anywhere(per_peer::<QLearning>),
    },
    Entry {
        name: "aimd",
        summary: "additive increase of a packet each round trip, multiplicative decrease",
        source: "[Raiber 2010] 4.2, eq. 4.7 with consistent units",
        reads_telemetry: false,
        build: Build::Anywhere(per_peer::<Aimd<Consistent>>),
    },
    Entry {
        name: "aimd-literal",
        summary: "AIMD with the increase as it is printed, about a byte a second for each ACK",
        source: "[Raiber 2010] 4.2, eq. 4.7 to the letter",
        reads_telemetry: false,
        build: Build::Anywhere(per_peer::<Aimd<Literal>>),
    },
    Entry {
        name: "explicit-rate",
        summary: "sends at the rates that relays stamp on ACKs",
        source: "Anabranch; the relays' rule is RCP's [Dukkipati 2007]",
        reads_telemetry: true,
        build: Build::Anywhere(explicit_rate::build),
    },
    Entry {
        name: "timeouts",
        summary: "loss tomography from ACKs and timeouts alone",
        source: "Anabranch",
        reads_telemetry: false,
        build: Build::Anywhere(timeouts::build),
    },
    Entry {
        name: "tomography",
        summary: "queueing delay and loss of each relay, told apart from round trips and timeouts",
        source: "Anabranch; the rule for rates is RCP's [Dukkipati 2007]",
        reads_telemetry: false,
        build: Build::Anywhere(tomography::build),
    },
    Entry {
        name: "perfect",
        summary: "a manager that knows every relay's load and limit; only in simulation",
        source: "[Raiber 2010] 6.3.2, A.0.1, A.0.2",
        reads_telemetry: false,
        build: Build::Omniscient,
    },
    Entry {
        name: "random",
        summary: "no control: random relays for every packet",
        source: "[Raiber 2010] 6.3.1",
        reads_telemetry: false,
        build: Build::Anywhere(random),
    },
];

/// One controller that can be asked for by name.
#[derive(Debug)]
pub struct Entry {
    /// The name in scenarios, options and results.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// The paper or RFC that it follows.
    pub source: &'static str,
    /// Whether it reads what ACKs tell beside their arrival, [`Report::stamps`](super::Report::stamps)
    /// and [`Report::one_way_nanos`](super::Report::one_way_nanos). To one that does not, a simulation
    /// tells neither: what is carried over each hop costs time.
    pub reads_telemetry: bool,
    /// How it is made.
    pub build: Build,
}

/// How a controller is made.
#[derive(Clone, Copy, Debug)]
pub enum Build {
    /// From what any sender knows.
    Anywhere(Builder),
    /// A flow controller for each peer.
    Flow(&'static flow::Entry),
    /// From what only a simulation knows: `perfect::Manager`.
    Omniscient,
}

impl Build {
    /// What makes the controllers of many senders from the same parameters, which are read once; none if only a
    /// simulation can make one.
    pub fn factory(&self, parameters: &toml::Table) -> Option<Result<Factory, ParameterError>> {
        match *self {
            Build::Anywhere(build) => Some(build(parameters)),
            Build::Flow(controller) => Some(flow_peers::build(controller, parameters)),
            Build::Omniscient => None,
        }
    }

    /// The controller, if any sender can make it; none if only a simulation can.
    pub fn make(
        &self,
        setup: &Setup,
        parameters: &toml::Table,
    ) -> Option<Result<Box<dyn PathController>, ParameterError>> {
        Some(self.factory(parameters)?.map(|make| make(setup)))
    }
}

/// Reads the parameters that were set.
pub type Builder = fn(&toml::Table) -> Result<Factory, ParameterError>;

/// Before a flow controller's name: one of it for each peer.
const FLOW_PREFIX: &str = "flow:";

/// Every flow controller as a rule for each peer, named `flow:` and its name.
pub fn flow_controllers() -> &'static [Entry] {
    static ENTRIES: OnceLock<Vec<Entry>> = OnceLock::new();
    ENTRIES.get_or_init(|| {
        // Names live as long as the program, like those of the other controllers.
        let entry = |controller: &'static flow::Entry| Entry {
            name: format!("{FLOW_PREFIX}{}", controller.name).leak(),
            summary: controller.summary,
            source: controller.source,
            reads_telemetry: false,
            build: Build::Flow(controller),
        };
        flow::CONTROLLERS.iter().map(entry).collect()
    })
}

/// The controller of that name.
///
/// # Errors
///
/// There is none; the error names those that there are and the nearest.
pub fn find(name: &str) -> Result<&'static Entry, UnknownController> {
    let mut all = CONTROLLERS.iter().chain(flow_controllers());
    all.find(|entry| entry.name == name).ok_or_else(|| {
        let flows = name.starts_with(FLOW_PREFIX);
        let known: &[Entry] = if flows { flow_controllers() } else { CONTROLLERS };
        let others = (!flows).then_some("flow:NAME");
        UnknownController::new(name, known.iter().map(|entry| entry.name).chain(others))
    })
}

fn per_peer<L: RateLearner>(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    let config: L::Config = crate::registry::parameters(parameters)?;
    L::check(&config)?;
    Ok(Box::new(move |setup| {
        let (config, Setup { peers, packet, start, pacing }) = (config.clone(), *setup);
        match pacing {
            Pacing::Burst => Box::new(PerPeer::<L, BurstCredit>::new(config, peers, packet, start)),
            Pacing::Paced => Box::new(PerPeer::<L, PacedCredit>::new(config, peers, packet, start)),
        }
    }))
}

fn random(parameters: &toml::Table) -> Result<Factory, ParameterError> {
    crate::registry::no_parameters(parameters)?;
    Ok(factory(|setup| Random::new(setup.peers)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::{Hop, Outcome, Report, Slot};
    use crate::rng::Rng;
    use crate::rtt::{PairRtts, RttConfig};
    use crate::time::{Duration, Time};
    use crate::units::Bytes;

    const SETUP: Setup = Setup { peers: 5, packet: Bytes::new(1500), start: Time::ZERO, pacing: Pacing::Burst };

    fn build(name: &str, parameters: &str) -> Result<Box<dyn PathController>, ParameterError> {
        let made = find(name).unwrap().build.make(&SETUP, &parameters.parse().unwrap());
        made.unwrap_or_else(|| panic!("{name} needs a simulation"))
    }

    #[test]
    fn a_misspelt_name_gets_the_nearest_one() {
        let message = find("q-lerning").unwrap_err().to_string();
        assert!(message.contains("did you mean \"q-learning\"?"), "{message}");
        let message = find("flow:rno").unwrap_err().to_string();
        assert!(message.contains("did you mean \"flow:reno\"?"), "{message}");
        assert!(!find("zzzzzzzzzzzz").unwrap_err().to_string().contains("did you mean"));
    }

    #[test]
    fn parameters_are_checked_by_name_and_range() {
        assert!(build("q-learning", "epsilon = 0.02").is_ok());
        assert!(build("q-learning", "epsilom = 0.02").unwrap_err().0.contains("epsilom"));
        assert!(build("q-learning", "epsilon = 2").unwrap_err().0.contains("between 0 and 1"));
        assert!(build("aimd", "decrease = 1.4").unwrap_err().0.contains("decrease"));
        // The first key by name is right: the second is blamed.
        let of_another_type = build("q-learning", "discount = 0.5\nepsilon = []").unwrap_err().0;
        assert_eq!(of_another_type, "epsilon is a list; expected a number");
        let too_large = build("q-learning", "max_state = -1").unwrap_err().0;
        assert_eq!(too_large, "max_state is -1; expected a whole number from 0 to 4294967295");
        assert!(build("flow:reno", "").is_ok());
        assert!(build("flow:reno", "epsilon = 0.1").unwrap_err().0.contains("epsilon"));
        assert!(build("random", "epsilon = 0.1").unwrap_err().0.contains("no parameters"));
    }

    #[test]
    fn parameters_are_read_before_the_first_sender_and_hold_for_all() {
        let read = |parameters: &str| find("aimd").unwrap().build.factory(&parameters.parse().unwrap()).unwrap();
        assert!(read("decrease = 1.4").is_err());
        let make = read("decrease = 0.25").unwrap();
        for _ in 0..2 {
            let mut made = make(&Setup { peers: 2, ..SETUP });
            let (mut rtts, mut rng) = (PairRtts::new(&RttConfig::default(), 2), Rng::stream(1, "aimd"));
            rtts.sample(&[Slot(0)], Duration::from_millis(100));
            let mut rate_after = |second: u64, outcome: Outcome| {
                let mut path = [Hop::default()];
                let now = Time::ZERO + Duration::SECOND * second;
                assert!(made.select(now, Slot(1), SETUP.packet, &mut path, &mut rng), "at {second} s");
                made.on_outcome(&Report::of(outcome, &path, &rtts), &mut rng);
                made.rate(Slot(0)).unwrap().bytes_per_sec()
            };
            // Slow start adds a packet a second for each ACK, and ends at half the rate.
            let grown = (1..=9).map(|second| rate_after(second, Outcome::Acked)).last().unwrap();
            assert_eq!((grown, rate_after(10, Outcome::TimedOut)), (15_000.0, 7_500.0));
            assert_eq!(rate_after(11, Outcome::TimedOut), 0.25 * 7_500.0);
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = CONTROLLERS.iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CONTROLLERS.len());
    }

    /// What the book shows is the module that is compiled and tested here, and builds as it says.
    #[test]
    fn the_books_example_of_a_learner_is_the_one_that_is_compiled() {
        let page = include_str!("../../../../docs/add-a-learner.md");
        assert!(page.contains(include_str!("ladder.rs")), "docs/add-a-learner.md shows another ladder.rs");
        assert!(page.contains("build: Build::Anywhere(per_peer::<super::ladder::Ladder>),"));
        let entry = Entry {
            name: "ladder",
            summary: "",
            source: "",
            reads_telemetry: false,
            build: Build::Anywhere(per_peer::<super::super::ladder::Ladder>),
        };
        let setup = Setup {
            peers: 5,
            packet: crate::units::Bytes::new(1500),
            start: crate::time::Time::ZERO,
            pacing: Pacing::Burst,
        };
        assert!(entry.build.make(&setup, &"patience = 40".parse().unwrap()).unwrap().is_ok());
        assert!(entry.build.make(&setup, &"patience = 0".parse().unwrap()).unwrap().is_err());
    }
}
