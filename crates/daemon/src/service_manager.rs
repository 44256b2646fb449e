//! Notifications to the service manager that started the daemon.

use mainstay_error_chain::chain;
pub use sd_notify::NotifyState;
use tracing::warn;

/// Sends a state. Without a service manager there is no socket to notify, and that is fine.
pub fn notify(state: &[NotifyState<'_>]) {
    if let Err(why) = sd_notify::notify(state) {
        warn!(error = chain(&why), "cannot notify the service manager");
    }
}

/// Sends a state that the service manager waits for the end of. `Type=notify-reload` wants the time
/// of a reload with it.
pub fn notify_change(state: NotifyState<'_>) {
    match state {
        NotifyState::Reloading => match NotifyState::monotonic_usec_now() {
            Ok(now) => notify(&[NotifyState::Reloading, now]),
            Err(_) => notify(&[NotifyState::Reloading]),
        },
        state => notify(&[state]),
    }
}
