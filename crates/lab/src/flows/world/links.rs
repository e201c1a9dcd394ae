//! Links as the simulator takes them.

use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;
use anabranch_sim::network::{Capacity, Codel, Discipline, FqCodel, LinkConfig, Red};

use super::super::scenario::{LinkSpec, QueueSpec};

/// The link that `spec` describes.
pub fn link_config(spec: &LinkSpec) -> LinkConfig {
    let (capacity, discipline): (Capacity, Option<Box<dyn Discipline>>) = match spec.queue {
        QueueSpec::DropTail(capacity) => (capacity, None),
        QueueSpec::Red(config) => {
            let packet = Bytes::new(u64::from(config.full_packet));
            let transmission = spec.rate.as_ref().map_or(Duration::ZERO, |rate| packet / rate.first);
            (Capacity::Unlimited, Some(Box::new(Red::new(config, transmission))))
        }
        QueueSpec::Codel(config) => (Capacity::Unlimited, Some(Box::new(Codel::new(config)))),
        QueueSpec::FqCodel(config) => (Capacity::Unlimited, Some(Box::new(FqCodel::new(config)))),
    };
    LinkConfig {
        name: spec.name.clone(),
        rate: spec.rate.clone(),
        delay: spec.delay.clone(),
        capacity,
        discipline,
        loss: spec.loss.clone(),
        jitter: spec.jitter,
    }
}
