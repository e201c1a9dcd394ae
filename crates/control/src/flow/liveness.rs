//! What must hold for every registered controller, on any path.

use proptest::prelude::*;

use super::registry::{CONTROLLERS, Setup};
use super::testing::{PACKET, Path, drive};
use crate::time::{Duration, Time};
use crate::units::Rate;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_controller_goes_on_sending_with_finite_values(
        packets_per_s in 20u64..20_000,
        rtt_ms in 1u64..300,
        buffer in 1usize..500,
        loss in prop_oneof![Just(0.0), 0.0..0.3],
        seed in 0u64..1000,
    ) {
        let rate = Rate::from_bytes_per_sec(packets_per_s * PACKET.get());
        let path = Path { rate, rtt: Duration::from_millis(rtt_ms), buffer, loss };
        for entry in CONTROLLERS.iter().filter(|entry| entry.needs().is_none()) {
            let mut controller = entry.make(&Setup::new(PACKET, Time::ZERO), &toml::Table::new()).unwrap();
            let run = drive(&mut *controller, path, 5.0, seed);
            prop_assert!(run.delivered > 0, "{} delivered nothing", entry.name);
            prop_assert!(run.window.iter().all(|window| *window > 0.0), "{}: no window", entry.name);
            controller.trace(&mut |name, value| assert!(value.is_finite(), "{}: {name} is {value}", entry.name));
        }
    }
}
