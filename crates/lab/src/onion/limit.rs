//! What the relays of an onion overlay can carry for its users at most, ACKs and blocks counted.
//!
//! Of one session's halves of h relays each, the service's own included: a cell to the service passes h relays; a
//! cell from it passes h − 1, for it leaves at the service's own. With P bytes of a stream in a cell, a bytes in a
//! block, b blocks in a cell, and r bytes of report about one cell that came, d bytes down and u bytes up take at least
//!
//! ```text
//! D = (d + r u/P) / P                      cells from the service; reports about what went up ride along
//! F = max(D / b, (u + (a + r) D) / P)      cells to it: a block for each cell down, with its report, and data
//! W = h F + (h − 1) D                      packets that relays pass
//! ```
//!
//! Blocks are whole, so that cells of nothing else are not full; data fills what they leave. W packets of all that
//! relays can take are the share of the limit that was reached. Nothing is lost in it, no report comes twice over, and
//! every relay is as busy as it can be: whatever guards or services make uneven counts against whoever places packets.

use anabranch_onion::node::cell_format;
use anabranch_onion::reply::ReplyBlock;
use anabranch_onion::session::Secrecy;
use anabranch_onion::session::cell::{ACKED_FRAME, ARRIVAL, ARRIVALS_HEADER, BLOCKS_HEADER, DATA_HEADER, PLAIN_HEADER};
use anabranch_onion::session::receiver::ACK_CELLS;

/// What cells hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cells {
    /// P, bytes of a stream in a cell.
    pub data: f64,
    /// a, bytes of a block.
    pub block: f64,
    /// b, whole blocks in a cell.
    pub blocks: f64,
    /// r, bytes of report about one cell.
    pub report: f64,
}

impl Cells {
    /// Those of the format.
    pub fn of_format() -> Cells {
        let plain = cell_format(Secrecy::Transparent).plain() as f64;
        // Sixteen cells a report, and each cell's arrival in two of them.
        let report = (ACKED_FRAME + 2 * ARRIVALS_HEADER) as f64 / ACK_CELLS as f64 + (2 * ARRIVAL) as f64;
        let room = plain - (PLAIN_HEADER + BLOCKS_HEADER) as f64;
        // A block is whole or is not there; what a cell of b blocks is answered by is b cells, with a report each.
        let block = ReplyBlock::BYTES as f64;
        let blocks = (room / (block + report)).floor();
        Cells { data: plain - (PLAIN_HEADER + DATA_HEADER) as f64, block, blocks, report }
    }

    /// Packets that relays pass for this many bytes down and up, over halves of `hops` relays.
    pub fn work(&self, down: f64, up: f64, hops: u64) -> f64 {
        let Cells { data, block, blocks, report } = *self;
        let from_service = (down + report * up / data) / data;
        let to_service = (from_service / blocks).max((up + (block + report) * from_service) / data);
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
        // 17 B of report about each of a thousand cells are 15 cells back, and 3 there with their blocks.
        assert!((3000.0..3060.0).contains(&work), "{work}");
        assert!(cells.work(1e6, 1e6, 3) < cells.work(1e6, 0.0, 3) + cells.work(0.0, 1e6, 3) + 1.0);
    }

    #[test]
    fn data_fills_what_blocks_leave_of_cells() {
        let cells = Cells::of_format();
        // 250 cells of four blocks and their reports each leave a sixth.
        let left = 250.0 * cells.data - 1000.0 * (cells.block + cells.report);
        assert!((40_000.0..60_000.0).contains(&left), "{left}");
        let (alone, with_data) = (cells.work(1_128_000.0, 0.0, 3), cells.work(1_128_000.0, left - 2000.0, 3));
        assert!((0.0..2.0).contains(&(with_data - alone)), "{alone} and {with_data}");
    }
}
