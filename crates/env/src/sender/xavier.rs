//! The decision of [Xavier]: what becomes of the window with each ACK.
//!
//! ```text
//! actions    0: W + 1,   1: W + 1/W,   2: W - 1/W,   3: W                4.3.1; packets; W >= 1
//! EWMA-RTT   e = 0.8 e + 0.2 rtt                                         4.3.2
//! RTT-RATIO  rtt / least rtt
//! reward     for each packet that is acknowledged: (e_prev - e) / e_prev + beta [the action grew W]      4.3.3
//! ```
//!
//! `e_prev` and the action are those in force when the packet left, so that a reward comes a round trip after what earned
//! it; a step's reward is that of all packets that its ACK acknowledges. beta is 2, as in the controller `xavier`, whose
//! file tells what the paper leaves open. Losses are answered beneath, by half, once each EWMA-RTT. Packets that were lost
//! bring nothing. Here packets are taken to be acknowledged in the order in which they left.
//!
//! An episode is 20 s over the paper's links: 3 or 15 Mbit/s, a round trip of 152 ms, 1000 packets of queue.

use std::collections::VecDeque;

use anabranch_control::rng::Rng;
use anabranch_control::time::Duration;
use anabranch_control::units::{Bytes, Rate};
use anabranch_lab::flows::FlowRunError;
use anabranch_scenario::flows::FlowScenario;
use anabranch_sim::network::Capacity;

use super::line::{Heard, Line};
use super::{Actions, Decide, Seen, Setting};
use crate::catalogue::OneLink;

/// EWMA-RTT's weight of a new sample.
const WEIGHT: f64 = 0.2;

/// The bonus for growth.
const BETA: f64 = 2.0;

/// The first window, the least and the most, in packets.
const FIRST_WINDOW: f64 = 2.0;
const WINDOWS: (f64, f64) = (1.0, 16_384.0);

pub(super) static SETTING: Setting = Setting {
    actions: Actions::Choice(4),
    seen: &[
        Seen { name: "ewma_rtt", unit: "mean round trip, 0.2 for the newest, seconds", low: 0.0, high: 10.0 },
        Seen { name: "rtt_ratio", unit: "newest round trip over the least", low: 1.0, high: 100.0 },
    ],
    history: 1,
    terms: &["delay", "growth"],
    most_steps: 1_000_000,
    draw,
};

fn draw(rng: &mut Rng) -> FlowScenario {
    let mbit_s = if rng.chance(0.5) { 3 } else { 15 };
    OneLink {
        rate: Rate::from_bits_per_sec(mbit_s * 1_000_000),
        there: Duration::from_millis(76),
        back: Duration::from_millis(76),
        queue: Capacity::Packets(1000),
        loss: 0.0,
        length: Duration::from_millis(20_000),
        data: Bytes::new(1210),
        header: Bytes::new(40),
        ack_every: 1,
        first_window: 2,
    }
    .scenario()
}

/// Packets that left under an action.
#[derive(Clone, Copy, Debug)]
struct Left {
    packets: f64,
    ewma: f64,
    grew: bool,
}

/// The law; windows in packets, times in seconds.
#[derive(Clone, Debug, Default)]
pub struct Xavier {
    window: f64,
    ewma: f64,
    rtt: f64,
    least: f64,
    last_loss: Option<f64>,
    /// What is in flight, the oldest first.
    left: VecDeque<Left>,
    counted: u64,
    delay: f64,
    growth: f64,
}

impl Xavier {
    /// Packets that have left since the last look did so under what is in force.
    fn count(&mut self, sent: u64, grew: bool) {
        let packets = (sent - std::mem::replace(&mut self.counted, sent)) as f64;
        if packets > 0.0 {
            self.left.push_back(Left { packets, ewma: self.ewma, grew });
        }
    }

    /// This many of the oldest are not in flight any more; what their acknowledgement is worth.
    fn take(&mut self, mut packets: f64) -> (f64, f64) {
        let (mut delay, mut growth) = (0.0, 0.0);
        while packets > 1e-9 {
            let Some(oldest) = self.left.front_mut() else { break };
            let part = packets.min(oldest.packets);
            if oldest.ewma > 0.0 {
                delay += part * (oldest.ewma - self.ewma) / oldest.ewma;
            }
            growth += if oldest.grew { part * BETA } else { 0.0 };
            oldest.packets -= part;
            packets -= part;
            if oldest.packets <= 1e-9 {
                self.left.pop_front();
            }
        }
        (delay, growth)
    }

    /// Until the next ACK, or the end.
    fn wait(&mut self, line: &mut Line, grew: bool) -> Result<(), FlowRunError> {
        (self.delay, self.growth) = (0.0, 0.0);
        loop {
            let heard = line.hear(line.end())?;
            self.count(line.sent(), grew);
            match heard {
                Heard::Ack { packets, rtt } => {
                    self.rtt = rtt;
                    self.least = if self.least == 0.0 { rtt } else { self.least.min(rtt) };
                    self.ewma = if self.ewma == 0.0 { rtt } else { (1.0 - WEIGHT) * self.ewma + WEIGHT * rtt };
                    (self.delay, self.growth) = self.take(packets);
                    return Ok(());
                }
                Heard::Lost(packets) => {
                    self.take(packets);
                    let now = line.now_s();
                    if self.last_loss.is_none_or(|last| now > last + self.ewma) {
                        self.last_loss = Some(now);
                        self.window = (self.window / 2.0).max(WINDOWS.0);
                        line.set(self.window, None);
                    }
                }
                Heard::Silence => return Ok(()),
            }
        }
    }
}

impl Decide for Xavier {
    fn begin(&mut self, line: &mut Line, _: &mut Rng) -> Result<(), FlowRunError> {
        self.window = FIRST_WINDOW;
        line.set(self.window, None);
        self.wait(line, false)
    }

    fn act(&mut self, action: f32, line: &mut Line) -> Result<(), FlowRunError> {
        let window = match action as usize {
            0 => self.window + 1.0,
            1 => self.window + 1.0 / self.window,
            2 => self.window - 1.0 / self.window,
            _ => self.window,
        };
        self.window = window.clamp(WINDOWS.0, WINDOWS.1);
        line.set(self.window, None);
        self.count(line.sent(), action < 1.5);
        self.wait(line, action < 1.5)
    }

    fn seen(&self) -> Vec<f64> {
        vec![self.ewma, if self.least > 0.0 { self.rtt / self.least } else { 1.0 }]
    }

    fn terms(&self) -> (Vec<f64>, f64) {
        (vec![self.delay, self.growth], self.delay + self.growth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_paid_by_the_mean_when_it_left_and_by_whether_it_came_of_growth() {
        let mut law = Xavier { ewma: 0.1, ..Xavier::default() };
        law.count(3, true);
        law.ewma = 0.2;
        law.count(5, false);
        law.ewma = 0.15;
        // Three left at 0.1 and after growth, of two at 0.2 one is acknowledged.
        let (delay, growth) = law.take(4.0);
        assert!((delay - (3.0 * (0.1 - 0.15) / 0.1 + (0.2 - 0.15) / 0.2)).abs() < 1e-9, "{delay}");
        assert_eq!(growth, 3.0 * BETA);
        assert_eq!(law.take(1.0).1, 0.0);
        assert_eq!(law.take(1.0), (0.0, 0.0), "nothing is in flight");
    }
}
