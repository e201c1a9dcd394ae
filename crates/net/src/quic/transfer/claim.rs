//! Which connection goes on with a file: one at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anabranch_proto::seal::SessionId;
use anabranch_proto::transfer::{Partial, PartialId};

use super::{GIVEN_UP, PATIENCE};

/// A sender over whose connection nothing has come for so long has gone, if another goes on with its file:
/// as over relays.
const GONE: Duration = Duration::from_secs(3);

/// So often it is looked whether a connection has let go of its file.
const LOOK: Duration = Duration::from_millis(100);

/// A file that comes, and that its sender may go on with over another connection.
#[derive(Debug)]
pub struct Coming {
    session: SessionId,
    connection: noq::Connection,
    state: Mutex<Heard>,
}

#[derive(Debug)]
struct Heard {
    /// When something of the file has come last.
    at: Instant,
    /// The connection that goes on with it.
    successor: Option<SessionId>,
}

impl Coming {
    fn state(&self) -> MutexGuard<'_, Heard> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It ends, and the connection of `session` goes on with its file, if none does yet.
    fn give_up_to(&self, state: &mut Heard, session: SessionId) {
        if state.successor.is_none() {
            state.successor = Some(session);
            self.connection.close(GIVEN_UP, b"its sender has begun to send this file again");
        }
    }

    /// The connection that goes on with it.
    pub fn successor(&self) -> Option<SessionId> {
        self.state().successor
    }

    /// Something of it has come.
    pub fn heard(&self) {
        self.state().at = Instant::now();
    }

    /// Its sender has fallen silent, or has begun again.
    pub fn is_orphan(&self) -> bool {
        let state = self.state();
        state.successor.is_some() || state.at.elapsed() >= GONE
    }
}

/// Files on their way, by the connections that may go on with them.
#[derive(Debug, Default)]
pub struct ComingFiles(Mutex<BTreeMap<PartialId, Arc<Coming>>>);

impl ComingFiles {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PartialId, Arc<Coming>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sender of a file, known by its key, goes on with it over the connection of `session`: the one over which it
    /// comes, if there is one, is closed.
    pub fn supersede(&self, file: PartialId, session: SessionId) {
        if let Some(other) = self.all().get(&file) {
            other.give_up_to(&mut other.state(), session);
        }
    }
}

/// The right to go on with a file, which one connection has at a time.
pub struct Claim {
    files: Arc<ComingFiles>,
    pub partial: Partial,
    pub coming: Arc<Coming>,
}

impl Claim {
    /// That of the connection of `session`, once no other has it. One over which nothing has come for a while is
    /// closed, for its sender may have died and begun again; or at once, if a key proves that it is the
    /// `same_sender`. Of who shows no key nobody is driven out who is there: who finds such a one has no
    /// claim, and its file comes once, from its beginning.
    pub async fn of(
        files: &Arc<ComingFiles>,
        partial: Partial,
        session: SessionId,
        connection: &noq::Connection,
        same_sender: bool,
    ) -> Option<Claim> {
        let asked = Instant::now();
        loop {
            {
                let mut coming = files.all();
                let Some(other) = coming.get(&partial.id) else {
                    let state = Mutex::new(Heard { at: Instant::now(), successor: None });
                    let own = Arc::new(Coming { session, connection: connection.clone(), state });
                    coming.insert(partial.id, Arc::clone(&own));
                    return Some(Claim { files: Arc::clone(files), partial, coming: own });
                };
                let mut state = other.state();
                if same_sender || state.at.elapsed() >= GONE {
                    other.give_up_to(&mut state, session);
                }
                let patience = if state.successor == Some(session) { PATIENCE } else { GONE };
                if asked.elapsed() >= patience + LOOK {
                    return None;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.files.all().retain(|_, other| other.session != self.coming.session);
    }
}
