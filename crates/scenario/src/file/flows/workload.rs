//! What a flow's application sends.

use std::path::Path;

use anabranch_control::time::Duration;
use anabranch_control::units::Bytes;

use super::super::error::{Problem, Span};
use super::super::shape::{Either, Optional, OrStandard, Said, keys, one_of, some, span};
use super::super::values::{Seconds, Whole, Word, Words};
use super::sizes::{self, Sizes};
use super::{LONGEST_RUN_S, MOST_BYTES, RunSeconds};
use crate::flows::{OnPeriod, Size, Workload};

/// A mean on time is at least a microsecond.
type OnTime = Seconds<1000, LONGEST_RUN_S>;

type Amount = Whole<1, MOST_BYTES>;

/// `"bulk"`, or a table.
pub type Sends = Either<Word<Bulk>, WorkloadKeys>;

keys! {
    /// Which of these there are says what the workload is.
    #[derive(Default)]
    pub struct WorkloadKeys {
        once_bytes: Optional<Amount>,
        block_bytes: Optional<Amount>,
        on_mean_s: Optional<OnTime>,
        on_mean_bytes: Optional<Amount>,
        sizes: Optional<Sizes>,
        every_s: Optional<OnTime>,
        off_mean_s: Optional<RunSeconds>,
        new_connections: Optional<bool>,
    }
}

/// All that the controller lets through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bulk;

impl Words for Bulk {
    const WORDS: &'static [(&'static str, Self)] = &[("bulk", Bulk)];

    fn expected() -> String {
        "\"bulk\", { once_bytes = 51200 }, { block_bytes = 15000 }, { on_mean_s = 10, off_mean_s = 10 }, \
         { on_mean_bytes = 100000, off_mean_s = 0.5 } or { sizes = \"web-search\", off_mean_s = 0.5 }"
            .to_owned()
    }
}

impl Said<Sends> {
    /// The workload; files of sizes lie in `directory`.
    pub fn workload(&self, directory: &Path) -> Result<Workload, Problem> {
        match &**self {
            Either::Plain(_) => Ok(Workload::Bulk),
            Either::Table(keys) => keys.workload(self.span(), directory),
        }
    }
}

impl WorkloadKeys {
    fn workload(&self, at: Span, directory: &Path) -> Result<Workload, Problem> {
        let keys = [
            ("once_bytes", span(&self.once_bytes)),
            ("block_bytes", span(&self.block_bytes)),
            ("on_mean_s", span(&self.on_mean_s)),
            ("on_mean_bytes", span(&self.on_mean_bytes)),
            ("sizes", span(&self.sizes)),
        ];
        let refuse = |span: Option<Span>, why: &str| span.map_or(Ok(()), |span| Err(Problem::at(span, why)));
        let bytes = |said: &Optional<Amount>| Bytes::new(said.or_standard(1));
        let drawn = || match &self.sizes {
            Some(sizes) => sizes.distribution(directory),
            None => Err(Problem::missing(at.clone(), "sizes", "a distribution")),
        };
        let key = keys[one_of(&keys, at.clone(), "what the application sends")?].0;
        let on = match key {
            "on_mean_s" => OnPeriod::Time { mean: self.on_mean_s.or_standard(Duration::ZERO) },
            "on_mean_bytes" => OnPeriod::Bytes { mean: bytes(&self.on_mean_bytes) },
            "sizes" if self.off_mean_s.is_some() => OnPeriod::Drawn(drawn()?),
            _ => {
                let owner =
                    if key == "sizes" { "a workload with off_mean_s" } else { "on_mean_s, on_mean_bytes or sizes" };
                let stray = span(&self.off_mean_s).or(span(&self.new_connections));
                refuse(stray, &format!("this belongs to {owner}"))?;
                if key == "block_bytes" {
                    refuse(span(&self.every_s), "this belongs to once_bytes or sizes")?;
                    return Ok(Workload::Blocks(bytes(&self.block_bytes)));
                }
                let size = if key == "sizes" { Size::Drawn(drawn()?) } else { Size::Fixed(bytes(&self.once_bytes)) };
                return Ok(match &self.every_s {
                    None => Workload::Once(size),
                    Some(every) => Workload::Repeated { size, every: **every },
                });
            }
        };
        refuse(span(&self.every_s), "this belongs to once_bytes, or to sizes without off_mean_s")?;
        let Some(off) = &self.off_mean_s else {
            return Err(Problem::missing(at, "off_mean_s", "the mean seconds between two on-times"));
        };
        let new_connections = self.new_connections.or_standard(false);
        Ok(Workload::OnOff { on, off_mean: **off, new_connections })
    }
}

/// What is written of a workload.
pub fn written(workload: &Workload) -> Sends {
    let sized = |size: &Size| match size {
        Size::Fixed(bytes) => WorkloadKeys { once_bytes: some(bytes.get()), ..WorkloadKeys::default() },
        Size::Drawn(sizes) => WorkloadKeys { sizes: some(sizes::written(sizes)), ..WorkloadKeys::default() },
    };
    Either::Table(match workload {
        Workload::Bulk => return Either::Plain(Bulk),
        Workload::Once(size) => sized(size),
        Workload::Repeated { size, every } => WorkloadKeys { every_s: some(*every), ..sized(size) },
        Workload::Blocks(bytes) => WorkloadKeys { block_bytes: some(bytes.get()), ..WorkloadKeys::default() },
        Workload::OnOff { on, off_mean, new_connections } => {
            let keys = WorkloadKeys {
                off_mean_s: some(*off_mean),
                new_connections: some(*new_connections),
                ..WorkloadKeys::default()
            };
            match on {
                OnPeriod::Time { mean } => WorkloadKeys { on_mean_s: some(*mean), ..keys },
                OnPeriod::Bytes { mean } => WorkloadKeys { on_mean_bytes: some(mean.get()), ..keys },
                OnPeriod::Drawn(sizes) => WorkloadKeys { sizes: some(sizes::written(sizes)), ..keys },
            }
        }
    })
}
