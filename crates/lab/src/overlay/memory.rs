//! What a run will need of memory, before it begins.

use anabranch_control::path::registry::{Build, Setup};
use anabranch_control::registry::ParameterError;
use anabranch_control::rtt::PairRtts;
use anabranch_control::time::Time;
use anabranch_proto::overlay::granted_rate::GrantedRate;
use anabranch_proto::overlay::overlay_peer::OverlayPeer;
use anabranch_proto::overlay::packet::{Telemetry, TelemetryField};
use anabranch_proto::overlay::path_sender::PathSender;
use anabranch_scenario::overlay::{Overlay, Scenario};
use anabranch_sim::delay::Delays;
use anabranch_sim::pairs::Pairs;

use super::setup::Routed;

/// About the bytes that a run of `scenario` needs at least: all tables of all peers, and the packets
/// that are under way and remembered while every peer forwards as much as its limit lets it. Packets
/// that are lost are remembered for longer and come on top, most of them in the first seconds.
///
/// # Errors
///
/// What the controller says of its parameters.
pub fn least_bytes(scenario: &Scenario) -> Result<u64, ParameterError> {
    let overlay = &scenario.overlay;
    let each = match overlay.reads_telemetry() {
        true => bytes_a_peer::<Telemetry>(scenario)?,
        false => bytes_a_peer::<()>(scenario)?,
    };
    Ok((each * overlay.peers as f64) as u64)
}

fn bytes_a_peer<T: TelemetryField>(scenario: &Scenario) -> Result<f64, ParameterError> {
    let overlay = &scenario.overlay;
    let known = overlay.known_peers.min(overlay.peers - 1);
    let setup = Setup { peers: known, packet: overlay.packet, start: Time::ZERO, pacing: overlay.pacing };
    let controller = match overlay.controller.build {
        Build::Omniscient => 0,
        build => build.make(&setup, &overlay.parameters).expect("made anywhere")?.memory_bytes(),
    };
    let stamping = overlay.stamps && overlay.reads_telemetry();
    let tables = size_of::<Option<OverlayPeer<u32, T>>>()
        + Pairs::<Routed<T>>::NODE_BYTES
        + controller
        + PairRtts::bytes(&overlay.rtt, known)
        + known * size_of::<u32>()
        + if stamping { size_of::<GrantedRate>() } else { 0 };
    // [Little 1961]: what is under way is what departs in a second, times how long it is.
    let delay = mean_delay(overlay, scenario.seed);
    let relays = overlay.relays as f64;
    let path_bytes = (relays + 1.0) * overlay.packet.get() as f64 + relays * overlay.ack.get() as f64;
    let packets_a_second = overlay.limit.bytes_per_sec() / path_bytes;
    let under_way = packets_a_second * (2.0 * relays + 1.0) * delay * Pairs::<Routed<T>>::MESSAGE_BYTES as f64;
    let remembered =
        packets_a_second * 2.0 * (relays + 1.0) * delay * PathSender::remembered_bytes(overlay.relays) as f64;
    Ok(tables as f64 + under_way + remembered)
}

/// The mean delay between two nodes, over a thousand pairs, in seconds.
fn mean_delay(overlay: &Overlay, seed: u64) -> f64 {
    let (delays, nodes) = (Delays::new(&overlay.delay, overlay.peers, seed), overlay.peers as u32);
    let pairs = (0..1000).map(|index| (index % nodes, (index % nodes + 1 + index / nodes) % nodes));
    let (sum, count) = pairs
        .filter(|(from, to)| from != to)
        .fold((0.0, 0), |(sum, count), (from, to)| (sum + delays.mean(from, to).as_secs_f64(), count + 1));
    sum / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    use anabranch_control::path::registry;

    use super::*;
    use crate::overlay;

    /// In the standard scenario with many peers, of whom each knows 64.
    fn scenario(controller: &str, peers: usize) -> Scenario {
        let mut scenario = Scenario::standard();
        scenario.seconds = 6;
        scenario.overlay.peers = peers;
        scenario.overlay.known_peers = 64;
        scenario.overlay.controller = registry::find(controller).unwrap();
        scenario
    }

    #[test]
    fn what_is_needed_at_least_is_less_than_what_is_used_and_not_much() {
        for controller in ["q-learning", "explicit-rate", "timeouts", "tomography"] {
            for compact in [false, true] {
                let mut scenario = scenario(controller, 200);
                scenario.overlay.rtt.compact = compact;
                let estimate = least_bytes(&scenario).unwrap() as f64;
                let senders = overlay::run(&scenario, &()).unwrap().sender_memory_bytes as f64;
                // Beside its sender a peer has some hundred bytes, and its packets under way some thousand.
                assert!(estimate < senders + 200.0 * 6_000.0, "{controller}: {estimate} of {senders}");
                assert!(estimate > 0.15 * senders, "{controller}: {estimate} of {senders}");
            }
        }
    }

    #[test]
    fn it_grows_with_peers_and_with_the_square_of_those_that_each_knows() {
        let bytes = |peers, known| {
            let mut scenario = scenario("explicit-rate", peers);
            scenario.overlay.known_peers = known;
            least_bytes(&scenario).unwrap() as f64
        };
        assert!((bytes(20_000, 64) / bytes(10_000, 64) - 2.0).abs() < 0.02);
        assert!(bytes(10_000, 4_000) > 10_000.0 * 8.0 * 4_000.0 * 4_001.0 / 2.0);
        assert!(bytes(10_000, 4_000) < 1.1 * 10_000.0 * 8.0 * 4_000.0 * 4_001.0 / 2.0);
    }
}
