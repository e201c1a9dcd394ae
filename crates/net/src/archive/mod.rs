//! Folders, and several files, as one: a tar archive (POSIX.1-2001 `ustar`, with GNU's entries for long
//! names) that is never written down by its sender. [`Archive`] reads what is in it where it lies;
//! [`unpack`] puts it back, and trusts nothing that it says.

mod pack;
mod unpack;

pub use pack::{Archive, ArchiveSource, Renamed};
pub use unpack::{Bounds, put_in_place, unpack};

/// Files and folders of an archive, at most.
pub const MOST_ENTRIES: usize = 100_000;

/// Folders in each other, at most.
pub const MOST_DEPTH: usize = 64;

/// The longest path in an archive, in bytes.
const LONGEST_PATH: usize = 4096;

/// The longest name of a file or folder in bytes, as most file systems have it.
const LONGEST_NAME: usize = 255;

/// Bytes of an archive's blocks.
const BLOCK: u64 = 512;

/// Why `path` can't be the path of something in an archive; none if it can. The same rule holds on both
/// sides: what a sender may say, a receiver takes.
fn problem_of_path(path: &str) -> Option<&'static str> {
    if path.len() > LONGEST_PATH {
        return Some("a path of more than 4096 bytes");
    }
    if path.split('/').count() > MOST_DEPTH {
        return Some("more than 64 folders in each other");
    }
    path.split('/').find_map(problem_of_name)
}

fn problem_of_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("a path that is absolute, or has an empty part"),
        "." | ".." => Some("a path that leaves its folder"),
        _ if name.len() > LONGEST_NAME => Some("a name of more than 255 bytes"),
        _ if name.contains(['\\', '\0']) => Some("a name with a backslash or a zero"),
        _ if name.chars().any(char::is_control) => Some("a name with control characters"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Cursor, Read};
    use std::path::{Path, PathBuf};

    use anabranch_proto::transfer::Source;
    use proptest::prelude::*;

    use super::*;

    /// Every file below `folder` by its path, and whether it may be executed; folders by theirs.
    fn tree(folder: &Path) -> Vec<(String, Option<Vec<u8>>, bool)> {
        fn walk(at: &Path, from: &Path, all: &mut Vec<(String, Option<Vec<u8>>, bool)>) {
            for entry in fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(from).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    all.push((name, None, false));
                    walk(&path, from, all);
                } else {
                    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
                    all.push((name, Some(fs::read(&path).unwrap()), mode & 0o100 != 0));
                }
            }
        }
        let mut all = Vec::new();
        walk(folder, folder, &mut all);
        all.sort();
        all
    }

    fn bytes_of(archive: &std::sync::Arc<Archive>) -> Vec<u8> {
        let mut bytes = vec![0; archive.length() as usize];
        archive.source().read(0, &mut bytes).unwrap();
        bytes
    }

    fn bounds(archive: &Archive) -> Bounds {
        Bounds { files: archive.files(), bytes: archive.bytes() }
    }

    #[test]
    fn a_folder_arrives_as_it_was_with_long_names_empty_folders_and_programs() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = from.path().join("album");
        let deep = root.join("a".repeat(120)).join("b".repeat(120));
        fs::create_dir_all(&deep).unwrap();
        fs::create_dir_all(root.join("empty")).unwrap();
        fs::write(root.join("zero"), "").unwrap();
        fs::write(root.join(".hidden"), vec![7; 511]).unwrap();
        fs::write(deep.join("ä ö.txt"), vec![8; 1025]).unwrap();
        fs::write(root.join("program"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join("program"), std::os::unix::fs::PermissionsExt::from_mode(0o4755)).unwrap();
        fs::write(from.path().join("single"), "alone").unwrap();
        let archive = Archive::plan(&[root.clone(), from.path().join("single")]).unwrap();
        assert_eq!((archive.files(), archive.bytes()), (5, 511 + 1025 + 10 + 5));
        assert_eq!(archive.names(), ["album", "single"]);
        let bytes = bytes_of(&archive);
        // As another program reads it.
        let listed = tar::Archive::new(&bytes[..]).entries().unwrap().map(Result::unwrap).count();
        assert_eq!(listed, 9);
        unpack(Cursor::new(bytes), to.path(), bounds(&archive)).unwrap();
        assert_eq!(tree(to.path()), tree(from.path()));
        let mode = fs::metadata(to.path().join("album/program")).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7000, 0, "no set-user-ID");
    }

    #[test]
    fn links_and_devices_are_left_out_and_counted() {
        let from = tempfile::tempdir().unwrap();
        let root = from.path().join("f");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), "a").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        std::os::unix::fs::symlink(&root, root.join("circle")).unwrap();
        let archive = Archive::plan(&[root]).unwrap();
        assert_eq!((archive.files(), archive.left_out()), (1, 2));
    }

    /// Its path is too long for the system: nobody opens it, while permissions would not stop root.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_that_cannot_be_opened_is_refused_before_anything_is_read() {
        let from = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(from.path()).unwrap();
        let mut root = base.join("short");
        while root.as_os_str().len() < 3800 {
            root.push("d".repeat(100));
        }
        fs::create_dir_all(&root).unwrap();
        let name = "f".repeat(150);
        fs::write(root.join(&name), "x").unwrap();
        assert!(Archive::plan(std::slice::from_ref(&root)).is_ok());
        let longer = base.join("l".repeat("short".len() + 4050 - root.as_os_str().len()));
        fs::rename(base.join("short"), &longer).unwrap();
        let root = longer.join(root.strip_prefix(base.join("short")).unwrap());
        let error = Archive::plan(&[root]).unwrap_err().to_string();
        assert!(error.contains("name too long"), "{error}");
    }

    #[test]
    fn the_path_of_a_file_that_cannot_be_read_moves_no_terminal() {
        let from = tempfile::tempdir().unwrap();
        let path = from.path().join("a\x1b[2J\n");
        fs::write(&path, "content").unwrap();
        let archive = Archive::plan(std::slice::from_ref(&path)).unwrap();
        let refusal = || archive.offer("x.tar", 1000, |_| false).unwrap_err().to_string();
        fs::write(&path, "").unwrap();
        assert!(refusal().ends_with(r"a\u{1b}[2J\n has become shorter"), "{}", refusal());
        fs::remove_file(&path).unwrap();
        assert!(refusal().contains(r"a\u{1b}[2J\n: "), "{}", refusal());
    }

    #[test]
    fn what_has_an_odd_name_is_sent_under_the_nearest_safe_one_and_none_is_lost() {
        use std::os::unix::ffi::OsStrExt;
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = from.path().join(".album");
        let odd = std::ffi::OsStr::from_bytes(b"\xff");
        fs::create_dir_all(root.join(".git")).unwrap();
        for name in ["a\\b", "a:b", "a_b", "new\nline", "x\u{202e}gpj.exe", ".git/HEAD"] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::write(root.join(odd), "odd").unwrap();
        let archive = Archive::plan(std::slice::from_ref(&root)).unwrap();
        assert_eq!((archive.names(), archive.renamed().count), (&["_.album".to_owned()][..], 6));
        let first = [(".album", "_.album"), ("a:b", "a_b (1)"), ("a\\b", "a_b (2)")];
        assert_eq!(archive.renamed().first, first.map(|(here, there)| (here.to_owned(), there.to_owned())));
        unpack(Cursor::new(bytes_of(&archive)), to.path(), bounds(&archive)).unwrap();
        let read = |name: &str| fs::read_to_string(to.path().join("_.album").join(name)).unwrap();
        for (here, there) in [
            ("a_b", "a_b"),
            ("a:b", "a_b (1)"),
            ("a\\b", "a_b (2)"),
            ("new\nline", "new_line"),
            ("x\u{202e}gpj.exe", "x_gpj.exe"),
            (".git/HEAD", ".git/HEAD"),
        ] {
            assert_eq!(read(there), here);
        }
        assert_eq!(read("\u{fffd}"), "odd");
    }

    #[test]
    fn names_that_mislead_are_made_harmless_whoever_sends_them_and_none_is_lost() {
        let to = tempfile::tempdir().unwrap();
        let names = ["f/invoice\u{202e}gpj.exe", "f/invoice_gpj.exe", "f/sub\u{202e}/a:b", "f/.hidden"];
        let bytes: Vec<u8> =
            names.iter().flat_map(|name| forged(tar::EntryType::Regular, name.as_bytes(), b"x")).collect();
        unpack(Cursor::new(bytes), to.path(), Bounds { files: 4, bytes: 4 }).unwrap();
        let files: Vec<_> = tree(to.path()).into_iter().filter(|(_, content, _)| content.is_some()).collect();
        let files: Vec<_> = files.iter().map(|(name, _, _)| &name[..]).collect();
        assert_eq!(files, ["f/.hidden", "f/invoice_gpj (1).exe", "f/invoice_gpj.exe", "f/sub_/a_b"]);
    }

    #[test]
    fn any_part_can_be_read_in_any_order() {
        let from = tempfile::tempdir().unwrap();
        for (name, length) in [("a", 0), ("b", 1), ("c", 512), ("d", 5000)] {
            fs::write(from.path().join(name), vec![name.as_bytes()[0]; length]).unwrap();
        }
        let paths: Vec<PathBuf> = ["a", "b", "c", "d"].iter().map(|name| from.path().join(name)).collect();
        let archive = Archive::plan(&paths).unwrap();
        let whole = bytes_of(&archive);
        let mut source = archive.source();
        for length in [1usize, 7, 511, 512, 513, 2000] {
            for start in (0..whole.len() - length).step_by(97).rev() {
                let mut part = vec![0; length];
                source.read(start as u64, &mut part).unwrap();
                assert_eq!(part, whole[start..start + length], "{start} + {length}");
            }
        }
        assert!(source.read(whole.len() as u64, &mut [0]).is_err(), "beyond the end");
        fs::write(from.path().join("d"), "short").unwrap();
        assert!(source.read(0, &mut vec![0; whole.len()]).is_err(), "a file that has become shorter");
    }

    #[test]
    fn what_two_have_the_same_name_or_none_can_be_sent_of_is_refused() {
        let from = tempfile::tempdir().unwrap();
        fs::create_dir(from.path().join("sub")).unwrap();
        for name in ["a", "sub/a"] {
            fs::write(from.path().join(name), "a").unwrap();
        }
        let path = |name: &str| from.path().join(name);
        for (paths, says) in [
            (vec![path("a"), path("sub/a")], "two that are both called a"),
            (vec![path("missing"), path("a")], "missing"),
            (vec![PathBuf::from("/dev/null"), path("a")], "neither a file nor a folder"),
        ] {
            let error = Archive::plan(&paths).unwrap_err().to_string();
            assert!(error.contains(says), "{paths:?}: {error}");
        }
    }

    /// An archive with one entry of this kind and path, as a liar would write it.
    fn forged(kind: tar::EntryType, path: &[u8], content: &[u8]) -> Vec<u8> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o777);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        if kind.is_symlink() || kind.is_hard_link() {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        bytes
    }

    #[test]
    fn nothing_leaves_the_folder_whatever_an_archive_says() {
        let outer = tempfile::tempdir().unwrap();
        let inner = outer.path().join("inner");
        let generous = Bounds { files: 10, bytes: 1000 };
        use tar::EntryType;
        for (bytes, says) in [
            (forged(EntryType::Regular, b"../out", b"x"), "leaves its folder"),
            (forged(EntryType::Regular, b"a/../../out", b"x"), "leaves its folder"),
            (forged(EntryType::Regular, outer.path().join("out").to_str().unwrap().as_bytes(), b"x"), "absolute"),
            (forged(EntryType::Regular, b"", b"x"), "empty"),
            (forged(EntryType::Regular, b".", b"x"), "leaves its folder"),
            (forged(EntryType::Regular, b"a//b", b"x"), "empty part"),
            (forged(EntryType::Regular, b"a\\..\\b", b"x"), "backslash"),
            (forged(EntryType::Regular, b"a\x1b[2J", b"x"), "control"),
            (forged(EntryType::Regular, b"\xff\xfe", b"x"), "UTF-8"),
            (forged(EntryType::Symlink, b"link", b""), "neither a file nor a folder"),
            (forged(EntryType::Link, b"link", b""), "neither a file nor a folder"),
            (forged(EntryType::Char, b"device", b""), "neither a file nor a folder"),
            (forged(EntryType::Fifo, b"pipe", b""), "neither a file nor a folder"),
            (forged(EntryType::GNUSparse, b"sparse", b""), "neither a file nor a folder"),
            (forged(EntryType::GNULongName, b"@", &[b'a'; 5000]), "path of more than"),
            ([forged(EntryType::Regular, b"a", b"x"), forged(EntryType::Regular, b"a", b"y")].concat(), "twice"),
            ([forged(EntryType::Regular, b"a", b"x"), forged(EntryType::Regular, b"a/b", b"y")].concat(), "a/b"),
            (forged(EntryType::Regular, b"a", &[7; 1001]), "more than was announced"),
            ((0..11u8).flat_map(|i| forged(EntryType::Regular, &[b'a' + i], b"")).collect(), "more than was announced"),
        ] {
            fs::create_dir(&inner).unwrap();
            let error = unpack(Cursor::new(&bytes), &inner, generous).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
            assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 1, "{says}");
            fs::remove_dir_all(&inner).unwrap();
        }
    }

    #[test]
    fn no_more_folders_are_made_than_are_taken_whatever_was_announced() {
        use tar::EntryType::{Directory, Regular};
        // Four folders by two entries and a file, one of them twice.
        let bytes = [forged(Directory, b"a/b", b""), forged(Directory, b"a/b/", b""), forged(Regular, b"c/d/e", b"x")];
        let (bytes, announced) = (bytes.concat(), Bounds { files: 1, bytes: 1 });
        let unpack = |folders| {
            let to = tempfile::tempdir().unwrap();
            unpack::unpack_within(Cursor::new(&bytes), to.path(), announced, folders).map(|()| tree(to.path()).len())
        };
        assert_eq!(unpack(4).unwrap(), 5);
        assert!(unpack(3).unwrap_err().to_string().contains("more folders than are taken"));
    }

    #[test]
    fn an_archive_that_ends_too_soon_or_too_late_is_refused() {
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("a"), vec![7; 2000]).unwrap();
        let archive = Archive::plan(&[from.path().join("a")]).unwrap();
        let bytes = bytes_of(&archive);
        let to = tempfile::tempdir().unwrap();
        let half = unpack(Cursor::new(&bytes[..1500]), to.path(), bounds(&archive));
        assert!(half.is_err());
        let to = tempfile::tempdir().unwrap();
        let empty = unpack(Cursor::new(&bytes[..0]), to.path(), bounds(&archive)).unwrap_err().to_string();
        assert!(empty.contains("less than was announced"), "{empty}");
    }

    proptest! {
        #[test]
        fn a_damaged_archive_writes_nothing_outside(at in 0usize..4096, bit in 0u8..8, cut in 0usize..5000) {
            let outer = tempfile::tempdir().unwrap();
            let (from, inner) = (outer.path().join("from"), outer.path().join("inner"));
            fs::create_dir(&from).unwrap();
            fs::create_dir(&inner).unwrap();
            fs::write(from.join("a"), vec![7; 700]).unwrap();
            fs::write(from.join("b"), "b").unwrap();
            let archive = Archive::plan(std::slice::from_ref(&from)).unwrap();
            let mut bytes = bytes_of(&archive);
            let length = bytes.len();
            bytes[at % length] ^= 1 << bit;
            bytes.truncate(cut.max(1));
            let _ = unpack(Cursor::new(bytes), &inner, bounds(&archive));
            prop_assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 2);
        }
    }

    #[test]
    fn what_is_there_is_not_replaced() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for folder in [from.path(), to.path()] {
            fs::create_dir(folder.join("album")).unwrap();
            fs::write(folder.join("album/one"), folder.to_str().unwrap()).unwrap();
            fs::write(folder.join("a.txt"), folder.to_str().unwrap()).unwrap();
        }
        fs::write(from.path().join(".profile"), "x").unwrap();
        let before = tree(to.path());
        let names = put_in_place(from.path(), to.path()).unwrap();
        assert_eq!(names, ["_.profile", "a (1).txt", "album (1)"]);
        let after = tree(to.path());
        assert!(before.iter().all(|entry| after.contains(entry)));
        assert_eq!(fs::read(to.path().join("album (1)/one")).unwrap(), from.path().to_str().unwrap().as_bytes());
        assert_eq!(fs::read_dir(from.path()).unwrap().count(), 0);
    }

    #[test]
    fn an_archive_is_offered_with_the_hash_of_what_is_read() {
        let from = tempfile::tempdir().unwrap();
        fs::write(from.path().join("a"), vec![7; 70_000]).unwrap();
        let archive = Archive::plan(&[from.path().join("a")]).unwrap();
        let (offer, mut source) = archive.offer("x.tar", 1000, |_| false).unwrap();
        let mut bytes = vec![0; offer.length as usize];
        source.read(0, &mut bytes).unwrap();
        assert_eq!(*blake3::hash(&bytes).as_bytes(), offer.hash);
        assert!(archive.offer("x.tar", 1000, |_| true).is_err());
        let mut one = Vec::new();
        File::open(from.path().join("a")).unwrap().read_to_end(&mut one).unwrap();
        assert_eq!(one.len(), 70_000);
    }
}
