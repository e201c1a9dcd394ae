use anabranch_control::flow::registry::{Setup, find};
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;
use proptest::prelude::*;

use super::message::Whisker;
use super::*;

fn memory(signals: [f64; 3]) -> Option<Memory> {
    let [send, ack, ratio] = signals.map(Some);
    Some(Memory { send_interval: send, ack_interval: ack, rtt_ratio: ratio, slow_ack_interval: None })
}

fn range(from: [f64; 3], to: [f64; 3]) -> Option<MemoryRange> {
    Some(MemoryRange { lower: memory(from), upper: memory(to) })
}

fn rule(from: [f64; 3], to: [f64; 3], increment: i32) -> WhiskerTree {
    let domain = range(from, to);
    let leaf = Whisker {
        window_increment: Some(increment),
        window_multiple: Some(0.5),
        intersend_ms: Some(3.0),
        domain: domain.clone(),
    };
    WhiskerTree { domain, children: Vec::new(), leaf: Some(leaf) }
}

/// A box that is cut at a ratio of `low` below and `high` above.
fn cut(low: f64, high: f64) -> WhiskerTree {
    let children = vec![rule([0.0; 3], [9.0, 9.0, low], -4), rule([0.0, 0.0, high], [9.0; 3], 7)];
    WhiskerTree { domain: range([0.0; 3], [9.0; 3]), children, leaf: None }
}

fn error(tree: &WhiskerTree) -> String {
    decode(&tree.encode_to_vec()).unwrap_err().to_string()
}

#[test]
fn a_tree_becomes_a_list_of_rules() {
    let rules = decode(&cut(2.0, 2.0).encode_to_vec()).unwrap();
    assert_eq!(rules.len(), 2);
    assert_eq!(rules[0]["to"].as_array().unwrap()[2].as_float(), Some(2.0));
    assert_eq!(rules[0]["to"].as_array().unwrap()[3].as_float(), Some(163_840.0), "a missing bound");
    assert_eq!(rules[1]["from"].as_array().unwrap()[2].as_float(), Some(2.0));
    assert_eq!(rules[0]["increment"].as_float(), Some(-4.0));
    assert_eq!(rules[0]["multiple"].as_float(), Some(0.5));
    assert_eq!(rules[0]["intersend_ms"].as_float(), Some(3.0));
}

#[test]
fn the_controller_takes_the_rules() {
    let parameters = Table::from_iter([("rules".to_owned(), decode(&cut(2.0, 2.0).encode_to_vec()).unwrap().into())]);
    let setup = Setup::new(Bytes::new(1000), Time::ZERO);
    find("remy").unwrap().make(&setup, &parameters).unwrap();
}

#[test]
fn boxes_without_an_inside_are_left_out() {
    let mut tree = cut(2.0, 2.0);
    tree.children.push(rule([0.0, 0.0, 2.0], [9.0, 9.0, 2.0], 5));
    assert_eq!(decode(&tree.encode_to_vec()).unwrap().len(), 2);
}

#[test]
fn gaps_and_overlaps_are_refused() {
    assert!(error(&cut(2.0, 3.0)).contains("0 of a node's children hold the point [0.0, 0.0, 2.0, 0.0]"));
    assert!(error(&cut(3.0, 2.0)).contains("2 of a node's children hold the point [0.0, 0.0, 2.0, 0.0]"));
    let small = WhiskerTree { domain: range([0.0; 3], [9.0, 9.0, 8.0]), ..cut(2.0, 2.0) };
    assert!(error(&small).contains("not inside"));
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    assert!(decode(b"not a table").unwrap_err().to_string().contains("WhiskerTree"));
    assert!(decode(b"").unwrap_err().to_string().contains("0 children and no rule"));
    let both = WhiskerTree { leaf: rule([0.0; 3], [9.0; 3], 1).leaf, ..cut(2.0, 2.0) };
    assert!(error(&both).contains("2 children and a rule"));
    assert!(error(&rule([2.0; 3], [1.0; 3], 1)).contains("not above the second"));
    assert!(error(&rule([f64::NAN; 3], [1.0; 3], 1)).contains("finite bounds"));
    let mut wild = rule([0.0; 3], [9.0; 3], 1);
    wild.leaf.as_mut().unwrap().intersend_ms = Some(f64::INFINITY);
    assert!(error(&wild).contains("intersend = inf"));
}

#[test]
fn a_file_that_parameters_name_is_read_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("table.dna"), cut(2.0, 2.0).encode_to_vec()).unwrap();
    let mut parameters: Table = "table_file = \"table.dna\"".parse().unwrap();
    resolve(&mut parameters, directory.path()).unwrap();
    assert_eq!(parameters["rules"].as_array().unwrap().len(), 2);
    assert!(!parameters.contains_key("table_file"));
    let mut absent: Table = "table_file = \"absent.dna\"".parse().unwrap();
    assert!(resolve(&mut absent, directory.path()).unwrap_err().to_string().contains("absent.dna"));
    let mut twice: Table = "table_file = \"table.dna\"\nrules = []".parse().unwrap();
    assert!(resolve(&mut twice, directory.path()).unwrap_err().to_string().contains("without rules"));
}

/// The trained tables are not part of the project.
#[test]
fn trained_tables_are_cuts_without_gaps() {
    for name in
        ["RemyCC-2013-delta0.1.dna", "RemyCC-2013-delta1.dna", "RemyCC-2013-delta10.dna", "RemyCC-2014-100x.dna"]
    {
        match from_environment(name).unwrap() {
            Err(why) => println!("skipped {name}: {why}"),
            Ok(parameters) => {
                let setup = Setup::new(Bytes::new(1000), Time::ZERO);
                find("remy").unwrap().make(&setup, &parameters).unwrap();
                println!("{name}: {} rules", parameters["rules"].as_array().unwrap().len());
            }
        }
    }
}

/// A tree that cuts its box at random, as deep as the bytes say.
fn random_tree(from: [f64; 3], to: [f64; 3], cuts: &mut impl Iterator<Item = u8>, depth: u32) -> WhiskerTree {
    let choice = cuts.next().unwrap_or(3) as usize;
    let axis = choice % 4;
    if axis == 3 || depth == 0 {
        return rule(from, to, choice as i32);
    }
    let middle = (from[axis] + to[axis]) / 2.0;
    let (mut lower, mut upper) = (to, from);
    lower[axis] = middle;
    upper[axis] = middle;
    let children = vec![random_tree(from, lower, cuts, depth - 1), random_tree(upper, to, cuts, depth - 1)];
    WhiskerTree { domain: range(from, to), children, leaf: None }
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_a_table_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode(&bytes);
    }

    #[test]
    fn a_changed_table_is_a_table_or_an_error(
        cuts in proptest::collection::vec(any::<u8>(), 0..40),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let tree = random_tree([0.0; 3], [1e4; 3], &mut cuts.into_iter(), 6);
        let mut bytes = tree.encode_to_vec();
        prop_assert!(decode(&bytes).is_ok());
        for (place, value) in changes {
            let place = place % bytes.len();
            bytes[place] ^= value;
        }
        if let Ok(rules) = decode(&bytes) {
            let parameters = Table::from_iter([("rules".to_owned(), Value::Array(rules))]);
            let setup = Setup::new(Bytes::new(1000), Time::ZERO);
            // A table that begins above 0 is a table, but not one that a flow can begin with.
            if let Err(error) = find("remy").unwrap().make(&setup, &parameters) {
                prop_assert!(error.0.contains("the beginning"), "{error}");
            }
        }
    }
}
