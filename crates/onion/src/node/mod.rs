//! Machines that run: relays and what they offer, and users, over any driver.

mod frame;
mod hidden;
mod mailboxes;
mod members;
mod relay;
mod service;
mod user;

pub use frame::{Frame, Kind, NoFrame};
pub use hidden::{FindError, HiddenReceiver, HiddenSender, ReceiverCounts, ReceiverEvent, SenderEvent};
pub use mailboxes::WithMailboxes;
pub use members::Members;
pub use relay::{RelayNode, RelayNodeCounts, Service};
pub use service::{EXIT, ServiceEvent, SessionService, cell_format};
pub use user::{Arrived, Destination, PacketId, SessionId, User, UserCounts, UserEvent, UserSettings};
