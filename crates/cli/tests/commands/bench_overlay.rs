//! The overlay's benchmark says what ran, not what was asked for.

use crate::common::{Place, SMALL};

#[test]
fn a_world_that_has_one_shard_alone_is_measured_in_one_and_says_why() {
    let of = |controller: &str| {
        let place = Place::new(SMALL);
        let small = ["--peers", "20", "--repeat", "1", "--million-hops", "1", "--shards", "2", "--threads", "3"];
        let said = place.say(&[&["bench", "overlay", "--json", "--controller", controller], &small[..]].concat());
        let size = said.json()["sizes"][0].clone();
        let shards = (size["shards"].as_u64().unwrap(), size["threads"][0]["shards"].as_u64().unwrap());
        (shards, said.stderr)
    };
    let (shards, words) = of("aimd");
    assert_eq!((shards, words.as_str()), ((2, 3), ""));
    let (shards, words) = of("perfect");
    assert_eq!(shards, (1, 1));
    assert!(words.contains("one shard, whatever --shards and --threads say: the controller \"perfect\""), "{words}");
}
