//! A coordinator, its agents and a stranger as processes, and the demo.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::running::Running;
use crate::common::{Place, Said};
use serde_json::Value;

/// An entry of a coordinator's file, with the key that an agent prints.
pub fn entry(place: &Place, kind: &str, name: &str, rest: &str) -> String {
    let Said { code, stdout, stderr } = place.say(&["agent", "--identity", name]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(place.say(&["agent", "--identity", name]).stdout, stdout, "the key is kept");
    format!("[[{kind}]]\nname = \"{name}\"\nkey = \"{}\"\nlink = \"uplink\"\n{rest}\n", stdout.trim())
}

pub fn link(capacity: &str) -> String {
    format!("every_ms = 100\n[[link]]\nname = \"uplink\"\ncapacity = \"{capacity}\"\n")
}

/// The body of the answer to `GET path` of a page.
fn get(page: &str, path: &str) -> String {
    let address = page.strip_prefix("http://").unwrap().strip_suffix('/').unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{path}: {answer}");
    body.to_owned()
}

pub fn is(event: &'static str) -> impl Fn(&Value) -> bool {
    move |line| line["event"] == event
}

#[test]
fn hosts_are_directed_what_they_may_send_and_are_on_their_own_while_no_coordinator_lives() {
    let place = Place::new("");
    let file = link("100 Mbit/s") + &entry(&place, "host", "alpha", "") + &entry(&place, "monitor", "gateway", "");
    fs::write(place.path("hosts.toml"), file).unwrap();
    let coordinate = |listen: &str| {
        let arguments = ["coordinate", "hosts.toml", "--identity", "coordinator", "--json", "--listen", listen];
        let mut coordinator = Running::of(&mut place.command(&arguments));
        let link = coordinator.json()["link"].as_str().unwrap().to_owned();
        (coordinator, link)
    };
    let (mut coordinator, link) = coordinate("127.0.0.1:0");
    let agent = |name: &str, rest: &[&str]| {
        let arguments = ["agent", &link, "--device", "lo", "--identity", name, "--json"];
        Running::of(&mut place.command(&[&arguments[..], rest].concat()))
    };
    let mut stranger = agent("stranger", &[]);
    let refused = stranger.json();
    assert_eq!(refused["event"], "unreachable");
    assert!(refused["why"].as_str().unwrap().contains("does not know this agent's key"), "{refused}");
    let (mut alpha, mut gateway) = (agent("alpha", &[]), agent("gateway", &["--monitor"]));
    // Monitors report four times as often.
    assert_eq!(gateway.json_where(is("enrolled"))["report_each_s"], 0.025);
    assert_eq!(alpha.json_where(is("enrolled"))["report_each_s"], 0.1);
    let budget = alpha.json_where(is("budget"));
    // 95 % of what the link carries, less what others send: processes of this machine talk over lo too.
    assert!((1.0..=95.0).contains(&budget["rate_mbit_s"].as_f64().unwrap()), "{budget}");
    assert_eq!(budget["is_enforced"], false);
    let lifetime = budget["lifetime_s"].as_f64().unwrap();
    let seen =
        coordinator.json_where(|line| line["monitors"][0]["is_here"] == true && line["hosts"][0]["is_here"] == true);
    assert!(seen["links"][0]["other_mbit_s"].is_f64(), "{seen}");
    // People and Prometheus are shown the same.
    let page = seen["page"].as_str().unwrap();
    assert!(get(page, "").contains("<title>Coordinator</title>"));
    let overview: Value = serde_json::from_str(&get(page, "api/overview")).unwrap();
    assert_eq!(
        (&overview["link"], &overview["hosts"][0]["name"]),
        (&Value::from(link.as_str()), &Value::from("alpha"))
    );
    assert!(overview["hosts"][0]["budget_mbit_s"].is_f64() && overview["hosts"][0]["lease_s"].is_f64(), "{overview}");
    assert_eq!(overview["events"].as_array().unwrap().len(), 2, "{overview}");
    let metrics = get(page, "metrics");
    assert!(
        metrics.contains("\nanabranch_coordinator_host_is_here{host=\"alpha\",link=\"uplink\"} 1.0\n"),
        "{metrics}"
    );
    let address = link.rsplit_once('@').unwrap().1.to_owned();
    drop(coordinator);
    let mut last = budget;
    let alone = loop {
        match alpha.json() {
            line if line["event"] == "budget" => last = line,
            line if line["event"] == "alone" => break line,
            line => assert_eq!(line["event"], "ignored", "{line}"),
        }
    };
    let held = alone["at_s"].as_f64().unwrap() - last["at_s"].as_f64().unwrap();
    assert!(held >= lifetime - 0.01, "a lease of {lifetime} s that ended after {held}");
    // By its name it is the same coordinator, whose later life counts.
    let (coordinator, again) = coordinate(&address);
    assert_eq!(again, link);
    alpha.json_where(is("enrolled"));
    alpha.json_where(is("budget"));
    for process in [stranger, alpha, gateway, coordinator] {
        process.interrupt();
        assert_eq!(process.end().0, Some(0));
    }
}

/// How long that takes is in `docs/coordination.md`: ten times a coordinator is killed, and its host's agent says when it is
/// on its own.
#[test]
fn a_killed_coordinator_leaves_its_host_on_its_own_within_300_ms() {
    let place = Place::new("");
    fs::write(place.path("hosts.toml"), link("100 Mbit/s") + &entry(&place, "host", "alpha", "")).unwrap();
    let mut took = Vec::new();
    for round in 0..10 {
        let arguments =
            ["coordinate", "hosts.toml", "--identity", "c", "--json", "--listen", "127.0.0.1:0", "--no-page"];
        let mut coordinator = Running::of(&mut place.command(&arguments));
        let link = coordinator.json()["link"].as_str().unwrap().to_owned();
        let arguments = ["agent", &link, "--device", "lo", "--identity", "alpha", "--json"];
        let mut alpha = Running::of(&mut place.command(&arguments));
        // Its first directives come as often as later ones.
        let mut lifetime = f64::NAN;
        (0..10).for_each(|_| lifetime = alpha.json_where(is("budget"))["lifetime_s"].as_f64().unwrap());
        assert!(lifetime < 0.3, "{lifetime}");
        // At another instant between two decisions each time.
        thread::sleep(Duration::from_millis(round * 11));
        let killed = Instant::now();
        drop(coordinator);
        alpha.json_where(is("alone"));
        took.push(killed.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_unstable_by(f64::total_cmp);
    let (least, median, most) = (took[0], (took[4] + took[5]) / 2.0, took[9]);
    eprintln!("on its own after {least:.0} to {most:.0} ms, median {median:.0}");
    // What a busy machine adds to one of them is not the lease's.
    assert!(median < 300.0, "{took:?}");
}

#[test]
fn a_coordinators_processor_time_is_measured_with_agents_that_report_and_follow() {
    let place = Place::new("");
    let said = place.say(&["bench", "coordination", "--agents", "8", "--every-ms", "50", "--seconds", "2", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let figures = said.json();
    let figure = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {figures}"));
    // Twenty a second each; on a busy machine fewer.
    assert!((8.0..=170.0).contains(&figure("reports_per_s")), "{figures}");
    assert!((8.0..=170.0).contains(&figure("directives_per_s")), "{figures}");
    assert!(figure("processor_share") > 0.0 && figure("processor_share") <= 1.1, "{figures}");
    place.say(&["bench", "coordination", "--agents", "0"]).refuses("0 is not in 1..=10000");
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let place = Place::new("");
    fs::write(place.path("hosts.toml"), link("100 Mbit")).unwrap();
    let refused = |arguments: &[&str], parts: &[&str]| {
        let said = place.say(arguments);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(parts.iter().all(|part| said.stderr.contains(part)), "{said:?}; expected {parts:?}");
    };
    let wrong = ["hosts.toml:1:1:", "expected at least one [[host]]"];
    refused(&["coordinate", "hosts.toml", "--identity", "c"], &wrong);
    refused(&["coordinate", "none.toml", "--identity", "c"], &["none.toml: No such file"]);
    fs::write(place.path("hosts.toml"), link("100 Mbit/s") + &entry(&place, "host", "alpha", "")).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let arguments = ["coordinate", "hosts.toml", "--identity", "c", "--listen", "127.0.0.1:0", "--page", &at];
    refused(&arguments, &["the page cannot be served at", &at, "see --page"]);
    let link = format!("anabranch://{}@127.0.0.1:9", "9d".repeat(32));
    let devices = ["there is no network device \"none0\"; there are: ", "lo"];
    refused(&["agent", &link, "--device", "none0", "--identity", "a"], &devices);
    refused(&["agent", &link, "--identity", "a"], &["--device"]);
    refused(&["agent", "x", "--device", "lo", "--identity", "a"], &["does not begin with anabranch://"]);
}

/// The policy of the repository that sees a queue and cross traffic, with what `change` makes of its description.
fn policy(place: &Place, change: impl Fn(String) -> String) -> String {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies");
    fs::copy(from.join("cross.safetensors"), place.path("cross.safetensors")).unwrap();
    let description = fs::read_to_string(from.join("cross.json")).unwrap();
    fs::write(place.path("cross.json"), change(description)).unwrap();
    "cross.safetensors".to_owned()
}

#[test]
fn a_policy_of_the_repository_directs_what_hosts_may_send_and_who_decides_is_said() {
    let place = Place::new("");
    let uplink = "[[link]]\nname = \"uplink\"\ncapacity = \"100 Mbit/s\"\nqueue_ms = 50\n";
    let bounds = "least = \"20 Mbit/s\"\nmost = \"60 Mbit/s\"";
    let members = entry(&place, "host", "alpha", bounds) + &entry(&place, "monitor", "gateway", "");
    fs::write(place.path("hosts.toml"), uplink.to_owned() + &members).unwrap();
    let policy = policy(&place, |description| description);
    let arguments =
        ["coordinate", "hosts.toml", "--policy", &policy, "--identity", "c", "--json", "--listen", "127.0.0.1:0"];
    let mut coordinator = Running::of(&mut place.command(&arguments));
    let first = coordinator.json();
    assert_eq!((&first["policy"], &first["every_s"]), (&Value::from("cross.safetensors"), &Value::from(0.1)));
    assert_eq!(first["links"][0]["decided_by"], "rule", "it has seen nothing yet");
    let link = first["link"].as_str().unwrap().to_owned();
    let agent = |name: &str, rest: &[&str]| {
        let arguments = ["agent", &link, "--device", "lo", "--identity", name, "--json"];
        Running::of(&mut place.command(&[&arguments[..], rest].concat()))
    };
    let mut alpha = agent("alpha", &[]);
    // Nobody watches the link: the rule's share, cut at the host's most.
    let by_rule = coordinator
        .json_where(|line| line["links"][0]["rule_because"].is_string() && line["hosts"][0]["budget_mbit_s"].is_f64());
    let why = "no monitor of link \"uplink\" reports, and cross.safetensors sees \"queue\"";
    assert_eq!(by_rule["links"][0]["rule_because"], why);
    assert_eq!(by_rule["hosts"][0]["budget_mbit_s"], 60.0);
    let gateway = agent("gateway", &["--monitor"]);
    let by_policy = coordinator.json_where(|line| line["links"][0]["decided_by"] == "policy");
    assert!(
        by_policy["links"][0]["rule_because"].is_null() && by_policy["links"][0]["queued_bytes"].is_u64(),
        "{by_policy}"
    );
    let budget = alpha.json_where(is("budget"));
    assert!((20.0..=60.0).contains(&budget["rate_mbit_s"].as_f64().unwrap()), "{budget}");
    let events = by_policy["events"].as_array().unwrap();
    let said = |text: &str| {
        events.iter().any(|event| event["kind"] == "decides" && event["text"].as_str().unwrap().contains(text))
    };
    assert!(said("cross.safetensors decides for link \"uplink\"") && said(why), "{events:?}");
    let page = by_policy["page"].as_str().unwrap();
    let overview: Value = serde_json::from_str(&get(page, "api/overview")).unwrap();
    assert_eq!(
        (&overview["policy"], &overview["links"][0]["decided_by"]),
        (&Value::from("cross.safetensors"), &Value::from("policy"))
    );
    assert!(get(page, "metrics").contains("\nanabranch_coordinator_link_decided_by_policy{link=\"uplink\"} 1.0\n"));
    // Its leases end as the rule's do.
    let lifetime = budget["lifetime_s"].as_f64().unwrap();
    assert!(lifetime > 0.2 && lifetime < 0.3, "{lifetime}");
    drop(coordinator);
    alpha.json_where(is("alone"));
    for process in [alpha, gateway] {
        process.interrupt();
        assert_eq!(process.end().0, Some(0));
    }
}

#[test]
fn a_policy_that_can_not_direct_these_hosts_is_refused_by_file_field_and_what_was_expected() {
    let place = Place::new("");
    let uplink = "[[link]]\nname = \"uplink\"\ncapacity = \"100 Mbit/s\"\n";
    let host = entry(&place, "host", "alpha", "");
    let monitor = entry(&place, "monitor", "gateway", "");
    let refused = |file: &str, parts: &[&str]| {
        fs::write(place.path("hosts.toml"), file).unwrap();
        let said = place.say(&["coordinate", "hosts.toml", "--policy", "cross.safetensors", "--identity", "c"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(parts.iter().all(|part| said.stderr.contains(part)), "{said:?}; expected {parts:?}");
    };
    let whole = format!("{uplink}queue_ms = 50\n{host}{monitor}");
    refused(&whole, &["cross.json: No such file"]);
    policy(&place, |description| description.replace("\"queue\",", "\"cross_next\","));
    refused(&whole, &["cross.json: purpose.features has \"cross_next\", which no coordinator of real hosts can know"]);
    policy(&place, |description| description.replace("\"queue\",", "\"length\","));
    refused(&whole, &["cross.json: purpose: there is no feature \"length\"; there are: throughput"]);
    policy(&place, |description| description.replace("\"fixed\"", "\"initial\""));
    refused(&whole, &["cross.json: purpose.actuator is \"initial\"", "expected fixed, bounded, rate, share or lent"]);
    policy(&place, |description| description.replace("      \"queue\",\n", ""));
    refused(&whole, &["hosts.toml with cross.safetensors: its tensors are not for link \"uplink\" with 1 hosts: "]);
    policy(&place, |description| description);
    refused(
        &format!("{uplink}queue_ms = 50\n{host}"),
        &[
            "hosts.toml with cross.json: purpose.features has \"queue\", and nobody watches link \"uplink\"; expected a [[monitor]]",
        ],
    );
    refused(
        &format!("{uplink}{host}{monitor}"),
        &["cross.json: purpose.features has \"queue\"", "expected its longest wait in its [[link]], as queue_ms = 50"],
    );
    let often = "hosts.toml:1:12: key `every_ms`: 50; cross.safetensors was made to decide every 100 ms";
    refused(&format!("every_ms = 50\n{whole}"), &[often]);
    fs::write(place.path("cross.safetensors"), b"weights").unwrap();
    refused(&whole, &["cross.safetensors: is no safetensors file"]);
}

/// What a demo that went well has measured; none where this machine cannot make its links, which it says and writes
/// nothing, or is too busy to carry them.
fn figures_of_demo(place: &Place, said: &Said) -> Option<Value> {
    if let Err(reason) = anabranch_testbed::emulator::testbed_available() {
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("the demo can't run here: "), "{said:?}");
        assert!(!place.path("out").exists(), "nothing is half-written");
        eprintln!("skipped: {reason}");
        return None;
    }
    if said.stderr.contains("the emulator could not carry") {
        eprintln!("skipped: the machine was too busy to carry the link");
        return None;
    }
    assert_eq!(said.code, Some(0), "{said:?}");
    Some(serde_json::from_str(&said.stdout).unwrap())
}

#[test]
fn the_demo_shows_hosts_on_their_own_and_steered_side_by_side() {
    let place = Place::new("");
    let refused = place.say(&["coordinate", "demo", "--controller", "remy"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("needs rules"), "{refused:?}");
    let said = place.say(&["coordinate", "demo", "--seconds", "8", "--json", "--out", "out"]);
    let Some(figures) = figures_of_demo(&place, &said) else { return };
    assert_eq!(figures["hosts"], serde_json::json!(["alpha", "beta", "gamma"]));
    for run in ["on_their_own", "steered"] {
        assert_eq!(figures[run]["hosts_mbit_s"].as_array().unwrap().len(), 3, "{figures}");
        assert!(figures[run]["utilisation"].as_f64().is_some_and(|part| part > 0.0 && part <= 1.01), "{figures}");
    }
    assert!(figures["leased_percent"].as_f64().unwrap() > 0.0, "the agents were directed nothing: {figures}");
    let kept: Value = serde_json::from_str(&fs::read_to_string(place.path("out/figures.json")).unwrap()).unwrap();
    assert_eq!(kept, figures);
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    assert!(page.contains("What the coordinator believes, steered"));
}

#[test]
fn the_demo_shows_a_policy_beside_the_rule_and_says_who_decided_each_period() {
    let place = Place::new("");
    // What is wrong is said wherever it runs.
    let refused = |parts: &[&str]| {
        let said = place.say(&["coordinate", "demo", "--policy", "cross.safetensors", "--out", "out"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(parts.iter().all(|part| said.stderr.contains(part)), "{said:?}; expected {parts:?}");
        assert!(!place.path("out").exists(), "nothing is half-written");
    };
    refused(&["cross.json: No such file"]);
    policy(&place, |description| description.replace("\"queue\",", "\"cross_next\","));
    refused(&["cross.json: purpose.features has \"cross_next\", which no coordinator of real hosts can know"]);
    policy(&place, |description| description.replace("      \"queue\",\n", ""));
    refused(&["the demo with cross.safetensors: its tensors are not for link \"bottleneck\" with 3 hosts: "]);

    let file = policy(&place, |description| description);
    let said = place.say(&[
        "coordinate",
        "demo",
        "--policy",
        &file,
        "--seconds",
        "8",
        "--seed",
        "3",
        "--json",
        "--out",
        "out",
    ]);
    let Some(figures) = figures_of_demo(&place, &said) else { return };
    assert_eq!((&figures["seed"], &figures["every_s"]), (&Value::from(3), &Value::from(0.1)));
    let by = &figures["by_policy"];
    assert_eq!(by["policy"], "cross.safetensors");
    for run in [&figures["on_their_own"], &figures["steered"], by] {
        assert_eq!(run["hosts_mbit_s"].as_array().unwrap().len(), 3, "{figures}");
        assert!(run["utilisation"].as_f64().is_some_and(|part| part > 0.0 && part <= 1.01), "{figures}");
    }
    let decisions = &by["decisions"];
    let periods = decisions["periods"].as_array().unwrap();
    let by_whom = |who: &str| periods.iter().filter(|period| period["decided_by"] == who).count() as u64;
    let counted = ["policy", "rule"].map(|who| (by_whom(who), decisions[format!("by_{who}")].as_u64()));
    assert!(counted.iter().all(|(found, said)| Some(*found) == *said), "{decisions}");
    assert_eq!(by_whom("policy") + by_whom("rule"), periods.len() as u64);
    // Each 100 ms of 8 s: on a busy machine fewer.
    assert!((20..=82).contains(&periods.len()), "{decisions}");
    assert!(by_whom("policy") > 0, "the monitor told all that the policy sees: {decisions}");
    for period in periods {
        assert_eq!(period["decided_by"] == "rule", period["rule_because"].is_string(), "{period}");
        // What it decides while the links are taken down is not the run's.
        assert!(period["at_s"].as_f64().is_some_and(|at| at < 8.0), "{period}");
    }
    let kept: Value = serde_json::from_str(&fs::read_to_string(place.path("out/figures.json")).unwrap()).unwrap();
    assert_eq!(kept, figures);
    let page = fs::read_to_string(place.path("out/report.html")).unwrap();
    for part in ["by the rule", "What the coordinator believes, by cross.safetensors", "Who decided"] {
        assert!(page.contains(part), "no {part}");
    }
}
