//! One snapshot, for pipes and programs.

mod json;
mod text;

use std::time::Duration;

use super::app::App;
use super::feed::Feed;
use super::keys::Action;
use super::poll::{Gaze, News};
use super::screen::Sort;
use crate::cli::{Format, Global};
use crate::client::Client;
use crate::failure::{Exit, Failure, Outcome, tell};
use crate::output;

/// Asks every node twice, `interval` apart, and prints what came of it.
pub async fn once(global: &Global, interval: Duration) -> Outcome {
    let client = Client::connect(global).await?;
    let mut feed = Feed::start(client, global, interval, Gaze::Everybody);
    let mut app = App::new(feed.names.clone(), 80, 24);
    let failures = gather(&mut feed, &mut app).await;
    if failures.len() == app.nodes.len()
        && let Some((_, failure)) = failures.into_iter().next()
    {
        return Err(failure);
    }
    app.apply(Action::Sort(Sort::Cpu));
    match global.output {
        Format::Table => output::print(&text::text(&app))?,
        format => output::document(format, &json::json(&app))?,
    }
    let mut outcome = Ok(());
    for node in app.nodes.iter().filter(|node| node.is_lost()) {
        tell(&format!("node {}: {}", node.name, why(node)));
        outcome = Err(Failure::told(Exit::Partial));
    }
    outcome
}

/// Until each node was read twice, or not. What failed, by node.
async fn gather(feed: &mut Feed, app: &mut App) -> Vec<(usize, Failure)> {
    let mut failures: Vec<(usize, Failure)> = Vec::new();
    let mut open = app.nodes.len();
    while open > 0 {
        let Some((index, news)) = feed.news.recv().await else {
            break;
        };
        // A node is heard to its end once.
        if app.nodes[index].rounds >= 2 || failures.iter().any(|(node, _)| *node == index) {
            continue;
        }
        match news {
            News::Round(round) => {
                app.take_in(index, *round);
                if app.nodes[index].rounds >= 2 {
                    open -= 1;
                }
            }
            News::Lost { at, failure } => {
                app.lose(index, at, failure.message.clone());
                failures.push((index, failure));
                open -= 1;
            }
        }
    }
    failures
}

fn why(node: &super::model::Node) -> &str {
    match &node.standing {
        super::model::Standing::Lost { why, .. } => why,
        super::model::Standing::Asked | super::model::Standing::Live => "",
    }
}
