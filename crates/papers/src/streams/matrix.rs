//! Random latencies between the nodes of trees that no stream goes down.

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_proto::stream::tree::LinkLatency;
use anabranch_scenario::stream::StreamScenario;

/// The latency of every pair of slots, the same in both directions.
pub struct Matrix {
    nodes: usize,
    latencies: Vec<Duration>,
}

impl Matrix {
    /// Each pair's own: between what two access links take and that with the whole span. Near nodes of near
    /// nodes need not be near, as in the thesis's "random latencies".
    pub fn random(scenario: &StreamScenario, nodes: usize, rng: &mut Rng) -> Matrix {
        let audience = &scenario.audience;
        let mut matrix = Matrix { nodes, latencies: vec![Duration::ZERO; nodes * nodes] };
        for from in 0..nodes {
            for to in 0..from {
                let latency =
                    audience.access * 2 + Duration::from_secs_f64(audience.span.as_secs_f64() * rng.uniform());
                matrix.latencies[from * nodes + to] = latency;
                matrix.latencies[to * nodes + from] = latency;
            }
        }
        matrix
    }
}

impl LinkLatency for Matrix {
    fn latency(&self, from: usize, to: usize) -> Option<Duration> {
        Some(self.latencies[from * self.nodes + to])
    }
}
