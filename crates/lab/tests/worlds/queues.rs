//! Queue disciplines under real flows: what each promises, held against drop-tail.

use anabranch_control::flow::registry::find;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_lab::flows::{FlowScenario, FlowsMeasured, run};
use anabranch_scenario::flows::QueueSpec;
use anabranch_scenario::flows::dumbbell::Bulk;
use anabranch_sim::network::{Capacity, CodelConfig, CodelLaw, FqCodelConfig, Limit, RedConfig};
use anabranch_sim::varying::Course;

const RATE_MBIT_S: f64 = 10.0;

/// Propagation over the dumbbell's three links, one way, and the transmission of 1502 B on
/// two links of 100 Mbit/s and the bottleneck, in ms.
const UNLOADED_MS: f64 = 30.0 + 2.0 * 0.12 + 1.2;

/// Bulk flows of `controllers` over 10 Mbit/s with a round trip of 60 ms; queues of 250
/// packets hold 300 ms, five times the bandwidth-delay product.
fn scenario(controllers: &[(&str, &str)], queue: QueueSpec) -> FlowScenario {
    let mut scenario = Bulk {
        flows: controllers.len(),
        controller: find("reno").unwrap(),
        parameters: toml::Table::new(),
        rate: Rate::from_bits_per_sec((RATE_MBIT_S * 1e6) as u64),
        loss: 0.0,
        length: Duration::SECOND * 80,
        seed: 1,
    }
    .scenario();
    for (flow, (name, parameters)) in scenario.flows.iter_mut().zip(controllers) {
        flow.controller = find(name).unwrap();
        flow.parameters = parameters.parse().unwrap();
    }
    scenario.links[0].queue = queue;
    scenario.delays_from = scenario.goodput_from;
    scenario
}

fn measure(scenario: &FlowScenario) -> FlowsMeasured {
    let measured = run(scenario, &()).unwrap();
    for (flow, spec) in measured.flows.iter().zip(&scenario.flows) {
        assert_eq!(flow.controller, spec.controller.name);
    }
    measured
}

fn utilisation(measured: &FlowsMeasured) -> f64 {
    measured.links[0].counted_bytes as f64 * 8.0 / 60.0 / (RATE_MBIT_S * 1e6)
}

fn median_wait_ms(measured: &FlowsMeasured) -> f64 {
    measured.flows[0].one_way.quantiles_ms([0.5])[0].unwrap() - UNLOADED_MS
}

const CAPACITY: u64 = 250;

fn drop_tail() -> QueueSpec {
    QueueSpec::DropTail(Capacity::Packets(CAPACITY))
}

fn codel() -> QueueSpec {
    QueueSpec::Codel(CodelConfig { law: CodelLaw::default(), limit: Limit::Packets(CAPACITY) })
}

#[test]
fn codel_keeps_the_standing_wait_near_its_target_where_drop_tail_fills_the_buffer() {
    let full = measure(&scenario(&[("reno", ""); 4], drop_tail()));
    let short = measure(&scenario(&[("reno", ""); 4], codel()));
    let (full_wait, short_wait) = (median_wait_ms(&full), median_wait_ms(&short));
    println!("drop-tail {full_wait:.1} ms, CoDel {short_wait:.1} ms, {:.3} used", utilisation(&short));
    assert!(full_wait > 150.0, "{full_wait}");
    assert!((2.0..15.0).contains(&short_wait), "{short_wait}");
    assert!(utilisation(&short) > 0.9, "{}", utilisation(&short));
    assert!(utilisation(&full) > 0.99, "{}", utilisation(&full));
}

#[test]
fn red_keeps_the_average_queue_between_its_thresholds() {
    let red = measure(&scenario(&[("reno", ""); 4], QueueSpec::Red(RedConfig::packets(CAPACITY))));
    let mean = red.flows[0].one_way.mean_ms().unwrap() - UNLOADED_MS;
    println!("RED {mean:.1} ms, {:.3} used", utilisation(&red));
    // 5 and 15 packets of 1.2 ms.
    assert!((5.0 * 1.2..15.0 * 1.2).contains(&mean), "{mean}");
    // Thresholds well below the bandwidth-delay product of 50 packets cost some throughput.
    assert!(utilisation(&red) > 0.8, "{}", utilisation(&red));
    assert!(red.links[0].count.dropped > 0);
}

fn fq_codel() -> QueueSpec {
    QueueSpec::FqCodel(FqCodelConfig::default())
}

fn goodput(measured: &FlowsMeasured, flow: usize) -> f64 {
    measured.flows[flow].goodput_bytes as f64
}

#[test]
fn under_fq_codel_a_window_gets_its_share_however_large_another_is() {
    let windows = [("fixed", "window = 400"), ("fixed", "window = 100")];
    let share = |queue: QueueSpec| {
        let measured = measure(&scenario(&windows, queue));
        goodput(&measured, 1) / (goodput(&measured, 0) + goodput(&measured, 1))
    };
    let (tail, fair) = (share(drop_tail()), share(fq_codel()));
    println!("the small window's share: drop-tail {tail:.3}, FQ-CoDel {fair:.3}");
    assert!(tail < 0.3, "{tail}");
    assert!((fair - 0.5).abs() < 0.01, "{fair}");
}

/// Reno alone behind CoDel does not use all of 5 Mbit/s: it halves a window that had hardly
/// a queue. What it leaves, the other flow takes; what it could use, nobody takes from it.
#[test]
fn under_fq_codel_reno_beside_a_flow_that_never_yields_is_as_fast_as_alone_at_half_the_rate() {
    let greedy = [("fixed", "window = 400"), ("reno", "")];
    let tail = measure(&scenario(&greedy, drop_tail()));
    let fair = measure(&scenario(&greedy, fq_codel()));
    let mut alone = scenario(&[("reno", "")], fq_codel());
    alone.links[0].rate = Some(Course::constant(Rate::from_bits_per_sec((RATE_MBIT_S * 1e6) as u64 / 2)));
    let alone = measure(&alone);
    let total = goodput(&fair, 0) + goodput(&fair, 1);
    let share = goodput(&fair, 1) / total;
    println!(
        "Reno's share: drop-tail {:.3}, FQ-CoDel {share:.3}; of what it gets alone {:.3}",
        goodput(&tail, 1) / (goodput(&tail, 0) + goodput(&tail, 1)),
        goodput(&fair, 1) / goodput(&alone, 0),
    );
    assert!(goodput(&tail, 1) < 0.1 * goodput(&tail, 0));
    assert!((0.4..0.5).contains(&share), "{share}");
    assert!(goodput(&fair, 1) > 0.95 * goodput(&alone, 0));
}

#[test]
fn where_packets_may_be_marked_codel_and_red_mark_and_nothing_is_lost() {
    // Room for the overshoot of slow start, which 250 packets have not: marks come later.
    let codel = QueueSpec::Codel(CodelConfig { law: CodelLaw::default(), limit: Limit::Packets(1000) });
    for queue in [codel, fq_codel(), QueueSpec::Red(RedConfig::packets(1000))] {
        let dropping = scenario(&[("reno", ""); 4], queue);
        let mut marking = dropping.clone();
        marking.packets.ecn = true;
        let dropped = measure(&dropping);
        assert_eq!(dropped.links[0].count.marked, 0);
        assert!(dropped.links[0].count.dropped > 0);
        let marked = measure(&marking);
        let count = marked.links[0].count;
        println!("{queue:?}: {} marked instead of {} dropped", count.marked, dropped.links[0].count.dropped);
        assert_eq!(count.dropped, 0, "{queue:?}");
        assert!(count.marked > 0, "{queue:?}");
        assert_eq!(marked.flows.iter().map(|flow| flow.packets_lost).sum::<u64>(), 0, "{queue:?}");
    }
}

#[test]
fn equal_seeds_give_equal_runs() {
    for queue in [codel(), fq_codel(), QueueSpec::Red(RedConfig::packets(CAPACITY))] {
        let mut scenario = scenario(&[("reno", ""); 3], queue);
        scenario.length = Duration::SECOND * 10;
        scenario.goodput_from = Time::ZERO;
        let [first, second] = [0, 1].map(|_| measure(&scenario));
        assert_eq!(first.links, second.links);
        assert_eq!(first.events, second.events);
    }
}

#[test]
fn a_run_of_flows_that_delivers_nothing_is_an_error() {
    let far = |seconds: u32| {
        let text = format!(
            "[run]\nseconds = {seconds}\n[dumbbell]\nrate = \"5 Mbit/s\"\ndelay_ms = 40000\n[[flow]]\ncontroller = \"reno\"\n"
        );
        let scenario = anabranch_scenario::file::parse_flows(&text, "f.toml", &[]).unwrap();
        anabranch_lab::flows::run(&scenario, &())
    };
    // However short it was.
    for seconds in [30, 5] {
        let error = far(seconds).unwrap_err().to_string();
        assert!(error.contains("no flow has delivered anything"), "{error}");
    }
}

/// A lost first packet was never sent again, and its flow delivered nothing for the rest of the run.
#[test]
fn a_connection_whose_first_packet_is_lost_is_opened_later() {
    let mut opened = 0;
    for seed in 1..=20 {
        let text = format!(
            "[run]\nseconds = 60\nseed = {seed}\nsample_every_s = 0\n[dumbbell]\nrate = \"5 Mbit/s\"\ndelay_ms = 20\nloss = 0.3\n\
             [[flow]]\ncontroller = \"reno\"\nhandshake = true\nsteered = true\n\
             [steering]\nlink = \"bottleneck\"\nevery_ms = 100\n"
        );
        let scenario = anabranch_scenario::file::parse_flows(&text, "f.toml", &[]).unwrap();
        let measured = anabranch_lab::flows::run(&scenario, &()).unwrap_or_else(|error| panic!("{seed}: {error}"));
        opened += u32::from(measured.flows[0].delivered_bytes > 0);
    }
    assert_eq!(opened, 20);
}
