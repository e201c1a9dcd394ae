//! The kernel's TCP, steered: what hosts are given holds for it, and the queue of the link stays short.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::common::Place;
use crate::common::machines::{Machines, machines};
use crate::common::running::Running;
use crate::coordination::{entry, is, link};
use nix::sched::{CloneFlags, setns};
use serde_json::Value;

/// In the namespace of machine `number`, on a thread of its own.
fn within<T: Send + 'static>(
    machines: &Machines,
    number: usize,
    act: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let namespace = File::open(Path::new("/run/netns").join(machines.name(number))).unwrap();
    thread::spawn(move || {
        setns(namespace, CloneFlags::CLONE_NEWNET).unwrap();
        act()
    })
}

/// Connections of the kernel's TCP into machine 4, by the machine that they come from.
struct Connections {
    came: Arc<[AtomicU64; 5]>,
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Whether an agent was on its own within `span`, in time since it was started: when, if it was. What it says is read up
/// to the end of it.
fn alone_within(agent: &mut Running, span: &Range<Duration>) -> Option<f64> {
    let [from, to] = [span.start, span.end].map(|at| at.as_secs_f64());
    let (mut since, mut found) = (None, None);
    loop {
        let line = agent.json();
        let at = line["at_s"].as_f64().expect("it says when");
        if at >= from {
            found = found.or(since.filter(|since| *since < to));
        }
        if at >= to {
            return found;
        }
        match line["event"].as_str() {
            Some("alone") => since = Some(at),
            Some("budget") => since = None,
            _ => {}
        }
    }
}

/// Longer than a lease lasts on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `is_so`; else it ends with `what`.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Where machine 4 takes what comes.
const SINK: &str = "10.77.0.4:9000";

impl Connections {
    /// One from machine 2, three from machine 3, which send for as long as this lives.
    fn start(machines: &Machines) -> Connections {
        let (came, is_over) = (Arc::new([const { AtomicU64::new(0) }; 5]), Arc::new(AtomicBool::new(false)));
        let listener = within(machines, 4, || TcpListener::bind(SINK).unwrap()).join().unwrap();
        let counts = Arc::clone(&came);
        // It ends with the process of this test.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, counts) = (stream.unwrap(), Arc::clone(&counts));
                let SocketAddr::V4(from) = stream.peer_addr().unwrap() else { unreachable!() };
                thread::spawn(move || {
                    let mut bytes = [0; 16_384];
                    while let Ok(count @ 1..) = stream.read(&mut bytes) {
                        counts[usize::from(from.ip().octets()[3])].fetch_add(count as u64, Ordering::Relaxed);
                    }
                });
            }
        });
        let sender = |machine: usize| {
            let is_over = Arc::clone(&is_over);
            within(machines, machine, move || {
                let mut stream = TcpStream::connect(SINK).unwrap();
                stream.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    // Where the link is slow there is no room for a while.
                    let _ = stream.write(&[7; 16_384]);
                }
            })
        };
        let threads = [2, 3, 3, 3].map(sender).into();
        Connections { came, is_over, threads }
    }

    /// Mbit/s of machines 2 and 3 over `seconds`, and the median time that a new connection from machine 1 takes, whose
    /// packets wait at the link alone.
    fn measure(&self, machines: &Machines, seconds: u64) -> ([f64; 2], Duration) {
        let counts = || [2, 3].map(|machine| self.came[machine].load(Ordering::Relaxed));
        let (began, before) = (Instant::now(), counts());
        let times = within(machines, 1, move || {
            let end = began + Duration::from_secs(seconds);
            let mut times = Vec::new();
            while Instant::now() < end {
                let at = Instant::now();
                drop(TcpStream::connect(SINK).unwrap());
                times.push(at.elapsed());
                thread::sleep(Duration::from_millis(50));
            }
            times.sort_unstable();
            times[times.len() / 2]
        });
        let median = times.join().unwrap();
        let (after, span) = (counts(), began.elapsed().as_secs_f64());
        ([0, 1].map(|host| (after[host] - before[host]) as f64 * 8e-6 / span), median)
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[test]
fn the_kernels_tcp_keeps_to_what_its_host_is_given_and_the_links_queue_stays_short() {
    let Some(machines) = machines(4) else { return };
    // The way into machine 4 is the link: 10 Mbit/s, before which half a second waits.
    if machines.tc(1, "qdisc add dev port4 root tbf rate 10mbit burst 15140 latency 500ms").is_none() {
        println!("skipped: the kernel has no token bucket (sch_tbf), or tc is not here");
        return;
    }
    let place = Place::new("");
    let keys = [("host", "two"), ("host", "three"), ("monitor", "gateway")];
    let members: String = keys.map(|(kind, name)| entry(&place, kind, name, "")).concat();
    fs::write(place.path("hosts.toml"), link("10 Mbit/s") + &members).unwrap();
    let folder = place.path("");
    let coordinate = "anabranch coordinate hosts.toml --identity c --json --listen 10.77.0.1:7444";
    let mut coordinator = machines.run(1, coordinate, &folder);
    let link = coordinator.json()["link"].as_str().unwrap().to_owned();
    let agent = |machine, name: &str, rest: &str| {
        machines.run(machine, &format!("anabranch agent {link} --identity {name} --json {rest}"), &folder)
    };

    let connections = Connections::start(&machines);
    thread::sleep(Duration::from_secs(2));
    let (alone, waits) = connections.measure(&machines, 3);

    let mut gateway = agent(1, "gateway", "--device port4 --monitor");
    gateway.json_where(is("enrolled"));
    let began = Instant::now();
    let hosts = [(2, "two"), (3, "three")];
    let mut hosts = hosts.map(|(machine, name)| agent(machine, name, "--device eth0 --enforce"));
    for host in &mut hosts {
        assert_eq!(host.json_where(is("budget"))["is_enforced"], true);
    }
    thread::sleep(Duration::from_secs(3));
    // On a busy machine a lease may run out, and what a host does without one was measured above; or those who send have
    // no time to fill the link.
    let measured = (0..20).find_map(|_| {
        let from = began.elapsed();
        let measured = connections.measure(&machines, 4);
        let span = from..began.elapsed();
        let alone = hosts.iter_mut().filter_map(|host| alone_within(host, &span)).count();
        (alone == 0 && measured.0.iter().sum::<f64>() > 7.5).then_some(measured)
    });
    let (steered, waits_less) =
        measured.expect("four seconds of eighty in which no lease runs out and the link is full");
    println!("Mbit/s alone {alone:?}, steered {steered:?}; connecting takes {waits:?}, {waits_less:?}");
    // A host whose lease has run out on a busy machine has reported no flows until it is back.
    let flows = |line: &Value| [0, 1].map(|host| line["hosts"][host]["flows"].as_u64());
    let has_passed = |line: &Value| line["uptime_s"].as_f64().is_some_and(|uptime| uptime > 9.0);
    let seen = coordinator.json_where(|line| has_passed(line) && flows(line).iter().all(Option::is_some));
    assert_eq!(flows(&seen), [Some(1), Some(3)], "{seen}");
    // 9.5 Mbit/s are given away, of which 1448 of 1514 bytes are data, a quarter to the host with one flow of four.
    let [two, three] = steered;
    assert!((7.5..9.6).contains(&(two + three)), "{steered:?} {seen}");
    assert!((2.3..3.7).contains(&(three / two)), "{steered:?} {seen}");
    assert!(waits_less < waits / 2, "{waits:?} {waits_less:?}");

    // Nobody renews the leases: each device has its own queue again. On a busy machine one may have run out before.
    let bucket = |machine| machines.tc(machine, "qdisc show dev eth0").unwrap().contains("htb ab0:");
    eventually("both keep to their budgets", || bucket(2) && bucket(3));
    drop(coordinator);
    for host in &mut hosts {
        host.json_where(is("alone"));
    }
    // On a busy machine a lease may have run out, and been renewed, before: then that was reported here.
    eventually("they keep to what nobody renews", || !bucket(2) && !bucket(3));
    drop(connections);
    let mut coordinator = machines.run(1, coordinate, &folder);
    assert_eq!(coordinator.json()["link"], link);
    let [two, mut three] = hosts;
    two.interrupt();
    assert_eq!(two.end().0, Some(0));
    three.json_where(is("budget"));
    eventually("it keeps to no budget", || bucket(3));
    // What an agent leaves that is killed, the next takes away. On a busy machine its lease may run out just before.
    drop(three);
    for _ in 0..5 {
        if bucket(3) {
            break;
        }
        let mut again = agent(3, "three", "--device eth0 --enforce");
        again.json_where(is("budget"));
        eventually("it keeps to no budget", || bucket(3));
    }
    assert!(bucket(3));
    let three = agent(3, "three", "--device eth0 --enforce --limit 1Mbit/s");
    let mut three = three;
    // What was in the link's queue when the connections ended leaves less at first.
    let is_limit = |line: &Value| {
        let rate = line["rate_mbit_s"].as_f64().filter(|_| is("budget")(line));
        assert!(rate.is_none_or(|rate| rate <= 1.0), "no more than the host's own limit: {line}");
        rate == Some(1.0)
    };
    three.json_where(is_limit);
    three.interrupt();
    assert_eq!(three.end().0, Some(0));
    assert!(!bucket(3));
    // A queue that somebody has set up is not replaced.
    machines.tc(3, "qdisc add dev eth0 root htb").unwrap();
    let (code, _, said) = agent(3, "three", "--device eth0 --enforce").end();
    assert_eq!(code, Some(2));
    assert!(said.contains("eth0 has a root queue of its own (htb)"), "{said}");
}

/// A `tc` that does what the system's does, but takes nothing away while the file `stuck` is there.
const STUBBORN_TC: &str = "\
#!/bin/sh
case \"$*\" in
    \"qdisc del\"*) if [ -e stuck ]; then echo stuck >&2; exit 1; fi ;;
esac
PATH=\"${PATH#*:}\" exec tc \"$@\"
";

#[test]
fn what_cannot_be_taken_away_when_a_lease_ends_is_taken_away_later() {
    let Some(machines) = machines(2) else { return };
    if machines.tc(2, "qdisc add dev eth0 root htb").is_none() {
        println!("skipped: the kernel has no token bucket (sch_htb), or tc is not here");
        return;
    }
    machines.tc(2, "qdisc del dev eth0 root").unwrap();
    let place = Place::new("");
    let tc = place.path("bin/tc");
    fs::create_dir(place.path("bin")).unwrap();
    fs::write(&tc, STUBBORN_TC).unwrap();
    fs::set_permissions(&tc, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.path("hosts.toml"), link("10 Mbit/s") + &entry(&place, "host", "two", "")).unwrap();
    let folder = place.path("");
    let coordinate = "anabranch coordinate hosts.toml --identity c --json --listen 10.77.0.1:7444";
    let mut coordinator = machines.run(1, coordinate, &folder);
    let link = coordinator.json()["link"].as_str().unwrap().to_owned();
    let agent = format!("anabranch agent {link} --identity two --json --device eth0 --enforce");
    let mut host = machines.run(2, &agent, &folder);
    assert_eq!(host.json_where(is("budget"))["is_enforced"], true);
    let bucket = || machines.tc(2, "qdisc show dev eth0").unwrap().contains("htb ab0:");
    eventually("it keeps to its budget", bucket);
    let stuck = place.path("stuck");
    fs::write(&stuck, "").unwrap();
    drop(coordinator);
    host.json_where(is("alone"));
    assert!(bucket(), "nothing could take it away");
    fs::remove_file(&stuck).unwrap();
    eventually("it stays limited by what nobody renews", || !bucket());
    host.interrupt();
    assert_eq!(host.end().0, Some(0));
}
