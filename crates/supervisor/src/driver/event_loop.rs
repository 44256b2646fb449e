//! The one task of the supervisor: waits for the next timer and the next exit.

use std::sync::{Arc, Weak};

use mainstay_cells::{CellEvent, ExecutableName, ExitStatus, Run};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep_until};

use super::Inner;
use crate::ServiceName;

pub async fn run(
    inner: Weak<Inner>,
    mut events: mpsc::UnboundedReceiver<CellEvent>,
    earlier_timer: Arc<Notify>,
) {
    loop {
        let next = match inner.upgrade() {
            Some(inner) => inner.next_timer(),
            None => return,
        };
        tokio::select! {
            event = events.recv() => match (event, inner.upgrade()) {
                (Some(event), Some(inner)) => inner.handle_cell_event(event),
                _ => return,
            },
            () = until(next) => {
                if let Some(inner) = inner.upgrade() {
                    inner.fire_timers();
                }
            }
            () = earlier_timer.notified() => {}
        }
    }
}

async fn until(timer: Option<Instant>) {
    match timer {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl Inner {
    fn next_timer(&self) -> Option<Instant> {
        let state = self.state();
        state.timers.peek().map(|timer| timer.0.at)
    }

    fn fire_timers(self: &Arc<Self>) {
        let mut due = Vec::new();
        {
            let mut state = self.state();
            let now = Instant::now();
            while state.timers.peek().is_some_and(|timer| timer.0.at <= now) {
                due.extend(state.timers.pop());
            }
        }
        for timer in due {
            self.act(|core, _| core.timer(&timer.0.service, timer.0.number));
        }
    }

    fn handle_cell_event(self: &Arc<Self>, event: CellEvent) {
        let CellEvent::Ended {
            executable,
            run,
            status,
            ..
        } = event
        else {
            return;
        };
        if let Some(service) = self.service_of(&executable) {
            self.handle_end(&service, run, status);
        }
    }

    /// The service of an executable; `None` for those of health checks.
    fn service_of(&self, executable: &ExecutableName) -> Option<ServiceName> {
        executable.as_str().parse().ok()
    }

    fn handle_end(self: &Arc<Self>, service: &ServiceName, run: Run, status: ExitStatus) {
        let mut state = self.state();
        let Some(slot) = state.slots.get_mut(service) else {
            return;
        };
        match slot.process {
            Some(process) if process.started == run.started => {
                self.process_ended(&mut state, service, status);
                drop(state);
                self.changed.notify_waiters();
            }
            // Of an earlier run that is known to have ended.
            Some(_) => {}
            None => slot.early_end = Some((run.started, status)),
        }
    }
}
