//! `mainstay config node edit`

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use clap::Args;
use mainstay_api::machine::apply_configuration_request::Mode as WireMode;
use mainstay_api::machine::{ApplyConfigurationRequest, ReadRequest};
use mainstay_client::ErrorKind;
use mainstay_daemon::config::MAX_FILE_BYTES;
use tempfile::NamedTempFile;

use super::call::{self, Mode};
use super::show;
use crate::cli::Global;
use crate::commands::connect;
use crate::commands::cp::Interrupts;
use crate::connection::Connection;
use crate::environment;
use crate::failure::{Exit, Failure, Outcome, note_with_end};

/// Edit the configuration file of a node
///
/// Opens the node's file in $VISUAL or $EDITOR, or else vi, and applies what was saved. If the
/// text is not valid, or the file on the node has changed meanwhile, nothing is applied and the
/// edited text is kept in a file. Saving the text unchanged ends the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay config node edit\n  \
    EDITOR='code --wait' mainstay -n n2 config node edit --mode staged")]
pub struct Edit {
    /// How the configuration takes effect
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    mode: Mode,
}

impl Edit {
    pub(super) async fn run(self, global: &Global) -> Outcome {
        let mut interrupts = Interrupts::listen()?;
        let client = connect(global).await?;
        client.only_node("config node edit")?;
        let before = read(&client).await?;
        let file = scratch(&before)?;
        let edited = tokio::select! {
            edited = edit(file.path()) => edited?,
            failure = interrupts.term() => return Err(failure),
        };
        if edited == before {
            note_with_end("the text was not changed", "\n");
            return Ok(());
        }
        let applied = self.apply(global, &client, before, edited).await;
        if applied.is_err()
            && let Ok((_, path)) = file.keep()
        {
            let path = path.display();
            note_with_end(&format!("the edited text is kept in {path}"), "\n");
        }
        applied
    }

    async fn apply(
        &self,
        global: &Global,
        client: &Connection,
        before: Vec<u8>,
        edited: Vec<u8>,
    ) -> Outcome {
        let request = ApplyConfigurationRequest {
            data: edited.into(),
            mode: WireMode::from(self.mode).into(),
            dry_run: true,
            expected: Some(before.into()),
            ..ApplyConfigurationRequest::default()
        };
        let checked = call::apply(client, request.clone()).await?;
        call::warn_all(client, &checked);
        for answer in &checked {
            let difference = answer.message.mode_details.split_once("\n\n");
            anstream::eprint!(
                "{}",
                mainstay_client::format::printable_lines(difference.map_or("", |it| it.1))
            );
        }
        let answers = call::apply(
            client,
            ApplyConfigurationRequest {
                dry_run: false,
                ..request
            },
        );
        call::print(global, client, &answers.await?)?;
        client.finish()
    }
}

/// Reads the file that the node's configuration is written to; empty if there is none.
async fn read(client: &Connection) -> Outcome<Vec<u8>> {
    let path = show::read(client).await?.into_iter().next();
    let path = path.map(|answer| answer.message.writes).unwrap_or_default();
    if path.is_empty() {
        return Err(Failure::new(
            Exit::Unimplemented,
            "the node does not name its configuration file; it is of an older version",
        ));
    }
    let mut machine = client.machine();
    let request = client.request(ReadRequest { path });
    let mut stream = match client.within(machine.read(request)).await {
        Ok(stream) => stream.into_inner(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut text = Vec::new();
    loop {
        let message = match stream.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(text),
            Err(status) if status.code() == tonic::Code::NotFound => return Ok(Vec::new()),
            Err(status) => return Err(status.into()),
        };
        if client.report(message.metadata.as_ref()) {
            client.finish()?;
        }
        text.extend_from_slice(&message.bytes);
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(Failure::new(
                Exit::Failed,
                "the configuration file of the node is larger than 1 MiB",
            ));
        }
    }
}

/// A private file for the editor, removed when it is dropped.
fn scratch(text: &[u8]) -> Outcome<NamedTempFile> {
    let file = tempfile::Builder::new()
        .prefix("mainstay-config-")
        .suffix(".toml")
        .tempfile();
    let failed = |error| Failure::file("create", &std::env::temp_dir(), &error);
    let mut file = file.map_err(failed)?;
    file.write_all(text).map_err(failed)?;
    Ok(file)
}

/// Runs the editor and returns what it saved.
async fn edit(path: &Path) -> Outcome<Vec<u8>> {
    let editor = environment::editor();
    let words = shlex::split(&editor).filter(|words| !words.is_empty());
    let Some(words) = words else {
        return Err(Failure::usage(format!(
            "$EDITOR is not a command: {editor:?}"
        )));
    };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(path);
    let ran = tokio::task::spawn_blocking(move || command.status()).await;
    let status = ran
        .map_err(std::io::Error::other)
        .flatten()
        .map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("cannot run the editor {editor:?}: {error}; set EDITOR"),
            )
        })?;
    if !status.success() {
        return Err(Failure::new(
            Exit::Failed,
            format!("the editor {editor:?} ended with {status}; nothing was applied"),
        ));
    }
    // Editors replace a file as well as they rewrite it.
    std::fs::read(path).map_err(|error| Failure::file("read", path, &error))
}
