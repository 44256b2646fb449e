//! `mainstay config node apply` and `diff`

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mainstay_api::machine::ApplyConfigurationRequest;
use mainstay_api::machine::apply_configuration_request::Mode as WireMode;
use mainstay_client::Answer;
use mainstay_client::format::parse_duration;

use super::call::{self, Mode};
use super::read_text;
use crate::cli::{Format, Global};
use crate::commands::connect;
use crate::failure::{Failure, Outcome, note_with_end};
use crate::output;

/// Show what applying a file would change
///
/// The node compares the file with its own and changes nothing. The difference goes to stdout, as
/// a unified diff without secrets, and is empty if there is none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay config node diff config.toml\n  \
    mainstay -n n1,n2 config node diff - < config.toml")]
pub struct Diff {
    /// Configuration file; - reads stdin
    file: PathBuf,
}

/// Replace the configuration file of nodes and put it in force
///
/// A file that is not valid changes nothing. Without --mode the node applies every key that needs
/// no restart and names those that take effect on the next start. With --mode try the file is not
/// written, and the previous configuration returns by itself: after --try-timeout, and when the
/// daemon restarts.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay config node apply config.toml\n  \
    mainstay config node apply config.toml --mode no-reboot\n  \
    mainstay -n n1,n2 config node apply config.toml --mode try --confirm\n  \
    mainstay config node apply config.toml --mode try --try-timeout 5m\n\n\
    A configuration on trial is kept by applying it again in another mode.")]
pub struct Apply {
    /// Configuration file; - reads stdin
    file: PathBuf,
    /// How the configuration takes effect
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,
    /// Return to the previous configuration after TIME, from 1s to 24h [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    try_timeout: Option<Duration>,
    /// With --mode try: keep the configuration if every node answers on a new connection
    #[arg(long)]
    confirm: bool,
    /// Check everything, show what would change, and change nothing
    #[arg(long, conflicts_with = "confirm")]
    dry_run: bool,
}

impl Diff {
    pub(super) async fn run(self, global: &Global) -> Outcome {
        let request = ApplyConfigurationRequest {
            data: read_text(&self.file)?.into(),
            mode: WireMode::Auto.into(),
            dry_run: true,
            ..ApplyConfigurationRequest::default()
        };
        let client = connect(global).await?;
        let answers = call::apply(&client, request).await?;
        call::warn_all(&client, &answers);
        if global.output != Format::Table {
            call::print(global, &client, &answers)?;
            return client.finish();
        }
        for Answer { node, message } in &answers {
            let details = &message.mode_details;
            let (summary, difference) = details.split_once("\n\n").unwrap_or((details, ""));
            let prefix = client.message_prefix(node);
            note_with_end(&format!("{prefix}{summary}"), "\n");
            if difference.starts_with("---") {
                // A patch names the node in a line that patch(1) ignores.
                let header = match prefix.as_str() {
                    "" => String::new(),
                    _ => format!("node {node}\n"),
                };
                output::print(&format!("{header}{difference}"))?;
            } else if !difference.is_empty() {
                note_with_end(&format!("{prefix}{}", difference.trim_end()), "\n");
            }
        }
        client.finish()
    }
}

impl Apply {
    pub(super) async fn run(self, global: &Global) -> Outcome {
        if self.mode != Mode::Try && (self.confirm || self.try_timeout.is_some()) {
            return Err(Failure::usage(
                "--confirm and --try-timeout have no effect without --mode try",
            ));
        }
        let timeout = self.try_timeout.map(prost_types::Duration::try_from);
        let timeout = timeout.transpose();
        let timeout = timeout.map_err(|_| Failure::usage("--try-timeout is too long"))?;
        let request = ApplyConfigurationRequest {
            data: read_text(&self.file)?.into(),
            mode: WireMode::from(self.mode).into(),
            dry_run: self.dry_run,
            try_mode_timeout: timeout,
            ..ApplyConfigurationRequest::default()
        };
        let client = connect(global).await?;
        let answers = call::apply(&client, request.clone()).await?;
        call::warn_all(&client, &answers);
        if !self.confirm {
            call::print(global, &client, &answers)?;
            return client.finish();
        }
        // A node that refused keeps all others from being confirmed.
        client.finish().map_err(unconfirmed)?;
        confirm(global, request).await.map_err(unconfirmed)
    }
}

/// Keeps a configuration that is on trial, if the nodes can be reached under it.
async fn confirm(global: &Global, request: ApplyConfigurationRequest) -> Outcome {
    // An open connection may work where a new one would not.
    let client = connect(global).await?;
    let reached = client.call_all((), |mut machine, request| async move {
        machine.version(request).await
    });
    reached.await?;
    client.finish()?;
    let permanent = ApplyConfigurationRequest {
        mode: WireMode::NoReboot.into(),
        try_mode_timeout: None,
        ..request
    };
    let answers = call::apply(&client, permanent).await?;
    call::print(global, &client, &answers)?;
    client.finish()
}

fn unconfirmed(failure: Failure) -> Failure {
    note_with_end(
        "not confirmed; the previous configuration returns by itself",
        "\n",
    );
    failure
}
