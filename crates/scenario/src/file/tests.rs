//! What is read comes back, and what is wrong is refused at its place.

use proptest::prelude::*;

use anabranch_control::units::Rate;

use super::*;
use crate::overlay::LimitKind;

const EXAMPLE: &str = r#"[run]
seconds = 2000
seed = 1
[overlay]
peers = 20
relays = 3
limit = "400000 B/s"
limit_model = "window"          # window | bucket | queue
packet_bytes = 1500
ack_bytes = 40
controller = "q-learning"
[overlay.delay]
model = "plane"                 # plane | matrix | constant
span_ms = 100                   # delay across one side of the unit square
access_ms = 5
jitter = 0.10
"#;

const FULL: &str = r#"
[run]
seconds = 12
seed = 9223372036854775807
watch = 3
[overlay]
peers = 4
relays = 1
known_peers = 2
limit = "2.5 Mbit/s"
limit_model = "bucket"
bucket_bytes = 3000
packet_bytes = 1000
ack_bytes = 50
controller = "q-learning"
pacing = "paced"
offered = "7 bit/s"
loss = 1e-7
parameters = { epsilon = 0.02, exploration = "softmax" }
delay = { model = "matrix", matrix_ms = [[0, 1, 2, 3], [4, 0, 5, 6.25], [7, 8, 0, 9], [1, 2, 0.001, 0]], jitter = 0 }
rtt = { gain = 0.15, deviations = 5 }
join.every_s = 0.1
[[overlay.limit_change]]
at_s = 0.3
peers = "0-1, 3"
limit = "200000 B/s"
[[overlay.misbehave]]
peers = [2]
drop = 0.5
delay_ms = 20.5
forge = true
"#;

fn set(changes: &[&str]) -> Vec<Override> {
    changes.iter().map(|change| Override::set(change).unwrap()).collect()
}

fn read_example(changes: &[&str]) -> Result<Scenario, ScenarioError> {
    parse(EXAMPLE, "s.toml", &set(changes))
}

/// The message for the example with its line `from` replaced by `to`.
fn refusal(from: &str, to: &str) -> String {
    assert!(EXAMPLE.contains(from), "{from}");
    parse(&EXAMPLE.replacen(from, to, 1), "s.toml", &[]).unwrap_err().to_string()
}

#[test]
fn the_example_is_the_standard_scenario() {
    let read = parse(EXAMPLE, "s.toml", &[]).unwrap();
    assert_eq!(format!("{read:?}"), format!("{:?}", Scenario::standard()));
    let least = "[overlay]\npeers = 20\nrelays = 3\ncontroller = \"q-learning\"";
    assert_eq!(format!("{:?}", parse(least, "s.toml", &[]).unwrap()), format!("{:?}", Scenario::standard()));
}

#[test]
fn what_is_written_reads_as_the_same_scenario() {
    for text in [EXAMPLE, FULL] {
        let scenario = parse(text, "s.toml", &[]).unwrap();
        let written = to_toml(&scenario);
        let again = parse(&written, "written.toml", &[]).unwrap_or_else(|error| panic!("{error}\n{written}"));
        assert_eq!(format!("{again:?}"), format!("{scenario:?}"), "{written}");
    }
}

#[test]
fn every_key_reaches_the_scenario() {
    let scenario = parse(FULL, "s.toml", &[]).unwrap();
    let standard = Scenario::standard();
    let (ours, theirs) = (format!("{scenario:#?}"), format!("{standard:#?}"));
    let overlay = &scenario.overlay;
    assert_eq!(overlay.limit_changes[0].peers, [0, 1, 3]);
    assert_eq!(overlay.offered, Some(Rate::from_bits_per_sec(7)));
    assert_eq!(overlay.watch, Some(3));
    for field in ["seconds", "seed", "peers", "relays", "known_peers", "jitter", "loss", "gain", "deviations"] {
        let line =
            |text: &str| text.lines().find(|line| line.trim().starts_with(&format!("{field}:"))).unwrap().to_owned();
        assert_ne!(line(&ours), line(&theirs));
    }
}

#[test]
fn the_example_of_the_documentation_reads() {
    let documented: String = include_str!("mod.rs")
        .lines()
        .skip_while(|line| *line != "//! ```toml")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| format!("{}\n", line.strip_prefix("//!").unwrap()))
        .collect();
    assert!(documented.contains("[[overlay.misbehave]]"));
    parse(&documented, "mod.rs", &[]).unwrap();
}

#[test]
fn each_mistake_is_named_with_its_line_and_its_remedy() {
    let peers = "peers = 20";
    for (from, to, expected) in [
        ("seconds = 2000", "seconds = 0", "s.toml:2:1: run.seconds = 0: expected a whole number from 1"),
        ("seed = 1", "seed = -1", "s.toml:3:1: run.seed = -1: expected a whole number"),
        ("seed = 1", "sed = 1", "s.toml:3:1: run.sed = 1: unknown key; did you mean \"seed\"?"),
        ("seed = 1", "seed = 1\nwatch = 20", "s.toml:4:1: run.watch = 20: expected a whole number from 0 to 19"),
        (
            "seed = 1",
            "seed = 18446744073709551616",
            "s.toml:3:1: run.seed = 18446744073709551616: expected a whole number",
        ),
        (peers, "peers = 1", "s.toml:5:1: overlay.peers = 1: expected a whole number from 2 to 1000000"),
        (peers, "peers = 1000001", "s.toml:5:1: overlay.peers = 1000001"),
        (peers, "peers = \"20\"", "s.toml:5:1: overlay.peers = \"20\": expected a whole number"),
        (peers, "peers = 20.0", "overlay.peers = 20.0: expected a whole number"),
        (peers, "", "s.toml:4:2: overlay.peers: missing; expected a whole number from 2 to 1000000"),
        (peers, "peers = 3", "s.toml:6:1: overlay.relays = 3: 3 relays of 2 known peers"),
        (peers, "peers = 100000", "s.toml:5:1: overlay.peers = 100000: each peer would know 99999 others"),
        (peers, "peers = 20000", "set overlay.known_peers, for example to 64"),
        (peers, "peers = 20\nknown_peers = 3", "s.toml:7:1: overlay.relays = 3: 3 relays of 3 known peers"),
        ("relays = 3", "relays = 9", "s.toml:6:1: overlay.relays = 9: expected a whole number from 1 to 8"),
        ("relays = 3", "relays = 0", "overlay.relays = 0: expected a whole number from 1 to 8"),
        ("400000 B/s", "0 B/s", "s.toml:7:1: overlay.limit = \"0 B/s\": nothing would ever pass"),
        ("400000 B/s", "fast", "overlay.limit = \"fast\": expected a number and a unit"),
        (
            "400000 B/s",
            "1400 B/s",
            "s.toml:7:1: overlay.limit = \"1400 B/s\": a relay that counts in seconds would refuse",
        ),
        ("\"400000 B/s\"", "400000", "overlay.limit = 400000: expected a rate with its unit"),
        ("\"window\"", "\"windows\"", "s.toml:8:1: overlay.limit_model = \"windows\": did you mean \"window\"?"),
        (
            "\"window\"",
            "\"window\"\nqueue_ms = 5",
            "s.toml:9:1: overlay.queue_ms = 5: this belongs to overlay.limit_model = \"queue\"",
        ),
        (
            "\"window\"",
            "\"bucket\"\nbucket_bytes = 9",
            "s.toml:9:1: overlay.bucket_bytes = 9: a bucket of 9 B never holds a packet",
        ),
        ("packet_bytes = 1500", "packet_bytes = 0", "s.toml:9:1: overlay.packet_bytes = 0"),
        (
            "packet_bytes = 1500",
            "packet_bytes = 65508",
            "overlay.packet_bytes = 65508: expected a whole number from 1 to 65507",
        ),
        (
            "\"q-learning\"",
            "\"q-lerning\"",
            "s.toml:11:1: overlay.controller = \"q-lerning\": there is no controller named \"q-lerning\"; did you mean \"q-learning\"?",
        ),
        ("[overlay.delay]", "loss = 1\n[overlay.delay]", "s.toml:12:1: overlay.loss = 1: no packet would ever arrive"),
        ("[overlay.delay]", "loss = -0.1\n[overlay.delay]", "overlay.loss = -0.1: expected a number from 0 to 1"),
        ("jitter = 0.10", "jitter = -0.1", "s.toml:16:1: overlay.delay.jitter = -0.1: expected a number from 0 to 1"),
        ("jitter = 0.10", "jitter = nan", "overlay.delay.jitter = nan: expected a number from 0 to 1"),
        (
            "jitter = 0.10",
            "constant_ms = 3",
            "s.toml:16:1: overlay.delay.constant_ms = 3: this belongs to overlay.delay.model = \"constant\"",
        ),
        ("span_ms = 100", "span_ms = 0\nstretch = 0", "overlay.delay.stretch = 0: expected a number from 0.01"),
        ("jitter = 0.10", "[overlay.delays]", "s.toml:16:10: overlay.delays: unknown key; did you mean \"delay\"?"),
        (
            "jitter = 0.10",
            "[overlay.rtt]\ngain = 0",
            "s.toml:17:1: overlay.rtt.gain = 0: the estimate would never change",
        ),
        (
            "jitter = 0.10",
            "[overlay.parameters]\nepsilon = 2",
            "s.toml:17:1: overlay.parameters.epsilon = 2: epsilon = 2 is not between 0 and 1",
        ),
        (
            "jitter = 0.10",
            "[overlay.parameters]\ndiscount = 0.5\nepsilom = 1",
            "s.toml:18:1: overlay.parameters.epsilom = 1: unknown field `epsilom`",
        ),
        ("jitter = 0.10", "[overlay.parameters]\nepsilom = 1", "did you mean `epsilon`?"),
        (
            "jitter = 0.10",
            "[[overlay.limit_change]]\nat_s = 5\npeers = [1, 20]\nlimit = \"1 MB/s\"",
            "s.toml:18:13: overlay.limit_change.peers = 20: expected a whole number from 0 to 19",
        ),
        (
            "jitter = 0.10",
            "[[overlay.limit_change]]\nat_s = 5\npeers = \"10-20\"\nlimit = \"1 MB/s\"",
            "s.toml:18:1: overlay.limit_change.peers = \"10-20\": expected peers from 0 to 19",
        ),
        ("jitter = 0.10", "[[overlay.limit_change]]\nat_s = 5\npeers = []\nlimit = \"1 MB/s\"", "this names no peer"),
        (
            "jitter = 0.10",
            "[[overlay.limit_change]]\nat_s = 5\npeers = [1]\nlimit = \"0 B/s\"",
            "s.toml:19:1: overlay.limit_change.limit = \"0 B/s\": nothing would ever pass",
        ),
        ("jitter = 0.10", "[[overlay.limit_change]]\nat_s = 5\npeers = [1]", "overlay.limit_change.limit: missing"),
        (
            "jitter = 0.10",
            "[overlay.misbehave]\npeers = [1]",
            "s.toml:16:10: overlay.misbehave: expected a list of tables, each written [[overlay.misbehave]]",
        ),
        ("jitter = 0.10", "[[overlay.misbehave]]\npeers = [1]", "these peers do nothing wrong"),
        ("jitter = 0.10", "[overlay.join]", "overlay.join.every_s: missing"),
        ("\"plane\"", "\"plain\"", "s.toml:13:1: overlay.delay.model = \"plain\": did you mean \"plane\"?"),
        ("\"plane\"", "plane", "s.toml:13:9: this is not TOML"),
        ("[overlay]", "[overlaid]", "did you mean \"overlay\"?"),
    ] {
        let message = refusal(from, to);
        assert!(message.contains(expected), "{to:?} was refused with\n{message}\nwithout\n{expected}");
        assert!(message.starts_with("s.toml:"), "{message}");
    }
    let matrix = |rows: &str| {
        refusal(
            "model = \"plane\"                 # plane | matrix | constant\nspan_ms = 100                   # delay across one side of the unit square\naccess_ms = 5",
            &format!("model = \"matrix\"\nmatrix_ms = {rows}"),
        )
    };
    assert!(
        matrix("[[1, 2], [3, 4]]")
            .contains("s.toml:14:1: overlay.delay.matrix_ms = [[1, 2], [3, 4]]: expected 20 rows")
    );
    let rows = |short: &str| format!("[{short}{}]", format!(",{:?}", [7; 20]).repeat(19));
    assert!(matrix(&rows("[1, 2]")).contains("not 2 delays in row 0"), "{}", matrix(&rows("[1, 2]")));
    assert!(matrix(&rows(&format!("{:?}", [0; 20]))).contains("packets would take no time at all"));
    assert!(parse("", "s.toml", &[]).unwrap_err().to_string().starts_with("s.toml: overlay: missing"));
    assert!(read(Path::new("/no/such.toml"), &[]).unwrap_err().to_string().contains("/no/such.toml"));
}

#[test]
fn a_date_is_answered_with_what_its_key_expects() {
    const OVERLAY: &str = "[overlay]\npeers = 6\nrelays = 2\ncontroller = \"aimd\"\n";
    const FLOWS: &str = "[[flow]]\ncontroller = \"reno\"\n[dumbbell]\nrate = \"1 Mbit/s\"\n";
    for (text, line, expected) in [
        (OVERLAY, "loss = 1979-05-27", "overlay.loss = 1979-05-27: expected a number from 0 to 1"),
        (OVERLAY, "delay = 07:32:00", "overlay.delay = 07:32:00: expected a table, written [overlay.delay]"),
        (OVERLAY, "delay.day = 07:32:00", "overlay.delay.day = 07:32:00: unknown key"),
        (FLOWS, "loss = 1979-05-27", "dumbbell.loss = 1979-05-27: expected a number from 0 to 1"),
        (FLOWS, "queue = 07:32:00", "dumbbell.queue = 07:32:00: expected \"unlimited\", or a table such as"),
    ] {
        let message = parse_any(&format!("{text}{line}\n"), "s.toml", &[]).unwrap_err().to_string();
        assert!(message.starts_with("s.toml:5:") && message.contains(expected), "{line}: {message}");
        assert!(message.contains("unknown key") || message.ends_with("found a date or a time"), "{line}: {message}");
    }
}

#[test]
fn a_large_matrix_on_one_line_reads_in_reasonable_time() {
    let peers = 700;
    let rows = format!("{:?},", vec![12; peers]).repeat(peers);
    let text = |rows: &str| {
        format!(
            "[overlay]\npeers = {peers}\nrelays = 3\ncontroller = \"aimd\"\ndelay = {{ model = \"matrix\", matrix_ms = [{rows}] }}"
        )
    };
    assert!(parse(&text(&rows), "s.toml", &[]).is_ok());
    let last = rows.rfind("12").unwrap();
    let before = "delay = { model = \"matrix\", matrix_ms = [".len() + last;
    let column = format!("s.toml:5:{}: overlay.delay.matrix_ms = -1", before + 1);
    let message = parse(&text(&format!("{}-1{}", &rows[..last], &rows[last + 2..])), "s.toml", &[]).unwrap_err();
    assert!(message.to_string().starts_with(&column), "{message} is not at {column}");
}

#[test]
fn the_command_line_overrides_and_is_checked_and_named() {
    let scenario =
        read_example(&["overlay.relays=4", "overlay.limit=3.2 Mbit/s", "run.watch=2", "overlay.loss = 0.25"]).unwrap();
    assert_eq!((scenario.overlay.relays, scenario.overlay.watch, scenario.overlay.loss), (4, Some(2), 0.25));
    assert_eq!(scenario.overlay.limit, Rate::from_bytes_per_sec(400_000));
    for (change, expected) in [
        ("overlay.relays=40", "--set overlay.relays=40: expected a whole number from 1 to 8"),
        ("overlay.relay=4", "--set overlay.relay=4: unknown key; did you mean \"relays\"?"),
        (
            "overlay.controller=aimed",
            "--set overlay.controller=aimed: there is no controller named \"aimed\"; did you mean \"aimd\"?",
        ),
        ("overlay.peers=3", "s.toml:6:1: overlay.relays = 3: 3 relays of 2 known peers"),
        ("overlay.peers.x=3", "--set overlay.peers.x=3: \"x\" is a part of a value that has no parts"),
        ("overlay..x=3", "\"overlay..x\" is not a key"),
        ("overlay.delay.matrix_ms=[[1,]", "the value is not TOML"),
        (
            "overlay.delay={model=\"constant\",constant_ms=-1}",
            "overlay.delay.constant_ms = -1: expected a number of milliseconds from 0",
        ),
        (
            "overlay.queue_ms=4",
            "--set overlay.queue_ms=4: this belongs to overlay.limit_model = \"queue\", which is \"window\"",
        ),
    ] {
        let message = read_example(&[change]).unwrap_err().to_string();
        assert!(message.contains(expected), "{change} was refused with\n{message}\nwithout\n{expected}");
        assert!(message.starts_with(&format!("--set {change}: ")) || message.starts_with("s.toml:6"), "{message}");
    }
    assert!(Override::set("overlay.relays").unwrap_err().to_string().contains("expected KEY=VALUE"));
    let change = format!("{FULL}\n");
    let scenario = parse(&change, "s.toml", &set(&["overlay.limit_change.0.at_s=5"])).unwrap();
    assert_eq!(scenario.overlay.limit_changes[0].at.as_secs_f64(), 5.0);
    assert!(parse(FULL, "s.toml", &set(&["overlay.limit_change.1.at_s=5"])).is_err());
}

#[test]
fn another_choice_leaves_out_what_belonged_to_the_old_one() {
    let scenario = read_example(&["overlay.delay.model=constant", "overlay.delay.constant_ms=60"]).unwrap();
    assert!(to_toml(&scenario).contains("constant_ms = 60"));
    assert!(to_toml(&scenario).contains("limit = \"400000 B/s\"\n"));
    let text = format!("{EXAMPLE}[overlay.parameters]\nepsilon = 0.02\n");
    let same = parse(&text, "s.toml", &set(&["overlay.controller=q-learning"])).unwrap();
    assert_eq!(same.overlay.parameters.len(), 1);
    let other = parse(&text, "s.toml", &set(&["overlay.parameters.decrease=0.5", "overlay.controller=aimd"])).unwrap();
    assert_eq!(other.overlay.parameters.to_string(), "decrease = 0.5\n");
}

#[test]
fn random_sends_at_the_access_line_and_others_as_they_can() {
    let offered = |name: &str| read_example(&[&format!("overlay.controller={name}")]).unwrap().overlay.offered;
    assert_eq!(offered("random"), Some(Rate::from_bytes_per_sec(1_250_000)));
    assert_eq!(offered("perfect"), None);
    let queue = read_example(&["overlay.limit_model=queue"]).unwrap().overlay.limit_model;
    assert!(matches!(queue, LimitKind::Queue { longest } if longest.as_millis_f64() == 100.0));
}

/// Text that is nearly a scenario: lines of the example and of the full one, shuffled
/// and damaged.
fn damaged() -> impl Strategy<Value = String> {
    let lines: Vec<String> = EXAMPLE.lines().chain(FULL.lines()).map(str::to_owned).collect();
    let values = prop::sample::select(vec![
        "-1",
        "0",
        "1e300",
        "nan",
        "\"\"",
        "[]",
        "{}",
        "9223372036854775807",
        "0.5",
        "[[0]]",
    ]);
    let line = prop::sample::select(lines);
    let damaged = (line, prop::option::of(values)).prop_map(|(line, value)| match (line.split_once('='), value) {
        (Some((key, _)), Some(value)) => format!("{key}= {value}"),
        _ => line,
    });
    prop::collection::vec(damaged, 0..30).prop_map(|lines| lines.join("\n"))
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,200}|[\\[\\]a-z.=\"0-9\n ]{0,200}", change in "\\PC{0,20}=\\PC{0,20}") {
        let _ = parse(&text, "s.toml", &[]);
        if let Ok(change) = Override::set(&change) {
            let _ = parse(EXAMPLE, "s.toml", &[change]).map_err(|error| error.to_string());
        }
    }

    #[test]
    fn no_damaged_scenario_panics(text in damaged()) {
        match parse(&text, "s.toml", &[]) {
            Ok(scenario) => prop_assert!(parse(&to_toml(&scenario), "again.toml", &[]).is_ok()),
            Err(error) => prop_assert!(error.to_string().starts_with("s.toml")),
        }
    }

    #[test]
    fn no_value_of_any_key_panics(
        line in prop::sample::select(FULL.lines().chain(EXAMPLE.lines()).filter(|line| line.contains('=')).collect::<Vec<_>>()),
        value in prop::sample::select(vec!["-1", "0", "1e300", "inf", "\"x\"", "[]", "{}", "9223372036854775807", "0.5", "[[0]]"]),
    ) {
        let (key, _) = line.split_once('=').unwrap();
        for text in [FULL, EXAMPLE] {
            let text = text.replacen(line, &format!("{key}= {value}"), 1);
            if let Err(error) = parse(&text, "s.toml", &[]) {
                prop_assert!(error.to_string().starts_with("s.toml:"), "{}", error);
            }
        }
    }
}

#[test]
fn a_zero_without_a_sign_is_what_comes_back() {
    let text = "[overlay]\npeers = 20\nrelays = 3\ncontroller = \"q-learning\"\ndelay.jitter = -0.0\n";
    let written = to_toml(&parse(text, "s.toml", &[]).unwrap());
    assert!(written.contains("jitter = 0\n"), "{written}");
    assert_eq!(to_toml(&parse(&written, "s.toml", &[]).unwrap()), written);
}
