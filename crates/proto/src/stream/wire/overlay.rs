//! What the server tells of all viewers, as bytes.
//!
//! ```text
//! sent 8, sent bytes 8, source bytes 8, children 4, delivered 8, watching 4, delays 4 each,
//! viewers 2, slices 1, happenings 1
//! each viewer: client 4, state and whether private 1, places 2, children 2, sent 4 and capacity 4 in kbit/s,
//!              played 8, skipped 8, delay 2 and round trip 2 in ms
//! each slice:  for each viewer 2: which of them is its parent; 0xffff the server, 0xfffe nobody
//! each happening: tenths of seconds ago 2, client 4, what 1
//! ```

use anabranch_control::time::Duration;
use anabranch_control::units::Rate;

use super::client_id;
use crate::codec::{CodecError, Reader, Writer};
use crate::stream::content::ClientId;
use crate::stream::overlay::{
    DELAYS, Happened, Happening, MOST_HAPPENINGS, MOST_LISTED, OverlayView, ServerLoad, ViewerFigures, ViewerState,
};
use crate::stream::packet::MAX_SLICES;

/// Viewers that are read: those who watch, and those who have just gone.
const MOST_VIEWERS: usize = MOST_LISTED + MOST_HAPPENINGS;

const VIEWER: usize = 4 + 1 + 2 + 2 + 4 + 4 + 8 + 8 + 2 + 2;
const HAPPENING: usize = 2 + 4 + 1;

/// Parents that are no viewers.
const SERVER: u16 = 0xffff;
const NOBODY: u16 = 0xfffe;

/// What stands for a time that is unknown.
const UNKNOWN: u16 = u16::MAX;

/// The bit of a state that says that the viewer is private.
const PRIVATE: u8 = 0x80;

/// A tenth of a second.
const TENTH: Duration = Duration::from_millis(100);
const MILLISECOND: Duration = Duration::from_millis(1);

fn write_rate(rate: Rate, writer: &mut Writer<'_>) {
    writer.u32(u32::try_from(rate.bits_per_sec() / 1000).unwrap_or(u32::MAX));
}

fn read_rate(reader: &mut Reader<'_>) -> Result<Rate, CodecError> {
    reader.u32().map(|kilobits| Rate::from_bits_per_sec(1000 * u64::from(kilobits)))
}

fn in_units(duration: Duration, unit: Duration) -> u16 {
    u16::try_from(duration.as_nanos() / unit.as_nanos()).unwrap_or(UNKNOWN - 1).min(UNKNOWN - 1)
}

fn write_time(time: Option<Duration>, writer: &mut Writer<'_>) {
    writer.u16(time.map_or(UNKNOWN, |time| in_units(time, MILLISECOND)));
}

fn read_time(reader: &mut Reader<'_>) -> Result<Option<Duration>, CodecError> {
    let millis = reader.u16()?;
    Ok((millis != UNKNOWN).then(|| Duration::from_millis(u64::from(millis))))
}

fn write_viewer(viewer: &ViewerFigures, writer: &mut Writer<'_>) {
    writer.u32(viewer.client.0);
    writer.u8(viewer.state as u8 | if viewer.is_private { PRIVATE } else { 0 });
    writer.u16(viewer.places);
    writer.u16(viewer.children);
    write_rate(viewer.sent, writer);
    write_rate(viewer.capacity, writer);
    writer.u64(viewer.played);
    writer.u64(viewer.skipped);
    write_time(viewer.delay, writer);
    write_time(viewer.round_trip, writer);
}

fn read_viewer(reader: &mut Reader<'_>) -> Result<ViewerFigures, CodecError> {
    let (client, flags) = (client_id(reader)?, reader.u8()?);
    let state = ViewerState::ALL.get(usize::from(flags & !PRIVATE)).copied().ok_or(CodecError::Value("state"))?;
    Ok(ViewerFigures {
        client,
        state,
        is_private: flags & PRIVATE != 0,
        places: reader.u16()?,
        children: reader.u16()?,
        sent: read_rate(reader)?,
        capacity: read_rate(reader)?,
        played: reader.u64()?,
        skipped: reader.u64()?,
        delay: read_time(reader)?,
        round_trip: read_time(reader)?,
    })
}

/// Appends `view`, and nothing of what is more than may be.
pub(super) fn write(view: &OverlayView, writer: &mut Writer<'_>) {
    let viewers = &view.viewers[..view.viewers.len().min(MOST_VIEWERS)];
    let trees = &view.trees[..view.trees.len().min(usize::from(MAX_SLICES))];
    let happenings = &view.happenings[..view.happenings.len().min(MOST_HAPPENINGS)];
    writer.u64(view.load.sent.bits_per_sec());
    writer.u64(view.load.sent_bytes);
    writer.u64(view.load.source_bytes);
    writer.u32(view.server_children);
    writer.u64(view.delivered_bytes);
    writer.u32(view.watching);
    view.delays.iter().for_each(|&count| writer.u32(count));
    writer.u16(viewers.len() as u16);
    writer.u8(trees.len() as u8);
    writer.u8(happenings.len() as u8);
    viewers.iter().for_each(|viewer| write_viewer(viewer, writer));
    let place = |client: &ClientId| viewers.binary_search_by_key(client, |viewer| viewer.client).ok();
    for tree in trees {
        let mut parents = vec![NOBODY; viewers.len()];
        for (child, parent) in tree {
            let Some(child) = place(child) else { continue };
            parents[child] = match parent {
                None => SERVER,
                Some(parent) => place(parent).map_or(NOBODY, |parent| parent as u16),
            };
        }
        parents.iter().for_each(|&parent| writer.u16(parent));
    }
    for Happening { ago, client, what } in happenings {
        writer.u16(in_units(*ago, TENTH));
        writer.u32(client.0);
        writer.u8(*what as u8);
    }
}

/// What the server tells.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<OverlayView, CodecError> {
    let sent = reader.u64().map(Rate::from_bits_per_sec)?;
    let load = ServerLoad { sent, sent_bytes: reader.u64()?, source_bytes: reader.u64()? };
    let (server_children, delivered_bytes, watching) = (reader.u32()?, reader.u64()?, reader.u32()?);
    let mut delays = [0; DELAYS.len() + 1];
    for count in &mut delays {
        *count = reader.u32()?;
    }
    let (viewers, slices) = (usize::from(reader.u16()?), usize::from(reader.u8()?));
    let happenings = usize::from(reader.u8()?);
    let viewers = reader.count("viewers", viewers, MOST_VIEWERS, VIEWER)?;
    let viewers = (0..viewers).map(|_| read_viewer(reader)).collect::<Result<Vec<_>, _>>()?;
    if !viewers.is_sorted_by(|one, next| one.client < next.client) {
        return Err(CodecError::Value("client"));
    }
    let slices = reader.count("slices", slices, usize::from(MAX_SLICES), 2 * viewers.len())?;
    let tree = |_| {
        let mut edges = Vec::new();
        for child in &viewers {
            let parent = match reader.u16()? {
                NOBODY => continue,
                SERVER => None,
                place => Some(viewers.get(usize::from(place)).ok_or(CodecError::Value("parent"))?.client),
            };
            edges.push((child.client, parent));
        }
        Ok(edges)
    };
    let trees = (0..slices).map(tree).collect::<Result<_, CodecError>>()?;
    let happenings = reader.count("happenings", happenings, MOST_HAPPENINGS, HAPPENING)?;
    let happening = |_| {
        let (ago, client) = (TENTH * u64::from(reader.u16()?), client_id(reader)?);
        let what = Happened::ALL.get(usize::from(reader.u8()?)).copied().ok_or(CodecError::Value("happened"))?;
        Ok(Happening { ago, client, what })
    };
    let happenings = (0..happenings).map(happening).collect::<Result<_, CodecError>>()?;
    Ok(OverlayView { load, server_children, delivered_bytes, watching, delays, viewers, trees, happenings })
}
