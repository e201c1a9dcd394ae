//! Anabranch as a Python module: what `anabranch._native` holds. The package around it, which users see, is
//! `python/anabranch/`.
//!
//! Nothing here computes: environments are [`anabranch_env`]'s, runs and sweeps are those of the command. This side
//! checks what comes over the border, says what would be right, and lets Python's other threads run meanwhile.

#[cfg(feature = "module")]
mod apart;
#[cfg(feature = "module")]
mod arrays;
#[cfg(feature = "module")]
mod environments;
#[cfg(feature = "module")]
mod errors;
#[cfg(feature = "module")]
mod experiments;
#[cfg(feature = "module")]
mod page;
#[cfg(feature = "module")]
mod plain;
mod policy;
#[cfg(feature = "module")]
mod policy_files;
#[cfg(feature = "module")]
mod runs;
#[cfg(feature = "module")]
mod senders;
#[cfg(feature = "module")]
mod stepping;
#[cfg(feature = "module")]
mod sweeps;
#[cfg(feature = "module")]
mod tables;

/// Environments, runs and sweeps.
#[cfg(feature = "module")]
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::environments::{Environments, environments, features};
    #[pymodule_export]
    use crate::errors::{RunError, ScenarioError};
    #[pymodule_export]
    use crate::experiments::{experiments, reproduce};
    #[pymodule_export]
    use crate::page::write_page;
    #[pymodule_export]
    use crate::policy::{Memory, Policy};
    #[pymodule_export]
    use crate::policy_files::{load_policy, save_flow_policy, save_policy};
    #[pymodule_export]
    use crate::runs::{controllers, run};
    #[pymodule_export]
    use crate::senders::Senders;
    #[pymodule_export]
    use crate::sweeps::{Driver, measure_point, measures, sweep};
    #[pymodule_export]
    use crate::tables::Table;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "as Python has it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
