//! Calls that apply a configuration, and their results.

use clap::ValueEnum;
use mainstay_api::machine::apply_configuration_request::Mode as WireMode;
use mainstay_api::machine::{ApplyConfiguration, ApplyConfigurationRequest};
use mainstay_client::Answer;

use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Outcome, warn};
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    /// Apply what needs no restart; the rest waits for the next start
    Auto,
    /// Refuse a change that needs a restart
    NoReboot,
    /// Write the file for the next start only
    Staged,
    /// Write the file and restart the node
    Reboot,
    /// Apply until the timeout, unless confirmed; the file is not written
    Try,
}

impl From<Mode> for WireMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Auto => Self::Auto,
            Mode::NoReboot => Self::NoReboot,
            Mode::Staged => Self::Staged,
            Mode::Reboot => Self::Reboot,
            Mode::Try => Self::Try,
        }
    }
}

/// Applies a configuration on every node.
pub(super) async fn apply(
    client: &Connection,
    request: ApplyConfigurationRequest,
) -> Outcome<Vec<Answer<ApplyConfiguration>>> {
    client
        .call_all(request, |mut machine, request| async move {
            machine.apply_configuration(request).await
        })
        .await
}

/// Prints the warnings of nodes to stderr.
pub(super) fn warn_all(client: &Connection, answers: &[Answer<ApplyConfiguration>]) {
    for Answer { node, message } in answers {
        let prefix = client.message_prefix(node);
        for warning in &message.warnings {
            warn(&format!("{prefix}{warning}"));
        }
    }
}

/// Prints the results of nodes.
pub(super) fn print(
    global: &Global,
    client: &Connection,
    answers: &[Answer<ApplyConfiguration>],
) -> Outcome {
    if global.output != Format::Table {
        return output::print_answers(global.output, "machine.ApplyConfiguration", answers);
    }
    for Answer { node, message } in answers {
        let prefix = client.message_prefix(node);
        output::print(&format!("{prefix}{}\n", message.mode_details.trim_end()))?;
    }
    Ok(())
}
