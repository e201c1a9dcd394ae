//! Which session a connection goes to: one that its SOCKS user has with an exit that leads there, or a new one with an exit
//! that is chosen by weight.

use anabranch_control::rng::Rng;
use anabranch_control::time::Time;
use anabranch_onion::directory::{Protocol, PublicKey};
use anabranch_onion::node::{Destination, EXIT, SessionId};
use anabranch_onion::session::Target;

use super::super::follow::wall;
use super::super::socks::SocksUser;
use super::super::streams::Streams;
use super::{MOST_SESSIONS, Open, UserEdge};
use crate::setup::random_seed;

/// Why there is no session.
pub(super) enum NoSession {
    /// No exit leads there.
    Exit,
    /// There are too many.
    Full,
    /// The list of relays is out of date.
    Outdated,
}

impl UserEdge {
    /// The session of `socks` with an exit that speaks `protocol` with `target`: one that it has, or a new one.
    pub(super) fn session_for(
        &mut self,
        socks: SocksUser,
        protocol: Protocol,
        target: &Target,
    ) -> Result<SessionId, NoSession> {
        let now = self.runtime.now();
        let user = self.runtime.machine(0);
        let document = user.document();
        if wall() >= document.valid_until {
            return Err(NoSession::Outdated);
        }
        let may = |relay: anabranch_onion::RelayIndex| {
            let descriptor = &document.member(relay)?.descriptor;
            let keys = descriptor.service.as_ref()?.keys()?;
            let leads = match target {
                Target::Name(_, port) => descriptor.exit.may_allow(protocol, *port),
                Target::Address(address, port) => descriptor.exit.allows(protocol, *address, *port),
                Target::Itself => false,
            };
            leads.then_some((descriptor.identity, keys))
        };
        let own = self.sessions.iter().find(|(_, open)| {
            let is_there = open.gone_since.is_none() && !self.gone_exits.is_left_alone(now, &open.exit);
            open.socks == socks && is_there && document.index_of(&open.exit).and_then(may).is_some()
        });
        if let Some((id, _)) = own {
            return Ok(*id);
        }
        // A guard of this user is no exit of it: it would know who it is and where to.
        let leading = document.relays().map(|(relay, _)| relay).filter(|relay| may(*relay).is_some());
        let mut exits: Vec<_> = user
            .choice()
            .ends(document, leading)
            .into_iter()
            .filter_map(|relay| Some((relay, document.member(relay)?.weight, may(relay)?)))
            .collect();
        // Where all that lead there were gone, they may be back.
        let is_there = |exit: &PublicKey| !self.gone_exits.is_left_alone(now, exit);
        if exits.iter().any(|(_, _, (exit, _))| is_there(exit)) {
            exits.retain(|(_, _, (exit, _))| is_there(exit));
        }
        let total: u64 = exits.iter().map(|(_, weight, _)| *weight).sum();
        let mut left = (Rng::stream(random_seed(), "exit").uniform() * total as f64) as u64;
        let chosen = exits.into_iter().find(|(_, weight, _)| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        let (relay, _, (exit, keys)) = chosen.ok_or(NoSession::Exit)?;
        self.make_room(now)?;
        let destination = Destination { relay, label: EXIT, keys };
        let rates = self.rates.clone();
        let id = self.runtime.act(0, |user, now, _| user.open(now, destination, rates));
        self.sessions.insert(id, Open { idle_since: None, socks, exit, gone_since: None, streams: Streams::default() });
        Ok(id)
    }

    /// Ends the session that has been without connections for longest, if there is no place for another.
    fn make_room(&mut self, now: Time) -> Result<(), NoSession> {
        if self.sessions.len() < MOST_SESSIONS {
            return Ok(());
        }
        let idle = self.sessions.iter().filter(|(id, open)| open.streams.is_empty() && !self.associations.uses(**id));
        let longest = idle.min_by_key(|(_, open)| open.idle_since.unwrap_or(now)).map(|(id, _)| *id);
        let longest = longest.ok_or(NoSession::Full)?;
        self.sessions.remove(&longest);
        self.close(longest);
        Ok(())
    }
}
