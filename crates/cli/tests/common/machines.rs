//! Network namespaces as machines.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::running::Running;

const BINARY: &str = env!("CARGO_BIN_EXE_anabranch");

/// Machines of names that nobody else has, on one network; they go with this value.
pub struct Machines(Vec<String>);

/// How the names of all these namespaces begin.
pub const PREFIX: &str = "anabranch-test-";

/// So that tests of one process do not meet.
static NETWORKS: AtomicU32 = AtomicU32::new(0);

impl Machines {
    /// Machine N has the addresses 10.77.0.N and fd77::N; none where the system does not let us.
    pub fn start(count: u32) -> Option<Machines> {
        let number = NETWORKS.fetch_add(1, Ordering::Relaxed);
        let name = |machine| format!("{PREFIX}{}-{number}-{machine}", std::process::id());
        let mut machines = Machines(Vec::new());
        let ip = |arguments: &str| {
            let done = Command::new("ip").args(arguments.split(' ')).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success()).then_some(())
        };
        let hub = name(1);
        for machine in 1..=count {
            let own = name(machine);
            ip(&format!("netns add {own}"))?;
            machines.0.push(own.clone());
            ip(&format!("-n {own} link set lo up"))?;
            let device = if machine == 1 {
                ip(&format!("-n {hub} link add br0 type bridge"))?;
                "br0"
            } else {
                ip(&format!("-n {hub} link add port{machine} type veth peer name eth0 netns {own}"))?;
                ip(&format!("-n {hub} link set port{machine} master br0 up"))?;
                "eth0"
            };
            ip(&format!("-n {own} addr add 10.77.0.{machine}/24 dev {device}"))?;
            // Where there is no IPv6, its test says so.
            let _ = ip(&format!("-n {own} addr add fd77::{machine}/64 dev {device} nodad"));
            ip(&format!("-n {own} link set {device} up"))?;
        }
        Some(machines)
    }

    /// The name of the namespace that is machine `number`, from 1 on.
    pub fn name(&self, number: usize) -> &str {
        &self.0[number - 1]
    }

    /// `line` on machine `number`, from 1 on, in `folder`, without a terminal. Programs in the folder's own `bin` come
    /// before the system's.
    pub fn run(&self, number: usize, line: &str, folder: &Path) -> Running {
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        assert_eq!(words.next(), Some("anabranch"));
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.name(number), BINARY]).args(words).current_dir(folder);
        // Each machine has settings of its own.
        command.env("XDG_CONFIG_HOME", folder.join("settings")).env_remove("ANABRANCH_RELAYS");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
        Running::of(command.stdin(Stdio::null()))
    }

    /// What the command tc says on machine `number`, from 1 on; none where it is not there or refuses.
    pub fn tc(&self, number: usize, arguments: &str) -> Option<String> {
        let mut command = Command::new("tc");
        command.args(["-n", self.name(number)]).args(arguments.split(' '));
        let output = command.stdin(Stdio::null()).output().ok()?;
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

/// [`Machines::start`]; says so where the system does not let us.
pub fn machines(count: u32) -> Option<Machines> {
    let machines = Machines::start(count);
    if machines.is_none() {
        println!("skipped: network namespaces need root and the command ip");
    }
    machines
}
