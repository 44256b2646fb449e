//! `mainstay config node show`

use mainstay_api::mainstay::Configuration;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_client::Answer;

use crate::cli::{Format, Global};
use crate::commands::connect;
use crate::connection::Connection;
use crate::failure::{Outcome, warn};
use crate::output;

pub(super) async fn show(global: &Global) -> Outcome {
    let client = connect(global).await?;
    let answers = read(&client).await?;
    if global.output == Format::Table {
        for Answer { node, message } in &answers {
            let file = match message.file.as_str() {
                "" => "defaults, no file",
                file => file,
            };
            let prefix = client.message_prefix(node);
            output::print(&format!("# {prefix}{file}\n{}", message.toml))?;
            notes(&prefix, message);
        }
    } else {
        output::print_answers(global.output, "mainstay.Configuration", &answers)?;
    }
    client.finish()
}

/// Reads the configuration of every node.
pub(super) async fn read(client: &Connection) -> Outcome<Vec<Answer<Configuration>>> {
    let answers = client.call_all((), |_, request| {
        let mut node = NodeServiceClient::new(client.channel())
            .max_decoding_message_size(mainstay_client::MAX_MESSAGE_BYTES);
        async move { node.configuration(request).await }
    });
    answers.await
}

fn notes(prefix: &str, configuration: &Configuration) {
    if !configuration.pending_restart.is_empty() {
        let keys = configuration.pending_restart.join(", ");
        warn(&format!("{prefix}changed, takes effect on restart: {keys}"));
    }
    if let Some(end) = configuration.reverts_at {
        let end = jiff::Timestamp::new(end.seconds, end.nanos);
        let end = end.map_or_else(|_| "soon".to_owned(), |end| format!("at {end:.0}"));
        warn(&format!(
            "{prefix}this configuration is on trial; the previous one returns {end}"
        ));
    }
}
