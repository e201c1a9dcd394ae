//! What a run of an overlay measured.

use std::collections::BTreeMap;

use anabranch_control::units::Bytes;

/// What happened in one simulated second, over all peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    /// Data packets that left their source.
    pub sent: u32,
    /// Data packets that reached their destination.
    pub delivered: u32,
    /// Packets and ACKs that arrived at a node, refused ones too.
    pub packet_hops: u32,
    /// Data packets that a relay or a destination refused because of its limit.
    pub refused: u32,
    /// ACKs that a relay refused because of its limit.
    pub refused_acks: u32,
    /// Data packets that were lost at random between two nodes.
    pub lost: u32,
    /// ACKs that were lost at random between two nodes.
    pub lost_acks: u32,
    /// Data packets that a misbehaving relay swallowed.
    pub swallowed: u32,
    /// ACKs that a misbehaving relay swallowed.
    pub swallowed_acks: u32,
    /// ACKs that came in time.
    pub acked: u32,
    /// Deadlines that passed without an ACK.
    pub timed_out: u32,
    /// ACKs that came after their deadline: nothing had been lost.
    pub late_acks: u32,
    /// ACKs that did not know their packet's nonce.
    pub forged_acks: u32,
    /// Sum over the ACKs in time of how long before their deadline they came, in µs.
    pub early_us: u64,
}

impl Second {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Second) {
        self.sent += other.sent;
        self.delivered += other.delivered;
        self.packet_hops += other.packet_hops;
        self.refused += other.refused;
        self.refused_acks += other.refused_acks;
        self.lost += other.lost;
        self.lost_acks += other.lost_acks;
        self.swallowed += other.swallowed;
        self.swallowed_acks += other.swallowed_acks;
        self.acked += other.acked;
        self.timed_out += other.timed_out;
        self.late_acks += other.late_acks;
        self.forged_acks += other.forged_acks;
        self.early_us += other.early_us;
    }
}

/// What a run measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// One row a simulated second; fewer than asked for if the run was interrupted.
    pub seconds: Vec<Second>,
    /// The registered name of the controller that ran.
    pub controller: &'static str,
    /// Peers in the overlay.
    pub peers: usize,
    /// Bytes of a data packet.
    pub packet: Bytes,
    /// Data packets on their way when the run ended or, perhaps within a second, was interrupted.
    pub data_in_flight: u64,
    /// Memory of all senders at the end, in bytes.
    pub sender_memory_bytes: u64,
    /// Peers that the senders know, summed over the senders.
    pub peer_pairs: u64,
    /// The rates of the watched sender, if one was asked for.
    pub rates: Option<RateTrace>,
    /// ACKs in time by sender, in the second half of the run.
    pub acked_by_sender: Vec<u32>,
}

/// The learned rates of one sender, sampled each second.
#[derive(Clone, Debug, PartialEq)]
pub struct RateTrace {
    /// The node that was watched.
    pub sender: u32,
    /// The nodes that it knows, in the order of the rates.
    pub known: Vec<u32>,
    /// For each second a rate for each known node, in bytes a second; not a number
    /// where the controller has no rate.
    pub rates_bytes_per_s: Vec<f32>,
    /// What else the controller traces of each known node, by name, in the same order.
    pub traced: BTreeMap<&'static str, Vec<f32>>,
}

impl Measured {
    /// Received payload in bytes a second a peer, for each second.
    pub fn received_bytes_per_s(&self) -> impl Iterator<Item = f64> + '_ {
        let scale = self.packet.get() as f64 / self.peers as f64;
        self.seconds.iter().map(move |second| f64::from(second.delivered) * scale)
    }

    /// How equal the senders' shares of what was delivered are, in the second half of the run:
    /// (Σ x)² / (n Σ x²) [Jain, Chiu and Hawe 1984]; 1 if all have the same. None if nothing was.
    pub fn fairness(&self) -> Option<f64> {
        let (sum, squares) = self.acked_by_sender.iter().fold((0.0, 0.0), |(sum, squares), &acked| {
            let acked = f64::from(acked);
            (sum + acked, squares + acked * acked)
        });
        (squares > 0.0).then(|| sum * sum / (self.acked_by_sender.len() as f64 * squares))
    }

    /// All counts of the run together.
    pub fn packet_hops(&self) -> u64 {
        self.seconds.iter().map(|second| u64::from(second.packet_hops)).sum()
    }

    /// Refused packets in per cent of all packets that nodes received ([Raiber 2010]
    /// table 7.4, note 3), data and ACKs, over the whole run.
    pub fn drop_percent(&self) -> f64 {
        let sum = |count: fn(&Second) -> u32| self.seconds.iter().map(|s| u64::from(count(s))).sum::<u64>() as f64;
        let refused = sum(|s| s.refused) + sum(|s| s.refused_acks);
        100.0 * refused / sum(|s| s.packet_hops).max(1.0)
    }
}
