use super::*;

/// A ballot is four rounds of half a second.
const BALLOT: Duration = Duration::from_secs(2);

/// Room for ten ballots.
const EPOCH_S: u64 = 20;

impl Process {
    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().expect("there is kill").success());
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// Waits until it is so long before an epoch begins that two can be stopped before its first ballot; that epoch.
fn before_an_epoch() -> u64 {
    loop {
        let now = since_1970();
        let epoch = now.as_secs() / EPOCH_S + 1;
        let left = Duration::from_secs(epoch * EPOCH_S) - now;
        if (2 * BALLOT..3 * BALLOT).contains(&left) {
            return epoch;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Whether one of these is a list that was signed, of nobody.
fn lists_nobody(lines: &[String]) -> bool {
    lines.iter().any(|line| line.contains(": 0 relays"))
}

/// Two of three authorities stand still over the first ballot of an epoch, and the third is killed before it and started
/// anew: what was missed is made up for in that epoch, and a client goes on by the new list.
#[test]
fn an_epoch_whose_first_ballot_fails_gets_its_list_by_a_later_one() {
    let mut overlay = Overlay::start(220, 6, Some(EPOCH_S), |path| (path == "/page").then(|| b"a page".to_vec()));
    let epoch = loop {
        let epoch = before_an_epoch();
        let stopped = &overlay.authorities[..2];
        stopped.iter().for_each(|authority| authority.process.signal("-STOP"));
        if since_1970() + BALLOT < Duration::from_secs(epoch * EPOCH_S) {
            break epoch;
        }
        // This machine was busy: the vote may have begun.
        stopped.iter().for_each(|authority| authority.process.signal("-CONT"));
    };
    let (third, before) = (&mut overlay.authorities[2], epoch - 1);
    third.process.line_where(|line| line.starts_with(&format!("epoch {before}: 6 relays, ")));
    third.process.kill();
    let lines_before = third.process.lines();
    third.process = start_authority(overlay.folder.path(), &overlay.network, 2);
    let alone = format!("epoch {epoch}: no list of relays by ballot 0: 1 votes counted, 0 signed");
    third.process.line_where(|line| line.starts_with(&alone));
    overlay.authorities[..2].iter().for_each(|authority| authority.process.signal("-CONT"));
    let listed = format!("epoch {epoch}: 6 relays, ");
    let list = |authority: &AuthorityProcess| authority.process.line_where(|line| line.starts_with(&listed));
    let lists: Vec<String> = overlay.authorities.iter().map(list).collect();
    assert!(lists.iter().all(|list| *list == lists[0]), "there is one list of an epoch: {lists:?}");
    overlay.proxy.line_where(|line| line.contains(&listed));
    assert_eq!(overlay.fetch("/page", |_| {}).bytes, b"a page");
    let all_lines = overlay.authorities.iter().map(|authority| authority.process.lines());
    for lines in all_lines.chain([lines_before, overlay.proxy.lines()]) {
        assert!(!lists_nobody(&lines), "{lines:?}");
    }
}

/// Three authorities that all vote, and know no relay yet.
#[test]
fn nobody_signs_that_there_are_no_relays() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, authorities) = start_authorities(folder.path(), 230, EPOCH_S, 0.5);
    for authority in &authorities {
        authority.process.line_where(|line| line.contains(": 3 votes counted, 0 signed"));
    }
    // A ballot later, too.
    thread::sleep(BALLOT);
    for authority in &authorities {
        let lines = authority.process.lines();
        assert!(lines.iter().all(|line| !line.contains(" relays, ")) && !lists_nobody(&lines), "{lines:?}");
    }
}
