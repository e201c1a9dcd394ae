//! Programs' associations at a user's edge: which flow of which session carries what goes from one to a target.

use std::collections::BTreeMap;

use anabranch_control::time::Time;
use anabranch_onion::node::SessionId;
use anabranch_onion::session::{Reason, StreamId, Target};
use bytes::Bytes;

use super::flow;
use super::pipe::{ConnectionId, Inbox, ToTask};
use super::socks::SocksUser;

/// Targets of one association at once: a quarter of what a session has room for. With one more, the one that was not
/// sent to for longest goes.
pub const MOST_TARGETS: usize = 64;

/// A flow, as a session knows it.
pub type FlowId = (SessionId, StreamId);

struct Used {
    flow: FlowId,
    at: Time,
}

struct Association {
    socks: SocksUser,
    inbox: Inbox,
    targets: BTreeMap<Target, Used>,
}

/// All of them.
#[derive(Default)]
pub struct Associations {
    all: BTreeMap<ConnectionId, Association>,
    by_flow: BTreeMap<FlowId, (ConnectionId, Target)>,
}

impl Associations {
    /// A program of `socks` has one.
    pub fn begin(&mut self, connection: ConnectionId, socks: SocksUser, inbox: Inbox) {
        self.all.insert(connection, Association { socks, inbox, targets: BTreeMap::new() });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// With whom the flows of an association may share a session; nothing if it is none.
    pub fn socks(&self, connection: ConnectionId) -> Option<SocksUser> {
        self.all.get(&connection).map(|association| association.socks)
    }

    /// A datagram of the program was taken.
    pub fn taken(&self, connection: ConnectionId) {
        if let Some(association) = self.all.get(&connection) {
            // There is a place for it: see [`flow::hand`].
            let _ = association.inbox.try_send(ToTask::Taken);
        }
    }

    /// The flow from an association to a target, which is used now.
    pub fn flow_to(&mut self, now: Time, connection: ConnectionId, target: &Target) -> Option<FlowId> {
        let used = self.all.get_mut(&connection)?.targets.get_mut(target)?;
        used.at = now;
        Some(used.flow)
    }

    /// A new flow leads from an association to a target; the flow that has to end for it, if one has to.
    pub fn join(&mut self, now: Time, connection: ConnectionId, target: Target, flow: FlowId) -> Option<FlowId> {
        let association = self.all.get_mut(&connection)?;
        let oldest = association.targets.iter().min_by_key(|(_, used)| used.at);
        let oldest = oldest.filter(|_| association.targets.len() == MOST_TARGETS).map(|(_, used)| used.flow);
        self.by_flow.insert(flow, (connection, target.clone()));
        association.targets.insert(target, Used { flow, at: now });
        oldest.inspect(|oldest| self.part(*oldest))
    }

    /// A flow is over; the next datagram to its target has another.
    pub fn part(&mut self, flow: FlowId) {
        if let Some((connection, target)) = self.by_flow.remove(&flow)
            && let Some(association) = self.all.get_mut(&connection)
        {
            association.targets.remove(&target);
        }
    }

    /// A session is over, or nothing is sent by it any more: with it all flows in it, which are these.
    pub fn on_end(&mut self, session: SessionId) -> Vec<FlowId> {
        let over: Vec<FlowId> = self.by_flow.keys().filter(|(of, _)| *of == session).copied().collect();
        over.iter().for_each(|flow| self.part(*flow));
        over
    }

    /// A datagram came by a flow; it is dropped where the program takes none.
    pub fn on_datagram(&self, flow: FlowId, bytes: Box<[u8]>) {
        if let Some((connection, target)) = self.by_flow.get(&flow)
            && let Some(association) = self.all.get(connection)
        {
            flow::hand(&association.inbox, ToTask::DatagramFrom(target.clone(), Bytes::from(bytes)));
        }
    }

    /// The program has done with it; the flows that are to end.
    pub fn end(&mut self, connection: ConnectionId) -> Vec<FlowId> {
        let flows = self.all.get(&connection).into_iter().flat_map(|association| association.targets.values());
        let flows: Vec<FlowId> = flows.map(|used| used.flow).collect();
        flows.iter().for_each(|flow| self.part(*flow));
        if let Some(association) = self.all.remove(&connection) {
            let _ = association.inbox.try_send(ToTask::Reset(Reason::Stopped));
        }
        flows
    }

    /// Whether flows lead through a session.
    pub fn uses(&self, session: SessionId) -> bool {
        self.by_flow.range((session, StreamId(0))..).next().is_some_and(|((of, _), _)| *of == session)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    fn target(number: u8) -> Target {
        Target::Address([192, 0, 2, number].into(), 53)
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(1_000_000 * ms)
    }

    #[test]
    fn a_target_has_one_flow_until_it_is_over_and_the_one_longest_unused_makes_room() {
        let (inbox, mut messages) = mpsc::channel(flow::INBOX);
        let (mut all, connection) = (Associations::default(), ConnectionId(4));
        all.begin(connection, SocksUser::default(), inbox);
        let flow = |number: usize| (SessionId(1), StreamId(number as u32));
        for number in 0..MOST_TARGETS {
            assert_eq!(all.flow_to(at(0), connection, &target(number as u8)), None);
            assert_eq!(all.join(at(number as u64), connection, target(number as u8), flow(number)), None);
        }
        assert_eq!(all.flow_to(at(1000), connection, &target(0)), Some(flow(0)));
        assert_eq!(all.join(at(1001), connection, target(200), flow(200)), Some(flow(1)), "0 was used since");
        assert_eq!(all.flow_to(at(1002), connection, &target(1)), None);
        all.on_datagram(flow(1), Box::new([1]));
        assert!(messages.try_recv().is_err(), "what comes by a flow that is over is nobody's");
        all.on_datagram(flow(200), Box::new([2]));
        let Ok(ToTask::DatagramFrom(from, bytes)) = messages.try_recv() else { panic!("it is handed on") };
        assert_eq!((from, &bytes[..]), (target(200), &[2][..]));
        all.part(flow(0));
        assert_eq!((all.flow_to(at(1003), connection, &target(0)), all.uses(SessionId(1))), (None, true));
        assert_eq!(all.end(connection).len(), MOST_TARGETS - 1);
        assert!(matches!(messages.try_recv(), Ok(ToTask::Reset(_))));
        assert_eq!((all.len(), all.uses(SessionId(1)), all.by_flow.len()), (0, false, 0));
    }

    #[test]
    fn a_session_that_ends_takes_its_flows_and_no_others() {
        let (inbox, _messages) = mpsc::channel(flow::INBOX);
        let (mut all, connection) = (Associations::default(), ConnectionId(4));
        all.begin(connection, SocksUser::default(), inbox);
        all.join(at(0), connection, target(1), (SessionId(1), StreamId(0)));
        all.join(at(0), connection, target(2), (SessionId(2), StreamId(0)));
        assert_eq!(all.on_end(SessionId(1)), [(SessionId(1), StreamId(0))]);
        assert_eq!(all.flow_to(at(1), connection, &target(1)), None);
        assert_eq!(all.flow_to(at(1), connection, &target(2)), Some((SessionId(2), StreamId(0))));
        assert!(!all.uses(SessionId(1)) && all.uses(SessionId(2)));
    }
}
