//! What the relays of an onion overlay can carry for its users at most, ACKs and blocks counted.
//!
//! Of one session's halves of h relays each, the service's own included: a cell to the service passes h relays; a
//! cell from it passes h − 1, for it leaves at the service's own. With P bytes of a stream in a cell, b blocks in one,
//! and r bytes of report about one cell that came, d bytes down and u bytes up take at least
//!
//! ```text
//! D = (d + r u/P) / P          cells from the service; reports about what went up ride along
//! F = u/P + D / b              cells to it: data, and a block for each cell down, with its report
//! W = h F + (h − 1) D          packets that relays pass
//! ```
//!
//! W packets of all that relays can take are the share of the limit that was reached. Nothing is lost in it, no
//! report comes twice over, no cell is half full, and every relay is as busy as it can be: whatever guards or
//! services make uneven counts against whoever places packets.

use anabranch_onion::node::cell_format;
use anabranch_onion::reply::ReplyBlock;
use anabranch_onion::session::Secrecy;
use anabranch_onion::session::cell::{BLOCKS_HEADER, DATA_HEADER, PLAIN_HEADER};
use anabranch_onion::session::receiver::ACK_CELLS;

/// Bytes of a frame that says which of the newest cells came, and of one that says when some came; and of each of
/// these.
const ACKED: f64 = 1.0 + 8.0 + 32.0;
const ARRIVALS: f64 = 1.0 + 8.0 + 8.0 + 1.0;
const ARRIVAL: f64 = 2.0 + 4.0;

/// What cells hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cells {
    /// P, bytes of a stream in a cell.
    pub data: f64,
    /// b, whole blocks in one.
    pub blocks: f64,
    /// r, bytes of report about one cell.
    pub report: f64,
}

impl Cells {
    /// Those of the format.
    pub fn of_format() -> Cells {
        let plain = cell_format(Secrecy::Transparent).plain() as f64;
        // Sixteen cells a report, and each cell's arrival in two of them.
        let report = (ACKED + 2.0 * ARRIVALS) / ACK_CELLS as f64 + 2.0 * ARRIVAL;
        let room = plain - (PLAIN_HEADER + BLOCKS_HEADER) as f64;
        // A block is whole or is not there; what a cell of b blocks is answered by is b cells, with a report each.
        let blocks = (room / (ReplyBlock::BYTES as f64 + report)).floor();
        Cells { data: plain - (PLAIN_HEADER + DATA_HEADER) as f64, blocks, report }
    }

    /// Packets that relays pass for this many bytes down and up, over halves of `hops` relays.
    pub fn work(&self, down: f64, up: f64, hops: u64) -> f64 {
        let Cells { data, blocks, report } = *self;
        let from_service = (down + report * up / data) / data;
        let to_service = up / data + from_service / blocks;
        hops as f64 * to_service + (hops as f64 - 1.0) * from_service
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_takes_its_cells_and_a_quarter_of_them_for_blocks() {
        let cells = Cells::of_format();
        assert_eq!((cells.data, cells.blocks), (1128.0, 4.0));
        // A thousand cells over two relays, and 250 back over three.
        assert!((cells.work(1_128_000.0, 0.0, 3) - 2750.0).abs() < 1e-6);
    }

    #[test]
    fn an_upload_takes_its_cells_and_what_acknowledges_them() {
        let cells = Cells::of_format();
        let work = cells.work(0.0, 1_128_000.0, 3);
        // 17 B of report about each of a thousand cells are 15 cells back, and 4 with their blocks.
        assert!((3000.0..3060.0).contains(&work), "{work}");
        assert!(cells.work(1e6, 1e6, 3) < cells.work(1e6, 0.0, 3) + cells.work(0.0, 1e6, 3) + 1.0);
    }
}
