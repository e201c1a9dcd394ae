//! The block window over the real machines: what section 4 of [Efthymiopoulos 2015] proves
//! for its model holds for packets on links.

use anabranch_control::flow::registry;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::{FlowsMeasured, run};
use anabranch_proto::flow::AckPolicy;
use anabranch_scenario::flows::{FlowScenario, FlowSpec, LinkSpec, PacketSpec, QueueSpec, Receiver, Stack, Workload};
use anabranch_sim::network::Capacity;

const SECONDS: u64 = 20;

/// Rows of the series in a second: one for each period of the controller.
const ROWS_PER_S: usize = 100;

/// A path whose receivers, delays, rate and blocks are drawn from `seed`.
struct Case {
    rate: Rate,
    scenario: FlowScenario,
}

/// ```text
/// sender ---- upload, 5 to 30 ms ==== router ---- 2 to 40 ms ---- each receiver
/// ```
fn case(seed: u64, buffer: Capacity, most_receivers: f64) -> Case {
    let mut rng = Rng::stream(seed, "case");
    let mut between = |low: f64, high: f64| low + (high - low) * rng.uniform();
    let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
    let fast = Rate::from_bits_per_sec(1_000_000_000);
    let rate = Rate::from_bits_per_sec(between(1e6, 20e6) as u64);
    let upload_delay = ms(between(5.0, 30.0));
    let mut links = vec![
        LinkSpec::new("upload", rate, upload_delay).with_queue(QueueSpec::DropTail(buffer)),
        LinkSpec::new("upload-back", fast, upload_delay),
    ];
    let mut receivers = Vec::new();
    for i in 0..between(1.0, most_receivers + 1.0) as usize {
        let delay = ms(between(2.0, 40.0));
        links.push(LinkSpec::new(format!("r{i}"), fast, delay));
        links.push(LinkSpec::new(format!("r{i}-back"), fast, delay));
        receivers.push(Receiver { there: vec![0, 2 + 2 * i], back: vec![3 + 2 * i, 1] });
    }
    let packets = PacketSpec {
        ack_policy: AckPolicy { every: 1, max_delay: Duration::ZERO, ..AckPolicy::default() },
        ..PacketSpec::default()
    };
    let block = packets.data * between(1.0, 40.0) as u64;
    let flow = FlowSpec {
        name: "blocks".into(),
        stack: Stack::Ours,
        controller: registry::find("block-window").unwrap(),
        parameters: toml::Table::new(),
        receivers,
        workload: Workload::Blocks(block),
        start: Time::ZERO,
        stop: None,
        initial_window: None,
        handshake: false,
        steered: false,
    };
    let scenario = FlowScenario {
        length: Duration::SECOND * SECONDS,
        seed,
        goodput_from: Time::from_secs_f64(SECONDS as f64 / 2.0),
        delays_from: Time::ZERO,
        sample_every: Some(Duration::SECOND / ROWS_PER_S as u64),
        links,
        flows: vec![flow],
        cross_traffic: Vec::new(),
        packets,
        steering: None,
    };
    Case { rate, scenario }
}

fn trace<'m>(measured: &'m FlowsMeasured, name: &str) -> &'m [f64] {
    &measured.series.flows[0].trace.iter().find(|(known, _)| *known == name).unwrap().1
}

#[test]
fn the_queue_of_real_packets_never_exceeds_the_window() {
    for seed in 1..=12 {
        let Case { rate, scenario } = case(seed, Capacity::Unlimited, 5.0);
        let measured = run(&scenario, &()).unwrap();
        assert_eq!(measured.flows[0].controller, "block-window");
        let PacketSpec { data, header, .. } = scenario.packets;
        let share = data.get() as f64 / (data + header).get() as f64;
        let window = trace(&measured, "window");
        let in_flight = &measured.series.flows[0].in_flight;
        for row in 0..window.len() {
            let queued = measured.series.backlog_ms[0][row] / 1e3 * rate.bytes_per_sec() * share;
            // What is on its way left under this window or under one of the last round trips.
            let recent = &window[row.saturating_sub(ROWS_PER_S)..=row];
            let most = recent.iter().copied().fold(0.0, f64::max) + 1.0;
            assert!(in_flight[row] <= most, "seed {seed}, row {row}: {} in flight, window {most}", in_flight[row]);
            assert!(queued <= most, "seed {seed}, row {row}: {queued} queued, window {most}");
        }
    }
}

#[test]
fn the_queue_of_real_packets_is_never_empty_and_stays_near_its_reference() {
    for seed in 1..=12 {
        let Case { rate, scenario } = case(seed, Capacity::Unlimited, 5.0);
        let measured = run(&scenario, &()).unwrap();
        assert_eq!(measured.flows[0].packets_lost, 0);
        let late = measured.series.at.len() / 4;
        let backlog = &measured.series.backlog_ms[0][late..];
        assert!(backlog.iter().all(|ms| *ms > 0.0), "seed {seed}: the queue ran empty");
        let mean = backlog.iter().sum::<f64>() / backlog.len() as f64;
        let reference = trace(&measured, "queue_reference")[late];
        assert!((mean / reference - 1.0).abs() < 0.2, "seed {seed}: {mean} ms for {reference} ms");
        let upload = trace(&measured, "upload_rate")[late..].iter().sum::<f64>() / backlog.len() as f64;
        let PacketSpec { data, header, .. } = scenario.packets;
        let data_rate = rate.bits_per_sec() as f64 * data.get() as f64 / (data + header).get() as f64;
        assert!((upload / data_rate - 1.0).abs() < 0.02, "seed {seed}: U is {upload} of {data_rate}");
    }
}

/// Lemma 1's use: a buffer larger than the window loses nothing. One smaller than the
/// reference does, and shows its size. With one receiver: long blocks to receivers at
/// different distances swing the queue by more than a quarter of such a buffer.
#[test]
fn a_buffer_smaller_than_the_reference_shows_its_size_and_then_loses_little() {
    for seed in 1..=6 {
        let Case { scenario, .. } = case(seed, Capacity::Time(Duration::from_millis(60)), 1.0);
        let measured = run(&scenario, &()).unwrap();
        let limit = *trace(&measured, "queue_limit").last().unwrap();
        // Packets wait up to 60 ms, and the delay counts a transmission more.
        assert!((50.0..=80.0).contains(&limit), "seed {seed}: {limit} ms");
        let flow = &measured.flows[0];
        let lost = flow.packets_lost as f64 / flow.packets_sent as f64;
        assert!(flow.packets_lost > 0 && lost < 0.02, "seed {seed}: {lost} of all packets were lost");
    }
}
