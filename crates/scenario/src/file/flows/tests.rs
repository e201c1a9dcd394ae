//! What is read comes back, and what is wrong is refused at its place.

use std::sync::Arc;

use proptest::prelude::*;

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::flow::{AckForm, LossRecovery, PartialAck, Reduction, TcpOptions};
use anabranch_sim::loss::LossModel;
use anabranch_sim::network::Capacity;
use anabranch_sim::varying::{Change, Course};

use crate::file::{AnyScenario, Override, flows_to_toml, parse_any, parse_flows};
use crate::flows::sizes::{Interpolation, SizeDistribution, SizePoint};
use crate::flows::{FlowScenario, OnPeriod, PacketSpec, Pattern, QueueSpec, Size, Workload};

pub const LEAST: &str = "\
[dumbbell]
rate = \"10 Mbit/s\"
delay_ms = 10
[[flow]]
controller = \"reno\"
";

const FULL: &str = r#"[run]
seconds = 12.5
seed = 9223372036854775807
goodput_from_s = 2
delays_from_s = 1.25
sample_every_s = 0.5
[packets]
data_bytes = 1000
header_bytes = 40
ack_bytes = 50
ack_every = 1
max_ack_delay_ms = 0.5
ecn = true
paced = true
recovery = "rfc6675"
least_timeout_ms = 200
restart_after_idle = true
reduction = "rfc6937"
partial_ack = "rfc6582"
linux = ["push", "filled-gap"]
[dumbbell]
pairs = 3
rate = { at_s = [0, 5.5], values = ["5 Mbit/s", "8 Mbit/s"] }
delay_ms = { uniform = [5, 15.5], every_s = 10 }
queue = { bytes = 37500 }
loss = { to_bad = 0.01, to_good = 0.3, loss_bad = 0.5 }
jitter_ms = 0.25
reorder = true
access_rate = "100 Mbit/s"
access_delay_ms = [1, 2, 3]
receiver_delay_ms = 4
access_queue = { packets = 77 }
[star]
hosts = 2
rate = ["4 Mbit/s", "5 Mbit/s"]
down_rate = "unlimited"
delay_ms = 7
queue = { ms = 60 }
loss = { at_s = [0, 3], values = [0, 1] }
[[link]]
name = "bridge"
from = "left"
to = "hub"
rate = "2.001 Mbit/s"
delay_ms = 1
[[link]]
name = "alone"
rate = "7 bit/s"
delay_ms = 1.5
[[flow]]
name = "two{i}"
count = 2
controller = "reno"
start_within_s = 3
[[flow]]
name = "wild \"name\""
controller = "fixed"
parameters = { window = 20 }
from = "s0"
to = ["h0", "h1"]
start_s = 2
stop_s = 25
workload = { block_bytes = 15000 }
initial_window_packets = 3
[[flow]]
controller = "fixed"
receivers = [{ path = ["alone"], back = ["alone", "h0-hub"] }]
workload = { on_mean_s = 10, off_mean_s = 0.5, new_connections = true }
[[flow]]
controller = "reno"
workload = { on_mean_bytes = 100000, off_mean_s = 0.5 }
initial_window_bytes = 12345
[[flow]]
controller = "reno"
from = "h0"
to = "h1"
workload = { sizes = { cdf = [[100, 0.25], [1e4, 0.5], [1e6, 1]], interpolate = "log" }, off_mean_s = 1 }
[[cross_traffic]]
from = "s1"
to = "r1"
rate = "2 Mbit/s"
packet_bytes = 1200
pattern = { on_s = 1, off_s = 3 }
start_s = 1
stop_s = 9
[[cross_traffic]]
name = "noise"
path = ["bridge"]
rate = "1 Mbit/s"
pattern = { on_mean_s = 0.1, off_mean_s = 0.2 }
"#;

pub fn read(text: &str, changes: &[&str]) -> Result<FlowScenario, String> {
    let changes: Vec<Override> = changes.iter().map(|change| Override::set(change).unwrap()).collect();
    parse_flows(text, "f.toml", &changes).map_err(|error| error.to_string())
}

pub fn names(scenario: &FlowScenario, path: &[usize]) -> Vec<String> {
    path.iter().map(|&link| scenario.links[link].name.clone()).collect()
}

#[test]
fn a_dumbbell_and_a_controller_are_a_scenario() {
    let scenario = read(LEAST, &[]).unwrap();
    assert_eq!((scenario.length, scenario.seed), (Duration::from_millis(60_000), 1));
    assert_eq!(scenario.sample_every, Some(Duration::from_millis(100)));
    let flow = &scenario.flows[0];
    assert_eq!((flow.name.as_str(), flow.controller.name, &flow.workload), ("flow0", "reno", &Workload::Bulk));
    assert_eq!(names(&scenario, &flow.receivers[0].there), ["s0-left", "bottleneck", "right-r0"]);
    assert_eq!(names(&scenario, &flow.receivers[0].back), ["r0-right", "bottleneck-back", "left-s0"]);
    let fast = Some(Course::constant(Rate::from_bits_per_sec(100_000_000)));
    assert_eq!(scenario.links[flow.receivers[0].there[0]].rate, fast, "ten times the bottleneck");
}

#[test]
fn every_key_reaches_the_scenario() {
    let scenario = read(FULL, &[]).unwrap();
    assert_eq!((scenario.length, scenario.seed), (Duration::from_millis(12_500), i64::MAX as u64));
    assert_eq!(scenario.goodput_from, Time::from_secs_f64(2.0));
    assert_eq!(scenario.delays_from, Time::from_secs_f64(1.25));
    let packets = scenario.packets;
    assert_eq!((packets.data, packets.header, packets.ack), (Bytes::new(1000), Bytes::new(40), Bytes::new(50)));
    assert_eq!((packets.ack_policy.every, packets.ack_policy.max_delay), (1, Duration::from_nanos(500_000)));
    assert!(packets.ecn && packets.paced);
    assert_eq!(packets.recovery, LossRecovery::Rfc6675);
    let tcp = TcpOptions {
        least_timeout: Duration::from_millis(200),
        restart_after_idle: true,
        reduction: Reduction::Rfc6937,
        partial_ack: PartialAck::Rfc6582,
    };
    assert_eq!(packets.tcp, tcp);
    assert_eq!(packets.receiver_policy().form, AckForm::Sack);
    let link = |name: &str| scenario.links.iter().find(|link| link.name == name).unwrap();
    let mbit = |rate: u64| Rate::from_bits_per_sec(rate * 1_000_000);
    let bottleneck = link("bottleneck");
    let change = Change::At(vec![(Time::from_secs_f64(5.5), mbit(8))]);
    assert_eq!(bottleneck.rate, Some(Course { first: mbit(5), change }));
    assert_eq!(bottleneck.queue, QueueSpec::DropTail(Capacity::Bytes(37_500)));
    assert!(matches!(&bottleneck.loss, LossModel::GilbertElliott(model) if model.loss_bad == 0.5));
    assert_eq!(link("bottleneck-back").loss, LossModel::None);
    assert!(bottleneck.jitter.reorders && bottleneck.jitter.deviation == Duration::from_nanos(250_000));
    assert_eq!(link("s2-left").delay.first, Duration::from_millis(3));
    assert_eq!(link("right-r2").delay.first, Duration::from_millis(4));
    assert_eq!(link("right-r2").queue, QueueSpec::DropTail(Capacity::Packets(77)));
    assert_eq!((link("h1-hub").rate.clone(), link("hub-h1").rate.clone()), (Some(Course::constant(mbit(5))), None));
    assert_eq!(link("hub-h0").queue, QueueSpec::DropTail(Capacity::Time(Duration::from_millis(60))));
    assert_eq!(link("bridge-back").rate, Some(Course::constant(Rate::from_bits_per_sec(2_001_000))));
    let flow_names: Vec<&str> = scenario.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(flow_names, ["two0", "two1", "wild \"name\"", "flow3", "flow4", "flow5"]);
    let [two0, two1, wild, on_off, third, drawn] = &scenario.flows[..] else { panic!("six flows") };
    assert!(two0.start != two1.start && two0.start < Time::from_secs_f64(3.0));
    assert_eq!(names(&scenario, &wild.receivers[1].there), ["s0-left", "bridge", "hub-h1"]);
    assert_eq!(wild.initial_window, Some(Bytes::new(3000)));
    assert_eq!((wild.start, wild.stop), (Time::from_secs_f64(2.0), Some(Time::from_secs_f64(25.0))));
    let on = OnPeriod::Time { mean: Duration::from_millis(10_000) };
    let workload = Workload::OnOff { on, off_mean: Duration::from_millis(500), new_connections: true };
    assert_eq!(on_off.workload, workload);
    assert_eq!(third.receivers[0].there[0], scenario.links.iter().position(|link| link.name == "s2-left").unwrap());
    assert_eq!(third.initial_window, Some(Bytes::new(12_345)));
    let points = [(100.0, 0.25), (1e4, 0.5), (1e6, 1.0)];
    let points = points.map(|(bytes, probability)| SizePoint { bytes, probability });
    let sizes = Arc::new(SizeDistribution::new(points.to_vec(), Interpolation::Log).unwrap());
    let off_mean = Duration::from_millis(1000);
    assert_eq!(drawn.workload, Workload::OnOff { on: OnPeriod::Drawn(sizes), off_mean, new_connections: false });
    let [periodic, noise] = &scenario.cross_traffic[..] else { panic!("two sources") };
    assert_eq!((periodic.packet, periodic.rate), (Bytes::new(1200), mbit(2)));
    let (on, off) = (Duration::from_millis(1000), Duration::from_millis(3000));
    assert_eq!(periodic.pattern, Pattern::Periodic { on, off });
    assert_eq!(names(&scenario, &noise.path), ["bridge"]);
}

/// Links of a dumbbell without `pairs`, under these flows and what else there is.
fn access_links(more: &str) -> Result<usize, String> {
    let text = format!("[dumbbell]\nrate = \"10 Mbit/s\"\ndelay_ms = 10\n{more}");
    read(&text, &[]).map(|scenario| scenario.links.iter().filter(|link| link.name.ends_with("-left")).count())
}

#[test]
fn a_dumbbell_has_the_pairs_that_flows_take_or_name() {
    let flow = |ends: &str| format!("[[flow]]\ncontroller = \"reno\"\n{ends}\n");
    let next = flow("");
    assert_eq!(access_links(&[next.clone(), next.clone()].concat()), Ok(2));
    assert_eq!(access_links(&flow("from = \"s0\"\nto = \"r3\"")), Ok(4));
    assert_eq!(access_links(&flow("name = \"f{i}\"\ncount = 3\nfirst = 1\nfrom = \"s{i}\"\nto = \"r{i}\"")), Ok(4));
    let cross = "[[cross_traffic]]\nrate = \"1 Mbit/s\"\nfrom = \"s2\"\nto = \"r2\"\n";
    assert_eq!(access_links(cross), Ok(3));
    assert!(access_links(&[next.as_str(), cross].concat()).unwrap_err().contains("there is no node \"s2\""));
    // What a [[link]] names is no host of the dumbbell's.
    let own = "[[link]]\nfrom = \"s7\"\nto = \"left\"\nrate = \"1 Mbit/s\"\ndelay_ms = 1\n";
    assert_eq!(access_links(&[own, &flow("from = \"s7\"\nto = \"r1\"")].concat()), Ok(3), "s0, s1, and that link");
    assert!(access_links(&flow("from = \"s03\"\nto = \"r0\"")).unwrap_err().contains("there is no node \"s03\""));
    assert!(access_links(&flow("from = \"s9999\"\nto = \"r0\"")).unwrap_err().contains("there is no node"));
    // What is wrong with the flow is said first.
    let error = access_links(&flow("from = \"left\"")).unwrap_err();
    assert!(error.contains("flow.to: missing"), "{error}");
}

#[test]
fn the_receivers_of_the_documentation_are_reached() {
    let page = include_str!("../../../../../docs/flow-scenarios.md");
    let example = page.split("`[{ path = ").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    let text = LEAST.to_owned() + "receivers = [{ path = " + example;
    let scenario = read(&text, &[]).unwrap();
    let way = &scenario.flows[0].receivers[0];
    assert_eq!(names(&scenario, &way.there), ["s0-left", "bottleneck", "right-r0"]);
    assert_eq!(names(&scenario, &way.back), ["r0-right", "bottleneck-back", "left-s0"]);
}

#[test]
fn access_links_have_no_limit_beside_a_bottleneck_without_one() {
    let unlimited = LEAST.replace("\"10 Mbit/s\"", "\"unlimited\"");
    let rates = |text: &str| {
        let scenario = read(text, &[]).unwrap();
        assert_comes_back(&scenario);
        ["bottleneck", "s0-left", "right-r0"]
            .map(|name| scenario.links.iter().find(|link| link.name == name).unwrap().rate.clone())
    };
    assert_eq!(rates(&unlimited), [None, None, None]);
    let mbit = |rate: u64| Some(Course::constant(Rate::from_bits_per_sec(rate * 1_000_000)));
    let given = unlimited.replace("delay_ms", "sender_rate = \"1 Mbit/s\"\ndelay_ms");
    assert_eq!(rates(&given), [None, mbit(1), None]);
    let taken = LEAST.replace("delay_ms", "receiver_rate = \"unlimited\"\ndelay_ms");
    assert_eq!(rates(&taken), [mbit(10), mbit(100), None]);
}

pub fn assert_comes_back(scenario: &FlowScenario) {
    let written = flows_to_toml(scenario);
    let again = parse_flows(&written, "written.toml", &[]).unwrap_or_else(|error| panic!("{error}\n{written}"));
    assert_eq!(format!("{again:#?}"), format!("{scenario:#?}"), "{written}");
}

#[test]
fn recovery_with_sack_is_ns_3s_and_who_sets_cubics_rule_gets_none_of_its() {
    let reading = |changes: &[&str]| {
        let scenario = read(LEAST, &[&["flow.0.controller=cubic"], changes].concat()).unwrap();
        let (flow, recovery) = (&scenario.flows[0], scenario.packets.recovery);
        let PacketSpec { tcp: TcpOptions { reduction, partial_ack, .. }, .. } = scenario.packets;
        let keys = |table: &toml::Table| table.keys().cloned().collect::<Vec<String>>().join(" ");
        let (parameters, told) = (flow.parameters_under(recovery), flow.reading_under(recovery));
        (keys(&parameters), keys(&told), reduction.name(), partial_ack.name())
    };
    let expected = |parameters: &str, told: &str, reduction, partial_ack| {
        (parameters.to_owned(), told.to_owned(), reduction, partial_ack)
    };
    let all = "counting linux remainder";
    assert_eq!(reading(&[]), expected("", "", "rfc6675", "rfc6582"));
    assert_eq!(reading(&["packets.recovery=rfc6675"]), expected(all, all, "ns-3", "next-seg"));
    let set = ["packets.recovery=rfc6675", "packets.reduction=rfc6937", "flow.0.parameters.reno_friendly=rfc-9438"];
    assert_eq!(reading(&set), expected("reno_friendly", "reno_friendly", "rfc6937", "next-seg"));
    let without = expected("reno_friendly", "reno_friendly", "rfc6675", "rfc6582");
    assert_eq!(reading(&["packets.recovery=rfc6582"]), without);
}

#[test]
fn what_is_written_reads_as_the_same_scenario() {
    for text in [LEAST, FULL] {
        assert_comes_back(&read(text, &[]).unwrap());
    }
}

#[test]
fn the_example_of_the_documentation_reads_and_comes_back() {
    let documented: String = include_str!("mod.rs")
        .lines()
        .skip_while(|line| *line != "//! ```toml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| format!("{}\n", line.strip_prefix("//!").unwrap()))
        .collect();
    let scenario = read(&documented, &[]).unwrap();
    assert_eq!((scenario.flows.len(), scenario.cross_traffic.len()), (5, 1));
    assert_comes_back(&scenario);
}

#[test]
fn the_command_line_reaches_one_flow_or_all() {
    let text = format!("{LEAST}[[flow]]\ncontroller = \"fixed\"\nparameters = {{ window = 3 }}\n");
    let both = read(&text, &["flow.all.controller=min-delay", "dumbbell.queue.ms=5"]).unwrap();
    assert!(both.flows.iter().all(|flow| flow.controller.name == "min-delay" && flow.parameters.is_empty()));
    assert_eq!(both.links[0].queue, QueueSpec::DropTail(Capacity::Time(Duration::from_millis(5))));
    let one = read(&text, &["flow.1.parameters.window=4"]).unwrap();
    assert_eq!(one.flows[1].parameters["window"].as_integer(), Some(4));
    let text = text.replace("delay_ms = 10", "delay_ms = 10\nqueue = { packets = 3 }");
    assert_eq!(read(&text, &["dumbbell.queue.ms=5"]).unwrap().links[0].queue, both.links[0].queue);
    assert!(read(&text, &["flow.2.controller=reno"]).unwrap_err().contains("not a place in a list of 2"));
}

#[test]
fn random_starts_follow_the_seed_and_the_name_alone() {
    let starts =
        |changes: &[&str]| read(FULL, changes).unwrap().flows.iter().map(|flow| flow.start).collect::<Vec<_>>();
    assert_eq!(starts(&[]), starts(&["dumbbell.pairs=3", "run.seconds=50"]));
    assert_ne!(starts(&[])[0], starts(&["run.seed=3"])[0]);
}

#[test]
fn each_kind_of_scenario_is_known_by_its_tables() {
    let any = |text: &str| parse_any(text, "s.toml", &[]);
    assert!(matches!(any(LEAST), Ok(AnyScenario::Flows(_))));
    let overlay = "[overlay]\npeers = 20\nrelays = 3\ncontroller = \"aimd\"\n";
    assert!(matches!(any(overlay), Ok(AnyScenario::Overlay(_))));
}

/// Distributions with rising sizes.
fn sizes() -> impl Strategy<Value = Arc<SizeDistribution>> {
    (prop::collection::vec((0.01..1e6f64, 0.01..1.0f64), 1..9), any::<bool>()).prop_map(|(steps, log)| {
        let total: f64 = steps.iter().map(|step| step.1).sum();
        let mut last = SizePoint { bytes: 1.0, probability: 0.0 };
        let mut points = vec![last];
        for (bytes, weight) in steps {
            let probability = (last.probability + weight / total).min(1.0);
            last = SizePoint { bytes: last.bytes + bytes, probability };
            points.push(last);
        }
        points.last_mut().expect("there is a first").probability = 1.0;
        let interpolation = if log { Interpolation::Log } else { Interpolation::Linear };
        Arc::new(SizeDistribution::new(points, interpolation).expect("sizes and probabilities rise"))
    })
}

/// A duration of whole nanoseconds, short or up to a day.
fn span() -> impl Strategy<Value = Duration> {
    prop_oneof![0..10_000u64, 0..86_400_000_000_000u64].prop_map(Duration::from_nanos)
}

/// A delay, up to an hour.
fn millis() -> impl Strategy<Value = Duration> + Clone {
    (500..3_600_000_000_000u64).prop_map(Duration::from_nanos)
}

fn rate() -> impl Strategy<Value = Rate> + Clone {
    prop_oneof![1..100_000_000_000u64, (1..100_000u64).prop_map(|mbit| mbit * 1_000_000)]
        .prop_map(Rate::from_bits_per_sec)
}

fn course<T: Clone + std::fmt::Debug + 'static>(
    values: impl Strategy<Value = T> + Clone + 'static,
) -> impl Strategy<Value = Course<T>> {
    let at = prop::collection::vec((1..1_000_000_000u64, values.clone()), 1..4).prop_map(|steps| {
        let mut at = Time::ZERO;
        let mut changes = Vec::new();
        for (step, value) in steps {
            at += Duration::from_nanos(step);
            changes.push((at, value));
        }
        Change::At(changes)
    });
    (values, prop_oneof![Just(Change::Never), at]).prop_map(|(first, change)| Course { first, change })
}

proptest! {
    #[test]
    fn no_value_of_any_key_makes_reading_fail_in_another_way_than_with_an_error(
        line in 0..FULL.lines().count(),
        value in prop::sample::select(vec![
            "0", "-1", "1", "1e308", "-0.0", "nan", "inf", "9223372036854775807", "4096", "true", "\"\"", "\"{i}\"",
            "\"unlimited\"", "\"1e11 bit/s\"", "[]", "[[]]", "{}", "{ at_s = [0], values = [1] }", "1979-05-27",
        ]),
    ) {
        let changed = FULL.lines().enumerate().map(|(i, text)| match text.split_once(" = ") {
            Some((key, _)) if i == line => format!("{key} = {value}\n"),
            _ => format!("{text}\n"),
        });
        if let Ok(scenario) = read(&changed.collect::<String>(), &[]) {
            assert_comes_back(&scenario);
        }
    }

    #[test]
    fn any_scenario_that_is_written_comes_back(
        seed in 0..=i64::MAX as u64,
        length in 1_000_000..1_000_000_000_000_000u64,
        rates in prop::collection::vec(prop::option::of(course(rate())), 1..4),
        delays in prop::collection::vec(course(millis()), 4),
        queues in prop::collection::vec((0..4u8, 0..1u64 << 30), 4),
        loss in prop_oneof![Just(LossModel::None), course(0.0001..1.0).prop_map(LossModel::Random)],
        starts in prop::collection::vec((span(), prop::option::of(1..1_000_000u64)), 0..4),
        workload in prop_oneof![
            Just(Workload::Bulk),
            (1..1u64 << 40).prop_map(|bytes| Workload::Once(Size::Fixed(Bytes::new(bytes)))),
            (sizes(), span()).prop_map(|(sizes, every)| Workload::Repeated {
                size: Size::Drawn(sizes),
                every: every + Duration::from_nanos(1000),
            }),
            (sizes(), span()).prop_map(|(sizes, off_mean)| Workload::OnOff {
                on: OnPeriod::Drawn(sizes),
                off_mean,
                new_connections: true,
            }),
            (span(), span(), any::<bool>()).prop_map(|(on, off_mean, new_connections)| Workload::OnOff {
                on: OnPeriod::Time { mean: on + Duration::from_nanos(1000) },
                off_mean,
                new_connections,
            }),
        ],
    ) {
        let mut scenario = read(FULL, &[]).unwrap();
        (scenario.seed, scenario.length) = (seed, Duration::from_nanos(length));
        (scenario.goodput_from, scenario.delays_from) = (Time::from_nanos(length / 3), Time::ZERO);
        scenario.sample_every = Some(Duration::from_nanos(length / 100));
        for (i, rate) in rates.into_iter().enumerate() {
            let (kind, amount) = queues[i];
            scenario.links[i].rate = rate;
            scenario.links[i].delay = delays[i].clone();
            scenario.links[i].queue = QueueSpec::DropTail(match kind {
                0 => Capacity::Unlimited,
                1 => Capacity::Bytes(amount),
                2 => Capacity::Packets(amount),
                _ => Capacity::Time(Duration::from_nanos(amount)),
            });
            scenario.links[i].loss = loss.clone();
        }
        for (i, (start, stop)) in starts.into_iter().enumerate() {
            scenario.flows[i].start = Time::ZERO + start;
            scenario.flows[i].stop = stop.map(|after| Time::ZERO + start + Duration::from_nanos(after));
            if scenario.flows[i].receivers.len() == 1 {
                scenario.flows[i].workload = workload.clone();
            }
        }
        assert_comes_back(&scenario);
    }
}
