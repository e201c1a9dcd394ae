//! [Raiber 2010]: its figures and tables of overlays that relay, and appendix A.

pub mod appendix_a;
pub mod changes;
pub mod fig_7_4_to_7_8;
pub mod grids;
mod parameter;
pub mod rates;
pub mod table_7_1;
pub mod table_7_4;
pub mod table_7_6;
