use std::sync::atomic::{AtomicBool, Ordering};

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

#[test]
fn a_flooded_authority_goes_on_making_lists() {
    let overlay = Overlay::start(80, 6, Some(6), |_| Some(b"a page".to_vec()));
    let target = overlay.authorities[0];
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
    // Room for its two keys, and no more.
    let script = "mount -t tmpfs -o size=8k none \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&state).arg(BINARY);
    command.args(["onion", "relay", "--listen", "127.1.120.1:0", "--network"]).arg(&overlay.network);
    let mut relay = Process::of(command.arg("--state").arg(&state));
    let code = relay.code();
    let lines = relay.lines();
    if lines.iter().any(|line| line.contains("unshare") || line.contains("mount:")) {
        println!("skipped: a small disk needs root, unshare and mount: {lines:?}");
        return;
    }
    assert_eq!(code, Some(2), "{lines:?}");
    let told = lines.iter().any(|line| line.contains("is not kept") && line.contains("No space left on device"));
    assert!(told, "{lines:?}");
}
