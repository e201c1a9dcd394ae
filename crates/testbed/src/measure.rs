//! What a run on real packets measured, in the types of a simulation.

use crate::emulator::Report;
use anabranch_control::time::{Duration, Time};
use anabranch_lab::flows::FlowScenario;
use anabranch_lab::flows::measured::{
    CrossMeasured, FlowMeasured, FlowSeries, FlowsMeasured, LinkMeasured, ReceiverMeasured, Series,
};
use anabranch_lab::flows::shares::Shares;
use anabranch_scenario::flows::Stack;

use super::plan::Plan;
use super::watch::Sights;
use super::{kernel, quic, receivers, senders};

/// What the threads of a run brought.
pub struct Seen {
    pub ours: senders::Sending,
    pub quic: Vec<quic::senders::QuicSent>,
    pub theirs: Vec<kernel::Sent>,
    pub arrivals: receivers::Arrivals,
    pub quic_arrivals: Vec<quic::receivers::Arrived>,
    pub kernel_arrivals: Vec<kernel::Arrived>,
    pub watched: Sights,
    pub end: Time,
}

/// Puts it together.
pub fn assemble(scenario: &FlowScenario, plan: &Plan, mut seen: Seen, emulator: &Report) -> FlowsMeasured {
    let mut shares = Shares::new(scenario.flows.len());
    let mut notes: Vec<(Time, usize, bool)> = std::mem::take(&mut seen.ours.notes);
    notes.extend(seen.theirs.iter().flat_map(|sent| sent.notes.iter().copied()));
    notes.extend(seen.quic.iter().flat_map(|sent| sent.notes.iter().copied()));
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
        let delivered = match &spec.stack {
            Stack::Ours => seen.of_ours(plan, flow, &mut measured),
            Stack::Quic => seen.of_quic(flow, &mut measured),
            Stack::Kernel(_) => seen.of_kernel(flow, &mut measured),
        };
        let columns = columns(scenario, &delivered, rows);
        let of_all = (0..rows).map(|row| columns.iter().map(|column| column[row]).sum()).collect();
        let quic = seen.quic.iter_mut().map(|quic| &mut quic.sent);
        let own = seen.ours.flows.iter_mut().chain(quic).find(|sent| sent.flow == flow);
        let own = own.map(|sent| &mut sent.series);
        let theirs = seen.theirs.iter_mut().find(|sent| sent.flow == flow).map(|sent| &mut sent.series);
        let mut own = own.or(theirs).map_or_else(|| FlowSeries::of(spec), std::mem::take);
        own.goodput_mbit_s = of_all;
        own.receivers_mbit_s = if columns.len() > 1 { columns } else { Vec::new() };
        own.one_way_ms = std::mem::take(&mut seen.watched.one_way_ms[flow]);
        truncate(&mut own, rows);
        series.push(own);
        flows.push(measured);
    }
    seen.watched.backlog_ms.iter_mut().for_each(|column| column.truncate(rows));
    let link = |(count, (from, last)): (&_, &(u64, u64))| LinkMeasured { count: *count, counted_bytes: last - from };
    let every = scenario.sample_every.unwrap_or(Duration::ZERO);
    FlowsMeasured {
        flows,
        links: emulator.links.iter().zip(&seen.watched.transmitted).map(link).collect(),
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
        warnings: emulator.warnings(),
    }
}

/// A receiver's bytes: in all, when goodput began to count, and at each row.
type Delivered = Vec<(u64, u64, Vec<u64>)>;

impl Seen {
    fn of_ours(&self, plan: &Plan, flow: usize, measured: &mut FlowMeasured) -> Delivered {
        if let Some(sent) = self.ours.flows.iter().find(|sent| sent.flow == flow) {
            said(measured, sent);
        }
        let connections = &self.ours.connections;
        let completed = self.arrivals.completed.iter().filter_map(|&(connection, at)| {
            let &(of, since) = connections.get(connection as usize)?;
            (of == flow).then(|| at.since(since))
        });
        measured.completion = completed.collect();
        let arrived = |number: &usize| self.arrivals.receivers.iter().find(|arrived| arrived.number == *number);
        let each: Delivered = plan.receivers[flow]
            .iter()
            .filter_map(arrived)
            .map(|arrived| (arrived.delivered, arrived.before, arrived.rows.clone()))
            .collect();
        count(measured, &each);
        each
    }

    fn of_quic(&self, flow: usize, measured: &mut FlowMeasured) -> Delivered {
        let quic = self.quic.iter().find(|quic| quic.sent.flow == flow);
        let arrived = self.quic_arrivals.iter().find(|arrived| arrived.flow == flow);
        let (Some(quic), Some(arrived)) = (quic, arrived) else { return Vec::new() };
        said(measured, &quic.sent);
        // Connections come one after the other: a stream is of the last that had begun.
        let began = |end: Time| quic.since.iter().copied().take_while(|since| *since <= end).last();
        measured.completion = arrived.completed.iter().filter_map(|&end| Some(end.since(began(end)?))).collect();
        let each = vec![(arrived.delivered, arrived.before, arrived.rows.clone())];
        count(measured, &each);
        each
    }

    fn of_kernel(&self, flow: usize, measured: &mut FlowMeasured) -> Delivered {
        let sent = self.theirs.iter().find(|sent| sent.flow == flow);
        let arrived = self.kernel_arrivals.iter().find(|arrived| arrived.flow == flow);
        let (Some(sent), Some(arrived)) = (sent, arrived) else { return Vec::new() };
        measured.on_time = sent.on_time;
        measured.completion_acked = sent.completion_acked.clone();
        let whole = arrived.completed.iter().zip(&sent.since);
        measured.completion = whole.filter_map(|(end, since)| Some((*end)?.since(*since))).collect();
        let each = vec![(arrived.delivered, arrived.before, arrived.rows.clone())];
        count(measured, &each);
        each
    }
}

/// What a sender of ours says.
fn said(measured: &mut FlowMeasured, sent: &senders::Sent) {
    measured.controller = sent.controller.clone();
    measured.packets_sent = sent.packets_sent;
    measured.packets_lost = sent.packets_lost;
    measured.spurious_losses = sent.spurious_losses;
    measured.on_time = sent.on_time;
    measured.completion_acked = sent.completion_acked.clone();
}

fn count(measured: &mut FlowMeasured, each: &Delivered) {
    measured.delivered_bytes = each.iter().map(|(delivered, ..)| delivered).sum();
    measured.goodput_bytes = each.iter().map(|(delivered, before, _)| delivered - before).sum();
    measured.receivers = if each.len() > 1 {
        let receiver = |(delivered, before, _): &(u64, u64, Vec<u64>)| ReceiverMeasured {
            goodput_bytes: delivered - before,
            delivered_bytes: *delivered,
        };
        each.iter().map(receiver).collect()
    } else {
        Vec::new()
    };
}

/// Rows that every column has.
fn rows(scenario: &FlowScenario, seen: &Seen) -> usize {
    if scenario.sample_every.is_none() {
        return 0;
    }
    let ours = seen.ours.flows.iter().map(|sent| sent.series.window.len());
    let arrived = seen.arrivals.receivers.iter().map(|arrived| arrived.rows.len());
    let kernel = seen.kernel_arrivals.iter().map(|arrived| arrived.rows.len());
    let theirs = seen.theirs.iter().map(|sent| sent.series.window.len());
    let kernel = kernel.chain(theirs);
    let quic = seen.quic.iter().map(|quic| quic.sent.series.window.len());
    let quic = quic.chain(seen.quic_arrivals.iter().map(|arrived| arrived.rows.len()));
    let watched = seen.watched.one_way_ms.iter().map(Vec::len);
    ours.chain(arrived).chain(kernel).chain(quic).chain(watched).min().unwrap_or(0)
}

/// Mbit/s of each receiver in each row.
fn columns(scenario: &FlowScenario, delivered: &Delivered, rows: usize) -> Vec<Vec<f64>> {
    let every = scenario.sample_every.map_or(f64::NAN, Duration::as_secs_f64);
    let column = |(.., cumulative): &(u64, u64, Vec<u64>)| {
        let before = [0].into_iter().chain(cumulative.iter().copied());
        let each = cumulative.iter().zip(before).take(rows);
        each.map(|(now, before)| (now - before) as f64 * 8.0 / every / 1e6).collect()
    };
    delivered.iter().map(column).collect()
}

fn truncate(series: &mut FlowSeries, rows: usize) {
    let own = [&mut series.one_way_ms, &mut series.in_flight, &mut series.window];
    own.into_iter().chain([&mut series.rate_mbit_s, &mut series.srtt_ms]).for_each(|column| column.truncate(rows));
    series.trace.iter_mut().for_each(|(_, column)| column.truncate(rows));
}
