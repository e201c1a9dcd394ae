//! Mounts the protocol machines on simulated nodes, runs scenarios, and turns what happened into
//! statistics and files.

pub mod attack;
pub mod finished;
pub mod flows;
pub mod monitor;
pub mod onion;
pub mod overlay;
pub mod parallel;
pub mod physical;
pub mod soak;
pub mod stream;
pub mod sweep;
pub mod transfer;
mod workers;
pub mod world;

/// The example of the book's page, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/machines.md")]
pub struct MachinesPage;

#[cfg(test)]
#[path = "../build_sources.rs"]
mod build_sources;

/// The version with a hash of the sources that decide what a run measures: results of another
/// are not comparable bit by bit.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("ANABRANCH_SOURCES"));

#[cfg(test)]
mod tests {
    use std::fs;

    use super::build_sources::hash;

    #[test]
    fn the_hash_changes_with_any_source_and_with_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path();
        let roots = ["b", "a", "none"].map(|root| base.join(root));
        let write = |name: &str, text: &str| {
            fs::create_dir_all(base.join(name).parent().unwrap()).unwrap();
            fs::write(base.join(name), text).unwrap();
        };
        write("a/x.rs", "one");
        write("b/y/z.rs", "two");
        let first = hash(base, &roots).unwrap();
        write("c.rs", "elsewhere");
        assert_eq!(hash(base, &roots).unwrap(), first);
        write("b/y/z.rs", "tvo");
        let changed = hash(base, &roots).unwrap();
        assert_ne!(changed, first);
        write("b/y/z.rs", "two");
        assert_eq!(hash(base, &roots).unwrap(), first);
        fs::rename(base.join("b/y/z.rs"), base.join("b/z.rs")).unwrap();
        assert_ne!(hash(base, &roots).unwrap(), first);
        // What one file loses another may not give back.
        write("a/x.rs", "on");
        write("b/z.rs", "etwo");
        let moved = hash(base, &roots).unwrap();
        write("a/x.rs", "one");
        write("b/z.rs", "two");
        assert_ne!(hash(base, &roots).unwrap(), moved);
    }
}
