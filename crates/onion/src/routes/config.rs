//! How many hops a half has, and by what packets are placed on relays.

use anabranch_control::path::PathController;
use anabranch_control::path::registry::{self, Build, Entry, Pacing, Setup};
use anabranch_control::registry::{ParameterError, UnknownController, in_range, parameters};
use anabranch_control::time::Time;
use anabranch_control::units::Bytes;
use thiserror::Error;

use super::per_path::PerPathConfig;
use crate::size::{DATAGRAM, MOST_HOPS};

/// No relay is drawn with less than this part of its advertised share, or nobody would learn that it has
/// become better. One packet in ten of what it could have is enough to notice within a review.
pub const FLOOR: f64 = 0.1;

/// No relay is drawn with more than this multiple of its advertised share.
pub const CAP: f64 = 2.0;

/// The controller of individual paths, which is known to this crate alone.
const PER_PATH: &str = "per-path";

/// What a half is, and what places packets in it.
#[derive(Clone, Debug)]
pub struct RoutesConfig {
    /// Relays of a half, from 1 to [`MOST_HOPS`].
    pub hops: usize,
    /// `per-path`, or the name of a path controller that goes by what arrives: `random`, `aimd`, `q-learning`,
    /// `tomography`, `timeouts`, `flow:NAME`.
    pub placement: String,
    /// Its parameters.
    pub parameters: toml::Table,
    /// Size of the packets.
    pub packet: Bytes,
}

impl Default for RoutesConfig {
    fn default() -> RoutesConfig {
        RoutesConfig {
            hops: 3,
            placement: "tomography".to_owned(),
            parameters: toml::Table::new(),
            packet: Bytes::new(DATAGRAM as u64),
        }
    }
}

/// Why there are no routes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlacementError {
    /// Too few or too many hops.
    #[error("a half of {0} hops; expected 1 to {MOST_HOPS}")]
    Hops(usize),
    /// Nothing has this name.
    #[error("{0}, {PER_PATH}")]
    Unknown(#[from] UnknownController),
    /// It cannot be used here.
    #[error("\"{0}\" knows what only a simulation knows; expected a controller that any sender can have")]
    Omniscient(&'static str),
    /// It learns from what nobody here says.
    #[error(
        "\"{0}\" goes by rates that relays grant on ACKs, and relays of an onion know no sender and say none; expected \
         one that learns from what arrives, as \"timeouts\" and \"tomography\" do"
    )]
    Blind(&'static str),
    /// A parameter is wrong.
    #[error("{0}")]
    Parameter(#[from] ParameterError),
}

/// What places packets.
#[derive(Debug)]
pub(super) enum Placement {
    /// Advertised weights alone.
    Weights,
    PerPath(PerPathConfig),
    Learner(&'static Entry),
}

impl RoutesConfig {
    /// Refuses what cannot work.
    ///
    /// # Errors
    ///
    /// What is wrong.
    pub fn check(&self) -> Result<(), PlacementError> {
        if !(1..=MOST_HOPS).contains(&self.hops) {
            return Err(PlacementError::Hops(self.hops));
        }
        match self.placement()? {
            Placement::Learner(entry) => self.controller(entry, 1, Time::ZERO).map(|_| ()),
            _ => Ok(()),
        }
    }

    pub(super) fn placement(&self) -> Result<Placement, PlacementError> {
        match self.placement.as_str() {
            PER_PATH => {
                let config: PerPathConfig = parameters(&self.parameters)?;
                in_range("paths", config.paths as f64, 1.0..=4096.0)?;
                in_range("explore", config.explore, 0.0..=1.0)?;
                Ok(Placement::PerPath(config))
            }
            "random" => {
                anabranch_control::registry::no_parameters(&self.parameters)?;
                Ok(Placement::Weights)
            }
            name => {
                let entry = registry::find(name)?;
                match entry.reads_telemetry {
                    true => Err(PlacementError::Blind(entry.name)),
                    false => Ok(Placement::Learner(entry)),
                }
            }
        }
    }

    pub(super) fn controller(
        &self,
        entry: &'static Entry,
        peers: usize,
        start: Time,
    ) -> Result<Box<dyn PathController>, PlacementError> {
        if let Build::Omniscient = entry.build {
            return Err(PlacementError::Omniscient(entry.name));
        }
        let setup = Setup { peers, packet: self.packet, start, pacing: Pacing::Paced };
        let mut parameters = self.parameters.clone();
        if entry.name == "timeouts" {
            // How much goes to the one destination is another's decision here, and relays' rates are shares: those that
            // follow every loss tell relays apart where rates do not limit.
            parameters.entry("rounds").or_insert(false.into());
        }
        let made = entry.build.make(&setup, &parameters).ok_or(PlacementError::Omniscient(entry.name))?;
        Ok(made?)
    }
}
