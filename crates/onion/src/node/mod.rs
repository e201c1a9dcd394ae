//! Machines that run: relays and what they offer, and users, over any driver.

mod frame;
mod hidden;
mod mailboxes;
mod members;
mod observed;
mod relay;
mod service;
#[cfg(test)]
mod tests;
mod user;

pub use frame::{Frame, Kind, NoFrame};
pub use hidden::{FindError, HiddenReceiver, HiddenSender, MOST_OWN, ReceiverCounts, ReceiverEvent, SenderEvent};
pub use mailboxes::WithMailboxes;
pub use members::Members;
pub use observed::{MOST_PAIRS, Neighbour, Observed};
pub use relay::{RelayNode, RelayNodeCounts, Service};
pub use service::{EXIT, ServiceEvent, SessionService, cell_format};
pub use user::{
    Arrived, Cover, CoverError, Destination, MOST_COVER, PacketId, SessionId, User, UserCounts, UserEvent, UserSettings,
};
