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
            rows.extend(told(lab, entry.name, name, course, &arrived));
        }
    }
    Ok(())
}

/// What is told of the runs of a course. Of relays that are killed nobody can say what they would have
/// allowed, so it is the time.
fn told(lab: &Lab, controller: &str, name: &str, course: Course, arrived: &[Option<Arrived>]) -> Vec<Row> {
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
