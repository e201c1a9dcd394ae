use super::*;

const LENGTH: usize = 24_000_000;

/// Downloads, has `kill` end some relays when a quarter has come, and tells the longest stall after that; none if this
/// machine let the download wait before anything was wrong: then it says nothing.
fn download(overlay: &mut Overlay, kill: &[usize]) -> Option<Duration> {
    overlay.fetch("/small", |_| {});
    let mut victims: Vec<&mut RelayProcess> = Vec::new();
    for (number, relay) in overlay.relays.iter_mut().enumerate() {
        if kill.contains(&number) {
            victims.push(relay);
        }
    }
    let mut killed_at = None;
    let mut at = |bytes: usize| {
        if killed_at.is_none() && bytes > LENGTH / 4 {
            killed_at = Some(bytes);
            victims.iter_mut().for_each(|relay| relay.process.kill());
        }
    };
    let fetched = fetch(&overlay.socks, overlay.site, "/large", &mut at).expect("it outlives that");
    assert!(fetched.bytes == pattern(LENGTH), "{} bytes", fetched.bytes.len());
    let killed_at = killed_at.expect("a quarter had come");
    let before = fetched.longest_stall(1, killed_at);
    if before > Duration::from_millis(500) {
        println!("skipped: how long it stalls; this machine lets a download wait for {before:?} as it is");
        return None;
    }
    Some(fetched.longest_stall(killed_at, usize::MAX))
}

fn overlay(hosts: u8) -> Overlay {
    Overlay::start(hosts, 12, None, |path| match path {
        "/small" => Some(pattern(10_000)),
        "/large" => Some(pattern(LENGTH)),
        _ => None,
    })
}

#[test]
fn a_download_outlives_a_quarter_of_the_relays_killed() {
    let mut overlay = overlay(20);
    overlay.fetch("/small", |_| {});
    let guards = overlay.guards();
    assert_eq!(guards.len(), 2, "they are written down");
    let others: Vec<usize> = (0..12).filter(|relay| *relay != EXIT && !guards.contains(relay)).take(3).collect();
    let stall = download(&mut overlay, &others);
    assert!(stall.is_none_or(|stall| stall <= Duration::from_secs(2)), "{stall:?}");
}

#[test]
fn a_download_outlives_a_guard_killed() {
    let mut overlay = overlay(40);
    overlay.fetch("/small", |_| {});
    let guard = overlay.guards()[0];
    let stall = download(&mut overlay, &[guard]);
    assert!(stall.is_none_or(|stall| stall <= Duration::from_secs(5)), "{stall:?}");
}
