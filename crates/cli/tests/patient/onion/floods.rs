use std::sync::atomic::{AtomicBool, Ordering};

use anabranch_control::rng::Rng;
use anabranch_net::onion::follow::{Follower, Following, Found};
use anabranch_net::onion::network_file;
use anabranch_onion::RelayIndex;
use anabranch_onion::crypto::{PublicKey as RelayKey, Real};
use anabranch_onion::directory::{Document, Remembered};
use anabranch_onion::hidden::body::{BLOCKS_FILLING, BLOCKS_OPENING, Open, Request};
use anabranch_onion::hidden::descriptor::SALT;
use anabranch_onion::hidden::mailbox::CHECKS_PER_S;
use anabranch_onion::hidden::{Descriptor, MAILBOX, MailboxAt, ReceiverSecret};
use anabranch_onion::packet::{Hop, Label, PacketsPerKey, PathKeys, body_mut};
use anabranch_onion::reply::ReplyBlock;
use anabranch_onion::session::ServiceSecret;
use anabranch_onion::size::DATAGRAM;

use super::*;

/// Runs `flood` again and again while `run` runs.
fn flooded<R>(mut flood: impl FnMut() + Send + 'static, run: impl FnOnce() -> R) -> R {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let thread = thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            flood();
        }
    });
    let result = run();
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("a flood does not panic");
    result
}

/// Bytes that nobody foresees.
fn fill(random: &mut u64, bytes: &mut [u8]) {
    for byte in bytes {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *byte = (*random >> 56) as u8;
    }
}

#[test]
fn a_guard_flooded_with_garbage_set_ups_and_lies_carries_a_download() {
    const LENGTH: usize = 8_000_000;
    let mut overlay = Overlay::start(60, 8, None, |path| match path {
        "/small" => Some(pattern(10_000)),
        "/large" => Some(pattern(LENGTH)),
        _ => None,
    });
    overlay.fetch("/small", |_| {});
    let guards = overlay.guards();
    let to: Vec<SocketAddr> = guards.iter().map(|guard| overlay.relays[*guard].address).collect();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.set_nonblocking(true).expect("a socket");
    let counts = Arc::new(Mutex::new([0_usize; 2]));
    let counted = Arc::clone(&counts);
    let (mut random, mut round) = (1, 0_usize);
    let flood = move || {
        let mut sent = [0; 2];
        for (number, to) in to.iter().cycle().take(60).enumerate() {
            let mut datagram = [0; 1400];
            fill(&mut random, &mut datagram);
            // Set-ups as it seems, packets under unknown keys, links of others, and what is nothing.
            let length = match (number + round) % 4 {
                0 => {
                    datagram[31] |= 0x80;
                    1400
                }
                1 => 1400,
                2 => {
                    datagram[0] = 1 + (number % 5) as u8;
                    datagram[25..64].fill(0);
                    sent[0] += 64;
                    64
                }
                _ => 1 + number * 20,
            };
            // A full socket is part of a flood.
            let _ = socket.send_to(&datagram[..length], to);
        }
        let mut answer = [0; 2000];
        while let Ok((length, _)) = socket.recv_from(&mut answer) {
            sent[1] += length;
        }
        round += 1;
        let mut counted = counted.lock().expect("nobody panics with it");
        (counted[0], counted[1]) = (counted[0] + sent[0], counted[1] + sent[1]);
        thread::sleep(Duration::from_millis(2));
    };
    let fetched = flooded(flood, || overlay.fetch("/large", |_| {}));
    assert!(fetched.bytes == pattern(LENGTH), "{} bytes", fetched.bytes.len());
    let [asked, answered] = *counts.lock().expect("nobody panics with it");
    assert!(answered > 0 && answered <= asked, "{answered} bytes of answers to {asked} bytes of links");
    for guard in guards.into_iter().rev() {
        let done = overlay.relays.remove(guard).process.end();
        let dropped = |reason: &str| done["dropped"][reason].as_u64().expect("a count");
        assert!(dropped("header") + dropped("over-budget") > 100 && dropped("unknown-id") > 100, "{done}");
        assert!(done["memory_bytes"].as_u64().expect("a size") <= 64 << 20, "{done}");
        assert!(done["clients"].as_u64().expect("a count") <= 2, "a lie makes no link: {done}");
        assert!(done["to_clients"].as_u64().expect("a count") > 0, "{done}");
    }
}

/// The list of relays that the network of this file has.
fn document(network: &Path, relays: usize) -> Document {
    let text = fs::read_to_string(network).expect("a file");
    let mut follower = Follower::start(Following {
        network: network_file::parse(&text).expect("a network"),
        remembered: Remembered::default(),
        from: None,
        describe: None,
        keep: Box::new(|_| Ok(())),
        wake: Box::new(|| {}),
    })
    .expect("it follows");
    let begun = Instant::now();
    loop {
        match follower.poll() {
            Some(Found::Document(document)) if document.len() == relays => return *document,
            _ => assert!(begun.elapsed() < PATIENCE, "no list of {relays} relays"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// A block that nobody made, to a relay that there is.
fn no_block(rng: &mut Rng) -> ReplyBlock {
    let mut bytes = [0; ReplyBlock::BYTES];
    bytes.iter_mut().for_each(|byte| *byte = rng.bits() as u8);
    bytes[..2].fill(0);
    ReplyBlock::from_bytes(&bytes).expect("relay 0")
}

fn seed(rng: &mut Rng) -> [u8; 32] {
    core::array::from_fn(|_| rng.bits() as u8)
}

#[test]
fn an_exit_flooded_with_openings_and_descriptors_carries_a_download() {
    const LENGTH: usize = 4_000_000;
    let mut overlay = Overlay::start(240, 8, None, |path| match path {
        "/small" => Some(pattern(10_000)),
        "/large" => Some(pattern(LENGTH)),
        _ => None,
    });
    overlay.fetch("/small", |_| {});
    let document = document(&overlay.network, 8);
    let relay = document.index_of(&overlay.relays[EXIT].identity).expect("it is listed");
    let (identity, to) = (overlay.relays[EXIT].identity, overlay.relays[EXIT].address);
    let key = document.member(relay).and_then(|member| member.descriptor.key_of(document.epoch)).expect("a key");
    let hop = Hop { relay, key: RelayKey(key), wait: anabranch_control::time::Duration::ZERO };
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    let mut keys = PathKeys::<Real>::new(PacketsPerKey::STANDARD);
    keys.begin_epoch(document.epoch, []);
    let mut rng = Rng::stream(3, "flood");
    let services = ServiceSecret::from_seed(&[4; 32]).keys();
    let begun = Instant::now();
    let flood = move || {
        for number in 0..40 {
            let request = match number % 4 {
                // Each is signed as it must be, by another key.
                0 => {
                    let owner = SecretKey::from_seed(&seed(&mut rng));
                    let blocks = (0..BLOCKS_OPENING).map(|_| no_block(&mut rng)).collect();
                    Request::Open(Open::new(&owner, &identity, document.epoch, [1; 16], blocks))
                }
                1 => {
                    let secret = ReceiverSecret::from_seed(&seed(&mut rng));
                    let at = MailboxAt { relay: RelayIndex(1), label: Label([9; 8]) };
                    let descriptor = Descriptor { keys: services.clone(), mailboxes: vec![at] };
                    let blinded = secret.blinded(document.epoch);
                    let [part, _] = descriptor.seal(&secret.address(), &blinded, document.epoch, 1, [6; SALT]);
                    Request::Publish { part: Box::new(part), answer: no_block(&mut rng) }
                }
                2 => {
                    let blocks = (0..BLOCKS_FILLING).map(|_| no_block(&mut rng)).collect();
                    Request::Fill { label: Label([number as u8; 8]), secret: [0; 16], asks: false, anew: false, blocks }
                }
                _ => {
                    let key = PublicKey(seed(&mut rng));
                    Request::Fetch { key, answers: Box::new([no_block(&mut rng), no_block(&mut rng)]) }
                }
            };
            let mut datagram = [0; DATAGRAM];
            request.write(body_mut(&mut datagram));
            // Nothing of it is ever known to arrive: each sets up a key of its own.
            let receipt = keys.seal(&[hop], MAILBOX, &mut rng, &mut datagram).expect("a path");
            keys.lost(&receipt);
            let _ = socket.send_to(&datagram, to);
        }
        thread::sleep(Duration::from_millis(10));
    };
    let fetched = flooded(flood, || overlay.fetch("/large", |_| {}));
    assert!(fetched.bytes == pattern(LENGTH), "{} bytes", fetched.bytes.len());
    let done = overlay.relays.remove(EXIT).process.end();
    let count = |name: &str| done[name].as_u64().unwrap_or_else(|| panic!("{name} in {done}"));
    let checked = count("mailboxes_opened") + count("descriptors_stored");
    assert!(checked > 10 && count("requests_refused") > 10 && count("descriptors_asked_for") > 10, "{done}");
    // Each has a signature that was checked, and checks have a budget; what was at hand first is two seconds of it.
    let most = CHECKS_PER_S * (begun.elapsed().as_secs() + 3);
    assert!(checked <= most, "{checked} signatures, of which {most} may be checked: {done}");
    assert!(count("memory_bytes") <= 64 << 20, "{done}");
}

#[test]
fn a_flooded_authority_goes_on_making_lists() {
    let overlay = Overlay::start(80, 6, Some(6), |_| Some(b"a page".to_vec()));
    let target = overlay.authorities[0].address;
    let (mut random, mut held) = (7, Vec::new());
    let flood = move || {
        if let Ok(mut stream) = TcpStream::connect_timeout(&target, Duration::from_millis(200)) {
            let mut bytes = [0; 3000];
            fill(&mut random, &mut bytes);
            // It may close before all is there.
            let _ = stream.write_all(&bytes);
            held.push(stream);
            if held.len() > 300 {
                held.drain(..150);
            }
        }
        thread::sleep(Duration::from_millis(1));
    };
    flooded(flood, || {
        let epochs = || overlay.proxy.lines().iter().filter(|line| line.contains(": 6 relays")).count();
        let (begun, before) = (Instant::now(), epochs());
        while epochs() < before + 3 {
            assert!(begun.elapsed() < PATIENCE, "lists do not come: {:?}", overlay.proxy.lines());
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(overlay.fetch("/page", |_| {}).bytes, b"a page");
    });
}

#[test]
fn a_relay_whose_disk_is_full_says_so_and_ends() {
    let overlay = Overlay::start(100, 6, Some(6), |_| None);
    let state = overlay.folder.path().join("full");
    fs::create_dir(&state).expect("a folder");
    // Room for its two keys and for whose folder it is, and no more.
    let script = "mount -t tmpfs -o size=12k none \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&state).arg(BINARY);
    command.args(["onion", "relay", "--listen", "127.1.120.1:0", "--network"]).arg(&overlay.network);
    let mut relay = Process::of(command.arg("--state").arg(&state));
    let code = relay.code();
    // Its last words may be read after its end is known.
    let is_reported = |line: &str| line.contains("is not kept") && line.contains("No space left on device");
    let is_missing = |line: &str| line.contains("unshare") || line.contains("mount:");
    let line = relay.line_where(|line| is_reported(line) || is_missing(line));
    if is_missing(&line) {
        println!("skipped: a small disk needs root, unshare and mount: {line}");
        return;
    }
    assert_eq!(code, Some(2), "{line}");
}
