use anabranch_proto::overlay::message::FileName;
use anabranch_proto::transfer::{Owner, Source};

use super::room::free_in;
use super::*;
use crate::archive::Archive;

const SESSION: SessionId = SessionId(1);

fn offer_of(name: &str) -> Offer {
    Offer { name: FileName::sanitised(name), length: 4, block: 2, hash: [0; 32] }
}

fn part_of(partial: &Partial) -> String {
    format!(".anabranch-{}.part", partial.id)
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_gets_its_name_last_and_replaces_nothing() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.txt"), "mine").unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    let offer = offer_of("a.txt");
    store.create(SESSION, &offer).unwrap();
    store.write(SESSION, 2, b"cd").unwrap();
    store.write(SESSION, 0, b"ab").unwrap();
    assert_eq!(names(folder.path()), [".anabranch-0000000000000001.part", "a.txt"]);
    assert_eq!(store.publish(SESSION, &offer).unwrap(), "a (1).txt");
    assert_eq!(names(folder.path()), ["a (1).txt", "a.txt"]);
    assert_eq!(fs::read(folder.path().join("a (1).txt")).unwrap(), b"abcd");
    assert_eq!(fs::read(folder.path().join("a.txt")).unwrap(), b"mine");
}

#[test]
fn what_does_not_arrive_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(&folder.path().join("new")).unwrap();
    store.create(SESSION, &offer_of("a")).unwrap();
    store.create(SessionId(2), &offer_of("b")).unwrap();
    store.discard(SESSION);
    drop(store);
    assert!(names(&folder.path().join("new")).is_empty());
}

fn long(length: u64) -> Offer {
    Offer { length, ..offer_of("a") }
}

#[test]
fn a_folder_takes_no_more_than_it_may_whoever_brings_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mine"), [7; 40]).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap().with_max_total(100);
    let full = |result: Result<(), StoreError>| result.unwrap_err().0.contains("at most 100 bytes");
    assert!(full(store.create(SESSION, &long(61))));
    assert_eq!(names(folder.path()), ["mine"], "nothing is left of it");
    store.create(SESSION, &long(30)).unwrap();
    // What is on its way counts as a whole, however much of it has come.
    store.write(SESSION, 0, &[1; 20]).unwrap();
    assert!(full(store.clone().create(SessionId(2), &long(31))));
    assert!(full(store.create(SessionId(2), &long(u64::MAX))));
    store.create(SessionId(2), &long(30)).unwrap();
    assert!(full(store.create(SessionId(3), &long(1))));
    store.discard(SessionId(2));
    store.write(SESSION, 20, &[1; 10]).unwrap();
    store.publish(SESSION, &long(30)).unwrap();
    assert!(full(store.create(SessionId(3), &long(31))), "it counts once, as what it is now");
    store.create(SessionId(3), &long(30)).unwrap();
}

#[cfg(unix)]
#[test]
fn a_file_is_not_taken_that_the_disk_has_no_room_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    let free = free_in(folder.path()).unwrap();
    for length in [free.saturating_mul(2), u64::MAX] {
        assert_eq!(store.create(SESSION, &long(length)), Err(StoreError("no space left for it".into())));
    }
    // Two that would fit alone: the first has its room, though nothing of it is written.
    store.create(SESSION, &long(free / 4 * 3)).unwrap();
    assert!(store.create(SessionId(2), &long(free / 4 * 3)).is_err());
    store.discard(SESSION);
    store.create(SessionId(2), &long(free / 4 * 3)).unwrap();
}

#[test]
fn what_has_come_outlives_the_store_and_is_gone_on_with_by_the_same_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let offer = Offer { hash: *blake3::hash(b"abcd").as_bytes(), ..offer_of("a") };
    let partial = Partial::of(Owner::Anybody, &offer);
    for end in ["suspend", "drop"] {
        let mut store = DiskStore::open(folder.path()).unwrap();
        let before = store.resume(SESSION, &offer, &partial).unwrap();
        assert_eq!(before.bytes(), if end == "suspend" { 0 } else { 2 });
        store.write(SESSION, 2, b"cd").unwrap();
        if end == "suspend" {
            assert!(store.suspend(SESSION));
        }
    }
    let other = Offer { hash: [0; 32], ..offer.clone() };
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.kept().unwrap(), [partial.id]);
    assert!(store.resume(SessionId(2), &other, &Partial::of(Owner::Anybody, &other)).unwrap().is_empty());
    store.discard(SessionId(2));
    let extents = store.resume(SESSION, &offer, &partial).unwrap();
    assert!(extents.iter().eq([(2, 4)].map(|(start, end)| start..end)));
    assert!(store.kept().unwrap().is_empty(), "somebody works at it");
    store.write(SESSION, 0, b"ab").unwrap();
    assert_eq!(store.publish(SESSION, &offer).unwrap(), "a");
    drop(store);
    assert_eq!((names(folder.path()), fs::read(folder.path().join("a")).unwrap()), (vec!["a".into()], b"abcd".into()));
}

/// A folder to be sent, as an archive; what it holds, and its bytes.
fn archive_of(album: &Path) -> (Offer, Bounds, Vec<u8>) {
    fs::create_dir_all(album.join("sub")).unwrap();
    fs::write(album.join("sub/one"), vec![1; 3000]).unwrap();
    let archive = Archive::plan(&[album.to_owned()]).unwrap();
    let (offer, mut source) = archive.offer("album.tar", 1000, |_| false).unwrap();
    let mut bytes = vec![0; offer.length as usize];
    source.read(0, &mut bytes).unwrap();
    (offer, Bounds { files: archive.files(), bytes: archive.bytes() }, bytes)
}

/// A receiver's store, by a code, of which all of the archive has come.
fn with_all_of(folder: &Path, (offer, bounds, bytes): &(Offer, Bounds, Vec<u8>)) -> DiskStore {
    let mut store = DiskStore::open(folder).unwrap().unpacking(*bounds, || false);
    store.resume(SESSION, offer, &Partial::of(Owner::Code, offer)).unwrap();
    store.write(SESSION, 0, bytes).unwrap();
    store
}

#[test]
fn an_archive_has_come_when_what_is_in_it_is_in_its_place() {
    let (from, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = archive_of(&from.path().join("album"));
    let mut store = with_all_of(folder.path(), &archive);
    assert!(!store.has_whole_archive() && store.unpacked_names().is_none());
    assert_eq!(store.publish(SESSION, &archive.0).unwrap(), "album.tar", "as its sender calls it");
    assert_eq!(store.unpacked_names().unwrap(), ["album"]);
    assert_eq!((names(folder.path()), store.keeps_archive()), (vec!["album".to_owned()], false));
    assert_eq!(fs::read(folder.path().join("album/sub/one")).unwrap(), vec![1; 3000]);
}

#[test]
fn an_archive_that_cannot_be_unpacked_has_not_come_and_is_kept_for_another_try() {
    let (from, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let archive = archive_of(&from.path().join("album"));
    let partial = Partial::of(Owner::Code, &archive.0);
    let mut store = with_all_of(folder.path(), &archive);
    // Nobody can make a folder where a file is.
    let in_the_way = folder.path().join(part_of(&partial)).with_extension("unpacked");
    fs::write(&in_the_way, "").unwrap();
    let error = store.publish(SESSION, &archive.0).unwrap_err();
    assert!(error.0.starts_with("cannot unpack it: "), "{error}");
    store.discard(SESSION);
    assert!(store.keeps_archive() && store.unpacked_names().is_none());
    assert_eq!(store.kept().unwrap(), [partial.id]);
    fs::remove_file(&in_the_way).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap().unpacking(archive.1, || false);
    assert!(store.unpack_kept(&archive.0).unwrap());
    assert_eq!((names(folder.path()), store.unpacked_names()), (vec!["album".into()], Some(vec!["album".into()])));
}

#[test]
fn an_archive_that_is_wrong_or_given_up_leaves_nothing() {
    let (from, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut archive = archive_of(&from.path().join("album"));
    let mut store = with_all_of(folder.path(), &archive);
    store = store.unpacking(archive.1, || true);
    assert_eq!(store.publish(SESSION, &archive.0), Err(StoreError("it was interrupted".into())));
    assert!(names(folder.path()).is_empty());
    archive.1.files += 1;
    let error = with_all_of(folder.path(), &archive).publish(SESSION, &archive.0).unwrap_err();
    assert!(error.0.contains("less than was announced"), "{error}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn a_kept_archive_that_is_not_whole_or_not_right_is_not_unpacked() {
    let (from, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (offer, bounds, mut bytes) = archive_of(&from.path().join("album"));
    let store = || DiskStore::open(folder.path()).unwrap().unpacking(bounds, || false);
    assert!(!store().unpack_kept(&offer).unwrap(), "nothing of it has come");
    let half = (offer.clone(), bounds, bytes[..2000].to_vec());
    drop(with_all_of(folder.path(), &half));
    assert!(!store().unpack_kept(&offer).unwrap());
    assert_eq!(store().kept().unwrap().len(), 1, "its sender may go on with it");
    bytes[100] ^= 1;
    drop(with_all_of(folder.path(), &(offer.clone(), bounds, bytes)));
    assert!(!store().unpack_kept(&offer).unwrap());
    assert!(names(folder.path()).is_empty());
}

#[cfg(unix)]
#[test]
fn an_archive_is_not_taken_without_room_for_what_is_in_it_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let free = free_in(folder.path()).unwrap();
    let offer = long(free / 3 * 2);
    let store = DiskStore::open(folder.path()).unwrap();
    let mut unpacking = store.clone().unpacking(Bounds { files: 1, bytes: free / 3 * 2 }, || false);
    let error = unpacking.resume(SESSION, &offer, &Partial::of(Owner::Code, &offer)).unwrap_err();
    assert!(error.0.contains("no space left for it: ") && error.0.contains("to be unpacked"), "{error}");
    assert!(names(folder.path()).is_empty());
    store.unpacking(Bounds { files: 1, bytes: 1 }, || false).create(SESSION, &offer).unwrap();
}

#[test]
fn of_a_file_of_which_nothing_has_come_nothing_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    for session in 1..4 {
        let offer = offer_of(&session.to_string());
        store.resume(SessionId(session), &offer, &Partial::of(Owner::Anybody, &offer)).unwrap();
    }
    assert!(!store.suspend(SESSION));
    store.write(SessionId(2), 0, b"ab").unwrap();
    store.discard(SessionId(2));
    drop(store);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn two_receivers_of_one_folder_do_not_write_to_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let offer = offer_of("a");
    let partial = Partial::of(Owner::Anybody, &offer);
    let mut stores = [(); 2].map(|()| DiskStore::open(folder.path()).unwrap());
    for (store, content) in stores.iter_mut().zip([b"abcd", b"efgh"]) {
        assert!(store.resume(SESSION, &offer, &partial).unwrap().is_empty());
        store.write(SESSION, 0, content).unwrap();
    }
    assert_eq!(names(folder.path()), [".anabranch-0000000000000001.part".to_owned(), part_of(&partial)]);
    let published = stores.each_mut().map(|store| store.publish(SESSION, &offer).unwrap());
    assert_eq!(published, ["a", "a (1)"]);
    assert_eq!(fs::read(folder.path().join("a")).unwrap(), b"abcd");
}

#[test]
fn a_kept_part_counts_and_makes_room_for_a_file_that_comes() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap().with_max_total(1000);
    let (first, second) = (long(600), Offer { name: FileName::sanitised("b"), ..long(600) });
    let [one, two] = [&first, &second].map(|offer| Partial::of(Owner::Anybody, offer));
    store.resume(SESSION, &first, &one).unwrap();
    store.write(SESSION, 500, &[1; 100]).unwrap();
    assert!(store.resume(SessionId(2), &second, &two).is_err(), "the other is on its way");
    assert!(store.suspend(SESSION));
    // It counts once when it goes on, and not for itself.
    assert_eq!(store.resume(SESSION, &first, &one).unwrap().bytes(), 100);
    assert!(store.suspend(SESSION));
    assert!(store.resume(SessionId(2), &second, &two).unwrap().is_empty());
    assert_eq!(names(folder.path()), [part_of(&two)], "nobody sends the other");
}

#[test]
fn a_file_that_would_never_fit_takes_nothing_away() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap().with_max_total(1000);
    let offers = ["b", "c"].map(|name| Offer { name: FileName::sanitised(name), ..long(300) });
    let partials = offers.each_ref().map(|offer| Partial::of(Owner::Anybody, offer));
    for (session, (offer, partial)) in (2..).map(SessionId).zip(offers.iter().zip(&partials)) {
        store.resume(session, offer, partial).unwrap();
        store.write(session, 200, &[1; 100]).unwrap();
        assert!(store.suspend(session));
    }
    fs::write(folder.path().join("mine"), [7; 500]).unwrap();
    let before = names(folder.path());
    for length in [501, 2000, u64::MAX] {
        assert!(store.create(SESSION, &long(length)).is_err());
        assert_eq!(names(folder.path()), before, "{length} bytes");
    }
    // With both gone it fits.
    store.create(SESSION, &long(500)).unwrap();
    assert!(partials.iter().all(|partial| !folder.path().join(part_of(partial)).exists()));
}

#[test]
fn a_file_that_goes_on_has_the_room_that_it_had_and_its_journal_takes_none() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap().with_max_total(600);
    let offer = long(600);
    let partial = Partial::of(Owner::Code, &offer);
    store.resume(SESSION, &offer, &partial).unwrap();
    store.write(SESSION, 0, &[1; 100]).unwrap();
    assert!(store.suspend(SESSION));
    assert_eq!(names(folder.path()).len(), 2, "a part and its journal");
    assert_eq!(store.resume(SESSION, &offer, &partial).unwrap().bytes(), 100);
    let second = Offer { name: FileName::sanitised("b"), ..long(1) };
    assert!(store.create(SessionId(2), &second).is_err());
}

#[test]
fn a_part_with_a_journal_of_another_length_or_none_begins_from_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let offer = offer_of("a");
    let partial = Partial::of(Owner::Anybody, &offer);
    let path = kept::path_of(folder.path(), partial.id);
    let mut store = DiskStore::open(folder.path()).unwrap();
    let extents: Extents = std::iter::once(0..2).collect();
    for length in [None, Some(5), Some(4)] {
        fs::write(&path, b"ab").unwrap();
        if let Some(length) = length {
            let journal = Journal { partial, length, extents: extents.clone() };
            journal.write(&path.with_extension("journal")).unwrap();
        }
        let is_held = length == Some(4);
        assert_eq!(store.resume(SESSION, &offer, &partial).unwrap().is_empty(), !is_held, "{length:?}");
        assert_eq!(fs::metadata(&path).unwrap().len(), if is_held { 2 } else { 0 });
        store.discard(SESSION);
    }
}

#[test]
fn a_receiver_that_is_killed_has_a_journal_of_what_was_there_a_moment_before() {
    let folder = tempfile::tempdir().unwrap();
    let offer = long(1_000_000);
    let partial = Partial::of(Owner::Anybody, &offer);
    let mut store = DiskStore::open(folder.path()).unwrap();
    store.resume(SESSION, &offer, &partial).unwrap();
    let path = kept::path_of(folder.path(), partial.id);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut written = 0;
    // No clean end: the journal is what the thread has written by now.
    let journal = loop {
        store.write(SESSION, written, &[7; 1000]).unwrap();
        written += 1000;
        match Journal::read(&path.with_extension("journal"), written) {
            Some(journal) => break journal,
            None => assert!(std::time::Instant::now() < deadline, "no journal"),
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(journal.extents.len(), 1);
    assert!((written / 2..=written).contains(&journal.extents.bytes()), "{journal:?}");
}

#[test]
fn a_folder_that_is_a_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    assert!(DiskStore::open(file.path()).is_err());
    assert!(offer(Path::new("/"), 1000, |_| false).is_err());
}
