//! Output that nobody reads, or that has no room.

#![cfg(unix)]

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::common::{Place, SMALL, said};

/// What leads to somebody who has gone.
fn to_nobody() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

#[test]
fn a_reader_that_has_seen_enough_ends_a_verb_without_a_word() {
    for arguments in [&["controllers"][..], &["run", "s.toml"], &["reproduce", "--list"]] {
        let place = Place::new(SMALL);
        let said = said(place.command(arguments).stdout(to_nobody()).stderr(Stdio::piped()).output().unwrap());
        assert_eq!((said.code, &*said.stderr), (Some(141), ""), "{arguments:?}");
    }
}

#[test]
fn whoever_does_not_read_standard_error_keeps_nobody_from_working() {
    let full = || OpenOptions::new().write(true).open("/dev/full").map(Stdio::from).unwrap_or_else(|_| to_nobody());
    for errors in [to_nobody, full] {
        let place = Place::new(SMALL);
        let run = ["run", "s.toml", "--json", "--out", "out"];
        let done = said(place.command(&run).stderr(errors()).stdout(Stdio::piped()).output().unwrap());
        assert_eq!((done.code, &done.json()["interrupted"]), (Some(0), &false.into()), "{done:?}");
        // What is refused ends with the same code.
        let refused = said(place.command(&["run", "none.toml"]).stderr(errors()).output().unwrap());
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
}
