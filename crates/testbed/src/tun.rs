//! TUN devices: the kernel hands us the IP packets that it would transmit, and takes as
//! received what we write. Each stands in a namespace of its own, in which a whole block
//! of addresses is local and everything else goes through the device.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::namespace::{DEVICE, Namespace, TestbedError};
use crate::netlink::Netlink;

/// Where TUN devices come from.
const CONTROL: &str = "/dev/net/tun";

/// Least MTU that IPv4 allows (RFC 791 section 3.2).
pub const LEAST_MTU: u32 = 68;

/// IPv4 addresses with a prefix in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    first: u32,
    prefix: u8,
}

impl Block {
    /// The addresses whose first `prefix` bits, 1 to 30, are those of `address`.
    pub fn new(address: Ipv4Addr, prefix: u8) -> Result<Block, TestbedError> {
        if !(1..=30).contains(&prefix) {
            return Err(TestbedError::Invalid(format!("{address}/{prefix}: a block has a prefix of 1 to 30 bits")));
        }
        Ok(Block { first: u32::from(address) & (u32::MAX << (32 - prefix)), prefix })
    }

    /// Whether `address` is one of them.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        (u32::from(address) ^ self.first) >> (32 - self.prefix) == 0
    }

    /// The addresses, from 0 on; none beyond the last.
    pub fn address(&self, number: u32) -> Option<Ipv4Addr> {
        let fits = u64::from(number) < 1 << (32 - self.prefix);
        fits.then(|| Ipv4Addr::from(self.first + number))
    }

    fn first(&self) -> Ipv4Addr {
        Ipv4Addr::from(self.first)
    }
}

/// What a device is like.
#[derive(Clone, Copy, Debug)]
pub struct TunConfig {
    /// The addresses behind it: local to its namespace.
    pub block: Block,
    /// Longest IP packet, in bytes.
    pub mtu: u32,
    /// Packets that the kernel keeps for us until we read; it drops more.
    pub queue: u32,
}

impl TunConfig {
    /// Packets of 1500 bytes, 10 000 of which may wait: 120 ms of 1 Gbit/s.
    pub fn new(block: Block) -> TunConfig {
        TunConfig { block, mtu: 1500, queue: 10_000 }
    }
}

/// A device; it is gone when this is.
pub struct Tun {
    device: SyncDevice,
    netlink: Netlink,
    index: u32,
    config: TunConfig,
}

impl Tun {
    /// Makes a device in `namespace`, which has none yet, with addresses and routes.
    pub fn open(namespace: &Namespace, config: TunConfig) -> Result<Tun, TestbedError> {
        if !(LEAST_MTU..=u32::from(u16::MAX)).contains(&config.mtu) {
            let message = format!("an MTU of {} B: IPv4 has packets of {LEAST_MTU} to 65535 B", config.mtu);
            return Err(TestbedError::Invalid(message));
        }
        if !std::fs::exists(CONTROL).unwrap_or(true) {
            return Err(TestbedError::NoTun);
        }
        namespace.run(|| Tun::open_here(config))?
    }

    fn open_here(config: TunConfig) -> Result<Tun, TestbedError> {
        let device =
            DeviceBuilder::new().name(DEVICE).enable(false).build_sync().map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => TestbedError::DeviceNotPermitted,
                // The node is there, but no driver behind it.
                io::ErrorKind::NotFound => TestbedError::NoTun,
                _ if error.raw_os_error() == Some(nix::errno::Errno::ENODEV as i32) => TestbedError::NoTun,
                _ => TestbedError::System { doing: "make a TUN device".into(), source: error },
            })?;
        device.set_nonblocking(true).map_err(TestbedError::system("make a TUN device non-blocking"))?;
        let mut netlink = Netlink::open().map_err(TestbedError::system("open a routing socket"))?;
        let index = netlink.index(DEVICE).map_err(TestbedError::system("find the TUN device"))?;
        let mut set_up = || {
            netlink.set_limits(index, config.mtu, config.queue)?;
            // Refused where the kernel has no IPv6.
            let _ = netlink.set_no_ipv6_address(index);
            netlink.set_up(index)?;
            let own = config.block.address(1).expect("a block has four addresses at least");
            netlink.add_address(index, own)?;
            netlink.add_local_block(index, config.block.first(), config.block.prefix)?;
            netlink.add_default_route(index, own)
        };
        set_up().map_err(TestbedError::system("configure the TUN device"))?;
        Ok(Tun { device, netlink, index, config })
    }

    /// The addresses behind it.
    pub fn block(&self) -> Block {
        self.config.block
    }

    /// Longest IP packet, in bytes.
    pub fn mtu(&self) -> u32 {
        self.config.mtu
    }

    /// Takes a packet that the kernel transmits: its length, or `WouldBlock`.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        self.device.recv(packet)
    }

    /// Lets the kernel receive a packet.
    pub fn write(&self, packet: &[u8]) -> io::Result<()> {
        self.device.send(packet).map(drop)
    }

    /// Packets that the kernel has dropped because too many waited to be read.
    pub fn overruns(&mut self) -> io::Result<u64> {
        Ok(self.netlink.statistics(self.index)?.tx_dropped)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl std::fmt::Debug for Tun {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Tun").field("fd", &self.device.as_raw_fd()).field("config", &self.config).finish()
    }
}
