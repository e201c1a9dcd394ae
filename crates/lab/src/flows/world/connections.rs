//! Connections begin and end as applications want them to.

use anabranch_proto::flow::FlowReceiver;

use super::super::events::What;
use super::super::traffic::Action;
use super::{FlowRunError, World};

impl<const RECORDED: bool> World<'_, RECORDED> {
    /// An application begins, ends or goes on.
    pub(super) fn wake(&mut self, flow: u32) -> Result<(), FlowRunError> {
        let now = self.network.now();
        let action = self.flows[flow as usize].application.wake(now);
        match action {
            Action::Open => {
                self.close(flow);
                let sender = self.new_sender(flow)?;
                let this = &mut self.flows[flow as usize];
                let policy = self.packets.receiver_policy();
                this.receivers = this.ways.iter().map(|_| FlowReceiver::new(policy)).collect();
                this.sender = Some(sender);
                this.transfer_since = now;
                if self.spec(flow).handshake {
                    self.shake_hands(flow);
                }
                self.record_connection(flow, |_, _| What::Opened);
            }
            Action::Resume | Action::Pause => {}
            Action::Close => self.close(flow),
        }
        let this = &mut self.flows[flow as usize];
        if let Some(sender) = &mut this.sender {
            match action {
                // With a handshake, its end begins.
                Action::Open if this.handshake.is_some() => this.application.await_handshake(now),
                Action::Open | Action::Resume => {
                    this.transfer_since = now;
                    this.application.begin(now, sender);
                }
                Action::Pause => sender.take_back(),
                Action::Close => {}
            }
        }
        self.network.set_timer(this.application_timer, this.application.wake);
        self.shares.note(now, flow as usize, this.application.is_on());
        self.pump(flow);
        Ok(())
    }

    /// Ends a flow's connection: packets of it that are still on their way are nobody's.
    pub(super) fn close(&mut self, flow: u32) {
        self.record_connection(flow, |_, _| What::Closed);
        let this = &mut self.flows[flow as usize];
        if let Some(sender) = this.sender.take() {
            this.measured.packets_sent += sender.packets_sent();
            this.measured.packets_lost += sender.packets_lost();
            this.measured.spurious_losses += sender.spurious_losses();
            this.connection += 1;
            this.receivers.clear();
            this.handshake = None;
        }
    }
}
