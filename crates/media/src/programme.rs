//! Reads the tables of a transport stream (ISO/IEC 13818-1, 2.4.4): which streams it has, and which of
//! them is video.

use mpeg2ts_reader::demultiplex::{
    DemuxContext, FilterChangeset, FilterRequest, NullPacketFilter, PatPacketFilter, PmtPacketFilter,
};
use mpeg2ts_reader::packet::Pid;
use mpeg2ts_reader::psi::pat::PAT_PID;
use mpeg2ts_reader::{StreamType, packet_filter_switch};

packet_filter_switch! {
    Filter<Programme> {
        Association: PatPacketFilter<Programme>,
        Map: PmtPacketFilter<Programme>,
        Other: NullPacketFilter<Programme>,
    }
}

/// What the tables say.
#[derive(Default)]
pub struct Programme {
    changes: FilterChangeset<Filter>,
    pub map: Option<Pid>,
    /// The number of the programme whose map that is.
    pub number: Option<u16>,
    pub video: Option<Pid>,
    pub audio: Option<Pid>,
}

impl DemuxContext for Programme {
    type F = Filter;

    fn filter_changeset(&mut self) -> &mut FilterChangeset<Filter> {
        &mut self.changes
    }

    fn construct(&mut self, request: FilterRequest<'_, '_>) -> Filter {
        match request {
            FilterRequest::ByPid(PAT_PID) => Filter::Association(PatPacketFilter::default()),
            FilterRequest::Pmt { pid, program_number } => {
                // Of several programmes, players choose the first.
                if self.map.is_none() {
                    (self.map, self.number) = (Some(pid), Some(program_number));
                }
                Filter::Map(PmtPacketFilter::new(pid, program_number))
            }
            FilterRequest::ByStream { program_pid, stream_type, stream_info, .. } => {
                if self.map == Some(program_pid) {
                    let pid = stream_info.elementary_pid();
                    match stream_type {
                        StreamType::ISO_11172_VIDEO | StreamType::H262 | StreamType::H264 | StreamType::H265 => {
                            self.video = Some(pid);
                        }
                        _ => _ = self.audio.get_or_insert(pid),
                    }
                }
                Filter::Other(NullPacketFilter::default())
            }
            FilterRequest::ByPid(_) | FilterRequest::Nit { .. } => Filter::Other(NullPacketFilter::default()),
        }
    }
}
