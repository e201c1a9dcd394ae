//! Tables of Remy's rules, from their `.dna` files to the parameter `rules` of the
//! controller `remy`.
//!
//! A file is one protobuf message, a tree. A node cuts its box into the boxes of its
//! children; a leaf's box has a rule. Bounds are those of the signals: interval of sending
//! and of ACKs in ms, round-trip time over the least, slow interval of ACKs in ms. A bound
//! that is left out is 0 below and 163840 above.
//!
//! The controller reads no file. Where a scenario's parameters name a `table_file`, `resolve`
//! puts the rules in its place, so that what runs says everything about itself.

mod message;

use std::path::{Path, PathBuf};

use prost::Message;
use toml::{Table, Value};

use message::{Memory, MemoryRange, WhiskerTree};

/// Where tests and experiments look for tables that are not part of the project.
pub const DIRECTORY_VARIABLE: &str = "ANABRANCH_REMY_DIR";

/// The parameter that names a file.
const FILE_KEY: &str = "table_file";

/// A bound above that is left out.
const UNBOUNDED: f64 = 163_840.0;

/// Nodes in one file; trained tables have some hundreds.
const MAXIMUM_NODES: usize = 65_536;

/// Children of one node: all ways to cut four signals in two are 16.
const MAXIMUM_CHILDREN: usize = 64;

/// A file is no table of rules.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It cannot be read.
    #[error("{path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It was read, and is no table.
    #[error("{path}: {error}")]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Why.
        error: Box<TableError>,
    },
    /// It is no protobuf message of this kind.
    #[error("expected a Remy rule table (protobuf message WhiskerTree): {0}")]
    Decode(#[from] prost::DecodeError),
    /// A node is neither a rule nor cut into others.
    #[error("a node has {children} children and {rules}, expected children or a rule")]
    Node {
        /// How many children.
        children: usize,
        /// Whether it has a rule.
        rules: &'static str,
    },
    /// There are too many nodes, or children of one node.
    #[error("more than {0} nodes, or {MAXIMUM_CHILDREN} children of one node")]
    TooLarge(usize),
    /// A box ends before it begins, or a bound is no number.
    #[error("a box from {from:?} to {to:?}: expected finite bounds, the first not above the second")]
    Bounds {
        /// Its lower bounds.
        from: [f64; 4],
        /// Its upper bounds.
        to: [f64; 4],
    },
    /// A child is larger than its node.
    #[error("a box from {from:?} to {to:?} that is not inside the one that it is cut from")]
    Outside {
        /// Its lower bounds.
        from: [f64; 4],
        /// Its upper bounds.
        to: [f64; 4],
    },
    /// Children leave a gap or overlap.
    #[error("{count} of a node's children hold the point {point:?} of its box, expected one")]
    Cut {
        /// The point.
        point: [f64; 4],
        /// Children that hold it.
        count: usize,
    },
    /// A rule's number is none, or out of range.
    #[error("a rule with {name} = {value}, expected between {least} and 1e6")]
    Rule {
        /// Which number.
        name: &'static str,
        /// The number.
        value: f64,
        /// The least that it may be.
        least: f64,
    },
    /// `table_file` is not a string, or stands beside `rules`.
    #[error("table_file must be the path of a file, and stand without rules")]
    Key,
}

/// A box of signals.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Domain {
    from: [f64; 4],
    to: [f64; 4],
}

impl Domain {
    fn read(range: Option<&MemoryRange>) -> Result<Domain, TableError> {
        let bounds = |memory: Option<&Memory>, missing: f64| {
            let memory = memory.copied().unwrap_or_default();
            [memory.send_interval, memory.ack_interval, memory.rtt_ratio, memory.slow_ack_interval]
                .map(|bound| bound.unwrap_or(missing))
        };
        let from = bounds(range.and_then(|range| range.lower.as_ref()), 0.0);
        let to = bounds(range.and_then(|range| range.upper.as_ref()), UNBOUNDED);
        let inside = (0..4).all(|i| from[i].is_finite() && to[i].is_finite() && from[i] <= to[i]);
        if inside { Ok(Domain { from, to }) } else { Err(TableError::Bounds { from, to }) }
    }

    fn is_empty(&self) -> bool {
        (0..4).any(|i| self.from[i] >= self.to[i])
    }

    /// `rule` with these bounds.
    fn with(&self, mut rule: Table) -> Value {
        let bounds = |bounds: [f64; 4]| Value::Array(bounds.map(Value::Float).to_vec());
        rule.insert("from".to_owned(), bounds(self.from));
        rule.insert("to".to_owned(), bounds(self.to));
        Value::Table(rule)
    }

    fn holds(&self, point: &[f64; 4]) -> bool {
        (0..4).all(|i| self.from[i] <= point[i] && point[i] < self.to[i])
    }
}

/// Reads the rules of a `.dna` file's bytes.
///
/// # Errors
///
/// When they are no table, or when its boxes leave gaps or overlap.
pub fn decode(bytes: &[u8]) -> Result<Vec<Value>, TableError> {
    let tree = WhiskerTree::decode(bytes)?;
    let mut rules = Vec::new();
    let mut nodes = vec![&tree];
    let mut count = 0;
    while let Some(node) = nodes.pop() {
        count += 1;
        if count > MAXIMUM_NODES || node.children.len() > MAXIMUM_CHILDREN {
            return Err(TableError::TooLarge(MAXIMUM_NODES));
        }
        match (&node.leaf, node.children.as_slice()) {
            // Trained tables have boxes without an inside, which no signals ever reach.
            (Some(rule), []) => {
                let (domain, rule) = (domain(node)?, leaf(rule)?);
                if !domain.is_empty() {
                    rules.push(domain.with(rule));
                }
            }
            (None, [_, ..]) => {
                check_cut(node)?;
                nodes.extend(node.children.iter().rev());
            }
            (leaf, children) => {
                let rules = if leaf.is_some() { "a rule" } else { "no rule" };
                return Err(TableError::Node { children: children.len(), rules });
            }
        }
    }
    Ok(rules)
}

/// A node's box is that of its rule if it says none of its own.
fn domain(node: &WhiskerTree) -> Result<Domain, TableError> {
    let of_rule = node.leaf.as_ref().and_then(|rule| rule.domain.as_ref());
    Domain::read(node.domain.as_ref().or(of_rule))
}

/// Each point of a node's box lies in one of its children's. Children are boxes, and their
/// lower bounds belong to them, so it is enough to look at the points where bounds meet.
fn check_cut(node: &WhiskerTree) -> Result<(), TableError> {
    let whole = domain(node)?;
    let children = node.children.iter().map(domain).collect::<Result<Vec<Domain>, TableError>>()?;
    let outside = |child: &&Domain| (0..4).any(|i| child.from[i] < whole.from[i] || child.to[i] > whole.to[i]);
    if let Some(child) = children.iter().find(outside) {
        return Err(TableError::Outside { from: child.from, to: child.to });
    }
    let bounds = |i: usize| {
        let ends = children.iter().flat_map(|child| [child.from[i], child.to[i]]).chain([whole.from[i]]);
        let mut bounds: Vec<f64> = ends.filter(|end| *end < whole.to[i]).collect();
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        bounds
    };
    let [first, second, third, fourth] = [bounds(0), bounds(1), bounds(2), bounds(3)];
    // A cut of each signal in two makes sixteen points; a hostile one could make 128^4.
    if first.len() * second.len() * third.len() * fourth.len() > MAXIMUM_NODES {
        return Err(TableError::TooLarge(MAXIMUM_NODES));
    }
    for &a in &first {
        for &b in &second {
            for &c in &third {
                for &d in &fourth {
                    let point = [a, b, c, d];
                    let count = children.iter().filter(|child| child.holds(&point)).count();
                    if count != 1 {
                        return Err(TableError::Cut { point, count });
                    }
                }
            }
        }
    }
    Ok(())
}

/// What a rule does, as the controller's parameters say it.
fn leaf(rule: &message::Whisker) -> Result<Table, TableError> {
    let number = |name: &'static str, value: f64, least: f64| {
        let inside = (least..=1e6).contains(&value);
        if inside { Ok(Value::Float(value)) } else { Err(TableError::Rule { name, value, least }) }
    };
    Ok(Table::from_iter([
        ("multiple".to_owned(), number("window_multiple", rule.window_multiple.unwrap_or(0.0), 0.0)?),
        ("increment".to_owned(), number("window_increment", f64::from(rule.window_increment.unwrap_or(0)), -1e6)?),
        ("intersend_ms".to_owned(), number("intersend", rule.intersend_ms.unwrap_or(0.0), 0.0)?),
    ]))
}

/// Reads the rules of a `.dna` file, as parameters of `remy`.
///
/// # Errors
///
/// When it cannot be read or is no table; names the file.
pub fn read(path: &Path) -> Result<Table, TableError> {
    let bytes = std::fs::read(path).map_err(|error| TableError::Read { path: path.to_owned(), error })?;
    let rules = decode(&bytes).map_err(|error| TableError::Wrong { path: path.to_owned(), error: Box::new(error) })?;
    Ok(Table::from_iter([("rules".to_owned(), Value::Array(rules))]))
}

/// Puts rules where `parameters` name a `table_file`; a relative path begins at `directory`.
///
/// # Errors
///
/// When the file cannot be read or is no table, or when `rules` stand there already.
pub fn resolve(parameters: &mut Table, directory: &Path) -> Result<(), TableError> {
    let Some(file) = parameters.get(FILE_KEY) else { return Ok(()) };
    let file = file.as_str().filter(|_| !parameters.contains_key("rules")).ok_or(TableError::Key)?;
    let table = read(&directory.join(file))?;
    parameters.remove(FILE_KEY);
    parameters.extend(table);
    Ok(())
}

/// The table with this file name in the directory that the environment names; none, and why,
/// if there is none.
///
/// # Errors
///
/// When the file is there and is no table.
pub fn from_environment(name: &str) -> Result<Result<Table, String>, TableError> {
    let Some(directory) = std::env::var_os(DIRECTORY_VARIABLE) else {
        return Ok(Err(format!("{DIRECTORY_VARIABLE} is not set")));
    };
    let path = PathBuf::from(directory).join(name);
    if !path.exists() {
        return Ok(Err(format!("there is no {}", path.display())));
    }
    read(&path).map(Ok)
}

#[cfg(test)]
mod tests;
