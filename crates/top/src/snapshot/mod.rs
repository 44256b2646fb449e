//! One snapshot, for pipes and programs.

mod json;
mod text;

use std::sync::Arc;
use std::time::Duration;

use mainstay_client::{Client, Options, chain};
use serde_json::Value;

use super::Error;
use super::app::App;
use super::keys::Action;
use super::model::NodeState;
use super::poll::{Detail, Update};
use super::screen::Sort;
use super::updates::Updates;

/// The state of nodes at one moment, with rates over one interval.
#[derive(Debug)]
pub struct Snapshot {
    app: App,
}

impl Snapshot {
    /// Returns tables: everything of one node, or one row per node.
    pub fn text(&self) -> String {
        text::text(&self.app)
    }

    /// Returns a list with one object per node.
    pub fn json(&self) -> Value {
        json::json(&self.app)
    }

    /// Returns the nodes that did not answer, with the reasons.
    pub fn lost(&self) -> impl Iterator<Item = (&str, &str)> {
        self.app.nodes.iter().filter_map(|node| match &node.state {
            NodeState::Lost { reason, .. } => Some((node.name.as_str(), reason.as_str())),
            NodeState::Pending | NodeState::Up => None,
        })
    }
}

/// Polls every node twice, `interval` apart. Fails if no node answers.
pub async fn snapshot(
    options: &Options,
    interval: Duration,
    warn: impl Fn(&str),
) -> Result<Snapshot, Error> {
    let client = Client::connect(options, warn).await?;
    let mut updates = Updates::start(client, options, interval, Detail::All);
    let mut app = App::new(updates.names.clone(), 80, 24);
    let errors = gather(&mut updates, &mut app).await;
    if errors.len() == app.nodes.len()
        && let Some((_, error)) = errors.into_iter().next()
    {
        return Err(Error::Client(error));
    }
    app.apply(Action::Sort(Sort::Cpu));
    Ok(Snapshot { app })
}

/// Waits until each node was polled twice or failed. Returns the errors by node.
async fn gather(updates: &mut Updates, app: &mut App) -> Vec<(usize, Arc<mainstay_client::Error>)> {
    let mut errors: Vec<(usize, Arc<mainstay_client::Error>)> = Vec::new();
    let mut open = app.nodes.len();
    while open > 0 {
        let Some((index, update)) = updates.polled.recv().await else {
            break;
        };
        // Pollers go on; later updates of a finished node are ignored.
        if app.nodes[index].rounds >= 2 || errors.iter().any(|(node, _)| *node == index) {
            continue;
        }
        match update {
            Update::Round(round) => {
                app.apply_round(index, *round);
                if app.nodes[index].rounds >= 2 {
                    open -= 1;
                }
            }
            Update::Lost { at, error } => {
                app.mark_lost(index, at, chain(&*error));
                errors.push((index, error));
                open -= 1;
            }
        }
    }
    errors
}
