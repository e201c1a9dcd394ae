//! A flow's application at work: when it sends, how much, and when a transfer is over.

use anabranch_control::flow::PeerId;
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_proto::flow::FlowSender;

use super::cross::scaled;
use anabranch_scenario::flows::{FlowSpec, OnPeriod, Size, Workload};

/// Blocks that wait in the sender: enough that it never runs out between two calls.
const BLOCKS_AHEAD: u64 = 4;

/// Where an application's data goes.
pub trait Outlet {
    /// Hands over `bytes` for `to`, the last of the stream to it if `last`; `u64::MAX` never
    /// end.
    fn write(&mut self, to: PeerId, bytes: u64, last: bool);

    /// Bytes that wait to be sent for the first time.
    fn unsent(&self) -> u64;
}

impl Outlet for FlowSender {
    #[inline]
    fn write(&mut self, to: PeerId, bytes: u64, last: bool) {
        FlowSender::write(self, to, bytes, last);
    }

    #[inline]
    fn unsent(&self) -> u64 {
        FlowSender::unsent(self)
    }
}

/// What the world must do for an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Begin a connection, then call `begin`.
    Open,
    /// Go on with the connection that there is, then call `begin`.
    Resume,
    /// Take back what has not left yet; the connection goes idle.
    Pause,
    /// End the connection; what is on its way is not waited for.
    Close,
}

/// One application.
#[derive(Clone, Debug)]
pub struct Application {
    workload: Workload,
    rng: Rng,
    receivers: u32,
    /// The receiver of the next block.
    turn: u32,
    stop: Time,
    /// When it must be called.
    pub wake: Time,
    /// Since when it is on.
    on_since: Option<Time>,
    on_time: Duration,
    opened: bool,
    stopped: bool,
}

impl Application {
    /// That of the flow, before its beginning.
    pub fn new(spec: &FlowSpec, seed: u64) -> Application {
        let mut rng = Rng::stream(seed, &format!("application/{}", spec.name));
        let first_off = match spec.workload {
            Workload::OnOff { off_mean, .. } => scaled(off_mean, rng.exponential()),
            _ => Duration::ZERO,
        };
        Application {
            workload: spec.workload.clone(),
            rng,
            receivers: spec.receivers.len() as u32,
            turn: 0,
            stop: spec.stop.unwrap_or(Time::MAX),
            wake: spec.start + first_off,
            on_since: None,
            on_time: Duration::ZERO,
            opened: false,
            stopped: false,
        }
    }

    /// `wake` has come.
    pub fn wake(&mut self, now: Time) -> Action {
        if now >= self.stop {
            self.stopped = true;
            self.wake = Time::MAX;
            self.go_off(now);
            return Action::Close;
        }
        match (self.on_since, &self.workload) {
            (None, Workload::OnOff { new_connections: false, .. }) if self.opened => Action::Resume,
            (None, _) => Action::Open,
            (Some(_), _) => {
                self.rest(now);
                match self.workload {
                    Workload::OnOff { new_connections: false, .. } => Action::Pause,
                    _ => Action::Close,
                }
            }
        }
    }

    /// Goes on, and hands over what it sends.
    pub fn begin(&mut self, now: Time, sender: &mut impl Outlet) {
        let first = PeerId(0);
        self.opened = true;
        self.on_since.get_or_insert(now);
        self.wake = self.stop;
        match &self.workload {
            Workload::Bulk => sender.write(first, u64::MAX, false),
            Workload::Once(size) | Workload::Repeated { size, .. } => {
                let bytes = match size {
                    Size::Fixed(bytes) => *bytes,
                    Size::Drawn(sizes) => sizes.draw(&mut self.rng),
                };
                sender.write(first, bytes.get(), true);
            }
            Workload::Blocks(_) => self.refill(sender),
            Workload::OnOff { on: OnPeriod::Time { mean }, .. } => {
                sender.write(first, u64::MAX, false);
                self.wake = (now + scaled(*mean, self.rng.exponential())).min(self.stop);
            }
            Workload::OnOff { on: OnPeriod::Bytes { mean }, new_connections, .. } => {
                let bytes = (mean.get() as f64 * self.rng.exponential()).max(1.0) as u64;
                sender.write(first, bytes, *new_connections);
            }
            Workload::OnOff { on: OnPeriod::Drawn(sizes), new_connections, .. } => {
                sender.write(first, sizes.draw(&mut self.rng).get(), *new_connections);
            }
        }
    }

    /// Is on, but its connection takes no data yet.
    pub fn await_handshake(&mut self, now: Time) {
        self.opened = true;
        self.on_since = Some(now);
        self.wake = self.stop;
    }

    /// Whether it is on.
    pub fn is_on(&self) -> bool {
        self.on_since.is_some()
    }

    /// Keeps blocks coming.
    #[inline]
    pub fn refill(&mut self, sender: &mut impl Outlet) {
        let Workload::Blocks(block) = self.workload else { return };
        if self.on_since.is_none() {
            return;
        }
        while sender.unsent() < block.get() * BLOCKS_AHEAD {
            sender.write(PeerId(self.turn), block.get(), false);
            self.turn = (self.turn + 1) % self.receivers;
        }
    }

    /// Whether the end of what was handed over ends an on-period.
    #[inline]
    pub fn ends_with_its_data(&self) -> bool {
        let ends = match &self.workload {
            Workload::Once(_) | Workload::Repeated { .. } => true,
            Workload::OnOff { on, .. } => !matches!(on, OnPeriod::Time { .. }),
            Workload::Bulk | Workload::Blocks(_) => false,
        };
        ends && self.on_since.is_some()
    }

    /// All that was handed over has been acknowledged.
    pub fn finished(&mut self, now: Time) {
        self.rest(now);
    }

    /// Goes off until the next on-period, if there is one.
    fn rest(&mut self, now: Time) {
        let began = self.on_since.unwrap_or(now);
        self.go_off(now);
        self.wake = match self.workload {
            Workload::OnOff { off_mean, .. } if !self.stopped => now + scaled(off_mean, self.rng.exponential()),
            Workload::Repeated { every, .. } if !self.stopped => (began + every).max(now),
            _ => Time::MAX,
        };
    }

    fn go_off(&mut self, now: Time) {
        if let Some(since) = self.on_since.take() {
            self.on_time = self.on_time + now.since(since);
        }
    }

    /// How long it has been on, until `now`.
    pub fn on_time(&self, now: Time) -> Duration {
        self.on_time + self.on_since.map_or(Duration::ZERO, |since| now.since(since))
    }
}
