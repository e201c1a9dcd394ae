//! What a run on real packets measured, in the types of a simulation.

use super::plan::Plan;
use super::receiving::Arrived;
use super::sending::Sent;
use super::watch::{self, Sights};
use crate::emulator::Report;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::measured::{
    CrossMeasured, FlowMeasured, FlowSeries, FlowsMeasured, LinkMeasured, ReceiverMeasured, Series,
};
use anabranch_lab::flows::shares::Shares;
use anabranch_lab::flows::{FlowScenario, blind_flows, late_flows};
use anabranch_scenario::flows::Stack;

/// What the threads of a run brought.
pub struct Seen {
    pub sent: Vec<Sent>,
    pub arrived: Vec<Arrived>,
    pub watched: Sights,
    /// What its coordinator has to say.
    pub notes: Vec<String>,
    pub end: Time,
}

/// Puts it together.
pub fn assemble(scenario: &FlowScenario, plan: &Plan, mut seen: Seen, emulator: &Report) -> FlowsMeasured {
    let mut shares = Shares::new(scenario.flows.len());
    let of_one = |sent: &Sent| sent.notes.iter().map(|&(at, on)| (at, sent.flow, on)).collect::<Vec<_>>();
    let mut notes: Vec<(Time, usize, bool)> = seen.sent.iter().flat_map(of_one).collect();
    notes.sort_unstable();
    notes.iter().for_each(|&(at, flow, on)| shares.note(at, flow, on));
    (0..scenario.flows.len()).for_each(|flow| shares.note(seen.end, flow, false));

    // No column is longer than the shortest: a run may end between two threads' rows.
    let rows = rows(scenario, &seen);
    let mut flows: Vec<FlowMeasured> = Vec::new();
    let mut series: Vec<FlowSeries> = Vec::new();
    for (flow, spec) in scenario.flows.iter().enumerate() {
        let sight = std::mem::take(&mut seen.watched.flows[flow]);
        let mut measured = FlowMeasured {
            controller: spec.controller_name(),
            goodput_bytes: 0,
            delivered_bytes: 0,
            receivers: Vec::new(),
            one_way: sight.one_way,
            packets_sent: sight.sent,
            packets_lost: sight.sent_again,
            spurious_losses: 0,
            on_time: Duration::ZERO,
            share_time: shares.of(flow),
            late_bytes: 0,
            completion: Vec::new(),
            completion_acked: Vec::new(),
        };
        let arrived = arrived(plan, &seen.arrived, flow);
        count(&mut measured, &arrived);
        let mut own = FlowSeries::of(spec);
        if let Some(sent) = seen.sent.iter_mut().find(|sent| sent.flow == flow) {
            said(&mut measured, sent, &arrived);
            own = std::mem::take(&mut sent.series);
        }
        let columns = columns(scenario, &arrived, rows);
        let of_all = (0..rows).map(|row| columns.iter().map(|column| column[row]).sum()).collect();
        own.goodput_mbit_s = of_all;
        own.receivers_mbit_s = if columns.len() > 1 { columns } else { Vec::new() };
        own.one_way_ms = std::mem::take(&mut seen.watched.one_way_ms[flow]);
        truncate(&mut own, rows);
        series.push(own);
        flows.push(measured);
    }
    let noted = seen.sent.iter().filter_map(|sent| {
        let note = sent.note.as_ref()?;
        Some(format!("flow \"{}\": {note}", scenario.flows[sent.flow].name))
    });
    let notes = late_flows(scenario).chain(noted).chain(seen.notes).collect();
    let mut warnings = emulator.warnings();
    warnings.extend(blind_flows(scenario, &flows, |spec| spec.stack == Stack::Ours));
    seen.watched.backlog_ms.iter_mut().for_each(|column| column.truncate(rows));
    let looked_every = watch::interval(scenario);
    let transmitted = seen.watched.transmitted_within(looked_every, scenario.goodput_from, seen.end);
    let link = |(count, counted_bytes): (&_, u64)| LinkMeasured { count: *count, counted_bytes };
    let every = scenario.sample_every.unwrap_or(Duration::ZERO);
    FlowsMeasured {
        flows,
        links: emulator.links.iter().zip(transmitted).map(link).collect(),
        cross_traffic: emulator
            .sources
            .iter()
            .map(|source| CrossMeasured { sent: source.sent, arrived: source.arrived })
            .collect(),
        series: Series {
            at: (1..=rows as u64).map(|row| Time::ZERO + every * row).collect(),
            flows: series,
            backlog_ms: seen.watched.backlog_ms,
        },
        length: seen.end.since(Time::ZERO),
        events: None,
        warnings,
        notes,
    }
}

/// What a flow's receivers got.
fn arrived<'a>(plan: &Plan, all: &'a [Arrived], flow: usize) -> Vec<&'a Arrived> {
    let of = |&number: &usize| all.iter().find(|arrived| arrived.number == number);
    plan.receivers[flow].iter().filter_map(of).collect()
}

/// What a sender says.
fn said(measured: &mut FlowMeasured, sent: &Sent, arrived: &[&Arrived]) {
    measured.controller = sent.controller.clone();
    if let Some(packets) = sent.packets {
        measured.packets_sent = packets.packets;
        measured.packets_lost = packets.lost;
        measured.spurious_losses = packets.spurious;
    }
    measured.on_time = sent.on_time;
    measured.completion_acked = sent.completion_acked.clone();
    // Connections come one after the other: a stream is of the last that had begun.
    let began = |end: Time| sent.since.iter().copied().take_while(|since| *since <= end).last();
    let mut ends: Vec<Time> = arrived.iter().flat_map(|arrived| arrived.completed.iter().copied()).collect();
    ends.sort_unstable();
    measured.completion = ends.into_iter().filter_map(|end| Some(end.since(began(end)?))).collect();
}

fn count(measured: &mut FlowMeasured, each: &[&Arrived]) {
    let receiver = |arrived: &&Arrived| ReceiverMeasured {
        goodput_bytes: arrived.delivered - arrived.before,
        delivered_bytes: arrived.delivered,
    };
    let receivers: Vec<ReceiverMeasured> = each.iter().map(receiver).collect();
    measured.delivered_bytes = receivers.iter().map(|receiver| receiver.delivered_bytes).sum();
    measured.goodput_bytes = receivers.iter().map(|receiver| receiver.goodput_bytes).sum();
    measured.receivers = if receivers.len() > 1 { receivers } else { Vec::new() };
}

/// Rows that every column has.
fn rows(scenario: &FlowScenario, seen: &Seen) -> usize {
    if scenario.sample_every.is_none() {
        return 0;
    }
    let sent = seen.sent.iter().map(|sent| sent.series.window.len());
    let arrived = seen.arrived.iter().map(|arrived| arrived.rows.len());
    let watched = seen.watched.one_way_ms.iter().map(Vec::len);
    sent.chain(arrived).chain(watched).min().unwrap_or(0)
}

/// Mbit/s of each receiver in each row.
fn columns(scenario: &FlowScenario, arrived: &[&Arrived], rows: usize) -> Vec<Vec<f64>> {
    let every = scenario.sample_every.map_or(f64::NAN, Duration::as_secs_f64);
    let column = |arrived: &&Arrived| {
        let before = [0].into_iter().chain(arrived.rows.iter().copied());
        let each = arrived.rows.iter().zip(before).take(rows);
        each.map(|(now, before)| (now - before) as f64 * 8.0 / every / 1e6).collect()
    };
    arrived.iter().map(column).collect()
}

fn truncate(series: &mut FlowSeries, rows: usize) {
    let own = [&mut series.one_way_ms, &mut series.in_flight, &mut series.window];
    own.into_iter().chain([&mut series.rate_mbit_s, &mut series.srtt_ms]).for_each(|column| column.truncate(rows));
    series.trace.iter_mut().for_each(|(_, column)| column.truncate(rows));
}
