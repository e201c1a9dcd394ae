//! Controllers' parameters that name a file: what the file holds takes the name's place.

use std::path::Path;

use anabranch_control::registry::ParameterError;
use toml::Table;

use crate::{policy, remy_table};

/// The parameters of the controller `name`, with the rules of a table, beginning where the program runs, or with the
/// network of a policy, beginning in `directory`.
///
/// # Errors
///
/// When the file can't be read, or holds something else.
pub fn resolved(name: &str, parameters: &Table, directory: &Path) -> Result<Table, ParameterError> {
    let mut parameters = parameters.clone();
    match name {
        "remy" => {
            let wrong = |error: remy_table::TableError| ParameterError(error.to_string());
            remy_table::resolve(&mut parameters, Path::new("")).map_err(wrong)?;
        }
        "policy" => policy::flow::resolve(&mut parameters, directory)?,
        _ => {}
    }
    Ok(parameters)
}
