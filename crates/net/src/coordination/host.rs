//! What an agent sees and changes at a host of Linux.
//!
//! - Seen: what a network device has sent, headers of its layer included (`/sys/class/net/*/statistics`, the kernel's
//!   `stat_add` counters), and the TCP connections that have something to send (`/proc/net/tcp`, `tx_queue`: proc_net_tcp(5)).
//!   What programs send over UDP is counted in bytes, not as flows: a device that sends is one flow at least.
//! - Changed: the rate of the device, by a token bucket at its root, which all that the host sends over it keeps to, TCP
//!   or not. It is a class of HTB (tc-htb(8)), whose tokens stay when its rate changes: a bucket of tc-tbf(8) is full
//!   again after each change, which at ten a second was an eighth more than 10 Mbit/s. In it CoDel keeps the queue
//!   short (RFC 8290) where the kernel has it; else TCP's own bound on what waits here does. A device whose root
//!   somebody has set up is left alone.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_proto::coordination::message::{HostSeen, LinkSeen};
use procfs::net::TcpState;

use super::qdisc;

/// What a connection holds at most that needs no share of its own: a segment, such as a request, or a FIN (RFC 9293).
const LEAST_FLOW: u32 = 1460;

/// By this handle a token bucket is known for an agent's.
const HANDLE: &str = "ab0:";

/// All that has no other class is in this one.
const CLASS: &str = "ab0:1";

/// What the agent itself says is in this one: behind the bucket, reports would come too late to be worth anything,
/// and the less a host may send, the later.
const CONTROL_CLASS: &str = "ab0:2";

/// No agent says more, whatever its terms are: a report each 5 ms.
const CONTROL_RATE: &str = "250kbit";

/// A bucket holds what this long sends: timers of the kernel are late by less.
const BUCKET: Duration = Duration::from_millis(1);

/// Nor does one hold less: two packets of Ethernet.
const LEAST_BUCKET: u64 = 3028;

/// A rate that differs by less than one part in this many is left as it is: each change runs a program.
const SMALLEST_CHANGE: u64 = 100;

/// No device is kept to less: connections that may hardly send at all end.
const LEAST_RATE: Rate = Rate::from_bits_per_sec(64_000);

/// Why a device can't be seen or steered.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// It is not there.
    #[error("there is no network device \"{name}\"; there are: {known}")]
    NoDevice {
        /// What was named.
        name: String,
        /// Those that are.
        known: String,
    },
    /// The system.
    #[error("cannot read {what}: {why}")]
    Read {
        /// Which file.
        what: String,
        /// Why not.
        why: io::Error,
    },
    /// `tc` did not do it.
    #[error("tc {arguments}: {said}")]
    Tc {
        /// What it was directed.
        arguments: String,
        /// What it said.
        said: String,
    },
    /// Somebody has set the device up.
    #[error(
        "the device {device} has a root queue of its own ({kind}), which an agent would replace; to let it: tc qdisc del dev {device} root"
    )]
    Taken {
        /// Which.
        device: String,
        /// What stands there.
        kind: String,
    },
}

/// A network device.
#[derive(Clone, Debug)]
pub struct Device {
    name: String,
    /// Where the kernel tells of it.
    folder: PathBuf,
}

impl Device {
    /// The one called `name`.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn new(name: &str) -> Result<Device, HostError> {
        let all = PathBuf::from("/sys/class/net");
        let known = fs::read_dir(&all).map_err(|why| HostError::Read { what: all.display().to_string(), why })?;
        let mut known: Vec<String> =
            known.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned())).collect();
        known.sort();
        if !known.iter().any(|one| one == name) {
            return Err(HostError::NoDevice { name: name.to_owned(), known: known.join(", ") });
        }
        let device = Device { name: name.to_owned(), folder: all.join(name) };
        device.index()?;
        Ok(device)
    }

    /// By which the kernel knows it, until it has gone and come again.
    fn index(&self) -> Result<i32, HostError> {
        let path = self.folder.join("ifindex");
        let failed = |why| HostError::Read { what: path.display().to_string(), why };
        let text = fs::read_to_string(&path).map_err(failed)?;
        text.trim().parse().map_err(|_| failed(io::Error::other(format!("{text:?} is no number"))))
    }

    fn count(&self, name: &str) -> Result<u64, HostError> {
        let path = self.folder.join("statistics").join(name);
        let failed = |why| HostError::Read { what: path.display().to_string(), why };
        let text = fs::read_to_string(&path).map_err(failed)?;
        text.trim().parse().map_err(|_| failed(io::Error::other(format!("{text:?} is no number"))))
    }

    /// What has left.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn sent(&self) -> Result<Bytes, HostError> {
        self.count("tx_bytes").map(Bytes::new)
    }

    /// What a monitor of this device reports: what has left, and what waits at the device's root queue or was dropped, there
    /// or by the device. A queue of the device's own is not known, and none where the kernel does not say.
    ///
    /// # Errors
    ///
    /// As [`Device::sent`].
    pub fn link_seen(&self) -> Result<LinkSeen, HostError> {
        let (sent, by_device) = (self.sent()?, self.count("tx_dropped")?);
        let queue = qdisc::queue(self.index()?).ok().flatten();
        let dropped = by_device + queue.map_or(0, |queue| queue.dropped);
        Ok(LinkSeen { sent, queued: queue.map(|queue| Bytes::new(queue.bytes)), dropped, ..LinkSeen::default() })
    }
}

/// A host that sends over one device.
#[derive(Clone, Debug)]
pub struct Host {
    device: Device,
    sent: Option<Bytes>,
}

impl Host {
    /// The one whose device this is.
    pub fn new(device: Device) -> Host {
        Host { device, sent: None }
    }

    /// What an agent of this host reports: its flows, and what has left.
    ///
    /// # Errors
    ///
    /// When the system does not say.
    pub fn seen(&mut self) -> Result<HostSeen, HostError> {
        let sent = self.device.sent()?;
        let before = self.sent.replace(sent).unwrap_or(sent);
        // A flow that has nothing in its queue at this instant has sent since the last look; ACKs alone are no flow.
        let has_sent = sent.get().saturating_sub(before.get()) > u64::from(LEAST_FLOW);
        let flows = connections_that_send()?.max(u32::from(has_sent));
        Ok(HostSeen { flows, sent, ..HostSeen::default() })
    }
}

/// TCP connections to others that hold more than a segment which is not acknowledged, or not sent yet.
fn connections_that_send() -> Result<u32, HostError> {
    let all = [("/proc/net/tcp", procfs::net::tcp()), ("/proc/net/tcp6", procfs::net::tcp6())];
    let mut count = 0;
    for (what, entries) in all {
        let entries = match entries {
            Ok(entries) => entries,
            // A kernel without IPv6.
            Err(procfs::ProcError::NotFound(_)) => continue,
            Err(why) => return Err(HostError::Read { what: what.to_owned(), why: io::Error::other(why) }),
        };
        let sends = entries.iter().filter(|entry| {
            let is_open = matches!(entry.state, TcpState::Established | TcpState::CloseWait | TcpState::FinWait1);
            is_open && entry.tx_queue > LEAST_FLOW && !entry.remote_address.ip().is_loopback()
        });
        count += sends.count();
    }
    Ok(u32::try_from(count).unwrap_or(u32::MAX))
}

/// The token bucket at a device's root. The device has its own queue again when this is dropped.
#[derive(Debug)]
pub struct Shaper {
    device: String,
    /// The agent's own.
    control_port: u16,
    /// A bucket, or a part of one, may stand at the device's root.
    stands: bool,
    /// What the whole of it keeps to.
    rate: Option<Rate>,
}

impl Shaper {
    /// Of `device`, which nothing limits yet, for the agent that speaks from UDP port `control_port`; what an agent
    /// that was killed has left is taken away.
    ///
    /// # Errors
    ///
    /// When somebody has set up the device's root, or `tc` can't be run, as without the right to (root, or
    /// `CAP_NET_ADMIN`).
    pub fn new(device: &Device, control_port: u16) -> Result<Shaper, HostError> {
        let mut shaper = Shaper { device: device.name.clone(), control_port, stands: false, rate: None };
        let said = tc(&["qdisc", "show", "dev", &shaper.device, "root"])?;
        let mut words = said.split_whitespace().skip(1);
        let (kind, handle) = (words.next().unwrap_or("noqueue").to_owned(), words.next().unwrap_or("0:"));
        match handle {
            HANDLE => {
                shaper.stands = true;
                shaper.release()?;
            }
            // What the kernel gives every device.
            "0:" => {}
            _ => return Err(HostError::Taken { device: shaper.device.clone(), kind }),
        }
        // What it may not do is said at once, not at the first directive.
        shaper.set(Rate::from_bits_per_sec(1_000_000_000))?;
        shaper.release()?;
        Ok(shaper)
    }

    /// What the device keeps to.
    pub fn rate(&self) -> Option<Rate> {
        self.rate
    }

    /// All that the host sends over the device keeps to `rate` from now on, or to the least to which a device is kept,
    /// 64 kbit/s; what it is.
    ///
    /// # Errors
    ///
    /// As `tc` says; then nothing limits the device.
    pub fn set(&mut self, rate: Rate) -> Result<Rate, HostError> {
        let rate = rate.max(LEAST_RATE);
        let bits = rate.bits_per_sec();
        let is_near = |before: &Rate| bits.abs_diff(before.bits_per_sec()) <= bits / SMALLEST_CHANGE;
        if let Some(before) = self.rate.filter(is_near) {
            return Ok(before);
        }
        self.change(rate).inspect_err(|_| {
            // The device may be gone, or somebody has taken the bucket away.
            let _ = self.release();
        })?;
        Ok(rate)
    }

    fn change(&mut self, rate: Rate) -> Result<(), HostError> {
        if self.rate.is_none() {
            self.stands = true;
            tc(&["qdisc", "replace", "dev", &self.device, "root", "handle", HANDLE, "htb", "default", "1"])?;
            let of_device = ["dev", &self.device, "parent", HANDLE];
            let control = ["classid", CONTROL_CLASS, "htb", "rate", CONTROL_RATE, "quantum", "1514"];
            tc(&[&["class", "replace"], &of_device[..], &control].concat())?;
            let port = self.control_port.to_string();
            for (protocol, ip) in [("ip", "ip"), ("ipv6", "ip6")] {
                let filter = ["protocol", protocol, "u32", "match", ip, "protocol", "17", "0xff"];
                let port = ["match", ip, "sport", &port, "0xffff", "flowid", CONTROL_CLASS];
                tc(&[&["filter", "add"], &of_device[..], &filter, &port].concat())?;
            }
        }
        let (rate_text, burst) =
            (format!("{}bit", rate.bits_per_sec()), (rate * BUCKET).get().max(LEAST_BUCKET).to_string());
        let class = ["class", "replace", "dev", &self.device, "parent", HANDLE, "classid", CLASS, "htb"];
        tc(&[&class[..], &["rate", &rate_text, "burst", &burst, "cburst", &burst, "quantum", "1514"]].concat())?;
        if self.rate.is_none() {
            // Where the kernel has no CoDel, a plain queue stays.
            let _ = tc(&["qdisc", "add", "dev", &self.device, "parent", CLASS, "fq_codel"]);
        }
        self.rate = Some(rate);
        Ok(())
    }

    /// The device has its own queue again.
    ///
    /// # Errors
    ///
    /// As `tc` says; what could not be taken away is [left](Shaper::is_left), and tried again at the latest when this is
    /// dropped.
    pub fn release(&mut self) -> Result<(), HostError> {
        self.rate = None;
        if self.stands {
            tc(&["qdisc", "del", "dev", &self.device, "root"]).or_else(|why| match self.is_gone() {
                true => Ok(String::new()),
                false => Err(why),
            })?;
            self.stands = false;
        }
        Ok(())
    }

    /// Whether the device is released, and may be limited all the same: its bucket could not be taken away.
    pub fn is_left(&self) -> bool {
        self.stands && self.rate.is_none()
    }

    /// Whether somebody else has taken the bucket away, as whoever makes the device anew.
    fn is_gone(&self) -> bool {
        let root = tc(&["qdisc", "show", "dev", &self.device, "root"]);
        root.is_ok_and(|said| !said.split_whitespace().any(|word| word == HANDLE))
    }
}

impl Drop for Shaper {
    fn drop(&mut self) {
        // The device may be gone.
        let _ = self.release();
    }
}

fn tc(arguments: &[&str]) -> Result<String, HostError> {
    let failed = |said: String| HostError::Tc { arguments: arguments.join(" "), said };
    let output = Command::new("tc").args(arguments).stdin(Stdio::null()).output().map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => failed("there is no such program; it comes with iproute2".to_owned()),
        _ => failed(why.to_string()),
    })?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_there_is_said_with_those_that_are() {
        let said = Device::new("none0").unwrap_err().to_string();
        assert!(said.starts_with("there is no network device \"none0\"; there are: ") && said.contains("lo"), "{said}");
    }

    #[test]
    fn what_a_device_has_sent_grows_by_what_is_sent() {
        let device = Device::new("lo").unwrap();
        let before = device.sent().unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(&[0; 1000], socket.local_addr().unwrap()).unwrap();
        assert!(device.sent().unwrap() >= before + Bytes::new(1028));
    }
}
