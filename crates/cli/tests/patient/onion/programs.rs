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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(shown.contains(&parts.join(" and ")), "{shown}\n{stderr}");
    let done = overlay.proxy.end();
    assert!(done["packets_received"].as_u64().expect("a count") > 10, "it came through the proxy: {done}");
}

/// What its user asked for, and who asked, stands in no line of any process, whether it went well or not.
#[test]
fn p14_no_address_and_no_target_is_printed() {
    let overlay = Overlay::start(210, 6, None, |path| (path == "/secret-page").then(|| pattern(200_000)));
    overlay.fetch("/secret-page", |_| {});
    let Overlay { proxy, relays, authorities, socks, site, .. } = overlay;
    let authorities = || authorities.iter().map(|authority| &authority.process);
    let all = || relays.iter().map(|relay| &relay.process).chain([&proxy]).chain(authorities());
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
            let is_shown = ["127.", "192.0.2.", "secret", "localhost"].iter().any(|secret| line.contains(secret));
            assert!(!is_shown, "{line}");
        }
    }
}

/// A name that the exit alone can resolve, and where it leads.
const NAME: &str = "known-to-the-exit-alone.test";

/// The exit has hosts of its own, which nobody else on the machine sees: whoever resolves the name elsewhere finds nothing.
#[test]
fn p11_names_are_resolved_at_the_exit_and_nowhere_else() {
    let hides = ["--user", "--map-root-user", "--mount", "sh", "-c"];
    let may = Command::new("unshare").args(hides).arg("mount --bind /dev/null /etc/hosts").output();
    if !may.is_ok_and(|done| done.status.success()) {
        println!("skipped: this machine gives no namespaces of mounts");
        return;
    }
    let start = |part: Part, folder: &Path, arguments: &[&str]| {
        if part != Part::Relay(EXIT as u8) {
            return Process::start(arguments);
        }
        let hosts = folder.join("hosts");
        fs::write(&hosts, format!("127.0.0.1 {NAME}\n")).expect("a file");
        let words = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
        Process::of(Command::new("unshare").args(hides).arg(words).arg(&hosts).arg(BINARY).args(arguments))
    };
    let overlay = Overlay::start_with(70, 6, None, start, |path| (path == "/page").then(|| b"from there".to_vec()));
    overlay.fetch("/page", |_| {});
    let port = overlay.site.port();
    let elsewhere = std::net::ToSocketAddrs::to_socket_addrs(&(NAME, port)).map(|all| all.count());
    assert!(elsewhere.is_err(), "the name leads somewhere without the exit's hosts: {elsewhere:?}");
    let mut stream = TcpStream::connect(&overlay.socks).expect("the proxy");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(&[5, 1, 0]).expect("it takes it");
    stream.read_exact(&mut [0; 2]).expect("a method");
    let request = [&[5, 1, 0, 3, NAME.len() as u8], NAME.as_bytes(), &port.to_be_bytes()].concat();
    stream.write_all(&request).expect("it takes it");
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).expect("a reply");
    assert_eq!(reply[1], 0, "the exit has resolved it");
    stream.write_all(b"GET /page HTTP/1.1\r\nConnection: close\r\n\r\n").expect("it takes it");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    assert!(answer.ends_with(b"from there"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn loops_come_back_and_delays_are_waited_for_and_the_proxy_reports_both() {
    let start = |part: Part, _: &Path, arguments: &[&str]| match part {
        Part::Relay(_) => Process::start(arguments),
        Part::Proxy => {
            let more = ["--delay", "50", "--loops", "20", "--metrics", "127.0.0.1:0"];
            Process::start(&[arguments, &more].concat())
        }
    };
    let overlay = Overlay::start_with(90, 6, None, start, |path| (path == "/page").then(|| b"page".to_vec()));
    let metrics = overlay.proxy.metrics();
    overlay.fetch("/page", |_| {});
    let begun = Instant::now();
    overlay.fetch("/page", |_| {});
    // A stream is opened and a page is asked for: there and back, each over two relays that wait, or three.
    assert!(begun.elapsed() > Duration::from_millis(50), "{:?}", begun.elapsed());
    thread::sleep(Duration::from_secs(3));
    let said = Command::new(BINARY).args(["onion", "status", "--json", &metrics]).output().expect("it runs");
    let summary: serde_json::Value = serde_json::from_slice(&said.stdout).expect("an object");
    assert!(
        summary["of"] == "proxy" && summary["figures"]["guards"] == 2 && summary["figures"]["relays"] == 6,
        "{summary}"
    );
    assert!(summary["figures"]["opened_connections"].as_u64().is_some_and(|opened| opened >= 2), "{summary}");
    assert_eq!(summary["if_somebody_runs"].as_array().map(Vec::len), Some(4), "{summary}");
    let words = Command::new(BINARY).args(["onion", "status", &metrics]).output().expect("it runs");
    assert!(String::from_utf8_lossy(&words.stdout).contains("10.00 % of the relays"), "{words:?}");
    let Overlay { proxy, .. } = overlay;
    let done = proxy.end();
    let count = |name: &str| done[name].as_u64().expect("a count");
    assert!(count("loops_sent") > 30 && count("loops_received") > count("loops_sent") / 2, "{done}");
    let gone = Command::new(BINARY).args(["onion", "status", &metrics]).output().expect("it runs");
    assert_eq!(gone.status.code(), Some(2), "nobody is there any more: {gone:?}");
}
