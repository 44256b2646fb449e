//! `mainstay rollback`

use clap::Args;
use mainstay_api::machine::RollbackRequest;

use super::connect;
use super::sequence::{Sequence, WaitOptions};
use crate::cli::Global;
use crate::failure::Outcome;

/// Return nodes to the version in their other slot, one after another, and wait
///
/// The other version starts on trial as after an upgrade. A second rollback returns to the version
/// that ran first.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay rollback\n  \
    mainstay rollback -n n1,n2,n3                one node at a time, stops at the first failure\n\n\
    mainstay slots shows the versions in the slots.")]
pub struct Rollback {
    #[command(flatten)]
    wait: WaitOptions,
}

impl Rollback {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let sequence = Sequence {
            name: "rollback",
            done: "rolled back",
            returns: true,
            replaces_identity: false,
            start_timeout: None,
            wait: &self.wait,
        };
        sequence
            .run(global, &client, |client, request| {
                let request = request.map(|()| RollbackRequest {});
                async move {
                    let mut answer = client.machine().rollback(request).await?.into_inner();
                    Ok(answer.messages.pop().unwrap_or_default().actor_id)
                }
            })
            .await
    }
}
