//! What is read comes back, and what is wrong is refused at its place.

use proptest::prelude::*;

use anabranch_control::units::Rate;

use crate::file::{Override, ScenarioError, parse, read, to_toml};
use crate::overlay::{LimitKind, Scenario};

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
    let documented: String = include_str!("../mod.rs")
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
fn the_command_line_overrides() {
    let scenario =
        read_example(&["overlay.relays=4", "overlay.limit=3.2 Mbit/s", "run.watch=2", "overlay.loss = 0.25"]).unwrap();
    assert_eq!((scenario.overlay.relays, scenario.overlay.watch, scenario.overlay.loss), (4, Some(2), 0.25));
    assert_eq!(scenario.overlay.limit, Rate::from_bytes_per_sec(400_000));
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

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let error = read(std::path::Path::new("/no/such.toml"), &[]).unwrap_err().to_string();
    assert!(error.contains("/no/such.toml"), "{error}");
}
