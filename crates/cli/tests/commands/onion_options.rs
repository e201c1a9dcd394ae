//! Options of the onion that cannot work are refused before anything runs.

use crate::common::{Place, SMALL};

const NETWORK: &str = "[[authority]]\nkey = \"0707070707070707070707070707070707070707070707070707070707070707\"\n\
                       address = \"127.0.0.1:7\"\n";

#[test]
fn what_learns_from_what_no_relay_of_an_onion_says_is_refused() {
    let place = Place::new(SMALL);
    std::fs::write(place.path("network.toml"), NETWORK).unwrap();
    let state = ["--network", "network.toml", "--state", "state"];
    let refused = |verb: &[&str], expected: &str| {
        place.say(&[&["onion"], verb, &state].concat()).refuses(expected);
        assert!(!place.path("state").exists(), "{verb:?} left a folder");
    };
    for verb in [&["proxy"][..], &["receive", "--dir", "in"]] {
        refused(&[verb, &["--placement", "explicit-rate"]].concat(), "relays of an onion know no sender");
        refused(&[verb, &["--placement", "perfect"]].concat(), "only a simulation");
    }
    refused(&["proxy", "--loops", "0"], "--loops: cover of 0 packets a second");
    refused(&["proxy", "--loops", "5", "--hops", "2", "--guards", "1"], "--loops: a loop over one guard");
    refused(&["proxy", "--cover", "5", "--hops", "2", "--guards", "1"], "--cover: a loop over one guard");
    refused(&["proxy", "--cover", "5", "--loops", "5"], "cannot be used with");
    refused(&["proxy", "--delay", "1001"], "1001 is not in 1..=1000");
    refused(&["relay", "--listen", "127.0.0.1:0", "--family", "nowhere"], "anabranch onion family nowhere");
}

/// Without --k the k of networks that say nothing else stands where --k puts it, and all are in a list.
#[test]
fn bench_prints_one_object_with_or_without_k() {
    let bench = |more: &[&str]| -> serde_json::Value {
        let arguments = [&["bench", "onion", "--json", "--repeat", "1", "--packets", "2048"], more].concat();
        Place::new(SMALL).say(&arguments).json()
    };
    let (one, all) = (bench(&["--k", "16"]), bench(&[]));
    for (figures, k) in [(&one, 16), (&all, 64)] {
        assert_eq!(figures["k"], k, "{figures}");
        for key in ["hops_per_s_per_core", "setup_us", "packet_us"] {
            assert!(figures[key].as_f64().is_some_and(|figure| figure > 0.0), "{key} in {figures}");
        }
    }
    let dials = all["dials"].as_array().unwrap();
    assert_eq!(dials.iter().map(|dial| dial["k"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 16, 64, 256, 65535]);
    assert_eq!(dials[2]["packet_us"], all["packet_us"]);
}
