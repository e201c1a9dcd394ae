//! Receivers of flows under QUIC.

use std::cell::RefCell;
use std::net::UdpSocket;
use std::pin::pin;

use anabranch_control::time::Time;
use anabranch_net::quic::identity::Identity;
use anabranch_net::quic::stream::{InStream, StreamReceiver};
use futures_util::future::join_all;

use super::super::failure::TestbedFailure;
use super::super::{LONGEST_WAIT, Run, Tick, Ticks};
use super::{CHUNK, runtime, sleep_until};

/// What a flow's receiver got.
#[derive(Debug, Default)]
pub struct Arrived {
    /// The flow.
    pub flow: usize,
    /// Bytes of its streams, in order.
    pub delivered: u64,
    /// Bytes when goodput began to count.
    pub before: u64,
    /// Bytes at each row.
    pub rows: Vec<u64>,
    /// When streams had arrived whole.
    pub completed: Vec<Time>,
}

/// Receives until the run is over. Each socket belongs to a flow.
pub fn receive(
    run: &Run<'_>,
    sockets: Vec<(usize, UdpSocket)>,
    identity: &Identity,
) -> Result<Vec<Arrived>, TestbedFailure> {
    if sockets.is_empty() {
        return Ok(Vec::new());
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        let (mut flows, mut receivers) = (Vec::new(), Vec::new());
        for (flow, socket) in sockets {
            let receiver = StreamReceiver::new(socket, identity, run.plan.quic_packet);
            receivers.push(receiver.map_err(TestbedFailure::sockets("receive QUIC"))?);
            flows.push(RefCell::new(Arrived { flow, ..Arrived::default() }));
        }
        let receiving = join_all(receivers.iter().zip(&flows).map(|(receiver, flow)| accept(run, receiver, flow)));
        tokio::select! {
            _ = receiving => {}
            () = watch(run, &flows) => {}
        }
        Ok(flows.into_iter().map(RefCell::into_inner).collect())
    })
}

/// Takes rows until the run is over.
async fn watch(run: &Run<'_>, flows: &[RefCell<Arrived>]) {
    let mut ticks = Ticks::new(run.scenario);
    loop {
        let now = run.clock.now();
        while let Some(tick) = ticks.pop(now) {
            for flow in flows {
                let mut flow = flow.borrow_mut();
                let delivered = flow.delivered;
                match tick {
                    Tick::Row => flow.rows.push(delivered),
                    Tick::Goodput => flow.before = delivered,
                    Tick::Steering => {}
                }
            }
        }
        if !run.goes_on(now) {
            return;
        }
        sleep_until(run.clock, run.until(now, ticks.next()), LONGEST_WAIT).await;
    }
}

/// Receives one connection after the other: a new one is the old one's end, whose farewell
/// may be lost.
async fn accept(run: &Run<'_>, receiver: &StreamReceiver, flow: &RefCell<Arrived>) {
    let mut next = pin!(receiver.accept());
    let mut stream: Option<InStream> = None;
    let mut chunk = vec![0; CHUNK];
    loop {
        let reading = async {
            match &mut stream {
                Some(stream) => stream.read(&mut chunk).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = &mut next => {
                let Some(accepted) = accepted else { return };
                // Who has given up before its stream began has another try.
                stream = accepted.ok().or(stream);
                next.set(receiver.accept());
            }
            read = reading => match read {
                Ok(Some(length)) => flow.borrow_mut().delivered += length as u64,
                Ok(None) => {
                    flow.borrow_mut().completed.push(run.clock.now());
                    if let Some(stream) = stream.take() {
                        // It stays until its sender knows that all has arrived.
                        tokio::spawn(async move { stream.closed().await });
                    }
                }
                Err(_) => stream = None,
            },
        }
    }
}
