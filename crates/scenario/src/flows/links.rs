//! Links as the simulator takes them.

use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;
use anabranch_sim::network::{Capacity, Codel, Discipline, FqCodel, LinkConfig, Red};

use crate::flows::{LinkSpec, QueueSpec};

impl LinkSpec {
    /// The link as a network takes it.
    pub fn config(&self) -> LinkConfig {
        let (capacity, discipline): (Capacity, Option<Box<dyn Discipline>>) = match self.queue {
            QueueSpec::DropTail(capacity) => (capacity, None),
            QueueSpec::Red(config) => {
                let packet = Bytes::new(u64::from(config.full_packet));
                let transmission = self.rate.as_ref().map_or(Duration::ZERO, |rate| packet / rate.first);
                (Capacity::Unlimited, Some(Box::new(Red::new(config, transmission))))
            }
            QueueSpec::Codel(config) => (Capacity::Unlimited, Some(Box::new(Codel::new(config)))),
            QueueSpec::FqCodel(config) => (Capacity::Unlimited, Some(Box::new(FqCodel::new(config)))),
        };
        LinkConfig {
            name: self.name.clone(),
            rate: self.rate.clone(),
            delay: self.delay.clone(),
            capacity,
            discipline,
            loss: self.loss.clone(),
            jitter: self.jitter,
        }
    }
}
