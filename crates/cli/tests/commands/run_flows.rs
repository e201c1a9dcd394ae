//! `anabranch run` and `anabranch sweep` on flows over links, as a user sees them.

use std::path::Path;

use crate::common::{Place, gives_what_its_seed_says, names};

/// Two flows, one of which ends.
pub const SMALL: &str = "\
[run]
seconds = 12
goodput_from_s = 2
[dumbbell]
rate = \"5 Mbit/s\"
delay_ms = 10
queue = { ms = 60 }
[[flow]]
name = \"bulk\"
controller = \"reno\"
start_within_s = 1
[[flow]]
name = \"page\"
controller = \"reno\"
start_s = 3
workload = { once_bytes = 200000 }
";

const FILES: [&str; 3] = ["report.html", "series.parquet", "summary.json"];

#[test]
fn json_is_one_object_with_what_was_promised() {
    let said = Place::new(SMALL).say(&["run", "s.toml", "--json", "--seed", "7"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let goodput = json["metrics"]["goodput_mbit_s"].as_f64().unwrap();
    assert!((4.0..5.0).contains(&goodput), "{goodput}");
    let utilisation = json["metrics"]["busiest_link_utilisation"].as_f64().unwrap();
    assert!((0.9..=1.001).contains(&utilisation), "{utilisation}");
    let [bulk, page] = &json["flows"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((&bulk["name"], &bulk["controller"]), (&"bulk".into(), &"reno".into()));
    // 10 ms of propagation, and a queue that holds 60 ms.
    let delays = ["one_way_least_ms", "one_way_p50_ms", "one_way_p99_ms"].map(|key| bulk[key].as_f64().unwrap());
    assert!(delays[0] >= 10.0 && delays[0] <= delays[1] && delays[1] <= delays[2] && delays[2] < 80.0, "{delays:?}");
    assert_eq!((&page["completed"], &bulk["completed"]), (&1.into(), &0.into()));
    // 200 kB at 5 Mbit/s take 0.32 s alone.
    assert!((0.3..9.0).contains(&page["completion_mean_s"].as_f64().unwrap()), "{page}");
    assert_eq!(json["links"][0]["name"], "bottleneck");
    assert!(json["packet_hops"].as_u64().unwrap() > 10_000);
    assert!(json["wall_s"].as_f64().unwrap() > 0.0);
    assert_eq!((&json["seed"], &json["scenario"]), (&7.into(), &"s.toml".into()));
    assert_eq!(json["interrupted"], false);
    assert!(said.stderr.is_empty(), "a bar belongs on a terminal: {said:?}");
}

#[test]
fn a_run_says_what_it_measured_and_writes_what_it_says() {
    let place = Place::new(SMALL);
    let said = place.say(&["run", "s.toml", "--out", "new/folder"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in ["controller", "p95, ms", "completed", "page", "Jain's index", "busiest links", "wall clock", "seed"] {
        assert!(said.stdout.contains(line), "{line} in {said:?}");
    }
    assert_eq!(place.names("new/folder"), FILES);
    let page = std::fs::read_to_string(place.path("new/folder/report.html")).unwrap();
    assert!(page.contains("Goodput") && page.contains("[[flow]]"));
    assert_eq!(&std::fs::read(place.path("new/folder/series.parquet")).unwrap()[..4], b"PAR1");
    // Whether a series is recorded changes nothing.
    let without = place.say(&["run", "s.toml", "--json"]).json();
    let with: serde_json::Value =
        serde_json::from_slice(&std::fs::read(place.path("new/folder/summary.json")).unwrap()).unwrap();
    for key in ["metrics", "flows"] {
        assert_eq!(with[key], without[key], "{key}");
    }
}

#[test]
fn the_same_scenario_and_seed_give_the_same_bytes() {
    gives_what_its_seed_says(SMALL);
}

#[test]
fn packets_and_events_are_written_on_request_and_change_nothing() {
    let place = Place::new(SMALL);
    let said = place.say(&["run", "s.toml", "--out", "out", "--qlog", "--pcap", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let written = place.names("out");
    for file in ["client.pcap", "server.pcap", "0-bulk-client.sqlog", "1-page-server.sqlog"] {
        assert!(written.iter().any(|name| name == file), "{file} in {written:?}");
    }
    let magic = std::fs::read(place.path("out/client.pcap")).unwrap();
    assert!([0xa1b2_3c4du32.to_le_bytes(), 0xa1b2_3c4du32.to_be_bytes()].contains(&magic[..4].try_into().unwrap()));
    assert_eq!(said.json()["flows"], place.say(&["run", "s.toml", "--json"]).json()["flows"]);
    let nowhere = place.say(&["run", "s.toml", "--qlog"]);
    assert!(nowhere.code == Some(2) && nowhere.stderr.contains("--out"), "{nowhere:?}");
    let overlay = Place::new(crate::common::SMALL).say(&["run", "s.toml", "--out", "out", "--pcap"]);
    assert!(overlay.code == Some(2) && overlay.stderr.contains("overlay"), "{overlay:?}");
}

#[test]
fn what_is_wrong_is_refused_before_anything_runs() {
    for (from, to, expected) in [
        (
            "rate = \"5 Mbit/s\"",
            "rate = \"5 Mbps\"",
            "s.toml:5:1: dumbbell.rate = \"5 Mbps\": expected a number and a unit",
        ),
        ("start_s = 3", "from = \"s9\"\nto = \"r0\"", "s.toml:15:1: flow.from = \"s9\": there is no node \"s9\""),
        ("name = \"page\"", "name = \"bulk\"", "s.toml:13:1: flow.name = \"bulk\": there is a flow \"bulk\" already"),
        (
            "\"reno\"\nstart_s",
            "\"fixed\"\nparameters.windw = 3\nstart_s",
            "flow.parameters.windw = 3: unknown field `windw`",
        ),
        (
            "[dumbbell]",
            "[overlay]\n[dumbbell]",
            "a scenario has an overlay, flows over links, a stream or an onion overlay, not several",
        ),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let place = Place::new(&SMALL.replacen(from, to, 1));
        place.say(&["run", "s.toml", "--out", "out"]).refuses(expected);
        assert!(!place.path("out").exists());
    }
    let place = Place::new(SMALL);
    place.say(&["run", "s.toml", "--set", "flow.all.controller=ren"]).refuses("did you mean \"reno\"?");
}

#[test]
fn a_run_that_delivers_nothing_fails_and_one_flow_that_never_begins_is_said() {
    let place = Place::new(SMALL);
    for (key, value) in [("run.seconds", "0.001"), ("flow.all.start_s", "13")] {
        let set = format!("{key}={value}");
        let said = place.say(&["run", "s.toml", "--set", "run.goodput_from_s=0", "--set", &set]);
        said.refuses("no flow has delivered anything");
    }
    let said = place.say(&["run", "s.toml", "--set", "flow.1.start_s=13", "--json"]).json();
    assert_eq!(
        said["notes"],
        serde_json::json!(["page would begin at 13 s, and the run ends at 12 s: it sends nothing"])
    );
}

/// They lost 99.7 % of what they sent.
#[test]
fn controllers_that_judge_each_packet_are_invalid_where_acks_tell_of_none() {
    let place = Place::new(SMALL);
    for (controller, recovery, is_invalid) in
        [("vivace", "rfc6582", true), ("vivace", "rfc6675", false), ("reno", "rfc6582", false)]
    {
        let controller = format!("flow.0.controller={controller}");
        let recovery = format!("packets.recovery={recovery}");
        let json = place.say(&["run", "s.toml", "--set", &controller, "--set", &recovery, "--json"]).json();
        let warnings = json["warnings"].to_string();
        assert_eq!(warnings.contains("bulk: vivace judges what it sends by what became of each packet"), is_invalid);
    }
}

/// A reader that has stopped reading, for one.
#[cfg(unix)]
#[test]
fn a_second_interrupt_ends_a_run_wherever_it_is() {
    use std::io::Read;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};
    let flows = "[dumbbell]\nrate = \"5 Mbit/s\"\ndelay_ms = 10\n[[flow]]\ncontroller = \"reno\"\ncount = 400\n";
    let place = Place::new(&format!("[run]\nseconds = 2\n{flows}"));
    let mut child =
        place.command(&["run", "s.toml", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    let interrupt = || assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    // A pipe holds less than its object: once that has begun to come, and is read no further, it waits.
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let begun = Instant::now();
    interrupt();
    // One that comes soon after the first counts as that one again, and it may be late with the first.
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(100));
        interrupt();
    }
    assert!(begun.elapsed() >= Duration::from_millis(500), "a shell and whoever waits may both pass on the first");
    let ended = child.try_wait().unwrap();
    let _ = child.kill();
    assert_eq!(ended.and_then(|status| status.code()), Some(130));
}

/// A parameter and a network that are allowed and that a controller does not survive: what
/// it does then ends the run, and does not let it wait for ever.
#[test]
fn a_controller_that_stops_its_flow_is_named_and_the_run_ends() {
    // A kbit/s over a round trip of 10 us is a window of no byte.
    let scenario = "[dumbbell]\nrate = \"100 Mbit/s\"\ndelay_ms = 0.005\n[[flow]]\nname = \"strange\"\n\
                    controller = \"c3-cubic\"\nparameters.granted_mbit_s = 0.001\n";
    let expected = "its controller c3-cubic has stopped it for good: its window is 0 and it waits for nothing";
    let place = Place::new(scenario);
    for out in [&[][..], &["--out", "out"]] {
        let said = place.say(&[&["run", "s.toml", "--json"][..], out].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("flow \"strange\": at ") && said.stderr.contains(expected), "{said:?}");
        assert!(said.stdout.is_empty(), "{said:?}");
    }
    assert!(place.names("out").is_empty(), "nothing half-written");
    let sweep = place.say(&["sweep", "s.toml", "--json", "--out", "sweep"]);
    assert!(sweep.code == Some(2) && sweep.stderr.contains(expected), "{sweep:?}");
}

/// What no run could survive is refused before it.
#[test]
fn parameters_that_would_stop_a_flow_are_refused_at_their_line() {
    for (controller, expected) in [
        ("\"fixed\"\nparameters.window = 0", "s.toml:11:12: flow.parameters.window = 0: window = 0 is not between 1"),
        ("\"fixed\"\nparameters.window = nan", "flow.parameters.window = nan: window = NaN is not between 1"),
        ("\"c3-cubic\"\nparameters.granted_mbit_s = 0", "granted_mbit_s = 0 is not between 0.001"),
        ("\"remy\"", "s.toml:10:1: flow.controller = \"remy\": missing rules: the table that it runs"),
        ("\"remy\"\nparameters.table_file = \"wrong.dna\"", "wrong.dna: expected a Remy rule table"),
        (
            "\"remy\"\nparameters.rules = [{ from = [0, 0, 0], to = [9, 9, 9], multiple = nan, increment = 0, \
             intersend_ms = 0 }]",
            "rules[0]: multiple = nan is not a number between -1000000 and 1000000",
        ),
        (
            "\"remy\"\nparameters.rules = [{ from = [1, 0, 0], to = [9, 9, 9], multiple = 0, increment = 0, \
             intersend_ms = 0 }]",
            "no rule holds the beginning, where all signals are 0",
        ),
    ] {
        let place = Place::new(&SMALL.replacen("\"reno\"", controller, 1));
        std::fs::write(place.path("wrong.dna"), b"no table").unwrap();
        place.say(&["run", "s.toml", "--out", "out"]).refuses(expected);
        assert!(!place.path("out").exists());
    }
}

/// A table whose every rule says a window of 0 and the longest gap is slow, not stuck: one
/// packet may always leave to an empty network.
#[test]
fn a_table_of_rules_that_says_nothing_but_0_still_sends() {
    let remy = "\"remy\"\nparameters.rules = [{ from = [0, 0, 0], to = [1e300, 1e300, 1e300], multiple = 0, \
                increment = 0, intersend_ms = 1e6 }]";
    let said = Place::new(&SMALL.replacen("\"reno\"", remy, 1)).say(&["run", "s.toml", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!((1..10).contains(&said.json()["flows"][0]["packets_sent"].as_u64().unwrap()), "{said:?}");
}

#[cfg(unix)]
#[test]
fn what_is_interrupted_is_written_and_said() {
    let place = Place::new(SMALL);
    let long = ["run", "s.toml", "--json", "--out", "out", "--set", "run.seconds=1000000"];
    let said = place.interrupt(&long, || place.path("out").exists(), "-INT");
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("interrupted: these are the first "), "{said:?}");
    let json = said.json();
    assert_eq!(json["interrupted"], true);
    assert!((1.0..1e6).contains(&json["metrics"]["simulated_s"].as_f64().unwrap()), "{json}");
    assert_eq!(place.names("out"), FILES);
}

#[cfg(unix)]
#[test]
fn what_is_interrupted_does_not_replace_a_whole_run() {
    let place = Place::new(SMALL);
    let run = ["run", "s.toml", "--json", "--qlog", "--out", "out"];
    assert_eq!(place.say(&run).code, Some(0));
    let names = place.names("out");
    let whole: Vec<Vec<u8>> = names.iter().map(|name| std::fs::read(place.path("out").join(name)).unwrap()).collect();
    let said = place.interrupt(&[&run[..], &["--set", "run.seconds=1000000"]].concat(), || true, "-INT");
    assert_eq!((said.code, &said.json()["interrupted"]), (Some(130), &true.into()), "{said:?}");
    assert!(said.stderr.contains("out holds a whole run, which stays"), "{said:?}");
    for (name, before) in names.iter().zip(whole) {
        assert!(std::fs::read(place.path("out").join(name)).unwrap() == before, "{name} has changed");
    }
    assert_eq!(place.names("out/interrupted"), FILES);
    let part = place.path("out/interrupted/summary.json");
    let json: serde_json::Value = serde_json::from_slice(&std::fs::read(part).unwrap()).unwrap();
    assert_eq!(json["interrupted"], true);
}

#[test]
fn a_sweep_compares_controllers() {
    let place = Place::new(SMALL);
    let grid =
        ["sweep", "s.toml", "--grid", "flow.0.controller=reno,min-delay", "--seeds", "2", "--out", "out", "--json"];
    let said = place.say(&grid);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let delay = |index: usize| json["combinations"][index]["metrics"]["one_way_p50_ms"]["mean"].as_f64().unwrap();
    assert!(delay(0) > delay(1), "a window of one packet fills no queue: {json}");
    assert_eq!(place.names("out"), ["points", "report.html", "results.csv", "results.parquet"]);
    let again = place.say(&grid);
    assert!(again.stderr.contains("4 of 4 points were there already"), "{again:?}");
}

#[test]
fn the_goodput_of_each_receiver_is_reported() {
    let star = examples().0.join("star.toml");
    let said = Place::new("").say(&["run", star.to_str().unwrap(), "--set", "run.seconds=6"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let rows: Vec<&str> = said.stdout.lines().skip_while(|line| !line.contains("last link")).take(6).collect();
    assert!(rows.len() == 6 && rows[5].contains("hub-h5"), "{said:?}");
}

/// The folder of examples, and the page that explains them.
fn examples() -> (std::path::PathBuf, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/flow-scenarios.md")).unwrap();
    (root.join("scenarios/flows"), page)
}

#[test]
fn every_example_runs_and_stands_in_the_documentation() {
    let (folder, page) = examples();
    let files: Vec<String> = names(&folder).into_iter().filter(|name| name.ends_with(".toml")).collect();
    assert!(files.len() >= 5, "{files:?}");
    for name in files {
        let path = folder.join(&name);
        let short = ["--set", "run.seconds=6", "--set", "run.goodput_from_s=0", "--json"];
        let said = Place::new("").say(&[&["run", path.to_str().unwrap()][..], &short].concat());
        assert_eq!(said.code, Some(0), "{name}: {said:?}");
        for flow in said.json()["flows"].as_array().unwrap() {
            assert!(flow["goodput_mbit_s"].as_f64().unwrap() > 0.01, "{name}: {flow}");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(&text), "docs/flow-scenarios.md has another text of scenarios/flows/{name}");
        assert!(page.contains(&format!("anabranch run scenarios/flows/{name}")), "{name}");
    }
}
