//! Experiments on real packets: the same code with another runner behind it. The runner is
//! given from outside, since nothing here opens a socket; it runs scenarios in real time. What
//! is compared with it is simulated with the same scenarios, lengths and seeds, and with our
//! flows where the kernel's TCP or QUIC ran.

use std::fmt;
use std::sync::Arc;

use anabranch_control::flow::registry;

use super::error::ExperimentError;
use super::findings::Row;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured};
use anabranch_lab::monitor::Monitor;
use anabranch_lab::parallel::{self, Job, Progress};
use anabranch_scenario::flows::{FlowSpec, Stack};

/// What carries real packets.
pub trait Testbed: fmt::Debug + Send + Sync {
    /// Runs `scenario` in real time until its end, or until `monitor` interrupts it.
    ///
    /// # Errors
    ///
    /// Why there is no run, in words for whoever asked for it.
    fn run(&self, scenario: &FlowScenario, monitor: &dyn Monitor) -> Result<FlowsMeasured, String>;

    /// How many runs it makes at a time: each has links of its own, but the processors are
    /// shared.
    fn at_a_time(&self) -> usize {
        1
    }
}

/// A scenario on a testbed.
struct OnTestbed<'a>(&'a dyn Testbed, &'a FlowScenario);

impl Job for OnTestbed<'_> {
    type Measured = FlowsMeasured;
    type Error = ExperimentError;

    fn seconds(&self) -> u64 {
        self.1.seconds()
    }

    fn run(&self, monitor: &dyn Monitor) -> Result<FlowsMeasured, ExperimentError> {
        self.0.run(self.1, monitor).map_err(ExperimentError::Testbed)
    }

    fn is_whole(&self, measured: &FlowsMeasured) -> bool {
        self.1.is_whole(measured)
    }
}

/// Where an experiment's packets are.
#[derive(Clone, Debug, Default)]
pub enum Medium {
    /// In the simulator.
    #[default]
    Simulator,
    /// In the simulator, but with the scenarios, lengths and seeds of real packets.
    SimulatedTwin,
    /// On real packets.
    RealPackets(Arc<dyn Testbed>),
}

/// Our controllers that are TCP's, and the kernel's of them: BIC is not in every kernel, and
/// its successor, Cubic, stands for it.
const KERNEL: [(&str, &str); 4] = [("reno", "reno"), ("cubic", "cubic"), ("bbr", "bbr"), ("bic", "cubic")];

/// Congestion controls that the kernel has to have.
pub(super) const KERNEL_CONTROLS: [&str; 3] = ["reno", "cubic", "bbr"];

/// Why rows about BIC are not judged.
const STANDS_FOR_BIC: &str = "the kernel has no BIC, its Cubic stands for it";

/// Whose machine sends on real packets where an experiment does not ask for ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The kernel's TCP, for those controllers that it has.
    Kernel,
    /// QUIC, under any of our controllers.
    Quic,
}

fn kernel(controller: &str) -> Option<&'static str> {
    KERNEL.iter().find(|(ours, _)| *ours == controller).map(|(_, theirs)| *theirs)
}

impl Medium {
    /// Whether its runs are those of real packets.
    pub fn is_real_form(&self) -> bool {
        !matches!(self, Medium::Simulator)
    }

    /// `flow` as it is sent on real packets. Parameters of ours are unknown to the kernel, so a
    /// flow that has some remains ours.
    pub(super) fn adopt(&self, carrier: Carrier, flow: &mut FlowSpec) {
        if !self.is_real_form() {
            return;
        }
        match (carrier, kernel(flow.controller.name)) {
            (Carrier::Quic, _) => flow.stack = Stack::Quic,
            (Carrier::Kernel, Some(name)) if flow.parameters.is_empty() => {
                flow.controller = registry::find(name).expect("each control of the kernel's has a counterpart");
                flow.stack = Stack::Kernel(name.to_owned());
            }
            (Carrier::Kernel, _) => {}
        }
    }

    /// Who it is that a controller of this name stands for. Other names are left as they are.
    pub(super) fn name(&self, carrier: Carrier, controller: &str) -> String {
        if !self.is_real_form() {
            return controller.to_owned();
        }
        match (carrier, kernel(controller)) {
            (Carrier::Quic, _) if registry::find(controller).is_ok() => format!("{}{controller}", Stack::QUIC),
            (Carrier::Kernel, Some(theirs)) if theirs == controller => format!("{}{theirs}", Stack::KERNEL),
            (Carrier::Kernel, Some(theirs)) => format!("{}{theirs} for {controller}", Stack::KERNEL),
            _ => controller.to_owned(),
        }
    }

    /// The row as it is reported: its subject by who ran, and not judged where another ran than
    /// the paper's.
    pub(super) fn labelled(&self, carrier: Carrier, row: Row) -> Row {
        let is_judged = row.subject != "bic" || carrier != Carrier::Kernel || !self.is_real_form();
        let row = Row { subject: self.name(carrier, &row.subject), ..row };
        if is_judged { row } else { row.outside(STANDS_FOR_BIC) }
    }
}

/// Runs `scenarios`, as many at a time as the testbed makes.
pub(super) fn run_all(
    testbed: &dyn Testbed,
    scenarios: &[FlowScenario],
    progress: &Progress,
) -> Result<Vec<FlowsMeasured>, ExperimentError> {
    let jobs: Vec<OnTestbed<'_>> = scenarios.iter().map(|scenario| OnTestbed(testbed, scenario)).collect();
    let outcomes = parallel::run_all(&jobs, Some(testbed.at_a_time()), progress, |_, measured| measured)?;
    let all = outcomes.into_iter().collect::<Option<Vec<_>>>().ok_or(ExperimentError::Interrupted)?;
    for (scenario, measured) in scenarios.iter().zip(&all) {
        let asked = scenario.flows.iter().map(FlowSpec::controller_name);
        assert!(asked.eq(measured.flows.iter().map(|flow| flow.controller.clone())), "another controller ran");
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::{Length, Request, find};
    use super::*;

    /// Simulates, and remembers what it ran, and how many at once.
    #[derive(Debug, Default)]
    struct Double {
        seen: Mutex<Vec<FlowScenario>>,
        running: Mutex<()>,
    }

    impl Testbed for Double {
        fn run(&self, scenario: &FlowScenario, monitor: &dyn Monitor) -> Result<FlowsMeasured, String> {
            let _alone = self.running.try_lock().expect("runs are one after the other");
            self.seen.lock().unwrap().push(scenario.clone());
            let mut measured = Job::run(scenario, monitor).map_err(|error| error.to_string())?;
            for (flow, spec) in measured.flows.iter_mut().zip(&scenario.flows) {
                flow.controller = spec.controller_name();
            }
            Ok(measured)
        }
    }

    fn request(medium: Medium) -> Request {
        Request { length: Length::Quick, medium, ..Request::default() }
    }

    #[test]
    fn tcp_is_the_kernels_and_cubic_stands_for_bic() {
        let bed = Arc::new(Double::default());
        let experiment = find("efthymiopoulos-fig-10-12").unwrap();
        let findings = experiment.run(&request(Medium::RealPackets(bed.clone()))).unwrap();
        let seen = bed.seen.lock().unwrap();
        assert!(!seen.is_empty());
        for scenario in &*seen {
            let names: Vec<_> = scenario.flows.iter().map(FlowSpec::controller_name).collect();
            assert_eq!(names, ["block-window", "kernel:cubic"]);
        }
        assert!(findings.rows.iter().all(|row| row.subject == "kernel:cubic for bic" && row.verdict.is_none()));
    }

    #[test]
    fn the_twin_simulates_what_real_packets_carry() {
        let experiment = find("learningcc-fig-4").unwrap();
        let real = experiment.run(&request(Medium::RealPackets(Arc::new(Double::default())))).unwrap();
        let twin = experiment.run(&request(Medium::SimulatedTwin)).unwrap();
        assert!(real.rows.iter().any(|row| row.ours.is_some()));
        assert_eq!(real.rows, twin.rows);
    }

    #[test]
    fn c3_is_steered_under_quic() {
        let bed = Arc::new(Double::default());
        let findings = find("c3-fct").unwrap().run(&request(Medium::RealPackets(bed.clone()))).unwrap();
        let seen = bed.seen.lock().unwrap();
        for scenario in &*seen {
            assert!(scenario.flows.iter().all(|flow| flow.stack == Stack::Quic));
            let is_steered = scenario.flows[0].controller_name() == "quic:c3-cubic";
            assert_eq!(scenario.steering.is_some(), is_steered);
        }
        let subjects: std::collections::BTreeSet<_> = findings.rows.iter().map(|row| &*row.subject).collect();
        assert_eq!(subjects.into_iter().collect::<Vec<_>>(), ["quic:c3-cubic", "quic:cubic"]);
    }

    #[test]
    fn our_parameters_keep_a_flow_ours() {
        let text = "[run]\nseconds = 1\n[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 5\n[[flow]]\ncontroller = \"reno\"";
        let mut flow = anabranch_scenario::file::parse_flows(text, "f.toml", &[]).unwrap().flows.remove(0);
        flow.parameters = "beta = 0.7".parse().unwrap();
        Medium::SimulatedTwin.adopt(Carrier::Kernel, &mut flow);
        assert_eq!(flow.stack, Stack::Ours);
        flow.parameters = toml::Table::new();
        Medium::Simulator.adopt(Carrier::Kernel, &mut flow);
        assert_eq!(flow.stack, Stack::Ours);
        Medium::SimulatedTwin.adopt(Carrier::Kernel, &mut flow);
        assert_eq!(flow.stack, Stack::Kernel("reno".to_owned()));
    }

    #[test]
    fn what_real_packets_cannot_carry_is_refused_and_what_they_can_is_named() {
        let refused = find("raiber-table-7.4").unwrap().run(&request(Medium::SimulatedTwin)).unwrap_err().to_string();
        assert!(refused.contains("efthymiopoulos-fig-10-12") && refused.contains("learningcc-fig-6"), "{refused}");
    }
}
