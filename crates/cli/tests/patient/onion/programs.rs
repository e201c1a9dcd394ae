use super::*;

/// Whether `program` is installed; says so if not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

fn git(folder: &Path, arguments: &[&str]) {
    let settings = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"];
    let mut command = Command::new("git");
    command.args(settings).args(arguments).current_dir(folder).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", folder);
    let output = command.output().expect("git runs");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn git_clones_through_the_proxy() {
    if !has("git") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let work = folder.path().join("work");
    fs::create_dir(&work).expect("a folder");
    git(&work, &["init", "--quiet"]);
    for number in 0..20 {
        fs::write(work.join(format!("file-{number}")), pattern(5000 + 1000 * number)).expect("a file");
        git(&work, &["add", "."]);
        git(&work, &["commit", "--quiet", "-m", "one more"]);
    }
    git(folder.path(), &["clone", "--quiet", "--bare", "work", "served.git"]);
    git(&folder.path().join("served.git"), &["update-server-info"]);
    let root = folder.path().to_owned();
    let overlay = Overlay::start(140, 6, None, move |path| {
        let path = path.trim_start_matches('/');
        // What a client asks for in its own words leads nowhere else.
        (!path.contains("..")).then(|| fs::read(root.join(path)).ok()).flatten()
    });
    overlay.fetch("/served.git/HEAD", |_| {});
    let (proxy, from) =
        (format!("http.proxy=socks5h://{}", overlay.socks), format!("http://{}/served.git", overlay.site));
    git(folder.path(), &["-c", &proxy, "clone", "--quiet", &from, "cloned"]);
    for number in 0..20 {
        let name = format!("file-{number}");
        let [served, cloned] = [&work, &folder.path().join("cloned")].map(|folder| fs::read(folder.join(&name)).ok());
        assert!(served.is_some() && served == cloned, "{name}");
    }
}

/// A page whose script writes what its parts say.
const PAGE: &str = "<!doctype html><body><p id=said>nothing</p><script>
Promise.all([0, 1, 2, 3, 4, 5].map(part => fetch('/part-' + part).then(answer => answer.text())))
    .then(parts => { document.getElementById('said').textContent = parts.join(' and ') })
</script></body>";

#[test]
fn chromium_shows_a_page_through_the_proxy() {
    let chromium = std::env::var("CHROMIUM").unwrap_or_else(|_| "/usr/bin/chromium".to_owned());
    if !has(&chromium) {
        return;
    }
    let overlay = Overlay::start(160, 6, None, |path| match path.strip_prefix("/part-") {
        Some(part) => Some(format!("part {part} of six").into_bytes()),
        None => (path == "/page.html").then(|| PAGE.as_bytes().to_vec()),
    });
    overlay.fetch("/page.html", |_| {});
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(&chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--virtual-time-budget=20000"])
        .arg(format!("--user-data-dir={}", folder.path().display()))
        .arg(format!("--proxy-server=socks5://{}", overlay.socks))
        // Loopback addresses, too.
        .arg("--proxy-bypass-list=<-loopback>")
        .args(["--dump-dom", &format!("http://{}/page.html", overlay.site)])
        .stdin(Stdio::null())
        .output()
        .expect("it is installed");
    let shown = String::from_utf8_lossy(&output.stdout);
    let parts: Vec<String> = (0..6).map(|part| format!("part {part} of six")).collect();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains(&parts.join(" and ")), "{shown}\n{told}");
    let done = overlay.proxy.end();
    assert!(done["packets_received"].as_u64().expect("a count") > 10, "it came through the proxy: {done}");
}

/// What its user asked for, and who asked, stands in no line of any process, whether it went well or not.
#[test]
fn p14_no_address_and_no_target_is_printed() {
    let overlay = Overlay::start(210, 6, None, |path| (path == "/secret-page").then(|| pattern(200_000)));
    overlay.fetch("/secret-page", |_| {});
    let Overlay { proxy, relays, _authorities: authorities, socks, site, .. } = overlay;
    let all = || relays.iter().map(|relay| &relay.process).chain([&proxy]).chain(&authorities);
    // At its start each says where it listens, and what it allows.
    let before: Vec<usize> = all().map(|process| process.lines().len()).collect();
    let fetched = fetch(&socks, site, "/secret-page", &mut |_| {}).expect("it is there");
    assert_eq!(fetched.bytes, pattern(200_000));
    // An exit refuses the first, and nobody listens at the second.
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|at| at.local_addr()).expect("loopback");
    for target in ["192.0.2.77:81".parse().expect("an address"), closed] {
        assert!(fetch(&socks, target, "/secret-page", &mut |_| {}).is_err());
    }
    for process in all() {
        let id = process.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().expect("there is kill").success());
    }
    // What they say at their ends, too.
    relays.iter().map(|relay| &relay.process).chain([&proxy]).for_each(|process| {
        process.line_where(|line| line.starts_with('{'));
    });
    for (process, before) in all().zip(before) {
        for line in &process.lines()[before..] {
            let is_told = ["127.", "192.0.2.", "secret", "localhost"].iter().any(|told| line.contains(told));
            assert!(!is_told, "{line}");
        }
    }
}
