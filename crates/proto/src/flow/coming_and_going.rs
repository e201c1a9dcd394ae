//! A shared window's receivers that come and go, and those that are silent for long.

use anabranch_control::flow::{FlowController, LossCause, Lost, PeerId};
use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;

use super::config::SenderConfig;
use super::shared_controller::SharedController;
use super::shared_window::SharedWindow;
use super::space::Space;

impl SharedWindow {
    /// The window of receivers that come and go, none yet.
    pub fn without_receivers(config: SenderConfig, controller: Box<dyn FlowController>, rng: Rng) -> SharedWindow {
        let shared = SharedController::of_many(controller, rng, config.packet, config.max_ack_delay);
        SharedWindow::over(config, shared, 0)
    }

    /// A receiver comes, under a number that is the next one or one whose receiver is gone.
    pub fn join(&mut self, receiver: PeerId) {
        let fresh = Space::of_many(&self.config);
        self.shared.join(receiver);
        match self.spaces.get_mut(receiver.0 as usize) {
            Some(space) => *space = fresh,
            None => {
                debug_assert_eq!(receiver.0 as usize, self.spaces.len(), "receivers are numbered densely");
                self.spaces.push(fresh);
            }
        }
    }

    /// A receiver goes: what is in flight to it counts no more (RFC 9002, 6.4).
    pub fn leave(&mut self, now: Time, receiver: PeerId) {
        self.probes.retain(|to| *to != receiver);
        self.abandon(now, receiver, true);
    }

    /// A receiver has been silent for so long that what is in flight to it counts no more. If
    /// another one has answered to what left later, the others' way is open, and the controller
    /// learns nothing of a loss; else that is a persistent congestion, which needs that no
    /// packet to anybody arrived (RFC 9002, 7.6.2).
    pub fn give_up(&mut self, now: Time, receiver: PeerId) {
        let space = &mut self.spaces[receiver.0 as usize];
        if space.oldest().is_some_and(|oldest| !self.shared.is_closed_since(oldest)) {
            return self.abandon(now, receiver, false);
        }
        self.acked.clear();
        self.lost.clear();
        self.newly_lost.clear();
        space.abandon(|number, sent| {
            self.lost.numbers.push(number);
            self.lost.packets.push(Lost { sent, cause: LossCause::RetransmissionTimeout });
        });
        self.report_persistent_congestion(now, receiver);
    }

    fn abandon(&mut self, now: Time, receiver: PeerId, is_gone: bool) {
        self.acked.clear();
        self.spaces[receiver.0 as usize].abandon(|_, sent| self.acked.push(sent));
        self.shared.release(self.acked.iter().map(|sent| sent.size).sum::<Bytes>());
        self.shared.abandon(now, receiver, &self.acked, is_gone);
        self.refresh();
    }
}
