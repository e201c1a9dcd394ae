//! `emulate` and `compare` with the real binary on real packets; skipped where that needs
//! rights or devices that are not there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::machines::PREFIX;
use crate::common::{Place, Said, is_testbed_missing, names, said};

/// Ours, the kernel's and QUIC's over a bottleneck of 4 Mbit/s, four seconds.
const SMALL: &str = "\
[run]
seconds = 4
goodput_from_s = 1
[dumbbell]
pairs = 3
rate = \"4 Mbit/s\"
delay_ms = 5
queue = { ms = 50 }
[[flow]]
name = \"ours\"
controller = \"reno\"
[[flow]]
name = \"theirs\"
controller = \"kernel:reno\"
[[flow]]
name = \"quic\"
controller = \"quic:reno\"
";

/// What a run could leave behind: namespaces with a name, and devices.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    namespaces: Vec<String>,
    devices: Vec<String>,
}

impl Traces {
    fn now() -> Traces {
        let of = |folder: &str| if Path::new(folder).exists() { names(Path::new(folder)) } else { Vec::new() };
        let mut namespaces = of("/run/netns");
        // Those of tests that run beside this one come and go.
        namespaces.retain(|name| !name.starts_with(PREFIX));
        Traces { namespaces, devices: of("/sys/class/net") }
    }
}

/// Whether the process is there, which holds the namespaces without a name.
fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}/ns/net")).exists()
}

/// Until threads of the process have been in other namespaces than it for a second: then packets flow. Whether there can
/// be namespaces is found out before, in less.
fn wait_for_namespaces(pid: u32) {
    let began = Instant::now();
    let namespace = |path: &Path| std::fs::read_link(path.join("ns/net")).ok();
    let own = namespace(Path::new(&format!("/proc/{pid}")));
    let is_elsewhere = |task: std::fs::DirEntry| namespace(&task.path()).is_some_and(|of_task| Some(of_task) != own);
    let tasks = || std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut since = None;
    while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(1)) {
        assert!(began.elapsed() < Duration::from_secs(120), "it never began");
        since = tasks().any(is_elsewhere).then(|| since.unwrap_or_else(Instant::now));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn emulate(place: &Place, arguments: &[&str]) -> Said {
    place.say(&[&["emulate", "s.toml", "--json"], arguments].concat())
}

/// A run that ended well; on a machine that is too busy to carry the links, one that said so
/// after its figures.
fn emulated(place: &Place, arguments: &[&str]) -> Said {
    let said = emulate(place, arguments);
    let is_saturated = said.code == Some(2) && said.stderr.contains("could not carry");
    assert!(said.code == Some(0) || is_saturated, "{said:?}");
    said
}

/// Whether figures of this run may be held to anything.
fn is_carried(said: &Said) -> bool {
    if said.code != Some(0) {
        eprintln!("skipped: the machine was too busy to carry the links");
    }
    said.code == Some(0)
}

/// A figure of each flow.
fn each(json: &serde_json::Value, key: &str) -> Vec<f64> {
    let flows = json["flows"].as_array().unwrap();
    flows.iter().map(|flow| flow[key].as_f64().unwrap_or_else(|| panic!("no {key} in {flow}"))).collect()
}

fn controllers(json: &serde_json::Value) -> Vec<&str> {
    json["flows"].as_array().unwrap().iter().map(|flow| flow["controller"].as_str().unwrap()).collect()
}

#[test]
fn flows_of_ours_of_the_kernel_and_of_quic_share_an_emulated_link_and_leave_nothing() {
    if is_testbed_missing() {
        return;
    }
    let before = Traces::now();
    let place = Place::new(SMALL);
    let said = emulated(&place, &["--out", "out"]);
    let json = said.json();
    assert_eq!(controllers(&json), ["reno", "kernel:reno", "quic:reno"]);
    let goodput = each(&json, "goodput_mbit_s");
    let all: f64 = goodput.iter().sum();
    // 1448 of 1514 bytes on the wire are data; the link cannot carry more, and each had some.
    assert!(all < 4.0 && goodput.iter().all(|rate| *rate > 0.0), "{goodput:?}");
    // The bottleneck alone takes 5 ms; no packet is faster than the model.
    assert!(each(&json, "one_way_least_ms").iter().all(|least| *least >= 5.0), "{json}");
    assert_eq!(place.names("out"), ["report.html", "series.parquet", "summary.json"]);
    assert!(said.stderr.contains("emulator: "), "{said:?}");
    assert_eq!(Traces::now(), before);
}

/// Marks in place of drops reach both senders, and traffic of the model alone takes its share.
#[test]
fn marks_and_cross_traffic_reach_real_flows() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(
        "[run]\nseconds = 5\ngoodput_from_s = 1\n[packets]\necn = true\n[[link]]\nfrom = \"a\"\nto = \"b\"\n\
         rate = \"8 Mbit/s\"\ndelay_ms = 10\nqueue = { kind = \"codel\", packets = 1000, ecn = true }\n\
         [[flow]]\nname = \"ours\"\ncontroller = \"cubic\"\nfrom = \"a\"\nto = \"b\"\n\
         [[flow]]\nname = \"theirs\"\ncontroller = \"kernel:cubic\"\nfrom = \"a\"\nto = \"b\"\n\
         [[cross_traffic]]\nfrom = \"a\"\nto = \"b\"\nrate = \"2 Mbit/s\"\n",
    );
    let json = emulated(&place, &[]).json();
    let link = |key: &str| json["links"][0][key].as_u64().unwrap();
    assert!(link("marked") > 0, "{json}");
    let (sent, arrived) = (&json["cross_traffic"][0]["packets_sent"], &json["cross_traffic"][0]["packets_arrived"]);
    assert!(arrived.as_u64().unwrap() > 0 && arrived.as_u64() <= sent.as_u64(), "{json}");
    assert!(each(&json, "goodput_mbit_s").iter().all(|goodput| *goodput > 0.0));
}

/// QUIC says of each packet that it may be marked; the model listens where the scenario does.
#[test]
fn packets_of_quic_are_marked_only_where_the_scenario_has_marks() {
    if is_testbed_missing() {
        return;
    }
    let marked = |ecn: bool| {
        let place = Place::new(&format!(
            "[run]\nseconds = 3\n[packets]\necn = {ecn}\n[[link]]\nfrom = \"a\"\nto = \"b\"\nrate = \"8 Mbit/s\"\n\
             delay_ms = 10\nqueue = {{ kind = \"codel\", packets = 1000, ecn = true }}\n\
             [[flow]]\ncontroller = \"quic:cubic\"\nfrom = \"a\"\nto = \"b\"\n"
        ));
        let json = emulated(&place, &[]).json();
        assert!(each(&json, "goodput_mbit_s")[0] > 0.0);
        json["links"][0]["marked"].as_u64().unwrap()
    };
    assert!(marked(true) > 0);
    assert_eq!(marked(false), 0);
}

/// Steered, both stay within their shares and the queue is as good as empty; Cubic alone
/// would keep it near its 200 ms.
#[test]
fn a_coordinator_steers_real_flows_over_udp_and_quic() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(
        "[run]\nseconds = 6\ngoodput_from_s = 2\ndelays_from_s = 2\n[packets]\nheader_bytes = 52\n[dumbbell]\n\
         pairs = 3\nrate = \"8 Mbit/s\"\ndelay_ms = 20\nqueue = { ms = 200 }\n\
         [[flow]]\ncontroller = \"c3-cubic\"\nsteered = true\nhandshake = true\n\
         [[flow]]\ncontroller = \"quic:c3-cubic\"\nsteered = true\n\
         [steering]\nlink = \"bottleneck\"\nevery_ms = 100\n\
         [[cross_traffic]]\nfrom = \"s2\"\nto = \"r2\"\nrate = \"2 Mbit/s\"\n",
    );
    let said = emulated(&place, &[]);
    let json = said.json();
    assert_eq!(controllers(&json), ["c3-cubic", "quic:c3-cubic"]);
    if !is_carried(&said) {
        return;
    }
    // Cross traffic leaves 6 of 8 Mbit/s for two, headers included.
    let goodput = each(&json, "goodput_mbit_s");
    assert!(goodput.iter().all(|rate| (1.5..3.2).contains(rate)), "{goodput:?}");
    let delays = each(&json, "one_way_p50_ms");
    assert!(delays.iter().all(|delay| *delay < 100.0), "{delays:?}");
}

/// A policy that was trained in simulations alone, on real packets: `C3-Single`, with QUIC in the simulated sender's place.
/// Its goodput is to be within 3 % of the simulation's, a range that was set before it was seen.
#[test]
fn a_trained_policy_steers_quic_as_it_steers_a_simulation() {
    if is_testbed_missing() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("experiments/c3-scenario-1/scenario.toml")).unwrap();
    let policy = root.join("policies/c3-scenario-1/seed-1/policy.safetensors");
    let text = text.replace("\"cubic\"", "\"quic:cubic\"");
    let place = Place::new(&text.replace("every_ms = 100", &format!("policy = {policy:?}")));
    // The ends share their processors with other tests: one that had to wait for its turn sent less, and says nothing of
    // the policy. A policy that steers otherwise does so each time.
    let mut lines = Vec::new();
    for _ in 0..3 {
        let said = place.say(&["compare", "s.toml", "--json"]);
        if !is_carried(&said) {
            return;
        }
        let json = said.json();
        let is_goodput = |line: &&serde_json::Value| line["metric"] == "goodput, Mbit/s";
        let line = json["lines"].as_array().unwrap().iter().find(is_goodput).unwrap();
        assert_eq!(line["controller"], "quic:cubic");
        let [simulated, emulated] = ["simulated", "emulated"].map(|kind| line[kind][0].as_f64().unwrap());
        if (emulated / simulated - 1.0).abs() <= 0.03 {
            return;
        }
        lines.push(line.to_string());
    }
    panic!("never within 3 %: {lines:?}");
}

/// Blocks without a pause, and amounts with pauses on one connection: neither stalls.
#[test]
fn blocks_and_pauses_keep_real_flows_going() {
    if is_testbed_missing() {
        return;
    }
    for controller in ["quic:cubic", "kernel:cubic"] {
        let flow = |workload| format!("[[flow]]\ncontroller = \"{controller}\"\nworkload = {workload}\n");
        let place = Place::new(&format!(
            "[run]\nseconds = 3\n[dumbbell]\npairs = 2\nrate = \"10 Mbit/s\"\ndelay_ms = 5\nqueue = {{ ms = 20 }}\n{}{}",
            flow("{ block_bytes = 15000 }"),
            flow("{ on_mean_bytes = 20000, off_mean_s = 0.05 }"),
        ));
        let said = emulated(&place, &[]);
        let goodput = each(&said.json(), "goodput_mbit_s");
        // Four blocks alone would be 0.16 Mbit/s over three seconds.
        assert!(!is_carried(&said) || goodput.iter().all(|rate| *rate > 0.3), "{controller}: {goodput:?}");
    }
}

#[test]
fn short_transfers_over_quic_end_and_say_how_long_they_took() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(
        "[run]\nseconds = 4\n[dumbbell]\nrate = \"20 Mbit/s\"\ndelay_ms = 20\n[[flow]]\n\
         controller = \"quic:cubic\"\nworkload = { once_bytes = 20000, every_s = 0.5 }\n",
    );
    let said = emulated(&place, &[]);
    if !is_carried(&said) {
        return;
    }
    let json = said.json();
    let flow = &json["flows"][0];
    assert!(flow["completed"].as_u64().unwrap() >= 4, "{flow}");
    // A round trip of handshake, one and a half for two flights; then some for the machine.
    assert!(flow["completion_p50_s"].as_f64().unwrap() >= 0.1, "{flow}");
}

#[test]
fn a_kernel_without_the_congestion_control_is_said_with_what_it_offers() {
    if is_testbed_missing() {
        return;
    }
    let before = Traces::now();
    // We have a westwood of our own, and most kernels have none loaded.
    let offered = anabranch_testbed::kernel_tcp::available().unwrap();
    let Some(lacking) = ["westwood", "vegas", "bic"].iter().find(|name| !offered.iter().any(|have| have == *name))
    else {
        eprintln!("skipped: the kernel offers all that we know");
        return;
    };
    let place = Place::new(&SMALL.replace("kernel:reno", &format!("kernel:{lacking}")));
    let said = emulate(&place, &[]);
    // The kernel may load it on demand; then it runs.
    if said.code != Some(0) {
        said.refuses(&format!("flow \"theirs\": the kernel has no congestion control \"{lacking}\"; it offers"));
    }
    assert_eq!(Traces::now(), before);
}

#[test]
fn what_real_packets_cannot_do_is_refused_before_anything_is_made() {
    for (from, to, expected) in [
        ("[run]", "[packets]\ndata_bytes = 65500\n[run]", "packets.data_bytes = 65500: an IPv4 packet has 65535 bytes"),
        ("\"kernel:reno\"", "\"kernel:rino\"", "did you mean \"reno\"?"),
        ("\"quic:reno\"", "\"quic:rino\"", "did you mean \"reno\"?"),
        ("[run]", "[packets]\ndata_bytes = 1000\n[run]", "QUIC needs longer packets; expected 1176 at least"),
        (
            "\"kernel:reno\"",
            "\"kernel:reno\"\nsteered = true\n[steering]\nlink = \"bottleneck\"\nevery_ms = 100\nactuator = \"fixed\"",
            "nobody can fix the window of the kernel's TCP from outside; expected steering.actuator = \"maximum\"",
        ),
    ] {
        let place = Place::new(&SMALL.replacen(from, to, 1));
        place.say(&["emulate", "s.toml", "--out", "out"]).refuses(expected);
        assert!(!place.path("out").exists(), "a folder for nothing");
    }
    let overlay = Place::new(crate::common::SMALL);
    overlay.say(&["emulate", "s.toml"]).refuses("this is an overlay; expected flows over links");
    overlay.say(&["compare", "s.toml"]).refuses("this is an overlay; expected flows over links");
}

/// Without room for its connections a run would measure nothing, and say 0 Mbit/s.
#[test]
fn kernel_flows_that_find_no_room_for_their_connections_say_how_to_get_some() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(
        "[run]\nseconds = 3\n[dumbbell]\nrate = \"100 Mbit/s\"\ndelay_ms = 5\n[[flow]]\nname = \"k{i}\"\n\
         controller = \"kernel:reno\"\ncount = 40\n",
    );
    // Room for the listeners, and for half of the connections.
    let mut command = Command::new("sh");
    let limited = "ulimit -n 100; exec \"$0\" emulate s.toml";
    command.args(["-c", limited, env!("CARGO_BIN_EXE_anabranch")]).current_dir(place.path(""));
    let said = said(command.output().unwrap());
    said.refuses("expected a higher limit (`ulimit -n`), or fewer flows");
}

/// As of a simulation: no figure can come of it.
#[test]
fn a_run_that_delivers_nothing_is_refused() {
    if is_testbed_missing() {
        return;
    }
    let began = Instant::now();
    let place = Place::new(
        "[run]\nseconds = 2\n[dumbbell]\nrate = \"10 Mbit/s\"\ndelay_ms = 10\nloss = 0.999999\n[[flow]]\n\
         controller = \"kernel:reno\"\n",
    );
    let said = emulate(&place, &[]);
    // A machine that is too busy to carry the links says that first.
    if is_carried(&said) || !said.stderr.contains("could not carry") {
        said.refuses("in 2 s no flow has delivered anything");
    }
    // Its handshake would go on for half a minute.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[test]
fn what_a_controller_cannot_judge_is_invalid_on_real_packets_too() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(
        "[run]\nseconds = 3\n[packets]\nrecovery = \"rfc6582\"\n[dumbbell]\npairs = 2\nrate = \"4 Mbit/s\"\n\
         delay_ms = 10\nqueue = { ms = 30 }\n[[flow]]\nname = \"ours\"\ncontroller = \"allegro\"\n\
         [[flow]]\nname = \"quic\"\ncontroller = \"quic:allegro\"\n",
    );
    let json = emulated(&place, &[]).json();
    let warnings: Vec<&str> = json["warnings"].as_array().unwrap().iter().map(|why| why.as_str().unwrap()).collect();
    let blind = warnings.iter().filter(|why| why.contains("judges what it sends by what became of each packet"));
    assert_eq!(blind.map(|why| why.split(':').next().unwrap()).collect::<Vec<_>>(), ["ours"], "{warnings:?}");
}

/// What senders find of a link that stood still is not the link's.
#[cfg(unix)]
#[test]
fn an_emulator_that_was_stopped_is_invalid() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(&SMALL.replace("seconds = 4", "seconds = 6"));
    let mut command: Command = place.command(&["emulate", "s.toml", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    wait_for_namespaces(child.id());
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::CONT] {
        rustix::process::kill_process(pid, signal).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
    let said = said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.json()["warnings"].to_string().contains("the emulator stood still"), "{said:?}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_comparison_keeps_the_repeats_that_are_whole() {
    if is_testbed_missing() {
        return;
    }
    let short = SMALL.replace("seconds = 4", "seconds = 1").replace("goodput_from_s = 1", "goodput_from_s = 0");
    let place = Place::new(&short);
    let mut command: Command = place.command(&["compare", "s.toml", "--repeat", "500", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_namespaces(child.id());
    std::thread::sleep(Duration::from_secs(8));
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let said = said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let json = said.json();
    let whole = json["repeats"].as_u64().unwrap();
    assert!(json["interrupted"] == true && whole > 0, "{json}");
    assert!(said.stderr.contains(&format!("interrupted: these are {whole} of 500 repeats")), "{said:?}");
    assert_eq!(json["lines"][0]["emulated"].as_array().unwrap().len() as u64, whole, "{json}");
}

#[test]
fn compare_shows_both_side_by_side() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new(SMALL);
    let said = place.say(&["compare", "s.toml", "--json"]);
    // A machine that is too busy to carry the links says so, after the figures.
    assert!(said.code == Some(0) || said.stderr.contains("could not carry"), "{said:?}");
    let json = said.json();
    let goodput = json["lines"].as_array().unwrap().iter().find(|line| line["metric"] == "goodput, Mbit/s").unwrap();
    assert_eq!(goodput["simulated"].as_array().unwrap().len(), 1);
    assert!(goodput["emulated"][0].as_f64().unwrap() > 0.0);
}

#[cfg(unix)]
#[test]
fn an_interrupted_or_killed_run_leaves_nothing() {
    if is_testbed_missing() {
        return;
    }
    let before = Traces::now();
    for (signal, code) in [(rustix::process::Signal::INT, Some(130)), (rustix::process::Signal::KILL, None)] {
        let place = Place::new(&SMALL.replace("seconds = 4", "seconds = 600"));
        let mut command: Command = place.command(&["emulate", "s.toml", "--out", "out"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        wait_for_namespaces(pid);
        std::thread::sleep(Duration::from_millis(300));
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
        let said = said(child.wait_with_output().unwrap());
        assert_eq!(said.code, code, "{said:?}");
        assert!(!is_alive(pid));
        assert_eq!(Traces::now(), before, "after {signal:?}");
        // Ctrl-C keeps what was measured; neither leaves a file that is half written.
        let kept: &[&str] = if code.is_some() { &["report.html", "series.parquet", "summary.json"] } else { &[] };
        assert_eq!(place.names("out"), kept, "after {signal:?}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_comparison_with_the_kernel_keeps_what_was_measured() {
    if is_testbed_missing() {
        return;
    }
    let place = Place::new("");
    let mut command: Command =
        place.command(&["validate", "--kernel", "--quick", "--settle", "8", "--json", "--out", "out"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    // Ours are simulated before; the first of the kernel's runs, of 15 s each, end.
    wait_for_namespaces(pid);
    std::thread::sleep(Duration::from_secs(25));
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), rustix::process::Signal::INT)
        .unwrap();
    let said = said(child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(130), "{said:?}");
    let json = said.json();
    let comparisons = json["comparisons"].as_array().unwrap();
    if comparisons.is_empty() {
        // A machine that is too busy has nothing to keep, and says so.
        assert!(json["disturbed"].as_u64().unwrap() > 0, "{json}");
        return;
    }
    assert_eq!(place.names("out"), ["kernel-windows.html"]);
    let first = &comparisons[0];
    assert!(first["kernel_mbit_s"][0].as_f64().unwrap() > 0.5, "{first}");
    assert_eq!(first["ours_mbit_s"].as_array().unwrap().len(), 20, "{first}");
}
