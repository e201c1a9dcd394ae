//! [Raiber 2010]: its figures and tables of overlays that relay, and appendix A.

pub mod batch_means;
pub mod changes;
pub mod drops;
pub mod grids;
mod parameter;
pub mod rates;
pub mod round_trip_estimate;
pub mod sensitivity;
pub mod standard;
