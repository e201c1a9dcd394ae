//! A coordinator whose agents are all here, and stay: tests give it reports and take its directives themselves.

use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Bytes;
use anabranch_proto::coordination::coordinator::{Coordinator, CoordinatorConfig, CoordinatorEvent};
use anabranch_proto::coordination::message::Terms;
use anabranch_proto::session::{Application, PeerKey, Remote, SessionId, Sessions};

/// Sessions that stand, and what an observer was told.
#[derive(Default)]
pub struct Standing(pub Vec<CoordinatorEvent>);

impl Sessions<Coordinator<u32>> for Standing {
    fn open(&mut self, _: u32, _: Option<PeerKey>) -> Option<SessionId> {
        None
    }
    fn send(&mut self, _: SessionId, _: Terms) {}
    fn close(&mut self, _: SessionId) {}
    fn least_round_trip(&self, _: SessionId) -> Option<Duration> {
        None
    }
    fn delivered(&self) -> Bytes {
        Bytes::ZERO
    }
    fn event(&mut self, event: CoordinatorEvent) {
        self.0.push(event);
    }
}

/// One at time zero, its agents' sessions numbered as its members.
pub fn coordinator(config: &CoordinatorConfig) -> Coordinator<u32> {
    let mut coordinator = Coordinator::new(config.clone());
    for (place, member) in config.members.iter().enumerate() {
        let remote = Remote { address: place as u32, key: member.key, is_initiator: true };
        coordinator.on_open(Time::ZERO, SessionId(place as u32), &remote, &mut Standing::default());
    }
    coordinator
}
