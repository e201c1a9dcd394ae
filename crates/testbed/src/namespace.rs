//! Network namespaces without a name: a set of devices, addresses, routes and sockets of
//! its own. Nothing but this process holds one, so the kernel removes it and all devices
//! in it when the process ends, however it ends.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::netlink::{LOOPBACK, Netlink};

/// The name of a TUN device in its namespace.
pub(crate) const DEVICE: &str = "anabranch0";

/// Why there is no emulated network.
#[derive(Debug, thiserror::Error)]
pub enum TestbedError {
    /// A namespace is refused.
    #[error(
        "a network namespace needs CAP_SYS_ADMIN, which this process does not have; run it as root, or under \
         `unshare --user --map-root-user --net`, or a container with --cap-add SYS_ADMIN,NET_ADMIN"
    )]
    NotPermitted,
    /// There are no TUN devices.
    #[error(
        "/dev/net/tun is missing: the kernel's TUN driver is not loaded (`modprobe tun`), or a container lacks the \
         device (--device /dev/net/tun)"
    )]
    NoTun,
    /// A device is refused.
    #[error(
        "network devices need CAP_NET_ADMIN, and leave to open /dev/net/tun; run as root, or a container with \
         --cap-add SYS_ADMIN,NET_ADMIN --device /dev/net/tun"
    )]
    DeviceNotPermitted,
    /// What was asked for makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The system refuses something.
    #[error("cannot {doing}: {source}")]
    System {
        /// What was being done.
        doing: String,
        /// What the system says.
        source: io::Error,
    },
}

impl TestbedError {
    /// For `map_err`: what was being done when the system refused.
    pub fn system<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> TestbedError {
        move |source| TestbedError::System { doing: doing.into(), source: source.into() }
    }
}

/// A network namespace; a clone is the same one. It lasts as long as a clone, a socket, a
/// device or a process in it.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<File>);

impl Namespace {
    /// A new one, with the loopback device up and IPv6 off.
    pub fn new() -> Result<Namespace, TestbedError> {
        let made = std::thread::scope(|scope| scope.spawn(Namespace::make).join());
        made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs on a thread that ends afterwards, so that nothing else moves.
    fn make() -> Result<Namespace, TestbedError> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| match error {
            Errno::EPERM => TestbedError::NotPermitted,
            error => TestbedError::System { doing: "make a network namespace".into(), source: error.into() },
        })?;
        let file = File::open("/proc/thread-self/ns/net").map_err(TestbedError::system("open the new namespace"))?;
        for group in ["all", "default"] {
            // Where /proc/sys may not be written, IPv6 stays on: the devices get no address
            // of it, and the emulator passes over its packets.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{group}/disable_ipv6"), "1");
        }
        Netlink::open().and_then(|mut netlink| netlink.set_up(LOOPBACK)).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => TestbedError::DeviceNotPermitted,
            _ => TestbedError::system("bring the loopback device up")(error),
        })?;
        Ok(Namespace(Arc::new(file)))
    }

    /// Runs `inside` on a thread in this namespace and waits for it. Sockets that it opens
    /// stay in the namespace wherever they are used later, and so do processes.
    pub fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> Result<T, TestbedError> {
        let ran = std::thread::scope(|scope| {
            let run = || {
                setns(&*self.0, CloneFlags::CLONE_NEWNET).map_err(TestbedError::system("enter a network namespace"))?;
                Ok(inside())
            };
            scope.spawn(run).join()
        });
        ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The counters of the device that is named as [`Tun`](crate::tun::Tun)'s are.
    pub fn device_counters(&self) -> Result<DeviceCounters, TestbedError> {
        let open = || {
            let mut netlink = Netlink::open()?;
            let index = netlink.index(DEVICE)?;
            Ok(DeviceCounters { netlink, index })
        };
        self.run(open)?.map_err(TestbedError::system::<io::Error>("find a device's counters"))
    }

    /// Sets a variable of the kernel for this namespace alone: `net.ipv4.tcp_rmem`, say.
    pub fn set_variable(&self, name: &str, value: &str) -> Result<(), TestbedError> {
        let is_plain =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if !name.starts_with("net.") || !name.split('.').all(is_plain) {
            return Err(TestbedError::Invalid(format!("{name}: a namespace has variables named net.*")));
        }
        let path: PathBuf = ["/proc/sys"].into_iter().chain(name.split('.')).collect();
        self.run(|| std::fs::write(&path, value))?.map_err(TestbedError::system(format!("set {name} to {value}")))
    }
}

/// What the kernel counts at a device of a namespace.
#[derive(Debug)]
pub struct DeviceCounters {
    netlink: Netlink,
    index: u32,
}

impl DeviceCounters {
    /// Bytes that have left by the device, with the headers of IP.
    pub fn sent_bytes(&mut self) -> Result<u64, TestbedError> {
        let statistics = self.netlink.statistics(self.index);
        Ok(statistics.map_err(TestbedError::system("read a device's counters"))?.tx_bytes)
    }
}
