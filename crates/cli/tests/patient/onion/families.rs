//! Relays of one operator, who says so: no packet passes two of them.

use super::*;

/// Which family each relay is of. The exit's has one relay besides.
const FAMILIES: [&str; 8] = ["exits", "one", "one", "one", "two", "two", "two", "exits"];

/// The relay that is of the exit's family.
const NEAR_EXIT: usize = 7;

#[test]
fn no_packet_passes_two_relays_of_one_family() {
    let family = |number: u8, folder: &Path| {
        let file = folder.join(FAMILIES[usize::from(number)]).display().to_string();
        let made = Command::new(BINARY).args(["onion", "family", &file]).output().expect("it runs");
        assert_eq!((made.status.code(), made.stdout.len()), (Some(0), 65), "a public key and a line's end");
        let notes = folder.join(format!("notes-{number}")).display().to_string();
        vec!["--family".to_owned(), file, "--observe".to_owned(), notes]
    };
    let overlay = Overlay::start_with(40, 8, None, family, |path| (path == "/file").then(|| pattern(2_000_000)));
    assert_eq!(overlay.fetch("/file", |_| {}).bytes, pattern(2_000_000));
    let Overlay { relays, folder, .. } = overlay;
    let addresses: Vec<SocketAddr> = relays.iter().map(|relay| relay.address).collect();
    let mut pairs = std::collections::BTreeMap::new();
    for (number, relay) in relays.into_iter().enumerate() {
        relay.process.end();
        let notes = fs::read_to_string(folder.path().join(format!("notes-{number}"))).expect("notes");
        let place = |hop: &serde_json::Value| -> Option<usize> {
            let shown = hop["relay"].as_str()?;
            addresses.iter().position(|address| address.to_string() == shown)
        };
        for line in notes.lines() {
            let noted: serde_json::Value = serde_json::from_str(line).expect("a line");
            for passed in noted["passed"].as_array().expect("pairs") {
                let packets = passed["packets"].as_u64().expect("a count");
                for other in [place(&passed["from"]), place(&passed["to"])].into_iter().flatten() {
                    *pairs.entry((number, other)).or_insert(0) += packets;
                }
                // Every path ends at the exit: one that is of its family stands on none.
                assert!(number != NEAR_EXIT, "{passed}");
            }
        }
    }
    assert!(pairs.values().sum::<u64>() > 2 * 2 * 1700, "2 MB have come: {pairs:?}");
    let near: Vec<_> = pairs.keys().filter(|(one, other)| FAMILIES[*one] == FAMILIES[*other]).collect();
    assert!(near.is_empty(), "neighbours of one family: {near:?}");
}
