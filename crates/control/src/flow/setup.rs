//! What every flow controller is made from.

use super::FlowController;
use crate::registry::ParameterError;
use crate::time::{Duration, Time};
use crate::units::{Bytes, Rate};

/// What a sender tells its controller at the start.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Data in a full packet: the maximum segment size.
    pub packet: Bytes,
    /// The window to begin with, where the controller does not say another one.
    pub initial_window: Bytes,
    /// When it begins.
    pub start: Time,
    /// Whether receivers that come and go share it, who are sent what there is, in spells.
    pub shared: bool,
    /// What the sender's owner has stated that its line sends, if so.
    pub line: Option<Rate>,
}

impl Setup {
    /// A first window waits in the line's own queue for no longer than this, where nothing else fills it.
    pub const LINE_SPAN: Duration = Duration::from_millis(100);

    /// RFC 6928's initial window: ten packets.
    pub const INITIAL_PACKETS: u64 = 10;

    /// For packets with `packet` data bytes, from `start`, with RFC 6928's initial window.
    pub fn new(packet: Bytes, start: Time) -> Setup {
        Setup { packet, initial_window: packet * Setup::INITIAL_PACKETS, start, shared: false, line: None }
    }

    /// The same, for a sender whose owner has stated that its line sends `rate`: the window begins with what that
    /// sends in [`Setup::LINE_SPAN`], if that is more. Slow start would take five round trips to find what is known.
    pub fn on_line_of(self, rate: Rate) -> Setup {
        let initial_window = self.initial_window.max(rate * Setup::LINE_SPAN);
        Setup { initial_window, line: Some(rate), ..self }
    }

    /// The same, for a window that receivers share who come and go.
    pub fn shared(self) -> Setup {
        Setup { shared: true, ..self }
    }
}

/// Makes controllers of parameters that were read, and found right, before.
pub type Factory = Box<dyn Fn(&Setup) -> Box<dyn FlowController> + Send + Sync>;

/// Reads the parameters that were set.
pub type Builder = fn(&toml::Table) -> Result<Factory, ParameterError>;

/// The factory of one kind of controller.
pub fn factory<C: FlowController + 'static>(make: impl Fn(&Setup) -> C + Send + Sync + 'static) -> Factory {
    Box::new(move |setup| Box::new(make(setup)))
}

/// One controller of the factory that `build` gives.
///
/// # Errors
///
/// What it says of the parameters.
pub fn made(
    build: Builder,
    setup: &Setup,
    parameters: &toml::Table,
) -> Result<Box<dyn FlowController>, ParameterError> {
    Ok(build(parameters)?(setup))
}
