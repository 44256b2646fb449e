//! The connection to the node, which is opened again when the daemon restarts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::notices::Notices;
use crate::cli::Global;
use crate::commands::connect;
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};

/// Delays between attempts to connect again.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const MAX_DELAY: Duration = Duration::from_secs(2);
/// A call that worked for this long is not a repeated failure.
const WORKED: Duration = Duration::from_secs(1);

pub(super) struct Link<'a> {
    global: &'a Global,
    current: Mutex<Arc<Connection>>,
    /// How long to try to connect again.
    window: Duration,
    /// The user was told that the connection is lost, and not yet that it is back.
    lost: AtomicBool,
    pub(super) notices: Notices,
}

impl<'a> Link<'a> {
    pub(super) fn new(global: &'a Global, connection: Connection, window: Duration) -> Self {
        Self {
            global,
            current: Mutex::new(Arc::new(connection)),
            window,
            lost: AtomicBool::new(false),
            notices: Notices::default(),
        }
    }

    pub(super) async fn current(&self) -> Arc<Connection> {
        Arc::clone(&*self.current.lock().await)
    }

    /// Calls until the answer is not that the node is unreachable, which it is while its daemon
    /// restarts.
    pub(super) async fn retry<T>(
        &self,
        mut call: impl AsyncFnMut(&Connection) -> Outcome<T>,
    ) -> Outcome<T> {
        let mut lost = None;
        let mut delay = FIRST_DELAY;
        loop {
            let connection = self.current().await;
            let began = Instant::now();
            let failure = match call(&connection).await {
                Err(failure) if failure.exit == Exit::Unreachable => failure,
                done => {
                    if done.is_ok() {
                        self.answered();
                    }
                    return done;
                }
            };
            if began.elapsed() > WORKED {
                lost = None;
                delay = FIRST_DELAY;
            }
            let since = *lost.get_or_insert_with(Instant::now);
            self.reopen(&connection, since, &mut delay, failure).await?;
        }
    }

    /// Says that the connection is back, if it was lost. A new connection alone does not mean so: a
    /// daemon that stops may still accept it.
    pub(super) fn answered(&self) {
        if self.lost.swap(false, Ordering::Relaxed) {
            self.notices.note("reconnected");
        }
    }

    fn say_lost(&self, failed: &Arc<Connection>) {
        // While it is locked, another call connects and has said so.
        let is_current = |current: tokio::sync::MutexGuard<'_, _>| Arc::ptr_eq(&current, failed);
        if self.current.try_lock().is_ok_and(is_current) && !self.lost.swap(true, Ordering::Relaxed)
        {
            self.notices.warn(&format!(
                "connection to the node lost; the program runs on; reconnecting for up to {:?}",
                self.window
            ));
        }
    }

    /// Opens a new connection, unless another call has done so.
    async fn reopen(
        &self,
        failed: &Arc<Connection>,
        since: Instant,
        delay: &mut Duration,
        mut failure: Failure,
    ) -> Outcome {
        loop {
            if since.elapsed() + *delay > self.window {
                return Err(failure);
            }
            self.say_lost(failed);
            let pause = std::future::pending::<()>();
            let _ = tokio::time::timeout(*delay, pause).await;
            *delay = (*delay * 2).min(MAX_DELAY);
            let mut current = self.current.lock().await;
            if !Arc::ptr_eq(&current, failed) {
                return Ok(());
            }
            match connect(self.global).await {
                Ok(connection) => {
                    *current = Arc::new(connection);
                    return Ok(());
                }
                Err(error) if matches!(error.exit, Exit::Unreachable | Exit::Timeout) => {
                    failure = error;
                }
                Err(error) => return Err(error),
            }
        }
    }
}
