//! Every controller's window curve is what it was when it was looked at.
//!
//! `UPDATE_CURVES=1 cargo test -p anabranch-papers --test window_curves` writes the curves anew;
//! `anabranch validate --out DIR` draws them.

use std::fmt::Write;
use std::path::Path;

use anabranch_lab::parallel::Progress;
use anabranch_papers::validate::curves;

/// A point in this many is kept: every second.
const KEPT: usize = 16;

#[test]
fn window_curves_are_those_that_were_looked_at() {
    let mut text = String::from("controller,window in packets after each second\n");
    for curve in curves(&Progress::default()).unwrap() {
        write!(text, "{}", curve.controller).unwrap();
        for (_, window) in curve.points.iter().step_by(KEPT) {
            write!(text, ",{window:.1}").unwrap();
        }
        text.push('\n');
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/window_curves.csv");
    if std::env::var_os("UPDATE_CURVES").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).expect("the curves are part of the project");
    for (kept, now) in kept.lines().zip(text.lines()) {
        assert_eq!(kept, now, "look at `anabranch validate --out DIR`, then set UPDATE_CURVES=1");
    }
    assert_eq!(kept.lines().count(), text.lines().count());
}
