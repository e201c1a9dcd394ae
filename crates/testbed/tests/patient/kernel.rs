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

#[test]
fn a_connection_of_the_kernels_begins_with_the_window_that_its_flow_names() {
    if let Err(reason) = testbed_available() {
        eprintln!("skipped: {reason}");
        return;
    }
    let begins = |packets: u64| {
        let text = SMALL
            .replace("seconds = 3", "seconds = 0.6")
            .replace("delay_ms = 25", "delay_ms = 150")
            .replace("\"kernel:reno\"", &format!("\"kernel:reno\"\ninitial_window_packets = {packets}"));
        let scenario = parse_flows(&text, "s.toml", &[]).unwrap();
        let emulated = anabranch_testbed::run(&scenario, &()).unwrap();
        let window = &emulated.measured.series.flows[0].window;
        window.iter().find(|window| window.is_finite()).unwrap() / scenario.packets.data.get() as f64
    };
    assert_eq!([begins(3), begins(21)], [3.0, 21.0]);
}

/// Two connections beside a link that has room for a quarter of a second of what they send.
const SHARED: &str = "\
[run]
seconds = 5
sample_every_s = 0.05
[dumbbell]
rate = \"10 Mbit/s\"
delay_ms = 10
queue = { ms = 250 }
[[flow]]
count = 2
controller = \"kernel:cubic\"
";

/// As the median over the run's second half: how much longer than the empty path's a round trip is, and what both flows
/// deliver, Mbit/s.
fn waits_and_delivers(text: &str) -> (f64, f64) {
    let scenario = parse_flows(text, "s.toml", &[]).unwrap();
    let measured = anabranch_testbed::run(&scenario, &()).unwrap().measured;
    let rows = measured.series.flows.iter().flat_map(|flow| flow.srtt_ms[flow.srtt_ms.len() / 2..].iter());
    let mut trips: Vec<f64> = rows.copied().filter(|trip| trip.is_finite()).collect();
    assert!(trips.len() > 20, "{} rows", trips.len());
    trips.sort_by(f64::total_cmp);
    let delivered = measured.flows.iter().map(|flow| flow.delivered_bytes as f64 * 8.0 / 1e6).sum::<f64>();
    (trips[trips.len() / 2] - 20.0, delivered / scenario.length.as_secs_f64())
}

#[test]
fn a_coordinator_that_bounds_their_pace_keeps_the_kernels_connections_from_filling_the_queue() {
    if let Err(reason) = testbed_available() {
        eprintln!("skipped: {reason}");
        return;
    }
    let steered = format!("{SHARED}steered = true\n[steering]\nlink = \"bottleneck\"\nevery_ms = 100\n");
    let (alone, steered) = (waits_and_delivers(SHARED), waits_and_delivers(&steered));
    eprintln!("wait in ms and delivered in Mbit/s: alone {alone:?}, steered {steered:?}");
    assert!(alone.0 > 100.0, "without a coordinator Cubic fills the queue: {alone:?}");
    // What the queue took before the second connection was known stays there: their paces are the link's rate together.
    assert!(steered.0 < alone.0 / 2.0 && steered.1 > 0.75 * alone.1, "alone {alone:?}, steered {steered:?}");
}
