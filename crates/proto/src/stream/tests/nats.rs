//! Viewers behind NATs, which let in what comes from where something has gone to.

use super::*;

/// Eight viewers behind NATs and a server that bears some copies, after 20 s.
fn behind_nats(mode: Mode) -> Stage {
    let mut stage = Stage::new(mode, MBIT(8));
    stage.network.nats.extend(1..=8);
    stage.run(at(3000));
    for node in 1..=8 {
        stage.network.join(node, client(MBIT(4)), MBIT(4));
        stage.run(at(3000 + 500 * u64::from(node)));
    }
    stage.run(at(20_000));
    stage
}

#[test]
fn viewers_behind_nats_let_in_whom_the_server_has_them_feed() {
    for mode in [Mode::Trees, Mode::Mesh, Mode::Hybrid] {
        let stage = behind_nats(mode);
        for node in 1..=8 {
            let (played, skipped) = stage.played(node, at(12_000));
            assert!(played > 5 * 190 && skipped == 0, "{mode:?}: {node} plays {played} and skips {skipped}");
        }
        assert_eq!(stage.network.kept_out, 0, "{mode:?}: what the server says comes before whom it speaks of");
        let viewers = |node: u32| stage.network.met.iter().filter(|(from, to)| *to == node && *from != SERVER).count();
        assert!((1..=8).map(viewers).sum::<usize>() >= 8, "{mode:?}: they deal with each other");
    }
}

#[test]
fn a_backup_behind_a_nat_is_called_when_a_parent_has_died() {
    let mut stage = behind_nats(Mode::Hybrid);
    for node in [1, 2] {
        stage.network.kill(node, Duration::from_millis(10_000));
    }
    stage.run(at(32_000));
    for node in 3..=8 {
        let (played, skipped) = stage.played(node, at(24_000));
        assert!(played > 5 * 190 && skipped == 0, "{node} plays {played} and skips {skipped}");
    }
}
