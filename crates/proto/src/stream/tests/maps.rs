//! Where trees carry a stream, neighbours say what they have only where something is missing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::stream::message::{BufferMap, Datagram};

/// Eight viewers who came within four seconds, at `end`; `fate` decides what becomes of datagrams.
fn audience(
    end: Time,
    fate: impl FnMut(Time, u32, u32, &mut Datagram<super::super::testing::Tested>) -> bool + 'static,
) -> Stage {
    let mut stage = Stage::new(Mode::Hybrid, MBIT(12));
    stage.network.fate = Box::new(fate);
    for node in 1..=8 {
        stage.run(at(3000 + 500 * u64::from(node)));
        stage.network.join(node, client(MBIT(4)), MBIT(4));
    }
    stage.run(end);
    stage
}

#[test]
fn where_nothing_is_missing_nobody_says_what_it_has() {
    let maps = Rc::new(RefCell::new([0, 0]));
    let counted = Rc::clone(&maps);
    let stage = audience(at(25_000), move |now, _, _, datagram| {
        counted.borrow_mut()[usize::from(now >= at(15_000))] += u32::from(matches!(datagram, Datagram::Have(_)));
        true
    });
    let [before, after] = *maps.borrow();
    assert!(before > 0, "newcomers are told what they may begin with");
    assert_eq!(after, 0);
    assert!((1..=8).all(|node| stage.played(node, at(15_000)).1 == 0));
}

#[test]
fn what_parents_do_not_bring_neighbours_bring_who_were_told_of_the_hole() {
    // Each fiftieth packet, as its parent pushes it to viewer 1, and as it sends it again: by how many tries, and
    // from whom the one came that was let through.
    let tries: Rc<RefCell<BTreeMap<u64, (u32, u32)>>> = Rc::default();
    let counted = Rc::clone(&tries);
    let stage = audience(at(25_000), move |now, from, to, datagram| match datagram {
        Datagram::Packet { id, .. } if to == 1 && now >= at(12_000) && id.0 % 50 == 0 => {
            let mut tries = counted.borrow_mut();
            let (count, whose) = tries.entry(id.0).or_default();
            (*count, *whose) = (*count + 1, from);
            *count > 2
        }
        _ => true,
    });
    let tries = tries.borrow();
    let mended: Vec<u32> = tries.values().filter(|(count, _)| *count > 2).map(|&(_, from)| from).collect();
    let by_viewers = mended.iter().filter(|&&from| from != SERVER).count();
    assert!(mended.len() > 35 && 10 * by_viewers > 9 * mended.len(), "{by_viewers} of {}", mended.len());
    assert_eq!(stage.played(1, at(15_000)).1, 0);
}

/// It would be sought from the server, too, which would be asked for less and less as nothing came of it.
#[test]
fn what_a_neighbour_claims_to_have_of_the_future_is_asked_of_nobody() {
    let (liar, ahead) = (3, 1500);
    let mut rng = anabranch_control::rng::Rng::stream(1, "loss");
    // The newest packet that has left the server, and questions for later ones.
    let seen: Rc<RefCell<(u64, usize)>> = Rc::default();
    let counted = Rc::clone(&seen);
    let stage = audience(at(25_000), move |_, from, _, datagram| {
        let (newest, questions) = &mut *counted.borrow_mut();
        match datagram {
            Datagram::Packet { id, .. } => {
                *newest = (*newest).max(id.0);
                return !rng.chance(0.05);
            }
            Datagram::Want(ids) => *questions += ids.iter().filter(|id| id.0 > *newest + 300).count(),
            Datagram::Have(map) if from == liar => {
                let BufferMap { base, words } = &**map;
                *map = std::sync::Arc::new(BufferMap { base: base.after(ahead), words: words.clone() });
            }
            _ => {}
        }
        true
    });
    assert_eq!(seen.borrow().1, 0);
    for node in (1..=8).filter(|&node| node != liar) {
        assert_eq!(stage.played(node, at(15_000)).1, 0, "viewer {node} skips");
    }
}
