use std::net::Ipv4Addr;

use anabranch_onion::directory::{
    AuthorityConfig, Descriptor, DocumentHash, EpochKey, Member, SecretKey, ServiceEntry, Terms,
};
use anabranch_onion::packet::PacketsPerKey;
use anabranch_onion::session::{Secrecy, ServiceSecret};

use super::super::pipe::INBOX;
use super::super::policy::Policy;
use super::*;
use crate::setup::secret;

/// Relays of which none is there, all of them exits.
fn document() -> Document {
    let relay = |host: u8| {
        let (epoch_key, service) = (EpochKey { epoch: 1, key: [9; 32] }, ServiceSecret::from_seed(&secret()));
        let descriptor = Descriptor {
            identity: SecretKey::from_seed(&secret()).public(),
            published: UnixTime(0),
            address: (Ipv4Addr::new(127, host, 0, 1), 9).into(),
            bytes_per_s: 1_000_000,
            epoch_keys: vec![epoch_key],
            family: None,
            exit: Policy::new(["*:80".parse().unwrap()]).advertised(),
            service: Some(ServiceEntry::new(&service.keys())),
        };
        Member { descriptor, since: UnixTime(0), weight: 1, guard: true }
    };
    let mut members: Vec<Member> = (1..8).map(relay).collect();
    members.sort_by_key(|member| member.descriptor.identity);
    let (valid_from, valid_until) = (UnixTime(0), UnixTime(u64::MAX));
    let (previous, terms) = (DocumentHash::default(), Terms::default());
    Document { epoch: 1, valid_from, valid_until, previous, terms, members }
}

fn edge() -> UserEdge {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let authority = (SecretKey::from_seed(&secret()).public(), (Ipv4Addr::LOCALHOST, 9).into());
    let mut edge = UserEdge::start(EdgeSettings {
        network: NetworkFile { authorities: AuthorityConfig::hourly(vec![authority], 1) },
        user: UserSettings {
            guards: 0,
            hops: 3,
            placement: "timeouts".to_owned(),
            placement_back: "timeouts".to_owned(),
            packets_per_key: PacketsPerKey::STANDARD,
            secrecy: Secrecy::Sealed,
            mixing: None,
        },
        cover: Cover::Off,
        rates: Rates::default(),
        socks: any,
        socket: Socket::bind(any).unwrap(),
        guards: GuardState::default(),
        keep_guards: Box::new(|_| Ok(())),
        remembered: Remembered::default(),
        keep: Box::new(|_| Ok(())),
    })
    .unwrap();
    edge.begin_epoch(document()).unwrap();
    edge
}

#[test]
fn who_leaves_closes_its_sessions_resets_its_programs_and_begins_nothing_more() {
    let mut edge = edge();
    let begin = |edge: &mut UserEdge, number: u64| {
        let (inbox, messages) = tokio::sync::mpsc::channel(INBOX);
        let wants = Wants::Stream(Target::Name("example.org".into(), 80));
        let user = SocksUser::new(&[number as u8], b"");
        edge.on_request(Request { connection: ConnectionId(number), user, wants, inbox });
        messages
    };
    let mut programs: Vec<_> = (0..2).map(|number| begin(&mut edge, number)).collect();
    assert_eq!((edge.sessions(), edge.connections().0), (2, 2));
    // One has been accepted by its exit, the other has not.
    let (&id, open) = edge.sessions.iter_mut().next().unwrap();
    let accepted = StreamEvent::Accepted(anabranch_onion::session::StreamId(0));
    edge.runtime.act(0, |user, _, _| open.streams.on_event(user.session(id).unwrap(), &accepted));
    let is_accepted = matches!(programs[0].try_recv(), Ok(ToTask::Accepted));
    assert!(is_accepted ^ matches!(programs[1].try_recv(), Ok(ToTask::Accepted)));
    edge.leave(Duration::from_millis(50)).unwrap();
    programs.push(begin(&mut edge, 2));
    assert_eq!((edge.sessions(), edge.connections().0), (0, 0));
    assert!(edge.user().unwrap().sessions().all(|(_, client)| client.end() == Some(End::Closed)));
    for mut messages in programs {
        assert!(matches!(messages.try_recv(), Ok(ToTask::Reset(_))));
    }
}
