//! Many peers in one process, on real sockets of the loopback interface, with emulated
//! delays between them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anabranch_control::path::Slot;
use anabranch_control::path::registry::{Entry, Pacing};
use anabranch_control::rng::Rng;
use anabranch_control::time::{Duration, Time};
use anabranch_control::units::Rate;
use anabranch_proto::limiter::LimitModel;
use anabranch_proto::overlay::load::LoadSender;
use anabranch_proto::overlay::message::Offer;
use anabranch_proto::overlay::peer::{Peer, Sender};
use anabranch_proto::overlay::relay_node::RelayNode;
use anabranch_proto::seal::{self, Identity, SessionId};
use anabranch_proto::transfer::{FileDone, FileJob, Limits, Receiver, Source, Store, StoreError};

use crate::endpoint::Link;
use crate::pool::Work;
use crate::runtime::Runtime;
use crate::setup::{PACKET, SenderSetup, SetupError};
use crate::udp::Socket;

/// The one-way delay of one packet from a node to a node.
pub type NodeDelay = Box<dyn FnMut(u32, u32) -> Duration + Send>;

/// Sockets on 127.0.0.1, one for each node, before anybody is behind them.
#[derive(Debug)]
pub struct Sockets {
    sockets: Vec<Socket>,
    addresses: Vec<SocketAddr>,
    nodes: Arc<HashMap<SocketAddr, u32>>,
}

impl Sockets {
    /// As many as there are nodes, on ports that the system chooses.
    pub fn bind(nodes: usize) -> io::Result<Sockets> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let sockets = (0..nodes).map(|_| Socket::bind(any)).collect::<io::Result<Vec<_>>>()?;
        let addresses = sockets.iter().map(Socket::local_addr).collect::<io::Result<Vec<_>>>()?;
        let nodes = addresses.iter().zip(0..).map(|(&address, node)| (address, node)).collect();
        Ok(Sockets { sockets, addresses, nodes: Arc::new(nodes) })
    }

    /// The nodes' addresses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Puts peer i behind socket i, with delays from `delay`, which is asked for each node.
    pub fn serve(
        self,
        runtime: &mut Runtime<Peer>,
        peers: impl IntoIterator<Item = Peer>,
        mut delay: impl FnMut(u32) -> NodeDelay,
    ) -> io::Result<()> {
        for ((socket, peer), node) in self.sockets.into_iter().zip(peers).zip(0..) {
            runtime.add(socket, peer, Some(link(node, Arc::clone(&self.nodes), delay(node))))?;
        }
        Ok(())
    }
}

fn link(from: u32, nodes: Arc<HashMap<SocketAddr, u32>>, mut delay: NodeDelay) -> Link {
    Box::new(move |next| nodes.get(&next).map_or(Duration::ZERO, |&to| delay(from, to)))
}

/// Peers that all relay, send to each other and receive at once.
#[derive(Clone, Debug)]
pub struct Crowd {
    /// What each peer forwards and receives.
    pub limit: Rate,
    /// For each peer how it holds to its limit.
    pub models: Vec<LimitModel>,
    /// For each peer when it begins to send.
    pub starts: Vec<Time>,
    /// Relays for each packet.
    pub hops: usize,
    /// What each sender's controller is.
    pub controller: &'static Entry,
    /// Its parameters.
    pub parameters: toml::Table,
    /// How rates become sending times.
    pub pacing: Pacing,
    /// Each sender's own limit, if it has one.
    pub upload: Option<Rate>,
    /// From which random streams are made.
    pub seed: u64,
}

impl Crowd {
    /// The peers at `addresses`. They have agreed on keys before the first packet, so
    /// that nothing but the scenario's packets is on the way.
    pub fn peers(&self, addresses: &[SocketAddr]) -> Result<Vec<Peer>, SetupError> {
        let identity = Identity::generate();
        let mut receivers: Vec<Receiver> =
            addresses.iter().map(|_| Receiver::new(identity.clone(), Limits::default())).collect();
        let mut senders = Vec::with_capacity(addresses.len());
        for node in 0..addresses.len() {
            // A peer knows all others, in their order.
            let others: Vec<usize> = (0..addresses.len()).filter(|&other| other != node).collect();
            let mut sessions = BTreeMap::new();
            for (slot, &other) in others.iter().enumerate() {
                let (ours, theirs) = seal::local_session(&identity);
                receivers[other].install(Time::ZERO, theirs);
                sessions.insert(Slot(slot as u16), ours);
            }
            let courier = SenderSetup {
                peers: others.iter().map(|&other| addresses[other]).collect(),
                hops: self.hops,
                controller: self.controller,
                parameters: self.parameters.clone(),
                pacing: self.pacing,
                upload: self.upload,
                packet: PACKET,
                start: self.starts[node],
                rng: Rng::indexed(self.seed, "sender", node as u64),
            }
            .build()?;
            let rng = Rng::indexed(self.seed, "destinations", node as u64);
            senders.push(LoadSender::new(courier, sessions, PACKET, self.starts[node], rng));
        }
        let parts = receivers.into_iter().zip(senders).zip(&self.models);
        Ok(parts
            .map(|((receiver, sender), &model)| {
                let relay = RelayNode::new(model, self.limit);
                Peer::new(relay, Some(receiver), Some(Sender::Load(Box::new(sender))))
            })
            .collect())
    }
}

/// Takes no files and has none.
#[derive(Clone, Copy, Debug)]
pub struct NoFiles;

impl Store for NoFiles {
    fn create(&mut self, _: SessionId, _: &Offer) -> Result<(), StoreError> {
        Err(StoreError("no files are taken here".into()))
    }

    fn write(&mut self, _: SessionId, _: u64, _: &[u8]) -> Result<(), StoreError> {
        Err(StoreError("no files are taken here".into()))
    }

    fn read(&mut self, _: SessionId, _: u64, _: &mut [u8]) -> Result<(), StoreError> {
        Err(StoreError("no files are taken here".into()))
    }

    fn publish(&mut self, _: SessionId, _: &Offer) -> Result<String, StoreError> {
        Err(StoreError("no files are taken here".into()))
    }

    fn discard(&mut self, _: SessionId) {}
}

impl Source for NoFiles {
    fn read(&mut self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "no files are sent from here"))
    }
}

impl Work<FileJob, FileDone> for NoFiles {
    fn work(&mut self, _: usize, job: FileJob) -> FileDone {
        job.work(self, &mut NoFiles)
    }
}
