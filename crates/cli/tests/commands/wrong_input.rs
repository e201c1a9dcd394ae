//! Whatever is wrong with what the user says: code 2, one message that says where and
//! what would be right, nothing on standard output, nothing half-written.

use crate::common::{Place, SMALL};

#[test]
fn a_scenario_is_refused_at_its_line_before_anything_is_made() {
    let peers = "peers = 6";
    for (from, to, expected) in [
        ("\"q-learning\"", "\"q-learnin\"", "s.toml:7:1: overlay.controller = \"q-learnin\": there is no controller"),
        ("\"q-learning\"", "\"q-learnin\"", "did you mean \"q-learning\"?"),
        (peers, "peers = 3", "s.toml:6:1: overlay.relays = 2: 2 relays of 2 known peers"),
        (peers, "peers = 6\nlimit = \"0 B/s\"", "s.toml:6:1: overlay.limit = \"0 B/s\": nothing would ever pass"),
        (peers, "peers = 1", "s.toml:5:1: overlay.peers = 1: expected a whole number from 2 to 1000000"),
        (peers, "peers = 6\nloss = 1.5", "s.toml:6:1: overlay.loss = 1.5: expected a number from 0 to 1"),
        (
            peers,
            "peers = 6\npacket_bytes = 70000",
            "s.toml:6:1: overlay.packet_bytes = 70000: expected a whole number from 1",
        ),
        (
            peers,
            "peers = 6\nqueue_ms = 1",
            "s.toml:6:1: overlay.queue_ms = 1: this belongs to overlay.limit_model = \"queue\"",
        ),
        (peers, "peers = 6\npears = 6", "s.toml:6:1: overlay.pears = 6: unknown key; did you mean \"peers\"?"),
        (peers, "peers = 6\ndelay.jitter = -1", "s.toml:6:7: overlay.delay.jitter = -1: expected a number from 0 to 1"),
        (
            peers,
            "peers = 6\nparameters.epsilon = 7",
            "s.toml:6:12: overlay.parameters.epsilon = 7: epsilon = 7 is not between",
        ),
        (
            peers,
            "peers = 6\nparameters.discount = 0\nparameters.epsilon = \"x\"",
            "s.toml:7:12: overlay.parameters.epsilon = \"x\": epsilon is text in quotes; expected a number",
        ),
        (
            peers,
            "peers = 6\nparameters.max_state = 9999999999",
            "s.toml:6:12: overlay.parameters.max_state = 9999999999: max_state is 9999999999; expected a whole number \
             from 0 to 4294967295",
        ),
        (
            peers,
            "peers = 6\nparameters.max_state = 1.5",
            "max_state is a number with a fraction; expected a whole number",
        ),
        (
            peers,
            "peers = 6\nparameters.exploration = \"x\"",
            "s.toml:6:12: overlay.parameters.exploration = \"x\": exploration is \"x\"; expected `epsilon-greedy` or",
        ),
        ("watch = 1", "watch = 6", "s.toml:3:1: run.watch = 6: expected a whole number from 0 to 5"),
        ("[overlay]", "[overlay", "s.toml:4:9: this is not TOML"),
    ] {
        assert!(SMALL.contains(from));
        let place = Place::new(&SMALL.replacen(from, to, 1));
        for arguments in [
            &["run", "s.toml", "--json", "--out", "out"][..],
            &["sweep", "s.toml", "--json", "--seeds", "2", "--out", "out"],
        ] {
            place.say(arguments).refuses(expected);
            assert!(!place.path("out").exists(), "{to} left a folder");
        }
    }
}

#[test]
fn an_overlay_that_does_not_fit_into_memory_is_refused_with_an_estimate_before_it_is_built() {
    let huge = SMALL.replacen("peers = 6", "peers = 1000000\nknown_peers = 92", 1);
    let place = Place::new(&huge);
    let fits = std::fs::read_to_string("/proc/meminfo").is_ok_and(|info| {
        let free = info.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or("0");
        free.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) > 40 << 20
    });
    if !fits {
        place.say(&["run", "s.toml", "--out", "out"]).refuses("an overlay of 1000000 peers, of whom each knows 92");
        assert!(!place.path("out").exists());
    }
    // More than any machine has.
    let bench = ["bench", "overlay", "--peers", "1000000", "--known", "20000", "--json"];
    place.say(&bench).refuses("GiB at least, and this machine has");
    place.say(&["bench", "overlay", "--peers", "1000001"]).refuses("an overlay has at most 1000000 peers");
}

#[test]
fn an_option_is_refused_under_its_name() {
    let place = Place::new(SMALL);
    for (more, expected) in [
        (&["--set", "overlay.relays=9"][..], "--set overlay.relays=9: expected a whole number from 1 to 8"),
        (&["--set", "overlay.relays"], "--set overlay.relays: expected KEY=VALUE"),
        (&["--set", "overlay.relais=2"], "did you mean \"relays\"?"),
        (&["--set", "overlay.matrix=[1"], "--set overlay.matrix=[1: the value is not TOML"),
        (
            &["--seed", "18446744073709551615"],
            "--seed 18446744073709551615: expected a whole number from 0 to 9223372036854775807",
        ),
        (&["--seed", "minus"], "invalid value 'minus' for '--seed <SEED>': expected a whole number, not below 0"),
        (&["--seed", "-1"], "invalid value '-1' for '--seed <SEED>': expected a whole number, not below 0"),
        (&["--seed", "1e3"], "expected a whole number"),
        (&["--seed", "99999999999999999999"], "expected a smaller number"),
        (&["--sets", "x=1"], "unexpected argument '--sets'"),
    ] {
        place.say(&[&["run", "s.toml", "--json"][..], more].concat()).refuses(expected);
    }
    for (more, expected) in [
        (&["--grid", "overlay.relays=1,9"][..], "--grid overlay.relays=9: expected a whole number from 1 to 8"),
        (&["--grid", "overlay.relays"], "expected KEY=VALUE,VALUE,..."),
        (&["--grid", "overlay.relays=1", "--grid", "overlay.relays=2"], "has a list already"),
        (&["--seeds", "9..1"], "expected how many seeds"),
        (&["--threads", "0"], "invalid value '0' for '--threads <THREADS>': expected a whole number from 1 to 1024"),
        (&["--threads", "2000"], "expected a whole number from 1 to 1024"),
    ] {
        place.say(&[&["sweep", "s.toml", "--json", "--out", "out"][..], more].concat()).refuses(expected);
        assert!(!place.path("out").exists(), "{more:?} left a folder");
    }
    place.say(&["sweep", "s.toml"]).refuses("--out <DIR>");
    place.say(&["run", "s.toml", "--threads", "2000"]).refuses("expected a whole number from 1 to 1024");
    place.say(&["soak", "--cases", "1", "--threads", "2000"]).refuses("expected a whole number from 1 to 1024");
    for (more, expected) in [
        (&["--controller", "perfect"][..], "exists only in simulation"),
        (&["--controller", "random"], "limits nothing"),
        (&["--set", "sum=false"], "unknown field `sum`"),
    ] {
        place.say(&[&["bench", "transfer"][..], more].concat()).refuses(expected);
    }
    // No case would break no rule.
    place.say(&["soak", "--cases", "0"]).refuses("invalid value '0'");
    place.say(&["soak", "--hours", "-1"]).refuses("expected a number of simulated hours above 0, got \"-1\"");
}

#[test]
fn an_option_that_would_do_nothing_is_refused() {
    let place = Place::new(SMALL);
    for (arguments, expected) in [
        (&["agent", "--identity", "key", "--enforce"][..], "<LINK>"),
        (&["agent", "--identity", "key", "--monitor"], "<LINK>"),
        (&["agent", "--identity", "key", "--limit", "1 Mbit/s"], "<LINK>"),
        (&["stream", "serve", "absent.ts", "--http-origin", "x"], "expected a site such as https://example.org"),
        (&["stream", "serve", "absent.ts", "--http-origin", "https://a.example/"], "expected a site"),
        (&["stream", "serve", "absent.ts", "--http-origin", "https://A.example"], "expected a site"),
        (&["stream", "serve", "absent.ts", "--http-origin", "https://a.example:443"], "cannot read absent.ts"),
        (&["stream", "serve", "pattern:", "--loop"], "--loop begins a file again: pattern: is none"),
        (&["stream", "serve", "a.ts", "--ingest-token", "x"], "SOURCE must be ingest, not a.ts"),
        (&["stream", "serve", "absent.ts", "--http-name", "a/b"], "expected a name such as tv.example.org"),
        (&["stream", "serve", "absent.ts", "--http-name", "tv.example:80"], "expected a name"),
        (&["stream", "serve", "absent.ts", "--http-name", "TV.example"], "cannot read absent.ts"),
        (&["stream", "serve", "ingest", "--ingest-token", ""], "expected a token of one character at least"),
        (&["stream", "serve", "ingest", "--ingest-token", "x "], "without spaces at its ends"),
        (&["stream", "serve", "pattern:", "--announce", "0.0.0.0:7443"], "expected where viewers reach this server"),
        (&["stream", "serve", "pattern:", "--announce", "192.0.2.1:0"], "a port from 1 on"),
        (&["stream", "demo", "--bitrate", "100 kbit/s", "--out", "d"], "100"),
        (&["stream", "demo", "--liars", "dropper=100"], "expected fewer liars, as with --liars none"),
    ] {
        place.say(arguments).refuses(expected);
    }
    assert_eq!(place.names("."), ["s.toml"]);
}

#[test]
fn where_an_address_is_taken_the_option_is_named_that_says_another() {
    let taken = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = Place::new(SMALL);
    let serve = ["stream", "serve", "pattern:", "--key", "key", "--listen", &address];
    place.say(&serve).refuses(&format!("cannot listen at {address}"));
    place.say(&serve).refuses("--listen says where else");
}

#[test]
fn an_address_is_refused_with_how_one_is_written() {
    const LINK: &str = "anabranch://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa@127.0.0.1:1";
    let place = Place::new(SMALL);
    for arguments in [
        &["relay", "--listen", "localhost:4000"][..],
        &["relay", "--metrics", "9464"],
        &["receive", "--listen", ":4000"],
        &["quic", "receive", "--listen", "x"],
        &["stream", "serve", "pattern:", "--listen", "x"],
        &["stream", "serve", "pattern:", "--http", "127.0.0.1:99999"],
        &["stream", "watch", LINK, "--listen", "x"],
        &["onion", "relay", "--network", "n", "--listen", "x"],
        &["onion", "status", "x"],
        &["onion", "proxy", "--network", "n", "--socks", "x"],
        &["coordinate", "f", "--page", "x"],
    ] {
        place.say(arguments).refuses("expected IP:PORT, such as 127.0.0.1:4000 or [::]:4000");
    }
}

#[test]
fn a_controller_that_is_made_of_a_file_says_how_that_is_given() {
    let place = Place::new(SMALL);
    std::fs::write(place.path("a"), "a").unwrap();
    let (key, to) = (format!("09{}", "0".repeat(62)), "127.0.0.1:9");
    for (controller, what) in [("remy", "the table that it runs"), ("policy", "the policy that it runs")] {
        let expected = format!("{controller}\" needs {what}: give its file by --set file=FILE");
        place.say(&["quic", "send", "a", "--to", to, "--key", &key, "--controller", controller]).refuses(&expected);
        let controller = format!("flow:{controller}");
        let send = ["send", "a", "--to", to, "--key", &key, "--relays", "127.0.0.1:8", "--controller", &controller];
        place.say(&send).refuses(&expected);
    }
}

/// Where there are no namespaces, too: it is said before they are made.
#[cfg(target_os = "linux")]
#[test]
fn what_real_packets_cannot_be_is_refused_before_anything_is_made() {
    let flow = |controller: &str, more: &str| {
        format!("[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 1\n[[flow]]\ncontroller = \"{controller}\"\n{more}")
    };
    for verb in ["emulate", "compare"] {
        let said = Place::new(&flow("reno", "[packets]\ndata_bytes = 15\n")).say(&[verb, "s.toml"]);
        let why =
            "packets.data_bytes = 15: no device has packets so short, with 52 bytes of headers; expected 16 at least";
        assert!(said.code == Some(2) && said.stderr.contains(why), "{verb}: {said:?}");
        let said = Place::new(&flow("kernel:copa", "")).say(&[verb, "s.toml"]);
        let why = "flow \"flow0\": the kernel has no congestion control \"copa\"; it offers ";
        assert!(said.code == Some(2) && said.stderr.contains(why), "{verb}: {said:?}");
    }
}

#[test]
fn a_name_that_is_like_no_other_is_told_no_nearest_one() {
    let flow = |key: &str| format!("[dumbbell]\nrate = \"1 Mbit/s\"\ndelay_ms = 1\n[[flow]]\n{key}\n");
    let said = Place::new(&flow("controller = \"kernel:nope\"")).say(&["run", "s.toml"]);
    said.refuses("there is no controller named \"nope\" (known: reno, ");
    let exponent = Place::new(&flow("controller = \"reno\"\nworkload = { once_bytes = 1e18 }"));
    exponent.say(&["run", "s.toml"]).refuses("found a number with a point or an exponent");
}

/// What is asked for is held against the disk and the tables before a minute is spent.
#[test]
fn validate_refuses_a_table_that_holds_nothing_and_a_folder_that_is_none() {
    let place = Place::new(SMALL);
    std::fs::write(place.path("empty.csv"), "").unwrap();
    let header = "program,flows,controller,bottleneck_mbit_s,loss,goodput_sum_mbit_s,owd_flow1_ms,retransmits\n";
    std::fs::write(place.path("header.csv"), header).unwrap();
    for table in ["empty.csv", "header.csv"] {
        place.say(&["validate", "--reference", table]).refuses(&format!("{table}: it has no row"));
    }
    let begun = std::time::Instant::now();
    place.say(&["validate", "--out", "s.toml"]).refuses("cannot write s.toml: it is a file; expected a folder");
    let bench = ["bench", "overlay", "--peers", "20", "--million-hops", "100", "--repeat", "100", "--out", "s.toml"];
    place.say(&bench).refuses("cannot write s.toml: it is a file; expected a folder");
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn what_cannot_be_read_or_written_is_named() {
    let place = Place::new(SMALL);
    place.say(&["run", "absent.toml"]).refuses("cannot read the scenario absent.toml: No such file");
    place.say(&["run", "."]).refuses("cannot read the scenario .");
    std::fs::write(place.path("latin.toml"), b"[run]\nseed = \"\xe9\"\n").unwrap();
    place
        .say(&["run", "latin.toml"])
        .refuses("cannot read the scenario latin.toml: stream did not contain valid UTF-8");
    place.say(&["sweep", "absent.toml", "--out", "out"]).refuses("cannot read the scenario absent.toml");
    std::fs::write(place.path("file"), "mine").unwrap();
    // A folder is asked for before anything is simulated: this would take hours.
    let long = ["--set", "run.seconds=10000000", "--out"];
    place
        .say(&[&["run", "s.toml"], &long[..], &["file"]].concat())
        .refuses("cannot write file: it is a file; expected a folder");
    place.say(&[&["run", "s.toml"], &long[..], &["file/below"]].concat()).refuses("cannot write file/below");
    place
        .say(&[&["sweep", "s.toml"], &long[..], &["file"]].concat())
        .refuses("cannot write file: it is a file; expected a folder");
    assert_eq!(std::fs::read(place.path("file")).unwrap(), b"mine");
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_said_and_leaves_nothing_half_written() {
    let place = Place::new(SMALL);
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for arguments in [&["run", "s.toml", "--json"][..], &["sweep", "s.toml", "--json", "--out", "out"]] {
        let output = place.command(arguments).stdout(full()).output().unwrap();
        crate::common::said(output).refuses("No space left on device");
    }
    // Who does not get the figures has the files.
    let output = place.command(&["run", "s.toml", "--out", "kept"]).stdout(full()).output().unwrap();
    crate::common::said(output).refuses("No space left on device");
    assert_eq!(place.names("kept"), ["report.html", "series.parquet", "summary.json"]);
    // No file may grow beyond a kilobyte, and the signal that says so is ignored: the
    // largest of the three files then fails where a full disk would let it fail.
    let shell = "trap '' XFSZ; ulimit -f 1; exec \"$0\" run s.toml --out small";
    let output = std::process::Command::new("bash")
        .args(["-c", shell, env!("CARGO_BIN_EXE_anabranch")])
        .current_dir(place.path("."))
        .output()
        .unwrap();
    let said = crate::common::said(output);
    assert!(said.code == Some(2) && said.stderr.contains("cannot write small/"), "{said:?}");
    assert!(said.stdout.contains("received by a node"), "what was measured is not lost: {said:?}");
    assert!(place.names("small").is_empty(), "{:?}", place.names("small"));
}

#[cfg(target_os = "linux")]
#[test]
fn standard_output_that_cannot_be_written_is_said() {
    let place = Place::new(SMALL);
    let world = ["bench", "world", "--flows", "2", "--repeat", "1"];
    for arguments in [
        &["controllers"][..],
        &["reproduce", "--list"],
        &["soak", "--repeat", "1"],
        &["completions", "bash"],
        &["man"],
        &world,
        &[&world[..], &["--json"]].concat(),
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = place.command(arguments).stdout(full).output().unwrap();
        crate::common::said(output).refuses("standard output cannot be written: No space left on device");
    }
}

/// Files come before what is printed: a reader that has gone ends the program while it prints.
#[cfg(unix)]
#[test]
fn who_does_not_get_the_figures_has_the_files() {
    let place = Place::new(SMALL);
    std::fs::write(place.path("flows.toml"), super::run_flows::SMALL).unwrap();
    std::fs::write(place.path("attack.toml"), super::onion_attack::SMALL).unwrap();
    let measured = ["report.html", "series.parquet", "summary.json"];
    for (arguments, folder, files) in [
        (&["run", "s.toml", "--out", "run"][..], "run", &measured[..]),
        (&["run", "s.toml", "flows.toml", "--out", "runs"], "runs/s", &measured),
        (&["run", "flows.toml", "--qlog", "--out", "flows"], "flows", &measured),
        (&["onion", "attack", "attack.toml", "--out", "attack"], "attack", &["attack.json"]),
        (
            &["reproduce", "remy-golden", "--quick", "--json", "--out", "papers"],
            "papers/remy-golden",
            &["report.html", "rows.json"],
        ),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(arguments).stdout(writer).output().unwrap();
        let said = crate::common::said(output);
        assert_eq!(said.code, Some(141), "what a shell says of SIGPIPE: {said:?}");
        let names = place.names(folder);
        assert!(files.iter().all(|file| names.iter().any(|name| name == file)), "{arguments:?}: {names:?}");
    }
    assert!(place.names("flows").iter().any(|name| name.ends_with(".sqlog")), "{:?}", place.names("flows"));
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_seen_enough_ends_the_program_quietly() {
    let place = Place::new(SMALL);
    let mut command = place.command(&["reproduce", "--list"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = command.stdout(writer).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.is_empty() && !output.status.success(), "{:?}: {said}", output.status);
}
