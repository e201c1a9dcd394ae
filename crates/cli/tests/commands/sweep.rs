//! `anabranch sweep` as a user sees it.

use crate::common::{Place, SMALL};

const GRID: [&str; 8] = [
    "sweep",
    "s.toml",
    "--grid",
    "overlay.relays=1,2",
    "--grid",
    "overlay.controller=q-learning,perfect",
    "--seeds",
    "1..3",
];

fn sweep(place: &Place, more: &[&str]) -> crate::common::Said {
    let said = place.say(&[&GRID[..], more].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    said
}

#[test]
fn any_number_of_threads_gives_the_same_bytes() {
    let place = Place::new(SMALL);
    sweep(&place, &["--out", "one", "--threads", "1"]);
    sweep(&place, &["--out", "two", "--threads", "2"]);
    assert_eq!(place.names("one"), ["points", "report.html", "results.csv", "results.parquet"]);
    assert_eq!(place.names("one/points").len(), 12);
    assert_eq!(place.names("one/points"), place.names("two/points"));
    let points = place.names("one/points").into_iter().map(|name| format!("points/{name}"));
    for name in points.chain(["report.html", "results.csv", "results.parquet"].map(str::to_owned)) {
        let read = |out: &str| std::fs::read(place.path(out).join(&name)).unwrap();
        assert!(read("one") == read("two"), "{name} differs");
    }
    let csv = std::fs::read_to_string(place.path("one/results.csv")).unwrap();
    let mut lines = csv.lines();
    assert!(
        lines.next().unwrap().starts_with("overlay.relays,overlay.controller,seed,controller,packet_hops,received")
    );
    assert!(lines.next().unwrap().starts_with("1,q-learning,1,q-learning,"));
    assert_eq!(csv.lines().count(), 13);
}

#[test]
fn what_is_there_is_not_run_again_unless_asked_or_changed() {
    let place = Place::new(SMALL);
    let first = sweep(&place, &["--out", "out", "--json"]).json();
    let second = sweep(&place, &["--out", "out", "--json"]);
    assert!(second.stderr.contains("12 of 12 points were there already"), "{second:?}");
    let second = second.json();
    assert_eq!((&first["skipped"], &second["skipped"]), (&0.into(), &12.into()));
    assert_eq!(first["points"], second["points"]);
    assert_eq!(first["points"].as_array().unwrap().len(), 12);
    assert_eq!(first["combinations"].as_array().unwrap().len(), 4);
    assert_eq!(first["combinations"][0]["seeds"], 3);
    assert!(first["combinations"][0]["metrics"]["received_bytes_per_s"]["ci95"].is_number());

    let more = place.say(&["sweep", "s.toml", "--grid", "overlay.relays=1,2,3", "--seeds", "2", "--out", "more"]);
    assert!(more.stdout.contains("6 points"), "{more:?}");
    let wider = place.say(&["sweep", "s.toml", "--grid", "overlay.relays=1,2,3", "--seeds", "3", "--out", "more"]);
    assert!(wider.stderr.contains("6 of 9 points were there already"), "{wider:?}");
    assert_eq!(sweep(&place, &["--out", "out", "--json", "--again"]).json()["skipped"], 0);
    let other = sweep(&place, &["--out", "out", "--json", "--set", "run.seconds=151"]).json();
    assert_eq!(other["skipped"], 0);
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_goes_on_to_the_same_result() {
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let place = Place::new(SMALL);
    let arguments =
        |out| ["sweep", "s.toml", "--set", "run.seconds=800", "--seeds", "12", "--threads", "2", "--out", out];
    let mut command = place.command(&arguments("out"));
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let whole = |out: &str| {
        let points = place.path(out).join("points");
        points.exists() && place.names(&format!("{out}/points")).iter().any(|name| name.ends_with(".json"))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !whole("out") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let interrupted = crate::common::said(child.wait_with_output().unwrap());
    assert_eq!(interrupted.code, Some(130), "{interrupted:?}");
    assert!(interrupted.stderr.contains("of 12 points are over and kept in out"), "{interrupted:?}");
    assert_eq!(place.names("out"), ["points"], "no tables of a part");
    let kept = place.names("out/points");
    assert!((1..12).contains(&kept.len()) && kept.iter().all(|name| name.ends_with(".json")), "{kept:?}");

    let resumed = place.say(&arguments("out"));
    assert!(resumed.stderr.contains(&format!("{} of 12 points were there already", kept.len())), "{resumed:?}");
    assert_eq!(place.say(&arguments("fresh")).code, Some(0));
    for name in ["report.html", "results.csv", "results.parquet"] {
        let read = |out: &str| std::fs::read(place.path(out).join(name)).unwrap();
        assert!(read("out") == read("fresh"), "{name} differs");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_of_all_points_again_does_not_say_that_it_goes_on() {
    let place = Place::new(SMALL);
    let long = ["sweep", "s.toml", "--set", "run.seconds=1000000", "--out", "out", "--again"];
    let said = place.interrupt(&long, || place.path("out").join("points").exists(), "-INT");
    assert_eq!(said.code, Some(130), "{said:?}");
    assert!(said.stderr.contains("0 of 1 points were run again"), "{said:?}");
    assert!(said.stderr.contains("the same command runs all of them again"), "{said:?}");
}

#[test]
fn a_key_with_a_value_of_its_own_is_not_swept_over() {
    let place = Place::new(SMALL);
    let refused = |more: &[&str], why: &str| {
        place.say(&[&["sweep", "s.toml", "--out", "out"], more].concat()).refuses(why);
        assert!(!place.path("out").exists());
    };
    let grid = ["--grid", "overlay.relays=1,2"];
    refused(
        &[&grid[..], &["--set", "overlay.relays = 2"]].concat(),
        "--set overlay.relays=2: --grid gives values of overlay.relays, too; expected one of them",
    );
    refused(
        &["--seeds", "3", "--set", "run.seed=4"],
        "--set run.seed=4: --seeds gives values of run.seed, too; expected one of them",
    );
    place
        .say(&["run", "s.toml", "--seed", "3", "--set", "run.seed=4"])
        .refuses("--seed 3: --set run.seed=4 gives a seed, too; expected one of them");
}

/// A folder of programs with a `python3` whose answer to the question of what is missing is `answer`, and that writes
/// down its arguments otherwise.
#[cfg(unix)]
fn python_that_says(place: &Place, answer: u8) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt;

    let programs = place.path(&format!("programs{answer}"));
    std::fs::create_dir(&programs).unwrap();
    let python = programs.join("python3");
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = -c ] && exit {answer}\nfor argument; do echo \"$argument\"; done > arguments\nexit 5\n"
    );
    std::fs::write(&python, text).unwrap();
    std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
    programs
}

#[cfg(unix)]
#[test]
fn ray_needs_python_with_the_module_and_ray_and_says_which_is_missing() {
    let place = Place::new(SMALL);
    let on_ray = |programs: std::path::PathBuf| {
        crate::common::said(
            place.command(&["sweep", "s.toml", "--out", "out", "--ray"]).env("PATH", programs).output().unwrap(),
        )
    };
    let nothing = place.path("nothing");
    std::fs::create_dir(&nothing).unwrap();
    for (programs, word) in [
        (nothing, "python3 is not here: install Python 3.11"),
        (python_that_says(&place, 71), "pip install '.[ray]'"),
        (python_that_says(&place, 72), "Ray is not installed for python3: pip install ray"),
    ] {
        let said = on_ray(programs);
        assert!(said.code == Some(2) && said.stderr.contains(word) && said.stdout.is_empty(), "{said:?}");
    }
    let said = on_ray(python_that_says(&place, 1));
    assert!(said.code == Some(2) && said.stderr.contains("python3 does not run"), "{said:?}");
    assert!(!place.path("out").exists(), "nothing was begun");
}

#[cfg(unix)]
#[test]
fn ray_gets_what_the_command_was() {
    let place = Place::new(SMALL);
    let programs = python_that_says(&place, 0);
    let driver_arguments = |more: &[&str]| {
        let arguments = [&GRID[..], &["--set", "run.seconds=20", "--out", "out"], more].concat();
        let said = crate::common::said(place.command(&arguments).env("PATH", &programs).output().unwrap());
        assert_eq!(said.code, Some(5), "the exit code is the driver's: {said:?}");
        std::fs::read_to_string(place.path("arguments")).unwrap()
    };
    let always = "-m\nanabranch.sweep\ns.toml\n--out\nout\n--grid\noverlay.relays=1,2\n--grid\n\
                  overlay.controller=q-learning,perfect\n--set\nrun.seconds=20\n--seeds\n1..3\n";
    let version = format!("--made-by\n{}\n", anabranch_lab::VERSION);
    assert_eq!(driver_arguments(&["--ray"]), format!("{always}{version}"));
    assert_eq!(
        driver_arguments(&["--ray", "ray://head:10001", "--json", "--again", "--threads", "4"]),
        format!("{always}--threads\n4\n--again\n--json\n{version}--ray\nray://head:10001\n")
    );
}

/// Of the first line nobody can hear anything before the run is over.
#[test]
fn a_point_that_has_no_run_is_named_and_the_others_are_written() {
    let flows = "[run]\nseconds = 12\n[dumbbell]\nrate = \"2 Mbit/s\"\ndelay_ms = 5\n[[flow]]\ncontroller = \"reno\"\n";
    let place = Place::new(flows);
    let arguments = ["sweep", "s.toml", "--grid", "dumbbell.delay_ms=20000,5", "--out", "out"];
    for _ in 0..2 {
        let said = place.say(&arguments);
        assert_eq!(said.code, Some(2), "{said:?}");
        for words in ["dumbbell.delay_ms=20000, seed 1: in 12 s no flow has delivered", "1 of 2 points have no run"] {
            assert!(said.stderr.contains(words), "{said:?}");
        }
        assert_eq!(place.names("out"), ["points", "report.html", "results.csv", "results.parquet"]);
        assert_eq!(place.names("out/points").len(), 1, "what failed is tried again");
    }
    let json = place.say(&[&arguments[..], &["--json"]].concat());
    let json = (json.code, json.json());
    assert_eq!((json.0, &json.1["finished"], &json.1["skipped"]), (Some(2), &1.into(), &1.into()), "{json:?}");
    assert!(json.1["points"][0]["failed"].is_string() && json.1["points"][0]["packet_hops"].is_null(), "{json:?}");
    assert_eq!(json.1["failed"].as_array().unwrap().len(), 1, "{json:?}");
}
