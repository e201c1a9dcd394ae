//! Who is connected to a receiver, whose file is on its way, and whose waits for a place.
//!
//! Files that wait have places in their order. No source has more than its share of the places, of the queue or of the
//! connections, and who has its share lets others pass, as over relays.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anabranch_proto::transfer::{Limits, origin_of};
use tokio::sync::watch;

/// All places of a receiver.
#[derive(Debug)]
pub struct Places {
    limits: Limits,
    state: Mutex<State>,
    /// Changes whenever somebody in the queue may have moved.
    moved: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct State {
    connections: Counts,
    files: Counts,
    /// Those that wait, in their order.
    queue: VecDeque<(Number, IpAddr)>,
    next: Number,
}

/// A file that waits, or has waited.
type Number = u64;

/// How many each source has.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    of: BTreeMap<IpAddr, usize>,
}

impl Counts {
    fn of(&self, origin: IpAddr) -> usize {
        self.of.get(&origin).copied().unwrap_or(0)
    }

    fn add(&mut self, origin: IpAddr) {
        self.all += 1;
        *self.of.entry(origin).or_default() += 1;
    }

    fn remove(&mut self, origin: IpAddr) {
        self.all -= 1;
        if let Some(count) = self.of.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&origin);
            }
        }
    }
}

impl State {
    /// Gives those in the queue the places that there are, in their order.
    fn admit(&mut self, limits: &Limits) {
        let mut at = 0;
        while let Some(&(_, origin)) = self.queue.get(at).filter(|_| self.files.all < limits.files) {
            if self.files.of(origin) < limits.files_of_one {
                self.queue.remove(at);
                self.files.add(origin);
            } else {
                // Those of others may have one.
                at += 1;
            }
        }
    }
}

/// The most connections at once: a file on its way each, one that waits, or none yet.
fn most_connections(limits: &Limits) -> usize {
    limits.files + limits.waiting + limits.greetings
}

/// The most files of one source that wait: half of its connections. Some of the others are files on their way, and some
/// can be told that they are too many.
fn most_waiting_of_one(limits: &Limits) -> usize {
    limits.waiting.min(limits.sessions_of_one / 2)
}

impl Places {
    /// None of them taken.
    pub fn new(limits: Limits) -> Places {
        Places { limits, state: Mutex::default(), moved: watch::Sender::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection more from `source`, unless there are enough.
    pub fn connect(self: &Arc<Places>, source: IpAddr) -> Option<Guest> {
        let (origin, mut state) = (origin_of(source), self.state());
        let connections = &mut state.connections;
        if connections.all >= most_connections(&self.limits) || connections.of(origin) >= self.limits.sessions_of_one {
            return None;
        }
        connections.add(origin);
        Some(Guest { places: Arc::clone(self), origin })
    }
}

/// A connection, as long as this value lives.
#[derive(Debug)]
pub struct Guest {
    places: Arc<Places>,
    origin: IpAddr,
}

impl Guest {
    /// Its file takes a place, or is the last in the queue for one; or why it may not wait.
    pub fn enter(&self) -> Result<Place, String> {
        let (limits, mut state) = (&self.places.limits, self.places.state());
        let number = state.next;
        state.next += 1;
        state.queue.push_back((number, self.origin));
        state.admit(limits);
        let own = state.queue.iter().filter(|(_, origin)| *origin == self.origin).count();
        let too_many = match (limits.waiting, state.queue.len()) {
            (0, 1..) => Some(format!("{} files are being received", state.files.all)),
            (most, waiting) if waiting > most => Some(format!("{most} files wait")),
            _ if own > most_waiting_of_one(limits) => Some(format!("{} files of this address wait", own - 1)),
            _ => None,
        };
        // It is the last: one more than may wait.
        if let Some(why) = too_many {
            state.queue.pop_back();
            return Err(format!("{why} already; try again later"));
        }
        let moved = self.places.moved.subscribe();
        Ok(Place { places: Arc::clone(&self.places), origin: self.origin, number, moved })
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.places.state().connections.remove(self.origin);
    }
}

/// A place, or a turn in the queue for one, as long as this value lives.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    origin: IpAddr,
    number: Number,
    moved: watch::Receiver<()>,
}

impl Place {
    /// How many files have their turn before it, itself among them; 0 once its own has come.
    pub fn in_queue(&self) -> usize {
        let state = self.places.state();
        state.queue.iter().position(|(number, _)| *number == self.number).map_or(0, |before| before + 1)
    }

    /// Waits until it is not `place` any more.
    pub async fn moves_from(&mut self, place: usize) {
        // The places live as long as this one of them.
        while self.in_queue() == place && self.moved.changed().await.is_ok() {}
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.places.state();
        let queued = state.queue.len();
        state.queue.retain(|(number, _)| *number != self.number);
        if state.queue.len() == queued {
            state.files.remove(self.origin);
            state.admit(&self.places.limits);
        }
        drop(state);
        self.places.moved.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const LIMITS: fn() -> Limits =
        || Limits { files: 2, files_of_one: 1, waiting: 4, greetings: 2, sessions_of_one: 6, ..Limits::default() };

    fn guests<const N: usize>(places: &Arc<Places>, last: u8) -> [Guest; N] {
        [(); N].map(|()| places.connect(Ipv4Addr::new(192, 0, 2, last).into()).unwrap())
    }

    fn turns(places: &[Place]) -> Vec<usize> {
        places.iter().map(Place::in_queue).collect()
    }

    #[test]
    fn a_source_that_has_its_share_waits_in_its_order_and_lets_others_pass() {
        let places = Arc::new(Places::new(LIMITS()));
        let (greedy, other) = (guests::<3>(&places, 1), guests::<2>(&places, 2));
        let mut of_greedy: Vec<Place> = greedy.iter().map(|guest| guest.enter().unwrap()).collect();
        let mut of_other: Vec<Place> = other.iter().map(|guest| guest.enter().unwrap()).collect();
        assert_eq!((turns(&of_greedy), turns(&of_other)), (vec![0, 1, 2], vec![0, 3]));
        of_other.remove(0);
        assert_eq!((turns(&of_greedy), turns(&of_other)), (vec![0, 1, 2], vec![0]), "it passes");
        of_greedy.remove(1);
        assert_eq!(turns(&of_greedy), [0, 1], "who has gone waits no more");
        of_greedy.remove(0);
        assert_eq!(turns(&of_greedy), [0]);
        drop((of_greedy, of_other));
        let state = places.state();
        assert_eq!((state.files.all, state.files.of.len()), (0, 0));
    }

    #[test]
    fn no_more_wait_than_may_in_all_or_of_one_source_and_who_does_not_has_its_place() {
        let places = Arc::new(Places::new(LIMITS()));
        let [[one], [two], [three]] = [1, 2, 3].map(|last| guests::<1>(&places, last));
        let mut taken = vec![one.enter().unwrap()];
        taken.extend((0..3).map(|_| one.enter().unwrap()));
        assert_eq!(one.enter().unwrap_err(), "3 files of this address wait already; try again later");
        taken.push(two.enter().unwrap());
        assert_eq!(turns(&taken), [0, 1, 2, 3, 0], "the queue of one is not that of another");
        taken.push(two.enter().unwrap());
        assert_eq!(three.enter().unwrap_err(), "4 files wait already; try again later");
        assert_eq!(turns(&taken), [0, 1, 2, 3, 0, 4], "and who is refused changes nothing");
        let nobody_waits = Arc::new(Places::new(Limits { waiting: 0, ..LIMITS() }));
        let [[one], [two], [three]] = [1, 2, 3].map(|last| guests::<1>(&nobody_waits, last));
        let _taken = (one.enter().unwrap(), two.enter().unwrap());
        assert_eq!(three.enter().unwrap_err(), "2 files are being received already; try again later");
    }

    #[test]
    fn connections_are_counted_in_all_and_of_each_source() {
        let places = Arc::new(Places::new(LIMITS()));
        let source = |last| Ipv4Addr::new(192, 0, 2, last).into();
        let six = guests::<6>(&places, 1);
        assert!(places.connect(source(1)).is_none());
        let two = guests::<2>(&places, 2);
        assert!(places.connect(source(3)).is_none(), "two files, four that wait, two that have said nothing");
        drop(six);
        assert!(places.connect(source(1)).is_some());
        drop(two);
        let state = places.state();
        assert_eq!((state.connections.all, state.connections.of.len()), (0, 0));
    }
}
