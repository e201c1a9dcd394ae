//! What the kernel says of its TCP connections while they run: windows, round trips and what
//! was sent again, from the socket option `TCP_INFO` (tcp(7); the structure's fields in their
//! order are a part of Linux's interface, which grows at its end only).

use std::net::TcpStream;

use anabranch_control::time::Duration;
use anabranch_lab::flows::measured::FlowSeries;
use nix::libc;
use nix::sys::socket::getsockopt;

/// A threshold from here on is none: Linux begins with 0x7fffffff packets.
const NO_THRESHOLD: u32 = i32::MAX as u32;

/// The structure as it has been since Linux 4.9, up to `tcpi_delivery_rate`; newer kernels
/// have more behind it and give what is asked for.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
#[allow(dead_code, reason = "fields that are not read hold the places of those that are")]
pub struct Raw {
    state: u8,
    ca_state: u8,
    retransmits: u8,
    probes: u8,
    backoff: u8,
    options: u8,
    scales: u8,
    limited: u8,
    rto_us: u32,
    ato_us: u32,
    snd_mss: u32,
    rcv_mss: u32,
    unacked: u32,
    sacked: u32,
    lost: u32,
    retrans: u32,
    fackets: u32,
    last_data_sent: u32,
    last_ack_sent: u32,
    last_data_recv: u32,
    last_ack_recv: u32,
    pmtu: u32,
    rcv_ssthresh: u32,
    rtt_us: u32,
    rttvar_us: u32,
    snd_ssthresh: u32,
    snd_cwnd: u32,
    advmss: u32,
    reordering: u32,
    rcv_rtt_us: u32,
    rcv_space: u32,
    total_retrans: u32,
    pacing_rate: u64,
    max_pacing_rate: u64,
    bytes_acked: u64,
    bytes_received: u64,
    segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt_us: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
}

#[allow(missing_docs, reason = "nix's macro makes the type")]
mod option {
    use super::{Raw, libc};
    use nix::sys::socket::sockopt::GetStruct;

    #[derive(Clone, Copy, Debug)]
    pub struct TcpInfo;
    nix::getsockopt_impl!(TcpInfo, libc::IPPROTO_TCP, libc::TCP_INFO, Raw, GetStruct<Raw>);
}

/// A connection at an instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// The congestion window, bytes.
    pub window: f64,
    /// Where slow start ends, bytes; none before the first congestion.
    pub threshold: Option<f64>,
    /// Sent and neither acknowledged, selectively acknowledged nor declared lost, with what was
    /// sent again; bytes.
    pub in_flight: f64,
    /// The smoothed round-trip time; none before the first sample.
    pub smoothed_rtt: Option<Duration>,
    /// The least round-trip time of the last five minutes; none before the first sample.
    pub min_rtt: Option<Duration>,
    /// What the kernel would pace at, Mbit/s; none without a bound. It does so where the
    /// congestion control asks for it, as BBR does.
    pub pacing_mbit_s: Option<f64>,
    /// Packets sent again since the connection began.
    pub retransmits: u64,
    /// Packets with data sent since the connection began, those that were sent again among them.
    pub sent: u64,
    /// Bytes acknowledged since the connection began.
    pub acked: u64,
    /// Whether all that was written has been acknowledged.
    pub is_all_acked: bool,
}

impl From<Raw> for Info {
    fn from(raw: Raw) -> Info {
        let micros = |micros: u32| Duration::from_nanos(u64::from(micros) * 1000);
        let bytes = |packets: u32| f64::from(packets) * f64::from(raw.snd_mss);
        // Both are packets that are no longer on their way.
        let gone = raw.sacked + raw.lost;
        Info {
            window: bytes(raw.snd_cwnd),
            threshold: (raw.snd_ssthresh < NO_THRESHOLD).then(|| bytes(raw.snd_ssthresh)),
            in_flight: bytes((raw.unacked + raw.retrans).saturating_sub(gone)),
            smoothed_rtt: (raw.rtt_us > 0).then(|| micros(raw.rtt_us)),
            min_rtt: (raw.min_rtt_us < u32::MAX).then(|| micros(raw.min_rtt_us)),
            pacing_mbit_s: (raw.pacing_rate != u64::MAX).then(|| raw.pacing_rate as f64 * 8.0 / 1e6),
            retransmits: u64::from(raw.total_retrans),
            sent: u64::from(raw.data_segs_out),
            acked: raw.bytes_acked,
            is_all_acked: raw.unacked == 0 && raw.notsent_bytes == 0,
        }
    }
}

/// Asks the kernel.
///
/// # Errors
///
/// As the system says.
pub fn info(stream: &TcpStream) -> std::io::Result<Info> {
    Ok(getsockopt(stream, option::TcpInfo).map(Info::from)?)
}

/// What one flow's rows say.
#[derive(Debug)]
pub struct Samples {
    paces: bool,
    /// What was sent again by connections that have ended.
    earlier: u64,
    /// By the connection that there is.
    current: u64,
}

impl Samples {
    /// Of a flow that is paced, by its congestion control or by a coordinator, or that leaves that to its window.
    pub fn new(paces: bool) -> Samples {
        Samples { paces, earlier: 0, current: 0 }
    }

    /// Another connection begins.
    pub fn begin_connection(&mut self) {
        self.earlier += std::mem::take(&mut self.current);
    }

    /// Adds a row; all is unknown without a connection.
    pub fn push(&mut self, series: &mut FlowSeries, stream: Option<&TcpStream>) {
        let info = stream.and_then(|stream| info(stream).ok());
        let or_unknown = |value: Option<f64>| value.unwrap_or(f64::NAN);
        let of = |value: fn(&Info) -> Option<f64>| or_unknown(info.as_ref().and_then(value));
        self.current = info.map_or(self.current, |info| info.retransmits);
        let window = of(|info| Some(info.window));
        let retransmits = info.map(|_| (self.earlier + self.current) as f64);
        series.window.push(window);
        series.in_flight.push(of(|info| Some(info.in_flight)));
        series.srtt_ms.push(of(|info| info.smoothed_rtt.map(Duration::as_millis_f64)));
        series.rate_mbit_s.push(if self.paces { of(|info| info.pacing_mbit_s) } else { f64::NAN });
        if series.trace.is_empty() {
            series.trace = ["window", "slow_start_threshold", "retransmits"].map(|name| (name, Vec::new())).into();
        }
        let values = [window, of(|info| info.threshold), or_unknown(retransmits)];
        series.trace.iter_mut().zip(values).for_each(|((_, column), value)| column.push(value));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    const RAW: Raw = Raw {
        state: 1,
        ca_state: 0,
        retransmits: 0,
        probes: 0,
        backoff: 0,
        options: 0,
        scales: 0,
        limited: 0,
        rto_us: 0,
        ato_us: 0,
        snd_mss: 1000,
        rcv_mss: 0,
        unacked: 20,
        sacked: 5,
        lost: 3,
        retrans: 2,
        fackets: 0,
        last_data_sent: 0,
        last_ack_sent: 0,
        last_data_recv: 0,
        last_ack_recv: 0,
        pmtu: 0,
        rcv_ssthresh: 0,
        rtt_us: 62_500,
        rttvar_us: 0,
        snd_ssthresh: 7,
        snd_cwnd: 15,
        advmss: 0,
        reordering: 3,
        rcv_rtt_us: 0,
        rcv_space: 0,
        total_retrans: 9,
        pacing_rate: 125_000,
        max_pacing_rate: u64::MAX,
        bytes_acked: 0,
        bytes_received: 0,
        segs_out: 0,
        segs_in: 0,
        notsent_bytes: 0,
        min_rtt_us: 0,
        data_segs_in: 0,
        data_segs_out: 0,
        delivery_rate: 0,
    };

    #[test]
    fn windows_count_packets_of_the_connections_size_and_lost_ones_are_not_in_flight() {
        let info = Info::from(RAW);
        assert_eq!((info.window, info.threshold, info.in_flight), (15_000.0, Some(7_000.0), 14_000.0));
        assert_eq!(info.smoothed_rtt, Some(Duration::from_nanos(62_500_000)));
        assert_eq!((info.pacing_mbit_s, info.retransmits), (Some(1.0), 9));
    }

    #[test]
    fn all_is_acknowledged_when_nothing_is_on_its_way_and_nothing_waits() {
        let is_all_acked = |unacked, notsent_bytes| Info::from(Raw { unacked, notsent_bytes, ..RAW }).is_all_acked;
        assert_eq!([is_all_acked(1, 0), is_all_acked(0, 1), is_all_acked(0, 0)], [false, false, true]);
    }

    #[test]
    fn what_there_is_not_yet_is_none() {
        let info = Info::from(Raw { snd_ssthresh: i32::MAX as u32, rtt_us: 0, pacing_rate: u64::MAX, ..RAW });
        assert_eq!((info.threshold, info.smoothed_rtt, info.pacing_mbit_s), (None, None, None));
    }

    #[test]
    fn the_kernel_begins_with_ten_packets_and_no_threshold() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.write_all(&[1]).unwrap();
        other.read_exact(&mut [0]).unwrap();
        let raw = getsockopt(&stream, option::TcpInfo).unwrap();
        // RFC 6928's window; the byte may have opened it by a packet already.
        assert!((10..=11).contains(&raw.snd_cwnd), "{raw:?}");
        assert_eq!((raw.state, Info::from(raw).threshold), (1, None));
        assert!(raw.snd_mss > 500 && raw.data_segs_out == 1, "{raw:?}");
    }
}
