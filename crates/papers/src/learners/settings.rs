//! The standard scenario varied in one respect at a time, and what is possible in it.

use anabranch_control::time::Duration;
use anabranch_scenario::overlay::{LimitKind, Misbehaviour, Overlay, Scenario};
use anabranch_sim::delay::{DelayModel, JitterTail};

/// What loss alone teaches is there after this many simulated seconds.
pub const LONGEST_CLIMB_S: u64 = 600;

/// One variation of the standard scenario.
pub struct Setting {
    /// As metrics have it in brackets.
    pub name: &'static str,
    /// What makes it of the standard scenario.
    pub changes: &'static [fn(&mut Scenario)],
}

/// One of that name.
pub const fn setting(name: &'static str, changes: &'static [fn(&mut Scenario)]) -> Setting {
    Setting { name, changes }
}

/// What is varied alone: how limits are held, peers, relays for each packet, and what goes wrong.
pub const SETTINGS: &[Setting] = &[
    setting("20 peers, queue", &[]),
    setting("40 peers, queue", &[|s| peers(s, 40)]),
    setting("80 peers, queue", &[|s| peers(s, 80)]),
    setting("1 hop, queue", &[|s| s.overlay.relays = 1]),
    setting("2 hops, queue", &[|s| s.overlay.relays = 2]),
    setting("4 hops, queue", &[|s| s.overlay.relays = 4]),
    setting("20 peers, windows", &[windows]),
    setting("40 peers, windows", &[windows, |s| peers(s, 40)]),
    setting("80 peers, windows", &[windows, |s| peers(s, 80)]),
    setting("1 hop, windows", &[windows, |s| s.overlay.relays = 1]),
    setting("2 hops, windows", &[windows, |s| s.overlay.relays = 2]),
    setting("4 hops, windows", &[windows, |s| s.overlay.relays = 4]),
    setting("20 peers, buckets", &[buckets]),
    setting("20 peers, windows, no stamps", &[windows, no_stamps, |s| s.seconds = s.seconds.max(LONGEST_CLIMB_S)]),
    setting("40 peers, windows, no stamps", &[windows, no_stamps, |s| peers(s, 40)]),
    setting("80 peers, windows, no stamps", &[windows, no_stamps, |s| peers(s, 80)]),
    setting("1 hop, windows, no stamps", &[windows, no_stamps, |s| s.overlay.relays = 1]),
    setting("2 hops, windows, no stamps", &[windows, no_stamps, |s| s.overlay.relays = 2]),
    setting("4 hops, windows, no stamps", &[windows, no_stamps, |s| s.overlay.relays = 4]),
    setting("20 peers, buckets, no stamps", &[buckets, no_stamps]),
    setting("200 ms", &[slow]),
    setting("1 % loss", &[lossy]),
    setting("200 ms and 1 % loss", &[slow, lossy]),
    setting("a fifth drops", &[droppers]),
    setting("heavy tails", &[heavy_tails]),
    setting("200 ms, 1 % loss and heavy tails", &[slow, lossy, heavy_tails]),
    setting("dropping, delaying and lying relays", &[misbehaving]),
];

fn peers(scenario: &mut Scenario, peers: usize) {
    scenario.overlay.peers = peers;
    scenario.overlay.known_peers = peers - 1;
}

/// Relays as the thesis has them: this many bytes in each second.
pub fn windows(scenario: &mut Scenario) {
    scenario.overlay.limit_model = LimitKind::Window;
}

fn buckets(scenario: &mut Scenario) {
    scenario.overlay.limit_model = LimitKind::Bucket { depth: scenario.overlay.limit * Duration::SECOND };
}

fn no_stamps(scenario: &mut Scenario) {
    scenario.overlay.stamps = false;
}

/// A mean delay of 200 ms between two nodes: two points of a unit square are 0.52 apart.
fn slow(scenario: &mut Scenario) {
    let access = Duration::from_millis(5);
    scenario.overlay.delay = DelayModel::Plane { span: Duration::from_millis(365), access, stretch: 1.0 };
}

fn lossy(scenario: &mut Scenario) {
    scenario.overlay.loss = 0.01;
}

fn droppers(scenario: &mut Scenario) {
    let dropped = Misbehaviour { drop: 1.0, ..Misbehaviour::default() };
    scenario.overlay.misbehaving = vec![((0..scenario.overlay.peers as u32 / 5).collect(), dropped)];
}

/// A standard deviation of half the mean, with a Pareto's tail.
fn heavy_tails(scenario: &mut Scenario) {
    scenario.overlay.jitter = 0.5;
    scenario.overlay.jitter_tail = JitterTail::Pareto;
}

/// By how much delaying relays delay.
const DELAY: Duration = Duration::SECOND;

/// A fifth drops everything, a tenth delays everything by a second, a tenth stamps ten times what there is.
fn misbehaving(scenario: &mut Scenario) {
    let peers = scenario.overlay.peers as u32;
    let [drops, delays, lies] = [0..peers / 5, peers / 5..peers * 3 / 10, peers * 3 / 10..peers * 2 / 5];
    let behaved = Misbehaviour::default();
    scenario.overlay.misbehaving = vec![
        (drops.collect(), Misbehaviour { drop: 1.0, ..behaved }),
        (delays.collect(), Misbehaviour { delay: DELAY, ..behaved }),
        (lies.collect(), Misbehaviour { stamp_factor: 10.0, ..behaved }),
    ];
    scenario.overlay.watch = Some(peers - 1);
}

/// The payload that each peer can receive at most in bytes a second, if its peers are all alike, send
/// as much as they can, and no relay is idle.
///
/// Of the packets that a peer sends, the share q^i reaches the i-th node where a link keeps the share q;
/// relays that do what they should not are left out by all, and only receive.
pub fn possible(overlay: &Overlay) -> f64 {
    let (packet, ack) = (overlay.packet.get() as f64, overlay.ack.get() as f64);
    let kept = 1.0 - overlay.loss;
    let hops = overlay.relays as i32;
    let misbehaving: usize = overlay.misbehaving.iter().map(|(peers, _)| peers.len()).sum();
    let relaying = (overlay.peers - misbehaving) as f64 / overlay.peers as f64;
    // Bytes that one sent packet brings to relays, and to its destination.
    let relayed: f64 =
        (1..=hops).map(|hop| packet * kept.powi(hop) + ack * kept.powi(2 * hops + 2 - hop)).sum::<f64>() / relaying;
    let delivered = kept.powi(hops + 1);
    overlay.limit.bytes_per_sec() * packet * delivered / (relayed + packet * delivered)
}

/// The same, if relays that delay or lie count as well: they carry what they are given.
pub fn possible_of_all_who_carry(overlay: &Overlay) -> f64 {
    let mut carried = overlay.clone();
    carried.misbehaving.retain(|(_, misbehaviour)| misbehaviour.drop >= 1.0 || misbehaviour.forge);
    possible(&carried)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_possible_is_the_limit_shared_by_all_that_a_packet_costs() {
        let mut overlay = Scenario::standard().overlay;
        // 400 000 B/s x 1500 / (4 x 1500 + 3 x 40)
        assert!((possible(&overlay) - 98_039.2).abs() < 0.1, "{}", possible(&overlay));
        overlay.loss = 0.01;
        let lossy = possible(&overlay);
        assert!(lossy < 98_039.2 && lossy > 0.96 * 98_039.2, "{lossy}: loss spares later relays");
        overlay.loss = 0.0;
        overlay.misbehaving = vec![((0..4).collect(), Misbehaviour { drop: 1.0, ..Misbehaviour::default() })];
        // Sixteen relays carry what twenty send: 400 000 x 1500 / ((3 x 1500 + 3 x 40) / 0.8 + 1500)
        assert!((possible(&overlay) - 82_474.2).abs() < 0.1, "{}", possible(&overlay));
        // Who delays carries.
        let delayed = Misbehaviour { delay: DELAY, ..Misbehaviour::default() };
        overlay.misbehaving.push(((4..8).collect(), delayed));
        assert!(possible(&overlay) < 66_000.0, "{}", possible(&overlay));
        let carried = possible_of_all_who_carry(&overlay);
        assert!((carried - 82_474.2).abs() < 0.1, "{carried}");
    }
}
