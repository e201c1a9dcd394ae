//! Every experiment by its name, and what runs it.

use crate::error::ExperimentError;
use crate::expected::ExpectedError;
use crate::experiment_lab::{AttackLab, FlowLab, Lab, OnionLab, StreamLab};
use crate::findings::Findings;
use crate::folder::Folder;
use crate::packets::{self, Carrier};
use crate::request::Request;
use crate::verdict::{Kind, Totals};
use crate::{
    c3, efthymiopoulos, learners, learningcc, onion, onion_cover, quick_verdicts, raiber, remy_golden, streams, xavier,
};

/// One experiment of a paper.
#[derive(Debug)]
pub struct Experiment {
    /// Its name, that of its folder under `experiments/`.
    pub id: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// Its scenario file.
    pub scenario: &'static str,
    /// The paper's numbers and what counts as agreement, as CSV.
    pub expected: &'static str,
    run: Runner,
}

/// What runs an experiment.
#[derive(Debug)]
enum Runner {
    /// An overlay of peers.
    Overlay(fn(&Lab) -> Result<Findings, ExperimentError>),
    /// Overlays of peers in many settings, and files over relays on sockets.
    Settings(fn(&Lab) -> Result<Findings, ExperimentError>),
    /// Flows over links.
    Flows(fn(&FlowLab) -> Result<Findings, ExperimentError>),
    /// Flows over links, which real packets can carry too: TCP's are the kernel's.
    Packets(fn(&FlowLab) -> Result<Findings, ExperimentError>),
    /// Flows over links, which QUIC can carry too.
    Quic(fn(&FlowLab) -> Result<Findings, ExperimentError>),
    /// Flows over links, steered by policies that were trained before.
    Learned(fn(&FlowLab) -> Result<Findings, ExperimentError>),
    /// Streams over their viewers.
    Streams(fn(&StreamLab) -> Result<Findings, ExperimentError>),
    /// Onion overlays that carry traffic.
    Onion(fn(&OnionLab) -> Result<Findings, ExperimentError>),
    /// Adversaries that watch an onion overlay.
    Attack(fn(&AttackLab) -> Result<Findings, ExperimentError>),
}

macro_rules! experiment {
    ($kind:ident, $id:literal, $title:literal, $run:path) => {
        Experiment {
            id: $id,
            title: $title,
            scenario: include_str!(concat!("../../../experiments/", $id, "/scenario.toml")),
            expected: include_str!(concat!("../../../experiments/", $id, "/expected.csv")),
            run: Runner::$kind($run),
        }
    };
}

/// Every experiment, in the order of the papers.
pub const EXPERIMENTS: &[Experiment] = &[
    experiment!(
        Overlay,
        "raiber-table-7.1",
        "How much should a new round-trip sample weigh, and when is an ACK late?",
        raiber::round_trip_estimate::run
    ),
    experiment!(
        Overlay,
        "raiber-fig-7.2",
        "What does AIMD receive for each increase and decrease?",
        raiber::grids::aimd_throughput
    ),
    experiment!(
        Overlay,
        "raiber-fig-7.3",
        "What does AIMD drop for each increase and decrease?",
        raiber::grids::aimd_drops
    ),
    experiment!(Overlay, "raiber-table-7.2", "What should Q-learning pay for an ACK?", raiber::grids::reward),
    experiment!(
        Overlay,
        "raiber-table-7.3",
        "How fast should Q-learning learn, and how far look ahead?",
        raiber::grids::learning_rate_and_discount
    ),
    experiment!(
        Overlay,
        "raiber-table-7.4",
        "How much does each controller receive and drop, and how soon?",
        raiber::standard::run
    ),
    experiment!(
        Overlay,
        "raiber-table-7.5",
        "How does one sender's rate for one peer settle?",
        raiber::rates::progression
    ),
    experiment!(Overlay, "raiber-fig-7.4", "Does throughput hold with more peers?", raiber::sensitivity::peers),
    experiment!(Overlay, "raiber-fig-7.5", "Does throughput hold with more hops?", raiber::sensitivity::hops),
    experiment!(Overlay, "raiber-fig-7.6", "Does throughput hold with longer delays?", raiber::sensitivity::delay),
    experiment!(
        Overlay,
        "raiber-fig-7.7",
        "How does AIMD's rate move under longer delays?",
        raiber::rates::under_delay
    ),
    experiment!(
        Overlay,
        "raiber-fig-7.8",
        "Does throughput grow with the rate of each peer?",
        raiber::sensitivity::bandwidth
    ),
    experiment!(
        Overlay,
        "raiber-table-7.6",
        "Who drops how much with more peers, rate, hops and delay?",
        raiber::drops::run
    ),
    experiment!(
        Overlay,
        "raiber-table-7.7",
        "How soon is there room for a peer that begins to send?",
        raiber::changes::joining
    ),
    experiment!(
        Overlay,
        "raiber-fig-7.9",
        "How soon is throughput back after limits are exchanged?",
        raiber::changes::exchange_throughput
    ),
    experiment!(
        Overlay,
        "raiber-fig-7.10",
        "How much is dropped after limits are exchanged?",
        raiber::changes::exchange_drops
    ),
    experiment!(
        Streams,
        "raiber-fig-7.11",
        "Are the trees of a stream flat, and does every line bear its children?",
        streams::live_trees::run
    ),
    experiment!(
        Streams,
        "raiber-churn",
        "Are silent clients removed, many clients' trees optimised, and what does exploring cost?",
        streams::churn::run
    ),
    experiment!(
        Onion,
        "raiber-more",
        "What do controllers of peers carry inside MORE, against control of paths, over 2 to 4 hops?",
        onion::run
    ),
    experiment!(
        Attack,
        "onion-constant-rate",
        "What does counting packets tell of users who send at a constant rate?",
        onion_cover::run
    ),
    experiment!(
        Settings,
        "anabranch-learners",
        "What do our own learners receive of what is possible, and how soon?",
        learners::run
    ),
    experiment!(
        Overlay,
        "raiber-appendix-a",
        "Are batch means normal and not autocorrelated?",
        raiber::batch_means::run
    ),
    experiment!(
        Quic,
        "c3-cross-traffic",
        "Does steering use what periodic cross traffic leaves?",
        c3::rule::cross_traffic
    ),
    experiment!(Quic, "c3-fct", "Do short flows complete sooner when they are steered?", c3::rule::completion),
    experiment!(Flows, "c3-loss", "Does a steered flow keep its goodput under random loss?", c3::rule::loss),
    experiment!(Learned, "c3-scenario-1", "Does one flow learn to send at the bottleneck's rate?", c3::learned::single),
    experiment!(Learned, "c3-scenario-2", "Do two flows learn to send at half the rate each?", c3::learned::parallel),
    experiment!(
        Learned,
        "c3-scenario-3",
        "Does a flow learn to yield half when another begins?",
        c3::learned::staggered
    ),
    experiment!(
        Learned,
        "c3-cross-learned",
        "How near to an oracle is a coordinator that learned, beside cross traffic?",
        c3::learned::cross
    ),
    experiment!(
        Learned,
        "c3-fairness",
        "Is a policy fair with hosts and rates that it was not trained on?",
        c3::learned::fairness
    ),
    experiment!(
        Learned,
        "c3-subdomains",
        "What is left of a coordinator's gain when it tells sub-domains, and seldom?",
        c3::learned::subdomains
    ),
    experiment!(
        Learned,
        "c3-delayed",
        "What is left of a coordinator's gain when reports are late?",
        c3::learned::delayed
    ),
    experiment!(Flows, "learningcc-fig-2", "How long is LearningCC's queue?", learningcc::delay),
    experiment!(Flows, "learningcc-fig-3", "Do four flows of LearningCC share fairly?", learningcc::fairness),
    experiment!(Packets, "learningcc-fig-4", "What does LearningCC get beside Reno and Cubic?", learningcc::ratio),
    experiment!(
        Packets,
        "learningcc-fig-5",
        "Does LearningCC fill links that lose 3.5 %?",
        learningcc::utilisation_3_5
    ),
    experiment!(Packets, "learningcc-fig-6", "Does LearningCC fill links that lose 5 %?", learningcc::utilisation_5),
    experiment!(Flows, "learningcc-fluid", "Does LearningCC's fluid model say what packets do?", learningcc::fluid),
    experiment!(
        Flows,
        "efthymiopoulos-fig-3-5",
        "Does the block window follow a path whose latency changes?",
        efthymiopoulos::alone::latency
    ),
    experiment!(
        Flows,
        "efthymiopoulos-fig-6",
        "Does one block window serve receivers at four distances?",
        efthymiopoulos::alone::receivers
    ),
    experiment!(
        Flows,
        "efthymiopoulos-fig-7-9",
        "Does the block window follow an upload whose rate changes?",
        efthymiopoulos::alone::bandwidth
    ),
    experiment!(
        Packets,
        "efthymiopoulos-fig-10-12",
        "What does the block window leave TCP BIC that joins?",
        efthymiopoulos::tcp::bic_joins
    ),
    experiment!(
        Packets,
        "efthymiopoulos-fig-13-15",
        "What does the block window get from TCP BIC that is ahead?",
        efthymiopoulos::tcp::bic_first
    ),
    experiment!(
        Packets,
        "efthymiopoulos-fig-16-18",
        "What does the block window leave TCP Reno that joins?",
        efthymiopoulos::tcp::reno_joins
    ),
    experiment!(
        Packets,
        "efthymiopoulos-fig-19-21",
        "What does the block window get from TCP Reno that is ahead?",
        efthymiopoulos::tcp::reno_first
    ),
    experiment!(
        Flows,
        "efthymiopoulos-lemmas",
        "Do the block window's two lemmas hold over packets?",
        efthymiopoulos::lemmas::run
    ),
    experiment!(
        Streams,
        "efthymiopoulos-system-steady",
        "Does every viewer of a mesh alone get the stream?",
        streams::system::steady
    ),
    experiment!(
        Streams,
        "efthymiopoulos-system-changing",
        "Does every viewer get the stream over lines that change?",
        streams::system::changing
    ),
    experiment!(
        Streams,
        "efthymiopoulos-system-churn",
        "Does every viewer get the stream while others go?",
        streams::system::churn
    ),
    experiment!(
        Streams,
        "efthymiopoulos-system-properties",
        "Is bandwidth idle only if all have the stream, and equally?",
        streams::system::properties
    ),
    experiment!(
        Streams,
        "efthymiopoulos-system-helper",
        "Does a server send just what viewers cannot?",
        streams::system::helper
    ),
    experiment!(Flows, "xavier-fig-1", "Where is Xavier between throughput and delay, at 15 Mbit/s?", xavier::fig_1),
    experiment!(Flows, "xavier-fig-2", "Where is Xavier between throughput and delay, at 3 Mbit/s?", xavier::fig_2),
    experiment!(Flows, "xavier-fig-3", "What does Xavier's bonus for growth buy?", xavier::fig_3),
    experiment!(Flows, "xavier-fig-4", "Which of Xavier's features are needed?", xavier::fig_4),
    experiment!(Flows, "remy-golden", "Do Remy's tables do here what they do in Remy's simulator?", remy_golden::run),
    experiment!(Streams, "stream-trees", "How far above the best trees do the moves stop?", streams::trees::run),
    experiment!(Streams, "stream-modes", "Trees, a mesh or both: what arrives, and at what cost?", streams::modes::run),
    experiment!(
        Streams,
        "stream-steady",
        "Does a stream arrive whole while viewers stay, leave and die?",
        streams::steady::run
    ),
    experiment!(Streams, "stream-liars", "What do honest viewers get beside those who lie?", streams::liars::run),
    experiment!(
        Streams,
        "stream-flash-crowd",
        "How soon do a thousand viewers see something who come at once?",
        streams::crowd::run
    ),
    experiment!(
        Streams,
        "stream-controllers",
        "Which flow controllers carry a stream over its viewers?",
        streams::controllers::run
    ),
];

/// No experiment has this name.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no experiment \"{id}\"{} (`anabranch reproduce --list` names all)", .nearest.map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default())]
pub struct UnknownExperiment {
    id: String,
    nearest: Option<&'static str>,
}

/// The experiment of that name.
pub fn find(id: &str) -> Result<&'static Experiment, UnknownExperiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.id == id).ok_or_else(|| {
        let distance = |name: &str| strsim::damerau_levenshtein(name, id);
        let nearest = EXPERIMENTS.iter().map(|experiment| experiment.id).min_by_key(|name| distance(name));
        UnknownExperiment { id: id.to_owned(), nearest: nearest.filter(|name| distance(name) <= name.len() / 2) }
    })
}

/// The names of the experiments that are so, with commas between.
fn ids(is_so: fn(&Experiment) -> bool) -> String {
    let named = EXPERIMENTS.iter().filter(|experiment| is_so(experiment)).map(|experiment| experiment.id);
    named.collect::<Vec<&str>>().join(", ")
}

impl Experiment {
    /// What its runs read of its folder.
    pub(crate) fn folder(&self) -> Folder {
        Folder { id: self.id, scenario: self.scenario, expected: self.expected }
    }

    /// Runs it as it was asked for.
    ///
    /// # Errors
    ///
    /// When its files do not read, a controller does not run, or at an interruption.
    pub fn run(&self, request: &Request) -> Result<Findings, ExperimentError> {
        if request.medium.is_real_form() && !self.is_on_packets() {
            return Err(self.not_on_packets());
        }
        self.check_settings(request)?;
        if request.policies.is_some() && !self.is_learned() {
            return Err(self.not_learned());
        }
        let Findings { rows, report } = match self.run {
            Runner::Overlay(run) | Runner::Settings(run) => run(&Lab::new(&self.folder(), request)?),
            Runner::Flows(run) | Runner::Packets(run) | Runner::Quic(run) | Runner::Learned(run) => {
                run(&Lab::new_flows(&self.folder(), self.carrier(), request)?)
            }
            Runner::Streams(run) => run(&Lab::new_streams(&self.folder(), request)?),
            Runner::Onion(run) => run(&Lab::new_onion(&self.folder(), request)?),
            Runner::Attack(run) => run(&Lab::new_attack(&self.folder(), request)?),
        }?;
        let labelled = |row| request.medium.labelled(self.carrier(), row);
        Ok(Findings { rows: rows.into_iter().map(labelled).collect(), report })
    }

    /// How the range of each figure that it judges came to be.
    ///
    /// # Errors
    ///
    /// When its expectations do not read.
    pub fn judged(&self) -> Result<Vec<Kind>, ExpectedError> {
        Ok(self.folder().expected()?.kinds().collect())
    }

    /// What its quick run said when it was last looked at; nothing, where it judges nothing.
    pub fn quick_verdicts(&self) -> Totals {
        Totals::of(quick_verdicts::of(self.id))
    }

    /// Whether some of its settings run on sockets.
    pub fn is_on_sockets(&self) -> bool {
        matches!(self.run, Runner::Settings(_))
    }

    /// Its settings, simulated or on sockets, where one alone can be asked for.
    fn settings(&self) -> Vec<&'static str> {
        if matches!(self.run, Runner::Settings(_)) { learners::settings() } else { Vec::new() }
    }

    /// Whether there is all that is asked for, before anything runs.
    fn check_settings(&self, request: &Request) -> Result<(), ExperimentError> {
        if request.loopback.is_some() && !self.is_on_sockets() {
            let others = ids(Experiment::is_on_sockets);
            return Err(ExperimentError::NotOnSockets { id: self.id, others });
        }
        let known = self.settings();
        for name in &request.settings {
            if !known.iter().any(|known| known == name) {
                return Err(ExperimentError::NoSetting { id: self.id, name: name.clone(), known });
            }
            if request.loopback.is_none() && learners::is_on_sockets(name) {
                return Err(ExperimentError::NeedsSockets(name.clone()));
            }
        }
        Ok(())
    }

    /// That real packets cannot carry it.
    pub fn not_on_packets(&self) -> ExperimentError {
        ExperimentError::NotOnPackets { id: self.id, others: ids(Experiment::is_on_packets) }
    }

    /// That it plays no policies.
    pub fn not_learned(&self) -> ExperimentError {
        ExperimentError::NotLearned { id: self.id, others: ids(Experiment::is_learned) }
    }

    /// Whether it plays policies that were trained before.
    pub fn is_learned(&self) -> bool {
        matches!(self.run, Runner::Learned(_))
    }

    /// Whether real packets can carry it.
    pub fn is_on_packets(&self) -> bool {
        matches!(self.run, Runner::Packets(_) | Runner::Quic(_))
    }

    /// Congestion controls that the kernel has to have then.
    pub fn kernel_controls(&self) -> &'static [&'static str] {
        match self.run {
            Runner::Packets(_) => &packets::KERNEL_CONTROLS,
            _ => &[],
        }
    }

    /// Whose machine sends then.
    fn carrier(&self) -> Carrier {
        if matches!(self.run, Runner::Quic(_)) { Carrier::Quic } else { Carrier::Kernel }
    }

    /// The seed with which it runs.
    ///
    /// # Errors
    ///
    /// When its scenario does not read.
    pub fn seed(&self, request: &Request) -> Result<u64, ExperimentError> {
        Ok(match self.run {
            Runner::Overlay(_) | Runner::Settings(_) => Lab::new(&self.folder(), request)?.scenario.seed,
            Runner::Flows(_) | Runner::Packets(_) | Runner::Quic(_) | Runner::Learned(_) => {
                Lab::new_flows(&self.folder(), self.carrier(), request)?.scenario.seed
            }
            Runner::Streams(_) => Lab::new_streams(&self.folder(), request)?.scenario.seed,
            Runner::Onion(_) => Lab::new_onion(&self.folder(), request)?.scenario.seed,
            Runner::Attack(_) => Lab::new_attack(&self.folder(), request)?.scenario.seed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_reads_its_scenario_and_its_expectations() {
        for experiment in EXPERIMENTS {
            experiment.seed(&Request::default()).unwrap_or_else(|error| panic!("{}: {error}", experiment.id));
        }
    }

    #[test]
    fn ids_are_unique_and_a_misspelt_one_gets_the_nearest() {
        let mut ids: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), EXPERIMENTS.len());
        let message = find("raiber-tabel-7.4").unwrap_err().to_string();
        assert!(message.contains("did you mean \"raiber-table-7.4\""), "{message}");
    }
}
