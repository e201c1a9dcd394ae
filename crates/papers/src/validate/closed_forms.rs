//! Controllers against formulas that are exact under their assumptions.

use anabranch_control::flow::registry;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::flow::AckPolicy;
use anabranch_sim::loss::LossModel;
use anabranch_sim::varying::Course;

use super::{Check, ValidationError, run_all};
use anabranch_lab::parallel::Progress;
use anabranch_scenario::flows::{FlowScenario, FlowSpec, LinkSpec, PacketSpec, Receiver, Stack, Workload};
use anabranch_stats as stats;

/// Seeds of each case.
const SEEDS: u64 = 4;

/// Loss probabilities: low enough that a flight seldom has two losses.
const LOSSES: [f64; 3] = [0.000_1, 0.000_3, 0.001];

const ROUND_TRIP: Duration = Duration::from_millis(50);

/// Long against the hundreds of round trips between two losses.
const SECONDS: u64 = 2000;

/// The time average of a window that grows by one each round trip and halves at each loss,
/// where each packet is lost with probability p, is 1.3098 / sqrt(p) as p falls: the first
/// moment `sqrt(2/π) Π (1 - 4^-k) / (1 - 2 · 4^-k)` of the stationary law of the ideal
/// process (Ott, Kemperman, Mathis, "The stationary behavior of ideal TCP congestion
/// avoidance", 1996).
fn ideal_window(loss: f64) -> f64 {
    let product: f64 = (1..40).map(|k| (1.0 - 0.25f64.powi(k)) / (1.0 - 2.0 * 0.25f64.powi(k))).product();
    (2.0 / std::f64::consts::PI).sqrt() * product / loss.sqrt()
}

/// One flow over a link that never has a queue.
fn scenario(loss: f64, seed: u64) -> FlowScenario {
    let rate = Rate::from_bits_per_sec(10_000_000_000);
    let there =
        LinkSpec { loss: LossModel::Random(Course::constant(loss)), ..LinkSpec::new("there", rate, ROUND_TRIP / 2) };
    FlowScenario {
        length: Duration::SECOND * SECONDS,
        seed,
        // Slow start ends with the first loss; its overshoot is forgotten by then.
        goodput_from: Time::ZERO + Duration::SECOND * (SECONDS / 10),
        delays_from: Time::ZERO,
        sample_every: None,
        links: vec![there, LinkSpec::new("back", rate, ROUND_TRIP / 2)],
        flows: vec![FlowSpec {
            name: "flow".to_owned(),
            stack: Stack::Ours,
            controller: registry::find("reno").expect("a registered controller"),
            parameters: toml::Table::new(),
            receivers: vec![Receiver { there: vec![0], back: vec![1] }],
            workload: Workload::Bulk,
            start: Time::ZERO,
            stop: None,
            initial_window: None,
            handshake: false,
            steered: false,
        }],
        cross_traffic: Vec::new(),
        // The formula's sender hears of every packet.
        packets: PacketSpec { ack_policy: AckPolicy { every: 1, ..AckPolicy::default() }, ..PacketSpec::default() },
        steering: None,
    }
}

pub fn checks(progress: &Progress) -> Result<Vec<Check>, ValidationError> {
    let scenarios: Vec<FlowScenario> =
        LOSSES.iter().flat_map(|&loss| (1..=SEEDS).map(move |seed| scenario(loss, seed))).collect();
    let runs = run_all(&scenarios, progress)?;
    let counted_s = SECONDS as f64 * 0.9;
    let check = |(&loss, runs): (&f64, &[anabranch_lab::flows::FlowsMeasured])| {
        let packets: Vec<f64> = runs
            .iter()
            .map(|run| run.flows[0].goodput_bytes as f64 / scenarios[0].packets.data.get() as f64 / counted_s)
            .collect();
        Check {
            model: format!("reno, {} % random loss", loss * 100.0),
            against: "1.3098 / (RTT sqrt(p)), Ott et al. 1996".to_owned(),
            quantity: "goodput".to_owned(),
            unit: "packets/s",
            ours: stats::mean(&packets).unwrap_or(f64::NAN),
            reference: ideal_window(loss) / ROUND_TRIP.as_secs_f64(),
            low: 0.0,
            high: 0.0,
            bound: String::new(),
        }
        .within(0.05)
    };
    Ok(LOSSES.iter().zip(runs.chunks(SEEDS as usize)).map(check).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constant_is_that_of_the_paper() {
        assert!((ideal_window(1.0) - 1.3098).abs() < 1e-4, "{}", ideal_window(1.0));
    }
}
