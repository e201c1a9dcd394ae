//! The kernel's TCP over emulated links: what it says of itself. Skipped where that needs
//! rights or devices that are not there.

use anabranch_scenario::file::parse_flows;
use anabranch_testbed::emulator::testbed_available;

/// A window of 17 packets fills the path of 4 Mbit/s and 50 ms; 17 more wait.
const SMALL: &str = "\
[run]
seconds = 3
sample_every_s = 0.05
[dumbbell]
rate = \"4 Mbit/s\"
delay_ms = 25
queue = { ms = 50 }
[[flow]]
controller = \"kernel:reno\"
";

#[test]
fn windows_and_round_trips_of_the_kernels_flows_are_in_the_series() {
    if let Err(reason) = testbed_available() {
        eprintln!("skipped: {reason}");
        return;
    }
    let scenario = parse_flows(SMALL, "s.toml", &[]).unwrap();
    let emulated = anabranch_testbed::run(&scenario, &()).unwrap();
    let series = &emulated.measured.series;
    let flow = &series.flows[0];
    let packet = scenario.packets.data.get() as f64;
    // A row may be missed where the machine is busy, but not many.
    let known: Vec<usize> = (0..series.at.len()).filter(|&row| flow.window[row].is_finite()).collect();
    assert!(known.len() > series.at.len() / 2, "{} of {} rows", known.len(), series.at.len());
    for &row in &known {
        assert_eq!(flow.window[row] % packet, 0.0, "the kernel counts whole packets");
        assert!((1.0..200.0).contains(&(flow.window[row] / packet)), "{}", flow.window[row]);
        assert!(flow.in_flight[row] <= flow.window[row] + 3.0 * packet, "row {row}: {flow:?}");
    }
    let last = *known.last().unwrap();
    assert!((50.0..200.0).contains(&flow.srtt_ms[last]), "{}", flow.srtt_ms[last]);
    assert!(flow.rate_mbit_s[last].is_nan(), "Reno leaves the pace to its ACKs");
    // Slow start overran a queue that holds as much as the path: it has lost, and knows where to stop.
    let of = |name: &str| flow.trace.iter().find(|(traced, _)| *traced == name).unwrap().1[last];
    assert!(of("retransmits") > 0.0 && of("slow_start_threshold") > packet, "{:?}", flow.trace);
    assert_eq!(of("window"), flow.window[last]);
}
