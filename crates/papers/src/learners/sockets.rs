//! The goals that are about files on real sockets: `anabranch demo` under each model of a limit, and a
//! large file over relays that are processes, all of which live or two of which are killed.

use anabranch_control::path::registry::{Build, Entry};

use crate::loopback::{Arrived, Course, FileOverRelays, Loopback};
use crate::runs::OfRuns;
use crate::{ExperimentError, Lab, Row};

/// Real time is noisy: runs of the controller that files are sent with, in a full run and in a quick one.
const RUNS: (u64, u64) = (5, 2);

/// The controller that `send` and `demo` use.
const DEFAULT: &str = "explicit-rate";

/// Beside it, once each over the first course, if no controllers are asked for.
const BESIDE: [&str; 3] = ["q-learning", "aimd", "flow:bbr3"];

/// The courses and what they are called.
pub const COURSES: [(&str, Course); 5] = [
    ("demo, window", Course::Demo { limit_model: "window" }),
    ("demo, bucket", Course::Demo { limit_model: "bucket" }),
    ("demo, queue", Course::Demo { limit_model: "queue" }),
    ("20 MB over eight relays", Course::Processes { killed: 0 }),
    ("20 MB over eight relays, two killed", Course::Processes { killed: 2 }),
];

/// Sends the files that are wanted.
pub fn run(lab: &Lab, loopback: &dyn Loopback, rows: &mut Vec<Row>) -> Result<(), ExperimentError> {
    let controllers = lab.controllers_or(&[&[DEFAULT], &BESIDE[..]].concat())?;
    let on_sockets = |entry: &&&'static Entry| !matches!(entry.build, Build::Omniscient);
    for (name, course) in COURSES.into_iter().filter(|(name, _)| lab.wants(name)) {
        for entry in controllers.iter().filter(on_sockets) {
            let is_default = entry.name == DEFAULT;
            if !is_default && name != COURSES[0].0 {
                continue;
            }
            let runs = if is_default { lab.seconds(RUNS.0, RUNS.1) } else { 1 };
            let file = |run| FileOverRelays { course, controller: entry.name, seed: lab.scenario.seed + run };
            let arrived = lab.send_all(loopback, &(0..runs).map(file).collect::<Vec<_>>())?;
            rows.extend(rows_of(lab, entry.name, name, course, &arrived));
        }
    }
    Ok(())
}

/// The rows of the runs of a course. Of relays that are killed nobody can say what they would have
/// allowed, so it is the time.
fn rows_of(lab: &Lab, controller: &str, name: &str, course: Course, arrived: &[Option<Arrived>]) -> Vec<Row> {
    let row = |metric: &str, unit: &str, of: fn(&Arrived) -> f64| {
        let values = OfRuns::of(arrived, |arrived| arrived.as_ref().map(of));
        lab.mean_row(controller, &format!("{metric}[{name}]"), unit, values.values())
    };
    let seconds = row("seconds", "s", |arrived| arrived.seconds);
    let lost = row("lost_percent", "%", |arrived| arrived.lost_percent);
    match course {
        Course::Processes { killed } if killed > 0 => vec![seconds, lost],
        _ => vec![row("share_of_possible", "", |arrived| arrived.share_of_possible), lost, seconds],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use anabranch_lab::monitor::Monitor;

    use super::*;
    use crate::{Findings, Length, Request, Verdict, find};

    /// Says of each file that it arrived in six seconds, or that it did not, and remembers it.
    #[derive(Debug, Default)]
    struct Double {
        seen: Mutex<Vec<FileOverRelays>>,
        loses: bool,
    }

    impl Loopback for Double {
        fn send(&self, file: &FileOverRelays, _: &dyn Monitor) -> Result<Option<Arrived>, String> {
            self.seen.lock().unwrap().push(file.clone());
            let arrived = Arrived { seconds: 6.0, share_of_possible: 0.95, lost_percent: 1.0 };
            Ok((!self.loses).then_some(arrived))
        }
    }

    fn request(settings: &[&str], loopback: Option<Arc<Double>>) -> Request {
        let settings = settings.iter().map(|name| (*name).to_owned()).collect();
        let loopback = loopback.map(|double| double as Arc<dyn Loopback>);
        Request { settings, loopback, length: Length::Quick, ..Request::default() }
    }

    fn run(settings: &[&str], double: &Arc<Double>) -> Findings {
        find("anabranch-learners").unwrap().run(&request(settings, Some(Arc::clone(double)))).unwrap()
    }

    #[test]
    fn the_default_is_sent_again_and_again_and_others_once_over_the_first_course() {
        let double = Arc::new(Double::default());
        run(&COURSES.map(|(name, _)| name), &double);
        let seen = double.seen.lock().unwrap();
        for (name, course) in COURSES {
            let of = |controller| {
                let is_of = |file: &&FileOverRelays| file.course == course && file.controller == controller;
                seen.iter().filter(is_of).map(|file| file.seed).collect::<Vec<u64>>()
            };
            assert_eq!(of(DEFAULT), [1, 2], "{name}");
            for controller in BESIDE {
                assert_eq!(of(controller).len(), usize::from(name == COURSES[0].0), "{controller}, {name}");
            }
        }
    }

    #[test]
    fn files_are_judged_by_their_goals() {
        let rows = run(&["demo, bucket", "20 MB over eight relays, two killed"], &Arc::default()).rows;
        let verdict = |metric: &str| rows.iter().find(|row| row.metric == metric).and_then(|row| row.verdict);
        assert_eq!(verdict("share_of_possible[demo, bucket]"), Some(Verdict::Agrees));
        assert_eq!(verdict("lost_percent[demo, bucket]"), Some(Verdict::Agrees));
        assert_eq!(verdict("seconds[20 MB over eight relays, two killed]"), Some(Verdict::Disagrees));
        assert_eq!(rows.len(), 5, "nothing else ran: {rows:?}");
    }

    #[test]
    fn a_file_that_does_not_arrive_has_no_figure_and_says_so() {
        let rows = run(&["demo, queue"], &Arc::new(Double { loses: true, ..Double::default() })).rows;
        for row in rows {
            assert_eq!((row.ours, row.verdict), (None, None), "{row:?}");
            assert!(row.note.ends_with("no figure in 2 of 2 runs"), "{row:?}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused_before_anything_runs() {
        let experiment = find("anabranch-learners").unwrap();
        let refused = |settings: &[&str]| experiment.run(&request(settings, None)).unwrap_err().to_string();
        let unknown = refused(&["20 peers, queue", "20 beers"]);
        assert!(unknown.contains("no setting \"20 beers\"; it has \"20 peers, queue\", "), "{unknown}");
        assert!(refused(&["demo, window"]).contains("add --sockets"));
        let other = find("raiber-table-7.4").unwrap();
        let refused = other.run(&request(&[], Some(Arc::default()))).unwrap_err().to_string();
        assert!(refused.contains("those that have: anabranch-learners"), "{refused}");
        let refused = other.run(&request(&["1 hop, queue"], None)).unwrap_err().to_string();
        assert!(refused.contains("it has one alone"), "{refused}");
    }
}
