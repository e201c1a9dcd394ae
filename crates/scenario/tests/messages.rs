//! What each kind of mistake is answered with, word for word: `messages.txt` is read as the
//! user reads it. `UPDATE_MESSAGES=1 cargo test -p anabranch-scenario --test messages` writes
//! it anew.

use std::fmt::Write;
use std::path::Path;

use anabranch_scenario::file::{Override, parse_any};

/// A small overlay.
const OVERLAY: &str = r#"[run]
seconds = 60
[overlay]
peers = 6
relays = 2
limit = "400000 B/s"
controller = "q-learning"
"#;

/// Flows over each kind of link.
const FLOWS: &str = r#"[run]
seconds = 30
[dumbbell]
rate = "10 Mbit/s"
delay_ms = 10
queue = { ms = 60 }
[[link]]
name = "bridge"
from = "left"
to = "hub"
rate = "2 Mbit/s"
delay_ms = 1
[[flow]]
name = "first"
controller = "reno"
[[flow]]
name = "second"
controller = "cubic"
from = "s0"
to = "hub"
[[cross_traffic]]
from = "s0"
to = "r0"
rate = "1 Mbit/s"
"#;

/// A matrix of delays with a row that is too short.
const SHORT_ROW: &str = "controller = \"q-learning\"\n[overlay.delay]\nmodel = \"matrix\"\n\
    matrix_ms = [[1, 2], [], [], [], [], []]";

/// A matrix of delays that are none.
const NO_DELAY: &str = "controller = \"q-learning\"\n[overlay.delay]\nmodel = \"matrix\"\n\
    matrix_ms = [[0, 0, 0, 0, 0, 0], [], [], [], [], []]";

/// A mistake: the scenario, what is replaced in it by what, and what the command line sets.
type Mistake = (&'static str, &'static str, &'static str, &'static [&'static str]);

const SEED: &str = "seconds = 60";
const PEERS: &str = "peers = 6";
const LIMIT: &str = "limit = \"400000 B/s\"";
const Q_LEARNING: &str = "controller = \"q-learning\"";
const LENGTH: &str = "seconds = 30";
const QUEUE: &str = "queue = { ms = 60 }";
const RATE: &str = "rate = \"10 Mbit/s\"";
const DELAY: &str = "delay_ms = 10";
const RENO: &str = "controller = \"reno\"";
const CUBIC: &str = "controller = \"cubic\"";
const CROSS: &str = "rate = \"1 Mbit/s\"";

const MISTAKES: &[Mistake] = &[
    // Not TOML.
    (OVERLAY, "[overlay]", "[overlay", &[]),
    (OVERLAY, LIMIT, "limit = 400000 B/s", &[]),
    (OVERLAY, PEERS, "peers = 6\npeers = 7", &[]),
    // Tables and keys that nobody knows.
    (OVERLAY, "[overlay]", "[overlaid]", &[]),
    (OVERLAY, PEERS, "pears = 6", &[]),
    (OVERLAY, PEERS, "peers = 6\nzebra = 6", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delays]", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\ndelay = { model = \"plane\", spam_ms = 3 }", &[]),
    (FLOWS, "[dumbbell]", "[dumbell]", &[]),
    (FLOWS, "from = \"s0\"\nto = \"hub\"", "form = \"s0\"\nto = \"hub\"", &[]),
    (FLOWS, QUEUE, "queue = { packet = 60 }", &[]),
    (FLOWS, QUEUE, "queue = { kind = \"codel\", packets = 100, quantum_bytes = 300 }", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { blok_bytes = 3 }", &[]),
    // Values of another type.
    (OVERLAY, PEERS, "peers = \"6\"", &[]),
    (OVERLAY, PEERS, "peers = 6.0", &[]),
    (OVERLAY, LIMIT, "limit = 400000", &[]),
    (OVERLAY, Q_LEARNING, "controller = 5", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\ndelay = 5", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.misbehave]\npeers = [1]", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\nparameters = 3", &[]),
    (OVERLAY, "seconds = 60", "seconds = 1979-05-27", &[]),
    (FLOWS, QUEUE, "queue = 60", &[]),
    (FLOWS, QUEUE, "reorder = \"yes\"", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = \"bulky\"", &[]),
    (FLOWS, "to = \"hub\"\nrate", "to = 7\nrate", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = 3 }", &[]),
    // Values out of their range, units.
    (OVERLAY, PEERS, "peers = 1", &[]),
    (OVERLAY, SEED, "seed = -1", &[]),
    (OVERLAY, SEED, "seed = 18446744073709551616", &[]),
    (OVERLAY, LIMIT, "limit = \"400000\"", &[]),
    (OVERLAY, LIMIT, "limit = \"400000 Bps\"", &[]),
    (OVERLAY, LIMIT, "limit = \"0 B/s\"", &[]),
    (OVERLAY, LIMIT, "limit = \"200 Gbit/s\"", &[]),
    (OVERLAY, PEERS, "peers = 6\nloss = 1.5", &[]),
    (OVERLAY, PEERS, "peers = 6\nloss = nan", &[]),
    (OVERLAY, PEERS, "peers = 6\nloss = 1", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\nrtt.gain = 0", &[]),
    (FLOWS, LENGTH, "seconds = 0", &[]),
    (FLOWS, DELAY, "delay_ms = -1", &[]),
    (FLOWS, DELAY, "delay_ms = { uniform = [5, 4000000], every_s = 1 }", &[]),
    // What must be said.
    (OVERLAY, PEERS, "", &[]),
    (OVERLAY, Q_LEARNING, "", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.join]", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[[overlay.limit_change]]\nat_s = 5\npeers = [1]", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\ndelay.model = \"constant\"", &[]),
    (FLOWS, RATE, "", &[]),
    (FLOWS, RENO, "", &[]),
    (FLOWS, "to = \"hub\"\nrate", "rate", &[]),
    (FLOWS, CROSS, "", &[]),
    (FLOWS, RATE, "rate = { values = [\"1 Mbit/s\"] }", &[]),
    (FLOWS, QUEUE, "queue = {}", &[]),
    (FLOWS, QUEUE, "loss = { to_bad = 0.1 }", &[]),
    // Names.
    (OVERLAY, Q_LEARNING, "controller = \"q-lerning\"", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"reno\"", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"flow:policy\"", &[]),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.sender]]\npeers = [1]\ncontroller = \"flow:remy\"",
        &[],
    ),
    (OVERLAY, PEERS, "peers = 6\nlimit_model = \"windows\"", &[]),
    (FLOWS, RENO, "controller = \"rino\"", &[]),
    (FLOWS, RENO, "controller = \"kernel:reno\"\nparameters.counting = \"acks\"", &[]),
    (FLOWS, "\"second\"", "\"first\"", &[]),
    (FLOWS, "name = \"bridge\"", "name = \"s0-left\"", &[]),
    (FLOWS, "from = \"s0\"\nto = \"hub\"", "from = \"s0\"\nto = \"huub\"", &[]),
    (FLOWS, "from = \"s0\"\nto = \"r0\"", "path = [\"bridges\"]", &[]),
    (FLOWS, QUEUE, "queue = { kind = \"codle\", packets = 100 }", &[]),
    (FLOWS, "[[cross", "[steering]\nlink = \"bottelneck\"\nevery_ms = 100\n[[cross", &[]),
    (FLOWS, "[[cross", "[steering]\nlink = \"bottleneck\"\nevery_ms = 100\n[[cross", &[]),
    (FLOWS, "[[cross", "[steering]\nlink = \"bottleneck\"\nevery_ms = 100\n[[cross", &["dumbbell.rate=unlimited"]),
    (FLOWS, "[[cross", "[steering]\nlink = \"r0-right\"\nevery_ms = 100\n[[cross", &["flow.0.steered=true"]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = \"web-serch\" }", &[]),
    (FLOWS, "name = \"first\"", "name = \"\"", &[]),
    // Parameters of a controller.
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\nparameters.epsilom = 0.1", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.parameters]\nepsilon = 2", &[]),
    (FLOWS, CUBIC, "controller = \"cubic\"\nparameters = { hystartt = true }", &[]),
    (FLOWS, CUBIC, "controller = \"cubic\"\nparameters = { remainder = \"kept\" }", &[]),
    (FLOWS, CUBIC, "controller = \"remy\"", &[]),
    // Keys that contradict each other.
    (OVERLAY, PEERS, "peers = 6\nqueue_ms = 5", &[]),
    (OVERLAY, PEERS, "peers = 3", &[]),
    (OVERLAY, PEERS, "peers = 100000", &[]),
    (OVERLAY, LIMIT, "limit = \"1400 B/s\"", &[]),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\ndelay = { model = \"matrix\", matrix_ms = [[0, 1], [1, 0]] }",
        &[],
    ),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[[overlay.misbehave]]\npeers = \"4-6\"\ndrop = 1", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[[overlay.misbehave]]\npeers = [1]", &[]),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.misbehave]]\npeers = [1]\ndrop = 1\nfrom_s = 9\nuntil_s = 9",
        &[],
    ),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[[overlay.misbehave]]\npeers = [1]\nstamp_factor = 0", &[]),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.sender]]\npeers = [1]\ncontroller = \"perfect\"",
        &[],
    ),
    (OVERLAY, Q_LEARNING, "controller = \"perfect\"\n[[overlay.sender]]\npeers = [1]\ncontroller = \"random\"", &[]),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.sender]]\npeers = [99]\ncontroller = \"random\"",
        &[],
    ),
    (OVERLAY, "[overlay]", "[[flow]]\n[overlay]", &[]),
    (FLOWS, QUEUE, "queue = { ms = 60, packets = 3 }", &[]),
    (FLOWS, QUEUE, "queue = { kind = \"red\", packets = 9, min_threshold = 20 }", &[]),
    (FLOWS, RATE, "rate = { at_s = [0, 1], values = [\"1 Mbit/s\"] }", &[]),
    (FLOWS, RATE, "rate = { at_s = [0, 0], values = [\"1 Mbit/s\", \"2 Mbit/s\"] }", &[]),
    (FLOWS, DELAY, "delay_ms = { uniform = [5, 4], every_s = 1 }", &[]),
    (FLOWS, LENGTH, "seconds = 30\ngoodput_from_s = 40", &[]),
    (FLOWS, LENGTH, "seconds = 30\nsample_every_s = 1e-9", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nstart_s = 5\nstop_s = 5", &[]),
    (FLOWS, RENO, "controller = \"reno\"\ncount = 2", &["dumbbell.pairs=1"]),
    (FLOWS, RENO, "controller = \"reno\"\nsteered = true", &[]),
    (FLOWS, CUBIC, "controller = \"cubic\"\nworkload = { block_bytes = 3, every_s = 1 }", &[]),
    (FLOWS, CROSS, "rate = \"1 Mbit/s\"\npattern = { on_s = 1, off_mean_s = 1 }", &[]),
    // What the command line sets.
    (OVERLAY, "", "", &["overlay.relays=40"]),
    (OVERLAY, "", "", &["overlay.relay=4"]),
    (OVERLAY, "", "", &["overlay.peers.x=3"]),
    (OVERLAY, "", "", &["overlay..x=3"]),
    (OVERLAY, "", "", &["overlay.delay={model=\"constant\",constant_ms=-1}"]),
    (OVERLAY, "", "", &["overlay.delay=[1,"]),
    (OVERLAY, "", "", &["overlay.peers=3"]),
    (OVERLAY, "", "", &["overlay.queue_ms=4"]),
    (FLOWS, "", "", &["flow.7.controller=reno"]),
    (FLOWS, "", "", &["flow.all.controller=rino"]),
    (FLOWS, "", "", &["flow.1.parameters.windw=4"]),
    (FLOWS, "", "", &["dumbbell.queue.ms=-5"]),
    // More of the same kinds, at other keys.
    (OVERLAY, OVERLAY, "", &[]),
    (OVERLAY, OVERLAY, "[run]\nseconds = 3", &[]),
    (OVERLAY, "[overlay]", "[[flwo]]", &[]),
    (OVERLAY, SEED, "seconds = 0", &[]),
    (OVERLAY, SEED, "sed = 1", &[]),
    (OVERLAY, SEED, "watch = 6", &[]),
    (OVERLAY, PEERS, "peers = 1000001", &[]),
    (OVERLAY, PEERS, "peers = 20000", &[]),
    (OVERLAY, PEERS, "peers = 6\nknown_peers = 2", &[]),
    (OVERLAY, "relays = 2", "relays = 9", &[]),
    (OVERLAY, LIMIT, "limit = \"fast\"", &[]),
    (OVERLAY, PEERS, "peers = 6\nlimit_model = \"bucket\"\nbucket_bytes = 9", &[]),
    (OVERLAY, PEERS, "peers = 6\npacket_bytes = 65508", &[]),
    (OVERLAY, PEERS, "peers = 6\nloss = -0.1", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\njitter = nan", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\nmodel = plane", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\nmodel = \"plain\"", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\nconstant_ms = 3", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\nstretch = 0", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\nspan_ms = 0\naccess_ms = 0", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.delay]\nday = 07:32:00", &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\ndelay = 07:32:00", &[]),
    (OVERLAY, Q_LEARNING, SHORT_ROW, &[]),
    (OVERLAY, Q_LEARNING, NO_DELAY, &[]),
    (OVERLAY, Q_LEARNING, "controller = \"q-learning\"\n[overlay.parameters]\ndiscount = 0.5\nepsilom = 1", &[]),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.limit_change]]\nat_s = 5\npeers = [1, 6]\nlimit = \"1 MB/s\"",
        &[],
    ),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.limit_change]]\nat_s = 5\npeers = []\nlimit = \"1 MB/s\"",
        &[],
    ),
    (
        OVERLAY,
        Q_LEARNING,
        "controller = \"q-learning\"\n[[overlay.limit_change]]\nat_s = 5\npeers = [1]\nlimit = \"0 B/s\"",
        &[],
    ),
    (OVERLAY, "", "", &["overlay.controller=aimed"]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nack_evry = 1", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nrecovery = \"rfc667\"", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nleast_timeout_ms = 200", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nrecovery = \"rack\"\nrestart_after_idle = true", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nrecovery = \"rfc6582\"\nleast_timeout_ms = 0.5", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nreduction = \"rfc6937\"", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nrecovery = \"rfc6582\"\npartial_ack = \"next-seg\"", &[]),
    (FLOWS, LENGTH, "seconds = 30\n[packets]\nrecovery = \"rfc6675\"\nreduction = \"prr\"", &[]),
    (FLOWS, QUEUE, "pairs = 2\naccess_delay_ms = [1, 2, 3]", &[]),
    (FLOWS, RATE, "rate = { at_s = [1, 2], values = [\"1 Mbit/s\", \"2 Mbit/s\"] }", &[]),
    (FLOWS, DELAY, "delay_ms = 0", &[]),
    (FLOWS, QUEUE, "queue = { kind = \"fifo\", ms = 1 }", &[]),
    (FLOWS, QUEUE, "queue = 07:32:00", &[]),
    (FLOWS, QUEUE, "loss = { at_s = [0], values = [1] }", &[]),
    (FLOWS, QUEUE, "loss = { to_bad = 0.1, to_good = 0, loss_bad = 0.5 }", &[]),
    (FLOWS, "to = \"hub\"\nrate", "to = \"left\"\nrate", &[]),
    (FLOWS, "rate = \"2 Mbit/s\"", "rate = \"0 bit/s\"", &[]),
    (FLOWS, "rate = \"2 Mbit/s\"", "rate = \"2 Mbit/s\"\nboth_ways = false", &[]),
    (FLOWS, CUBIC, "controller = \"fixed\"\nparameters = { windw = 20 }", &[]),
    (FLOWS, RENO, "controller = \"kernel:cubik\"", &[]),
    (FLOWS, "name = \"first\"", "name = \"first\"\ncount = 2", &[]),
    (FLOWS, "from = \"s0\"\nto = \"hub\"", "from = \"s7\"\nto = \"hub\"", &[]),
    (FLOWS, "from = \"s0\"\nto = \"hub\"", "from = \"s0\"\nto = \"s0\"", &[]),
    (FLOWS, "from = \"s0\"\nto = \"hub\"", "from = \"s0\"\nto = [\"hub\", \"r0\"]", &[]),
    (FLOWS, "from = \"s0\"\nto = \"r0\"", "path = [\"bridge\", \"bottleneck\"]", &[]),
    (
        FLOWS,
        CROSS,
        "rate = \"1 Mbit/s\"\n[[cross_traffic]]\nname = \"cross0\"\npath = [\"bridge\"]\nrate = \"1 Mbit/s\"",
        &[],
    ),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = { cdf = [[100, 0.25], [50, 1]] } }", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = { cdf = [[100, 0.25], [200, 0.2]] } }", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = { cdf = [[100, 0.25], [200]] } }", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = { cdf = [[100, 0.25], [200, 0.9]] } }", &[]),
    (
        FLOWS,
        RENO,
        "controller = \"reno\"\nworkload = { sizes = { cdf = [[0.5, 0.25], [200, 1]], interpolate = \"log\" } }",
        &[],
    ),
    (
        FLOWS,
        RENO,
        "controller = \"reno\"\nworkload = { sizes = { cdf = [[1, 0], [9, 1]], interpolate = \"lag\" } }",
        &[],
    ),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = \"web-search\", new_connections = true }", &[]),
    (FLOWS, RENO, "controller = \"reno\"\nworkload = { sizes = \"web-search\", every_s = 1, off_mean_s = 1 }", &[]),
];

fn messages() -> String {
    let mut out = String::new();
    for (i, (text, from, to, changes)) in MISTAKES.iter().enumerate() {
        assert!(text.contains(from), "{from}");
        let changes: Vec<Override> = changes.iter().map(|change| Override::set(change).unwrap()).collect();
        let error = match parse_any(&text.replacen(from, to, 1), "s.toml", &changes) {
            Ok(scenario) => panic!("{to:?} {changes:?} gave {scenario:?}"),
            Err(error) => error.to_string(),
        };
        assert!(!error.contains('\n'), "{error:?}");
        let said = to.replace('\n', " | ");
        writeln!(out, "{:3}  {said}\n     {error}\n", i + 1).unwrap();
    }
    out
}

#[test]
fn every_mistake_is_answered_as_it_was() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt");
    let messages = messages();
    if std::env::var_os("UPDATE_MESSAGES").is_some() {
        std::fs::write(&path, &messages).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (now, before) in messages.lines().zip(kept.lines()) {
        assert_eq!(now, before, "other words: write tests/messages.txt anew with UPDATE_MESSAGES=1");
    }
    assert_eq!(messages.lines().count(), kept.lines().count());
}
