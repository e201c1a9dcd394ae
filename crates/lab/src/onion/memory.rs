//! What a run will need of memory, before it begins.
//!
//! Each relay has its tables, whatever the others are; each user has its own, and an entry for each relay: how much it is
//! given, how long it takes, where it is.
//!
//! ```text
//! M = n R + u U + u n E        n relays, u users
//! ```
//!
//! R, U and E were measured: the most memory that runs of a second had with 10 to 200 users and 100 to 8 000 relays, of
//! which they explain all within a tenth.

use anabranch_scenario::onion_run::OnionRunScenario;

/// R, bytes of a relay.
const RELAY_BYTES: u64 = 72_000;

/// U, bytes of a user.
const USER_BYTES: u64 = 20_000;

/// E, bytes that a user has for each relay.
const ENTRY_BYTES: u64 = 760;

/// About the bytes that a run of `scenario` needs at least. Packets that are under way, and what is remembered of them,
/// come on top.
pub fn least_bytes(scenario: &OnionRunScenario) -> u64 {
    let (relays, users) = (scenario.onion.relays, scenario.users.count);
    // M = n R + u U + u n E
    relays * RELAY_BYTES + users * USER_BYTES + users * relays * ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_many_relays_need_as_much_as_their_product() {
        let bytes = |users, relays| {
            let mut scenario = OnionRunScenario::standard();
            (scenario.users.count, scenario.onion.relays) = (users, relays);
            least_bytes(&scenario)
        };
        // 3.2 GB were measured.
        assert!((2_800_000_000..3_300_000_000).contains(&bytes(300, 10_000)), "{}", bytes(300, 10_000));
        assert!(bytes(10_000, 10_000) > 70_000_000_000);
        assert!(bytes(20, 24) < 5_000_000);
    }
}
