//! The live terminal view of nodes, and one snapshot of it for pipes and programs.
//!
//! Data flows one way: a poller per node calls it ([`poll`]), the model computes rates from its
//! answers ([`model`]), the view draws them ([`view`]). Keys change only the selection
//! ([`screen`]). A node that is slow or lost delays no other, nothing invisible is drawn, and text
//! of a node never reaches the terminal unescaped.

mod app;
mod call;
mod event_loop;
mod follow;
mod keys;
mod link;
mod model;
mod poll;
mod rates;
mod screen;
mod snapshot;
mod terminal;
#[cfg(test)]
mod test_node;
mod updates;
mod view;

pub use event_loop::run;
pub use snapshot::{Snapshot, snapshot};

use std::sync::Arc;

/// The live view or a snapshot failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No node answered.
    #[error(transparent)]
    Client(Arc<mainstay_client::Error>),
    /// The terminal cannot be switched to the live view.
    #[error("cannot set up the terminal")]
    Terminal(#[source] std::io::Error),
    /// Drawing or reading keys failed.
    #[error("terminal error")]
    Io(#[from] std::io::Error),
}

impl From<mainstay_client::Error> for Error {
    fn from(error: mainstay_client::Error) -> Self {
        Self::Client(Arc::new(error))
    }
}
