//! `anabranch reproduce` with other controllers than the paper's, and what real packets cannot
//! carry.

use crate::common::Place;

#[test]
fn experiments_about_one_controller_take_others_beside_it() {
    let place = Place::new("");
    for id in [
        "efthymiopoulos-fig-6",
        "efthymiopoulos-fig-16-18",
        "learningcc-fig-4",
        "remy-golden",
        "xavier-fig-3",
        "xavier-fig-4",
    ] {
        let arguments = ["reproduce", id, "--quick", "--json", "--controllers", "reno,vegas", "--out", "out"];
        let said = place.say(&arguments);
        assert_eq!(said.code, Some(0), "{id}: {said:?}");
        let json = said.json();
        for subject in ["reno", "vegas"] {
            let rows = json["rows"].as_array().unwrap();
            let measured = rows.iter().filter(|row| row["subject"] == subject && row["ours"].is_number()).count();
            assert!(measured > 0, "{id}: {subject}");
        }
        let page = std::fs::read_to_string(place.path("out").join(id).join("report.html")).unwrap();
        assert!(page.contains("vegas"), "{id}");
    }
    place.say(&["reproduce", "xavier-fig-4", "--quick", "--controllers", "vegsa"]).refuses("did you mean \"vegas\"?");
    place.say(&["reproduce", "raiber-fig-7.2", "--quick", "--controllers", "aimd"]).refuses("takes no --controllers");
}

#[test]
fn what_makes_no_sense_on_real_packets_is_refused_before_anything_runs() {
    let place = Place::new("");
    let said = place.say(&["reproduce", "raiber-table-7.4", "--quick", "--emulated", "--out", "out"]);
    said.refuses("raiber-table-7.4 does not run on real packets; those that do: c3-cross-traffic, ");
    assert!(!place.path("out").exists());
}

#[test]
fn without_sockets_what_is_left_out_is_said_before_anything_runs() {
    let place = Place::new("");
    let said = |more: &[&str]| {
        let arguments = ["reproduce", "anabranch-learners", "--quick", "--controllers", "nobody"];
        let said = place.say(&[&arguments, more].concat());
        assert_eq!(said.code, Some(2), "nobody is no controller: {said:?}");
        said.stderr.contains("files on real sockets are left out; --sockets sends them")
    };
    assert!(said(&[]));
    assert!(!said(&["--setting", "1 hop, queue"]), "whoever asks for one setting knows");
    assert!(!said(&["--sockets"]));
}

#[test]
fn who_plays_no_policies_takes_and_trains_none() {
    let place = Place::new("");
    for more in [&["--train"][..], &["--policies", "."]] {
        let said = place.say(&[&["reproduce", "c3-fct", "--quick", "--out", "out"], more].concat());
        said.refuses("c3-fct plays no policies; those that do: c3-scenario-1, c3-scenario-2, ");
    }
    place.say(&["reproduce", "c3-scenario-1", "--train"]).refuses("--out <DIR>");
    let said = place.say(&["reproduce", "c3-scenario-1", "--quick", "--policies", "mine", "--out", "a/b"]);
    said.refuses(
        "mine/c3-scenario-1/seed-1/policy.safetensors: is missing; `python -m anabranch.train.c3 c3-scenario-1",
    );
    assert_eq!(place.names("."), ["s.toml"], "no empty folder is left");
}

#[cfg(unix)]
#[test]
fn training_needs_python_with_the_module_and_jax() {
    let place = Place::new("");
    let nothing = place.path("nothing");
    std::fs::create_dir(&nothing).unwrap();
    let mut command = place.command(&["reproduce", "c3-scenario-1", "--train", "--out", "out"]);
    let said = crate::common::said(command.env("PATH", nothing).output().unwrap());
    said.refuses("--train: python3 is not here: install Python 3.11 or later, then pip install '.[train]'");
    assert!(!place.path("out").exists(), "nothing was begun");
}

/// What is committed is what is played, and it is what the page of the experiment says.
#[test]
fn policies_of_the_repository_are_played() {
    let place = Place::new("");
    let said = place.say(&["reproduce", "c3-scenario-1", "--quick", "--json", "--out", "out"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    let rows = json["rows"].as_array().unwrap();
    let of = |metric: &str| rows.iter().find(|row| row["metric"] == metric).unwrap()["ours"].as_f64().unwrap();
    assert_eq!(of("trainings_at_goal"), 5.0);
    assert!(of("reward_of_oracle") > 0.95 && of("gain_since_first_drawn") > 0.0, "{rows:?}");
    let page = std::fs::read_to_string(place.path("out/c3-scenario-1/report.html")).unwrap();
    assert!(page.contains("After 10 episodes.") && page.contains("How the training went."));
}

/// A reader of the list learns which experiments can fail by surprise.
#[test]
fn the_list_shows_kinds_of_ranges_and_what_quick_runs_said() {
    let place = Place::new("");
    let said = place.say(&["reproduce", "--list"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let line = |id: &str| -> Vec<String> {
        let line = said.stdout.lines().find(|line| line.starts_with(&format!("{id} "))).expect("all are listed");
        line.split("  ").filter(|cell| !cell.is_empty()).map(|cell| cell.trim().to_owned()).collect()
    };
    let experiments = anabranch_papers::EXPERIMENTS;
    assert_eq!(said.stdout.lines().count(), experiments.len() + 2, "{}", said.stdout);
    for experiment in experiments {
        let (judged, quick) = (experiment.judged().unwrap(), experiment.quick_verdicts());
        let cells = line(experiment.id);
        for (kind, cell) in anabranch_papers::Kind::ALL.into_iter().zip(&cells[1..]) {
            let (count, said) = (judged.iter().filter(|&&of| of == kind).count(), quick.of_kind(kind));
            let expected = format!("{count} ({}/{}/{})", said.agree, said.disagree, said.open);
            assert_eq!(*cell, if count == 0 { "-".to_owned() } else { expected }, "{}", experiment.id);
        }
    }
}
