//! Captures: each simulated packet as an Ethernet frame with IPv4 and TCP, or UDP for cross
//! traffic, as `tcpdump` would have seen it at the senders (`client.pcap`) and at the
//! receivers (`server.pcap`). Only headers are kept; a frame's original length is what the
//! simulated wire carried. A scenario whose headers leave no room for Ethernet's is
//! captured as IPv4 packets without it.
//!
//! Packet numbers are not TCP's: a segment's sequence number is its place in the stream, so
//! that a repaired loss is a retransmission; an ACK's number and SACK blocks are what the
//! receiver had when it answered. The first byte of a stream has number 1, as behind a SYN
//! with number 0; there is no handshake, for none is simulated.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anabranch_control::flow::PeerId;
use anabranch_control::time::Time;
use anabranch_proto::flow::Data;
use etherparse::{EtherType, Ethernet2Header, IpEcn, IpNumber, Ipv4Header, TcpHeader, UdpHeader};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use super::RecordError;
use super::address::{Addresses, DISCARD_PORT, SERVER_PORT};
use crate::flows::FlowScenario;
use crate::flows::events::{CrossEvent, CrossWhat, FlowEvent, Recorder, Stream, What};
use anabranch_report::output::{OutputError, Staged, Unfinished, begin};

/// Ethernet, IPv4 and TCP headers never take more.
const KEPT: usize = 128;

/// What the file says at most to keep of a packet: tcpdump's, for some readers refuse a
/// packet that was longer on the wire than this.
const SNAP_LENGTH: u32 = 1 << 18;

const ETHERNET: u32 = Ethernet2Header::LEN as u32;
const IP: u32 = Ipv4Header::MIN_LEN as u32;
const TCP: u32 = TcpHeader::MIN_LEN as u32;
const UDP: u32 = UdpHeader::LEN as u32;

/// Timestamps with their padding (RFC 7323, appendix A).
const TIMESTAMPS: u32 = 12;

/// All of TCP's options.
const OPTIONS: usize = 40;

/// What receivers say they have room for: no simulated receiver is short of it.
const WINDOW: u16 = u16::MAX;

/// Frames that may still arrive are remembered; one that this many later ones have been sent
/// behind is not on its way any more.
const DATA_MEMORY: u64 = 1 << 20;
const ACK_MEMORY: u64 = 1 << 16;

/// A payload of nothing, for checksums.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// One TCP connection: flow, connection, receiver.
type Connection = (usize, u32, PeerId);

/// Writes the captures.
#[derive(Debug)]
pub struct Pcap {
    addresses: Addresses,
    client: Capture,
    server: Capture,
    /// Bytes of Ethernet's header: 0 in a capture without.
    link: u32,
    ecn: bool,
    /// Frames that left and may arrive, by connection, whether they are ACKs, and number.
    on_way: HashMap<(Connection, bool, u64), Frame>,
    connections: HashMap<Connection, State>,
    error: Option<OutputError>,
}

/// A file at work.
#[derive(Debug)]
struct Capture {
    path: PathBuf,
    writer: PcapWriter<Unfinished>,
    link: u32,
}

/// What both ends of a connection echo.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// The timestamps that client and server received last.
    client_echo: u32,
    server_echo: u32,
    /// Marks that the server has reported.
    ce_count: u64,
}

/// A frame with TCP.
#[derive(Clone, Debug)]
struct Frame {
    ip: Ipv4Header,
    tcp: TcpHeader,
    /// Its timestamp, if it has one.
    timestamp: u32,
    /// On the wire.
    length: u32,
}

impl Pcap {
    /// Begins the files in `dir`, which must exist.
    ///
    /// # Errors
    ///
    /// When a file cannot be begun, or packets are too large for IPv4.
    pub fn create(dir: &Path, scenario: &FlowScenario) -> Result<Pcap, RecordError> {
        let packets = &scenario.packets;
        let bytes = packets.data.get() + u64::from(IP + TCP) + OPTIONS as u64;
        let cross = scenario.cross_traffic.iter().map(|cross| cross.packet.get());
        if let Some(bytes) = cross.chain([bytes]).max().filter(|&bytes| bytes > u64::from(u16::MAX)) {
            return Err(RecordError::TooLarge { bytes });
        }
        let bare = packets.header.min(packets.ack).get() < u64::from(ETHERNET + IP + TCP);
        let link = if bare { 0 } else { ETHERNET };
        Ok(Pcap {
            addresses: Addresses::new(scenario),
            client: Capture::create(dir.join("client.pcap"), link)?,
            server: Capture::create(dir.join("server.pcap"), link)?,
            link,
            ecn: packets.ecn,
            on_way: HashMap::new(),
            connections: HashMap::new(),
            error: None,
        })
    }

    /// The files, which have no names yet.
    ///
    /// # Errors
    ///
    /// When something could not be written.
    pub fn finish(self) -> Result<Vec<Staged>, OutputError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(vec![self.client.writer.into_writer().finish()?, self.server.writer.into_writer().finish()?]),
        }
    }

    fn data_frame(&self, event: &FlowEvent<'_>, data: &Data, size: u32) -> Frame {
        let state = self.state(event);
        let mut tcp =
            TcpHeader::new(self.addresses.client_port(event.connection), SERVER_PORT, sequence(data.offset), WINDOW);
        tcp.acknowledgment_number = 1;
        tcp.ack = true;
        tcp.fin = data.fin;
        let timestamp = milliseconds(event.at);
        // Timestamps where the simulated packet has room for them.
        let stamps = size - data.length >= self.link + IP + TCP + TIMESTAMPS;
        set_options(&mut tcp, stamps.then_some((timestamp, state.client_echo)), &[]);
        let ends = (self.addresses.client(event.flow), self.addresses.server(event.flow, event.peer));
        let ecn = if self.ecn { IpEcn::Ect0 } else { IpEcn::NotEct };
        self.frame(ends, ecn, tcp, data.length, timestamp, size)
    }

    fn ack_frame(&mut self, event: &FlowEvent<'_>, stream: &Stream<'_>, ce_count: u64, size: u32) -> Frame {
        let state = self.state(event);
        let port = self.addresses.client_port(event.connection);
        let mut tcp = TcpHeader::new(SERVER_PORT, port, 1, WINDOW);
        // A FIN takes a number of its own.
        tcp.acknowledgment_number = sequence(stream.contiguous + u64::from(stream.complete));
        tcp.ack = true;
        tcp.ece = ce_count > state.ce_count;
        self.connections.entry((event.flow, event.connection, event.peer)).or_default().ce_count = ce_count;
        let timestamp = milliseconds(event.at);
        let stamps = size >= self.link + IP + TCP + TIMESTAMPS;
        set_options(&mut tcp, stamps.then_some((timestamp, state.server_echo)), stream.pieces);
        let ends = (self.addresses.server(event.flow, event.peer), self.addresses.client(event.flow));
        self.frame(ends, IpEcn::NotEct, tcp, 0, timestamp, size)
    }

    /// A segment with `data` bytes in a packet of `size` bytes on the wire. It is as long as
    /// that; longer only where its headers and SACK blocks would not fit.
    fn frame(
        &self,
        ends: (Ipv4Addr, Ipv4Addr),
        ecn: IpEcn,
        mut tcp: TcpHeader,
        data: u32,
        timestamp: u32,
        size: u32,
    ) -> Frame {
        let segment = tcp.header_len() + data as usize;
        let mut ip = ip_header(ends, IpNumber::TCP, segment);
        ip.ecn = ecn;
        ip.header_checksum = ip.calc_header_checksum();
        tcp.checksum = tcp
            .calc_checksum_ipv4(&ip, &ZEROS[..data as usize])
            .expect("the packet's length was checked when the capture began");
        Frame { length: size.max(self.link + IP + segment as u32), ip, tcp, timestamp }
    }

    fn state(&self, event: &FlowEvent<'_>) -> State {
        self.connections.get(&(event.flow, event.connection, event.peer)).copied().unwrap_or_default()
    }

    fn write_flow(&mut self, event: &FlowEvent<'_>) -> Result<(), OutputError> {
        let connection = (event.flow, event.connection, event.peer);
        match event.what {
            What::DataSent { data, size } => {
                let frame = self.data_frame(event, data, size);
                self.client.segment(event.at, &frame)?;
                self.remember((connection, false, data.number), frame, DATA_MEMORY);
            }
            What::AckSent { number, ack, size, stream } => {
                let frame = self.ack_frame(event, &stream, ack.ce_count, size);
                self.server.segment(event.at, &frame)?;
                self.remember((connection, true, number), frame, ACK_MEMORY);
            }
            What::DataReceived { data, marked, .. } => {
                if let Some(mut frame) = self.on_way.remove(&(connection, false, data.number)) {
                    self.connections.entry(connection).or_default().server_echo = frame.timestamp;
                    if marked {
                        frame.ip.ecn = IpEcn::CongestionExperienced;
                        frame.ip.header_checksum = frame.ip.calc_header_checksum();
                    }
                    self.server.segment(event.at, &frame)?;
                }
            }
            What::AckReceived { number, .. } => {
                if let Some(frame) = self.on_way.remove(&(connection, true, number)) {
                    self.connections.entry(connection).or_default().client_echo = frame.timestamp;
                    self.client.segment(event.at, &frame)?;
                }
            }
            What::Closed => {
                self.on_way.retain(|(of, _, _), _| *of != connection);
                self.connections.remove(&connection);
            }
            What::Opened | What::Lost { .. } | What::Metrics(_) => {}
        }
        Ok(())
    }

    fn remember(&mut self, key: (Connection, bool, u64), frame: Frame, memory: u64) {
        let (connection, ack, number) = key;
        if let Some(old) = number.checked_sub(memory) {
            self.on_way.remove(&(connection, ack, old));
        }
        self.on_way.insert(key, frame);
    }

    fn write_cross(&mut self, event: &CrossEvent) -> Result<(), OutputError> {
        let (from, to) = self.addresses.cross(event.source);
        let (file, ecn) = match event.what {
            CrossWhat::Sent => (&mut self.client, false),
            CrossWhat::Received { marked } => (&mut self.server, marked),
        };
        let length = event.size.max(self.link + IP + UDP);
        let payload = (length - self.link - IP - UDP) as usize;
        let mut ip = ip_header((from, to), IpNumber::UDP, UDP as usize + payload);
        ip.ecn = match (ecn, self.ecn) {
            (true, _) => IpEcn::CongestionExperienced,
            (false, true) => IpEcn::Ect0,
            (false, false) => IpEcn::NotEct,
        };
        ip.header_checksum = ip.calc_header_checksum();
        let (source, destination) = (self.addresses.cross_port(), DISCARD_PORT);
        let udp = UdpHeader::with_ipv4_checksum(source, destination, &ip, &ZEROS[..payload])
            .expect("the packet's length was checked when the capture began");
        file.packet(event.at, &ip, &udp.to_bytes(), length)
    }
}

impl Recorder for Pcap {
    fn on_flow(&mut self, event: &FlowEvent<'_>) {
        if self.error.is_none() {
            self.error = self.write_flow(event).err();
        }
    }

    fn on_cross(&mut self, event: &CrossEvent) {
        if self.error.is_none() {
            self.error = self.write_cross(event).err();
        }
    }

    fn has_failed(&self) -> bool {
        self.error.is_some()
    }
}

/// A place in the stream as a sequence number, which wraps around.
fn sequence(offset: u64) -> u32 {
    (offset as u32).wrapping_add(1)
}

/// The clock of TCP's timestamps ticks each ms (RFC 7323, 5.4).
fn milliseconds(at: Time) -> u32 {
    (at.as_nanos() / 1_000_000) as u32
}

/// Timestamps, and as many SACK blocks of `pieces` as there is room for: the highest, for
/// they are told nowhere else; RFC 2018 would begin with the newest.
fn set_options(tcp: &mut TcpHeader, stamps: Option<(u32, u32)>, pieces: &[(u64, u64)]) {
    const NOP: u8 = 1;
    const SACK: u8 = 5;
    const STAMPS: u8 = 8;
    let mut options = Vec::with_capacity(OPTIONS);
    if let Some((value, echo)) = stamps {
        options.extend([NOP, NOP, STAMPS, 10]);
        options.extend(value.to_be_bytes());
        options.extend(echo.to_be_bytes());
    }
    let blocks = pieces.len().min((OPTIONS - options.len() - 4) / 8);
    if blocks > 0 {
        options.extend([NOP, NOP, SACK, 2 + 8 * blocks as u8]);
        for &(start, end) in pieces.iter().rev().take(blocks) {
            options.extend(sequence(start).to_be_bytes());
            options.extend(sequence(end).to_be_bytes());
        }
    }
    tcp.set_options_raw(&options).expect("no more than 40 bytes");
}

fn ip_header((from, to): (Ipv4Addr, Ipv4Addr), protocol: IpNumber, payload: usize) -> Ipv4Header {
    let mut ip = Ipv4Header::new(payload as u16, 64, protocol, from.octets(), to.octets())
        .expect("the packet's length was checked when the capture began");
    ip.dont_fragment = true;
    ip
}

impl Capture {
    fn create(path: PathBuf, link: u32) -> Result<Capture, OutputError> {
        let header = PcapHeader {
            snaplen: SNAP_LENGTH,
            datalink: if link > 0 { DataLink::ETHERNET } else { DataLink::IPV4 },
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::Little,
            ..PcapHeader::default()
        };
        match PcapWriter::with_header(begin(&path)?, header) {
            Ok(writer) => Ok(Capture { path, writer, link }),
            Err(error) => Err(output_error(&path, error)),
        }
    }

    fn segment(&mut self, at: Time, frame: &Frame) -> Result<(), OutputError> {
        self.packet(at, &frame.ip, &frame.tcp.to_bytes(), frame.length)
    }

    fn packet(&mut self, at: Time, ip: &Ipv4Header, transport: &[u8], length: u32) -> Result<(), OutputError> {
        // The second bit of an address says that it was made up here.
        let hardware = |[a, b, c, d]: [u8; 4]| [2, 0, a, b, c, d];
        let ethernet = Ethernet2Header {
            source: hardware(ip.source),
            destination: hardware(ip.destination),
            ether_type: EtherType::IPV4,
        };
        let mut bytes = [0; KEPT];
        let mut filled = 0;
        for part in [&ethernet.to_bytes()[..self.link as usize], &ip.to_bytes()[..], transport] {
            bytes[filled..filled + part.len()].copy_from_slice(part);
            filled += part.len();
        }
        let timestamp = std::time::Duration::from_nanos(at.as_nanos());
        let written = self.writer.write_packet(&PcapPacket::new(timestamp, length, &bytes[..filled]));
        written.map(drop).map_err(|error| output_error(&self.path, error))
    }
}

/// The library wraps what the operating system said.
fn output_error(path: &Path, error: PcapError) -> OutputError {
    let source = match error {
        PcapError::IoError(source) => source,
        other => std::io::Error::other(other),
    };
    OutputError::from_io(path, source)
}
