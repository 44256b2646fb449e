//! The caller of detached work, which may be cancelled while the work waits.
//!
//! Work on a cell runs to completion once it has begun. Until then it waits for other calls and for
//! a free thread, and a caller whose deadline passes meanwhile, or that disconnects, is gone: work
//! for it must not begin later.

use tokio::sync::watch;

use super::error::CellError;
use crate::name::CellName;

/// The caller of detached work.
pub(super) struct Caller(Option<watch::Sender<()>>);

/// The caller's end: dropping it is the cancellation.
pub(super) struct CallerGuard {
    _alive: watch::Receiver<()>,
}

impl Caller {
    pub(super) fn new() -> (Self, CallerGuard) {
        let (sender, alive) = watch::channel(());
        (Self(Some(sender)), CallerGuard { _alive: alive })
    }

    /// A caller that is never cancelled, for work that has begun already.
    pub(super) fn committed() -> Self {
        Self(None)
    }

    /// Fails if the caller is gone. Called right before the first effect.
    pub(super) fn check(&self, cell: &CellName) -> Result<(), CellError> {
        match &self.0 {
            Some(sender) if sender.is_closed() => Err(CellError::Cancelled { cell: cell.clone() }),
            _ => Ok(()),
        }
    }

    /// Waits for `turn` as long as the caller does.
    pub(super) async fn wait<T>(
        &self,
        cell: &CellName,
        turn: impl Future<Output = T>,
    ) -> Result<T, CellError> {
        let cancelled = async {
            match &self.0 {
                Some(sender) => sender.closed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cancelled => Err(CellError::Cancelled { cell: cell.clone() }),
            turn = turn => Ok(turn),
        }
    }
}
