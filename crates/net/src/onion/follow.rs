//! Following the directory: a relay says of itself what is to be listed, and relays and users alike take each new
//! list of relays as soon as there is one.
//!
//! A thread of its own talks to the authorities. A relay's descriptor goes to all of them once an epoch; a list
//! is asked for while there should be a newer one than is known, of one authority after the other. How often is
//! bounded by the network's round, since nothing changes faster.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::thread::JoinHandle;
use std::time::{Duration as StdDuration, SystemTime, UNIX_EPOCH};

use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_onion::directory::document::MOST_DOCUMENT;
use anabranch_onion::directory::message::Refusal;
use anabranch_onion::directory::{
    Document, Message, OtherTerms, Remembered, SignedDescriptor, UnixTime, View, ViewError,
};
use futures_util::future::join_all;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::exchange::{ExchangeError, exchange};
use super::network_file::NetworkFile;
use crate::clock::std_duration;
use crate::setup::random_seed;

/// The shortest time between two looks.
const SHORTEST_LOOK: StdDuration = StdDuration::from_millis(200);

/// The longest time between two looks.
const LONGEST_LOOK: StdDuration = StdDuration::from_secs(20);

/// Bytes of an answer beyond a document's.
const AROUND: usize = 64;

/// What was found and nobody has taken yet, at most: until somebody does, nobody is asked any more.
const MOST_FOUND: usize = 64;

/// What is found.
#[derive(Debug)]
pub enum Found {
    /// A newer list of relays, signed by enough authorities.
    Document(Box<Document>),
    /// An authority does not list this relay.
    Refused {
        /// Which, as the network's file counts them.
        authority: usize,
        /// Why.
        why: Refusal,
    },
    /// What an authority handed out is not to be believed; or no newer list than one that is out of date was found, which is
    /// said once of each.
    Disbelieved(ViewError),
    /// The list is not of what the network's file says that all have alike; nothing is looked for any more.
    OtherTerms(OtherTerms),
    /// An authority could not be asked.
    NoAnswer(ExchangeError),
    /// What was seen could not be written down; nothing newer is used then, or a restart would believe older lists.
    NotKept(io::Error),
}

/// What a relay says of itself at a time.
pub type Describe = Box<dyn FnMut(UnixTime) -> SignedDescriptor + Send>;

/// Writes down what must outlive a restart.
pub type Keep = Box<dyn FnMut(&Remembered) -> io::Result<()> + Send>;

/// What to follow, and how.
pub struct Following {
    /// Of which network.
    pub network: NetworkFile,
    /// What was seen before.
    pub remembered: Remembered,
    /// From which address of this machine; a relay's own.
    pub from: Option<IpAddr>,
    /// What a relay says of itself.
    pub describe: Option<Describe>,
    /// Where it is written down what was seen.
    pub keep: Keep,
    /// Called whenever something was found.
    pub wake: Box<dyn Fn() + Send>,
}

/// A thread that follows; it ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    found: Receiver<Found>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    /// Begins at once.
    ///
    /// # Errors
    ///
    /// When the system has no room for a thread, or the network's authorities are none.
    pub fn start(following: Following) -> io::Result<Follower> {
        let trust = following.network.authorities.trust().map_err(io::Error::other)?;
        let view = View::new(trust, following.remembered);
        let (sender, found) = channel(MOST_FOUND);
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("directory".into()).spawn(move || {
            let (uploaded, next) = (BTreeMap::new(), usize::from(random_seed() as u8));
            let mut followed = Followed { following, view, sender, uploaded, next, outdated: None };
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = followed.run() => {}
                }
            });
        })?;
        Ok(Follower { found, stop: Some(stop), thread: Some(thread) })
    }

    /// What was found since, if anything.
    pub fn poll(&mut self) -> Option<Found> {
        self.found.try_recv().ok()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Followed {
    following: Following,
    view: View,
    sender: Sender<Found>,
    /// The epoch in which each authority has taken the descriptor.
    uploaded: BTreeMap<usize, u64>,
    /// The authority that is asked next.
    next: usize,
    /// The epoch of the list of which it was said that it is out of date.
    outdated: Option<u64>,
}

/// The list of an epoch to come, until a user takes it: a round or two after the epoch has begun, when relays have it
/// for certain, and not with all users at the same time. The first list is taken at once.
#[derive(Debug)]
pub struct NextList {
    round: Duration,
    next: Option<(Time, Document)>,
}

impl NextList {
    /// Of a network whose rounds are so long.
    pub fn new(round: Duration) -> NextList {
        NextList { round, next: None }
    }

    /// A list was found.
    pub fn put(&mut self, now: Time, document: Document) {
        let spread = 1.0 + Rng::stream(random_seed(), "epoch").uniform();
        let wait = Duration::SECOND * document.valid_from.since(wall())
            + Duration::from_secs_f64(self.round.as_secs_f64() * spread);
        self.next = Some((now + wait, document));
    }

    /// The list, once it is to be used.
    pub fn take(&mut self, now: Time) -> Option<Document> {
        self.next.take_if(|(at, _)| *at <= now).map(|(_, document)| document)
    }

    /// When there will be one; [`Time::MAX`] for not yet.
    pub fn timer(&self) -> Time {
        self.next.as_ref().map_or(Time::MAX, |(at, _)| *at)
    }

    /// So long after one user another may take a list: they look for it at other times, wait for up to a round
    /// longer, and their clocks differ by less than a round.
    pub fn spread(round: Duration) -> Duration {
        Duration::from_secs_f64(LONGEST_LOOK.as_secs_f64()) + round * 2
    }
}

/// What the calendar says.
pub fn wall() -> UnixTime {
    UnixTime(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

impl Followed {
    /// False if nobody is there who wants to know.
    async fn report(&self, found: Found) -> bool {
        let is_heard = self.sender.send(found).await.is_ok();
        (self.following.wake)();
        is_heard
    }

    async fn run(&mut self) {
        let round = std_duration(self.following.network.authorities.round);
        let look = (round / 2).clamp(SHORTEST_LOOK, LONGEST_LOOK);
        loop {
            if !self.upload().await || !self.fetch().await || !self.report_outdated().await {
                return;
            }
            sleep(look).await;
        }
    }

    /// Hands the descriptor to all authorities that do not have it in this epoch.
    async fn upload(&mut self) -> bool {
        let Some(describe) = &mut self.following.describe else { return true };
        let authorities = &self.following.network.authorities;
        let now = wall();
        let epoch = now.0 / authorities.epoch_s;
        let missing: Vec<usize> =
            (0..authorities.authorities.len()).filter(|at| self.uploaded.get(at) != Some(&epoch)).collect();
        if missing.is_empty() {
            return true;
        }
        let message = Message::Upload(Box::new(describe(now)));
        let from = self.following.from;
        let all = missing.iter().map(|&at| {
            let (to, message) = (authorities.authorities[at].1, &message);
            async move { (at, exchange(from, to, message, MOST_DOCUMENT + AROUND).await) }
        });
        let answers = join_all(all).await;
        for (at, answer) in answers {
            let found = match answer {
                Ok(Some(Message::Refused(Refusal::NotNewer) | Message::Taken)) => {
                    self.uploaded.insert(at, epoch);
                    continue;
                }
                Ok(Some(Message::Refused(why))) => Found::Refused { authority: at, why },
                Ok(_) => continue,
                Err(why) => Found::NoAnswer(why),
            };
            if !self.report(found).await {
                return false;
            }
        }
        true
    }

    /// Asks for a newer list while there should be one.
    async fn fetch(&mut self) -> bool {
        let authorities = &self.following.network.authorities;
        let known = self.view.remembered().epoch;
        // The list of an epoch is there a little before it begins.
        let soon = authorities.round.as_nanos().div_ceil(1_000_000_000);
        let has_one = self.view.document(wall()).is_ok();
        if has_one && known * authorities.epoch_s + authorities.epoch_s > wall().after(soon).0 {
            return true;
        }
        let at = self.next % authorities.authorities.len();
        self.next = self.next.wrapping_add(1);
        let to = authorities.authorities[at].1;
        // One that is remembered must be got again after a restart.
        let newer_than = if has_one { known } else { known.saturating_sub(1) };
        let answer = exchange(None, to, &Message::Fetch { newer_than }, MOST_DOCUMENT + AROUND).await;
        let signed = match answer {
            Ok(Some(Message::Document(signed))) => signed,
            Ok(_) => return true,
            Err(why) => return self.report(Found::NoAnswer(why)).await,
        };
        match self.view.accept(&signed.encode(), wall()) {
            Ok(true) => {}
            Ok(false) => return true,
            Err(why) => return self.report(Found::Disbelieved(why)).await,
        }
        let own = self.following.network.authorities.terms();
        let listed = self.view.document(wall()).map(|document| document.terms);
        if let Some(other) = listed.ok().and_then(|listed| own.check(listed).err()) {
            self.report(Found::OtherTerms(other)).await;
            return false;
        }
        if let Err(why) = (self.following.keep)(&self.view.remembered()) {
            self.report(Found::NotKept(why)).await;
            return false;
        }
        let document = self.view.document(wall()).map(|document| Box::new(document.clone()));
        match document {
            Ok(document) => self.report(Found::Document(document)).await,
            Err(why) => self.report(Found::Disbelieved(why)).await,
        }
    }

    /// Says, once of each list, that there is no newer one than that, which is out of date.
    async fn report_outdated(&mut self) -> bool {
        match self.view.document(wall()).map(|_| ()) {
            Err(why @ ViewError::Stale { epoch, .. }) if self.outdated != Some(epoch) => {
                self.outdated = Some(epoch);
                self.report(Found::Disbelieved(why)).await
            }
            _ => true,
        }
    }
}
