//! `mainstay config node validate`

use std::path::{Path, PathBuf};

use clap::Args;
use mainstay_api::machine::ApplyConfigurationRequest;
use mainstay_api::machine::apply_configuration_request::Mode as WireMode;
use mainstay_client::Answer;
use mainstay_daemon::config::{MAX_FILE_BYTES, Problem, check};
use serde_json::{Value, json};

use super::{call, read_text, shown};
use crate::cli::{Format, Global};
use crate::commands::connect;
use crate::failure::{Exit, Failure, Outcome, print_error};
use crate::output;

/// Check a configuration file, here or on nodes
///
/// Without --on-node the file is checked by this command, which knows the keys of its own version;
/// no node is called. The exit code is 1 if the file is not valid.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay config node validate config.toml\n  \
    mainstay -n n1,n2 config node validate config.toml --on-node")]
pub struct Validate {
    /// Configuration file; - reads stdin
    file: PathBuf,
    /// Have the nodes check it, with their version and their command line
    #[arg(long)]
    on_node: bool,
}

impl Validate {
    pub(super) async fn run(self, global: &Global) -> Outcome {
        let data = read_text(&self.file)?;
        match self.on_node {
            true => on_nodes(global, data).await,
            false => {
                if !global.nodes.is_empty() || !global.endpoints.is_empty() {
                    return Err(Failure::usage(
                        "-n and -e have no effect without --on-node; add it to have nodes check \
                         the file",
                    ));
                }
                here(global, &shown(&self.file), &data)
            }
        }
    }
}

fn here(global: &Global, file: &Path, data: &[u8]) -> Outcome {
    let problems = problems(data);
    if global.output != Format::Table {
        let list: Vec<Value> = problems.iter().map(as_json).collect();
        output::print_document(global.output, &json!({ "problems": list }))?;
    } else if problems.is_empty() {
        output::print(&format!("{} is valid\n", file.display()))?;
    }
    for problem in &problems {
        print_error(&format!("{}: {problem}", file.display()));
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::printed(Exit::Failed)),
    }
}

fn problems(data: &[u8]) -> Vec<Problem> {
    let at_start = |message: String| {
        vec![Problem {
            line: 1,
            column: 1,
            message,
        }]
    };
    if data.len() as u64 > MAX_FILE_BYTES {
        let bytes = data.len();
        return at_start(format!(
            "the file has {bytes} bytes; the maximum is {MAX_FILE_BYTES}"
        ));
    }
    match std::str::from_utf8(data) {
        Ok(text) => check(text).err().unwrap_or_default(),
        Err(error) => at_start(format!("the file is not text: {error}")),
    }
}

fn as_json(problem: &Problem) -> Value {
    json!({ "line": problem.line, "column": problem.column, "message": problem.message })
}

async fn on_nodes(global: &Global, data: Vec<u8>) -> Outcome {
    let client = connect(global).await?;
    let request = ApplyConfigurationRequest {
        data: data.into(),
        mode: WireMode::Auto.into(),
        dry_run: true,
        ..ApplyConfigurationRequest::default()
    };
    let mut answers = call::apply(&client, request).await?;
    call::warn_all(&client, &answers);
    for Answer { message, .. } in &mut answers {
        // The difference is what `diff` shows.
        let summary = message.mode_details.lines().next().unwrap_or_default();
        let summary = summary.trim_start_matches("dry run, ");
        message.mode_details = format!("valid, {summary}");
    }
    call::print(global, &client, &answers)?;
    client.finish()
}
