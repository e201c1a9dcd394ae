//! One stream of video as a transport stream (ISO/IEC 13818-1), at a constant rate.
//!
//! How many packets a picture has says the rate alone. What the picture itself does not need is filler within it, so
//! that every packet counts in the continuity counter, and one that is lost is missed.

use mpeg2ts::es::{StreamId, StreamType};
use mpeg2ts::pes::PesHeader;
use mpeg2ts::time::{ClockReference, Timestamp};
use mpeg2ts::ts::payload::{Bytes, Pat, Pes, Pmt};
use mpeg2ts::ts::{
    AdaptationField, ContinuityCounter, EsInfo, Pid, ProgramAssociation, TransportScramblingControl, TsHeader,
    TsPacket, TsPacketWriter, TsPayload, VersionNumber, WriteTsPacket as _,
};

use super::h264;
use crate::alignment::PACKET;

const PROGRAMME: u16 = 1;
const ASSOCIATION_PID: u16 = 0;
const MAP_PID: u16 = 0x1000;
const VIDEO_PID: u16 = 0x100;

/// Bytes of a packet behind its header.
const PAYLOAD: usize = PACKET - 4;

/// Of a picture's first packet: the adaptation field with the clock, and the header with the time (2.4.3.5, 2.4.3.7).
const FIRST_PAYLOAD: usize = PAYLOAD - 8 - PES_HEADER;
const PES_HEADER: usize = 6 + PES_LENGTH_FROM;
/// PES_packet_length counts what is behind it.
const PES_LENGTH_FROM: usize = 8;

/// Packets of the tables.
pub const TABLES: u64 = 2;

/// Clocks and times begin anew after this many of their ticks.
const WRAP: u64 = 1 << 33;

/// When a packet leaves and a picture is to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// In ticks of 27 MHz.
    pub clock: u64,
    /// In ticks of 90 kHz.
    pub shown: u64,
}

/// Packets that a picture of this many bytes needs.
pub fn packets_for(bytes: usize) -> u64 {
    1 + bytes.saturating_sub(FIRST_PAYLOAD).div_ceil(PAYLOAD) as u64
}

/// Writes packets.
#[derive(Clone, Debug)]
pub struct Muxer {
    association: ContinuityCounter,
    map: ContinuityCounter,
    video: ContinuityCounter,
}

impl Default for Muxer {
    fn default() -> Muxer {
        let [association, map, video] = [ContinuityCounter::new(); 3];
        Muxer { association, map, video }
    }
}

impl Muxer {
    /// The tables.
    pub fn put_tables(&mut self, to: &mut Vec<u8>) {
        let table = vec![ProgramAssociation { program_num: PROGRAMME, program_map_pid: pid(MAP_PID) }];
        let version_number = VersionNumber::new();
        let association = Pat { transport_stream_id: 1, version_number, table };
        put(to, ASSOCIATION_PID, &mut self.association, None, TsPayload::Pat(association));
        let video = EsInfo { stream_type: StreamType::H264, elementary_pid: pid(VIDEO_PID), descriptors: vec![] };
        let map = Pmt {
            program_num: PROGRAMME,
            pcr_pid: Some(pid(VIDEO_PID)),
            version_number,
            program_info: vec![],
            es_info: vec![video],
        };
        put(to, MAP_PID, &mut self.map, None, TsPayload::Pmt(map));
    }

    /// A picture in this many packets, or as many as it needs.
    pub fn put_picture(&mut self, to: &mut Vec<u8>, mut unit: Vec<u8>, packets: u64, times: Times, is_keyframe: bool) {
        let packets = packets.max(packets_for(unit.len())) as usize;
        let free = FIRST_PAYLOAD + (packets - 1) * PAYLOAD - unit.len();
        h264::fill(&mut unit, free);
        let (first, rest) = unit.split_at(FIRST_PAYLOAD);
        let field = AdaptationField {
            discontinuity_indicator: false,
            random_access_indicator: is_keyframe,
            es_priority_indicator: false,
            pcr: Some(ClockReference::new(times.clock % (WRAP * 300)).expect("it has 33 bits and an extension")),
            opcr: None,
            splice_countdown: None,
            transport_private_data: vec![],
            extension: None,
        };
        let header = PesHeader {
            stream_id: StreamId::new_video(StreamId::VIDEO_MIN).expect("it is one of video"),
            priority: false,
            data_alignment_indicator: true,
            copyright: false,
            original_or_copy: false,
            pts: Some(Timestamp::new(times.shown % WRAP).expect("it has 33 bits")),
            // 2.4.3.7: it is decoded when it is shown.
            dts: None,
            escr: None,
        };
        // 0 for what is longer than can be said; players then wait for the next picture to see the end of this one.
        let pes_packet_len = u16::try_from(PES_LENGTH_FROM + unit.len()).unwrap_or(0);
        let pes = Pes { header, pes_packet_len, data: payload(first) };
        put(to, VIDEO_PID, &mut self.video, Some(field), TsPayload::PesStart(pes));
        for part in rest.chunks(PAYLOAD) {
            put(to, VIDEO_PID, &mut self.video, None, TsPayload::PesContinuation(payload(part)));
        }
    }
}

fn pid(number: u16) -> Pid {
    Pid::new(number).expect("it has 13 bits")
}

fn payload(bytes: &[u8]) -> Bytes {
    Bytes::new(bytes).expect("it fits into a packet")
}

fn put(
    to: &mut Vec<u8>,
    number: u16,
    counter: &mut ContinuityCounter,
    adaptation_field: Option<AdaptationField>,
    payload: TsPayload,
) {
    let header = TsHeader {
        transport_error_indicator: false,
        transport_priority: false,
        pid: pid(number),
        transport_scrambling_control: TransportScramblingControl::NotScrambled,
        continuity_counter: *counter,
    };
    counter.increment();
    let packet = TsPacket { header, adaptation_field, payload: Some(payload) };
    TsPacketWriter::new(to).write_ts_packet(&packet).expect("a packet has room for what is put into it");
}
